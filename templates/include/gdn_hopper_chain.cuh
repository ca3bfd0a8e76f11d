/*
 * gdn_hopper_chain.cuh - the recurrence in two products a chunk, W = V - e K S and S <- e_63 S + X^T W, by one warpgroup with
 * S^T in registers. W goes to the other CTA of the cluster, which does the same to an S of its own. Must not know: O,
 * sequences.
 */
#pragma once

#include "gdn_hopper_ring.cuh"
#include "gdn_hopper_rows.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/* What a chunk is made with: V^T of this lane's columns, e of its tokens, what X is divided by, the whole decay. */
struct Ahead {
    u32 v[4][4];
    float4 e[4];
    float size, decay;
};

/* Of a chunk that is there. */
__device__ __forceinline__ void fetch(Ahead &to, int n, int warp)
{
    const u32 table = at(chain::TABLE) + slot4(n) * GATE;
    load_values(to.v, at(chain::V) + slot4(n) * HALF, warp);
#pragma unroll
    for (int m = 0; m < 4; ++m)
        to.e[m] = gates_of_16(table + DECAY_IN, m);
    to.size = load_shared_float(table + SIZE_X);
    to.decay = load_shared_float(table + DECAY_ALL);
}

__device__ __forceinline__ void unpack_values(float (&x)[32], const Ahead &from)
{
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        x[2 * i] = io_lo(from.v[i / 4][i % 4]);
        x[2 * i + 1] = io_hi(from.v[i / 4][i % 4]);
    }
}

/* W^T = V^T - e (K S)^T, in place of K S. */
__device__ __forceinline__ void residual(float (&x)[32], const float (&v)[32], const Ahead &from)
{
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const float4 &e = from.e[i / 8];
        const float f = i / 4 % 2 == 0 ? (i % 2 == 0 ? e.x : e.y) : (i % 2 == 0 ? e.z : e.w);
        x[i] = v[i] - f * x[i];
    }
}

/* Whether each lane's largest magnitude in either row is in [2^-11, 2^14]: what is smaller is off by up to 2^-25. */
template <int STEPS> __device__ __forceinline__ bool in_range(const u32 (&a)[STEPS][4])
{
    u32 lo[2], hi[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        lo[i] = larger_f16x2(a[i][0], a[i][2]);
        hi[i] = larger_f16x2(a[i][1], a[i][3]);
    }
#pragma unroll
    for (int i = 2; i < STEPS; ++i) {
        lo[i % 2] = larger_f16x2(lo[i % 2], larger_f16x2(a[i][0], a[i][2]));
        hi[i % 2] = larger_f16x2(hi[i % 2], larger_f16x2(a[i][1], a[i][3]));
    }
    const u32 l = larger_f16x2(lo[0], lo[1]), h = larger_f16x2(hi[0], hi[1]);
    const u32 m = larger_f16x2(__byte_perm(l, h, 0x5410), __byte_perm(l, h, 0x7632)) & 0x7fff7fffu;
    return (m & 0xffffu) - ROW_LOW <= F16_2_14 - ROW_LOW && (m >> 16) - ROW_LOW <= F16_2_14 - ROW_LOW;
}

__device__ __forceinline__ float2 scales_of_rows(float2 largest)
{
    return { row_scale(quad_max(largest.x)), row_scale(quad_max(largest.y)) };
}

/* S^T as operand A, rows divided by powers of two. */
__device__ __forceinline__ void pack_state(u32 (&packed)[8][4], float (&S)[64], float2 s)
{
    scale_rows(S, inverse(s.x), inverse(s.y));
    pack_io_rows(packed, S);
    scale_rows(S, s.x, s.y);
}

/* The rare way to K S, rows of S^T scaled into fp16's range. */
__device__ __forceinline__ float2 scaled_keys(float (&x)[32], u32 (&packed)[8][4], float (&S)[64], u32 k_tile)
{
    const float2 s = scales_of_rows(row_max(S));
    pack_state(packed, S, s);
    issue_keys(x, packed, k_tile);
    wgmma_wait<0>();
    settled(x);
    scale_rows(x, s.x, s.y);
    return s;
}

