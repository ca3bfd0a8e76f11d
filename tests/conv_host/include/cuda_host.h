/*
 * cuda_host.h - as much of CUDA C++ as templates/conv1d_qkv.cu is written in, for a host compiler.
 */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <cmath>
#include <cstdint>
#include <cstring>

#include "conv_host.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define blockIdx conv_host_block
#define threadIdx conv_host_thread_index

static inline const void *aligned_to(const void *at, unsigned bytes)
{
    if ((uintptr_t)at % bytes) conv_host_fault();
    return at;
}

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float __uint_as_float(unsigned bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline unsigned __float_as_uint(float f)
{
    unsigned bits;
    memcpy(&bits, &f, sizeof f);
    return bits;
}

/* Subnormal results are zero, as .ftz says. */
static inline float flushed(float x)
{
    return std::fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}

#endif
