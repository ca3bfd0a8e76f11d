/*
 * emulator.c - owns the emulation of the chunked algorithm (see emulator.h).
 * Must not know: the recurrence, devices, bounds. Trusts its arguments.
 */
#include "emulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

enum { CHUNK = 64, MAX_DIM = 128, BLOCK = 16 };

const struct emu_rounding emu_kernel = { {
    [EMU_MERGE] = EMU_F16,
    [EMU_T] = EMU_F16,
    [EMU_W] = EMU_F16_SCALED,
    [EMU_P] = EMU_F16,
    [EMU_VP] = EMU_F16_SCALED,
    [EMU_STATE] = EMU_IO,
    [EMU_UPDATE] = EMU_IO,
    [EMU_OUTPUT] = EMU_IO,
} };
const struct emu_rounding emu_none = { { EMU_EXACT } };

static const char *const point_names[EMU_NUM_POINTS] = { "merge", "t", "w", "p", "vp", "state", "update", "output" };

const char *emu_point_name(enum emu_point point)
{
    return point_names[point];
}

/*
 * One head's chunk. Matrices are row-major with the row lengths given here; transposed copies keep inner loops
 * contiguous.
 */
struct chunk {
    const gdn_prefill_desc *desc;
    const gdn_prefill_args *args;
    const struct emu_rounding *rounding;
    int heads, dk, dv;
    float scale;
    int64_t first, count; /* rows of the tensors */
    int head;
    float q[CHUNK * MAX_DIM], k[CHUNK * MAX_DIM], kt[MAX_DIM * CHUNK], v[CHUNK * MAX_DIM];
    double c[CHUNK]; /* under strong decay a float's ulp of c would be an error of G */
    float e[CHUNK], d[CHUNK], el, beta[CHUNK];
    float rq[CHUNK], rk[CHUNK]; /* 1 / norm of the rows of q and k; 1 without in-kernel norms */
    float l[CHUNK * CHUNK], x[CHUNK * CHUNK], t[CHUNK * CHUNK], p[CHUNK * CHUNK];
    float s[MAX_DIM * MAX_DIM], s_operand[MAX_DIM * MAX_DIM]; /* [dk][dv] */
    float w[CHUNK * MAX_DIM], vp[CHUNK * MAX_DIM], o[CHUNK * MAX_DIM];
};

/* ---- rounding -------------------------------------------------------------------------------------------------- */

static float to_bf16(float x)
{
    return gdni_bf16_to_float(gdni_bf16_from_double((double)x));
}

static float to_f16(float x)
{
    return gdni_f16_to_float(gdni_f16_from_double((double)x));
}

/*
 * The power of two that brings a column's largest magnitude into [2^10, 2^11): what lies 2^-25 below it is subnormal.
 */
static int column_exponent(const float *a, int rows, int stride)
{
    float largest = 0;
    for (int i = 0; i < rows; ++i)
        largest = fmaxf(largest, fabsf(a[i * stride]));
    return largest > 0 && isfinite(largest) ? 10 - ilogbf(largest) : 0;
}

static void round_columns_f16(float *a, int rows, int columns)
{
    for (int j = 0; j < columns; ++j) {
        const int exponent = column_exponent(a + j, rows, columns);
        for (int i = 0; i < rows; ++i) {
            float *x = &a[i * columns + j];
            *x = (float)ldexp((double)to_f16((float)ldexp((double)*x, exponent)), -exponent);
        }
    }
}

static void round_plain(float *a, int count, float (*to)(float))
{
    for (int i = 0; i < count; ++i)
        a[i] = to(a[i]);
}

/* What EMU_IO means at a point. */
static enum emu_format resolve(const struct chunk *ch, enum emu_point point)
{
    const enum emu_format format = ch->rounding->at[point];
    if (format != EMU_IO) return format;
    if (ch->desc->io_type == GDN_BF16) return EMU_BF16;
    return point == EMU_OUTPUT ? EMU_F16 : EMU_F16_SCALED;
}

static void round_at(const struct chunk *ch, enum emu_point point, float *a, int rows, int columns)
{
    const enum emu_format format = resolve(ch, point);
    if (format == EMU_BF16) round_plain(a, rows * columns, to_bf16);
    if (format == EMU_F16) round_plain(a, rows * columns, to_f16);
    if (format == EMU_F16_SCALED) round_columns_f16(a, rows, columns);
}

