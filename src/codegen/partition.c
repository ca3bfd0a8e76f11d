/*
 * partition.c - owns the model of what cutting sequences gains.
 */
#include "codegen/partition.h"

/* Chunks' worth of work: what an item replays, if gates decay as trained ones do; of taking an item; of cutting at all. */
enum { REPLAY = 4, SWITCH = 1, SETUP = 3 };
enum { SHORTEST = 4 }; /* chunks of a partition */

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t gdni_partition_items(const struct gdni_spec *spec, const struct gdni_problem *problem, int32_t partition,
                             int64_t num_tokens, int64_t num_seqs)
{
    const int64_t seqs = num_seqs > 0 ? num_seqs : 1; /* without any, rows of o to make zeros */
    const int64_t rows = partition ? num_tokens / ((int64_t)partition * spec->params.chunk) + seqs : seqs;
    return rows * gdni_spec_parts(spec, problem);
}

int64_t gdni_partition_links(const struct gdni_spec *spec, const struct gdni_problem *problem, int32_t partition,
                             int64_t num_tokens)
{
    return partition ? num_tokens / ((int64_t)partition * spec->params.chunk) * gdni_spec_parts(spec, problem) : 0;
}

static bool fits(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms, int64_t partition,
                 int64_t num_tokens, int64_t num_seqs)
{
    return gdni_partition_items(spec, problem, (int32_t)partition, num_tokens, num_seqs) <=
           (int64_t)GDNI_ITEMS_PER_SM * num_sms;
}

/* Rows of partitions that the model gives a call at the most: few enough to carry states, where so few pairs do. */
static int64_t most_rows(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms, int64_t num_seqs)
{
    const bool carries = gdni_partition_carry(spec, problem, num_sms, num_seqs, 1) != GDNI_CARRY_NEVER;
    const int64_t items = carries ? gdni_partition_carried_items(num_sms) : (int64_t)GDNI_ITEMS_PER_SM * num_sms;
    return items / gdni_spec_parts(spec, problem);
}

/* The shortest partitions of which gdni_partition_items() counts no more rows, whatever the sequences' lengths. */
static int64_t shortest_in(int64_t rows, const struct gdni_spec *spec, int64_t num_tokens, int64_t num_seqs)
{
    return num_tokens / (spec->params.chunk * (rows - num_seqs + 1)) + 1;
}

/* Of sequences of `chunks` chunks each, in partitions of `length`, in chunks of the busiest SM. */
static int64_t cost(int64_t pairs, int64_t chunks, int64_t length, int num_sms)
{
    const int64_t waves = divide_up(pairs * divide_up(chunks, length), num_sms);
    return length >= chunks ? waves * chunks : waves * (length + REPLAY + SWITCH) + SETUP;
}

/* The best number of chunks for sequences of equal length; that of whole ones where these are no worse. */
static int64_t best_of_equal(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                             int64_t num_tokens, int64_t num_seqs)
{
    const int64_t pairs = num_seqs * gdni_spec_parts(spec, problem);
    const int64_t chunks = divide_up(divide_up(num_tokens, spec->params.chunk), num_seqs);
    const int64_t rows = most_rows(spec, problem, num_sms, num_seqs);
    int64_t best = chunks, least = cost(pairs, chunks, chunks, num_sms);
    for (int64_t parts = 2; divide_up(chunks, parts) >= SHORTEST; ++parts) {
        const int64_t length = divide_up(chunks, parts), now = cost(pairs, chunks, length, num_sms);
        if (rows < num_seqs || length < shortest_in(rows, spec, num_tokens, num_seqs)) break;
        if (now >= least) continue;
        least = now;
        best = length;
    }
    return best;
}

/*
 * The shortest partitions of several sequences that all find an SM, whatever the sequences' lengths: no more rows of them than
 * gdni_partition_items() counts. 0: even whole ones do not.
 */
static int64_t side_by_side(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                            int64_t num_tokens, int64_t num_seqs)
{
    enum { SHORTEST_OF_SEVERAL = 8 }; /* chunks: two of these decay by e^-11 where a chunk does by e^-0.7 */
    const int64_t rows = num_sms / gdni_spec_parts(spec, problem);
    if (rows < num_seqs) return 0;
    const int64_t length = shortest_in(rows, spec, num_tokens, num_seqs);
    return length > SHORTEST_OF_SEVERAL ? length : SHORTEST_OF_SEVERAL;
}

