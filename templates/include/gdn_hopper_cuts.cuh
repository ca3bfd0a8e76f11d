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
#include "gdn_warp.cuh"

/*
 * Where p.carry is spec::CARRY_BY_GATES and pairs of a sequence and a head are found that hardly decay, or that are much longer
 * than others, SMs are dealt out by what pairs cost, and a pair's partitions lie one after the other in the order of items:
 *
 *     decays, or forgets where that takes less than to be carried:
 *               the first partition is longer than the others, by what these replay;
 *     carried:  the others have three runs, addend, transition and their own, so that the first one, which has only its own,
 *               is nearly twice as long, and done when the transitions are; its CTA takes the last one too, which needs
 *               neither addend nor transition. A state comes to a partition STEP after it came to the one before, so that
 *               where there are many lengths follow that (graded_length()): the later a state comes, the more there is time for
 *               before it, and the less after it.
 *
 * There are words for CUT_PAIRS pairs. Of a call of more they are those of its longest sequences; all others stay whole. They
 * come behind, all by length, the longest first, so that short ones fill what time is left.
 *
 * How much gates decay is seen from a sample, the same for all CTAs. It decides lengths, who takes the last partition, and that
 * nothing is guessed of a pair that is carried, but of pairs that decay never how much is replayed.
 */
constexpr float CARRY_RUNS = 3.0f, FIRST_LENGTHS = 1.75f;
constexpr float REPLAYED = 0.8f; /* chunks that one takes which is replayed: it has no output */
constexpr float STEP = 0.6f, CARRY = 2.5f; /* in chunks: of a state past a partition, and of carrying at all */
constexpr float TAKE = 1.0f; /* of taking an item */
constexpr float TAKE_WHOLE = 2.0f; /* of a whole pair's, with an initial and a final state: measured */
constexpr float UNEVEN = 1.25f; /* the longest pair's part of the average from which on SMs are dealt out whatever the gates */
constexpr float MANY_REPLAYED = 16.0f * REPLAYED; /* by gates; fewer stay what each boundary's own gates say */
constexpr int SHORTEST = 4;               /* chunks of a partition; pairs of up to twice as many stay whole */
constexpr int LENGTH_STEPS = 200;         /* how finely times are tried, from the shortest to the longest, in log time */
constexpr float FORGETTING_RUN = 1.1f;    /* a chunk of runs that replay many, by one of carried runs: measured */
/* A word's upper half: what the pair's partitions replay, in chunks, or CARRIED_PAIR in its place; and FORGETS. */
constexpr u32 FORGETS = 0x8000, CARRIED_PAIR = FORGETS - 1;
constexpr u32 NO_PAIR = 0xff;
constexpr int LANES = 32;
static_assert(spec::CUT_PAIRS == 2 * LANES && spec::CUT_PARTITIONS <= (int)NO_PAIR, "two pairs a lane, numbers of 8 bits");

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

/* Of a whole pair without a word: one partition. */
__device__ __forceinline__ u32 cut_word_of(const prefill_params &p, const Item &item)
{
    return item.index < worded_items() ? cut_word(pair_place(p, item.n, item.part)) : 1 << 8;
}

/*
 * Lengths of m partitions behind a first one that are carried, from the first on. Until its state comes a partition has time
 * for two runs, and from then on for one, so that with s = GRADED_STEP
 *
 *     RISING = (2 m - 2) / 3 of them grow by s / 2 each, to PEAK        what is made before the state comes binds
 *     m - RISING - CARRIERS shrink by s                                what is made with it
 *     CARRIERS are PEAK - (m - RISING) s - CARRY / 2                    who carries a block begins when the run is carried
 *
 * which is done earliest by PEAK's choice for each m; the first one of all is f = GRADED_FIRST of the first of these. Their sum
 * is the sequence where PEAK = (chunks + GRADED + s u^2 / 6) / u, u = m + f, and all takes 3 PEAK + CARRY / 2. Fewer than MANY
 * are alike: nearly all of them carry.
 */
