/*
 * test_tuning_db.c - which entry answers a slot of a plan, what becomes of entries that come in, and how fast both are.
 */
#include <criterion/criterion.h>

#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/tuning_db.h"
#include "support/shipped.h"
#include "support/specs.h"
#include "support/tuning_cases.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 20 };
#else
enum { SLOWER = 1 };
#endif

static struct gdni_problem prefill_problem(void)
{
    struct gdni_problem p;
    gdn_prefill_desc d = test_prefill_desc();
    d.max_tokens = 1 << 22;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK);
    p.generic = 1; /* on Hopper too: what it is measured with */
    return p;
}

static struct gdni_problem conv_problem(void)
{
    struct gdni_problem p;
    const gdn_conv1d_desc d = test_conv1d_desc();
    cr_assert_eq(gdni_problem_from_conv1d(&p, &d), GDN_OK);
    return p;
}

static gdn_target target_of(const char *name)
{
    gdn_target t;
    cr_assert_eq(gdni_target_from_name(name, &t), GDN_OK, "%s", gdni_error_text());
    return t;
}

static struct gdni_tuning *make_empty(void)
{
    struct gdni_tuning *t = gdni_tuning_create(NULL, 0, NULL);
    cr_assert_not_null(t);
    return t;
}

static void import(struct gdni_tuning *t, const char *gpu, int32_t num_sms, const struct gdni_tuning_entry *entries,
                   size_t count)
{
    struct gdni_tuning_table table = tuning_table_of(gpu, num_sms, entries, count);
    cr_assert_eq(gdni_tuning_import(t, &table, false, NULL, NULL), GDN_OK, "%s", gdni_error_text());
    gdni_tuning_table_free(&table);
}

static const struct gdni_arch *arch_of(const gdn_target *target)
{
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find(target->arch, &arch), GDN_OK);
    return arch;
}

static struct gdni_choice choose(struct gdni_tuning *t, const char *target_name, const struct gdni_problem *p,
                                 struct gdni_slot slot, uint32_t flags)
{
    const gdn_target target = target_of(target_name);
    struct gdni_choice c;
    cr_assert_eq(gdni_tuning_choose(&c, t, &target, arch_of(&target), p, slot, flags), GDN_OK, "%s", gdni_error_text());
    return c;
}

/* A conv entry that tells itself by its tile. */
static struct gdni_tuning_entry conv_with(int bucket, int32_t tile_tokens)
{
    struct gdni_tuning_entry e = tuning_conv(bucket);
    e.params.tile_tokens = tile_tokens;
    return e;
}

/* ---- The chain ---- */

Test(tuning_db, nothing_measured_is_the_model)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem conv = conv_problem(), prefill = prefill_problem();
    const struct gdni_arch *arch = NULL;
    struct gdni_params wanted;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    const struct gdni_choice c = choose(t, "NVIDIA H200", &conv, (struct gdni_slot){ 3, GDNI_ANY_SEQS }, 0);
    gdni_params_heuristic(&wanted, &conv, arch, 132, 3);
    cr_expect_eq(c.by, GDNI_CHOSEN_HEURISTIC);
    cr_expect_eq(memcmp(&c.params, &wanted, sizeof wanted), 0);
    cr_expect_eq(choose(t, "NVIDIA H200", &prefill, (struct gdni_slot){ 2, 0 }, 0).by, GDNI_CHOSEN_NONE,
                 "a sequence of 32 heads leaves too few SMs: the bucket's variant serves it");
    struct gdni_problem few = prefill;
    few.num_q_heads = few.num_k_heads = few.num_v_heads = few.num_heads = 8;
    cr_expect_eq(choose(t, "NVIDIA H200", &few, (struct gdni_slot){ 2, 0 }, 0).by, GDNI_CHOSEN_HEURISTIC);
    gdni_tuning_destroy(t);
}

Test(tuning_db, the_nearest_of_exact_bucket_and_arch_answers)
{
    const struct gdni_tuning_entry h200[] = { conv_with(3, 16), conv_with(4, 4) }, h100[] = { conv_with(6, 16) };
    static const struct {
        const char *target;
        int bucket;
        enum gdni_chosen_by by;
        int measured, tile; /* bucket of the entry */
    } wanted[] = {
        { "NVIDIA H200", 3, GDNI_CHOSEN_EXACT, 3, 16 },
        { "NVIDIA H200", 4, GDNI_CHOSEN_EXACT, 4, 4 },
        { "NVIDIA H200", 2, GDNI_CHOSEN_BUCKET, 3, 16 },          /* a bucket away */
        { "NVIDIA H200", 5, GDNI_CHOSEN_BUCKET, 4, 4 },           /* its own GPU's neighbour before another GPU */
        { "NVIDIA H200", 6, GDNI_CHOSEN_ARCH, 6, 16 },            /* two away: another GPU's exact one */
        { "NVIDIA H200", 7, GDNI_CHOSEN_ARCH, 6, 16 },
        { "NVIDIA H200", 1, GDNI_CHOSEN_HEURISTIC, 0, 8 },        /* two away, and from the other GPU's too */
        { "NVIDIA H100 PCIe", 6, GDNI_CHOSEN_EXACT, 6, 16 },
        { "NVIDIA H100 PCIe", 3, GDNI_CHOSEN_ARCH, 3, 16 },
        { "sm_90a", 4, GDNI_CHOSEN_ARCH, 4, 4 },                  /* an arch is no GPU: its tables serve it */
        { "NVIDIA A100-SXM4-80GB", 3, GDNI_CHOSEN_HEURISTIC, 0, 8 },
    };
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem conv = conv_problem();
    import(t, "NVIDIA H200", 132, h200, 2);
    import(t, "NVIDIA H100 PCIe", 114, h100, 1);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_choice c =
            choose(t, wanted[i].target, &conv, (struct gdni_slot){ wanted[i].bucket, GDNI_ANY_SEQS }, 0);
        cr_expect_eq(c.by, wanted[i].by, "row %zu: %s", i, gdni_chosen_name(c.by));
        cr_expect_eq(c.params.tile_tokens, wanted[i].tile, "row %zu: %d", i, c.params.tile_tokens);
        cr_expect(c.by == GDNI_CHOSEN_HEURISTIC || c.measured.bucket == wanted[i].measured, "row %zu", i);
    }
    gdni_tuning_destroy(t);
}

