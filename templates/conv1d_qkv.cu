/*
 * conv1d_qkv.cu - causal depthwise conv1d (+ bias, SiLU, L2 norm) from the packed projection into q, k and v, the gates g and
 * beta, the conv state's update in place, checkpoints: gdn_jit.h, section 5, in one launch.
 *
 * A thread owns 8 channels of one tile of TILE_TOKENS rows of the packed stream; tiles know nothing of sequences. It starts
 * the copies of all its rows into shared memory, then looks up which sequence they belong to, then walks the tile sequence by
 * sequence. Threads share nothing but the sums of the norm: no barrier.
 *
 *   item = blockIdx.x * THREADS + threadIdx.x          row = item / row_lanes         lane = item % row_lanes
 *
 *   rows                                     lanes of a row, both parts padded to whole warps
 *   0 .. num_tiles                           [0, C / 8): 8 channels of the tile   [conv_lanes, + num_gate_heads): a gate head
 *   then num_checkpoints                     8 channels of one checkpoint
 *   then copy_rows                           8 channels of COPIES sequences, of which the empty ones may copy their line
 *
 * A warp thus stays in one row: its lanes walk the same segments together, and the 8 to 32 lanes of a head (16 for 128
 * channels) sum its squares by shuffles. It reads 512 contiguous bytes of a row.
 */
#include "gdn_params.cuh"
#include "gdn_spec.cuh"

#include "gdn_types.cuh"

#include "gdn_conv_ptx.cuh"

#include "gdn_conv_gates.cuh"
#include "gdn_conv_math.cuh"
#include "gdn_conv_rows.cuh"
#include "gdn_conv_sequences.cuh"
#include "gdn_conv_state.cuh"

constexpr int UNROLL = 4; // tokens: more than HALO, so that the window's shifts are names, not moves

/* ---- Where a lane's 8 channels of [q | k | v] come from and go ---- */

struct part {
    u32 head, column;      // column in the head
    u32 first, heads_base; // of the part: first channel of the packed order
    int which;             // 0: q, 1: k, 2: v
};

__device__ __forceinline__ part find_part(const conv1d_params &p, u32 channel)
{
    const u32 q = (u32)p.q_channels, k = (u32)p.k_channels;
    const int which = channel < q ? 0 : channel < q + k ? 1 : 2;
    const u32 first = which == 0 ? 0 : which == 1 ? q : q + k;
    const u32 dim = (u32)(which == 2 ? p.head_dim_v : p.head_dim_qk);
    return part{ (channel - first) / dim, (channel - first) % dim, first, 0, which };
}

__device__ __forceinline__ packed_rows find_input(const conv1d_params &p, u32 channel)
{
    u64 column = channel;
    if constexpr (spec::INTERLEAVED) {
        const part f = find_part(p, channel);
        const u32 ratio = (u32)p.v_heads_per_k, dk = (u32)p.head_dim_qk;
        const u32 group = f.which == 2 ? f.head / ratio : f.head;
        const u32 in_group = f.which == 0 ? 0 : f.which == 1 ? dk : 2 * dk + f.head % ratio * (u32)p.head_dim_v;
        column = (u64)group * (u64)p.x_group_stride + in_group + f.column;
    }
    return packed_rows{ (const u8 *)p.x + column * IO_BYTES, (u64)p.x_stride * IO_BYTES };
}

struct output {
    u8 *at;         // token 0
    u64 pitch;      // bytes from token to token
    i64 batch_skip; // bytes more from sequence to sequence than its tokens make
};

__device__ __forceinline__ output find_output(const conv1d_params &p, u32 channel)
{
    const part f = find_part(p, channel);
    void *const base = f.which == 0 ? p.q : f.which == 1 ? p.k : p.v;
    const i64 token = f.which == 0 ? p.q_token_stride : f.which == 1 ? p.k_token_stride : p.v_token_stride;
    const i64 head = f.which == 0 ? p.q_head_stride : f.which == 1 ? p.k_head_stride : p.v_head_stride;
    const i64 skip = f.which == 0 ? p.q_batch_skip : f.which == 1 ? p.k_batch_skip : p.v_batch_skip;
    return output{ (u8 *)base + (f.head * head + f.column) * IO_BYTES, (u64)token * IO_BYTES, skip * IO_BYTES };
}

/* ---- One tile ---- */

struct conv_lane {
    state_lane channels;
    bool active;              // others keep their warp's shuffles whole, and write nothing
    bool normed, warp_normed; // holds q or k; so does a lane of its warp
};

__device__ __forceinline__ conv_lane make_conv_lane(const conv1d_params &p, u32 lane)
{
    const u32 channels = (u32)(p.q_channels + p.k_channels + p.v_channels), vectors = channels / CHANNELS;
    const u32 channel = min(lane, vectors - 1) * CHANNELS, normed = (u32)(p.q_channels + p.k_channels);
    return conv_lane{ state_lane{ channel, channels }, lane < vectors, channel < normed,
                      lane / 32 * 32 * CHANNELS < normed };
}

constexpr bool SAME_TYPE = spec::STATE_TYPE == spec::IO_TYPE;

/*
 * A sequence's start: its state becomes the rows before its first token, so that all tokens find their window alike. Where the
 * types differ, rows cannot hold it: then it goes straight into the window.
 */
