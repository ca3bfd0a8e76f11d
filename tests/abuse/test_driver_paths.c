/*
 * test_driver_paths.c - on every path of the host to the device, each call of the driver fails, one after the other, with every
 * kind of result, once and for good: a status and a sentence each time, everything is given back, and the same context works
 * when the driver does again.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/brief.h"
#include "support/fake_host.h"
#include "support/store.h"

enum { REFUSED = 200, WORKSPACE = 0x100000 };

/* ---- paths ---- */

static gdn_status run_plan(gdn_status status, gdn_plan *plan, const gdn_prefill_args *prefill,
                           const gdn_conv1d_args *conv)
{
    if (status == GDN_OK) status = gdn_plan_load(plan, 0);
    if (status == GDN_OK) status = gdn_plan_load(plan, 1);
    if (status == GDN_OK && prefill)
        status = gdn_execute_prefill(plan, prefill, WORKSPACE, gdn_plan_workspace_size(plan), NULL);
    if (status == GDN_OK && prefill) status = gdn_execute_prefill(plan, prefill, 0, 0, NULL);
    if (status == GDN_OK && conv) status = gdn_execute_conv1d_qkv(plan, conv, NULL);
    gdn_plan_destroy(plan);
    return status;
}

static gdn_status plan_prefill_as(gdn_ctx *ctx, uint32_t flags, uint32_t plan_flags, int64_t num_seqs)
{
    gdn_plan *plan = NULL;
    gdn_target target = GDN_TARGET_INIT;
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args args = fake_prefill_args();
    desc.flags = flags;
    args.num_seqs = num_seqs;
    gdn_status status = gdn_target_from_device(ctx, 1, &target);
    if (status == GDN_OK) status = gdn_plan_prefill(ctx, &target, &desc, plan_flags, &plan);
    return run_plan(status, plan, &args, NULL);
}

static gdn_status plan_prefill(gdn_ctx *ctx, uint32_t plan_flags, int64_t num_seqs)
{
    return plan_prefill_as(ctx, 0, plan_flags, num_seqs);
}

static gdn_status many_sequences(gdn_ctx *ctx)
{
    return plan_prefill(ctx, GDN_PLAN_GENERIC, 8);
}

static gdn_status programmatic(gdn_ctx *ctx)
{
    return plan_prefill_as(ctx, GDN_PREFILL_PROGRAMMATIC_LAUNCH, 0, 8);
}

/* Its workspace is cleared by a memset. */
static gdn_status one_sequence(gdn_ctx *ctx)
{
    return plan_prefill(ctx, GDN_PLAN_GENERIC, 1);
}

/* By tensor maps. */
static gdn_status hopper(gdn_ctx *ctx)
{
    return plan_prefill(ctx, 0, 8);
}

static gdn_status conv(gdn_ctx *ctx)
{
    gdn_plan *plan = NULL;
    gdn_target target = GDN_TARGET_INIT;
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    gdn_status status = gdn_target_from_name(ctx, "NVIDIA H200", &target);
    if (status == GDN_OK) status = gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &plan);
    return run_plan(status, plan, NULL, &args);
}

static gdn_status one_call_prefill(gdn_ctx *ctx)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    const gdn_prefill_args args = fake_prefill_args();
    const gdn_status status = gdn_prefill(ctx, &desc, &args, 0, 0, NULL);
    return status == GDN_OK ? gdn_prefill(ctx, &desc, &args, 0, 0, NULL) : status;
}

static gdn_status one_call_conv(gdn_ctx *ctx)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    const gdn_status status = gdn_conv1d_qkv(ctx, &desc, &args, NULL);
    return status == GDN_OK ? gdn_conv1d_qkv(ctx, &desc, &args, NULL) : status;
}

/* ---- where cubins come from ---- */

enum source {
    COMPILER, /* in memory only: nothing is refused for being from a cache */
    DISK,     /* a warm directory */
    STRICT,   /* the same, and nothing may be compiled */
    REFUSAL   /* a warm directory whose first cubin the driver refuses before anything else fails */
};

struct path {
    const char *name;
    gdn_status (*run)(gdn_ctx *ctx);
    enum source source;
    const char *calls; /* a call that only this path makes, or its last: a path that ends early would miss it */
};

