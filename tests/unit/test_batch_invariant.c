/*
 * GDN_PLAN_BATCH_INVARIANT: what decides a sequence's bits (kernel, parameters, where it is cut) is the same whatever stands
 * beside it, of whatever bounds, table and GPU the plan was made; and no call can go without what that takes.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "codegen/division.h"
#include "codegen/kernel_params.h"
#include "codegen/partition.h"
#include "codegen/workspace.h"
#include "runtime/context.h"
#include "runtime/plan.h"
#include "runtime/tuning_api.h"
#include "support/fake_host.h"
#include "support/rng.h"
#include "support/specs.h"
#include "support/tuning_cases.h"

enum { CHUNK = 64, STATE_BYTES = 128 * 128 * 4, SEED = 20261122 };

static struct gdni_problem problem_of(int32_t heads, int64_t max_tokens, int64_t max_seqs)
{
    struct gdni_problem p;
    gdn_prefill_desc d = test_prefill_desc();
    d.num_q_heads = d.num_k_heads = d.num_v_heads = heads;
    d.max_tokens = max_tokens;
    d.max_seqs = max_seqs;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK, "%s", gdni_error_text());
    p.batch_invariant = 1;
    return p;
}

static struct gdni_spec spec_of(const struct gdni_problem *p, int num_sms, int bucket)
{
    struct gdni_params params;
    struct gdni_spec spec;
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_heuristic(&params, p, arch, num_sms, bucket);
    cr_assert_eq(gdni_spec_build(&spec, p, arch, &params), GDN_OK, "%s", gdni_error_text());
    return spec;
}

/* ---- The length ---- */

Test(batch_invariant, the_length_follows_from_the_heads_and_is_a_value_of_the_parameter)
{
    static const struct {
        int32_t heads, chunks;
    } wanted[] = { { 1, 16 }, { 8, 16 }, { 9, 32 }, { 48, 32 }, { 49, 64 }, { 96, 64 }, { 97, 128 }, { 4096, 128 } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_problem p = problem_of(wanted[i].heads, 1 << 20, 64);
        const struct gdni_spec spec = spec_of(&p, 132, 0); /* gdni_spec_build() checks that it is legal */
        cr_expect_eq(spec.params.partition_chunks, wanted[i].chunks, "%d heads: %d", wanted[i].heads,
                     spec.params.partition_chunks);
    }
}

static const int32_t some_heads[] = { 1, 4, 16, 33, 64, 128 };
enum { NUM_HEADS = sizeof some_heads / sizeof some_heads[0] };

Test(batch_invariant, every_call_is_cut_at_that_length)
{
    static const int sms[] = { 1, 78, 132 };
    for (int h = 0; h < NUM_HEADS; ++h)
        for (int m = 0; m < 3; ++m) {
            const struct gdni_problem p = problem_of(some_heads[h], 1 << 20, 4096);
            const struct gdni_spec spec = spec_of(&p, sms[m], 3);
            const int32_t length = gdni_partition_fixed(&p);
            for (int64_t tokens = 1; tokens <= 1 << 20; tokens = tokens * 3 / 2 + 1)
                for (int64_t seqs = 1; seqs <= 4096; seqs *= 8) {
                    const int32_t chunks = gdni_partition_cut(&spec, &p, sms[m], tokens, seqs, 0).chunks;
                    cr_assert_eq(chunks, length, "%lld tokens of %lld, %d heads, %d SMs: %d", (long long)tokens,
                                 (long long)seqs, some_heads[h], sms[m], chunks);
                }
        }
}

/* ---- Rows and links: first_row() and sequence_of_row() of gdn_hopper_items.cuh, in numbers ---- */

static int64_t first_row(const int32_t *cu, int n, int64_t tokens_of_partition)
{
    return cu[n] / tokens_of_partition + n;
}

static int64_t rows_of(int32_t len, int64_t tokens_of_partition)
{
    return (len + tokens_of_partition - 1) / tokens_of_partition;
}

