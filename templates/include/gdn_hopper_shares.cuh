/*
 * gdn_hopper_shares.cuh - an even share of all chunks for each CTA, of whole sequences or of such as are cut for it: which
 * chunks it has, and where nothing is cut what CTAs hand each other. Must not know: how a state comes and goes, in what order
 * items are dealt out.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_warp.cuh"

/*
 * All pairs of a sequence and a head lie one behind the other on a line, with as much room as they take time: their chunks, and
 * SWITCH for one item more. The line is cut into even shares, a gang of CTAs each: p.gang of them, one a head of those that
 * read the same k and q, so that these come to L2 once. So all CTAs end at the same time, where whole pairs would leave some
 * idle for as long as one of them takes. (McNaughton, 1959: Scheduling with deadlines and loss functions.)
 *
 * Whole. A pair that lies across two shares is ended by the one before, as the last thing that it does, and begun by the one
 * behind, first of all; the state is handed on in memory. No chunk is computed twice: bits are those of whole sequences. A
 * share is no less than the longest pair and HANDED_IN takes. So who ends a pair comes to that when who has begun it has been
 * done for so long; and a CTA with a part of a pair has something else besides: a part that is begun is its first item and not
 * its last one, a part that is ended its last one and not its first. Nobody waits in a circle: who ends a pair waits for the
 * CTA of the next share, which has a lower ticket and so is running, to be done with its first item, or, where that one's
 * second is its last, with what it waits for itself; there is a last share.
 *
 * Cut (spec::CUTS). Shares may be shorter than pairs, which are partitions then, one in each share that they lie across. A pair
 * is begun by the share before, as the last thing that it does, and each share behind guesses the state that its part starts
 * from, first of all: so both ends of a link come where they cost least, at a CTA's end and at its begin. Shares go by tickets:
 * who stores a final state in place of an initial one waits for one before (await_start()), if a pair is shorter than a share.
 */
constexpr int SWITCH = spec::CUTS ? 2 : 1; /* chunks' time of an item beyond its chunks */
constexpr int HANDED_IN = 4;  /* of handing a state on */
constexpr int LEAST_PART = 2; /* chunks of a pair for which it is worth it */
constexpr int LEAST_BEFORE = spec::CUTS ? 5 : LEAST_PART; /* and a partition's: fewer are no more than the next one replays */
constexpr int LEAST_SHARE = LEAST_BEFORE + 2; /* of sequences that are cut: no pair is parted by two boundaries in one place */
constexpr int WORTH = 16;     /* shares are that part of a share shorter than whole pairs would take at the least */
constexpr int WHOLE = 0x7fffffff; /* SHARE_FIRST_END, SHARE_LAST_END */
static_assert(LEAST_PART > 1, "the last two chunks of a sequence, of which one may be of few tokens, are not parted");
static_assert(LEAST_PART <= HANDED_IN, "or a share might have one part of a pair and nothing else");

/* ---- Which items are a CTA's ---- */

/*
 * Of an item whose index, sequence and chunks are known: if the CTA has a part of them, which, and, unless it is a partition,
 * where its state goes.
 */
__device__ __forceinline__ void take_part(Item &item, const prefill_params &p)
{
    if (!may_share(p)) return;
    const bool first = item.index == share_word(SHARE_FIRST), last = item.index + 1 == share_word(SHARE_LIMIT);
    if (spec::CUTS) {
        if (first) item.begin = share_word(SHARE_FIRST_BEGIN);
        if (last) item.end = min(item.end, share_word(SHARE_LAST_END));
        return;
    }
    const int end = share_word(SHARE_FIRST_END), begin = share_word(SHARE_LAST_BEGIN);
    if (first && end < item.end) {
        item.end = end;
        item.to = END_HANDED;
    }
    if (last && begin > 0) {
        item.begin = begin;
        item.from = START_HANDED;
        item.from_zeros = false;
    }
}

/*
 * How many chunks of a pair at `begin` of the line are for the share behind `boundary`: its first ones, or where it is cut its
 * last ones.
 */
__device__ __forceinline__ int chunks_behind(int begin, int chunks, int boundary)
{
    const int behind = begin + chunks + SWITCH - boundary, before = chunks - behind;
    if (boundary <= begin) return chunks;
    if (behind < LEAST_PART) return 0;
    return before < LEAST_BEFORE ? chunks : behind;
}

/* Number i of the boundaries of `shares` even shares. */
__device__ __forceinline__ int boundary_of(int i, int total, int shares)
{
    return i == shares ? total : (int)((float)i * __fdividef((float)total, (float)shares));
}

/* Where a sequence's pairs begin on the line; of numbers behind the last sequence, up to a multiple of 32, where it ends. */
__device__ __forceinline__ int line_of(int n)
{
    return (int)load_shared_u32(at(LINE_AT) + 4 * n);
}

__device__ __forceinline__ int line_end()
{
    return line_of(spec::MOST_CUT_EVENLY);
}

/*
 * A partition that begins inside its sequence is what its CTA's share begins with. Its index and that CTA's ticket are one
 * number, so that from it to the next one of its sequence, in the next share, it is p.gang. This is the sequence. By a warp.
 */
