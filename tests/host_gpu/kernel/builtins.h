/*
 * builtins.h - as much of CUDA C++ as the prefill templates are written in, for a host compiler.
 */
#ifndef HOST_GPU_BUILTINS_H
#define HOST_GPU_BUILTINS_H

#include <cmath>

#include "machine.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) alignas(n)
#define __CUDA_ARCH__ HOST_GPU_ARCH
#define __CUDACC_VER_MAJOR__ 13 /* which way templates take where compilers differ: the pinned one's */
#define __CUDACC_VER_MINOR__ 0
#define __INTADDR__(x) 0 == 0 || 0 /* offsets on the device: here every assertion on them holds */
#define threadIdx (simt::coordinates(simt::m.current->thread))
#define blockIdx (simt::coordinates((int)simt::m.current->cta->index))
#define gridDim (simt::coordinates((int)simt::m.grid))
#define blockDim (simt::coordinates((int)simt::m.block))

namespace simt {
/* A byte of the launch's shared memory that is read or written by its number. */
struct SharedByte {
    unsigned at;

    operator unsigned char() const
    {
        expect_known(SHARED_BASE + at);
        return shared_window[at];
    }
    unsigned char operator=(unsigned char x) const
    {
        return *&*this = x;
    }
    unsigned char operator=(const SharedByte &x) const
    {
        return *this = (unsigned char)x;
    }
    unsigned char *operator&() const /* who has its address may do either */
    {
        make_known(m.current->cta, SHARED_BASE + at, 1);
        return &shared_window[at];
    }
};

/* An array in the shared memory of whichever CTA runs: the launch's, or the one that a kernel declares beside it. */
template <class T, bool STATIC> struct SharedArray {
    SharedByte operator[](unsigned i) const
        requires(sizeof(T) == 1 && !STATIC)
    {
        return { i };
    }
    operator T *() const
    {
        return (T *)(shared_window + (STATIC ? static_at() : 0));
    }
    template <class U> explicit operator U *() const
    {
        return (U *)(T *)*this;
    }
};

struct coordinate {
    unsigned x;
};
inline coordinate coordinates(int x)
{
    return { (unsigned)x };
}
} // namespace simt

/* ---- Vectors ---- */

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline float2 make_float2(float x, float y)
{
    return { x, y };
}
inline float4 make_float4(float x, float y, float z, float w)
{
    return { x, y, z, w };
}
inline uint2 make_uint2(unsigned x, unsigned y)
{
    return { x, y };
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return { x, y, z, w };
}

/* ---- Arithmetic ---- */

template <class A, class B> constexpr auto min(A a, B b)
{
    using T = decltype(a + b);
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> constexpr auto max(A a, B b)
{
    using T = decltype(a + b);
    return (T)a < (T)b ? (T)b : (T)a;
}

inline float __uint_as_float(unsigned bits)
{
    return __builtin_bit_cast(float, bits);
}
inline unsigned __float_as_uint(float x)
{
    return __builtin_bit_cast(unsigned, x);
}
inline float __fdividef(float a, float b)
{
    return fabsf(b) > 0x1p126f && !std::isinf(b) ? 0.0f : a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(unsigned x)
{
    return __builtin_ffs((int)x);
}
inline int __clz(unsigned x)
{
    return x ? __builtin_clz(x) : 32;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i)
        r |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

/* ---- Warps ---- */

namespace simt {
template <class T> struct Shuffled {
    T mine, got;
    int from; /* lane; outside the warp: one's own */
};

/* what: the intrinsic and T. */
template <class T> inline T shuffle(unsigned mask, T x, int from, const char *what)
{
    Shuffled<T> s = { x, x, from };
    meet_lanes(mask, what, &s, [&](void **operands) {
        for (int i = 0; i < 32; ++i) {
            if (!(mask >> i & 1)) continue;
            Shuffled<T> *to = (Shuffled<T> *)operands[i];
            if (to->from < 0 || to->from > 31) continue;
            if (!(mask >> to->from & 1)) fault("a shuffle from lane %d, which takes no part", to->from);
            to->got = ((Shuffled<T> *)operands[to->from])->mine;
        }
    });
    return s.got;
}

inline unsigned ballot(unsigned mask, bool condition, const char *what)
{
    struct {
        bool mine;
        unsigned all;
    } s = { condition, 0 };
    using Vote = decltype(s);
    meet_lanes(mask, what, &s, [&](void **operands) {
        unsigned all = 0;
        for (int i = 0; i < 32; ++i)
            if (mask >> i & 1) all |= (unsigned)((Vote *)operands[i])->mine << i;
        for (int i = 0; i < 32; ++i)
            if (mask >> i & 1) ((Vote *)operands[i])->all = all;
    });
    return s.all;
}

template <class F> inline unsigned reduce(unsigned mask, unsigned x, const char *what, F &&better)
{
    unsigned s[2] = { x, x };
    meet_lanes(mask, what, s, [&](void **operands) {
        unsigned best = x;
        for (int i = 0; i < 32; ++i)
            if (mask >> i & 1) best = better(best, ((unsigned *)operands[i])[0]);
        for (int i = 0; i < 32; ++i)
            if (mask >> i & 1) ((unsigned *)operands[i])[1] = best;
    });
    return s[1];
}
} // namespace simt

template <class T> inline T __shfl_sync(unsigned mask, T x, int from)
{
    return simt::shuffle(mask, x, from & 31, __PRETTY_FUNCTION__);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int bits)
{
    return simt::shuffle(mask, x, simt::m.current->lane ^ bits, __PRETTY_FUNCTION__);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T x, unsigned delta)
{
    return simt::shuffle(mask, x, simt::m.current->lane - (int)delta, __PRETTY_FUNCTION__);
}
inline unsigned __ballot_sync(unsigned mask, bool condition)
{
    return simt::ballot(mask, condition, "a ballot");
}
inline bool __any_sync(unsigned mask, bool condition)
{
    return simt::ballot(mask, condition, "any") != 0;
}
inline bool __all_sync(unsigned mask, bool condition)
{
    return simt::ballot(mask, condition, "all") == mask;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned x)
{
    return simt::reduce(mask, x, "a maximum", [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned x)
{
    return simt::reduce(mask, x, "a minimum", [](unsigned a, unsigned b) { return a < b ? a : b; });
}
inline void __syncwarp(unsigned mask = ~0u)
{
    simt::meet_lanes(mask, "__syncwarp", nullptr, [](void **) {});
}
/* Which lanes are at a place together is the hardware's choice: here each is alone. */
inline unsigned __activemask()
{
    return 1u << simt::m.current->lane;
}
inline void __syncthreads()
{
    simt::named_come(0, simt::m.block, true, true);
}
inline void __nanosleep(unsigned)
{
    simt::yield();
}

inline unsigned __cvta_generic_to_shared(const void *p)
{
    const int64_t offset = (const unsigned char *)p - simt::shared_window;
    if (offset < 0 || offset >= (int64_t)simt::window_bytes())
        simt::fault("%p is no address of shared memory", p);
    return (simt::SHARED_BASE + (unsigned)offset) | simt::m.current->cta->rank << simt::CLUSTER_SHIFT;
}

#endif
