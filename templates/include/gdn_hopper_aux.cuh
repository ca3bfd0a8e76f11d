/*
 * gdn_hopper_aux.cuh - the aux warpgroup: L, with D, and P of a chunk from K K^T, Q K^T and its gate table. Must not know:
 * states, items, what becomes of L.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_hopper_blocks.cuh"
#include "gdn_hopper_diagonals.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_norms.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/*
 * x (64 x 64) = A K^T over the 128 columns of two K-major tiles. Descriptors are made opaque, so that sixteen of them are
 * not kept in registers.
 */
__device__ __forceinline__ void issue_gram(float (&x)[32], u32 a_tile, u32 k_tile)
{
    u32 a = k_major(a_tile), b = k_major(k_tile);
    asm volatile("" : "+r"(a), "+r"(b));
#pragma unroll
    for (int i = 0; i < 32; ++i)
        x[i] = 0.0f; /* no tie to the last product's value; the first wgmma ignores it */
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 8; ++s) {
        const u32 step = key_step(s);
        wgmma_ss_n64(x, descriptor(a + step), descriptor(b + step), s > 0);
    }
    wgmma_commit();
}

/*
 * Gates of a band: of its diagonal 16 x 16 block on and below the diagonal, as fp16 pairs, whose upper right quarter is zero;
 * and what blocks left of it have of rows g and g + 8.
 */
struct BandGates {
    u32 top, low, right; /* rows g: columns 2t, 2t+1; rows g + 8: the same columns; rows g + 8: columns 8 + 2t, + 1 */
    float2 rows;
    u32 columns[3][2]; /* columns 2t, 2t+1 and 8 + 2t, + 1 of block J; of those from the band on other bands', not used */
};
static_assert(COLUMN_DECAY + 2 * 16 * (1 + 2 + 3) == DECAY_ALL, "what is loaded and not used lies in the table");

__device__ __forceinline__ BandGates band_gates(u32 table, int band)
{
    const int lane = lane_id(), g = lane >> 2, t = lane & 3, j = 2 * t;
    const u32 logs = table + BAND_LOG + 64 * band;
    const float row0 = load_shared_float(logs + 4 * g), row1 = load_shared_float(logs + 4 * g + 32);
    const float2 left = load_shared_float2(logs + 8 * t), right = load_shared_float2(logs + 8 * t + 32);
    BandGates gates;
    gates.rows = { exp2_approx(row0), exp2_approx(row1) };
    gates.top = pack_f16x2(j <= g ? exp2_approx(row0 - left.x) : 0.0f, j + 1 <= g ? exp2_approx(row0 - left.y) : 0.0f);
    gates.low = pack_f16x2(exp2_approx(row1 - left.x), exp2_approx(row1 - left.y));
    gates.right = pack_f16x2(j <= g ? exp2_approx(row1 - right.x) : 0.0f, j + 1 <= g ? exp2_approx(row1 - right.y) : 0.0f);
#pragma unroll
    for (int J = 0; J < 3; ++J) {
        const u32 columns = table + COLUMN_DECAY + 16 * band * (band - 1) + 4 * t + 32 * J;
        gates.columns[J][0] = load_shared_u32(columns);
        gates.columns[J][1] = load_shared_u32(columns + 16);
    }
    return gates;
}

/*
 * What the four warps run is one piece of code with the band as a run-time value: four copies would not fit the instruction
 * cache beside the state warpgroups' loop. Accumulators have to be named at compile time, so the diagonal block is selected.
 */
struct Block {
    float x[8]; /* two n-blocks in accumulator layout */
};

__device__ __forceinline__ Block diagonal_block(const float (&x)[32], int band)
{
    Block b;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float low = band == 0 ? x[i] : x[8 + i], high = band == 2 ? x[16 + i] : x[24 + i];
        b.x[i] = band < 2 ? low : high;
    }
    return b;
}

/* ---- Norms --------------------------------------------------------------------------------------------------------- */

