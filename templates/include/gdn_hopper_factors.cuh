/*
 * gdn_hopper_factors.cuh - the two aux warpgroups of a CTA that makes images, chunks in turn: L, P, and with T, which the
 * inverse warp makes of L, the two factors by which W goes straight into state and output:
 *
 *     X = T^T diag(d) K       S <- e_63 S + X^T W          P T       O = scale (e Q S + (P T) W)
 *
 * Must not know: states, which chunk it is.
 */
#pragma once

#include "gdn_hopper_aux.cuh"
#include "gdn_hopper_blocks.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"
#include "gdn_warp.cuh"

/* One X where others have V, one behind what others have. */
constexpr int X_AT = (END + 1023) / 1024 * 1024;
constexpr int LARGEST_AT = SCALE_AT; /* [warpgroup][band] float */
static_assert(V_STAGES * V_TILE >= TILE && X_AT + TILE <= spec::SMEM_BYTES, "X fits");

__device__ __forceinline__ u32 x_tile_of(int slot)
{
    return at(slot == 0 ? V_AT : X_AT);
}

/* What is smaller or larger than this is not taken out of X and P T: products of two sizes have to be floats. */
constexpr float LEAST_SIZE = 5.421010862427522e-20f, MOST_SIZE = 16777216.0f; /* 2^-64, 2^24 */
constexpr float LEAST_OF_KEYS = 7.888609052210118e-31f; /* 2^-100: its inverse is a float */

/* The power of two at or below a positive float; 1 for zero, inf and NaN. */
__device__ __forceinline__ float power_below(float x)
{
    const u32 e = __float_as_uint(x) >> 23;
    return e == 0 || e >= 254 ? 1.0f : __uint_as_float(e << 23);
}

__device__ __forceinline__ float warp_largest(float x)
{
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(x)));
}

/* By all warps of a group, each with its own largest: that of all. */
__device__ __forceinline__ float group_largest(float mine, int slot, int band)
{
    const u32 all_at = at(LARGEST_AT) + 16 * slot;
    if (lane_id() == 0) store_shared(all_at + 4 * band, __float_as_uint(mine));
    bar_sync(BAR_AUX + slot, GROUP);
    const float4 all = load_shared_float4(all_at);
    return fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w));
}

/* A table by pairs, bytes from its start. */
__device__ __forceinline__ u32 token_at(u32 token)
{
    return pair_at(token / 2) + 4 * (token % 2);
}

/*
 * The K tile of a chunk, which nobody of this group multiplies any more, becomes diag(d) K / size in fp16, whatever the I/O
 * type; the size, a power of two, comes back: the largest is just within fp16, so that what has decayed by up to 2^-28 keeps
 * its bits. Tokens without beta do not count, and become zeros: T^T multiplies such a row by beta alone, but by that of one
 * that left fp16's range it would make NaN. A thread has the pieces of 16 bytes of four rows, of either half.
 */
__device__ __forceinline__ float decay_keys(u32 k_tile, u32 table, int slot, int band)
{
    const u32 thread = threadIdx.x % GROUP;
    uint4 piece[8];
    float counted[4], largest = 0.0f; /* d, where there is a beta */
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        const u32 token = token_at(thread / 8 + 16 * q);
        const float d = load_shared_float(table + DECAY_OUT + token);
        counted[q] = load_shared_float(table + BETA + token) != 0.0f ? d : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        piece[i] = load_shared_16(k_tile + (i / 4) * HALF + (thread + GROUP * (i % 4)) * 16);
        const u32 x[4] = { piece[i].x, piece[i].y, piece[i].z, piece[i].w };
#pragma unroll
        for (int j = 0; j < 4; ++j)
            largest = fmaxf(largest, fmaxf(fabsf(io_lo(x[j])), fabsf(io_hi(x[j]))) * counted[i % 4]);
    }
    const float size = fmaxf(power_below(group_largest(warp_largest(largest), slot, band)) * (1.0f / 8192), LEAST_OF_KEYS);
    const float inverse_size = inverse(size);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const u32 x[4] = { piece[i].x, piece[i].y, piece[i].z, piece[i].w };
        const float f = counted[i % 4] * inverse_size;
        u32 y[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            y[j] = pack_f16x2(io_lo(x[j]) * f, io_hi(x[j]) * f);
        store_shared(k_tile + (i / 4) * HALF + (thread + GROUP * (i % 4)) * 16, y[0], y[1], y[2], y[3]);
    }
    async_proxy_fence();
    bar_sync(BAR_AUX + slot, GROUP);
    return size;
}

