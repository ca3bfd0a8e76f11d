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

/* D of an 8 x 8 quarter on the diagonal: this lane's column of it, by substitution in fp32. */
__device__ __forceinline__ void invert_column(float (&x)[8], u32 quarter, float column)
{
#pragma unroll
    for (int i = 0; i < 8; ++i)
        x[i] = column == (float)i ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < 7; ++k)
#pragma unroll
        for (int q = (k + 1) / 4; q < 2; ++q) {
            const float4 l = load_shared_float4(quarter + k * QUARTER_COLUMN + 16 * q);
            if (4 * q + 0 > k) x[4 * q + 0] -= l.x * x[k];
            if (4 * q + 1 > k) x[4 * q + 1] -= l.y * x[k];
            if (4 * q + 2 > k) x[4 * q + 2] -= l.z * x[k];
            if (4 * q + 3 > k) x[4 * q + 3] -= l.w * x[k];
        }
}

/*
 * -D_22 L_21 D_11 of two blocks, which the tile has D_11^T and D_22^T of, by one product each: block diagonal operands,
 * transposed, so that the first one's result is an operand of the second as it stands.
 */
__device__ __forceinline__ void invert_left(u32 to, const u32 (&l21)[2])
{
    u32 upper[4], lower[4];
    ldmatrix_x4(upper, to);       /* D_11^T of either block first */
    ldmatrix_x4_trans(lower, to); /* D_22 of either block last */
    const u32 d11[4] = { upper[0], 0, 0, upper[1] }, d22[2] = { lower[2], lower[3] };
    float product[4] = {}, left[4] = {};
    mma_f16(product, d11, l21);
    const u32 packed[4] = { pack_f16x2(product[0], product[1]), 0, 0, pack_f16x2(product[2], product[3]) };
    mma_f16(left, packed, d22);
    stmatrix_x4(to ^ 16, pack_f16x2(left[0], left[1]), pack_f16x2(left[2], left[3]), 0u, 0u);
}

/*
 * D = (I + L)^-1 of the four 16 x 16 diagonal blocks; D^T goes to their place in the L tile. A lane has a column of a quarter
 * of blocks 0 or 1, and the same one of blocks 2 or 3.
 */
__device__ __forceinline__ void invert_diagonals(u32 l_tile, u32 diagonals)
{
    float x[2][8];
    u32 l21[4];
    const int lane = lane_id(), row = lane % 8, band = lane / 8 % 2, half = lane / 16;
    const u32 to = l_tile + 2048 * band + (8 * half + row) * 128 + (u32)((2 * band + half) ^ row) * 16;
    const u32 next = (to ^ 64) + 2 * 2048;
    float column = (float)row;       /* of floats a comparison gives 1 or 0 in one instruction */
    asm volatile("" : "+f"(column)); /* that it stays one */
#pragma unroll
    for (int i = 0; i < 4; ++i)
        l21[i] = load_shared_u32(diagonals + i * DIAGONAL + 2 * QUARTER + 4 * lane);
#pragma unroll
    for (int i = 0; i < 2; ++i)
        invert_column(x[i], diagonals + (2 * i + band) * DIAGONAL + half * QUARTER, column);
#pragma unroll
    for (int i = 0; i < 2; ++i)
        store_shared(i == 0 ? to : next, pack_f16x2(x[i][0], x[i][1]), pack_f16x2(x[i][2], x[i][3]),
                     pack_f16x2(x[i][4], x[i][5]), pack_f16x2(x[i][6], x[i][7]));
    __syncwarp();
    const u32 first[2] = { l21[0], l21[1] }, second[2] = { l21[2], l21[3] };
    invert_left(to, first);
    invert_left(next, second);
}

/* M = D L of the blocks left of the diagonal: -L_IJ <- D_I times that, in place. */
__device__ __forceinline__ void multiply_rows(u32 l_tile)
{
    const BlockLane at = block_lane(l_tile);
#pragma unroll
    for (int I = 1; I < 4; ++I) {
        u32 d[4];
        ldmatrix_x4_trans(d, (at.b ^ (I << 5)) + 2048 * I);
#pragma unroll
        for (int J = 0; J < I; ++J) {
            const u32 block = (at.a ^ (J << 5)) + 2048 * I;
            u32 b[4];
            float m[2][4] = {};
            ldmatrix_x4_trans(b, block);
            mma_block(m, d, b);
            pack_block(b, m);
            stmatrix_x4(block, b[0], b[1], b[2], b[3]);
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
