/*
 * heuristic.c - owns what is chosen where nothing was measured: gdni_params_heuristic() and gdni_params_heuristic_few() are the
 * answer, the model below them orders the other candidates for the tuner. Must not know: measured tables, devices.
 */
#include <string.h>

#include "base/error.h"
#include "codegen/params.h"
#include "codegen/partition.h"
#include "codegen/spec.h"
#include "codegen/workspace.h"

/* ---- What a plan may use ---- */

static int64_t slot_tokens(const struct gdni_problem *problem, struct gdni_slot slot)
{
    const int64_t edge = gdni_bucket_edge(slot.bucket);
    return edge < problem->max_tokens ? edge : problem->max_tokens;
}

static int64_t slot_seqs(struct gdni_slot slot)
{
    return slot.seq_class == GDNI_ANY_SEQS ? 1 : gdni_seq_class_edge(slot.seq_class);
}

/* (sequence, head) pairs */
static int64_t slot_pairs(const struct gdni_problem *problem, struct gdni_slot slot)
{
    return slot_seqs(slot) * problem->num_heads;
}

/* Tokens of a sequence, on average, by the slot's edges. */
static int64_t slot_average(const struct gdni_problem *problem, struct gdni_slot slot)
{
    return slot_tokens(problem, slot) / slot_seqs(slot);
}

static gdn_status check_workspace(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                                  struct gdni_slot slot)
{
    struct gdni_workspace needs;
    gdni_workspace_of(&needs, spec, problem, num_sms, slot_tokens(problem, slot), slot_seqs(slot), 0);
    if (slot.seq_class == GDNI_ANY_SEQS && gdni_kernel_info((enum gdni_kernel)spec->kernel)->has_producers)
        return GDN_FAIL(GDN_E_UNSUPPORTED, "%s needs a workspace: it serves calls of few sequences only",
                        gdni_kernel_info((enum gdni_kernel)spec->kernel)->name);
    if (needs.size > GDNI_MOST_WORKSPACE)
        return GDN_FAIL(GDN_E_UNSUPPORTED, "%s needs %zu bytes of workspace for %lld tokens: at most %d are asked for",
                        gdni_kernel_info((enum gdni_kernel)spec->kernel)->name, needs.size,
                        (long long)slot_tokens(problem, slot), GDNI_MOST_WORKSPACE);
    return GDN_OK;
}

static gdn_status build_usable(struct gdni_spec *spec, const struct gdni_params *params,
                               const struct gdni_problem *problem, const struct gdni_arch *arch, int num_sms,
                               struct gdni_slot slot)
{
    if (problem->op != GDNI_OP_PREFILL && slot.seq_class != GDNI_ANY_SEQS)
        return GDN_FAIL(GDN_E_INVALID, "%s has no kernel for few sequences", gdni_op_name(problem->op));
    GDN_TRY(gdni_spec_build(spec, problem, arch, params));
    return check_workspace(spec, problem, gdni_arch_sms(arch, num_sms), slot);
}

gdn_status gdni_params_usable(const struct gdni_params *params, const struct gdni_problem *problem,
                              const struct gdni_arch *arch, int num_sms, struct gdni_slot slot)
{
    struct gdni_spec spec;
    return build_usable(&spec, params, problem, arch, num_sms, slot);
}

/* ---- The answer ---- */

/* Of two kinds of CTAs, from sm_80 on: whether those that are no producers leave these a quarter of the SMs. */
static bool leaves_producers(int64_t ctas, int num_sms)
{
    return ctas <= (int64_t)num_sms * 3 / 4;
}

/*
 * Of two kinds of CTAs on Hopper, four of the recurrence for each pair: whether the others are nine for four pairs. With fewer
 * the recurrence waits for them: of 4096 tokens 18 pairs took an H200 60 us, 21 pairs, which leave 48 SMs, 70, 22 pairs 80 and
 * 24 pairs 96.
 */
static bool feeds_two_kinds(int64_t pairs, int num_sms)
{
    enum { FOUR = 4, CTAS_OF_FOUR = 16, PRODUCERS_OF_FOUR = 9 };
    return pairs * (CTAS_OF_FOUR + PRODUCERS_OF_FOUR) <= FOUR * (int64_t)num_sms;
}