/* Operand A of this band's rows of T^T; blocks above T's diagonal are zeros. */
__device__ __forceinline__ void load_transposed_t(u32 (&a)[4][4], u32 t_tile, int band)
{
    const BlockLane at = block_lane(t_tile);
#pragma unroll
    for (int I = 0; I < 4; ++I)
        ldmatrix_x4_trans(a[I], (at.b ^ (band << 5)) + 2048 * I);
}

/* Operand A of this band's rows of P. */
__device__ __forceinline__ void load_scores(u32 (&a)[4][4], u32 p_tile, int band)
{
    const BlockLane at = block_lane(p_tile);
#pragma unroll
    for (int J = 0; J < 4; ++J)
        ldmatrix_x4(a[J], (at.a ^ (J << 5)) + 2048 * band);
}

/* x (64 x 128) = T^T (diag(d) K), y (64 x 64) = P T. */
__device__ __forceinline__ void issue_factors(float (&x)[64], float (&y)[32], const u32 (&a)[4][4], const u32 (&scores)[4][4],
                                              u32 k_tile, u32 t_tile)
{
    const u32 kb = mn_major(k_tile, HALF), tb = mn_major(t_tile, SQUARE);
#pragma unroll
    for (int i = 0; i < 64; ++i)
        x[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i)
        y[i] = 0.0f;
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
        wgmma_rs_n128_f16_mn(x, a[s], descriptor(kb + s * (2048 >> 4)), s > 0);
#pragma unroll
    for (int s = 0; s < 4; ++s)
        wgmma_rs_n64_f16_mn(y, scores[s], descriptor(tb + s * (2048 >> 4)), s > 0);
    wgmma_commit();
}

/* This band's rows of 64 columns times a factor, as fp16; 16-column blocks up to `last`. */
__device__ __forceinline__ void store_factor(const float *x, u32 tile, float factor, int band, int last)
{
    const BlockLane at = block_lane(tile);
#pragma unroll
    for (int J = 0; J < 4; ++J) {
        if (J > last) break;
        const float *y = &x[8 * J];
        stmatrix_x4((at.a ^ (J << 5)) + 2048 * band, pack_f16x2(y[0] * factor, y[1] * factor),
                    pack_f16x2(y[2] * factor, y[3] * factor), pack_f16x2(y[4] * factor, y[5] * factor),
                    pack_f16x2(y[6] * factor, y[7] * factor));
    }
}

/* Rows of X and columns of P T times beta, in fp32, where that is not in T. */
__device__ __forceinline__ void multiply_by_beta(float (&x)[64], float (&y)[32], u32 table, int band)
{
    if constexpr (BETA_IN_T) return;
    const u32 rows = table + BETA + row_beta(band, lane_id() >> 2);
    scale_rows(x, load_shared_float(rows), load_shared_float(rows + 8));
#pragma unroll
    for (int J = 0; J < 4; ++J) {
        const float4 b = gates_of_16(table + BETA, J);
        float *const z = &y[8 * J];
        z[0] *= b.x, z[1] *= b.y, z[2] *= b.x, z[3] *= b.y;
        z[4] *= b.z, z[5] *= b.w, z[6] *= b.z, z[7] *= b.w;
    }
}

template <int N> __device__ __forceinline__ float largest_of(const float (&x)[N])
{
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i)
        largest = fmaxf(largest, fabsf(x[i]));
    return warp_largest(largest);
}

/* What X and P T are divided by: S and O take it back. Of P T in e of Q S, too. By this band's tokens. */
__device__ __forceinline__ void store_sizes(u32 table, float of_x, float of_scores, int band)
{
    const int lane = lane_id();
    const u32 e = table + DECAY_IN_Q + row_beta(band, lane & 7) + (lane & 8);
    if (band == 0 && lane == 0) {
        store_shared(table + SIZE_X, __float_as_uint(of_x));
        store_shared(table + SIZE_SCORES, __float_as_uint(of_scores));
    }
    if (lane < 16) store_shared(e, __float_as_uint(load_shared_float(e) * inverse(of_scores)));
    __syncwarp();
}

/*
 * X and P T of a chunk, whose T and P are there, and of which decay_keys() has been. Either is divided by a power of two, P T
 * to come to [1, 2), X only if its largest entry is not in [2^-6, 2^8), since that costs the chain: fp16 then, whatever
 * length keys have, however little is left of them at the chunk's end, and whatever beta is.
 */
