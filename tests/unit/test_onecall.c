/*
 * test_onecall.c - gdn_prefill() and gdn_conv1d_qkv(): plan, load and execute on first use, and find the plan afterwards.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "base/mem.h"
#include "support/fake_host.h"

static struct fake_host host;

static void set_up(void)
{
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0); /* memory only: every compile shows */
}

static void tear_down(void)
{
    fake_host_close(&host);
    cr_expect(fake_balanced(host.cuda), "the context unloads what one-call functions loaded");
    cr_expect(fake_no_leaks());
}

TestSuite(onecall, .init = set_up, .fini = tear_down);

static gdn_status call(const gdn_conv1d_desc *desc)
{
    const gdn_conv1d_args args = fake_conv1d_args();
    return gdn_conv1d_qkv(host.ctx, desc, &args, NULL);
}

/* Of plans: each makes a device's context current once. */
static int loads(void)
{
    return host.cuda->calls("cuCtxPushCurrent");
}

Test(onecall, the_second_call_compiles_and_loads_nothing)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    const uint64_t compiles = fake_compiles(host.ctx);
    const int libraries = host.cuda->calls("cuLibraryLoadData");
    cr_expect_gt(compiles, 0);
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), compiles);
    cr_expect_eq(host.cuda->calls("cuLibraryLoadData"), libraries);
    cr_expect_eq(loads(), 1);
    cr_expect_eq(host.cuda->num_launches(), 2);
}

Test(onecall, prefill_runs_the_same_way)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    const gdn_prefill_args args = fake_prefill_args();
    for (int i = 0; i < 2; ++i)
        cr_assert_eq(gdn_prefill(host.ctx, &desc, &args, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), 3, "for any call, halves of heads, few sequences with a workspace");
    cr_expect_eq(host.cuda->num_launches(), 2);
    cr_expect_str_eq(host.cuda->launch(0).kernel, "gdn_prefill_hopper");
}

Test(onecall, each_device_gets_its_own_plan_of_the_same_cubins)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    host.cuda->set_devices(2);
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    const uint64_t compiles = fake_compiles(host.ctx);
    host.cuda->make_current(1);
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), compiles);
    cr_expect_eq(host.cuda->launch(0).device, 0);
    cr_expect_eq(host.cuda->launch(1).device, 1);
    host.cuda->make_current(0);
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->launch(2).device, 0);
    cr_expect_eq(loads(), 2);
}

/* One of cuCtxCreate(), or a green one: seconds of compiling would end in the same sentence. */
Test(onecall, under_a_context_that_is_not_primary_nothing_is_compiled)
{
    const gdn_conv1d_desc conv = fake_conv1d_desc();
    const gdn_prefill_desc prefill = fake_prefill_desc();
    const gdn_prefill_args args = fake_prefill_args();
    size_t size = 1;
    host.cuda->make_other_current(0);
    cr_expect_eq(call(&conv), GDN_E_NOT_LOADED);
    cr_expect(fake_error_says("not the primary context of its device") && fake_error_says("conv1d_qkv") &&
              fake_error_says("cudaSetDevice()") && fake_error_says("a green context's stream serves too"),
              "%s", gdn_last_error());
    cr_expect_eq(gdn_prefill(host.ctx, &prefill, &args, 0, 0, NULL), GDN_E_NOT_LOADED);
    cr_expect_eq(gdn_prefill_workspace_size(host.ctx, &prefill, NULL, &size), GDN_E_NOT_LOADED);
    cr_expect_eq(size, 0);
    cr_expect_eq(fake_compiles(host.ctx), 0);
    cr_expect_eq(loads(), 0);
    cr_expect_eq(host.cuda->calls("cuDevicePrimaryCtxRetain"), 0, "a primary context was made to look at");
    host.cuda->make_current(0);
    cr_expect_eq(call(&conv), GDN_OK, "%s", gdn_last_error());
    host.cuda->make_other_current(0); /* beside a primary one that is in use */
    cr_expect_eq(gdn_prefill_workspace_size(host.ctx, &prefill, NULL, &size), GDN_E_NOT_LOADED);
}