/*
 * In-kernel norms: q and k stay as they are given, so that nothing normalised is rounded. With r = 1 / norm of rows L_ij gets
 * r_i r_j of k, and P_ij r_i of q and r_j of k; of the state warps' factors e becomes r e (of k in W, of q in O), d becomes
 * r d, in the gate table: those of k before KEYS_NORMED, which W waits for, that of q before T and P stand.
 *
 * r of k is the diagonal of K K^T. All four warps want all of it, from blocks of the L tile above the diagonal, which nobody
 * else has a use for. Of q a warp wants its own band's alone.
 */
/* Of chunk n, in its L tile: 16 floats a band, in rows that no swizzle touches, 1024 bytes apart. */
__device__ __forceinline__ u32 key_norms(int n)
{
    return at(L_AT) + l_slot(n) * SQUARE + 64;
}

/* Of rows g and g + 8 of a band. */
__device__ __forceinline__ float2 norms_of_rows(u32 norms, int band)
{
    if constexpr (!spec::QK_L2NORM) return { 1.0f, 1.0f };
    const u32 from = norms + 1024 * band + 4 * (lane_id() >> 2);
    return { load_shared_float(from), load_shared_float(from + 32) };
}

/* Of columns 2 t and 2 t + 1 of n-block n. */
__device__ __forceinline__ float2 norms_of_columns(u32 norms, int n)
{
    if constexpr (!spec::QK_L2NORM) return { 1.0f, 1.0f };
    return load_shared_float2(norms + 1024 * (n / 2) + 32 * (n % 2) + 8 * (lane_id() & 3));
}

/* Of the state warps' factors, rows g and g + 8 of a band. By one lane of a row's four. */
__device__ __forceinline__ void fold_norms(u32 factors, int band, float2 r)
{
    const u32 to = factors + row_beta(band, lane_id() >> 2);
    store_shared(to, load_shared_float(to) * r.x);
    store_shared(to + 8, load_shared_float(to + 8) * r.y);
}

/* Of q: e of Q S. */
__device__ __forceinline__ void fold_query_norms(const Clock &c, int band, float2 r)
{
    if ((lane_id() & 3) == 0) fold_norms(c.table() + DECAY_IN_Q, band, r);
    __syncwarp();
}

/* This band's; folded too. The other warps have them behind the next barrier. */
__device__ __forceinline__ void share_key_norms(const Clock &c, const Block &diagonal, int band)
{
    const int lane = lane_id();
    const float2 r = row_norms(&diagonal.x[0], &diagonal.x[6], lane);
    if ((lane & 2) == 0) {
        store_shared(key_norms(c.n) + 1024 * band + 4 * (lane >> 2) + 32 * (lane & 1), lane & 1 ? r.y : r.x);
        fold_norms(c.table() + (lane & 1 ? DECAY_OUT : DECAY_IN), band, r);
    }
    __syncwarp();
}

/*
 * Of this band's rows of the Q tile, g and g + 8; folded too. By plain arithmetic: sixteen mma of Q Q^T, each behind what the
 * state warps have queued, took 1600 cycles, and a wgmma behind Q K^T, whose registers it wants, gains nothing.
 */
__device__ __forceinline__ float2 query_norms(const Clock &c, int band)
{
    const u32 from = block_lane(c.q()).a + 2048 * band;
    float x[2][2] = {}; /* [row half][two sums, that they wait less for each other] */
#pragma unroll
    for (int s = 0; s < 8; ++s) {
        u32 a[4];
        ldmatrix_x4(a, (from ^ ((s & 3) << 5)) + (s >> 2) * HALF);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i & 1][0] += io_lo(a[i]) * io_lo(a[i]);
            x[i & 1][1] += io_hi(a[i]) * io_hi(a[i]);
        }
    }
    const float2 r = { inverse_norm(quad_sum(x[0][0] + x[0][1])), inverse_norm(quad_sum(x[1][0] + x[1][1])) };
    fold_query_norms(c, band, r);
    return r;
}

/*
 * The same of Q Q^T: in halves of heads, whose aux warps have registers for it beside Q K^T. (Not where L and P are one piece
 * of code, in which it would be a wgmma in a branch.)
 */
