/*
 * gdn_hopper_cuts.cuh - how a call's sequences are cut into partitions where some of them hardly decay: SMs dealt out by what
 * pairs of a sequence and a head cost. Must not know: tickets.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_hopper_forgetting.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_tile.cuh"

/*
 * Where p.carry is spec::CARRY_BY_GATES and pairs of a sequence and a head are found that hardly decay, SMs are dealt out by
 * what pairs cost, and a pair's partitions lie one after the other in the order of items:
 *
 *     decays, or forgets where that takes less than to be carried:
 *               the first partition is longer than the others, by what these replay;
 *     carried:  the others have three runs, addend, transition and their own, so that the first one, which has only its own,
 *               is nearly twice as long, and done when the transitions are; its CTA takes the last one too, which needs
 *               neither addend nor transition.
 *
 * How much gates decay is seen from a sample, the same for all CTAs. It decides lengths, and who takes the last partition, but
 * of pairs that decay or are carried never what is guessed.
 */
constexpr float CARRY_RUNS = 3.0f, FIRST_LENGTHS = 1.75f;
constexpr float REPLAYED = 0.8f; /* chunks that one takes which is replayed: it has no output */
constexpr float STEP = 0.6f, CARRY = 2.5f; /* in chunks: of a state past a partition, and of carrying at all */
constexpr float TAKE = 1.0f; /* of taking an item */
constexpr float MANY_REPLAYED = 16.0f * REPLAYED; /* by gates; fewer stay what each boundary's own gates say, to e^-14 */
constexpr int SHORTEST = 4;               /* chunks of a partition */
constexpr float FORGETTING_RUN = 1.1f;    /* a chunk of runs that replay many, by one of carried runs: measured */
/* A word's upper half: what the pair's partitions replay, in chunks, or CARRIED_PAIR in its place; and FORGETS. */
constexpr u32 FORGETS = 0x8000, CARRIED_PAIR = FORGETS - 1;
constexpr u32 NO_PAIR = 0xff;
static_assert(spec::CUT_PAIRS <= MOST_CUTS && spec::CUT_PARTITIONS <= (int)NO_PAIR, "a pair a lane, numbers of 8 bits");

/* A pair's word: index of its first partition, how many it has, its upper half. */
__device__ __forceinline__ u32 cut_word(int pair)
{
    return load_shared_u32(at(CUTS_AT) + 4 * pair);
}

__device__ __forceinline__ int cut_base(u32 word)
{
    return (int)(word & 0xff);
}

__device__ __forceinline__ int cut_count(u32 word)
{
    return (int)(word >> 8 & 0xff);
}

__device__ __forceinline__ bool is_carried(u32 word)
{
    return word >> 16 == CARRIED_PAIR;
}

__device__ __forceinline__ int cut_replayed(u32 word)
{
    return (int)(word >> 16 & (FORGETS - 1));
}

/* How many chunks they are, where the delta rule forgets: as many at least as were planned. */
__device__ __forceinline__ int replayed_chunks(u32 word)
{
    return (int)ceilf((float)cut_replayed(word) * (1.0f / REPLAYED));
}

__device__ __forceinline__ u32 cut_word_of(const prefill_params &p, const Item &item)
{
    return cut_word(pair_number(p, item.n, item.part));
}

/* Where a partition begins, or for a number behind the last one the sequence's end: those behind the first one are alike. */
__device__ __forceinline__ int cut_begin(u32 word, int partition, int chunks)
{
    const float count = (float)cut_count(word);
    const float length = is_carried(word) ? __fdividef((float)chunks, count - 1.0f + FIRST_LENGTHS)
                                          : __fdividef((float)(chunks - cut_replayed(word)), count);
    return partition == 0 ? 0 : chunks - (int)((count - (float)partition) * length);
}

/* How long up to n CTAs take for a pair, in chunks, if its partitions replay, and if they are carried. */
__device__ __forceinline__ float replay_time(float chunks, float replayed, float n)
{
    return __fdividef(chunks - replayed, n) + replayed + TAKE;
}