/* Three stages keep the auxiliary warps a chunk ahead while a third one loads; two is what 99 KB of shared memory hold. */
static void prefill_params(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch)
{
    enum { MOST_CARRIED = 48 }; /* heads of a batch-invariant plan: states are carried whatever SMs are idle */
    struct gdni_spec spec;
    gdni_params_initial(out, (int32_t)gdni_kernel_choose(problem, arch, NULL));
    if (gdni_spec_build(&spec, problem, arch, out) != GDN_OK) out->stages = 2;
    if (!problem->batch_invariant || !out->partition_chunks) return;
    out->partition_chunks = gdni_partition_fixed(problem);
    if (!problem->whole_sequences && problem->num_heads <= MOST_CARRIED) out->carry = GDNI_CARRY_STATES;
}

/* What two kinds of CTAs are here: a kernel of the problem's own arch, if that has one. */
static int32_t kernel_of_two_kinds(const struct gdni_problem *problem, const struct gdni_arch *arch)
{
    const struct gdni_params two = { .cta_kinds = 2 };
    return (int32_t)gdni_kernel_with((int32_t)gdni_kernel_choose(problem, arch, NULL), &two);
}

/* Chunks of a sequence that two kinds of CTAs do not take. */
enum { OF_TWO_KINDS = 65 };

/* Whether an eighth of the SMs is left to deal out by gates when each pair has two: 16 of an H200's, by what was measured. */
static bool leaves_some(int64_t pairs, int num_sms)
{
    enum { SOME = 8 };
    return 2 * pairs + num_sms / SOME <= num_sms;
}

/*
 * With how many chunks in each of at most two sequences one is cut. Before, what takes the same whatever the gates is as quick
 * where they decay, and quicker where some heads' do not: two kinds of CTAs, and halves where all find an SM each and two
 * partitions of each head do, but not three; all the longer the fewer SMs are left then to deal out by gates. Of 8192 tokens
 * 48 heads took an H200 174 us where gates decay, 196 where every fourth head's do not and 252 where none do, and 187 in
 * halves; of 16384 tokens 301, 330, 407 and 367; 64 heads, which leave no SMs to deal out, 346, 472, 502 and 380.
 */
static int64_t least_of_one(int64_t pairs, int num_sms)
{
    enum { OF_HALVES = 129, OF_ALL_SMS = 257, MANY_PAIRS = 12 };
    if (pairs >= MANY_PAIRS && feeds_two_kinds(pairs, num_sms)) return OF_TWO_KINDS;
    if (2 * pairs > num_sms || 3 * pairs <= num_sms) return GDNI_LEAST_OF_ONE;
    return leaves_some(pairs, num_sms) ? OF_HALVES : OF_ALL_SMS;
}

/*
 * Whether the usual kernel cuts sequences, and with enough chunks in each to be faster than what takes the same whatever the
 * gates: two kinds of CTAs, or halves of heads. What a cut gains where gates decay it loses where some heads' do not, which a
 * plan does not know: docs/prefill_partitions.md, "Cut or not". Nor does it know lengths: of many sequences one may be most of
 * the call, which is then cut sooner.
 */
static bool is_cut(const struct gdni_problem *problem, const struct gdni_arch *arch, int num_sms, struct gdni_slot slot)
{
    const int64_t tokens = slot_tokens(problem, slot), seqs = slot_seqs(slot), pairs = slot_pairs(problem, slot);
    const int64_t of_one = least_of_one(pairs, num_sms);
    const int64_t least = seqs > 2 && of_one != OF_TWO_KINDS ? GDNI_LEAST_OF_SEVERAL : of_one;
    struct gdni_spec spec;
    struct gdni_params usual;
    prefill_params(&usual, problem, arch);
    return gdni_spec_build(&spec, problem, arch, &usual) == GDN_OK &&
           slot_average(problem, slot) >= least * spec.params.chunk &&
           gdni_partition_cut(&spec, problem, num_sms, tokens, seqs, 0).chunks != 0;
}

/*
 * The usual kernel with the code that carries states, where the slot's largest call has few enough pairs for it. Whatever does
 * not carry is 5 to 8 % faster without that code (H200, bf16), and may be cut into even shares. With it one or two sequences of
 * 33 to 56 pairs took an H200 up to 18 % longer where gates decay, and a third to two thirds less where some heads' or none do;
 * 64 heads of 32768 tokens gained 2 % and lost 5. More sequences of so many pairs have it where they are long: halves take the
 * same whatever the gates.
 */
