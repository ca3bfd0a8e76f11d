/*
 * tune.c - gdn_tune_*(): options, candidates, the steps in their order, progress and the budget. Orchestration only.
 *
 * Must not know: how results are compared (trial.c, tuner/work.c), how times are taken (measure.c), what they decide
 * (tuner/race.c), on which other calls a winner must hold (elsewhere.c). No lock: a tuning belongs to the thread that asked
 * for it.
 */
#include "runtime/tune.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "codegen/check.h"
#include "runtime/clock.h"
#include "runtime/context.h"
#include "runtime/nvrtc.h"
#include "runtime/target.h"
#include "runtime/tuning_db.h"

enum { ALL_STEPS = GDN_TUNE_COMPILE | GDN_TUNE_CHECK | GDN_TUNE_MEASURE, DEFAULT_TIMEOUT_MS = 10000 };
static const uint64_t default_scratch = (uint64_t)4 << 30;

/* ---- Candidates ---- */

bool gdni_candidate_runs(const struct gdni_candidate *candidate)
{
    return !candidate->skipped && candidate->status == GDN_OK;
}

static gdn_status write_params(struct gdni_candidate *c, const struct gdni_tune *t)
{
    struct gdni_strbuf sb = { 0 };
    struct gdni_spec spec;
    GDN_TRY(gdni_spec_build(&spec, &t->problem, t->arch, &c->params));
    gdni_params_json(&sb, &c->params, spec.kernel);
    const bool whole = !sb.failed && sb.len < sizeof c->text;
    if (whole) memcpy(c->text, sb.text, sb.len + 1);
    gdni_sb_free(&sb);
    return whole ? GDN_OK : GDN_FAIL(GDN_E_NOMEM, "out of memory for the candidates' texts");
}

static bool is_listed(const gdn_tune_options *o, const char *text)
{
    for (size_t i = 0; i < o->num_skip; ++i)
        if (strcmp(o->skip[i], text) == 0) return true;
    return false;
}

static gdn_status find_candidates(struct gdni_tune *t)
{
    struct gdni_params params[GDNI_MAX_CANDIDATES];
    int matches = 0;
    const struct gdni_call_size timed = { t->problem.max_tokens, t->problem.max_seqs };
    struct gdni_problem of_plans = t->problem; /* what the heuristic chooses for a slot depends on its largest call */
    of_plans.max_tokens = t->most_tokens;
    t->num_candidates = gdni_params_candidates(params, &of_plans, t->arch, t->target.num_sms, t->slot, timed);
    for (int i = 0; i < t->num_candidates; ++i) {
        struct gdni_candidate *c = &t->candidates[i];
        c->params = params[i];
        GDN_TRY(write_params(c, t));
        c->skipped = is_listed(&t->options, c->text) || (t->options.only && strcmp(t->options.only, c->text) != 0);
        matches += !c->skipped;
    }
    if (matches) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "options.%s leaves none of the %d candidates: give params as events spell them",
                    t->options.only ? "only" : "skip", t->num_candidates);
}

/* ---- Progress ---- */

static int64_t elapsed_ms(const struct gdni_tune *t)
{
    return gdni_now_ms() - t->start_ms;
}

static int64_t left_ms(const struct gdni_tune *t)
{
    const int64_t left = t->options.budget_ms - elapsed_ms(t);
    return t->options.budget_ms == 0 ? -1 : left > 0 ? left : 0;
}

static gdn_status tell(struct gdni_tune *t, uint32_t step, int candidate, bool ended)
{
    const struct gdni_candidate *c = &t->candidates[candidate];
    const gdn_tune_event event = {
        .struct_size = sizeof event,
        .step = step,
        .ended = ended,
        .candidate = candidate,
        .num_candidates = t->num_candidates,
        .params = c->text,
        .status = c->status,
        .message = c->reason,
        .best_params = t->best >= 0 ? t->candidates[t->best].text : "",
        .best_ns = t->best_ns,
        .elapsed_ms = elapsed_ms(t),
        .left_ms = left_ms(t),
    };
    if (!t->options.progress || t->options.progress(t->options.user, &event) == 0) return GDN_OK;
    return GDN_FAIL(GDN_E_CANCELLED, "options.progress asked to stop before %s was decided",
                    gdni_op_name(t->problem.op));
}

