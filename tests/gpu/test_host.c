/*
 * test_host.c - plan, load, execute and the one-call forms on a real driver: what a fake one cannot prove.
 *
 * Keys are the same from a name and from the device; a second context on the same cache compiles nothing and plans in
 * milliseconds; one execute is one graph node; a captured chain of both operators replays with other lengths; the one-call
 * forms refuse to compile under capture; a plan is executed by many threads at once with the same bits as by one.
 */
#include <ftw.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "example_data.h"
#include "gpu_test.h"

enum { T = 700, N = 5, HK = 2, HV = 4, D = 128, C = (2 * HK + HV) * D, PITCH = C + HV * D, STATE = HV * D * D };
enum { MAX_COMPILE_MS = 2000, MAX_WARM_PLAN_MS = 10, THREADS = 8, ROUNDS = 50 };

static const int32_t lens_a[N + 1] = { 0, 1, 1, 130, 515, 700 };
static const int32_t lens_b[N + 1] = { 0, 300, 364, 364, 400, 600 }; /* rows from 600 on belong to nobody */

static struct gpu_options options;
static char cache_dir[] = "/tmp/gdn-test-host-XXXXXX";
static char detail[512];

/* A conv1d-QKV call and the prefill that reads its outputs, with buffers of their own. */
struct layer {
    gdn_conv1d_args conv;
    gdn_prefill_args gdn;
    gdn_stream stream;
    struct gpu_buffer o, state;
};

struct outputs {
    uint16_t o[T * HV * D];
    float state[N * STATE];
};

static gdn_conv1d_desc conv_desc(void)
{
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = HK;
    desc.num_v_heads = HV;
    desc.head_dim_qk = desc.head_dim_v = D;
    desc.max_tokens = 8192;
    desc.max_seqs = 64;
    return desc;
}

static gdn_prefill_desc gdn_desc(void)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = HK;
    desc.num_v_heads = HV;
    desc.head_dim_qk = desc.head_dim_v = D;
    desc.max_tokens = 8192;
    desc.max_seqs = 64;
    return desc;
}

static gdn_devptr upload_bf16(size_t n, float scale, uint64_t seed)
{
    uint16_t *x = example_bf16(n, scale, seed);
    const gdn_devptr p = cu_upload(x, n * sizeof *x);
    free(x);
    return p;
}

static gdn_devptr upload_f32(size_t n, float low, float high, uint64_t seed)
{
    float *x = example_f32(n, low, high, seed);
    const gdn_devptr p = cu_upload(x, n * sizeof *x);
    free(x);
    return p;
}

/* Equal seeds are equal inputs. */
static struct layer layer_create(uint64_t seed)
{
    struct layer l = { .conv = GDN_CONV1D_ARGS_INIT, .gdn = GDN_PREFILL_ARGS_INIT };
    CU(cuStreamCreate(&l.stream, CU_STREAM_NON_BLOCKING));
    l.o = gpu_buffer_filled(sizeof((struct outputs *)0)->o, GPU_NAN_FILL);
    l.state = gpu_buffer_filled(sizeof((struct outputs *)0)->state, GPU_NAN_FILL);
    l.conv.x = upload_bf16(T * PITCH, 0.2f, seed);
    l.conv.weight = upload_bf16(C * 4, 0.5f, seed + 1);
    l.conv.x_stride = PITCH;
    l.conv.q = l.gdn.q = cu_alloc(T * HK * D * 2);
    l.conv.k = l.gdn.k = cu_alloc(T * HK * D * 2);
    l.conv.v = l.gdn.v = cu_alloc(T * HV * D * 2);
    l.gdn.g = upload_f32(T * HV, -0.2f, 0.0f, seed + 2);
    l.gdn.beta = upload_f32(T * HV, 0.0f, 1.0f, seed + 3);
    l.gdn.o = l.o.p;
    l.gdn.final_state = l.state.p;
    l.conv.cu_seqlens = l.gdn.cu_seqlens = cu_upload(lens_a, sizeof lens_a);
    l.conv.num_tokens = l.gdn.num_tokens = T;
    l.conv.num_seqs = l.gdn.num_seqs = N;
    return l;
}

