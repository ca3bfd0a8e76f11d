/*
 * conv_cases.c - owns the situations of conv1d-QKV, their buffers, and the check of outputs.
 * Must not know: devices, kernels, src/reference (whose tests use this check).
 */
#include "conv_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "rng.h"

/* clang-format off */
#define HEADS_2_2_4 2, 2, 4, 32, 32
#define USUAL CONV_SLOTS_REVERSED, CONV_INITIAL_MIXED, CONV_NORMAL
#define ALIGNED 0, 0, 16, 0, false

const struct conv_spec conv_specs[] = {
    { "plain", HEADS_2_2_4, CONV_SLOTS_NULL, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 2, { 70, 61 } },
    { "short", HEADS_2_2_4, USUAL, ALIGNED, 12, { 0, 1, 2, 3, 4, 0, 4, 3, 2, 1, 1, 0 } },
    { "short_all_read", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 8,
      { 1, 1, 2, 2, 3, 3, 4, 4 } },
    { "one_token", HEADS_2_2_4, USUAL, ALIGNED, 1, { 1 } },
    { "only_empty", HEADS_2_2_4, USUAL, ALIGNED, 3, { 0, 0, 0 } },
    { "empty_between", HEADS_2_2_4, USUAL, ALIGNED, 6, { 0, 5, 0, 0, 9, 0 } },
    { "halo", HEADS_2_2_4, USUAL, ALIGNED, 7, { 2, 63, 1, 64, 65, 1, 3 } },
    { "tile_edges", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 14,
      { 13, 1, 1, 1, 1, 1, 12, 2, 30, 1, 2, 61, 3, 125 } },
    { "pads", HEADS_2_2_4, CONV_SLOTS_WITH_PADS, CONV_INITIAL_MIXED, CONV_NORMAL, ALIGNED, 8,
      { 5, 6, 70, 0, 2, 9, 3, 40 } },
    { "all_pads", HEADS_2_2_4, CONV_SLOTS_ALL_PADS, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 2, { 5, 66 } },
    { "no_state", HEADS_2_2_4, CONV_SLOTS_NULL, CONV_INITIAL_NO_STATE, CONV_NORMAL, ALIGNED, 4, { 5, 66, 1, 2 } },
    { "no_state_pads", HEADS_2_2_4, CONV_SLOTS_WITH_PADS, CONV_INITIAL_NO_STATE, CONV_NORMAL, ALIGNED, 4,
      { 5, 6, 1, 2 } },
    { "padding_rows", HEADS_2_2_4, USUAL, 0, 0, 16, 37, false, 3, { 21, 2, 50 } },
    { "uniform", HEADS_2_2_4, USUAL, 0, 0, 16, 0, true, 3, { 35, 35, 35 } },
    { "pitch_16", HEADS_2_2_4, USUAL, 264, 8, 16, 5, false, 3, { 33, 2, 20 } },
    { "pitch_8", HEADS_2_2_4, USUAL, 4, 4, 8, 5, false, 3, { 33, 2, 20 } },
    { "pitch_4", HEADS_2_2_4, USUAL, 2, 2, 4, 5, false, 3, { 33, 2, 20 } },
    { "pitch_2", HEADS_2_2_4, USUAL, 1, 3, 2, 5, false, 3, { 33, 2, 20 } },
    { "pitch_2_aligned_base", HEADS_2_2_4, USUAL, 7, 0, 2, 5, false, 3, { 33, 2, 20 } },
    { "only_v", 0, 0, 1, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "only_q", 1, 0, 0, 16, 16, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "no_k", 3, 0, 1, 48, 80, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "odd_heads", 4, 3, 5, 32, 48, USUAL, ALIGNED, 5, { 3, 1, 4, 2, 3 } },
    { "dim_256", 1, 1, 3, 256, 240, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "one_head_each", 1, 1, 1, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 130 } },
    { "ratio_3", 1, 1, 3, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "layer", 16, 16, 32, 128, 128, USUAL, 4096, 0, 16, 0, false, 4, { 9, 1, 20, 2 } },
    { "skewed", 1, 1, 2, 32, 32, USUAL, ALIGNED, 20,
      { 1500, 3, 16, 1, 4, 64, 2, 16, 5, 16, 1, 7, 16, 3, 16, 2, 16, 9, 16, 1 } },
    { "many", 1, 1, 1, 16, 16, CONV_SLOTS_WITH_PADS, CONV_INITIAL_MIXED, CONV_NORMAL, ALIGNED, 1100,
      { 1, 0, 2, 3, 1, 5, 1, 0, 4, 1, 2, 1, 0, 7, 1, 1, 3, 2, 1, 0, 1, 1, 2, 6 } },
    { "extreme", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_EXTREME, ALIGNED, 3, { 70, 3, 61 } },
};
/* clang-format on */
const int conv_num_specs = sizeof conv_specs / sizeof conv_specs[0];

