/*
 * gdn_hopper_queue.cuh - which item a CTA takes next: tickets, what is set aside, repairs; and how the tile warp announces it
 * to the CTA's other roles.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_cuts.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_state.cuh"

/*
 * Number in the order of items. Dealt out by a counter where the call has a workspace, else in turn. Of partitions the first is
 * too: an item may wait for one of a lower number, which somebody then has.
 */
__device__ __forceinline__ int next_index(const prefill_params &p, int index, int lane)
{
    if (index < 0 && !p.partition) return blockIdx.x;
    if (!p.control) return index + gridDim.x;
    if (lane == 0) index = (p.partition ? 0 : gridDim.x) + (int)take_ticket(p.control);
    return __shfl_sync(~0u, index, 0);
}

__device__ __forceinline__ u32 entry_of(int number)
{
    return at(ITEM_AT) + ENTRY * (number % ITEM_SLOTS);
}

/* Set aside for when no ticket is left. By a warp. */
__device__ __forceinline__ void set_aside(const prefill_params &p, int index, int lane)
{
    if (lane == 0) {
        *item_word(p, index, WORD_LATER) = load_shared_u32(at(LISTS_AT) + LATER);
        store_shared(at(LISTS_AT) + LATER, (u32)index + 1);
    }
    __syncwarp();
}

/* Index of what was set aside last, -1: nothing. By a warp. */
__device__ __forceinline__ int take_set_aside(const prefill_params &p, int lane)
{
    const int index = (int)load_shared_u32(at(LISTS_AT) + LATER) - 1;
    __syncwarp();
    if (lane == 0 && index >= 0) store_shared(at(LISTS_AT) + LATER, *item_word(p, index, WORD_LATER));
    return index;
}

/*
 * Partition `item` follows the CTA's last item. guessed: so is the state before it; else the gates leave too much. True: item
 * is what the CTA does next for it.
 */
__device__ __forceinline__ bool follow_up(Item &item, const prefill_params &p, u32 last, bool guessed, int lane)
{
    const bool addend = (int)load_shared_u32(last + ITEM_AFTER) == END_ADDEND;
    const bool carried = (int)load_shared_u32(last + ITEM_START) == START_CARRIED;
    if (!guessed && !carries(p)) {
        item.start = START_KEPT;
        return true;
    }
    if (!guessed && addend) { /* its transition is wanted too */
        item.index -= index_step(p);
        item.end = item.main = item.begin;
        item.begin = (int)load_shared_u32(last + ITEM_BEGIN); /* the addend's, which replays nothing */
        item.start = START_IDENTITY;
        return true;
    }
    __syncwarp();
    if (guessed != addend || lane != 0) return false;
    /* Nobody is that far: its last tile is not announced yet. */
    store_shared(last + ITEM_AFTER, (u32)(guessed || carried ? (int)END_NOTHING : (int)END_STATE));
    return false;
}

/*
 * The CTA's next item with anything to do, after that of `index` (-1: its first), whose entry is `last`: what partition
 * `following` of the same sequence asks of it (-1: there is none), then, behind a first partition, the last one if that is its
 * own, else what nobody has, else what was set aside.
 */
__device__ __forceinline__ Item item_after(const prefill_params &p, int index, int following, u32 last, int lane)
{
    Item item;
    int ticketless = following; /* what comes without a ticket, or -1 */
#pragma unroll 1
    for (bool follows = following >= 0; p.num_seqs > 0;) {
        index = ticketless >= 0 ? ticketless : next_index(p, index, lane);
        const bool tickets = index < (by_gates() ? (int)load_shared_u32(at(LISTS_AT) + BY_GATES) : p.num_items);
        if (!tickets) index = take_set_aside(p, lane);
        if (index < 0) break;
        item.index = index;
        find_item(item, p, lane);
        item.start = START_CARRIED;
        if (!tickets) return item;
        const bool elsewhere = ticketless < 0 && index == last_of_first(p, item);
        ticketless = -1;
        if (item.begin >= item.end || elsewhere) continue;
        item.start = item.from_zeros ? (int)START_ZEROS : (int)item.from;
        if (item.begin == 0) return item;
        const int replayed = replayed_by(p, item, lane);
        if (follows) {
            if (follow_up(item, p, last, replayed > 0, lane)) return item;
            follows = false;
            if ((int)load_shared_u32(last + ITEM_MAIN) == 0) ticketless = last_of_first(p, item);
            continue;
        }
        item.start = START_ZEROS;
        item.begin -= replayed;
        if (replayed > 0) return item;
        if (!carries(p)) continue; /* who has the partition before it goes on */
        set_aside(p, index, lane);
        if (!ends_inside(p, item)) continue;
        item.main = item.end;
        return item;
    }
    item.n = -1;
    return item;
}

/* The state that it starts from comes to L2 while the item before it is worked on. By one lane. */
__device__ __forceinline__ void prefetch_state(const prefill_params &p, const Item &item)
{
    constexpr int BYTES = spec::STATE_TYPE == TYPE_F32 ? 4 : 2, COLUMNS = spec::STATE_KV ? D : spec::BLOCK_DV;
    if (item.start < 0) return;
    const StateAt<const void> state = initial_state(p, item.from, item.head());
    const u8 *const first = (const u8 *)state.base + state.index(0, COLUMNS < D ? column_of(item.part) : 0) * BYTES;
    if ((u64)first % 16 == 0) bulk_prefetch(first, D * COLUMNS * BYTES);
}

