/*
 * gdn_hopper_decays.cuh - a chunk's gate table from decays and betas of its tokens. Must not know: which chunk, who makes it.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/*
 * A sum of up to 64 log2 decays in two parts: high, of multiples of 2^-6, which floats add up without rounding, and low, of at
 * most 2^-7 a token. Under strong decay a sum reaches thousands, where half a float's ulp would be an error of up to 2^-11 in
 * the decay between neighbours; of these it is 2^-25. Not double: DADD waits for the tensor cores.
 */
struct Sum {
    float high, low;

    __device__ __forceinline__ float value() const
    {
        return high + low;
    }
};

__device__ __forceinline__ Sum split(float decay)
{
    constexpr float ROUNDS = 1.5f * (1 << 17); /* of which 2^-6 is an ulp */
    const float high = (decay + ROUNDS) - ROUNDS;
    return { high, decay - high };
}

__device__ __forceinline__ Sum operator+(Sum a, Sum b)
{
    return { a.high + b.high, a.low + b.low };
}

__device__ __forceinline__ Sum operator-(Sum a, Sum b)
{
    return { a.high - b.high, a.low - b.low };
}

__device__ __forceinline__ Sum shuffle(Sum x, int from)
{
    return { __shfl_sync(~0u, x.high, from), __shfl_sync(~0u, x.low, from) };
}

/* Inclusive sums over a chunk of two tokens a lane. */
__device__ __forceinline__ void cumulate(Sum (&c)[2], const float (&decay)[2], int lane)
{
    const Sum second = split(decay[1]);
    Sum sum = split(decay[0]) + second;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const Sum other = { __shfl_up_sync(~0u, sum.high, d), __shfl_up_sync(~0u, sum.low, d) };
        if (lane >= d) sum = sum + other;
    }
    c[0] = sum - second;
    c[1] = sum;
}

/* Power of two s such that beta / s has its largest magnitude in [1, 2); 1 while that lies in [2^-6, 2^4]. */
__device__ __forceinline__ float beta_scale(float b0, float b1)
{
    b0 = fabsf(b0);
    b1 = fabsf(b1);
    const float low = 1.0f / 64, high = 16.0f;
    if (__any_sync(~0u, b0 >= low || b1 >= low) && !__any_sync(~0u, b0 > high || b1 > high)) return 1.0f;
    const float largest = warp_max(b0, b1);
    const int e = (int)(__float_as_uint(largest) >> 23);
    return largest == 0.0f || e >= 255 ? 1.0f : __uint_as_float((u32)max(e, 1) << 23);
}

/* fp16 bits of the largest |W| for which V' and d V' surely stay in range; growth above 1 comes from positive gates. */
__device__ __forceinline__ u32 w_limit(float d0, float d1)
{
    constexpr u32 F16_256 = 0x5c00;
    if (!__any_sync(~0u, d0 > 1.0f || d1 > 1.0f)) return F16_256;
    return pack_f16x2(__fdividef(256.0f, warp_max(fmaxf(d0, 1.0f), d1)), 0.0f);
}

/* Bands by one piece of code, where all of a kernel's does not fit the instruction cache, or one each, which is quicker. */
constexpr int BANDS_AT_ONCE = spec::BLOCK_DV == 64 && !spec::IMAGES ? 3 : 1;

/* The tables of one chunk from log2 decay and beta of its tokens, two a lane. */
__device__ __forceinline__ void store_gates(u32 table, const float (&decay)[2], const float (&b)[2], float scale_q,
                                            int lane)
{
    Sum c[2];
    cumulate(c, decay, lane);
    {
        const u32 to = table + pair_at(lane);
        const Sum total = shuffle(c[1], 31);
        const float e0 = exp2_approx(c[0].value()), e1 = exp2_approx(c[1].value());
        const float d0 = exp2_approx((total - c[0]).value()), d1 = exp2_approx((total - c[1]).value());
        const float scale = BETA_IN_T ? beta_scale(b[0], b[1]) : 1.0f,
                    inverse_scale = __uint_as_float((254u << 23) - __float_as_uint(scale));
        const u32 limit = w_limit(d0, d1);
        constexpr bool PLAIN = BETA_IN_T || spec::IMAGES; /* or beta stands in X */
        store_shared(to + DECAY_IN, PLAIN ? e0 : e0 * b[0], PLAIN ? e1 : e1 * b[1]);
        store_shared(to + DECAY_IN_Q, e0 * scale_q, e1 * scale_q);
        store_shared(to + DECAY_OUT, d0, d1);
        store_shared(to + BETA, b[0] * inverse_scale, b[1] * inverse_scale);
        if (lane == 31) {
            store_shared(table + DECAY_ALL, e1);
            store_shared(table + W_LIMIT, scale == 1.0f ? limit : 0u);
            store_shared(table + BETA_SCALE, scale);
        }
    }
    {
        const Sum anchor = shuffle(c[0], lane & 24);
        const float r0 = (c[0] - anchor).value(), r1 = (c[1] - anchor).value();
        store_shared(table + BAND_LOG + 8 * lane, r0, r1);
    }
#pragma unroll(BANDS_AT_ONCE)
    for (int band = 1; band < 4; ++band) {
        const Sum anchor = shuffle(c[0], 8 * band);
        const float r0 = exp2_approx((anchor - c[0]).value()), r1 = exp2_approx((anchor - c[1]).value());
        if (lane < 8 * band) store_shared(table + COLUMN_DECAY + 16 * band * (band - 1) + 4 * lane, pack_f16x2(r0, r1));
    }
}

/* The table of a chunk of few tokens, likewise. */
__device__ __forceinline__ void store_few(u32 table, const float (&decay)[2], const float (&b)[2], int lane)
{
    const u32 to = table + FEW_GATES + 16 * lane;
    if (2 * lane >= FEW_TOKENS) return;
    store_shared(to, exp2_approx(decay[0]), b[0]);
    store_shared(to + 8, exp2_approx(decay[1]), b[1]);
}

/* What a chunk's gates are made of, as bits, two tokens a lane. */
struct RawGates {
    RawGate decay[2], beta[2];

    /* from: at the first of them, which is `token` of the sequence's len. */
    __device__ __forceinline__ void fetch(const prefill_params &p, const GateReader &from, int token, int len)
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            decay[i] = from.raw_decay(p, i, token + i < len);
            beta[i] = from.raw_beta(p, i, token + i < len);
        }
    }
};

/* Log2 decays and betas of these. */
struct TokenGates {
    float decay[2], beta[2];

    __device__ __forceinline__ TokenGates(const GateReader &rates, const RawGates &raw)
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            decay[i] = rates.log2_decay(raw.decay[i]);
            beta[i] = GateReader::beta_of(raw.beta[i]);
        }
    }
};