Test(onecall, a_different_desc_is_a_different_plan)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    const uint64_t compiles = fake_compiles(host.ctx);
    desc.io_type = GDN_F16;
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    cr_expect_gt(fake_compiles(host.ctx), compiles);
    cr_expect_eq(loads(), 2);
}

Test(onecall, many_descs_that_differ_in_bounds_share_a_plan)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    for (int64_t tokens = 300; tokens < 1000; tokens += 7) {
        desc.max_tokens = tokens;
        desc.max_seqs = 3 + tokens % 200;
        cr_assert_eq(call(&desc), GDN_OK, "%lld: %s", (long long)tokens, gdn_last_error());
        const int64_t descs = (tokens - 300) / 7 + 1;
        cr_expect_eq(loads(), descs < 5 ? descs : 5, "%lld", (long long)tokens);
    }
    desc.max_tokens = 300;
    desc.max_seqs = 3 + 300 % 200;
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    desc.max_tokens = 1025; /* rounds up to another power of four */
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(loads(), 6);
}

/* With the bounds of the desc, whatever they are: max_tokens decides kernels and workspace. */
Test(onecall, needs_what_a_plan_of_its_desc_needs)
{
    for (int64_t tokens = 96; tokens < 70000; tokens *= 2) {
        gdn_prefill_desc desc = fake_prefill_desc();
        gdn_prefill_args args = fake_prefill_args();
        gdn_target target = GDN_TARGET_INIT;
        gdn_plan *plan = NULL;
        desc.max_tokens = tokens;
        cr_assert_eq(gdn_target_from_device(host.ctx, 0, &target), GDN_OK, "%s", gdn_last_error());
        cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
        const uint64_t compiles = fake_compiles(host.ctx);
        const size_t size = gdn_plan_workspace_size(plan);
        size_t one_call = 1;
        cr_expect_eq(gdn_prefill_workspace_size(host.ctx, &desc, NULL, &one_call), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(one_call, size, "max_tokens %lld: %zu, the plan's is %zu", (long long)tokens, one_call, size);
        cr_expect_eq(gdn_prefill(host.ctx, &desc, &args, size ? 0xf00000 : 0, size, NULL), GDN_OK, "max_tokens %lld: %s",
                     (long long)tokens, gdn_last_error());
        cr_expect_eq(fake_compiles(host.ctx), compiles, "max_tokens %lld", (long long)tokens);
        gdn_plan_destroy(plan);
    }
}

/*
 * Nothing is compiled, since strict mode forbids it or there is no compiler. The plan with rounded bounds, which would
 * serve the fifth desc and more, needs a cubin that nobody warmed.
 */
static void expect_own_plans_serve(const char *dir, bool strict)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    const gdn_prefill_args args = fake_prefill_args();
    gdn_plan *wide = NULL;
    desc.max_seqs = 4;
    fake_host_close(&host);
    fake_host_open_with(&host, GDN_FAKE_CUDA_PATH, dir, strict ? getenv("GDN_JIT_NVRTC") : "/nonexistent/libnvrtc.so",
                        strict ? GDN_CTX_NO_COMPILE : 0);
    for (desc.max_tokens = 1100; desc.max_tokens <= 1600; desc.max_tokens += 100)
        cr_expect_eq(gdn_prefill(host.ctx, &desc, &args, 0, 0, NULL), GDN_OK, "%lld, strict %d: %s",
                     (long long)desc.max_tokens, strict, gdn_last_error());
    desc.max_tokens = 4096;
    const gdn_target target = fake_h200(host.ctx);
    cr_expect_eq(gdn_plan_prefill(host.ctx, &target, &desc, 0, &wide), strict ? GDN_E_NOT_CACHED : GDN_E_NO_NVRTC,
                 "the rounded plan needs nothing else: this test shows nothing");
    gdn_plan_destroy(wide);
}

