/*
 * preset_engine.c - an engine that serves any of the preset models and never compiles: what it needs must have been warmed.
 * It knows the models on its own, not by the tool's presets, and makes its descriptors as an engine would.
 *
 *   preset_engine [--largest] [NAME]
 *
 * NAME: a GPU that is not here, to plan for. Without, the H200 of the fake driver, where it also loads and executes calls of
 * every size. --largest: plans with the largest bounds alone, as an engine would, and not with every other beside.
 *
 * Prints how many plans there were. Exit status 1: something was not in the cache, or was compiled.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda/fakecuda.h"
#include "gdn_jit/gdn_jit.h"

/* Key heads are 16 and dims 128 in all of them; four taps, no bias. */
static const struct model {
    const char *name;
    int v_heads;
    gdn_conv_x_layout projection;
} models[] = {
    { "qwen3.5-0.8b", 16, GDN_CONV_X_PACKED },
    { "qwen3.5-2b", 16, GDN_CONV_X_PACKED },
    { "qwen3-next-80b-a3b", 32, GDN_CONV_X_INTERLEAVED },
    { "qwen3.5-4b", 32, GDN_CONV_X_PACKED },
    { "qwen3.5-9b", 32, GDN_CONV_X_PACKED },
    { "qwen3.5-35b-a3b", 32, GDN_CONV_X_PACKED },
    { "qwen3.5-27b", 48, GDN_CONV_X_PACKED },
    { "qwen3.6-27b", 48, GDN_CONV_X_PACKED },
    { "qwen3.8-27b", 48, GDN_CONV_X_PACKED },
    { "qwen4-exp", 48, GDN_CONV_X_PACKED },
    { "qwen3.5-122b", 64, GDN_CONV_X_PACKED },
    { "qwen3.5-397b", 64, GDN_CONV_X_PACKED },
    { "qwen3.8-2.4t", 128, GDN_CONV_X_PACKED },
};
static const int tps[] = { 1, 2, 4, 8 };

/* The edges of buckets and of classes of few sequences, and what engines are configured with between and beyond them. */
static const int64_t tokens[] = { 1, 256, 1024, 4096, 8192, 16384, 20000, 65536, 131072, 262144, 1048576, 4000000 };
static const int64_t seqs[] = { 1, 2, 4, 8, 16, 32, 64, 1024 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct engine {
    gdn_ctx *ctx;
    gdn_target target;
    const struct fake_controls *cuda; /* NULL: a target that is not here */
    long plans, calls;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "preset_engine: %s: %s\n", what, why);
    exit(1);
}

static void need(gdn_status status, const char *what)
{
    if (status == GDN_OK) return;
    fprintf(stderr, "preset_engine: %s: %s: %s\n", what, gdn_status_name(status), gdn_last_error());
    exit(1);
}

/* ---- calls: on the fake driver, which executes nothing and counts ---- */

static void execute_prefill(struct engine *e, const gdn_plan *plan, const gdn_prefill_desc *d, int64_t t, int64_t n)
{
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    const size_t workspace = gdn_plan_workspace_size(plan);
    a.q = 0x10000, a.k = 0x20000, a.v = 0x30000, a.g = 0x40000, a.beta = 0x50000, a.o = 0x60000;
    a.initial_state = a.final_state = 0x70000, a.cu_seqlens = 0x80000;
    if (d->gate == GDN_GATE_LOGITS) a.a_log = 0x90000;
    a.num_tokens = t;
    a.num_seqs = n;
    const int before = e->cuda->num_launches();
    need(gdn_execute_prefill(plan, &a, workspace ? 0xa0000 : 0, workspace, NULL), "gdn_execute_prefill");
    need(gdn_execute_prefill(plan, &a, 0, 0, NULL), "gdn_execute_prefill without a workspace");
    if (e->cuda->num_launches() != before + 2) die("gdn_execute_prefill", "two calls are not two launches");
    e->calls += 2;
}

