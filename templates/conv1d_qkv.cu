/*
 * conv1d_qkv.cu - causal depthwise conv1d (+ bias, SiLU, L2 norm) from the packed projection into q, k and v, the gates g and
 * beta, the conv state's update in place, checkpoints: gdn_jit.h, section 5, in one launch.
 *
 * A thread owns 8 channels of one tile of TILE_TOKENS rows of the packed stream; tiles know nothing of sequences. It starts
 * the copies of all its rows into shared memory, then looks up which sequence they belong to, then walks the tile sequence by
 * sequence. Threads share nothing but the sums of the norm: no barrier.
 *
 *   CTAs                       items of a row
 *   the first gate_ctas        32 lanes of gate heads and tokens of gate_tokens rows (gdn_conv_gates.cuh)
 *   the others, by rows of     [0, C / 8), padded to whole warps: 8 channels of
 *     row_lanes items            num_tiles rows: a tile
 *                                then num_checkpoints rows: a checkpoint
 *                                then copy_rows rows: COPIES sequences, of which the empty ones may copy their line
 *
 * Of the last late_tiles tiles all lanes of q and k come first, and then those of v, which no norm is taken of: what is started
 * last ends soonest.
 *
 * A warp thus stays in one row: its lanes walk the same segments together, and the 2 to 32 lanes of a head (16 for 128
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

/* ---- Where a lane's 8 channels of [q | k | v] come from and go ---- */

struct part {
    u32 which;         // 0: q, 1: k, 2: v
    u32 channel, head; // in it
};

__device__ __forceinline__ part find_part(const conv1d_params &p, u32 channel)
{
    const u32 k_first = (u32)p.channels[0], v_first = k_first + (u32)p.channels[1];
    const u32 which = channel < k_first ? 0 : channel < v_first ? 1 : 2;
    const u32 in_part = channel - (which == 0 ? 0 : which == 1 ? k_first : v_first);
    return part{ which, in_part, multiply_high(in_part / CHANNELS, (u32)p.head_magic[which]) };
}

__device__ __forceinline__ packed_rows find_input(const conv1d_params &p, u32 channel)
{
    u64 column = channel;
    if constexpr (spec::INTERLEAVED) {
        const part f = find_part(p, channel);
        const u32 ratio = (u32)p.v_heads_per_k, dk = (u32)p.head_dim_qk, dv = (u32)p.head_dim_v;
        const u32 group = f.which == 2 ? f.head / ratio : f.head;
        const u32 in_group = f.which == 0 ? 0 : f.which == 1 ? dk : 2 * dk + f.head % ratio * dv;
        column = (u64)group * (u64)p.x_group_stride + in_group + f.channel - f.head * (f.which == 2 ? dv : dk);
    }
    return packed_rows{ (const u8 *)p.x + column * IO_BYTES, (pitch_bytes)p.x_stride * IO_BYTES };
}

/* The host sees to it that strides are whole vectors, and a token's below 2^31 elements. */
struct output {
    u8 *at; // token 0 of a sequence, as if it were the packed stream's
    pitch_bytes pitch;
};

__device__ __forceinline__ output find_output(const conv1d_params &p, u32 channel, u32 n)
{
    const part f = find_part(p, channel);
    const i64 element = f.channel + f.head * p.head_gap[f.which] + n * p.batch_skip[f.which];
    return output{ (u8 *)p.out[f.which] + element * IO_BYTES, (pitch_bytes)p.token_stride[f.which] * IO_BYTES };
}

__device__ __forceinline__ u8 *token_at(const output &out, u32 token)
{
    return out.at + (u64)token * out.pitch;
}

/* ---- One tile ---- */

struct conv_lane {
    state_lane channels;
    bool active;              // others keep their warp's shuffles whole, and write nothing
    bool normed, warp_normed; // holds q or k; so does a lane of its warp
};

/* Item: of the CTAs past those of the gates. Divided by a product and a shift. */
struct place {
    u32 row, lane;
};

__device__ __forceinline__ place find_place(const conv1d_params &p, u32 item)
{
    const u32 row = (u32)((u64)item * (u32)p.row_magic >> p.row_shift);
    return place{ row, item - row * (u32)p.row_lanes };
}

