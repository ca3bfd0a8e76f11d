/*
 * tensor_map.h - the tensor maps of one call of the Hopper prefill kernel.
 */
#ifndef GDNI_TENSOR_MAP_H
#define GDNI_TENSOR_MAP_H

#include "codegen/kernel_params.h"
#include "codegen/problem.h"
#include "runtime/driver.h"

/*
 * Fills the maps of q, k, v and o from the strides that stand in params; block_dv columns of v in one copy. GDN_E_INVALID names
 * a tensor that TMA cannot address, with the rule; GDN_E_CUDA with the driver's words. A call without tokens gets maps of
 * zeros, which its kernel does not use.
 */
gdn_status gdni_tensor_maps(struct gdni_prefill_hopper_params *params, const struct gdni_problem *problem,
                            int32_t block_dv, const struct gdni_cuda *cuda);

/*
 * Fills the maps of both pools of states, of those that the call has, and says so in states_by_map: 0 where a slot stride is
 * 2^40 bytes and more, which maps do not hold. GDN_E_CUDA with the driver's words.
 */
gdn_status gdni_state_maps(struct gdni_prefill_hopper_params *params, const struct gdni_problem *problem,
                           const struct gdni_cuda *cuda);

#endif