static bool with_carried_states(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                                int num_sms, struct gdni_slot slot)
{
    enum { LONG = 16384, FEW_PAIRS = 32 };
    const int64_t seqs = slot_seqs(slot), pairs = slot_pairs(problem, slot);
    prefill_params(out, problem, arch);
    if (problem->whole_sequences || seqs > gdni_partition_most_carried(problem, num_sms) || !leaves_some(pairs, num_sms))
        return false;
    if (seqs > 2 && pairs > FEW_PAIRS && slot_average(problem, slot) <= LONG) return false;
    out->carry = GDNI_CARRY_STATES;
    return gdni_params_usable(out, problem, arch, num_sms, slot) == GDN_OK;
}

/*
 * The persistent kernel with half of a head's value columns in a CTA, where each half finds an SM: twice as many SMs work, and
 * a chunk of one state warpgroup takes no longer than of two. In clusters, whose two CTAs make every second chunk's T and P
 * for each other: a sequence of 128 tokens on 64 heads takes an H200 9.8 us so, and 10.5 where each makes all (short calls
 * with norms in the kernel were not measured). Sequences are not cut.
 */
static bool in_halves(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                      int num_sms, struct gdni_slot slot)
{
    enum { HALF = 64, CLUSTER = 2 };
    struct gdni_spec spec;
    if (gdni_kernel_choose(problem, arch, NULL) != GDNI_KERNEL_PREFILL_HOPPER) return false;
    prefill_params(out, problem, arch);
    out->block_dv = HALF;
    out->cluster_ctas = CLUSTER;
    out->partition_chunks = GDNI_PARTITION_NEVER;
    return gdni_spec_build(&spec, problem, arch, out) == GDN_OK &&
           slot_seqs(slot) * gdni_spec_parts(&spec, problem) <= num_sms;
}

/*
 * Sequences whose chunks are few enough that in two kinds of CTAs, which do not cut either, waiting for the producers costs
 * more than they save. On an H200, before these halves were in clusters: of 256 tokens 4 heads took 12.4 us in halves and 16.0
 * in two kinds; of 512 tokens 16 pairs of a sequence and a head 20.6 and 23, 4 pairs 19.4 either way.
 */
static bool is_short(const struct gdni_problem *problem, int num_sms, struct gdni_slot slot)
{
    enum { SHORT = 256, MIDDLE = 512, LONG = 1024, PAIRS = 16 };
    const int64_t average = slot_average(problem, slot), pairs = slot_pairs(problem, slot);
    return average <= SHORT || (average <= (feeds_two_kinds(pairs, num_sms) ? MIDDLE : LONG) && pairs >= PAIRS);
}

/* T and P by CTAs of their own, the recurrence in the narrowest blocks of columns that leave producers enough SMs. */
static bool in_two_kinds(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch, int num_sms,
                         struct gdni_slot slot)
{
    static const int32_t blocks[] = { 16, 32, 64 };
    const int32_t kernel = kernel_of_two_kinds(problem, arch);
    const int64_t pairs = slot_pairs(problem, slot);
    const bool hopper = kernel == GDNI_KERNEL_PREFILL_HOPPER_SPLIT;
    gdni_params_initial(out, kernel);
    const bool has_stages = out->stages != 0;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
        const int64_t ctas = pairs * (problem->head_dim_v / blocks[i]);
        if (!(hopper ? feeds_two_kinds(pairs, num_sms) : leaves_producers(ctas, num_sms))) continue;
        out->block_dv = blocks[i];
        for (out->stages = has_stages ? 3 : 0; out->stages >= (has_stages ? 2 : 0); --out->stages)
            if (gdni_params_usable(out, problem, arch, num_sms, slot) == GDN_OK) return true;
    }
    return false;
}

/*
 * With few (sequence, head) pairs most SMs have nothing to do, and a chunk's time is what counts: T and P by CTAs of their own,
 * the recurrence in narrow blocks of columns, the narrowest that leave the producers enough SMs. With more pairs than that
 * allows, or where it is_short(), in_halves().
 */
bool gdni_params_heuristic_few(struct gdni_params *out, const struct gdni_problem *problem,
                               const struct gdni_arch *arch, int num_sms, int bucket, int seq_class)
{
    const struct gdni_slot slot = { bucket, seq_class };
    if (problem->op != GDNI_OP_PREFILL || problem->batch_invariant) return false;
    num_sms = gdni_arch_sms(arch, num_sms);
    if (is_cut(problem, arch, num_sms, slot)) {
        if (with_carried_states(out, problem, arch, num_sms, slot)) return true;
        if (slot_seqs(slot) <= 2) return false;
    }
    if (is_short(problem, num_sms, slot) && in_halves(out, problem, arch, num_sms, slot)) return true;
    return in_two_kinds(out, problem, arch, num_sms, slot) || in_halves(out, problem, arch, num_sms, slot);
}

