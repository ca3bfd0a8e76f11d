/*
 * test_devices.c - one process, one context, several GPUs: what an engine with a rank a thread does.
 *
 * A plan that is loaded on two GPUs runs on both at a time, from a thread each, and leaves the bits that the first one leaves
 * alone; a GPU that it was not loaded on refuses it, and takes it once it is; the one-call forms follow the current context
 * from GPU to GPU. Where there is one GPU, or the second is of another arch, the program is skipped.
 */
#include <pthread.h>
#include <string.h>

#include "gdn_cases.h"
#include "gpu_inputs.h"
#include "gpu_prefill.h"

enum { NUM_DEVICES = 2, ROUNDS = 30, D = 128 };

static const double MAX_ERROR = 0.008; /* of bf16, relative: twice what exact kernels are off by on such inputs */

/* A cut call, twins, two kinds of CTAs, and several sequences. */
static const struct gdn_shape shapes[] = {
    { "cut", 4, 4, 8, 1, { 6000 }, 0, false },
    { "twins", 8, 8, 32, 1, { 1000 }, 0, false },
    { "two_kinds", 4, 4, 4, 1, { 1500 }, 0, false },
    { "several", 2, 2, 4, 5, { 300, 1, 700, 64, 129 }, 0, false },
};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static struct gpu_options options;
static gdn_ctx *ctx;
static cu_context contexts[NUM_DEVICES]; /* the primary ones */
static char detail[512];

/* ---- a call ----------------------------------------------------------------------------------------------------------- */

static gdn_plan *plan_of(const struct gdn_case *c)
{
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    GDN(gdn_plan_prefill(ctx, &target, &c->desc, 0, &plan));
    return plan;
}

/* On one of the GPUs, with tensors and a stream of its own. */
static void run_on(int i, struct gpu_prefill_result *out, const gdn_plan *plan, const struct gdn_case *c)
{
    CU(cuCtxSetCurrent(contexts[i]));
    gpu_prefill(out, plan, &c->desc, &c->args, 0);
}

/* ---- the cases -------------------------------------------------------------------------------------------------------- */

struct rank {
    int index;
    const gdn_plan *plan;
    const struct gdn_case *c;
    const struct gpu_prefill_result *expected;
    int different;
};

static void *run_rank(void *p)
{
    struct rank *rank = p;
    for (int i = 0; i < (options.small ? 2 : ROUNDS); ++i) {
        struct gpu_prefill_result got;
        run_on(rank->index, &got, rank->plan, rank->c);
        rank->different += !gpu_prefill_same(&got, rank->expected) || got.trouble[0] != '\0';
        gpu_prefill_free(&got);
    }
    return NULL;
}

/* A thread for each GPU; how many runs had other bits, or hit what they must not. */
static int run_ranks(const gdn_plan *plan, const struct gdn_case *c, const struct gpu_prefill_result *expected)
{
    struct rank ranks[NUM_DEVICES];
    pthread_t threads[NUM_DEVICES];
    int different = 0;
    for (int i = 0; i < NUM_DEVICES; ++i) {
        ranks[i] = (struct rank){ i, plan, c, expected, 0 };
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) exit(1);
    }
    for (int i = 0; i < NUM_DEVICES; ++i) {
        pthread_join(threads[i], NULL);
        different += ranks[i].different;
    }
    return different;
}

static bool one_plan_runs_on_both(const struct gdn_case *c)
{
    gdn_plan *plan = plan_of(c);
    struct gpu_prefill_result expected;
    struct gdn_errors errors;
    char kernel[64];
    for (int i = 0; i < NUM_DEVICES; ++i)
        GDN(gdn_plan_load(plan, options.device + i));
    run_on(0, &expected, plan, c);
    gdn_case_errors(&errors, c, GDN_BF16, expected.o, expected.state);
    const int different = run_ranks(plan, c, &expected);
    gpu_plan_kernel(plan, kernel, sizeof kernel);
    snprintf(detail, sizeof detail, "%s; error of o %.2e (limit %g); %d runs with other bits", kernel, errors.o, MAX_ERROR,
             different);
    gpu_prefill_free(&expected);
    gdn_plan_destroy(plan);
    return different == 0 && errors.o < MAX_ERROR;
}

static gdn_status execute_one_token(const gdn_plan *plan, int i)
{
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    CU(cuCtxSetCurrent(contexts[i]));
    const gdn_devptr memory = cu_alloc(1 << 20);
    args.q = args.k = args.v = args.beta = args.g = memory;
    args.o = memory + (1 << 19);
    args.num_tokens = args.num_seqs = 1;
    const gdn_status status = gdn_execute_prefill(plan, &args, 0, 0, NULL);
    CU(cuCtxSynchronize());
    CU(cuMemFree(memory));
    return status;
}