gdn_status gdni_tune_begin(struct gdni_tune *t, uint32_t step, int candidate)
{
    if (left_ms(t) == 0)
        return GDN_FAIL(GDN_E_CANCELLED, "the budget of %lld ms was over before %s was decided: give it more",
                        (long long)t->options.budget_ms, gdni_op_name(t->problem.op));
    return tell(t, step, candidate, false);
}

gdn_status gdni_tune_end(struct gdni_tune *t, uint32_t step, int candidate, gdn_status status)
{
    struct gdni_candidate *c = &t->candidates[candidate];
    c->status = status;
    if (status != GDN_OK) snprintf(c->reason, sizeof c->reason, "%s", gdni_error_text());
    GDN_TRY(tell(t, step, candidate, true));
    const bool out_of_memory = status == GDN_E_NOMEM;
    if (status == GDN_OK || (!t->lab.lost && !out_of_memory)) return GDN_OK;
    return GDN_FAIL(status, "trying %s: %s", c->text, c->reason);
}

/* ---- Plans ---- */

gdn_status gdni_tune_plan(struct gdni_tune *t, int candidate, const struct gdni_problem *problem, gdn_plan **out)
{
    gdn_plan *plan = NULL;
    *out = NULL;
    GDN_TRY(gdni_plan_create_with(t->ctx, &t->target, problem, &t->candidates[candidate].params, &plan));
    const gdn_status status = gdni_plan_load_device(plan, t->lab.cuda, t->lab.device);
    if (status == GDN_OK)
        *out = plan;
    else
        gdni_tune_drop_plan(t, plan);
    return status;
}

void gdni_tune_drop_plan(struct gdni_tune *t, gdn_plan *plan)
{
    if (t->lab.lost) gdni_modules_abandon(plan->modules);
    gdn_plan_destroy(plan);
}

gdn_status gdni_tune_execute(struct gdni_tune *t, const gdn_plan *plan, const union gdni_args *args,
                             gdn_devptr workspace, size_t workspace_size)
{
    if (t->problem.op == GDNI_OP_PREFILL)
        return gdn_execute_prefill(plan, &args->prefill, workspace, workspace_size, t->lab.stream);
    return gdn_execute_conv1d_qkv(plan, &args->conv1d, t->lab.stream);
}

/* ---- The decision as an entry of the context's tables ---- */

static void put_date(char out[GDNI_TUNING_DATE])
{
    struct tm day;
    const time_t now = time(NULL);
    if (!gmtime_r(&now, &day) || strftime(out, GDNI_TUNING_DATE, "%Y-%m-%d", &day) == 0)
        snprintf(out, GDNI_TUNING_DATE, "1970-01-01");
}

/* 0: none was seen. */
static int32_t middle_clock(const struct gdni_seen *seen)
{
    struct gdni_seen sorted = *seen;
    return (int32_t)gdni_estimate_of(sorted.mhz, sorted.count).median;
}

static void put_environment(struct gdni_tuning_entry *out, const struct gdni_tune *t, const struct gdni_cuda *cuda)
{
    const struct gdni_nvrtc_api *nvrtc = NULL;
    int version = 0;
    snprintf(out->driver, sizeof out->driver, "unknown"); /* a file's texts are not empty */
    snprintf(out->nvrtc, sizeof out->nvrtc, "unknown");
    if (cuda->cuDriverGetVersion(&version) == 0)
        snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    if (gdni_nvrtc_get(t->ctx->nvrtc, &nvrtc) == GDN_OK)
        snprintf(out->nvrtc, sizeof out->nvrtc, "%d.%d", nvrtc->version / 100, nvrtc->version % 100);
    out->sm_mhz = middle_clock(&t->sm_clocks);
    out->mem_mhz = middle_clock(&t->mem_clocks);
    put_date(out->date);
    gdni_kernel_code_hash(out->code, (enum gdni_kernel)gdni_tuning_kernel(&out->key, &out->params));
}

static gdn_status record(struct gdni_tune *t, const struct gdni_cuda *cuda)
{
    const struct gdni_decision *d = &t->decision;
    if (d->winner < 0) return GDN_OK;
    struct gdni_tuning_entry entry = {
        .params = t->candidates[d->winner].params,
        .median_ns = d->time.median,
        .mad_ns = d->time.mad,
        .heuristic_ns = d->heuristic.median, /* 0: it failed */
        .samples = (int32_t)d->time.count,
    };
    struct gdni_tuning_table table = { .arch = t->arch, .num_sms = t->target.num_sms, .count = 1, .entries = &entry };
    char source[] = "gdn_tune";
    table.source = source;
    memcpy(table.gpu_name, t->target.gpu_name, sizeof table.gpu_name);
    gdni_tuning_key_of(&entry.key, &t->problem, t->arch, t->slot);
    put_environment(&entry, t, cuda);
    return gdni_tuning_import(t->ctx->tuning, &table, false, NULL, NULL);
}