/*
 * Several sequences of which nothing but the average length is known. As equal ones they are cut where that pays; where not,
 * one that is twice as long as the average, and more than an SM's share of the work, still is. What is short then costs replays
 * where SMs are busy anyway: shorter ones only where all of them run side_by_side().
 */
static int64_t of_several(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                          int64_t num_tokens, int64_t num_seqs)
{
    const int64_t chunks = divide_up(num_tokens, spec->params.chunk), parts = gdni_spec_parts(spec, problem);
    const int64_t average = divide_up(chunks, num_seqs), share = divide_up(chunks * parts, num_sms);
    const int64_t pairs = num_seqs * parts, beside = side_by_side(spec, problem, num_sms, num_tokens, num_seqs);
    const int64_t rows = most_rows(spec, problem, num_sms, num_seqs);
    int64_t length = best_of_equal(spec, problem, num_sms, num_tokens, num_seqs);
    if (length == average) length = share > 2 * average ? share : 2 * average;
    if (length < 4 * REPLAY) length = 4 * REPLAY;
    if (rows >= num_seqs && length < shortest_in(rows, spec, num_tokens, num_seqs))
        length = shortest_in(rows, spec, num_tokens, num_seqs);
    return beside && cost(pairs, average, beside, num_sms) < cost(pairs, average, length, num_sms) ? beside : length;
}

/* Of one CTA, with room for the last chunk of each sequence, which has fewer tokens, and for taking each pair. */
static int64_t even_share(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                          int64_t num_tokens, int64_t num_seqs)
{
    enum { LEAST_SHARE = 7, PAIR = 2 }; /* gdn_hopper_shares.cuh */
    const int64_t chunks = num_tokens / spec->params.chunk + num_seqs / 2 + num_seqs * PAIR;
    const int64_t share = divide_up(chunks * gdni_spec_parts(spec, problem), num_sms);
    return share > LEAST_SHARE ? share : LEAST_SHARE;
}

static int64_t cost_evenly(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                           int64_t num_tokens, int64_t num_seqs)
{
    return even_share(spec, problem, num_sms, num_tokens, num_seqs) + REPLAY + 2 * SWITCH + SETUP;
}

static int64_t longest_chunks(const struct gdni_spec *spec, int64_t longest)
{
    return divide_up(longest, spec->params.chunk);
}

/* What that is for: kernels that carry nothing, whole heads, calls whose workspace has room for as many pairs. */
static bool may_cut_evenly(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                           int64_t num_tokens, int64_t num_seqs)
{
    enum { MOST_CHUNKS = 1 << 20 }; /* for quotient() in gdn_sequence.cuh */
    const int64_t parts = gdni_spec_parts(spec, problem);
    const int64_t chunks = (num_tokens / spec->params.chunk + 3 * num_seqs) * parts;
    if (!gdni_spec_cuts_evenly(spec) || problem->batch_invariant) return false;
    if (num_seqs < 1 || num_seqs > GDNI_MOST_CUT_EVENLY || !gdni_partition_possible(spec, problem, num_tokens)) return false;
    return num_seqs * parts <= (int64_t)GDNI_EVEN_PAIRS_PER_SM * num_sms && chunks <= MOST_CHUNKS;
}

/*
 * Of several sequences: than whole, on as many SMs as there are pairs or all, or, where lengths are not known and the longest
 * is taken for five quarters of the average, than cutting no other than those that are twice as long as that. And where they
 * are known to be much alike, than in partitions of one length.
 */
static bool is_better_evenly(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                             int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    const int64_t chunks = divide_up(num_tokens, spec->params.chunk), parts = gdni_spec_parts(spec, problem);
    const int64_t average = divide_up(chunks, num_seqs), share = divide_up(chunks * parts, num_sms);
    const int64_t alike = divide_up(5 * average, 4), known = longest ? longest_chunks(spec, longest) : alike;
    const int64_t pairs = num_seqs * parts, now = cost_evenly(spec, problem, num_sms, num_tokens, num_seqs);
    if (now >= (known > share ? known : share)) return false;
    if (known > alike || !longest) return true;
    return now < cost(pairs, average, best_of_equal(spec, problem, num_sms, num_tokens, num_seqs), num_sms);
}

/* Whether the longest sequences' pairs alone are cut: by kernels that carry states, where gates cannot cut all. */
static bool is_ranked(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms, int64_t num_tokens,
                      int64_t num_seqs, int64_t longest)
{
    return spec->params.carry == GDNI_CARRY_STATES && num_seqs > gdni_partition_most_by_gates(problem, num_sms) &&
           num_seqs <= gdni_partition_most_ranked(problem, num_sms) &&
           gdni_partition_is_uneven(num_tokens, num_seqs, longest);
}

