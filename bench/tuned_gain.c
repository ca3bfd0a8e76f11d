/*
 * tuned_gain.c - what measured tables gain on calls that were not tuned: of each entry for this GPU, calls of other
 * sizes in its slot, once with the parameters that tables choose and once with the model's, in turns, by CUDA-graph
 * replay.
 *
 *     GDN_JIT_TUNING_PATH=h200.json tuned_gain --out held_out.jsonl --commit ID      (else: the built-in tables)
 *     tuning_report.py --held-out held_out.jsonl h200.json                           geometric mean, worst, table
 *
 * The tuner times calls of equal sequences, at half of a slot's largest by default; these are at eleven 32nds, of equal ones,
 * and at eleven 16ths, of a ramp of lengths and, of prefill of several sequences, of one long one beside short ones. Plans
 * have the slot's bounds, as an engine's are wider than its calls; conv's compute gates, as fused prologues do. As for the
 * tuner, cold and warm L2 count alike. Calls for which both choose the same parameters are counted, not timed.
 * Entries of head dims of 128, 16-bit data and up to 262144 tokens; gates, betas and states are float32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bench.h"
#include "common/inputs.h"

enum { DIM = 128, POOL_ROWS = 1 << 15, MOST_TOKENS = 1 << 18, MANY_SEQS = 96, MAX_SEQS = 128, MAX_SETS = 48 };
enum { TUNED, HEURISTIC, NUM_PLANS };
enum { COLD, WARM, NUM_L2 };

static struct bench_options options;
static gdn_ctx *ctx;
static gdn_target target;
static gdn_stream stream;
static int num_alike, num_timed;

/* ---- inputs: device tensors are repetitions of a pool ------------------------------------------------------------------- */

struct pool {
    gdn_devptr memory;
    size_t bytes;
};

static struct pool unit_rows[2], normal_rows[2], gates, betas; /* [0] bf16, [1] fp16 */

static struct pool pool_of(void *host, size_t bytes)
{
    const struct pool p = { cu_upload(host, bytes), bytes };
    free(host);
    return p;
}

static void make_pools(void)
{
    const size_t rows = (size_t)POOL_ROWS * DIM * 2, floats = (size_t)POOL_ROWS * 16;
    for (int i = 0; i < 2; ++i) {
        const gdn_dtype type = i ? GDN_F16 : GDN_BF16;
        unit_rows[i] = pool_of(bench_rows(type, POOL_ROWS, DIM, 1, 1, 21), rows);
        normal_rows[i] = pool_of(bench_rows(type, POOL_ROWS, DIM, 1, 0, 22), rows);
    }
    gates = pool_of(bench_gates("decay", POOL_ROWS, 16, 23), floats * sizeof(float));
    betas = pool_of(bench_betas(floats, 24), floats * sizeof(float));
}

static gdn_devptr filled(const struct pool *pool, size_t bytes)
{
    const gdn_devptr p = cu_alloc(bytes);
    for (size_t at = 0; at < bytes; at += pool->bytes)
        CU(cuMemcpyDtoDAsync(p + at, pool->memory, bytes - at < pool->bytes ? bytes - at : pool->bytes, stream));
    return p;
}

static gdn_devptr zeros(size_t bytes)
{
    const gdn_devptr p = cu_alloc(bytes);
    CU(cuMemsetD8Async(p, 0, bytes, stream));
    return p;
}

static bool is_conv(const gdn_tuning_entry *e)
{
    return strcmp(e->kernel, "conv1d_qkv") == 0;
}

/* ---- a call of an entry's slot ------------------------------------------------------------------------------------------ */

union args {
    gdn_prefill_args prefill;
    gdn_conv1d_args conv;
};

struct call {
    const gdn_tuning_entry *entry;
    bool conv;
    int64_t tokens, seqs;
    int32_t starts[MAX_SEQS + 1];
    gdn_plan *plans[NUM_PLANS];
    char *params[NUM_PLANS];
    gdn_devptr workspace;
    union args args[MAX_SETS];
    int sets;
};

static const struct {
    int numerator, denominator; /* of the slot's largest call */
    enum lengths { EVEN, RAMP, ONE_LONG } lengths;
} sizes[] = { { 11, 32, EVEN }, { 11, 16, RAMP }, { 11, 16, ONE_LONG } }; /* of none does a tuning ask */
enum { NUM_SIZES = sizeof sizes / sizeof sizes[0] };

/* Where sequence n starts: lengths in proportion to n + 1, or all SHORT, or alike; what is left over is the last one's. */
static int64_t start_of(const struct call *c, enum lengths lengths, int64_t n)
{
    enum { SHORT = 24 };
    if (lengths == RAMP) return c->tokens * (n * (n + 1) / 2) / (c->seqs * (c->seqs + 1) / 2);
    if (lengths == ONE_LONG && c->tokens > SHORT * c->seqs) return SHORT * n;
    return c->tokens * n / c->seqs;
}

