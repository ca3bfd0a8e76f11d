/*
 * conv_host.h - templates/conv1d_qkv.cu as host code: kernels by row of conv_variants.h, and what runs a warp of them.
 */
#ifndef CONV_HOST_H
#define CONV_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "codegen/kernel_params.h"
#include "conv_variants.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONV_HOST_THREADS = 128, CONV_HOST_WARP = 32 };

typedef void (*conv_host_thread)(const struct gdni_conv1d_params *params);

/* lanes: of a head where the kernel normalises, else 0. Called before main(), by each kernel. */
bool conv_host_register(int row, int lanes, conv_host_thread thread, int smem_bytes);
/* NULL: not among those that were compiled. */
const struct conv_host_kernel *conv_host_find(int row, int lanes);

/* Runs the 32 lanes of one warp to their end: side by side where the kernel shuffles, else one by one, maybe backwards. */
void conv_host_run_warp(const struct conv_host_kernel *kernel, const struct gdni_conv1d_params *params, uint32_t block,
                        uint32_t warp, bool backwards);

/*
 * What a GPU would not have borne since the last call: accesses that are not aligned as their instruction needs, shuffles that
 * not all lanes of a warp reach. Shared memory holds NaN until the copies into it have been waited for.
 */
int conv_host_take_faults(void);

/* ---- for cuda_host.h ---- */

struct conv_host_index {
    unsigned x, y, z;
};
extern struct conv_host_index conv_host_block, conv_host_thread_index;
void *conv_host_shared_memory(void);
void conv_host_copy(void *to, const void *from, int bytes); /* asynchronous */
void conv_host_end_group(void);
void conv_host_wait_but_for(int groups);
float conv_host_shuffle_xor(float x, int mask);
void conv_host_fault(void);

#ifdef __cplusplus
}
#endif

#endif