static void execute_conv1d(struct engine *e, const gdn_plan *plan, const gdn_conv1d_desc *d, int64_t t, int64_t n)
{
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    a.x = 0x10000, a.weight = 0x20000, a.q = 0x40000, a.k = 0x50000, a.v = 0x60000;
    a.state = 0x70000, a.cu_seqlens = 0xa0000;
    a.a = 0xb0000, a.b = 0xc0000, a.a_log = 0xd0000, a.dt_bias = 0xe0000, a.g = 0xf0000, a.beta = 0x100000;
    if (d->num_gate_heads == 0) a.a = a.b = a.a_log = a.dt_bias = a.g = a.beta = 0;
    a.x_stride = 65536;
    a.num_tokens = t;
    a.num_seqs = n;
    const int before = e->cuda->num_launches();
    need(gdn_execute_conv1d_qkv(plan, &a, NULL), "gdn_execute_conv1d_qkv");
    if (e->cuda->num_launches() != before + 1) die("gdn_execute_conv1d_qkv", "a call is not one launch");
    ++e->calls;
}

/* ---- plans ---- */

static void prefill(struct engine *e, const gdn_prefill_desc *d, bool run)
{
    gdn_plan *plan = NULL;
    need(gdn_plan_prefill(e->ctx, &e->target, d, 0, &plan), "gdn_plan_prefill");
    ++e->plans;
    if (run && e->cuda) {
        need(gdn_plan_load(plan, 0), "gdn_plan_load");
        for (size_t i = 0; i < COUNT(tokens); ++i)
            for (size_t j = 0; j < COUNT(seqs); ++j)
                execute_prefill(e, plan, d, tokens[i], seqs[j]);
    }
    gdn_plan_destroy(plan);
}

static void conv1d(struct engine *e, const gdn_conv1d_desc *d, bool run)
{
    gdn_plan *plan = NULL;
    need(gdn_plan_conv1d_qkv(e->ctx, &e->target, d, 0, &plan), "gdn_plan_conv1d_qkv");
    ++e->plans;
    if (run && e->cuda) {
        need(gdn_plan_load(plan, 0), "gdn_plan_load");
        for (size_t i = 0; i < COUNT(tokens); ++i)
            execute_conv1d(e, plan, d, tokens[i], 7);
    }
    gdn_plan_destroy(plan);
}

/* One rank with one pair of bounds. */
struct rank {
    const struct model *model;
    int tp;
    int64_t max_tokens, max_seqs;
    bool run; /* also load and execute */
};

/* A row of the in-projection: with or without b and a behind q, k, v and z. */
static int32_t row_alignment(const struct rank *r, bool with_ba)
{
    const int k = 16 / r->tp, v = r->model->v_heads / r->tp;
    const int bytes = 2 * (2 * k * 128 + 2 * v * 128 + (with_ba ? 2 * v : 0));
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2;
}

static gdn_conv1d_desc conv1d_desc(const struct rank *r)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    d.num_q_heads = d.num_k_heads = 16 / r->tp;
    d.num_v_heads = r->model->v_heads / r->tp;
    d.head_dim_qk = d.head_dim_v = 128;
    d.max_tokens = r->max_tokens;
    d.max_seqs = r->max_seqs;
    return d;
}

/* The whole prologue in one launch; dt_bias as a C engine converts it, or as the checkpoint has it. */
static void fused_prologue(struct engine *e, const struct rank *r)
{
    gdn_conv1d_desc d = conv1d_desc(r);
    d.x_layout = r->model->projection;
    d.num_gate_heads = d.num_v_heads;
    d.flags = GDN_CONV_SILU | GDN_CONV_L2_NORM;
    for (int with_ba = 0; with_ba < 2; ++with_ba) {
        d.x_alignment = row_alignment(r, with_ba);
        d.dt_bias_type = GDN_F32;
        conv1d(e, &d, r->run);
        d.dt_bias_type = GDN_BF16;
        conv1d(e, &d, r->run);
    }
}

