/*
 * gdn_hopper_tiles.cuh - the tile warp: takes items, announces them, loads K, Q and V of their chunks by TMA, and passes
 * states between them.
 */
#pragma once

#include "gdn_hopper_copies.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_guesses.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_queue.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_transit.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"

constexpr int LOOK_AHEAD = K_STAGES; /* chunks before an item's end at which the next one is taken */
/*
 * Chunks of an item behind which the partition after it is asked. That takes 5 us, and at an item's start what is loaded lasts
 * for them; where the ring is as full as it gets the state warps would wait for V.
 */
constexpr int ASK_BEHIND = 3;
/*
 * And behind which the next item is taken, at the soonest: where states are in transit, when the item's own is asked for; where
 * a CTA's first item may be short, when the ring is as full as it gets.
 */
constexpr int TAKE_BEHIND = spec::TRANSIT || CUTS_EVENLY ? 3 : 1;
/* Whether there is load_first(). Kernels that carry have more code than fits as it is, and were a percent slower with it. */
constexpr bool FIRST_APART = !spec::CARRIES;

/*
 * What the tile warp needs of an item, a course: in shared memory, since its registers are wanted for finding the next one.
 * V: its head times PARTS, and the part of it. FOLLOWING: index of the partition after it in its sequence, or -1.
 */
enum { COURSE_TOKEN = 0, COURSE_BATCH = 4, COURSE_Q = 8, COURSE_K = 12, COURSE_V = 16, COURSE_LEN = 20 };
enum { COURSE_INDEX = 24, COURSE_FOLLOWING = 28 };

__device__ __forceinline__ u32 course_of(int number)
{
    return at(COURSE_AT) + GATE * (number & 1);
}

/* By a warp, whose first three lanes find a head each. */
__device__ __forceinline__ void set_course(const prefill_params &p, const Item &item, int number, int lane)
{
    const u32 course = course_of(number);
    const bool transition = item.start == START_IDENTITY; /* V is zeros: of a head that there is not */
    const int div = lane == 0 ? p.q_div : lane == 1 ? p.k_div : p.v_div;
    const int mod = lane == 0 ? p.q_mod : lane == 1 ? p.k_mod : p.v_mod;
    int head = head_of(item.head(), div, mod);
    if (lane == 2) head = transition ? -1 : head * PARTS + item.part % PARTS;
    if (lane < 3) store_shared(course + COURSE_Q + 4 * lane, (u32)head);
    if (lane == 0) {
        store_shared(course + COURSE_TOKEN, (u32)item.first);
        store_shared(course + COURSE_BATCH, (u32)item.batch);
        store_shared(course + COURSE_LEN, (u32)item.len);
        store_shared(course + COURSE_INDEX, (u32)item.index);
        store_shared(course + COURSE_FOLLOWING,
                     ends_inside(p, item) && !transition ? (u32)(item.index + index_step(p)) : (u32)-1);
    }
}

struct Tiles {
    TileAt q, k, v;
};

__device__ __forceinline__ Tiles tiles_of(u32 course, int step)
{
    const int token = (int)load_shared_u32(course + COURSE_TOKEN) + step * C;
    const int batch = (int)load_shared_u32(course + COURSE_BATCH);
    const int v = (int)load_shared_u32(course + COURSE_V);
    return { { token, 0, (int)load_shared_u32(course + COURSE_Q), batch },
             { token, 0, (int)load_shared_u32(course + COURSE_K), batch },
             { token, v % PARTS, v / PARTS, batch } };
}

/* Chunks of a sequence that come as they are: of all rows, or of few tokens, with rows behind these at which nobody looks. */
__device__ __forceinline__ int whole_chunks(int len)
{
    const int rest = len % C;
    return len / C + (rest > 0 && rest <= FEW_TOKENS);
}

/* ---- V of a chunk ---------------------------------------------------------------------------------------------------- */

/*
 * V comes one chunk behind K and Q, whose rings are deeper, so that waiting for its slot does not keep them waiting. Meanwhile
 * its place is kept: where it comes from, and how many of its rows are the sequence's, C or those of a tail chunk.
 */
__device__ __forceinline__ u32 v_place(int n)
{
    return at(V_PLACE_AT) + 16 * (n & 1);
}

__device__ __forceinline__ void keep_v_place(const TileAt &v, int n, int rows, int lane)
{
    if (lane == 0) store_shared(v_place(n), (u32)v.token, (u32)v.head, (u32)v.batch, (u32)(rows << 1 | v.half));
    __syncwarp();
}

__device__ __forceinline__ int v_rows(int n)
{
    return (int)load_shared_u32(v_place(n) + 12) >> 1;
}

