/*
 * test_ctx_threads.c - threads that make contexts, plan, load, execute and take all of it down again, on one cache directory
 * and one driver, each on its own context and all on one. For ThreadSanitizer above all.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "support/fake_host.h"
#include "support/store.h"

enum { THREADS = 6, ROUNDS = 12, DEVICES = 3 };

struct crowd {
    const struct fake_controls *cuda;
    char *dir;
    gdn_ctx *shared; /* NULL: each thread makes its own, anew each round */
    atomic_int failures;
};

struct member {
    struct crowd *crowd;
    int number;
};

static gdn_ctx *open_ctx(const struct crowd *c)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = c->dir;
    cfg.flags = GDN_CTX_NO_ENV;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.driver_path = GDN_FAKE_CUDA_PATH;
    gdn_ctx *ctx = NULL;
    return gdn_ctx_create(&ctx, &cfg) == GDN_OK ? ctx : NULL;
}

static gdn_status run_prefill(gdn_ctx *ctx, int device)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    const gdn_prefill_args args = fake_prefill_args();
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    gdn_status status = gdn_target_from_device(ctx, device, &target);
    if (status == GDN_OK) status = gdn_plan_prefill(ctx, &target, &desc, 0, &plan);
    if (status == GDN_OK) status = gdn_plan_load(plan, device);
    if (status == GDN_OK) status = gdn_execute_prefill(plan, &args, 0, 0, NULL);
    gdn_plan_destroy(plan);
    return status;
}

static gdn_status run_conv(gdn_ctx *ctx)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    return gdn_conv1d_qkv(ctx, &desc, &args, NULL);
}

/* Of one thread; counts what is not GDN_OK. */
static void *live(void *user)
{
    const struct member *m = user;
    struct crowd *c = m->crowd;
    for (int round = 0; round < ROUNDS; ++round) {
        const int device = (m->number + round) % DEVICES;
        gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
        gdn_ctx *ctx = c->shared ? c->shared : open_ctx(c);
        c->cuda->make_current(device);
        const bool good = ctx && run_prefill(ctx, device) == GDN_OK && run_conv(ctx) == GDN_OK &&
                          gdn_cache_stat(ctx, &stats) == GDN_OK && stats.corrupt == 0;
        if (!good) fprintf(stderr, "thread %d round %d: %s\n", m->number, round, gdn_last_error());
        c->failures += !good;
        if (!c->shared) gdn_ctx_destroy(ctx);
    }
    c->cuda->make_current(-1);
    return NULL;
}

static void run_crowd(struct crowd *c)
{
    pthread_t threads[THREADS];
    struct member members[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        members[i] = (struct member){ c, i };
        cr_assert_eq(pthread_create(&threads[i], NULL, live, &members[i]), 0);
    }
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    cr_expect_eq(c->failures, 0);
}

static struct crowd gather(void)
{
    struct crowd c = { .cuda = fake_open(GDN_FAKE_CUDA_PATH), .dir = store_scratch() };
    c.cuda->set_devices(DEVICES);
    return c;
}

Test(ctx_threads, each_with_contexts_of_its_own)
{
    struct crowd c = gather();
    run_crowd(&c);
    cr_expect(fake_balanced(c.cuda));
    store_remove(c.dir);
}

Test(ctx_threads, all_on_one_context)
{
    struct crowd c = gather();
    c.shared = open_ctx(&c);
    cr_assert_not_null(c.shared, "%s", gdn_last_error());
    run_crowd(&c);
    cr_expect_leq(fake_compiles(c.shared), 8u, "%d compiles", (int)fake_compiles(c.shared));
    gdn_ctx_destroy(c.shared);
    cr_expect(fake_balanced(c.cuda));
    store_remove(c.dir);
}
