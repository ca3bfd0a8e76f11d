/*
 * gdn_split_image.cuh - what the two kinds of CTAs of the split kernel have in common: the image of a chunk, which one hands to
 * the other, the work of a sequence and head, rows into tiles.
 */
#pragma once

#include "gdn_chunk_tp.cuh"
#include "gdn_images.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"

constexpr int WARPS = 4;          /* state warps; load warps; warps of a producer's group */
constexpr int TOKEN_STEPS = C / 16;

constexpr int QK_BYTES = C * DK * 2, GATE_BYTES = C * 4;
constexpr int BLOCK_BYTES = 16 * 16 * 2, TRIANGLE_BYTES = TOKEN_STEPS * (TOKEN_STEPS + 1) / 2 * BLOCK_BYTES;
constexpr int IMAGE_BYTES = 2 * TRIANGLE_BYTES + 3 * GATE_BYTES + (spec::QK_L2NORM ? GATE_BYTES + 16 : 0);

static_assert(C == 64 && DK % 64 == 0, "what tiles and roles divide");
static_assert(spec::THREADS == 3 * 32 * WARPS, "host and device agree on the roles");

/* T and P as ten 16 x 16 blocks each, (I, J) at I (I + 1) / 2 + J, fp16 Tile<16>; e, d, beta fp32. Copied as it is. */
struct Image {
    u32 base; /* in shared memory */

    static __device__ __forceinline__ int block(int I, int J)
    {
        return (I * (I + 1) / 2 + J) * BLOCK_BYTES;
    }
    __device__ __forceinline__ Tile<16> t(int I, int J) const
    {
        return { base + block(I, J) };
    }
    __device__ __forceinline__ Tile<16> p(int I, int J) const
    {
        return { base + TRIANGLE_BYTES + block(I, J) };
    }
    __device__ __forceinline__ u32 decay_in() const
    {
        return base + 2 * TRIANGLE_BYTES;
    }
    __device__ __forceinline__ u32 decay_out() const
    {
        return base + 2 * TRIANGLE_BYTES + GATE_BYTES;
    }
    __device__ __forceinline__ u32 beta() const
    {
        return base + 2 * TRIANGLE_BYTES + 2 * GATE_BYTES;
    }
    __device__ __forceinline__ u32 decay_in_q() const
    {
        return spec::QK_L2NORM ? base + 2 * TRIANGLE_BYTES + 3 * GATE_BYTES : decay_in();
    }
    /* The chunk's whole decay; with in-kernel norms lowest_update() lies behind it. */
    __device__ __forceinline__ u32 decay() const
    {
        return spec::QK_L2NORM ? base + 2 * TRIANGLE_BYTES + 4 * GATE_BYTES : decay_in() + 4 * (C - 1);
    }
    __device__ __forceinline__ u32 lowest() const
    {
        return decay() + 4;
    }
};

/* A head's columns of q, k or v at a sequence's first row. */
#define SOURCE(x, w)                                                                                                   \
    ((const u16 *)p.x + row_offset(w, head_of((w).head, p.x##_div, p.x##_mod), p.x##_batch_stride, p.x##_token_stride, \
                                   p.x##_head_stride))

__device__ __forceinline__ u8 *image_at(const prefill_params &p, i64 index)
{
    return p.images + index * IMAGE_BYTES;
}

/* Rows row0..+ROWS - 1 of a [tokens, stride] matrix into a tile, by one warp; rows from `rows` on become zeros. */
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void load_rows(Tile<COLUMNS> tile, const u16 *source, i64 stride, int row0, int rows,
                                          int lane)
{
    constexpr int PIECES = COLUMNS / 8, ROWS_AT_ONCE = 32 / PIECES;
    const int piece = lane % PIECES;
#pragma unroll 8
    for (int r = 0; r < ROWS; r += ROWS_AT_ONCE) {
        const int row = row0 + r + lane / PIECES;
        const bool inside = row < rows;
        cp_async_16(tile.at(row, piece), source + (inside ? row * stride : 0) + piece * 8, inside ? 16u : 0u);
    }
}
