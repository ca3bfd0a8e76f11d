/*
 * plan.c - problem -> per bucket: params -> spec -> program, and then the device. Orchestration only.
 *
 * Must not know: files, units and keys (plan_programs.c), NVRTC, what kernels compute. No lock: a plan under construction
 * belongs to one thread.
 */
#include "runtime/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "codegen/partition.h"
#include "codegen/workspace.h"
#include "runtime/cache.h"
#include "runtime/context.h"
#include "runtime/record.h"
#include "runtime/target.h"
#include "text/printable.h"

/* Equal specs are equal code: they share a variant. */
static int variant_of_spec(gdn_plan *plan, const struct gdni_spec *spec)
{
    for (int i = 0; i < plan->num_variants; ++i)
        if (memcmp(&plan->specs[i], spec, sizeof *spec) == 0) return i;
    memcpy(&plan->specs[plan->num_variants], spec, sizeof *spec); /* a copy by member could lose the zeros of padding */
    plan->whole_of_variant[plan->num_variants] = plan->num_variants;
    return plan->num_variants++;
}

/*
 * A spec's variant, and beside one that cuts sequences that of calls whose sequences stay whole; cut: whether there are others.
 * Batch-invariant plans cut all calls alike, whose bits would depend on the kernel.
 */
static gdn_status add_variant(gdn_plan *plan, const struct gdni_spec *spec, bool cut, int *variant)
{
    struct gdni_spec whole;
    const struct gdni_params params = gdni_partition_whole(spec);
    GDN_TRY(gdni_spec_build(&whole, &plan->problem, plan->arch, &params));
    *variant = variant_of_spec(plan, cut ? spec : &whole);
    if (cut && !plan->problem.batch_invariant) plan->whole_of_variant[*variant] = variant_of_spec(plan, &whole);
    return GDN_OK;
}

/* What tables and model say of a slot; chosen: something. */
struct slot_spec {
    bool chosen;
    struct gdni_spec spec;
};

static gdn_status choose_slot(struct slot_spec *out, const gdn_plan *plan, struct gdni_slot slot, uint32_t flags,
                              struct gdni_choice *choice)
{
    GDN_TRY(gdni_tuning_choose(choice, plan->ctx->tuning, &plan->target, plan->arch, &plan->problem, slot, flags));
    out->chosen = choice->by != GDNI_CHOSEN_NONE;
    return out->chosen ? gdni_spec_build(&out->spec, &plan->problem, plan->arch, &choice->params) : GDN_OK;
}

/* Tokens of a bucket's largest call. */
static int64_t most_tokens(const gdn_plan *plan, int bucket)
{
    const int64_t edge = gdni_bucket_edge(bucket);
    return edge < plan->problem.max_tokens ? edge : plan->problem.max_tokens;
}

/* Of numbers of sequences that are looked at, the one after: some are passed over, but not the last. */
static int64_t next_seqs(int64_t seqs, int64_t step, int64_t last)
{
    return seqs < last && seqs + step > last ? last : seqs + step;
}

/* Whether calls of the bucket with first to last sequences are among those that the spec cuts. */
static bool may_cut(const gdn_plan *plan, const struct gdni_spec *spec, int bucket, int64_t first, int64_t last)
{
    const struct gdni_problem *p = &plan->problem;
    const int64_t tokens = most_tokens(plan, bucket);
    if (last > p->max_seqs) last = p->max_seqs;
    for (int64_t seqs = first; seqs <= last; seqs = next_seqs(seqs, seqs, last))
        if (gdni_partition_may_cut(spec, p, gdni_plan_num_sms(plan), tokens, seqs)) return true;
    return false;
}

static int64_t least_seqs(int seq_class)
{
    return seq_class == 0 ? 1 : gdni_seq_class_edge(seq_class - 1) + 1;
}