static const struct path paths[] = {
    { "prefill", many_sequences, COMPILER, "cuLaunchKernel" },
    { "prefill from disk", many_sequences, DISK, "cuLaunchKernel" },
    { "prefill in strict mode", many_sequences, STRICT, "cuLaunchKernel" },
    { "prefill of one sequence", one_sequence, DISK, "cuMemsetD32Async" },
    { "prefill on Hopper", hopper, DISK, "cuTensorMapEncodeTiled" },
    { "prefill on Hopper, compiled", hopper, COMPILER, "cuTensorMapEncodeTiled" },
    { "conv", conv, COMPILER, "cuLaunchKernel" },
    { "conv from disk", conv, DISK, "cuLaunchKernel" },
    { "prefill in one call", one_call_prefill, DISK, "cuStreamIsCapturing" },
    { "conv in one call", one_call_conv, COMPILER, "cuStreamIsCapturing" },
    { "conv in one call, strict", one_call_conv, STRICT, "cuStreamIsCapturing" },
    { "a refused cubin of prefill", many_sequences, REFUSAL, "cuLaunchKernel" },
    { "a refused cubin of conv", conv, REFUSAL, "cuLaunchKernel" },
    { "a refused cubin in one call", one_call_conv, REFUSAL, "cuStreamIsCapturing" },
    { "prefill, launched programmatically", programmatic, DISK, "cuLaunchKernelEx" },
};
enum { NUM_PATHS = sizeof paths / sizeof paths[0] };

static const struct fake_controls *cuda;
static char *scratch;
static char warm[512];

static gdn_ctx *open_ctx(enum source source)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = source == COMPILER ? "" : warm;
    cfg.flags = GDN_CTX_NO_ENV | (source == STRICT ? GDN_CTX_NO_COMPILE : 0);
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.driver_path = GDN_FAKE_CUDA_PATH;
    gdn_ctx *ctx = NULL;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    return ctx;
}

static void start(const struct path *p, int nth, int times, int result)
{
    cuda->reset();
    cuda->set_devices(2);
    cuda->make_current(0);
    if (p->source == REFUSAL) cuda->fail("cuLibraryLoadData", 1, REFUSED);
    cuda->fail_nth(nth, times, result);
}

static void expect_given_back(const char *when)
{
    const struct fake_balance b = cuda->balance();
    cr_assert(fake_balanced(cuda), "%s: %d contexts, %d libraries, %d pushed are left", when, b.retained_contexts,
              b.loaded_libraries, b.pushed_contexts);
}

/* The path without a fault, which also fills the directory; the number of its calls. */
static int walk_unhurt(const struct path *p)
{
    struct path first = *p;
    if (first.source != COMPILER) first.source = DISK;
    start(&first, 0, 0, 0);
    gdn_ctx *ctx = open_ctx(first.source);
    cr_assert_eq(p->run(ctx), GDN_OK, "%s: %s", p->name, gdn_last_error());
    gdn_ctx_destroy(ctx);
    start(p, 0, 0, 0);
    ctx = open_ctx(p->source);
    cr_assert_eq(p->run(ctx), GDN_OK, "%s: %s", p->name, gdn_last_error());
    cr_assert_gt(cuda->calls(p->calls), 0, "%s: never calls %s", p->name, p->calls);
    gdn_ctx_destroy(ctx);
    expect_given_back(p->name);
    return cuda->total_calls();
}

/* Calls that give something back: what they say changes nothing. The last two only find words for another failure. */
static bool is_silent(const char *call)
{
    static const char *const silent[] = {
        "cuLibraryUnload", "cuDevicePrimaryCtxRelease", "", "cuGetErrorString", "cuDriverGetVersion"
    };
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; ++i)
        if (strcmp(silent[i], call) == 0) return true;
    return false;
}

/*
 * Of kernels that are told where their code lies a copy is loaded; where that is refused, by a result that does not speak of
 * the machine, what was compiled is (test_code_address.c).
 */
static bool is_about_a_copy(const struct path *p, int result)
{
    static const char *const calls[] = { "cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction" };
    if (p->run != hopper && p->run != programmatic && p->run != one_call_prefill) return false;
    if (result == 2 || result == 4 || result == 700 || result == 719 || result == 999) return false;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i)
        if (strcmp(calls[i], cuda->struck()) == 0) return true;
    return false;
}

/*
 * Results that say something about the cubin: one from a cache is then compiled again, and all is well. And what comes of a
 * call in an attempt that had failed already does not matter: there is another one.
 */
static bool may_recover(const struct path *p, int result)
{
    if (is_about_a_copy(p, result)) return true;
    if (p->source == REFUSAL && strcmp(cuda->struck(), "cuCtxPopCurrent") == 0) return true;
    return (p->source == DISK || p->source == REFUSAL) && (result == 200 || result == 209 || result == 500);
}

/* A failed initialisation stays: the sentence of the driver is the same at every later call. */
static bool is_for_good(const char *call)
{
    return strcmp(call, "cuInit") == 0;
}

static bool is_about_the_driver(gdn_status status)
{
    return status == GDN_E_CUDA || status == GDN_E_NO_DRIVER || status == GDN_E_NO_DEVICE;
}