static void layer_destroy(struct layer *l)
{
    const gdn_devptr inputs[] = { l->conv.x, l->conv.weight, l->conv.q,   l->conv.k,
                                  l->conv.v, l->gdn.g,       l->gdn.beta, l->conv.cu_seqlens };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; ++i)
        CU(cuMemFree(inputs[i]));
    gpu_buffer_free(&l->o);
    gpu_buffer_free(&l->state);
    CU(cuStreamDestroy(l->stream));
}

/* Poisons what the layer will write and sets its lengths. */
static void layer_reset(const struct layer *l, const int32_t lens[N + 1])
{
    CU(cuMemsetD8Async(l->gdn.o, GPU_NAN_FILL, l->o.bytes, l->stream));
    CU(cuMemsetD8Async(l->gdn.final_state, GPU_NAN_FILL, l->state.bytes, l->stream));
    CU(cuMemcpyHtoDAsync(l->gdn.cu_seqlens, lens, sizeof lens_a, l->stream));
}

static struct outputs *layer_read(const struct layer *l)
{
    struct outputs *out = gpu_malloc(sizeof *out);
    CU(cuStreamSynchronize(l->stream));
    gpu_buffer_read(&l->o, out->o);
    gpu_buffer_read(&l->state, out->state);
    return out;
}

static bool same_outputs(const struct outputs *a, const struct outputs *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Both plans of the layer, on a context of their own. */
struct session {
    gdn_ctx *ctx;
    gdn_target target;
    gdn_plan *conv, *gdn;
    double conv_ms, gdn_ms; /* of planning */
};

static gdn_ctx *open_context(const char *dir)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_ctx *ctx;
    config.cache_dir = dir;
    GDN(gdn_ctx_create(&ctx, &config));
    return ctx;
}

static struct session session_open(const char *dir)
{
    const gdn_conv1d_desc c = conv_desc();
    const gdn_prefill_desc g = gdn_desc();
    struct session s = { .ctx = open_context(dir), .target = GDN_TARGET_INIT };
    GDN(gdn_target_from_device(s.ctx, options.device, &s.target));
    const double start = gpu_now_us();
    GDN(gdn_plan_conv1d_qkv(s.ctx, &s.target, &c, 0, &s.conv));
    const double middle = gpu_now_us();
    GDN(gdn_plan_prefill(s.ctx, &s.target, &g, 0, &s.gdn));
    s.conv_ms = (middle - start) * 1e-3;
    s.gdn_ms = (gpu_now_us() - middle) * 1e-3;
    return s;
}

static void session_load(const struct session *s)
{
    GDN(gdn_plan_load(s->conv, options.device));
    GDN(gdn_plan_load(s->gdn, options.device));
}

static void session_close(struct session *s)
{
    gdn_plan_destroy(s->gdn);
    gdn_plan_destroy(s->conv);
    gdn_ctx_destroy(s->ctx);
}

static void execute(const struct session *s, const struct layer *l)
{
    GDN(gdn_execute_conv1d_qkv(s->conv, &l->conv, l->stream));
    GDN(gdn_execute_prefill(s->gdn, &l->gdn, 0, 0, l->stream));
}

static gdn_cache_stats stats_of(gdn_ctx *ctx)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    GDN(gdn_cache_stat(ctx, &stats));
    return stats;
}

struct text {
    size_t len;
    char bytes[65536];
};

static gdn_status append(void *user, const void *data, size_t size)
{
    struct text *text = user;
    if (size >= sizeof text->bytes - text->len) return GDN_E_NOMEM;
    memcpy(text->bytes + text->len, data, size);
    text->len += size;
    return GDN_OK;
}

