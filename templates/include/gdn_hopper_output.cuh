/*
 * gdn_hopper_output.cuh - the output warp: O tiles to memory, then finish_partition() (gdn_hopper_queue.cuh).
 */
#pragma once

#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_queue.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"

/* The first rows of a 64-column half of O, by one warp. */
__device__ __forceinline__ void store_rows(u32 tile, u16 *to, i64 stride, int rows, int lane)
{
    for (int i = lane; i < rows * 8; i += 32) {
        const int row = i >> 3, piece = i & 7;
        *(uint4 *)(to + row * stride + 8 * piece) = load_shared_16(tile + row * 128 + ((piece ^ (row & 7)) << 4));
    }
}

/* O tiles to memory. The proxy fence stands here, past the barrier, and not in the state warps, which have no time for it. */
__device__ __forceinline__ void output_role(const prefill_params &p, int lane)
{
    u32 parity = 0;
    if constexpr (spec::ZERO_PADDING) /* while there is nothing else to do; of any (n, head) each CTA's share */
        for (int index = blockIdx.x; index < max(p.num_seqs, 1) * p.num_heads; index += gridDim.x)
            zero_padding<D>(p, index / p.num_heads, index % p.num_heads, 0, lane, 32);
    for (int number = 0;; ++number) {
        const Item item = published(p, number);
        if (item.n < 0) break;
        /* Up to here chunks have all rows, or nobody wants them. What is rare in a loop would lie between its hot lines. */
        const int whole = min(item.end, max(item.len / C, item.main));
        for (int step = item.begin; step < whole; ++step, parity ^= 1)
            for (int half = 0; half < STATE_GROUPS; ++half) {
                mbar_wait(bar(O_FULL + half), parity);
                if (step >= item.main && lane == 0) {
                    async_proxy_fence();
                    tma_store(&p.o_map, at(O_AT) + half * HALF, (int)item.first + step * C, column_of(item.part) / 64 + half,
                              item.head(), (int)item.batch);
                    bulk_commit();
                    bulk_wait_read<0>();
                }
                mbar_arrive_warp(bar(O_EMPTY + half), lane);
            }
        if (whole < item.end) { /* the sequence's last chunk, or its only one, of no tokens */
            for (int half = 0; half < STATE_GROUPS; ++half) {
                mbar_wait(bar(O_FULL + half), parity);
                store_rows(at(O_AT) + half * HALF,
                           (u16 *)p.o +
                               row_offset(item, item.head(), p.o_batch_stride, p.o_token_stride, p.o_head_stride) +
                               (i64)whole * C * p.o_token_stride + column_of(item.part) + half * 64,
                           p.o_token_stride, item.len - whole * C, lane);
                mbar_arrive_warp(bar(O_EMPTY + half), lane);
            }
            parity ^= 1;
        }
        if (p.partition) finish_partition(p, item, number, lane);
    }
}