/* Of kernels of few sequences, in chunks of whole heads in one CTA: measured. */
static int64_t few_cost(const struct gdni_spec *few, int64_t chunks)
{
    enum { TWO_KINDS = 38, HALVES = 60 }; /* hundredths */
    const bool two_kinds = gdni_kernel_info((enum gdni_kernel)few->kernel)->has_producers;
    return (two_kinds ? TWO_KINDS : HALVES) * chunks / 100 + 1;
}

/*
 * Whatever the gates, kernels of few sequences take the same time. What cuts loses to them where gates do not decay: by gates a
 * third to a half, evenly, where nothing is carried, three quarters and more. So where they do it must gain about as much. (The
 * longest sequence counts where it is known, else five quarters of the average; not known, two sequences are no case for it.)
 */
bool gdni_partition_beats_few(const struct gdni_spec *spec, const struct gdni_spec *few, const struct gdni_problem *problem,
                              int num_sms, int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    enum { QUARTERS = 4, BY_GATES = 6, EVENLY = 7, FEW_PAIRS = 32 };
    if (num_seqs < 2 || (!longest && num_seqs == 2)) return false;
    const int64_t average = num_tokens / (num_seqs * spec->params.chunk);
    const int64_t chunks = longest ? longest_chunks(spec, longest) : 5 * average / 4;
    const int64_t now = cost_evenly(spec, problem, num_sms, num_tokens, num_seqs);
    const bool may_go_by_gates = num_seqs <= gdni_partition_most_by_gates(problem, num_sms) &&
                                 (num_seqs * gdni_spec_parts(spec, problem) <= FEW_PAIRS ||
                                  gdni_partition_is_uneven(num_tokens, num_seqs, longest));
    const int gain = may_go_by_gates ? BY_GATES : EVENLY;
    if (longest ? chunks < GDNI_LEAST_OF_ONE : average < GDNI_LEAST_OF_SEVERAL) return false;
    if (QUARTERS * few_cost(few, chunks) <= gain * now) return false;
    return gdni_partition_cut(spec, problem, num_sms, num_tokens, num_seqs, longest).evenly;
}

struct gdni_params gdni_partition_carrying(const struct gdni_spec *spec)
{
    struct gdni_params carrying = spec->params;
    carrying.carry = GDNI_CARRY_STATES;
    return carrying;
}

/*
 * One sequence in partitions of one length, unless even shares gain a tenth: where nothing decays they take that much longer,
 * since then who has begun a pair goes on through more of it.
 */
static struct gdni_cut of_one(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                              int64_t num_tokens)
{
    const int64_t chunks = divide_up(num_tokens, spec->params.chunk), parts = gdni_spec_parts(spec, problem);
    const int64_t length = best_of_equal(spec, problem, num_sms, num_tokens, 1);
    const bool evenly = may_cut_evenly(spec, problem, num_sms, num_tokens, 1) &&
                        10 * cost_evenly(spec, problem, num_sms, num_tokens, 1) < 9 * cost(parts, chunks, length, num_sms);
    return (struct gdni_cut){ .chunks = (int32_t)(length < chunks ? length : 0), .evenly = evenly };
}

static struct gdni_cut by_model(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                                int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    const int64_t chunks = divide_up(num_tokens, spec->params.chunk);
    if (num_seqs == 1) return of_one(spec, problem, num_sms, num_tokens);
    if (is_ranked(spec, problem, num_sms, num_tokens, num_seqs, longest)) return (struct gdni_cut){ .ranked = true };
    if (may_cut_evenly(spec, problem, num_sms, num_tokens, num_seqs) &&
        is_better_evenly(spec, problem, num_sms, num_tokens, num_seqs, longest))
        return (struct gdni_cut){ .evenly = true };
    const int64_t length = of_several(spec, problem, num_sms, num_tokens, num_seqs);
    return (struct gdni_cut){ .chunks = (int32_t)(length < chunks ? length : 0) };
}

/*
 * One length for calls of all sizes. On 132 SMs, of sequences of 1K to 128K tokens alone and in batches, these cost by the
 * model 1.0 to 1.4 times the best length of each call (geometric mean; at worst 2.3: one sequence of a length and a half or
 * two). A shorter one costs replays wherever SMs are busy anyway, a longer one leaves SMs idle.
 */
