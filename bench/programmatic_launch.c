/*
 * programmatic_launch.c - conv1d-QKV (norm, gates) and the GDN prefill behind it, by CUDA-graph replay: as two plain
 * launches, and with GDN_CONV_LAUNCH_DEPENDENTS and GDN_PREFILL_PROGRAMMATIC_LAUNCH. Times are of the pair. bf16, float32
 * states, head dims of 128.
 *
 *     programmatic_launch --out results.jsonl --commit ID [--filter SHAPE]
 */
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"
#include "common/inputs.h"

enum { DIM = 128, WIDTH = 4, MAX_SEQS = 32, MAX_SETS = 48 };

static struct bench_options options;
static gdn_ctx *ctx;
static gdn_target target = GDN_TARGET_INIT;
static gdn_stream stream;

static const struct shape {
    const char *name;
    int32_t seqs, len;
    int hk, hv;
} shapes[] = {
    { "1x512_16_32", 1, 512, 16, 32 },   { "1x1024_16_32", 1, 1024, 16, 32 }, { "1x4096_16_32", 1, 4096, 16, 32 },
    { "1x1024_8_16", 1, 1024, 8, 16 },   { "1x4096_8_16", 1, 4096, 8, 16 },   { "1x2048_2_4", 1, 2048, 2, 4 },
    { "1x8192_4_8", 1, 8192, 4, 8 },     { "32x128_4_8", 32, 128, 4, 8 },     { "32x512_16_32", 32, 512, 16, 32 },
    { "4x8192_16_32", 4, 8192, 16, 32 },
};

/* How the prefill is run: the kernel of few sequences, and the Hopper kernel's counter, need a workspace and clear it. */
static const struct mode {
    const char *impl;
    uint32_t plan_flags;
    bool workspace;
} modes[] = { { "gdn-jit-generic", GDN_PLAN_GENERIC, false }, { "gdn-jit", 0, true }, { "gdn-jit-hopper", 0, false } };

struct plans {
    gdn_plan *conv, *gdn;
};

struct set {
    gdn_conv1d_args conv;
    gdn_prefill_args gdn;
};

/* ---- inputs ------------------------------------------------------------------------------------------------------------ */

static gdn_devptr upload_rows(int64_t rows, double scale, uint64_t seed)
{
    uint16_t *host = bench_rows(GDN_BF16, (size_t)rows, DIM, scale, 0, seed);
    const gdn_devptr p = cu_upload(host, (size_t)rows * DIM * sizeof *host);
    free(host);
    return p;
}

static gdn_devptr upload_logits(int64_t count, uint64_t seed)
{
    float *values = bench_normals((size_t)count, 1.0, seed);
    uint16_t *narrow = bench_alloc((size_t)count * sizeof *narrow);
    for (int64_t i = 0; i < count; ++i)
        narrow[i] = bench_round(GDN_BF16, values[i]);
    const gdn_devptr p = cu_upload(narrow, (size_t)count * sizeof *narrow);
    free(values), free(narrow);
    return p;
}

static gdn_devptr zeros(size_t bytes)
{
    const gdn_devptr p = cu_alloc(bytes);
    CU(cuMemsetD8Async(p, 0, bytes, stream));
    CU(cuStreamSynchronize(stream));
    return p;
}

static void fill_starts(int32_t starts[MAX_SEQS + 1], const struct shape *s)
{
    for (int n = 0; n <= s->seqs; ++n)
        starts[n] = n * s->len;
}

static void make_conv(struct set *set, const struct shape *s, int64_t tokens)
{
    const int64_t heads = 2 * s->hk + s->hv;
    int32_t starts[MAX_SEQS + 1];
    gdn_conv1d_args *a = &set->conv;
    fill_starts(starts, s);
    *a = (gdn_conv1d_args)GDN_CONV1D_ARGS_INIT;
    a->x = upload_rows(tokens * heads, 1.0, 1), a->weight = upload_rows(heads * WIDTH, 0.5, 2);
    a->x_stride = heads * DIM;
    a->a_stride = a->b_stride = s->hv;
    a->a = upload_logits(tokens * s->hv, 3), a->b = upload_logits(tokens * s->hv, 4);
    a->a_log = zeros((size_t)s->hv * 4);
    a->q = cu_alloc((size_t)(tokens * s->hk) * DIM * 2), a->k = cu_alloc((size_t)(tokens * s->hk) * DIM * 2);
    a->v = cu_alloc((size_t)(tokens * s->hv) * DIM * 2);
    a->g = cu_alloc((size_t)(tokens * s->hv) * 4), a->beta = cu_alloc((size_t)(tokens * s->hv) * 4);
    a->state = zeros((size_t)(s->seqs * heads) * DIM * (WIDTH - 1) * 2);
    a->cu_seqlens = cu_upload(starts, (size_t)(s->seqs + 1) * sizeof *starts);
    a->num_tokens = tokens, a->num_seqs = s->seqs;
}

static void make_set(struct set *set, const struct shape *s, int64_t tokens)
{
    make_conv(set, s, tokens);
    gdn_prefill_args *a = &set->gdn;
    *a = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    a->q = set->conv.q, a->k = set->conv.k, a->v = set->conv.v, a->g = set->conv.g, a->beta = set->conv.beta;
    a->cu_seqlens = set->conv.cu_seqlens;
    a->o = cu_alloc((size_t)(tokens * s->hv) * DIM * 2);
    a->initial_state = a->final_state = zeros((size_t)(s->seqs * s->hv) * DIM * DIM * 4);
    a->num_tokens = tokens, a->num_seqs = s->seqs;
}

