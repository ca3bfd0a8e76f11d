/*
 * conv_host.h - templates/conv1d_qkv.cu as host code: the table of variants that it was compiled for, and a launch.
 */
#ifndef CONV_HOST_H
#define CONV_HOST_H

#include <stdint.h>

#include "codegen/kernel_params.h"
#include "gdn_jit/gdn_jit.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONV_HOST_THREADS = 128 }; /* of a CTA */

struct conv_host_row {
    gdn_dtype io_type;
    gdn_conv_state_layout state_layout;
    int width, vector_bytes, tile_tokens;
    uint32_t flags; /* GDN_CONV_* */
};

struct conv_host_kernel {
    struct conv_host_row row;
    void (*thread)(const struct gdni_conv1d_params *params, uint32_t block, uint32_t thread); /* runs one to its end */
};
extern const struct conv_host_kernel conv_host_kernels[];
extern const int conv_host_num_kernels;

/* Accesses since the last call that were not aligned as their instruction needs; a GPU would have faulted. */
int conv_host_take_misaligned(void);

#ifdef __cplusplus
}
#endif

#endif
