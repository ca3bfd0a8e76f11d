/*
 * gdn_hopper_items.cuh - what work there is: items, partitions of sequences, the words by which CTAs agree about partitions
 * (codegen/workspace.c counts them), and how many chunks are replayed where gates decay. Must not know: which CTA has an item,
 * by what a partition's length was chosen.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_params.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/* ---- Items --------------------------------------------------------------------------------------------------------- */

/*
 * Chunks of one sequence and part of a state head, from a state to a state. Either all of them, or, in kernels that cut
 * (spec::CUTS; calls that are not cut run others), a partition: p.partition chunks, and before them as many as it takes
 * to replay the state that they start from. Parts are numbered through all heads, so that those of one k head are worked
 * on side by side.
 */
struct Item : Sequence {
    int n, part;    /* the sequence; -1: no more items */
    int begin, end; /* its chunks; an empty sequence has one where its state is to be copied */
    int main;       /* chunks before it are there for the state alone: their O and checkpoints are another item's */
    int index;      /* in the order of items; of partitions also the link to the one before: Partitions */
    int start;      /* a line of initial_state, or START_* */

    __device__ __forceinline__ int head() const
    {
        return part / PARTS;
    }
};
/*
 * KEPT: what the CTA's last item ended with. IDENTITY, CARRIED: see Carrying. Of repairs: LINK: what lies at the link; ON: what
 * the last one ended with.
 */
enum { START_ZEROS = -1, START_KEPT = -2, START_LINK = -3, START_IDENTITY = -4, START_CARRIED = -5, START_ON = -6 };
/* What another CTA has begun, and what it ends with (an entry's AFTER): gdn_hopper_shares.cuh. */
enum { START_HANDED = -7, END_HANDED = -9 };

__device__ __forceinline__ bool is_repair(int start)
{
    return start == START_LINK || start == START_ON;
}

__device__ __forceinline__ int parts_of_heads(const prefill_params &p)
{
    return p.num_heads * PARTS;
}

/* Which (sequence, head) pair's or item's sequence, or row, that is: what is left is its part. */
__device__ __forceinline__ int over_parts(const prefill_params &p, int number)
{
    return divided(number, p.parts_magic, p.parts_shift);
}

/* See Carrying. */
__device__ __forceinline__ bool carries(const prefill_params &p)
{
    return spec::CARRIES && p.carry;
}

/* gdn_hopper_cuts.cuh */
__device__ __forceinline__ bool carries_by_gates(const prefill_params &p)
{
    return spec::CARRIES && p.carry == spec::CARRY_BY_GATES;
}

/* Partitions of lengths that follow from the gates: behind await_cuts(), of others once there is a first item. */
__device__ __forceinline__ bool by_gates()
{
    return spec::CARRIES && load_shared_u32(at(LISTS_AT) + BY_GATES) != 0;
}

/* Items of pairs that have words, which may be cut (gdn_hopper_cuts.cuh); the others are whole pairs. */
__device__ __forceinline__ int worded_items()
{
    return (int)(load_shared_u32(at(LISTS_AT) + BY_GATES) >> 16);
}

/* Pairs that gates may cut: an SM for each, and as many to deal out. The host's: gdni_partition_most_by_gates(). */
__device__ __forceinline__ int most_worded()
{
    return min(spec::CUT_PAIRS, (int)gridDim.x / 2);
}

/*
 * Where gates cut, and there are more pairs than that, or than some, of which several that stay whole may be for one CTA: the
 * longest sequences come first.
 */
__device__ __forceinline__ bool has_ranks(const prefill_params &p)
{
    return carries_by_gates(p) && p.num_seqs > 1 && p.num_seqs * parts_of_heads(p) > min(most_worded(), spec::CUT_PAIRS / 2);
}

/* Of the longest sequences. */
__device__ __forceinline__ int worded_pairs(const prefill_params &p)
{
    return min(over_parts(p, most_worded()), p.num_seqs) * parts_of_heads(p);
}

/* CTAs may have shares of all chunks: gdn_hopper_shares.cuh. What is decided of them, behind the first barrier: SHARE_*. */
__device__ __forceinline__ bool may_share(const prefill_params &p)
{
    return (spec::TRANSIT || CUTS_EVENLY) && p.gang;
}

