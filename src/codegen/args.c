/*
 * args.c - owns the checks of one call's arguments that need no device. Must not know: kernels, archs, devices.
 */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "codegen/problem.h"

/* A pointer member: required or not, and the alignment that kernels rely on. */
struct pointer {
    const char *name;
    gdn_devptr value;
    bool required;
    int alignment;
};

static gdn_status check_pointers(const struct pointer *pointers, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const struct pointer *p = &pointers[i];
        if (p->value == 0 && p->required) return GDN_FAIL(GDN_E_INVALID, "%s is null: pass a device address", p->name);
        if (p->value % (unsigned)p->alignment)
            return GDN_FAIL(GDN_E_INVALID, "%s is 0x%llx: must be aligned to %d bytes", p->name,
                            (unsigned long long)p->value, p->alignment);
    }
    return GDN_OK;
}

static gdn_status check_size(const char *name, int64_t value, const char *bound_name, int64_t bound)
{
    if (value < 0) return GDN_FAIL(GDN_E_INVALID, "%s is %lld: must not be negative", name, (long long)value);
    if (value > bound)
        return GDN_FAIL(GDN_E_INVALID, "%s is %lld, %s is %lld: use a desc with a larger bound", name, (long long)value,
                        bound_name, (long long)bound);
    return GDN_OK;
}

static gdn_status check_sizes(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, gdn_devptr cu_seqlens)
{
    GDN_TRY(check_size("num_tokens", num_tokens, "max_tokens", p->max_tokens));
    GDN_TRY(check_size("num_seqs", num_seqs, "max_seqs", p->max_seqs));
    if (cu_seqlens) return GDN_OK;
    if (num_seqs == 0 ? num_tokens != 0 : num_tokens % num_seqs != 0)
        return GDN_FAIL(
            GDN_E_INVALID,
            "num_tokens is %lld, num_seqs is %lld and cu_seqlens is null: a uniform batch needs num_tokens to be a "
            "multiple of num_seqs; pass cu_seqlens for unequal sequences",
            (long long)num_tokens, (long long)num_seqs);
    return GDN_OK;
}

gdn_status gdni_check_prefill_args(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    GDN_TRY(check_sizes(p, a->num_tokens, a->num_seqs, a->cu_seqlens));
    const bool rows = a->num_tokens > 0 && a->num_seqs > 0;
    const struct pointer pointers[] = {
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
    GDN_TRY(check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    if (a->has_scale != 0 && a->has_scale != 1)
        return GDN_FAIL(GDN_E_INVALID, "has_scale is %d: must be 0 (default scale) or 1 (args.scale)", a->has_scale);
    return GDN_OK;
}

static gdn_status check_conv_output(const char *name, gdn_devptr value, int32_t heads, bool rows)
{
    if (heads == 0 && value)
        return GDN_FAIL(GDN_E_INVALID, "%s is 0x%llx but the plan has no head for it: pass 0", name,
                        (unsigned long long)value);
    const struct pointer pointer = { name, value, rows && heads > 0, 16 };
    return check_pointers(&pointer, 1);
}

static gdn_status check_conv_x(const struct gdni_problem *p, const gdn_conv1d_args *a, bool rows)
{
    const struct pointer x = { "x", a->x, rows, p->x_alignment };
    GDN_TRY(check_pointers(&x, 1));
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
    GDN_TRY(check_sizes(p, a->num_tokens, a->num_seqs, a->cu_seqlens));
    const bool rows = a->num_tokens > 0 && a->num_seqs > 0, biased = p->flags & GDN_CONV_BIAS;
    GDN_TRY(check_conv_x(p, a, rows));
    if (a->bias && !biased)
        return GDN_FAIL(GDN_E_INVALID, "bias is given but the plan's flags lack GDN_CONV_BIAS: plan with it or pass 0");
    const struct pointer pointers[] = {
        { "weight", a->weight, rows, 16 },
        { "bias", a->bias, rows && biased, 16 },
        { "state", a->state, false, 16 },
        { "slots", a->slots, false, 4 },
        { "has_initial_state", a->has_initial_state, false, 1 },
        { "cu_seqlens", a->cu_seqlens, false, 4 },
    };
    GDN_TRY(check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    GDN_TRY(check_conv_output("q", a->q, p->num_q_heads, rows));
    GDN_TRY(check_conv_output("k", a->k, p->num_k_heads, rows));
    return check_conv_output("v", a->v, p->num_v_heads, rows);
}
