/*
 * gdn_bench.c - device time of both operators by CUDA-graph replay, beside a device copy of the same bytes, and the errors of
 * what was timed against the host reference.
 *
 *     gdn_bench --out bench/results/2026-11-21_h200.jsonl --commit $(git rev-parse --short HEAD)
 *
 * GDN rows are those of other kernels' published tables. Their errors are of two heads, the first (which has no decay with
 * the gates "mixed") and the last; conv1d-QKV is compared whole. See common/bench.h for what cold and warm mean.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "common/bench.h"
#include "common/inputs.h"

enum { DIM = 128, MAX_SETS = 48 };

static struct bench_options options;
static gdn_ctx *ctx;
static gdn_target target;
static gdn_stream stream;

static gdn_devptr upload(void *host, size_t bytes)
{
    const gdn_devptr p = cu_upload(host, bytes);
    free(host);
    return p;
}

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

struct error {
    double diff, norm, maxabs;
};

static void error_add(struct error *e, double x, double reference)
{
    const double d = fabs(x - reference);
    e->diff += d * d;
    e->norm += reference * reference;
    if (!(d <= e->maxabs)) e->maxabs = isnan(d) ? (double)INFINITY : d;
}

static double error_relative(const struct error *e)
{
    if (!isfinite(e->diff)) return (double)INFINITY;
    return sqrt(e->diff / (e->norm > 0.0 ? e->norm : 1.0));
}

/* ---- GDN prefill ------------------------------------------------------------------------------------------------------- */

struct gdn_row {
    const char *name;
    int hq, hv;
    gdn_dtype dtype;
    const char *gates;
    int h0;
    int num_seqs; /* 0: the 32 prompts below */
    int32_t len;
};

/* 32 prompts of 37 to 4000 tokens, 16384 in all. */
static const int32_t mixed_prompts[] = {
    37,  54,  156,  449, 1293, 37,  85,  245, 706, 4000, 46,  134,  386, 1112, 37,  73,
    184, 607, 1750, 40,  115,  332, 956, 37,  63,  181,  522, 1504, 37,  99,   285, 822,
};
enum { NUM_MIXED = sizeof mixed_prompts / sizeof mixed_prompts[0] };

static const struct gdn_row gdn_rows[] = {
    { "1x256_16_64", 16, 64, GDN_BF16, "decay", 1, 1, 256 },
    { "1x1024_16_64", 16, 64, GDN_BF16, "decay", 1, 1, 1024 },
    { "1x1024_16", 16, 16, GDN_F16, "decay", 0, 1, 1024 },
    { "1x1024_16", 16, 16, GDN_F16, "zero", 0, 1, 1024 },
    { "1x4096_16", 16, 16, GDN_F16, "decay", 0, 1, 4096 },
    { "1x4096_16", 16, 16, GDN_F16, "zero", 0, 1, 4096 },
    { "1x32768_16", 16, 16, GDN_F16, "decay", 0, 1, 32768 },
    { "1x32768_16", 16, 16, GDN_F16, "zero", 0, 1, 32768 },
    { "1x32768_16", 16, 16, GDN_F16, "mixed", 0, 1, 32768 },
    { "1x32768_16", 16, 16, GDN_BF16, "decay", 0, 1, 32768 },
    { "1x32768_16", 16, 16, GDN_BF16, "zero", 0, 1, 32768 },
    { "1x32768_16", 16, 16, GDN_BF16, "mixed", 0, 1, 32768 },
    { "1x65536_16", 16, 16, GDN_F16, "decay", 0, 1, 65536 },
    { "1x131072_16", 16, 16, GDN_F16, "decay", 0, 1, 131072 },
    { "1x131072_32", 32, 32, GDN_F16, "decay", 0, 1, 131072 },
    { "4x8192_16_32", 16, 32, GDN_BF16, "decay", 1, 4, 8192 },
    { "4x8192_16_48", 16, 48, GDN_BF16, "decay", 1, 4, 8192 },
    { "4x8192_16_64", 16, 64, GDN_BF16, "decay", 1, 4, 8192 },
    { "4x8192_16_64", 16, 64, GDN_F16, "decay", 1, 4, 8192 },
    { "mixed32_16_32", 16, 32, GDN_BF16, "decay", 1, 0, 0 },
    { "mixed32_16_64", 16, 64, GDN_BF16, "decay", 1, 0, 0 },
    { "1x32768_16_32", 16, 32, GDN_BF16, "decay", 1, 1, 32768 },
    { "1x32768_16_32", 16, 32, GDN_BF16, "mixed", 1, 1, 32768 },
    { "1x32768_16_64", 16, 64, GDN_BF16, "decay", 1, 1, 32768 },
    { "1x32768_16_64", 16, 64, GDN_BF16, "mixed", 1, 1, 32768 },
    { "tileops_1x32768_16", 16, 16, GDN_F16, "tileops", 0, 1, 32768 },
    { "tileops_1x65536_16", 16, 16, GDN_F16, "tileops", 0, 1, 65536 },
    { "tileops_1x131072_16", 16, 16, GDN_F16, "tileops", 0, 1, 131072 },
    { "tileops_1x131072_32", 32, 32, GDN_F16, "tileops", 0, 1, 131072 },
    { "tileops_1x2048_16", 16, 16, GDN_F16, "tileops", 0, 1, 2048 },
    { "tileops_1x65536_64", 64, 64, GDN_F16, "tileops", 0, 1, 65536 },
};

