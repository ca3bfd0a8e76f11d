/*
 * demo_layer.c - the main job on real shapes: one Gated DeltaNet layer of Qwen3-Next-80B-A3B, at tensor parallelism 1 and 4, on
 * a batch of unequal prompts.
 *
 *     packed projection -> conv1d-QKV -> q/k norm (host) -> GDN prefill -> final states
 *
 * and the same prompts again in two calls that carry both states. With a GPU everything runs there and is compared with the
 * host reference; without one the kernels are compiled for two archs, and the layer is computed by the reference alone.
 */
#include <getopt.h>

#include "cuda_mini.h"
#include "demo_layer/device.h"
#include "demo_layer/layer.h"
#include "demo_layer/resources.h"
#include "example_data.h"

/* What the kernel's roundings alone make of these prompts, by emulation, is 2.02e-3 and 1.85e-3; the tests' factor is 1.5. */
#define BOUND_O     (1.5 * 2.02e-3)
#define BOUND_STATE (1.5 * 1.85e-3)
/* One rounding to bf16 is at most 2^-9 of a number; two evaluations rounded apart differ by less than twice that. */
#define BOUND_CONV 3.9e-3

static const int32_t gpu_prompts[] = { 1031, 37, 640, 2, 333, 5 }, gpu_cuts[] = { 400, 36, 64, 1, 0, 5 };
static const int32_t host_prompts[] = { 190, 37, 64, 2, 75, 5 }, host_cuts[] = { 70, 36, 64, 1, 0, 5 };
enum { NUM_PROMPTS = sizeof gpu_prompts / sizeof gpu_prompts[0] };

static int failures;

static void check(const char *what, double error, double bound)
{
    const int passed = error <= bound;
    failures += !passed;
    printf("    %-4s %-46s %.1e (bound %.1e)\n", passed ? "ok" : "FAIL", what, error, bound);
}