/* ---- products -------------------------------------------------------------------------------------------------- */

/* d (m x n, contiguous) += a b, where a[i][k] = a[i * ai + k * ak] and b's rows are ldb long. n is a multiple of 16. */
static void multiply(float *restrict d, const float *restrict a, int ai, int ak, const float *restrict b, int ldb,
                     int m, int n, int depth)
{
    for (int i = 0; i < m; ++i)
        for (int k = 0; k < depth; ++k) {
            const float factor = a[i * ai + k * ak];
            float *restrict to = d + i * n;
            const float *restrict from = b + k * ldb;
            for (int j = 0; j < n; j += 16)
                for (int jj = 0; jj < 16; ++jj)
                    to[j + jj] += factor * from[j + jj];
        }
}

/* ---- one chunk ------------------------------------------------------------------------------------------------- */

/* `count` rows of head h of a tensor, then zeros. */
static void load_rows(const struct chunk *ch, gdn_devptr tensor, int tensor_heads, int dim, float *out)
{
    const void *from = (const void *)(uintptr_t)tensor;
    const int head = ch->head * tensor_heads / ch->heads;
    memset(out, 0, sizeof(float) * CHUNK * (size_t)dim);
    for (int64_t i = 0; i < ch->count; ++i)
        for (int j = 0; j < dim; ++j)
            out[i * dim + j] =
                (float)gdni_load((int32_t)ch->desc->io_type, from, ((ch->first + i) * tensor_heads + head) * dim + j);
}

static void load_norms(const struct chunk *ch, const float *rows, float *r)
{
    for (int i = 0; i < CHUNK; ++i) {
        float sum = 0;
        for (int j = 0; j < ch->dk; ++j)
            sum += rows[i * ch->dk + j] * rows[i * ch->dk + j];
        r[i] = ch->desc->flags & GDN_PREFILL_QK_L2NORM ? 1.0f / sqrtf(sum + 1e-6f) : 1.0f;
    }
}

static void load_chunk(struct chunk *ch)
{
    load_rows(ch, ch->args->q, ch->desc->num_q_heads, ch->dk, ch->q);
    load_rows(ch, ch->args->k, ch->desc->num_k_heads, ch->dk, ch->k);
    load_rows(ch, ch->args->v, ch->desc->num_v_heads, ch->dv, ch->v);
    for (int i = 0; i < CHUNK; ++i)
        for (int j = 0; j < ch->dk; ++j)
            ch->kt[j * CHUNK + i] = ch->k[i * ch->dk + j];
    load_norms(ch, ch->q, ch->rq);
    load_norms(ch, ch->k, ch->rk);
}

static void load_gates(struct chunk *ch)
{
    const float *g = (const float *)(uintptr_t)ch->args->g, *beta = (const float *)(uintptr_t)ch->args->beta;
    double sum = 0;
    for (int i = 0; i < CHUNK; ++i) {
        const int64_t at = (ch->first + i) * ch->heads + ch->head;
        const bool inside = i < ch->count;
        const float decay = inside && g ? g[at] * 1.44269504f : 0.0f;
        sum += decay < -150.0f ? -150.0 : (double)decay; /* a NaN gate shows */
        ch->c[i] = sum;
        ch->beta[i] = inside ? (beta ? beta[at] : 1.0f) : 0.0f;
    }
    for (int i = 0; i < CHUNK; ++i) {
        ch->e[i] = exp2f((float)ch->c[i]);
        ch->d[i] = exp2f((float)(sum - ch->c[i]));
    }
    ch->el = exp2f((float)sum);
}

