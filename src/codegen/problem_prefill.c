/*
 * problem_prefill.c - owns what a legal gdn_prefill_desc and a legal call of it are, and what a call costs. Must not know:
 * tuning, archs, kernels, devices.
 */
#include <string.h>

#include "codegen/check.h"

static gdn_status check_prefill_heads(const gdn_prefill_desc *d, int32_t *heads)
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
    return GDN_OK;
}

static gdn_status check_prefill_dims(const gdn_prefill_desc *d)
{
    const int32_t dk = d->head_dim_qk, dv = d->head_dim_v;
    if (dk <= 0 || dv <= 0)
        return GDN_FAIL(GDN_E_INVALID, "head_dim_qk, head_dim_v are %d, %d: must be positive", dk, dv);
    if (dk == dv && (dk == 64 || dk == 128)) return GDN_OK;
    return GDN_FAIL(GDN_E_UNSUPPORTED, "head_dim_qk, head_dim_v are %d, %d: kernels exist for 64, 64 and 128, 128", dk,
                    dv);
}

gdn_status gdni_problem_from_prefill(struct gdni_problem *out, const gdn_prefill_desc *desc)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    int32_t heads = 0;
    GDN_TRY(gdni_take_struct(&d, sizeof d, desc, "gdn_prefill_desc", sizeof d));
    GDN_TRY(gdni_check_io_type("io_type", (int32_t)d.io_type));
    if (d.state_type != GDN_F32)
        return GDN_FAIL(gdni_is_dtype((int32_t)d.state_type) ? GDN_E_UNSUPPORTED : GDN_E_INVALID,
                        "state_type is %d (%s): must be GDN_F32", d.state_type, gdni_dtype_name((int32_t)d.state_type));
    if (d.state_layout != GDN_STATE_KV && d.state_layout != GDN_STATE_VK)
        return GDN_FAIL(GDN_E_INVALID, "state_layout is %d: must be GDN_STATE_KV or GDN_STATE_VK", d.state_layout);
    GDN_TRY(check_prefill_heads(&d, &heads));
    GDN_TRY(check_prefill_dims(&d));
    GDN_TRY(gdni_check_bounds(d.max_tokens, d.max_seqs));
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
        .max_tokens = d.max_tokens,
        .max_seqs = d.max_seqs,
    };
    return GDN_OK;
}

gdn_status gdni_check_prefill_args(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    GDN_TRY(gdni_check_sizes(p, a->num_tokens, a->num_seqs, a->cu_seqlens));
    const bool rows = a->num_tokens > 0 && a->num_seqs > 0;
    const struct gdni_pointer pointers[] = {
        { "q", a->q, rows, 16 },
        { "k", a->k, rows, 16 },
        { "v", a->v, rows, 16 },
        { "g", a->g, false, 16 },
        { "beta", a->beta, false, 16 },
        { "o", a->o, rows, 16 },
        { "initial_state", a->initial_state, false, 16 },
        { "final_state", a->final_state, false, 16 },
        { "cu_seqlens", a->cu_seqlens, false, 4 },
    };
    GDN_TRY(gdni_check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    if (a->has_scale != 0 && a->has_scale != 1)
        return GDN_FAIL(GDN_E_INVALID, "has_scale is %d: must be 0 (default scale) or 1 (args.scale)", a->has_scale);
    return GDN_OK;
}

static double prefill_bytes(const struct gdni_problem *p, double tokens, double seqs)
{
    const double io = gdni_dtype_bytes(p->io_type), h = p->num_heads;
    const double dk = p->head_dim_qk, dv = p->head_dim_v;
    const double row = io * (dk * (p->num_q_heads + p->num_k_heads) + dv * p->num_v_heads + dv * h) + 8 * h;
    return tokens * row + seqs * h * dk * dv * 2 * gdni_dtype_bytes(p->state_type);
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
