/*
 * gdn_hopper_table.cuh - a chunk's gate table, which the gate warp writes, aux warps correct by norms, and state warps read.
 * Must not know: where tables lie, who waits for them.
 */
#pragma once

#include "gdn_ptx_sm90.cuh"
#include "gdn_spec.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

/*
 * beta's place: T's columns, in fp16, or W's rows, in fp32. The first is two instructions a chunk cheaper for every token and
 * column, and a rounding of its own, which only bf16's bounds have room for.
 */
constexpr bool BETA_IN_T = spec::IO_BF16;

/*
 * A gate table, bytes from its start; the first five are per token. Those that state warps read, of which a lane wants tokens
 * 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of every 16, have these four side by side: see pair_at().
 */
enum {
    DECAY_IN = 0,    /* e; beta e where beta is in W; by pairs */
    DECAY_OUT = 256, /* d; by pairs */
    BETA = 512,      /* by pairs */
    BAND_LOG = 768,    /* c_i - c of the first token of i's band of 16 */
    DECAY_IN_Q = 1024, /* e times scale; by pairs */
    COLUMN_DECAY =
        1280, /* fp16: 2^(c of band b's first token - c_j) for j < 16 b: 16 of band 1, 32 of band 2, 48 of band 3 */
    DECAY_ALL = 1472,  /* e_63 */
    /* fp16 bits: |W| up to which V' and d V' stay in range, 0: scale whatever it is; above them see LIMIT_BELOW */
    W_LIMIT = 1476,
    BETA_SCALE = 1480, /* T, where it has beta, holds beta / this; where it is not 1, W_LIMIT is 0 */
    FLAGS = 1484,
    CHECKPOINT = 1488, /* row of the list, where the flag says so */
    KEPT_T = 1492,     /* where the chunk's T is kept, by CHUNK_KEEPS_T and CHUNK_HAS_T */
    TOKENS = 1496      /* how many, of CHUNK_FEW */
};
/*
 * A chunk of up to FEW_TOKENS is made token by token (gdn_hopper_few.cuh). Its table has decay and beta of each, side by side,
 * in place of what aux warps alone read. Not in kernels that carry, whose code has no room for it: there an empty sequence's
 * chunk has the flag, and no other.
 */
constexpr bool BY_TOKENS = !spec::CARRIES && !spec::IMAGES;
constexpr int FEW_TOKENS = BY_TOKENS ? 3 : 0;
enum { FEW_GATES = BAND_LOG };
static_assert(FEW_GATES + 8 * (FEW_TOKENS + 1) <= DECAY_IN_Q, "norms leave it alone, twins with norms send it in time");
/* Of an image, which has no use for what else is there: what its X and its P T are divided by, powers of two. */
constexpr int SIZE_X = BETA_SCALE, SIZE_SCORES = W_LIMIT;
/*
 * FLAGS: END: no chunk, leave. STATE: nobody wants its P, nor, of usual chunks, its O. TRANSITION: keep_size() looks behind it.
 * FEW: of FEW_TOKENS at the most; of none where an empty sequence's state is copied. BEFORE_FEW: the next one is. Above them
 * the number of the CTA's item, modulo what fits.
 */
enum { CHUNK_LAST = 1, CHUNK_CHECKPOINT = 2, CHUNK_END = 4, CHUNK_REPLAYED = 8, CHUNK_TRANSITION = 16, CHUNK_STATE = 32 };
enum { CHUNK_KEEPS_T = 64, CHUNK_HAS_T = 128, CHUNK_FEW = 256, CHUNK_BEFORE_FEW = 512, ITEM_SHIFT = 10 };

/* Where in a table by pairs tokens 2 `pair` and 2 `pair` + 1 are. */
__device__ constexpr u32 pair_at(u32 pair)
{
    return 64 * (pair / 8) + 16 * (pair % 4) + 8 * (pair / 4 % 2);
}

/* Of a table by pairs this lane's tokens of 16: of the first 8 x and y, of the others z and w. */
__device__ __forceinline__ float4 gates_of_16(u32 table, int m16)
{
    return load_shared_float4(table + pair_at(8 * m16 + (lane_id() & 3)));
}

/* Of a band's row g < 8 in a table by pairs; row g + 8 is 8 bytes on. Not by pair_at(), which does not know that g is small. */
__device__ constexpr u32 row_beta(int band, int g)
{
    return 64 * band + 16 * (g >> 1) + 4 * (g & 1);
}
static_assert(row_beta(3, 5) == pair_at(26) + 4 && row_beta(3, 5) + 8 == pair_at(30) + 4, "rows 53 and 61");

constexpr int LIMIT_BELOW = 16; /* in W_LIMIT, from this bit on: by what power of two rows of W have to be larger, too */
constexpr bool NORMS_LIMIT_W = spec::QK_L2NORM && !spec::IO_BF16; /* r d V' in fp16 */

/* For what the two of W_LIMIT say. */
__device__ __forceinline__ float power_of_two(int exponent)
{
    return __uint_as_float((u32)(127 + exponent) << 23);
}
__device__ __forceinline__ float inverse(float power_of_two)
{
    return __uint_as_float((254u << 23) - __float_as_uint(power_of_two));
}
