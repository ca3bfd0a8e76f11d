/*
 * execute_overhead.c - host time of gdn_execute_*() beside a bare cuLaunchKernel of an empty kernel whose parameter struct has
 * the same size: what the library adds to a launch.
 *
 * Calls go in bursts that fit the launch queue, so that a call never waits for the device; the two are interleaved burst by
 * burst. The rule: at most 1 us more than the bare launch, 2 where tensor maps are encoded. Exit status 1 when a median breaks
 * it.
 */
#include <math.h>
#include <string.h>

#include "common/bench.h"

enum { BURST = 200, BURSTS = 200, HEADS = 16, DIM = 128, TOKENS = 64, MAX_ADDED_NS = 1000, WITH_MAPS_NS = 2000 };
enum { MANY_SEQS = 16 }; /* with HEADS more pairs than an H200 has SMs: a call whose states have tensor maps too */

static struct bench_options options;
static gdn_ctx *ctx;
static gdn_target target;
static gdn_stream stream;

/* ---- the bare launch ----------------------------------------------------------------------------------------------------- */

/* The driver compiles this text; nothing of the library is involved. */
static cu_function empty_kernel(int param_bytes)
{
    char ptx[512];
    cu_module module = NULL;
    cu_function function = NULL;
    snprintf(ptx, sizeof ptx,
             ".version 7.0\n.target sm_80\n.address_size 64\n"
             ".visible .entry empty(.param .align 8 .b8 params[%d])\n{\n    ret;\n}\n",
             param_bytes);
    CU(cuModuleLoadData(&module, ptx));
    CU(cuModuleGetFunction(&function, module, "empty"));
    return function;
}

/*
 * The device asserts the size of its launch struct in the generated source: "sizeof(<name>_params) == <bytes>". A struct with
 * tensor maps has their type there, too.
 */
static int param_bytes(const gdn_plan *plan, bool *has_maps)
{
    char *source = bench_dump(plan, GDN_DUMP_SOURCE);
    const char *at = strstr(source, "_params) == ");
    const int bytes = at ? atoi(at + strlen("_params) == ")) : 0;
    *has_maps = strstr(source, "struct alignas(64) tensor_map") != NULL;
    free(source);
    if (bytes > 0 && bytes <= 4096) return bytes;
    fprintf(stderr, "the plan's source has no assert on the size of its launch struct\n");
    exit(1);
}

/* ---- the operators ------------------------------------------------------------------------------------------------------- */

struct subject {
    const char *op, *name;
    int32_t starts[MANY_SEQS + 1]; /* of its sequences, TOKENS in all */
    int64_t num_seqs;
    gdn_plan *plan;
    gdn_prefill_args gdn;
    gdn_conv1d_args conv;
    cu_function empty;
    int bytes;
};

static gdn_devptr zeros(size_t bytes)
{
    const gdn_devptr p = cu_alloc(bytes);
    CU(cuMemsetD8Async(p, 0, bytes, NULL));
    CU(cuStreamSynchronize(NULL));
    return p;
}

static void part_tokens(struct subject *s, int num_seqs)
{
    s->num_seqs = num_seqs;
    for (int n = 0; n <= num_seqs; ++n)
        s->starts[n] = n * (TOKENS / num_seqs);
}

static struct subject prefill_subject(const char *name, uint32_t flags, int num_seqs)
{
    struct subject s = { .op = "gdn_prefill", .name = name, .gdn = GDN_PREFILL_ARGS_INIT };
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    part_tokens(&s, num_seqs);
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = HEADS;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    desc.flags = flags;
    desc.max_tokens = 1 << 20;
    desc.max_seqs = 256;
    GDN(gdn_plan_prefill(ctx, &target, &desc, 0, &s.plan));
    s.gdn.q = zeros(TOKENS * HEADS * DIM * 2);
    s.gdn.k = zeros(TOKENS * HEADS * DIM * 2);
    s.gdn.v = zeros(TOKENS * HEADS * DIM * 2);
    s.gdn.o = zeros(TOKENS * HEADS * DIM * 2);
    s.gdn.g = zeros(TOKENS * HEADS * 4);
    s.gdn.beta = zeros(TOKENS * HEADS * 4);
    s.gdn.initial_state = s.gdn.final_state = zeros((size_t)num_seqs * HEADS * DIM * DIM * 4);
    s.gdn.cu_seqlens = cu_upload(s.starts, sizeof s.starts);
    s.gdn.num_tokens = TOKENS;
    s.gdn.num_seqs = num_seqs;
    return s;
}