/* Of the plan's kernels, as its dump says. */
static int slowest_compile_ms(const gdn_plan *plan)
{
    static const char member[] = "\"compile_ms\": ";
    static struct text json;
    int slowest = -1;
    json.len = 0;
    GDN(gdn_plan_dump(plan, GDN_DUMP_JSON, append, &json));
    json.bytes[json.len] = '\0';
    for (const char *at = strstr(json.bytes, member); at; at = strstr(at + 1, member))
        slowest = (int)fmax(slowest, atoi(at + strlen(member)));
    return slowest;
}

/* ---- the cases -------------------------------------------------------------------------------------------------------- */

static bool first_compile_is_fast(void)
{
    struct session s = session_open(cache_dir);
    const gdn_cache_stats stats = stats_of(s.ctx);
    const int conv_ms = slowest_compile_ms(s.conv), gdn_ms = slowest_compile_ms(s.gdn);
    snprintf(detail, sizeof detail,
             "%llu compiles, slowest: conv %d ms, prefill %d ms (limit %d); plans took %.0f and %.0f ms",
             (unsigned long long)stats.compiles, conv_ms, gdn_ms, MAX_COMPILE_MS, s.conv_ms, s.gdn_ms);
    session_close(&s);
    return stats.compiles >= 2 && conv_ms < MAX_COMPILE_MS && gdn_ms < MAX_COMPILE_MS;
}

static bool second_context_compiles_nothing(void)
{
    double conv_ms = 1e9, gdn_ms = 1e9;
    uint64_t compiles = 0, disk_hits = 0;
    for (int i = 0; i < 5; ++i) {
        struct session s = session_open(cache_dir);
        const gdn_cache_stats stats = stats_of(s.ctx);
        compiles += stats.compiles;
        disk_hits += stats.disk_hits;
        conv_ms = fmin(conv_ms, s.conv_ms);
        gdn_ms = fmin(gdn_ms, s.gdn_ms);
        session_close(&s);
    }
    snprintf(detail, sizeof detail, "plan from disk: conv %.2f ms, prefill %.2f ms (limit %d), %llu compiles", conv_ms,
             gdn_ms, MAX_WARM_PLAN_MS, (unsigned long long)compiles);
    return compiles == 0 && disk_hits >= 10 && conv_ms < MAX_WARM_PLAN_MS && gdn_ms < MAX_WARM_PLAN_MS;
}

static void key_of(gdn_ctx *ctx, const gdn_target *target, struct text *text)
{
    const gdn_prefill_desc g = gdn_desc();
    gdn_plan *plan;
    text->len = 0;
    GDN(gdn_plan_prefill(ctx, target, &g, 0, &plan));
    GDN(gdn_plan_dump(plan, GDN_DUMP_KEY, append, text));
    gdn_plan_destroy(plan);
}

static bool key_from_name_is_key_from_device(void)
{
    static struct text from_device, from_name;
    gdn_ctx *ctx = open_context(cache_dir);
    gdn_target device = GDN_TARGET_INIT, name = GDN_TARGET_INIT;
    GDN(gdn_target_from_device(ctx, options.device, &device));
    GDN(gdn_target_from_name(ctx, device.gpu_name, &name));
    key_of(ctx, &device, &from_device);
    key_of(ctx, &name, &from_name);
    gdn_ctx_destroy(ctx);
    snprintf(detail, sizeof detail, "\"%s\" is %s with %d SMs, %d bytes of L2; by name %s, %d, %d", device.gpu_name,
             device.arch, device.num_sms, device.l2_bytes, name.arch, name.num_sms, name.l2_bytes);
    return from_device.len > 0 && from_device.len == from_name.len &&
           memcmp(from_device.bytes, from_name.bytes, from_name.len) == 0 && device.num_sms == name.num_sms &&
           device.smem_per_block == name.smem_per_block;
}