/* A batch around one sequence, whose rows must be those that it has alone, and nobody else's; inside what the call counts. */
static void check_batch(struct rng *rng, const struct gdni_problem *p, const struct gdni_spec *spec)
{
    enum { MOST = 64 };
    int32_t cu[MOST + 1] = { 0 };
    static const int longest[] = { 1, 130, 5000, 40000 };
    const int seqs = 1 + rng_below(rng, MOST);
    for (int n = 0; n < seqs; ++n)
        cu[n + 1] = cu[n] + rng_below(rng, longest[rng_below(rng, 4)]);
    const int64_t tokens = cu[seqs], of_partition = (int64_t)gdni_partition_fixed(p) * CHUNK;
    if (tokens <= of_partition) return;
    struct gdni_workspace w;
    gdni_workspace_of(&w, spec, p, 132, tokens, seqs, 0);
    cr_assert_eq(w.partition, gdni_partition_fixed(p));
    const int64_t links = gdni_partition_links(spec, p, w.partition, tokens);
    int64_t next_link = 0;
    cr_assert_geq(w.size, w.images_offset + (size_t)links * STATE_BYTES, "a state for each link");
    for (int n = 0; n < seqs; ++n) {
        const int64_t rows = rows_of(cu[n + 1] - cu[n], of_partition), end = first_row(cu, n, of_partition) + rows;
        cr_assert(n + 1 == seqs || end <= first_row(cu, n + 1, of_partition), "sequence %d of %d, seed %d", n, seqs,
                  SEED);
        cr_assert_leq(end * p->num_heads, w.num_items, "sequence %d of %d, seed %d", n, seqs, SEED);
        if (rows < 2) continue;
        const int64_t first_link = first_row(cu, n, of_partition) + 1 - (n + 1); /* link_at() of gdn_hopper_links.cuh */
        cr_assert_geq(first_link, next_link, "sequence %d of %d, seed %d", n, seqs, SEED);
        next_link = first_link + rows - 1;
        cr_assert_leq(next_link * p->num_heads, links, "sequence %d of %d, seed %d", n, seqs, SEED);
    }
}

Test(batch_invariant, sequences_have_rows_of_their_own_in_any_batch_and_states_for_all_of_them)
{
    struct rng rng;
    rng_seed(&rng, SEED);
    for (int h = 0; h < NUM_HEADS; ++h) {
        const struct gdni_problem p = problem_of(some_heads[h], 4 << 20, 64);
        const struct gdni_spec spec = spec_of(&p, 132, 3);
        for (int i = 0; i < 500; ++i)
            check_batch(&rng, &p, &spec);
    }
}

Test(batch_invariant, the_workspace_of_the_bounds_serves_every_call_within_them)
{
    for (int h = 0; h < NUM_HEADS; ++h) {
        const struct gdni_problem p = problem_of(some_heads[h], 1 << 20, 64);
        const struct gdni_spec spec = spec_of(&p, 132, 3);
        struct gdni_workspace bounds, call;
        for (int64_t tokens = 1; tokens <= 1 << 20; tokens = tokens * 2 + 1)
            for (int64_t seqs = 1; seqs <= 64; seqs *= 2) {
                gdni_workspace_of(&bounds, &spec, &p, 132, tokens, seqs, 0);
                for (int64_t fewer = tokens; fewer; fewer /= 3) {
                    gdni_workspace_of(&call, &spec, &p, 132, fewer, (seqs + 1) / 2, 0);
                    cr_assert_leq(call.size, bounds.size, "%lld of %lld tokens, %d heads", (long long)fewer,
                                  (long long)tokens, some_heads[h]);
                }
            }
    }
}

/* ---- Plans ---- */

static struct fake_host host;

static void set_up(void)
{
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
}

static void tear_down(void)
{
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    cr_expect(fake_no_leaks());
}

TestSuite(batch_invariant_plans, .init = set_up, .fini = tear_down);

static gdn_plan *plan_for(const char *target_name, const gdn_prefill_desc *desc, uint32_t flags)
{
    gdn_plan *plan = NULL;
    gdn_target target = GDN_TARGET_INIT;
    cr_assert_eq(gdn_target_from_name(host.ctx, target_name, &target), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, desc, flags, &plan), GDN_OK, "%s", gdn_last_error());
    return plan;
}

static void check_one_variant(const gdn_plan *plan, const char *what)
{
    cr_expect_eq(plan->num_variants, 1, "%s: %d variants", what, plan->num_variants);
    for (int b = 0; b < GDNI_NUM_BUCKETS; ++b) {
        cr_expect_eq(plan->variant_of_bucket[b], b <= gdni_bucket_of(plan->problem.max_tokens) ? 0 : -1, "%s", what);
        for (int c = 0; c < GDNI_NUM_SEQ_CLASSES; ++c)
            cr_expect_eq(plan->variant_of_few[b][c], -1, "%s: a kernel of few sequences in bucket %d", what, b);
    }
}

