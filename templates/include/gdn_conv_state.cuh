/*
 * gdn_conv_state.cuh - state lines: the HALO raw inputs before a sequence's first token, read and written by one thread for
 * its eight channels; checkpoints; copies for empty sequences.
 *
 *   GDN_CONV_STATE_CW   a line is [C, HALO]: eight channels are HALO whole vectors, transposed in registers
 *   GDN_CONV_STATE_WC   a line is [HALO, C]: HALO vectors, C apart
 *   ..._CW_STRIDED      a line is [C, state_channel_stride]: element by element
 */
#pragma once

#include "gdn_conv_sequences.cuh"

constexpr int STATE_BYTES = spec::STATE_TYPE == TYPE_F32 ? 4 : 2;

/* Window columns, oldest first; column HALO - 1 is the newest token. */
struct window8 {
    state8 column[HALO];
};

struct state_lane {
    u32 channel; // first of this thread's 8
    u32 channels;
};

/* This thread's part of a line: of its first column, or its first channel. */
__device__ __forceinline__ u8 *line_at(const conv1d_params &p, const state_lane &lane, i64 line)
{
    u64 in_line = lane.channel;
    if constexpr (spec::STATE_STRIDED) in_line *= (u32)p.state_channel_stride;
    if constexpr (spec::STATE_CW && !spec::STATE_STRIDED) in_line *= HALO;
    return (u8 *)p.state + ((u64)line * (u64)p.state_slot_stride + in_line) * STATE_BYTES;
}

__device__ __forceinline__ window8 zero_window()
{
    window8 w;
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        w.column[j] = zeros<spec::STATE_TYPE>();
    return w;
}

__device__ __forceinline__ window8 load_strided(const conv1d_params &p, const u8 *at)
{
    window8 w = zero_window();
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
#pragma unroll
        for (int j = 0; j < HALO; ++j) {
            const u64 i = (u64)c * (u32)p.state_channel_stride + j;
            set_element<spec::STATE_TYPE>(w.column[j], c,
                                          STATE_BYTES == 4 ? ((const u32 *)at)[i] : ((const u16 *)at)[i]);
        }
    return w;
}

__device__ __forceinline__ window8 load_window(const conv1d_params &p, const state_lane &lane, i64 line)
{
    const u8 *const at = line_at(p, lane, line);
    if constexpr (spec::STATE_STRIDED) return load_strided(p, at);
    window8 w;
    state8 raw[HALO];
    const u64 pitch = (spec::STATE_CW ? CHANNELS : lane.channels) * STATE_BYTES;
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        raw[j] = load_raw<spec::STATE_TYPE>(at + j * pitch);
#pragma unroll
    for (int j = 0; j < HALO; ++j)
        if constexpr (spec::STATE_CW) {
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                set_element<spec::STATE_TYPE>(w.column[j], c, element(raw, c * HALO + j));
        } else {
            w.column[j] = raw[j];
        }
    return w;
}

__device__ __forceinline__ void store_strided(const conv1d_params &p, u8 *at, const window8 &w)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
#pragma unroll
        for (int j = 0; j < HALO; ++j) {
            const u64 i = (u64)c * (u32)p.state_channel_stride + j;
            if constexpr (STATE_BYTES == 4)
                ((u32 *)at)[i] = element(&w.column[j], c);
            else
                ((u16 *)at)[i] = (u16)element(&w.column[j], c);
        }
}

__device__ __forceinline__ void store_window(const conv1d_params &p, const state_lane &lane, i64 line, const window8 &w)
{
    u8 *const at = line_at(p, lane, line);
    if constexpr (spec::STATE_STRIDED) {
        store_strided(p, at, w);
        return;
    }
    const u64 pitch = (spec::STATE_CW ? CHANNELS : lane.channels) * STATE_BYTES;
#pragma unroll
    for (int j = 0; j < HALO; ++j) {
        state8 raw = w.column[j];
        if constexpr (spec::STATE_CW) {
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c) // element j * 8 + c of [8 channels][HALO]
                set_element<spec::STATE_TYPE>(raw, c,
                                              element(&w.column[(j * CHANNELS + c) % HALO], (j * CHANNELS + c) / HALO));
        }
        store_raw<spec::STATE_TYPE>(at + j * pitch, raw);
    }
}

/* A token as the state keeps it: its bits, where the types agree. */
template <int TO, int FROM> __device__ __forceinline__ raw8<TO> convert(const raw8<FROM> &token)
{
    if constexpr (TO == FROM) {
        return token;
    } else {
        raw8<TO> r = zeros<TO>();
        float x[CHANNELS];
        unpack(x, token);
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            set_element(r, c, float_to_bits<TO>(x[c]));
        return r;
    }
}