static bool execute_before_load_is_refused(void)
{
    struct session s = session_open(cache_dir);
    struct layer l = layer_create(1);
    const gdn_status conv = gdn_execute_conv1d_qkv(s.conv, &l.conv, l.stream);
    const gdn_status gdn = gdn_execute_prefill(s.gdn, &l.gdn, 0, 0, l.stream);
    snprintf(detail, sizeof detail, "%s", gdn_last_error());
    layer_destroy(&l);
    session_close(&s);
    return conv == GDN_E_NOT_LOADED && gdn == GDN_E_NOT_LOADED;
}

static bool execute_without_a_context_is_refused(void)
{
    struct session s = session_open(cache_dir);
    struct layer l = layer_create(1);
    session_load(&s);
    CU(cuCtxSetCurrent(NULL));
    const gdn_status gdn = gdn_execute_prefill(s.gdn, &l.gdn, 0, 0, l.stream);
    CU(cuCtxSetCurrent(cu_primary));
    snprintf(detail, sizeof detail, "%s: %s", gdn_status_name(gdn), gdn_last_error());
    layer_destroy(&l);
    session_close(&s);
    return gdn == GDN_E_NOT_LOADED;
}

static bool load_leaves_the_current_context_alone(void)
{
    struct session s = session_open(cache_dir);
    CU(cuCtxSetCurrent(NULL));
    session_load(&s);
    session_load(&s);                             /* idempotent */
    const bool none = cu.cuCtxSynchronize() != 0; /* CUDA_ERROR_INVALID_CONTEXT: nothing was left current */
    CU(cuCtxSetCurrent(cu_primary));
    session_close(&s);
    return none;
}

static bool one_execute_is_one_node(void)
{
    struct session s = session_open(cache_dir);
    struct layer l = layer_create(1);
    size_t conv_nodes = 0, gdn_nodes = 0;
    session_load(&s);
    cu_capture_begin(l.stream);
    GDN(gdn_execute_conv1d_qkv(s.conv, &l.conv, l.stream));
    CU(cuGraphExecDestroy(cu_capture_end(l.stream, &conv_nodes)));
    cu_capture_begin(l.stream);
    GDN(gdn_execute_prefill(s.gdn, &l.gdn, 0, 0, l.stream));
    CU(cuGraphExecDestroy(cu_capture_end(l.stream, &gdn_nodes)));
    snprintf(detail, sizeof detail, "conv %zu, prefill %zu nodes", conv_nodes, gdn_nodes);
    layer_destroy(&l);
    session_close(&s);
    return conv_nodes == 1 && gdn_nodes == 1;
}

static bool replay_with_lens(const struct session *s, const struct layer *l, cu_graph_exec graph,
                             const int32_t lens[N + 1])
{
    layer_reset(l, lens);
    execute(s, l);
    struct outputs *eager = layer_read(l);
    layer_reset(l, lens);
    CU(cuGraphLaunch(graph, l->stream));
    struct outputs *replayed = layer_read(l);
    const bool same = same_outputs(eager, replayed);
    const size_t end = (size_t)lens[N] * HV * D; /* rows after the last sequence still hold the poison */
    bool untouched = true, written = true;
    for (size_t i = end; i < T * HV * D; ++i)
        untouched &= replayed->o[i] == 0xFFFF;
    for (size_t i = 0; i < end; ++i)
        written &= replayed->o[i] != 0xFFFF;
    free(eager), free(replayed);
    return same && untouched && written;
}