constexpr bool QUERY_GRAM = spec::QK_L2NORM && STATE_GROUPS == 1 && !spec::CARRIES;

__device__ __forceinline__ float2 query_norms(const Clock &c, const Block &diagonal, int band)
{
    const float2 r = row_norms(&diagonal.x[0], &diagonal.x[6], lane_id());
    fold_query_norms(c, band, r);
    return r;
}

/*
 * fp16: what r of k does to the range of r d V', by powers of two, 2^-below <= r < 2^above. W has to be smaller by 2^above, in
 * W_LIMIT itself, and what is least for a row's largest is larger by 2^below: LIMIT_BELOW. By one warp.
 */
constexpr int MOST_ABOVE = 10, MOST_BELOW = 20; /* r <= 1000; of less than 2^-20 no bits are left */

__device__ __forceinline__ void limit_by_norms(u32 table, u32 norms)
{
    const int lane = lane_id();
    const float2 r = load_shared_float2(norms + 1024 * (lane / 8) + 8 * (lane % 8));
    const int high = (int)(__reduce_max_sync(~0u, __float_as_uint(fmaxf(r.x, r.y))) >> 23) - 127,
              low = (int)(__reduce_min_sync(~0u, __float_as_uint(fminf(r.x, r.y))) >> 23) - 127;
    const int above = min(max(high + 1, 0), MOST_ABOVE), below = min(max(-low, 0), MOST_BELOW);
    if (lane == 0)
        store_shared(table + W_LIMIT,
                     pack_f16x2(f16_lo(load_shared_u32(table + W_LIMIT)) * power_of_two(-above), 0.0f) |
                         (u32)below << LIMIT_BELOW);
    __syncwarp();
}

/* ---- L and P ------------------------------------------------------------------------------------------------------- */

/*
 * Blocks left of the diagonal: row factors f0, f1 (rows g, g + 8) in fp32, column factors as fp16 pairs, and where there are
 * norms r of the columns.
 */
__device__ __forceinline__ void store_off_diagonal(const float (&x)[32], const BandGates &gates, u32 tile, u32 norms, int band,
                                                   float f0, float f1)
{
    const BlockLane at = block_lane(tile);
#pragma unroll
    for (int J = 0; J < 3; ++J) {
        if (J >= band) break;
        const float *y = &x[8 * J];
        const u32 left = gates.columns[J][0], right = gates.columns[J][1];
        const float2 r = norms_of_columns(norms, 2 * J), s = norms_of_columns(norms, 2 * J + 1);
        stmatrix_x4((at.a ^ (J << 5)) + 2048 * band,
                    multiply_f16x2(pack_f16x2(y[0] * f0 * r.x, y[1] * f0 * r.y), left),
                    multiply_f16x2(pack_f16x2(y[2] * f1 * r.x, y[3] * f1 * r.y), left),
                    multiply_f16x2(pack_f16x2(y[4] * f0 * s.x, y[5] * f0 * s.y), right),
                    multiply_f16x2(pack_f16x2(y[6] * f1 * s.x, y[7] * f1 * s.y), right));
    }
}

/* The diagonal block, columns times r of k. */
__device__ __forceinline__ Block normed_diagonal_block(const float (&x)[32], u32 norms, int band)
{
    Block y = diagonal_block(x, band);
    const float2 r = norms_of_columns(norms, 2 * band), s = norms_of_columns(norms, 2 * band + 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        y.x[i] *= i & 1 ? r.y : r.x;
        y.x[4 + i] *= i & 1 ? s.y : s.x;
    }
    return y;
}

/* Factors of rows g and g + 8 of -L, but for norms. */
__device__ __forceinline__ float2 row_factors_of_l(u32 table, int band)
{
    const u32 betas = table + BETA + row_beta(band, lane_id() >> 2);
    const float scale = BETA_IN_T ? load_shared_float(table + BETA_SCALE) : 1.0f;
    return { load_shared_float(betas) * -scale, load_shared_float(betas + 8) * -scale };
}

