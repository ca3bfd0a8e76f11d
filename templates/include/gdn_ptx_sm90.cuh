/*
 * gdn_ptx_sm90.cuh - Hopper's asynchronous instructions, one a function: wgmma's fences, tensor maps (TMA), proxies, register
 * redistribution. The wgmma products themselves are rows of the generator's table (gdn_ptx.cuh).
 */
#pragma once

#include "gdn_ptx_mbar.cuh"

/* ---- wgmma ---- */

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most PENDING of this warpgroup's committed groups are in flight. */
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Accumulators that a wait has completed: no read of theirs may move above it. */
template <int N> __device__ __forceinline__ void settled(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i)
        asm volatile("" : "+f"(x[i]));
}

/*
 * Descriptors of 64-column halves of 16-bit tiles: rows of 128 bytes in 128-byte swizzle, base aligned to 1024.
 * K-major (the product sums along a row): 1024 bytes between groups of 8 rows.
 * MN-major (the product sums over rows): also `next_half` bytes between groups of 64 columns.
 * PTX ISA, "Matrix descriptor": address / 16 in bits 0-13, leading offset / 16 in 16-29, stride / 16 in 32-45, swizzle in
 * 62-63.
 */
__device__ __forceinline__ u64 descriptor(u32 low)
{
    return (u64)0x40000040u << 32 | low;
}

/* In a cluster an address says above bit 24 whose it is, which is no part of a descriptor. */
__device__ __forceinline__ u32 matrix_address(u32 address)
{
    return (spec::IMAGES || spec::TWINS ? address & 0x3ffffu : address) >> 4;
}

__device__ __forceinline__ u32 k_major(u32 address)
{
    return matrix_address(address) | 1u << 16;
}

__device__ __forceinline__ u32 mn_major(u32 address, u32 next_half)
{
    return matrix_address(address) | next_half >> 4 << 16;
}

/* ---- 8 x 8 blocks of 16-bit elements ---- */

__device__ __forceinline__ void stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/* ---- Barriers of asynchronous copies ---- */

__device__ __forceinline__ void mbar_arrive_expect(u32 bar, u32 bytes)
{
    asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.expect_tx.shared.b64 t, [%0], %1;\n}" ::"r"(bar), "r"(bytes)
                 : "memory");
}

/* A warp's arrival, and that so many bytes will come. */
__device__ __forceinline__ void expect_bytes(u32 bar, u32 bytes, int lane)
{
    if (lane == 0)
        mbar_arrive_expect(bar, bytes);
    else if (ARRIVALS_PER_WARP == 32)
        mbar_arrive(bar);
    __syncwarp();
}

/* Whether a phase has completed, without waiting at all (try_wait may). */
__device__ __forceinline__ bool mbar_peek(u32 bar, u32 parity)
{
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

__device__ __forceinline__ void mbar_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* This thread's writes to shared memory, before what wgmma and TMA read of it later. */
__device__ __forceinline__ void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Tensor maps; coordinates are {column in the half, token, half, head, batch} ---- */

__device__ __forceinline__ void tma_load(u32 to, const void *map, u32 bar, int token, int half, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(0), "r"(token), "r"(half), "r"(head), "r"(batch)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const void *map, u32 from, int token, int half, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                     map),
                 "r"(from), "r"(0), "r"(token), "r"(half), "r"(head), "r"(batch)
                 : "memory");
}

__device__ __forceinline__ void tma_prefetch_map(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* This thread's and, by a barrier, others' accesses to any memory, before what asynchronous copies read or write later. */
__device__ __forceinline__ void async_proxy_fence_all()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* ---- Copies without a map; addresses and sizes are multiples of 16 ---- */

__device__ __forceinline__ void bulk_load(u32 to, const void *from, u32 bytes, u32 bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

__device__ __forceinline__ void bulk_store(void *to, u32 from, u32 bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}

/* To L2, a hint. */
__device__ __forceinline__ void bulk_prefetch(const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* The same of the line that it is in, each lane one. */
__device__ __forceinline__ void prefetch_line(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

__device__ __forceinline__ void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all but PENDING of this thread's committed stores have read their source. */
template <int PENDING> __device__ __forceinline__ void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/* The same, until what they wrote is visible to this thread. */
template <int PENDING> __device__ __forceinline__ void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* ---- Clusters: CTAs that reach each other's shared memory ---- */

__device__ __forceinline__ u32 cluster_rank()
{
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of the cluster meet; what they wrote before is visible behind it. */
__device__ __forceinline__ void cluster_sync()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* What this CTA has at an address, of the CTA of that rank. */
__device__ __forceinline__ u32 address_in(u32 address, u32 rank)
{
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ __forceinline__ u32 load_cluster(u32 from)
{
    u32 x;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}

/* From this CTA's shared memory to another one's, where the bytes arrive at a barrier. */
__device__ __forceinline__ void bulk_copy_cluster(u32 to, u32 from, u32 bytes, u32 bar)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "r"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* What a thread did in memory before comes before what it does behind it, also to CTAs of its cluster. */
__device__ __forceinline__ void fence_cluster()
{
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
}

/* At another CTA's barrier. Orders no other memory than the CTA's own: see fence_cluster(). */
__device__ __forceinline__ void mbar_arrive_cluster(u32 bar)
{
    dawdle();
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* ---- Warps ---- */

/* One lane of a warp that is all here. Of it a compiler knows that it is alone: copies' operands take no loop over lanes. */
__device__ __forceinline__ bool elected()
{
    u32 is;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(is));
    return is != 0;
}

template <int REGISTERS> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Read anew where it stands: what follows from it is worked out again rather than kept in registers. */
__device__ __forceinline__ int lane_id()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
