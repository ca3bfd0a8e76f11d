/*
 * prefill.c - owns the GDN recurrence on the host, token by token, as the header states it. State and sums are double;
 * o and the final state are rounded once, when they are stored.
 *
 * Must not know: chunks, kernels, devices, files. Slow and obvious on purpose: it is what the kernels are held against.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/half.h"
#include "base/mem.h"
#include "codegen/problem.h"
#include "reference/host_args.h"
#include "reference/lines.h"
#include "reference/reference.h"

struct run {
    struct gdni_problem p;
    gdn_prefill_args a;
    struct gdni_seqlens seqs;
    gdn_strides q_strides, k_strides, v_strides, o_strides, gate_strides, beta_strides; /* defaults filled in */
    int32_t o_type, final_type;
    double scale;
    double *state;         /* [dk][dv] of the head at work */
    double *q, *k, *u, *o; /* the token at work; u holds v first */
};

/* One sequence: where its rows and states are. */
struct sequence {
    int64_t batch, first, len; /* row t is row first + t of batch */
    int64_t from, to;          /* lines of the states */
    bool starts_from_line;
};

/* ---- states ---- */

/* Elements from line to line of a pool; 0 of the args: packed. */
static int64_t line_stride(const struct run *r, int64_t given)
{
    return given ? given : gdni_problem_state_size(&r->p);
}

/* Where element (i, j) of head h of a line lies. stride: elements from line to line; 0: packed. */
static int64_t state_index(const struct run *r, int64_t line, int64_t stride, int64_t h, int64_t i, int64_t j)
{
    const int64_t dk = r->p.head_dim_qk, dv = r->p.head_dim_v;
    const int64_t base = line * line_stride(r, stride) + h * dk * dv;
    return base + (r->p.state_layout == GDN_STATE_KV ? i * dv + j : j * dk + i);
}

static void load_state(struct run *r, const struct sequence *s, int64_t h)
{
    const void *from = gdni_host(r->a.initial_state);
    for (int i = 0; i < r->p.head_dim_qk; ++i)
        for (int j = 0; j < r->p.head_dim_v; ++j) {
            double *x = &r->state[i * r->p.head_dim_v + j];
            *x = 0.0;
            if (s->starts_from_line)
                *x = gdni_load(r->p.state_type, from, state_index(r, s->from, r->a.initial_slot_stride, h, i, j));
        }
}

static void store_state(const struct run *r, int64_t line, int64_t h)
{
    for (int i = 0; i < r->p.head_dim_qk; ++i)
        for (int j = 0; j < r->p.head_dim_v; ++j)
            gdni_store(r->final_type, gdni_host(r->a.final_state),
                       state_index(r, line, r->a.final_slot_stride, h, i, j), r->state[i * r->p.head_dim_v + j]);
}

/* One row of checkpoints: { sequence, token_end, slot }. */
static void checkpoint_row(const struct run *r, int64_t i, int64_t row[3])
{
    memcpy(row, (const unsigned char *)gdni_host(r->a.checkpoints) + i * 24, 24);
}

/* The state after `done` tokens of sequence n, to every line that asks for it. */
static void store_checkpoints(const struct run *r, int64_t n, int64_t done, int64_t h)
{
    int64_t row[3];
    if (done == 0 || done % 64) return;
    for (int64_t i = 0; i < r->a.num_checkpoints; ++i) {
        checkpoint_row(r, i, row);
        if (row[0] == n && row[1] == done && row[2] >= 0) store_state(r, row[2], h);
    }
}

/* ---- one token ---- */

static int64_t row_index(const gdn_strides *strides, const struct sequence *s, int64_t t, int64_t head)
{
    return s->batch * strides->batch + (s->first + t) * strides->token + head * strides->head;
}

static int64_t head_of(const struct run *r, int64_t h, int64_t heads)
{
    return r->p.head_map == GDN_HEADS_TILED ? h % heads : h * heads / r->p.num_heads;
}

/* x * rsqrt(sum x^2 + 1e-6) */
static void normalise(double *x, int dim)
{
    double sum = 0.0;
    for (int i = 0; i < dim; ++i)
        sum += x[i] * x[i];
    for (int i = 0; i < dim; ++i)
        x[i] /= sqrt(sum + 1e-6);
}

static double softplus(double x)
{
    return x > 20.0 ? x : log1p(exp(x));
}