/* Whether what is chosen for few sequences serves such calls even if one of these is nearly all of the call. */
static bool stands(const gdn_plan *plan, const struct slot_spec *few, const struct gdni_spec *usual, int64_t tokens,
                   int64_t seqs)
{
    const int num_sms = gdni_plan_num_sms(plan);
    return few->chosen && (few->spec.cuts || !gdni_partition_beats_few(usual, &few->spec, &plan->problem, num_sms, tokens,
                                                                       seqs, tokens));
}

/* Whether the spec cuts calls of a class of few sequences for which another one is chosen, should one be nearly all of them. */
static bool may_cut_uneven(const gdn_plan *plan, const struct gdni_spec *spec, const struct slot_spec *few, int bucket,
                           int64_t first, int64_t last)
{
    const int64_t tokens = most_tokens(plan, bucket);
    if (last > plan->problem.max_seqs) last = plan->problem.max_seqs;
    for (int64_t seqs = first; seqs <= last; ++seqs)
        if (!stands(plan, few, spec, tokens, seqs)) return true;
    return false;
}

/* The same of calls that no choice for few sequences serves, or not those that are uneven. */
static bool rest_may_cut(const gdn_plan *plan, const struct gdni_spec *spec, int bucket,
                         const struct slot_spec few[GDNI_NUM_SEQ_CLASSES])
{
    for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
        if (few[c].chosen ? may_cut_uneven(plan, spec, &few[c], bucket, least_seqs(c), gdni_seq_class_edge(c))
                          : may_cut(plan, spec, bucket, least_seqs(c), gdni_seq_class_edge(c)))
            return true;
    return may_cut(plan, spec, bucket, least_seqs(GDNI_NUM_SEQ_CLASSES), plan->problem.max_seqs);
}

/* Whether the bucket has calls that the spec would cut evenly, should one sequence be nearly all of them: the rest carries. */
static bool may_carry_uneven(const gdn_plan *plan, const struct gdni_spec *spec, int bucket,
                             const struct slot_spec few[GDNI_NUM_SEQ_CLASSES])
{
    const struct gdni_problem *p = &plan->problem;
    const int num_sms = gdni_plan_num_sms(plan);
    const int64_t tokens = most_tokens(plan, bucket);
    int64_t last = gdni_partition_most_ranked(p, num_sms);
    if (last > p->max_seqs) last = p->max_seqs;
    if (p->op != GDNI_OP_PREFILL || spec->params.partition_chunks != GDNI_PARTITION_MODEL) return false;
    for (int64_t seqs = 2; seqs <= last; seqs = next_seqs(seqs, 1 + seqs / 8, last)) {
        const int c = gdni_seq_class_of(seqs);
        if ((c == GDNI_NUM_SEQ_CLASSES || !stands(plan, &few[c], spec, tokens, seqs)) &&
            gdni_partition_cut(spec, p, num_sms, tokens, seqs, tokens).evenly)
            return true;
    }
    return false;
}

static gdn_status choose_uneven(gdn_plan *plan, int bucket, const struct gdni_spec *usual,
                                const struct slot_spec few[GDNI_NUM_SEQ_CLASSES])
{
    struct gdni_spec spec;
    const struct gdni_params params = gdni_partition_carrying(usual);
    if (!may_carry_uneven(plan, usual, bucket, few)) return GDN_OK;
    GDN_TRY(gdni_spec_build(&spec, &plan->problem, plan->arch, &params));
    return add_variant(plan, &spec, true, &plan->variant_of_uneven[bucket]);
}

/*
 * The variant that every call of a bucket can take, and beside it those of few sequences, and of uneven calls, which prefill
 * alone has.
 */
