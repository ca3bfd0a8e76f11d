/*
 * The switch that keeps sequences whole: GDN_PLAN_WHOLE_SEQUENCES of one plan, GDN_JIT_WHOLE_SEQUENCES=1 of all plans of a
 * context, on the fake driver.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernel_params.h"
#include "runtime/plan.h"
#include "support/fake_host.h"

static struct fake_host host;

static void open_with(const char *value, uint32_t flags)
{
    if (value)
        setenv("GDN_JIT_WHOLE_SEQUENCES", value, 1);
    else
        unsetenv("GDN_JIT_WHOLE_SEQUENCES");
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, flags);
    unsetenv("GDN_JIT_WHOLE_SEQUENCES"); /* it was read */
}

static void close_all(gdn_plan *plan)
{
    gdn_plan_destroy(plan);
    fake_host_close(&host);
    cr_expect(fake_no_leaks());
}

static gdn_prefill_desc long_desc(void)
{
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = 32768, d.max_seqs = 1;
    return d;
}

static gdn_plan *make_plan(uint32_t flags)
{
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc d = long_desc();
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &d, flags, &plan), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    return plan;
}

static int32_t last_partition(void)
{
    struct gdni_prefill_hopper_params p;
    const struct fake_launch launch = host.cuda->launch(host.cuda->num_launches() - 1);
    cr_assert_str_eq(launch.kernel, "gdn_prefill_hopper");
    cr_assert_eq(launch.params_size, sizeof p);
    memcpy(&p, launch.params, sizeof p);
    return p.partition;
}

/* Of one sequence of 32768 tokens of 8 heads, which the model cuts. Without a workspace where the plan wants none. */
static int32_t partition_of_call(const gdn_plan *plan)
{
    gdn_prefill_args a = fake_prefill_args();
    const size_t size = gdn_plan_workspace_size(plan);
    a.num_tokens = 32768, a.num_seqs = 1;
    cr_assert_eq(gdn_execute_prefill(plan, &a, size ? 0xf00000 : 0, size, NULL), GDN_OK, "%s", gdn_last_error());
    return strcmp(host.cuda->launch(host.cuda->num_launches() - 1).kernel, "gdn_prefill_hopper") ? -1
                                                                                                 : last_partition();
}

static bool dump_says(const gdn_plan *plan, const char *words)
{
    char *dump = fake_dump(plan, GDN_DUMP_JSON);
    const bool says = dump && strstr(dump, words);
    free(dump);
    return says;
}

#define BY_FLAG "\"partition_reason\": \"whole sequences: the plan's flag GDN_PLAN_WHOLE_SEQUENCES asks for it\""
#define BY_ENVIRONMENT                                                                                                 \
    "\"partition_reason\": \"whole sequences: GDN_JIT_WHOLE_SEQUENCES=1 in the environment asks for it\""

Test(whole_sequences, the_environments_switch_is_the_flag_of_every_plan_and_the_dump_says_which_it_was)
{
    static const struct {
        const char *value;
        uint32_t ctx_flags, plan_flags;
        const char *reason; /* NULL: cut */
    } cases[] = {
        { NULL, 0, 0, NULL },
        { "0", 0, 0, NULL },
        { "1", GDN_CTX_NO_ENV, 0, NULL },
        { NULL, 0, GDN_PLAN_WHOLE_SEQUENCES, BY_FLAG },
        { "1", 0, 0, BY_ENVIRONMENT },
        { "1", 0, GDN_PLAN_BATCH_INVARIANT, BY_ENVIRONMENT },
        { "1", 0, GDN_PLAN_WHOLE_SEQUENCES, BY_FLAG },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        open_with(cases[i].value, cases[i].ctx_flags);
        gdn_plan *plan = make_plan(cases[i].plan_flags);
        const int32_t partition = partition_of_call(plan);
        cr_expect_eq(partition > 0, !cases[i].reason, "case %zu: %d chunks", i, partition);
        cr_expect(dump_says(plan, cases[i].reason ? cases[i].reason : "\"partition_reason\": \"by tokens, sequences"),
                  "case %zu", i);
        close_all(plan);
    }
}

/* The same kernels, workspace and launch. */
Test(whole_sequences, the_switch_and_the_flag_make_equal_plans)
{
    open_with(NULL, 0);
    gdn_plan *flagged = make_plan(GDN_PLAN_WHOLE_SEQUENCES);
    const size_t size = gdn_plan_workspace_size(flagged);
    char *keys = fake_dump(flagged, GDN_DUMP_KEY);
    close_all(flagged);
    open_with("1", 0);
    gdn_plan *switched = make_plan(0);
    char *same_keys = fake_dump(switched, GDN_DUMP_KEY);
    cr_expect_eq(gdn_plan_workspace_size(switched), size);
    cr_assert(keys && same_keys);
    cr_expect_str_eq(same_keys, keys);
    free(keys);
    free(same_keys);
    close_all(switched);
}

Test(whole_sequences, the_one_call_form_obeys_the_switch)
{
    const gdn_prefill_desc d = long_desc();
    gdn_prefill_args a = fake_prefill_args();
    a.num_tokens = 32768, a.num_seqs = 1;
    open_with("1", 0);
    cr_assert_eq(gdn_prefill(host.ctx, &d, &a, 0xf00000, 512u << 20, NULL), GDN_OK, "%s", gdn_last_error());
    const struct fake_launch launch = host.cuda->launch(host.cuda->num_launches() - 1);
    if (strcmp(launch.kernel, "gdn_prefill_hopper") == 0) cr_expect_eq(last_partition(), 0);
    close_all(NULL);
    open_with(NULL, 0);
    cr_assert_eq(gdn_prefill(host.ctx, &d, &a, 0xf00000, 512u << 20, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_gt(last_partition(), 0);
    close_all(NULL);
}

/* What was recorded is to be warmed on machines without the variable. */
Test(whole_sequences, a_recorded_plan_has_the_flag)
{
    char dir[64], path[96], line[4096] = "";
    fake_make_dir(dir);
    snprintf(path, sizeof path, "%s/list", dir);
    setenv("GDN_JIT_RECORD", path, 1);
    open_with("1", 0);
    unsetenv("GDN_JIT_RECORD");
    close_all(make_plan(0));
    FILE *file = fopen(path, "r");
    cr_assert(file && fgets(line, sizeof line, file));
    fclose(file);
    cr_expect(strstr(line, "\"plan_flags\": 16,"), "%s", line);
    fake_remove_dir(dir);
}

/* What it measures is kept for plans of any environment. */
Test(whole_sequences, a_tuners_candidates_are_cut_all_the_same)
{
    open_with("1", 0);
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc d = long_desc();
    const struct gdni_arch *arch = NULL;
    struct gdni_problem problem;
    struct gdni_params params;
    gdn_plan *plan = NULL;
    cr_assert_eq(gdni_problem_from_prefill(&problem, &d), GDN_OK);
    cr_assert_eq(gdni_arch_find(target.arch, &arch), GDN_OK);
    gdni_params_heuristic(&params, &problem, arch, target.num_sms, gdni_bucket_of(d.max_tokens));
    cr_assert_eq(gdni_plan_create_with(host.ctx, &target, &problem, &params, &plan), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(plan->problem.whole_sequences, 0);
    close_all(plan);
}

Test(whole_sequences, conv_plans_know_nothing_of_it)
{
    open_with("1", 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 1000, "NVIDIA H200");
    cr_expect_eq(plan->problem.whole_sequences, 0);
    cr_expect_not(dump_says(plan, "partition_reason"));
    close_all(plan);
}
