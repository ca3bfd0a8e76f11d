/*
 * gdn_types.cuh - element types as raw bits, and conversions that round to nearest even.
 *
 * bf16 and fp16 are told apart by spec::IO_BF16 (gdn_spec.cuh). Pairs travel as one 32-bit register, low half first.
 */
#pragma once

#include "gdn_spec.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ __forceinline__ u32 pack_bf16x2(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

__device__ __forceinline__ u32 pack_f16x2(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* As an instruction: a compiler that sees a shift may keep the 16 bits in its place, and shift at every use. */
__device__ __forceinline__ float bf16_to_float(u16 bits)
{
    float f;
    asm("mov.b32 %0, {%1, %2};" : "=f"(f) : "h"((u16)0), "h"(bits));
    return f;
}

__device__ __forceinline__ float f16_to_float(u16 bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
}

__device__ __forceinline__ float f16_lo(u32 pair)
{
    return f16_to_float((u16)pair);
}

__device__ __forceinline__ float f16_hi(u32 pair)
{
    return f16_to_float((u16)(pair >> 16));
}

__device__ __forceinline__ u32 multiply_f16x2(u32 a, u32 b)
{
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Two values of the I/O type. */
__device__ __forceinline__ u32 pack_io(float lo, float hi)
{
    if constexpr (spec::IO_BF16)
        return pack_bf16x2(lo, hi);
    else
        return pack_f16x2(lo, hi);
}

__device__ __forceinline__ float io_lo(u32 pair)
{
    if constexpr (spec::IO_BF16)
        return __uint_as_float(pair << 16);
    else
        return f16_to_float((u16)pair);
}

__device__ __forceinline__ float io_hi(u32 pair)
{
    if constexpr (spec::IO_BF16)
        return __uint_as_float(pair & 0xffff0000u);
    else
        return f16_to_float((u16)(pair >> 16));
}

/* ---- Arrays whose element type is a constant of the spec, numbered as gdn_dtype ---- */

enum { TYPE_BF16 = 1, TYPE_F16 = 2, TYPE_F32 = 3 };

template <int TYPE> __device__ __forceinline__ u32 load_bits(const void *base, i64 index)
{
    if constexpr (TYPE == TYPE_F32)
        return ((const u32 *)base)[index];
    else
        return ((const u16 *)base)[index];
}

template <int TYPE> __device__ __forceinline__ float element_of_bits(u32 bits)
{
    if constexpr (TYPE == TYPE_F16)
        return f16_to_float((u16)bits);
    else if constexpr (TYPE == TYPE_BF16)
        return bf16_to_float((u16)bits);
    else
        return __uint_as_float(bits);
}

template <int TYPE> __device__ __forceinline__ float load_element(const void *base, i64 index)
{
    return element_of_bits<TYPE>(load_bits<TYPE>(base, index));
}

template <int TYPE> __device__ __forceinline__ void store_element(void *base, i64 index, float x)
{
    if constexpr (TYPE == TYPE_F32)
        ((float *)base)[index] = x;
    else
        ((u16 *)base)[index] = (u16)(TYPE == TYPE_BF16 ? pack_bf16x2(x, 0.0f) : pack_f16x2(x, 0.0f));
}

template <bool I64> __device__ __forceinline__ i64 load_index(const void *base, i64 index)
{
    if constexpr (I64)
        return ((const i64 *)base)[index];
    else
        return ((const int *)base)[index];
}
