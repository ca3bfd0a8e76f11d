/*
 * test_programmatic.c - conv1d-QKV with GDN_CONV_LAUNCH_DEPENDENTS and the prefill behind it with
 * GDN_PREFILL_PROGRAMMATIC_LAUNCH have the bits of the same pair without either flag.
 *
 * Everything that the pair writes is poisoned before every run, by nodes of the same graph: a prefill that read before the
 * conv had written would read NaN. Captured and replayed, one replay at a time and many in a row, and enqueued directly. The
 * edges between kernel nodes, of which a prefill that clears control words has two, must be programmatic ones.
 */
#include <string.h>

#include "example_data.h"
#include "gpu_prefill.h"

enum { D = 128, WIDTH = 4, MAX_SEQS = 40, REPLAYS = 20 };

/* What the pair writes. The conv's state is updated in place and starts as a number. */
enum { Q, K, V, G, BETA, CONV_STATE, O, STATE, NUM_OUTPUTS };
enum { NUMBER_FILL = 0x3c /* 0.0115 in bf16 */ };
/* What it reads. */
enum { X, WEIGHT, A, B, A_LOG, DT_BIAS, CU_SEQLENS, NUM_INPUTS };

struct shape {
    const char *name;
    int hk, hv, seqs, len; /* of the longest; the others have half of it and a little */
};

static const struct shape shapes[] = {
    { "one prompt", 4, 8, 1, 4000 },
    { "one head", 1, 1, 1, 700 },
    { "seven prompts", 16, 32, 7, 900 },
    { "forty prompts", 4, 8, 40, 200 },
};

static struct gpu_options options;
static gdn_ctx *ctx;

struct pair {
    const struct shape *shape;
    int64_t tokens;
    struct gpu_buffer in[NUM_INPUTS], out[NUM_OUTPUTS], workspace;
    gdn_conv1d_args conv;
    gdn_prefill_args gdn;
    gdn_stream stream;
};

struct plans {
    gdn_plan *conv, *gdn;
};

/* ---- tensors ---------------------------------------------------------------------------------------------------------- */

static struct gpu_buffer upload_bf16(int64_t n, float scale, uint64_t seed)
{
    uint16_t *x = example_bf16((size_t)n, scale, seed);
    const struct gpu_buffer buffer = gpu_buffer_from(x, (size_t)n * sizeof *x);
    free(x);
    return buffer;
}

static struct gpu_buffer upload_f32(int64_t n, float low, float high, uint64_t seed)
{
    float *x = example_f32((size_t)n, low, high, seed);
    const struct gpu_buffer buffer = gpu_buffer_from(x, (size_t)n * sizeof *x);
    free(x);
    return buffer;
}

static int64_t fill_starts(const struct shape *s, int32_t starts[MAX_SEQS + 1])
{
    starts[0] = 0;
    for (int n = 0; n < s->seqs; ++n)
        starts[n + 1] = starts[n] + (n ? s->len / 2 + n : s->len);
    return starts[s->seqs];
}

static void make_tensors(struct pair *p)
{
    const struct shape *s = p->shape;
    const int64_t t = p->tokens, c = (2 * s->hk + s->hv) * D, lines = s->seqs;
    const uint64_t seed = options.seed;
    p->in[X] = upload_bf16(t * c, 1.0f, seed);
    p->in[WEIGHT] = upload_bf16(c * WIDTH, 0.5f, seed + 1);
    p->in[A] = upload_bf16(t * s->hv, 1.0f, seed + 2);
    p->in[B] = upload_bf16(t * s->hv, 1.0f, seed + 3);
    p->in[A_LOG] = upload_f32(s->hv, -2.0f, 0.0f, seed + 4);
    p->in[DT_BIAS] = upload_f32(s->hv, -1.0f, 1.0f, seed + 5);
    const int64_t bytes[NUM_OUTPUTS] = { t * s->hk * D * 2, t * s->hk * D * 2,
                                         t * s->hv * D * 2, t * s->hv * 4,
                                         t * s->hv * 4,     lines * c * (WIDTH - 1) * 2,
                                         t * s->hv * D * 2, lines * s->hv * D * D * 4 };
    for (int i = 0; i < NUM_OUTPUTS; ++i)
        p->out[i] = gpu_buffer_filled((size_t)bytes[i], GPU_NAN_FILL);
}