/* ---- buffers --------------------------------------------------------------------------------------------------- */

/* 16-byte aligned, every byte `fill`. */
static void *must_alloc(int64_t count, size_t size, int fill)
{
    const size_t bytes = ((size_t)count * size + 16) / 16 * 16;
    void *p = aligned_alloc(16, bytes);
    if (!p) {
        fprintf(stderr, "conv_cases: no memory for %lld elements of %zu bytes\n", (long long)count, size);
        exit(2);
    }
    return memset(p, fill, bytes);
}

static int32_t len_of(const struct conv_spec *s, int n)
{
    return s->lens[n % CONV_SPEC_MAX_SEQS];
}

static void set_lengths(struct conv_case *c)
{
    const struct conv_spec *s = c->spec;
    c->cu = must_alloc(s->num_seqs + 1, sizeof *c->cu, 0);
    for (int n = 0; n < s->num_seqs; ++n)
        c->cu[n + 1] = c->cu[n] + len_of(s, n);
    c->used_tokens = c->cu[s->num_seqs];
    c->tokens = c->used_tokens + s->padding;
    c->num_lines = s->num_seqs + 3; /* three that no sequence has */
}

static void set_desc(struct conv_case *c, gdn_dtype io_type, int width, gdn_conv_state_layout layout, uint32_t flags)
{
    const struct conv_spec *s = c->spec;
    c->desc = (gdn_conv1d_desc)GDN_CONV1D_DESC_INIT;
    c->desc.io_type = io_type;
    c->desc.state_layout = layout;
    c->desc.num_q_heads = s->num_q_heads;
    c->desc.num_k_heads = s->num_k_heads;
    c->desc.num_v_heads = s->num_v_heads;
    c->desc.head_dim_qk = s->head_dim_qk;
    c->desc.head_dim_v = s->head_dim_v;
    c->desc.width = width;
    c->desc.flags = flags;
    c->desc.x_alignment = s->x_alignment;
    c->desc.max_tokens = c->tokens > 0 ? c->tokens : 1;
    c->desc.max_seqs = s->num_seqs;
}

static void set_counts(struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    const int64_t q = d->num_q_heads * d->head_dim_qk, k = d->num_k_heads * d->head_dim_qk,
                  v = d->num_v_heads * d->head_dim_v;
    c->channels = q + k + v;
    c->q_count = c->tokens * q;
    c->k_count = c->tokens * k;
    c->v_count = c->tokens * v;
    c->state_count = c->spec->initial == CONV_INITIAL_NO_STATE ? 0 : c->num_lines * c->channels * (d->width - 1);
    c->x_count = c->spec->x_offset + c->tokens * (c->channels + c->spec->extra_columns);
}

/* Line of sequence n, or -1. The unused lines lie between and after the used ones. */
static int32_t choose_slot(const struct conv_case *c, int n)
{
    if (c->spec->slots == CONV_SLOTS_ALL_PADS) return -1;
    if (c->spec->slots == CONV_SLOTS_WITH_PADS && n % 3 == 1) return -1;
    return c->spec->num_seqs - n; /* line 0 and the last two are nobody's */
}

static int32_t slot_of(const struct conv_case *c, int n)
{
    return c->slots ? c->slots[n] : n;
}

static bool reads_state(const struct conv_case *c, int n)
{
    return c->state && (!c->has_initial || c->has_initial[n]);
}

