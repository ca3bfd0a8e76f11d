/*
 * gdn_hopper_diagonals.cuh - D, the inverses of the 16 x 16 blocks on the diagonal of I + L. Must not know: how L is made,
 * what becomes of D.
 */
#pragma once

#include "gdn_hopper_shared.cuh"
#include "gdn_ptx.cuh"
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
 * -D_22 L_21 D_11 of a block, of which the tile has D_11^T and D_22^T, by a product each: operands transposed, so that the
 * first one's result is an operand of the second as it stands. l21: -L_21 as operand B.
 */
__device__ __forceinline__ void invert_left(u32 to, u32 l21)
{
    u32 upper[4], lower[4];
    float product[4] = {}, left[4] = {};
    ldmatrix_x4(upper, to);       /* D_11^T first */
    ldmatrix_x4_trans(lower, to); /* D_22 second */
    const u32 d11[4] = { upper[0], 0, 0, 0 }, b[2] = { l21, 0 };
    mma_f16(product, d11, b);
    const u32 a[4] = { pack_f16x2(product[0], product[1]), 0, 0, 0 }, d22[2] = { lower[1], 0 };
    mma_f16(left, a, d22);
    const u32 packed = pack_f16x2(left[0], left[1]);
    stmatrix_x4(to ^ 16, packed, 0u, packed, 0u);
}

/*
 * D = (I + L)^-1 of a band's block, which `block` has as DIAGONAL says but for its lower left quarter, l21; D^T goes to its
 * place in the L tile. By the warp that has stored it. A lane has a column of either quarter, the upper half what the lower
 * one has.
 */
__device__ __forceinline__ void invert_diagonal(u32 l_tile, u32 block, u32 l21, int band)
{
    float x[8];
    const int lane = lane_id(), row = lane % 8, half = lane / 8 % 2;
    const u32 to = l_tile + 2048 * band + (8 * half + row) * 128 + (u32)((2 * band + half) ^ row) * 16;
    float column = (float)row;       /* of floats a comparison gives 1 or 0 in one instruction */
    asm volatile("" : "+f"(column)); /* that it stays one */
    __syncwarp();
    invert_column(x, block + half * QUARTER, column);
    store_shared(to, pack_f16x2(x[0], x[1]), pack_f16x2(x[2], x[3]), pack_f16x2(x[4], x[5]), pack_f16x2(x[6], x[7]));
    __syncwarp();
    invert_left(to, l21);
}
