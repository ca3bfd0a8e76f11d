/*
 * test_concurrent_loads.c - threads that open the driver, load one plan, or print it while it is loaded.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan.h"
#include "support/fake_host.h"

enum { INVALID_IMAGE = 200 };

static void *get_table(void *user)
{
    const struct gdni_cuda *cuda = NULL;
    return gdni_driver_get(user, &cuda) == GDN_OK ? (void *)(uintptr_t)cuda : NULL;
}

Test(concurrent_loads, threads_that_come_first_together_open_it_once)
{
    enum { THREADS = 8 };
    const struct fake_controls *fake = fake_open(GDN_FAKE_CUDA_PATH);
    struct gdni_driver *driver = gdni_driver_create(GDN_FAKE_CUDA_PATH);
    pthread_t threads[THREADS];
    void *tables[THREADS];
    for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, get_table, driver), 0);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], &tables[i]);
    for (int i = 0; i < THREADS; ++i) cr_expect(tables[i] && tables[i] == tables[0], "thread %d", i);
    cr_expect_eq(fake->calls("cuInit"), 1);
    gdni_driver_destroy(driver);
}

struct loading {
    gdn_plan *plan;
    int device;
    gdn_status status;
};

static void *load_in_thread(void *user)
{
    struct loading *l = user;
    l->status = gdn_plan_load(l->plan, l->device);
    return NULL;
}

Test(concurrent_loads, load_once_per_device)
{
    enum { THREADS = 12, DEVICES = 3 };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    host.cuda->set_devices(DEVICES);
    gdn_plan *plan = fake_plan_conv(host.ctx, 1000, "NVIDIA H200");
    pthread_t threads[THREADS];
    struct loading loading[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        loading[i] = (struct loading){ plan, i % DEVICES, GDN_E_IO };
        cr_assert_eq(pthread_create(&threads[i], NULL, load_in_thread, &loading[i]), 0);
    }
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(loading[i].status, GDN_OK, "thread %d", i);
    }
    cr_expect_eq(host.cuda->calls("cuLibraryLoadData"), plan->num_variants);
    cr_expect_eq(host.cuda->calls("cuDevicePrimaryCtxRetain"), DEVICES);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

Test(concurrent_loads, all_succeed_when_the_driver_refused_a_cached_cubin)
{
    enum { THREADS = 6 };
    char dir[64];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    pthread_t threads[THREADS];
    struct loading loading[THREADS];
    host.cuda->fail("cuLibraryLoadData", 1, INVALID_IMAGE);
    for (int i = 0; i < THREADS; ++i) {
        loading[i] = (struct loading){ plan, 0, GDN_E_IO };
        cr_assert_eq(pthread_create(&threads[i], NULL, load_in_thread, &loading[i]), 0);
    }
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(loading[i].status, GDN_OK, "thread %d", i);
    }
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    fake_remove_dir(dir);
}

/* Between the refusal on one device and the cubin that is to replace it, the plan is loaded on another. */
static void load_elsewhere(void *user, int level, const char *message)
{
    struct loading *l = user;
    pthread_t thread;
    if (level > GDN_LOG_WARN || !strstr(message, "counts as damaged")) return;
    cr_assert_eq(pthread_create(&thread, NULL, load_in_thread, l), 0);
    pthread_join(thread, NULL);
}

Test(concurrent_loads, a_cubin_that_another_device_took_meanwhile_stays_under_it)
{
    char dir[64];
    struct loading elsewhere = { NULL, 1, GDN_E_IO };
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    const gdn_conv1d_args args = fake_conv1d_args();
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    const struct fake_controls *fake = fake_open(GDN_FAKE_CUDA_PATH);
    fake->set_devices(2);
    cfg.cache_dir = dir;
    cfg.driver_path = GDN_FAKE_CUDA_PATH;
    cfg.nvrtc_path = getenv("GDN_JIT_NVRTC"); /* fake_warm()'s */
    cfg.log_fn = load_elsewhere;
    cfg.log_user = &elsewhere;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    gdn_plan *plan = elsewhere.plan = fake_plan_conv(ctx, 200, "NVIDIA H200");
    fake->fail("cuLibraryLoadData", 1, INVALID_IMAGE);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(elsewhere.status, GDN_OK);
    cr_expect_eq(fake->calls("cuLibraryUnload"), 0, "its kernels may be running there");
    for (int device = 0; device < 2; ++device) {
        fake->make_current(device);
        cr_expect_eq(gdn_execute_conv1d_qkv(plan, &args, NULL), GDN_OK, "%s", gdn_last_error());
    }
    cr_expect_eq(fake->launch(0).image, fake->launch(1).image);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(fake));
    gdn_ctx_destroy(ctx);
    fake_remove_dir(dir);
}

Test(concurrent_loads, a_dump_during_loads_sees_whole_programs)
{
    char dir[64];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    struct loading loading = { plan, 0, GDN_E_IO };
    pthread_t thread;
    host.cuda->fail("cuLibraryLoadData", 1, INVALID_IMAGE); /* the load replaces the program meanwhile */
    cr_assert_eq(pthread_create(&thread, NULL, load_in_thread, &loading), 0);
    for (int i = 0; i < 50; ++i) {
        char *key = fake_dump(plan, GDN_DUMP_KEY);
        cr_assert(key && strstr(key, "sm_90a"));
        free(key);
    }
    pthread_join(thread, NULL);
    cr_expect_eq(loading.status, GDN_OK);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
    fake_remove_dir(dir);
}
