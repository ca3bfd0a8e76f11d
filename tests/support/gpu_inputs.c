/* gpu_inputs.c - see gpu_inputs.h. */
#include "gpu_inputs.h"

void gpu_inputs_upload(struct gpu_inputs *out, const struct gdn_case *c)
{
    const size_t qk = (size_t)c->desc.head_dim_qk, v = (size_t)c->desc.head_dim_v, heads = (size_t)c->heads;
    const size_t tokens = (size_t)c->tokens, seqs = (size_t)c->shape->num_seqs;
    const struct {
        const void *host;
        size_t rows, row;
    } inputs[GPU_NUM_INPUTS] = {
        [GPU_Q] = { c->q, tokens, (size_t)c->shape->num_q_heads * qk * sizeof *c->q },
        [GPU_K] = { c->k, tokens, (size_t)c->shape->num_k_heads * qk * sizeof *c->k },
        [GPU_V] = { c->v, tokens, (size_t)c->shape->num_v_heads * v * sizeof *c->v },
        [GPU_G] = { c->g, tokens, heads * sizeof *c->g },
        [GPU_BETA] = { c->beta, tokens, heads * sizeof *c->beta },
        [GPU_CU] = { c->cu, seqs + 1, sizeof *c->cu },
        [GPU_H0] = { c->h0, seqs, heads * qk * v * sizeof *c->h0 },
    };
    for (int i = 0; i < GPU_NUM_INPUTS; ++i) {
        out->at[i] = inputs[i].host ? gpu_buffer_from(inputs[i].host, inputs[i].rows * inputs[i].row) : gpu_no_buffer;
        out->row[i] = inputs[i].row;
    }
}

void gpu_inputs_free(struct gpu_inputs *in)
{
    for (int i = 0; i < GPU_NUM_INPUTS; ++i)
        gpu_buffer_free(&in->at[i]);
}

void gpu_inputs_aim(gdn_prefill_args *args, const struct gpu_inputs *in)
{
    args->q = in->at[GPU_Q].p, args->k = in->at[GPU_K].p, args->v = in->at[GPU_V].p;
    args->g = in->at[GPU_G].p, args->beta = in->at[GPU_BETA].p;
    args->cu_seqlens = args->cu_seqlens ? in->at[GPU_CU].p : 0;
    args->initial_state = in->at[GPU_H0].p;
}