/* L and P. */
static void gram(struct chunk *ch)
{
    memset(ch->l, 0, sizeof ch->l);
    memset(ch->p, 0, sizeof ch->p);
    multiply(ch->l, ch->k, ch->dk, 1, ch->kt, CHUNK, CHUNK, CHUNK, ch->dk);
    multiply(ch->p, ch->q, ch->dk, 1, ch->kt, CHUNK, CHUNK, CHUNK, ch->dk);
    for (int i = 0; i < CHUNK; ++i)
        for (int j = 0; j < CHUNK; ++j) {
            const int at = i * CHUNK + j;
            const float gate = i >= j ? exp2f((float)(ch->c[i] - ch->c[j])) : 0.0f;
            ch->l[at] = i > j ? ch->rk[i] * ch->rk[j] * ch->beta[i] * gate * ch->l[at] : 0.0f;
            ch->p[at] = i >= j ? ch->rq[i] * ch->rk[j] * gate * ch->p[at] : 0.0f;
        }
    round_at(ch, EMU_P, ch->p, CHUNK, CHUNK);
}

/* The 16 x 16 block of X at `first` on the diagonal: (I + L) X = I, row by row. */
static void invert_block(struct chunk *ch, int first)
{
    for (int i = first; i < first + BLOCK; ++i)
        for (int j = first; j <= i; ++j) {
            float sum = i == j ? 1.0f : 0.0f;
            for (int k = j; k < i; ++k)
                sum -= ch->l[i * CHUNK + k] * ch->x[k * CHUNK + j];
            ch->x[i * CHUNK + j] = sum;
        }
}

/* A size x size block of a 64 x 64 matrix, contiguous. */
static void take_block(float *to, const float *from, int row, int column, int size)
{
    for (int i = 0; i < size; ++i)
        memcpy(to + i * size, from + (row + i) * CHUNK + column, sizeof(float) * (size_t)size);
}

/* X21 = -X22 (L21 X11) of the two blocks of `size` that start at `first`. */
static void merge(struct chunk *ch, int first, int size)
{
    float l21[32 * 32], x11[32 * 32], x22[32 * 32], inner[32 * 32] = { 0 }, x21[32 * 32] = { 0 };
    const int second = first + size;
    take_block(l21, ch->l, second, first, size);
    take_block(x11, ch->x, first, first, size);
    take_block(x22, ch->x, second, second, size);
    round_at(ch, EMU_MERGE, l21, size, size);
    round_at(ch, EMU_MERGE, x11, size, size);
    round_at(ch, EMU_MERGE, x22, size, size);
    multiply(inner, l21, size, 1, x11, size, size, size, size);
    round_at(ch, EMU_MERGE, inner, size, size);
    multiply(x21, x22, size, 1, inner, size, size, size, size);
    for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j)
            ch->x[(second + i) * CHUNK + first + j] = -x21[i * size + j];
}

static void invert(struct chunk *ch)
{
    memset(ch->x, 0, sizeof ch->x);
    for (int first = 0; first < CHUNK; first += BLOCK)
        invert_block(ch, first);
    for (int size = BLOCK; size < CHUNK; size *= 2)
        for (int first = 0; first < CHUNK; first += 2 * size)
            merge(ch, first, size);
    memcpy(ch->t, ch->x, sizeof ch->t);
    round_at(ch, EMU_T, ch->t, CHUNK, CHUNK);
}

/* W and V': what the old state does not explain, solved within the chunk. */
static void solve(struct chunk *ch)
{
    const int dv = ch->dv;
    memset(ch->w, 0, sizeof ch->w);
    memset(ch->vp, 0, sizeof ch->vp);
    multiply(ch->w, ch->k, ch->dk, 1, ch->s_operand, dv, CHUNK, dv, ch->dk);
    for (int i = 0; i < CHUNK; ++i)
        for (int j = 0; j < dv; ++j)
            ch->w[i * dv + j] = ch->beta[i] * (ch->v[i * dv + j] - ch->rk[i] * ch->e[i] * ch->w[i * dv + j]);
    round_at(ch, EMU_W, ch->w, CHUNK, dv);
    multiply(ch->vp, ch->t, CHUNK, 1, ch->w, dv, CHUNK, dv, CHUNK);
}

