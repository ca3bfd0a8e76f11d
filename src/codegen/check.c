/*
 * check.c - owns the checks of check.h. Must not know: which operator asks, devices.
 */
#include "codegen/check.h"

gdn_status gdni_check_count(const char *member, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return GDN_FAIL(GDN_E_INVALID, "%s is %lld: must be from %lld to %lld", member, (long long)value,
                        (long long)low, (long long)high);
    return GDN_OK;
}

gdn_status gdni_check_io_type(const char *member, int32_t dtype)
{
    if (dtype == GDN_BF16 || dtype == GDN_F16) return GDN_OK;
    return GDN_FAIL(gdni_is_dtype(dtype) ? GDN_E_UNSUPPORTED : GDN_E_INVALID,
                    "%s is %d (%s): must be GDN_BF16 or GDN_F16", member, dtype, gdni_dtype_name(dtype));
}

gdn_status gdni_check_float_type(const char *member, int32_t dtype)
{
    if (gdni_is_dtype(dtype)) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "%s is %d: must be GDN_F32, GDN_BF16 or GDN_F16", member, dtype);
}

gdn_status gdni_check_enum(const char *member, int32_t value, int32_t low, int32_t high, const char *names)
{
    if (value >= low && value <= high) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "%s is %d: must be %s", member, value, names);
}

gdn_status gdni_take_index_type(int32_t *out, const char *member, int32_t given)
{
    *out = given ? given : GDN_INDEX_I32;
    return gdni_check_enum(member, *out, GDN_INDEX_I32, GDN_INDEX_I64, "GDN_INDEX_I32 or GDN_INDEX_I64");
}

gdn_status gdni_check_bounds(int64_t max_tokens, int64_t max_seqs)
{
    GDN_TRY(gdni_check_count("max_tokens", max_tokens, 1, INT32_MAX));
    return gdni_check_count("max_seqs", max_seqs, 1, INT32_MAX);
}

gdn_status gdni_check_pointers(const struct gdni_pointer *pointers, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const struct gdni_pointer *p = &pointers[i];
        if (p->value == 0 && p->required) return GDN_FAIL(GDN_E_INVALID, "%s is null: pass a device address", p->name);
        if (p->value % (unsigned)p->alignment)
            return GDN_FAIL(GDN_E_INVALID, "%s is 0x%llx: must be aligned to %d bytes", p->name,
                            (unsigned long long)p->value, p->alignment);
    }
    return GDN_OK;
}

gdn_status gdni_check_apart(const struct gdni_address *addresses, size_t num_written, size_t count)
{
    for (size_t w = 0; w < num_written; ++w)
        for (size_t i = w + 1; i < count; ++i)
            if (addresses[w].value && addresses[w].value == addresses[i].value)
                return GDN_FAIL(GDN_E_INVALID, "%s is 0x%llx, as %s is: must not overlap it; pass memory of its own",
                                addresses[w].name, (unsigned long long)addresses[w].value, addresses[i].name);
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

gdn_status gdni_check_sizes(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, gdn_devptr cu_seqlens)
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
