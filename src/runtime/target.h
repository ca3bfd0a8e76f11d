/*
 * target.h - what a device is: its compute capability and the gdn_target that names it.
 */
#ifndef GDNI_TARGET_H
#define GDNI_TARGET_H

#include "runtime/driver.h"

enum { GDNI_MOST_SMS = 65536 }; /* more than any GPU has, and few enough for sizes that follow from it */

/* GDN_E_NO_DEVICE when there is no such ordinal. */
gdn_status gdni_device_find(const struct gdni_cuda *cuda, int ordinal, gdni_cudevice *out);

/* major * 10 + minor */
gdn_status gdni_device_cc(const struct gdni_cuda *cuda, gdni_cudevice device, int *out);

/* GDN_E_UNSUPPORTED for a compute capability that no code is generated for. */
gdn_status gdni_device_target(const struct gdni_cuda *cuda, gdni_cudevice device, gdn_target *out);

#endif
