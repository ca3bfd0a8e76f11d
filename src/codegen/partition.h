/*
 * partition.h - into what a call's sequences are cut for the persistent kernel. Knows heads, bounds and SMs; must not know
 * lengths of sequences, which only the device does.
 */
#ifndef GDNI_PARTITION_H
#define GDNI_PARTITION_H

#include <stdint.h>

#include "codegen/spec.h"

/* Below, longest: tokens of the call's longest sequence at the most; 0: not known. */

/* Chunks of a sequence from which on it is cut; on average where there are several, of which one may be most of the call. */
enum { GDNI_LEAST_OF_ONE = 33, GDNI_LEAST_OF_SEVERAL = 24 };

/* Most items, a partition and a part of a head each, that the model cuts a call into, for each SM: bounds the workspace. */
enum { GDNI_ITEMS_PER_SM = 5 };

/* Most sequences of a call whose chunks are shared out evenly: of whole ones a lane of a warp each. */
enum { GDNI_MOST_SHARING = 32, GDNI_MOST_CUT_EVENLY = 256 };

/* Most pairs of a sequence and a head of a call that is cut evenly, for each SM. */
enum { GDNI_EVEN_PAIRS_PER_SM = 8 };

/*
 * Into what a call is cut: chunks of a partition, or, evenly, of a share, one for each SM, which makes partitions of sequences
 * (gdn_hopper_shares.cuh); 0: sequences stay whole, which is another kernel's call: gdni_partition_whole(). ranked: gates
 * decide about lengths, and the longest sequences' pairs alone are cut (gdn_hopper_cuts.cuh); chunks: as of such a share.
 */
struct gdni_cut {
    int32_t chunks;
    bool evenly, ranked;
};
struct gdni_cut gdni_partition_cut(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                                   int64_t num_tokens, int64_t num_seqs, int64_t longest);

/* Parameters of the kernel without code for partitions that runs such a call in the spec's place; of one without, its own. */
struct gdni_params gdni_partition_whole(const struct gdni_spec *spec);

/*
 * Whether a call of so many sequences and up to so many tokens may be cut; by the model, whether the largest is, or would be
 * should one sequence be nearly all of it.
 */
bool gdni_partition_may_cut(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                            int64_t most_tokens, int64_t num_seqs);

/*
 * Where nothing but heads may decide (GDN_PLAN_BATCH_INVARIANT): chunks of every partition, a value of partition_chunks. Each
 * sequence is cut at multiples of it from its own start, in every call.
 */
int32_t gdni_partition_fixed(const struct gdni_problem *problem);

/* What cuts the sequences of a plan's calls, or why none is, in a few words; static storage. */
const char *gdni_partition_reason(const struct gdni_spec *spec, const struct gdni_problem *problem);

/* Items of a call, a bound: rows of partitions (gdn_hopper_items.cuh), or with partition 0 sequences, times parts of heads. */
int64_t gdni_partition_items(const struct gdni_spec *spec, const struct gdni_problem *problem, int32_t partition,
                             int64_t num_tokens, int64_t num_seqs);

/* As the Hopper kernel's launch parameters say it. */
enum gdni_carry {
    GDNI_CARRY_NEVER, /* where gates do not decay a partition waits for the one before it */
    GDNI_CARRY_EQUAL, /* by transitions, at a price of two more runs of such partitions, all of one length */
    GDNI_CARRY_BY_GATES /* by transitions; where some are wanted gates decide about lengths too */
};

/* Most (sequence, head) pairs and partitions of a call that gates cut, and chunks of a partition an SM whose T is kept. */
enum { GDNI_CUT_PAIRS = 64, GDNI_CUT_PARTITIONS = 254, GDNI_KEPT_CHUNKS = 64 };

/* Most pairs of a call in partitions of one length whose keys are asked how much the delta rule forgets. */
enum { GDNI_ASKED_PAIRS = 128 };

/*
 * Of such a call: most chunks that a partition may replay where not gates, but delta rule and gates together leave little
 * enough. 0: keys are not asked, as in batch-invariant plans, where the number of sequences must not decide, or not for this,
 * as where gates decide about lengths.
 */
int32_t gdni_partition_most_forgetting(const struct gdni_spec *spec, const struct gdni_problem *problem, enum gdni_carry carry,
                                       int32_t partition, int64_t num_tokens, int64_t num_seqs);

/* Of a call that has so many items. If any call of a plan carries, one of one sequence and few items does. */
enum gdni_carry gdni_partition_carry(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                                     int64_t num_seqs, int64_t num_items);

/* Bounds of a call that carries, unless the plan is batch-invariant: items, and sequences. */
int64_t gdni_partition_carried_items(int num_sms);
int64_t gdni_partition_most_carried(const struct gdni_problem *problem, int num_sms);

/* Links between them, a bound: no sequence has more than it has whole partitions' lengths. */
int64_t gdni_partition_links(const struct gdni_spec *spec, const struct gdni_problem *problem, int32_t partition,
                             int64_t num_tokens);

/* What the model expects of equal sequences, or of any if they are cut evenly: chunks' worth of work of the busiest SM. */
int64_t gdni_partition_cost(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                            struct gdni_cut cut, int64_t num_tokens, int64_t num_seqs);

/*
 * Whether a call is cut evenly, and done sooner so than by the kernel of few sequences that it has, whose time is that of the
 * longest one whatever the gates: two kinds of CTAs, or halves of heads. By more, the more it loses where gates do not decay.
 * Of one sequence, which no other one makes uneven, that is for the plan to say.
 */
bool gdni_partition_beats_few(const struct gdni_spec *spec, const struct gdni_spec *few,
                              const struct gdni_problem *problem, int num_sms, int64_t num_tokens, int64_t num_seqs,
                              int64_t longest);

/* Most sequences of a call of so few pairs that partitions' lengths may follow from gates, and from sequences' lengths. */
int64_t gdni_partition_most_by_gates(const struct gdni_problem *problem, int num_sms);

/* And of one that is known to be uneven, of which only the longest sequences are cut. 0: no call is. */
int64_t gdni_partition_most_ranked(const struct gdni_problem *problem, int num_sms);

/* Whether the longest sequence is so much longer than the average that these lengths do, whatever the gates. */
bool gdni_partition_is_uneven(int64_t num_tokens, int64_t num_seqs, int64_t longest);

/*
 * Parameters of the kernel with the code that carries states, for such calls that the spec's own would cut evenly: where gates
 * do not decay it takes a third of the time, and where they do no more.
 */
struct gdni_params gdni_partition_carrying(const struct gdni_spec *spec);

/*
 * Whether a call whose longest sequence is known, and of whose pairs CTAs may have even shares as they are (gang in
 * workspace.h), or by being cut, is done no later whole than cut so.
 */
bool gdni_partition_no_better(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                              struct gdni_cut cut, int64_t num_tokens, int64_t num_seqs, int64_t longest);

/* Whether any call of up to so many tokens may be cut. */
bool gdni_partition_possible(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_tokens);

#endif
