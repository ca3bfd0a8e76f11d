/*
 * problem_conv1d.c - owns what a legal gdn_conv1d_desc is, and what a call costs. Must not know: arguments of a call
 * (call_conv1d.c), tuning, archs, kernels, devices.
 */
#include <string.h>

#include "base/first_size.h"
#include "codegen/check.h"

static gdn_status check_heads(const gdn_conv1d_desc *d)
{
    GDN_TRY(gdni_check_count("num_q_heads", d->num_q_heads, 0, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_k_heads", d->num_k_heads, 0, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_v_heads", d->num_v_heads, 0, GDNI_MAX_HEADS));
    GDN_TRY(gdni_check_count("num_gate_heads", d->num_gate_heads, 0, GDNI_MAX_HEADS));
    if (d->num_q_heads + d->num_k_heads + d->num_v_heads == 0)
        return GDN_FAIL(GDN_E_INVALID,
                        "num_q_heads, num_k_heads, num_v_heads are all 0: at least one must be positive");
    return GDN_OK;
}

/* A dim that no head has is not looked at. */
static gdn_status check_dim(const char *member, int32_t dim, int32_t heads)
{
    if (heads == 0) return GDN_OK;
    if (dim > 0 && dim <= 256 && dim % 16 == 0) return GDN_OK;
    return GDN_FAIL(dim <= 0 ? GDN_E_INVALID : GDN_E_UNSUPPORTED, "%s is %d: must be a multiple of 16, up to 256",
                    member, dim);
}

static gdn_status check_layouts(const gdn_conv1d_desc *d)
{
    GDN_TRY(gdni_check_enum("state_layout", (int32_t)d->state_layout, GDN_CONV_STATE_CW, GDN_CONV_STATE_CW_STRIDED,
                            "GDN_CONV_STATE_CW, GDN_CONV_STATE_WC or GDN_CONV_STATE_CW_STRIDED"));
    if (!d->x_layout || d->x_layout == GDN_CONV_X_PACKED) return GDN_OK;
    GDN_TRY(gdni_check_enum("x_layout", (int32_t)d->x_layout, GDN_CONV_X_PACKED, GDN_CONV_X_INTERLEAVED,
                            "GDN_CONV_X_PACKED or GDN_CONV_X_INTERLEAVED"));
    if (d->num_q_heads != d->num_k_heads || d->num_k_heads == 0 || d->num_v_heads % d->num_k_heads)
        return GDN_FAIL(
            GDN_E_INVALID,
            "num_q_heads, num_k_heads, num_v_heads are %d, %d, %d: with GDN_CONV_X_INTERLEAVED a group is one "
            "q and one k head and the same number of v heads each; use equal q and k and a multiple for v",
            d->num_q_heads, d->num_k_heads, d->num_v_heads);
    return GDN_OK;
}

static gdn_status check_alignment(const gdn_conv1d_desc *d)
{
    const int32_t a = d->x_alignment;
    if (a != 0 && a != 2 && a != 4 && a != 8 && a != 16)
        return GDN_FAIL(GDN_E_INVALID, "x_alignment is %d: must be 2, 4, 8 or 16 bytes, or 0 for 16", a);
    if (a == 2 && d->io_type == GDN_F32)
        return GDN_FAIL(GDN_E_INVALID,
                        "x_alignment is 2 but io_type is GDN_F32: an element has 4 bytes, use 4 or more");
    return GDN_OK;
}

/* With the defaults of 0 already put in. */
static gdn_status check_types(const gdn_conv1d_desc *d)
{
    GDN_TRY(gdni_check_float_type("io_type", (int32_t)d->io_type));
    GDN_TRY(gdni_check_float_type("state_type", (int32_t)d->state_type));
    GDN_TRY(gdni_check_float_type("gate_type", (int32_t)d->gate_type));
    GDN_TRY(gdni_check_float_type("a_log_type", (int32_t)d->a_log_type));
    return gdni_check_float_type("dt_bias_type", (int32_t)d->dt_bias_type);
}

enum {
    GATE_FLAGS = GDN_CONV_GATE_EXP | GDN_CONV_BETA_ROUNDED | GDN_CONV_BETA_TIMES_2,
    KNOWN_FLAGS = GDN_CONV_SILU | GDN_CONV_BIAS | GDN_CONV_L2_NORM | GDN_CONV_EXACT_NORM | GDN_CONV_ZERO_PADDING |
                  GDN_CONV_CHECKPOINTS | GATE_FLAGS | GDN_CONV_LAUNCH_DEPENDENTS
};

static gdn_status check_gate_flags(const gdn_conv1d_desc *d)
{
    if (d->num_gate_heads == 0 && d->flags & GATE_FLAGS)
        return GDN_FAIL(GDN_E_INVALID,
                        "flags is 0x%x but num_gate_heads is 0: GDN_CONV_GATE_EXP and GDN_CONV_BETA_* need gate heads",
                        d->flags);
    if (d->flags & GDN_CONV_BETA_ROUNDED && d->gate_type == GDN_F32)
        return GDN_FAIL(GDN_E_INVALID,
                        "flags has GDN_CONV_BETA_ROUNDED but gate_type is GDN_F32: it rounds to gate_type, use 16 bit");
    return GDN_OK;
}

