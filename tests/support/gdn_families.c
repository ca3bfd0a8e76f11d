/*
 * gdn_families.c - owns what the numbers of a GDN prefill case are like: generators, and the table that combines them.
 * Must not know: shapes' names, buffers' owners, operators, bounds.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "gdn_cases.h"

/* ---- generators of rows ---------------------------------------------------------------------------------------- */

/* A q, k or v tensor as the generators see it. */
struct rows {
    uint16_t *bits;
    int32_t type;
    int64_t tokens;
    int heads, dim;
};

static struct rows rows_of(const struct gdn_case *c, uint16_t *bits, int heads, int dim)
{
    return (struct rows){ bits, (int32_t)c->desc.io_type, c->used_tokens, heads, dim };
}

static struct rows q_rows(const struct gdn_case *c)
{
    return rows_of(c, c->q, c->desc.num_q_heads, c->desc.head_dim_qk);
}

static struct rows k_rows(const struct gdn_case *c)
{
    return rows_of(c, c->k, c->desc.num_k_heads, c->desc.head_dim_qk);
}

static struct rows v_rows(const struct gdn_case *c)
{
    return rows_of(c, c->v, c->desc.num_v_heads, c->desc.head_dim_v);
}

enum { MAX_DIM = 256 };

static void put(const struct rows *r, int64_t row, const double *x)
{
    gdni_store_row(r->type, r->bits, row * r->dim, r->dim, x);
}

static void scale_to(double *x, int dim, double length)
{
    double sum = 0;
    for (int i = 0; i < dim; ++i)
        sum += x[i] * x[i];
    for (int i = 0; i < dim; ++i)
        x[i] *= length / sqrt(sum);
}

/* One row after another, heads fastest: x = draw(rng, a), then scaled to `length` when it is positive. */
static void fill_rows(const struct rows *r, struct rng *rng, double (*draw)(struct rng *, double), double a,
                      double length)
{
    double x[MAX_DIM];
    for (int64_t row = 0; row < r->tokens * r->heads; ++row) {
        for (int i = 0; i < r->dim; ++i)
            x[i] = draw(rng, a);
        if (length > 0) scale_to(x, r->dim, length);
        put(r, row, x);
    }
}

static double draw_normal(struct rng *rng, double deviation)
{
    return deviation * rng_normal(rng);
}

static double draw_uniform(struct rng *rng, double high)
{
    return rng_between(rng, 0, high);
}

/* ---- q, k ------------------------------------------------------------------------------------------------------ */

/* Normal, of deviation a; of length b when b > 0. */
static void q_normal(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = q_rows(c);
    fill_rows(&r, rng, draw_normal, a, b);
}

static void k_normal(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = k_rows(c);
    fill_rows(&r, rng, draw_normal, a, b);
}

/* Uniform in [0, a); of length b when b > 0. Normalised: any two have a cosine near 0.75. */
static void q_uniform(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = q_rows(c);
    fill_rows(&r, rng, draw_uniform, a, b);
}

static void k_uniform(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = k_rows(c);
    fill_rows(&r, rng, draw_uniform, a, b);
}

/* Uniform within a of a mean that each channel draws once, of deviation b. length > 0: normalised. */
static void fill_around_means(const struct rows *r, struct rng *rng, double a, double b, double length)
{
    double means[MAX_DIM], x[MAX_DIM];
    for (int i = 0; i < r->dim; ++i)
        means[i] = b * rng_normal(rng);
    for (int64_t row = 0; row < r->tokens * r->heads; ++row) {
        for (int i = 0; i < r->dim; ++i)
            x[i] = means[i] + rng_between(rng, -a, a);
        if (length > 0) scale_to(x, r->dim, length);
        put(r, row, x);
    }
}

static void q_around_means(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = q_rows(c);
    fill_around_means(&r, rng, a, b, 0);
}

static void k_around_means(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = k_rows(c);
    fill_around_means(&r, rng, a, b, 1);
}

/* The same key for all tokens of a head, of length exactly 1 in either I/O type: 64 channels of +-1/8. */
static void k_identical(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)a;
    (void)b;
    const struct rows r = k_rows(c);
    double x[MAX_DIM];
    for (int head = 0; head < r.heads; ++head) {
        for (int i = 0; i < r.dim; ++i)
            x[i] = i % (r.dim / 64) ? 0 : (rng_u64(rng) >> 63 ? 0.125 : -0.125);
        for (int64_t t = 0; t < r.tokens; ++t)
            put(&r, t * r.heads + head, x);
    }
}