/* Partitions are what even shares of all chunks make of sequences. */
__device__ __forceinline__ bool cut_evenly(const prefill_params &p)
{
    return CUTS_EVENLY && may_share(p);
}

__device__ __forceinline__ int share_word(int which)
{
    return (int)load_shared_u32(at(SHARE_AT) + which);
}

/* The index behind the last item of all (gates: by_gates()), or of the CTA's share, where that is known. */
__device__ __forceinline__ int items_of(const prefill_params &p, bool gates)
{
    if (may_share(p)) return share_word(SHARE_LIMIT);
    return gates ? (int)(load_shared_u32(at(LISTS_AT) + BY_GATES) & 0xffff) : p.num_items;
}

/* From a partition's index to that of the next one of its sequence. */
__device__ __forceinline__ int index_step(const prefill_params &p)
{
    return by_gates() ? 1 : cut_evenly(p) ? p.gang : parts_of_heads(p);
}

/* With more items than CTAs the longest come first, so that the last to end are short. */
__device__ __forceinline__ bool sorted(const prefill_params &p)
{
    return p.cu_seqlens && !spec::CUTS && p.num_items > (int)gridDim.x && p.num_seqs <= MOST_SORTED;
}

/* By a thread each, where they are sorted: what is known of sequence n stays in shared memory, where it is found at once. */
enum { FROM_NOTHING = -1, FROM_ZEROS = -2 }; /* an inert one's line, and of one that starts from zeros */
__device__ __forceinline__ void keep_sequence(const Sequence &s, int n, int num_seqs)
{
    store_shared(at(FIRST_AT) + 4 * n, (u32)s.first);
    if (n + 1 == num_seqs) store_shared(at(FIRST_AT) + 4 * num_seqs, (u32)s.first + (u32)s.len);
    store_shared(at(FROM_AT) + 4 * n, (u32)(s.inert ? (int)FROM_NOTHING : s.from_zeros ? (int)FROM_ZEROS : (int)s.from));
    store_shared(at(TO_AT) + 4 * n, (u32)s.to);
}

__device__ __forceinline__ Sequence sequence_of(const prefill_params &p, int n)
{
    if (!spec::TRANSIT || !sorted(p)) return find_sequence(p, n);
    Sequence s;
    const int first = (int)load_shared_u32(at(FIRST_AT) + 4 * n), from = (int)load_shared_u32(at(FROM_AT) + 4 * n);
    s.batch = 0;
    s.first = first;
    s.len = max((int)load_shared_u32(at(FIRST_AT) + 4 * n + 4) - first, 0);
    s.from = from;
    s.to = (int)load_shared_u32(at(TO_AT) + 4 * n);
    s.inert = from == FROM_NOTHING;
    s.from_zeros = from == FROM_ZEROS;
    return s;
}

/* Chunks of a sequence that are work. */
__device__ __forceinline__ int chunks_of(const prefill_params &p, const Sequence &s)
{
    if (s.inert) return 0;
    const int chunks = s.len / C + (s.len % C != 0);
    return chunks == 0 && p.final_state ? 1 : chunks;
}

/* Final states may take the places of initial ones. */
__device__ __forceinline__ bool in_place(const prefill_params &p)
{
    return p.initial_state == p.final_state;
}

/* Whether this one's takes that of the initial state that it starts from. */
__device__ __forceinline__ bool ends_in_place(const prefill_params &p, const Sequence &s)
{
    return in_place(p) && !s.from_zeros && s.from == s.to;
}

/* Whether it ends where another partition of its sequence begins. */
__device__ __forceinline__ bool ends_inside(const prefill_params &p, const Item &item)
{
    return spec::CUTS && item.end < chunks_of(p, item);
}

/* ---- Partitions ---------------------------------------------------------------------------------------------------- */

