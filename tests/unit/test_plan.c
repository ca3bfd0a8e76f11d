/*
 * test_plan.c - a plan's variants, its loading onto devices, cubins that the driver refuses, and what a dump says.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/plan.h"
#include "support/fake_host.h"
#include "support/store.h"

enum { INVALID_IMAGE = 200, OUT_OF_MEMORY = 2 };

static gdn_plan *plan_of(gdn_ctx *ctx, const gdn_prefill_desc *desc)
{
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(ctx);
    cr_assert_eq(gdn_plan_prefill(ctx, &target, desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    return plan;
}

static gdn_plan *plan_prefill(gdn_ctx *ctx)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    return plan_of(ctx, &desc);
}

static void check_leaks(void)
{
    cr_expect(fake_no_leaks());
}

TestSuite(plan, .fini = check_leaks);

/* ---- Variants ---- */

Test(plan, every_bucket_within_the_bound_has_a_variant_and_none_beyond)
{
    static const struct {
        int64_t max_tokens;
        int buckets;
    } cases[] = { { 1, 1 }, { 256, 1 }, { 257, 2 }, { 4096, 3 }, { 1 << 20, 7 }, { INT32_MAX, 7 } };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        gdn_plan *plan = fake_plan_conv(host.ctx, cases[i].max_tokens, "NVIDIA H200");
        for (int b = 0; b < GDNI_NUM_BUCKETS; ++b) {
            const int variant = plan->variant_of_bucket[b];
            const bool served = gdni_bucket_of(cases[i].max_tokens) >= b;
            cr_expect(served ? variant >= 0 && variant < plan->num_variants : variant == -1,
                      "max_tokens %lld, bucket %d: variant %d", (long long)cases[i].max_tokens, b, variant);
        }
        gdn_plan_destroy(plan);
    }
    fake_host_close(&host);
}

Test(plan, as_many_sequences_as_a_call_may_have_are_few_and_more_are_none)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 7; /* one sequence and two have a kernel of two kinds of CTAs */
    desc.max_tokens = 1024;
    for (int seqs = 1; seqs <= 2; ++seqs) {
        desc.max_seqs = seqs;
        gdn_plan *plan = plan_of(host.ctx, &desc);
        cr_expect_geq(gdni_plan_variant_of_few(plan, 1024, seqs), 0, "%d", seqs);
        cr_expect_eq(gdni_plan_variant_of_few(plan, 1024, 2 * seqs), -1, "%d", seqs);
        gdn_plan_destroy(plan);
    }
    fake_host_close(&host);
}

Test(plan, buckets_with_equal_specs_share_a_variant)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 1 << 20, "NVIDIA H200");
    for (int i = 0; i < plan->num_variants; ++i)
        for (int j = 0; j < i; ++j) cr_expect_neq(memcmp(&plan->specs[i], &plan->specs[j], sizeof plan->specs[i]), 0);
    cr_expect_lt(plan->num_variants, GDNI_NUM_BUCKETS);
    gdn_plan_destroy(plan);
    plan = plan_prefill(host.ctx);
    cr_expect_eq(plan->num_variants, 3, "any call; halves of heads; two kinds of CTAs for one sequence");
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

/* Of kernels that cut there is another one beside them, for calls that are not cut; what never cuts is that one alone. */
Test(plan, has_kernels_that_cut_where_a_call_may_be_cut_and_beside_them_one_that_does_not)
{
    static const struct {
        int64_t max_tokens, max_seqs;
        uint32_t flags;
        int cutting, others;
    } wanted[] = {
        { 512, 512, 0, 0, 2 },   /* halves for few sequences; no call of eight chunks is cut */
        { 32768, 64, 0, 2, 2 },  /* one that carries for one sequence, one that does not */
        { 32768, 64, GDN_PLAN_WHOLE_SEQUENCES, 0, 2 },
        { 32768, 64, GDN_PLAN_BATCH_INVARIANT, 1, 0 }, /* another kernel might have other bits */
        { 256, 4, GDN_PLAN_BATCH_INVARIANT, 1, 0 },
    };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        gdn_plan *plan = NULL;
        gdn_target target = GDN_TARGET_INIT;
        gdn_prefill_desc desc = fake_prefill_desc();
        desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 32;
        desc.max_tokens = wanted[i].max_tokens, desc.max_seqs = wanted[i].max_seqs;
        cr_assert_eq(gdn_target_from_name(host.ctx, "NVIDIA H200", &target), GDN_OK);
        cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, wanted[i].flags | GDN_PLAN_HEURISTIC, &plan), GDN_OK, "%s",
                     gdn_last_error());
        int cutting = 0, told = 0;
        char *const dump = fake_dump(plan, GDN_DUMP_JSON);
        for (const char *at = dump; (at = strstr(at, "\"cuts\": true")) != NULL; ++at)
            ++told;
        free(dump);
        for (int v = 0; v < plan->num_variants; ++v) {
            const int whole = plan->whole_of_variant[v];
            cutting += plan->specs[v].cuts;
            cr_expect(plan->problem.batch_invariant ? whole == v : !plan->specs[whole].cuts, "row %zu, variant %d: %d", i, v,
                      whole);
        }
        cr_expect(cutting == wanted[i].cutting && plan->num_variants - cutting == wanted[i].others, "row %zu: %d of %d cut", i,
                  cutting, plan->num_variants);
        cr_expect_eq(told, cutting, "row %zu: the dump tells of %d", i, told);
        gdn_plan_destroy(plan);
    }
    fake_host_close(&host);
}