Test(onecall, a_desc_whose_own_plan_is_warm_runs_where_nothing_is_compiled_whatever_came_before)
{
    char dir[64];
    fake_make_dir(dir);
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.max_seqs = 4;
    fake_host_close(&host);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    const gdn_target target = fake_h200(host.ctx);
    for (desc.max_tokens = 1100; desc.max_tokens <= 1600; desc.max_tokens += 100) {
        gdn_plan *plan = NULL;
        cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
        gdn_plan_destroy(plan);
    }
    expect_own_plans_serve(dir, true);
    expect_own_plans_serve(dir, false);
    fake_remove_dir(dir);
}

/* Also of a desc that one plan serves along with others, whose bounds and workspace are larger. */
Test(onecall, says_what_workspace_the_plan_that_serves_a_desc_needs)
{
    const gdn_prefill_args args = fake_prefill_args();
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    size_t size = 0;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 2;
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &target), GDN_OK, "%s", gdn_last_error());
    for (desc.max_tokens = 300; desc.max_tokens < 310; ++desc.max_tokens) {
        cr_assert_eq(gdn_prefill_workspace_size(host.ctx, &desc, NULL, &size), GDN_OK, "%s", gdn_last_error());
        cr_assert_gt(size, 0);
        cr_expect_eq(gdn_prefill(host.ctx, &desc, &args, 0xf00000, size, NULL), GDN_OK, "%lld: %s",
                     (long long)desc.max_tokens, gdn_last_error());
    }
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_assert_gt(size, gdn_plan_workspace_size(plan), "the shared plan is no larger: this test shows nothing");
    cr_expect_eq(gdn_prefill(host.ctx, &desc, &args, 0xf00000, size - 1, NULL), GDN_E_WORKSPACE);
    cr_expect(fake_error_says("gdn_prefill_workspace_size"), "%s", gdn_last_error());
    gdn_plan_destroy(plan);
    cr_expect_eq(gdn_prefill_workspace_size(host.ctx, &desc, NULL, NULL), GDN_E_INVALID);
    cr_expect_eq(gdn_prefill_workspace_size(NULL, &desc, NULL, &size), GDN_E_INVALID);
    cr_expect_eq(size, 0);
    host.cuda->make_current(-1);
    size = 1;
    cr_expect_eq(gdn_prefill_workspace_size(host.ctx, &desc, NULL, &size), GDN_E_NOT_LOADED);
    cr_expect_eq(size, 0);
}

/* ---- first calls of one desc that are answered by different plans ---- */

static _Thread_local bool is_slow; /* this thread waits before it loads anything */
static sem_t arrived, go_on[2];
static _Thread_local sem_t *own_go;

static void wait_at_load(const char *call_name)
{
    if (!is_slow || strcmp(call_name, "cuLibraryLoadData") != 0) return;
    is_slow = false;
    sem_post(&arrived);
    while (sem_wait(own_go) != 0) {
    }
}

static gdn_prefill_desc long_desc(int64_t max_tokens)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 6;
    desc.head_dim_qk = desc.head_dim_v = 64;
    desc.max_tokens = max_tokens;
    desc.max_seqs = 91;
    return desc;
}

static size_t size_of(int64_t max_tokens)
{
    const gdn_prefill_desc desc = long_desc(max_tokens);
    size_t size = 0;
    cr_assert_eq(gdn_prefill_workspace_size(host.ctx, &desc, NULL, &size), GDN_OK, "%s", gdn_last_error());
    return size;
}

enum { LATE = 502841, EARLY = 300000 }; /* max_tokens; LATE's own plan needs more than the one that it shares */

static void *ask_slowly(void *go)
{
    host.cuda->make_current(0);
    is_slow = true;
    own_go = go;
    return (void *)size_of(LATE);
}

