/*
 * conv1d_qkv.cu - causal depthwise conv1d (+ bias, + SiLU) from the packed projection into q, k and v, with the update
 * of the conv state in place. The recurrence is the one of gdn_jit.h, section 5.
 *
 * A thread owns 8 channels of one tile of TILE_TOKENS rows of the packed stream; tiles know nothing of sequences. It
 * loads its first rows, then looks up which sequence they belong to, then walks the tile sequence by sequence. Weights,
 * the window of the last WIDTH - 1 tokens and the rows in flight live in registers. Threads share nothing: no shared
 * memory, no barrier, no warp instruction.
 *
 *   item = blockIdx.x * THREADS + threadIdx.x     tile = item / (C / 8)     first channel = item % (C / 8) * 8
 *   grid = ceil(ceil(num_tokens / TILE_TOKENS) * (C / 8) / THREADS)
 *
 * Items count channels first: a warp reads 512 contiguous bytes of a row where C is a multiple of 256, and for any C no
 * lane idles.
 *
 * The anchor rule makes the update in place race-free. The state line of a sequence is read by its first HALO tokens,
 * which may straddle two tiles. So these tokens all belong to the tile of the sequence's first token (their anchor);
 * every other token belongs to the tile that it lies in. Then one thread alone reads a line's 8 channels, and that
 * thread writes them.
 */
#include "gdn_spec.cuh"
#include "gdn_params.cuh"
#include "gdn_types.cuh"
#include "gdn_conv.cuh"

constexpr int CHANNELS = 8;           // of a thread
constexpr int HALO = spec::WIDTH - 1; // tokens that one token looks back
constexpr int TILE = spec::TILE_TOKENS;
constexpr int DEPTH = 4; // rows in flight: with 16 warps an SM 32 KB, twice what HBM's latency asks for

static_assert(spec::WIDTH >= 2 && spec::WIDTH <= 4, "gdn_jit.h section 5");
static_assert(TILE >= HALO, "the first HALO tokens of a sequence touch at most two tiles");

/*
 * Rows and items are u32: the host bounds tokens, and strides in elements, by 2^31, and items by 2^32. Addresses have
 * 64 bits.
 */
struct packed_rows {
    const u16 *at; // this thread's channels of row 0
    u32 stride;
};

struct filter {
    float weight[CHANNELS][spec::WIDTH];
    vec8 bias; // as it lies in memory: 4 registers, and few models have one
};

/* Rows first - HALO .. first + DEPTH of the packed stream, raw. */
struct run_rows {
    vec8 halo[HALO];
    vec8 ahead[DEPTH];
};

/* Tokens [first, last) of sequence n = [begin, end) that belong to this tile. */
struct segment {
    u32 n, begin, end;
    u32 first, last;
};

__device__ __forceinline__ vec8 zeros()
{
    return vec8{{0, 0, 0, 0}};
}

__device__ __forceinline__ const u16 *row_at(const packed_rows &x, u32 row)
{
    return x.at + (u64)row * x.stride;
}

/* Never leaves [0, limit), so that it may run before anything is known about sequences. */
__device__ __forceinline__ void load_run(run_rows &rows, const packed_rows &x, u32 first, u32 limit)
{
    const u16 *at = row_at(x, first);
#pragma unroll
    for (u32 u = 0; u < DEPTH; ++u, at += x.stride)
        rows.ahead[u] = first + u < limit ? load_activations<spec::VECTOR_BYTES>(at) : zeros();
    at = x.at + ((i64)first - HALO) * x.stride;
#pragma unroll
    for (u32 j = 0; j < HALO; ++j, at += x.stride)
        rows.halo[j] = first + j >= HALO ? load_activations<spec::VECTOR_BYTES>(at) : zeros();
}

/* 16-bit element i of an array of vectors. */
__device__ __forceinline__ u32 element(const vec8 *v, int i)
{
    return v[i / CHANNELS].pair[i % CHANNELS / 2] >> 16 * (i % 2) & 0xffff;
}

__device__ __forceinline__ void unpack(float (&to)[CHANNELS], const vec8 &from)
{
#pragma unroll
    for (int i = 0; i < CHANNELS / 2; ++i) {
        to[2 * i] = io_lo(from.pair[i]);
        to[2 * i + 1] = io_hi(from.pair[i]);
    }
}

/* weight is [C, WIDTH]: this thread's 8 channels are WIDTH whole vectors. */
__device__ __forceinline__ void load_filter(filter &f, const conv1d_params &p, u32 vector)
{
    const vec8 *const weight = (const vec8 *)p.weight + vector * spec::WIDTH;
    vec8 raw[spec::WIDTH];
#pragma unroll
    for (int j = 0; j < spec::WIDTH; ++j)
        raw[j] = load_vec8(weight + j);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
#pragma unroll
        for (int j = 0; j < spec::WIDTH; ++j)
            f.weight[c][j] = io_lo(element(raw, c * spec::WIDTH + j));
    if constexpr (spec::BIAS) f.bias = load_vec8((const vec8 *)p.bias + vector);
}