static gdn_status choose_bucket(gdn_plan *plan, int bucket, uint32_t flags)
{
    const int top = plan->problem.op == GDNI_OP_PREFILL ? gdni_seq_class_of(plan->problem.max_seqs) : -1;
    struct slot_spec any, few[GDNI_NUM_SEQ_CLASSES];
    GDN_TRY(choose_slot(&any, plan, (struct gdni_slot){ bucket, GDNI_ANY_SEQS }, flags, &plan->choice_of_bucket[bucket]));
    for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c) {
        few[c].chosen = false;
        if (c <= top)
            GDN_TRY(choose_slot(&few[c], plan, (struct gdni_slot){ bucket, c }, flags, &plan->choice_of_few[bucket][c]));
    }
    GDN_TRY(add_variant(plan, &any.spec, rest_may_cut(plan, &any.spec, bucket, few), &plan->variant_of_bucket[bucket]));
    for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
        if (few[c].chosen) {
            const bool cut = may_cut(plan, &few[c].spec, bucket, least_seqs(c), gdni_seq_class_edge(c));
            GDN_TRY(add_variant(plan, &few[c].spec, cut, &plan->variant_of_few[bucket][c]));
        }
    return choose_uneven(plan, bucket, &any.spec, few);
}

static gdn_status choose_variants(gdn_plan *plan, uint32_t flags)
{
    const int last = gdni_bucket_of(plan->problem.max_tokens);
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
        plan->variant_of_bucket[bucket] = plan->variant_of_uneven[bucket] = -1;
        for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
            plan->variant_of_few[bucket][c] = -1;
        if (bucket <= last) GDN_TRY(choose_bucket(plan, bucket, flags));
    }
    return GDN_OK;
}

/* What every call takes, and what calls of few sequences take that have a workspace. */
static gdn_status choose_given(gdn_plan *plan, const struct gdni_params *params)
{
    const int last = gdni_bucket_of(plan->problem.max_tokens);
    struct gdni_params usual = *params;
    struct gdni_spec spec, usual_spec;
    GDN_TRY(gdni_spec_build(&spec, &plan->problem, plan->arch, params));
    const bool few = gdni_kernel_info((enum gdni_kernel)spec.kernel)->has_producers;
    if (few) gdni_params_heuristic(&usual, &plan->problem, plan->arch, plan->target.num_sms, last);
    GDN_TRY(gdni_spec_build(&usual_spec, &plan->problem, plan->arch, &usual));
    const struct gdni_problem *p = &plan->problem;
    int given, other;
    GDN_TRY(add_variant(plan, &spec, gdni_partition_possible(&spec, p, p->max_tokens), &given));
    GDN_TRY(add_variant(plan, &usual_spec, gdni_partition_possible(&usual_spec, p, p->max_tokens), &other));
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
        plan->variant_of_bucket[bucket] = bucket > last ? -1 : other;
        plan->variant_of_uneven[bucket] = -1;
        for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
            plan->variant_of_few[bucket][c] = bucket > last || !few ? -1 : given;
    }
    return GDN_OK;
}

int gdni_plan_num_sms(const gdn_plan *plan)
{
    return gdni_arch_sms(plan->arch, plan->target.num_sms);
}

int gdni_plan_variant_of_few(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs)
{
    const int seq_class = gdni_seq_class_of(num_seqs);
    return seq_class < GDNI_NUM_SEQ_CLASSES ? plan->variant_of_few[gdni_bucket_of(num_tokens)][seq_class] : -1;
}

int gdni_plan_variant_of_uneven(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs)
{
    const int variant = plan->variant_of_uneven[gdni_bucket_of(num_tokens)];
    return num_seqs <= gdni_partition_most_ranked(&plan->problem, gdni_plan_num_sms(plan)) ? variant : -1;
}

const struct gdni_choice *gdni_plan_choice_of_few(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs)
{
    return &plan->choice_of_few[gdni_bucket_of(num_tokens)][gdni_seq_class_of(num_seqs)];
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Of the largest call in a bucket, of a variant or where it cuts nothing: needs never shrink as calls grow. */
static size_t needed_size(const gdn_plan *plan, int variant, int bucket, int64_t most_seqs)
{
    const struct gdni_problem *p = &plan->problem;
    const int64_t tokens = most_tokens(plan, bucket);
    const int64_t seqs = most_seqs < p->max_seqs ? most_seqs : p->max_seqs;
    struct gdni_workspace needs, whole;
    if (variant < 0) return 0;
    gdni_workspace_of(&needs, &plan->specs[variant], p, gdni_plan_num_sms(plan), tokens, seqs, 0);
    gdni_workspace_of(&whole, &plan->specs[plan->whole_of_variant[variant]], p, gdni_plan_num_sms(plan), tokens, seqs,
                      0);
    return larger(needs.size, whole.size);
}

/* The most that any variant needs. */
static size_t workspace_size(const gdn_plan *plan)
{
    const int64_t uneven = gdni_partition_most_ranked(&plan->problem, gdni_plan_num_sms(plan));
    size_t most = 0;
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
        most = larger(most, needed_size(plan, plan->variant_of_bucket[bucket], bucket, plan->problem.max_seqs));
        most = larger(most, needed_size(plan, plan->variant_of_uneven[bucket], bucket, uneven));
        for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
            most = larger(most, needed_size(plan, plan->variant_of_few[bucket][c], bucket, gdni_seq_class_edge(c)));
    }
    return most;
}