static pthread_t start_asking(sem_t *go)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, ask_slowly, go), 0);
    while (sem_wait(&arrived) != 0) {
    }
    return thread;
}

static size_t end_asking(pthread_t thread, sem_t *go)
{
    void *size;
    sem_post(go);
    pthread_join(thread, &size);
    return (size_t)size;
}

/* Whatever plan answered is the one that serves. */
static void expect_enough(size_t size, const char *who)
{
    const gdn_prefill_desc desc = long_desc(LATE);
    const gdn_prefill_args args = fake_prefill_args();
    cr_expect_eq(gdn_prefill(host.ctx, &desc, &args, 0x10000000, size, NULL), GDN_OK, "%s: %s", who, gdn_last_error());
}

static void start_race(void)
{
    const gdn_prefill_desc late = long_desc(LATE), wide = long_desc(1 << 20);
    const gdn_target target = fake_h200(host.ctx);
    gdn_plan *own = NULL, *shared = NULL;
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &late, 0, &own), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &wide, 0, &shared), GDN_OK, "%s", gdn_last_error());
    cr_assert_gt(gdn_plan_workspace_size(own), gdn_plan_workspace_size(shared), "no larger: these tests show nothing");
    gdn_plan_destroy(own);
    gdn_plan_destroy(shared);
    sem_init(&arrived, 0, 0);
    sem_init(&go_on[0], 0, 0);
    sem_init(&go_on[1], 0, 0);
    host.cuda->set_hook(wait_at_load);
    for (int64_t i = 0; i < 3; ++i)
        size_of(EARLY + i);
}

Test(onecall, a_size_that_the_shared_plan_gave_is_enough_when_a_plan_of_the_descs_own_comes_later)
{
    start_race();
    const pthread_t thread = start_asking(&go_on[0]); /* there are three alike: it makes a plan of its own */
    size_of(EARLY + 3);
    const size_t shared = size_of(LATE);
    const size_t own = end_asking(thread, &go_on[0]);
    cr_expect_eq(own, shared);
    expect_enough(shared, "who was answered by the shared plan");
    expect_enough(own, "who made a plan");
}

Test(onecall, a_size_that_was_asked_for_while_a_plan_of_the_descs_own_came_is_enough)
{
    start_race();
    const pthread_t first = start_asking(&go_on[0]);
    size_of(EARLY + 3);
    const pthread_t second = start_asking(&go_on[1]); /* of four alike: it makes the shared one */
    const size_t own = end_asking(first, &go_on[0]), late = end_asking(second, &go_on[1]);
    cr_expect_eq(late, own);
    expect_enough(late, "who made the shared plan");
    expect_enough(own, "who made a plan");
}

Test(onecall, a_call_is_held_to_its_own_descs_bounds)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    desc.max_tokens = 95;
    cr_expect_eq(call(&desc), GDN_E_INVALID);
    cr_expect(fake_error_says("num_tokens is 96") && fake_error_says("95"), "%s", gdn_last_error());
    desc.max_tokens = 96;
    desc.max_seqs = 2;
    cr_expect_eq(call(&desc), GDN_E_INVALID);
    cr_expect(fake_error_says("num_seqs is 3"), "%s", gdn_last_error());
}