Test(plan, planning_needs_no_driver)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "sm_80");
    cr_expect_eq(host.cuda->calls("cuInit"), 0);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
    cr_expect_eq(host.cuda->calls("cuInit"), 0);
}

Test(plan, a_target_of_an_arch_alone_plans_for_its_common_gpu)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *by_arch = fake_plan_conv(host.ctx, 1000, "sm_90a"), *by_name = fake_plan_conv(host.ctx, 1000, "NVIDIA H200");
    char *a = fake_dump(by_arch, GDN_DUMP_KEY), *b = fake_dump(by_name, GDN_DUMP_KEY);
    cr_assert(a && b);
    cr_expect_str_eq(a, b);
    free(a);
    free(b);
    gdn_plan_destroy(by_arch);
    gdn_plan_destroy(by_name);
    fake_host_close(&host);
}

/* ---- Loading ---- */

Test(plan, loading_is_idempotent_and_destroying_gives_everything_back)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 1000, "NVIDIA H200");
    for (int i = 0; i < 3; ++i) cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    struct fake_balance b = host.cuda->balance();
    cr_expect_eq(b.retained_contexts, 1);
    cr_expect_eq(b.loaded_libraries, plan->num_variants);
    cr_expect_eq(b.pushed_contexts, 0);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    cr_expect_eq(host.warnings, 0, "%s", host.warning);
}

Test(plan, one_library_serves_every_device)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    host.cuda->set_devices(3);
    gdn_plan *plan = fake_plan_conv(host.ctx, 1000, "NVIDIA H200");
    for (int device = 2; device >= 0; --device) cr_assert_eq(gdn_plan_load(plan, device), GDN_OK, "%s", gdn_last_error());
    const struct fake_balance b = host.cuda->balance();
    cr_expect_eq(b.loaded_libraries, plan->num_variants);
    cr_expect_eq(b.retained_contexts, 3);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

/* The bytes serve the first: they are good. */
Test(plan, what_a_second_device_refuses_is_not_built_again)
{
    char dir[64];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    host.cuda->set_devices(2);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    host.cuda->fail("cuLibraryGetKernel", 1, 500);
    cr_expect_eq(gdn_plan_load(plan, 1), GDN_E_CUDA);
    cr_expect_eq(fake_compiles(host.ctx), 0);
    cr_expect_eq(host.warnings, 0, "%s", host.warning);
    cr_expect_eq(gdn_plan_load(plan, 1), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    fake_remove_dir(dir);
}

Test(plan, more_devices_than_a_plan_serves_are_refused)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    host.cuda->set_devices(FAKE_MAX_DEVICES);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    for (int device = 0; device < 64; ++device) cr_assert_eq(gdn_plan_load(plan, device), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_plan_load(plan, 64), GDN_E_UNSUPPORTED);
    cr_expect(fake_error_says("64 devices"), "%s", gdn_last_error());
    cr_expect_eq(host.cuda->balance().retained_contexts, 64);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

Test(plan, shared_memory_is_opted_into_where_a_kernel_needs_it)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *conv = fake_plan_conv(host.ctx, 200, "NVIDIA H200"), *prefill = plan_prefill(host.ctx);
    cr_assert_gt(prefill->specs[0].smem_bytes, 48 * 1024);
    cr_assert_eq(gdn_plan_load(conv, 0), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->calls("cuKernelSetAttribute"), 0);
    cr_assert_eq(gdn_plan_load(prefill, 0), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->calls("cuKernelSetAttribute"), prefill->num_variants);
    gdn_plan_destroy(conv);
    gdn_plan_destroy(prefill);
    fake_host_close(&host);
}

