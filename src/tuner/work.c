/*
 * work.c - owns the tensors of a call and the comparison of results. Must not know: devices, what an operator's tensors mean
 * (work_prefill.c, work_conv1d.c), candidates.
 */
#include "tuner/work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/mem.h"
#include "codegen/spec.h"

/* Two chunks' and one chunk's edges, no token at all, more than three chunks; the last one is inert. */
const int64_t gdni_trial_lens[GDNI_TRIAL_SEQS] = { 1, 63, 64, 65, 0, 130, 200, 40 };
const int64_t gdni_trial_slot_in[GDNI_TRIAL_SEQS] = { 3, 0, 5, 1, 6, 2, 4, -1 };
const int64_t gdni_trial_slot_out[GDNI_TRIAL_SEQS] = { 3, 7, 5, 1, 6, 2, 4, -1 };
const uint8_t gdni_trial_has_state[GDNI_TRIAL_SEQS] = { 1, 1, 0, 1, 1, 1, 1, 1 };
/* Sorted, as prefill wants them; multiples of 64; the last one fills up. */
const int64_t gdni_trial_checkpoints[GDNI_TRIAL_CHECKPOINTS][3] = { { 6, 64, 8 }, { 6, 128, 9 }, { -1, -1, -1 } };

enum { HOST_BYTES = 1 << 20 };

/* ---- Tensors ---- */

static size_t element_bytes(int32_t dtype)
{
    return dtype ? (size_t)gdni_dtype_bytes(dtype) : 1;
}

/* When memory is out a tensor without contents: nobody writes to it, because it has no rows on the host. */
struct gdni_tensor *gdni_work_add(struct gdni_work *work, const char *name, size_t member, int32_t dtype, int64_t rows,
                                  int64_t dim)
{
    struct gdni_tensor *t = &work->tensors[work->num_tensors++];
    const size_t row = (size_t)dim * element_bytes(dtype);
    *t = (struct gdni_tensor){ .name = name, .member = member, .dtype = dtype, .rows = rows, .dim = dim };
    t->bytes = (size_t)rows * row;
    t->host_bytes = t->bytes;
    if (t->bytes > HOST_BYTES && !work->whole) t->host_bytes = HOST_BYTES > row ? HOST_BYTES / row * row : row;
    t->host = gdni_calloc(1, t->host_bytes ? t->host_bytes : 1);
    if (!t->host) {
        t->host_bytes = 0;
        work->failed = true;
    }
    return t;
}

struct gdni_tensor *gdni_work_add_output(struct gdni_work *work, const char *name, size_t member, int32_t dtype,
                                         int64_t rows, int64_t dim, double tolerance)
{
    struct gdni_tensor *t = gdni_work_add(work, name, member, dtype, rows, dim);
    t->output = true;
    t->tolerance = tolerance;
    if (t->host_bytes) memset(t->host, 0xff, t->host_bytes);
    return t;
}

int64_t gdni_tensor_host_rows(const struct gdni_tensor *tensor)
{
    return tensor->host_bytes ? (int64_t)(tensor->host_bytes / ((size_t)tensor->dim * element_bytes(tensor->dtype)))
                              : 0;
}

void gdni_work_add_indices(struct gdni_work *work, const char *name, size_t member, int32_t index_type,
                           const int64_t *values, int64_t count)
{
    const int bytes = gdni_index_bytes(index_type);
    struct gdni_tensor *t = gdni_work_add(work, name, member, 0, 1, count * bytes);
    for (int64_t i = 0; t->host_bytes && i < count; ++i) {
        const int32_t narrow = (int32_t)values[i];
        const void *value = bytes == 4 ? (const void *)&narrow : (const void *)&values[i];
        memcpy((char *)t->host + i * bytes, value, (size_t)bytes);
    }
}

/* Tokens that are not the first sequence's, where that is unlike the others; -1: it is not. */
static int64_t rest_of(const struct gdni_shape *shape)
{
    enum { FEW = 16 };
    const int64_t tokens = shape->num_tokens, seqs = shape->num_seqs, average = tokens / seqs;
    if (seqs > 1 && shape->kind == GDNI_CALL_UNEVEN) return tokens / (seqs == 2 ? 4 : 2);
    if (seqs > 1 && shape->kind == GDNI_CALL_LONE) return (seqs - 1) * (average < FEW ? average : FEW);
    return -1;
}

static int64_t length_of(const struct gdni_shape *shape, int64_t n)
{
    int64_t tokens = shape->num_tokens, seqs = shape->num_seqs;
    if (shape->lens) return shape->lens[n];
    const int64_t rest = rest_of(shape);
    if (rest >= 0) {
        if (n == 0) return tokens - rest;
        tokens = rest, --seqs, --n;
    }
    return tokens / seqs + (n < tokens % seqs);
}