static int64_t state_index(const struct conv_case *c, int64_t line, int64_t channel, int column)
{
    const int history = c->desc.width - 1;
    if (c->desc.state_layout == GDN_CONV_STATE_CW) return (line * c->channels + channel) * history + column;
    return (line * history + column) * c->channels + channel;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static const double extremes[] = { 0,   -0.0, 1e4, -1e4,  20,   -20,   80,   -80,   -87, -88,      -89,       -95,
                                   100, -100, 1,   0.125, 1e-6, -1e-6, 6e-8, 65504, 3e4, INFINITY, -INFINITY, 9.75 };

static double draw(const struct conv_case *c, struct rng *rng)
{
    if (c->spec->values == CONV_NORMAL) return rng_normal(rng);
    return extremes[rng_below(rng, sizeof extremes / sizeof extremes[0])];
}

static void fill_x(struct conv_case *c, struct rng *rng)
{
    for (int n = 0; n < c->spec->num_seqs; ++n)
        for (int64_t t = c->cu[n]; slot_of(c, n) >= 0 && t < c->cu[n + 1]; ++t)
            for (int64_t channel = 0; channel < c->channels; ++channel)
                gdni_store((int32_t)c->desc.io_type, c->x, t * c->args.x_stride + channel, draw(c, rng));
}

/* Extreme inputs meet a last tap of 1 and no others, so that the sum is the input. */
static void fill_weights(struct conv_case *c, struct rng *rng)
{
    const int width = c->desc.width;
    const bool one_tap = c->spec->values == CONV_EXTREME;
    for (int64_t i = 0; i < c->channels * width; ++i) {
        const double tap = one_tap ? (i % width == width - 1 ? 1 : 0) : 0.5 * rng_normal(rng);
        gdni_store((int32_t)c->desc.io_type, c->weight, i, tap);
    }
    for (int64_t i = 0; c->bias && i < c->channels; ++i)
        gdni_store((int32_t)c->desc.io_type, c->bias, i, one_tap ? 0 : 0.25 * rng_normal(rng));
}

/* Random bits everywhere, then finite numbers in what is read and NaN in what has_initial_state = 0 hides. */
static void fill_state(struct conv_case *c, struct rng *rng)
{
    for (int64_t i = 0; i < c->state_count; ++i)
        c->state[i] = (uint16_t)rng_u64(rng);
    for (int n = 0; c->state && n < c->spec->num_seqs; ++n)
        for (int64_t channel = 0; slot_of(c, n) >= 0 && channel < c->channels; ++channel)
            for (int j = 0; j < c->desc.width - 1; ++j) {
                const int64_t at = state_index(c, slot_of(c, n), channel, j);
                gdni_store((int32_t)c->desc.io_type, c->state, at, reads_state(c, n) ? rng_normal(rng) : (double)NAN);
            }
}

static void allocate(struct conv_case *c)
{
    const struct conv_spec *s = c->spec;
    c->x_storage = must_alloc(c->x_count, sizeof *c->x, 0xff);
    c->x = c->x_storage + s->x_offset;
    c->weight = must_alloc(c->channels * c->desc.width, sizeof *c->weight, 0);
    if (c->desc.flags & GDN_CONV_BIAS) c->bias = must_alloc(c->channels, sizeof *c->bias, 0);
    if (c->state_count) c->state = must_alloc(c->state_count, sizeof *c->state, 0);
    if (s->slots != CONV_SLOTS_NULL) c->slots = must_alloc(s->num_seqs, sizeof *c->slots, 0);
    if (s->initial == CONV_INITIAL_MIXED) c->has_initial = must_alloc(s->num_seqs, sizeof *c->has_initial, 0);
    for (int n = 0; n < s->num_seqs; ++n) {
        if (c->slots) c->slots[n] = choose_slot(c, n);
        if (c->has_initial) c->has_initial[n] = n % 2 == 0;
    }
}

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

static void set_args(struct conv_case *c)
{
    c->args = (gdn_conv1d_args)GDN_CONV1D_ARGS_INIT;
    c->args.x = address(c->x);
    c->args.weight = address(c->weight);
    c->args.bias = address(c->bias);
    c->args.slots = address(c->slots);
    c->args.has_initial_state = address(c->has_initial);
    c->args.cu_seqlens = c->spec->uniform ? 0 : address(c->cu);
    c->args.num_tokens = c->tokens;
    c->args.num_seqs = c->spec->num_seqs;
    c->args.x_stride = c->channels + c->spec->extra_columns;
}

void conv_case_make(struct conv_case *c, const struct conv_spec *spec, gdn_dtype io_type, int width,
                    gdn_conv_state_layout layout, uint32_t flags, uint64_t seed)
{
    struct rng rng;
    *c = (struct conv_case){ .spec = spec, .seed = seed };
    snprintf(c->name, sizeof c->name, "%s %s w=%d %s%s%s seed=%llu", spec->name, io_type == GDN_BF16 ? "bf16" : "fp16",
             width, layout == GDN_CONV_STATE_CW ? "cw" : "wc", flags & GDN_CONV_SILU ? " silu" : "",
             flags & GDN_CONV_BIAS ? " bias" : "", (unsigned long long)seed);
    set_lengths(c);
    set_desc(c, io_type, width, layout, flags);
    set_counts(c);
    allocate(c);
    set_args(c);
    rng_seed(&rng, seed);
    fill_weights(c, &rng);
    fill_x(c, &rng);
    fill_state(c, &rng);
}

void conv_case_free(struct conv_case *c)
{
    void *const owned[] = { c->x_storage, c->weight, c->bias, c->state, c->slots, c->cu, c->has_initial };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; ++i)
        free(owned[i]);
    *c = (struct conv_case){ .spec = NULL };
}

