/*
 * gdn_cases.c - owns the shapes of GDN prefill cases, their buffers, and their errors against the oracle.
 * Must not know: kernels, devices, bounds.
 *
 * Each tensor has a stream of its own, seeded by the case's seed and the tensor, not by the family: two families that
 * differ in one part differ in that tensor only, and v scaled by 2^k is the same v.
 */
#include "gdn_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "errors.h"
#include "reference/reference.h"

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

/* clang-format off */
const struct gdn_shape gdn_shapes[] = {
    /* name        hq hk hv  seqs lens                                   padding uniform */
    { "one_token", 2, 2, 2, 1, { 1 }, 0, false },
    { "tiny", 2, 2, 2, 8, { 0, 1, 2, 3, 0, 5, 1, 0 }, 0, false },
    { "all_empty", 2, 2, 2, 3, { 0, 0, 0 }, 0, false },
    { "edges", 2, 2, 2, 4, { 63, 64, 65, 128 }, 0, false },
    { "tails", 1, 1, 1, 8, { 31, 61, 91, 121, 150, 93, 100, 47 }, 0, false },
    { "fla", 2, 2, 2, 5, { 15, 85, 200, 300, 400 }, 0, false },
    { "few", 1, 1, 2, 14, { 1, 65, 2, 67, 130, 3, 66, 0, 192, 68, 129, 4, 195, 1 }, 0, false },
    { "ratio2", 2, 2, 4, 4, { 61, 128, 0, 1 }, 0, false },
    { "ratio3", 1, 1, 3, 2, { 100, 47 }, 0, false },
    { "ratio4", 1, 1, 4, 1, { 130 }, 0, false },
    { "q_heads", 4, 1, 2, 2, { 33, 70 }, 0, false },
    { "padded", 2, 2, 2, 3, { 21, 0, 77 }, 15, false },
    { "documents", 2, 2, 2, 24,
      { 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16 }, 0, false },
    { "uniform", 1, 1, 2, 3, { 96, 96, 96 }, 0, true },
    { "long", 1, 1, 1, 1, { 4096 }, 0, false },
};
/* clang-format on */
const int gdn_num_shapes = sizeof gdn_shapes / sizeof gdn_shapes[0];

#define TEN_TOKENS 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 /* of as many sequences */
/* clang-format off */
const struct gdn_shape gdn_cut_shapes[] = {
    /* name          hq hk hv  seqs lens                                         padding uniform */
    { "halves", 1, 1, 2, 2, { 4096, 6144 }, 0, false },
    { "cut_once", 1, 1, 4, 1, { 2048 }, 0, false },
    { "ends_at_cuts", 1, 1, 2, 6, { 256, 1024, 2048, 1023, 1025, 3072 }, 0, false },
    { "four_heads", 1, 1, 4, 2, { 4133, 3000 }, 0, false },
    { "313_chunks", 1, 1, 2, 1, { 20011 }, 0, false },
    { "1_to_300_chunks", 1, 1, 1, 8, { 64, 19200, 1, 1088, 4096, 0, 320, 8230 }, 0, false },
    { "56_pairs", 1, 1, 8, 7, { 3000, 1, 700, 0, 64, 1500, 129 }, 0, false },
    { "prompts_among_decodes", 1, 1, 2, 79,
      { TEN_TOKENS, TEN_TOKENS, TEN_TOKENS, 2, 700, 4000, TEN_TOKENS, 0, TEN_TOKENS, TEN_TOKENS, TEN_TOKENS, 3, 2500, 0, 65,
        1 }, 0, false },
};
/* clang-format on */
const int gdn_num_cut_shapes = sizeof gdn_cut_shapes / sizeof gdn_cut_shapes[0];

const struct gdn_shape *gdn_shape_find(const char *name)
{
    for (int i = 0; i < gdn_num_shapes; ++i)
        if (!strcmp(gdn_shapes[i].name, name)) return &gdn_shapes[i];
    return NULL;
}

bool gdn_cases_qk_l2norm, gdn_cases_told;

/* ---- cases ----------------------------------------------------------------------------------------------------- */

static void *must_alloc(int64_t count, size_t size)
{
    void *p = calloc(count > 0 ? (size_t)count : 1, size);
    if (!p) {
        fprintf(stderr, "gdn_cases: no memory for %lld elements of %zu bytes\n", (long long)count, size);
        exit(2);
    }
    return p;
}

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

static void set_sizes(struct gdn_case *c, gdn_dtype io_type, int head_dim, gdn_state_layout layout)
{
    const struct gdn_shape *s = c->shape;
    c->heads = max_of(s->num_q_heads, max_of(s->num_k_heads, s->num_v_heads));
    c->cu = must_alloc(s->num_seqs + 1, sizeof *c->cu);
    for (int n = 0; n < s->num_seqs; ++n)
        c->cu[n + 1] = c->cu[n] + s->lens[n];
    c->used_tokens = c->cu[s->num_seqs];
    c->tokens = c->used_tokens + s->padding;
    c->o_count = c->tokens * c->heads * head_dim;
    c->state_count = (int64_t)s->num_seqs * c->heads * head_dim * head_dim;
    c->desc = (gdn_prefill_desc)GDN_PREFILL_DESC_INIT;
    c->desc.io_type = io_type;
    c->desc.state_layout = layout;
    c->desc.num_q_heads = s->num_q_heads;
    c->desc.num_k_heads = s->num_k_heads;
    c->desc.num_v_heads = s->num_v_heads;
    c->desc.head_dim_qk = c->desc.head_dim_v = head_dim;
    c->desc.max_tokens = c->tokens > 0 ? c->tokens : 1;
    c->desc.max_seqs = s->num_seqs;
}

