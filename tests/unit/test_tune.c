/*
 * test_tune.c - a whole tuning on the fake driver, whose kernels are the host reference and whose times are a table: what wins,
 * what is left out, what is touched, what a plan takes afterwards.
 */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "codegen/spec.h"
#include "support/brief.h"
#include "support/fake_host.h"
#include "support/fake_kernels.h"

static struct fake_host host;
static struct fake_kernels kernels;

/* Small, since the host reference computes it. */
static gdn_prefill_desc prefill_desc(void)
{
    gdn_prefill_desc d = fake_prefill_desc();
    d.num_q_heads = d.num_k_heads = 1, d.num_v_heads = 2;
    d.head_dim_qk = d.head_dim_v = 64;
    d.max_tokens = 300, d.max_seqs = 2;
    return d;
}

static gdn_conv1d_desc conv_desc(void)
{
    gdn_conv1d_desc d = fake_conv1d_desc();
    d.num_q_heads = d.num_k_heads = 1, d.num_v_heads = 2;
    d.max_tokens = 300, d.max_seqs = 3;
    return d;
}

static void set_up(void)
{
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    kernels = (struct fake_kernels){ prefill_desc(), conv_desc(), 20000, 0.01, 20261121, 0, { { 0 } } };
    const struct fake_device_code code = { fake_kernel_duration, fake_kernel_execute, &kernels };
    host.cuda->set_code(&code);
    host.cuda->make_current(-1); /* the tuner brings its own context */
}

static void tear_down(void)
{
    fake_host_close(&host);
    cr_expect(fake_balanced(host.cuda));
}

TestSuite(tune, .init = set_up, .fini = tear_down);

/* conv1d-QKV of a width of 4, bf16: the shared memory of tile_tokens and cta_threads. */
static unsigned conv_smem(int tile, int threads)
{
    return (unsigned)((tile + 2 * 3 - 1 + 4) * threads * 8 * 2);
}

static void conv_row(int tile, int threads, int64_t ns)
{
    kernels.rows[kernels.num_rows++] = (struct fake_kernel_row){ .smem = conv_smem(tile, threads), .ns = ns };
}

/* ---- What events said ---- */

struct events {
    int begun, ended, failed, best_seen, cancel_at, sampled;
    char last[256], failed_params[256], message[512];
    int64_t left_ms;
};

static int on_event(void *user, const gdn_tune_event *e)
{
    struct events *s = user;
    cr_assert_eq(e->struct_size, sizeof *e);
    cr_expect(e->candidate >= 0 && e->candidate < e->num_candidates);
    s->begun += !e->ended;
    s->ended += e->ended;
    s->sampled += !e->ended && e->best_params[0];
    if (e->best_ns > 0) s->best_seen = 1;
    s->left_ms = e->left_ms;
    snprintf(s->last, sizeof s->last, "%s", e->params);
    if (e->status != GDN_OK) {
        ++s->failed;
        snprintf(s->failed_params, sizeof s->failed_params, "%s", e->params);
        snprintf(s->message, sizeof s->message, "%s", e->message);
    }
    return s->cancel_at && s->begun >= s->cancel_at;
}

static gdn_tune_options options_with(struct events *events)
{
    gdn_tune_options o = GDN_TUNE_OPTIONS_INIT;
    o.progress = on_event;
    o.user = events;
    return o;
}

/* For a GPU with a small L2, unless o names another one: fewer tensors to rotate over. */
static gdn_status tune_conv(const gdn_tune_options *o, gdn_tune_result *out)
{
    const gdn_conv1d_desc d = conv_desc();
    gdn_tune_options options = GDN_TUNE_OPTIONS_INIT;
    gdn_target target = fake_h200(host.ctx);
    if (o) options = *o;
    target.l2_bytes = 4 << 20;
    if (!options.target) options.target = &target;
    *out = (gdn_tune_result)GDN_TUNE_RESULT_INIT;
    return gdn_tune_conv1d_qkv(host.ctx, &d, &options, out);
}