static void set_args(struct pair *p)
{
    const struct gpu_buffer *in = p->in, *out = p->out;
    p->conv = (gdn_conv1d_args)GDN_CONV1D_ARGS_INIT;
    p->conv.x = in[X].p, p->conv.weight = in[WEIGHT].p;
    p->conv.x_stride = (2 * p->shape->hk + p->shape->hv) * (int64_t)D;
    p->conv.a_stride = p->conv.b_stride = p->shape->hv;
    p->conv.q = out[Q].p, p->conv.k = out[K].p, p->conv.v = out[V].p;
    p->conv.a = in[A].p, p->conv.b = in[B].p, p->conv.a_log = in[A_LOG].p, p->conv.dt_bias = in[DT_BIAS].p;
    p->conv.g = out[G].p, p->conv.beta = out[BETA].p, p->conv.state = out[CONV_STATE].p;
    p->gdn = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    p->gdn.q = out[Q].p, p->gdn.k = out[K].p, p->gdn.v = out[V].p;
    p->gdn.g = out[G].p, p->gdn.beta = out[BETA].p, p->gdn.o = out[O].p, p->gdn.final_state = out[STATE].p;
    p->conv.cu_seqlens = p->gdn.cu_seqlens = in[CU_SEQLENS].p;
    p->conv.num_tokens = p->gdn.num_tokens = p->tokens;
    p->conv.num_seqs = p->gdn.num_seqs = p->shape->seqs;
}

static struct pair open_pair(const struct shape *shape)
{
    struct pair p = { .shape = shape };
    int32_t starts[MAX_SEQS + 1];
    p.tokens = fill_starts(shape, starts);
    make_tensors(&p);
    p.in[CU_SEQLENS] = gpu_buffer_from(starts, (size_t)(shape->seqs + 1) * sizeof *starts);
    set_args(&p);
    CU(cuStreamCreate(&p.stream, CU_STREAM_NON_BLOCKING));
    return p;
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < NUM_INPUTS; ++i)
        gpu_buffer_free(&p->in[i]);
    for (int i = 0; i < NUM_OUTPUTS; ++i)
        gpu_buffer_free(&p->out[i]);
    gpu_buffer_free(&p->workspace);
    CU(cuStreamDestroy(p->stream));
}

/* ---- plans ------------------------------------------------------------------------------------------------------------ */

static gdn_plan *conv_plan(const struct pair *p, uint32_t flags)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan;
    d.num_q_heads = d.num_k_heads = p->shape->hk, d.num_v_heads = d.num_gate_heads = p->shape->hv;
    d.head_dim_qk = d.head_dim_v = D;
    d.flags |= GDN_CONV_L2_NORM | flags;
    d.max_tokens = p->tokens, d.max_seqs = MAX_SEQS;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &d, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    return plan;
}

static gdn_plan *prefill_plan(const struct pair *p, uint32_t flags)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    d.num_q_heads = d.num_k_heads = p->shape->hk, d.num_v_heads = p->shape->hv;
    d.head_dim_qk = d.head_dim_v = D;
    d.flags = flags;
    d.max_tokens = p->tokens, d.max_seqs = MAX_SEQS;
    return gpu_prefill_plan(ctx, options.device, &d);
}

static void plans_destroy(struct plans *plans)
{
    gdn_plan_destroy(plans->conv);
    gdn_plan_destroy(plans->gdn);
}

/* ---- runs ------------------------------------------------------------------------------------------------------------- */

