/*
 * gdn_ptx_mbar.cuh - mbarriers, named barriers and cp.async completion, one instruction a function (sm_80 and up).
 *
 * Phases: a barrier starts in phase 0. wait(bar, parity) returns once the phase of that parity has completed, so a consumer of
 * use number n waits with n & 1, and a producer that fills a slot for the n-th time waits with (n & 1) ^ 1, which returns at
 * once for n = 0.
 */
#pragma once

#include "gdn_types.cuh"

/* A position in a ring of SIZE slots, each with a barrier; parity, of its phase, flips at each wrap. */
template <int SIZE> struct Ring {
    int slot;
    u32 parity;

    __device__ __forceinline__ void advance()
    {
        if (++slot == SIZE) {
            slot = 0;
            parity ^= 1;
        }
    }
};

__device__ __forceinline__ u32 smem_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

/*
 * A checked build of the library (CMake's GDN_CHECKED_KERNELS) is for tests: warps dawdle at barriers, up to 4 us at one in
 * eight, so that orders of events come up that a usual run never shows; and where one lane arrives for its warp, all do, which
 * racecheck can follow.
 */
#ifdef GDN_CHECKED
constexpr int ARRIVALS_PER_WARP = 32;

__device__ __forceinline__ void dawdle()
{
    u32 x, warp;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(x));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    x = (x ^ warp << 7) * 0x9e3779b1u;
    x ^= x >> 15;
    if ((x & 7) == 0) asm volatile("nanosleep.u32 %0;" ::"r"(x >> 20));
}
#else
constexpr int ARRIVALS_PER_WARP = 1;

__device__ __forceinline__ void dawdle()
{
}
#endif

__device__ __forceinline__ void mbar_init(u32 bar, u32 count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_arrive(u32 bar)
{
    dawdle();
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.shared.b64 t, [%0];\n}" ::"r"(bar) : "memory");
}

/* Arrives when this thread's earlier cp.async copies have landed; does not raise the expected count. */
__device__ __forceinline__ void mbar_arrive_cp_async(u32 bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}

/*
 * A look that may sleep: no poll. On sm_90 and up a warp that is told how long (10 ms, in ns) does, between two looks; without,
 * it looks again and again where other warps want to issue and shared memory is busy (docs/prefill_hopper.md, "Facts").
 */
__device__ __forceinline__ bool mbar_passed(u32 bar, u32 parity)
{
    u32 done;
    asm volatile(
#if __CUDA_ARCH__ >= 900
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2, 10000000;\nselp.b32 %0, 1, 0, p;\n}"
#else
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
#endif
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void mbar_wait(u32 bar, u32 parity)
{
    while (!mbar_passed(bar, parity)) {
    }
    dawdle();
}

/* Arrives, and waits for the others of the same phase, whichever it is: bar.sync's meaning. */
__device__ __forceinline__ void mbar_meet(u32 bar)
{
    u64 phase;
    u32 done = 0;
    dawdle();
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(phase) : "r"(bar) : "memory");
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "l"(phase)
                     : "memory");
}

/* A warp's arrival, after whatever its lanes did: ARRIVALS_PER_WARP in the barrier's count. */
__device__ __forceinline__ void mbar_arrive_warp(u32 bar, int lane)
{
    __syncwarp();
    if (ARRIVALS_PER_WARP == 32 || lane == 0) mbar_arrive(bar);
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most N of this thread's last groups are on their way. */
template <int N> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Named barrier 1 to 15 over `threads` threads (whole warps). */
__device__ __forceinline__ void bar_sync(int id, int threads)
{
    dawdle();
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* The same; whether the condition holds in all of them. */
__device__ __forceinline__ bool bar_all(int id, int threads, bool condition)
{
    u32 all;
    dawdle();
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 q, %3, 0;\nbarrier.red.and.pred p, %1, %2, q;\nselp.b32 %0, 1, 0, p;\n}"
        : "=r"(all)
        : "r"(id), "r"(threads), "r"((u32)condition)
        : "memory");
    return all != 0;
}

/* Counts this warp in without waiting. */
__device__ __forceinline__ void bar_arrive(int id, int threads)
{
    dawdle();
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