/* What is copied is a gain; that the model was right in one slot says that it is, not that its numbers are, in the next. */
Test(tuning_db, where_the_model_stood_its_neighbours_ask_the_model)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem conv = conv_problem();
    struct gdni_tuning_entry stood = conv_with(3, 16); /* the model has 8 for a call of any of these sizes */
    stood.heuristic_ns = stood.median_ns;
    import(t, "NVIDIA H200", 132, &stood, 1);
    static const struct {
        const char *target;
        int bucket;
        enum gdni_chosen_by by;
        int tile;
    } wanted[] = { { "NVIDIA H200", 3, GDNI_CHOSEN_EXACT, 16 },
                   { "NVIDIA H200", 4, GDNI_CHOSEN_HEURISTIC, 8 },
                   { "NVIDIA H200", 5, GDNI_CHOSEN_HEURISTIC, 8 },
                   { "NVIDIA H100 PCIe", 3, GDNI_CHOSEN_HEURISTIC, 8 } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_choice c =
            choose(t, wanted[i].target, &conv, (struct gdni_slot){ wanted[i].bucket, GDNI_ANY_SEQS }, 0);
        cr_expect_eq(c.by, wanted[i].by, "row %zu: %s", i, gdni_chosen_name(c.by));
        cr_expect_eq(c.params.tile_tokens, wanted[i].tile, "row %zu: %d", i, c.params.tile_tokens);
    }
    const struct gdni_choice copied =
        choose(t, "NVIDIA H200", &conv, (struct gdni_slot){ 4, GDNI_ANY_SEQS }, GDN_PLAN_TUNED_ONLY);
    cr_expect_eq(copied.by, GDNI_CHOSEN_BUCKET, "the model may not answer");
    cr_expect_eq(copied.params.tile_tokens, 16);
    gdni_tuning_destroy(t);
}

/* 32 heads leave one sequence too few SMs for a kernel of few sequences, whatever stood for two. */
Test(tuning_db, where_the_model_has_no_variant_a_neighbour_whose_model_stood_brings_none)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem prefill = prefill_problem(); /* 32 heads: none of its own for one sequence */
    struct gdni_tuning_entry stood = tuning_prefill(2, 1);
    import(t, "NVIDIA H200", 132, &stood, 1);
    cr_expect_eq(choose(t, "NVIDIA H200", &prefill, (struct gdni_slot){ 2, 0 }, 0).by, GDNI_CHOSEN_BUCKET);
    stood.heuristic_ns = stood.median_ns;
    import(t, "NVIDIA H200", 132, &stood, 1);
    cr_expect_eq(choose(t, "NVIDIA H200", &prefill, (struct gdni_slot){ 2, 1 }, 0).by, GDNI_CHOSEN_EXACT);
    cr_expect_eq(choose(t, "NVIDIA H200", &prefill, (struct gdni_slot){ 2, 0 }, 0).by, GDNI_CHOSEN_NONE);
    gdni_tuning_destroy(t);
}

Test(tuning_db, beside_a_slot_the_same_class_goes_before_the_same_bucket_and_fewer_tokens_before_more)
{
    struct gdni_tuning_entry entries[] = { tuning_prefill(2, 1), tuning_prefill(3, 0), tuning_prefill(4, 1) };
    for (int i = 0; i < 3; ++i) entries[i].params.ctas_per_producer = 2 << i;
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem p = prefill_problem();
    import(t, "NVIDIA H200", 132, entries, 3);
    struct gdni_choice c = choose(t, "NVIDIA H200", &p, (struct gdni_slot){ 3, 1 }, 0);
    cr_expect(c.by == GDNI_CHOSEN_BUCKET && c.measured.bucket == 2 && c.measured.seq_class == 1, "%d, %d",
              c.measured.bucket, c.measured.seq_class);
    c = choose(t, "NVIDIA H200", &p, (struct gdni_slot){ 2, 0 }, 0);
    cr_expect(c.measured.bucket == 3 && c.measured.seq_class == 0, "the same class, a bucket away: %d, %d", c.measured.bucket,
              c.measured.seq_class);
    c = choose(t, "NVIDIA H200", &p, (struct gdni_slot){ 3, GDNI_ANY_SEQS }, 0);
    cr_expect_eq(c.by, GDNI_CHOSEN_HEURISTIC, "few sequences say nothing about any number of them");
    gdni_tuning_destroy(t);
}

