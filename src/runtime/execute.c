/*
 * execute.c - the hot path: checks, launch parameters, one cuLaunchKernel.
 *
 * Must not know: files, environment, NVRTC, caches. Allocates nothing, takes no lock, loads nothing; legal during capture.
 */
#include <math.h>

#include "base/error.h"
#include "codegen/conv_launch.h"
#include "codegen/kernel_params.h"
#include "codegen/problem.h"
#include "codegen/spec.h"
#include "runtime/plan.h"

enum { WORKSPACE_ALIGNMENT = 256 };

static gdn_status check_plan(const gdn_plan *plan, int32_t op)
{
    if (!plan)
        return GDN_FAIL(GDN_E_INVALID, "plan is null: make one with gdn_plan_prefill() or gdn_plan_conv1d_qkv()");
    if (plan->problem.op != op)
        return GDN_FAIL(GDN_E_INVALID, "plan is for %s: execute it with that operator's function, or plan %s",
                        gdni_op_name(plan->problem.op), gdni_op_name(op));
    return GDN_OK;
}

static gdn_status check_workspace(const gdn_plan *plan, gdn_devptr workspace, size_t size)
{
    if (plan->workspace_size == 0) return GDN_OK;
    if (size < plan->workspace_size || !workspace)
        return GDN_FAIL(GDN_E_WORKSPACE,
                        "workspace is 0x%llx, %zu bytes: this plan needs %zu (gdn_plan_workspace_size)",
                        (unsigned long long)workspace, size, plan->workspace_size);
    if (workspace % WORKSPACE_ALIGNMENT)
        return GDN_FAIL(GDN_E_WORKSPACE, "workspace is 0x%llx: must be aligned to %d bytes",
                        (unsigned long long)workspace, WORKSPACE_ALIGNMENT);
    return GDN_OK;
}

/* Returns the constant: a compiler then sees that nothing goes on after a failed call. */
static gdn_status failed(const struct gdni_cuda *cuda, gdni_curesult result, const char *call)
{
    gdni_cuda_fail(cuda, result, call);
    return GDN_E_CUDA;
}

/* The current context is none that the plan is loaded in: say why. Not the hot path. */
static gdn_status not_loaded(const struct gdni_cuda *cuda, gdni_cuctx current)
{
    gdni_cudevice device = 0;
    if (!current)
        return GDN_FAIL(
            GDN_E_NOT_LOADED,
            "this thread has no current CUDA context: call cudaSetDevice() or cuCtxSetCurrent() in it first");
    const gdni_curesult result = cuda->cuCtxGetDevice(&device);
    if (result != 0) return failed(cuda, result, "cuCtxGetDevice");
    return GDN_FAIL(
        GDN_E_NOT_LOADED,
        "the current CUDA context, on device %d, is none that the plan is loaded in: call gdn_plan_load() for that "
        "device, and run in its primary context",
        device);
}

static gdn_status find_device(const gdn_plan *plan, const struct gdni_loaded **out)
{
    const struct gdni_cuda *cuda = gdni_modules_cuda(plan->modules);
    gdni_cuctx current = NULL;
    if (!cuda)
        return GDN_FAIL(GDN_E_NOT_LOADED, "the plan is loaded on no device: call gdn_plan_load() before executing it");
    const gdni_curesult result = cuda->cuCtxGetCurrent(&current);
    if (result != 0) return failed(cuda, result, "cuCtxGetCurrent");
    *out = current ? gdni_modules_find(plan->modules, current) : NULL;
    return *out ? GDN_OK : not_loaded(cuda, current);
}

/* The variant that a call of num_tokens runs. */
static int variant_of(const gdn_plan *plan, int64_t num_tokens)
{
    return plan->variant_of_bucket[gdni_bucket_of(num_tokens)];
}

