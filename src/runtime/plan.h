/*
 * plan.h - a plan: the problem, the variants that its buckets need, and their loaded form.
 */
#ifndef GDNI_PLAN_H
#define GDNI_PLAN_H

#include "codegen/problem.h"
#include "codegen/spec.h"
#include "runtime/module.h"
#include "runtime/tuning_db.h"

/* Immutable once made; what loading changes is behind `modules`. */
struct gdn_plan {
    gdn_ctx *ctx;
    gdn_target target;
    struct gdni_problem problem;
    const struct gdni_arch *arch;
    int num_variants;
    struct gdni_spec specs[GDNI_MAX_VARIANTS];
    int variant_of_bucket[GDNI_NUM_BUCKETS];                    /* -1 past the bucket of problem.max_tokens */
    int variant_of_few[GDNI_NUM_BUCKETS][GDNI_NUM_SEQ_CLASSES]; /* -1: the bucket's; see gdni_params_heuristic_few() */
    int variant_of_uneven[GDNI_NUM_BUCKETS]; /* which carries states: see gdni_plan_variant_of_uneven(); -1: the bucket's */
    int whole_of_variant[GDNI_MAX_VARIANTS]; /* of calls that are not cut: itself, or without the code for it */
    struct gdni_choice choice_of_bucket[GDNI_NUM_BUCKETS];      /* what chose them, for the dump */
    struct gdni_choice choice_of_few[GDNI_NUM_BUCKETS][GDNI_NUM_SEQ_CLASSES];
    size_t workspace_size;
    bool needs_workspace; /* without one a call would have other bits, which GDN_PLAN_BATCH_INVARIANT rules out */
    struct gdni_modules *modules;
};

/* A caller's target, checked. */
gdn_status gdni_take_target(gdn_target *out, const gdn_target *target);

/* gdn_plan_*() after desc has become a problem and target was checked. */
gdn_status gdni_plan_create(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem, uint32_t flags,
                            gdn_plan **out);

/*
 * As gdni_plan_create(), but calls run with params, which are usable for a slot of the problem's largest call. Where they
 * need a workspace, calls without one, and calls of many sequences, run the heuristic's choice.
 */
gdn_status gdni_plan_create_with(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem,
                                 const struct gdni_params *params, gdn_plan **out);

/*
 * Finds a program for each of plan->specs and adds it to plan->modules, in their order. What has to be compiled is compiled
 * side by side. flags: GDNI_NO_COMPILE.
 */
gdn_status gdni_plan_find_programs(gdn_plan *plan, uint32_t flags);

/* Of the target, or of its arch's common GPU. */
int gdni_plan_num_sms(const gdn_plan *plan);

/* Of a call within the plan's bounds that has a workspace; else -1. */
int gdni_plan_variant_of_few(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs);

/* Of a call that the bucket's cuts evenly: that which carries states, where the plan has it and pairs are few; else -1. */
int gdni_plan_variant_of_uneven(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs);

/* What chose that of few, where there is one. */
const struct gdni_choice *gdni_plan_choice_of_few(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs);

/* gdn_plan_load() after the ordinal has become a device. */
gdn_status gdni_plan_load_device(const gdn_plan *plan, const struct gdni_cuda *cuda, gdni_cudevice device);

#endif