/* A state line holds HALO tokens of C channels, oldest first. */
struct state_line {
    vec8 *at; // this thread's part; null when the call keeps no state
    bool initial;
};

__device__ __forceinline__ state_line find_line(const conv1d_params &p, u32 n, int line, u32 vector, u32 vectors)
{
    if (p.state == nullptr) return state_line{nullptr, false};
    vec8 *const at = (vec8 *)p.state + (u64)line * HALO * vectors + vector * (spec::STATE_CW ? HALO : 1);
    return state_line{at, p.has_initial_state == nullptr || p.has_initial_state[n] != 0};
}

__device__ __forceinline__ void load_state(vec8 (&tokens)[HALO], const state_line &line, u32 vectors)
{
    if constexpr (spec::STATE_CW) {
        vec8 raw[HALO];
#pragma unroll
        for (int j = 0; j < HALO; ++j)
            raw[j] = load_vec8(line.at + j);
#pragma unroll
        for (int j = 0; j < HALO; ++j)
#pragma unroll
            for (int i = 0; i < CHANNELS / 2; ++i)
                tokens[j].pair[i] = element(raw, 2 * i * HALO + j) | element(raw, (2 * i + 1) * HALO + j) << 16;
    } else {
#pragma unroll
        for (int j = 0; j < HALO; ++j)
            tokens[j] = load_vec8(line.at + j * vectors);
    }
}

__device__ __forceinline__ void store_state(const state_line &line, const vec8 (&tokens)[HALO], u32 vectors)
{
    if constexpr (spec::STATE_CW) {
#pragma unroll
        for (int j = 0; j < HALO; ++j) {
            vec8 raw;
#pragma unroll
            for (int i = 0; i < CHANNELS; i += 2) {
                const int lo = j * CHANNELS + i, hi = lo + 1; // within [8 channels][HALO]
                raw.pair[i / 2] = element(&tokens[lo % HALO], lo / HALO) | element(&tokens[hi % HALO], hi / HALO) << 16;
            }
            store_vec8(line.at + j, raw);
        }
    } else {
#pragma unroll
        for (int j = 0; j < HALO; ++j)
            store_vec8(line.at + j * vectors, tokens[j]);
    }
}

/* The last HALO tokens of (old state, then the sequence), raw: a shorter sequence keeps some of the old ones. */
__device__ __forceinline__ void last_tokens(vec8 (&last)[HALO], const vec8 (&old)[HALO], const packed_rows &x,
                                            const segment &s)
{
#pragma unroll
    for (int j = 0; j < HALO; ++j) {
        const int len = (int)min(s.end - s.begin, (u32)HALO), age = HALO - j; // tokens from the end
        last[j] = zeros();
        if (age <= len) last[j] = load_activations<spec::VECTOR_BYTES>(row_at(x, s.end - age));
#pragma unroll
        for (int i = j + 1; i < HALO; ++i)
            if (i - j == len) last[j] = old[i];
    }
}

/* The window before a sequence's first token, and the sequence's new state: here alone its line is touched. */
__device__ __forceinline__ void start_sequence(run_rows &rows, const packed_rows &x, const segment &s,
                                               const state_line &line, u32 vectors)
{
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        rows.halo[j] = zeros();
    if (line.at == nullptr) return;
    if (line.initial) load_state(rows.halo, line, vectors);
    vec8 last[HALO];
    last_tokens(last, rows.halo, x, s);
    store_state(line, last, vectors);
}

/*
 * a * sigmoid(a) = a / (1 + 2^(-a log2 e)). Below a = -88.8 the power is infinite and the result -0; from -87.3 on the
 * reciprocal is subnormal and flushed: both are off by less than 2^-119. The clamp keeps a = -infinity, which finite
 * inputs may sum to, from giving -infinity * 0: it gives the limit, -0, and a NaN comes from nothing but a NaN.
 */
__device__ __forceinline__ float silu(float a)
{
    const float clamped = max_nan(a, -1e30f);
    return clamped * rcp_approx(1.0f + ex2_approx(clamped * -1.4426950408889634f));
}

/* One token: oldest term first, in float32, rounded once. */
__device__ __forceinline__ vec8 convolve(const filter &f, const float (&window)[HALO][CHANNELS],
                                         const float (&now)[CHANNELS])
{
    float y[CHANNELS] = {};
    if constexpr (spec::BIAS) unpack(y, f.bias);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
#pragma unroll
        for (int j = 0; j < HALO; ++j)
            y[c] = __fmaf_rn(f.weight[c][j], window[j][c], y[c]);
        y[c] = __fmaf_rn(f.weight[c][HALO], now[c], y[c]);
        if constexpr (spec::SILU) y[c] = silu(y[c]);
    }
    return vec8{{pack_io(y[0], y[1]), pack_io(y[2], y[3]), pack_io(y[4], y[5]), pack_io(y[6], y[7])}};
}

__device__ __forceinline__ void shift(float (&window)[HALO][CHANNELS], const float (&now)[CHANNELS])
{
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
#pragma unroll
        for (int j = 0; j + 1 < HALO; ++j)
            window[j][c] = window[j + 1][c];
        window[HALO - 1][c] = now[c];
    }
}

