/*
 * gdn_hopper_inverse.cuh - the inverse warp: of each chunk's L, D and M = D L in the place of it, where D is the inverse of
 * the 16 x 16 blocks on the diagonal of I + L. Must not know: states, items, how T is made of them.
 */
#pragma once

#include "gdn_hopper_blocks.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

/*
 * Beside wgmma an instruction for the tensor cores, or for shared memory, takes 100 to 300 cycles to come back: all code here
 * does everything of one kind that it can before it looks at the first result.
 */

/* D of two 8 x 8 quarters on the diagonal: this lane's column of either, by substitution in fp32. */
__device__ __forceinline__ void invert_columns(float (&x)[2][8], const u32 (&quarter)[2], float column)
{
#pragma unroll
    for (int i = 0; i < 8; ++i)
        x[0][i] = x[1][i] = column == (float)i ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < 7; ++k)
#pragma unroll
        for (int q = (k + 1) / 4; q < 2; ++q)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float4 l = load_shared_float4(quarter[j] + k * QUARTER_COLUMN + 16 * q);
                if (4 * q + 0 > k) x[j][4 * q + 0] -= l.x * x[j][k];
                if (4 * q + 1 > k) x[j][4 * q + 1] -= l.y * x[j][k];
                if (4 * q + 2 > k) x[j][4 * q + 2] -= l.z * x[j][k];
                if (4 * q + 3 > k) x[j][4 * q + 3] -= l.w * x[j][k];
            }
}

/*
 * -D_22 L_21 D_11 of four blocks, of which the tile has D_11^T and D_22^T, two by one product each: block diagonal operands,
 * transposed, so that the first one's result is an operand of the second as it stands. to: of the first two blocks, and of the
 * others.
 */
__device__ __forceinline__ void invert_left(const u32 (&to)[2], const u32 (&l21)[2][2])
{
    u32 upper[2][4], lower[2][4], packed[2][4] = {};
    float product[2][4] = {}, left[2][4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(upper[i], to[i]);       /* D_11^T of either block first */
        ldmatrix_x4_trans(lower[i], to[i]); /* D_22 of either block last */
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const u32 d11[4] = { upper[i][0], 0, 0, upper[i][1] };
        mma_f16(product[i], d11, l21[i]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const u32 d22[2] = { lower[i][2], lower[i][3] };
        packed[i][0] = pack_f16x2(product[i][0], product[i][1]);
        packed[i][3] = pack_f16x2(product[i][2], product[i][3]);
        mma_f16(left[i], packed[i], d22);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
        stmatrix_x4(to[i] ^ 16, pack_f16x2(left[i][0], left[i][1]), pack_f16x2(left[i][2], left[i][3]), 0u, 0u);
}

/*
 * D = (I + L)^-1 of the four 16 x 16 diagonal blocks; D^T goes to their place in the L tile. A lane has a column of a quarter
 * of blocks 0 or 1, and the same one of blocks 2 or 3.
 */
__device__ __forceinline__ void invert_diagonals(u32 l_tile, u32 diagonals)
{
    float x[2][8];
    u32 l21[2][2];
    const int lane = lane_id(), row = lane % 8, band = lane / 8 % 2, half = lane / 16;
    const u32 first = l_tile + 2048 * band + (8 * half + row) * 128 + (u32)((2 * band + half) ^ row) * 16;
    const u32 to[2] = { first, (first ^ 64) + 2 * 2048 };
    const u32 quarter = diagonals + band * DIAGONAL + half * QUARTER;
    const u32 quarters[2] = { quarter, quarter + 2 * DIAGONAL };
    float column = (float)row;       /* of floats a comparison gives 1 or 0 in one instruction */
    asm volatile("" : "+f"(column)); /* that it stays one */
#pragma unroll
    for (int i = 0; i < 4; ++i)
        l21[i / 2][i % 2] = load_shared_u32(diagonals + i * DIAGONAL + 2 * QUARTER + 4 * lane);
    invert_columns(x, quarters, column);
#pragma unroll
    for (int i = 0; i < 2; ++i)
        store_shared(to[i], pack_f16x2(x[i][0], x[i][1]), pack_f16x2(x[i][2], x[i][3]), pack_f16x2(x[i][4], x[i][5]),
                     pack_f16x2(x[i][6], x[i][7]));
    __syncwarp();
    invert_left(to, l21);
}

/* Blocks (I, J) left of the diagonal that one batch of products makes, three a batch: registers are few. */
struct Left {
    int I, J;
};

__device__ constexpr Left left_block(int batch, int i)
{
    return batch == 0 ? (i == 0 ? Left{ 1, 0 } : Left{ 2, i - 1 }) : Left{ 3, i };
}

struct LeftBatch {
    u32 d[3][4], l[3][4]; /* operands */
};

__device__ __forceinline__ void load_left(LeftBatch &x, const BlockLane &at, int batch)
{
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const Left b = left_block(batch, i);
        if (i == 0 || b.I != left_block(batch, i - 1).I)
            ldmatrix_x4_trans(x.d[i], (at.b ^ (b.I << 5)) + 2048 * b.I);
        else
#pragma unroll
            for (int j = 0; j < 4; ++j)
                x.d[i][j] = x.d[i - 1][j];
        ldmatrix_x4_trans(x.l[i], (at.a ^ (b.J << 5)) + 2048 * b.I);
    }
}

/* M = D L of the blocks left of the diagonal: -L_IJ <- D_I times that, in place. */
__device__ __forceinline__ void multiply_rows(u32 l_tile)
{
    const BlockLane at = block_lane(l_tile);
    LeftBatch x;
    load_left(x, at, 0);
#pragma unroll
    for (int batch = 0; batch < 2; ++batch) {
        float m[3][2][4] = {};
        u32 packed[3][4];
#pragma unroll
        for (int i = 0; i < 3; ++i)
            mma_block(m[i], x.d[i], x.l[i]);
        if (batch == 0) load_left(x, at, 1);
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            const Left b = left_block(batch, i);
            pack_block(packed[i], m[i]);
            stmatrix_x4((at.a ^ (b.J << 5)) + 2048 * b.I, packed[i][0], packed[i][1], packed[i][2], packed[i][3]);
        }
    }
}

__device__ __forceinline__ void inverse_role()
{
    for (int n = 0;; ++n) {
        const int slot = n & 1;
        mbar_wait(bar(DIAGONAL_FULL + slot), n >> 1 & 1);
        const u32 flags = load_shared_u32(at(GATE_AT) + n % GATE_STAGES * GATE + FLAGS);
        if (rarely(flags & CHUNK_END)) break;
        if (!spec::CARRIES || !(flags & CHUNK_HAS_T)) {
            invert_diagonals(at(L_AT) + slot * SQUARE, at(DIAGONAL_AT) + 4 * slot * DIAGONAL);
            __syncwarp();
            multiply_rows(at(L_AT) + slot * SQUARE);
        }
        mbar_arrive_warp(bar(DIAGONAL_DONE + slot), lane_id());
    }
}