__device__ __forceinline__ void start_window(float (&window)[HALO][CHANNELS], const conv1d_params &p,
                                             const conv_lane &l, const tile_rows &rows, const segment &s,
                                             const line_pair &lines)
{
    const window8 start = start_sequence(p, l.channels, s, lines, find_input(p, l.channels.channel), l.active);
    wait_but_for<0>();
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        if constexpr (SAME_TYPE)
            *slot_of_row(rows, s.first - HALO + j) = convert<spec::IO_TYPE>(start.column[j]);
        else
            unpack(window[j], start.column[j]);
}

__device__ __forceinline__ void take_window(float (&window)[HALO][CHANNELS], const tile_rows &rows, u32 first)
{
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        unpack(window[j], *slot_of_row(rows, first - HALO + j));
}

__device__ __forceinline__ void run_tokens(const conv_lane &l, const filter &f, float (&window)[HALO][CHANNELS],
                                           const io8 *from, u8 *to, u64 pitch, u32 count)
{
#pragma unroll 1
    for (int left = (int)count; left > 0; left -= UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (u >= left) return;
            float now[CHANNELS], y[CHANNELS];
            unpack(now, *from);
            from += spec::THREADS;
            convolve(y, f, window, now);
            if constexpr (spec::NORM_LANES > 0)
                if (l.warp_normed) normalise(y, l.normed);
            if (spec::NORM_LANES == 0 || l.active) store_raw<spec::IO_TYPE>(to, pack(y));
            to += pitch;
            shift(window, now);
        }
    }
}

/* Everything that does not need the tile's rows comes before they are waited for. */
__device__ __forceinline__ void run_segment(const conv1d_params &p, const conv_lane &l, const tile_rows &rows,
                                            const segment &s, const line_pair &lines)
{
    const u32 tile_end = end_of_tile(p, rows.first);
    float window[HALO][CHANNELS];
    if (s.first == s.begin) start_window(window, p, l, rows, s, lines);
    const output out = find_output(p, l.channels.channel);
    u8 *const to = out.at + s.n * out.batch_skip + s.first * out.pitch;
    wait_but_for<1>();
    const filter f = load_filter(p, l.channels.channel / CHANNELS);
    if (s.last > tile_end) add_rows(rows, find_input(p, l.channels.channel), tile_end, s.last);
    wait_but_for<0>();
    if (SAME_TYPE || s.first != s.begin) take_window(window, rows, s.first);
    run_tokens(l, f, window, slot_of_row(rows, s.first), to, out.pitch, s.last - s.first);
}

__device__ __forceinline__ void zero_rows(const conv1d_params &p, const conv_lane &l, u32 first, u32 last)
{
    const output out = find_output(p, l.channels.channel);
    for (u32 token = first; token < last && l.active; ++token)
        store_raw<spec::IO_TYPE>(out.at + token * out.pitch, zeros<spec::IO_TYPE>());
}

/* Nothing that a segment needs is kept in registers through the one before it. */
__device__ __forceinline__ void conv_tile(const conv1d_params &p, u32 lane, u32 tile_begin)
{
    const conv_lane first = make_conv_lane(p, lane);
    if (spec::NORM_LANES == 0 && !first.active) return;
    start_filter(p, first.channels.channel / CHANNELS);
    start_tile(find_input(p, first.channels.channel), tile_begin, end_of_tile(p, tile_begin));
    if constexpr (spec::LAUNCH_DEPENDENTS) launch_dependents();
    for_each_segment(
        p, tile_begin,
        [&](const segment &s, const line_pair &lines) {
            run_segment(p, make_conv_lane(p, afresh(lane)), find_tile(afresh(tile_begin)), s, lines);
        },
        [&](u32 begin, u32 end) { zero_rows(p, make_conv_lane(p, afresh(lane)), begin, end); });
}

/* ---- Rows past the tiles ---- */

__device__ __forceinline__ void state_row(const conv1d_params &p, u32 row, u32 lane)
{
    constexpr u32 COPIES = 32; // as in spec.c
    const u32 channels = (u32)(p.q_channels + p.k_channels + p.v_channels), channel = lane * CHANNELS;
    if (p.state == nullptr || channel >= channels) return;
    const state_lane l{ channel, channels };
    if (row < (u32)p.num_checkpoints) {
        if constexpr (spec::CHECKPOINTS) store_checkpoint(p, l, find_input(p, channel), row);
    } else if (row - (u32)p.num_checkpoints < (u32)p.copy_rows) {
        copy_empty(p, l, (row - (u32)p.num_checkpoints) * COPIES, COPIES);
    }
}

/* The 1: without a number of CTAs ptxas may spill to reach a rounder one. */
extern "C" __global__ void __launch_bounds__(spec::THREADS, spec::MIN_CTAS)
    conv1d_qkv(const __grid_constant__ conv1d_params p)
{
    const u32 item = blockIdx.x * (u32)spec::THREADS + threadIdx.x;
    const u32 row = item / (u32)p.row_lanes, lane = item % (u32)p.row_lanes;
    if (row >= (u32)p.num_tiles) {
        state_row(p, row - (u32)p.num_tiles, lane);
        return;
    }
    if (lane < (u32)p.conv_lanes) {
        conv_tile(p, lane, row * TILE);
    } else if constexpr (spec::GATES) {
        const u32 head = lane - (u32)p.conv_lanes;
        if (head < (u32)p.num_gate_heads) gate_tile(p, head, row * TILE);
    }
}
