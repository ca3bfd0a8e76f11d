/*
 * gpu_inputs.h - what a call of a gdn_case reads, on the device.
 */
#ifndef GPU_INPUTS_H
#define GPU_INPUTS_H

#include "gdn_cases.h"
#include "gpu_test.h"

enum { GPU_Q, GPU_K, GPU_V, GPU_G, GPU_BETA, GPU_CU, GPU_H0, GPU_NUM_INPUTS };

struct gpu_inputs {
    struct gpu_buffer at[GPU_NUM_INPUTS]; /* gpu_no_buffer: the case has none */
    size_t row[GPU_NUM_INPUTS];           /* bytes of a token; of GPU_CU one start, of GPU_H0 a sequence's states */
};

/* To the current context's device. */
void gpu_inputs_upload(struct gpu_inputs *out, const struct gdn_case *c);
void gpu_inputs_free(struct gpu_inputs *in);

/* args, which are the case's, read these. */
void gpu_inputs_aim(gdn_prefill_args *args, const struct gpu_inputs *in);

#endif