/* Where bits may not depend on the call, neither may what it is given. */
static bool needs_workspace(const struct gdni_problem *p, const struct gdni_spec *spec)
{
    return p->batch_invariant && gdni_partition_possible(spec, p, p->max_tokens);
}

/* Of a plan that needs one. */
static gdn_status check_workspace(const struct gdni_problem *p, size_t size)
{
    if (size <= GDNI_MOST_WORKSPACE) return GDN_OK;
    return GDN_FAIL(
        GDN_E_UNSUPPORTED,
        "max_tokens is %lld and max_seqs is %lld: with GDN_PLAN_BATCH_INVARIANT and %d heads such calls need "
        "%zu bytes of workspace, and at most %d are asked for: lower them, or plan with "
        "GDN_PLAN_WHOLE_SEQUENCES as well",
        (long long)p->max_tokens, (long long)p->max_seqs, p->num_heads, size, GDNI_MOST_WORKSPACE);
}

static gdn_status size_workspace(gdn_plan *plan)
{
    plan->workspace_size = workspace_size(plan);
    plan->needs_workspace = needs_workspace(&plan->problem, &plan->specs[0]);
    return plan->needs_workspace ? check_workspace(&plan->problem, plan->workspace_size) : GDN_OK;
}

/* given: the parameters to run; NULL: as the plan finds best. */
static gdn_status fill(gdn_plan *plan, uint32_t flags, const struct gdni_params *given)
{
    const uint32_t program_flags = flags & GDN_PLAN_CACHED_ONLY ? GDNI_NO_COMPILE : 0;
    GDN_TRY(given ? choose_given(plan, given) : choose_variants(plan, flags));
    /* Before it compiles: also what fails or is killed was asked for. The tuner's candidates were not. */
    if (!given) gdni_record_plan(plan->ctx->record, plan, flags);
    GDN_TRY(size_workspace(plan));
    plan->modules = gdni_modules_create(plan->ctx, gdni_programs_may_compile(plan->ctx, program_flags));
    if (!plan->modules) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a plan's modules");
    return gdni_plan_find_programs(plan, program_flags);
}

/* A part of a command would do something else, and so would one in whose words characters are replaced. */
static bool can_be_pasted(const struct gdni_strbuf *command, size_t room)
{
    for (const char *c = command->text; *c; ++c)
        if (gdni_control_length(c)) return false;
    return command->len <= room;
}

/*
 * Adds the command that puts what is missing into the cache: exactly this plan, whatever made it. Where there should be a cache
 * and is none, why: that comes first.
 */
static void advise(const gdn_plan *plan, uint32_t flags)
{
    char sentence[GDNI_ERROR_TEXT];
    struct gdni_strbuf command = { 0 };
    const char *problem = gdni_cache_user_dir(plan->ctx->cache)->problem;
    snprintf(sentence, sizeof sentence, "%s%s%s", gdni_error_text(),
             *problem ? "; cubins are kept in memory only: " : "", problem);
    if (gdni_record_print_command(&command, plan, flags) != GDN_OK)
        gdni_fail(GDN_E_NOT_CACHED, "%s", sentence);
    else if (can_be_pasted(&command, sizeof sentence - strlen(sentence) - sizeof ": "))
        gdni_fail(GDN_E_NOT_CACHED, "%s: %s", sentence, command.text);
    else
        gdni_fail(GDN_E_NOT_CACHED,
                  "%s (the command for it is left out: with the cache directory's path it is %zu bytes long or has control "
                  "characters; GDN_JIT_RECORD writes the line for gdn-jit-cache warm --from)",
                  sentence, command.len);
    gdni_sb_free(&command);
}