static double decay_of(const struct run *r, const struct sequence *s, int64_t t, int64_t h)
{
    if (!r->a.g) return 1.0;
    const double g = gdni_load(r->p.gate_type, gdni_host(r->a.g), row_index(&r->gate_strides, s, t, h));
    if (r->p.gate == GDN_GATE_LINEAR) return g;
    if (r->p.gate == GDN_GATE_LOG) return exp(g);
    const double bias = r->a.dt_bias ? gdni_load(GDN_F32, gdni_host(r->a.dt_bias), h) : 0.0;
    return exp(-exp(gdni_load(GDN_F32, gdni_host(r->a.a_log), h)) * softplus(g + bias));
}

static double beta_of(const struct run *r, const struct sequence *s, int64_t t, int64_t h)
{
    if (!r->a.beta) return 1.0;
    const double given = gdni_load(r->p.beta_type, gdni_host(r->a.beta), row_index(&r->beta_strides, s, t, h));
    const double beta = r->p.beta == GDN_BETA_LOGITS ? 1.0 / (1.0 + exp(-given)) : given;
    return r->p.flags & GDN_PREFILL_BETA_TIMES_2 ? 2.0 * beta : beta;
}

/* The row of token t that state head h reads from a tensor of `heads` heads. */
static void load_row(const struct run *r, gdn_devptr tensor, int64_t at, int dim, double *out)
{
    gdni_load_row(r->p.io_type, gdni_host(tensor), at, dim, out);
}

static void load_token(struct run *r, const struct sequence *s, int64_t t, int64_t h)
{
    const struct gdni_problem *p = &r->p;
    const int dk = p->head_dim_qk;
    load_row(r, r->a.q, row_index(&r->q_strides, s, t, head_of(r, h, p->num_q_heads)), dk, r->q);
    load_row(r, r->a.k, row_index(&r->k_strides, s, t, head_of(r, h, p->num_k_heads)), dk, r->k);
    load_row(r, r->a.v, row_index(&r->v_strides, s, t, head_of(r, h, p->num_v_heads)), p->head_dim_v, r->u);
    if (!(p->flags & GDN_PREFILL_QK_L2NORM)) return;
    normalise(r->q, dk);
    normalise(r->k, dk);
}

/* S <- alpha S;  u = beta (v - k S);  S <- S + k^T u;  o = q S. Two sweeps over S. */
static void step(struct run *r, double alpha, double beta)
{
    const int dk = r->p.head_dim_qk, dv = r->p.head_dim_v;
    double *restrict u = r->u, *restrict o = r->o;
    for (int i = 0; i < dk; ++i) {
        double *restrict row = r->state + i * dv;
        for (int j = 0; j < dv; ++j) {
            row[j] *= alpha;
            u[j] -= r->k[i] * row[j];
        }
    }
    for (int j = 0; j < dv; ++j) {
        u[j] *= beta;
        o[j] = 0.0;
    }
    for (int i = 0; i < dk; ++i) {
        double *restrict row = r->state + i * dv;
        for (int j = 0; j < dv; ++j) {
            row[j] += r->k[i] * u[j];
            o[j] += r->q[i] * row[j];
        }
    }
}

static void token(struct run *r, const struct sequence *s, int64_t t, int64_t h)
{
    const int dv = r->p.head_dim_v;
    load_token(r, s, t, h);
    step(r, decay_of(r, s, t, h), beta_of(r, s, t, h));
    for (int j = 0; j < dv; ++j)
        r->o[j] *= r->scale;
    gdni_store_row(r->o_type, gdni_host(r->a.o), row_index(&r->o_strides, s, t, h), dv, r->o);
}

static void run_head(struct run *r, const struct sequence *s, int64_t n, int64_t h)
{
    load_state(r, s, h);
    for (int64_t t = 0; t < s->len; ++t) {
        token(r, s, t, h);
        store_checkpoints(r, n, t + 1, h);
    }
    if (r->a.final_state) store_state(r, s->to, h);
}

/* ---- a call ---- */

static int64_t slot_of(const struct run *r, gdn_devptr slots, int64_t stride, int64_t n)
{
    return slots ? gdni_load_index(r->p.slot_type, slots, n * (stride ? stride : 1)) : n;
}