/* Host copies of one row's inputs, and of its outputs once it ran. */
struct gdn_data {
    const struct gdn_row *row;
    int64_t num_seqs, tokens;
    int32_t *cu_seqlens;
    uint16_t *q, *k, *v, *o;
    float *g, *beta, *h0, *state;
    float scale;
};

static void fill_lens(struct gdn_data *d)
{
    d->num_seqs = d->row->num_seqs ? d->row->num_seqs : NUM_MIXED;
    d->cu_seqlens = bench_alloc((size_t)(d->num_seqs + 1) * sizeof *d->cu_seqlens);
    d->cu_seqlens[0] = 0;
    for (int64_t n = 0; n < d->num_seqs; ++n)
        d->cu_seqlens[n + 1] = d->cu_seqlens[n] + (d->row->num_seqs ? d->row->len : mixed_prompts[n]);
    d->tokens = d->cu_seqlens[d->num_seqs];
}

static struct gdn_data gdn_data_create(const struct gdn_row *row)
{
    struct gdn_data d = { .row = row };
    const int as_tileops = strcmp(row->gates, "tileops") == 0;
    fill_lens(&d);
    const size_t t = (size_t)d.tokens, n = (size_t)d.num_seqs, hq = (size_t)row->hq, hv = (size_t)row->hv;
    d.q = bench_rows(row->dtype, t * hq, DIM, as_tileops ? 0.1 : 1.0, !as_tileops, 11);
    d.k = bench_rows(row->dtype, t * hq, DIM, as_tileops ? 0.1 : 1.0, !as_tileops, 12);
    d.v = bench_rows(row->dtype, t * hv, DIM, as_tileops ? 0.1 : 1.0, 0, 13);
    d.g = bench_gates(row->gates, t, row->hv, 14);
    d.beta = bench_betas(t * hv, 15);
    for (size_t i = 0; as_tileops && i < t * hv; ++i) {
        d.g[i] = bench_widen(row->dtype, bench_round(row->dtype, d.g[i]));
        d.beta[i] = 0.5f * (float)(i * 2654435761u % 65536u) / 65536.0f;
    }
    d.scale = as_tileops ? 1.0f : (float)(1.0 / sqrt(DIM));
    d.h0 = row->h0 ? bench_normals(n * hv * DIM * DIM, 1.0, 16) : NULL;
    d.o = bench_alloc(t * hv * DIM * sizeof *d.o);
    d.state = bench_alloc(n * hv * DIM * DIM * sizeof *d.state);
    return d;
}

