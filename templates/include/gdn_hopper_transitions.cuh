/*
 * gdn_hopper_transitions.cuh - what a partition makes of any state before it, as a matrix, and states carried through such
 * matrices.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_links.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_warp.cuh"

/*
 * A transition M is run as a state that starts as the identity: this lane's rows of S^T are columns of M. It shrinks where the
 * delta rule forgets, and nothing is added to it: rows keep their size in a factor of their own, a power of two.
 *
 * In memory: what the K ring holds while M is used, four tiles of 64 rows of M, whose columns are divided by these factors: the
 * high halves of two fp16 numbers for each entry, then the low ones; then the factors.
 */
static_assert(K_STAGES == 4, "the K ring holds a transition");

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

__device__ __forceinline__ void leave_transition(const float (&S)[64], u8 *link, u32 *word, const Place &place)
{
    const int g = lane_id() >> 2, t = lane_id() & 3;
    u8 *const to = link + LINK_STATE_BYTES + place.group * HALF + g * 128 + 4 * t;
    const int left = ((2 * place.warp) ^ g) * 16, right = left ^ 16; /* pieces of rows that are g modulo 8 */
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        u8 *const row = to + (n / 8) * TILE + (n % 8) * 1024;
        u32 high[2], low[2], turned;
        split_f16(high[0], low[0], S[4 * n], S[4 * n + 1]);
        split_f16(high[1], low[1], S[4 * n + 2], S[4 * n + 3]);
        movmatrix_trans(turned, high[0]);
        *(u32 *)(row + left) = turned;
        movmatrix_trans(turned, high[1]);
        *(u32 *)(row + right) = turned;
        movmatrix_trans(turned, low[0]);
        *(u32 *)(row + 2 * TILE + left) = turned;
        movmatrix_trans(turned, low[1]);
        *(u32 *)(row + 2 * TILE + right) = turned;
    }
    release();
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (place.warp == 0 && lane_id() == 0) add_to(word, 1);
    __syncwarp();
}

/* The rings of tiles, which wait, take transitions, two in turn. By both state warpgroups. */
__device__ __forceinline__ u32 transition_tiles(int step)
{
    static_assert(V_AT + V_STAGES * TILE >= K_AT + 2 * TRANSITION, "two fit");
    return at(K_AT) + (step & 1) * TRANSITION;
}

__device__ __forceinline__ void fetch_transition(const u8 *link, int step, const Place &place)
{
    const int thread = GROUP * place.group + 32 * place.warp + lane_id();
    const u8 *const from = link + LINK_STATE_BYTES + 16 * thread;
    const u32 to = transition_tiles(step) + 16 * thread;
#pragma unroll 4
    for (int i = 0; i < TRANSITION; i += 16 * 2 * GROUP)
        cp_async_16(to + i, from + i, 16);
    cp_async_commit();
}

/* x (64 x 64) += S^T tile^T, all fp16. */
__device__ __forceinline__ void add_product(float (&x)[32], const u32 (&S)[8][4], u32 tile)
{
    const u32 b = k_major(tile);
#pragma unroll
    for (int s = 0; s < 8; ++s)
        wgmma_rs_n64_f16(x, S[s], descriptor(b + key_step(s)), 1);
}

/* S times M's factors as two fp16 numbers each, high and low, operands A; rows divided by powers of two, which it returns. */
__device__ __forceinline__ float2 split_state(u32 (&high)[8][4], u32 (&low)[8][4], float (&S)[64], const float *factors)
{
    factors += 2 * (lane_id() & 3);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float2 f = *(const float2 *)(factors + 8 * n);
        S[4 * n] *= f.x;
        S[4 * n + 1] *= f.y;
        S[4 * n + 2] *= f.x;
        S[4 * n + 3] *= f.y;
    }
    const float2 m = row_max(S);
    const float lo = row_scale(quad_max(m.x)), hi = row_scale(quad_max(m.y));
    scale_rows(S, inverse(lo), inverse(hi));
#pragma unroll
    for (int i = 0; i < 32; ++i)
        split_f16(high[i / 4][i % 4], low[i / 4][i % 4], S[2 * i], S[2 * i + 1]);
    return { lo, hi };
}

/* S = N + M times what was split, M in `tiles`: products of high and low parts but for low times low, 2^-21 of the largest. */
__device__ __forceinline__ void apply_transition(float (&S)[64], const u32 (&high)[8][4], const u32 (&low)[8][4],
                                                 float2 scale, u32 tiles, const float4 *addend)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) { /* of M's rows */
        const u32 tile = tiles + half * TILE;
        float x[32];
        clear(x);
        wgmma_fence();
        add_product(x, high, tile);
        add_product(x, low, tile);
        add_product(x, high, tile + 2 * TILE);
        wgmma_commit();
        float4 a[8];
#pragma unroll
        for (int n = 0; n < 8; ++n)
            a[n] = addend[(8 * half + n) * GROUP];
        wgmma_wait<0>();
        settled(x);
        scale_rows(x, scale.x, scale.y);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            S[32 * half + 4 * n] = a[n].x + x[4 * n];
            S[32 * half + 4 * n + 1] = a[n].y + x[4 * n + 1];
            S[32 * half + 4 * n + 2] = a[n].z + x[4 * n + 2];
            S[32 * half + 4 * n + 3] = a[n].w + x[4 * n + 3];
        }
    }
}

/*
 * How many links before that of partition `index` a state lies, once it does, and with it the addends and transitions of all
 * partitions between. By a warp, a link a lane.
 */
__device__ __forceinline__ int links_to_state(const prefill_params &p, int index, int group)
{
    const int step = index_step(p);
    for (int first = 0;; first += 32) {
        const int link = max(index - (first + lane_id()) * step, 0), before = max(link - step, 0);
        u32 states, ready;
        do {
            const u32 word = peek(item_word(p, link, WORD_LINK + group)),
                      left = peek(item_word(p, before, WORD_TRANSITION)),
                      right = peek(item_word(p, before, WORD_TRANSITION + 1));
            states = __ballot_sync(~0u, word == LINK_STATE);
            ready = __ballot_sync(~0u, word == LINK_ADDEND && left != 0 && right != 0);
        } while (~ready & ((states & -states) - 1)); /* nearer than the nearest state */
        if (states != 0) return first + __ffs((int)states) - 1;
    }
}

/* The state before partition `index` of sequence n: the last one before it that lies at a link, through all between. */
__device__ __forceinline__ void carry_state(float (&S)[64], const prefill_params &p, int index, int n, const Place &place)
{
    const int steps = links_to_state(p, index, place.group);
    const i64 stride = link_bytes(p) * index_step(p);
    u8 *link = link_at(p, index - steps * index_step(p), n);
    acquire();
    bar_sync(BAR_CARRY, 2 * GROUP); /* both are done with the rings */
    load_link(S, link_state(link, place));
    if (steps > 0) fetch_transition(link, 0, place);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        u32 high[8][4], low[8][4];
        const float2 scale = split_state(high, low, S, transition_factors(link));
        cp_async_wait<0>();
        async_proxy_fence();
        bar_sync(BAR_CARRY, 2 * GROUP); /* it is there, and nobody reads the last one */
        link += stride;
        if (step + 1 < steps) fetch_transition(link, step + 1, place);
        apply_transition(S, high, low, scale, transition_tiles(step), link_state(link, place));
    }
    arrive_warp(CARRIED);
}