static struct sequence sequence_at(const struct run *r, int64_t n)
{
    const uint8_t *has_initial = gdni_host(r->a.has_initial_state);
    const int64_t first = gdni_seqlens_start(&r->seqs, n), end = gdni_seqlens_start(&r->seqs, n + 1);
    const bool varlen = r->a.cu_seqlens != 0;
    const int64_t from = slot_of(r, r->a.slot_in, r->a.slot_in_stride, n);
    return (struct sequence){
        .batch = varlen ? 0 : n,
        .first = varlen ? first : 0,
        .len = end - first,
        .from = from,
        .to = r->a.slot_out ? slot_of(r, r->a.slot_out, r->a.slot_out_stride, n) : from,
        .starts_from_line = r->a.initial_state && (!has_initial || has_initial[n]),
    };
}

static gdn_status check_slots(const struct run *r)
{
    for (int64_t n = 0; n < r->a.num_seqs; ++n) {
        const struct sequence s = sequence_at(r, n);
        GDN_TRY(gdni_line_check("slot_in", n, s.from, r->a.initial_state ? line_stride(r, r->a.initial_slot_stride) : 1));
        GDN_TRY(gdni_line_check(r->a.slot_out ? "slot_out" : "slot_in", n, s.to,
                                r->a.final_state ? line_stride(r, r->a.final_slot_stride) : 1));
    }
    return GDN_OK;
}

static gdn_status check_checkpoints(const struct run *r)
{
    int64_t last[3] = { 0, INT64_MIN, 0 }, row[3];
    for (int64_t i = 0; i < r->a.num_checkpoints; ++i) {
        checkpoint_row(r, i, row);
        const bool sorted =
            last[0] < 0 ? row[0] < 0 : row[0] < 0 || row[0] > last[0] || (row[0] == last[0] && row[1] >= last[1]);
        if (!sorted)
            return GDN_FAIL(
                GDN_E_INVALID,
                "checkpoints[%lld] is { %lld, %lld, %lld } after { %lld, %lld, ... }: sort rows by (sequence, "
                "token_end), negative sequences last",
                (long long)i, (long long)row[0], (long long)row[1], (long long)row[2], (long long)last[0],
                (long long)last[1]);
        memcpy(last, row, sizeof last);
    }
    return GDN_OK;
}

static bool is_inert(const struct sequence *s)
{
    return s->from < 0 || s->to < 0;
}

/* Of the pool of final_state, which initial_state may be. */
static void add_lines(struct gdni_lines *lines, const void *call)
{
    const struct run *r = call;
    const bool one_pool = r->a.initial_state == r->a.final_state;
    for (int64_t n = 0; n < r->a.num_seqs; ++n) {
        const struct sequence s = sequence_at(r, n);
        if (is_inert(&s)) continue;
        if (one_pool && s.starts_from_line) gdni_lines_add(lines, GDNI_LINE_READ, s.from, n);
        gdni_lines_add(lines, GDNI_LINE_WRITTEN, s.to, n);
    }
    for (int64_t i = 0; i < r->a.num_checkpoints; ++i) {
        int64_t row[3];
        checkpoint_row(r, i, row);
        if (row[0] < 0 || row[0] >= r->a.num_seqs || row[1] <= 0 || row[1] % 64 || row[2] < 0) continue;
        const struct sequence s = sequence_at(r, row[0]);
        if (!is_inert(&s) && row[1] <= s.len) gdni_lines_add(lines, GDNI_LINE_CHECKPOINT, row[2], i);
    }
}

static gdn_status check_lines(const struct run *r)
{
    if (!r->a.final_state) return GDN_OK;
    return gdni_lines_check(add_lines, r, 2 * r->a.num_seqs + r->a.num_checkpoints,
                            line_stride(r, r->a.final_slot_stride));
}

/* Rows past the last sequence. */
static void zero_padding(struct run *r)
{
    const struct sequence all = { .batch = 0, .first = 0 };
    if (!(r->p.flags & GDN_PREFILL_ZERO_PADDING) || !r->a.cu_seqlens) return;
    for (int j = 0; j < r->p.head_dim_v; ++j)
        r->o[j] = 0.0;
    for (int64_t t = gdni_seqlens_start(&r->seqs, r->a.num_seqs); t < r->a.num_tokens; ++t)
        for (int64_t h = 0; h < r->p.num_heads; ++h)
            gdni_store_row(r->o_type, gdni_host(r->a.o), row_index(&r->o_strides, &all, t, h), r->p.head_dim_v, r->o);
}