Test(tuning_db, other_gpus_answer_in_the_order_of_their_sms_then_names)
{
    const struct gdni_tuning_entry a = conv_with(3, 4), b = conv_with(3, 16);
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem conv = conv_problem();
    const struct gdni_slot slot = { 3, GDNI_ANY_SEQS };
    import(t, "Z of 130", 130, &a, 1);
    import(t, "B of 120", 120, &b, 1);
    struct gdni_choice c = choose(t, "NVIDIA H200", &conv, slot, 0);
    cr_expect_str_eq(c.gpu_name, "Z of 130");
    import(t, "A of 134", 134, &b, 1);
    c = choose(t, "NVIDIA H200", &conv, slot, 0);
    cr_expect_str_eq(c.gpu_name, "A of 134");
    import(t, "NVIDIA H200", 114, &a, 1);
    c = choose(t, "NVIDIA H200", &conv, slot, 0);
    cr_expect_eq(c.by, GDNI_CHOSEN_ARCH, "the name alone is not the GPU: a part of one has fewer SMs");
    gdni_tuning_destroy(t);
}

/* A slice of a GPU, or one with half of the SMs: how many CTAs find one is what was chosen by. */
Test(tuning_db, gpus_of_other_sizes_answer_only_where_nothing_else_may)
{
    static const struct {
        int32_t num_sms;
        uint32_t flags;
        enum gdni_chosen_by by;
    } wanted[] = { { 132, 0, GDNI_CHOSEN_EXACT },     { 0, 0, GDNI_CHOSEN_EXACT }, /* 0: the arch's common number */
                   { 99, 0, GDNI_CHOSEN_ARCH },       { 98, 0, GDNI_CHOSEN_HEURISTIC },
                   { 16, 0, GDNI_CHOSEN_HEURISTIC },  { 16, GDN_PLAN_TUNED_ONLY, GDNI_CHOSEN_ARCH },
                   { 176, 0, GDNI_CHOSEN_ARCH },      { 177, 0, GDNI_CHOSEN_HEURISTIC } };
    const struct gdni_tuning_entry e = conv_with(3, 16);
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem conv = conv_problem();
    import(t, "NVIDIA H200", 132, &e, 1);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        gdn_target target = target_of("NVIDIA H200");
        struct gdni_choice c;
        target.num_sms = wanted[i].num_sms;
        cr_assert_eq(gdni_tuning_choose(&c, t, &target, arch_of(&target), &conv, (struct gdni_slot){ 3, GDNI_ANY_SEQS },
                                        wanted[i].flags),
                     GDN_OK, "%s", gdni_error_text());
        cr_expect_eq(c.by, wanted[i].by, "%d SMs: %s", wanted[i].num_sms, gdni_chosen_name(c.by));
    }
    gdni_tuning_destroy(t);
}

Test(tuning_db, what_was_measured_of_another_shape_says_nothing)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_tuning_entry e = conv_with(3, 16);
    const struct gdni_problem conv = conv_problem();
    import(t, "NVIDIA H200", 132, &e, 1);
    for (int i = 0; i < 8; ++i) {
        struct gdni_problem other = conv;
        int32_t *const members[] = { &other.io_type, &other.head_dim_qk, &other.head_dim_v, &other.num_q_heads,
                                     &other.num_k_heads, &other.num_v_heads, &other.width };
        if (i < 7)
            *members[i] = i == 0 ? (int32_t)GDN_F16 : i == 6 ? 3 : *members[i] * 2;
        else
            other.flags ^= GDN_CONV_L2_NORM;
        const struct gdni_choice c = choose(t, "NVIDIA H200", &other, (struct gdni_slot){ 3, GDNI_ANY_SEQS }, 0);
        cr_expect_eq(c.by, GDNI_CHOSEN_HEURISTIC, "member %d", i);
    }
    gdni_tuning_destroy(t);
}

Test(tuning_db, an_entry_that_the_problem_cannot_use_is_passed_over)
{
    /* 1M tokens of 32 heads need 5.6 GB of workspace: a table made on a shorter bound says so for the last bucket. */
    const struct gdni_tuning_entry entries[] = { tuning_prefill(6, 0), tuning_prefill(7, GDNI_ANY_SEQS) };
    struct gdni_tuning *t = make_empty();
    struct gdni_problem p = prefill_problem();
    const struct gdni_slot slot = { 6, 0 };
    import(t, "NVIDIA H200", 132, entries, 2);
    cr_expect_eq(choose(t, "NVIDIA H200", &p, slot, 0).by, GDNI_CHOSEN_NONE);
    p.max_tokens = 300000 / 4; /* as if the call's bound were in reach */
    cr_expect_eq(choose(t, "NVIDIA H200", &p, slot, 0).by, GDNI_CHOSEN_EXACT);
    gdni_tuning_destroy(t);
}