void conv_outputs_make(struct conv_outputs *out, const struct conv_case *c)
{
    out->q = must_alloc(c->q_count, sizeof *out->q, 0xff);
    out->k = must_alloc(c->k_count, sizeof *out->k, 0xff);
    out->v = must_alloc(c->v_count, sizeof *out->v, 0xff);
    out->state = c->state ? must_alloc(c->state_count, sizeof *out->state, 0) : NULL;
    if (out->state) memcpy(out->state, c->state, (size_t)c->state_count * sizeof *out->state);
}

void conv_outputs_free(struct conv_outputs *out)
{
    free(out->q);
    free(out->k);
    free(out->v);
    free(out->state);
    *out = (struct conv_outputs){ NULL, NULL, NULL, NULL };
}

/* ---- check ----------------------------------------------------------------------------------------------------- */

/* One sequence's channel, and the output it goes to. */
struct lane {
    int n;
    int64_t channel, begin, len;
    const uint16_t *y; /* of the sequence's first token */
    int64_t y_stride;
};

static double scalar(const struct conv_case *c, uint16_t bits)
{
    return gdni_load((int32_t)c->desc.io_type, &bits, 0);
}

/* The raw input at position p of the sequence; before its start, from the old state or zero. */
static uint16_t input_at(const struct conv_case *c, const struct lane *lane, int64_t p)
{
    const int history = c->desc.width - 1;
    if (p >= 0) return c->x[(lane->begin + p) * c->args.x_stride + lane->channel];
    if (!reads_state(c, lane->n)) return 0;
    return c->state[state_index(c, slot_of(c, lane->n), lane->channel, (int)p + history)];
}

double conv_tolerance(double a, double y, double magnitude, int width, bool silu)
{
    const double u = 0x1p-24, sum = (width + 1) * u * magnitude;
    if (!silu) return sum;
    const double complement = 1 / (1 + exp(a)); /* 1 - sigmoid(a) */
    return 1.1 * sum + fabs(y) * u * (complement * (2 * fabs(a) + 4) + 10) + 0x1p-119;
}

struct truth {
    double y, tolerance;
};

static struct truth truth_at(const struct conv_case *c, const struct lane *lane, int64_t t)
{
    const int width = c->desc.width;
    const bool silu = c->desc.flags & GDN_CONV_SILU;
    double a = c->bias ? scalar(c, c->bias[lane->channel]) : 0, magnitude = fabs(a);
    for (int tap = 0; tap < width; ++tap) { /* newest last */
        const double product =
            scalar(c, c->weight[lane->channel * width + tap]) * scalar(c, input_at(c, lane, t - (width - 1) + tap));
        a += product;
        magnitude += fabs(product);
    }
    if (silu && a == -(double)INFINITY) return (struct truth){ -0.0, 0 }; /* the limit */
    const double y = silu ? a / (1 + exp(-a)) : a;
    return (struct truth){ y, isfinite(y) ? conv_tolerance(a, y, magnitude, width, silu) : 0 };
}

static double rounded(const struct conv_case *c, double x)
{
    uint16_t bits;
    gdni_store((int32_t)c->desc.io_type, &bits, 0, x);
    return scalar(c, bits);
}

/* |y - truth| over the larger distance that is allowed; above 1 means wrong. */
static double excess(const struct conv_case *c, const struct truth *truth, double y)
{
    if (isnan(truth->y)) return isnan(y) ? 0 : INFINITY;
    const double low = rounded(c, truth->y - truth->tolerance), high = rounded(c, truth->y + truth->tolerance);
    if (y == low || y == high) return 0;
    if (!(y >= low && y <= high)) return INFINITY;
    return fabs(y - truth->y) / fmax(high - truth->y, truth->y - low);
}