/* From token to token a cosine of a: a step of that angle in a random direction. */
static void k_drifting(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    const struct rows r = k_rows(c);
    double x[MAX_DIM], away[MAX_DIM];
    for (int head = 0; head < r.heads; ++head) {
        for (int i = 0; i < r.dim; ++i)
            x[i] = rng_normal(rng);
        for (int64_t t = 0; t < r.tokens; ++t) {
            scale_to(x, r.dim, 1);
            put(&r, t * r.heads + head, x);
            for (int i = 0; i < r.dim; ++i)
                away[i] = rng_normal(rng);
            scale_to(away, r.dim, sqrt(1 - a * a)); /* all but orthogonal in so many dimensions */
            for (int i = 0; i < r.dim; ++i)
                x[i] = a * x[i] + away[i];
        }
    }
}

/* Unit vectors, a of them in turn: each token overwrites what the a-th before it wrote. */
static void k_one_hot(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)rng;
    (void)b;
    const struct rows r = k_rows(c);
    for (int64_t row = 0; row < r.tokens * r.heads; ++row) {
        double x[MAX_DIM] = { 0 };
        x[row / r.heads % (int64_t)a] = 1;
        put(&r, row, x);
    }
}

/* Random directions of length b; of every 64 tokens those from the a-th on are zeros. */
static void k_silent(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = k_rows(c);
    fill_rows(&r, rng, draw_normal, 1, b);
    for (int64_t row = 0; row < r.tokens * r.heads; ++row) {
        const double x[MAX_DIM] = { 0 };
        if (row / r.heads % 64 >= (int64_t)a) put(&r, row, x);
    }
}

/* Random directions, lengths uniform in [a, b). */
static void k_any_length(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = k_rows(c);
    double x[MAX_DIM];
    for (int64_t row = 0; row < r.tokens * r.heads; ++row) {
        for (int i = 0; i < r.dim; ++i)
            x[i] = rng_normal(rng);
        scale_to(x, r.dim, rng_between(rng, a, b));
        put(&r, row, x);
    }
}

/* ---- v --------------------------------------------------------------------------------------------------------- */

static void v_normal(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = v_rows(c);
    fill_rows(&r, rng, draw_normal, a, b);
}

static void v_uniform(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = v_rows(c);
    fill_rows(&r, rng, draw_uniform, a, b);
}

static void v_around_means(struct gdn_case *c, struct rng *rng, double a, double b)
{
    const struct rows r = v_rows(c);
    fill_around_means(&r, rng, a, b, 0);
}

/* Normal, of a deviation that follows from a token's place in its sequence. */
static void fill_by_place(struct gdn_case *c, struct rng *rng, double (*deviation)(int64_t at, int64_t len, double a, double b),
                          double a, double b)
{
    const struct rows r = v_rows(c);
    double x[MAX_DIM];
    for (int n = 0; n < c->shape->num_seqs; ++n)
        for (int64_t t = c->cu[n]; t < c->cu[n + 1]; ++t)
            for (int head = 0; head < r.heads; ++head) {
                const double by = deviation(t - c->cu[n], c->shape->lens[n], a, b);
                for (int i = 0; i < r.dim; ++i)
                    x[i] = by * rng_normal(rng);
                put(&r, t * r.heads + head, x);
            }
}

static double by_half(int64_t at, int64_t len, double a, double b)
{
    return 2 * at < len ? a : b;
}

/* Deviation a in the first half of each sequence and b in the second. */
static void v_cut(struct gdn_case *c, struct rng *rng, double a, double b)
{
    fill_by_place(c, rng, by_half, a, b);
}

static double by_gap(int64_t at, int64_t len, double a, double b)
{
    const double past = (double)at - 0.5 * (double)len;
    return past >= 0 && past < b ? 0 : a;
}

/* Deviation a, but 0 for b tokens from the middle of each sequence. */
static void v_gap(struct gdn_case *c, struct rng *rng, double a, double b)
{
    fill_by_place(c, rng, by_gap, a, b);
}

static double by_burst(int64_t at, int64_t len, double a, double b)
{
    (void)len;
    return at % (int64_t)a < 64 ? b : 0;
}

/* Deviation b in the first 64 tokens of each a of a sequence, else 0. */
static void v_bursts(struct gdn_case *c, struct rng *rng, double a, double b)
{
    fill_by_place(c, rng, by_burst, a, b);
}

/* ---- gates ----------------------------------------------------------------------------------------------------- */