Test(tuning_db, flags_ask_the_model_alone_or_tables_alone)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_problem conv = conv_problem(), prefill = prefill_problem();
    const struct gdni_slot slot = { 3, GDNI_ANY_SEQS }, few = { 3, 0 };
    const gdn_target h200 = target_of("NVIDIA H200");
    const struct gdni_tuning_entry e = conv_with(3, 16);
    struct gdni_choice c;
    cr_expect_eq(gdni_tuning_choose(&c, t, &h200, arch_of(&h200), &conv, slot, GDN_PLAN_TUNED_ONLY), GDN_E_NOT_TUNED);
    cr_expect(strstr(gdni_error_text(), "conv1d_qkv") && strstr(gdni_error_text(), "NVIDIA H200") &&
                  strstr(gdni_error_text(), "4096 tokens"),
              "%s", gdni_error_text());
    cr_expect_eq(gdni_tuning_choose(&c, t, &h200, arch_of(&h200), &prefill, few, GDN_PLAN_TUNED_ONLY), GDN_OK);
    cr_expect_eq(c.by, GDNI_CHOSEN_NONE, "few sequences have the bucket's variant");
    import(t, "NVIDIA H200", 132, &e, 1);
    cr_expect_eq(choose(t, "NVIDIA H200", &conv, slot, GDN_PLAN_TUNED_ONLY).by, GDNI_CHOSEN_EXACT);
    c = choose(t, "NVIDIA H200", &conv, slot, GDN_PLAN_HEURISTIC);
    cr_expect(c.by == GDNI_CHOSEN_HEURISTIC && c.params.tile_tokens == 8);
    gdni_tuning_destroy(t);
}

/* ---- What comes in ---- */

struct steps_seen {
    struct gdni_import_step steps[8];
    int count, stop_at;
};

static gdn_status see_step(void *user, const struct gdni_import_step *step)
{
    struct steps_seen *seen = user;
    seen->steps[seen->count++] = *step;
    return seen->count == seen->stop_at ? GDN_E_CANCELLED : GDN_OK;
}

static void age(struct gdni_tuning_entry *e)
{
    e->code[0] = e->code[0] == '0' ? '1' : '0';
}

/* What becomes of `in` where `known` is known, both of one slot. */
static void expect_fate(const struct gdni_tuning_entry *known, const struct gdni_tuning_entry *in, bool merge,
                        enum gdni_import_fate fate, const char *why, size_t row)
{
    struct gdni_tuning *t = make_empty();
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, in, 1);
    struct steps_seen seen = { .count = 0 };
    import(t, "NVIDIA H200", 132, known, 1);
    cr_assert_eq(gdni_tuning_import(t, &table, merge, see_step, &seen), GDN_OK);
    cr_expect_eq(seen.count, 1);
    cr_expect_eq(seen.steps[0].fate, fate, "row %zu", row);
    cr_expect_str_eq(seen.steps[0].why, why, "row %zu", row);
    struct gdni_tuning_table now;
    const gdn_target h200 = target_of("NVIDIA H200");
    cr_assert_eq(gdni_tuning_copy(t, &h200, &now), GDN_OK);
    const struct gdni_params *wanted = fate == GDNI_IMPORT_REPLACED ? &in->params : &known->params;
    cr_expect_eq(memcmp(&now.entries[0].params, wanted, sizeof *wanted), 0, "row %zu", row);
    gdni_tuning_table_free(&now);
    gdni_tuning_table_free(&table);
    gdni_tuning_destroy(t);
}

