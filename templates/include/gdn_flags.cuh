/*
 * gdn_flags.cuh - words in global memory by which CTAs of one launch hand data to each other, one instruction a function.
 *
 * Writer: every thread stores its data, the writers meet at a CTA barrier, one of them calls signal(). Reader: lanes peek() at
 * words, each one that saw what it waits for calls acquire(), and a barrier of the warp or the CTA orders what other lanes read
 * after it. Both orders are cumulative: a release carries what the barrier has ordered before it, an acquire what the barrier
 * orders after it.
 */
#pragma once

#include "gdn_types.cuh"

__device__ __forceinline__ void signal(u32 *word, u32 value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/* Orders nothing by itself: acquire() comes after it. */
__device__ __forceinline__ u32 peek(const u32 *word)
{
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

/* A peek() and an acquire() in one, of this word alone, which costs less than a fence. */
__device__ __forceinline__ u32 peek_acquire(const u32 *word)
{
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

/* What was written before the signal()s that earlier peek()s of this thread have seen is visible to its later reads. */
__device__ __forceinline__ void acquire()
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

__device__ __forceinline__ u32 take_ticket(u32 *counter)
{
    u32 ticket;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(counter) : "memory");
    return ticket;
}

/* What was there before. */
__device__ __forceinline__ u32 fetch_or(u32 *word, u32 bits)
{
    u32 before;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bits) : "memory");
    return before;
}

/* This thread's earlier writes, and what a barrier ordered before it, are visible to who acquires a later add_to() of it. */
__device__ __forceinline__ void release()
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* Orders nothing by itself: release() comes before it. */
__device__ __forceinline__ void add_to(u32 *word, u32 value)
{
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ void raise(u32 *word, u32 value)
{
    asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
