/*
 * gdn_launch.cuh - how a kernel begins behind another one that it may run beside (spec::PROGRAMMATIC_LAUNCH).
 *
 * A memset of control words between two kernels would keep them apart. So a call that has such words launches its kernel twice:
 * first in CTAs of CLEARING_THREADS, each thread of which clears a word, and which let the second launch in.
 *
 * CTAs of clusters are let in when the SMs are free, not while the kernel before drains them: then most clusters come to lie on
 * SMs of two TPCs, which hand each other data more slowly (1 x 4096 with 16 heads: 93 us instead of 79, an H200).
 */
#pragma once

#include "gdn_params.cuh"

/*
 * By every thread, before the first access to global memory, reads and writes. A kernel that is launched programmatically may
 * run beside the one before it: here it waits until that one has ended and its writes are visible. A CTA that went without
 * could let this kernel end, and the next one start, while the previous one still runs.
 */
__device__ __forceinline__ void wait_for_previous_kernel()
{
    if constexpr (spec::PROGRAMMATIC_LAUNCH) asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* As the conv, whose host build has its own: kernels launched after this one programmatically may be scheduled from here on. */
__device__ __forceinline__ void launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;");
}

/* First of all, by every thread: whether this launch is there to clear words, and has done so. */
template <bool CLUSTERS> __device__ __forceinline__ bool clears_control(const prefill_params &p)
{
    static_assert(spec::THREADS != spec::CLEARING_THREADS, "they are told apart by it");
    if constexpr (spec::PROGRAMMATIC_LAUNCH) {
        if (blockDim.x != spec::CLEARING_THREADS) return false;
        if (!CLUSTERS) launch_dependents();
        wait_for_previous_kernel(); /* which may have these words still */
        if (CLUSTERS) launch_dependents();
        p.control[blockIdx.x * spec::CLEARING_THREADS + threadIdx.x] = 0;
        return true;
    }
    return false;
}