Test(tuning_db, a_merge_takes_what_is_newer_and_better_and_says_why)
{
    static const struct {
        const char *date, *driver, *nvrtc;
        int64_t median_ns, mad_ns;
        int32_t tile;
        enum gdni_import_fate fate;
        const char *why;
    } rows[] = { /* against 2026-11-22, 580.95.05, 100000 +- 300 ns of 50 samples, tile 8 */
        { "2026-11-22", "580.95.05", NULL, 100000, 300, 8, GDNI_IMPORT_SAME, "the same entry" },
        { "2026-11-21", "580.95.05", NULL, 50000, 300, 16, GDNI_IMPORT_KEPT, "what is known is newer" },
        { "2026-11-22", "580.95.05", NULL, 90000, 300, 16, GDNI_IMPORT_REPLACED, "faster" }, /* of one day */
        { "2026-11-23", "580.95.05", NULL, 120000, 300, 8, GDNI_IMPORT_REPLACED, "the same choice, measured later" },
        { "2026-11-23", "580.95.05", NULL, 90000, 300, 16, GDNI_IMPORT_REPLACED, "faster" },
        { "2026-11-23", "580.95.05", NULL, 98100, 300, 16, GDNI_IMPORT_KEPT, "a tie" },
        { "2026-11-23", "580.95.05", NULL, 95000, 9800, 16, GDNI_IMPORT_KEPT, "a tie" }, /* the medians' interval is 5048 */
        { "2026-11-23", "580.95.05", NULL, 95000, 9600, 16, GDNI_IMPORT_REPLACED, "faster" }, /* 4945: as in a race */
        { "2026-11-23", "580.95.05", NULL, 110000, 300, 16, GDNI_IMPORT_KEPT, "what is known is faster" },
        { "2026-11-23", "570.10", NULL, 50000, 300, 16, GDNI_IMPORT_KEPT,
          "measured with another driver or NVRTC: times do not compare" },
        { "2026-11-23", "580.95.05", "12.8", 50000, 300, 16, GDNI_IMPORT_KEPT,
          "measured with another driver or NVRTC: times do not compare" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        const struct gdni_tuning_entry known = conv_with(3, 8);
        struct gdni_tuning_entry in = conv_with(3, rows[i].tile);
        in.median_ns = rows[i].median_ns;
        in.mad_ns = rows[i].mad_ns;
        strcpy(in.date, rows[i].date);
        strcpy(in.driver, rows[i].driver);
        if (rows[i].nvrtc) strcpy(in.nvrtc, rows[i].nvrtc);
        expect_fate(&known, &in, true, rows[i].fate, rows[i].why, i);
    }
}

/* The model's time tells a reader what was gained, and whether the model stood: an entry with another one is another. */
Test(tuning_db, an_entry_is_the_same_with_every_number_of_it)
{
    const struct gdni_tuning_entry known = conv_with(3, 8);
    struct gdni_tuning_entry in = known;
    in.heuristic_ns += 1;
    expect_fate(&known, &in, false, GDNI_IMPORT_REPLACED, "loaded later", 0);
    in = known;
    in.samples += 1;
    expect_fate(&known, &in, false, GDNI_IMPORT_REPLACED, "loaded later", 1);
    in = known;
    in.mad_ns += 1;
    expect_fate(&known, &in, false, GDNI_IMPORT_REPLACED, "loaded later", 2);
    expect_fate(&known, &known, false, GDNI_IMPORT_SAME, "the same entry", 3);
}

/* What was measured with an older source of the kernel gives way, whenever it was measured and whoever comes in. */
Test(tuning_db, of_two_entries_the_one_of_this_librarys_kernel_stays)
{
    static const struct {
        bool old_known, old_in, merge;
        const char *date;
        int64_t median_ns;
        enum gdni_import_fate fate;
        const char *why;
    } rows[] = { /* against 2026-11-22, 100000 ns */
        { false, true, true, "2026-11-23", 50000, GDNI_IMPORT_KEPT, "measured before its kernel changed" },
        { false, true, false, "2026-11-23", 50000, GDNI_IMPORT_KEPT, "measured before its kernel changed" },
        { true, false, true, "2026-11-21", 150000, GDNI_IMPORT_REPLACED, "the kernel has changed since" },
        { true, false, false, "2026-11-21", 150000, GDNI_IMPORT_REPLACED, "the kernel has changed since" },
        { true, true, false, "2026-11-21", 150000, GDNI_IMPORT_REPLACED, "loaded later" },
        { true, true, true, "2026-11-23", 150000, GDNI_IMPORT_REPLACED, "the kernel has changed since" },
        { true, true, true, "2026-11-21", 50000, GDNI_IMPORT_KEPT, "what is known is newer" },
        { false, false, false, "2026-11-21", 150000, GDNI_IMPORT_REPLACED, "loaded later" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct gdni_tuning_entry known = conv_with(3, 8), in = conv_with(3, 16);
        if (rows[i].old_known) age(&known);
        if (rows[i].old_in) memcpy(in.code, "fedcba9876543210", sizeof in.code); /* older by another change */
        strcpy(in.date, rows[i].date);
        in.median_ns = rows[i].median_ns;
        expect_fate(&known, &in, rows[i].merge, rows[i].fate, rows[i].why, i);
    }
}

/* Their sources differ, and yet neither has changed: times decide. */
Test(tuning_db, a_merge_compares_times_of_two_kernels)
{
    const struct gdni_tuning_entry split = tuning_prefill(3, 1);
    struct gdni_tuning_entry generic = split;
    gdni_params_initial(&generic.params, GDNI_KERNEL_PREFILL_GENERIC);
    gdni_kernel_code_hash(generic.code, GDNI_KERNEL_PREFILL_GENERIC);
    strcpy(generic.date, "2026-11-23");
    cr_assert_str_neq(generic.code, split.code);
    generic.median_ns = 150000;
    expect_fate(&split, &generic, true, GDNI_IMPORT_KEPT, "what is known is faster", 0);
    generic.median_ns = 50000;
    expect_fate(&split, &generic, true, GDNI_IMPORT_REPLACED, "faster", 1);
}

static size_t count_of(struct gdni_tuning *t)
{
    const gdn_target h200 = target_of("NVIDIA H200");
    struct gdni_tuning_table table;
    if (gdni_tuning_copy(t, &h200, &table) != GDN_OK) return 0;
    const size_t count = table.count;
    gdni_tuning_table_free(&table);
    return count;
}

Test(tuning_db, an_import_unites_and_without_merge_what_comes_later_wins)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_tuning_entry first[] = { conv_with(1, 4), conv_with(3, 4), conv_with(5, 4) };
    const struct gdni_tuning_entry second[] = { conv_with(0, 16), conv_with(3, 16), conv_with(7, 16) };
    static const int32_t wanted[GDNI_NUM_BUCKETS] = { 16, 4, 0, 16, 0, 4, 0, 16 };
    const struct gdni_problem conv = conv_problem();
    import(t, "NVIDIA H200", 132, first, 3);
    import(t, "NVIDIA H200", 132, second, 3);
    cr_expect_eq(count_of(t), 5u);
    for (int b = 0; b < GDNI_NUM_BUCKETS; ++b) {
        const struct gdni_choice c = choose(t, "NVIDIA H200", &conv, (struct gdni_slot){ b, GDNI_ANY_SEQS }, 0);
        if (wanted[b])
            cr_expect(c.by == GDNI_CHOSEN_EXACT && c.params.tile_tokens == wanted[b], "bucket %d: %d", b, c.params.tile_tokens);
    }
    gdni_tuning_destroy(t);
}

/* A file has no more: what could not be saved and read again is not taken in. */
Test(tuning_db, tables_that_would_grow_beyond_a_files_entries_are_not_united)
{
    enum { SHAPES = 60 }; /* 4860 entries */
    struct gdni_tuning *t = make_empty();
    struct gdni_tuning_table table = tuning_large(SHAPES);
    cr_assert(table.count <= GDNI_TUNING_MAX_ENTRIES && 2 * table.count > GDNI_TUNING_MAX_ENTRIES, "%zu", table.count);
    cr_assert_eq(gdni_tuning_import(t, &table, false, NULL, NULL), GDN_OK, "%s", gdni_error_text());
    for (size_t i = 0; i < table.count; ++i)
        table.entries[i].key.num_q_heads += 10000; /* of other problems */
    cr_expect_eq(gdni_tuning_import(t, &table, false, NULL, NULL), GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "makes 9720 entries: a table has up to 8192"), "%s", gdni_error_text());
    cr_expect_eq(count_of(t), table.count);
    gdni_tuning_table_free(&table);
    gdni_tuning_destroy(t);
}