__device__ __forceinline__ float carry_time(float chunks, float n)
{
    n = fmaxf(fminf(n, sqrtf(CARRY_RUNS / STEP * chunks) - FIRST_LENGTHS), 1.0f);
    return __fdividef(CARRY_RUNS * chunks, n + FIRST_LENGTHS) + STEP * n + CARRY;
}

/*
 * Whether a replay of by_keys chunks, which forget, is better than one of by_gates chunks, or, where that is -1, than to be
 * carried, n CTAs a pair; of partitions of one length, which ask gates first, whether it is no longer than they are.
 */
__device__ __forceinline__ bool better_forgets(const prefill_params &p, float chunks, float by_keys, float by_gates, float n)
{
    if (chunks <= by_keys) return false; /* empty ones too, of which nothing is read */
    if (!carries_by_gates(p))
        return by_gates < 0.0f && chunks > (float)p.partition && by_keys <= (float)p.most_forgetting;
    return by_gates >= 0.0f ? by_gates > MANY_REPLAYED && by_keys < by_gates
                            : FORGETTING_RUN * replay_time(chunks, by_keys, n) < carry_time(chunks, n);
}

/* Where sample_pairs() has what it finds of a pair, in what will be the first K tile. */
__device__ __forceinline__ u32 sampled(int pair)
{
    return at(K_AT) + 16 * pair;
}

/*
 * Of each pair: chunks; what it takes to replay as many of them as decay enough, -1: more than is worth it; as many as forget
 * enough, 0: that is no better. Of partitions of one length the last of these alone, in FORGETTING_AT, and how many they are.
 * Keys are asked where usual ones would be of use. By all warps, in little code: each line of it is fetched for the first time.
 */
__device__ __forceinline__ void sample_pairs(const prefill_params &p)
{
    if (!carries_by_gates(p) && p.most_forgetting == 0) return;
    const int lane = threadIdx.x % 32;
    const float share = __fdividef((float)gridDim.x, (float)(p.num_seqs * parts_of_heads(p)));
#pragma unroll 1
    for (int pair = threadIdx.x / 32; pair < p.num_seqs * parts_of_heads(p); pair += spec::THREADS / 32) {
        const int n = pair / parts_of_heads(p), head = (pair - n * parts_of_heads(p)) / PARTS;
        const Sequence s = find_sequence(p, n);
        const GateReader reader(p, s, head, sample_token(s, lane));
        const float gate = reader.log2_decay(reader.raw_decay(p, 0, s.len > 0 && !s.inert)) * ((float)C / SAMPLE);
        const float decay = warp_sum(gate), least = largest_quarter(gate), chunks = (float)chunks_of(p, s);
        /* Half of what it takes: a sample errs, by a tenth where gates are as trained ones. NaN, as replay_chunks() has it. */
        const bool carried = !(decay * (float)most_replayed(p) <= 0.5f * ENOUGH_DECAY);
        const float cost = carries_by_gates(p) ? REPLAYED : 1.0f;
        const float by_gates = carried ? -1.0f : cost * fminf(__fdividef(ENOUGH_DECAY, decay), (float)most_replayed(p));
        float by_keys = cost * __fdividef(ENOUGH_FORGOTTEN, least + USUALLY_FORGOTTEN);
#pragma unroll 1 /* usual keys, then these, by one piece of code */
        for (bool asked = false; by_keys > 0.0f; asked = true) {
            if (!better_forgets(p, chunks, by_keys, by_gates, share)) by_keys = 0.0f;
            if (asked || by_keys == 0.0f) break;
            by_keys = cost * forgetting_chunks(p, s, head, GateReader::beta_of(reader.raw_beta(p, 0, true)), least);
        }
        by_keys = fmaxf(by_keys, 0.0f); /* states that grow, and NaN */
        if (lane == 0 && carries_by_gates(p))
            store_shared(sampled(pair), __float_as_uint(chunks), __float_as_uint(by_gates), __float_as_uint(by_keys), 0u);
        if (lane == 0 && !carries_by_gates(p)) shared[FORGETTING_AT + pair] = (u8)by_keys;
        __syncwarp(); /* the next pair's mma */
    }
}

