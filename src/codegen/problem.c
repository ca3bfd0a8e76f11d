/*
 * problem.c - owns what a legal descriptor is. Must not know: tuning, archs, kernels, devices.
 */
#include "codegen/problem.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

gdn_status gdni_take_struct(void *ours, size_t our_size, const void *theirs, const char *name, size_t min_size)
{
    if (!theirs) return GDN_FAIL(GDN_E_INVALID, "%s is null: pass a struct made from its _INIT macro", name);
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size < min_size || size > 65536)
        return GDN_FAIL(GDN_E_VERSION,
                        "%s.struct_size is %zu: start from its _INIT macro (this library's is %zu bytes)", name, size,
                        our_size);
    const unsigned char *bytes = theirs;
    for (size_t i = our_size; i < size; ++i)
        if (bytes[i])
            return GDN_FAIL(
                GDN_E_VERSION,
                "%s.struct_size is %zu and a member past this library's %zu bytes is set: this library is older "
                "than the header it was called with",
                name, size, our_size);
    memcpy(ours, theirs, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof our_size);
    return GDN_OK;
}

static const struct {
    const char *name;
    int bytes;
} dtypes[] = { { "?", 0 }, { "bf16", 2 }, { "fp16", 2 }, { "fp32", 4 } };

static bool is_dtype(int32_t dtype)
{
    return dtype >= GDN_BF16 && dtype <= GDN_F32;
}

int gdni_dtype_bytes(int32_t dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

const char *gdni_dtype_name(int32_t dtype)
{
    return dtypes[is_dtype(dtype) ? dtype : 0].name;
}

const char *gdni_op_name(int32_t op)
{
    return op == GDNI_OP_PREFILL ? "gdn_prefill" : "conv1d_qkv";
}

enum { MAX_HEADS = 4096 };

static gdn_status check_count(const char *member, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return GDN_FAIL(GDN_E_INVALID, "%s is %lld: must be from %lld to %lld", member, (long long)value,
                        (long long)low, (long long)high);
    return GDN_OK;
}

static gdn_status check_io_type(const char *member, int32_t dtype)
{
    if (dtype == GDN_BF16 || dtype == GDN_F16) return GDN_OK;
    return GDN_FAIL(is_dtype(dtype) ? GDN_E_UNSUPPORTED : GDN_E_INVALID, "%s is %d (%s): must be GDN_BF16 or GDN_F16",
                    member, dtype, gdni_dtype_name(dtype));
}

static gdn_status check_bounds(int64_t max_tokens, int64_t max_seqs)
{
    GDN_TRY(check_count("max_tokens", max_tokens, 1, INT32_MAX));
    return check_count("max_seqs", max_seqs, 1, INT32_MAX);
}

static gdn_status check_prefill_heads(const gdn_prefill_desc *d, int32_t *heads)
{
    GDN_TRY(check_count("num_q_heads", d->num_q_heads, 1, MAX_HEADS));
    GDN_TRY(check_count("num_k_heads", d->num_k_heads, 1, MAX_HEADS));
    GDN_TRY(check_count("num_v_heads", d->num_v_heads, 1, MAX_HEADS));
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
    GDN_TRY(check_io_type("io_type", (int32_t)d.io_type));
    if (d.state_type != GDN_F32)
        return GDN_FAIL(is_dtype((int32_t)d.state_type) ? GDN_E_UNSUPPORTED : GDN_E_INVALID,
                        "state_type is %d (%s): must be GDN_F32", d.state_type, gdni_dtype_name((int32_t)d.state_type));
    if (d.state_layout != GDN_STATE_KV && d.state_layout != GDN_STATE_VK)
        return GDN_FAIL(GDN_E_INVALID, "state_layout is %d: must be GDN_STATE_KV or GDN_STATE_VK", d.state_layout);
    GDN_TRY(check_prefill_heads(&d, &heads));
    GDN_TRY(check_prefill_dims(&d));
    GDN_TRY(check_bounds(d.max_tokens, d.max_seqs));
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

static gdn_status check_conv_heads(const gdn_conv1d_desc *d)
{
    GDN_TRY(check_count("num_q_heads", d->num_q_heads, 0, MAX_HEADS));
    GDN_TRY(check_count("num_k_heads", d->num_k_heads, 0, MAX_HEADS));
    GDN_TRY(check_count("num_v_heads", d->num_v_heads, 0, MAX_HEADS));
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
    GDN_TRY(check_io_type("io_type", (int32_t)d.io_type));
    GDN_TRY(check_conv_heads(&d));
    GDN_TRY(check_conv_dim("head_dim_qk", d.head_dim_qk, d.num_q_heads + d.num_k_heads));
    GDN_TRY(check_conv_dim("head_dim_v", d.head_dim_v, d.num_v_heads));
    GDN_TRY(check_conv_rest(&d));
    GDN_TRY(check_bounds(d.max_tokens, d.max_seqs));
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

int64_t gdni_problem_channels(const struct gdni_problem *p)
{
    return (int64_t)p->head_dim_qk * (p->num_q_heads + p->num_k_heads) + (int64_t)p->head_dim_v * p->num_v_heads;
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

void gdni_problem_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes, double *flops)
{
    const double tokens = (double)num_tokens, seqs = (double)num_seqs;
    if (p->op == GDNI_OP_PREFILL) {
        *bytes = prefill_bytes(p, tokens, seqs);
        *flops = prefill_flops(p, tokens);
        return;
    }
    const double io = gdni_dtype_bytes(p->io_type);
    const double channels = (double)gdni_problem_channels(p);
    *bytes = io * channels * (2 * tokens + p->width + 2 * seqs * (p->width - 1));
    *flops = 2 * channels * tokens * p->width;
}
