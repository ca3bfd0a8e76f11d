/*
 * gdn_hopper_queue.cuh - the order of items, and which one a CTA takes next: tickets, what is set aside, repairs.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_cuts.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_shares.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"

/* ---- The order of items ------------------------------------------------------------------------------------------- */

/*
 * By all threads, one a sequence, before any tile is loaded: its rank is the number of longer ones, or where CTAs have shares
 * its own number; where sequences are cut only of calls of many.
 */
__device__ __forceinline__ void order_items(const prefill_params &p)
{
    static_assert(MOST_SORTED <= spec::THREADS && spec::MOST_SHARING == 32, "a thread for each, and a warp's");
    if (rarely(has_ranks(p))) rank_sequences(p);
    if (spec::CUTS || (!may_share(p) && !sorted(p))) return;
    const int n = (int)threadIdx.x;
    const u32 lens = at(K_AT);
    Sequence s = {};
    if (n < p.num_seqs) s = find_sequence(p, n);
    if (may_share(p) && n < 32) share_out(p, s, n); /* told by the barrier below, or later */
    if (!sorted(p)) return;
    const u32 own = (u32)s.len;
    if (n < p.num_seqs) {
        store_shared(lens + 4 * n, own);
        if (spec::TRANSIT) keep_sequence(s, n, p.num_seqs);
    }
    __syncthreads();
    if (n >= p.num_seqs) return;
    if (may_share(p) && share_word(SHARE_STEP)) {
        shared[ORDER_AT + n] = (u8)n;
        return;
    }
    shared[ORDER_AT + rank_among(lens, own, n, p.num_seqs)] = (u8)n;
}

/*
 * Of item.index: a sequence, or one partition of it without what that replays; no chunks where the row is nobody's. gates:
 * by_gates(). placed: of even shares it is where a whole sequence and head lies, of which the item is what this CTA has. By a
 * warp.
 */
__device__ __forceinline__ void find_item(Item &item, const prefill_params &p, bool gates, bool placed, int lane)
{
    const bool even = cut_evenly(p);
    const int place = gates ? place_of(p, item.index, lane) : item.index, row = over_parts(p, place);
    item.part = place - row * parts_of_heads(p);
    item.n = even ? min(row, p.num_seqs - 1) : row; /* a share without items begins behind the last of all */
    if (even && !placed)
        item.n = sequence_of_partition(p, item.index);
    else if (spec::CUTS && !even && !gates)
        item.n = sequence_of_row(p, row, lane);
    else if (spec::CUTS ? gates && has_ranks(p) : sorted(p))
        item.n = shared[(spec::CUTS ? RANKED_AT : ORDER_AT) + row];
    (Sequence &)item = sequence_of(p, item.n);
    item.begin = 0;
    item.end = chunks_of(p, item);
    if (gates && item.index < worded_items()) {
        const u32 word = cut_word(place);
        const int partition = item.index - cut_base(word), chunks = item.end;
        const int edge = cut_begin(word, partition + (lane & 1), chunks);
        item.begin = __shfl_sync(~0u, edge, 0);
        item.end = __shfl_sync(~0u, edge, 1);
    } else if (even && !placed) {
        find_partition(item, p);
    } else if (spec::CUTS && !even && !gates) {
        item.begin = (row - first_row(p, item.n)) * p.partition;
        item.end = min(item.end, item.begin + p.partition);
    } else if (!gates) {
        take_part(item, p);
    }
    item.main = item.begin;
    if (even && placed) item.index = (int)load_shared_u32(at(LISTS_AT) + TICKET);
}

/* Of its sequence, which has chunks, and its part. By a warp. */
__device__ __forceinline__ int partitions_of(const prefill_params &p, const Item &item)
{
    if (cut_evenly(p)) {
        const int chunks = chunks_of(p, item);
        return item.main == 0 && item.end == chunks ? 1 : even_partitions(p, item, chunks);
    }
    return by_gates() ? cut_count(cut_word_of(p, item)) : partition_of(p, (chunks_of(p, item) - 1) * C) + 1;
}

/*
 * How many chunks before it an item replays; 0: its state is not guessed. Of lengths that follow from the gates none where the
 * pair is carried, as planned where the delta rule forgets; else as the gates before it say, and of partitions of one length,
 * where these leave too much, as many as forget enough (no more than a partition has, since p.most_forgetting is not). By a
 * warp.
 */
