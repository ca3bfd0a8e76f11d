/*
 * gdn_hopper_inverse.cuh - the inverse warp: T of each chunk's L, whose diagonal blocks are inverted already: D. Must not
 * know: states, items, how these are made.
 */
#pragma once

#include "gdn_hopper_blocks.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

/*
 * Beside wgmma an instruction for the tensor cores, or for shared memory, takes 100 to 300 cycles to come back: all code here
 * does everything of one kind that it can before it looks at the first result.
 */

/* ---- T ------------------------------------------------------------------------------------------------------------- */

/* D_I as operand A, of the D_I^T that lies on the diagonal. */
__device__ __forceinline__ void load_inverse(u32 (&d)[4], const BlockLane &at, int I)
{
    ldmatrix_x4_trans(d, (at.b ^ (I << 5)) + 2048 * I);
}

/* The same as operand B. */
__device__ __forceinline__ void load_inverse_b(u32 (&d)[4], const BlockLane &at, int I)
{
    ldmatrix_x4(d, (at.b ^ (I << 5)) + 2048 * I);
}

/* A row-major block (I, J) as operand B; as it is stored. */
__device__ __forceinline__ void load_block_b(u32 (&x)[4], const BlockLane &at, int I, int J)
{
    ldmatrix_x4_trans(x, (at.a ^ (J << 5)) + 2048 * I);
}

__device__ __forceinline__ void put_block(const BlockLane &at, int I, int J, const u32 (&x)[4])
{
    stmatrix_x4((at.a ^ (J << 5)) + 2048 * I, x[0], x[1], x[2], x[3]);
}

/* A block of T of block column J, which takes beta where that is T's. */
__device__ __forceinline__ void put_solution(const BlockLane &t, int I, int J, const float (&x)[2][4], u32 table)
{
    float4 b = { 1.0f, 1.0f, 1.0f, 1.0f };
    if constexpr (BETA_IN_T) b = gates_of_16(table + BETA, J);
    const u32 packed[4] = { pack_f16x2(x[0][0] * b.x, x[0][1] * b.y), pack_f16x2(x[0][2] * b.x, x[0][3] * b.y),
                            pack_f16x2(x[1][0] * b.z, x[1][1] * b.w), pack_f16x2(x[1][2] * b.z, x[1][3] * b.w) };
    put_block(t, I, J, packed);
}

/* The same of D_I, an operand A. */
__device__ __forceinline__ void put_inverse(const BlockLane &t, int I, const u32 (&d)[4], u32 table)
{
    if constexpr (!BETA_IN_T) return put_block(t, I, I, d);
    const float x[2][4] = { { f16_lo(d[0]), f16_hi(d[0]), f16_lo(d[1]), f16_hi(d[1]) },
                            { f16_lo(d[2]), f16_hi(d[2]), f16_lo(d[3]), f16_hi(d[3]) } };
    put_solution(t, I, I, x, table);
}

/*
 * T from what the L tile has, -L left of the diagonal and D^T on it. In halves of 32 tokens I + L = [ A_0 0; L_10 A_1 ], and
 *
 *     T = [ A_0^-1 diag(beta_0)  0; -A_1^-1 L_10  A_1^-1 diag(beta_1) ]
 *
 * with which state warps solve in two steps (issue_solve()): no block of T then waits for another but those of row 3 for N_32.
 * With N_IJ = -D_I L_IJ these are T_10 = N_10 D_0, T_32 = N_32 D_2, T_2J = N_2J, T_3J = N_3J + N_32 N_2J.
 */
__device__ __forceinline__ void make_t(u32 l_tile, u32 t_tile, u32 table)
{
    const BlockLane l = block_lane(l_tile), t = { l.a - l_tile + t_tile, l.b - l_tile + t_tile };
    float n32[2][4] = {}, n10[2][4] = {}, n2[2][2][4] = {}, n3[2][2][4] = {}, t10[2][4] = {}, t32[2][4] = {};
    u32 d[4], d3[4], b[4], c[4], a10[4], a32[4];
    load_inverse(d3, l, 3);
    load_block_b(b, l, 3, 2);
    load_inverse(d, l, 1);
    load_block_b(c, l, 1, 0);
    mma_block(n32, d3, b);
    mma_block(n10, d, c);
    put_inverse(t, 1, d, table);
    load_inverse(d, l, 2);
    load_block_b(b, l, 2, 0);
    load_block_b(c, l, 2, 1);
    mma_block(n2[0], d, b);
    mma_block(n2[1], d, c);
    put_inverse(t, 2, d, table);
    pack_block(a32, n32);
    load_inverse_b(b, l, 2);
    mma_block(t32, a32, b);
    load_block_b(b, l, 3, 0);
    load_block_b(c, l, 3, 1);
    mma_block(n3[0], d3, b);
    mma_block(n3[1], d3, c);
    put_inverse(t, 3, d3, table);
    pack_block(a10, n10);
    load_inverse_b(b, l, 0);
    mma_block(t10, a10, b);
#pragma unroll
    for (int J = 0; J < 2; ++J) {
        pack_block(b, n2[J]);
        put_block(t, 2, J, b);
    }
    load_inverse(d, l, 0);
    put_inverse(t, 0, d, table);
    __syncwarp();
    load_block_b(b, t, 2, 0);
    load_block_b(c, t, 2, 1);
    mma_block(n3[0], a32, b);
    mma_block(n3[1], a32, c);
    put_solution(t, 3, 2, t32, table);
    put_solution(t, 1, 0, t10, table);
#pragma unroll
    for (int J = 0; J < 2; ++J) {
        pack_block(b, n3[J]);
        put_block(t, 3, J, b);
    }
}