static void fill_starts(struct call *c, enum lengths lengths)
{
    for (int64_t n = 0; n < c->seqs; ++n)
        c->starts[n] = (int32_t)start_of(c, lengths, n);
    c->starts[c->seqs] = (int32_t)c->tokens;
}

/* Three quarters of the class's most, which is in no other class; with no class many. */
static int64_t seqs_of(const gdn_tuning_entry *e, bool conv, enum lengths lengths)
{
    if (conv) return lengths == RAMP ? 7 : 1;
    if (e->seqs == 0) return MANY_SEQS;
    return e->seqs < 4 ? e->seqs : e->seqs * 3 / 4;
}

static gdn_plan *prefill_plan(const struct call *c, uint32_t flags)
{
    const gdn_tuning_entry *e = c->entry;
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    gdn_plan *plan;
    d.io_type = e->io_type;
    d.num_q_heads = e->num_q_heads, d.num_k_heads = e->num_k_heads, d.num_v_heads = e->num_v_heads;
    d.head_dim_qk = d.head_dim_v = DIM;
    d.flags = e->l2norm ? GDN_PREFILL_QK_L2NORM : 0;
    d.max_tokens = e->tokens, d.max_seqs = e->seqs ? e->seqs : MANY_SEQS;
    /* Where Hopper's kernel would serve, an entry of another one is of GDN_PLAN_GENERIC. */
    if (!e->l2norm && strcmp(e->kernel, "gdn_prefill_generic") == 0) flags |= GDN_PLAN_GENERIC;
    GDN(gdn_plan_prefill(ctx, &target, &d, flags, &plan));
    return plan;
}

static gdn_plan *conv_plan(const struct call *c, uint32_t flags)
{
    const gdn_tuning_entry *e = c->entry;
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    gdn_plan *plan;
    d.io_type = e->io_type;
    d.num_q_heads = e->num_q_heads, d.num_k_heads = e->num_k_heads, d.num_v_heads = e->num_v_heads;
    d.head_dim_qk = d.head_dim_v = DIM;
    d.width = e->width;
    d.flags = GDN_CONV_SILU | (e->l2norm ? GDN_CONV_L2_NORM : 0u);
    d.num_gate_heads = e->num_v_heads, d.dt_bias_type = e->io_type;
    d.max_tokens = e->tokens, d.max_seqs = c->seqs;
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &d, flags, &plan));
    return plan;
}

static void make_plans(struct call *c)
{
    const gdn_tuning_entry *e = c->entry;
    for (int i = 0; i < NUM_PLANS; ++i) {
        const uint32_t flags = i == HEURISTIC ? GDN_PLAN_HEURISTIC : 0;
        c->plans[i] = c->conv ? conv_plan(c, flags) : prefill_plan(c, flags);
        c->params[i] = bench_params(c->plans[i], e->tokens, c->seqs);
        if (strcmp(c->params[i], "{}") != 0) continue;
        fprintf(stderr, "a plan's dump names no parameters for %lld tokens\n", (long long)e->tokens);
        exit(1);
    }
}

static bool are_alike(const struct call *c)
{
    return strcmp(c->params[TUNED], c->params[HEURISTIC]) == 0;
}

static void load_plans(struct call *c)
{
    size_t most = 0;
    for (int i = 0; i < NUM_PLANS; ++i) {
        GDN(gdn_plan_load(c->plans[i], options.device));
        if (gdn_plan_workspace_size(c->plans[i]) > most) most = gdn_plan_workspace_size(c->plans[i]);
    }
    c->workspace = most ? cu_alloc(most) : 0;
}

static union args prefill_args(const struct call *c)
{
    const gdn_tuning_entry *e = c->entry;
    const int f16 = e->io_type == GDN_F16;
    const size_t t = (size_t)c->tokens, row = DIM * 2, hq = (size_t)e->num_q_heads, hk = (size_t)e->num_k_heads;
    const size_t hv = (size_t)e->num_v_heads, h = hv > hk ? (hv > hq ? hv : hq) : (hk > hq ? hk : hq);
    const size_t state = (size_t)c->seqs * h * DIM * DIM * sizeof(float);
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    a.q = filled(&unit_rows[f16], t * hq * row), a.k = filled(&unit_rows[f16], t * hk * row);
    a.v = filled(&normal_rows[f16], t * hv * row), a.o = cu_alloc(t * h * row);
    a.g = filled(&gates, t * h * sizeof(float)), a.beta = filled(&betas, t * h * sizeof(float));
    a.initial_state = zeros(state), a.final_state = cu_alloc(state);
    a.cu_seqlens = cu_upload(c->starts, (size_t)(c->seqs + 1) * sizeof c->starts[0]);
    a.num_tokens = c->tokens, a.num_seqs = c->seqs;
    return (union args){ .prefill = a };
}

