/*
 * gdn_contract.c - owns the tables of levels, and the making of a call from a tuple. Must not know: devices, bounds.
 */
#include "gdn_contract.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "rng.h"

/* ---- levels ---------------------------------------------------------------------------------------------------------- */

enum layout { PACKED, PROJECTION, HEAD_MAJOR };
enum decay { MILD, NO_DECAY, STRONG, FORGETTING, POSITIVE };

static const struct {
    gdn_dtype type;
    int dim;
} types[] = { { GDN_BF16, 128 }, { GDN_F16, 128 }, { GDN_BF16, 64 }, { GDN_F16, 64 } };

static const struct heads {
    int q, k, v;
    gdn_head_map map;
} heads[] = { { 1, 1, 1, GDN_HEADS_GROUPED }, { 2, 2, 4, GDN_HEADS_GROUPED }, { 2, 2, 4, GDN_HEADS_TILED },
              { 1, 1, 3, GDN_HEADS_GROUPED }, { 4, 1, 2, GDN_HEADS_TILED },   { 2, 1, 6, GDN_HEADS_TILED } };

static const struct {
    const char *name;
    enum layout layout;
    bool uniform;
    gdn_index_type cu_type;
} layouts[] = { { "packed cu32", PACKED, false, GDN_INDEX_I32 },     { "packed cu64", PACKED, false, GDN_INDEX_I64 },
                { "packed uniform", PACKED, true, GDN_INDEX_I32 },   { "view cu32", PROJECTION, false, GDN_INDEX_I32 },
                { "view uniform", PROJECTION, true, GDN_INDEX_I32 }, { "bhtd cu64", HEAD_MAJOR, false, GDN_INDEX_I64 },
                { "bhtd uniform", HEAD_MAJOR, true, GDN_INDEX_I32 } };

static const struct gate {
    const char *name;
    bool given, bias;
    gdn_gate kind;
    gdn_dtype type;
} gates[] = {
    { "none", false, false, GDN_GATE_LOG, GDN_F32 },           { "log:fp32", true, false, GDN_GATE_LOG, GDN_F32 },
    { "log:fp16", true, false, GDN_GATE_LOG, GDN_F16 },        { "linear:fp32", true, false, GDN_GATE_LINEAR, GDN_F32 },
    { "linear:bf16", true, false, GDN_GATE_LINEAR, GDN_BF16 }, { "logits:fp32", true, true, GDN_GATE_LOGITS, GDN_F32 },
    { "logits:bf16", true, false, GDN_GATE_LOGITS, GDN_BF16 }
};

static const struct beta {
    const char *name;
    bool given, twice;
    gdn_beta kind;
    gdn_dtype type;
} betas[] = {
    { "none", false, false, GDN_BETA_PLAIN, GDN_F32 }, { "fp32", true, false, GDN_BETA_PLAIN, GDN_F32 },
    { "bf16", true, false, GDN_BETA_PLAIN, GDN_BF16 }, { "logits:bf16", true, false, GDN_BETA_LOGITS, GDN_BF16 },
    { "fp32x2", true, true, GDN_BETA_PLAIN, GDN_F32 }, { "logits:fp16x2", true, true, GDN_BETA_LOGITS, GDN_F16 }
};

enum pool { NO_POOL, SEPARATE, IN_PLACE, FORK };
static const struct states {
    const char *name;
    bool initial, final, flags_and_inert, slot_in, slot_out, padded;
    enum pool pool;
    gdn_state_layout layout;
    gdn_dtype type;
    gdn_index_type slot_type;
} states[] = {
    { "none", false, false, false, false, false, false, NO_POOL, GDN_STATE_KV, GDN_F32, GDN_INDEX_I32 },
    { "initial kv", true, false, false, false, false, false, SEPARATE, GDN_STATE_KV, GDN_F32, GDN_INDEX_I32 },
    { "final vk", false, true, false, false, false, false, SEPARATE, GDN_STATE_VK, GDN_F32, GDN_INDEX_I32 },
    { "both kv", true, true, false, false, false, false, SEPARATE, GDN_STATE_KV, GDN_F32, GDN_INDEX_I32 },
    { "in place vk slots32", true, true, false, true, false, true, IN_PLACE, GDN_STATE_VK, GDN_F32, GDN_INDEX_I32 },
    { "fork kv bf16 slots64", true, true, true, true, true, true, FORK, GDN_STATE_KV, GDN_BF16, GDN_INDEX_I64 },
    { "slot_out vk fp16", true, true, false, false, true, true, SEPARATE, GDN_STATE_VK, GDN_F16, GDN_INDEX_I32 },
    { "in place kv flags inert slots64", true, true, true, true, false, true, IN_PLACE, GDN_STATE_KV, GDN_F32,
      GDN_INDEX_I64 },
};

