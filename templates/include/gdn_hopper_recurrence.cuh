/*
 * gdn_hopper_recurrence.cuh - the roles of a pair of CTAs that takes half of a head's value columns through a sequence, by
 * images that others make. Must not know: how images are made.
 */
#pragma once

#include "gdn_hopper_chain.cuh"
#include "gdn_hopper_copies.cuh"
#include "gdn_hopper_images.cuh"
#include "gdn_hopper_readout.cuh"
#include "gdn_hopper_ring.cuh"
#include "gdn_hopper_rows.cuh"
#include "gdn_images.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"

/* A sequence, a head and half of its value columns. */
struct Strip : Work {
    int half;
};

/* Rows of a sequence's chunk n: the last one may have fewer than 64. */
__device__ __forceinline__ int rows_of(const Strip &w, int n)
{
    return min(w.len - n * C, C);
}

/*
 * Behind the loads of a sequence's last chunk into a tile that arrive at TAIL: what TMA brings past the sequence's end is
 * another's, and a NaN there must not spread.
 */
template <int BYTES> __device__ __forceinline__ void clear_tail(u32 tile, u32 tail, int rows, int lane)
{
    mbar_wait(tail, 0);
    clear_rest<BYTES>(tile, rows, lane);
    async_proxy_fence();
}

/*
 * Of a strip's images, up to which chunk they are there; what is loaded after it may be these. Flags are seen by loads of the
 * generic proxy, images come by the other one, hence the fence.
 */
struct Images {
    i64 first;
    int ready;

    __device__ __forceinline__ Images(const prefill_params &p, const Strip &w)
        : first(image_index(p, w.head, first_image_row(p, w.seq))), ready(0)
    {
    }
    __device__ __forceinline__ void wait(const prefill_params &p, const Strip &w, int n, int lane)
    {
        if (n < ready) return;
        ready = wait_images(p, first, n, w.chunks, lane);
        async_proxy_fence_all();
    }
    /* A look takes as long as a chunk: this one, behind the loads of chunk n, is in time for the next but one. */
    __device__ __forceinline__ void look_ahead(const prefill_params &p, const Strip &w, int n, int lane)
    {
        if (ready == w.chunks || ready > n + 2) return;
        ready = look_for_images(p, first, ready, w.chunks, lane);
        async_proxy_fence_all();
    }
};

/* ---- The CTA that has S ---------------------------------------------------------------------------------------------- */

/* K and V of all chunks. */
__device__ __forceinline__ void chain_load_role(const prefill_params &p, const Strip &w, int lane)
{
    for (int n = 0; n < w.chunks; ++n) {
        const TileAt k = tile_at(w, n, head_of(w.head, p.k_div, p.k_mod), 0),
                     v = tile_at(w, n, head_of(w.head, p.v_div, p.v_mod), w.half);
        const u32 full = chain::bar(chain::FULL + slot4(n)), k_tile = at(chain::K) + slot4(n) * TILE,
                  v_tile = at(chain::V) + slot4(n) * HALF;
        const int rows = rows_of(w, n);
        const u32 to = rows == C ? full : chain::bar(chain::TAIL);
        mbar_wait(chain::bar(chain::EMPTY + slot4(n)), parity4(n) ^ 1);
        __syncwarp(); /* all have looked before a phase can follow */
        if (lane == 0) {
            mbar_arrive_expect(to, TILE + HALF);
            load_tile(k_tile, &p.k_map, to, k);
            load_tile(v_tile, &p.v_map, to, v);
        }
        if (rows < C) {
            clear_tail<TILE>(k_tile, to, rows, lane);
            clear_tail<HALF>(v_tile, to, rows, lane);
            arrive_at(full);
        } else if (ARRIVALS_PER_WARP == 32 && lane != 0) {
            mbar_arrive(full);
        }
        __syncwarp();
    }
}

/* Tables and X of all chunks, once they are there. */
__device__ __forceinline__ void chain_image_role(const prefill_params &p, const Strip &w, int lane)
{
    Images images(p, w);
    for (int n = 0; n < w.chunks; ++n) {
        const u8 *const image = image_at(p, images.first + n);
        const u32 full = chain::bar(chain::FULL + slot4(n)), x_full = chain::bar(chain::X_FULL + slot4(n));
        images.wait(p, w, n, lane);
        mbar_wait(chain::bar(chain::EMPTY + slot4(n)), parity4(n) ^ 1);
        expect_bytes(full, TABLE_BYTES, lane);
        if (lane == 0) bulk_load(at(chain::TABLE) + slot4(n) * GATE, image + IMAGE_TABLE, TABLE_BYTES, full);
        expect_bytes(x_full, TILE, lane);
        if (lane == 0) bulk_load(at(chain::X) + slot4(n) * TILE, image, TILE, x_full);
        __syncwarp();
        images.look_ahead(p, w, n, lane);
    }
}