static void output(struct chunk *ch)
{
    const int dv = ch->dv;
    float *vp = ch->w; /* W is spent */
    memset(ch->o, 0, sizeof ch->o);
    multiply(ch->o, ch->q, ch->dk, 1, ch->s_operand, dv, CHUNK, dv, ch->dk);
    for (int i = 0; i < CHUNK; ++i)
        for (int j = 0; j < dv; ++j)
            ch->o[i * dv + j] *= ch->rq[i] * ch->e[i];
    memcpy(vp, ch->vp, sizeof ch->vp);
    round_at(ch, EMU_VP, vp, CHUNK, dv);
    multiply(ch->o, ch->p, CHUNK, 1, vp, dv, CHUNK, dv, CHUNK);
    for (int i = 0; i < CHUNK * dv; ++i)
        ch->o[i] *= ch->scale;
    round_at(ch, EMU_OUTPUT, ch->o, CHUNK, dv);
}

static void update(struct chunk *ch)
{
    const int dv = ch->dv;
    for (int i = 0; i < CHUNK; ++i)
        for (int j = 0; j < dv; ++j)
            ch->vp[i * dv + j] *= ch->rk[i] * ch->d[i];
    round_at(ch, EMU_UPDATE, ch->vp, CHUNK, dv);
    for (int i = 0; i < ch->dk * dv; ++i)
        ch->s[i] *= ch->el;
    multiply(ch->s, ch->k, 1, ch->dk, ch->vp, dv, ch->dk, dv, CHUNK);
}

static void run_chunk(struct chunk *ch, float *o)
{
    load_chunk(ch);
    load_gates(ch);
    gram(ch);
    invert(ch);
    memcpy(ch->s_operand, ch->s, sizeof ch->s);
    round_at(ch, EMU_STATE, ch->s_operand, ch->dk, ch->dv);
    solve(ch);
    output(ch);
    update(ch);
    for (int64_t i = 0; i < ch->count; ++i)
        memcpy(o + ((ch->first + i) * ch->heads + ch->head) * ch->dv, ch->o + i * ch->dv,
               sizeof(float) * (size_t)ch->dv);
}

/* ---- a call ---------------------------------------------------------------------------------------------------- */

/* The float of a state tensor that is element (i, j) of matrix m. */
static int64_t state_index(const struct chunk *ch, int64_t m, int i, int j)
{
    const int at = ch->desc->state_layout == GDN_STATE_KV ? i * ch->dv + j : j * ch->dk + i;
    return m * ch->dk * ch->dv + at;
}

static void run_head(struct chunk *ch, int64_t n, int64_t begin, int64_t end, float *o, float *state)
{
    const float *h0 = (const float *)(uintptr_t)ch->args->initial_state;
    const int64_t m = n * ch->heads + ch->head;
    for (int i = 0; i < ch->dk; ++i)
        for (int j = 0; j < ch->dv; ++j)
            ch->s[i * ch->dv + j] = h0 ? h0[state_index(ch, m, i, j)] : 0.0f;
    for (ch->first = begin; ch->first < end; ch->first += CHUNK) {
        ch->count = end - ch->first < CHUNK ? end - ch->first : CHUNK;
        run_chunk(ch, o);
    }
    for (int i = 0; state && i < ch->dk; ++i)
        for (int j = 0; j < ch->dv; ++j)
            state[state_index(ch, m, i, j)] = ch->s[i * ch->dv + j];
}

static int64_t start_of(const gdn_prefill_args *args, int64_t n)
{
    const int32_t *cu = (const int32_t *)(uintptr_t)args->cu_seqlens;
    return cu ? cu[n] : n * (args->num_tokens / args->num_seqs);
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

bool emu_prefill(const gdn_prefill_desc *desc, const gdn_prefill_args *args, const struct emu_rounding *rounding,
                 float *o, float *state)
{
    struct chunk *ch = calloc(1, sizeof *ch);
    if (!ch) return false;
    ch->desc = desc;
    ch->args = args;
    ch->rounding = rounding;
    ch->heads = max_of(desc->num_q_heads, max_of(desc->num_k_heads, desc->num_v_heads));
    ch->dk = desc->head_dim_qk;
    ch->dv = desc->head_dim_v;
    ch->scale = args->has_scale ? args->scale : 1.0f / sqrtf((float)ch->dk);
    for (int64_t n = 0; n < args->num_seqs; ++n)
        for (ch->head = 0; ch->head < ch->heads; ++ch->head)
            run_head(ch, n, start_of(args, n), start_of(args, n + 1), o, state);
    free(ch);
    return true;
}
