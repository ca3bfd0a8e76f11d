/*
 * gdn_hopper_entry.cuh - what the tile warp tells the other roles of an item.
 */
#pragma once

#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
/*
 * An entry. Lines are of initial_state and final_state, and fit: 2^31 of them are more than any memory.
 * AFTER: a line of final_state, or what comes after a partition: the next item goes on (KEPT), there is a guess to meet at the
 * link (LINK), the state is left there (STATE); the rest: see Carrying.
 */
enum { ITEM_N = 0, ITEM_PART = 4, ITEM_START = 8, ITEM_AFTER = 12, ITEM_BEGIN = 16, ITEM_MAIN = 20, ITEM_END = 24 };
enum { ITEM_INDEX = 28 };
/* With spec::TRANSIT, where nobody has a use for an index: what becomes of states before the item's first chunk. */
enum { ITEM_TRANSIT = ITEM_INDEX };
/*
 * PASSES: its own, or that of the item before it, is in transit (gdn_hopper_transit.cuh). Of these: COMES: its own is no zeros;
 * GOES: the other one is wanted. PARITY: of how many such items were before it, and so of their barriers' phase.
 */
enum { TRANSIT_PASSES = 1, TRANSIT_COMES = 2, TRANSIT_GOES = 4, TRANSIT_PARITY = 8 };
enum { END_KEPT = -2, END_LINK = -3, END_STATE = -4, END_ADDEND = -5, END_TRANSITION = -6, END_NOTHING = -7 };
enum { END_AGAIN = -8 }; /* of a repair: the state at the link is what it was found to be, or is not */

__device__ __forceinline__ u32 entry_of(int number)
{
    return at(ITEM_AT) + ENTRY * (number % ITEM_SLOTS);
}

__device__ __forceinline__ u32 keeper_of(int number)
{
    return at(KEEPER_AT) + 4 * (number % ITEM_SLOTS);
}

/*
 * T of the first chunks of a partition that a CTA runs three times is kept in p.t_images, and the addend is the first of the
 * three: the chunks' flag, and the first one's place there. 0: not, as of a last partition, which has no addend. Nor has a
 * pair's first one, so that places are numbered without these: there is one an SM.
 */
__device__ __forceinline__ u32 keeper(const prefill_params &p, const Item &item)
{
    const bool addend = item.start == START_ZEROS && item.main == item.end;
    if (!by_gates() || !ends_inside(p, item)) return 0;
    if (!addend && item.start != START_IDENTITY && item.start != START_CARRIED) return 0;
    const int place = item.index - 1 - pair_place(p, item.n, item.part);
    return (u32)(place * spec::KEPT_CHUNKS) << ITEM_SHIFT | (addend ? CHUNK_KEEPS_T : CHUNK_HAS_T);
}

/* What its state is for, a line of final_state or END_*, as far as is known yet. */
__device__ __forceinline__ int after_item(const prefill_params &p, const Item &item)
{
    if (item.n < 0 || !ends_inside(p, item)) return (int)item.to;
    if (is_repair(item.start)) return load_shared_u32(at(REPAIR_AT) + RUN_NEXT) != 0 ? END_KEPT : END_AGAIN;
    if (item.main < item.end) return END_LINK;
    return item.start == START_IDENTITY ? END_TRANSITION : END_ADDEND;
}

/* The state that an item starts from comes to L2 while the one before it is worked on. By one lane. */
__device__ __forceinline__ void prefetch_state(const prefill_params &p, const Item &item)
{
    constexpr int BYTES = spec::STATE_TYPE == TYPE_F32 ? 4 : 2, COLUMNS = spec::STATE_KV ? D : spec::BLOCK_DV;
    if (item.start < 0) return;
    const StateAt<const void> state = initial_state(p, item.from, item.head());
    const u8 *const first = (const u8 *)state.base + state.index(0, COLUMNS < D ? column_of(item.part) : 0) * BYTES;
    if ((u64)first % 16 == 0) bulk_prefetch(first, D * COLUMNS * BYTES);
}