/* Between what every kernel may have and twice of it too. */
Test(plan, shared_memory_is_opted_into_from_the_first_byte_on)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    const gdn_target target = fake_h200(host.ctx);
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.io_type = GDN_F32;
    gdn_plan *plan = NULL;
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    int most = 0, above = 0;
    for (int i = 0; i < plan->num_variants; ++i) {
        const int bytes = plan->specs[i].smem_bytes;
        above += bytes > 48 * 1024;
        if (bytes > most) most = bytes;
    }
    cr_assert(above > 0 && most < 96 * 1024, "%d bytes", most);
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->calls("cuKernelSetAttribute"), above);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

Test(plan, what_cannot_be_given_back_is_a_warning_unless_the_process_ends)
{
    enum { DEINITIALIZED = 4, LAUNCH_FAILED = 719 };
    static const int results[] = { DEINITIALIZED, LAUNCH_FAILED };
    for (size_t i = 0; i < sizeof results / sizeof results[0]; ++i) {
        struct fake_host host;
        fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
        gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
        cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
        host.cuda->fail("cuLibraryUnload", 0, results[i]);
        gdn_plan_destroy(plan);
        cr_expect_eq(host.warnings, results[i] != DEINITIALIZED, "%d: %s", results[i], host.warning);
        fake_host_close(&host);
    }
}

/* ---- Cubins that the driver refuses ---- */

Test(plan, a_cached_cubin_that_the_driver_refuses_is_built_again_once)
{
    char dir[64];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    cr_assert_eq(fake_compiles(host.ctx), 0, "the entry is found");
    host.cuda->fail("cuLibraryLoadData", 1, INVALID_IMAGE);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), 1);
    cr_expect_eq(host.warnings, 1);
    cr_expect(strstr(host.warning, "cuLibraryLoadData") && strstr(host.warning, "compiled anew"), "%s", host.warning);
    char *json = fake_dump(plan, GDN_DUMP_JSON);
    cr_assert(json);
    cr_expect(strstr(json, "\"origin\": \"compiler\""), "%s", json);
    free(json);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    fake_remove_dir(dir);
}

Test(plan, whatever_the_driver_says_of_an_image_has_it_built_again)
{
    static const int results[] = { 200, 209, 218, 300, 500 }; /* invalid, for another GPU, no PTX, no source, no such name */
    for (size_t i = 0; i < sizeof results / sizeof results[0]; ++i) {
        char dir[64];
        struct fake_host host;
        fake_warm(dir, GDN_FAKE_CUDA_PATH);
        fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
        gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
        host.cuda->fail("cuLibraryLoadData", 1, results[i]);
        cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%d: %s", results[i], gdn_last_error());
        cr_expect_eq(fake_compiles(host.ctx), 1, "%d", results[i]);
        gdn_plan_destroy(plan);
        fake_host_close(&host);
        fake_remove_dir(dir);
    }
}

Test(plan, a_refusal_that_only_the_kernel_lookup_shows_counts_as_well)
{
    static const char *const calls[] = { "cuLibraryGetKernel", "cuKernelGetFunction" };
    static const int results[] = { 500, 209 };
    for (int i = 0; i < 2; ++i) {
        char dir[64];
        struct fake_host host;
        fake_warm(dir, GDN_FAKE_CUDA_PATH);
        fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
        gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
        host.cuda->fail(calls[i], 1, results[i]);
        cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%s: %s", calls[i], gdn_last_error());
        cr_expect_eq(fake_compiles(host.ctx), 1, "%s", calls[i]);
        gdn_plan_destroy(plan);
        cr_expect(fake_balanced(host.cuda), "%s", calls[i]);
        fake_host_close(&host);
        fake_remove_dir(dir);
    }
}

Test(plan, a_cubin_that_stays_refused_is_built_again_only_once)
{
    char dir[64];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    host.cuda->fail("cuLibraryLoadData", 0, INVALID_IMAGE);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
    cr_expect(fake_error_says("conv1d_qkv for sm_90a") && fake_error_says("cuLibraryLoadData failed"), "%s",
              gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), 1);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
    cr_expect_eq(fake_compiles(host.ctx), 1);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    fake_remove_dir(dir);
}