static void hurt(const struct path *p, int nth, int times, int result)
{
    char when[160];
    start(p, nth, times, result);
    gdn_ctx *ctx = open_ctx(p->source);
    const gdn_status status = p->run(ctx);
    snprintf(when, sizeof when, "%s: call %d (%s) fails with %d%s", p->name, nth, cuda->struck(), result,
             times ? "" : ", and all after it");
    if (status == GDN_OK)
        cr_assert(is_silent(cuda->struck()) || may_recover(p, result), "%s: nobody noticed", when);
    else
        cr_assert(is_about_the_driver(status) && strlen(gdn_last_error()) > 20, "%s: %s: %s", when,
                  gdn_status_name(status), gdn_last_error());
    if (status != GDN_OK && times && !is_silent(cuda->struck()) && p->source != REFUSAL)
        cr_assert(fake_error_says(cuda->struck()), "%s: %s", when, gdn_last_error());
    const bool for_good = is_for_good(cuda->struck());
    cuda->fail_nth(0, 0, 0);
    cuda->fail(NULL, 0, 0);
    const gdn_status again = p->run(ctx);
    cr_assert_eq(again, for_good ? status : GDN_OK, "%s: then %s: %s", when, gdn_status_name(again), gdn_last_error());
    gdn_ctx_destroy(ctx);
    expect_given_back(when);
}

static void walk(const struct path *p)
{
    /* INVALID_VALUE, OUT_OF_MEMORY, DEINITIALIZED, NO_DEVICE, and what a lost GPU, a sick one and a strange driver say */
    static const int results[] = { 1, 2, 4, 100, 200, 209, 500, 700, 719, 999, 31337 };
    scratch = store_scratch();
    snprintf(warm, sizeof warm, "%s/cache", scratch);
    cuda = fake_open(GDN_FAKE_CUDA_PATH);
    const int calls = walk_unhurt(p);
    const bool slow = getenv("GDN_TEST_SLOW_MACHINE") != NULL; /* valgrind: one result stands for all */
    const size_t step = (size_t)brief_step();                  /* some of the results at each call, others at the next */
    int failures = 0;
    for (size_t r = slow ? 9 : 0; r < (slow ? 10 : sizeof results / sizeof results[0]); ++r)
        for (int nth = 1 + (int)(r % step); nth <= calls; nth += (int)step) {
            hurt(p, nth, 1, results[r]);
            if (!slow) hurt(p, nth, 0, results[r]);
            failures += slow ? 1 : 2;
        }
    printf("%s: %d calls, %d failures injected\n", p->name, calls, failures);
    store_remove(scratch);
    cr_assert(fake_no_leaks());
}

#define PATH(name, number)                                                                                             \
    Test(driver_paths, name, .timeout = 300)                                                                           \
    {                                                                                                                  \
        walk(&paths[number]);                                                                                          \
    }
PATH(prefill, 0)
PATH(prefill_from_disk, 1)
PATH(prefill_in_strict_mode, 2)
PATH(prefill_of_one_sequence, 3)
PATH(prefill_on_hopper, 4)
PATH(prefill_on_hopper_compiled, 5)
PATH(conv, 6)
PATH(conv_from_disk, 7)
PATH(prefill_in_one_call, 8)
PATH(conv_in_one_call, 9)
PATH(conv_in_one_call_in_strict_mode, 10)
PATH(a_refused_cubin_of_prefill, 11)
PATH(a_refused_cubin_of_conv, 12)
PATH(a_refused_cubin_in_one_call, 13)
PATH(prefill_launched_programmatically, 14)

/* Refused for good where nothing may be compiled: a status with the remedy, and the next context works. */
Test(driver_paths, a_refused_cubin_in_strict_mode_is_a_sentence)
{
    scratch = store_scratch();
    snprintf(warm, sizeof warm, "%s/cache", scratch);
    cuda = fake_open(GDN_FAKE_CUDA_PATH);
    walk_unhurt(&paths[7]);
    start(&paths[7], 0, 0, 0);
    cuda->fail("cuLibraryLoadData", 0, REFUSED);
    gdn_ctx *ctx = open_ctx(STRICT);
    cr_assert_eq(conv(ctx), GDN_E_CUDA, "%s", gdn_last_error());
    cr_assert(fake_error_says("cuLibraryLoadData") && fake_error_says("warm"), "%s", gdn_last_error());
    cuda->fail(NULL, 0, 0);
    cr_assert_eq(conv(ctx), GDN_OK, "%s", gdn_last_error());
    gdn_ctx_destroy(ctx);
    expect_given_back("strict");
    store_remove(scratch);
}