/* The diagonal block of L, as far as it is there: in DIAGONAL its two quarters; its lower left one comes back, as -L. */
__device__ __forceinline__ u32 put_quarters(const Block &y, const BandGates &gates, u32 diagonal, float2 f)
{
    const u32 to = diagonal + 2 * (lane_id() & 3) * QUARTER_COLUMN + 4 * (lane_id() >> 2);
    store_shared(to, y.x[0] * -f.x * f16_lo(gates.top));
    store_shared(to + QUARTER_COLUMN, y.x[1] * -f.x * f16_hi(gates.top));
    store_shared(to + QUARTER, y.x[6] * -f.y * f16_lo(gates.right));
    store_shared(to + QUARTER + QUARTER_COLUMN, y.x[7] * -f.y * f16_hi(gates.right));
    return multiply_f16x2(pack_f16x2(y.x[2] * f.y, y.x[3] * f.y), gates.low);
}

/*
 * A band of K K^T, or of Q K^T, times factors of its rows and gates: -L in fp16 left of its diagonal block, and of that D^T,
 * by way of DIAGONAL; or P.
 */
__device__ __forceinline__ void store_band(const float (&x)[32], const BandGates &gates, bool of_q, u32 tile,
                                           u32 diagonal, u32 norms, int band, float2 f)
{
    const Block y = normed_diagonal_block(x, norms, band);
    u32 low = 0;
    if (!of_q) low = put_quarters(y, gates, diagonal, f);
    store_off_diagonal(x, gates, tile, norms, band, f.x * gates.rows.x, f.y * gates.rows.y);
    if (!of_q) {
        invert_diagonal(tile, diagonal, low, band);
    } else {
        const BlockLane at = block_lane(tile);
        stmatrix_x4((at.a ^ (band << 5)) + 2048 * band, multiply_f16x2(pack_f16x2(y.x[0] * f.x, y.x[1] * f.x), gates.top),
                    multiply_f16x2(pack_f16x2(y.x[2] * f.y, y.x[3] * f.y), gates.low), 0u,
                    multiply_f16x2(pack_f16x2(y.x[6] * f.y, y.x[7] * f.y), gates.right));
    }
}

/* ---- The role ---------------------------------------------------------------------------------------------------- */

/* Blocks of T and P above the diagonal are never written again. A band of each tile: of P nobody else writes it. */
__device__ __forceinline__ void clear_squares(int band)
{
    static_assert(P_AT == T_AT + TP_STAGES * SQUARE && TP_STAGES % 2 == 0, "they follow each other");
#pragma unroll 1
    for (int tile = twin(); tile < TP_STAGES + P_STAGES; tile += MAKERS) /* others come as they are */
#pragma unroll 1
        for (int i = lane_id(); i < SQUARE / 4 / 16; i += 32)
            store_shared(at(T_AT) + tile * SQUARE + band * (SQUARE / 4) + 16 * i, 0, 0, 0, 0);
    async_proxy_fence(); /* operands before there is the first P */
}

/* L of a chunk, of K K^T, or P, of Q K^T; f: factors of rows, but for norms; y: with QUERY_GRAM Q Q^T. */
__device__ __forceinline__ void store_square(const float (&x)[32], const float (&y)[32], const BandGates &gates,
                                             float2 f, const Clock &c, int band, bool of_q, bool has_t)
{
    const int slot = l_slot(c.n);
    const u32 table = c.table(), norms = key_norms(c.n);
    if constexpr (spec::QK_L2NORM) {
        float2 r;
        if (of_q) {
            r = QUERY_GRAM ? query_norms(c, diagonal_block(y, band), band) : query_norms(c, band);
        } else {
            share_key_norms(c, diagonal_block(x, band), band);
            if (spec::TWINS) async_proxy_fence();
            bar_sync(BAR_AUX, GROUP);
            if (NORMS_LIMIT_W && band == 0) limit_by_norms(table, norms);
            if (spec::TWINS && band == 0) {
                async_proxy_fence();
                __syncwarp();
                hand_table_over(c.n);
            }
            if (has_t) return;
            r = norms_of_rows(norms, band);
        }
        f = { f.x * r.x, f.y * r.y };
    }
    store_band(x, gates, of_q, at(of_q ? P_AT : L_AT) + (of_q ? p_slot(c.n) : slot) * SQUARE,
               at(DIAGONAL_AT) + (4 * slot + band) * DIAGONAL, norms, band, f);
    if (of_q) async_proxy_fence();
}