__device__ __forceinline__ void make_factors(const Clock &c, u32 t_tile, u32 p_tile, float size, int band)
{
    const int slot = c.n & 1;
    const u32 table = c.table(), x_tile = x_tile_of(slot);
    const float beta = BETA_IN_T ? load_shared_float(table + BETA_SCALE) : 1.0f;
    float x[64], y[32];
    u32 a[4][4], scores[4][4];
    load_transposed_t(a, t_tile, band);
    load_scores(scores, p_tile, band);
    issue_factors(x, y, a, scores, c.k(), t_tile);
    wgmma_wait<0>();
    settled(x);
    settled(y);
    multiply_by_beta(x, y, table, band);
    const float most = group_largest(largest_of(x) * size * beta, slot, band);
    const float of_x = most >= 0.015625f && most < 256.0f ? 1.0f : fminf(fmaxf(power_below(most), LEAST_SIZE), MOST_SIZE);
    bar_sync(BAR_AUX + slot, GROUP); /* all have read it */
    const float of_scores = fmaxf(power_below(group_largest(largest_of(y) * beta, slot, band)), LEAST_SIZE);
    store_factor(x, x_tile, size * inverse(of_x) * beta, band, 3);
    store_factor(x + 32, x_tile + HALF, size * inverse(of_x) * beta, band, 3);
    store_factor(y, p_tile, inverse(of_scores) * beta, band, band);
    store_sizes(table, of_x, of_scores, band);
}

/* Blocks of T and P above the diagonal, which are never written again. A band of each. */
__device__ __forceinline__ void clear_bands(u32 t_tile, u32 p_tile, int band)
{
    for (int i = lane_id(); i < SQUARE / 4 / 16; i += 32) {
        store_shared(t_tile + band * (SQUARE / 4) + 16 * i, 0, 0, 0, 0);
        store_shared(p_tile + band * (SQUARE / 4) + 16 * i, 0, 0, 0, 0);
    }
    async_proxy_fence(); /* T's are operands from its first chunk on */
}

/* The role; slot: the warpgroup's, of every other chunk; band: the warp's 16 rows. */
__device__ __forceinline__ void factor_role(const prefill_params &p, int slot, int band)
{
    float x[32];
    const u32 t_tile = at(T_AT) + slot * SQUARE, p_tile = at(P_AT) + slot * SQUARE;
    Clock c = clock_at(slot);
    clear_bands(t_tile, p_tile, band);
    for (;; c.advance(), c.advance()) {
        const u32 table = c.table(), norms = key_norms(c.n);
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
        if (load_shared_u32(table + FLAGS) & CHUNK_END) break;
        issue_gram(x, c.k(), c.k());
        const BandGates gates = band_gates(table, band);
        float2 f = row_factors_of_l(table, band), r = { 1.0f, 1.0f };
        mbar_wait(bar(L_EMPTY + slot), c.parity2() ^ 1); /* this L tile's last chunk has been read */
        wgmma_wait<0>();
        settled(x);
        if constexpr (spec::QK_L2NORM) {
            share_key_norms(c, diagonal_block(x, band), band);
            bar_sync(BAR_AUX + slot, GROUP);
            r = norms_of_rows(norms, band);
            f = { f.x * r.x, f.y * r.y };
        }
        store_band(x, gates, false, at(L_AT) + slot * SQUARE, at(DIAGONAL_AT) + (4 * slot + band) * DIAGONAL, norms, band,
                   f);
        mbar_arrive_warp(bar(L_FULL + slot), lane_id());
        issue_gram(x, c.q(), c.k());
        mbar_wait(bar(TP_EMPTY + slot), c.parity2() ^ 1); /* the last X and P T have been read */
        wgmma_wait<0>();
        settled(x);
        if constexpr (spec::QK_L2NORM) r = query_norms(c, band);
        store_band(x, gates, true, p_tile, 0, norms, band, { p.p_scale * r.x, p.p_scale * r.y });
        const float size = decay_keys(c.k(), table, slot, band); /* while T is made; P of this band is stored behind it */
        mbar_wait(bar(T_FULL + slot), c.parity2());
        make_factors(c, t_tile, p_tile, size, band);
        async_proxy_fence();
        mbar_arrive_warp(bar(TP_FULL + slot), lane_id());
    }
    mbar_arrive_warp(bar(L_FULL + slot), lane_id()); /* whose inverter looks there for the end */
}