/* A sequence's first partition, if others come after it. */
__device__ __forceinline__ bool is_first_of_several(u32 entry)
{
    return load_shared_u32(entry + ITEM_MAIN) == 0 && (int)load_shared_u32(entry + ITEM_AFTER) < -1;
}

/* Whether what an item ended with is wanted. */
__device__ __forceinline__ bool leaves_state(const prefill_params &p, u32 entry)
{
    const int after = (int)load_shared_u32(entry + ITEM_AFTER);
    return (spec::TRANSIT && after == END_HANDED) || (after >= 0 && p.final_state);
}

/* TRANSIT_* of an item, when all is known of the one before it. By one lane. */
__device__ __forceinline__ u32 transit_of(const prefill_params &p, const Item &item, int number)
{
    if (number == 0) return 0;
    const u32 last = load_shared_u32(entry_of(number - 1) + ITEM_TRANSIT);
    const u32 parity = (last ^ (last & TRANSIT_PASSES) * TRANSIT_PARITY) & TRANSIT_PARITY;
    const u32 what = (item.start != START_ZEROS ? (u32)TRANSIT_COMES : 0) |
                     (leaves_state(p, entry_of(number - 1)) ? (u32)TRANSIT_GOES : 0);
    return parity | (what && item.n >= 0 && p.states_by_map ? what | TRANSIT_PASSES : 0);
}

/*
 * Announces the CTA's item of this number. Slots are free without a barrier where nothing is cut: at chunk n the tile
 * warp has seen chunk n - 5 used, which nobody does before all have left chunk n - 6, and every item has a chunk.
 */
__device__ __forceinline__ void publish(const prefill_params &p, const Item &item, int number, int lane)
{
    if (spec::CUTS && number >= ITEM_SLOTS) /* left long ago: no phase of ITEM_LEFT goes by unseen */
        mbar_wait(bar(ITEM_LEFT + number % ITEM_SLOTS), (number / ITEM_SLOTS - 1) & 1);
    if (lane == 0) {
        const u32 entry = entry_of(number);
        if (item.n >= 0 && item.start == START_KEPT) /* nobody is that far: its last tile is not announced yet */
            store_shared(entry_of(number - 1) + ITEM_AFTER, (u32)END_KEPT);
        store_shared(entry, (u32)item.n, (u32)item.part, (u32)item.start, (u32)after_item(p, item));
        store_shared(entry + 16, (u32)item.begin, (u32)item.main, (u32)item.end,
                     spec::TRANSIT ? transit_of(p, item, number) : (u32)item.index);
        if (spec::CARRIES && item.n >= 0) store_shared(keeper_of(number), keeper(p, item));
        const bool ends = spec::CUTS && item.n >= 0 && item.main > 0 && !ends_inside(p, item);
        if (ends && in_place(p) && !ends_in_place(p, item)) /* nobody reads what it overwrites */
            add_to(pair_word(p, item.n, item.part, PAIR_STARTED), STATE_GROUPS);
        mbar_arrive(bar(ITEM_FULL + number % ITEM_SLOTS));
        if (item.n >= 0 && number > 0) prefetch_state(p, item);
    }
    __syncwarp();
}

/* Waits for it; n -1: there is none. */
__device__ __forceinline__ Item published(const prefill_params &p, int number)
{
    mbar_wait(bar(ITEM_FULL + number % ITEM_SLOTS), number / ITEM_SLOTS & 1);
    const u32 entry = entry_of(number);
    Item item;
    item.n = (int)load_shared_u32(entry + ITEM_N);
    if (item.n < 0) return item;
    item.part = (int)load_shared_u32(entry + ITEM_PART);
    item.start = (int)load_shared_u32(entry + ITEM_START);
    item.begin = (int)load_shared_u32(entry + ITEM_BEGIN);
    item.main = (int)load_shared_u32(entry + ITEM_MAIN);
    item.end = (int)load_shared_u32(entry + ITEM_END);
    item.index = (int)load_shared_u32(entry + ITEM_INDEX);
    (Sequence &)item = sequence_of(p, item.n);
    return item;
}
