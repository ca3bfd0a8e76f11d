/*
 * gdn_conv.cuh - the instructions that the conv kernel wants by name: streaming loads of activations, and SiLU's parts.
 *
 * Nothing here knows the convolution. What needs inline PTX stands here or in gdn_types.cuh: a host build of the kernel
 * (tests/conv_host) replaces these and the generated headers, and nothing else.
 */
#pragma once

#include "gdn_types.cuh"

/* 8 channels of one token, two to a register, lower channel in the low half. */
struct alignas(16) vec8 {
    u32 pair[4];
};

/*
 * Loads of data that the kernel never writes, in pieces of as many bytes as the address is aligned to. volatile keeps
 * them where the source has them: early, before anything that waits. A 16-byte load takes whole sectors, and keeping
 * the line in L1 would only push weights out; narrower pieces come back to the same sectors and want it there.
 */
template <int PIECE>
__device__ __forceinline__ vec8 load_activations(const u16 *at);

template <>
__device__ __forceinline__ vec8 load_activations<16>(const u16 *at)
{
    vec8 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
                 : "l"(at));
    return v;
}

template <>
__device__ __forceinline__ vec8 load_activations<8>(const u16 *at)
{
    vec8 v;
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.pair[i]), "=r"(v.pair[i + 1]) : "l"(at + 2 * i));
    return v;
}

template <>
__device__ __forceinline__ vec8 load_activations<4>(const u16 *at)
{
    vec8 v;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v.pair[i]) : "l"(at + 2 * i));
    return v;
}

template <>
__device__ __forceinline__ vec8 load_activations<2>(const u16 *at)
{
    vec8 v;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        u16 lo, hi;
        asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(lo) : "l"(at + 2 * i));
        asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(hi) : "l"(at + 2 * i + 1));
        v.pair[i] = lo | (u32)hi << 16;
    }
    return v;
}

/* Ordinary 16-byte accesses, ordered with each other: for the state, which is read and then written. */
__device__ __forceinline__ vec8 load_vec8(const vec8 *at)
{
    vec8 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
                 : "l"(at)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store_vec8(vec8 *at, const vec8 &v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(at), "r"(v.pair[0]), "r"(v.pair[1]), "r"(v.pair[2]), "r"(v.pair[3])
                 : "memory");
}

/* 2^x; below -126 it gives 0. */
__device__ __forceinline__ float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within one unit in the last place; 0 where the quotient is subnormal, and for infinity. */
__device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The larger, and NaN when either is NaN. */
__device__ __forceinline__ float max_nan(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