__device__ __forceinline__ int sequence_of_partition(const prefill_params &p, int index)
{
    constexpr int STEP = spec::MOST_CUT_EVENLY / 32;
    const int lane = lane_id(); /* what follows from it is not kept in registers */
    const int boundary = boundary_of(quotient(index, p.gang), line_end(), share_word(SHARE_COUNT));
    const bool before = STEP * lane < p.num_seqs && line_of(STEP * lane) < boundary;
    const int n = STEP * (__popc(__ballot_sync(~0u, before)) - 1);
    return n + __popc(__ballot_sync(~0u, lane < STEP && line_of(n + lane) < boundary)) - 1; /* behind the last one it ends */
}

/* The rest of it. Its sequence is known. */
__device__ __forceinline__ void find_partition(Item &item, const prefill_params &p)
{
    const int shares = share_word(SHARE_COUNT), share = quotient(item.index, p.gang), total = line_end();
    const int chunks = item.end, weight = chunks + SWITCH, from = line_of(item.n), boundary = boundary_of(share, total, shares);
    const int pair = quotient(boundary - 1 - from, weight), begin = from + pair * weight;
    item.part = pair * p.gang + item.index - share * p.gang;
    item.begin = chunks - chunks_behind(begin, chunks, boundary);
    item.end = chunks - chunks_behind(begin, chunks, boundary_of(share + 1, total, shares));
}

/* How many partitions the pair of a sequence with `chunks` chunks has. By a warp. */
__device__ __forceinline__ int even_partitions(const prefill_params &p, const Item &item, int chunks)
{
    const int shares = share_word(SHARE_COUNT), total = line_end(), weight = chunks + SWITCH;
    const int begin = line_of(item.n) + quotient(item.part, p.gang) * weight;
    int count = 1, i = max((int)((float)begin * __fdividef((float)shares, (float)total)) - 1, 0) + lane_id();
#pragma unroll 1
    for (bool more = true; more; i += 32) {
        const int boundary = boundary_of(min(i, shares), total, shares);
        const int behind = i <= shares && boundary < begin + weight ? chunks_behind(begin, chunks, boundary) : 0;
        count += __popc(__ballot_sync(~0u, behind > 0 && behind < chunks));
        more = __all_sync(~0u, i < shares && boundary < begin + weight);
    }
    return count;
}

/* ---- What is decided before the first item ---- */

/*
 * What the busiest of `all` gangs has at the least of whole pairs: of those that are as long as some sequence's or longer one
 * has no fewer than they are by the number of gangs. A lane has a sequence, of which there are `pairs`. By a warp.
 */
__device__ __forceinline__ int least_of_whole(int weight, int num_seqs, int pairs, int all)
{
    int longer = all - 1; /* and of pairs as long */
#pragma unroll 1
    for (int n = 0; n < num_seqs; ++n)
        if (__shfl_sync(~0u, weight, n) >= weight) longer += pairs;
    return (int)__reduce_max_sync(~0u, (u32)(quotient(longer, all) * weight));
}

/* Into how many shares; 0: pairs are dealt out whole, the longest first, about as good. total: of one head of a gang. */
__device__ __forceinline__ int count_shares(int weight, int num_seqs, int total, int pairs, int all)
{
    const int longest = (int)__reduce_max_sync(~0u, (u32)weight), share = quotient(total, all);
    const bool worth = least_of_whole(weight, num_seqs, pairs, all) > max(share, longest) + share / WORTH;
    return worth ? min(all, quotient(total, longest + HANDED_IN)) : 0;
}

/* Of a CTA that is a gang's `member`, of as many shares as there are; before store_share(). By a thread. */
__device__ __forceinline__ void begin_share(const prefill_params &p, int share, int member, int shares)
{
    store_shared(at(SHARE_AT), 0u, shares > 0 ? 0u : (u32)p.num_items, (u32)WHOLE, 0u);
    store_shared(at(SHARE_AT) + 16, (u32)(share * p.gang + member), shares > 0 ? (u32)p.gang : 0u, 0u, (u32)shares);
}

/* The share from boundary `begin` to `end`, by the lanes whose sequences have these; of the first of its pairs, `from`. */
__device__ __forceinline__ void store_share(const prefill_params &p, int begin, int end, int place, int from, int weight,
                                            int to)
{
#pragma unroll 1
    for (int i = 0; i < 2; ++i) { /* where it begins, where it ends */
        const int boundary = i ? end : begin, inside = boundary - i; /* of what lies before its end */
        if (inside < from || inside >= to) continue;
        const int pair = quotient(inside - from, weight), chunks = weight - SWITCH;
        const int behind = chunks_behind(from + pair * weight, chunks, boundary);
        const bool none = i ? behind == chunks : behind == 0; /* that pair is another's */
        const int index = place + (none ? i ? pair - 1 : pair + 1 : pair) * p.gang;
        const int at_ends = spec::CUTS == i ? (int)WHOLE : 0, edge = spec::CUTS ? chunks - behind : behind;
        store_shared(at(SHARE_AT) + SHARE_FIRST + 4 * i, (u32)(index + i));
        store_shared(at(SHARE_AT) + SHARE_FIRST_END + 4 * i, (u32)(!none && behind < chunks ? edge : at_ends));
    }
}

