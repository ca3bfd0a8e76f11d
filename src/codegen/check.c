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
        if (p->value == 0 && p->required) return GDN_FAIL(GDN_E_INVALID, "%s is null: pass its address", p->name);
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

/* ---- Rows ---- */

struct axis {
    int64_t stride, count;
};

enum { AXES = 3 };

static void sort_axes(struct axis axes[AXES], bool by_count)
{
    for (int i = 1; i < AXES; ++i)
        for (int j = i; j > 0; --j) {
            const struct axis a = axes[j - 1], b = axes[j];
            if (by_count ? a.count <= b.count : a.stride <= b.stride) break;
            axes[j - 1] = b;
            axes[j] = a;
        }
}

/* By stride: each steps over everything before it. */
static bool are_nested(const struct axis axes[AXES], int64_t dim)
{
    int64_t extent = dim;
    for (int i = 0; i < AXES; ++i) {
        if (axes[i].count <= 1) continue;
        if (axes[i].stride < extent) return false;
        extent += axes[i].stride * (axes[i].count - 1);
    }
    return true;
}

/* Whether some number of last steps brings a row to within dim of one that is `away` without them: of itself, not none. */
static bool comes_back(const struct axis *last, int64_t away, bool itself, int64_t dim)
{
    const int64_t nearest = -away / last->stride;
    for (int64_t steps = nearest - 1; steps <= nearest + 1; ++steps) {
        const int64_t apart = away + steps * last->stride;
        if (itself && steps == 0) continue;
        if (steps < last->count && -steps < last->count && apart < dim && -apart < dim) return true;
    }
    return false;
}

/* By count, the longest one last. */
static bool rows_meet(const struct axis axes[AXES], int64_t dim)
{
    for (int64_t i = 0; i < axes[0].count; ++i)
        for (int64_t j = i ? 1 - axes[1].count : 0; j < axes[1].count; ++j)
            if (comes_back(&axes[2], i * axes[0].stride + j * axes[1].stride, i == 0 && j == 0, dim)) return true;
    return false;
}

/* By batch, token and head. */
static gdn_strides take_axes(struct axis axes[AXES], const struct gdni_rows *r)
{
    const int64_t tokens = r->num_tokens / r->num_seqs;
    const gdn_strides s = gdni_strides_filled(&r->strides, r->heads, r->dim, tokens);
    axes[0] = (struct axis){ s.batch, r->num_seqs };
    axes[1] = (struct axis){ s.token, tokens };
    axes[2] = (struct axis){ s.head, r->heads };
    return s;
}

static gdn_status check_span(const struct axis axes[AXES], const struct gdni_rows *r)
{
    static const char *const names[AXES] = { "batch", "token", "head" };
    const int64_t given[AXES] = { r->strides.batch, r->strides.token, r->strides.head };
    for (int i = 0; i < AXES; ++i) {
        const long long stride = axes[i].stride, count = axes[i].count;
        if (count <= 1 || stride <= GDNI_MAX_STRIDE / count) continue;
        if (given[i] == 0)
            return GDN_FAIL(GDN_E_INVALID,
                            "num_tokens is %lld, of %lld heads of %lld: %s, packed, passes 2^47 elements, which no address "
                            "space has; split the batch",
                            (long long)r->num_tokens, (long long)r->heads, (long long)r->dim, r->name);
        return GDN_FAIL(GDN_E_INVALID,
                        "%s_strides.%s is %lld elements: %lld of them pass 2^47 elements, which no address space has; pass "
                        "the distance of two, or 0 (packed)",
                        r->name, names[i], stride, count);
    }
    return GDN_OK;
}

gdn_status gdni_check_rows_span(const struct gdni_rows *r)
{
    struct axis axes[AXES];
    if (r->num_tokens == 0) return GDN_OK;
    take_axes(axes, r);
    return check_span(axes, r);
}

gdn_status gdni_check_rows_apart(const struct gdni_rows *r)
{
    enum { MOST_LOOKS = 1 << 20 }; /* a few ms; layouts that somebody has are nested */
    if (r->num_tokens == 0) return GDN_OK;
    struct axis axes[AXES];
    const gdn_strides s = take_axes(axes, r);
    GDN_TRY(check_span(axes, r));
    const int64_t tokens = axes[1].count;
    sort_axes(axes, false);
    if (are_nested(axes, r->dim)) return GDN_OK;
    sort_axes(axes, true);
    if (axes[0].count <= MOST_LOOKS / (2 * axes[1].count) && !rows_meet(axes, r->dim)) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s_strides come to { batch %lld, token %lld, head %lld }: of %lld sequences, %lld tokens and %lld heads "
                    "two rows of %lld elements must not overlap; pass larger ones, or 0 (packed)",
                    r->name, (long long)s.batch, (long long)s.token, (long long)s.head, (long long)r->num_seqs,
                    (long long)tokens, (long long)r->heads, (long long)r->dim);
}

gdn_status gdni_check_strides_derived(const char *tensor, const gdn_strides *s, int64_t dim, int64_t num_seqs,
                                      gdn_devptr cu_seqlens)
{
    const bool batch = !cu_seqlens && num_seqs > 1;
    if (s->batch && cu_seqlens)
        return GDN_FAIL(GDN_E_INVALID,
                        "%s_strides.batch is %lld but cu_seqlens is given: sequences are rows of one tensor then; pass 0, "
                        "or no cu_seqlens",
                        tensor, (long long)s->batch);
    if (s->head == 0 || s->head == dim || (s->token && (s->batch || !batch))) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s_strides are { batch %lld, token %lld, head %lld }: 0 means packed, which another head stride than "
                    "%lld is not; give %s too",
                    tensor, (long long)s->batch, (long long)s->token, (long long)s->head, (long long)dim,
                    s->token ? "batch" : "token");
}

/* ---- Sizes ---- */

static gdn_status check_size(const char *name, int64_t value, const char *bound_name, int64_t bound)
{
    if (value < 0) return GDN_FAIL(GDN_E_INVALID, "%s is %lld: must not be negative", name, (long long)value);
    if (value > INT32_MAX)
        return GDN_FAIL(GDN_E_INVALID, "%s is %lld: no call may have more than %d; split the batch", name, (long long)value,
                        INT32_MAX);
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