static void enqueue(const struct pair *p, const struct plans *plans)
{
    for (int i = 0; i < NUM_OUTPUTS; ++i)
        CU(cuMemsetD8Async(p->out[i].p, i == CONV_STATE ? NUMBER_FILL : GPU_NAN_FILL, p->out[i].bytes, p->stream));
    GDN(gdn_execute_conv1d_qkv(plans->conv, &p->conv, p->stream));
    GDN(gdn_execute_prefill(plans->gdn, &p->gdn, p->workspace.p, p->workspace.bytes, p->stream));
}

static unsigned char *read_outputs(const struct pair *p)
{
    size_t bytes = 0;
    for (int i = 0; i < NUM_OUTPUTS; ++i)
        bytes += p->out[i].bytes;
    unsigned char *all = gpu_malloc(bytes), *at = all;
    for (int i = 0; i < NUM_OUTPUTS; at += p->out[i].bytes, ++i)
        gpu_buffer_read(&p->out[i], at);
    return all;
}

/* The first output that differs, guards included; NULL: none does. */
static const char *difference(const struct pair *p, const unsigned char *wanted)
{
    static const char *const names[NUM_OUTPUTS] = {
        "q", "k", "v", "g", "beta", "the conv's state", "o", "final_state"
    };
    unsigned char *got = read_outputs(p);
    const char *found = NULL;
    size_t at = 0;
    for (int i = 0; i < NUM_OUTPUTS && !found; at += p->out[i].bytes, ++i)
        if (memcmp(got + at, wanted + at, p->out[i].bytes) != 0 || !gpu_buffer_guards_intact(&p->out[i]))
            found = names[i];
    free(got);
    return found;
}

/* ---- the graph's edges ------------------------------------------------------------------------------------------------ */

struct edge { /* CUgraphEdgeData */
    unsigned char from_port, to_port, type, reserved[5];
};
enum { MAX_EDGES = 32, PROGRAMMATIC = 1 };

/* How many edges are programmatic; -1 where the driver cannot say (before CUDA 12.3). */
static int programmatic_edges(cu_graph graph)
{
    cu_result (*get_edges)(cu_graph, cu_node *, cu_node *, struct edge *, size_t *);
    cu_node from[MAX_EDGES], to[MAX_EDGES];
    struct edge edges[MAX_EDGES];
    size_t count = MAX_EDGES;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;
    symbol = library ? dlsym(library, "cuGraphGetEdges_v2") : NULL;
    if (!symbol) return -1;
    memcpy(&get_edges, &symbol, sizeof symbol);
    cu_check(get_edges(graph, from, to, edges, &count), "cuGraphGetEdges_v2", __FILE__, __LINE__);
    int found = 0;
    for (size_t i = 0; i < count; ++i)
        found += edges[i].type == PROGRAMMATIC;
    return found;
}

struct captured {
    cu_graph_exec exec;
    size_t nodes;
    int programmatic;
};

static struct captured capture(const struct pair *p, const struct plans *plans)
{
    struct captured c;
    cu_graph graph;
    cu_capture_begin(p->stream);
    enqueue(p, plans);
    CU(cuStreamEndCapture(p->stream, &graph));
    CU(cuGraphGetNodes(graph, NULL, &c.nodes));
    c.programmatic = programmatic_edges(graph);
    CU(cuGraphInstantiate(&c.exec, graph, 0));
    CU(cuGraphDestroy(graph));
    return c;
}