static void free_set(struct set *set)
{
    const gdn_conv1d_args *a = &set->conv;
    const gdn_devptr all[] = { a->x, a->weight, a->a,    a->b,     a->a_log,      a->q,       a->k,
                               a->v, a->g,      a->beta, a->state, a->cu_seqlens, set->gdn.o, set->gdn.final_state };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
        CU(cuMemFree(all[i]));
}

/* ---- one row ----------------------------------------------------------------------------------------------------------- */

static struct plans make_plans(const struct shape *s, const struct mode *m, int64_t tokens, bool early)
{
    gdn_conv1d_desc c = GDN_CONV1D_DESC_INIT;
    gdn_prefill_desc g = GDN_PREFILL_DESC_INIT;
    struct plans plans;
    c.num_q_heads = c.num_k_heads = g.num_q_heads = g.num_k_heads = s->hk;
    c.num_v_heads = c.num_gate_heads = g.num_v_heads = s->hv;
    c.head_dim_qk = c.head_dim_v = g.head_dim_qk = g.head_dim_v = DIM;
    c.flags |= GDN_CONV_L2_NORM | (early ? GDN_CONV_LAUNCH_DEPENDENTS : 0u);
    g.flags = early ? GDN_PREFILL_PROGRAMMATIC_LAUNCH : 0u;
    c.max_tokens = g.max_tokens = tokens, c.max_seqs = g.max_seqs = s->seqs;
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &c, 0, &plans.conv));
    GDN(gdn_plan_prefill(ctx, &target, &g, m->plan_flags, &plans.gdn));
    GDN(gdn_plan_load(plans.conv, options.device));
    GDN(gdn_plan_load(plans.gdn, options.device));
    return plans;
}

static struct bench_times time_pairs(const struct plans *plans, const struct mode *m, const struct set *list, int sets)
{
    const size_t size = m->workspace ? gdn_plan_workspace_size(plans->gdn) : 0;
    const gdn_devptr workspace = size ? cu_alloc(size) : 0;
    cu_capture_begin(stream);
    for (int i = 0; i < sets; ++i) {
        GDN(gdn_execute_conv1d_qkv(plans->conv, &list[i].conv, stream));
        GDN(gdn_execute_prefill(plans->gdn, &list[i].gdn, workspace, size, stream));
    }
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    const struct bench_times times = bench_graph(&options, graph, sets, stream);
    CU(cuGraphExecDestroy(graph));
    if (workspace) CU(cuMemFree(workspace));
    return times;
}

/* Of the pair; what the prefill reads of the conv counts twice. */
static double pair_bytes(const struct plans *plans, int64_t tokens, int64_t seqs)
{
    gdn_cost conv = GDN_COST_INIT, gdn = GDN_COST_INIT;
    GDN(gdn_plan_cost(plans->conv, tokens, seqs, &conv));
    GDN(gdn_plan_cost(plans->gdn, tokens, seqs, &gdn));
    return conv.bytes + gdn.bytes;
}

static double write_row(const struct shape *s, const struct mode *m, const struct set *list, int sets, bool early)
{
    const int64_t tokens = (int64_t)s->seqs * s->len;
    int32_t starts[MAX_SEQS + 1];
    struct bench_line line = bench_line_init();
    struct plans plans = make_plans(s, m, tokens, early);
    char *params = bench_params(plans.gdn, tokens, s->seqs);
    fill_starts(starts, s);
    line.op = "conv1d_qkv+gdn_prefill", line.impl = m->impl, line.name = s->name, line.dtype = "bf16";
    line.num_seqs = s->seqs, line.tokens = line.capacity = tokens, line.cu_seqlens = starts;
    line.hq = line.hk = s->hk, line.hv = s->hv, line.dk = line.dv = DIM, line.width = WIDTH, line.h0 = 1;
    line.state_dtype = "f32", line.layout = "packed", line.params = params;
    line.features = early ? "[\"silu\",\"norm\",\"gates\",\"state\",\"programmatic_launch\"]"
                          : "[\"silu\",\"norm\",\"gates\",\"state\"]";
    line.method = "graph", line.l2 = sets > 1 ? "cold" : NULL;
    line.times = time_pairs(&plans, m, list, sets);
    bench_write(&options, ctx, &line);
    gdn_plan_destroy(plans.conv);
    gdn_plan_destroy(plans.gdn);
    free(params);
    return line.times.median_us;
}

static void run_shape(const struct shape *s)
{
    static struct set list[MAX_SETS];
    const int64_t tokens = (int64_t)s->seqs * s->len;
    struct plans plans = make_plans(s, &modes[0], tokens, false);
    const int sets = bench_rotation(pair_bytes(&plans, tokens, s->seqs));
    gdn_plan_destroy(plans.conv);
    gdn_plan_destroy(plans.gdn);
    for (int i = 0; i < sets; ++i)
        make_set(&list[i], s, tokens);
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; ++m) {
        const double plain = write_row(s, &modes[m], list, sets, false);
        const double early = write_row(s, &modes[m], list, sets, true);
        printf("%-14s %-16s plain %9.2f us, programmatic %9.2f us: %+.2f us, x %.3f\n", s->name, modes[m].impl, plain,
               early, early - plain, early / plain);
    }
    for (int i = 0; i < sets; ++i)
        free_set(&list[i]);
}

int main(int argc, char **argv)
{
    gdn_config config = GDN_CONFIG_INIT;
    options = bench_start(argc, argv, "Device time of conv1d-QKV and GDN prefill, plain and with programmatic launch.");
    config.cache_dir = options.cache_dir;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_device(ctx, options.device, &target));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; ++s)
        if (!options.filter || strstr(shapes[s].name, options.filter)) run_shape(&shapes[s]);
    CU(cuStreamDestroy(stream));
    gdn_ctx_destroy(ctx);
    return 0;
}
