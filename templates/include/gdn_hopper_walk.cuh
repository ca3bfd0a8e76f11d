/*
 * gdn_hopper_walk.cuh - the state warpgroups from item to item: where a state comes from, chunk by chunk, where it goes.
 */
#pragma once

#include "gdn_hopper_carry.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_few.cuh"
#include "gdn_hopper_guesses.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_links.cuh"
#include "gdn_hopper_lone.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_transit.cuh"
#include "gdn_hopper_transitions.cuh"
#include "gdn_hopper_turns.cuh"
#include "gdn_state.cuh"

/* A line of initial_state, or zeros. */
__device__ __forceinline__ void take_state(float (&S)[64], const prefill_params &p, u32 entry, const Place &place)
{
    const int start = (int)load_shared_u32(entry + ITEM_START), part = (int)load_shared_u32(entry + ITEM_PART);
    clear(S);
    if (start >= 0) load_state(S, initial_state(p, start, part / PARTS), place.row(part));
}

__device__ __forceinline__ void begin_item(float (&S)[64], const prefill_params &p, u32 entry, const Clock &c,
                                           const Place &place)
{
    const int start = (int)load_shared_u32(entry + ITEM_START);
    if (spec::CUTS && (start == START_KEPT || start == START_ON)) return;
    if (spec::CARRIES && rarely(start == START_CARRIED)) {
        carry_state(S, p, entry, c.parity1() ^ 1, place);
        return;
    }
    const int index = (int)load_shared_u32(entry + ITEM_INDEX), n = (int)load_shared_u32(entry + ITEM_N);
    take_state(S, p, entry, place);
    if (spec::CUTS && rarely(start == START_LINK)) load_link(S, link_state(link_at(p, index, n), place));
    if (spec::CARRIES && rarely(start == START_IDENTITY)) begin_transition(S, link_at(p, index, n), place);
    if (spec::CUTS && in_place(p) && is_first_of_several(entry)) announce_start(p, entry, place);
}

/* Whether states are exchanged between items, by swap_state() or exchange_states(). Halves have few. */
constexpr bool EXCHANGES = !spec::CUTS && STATE_GROUPS == 2;

/* To a line of final_state, if it is wanted. */
__device__ __forceinline__ void leave_state(const float (&S)[64], const prefill_params &p, u32 entry, const Place &place)
{
    const int to = (int)load_shared_u32(entry + ITEM_AFTER), part = (int)load_shared_u32(entry + ITEM_PART);
    if (to >= 0 && p.final_state) save_state(S, final_state(p, to, part / PARTS), place.row(part));
}

/*
 * Where they are not in transit, or there is no next item (more): the next one's state is asked for before this one's is
 * stored, since loads queue up behind stores; a chunk's operands leave registers for both.
 */
__device__ __forceinline__ void exchange_states(float (&S)[64], const prefill_params &p, u32 entry, u32 next, bool more,
                                                const Place &place)
{
    float T[64];
    /* Zeros as ptxas does not know them: it would have them made before it is known which way states go. */
    const float zero = __uint_as_float(more ? load_shared_u32(next + ITEM_BEGIN) >> 31 : 0u);
#pragma unroll
    for (int i = 0; i < 64; ++i)
        T[i] = zero;
    if (more) take_state(T, p, next, place);
    leave_state(S, p, entry, place);
#pragma unroll
    for (int i = 0; i < 64; ++i)
        S[i] = T[i];
}

/* After an item's last chunk, or the last one that it replays; where states are not exchanged. */
__device__ __forceinline__ void hand_over(const float (&S)[64], const prefill_params &p, u32 entry, bool last,
                                          const Place &place)
{
    const int to = (int)load_shared_u32(entry + ITEM_AFTER);
    if (spec::CUTS && (!last || to == END_LINK || to == END_AGAIN)) {
        meet_at_link(S, p, entry, last, to == END_AGAIN, place);
    } else if (spec::CARRIES && (to == END_STATE || to == END_ADDEND)) {
        leave_at_link(S, p, entry, place);
    } else if (spec::CARRIES && to == END_TRANSITION) {
        const int index = (int)load_shared_u32(entry + ITEM_INDEX);
        leave_transition(S, link_at(p, index, (int)load_shared_u32(entry + ITEM_N)), place);
    } else if (!spec::CHECKPOINTS) {
        if (spec::CUTS && to >= 0 && in_place(p)) await_start(p, entry);
        leave_state(S, p, entry, place);
    }
}