/* Four CTAs of 128 threads: with fewer a long tile was not measured. */
static bool sm_holds_four(const struct gdni_params *params, const struct gdni_problem *problem,
                          const struct gdni_arch *arch)
{
    enum { CTAS = 4 };
    struct gdni_spec spec;
    return gdni_spec_build(&spec, problem, arch, params) == GDN_OK && gdni_spec_ctas_per_sm(&spec) >= CTAS;
}

/*
 * A tile's rows are all in flight at once, so that a short tile starves no memory; what it costs is its halo and taps, read
 * again from L2. Eight tokens are the least that costs nothing measurable, and the finest interleaving of reads and writes.
 * Calls that then leave SMs without a second CTA take half of that. A bucket is represented by half its edge, or, where that is
 * the edge below, three quarters.
 *
 * With the norm longer tiles win in long calls: on an H200 tiles of 12, of which an SM holds as many as of 8, 1 to 2 % where
 * there would be 31 to 46 CTAs of 8 tokens an SM and 3 to 5 % where there would be 93; where there would be 23 they lose 1 %.
 * Tiles of 16 are slower than these up to 186. Where only fewer long tiles than four fit into an SM, nothing was measured: it
 * stays at eight. Short calls want shorter ones: of 512 tokens tiles of 4 win 9 to 27 % up to 5.8 CTAs of 8 tokens an SM.
 */
static void conv_params(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                        int num_sms, int bucket)
{
    enum { FEW_PER_SM = 2, FEW_OF_SHORT_CALLS = 6, MANY_PER_SM = 24, CHANNELS_PER_CTA = 1024 };
    enum { SHORT_CALL = 1024, SHORT = 4, MIDDLE = 8, LONG = 12 };
    gdni_params_initial(out, GDNI_KERNEL_CONV1D_QKV);
    const int64_t edge =
        bucket >= GDNI_NUM_BUCKETS - 1 ? 2 * gdni_bucket_edge(GDNI_NUM_BUCKETS - 2) : gdni_bucket_edge(bucket);
    const bool narrow = bucket > 0 && edge == 2 * gdni_bucket_edge(bucket - 1);
    const int64_t tokens = narrow ? edge / 4 * 3 : edge / 2;
    const int64_t ctas = tokens / MIDDLE * gdni_problem_channels(problem) / CHANNELS_PER_CTA;
    out->tile_tokens = LONG;
    const bool norm = (problem->flags & GDN_CONV_L2_NORM) != 0;
    if (norm && ctas >= (int64_t)MANY_PER_SM * num_sms && sm_holds_four(out, problem, arch)) return;
    const int few = norm && edge <= SHORT_CALL ? FEW_OF_SHORT_CALLS : FEW_PER_SM;
    out->tile_tokens = ctas >= (int64_t)few * num_sms ? MIDDLE : SHORT;
}

void gdni_params_heuristic(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           int num_sms, int bucket)
{
    if (problem->op == GDNI_OP_PREFILL)
        prefill_params(out, problem, arch);
    else
        conv_params(out, problem, arch, gdni_arch_sms(arch, num_sms), bucket);
}

/* ---- The order of the others ---- */

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* CTAs that all SMs hold at a time. */
static int64_t resident_ctas(const struct gdni_spec *spec, int num_sms)
{
    return (int64_t)num_sms * gdni_spec_ctas_per_sm(spec);
}

/*
 * Nanoseconds of a chunk in one CTA, H200, bf16, head dims of 128 (docs/prefill_split.md, docs/notebook/prefill_hopper.md):
 * what orders kernels and blocks among each other, whatever the GPU. Copies that start a chunk later cost three tenths. What a
 * narrower block of the Hopper kernel gains is a guess, and what it gains more in clusters was measured.
 */
static int64_t chunk_ns(const struct gdni_spec *spec)
{
    static const int32_t ns[GDNI_NUM_KERNELS] = {
        [GDNI_KERNEL_PREFILL_GENERIC] = 2900,
        [GDNI_KERNEL_PREFILL_SPLIT] = 1600,
        [GDNI_KERNEL_PREFILL_HOPPER] = 2500,
        [GDNI_KERNEL_PREFILL_HOPPER_SPLIT] = 750,
    };
    const bool hopper = spec->kernel == GDNI_KERNEL_PREFILL_HOPPER;
    const int64_t half = spec->params.cluster_ctas == 2 ? 600 : 400;
    const int64_t narrow = hopper && spec->params.block_dv < spec->dv ? half : spec->params.block_dv == 16 ? 200 : 0;
    return (ns[spec->kernel] - narrow) * (spec->params.stages == 2 ? 13 : 10) / 10;
}