static bool graph_of_both_replays_with_other_lengths(void)
{
    struct session s = session_open(cache_dir);
    struct layer l = layer_create(3);
    size_t nodes = 0;
    session_load(&s);
    cu_capture_begin(l.stream);
    execute(&s, &l);
    cu_graph_exec graph = cu_capture_end(l.stream, &nodes);
    const bool a = replay_with_lens(&s, &l, graph, lens_a), b = replay_with_lens(&s, &l, graph, lens_b);
    const bool again = replay_with_lens(&s, &l, graph, lens_a);
    const bool guards = gpu_buffer_guards_intact(&l.o) && gpu_buffer_guards_intact(&l.state);
    snprintf(detail, sizeof detail, "%zu nodes; lengths of capture %s, other lengths %s, first again %s, guards %s",
             nodes, a ? "same bits" : "DIFFER", b ? "same bits" : "DIFFER", again ? "same bits" : "DIFFER",
             guards ? "intact" : "HIT");
    CU(cuGraphExecDestroy(graph));
    layer_destroy(&l);
    session_close(&s);
    return nodes == 2 && a && b && again && guards;
}

static bool one_call_refuses_to_compile_under_capture(void)
{
    gdn_ctx *ctx = open_context("");
    const gdn_prefill_desc desc = gdn_desc();
    const gdn_conv1d_desc cdesc = conv_desc();
    struct layer l = layer_create(4);
    size_t nodes = 0;
    cu_capture_begin(l.stream);
    const gdn_status cold = gdn_prefill(ctx, &desc, &l.gdn, 0, 0, l.stream);
    const gdn_status cold_conv = gdn_conv1d_qkv(ctx, &cdesc, &l.conv, l.stream);
    snprintf(detail, sizeof detail, "%s", gdn_last_error());
    CU(cuGraphExecDestroy(cu_capture_end(l.stream, &nodes))); /* the capture survived the refusals, and is empty */
    const bool compiled = stats_of(ctx).compiles != 0;
    GDN(gdn_conv1d_qkv(ctx, &cdesc, &l.conv, l.stream));
    GDN(gdn_prefill(ctx, &desc, &l.gdn, 0, 0, l.stream));
    struct outputs *eager = layer_read(&l);
    size_t warm_nodes = 0;
    cu_capture_begin(l.stream);
    GDN(gdn_conv1d_qkv(ctx, &cdesc, &l.conv, l.stream));
    GDN(gdn_prefill(ctx, &desc, &l.gdn, 0, 0, l.stream));
    cu_graph_exec graph = cu_capture_end(l.stream, &warm_nodes);
    layer_reset(&l, lens_a);
    CU(cuGraphLaunch(graph, l.stream));
    struct outputs *replayed = layer_read(&l);
    const bool same = same_outputs(eager, replayed);
    CU(cuGraphExecDestroy(graph));
    free(eager), free(replayed);
    layer_destroy(&l);
    gdn_ctx_destroy(ctx);
    return cold == GDN_E_NOT_LOADED && cold_conv == GDN_E_NOT_LOADED && !compiled && nodes == 0 && warm_nodes == 2 &&
           same;
}

struct thread_arg {
    const struct session *session;
    const struct outputs *expected;
    int different;
};

static void *execute_many_times(void *p)
{
    struct thread_arg *arg = p;
    CU(cuCtxSetCurrent(cu_primary));
    struct layer l = layer_create(5);
    for (int i = 0; i < (options.small ? 3 : ROUNDS); ++i) {
        layer_reset(&l, lens_a);
        execute(arg->session, &l);
        struct outputs *out = layer_read(&l);
        arg->different += !same_outputs(out, arg->expected);
        free(out);
    }
    layer_destroy(&l);
    return NULL;
}

static bool threads_share_a_plan(void)
{
    struct session s = session_open(cache_dir);
    struct layer l = layer_create(5);
    struct thread_arg args[THREADS];
    pthread_t threads[THREADS];
    int different = 0, started = 0;
    session_load(&s);
    layer_reset(&l, lens_a);
    execute(&s, &l);
    struct outputs *expected = layer_read(&l);
    for (; started < THREADS; ++started) {
        args[started] = (struct thread_arg){ &s, expected, 0 };
        if (pthread_create(&threads[started], NULL, execute_many_times, &args[started]) != 0) break;
    }
    for (int i = 0; i < started; ++i) {
        pthread_join(threads[i], NULL);
        different += args[i].different;
    }
    snprintf(detail, sizeof detail, "%d threads, %d runs with other bits", started, different);
    free(expected);
    layer_destroy(&l);
    session_close(&s);
    return started == THREADS && different == 0;
}