/* What a dump of a plan says chose the variant of 256 to 1024 tokens. */
static void expect_chosen(const char *by, const char *params)
{
    const gdn_conv1d_desc d = conv_desc();
    const gdn_target target = fake_h200(host.ctx);
    gdn_plan *plan = NULL;
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &d, 0, &plan), GDN_OK, "%s", gdn_last_error());
    char *json = fake_dump(plan, GDN_DUMP_JSON);
    cr_expect(strstr(json, by), "no %s in %s", by, json);
    if (params) cr_expect(strstr(json, params), "no %s in %s", params, json);
    free(json);
    gdn_plan_destroy(plan);
}

/* ---- Decisions ---- */

Test(tune, the_fastest_candidate_becomes_what_plans_take)
{
    struct events events = { 0 };
    gdn_tune_result r;
    const gdn_tune_options o = options_with(&events);
    conv_row(16, 256, 15000); /* the heuristic takes 4 tokens and 128 threads for so short calls */
    expect_chosen("\"heuristic\"", "\"tile_tokens\": 4, \"cta_threads\": 128");
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(r.decided, 1);
    cr_expect_eq(r.num_candidates, 12);
    cr_expect_eq(r.num_failed, 0);
    cr_expect_str_eq(r.params, "{\"tile_tokens\": 16, \"cta_threads\": 256}");
    cr_expect_str_eq(r.heuristic_params, "{\"tile_tokens\": 4, \"cta_threads\": 128}");
    cr_expect_float_eq((double)r.ns, 15000, 150);
    cr_expect_float_eq((double)r.heuristic_ns, 20000, 200);
    cr_expect_geq(r.samples, 10); /* long samples: many sets of these small tensors make an L2 cold */
    cr_expect(events.best_seen && events.left_ms == -1 && events.failed == 0);
    expect_chosen("\"exact\"", "\"tile_tokens\": 16, \"cta_threads\": 256");
}