/* Walks one segment. The slot of a row in `ahead` is loaded again, DEPTH rows on, as soon as it is unpacked. */
__device__ __forceinline__ void run(run_rows &rows, const filter &f, const u16 *next, u32 x_stride, u16 *to,
                                    u32 out_stride, u32 count)
{
    float window[HALO][CHANNELS];
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        unpack(window[j], rows.halo[j]);
#pragma unroll 1
    for (int left = (int)count; left > 0; left -= DEPTH) {
#pragma unroll
        for (int u = 0; u < DEPTH; ++u) {
            if (u >= left) return;
            float now[CHANNELS];
            unpack(now, rows.ahead[u]);
            if (u + DEPTH < left) rows.ahead[u] = load_activations<spec::VECTOR_BYTES>(next);
            next += x_stride;
            store_vec8((vec8 *)to, convolve(f, window, now));
            to += out_stride;
            shift(window, now);
        }
    }
}

__device__ __forceinline__ u32 seq_begin(const conv1d_params &p, u32 n)
{
    return p.cu_seqlens != nullptr ? (u32)p.cu_seqlens[n] : n * (u32)p.uniform_len;
}

/*
 * The last sequence that begins at or before `row`; sequence `lo` is known to. That is the one that holds the row, if
 * any does, whatever empty ones begin there too. Seven probes a round wait for memory a third as often as bisection.
 */
__device__ __forceinline__ u32 find_sequence(const conv1d_params &p, u32 row, u32 lo)
{
    if (p.cu_seqlens == nullptr) return min(row / (u32)p.uniform_len, (u32)p.num_seqs - 1);
    for (u32 count = (u32)p.num_seqs - lo; count > 1;) {
        const u32 step = (count - 1) / 8 + 1;
        u32 below = 0;
#pragma unroll
        for (u32 i = 1; i < 8; ++i)
            below += (u32)p.cu_seqlens[lo + min(i * step, count - 1)] <= row;
        const u32 skipped = min(below * step, count - 1);
        lo += skipped;
        count = min(step, count - skipped);
    }
    return lo;
}

__device__ __forceinline__ segment segment_of(const conv1d_params &p, u32 n, u32 tile_begin, u32 tile_end)
{
    const u32 begin = seq_begin(p, n), end = seq_begin(p, n + 1), anchored = begin + HALO;
    const u32 first = begin < tile_begin ? max(tile_begin, anchored) : begin;
    return segment{n, begin, end, first, min(end, max(tile_end, anchored))};
}

/* Where this thread's 8 channels of [q | k | v] go. */
struct output {
    u16 *at; // row 0
    u32 stride;
};

__device__ __forceinline__ output find_output(const conv1d_params &p, u32 channel)
{
    const u32 q = (u32)p.q_channels, k = (u32)p.k_channels;
    if (channel < q) return output{(u16 *)p.q + channel, q};
    if (channel < q + k) return output{(u16 *)p.k + (channel - q), k};
    return output{(u16 *)p.v + (channel - q - k), (u32)p.v_channels};
}

/* The 1: without a number of CTAs ptxas may spill to reach a rounder one. */
extern "C" __global__ void __launch_bounds__(spec::THREADS, 1) conv1d_qkv(const __grid_constant__ conv1d_params p)
{
    const u32 vectors = (u32)(p.q_channels + p.k_channels + p.v_channels) / CHANNELS;
    const u32 item = blockIdx.x * (u32)spec::THREADS + threadIdx.x;
    const u32 tile = item / vectors, vector = item % vectors, channel = vector * CHANNELS;
    const u32 tile_begin = tile * TILE, num_tokens = (u32)p.num_tokens, num_seqs = (u32)p.num_seqs;
    if (tile_begin >= num_tokens || num_seqs == 0) return;
    const u32 tile_end = min(tile_begin + TILE, num_tokens);

    const packed_rows x{(const u16 *)p.x + channel, (u32)p.x_stride};
    run_rows rows;
    load_run(rows, x, tile_begin, tile_end);
    filter f;
    load_filter(f, p, vector);
    const output out = find_output(p, channel);

    segment s = segment_of(p, find_sequence(p, tile_begin, 0), tile_begin, tile_end);
    if (s.first != tile_begin && s.first < s.last) load_run(rows, x, s.first, s.last);
    for (;;) {
        const int line = p.slots != nullptr ? p.slots[s.n] : (int)s.n;
        if (s.first < s.last && line >= 0) {
            if (s.first == s.begin) start_sequence(rows, x, s, find_line(p, s.n, line, vector, vectors), vectors);
            run(rows, f, row_at(x, s.first + DEPTH), x.stride, out.at + (u64)s.first * out.stride, out.stride,
                s.last - s.first);
        }
        if (s.end >= tile_end || s.n + 1 >= num_seqs) return;
        s = segment_of(p, find_sequence(p, s.end, s.n + 1), tile_begin, tile_end);
        load_run(rows, x, s.first, s.last);
    }
}