/* Its switch is a flag of every plan, of the one-call functions' too; what is recorded is made again without it. */
static uint32_t take_environment(gdn_plan *plan, uint32_t flags)
{
    struct gdni_problem *p = &plan->problem;
    if (!plan->ctx->env.whole_sequences || p->op != GDNI_OP_PREFILL) return flags;
    if (!p->whole_sequences) p->whole_sequences = GDNI_WHOLE_BY_ENVIRONMENT;
    return flags | GDN_PLAN_WHOLE_SEQUENCES;
}

static gdn_status create(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem, uint32_t flags,
                         const struct gdni_params *given, gdn_plan **out)
{
    gdn_plan *plan = gdni_calloc(1, sizeof *plan);
    if (!plan) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a plan (%zu bytes)", sizeof *plan);
    plan->ctx = ctx;
    gdni_ctx_hold(ctx);
    plan->target = *target;
    plan->problem = *problem;
    if (!given) flags = take_environment(plan, flags); /* what a tuner measures is for plans of any environment */
    gdn_status status = gdni_arch_find(target->arch, &plan->arch);
    if (status == GDN_OK) status = fill(plan, flags, given);
    if (status == GDN_E_NOT_CACHED && !given) advise(plan, flags);
    if (status != GDN_OK) {
        gdn_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return GDN_OK;
}

gdn_status gdni_plan_create(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem, uint32_t flags,
                            gdn_plan **out)
{
    return create(ctx, target, problem, flags, NULL, out);
}

gdn_status gdni_plan_create_with(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem,
                                 const struct gdni_params *params, gdn_plan **out)
{
    return create(ctx, target, problem, 0, params, out);
}

gdn_status gdni_take_target(gdn_target *out, const gdn_target *target)
{
    *out = (gdn_target)GDN_TARGET_INIT;
    if (!target)
        return GDN_FAIL(GDN_E_INVALID,
                        "target is null: pass one that gdn_target_from_device() or gdn_target_from_name() filled");
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_target, out, target));
    if (!memchr(out->arch, '\0', sizeof out->arch) || !memchr(out->gpu_name, '\0', sizeof out->gpu_name))
        return GDN_FAIL(GDN_E_INVALID, "target.arch or target.gpu_name has no terminating zero: fill target by "
                                       "gdn_target_from_name() or gdn_target_from_device()");
    if (!gdni_is_plain_line(out->gpu_name, strlen(out->gpu_name)))
        return GDN_FAIL(GDN_E_INVALID,
                        "target.gpu_name is \"%s\": must be printable ASCII, as gdn_target_from_device() gives it, or \"\"",
                        out->gpu_name);
    if (out->reserved) return GDN_FAIL(GDN_E_INVALID, "target.reserved is %d: must be 0", out->reserved);
    if (out->num_sms < 0 || out->num_sms > GDNI_MOST_SMS)
        return GDN_FAIL(GDN_E_INVALID, "target.num_sms is %d: must be 1 to %d, or 0 for the arch's common GPU",
                        out->num_sms, GDNI_MOST_SMS);
    if (!out->arch[0])
        return GDN_FAIL(GDN_E_UNSUPPORTED, "the target's arch is empty: fill it by gdn_target_from_device() or "
                                           "gdn_target_from_name()");
    return GDN_OK;
}