void gdni_work_add_cu_seqlens(struct gdni_work *work, size_t member, int32_t index_type, const struct gdni_shape *shape)
{
    int64_t *starts = gdni_calloc((size_t)shape->num_seqs + 1, sizeof *starts);
    if (!starts) {
        work->failed = true;
        return;
    }
    for (int64_t n = 0; n < shape->num_seqs; ++n)
        starts[n + 1] = starts[n] + length_of(shape, n);
    gdni_work_add_indices(work, "cu_seqlens", member, index_type, starts, shape->num_seqs + 1);
    gdni_free(starts);
}

/* ---- Works ---- */

static void make(struct gdni_work *work, const struct gdni_shape *shape)
{
    if (work->op == GDNI_OP_PREFILL)
        gdni_work_make_prefill(work, shape);
    else
        gdni_work_make_conv1d(work, shape);
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    while (b) {
        const int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The least heads that keep the ratios keep the host reference short; code depends on no more of them. */
static void take_few_heads(struct gdni_work *work)
{
    gdn_conv1d_desc *c = &work->desc.conv1d;
    gdn_prefill_desc *p = &work->desc.prefill;
    const bool prefill = work->op == GDNI_OP_PREFILL;
    int32_t *counts[] = { prefill ? &p->num_q_heads : &c->num_q_heads, prefill ? &p->num_k_heads : &c->num_k_heads,
                          prefill ? &p->num_v_heads : &c->num_v_heads, prefill ? &p->num_v_heads : &c->num_gate_heads };
    const int n = prefill ? 3 : 4;
    int32_t divisor = 0;
    for (int i = 0; i < n; ++i)
        divisor = common_divisor(*counts[i], divisor);
    for (int i = 0; i < n && divisor > 0; ++i)
        *counts[i] /= divisor;
}

static void set_bounds(struct gdni_work *work, const struct gdni_shape *shape)
{
    if (work->op == GDNI_OP_PREFILL) {
        work->desc.prefill.max_tokens = shape->num_tokens;
        work->desc.prefill.max_seqs = shape->num_seqs;
    } else {
        work->desc.conv1d.max_tokens = shape->num_tokens;
        work->desc.conv1d.max_seqs = shape->num_seqs;
    }
}

static gdn_status make_whole(struct gdni_work *out, const struct gdni_shape *shape)
{
    set_bounds(out, shape);
    make(out, shape);
    return out->failed ? GDN_FAIL(GDN_E_NOMEM, "out of memory for the tensors of a trial call") : GDN_OK;
}

gdn_status gdni_work_trial(struct gdni_work *out, int32_t op, const union gdni_desc *desc)
{
    struct gdni_shape shape = { GDNI_TRIAL_PADDING, GDNI_TRIAL_SEQS, gdni_trial_lens, GDNI_CALL_AWKWARD };
    memset(out, 0, sizeof *out);
    out->op = op;
    out->desc = *desc;
    out->whole = true;
    take_few_heads(out);
    for (int n = 0; n < GDNI_TRIAL_SEQS; ++n)
        shape.num_tokens += gdni_trial_lens[n];
    return make_whole(out, &shape);
}

gdn_status gdni_work_call(struct gdni_work *out, int32_t op, const union gdni_desc *desc, int64_t num_tokens,
                          int64_t num_seqs, enum gdni_call_kind kind)
{
    const struct gdni_shape shape = { num_tokens, num_seqs, NULL, kind };
    memset(out, 0, sizeof *out);
    out->op = op;
    out->desc = *desc;
    return make_whole(out, &shape);
}

void gdni_work_free(struct gdni_work *work)
{
    for (int i = 0; i < work->num_tensors; ++i)
        gdni_free(work->tensors[i].host);
    work->num_tensors = 0;
}

void gdni_work_bind(union gdni_args *out, const struct gdni_work *work, const gdn_devptr *addresses)
{
    *out = work->args;
    for (int i = 0; i < work->num_tensors; ++i)
        memcpy((char *)out + work->tensors[i].member, &addresses[i], sizeof addresses[i]);
    if (work->in_place) out->prefill.final_state = out->prefill.initial_state;
}

/* ---- Results ---- */

static gdn_status run_reference(const struct gdni_work *work, void *const want[GDNI_WORK_MAX_TENSORS])
{
    gdn_devptr addresses[GDNI_WORK_MAX_TENSORS];
    union gdni_args args;
    for (int i = 0; i < work->num_tensors; ++i)
        addresses[i] = (gdn_devptr)(uintptr_t)(want[i] ? want[i] : work->tensors[i].host);
    gdni_work_bind(&args, work, addresses);
    if (work->op == GDNI_OP_PREFILL) return gdn_reference_prefill(&work->desc.prefill, &args.prefill);
    return gdn_reference_conv1d_qkv(&work->desc.conv1d, &args.conv1d);
}

gdn_status gdni_work_reference(const struct gdni_work *work, void *want[GDNI_WORK_MAX_TENSORS])
{
    gdn_status status = GDN_OK;
    memset(want, 0, GDNI_WORK_MAX_TENSORS * sizeof want[0]);
    for (int i = 0; i < work->num_tensors && status == GDN_OK; ++i) {
        if (!work->tensors[i].output) continue;
        want[i] = gdni_memdup(work->tensors[i].host, work->tensors[i].host_bytes);
        if (!want[i]) status = GDN_FAIL(GDN_E_NOMEM, "out of memory for the results of the host reference");
    }
    if (status == GDN_OK) status = run_reference(work, want);
    for (int i = 0; i < work->num_tensors && status != GDN_OK; ++i) {
        gdni_free(want[i]);
        want[i] = NULL;
    }
    return status;
}

/* Sums of squares of a row: what it must be, and by how much it is not. error is infinite when one is no number or infinite. */
struct row_error {
    double size, error;
};

static struct row_error compare_row(const struct gdni_tensor *t, const void *got, const void *want, int64_t row)
{
    struct row_error e = { 0, 0 };
    for (int64_t i = row * t->dim; i < (row + 1) * t->dim; ++i) {
        const double x = gdni_load(t->dtype, got, i), y = gdni_load(t->dtype, want, i);
        if ((isnan(x) && isnan(y)) || x == y) {
            if (isfinite(y)) e.size += y * y;
            continue;
        }
        if (!isfinite(x) || !isfinite(y)) {
            e.error = INFINITY;
            return e;
        }
        e.size += y * y;
        e.error += (x - y) * (x - y);
    }
    return e;
}

static gdn_status check_bits(const struct gdni_tensor *t, const void *got, const void *want, int64_t rows)
{
    const size_t row = (size_t)t->dim * element_bytes(t->dtype);
    for (int64_t r = 0; r < rows; ++r)
        if (memcmp((const char *)got + (size_t)r * row, (const char *)want + (size_t)r * row, row) != 0)
            return GDN_FAIL(GDN_E_WRONG_RESULT, "row %lld of %s has other bits than it must have", (long long)r,
                            t->name);
    return GDN_OK;
}

/* printf's %g follows the embedder's locale: in parts of ten thousand, as an integer. */
static gdn_status refuse(const struct gdni_tensor *t, const char *where, double error, double tolerance)
{
    if (!isfinite(error))
        return GDN_FAIL(GDN_E_WRONG_RESULT, "%s of %s is NaN, infinite or a number where it must be something else",
                        where, t->name);
    return GDN_FAIL(GDN_E_WRONG_RESULT, "%s of %s is off by %lld of 10000 of its size: at most %lld are right", where,
                    t->name, (long long)(fmin(error, 1e9) * 1e4), (long long)(tolerance * 1e4));
}

gdn_status gdni_tensor_check(const struct gdni_tensor *t, const void *got, const void *want, int64_t rows)
{
    enum { ROW_FACTOR = 3 };
    double size = 0, error = 0, worst = 0;
    int64_t at = 0;
    if (t->tolerance <= 0) return check_bits(t, got, want, rows);
    for (int64_t r = 0; r < rows; ++r) {
        const struct row_error e = compare_row(t, got, want, r);
        size += e.size;
        error += e.error;
    }
    /* A row that is small beside the others is held to their size: it may be a difference of large numbers. */
    const double usual = rows ? size / (double)rows : 0;
    for (int64_t r = 0; r < rows; ++r) {
        const struct row_error e = compare_row(t, got, want, r);
        const double part = e.error > 0 ? e.error / fmax(fmax(e.size, usual), 1e-60) : 0;
        if (part <= worst) continue;
        worst = part;
        at = r;
    }
    char where[40];
    snprintf(where, sizeof where, "row %lld", (long long)at);
    if (!(sqrt(worst) <= ROW_FACTOR * t->tolerance)) return refuse(t, where, sqrt(worst), ROW_FACTOR * t->tolerance);
    const double whole = error > 0 ? sqrt(error / fmax(size, 1e-60)) : 0;
    return whole <= t->tolerance ? GDN_OK : refuse(t, "the whole", whole, t->tolerance);
}