/* All ones is a NaN in bf16, fp16 and fp32: what no generator writes, the padding, stays one. */
static void *must_alloc_nan(int64_t count, size_t size)
{
    void *p = must_alloc(count, size);
    memset(p, 0xff, (size_t)count * size);
    return p;
}

static void allocate(struct gdn_case *c)
{
    const gdn_prefill_desc *d = &c->desc;
    c->q = must_alloc_nan(c->tokens * d->num_q_heads * d->head_dim_qk, sizeof *c->q);
    c->k = must_alloc_nan(c->tokens * d->num_k_heads * d->head_dim_qk, sizeof *c->k);
    c->v = must_alloc_nan(c->tokens * d->num_v_heads * d->head_dim_v, sizeof *c->v);
    if (c->family->g.fill) c->g = must_alloc_nan(c->tokens * c->heads, sizeof *c->g);
    if (c->family->beta.fill) c->beta = must_alloc_nan(c->tokens * c->heads, sizeof *c->beta);
    if (c->family->h0 > 0) c->h0 = must_alloc(c->state_count, sizeof *c->h0);
}

enum stream { STREAM_Q, STREAM_K, STREAM_V, STREAM_G, STREAM_BETA, STREAM_H0, STREAM_LENGTHS };

static void fill(struct gdn_case *c, const struct gdn_part *part, enum stream stream)
{
    struct rng rng;
    rng_seed(&rng, c->seed * 16 + stream);
    if (part->fill) part->fill(c, &rng, part->a, part->b);
}

static void spread_lengths(const struct gdn_case *c, struct rng *rng, uint16_t *rows, int heads)
{
    const int type = (int)c->desc.io_type, dim = c->desc.head_dim_qk;
    double row[256];
    int lengths[3] = { 0 }; /* any, long, short */
    for (int64_t r = 0; r < c->used_tokens * heads; ++r) {
        if (r % (64 * heads) == 0) {
            lengths[1] = 3 + (int)rng_below(rng, 6);
            lengths[2] = -5 + (int)rng_below(rng, 2);
        }
        lengths[0] = (int)rng_below(rng, 8) - 2;
        const int turn = (int)(r / heads / 64 % 4), shorter = r % heads % 2 ? 5 : 0;
        gdni_load_row(type, rows, r * dim, dim, row);
        for (int i = 0; i < dim; ++i)
            row[i] = ldexp(row[i], lengths[turn % 2 == 0 ? 0 : turn / 2 + 1] - shorter);
        gdni_store_row(type, rows, r * dim, dim, row);
    }
}

static void ask_for_norms(struct gdn_case *c)
{
    struct rng rng;
    rng_seed(&rng, c->seed * 16 + STREAM_LENGTHS);
    c->desc.flags |= GDN_PREFILL_QK_L2NORM;
    spread_lengths(c, &rng, c->q, c->desc.num_q_heads);
    spread_lengths(c, &rng, c->k, c->desc.num_k_heads);
}

/* Drawn in [DK, DV] order, so that a state means the same in both layouts. */
static void fill_state(struct gdn_case *c)
{
    const int dk = c->desc.head_dim_qk, dv = c->desc.head_dim_v;
    struct rng rng;
    rng_seed(&rng, c->seed * 16 + STREAM_H0);
    for (int64_t m = 0; c->h0 && m < (int64_t)c->shape->num_seqs * c->heads; ++m)
        for (int i = 0; i < dk; ++i)
            for (int j = 0; j < dv; ++j) {
                const int at = c->desc.state_layout == GDN_STATE_KV ? i * dv + j : j * dk + i;
                c->h0[m * dk * dv + at] = (float)(c->family->h0 * rng_normal(&rng));
            }
}

static void set_args(struct gdn_case *c)
{
    c->args = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    c->args.q = address(c->q);
    c->args.k = address(c->k);
    c->args.v = address(c->v);
    c->args.g = address(c->g);
    c->args.beta = address(c->beta);
    c->args.initial_state = address(c->h0);
    c->args.cu_seqlens = c->shape->uniform ? 0 : address(c->cu);
    c->args.num_tokens = c->tokens;
    c->args.num_seqs = c->shape->num_seqs;
    for (int n = 0; gdn_cases_told && n < c->shape->num_seqs; ++n)
        if (c->shape->lens[n] > c->args.max_seq_tokens) c->args.max_seq_tokens = c->shape->lens[n];
    c->args.scale = c->family->has_scale ? (float)c->family->scale : 0;
    c->args.has_scale = c->family->has_scale;
}