/* Sequences of equal length; producers and recurrence run beside each other, and the slower one is what it takes. */
static int64_t prefill_cost(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                            struct gdni_slot slot)
{
    enum { IMAGE_NS = 1000 }; /* of a producer, which makes two at a time */
    struct gdni_workspace needs;
    const int64_t seqs = slot_seqs(slot), tokens = slot_tokens(problem, slot);
    const int64_t chunks = divide_up(divide_up(tokens, seqs), spec->params.chunk);
    const int64_t ctas = seqs * gdni_spec_parts(spec, problem) * gdni_spec_ctas_of_part(spec);
    gdni_workspace_of(&needs, spec, problem, num_sms, tokens, seqs, 0);
    if (spec->kernel == GDNI_KERNEL_PREFILL_HOPPER)
        return gdni_partition_cost(spec, problem, num_sms, gdni_workspace_cut(&needs), tokens, seqs) * chunk_ns(spec);
    const int64_t waves = divide_up(ctas + needs.num_producers, resident_ctas(spec, num_sms));
    const int64_t recurrence = waves * chunks * chunk_ns(spec);
    const int64_t images =
        needs.num_producers ? seqs * chunks * problem->num_heads * IMAGE_NS / needs.num_producers : 0;
    return recurrence > images ? recurrence : images;
}

/* Rows that a thread copies and walks, by waves of CTAs: a large tile saves halo, a small one fills the last wave. */
static int64_t conv_cost(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                         struct gdni_slot slot)
{
    enum { CHANNELS = 8, HALO_PERCENT = 25 };
    const int64_t tiles = divide_up(slot_tokens(problem, slot), spec->params.tile_tokens);
    const int64_t ctas = divide_up(tiles * (gdni_problem_channels(problem) / CHANNELS), spec->threads);
    const int64_t waves = divide_up(ctas, resident_ctas(spec, num_sms));
    const int64_t rows = 100 * spec->params.tile_tokens + HALO_PERCENT * (spec->width - 1);
    return waves * resident_ctas(spec, num_sms) * spec->threads / 32 * rows * (spec->threads == 128 ? 100 : 101);
}

struct ranked {
    struct gdni_params params;
    int64_t cost;
    int changed; /* parameters that are not at their default */
};

static bool goes_before(const struct ranked *a, const struct ranked *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->changed < b->changed);
}

/* Keeps the order of equals. */
static void insert(struct ranked *list, int count, const struct ranked *one)
{
    int at = count;
    for (; at > 0 && goes_before(one, &list[at - 1]); --at)
        list[at] = list[at - 1];
    list[at] = *one;
}

static int count_changed(const struct gdni_params *params, int32_t kernel)
{
    struct gdni_param_row row;
    int changed = 0;
    for (int i = 0; gdni_param_at(kernel, i, &row); ++i)
        changed += gdni_param_get(params, &row) != row.initial;
    return changed;
}

/* The choice after this one, the last parameter fastest; false after the last. */
static bool next_choice(struct gdni_params *params, int32_t kernel)
{
    struct gdni_param_row row;
    int count = 0;
    while (gdni_param_at(kernel, count, &row))
        ++count;
    for (int i = count - 1; i >= 0 && gdni_param_at(kernel, i, &row); --i) {
        int v = 0;
        while (row.legal[v] != gdni_param_get(params, &row))
            ++v;
        gdni_param_set(params, &row, row.legal[v + 1] ? row.legal[v + 1] : row.legal[0]);
        if (row.legal[v + 1]) return true;
    }
    return false;
}

static void first_choice(struct gdni_params *params, int32_t kernel)
{
    struct gdni_param_row row;
    *params = (struct gdni_params){ 0 };
    for (int i = 0; gdni_param_at(kernel, i, &row); ++i)
        gdni_param_set(params, &row, row.legal[0]);
}

/* What a plan would use for the slot. */
static void answer(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                   int num_sms, struct gdni_slot slot)
{
    if (slot.seq_class != GDNI_ANY_SEQS &&
        gdni_params_heuristic_few(out, problem, arch, num_sms, slot.bucket, slot.seq_class))
        return;
    gdni_params_heuristic(out, problem, arch, num_sms, slot.bucket);
}