Test(tune, a_gain_within_the_tie_band_changes_nothing)
{
    gdn_tune_result r;
    conv_row(8, 128, 19800);
    cr_assert_eq(tune_conv(NULL, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_eq(r.params, r.heuristic_params);
    cr_expect(strstr(r.verdict, "tie band"), "%s", r.verdict);
    expect_chosen("\"exact\"", "\"tile_tokens\": 4, \"cta_threads\": 128"); /* measured, and the same */
}

/* A slot of 257 to 1024 tokens, tuned by calls of 500 of the 1000 that a plan may have. */
static void tune_slot_of_500(gdn_tune_result *out)
{
    gdn_conv1d_desc d = conv_desc();
    gdn_tune_options options = GDN_TUNE_OPTIONS_INIT;
    gdn_target target = fake_h200(host.ctx);
    d.max_tokens = 1000;
    target.l2_bytes = 4 << 20;
    options.target = &target;
    options.num_tokens = 500;
    *out = (gdn_tune_result)GDN_TUNE_RESULT_INIT;
    cr_assert_eq(gdn_tune_conv1d_qkv(host.ctx, &d, &options, out), GDN_OK, "%s", gdn_last_error());
}

Test(tune, a_choice_that_wins_on_the_timed_call_and_loses_elsewhere_in_its_slot_does_not_win)
{
    static const struct {
        int64_t ns_up_to_350, ns_up_to_400, ns_up_to_600, ns_above;
        bool wins;
    } cases[] = { { 15000, 15000, 15000, 15000, true },
                  { 20000, 20000, 15000, 20000, true }, /* equal there is good enough */
                  { 15000, 15000, 15000, 25000, false },
                  { 15000, 25000, 15000, 15000, false },
                  { 25000, 15000, 15000, 15000, false } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        gdn_tune_result r;
        kernels.num_rows = 0;
        conv_row(16, 256, cases[i].ns_up_to_350), kernels.rows[0].most_tokens = 350;
        conv_row(16, 256, cases[i].ns_up_to_400), kernels.rows[1].most_tokens = 400;
        conv_row(16, 256, cases[i].ns_up_to_600), kernels.rows[2].most_tokens = 600;
        conv_row(16, 256, cases[i].ns_above);
        tune_slot_of_500(&r);
        cr_expect_eq(strcmp(r.params, r.heuristic_params) != 0, cases[i].wins, "case %zu: %s, %s", i, r.params, r.verdict);
        cr_expect_float_eq((double)r.ns, cases[i].wins ? 15000 : 20000, 400, "case %zu: %lld ns", i, (long long)r.ns);
        cr_expect_float_eq((double)r.heuristic_ns, 20000, 400, "case %zu", i);
        cr_expect_eq(strstr(r.verdict, "slower on other calls") == NULL, cases[i].wins, "case %zu: %s", i, r.verdict);
        expect_chosen("\"exact\"", cases[i].wins ? "\"tile_tokens\": 16, \"cta_threads\": 256"
                                                 : "\"tile_tokens\": 4, \"cta_threads\": 128");
    }
}

Test(tune, a_conv_choice_that_wins_with_gates_and_loses_without_does_not_win)
{
    for (int wins = 0; wins < 2; ++wins) {
        gdn_conv1d_desc d = conv_desc();
        gdn_tune_result r = GDN_TUNE_RESULT_INIT;
        d.num_gate_heads = d.num_v_heads;
        kernels.conv1d = d;
        kernels.num_rows = 0;
        conv_row(16, 256, wins ? 15000 : 25000), kernels.rows[0].gateless = true;
        conv_row(16, 256, 15000);
        cr_assert_eq(gdn_tune_conv1d_qkv(host.ctx, &d, NULL, &r), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(strstr(r.params, "\"tile_tokens\": 16, \"cta_threads\": 256") != NULL, wins, "%s, %s", r.params,
                     r.verdict);
        cr_expect_eq(strstr(r.verdict, "slower on other calls") == NULL, wins, "%s", r.verdict);
    }
}

/* The generic kernel with two stages: not the heuristic's choice. */
static unsigned two_stages_smem(const gdn_prefill_desc *d)
{
    struct gdni_problem problem;
    struct gdni_params params;
    struct gdni_spec spec;
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_problem_from_prefill(&problem, d), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, GDNI_KERNEL_PREFILL_GENERIC);
    params.stages = 2;
    cr_assert_eq(gdni_spec_build(&spec, &problem, arch, &params), GDN_OK, "%s", gdni_error_text());
    return (unsigned)spec.smem_bytes;
}

Test(tune, a_choice_that_loses_on_unlike_lengths_or_on_heads_that_do_not_decay_does_not_win)
{
    static const struct {
        int64_t ns_lone, ns_uneven, ns_undecayed;
        bool wins;
    } cases[] = { { 15000, 15000, 15000, true },
                  { 20000, 20000, 20000, true },
                  { 25000, 15000, 15000, false },
                  { 15000, 25000, 15000, false },
                  { 15000, 15000, 25000, false } };
    gdn_prefill_desc d = prefill_desc();
    d.max_seqs = 4;
    const unsigned smem = two_stages_smem(&d);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        gdn_tune_result r = GDN_TUNE_RESULT_INIT;
        kernels.num_rows = 4;
        kernels.rows[0] = (struct fake_kernel_row){ .smem = smem, .ns = cases[i].ns_lone, .lone = true };
        kernels.rows[1] = (struct fake_kernel_row){ .smem = smem, .ns = cases[i].ns_uneven, .uneven = true };
        kernels.rows[2] = (struct fake_kernel_row){ .smem = smem, .ns = cases[i].ns_undecayed, .undecayed = true };
        kernels.rows[3] = (struct fake_kernel_row){ .smem = smem, .ns = 15000 };
        cr_assert_eq(gdn_tune_prefill(host.ctx, &d, NULL, &r), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(strstr(r.params, "\"stages\": 2") != NULL && strcmp(r.params, r.heuristic_params) != 0, cases[i].wins,
                     "case %zu: %s, %s", i, r.params, r.verdict);
        cr_expect_eq(strstr(r.verdict, "slower on other calls") == NULL, cases[i].wins, "case %zu: %s", i, r.verdict);
    }
}

Test(tune, prefill_of_few_sequences_is_tuned_among_both_kernels)
{
    const gdn_prefill_desc d = prefill_desc();
    struct events events = { 0 };
    gdn_tune_result r = GDN_TUNE_RESULT_INIT;
    const gdn_tune_options o = options_with(&events);
    cr_assert_eq(gdn_tune_prefill(host.ctx, &d, &o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(r.num_failed, 0, "%s", events.message);
    cr_expect_eq(r.num_candidates, 9, "3 stages of one kernel; 3 stages and 2 blocks of the other, equal producers");
    cr_expect_str_eq(r.params, r.heuristic_params); /* all take the same time */
    cr_expect(strstr(r.heuristic_params, "\"cta_kinds\": 2"), "%s", r.heuristic_params);
    cr_expect_eq(host.cuda->memory().outside, 0);
}

/* ---- Where the numbers come from ---- */

static int keep_clocks(void *user, const gdn_tuning_entry *e)
{
    int32_t *const mhz = user;
    if (e->head_dim_qk != 128 || e->num_v_heads != 2 || e->tokens != 1024) return 0; /* a built-in one */
    mhz[0] = e->sm_mhz, mhz[1] = e->mem_mhz;
    return 1;
}

static void expect_clocks(int32_t sm_mhz, int32_t mem_mhz)
{
    gdn_tune_result r;
    int32_t mhz[2] = { -1, -1 };
    cr_assert_eq(tune_conv(NULL, &r), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_tuning_list(host.ctx, keep_clocks, mhz), GDN_E_CANCELLED, "no entry of the tuning");
    cr_expect(mhz[0] == sm_mhz && mhz[1] == mem_mhz, "%d and %d MHz, not %d and %d", mhz[0], mhz[1], sm_mhz, mem_mhz);
}

Test(tune, an_entry_has_the_clocks_that_were_seen_and_zeros_where_they_are_unknown)
{
    host.cuda->set_clocks(1665, 3201);
    expect_clocks(1665, 3201);
    host.cuda->set_clocks(1710, 0); /* as on a GPU that does not tell its memory's */
    expect_clocks(1710, 0);
    host.cuda->fail("cuDeviceGetPCIBusId", 0, 999);
    expect_clocks(0, 0);
}

/* ---- What is left out ---- */

Test(tune, a_candidate_that_computes_something_else_never_wins)
{
    struct events events = { 0 };
    gdn_tune_result r;
    const gdn_tune_options o = options_with(&events);
    conv_row(16, 256, 5000);
    kernels.rows[0].wrong = true;
    conv_row(8, 256, 15000);
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(r.num_failed, 1);
    cr_expect_str_eq(events.failed_params, "{\"tile_tokens\": 16, \"cta_threads\": 256}");
    cr_expect(strstr(events.message, "of q is off by"), "%s", events.message);
    cr_expect_str_eq(r.params, "{\"tile_tokens\": 8, \"cta_threads\": 256}");
}

Test(tune, a_wrong_result_on_the_timed_call_alone_is_seen_too)
{
    struct events events = { 0 };
    gdn_tune_result r;
    gdn_tune_options o = options_with(&events);
    o.steps = GDN_TUNE_MEASURE; /* as if the check had passed */
    conv_row(16, 256, 5000);
    kernels.rows[0].wrong = true;
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(r.num_failed, 1);
    cr_expect(strstr(events.message, "differ"), "%s", events.message);
    cr_expect_str_eq(r.params, r.heuristic_params);
}

Test(tune, a_candidate_that_writes_to_an_input_is_left_out)
{
    struct events events = { 0 };
    gdn_tune_result r;
    const gdn_tune_options o = options_with(&events);
    conv_row(16, 256, 5000);
    kernels.rows[0].overwrites = true;
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(r.num_failed, 1);
    cr_expect(strstr(events.message, "wrote to x, which is an input"), "%s", events.message);
}

/* Of the entry of conv_desc(), whose like the built-in tables, of normed calls, do not have. */
static int note_heuristic_ns(void *user, const gdn_tuning_entry *e)
{
    const bool ours = strcmp(e->kernel, "conv1d_qkv") == 0 && !e->l2norm;
    if (ours && e->num_q_heads == 1 && e->num_v_heads == 2) *(int64_t *)user = e->heuristic_ns;
    return 0;
}

Test(tune, without_the_heuristics_choice_the_fastest_other_one_wins)
{
    gdn_tune_result r;
    conv_row(4, 128, 5000);
    kernels.rows[0].wrong = true;
    conv_row(8, 64, 15000);
    cr_assert_eq(tune_conv(NULL, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_eq(r.params, "{\"tile_tokens\": 8, \"cta_threads\": 64}");
    cr_expect_eq(r.heuristic_ns, 0);
    cr_expect(strstr(r.verdict, "failed"), "%s", r.verdict);
    expect_chosen("\"exact\"", "\"tile_tokens\": 8, \"cta_threads\": 64");
    int64_t recorded = -1;
    cr_assert_eq(gdn_tuning_list(host.ctx, note_heuristic_ns, &recorded), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(recorded, 0, "%lld", (long long)recorded);
}

Test(tune, when_every_candidate_fails_the_sentence_has_the_first_cause)
{
    gdn_tune_result r;
    static const int tiles[] = { 4, 8, 12, 16 }, threads[] = { 64, 128, 256 };
    for (int i = 0; i < 12; ++i) {
        conv_row(tiles[i / 3], threads[i % 3], 5000);
        kernels.rows[i].wrong = true;
    }
    cr_expect_eq(tune_conv(NULL, &r), GDN_E_UNSUPPORTED);
    cr_expect(fake_error_says("every candidate failed; the first, {\"tile_tokens\": 4"), "%s", gdn_last_error());
    expect_chosen("\"heuristic\"", NULL);
}

Test(tune, a_candidate_that_hangs_ends_the_tuning_with_its_name)
{
    struct events events = { 0 };
    gdn_tune_result r;
    gdn_tune_options o = options_with(&events);
    o.timeout_ms = 20;
    conv_row(16, 256, FAKE_HANGS);
    cr_expect_eq(tune_conv(&o, &r), GDN_E_TIMEOUT);
    cr_expect(fake_error_says("{\"tile_tokens\": 16, \"cta_threads\": 256}") && fake_error_says("within 20 ms"), "%s",
              gdn_last_error());
    cr_expect_str_eq(events.last, "{\"tile_tokens\": 16, \"cta_threads\": 256}");
    fake_host_close(&host);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0); /* a new process, as it were */
    const struct fake_device_code code = { fake_kernel_duration, fake_kernel_execute, &kernels };
    host.cuda->set_code(&code);
    const char *const skip[] = { "{\"tile_tokens\": 16, \"cta_threads\": 256}" };
    o.skip = skip;
    o.num_skip = 1;
    cr_expect_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect(r.num_failed == 0 && r.decided == 1);
}

Test(tune, a_candidate_that_faults_ends_the_tuning_with_its_name)
{
    gdn_tune_result r;
    conv_row(16, 64, FAKE_FAULTS);
    cr_expect_eq(tune_conv(NULL, &r), GDN_E_CUDA);
    cr_expect(fake_error_says("{\"tile_tokens\": 16, \"cta_threads\": 64}") && fake_error_says("illegal memory"), "%s",
              gdn_last_error());
    host.cuda->reset();
}

/* ---- What a caller asks for ---- */

Test(tune, compiling_ahead_needs_no_driver)
{
    gdn_tune_result r;
    gdn_tune_options o = GDN_TUNE_OPTIONS_INIT;
    const gdn_target target = fake_h200(host.ctx);
    const int before = host.cuda->calls("cuInit");
    o.steps = GDN_TUNE_COMPILE;
    o.target = &target;
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect(r.decided == 0 && r.num_candidates == 12 && r.num_failed == 0 && !r.params[0]);
    cr_expect_eq(host.cuda->calls("cuInit"), before);
    cr_expect_eq(host.cuda->num_launches(), 0);
}

/* Times of one GPU are no other one's. */
Test(tune, a_target_that_is_not_the_device_is_refused_before_anything_runs)
{
    gdn_tune_result r;
    gdn_tune_options o = GDN_TUNE_OPTIONS_INIT;
    gdn_target targets[3];
    for (int i = 0; i < 3; ++i) targets[i] = fake_h200(host.ctx);
    cr_assert_eq(gdn_target_from_name(host.ctx, "NVIDIA H100 80GB HBM3", &targets[0]), GDN_OK, "%s", gdn_last_error());
    targets[1].num_sms = 131;
    cr_assert_eq(gdn_target_from_name(host.ctx, "NVIDIA B200", &targets[2]), GDN_OK, "%s", gdn_last_error());
    for (int i = 0; i < 3; ++i) {
        o.target = &targets[i];
        for (o.steps = GDN_TUNE_CHECK; o.steps <= GDN_TUNE_MEASURE; o.steps *= 2) {
            cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID, "target %d, steps 0x%x", i, o.steps);
            cr_expect(fake_error_says("options.target is \"") && fake_error_says("device 0 is \"NVIDIA H200\""), "%s",
                      gdn_last_error());
        }
    }
    cr_expect_eq(host.cuda->num_launches(), 0);
}

Test(tune, one_candidate_can_be_checked_alone)
{
    struct events events = { 0 };
    gdn_tune_result r;
    gdn_tune_options o = options_with(&events);
    o.steps = GDN_TUNE_CHECK;
    o.only = "{\"tile_tokens\": 8, \"cta_threads\": 64}";
    conv_row(8, 64, 5000);
    cr_expect_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect(events.begun == 1 && events.ended == 1 && r.num_failed == 0 && r.decided == 0);
    cr_expect_eq(host.cuda->num_launches(), 1);
    kernels.rows[0].wrong = true;
    cr_expect_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error()); /* that is what was to be found out */
    cr_expect_eq(r.num_failed, 1);
    o.only = "{\"tile_tokens\": 7}";
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    cr_expect(fake_error_says("options.only leaves none of the 12 candidates"), "%s", gdn_last_error());
}

Test(tune, progress_can_stop_it_anywhere_and_nothing_stays)
{
    for (int at = 1; at <= 60; at += 6 * brief_step()) {
        struct events events = { .cancel_at = at };
        gdn_tune_result r;
        const gdn_tune_options o = options_with(&events);
        cr_expect_eq(tune_conv(&o, &r), GDN_E_CANCELLED);
        cr_expect_eq(events.begun, at);
        cr_expect(fake_balanced(host.cuda), "stopped at %d", at);
    }
    expect_chosen("\"heuristic\"", NULL);
}

/* Time that only goes forward when the callback says so cannot be had here: a budget of a millisecond is over at once. */
Test(tune, a_budget_that_is_over_decides_nothing)
{
    struct events events = { 0 };
    gdn_tune_result r;
    gdn_tune_options o = options_with(&events);
    o.budget_ms = 1;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_CANCELLED);
    cr_expect(fake_error_says("the budget of 1 ms"), "%s", gdn_last_error());
    expect_chosen("\"heuristic\"", NULL);
}

Test(tune, scratch_memory_has_a_limit_and_nothing_else_is_touched)
{
    gdn_tune_result r;
    gdn_tune_options o = GDN_TUNE_OPTIONS_INIT;
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    cr_expect_leq(host.cuda->memory().most_bytes, (size_t)16 << 20); /* twice the L2, and a trial */
    cr_expect_eq(host.cuda->memory().outside, 0);
    o.max_scratch_bytes = 4 << 20; /* fewer sets of tensors */
    cr_assert_eq(tune_conv(&o, &r), GDN_OK, "%s", gdn_last_error());
    o.max_scratch_bytes = 1 << 20;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_NOMEM);
    cr_expect(fake_error_says("1048576, max_scratch_bytes, is the limit: tune shorter calls, or raise it"), "%s",
              gdn_last_error());
    host.cuda->set_free_memory(1 << 20); /* of the device */
    o.max_scratch_bytes = 0;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_NOMEM);
    cr_expect(fake_error_says("nine tenths of what was free, is the limit: tune shorter calls, or end what else uses"), "%s",
              gdn_last_error());
    cr_expect(!fake_error_says("max_scratch_bytes"), "%s", gdn_last_error());
    host.cuda->set_free_memory((size_t)4 << 30);
    host.cuda->fail("cuMemAlloc", 0, 2); /* another process was faster, or it is in pieces: no limit of the tuner's */
    cr_expect_eq(tune_conv(&o, &r), GDN_E_NOMEM);
    cr_expect(fake_error_says("bytes free") && fake_error_says("end what else uses it"), "%s", gdn_last_error());
    cr_expect(!fake_error_says("max_scratch_bytes"), "%s", gdn_last_error());
}

Test(tune, what_is_asked_wrongly_is_refused_by_name)
{
    gdn_tune_result r;
    gdn_tune_options o = GDN_TUNE_OPTIONS_INIT;
    const gdn_conv1d_desc d = conv_desc();
    o.steps = 8;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    cr_expect(fake_error_says("options.steps is 0x8"), "%s", gdn_last_error());
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.plan_flags = 1;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.num_tokens = 301;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    cr_expect(fake_error_says("options.num_tokens is 301, and max_tokens of the desc 300: give"), "%s", gdn_last_error());
    static const struct {
        size_t offset;
        const char *words;
    } negative[] = { { offsetof(gdn_tune_options, num_tokens), "options.num_tokens is -1: must be from 0" },
                     { offsetof(gdn_tune_options, num_seqs), "options.num_seqs is -1: must be from 0" },
                     { offsetof(gdn_tune_options, budget_ms), "options.budget_ms is -1: must be from 0" },
                     { offsetof(gdn_tune_options, timeout_ms), "options.timeout_ms is -1: must be from 0" } };
    for (size_t i = 0; i < sizeof negative / sizeof negative[0]; ++i) {
        o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT;
        memset((char *)&o + negative[i].offset, 0xff, sizeof(int64_t));
        cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
        cr_expect(fake_error_says(negative[i].words), "%s", gdn_last_error());
    }
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.num_tokens = 2;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.num_skip = 1;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    const char *const nothing[] = { NULL };
    o.skip = nothing;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    cr_expect(fake_error_says("skip[0] is null"), "%s", gdn_last_error());
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.reserved = 7;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    cr_expect(fake_error_says("reserved is 7"), "%s", gdn_last_error());
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.only = "{}";
    cr_expect_eq(tune_conv(&o, &r), GDN_E_INVALID);
    o = (gdn_tune_options)GDN_TUNE_OPTIONS_INIT, o.device = 3;
    cr_expect_eq(tune_conv(&o, &r), GDN_E_NO_DEVICE);
    cr_expect_eq(gdn_tune_conv1d_qkv(NULL, &d, NULL, &r), GDN_E_INVALID);
    cr_expect_eq(gdn_tune_conv1d_qkv(host.ctx, NULL, NULL, &r), GDN_E_INVALID);
    cr_expect_eq(gdn_tune_conv1d_qkv(host.ctx, &d, NULL, NULL), GDN_E_INVALID);
}

/* The capture around it is then invalid, and says so where it ends: that is not why the candidate is left out. */
Test(tune, a_launch_that_fails_in_a_capture_is_what_the_sentence_is_of)
{
    enum { CHECKED = 1, CAPTURED = 12 + 2 }; /* behind a check of each candidate and a plain launch of the first */
    for (int nth = CAPTURED; nth >= CHECKED; nth -= brief_step()) {
        struct events events = { 0 };
        gdn_tune_result r;
        const gdn_tune_options o = options_with(&events);
        host.cuda->fail("cuLaunchKernel", nth, 701);
        cr_expect_eq(tune_conv(&o, &r), GDN_OK, "launch %d: %s", nth, gdn_last_error());
        cr_expect_eq(events.failed, 1, "launch %d: %d candidates failed", nth, events.failed);
        cr_expect(strstr(events.message, "cuLaunchKernel"), "launch %d: %s", nth, events.message);
        host.cuda->fail("", 0, 0);
    }
}

/* Every driver call that the tuner makes, failing once: a status, a sentence, and nothing is lost but after a lost device. */
Test(tune, a_driver_call_that_fails_is_an_error_and_no_crash)
{
    static const char *const calls[] = { "cuDevicePrimaryCtxRetain",
                                         "cuCtxPushCurrent",
                                         "cuStreamCreate",
                                         "cuEventCreate",
                                         "cuMemGetInfo",
                                         "cuMemAlloc",
                                         "cuMemcpyHtoDAsync",
                                         "cuMemcpyDtoDAsync",
                                         "cuMemcpyDtoHAsync",
                                         "cuEventRecord",
                                         "cuEventQuery",
                                         "cuStreamBeginCapture",
                                         "cuStreamEndCapture",
                                         "cuGraphInstantiateWithFlags",
                                         "cuGraphLaunch",
                                         "cuEventElapsedTime" };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        gdn_tune_result r;
        char words[64];
        host.cuda->fail(calls[i], 1, 999);
        cr_expect_eq(tune_conv(NULL, &r), GDN_E_CUDA, "%s", calls[i]);
        snprintf(words, sizeof words, "%s failed", calls[i]);
        cr_expect(fake_error_says(words), "%s: %s", calls[i], gdn_last_error());
        host.cuda->fail("", 0, 0);
    }
    host.cuda->reset();
}