static void check_bits(const char *what, const void *a, const void *b, size_t bytes)
{
    const int passed = memcmp(a, b, bytes) == 0;
    failures += !passed;
    printf("    %-4s %-46s %s\n", passed ? "ok" : "FAIL", what, passed ? "same bits" : "other bits");
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

struct run {
    struct outputs out;
    struct states states;
};

static struct run run_create(const struct layer *l, const struct batch *b)
{
    return (struct run){ outputs_create(l, batch_tokens(b)), states_zero(l, b->num_seqs) };
}

static void run_free(struct run *r)
{
    outputs_free(&r->out);
    states_free(&r->states);
}

/* ctx NULL: on the host. */
static struct call_times call(gdn_ctx *ctx, const struct layer *l, const struct batch *b, struct states *s,
                              struct outputs *out)
{
    const struct call_times none = { 0, 0 };
    if (ctx) return layer_on_device(ctx, l, b, s, out);
    layer_on_host(l, b, s, out);
    return none;
}

/* The batch in two calls: tokens before each prompt's cut, then the rest from the states that the first left. */
static struct run run_in_two_calls(gdn_ctx *ctx, const struct layer *l, const struct batch *whole, const int32_t *cuts)
{
    struct run r = run_create(l, whole);
    int32_t zeros[MAX_PROMPTS] = { 0 }, lens[MAX_PROMPTS];
    const int32_t *from[2] = { zeros, cuts }, *to[2] = { cuts, lens };
    for (int n = 0; n < whole->num_seqs; ++n)
        lens[n] = whole->cu_seqlens[n + 1] - whole->cu_seqlens[n];
    for (int i = 0; i < 2; ++i) {
        struct batch piece = batch_pieces(l, whole, from[i], to[i]);
        struct outputs part = outputs_create(l, batch_tokens(&piece));
        call(ctx, l, &piece, &r.states, &part);
        outputs_place(l, whole, from[i], &piece, &part, &r.out);
        outputs_free(&part);
        batch_free(&piece);
    }
    return r;
}

/* ---- comparisons --------------------------------------------------------------------------------------------------------- */

struct sizes {
    size_t qk, v, conv_state, gdn_state; /* elements */
};

static struct sizes sizes_of(const struct layer *l, const struct batch *b)
{
    const size_t t = (size_t)batch_tokens(b), n = (size_t)b->num_seqs;
    return (struct sizes){ t * (size_t)l->k_heads * HEAD_DIM, t * (size_t)l->v_heads * HEAD_DIM, n * l->conv_state,
                           n * l->gdn_state };
}

static void compare_runs(const struct layer *l, const struct batch *b, const struct run *x, const struct run *y)
{
    const struct sizes s = sizes_of(l, b);
    check("o", example_error_bf16(x->out.o, y->out.o, s.v), BOUND_O);
    check("final state", example_error_f32(x->states.gdn, y->states.gdn, s.gdn_state), BOUND_STATE);
    check_bits("conv state", x->states.conv, y->states.conv, s.conv_state * 2);
}

static void compare_with_reference(const struct layer *l, const struct batch *b, const struct run *device)
{
    const struct sizes s = sizes_of(l, b);
    struct run host = run_create(l, b);
    layer_on_host(l, b, &host.states, &host.out);
    printf("  against the host reference:\n");
    check("q, normalised", example_error_bf16(device->out.q, host.out.q, s.qk), BOUND_CONV);
    check("k, normalised", example_error_bf16(device->out.k, host.out.k, s.qk), BOUND_CONV);
    check("v", example_error_bf16(device->out.v, host.out.v, s.v), BOUND_CONV);
    compare_runs(l, b, device, &host);
    run_free(&host);
}

/* ---- with a GPU ---------------------------------------------------------------------------------------------------------- */

static void print_times(gdn_ctx *ctx, const gdn_target *target, const struct layer *l, const struct batch *b)
{
    const gdn_conv1d_desc conv = layer_conv_desc(l);
    const gdn_prefill_desc gdn = layer_gdn_desc(l);
    const struct device_times t = layer_times(ctx, l, b);
    gdn_cost conv_cost = GDN_COST_INIT, gdn_cost_ = GDN_COST_INIT;
    gdn_plan *plan;
    GDN(gdn_plan_conv1d_qkv(ctx, target, &conv, 0, &plan));
    GDN(gdn_plan_cost(plan, batch_tokens(b), b->num_seqs, &conv_cost));
    gdn_plan_destroy(plan);
    GDN(gdn_plan_prefill(ctx, target, &gdn, 0, &plan));
    GDN(gdn_plan_cost(plan, batch_tokens(b), b->num_seqs, &gdn_cost_));
    gdn_plan_destroy(plan);
    printf("  conv1d-QKV:  kernel %8.1f us (floor of this GPU %.1f), host %.1f us a call\n", t.conv_kernel,
           conv_cost.floor_us, t.conv_host);
    printf("  GDN prefill: kernel %8.1f us (floor of this GPU %.1f), host %.1f us a call\n", t.gdn_kernel,
           gdn_cost_.floor_us, t.gdn_host);
}

static void demo_device(gdn_ctx *ctx, const gdn_target *target, int tp)
{
    struct layer l = layer_create(tp);
    struct batch b = batch_create(&l, gpu_prompts, NUM_PROMPTS, 100 + (uint64_t)tp);
    struct run first = run_create(&l, &b), again = run_create(&l, &b);
    printf("\nTP %d: %d q/k heads, %d v heads, rows of %d numbers, %d tokens in %d prompts\n", tp, l.k_heads, l.v_heads,
           l.row, batch_tokens(&b), b.num_seqs);
    const struct call_times cold = call(ctx, &l, &b, &first.states, &first.out);
    const struct call_times warm = call(ctx, &l, &b, &again.states, &again.out);
    printf("  first call: conv1d-QKV %.1f ms, GDN prefill %.1f ms (plan, load, run); second call: %.2f ms, %.2f ms\n",
           cold.conv_ms, cold.gdn_ms, warm.conv_ms, warm.gdn_ms);
    printf("  q and k went to the host and back between the two kernels, to be normalised there\n");
    compare_with_reference(&l, &b, &first);
    struct run two = run_in_two_calls(ctx, &l, &b, gpu_cuts);
    printf("  the same prompts in two calls with carried states, against one call:\n");
    compare_runs(&l, &b, &two, &first);
    print_times(ctx, target, &l, &b);
    run_free(&two), run_free(&again), run_free(&first);
    batch_free(&b);
    layer_free(&l);
}

static void check_second_context(const gdn_config *config, const gdn_target *target)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    gdn_ctx *ctx;
    GDN(gdn_ctx_create(&ctx, config));
    if (!gdn_cache_dir(ctx)) {
        printf("\nno cache folder is usable: cubins were kept in memory, the next process compiles again\n");
        gdn_ctx_destroy(ctx);
        return;
    }
    printf("\na second context on the same cache folder:\n");
    struct layer l = layer_create(1);
    resources_header();
    failures += resources_print(ctx, target, &l) != 0;
    GDN(gdn_cache_stat(ctx, &stats));
    printf("    %-4s it compiled nothing\n", stats.compiles == 0 ? "ok" : "FAIL");
    failures += stats.compiles != 0;
    layer_free(&l);
    gdn_ctx_destroy(ctx);
}

