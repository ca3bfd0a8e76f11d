/*
 * conv_cases.c - owns the situations of conv1d-QKV and their buffers. Must not know: devices, kernels, what is computed
 * (conv_check.c).
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
#define ALIGNED 0, 0, 16, 0, false, CONV_OUT_PACKED, false

const struct conv_spec conv_specs[] = {
    { "plain", HEADS_2_2_4, CONV_SLOTS_NULL, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 2, { 70, 61 } },
    { "short", HEADS_2_2_4, USUAL, ALIGNED, 12, { 0, 1, 2, 3, 4, 0, 4, 3, 2, 1, 1, 0 } },
    { "short_all_read", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 8,
      { 1, 1, 2, 2, 3, 3, 4, 4 } },
    { "one_token", HEADS_2_2_4, USUAL, ALIGNED, 1, { 1 } },
    { "only_empty", HEADS_2_2_4, USUAL, ALIGNED, 3, { 0, 0, 0 } },
    { "only_empty_moved", HEADS_2_2_4, CONV_SLOTS_MOVED, CONV_INITIAL_MIXED, CONV_NORMAL, ALIGNED, 7, { 0 } },
    { "empty_between", HEADS_2_2_4, USUAL, ALIGNED, 6, { 0, 5, 0, 0, 9, 0 } },
    { "empty_then_padding", HEADS_2_2_4, USUAL, 0, 0, 16, 19, false, CONV_OUT_PACKED, false, 4, { 5, 0, 9, 0 } },
    { "halo", HEADS_2_2_4, USUAL, ALIGNED, 7, { 2, 63, 1, 64, 65, 1, 3 } },
    { "tile_edges", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 14,
      { 13, 1, 1, 1, 1, 1, 12, 2, 30, 1, 2, 61, 3, 125 } },
    { "tile_edges_of_8", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 14,
      { 5, 6, 8, 7, 5, 2, 7, 1, 6, 1, 1, 7, 3, 9 } },
    { "pads", HEADS_2_2_4, CONV_SLOTS_WITH_PADS, CONV_INITIAL_MIXED, CONV_NORMAL, ALIGNED, 8,
      { 5, 6, 70, 0, 2, 9, 3, 40 } },
    { "all_pads", HEADS_2_2_4, CONV_SLOTS_ALL_PADS, CONV_INITIAL_NULL, CONV_NORMAL, ALIGNED, 2, { 5, 66 } },
    { "moved", HEADS_2_2_4, CONV_SLOTS_MOVED, CONV_INITIAL_MIXED, CONV_NORMAL, 0, 0, 16, 3, false, CONV_OUT_PACKED, true, 12,
      { 5, 1, 20, 0, 2, 9, 0, 3, 40, 0, 1, 0 } },
    { "no_state", HEADS_2_2_4, CONV_SLOTS_NULL, CONV_INITIAL_NO_STATE, CONV_NORMAL, ALIGNED, 4, { 5, 66, 1, 2 } },
    { "no_state_pads", HEADS_2_2_4, CONV_SLOTS_WITH_PADS, CONV_INITIAL_NO_STATE, CONV_NORMAL, ALIGNED, 4,
      { 5, 6, 1, 2 } },
    { "padding_rows", HEADS_2_2_4, USUAL, 0, 0, 16, 37, false, CONV_OUT_PACKED, false, 3, { 21, 2, 50 } },
    { "only_padding_rows", HEADS_2_2_4, USUAL, 0, 0, 16, 21, false, CONV_OUT_PACKED, false, 2, { 0, 0 } },
    { "uniform", HEADS_2_2_4, USUAL, 0, 0, 16, 0, true, CONV_OUT_PACKED, false, 3, { 35, 35, 35 } },
    { "head_major", HEADS_2_2_4, USUAL, 0, 0, 16, 6, false, CONV_OUT_HEAD_MAJOR, true, 3, { 21, 2, 50 } },
    { "gaps", HEADS_2_2_4, USUAL, 0, 0, 16, 6, false, CONV_OUT_GAPS, true, 3, { 21, 2, 50 } },
    { "batch", HEADS_2_2_4, USUAL, 0, 0, 16, 0, true, CONV_OUT_BATCH, true, 4, { 11, 11, 11, 11 } },
    { "pitch_16", HEADS_2_2_4, USUAL, 264, 8, 16, 5, false, CONV_OUT_PACKED, true, 3, { 33, 2, 20 } },
    { "pitch_8", HEADS_2_2_4, USUAL, 4, 4, 8, 5, false, CONV_OUT_PACKED, false, 3, { 33, 2, 20 } },
    { "pitch_4", HEADS_2_2_4, USUAL, 2, 2, 4, 5, false, CONV_OUT_PACKED, false, 3, { 33, 2, 20 } },
    { "pitch_2", HEADS_2_2_4, USUAL, 1, 3, 2, 5, false, CONV_OUT_PACKED, false, 3, { 33, 2, 20 } },
    { "pitch_2_aligned_base", HEADS_2_2_4, USUAL, 7, 0, 2, 5, false, CONV_OUT_PACKED, false, 3, { 33, 2, 20 } },
    { "only_v", 0, 0, 1, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "only_q", 1, 0, 0, 16, 16, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "no_k", 3, 0, 1, 48, 80, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "odd_heads", 4, 3, 5, 32, 48, USUAL, ALIGNED, 5, { 3, 1, 4, 2, 3 } },
    { "dim_64", 1, 1, 3, 64, 64, USUAL, ALIGNED, 3, { 17, 3, 20 } },
    { "dim_256", 1, 1, 3, 256, 240, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "one_head_each", 1, 1, 1, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 130 } },
    { "ratio_2", 1, 1, 2, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "ratio_3", 1, 1, 3, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 40 } },
    { "three_heads", 3, 3, 3, 128, 128, USUAL, ALIGNED, 3, { 17, 3, 20 } },
    { "layer", 16, 16, 32, 128, 128, USUAL, 4096, 0, 16, 0, false, CONV_OUT_PACKED, false, 4, { 9, 1, 20, 2 } },
    { "skewed", 1, 1, 2, 32, 32, USUAL, ALIGNED, 20,
      { 1500, 3, 16, 1, 4, 64, 2, 16, 5, 16, 1, 7, 16, 3, 16, 2, 16, 9, 16, 1 } },
    { "many", 1, 1, 1, 16, 16, CONV_SLOTS_WITH_PADS, CONV_INITIAL_MIXED, CONV_NORMAL, ALIGNED, 1100,
      { 1, 0, 2, 3, 1, 5, 1, 0, 4, 1, 2, 1, 0, 7, 1, 1, 3, 2, 1, 0, 1, 1, 2, 6 } },
    { "graph_padding", 1, 1, 1, 16, 16, CONV_SLOTS_MOVED, CONV_INITIAL_MIXED, CONV_NORMAL, 0, 0, 16, 40, false,
      CONV_OUT_PACKED, false, 900, { 9, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
    { "extreme", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_NULL, CONV_EXTREME, ALIGNED, 3, { 70, 3, 61 } },
    { "large", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_MIXED, CONV_LARGE, ALIGNED, 7, { 70, 3, 1, 2, 0, 9, 61 } },
    { "zeros", HEADS_2_2_4, CONV_SLOTS_REVERSED, CONV_INITIAL_MIXED, CONV_ZEROS, ALIGNED, 3, { 7, 3, 9 } },
};
/* clang-format on */
const int conv_num_specs = sizeof conv_specs / sizeof conv_specs[0];

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static size_t element_bytes(int32_t type)
{
    return type == 0 ? 1 : type == GDN_F32 ? 4 : 2;
}

