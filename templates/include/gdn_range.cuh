/*
 * gdn_range.cuh - 16-bit operand A from fp32 accumulators without leaving fp16's range.
 *
 * The rows of an accumulator tile are value columns, and the products that follow are linear in each row, so a row may be
 * scaled by a power of two before it is rounded and its product scaled back after: exact, whatever the magnitude of v or of
 * the state. A row within range is packed as it is; the check costs about two instructions a register. Rows of zeros are not
 * told from rows that underflow, and take the slow way. An entry's error is below 2^-35 of its row's largest; where columns
 * have factors that the other operand takes back (in-kernel norms), a row's largest has to be larger by their range.
 */
#pragma once

#include "gdn_ptx_mbar.cuh"
#include "gdn_warp.cuh"

/* Scales of rows g and g + 8 (powers of two): true value = scale * packed value. */
struct RowScale {
    float lo, hi;
    bool used; /* warp-uniform */
};

__device__ __forceinline__ u32 max_abs_f16x2(u32 a, u32 b)
{
    u32 r;
    asm("{\n.reg .b32 m;\nabs.f16x2 m, %2;\nmax.NaN.f16x2 %0, %1, m;\n}" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/*
 * Scales stay above 2^-71: products of other rows are divided by them, and must not overflow before they are multiplied back.
 * What is lost by that lies below 2^-85.
 */
constexpr int SCALE_EXPONENT_MIN = 67; /* biased, of the row's largest */

/* 2^-10 of the power of two at or below x; 1 for zero, inf, NaN. */
__device__ __forceinline__ float scale_for(float x)
{
    int e = (int)(__float_as_uint(x) >> 23); /* biased; x >= 0 */
    if (x == 0.0f || e >= 255) return 1.0f;
    e = e < SCALE_EXPONENT_MIN ? SCALE_EXPONENT_MIN : e;
    return __uint_as_float((u32)(e - 10) << 23);
}

/* 1 / s of a power of two whose inverse is normal. */
__device__ __forceinline__ float inverse_scale(float s)
{
    return __uint_as_float((254u << 23) - __float_as_uint(s));
}

/* As of a tile in one piece (gdn_warp.cuh). */
template <int BLOCKS> __device__ __forceinline__ void scale_rows(float (&x)[BLOCKS][4], float lo, float hi)
{
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n)
        scale_rows(x[n], lo, hi);
}

template <int BLOCKS>
__device__ __forceinline__ void pack_rows_f16(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4], float lo, float hi)
{
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n) {
        packed[n][0] = pack_f16x2(x[n][0] * lo, x[n][1] * lo);
        packed[n][1] = pack_f16x2(x[n][2] * hi, x[n][3] * hi);
    }
}

template <int BLOCKS> __device__ __forceinline__ RowScale rescale(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4])
{
    float lo = 0.0f, hi = 0.0f;
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n) {
        lo = fmaxf(lo, fmaxf(fabsf(x[n][0]), fabsf(x[n][1])));
        hi = fmaxf(hi, fmaxf(fabsf(x[n][2]), fabsf(x[n][3])));
    }
    const float s_lo = scale_for(quad_max(lo)), s_hi = scale_for(quad_max(hi));
    pack_rows_f16(packed, x, inverse_scale(s_lo), inverse_scale(s_hi));
    return { s_lo, s_hi, true };
}

/* Largest |value| a row may have, and the least that its largest may have, to be packed as it is. */
constexpr u32 F16_HIGH = 0x7400; /* 2^14 */
constexpr u32 F16_LOW = 0x2000;  /* 2^-7: entries 2^-7 below it are still normal */

/* low, high: fp16 bits, of rows g and g + 8 in a pair. */
__device__ __forceinline__ bool both_within(u32 pair, u32 low, u32 high)
{
    return (pair & 0xffffu) - low <= high - low && (pair >> 16) - low <= high - low;
}

template <int BLOCKS>
__device__ __forceinline__ RowScale pack_f16(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4], u32 low = F16_LOW)
{
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n) {
        packed[n][0] = pack_f16x2(x[n][0], x[n][1]);
        packed[n][1] = pack_f16x2(x[n][2], x[n][3]);
    }
    u32 lo = 0, hi = 0;
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n) {
        lo = max_abs_f16x2(lo, packed[n][0]);
        hi = max_abs_f16x2(hi, packed[n][1]);
    }
    u32 m =
        max_abs_f16x2(__byte_perm(lo, hi, 0x5410), __byte_perm(lo, hi, 0x7632)); /* low half: row g, high: row g + 8 */
    m = max_abs_f16x2(m, __shfl_xor_sync(~0u, m, 1));
    m = max_abs_f16x2(m, __shfl_xor_sync(~0u, m, 2));
    if (__all_sync(~0u, both_within(m, low, F16_HIGH))) return { 1.0f, 1.0f, false };
    return rescale(packed, x);
}