static void gdn_data_free(struct gdn_data *d)
{
    free(d->cu_seqlens), free(d->q), free(d->k), free(d->v), free(d->o);
    free(d->g), free(d->beta), free(d->h0), free(d->state);
}

/* One head as a problem of its own, for the reference. */
struct head {
    const struct gdn_data *data;
    int h;
    struct error o, state;
};

/* Every `heads`-th item of `width` elements from column `h`. */
static void *gather(const void *from, size_t rows, int heads, int h, size_t item)
{
    char *out = bench_alloc(rows * item);
    for (size_t i = 0; i < rows; ++i)
        memcpy(out + i * item, (const char *)from + (i * (size_t)heads + (size_t)h) * item, item);
    return out;
}

static void compare_head(struct head *head, const uint16_t *o, const float *state)
{
    const struct gdn_data *d = head->data;
    const size_t t = (size_t)d->tokens, n = (size_t)d->num_seqs;
    uint16_t *ours = gather(d->o, t, d->row->hv, head->h, DIM * sizeof *ours);
    float *our_state = gather(d->state, n, d->row->hv, head->h, DIM * DIM * sizeof *our_state);
    for (size_t i = 0; i < t * DIM; ++i)
        error_add(&head->o, bench_widen(d->row->dtype, ours[i]), bench_widen(d->row->dtype, o[i]));
    for (size_t i = 0; i < n * DIM * DIM; ++i)
        error_add(&head->state, our_state[i], state[i]);
    free(ours), free(our_state);
}

static void *check_head(void *p)
{
    struct head *head = p;
    const struct gdn_data *d = head->data;
    const size_t t = (size_t)d->tokens, n = (size_t)d->num_seqs, row = DIM * sizeof(uint16_t);
    const int hq = d->row->hq, hv = d->row->hv, shared = head->h * hq / hv;
    uint16_t *q = gather(d->q, t, hq, shared, row), *k = gather(d->k, t, hq, shared, row);
    uint16_t *v = gather(d->v, t, hv, head->h, row), *o = bench_alloc(t * row);
    float *g = gather(d->g, t, hv, head->h, sizeof *g), *beta = gather(d->beta, t, hv, head->h, sizeof *beta);
    float *h0 = d->h0 ? gather(d->h0, n, hv, head->h, DIM * DIM * sizeof *h0) : NULL;
    float *state = bench_alloc(n * DIM * DIM * sizeof *state);
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    desc.io_type = d->row->dtype;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 1;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    desc.max_tokens = d->tokens;
    desc.max_seqs = d->num_seqs;
    args.q = (uintptr_t)q, args.k = (uintptr_t)k, args.v = (uintptr_t)v, args.o = (uintptr_t)o;
    args.g = (uintptr_t)g, args.beta = (uintptr_t)beta;
    args.initial_state = (uintptr_t)h0, args.final_state = (uintptr_t)state;
    args.cu_seqlens = (uintptr_t)d->cu_seqlens;
    args.num_tokens = d->tokens, args.num_seqs = d->num_seqs;
    args.scale = d->scale, args.has_scale = 1;
    GDN(gdn_reference_prefill(&desc, &args));
    compare_head(head, o, state);
    free(q), free(k), free(v), free(o), free(g), free(beta), free(h0), free(state);
    return NULL;
}

static void gdn_errors(const struct gdn_data *d, struct bench_line *line)
{
    struct head heads[2] = { { .data = d, .h = 0 }, { .data = d, .h = d->row->hv - 1 } };
    pthread_t thread;
    struct error o = { 0, 0, 0 }, state = { 0, 0, 0 };
    if (pthread_create(&thread, NULL, check_head, &heads[0]) != 0) exit(1);
    check_head(&heads[1]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; ++i) {
        o.diff += heads[i].o.diff, o.norm += heads[i].o.norm, o.maxabs = fmax(o.maxabs, heads[i].o.maxabs);
        state.diff += heads[i].state.diff, state.norm += heads[i].state.norm;
        state.maxabs = fmax(state.maxabs, heads[i].state.maxabs);
    }
    line->err_o = error_relative(&o), line->maxabs_o = o.maxabs;
    line->err_state = error_relative(&state), line->maxabs_state = state.maxabs;
}