static void note(struct conv_report *report, int64_t *counter, const char *what, const struct lane *lane, int64_t at,
                 double got, double want)
{
    ++*counter;
    if (report->first[0]) return;
    snprintf(report->first, sizeof report->first,
             "%s: sequence %d (%lld tokens), channel %lld, index %lld: %.9g, want %.9g", what, lane->n,
             (long long)lane->len, (long long)lane->channel, (long long)at, got, want);
}

static void check_outputs(struct conv_report *report, const struct conv_case *c, const struct lane *lane)
{
    const bool padded = slot_of(c, lane->n) < 0;
    for (int64_t t = 0; t < lane->len; ++t) {
        const uint16_t bits = lane->y[t * lane->y_stride];
        if (padded && bits == CONV_POISON) continue;
        if (padded) {
            note(report, &report->touched, "output of a padding slot", lane, t, scalar(c, bits), (double)NAN);
            continue;
        }
        const struct truth truth = truth_at(c, lane, t);
        const double ratio = excess(c, &truth, scalar(c, bits));
        if (ratio > report->worst) report->worst = ratio;
        if (ratio > 1) note(report, &report->wrong_outputs, "output", lane, t, scalar(c, bits), truth.y);
    }
}

static void check_line(struct conv_report *report, const struct conv_case *c, const struct lane *lane,
                       const uint16_t *state)
{
    const int history = c->desc.width - 1, slot = slot_of(c, lane->n);
    if (!state || slot < 0 || lane->len == 0) return;
    for (int j = 0; j < history; ++j) {
        const uint16_t want = input_at(c, lane, lane->len - history + j),
                       got = state[state_index(c, slot, lane->channel, j)];
        if (got != want) note(report, &report->wrong_state, "state", lane, j, scalar(c, got), scalar(c, want));
    }
}

static void check_sequence(struct conv_report *report, const struct conv_case *c, const struct conv_outputs *out, int n)
{
    const gdn_conv1d_desc *d = &c->desc;
    const uint16_t *const bases[] = { out->q, out->k, out->v };
    const int64_t widths[] = { d->num_q_heads * d->head_dim_qk, d->num_k_heads * d->head_dim_qk,
                               d->num_v_heads * d->head_dim_v };
    struct lane lane = { .n = n, .begin = c->cu[n], .len = c->cu[n + 1] - c->cu[n] };
    for (int part = 0; part < 3; ++part)
        for (int64_t i = 0; i < widths[part]; ++i, ++lane.channel) {
            lane.y = bases[part] + lane.begin * widths[part] + i;
            lane.y_stride = widths[part];
            check_outputs(report, c, &lane);
            check_line(report, c, &lane, out->state);
        }
}

/* Rows past the last sequence of q, k, v. */
static void check_rows_outside(struct conv_report *report, const struct conv_case *c, const uint16_t *y, int64_t count)
{
    const struct lane nobody = { .n = -1 };
    for (int64_t i = c->tokens ? count / c->tokens * c->used_tokens : 0; i < count; ++i)
        if (y[i] != CONV_POISON)
            note(report, &report->touched, "output outside sequences", &nobody, i, scalar(c, y[i]), (double)NAN);
}

static bool line_is_written(const struct conv_case *c, int64_t line)
{
    for (int n = 0; n < c->spec->num_seqs; ++n)
        if (slot_of(c, n) == line) return c->cu[n + 1] > c->cu[n];
    return false;
}

static void check_lines_outside(struct conv_report *report, const struct conv_case *c, const uint16_t *state)
{
    for (int64_t line = 0; state && line < c->num_lines; ++line) {
        if (line_is_written(c, line)) continue;
        for (int64_t channel = 0; channel < c->channels; ++channel)
            for (int j = 0; j < c->desc.width - 1; ++j) {
                const int64_t at = state_index(c, line, channel, j);
                const struct lane nobody = { .n = -1, .channel = channel };
                if (state[at] != c->state[at])
                    note(report, &report->touched, "state line of nobody", &nobody, line, scalar(c, state[at]),
                         scalar(c, c->state[at]));
            }
    }
}

bool conv_case_check(struct conv_report *report, const struct conv_case *c, const struct conv_outputs *out)
{
    *report = (struct conv_report){ .worst = 0 };
    for (int n = 0; n < c->spec->num_seqs; ++n)
        check_sequence(report, c, out, n);
    check_rows_outside(report, c, out->q, c->q_count);
    check_rows_outside(report, c, out->k, c->k_count);
    check_rows_outside(report, c, out->v, c->v_count);
    check_lines_outside(report, c, out->state);
    return report->wrong_outputs + report->wrong_state + report->touched == 0;
}