void gdn_case_make(struct gdn_case *c, const struct gdn_family *family, const struct gdn_shape *shape,
                   gdn_dtype io_type, int head_dim, gdn_state_layout layout, uint64_t seed)
{
    *c = (struct gdn_case){ .family = family, .shape = shape, .seed = seed };
    snprintf(c->name, sizeof c->name, "%s %s d=%d h=%d/%d/%d %s %s seed=%llu", family->name,
             io_type == GDN_BF16 ? "bf16" : "fp16", head_dim, shape->num_q_heads, shape->num_k_heads,
             shape->num_v_heads, shape->name, layout == GDN_STATE_KV ? "kv" : "vk", (unsigned long long)seed);
    if (!gdn_family_has(family, io_type)) {
        fprintf(stderr, "gdn_cases: %s: the family does not fit the type\n", c->name);
        exit(2);
    }
    set_sizes(c, io_type, head_dim, layout);
    allocate(c);
    fill(c, &family->q, STREAM_Q);
    fill(c, &family->k, STREAM_K);
    fill(c, &family->v, STREAM_V);
    fill(c, &family->g, STREAM_G);
    fill(c, &family->beta, STREAM_BETA);
    fill_state(c);
    if (gdn_cases_qk_l2norm) ask_for_norms(c);
    set_args(c);
}

void gdn_case_free(struct gdn_case *c)
{
    void *const owned[] = { c->q, c->k, c->v, c->g, c->beta, c->h0, c->cu, c->ref_o, c->ref_state };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; ++i)
        free(owned[i]);
    *c = (struct gdn_case){ .family = NULL };
}

gdn_status gdn_case_oracle(struct gdn_case *c)
{
    gdn_prefill_args args = c->args;
    if (!c->ref_o) c->ref_o = must_alloc(c->o_count, sizeof *c->ref_o);
    if (!c->ref_state) c->ref_state = must_alloc(c->state_count, sizeof *c->ref_state);
    args.o = address(c->ref_o);
    args.final_state = address(c->ref_state);
    return gdni_reference_prefill_f64(&c->desc, &args);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* The errors of o in sequence n, head h. */
static struct errors o_errors(const struct gdn_case *c, int32_t type, const void *o, int n, int h)
{
    struct errors e = { 0 };
    const int dv = c->desc.head_dim_v;
    for (int64_t t = c->cu[n]; t < c->cu[n + 1]; ++t)
        for (int64_t at = (t * c->heads + h) * dv, end = at + dv; at < end; ++at)
            errors_add(&e, gdni_load(type, o, at), c->ref_o[at]);
    return e;
}

static struct errors state_errors(const struct gdn_case *c, const float *state, int n, int h)
{
    struct errors e = { 0 };
    const int64_t size = (int64_t)c->desc.head_dim_qk * c->desc.head_dim_v, first = ((int64_t)n * c->heads + h) * size;
    for (int64_t at = first; at < first + size; ++at)
        errors_add(&e, (double)state[at], c->ref_state[at]);
    return e;
}

struct worst {
    double error;
    int seq, head;
};

/* What the two tensors' measures share: the whole, and the worst of parts[seq * heads + head]. */
static struct errors summarise(const struct gdn_case *c, const struct errors *parts, struct worst *worst)
{
    struct errors all = { 0 };
    const int count = c->shape->num_seqs * c->heads;
    for (int i = 0; i < count; ++i)
        errors_merge(&all, &parts[i]);
    *worst = (struct worst){ 0, -1, -1 };
    for (int i = 0; i < count; ++i) {
        const double error = errors_relative_above(&parts[i], 1e-3 * errors_rms(&all));
        if (error > worst->error) *worst = (struct worst){ error, i / c->heads, i % c->heads };
    }
    return all;
}

void gdn_case_errors(struct gdn_errors *out, const struct gdn_case *c, int32_t o_type, const void *o,
                     const float *state)
{
    struct errors *parts = must_alloc((int64_t)c->shape->num_seqs * c->heads, sizeof *parts);
    struct errors all;
    struct worst worst;
    *out = (struct gdn_errors){ .state_seq = -1, .state_head = -1 };
    for (int i = 0; i < c->shape->num_seqs * c->heads; ++i)
        parts[i] = o_errors(c, o_type, o, i / c->heads, i % c->heads);
    all = summarise(c, parts, &worst);
    out->o = errors_relative(&all);
    out->o_max_abs = all.max_abs;
    out->o_worst = worst.error;
    out->o_seq = worst.seq;
    out->o_head = worst.head;
    for (int i = 0; state && i < c->shape->num_seqs * c->heads; ++i)
        parts[i] = state_errors(c, state, i / c->heads, i % c->heads);
    if (state) {
        all = summarise(c, parts, &worst);
        out->state = errors_relative(&all);
        out->state_max_abs = all.max_abs;
        out->state_worst = worst.error;
        out->state_seq = worst.seq;
        out->state_head = worst.head;
    }
    free(parts);
}