static int64_t gate_count(const struct gdn_case *c)
{
    return c->used_tokens * c->heads;
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double log_sigmoid(double x)
{
    return -softplus(-x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* logsigmoid(normal) / a */
static void g_log_sigmoid(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->g[i] = (float)(log_sigmoid(rng_normal(rng)) / a);
}

/* logsigmoid(uniform) / a, and 0 with probability b */
static void g_fla(struct gdn_case *c, struct rng *rng, double a, double b)
{
    for (int64_t i = 0; i < gate_count(c); ++i) {
        const double g = log_sigmoid(rng_uniform(rng)) / a;
        c->g[i] = rng_uniform(rng) < b ? 0.0f : (float)g;
    }
}

/* -A softplus(normal / 2 + 1): A is 0 for the first head, a for the last, between for the others. */
static void g_flashqla(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i) {
        const int64_t head = i % c->heads;
        const double rate = head == c->heads - 1 ? a : a * (double)head / c->heads;
        c->g[i] = (float)(-rate * softplus(0.5 * rng_normal(rng) + 1));
    }
}

/* Uniform in [a, b). */
static void g_uniform(struct gdn_case *c, struct rng *rng, double a, double b)
{
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->g[i] = (float)rng_between(rng, a, b);
}

/* log(uniform in (a, 1]). */
static void g_log_uniform(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->g[i] = (float)log(1 - (1 - a) * rng_uniform(rng));
}

static void g_constant(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)rng;
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->g[i] = (float)a;
}

/* Even heads do not decay, odd ones as g_log_sigmoid. */
static void g_every_other_head(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i) {
        const double g = log_sigmoid(rng_normal(rng)) / a;
        c->g[i] = i % c->heads % 2 ? (float)g : 0.0f;
    }
}

/* The last head as g_log_sigmoid, the others do not decay. */
static void g_last_head(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i) {
        const double g = log_sigmoid(rng_normal(rng)) / a;
        c->g[i] = i % c->heads == c->heads - 1 ? (float)g : 0.0f;
    }
}

/* a, but 0 for b tokens around the middle of each sequence. */
static void g_pause(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)rng;
    for (int n = 0; n < c->shape->num_seqs; ++n) {
        const double middle = c->cu[n] + 0.5 * c->shape->lens[n];
        for (int64_t i = (int64_t)c->cu[n] * c->heads; i < (int64_t)c->cu[n + 1] * c->heads; ++i)
            c->g[i] = fabs((double)(i / c->heads) + 0.5 - middle) < 0.5 * b ? 0.0f : (float)a;
    }
}

/*
 * g_log_sigmoid with a divisor of 16, and the value a (-inf, or so low that exp underflows) for one token in sixteen.
 */
static void g_forgetting(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i) {
        const double g = log_sigmoid(rng_normal(rng)) / 16;
        c->g[i] = rng_below(rng, 16) ? (float)g : (float)a;
    }
}

/* 48 tokens of uniform [0, a), then 48 of (-a, 0]: positive gates whose sum over a run stays below 48 a. */
static void g_seesaw(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i) {
        const double size = a * rng_uniform(rng);
        c->g[i] = (float)(i / c->heads / 48 % 2 ? -size : size);
    }
}

/* ---- beta ------------------------------------------------------------------------------------------------------ */

/* a * sigmoid(normal) */
static void beta_sigmoid(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->beta[i] = (float)(a * sigmoid(rng_normal(rng)));
}

static void beta_uniform(struct gdn_case *c, struct rng *rng, double a, double b)
{
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->beta[i] = (float)rng_between(rng, a, b);
}

static void beta_constant(struct gdn_case *c, struct rng *rng, double a, double b)
{
    (void)rng;
    (void)b;
    for (int64_t i = 0; i < gate_count(c); ++i)
        c->beta[i] = (float)a;
}

/* a * sigmoid(normal); 0 of tokens from b on of each 64, which are masked so. */
static void beta_masked(struct gdn_case *c, struct rng *rng, double a, double b)
{
    beta_sigmoid(c, rng, a, 0);
    for (int64_t i = 0; i < gate_count(c); ++i)
        if (i / c->heads % 64 >= (int64_t)b) c->beta[i] = 0;
}