static gdn_status take_desc(struct run *r, const gdn_prefill_desc *desc)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prefill_desc, &d, desc));
    d.max_tokens = d.max_seqs = INT32_MAX; /* the caller's are not used */
    return gdni_problem_from_prefill(&r->p, &d);
}

static void fill_strides(struct run *r)
{
    const struct gdni_problem *p = &r->p;
    const int64_t len = r->seqs.uniform_len, h = p->num_heads, dk = p->head_dim_qk, dv = p->head_dim_v;
    r->q_strides = gdni_strides_filled(&r->a.q_strides, p->num_q_heads, dk, len);
    r->k_strides = gdni_strides_filled(&r->a.k_strides, p->num_k_heads, dk, len);
    r->v_strides = gdni_strides_filled(&r->a.v_strides, p->num_v_heads, dv, len);
    r->o_strides = gdni_strides_filled(&r->a.o_strides, h, dv, len);
    r->gate_strides = gdni_strides_filled(&r->a.g_strides, h, 1, len);
    r->beta_strides = gdni_strides_filled(&r->a.beta_strides, h, 1, len);
}

static gdn_status take_args(struct run *r, const gdn_prefill_args *args)
{
    gdn_prefill_args *a = &r->a;
    *a = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prefill_args, a, args));
    gdn_prefill_args checked = *a;
    gdn_devptr *const pointers[] = { &checked.q,
                                     &checked.k,
                                     &checked.v,
                                     &checked.g,
                                     &checked.beta,
                                     &checked.o,
                                     &checked.a_log,
                                     &checked.dt_bias,
                                     &checked.slot_in,
                                     &checked.slot_out,
                                     &checked.cu_seqlens,
                                     &checked.checkpoints,
                                     &checked.initial_state,
                                     &checked.final_state };
    gdni_align_for_check(pointers, sizeof pointers / sizeof pointers[0]);
    GDN_TRY(gdni_check_prefill_args(&r->p, &checked));
    GDN_TRY(gdni_check_prefill_apart(a, 0));
    r->scale = a->has_scale ? (double)a->scale : 1.0 / sqrt(r->p.head_dim_qk);
    GDN_TRY(gdni_seqlens_take(&r->seqs, a->cu_seqlens, r->p.cu_seqlens_type, a->num_tokens, a->num_seqs));
    fill_strides(r);
    GDN_TRY(check_slots(r));
    GDN_TRY(check_checkpoints(r));
    return check_lines(r);
}

static gdn_status run_all(struct run *r)
{
    const size_t dk = (size_t)r->p.head_dim_qk, dv = (size_t)r->p.head_dim_v;
    r->state = gdni_calloc(dk * dv + 2 * dk + 2 * dv, sizeof *r->state);
    if (!r->state) return GDN_FAIL(GDN_E_NOMEM, "no memory for a %zu x %zu state of doubles", dk, dv);
    r->q = r->state + dk * dv;
    r->k = r->q + dk;
    r->u = r->k + dk;
    r->o = r->u + dv;
    for (int64_t n = 0; n < r->a.num_seqs; ++n) {
        const struct sequence s = sequence_at(r, n);
        for (int64_t h = 0; !is_inert(&s) && h < r->p.num_heads; ++h)
            run_head(r, &s, n, h);
    }
    zero_padding(r);
    gdni_free(r->state);
    return GDN_OK;
}

static gdn_status run_call(const gdn_prefill_desc *desc, const gdn_prefill_args *args, bool wide)
{
    struct run r;
    memset(&r, 0, sizeof r);
    GDN_TRY(take_desc(&r, desc));
    GDN_TRY(take_args(&r, args));
    r.o_type = wide ? GDNI_F64 : r.p.io_type;
    r.final_type = wide ? GDNI_F64 : r.p.state_type;
    return run_all(&r);
}

gdn_status gdn_reference_prefill(const gdn_prefill_desc *desc, const gdn_prefill_args *args)
{
    return run_call(desc, args, false);
}

gdn_status gdni_reference_prefill_f64(const gdn_prefill_desc *desc, const gdn_prefill_args *args)
{
    return run_call(desc, args, true);
}
