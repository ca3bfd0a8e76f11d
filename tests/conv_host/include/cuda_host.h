/*
 * cuda_host.h - as much of CUDA C++ as templates/conv1d_qkv.cu is written in, for a host compiler: one thread at a time, its
 * coordinates in two variables.
 */
#ifndef CUDA_HOST_H
#define CUDA_HOST_H

#include <cmath>
#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct host_dim3 {
    unsigned x, y, z;
};
static host_dim3 blockIdx, threadIdx;

/* Accesses that a GPU would fault on, since the counter was last cleared. */
static int misaligned;

static inline const void *aligned_to(const void *at, unsigned bytes)
{
    if ((uintptr_t)at % bytes) ++misaligned;
    return at;
}

template <class T>
static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <class T>
static inline T max(T a, T b)
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

/* Subnormal results are zero, as .ftz says. */
static inline float flushed(float x)
{
    return std::fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}

#endif