__device__ __forceinline__ int replayed_by(const prefill_params &p, const Item &item, int lane)
{
    const bool gates = by_gates();
    const u32 word = gates ? cut_word_of(p, item) : 0;
    if (is_carried(word)) return 0;
    if (word >> 16 & FORGETS) return min(replayed_chunks(word), item.begin);
    const int replayed = replay_chunks(p, item, item.begin, lane);
    if (replayed > 0 || gates || p.most_forgetting == 0) return replayed;
    const int forgetting = shared[FORGETTING_AT + pair_number(p, item.n, item.part)];
    return forgetting > item.begin && !item.from_zeros ? 0 : min(forgetting, item.begin); /* it does not forget that state */
}

/* Index of the last partition of an item's pair, if that is for the CTA of the first one; else -1. */
__device__ __forceinline__ int last_of_first(const prefill_params &p, const Item &item)
{
    if (!by_gates()) return -1;
    const u32 word = cut_word_of(p, item);
    return is_carried(word) && cut_count(word) > 1 ? cut_base(word) + cut_count(word) - 1 : -1;
}

/* What a CTA sets aside, what it has to repeat, what it was told of guesses: nothing yet. By one thread. */
__device__ __forceinline__ void clear_lists()
{
    store_shared(at(LISTS_AT), 0u, 0u, 0u, 0u);
    store_shared(at(WRONG_AT), 0u, 0u, 0u, 0u);
    store_shared(at(WRONG_AT) + 16, 0u, 0u, 0u, 0u);
    store_shared(at(REPAIR_AT), 0u, 0u, 0u, 0u);
}

/* ---- Tickets ------------------------------------------------------------------------------------------------------ */

/* A CTA's first ticket, where items are partitions: by a thread of the tile warp. */
__device__ __forceinline__ void take_first_ticket(const prefill_params &p)
{
    if (spec::CUTS && !cut_evenly(p)) store_shared(at(LISTS_AT) + TICKET, take_ticket(p.control));
}

/* Where sequences are cut evenly it comes with what share the CTA has: by the tile warp. */
__device__ __forceinline__ void take_even_share(const prefill_params &p, int lane)
{
    if (cut_evenly(p)) share_out_cut(p, lane);
}

/*
 * Number in the order of items, after that of `index` (-1: the CTA's first); where sequences are cut evenly, of the next
 * sequence and head that its share has some of. By a share, else dealt out by a counter where the call has a workspace, else in
 * turn. Of partitions, and where CTAs may have shares, the first is dealt out too: an item may wait for one of a lower ticket,
 * which somebody then has.
 */
__device__ __forceinline__ int next_index(const prefill_params &p, int index, int lane)
{
    if (cut_evenly(p)) {
        const int place = share_word(SHARE_NEXT);
        __syncwarp();
        if (lane == 0) store_shared(at(SHARE_AT) + SHARE_NEXT, (u32)(place + p.gang));
        __syncwarp();
        return place;
    }
    const bool from_first = spec::CUTS || may_share(p);
    const int step = may_share(p) ? share_word(SHARE_STEP) : 0;
    if (step) return index < 0 ? share_word(SHARE_FIRST) : index + step;
    if (index < 0) return from_first ? (int)load_shared_u32(at(LISTS_AT) + TICKET) : blockIdx.x;
    if (!spec::CUTS && !p.control) return index + gridDim.x; /* who cuts has a workspace */
    if (lane == 0) index = (from_first ? 0 : gridDim.x) + (int)take_ticket(p.control);
    return __shfl_sync(~0u, index, 0);
}

