/*
 * gdn_sequence.cuh - where one sequence of a prefill call lies: rows, state lines, heads; and the rows that lie in none.
 *
 * Owns the conventions of cu_seqlens, slots and head maps. Must not know tiles, chunks or warps.
 */
#pragma once

#include "gdn_params.cuh"
#include "gdn_types.cuh"

struct Sequence {
    i64 batch, first; /* row t of the sequence is row first + t of batch `batch` */
    int len;
    i64 from, to;    /* lines of initial_state and final_state */
    bool inert;      /* nothing of it is read or written */
    bool from_zeros; /* `from` is not read */
};

__device__ __forceinline__ Sequence find_sequence(const prefill_params &p, int n)
{
    Sequence s;
    i64 len = p.uniform_len;
    s.batch = n;
    s.first = 0;
    if (p.cu_seqlens) {
        s.batch = 0;
        s.first = load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n);
        len = load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n + 1) - s.first;
    }
    s.len = len > 0 ? (int)len : 0;
    s.from = p.slot_in ? load_index<spec::SLOT_I64>(p.slot_in, (i64)n * p.slot_in_stride) : n;
    s.to = p.slot_out ? load_index<spec::SLOT_I64>(p.slot_out, (i64)n * p.slot_out_stride) : s.from;
    s.inert = s.from < 0 || s.to < 0;
    s.from_zeros = !p.initial_state || (p.has_initial_state && !p.has_initial_state[n]);
    return s;
}

/*
 * a / b of numbers below 2^21, more than heads there may be: (a + 1/2) / b is 1 / 2b or more from the next whole number, and
 * less than that wrong, by 2^-22 of itself. A third of what dividing integers takes, which a kernel's first loads wait for.
 */
__device__ __forceinline__ int quotient(int a, int b)
{
    return (int)__fdividef((float)a + 0.5f, (float)b);
}

/* The same of any number that is not negative by one that the host knows (codegen/division.h). */
__device__ __forceinline__ int divided(int a, int magic, int shift)
{
    return (int)((u64)(u32)a * (u32)magic >> shift);
}

/* The head of q, k or v that state head h reads: h / div % mod, of which one does nothing: div is 1, or h / div below mod. */
__device__ __forceinline__ int head_of(int h, int div, int mod)
{
    const int head = quotient(h, div == 1 ? mod : div);
    return div == 1 ? h - head * mod : head;
}

/* Element of a tensor where the sequence's first row of a head begins. */
__device__ __forceinline__ i64 row_offset(const Sequence &s, int head, i64 batch_stride, i64 token_stride,
                                          i64 head_stride)
{
    return s.batch * batch_stride + s.first * token_stride + head * head_stride;
}

/* The first row of o that no sequence has. Where there are cu_seqlens. */
__device__ __forceinline__ i64 first_of_padding(const prefill_params &p)
{
    return load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, p.num_seqs);
}

/*
 * Zeros in columns column0..+COLUMNS of a head of o, rows past the last sequence, by `threads` threads. Work is dealt out by
 * the sequence that a CTA is there for; a call without any has one CTA a head, of n = 0.
 */
template <int COLUMNS>
__device__ __forceinline__ void zero_padding(const prefill_params &p, int n, int head, int column0, int thread,
                                             int threads)
{
    constexpr int PIECES = COLUMNS / 8;
    if (!p.cu_seqlens) return;
    const int rows = threads / PIECES;
    const i64 step = (i64)max(p.num_seqs, 1) * rows, pitch = step * p.o_token_stride;
    i64 row = first_of_padding(p) + (i64)n * rows + thread / PIECES;
    u16 *o = (u16 *)p.o + row * p.o_token_stride + head * p.o_head_stride + column0 + thread % PIECES * 8;
#pragma unroll 1
    for (; row < p.num_tokens; row += step, o += pitch)
        *(uint4 *)o = make_uint4(0, 0, 0, 0);
}