/* Also on 114 SMs, which an H100 PCIe has. */
Test(batch_invariant_plans, one_kernel_with_equal_parameters_serves_calls_of_every_size_bound_and_gpu)
{
    static const char *const hoppers[] = { "NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "sm_90a" };
    static const int64_t bounds[][2] = { { 100, 1 }, { 4096, 1 }, { 32768, 8 }, { 100000, 16 } };
    struct gdni_spec first;
    for (int g = 0; g < 4; ++g)
        for (int b = 0; b < 4; ++b) {
            gdn_prefill_desc d = fake_prefill_desc();
            d.num_q_heads = d.num_k_heads = d.num_v_heads = 16; /* which built-in tables have */
            d.max_tokens = bounds[b][0], d.max_seqs = bounds[b][1];
            gdn_plan *plan = plan_for(hoppers[g], &d, GDN_PLAN_BATCH_INVARIANT);
            check_one_variant(plan, hoppers[g]);
            if (g == 0 && b == 0) first = plan->specs[0];
            cr_expect_eq(memcmp(&first, &plan->specs[0], sizeof first), 0, "%s, up to %lld tokens", hoppers[g],
                         (long long)d.max_tokens);
            gdn_plan_destroy(plan);
        }
    cr_expect_eq(first.kernel, GDNI_KERNEL_PREFILL_HOPPER);
    cr_expect_eq(first.params.partition_chunks, 32);
}

Test(batch_invariant_plans, the_generic_kernel_cuts_nothing_and_has_no_other_beside_it)
{
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = 32768;
    gdn_plan *ampere = plan_for("sm_80", &d, GDN_PLAN_BATCH_INVARIANT);
    gdn_plan *asked = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT | GDN_PLAN_GENERIC);
    d.head_dim_qk = d.head_dim_v = 64;
    gdn_plan *narrow = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT);
    gdn_plan *plans[] = { ampere, asked, narrow };
    for (int i = 0; i < 3; ++i) {
        check_one_variant(plans[i], "generic");
        cr_expect_eq(plans[i]->specs[0].kernel, GDNI_KERNEL_PREFILL_GENERIC);
        cr_expect_eq(gdn_plan_workspace_size(plans[i]), 0u);
        gdn_plan_destroy(plans[i]);
    }
}

/* A table that says otherwise is for other plans. */
Test(batch_invariant_plans, tables_decide_nothing)
{
    char dir[64], file[96];
    fake_make_dir(dir);
    snprintf(file, sizeof file, "%s/t.json", dir);
    struct gdni_tuning_entry e = tuning_prefill(gdni_bucket_of(32768), GDNI_ANY_SEQS);
    e.key.kernel = GDNI_KERNEL_PREFILL_HOPPER;
    e.key.num_q_heads = e.key.num_k_heads = e.key.num_v_heads = 3;
    gdni_params_initial(&e.params, GDNI_KERNEL_PREFILL_HOPPER);
    e.params.partition_chunks = 4;
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, &e, 1);
    cr_assert_eq(gdni_tuning_write(&table, file), GDN_OK, "%s", gdn_last_error());
    gdni_tuning_table_free(&table);
    cr_assert_eq(gdn_tuning_load(host.ctx, file, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
    gdn_prefill_desc d = fake_prefill_desc();
    d.num_q_heads = d.num_k_heads = d.num_v_heads = 3;
    d.max_tokens = 32768;
    gdn_plan *usual = plan_for("NVIDIA H200", &d, 0),
             *invariant = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT);
    cr_expect_eq(usual->choice_of_bucket[gdni_bucket_of(32768)].params.partition_chunks, 4);
    cr_expect_eq(invariant->specs[0].params.partition_chunks, 16);
    check_one_variant(invariant, "with a table");
    gdn_plan_destroy(usual);
    gdn_plan_destroy(invariant);
    fake_remove_dir(dir);
}

Test(batch_invariant_plans, bounds_that_would_need_too_much_are_refused_with_what_to_do)
{
    gdn_prefill_desc d = fake_prefill_desc();
    gdn_target target = fake_h200(host.ctx);
    gdn_plan *plan = NULL;
    d.max_tokens = 1 << 30, d.max_seqs = 7;
    cr_expect_eq(gdn_plan_prefill(host.ctx, &target, &d, GDN_PLAN_BATCH_INVARIANT, &plan), GDN_E_UNSUPPORTED);
    cr_expect(fake_error_says("max_tokens is 1073741824") && fake_error_says("GDN_PLAN_WHOLE_SEQUENCES"), "%s",
              gdn_last_error());
    plan = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT | GDN_PLAN_WHOLE_SEQUENCES);
    cr_expect_leq(gdn_plan_workspace_size(plan), 256u, "the counter of items");
    gdn_plan_destroy(plan);
}

Test(batch_invariant_plans, the_dump_says_what_cuts)
{
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = 32768;
    gdn_plan *plan = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT);
    char *dump = fake_dump(plan, GDN_DUMP_JSON);
    cr_assert(dump);
    cr_expect(strstr(dump, "\"partition_chunks\": 16"), "%s", dump);
    cr_expect(strstr(dump,
                     "\"partition_reason\": \"partition_chunks from each sequence's start, in every call: the plan's "
                     "flag GDN_PLAN_BATCH_INVARIANT\""),
              "%s", dump);
    free(dump);
    gdn_plan_destroy(plan);
}

