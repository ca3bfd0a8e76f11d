/*
 * gdn_hopper_output.cuh - the output warp: O tiles to memory; then who waits for the item is told.
 */
#pragma once

#include "gdn_hopper_copies.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_guesses.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_queue.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"

/* O tiles to memory. The proxy fence stands here, past the barrier, and not in the state warps, which have no time for it. */
__device__ __forceinline__ void output_role(const prefill_params &p, int lane)
{
    u32 parity = 0;
    zero_share(p, blockIdx.x, gridDim.x, lane); /* while there is nothing else to do */
    for (int number = 0;; ++number) {
        const Item item = published(p, number);
        if (item.n < 0) break;
        /* Up to here chunks have all rows, or nobody wants them. What is rare in a loop would lie between its hot lines. */
        const int whole = min(item.end, max(item.len / C, item.main));
        int step = item.begin;
        do {
            const int until = spec::CUTS ? serve_guess(p, item, step, lane) : item.end;
            for (; step < min(until, whole); ++step, parity ^= 1)
#pragma unroll 1 /* each line of code is one of the cache's */
                for (int half = 0; half < STATE_GROUPS; ++half) {
                    mbar_wait(bar(O_FULL + half), parity);
                    if (step >= item.main && elected()) {
                        async_proxy_fence();
                        tma_store(&p.o_map, at(O_AT) + half * HALF, (int)item.first + step * C,
                                  column_of(item.part) / 64 + half, item.head(), (int)item.batch);
                        bulk_commit();
                        bulk_wait_read<0>();
                    }
                    mbar_arrive_warp(bar(O_EMPTY + half), lane);
                }
            if (step < until) { /* the sequence's last chunk, or its only one, of no tokens */
                for (int half = 0; half < STATE_GROUPS; ++half) {
                    mbar_wait(bar(O_FULL + half), parity);
                    store_rows(at(O_AT) + half * HALF,
                               (u16 *)p.o +
                                   row_offset(item, item.head(), p.o_batch_stride, p.o_token_stride, p.o_head_stride) +
                                   (i64)whole * C * p.o_token_stride + column_of(item.part) + half * 64,
                               p.o_token_stride, item.len - whole * C, lane);
                    mbar_arrive_warp(bar(O_EMPTY + half), lane);
                }
                ++step;
                parity ^= 1;
            }
        } while (spec::CUTS && step < item.end);
        if (spec::CUTS) {
            serve_guess(p, item, item.end, lane);
            const int partitions = partitions_of(p, item);
            mbar_wait(bar(ITEM_DONE + (number & 1)), number >> 1 & 1);
            if constexpr (spec::CARRIES) tell_link(p, entry_of(number), lane);
            finish_partition(p, item, number, partitions, lane);
        }
    }
}
