/*
 * conv_launch.c - owns how a call of conv1d-QKV becomes a launch: strides with their defaults, rows of items, CTAs. Must not
 * know: devices, streams, what the kernel computes. templates/conv1d_qkv.cu draws the picture of the rows.
 */
#include "codegen/conv_launch.h"

#include <string.h>

#include "base/error.h"
#include "codegen/check.h"
#include "codegen/division.h"

enum { WARP = 32, LANE_CHANNELS = 8 };

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t or_packed(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

static void set_tensors(struct gdni_conv1d_params *out, const gdn_conv1d_args *a)
{
    out->x = a->x, out->weight = a->weight, out->bias = a->bias;
    out->a = a->a, out->b = a->b, out->a_log = a->a_log, out->dt_bias = a->dt_bias;
    out->slot_in = a->slot_in, out->slot_out = a->slot_out;
    out->has_initial_state = a->has_initial_state;
    out->cu_seqlens = a->cu_seqlens;
    out->checkpoints = a->checkpoints;
    out->out[0] = a->q, out->out[1] = a->k, out->out[2] = a->v;
    out->g = a->g, out->beta = a->beta;
    out->state = a->state;
}

/* vector / (dim / 8) is the high word of vector * magic: exact below 2^17 vectors, and there are fewer. */
static int32_t head_magic(int32_t dim, int32_t heads)
{
    return heads ? (int32_t)(uint32_t)divide_up((int64_t)1 << 32, dim / LANE_CHANNELS) : 0;
}

static void set_output(struct gdni_conv1d_params *out, int which, int32_t heads, int32_t dim, const gdn_strides *given,
                       bool packed_stream)
{
    const int64_t len = out->uniform_len;
    const gdn_strides s = gdni_strides_filled(given, heads, dim, len);
    out->token_stride[which] = s.token;
    out->head_gap[which] = s.head - dim;
    out->batch_skip[which] = packed_stream ? 0 : s.batch - len * s.token;
    out->channels[which] = heads * dim;
    out->head_magic[which] = head_magic(dim, heads);
}

static void set_outputs(struct gdni_conv1d_params *out, const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    set_output(out, 0, p->num_q_heads, p->head_dim_qk, &a->q_strides, a->cu_seqlens);
    set_output(out, 1, p->num_k_heads, p->head_dim_qk, &a->k_strides, a->cu_seqlens);
    set_output(out, 2, p->num_v_heads, p->head_dim_v, &a->v_strides, a->cu_seqlens);
    out->head_dim_qk = p->head_dim_qk;
    out->head_dim_v = p->head_dim_v;
}

static void set_inputs(struct gdni_conv1d_params *out, const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    out->x_stride = a->x_stride;
    if (p->x_layout == GDN_CONV_X_INTERLEAVED) {
        out->x_group_stride = gdni_conv1d_group_stride(p, a);
        out->v_heads_per_k = p->num_v_heads / p->num_k_heads;
    }
    out->num_gate_heads = p->num_gate_heads;
    out->a_stride = or_packed(a->a_stride, p->num_gate_heads);
    out->b_stride = or_packed(a->b_stride, p->num_gate_heads);
    out->gate_group_stride = a->gate_group_stride;
    if (a->gate_group_stride) out->gate_group = p->num_gate_heads / p->num_k_heads;
}

static void set_states(struct gdni_conv1d_params *out, const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    out->state_slot_stride = or_packed(a->state_slot_stride, gdni_conv1d_line_size(p, a));
    out->state_channel_stride = (int32_t)a->state_channel_stride;
    out->slot_in_stride = (int32_t)or_packed(a->slot_in_stride, 1);
    out->slot_out_stride = (int32_t)or_packed(a->slot_out_stride, 1);
}

/* Whether an empty sequence may have a line to copy. */
static bool has_copies(const gdn_conv1d_args *a)
{
    if (!a->state || !a->slot_out) return false;
    return a->slot_out != a->slot_in || or_packed(a->slot_out_stride, 1) != or_packed(a->slot_in_stride, 1);
}

/*
 * Few heads leave room in a warp for several tokens: it takes gate_tokens, gate_step at a time. Those of a tile keep a short
 * call's gates from outlasting its tiles; in a long one CTAs of gates hold SMs for longer than their bytes do, so that there a
 * lane has sixteen tokens at least.
 */
static int64_t set_gates(struct gdni_conv1d_params *out, int32_t heads, int64_t num_tokens, int32_t tile_tokens,
                         int64_t row_lanes)
{
    enum { OF_LANE_IN_LONG_CALLS = 16, LONG_CALL_LANES = 32768 * 128 };
    if (heads == 0) return 0;
    out->gate_warps = (int32_t)divide_up(heads, WARP);
    out->gate_step = 1;
    while (2 * out->gate_step * heads <= WARP)
        out->gate_step *= 2;
    out->gate_tokens = tile_tokens;
    if (num_tokens * row_lanes >= LONG_CALL_LANES && out->gate_tokens < OF_LANE_IN_LONG_CALLS * out->gate_step)
        out->gate_tokens = OF_LANE_IN_LONG_CALLS * out->gate_step;
    return divide_up(num_tokens, out->gate_tokens) * out->gate_warps * WARP;
}

static gdn_status set_rows(struct gdni_conv1d_params *out, uint32_t grid[3], const struct gdni_spec *spec,
                           const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const bool tiles = a->num_seqs > 0 || spec->zero_padding;
    const int64_t row_lanes = divide_up(gdni_problem_channels(p) / LANE_CHANNELS, WARP) * WARP;
    const int64_t num_tiles = tiles ? divide_up(a->num_tokens, spec->params.tile_tokens) : 0;
    const int64_t copy_rows = has_copies(a) ? divide_up(a->num_seqs, GDNI_CONV_COPIES) : 0;
    const int64_t gate_lanes = set_gates(out, p->num_gate_heads, tiles ? a->num_tokens : 0, spec->params.tile_tokens,
                                         row_lanes);
    const int64_t gate_ctas = divide_up(gate_lanes, spec->threads);
    const int64_t ctas = gate_ctas + divide_up((num_tiles + a->num_checkpoints + copy_rows) * row_lanes, spec->threads);
    if (ctas > INT32_MAX / spec->threads)
        return GDN_FAIL(GDN_E_INVALID,
                        "num_tokens is %lld, num_seqs %lld, num_checkpoints %lld: with %lld channels they pass the kernel's "
                        "largest grid; split the batch",
                        (long long)a->num_tokens, (long long)a->num_seqs, (long long)a->num_checkpoints,
                        (long long)gdni_problem_channels(p));
    out->row_lanes = (int32_t)row_lanes;
    out->gate_ctas = (int32_t)gate_ctas;
    out->num_tiles = (int32_t)num_tiles;
    out->num_checkpoints = (int32_t)a->num_checkpoints;
    out->copy_rows = (int32_t)copy_rows;
    const struct gdni_division of_rows = gdni_division(out->row_lanes);
    out->row_magic = of_rows.magic, out->row_shift = of_rows.shift;
    grid[0] = (uint32_t)ctas, grid[1] = grid[2] = 1;
    return GDN_OK;
}

/*
 * Tiles of the last one and a half waves, where q and k are normalised and v, in warps of its own, is not. SMs are out of
 * step by then: one wave gains less, and so do two and more (docs/notebook/conv1d_qkv.md, "The last wave").
 */
static void set_late_tiles(struct gdni_conv1d_params *out, const struct gdni_spec *spec, int num_sms)
{
    const int64_t lanes = (int64_t)num_sms * gdni_spec_ctas_per_sm(spec) * spec->threads;
    const int32_t normed = (out->channels[0] + out->channels[1]) / LANE_CHANNELS;
    if (!spec->norm_lanes || normed % WARP || normed == 0 || normed >= out->row_lanes) return;
    const int64_t late = divide_up(lanes * 3 / 2, out->row_lanes);
    out->late_tiles = late < out->num_tiles ? (int32_t)late : out->num_tiles;
}

gdn_status gdni_conv1d_launch(struct gdni_conv1d_params *out, uint32_t grid[3], const struct gdni_spec *spec,
                              const struct gdni_problem *problem, const gdn_conv1d_args *args, int num_sms)
{
    memset(out, 0, sizeof *out);
    out->num_tokens = args->num_tokens;
    out->num_seqs = (int32_t)args->num_seqs;
    out->uniform_len = args->cu_seqlens || args->num_seqs == 0 ? 0 : args->num_tokens / args->num_seqs;
    set_tensors(out, args);
    set_outputs(out, problem, args);
    set_inputs(out, problem, args);
    set_states(out, problem, args);
    GDN_TRY(set_rows(out, grid, spec, problem, args));
    set_late_tiles(out, spec, num_sms);
    return GDN_OK;
}