/*
 * How many CTAs a pair takes, to be done in `time`, or nearly so. Carried, n of them cut it in m = n + FIRST_LENGTHS
 * lengths, and CARRY_RUNS chunks / m + STEP n + CARRY is `time`, the smaller root of two, or the least that there is.
 */
__device__ __forceinline__ float ctas_of(float chunks, float replayed, float time)
{
    if (chunks <= time) return 1.0f;
    float n = __fdividef(chunks - replayed, fmaxf(time - replayed - TAKE, (float)SHORTEST)), most = chunks;
    if (replayed < 0.0f) {
        const float c = 4.0f * STEP * CARRY_RUNS * chunks, b = fmaxf(time - CARRY + STEP * FIRST_LENGTHS, sqrtf(c));
        n = __fdividef(c, 2.0f * STEP * (b + sqrtf(fmaxf(b * b - c, 0.0f)))) - FIRST_LENGTHS;
        most = chunks - SHORTEST * FIRST_LENGTHS;
    }
    return fmaxf(fminf(ceilf(n), floorf(most * (1.0f / SHORTEST))), 1.0f);
}

/* The words of all pairs, from what was sampled, if any is carried or forgets. By the tile warp, a lane a pair. */
__device__ __forceinline__ void cut_by_gates(const prefill_params &p, int lane)
{
    const int pairs = p.num_seqs * parts_of_heads(p);
    uint4 x = { 0, 0, 0, 0 };
    if (lane < pairs) x = load_shared_16(sampled(lane));
    const float chunks = __uint_as_float(x.x), by_keys = __uint_as_float(x.z);
    float replayed = __uint_as_float(x.y); /* carried: -1 */
    const bool forgets = by_keys > 0.0f;
    if (forgets) replayed = by_keys;
    const bool carried = replayed < 0.0f && chunks > 0.0f;
    async_proxy_fence(); /* what was read there is gone soon */
    if (!__any_sync(~0u, (carried || forgets) && chunks > 3.0f * SHORTEST)) return;
    const float ctas = (float)(gridDim.x + MOST_CUTS - pairs); /* lanes without a pair take one too */
    float least = __fdividef(warp_sum(carried ? CARRY_RUNS * chunks : chunks),
                             (float)gridDim.x + FIRST_LENGTHS * (float)__popc(__ballot_sync(~0u, carried)));
    float time = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(chunks))), n = 1.0f; /* a CTA a pair is enough */
#pragma unroll 1
    for (int halvings = 8; halvings > 0; --halvings) { /* in log time: the shortest for which there are enough CTAs */
        const float middle = sqrtf(least * time), tried = ctas_of(chunks, replayed, middle);
        if (warp_sum(tried) > ctas) {
            least = middle;
        } else {
            time = middle;
            n = tried;
        }
    }
    const int count = lane < pairs ? (int)n + (carried && n > 1.0f) : 0;
    int sum = count;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    const u32 base = lane < pairs ? (u32)(sum - count) : NO_PAIR;
    const u32 upper = carried ? CARRIED_PAIR : min((u32)ceilf(replayed), CARRIED_PAIR - 1) | (forgets ? FORGETS : 0);
    store_shared(at(CUTS_AT) + 4 * lane, base | (u32)count << 8 | upper << 16);
    if (lane == 31) store_shared(at(LISTS_AT) + BY_GATES, (u32)sum);
    __syncwarp();
}

/* The pair that has this partition. By a warp. */
__device__ __forceinline__ int pair_of(int index, int lane)
{
    return __popc(__ballot_sync(~0u, cut_base(cut_word(lane)) <= index)) - 1;
}