/* The last HALO tokens of (old window, then the sequence's first `len`), raw: a short run keeps some of the old ones. */
__device__ __forceinline__ window8 window_after(const window8 &old, const packed_rows &x, u32 begin, u32 len)
{
    window8 w;
    const int taken = (int)min(len, (u32)HALO);
#pragma unroll
    for (int j = 0; j < HALO; ++j) {
        const int age = HALO - j; // tokens from the end
        w.column[j] = zeros<spec::STATE_TYPE>();
        if (age <= taken) w.column[j] = convert<spec::STATE_TYPE>(load_row(x, begin + len - age));
#pragma unroll
        for (int i = j + 1; i < HALO; ++i)
            if (i - j == taken) w.column[j] = old.column[i];
    }
    return w;
}

/* ---- Checkpoints ---- */

/* Row m of the list; token_end is 0 where the row is inert, whatever it holds. */
struct checkpoint {
    u32 n, token_end;
    i64 line;
};

__device__ __forceinline__ checkpoint load_checkpoint(const conv1d_params &p, u32 m)
{
    const i64 *const row = p.checkpoints + (u64)m * 3;
    const i64 n = row[0], token_end = row[1], line = row[2];
    const bool sane = n >= 0 && n < p.num_seqs && token_end > 0 && token_end <= p.num_tokens && line >= 0;
    return checkpoint{ (u32)n, sane ? (u32)token_end : 0, line };
}

/*
 * Whether a checkpoint of any sequence lies inside its first HALO - 1 tokens, which is rare: lanes that come here together
 * share the list. (Each by itself all of it, 256 rows took 20 us.)
 */
__device__ __forceinline__ bool has_early_checkpoints(const conv1d_params &p)
{
    const lane_group lanes = lanes_together();
    bool found = false;
#pragma unroll 4
    for (u32 m = lanes.rank; m < (u32)p.num_checkpoints; m += lanes.count) {
        const i64 token_end = p.checkpoints[(u64)m * 3 + 1];
        found |= token_end > 0 && token_end < HALO;
    }
    return any_of(lanes, found);
}

/*
 * These need the window that the sequence started from, which its own thread alone may read: it looks for them where it has
 * that window.
 */
__device__ __forceinline__ void store_early_checkpoints(const conv1d_params &p, const state_lane &lane,
                                                        const segment &s, const window8 &old, const packed_rows &x)
{
    if (!has_early_checkpoints(p)) return;
#pragma unroll 4
    for (u32 m = 0; m < (u32)p.num_checkpoints; ++m) {
        const checkpoint c = load_checkpoint(p, m);
        if (c.n == s.n && c.token_end != 0 && c.token_end < HALO && c.token_end <= s.end - s.begin)
            store_window(p, lane, c.line, window_after(old, x, s.begin, c.token_end));
    }
}

/* All others read nothing but x: a lane of their own. */
__device__ __forceinline__ void store_checkpoint(const conv1d_params &p, const state_lane &lane, const packed_rows &x,
                                                 u32 m)
{
    const checkpoint c = load_checkpoint(p, m);
    if (c.token_end < HALO || c.token_end == 0) return;
    const u32 begin = seq_begin(p, c.n), end = seq_begin(p, c.n + 1);
    if (c.token_end > end - begin || is_inert(find_lines(p, c.n))) return;
    store_window(p, lane, c.line, window_after(zero_window(), x, begin, c.token_end));
}

/* ---- Starts and ends of sequences ---- */

/* The window before a sequence's first token; the sequence's new state, and its early checkpoints, go out here too. */
__device__ __forceinline__ window8 start_sequence(const conv1d_params &p, const state_lane &lane, const segment &s,
                                                  const line_pair &lines, const packed_rows &x, bool active)
{
    const window8 old = has_initial_state(p, s.n) ? load_window(p, lane, lines.in) : zero_window();
    if (p.state == nullptr || !active) return old;
    if constexpr (spec::CHECKPOINTS) store_early_checkpoints(p, lane, s, old, x);
    store_window(p, lane, lines.out, window_after(old, x, s.begin, s.end - s.begin));
    return old;
}

/* Sequences [first, first + count) that are empty and write another line than they read. */
__device__ __forceinline__ void copy_empty(const conv1d_params &p, const state_lane &lane, u32 first, u32 count)
{
    const u32 last = min(first + count, (u32)p.num_seqs);
#pragma unroll 4
    for (u32 n = first; n < last; ++n) {
        if (seq_begin(p, n) != seq_begin(p, n + 1)) continue;
        const line_pair lines = find_lines(p, n);
        if (is_inert(lines) || lines.in == lines.out) continue;
        store_window(p, lane, lines.out, has_initial_state(p, n) ? load_window(p, lane, lines.in) : zero_window());
    }
}