/* The fake NVRTC is of 13.0. */
Test(plan, a_driver_older_than_the_compiler_is_named_with_the_cure)
{
    for (int version = 12080; version <= 13000; version += 920) {
        struct fake_host host;
        fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
        host.cuda->set_version(version);
        gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
        host.cuda->fail("cuLibraryLoadData", 0, INVALID_IMAGE);
        cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
        const bool cured = fake_error_says("NVRTC 13 made and a driver of CUDA 12 does not load") &&
                           fake_error_says("libnvrtc.so.12");
        cr_expect_eq(cured, version < 13000, "%s", gdn_last_error());
        cr_expect_eq(fake_error_says("does not load"), cured, "%s", gdn_last_error());
        cr_expect(fake_error_says("conv1d_qkv for sm_90a"), "%s", gdn_last_error());
        gdn_plan_destroy(plan);
        fake_host_close(&host);
    }
}

Test(plan, a_fresh_cubin_and_a_sick_machine_are_no_reason_to_build_again)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    host.cuda->fail("cuLibraryLoadData", 1, INVALID_IMAGE); /* came from the compiler just now */
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
    cr_expect_eq(fake_compiles(host.ctx), 1);
    gdn_plan_destroy(plan);
    plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200"); /* now from memory */
    host.cuda->fail("cuLibraryLoadData", 1, OUT_OF_MEMORY);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
    cr_expect_eq(fake_compiles(host.ctx), 1);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

Test(plan, strict_mode_does_not_build_a_refused_cubin_again)
{
    char dir[64];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, GDN_CTX_NO_COMPILE);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    host.cuda->fail("cuLibraryLoadData", 1, INVALID_IMAGE);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_E_CUDA);
    cr_expect(fake_error_says("strict mode") && fake_error_says("device kernel image is invalid"), "%s", gdn_last_error());
    cr_expect_eq(fake_compiles(host.ctx), 0);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
    fake_remove_dir(dir);
}

Test(plan, strict_mode_loads_what_another_compiler_made_where_the_first_entry_is_refused)
{
    char dir[64], second[512];
    struct fake_host host;
    fake_warm(dir, GDN_FAKE_CUDA_PATH);
    char *entry = store_only_entry(dir), *tag = strrchr(entry, '/');
    snprintf(second, sizeof second, "%.*s.ffffffff.gdnk", (int)(tag - entry) + 33, entry); /* behind any real tag */
    cr_assert_eq(link(entry, second), 0, "%s", second);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, GDN_CTX_NO_COMPILE);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    host.cuda->fail("cuLibraryLoadData", 1, INVALID_IMAGE);
    cr_expect_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.warnings, 1);
    cr_expect(strstr(host.warning, tag + 1) && strstr(host.warning, "passed over"), "%s", host.warning);
    cr_expect_eq(fake_compiles(host.ctx), 0);
    gdn_plan_destroy(plan);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    fake_remove_dir(dir);
    free(entry);
}

/* ---- Memory ---- */

Test(plan, running_out_of_memory_at_any_point_leaks_nothing)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    const gdn_target target = fake_h200(host.ctx);
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.max_tokens = 200;
    gdn_status status = GDN_E_NOMEM;
    int64_t n = 0;
    for (; status != GDN_OK && n < 2000; ++n) {
        gdn_plan *plan = NULL;
        gdni_mem_fail_after(n);
        status = gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "allocation %lld: %s", (long long)n, gdn_last_error());
        cr_assert_eq(plan != NULL, status == GDN_OK, "allocation %lld", (long long)n);
        gdn_plan_destroy(plan);
    }
    cr_expect_eq(status, GDN_OK);
    cr_expect_gt(n, 5);
    fake_host_close(&host);
}