/*
 * The rare way to W as operand A: rows are divided by the powers of two that come back. S is divided by these times X's size,
 * which are kept above 2^-100.
 */
__device__ __forceinline__ float2 pack_scaled(u32 (&packed)[4][4], float (&W)[32], float size)
{
    const float least = 7.888609052210118e-31f * inverse(size); /* 2^-100 */
    float2 s = scales_of_rows(row_max(W));
    s = { fmaxf(s.x, least), fmaxf(s.y, least) };
    scale_rows(W, inverse(s.x), inverse(s.y));
    pack_f16_rows(packed, W);
    return s;
}

/* S^T += W^T X */
__device__ __forceinline__ void issue_update(float (&S)[64], const u32 (&W)[4][4], u32 x_tile)
{
    const u32 b = mn_major(x_tile, HALF);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
        wgmma_rs_n128_f16_mn(S, W[s], descriptor(b + s * (2048 >> 4)), 1);
    wgmma_commit();
}

/*
 * For the readout: k-steps in the order of threads, and what this thread's two rows of S and W were divided by. Who hands it
 * over fences: these warps have no time for it.
 */
__device__ __forceinline__ void put_residual(const u32 (&w)[4][4], float2 s, float2 r, int n)
{
    const u32 to = at(chain::HANDED) + slot4(n) * HANDED_BYTES + 16 * (threadIdx.x % GROUP);
#pragma unroll
    for (int i = 0; i < W_STEPS; ++i)
        store_shared(to + i * FRAGMENT, w[i][0], w[i][1], w[i][2], w[i][3]);
    store_shared(to + SCALES_AT, __float_as_uint(s.x), __float_as_uint(s.y), __float_as_uint(r.x), __float_as_uint(r.y));
    arrive_at(chain::bar(chain::PUT + slot4(n)));
}

__device__ __forceinline__ void decay_state(float (&S)[64], float decay)
{
#pragma unroll
    for (int i = 0; i < 64; ++i)
        S[i] *= decay;
}

/*
 * Chunk n, which is ready, of which `ahead` and v are there; leaves those of the next one, if there is one. Behind the issue
 * of a product an access to shared memory waits until the product is done, arithmetic does not: so loads, stores and arrivals
 * stand between the products, and what is computed from them in a product's time.
 */
__device__ __forceinline__ void chain_chunk(float (&S)[64], float (&v)[32], Ahead &ahead, int n, bool last, int warp)
{
    float W[32];
    u32 packed[8][4], w[4][4];
    float2 s = { 1.0f, 1.0f }, r = { 1.0f, 1.0f };
    const float size = ahead.size;
    const u32 k_tile = at(chain::K) + slot4(n) * TILE;
    pack_io_rows(packed, S);
    issue_keys(W, packed, k_tile);
    const bool usual = spec::IO_BF16 || bar_all(BAR_VOTE, GROUP, in_range(packed));
    if (usual) decay_state(S, ahead.decay);
    wgmma_wait<0>();
    settled(W);
    if (rarely(!usual)) {
        s = scaled_keys(W, packed, S, k_tile);
        decay_state(S, ahead.decay);
    }
    residual(W, v, ahead);
    pack_f16_rows(w, W);
    const bool fits = __all_sync(~0u, in_range(w)), scaled = !fits || size != 1.0f;
    if (rarely(scaled)) {
        if (!fits) r = pack_scaled(w, W, size);
        scale_rows(S, inverse(r.x * size), inverse(r.y * size));
    }
    put_residual(w, s, r, n);
    if (!last) fetch(ahead, n + 1, warp);
    issue_update(S, w, at(chain::X) + slot4(n) * TILE);
    if (!last) unpack_values(v, ahead);
    wgmma_wait<0>();
    settled(S);
    arrive_at(chain::bar(chain::EMPTY + slot4(n)));
    if (rarely(scaled)) scale_rows(S, r.x * size, r.y * size);
}
