/*
 * onecall.c - plan for the current device, load, execute: the embedded JIT of a quick start.
 *
 * Owns a table of loaded plans by (problem, device). Must not know: how plans are made. `lock` guards the table and is held
 * for a search or an insertion only, never while planning: two threads that miss together share one compile (programs.c) and
 * the later one drops its plan. Plans in the table live until the context goes, so execute needs no lock.
 */
#include "runtime/onecall.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "codegen/params.h"
#include "runtime/context.h"
#include "runtime/module.h"
#include "runtime/plan.h"
#include "runtime/target.h"

enum { CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906 };

struct entry {
    struct gdni_problem problem;
    gdni_cudevice device;
    gdn_plan *plan;
};

struct gdni_onecall {
    pthread_mutex_t lock;
    struct entry *entries;
    size_t count, capacity;
};

struct gdni_onecall *gdni_onecall_create(void)
{
    struct gdni_onecall *o = gdni_calloc(1, sizeof *o);
    if (o && pthread_mutex_init(&o->lock, NULL) != 0) {
        gdni_free(o);
        o = NULL;
    }
    return o;
}

void gdni_onecall_destroy(struct gdni_onecall *onecall)
{
    if (!onecall) return;
    for (size_t i = 0; i < onecall->count; ++i)
        gdn_plan_destroy(onecall->entries[i].plan);
    gdni_free(onecall->entries);
    pthread_mutex_destroy(&onecall->lock);
    gdni_free(onecall);
}

/* A call on the way to its plan. */
struct request {
    gdn_ctx *ctx;
    const struct gdni_cuda *cuda;
    gdni_cuctx current;
    gdni_cudevice device; /* current's */
    struct gdni_problem asked, problem; /* of the caller's desc; of the plan that is to serve it */
    gdn_stream stream;
};

static int64_t widened_bound(int64_t bound)
{
    int64_t wide = 256;
    while (wide < bound)
        wide *= 4;
    return wide < INT32_MAX ? wide : INT32_MAX;
}

static struct gdni_problem widened(struct gdni_problem problem)
{
    problem.max_tokens = widened_bound(problem.max_tokens);
    problem.max_seqs = widened_bound(problem.max_seqs);
    return problem;
}

/*
 * A desc has a plan of its own, the one that gdn_plan_*() makes of it: the same cubins, the same workspace. But a caller who
 * puts each call's sizes there must not get a plan per call: descs that differ in nothing but their bounds, of which there are
 * MOST_ALIKE, share one whose max_tokens and max_seqs are widened to powers of four. The lock is held.
 */
static void widen_after_many(const struct gdni_onecall *o, struct request *r)
{
    enum { MOST_ALIKE = 4 };
    const struct gdni_problem wide = widened(r->problem);
    int alike = 0;
    for (size_t i = 0; i < o->count; ++i) {
        const struct gdni_problem other = widened(o->entries[i].problem);
        alike += o->entries[i].device == r->device && memcmp(&other, &wide, sizeof wide) == 0;
    }
    if (alike >= MOST_ALIKE) r->problem = wide;
}

/* The lock is held. */
static gdn_plan *find(const struct gdni_onecall *o, const struct request *r)
{
    for (size_t i = 0; i < o->count; ++i)
        if (o->entries[i].device == r->device && memcmp(&o->entries[i].problem, &r->problem, sizeof r->problem) == 0)
            return o->entries[i].plan;
    return NULL;
}

/*
 * What serves the asked desc: a plan of its own, else the shared one; NULL: none yet, and r has the bounds that it is to have.
 * The lock is held.
 */
static gdn_plan *serving(const struct gdni_onecall *o, struct request *r)
{
    r->problem = r->asked;
    gdn_plan *plan = find(o, r);
    if (plan) return plan;
    widen_after_many(o, r);
    return find(o, r);
}

static gdn_plan *lookup(struct gdni_onecall *o, struct request *r)
{
    pthread_mutex_lock(&o->lock);
    gdn_plan *plan = serving(o, r);
    pthread_mutex_unlock(&o->lock);
    return plan;
}

