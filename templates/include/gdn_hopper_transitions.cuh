/*
 * gdn_hopper_transitions.cuh - what a partition makes of any state before it, as a matrix. Must not know: what is carried
 * through it.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_links.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_warp.cuh"

/*
 * A transition M is run as a state that starts as the identity: this lane's rows of S^T are columns of M. It shrinks where the
 * delta rule forgets, and nothing is added to it: rows keep their size in a factor of their own, a power of two.
 *
 * In memory: M, whose columns are divided by these factors, as the products that carry a state take it (gdn_hopper_carry.cuh),
 * each entry as the high and the low half of two fp16 numbers; then the factors.
 */

__device__ __forceinline__ float *transition_factors(u8 *link)
{
    return (float *)(link + LINK_STATE_BYTES + TRANSITION);
}

__device__ __forceinline__ void begin_transition(float (&S)[64], u8 *link, const Place &place)
{
    const int t = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < 64; ++i)
        S[i] = 8 * (i / 4) + 2 * t + (i & 1) == place.row(0) + 8 * (i >> 1 & 1) ? 1.0f : 0.0f;
    float *const factors = transition_factors(link) + place.row(0);
    if (t == 0) factors[0] = factors[8] = 1.0f;
    __syncwarp();
}

/* Where a row is below the limit all come to between 2^3 and 2^4 (see row_scale()). A row that is zeros stays. */
__device__ __forceinline__ void keep_size(float (&S)[64], u8 *link, float limit, const Place &place)
{
    const float2 m = row_max(S);
    const float lo = quad_max(m.x), hi = quad_max(m.y);
    if (__all_sync(~0u, lo >= limit && hi >= limit)) return;
    const float by_lo = row_scale(lo), by_hi = row_scale(hi);
    scale_rows(S, inverse(by_lo), inverse(by_hi));
    float *const factors = transition_factors(link) + place.row(0);
    if ((lane_id() & 3) == 0) {
        factors[0] *= by_lo;
        factors[8] *= by_hi;
    }
    __syncwarp();
}

/* x0, x1 as fp16: the nearest, and what that leaves. */
__device__ __forceinline__ void split_f16(u32 &high, u32 &low, float x0, float x1)
{
    high = pack_f16x2(x0, x1);
    low = pack_f16x2(x0 - f16_lo(high), x1 - f16_hi(high));
}

/* Operand B of M's columns 16 s on, a k-step, and a warp's rows 16 w on: 16 bytes a lane; the low halves 32 lanes later. */
__device__ __forceinline__ uint4 *transition_at(u8 *link, int w, int s)
{
    return (uint4 *)(link + LINK_STATE_BYTES) + (STATE_WARPS * w + s) * 2 * 32 + lane_id();
}

__device__ __forceinline__ void leave_transition(const float (&S)[64], u8 *link, const Place &place)
{
#pragma unroll
    for (int w = 0; w < STATE_WARPS; ++w) {
        u32 high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 h, l;
            split_f16(h, l, S[8 * w + 2 * i], S[8 * w + 2 * i + 1]);
            movmatrix_trans(high[i], h);
            movmatrix_trans(low[i], l);
        }
        uint4 *const to = transition_at(link, w, place.index());
        to[0] = make_uint4(high[0], high[1], high[2], high[3]);
        to[32] = make_uint4(low[0], low[1], low[2], low[3]);
    }
}