/* A block each: the last ones, the shortest, which come first. There are so many behind the longest one from MANY on. */
constexpr float CARRIERS = (float)STATE_WARPS, MANY = 3.0f * CARRIERS - 2.0f;
constexpr float LEAST_CARRIED = 2.0f;          /* chunks of a carrier's partition */
constexpr float GRADED_STEP = 0.7f, GRADED_FIRST = 1.5f; /* as STEP and FIRST_LENGTHS, of MANY and more */
constexpr float ABOVE = GRADED_FIRST + 1.0f, BELOW = 2.0f - GRADED_FIRST;
constexpr float GRADED = CARRIERS * 0.5f * CARRY + GRADED_STEP * (0.5f * CARRIERS * CARRIERS + ABOVE * ABOVE / 9.0f -
                                                                  GRADED_FIRST * ABOVE / 3.0f + BELOW * BELOW / 18.0f);

__device__ __forceinline__ float sqrt_approx(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Chunks of the last `n` of m partitions that are carried. */
__device__ __forceinline__ float graded_length(float chunks, float m, float n)
{
    const float u = m + GRADED_FIRST, s = GRADED_STEP, peak = __fdividef(chunks + GRADED + s / 6.0f * u * u, u);
    const float later = (m + 2.0f) * (1.0f / 3.0f), shrinking = later - CARRIERS;
    const float carriers = fminf(n, CARRIERS), x = fminf(fmaxf(n - CARRIERS, 0.0f), shrinking), y = fmaxf(n - later, 0.0f);
    return carriers * (peak - later * s - 0.5f * CARRY) + x * (peak + s * (0.5f * x - shrinking)) + y * (peak - 0.25f * s * y);
}

/* Where a partition begins, or for a number behind the last one the sequence's end. */
__device__ __forceinline__ int cut_begin(u32 word, int partition, int chunks)
{
    if (partition == 0) return 0;
    const float count = (float)cut_count(word), m = count - 1.0f, behind = count - (float)partition;
    if (is_carried(word) && m >= MANY) return chunks - (int)graded_length((float)chunks, m, behind);
    const float length = is_carried(word) ? __fdividef((float)chunks, m + FIRST_LENGTHS)
                                          : __fdividef((float)(chunks - cut_replayed(word)), count);
    return chunks - (int)(behind * length);
}

/* How long up to n CTAs take for a pair, in chunks, if its partitions replay, and if they are carried. */
__device__ __forceinline__ float replay_time(float chunks, float replayed, float n)
{
    return __fdividef(chunks - replayed, n) + replayed + TAKE;
}

__device__ __forceinline__ float carry_time(float chunks, float n)
{
    if (n >= MANY) {
        const float u = fminf(n + GRADED_FIRST, sqrt_approx(6.0f / GRADED_STEP * (chunks + GRADED)));
        if (u >= MANY + GRADED_FIRST)
            return __fdividef(CARRY_RUNS * (chunks + GRADED), u) + 0.5f * GRADED_STEP * u + 0.5f * CARRY;
    }
    n = fmaxf(fminf(n, sqrt_approx(CARRY_RUNS / STEP * chunks) - FIRST_LENGTHS), 1.0f);
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

/* And rank_sequences() the tokens of sequence n. */
__device__ __forceinline__ u32 ranked_len(int n)
{
    return sampled(spec::CUT_PAIRS) + 4 * n;
}

/* Rank of a number among so many in shared memory, of which it is the n-th: how many are larger, or as large and before it. */
__device__ __forceinline__ int rank_among(u32 numbers, u32 own, int n, int count)
{
    int rank = 0;
    for (int i = 0; i < count; ++i) {
        const u32 other = load_shared_u32(numbers + 4 * i);
        rank += other > own || (other == own && i < n);
    }
    return rank;
}

/* By all threads, one a sequence. */
__device__ __forceinline__ void rank_sequences(const prefill_params &p)
{
    static_assert(spec::MOST_CUT_EVENLY <= MOST_SORTED && MOST_SORTED <= spec::THREADS, "a thread and a byte for each");
    const int n = (int)threadIdx.x;
    Sequence s = {};
    if (n < p.num_seqs) {
        s = find_sequence(p, n);
        store_shared(ranked_len(n), (u32)(s.inert ? 0 : s.len));
    }
    __syncthreads();
    if (n < p.num_seqs) {
        const int rank = rank_among(ranked_len(0), (u32)(s.inert ? 0 : s.len), n, p.num_seqs);
        shared[RANKED_AT + rank] = (u8)n;
        shared[RANK_AT + n] = (u8)rank;
    }
    __syncthreads();
}

/* Pairs that sample_pairs() asks: those that have words, or of partitions of one length all, up to spec::ASKED_PAIRS. */
__device__ __forceinline__ int asked_pairs(const prefill_params &p)
{
    return carries_by_gates(p) ? worded_pairs(p) : p.num_seqs * parts_of_heads(p);
}

/*
 * Of each of these: chunks; what it takes to replay as many of them as decay enough, -1: more than is worth it; as many as
 * forget enough, 0: that is no better. Of partitions of one length the last of these alone, in FORGETTING_AT, and how many they
 * are.
 * Keys are asked where usual ones would be of use. By so many warps, in little code: each line of it is fetched for the first
 * time.
 */
__device__ __forceinline__ void sample_pairs(const prefill_params &p, int warp, int warps)
{
    if (!carries_by_gates(p) && p.most_forgetting == 0) return;
    const int lane = threadIdx.x % 32;
    const int pairs = asked_pairs(p);
    const float share = __fdividef((float)gridDim.x, (float)pairs);
#pragma unroll 1
    for (int pair = warp; pair < pairs; pair += warps) {
        const int row = over_parts(p, pair), head = (pair - row * parts_of_heads(p)) / PARTS;
        const int n = has_ranks(p) ? shared[RANKED_AT + row] : row;
        const Sequence s = find_sequence(p, n);
        const float chunks = s.len > 0 ? (float)chunks_of(p, s) : 0.0f; /* bits may not depend on whether a state is wanted */
        if (chunks <= 2.0f * SHORTEST) { /* as what decays at once */
            if (lane == 0 && carries_by_gates(p)) store_shared(sampled(pair), __float_as_uint(chunks), 0u, 0u, 0u);
            if (lane == 0 && !carries_by_gates(p)) shared[FORGETTING_AT + pair] = 0;
            continue;
        }
        const GateReader reader(p, s, head, sample_token(s, lane));
        const float gate = reader.log2_decay(reader.raw_decay(p, 0, true)) * ((float)C / SAMPLE);
        const float decay = warp_sum(gate), least = largest_quarter(gate);
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

/* The least u for which CARRY_RUNS chunks / u + step u + more is `time`, or for which that is least. */
__device__ __forceinline__ float lengths_of(float chunks, float step, float more, float time)
{
    const float c = 4.0f * step * CARRY_RUNS * chunks, b = fmaxf(time - more, sqrt_approx(c));
    return __fdividef(2.0f * CARRY_RUNS * chunks, b + sqrt_approx(fmaxf(b * b - c, 0.0f)));
}

/* How many CTAs a pair that is carried takes: carry_time() of them is `time`, or the least that there is. */
__device__ __forceinline__ float carrying_ctas(float chunks, float time)
{
    const float n = lengths_of(chunks, STEP, CARRY - STEP * FIRST_LENGTHS, time) - FIRST_LENGTHS;
    if (n < MANY) return n;
    const float graded = chunks + GRADED, short_end = LEAST_CARRIED + 0.5f * CARRY;
    const float spread = sqrt_approx(short_end * short_end + 2.0f / 3.0f * GRADED_STEP * graded);
    const float most = __fdividef(2.0f * graded, short_end + spread);
    const float u = lengths_of(graded, 0.5f * GRADED_STEP, 0.5f * CARRY, time);
    return fmaxf(fminf(u, most) - GRADED_FIRST, MANY);
}

/* What sample_pairs() found of a pair. */
struct Sample {
    float chunks, replayed; /* carried: -1 */
    bool carried, forgets;
};

__device__ __forceinline__ Sample sample_of(int pair)
{
    const uint4 x = load_shared_16(sampled(pair));
    const float chunks = __uint_as_float(x.x), by_gates = __uint_as_float(x.y), by_keys = __uint_as_float(x.z);
    const bool forgets = by_keys > 0.0f;
    return { chunks, forgets ? by_keys : by_gates, !forgets && by_gates < 0.0f && chunks > 0.0f, forgets };
}

/* How many CTAs a pair takes, to be done in `time`, or nearly so. */
__device__ __forceinline__ float ctas_of(const Sample &s, float time)
{
    if (s.chunks <= fmaxf(time, 2.0f * SHORTEST)) return 1.0f;
    float n = __fdividef(s.chunks - s.replayed, fmaxf(time - s.replayed - TAKE, (float)SHORTEST)), most = s.chunks;
    if (s.carried) {
        n = carrying_ctas(s.chunks, time);
        most = s.chunks - SHORTEST * FIRST_LENGTHS;
    }
    return fmaxf(fminf(ceilf(n), floorf(most * (1.0f / SHORTEST))), 1.0f);
}

/* How many whole ones a CTA takes in this time: by rank, the longest first. */
__device__ __forceinline__ float whole_pairs(float chunks, float time)
{
    return fmaxf(floorf(__fdividef(time, chunks + TAKE_WHOLE)), 1.0f);
}

/* What a call's time can be, in chunks, log2; and the work of whole pairs, which have no words. */
struct Times {
    float shortest, longest, whole;
    bool dealt; /* SMs are dealt out; else partitions are of one length */
};

/* By a warp. */
__device__ __forceinline__ Times times_of(const prefill_params &p, int pairs, int lane)
{
    float most = 0.0f, all = 0.0f, num_carried = 0.0f, whole = 0.0f, longest_whole = 0.0f;
    bool dealt = false;
#pragma unroll 1
    for (int pair = lane; pair < pairs; pair += LANES) {
        const Sample s = sample_of(pair);
        most = fmaxf(most, s.chunks);
        all += s.carried ? CARRY_RUNS * s.chunks : s.chunks;
        num_carried += s.carried;
        dealt |= (s.carried || s.forgets) && s.chunks > 3.0f * SHORTEST;
    }
    most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
    all = warp_sum(all);
    const bool cuts_few = pairs < p.num_seqs * parts_of_heads(p);
    dealt |= cuts_few || ((float)pairs * most > UNEVEN * all && most > 3.0f * SHORTEST);
    if (!__any_sync(~0u, dealt)) return {};
    if (rarely(cuts_few)) {
#pragma unroll 1
        for (int rank = over_parts(p, pairs) + lane; rank < p.num_seqs; rank += LANES) {
            const u32 len = load_shared_u32(ranked_len(shared[RANKED_AT + rank]));
            const float chunks = ceilf((float)len * (1.0f / C)) + TAKE_WHOLE;
            whole += (float)parts_of_heads(p) * chunks;
            longest_whole = fmaxf(longest_whole, chunks);
        }
        whole = warp_sum(whole);
        longest_whole = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(longest_whole)));
    }
    const float share = __fdividef(all + whole, (float)gridDim.x + FIRST_LENGTHS * warp_sum(num_carried));
    const float longest = fmaxf(most, longest_whole);
    return { log2f(fminf(fmaxf(share, longest_whole), longest)), log2f(longest), whole, true };
}

/*
 * The words of all pairs that have one, from what was sampled, if any is carried or forgets, or some are much longer than
 * others. By a warp: where there are few pairs as many times over as it has lanes for, to try a time each.
 */
__device__ __forceinline__ void cut_by_gates(const prefill_params &p, int lane)
{
    const int pairs = worded_pairs(p), bits = min(32 - __clz(max(pairs - 1, 0)), 5), width = 1 << bits;
    const int first = lane & (width - 1), group = lane >> bits, tries = LANES >> bits;
    const Times times = times_of(p, pairs, lane);
    if (!times.dealt) return;
    float shortest = times.shortest, longest = times.longest;
    Sample own_sample = {};
    if (first < pairs) own_sample = sample_of(first);
    u32 ctas = 0x0101; /* of its pairs, 8 bits each, in the shortest such time; a CTA each if there is none */
    const float fraction = __fdividef((float)(group + 1), (float)(tries + 1));
#pragma unroll 1
    for (int steps = 1; steps < LENGTH_STEPS; steps *= tries + 1) { /* the shortest such time */
        const float own = shortest + fraction * (longest - shortest);
        const float time = exp2_approx(own);
        float sum = first > 0 ? 0.0f : __fdividef(times.whole, time);
        u32 tried = 0;
        Sample s = own_sample;
#pragma unroll 1
        for (int pair = first; pair < pairs;) {
            const float n = ctas_of(s, time);
            sum += n > 1.0f || !has_ranks(p) ? n : __fdividef(1.0f, whole_pairs(s.chunks, time));
            tried |= min((u32)n, 0xffu) << (pair < LANES ? 0 : 8);
            pair += LANES;
            if (pair < pairs) s = sample_of(pair);
        }
#pragma unroll 1
        for (int d = 1; d < width; d *= 2)
            sum += __shfl_xor_sync(~0u, sum, d);
        const int enough = __ffs(__ballot_sync(~0u, sum <= (float)gridDim.x)) - 1;
        const int shorter = (enough < 0 ? LANES : enough) - width;
        if (shorter >= 0) shortest = __shfl_sync(~0u, own, shorter);
        if (enough >= 0) {
            longest = __shfl_sync(~0u, own, enough);
            ctas = __shfl_sync(~0u, tried, enough + first);
        }
    }
    store_shared(at(CUTS_AT) + 4 * LANES + 4 * lane, NO_PAIR);
    int base = 0;
#pragma unroll 1
    for (int pair = lane; pair - lane < pairs; pair += LANES) {
        Sample s = own_sample;
        if (pair >= LANES && pair < pairs) s = sample_of(pair);
        const int n = (int)(ctas & 0xff), count = pair < pairs ? n + (s.carried && n > 1) : 0;
        const int sum = base + sum_up_to(count, lane);
        const u32 begin = pair < pairs ? (u32)(sum - count) : NO_PAIR;
        const u32 upper = s.carried ? CARRIED_PAIR : min((u32)ceilf(s.replayed), CARRIED_PAIR - 1) | (s.forgets ? FORGETS : 0);
        store_shared(at(CUTS_AT) + 4 * pair, begin | (u32)count << 8 | upper << 16);
        base = __shfl_sync(~0u, sum, LANES - 1);
        ctas >>= 8;
    }
    const u32 items = (u32)(base + p.num_seqs * parts_of_heads(p) - pairs);
    if (lane == 0) store_shared(at(LISTS_AT) + BY_GATES, items | (u32)base << 16);
    __syncwarp();
}

/*
 * How sequences are cut is known some 3 us after a call's begin, or 5 where SMs are dealt out. The tile warp does not wait for
 * that, but finds its first item as if partitions were of one length, which as a rule they are. Meanwhile all others sample
 * pairs, and then the output warp, which has nothing to do yet, cuts.
 */
__device__ __forceinline__ void tell_cuts(const prefill_params &p, int lane)
{
    if (!spec::CUTS) return;
    if (carries_by_gates(p)) {
        cut_by_gates(p, lane);
        async_proxy_fence(); /* what was sampled is read, and a tile comes there */
    }
    bar_arrive(BAR_CUT, 64);
}

/* By the tile warp. True: partitions are of one length. */
__device__ __forceinline__ bool await_cuts()
{
    bar_sync(BAR_CUT, 64);
    return !by_gates();
}

/* The pair that has this partition. By a warp. */
__device__ __forceinline__ int pair_of(int index, int lane)
{
    int pairs = 0;
#pragma unroll
    for (int first = 0; first < spec::CUT_PAIRS; first += LANES)
        pairs += __popc(__ballot_sync(~0u, cut_base(cut_word(first + lane)) <= index));
    return pairs - 1;
}

/* The place of the pair that has this item. By a warp. */
__device__ __forceinline__ int place_of(const prefill_params &p, int index, int lane)
{
    const int behind = items_of(p, true) - index;
    return index < worded_items() ? pair_of(index, lane) : p.num_seqs * parts_of_heads(p) - behind;
}