/*
 * A sequence in partitions of p.partition chunks, an item each. Whatever the gates leave of a state after some chunks is soon
 * too little to matter: an item replays the last chunks of the partition before it from zeros, and takes what comes out as its
 * initial state. That is a guess, and every guess is compared with what the partition before it ended with, by whichever of
 * the two gets there second (gdn_hopper_guesses.cuh). Where they differ, that CTA repeats the partition with the right state
 * when it has nothing else to do. Where the gates leave too much, and the delta rule does not forget it either
 * (gdn_hopper_forgetting.cuh), the item before goes on through the partition, or, if p.carry, the state is carried.
 *
 * Carrying. A partition takes the state S before it to M S + N, linear in S: N, its addend, is what comes of zeros, and M, its
 * transition, what comes of the identity and no V. Who takes a partition before which the gates leave too much makes N, and M
 * if the same holds for the one after it, and sets the partition itself aside until all tickets are taken. The states before
 * all that is set aside of a pair are then made from the last one that somebody ended with, by the N and M between, by the
 * CTAs that set it aside (gdn_hopper_carry.cuh). No item waits for one that is set aside; repairs do.
 *
 * Items lie by rows: sequence n begins at row first_token / (C p.partition) + n, which leaves it as many as it has partitions,
 * whatever the lengths; an item is a row and a part. Or partitions are what even shares of all chunks make of sequences
 * (gdn_hopper_shares.cuh). Control words: the ticket; PAIR_WORDS of each (sequence, part); ITEM_WORDS of each item: for each
 * state warpgroup how far the link to the partition before it is; its transition; LATER's list; what its state comes from; of a
 * run's first one, how many of its blocks are taken, and of the others, how many have come to the link; how often its guess was
 * found wrong, and that it has ended. There, in p.images, lies a state or the addend of the partition before it, and the
 * transition of the one behind it.
 */
enum { PAIRS_AT = 64, PAIR_WORDS = 4, ITEM_WORDS = 8 }; /* words */
/* DONE: partitions that are and need no repair, or had it. FAILED: links that did not hold. AGAIN: see gdn_hopper_queue.cuh. */
enum { PAIR_DONE = 0, PAIR_FAILED = 1, PAIR_STARTED = 2, PAIR_AGAIN = 3 };
enum { WORD_LINK = 0, WORD_TRANSITION = 2, WORD_LATER = 3 }; /* the first + state warpgroup */
enum { WORD_KIND = 4, WORD_BLOCKS = 5, WORD_CARRIED = 6 };   /* the last two: blocks that are taken, that have come */
/* How often its guess was found wrong; when it has ended HAS_ENDED too, and GOES_ON where nothing is guessed after it. */
enum { WORD_WRONG = 7, HAS_ENDED = 0x10000, GOES_ON = 0x20000 };
/* Where partitions are of even shares: HAS_ENDED of the one before, which if it is a sequence's first one has no words. */
enum { WORD_BEFORE = WORD_TRANSITION };
/* Where states are carried: a partition starts from a state or a guess; is set aside; is, and its sequence's last one. */
enum { KIND_STARTS = 1, KIND_CARRIED = 2, KIND_CARRIED_LAST = 3 };
/* At a link: who came, and, LINK_LEFT times that, whose stores are done; or, where nothing is guessed, what is there. */
enum { LINK_GUESS = 1, LINK_TRUE = 2, LINK_LEFT = 4, LINK_STATE = 16, LINK_ADDEND = 32 };
constexpr u32 AGAIN_FIRST = 0x7fffffffu; /* PAIR_AGAIN: this less the index of the first partition to repeat; 0: none */

__device__ __forceinline__ int pair_number(const prefill_params &p, int n, int part)
{
    return n * parts_of_heads(p) + part;
}

/* Its place among pairs by rank, where sequences have one. */
__device__ __forceinline__ int pair_place(const prefill_params &p, int n, int part)
{
    return pair_number(p, has_ranks(p) ? shared[RANK_AT + n] : n, part);
}

__device__ __forceinline__ u32 *pair_word(const prefill_params &p, int n, int part, int which)
{
    return p.control + (u32)(PAIRS_AT + PAIR_WORDS * pair_number(p, n, part) + which);
}

