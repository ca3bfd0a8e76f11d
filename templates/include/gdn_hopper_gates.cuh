/*
 * gdn_hopper_gates.cuh - the gate warp: a table for each chunk.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_hopper_decays.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_queue.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"

/*
 * The CTA's first item: where it is no partition the gate warp finds it as the tile warp does, 1 us before it would be told. It
 * must not look at the entry, which may not be there yet.
 */
__device__ __forceinline__ Item first_item(const prefill_params &p)
{
    const int lane = lane_id();
    Item item;
    item.index = spec::CUTS ? -1 : next_index(p, -1, lane);
    if (!spec::CUTS && p.num_seqs > 0 && item.index < items_of(p, false)) { /* without sequences there are CTAs, for padding */
        find_item(item, p, false, true, lane);
        item.start = START_ZEROS; /* of initial_state, or these: tables are alike */
        if (item.begin < item.end) return item;
    }
    return published(p, 0);
}

/* The chunks of this CTA's items, one after the other. */
struct Cursor {
    Item item;
    int number, step;  /* of the item, of the chunk in it */
    GateReader reader; /* at this lane's tokens of the chunk that is fetched next */
    Checkpoints checkpoint;

    /* Waits for the item of this number, whose first chunk is number n. False: there is none. */
    __device__ __forceinline__ bool enter(const prefill_params &p, int next, int n)
    {
        number = next;
        item = next == 0 ? first_item(p) : published(p, number);
        step = item.begin;
        if (item.n < 0) return false;
        reader = GateReader(p, item, item.head(), (step + made_from(n) - n) * C + 2 * lane_id());
        if constexpr (spec::CHECKPOINTS) {
            checkpoint = Checkpoints(p, item, item.n);
            while (checkpoint.chunk >= 0 && checkpoint.chunk <= item.main) /* another item's */
                checkpoint.advance(p, item, item.n);
        }
        return true;
    }
    __device__ __forceinline__ void advance(const prefill_params &p)
    {
        ++step;
        if constexpr (spec::CHECKPOINTS)
            while (checkpoint.chunk == step)
                checkpoint.advance(p, item, item.n);
    }
    /* Of its item's chunks, one after the other. */
    __device__ __forceinline__ RawGates fetch(const prefill_params &p, int chunk)
    {
        RawGates raw;
        raw.fetch(p, reader, chunk * C + 2 * lane_id(), item.len);
        reader.advance(p, MAKERS * C);
        return raw;
    }
};

/* ---- Tables -------------------------------------------------------------------------------------------------------- */

/* Which chunk a table is of. tokens: of its sequence, from it on. */
__device__ __forceinline__ void store_chunk_facts(const prefill_params &p, u32 table, const Cursor &cursor, int tokens)
{
    u32 flags = (u32)cursor.number << ITEM_SHIFT;
    if (cursor.step == cursor.item.end - 1) flags |= CHUNK_LAST;
    if (cursor.step == cursor.item.main - 1) flags |= CHUNK_REPLAYED;
    const bool looks = flags & CHUNK_LAST || cursor.step % 4 == 3; /* each look takes a tenth of a chunk */
    if (cursor.item.start == START_IDENTITY && looks) flags |= CHUNK_TRANSITION;
    if (cursor.step < cursor.item.main) flags |= CHUNK_STATE;
    if constexpr (BY_TOKENS) {
        if (tokens <= FEW_TOKENS) {
            flags |= CHUNK_FEW | CHUNK_STATE; /* who makes P has nothing to do */
            store_shared(table + TOKENS, (u32)tokens);
        } else if (tokens <= C + FEW_TOKENS) {
            flags |= CHUNK_BEFORE_FEW; /* or the last one, where nobody looks */
        }
    } else if (cursor.item.len == 0) {
        flags |= CHUNK_FEW;
    }
    if constexpr (spec::CARRIES) {
        const u32 keeper = load_shared_u32(keeper_of(cursor.number));
        const int chunk = cursor.step - cursor.item.begin;
        if (keeper != 0 && chunk < spec::KEPT_CHUNKS) {
            flags |= keeper & (CHUNK_KEEPS_T | CHUNK_HAS_T);
            store_shared(table + KEPT_T, (keeper >> ITEM_SHIFT) + chunk);
        }
    }
    if constexpr (spec::CHECKPOINTS)
        if (cursor.checkpoint.chunk == cursor.step + 1) {
            flags |= CHUNK_CHECKPOINT;
            store_shared(table + CHECKPOINT, (u32)cursor.checkpoint.row);
        }
    store_shared(table + FLAGS, flags);
}

/* The table of chunk number n, which the cursor stands at. */
__device__ __forceinline__ void make_table(const prefill_params &p, const Cursor &cursor, const TokenGates &gates, int n)
{
    const int slot = n % GATE_STAGES, lane = lane_id(); /* read again, not kept */
    const u32 table = at(GATE_AT) + slot * GATE;
    wait_for_table(n);
    const int tokens = cursor.item.len - cursor.step * C;
    if (BY_TOKENS && rarely(tokens <= FEW_TOKENS))
        store_few(table, gates.decay, gates.beta, lane);
    else
        store_gates(table, gates.decay, gates.beta, p.p_scale, lane);
    if (lane == 0) store_chunk_facts(p, table, cursor, tokens);
    if constexpr (spec::TWINS) {
        async_proxy_fence();
        __syncwarp();
        if (!spec::QK_L2NORM) hand_table_over(n);
    }
    mbar_arrive(bar(CHUNK_FULL + slot));
}

/* Tables of all chunks, as far ahead as there are slots, and of one that there is not. */
__device__ __forceinline__ void table_role(const prefill_params &p)
{
    Cursor cursor;
    int n = 0;
    for (int number = 0; cursor.enter(p, number, n); ++number) {
        TokenGates gates(cursor.reader, cursor.fetch(p, cursor.step + made_from(n) - n));
        for (; cursor.step < cursor.item.end; cursor.advance(p), ++n) {
            if (made_from(n) != n) {
                expect_handed(CHUNK_FULL, n, HANDED_TABLE);
                continue;
            }
            RawGates next = {}; /* on their way while the table is made */
            if (cursor.step + MAKERS < cursor.item.end) next = cursor.fetch(p, cursor.step + MAKERS);
            make_table(p, cursor, gates, n);
            /* Here, not at the table: who waits for loads there waits for the next chunk's too, counted with them. */
            gates = TokenGates(cursor.reader, next);
        }
    }
    n = made_from(n);
    const int slot = n % GATE_STAGES;
    wait_for_table(n);
    if (lane_id() == 0) store_shared(at(GATE_AT) + slot * GATE + FLAGS, CHUNK_END | (u32)cursor.number << ITEM_SHIFT);
    mbar_arrive(bar(CHUNK_FULL + slot));
}