/* causal_conv1d_fn: rows that had to be reordered first are a packed tensor. */
static void plain_conv(struct engine *e, const struct rank *r)
{
    const bool is_view = r->model->projection == GDN_CONV_X_PACKED;
    gdn_conv1d_desc d = conv1d_desc(r);
    for (int with_ba = 0; with_ba <= is_view; ++with_ba) {
        d.x_alignment = row_alignment(r, with_ba);
        conv1d(e, &d, r->run);
    }
}

/* Of the fused prologue's outputs; of gates that the engine made; of raw a and b. */
static void all_prefills(struct engine *e, const struct rank *r)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    d.num_q_heads = d.num_k_heads = 16 / r->tp;
    d.num_v_heads = r->model->v_heads / r->tp;
    d.head_dim_qk = d.head_dim_v = 128;
    d.max_tokens = r->max_tokens;
    d.max_seqs = r->max_seqs;
    prefill(e, &d, r->run);
    d.flags = GDN_PREFILL_QK_L2NORM;
    prefill(e, &d, r->run);
    d.beta_type = GDN_BF16;
    prefill(e, &d, r->run);
    d.gate = GDN_GATE_LOGITS;
    d.beta = GDN_BETA_LOGITS;
    d.gate_type = GDN_BF16;
    prefill(e, &d, r->run);
}

static void serve(struct engine *e, const struct rank *r)
{
    fused_prologue(e, r);
    plain_conv(e, r);
    all_prefills(e, r);
}

/* Every model, with the bounds that have every bucket, and calls of every size. */
static void serve_all(struct engine *e)
{
    for (size_t m = 0; m < COUNT(models); ++m)
        for (size_t t = 0; t < COUNT(tps); ++t)
            serve(e, &(struct rank){ &models[m], tps[t], tokens[COUNT(tokens) - 1], seqs[COUNT(seqs) - 1], true });
}

static bool is_repeated(size_t model)
{
    for (size_t m = 0; m < model; ++m)
        if (models[m].v_heads == models[model].v_heads && models[m].projection == models[model].projection) return true;
    return false;
}

static void serve_every_bound(struct engine *e, const struct model *model, int tp)
{
    for (size_t i = 0; i < COUNT(tokens); ++i)
        for (size_t j = 0; j < COUNT(seqs); ++j)
            serve(e, &(struct rank){ model, tp, tokens[i], seqs[j], false });
}

static void open_engine(struct engine *e, const char *gpu)
{
    gdn_config config = GDN_CONFIG_INIT;
    config.flags = GDN_CTX_NO_COMPILE;
    config.nvrtc_path = "/nowhere/libnvrtc.so"; /* it is not even looked for */
    need(gdn_ctx_create(&e->ctx, &config), "gdn_ctx_create");
    e->target = (gdn_target)GDN_TARGET_INIT;
    if (gpu) {
        need(gdn_target_from_name(e->ctx, gpu, &e->target), gpu);
        return;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    e->cuda = library ? dlsym(library, "fake_controls") : NULL;
    if (!e->cuda) die("libcuda.so.1", "is not the fake driver");
    e->cuda->make_current(0);
    need(gdn_target_from_device(e->ctx, 0, &e->target), "gdn_target_from_device");
}

int main(int argc, char **argv)
{
    struct engine e = { 0 };
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    const bool largest = argc > 1 && strcmp(argv[1], "--largest") == 0;
    open_engine(&e, argv[largest ? 2 : 1]);
    serve_all(&e);
    for (size_t m = 0; m < COUNT(models) && !largest; ++m)
        for (size_t t = 0; t < COUNT(tps) && !is_repeated(m); ++t)
            serve_every_bound(&e, &models[m], tps[t]);
    need(gdn_cache_stat(e.ctx, &stats), "gdn_cache_stat");
    printf("%ld plans, %ld calls for %s (%s): %llu compiles, %llu cubins read\n", e.plans, e.calls, e.target.gpu_name,
           e.target.arch, (unsigned long long)stats.compiles, (unsigned long long)stats.disk_hits);
    gdn_ctx_destroy(e.ctx);
    return stats.compiles != 0;
}