/* ---- families -------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define RANDOM_QK { q_normal, 1, 1 }, { k_normal, 1, 1 }
#define RANDOM_V { v_normal, 1, 0 }
#define DECAY { g_log_sigmoid, 16, 0 }
#define NO_DECAY { g_constant, 0, 0 }
#define ABSENT { NULL, 0, 0 }
#define BETA { beta_sigmoid, 1, 0 }
#define FLA_QKV { q_uniform, 1, 1 }, { k_uniform, 1, 1 }, { v_uniform, 1, 0 }
#define FLA_BETA { beta_uniform, 0.5, 0.731 } /* sigmoid of a uniform */
#define DEFAULT_SCALE 0, false, GDN_FAMILY_BOTH
#define V_TIMES(name, factor, dtypes)                                                                      \
    {                                                                                                      \
        name, "v and the initial state times a power of two: the relative error must not move", RANDOM_QK, \
            { v_normal, factor, 0 }, DECAY, BETA, factor, 0, false, dtypes                                 \
    }

const struct gdn_family gdn_families[] = {
    { "random", "normalised keys, mild decay",
      RANDOM_QK, RANDOM_V, DECAY, BETA, 1, DEFAULT_SCALE },
    { "random_no_h0", "no initial state",
      RANDOM_QK, RANDOM_V, DECAY, BETA, 0, DEFAULT_SCALE },
    { "plain_delta", "g and beta are null",
      RANDOM_QK, RANDOM_V, ABSENT, ABSENT, 1, DEFAULT_SCALE },
    { "g_null", "g is null",
      RANDOM_QK, RANDOM_V, ABSENT, BETA, 1, DEFAULT_SCALE },
    { "beta_null", "beta is null",
      RANDOM_QK, RANDOM_V, DECAY, ABSENT, 1, DEFAULT_SCALE },
    { "no_decay", "g = 0: nothing is forgotten, errors add up",
      RANDOM_QK, RANDOM_V, NO_DECAY, BETA, 1, DEFAULT_SCALE },
    { "mixed_heads", "every other head does not decay",
      RANDOM_QK, RANDOM_V, { g_every_other_head, 16, 0 }, BETA, 1, DEFAULT_SCALE },
    { "fla_no_decay", "keys of cosine 0.75, g masked to 0",
      FLA_QKV, { g_fla, 1, 1 }, FLA_BETA, 1, DEFAULT_SCALE },
    { "fla_masked", "half of the gates are 0",
      FLA_QKV, { g_fla, 1, 0.5 }, FLA_BETA, 1, DEFAULT_SCALE },
    { "fla_fast", "gates near -0.5 a token",
      FLA_QKV, { g_fla, 1, 0 }, FLA_BETA, 1, DEFAULT_SCALE },
    { "fla_faster", "gates near -5 a token",
      FLA_QKV, { g_fla, 0.1, 0 }, FLA_BETA, 1, DEFAULT_SCALE },
    { "fla_fastest", "gates near -47 a token",
      FLA_QKV, { g_fla, 0.01, 0 }, FLA_BETA, 1, DEFAULT_SCALE },
    { "fla_slow", "gates near -0.05 a token",
      FLA_QKV, { g_fla, 10, 0 }, FLA_BETA, 1, DEFAULT_SCALE },
    { "flashqla", "gates from 0 to -50 a token, by head",
      RANDOM_QK, RANDOM_V, { g_flashqla, 16, 0 }, BETA, 1, DEFAULT_SCALE },
    { "tileops", "small inputs, g in (-1, 0], scale 1",
      { q_normal, 0.1, 0 }, { k_normal, 0.1, 0 }, { v_normal, 0.1, 0 }, { g_uniform, -1, 0 },
      { beta_uniform, 0, 1 }, 0, 1, true, GDN_FAMILY_BOTH },
    { "flashinfer", "channels with means, alpha uniform",
      { q_around_means, 0.25, 0.05 }, { k_around_means, 0.25, 0.05 },
      { v_around_means, 0.25, 0.05 }, { g_log_uniform, 0, 0 }, { beta_uniform, 0, 1 }, 1, DEFAULT_SCALE },
    { "flashinfer_slow", "alpha from 0.9995",
      { q_around_means, 0.25, 0.05 }, { k_around_means, 0.25, 0.05 },
      { v_around_means, 0.25, 0.05 }, { g_log_uniform, 0.9995, 0 }, { beta_uniform, 0, 1 }, 1, DEFAULT_SCALE },
    { "block_end_decay", "alpha, beta in [0.99, 1), scale 1",
      { q_around_means, 0.25, 0.05 }, { k_around_means, 0.25, 0.05 },
      { v_around_means, 0.25, 0.05 }, { g_log_uniform, 0.99, 0 }, { beta_uniform, 0.99, 1 }, 1,
      1, true, GDN_FAMILY_BOTH },
    { "identical_keys", "one key, beta 1: the inverse has no small entry",
      { q_normal, 1, 1 }, { k_identical, 0, 0 }, RANDOM_V, NO_DECAY, { beta_constant, 1, 0 }, 1, DEFAULT_SCALE },
    { "identical_keys_beta_2", "one key, beta 2: reflections, entries of 2",
      { q_normal, 1, 1 }, { k_identical, 0, 0 }, RANDOM_V, NO_DECAY, { beta_constant, 2, 0 }, 1, DEFAULT_SCALE },
    { "drifting_keys", "cosine 0.99 from token to token, no decay",
      { q_normal, 1, 1 }, { k_drifting, 0.99, 0 }, RANDOM_V, NO_DECAY, { beta_constant, 1, 0 }, 1, DEFAULT_SCALE },
    { "one_hot_keys", "five unit vectors in turn, beta 1: exact overwrites",
      { q_normal, 1, 1 }, { k_one_hot, 5, 0 }, RANDOM_V, NO_DECAY, { beta_constant, 1, 0 }, 1, DEFAULT_SCALE },
    { "beta_to_2", "negative eigenvalues",
      RANDOM_QK, RANDOM_V, DECAY, { beta_sigmoid, 2, 0 }, 1, DEFAULT_SCALE },
    { "long_keys", "|k|^2 = 3, beta 1: only the decay keeps it stable",
      { q_normal, 1, 1 }, { k_normal, 1, 1.7320508 }, RANDOM_V, { g_constant, -1.2, 0 },
      { beta_constant, 1, 0 }, 1, DEFAULT_SCALE },
    { "any_length_keys", "|k| from 0.2 to 1.3",
      { q_normal, 0.3, 0 }, { k_any_length, 0.2, 1.3 }, RANDOM_V, DECAY, BETA, 1, DEFAULT_SCALE },
    { "negative_beta", "beta in (-0.5, 0): steps that amplify",
      RANDOM_QK, RANDOM_V, DECAY, { beta_uniform, -0.5, 0 }, 1, DEFAULT_SCALE },
    { "g_minus_inf", "one token in 16 forgets everything",
      RANDOM_QK, RANDOM_V, { g_forgetting, -INFINITY, 0 }, BETA, 1, DEFAULT_SCALE },
    { "alpha_zero", "one token in 16 has a gate whose exp underflows",
      RANDOM_QK, RANDOM_V, { g_forgetting, -1000, 0 }, BETA, 1, DEFAULT_SCALE },
    { "positive_g", "gates above 0, whose sums stay below 4",
      RANDOM_QK, RANDOM_V, { g_seesaw, 0.08, 0 }, BETA, 1, DEFAULT_SCALE },
    { "decay_50", "every token forgets all but e^-50",
      RANDOM_QK, RANDOM_V, { g_constant, -50, 0 }, BETA, 1, DEFAULT_SCALE },
    { "v_drop_1000", "v falls a thousandfold in the middle, slow decay",
      RANDOM_QK, { v_cut, 1, 0.001 }, { g_constant, -0.02, 0 }, BETA, 1, DEFAULT_SCALE },
    { "v_zero_after_cut", "v = 0 from the middle: what is dropped shows",
      RANDOM_QK, { v_cut, 1, 0 }, { g_constant, -0.02, 0 }, BETA, 1, DEFAULT_SCALE },
    /* Of sequences in partitions: five nats a chunk, so that they are guessed, and the middle may be a cut. */
    { "v_drop_at_cut", "v falls a thousandfold in the middle, which the replayed state must know",
      RANDOM_QK, { v_cut, 1, 0.001 }, { g_constant, -0.08, 0 }, BETA, 1, DEFAULT_SCALE },
    { "v_zero_at_cut", "v = 0 for 512 tokens from the middle: nothing there but what came before",
      RANDOM_QK, { v_gap, 1, 512 }, { g_constant, -0.08, 0 }, BETA, 1, DEFAULT_SCALE },
    { "pause_at_cut", "no decay for 100 tokens around the middle",
      RANDOM_QK, RANDOM_V, { g_pause, -0.08, 100 }, BETA, 1, DEFAULT_SCALE },
    { "one_head_decays", "the last one",
      RANDOM_QK, RANDOM_V, { g_last_head, 16, 0 }, BETA, 1, DEFAULT_SCALE },
    { "forgets_slowly", "an eighth of a nat a chunk, so that keys and gates together make a state forgotten",
      RANDOM_QK, RANDOM_V, { g_constant, -0.002, 0 }, BETA, 1, DEFAULT_SCALE },
    { "forgets_v_drops", "no decay, and v falls a thousandfold in the middle: what keys forget is not little enough there",
      RANDOM_QK, { v_cut, 1, 0.001 }, NO_DECAY, BETA, 1, DEFAULT_SCALE },
    { "long_keys_slow", "beta |k|^2 = 2.5, gates of -0.05: only other keys make it stable",
      { q_normal, 1, 1 }, { k_normal, 1, 1.5811388 }, RANDOM_V, { g_constant, -0.05, 0 },
      { beta_constant, 1, 0 }, 1, DEFAULT_SCALE },
    { "repaired_4", "v = 0 wherever partitions of 4 chunks replay: every guess is wrong",
      RANDOM_QK, { v_bursts, 4 * 64, 1 }, { g_constant, -0.11, 0 }, BETA, 1, DEFAULT_SCALE },
    { "repaired_16", "the same of partitions of 16 chunks",
      RANDOM_QK, { v_bursts, 16 * 64, 1 }, { g_constant, -0.022, 0 }, BETA, 1, DEFAULT_SCALE },
    { "h0_1e6", "an initial state far above what is added",
      RANDOM_QK, RANDOM_V, DECAY, BETA, 1e6, 0x1p-12, true, GDN_FAMILY_BOTH },
    { "h0_forgotten", "an initial state with entries beyond fp16, of which a chunk leaves nothing that fp32 holds",
      RANDOM_QK, RANDOM_V, { g_constant, -2, 0 }, BETA, 2e4, 0x1p-8, true, GDN_FAMILY_BOTH },
    { "scale_zero", "scale 0 is 0, not the default",
      RANDOM_QK, RANDOM_V, DECAY, BETA, 1, 0, true, GDN_FAMILY_BOTH },
    { "v_beyond_fp16", "|v| above 65504",
      RANDOM_QK, { v_normal, 1e5, 0 }, DECAY, BETA, 1, 0, false, GDN_FAMILY_BF16 },
    { "small_beta", "beta of 10^-5 to 10^-3, and no initial state: all there is is small beside v",
      RANDOM_QK, RANDOM_V, DECAY, { beta_uniform, 1e-5, 1e-3 }, 0, DEFAULT_SCALE },
    { "silent_ends", "ten of 64 keys are zero, and what was before them is e^-20 of itself behind them",
      { q_normal, 1, 1 }, { k_silent, 54, 1 }, RANDOM_V, { g_constant, -2, 0 }, BETA, 1, 0, false, GDN_FAMILY_BF16 },
    { "masked_ends", "16 of 64 tokens have no beta, and what was before them is e^-4 of itself behind them",
      RANDOM_QK, RANDOM_V, { g_constant, -0.25, 0 }, { beta_masked, 1, 48 }, 1, DEFAULT_SCALE },
    { "masked_chunks", "no beta and long keys: nothing but a state that decays, to no less than 2^-30",
      { q_normal, 1, 1 }, { k_normal, 1, 64 }, RANDOM_V, { g_constant, -0.005, 0 }, { beta_constant, 0, 0 }, 1, DEFAULT_SCALE },
    V_TIMES("v_2^-40", 0x1p-40, GDN_FAMILY_BF16),
    V_TIMES("v_2^-20", 0x1p-20, GDN_FAMILY_BF16),
    V_TIMES("v_2^20", 0x1p20, GDN_FAMILY_BF16),
    V_TIMES("v_2^40", 0x1p40, GDN_FAMILY_BF16),
    V_TIMES("v_2^-8", 0x1p-8, GDN_FAMILY_BOTH),
    V_TIMES("v_2^8", 0x1p8, GDN_FAMILY_BOTH),
};
/* clang-format on */
const int gdn_num_families = sizeof gdn_families / sizeof gdn_families[0];

const struct gdn_family *gdn_family_find(const char *name)
{
    for (int i = 0; i < gdn_num_families; ++i)
        if (!strcmp(gdn_families[i].name, name)) return &gdn_families[i];
    return NULL;
}

bool gdn_family_has(const struct gdn_family *family, gdn_dtype io_type)
{
    return family->dtypes & (io_type == GDN_BF16 ? GDN_FAMILY_BF16 : GDN_FAMILY_F16);
}
