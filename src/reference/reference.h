/*
 * reference.h - the host reference, as tests need it: results before they are rounded.
 */
#ifndef GDNI_REFERENCE_H
#define GDNI_REFERENCE_H

#include "gdn_jit/gdn_jit.h"

/*
 * As gdn_reference_prefill(), but o and final_state are arrays of double (not in place); strides count in doubles.
 * initial_state is of state_type as ever.
 */
gdn_status gdni_reference_prefill_f64(const gdn_prefill_desc *desc, const gdn_prefill_args *args);

/* As gdn_reference_conv1d_qkv(), but q, k and v are arrays of double. The state stays raw. */
gdn_status gdni_reference_conv1d_qkv_f64(const gdn_conv1d_desc *desc, const gdn_conv1d_args *args);

#endif