__device__ __forceinline__ TileAt v_tile(int n)
{
    const u32 from = v_place(n);
    return { (int)load_shared_u32(from), PARTS > 1 ? (int)load_shared_u32(from + 12) & 1 : 0, (int)load_shared_u32(from + 4),
             (int)load_shared_u32(from + 8) };
}

__device__ __forceinline__ void await_v_slot(int n)
{
    mbar_wait(bar(V_EMPTY + (n & 1)), clock_at(n).parity2() ^ 1);
}

/* Of chunk n, into its slot, which is free: of one that comes whole. */
__device__ __forceinline__ void ask_for_whole_v(const prefill_params &p, int n)
{
    load_first_tile(clock_at(n).v(), &p.v_map, bar(V_FULL + (n & 1)), v_tile(n), V_TILE);
}

__device__ __forceinline__ void load_whole_v(const prefill_params &p, int n)
{
    await_v_slot(n);
    ask_for_whole_v(p, n);
}

/* Of a tail chunk, until finish_tail_v(). */
__device__ __forceinline__ void ask_for_tail_v(const prefill_params &p, int n, int rows)
{
    if (rows > 0 && elected()) {
        mbar_arrive_expect(bar(TAIL_V), V_TILE);
        load_tile(clock_at(n).v(), &p.v_map, bar(TAIL_V), v_tile(n));
    }
    __syncwarp();
}

/* When it is there: what TMA has brought past the sequence's end becomes zeros. parity: TAIL_V's. */
__device__ __forceinline__ void finish_tail_v(int n, int rows, u32 &parity, int lane)
{
    if (rows > 0) {
        mbar_wait(bar(TAIL_V), parity);
        parity ^= 1;
    }
    clear_rest<V_TILE>(clock_at(n).v(), rows, lane);
    async_proxy_fence();
    mbar_arrive_warp(bar(V_FULL + (n & 1)), lane);
    __syncwarp();
}

/* ---- Items ----------------------------------------------------------------------------------------------------------- */

/*
 * K, Q and V of the CTA's first chunk, by less code than the others': all that runs here is fetched first, and the whole call
 * waits for it. False: it does not come whole, or is a partition's only one, whose end has to be known before (follow_up()).
 */
__device__ __forceinline__ bool load_first(const prefill_params &p, const Item &item)
{
    if (item.begin >= whole_chunks(item.len) || (item.end - item.begin == 1 && ends_inside(p, item))) return false;
    const bool wanted = item.begin >= item.main;
    const int token = (int)item.first + item.begin * C, batch = (int)item.batch;
    load_first_tile(at(K_AT), &p.k_map, bar(CHUNK_FULL), { token, 0, head_of(item.head(), p.k_div, p.k_mod), batch },
                    wanted ? 2 * TILE : TILE);
    load_first_tile(at(V_AT), &p.v_map, bar(V_FULL),
                    { token, item.part % PARTS, head_of(item.head(), p.v_div, p.v_mod), batch }, V_TILE);
    if (wanted && elected())
        load_tile(at(Q_AT), &p.q_map, bar(CHUNK_FULL), { token, 0, head_of(item.head(), p.q_div, p.q_mod), batch });
    __syncwarp();
    return true;
}

/*
 * Finds the item of this number, after the one before it, and says so to all. tickets: there may be some that nobody has, asks:
 * if it is what partition FOLLOWING asks for; else what is to be repeated, or the end, which is said too. False when there is
 * none. n: chunks that are loaded, the first item's first one here.
 */
__device__ __forceinline__ bool take_item(const prefill_params &p, int number, bool tickets, bool asks, int &n, int lane)
{
    Item item;
    if (tickets) {
        const u32 before = course_of(number - 1);
        const int index = number == 0 ? -1 : (int)load_shared_u32(before + COURSE_INDEX);
        const int following = !spec::CUTS || number == 0 ? -1 : (int)load_shared_u32(before + COURSE_FOLLOWING);
        item = item_after(p, index, following, asks, entry_of(number - 1), lane);
        if (item.n < 0) return false;
    } else {
        if (spec::CUTS && number > 0) bring_guess(p, entry_of(number - 1), n, lane);
        item = next_repair(p, number, lane);
    }
    publish(p, item, number, lane); /* at once: who waits for the first one has its gates and its state to load */
    if (FIRST_APART && number == 0 && item.n >= 0) n = load_first(p, item);
    if (item.n >= 0) set_course(p, item, number, lane);
    __syncwarp();
    return item.n >= 0;
}

