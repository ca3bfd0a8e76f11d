/*
 * prefill_features.c - what each convention of GDN prefill costs: the same work with one of them changed, beside the default,
 * by CUDA-graph replay. 4 prompts of 8192 tokens, and 1 of 1024; 16 q and k heads, 32 v heads of 128, bf16, float32 states.
 *
 *     prefill_features --out results.jsonl --commit ID
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"
#include "common/inputs.h"

enum { HK = 16, HV = 32, DIM = 128, EVERY = 1024, MAX_CHECKPOINTS = 64, MAX_SETS = 48 };

static struct bench_options options;
static gdn_ctx *ctx;
static gdn_target target = GDN_TARGET_INIT;
static gdn_stream stream;

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

struct feature {
    const char *name; /* as the results file has it */
    gdn_dtype state_type;
    gdn_gate gate;
    gdn_dtype gate_type;
    gdn_beta beta;
    gdn_dtype beta_type;
    uint32_t flags;
    bool head_major, slots, checkpoints;
};

#define STATE  GDN_F32
#define GATE   GDN_GATE_LOG, GDN_F32
#define BETA   GDN_BETA_PLAIN, GDN_F32
#define LAYOUT false, false, false
/* clang-format off */
static const struct feature features[] = {
    { "none", STATE, GATE, BETA, 0, LAYOUT },
    { "qk_l2norm", STATE, GATE, BETA, GDN_PREFILL_QK_L2NORM, LAYOUT },
    { "gate_linear", STATE, GDN_GATE_LINEAR, GDN_F32, BETA, 0, LAYOUT },
    { "gate_logits_bf16", STATE, GDN_GATE_LOGITS, GDN_BF16, BETA, 0, LAYOUT },
    { "beta_logits_bf16", STATE, GATE, GDN_BETA_LOGITS, GDN_BF16, 0, LAYOUT },
    { "state_bf16", GDN_BF16, GATE, BETA, 0, LAYOUT },
    { "bhtd", STATE, GATE, BETA, 0, true, false, false },
    { "slots", STATE, GATE, BETA, 0, false, true, false },
    { "checkpoints_off", STATE, GATE, BETA, GDN_PREFILL_CHECKPOINTS, LAYOUT },
    { "checkpoints_1024", STATE, GATE, BETA, GDN_PREFILL_CHECKPOINTS, false, false, true },
    { "zero_padding", STATE, GATE, BETA, GDN_PREFILL_ZERO_PADDING, LAYOUT },
};
/* clang-format on */

static const struct {
    const char *name;
    int32_t seqs, len;
} shapes[] = { { "4x8192_16_32", 4, 8192 }, { "1x4096_16_32", 1, 4096 }, { "1x1024_16_32", 1, 1024 } };

/* ---- inputs ------------------------------------------------------------------------------------------------------------ */

static gdn_devptr upload_rows(size_t rows, double scale, int unit, uint64_t seed)
{
    uint16_t *host = bench_rows(GDN_BF16, rows, DIM, scale, unit, seed);
    const gdn_devptr p = cu_upload(host, rows * DIM * sizeof *host);
    free(host);
    return p;
}

/* Takes over values. */
static gdn_devptr upload_gates(float *values, size_t count, gdn_dtype type)
{
    uint16_t *narrow = bench_alloc(count * sizeof *narrow);
    for (size_t i = 0; i < count; ++i)
        narrow[i] = bench_round(GDN_BF16, values[i]);
    const gdn_devptr p = type == GDN_F32 ? cu_upload(values, count * 4) : cu_upload(narrow, count * 2);
    free(values), free(narrow);
    return p;
}

/* The same decay in every kind; logits for a_log = dt_bias = 0. */
static gdn_devptr upload_decay(const struct feature *f, size_t tokens)
{
    float *g = bench_gates("decay", tokens, HV, 4);
    for (size_t i = 0; i < tokens * HV; ++i)
        g[i] = f->gate == GDN_GATE_LOG ? g[i] : f->gate == GDN_GATE_LINEAR ? expf(g[i]) : logf(expm1f(-g[i]));
    return upload_gates(g, tokens * HV, f->gate_type);
}

