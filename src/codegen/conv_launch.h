/*
 * conv_launch.h - a call of conv1d-QKV as the kernel sees it: the launch struct and the grid.
 */
#ifndef GDNI_CONV_LAUNCH_H
#define GDNI_CONV_LAUNCH_H

#include "codegen/kernel_params.h"
#include "codegen/spec.h"

/* Sequences that one row of items looks through for empty ones. */
enum { GDNI_CONV_COPIES = 32 };

/*
 * args has passed gdni_check_conv1d_args(). grid[0] 0: there is nothing to do. GDN_E_INVALID when the call passes the kernel's
 * largest grid.
 */
gdn_status gdni_conv1d_launch(struct gdni_conv1d_params *out, uint32_t grid[3], const struct gdni_spec *spec,
                              const struct gdni_problem *problem, const gdn_conv1d_args *args, int num_sms);

#endif