/* A chunk's checkpoints, and, unless states are exchanged, what an item leaves to a line of final_state. */
__device__ __forceinline__ void save_after_chunk(const float (&S)[64], const prefill_params &p, u32 entry, u32 flags,
                                                 const Place &place)
{
    const int to = (int)load_shared_u32(entry + ITEM_AFTER), part = (int)load_shared_u32(entry + ITEM_PART);
    const int row = flags & CHUNK_CHECKPOINT ? (int)load_shared_u32(kept(place) + KEPT_CHECKPOINT) : -1;
    const bool leaves = !EXCHANGES && flags & CHUNK_LAST && to >= 0 && p.final_state;
    if (spec::CUTS && leaves && in_place(p)) await_start(p, entry);
    save_states(S, p, row, leaves ? to : -1, part / PARTS, place.row(part));
}

/*
 * After a chunk that is not like the others. A transition is left with all rows of one size. What products of no tokens have
 * made of an infinity is no number, nor do they leave a zero its sign: in kernels that carry an empty sequence's state is taken
 * once more.
 */
__device__ __forceinline__ void between_chunks(float (&S)[64], const prefill_params &p, u32 flags, const Place &place)
{
    const u32 entry = entry_of(flags >> ITEM_SHIFT);
    if (!BY_TOKENS && rarely(flags & CHUNK_FEW)) take_state(S, p, entry, place);
    if constexpr (spec::CHECKPOINTS) save_after_chunk(S, p, entry, flags, place);
    if (spec::CARRIES && flags & CHUNK_TRANSITION)
        keep_size(S, link_at(p, (int)load_shared_u32(entry + ITEM_INDEX), (int)load_shared_u32(entry + ITEM_N)),
                  flags & CHUNK_LAST ? 3e38f : 0.5f, place);
    if (!EXCHANGES && flags & (CHUNK_LAST | CHUNK_REPLAYED)) hand_over(S, p, entry, flags & CHUNK_LAST, place);
}

/* The chunks of an item, whose state is there, or on its way. Returns the number of the next item. */
__device__ __forceinline__ u32 walk_item(State &st, const prefill_params &p, Clock &c, Place &place)
{
    constexpr u32 UNLIKE = CHUNK_LAST | CHUNK_REPLAYED | (BY_TOKENS ? CHUNK_BEFORE_FEW : 0) |
                           (spec::CARRIES ? CHUNK_TRANSITION : 0) | (spec::CHECKPOINTS ? CHUNK_CHECKPOINT : 0);
    mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
    u32 now;
    do {
        __syncwarp(); /* else the compiler makes one loop of the two; so the code of usual chunks lies in one piece */
        const bool few = BY_TOKENS && few_is_next(c);
        if (rarely(few)) {
            now = few_chunk(st.S, p, c, place);
            c.advance();
        } else {
            do {
                if constexpr (STATE_GROUPS == 2)
                    now = chunk_in_turn(st, p, c, place);
                else
                    now = lone_chunk(st, p, c, place);
                c.advance();
            } while (!rarely(now & UNLIKE));
        }
        between_chunks(st.S, p, now, place);
        if (rarely(few)) pass_tp(c.n - 1);
    } while (!(now & CHUNK_LAST));
    if (spec::CUTS) arrive_warp(ITEM_DONE + (now >> ITEM_SHIFT & 1)); /* the output warp tells of what is stored */
    return (now >> ITEM_SHIFT) + 1;
}

/* Waits for the CTA's item of this number. False: there is none. */
__device__ __forceinline__ bool await_item(u32 number)
{
    mbar_wait(bar(ITEM_FULL + number % ITEM_SLOTS), number / ITEM_SLOTS & 1);
    return (int)load_shared_u32(entry_of(number) + ITEM_N) >= 0;
}

/* Two loops: with a second place to wait for an item, which exchanging takes, NVRTC 12.8 spilled 212 bytes of fp16 twins. */
__device__ __forceinline__ void state_role(const prefill_params &p, Place place)
{
    State st;
    Clock c = { 0, 0, 0 };
    u32 number = 0;
    if (place.group == 1) pass_turn(1);
    if constexpr (!EXCHANGES) {
        while (await_item(number)) {
            begin_item(st.S, p, entry_of(number), c, place); /* while its table and tiles are on their way */
            number = walk_item(st, p, c, place);
        }
    } else {
        bool more = await_item(number);
        if (more) begin_item(st.S, p, entry_of(number), c, place);
        while (more) {
            number = walk_item(st, p, c, place);
            more = await_item(number);
            const u32 transit = spec::TRANSIT ? load_shared_u32(entry_of(number) + ITEM_TRANSIT) : 0;
            if (transit & TRANSIT_PASSES)
                swap_state(st.S, transit, place.index());
            else
                exchange_states(st.S, p, entry_of(number - 1), entry_of(number), more, place);
        }
    }
    if (STATE_GROUPS == 2 && place.group == 0) take_turn(0); /* that the other has passed: no arrival is left over */
}
