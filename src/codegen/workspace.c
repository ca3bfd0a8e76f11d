/*
 * workspace.c - owns the layout of a call's workspace. Must not know: addresses, the driver.
 */
#include "codegen/workspace.h"

#include <string.h>

#include "codegen/partition.h"

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* CTAs that make images: the SMs that the recurrence leaves idle, and no fewer than keep it fed; no more than there is work. */
static int32_t num_producers(int64_t recurrence_ctas, const struct gdni_spec *spec, int num_sms, int64_t images)
{
    const int64_t at_once = spec->kernel == GDNI_KERNEL_PREFILL_SPLIT ? 2 : 1; /* images of a CTA */
    const int32_t ctas_per_producer = spec->params.ctas_per_producer;
    const int64_t busy = recurrence_ctas < num_sms ? recurrence_ctas : num_sms;
    int64_t n = num_sms - busy;
    if (n < busy / ctas_per_producer) n = busy / ctas_per_producer;
    if (n > (images + at_once - 1) / at_once) n = (images + at_once - 1) / at_once;
    if (n < 1) n = 1;
    return (int32_t)(gdni_spec_ctas_of_part(spec) == 2 ? (n + 1) / 2 * 2 : n); /* clusters of two */
}

/* Bytes that `words` control words take, with what may be cleared behind them. */
static size_t control_bytes(int64_t words)
{
    const int64_t least = words < GDNI_GRAPH_CLEAR_WORDS ? GDNI_GRAPH_CLEAR_WORDS : words;
    return (size_t)round_up(least, GDNI_CLEARED_AT_ONCE) * sizeof(uint32_t);
}

/* CTAs with shares that work on heads of the same k and q at the same time: as many such heads as divide the SMs. */
static int32_t gang_of(const struct gdni_problem *problem, int num_sms)
{
    const int32_t fewer = problem->num_q_heads > problem->num_k_heads ? problem->num_q_heads : problem->num_k_heads;
    if (problem->head_map == GDN_HEADS_TILED) return 1;
    int32_t gang = problem->num_heads / fewer;
    while (problem->num_heads / fewer % gang || num_sms % gang)
        --gang;
    return gang;
}

/*
 * Where a call may be shared out evenly, and room for a state that each CTA hands on. Its size must not shrink as calls grow,
 * of which those of many sequences have no shares.
 */
static void workspace_of_shares(struct gdni_workspace *out, const struct gdni_spec *spec, const struct gdni_problem *problem,
                                int num_sms, int64_t num_tokens, int64_t num_seqs)
{
    enum { MOST_ITEMS = 4, MOST_CHUNKS = 1 << 20 }; /* of a CTA; for quotient() */
    const int64_t parts = gdni_spec_parts(spec, problem);
    const int64_t few = num_seqs < GDNI_MOST_SHARING ? num_seqs : GDNI_MOST_SHARING;
    const int64_t chunks = (num_tokens / spec->params.chunk + few) * parts;
    if (!spec->transit || problem->whole_sequences || few * parts <= num_sms) return;
    if (chunks < (int64_t)spec->params.deal_chunks * num_sms) return;
    const size_t words = 1 + (size_t)num_sms, state = (size_t)spec->dk * (size_t)spec->dv * sizeof(float);
    const size_t size = control_bytes((int64_t)words) + (size_t)num_sms * state;
    if (out->size < size) out->size = size;
    if (num_seqs > GDNI_MOST_SHARING || num_seqs * parts > (int64_t)MOST_ITEMS * num_sms || chunks > MOST_CHUNKS) return;
    out->gang = gang_of(problem, num_sms);
    out->control_words = words;
    out->images_offset = control_bytes((int64_t)words);
}

/*
 * The persistent kernel deals its items out by a counter, or shares them out evenly, where that can pay for the memset before
 * the launch: more items than CTAs, and enough chunks for each. CTAs of a cluster take theirs together, in turn.
 */
static void workspace_of_tickets(struct gdni_workspace *out, const struct gdni_spec *spec,
                                 const struct gdni_problem *problem, int num_sms, int64_t num_tokens, int64_t num_seqs)
{
    const int64_t parts = gdni_spec_parts(spec, problem), items = num_seqs * parts;
    const int64_t chunks = (num_tokens / spec->params.chunk + num_seqs) * parts;
    if (spec->params.cluster_ctas == 2) return;
    if (items <= num_sms || chunks < (int64_t)spec->params.deal_chunks * num_sms) return;
    out->control_words = num_seqs > 1;
    if (out->size < control_bytes(1)) out->size = control_bytes(1);
    workspace_of_shares(out, spec, problem, num_sms, num_tokens, num_seqs);
}

/*
 * Control words as gdn_hopper_items.cuh has them, then, for each link of a partition to the one before, a state, and where
 * states are carried the partition's transition: two fp16 numbers for each entry, and a factor for each column. Then T of
 * GDNI_KEPT_CHUNKS chunks of a partition an SM, where gates may cut (gdn_hopper_entry.cuh, keeper()).
 */