/*
 * The lower left of (I + L)^-1 diag(beta) in place of -A_1^-1 L_10: that times A_0^-1 diag(beta_0), which stands above it.
 */
__device__ __forceinline__ void complete_t(u32 t_tile)
{
    const BlockLane t = block_lane(t_tile);
    float x[2][2][2][4] = {};
    u32 b00[4], b10[4], b11[4], a[2][2][4];
    load_block_b(b00, t, 0, 0);
    load_block_b(b10, t, 1, 0);
    load_block_b(b11, t, 1, 1);
#pragma unroll
    for (int I = 0; I < 2; ++I)
#pragma unroll
        for (int J = 0; J < 2; ++J)
            ldmatrix_x4(a[I][J], (t.a ^ (J << 5)) + 2048 * (I + 2));
#pragma unroll
    for (int I = 0; I < 2; ++I) {
        mma_block(x[I][0], a[I][0], b00);
        mma_block(x[I][1], a[I][1], b11);
        mma_block(x[I][0], a[I][1], b10);
    }
    __syncwarp();
#pragma unroll
    for (int I = 0; I < 2; ++I)
#pragma unroll
        for (int J = 0; J < 2; ++J) {
            pack_block(a[I][J], x[I][J]);
            put_block(t, I + 2, J, a[I][J]);
        }
}

/* ---- T that is kept ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ u8 *kept_t(const prefill_params &p, u32 table)
{
    return p.t_images + (i64)load_shared_u32(table + KEPT_T) * SQUARE;
}

/* By a warp, past a proxy fence of all its lanes behind T. */
__device__ __forceinline__ void keep_t(u8 *to, u32 t_tile)
{
    __syncwarp();
    if (lane_id() == 0) {
        bulk_store(to, t_tile, SQUARE);
        bulk_commit();
        bulk_wait_read<0>(); /* before another T comes there */
    }
}

/* The warp's arrival where T is waited for, which then waits for these bytes; nobody else does. */
__device__ __forceinline__ void fetch_t(const u8 *from, u32 t_tile, u32 full)
{
    expect_bytes(full, SQUARE, lane_id());
    if (lane_id() != 0) return;
    bulk_wait<0>(); /* what was kept is in memory */
    bulk_load(t_tile, from, SQUARE, full);
}

/* Of a warp, by one lane, in a checked build too. */
__device__ __forceinline__ void arrive_once(u32 barrier)
{
    __syncwarp();
    if (lane_id() == 0) mbar_arrive(barrier);
}

/* ---- The role ------------------------------------------------------------------------------------------------------ */

/*
 * T of each chunk that this CTA makes, but of those of few tokens: of its L, or, of one that was kept, fetched. Of others' it
 * says that they will come.
 */
__device__ __forceinline__ void inverse_role(const prefill_params &p)
{
    if (spec::TWINS && twin() == 1) expect_handed(TP_FULL, 0, HANDED_TP);
    for (int n = twin();; n += MAKERS) {
        const int slot = l_slot(n);
        const u32 l_tile = at(L_AT) + slot * SQUARE, to = t_tile(n),
                  table = at(GATE_AT) + n % GATE_STAGES * GATE;
        if (spec::TWINS) expect_handed(TP_FULL, n + 1, HANDED_TP);
        mbar_wait(bar(L_FULL + slot), l_parity(n));
        const u32 flags = load_shared_u32(table + FLAGS);
        if (rarely(flags & CHUNK_END)) break;
        const bool has_t = spec::CARRIES && rarely(flags & CHUNK_HAS_T); /* and no L */
        mbar_wait(bar(TP_EMPTY + tp_slot(n)), tp_parity(n) ^ 1);
        if (!has_t && (!BY_TOKENS || !rarely(flags & CHUNK_FEW))) {
            __syncwarp();
            make_t(l_tile, to, table);
            if constexpr (spec::IMAGES) {
                __syncwarp();
                complete_t(to);
            }
        }
        async_proxy_fence();
        mbar_arrive_warp(bar(L_EMPTY + slot), lane_id());
        if (has_t) {
            fetch_t(kept_t(p, table), to, bar(TP_FULL + tp_slot(n)));
            continue;
        }
        const bool keeps = spec::CARRIES && rarely(flags & CHUNK_KEEPS_T);
        u8 *const kept = keeps ? kept_t(p, table) : nullptr; /* the table may go once T is said to be there */
        if constexpr (spec::IMAGES)
            arrive_once(bar(T_FULL + slot));
        else
            mbar_arrive_warp(bar(TP_FULL + tp_slot(n)), lane_id());
        send_to_twin(to, SQUARE, TP_FULL + tp_slot(n));
        if (keeps) keep_t(kept, to);
    }
}
