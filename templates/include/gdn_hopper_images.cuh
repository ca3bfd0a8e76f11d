/*
 * gdn_hopper_images.cuh - what the two kinds of CTAs of the Hopper kernel for few heads have in common: the image of a chunk,
 * which one hands to the other. Must not know: how it is made, what becomes of it.
 */
#pragma once

#include "gdn_hopper_copies.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_images.cuh"
#include "gdn_types.cuh"

/* X and P T, tiles of fp16 as wgmma takes them, and the gate table up to what others keep behind it. */
constexpr int IMAGE_PT = TILE, IMAGE_TABLE = IMAGE_PT + SQUARE, IMAGE_BYTES = IMAGE_TABLE + GATE;
static_assert(TABLE_BYTES % 16 == 0 && TABLE_BYTES > KEPT_T && IMAGE_BYTES == spec::IMAGE_BYTES, "host and device agree");
/* Which image a chunk's is, in its table: nobody keeps T here. */
constexpr int IMAGE_INDEX = KEPT_T;

__device__ __forceinline__ u8 *image_at(const prefill_params &p, i64 index)
{
    return p.images + index * IMAGE_BYTES;
}

/* Where a chunk's rows of a head lie in its tensor. */
__device__ __forceinline__ TileAt tile_at(const Work &w, int chunk, int head, int half)
{
    return { (int)w.first + chunk * C, half, head, (int)w.batch };
}