/* params: the operator's launch struct; a kernel takes it whole, by value. */
static gdn_status launch(const gdn_plan *plan, int variant, const uint32_t grid[3], void *params, gdn_stream stream)
{
    const struct gdni_loaded *loaded = NULL;
    void *arguments[] = { params };
    GDN_TRY(find_device(plan, &loaded));
    const struct gdni_spec *spec = &plan->specs[variant];
    const struct gdni_cuda *cuda = gdni_modules_cuda(plan->modules);
    const gdni_curesult result =
        cuda->cuLaunchKernel(loaded->functions[variant], grid[0], grid[1], grid[2], (unsigned)spec->threads, 1, 1,
                             (unsigned)spec->smem_bytes, stream, arguments, NULL);
    return result == 0 ? GDN_OK : failed(cuda, result, "cuLaunchKernel");
}

/* Of a batch without cu_seqlens: gdni_check_*_args() saw to it that it divides. */
static int64_t uniform_len(gdn_devptr cu_seqlens, int64_t num_tokens, int64_t num_seqs)
{
    return cu_seqlens ? 0 : num_tokens / num_seqs;
}

static struct gdni_prefill_params prefill_params(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    return (struct gdni_prefill_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .g = a->g,
        .beta = a->beta,
        .initial_state = a->initial_state,
        .cu_seqlens = a->cu_seqlens,
        .o = a->o,
        .final_state = a->final_state,
        .q_token_stride = (int64_t)p->num_q_heads * p->head_dim_qk,
        .k_token_stride = (int64_t)p->num_k_heads * p->head_dim_qk,
        .v_token_stride = (int64_t)p->num_v_heads * p->head_dim_v,
        .o_token_stride = (int64_t)p->num_heads * p->head_dim_v,
        .uniform_len = uniform_len(a->cu_seqlens, a->num_tokens, a->num_seqs),
        .num_heads = p->num_heads,
        .q_group = p->num_heads / p->num_q_heads,
        .k_group = p->num_heads / p->num_k_heads,
        .v_group = p->num_heads / p->num_v_heads,
        .num_seqs = (int32_t)a->num_seqs,
        .scale = a->has_scale ? a->scale : (float)(1.0 / sqrt((double)p->head_dim_qk)),
    };
}

gdn_status gdn_execute_prefill(const gdn_plan *plan, const gdn_prefill_args *args, gdn_devptr workspace,
                               size_t workspace_size, gdn_stream stream)
{
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    GDN_TRY(check_plan(plan, GDNI_OP_PREFILL));
    GDN_TRY(gdni_take_struct(&a, sizeof a, args, "gdn_prefill_args", sizeof a));
    GDN_TRY(gdni_check_prefill_args(&plan->problem, &a));
    GDN_TRY(check_workspace(plan, workspace, workspace_size));
    if (a.num_seqs == 0) return GDN_OK; /* sequences of no token still copy their states */
    struct gdni_prefill_params params = prefill_params(&plan->problem, &a);
    const int variant = variant_of(plan, a.num_tokens);
    uint32_t grid[3];
    GDN_TRY(gdni_spec_grid(&plan->specs[variant], &plan->problem, a.num_tokens, a.num_seqs, grid));
    return launch(plan, variant, grid, &params, stream);
}

gdn_status gdn_execute_conv1d_qkv(const gdn_plan *plan, const gdn_conv1d_args *args, gdn_stream stream)
{
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    GDN_TRY(check_plan(plan, GDNI_OP_CONV1D_QKV));
    GDN_TRY(gdni_take_struct(&a, sizeof a, args, "gdn_conv1d_args", sizeof a));
    GDN_TRY(gdni_check_conv1d_args(&plan->problem, &a));
    const int variant = variant_of(plan, a.num_tokens);
    struct gdni_conv1d_params params;
    uint32_t grid[3];
    GDN_TRY(gdni_conv1d_launch(&params, grid, &plan->specs[variant], &plan->problem, &a));
    return grid[0] ? launch(plan, variant, grid, &params, stream) : GDN_OK;
}