/* By whoever takes it. */
__device__ __forceinline__ void tell_kind(const prefill_params &p, const Item &item, bool starts, int lane)
{
    if (lane == 0)
        add_to(item_word(p, item.index, WORD_KIND),
               (u32)(starts ? KIND_STARTS : ends_inside(p, item) ? KIND_CARRIED : KIND_CARRIED_LAST));
    __syncwarp();
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
 * The CTA's next item with anything to do, after that of `index` (-1: its first), whose entry is `last`, and which partition
 * `following` of its sequence comes after (-1: none does). asks: what that asks of the CTA, if anything. Else it was asked
 * before: behind a first partition the last one if that is its own, else what nobody has, else what was set aside. A CTA's
 * first one is looked for before it is known how sequences are cut, and then, once, waits for that: see tell_cuts().
 */
__device__ __forceinline__ Item item_after(const prefill_params &p, int index, int following, bool asks, u32 last, int lane)
{
    Item item;
    int ticketless = following; /* what comes without a ticket, or -1 */
    bool settled = !spec::CUTS || index >= 0, again = false; /* lengths are known; the same index once more */
    if (!asks && following >= 0) {
        item.n = (int)load_shared_u32(last + ITEM_N);
        item.part = (int)load_shared_u32(last + ITEM_PART);
        item.index = (int)load_shared_u32(last + ITEM_INDEX);
        ticketless = (int)load_shared_u32(last + ITEM_MAIN) == 0 ? last_of_first(p, item) : -1;
    }
#pragma unroll 1
    while (p.num_seqs > 0) {
        if (!again) index = ticketless >= 0 ? ticketless : next_index(p, index, lane);
        const bool gates = settled && by_gates(), linked = cut_evenly(p) && ticketless >= 0;
        const bool tickets = linked || index < items_of(p, gates);
        if (!tickets && settled) index = spec::CUTS ? take_set_aside(p, lane) : -1;
        if (index < 0) break;
        item.index = index;
        find_item(item, p, gates, !linked, lane);
        again = !settled && !(await_cuts() && tickets);
        settled = true;
        if (again) continue;
        index = item.index; /* one register for both: of even shares nobody asks for a place again */
        item.start = START_CARRIED;
        if (!tickets) return item;
        const bool elsewhere = ticketless < 0 && index == last_of_first(p, item);
        ticketless = -1;
        if (item.begin >= item.end || elsewhere) continue;
        item.start = item.from_zeros ? (int)START_ZEROS : (int)item.from;
        if (!spec::CUTS) return item; /* whole, or the part of a share */
        const int replayed = item.begin == 0 ? 0 : replayed_by(p, item, lane);
        if (carries(p) && !asks) tell_kind(p, item, item.begin == 0 || replayed > 0, lane);
        if (item.begin == 0) return item;
        if (asks) {
            if (follow_up(item, p, last, replayed > 0, lane)) return item;
            break;
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
    if (!settled) await_cuts(); /* there are no sequences */
    item.n = -1;
    return item;
}

/* ---- Ends of items ------------------------------------------------------------------------------------------------- */

/*
 * Who waits for what an item has left at a link is told. By the output warp, when all is stored: a fence waits for stores, half
 * a chunk, and the state warps have the next item to begin.
 */
__device__ __forceinline__ void tell_link(const prefill_params &p, u32 entry, int lane)
{
    const int to = (int)load_shared_u32(entry + ITEM_AFTER), index = (int)load_shared_u32(entry + ITEM_INDEX);
    if (to != END_STATE && to != END_ADDEND && to != END_TRANSITION) return;
    release();
    __syncwarp();
    if (to == END_TRANSITION) {
        if (lane == 0) add_to(item_word(p, index, WORD_TRANSITION), 1);
    } else if (lane < STATE_GROUPS) {
        add_to(item_word(p, index + index_step(p), WORD_LINK + lane), to == END_STATE ? (u32)LINK_STATE : (u32)LINK_ADDEND);
    }
    __syncwarp();
}

/* ---- Repairs ------------------------------------------------------------------------------------------------------- */

/*
 * A partition whose guess is wrong is repeated from the state at its link by the CTA that found that first, when it has nothing
 * else to do: many of a sequence beside each other, each on to the next guess. They start from states that other wrong guesses
 * may have spoilt: so each compares what it ends with with what the next one started from. Where these differ, the last of the
 * pair's partitions to be done makes its CTA repeat the sequence from the first such repair on, in a row (REST).
 *
 * A CTA's list of repairs has its head in shared memory, index + 1 (0: none), and goes on in WORD_LATER, which of a partition
 * that starts from a guess has no other use. Nobody waits for repairs; they wait for items, all of which somebody has.
 */
constexpr u32 REST = 1u << 30; /* beside an index + 1: to the sequence's end */

__device__ __forceinline__ void push_repair(const prefill_params &p, int index, u32 rest)
{
    *item_word(p, index, WORD_LATER) = load_shared_u32(at(LISTS_AT) + REPAIRS);
    store_shared(at(LISTS_AT) + REPAIRS, (u32)(index + 1) | rest);
}

/* By the output warp: all that the CTA has stored is there for who acquires what lane 0 says next. */
__device__ __forceinline__ void complete_output()
{
    bulk_wait<0>();
    __syncwarp();
    release(); /* of all lanes' rows of O, and of what the state warps have stored */
}

/*
 * A partition is done, or its repair: not those whose CTA has one more to repeat for each wrong guess found in its time.
 * Returns how many of the pair's were before it, if it is.
 */
__device__ __forceinline__ int count_partition(const prefill_params &p, const Item &item, int number)
{
    const u32 word = at(WRONG_AT) + 4 * (number % ITEM_SLOTS), wrong = load_shared_u32(word);
    u32 *const done = pair_word(p, item.n, item.part, PAIR_DONE);
    if (!rarely(wrong != 0)) return (int)take_ticket(done);
    const int own = wrong & 1, following = wrong >> 8;
    store_shared(word, 0u);
    if (own) push_repair(p, item.index, 0);
    if (following) push_repair(p, item.index + index_step(p), 0);
    add_to(done, (u32)(1 - own - following));
    return -1;
}

/*
 * By the output warp, when O of the item is on its way, and its states are stored. A call's end waits for this: so a partition
 * is counted, and its entry left, before O is there for others, since who repeats it waits for its end too; a repair has no
 * word for that, and is counted when all is there.
 */
__device__ __forceinline__ void finish_partition(const prefill_params &p, const Item &item, int number, int partitions,
                                                 int lane)
{
    const int after = (int)load_shared_u32(entry_of(number) + ITEM_AFTER);
    const bool repair = is_repair((int)load_shared_u32(entry_of(number) + ITEM_START));
    const bool counts = partitions > 1 && item.main < item.end && !(repair && after == END_KEPT); /* that is no end of it */
    if (rarely(repair)) complete_output();
    if (lane == 0) {
        if (counts && count_partition(p, item, number) == partitions - 1) {
            acquire();
            const u32 again = peek(pair_word(p, item.n, item.part, PAIR_AGAIN));
            if (again != 0) push_repair(p, (int)(AGAIN_FIRST - again), REST);
        }
        mbar_arrive(bar(ITEM_LEFT + number % ITEM_SLOTS));
    }
    if (repair || partitions == 1) return; /* nobody asks */
    complete_output();
    const bool linked = !cut_evenly(p) || item.main > 0; /* else its words may be another partition's of this CTA */
    if (counts && lane == 0) {
        if (linked) add_to(item_word(p, item.index, WORD_WRONG), after == END_LINK ? HAS_ENDED : HAS_ENDED | GOES_ON);
        if (cut_evenly(p) && ends_inside(p, item)) add_to(item_word(p, item.index + index_step(p), WORD_BEFORE), HAS_ENDED);
    }
    __syncwarp();
}

/* Waits for a partition's end: HAS_ENDED and what comes with it. By a warp, all of whose lanes have the same bits of these. */
__device__ __forceinline__ u32 await_end(const u32 *said)
{
    u32 word;
    do {
        word = peek(said);
    } while (word < HAS_ENDED);
    return word;
}

__device__ __forceinline__ u32 *end_before(const prefill_params &p, int index)
{
    return cut_evenly(p) ? item_word(p, index, WORD_BEFORE) : item_word(p, index - index_step(p), WORD_WRONG);
}

/* By the tile warp, after the last ticket: what a repair goes on with, or, once all the CTA's items are left, another one. */
__device__ __forceinline__ Item next_repair(const prefill_params &p, int items, int lane)
{
    Item item = {}; /* all of it, else ptxas keeps a last item's for it */
    item.n = -1;
    if (!spec::CUTS) return item;
    u32 repair = load_shared_u32(at(REPAIR_AT) + RUN_NEXT);
    __syncwarp(); /* it is written again below */
    item.start = repair != 0 ? START_ON : START_LINK;
    if (repair == 0) {
        if (items > 0) mbar_wait(bar(ITEM_LEFT + (items - 1) % ITEM_SLOTS), (items - 1) / ITEM_SLOTS & 1);
        repair = load_shared_u32(at(LISTS_AT) + REPAIRS);
        __syncwarp();
        if (repair == 0) return item;
    }
    item.index = (int)(repair & (REST - 1)) - 1;
    if (lane == 0 && item.start == START_LINK) {
        store_shared(at(LISTS_AT) + REPAIRS, *item_word(p, item.index, WORD_LATER));
        store_shared(at(REPAIR_AT) + RUN_FIRST, (u32)item.index);
    }
    find_item(item, p, by_gates(), false, lane);
    await_end(end_before(p, item.index)); /* whose state stands at the link */
    const u32 ended = await_end(item_word(p, item.index, WORD_WRONG));
    const bool goes_on = ends_inside(p, item) && ((repair & REST) || (ended & GOES_ON));
    if (lane == 0) store_shared(at(REPAIR_AT) + RUN_NEXT, goes_on ? repair + index_step(p) : 0u);
    acquire();
    async_proxy_fence_all(); /* O's rows are written once more */
    __syncwarp();
    return item;
}