#define ANY_PLAN           ((uint32_t)(GDN_PLAN_CACHED_ONLY | GDN_PLAN_HEURISTIC | GDN_PLAN_TUNED_ONLY))
#define ANY_PLAN_NAMES     "GDN_PLAN_CACHED_ONLY, GDN_PLAN_HEURISTIC, GDN_PLAN_TUNED_ONLY"
#define PREFILL_PLAN       (ANY_PLAN | GDN_PLAN_GENERIC | GDN_PLAN_WHOLE_SEQUENCES | GDN_PLAN_BATCH_INVARIANT)
#define PREFILL_PLAN_NAMES ANY_PLAN_NAMES ", GDN_PLAN_GENERIC, GDN_PLAN_WHOLE_SEQUENCES, GDN_PLAN_BATCH_INVARIANT"

static gdn_status check_flags(uint32_t flags, uint32_t known, const char *names)
{
    if (flags & ~known) return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only %s known", flags, names);
    if ((flags & GDN_PLAN_HEURISTIC) && (flags & GDN_PLAN_TUNED_ONLY))
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: GDN_PLAN_HEURISTIC and GDN_PLAN_TUNED_ONLY exclude each other",
                        flags);
    if ((flags & GDN_PLAN_TUNED_ONLY) && (flags & GDN_PLAN_BATCH_INVARIANT))
        return GDN_FAIL(GDN_E_INVALID,
                        "flags is 0x%x: GDN_PLAN_BATCH_INVARIANT takes nothing from tables, and GDN_PLAN_TUNED_ONLY "
                        "nothing else: drop one",
                        flags);
    return GDN_OK;
}

/* What a caller asks of a plan, as one problem on one target. */
static gdn_status take_prefill(gdn_target *taken, struct gdni_problem *problem, const gdn_target *target,
                               const gdn_prefill_desc *desc, uint32_t flags)
{
    GDN_TRY(check_flags(flags, PREFILL_PLAN, PREFILL_PLAN_NAMES " are"));
    GDN_TRY(gdni_take_target(taken, target));
    GDN_TRY(gdni_problem_from_prefill(problem, desc));
    problem->generic = (flags & GDN_PLAN_GENERIC) != 0;
    problem->whole_sequences = flags & GDN_PLAN_WHOLE_SEQUENCES ? GDNI_WHOLE_BY_FLAG : 0;
    problem->batch_invariant = (flags & GDN_PLAN_BATCH_INVARIANT) != 0;
    return GDN_OK;
}

static gdn_status take_conv1d(gdn_target *taken, struct gdni_problem *problem, const gdn_target *target,
                              const gdn_conv1d_desc *desc, uint32_t flags)
{
    GDN_TRY(check_flags(flags, ANY_PLAN, ANY_PLAN_NAMES " are"));
    GDN_TRY(gdni_take_target(taken, target));
    return gdni_problem_from_conv1d(problem, desc);
}

/* As a plan would choose for the bucket of max_tokens. */
static gdn_status find_support(const gdn_target *target, const struct gdni_problem *problem, gdn_support *out)
{
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    struct gdni_spec spec;
    const char *reason = "";
    GDN_TRY(gdni_arch_find(target->arch, &arch));
    gdni_params_heuristic(&params, problem, arch, target->num_sms, gdni_bucket_of(problem->max_tokens));
    GDN_TRY(gdni_spec_build(&spec, problem, arch, &params));
    if (needs_workspace(problem, &spec)) {
        struct gdni_workspace needs; /* of the largest call, and of all kernels of the plan, which differ in nothing */
        gdni_workspace_of(&needs, &spec, problem, gdni_arch_sms(arch, target->num_sms), problem->max_tokens,
                          problem->max_seqs, 0);
        GDN_TRY(check_workspace(problem, needs.size));
    }
    const enum gdni_kernel kernel = gdni_kernel_choose(problem, arch, &reason);
    snprintf(out->kernel, sizeof out->kernel, "%s", gdni_kernel_info(kernel)->name);
    snprintf(out->reason, sizeof out->reason, "%s", reason);
    return GDN_OK;
}

/* Tells what was found, or, by status, why there was nothing to find. */
static gdn_status give_support(gdn_support *out, gdn_status status, gdn_support *found)
{
    if (status != GDN_OK) snprintf(found->reason, sizeof found->reason, "%s", gdni_error_text());
    gdni_give_struct(out, found, sizeof *found);
    return status;
}