/* ---- Steps ---- */

static gdn_status compile_for(struct gdni_tune *t, const struct gdni_problem *problem, int candidate)
{
    gdn_plan *plan = NULL;
    GDN_TRY(gdni_plan_create_with(t->ctx, &t->target, problem, &t->candidates[candidate].params, &plan));
    gdn_plan_destroy(plan);
    return GDN_OK;
}

/* What may have to be measured later may be where there is no compiler. */
static gdn_status compile_one(struct gdni_tune *t, int candidate)
{
    struct gdni_problem other;
    union gdni_desc desc;
    bool has;
    GDN_TRY(compile_for(t, &t->problem, candidate));
    GDN_TRY(gdni_tune_other_gates(t, &other, &desc, &has));
    return has ? compile_for(t, &other, candidate) : GDN_OK;
}

static gdn_status compile_all(struct gdni_tune *t)
{
    for (int i = 0; i < t->num_candidates; ++i) {
        if (!gdni_candidate_runs(&t->candidates[i])) continue;
        GDN_TRY(gdni_tune_begin(t, GDN_TUNE_COMPILE, i));
        GDN_TRY(gdni_tune_end(t, GDN_TUNE_COMPILE, i, compile_one(t, i)));
    }
    return GDN_OK;
}

static gdn_status measure(struct gdni_tune *t)
{
    bool holds;
    GDN_TRY(gdni_tune_measure(t));
    const struct gdni_decision won = t->decision, stay = t->stay;
    if (won.verdict != GDNI_VERDICT_FASTER) return GDN_OK;
    GDN_TRY(gdni_tune_holds_elsewhere(t, won.winner, &holds));
    t->decision = holds ? won : stay;
    return GDN_OK;
}

static gdn_status run_on_device(struct gdni_tune *t)
{
    const struct gdni_cuda *cuda = NULL;
    gdni_cudevice device = 0;
    GDN_TRY(gdni_driver_get(t->ctx->driver, &cuda));
    GDN_TRY(gdni_device_find(cuda, t->options.device, &device));
    GDN_TRY(gdni_lab_open(&t->lab, cuda, device, (size_t)t->options.max_scratch_bytes, t->options.timeout_ms));
    gdn_status status = GDN_OK;
    if (t->options.steps & GDN_TUNE_CHECK) status = gdni_tune_check(t);
    if (status == GDN_OK && t->options.steps & GDN_TUNE_MEASURE) {
        status = measure(t);
        if (status == GDN_OK) status = record(t, cuda);
    }
    gdni_lab_close(&t->lab);
    return status;
}

static int count_failed(const struct gdni_tune *t)
{
    int failed = 0;
    for (int i = 0; i < t->num_candidates; ++i)
        failed += t->candidates[i].status != GDN_OK;
    return failed;
}

/* The first failure explains the others better than their number does. */
static gdn_status all_failed(const struct gdni_tune *t)
{
    for (int i = 0; i < t->num_candidates; ++i)
        if (gdni_candidate_runs(&t->candidates[i])) return GDN_OK;
    for (int i = 0; i < t->num_candidates; ++i)
        if (t->candidates[i].status != GDN_OK)
            return GDN_FAIL(GDN_E_UNSUPPORTED, "every candidate failed; the first, %s: %s", t->candidates[i].text,
                            t->candidates[i].reason);
    return GDN_OK;
}

static gdn_status run_steps(struct gdni_tune *t)
{
    if (t->options.steps & GDN_TUNE_COMPILE) GDN_TRY(compile_all(t));
    if (t->options.steps & (GDN_TUNE_CHECK | GDN_TUNE_MEASURE)) GDN_TRY(run_on_device(t));
    /* One candidate that was asked for alone may fail: that is what was to be found out. */
    return t->options.only ? GDN_OK : all_failed(t);
}

/* ---- What is asked, what is answered ---- */

