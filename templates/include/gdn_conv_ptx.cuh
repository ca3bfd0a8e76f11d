/*
 * gdn_conv_ptx.cuh - the instructions that the conv kernel wants by name: copies into shared memory, wide accesses, the parts
 * of SiLU and of the norm.
 *
 * Nothing here knows the convolution. What needs inline PTX stands here or in gdn_types.cuh: a host build of the kernel
 * (tests/conv_host) replaces these and the generated headers, and nothing else.
 */
#ifndef GDN_CONV_PTX_CUH // not a pragma: a host build has its own file of this name
#define GDN_CONV_PTX_CUH

#include "gdn_types.cuh"

/* 16 bytes as they lie in memory. */
struct alignas(16) vec16 {
    u32 word[4];
};

/* The CTA's dynamic shared memory. */
__device__ __forceinline__ vec16 *shared_memory()
{
    extern __shared__ vec16 dynamic_shared[];
    return dynamic_shared;
}

/*
 * Copies of 16 bytes into shared memory, in pieces of as many bytes as the source is aligned to. They arrive in groups, in
 * order: end_group() closes one, wait_but_for<N>() waits for all but the last N of this thread's own. A whole 16-byte piece of
 * a row passes L1 by; narrower ones come back to the same sectors and want them there. Two-byte pieces are ordinary loads: no
 * asynchronous copy is that narrow.
 */
template <int PIECE> __device__ __forceinline__ void copy_16(vec16 *to, const void *from)
{
    const u32 shared = (u32)__cvta_generic_to_shared(to);
    if constexpr (PIECE == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
    else if constexpr (PIECE >= 4)
#pragma unroll
        for (int i = 0; i < 16; i += PIECE)
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared + i), "l"((const u8 *)from + i),
                         "n"(PIECE)
                         : "memory");
    else
#pragma unroll
        for (int i = 0; i < 8; ++i)
            ((u16 *)to)[i] = ((const u16 *)from)[i];
}

/* The same through L1: for what the SM's other CTAs read too. */
__device__ __forceinline__ void copy_16_kept(vec16 *to, const void *from)
{
    const u32 shared = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

__device__ __forceinline__ void end_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void wait_but_for()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Ordinary 16-byte accesses, ordered with each other: for the state, which is read and then written. */
__device__ __forceinline__ vec16 load_16(const void *at)
{
    vec16 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(at)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store_16(void *at, const vec16 &v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(at), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
}

/* The high word of the product. */
__device__ __forceinline__ u32 multiply_high(u32 a, u32 b)
{
    return __umulhi(a, b);
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

/* x^-1/2 with a relative error below 2^-22. */
__device__ __forceinline__ float rsqrt_approx(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The larger, and NaN when either is NaN. */
__device__ __forceinline__ float max_nan(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

/* x, computed here and now: the compiler must not put it off into a loop, again and again, to save a register. */
__device__ __forceinline__ float in_register(float x)
{
    float y;
    asm volatile("mov.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x, of which the compiler knows nothing: what follows from it is computed again, not kept in registers all the while. */
__device__ __forceinline__ u32 afresh(u32 x)
{
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ u64 afresh(u64 x)
{
    asm volatile("" : "+l"(x));
    return x;
}

/* Whether it holds in all 32 lanes of the warp, which all take part. */
__device__ __forceinline__ bool all_lanes(bool condition)
{
    return __all_sync(0xffffffffu, condition);
}

/* Lanes of a warp that are here at the same time, whichever they are. */
struct lane_group {
    u32 mask, rank, count;
};

__device__ __forceinline__ lane_group lanes_together()
{
    const u32 mask = __activemask();
    return lane_group{ mask, (u32)__popc(mask & ((1u << threadIdx.x % 32) - 1)), (u32)__popc(mask) };
}

/* All of them take part. */
__device__ __forceinline__ bool any_of(const lane_group &lanes, bool condition)
{
    return __any_sync(lanes.mask, condition);
}

/* Of the lane whose number differs in the bits of `mask`. All 32 lanes of the warp take part. */
__device__ __forceinline__ float shuffle_xor(float x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}

/* Kernels launched after this one with programmatic stream serialization may be scheduled from here on. */
__device__ __forceinline__ void launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;");
}

#endif
