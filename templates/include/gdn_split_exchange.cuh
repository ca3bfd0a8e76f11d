/*
 * gdn_split_exchange.cuh - packed A operands from the state warps to all, through shared memory, in fragment order, three times
 * a chunk: S's 16-bit copy, W, and V' with d V'. Row scales (gdn_range.cuh) are agreed upon from all state warps' maxima.
 */
#pragma once

#include "gdn_ptx_mbar.cuh"
#include "gdn_range.cuh"
#include "gdn_split_shared.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

typedef RowScale Scales[ROW_BLOCKS];

/* A warp's k-step `step` (of STEPS in all) of row block m: 16 bytes a lane. */
template <int STEPS> __device__ __forceinline__ u32 fragment(u32 data, int m, int step, int lane)
{
    return data + (m * STEPS + step) * 512 + lane * 16;
}

template <int STEPS> __device__ __forceinline__ void load_fragment(u32 (&a)[4], u32 data, int m, int step, int lane)
{
    const uint4 v = load_shared_16(fragment<STEPS>(data, m, step, lane));
    a[0] = v.x;
    a[1] = v.y;
    a[2] = v.z;
    a[3] = v.w;
}

template <int BLOCKS, bool F16>
__device__ __forceinline__ void pack_rows(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4])
{
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n) {
        packed[n][0] = F16 ? pack_f16x2(x[n][0], x[n][1]) : pack_bf16x2(x[n][0], x[n][1]);
        packed[n][1] = F16 ? pack_f16x2(x[n][2], x[n][3]) : pack_bf16x2(x[n][2], x[n][3]);
    }
}

template <int BLOCKS>
__device__ __forceinline__ void store_fragments(u32 data, const u32 (&packed)[BLOCKS][2], int m, int warp, int lane)
{
#pragma unroll
    for (int s = 0; s < BLOCKS / 2; ++s)
        store_shared(fragment<WARPS * BLOCKS / 2>(data, m, warp * (BLOCKS / 2) + s, lane), packed[2 * s][0],
                     packed[2 * s][1], packed[2 * s + 1][0], packed[2 * s + 1][1]);
}

/* This warp's share, as it is, and for fp16 its rows' maxima. A barrier later, out_of_range() says whether that will do. */
template <int BLOCKS, bool F16>
__device__ __forceinline__ void publish(const Exchange &to, const float (&x)[ROW_BLOCKS][BLOCKS][4], int warp, int lane)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        u32 packed[BLOCKS][2];
        pack_rows<BLOCKS, F16>(packed, x[m]);
        store_fragments(to.data, packed, m, warp, lane);
        if constexpr (F16) {
            u32 lo = 0, hi = 0;
#pragma unroll
            for (int n = 0; n < BLOCKS; ++n) {
                lo = max_abs_f16x2(lo, packed[n][0]);
                hi = max_abs_f16x2(hi, packed[n][1]);
            }
            u32 most = max_abs_f16x2(__byte_perm(lo, hi, 0x5410), __byte_perm(lo, hi, 0x7632));
            most = max_abs_f16x2(most, __shfl_xor_sync(~0u, most, 1));
            most = max_abs_f16x2(most, __shfl_xor_sync(~0u, most, 2));
            if ((lane & 3) == 0) store_shared(to.maxima + ((m * 8 + (lane >> 2)) * WARPS + warp) * 4, most);
        }
    }
}

/*
 * Row blocks that do not fit, a bit each; each for itself, as in the generic kernel, since scaled rows have other bits where
 * unscaled ones are subnormal. Every warp reads the same maxima: the answer is the same in all.
 */
__device__ __forceinline__ u32 out_of_range(const Exchange &from, int lane, u32 low = F16_LOW)
{
    u32 blocks = 0;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        const uint4 of_warps = load_shared_16(from.maxima + (m * 8 + (lane >> 2)) * WARPS * 4);
        const u32 most = max_abs_f16x2(max_abs_f16x2(of_warps.x, of_warps.y), max_abs_f16x2(of_warps.z, of_warps.w));
        if (!__all_sync(~0u, both_within(most, low, F16_HIGH))) blocks |= 1u << m;
    }
    return blocks;
}

/* Scales of these blocks' rows from all state warps' fp32 maxima; the others' are 1. */
__device__ __forceinline__ void read_scales(Scales &scales, u32 blocks, u32 scratch, int lane)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        float lo = 0.0f, hi = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) {
            const float2 most = load_shared_float2(scratch + ((m * 8 + (lane >> 2)) * WARPS + warp) * 8);
            lo = fmaxf(lo, most.x);
            hi = fmaxf(hi, most.y);
        }
        const bool scaled = blocks >> m & 1;
        scales[m] = { scaled ? scale_for(lo) : 1.0f, scaled ? scale_for(hi) : 1.0f, scaled };
    }
}

/*
 * The rare way, by the state warps: agrees upon rows' scales and publishes the share again. ALL: the output warps, who read it
 * too, are in take_scales() meanwhile.
 */
template <int BLOCKS, bool ALL>
__device__ __forceinline__ void publish_scaled(u32 data, u32 blocks, u32 scratch, Scales &scales,
                                               const float (&x)[ROW_BLOCKS][BLOCKS][4], int warp, int lane)
{
    bar_sync(BAR_SCALE_STATE, STATE_THREADS);
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        float lo = 0.0f, hi = 0.0f;
#pragma unroll
        for (int n = 0; n < BLOCKS; ++n) {
            lo = fmaxf(lo, fmaxf(fabsf(x[m][n][0]), fabsf(x[m][n][1])));
            hi = fmaxf(hi, fmaxf(fabsf(x[m][n][2]), fabsf(x[m][n][3])));
        }
        const u32 at = scratch + ((m * 8 + (lane >> 2)) * WARPS + warp) * 8;
        lo = quad_max(lo);
        hi = quad_max(hi);
        if ((lane & 3) == 0) {
            store_shared(at, lo);
            store_shared(at + 4, hi);
        }
    }
    bar_sync(BAR_SCALE_STATE, STATE_THREADS);
    read_scales(scales, blocks, scratch, lane);
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        u32 packed[BLOCKS][2];
        pack_rows_f16(packed, x[m], inverse_scale(scales[m].lo), inverse_scale(scales[m].hi));
        store_fragments(data, packed, m, warp, lane);
    }
    if (!ALL) return bar_sync(BAR_SCALE_STATE, STATE_THREADS);
    meet(BAR_SCALE_ALL, ALL_THREADS);
    meet(BAR_SCALE_ALL, ALL_THREADS);
}

/* The output warps' part in publish_scaled<ALL>. */
__device__ __forceinline__ void take_scales(Scales &scales, u32 blocks, u32 scratch, int lane)
{
    meet(BAR_SCALE_ALL, ALL_THREADS);
    read_scales(scales, blocks, scratch, lane);
    meet(BAR_SCALE_ALL, ALL_THREADS); /* the scratch is free again */
}