static gdn_status check_options(const gdn_tune_options *o)
{
    if (o->steps & ~(uint32_t)ALL_STEPS)
        return GDN_FAIL(GDN_E_INVALID, "options.steps is 0x%x: only GDN_TUNE_COMPILE, _CHECK and _MEASURE are known",
                        o->steps);
    if (o->plan_flags & ~(uint32_t)GDN_PLAN_GENERIC)
        return GDN_FAIL(GDN_E_INVALID, "options.plan_flags is 0x%x: only GDN_PLAN_GENERIC is known", o->plan_flags);
    if (o->reserved) return GDN_FAIL(GDN_E_INVALID, "options.reserved is %d: must be 0", o->reserved);
    GDN_TRY(gdni_check_count("options.num_tokens", o->num_tokens, 0, INT32_MAX));
    GDN_TRY(gdni_check_count("options.num_seqs", o->num_seqs, 0, INT32_MAX));
    GDN_TRY(gdni_check_count("options.budget_ms", o->budget_ms, 0, INT64_MAX));
    GDN_TRY(gdni_check_count("options.timeout_ms", o->timeout_ms, 0, INT64_MAX));
    if (o->num_skip && !o->skip)
        return GDN_FAIL(GDN_E_INVALID, "options.skip is null but num_skip is %zu: pass the list or 0", o->num_skip);
    for (size_t i = 0; i < o->num_skip; ++i)
        if (!o->skip[i])
            return GDN_FAIL(GDN_E_INVALID, "options.skip[%zu] is null: pass params as events spell them", i);
    if (o->only && !(o->steps & GDN_TUNE_MEASURE)) return GDN_OK;
    if (o->only)
        return GDN_FAIL(GDN_E_INVALID,
                        "options.only is given with GDN_TUNE_MEASURE: one candidate alone decides nothing");
    return GDN_OK;
}

static gdn_status take_options(gdn_tune_options *out, const gdn_tune_options *options)
{
    *out = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT;
    if (options) GDN_TRY(GDNI_TAKE_STRUCT(gdn_tune_options, out, options));
    if (!out->steps) out->steps = ALL_STEPS;
    if (!out->timeout_ms) out->timeout_ms = DEFAULT_TIMEOUT_MS;
    if (!out->max_scratch_bytes) out->max_scratch_bytes = default_scratch;
    return check_options(out);
}

/* What is timed goes into the tables under the target's name. */
static gdn_status check_same_gpu(const gdn_target *given, const gdn_target *seen, int device)
{
    if (strcmp(given->gpu_name, seen->gpu_name) == 0 && strcmp(given->arch, seen->arch) == 0 &&
        given->num_sms == seen->num_sms)
        return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "options.target is \"%s\" (%s, %d SMs) but device %d is \"%s\" (%s, %d SMs): pass no target, or "
                    "GDN_TUNE_COMPILE alone",
                    given->gpu_name, given->arch, given->num_sms, device, seen->gpu_name, seen->arch, seen->num_sms);
}

static gdn_status take_target(struct gdni_tune *t)
{
    const struct gdni_cuda *cuda = NULL;
    gdni_cudevice device = 0;
    gdn_target seen = GDN_TARGET_INIT;
    const gdn_target *given = t->options.target;
    if (given) GDN_TRY(gdni_take_target(&t->target, given));
    if (given && t->options.steps == GDN_TUNE_COMPILE) return GDN_OK;
    const gdn_status status = gdni_driver_get(t->ctx->driver, &cuda);
    if (status != GDN_OK && t->options.steps == GDN_TUNE_COMPILE)
        return gdni_fail_in(status, "GDN_TUNE_COMPILE without options.target asks the device what it is: give the target, or");
    GDN_TRY(status);
    GDN_TRY(gdni_device_find(cuda, t->options.device, &device));
    GDN_TRY(gdni_device_target(cuda, device, &seen));
    if (given) return check_same_gpu(&t->target, &seen, t->options.device);
    t->target = seen;
    return GDN_OK;
}