/* A warp sums a head's squares by shuffles: 8 channels a lane, a power of two of lanes. */
static gdn_status check_norm(const gdn_conv1d_desc *d)
{
    if (d->flags & GDN_CONV_EXACT_NORM && !(d->flags & GDN_CONV_L2_NORM))
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: GDN_CONV_EXACT_NORM needs GDN_CONV_L2_NORM", d->flags);
    if (!(d->flags & GDN_CONV_L2_NORM)) return GDN_OK;
    if (d->num_q_heads + d->num_k_heads == 0)
        return GDN_FAIL(GDN_E_INVALID, "flags has GDN_CONV_L2_NORM but there is no q and no k head: drop the flag");
    if ((d->head_dim_qk & (d->head_dim_qk - 1)) != 0)
        return GDN_FAIL(GDN_E_UNSUPPORTED,
                        "head_dim_qk is %d: GDN_CONV_L2_NORM needs 16, 32, 64, 128 or 256; drop the flag and normalise "
                        "q and k after the call",
                        d->head_dim_qk);
    return GDN_OK;
}

static gdn_status check_rest(const gdn_conv1d_desc *d)
{
    if (d->width < 2 || d->width > 4)
        return GDN_FAIL(d->width < 1 ? GDN_E_INVALID : GDN_E_UNSUPPORTED, "width is %d: must be 2, 3 or 4", d->width);
    if (d->flags & ~(uint32_t)KNOWN_FLAGS)
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only GDN_CONV_* are known, 0x%x together", d->flags,
                        (unsigned)KNOWN_FLAGS);
    GDN_TRY(check_gate_flags(d));
    GDN_TRY(check_norm(d));
    return gdni_check_bounds(d->max_tokens, d->max_seqs);
}

static gdn_status check_desc(const gdn_conv1d_desc *d)
{
    GDN_TRY(check_types(d));
    GDN_TRY(check_heads(d));
    GDN_TRY(check_dim("head_dim_qk", d->head_dim_qk, d->num_q_heads + d->num_k_heads));
    GDN_TRY(check_dim("head_dim_v", d->head_dim_v, d->num_v_heads));
    GDN_TRY(check_layouts(d));
    GDN_TRY(check_alignment(d));
    return check_rest(d);
}

void gdni_conv1d_fill_types(gdn_conv1d_desc *d)
{
    if (!d->state_type) d->state_type = d->io_type;
    if (!d->gate_type) d->gate_type = d->io_type;
    if (!d->a_log_type) d->a_log_type = GDN_F32;
    if (!d->dt_bias_type) d->dt_bias_type = GDN_F32;
}

bool gdni_conv1d_flip_gates(gdn_conv1d_desc *desc)
{
    const bool had = desc->num_gate_heads > 0;
    desc->num_gate_heads = had ? 0 : desc->num_v_heads;
    desc->flags &= ~(uint32_t)GATE_FLAGS;
    return had || desc->num_gate_heads > 0;
}

static void fill_problem(struct gdni_problem *out, const gdn_conv1d_desc *d)
{
    const bool gates = d->num_gate_heads > 0;
    *out = (struct gdni_problem){
        .op = GDNI_OP_CONV1D_QKV,
        .io_type = (int32_t)d->io_type,
        .state_type = (int32_t)d->state_type,
        .state_layout = (int32_t)d->state_layout,
        .num_q_heads = d->num_q_heads,
        .num_k_heads = d->num_k_heads,
        .num_v_heads = d->num_v_heads,
        .num_heads = d->num_q_heads + d->num_k_heads + d->num_v_heads,
        .head_dim_qk = d->num_q_heads + d->num_k_heads > 0 ? d->head_dim_qk : 0, /* equal problems have equal members */
        .head_dim_v = d->num_v_heads > 0 ? d->head_dim_v : 0,
        .num_gate_heads = d->num_gate_heads,
        .gate_type = gates ? (int32_t)d->gate_type : 0,
        .a_log_type = gates ? (int32_t)d->a_log_type : 0,
        .dt_bias_type = gates ? (int32_t)d->dt_bias_type : 0,
        .x_layout = d->x_layout ? (int32_t)d->x_layout : GDN_CONV_X_PACKED,
        .width = d->width,
        .flags = d->flags,
        .x_alignment = d->x_alignment ? d->x_alignment : 16,
        .max_tokens = d->max_tokens,
        .max_seqs = d->max_seqs,
    };
}

gdn_status gdni_problem_from_conv1d(struct gdni_problem *out, const gdn_conv1d_desc *desc)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_conv1d_desc, &d, desc));
    gdni_conv1d_fill_types(&d);
    GDN_TRY(check_desc(&d));
    memset(out, 0, sizeof *out);
    fill_problem(out, &d);
    GDN_TRY(gdni_take_index_type(&out->cu_seqlens_type, "cu_seqlens_type", (int32_t)d.cu_seqlens_type));
    return gdni_take_index_type(&out->slot_type, "slot_type", (int32_t)d.slot_type);
}

void gdni_conv1d_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes, double *flops)
{
    const double tokens = (double)num_tokens, seqs = (double)num_seqs;
    const double io = gdni_dtype_bytes(p->io_type), state = gdni_dtype_bytes(p->state_type);
    const double channels = (double)gdni_problem_channels(p);
    const double gates = p->num_gate_heads * (2.0 * gdni_dtype_bytes(p->gate_type) + 2 * sizeof(float));
    *bytes = io * channels * (2 * tokens + p->width) + state * channels * 2 * seqs * (p->width - 1) + tokens * gates;
    *flops = 2 * channels * tokens * p->width;
}