/* Between each two kernels an edge, where control words are cleared one more: by a kernel, or without the flag by a memset. */
static const char *edge_trouble(const struct captured *c, bool flagged)
{
    const int wanted = flagged ? (int)c->nodes - NUM_OUTPUTS - 1 : 0;
    if (c->programmatic < 0) return NULL;
    if (c->programmatic > wanted) return "a programmatic edge that nobody asked for";
    if (c->programmatic < wanted) return "no programmatic edge";
    return NULL;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------ */

static const char *replays_differ(const struct pair *p, const struct captured *c, const unsigned char *wanted)
{
    const char *found = NULL;
    for (int i = 0; i < REPLAYS && !found; ++i) {
        CU(cuGraphLaunch(c->exec, p->stream));
        gpu_wait(p->stream);
        found = difference(p, wanted);
    }
    for (int i = 0; i < REPLAYS && !found; ++i)
        CU(cuGraphLaunch(c->exec, p->stream));
    gpu_wait(p->stream);
    return found ? found : difference(p, wanted);
}

static const char *direct_differ(const struct pair *p, const struct plans *plans, const unsigned char *wanted)
{
    for (int i = 0; i < REPLAYS; ++i)
        enqueue(p, plans);
    gpu_wait(p->stream);
    return difference(p, wanted);
}

/* Whether o begins as it was poisoned: two pairs that compute nothing would agree. */
static bool is_poison(const struct pair *p, const unsigned char *outputs)
{
    size_t at = 0;
    for (int i = 0; i < O; ++i)
        at += p->out[i].bytes;
    uint16_t first;
    memcpy(&first, outputs + at, sizeof first);
    return first == 0xffff;
}

static void run_shape(const char *name, const struct shape *shape)
{
    struct pair p = open_pair(shape);
    char detail[200];
    struct plans plain = { conv_plan(&p, 0), prefill_plan(&p, 0) };
    struct plans early = { conv_plan(&p, GDN_CONV_LAUNCH_DEPENDENTS),
                           prefill_plan(&p, GDN_PREFILL_PROGRAMMATIC_LAUNCH) };
    const size_t workspace_size = gpu_no_workspace ? 0 : gdn_plan_workspace_size(plain.gdn);
    if (workspace_size) p.workspace = gpu_buffer_filled(workspace_size, GPU_NAN_FILL);
    const struct captured without = capture(&p, &plain), with = capture(&p, &early);
    CU(cuGraphLaunch(without.exec, p.stream));
    gpu_wait(p.stream);
    unsigned char *wanted = read_outputs(&p);
    const char *trouble = edge_trouble(&without, false);
    if (!trouble) trouble = edge_trouble(&with, true);
    if (!trouble && is_poison(&p, wanted)) trouble = "o was not written";
    if (!trouble) trouble = replays_differ(&p, &with, wanted);
    if (!trouble) trouble = direct_differ(&p, &early, wanted);
    snprintf(detail, sizeof detail, "%lld tokens, %zu nodes, programmatic edges: %d%s%s", (long long)p.tokens,
             with.nodes, with.programmatic, trouble ? ", trouble: " : "", trouble ? trouble : "");
    gpu_report(!trouble, name, detail);
    CU(cuGraphExecDestroy(without.exec));
    CU(cuGraphExecDestroy(with.exec));
    free(wanted);
    plans_destroy(&plain);
    plans_destroy(&early);
    close_pair(&p);
}

static void run_job(void *user, int i)
{
    const struct shape *shape = ((const struct shape *const *)user)[i];
    char name[64];
    snprintf(name, sizeof name, "programmatic %s", shape->name);
    gpu_running(name);
    run_shape(name, shape);
}

static void require_sm_90(void)
{
    gdn_target target = GDN_TARGET_INIT;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    if (atoi(target.arch + strlen("sm_")) >= 90) return;
    printf("skipped: %s has no programmatic dependent launch\n", target.arch);
    exit(GPU_NO_DEVICE);
}

int main(int argc, char **argv)
{
    const struct shape *chosen[sizeof shapes / sizeof shapes[0]];
    int count = 0;
    options = gpu_parse_options(argc, argv, 7);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        if (!gpu_selected(&options, shapes[i].name) || (options.small && shapes[i].hk > 4)) continue;
        if (options.list) printf("programmatic %s\n", shapes[i].name);
        chosen[count++] = &shapes[i];
    }
    if (options.list) return 0;
    gpu_require_device(&options);
    ctx = gpu_context();
    require_sm_90();
    options.jobs = 1; /* a kernel of another case would keep the prefill from starting early */
    gpu_parallel(&options, count, run_job, chosen);
    gdn_ctx_destroy(ctx);
    return gpu_summary();
}
