/*
 * fake_kernels.c - see fake_kernels.h.
 */
#include "fake_kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernel_params.h"
#include "rng.h"

struct sizes {
    int64_t tokens, seqs;
    const int32_t *starts; /* cu_seqlens; NULL: a uniform batch */
};

static struct sizes sizes_of(const struct fake_launch *launch)
{
    struct gdni_prefill_params p;
    struct gdni_conv1d_params c;
    memcpy(&p, launch->params, sizeof p);
    memcpy(&c, launch->params, sizeof c);
    if (strstr(launch->kernel, "prefill"))
        return (struct sizes){ p.num_tokens, p.num_seqs, (const int32_t *)(uintptr_t)p.cu_seqlens };
    return (struct sizes){ c.num_tokens, c.num_seqs, (const int32_t *)(uintptr_t)c.cu_seqlens };
}

static bool is_uneven(const struct sizes *s)
{
    return s->starts && s->seqs > 1 && s->starts[1] >= 2 * (s->starts[s->seqs] - s->starts[1]) / (s->seqs - 1);
}

static bool is_lone(const struct sizes *s)
{
    return is_uneven(s) && s->starts[1] > s->starts[s->seqs] / 4 * 3;
}

/* Of float32 gates, the first head of every tenth token. */
static bool is_undecayed(const struct fake_kernels *k, const struct fake_launch *launch)
{
    struct gdni_prefill_params p;
    if (!strstr(launch->kernel, "prefill") || k->prefill.gate_type != GDN_F32) return false;
    memcpy(&p, launch->params, sizeof p);
    const float *g = (const float *)(uintptr_t)p.g;
    for (int64_t token = 0; token < p.num_tokens; token += 10)
        if (g[token * p.g_token_stride] != 0) return false;
    return true;
}

static bool is_gateless(const struct fake_launch *launch)
{
    struct gdni_conv1d_params c;
    memcpy(&c, launch->params, sizeof c);
    return !strstr(launch->kernel, "prefill") && !c.num_gate_heads;
}

static const struct fake_kernel_row *row_of(const struct fake_kernels *k, const struct fake_launch *launch)
{
    const struct sizes sizes = sizes_of(launch);
    for (int i = 0; i < k->num_rows; ++i) {
        const struct fake_kernel_row *row = &k->rows[i];
        if (row->smem == launch->smem && (!row->most_tokens || sizes.tokens <= row->most_tokens) &&
            (!row->uneven || is_uneven(&sizes)) && (!row->lone || is_lone(&sizes)) &&
            (!row->undecayed || is_undecayed(k, launch)) && (!row->gateless || is_gateless(launch)))
            return row;
    }
    return NULL;
}

int64_t fake_kernel_duration(void *user, const struct fake_launch *launch)
{
    struct fake_kernels *k = user;
    const struct fake_kernel_row *row = row_of(k, launch);
    const int64_t ns = row && row->ns ? row->ns : k->ns;
    struct rng rng;
    if (ns < 0) return ns;
    rng_seed(&rng, k->seed++);
    return (int64_t)((double)ns * (1 + k->noise * rng_between(&rng, -1, 1)));
}

/* A kernel that the reference refuses was launched wrongly: nothing sensible can come of the test. */
static void demand(gdn_status status)
{
    if (status == GDN_OK) return;
    fprintf(stderr, "fake_kernels: a launch that the host reference refuses: %s\n", gdn_last_error());
    abort();
}

static gdn_strides strides(int64_t batch, int64_t token, int64_t head, uint64_t cu_seqlens)
{
    return (gdn_strides){ cu_seqlens ? 0 : batch, token, head };
}