/*
 * Says when a chunk is ready: its X, the next one's K, V and table, and room to put its W. Every phase is waited for, the first
 * one too, which nobody is told of here: a wait for the one that follows would not see that it has not begun.
 */
__device__ __forceinline__ void chain_ready_role(const Strip &w, int lane)
{
    if (w.chunks > 0) mbar_wait(chain::bar(chain::FULL), 0);
    for (int n = 0; n < w.chunks; ++n) {
        mbar_wait(chain::bar(chain::X_FULL + slot4(n)), parity4(n));
        if (n + 1 < w.chunks) mbar_wait(chain::bar(chain::FULL + slot4(n + 1)), parity4(n + 1));
        mbar_wait(chain::bar(chain::TAKEN + slot4(n)), parity4(n) ^ 1);
        mbar_arrive_warp(chain::bar(chain::READY + slot4(n)), lane);
    }
}

/* W of all chunks to the other CTA. */
__device__ __forceinline__ void hand_over_role(const Strip &w, int lane)
{
    for (int n = 0; n < w.chunks; ++n) {
        mbar_wait(chain::bar(chain::PUT + slot4(n)), parity4(n));
        __syncwarp(); /* what lane 0 now lets happen may complete the next phase */
        if (lane == 0) {
            async_proxy_fence();
            bulk_copy_cluster(address_in(at(readout::HANDED) + slot4(n) * HANDED_BYTES, READOUT_RANK),
                              at(chain::HANDED) + slot4(n) * HANDED_BYTES, HANDED_BYTES,
                              address_in(readout::bar(readout::HANDED_FULL + slot4(n)), READOUT_RANK));
        }
        __syncwarp();
    }
}

/* Value column of this lane's first row. */
__device__ __forceinline__ int row_of(const Strip &w, int warp)
{
    return 64 * w.half + 16 * warp + (lane_id() >> 2);
}

/* S at a sequence's start. */
__device__ __forceinline__ void begin_state(float (&S)[64], const prefill_params &p, const Strip &w, int warp)
{
    clear(S);
    if (!w.from_zeros) load_state(S, initial_state(p, w.from, w.head), row_of(w, warp));
}

/* States that are asked for after chunk n. None is stored before the readout has loaded the one that it starts from. */
__device__ __forceinline__ void keep_states(const float (&S)[64], Checkpoints &checkpoint, const prefill_params &p,
                                            const Strip &w, int n, int warp)
{
    if constexpr (!spec::CHECKPOINTS) return;
    if (n == 0) mbar_wait(chain::bar(chain::TAKEN), 0);
    for (; checkpoint.chunk == n + 1; checkpoint.advance(p, w, w.seq))
        save_state(S, final_state(p, checkpoint.line, w.head), row_of(w, warp));
}

/*
 * A state is stored once the readout has loaded the one that it starts from, which may lie at the same place. At the end it has
 * also taken the last W: until then this CTA's shared memory has to be there for it to say so. What is rare stands behind the
 * usual chunks' loop: in it, branches over it cost a usual chunk a fifth of its time.
 */
__device__ __forceinline__ void chain_role(const prefill_params &p, const Strip &w, int warp)
{
    Chain c;
    const Places places(warp);
    begin_state(c.S, p, w, warp);
    Checkpoints checkpoint(p, w, w.seq);
    if (w.chunks > 0) {
        mbar_wait(chain::bar(chain::FULL), 0);
        fetch_values(c, places, 0);
        take_values(c);
    }
    for (int n = 0; n < w.chunks; ++n) {
        bool usual = true;
        for (; n < w.chunks; ++n) {
            const Turn turn(places, n);
            usual = make_residual(c, places, turn, n, n == 0 && w.from_zeros);
            if (!update_state(c, turn, usual)) break;
            mbar_arrive_warp(turn.full + 8 * chain::EMPTY, places.lane);
            keep_states(c.S, checkpoint, p, w, n, warp);
        }
        if (n == w.chunks) break;
        const Turn turn(places, n);
        update_rest(c, places, turn, usual);
        mbar_arrive_warp(turn.full + 8 * chain::EMPTY, places.lane);
        keep_states(c.S, checkpoint, p, w, n, warp);
    }
    for (int n = max(w.chunks - RING, 0); n < w.chunks; ++n)
        mbar_wait(chain::bar(chain::TAKEN + slot4(n)), parity4(n));
    const Sequence again = find_sequence(p, w.seq); /* not kept all the while */
    if (p.final_state) save_state(c.S, final_state(p, again.to, w.head), row_of(w, warp));
}

