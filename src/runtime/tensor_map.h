/*
 * tensor_map.h - the tensor maps of one call of the Hopper prefill kernel.
 */
#ifndef GDNI_TENSOR_MAP_H
#define GDNI_TENSOR_MAP_H

#include "codegen/kernel_params.h"
#include "codegen/problem.h"
#include "runtime/driver.h"

/*
 * Fills the four maps from the strides that stand in params; block_dv columns of v in one copy. GDN_E_INVALID names a tensor
 * that TMA cannot address, with the rule; GDN_E_CUDA with the driver's words. A call without tokens gets maps of zeros, which
 * its kernel does not use.
 */
gdn_status gdni_tensor_maps(struct gdni_prefill_hopper_params *params, const struct gdni_problem *problem,
                            int32_t block_dv, const struct gdni_cuda *cuda);

#endif
