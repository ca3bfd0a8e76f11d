/*
 * gdn_hopper_copies.cuh - K, Q and V tiles from memory by TMA, rows of O to it. Must not know: items, who waits for a tile.
 */
#pragma once

#include "gdn_hopper_shared.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

/* A tile's place in its tensor map. */
struct TileAt {
    int token, half, head, batch;
};

/* The maps come while the first item is looked for; a call without tokens, or without a sequence, has none. By one lane. */
__device__ __forceinline__ void prefetch_maps(const prefill_params &p)
{
    if (p.num_tokens <= 0 || p.num_seqs <= 0) return;
    tma_prefetch_map(&p.k_map);
    tma_prefetch_map(&p.q_map);
    tma_prefetch_map(&p.v_map);
    tma_prefetch_map(&p.o_map);
    if (spec::TRANSIT && p.states_by_map && p.initial_state) tma_prefetch_map(&p.initial_map);
    if (spec::TRANSIT && p.states_by_map && p.final_state) tma_prefetch_map(&p.final_map);
}

/* By one lane. */
__device__ __forceinline__ void load_tile(u32 to, const void *map, u32 bar, const TileAt &from)
{
    tma_load(to, map, bar, from.token, from.half, from.head, from.batch);
}

/* A barrier's only tile, or the first of them: so many bytes in all. */
__device__ __forceinline__ void load_first_tile(u32 to, const void *map, u32 full, const TileAt &from, u32 bytes)
{
    if (elected()) {
        mbar_arrive_expect(full, bytes);
        load_tile(to, map, full, from);
    } else if (ARRIVALS_PER_WARP == 32) {
        mbar_arrive(full);
    }
    __syncwarp();
}

/* Rows from `rows` on of a tile of so many bytes become zeros. */
template <int BYTES> __device__ __forceinline__ void clear_rest(u32 tile, int rows, int lane)
{
#pragma unroll 1
    for (int i = rows * 8 + lane; i < C * 8; i += 32) {
        store_shared(tile + 16 * i, 0, 0, 0, 0);
        if (BYTES > HALF) store_shared(tile + HALF + 16 * i, 0, 0, 0, 0);
    }
}

/* The first rows of a 64-column half of O, by one warp. */
__device__ __forceinline__ void store_rows(u32 tile, u16 *to, i64 stride, int rows, int lane)
{
#pragma unroll 1 /* four at once, as ptxas would have it, take registers that kernels with norms lack */
    for (int i = lane; i < rows * 8; i += 32) {
        const int row = i >> 3, piece = i & 7;
        *(uint4 *)(to + row * stride + 8 * piece) = load_shared_16(tile + row * 128 + ((piece ^ (row & 7)) << 4));
    }
}

/*
 * Share number `share` of `shares` of the rows of o that no sequence has, if they are to be zeros: rows in a row, of two heads
 * at a time. By one warp; all CTAs have a share, whatever their items are.
 */
__device__ __forceinline__ void zero_share(const prefill_params &p, int share, int shares, int lane)
{
    static_assert(D / 8 == 16, "half a warp a row");
    if constexpr (spec::ZERO_PADDING) {
        if (!p.cu_seqlens) return;
        const i64 padding = first_of_padding(p), rows = p.num_tokens - padding, pitch = 2 * p.o_head_stride;
        const i64 end = padding + rows * (share + 1) / shares;
        i64 row = padding + rows * share / shares;
        u16 *o = (u16 *)p.o + row * p.o_token_stride + lane / 16 * p.o_head_stride + lane % 16 * 8;
        for (; row < end; ++row, o += p.o_token_stride) {
            u16 *to = o;
#pragma unroll 1
            for (int head = lane / 16; head < p.num_heads; head += 2, to += pitch)
                *(uint4 *)to = make_uint4(0, 0, 0, 0);
        }
    }
}