/* ---- The CTA that makes O --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void readout_load_role(const prefill_params &p, const Strip &w, int lane)
{
    for (int n = 0; n < w.chunks; ++n) {
        const TileAt q = tile_at(w, n, head_of(w.head, p.q_div, p.q_mod), 0);
        const u32 full = readout::bar(readout::FULL + slot4(n)), q_tile = at(readout::Q) + slot4(n) * TILE;
        const int rows = rows_of(w, n);
        const u32 to = rows == C ? full : readout::bar(readout::TAIL);
        mbar_wait(readout::bar(readout::EMPTY + slot4(n)), parity4(n) ^ 1);
        __syncwarp();
        if (lane == 0) {
            mbar_arrive_expect(to, TILE);
            load_tile(q_tile, &p.q_map, to, q);
        }
        if (rows < C) {
            clear_tail<TILE>(q_tile, to, rows, lane);
            arrive_at(full);
        } else if (ARRIVALS_PER_WARP == 32 && lane != 0) {
            mbar_arrive(full);
        }
        __syncwarp();
    }
}

/* Images of all chunks, once they are there. */
__device__ __forceinline__ void readout_image_role(const prefill_params &p, const Strip &w, int lane)
{
    Images images(p, w);
    for (int n = 0; n < w.chunks; ++n) {
        const u8 *const image = image_at(p, images.first + n);
        const u32 full = readout::bar(readout::FULL + slot4(n));
        images.wait(p, w, n, lane);
        mbar_wait(readout::bar(readout::EMPTY + slot4(n)), parity4(n) ^ 1);
        expect_bytes(full, TILE + SQUARE + TABLE_BYTES, lane);
        if (lane == 0) {
            bulk_load(at(readout::TABLE) + slot4(n) * GATE, image + IMAGE_TABLE, TABLE_BYTES, full);
            bulk_load(at(readout::X) + slot4(n) * TILE, image, TILE, full);
            bulk_load(at(readout::PT) + slot4(n) * SQUARE, image + IMAGE_PT, SQUARE, full);
        }
        __syncwarp();
        images.look_ahead(p, w, n, lane);
    }
}

/*
 * Says when a chunk is ready. What is handed over is expected before it can be sent: the next in a slot, which is sent once
 * this one is taken, before this one is said to be ready.
 */
__device__ __forceinline__ void readout_ready_role(const Strip &w, int lane)
{
    for (int n = 0; n < min(w.chunks, RING); ++n)
        expect_bytes(readout::bar(readout::HANDED_FULL + slot4(n)), HANDED_BYTES, lane);
    for (int n = 0; n < w.chunks; ++n) {
        mbar_wait(readout::bar(readout::FULL + slot4(n)), parity4(n));
        mbar_wait(readout::bar(readout::HANDED_FULL + slot4(n)), parity4(n));
        __syncwarp(); /* all have looked before a phase can follow */
        if (n + RING < w.chunks)
            expect_bytes(readout::bar(readout::HANDED_FULL + slot4(n)), HANDED_BYTES, lane);
        mbar_arrive_warp(readout::bar(readout::READY + slot4(n)), lane);
    }
}

__device__ __forceinline__ void readout_role(const prefill_params &p, const Strip &w, int warp)
{
    float S[64];
    if (w.chunks > 0) begin_state(S, p, w, warp);
    if (!w.from_zeros) fence_cluster(); /* loaded before it says so, by TAKEN: see chain_role() */
    for (int n = 0; n < w.chunks; ++n) {
        mbar_wait(readout::bar(readout::READY + slot4(n)), parity4(n));
        readout_chunk(S, n, p.late_scale, warp);
    }
}

/* O tiles to memory. The proxy fence stands here, past the barrier, and not in the warps that have more to do. */
__device__ __forceinline__ void store_role(const prefill_params &p, const Strip &w, int lane)
{
    for (int n = 0; n < w.chunks; ++n) {
        const u32 tile = at(readout::O);
        mbar_wait(readout::bar(readout::O_FULL), n & 1);
        if (rows_of(w, n) < C) {
            store_rows(tile,
                       (u16 *)p.o + row_offset(w, w.head, p.o_batch_stride, p.o_token_stride, p.o_head_stride) +
                           (i64)n * C * p.o_token_stride + 64 * w.half,
                       p.o_token_stride, rows_of(w, n), lane);
        } else if (lane == 0) {
            async_proxy_fence();
            tma_store(&p.o_map, tile, (int)w.first + n * C, w.half, w.head, (int)w.batch);
            bulk_commit();
            bulk_wait_read<0>();
        }
        arrive_at(readout::bar(readout::O_EMPTY));
    }
}
