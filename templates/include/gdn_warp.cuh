/*
 * gdn_warp.cuh - sums and maxima over the lanes of a warp, or of the four that have one row of a fragment; such rows, scaled;
 * what a lane keeps.
 */
#pragma once

#include "gdn_types.cuh"

/* x, which a compiler then has in a register rather than makes it anew where it is needed. */
__device__ __forceinline__ u32 pinned(u32 x)
{
    return __shfl_xor_sync(~0u, x, 0);
}

/* In all lanes. */
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int d = 16; d; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* Of the lanes up to this one. */
__device__ __forceinline__ int sum_up_to(int x, int lane)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, x, d);
        if (lane >= d) x += other;
    }
    return x;
}

/* Largest of a warp's two values a lane, neither negative. */
__device__ __forceinline__ float warp_max(float a, float b)
{
    a = fmaxf(a, b);
#pragma unroll
    for (int d = 16; d; d /= 2)
        a = fmaxf(a, __shfl_xor_sync(~0u, a, d));
    return a;
}

/* Of four neighbours. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Rows g and g + 8 of an accumulator tile times lo and hi. */
template <int N> __device__ __forceinline__ void scale_rows(float (&x)[N], float lo, float hi)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        x[i] *= lo;
        x[i + 1] *= lo;
        x[i + 2] *= hi;
        x[i + 3] *= hi;
    }
}