static bool reserve(struct gdni_onecall *o)
{
    if (o->count < o->capacity) return true;
    const size_t capacity = o->capacity ? 2 * o->capacity : 8;
    struct entry *grown = gdni_realloc(o->entries, capacity * sizeof *grown);
    if (!grown) return false;
    o->entries = grown;
    o->capacity = capacity;
    return true;
}

/*
 * Takes over plan. The plan in the table: plan, or the one that another thread put there first. NULL: out of memory. What
 * lookup() would answer by now goes before plan: who asked for the workspace has been told that one's, and must not be served
 * by another.
 */
static gdn_plan *insert(struct gdni_onecall *o, const struct request *r, gdn_plan *plan)
{
    struct request now = *r;
    pthread_mutex_lock(&o->lock);
    gdn_plan *kept = serving(o, &now);
    if (!kept && reserve(o)) {
        o->entries[o->count++] = (struct entry){ r->problem, r->device, plan };
        kept = plan;
    }
    pthread_mutex_unlock(&o->lock);
    if (kept != plan) gdn_plan_destroy(plan);
    return kept;
}

/* Loading during capture would break the capture. Asking about the null stream while another one captures is an error of its
 * own, and means the same. */
static gdn_status refuse_capture(const struct request *r)
{
    int capturing = 0;
    const gdni_curesult result = r->cuda->cuStreamIsCapturing(r->stream, &capturing);
    if (result != 0 && result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return gdni_cuda_fail(r->cuda, result, "cuStreamIsCapturing");
    if (result == 0 && !capturing) return GDN_OK;
    return GDN_FAIL(
        GDN_E_NOT_LOADED,
        "stream is capturing and %s was not called with this desc on this device before: call it once outside the "
        "capture, or use gdn_plan_*() and gdn_plan_load()",
        gdni_op_name(r->problem.op));
}

static gdn_status make_on_device(const struct request *r, gdn_plan **out)
{
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    GDN_TRY(gdni_device_target(r->cuda, r->device, &target));
    GDN_TRY(gdni_plan_create(r->ctx, &target, &r->problem, 0, &plan));
    const gdn_status status = gdni_plan_load_device(plan, r->cuda, r->device);
    if (status != GDN_OK) {
        gdn_plan_destroy(plan);
        return status;
    }
    *out = insert(r->ctx->onecall, r, plan);
    return *out ? GDN_OK : GDN_FAIL(GDN_E_NOMEM, "out of memory for the table of one-call plans");
}

static gdn_status refuse_context(const struct request *r)
{
    return GDN_FAIL(GDN_E_NOT_LOADED,
                    "the current CUDA context is not the primary context of its device (CUdevice %d), in which %s "
                    "runs: " GDNI_PRIMARY_REMEDY,
                    r->device, gdni_op_name(r->problem.op));
}

/* Of the primary context. The first failure is the one to report; where there was none, this one is no reason to fail. */
static void let_go(const struct request *r, gdn_status status)
{
    const gdni_curesult result = r->cuda->cuDevicePrimaryCtxRelease(r->device);
    if (result == 0 || status != GDN_OK) return;
    gdni_cuda_fail(r->cuda, result, "cuDevicePrimaryCtxRelease");
    gdni_log(&r->ctx->log, GDN_LOG_WARN, "making a plan: %s", gdni_error_text());
}

/* Retaining one that is not would make it, only to find that it is not current: hundreds of MB and of ms, at each call. */
static gdn_status is_primary_active(const struct request *r, bool *out)
{
    unsigned flags = 0;
    int active = 0;
    const gdni_curesult result = r->cuda->cuDevicePrimaryCtxGetState(r->device, &flags, &active);
    if (result != 0) return gdni_cuda_fail(r->cuda, result, "cuDevicePrimaryCtxGetState");
    *out = active;
    return GDN_OK;
}

/* A plan is loaded in the device's primary context: under another one it would be compiled, and then not run. */
static gdn_status make(const struct request *r, gdn_plan **out)
{
    gdni_cuctx primary = NULL;
    bool active = false;
    GDN_TRY(refuse_capture(r));
    GDN_TRY(is_primary_active(r, &active));
    if (!active) return refuse_context(r);
    const gdni_curesult result = r->cuda->cuDevicePrimaryCtxRetain(&primary, r->device);
    if (result != 0) return gdni_cuda_fail(r->cuda, result, "cuDevicePrimaryCtxRetain");
    const gdn_status status = primary == r->current ? make_on_device(r, out) : refuse_context(r);
    let_go(r, status); /* the plan has its own hold */
    return status;
}

static gdn_status find_current(struct request *r)
{
    const struct gdni_cuda *cuda = r->cuda;
    gdni_curesult result = cuda->cuCtxGetCurrent(&r->current);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuCtxGetCurrent");
    if (!r->current)
        return GDN_FAIL(
            GDN_E_NOT_LOADED,
            "this thread has no current CUDA context: call cudaSetDevice() or cuCtxSetCurrent() in it first");
    result = cuda->cuCtxGetDevice(&r->device);
    return result == 0 ? GDN_OK : gdni_cuda_fail(cuda, result, "cuCtxGetDevice");
}

static gdn_status get_plan(gdn_ctx *ctx, const struct gdni_problem *problem, gdn_stream stream, gdn_plan **out)
{
    struct request r = { .ctx = ctx, .asked = *problem, .stream = stream };
    GDN_TRY(gdni_driver_get(ctx->driver, &r.cuda));
    GDN_TRY(find_current(&r));
    *out = lookup(ctx->onecall, &r);
    if (*out) return GDN_OK;
    const bool wide = memcmp(&r.problem, problem, sizeof *problem) != 0;
    const gdn_status status = make(&r, out);
    if (!wide || (status != GDN_E_NOT_CACHED && status != GDN_E_NO_NVRTC)) return status;
    r.problem = *problem; /* who warmed the cache for each desc has its own plan's cubins there */
    return make(&r, out);
}

static gdn_status check_ctx(const gdn_ctx *ctx)
{
    return ctx ? GDN_OK : GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
}

gdn_status gdn_prefill_workspace_size(gdn_ctx *ctx, const gdn_prefill_desc *desc, gdn_stream stream, size_t *out)
{
    struct gdni_problem problem;
    gdn_plan *plan = NULL;
    if (!out) return GDN_FAIL(GDN_E_INVALID, "out is null: pass the address of a size_t");
    *out = 0;
    GDN_TRY(check_ctx(ctx));
    GDN_TRY(gdni_problem_from_prefill(&problem, desc));
    GDN_TRY(get_plan(ctx, &problem, stream, &plan));
    *out = gdn_plan_workspace_size(plan);
    return GDN_OK;
}

gdn_status gdn_prefill(gdn_ctx *ctx, const gdn_prefill_desc *desc, const gdn_prefill_args *args, gdn_devptr workspace,
                       size_t workspace_size, gdn_stream stream)
{
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    struct gdni_problem problem;
    gdn_plan *plan = NULL;
    GDN_TRY(check_ctx(ctx));
    GDN_TRY(gdni_problem_from_prefill(&problem, desc));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prefill_args, &a, args));
    GDN_TRY(gdni_check_prefill_args(&problem, &a)); /* against desc's own bounds; the plan's may be wider */
    GDN_TRY(gdni_check_prefill_apart(&a, workspace_size ? workspace : 0));
    GDN_TRY(get_plan(ctx, &problem, stream, &plan));
    return gdn_execute_prefill(plan, args, workspace, workspace_size, stream);
}

gdn_status gdn_conv1d_qkv(gdn_ctx *ctx, const gdn_conv1d_desc *desc, const gdn_conv1d_args *args, gdn_stream stream)
{
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    struct gdni_problem problem;
    gdn_plan *plan = NULL;
    GDN_TRY(check_ctx(ctx));
    GDN_TRY(gdni_problem_from_conv1d(&problem, desc));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_conv1d_args, &a, args));
    GDN_TRY(gdni_check_conv1d_args(&problem, &a));
    GDN_TRY(gdni_check_conv1d_apart(&a));
    GDN_TRY(get_plan(ctx, &problem, stream, &plan));
    return gdn_execute_conv1d_qkv(plan, args, stream);
}