/* Text is generated and hashed for the first plan of a spec alone: the second allocates itself and its modules. */
Test(plan, a_plan_made_again_builds_no_unit_and_no_key)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_plan *first = NULL, *again = NULL;
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, 0, &first), GDN_OK, "%s", gdn_last_error());
    gdn_cache_stats before = GDN_CACHE_STATS_INIT, after = GDN_CACHE_STATS_INIT;
    cr_assert_eq(gdn_cache_stat(host.ctx, &before), GDN_OK);
    gdni_mem_fail_after(2);
    const gdn_status status = gdn_plan_prefill(host.ctx, &target, &desc, 0, &again);
    gdni_mem_fail_after(-1);
    cr_assert_eq(status, GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_cache_stat(host.ctx, &after), GDN_OK);
    cr_expect_eq(after.memory_hits - before.memory_hits, (uint64_t)first->num_variants);
    cr_expect_eq(after.compiles, before.compiles);
    cr_assert_eq(again->num_variants, first->num_variants);
    for (int i = 0; i < first->num_variants; ++i) {
        enum gdni_origin origin;
        struct gdni_program *a = gdni_modules_program(first->modules, i, &origin);
        struct gdni_program *b = gdni_modules_program(again->modules, i, &origin);
        cr_expect_eq(a, b, "variant %d", i);
        cr_expect_eq(origin, GDNI_FROM_MEMORY);
        gdni_program_release(a);
        gdni_program_release(b);
    }
    gdn_plan_destroy(first);
    gdn_plan_destroy(again);
    fake_host_close(&host);
}

Test(plan, a_load_without_memory_leaves_the_device_as_it_was)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    cr_assert_eq(gdn_plan_load(plan, 7), GDN_E_NO_DEVICE); /* opens the driver */
    gdni_mem_fail_after(0);
    const gdn_status status = gdn_plan_load(plan, 0);
    gdni_mem_fail_after(-1);
    cr_assert_eq(status, GDN_E_NOMEM, "%s: %s", gdn_status_name(status), gdn_last_error());
    cr_expect(fake_balanced(host.cuda));
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(plan);
    fake_host_close(&host);
    cr_expect(fake_balanced(host.cuda));
    cr_expect(fake_no_leaks());
}

/* ---- Dumps ---- */

Test(plan, buckets_of_all_variants_are_the_plans_buckets)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 300000, "NVIDIA H200");
    char *json = fake_dump(plan, GDN_DUMP_JSON);
    static const int64_t edges[] = { 256, 1024, 4096, 16384, 65536, 262144, 300000 };
    cr_assert(json);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; ++i) {
        char text[32];
        int hits = 0;
        snprintf(text, sizeof text, "%lld", (long long)edges[i]);
        for (const char *at = json; (at = strstr(at, "\"buckets\": [")) != NULL; ++at) {
            const char *end = strchr(at, ']');
            for (const char *c = at + 12; c < end; c += strcspn(c, ", ]"), c += strspn(c, ", "))
                hits += strncmp(c, text, strlen(text)) == 0 && strspn(c, "0123456789") == strlen(text);
        }
        cr_expect_eq(hits, 1, "edge %s is served by %d variants:\n%s", text, hits, json);
    }
    free(json);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

Test(plan, the_source_dump_of_several_variants_tells_them_apart)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 1 << 20, "NVIDIA H200");
    cr_assert_gt(plan->num_variants, 1);
    char *text = fake_dump(plan, GDN_DUMP_SPEC), banner[64];
    cr_assert(text);
    for (int i = 1; i <= plan->num_variants; ++i) {
        snprintf(banner, sizeof banner, "// ---- variant %d of %d: conv1d_qkv sm_90a ", i, plan->num_variants);
        cr_expect(strstr(text, banner), "no \"%s\" in\n%s", banner, text);
    }
    free(text);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

static gdn_status refuse(void *user, const void *data, size_t size)
{
    (void)data, (void)size;
    ++*(int *)user;
    return GDN_E_CANCELLED;
}

Test(plan, a_writer_that_stops_gets_its_status_back)
{
    struct fake_host host;
    int calls = 0;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    cr_expect_eq(gdn_plan_dump(plan, GDN_DUMP_JSON, refuse, &calls), GDN_E_CANCELLED);
    cr_expect_eq(calls, 1);
    cr_expect(fake_error_says("GDN_E_CANCELLED"), "%s", gdn_last_error());
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

/* ---- Problems ---- */

/* A dim that no head has may be anything: it makes no other problem, and no tuning entry that cannot be read back. */
Test(plan, the_dim_of_heads_that_there_are_none_of_is_no_part_of_the_problem)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    struct gdni_problem p;
    desc.num_v_heads = 0, desc.head_dim_v = -5;
    cr_assert_eq(gdni_problem_from_conv1d(&p, &desc), GDN_OK, "%s", gdn_last_error());
    cr_expect(p.head_dim_v == 0 && p.head_dim_qk == 128, "%d, %d", p.head_dim_v, p.head_dim_qk);
    desc = fake_conv1d_desc();
    desc.num_q_heads = desc.num_k_heads = 0, desc.head_dim_qk = 7;
    cr_assert_eq(gdni_problem_from_conv1d(&p, &desc), GDN_OK, "%s", gdn_last_error());
    cr_expect(p.head_dim_v == 128 && p.head_dim_qk == 0, "%d, %d", p.head_dim_v, p.head_dim_qk);
}