/* ---- Chunks ---------------------------------------------------------------------------------------------------------- */

/* What is begun of the chunks that are loaded, n of them, and ends before another is; but V, which comes with that. */
struct Begun {
    bool v;                 /* V of chunk n - 1 is to be loaded */
    int tail;               /* of chunk n - 1 K is to be cleared from this row on, or NONE */
    int passes;             /* the item whose first chunk is n - 1, if its state is in transit, or NONE */
    u32 k_parity, v_parity; /* of TAIL and TAIL_V */
};
constexpr int NONE = -1;

/* More than V. */
__device__ __forceinline__ bool is_begun(const Begun &b)
{
    return b.tail != NONE || b.passes != NONE;
}

/* K and Q of chunk n, which comes whole; no Q where nobody wants O: what is made of an old one then is dropped. */
__device__ __forceinline__ void load_chunk(const prefill_params &p, int n, int number, int step, int lane)
{
    const Clock c = clock_at(n);
    const bool wanted = step >= (int)load_shared_u32(entry_of(number) + ITEM_MAIN);
    const Tiles from = tiles_of(course_of(number), step);
    mbar_wait(bar(K_EMPTY + (n & 3)), c.parity4() ^ 1);
    load_first_tile(c.k(), &p.k_map, bar(CHUNK_FULL + (n & 3)), from.k, wanted ? 2 * TILE : TILE);
    mbar_wait(bar(Q_EMPTY + c.q_slot), c.q_parity ^ 1);
    if (wanted && elected()) load_tile(c.q(), &p.q_map, bar(CHUNK_FULL + (n & 3)), from.q);
    __syncwarp();
    keep_v_place(from.v, n, C, lane);
}

/*
 * The same of a sequence's last chunk that does not come whole: what TMA brings past its end is another's, and a NaN there must
 * not spread. From Q it does not: such rows are of P's and O's rows that nobody wants. Until finish_k().
 */
__device__ __forceinline__ void load_tail(const prefill_params &p, int n, int number, int step, Begun &b, int lane)
{
    const Clock c = clock_at(n);
    const u32 course = course_of(number);
    const Tiles from = tiles_of(course, step);
    b.tail = (int)load_shared_u32(course + COURSE_LEN) - step * C;
    mbar_wait(bar(K_EMPTY + (n & 3)), c.parity4() ^ 1);
    mbar_wait(bar(Q_EMPTY + c.q_slot), c.q_parity ^ 1);
    if (b.tail > 0 && elected()) {
        mbar_arrive_expect(bar(TAIL), 2 * TILE);
        load_tile(c.k(), &p.k_map, bar(TAIL), from.k);
        load_tile(c.q(), &p.q_map, bar(TAIL), from.q);
    }
    __syncwarp();
    keep_v_place(from.v, n, b.tail, lane);
}

/* K of tail chunk n is there. */
__device__ __forceinline__ void finish_k(int n, Begun &b, int lane)
{
    if (b.tail > 0) {
        mbar_wait(bar(TAIL), b.k_parity);
        b.k_parity ^= 1;
    }
    clear_rest<TILE>(clock_at(n).k(), b.tail, lane);
    async_proxy_fence();
    mbar_arrive_warp(bar(CHUNK_FULL + (n & 3)), lane);
    __syncwarp();
    b.tail = NONE;
}

/* Tail chunk n as a whole, at once. Its K, which more is made of, does not wait for V's slot, which may be free late. */
__device__ __forceinline__ void finish_tail(const prefill_params &p, int n, Begun &b, int lane)
{
    const int rows = b.tail;
    const bool free = __all_sync(~0u, mbar_peek(bar(V_EMPTY + (n & 1)), clock_at(n).parity2() ^ 1)); /* or lanes would part */
    if (free) ask_for_tail_v(p, n, rows);
    finish_k(n, b, lane);
    if (!free) {
        await_v_slot(n);
        ask_for_tail_v(p, n, rows);
    }
    finish_tail_v(n, rows, b.v_parity, lane);
    b.v = false;
}

/* V of chunk n, whole or of a tail chunk. */
__device__ __forceinline__ void load_v(const prefill_params &p, int n, Begun &b, int lane)
{
    const int rows = v_rows(n);
    await_v_slot(n);
    if (rows == C) {
        ask_for_whole_v(p, n);
    } else {
        ask_for_tail_v(p, n, rows);
        finish_tail_v(n, rows, b.v_parity, lane);
    }
    b.v = false;
}

