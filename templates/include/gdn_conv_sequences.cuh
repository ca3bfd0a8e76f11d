/*
 * gdn_conv_sequences.cuh - which tokens of a tile belong to which sequence, and which state lines that sequence has.
 *
 * The anchor rule makes the update of a state line in place race-free. The line that a sequence starts from is read by its
 * first HALO tokens, which may straddle two tiles. So these tokens all belong to the tile of the sequence's first token
 * (their anchor); every other token belongs to the tile that it lies in. Then one thread alone reads a line's 8 channels,
 * and that thread writes them.
 */
#pragma once

#include "gdn_conv_rows.cuh"
#include "gdn_params.cuh"

static_assert(spec::WIDTH >= 2 && spec::WIDTH <= 4, "gdn_jit.h section 5");
static_assert(TILE >= HALO, "the first HALO tokens of a sequence touch at most two tiles");

/* Tokens [first, last) of sequence n = [begin, end) that belong to a tile. */
struct segment {
    u32 n, begin, end;
    u32 first, last;
};

__device__ __forceinline__ u32 seq_begin(const conv1d_params &p, u32 n)
{
    if (p.cu_seqlens == nullptr) return n * (u32)p.uniform_len;
    return (u32)load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n);
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
            below += seq_begin(p, lo + min(i * step, count - 1)) <= row;
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
    return segment{ n, begin, end, first, min(end, max(tile_end, anchored)) };
}

/* The sequence after s that holds tokens, or the last one. Mostly it is the next. */
__device__ __forceinline__ segment next_segment(const conv1d_params &p, const segment &s, u32 tile_begin, u32 tile_end)
{
    const segment next = segment_of(p, s.n + 1, tile_begin, tile_end);
    if (next.end > next.begin || next.n + 1 >= (u32)p.num_seqs) return next;
    return segment_of(p, find_sequence(p, s.end, next.n), tile_begin, tile_end);
}

/* The state lines of a sequence; -1 in either makes it inert. */
struct line_pair {
    i64 in, out;
};

__device__ __forceinline__ line_pair find_lines(const conv1d_params &p, u32 n)
{
    line_pair l{ (i64)n, (i64)n };
    if (p.slot_in != nullptr) l.in = l.out = load_index<spec::SLOT_I64>(p.slot_in, (u64)n * (u32)p.slot_in_stride);
    if (p.slot_out != nullptr) l.out = load_index<spec::SLOT_I64>(p.slot_out, (u64)n * (u32)p.slot_out_stride);
    return l;
}

__device__ __forceinline__ bool is_inert(const line_pair &l)
{
    return l.in < 0 || l.out < 0;
}

__device__ __forceinline__ bool has_initial_state(const conv1d_params &p, u32 n)
{
    return p.state != nullptr && (p.has_initial_state == nullptr || p.has_initial_state[n] != 0);
}

__device__ __forceinline__ u32 end_of_tile(const conv1d_params &p, u32 tile_begin, u32 tile = TILE)
{
    return min(tile_begin + tile, (u32)p.num_tokens);
}

/*
 * Calls live(segment, lines) for each run of tokens of a sequence that is not inert, in order, and then padding(first, last)
 * for the tile's rows that follow the last sequence. first_row() gives the tile's first row, whenever it is asked; tile: how
 * many it has.
 */
template <class FirstRow, class Live, class Padding>
__device__ __forceinline__ void for_each_segment(const conv1d_params &p, u32 tile, FirstRow first_row, Live live,
                                                 Padding padding)
{
    u32 total = 0;
    if (p.num_seqs != 0) {
        const u32 tile_begin = first_row();
        segment s = segment_of(p, find_sequence(p, tile_begin, 0), tile_begin, end_of_tile(p, tile_begin, tile));
        for (;;) {
            if (s.first < s.last) {
                const line_pair lines = find_lines(p, s.n);
                if (!is_inert(lines)) live(s, lines);
            }
            const u32 begin = first_row(), end = end_of_tile(p, begin, tile);
            if (s.end >= end) return;
            if (s.n + 1 >= (u32)p.num_seqs) break;
            s = next_segment(p, s, begin, end);
        }
        total = s.end;
    }
    if constexpr (spec::ZERO_PADDING) padding(max(first_row(), total), end_of_tile(p, first_row(), tile));
}