/* What its state is for, a line of final_state or END_*, as far as is known yet. */
__device__ __forceinline__ int after_item(const prefill_params &p, const Item &item)
{
    if (item.n < 0 || !ends_inside(p, item)) return (int)item.to;
    if (item.main < item.end) return END_LINK;
    return item.start == START_IDENTITY ? END_TRANSITION : END_ADDEND;
}

__device__ __forceinline__ u32 keeper_of(int number)
{
    return at(KEEPER_AT) + 4 * (number % ITEM_SLOTS);
}

/*
 * T of the first chunks of a partition that a CTA runs three times is kept in p.t_images, and the addend is the first of the
 * three: the chunks' flag, and the first one's place there. 0: not, as of a last partition, which has no addend.
 */
__device__ __forceinline__ u32 keeper(const prefill_params &p, const Item &item)
{
    const bool addend = item.start == START_ZEROS && item.main == item.end;
    if (!by_gates() || !ends_inside(p, item)) return 0;
    if (!addend && item.start != START_IDENTITY && item.start != START_CARRIED) return 0;
    return (u32)(item.index * spec::KEPT_CHUNKS) << ITEM_SHIFT | (addend ? CHUNK_KEEPS_T : CHUNK_HAS_T);
}

/*
 * The CTA's item of this number, for the other roles. Slots are free without a barrier: at chunk n the tile warp has seen chunk
 * n - 5 used, which nobody does before all have left chunk n - 6, and every item has a chunk.
 */
__device__ __forceinline__ void publish(const prefill_params &p, const Item &item, int number, int lane)
{
    if (p.partition && number >= ITEM_SLOTS) /* left long ago: no phase of ITEM_LEFT goes by unseen */
        mbar_wait(bar(ITEM_LEFT + number % ITEM_SLOTS), (number / ITEM_SLOTS - 1) & 1);
    if (lane == 0) {
        const u32 entry = entry_of(number);
        if (item.n >= 0 && item.start == START_KEPT) /* nobody is that far: its last tile is not announced yet */
            store_shared(entry_of(number - 1) + ITEM_AFTER, (u32)END_KEPT);
        store_shared(entry, (u32)item.n, (u32)item.part, (u32)item.start, (u32)after_item(p, item));
        store_shared(entry + 16, (u32)item.begin, (u32)item.main, (u32)item.end, (u32)item.index);
        if (spec::CARRIES && p.partition && item.n >= 0) store_shared(keeper_of(number), keeper(p, item));
        mbar_arrive(bar(ITEM_FULL + number % ITEM_SLOTS));
        if (item.n >= 0) prefetch_state(p, item);
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
    (Sequence &)item = find_sequence(p, item.n);
    return item;
}

/* ---- Repairs ------------------------------------------------------------------------------------------------------- */

/*
 * Who ends the last item of a pair that has a wrong guess in it adds the pair to its CTA's list, whose head is a word in shared
 * memory (0: none, else pair + 1), and which goes on in PAIR_NEXT.
 */
/* By the output warp, when O of the item is on its way. */
__device__ __forceinline__ void finish_partition(const prefill_params &p, const Item &item, int number, int lane)
{
    const int partitions = partitions_of(p, item);
    bulk_wait<0>();
    mbar_wait(bar(ITEM_DONE + (number & 1)), number >> 1 & 1);
    release(); /* of each lane: its rows of O, and what the state warps have stored */
    __syncwarp();
    if (lane != 0) return;
    if (partitions > 1 && item.start != START_LINK && item.main < item.end &&
        take_ticket(pair_word(p, item.n, item.part, PAIR_DONE)) == (u32)partitions - 1) {
        acquire();
        if (peek(pair_word(p, item.n, item.part, PAIR_FAILED)) != 0) {
            *pair_word(p, item.n, item.part, PAIR_NEXT) = load_shared_u32(at(LISTS_AT) + REPAIRS);
            store_shared(at(LISTS_AT) + REPAIRS, (u32)(pair_number(p, item.n, item.part) + 1));
        }
    }
    mbar_arrive(bar(ITEM_LEFT + number % ITEM_SLOTS));
}

/* By the tile warp, after the last ticket: once all the CTA's items are left, a pair to repeat from its first wrong guess. */
__device__ __forceinline__ Item next_repair(const prefill_params &p, int items, int lane)
{
    Item item;
    item.n = -1;
    if (!p.partition) return item;
    if (items > 0) mbar_wait(bar(ITEM_LEFT + (items - 1) % ITEM_SLOTS), (items - 1) / ITEM_SLOTS & 1);
    const int pair = (int)load_shared_u32(at(LISTS_AT) + REPAIRS) - 1;
    __syncwarp();
    if (pair < 0) return item;
    item.n = pair / parts_of_heads(p);
    item.part = pair - item.n * parts_of_heads(p);
    (Sequence &)item = find_sequence(p, item.n);
    const int first = (int)(FAILED_FIRST - peek(pair_word(p, item.n, item.part, PAIR_FAILED)));
    if (lane == 0) store_shared(at(LISTS_AT) + REPAIRS, *pair_word(p, item.n, item.part, PAIR_NEXT));
    async_proxy_fence(); /* O's rows are written once more */
    item.end = chunks_of(p, item);
    if (by_gates()) {
        const u32 word = cut_word(pair);
        item.index = cut_base(word) + first;
        item.begin = cut_begin(word, first, item.end);
    } else {
        item.index = (first_row(p, item.n) + first) * parts_of_heads(p) + item.part;
        item.begin = first * p.partition;
    }
    item.main = item.begin;
    item.start = START_LINK;
    return item;
}