static void lay_out_partitions(struct gdni_workspace *out, const struct gdni_spec *spec,
                               const struct gdni_problem *problem, int64_t items, int64_t links, int64_t num_seqs,
                               enum gdni_carry carry, int num_sms)
{
    enum { TICKET_WORDS = 64, PAIR_WORDS = 4, ITEM_WORDS = 8, T_BYTES = 64 * 64 * 2 };
    const int64_t row = spec->dk * (int64_t)sizeof(float), state = spec->params.block_dv * row;
    const int64_t transition = carry ? (spec->dk + 1) * row : 0;
    const int64_t pairs = num_seqs * gdni_spec_parts(spec, problem), whole = pairs > GDNI_CUT_PAIRS ? pairs : 0;
    const int64_t cut = carry == GDNI_CARRY_BY_GATES ? num_sms + (whole ? GDNI_CUT_PAIRS : pairs) : 0;
    if (cut && items < cut + whole) items = cut + whole;
    if (links < cut) links = cut;
    out->control_words = (size_t)(TICKET_WORDS + PAIR_WORDS * pairs + ITEM_WORDS * items);
    out->images_offset = control_bytes((int64_t)out->control_words);
    out->size = out->images_offset + (size_t)(links * (state + transition));
    out->t_offset = cut ? out->size : 0;
    if (cut) out->size += (size_t)num_sms * GDNI_KEPT_CHUNKS * T_BYTES;
}

/*
 * Whether this call is cut depends on more than its size, unless that is what the plan rules out: what one of its size may need
 * is what it needs.
 */
static void workspace_of_items(struct gdni_workspace *out, const struct gdni_spec *spec,
                               const struct gdni_problem *problem, int num_sms, int64_t num_tokens, int64_t num_seqs,
                               int64_t longest)
{
    const struct gdni_cut cut = gdni_partition_cut(spec, problem, num_sms, num_tokens, num_seqs, longest);
    const bool by_sms = cut.evenly || cut.ranked; /* there are as many partitions as these want */
    const int64_t items = by_sms ? num_sms : gdni_partition_items(spec, problem, cut.chunks, num_tokens, num_seqs);
    const int64_t most = (int64_t)GDNI_ITEMS_PER_SM * num_sms, carried = gdni_partition_carried_items(num_sms);
    const enum gdni_carry carry = cut.ranked ? GDNI_CARRY_BY_GATES
                                             : gdni_partition_carry(spec, problem, num_sms, num_seqs, items);
    if (gdni_partition_possible(spec, problem, num_tokens)) {
        lay_out_partitions(out, spec, problem, most, most, most / gdni_spec_parts(spec, problem), GDNI_CARRY_NEVER,
                           num_sms);
        size_t size = out->size;
        const enum gdni_carry one = gdni_partition_carry(spec, problem, num_sms, 1, 1);
        const int64_t seqs = gdni_partition_most_carried(problem, num_sms);
        if (one) lay_out_partitions(out, spec, problem, carried, carried, seqs > 1 ? seqs : 1, one, num_sms);
        if (size < out->size) size = out->size;
        const int64_t ranked = gdni_partition_most_ranked(problem, num_sms);
        if (one == GDNI_CARRY_BY_GATES)
            lay_out_partitions(out, spec, problem, 0, 0, num_seqs < ranked ? num_seqs : ranked, one, num_sms);
        if (size < out->size) size = out->size;
        const int64_t links = by_sms ? num_sms : gdni_partition_links(spec, problem, cut.chunks, num_tokens);
        lay_out_partitions(out, spec, problem, items, links, num_seqs, carry, num_sms);
        if (!problem->batch_invariant) out->size = size;
    }
    out->partition = cut.chunks;
    out->ranked = cut.ranked;
    out->carry = cut.chunks ? carry : GDNI_CARRY_NEVER;
    out->most_forgetting = gdni_partition_most_forgetting(spec, problem, out->carry, cut.chunks, num_tokens, num_seqs);
    out->num_items = items;
    if (cut.evenly) out->gang = gang_of(problem, num_sms);
    if (cut.chunks) return;
    out->control_words = out->images_offset = out->t_offset = 0;
    workspace_of_tickets(out, spec, problem, num_sms, num_tokens, num_seqs);
}

static void workspace_of_images(struct gdni_workspace *out, const struct gdni_spec *spec,
                                const struct gdni_problem *problem, int num_sms, int64_t num_tokens, int64_t num_seqs)
{
    const int64_t heads = problem->num_heads;
    out->image_rows = num_tokens / spec->params.chunk + num_seqs;
    const int64_t images = out->image_rows * heads;
    out->control_words = (size_t)(1 + images);
    out->images_offset = control_bytes(1 + images);
    out->size = out->images_offset + (size_t)(images * gdni_prefill_image_bytes(spec));
    out->num_producers =
        num_producers(num_seqs * gdni_spec_parts(spec, problem) * gdni_spec_ctas_of_part(spec), spec, num_sms, images);
}

void gdni_workspace_of(struct gdni_workspace *out, const struct gdni_spec *spec, const struct gdni_problem *problem,
                       int num_sms, int64_t num_tokens, int64_t num_seqs, int64_t longest)
{
    memset(out, 0, sizeof *out);
    if (gdni_kernel_info((enum gdni_kernel)spec->kernel)->has_producers)
        workspace_of_images(out, spec, problem, num_sms, num_tokens, num_seqs);
    else if (spec->kernel == GDNI_KERNEL_PREFILL_HOPPER)
        workspace_of_items(out, spec, problem, num_sms, num_tokens, num_seqs, longest);
}