/* ---- Calls ---- */

/* What a call of so many tokens and sequences sends. */
static struct gdni_prefill_hopper_params sent(const gdn_plan *plan, int64_t tokens, int64_t seqs, size_t workspace)
{
    struct gdni_prefill_hopper_params p;
    gdn_prefill_args a = fake_prefill_args();
    a.num_tokens = tokens, a.num_seqs = seqs;
    cr_assert_eq(gdn_execute_prefill(plan, &a, workspace ? 0xf00000 : 0, workspace, NULL), GDN_OK, "%s",
                 gdn_last_error());
    const struct fake_launch launch = host.cuda->launch(host.cuda->num_launches() - 1);
    cr_assert_str_eq(launch.kernel, "gdn_prefill_hopper");
    cr_assert_eq(launch.params_size, sizeof p);
    memcpy(&p, launch.params, sizeof p);
    return p;
}

Test(batch_invariant_plans, calls_of_any_batch_send_the_same_length)
{
    static const int64_t calls[][2] = { { 1025, 1 },   { 1025, 8 },   { 1100, 64 },  { 8192, 1 },
                                        { 32768, 64 }, { 100000, 1 }, { 100000, 64 } };
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = 100000, d.max_seqs = 64;
    gdn_plan *plan = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT);
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    const size_t size = gdn_plan_workspace_size(plan);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        const struct gdni_prefill_hopper_params p = sent(plan, calls[i][0], calls[i][1], size);
        cr_expect_eq(p.partition, 16, "%lld tokens of %lld: %d", (long long)calls[i][0], (long long)calls[i][1],
                     p.partition);
        for (int32_t row = 1; row < 100; ++row) {
            const int32_t tokens = row * 16 * CHUNK;
            cr_expect_eq(gdni_divided(tokens - 1, p.row_magic, p.row_shift), row - 1, "token %d", tokens - 1);
            cr_expect_eq(gdni_divided(tokens, p.row_magic, p.row_shift), row, "token %d", tokens);
            cr_expect_eq(gdni_divided(8 * row - 1, p.parts_magic, p.parts_shift), row - 1, "item %d", 8 * row - 1);
            cr_expect_eq(gdni_divided(8 * row, p.parts_magic, p.parts_shift), row, "item %d", 8 * row);
        }
        const uint64_t links = (uint64_t)calls[i][0] / (16 * CHUNK) * 8;
        cr_expect_leq(p.images + links * STATE_BYTES, 0xf00000 + size);
    }
    cr_expect_eq(sent(plan, 1024, 8, size).partition, 16, "none of 1024 tokens is longer than a partition: the same kernel");
    gdn_plan_destroy(plan);
}

Test(batch_invariant_plans, a_call_without_the_workspace_is_refused_and_launches_nothing)
{
    gdn_prefill_desc d = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    d.max_tokens = 32768;
    gdn_plan *plan = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT);
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    const int launches = host.cuda->num_launches();
    cr_expect_eq(gdn_execute_prefill(plan, &a, 0, 0, NULL), GDN_E_WORKSPACE, "also of a call that is short");
    cr_expect(fake_error_says("workspace is 0") && fake_error_says("more than 1024 tokens") &&
                  fake_error_says("GDN_PLAN_WHOLE_SEQUENCES"),
              "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), launches);
    gdn_plan_destroy(plan);
}

/* A plan whose bounds no partition passes runs the kernel of longer ones, whose bits are wanted; whole sequences need none. */
Test(batch_invariant_plans, small_bounds_ask_for_little_workspace_and_whole_sequences_for_none)
{
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = 1024;
    gdn_plan *small = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT);
    d.max_tokens = 32768;
    gdn_plan *whole = plan_for("NVIDIA H200", &d, GDN_PLAN_BATCH_INVARIANT | GDN_PLAN_WHOLE_SEQUENCES);
    cr_assert_eq(gdn_plan_load(small, 0), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(whole, 0), GDN_OK, "%s", gdn_last_error());
    const size_t size = gdn_plan_workspace_size(small);
    cr_expect(size > 0 && size <= (size_t)2 << 20, "%zu bytes", size);
    cr_expect_eq(sent(small, 1000, 1, size).partition, 16);
    cr_expect_eq(sent(whole, 32768, 1, 0).partition, 0);
    gdn_plan_destroy(small);
    gdn_plan_destroy(whole);
}