/* The bounds become those of the call that is timed. */
static gdn_status take_size(struct gdni_tune *t)
{
    struct gdni_problem *p = &t->problem;
    const gdn_tune_options *o = &t->options;
    const bool of_tokens = o->num_tokens > p->max_tokens;
    if (of_tokens || o->num_seqs > p->max_seqs)
        return GDN_FAIL(GDN_E_INVALID, "options.num_%s is %lld, and max_%s of the desc %lld: give it at most that, or 0",
                        of_tokens ? "tokens" : "seqs", (long long)(of_tokens ? o->num_tokens : o->num_seqs),
                        of_tokens ? "tokens" : "seqs", (long long)(of_tokens ? p->max_tokens : p->max_seqs));
    t->most_tokens = p->max_tokens;
    if (o->num_tokens) p->max_tokens = o->num_tokens;
    if (o->num_seqs) p->max_seqs = o->num_seqs;
    if (p->max_tokens < p->max_seqs || p->max_seqs < 1)
        return GDN_FAIL(GDN_E_INVALID,
                        "%lld tokens of %lld sequences: the calls that are timed need at least one token a sequence",
                        (long long)p->max_tokens, (long long)p->max_seqs);
    const int seq_class = gdni_seq_class_of(p->max_seqs);
    const bool few = p->op == GDNI_OP_PREFILL && seq_class < GDNI_NUM_SEQ_CLASSES;
    t->slot = (struct gdni_slot){ gdni_bucket_of(p->max_tokens), few ? seq_class : GDNI_ANY_SEQS };
    return GDN_OK;
}

static void answer(gdn_tune_result *out, const struct gdni_tune *t)
{
    const struct gdni_decision *d = &t->decision;
    out->num_candidates = t->num_candidates;
    out->num_failed = count_failed(t);
    snprintf(out->heuristic_params, sizeof out->heuristic_params, "%s", t->candidates[0].text);
    if (!(t->options.steps & GDN_TUNE_MEASURE) || d->winner < 0) return;
    out->decided = 1;
    out->samples = (int32_t)d->time.count;
    snprintf(out->params, sizeof out->params, "%s", t->candidates[d->winner].text);
    snprintf(out->verdict, sizeof out->verdict, "%s", gdni_verdict_text(d->verdict));
    out->ns = d->time.median;
    out->mad_ns = d->time.mad;
    out->cold_ns = d->cold.median;
    out->warm_ns = d->warm.median;
    out->heuristic_ns = d->heuristic.median;
    out->heuristic_mad_ns = d->heuristic.mad;
}

static gdn_status run(struct gdni_tune *t, const gdn_tune_options *options, gdn_tune_result *out)
{
    gdn_tune_result result = GDN_TUNE_RESULT_INIT;
    GDN_TRY(take_options(&t->options, options));
    t->start_ms = gdni_now_ms();
    if (t->options.plan_flags & GDN_PLAN_GENERIC) t->problem.generic = 1;
    t->best = -1;
    GDN_TRY(take_target(t));
    GDN_TRY(gdni_arch_find(t->target.arch, &t->arch));
    GDN_TRY(take_size(t));
    GDN_TRY(find_candidates(t));
    GDN_TRY(run_steps(t));
    answer(&result, t);
    gdni_give_struct(out, &result, sizeof result);
    return GDN_OK;
}

static gdn_status check_call(const gdn_ctx *ctx, const gdn_tune_result *out)
{
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    return GDNI_CHECK_OUT(gdn_tune_result, out);
}

/* The tuning is some ten thousand bytes: not for the stack of an embedder's thread. */
static gdn_status tune(gdn_ctx *ctx, const struct gdni_problem *problem, const union gdni_desc *desc,
                       const gdn_tune_options *options, gdn_tune_result *out)
{
    struct gdni_tune *t = gdni_calloc(1, sizeof *t);
    if (!t) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a tuning (%zu bytes)", sizeof *t);
    t->ctx = ctx;
    t->problem = *problem;
    t->desc = *desc;
    const gdn_status status = run(t, options, out);
    gdni_free(t);
    return status;
}

gdn_status gdn_tune_prefill(gdn_ctx *ctx, const gdn_prefill_desc *desc, const gdn_tune_options *options,
                            gdn_tune_result *out)
{
    struct gdni_problem problem;
    union gdni_desc taken = { .prefill = GDN_PREFILL_DESC_INIT };
    GDN_TRY(check_call(ctx, out));
    GDN_TRY(gdni_problem_from_prefill(&problem, desc));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prefill_desc, &taken.prefill, desc));
    return tune(ctx, &problem, &taken, options, out);
}

gdn_status gdn_tune_conv1d_qkv(gdn_ctx *ctx, const gdn_conv1d_desc *desc, const gdn_tune_options *options,
                               gdn_tune_result *out)
{
    struct gdni_problem problem;
    union gdni_desc taken = { .conv1d = GDN_CONV1D_DESC_INIT };
    GDN_TRY(check_call(ctx, out));
    GDN_TRY(gdni_problem_from_conv1d(&problem, desc));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_conv1d_desc, &taken.conv1d, desc));
    return tune(ctx, &problem, &taken, options, out);
}
