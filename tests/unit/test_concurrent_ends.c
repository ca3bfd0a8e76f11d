/*
 * test_concurrent_ends.c - a context and its plans end in any order, in one thread or many; who is left works until its end.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/context.h"
#include "support/fake_host.h"

Test(concurrent_ends, a_plan_works_when_its_context_is_gone)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200"), *unloaded = fake_plan_conv(host.ctx, 1000, "NVIDIA H200");
    const gdn_conv1d_args args = fake_conv1d_args();
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    fake_host_close(&host);

    cr_expect_eq(gdn_execute_conv1d_qkv(plan, &args, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 1);
    cr_expect_eq(gdn_plan_load(unloaded, 0), GDN_OK, "%s", gdn_last_error());
    char *key = fake_dump(plan, GDN_DUMP_KEY);
    cr_expect(key && strstr(key, "sm_90a"));
    free(key);
    gdn_plan_destroy(plan);
    cr_expect_eq(gdn_execute_conv1d_qkv(unloaded, &args, NULL), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(unloaded);
    cr_expect(fake_balanced(host.cuda));
    cr_expect(fake_no_leaks());
}

Test(concurrent_ends, a_plan_that_could_not_be_made_holds_no_context)
{
    struct fake_host host;
    gdn_plan *plan;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", GDN_CTX_NO_COMPILE);
    const gdn_target target = fake_h200(host.ctx);
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_expect_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_E_NOT_CACHED);
    cr_expect_eq(atomic_load(&host.ctx->holders), 1u);
    fake_host_close(&host);
    cr_expect(fake_no_leaks());
}

static void *destroy_plan(void *user)
{
    gdn_plan_destroy(user);
    return NULL;
}

Test(concurrent_ends, threads_that_end_plans_and_the_context_together_free_it_once)
{
    enum { THREADS = 8, ROUNDS = 20 };
    struct fake_host host;
    for (int round = 0; round < ROUNDS; ++round) {
        fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
        gdn_plan *plans[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; ++i) {
            plans[i] = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
            cr_assert_eq(gdn_plan_load(plans[i], 0), GDN_OK, "%s", gdn_last_error());
        }
        for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, destroy_plan, plans[i]), 0);
        fake_host_close(&host);
        for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
        cr_expect(fake_balanced(host.cuda), "round %d", round);
    }
    cr_expect(fake_no_leaks());
}