/*
 * Where states are in transit: chunks from `step` on that are an item's first, or before which something ends; behind the last
 * one (last) in the place of one more. An item's state is asked for when its first chunk is loaded, before another item is
 * looked for. It passes while the next chunk is loaded, whose place it has, and that of the one behind it: as soon as the first
 * warpgroup has taken its part. V then comes at once, since this warp waits for the other part.
 */
__device__ __forceinline__ void load_among_items(const prefill_params &p, int &n, int number, int &step, int until, int whole,
                                                 bool last, Begun &b, int lane)
{
    const int begin = (int)load_shared_u32(entry_of(number) + ITEM_BEGIN);
    while (step < until ? step == begin || is_begun(b) : last && (b.v || is_begun(b))) {
        const int passes = b.passes;
        b.passes = NONE;
        if (b.tail != NONE) finish_k(n - 1, b, lane);
        if (b.v) load_v(p, n - 1, b, lane);
        if (passes != NONE) send_quarters(p, 0, passes);
        if (step < until) {
            const u32 transit = load_shared_u32(entry_of(number) + ITEM_TRANSIT);
            if (step == begin && transit & TRANSIT_PASSES) b.passes = number;
            if (step < whole)
                load_chunk(p, n, number, step, lane);
            else
                load_tail(p, n, number, step, b, lane);
            b.v = true;
            ++step, ++n;
            if ((passes != NONE || b.passes != NONE) && b.tail == NONE) {
                load_whole_v(p, n - 1);
                b.v = false;
            }
        }
        if (passes != NONE) {
            send_quarters(p, 1, passes);
            tell_sent(p, passes);
        }
        if (b.passes != NONE) bring_quarters(p, n - 1, b.passes);
    }
}

/* Chunks of the CTA's item of this number, from `step` on and before `until`. last: there is no other item. */
__device__ __forceinline__ void load_chunks(const prefill_params &p, int &n, int number, int &step, int until, bool last,
                                            Begun &b, int lane)
{
    const int whole = min(until, whole_chunks((int)load_shared_u32(course_of(number) + COURSE_LEN)));
    if (spec::TRANSIT) load_among_items(p, n, number, step, until, whole, last, b, lane);
    for (; step < whole; ++step, ++n) {
        load_chunk(p, n, number, step, lane);
        if (b.v) load_whole_v(p, n - 1);
        b.v = true;
    }
    if (step < until) { /* behind the loop: what is rare in it would lie between its hot lines */
        load_tail(p, n, number, step, b, lane);
        if (b.v) load_whole_v(p, n - 1);
        b.v = true;
        ++step, ++n;
    }
    if (b.tail != NONE && (!spec::TRANSIT || number == 0)) finish_tail(p, n - 1, b, lane);
    if (!spec::TRANSIT && last && b.v) {
        load_whole_v(p, n - 1);
        b.v = false;
    }
}

__device__ __forceinline__ void tile_role(const prefill_params &p, int lane)
{
    Begun b = { false, NONE, NONE, 0, 0 };
    bool tickets = true, known = false; /* known: the item after this one */
    bool asks = false;                  /* partition FOLLOWING is still to be asked whether it is that */
    int number = -1, n = 0;             /* item and chunk of this CTA */
    for (int step = 0;;) {
        if (number >= 0) {
            /* Read again each time, since a register of them would be one less to find an item with. */
            const int begin = (int)load_shared_u32(entry_of(number) + ITEM_BEGIN);
            const int end = (int)load_shared_u32(entry_of(number) + ITEM_END);
            /* No earlier, so that the longest wait for nobody; but before its last chunk, also of an item of few. */
            const int take = max(end - LOOK_AHEAD, min(begin + TAKE_BEHIND, end - 1));
            const int until = known || !tickets ? end : asks ? min(begin + ASK_BEHIND, take) : take;
            load_chunks(p, n, number, step, until, !tickets, b, lane);
        }
        if (!known) {
            if (spec::TRANSIT && !tickets && (b.v || is_begun(b))) continue; /* begun by the last chunk */
            known = take_item(p, number + 1, tickets, asks, n, lane);
            if (!known && !tickets) break;
            tickets &= known || asks;
            asks = false;
        } else {
            ++number;
            known = false;
            asks = spec::CUTS && (int)load_shared_u32(course_of(number) + COURSE_FOLLOWING) >= 0;
            step = (int)load_shared_u32(entry_of(number) + ITEM_BEGIN) + (FIRST_APART && number == 0 ? n : 0);
        }
    }
    n = made_from(n);
    mbar_wait(bar(K_EMPTY + (n & 3)), n >> 2 & 1 ^ 1);
    mbar_arrive_warp(bar(CHUNK_FULL + (n & 3)), lane); /* of a chunk that there is not */
}