Test(tuning_db, an_import_that_is_stopped_or_runs_out_of_memory_changes_nothing)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_tuning_entry known = conv_with(3, 4);
    const struct gdni_tuning_entry more[] = { conv_with(2, 16), conv_with(3, 16), conv_with(4, 16) };
    import(t, "NVIDIA H200", 132, &known, 1);
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, more, 3);
    struct steps_seen seen = { .stop_at = 3 };
    cr_expect_eq(gdni_tuning_import(t, &table, false, see_step, &seen), GDN_E_CANCELLED);
    cr_expect_eq(count_of(t), 1u);
    for (int allowed = 0; allowed < 2; ++allowed) {
        gdni_mem_fail_after(allowed);
        cr_expect_eq(gdni_tuning_import(t, &table, false, NULL, NULL), GDN_E_NOMEM);
        gdni_mem_fail_after(-1);
        cr_expect_eq(count_of(t), 1u);
    }
    const struct gdni_problem conv = conv_problem();
    cr_expect_eq(choose(t, "NVIDIA H200", &conv, (struct gdni_slot){ 3, GDNI_ANY_SEQS }, 0).params.tile_tokens, 4);
    gdni_tuning_table_free(&table);
    gdni_tuning_destroy(t);
}

Test(tuning_db, no_more_gpus_are_taken_than_there_is_room_for)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_tuning_entry e = conv_with(3, 4);
    gdn_status status = GDN_OK;
    int taken = 0;
    for (; status == GDN_OK && taken < 1000; ++taken) {
        struct gdni_tuning_table table = tuning_table_of("A GPU", 1 + taken, &e, 1);
        status = gdni_tuning_import(t, &table, false, NULL, NULL);
        gdni_tuning_table_free(&table);
    }
    cr_expect_eq(status, GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "64 GPUs"), "%s", gdni_error_text());
    gdni_tuning_destroy(t);
}

/* ---- Built in ---- */

static void count_warnings(void *user, int level, const char *message)
{
    (void)message;
    if (level <= GDN_LOG_WARN) ++*(int *)user;
}

Test(tuning_db, built_in_tables_answer_and_one_that_cannot_be_read_is_one_warning)
{
    const struct gdni_tuning_entry e = conv_with(3, 16);
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, &e, 1);
    char *text = tuning_text(&table);
    const struct gdni_shipped_table shipped[] = { { "bad.json", "{}", 2 }, { "nvidia_h200.json", text, strlen(text) } };
    int warnings = 0;
    const struct gdni_log log = { count_warnings, &warnings, GDN_LOG_WARN };
    const struct gdni_problem conv = conv_problem();
    struct gdni_tuning *t = gdni_tuning_create(shipped, 2, &log);
    cr_assert_not_null(t);
    cr_expect_eq(warnings, 0, "nobody needed them yet");
    struct gdni_tuning_table *copies;
    size_t count;
    gdni_mem_fail_after(0);
    cr_expect_eq(gdni_tuning_copies(t, &copies, &count), GDN_E_NOMEM);
    gdni_mem_fail_after(-1);
    cr_expect_eq(warnings, 0, "what found no memory is not lost");
    for (int twice = 0; twice < 2; ++twice) {
        cr_expect_eq(choose(t, "NVIDIA H200", &conv, (struct gdni_slot){ 3, GDNI_ANY_SEQS }, 0).by, GDNI_CHOSEN_EXACT);
        cr_expect_eq(warnings, 1);
    }
    gdni_tuning_destroy(t);
    gdni_tuning_table_free(&table);
    free(text);
}

/* Skips the test where the table is only waiting to be measured anew. */
static struct gdni_tuning_table parse_shipped(const struct gdni_shipped_table *s)
{
    struct gdni_tuning_table table;
    const gdn_status status = gdni_tuning_parse(&table, s->name, s->text, s->len);
    if (status != GDN_OK && shipped_says_stale(gdni_error_text())) cr_skip_test("%s", gdni_error_text());
    cr_assert_eq(status, GDN_OK, "%s", gdni_error_text());
    return table;
}

Test(tuning_db, every_table_that_is_built_in_is_one_of_this_version)
{
    for (size_t i = 0; i < gdni_num_shipped_tables; ++i) {
        const struct gdni_shipped_table *s = &gdni_shipped_tables[i];
        struct gdni_tuning_table table = parse_shipped(s);
        char *again = tuning_text(&table);
        cr_expect_str_eq(again, s->text, "%s: tune writes it otherwise", s->name);
        free(again);
        gdni_tuning_table_free(&table);
    }
    cr_expect_null(gdni_shipped_tables[gdni_num_shipped_tables].name, "the list ends at a NULL name");
}