int32_t gdni_partition_fixed(const struct gdni_problem *problem)
{
    static const struct {
        int32_t heads, chunks;
    } rows[] = { { 8, 16 }, { 48, 32 }, { 96, 64 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        if (problem->num_heads <= rows[i].heads) return rows[i].chunks;
    return 128;
}

struct gdni_cut gdni_partition_cut(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                                   int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    struct gdni_cut cut = { .chunks = spec->params.partition_chunks };
    const bool model = cut.chunks <= GDNI_PARTITION_EVENLY;
    if (!gdni_partition_possible(spec, problem, num_tokens)) return (struct gdni_cut){ 0 };
    if (problem->batch_invariant) {
        if (model) cut.chunks = gdni_partition_fixed(problem);
        return cut;
    }
    if (num_seqs < 1) return (struct gdni_cut){ 0 };
    if (cut.chunks == GDNI_PARTITION_EVENLY) cut.evenly = may_cut_evenly(spec, problem, num_sms, num_tokens, num_seqs);
    if (model && !cut.evenly) cut = by_model(spec, problem, num_sms, num_tokens, num_seqs, longest);
    if (cut.evenly || cut.ranked)
        cut.chunks = (int32_t)even_share(spec, problem, num_sms, num_tokens, num_seqs);
    else if (cut.chunks && !fits(spec, problem, num_sms, cut.chunks, num_tokens, num_seqs))
        cut.chunks = 0;
    return cut;
}

bool gdni_partition_may_cut(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                            int64_t most_tokens, int64_t num_seqs)
{
    const bool model = spec->params.partition_chunks <= GDNI_PARTITION_EVENLY;
    if (!model) /* shorter calls have fewer partitions, which may fit */
        return gdni_partition_possible(spec, problem, most_tokens);
    return gdni_partition_cut(spec, problem, num_sms, most_tokens, num_seqs, 0).chunks != 0 ||
           gdni_partition_cut(spec, problem, num_sms, most_tokens, num_seqs, most_tokens).chunks != 0;
}

struct gdni_params gdni_partition_whole(const struct gdni_spec *spec)
{
    struct gdni_params whole = spec->params;
    if (!spec->cuts) return whole;
    whole.partition_chunks = GDNI_PARTITION_NEVER;
    whole.carry = GDNI_CARRY_NOTHING;
    return whole;
}

int64_t gdni_partition_carried_items(int num_sms)
{
    return 2 * (int64_t)num_sms;
}

/* An SM for each pair, and as many to deal out. Partitions have numbers of 8 bits. Batch-invariant plans go by heads alone. */
int64_t gdni_partition_most_by_gates(const struct gdni_problem *problem, int num_sms)
{
    const int64_t half = num_sms / 2, numbers = GDNI_CUT_PARTITIONS - num_sms;
    int64_t pairs = GDNI_CUT_PAIRS;
    if (pairs > half) pairs = half;
    if (pairs > numbers) pairs = numbers;
    return problem->batch_invariant || pairs < 0 ? 0 : pairs / problem->num_heads;
}

/* What CTAs do not find in a word comes behind; each has a rank of 8 bits, and CTAs have few enough of them. */
int64_t gdni_partition_most_ranked(const struct gdni_problem *problem, int num_sms)
{
    const int64_t by_gates = gdni_partition_most_by_gates(problem, num_sms);
    enum { PAIRS_PER_SM = 2 }; /* with more, taking them costs more where gates decay than cutting gains where some do not */
    int64_t seqs = (int64_t)PAIRS_PER_SM * num_sms / problem->num_heads;
    if (seqs > GDNI_MOST_CUT_EVENLY) seqs = GDNI_MOST_CUT_EVENLY;
    if (!by_gates || num_sms + GDNI_CUT_PAIRS > GDNI_CUT_PARTITIONS) return by_gates;
    return seqs > by_gates ? seqs : by_gates;
}

/*
 * In partitions of one length, with nothing that decays and sequences of equal length: all of the work three times on all SMs,
 * or once on as many as there are pairs.
 */
int64_t gdni_partition_most_carried(const struct gdni_problem *problem, int num_sms)
{
    enum { RUNS = 3 };
    const int64_t equal = num_sms / RUNS / problem->num_heads, by_gates = gdni_partition_most_by_gates(problem, num_sms);
    return by_gates > equal ? by_gates : equal;
}

/* UNEVEN in gdn_hopper_cuts.cuh, of whole sequences. */
bool gdni_partition_is_uneven(int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    return 4 * longest * num_seqs > 5 * num_tokens;
}

enum gdni_carry gdni_partition_carry(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                                     int64_t num_seqs, int64_t num_items)
{
    if (spec->params.carry != GDNI_CARRY_STATES) return GDNI_CARRY_NEVER;
    if (problem->batch_invariant) return GDNI_CARRY_EQUAL;
    if (num_items > gdni_partition_carried_items(num_sms)) return GDNI_CARRY_NEVER;
    if (num_seqs <= gdni_partition_most_by_gates(problem, num_sms)) return GDNI_CARRY_BY_GATES;
    return num_seqs <= gdni_partition_most_carried(problem, num_sms) ? GDNI_CARRY_EQUAL : GDNI_CARRY_NEVER;
}

/*
 * No more than one partition, which is run three times else; where nothing is carried, no more than what going on through the
 * sequence takes longer, on SMs a sixteenth faster since others are idle (of several, one that is cut has two partitions at
 * least). Less than LEAST chunks do not forget enough: of isotropic keys alone each leaves e^-(1/4) or more, and
 * e^-8.3 (bf16) or less is asked for.
 */
int32_t gdni_partition_most_forgetting(const struct gdni_spec *spec, const struct gdni_problem *problem, enum gdni_carry carry,
                                       int32_t partition, int64_t num_tokens, int64_t num_seqs)
{
    enum { LEAST = 33, MOST = 255 }; /* the kernel has a byte for it */
    const int64_t pairs = num_seqs * gdni_spec_parts(spec, problem);
    if (problem->batch_invariant || carry == GDNI_CARRY_BY_GATES || pairs > GDNI_ASKED_PAIRS) return 0;
    int64_t chunks = divide_up(num_tokens, spec->params.chunk);
    if (num_seqs > 1) chunks = chunks > 2 * partition * num_seqs ? chunks / num_seqs : 2 * partition;
    int64_t most = chunks - chunks / 16 - partition;
    if (carry != GDNI_CARRY_NEVER || most > partition) most = partition;
    if (most > MOST) most = MOST;
    return most < LEAST ? 0 : (int32_t)most;
}

int64_t gdni_partition_cost(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                            struct gdni_cut cut, int64_t num_tokens, int64_t num_seqs)
{
    const int64_t chunks = divide_up(divide_up(num_tokens, num_seqs), spec->params.chunk);
    if (cut.evenly || cut.ranked) return cost_evenly(spec, problem, num_sms, num_tokens, num_seqs);
    return cost(num_seqs * gdni_spec_parts(spec, problem), chunks, cut.chunks ? cut.chunks : chunks, num_sms);
}

bool gdni_partition_no_better(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                              struct gdni_cut cut, int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    const int64_t share = divide_up(divide_up(num_tokens, spec->params.chunk) * gdni_spec_parts(spec, problem), num_sms);
    const int64_t chunks = longest_chunks(spec, longest);
    return (share > chunks ? share : chunks) + SWITCH <=
           gdni_partition_cost(spec, problem, num_sms, cut, num_tokens, num_seqs);
}

bool gdni_partition_possible(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_tokens)
{
    if (!spec->cuts || problem->whole_sequences) return false;
    if (problem->batch_invariant) return true; /* short calls too: another kernel may have other bits */
    const int64_t least =
        spec->params.partition_chunks <= GDNI_PARTITION_EVENLY ? 2 * SHORTEST : spec->params.partition_chunks;
    return num_tokens > least * spec->params.chunk;
}

const char *gdni_partition_reason(const struct gdni_spec *spec, const struct gdni_problem *problem)
{
    static const char *const by_whole[] = {
        [GDNI_WHOLE_BY_FLAG] = "whole sequences: the plan's flag GDN_PLAN_WHOLE_SEQUENCES asks for it",
        [GDNI_WHOLE_BY_ENVIRONMENT] = "whole sequences: GDN_JIT_WHOLE_SEQUENCES=1 in the environment asks for it",
    };
    if (problem->whole_sequences) return by_whole[problem->whole_sequences];
    if (spec->kernel != GDNI_KERNEL_PREFILL_HOPPER) return "whole sequences: this kernel cuts none";
    if (problem->batch_invariant)
        return "partition_chunks from each sequence's start, in every call: the plan's flag GDN_PLAN_BATCH_INVARIANT";
    if (!spec->cuts) return "whole sequences: partition_chunks is 2, or the call is not one to cut";
    if (spec->params.partition_chunks == GDNI_PARTITION_MODEL)
        return "by tokens, sequences, heads and SMs, in calls that have a workspace";
    return "partition_chunks, in calls that have a workspace, while there are few enough partitions";
}