/*
 * Whether whole pairs are shared out, and what is this CTA's: SHARE_*. By one warp, where may_share(); a lane has a sequence.
 * The first to take a ticket has the last share, since who has a share waits for who has the next one.
 */
__device__ __forceinline__ void share_out(const prefill_params &p, const Sequence &s, int lane)
{
    const int chunks = lane < p.num_seqs ? chunks_of(p, s) : 0;
    int ticket = 0;
    if (lane == 0) ticket = (int)take_ticket(p.control);
    const int pairs = quotient(p.num_heads, p.gang), all = quotient(gridDim.x, p.gang);
    const int weight = chunks > 0 ? chunks + SWITCH : 0;
    const int to = sum_up_to(weight, lane) * pairs, total = __shfl_sync(~0u, to, 31);
    const int shares = count_shares(weight, p.num_seqs, total, pairs, all);
    ticket = __shfl_sync(~0u, ticket, 0);
    const int gang = quotient(ticket, p.gang), share = shares - 1 - gang, member = ticket - gang * p.gang;
    if (lane == 0) {
        begin_share(p, share, member, shares);
        store_shared(at(LISTS_AT) + TICKET, (u32)ticket);
    }
    __syncwarp();
    if (share < 0 || share >= shares) return;
    store_share(p, boundary_of(share, total, shares), boundary_of(share + 1, total, shares), lane * p.num_heads + member,
                to - weight * pairs, weight, to);
    __syncwarp();
}

/* Where all pairs lie on the line, so many of a sequence one behind the other; returns its end. By a warp. */
__device__ __forceinline__ int lay_out_line(const prefill_params &p, int pairs, int lane)
{
    int end = 0;
#pragma unroll 1
    for (int n = lane; n - lane < p.num_seqs; n += 32) {
        Sequence s = {};
        if (n < p.num_seqs) s = find_sequence(p, n);
        const bool empty = !s.inert && s.len == 0; /* has room even if no state is wanted: bits depend on it */
        const int chunks = n >= p.num_seqs ? 0 : empty ? 1 : chunks_of(p, s), weight = chunks > 0 ? chunks + SWITCH : 0;
        const int to = end + sum_up_to(weight, lane) * pairs;
        store_shared(at(LINE_AT) + 4 * n, (u32)(to - weight * pairs));
        end = __shfl_sync(~0u, to, 31);
    }
    if (lane < 2) store_shared(at(LINE_AT) + 4 * (lane ? (p.num_seqs + 31) / 32 * 32 : spec::MOST_CUT_EVENLY), (u32)end);
    __syncwarp();
    return end;
}

/* Sequences are cut into shares: the first to take a ticket has the first one. By one warp, where cut_evenly(). */
__device__ __forceinline__ void share_out_cut(const prefill_params &p, int lane)
{
    int ticket = 0;
    if (lane == 0) ticket = (int)take_ticket(p.control);
    const int pairs = quotient(p.num_heads, p.gang), total = lay_out_line(p, pairs, lane);
    const int shares = max(min(quotient(gridDim.x, p.gang), quotient(total, LEAST_SHARE)), 1);
    ticket = __shfl_sync(~0u, ticket, 0);
    const int share = quotient(ticket, p.gang), member = ticket - share * p.gang;
    if (lane == 0) {
        begin_share(p, share, member, shares);
        store_shared(at(LISTS_AT) + TICKET, (u32)ticket);
    }
    __syncwarp();
    if (share >= shares) return;
    const int begin = boundary_of(share, total, shares), end = boundary_of(share + 1, total, shares);
#pragma unroll 1
    for (int n = lane; n - lane < p.num_seqs; n += 32) {
        const int from = line_of(n), to = line_of(n + 1);
        store_share(p, begin, end, n * p.num_heads + member, from, quotient(to - from, pairs), to);
    }
    __syncwarp();
    if (lane == 0) store_shared(at(SHARE_AT) + SHARE_NEXT, (u32)share_word(SHARE_FIRST));
    __syncwarp();
}

/* ---- States that are handed on ---- */

/* The CTA, in the order of shares, whose state is handed on: this one, or the next share's, of this one's head in its gang. */
__device__ __forceinline__ int handing_cta(const prefill_params &p, bool next)
{
    return share_word(SHARE_CTA) + (next ? p.gang : 0);
}

__device__ __forceinline__ u8 *handed_state(const prefill_params &p, int cta)
{
    return p.images + (i64)cta * (D * D * 4);
}

/* By the thread that has stored it, once its stores are done. */
__device__ __forceinline__ void tell_handed(const prefill_params &p, int cta)
{
    release();
    signal(p.control + 1 + cta, 1);
}

__device__ __forceinline__ void await_handed(const prefill_params &p, int cta)
{
    while (peek(p.control + 1 + cta) == 0)
        ;
    acquire();
    async_proxy_fence_all(); /* it comes by TMA */
    __syncwarp();
}