static int rank_kernel(struct ranked *list, int count, int32_t kernel, const struct gdni_params *first,
                       const struct gdni_problem *problem, const struct gdni_arch *arch, int num_sms,
                       struct gdni_slot slot)
{
    struct ranked one;
    struct gdni_spec spec;
    first_choice(&one.params, kernel);
    do {
        if (build_usable(&spec, &one.params, problem, arch, num_sms, slot) != GDN_OK) continue;
        const bool prefill = problem->op == GDNI_OP_PREFILL;
        one.cost = prefill ? prefill_cost(&spec, problem, num_sms, slot) : conv_cost(&spec, problem, num_sms, slot);
        one.changed = count_changed(&one.params, kernel);
        if (memcmp(&one.params, first, sizeof *first) == 0) one.cost = -1;
        insert(list, count, &one); /* a full list has room for one more, which drops out */
        count += count < GDNI_MAX_CHOICES;
    } while (next_choice(&one.params, kernel));
    return count;
}

int gdni_params_choices(struct gdni_params out[GDNI_MAX_CHOICES], const struct gdni_problem *problem,
                        const struct gdni_arch *arch, int num_sms, struct gdni_slot slot)
{
    struct ranked list[GDNI_MAX_CHOICES + 1];
    struct gdni_params first;
    num_sms = gdni_arch_sms(arch, num_sms);
    const int32_t own = (int32_t)gdni_kernel_choose(problem, arch, NULL);
    answer(&first, problem, arch, num_sms, slot);
    int count = rank_kernel(list, 0, own, &first, problem, arch, num_sms, slot);
    if (problem->op == GDNI_OP_PREFILL)
        count = rank_kernel(list, count, kernel_of_two_kinds(problem, arch), &first, problem, arch, num_sms, slot);
    for (int i = 0; i < count; ++i)
        out[i] = list[i].params;
    return count;
}

/* ---- Choices that a call cannot tell apart ---- */

/* All that a launch is made of: the code, and what run-time parameters came to for this call. */
struct launch {
    struct gdni_spec spec;
    struct gdni_workspace needs;
};

static void describe_launch(struct launch *out, const struct gdni_params *params, const struct gdni_problem *problem,
                            const struct gdni_arch *arch, int num_sms, struct gdni_call_size size)
{
    struct gdni_param_row row;
    memset(out, 0, sizeof *out);
    if (gdni_spec_build(&out->spec, problem, arch, params) != GDN_OK) return;
    gdni_workspace_of(&out->needs, &out->spec, problem, num_sms, size.num_tokens, size.num_seqs, 0);
    out->needs.size = 0; /* how much of it there is changes nothing */
    const struct gdni_params whole = gdni_partition_whole(&out->spec);
    if (!out->needs.partition && gdni_spec_build(&out->spec, problem, arch, &whole) != GDN_OK) return;
    for (int i = 0; gdni_param_at(out->spec.kernel, i, &row); ++i)
        if (row.when == GDNI_RUN_TIME) gdni_param_set(&out->spec.params, &row, 0);
}

/* Whether a launch is like one of those before it in the list. */
static bool was_seen(const struct launch *list, const struct launch *one)
{
    for (; list < one; ++list)
        if (memcmp(&one->spec, &list->spec, sizeof one->spec) == 0 &&
            memcmp(&one->needs, &list->needs, sizeof one->needs) == 0)
            return true;
    return false;
}

int gdni_params_candidates(struct gdni_params out[GDNI_MAX_CANDIDATES], const struct gdni_problem *problem,
                           const struct gdni_arch *arch, int num_sms, struct gdni_slot slot, struct gdni_call_size timed)
{
    struct gdni_params choices[GDNI_MAX_CHOICES];
    struct launch seen[GDNI_MAX_CANDIDATES];
    int count = 0;
    num_sms = gdni_arch_sms(arch, num_sms);
    const int num_choices = gdni_params_choices(choices, problem, arch, num_sms, slot);
    for (int i = 0; i < num_choices && count < GDNI_MAX_CANDIDATES; ++i) {
        describe_launch(&seen[count], &choices[i], problem, arch, num_sms, timed);
        if (i > 0 && choices[i].carry == GDNI_CARRY_STATES && !seen[count].needs.carry) continue; /* of no use for the call */
        if (!was_seen(seen, &seen[count])) out[count++] = choices[i];
    }
    return count;
}