static union args conv_args(const struct call *c)
{
    const gdn_tuning_entry *e = c->entry;
    const int f16 = e->io_type == GDN_F16;
    const size_t t = (size_t)c->tokens, row = DIM * 2, width = (size_t)e->width;
    const size_t hq = (size_t)e->num_q_heads, hk = (size_t)e->num_k_heads, hv = (size_t)e->num_v_heads,
                 h = hq + hk + hv;
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    a.x = filled(&normal_rows[f16], t * h * row);
    a.weight = filled(&normal_rows[f16], h * DIM * width * 2);
    a.q = cu_alloc(t * hq * row), a.k = cu_alloc(t * hk * row), a.v = cu_alloc(t * hv * row);
    a.a = filled(&normal_rows[f16], t * hv * 2), a.b = filled(&normal_rows[f16], t * hv * 2);
    a.a_log = filled(&gates, hv * sizeof(float)), a.dt_bias = filled(&normal_rows[f16], hv * 2);
    a.g = cu_alloc(t * hv * sizeof(float)), a.beta = cu_alloc(t * hv * sizeof(float));
    a.a_stride = a.b_stride = e->num_v_heads;
    a.state = zeros((size_t)c->seqs * h * row * (width - 1));
    a.cu_seqlens = cu_upload(c->starts, (size_t)(c->seqs + 1) * sizeof c->starts[0]);
    a.num_tokens = c->tokens, a.num_seqs = c->seqs, a.x_stride = (int64_t)h * DIM;
    return (union args){ .conv = a };
}

static void make_sets(struct call *c)
{
    gdn_cost cost = GDN_COST_INIT;
    GDN(gdn_plan_cost(c->plans[TUNED], c->tokens, c->seqs, &cost));
    c->sets = bench_rotation(cost.bytes);
    for (int i = 0; i < c->sets; ++i)
        c->args[i] = c->conv ? conv_args(c) : prefill_args(c);
    CU(cuStreamSynchronize(stream));
}

static void free_call(struct call *c)
{
    for (int i = 0; i < c->sets; ++i) {
        const gdn_prefill_args *p = &c->args[i].prefill;
        const gdn_conv1d_args *v = &c->args[i].conv;
        const gdn_devptr of_prefill[] = { p->q,           p->k,         p->v, p->o, p->g, p->beta, p->initial_state,
                                          p->final_state, p->cu_seqlens };
        const gdn_devptr of_conv[] = { v->x,     v->weight, v->q,       v->k, v->v, v->state, v->cu_seqlens, v->a, v->b,
                                       v->a_log, v->dt_bias, v->g,       v->beta };
        const gdn_devptr *const all = c->conv ? of_conv : of_prefill;
        const size_t count = c->conv ? sizeof of_conv / sizeof *of_conv : sizeof of_prefill / sizeof *of_prefill;
        for (size_t k = 0; k < count; ++k)
            CU(cuMemFree(all[k]));
    }
    if (c->workspace) CU(cuMemFree(c->workspace));
    for (int i = 0; i < NUM_PLANS; ++i) {
        gdn_plan_destroy(c->plans[i]);
        free(c->params[i]);
    }
}

/* ---- times -------------------------------------------------------------------------------------------------------------- */

static void execute(const struct call *c, int plan, const union args *a)
{
    const size_t size = gdn_plan_workspace_size(c->plans[plan]);
    if (c->conv)
        GDN(gdn_execute_conv1d_qkv(c->plans[plan], &a->conv, stream));
    else
        GDN(gdn_execute_prefill(c->plans[plan], &a->prefill, size ? c->workspace : 0, size, stream));
}

static cu_graph_exec capture(const struct call *c, int plan, int l2)
{
    execute(c, plan, &c->args[0]);
    CU(cuStreamSynchronize(stream));
    cu_capture_begin(stream);
    for (int i = 0; i < c->sets; ++i)
        execute(c, plan, &c->args[l2 == COLD ? i : 0]);
    return cu_capture_end(stream, NULL);
}