static const struct {
    const char *name;
    uint32_t flags;
} features[] = { { "plain", 0 },
                 { "norm", GDN_PREFILL_QK_L2NORM },
                 { "checkpoints", GDN_PREFILL_CHECKPOINTS },
                 { "norm+checkpoints+zeros",
                   GDN_PREFILL_QK_L2NORM | GDN_PREFILL_CHECKPOINTS | GDN_PREFILL_ZERO_PADDING } };

static const struct sequences {
    const char *name;
    enum decay decay;
    int count, lens[CONTRACT_MAX_SEQS], padding;
    int uniform_count, uniform_len;
} sequences[] = {
    { "edges mild", MILD, 4, { 63, 64, 65, 128 }, 0, 3, 96 },
    { "tiny no_decay", NO_DECAY, 8, { 0, 1, 2, 3, 0, 5, 1, 0 }, 3, 4, 1 },
    { "mixed strong", STRONG, 4, { 190, 129, 0, 320 }, 70, 2, 130 },
    { "tails forgetting", FORGETTING, 5, { 31, 61, 91, 121, 150 }, 1, 3, 64 },
    { "one positive", POSITIVE, 1, { 300 }, 0, 1, 300 },
    { "token mild", MILD, 1, { 1 }, 17, 1, 1 },
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
const int contract_levels[CONTRACT_FACTORS] = { COUNT(types), COUNT(heads),  COUNT(layouts),  COUNT(gates),
                                                COUNT(betas), COUNT(states), COUNT(features), COUNT(sequences) };

/* A tuple being made into a call. */
struct maker {
    struct contract_call *c;
    struct rng rng;
    struct heads heads;
    enum layout layout;
    struct gate gate;
    struct beta beta;
    struct states states;
    struct sequences sequences;
};

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static void *must_alloc(int64_t count, size_t size)
{
    void *p = calloc(count > 0 ? (size_t)count : 1, size);
    if (p) return p;
    fprintf(stderr, "gdn_contract: no memory for %lld elements of %zu bytes\n", (long long)count, size);
    exit(2);
}

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

/* All bytes 0xff: a NaN in every type. */
static struct contract_image *add_image(struct contract_call *c, const char *name, size_t bytes, bool output)
{
    struct contract_image *image = &c->images[c->num_images++];
    *image = (struct contract_image){ name, bytes, must_alloc((int64_t)bytes, 1), NULL };
    memset(image->data, 0xff, bytes);
    if (output) image->may_write = must_alloc((int64_t)bytes, 1);
    return image;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

/* A tensor in the tuple's layout: where row t of sequence n, head h begins, in elements from `first`. */
struct tensor {
    struct contract_image *image;
    int64_t first;
    gdn_strides s;
    size_t size; /* of an element */
    int64_t dim;
};

static int64_t batches(const struct contract_call *c)
{
    return c->uniform ? c->num_seqs : 1;
}

static unsigned char *row_at(const struct contract_call *c, const struct tensor *x, int n, int64_t t, int64_t h)
{
    const int64_t row = c->uniform ? n * x->s.batch + t * x->s.token : (c->cu[n] + t) * x->s.token;
    return x->image->data + (x->first + row + h * x->s.head) * (int64_t)x->size;
}

/* Strides of `count` heads of dim elements in rows of at least `width`; gap: extra elements, of the tensors' alignment. */
static gdn_strides strides_of(const struct contract_call *c, enum layout layout, int64_t count, int64_t dim,
                              int64_t width, int64_t gap)
{
    const int64_t rows = c->tokens / batches(c);
    if (layout == HEAD_MAJOR) {
        const int64_t head = rows * dim + gap;
        return (gdn_strides){ .batch = count * head + gap, .token = dim, .head = head };
    }
    const int64_t token = layout == PACKED ? count * dim : width;
    return (gdn_strides){ .batch = rows * token + (layout == PACKED ? 0 : gap), .token = token, .head = dim };
}

/* As args has it: 0 where packed, and no batch stride with cu_seqlens. */
static gdn_strides given_strides(const struct contract_call *c, enum layout layout, gdn_strides s)
{
    if (layout == PACKED) return (gdn_strides){ 0, 0, 0 };
    if (!c->uniform) s.batch = 0;
    return s;
}

/* A tensor of its own. The first element is off by `first`. */
static struct tensor own_tensor(struct maker *m, const char *name, size_t size, int64_t count, int64_t dim, int64_t gap,
                                int64_t first, bool output)
{
    struct contract_call *c = m->c;
    const gdn_strides s = strides_of(c, m->layout, count, dim, count * dim + gap, gap);
    const int64_t all = first + batches(c) * s.batch + count * dim + gap;
    struct contract_image *image = add_image(c, name, (size_t)all * size, output);
    return (struct tensor){ image, first, s, size, dim };
}

/* q, k and v as columns of one projection: [q | k | v | 24 columns of something else]. */
static void projection(struct maker *m, struct tensor out[3])
{
    struct contract_call *c = m->c;
    const int64_t d = c->dim, counts[3] = { m->heads.q, m->heads.k, m->heads.v };
    const int64_t width = (counts[0] + counts[1] + counts[2]) * d + 24;
    gdn_strides s = strides_of(c, PROJECTION, 0, d, width, 48);
    struct contract_image *image = add_image(c, "qkv", (size_t)(batches(c) * s.batch + width) * 2, false);
    int64_t first = 0;
    for (int i = 0; i < 3; ++i) {
        out[i] = (struct tensor){ image, first, s, 2, d };
        first += counts[i] * d;
    }
}

static int64_t mapped_head(const struct maker *m, int64_t h, int64_t count)
{
    return m->heads.map == GDN_HEADS_TILED ? h % count : h / (m->c->heads / count);
}

/*
 * Draws the rows of one tensor, writes them where they belong, and each state head's own into the plain form. length > 0:
 * normalised; spread: lengths over a range of 2^10.
 */
static void draw_rows(struct maker *m, const struct tensor *x, int64_t count, double deviation, double length,
                      bool spread, uint16_t *plain)
{
    struct contract_call *c = m->c;
    double row[128];
    for (int n = 0; n < c->num_seqs; ++n)
        for (int64_t t = 0; t < c->cu[n + 1] - c->cu[n]; ++t)
            for (int64_t head = 0; head < count; ++head) {
                double sum = 0;
                for (int i = 0; i < c->dim; ++i) {
                    row[i] = deviation * rng_normal(&m->rng);
                    sum += row[i] * row[i];
                }
                const double factor = length > 0 ? length / sqrt(sum) : spread ? exp2(rng_between(&m->rng, -5, 5)) : 1;
                for (int i = 0; i < c->dim; ++i)
                    row[i] *= factor;
                unsigned char *to = row_at(c, x, n, t, head);
                gdni_store_row((int32_t)c->desc.io_type, to, 0, c->dim, row);
                for (int64_t h = 0; h < c->heads; ++h)
                    if (mapped_head(m, h, count) == head)
                        memcpy(plain + ((c->cu[n] + t) * c->heads + h) * c->dim, to, (size_t)c->dim * 2);
            }
}

static void make_qkv(struct maker *m)
{
    struct contract_call *c = m->c;
    const int64_t plain = c->tokens * c->heads * c->dim;
    const bool norm = c->desc.flags & GDN_PREFILL_QK_L2NORM;
    struct tensor x[3];
    c->q = must_alloc(plain, 2), c->k = must_alloc(plain, 2), c->v = must_alloc(plain, 2);
    if (m->layout == PROJECTION) {
        projection(m, x);
    } else {
        x[0] = own_tensor(m, "q", 2, m->heads.q, c->dim, 16, 0, false);
        x[1] = own_tensor(m, "k", 2, m->heads.k, c->dim, 16, 0, false);
        x[2] = own_tensor(m, "v", 2, m->heads.v, c->dim, 16, 0, false);
    }
    draw_rows(m, &x[0], m->heads.q, norm ? 2.5 : 1, norm ? 0 : 1, norm, c->q);
    draw_rows(m, &x[1], m->heads.k, norm ? 0.2 : 1, norm ? 0 : 1, norm, c->k);
    draw_rows(m, &x[2], m->heads.v, 1, 0, false, c->v);
    c->args.q = address(x[0].image->data + x[0].first * 2), c->args.q_strides = given_strides(c, m->layout, x[0].s);
    c->args.k = address(x[1].image->data + x[1].first * 2), c->args.k_strides = given_strides(c, m->layout, x[1].s);
    c->args.v = address(x[2].image->data + x[2].first * 2), c->args.v_strides = given_strides(c, m->layout, x[2].s);
}

static void make_o(struct maker *m)
{
    struct contract_call *c = m->c;
    const struct tensor x = own_tensor(m, "o", 2, c->heads, c->dim, 40, m->layout == PROJECTION ? 8 : 0, true);
    c->o_strides = x.s;
    c->args.o = address(x.image->data + x.first * 2);
    c->args.o_strides = given_strides(c, m->layout, x.s);
}

/* ---- gates ----------------------------------------------------------------------------------------------------------- */

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* A log decay to aim at, of the i-th value. */
static double draw_decay(struct maker *m, int64_t i)
{
    const double mild = -softplus(-rng_normal(&m->rng)) / 16;
    switch (m->sequences.decay) {
    case NO_DECAY:
        return 0;
    case STRONG:
        return -50 * rng_uniform(&m->rng);
    case FORGETTING:
        return rng_below(&m->rng, 16) ? mild : -INFINITY;
    case POSITIVE:
        return 0.08 * rng_uniform(&m->rng) * (i / m->c->heads / 48 % 2 ? -1 : 1);
    default:
        return mild;
    }
}

/* The logit whose softplus, times rate, is -g: rate = exp(a_log). Any forgets everything where float32 has no such rate. */
static double logit_of(double g, double rate)
{
    const double s = -g / rate;
    if (rate > (double)FLT_MAX) return 0;
    if (!(s > 0)) return -30;
    return s > 20 ? fmin(s, 1e4) : log(expm1(s));
}

/* What the rounded raw value means, in double. */
static double decay_meant(const struct gate *gate, double raw, double a_log, double bias)
{
    if (gate->kind == GDN_GATE_LOG) return raw;
    return gate->kind == GDN_GATE_LINEAR ? log(raw) : -exp(a_log) * softplus(raw + bias);
}

/* Of several heads the last one's rate is infinite in float32. */
static void make_logit_weights(struct maker *m, float *a_log, float *bias)
{
    struct contract_call *c = m->c;
    struct contract_image *a = add_image(c, "a_log", (size_t)c->heads * 4, false);
    for (int h = 0; h < c->heads; ++h)
        a_log[h] = (float)rng_between(&m->rng, -1, 2.7), bias[h] = 0;
    if (c->heads > 1) a_log[c->heads - 1] = 89;
    memcpy(a->data, a_log, (size_t)c->heads * 4);
    c->args.a_log = address(a->data);
    if (!m->gate.bias) return;
    struct contract_image *b = add_image(c, "dt_bias", (size_t)c->heads * 4, false);
    for (int h = 0; h < c->heads; ++h)
        bias[h] = (float)rng_normal(&m->rng);
    memcpy(b->data, bias, (size_t)c->heads * 4);
    c->args.dt_bias = address(b->data);
}

static void make_gates(struct maker *m)
{
    struct contract_call *c = m->c;
    float a_log[128] = { 0 }, bias[128] = { 0 };
    c->g = must_alloc(c->tokens * c->heads, 4);
    if (!m->gate.given) return;
    if (m->gate.kind == GDN_GATE_LOGITS) make_logit_weights(m, a_log, bias);
    const struct tensor x =
        own_tensor(m, "g", m->gate.type == GDN_F32 ? 4 : 2, c->heads, 1, 3, m->layout == PROJECTION, false);
    c->args.g = address(x.image->data + x.first * (int64_t)x.size);
    c->args.g_strides = given_strides(c, m->layout, x.s);
    for (int n = 0; n < c->num_seqs; ++n)
        for (int64_t t = 0; t < c->cu[n + 1] - c->cu[n]; ++t)
            for (int h = 0; h < c->heads; ++h) {
                const int64_t at = (c->cu[n] + t) * c->heads + h;
                const double g = draw_decay(m, at), rate = exp((double)a_log[h]);
                const double raw = m->gate.kind == GDN_GATE_LOG      ? g
                                   : m->gate.kind == GDN_GATE_LINEAR ? exp(g)
                                                                     : logit_of(g, rate) - (double)bias[h];
                unsigned char *to = row_at(c, &x, n, t, h);
                gdni_store((int32_t)m->gate.type, to, 0, raw);
                c->g[at] = (float)decay_meant(&m->gate, gdni_load((int32_t)m->gate.type, to, 0), (double)a_log[h],
                                              (double)bias[h]);
            }
}

static void make_beta(struct maker *m)
{
    struct contract_call *c = m->c;
    c->beta = must_alloc(c->tokens * c->heads, 4);
    for (int64_t i = 0; i < c->tokens * c->heads; ++i)
        c->beta[i] = 1;
    if (!m->beta.given) return;
    const struct tensor x =
        own_tensor(m, "beta", m->beta.type == GDN_F32 ? 4 : 2, c->heads, 1, 5, m->layout == PROJECTION, false);
    c->args.beta = address(x.image->data + x.first * (int64_t)x.size);
    c->args.beta_strides = given_strides(c, m->layout, x.s);
    for (int n = 0; n < c->num_seqs; ++n)
        for (int64_t t = 0; t < c->cu[n + 1] - c->cu[n]; ++t)
            for (int h = 0; h < c->heads; ++h) {
                const double logit = rng_normal(&m->rng);
                unsigned char *to = row_at(c, &x, n, t, h);
                gdni_store((int32_t)m->beta.type, to, 0,
                           m->beta.kind == GDN_BETA_LOGITS ? logit : 1 / (1 + exp(-logit)));
                const double raw = gdni_load((int32_t)m->beta.type, to, 0);
                const double beta = m->beta.kind == GDN_BETA_LOGITS ? 1 / (1 + exp(-raw)) : raw;
                c->beta[(c->cu[n] + t) * c->heads + h] = (float)(m->beta.twice ? 2 * beta : beta);
            }
}

/* ---- states ---------------------------------------------------------------------------------------------------------- */

static size_t bytes_of(gdn_dtype type)
{
    return type == GDN_F32 ? 4 : 2;
}

enum { SPARE_LINES = 3 };

/* Lines of a pool in random order. */
static void shuffle(struct rng *rng, int64_t *lines, int count)
{
    for (int i = 0; i < count; ++i)
        lines[i] = i;
    for (int i = count - 1; i > 0; --i) {
        const int j = rng_below(rng, i + 1);
        const int64_t other = lines[i];
        lines[i] = lines[j];
        lines[j] = other;
    }
}

/* State matrix (n, h), drawn in plain order and rounded to the type; into a line of the image where one is read. */
static void draw_state(struct maker *m, struct contract_image *image, int n, int64_t line)
{
    struct contract_call *c = m->c;
    const int64_t d = c->dim, size = d * d;
    const int32_t type = (int32_t)c->desc.state_type;
    for (int64_t h = 0; h < c->heads; ++h)
        for (int64_t i = 0; i < d; ++i)
            for (int64_t j = 0; j < d; ++j) {
                const int64_t in_head = c->desc.state_layout == GDN_STATE_KV ? i * d + j : j * d + i;
                const int64_t at = line * c->slot_stride + h * size + in_head;
                gdni_store(type, image->data, at, rng_normal(&m->rng));
                c->h0[((n * c->heads + h) * d + i) * d + j] = (float)gdni_load(type, image->data, at);
            }
}

static gdn_devptr slot_array(struct maker *m, const char *name, const int64_t *lines, const bool *inert, int64_t stride)
{
    struct contract_call *c = m->c;
    const size_t size = c->desc.slot_type == GDN_INDEX_I64 ? 8 : 4;
    struct contract_image *image = add_image(c, name, (size_t)(c->num_seqs * stride) * size, false);
    memset(image->data, 0x55, image->bytes); /* between the entries: lines far outside the pool */
    for (int n = 0; n < c->num_seqs; ++n) {
        const int64_t wide = inert[n] ? -1 : lines[n];
        const int32_t narrow = (int32_t)wide;
        memcpy(image->data + (size_t)(n * stride) * size, size == 8 ? (const void *)&wide : &narrow, size);
    }
    return address(image->data);
}

static void allow_line(struct contract_call *c, struct contract_image *image, int64_t line)
{
    const size_t size = bytes_of(c->desc.state_type);
    memset(image->may_write + (size_t)(line * c->slot_stride) * size, 1, (size_t)(c->heads * c->dim * c->dim) * size);
}

static int compare_rows(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    if ((x[0] < 0) != (y[0] < 0)) return x[0] < 0 ? 1 : -1;
    if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

/* Two live rows for each sequence of a chunk or more, one of each inert kind, the rest of the capacity -1. */
static int draw_checkpoints(struct maker *m, const int64_t *lines)
{
    struct contract_call *c = m->c;
    int64_t(*rows)[3] = c->checkpoints;
    int count = 0, live = 0;
    for (int n = 0; n < c->num_seqs; ++n) {
        const int64_t chunks = (c->cu[n + 1] - c->cu[n]) / 64;
        for (int i = 0; i < 2 && chunks > 0; ++i, ++count)
            rows[count][0] = n, rows[count][1] = 64 * (1 + rng_below(&m->rng, (int)chunks)),
            rows[count][2] = lines[live++];
    }
    const int64_t inert[][3] = { { 0, 0, 0 },   { 0, -64, 0 }, { 0, 32, 0 },  { 0, 1 << 20, 0 },
                                 { 0, 64, -1 }, { -1, 64, 0 }, { -1, -1, -1 } };
    for (int i = 0; i < COUNT(inert); ++i)
        memcpy(rows[count++], inert[i], sizeof inert[i]);
    qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    return count;
}

static void make_checkpoints(struct maker *m, struct contract_image *pool, const int64_t *lines)
{
    struct contract_call *c = m->c;
    const int count = draw_checkpoints(m, lines);
    struct contract_image *image = add_image(c, "checkpoints", (size_t)count * 24, false);
    memcpy(image->data, c->checkpoints, (size_t)count * 24);
    c->args.checkpoints = address(image->data);
    c->args.num_checkpoints = count;
    for (int i = 0; i < count; ++i) {
        const int64_t n = c->checkpoints[i][0], end = c->checkpoints[i][1];
        const bool live = n >= 0 && end > 0 && end % 64 == 0 && end <= c->cu[n + 1] - c->cu[n] &&
                          c->checkpoints[i][2] >= 0 && !c->inert[n];
        if (live)
            allow_line(c, pool, c->checkpoints[i][2]);
        else
            c->checkpoints[i][0] = -1; /* for the check: not looked at */
    }
}

static struct contract_image *make_initial(struct maker *m, int lines, const int64_t *in)
{
    struct contract_call *c = m->c;
    const bool output = m->states.pool != SEPARATE;
    const size_t bytes = (size_t)(lines * c->slot_stride) * bytes_of(c->desc.state_type);
    struct contract_image *image = add_image(c, "initial_state", bytes, output);
    struct contract_image *flags =
        m->states.flags_and_inert ? add_image(c, "has_initial_state", (size_t)c->num_seqs, false) : NULL;
    for (int n = 0; n < c->num_seqs; ++n) {
        const bool has = !flags || n % 3 != 1;
        if (flags) flags->data[n] = has;
        if (has && !c->inert[n]) draw_state(m, image, n, in[n]);
    }
    if (flags) c->args.has_initial_state = address(flags->data);
    c->args.initial_state = address(image->data);
    c->args.initial_slot_stride = m->states.padded ? c->slot_stride : 0;
    return image;
}

/* Lines by sequence: read, written; then those of checkpoints. */
static void choose_lines(struct maker *m, int lines, int64_t *in, int64_t *out, int64_t *rest)
{
    struct contract_call *c = m->c;
    int64_t order[128];
    shuffle(&m->rng, order, lines);
    const bool own_order = m->states.slot_in || m->states.slot_out;
    for (int n = 0; n < c->num_seqs; ++n) {
        in[n] = m->states.slot_in ? order[n] : n;
        out[n] = m->states.slot_out ? order[c->num_seqs + n] : in[n];
    }
    for (int i = 0; i < CONTRACT_MAX_CHECKPOINTS; ++i)
        rest[i] = own_order ? order[2 * c->num_seqs + i] : 2 * c->num_seqs + i;
}

static void make_states(struct maker *m)
{
    struct contract_call *c = m->c;
    const int lines = 2 * c->num_seqs + CONTRACT_MAX_CHECKPOINTS + SPARE_LINES;
    int64_t in[CONTRACT_MAX_SEQS], rest[CONTRACT_MAX_CHECKPOINTS];
    const struct states *s = &m->states;
    struct contract_image *initial = NULL, *final = NULL;
    const int64_t stride = s->slot_type == GDN_INDEX_I64 ? 3 : 1;
    c->h0 = must_alloc((int64_t)c->num_seqs * c->heads * c->dim * c->dim, 4);
    c->slot_stride = (int64_t)c->heads * c->dim * c->dim + (s->padded ? 32 : 0);
    c->has_final = s->final;
    for (int n = 0; s->flags_and_inert && n < c->num_seqs; ++n)
        c->inert[n] = n % 4 == 2;
    choose_lines(m, lines, in, c->line_out, rest);
    if (s->initial) initial = make_initial(m, lines, in);
    if (s->final) {
        const size_t bytes = (size_t)(lines * c->slot_stride) * bytes_of(c->desc.state_type);
        final = s->pool == SEPARATE ? add_image(c, "final_state", bytes, true) : initial;
        c->args.final_state = address(final->data);
        c->args.final_slot_stride = s->padded ? c->slot_stride : 0;
    }
    const bool by_in = s->slot_in && !s->slot_out, none[CONTRACT_MAX_SEQS] = { false };
    if (s->slot_in)
        c->args.slot_in = slot_array(m, "slot_in", in, by_in ? c->inert : none, stride),
        c->args.slot_in_stride = stride;
    if (s->slot_out)
        c->args.slot_out = slot_array(m, "slot_out", c->line_out, c->inert, stride), c->args.slot_out_stride = stride;
    for (int n = 0; final && n < c->num_seqs; ++n)
        if (!c->inert[n]) allow_line(c, final, c->line_out[n]);
    if (final && c->desc.flags & GDN_PREFILL_CHECKPOINTS) make_checkpoints(m, final, rest);
}

/* ---- the call -------------------------------------------------------------------------------------------------------- */

static void make_sequences(struct maker *m, bool uniform, gdn_index_type cu_type)
{
    struct contract_call *c = m->c;
    const struct sequences *s = &m->sequences;
    c->uniform = uniform;
    c->num_seqs = uniform ? s->uniform_count : s->count;
    for (int n = 0; n < c->num_seqs; ++n)
        c->cu[n + 1] = c->cu[n] + (uniform ? s->uniform_len : s->lens[n]);
    c->used_tokens = c->cu[c->num_seqs];
    c->tokens = c->used_tokens + (uniform ? 0 : s->padding);
    c->args.num_tokens = c->tokens;
    c->args.num_seqs = c->num_seqs;
    if (uniform) return;
    struct contract_image *image =
        add_image(c, "cu_seqlens", (size_t)(c->num_seqs + 1) * (cu_type == GDN_INDEX_I64 ? 8 : 4), false);
    for (int n = 0; n <= c->num_seqs; ++n) {
        const int64_t wide = c->cu[n];
        if (cu_type == GDN_INDEX_I64)
            memcpy(image->data + n * 8, &wide, 8);
        else
            memcpy(image->data + n * 4, &c->cu[n], 4);
    }
    c->args.cu_seqlens = address(image->data);
}

static void make_desc(struct maker *m, const int level[CONTRACT_FACTORS])
{
    gdn_prefill_desc *d = &m->c->desc;
    *d = (gdn_prefill_desc)GDN_PREFILL_DESC_INIT;
    d->io_type = types[level[0]].type;
    d->head_dim_qk = d->head_dim_v = types[level[0]].dim;
    d->num_q_heads = m->heads.q, d->num_k_heads = m->heads.k, d->num_v_heads = m->heads.v;
    d->head_map = m->heads.map;
    d->cu_seqlens_type = layouts[level[2]].cu_type;
    d->gate = m->gate.kind, d->gate_type = m->gate.type;
    d->beta = m->beta.kind, d->beta_type = m->beta.type;
    d->state_type = m->states.type, d->state_layout = m->states.layout;
    d->slot_type = m->states.slot_type;
    d->flags = features[level[6]].flags | (m->beta.twice ? GDN_PREFILL_BETA_TIMES_2 : 0u);
}

static void make_plain(struct contract_call *c)
{
    gdn_prefill_desc *d = &c->plain_desc;
    gdn_prefill_args *a = &c->plain_args;
    *d = (gdn_prefill_desc)GDN_PREFILL_DESC_INIT;
    d->io_type = c->desc.io_type;
    d->num_q_heads = d->num_k_heads = d->num_v_heads = c->heads;
    d->head_dim_qk = d->head_dim_v = c->dim;
    d->flags = c->desc.flags & GDN_PREFILL_QK_L2NORM;
    *a = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    a->q = address(c->q), a->k = address(c->k), a->v = address(c->v), a->g = address(c->g), a->beta = address(c->beta);
    a->initial_state = address(c->h0), a->cu_seqlens = address(c->cu);
    a->num_tokens = c->tokens, a->num_seqs = c->num_seqs;
    a->scale = c->args.scale, a->has_scale = c->args.has_scale;
}

/* o may be written in rows of sequences that run, and past the last one where that is asked for. */
static void allow_o(struct contract_call *c)
{
    size_t offset = 0;
    const int image = contract_find_image(c, c->args.o, &offset);
    for (int n = 0; n <= c->num_seqs; ++n) {
        const bool padding = n == c->num_seqs;
        const int64_t first = c->cu[n], end = padding ? c->tokens : c->cu[n + 1];
        if (padding ? !(c->desc.flags & GDN_PREFILL_ZERO_PADDING) : c->inert[n]) continue;
        for (int64_t t = first; t < end; ++t)
            for (int64_t h = 0; h < c->heads; ++h) {
                const int64_t row =
                    c->uniform ? n * c->o_strides.batch + (t - first) * c->o_strides.token : t * c->o_strides.token;
                memset(c->images[image].may_write + offset + (row + h * c->o_strides.head) * 2, 1, (size_t)c->dim * 2);
            }
    }
}

void contract_make(struct contract_call *c, const int level[CONTRACT_FACTORS], uint64_t seed)
{
    *c = (struct contract_call){ .num_images = 0 };
    struct maker m = { .c = c,
                       .heads = heads[level[1]],
                       .layout = layouts[level[2]].layout,
                       .gate = gates[level[3]],
                       .beta = betas[level[4]],
                       .states = states[level[5]],
                       .sequences = sequences[level[7]] };
    rng_seed(&m.rng, seed);
    make_desc(&m, level);
    c->args = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    c->dim = types[level[0]].dim;
    c->heads = m.heads.q > m.heads.v ? m.heads.q : m.heads.v;
    make_sequences(&m, layouts[level[2]].uniform, layouts[level[2]].cu_type);
    c->desc.max_tokens = c->tokens > 0 ? c->tokens : 1;
    c->desc.max_seqs = c->num_seqs;
    c->args.has_scale = (int32_t)(seed % 2), c->args.scale = seed % 2 ? 0.7f : 0;
    make_qkv(&m);
    make_gates(&m);
    make_beta(&m);
    make_states(&m);
    make_o(&m);
    allow_o(c);
    make_plain(c);
    snprintf(c->name, sizeof c->name,
             "%s d=%d | heads %d/%d/%d %s | %s | g %s | beta %s | state %s | %s | %s | seed=%llu",
             c->desc.io_type == GDN_BF16 ? "bf16" : "fp16", c->dim, m.heads.q, m.heads.k, m.heads.v,
             m.heads.map == GDN_HEADS_TILED ? "tiled" : "grouped", layouts[level[2]].name, m.gate.name, m.beta.name,
             m.states.name, features[level[6]].name, m.sequences.name, (unsigned long long)seed);
}

void contract_free(struct contract_call *c)
{
    for (int i = 0; i < c->num_images; ++i)
        free(c->images[i].data), free(c->images[i].may_write);
    free(c->q), free(c->k), free(c->v), free(c->g), free(c->beta), free(c->h0);
    *c = (struct contract_call){ .num_images = 0 };
}

#define POINTER(member) offsetof(gdn_prefill_args, member)
const size_t contract_pointers[] = {
    POINTER(q),
    POINTER(k),
    POINTER(v),
    POINTER(g),
    POINTER(beta),
    POINTER(o),
    POINTER(a_log),
    POINTER(dt_bias),
    POINTER(initial_state),
    POINTER(final_state),
    POINTER(slot_in),
    POINTER(slot_out),
    POINTER(has_initial_state),
    POINTER(cu_seqlens),
    POINTER(checkpoints),
    (size_t)-1,
};

int contract_find_image(const struct contract_call *c, gdn_devptr at, size_t *offset)
{
    for (int i = 0; i < c->num_images; ++i) {
        const gdn_devptr first = address(c->images[i].data);
        if (at < first || at - first >= c->images[i].bytes) continue;
        *offset = (size_t)(at - first);
        return i;
    }
    return -1;
}