static void demo_with_gpu(gdn_ctx *ctx, const gdn_config *config, int device)
{
    gdn_target target = GDN_TARGET_INIT;
    GDN(gdn_target_from_device(ctx, device, &target));
    printf("device %d: %s, %s, %d SMs\n", device, target.gpu_name, target.arch, target.num_sms);
    demo_device(ctx, &target, 1);
    demo_device(ctx, &target, 4);
    check_second_context(config, &target);
    printf("\nexecuted: both operators on %s; the q/k norm and the gates' formulas on the host\n", target.gpu_name);
    printf("not executed: other archs than %s\n", target.arch);
}

/* ---- without --------------------------------------------------------------------------------------------- */

static int compile_for(gdn_ctx *ctx, const char *arch)
{
    gdn_target target = GDN_TARGET_INIT;
    int bad = 0;
    GDN(gdn_target_from_name(ctx, arch, &target));
    for (int tp = 1; tp <= 4; tp += 3) {
        struct layer l = layer_create(tp);
        const int kernels = resources_print(ctx, &target, &l);
        layer_free(&l);
        if (kernels != 0) bad = 1;
    }
    return bad;
}

static void demo_reference(int tp)
{
    struct layer l = layer_create(tp);
    struct batch b = batch_create(&l, host_prompts, NUM_PROMPTS, 100 + (uint64_t)tp);
    struct run one = run_create(&l, &b);
    printf("\nTP %d on the host reference: %d q/k heads, %d v heads, rows of %d numbers, %d tokens in %d prompts\n", tp,
           l.k_heads, l.v_heads, l.row, batch_tokens(&b), b.num_seqs);
    layer_on_host(&l, &b, &one.states, &one.out);
    struct run two = run_in_two_calls(NULL, &l, &b, host_cuts);
    printf("  the same prompts in two calls with carried states, against one call:\n");
    compare_runs(&l, &b, &two, &one);
    run_free(&two), run_free(&one);
    batch_free(&b);
    layer_free(&l);
}

static void demo_without_gpu(gdn_ctx *ctx, const char *why_not)
{
    printf("no GPU here (%s): the kernels are compiled, and the layer is computed on the host\n\n", why_not);
    resources_header();
    const int bad = compile_for(ctx, "sm_90a") + compile_for(ctx, "sm_80");
    failures += bad;
    printf("    %-4s no kernel spills or uses local memory\n", bad ? "FAIL" : "ok");
    demo_reference(1);
    demo_reference(4);
    printf("\nexecuted: the host reference (float64), on shortened prompts\n");
    printf("not executed: the compiled kernels, neither sm_90a nor sm_80: that needs a GPU\n");
}

/* ---- main ------------------------------------------------------------------------------------------------ */

static void print_counters(gdn_ctx *ctx)
{
    gdn_cache_stats s = GDN_CACHE_STATS_INIT;
    GDN(gdn_cache_stat(ctx, &s));
    printf("cache %s: %llu compiles (%.0f ms), %llu cubins from disk, %llu from memory\n",
           gdn_cache_dir(ctx) ? gdn_cache_dir(ctx) : "in memory only", (unsigned long long)s.compiles,
           (double)s.compile_usec * 1e-3, (unsigned long long)s.disk_hits, (unsigned long long)s.memory_hits);
}

static const struct option long_options[] = {
    { "cache-dir", required_argument, NULL, 'c' },
    { "device", required_argument, NULL, 'd' },
    { "no-gpu", no_argument, NULL, 'n' },
    { NULL, 0, NULL, 0 },
};

int main(int argc, char **argv)
{
    gdn_config config = GDN_CONFIG_INIT;
    const char *why_not = NULL;
    int device = 0, c;
    gdn_ctx *ctx;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (c) {
        case 'c':
            config.cache_dir = optarg;
            break;
        case 'd':
            device = atoi(optarg);
            break;
        case 'n':
            why_not = "--no-gpu was given";
            break;
        default:
            fprintf(stderr, "usage: %s [--cache-dir FOLDER] [--device N] [--no-gpu]\n", argv[0]);
            return 2;
        }
    }
    printf("Qwen3-Next-80B-A3B, one Gated DeltaNet layer: %d q/k heads, %d v heads, head dim %d, conv width %d, bf16\n",
           K_HEADS, V_HEADS, HEAD_DIM, CONV_WIDTH);
    if (!why_not) why_not = cu_open(device);
    GDN(gdn_ctx_create(&ctx, &config));
    if (why_not)
        demo_without_gpu(ctx, why_not);
    else
        demo_with_gpu(ctx, &config, device);
    print_counters(ctx);
    gdn_ctx_destroy(ctx);
    printf("%s\n", failures ? "DEMO FAILED" : "all checks passed");
    return failures ? 1 : 0;
}