/* ---- Support ---- */

/* What the plan's dump says of its kernel has to be what was said before. Destroys the plan. */
static void expect_kernel(gdn_plan *plan, const gdn_support *support, uint32_t flags)
{
    char member[128];
    char *json = fake_dump(plan, GDN_DUMP_JSON);
    snprintf(member, sizeof member, "\"kernel\": \"%s\"", support->kernel);
    cr_expect(strstr(json, member), "flags 0x%x: no %s in\n%s", flags, member, json);
    cr_expect(*support->reason && strstr(json, support->reason), "flags 0x%x: no \"%s\" in\n%s", flags, support->reason, json);
    free(json);
    gdn_plan_destroy(plan);
}

Test(plan, support_names_the_kernel_that_a_plan_then_has)
{
    static const uint32_t flags[] = { 0, GDN_PLAN_GENERIC, GDN_PLAN_WHOLE_SEQUENCES, GDN_PLAN_BATCH_INVARIANT };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc desc = fake_prefill_desc();
    const gdn_conv1d_desc conv = fake_conv1d_desc();
    gdn_support support = GDN_SUPPORT_INIT;
    gdn_plan *plan = NULL;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; ++i) {
        const uint64_t compiles = fake_compiles(host.ctx);
        cr_assert_eq(gdn_prefill_support(&target, &desc, flags[i], &support), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(fake_compiles(host.ctx), compiles);
        cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, flags[i], &plan), GDN_OK, "%s", gdn_last_error());
        expect_kernel(plan, &support, flags[i]);
    }
    cr_assert_eq(gdn_conv1d_support(&target, &conv, 0, &support), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &conv, 0, &plan), GDN_OK, "%s", gdn_last_error());
    expect_kernel(plan, &support, 0);
    fake_host_close(&host);
}

Test(plan, a_dump_has_one_call_of_the_length_that_bounds_all)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.max_tokens = 300;
    gdn_plan *plan = plan_of(host.ctx, &desc);
    char *json = fake_dump(plan, GDN_DUMP_JSON);
    const char *first = strstr(json, "{\"tokens\": 300, \"num_seqs\": 1,");
    cr_expect(first && !strstr(first + 1, "{\"tokens\": 300, \"num_seqs\": 1,"), "%s", json);
    free(json);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

/* Normalising q and k is no reason to run another. */
Test(plan, head_dims_decide_whether_hoppers_own_kernel_runs)
{
    static const struct {
        int32_t dim;
        uint32_t flags;
        const char *kernel;
    } wanted[] = { { 128, 0, "gdn_prefill_hopper" },
                   { 128, GDN_PREFILL_QK_L2NORM | GDN_PREFILL_CHECKPOINTS, "gdn_prefill_hopper" },
                   { 64, 0, "gdn_prefill_generic" },
                   { 64, GDN_PREFILL_QK_L2NORM, "gdn_prefill_generic" } };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    const gdn_target target = fake_h200(host.ctx);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        gdn_prefill_desc desc = fake_prefill_desc();
        gdn_support support = GDN_SUPPORT_INIT;
        desc.head_dim_qk = desc.head_dim_v = wanted[i].dim;
        desc.flags = wanted[i].flags;
        cr_assert_eq(gdn_prefill_support(&target, &desc, 0, &support), GDN_OK, "%s", gdn_last_error());
        cr_expect_str_eq(support.kernel, wanted[i].kernel, "head dims of %d, flags %x", wanted[i].dim, wanted[i].flags);
    }
    fake_host_close(&host);
}