__device__ __forceinline__ u32 *item_word(const prefill_params &p, int index, int which)
{
    return p.control + (u32)(PAIRS_AT + PAIR_WORDS * p.num_seqs * parts_of_heads(p) + ITEM_WORDS * index + which);
}

/* Which partition of p.partition chunks has a sequence's token. */
__device__ __forceinline__ int partition_of(const prefill_params &p, int token)
{
    return divided(token, p.row_magic, p.row_shift);
}

/* Calls that are cut have few tokens enough for 31 bits. */
__device__ __forceinline__ int first_row(const prefill_params &p, int n)
{
    const int token = p.cu_seqlens ? (int)load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n) : n * (int)p.uniform_len;
    return partition_of(p, token) + n;
}

/* The sequence that has this row, by a warp: each round looks at 32 sequences a step apart and keeps the steps between two. */
__device__ __forceinline__ int sequence_of_row(const prefill_params &p, int row, int lane)
{
    int n = 0, step = 1;
    while (step < (p.num_seqs + 31) / 32)
        step *= 32;
#pragma unroll 1
    for (; step > 0; step /= 32) {
        const i64 m = n + (i64)step * lane;
        n += step * (__popc(__ballot_sync(~0u, m < p.num_seqs && first_row(p, (int)m) <= row)) - 1);
    }
    return n;
}

/* Chunks that are read at a time; log2 of what may be left of a state: a fifteenth of what two roundings of one differ by. */
constexpr int REPLAY_BATCH = 8;
constexpr float ENOUGH_DECAY = (spec::IO_BF16 ? -9.0f : -11.0f) * LOG2E;

__device__ __forceinline__ int most_replayed(const prefill_params &p)
{
    return max(2 * p.partition, REPLAY_BATCH);
}

/* Sums of eight values of each lane: lane l has that of value l / 4, and of those before it. By a warp. */
__device__ __forceinline__ float running_sums(float (&x)[REPLAY_BATCH], int lane)
{
    static_assert(REPLAY_BATCH == 8, "a value for four lanes");
#pragma unroll
    for (int d = 16, half = 4; d >= 4; d /= 2, half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) { /* of two values one goes to whom it is for, and the other comes */
            const float kept = lane & d ? x[i + half] : x[i], given = lane & d ? x[i] : x[i + half];
            x[i] = kept + __shfl_xor_sync(~0u, given, d);
        }
    float sum = quad_sum(x[0]);
#pragma unroll
    for (int d = 4; d < 32; d *= 2) {
        const float before = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += before;
    }
    return sum;
}

/*
 * How many chunks before chunk `boundary` leave ENOUGH_DECAY of all that was before them; 0: more than are worth it, or so it
 * looks from those that are read, even if the others decay twice as fast. By a warp, the same for every warp that asks.
 */
__device__ __forceinline__ int replay_chunks(const prefill_params &p, const Item &item, int boundary, int lane)
{
    const int most = min(boundary, most_replayed(p));
    const float hopeless = __fdividef(0.5f * ENOUGH_DECAY, (float)most);
    float sum = 0.0f;
#pragma unroll 1
    for (int before = 0; before < most; before += REPLAY_BATCH) {
        GateReader reader(p, item, item.head(), (boundary - before) * C + 2 * lane);
        RawGate raw[REPLAY_BATCH][2];
#pragma unroll
        for (int i = 0; i < REPLAY_BATCH; ++i) {
            reader.advance(p, -C);
            raw[i][0] = reader.raw_decay(p, 0, before + i < most);
            raw[i][1] = reader.raw_decay(p, 1, before + i < most);
        }
        float decay[REPLAY_BATCH];
#pragma unroll
        for (int i = 0; i < REPLAY_BATCH; ++i)
            decay[i] = reader.log2_decay(raw[i][0]) + reader.log2_decay(raw[i][1]);
        sum += running_sums(decay, lane);
        const u32 enough = __ballot_sync(~0u, sum < ENOUGH_DECAY);
        if (enough) return min(before + (__ffs(enough) - 1) / 4 + 1, most);
        sum = __shfl_sync(~0u, sum, 31);
        if (sum > hopeless * (float)(before + REPLAY_BATCH)) return 0;
    }
    return 0;
}