static bool default_stream_works(void)
{
    struct session s = session_open(cache_dir);
    struct layer l = layer_create(6);
    session_load(&s);
    layer_reset(&l, lens_a);
    execute(&s, &l);
    struct outputs *expected = layer_read(&l);
    layer_reset(&l, lens_a);
    CU(cuStreamSynchronize(l.stream));
    GDN(gdn_execute_conv1d_qkv(s.conv, &l.conv, NULL));
    GDN(gdn_execute_prefill(s.gdn, &l.gdn, 0, 0, NULL));
    CU(cuStreamSynchronize(NULL));
    struct outputs *out = layer_read(&l);
    const bool same = same_outputs(out, expected);
    free(out), free(expected);
    layer_destroy(&l);
    session_close(&s);
    return same;
}

static bool strict_context_serves_what_is_cached(void)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_prefill_desc desc = gdn_desc();
    gdn_ctx *ctx;
    struct layer l = layer_create(7);
    config.cache_dir = cache_dir;
    config.flags = GDN_CTX_NO_COMPILE;
    GDN(gdn_ctx_create(&ctx, &config));
    const gdn_status cached = gdn_prefill(ctx, &desc, &l.gdn, 0, 0, l.stream);
    CU(cuStreamSynchronize(l.stream));
    desc.state_layout = GDN_STATE_VK; /* nobody made this one */
    const gdn_status missing = gdn_prefill(ctx, &desc, &l.gdn, 0, 0, l.stream);
    snprintf(detail, sizeof detail, "%s", gdn_last_error());
    layer_destroy(&l);
    gdn_ctx_destroy(ctx);
    return cached == GDN_OK && missing == GDN_E_NOT_CACHED;
}

/* In this order: the first one fills the cache that the others find warm. */
static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    { "host/first_compile_is_fast", first_compile_is_fast },
    { "host/second_context_compiles_nothing", second_context_compiles_nothing },
    { "host/key_from_name_is_key_from_device", key_from_name_is_key_from_device },
    { "host/execute_before_load_is_refused", execute_before_load_is_refused },
    { "host/execute_without_a_context_is_refused", execute_without_a_context_is_refused },
    { "host/load_leaves_the_current_context_alone", load_leaves_the_current_context_alone },
    { "host/one_execute_is_one_node", one_execute_is_one_node },
    { "host/graph_of_both_replays_with_other_lengths", graph_of_both_replays_with_other_lengths },
    { "host/one_call_refuses_to_compile_under_capture", one_call_refuses_to_compile_under_capture },
    { "host/threads_share_a_plan", threads_share_a_plan },
    { "host/default_stream_works", default_stream_works },
    { "host/strict_context_serves_what_is_cached", strict_context_serves_what_is_cached },
};

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof cases / sizeof cases[0];
    options = gpu_parse_options(argc, argv, 1);
    for (size_t i = 0; options.list && i < count; ++i)
        puts(cases[i].name);
    if (options.list) return 0;
    gpu_require_device(&options);
    if (!mkdtemp(cache_dir)) {
        perror(cache_dir);
        return 1;
    }
    FILE *results = gpu_results_open(&options, "host.tsv", "case\tpassed\tdetail");
    for (size_t i = 0; i < count; ++i) {
        if (i > 0 && !gpu_selected(&options, cases[i].name)) continue;
        detail[0] = '\0';
        const bool passed = cases[i].run();
        gpu_report(passed, cases[i].name, detail);
        if (results) fprintf(results, "%s\t%d\t%s\n", cases[i].name, passed, detail);
    }
    if (results) fclose(results);
    nftw(cache_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return gpu_summary();
}
