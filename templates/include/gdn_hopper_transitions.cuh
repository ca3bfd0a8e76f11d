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
 * In memory, columns divided by these factors: what is off M's diagonal in fp16, as the products that carry a state take it
 * (gdn_hopper_carry.cuh); the factors; the diagonal. Off the diagonal stands what keys have done to a state, and is rounded
 * once a partition, as each chunk rounds the states that it multiplies with K; what no key has touched is not.
 */

__device__ __forceinline__ float *transition_factors(u8 *link)
{
    return (float *)(link + LINK_STATE_BYTES + TRANSITION);
}

__device__ __forceinline__ float *transition_diagonal(u8 *link)
{
    return transition_factors(link) + D;
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

/* The diagonal of a warp's 16 x 16 block on it, of which this lane has two entries or none: to memory, and zero here. */
__device__ __forceinline__ void take_diagonal(float (&x)[8], float *to)
{
    const int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < 2; ++i)
        if (g == 2 * t + i) {
            to[0] = x[i];
            to[8] = x[6 + i];
            x[i] = x[6 + i] = 0.0f;
        }
}

/* Operand B of M's columns 16 s on, a k-step, and a warp's rows 16 w on: 16 bytes a lane. */
__device__ __forceinline__ uint4 *transition_at(u8 *link, int w, int s)
{
    return (uint4 *)(link + LINK_STATE_BYTES) + (STATE_WARPS * w + s) * 32 + lane_id();
}

__device__ __forceinline__ void leave_transition(const float (&S)[64], u8 *link, u32 *word, const Place &place)
{
#pragma unroll
    for (int w = 0; w < STATE_WARPS; ++w) {
        float x[8];
        u32 m[4];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            x[i] = S[8 * w + i];
        if (w == place.index()) take_diagonal(x, transition_diagonal(link) + place.row(0));
#pragma unroll
        for (int i = 0; i < 4; ++i)
            movmatrix_trans(m[i], pack_f16x2(x[2 * i], x[2 * i + 1]));
        *transition_at(link, w, place.index()) = make_uint4(m[0], m[1], m[2], m[3]);
    }
    release();
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (place.warp == 0 && lane_id() == 0) add_to(word, 1);
    __syncwarp();
}