__device__ __forceinline__ conv_lane make_conv_lane(const conv1d_params &p, u32 lane)
{
    const u32 channels = (u32)(p.channels[0] + p.channels[1] + p.channels[2]), vectors = channels / CHANNELS;
    const u32 channel = min(lane, vectors - 1) * CHANNELS, normed = (u32)(p.channels[0] + p.channels[1]);
    return conv_lane{ state_lane{ channel, channels }, lane < vectors, channel < normed,
                      lane / 32 * 32 * CHANNELS < normed };
}

/* The item that stands at this place of the grid: the others in the order of rows, those of the late tiles as told above. */
__device__ __forceinline__ u32 item_at(const conv1d_params &p, u32 place)
{
    const u32 row_lanes = (u32)p.row_lanes, late = (u32)p.late_tiles, first = ((u32)p.num_tiles - late) * row_lanes;
    if (spec::NORM_LANES == 0 || place < first || place - first >= late * row_lanes) return place;
    const u32 normed = (u32)(p.channels[0] + p.channels[1]) / CHANNELS, of_normed = late * normed;
    const bool is_v = place - first >= of_normed;
    const u32 lanes = is_v ? row_lanes - normed : normed, at = place - first - (is_v ? of_normed : 0), row = at / lanes;
    return first + row * row_lanes + (is_v ? normed : 0) + at - row * lanes;
}

constexpr bool SAME_TYPE = spec::STATE_TYPE == spec::IO_TYPE;

/* A run that may have to be run again needs all that it starts from in its rows: see start_window(). */
constexpr run_kind FIRST_RUN = spec::SILU && SAME_TYPE ? RUN_USUAL : RUN_LOOKING;

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

template <run_kind KIND>
__device__ __forceinline__ io8 run_token(const conv_lane &l, const filter &f, float (&window)[HALO][CHANNELS],
                                         const io8 *from, float &products)
{
    float now[CHANNELS], y[CHANNELS];
    unpack(now, *from);
    convolve<KIND>(y, f, window, now, products);
    if constexpr (spec::NORM_LANES > 0 && spec::EXACT_NORM)
        if (l.warp_normed) normalise(y, l.normed);
    shift(window, now);
    return pack(y);
}

/*
 * A run of tokens, AT_ONCE together where their norms wait for shuffles: past the run these read what they do not use. UNROLL
 * is more than HALO, so that the window's shifts are names, not moves. products: see silu_of_batch().
 */
template <run_kind KIND>
__device__ __forceinline__ void run_tokens(float &products, const conv_lane &l, const filter &f,
                                           float (&window)[HALO][CHANNELS], const io8 *from, u8 *to, pitch_bytes pitch,
                                           u32 count)
{
    constexpr int UNROLL = 4, AT_ONCE = spec::NORM_LANES > 0 && !spec::EXACT_NORM ? TOKENS_AT_ONCE : 1;
    pitch = afresh(pitch); // kept: where it comes from is several instructions away
#pragma unroll 1
    for (int left = (int)count; left > 0; left -= UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; u += AT_ONCE) {
            if (u >= left) return;
            io8 token[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i, from += spec::THREADS) {
                float with = products;
                token[i] = run_token<KIND>(l, f, window, from, with);
                if (i == 0 || u + i < left) products = with;
            }
            if constexpr (AT_ONCE > 1)
                if (l.warp_normed) normalise_rounded(token[0], token[AT_ONCE - 1], l.normed);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i, to += pitch)
                if (u + i < left && (spec::NORM_LANES == 0 || l.active)) store_raw<spec::IO_TYPE>(to, token[i]);
        }
    }
}

/* Everything that does not need the tile's rows comes before they are waited for. False: it has to be run again. */
__device__ __forceinline__ bool run_segment(const conv1d_params &p, const conv_lane &l, const tile_rows &rows,
                                            const segment &s, const line_pair &lines)
{
    const u32 tile_end = end_of_tile(p, rows.first);
    float window[HALO][CHANNELS];
    if (s.first == s.begin) start_window(window, p, l, rows, s, lines);
    const output out = find_output(p, l.channels.channel, s.n);
    wait_but_for<1>();
    const filter f = load_filter(p, l.channels.channel / CHANNELS);
    if (s.last > tile_end) add_rows(rows, find_input(p, l.channels.channel), tile_end, s.last);
    wait_but_for<0>();
    if (SAME_TYPE || s.first != s.begin) take_window(window, rows, s.first);
    float products = 0.0f;
    run_tokens<FIRST_RUN>(products, l, f, window, slot_of_row(rows, s.first), token_at(out, s.first), out.pitch,
                          s.last - s.first);
    if (FIRST_RUN == RUN_LOOKING) return true;
    return spec::NORM_LANES > 0 ? all_lanes(products < TOO_LARGE) : products < TOO_LARGE;
}

