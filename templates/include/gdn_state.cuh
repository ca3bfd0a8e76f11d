/*
 * gdn_state.cuh - a head's state in a pool: where its elements are, and the tokens after which it is also stored (checkpoints).
 *
 * Owns layout, element type and line strides of initial_state and final_state. Must not know which thread holds what.
 */
#pragma once

#include "gdn_sequence.cuh"

/* Elements 2 pair and 2 pair + 1 of an array that is aligned to two of them. */
template <int TYPE> __device__ __forceinline__ void load_pair(float &a, float &b, const void *base, i64 pair)
{
    if constexpr (TYPE == TYPE_F32) {
        const float2 x = ((const float2 *)base)[pair];
        a = x.x;
        b = x.y;
    } else {
        const u32 bits = ((const u32 *)base)[pair];
        a = element_of_bits<TYPE>(bits & 0xffffu);
        b = element_of_bits<TYPE>(bits >> 16);
    }
}

template <int TYPE> __device__ __forceinline__ void store_pair(void *base, i64 pair, float a, float b)
{
    if constexpr (TYPE == TYPE_F32)
        ((float2 *)base)[pair] = make_float2(a, b);
    else
        ((u32 *)base)[pair] = TYPE == TYPE_BF16 ? pack_bf16x2(a, b) : pack_f16x2(a, b);
}

/* One head's DK x DV matrix in memory. */
template <typename T> struct StateAt {
    T *base;
    i64 offset; /* elements, of its first */

    /* Rows are keys, columns are values. */
    __device__ __forceinline__ i64 index(int dk, int dv) const
    {
        return offset + (spec::STATE_KV ? dk * spec::DV + dv : dv * spec::DK + dk);
    }
    __device__ __forceinline__ float load(int dk, int dv) const
    {
        return load_element<spec::STATE_TYPE>(base, index(dk, dv));
    }
    __device__ __forceinline__ void store(int dk, int dv, float x) const
    {
        store_element<spec::STATE_TYPE>(base, index(dk, dv), x);
    }
    /* The same, counted from an element, whose key is even: a thread's elements are constants away from its first one. */
    __device__ __forceinline__ StateAt beginning_at(int dk, int dv) const
    {
        return { base, index(dk, dv) };
    }
    /* Of keys dk, which is even, and dk + 1: one access where they are neighbours, since lines are aligned to 16 bytes. */
    __device__ __forceinline__ void load_pair(float &a, float &b, int dk, int dv) const
    {
        if constexpr (spec::STATE_KV) {
            a = load(dk, dv);
            b = load(dk + 1, dv);
        } else {
            ::load_pair<spec::STATE_TYPE>(a, b, base, pair(dk, dv));
        }
    }
    __device__ __forceinline__ void store_pair(int dk, int dv, float a, float b) const
    {
        if constexpr (spec::STATE_KV) {
            store(dk, dv, a);
            store(dk + 1, dv, b);
        } else {
            ::store_pair<spec::STATE_TYPE>(base, pair(dk, dv), a, b);
        }
    }

  private:
    __device__ __forceinline__ i64 pair(int dk, int dv) const
    {
        static_assert(spec::STATE_KV || spec::DK % 2 == 0, "rows of pairs");
        return (i64)((u64)offset / 2) + dv * (spec::DK / 2) + (u32)dk / 2;
    }
};

__device__ __forceinline__ StateAt<const void> initial_state(const prefill_params &p, i64 line, int head)
{
    return { p.initial_state, line * p.initial_slot_stride + (i64)head * (spec::DK * spec::DV) };
}

__device__ __forceinline__ StateAt<void> final_state(const prefill_params &p, i64 line, int head)
{
    return { p.final_state, line * p.final_slot_stride + (i64)head * (spec::DK * spec::DV) };
}

/*
 * A walk over one sequence's checkpoints, by a warp, all of whose lanes know the same. Rows { sequence, token_end, slot } are
 * sorted, negative sequences last, so that a search finds the first one; inert rows are stepped over.
 */
struct Checkpoints {
    int row;
    int chunk; /* the state is stored after this many chunks; -1: no more */
    i64 line;

    Checkpoints() = default;
    __device__ __forceinline__ Checkpoints(const prefill_params &p, const Sequence &s, int n)
    {
        chunk = -1;
        if constexpr (spec::CHECKPOINTS) {
            row = first_of(p, n);
            settle(p, s, n);
        }
    }
    /* On to the next live row. */
    __device__ __forceinline__ void advance(const prefill_params &p, const Sequence &s, int n)
    {
        ++row;
        settle(p, s, n);
    }

  private:
    /* 32 rows are looked at at a time: a call's first chunk waits for it. */
    __device__ __forceinline__ static int first_of(const prefill_params &p, int n)
    {
        const int count = p.checkpoints ? p.num_checkpoints : 0, lane = threadIdx.x % 32;
        i64 before = 0, step = 1; /* rows known to be of sequences before n; of the next step * 32 the last may be */
        while (step * 32 < count)
            step *= 32;
#pragma unroll 1
        for (; step > 0; step /= 32) {
            const i64 last = before + step * (lane + 1) - 1;
            before += step * __popc(__ballot_sync(~0u, last < count && (u64)p.checkpoints[3 * last] < (u64)n));
        }
        return (int)before;
    }

    __device__ __forceinline__ void settle(const prefill_params &p, const Sequence &s, int n)
    {
        chunk = -1;
        for (; p.checkpoints && row < p.num_checkpoints; ++row) {
            const i64 *r = p.checkpoints + 3ll * row;
            if (r[0] != n) return;
            if (r[1] <= 0 || r[1] > s.len || r[1] % spec::CHUNK != 0 || r[2] < 0) continue;
            chunk = (int)(r[1] / spec::CHUNK);
            line = r[2];
            return;
        }
    }
};