size_t conv_buffer_bytes(const struct conv_buffer *b)
{
    return b->data ? (size_t)b->count * element_bytes(b->type) : 0;
}

/* 16-byte aligned, every byte `fill`. */
static struct conv_buffer make_buffer(int32_t type, int64_t count, int fill)
{
    struct conv_buffer b = { .type = type, .count = count };
    const size_t bytes = ((size_t)count * element_bytes(type) + 16) / 16 * 16;
    b.data = aligned_alloc(16, bytes);
    if (!b.data) {
        fprintf(stderr, "conv_cases: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    memset(b.data, fill, bytes);
    return b;
}

/* An array of indices, `stride` apart; what lies between is a line that nobody has. */
static struct conv_buffer make_indices(gdn_index_type type, int64_t count, int64_t stride)
{
    return make_buffer(0, count * stride * (type == GDN_INDEX_I64 ? 8 : 4), 0x7f);
}

static void set_index(struct conv_buffer *b, gdn_index_type type, int64_t i, int64_t value)
{
    const int32_t narrow = (int32_t)value;
    if (type == GDN_INDEX_I64)
        memcpy((char *)b->data + i * 8, &value, 8);
    else
        memcpy((char *)b->data + i * 4, &narrow, 4);
}

/* ---- shape ----------------------------------------------------------------------------------------------------- */

static int32_t len_of(const struct conv_spec *s, int n)
{
    if (s->num_seqs > 100 && n >= 100 && s->slots == CONV_SLOTS_MOVED) return 0; /* a captured batch, mostly padding */
    return s->lens[n % CONV_SPEC_MAX_SEQS];
}

static void set_lengths(struct conv_case *c)
{
    const struct conv_spec *s = c->spec;
    c->begins = calloc((size_t)s->num_seqs + 1, sizeof *c->begins);
    if (!c->begins) exit(2);
    for (int n = 0; n < s->num_seqs; ++n)
        c->begins[n + 1] = c->begins[n] + len_of(s, n);
    c->used_tokens = c->begins[s->num_seqs];
    c->tokens = c->used_tokens + s->padding;
    c->cu = make_indices(c->variant->cu_type, s->num_seqs + 1, 1);
    for (int n = 0; n <= s->num_seqs; ++n)
        set_index(&c->cu, c->variant->cu_type, n, c->begins[n]);
}

static bool power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static bool expressible(const struct conv_spec *s, const struct conv_variant *v)
{
    const int bytes = v->io_type == GDN_F32 ? 4 : 2;
    if (v->flags & GDN_CONV_L2_NORM && (!power_of_two(s->head_dim_qk) || s->num_q_heads + s->num_k_heads == 0))
        return false;
    if (v->x_layout == GDN_CONV_X_INTERLEAVED &&
        (s->num_k_heads == 0 || s->num_q_heads != s->num_k_heads || s->num_v_heads % s->num_k_heads))
        return false;
    return v->vector_bytes <= s->x_alignment * bytes / 2 || v->vector_bytes <= bytes;
}

static void set_desc(struct conv_case *c)
{
    const struct conv_spec *s = c->spec;
    const struct conv_variant *v = c->variant;
    gdn_conv1d_desc *d = &c->desc;
    *d = (gdn_conv1d_desc)GDN_CONV1D_DESC_INIT;
    d->io_type = v->io_type;
    d->state_type = v->state_type;
    d->state_layout = v->state_layout;
    d->x_layout = v->x_layout;
    d->num_q_heads = s->num_q_heads;
    d->num_k_heads = s->num_k_heads;
    d->num_v_heads = s->num_v_heads;
    d->head_dim_qk = s->head_dim_qk;
    d->head_dim_v = s->head_dim_v;
    d->num_gate_heads = !v->gate_type ? 0 : s->num_v_heads ? s->num_v_heads : 3;
    d->gate_type = v->gate_type;
    d->a_log_type = v->a_log_type;
    d->dt_bias_type = v->dt_bias_type;
    d->width = v->width;
    d->flags = v->flags;
    d->x_alignment = v->vector_bytes;
    d->cu_seqlens_type = v->cu_type;
    d->slot_type = v->slot_type;
    d->max_tokens = c->tokens > 0 ? c->tokens : 1;
    d->max_seqs = s->num_seqs;
}

static gdn_strides out_strides(const struct conv_case *c, int64_t heads, int64_t dim)
{
    const int64_t len = c->spec->lens[0];
    switch (c->spec->out) {
    case CONV_OUT_HEAD_MAJOR:
        return (gdn_strides){ 0, dim, c->tokens * dim };
    case CONV_OUT_GAPS:
        return (gdn_strides){ 0, heads * (dim + 8) + 16, dim + 8 };
    case CONV_OUT_BATCH:
        return (gdn_strides){ heads * len * dim, dim, len * dim };
    default:
        return (gdn_strides){ 0, 0, 0 };
    }
}

static int64_t out_count(const struct conv_case *c, int64_t heads, int64_t dim)
{
    return c->spec->out == CONV_OUT_GAPS ? c->tokens * (heads * (dim + 8) + 16) : c->tokens * heads * dim;
}

static void set_counts(struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    c->channels = (d->num_q_heads + d->num_k_heads) * d->head_dim_qk + d->num_v_heads * d->head_dim_v;
    c->q_count = out_count(c, d->num_q_heads, d->head_dim_qk);
    c->k_count = out_count(c, d->num_k_heads, d->head_dim_qk);
    c->v_count = out_count(c, d->num_v_heads, d->head_dim_v);
    c->line_size = c->channels * (d->width - 1);
    if (d->state_layout == GDN_CONV_STATE_CW_STRIDED) c->line_size = c->channels * (d->width + 1);
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

/* Line 0 and the last two are nobody's; moved: [1, N] are read, [N + 1, 2 N] written; checkpoints follow. */
struct conv_lines conv_case_lines(const struct conv_case *c, int n)
{
    const int count = c->spec->num_seqs;
    switch (c->spec->slots) {
    case CONV_SLOTS_NULL:
        return (struct conv_lines){ n, n };
    case CONV_SLOTS_ALL_PADS:
        return (struct conv_lines){ -1, -1 };
    case CONV_SLOTS_MOVED:
        if (n % 5 == 3) return n % 2 ? (struct conv_lines){ -1, count + 1 + n } : (struct conv_lines){ 1 + n / 2, -1 };
        return (struct conv_lines){ 1 + n / 2, count + 1 + n };
    default:
        if (c->spec->slots == CONV_SLOTS_WITH_PADS && n % 3 == 1) return (struct conv_lines){ -1, -1 };
        return (struct conv_lines){ count - n, count - n };
    }
}

static bool is_inert(const struct conv_case *c, int n)
{
    const struct conv_lines l = conv_case_lines(c, n);
    return l.in < 0 || l.out < 0;
}

/* Two that read one line agree. */
bool conv_case_reads_state(const struct conv_case *c, int n)
{
    if (c->spec->initial == CONV_INITIAL_NO_STATE) return false;
    if (c->spec->initial == CONV_INITIAL_NULL) return true;
    return c->spec->slots == CONV_SLOTS_MOVED ? n / 2 % 2 == 0 : n % 2 == 0;
}

int64_t conv_state_index(const struct conv_case *c, int64_t line, int64_t channel, int column)
{
    const int64_t at = line * (c->args.state_slot_stride ? c->args.state_slot_stride : c->line_size);
    if (c->desc.state_layout == GDN_CONV_STATE_WC) return at + column * c->channels + channel;
    return at + channel * (c->line_size / c->channels) + column;
}

int64_t conv_x_column(const struct conv_case *c, int64_t channel)
{
    const gdn_conv1d_desc *d = &c->desc;
    if (d->x_layout != GDN_CONV_X_INTERLEAVED) return channel;
    const int64_t dk = d->head_dim_qk, dv = d->head_dim_v, q = d->num_q_heads * dk, k = d->num_k_heads * dk;
    const int64_t ratio = d->num_v_heads / d->num_k_heads;
    const int64_t pitch = c->args.x_group_stride ? c->args.x_group_stride : 2 * dk + 2 * ratio * dv;
    if (channel < q) return channel / dk * pitch + channel % dk;
    if (channel < q + k) return (channel - q) / dk * pitch + dk + channel % dk;
    const int64_t head = (channel - q - k) / dv;
    return head / ratio * pitch + 2 * dk + head % ratio * dv + (channel - q - k) % dv;
}

int64_t conv_gate_column(const struct conv_case *c, int64_t head)
{
    if (!c->args.gate_group_stride) return head;
    const int64_t group = c->desc.num_gate_heads / c->desc.num_k_heads;
    return head / group * c->args.gate_group_stride + head % group;
}

/* ---- checkpoints ----------------------------------------------------------------------------------------------- */

enum { CHECKPOINT_KINDS = 8, CHECKPOINT_SEQS = 12 };

/* Of the k-th kind in sequence n: inside the halo, at a tile's edge, in the middle, at the end, past it. */
static int64_t checkpoint_end(int k, int64_t len)
{
    const int64_t ends[CHECKPOINT_KINDS] = { 1, 2, 3, 8, len / 2, len, len + 1, 0 };
    return ends[k];
}

/* One line for each row that is not inert by its line; every eighth is, and rows of -1 fill up. Backwards: in no order. */
static void make_checkpoints(struct conv_case *c, int64_t first_line)
{
    const int seqs = c->spec->num_seqs < CHECKPOINT_SEQS ? c->spec->num_seqs : CHECKPOINT_SEQS;
    const int64_t rows = seqs * CHECKPOINT_KINDS + 3;
    c->checkpoints = make_buffer(0, rows * 3 * 8, CONV_POISON); /* all -1 */
    c->args.num_checkpoints = rows;
    int64_t *row = c->checkpoints.data;
    for (int i = seqs * CHECKPOINT_KINDS - 1; i >= 0; --i, row += 3) {
        const int n = i / CHECKPOINT_KINDS;
        row[0] = n;
        row[1] = checkpoint_end(i % CHECKPOINT_KINDS, c->begins[n + 1] - c->begins[n]);
        row[2] = i % 7 == 5 ? -1 : first_line + i;
    }
}

static void set_lines(struct conv_case *c)
{
    const int64_t seqs = c->spec->num_seqs;
    const int64_t used = 1 + (c->spec->slots == CONV_SLOTS_MOVED ? 2 : 1) * seqs;
    c->num_lines = used + 2;
    if (!(c->desc.flags & GDN_CONV_CHECKPOINTS) || c->spec->initial == CONV_INITIAL_NO_STATE) return;
    make_checkpoints(c, used);
    c->num_lines += c->args.num_checkpoints;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static const double extremes[] = { 0,   -0.0,     1e4,       -1e4, 20,  -20,   80,   -80,   -87,  -88,
                                   -89, -95,      100,       -100, 1,   0.125, 1e-6, -1e-6, 6e-8, 65504,
                                   3e4, INFINITY, -INFINITY, 9.75, -41, -42,   -43,  -44,   -50,  -60 };

static bool has_all_taps(const struct conv_case *c)
{
    return c->spec->values == CONV_NORMAL || c->spec->values == CONV_LARGE;
}

static double draw(const struct conv_case *c, struct rng *rng)
{
    if (c->spec->values == CONV_LARGE && rng_below(rng, 64) == 0) return rng_between(rng, -200, -60);
    if (has_all_taps(c)) return rng_normal(rng);
    if (c->spec->values == CONV_ZEROS) return 0;
    return extremes[rng_below(rng, sizeof extremes / sizeof extremes[0])];
}

static void put(struct conv_buffer *b, int64_t i, double x)
{
    gdni_store(b->type, b->data, i, x);
}

static void fill_x(struct conv_case *c, struct rng *rng)
{
    for (int n = 0; n < c->spec->num_seqs; ++n)
        for (int64_t t = c->begins[n]; !is_inert(c, n) && t < c->begins[n + 1]; ++t)
            for (int64_t channel = 0; channel < c->channels; ++channel)
                put(&c->x, c->spec->x_offset + t * c->args.x_stride + conv_x_column(c, channel), draw(c, rng));
}

/* Extreme inputs meet a last tap of 1 and no others, so that the sum is the input. */
static void fill_weights(struct conv_case *c, struct rng *rng)
{
    const int width = c->desc.width;
    const bool one_tap = !has_all_taps(c);
    for (int64_t i = 0; i < c->channels * width; ++i)
        put(&c->weight, i, one_tap ? (i % width == width - 1 ? 1 : 0) : 0.5 * rng_normal(rng));
    for (int64_t i = 0; c->bias.data && i < c->channels; ++i)
        put(&c->bias, i, one_tap ? 0 : 0.25 * rng_normal(rng));
}

static const double gate_extremes[] = { 0, 20, -20, 20.5, 100, -100, -16, -15.5, 5, -5, -88, 90 };

static void fill_gates(struct conv_case *c, struct rng *rng)
{
    const int extremes_count = sizeof gate_extremes / sizeof gate_extremes[0];
    const bool extreme = c->spec->values == CONV_EXTREME;
    for (int64_t h = 0; h < c->desc.num_gate_heads; ++h) {
        put(&c->a_log, h, extreme ? -3.0 + 8.0 * (double)h : rng_between(rng, -1, 2.7));
        put(&c->dt_bias, h, extreme ? 0 : rng_between(rng, -4, 1));
    }
    for (int n = 0; c->a.data && n < c->spec->num_seqs; ++n)
        for (int64_t t = c->begins[n]; !is_inert(c, n) && t < c->begins[n + 1]; ++t)
            for (int64_t h = 0; h < c->desc.num_gate_heads; ++h) {
                const int64_t column = conv_gate_column(c, h);
                put(&c->a, t * c->args.a_stride + column,
                    extreme ? gate_extremes[rng_below(rng, extremes_count)] : rng_normal(rng));
                put(&c->b, t * c->args.b_stride + column,
                    extreme ? gate_extremes[rng_below(rng, extremes_count)] : rng_normal(rng));
            }
}

/* Random bytes everywhere, then finite numbers in what is read and NaN in what has_initial_state = 0 hides. */
static void fill_state(struct conv_case *c, struct rng *rng)
{
    for (size_t i = 0; i < conv_buffer_bytes(&c->state); ++i)
        ((unsigned char *)c->state.data)[i] = (unsigned char)rng_u64(rng);
    for (int n = 0; c->state.data && n < c->spec->num_seqs; ++n)
        for (int64_t channel = 0; conv_case_lines(c, n).in >= 0 && channel < c->channels; ++channel)
            for (int j = 0; j < c->desc.width - 1; ++j)
                put(&c->state, conv_state_index(c, conv_case_lines(c, n).in, channel, j),
                    !conv_case_reads_state(c, n) ? (double)NAN : has_all_taps(c) ? draw(c, rng) : rng_normal(rng));
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static gdn_devptr address(const struct conv_buffer *b)
{
    return (gdn_devptr)(uintptr_t)b->data;
}

static void make_x(struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    const int64_t bytes = (int64_t)element_bytes((int32_t)d->io_type);
    int64_t columns = c->channels;
    if (d->x_layout == GDN_CONV_X_INTERLEAVED) {
        const int64_t held = c->channels / d->num_k_heads;
        if (c->spec->spread) c->args.x_group_stride = held + 16; /* by choice; else 0, with room for z */
        columns = c->args.x_group_stride ? c->args.x_group_stride * d->num_k_heads : 2 * c->channels;
    }
    c->args.x_stride = columns + c->spec->extra_columns;
    c->x = make_buffer((int32_t)d->io_type, c->spec->x_offset + c->tokens * c->args.x_stride, CONV_POISON);
    c->args.x = address(&c->x) + (gdn_devptr)(c->spec->x_offset * bytes);
}

static void make_gates(struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    const int64_t heads = d->num_gate_heads;
    if (heads == 0) return;
    int64_t row = heads;
    if (d->x_layout == GDN_CONV_X_INTERLEAVED && heads % d->num_k_heads == 0) {
        c->args.gate_group_stride = 2 * heads / d->num_k_heads;
        row = 2 * heads;
    }
    c->args.a_stride = row + (c->spec->spread ? 3 : 0);
    c->args.b_stride = row + (c->spec->spread ? 5 : 0);
    c->a = make_buffer((int32_t)d->gate_type, c->tokens * c->args.a_stride, CONV_POISON);
    c->b = make_buffer((int32_t)d->gate_type, c->tokens * c->args.b_stride, CONV_POISON);
    c->a_log = make_buffer((int32_t)d->a_log_type, heads, 0);
    c->dt_bias = make_buffer((int32_t)d->dt_bias_type, heads, 0);
    c->args.a = address(&c->a), c->args.b = address(&c->b);
    c->args.a_log = address(&c->a_log);
    c->args.dt_bias = c->spec->values == CONV_EXTREME ? 0 : address(&c->dt_bias);
}

static void make_state(struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    const int32_t type = d->state_type ? (int32_t)d->state_type : (int32_t)d->io_type;
    if (d->state_layout == GDN_CONV_STATE_CW_STRIDED) c->args.state_channel_stride = d->width + 1;
    if (c->spec->spread) c->args.state_slot_stride = c->line_size + 40;
    if (c->spec->initial == CONV_INITIAL_NO_STATE) return;
    c->state = make_buffer(type, c->num_lines * (c->spec->spread ? c->args.state_slot_stride : c->line_size), 0);
}

static void make_slots(struct conv_case *c)
{
    const struct conv_spec *s = c->spec;
    const bool moved = s->slots == CONV_SLOTS_MOVED;
    const gdn_index_type type = c->variant->slot_type;
    const int64_t in_stride = moved ? 3 : 1, out_stride = 2;
    if (s->initial == CONV_INITIAL_MIXED) c->has_initial = make_buffer(0, s->num_seqs, 0);
    if (s->slots != CONV_SLOTS_NULL) c->slot_in = make_indices(type, s->num_seqs, in_stride);
    if (moved) c->slot_out = make_indices(type, s->num_seqs, out_stride);
    for (int n = 0; n < s->num_seqs; ++n) {
        const struct conv_lines lines = conv_case_lines(c, n);
        if (c->slot_in.data) set_index(&c->slot_in, type, n * in_stride, lines.in);
        if (c->slot_out.data) set_index(&c->slot_out, type, n * out_stride, lines.out);
        if (c->has_initial.data) ((uint8_t *)c->has_initial.data)[n] = conv_case_reads_state(c, n);
    }
    c->args.slot_in_stride = moved ? in_stride : 0;
    c->args.slot_out_stride = moved ? out_stride : 0;
}

static void set_args(struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    c->args.weight = address(&c->weight);
    c->args.bias = address(&c->bias);
    c->args.slot_in = address(&c->slot_in);
    c->args.slot_out = address(&c->slot_out);
    c->args.has_initial_state = address(&c->has_initial);
    c->args.checkpoints = address(&c->checkpoints);
    c->args.cu_seqlens = c->spec->uniform ? 0 : address(&c->cu);
    c->args.num_tokens = c->tokens;
    c->args.num_seqs = c->spec->num_seqs;
    c->args.q_strides = out_strides(c, d->num_q_heads, d->head_dim_qk);
    c->args.k_strides = out_strides(c, d->num_k_heads, d->head_dim_qk);
    c->args.v_strides = out_strides(c, d->num_v_heads, d->head_dim_v);
}

static void set_name(struct conv_case *c)
{
    static const char *const types[] = { "same", "bf16", "fp16", "fp32" };
    static const char *const layouts[] = { "?", "cw", "wc", "cwp" };
    const struct conv_variant *v = c->variant;
    snprintf(c->name, sizeof c->name, "%s %s state=%s w=%d %s%s gates=%s%s%s flags=0x%x align=%d seed=%llu",
             c->spec->name, types[v->io_type], types[v->state_type], v->width, layouts[v->state_layout],
             v->x_layout == GDN_CONV_X_INTERLEAVED ? " interleaved" : "", v->gate_type ? types[v->gate_type] : "no",
             v->cu_type == GDN_INDEX_I64 ? " cu64" : "", v->slot_type == GDN_INDEX_I64 ? " slot64" : "", v->flags,
             v->vector_bytes, (unsigned long long)c->seed);
}

bool conv_case_make(struct conv_case *c, const struct conv_spec *spec, const struct conv_variant *variant,
                    uint64_t seed)
{
    struct rng rng;
    *c = (struct conv_case){ .spec = spec, .variant = variant, .seed = seed, .args = GDN_CONV1D_ARGS_INIT };
    if (!expressible(spec, variant)) return false;
    set_name(c);
    set_lengths(c);
    set_desc(c);
    set_counts(c);
    set_lines(c);
    make_x(c);
    c->weight = make_buffer((int32_t)variant->io_type, c->channels * variant->width, 0);
    if (variant->flags & GDN_CONV_BIAS) c->bias = make_buffer((int32_t)variant->io_type, c->channels, 0);
    make_gates(c);
    make_state(c);
    make_slots(c);
    set_args(c);
    rng_seed(&rng, seed);
    fill_weights(c, &rng);
    fill_x(c, &rng);
    fill_gates(c, &rng);
    fill_state(c, &rng);
    return true;
}

void conv_case_free(struct conv_case *c)
{
    struct conv_buffer *const owned[] = { &c->x,     &c->weight,      &c->bias,       &c->a,       &c->b,
                                          &c->a_log, &c->dt_bias,     &c->state,      &c->slot_in, &c->slot_out,
                                          &c->cu,    &c->checkpoints, &c->has_initial };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; ++i)
        free(owned[i]->data);
    free(c->begins);
    memset(c, 0, sizeof *c);
}

/* ---- outputs --------------------------------------------------------------------------------------------------- */

void conv_outputs_make(struct conv_outputs *out, const struct conv_case *c)
{
    const gdn_conv1d_desc *d = &c->desc;
    const int32_t io = (int32_t)d->io_type;
    memset(out, 0, sizeof *out);
    if (d->num_q_heads) out->q = make_buffer(io, c->q_count, CONV_POISON);
    if (d->num_k_heads) out->k = make_buffer(io, c->k_count, CONV_POISON);
    if (d->num_v_heads) out->v = make_buffer(io, c->v_count, CONV_POISON);
    if (d->num_gate_heads) {
        out->g = make_buffer(GDN_F32, c->tokens * d->num_gate_heads, CONV_POISON);
        out->beta = make_buffer(GDN_F32, c->tokens * d->num_gate_heads, CONV_POISON);
    }
    if (!c->state.data) return;
    out->state = make_buffer(c->state.type, c->state.count, 0);
    memcpy(out->state.data, c->state.data, conv_buffer_bytes(&c->state));
}

void conv_outputs_free(struct conv_outputs *out)
{
    struct conv_buffer *const owned[] = { &out->q, &out->k, &out->v, &out->g, &out->beta, &out->state };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; ++i)
        free(owned[i]->data);
    memset(out, 0, sizeof *out);
}

bool conv_outputs_equal(const struct conv_outputs *a, const struct conv_outputs *b)
{
    const struct conv_buffer *const left[] = { &a->q, &a->k, &a->v, &a->g, &a->beta, &a->state };
    const struct conv_buffer *const right[] = { &b->q, &b->k, &b->v, &b->g, &b->beta, &b->state };
    for (size_t i = 0; i < sizeof left / sizeof left[0]; ++i)
        if (left[i]->data && memcmp(left[i]->data, right[i]->data, conv_buffer_bytes(left[i])) != 0) return false;
    return true;
}

gdn_conv1d_args conv_args_with(const struct conv_case *c, const struct conv_outputs *out)
{
    gdn_conv1d_args args = c->args;
    args.q = address(&out->q), args.k = address(&out->k), args.v = address(&out->v);
    args.g = address(&out->g), args.beta = address(&out->beta);
    args.state = address(&out->state);
    return args;
}
