/*
 * gdn_hopper_producer.cuh - a CTA that makes images of chunks: who finds and loads them, makes their gate tables, and hands
 * them over. What is in them is made by inverse_role() and factor_role(). Must not know: states.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_copies.cuh"
#include "gdn_hopper_decays.cuh"
#include "gdn_hopper_factors.cuh"
#include "gdn_hopper_images.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_images.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"

/* K and Q of a sequence's last chunk: what TMA brings past its end is another's, and a NaN there must not spread. */
__device__ __forceinline__ void load_operands_of_tail(const prefill_params &p, const Clock &c, const TileAt &k, const TileAt &q,
                                                      int rows, u32 &parity, int lane)
{
    if (lane == 0) {
        mbar_arrive_expect(bar(TAIL), 2 * TILE);
        load_tile(c.k(), &p.k_map, bar(TAIL), k);
        load_tile(c.q(), &p.q_map, bar(TAIL), q);
    }
    mbar_wait(bar(TAIL), parity);
    parity ^= 1;
    clear_rest<TILE>(c.k(), rows, lane);
    clear_rest<TILE>(c.q(), rows, lane);
    async_proxy_fence();
    mbar_arrive_warp(bar(CHUNK_FULL + (c.n & 3)), lane);
}

/* K and Q of this CTA's chunks, as far ahead as there are slots, and of two that there are not: one for each aux warpgroup. */
__device__ __forceinline__ void operand_role(const prefill_params &p, int ticket, int lane)
{
    Deal deal(p, (u32)ticket, (u32)p.num_producers);
    Item item;
    Clock c = { 0, 0, 0 };
    u32 tail_parity = 0;
    for (; deal.next(item, p, lane); c.advance()) {
        const Work &w = item.work;
        const TileAt k = tile_at(w, item.chunk, head_of(w.head, p.k_div, p.k_mod), 0),
                     q = tile_at(w, item.chunk, head_of(w.head, p.q_div, p.q_mod), 0);
        const int rows = min(w.len - item.chunk * C, C);
        mbar_wait(bar(K_EMPTY + (c.n & 3)), c.parity4() ^ 1);
        mbar_wait(bar(Q_EMPTY + c.q_slot), c.q_parity ^ 1);
        if (rows < C) {
            load_operands_of_tail(p, c, k, q, rows, tail_parity, lane);
            continue;
        }
        load_first_tile(c.k(), &p.k_map, bar(CHUNK_FULL + (c.n & 3)), k, 2 * TILE);
        if (lane == 0) load_tile(c.q(), &p.q_map, bar(CHUNK_FULL + (c.n & 3)), q);
        __syncwarp();
    }
    for (int end = 0; end < 2; ++end, c.advance()) {
        mbar_wait(bar(K_EMPTY + (c.n & 3)), c.parity4() ^ 1);
        mbar_arrive_warp(bar(CHUNK_FULL + (c.n & 3)), lane);
    }
}

/* A chunk's table; which image it belongs to stands in it. */
__device__ __forceinline__ void make_image_table(const prefill_params &p, const Item &item, int n, int lane)
{
    const Work &w = item.work;
    const int token = item.chunk * C + 2 * lane;
    const GateReader reader(p, w, w.head, token);
    RawGates raw;
    raw.fetch(p, reader, token, w.len);
    const u32 table = at(GATE_AT) + n % GATE_STAGES * GATE;
    mbar_wait(bar(GATE_EMPTY + n % GATE_STAGES), (n / GATE_STAGES & 1) ^ 1);
    const TokenGates gates(reader, raw);
    store_gates(table, gates.decay, gates.beta, p.p_scale, lane);
    if (lane == 0) {
        store_shared(table + FLAGS, 0u);
        store_shared(table + IMAGE_INDEX, (u32)image_index(p, w.head, item.row));
    }
    mbar_arrive(bar(CHUNK_FULL + n % GATE_STAGES));
}

__device__ __forceinline__ void image_table_role(const prefill_params &p, int ticket, int lane)
{
    Deal deal(p, (u32)ticket, (u32)p.num_producers);
    Item item;
    int n = 0;
    for (; deal.next(item, p, lane); ++n)
        make_image_table(p, item, n, lane);
    for (int end = 0; end < 2; ++end, ++n) {
        mbar_wait(bar(GATE_EMPTY + n % GATE_STAGES), (n / GATE_STAGES & 1) ^ 1);
        if (lane == 0) store_shared(at(GATE_AT) + n % GATE_STAGES * GATE + FLAGS, (u32)CHUNK_END);
        mbar_arrive(bar(CHUNK_FULL + n % GATE_STAGES));
    }
}

/* A chunk's image to memory; of one thread, as one group of its copies. */
__device__ __forceinline__ void store_image(const prefill_params &p, i64 index, const Clock &c)
{
    u8 *const image = image_at(p, index);
    async_proxy_fence();
    bulk_store(image + IMAGE_TABLE, c.table(), TABLE_BYTES);
    bulk_store(image, x_tile_of(c.n & 1), TILE);
    bulk_store(image + IMAGE_PT, at(P_AT) + (c.n & 1) * SQUARE, SQUARE);
    bulk_commit();
}

/* Of the thread that stores images: announces one, if there is one, once no more than PENDING later ones are on their way. */
template <int PENDING> __device__ __forceinline__ void announce(const prefill_params &p, i64 index)
{
    if (index < 0) return;
    bulk_wait<PENDING>();
    signal(image_flag(p, index), 1);
}

/*
 * Hands chunks over, and all of their slots back as soon as they have been read. An image takes longer to be in memory: it is
 * announced once the next one is on its way, or, where that is not made yet, before it is waited for.
 */
__device__ __forceinline__ void export_role(const prefill_params &p, int lane)
{
    i64 stored = -1; /* and not announced */
    for (Clock c = { 0, 0, 0 };; c.advance()) {
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
        if (load_shared_u32(c.table() + FLAGS) & CHUNK_END) break;
        const i64 index = load_shared_u32(c.table() + IMAGE_INDEX);
        if (!__all_sync(~0u, mbar_peek(bar(TP_FULL + (c.n & 1)), c.parity2()))) {
            if (lane == 0) announce<0>(p, stored);
            stored = -1;
        }
        mbar_wait(bar(TP_FULL + (c.n & 1)), c.parity2());
        if (lane == 0) {
            store_image(p, index, c);
            announce<1>(p, stored);
            bulk_wait_read<0>();
        }
        stored = index;
        mbar_arrive_warp(bar(K_EMPTY + (c.n & 3)), lane);
        mbar_arrive_warp(bar(Q_EMPTY + c.q_slot), lane);
        mbar_arrive_warp(bar(GATE_EMPTY + (c.n & 3)), lane);
        mbar_arrive_warp(bar(TP_EMPTY + (c.n & 1)), lane);
    }
    if (lane == 0) announce<0>(p, stored);
}