/* Nor does a plan that serves several descs, with wider bounds than theirs, lend them these. */
Test(onecall, a_call_is_held_to_its_own_descs_bounds_by_a_plan_with_wider_ones_too)
{
    gdn_conv1d_desc conv = fake_conv1d_desc();
    gdn_prefill_desc prefill = fake_prefill_desc();
    const gdn_prefill_args args = fake_prefill_args();
    conv.max_seqs = prefill.max_seqs = 3;
    for (int tokens = 100; tokens <= 105; ++tokens) {
        conv.max_tokens = prefill.max_tokens = tokens;
        cr_assert_eq(call(&conv), GDN_OK, "%d: %s", tokens, gdn_last_error());
        cr_assert_eq(gdn_prefill(host.ctx, &prefill, &args, 0, 0, NULL), GDN_OK, "%d: %s", tokens, gdn_last_error());
    }
    conv.max_tokens = prefill.max_tokens = 95;
    cr_expect_eq(call(&conv), GDN_E_INVALID);
    cr_expect(fake_error_says("num_tokens is 96, max_tokens is 95"), "%s", gdn_last_error());
    cr_expect_eq(gdn_prefill(host.ctx, &prefill, &args, 0, 0, NULL), GDN_E_INVALID);
    cr_expect(fake_error_says("num_tokens is 96, max_tokens is 95"), "%s", gdn_last_error());
}

Test(onecall, during_capture_a_new_desc_is_refused_before_anything_is_compiled)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    for (int status = 1; status <= 2; ++status) { /* active, invalidated */
        host.cuda->set_capture(status);
        cr_expect_eq(call(&desc), GDN_E_NOT_LOADED, "capture status %d", status);
        cr_expect(fake_error_says("capturing") && fake_error_says("outside the capture"), "%s", gdn_last_error());
    }
    host.cuda->set_capture(0);
    host.cuda->fail("cuStreamIsCapturing", 1, 906); /* the null stream while another one captures */
    cr_expect_eq(call(&desc), GDN_E_NOT_LOADED);
    cr_expect_eq(fake_compiles(host.ctx), 0);
    cr_expect_eq(loads(), 0);
    cr_assert_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
    host.cuda->set_capture(1);
    cr_expect_eq(call(&desc), GDN_OK, "a desc seen before is captured: %s", gdn_last_error());
}

Test(onecall, a_failure_is_not_kept)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    host.cuda->fail("cuDevicePrimaryCtxRetain", 1, 2);
    cr_expect_eq(call(&desc), GDN_E_CUDA);
    cr_expect(fake_error_says("cuDevicePrimaryCtxRetain"), "%s", gdn_last_error());
    cr_expect(fake_balanced(host.cuda));
    cr_expect_eq(call(&desc), GDN_OK, "%s", gdn_last_error());
}

Test(onecall, needs_a_current_context)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    host.cuda->make_current(-1);
    cr_expect_eq(call(&desc), GDN_E_NOT_LOADED);
    cr_expect(fake_error_says("no current CUDA context"), "%s", gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), 0);
}

Test(onecall, running_out_of_memory_at_any_point_leaks_nothing)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_status status = GDN_E_NOMEM;
    int failures = 0;
    for (int64_t n = 0; status != GDN_OK && n < 2000; ++n, ++failures) {
        gdni_mem_fail_after(n);
        status = call(&desc);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "allocation %lld: %s: %s", (long long)n, gdn_status_name(status),
                  gdn_last_error());
        if (status != GDN_OK) cr_assert(fake_balanced(host.cuda), "allocation %lld", (long long)n);
    }
    cr_expect_eq(status, GDN_OK);
    cr_expect_gt(failures, 5);
}

static void *call_in_thread(void *user)
{
    host.cuda->make_current(0);
    return (void *)(uintptr_t)call(user);
}

Test(onecall, concurrent_first_calls_compile_once_and_all_succeed)
{
    enum { THREADS = 8 };
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.max_tokens = 200; /* one bucket, one kernel */
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, call_in_thread, &desc), 0);
    for (int i = 0; i < THREADS; ++i) {
        void *status;
        pthread_join(threads[i], &status);
        cr_expect_eq((uintptr_t)status, GDN_OK, "thread %d", i);
    }
    cr_expect_eq(fake_compiles(host.ctx), 1);
    cr_expect_eq(host.cuda->num_launches(), THREADS);
    const struct fake_balance b = host.cuda->balance();
    cr_expect_eq(b.retained_contexts, 1, "plans that lost the race are gone");
    cr_expect_eq(b.loaded_libraries, 1);
}