static bool other_gpu_refuses_until_it_has_the_plan(const struct gdn_case *c)
{
    gdn_plan *plan = plan_of(c);
    GDN(gdn_plan_load(plan, options.device));
    const gdn_status before = execute_one_token(plan, 1);
    snprintf(detail, sizeof detail, "%s: %s", gdn_status_name(before), gdn_last_error());
    GDN(gdn_plan_load(plan, options.device + 1));
    const gdn_status after = execute_one_token(plan, 1), first = execute_one_token(plan, 0);
    gdn_plan_destroy(plan);
    return before == GDN_E_NOT_LOADED && after == GDN_OK && first == GDN_OK;
}

static uint64_t compiles(void)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    GDN(gdn_cache_stat(ctx, &stats));
    return stats.compiles;
}

/* One-call form on one of the GPUs; o comes back as new memory. */
static uint16_t *one_call(const struct gdn_case *c, int i)
{
    const size_t o_bytes = (size_t)c->o_count * 2;
    struct gpu_inputs in;
    CU(cuCtxSetCurrent(contexts[i]));
    gpu_inputs_upload(&in, c);
    gdn_prefill_args args = c->args;
    size_t size = 0;
    GDN(gdn_prefill_workspace_size(ctx, &c->desc, NULL, &size));
    struct gpu_buffer o = gpu_buffer_filled(o_bytes, GPU_NAN_FILL), workspace = gpu_buffer_filled(size, GPU_NAN_FILL);
    gpu_inputs_aim(&args, &in);
    args.o = o.p;
    GDN(gdn_prefill(ctx, &c->desc, &args, workspace.p, size, NULL));
    gpu_wait(NULL);
    uint16_t *out = gpu_malloc(o_bytes);
    gpu_buffer_read(&o, out);
    gpu_inputs_free(&in);
    gpu_buffer_free(&o);
    gpu_buffer_free(&workspace);
    return out;
}

static bool one_call_follows_the_current_context(const struct gdn_case *c)
{
    uint16_t *first = one_call(c, 0);
    const uint64_t compiled = compiles();
    int different = 0;
    for (int i = 1; i < 6; ++i) {
        uint16_t *other = one_call(c, i % NUM_DEVICES);
        different += memcmp(first, other, (size_t)c->o_count * 2) != 0;
        free(other);
    }
    const uint64_t more = compiles() - compiled;
    snprintf(detail, sizeof detail, "%d calls with other bits, %llu compiles more", different, (unsigned long long)more);
    free(first);
    return different == 0 && more == 0;
}

static const struct {
    const char *name;
    bool (*run)(const struct gdn_case *c);
} cases[] = {
    { "one_plan_runs_on_both", one_plan_runs_on_both },
    { "other_gpu_refuses_until_it_has_the_plan", other_gpu_refuses_until_it_has_the_plan },
    { "one_call_follows_the_current_context", one_call_follows_the_current_context },
};
enum { NUM_CASES = sizeof cases / sizeof cases[0] };

/* ---- the GPUs --------------------------------------------------------------------------------------------------------- */

static void skip(const char *why)
{
    printf("skipped: %s\n", why);
    exit(GPU_NO_DEVICE);
}

/* options.device and the one behind it. */
static void require_devices(void)
{
    gdn_target first = GDN_TARGET_INIT, second = GDN_TARGET_INIT;
    cu_device device;
    gpu_require_device(&options);
    if (cu.cuDeviceGet(&device, options.device + 1) != 0) skip("one GPU; this wants two");
    contexts[0] = cu_primary;
    CU(cuDevicePrimaryCtxRetain(&contexts[1], device));
    GDN(gdn_target_from_device(ctx, options.device, &first));
    GDN(gdn_target_from_device(ctx, options.device + 1, &second));
    if (strcmp(first.gpu_name, second.gpu_name) != 0) skip("two GPUs of different kinds; this wants two of one");
    printf("and device %d: %s\n", options.device + 1, second.gpu_name);
}

static void run_shape(const struct gdn_shape *shape)
{
    struct gdn_case c;
    char name[128];
    gdn_case_make(&c, gdn_family_find("random"), shape, GDN_BF16, D, GDN_STATE_KV, options.seed);
    if (gdn_case_oracle(&c) != GDN_OK) exit(1);
    for (int i = 0; i < NUM_CASES; ++i) {
        snprintf(name, sizeof name, "devices/%s %s seed=%llu", cases[i].name, shape->name, (unsigned long long)options.seed);
        if (!gpu_selected(&options, name)) continue;
        if (options.list) puts(name);
        if (options.list) continue;
        detail[0] = '\0';
        gpu_running(name);
        const bool passed = cases[i].run(&c);
        gpu_report(passed, name, detail);
    }
    gdn_case_free(&c);
}

int main(int argc, char **argv)
{
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    ctx = gpu_context();
    if (!options.list) require_devices();
    for (int i = 0; i < NUM_SHAPES; ++i)
        run_shape(&shapes[i]);
    gdn_ctx_destroy(ctx);
    return options.list ? 0 : gpu_summary();
}