static struct gdni_problem conv_problem_of(const struct gdni_tuning_key *key)
{
    gdn_conv1d_desc d = test_conv1d_desc();
    struct gdni_problem p;
    d.io_type = (gdn_dtype)key->io_type;
    d.num_q_heads = key->num_q_heads, d.num_k_heads = key->num_k_heads, d.num_v_heads = key->num_v_heads;
    d.head_dim_qk = key->head_dim_qk, d.head_dim_v = key->head_dim_v;
    d.width = key->width;
    d.flags |= key->l2norm ? GDN_CONV_L2_NORM : 0u;
    cr_assert_eq(gdni_problem_from_conv1d(&p, &d), GDN_OK, "%s", gdni_error_text());
    return p;
}

/*
 * A table has the time of its winner and, as it was then, of the heuristic's choice. Tiles are what makes a difference; the
 * model may miss few of them, and none by much: that is what a table is for.
 */
Test(tuning_db, the_heuristic_makes_the_choices_that_were_measured_for_conv)
{
    int compared = 0, missed = 0;
    for (size_t i = 0; i < gdni_num_shipped_tables; ++i) {
        const struct gdni_shipped_table *s = &gdni_shipped_tables[i];
        struct gdni_tuning_table table = parse_shipped(s);
        for (size_t k = 0; k < table.count; ++k) {
            const struct gdni_tuning_entry *e = &table.entries[k];
            if (e->key.kernel != GDNI_KERNEL_CONV1D_QKV) continue;
            const struct gdni_problem p = conv_problem_of(&e->key);
            struct gdni_params params;
            gdni_params_heuristic(&params, &p, table.arch, table.num_sms, e->key.slot.bucket);
            const bool same = params.tile_tokens == e->params.tile_tokens;
            cr_expect(same || e->heuristic_ns * 100 <= e->median_ns * 110,
                      "%s, %lld channels, bucket %d: tiles of %d, not of %d: %lld ns, not %lld", s->name,
                      (long long)gdni_problem_channels(&p), e->key.slot.bucket, e->params.tile_tokens, params.tile_tokens,
                      (long long)e->median_ns, (long long)e->heuristic_ns);
            ++compared, missed += !same;
        }
        gdni_tuning_table_free(&table);
    }
    cr_expect_gt(compared, 0);
    cr_expect_leq(missed * 10, compared, "tiles missed: %d of %d", missed, compared);
}

static struct gdni_problem prefill_problem_of(const struct gdni_tuning_key *key)
{
    gdn_prefill_desc d = test_prefill_desc();
    struct gdni_problem p;
    d.io_type = (gdn_dtype)key->io_type;
    d.num_q_heads = key->num_q_heads, d.num_k_heads = key->num_k_heads, d.num_v_heads = key->num_v_heads;
    d.head_dim_qk = key->head_dim_qk, d.head_dim_v = key->head_dim_v;
    d.flags |= key->l2norm ? GDN_PREFILL_QK_L2NORM : 0u;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK, "%s", gdni_error_text());
    p.generic = key->kernel == GDNI_KERNEL_PREFILL_GENERIC;
    return p;
}

/* What a plan takes without a table; where few sequences have no choice of their own, the bucket's. */
static struct gdni_params model_of(const struct gdni_tuning_table *table, const struct gdni_tuning_key *key)
{
    const bool conv = key->kernel == GDNI_KERNEL_CONV1D_QKV;
    const struct gdni_problem p = conv ? conv_problem_of(key) : prefill_problem_of(key);
    gdn_target target = GDN_TARGET_INIT;
    struct gdni_slot slot = key->slot;
    struct gdni_choice c = { .by = GDNI_CHOSEN_NONE };
    target.num_sms = table->num_sms;
    for (int few = 0; few < 2 && c.by == GDNI_CHOSEN_NONE; ++few, slot.seq_class = GDNI_ANY_SEQS)
        cr_assert_eq(gdni_tuning_choose(&c, NULL, &target, table->arch, &p, slot, GDN_PLAN_HEURISTIC), GDN_OK);
    return c.params;
}

/*
 * Where the model's choice stood, the entry goes before the model for ever: one that has got better since would not be heard.
 * Who changes the model takes such entries out, or measures them again.
 */
Test(tuning_db, where_the_model_stood_a_built_in_entry_is_the_models_choice_of_now)
{
    for (size_t i = 0; i < gdni_num_shipped_tables; ++i) {
        struct gdni_tuning_table table = parse_shipped(&gdni_shipped_tables[i]);
        for (size_t k = 0; k < table.count; ++k) {
            const struct gdni_tuning_entry *e = &table.entries[k];
            if (e->median_ns != e->heuristic_ns) continue;
            const struct gdni_params model = model_of(&table, &e->key);
            cr_expect_eq(memcmp(&model, &e->params, sizeof model), 0, "%s, entry %zu: %s, heads %d/%d/%d, bucket %d, class %d",
                         table.source, k, gdni_kernel_info((enum gdni_kernel)e->key.kernel)->name, e->key.num_q_heads,
                         e->key.num_k_heads, e->key.num_v_heads, e->key.slot.bucket, e->key.slot.seq_class);
        }
        gdni_tuning_table_free(&table);
    }
}

