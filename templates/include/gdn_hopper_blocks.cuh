/*
 * gdn_hopper_blocks.cuh - 16 x 16 blocks of a 64 x 64 fp16 tile: where a lane finds them, and products of two. Must not know:
 * what the tile holds.
 */
#pragma once

#include "gdn_ptx.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

/* Addresses in a 64 x 64 fp16 tile for stmatrix / ldmatrix of 16 x 16 blocks; block row I: + 2048 I, block column J: ^ 32 J. */
struct BlockLane {
    u32 a; /* (row half, column half) = (0,0) (1,0) (0,1) (1,1): accumulators and operand A */
    u32 b; /* (0,0) (0,1) (1,0) (1,1): operand B of row-major blocks, and transposed stores */
};

__device__ __forceinline__ BlockLane block_lane(u32 tile)
{
    const int lane = lane_id(), m = lane >> 3, r = lane & 7;
    return { tile + ((m & 1) * 8 + r) * 128 + (u32)((m >> 1) ^ r) * 16,
             tile + ((m >> 1) * 8 + r) * 128 + (u32)((m & 1) ^ r) * 16 };
}

/* A block in accumulator layout as operand A of the next product, or as stmatrix takes it. */
__device__ __forceinline__ void pack_block(u32 (&to)[4], const float (&x)[2][4])
{
#pragma unroll
    for (int i = 0; i < 4; ++i)
        to[i] = pack_f16x2(x[i >> 1][2 * (i & 1)], x[i >> 1][2 * (i & 1) + 1]);
}