static gdn_devptr upload_beta(const struct feature *f, size_t tokens)
{
    float *beta = bench_betas(tokens * HV, 5);
    for (size_t i = 0; f->beta == GDN_BETA_LOGITS && i < tokens * HV; ++i)
        beta[i] = logf(beta[i] / (1 - beta[i]));
    return upload_gates(beta, tokens * HV, f->beta_type);
}

/* ---- one row ----------------------------------------------------------------------------------------------------------- */

static gdn_plan *plan_for(const struct feature *f, int64_t tokens, int64_t seqs)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    gdn_plan *plan;
    d.num_q_heads = d.num_k_heads = HK, d.num_v_heads = HV;
    d.head_dim_qk = d.head_dim_v = DIM;
    d.state_type = f->state_type, d.gate = f->gate, d.gate_type = f->gate_type, d.beta = f->beta,
    d.beta_type = f->beta_type;
    d.flags = f->flags;
    d.max_tokens = tokens, d.max_seqs = seqs;
    GDN(gdn_plan_prefill(ctx, &target, &d, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    return plan;
}

enum { MAX_SEQS = 15 };

static void fill_starts(int32_t starts[MAX_SEQS + 1], int32_t seqs, int32_t len)
{
    for (int n = 0; n <= seqs; ++n)
        starts[n] = n * len;
}

static gdn_devptr upload_starts(int32_t seqs, int32_t len)
{
    int32_t starts[MAX_SEQS + 1];
    fill_starts(starts, seqs, len);
    return cu_upload(starts, (size_t)(seqs + 1) * sizeof *starts);
}

static void add_checkpoints(gdn_prefill_args *a, int32_t seqs, int32_t len)
{
    int64_t rows[MAX_CHECKPOINTS][3];
    int64_t count = 0;
    for (int64_t n = 0; n < seqs; ++n)
        for (int64_t end = EVERY; end <= len; end += EVERY, ++count)
            rows[count][0] = n, rows[count][1] = end, rows[count][2] = seqs + count;
    a->checkpoints = cu_upload(rows, (size_t)count * sizeof *rows);
    a->num_checkpoints = count;
}

static void set_states(gdn_prefill_args *a, const struct feature *f, int32_t seqs)
{
    static const int32_t lines[] = { 2, 0, 3, 1 };
    const size_t line = (size_t)HV * DIM * DIM * (f->state_type == GDN_F32 ? 4 : 2);
    const gdn_devptr pool = cu_alloc((size_t)(seqs + MAX_CHECKPOINTS) * line);
    CU(cuMemsetD8Async(pool, 0, (size_t)(seqs + MAX_CHECKPOINTS) * line, stream));
    CU(cuStreamSynchronize(stream));
    a->initial_state = a->final_state = pool;
    if (f->slots) a->slot_in = cu_upload(lines, sizeof lines);
}

/* Rows of the call: where padding is made zeros, as many again as the sequences have. */
static int64_t capacity_of(const struct feature *f, int32_t seqs, int32_t len)
{
    return (int64_t)seqs * len * (f->flags & GDN_PREFILL_ZERO_PADDING ? 2 : 1);
}

static gdn_prefill_args args_for(const struct feature *f, int32_t seqs, int32_t len)
{
    const size_t t = (size_t)capacity_of(f, seqs, len);
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    a.q = upload_rows(t * HK, 1, 1, 1), a.k = upload_rows(t * HK, 1, 1, 2), a.v = upload_rows(t * HV, 1, 0, 3);
    a.o = cu_alloc(t * HV * DIM * 2);
    a.g = upload_decay(f, t), a.beta = upload_beta(f, t);
    if (f->gate == GDN_GATE_LOGITS) {
        const float zeros[HV] = { 0 };
        a.a_log = cu_upload(zeros, sizeof zeros), a.dt_bias = cu_upload(zeros, sizeof zeros);
    }
    if (f->head_major) { /* a uniform batch [B, H, T, D] */
        const int64_t T = len;
        a.q_strides = a.k_strides = (gdn_strides){ HK * T * DIM, DIM, T * DIM };
        a.v_strides = a.o_strides = (gdn_strides){ HV * T * DIM, DIM, T * DIM };
        a.g_strides = a.beta_strides = (gdn_strides){ HV * T, 1, T };
    } else {
        a.cu_seqlens = upload_starts(seqs, len);
    }
    a.num_tokens = (int64_t)t, a.num_seqs = seqs;
    set_states(&a, f, seqs);
    if (f->checkpoints) add_checkpoints(&a, seqs, len);
    return a;
}

static void args_free(gdn_prefill_args *a)
{
    const gdn_devptr all[] = { a->q,     a->k,       a->v,           a->g,       a->beta,       a->o,
                               a->a_log, a->dt_bias, a->final_state, a->slot_in, a->cu_seqlens, a->checkpoints };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
        if (all[i]) CU(cuMemFree(all[i]));
}

static struct bench_times time_calls(const gdn_plan *plan, const gdn_prefill_args *args, int sets)
{
    const size_t workspace_size = gdn_plan_workspace_size(plan);
    const gdn_devptr workspace = workspace_size ? cu_alloc(workspace_size) : 0;
    cu_capture_begin(stream);
    for (int i = 0; i < sets; ++i)
        GDN(gdn_execute_prefill(plan, &args[i], workspace, workspace_size, stream));
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    const struct bench_times times = bench_graph(&options, graph, sets, stream);
    CU(cuGraphExecDestroy(graph));
    if (workspace) CU(cuMemFree(workspace));
    return times;
}

static void run(const char *shape, int32_t seqs, int32_t len, const struct feature *f, double *base)
{
    const int64_t tokens = (int64_t)seqs * len, capacity = capacity_of(f, seqs, len);
    static gdn_prefill_args args[MAX_SETS];
    char list[64];
    int32_t starts[MAX_SEQS + 1];
    gdn_cost cost = GDN_COST_INIT;
    struct bench_line line = bench_line_init();
    gdn_plan *plan = plan_for(f, capacity, seqs);
    char *params = bench_params(plan, capacity, seqs);
    GDN(gdn_plan_cost(plan, tokens, seqs, &cost));
    const int sets = bench_rotation(cost.bytes);
    for (int i = 0; i < sets; ++i)
        args[i] = args_for(f, seqs, len);
    snprintf(list, sizeof list, "[\"final_state\",\"%s\"]", f->name);
    line.op = "gdn_prefill", line.impl = bench_impl(params), line.name = shape, line.dtype = "bf16";
    fill_starts(starts, seqs, len);
    line.num_seqs = seqs, line.tokens = tokens, line.capacity = capacity, line.cu_seqlens = starts;
    line.hq = line.hk = HK, line.hv = HV, line.dk = line.dv = DIM, line.h0 = 1;
    line.state_dtype = f->state_type == GDN_F32 ? "f32" : "bf16", line.layout = f->head_major ? "htd" : "thd";
    line.gates = "decay", line.features = list, line.method = "graph", line.l2 = "cold", line.params = params;
    line.times = time_calls(plan, args, sets);
    bench_write(&options, ctx, &line);
    if (f == features) *base = line.times.median_us;
    printf("%-16s %-18s %9.1f us  x %.3f\n", shape, f->name, line.times.median_us, line.times.median_us / *base);
    for (int i = 0; i < sets; ++i)
        args_free(&args[i]);
    gdn_plan_destroy(plan);
    free(params);
}

int main(int argc, char **argv)
{
    gdn_config config = GDN_CONFIG_INIT;
    double base = 0;
    options = bench_start(argc, argv, "Device time of GDN prefill by convention, beside the default.");
    config.cache_dir = options.cache_dir;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_device(ctx, options.device, &target));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; ++s)
        for (size_t f = 0; f < sizeof features / sizeof features[0]; ++f)
            if (!options.filter || f == 0 || strstr(features[f].name, options.filter))
                run(shapes[s].name, shapes[s].seqs, shapes[s].len, &features[f], &base);
    CU(cuStreamDestroy(stream));
    gdn_ctx_destroy(ctx);
    return 0;
}