Test(plan, support_says_what_a_plan_would_refuse)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_target target = fake_h200(host.ctx);
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_support support = GDN_SUPPORT_INIT;
    desc.head_dim_v = 96;
    cr_expect_eq(gdn_prefill_support(&target, &desc, 0, &support), GDN_E_UNSUPPORTED);
    cr_expect_str_eq(support.kernel, "");
    cr_expect_str_eq(support.reason, gdn_last_error());
    cr_expect(strstr(support.reason, "128, 96"), "%s", support.reason);
    desc = fake_prefill_desc();
    gdn_plan *plan = NULL;
    desc.max_tokens = INT32_MAX;
    cr_expect_eq(gdn_plan_prefill(host.ctx, &target, &desc, GDN_PLAN_BATCH_INVARIANT, &plan), GDN_E_UNSUPPORTED);
    cr_expect_eq(gdn_prefill_support(&target, &desc, GDN_PLAN_BATCH_INVARIANT, &support), GDN_E_UNSUPPORTED);
    cr_expect(strstr(support.reason, "max_tokens is 2147483647"), "%s", support.reason);
    desc = fake_prefill_desc();
    strcpy(target.arch, "sm_70");
    cr_expect_neq(gdn_prefill_support(&target, &desc, 0, &support), GDN_OK);
    cr_expect(strstr(support.reason, "sm_70"), "%s", support.reason);
    cr_expect_eq(gdn_prefill_support(&target, &desc, 0, NULL), GDN_E_INVALID);
    cr_expect_eq(gdn_conv1d_support(&target, NULL, 0, NULL), GDN_E_INVALID);
    support.struct_size = 3;
    cr_expect_eq(gdn_prefill_support(&target, &desc, 0, &support), GDN_E_VERSION);
    fake_host_close(&host);
}

/* By the sentence that a plan with these flags would be refused with. */
Test(plan, support_refuses_the_flags_that_a_plan_refuses)
{
    static const uint32_t wrong[] = { 1u << 20, GDN_PLAN_HEURISTIC | GDN_PLAN_TUNED_ONLY,
                                      GDN_PLAN_TUNED_ONLY | GDN_PLAN_BATCH_INVARIANT };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_conv1d_desc conv = fake_conv1d_desc();
    gdn_support support = GDN_SUPPORT_INIT;
    gdn_plan *plan = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        cr_expect_eq(gdn_prefill_support(&target, &desc, wrong[i], &support), GDN_E_INVALID);
        cr_expect_eq(gdn_plan_prefill(host.ctx, &target, &desc, wrong[i], &plan), GDN_E_INVALID);
        cr_expect_str_eq(support.reason, gdn_last_error());
    }
    cr_expect_eq(gdn_conv1d_support(&target, &conv, GDN_PLAN_GENERIC, &support), GDN_E_INVALID);
    cr_expect(strstr(support.reason, "flags is 0x"), "%s", support.reason);
    conv.width = 9;
    cr_expect_neq(gdn_conv1d_support(&target, &conv, 0, &support), GDN_OK);
    cr_expect_str_eq(support.kernel, "");
    cr_expect(strstr(support.reason, "width is 9"), "%s", support.reason);
    fake_host_close(&host);
}

/* ---- Cost ---- */

Test(plan, cost_is_bytes_flops_and_the_larger_floor)
{
    struct fake_host host;
    gdn_cost cost = GDN_COST_INIT;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_plan *plan = plan_prefill(host.ctx);
    cr_assert_eq(gdn_plan_cost(plan, 1000, 4, &cost), GDN_OK, "%s", gdn_last_error());
    /* q, k of 4 heads, v, o of 8, 2 bytes; g, beta of 8 heads, 4 bytes; states of 8 heads read and written */
    const double bytes = 1000.0 * (2 * 128 * (4 + 4 + 8 + 8) + 2 * 4 * 8) + 4.0 * 8 * 128 * 128 * 4 * 2;
    cr_expect_eq(cost.bytes, bytes, "%f", cost.bytes);
    cr_expect_gt(cost.flops, 0);
    const double moving = bytes / 4800e3, computing = cost.flops / 989e6;
    cr_expect_float_eq(cost.floor_us, moving > computing ? moving : computing, 1e-9);
    gdn_plan_destroy(plan);
    plan = fake_plan_conv(host.ctx, 200, "sm_90a");
    cr_assert_eq(gdn_plan_cost(plan, 100, 1, &cost), GDN_OK, "%s", gdn_last_error());
    cr_expect_gt(cost.bytes, 0);
    cr_expect_eq(cost.floor_us, 0, "an arch alone has no peak");
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}
