/*
 * problem_conv1d.c - owns what a legal gdn_conv1d_desc and a legal call of it are, and what a call costs. Must not know:
 * tuning, archs, kernels, devices.
 */
#include <string.h>

#include "codegen/check.h"

static gdn_status check_conv_heads(const gdn_conv1d_desc *d)
{
    GDN_TRY(gdni_check_count("num_q_heads", d->num_q_heads, 0, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_k_heads", d->num_k_heads, 0, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_v_heads", d->num_v_heads, 0, GDNI_MAX_HEADS));
    if (d->num_q_heads + d->num_k_heads + d->num_v_heads == 0)
        return GDN_FAIL(GDN_E_INVALID,
                        "num_q_heads, num_k_heads, num_v_heads are all 0: at least one must be positive");
    return GDN_OK;
}

/* A dim that no head has is not looked at. */
static gdn_status check_conv_dim(const char *member, int32_t dim, int32_t heads)
{
    if (heads == 0) return GDN_OK;
    if (dim > 0 && dim <= 256 && dim % 16 == 0) return GDN_OK;
    return GDN_FAIL(dim <= 0 ? GDN_E_INVALID : GDN_E_UNSUPPORTED, "%s is %d: must be a multiple of 16, up to 256",
                    member, dim);
}

static gdn_status check_conv_rest(const gdn_conv1d_desc *d)
{
    if (d->state_layout != GDN_CONV_STATE_CW && d->state_layout != GDN_CONV_STATE_WC)
        return GDN_FAIL(GDN_E_INVALID, "state_layout is %d: must be GDN_CONV_STATE_CW or GDN_CONV_STATE_WC",
                        d->state_layout);
    if (d->width < 2 || d->width > 4)
        return GDN_FAIL(d->width < 1 ? GDN_E_INVALID : GDN_E_UNSUPPORTED, "width is %d: must be 2, 3 or 4", d->width);
    if (d->flags & ~(uint32_t)(GDN_CONV_SILU | GDN_CONV_BIAS))
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only GDN_CONV_SILU and GDN_CONV_BIAS are known", d->flags);
    const int32_t a = d->x_alignment;
    if (a != 0 && a != 2 && a != 4 && a != 8 && a != 16)
        return GDN_FAIL(GDN_E_INVALID, "x_alignment is %d: must be 2, 4, 8 or 16 bytes, or 0 for 16", a);
    return GDN_OK;
}

gdn_status gdni_problem_from_conv1d(struct gdni_problem *out, const gdn_conv1d_desc *desc)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    GDN_TRY(gdni_take_struct(&d, sizeof d, desc, "gdn_conv1d_desc", sizeof d));
    GDN_TRY(gdni_check_io_type("io_type", (int32_t)d.io_type));
    GDN_TRY(check_conv_heads(&d));
    GDN_TRY(check_conv_dim("head_dim_qk", d.head_dim_qk, d.num_q_heads + d.num_k_heads));
    GDN_TRY(check_conv_dim("head_dim_v", d.head_dim_v, d.num_v_heads));
    GDN_TRY(check_conv_rest(&d));
    GDN_TRY(gdni_check_bounds(d.max_tokens, d.max_seqs));
    memset(out, 0, sizeof *out);
    *out = (struct gdni_problem){
        .op = GDNI_OP_CONV1D_QKV,
        .io_type = (int32_t)d.io_type,
        .state_type = (int32_t)d.io_type,
        .state_layout = (int32_t)d.state_layout,
        .num_q_heads = d.num_q_heads,
        .num_k_heads = d.num_k_heads,
        .num_v_heads = d.num_v_heads,
        .num_heads = d.num_q_heads + d.num_k_heads + d.num_v_heads,
        .head_dim_qk = d.head_dim_qk,
        .head_dim_v = d.head_dim_v,
        .width = d.width,
        .flags = d.flags,
        .x_alignment = d.x_alignment ? d.x_alignment : 16,
        .max_tokens = d.max_tokens,
        .max_seqs = d.max_seqs,
    };
    return GDN_OK;
}

static gdn_status check_conv_output(const char *name, gdn_devptr value, int32_t heads, bool rows)
{
    if (heads == 0 && value)
        return GDN_FAIL(GDN_E_INVALID, "%s is 0x%llx but the plan has no head for it: pass 0", name,
                        (unsigned long long)value);
    const struct gdni_pointer pointer = { name, value, rows && heads > 0, 16 };
    return gdni_check_pointers(&pointer, 1);
}

static gdn_status check_conv_x(const struct gdni_problem *p, const gdn_conv1d_args *a, bool rows)
{
    const struct gdni_pointer x = { "x", a->x, rows, p->x_alignment };
    GDN_TRY(gdni_check_pointers(&x, 1));
    if (!rows) return GDN_OK;
    if (a->x_stride < gdni_problem_channels(p) || a->x_stride > INT32_MAX)
        return GDN_FAIL(GDN_E_INVALID,
                        "x_stride is %lld elements: must be at least the %lld channels of a row, and below 2^31",
                        (long long)a->x_stride, (long long)gdni_problem_channels(p));
    if (a->x_stride * gdni_dtype_bytes(p->io_type) % p->x_alignment)
        return GDN_FAIL(GDN_E_INVALID,
                        "x_stride is %lld elements: rows must keep x_alignment, %d bytes; plan with a smaller one",
                        (long long)a->x_stride, p->x_alignment);
    return GDN_OK;
}

gdn_status gdni_check_conv1d_args(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    GDN_TRY(gdni_check_sizes(p, a->num_tokens, a->num_seqs, a->cu_seqlens));
    const bool rows = a->num_tokens > 0 && a->num_seqs > 0, biased = p->flags & GDN_CONV_BIAS;
    GDN_TRY(check_conv_x(p, a, rows));
    if (a->bias && !biased)
        return GDN_FAIL(GDN_E_INVALID, "bias is given but the plan's flags lack GDN_CONV_BIAS: plan with it or pass 0");
    const struct gdni_pointer pointers[] = {
        { "weight", a->weight, rows, 16 },
        { "bias", a->bias, rows && biased, 16 },
        { "state", a->state, false, 16 },
        { "slots", a->slots, false, 4 },
        { "has_initial_state", a->has_initial_state, false, 1 },
        { "cu_seqlens", a->cu_seqlens, false, 4 },
    };
    GDN_TRY(gdni_check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    GDN_TRY(check_conv_output("q", a->q, p->num_q_heads, rows));
    GDN_TRY(check_conv_output("k", a->k, p->num_k_heads, rows));
    return check_conv_output("v", a->v, p->num_v_heads, rows);
}

void gdni_conv1d_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes, double *flops)
{
    const double tokens = (double)num_tokens, seqs = (double)num_seqs;
    const double io = gdni_dtype_bytes(p->io_type);
    const double channels = (double)gdni_problem_channels(p);
    *bytes = io * channels * (2 * tokens + p->width + 2 * seqs * (p->width - 1));
    *flops = 2 * channels * tokens * p->width;
}