static struct bench_line line_of(const struct call *c, const char *name, int plan, const char *variant, int l2)
{
    const gdn_tuning_entry *e = c->entry;
    struct bench_line line = bench_line_init();
    line.op = c->conv ? "conv1d_qkv" : "gdn_prefill", line.impl = bench_impl(c->params[plan]), line.name = name;
    line.variant = variant, line.params = c->params[plan], line.method = "graph",
    line.l2 = l2 == COLD ? "cold" : "warm";
    line.dtype = e->io_type == GDN_BF16 ? "bf16" : "fp16";
    line.num_seqs = c->seqs, line.tokens = line.capacity = c->tokens, line.cu_seqlens = c->starts;
    if (c->conv) {
        line.features = e->l2norm ? "[\"l2_norm\", \"gates\"]" : "[\"gates\"]";
        line.q_dim = e->num_q_heads * DIM, line.k_dim = e->num_k_heads * DIM, line.v_dim = e->num_v_heads * DIM;
        line.width = e->width, line.layout = "packed";
        return line;
    }
    line.features = e->l2norm ? "[\"l2_norm\"]" : "[]";
    line.hq = e->num_q_heads, line.hk = e->num_k_heads, line.hv = e->num_v_heads, line.dk = line.dv = DIM;
    line.h0 = 1, line.state_dtype = "f32", line.layout = "thd", line.gates = "decay";
    return line;
}

/* A round is each plan once, cold and warm, beginning with the other one every time: drift hits both. */
static void compare(const struct call *c, const char *name)
{
    static const char *const variants[] = { "tuned", "heuristic" };
    cu_graph_exec graphs[NUM_PLANS][NUM_L2];
    struct bench_interleaved *race = bench_interleaved_new(NUM_PLANS * NUM_L2, options.samples);
    for (int p = 0; p < NUM_PLANS; ++p)
        for (int l2 = 0; l2 < NUM_L2; ++l2) {
            graphs[p][l2] = capture(c, p, l2);
            bench_interleaved_add(race, graphs[p][l2], c->sets);
        }
    bench_interleaved_run(race, &options, stream);
    for (int p = 0; p < NUM_PLANS; ++p)
        for (int l2 = 0; l2 < NUM_L2; ++l2) {
            struct bench_line line = line_of(c, name, p, variants[p], l2);
            line.times = bench_interleaved_times(race, p * NUM_L2 + l2);
            bench_write(&options, ctx, &line);
            CU(cuGraphExecDestroy(graphs[p][l2]));
        }
    bench_interleaved_free(race);
}

/* ---- entries ------------------------------------------------------------------------------------------------------------ */

static void run_size(const gdn_tuning_entry *e, int size)
{
    static const char *const names[] = { [EVEN] = "even", [RAMP] = "ramp", [ONE_LONG] = "one_long" };
    struct call *c = bench_alloc(sizeof *c);
    char name[128];
    memset(c, 0, sizeof *c);
    c->entry = e;
    c->conv = is_conv(e);
    c->tokens = e->tokens * sizes[size].numerator / sizes[size].denominator;
    c->seqs = seqs_of(e, c->conv, sizes[size].lengths);
    snprintf(name, sizeof name, "%s_%d_%d_%d%s_slot_%lldx%lld_%s", c->conv ? "conv" : "gdn", e->num_q_heads,
             e->num_k_heads, e->num_v_heads, e->l2norm ? "_norm" : "", (long long)e->tokens, (long long)e->seqs,
             names[sizes[size].lengths]);
    if (!options.filter || strstr(name, options.filter)) {
        fill_starts(c, sizes[size].lengths);
        make_plans(c);
        if (are_alike(c)) {
            ++num_alike;
        } else {
            load_plans(c);
            make_sets(c);
            compare(c, name);
            ++num_timed;
        }
        free_call(c);
    }
    free(c);
}

static int on_entry(void *user, const gdn_tuning_entry *e)
{
    const bool ours = strcmp(e->gpu_name, target.gpu_name) == 0 && e->num_sms == target.num_sms;
    (void)user;
    if (!ours || e->head_dim_qk != DIM || e->head_dim_v != DIM || e->io_type == GDN_F32 || e->tokens > MOST_TOKENS)
        return 0;
    const bool several = !is_conv(e) && e->seqs != 1;
    for (int i = 0; i < NUM_SIZES; ++i)
        if (several || sizes[i].lengths != ONE_LONG) run_size(e, i);
    return 0;
}

int main(int argc, char **argv)
{
    gdn_config config = GDN_CONFIG_INIT;
    options = bench_start(argc, argv, "Tuned against heuristic on calls that were not tuned, by CUDA-graph replay.");
    target = (gdn_target)GDN_TARGET_INIT;
    config.cache_dir = options.cache_dir;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_device(ctx, options.device, &target));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    make_pools();
    if (options.out) fclose(bench_open(&options)); /* there it is, also when no call differs */
    GDN(gdn_tuning_list(ctx, on_entry, NULL));
    printf("%d calls timed; %d run alike with both choices\n", num_timed, num_alike);
    CU(cuStreamDestroy(stream));
    gdn_ctx_destroy(ctx);
    if (num_timed + num_alike > 0 || !options.filter) return 0;
    fprintf(stderr, "no call has '%s' in its name, as conv_16_16_32_norm_slot_4096x0_even or gdn_16_16_32_slot_4096x8_ramp\n",
            options.filter);
    return 1;
}