/*
 * Pieces of code for L and P: one for both, or one each. One is 16 lines less of the instruction cache, which is too small for
 * kernels that carry, but some instructions more, which all of fp16 and kernels that do not carry lose by.
 */
constexpr int SQUARES_AT_ONCE = spec::CARRIES && spec::IO_BF16 ? 1 : 2;

/* Until the tile of P is free. One warp looks for all: looking takes from who works. */
__device__ __forceinline__ void meet_at_p(const Clock &c, int band)
{
    if (band == 0) {
        wait_for_p(c.n);
        __syncwarp(); /* a barrier counts a warp for each time that lanes of it come by */
    }
    bar_sync(BAR_AUX, GROUP);
}

/*
 * L and P of each chunk that this CTA makes. The inverse warp makes T of L meanwhile; of a chunk whose T was kept there is no
 * L. Chunks of few tokens get an L of rows that are not theirs, which nobody uses: K's slot may have been given back by then.
 * They have no P, nor have chunks whose output nobody wants (twins send the tile as it is, which the other one has, too): where
 * an O is made all the same (in kernels that do not carry, and on the scaled way) it is of an old one, and dropped. A wgmma
 * stands in a branch only where none is in flight, and is waited for there, else ptxas serializes all of the kernel's. band:
 * the warp's 16 rows.
 */
__device__ __forceinline__ void aux_role(const prefill_params &p, int band)
{
    float x[32], y[32];
    Clock c = clock_at(twin());
    clear_squares(band);
    for (;; advance_made(c)) {
        const int slot = l_slot(c.n);
        const u32 table = c.table();
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
        const u32 flags = load_shared_u32(table + FLAGS);
        if (rarely(flags & CHUNK_END)) break;
        const bool has_t = spec::CARRIES && rarely(flags & CHUNK_HAS_T);
        BandGates gates;
#pragma unroll(SQUARES_AT_ONCE)
        for (int square = 0; square < 2; ++square) {
            const bool of_q = square == 1;
            if (of_q && !spec::TWINS) meet_at_p(c, band);
            if (of_q ? !(flags & CHUNK_STATE) : !has_t || spec::QK_L2NORM) {
                float2 f = { p.p_scale, p.p_scale };
                issue_gram(x, of_q ? c.q() : c.k(), c.k());
                if (QUERY_GRAM && of_q) issue_gram(y, c.q(), c.q());
                if (!of_q) { /* meanwhile: shared memory takes its time */
                    gates = band_gates(table, band);
                    f = row_factors_of_l(table, band);
                    mbar_wait(bar(L_EMPTY + slot), l_parity(c.n) ^ 1); /* this L tile's last chunk has been read */
                }
                wgmma_wait<0>();
                settled(x);
                if (QUERY_GRAM && of_q) settled(y);
                if (of_q && spec::TWINS) meet_at_p(c, band); /* no earlier: what gives the tile back may come from afar */
                store_square(x, y, gates, f, c, band, of_q, has_t);
            } else if (!of_q) {
                gates = band_gates(table, band);
                mbar_wait(bar(L_EMPTY + slot), l_parity(c.n) ^ 1);
            }
            mbar_arrive_warp(bar(of_q ? TP_FULL + tp_slot(c.n) : L_FULL + slot), lane_id());
            if (of_q) hand_p_over(c.n, band);
            if (spec::QK_L2NORM && !of_q) mbar_arrive_warp(bar(KEYS_NORMED + (c.n & 3)), lane_id());
        }
    }
    /* Whose inverter looks there for the end; no earlier, or it might still wait for the phase before. */
    mbar_wait(bar(L_EMPTY + l_slot(c.n)), l_parity(c.n) ^ 1);
    mbar_arrive_warp(bar(L_FULL + l_slot(c.n)), lane_id());
}