/* Once more, from what lies in shared memory: the state is long written, maybe in place. */
__device__ __forceinline__ void run_segment_again(const conv1d_params &p, u32 item, u32 n)
{
    const place at = find_place(p, item);
    const conv_lane l = make_conv_lane(p, at.lane);
    const tile_rows rows = find_tile(at.row * TILE);
    const segment s = segment_of(p, n, rows.first, end_of_tile(p, rows.first));
    float window[HALO][CHANNELS], products = 0.0f;
    const output out = find_output(p, l.channels.channel, s.n);
    take_window(window, rows, s.first);
    const filter f = load_filter(p, l.channels.channel / CHANNELS);
    run_tokens<RUN_LOOKING>(products, l, f, window, slot_of_row(rows, s.first), token_at(out, s.first), out.pitch,
                            s.last - s.first);
}

__device__ __forceinline__ void zero_rows(const conv1d_params &p, const conv_lane &l, u32 first, u32 last)
{
    const output out = find_output(p, l.channels.channel, 0);
    for (u32 token = first; token < last && l.active; ++token)
        store_raw<spec::IO_TYPE>(token_at(out, token), zeros<spec::IO_TYPE>());
}

/* Nothing that a segment needs is kept in registers through the one before it: all follows from the item. */
__device__ __forceinline__ void conv_tile(const conv1d_params &p, u32 item)
{
    const place at = find_place(p, item);
    const conv_lane first = make_conv_lane(p, at.lane);
    if (spec::NORM_LANES == 0 && !first.active) return;
    if (!spec::ZERO_PADDING || p.num_seqs != 0) { /* without a sequence there may be no input, only rows to be made zeros */
        start_filter(p, first.channels.channel / CHANNELS);
        start_tile(find_input(p, first.channels.channel), at.row * TILE, end_of_tile(p, at.row * TILE));
    }
    if constexpr (spec::LAUNCH_DEPENDENTS) launch_dependents();
    for_each_segment(
        p, TILE, [&] { return find_place(p, afresh(item)).row * TILE; },
        [&](const segment &s, const line_pair &lines) {
            const place here = find_place(p, afresh(item));
            if (run_segment(p, make_conv_lane(p, here.lane), find_tile(here.row * TILE), s, lines)) return;
            if constexpr (FIRST_RUN == RUN_USUAL) run_segment_again(p, afresh(item), s.n);
        },
        [&](u32 begin, u32 end) { zero_rows(p, make_conv_lane(p, find_place(p, afresh(item)).lane), begin, end); });
    wait_but_for<0>(); /* of rows that no segment waited for: none may land when the CTA is gone */
}

/* ---- Rows past the tiles ---- */

__device__ __forceinline__ void state_row(const conv1d_params &p, u32 row, u32 lane)
{
    constexpr u32 COPIES = spec::COPIES;
    const u32 channels = (u32)(p.channels[0] + p.channels[1] + p.channels[2]), channel = lane * CHANNELS;
    if (p.state == nullptr || channel >= channels) return;
    const state_lane l{ channel, channels };
    if (row < (u32)p.num_checkpoints) {
        if constexpr (spec::CHECKPOINTS) store_checkpoint(p, l, find_input(p, channel), row);
    } else if (row - (u32)p.num_checkpoints < (u32)p.copy_rows) {
        copy_empty(p, l, (row - (u32)p.num_checkpoints) * COPIES, COPIES);
    }
}

/* A number of CTAs, even 1: without, ptxas may spill to reach a rounder one. */
extern "C" __global__ void __launch_bounds__(spec::THREADS, spec::MIN_CTAS)
    conv1d_qkv(const __grid_constant__ conv1d_params p)
{
    u32 cta = blockIdx.x;
    if constexpr (spec::GATES) {
        if (cta < (u32)p.gate_ctas) {
            gate_tile(p, cta * (u32)spec::THREADS + threadIdx.x);
            return;
        }
        cta -= (u32)p.gate_ctas;
    }
    const u32 item = item_at(p, cta * (u32)spec::THREADS + threadIdx.x);
    const place at = find_place(p, item);
    if (at.row < (u32)p.num_tiles)
        conv_tile(p, item);
    else
        state_row(p, at.row - (u32)p.num_tiles, at.lane);
}