/* A table lies in the folder of its arch; without any, there is nothing to compare and both are none. */
Test(tuning_db, the_tables_that_are_built_in_are_those_of_the_tree)
{
    glob_t found = { 0 };
    const int status = glob(GDN_SOURCE_DIR "/tuning/sm_*/*.json", 0, NULL, &found);
    cr_assert(status == 0 || status == GLOB_NOMATCH);
    cr_expect_eq(found.gl_pathc, gdni_num_shipped_tables);
    for (size_t i = 0; i < gdni_num_shipped_tables; ++i) {
        const struct gdni_shipped_table *s = &gdni_shipped_tables[i];
        char path[512], arch[16] = "";
        const char *said = strstr(s->text, "\"arch\": \"");
        cr_assert(said && sscanf(said, "\"arch\": \"%15[a-z0-9_]", arch) == 1, "%s", s->name);
        snprintf(path, sizeof path, "%s/tuning/%s/%s", GDN_SOURCE_DIR, arch, s->name);
        FILE *file = fopen(path, "r");
        cr_expect(file, "%s: a table of %s lies in another folder", s->name, arch);
        if (file) fclose(file);
    }
    globfree(&found);
}

/* ---- Threads ---- */

struct race {
    struct gdni_tuning *tuning;
    int32_t tile; /* of the imports; 0: chooses */
    int wrong;
};

static void *run_race(void *user)
{
    struct race *r = user;
    const struct gdni_problem conv = conv_problem();
    const gdn_target h200 = target_of("NVIDIA H200");
    const struct gdni_arch *arch = arch_of(&h200);
    const struct gdni_slot slot = { 3, GDNI_ANY_SEQS };
    const struct gdni_tuning_entry e = conv_with(3, r->tile ? r->tile : 8);
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, &e, 1);
    for (int i = 0; i < 300; ++i) {
        struct gdni_choice c;
        if (r->tile)
            r->wrong += gdni_tuning_import(r->tuning, &table, false, NULL, NULL) != GDN_OK;
        else
            r->wrong += gdni_tuning_choose(&c, r->tuning, &h200, arch, &conv, slot, 0) != GDN_OK ||
                        (c.params.tile_tokens != 4 && c.params.tile_tokens != 16);
    }
    gdni_tuning_table_free(&table);
    return NULL;
}

Test(tuning_db, plans_that_choose_while_tables_come_in_see_one_or_the_other)
{
    struct gdni_tuning *t = make_empty();
    const struct gdni_tuning_entry e = conv_with(3, 4);
    struct race races[4] = { { t, 4, 0 }, { t, 16, 0 }, { t, 0, 0 }, { t, 0, 0 } };
    pthread_t threads[4];
    import(t, "NVIDIA H200", 132, &e, 1);
    for (int i = 0; i < 4; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, run_race, &races[i]), 0);
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; ++i) cr_expect_eq(races[i].wrong, 0, "thread %d: %d", i, races[i].wrong);
    gdni_tuning_destroy(t);
}

/* ---- Speed: CPU time of this thread, the best of several, so that a busy machine does not show ---- */

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

enum { SHAPES = 16, LOOKUPS = 1000, TRIES = 30 }; /* the presets have 16 shapes per rank; every slot of them is 1152 entries */

Test(tuning_db, a_lookup_takes_less_than_2_us)
{
    struct gdni_tuning *t = make_empty();
    struct gdni_tuning_table table = tuning_large(100);
    cr_assert_eq(gdni_tuning_import(t, &table, false, NULL, NULL), GDN_OK);
    const gdn_target h200 = target_of("NVIDIA H200");
    const struct gdni_problem p = prefill_problem(); /* 32 v heads: the second shape */
    const struct gdni_slot slot = { 4, 0 };
    int64_t best = INT64_MAX;
    struct gdni_choice c;
    for (int try = 0; try < TRIES; ++try) {
        const int64_t start = cpu_ns();
        for (int i = 0; i < LOOKUPS; ++i) cr_assert_eq(gdni_tuning_choose(&c, t, &h200, arch_of(&h200), &p, slot, 0), GDN_OK);
        const int64_t each = (cpu_ns() - start) / LOOKUPS;
        best = each < best ? each : best;
    }
    printf("lookup among %zu entries: %lld ns, by %s\n", table.count, (long long)best, gdni_chosen_name(c.by));
    cr_expect_eq(c.by, GDNI_CHOSEN_EXACT);
    cr_expect_lt(best, 2000 * SLOWER, "%lld ns", (long long)best);
    gdni_tuning_table_free(&table);
    gdni_tuning_destroy(t);
}

Test(tuning_db, tables_of_every_slot_of_the_presets_shapes_load_in_less_than_5_ms)
{
    struct gdni_tuning_table table = tuning_large(SHAPES);
    char *text = tuning_text(&table);
    const struct gdni_shipped_table shipped = { "large.json", text, strlen(text) };
    const struct gdni_problem conv = conv_problem();
    const int64_t bound = (int64_t)5000000 * SLOWER;
    int64_t best = INT64_MAX;
    for (int try = 0; try < TRIES || (try < 20 * TRIES && best >= bound); ++try) { /* a busy machine has quiet moments */
        const int64_t start = cpu_ns();
        struct gdni_tuning *t = gdni_tuning_create(&shipped, 1, NULL);
        choose(t, "NVIDIA H200", &conv, (struct gdni_slot){ 3, GDNI_ANY_SEQS }, 0); /* parses them */
        const int64_t took = cpu_ns() - start;
        best = took < best ? took : best;
        cr_assert_eq(count_of(t), table.count);
        gdni_tuning_destroy(t);
    }
    printf("%zu entries, %zu bytes: %lld us\n", table.count, strlen(text), (long long)best / 1000);
    cr_expect_lt(best, bound, "%lld ns", (long long)best);
    gdni_tuning_table_free(&table);
    free(text);
}