static uint64_t run_prefill(const struct fake_kernels *k, const struct gdni_prefill_params *p)
{
    gdn_prefill_desc d = k->prefill;
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    d.num_q_heads = p->q_mod, d.num_k_heads = p->k_mod, d.num_v_heads = p->v_mod;
    d.head_dim_qk = (int32_t)p->q_head_stride,
    d.head_dim_v = (int32_t)p->o_head_stride; /* packed, as the tuner has them */
    d.max_tokens = p->num_tokens, d.max_seqs = p->num_seqs;
    a.q = p->q, a.k = p->k, a.v = p->v, a.g = p->g, a.beta = p->beta, a.o = p->o;
    a.a_log = p->a_log, a.dt_bias = p->dt_bias;
    a.initial_state = p->initial_state, a.final_state = p->final_state, a.has_initial_state = p->has_initial_state;
    a.slot_in = p->slot_in, a.slot_out = p->slot_out;
    a.slot_in_stride = p->slot_in_stride, a.slot_out_stride = p->slot_out_stride;
    a.cu_seqlens = p->cu_seqlens;
    a.checkpoints = p->checkpoints, a.num_checkpoints = p->num_checkpoints;
    a.q_strides = strides(p->q_batch_stride, p->q_token_stride, p->q_head_stride, p->cu_seqlens);
    a.k_strides = strides(p->k_batch_stride, p->k_token_stride, p->k_head_stride, p->cu_seqlens);
    a.v_strides = strides(p->v_batch_stride, p->v_token_stride, p->v_head_stride, p->cu_seqlens);
    a.o_strides = strides(p->o_batch_stride, p->o_token_stride, p->o_head_stride, p->cu_seqlens);
    a.g_strides = strides(p->g_batch_stride, p->g_token_stride, p->g_head_stride, p->cu_seqlens);
    a.beta_strides = strides(p->beta_batch_stride, p->beta_token_stride, p->beta_head_stride, p->cu_seqlens);
    a.initial_slot_stride = p->initial_slot_stride, a.final_slot_stride = p->final_slot_stride;
    a.num_tokens = p->num_tokens, a.num_seqs = p->num_seqs;
    a.scale = p->scale, a.has_scale = 1;
    demand(gdn_reference_prefill(&d, &a));
    return p->o;
}

static uint64_t run_conv(const struct fake_kernels *k, const struct gdni_conv1d_params *p)
{
    gdn_conv1d_desc d = k->conv1d;
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    d.num_q_heads = p->channels[0] / p->head_dim_qk, d.num_k_heads = p->channels[1] / p->head_dim_qk;
    d.num_v_heads = p->channels[2] / p->head_dim_v, d.num_gate_heads = p->num_gate_heads;
    if (!d.num_gate_heads) d.flags &= ~(uint32_t)(GDN_CONV_GATE_EXP | GDN_CONV_BETA_ROUNDED | GDN_CONV_BETA_TIMES_2);
    d.head_dim_qk = p->head_dim_qk, d.head_dim_v = p->head_dim_v;
    d.max_tokens = p->num_tokens, d.max_seqs = p->num_seqs;
    a.x = p->x, a.weight = p->weight, a.bias = p->bias, a.a = p->a, a.b = p->b, a.a_log = p->a_log;
    a.dt_bias = p->dt_bias, a.q = p->out[0], a.k = p->out[1], a.v = p->out[2], a.g = p->g, a.beta = p->beta;
    a.state = p->state;
    a.slot_in = p->slot_in, a.slot_out = p->slot_out, a.has_initial_state = p->has_initial_state;
    a.slot_in_stride = p->slot_in_stride, a.slot_out_stride = p->slot_out_stride;
    a.cu_seqlens = p->cu_seqlens, a.checkpoints = p->checkpoints, a.num_checkpoints = p->num_checkpoints;
    a.x_stride = p->x_stride, a.x_group_stride = p->x_group_stride;
    a.q_strides = (gdn_strides){ 0, p->token_stride[0], p->head_gap[0] + p->head_dim_qk };
    a.k_strides = (gdn_strides){ 0, p->token_stride[1], p->head_gap[1] + p->head_dim_qk };
    a.v_strides = (gdn_strides){ 0, p->token_stride[2], p->head_gap[2] + p->head_dim_v };
    a.a_stride = p->a_stride, a.b_stride = p->b_stride, a.gate_group_stride = p->gate_group_stride;
    a.state_slot_stride = p->state_slot_stride, a.state_channel_stride = p->state_channel_stride;
    a.num_tokens = p->num_tokens, a.num_seqs = p->num_seqs;
    demand(gdn_reference_conv1d_qkv(&d, &a));
    return p->out[0] ? p->out[0] : p->out[2];
}

/* One 16-bit element of an output, in a row that every call has: larger than any that is right. */
static void spoil(uint64_t output)
{
    const uint16_t bits = 0x4140; /* 12 in bf16, 2.6 in fp16 */
    memcpy((void *)(uintptr_t)(output + 2 * 64 * 80), &bits, sizeof bits);
}

void fake_kernel_execute(void *user, const struct fake_launch *launch)
{
    const struct fake_kernels *k = user;
    const struct fake_kernel_row *row = row_of(k, launch);
    const bool prefill = strstr(launch->kernel, "prefill") != NULL;
    struct gdni_prefill_params p;
    struct gdni_conv1d_params c;
    uint64_t output;
    if (prefill) {
        memcpy(&p, launch->params, sizeof p);
        output = run_prefill(k, &p);
    } else {
        memcpy(&c, launch->params, sizeof c);
        output = run_conv(k, &c);
    }
    if (row && row->wrong) spoil(output);
    if (row && row->overwrites) *(unsigned char *)(uintptr_t)(prefill ? p.v : c.x) ^= 1;
}
