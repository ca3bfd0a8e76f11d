/*
 * problem_prefill.c - owns what a legal gdn_prefill_desc is, and what a call costs. Must not know: arguments of a call
 * (call_prefill.c), tuning, archs, kernels, devices.
 */
#include <string.h>

#include "base/first_size.h"
#include "codegen/check.h"

static gdn_status check_heads(const gdn_prefill_desc *d, int32_t *heads)
{
    GDN_TRY(gdni_check_count("num_q_heads", d->num_q_heads, 1, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_k_heads", d->num_k_heads, 1, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_v_heads", d->num_v_heads, 1, GDNI_MAX_HEADS));
    int32_t h = d->num_q_heads > d->num_k_heads ? d->num_q_heads : d->num_k_heads;
    if (d->num_v_heads > h) h = d->num_v_heads;
    if (h % d->num_q_heads || h % d->num_k_heads || h % d->num_v_heads)
        return GDN_FAIL(GDN_E_INVALID,
                        "num_q_heads, num_k_heads, num_v_heads are %d, %d, %d: each must divide the largest of them",
                        d->num_q_heads, d->num_k_heads, d->num_v_heads);
    *heads = h;
    return gdni_check_enum("head_map", (int32_t)d->head_map, GDN_HEADS_GROUPED, GDN_HEADS_TILED,
                           "GDN_HEADS_GROUPED or GDN_HEADS_TILED");
}

static gdn_status check_dims(const gdn_prefill_desc *d)
{
    const int32_t dk = d->head_dim_qk, dv = d->head_dim_v;
    if (dk <= 0 || dv <= 0)
        return GDN_FAIL(GDN_E_INVALID, "head_dim_qk, head_dim_v are %d, %d: must be positive", dk, dv);
    if (dk == dv && (dk == 64 || dk == 128)) return GDN_OK;
    return GDN_FAIL(GDN_E_UNSUPPORTED, "head_dim_qk, head_dim_v are %d, %d: kernels exist for 64, 64 and 128, 128", dk,
                    dv);
}

static gdn_status check_gates(const gdn_prefill_desc *d)
{
    GDN_TRY(gdni_check_enum("gate", (int32_t)d->gate, GDN_GATE_LOG, GDN_GATE_LOGITS,
                            "GDN_GATE_LOG, GDN_GATE_LINEAR or GDN_GATE_LOGITS"));
    GDN_TRY(gdni_check_float_type("gate_type", (int32_t)d->gate_type));
    GDN_TRY(gdni_check_enum("beta", (int32_t)d->beta, GDN_BETA_PLAIN, GDN_BETA_LOGITS,
                            "GDN_BETA_PLAIN or GDN_BETA_LOGITS"));
    return gdni_check_float_type("beta_type", (int32_t)d->beta_type);
}

static gdn_status check_types(const gdn_prefill_desc *d)
{
    enum {
        KNOWN = GDN_PREFILL_QK_L2NORM | GDN_PREFILL_BETA_TIMES_2 | GDN_PREFILL_CHECKPOINTS | GDN_PREFILL_ZERO_PADDING |
                GDN_PREFILL_PROGRAMMATIC_LAUNCH
    };
    GDN_TRY(gdni_check_io_type("io_type", (int32_t)d->io_type));
    GDN_TRY(gdni_check_float_type("state_type", (int32_t)d->state_type));
    GDN_TRY(gdni_check_enum("state_layout", (int32_t)d->state_layout, GDN_STATE_KV, GDN_STATE_VK,
                            "GDN_STATE_KV or GDN_STATE_VK"));
    if (d->flags & ~(uint32_t)KNOWN)
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only GDN_PREFILL_* are known, 0x%x together", d->flags, KNOWN);
    return GDN_OK;
}

static gdn_status check_desc(const gdn_prefill_desc *d, int32_t *heads)
{
    GDN_TRY(check_types(d));
    GDN_TRY(check_heads(d, heads));
    GDN_TRY(check_dims(d));
    GDN_TRY(check_gates(d));
    return gdni_check_bounds(d->max_tokens, d->max_seqs);
}

gdn_status gdni_problem_from_prefill(struct gdni_problem *out, const gdn_prefill_desc *desc)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    int32_t heads = 0;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prefill_desc, &d, desc));
    GDN_TRY(check_desc(&d, &heads));
    memset(out, 0, sizeof *out);
    *out = (struct gdni_problem){
        .op = GDNI_OP_PREFILL,
        .io_type = (int32_t)d.io_type,
        .state_type = (int32_t)d.state_type,
        .state_layout = (int32_t)d.state_layout,
        .num_q_heads = d.num_q_heads,
        .num_k_heads = d.num_k_heads,
        .num_v_heads = d.num_v_heads,
        .num_heads = heads,
        .head_dim_qk = d.head_dim_qk,
        .head_dim_v = d.head_dim_v,
        .head_map = (int32_t)d.head_map,
        .gate = (int32_t)d.gate,
        .gate_type = (int32_t)d.gate_type,
        .beta = (int32_t)d.beta,
        .beta_type = (int32_t)d.beta_type,
        .flags = d.flags,
        .max_tokens = d.max_tokens,
        .max_seqs = d.max_seqs,
    };
    GDN_TRY(gdni_take_index_type(&out->cu_seqlens_type, "cu_seqlens_type", (int32_t)d.cu_seqlens_type));
    return gdni_take_index_type(&out->slot_type, "slot_type", (int32_t)d.slot_type);
}

int64_t gdni_problem_state_size(const struct gdni_problem *p)
{
    return (int64_t)p->num_heads * p->head_dim_qk * p->head_dim_v;
}

static double prefill_bytes(const struct gdni_problem *p, double tokens, double seqs)
{
    const double io = gdni_dtype_bytes(p->io_type), h = p->num_heads;
    const double dk = p->head_dim_qk, dv = p->head_dim_v;
    const double row = io * (dk * (p->num_q_heads + p->num_k_heads) + dv * p->num_v_heads + dv * h) +
                       h * (gdni_dtype_bytes(p->gate_type) + gdni_dtype_bytes(p->beta_type));
    return tokens * row + seqs * (double)gdni_problem_state_size(p) * 2 * gdni_dtype_bytes(p->state_type);
}

/* Per chunk of C tokens and head: K K^T, Q K^T, T W, P V' (C x C x D each) and K S, Q S, K^T V' (C x DK x DV each). */
static double prefill_flops(const struct gdni_problem *p, double tokens)
{
    const double chunk = 64, dk = p->head_dim_qk, dv = p->head_dim_v;
    return tokens * p->num_heads * 2 * (2 * chunk * dk + 2 * chunk * dv + 3 * dk * dv);
}

void gdni_prefill_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes, double *flops)
{
    *bytes = prefill_bytes(p, (double)num_tokens, (double)num_seqs);
    *flops = prefill_flops(p, (double)num_tokens);
}