gdn_status gdn_prefill_support(const gdn_target *target, const gdn_prefill_desc *desc, uint32_t flags, gdn_support *out)
{
    gdn_support support = GDN_SUPPORT_INIT;
    gdn_target taken;
    struct gdni_problem problem;
    GDN_TRY(GDNI_CHECK_OUT(gdn_support, out));
    gdn_status status = take_prefill(&taken, &problem, target, desc, flags);
    if (status == GDN_OK) status = find_support(&taken, &problem, &support);
    return give_support(out, status, &support);
}

gdn_status gdn_conv1d_support(const gdn_target *target, const gdn_conv1d_desc *desc, uint32_t flags, gdn_support *out)
{
    gdn_support support = GDN_SUPPORT_INIT;
    gdn_target taken;
    struct gdni_problem problem;
    GDN_TRY(GDNI_CHECK_OUT(gdn_support, out));
    gdn_status status = take_conv1d(&taken, &problem, target, desc, flags);
    if (status == GDN_OK) status = find_support(&taken, &problem, &support);
    return give_support(out, status, &support);
}

/* *out is NULL from here on, until there is a plan. */
static gdn_status check_handles(const gdn_ctx *ctx, gdn_plan **out)
{
    if (!out) return GDN_FAIL(GDN_E_INVALID, "out is null: pass the address of a gdn_plan pointer");
    *out = NULL;
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    return GDN_OK;
}

gdn_status gdn_plan_prefill(gdn_ctx *ctx, const gdn_target *target, const gdn_prefill_desc *desc, uint32_t flags,
                            gdn_plan **out)
{
    gdn_target taken;
    struct gdni_problem problem;
    GDN_TRY(check_handles(ctx, out));
    GDN_TRY(take_prefill(&taken, &problem, target, desc, flags));
    return gdni_plan_create(ctx, &taken, &problem, flags, out);
}

gdn_status gdn_plan_conv1d_qkv(gdn_ctx *ctx, const gdn_target *target, const gdn_conv1d_desc *desc, uint32_t flags,
                               gdn_plan **out)
{
    gdn_target taken;
    struct gdni_problem problem;
    GDN_TRY(check_handles(ctx, out));
    GDN_TRY(take_conv1d(&taken, &problem, target, desc, flags));
    return gdni_plan_create(ctx, &taken, &problem, flags, out);
}

void gdn_plan_destroy(gdn_plan *plan)
{
    if (!plan) return;
    gdni_modules_destroy(plan->modules); /* through the context's table of the driver */
    gdni_ctx_let_go(plan->ctx);
    gdni_free(plan);
}

gdn_status gdni_plan_load_device(const gdn_plan *plan, const struct gdni_cuda *cuda, gdni_cudevice device)
{
    int cc = 0;
    GDN_TRY(gdni_device_cc(cuda, device, &cc));
    if (cc != plan->arch->cc)
        return GDN_FAIL(GDN_E_INVALID,
                        "the device has compute capability %d.%d and the plan is for %s: plan with the target that "
                        "gdn_target_from_device() gives",
                        cc / 10, cc % 10, plan->arch->name);
    return gdni_modules_load(plan->modules, cuda, device);
}

gdn_status gdn_plan_load(gdn_plan *plan, int device)
{
    const struct gdni_cuda *cuda = NULL;
    gdni_cudevice found = 0;
    if (!plan)
        return GDN_FAIL(GDN_E_INVALID, "plan is null: make one with gdn_plan_prefill() or gdn_plan_conv1d_qkv()");
    GDN_TRY(gdni_driver_get(plan->ctx->driver, &cuda));
    GDN_TRY(gdni_device_find(cuda, device, &found));
    return gdni_plan_load_device(plan, cuda, found);
}

size_t gdn_plan_workspace_size(const gdn_plan *plan)
{
    if (plan) return plan->workspace_size;
    gdni_fail(GDN_E_INVALID, "plan is null: make one with gdn_plan_prefill() or gdn_plan_conv1d_qkv()");
    return 0;
}