static gdn_plan *gdn_plan_for(const struct gdn_data *d)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    gdn_plan *plan;
    desc.io_type = d->row->dtype;
    desc.num_q_heads = desc.num_k_heads = d->row->hq;
    desc.num_v_heads = d->row->hv;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    desc.max_tokens = d->tokens;
    desc.max_seqs = d->num_seqs;
    GDN(gdn_plan_prefill(ctx, &target, &desc, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    return plan;
}

/* Device tensors of one set: inputs copied from the host's. */
static gdn_prefill_args gdn_args_for(const struct gdn_data *d)
{
    const size_t t = (size_t)d->tokens, n = (size_t)d->num_seqs, hq = (size_t)d->row->hq, hv = (size_t)d->row->hv;
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    args.q = cu_upload(d->q, t * hq * DIM * 2);
    args.k = cu_upload(d->k, t * hq * DIM * 2);
    args.v = cu_upload(d->v, t * hv * DIM * 2);
    args.g = cu_upload(d->g, t * hv * 4);
    args.beta = cu_upload(d->beta, t * hv * 4);
    args.o = cu_alloc(t * hv * DIM * 2);
    args.initial_state = d->h0 ? cu_upload(d->h0, n * hv * DIM * DIM * 4) : 0;
    args.final_state = cu_alloc(n * hv * DIM * DIM * 4);
    args.cu_seqlens = cu_upload(d->cu_seqlens, (n + 1) * sizeof *d->cu_seqlens);
    args.num_tokens = d->tokens, args.num_seqs = d->num_seqs;
    args.scale = d->scale, args.has_scale = 1;
    return args;
}

static void gdn_args_free(gdn_prefill_args *a)
{
    const gdn_devptr all[] = { a->q, a->k, a->v, a->g, a->beta, a->o, a->initial_state, a->final_state, a->cu_seqlens };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
        if (all[i]) CU(cuMemFree(all[i]));
}

static struct bench_line gdn_line(const struct gdn_data *d)
{
    struct bench_line line = bench_line_init();
    line.op = "gdn_prefill", line.name = d->row->name;
    line.dtype = d->row->dtype == GDN_BF16 ? "bf16" : "fp16";
    line.num_seqs = d->num_seqs, line.tokens = line.capacity = d->tokens;
    line.hq = line.hk = d->row->hq, line.hv = d->row->hv, line.dk = line.dv = DIM;
    line.cu_seqlens = d->cu_seqlens, line.h0 = d->row->h0, line.state_dtype = "f32", line.layout = "thd";
    line.gates = d->row->gates, line.features = "[\"final_state\",\"state_kv\"]", line.method = "graph";
    return line;
}

static void time_gdn(const gdn_plan *plan, gdn_prefill_args *args, int sets, struct bench_line *line)
{
    const size_t workspace_size = gdn_plan_workspace_size(plan);
    const gdn_devptr workspace = workspace_size ? cu_alloc(workspace_size) : 0;
    cu_capture_begin(stream);
    for (int i = 0; i < sets; ++i)
        GDN(gdn_execute_prefill(plan, &args[i], workspace, workspace_size, stream));
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    line->times = bench_graph(&options, graph, sets, stream);
    CU(cuGraphExecDestroy(graph));
    if (workspace) CU(cuMemFree(workspace));
}

static void run_gdn_row(const struct gdn_row *row)
{
    struct gdn_data d = gdn_data_create(row);
    gdn_plan *plan = gdn_plan_for(&d);
    gdn_cost cost = GDN_COST_INIT;
    gdn_prefill_args args[MAX_SETS];
    struct bench_line line = gdn_line(&d);
    char *params = bench_params(plan, d.tokens, d.num_seqs);
    GDN(gdn_plan_cost(plan, d.tokens, d.num_seqs, &cost));
    const int sets = bench_rotation(cost.bytes);
    for (int i = 0; i < sets; ++i)
        args[i] = gdn_args_for(&d);
    line.l2 = "cold", line.params = params, line.impl = bench_impl(params);
    time_gdn(plan, args, sets, &line);
    CU(cuMemcpyDtoH(d.o, args[0].o, (size_t)d.tokens * (size_t)row->hv * DIM * 2));
    CU(cuMemcpyDtoH(d.state, args[0].final_state, (size_t)d.num_seqs * (size_t)row->hv * DIM * DIM * 4));
    if (!options.no_errors) gdn_errors(&d, &line);
    bench_write(&options, ctx, &line);
    for (int i = 0; i < sets; ++i)
        gdn_args_free(&args[i]);
    gdn_plan_destroy(plan);
    free(params);
    gdn_data_free(&d);
}

/* ---- conv1d-QKV -------------------------------------------------------------------------------------------------------- */

enum { WIDTH = 4, SKEWED_SEQS = 64 };

/* What a row asks for beside the convolution and the split. */
enum conv_work { CONV_BARE, CONV_SILU, CONV_PROLOGUE /* SiLU, q/k norm, gates */ };
enum conv_batch { CONV_ONE, CONV_SKEWED /* one long and 63 of 16 tokens */, CONV_EVEN /* 64 alike, as many tokens */ };

struct conv_row {
    const char *name;
    int q_heads, v_heads;
    gdn_dtype dtype;
    int32_t tokens;
    enum conv_work work;
    enum conv_batch batch;
};

#define CONV_TOKENS(name, q, v, work)                                                                                  \
    { name "_T512", q, v, GDN_BF16, 512, work, CONV_ONE }, { name "_T1024", q, v, GDN_BF16, 1024, work, CONV_ONE },    \
        { name "_T2048", q, v, GDN_BF16, 2048, work, CONV_ONE },                                                       \
        { name "_T4096", q, v, GDN_BF16, 4096, work, CONV_ONE },                                                       \
        { name "_T8192", q, v, GDN_BF16, 8192, work, CONV_ONE },                                                       \
    {                                                                                                                  \
        name "_T16384", q, v, GDN_BF16, 16384, work, CONV_ONE                                                          \
    }

static const struct conv_row conv_rows[] = {
    CONV_TOKENS("conv_2048x3", 16, 16, CONV_SILU),
    CONV_TOKENS("conv_bare_2048x3", 16, 16, CONV_BARE),
    CONV_TOKENS("conv_prologue_2048x3", 16, 16, CONV_PROLOGUE),
    { "conv_2048x3_T8192", 16, 16, GDN_F16, 8192, CONV_SILU, CONV_ONE },
    { "conv_qwen3next_T4096", 16, 32, GDN_BF16, 4096, CONV_SILU, CONV_ONE },
    { "conv_qwen3next_T8192", 16, 32, GDN_BF16, 8192, CONV_SILU, CONV_ONE },
    { "conv_prologue_qwen3next_T8192", 16, 32, GDN_BF16, 8192, CONV_PROLOGUE, CONV_ONE },
    { "conv_qwen3next_tp2_T8192", 8, 16, GDN_BF16, 8192, CONV_SILU, CONV_ONE },
    { "conv_qwen3next_tp4_T8192", 4, 8, GDN_BF16, 8192, CONV_SILU, CONV_ONE },
    { "conv_qwen3next_tp8_T2048", 2, 4, GDN_BF16, 2048, CONV_SILU, CONV_ONE },
    { "conv_qwen3next_tp8_T8192", 2, 4, GDN_BF16, 8192, CONV_SILU, CONV_ONE },
    { "conv_prologue_qwen3next_tp8_T8192", 2, 4, GDN_BF16, 8192, CONV_PROLOGUE, CONV_ONE },
    { "conv_skewed_2048x3_T17392", 16, 16, GDN_BF16, 17392, CONV_SILU, CONV_SKEWED },
    { "conv_even_2048x3_T17392", 16, 16, GDN_BF16, 17392, CONV_SILU, CONV_EVEN },
};

struct conv_data {
    const struct conv_row *row;
    int channels;
    uint16_t *x, *weight, *a, *b;
    float *head_values; /* a_log, dt_bias */
    int64_t num_seqs;
    int32_t cu_seqlens[SKEWED_SEQS + 1];
};

static void fill_conv_lens(struct conv_data *d)
{
    const int32_t tokens = d->row->tokens;
    d->num_seqs = d->row->batch == CONV_ONE ? 1 : SKEWED_SEQS;
    for (int n = 1; n <= d->num_seqs; ++n)
        d->cu_seqlens[n] = d->row->batch == CONV_SKEWED ? tokens - 16 * (SKEWED_SEQS - n)
                                                        : (int32_t)((int64_t)tokens * n / d->num_seqs);
}

static struct conv_data conv_data_create(const struct conv_row *row)
{
    struct conv_data d = { .row = row, .channels = (2 * row->q_heads + row->v_heads) * DIM };
    const size_t t = (size_t)row->tokens, h = (size_t)row->v_heads;
    fill_conv_lens(&d);
    d.x = bench_rows(row->dtype, t * (size_t)(d.channels / DIM), DIM, 1.0, 0, 21);
    d.weight = bench_rows(row->dtype, (size_t)d.channels, WIDTH, 0.5, 0, 22);
    d.a = bench_rows(row->dtype, t, (int)h, 1.0, 0, 23);
    d.b = bench_rows(row->dtype, t, (int)h, 1.0, 0, 24);
    d.head_values = bench_normals(h, 1.0, 25);
    return d;
}

static void conv_data_free(struct conv_data *d)
{
    free(d->x), free(d->weight), free(d->a), free(d->b), free(d->head_values);
}

static gdn_conv1d_desc conv_desc(const struct conv_data *d)
{
    const bool prologue = d->row->work == CONV_PROLOGUE;
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    desc.io_type = d->row->dtype;
    desc.num_q_heads = desc.num_k_heads = d->row->q_heads;
    desc.num_v_heads = d->row->v_heads;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    desc.num_gate_heads = prologue ? d->row->v_heads : 0;
    desc.width = WIDTH;
    desc.flags = (d->row->work == CONV_BARE ? 0u : GDN_CONV_SILU) | (prologue ? GDN_CONV_L2_NORM : 0u);
    desc.max_tokens = d->row->tokens;
    desc.max_seqs = d->num_seqs;
    return desc;
}

static gdn_conv1d_args conv_args_for(const struct conv_data *d)
{
    const size_t t = (size_t)d->row->tokens, c = (size_t)d->channels, hq = (size_t)d->row->q_heads;
    const size_t hv = (size_t)d->row->v_heads, n = (size_t)d->num_seqs;
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    args.x = cu_upload(d->x, t * c * 2);
    args.weight = cu_upload(d->weight, c * WIDTH * 2);
    args.q = cu_alloc(t * hq * DIM * 2);
    args.k = cu_alloc(t * hq * DIM * 2);
    args.v = cu_alloc(t * hv * DIM * 2);
    args.state = upload(calloc(n * c * (WIDTH - 1), 2), n * c * (WIDTH - 1) * 2);
    args.cu_seqlens = cu_upload(d->cu_seqlens, (n + 1) * sizeof *d->cu_seqlens);
    args.num_tokens = d->row->tokens, args.num_seqs = d->num_seqs, args.x_stride = d->channels;
    if (d->row->work != CONV_PROLOGUE) return args;
    args.a = cu_upload(d->a, t * hv * 2), args.b = cu_upload(d->b, t * hv * 2);
    args.a_log = cu_upload(d->head_values, hv * 4), args.dt_bias = cu_upload(d->head_values, hv * 4);
    args.g = cu_alloc(t * hv * 4), args.beta = cu_alloc(t * hv * 4);
    return args;
}

static void conv_args_free(gdn_conv1d_args *a)
{
    const gdn_devptr all[] = { a->x, a->weight, a->q, a->k,    a->v,     a->state,  a->cu_seqlens,
                               a->a, a->b,      a->g, a->beta, a->a_log, a->dt_bias };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
        if (all[i]) CU(cuMemFree(all[i]));
}

static void compare_conv(gdn_dtype dtype, gdn_devptr device, const uint16_t *reference, size_t n, struct error *e)
{
    uint16_t *ours = bench_alloc(n * sizeof *ours);
    CU(cuMemcpyDtoH(ours, device, n * sizeof *ours));
    for (size_t i = 0; i < n; ++i)
        error_add(e, bench_widen(dtype, ours[i]), bench_widen(dtype, reference[i]));
    free(ours);
}

/* Host copies of a call's outputs. */
struct conv_host {
    uint16_t *q, *k, *v, *state;
    float *g, *beta;
    size_t nq, nv, ns, ng;
};

static struct conv_host conv_host_create(const struct conv_data *d)
{
    const size_t t = (size_t)d->row->tokens, hv = (size_t)d->row->v_heads;
    struct conv_host h = { .nq = t * (size_t)d->row->q_heads * DIM, .nv = t * hv * DIM, .ng = t * hv };
    h.ns = (size_t)d->num_seqs * (size_t)d->channels * (WIDTH - 1);
    h.q = bench_alloc(h.nq * 2), h.k = bench_alloc(h.nq * 2), h.v = bench_alloc(h.nv * 2);
    h.g = bench_alloc(h.ng * 4), h.beta = bench_alloc(h.ng * 4);
    h.state = calloc(h.ns, 2);
    if (!h.state) exit(1);
    return h;
}

static gdn_conv1d_args conv_host_args(const struct conv_data *d, const struct conv_host *h,
                                      const gdn_conv1d_args *device)
{
    gdn_conv1d_args args = *device;
    args.x = (uintptr_t)d->x, args.weight = (uintptr_t)d->weight, args.state = (uintptr_t)h->state;
    args.q = (uintptr_t)h->q, args.k = (uintptr_t)h->k, args.v = (uintptr_t)h->v;
    args.cu_seqlens = (uintptr_t)d->cu_seqlens;
    if (d->row->work != CONV_PROLOGUE) return args;
    args.a = (uintptr_t)d->a, args.b = (uintptr_t)d->b, args.g = (uintptr_t)h->g, args.beta = (uintptr_t)h->beta;
    args.a_log = args.dt_bias = (uintptr_t)d->head_values;
    return args;
}

/* From a zero state, whole, gates too; the state after it bit for bit. */
static void conv_errors(const struct conv_data *d, const gdn_plan *plan, gdn_conv1d_args *args, struct bench_line *line)
{
    const gdn_conv1d_desc desc = conv_desc(d);
    struct conv_host h = conv_host_create(d);
    struct error y = { 0, 0, 0 }, state = { 0, 0, 0 };
    const gdn_conv1d_args host = conv_host_args(d, &h, args);
    cu_copy_in(args->state, h.state, h.ns * 2);
    GDN(gdn_execute_conv1d_qkv(plan, args, stream));
    CU(cuStreamSynchronize(stream));
    GDN(gdn_reference_conv1d_qkv(&desc, &host));
    compare_conv(d->row->dtype, args->q, h.q, h.nq, &y);
    compare_conv(d->row->dtype, args->k, h.k, h.nq, &y);
    compare_conv(d->row->dtype, args->v, h.v, h.nv, &y);
    compare_conv(d->row->dtype, args->state, h.state, h.ns, &state);
    line->err_o = error_relative(&y), line->maxabs_o = y.maxabs;
    line->err_state = error_relative(&state), line->maxabs_state = state.maxabs;
    free(h.q), free(h.k), free(h.v), free(h.state), free(h.g), free(h.beta);
}

static struct bench_line conv_line(const struct conv_data *d, const char *impl, const char *l2)
{
    struct bench_line line = bench_line_init();
    line.op = "conv1d_qkv", line.impl = impl, line.name = d->row->name, line.l2 = l2, line.method = "graph";
    line.dtype = d->row->dtype == GDN_BF16 ? "bf16" : "fp16";
    line.num_seqs = d->num_seqs, line.tokens = line.capacity = d->row->tokens, line.cu_seqlens = d->cu_seqlens;
    line.q_dim = line.k_dim = d->row->q_heads * DIM, line.v_dim = d->row->v_heads * DIM, line.width = WIDTH;
    line.layout = "packed";
    return line;
}

static const char *const features[] = { "[\"state\"]", "[\"silu\",\"state\"]",
                                        "[\"silu\",\"state\",\"l2_norm\",\"gates\"]" };

enum { MOST_TOKENS_CHECKED = 4096 }; /* the reference is slow; tests/gpu checks every situation */

/* Ours and a copy of the same bytes, one after the other. */
static void time_conv(const struct conv_data *d, const gdn_plan *plan, gdn_conv1d_args *args, int sets, double bytes)
{
    const char *l2 = sets > 1 || bytes > 240e6 ? "cold" : "warm";
    struct bench_line copy = conv_line(d, "copy", l2), line = conv_line(d, "gdn-jit", l2);
    char *params = bench_params(plan, d->row->tokens, 1);
    cu_capture_begin(stream);
    for (int i = 0; i < sets; ++i)
        GDN(gdn_execute_conv1d_qkv(plan, &args[i], stream));
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    copy.times = bench_copy(&options, bytes, sets, stream);
    line.times = bench_graph(&options, graph, sets, stream);
    line.ratio_to_copy = copy.times.median_us / line.times.median_us;
    line.features = features[d->row->work], line.params = params;
    CU(cuGraphExecDestroy(graph));
    if (!options.no_errors && d->row->tokens <= MOST_TOKENS_CHECKED) conv_errors(d, plan, &args[0], &line);
    bench_write(&options, ctx, &copy);
    bench_write(&options, ctx, &line);
    free(params);
}

static void run_conv_row(const struct conv_row *row)
{
    struct conv_data d = conv_data_create(row);
    const gdn_conv1d_desc desc = conv_desc(&d);
    gdn_conv1d_args args[MAX_SETS];
    gdn_cost cost = GDN_COST_INIT;
    gdn_plan *plan;
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    GDN(gdn_plan_cost(plan, row->tokens, d.num_seqs, &cost));
    const int sets = bench_rotation(cost.bytes);
    for (int i = 0; i < sets; ++i)
        args[i] = conv_args_for(&d);
    time_conv(&d, plan, args, sets, cost.bytes);
    if (sets > 1) time_conv(&d, plan, args, 1, cost.bytes);
    for (int i = 0; i < sets; ++i)
        conv_args_free(&args[i]);
    gdn_plan_destroy(plan);
    conv_data_free(&d);
}

static void open_library(void)
{
    gdn_config config = GDN_CONFIG_INIT;
    const gdn_target unset = GDN_TARGET_INIT;
    config.cache_dir = options.cache_dir;
    target = unset;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_device(ctx, options.device, &target));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

int main(int argc, char **argv)
{
    options = bench_start(argc, argv, "Device time of conv1d-QKV and GDN prefill, by CUDA-graph replay.");
    open_library();
    for (size_t i = 0; i < sizeof conv_rows / sizeof conv_rows[0]; ++i)
        if (!options.filter || strstr(conv_rows[i].name, options.filter)) run_conv_row(&conv_rows[i]);
    for (size_t i = 0; i < sizeof gdn_rows / sizeof gdn_rows[0]; ++i)
        if (!options.filter || strstr(gdn_rows[i].name, options.filter)) run_gdn_row(&gdn_rows[i]);
    CU(cuStreamDestroy(stream));
    gdn_ctx_destroy(ctx);
    return 0;
}