static struct subject conv_subject(void)
{
    struct subject s = { .op = "conv1d_qkv", .name = "execute_overhead", .conv = GDN_CONV1D_ARGS_INIT };
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    const size_t channels = 3 * HEADS * DIM;
    part_tokens(&s, 1);
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = HEADS;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    desc.max_tokens = 1 << 20;
    desc.max_seqs = 256;
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &s.plan));
    s.conv.x = zeros(TOKENS * channels * 2);
    s.conv.weight = zeros(channels * 4 * 2);
    s.conv.q = zeros(TOKENS * HEADS * DIM * 2);
    s.conv.k = zeros(TOKENS * HEADS * DIM * 2);
    s.conv.v = zeros(TOKENS * HEADS * DIM * 2);
    s.conv.state = zeros(channels * 3 * 2);
    s.conv.cu_seqlens = cu_upload(s.starts, sizeof s.starts);
    s.conv.num_tokens = TOKENS;
    s.conv.num_seqs = 1;
    s.conv.x_stride = (int64_t)channels;
    return s;
}

static void execute(const struct subject *s)
{
    if (s->gdn.q)
        GDN(gdn_execute_prefill(s->plan, &s->gdn, 0, 0, stream));
    else
        GDN(gdn_execute_conv1d_qkv(s->plan, &s->conv, stream));
}

/* ---- measuring ----------------------------------------------------------------------------------------------------------- */

/* ns of one call, of a burst. */
static double time_execute(const struct subject *s)
{
    CU(cuStreamSynchronize(stream));
    const double start = bench_now_us();
    for (int i = 0; i < BURST; ++i)
        execute(s);
    return (bench_now_us() - start) * 1e3 / BURST;
}

static double time_bare(const struct subject *s)
{
    static unsigned char params[4096];
    void *arguments[] = { params };
    CU(cuStreamSynchronize(stream));
    const double start = bench_now_us();
    for (int i = 0; i < BURST; ++i)
        CU(cuLaunchKernel(s->empty, HEADS, 1, 1, 128, 1, 1, 0, stream, arguments, NULL));
    return (bench_now_us() - start) * 1e3 / BURST;
}

static void write_line(const struct subject *s, const char *impl, double *ns, double *median_ns)
{
    struct bench_line line = bench_line_init();
    double mad_ns = 0.0;
    bench_median(ns, BURSTS, median_ns, &mad_ns);
    line.op = s->op, line.impl = impl, line.name = s->name, line.method = "host", line.dtype = "bf16";
    line.num_seqs = s->num_seqs, line.tokens = TOKENS, line.cu_seqlens = s->starts, line.capacity = 1 << 20;
    if (s->gdn.q)
        line.hq = line.hk = line.hv = HEADS, line.dk = line.dv = DIM;
    else
        line.q_dim = line.k_dim = line.v_dim = HEADS * DIM, line.width = 4;
    line.times = (struct bench_times){ .median_us = *median_ns * 1e-3, .mad_us = mad_ns * 1e-3, .samples = BURSTS };
    bench_write(&options, ctx, &line);
}

/* 0 when the library adds no more than the rule allows. */
static int measure(struct subject *s)
{
    static double ours[BURSTS], bare[BURSTS];
    double our_ns = 0.0, bare_ns = 0.0;
    bool has_maps;
    GDN(gdn_plan_load(s->plan, options.device));
    s->bytes = param_bytes(s->plan, &has_maps);
    const int most = has_maps ? WITH_MAPS_NS : MAX_ADDED_NS;
    s->empty = empty_kernel(s->bytes);
    time_execute(s), time_bare(s);
    for (int i = 0; i < BURSTS; ++i) {
        bare[i] = time_bare(s);
        ours[i] = time_execute(s);
    }
    write_line(s, "empty", bare, &bare_ns);
    write_line(s, "gdn-jit", ours, &our_ns);
    const double added = our_ns - bare_ns;
    printf("%s %s: %d bytes of parameters, bare launch %.0f ns, execute %.0f ns: adds %.0f ns (limit %d)\n", s->op,
           s->name, s->bytes, bare_ns, our_ns, added, most);
    gdn_plan_destroy(s->plan);
    return added <= most ? 0 : 1;
}

static int measure_prefill(const char *name, uint32_t flags, int num_seqs)
{
    struct subject s = prefill_subject(name, flags, num_seqs);
    return measure(&s);
}

static int measure_programmatic(void)
{
    if (atoi(target.arch + strlen("sm_")) < 90) return 0;
    return measure_prefill("execute_overhead_programmatic", GDN_PREFILL_PROGRAMMATIC_LAUNCH, 1);
}

int main(int argc, char **argv)
{
    gdn_config config = GDN_CONFIG_INIT;
    const gdn_target unset = GDN_TARGET_INIT;
    options = bench_start(argc, argv, "Host time of an execute beside a bare launch.");
    config.cache_dir = options.cache_dir;
    target = unset;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_device(ctx, options.device, &target));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct subject conv = conv_subject();
    const int failed = measure(&conv) + measure_prefill("execute_overhead", 0, 1) + measure_programmatic() +
                       measure_prefill("execute_overhead_many_sequences", 0, MANY_SEQS);
    CU(cuStreamDestroy(stream));
    gdn_ctx_destroy(ctx);
    return failed ? 1 : 0;
}
