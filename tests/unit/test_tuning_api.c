/*
 * test_tuning_api.c - tuning files through the public interface: what a plan takes from them and says of them, and that a bad
 * file changes nothing.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/context.h"
#include "runtime/plan.h"
#include "runtime/tuning_api.h"
#include "support/fake_host.h"
#include "support/shipped.h"
#include "support/tuning_cases.h"

/* A GPU and head counts that no built-in table has, so that what is built in changes nothing here. */
#define GPU "A GPU of tests"
enum { HEADS = 3 };

static struct gdni_tuning_entry conv_entry(int bucket, int32_t tile_tokens)
{
    struct gdni_tuning_entry e = tuning_conv(bucket);
    e.key.num_q_heads = e.key.num_k_heads = e.key.num_v_heads = HEADS;
    e.params.tile_tokens = tile_tokens;
    return e;
}

static struct gdni_tuning_entry prefill_entry(int bucket, int seq_class)
{
    struct gdni_tuning_entry e = tuning_prefill(bucket, seq_class);
    e.key.num_q_heads = e.key.num_k_heads = e.key.num_v_heads = HEADS;
    return e;
}

static gdn_target test_target(gdn_ctx *ctx)
{
    gdn_target target = fake_h200(ctx);
    memset(target.gpu_name, 0, sizeof target.gpu_name);
    strcpy(target.gpu_name, GPU);
    return target;
}

/* The plan, which must be made, of HEADS heads. */
static gdn_plan *plan_conv(gdn_ctx *ctx, int64_t max_tokens, uint32_t flags)
{
    gdn_plan *plan = NULL;
    const gdn_target target = test_target(ctx);
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = HEADS;
    desc.max_tokens = max_tokens;
    cr_assert_eq(gdn_plan_conv1d_qkv(ctx, &target, &desc, flags, &plan), GDN_OK, "%s", gdn_last_error());
    return plan;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
}

static void write_table(const char *path, const char *gpu, int32_t num_sms, const struct gdni_tuning_entry *entries,
                        size_t count)
{
    struct gdni_tuning_table table = tuning_table_of(gpu, num_sms, entries, count);
    cr_assert_eq(gdni_tuning_write(&table, path), GDN_OK, "%s", gdn_last_error());
    gdni_tuning_table_free(&table);
}

struct room {
    struct fake_host host;
    char dir[64], file[96], other[96];
};

static void enter(struct room *r)
{
    fake_make_dir(r->dir);
    snprintf(r->file, sizeof r->file, "%s/t.json", r->dir);
    snprintf(r->other, sizeof r->other, "%s/u.json", r->dir);
    fake_host_open(&r->host, GDN_FAKE_CUDA_PATH, NULL, 0);
}

static void leave(struct room *r)
{
    fake_host_close(&r->host);
    fake_remove_dir(r->dir);
    cr_expect(fake_no_leaks());
}

static int count_entry(void *user, const gdn_tuning_entry *entry)
{
    cr_expect_eq(entry->struct_size, sizeof *entry);
    *(int *)user += entry->num_k_heads == HEADS;
    return 0;
}

static int entries_of(gdn_ctx *ctx)
{
    int count = 0;
    cr_assert_eq(gdn_tuning_list(ctx, count_entry, &count), GDN_OK, "%s", gdn_last_error());
    return count;
}

/* ---- Plans ---- */

Test(tuning_api, a_plan_takes_what_was_measured_and_its_dump_says_so)
{
    struct room r;
    enter(&r);
    struct gdni_tuning_entry entries[] = { conv_entry(0, 16), conv_entry(1, 4) };
    memcpy(entries[1].code, "0123456789abcdef", sizeof entries[1].code); /* of an older kernel: used, and told */
    write_table(r.file, GPU, 132, entries, 2);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
    gdn_plan *plan = plan_conv(r.host.ctx, 5000, 0); /* buckets 0 to 4 */
    static const int32_t tiles[] = { 16, 4, 4, 8, 8 };
    for (int b = 0; b < 5; ++b)
        cr_expect_eq(plan->specs[plan->variant_of_bucket[b]].params.tile_tokens, tiles[b], "bucket %d", b);
    char *dump = fake_dump(plan, GDN_DUMP_JSON);
    static const char *const said[] = {
        "{\"tokens\": 256, \"seqs\": 0, \"by\": \"exact\", \"gpu\": \"" GPU "\", \"measured_tokens\": 256, "
        "\"measured_seqs\": 0, \"stale\": false}",
        "{\"tokens\": 2048, \"seqs\": 0, \"by\": \"bucket\", \"gpu\": \"" GPU "\", \"measured_tokens\": 1024, "
        "\"measured_seqs\": 0, \"stale\": true}",
        "{\"tokens\": 16384, \"seqs\": 0, \"by\": \"heuristic\"}",
        "\"params_origin\": \"exact\"", "\"params_origin\": \"exact, bucket\"", "\"params_origin\": \"heuristic\"",
    };
    for (size_t i = 0; i < sizeof said / sizeof said[0]; ++i)
        cr_expect(strstr(dump, said[i]), "%s is not in %s", said[i], dump);
    free(dump);
    gdn_plan_destroy(plan);
    leave(&r);
}

Test(tuning_api, another_gpu_of_the_arch_answers_and_the_dump_names_it)
{
    struct room r;
    enter(&r);
    const struct gdni_tuning_entry e = conv_entry(0, 16);
    write_table(r.file, "NVIDIA H100 PCIe", 114, &e, 1);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK);
    gdn_plan *plan = plan_conv(r.host.ctx, 200, 0);
    cr_expect_eq(plan->specs[0].params.tile_tokens, 16);
    char *dump = fake_dump(plan, GDN_DUMP_JSON);
    cr_expect(strstr(dump, "\"by\": \"arch\", \"gpu\": \"NVIDIA H100 PCIe\""), "%s", dump);
    free(dump);
    gdn_plan_destroy(plan);
    leave(&r);
}

Test(tuning_api, few_sequences_get_a_kernel_of_their_own_where_a_table_says_so)
{
    struct room r;
    enter(&r);
    struct gdni_tuning_entry entries[] = { prefill_entry(0, GDNI_ANY_SEQS), prefill_entry(0, 3),
                                           prefill_entry(1, GDNI_ANY_SEQS) };
    entries[1].params.block_dv = 16;
    entries[1].params.ctas_per_producer = 8;
    write_table(r.file, GPU, 132, entries, 3);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK);
    gdn_plan *plan = NULL;
    const gdn_target target = test_target(r.host.ctx);
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = HEADS;
    cr_assert_eq(gdn_plan_prefill(r.host.ctx, &target, &desc, GDN_PLAN_TUNED_ONLY | GDN_PLAN_GENERIC, &plan), GDN_OK, "%s",
                 gdn_last_error());
    const int eight = plan->variant_of_few[0][3];
    cr_assert_geq(eight, 0);
    cr_expect_eq(plan->specs[eight].params.block_dv, 16);
    cr_expect_eq(plan->specs[eight].params.ctas_per_producer, 8);
    cr_expect_eq(plan->variant_of_few[0][0], -1, "the model would have chosen one, but it was not asked");
    cr_expect_gt(gdn_plan_workspace_size(plan), 0u);
    gdn_plan_destroy(plan);
    leave(&r);
}

Test(tuning_api, a_plan_may_ask_for_tables_alone_or_for_none)
{
    struct room r;
    enter(&r);
    const struct gdni_tuning_entry e = conv_entry(0, 16);
    gdn_plan *plan = NULL;
    const gdn_target target = test_target(r.host.ctx);
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = HEADS;
    desc.max_tokens = 200;
    cr_expect_eq(gdn_plan_conv1d_qkv(r.host.ctx, &target, &desc, GDN_PLAN_TUNED_ONLY, &plan), GDN_E_NOT_TUNED);
    cr_expect_null(plan);
    cr_expect(fake_error_says("heads of q, k and v on") && fake_error_says("up to 256 tokens") &&
                  fake_error_says("gdn_tuning_load()"),
              "%s", gdn_last_error());
    write_table(r.file, GPU, 132, &e, 1);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK);
    cr_assert_eq(gdn_plan_conv1d_qkv(r.host.ctx, &target, &desc, GDN_PLAN_TUNED_ONLY, &plan), GDN_OK);
    cr_expect_eq(plan->specs[0].params.tile_tokens, 16);
    gdn_plan_destroy(plan);
    cr_assert_eq(gdn_plan_conv1d_qkv(r.host.ctx, &target, &desc, GDN_PLAN_HEURISTIC, &plan), GDN_OK);
    cr_expect_eq(plan->specs[0].params.tile_tokens, 4);
    gdn_plan_destroy(plan);
    cr_expect_eq(gdn_plan_conv1d_qkv(r.host.ctx, &target, &desc, GDN_PLAN_HEURISTIC | GDN_PLAN_TUNED_ONLY, &plan),
                 GDN_E_INVALID);
    cr_expect(fake_error_says("exclude each other"));
    leave(&r);
}

/* ---- Load, list, save ---- */

struct noted {
    char notes[8][96];
    int count, stop_at;
};

static int take_note(void *user, const gdn_tuning_entry *entry)
{
    struct noted *n = user;
    snprintf(n->notes[n->count], sizeof n->notes[0], "%s", entry->note);
    return ++n->count == n->stop_at;
}

Test(tuning_api, a_load_reports_what_became_of_each_entry)
{
    struct room r;
    enter(&r);
    struct gdni_tuning_entry entries[] = { conv_entry(0, 16), conv_entry(1, 4), conv_entry(2, 4) };
    gdn_tuning_report report = GDN_TUNING_REPORT_INIT;
    struct noted n = { .count = 0 };
    write_table(r.file, GPU, 132, entries, 2);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, &report), GDN_OK);
    cr_expect(report.entries == 2 && report.added == 2 && report.replaced + report.kept + report.same == 0);

    strcpy(entries[1].date, "2026-11-30");
    entries[1].params.tile_tokens = 16;
    entries[1].median_ns = 50000;
    write_table(r.other, GPU, 132, entries, 3);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.other, GDN_TUNING_MERGE, take_note, &n, &report), GDN_OK);
    cr_expect(report.entries == 3 && report.same == 1 && report.replaced == 1 && report.added == 1 && report.kept == 0);
    cr_expect_str_eq(n.notes[0], "same");
    cr_expect_str_eq(n.notes[1], "replaced: faster");
    cr_expect_str_eq(n.notes[2], "added");
    cr_expect_eq(entries_of(r.host.ctx), 3);
    leave(&r);
}

Test(tuning_api, a_load_that_is_stopped_is_a_rehearsal)
{
    struct room r;
    enter(&r);
    const struct gdni_tuning_entry entries[] = { conv_entry(0, 16), conv_entry(1, 4) };
    struct noted n = { .stop_at = 2 };
    write_table(r.file, GPU, 132, entries, 2);
    cr_expect_eq(gdn_tuning_load(r.host.ctx, r.file, 0, take_note, &n, NULL), GDN_E_CANCELLED);
    cr_expect_eq(n.count, 2);
    cr_expect_eq(entries_of(r.host.ctx), 0);
    leave(&r);
}

static int check_listed(void *user, const gdn_tuning_entry *e)
{
    if (e->num_k_heads != HEADS) return 0;
    const int at = (*(int *)user)++;
    cr_expect(!strcmp(e->arch, "sm_90a") && !strcmp(e->gpu_name, GPU) && e->num_sms == 132);
    cr_expect_eq(e->width, at ? 0 : 4);
    if (at == 0) {
        cr_expect(!strcmp(e->kernel, "conv1d_qkv") && e->tokens == 1048576 && e->seqs == 0 && e->io_type == GDN_BF16);
        cr_expect_str_eq(e->params, "{\"tile_tokens\": 16, \"cta_threads\": 128}");
        cr_expect_eq(e->stale, 1, "its code is another");
    } else {
        cr_expect(!strcmp(e->kernel, "gdn_prefill_generic") && e->tokens == 1024 && e->seqs == 8);
        cr_expect(e->num_q_heads == HEADS && e->num_v_heads == HEADS);
        cr_expect(e->head_dim_qk == 128 && e->head_dim_v == 128 && !e->l2norm);
        cr_expect(e->median_ns == 100000 && e->mad_ns == 300 && e->heuristic_ns == 110000 && e->samples == 50);
        cr_expect(e->sm_mhz == 1980 && e->mem_mhz == 3201 && e->stale == 0);
        cr_expect(!strcmp(e->driver, "580.95.05") && !strcmp(e->nvrtc, "13.0") && !strcmp(e->date, "2026-11-22") && !*e->note);
    }
    return 0;
}

Test(tuning_api, a_list_shows_every_member_and_whether_the_kernel_has_changed)
{
    struct room r;
    enter(&r);
    struct gdni_tuning_entry entries[] = { conv_entry(7, 16), prefill_entry(1, 3) };
    memset(entries[0].code, '0', 16);
    int count = 0;
    write_table(r.file, GPU, 132, entries, 2);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK);
    cr_assert_eq(gdn_tuning_list(r.host.ctx, check_listed, &count), GDN_OK);
    cr_expect_eq(count, 2);
    struct noted n = { .stop_at = 1 };
    cr_expect_eq(gdn_tuning_list(r.host.ctx, take_note, &n), GDN_E_CANCELLED);
    cr_expect_eq(n.count, 1);
    leave(&r);
}

/* Loads a table that sorts before all others when it is called first. */
struct meddler {
    const struct room *room;
    int seen;
};

static int load_another(void *user, const gdn_tuning_entry *e)
{
    struct meddler *m = user;
    if (m->seen++ == 0)
        cr_expect_eq(gdn_tuning_load(m->room->host.ctx, m->room->other, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_neq(e->gpu_name, "A");
    return 0;
}

Test(tuning_api, a_list_shows_each_entry_once_when_a_table_comes_meanwhile)
{
    struct room r;
    enter(&r);
    const struct gdni_tuning_entry entries[] = { conv_entry(7, 16), prefill_entry(1, 3) };
    struct meddler before = { .room = &r, .seen = 1 }, during = { .room = &r };
    write_table(r.file, GPU, 132, entries, 2);
    write_table(r.other, "A", 132, entries, 2);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK);
    cr_assert_eq(gdn_tuning_list(r.host.ctx, load_another, &before), GDN_OK);
    cr_assert_eq(gdn_tuning_list(r.host.ctx, load_another, &during), GDN_OK);
    cr_expect_eq(during.seen, before.seen - 1, "%d entries shown of %d", during.seen, before.seen - 1);
    cr_expect_eq(entries_of(r.host.ctx), 4);
    leave(&r);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 65536);
    cr_assert(file && text && fread(text, 1, 65535, file) > 0, "%s", path);
    fclose(file);
    return text;
}

Test(tuning_api, what_is_saved_is_what_was_loaded_byte_for_byte)
{
    struct room r;
    enter(&r);
    const struct gdni_tuning_entry entries[] = { conv_entry(0, 16), conv_entry(1, 4) };
    const gdn_target target = test_target(r.host.ctx);
    struct stat st;
    cr_expect_eq(gdn_tuning_save(r.host.ctx, &target, r.other), GDN_E_NOT_TUNED);
    cr_expect_neq(stat(r.other, &st), 0, "no file is made of nothing");
    write_table(r.file, GPU, 132, entries, 2);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK);
    write_text(r.other, "something that stood there before");
    cr_assert_eq(gdn_tuning_save(r.host.ctx, &target, r.other), GDN_OK, "%s", gdn_last_error());
    char *a = read_text(r.file), *b = read_text(r.other);
    cr_expect_str_eq(a, b);
    free(a);
    free(b);
    leave(&r);
}

/* Two good files of 700 runs each are more runs than a file may have: it could not be read again. */
Test(tuning_api, what_could_not_be_read_again_is_not_saved)
{
    enum { EACH = 700 };
    struct room r;
    enter(&r);
    const gdn_target target = test_target(r.host.ctx);
    const struct gdni_tuning_entry kept = conv_entry(0, 16);
    write_table(r.file, GPU, 132, &kept, 1);
    for (int half = 0; half < 2; ++half) {
        struct gdni_tuning_table table = tuning_table(GPU, 132);
        for (int i = half * EACH; i < (half + 1) * EACH; ++i) {
            struct gdni_tuning_entry e = tuning_conv(0);
            e.key.num_v_heads = 1 + i;
            e.sm_mhz = 500 + i;
            tuning_add(&table, &e);
        }
        cr_assert_null(gdni_tuning_table_sort(&table));
        cr_assert_eq(gdni_tuning_write(&table, r.other), GDN_OK, "%s", gdn_last_error());
        cr_assert_eq(gdn_tuning_load(r.host.ctx, r.other, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
        gdni_tuning_table_free(&table);
    }
    cr_expect_eq(gdn_tuning_save(r.host.ctx, &target, r.file), GDN_E_INVALID);
    cr_expect(fake_error_says("t.json is not written") && fake_error_says("1400 runs: at most 1024"), "%s", gdn_last_error());
    cr_expect_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK, "the file of before: %s", gdn_last_error());
    leave(&r);
}

/* The most entries that a file may have, however they are written down. */
Test(tuning_api, a_table_of_as_many_entries_as_a_file_may_have_is_saved)
{
    struct room r;
    enter(&r);
    const gdn_target target = test_target(r.host.ctx);
    struct gdni_tuning_table table = tuning_table(GPU, 132);
    for (int i = 0; i < GDNI_TUNING_MAX_ENTRIES; ++i) {
        struct gdni_tuning_entry e = tuning_conv(0);
        e.key.num_v_heads = 1 + i;
        e.median_ns = e.mad_ns = e.heuristic_ns = 999999999;
        tuning_add(&table, &e);
    }
    cr_assert_null(gdni_tuning_table_sort(&table));
    cr_assert_eq(gdni_tuning_write(&table, r.file), GDN_OK, "%s", gdn_last_error());
    gdni_tuning_table_free(&table);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_tuning_save(r.host.ctx, &target, r.other), GDN_OK, "%s", gdn_last_error());
    leave(&r);
}

Test(tuning_api, who_may_read_what_is_saved_is_what_the_umask_leaves)
{
    static const unsigned masks[] = { 0022, 0077, 0002 };
    struct room r;
    enter(&r);
    const mode_t before = umask(0);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; ++i) {
        struct stat st;
        umask(masks[i]);
        unlink(r.file);
        write_table(r.file, GPU, 132, NULL, 0);
        cr_assert_eq(stat(r.file, &st), 0);
        cr_expect_eq(st.st_mode & 0777, 0666u & ~masks[i], "umask %03o: %03o", masks[i], st.st_mode & 0777);
    }
    umask(before);
    leave(&r);
}

Test(tuning_api, who_may_read_a_file_stays_as_it_is_when_another_takes_its_place)
{
    static const mode_t modes[] = { 0600, 0664, 0666, 0444, 0400 };
    struct room r;
    enter(&r);
    const mode_t before = umask(0022);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; ++i) {
        struct stat old, st;
        write_table(r.file, GPU, 132, NULL, 0);
        cr_assert(chmod(r.file, modes[i]) == 0 && stat(r.file, &old) == 0);
        write_table(r.file, GPU, 132, NULL, 0);
        cr_assert_eq(stat(r.file, &st), 0);
        cr_expect_neq(st.st_ino, old.st_ino, "the same file");
        cr_expect_eq(st.st_mode & 07777, modes[i], "%03o became %03o", (unsigned)modes[i], st.st_mode & 07777);
    }
    umask(before);
    leave(&r);
}

Test(tuning_api, what_is_no_regular_file_is_not_replaced)
{
    struct room r;
    struct stat st;
    enter(&r);
    const gdn_target target = test_target(r.host.ctx);
    const struct gdni_tuning_entry entry = conv_entry(0, 16);
    write_table(r.file, GPU, 132, &entry, 1);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
    unlink(r.other);
    cr_assert_eq(symlink(r.file, r.other), 0);
    cr_expect_eq(gdn_tuning_save(r.host.ctx, &target, r.other), GDN_E_IO);
    cr_expect(fake_error_says("no regular file"), "%s", gdn_last_error());
    cr_expect(lstat(r.other, &st) == 0 && S_ISLNK(st.st_mode));
    leave(&r);
}

Test(tuning_api, bad_arguments_are_named)
{
    struct room r;
    enter(&r);
    gdn_ctx *ctx = r.host.ctx;
    gdn_target target = test_target(ctx);
    gdn_tuning_report shorter = { .struct_size = 8 };
    int count = 0;
    write_table(r.file, GPU, 132, NULL, 0);
    cr_expect(gdn_tuning_load(NULL, r.file, 0, NULL, NULL, NULL) == GDN_E_INVALID && fake_error_says("ctx is null"));
    cr_expect(gdn_tuning_load(ctx, NULL, 0, NULL, NULL, NULL) == GDN_E_INVALID && fake_error_says("path is null"));
    cr_expect(gdn_tuning_load(ctx, "", 0, NULL, NULL, NULL) == GDN_E_INVALID && fake_error_says("path is \"\""));
    cr_expect(gdn_tuning_load(ctx, r.file, 6, NULL, NULL, NULL) == GDN_E_INVALID && fake_error_says("flags is 0x6"));
    cr_expect(gdn_tuning_load(ctx, r.file, 0, NULL, NULL, &shorter) == GDN_E_VERSION && fake_error_says("gdn_tuning_report"));
    cr_expect(gdn_tuning_list(NULL, count_entry, &count) == GDN_E_INVALID && fake_error_says("ctx is null"));
    cr_expect(gdn_tuning_list(ctx, NULL, NULL) == GDN_E_INVALID && fake_error_says("fn is null"));
    cr_expect(gdn_tuning_save(NULL, &target, r.other) == GDN_E_INVALID && fake_error_says("ctx is null"));
    cr_expect(gdn_tuning_save(ctx, NULL, r.other) == GDN_E_INVALID && fake_error_says("target is null"));
    cr_expect(gdn_tuning_save(ctx, &target, NULL) == GDN_E_INVALID && fake_error_says("path is null"));
    target.reserved = 1;
    cr_expect(gdn_tuning_save(ctx, &target, r.other) == GDN_E_INVALID && fake_error_says("target.reserved is 1"));
    target.reserved = 0;
    memset(target.gpu_name, 0, sizeof target.gpu_name);
    cr_expect(gdn_tuning_save(ctx, &target, r.other) == GDN_E_INVALID && fake_error_says("gpu_name is empty"));
    leave(&r);
}

Test(tuning_api, what_is_no_file_is_an_io_error_and_nothing_waits_for_it)
{
    struct room r;
    enter(&r);
    struct gdni_tuning_entry e = conv_entry(0, 16);
    const gdn_target target = test_target(r.host.ctx);
    cr_assert_eq(mkfifo(r.file, 0600), 0);
    cr_expect(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL) == GDN_E_IO && fake_error_says("no regular file"));
    cr_expect(gdn_tuning_load(r.host.ctx, r.dir, 0, NULL, NULL, NULL) == GDN_E_IO && fake_error_says(r.dir));
    cr_expect(gdn_tuning_load(r.host.ctx, "/nonexistent/t.json", 0, NULL, NULL, NULL) == GDN_E_IO &&
              fake_error_says("/nonexistent/t.json"));
    write_table(r.other, GPU, 132, &e, 1);
    cr_assert_eq(truncate(r.other, GDNI_TUNING_MAX_BYTES + 1), 0);
    cr_expect(gdn_tuning_load(r.host.ctx, r.other, 0, NULL, NULL, NULL) == GDN_E_INVALID && fake_error_says("4194305 bytes"));
    cr_expect_eq(entries_of(r.host.ctx), 0);

    write_table(r.other, GPU, 132, &e, 1);
    cr_assert_eq(unlink(r.file), 0);
    cr_assert_eq(symlink(r.other, r.file), 0);
    cr_expect_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK, "a link that is named on purpose");
    cr_expect(gdn_tuning_save(r.host.ctx, &target, "/nonexistent/t.json") == GDN_E_IO && fake_error_says("cannot be written"));
    cr_expect_eq(gdn_tuning_save(r.host.ctx, &target, "/"), GDN_E_IO);
    leave(&r);
}

Test(tuning_api, loading_runs_out_of_memory_cleanly)
{
    struct room r;
    enter(&r);
    const struct gdni_tuning_entry e = conv_entry(0, 16);
    gdn_status status = GDN_E_NOMEM;
    write_table(r.file, GPU, 132, &e, 1);
    for (int allowed = 0; status != GDN_OK; ++allowed) {
        cr_assert_lt(allowed, 100);
        gdni_mem_fail_after(allowed);
        status = gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL);
        gdni_mem_fail_after(-1);
        cr_expect(status == GDN_OK || status == GDN_E_NOMEM, "%s", gdn_last_error());
        cr_expect_eq(entries_of(r.host.ctx), status == GDN_OK);
    }
    leave(&r);
}

Test(tuning_api, saving_runs_out_of_memory_cleanly)
{
    struct room r;
    enter(&r);
    const gdn_target target = test_target(r.host.ctx);
    const struct gdni_tuning_entry e = conv_entry(0, 16);
    gdn_status status = GDN_E_NOMEM;
    write_table(r.file, GPU, 132, &e, 1);
    cr_assert_eq(gdn_tuning_load(r.host.ctx, r.file, 0, NULL, NULL, NULL), GDN_OK, "%s", gdn_last_error());
    for (int allowed = 0; status != GDN_OK; ++allowed) {
        cr_assert_lt(allowed, 100);
        gdni_mem_fail_after(allowed);
        status = gdn_tuning_save(r.host.ctx, &target, r.other);
        gdni_mem_fail_after(-1);
        cr_expect(status == GDN_OK || status == GDN_E_NOMEM, "%s", gdn_last_error());
        cr_expect_eq(access(r.other, F_OK) == 0, status == GDN_OK);
    }
    leave(&r);
}

/* ---- A context's path ---- */

struct heard {
    int warnings;
    char text[4][1024];
};

static void hear(void *user, int level, const char *message)
{
    struct heard *h = user;
    if (level > GDN_LOG_WARN || shipped_is_stale_warning(message)) return;
    if (h->warnings < 4) snprintf(h->text[h->warnings], sizeof h->text[0], "%s", message);
    ++h->warnings;
}

static gdn_ctx *context_with(const char *tuning_path, uint32_t flags, struct heard *heard)
{
    gdn_ctx *ctx = NULL;
    gdn_config cfg = GDN_CONFIG_INIT;
    *heard = (struct heard){ 0 };
    cfg.cache_dir = "";
    cfg.tuning_path = tuning_path;
    cfg.flags = flags;
    cfg.log_fn = hear;
    cfg.log_user = heard;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    return ctx;
}

Test(tuning_api, a_context_takes_the_files_of_its_path_in_turn_and_a_bad_one_is_one_warning)
{
    struct room r;
    enter(&r);
    char path[512], bad[96];
    struct heard heard;
    const struct gdni_tuning_entry first[] = { conv_entry(0, 16), conv_entry(1, 16) }, second = conv_entry(0, 4);
    write_table(r.file, GPU, 132, first, 2);
    write_table(r.other, GPU, 132, &second, 1);
    snprintf(bad, sizeof bad, "%s/bad.json", r.dir);
    write_text(bad, "{\"schema\": 2}");
    snprintf(path, sizeof path, "%s::%s:/nonexistent:%s:", r.file, bad, r.other);
    gdn_ctx *ctx = context_with(path, 0, &heard);
    cr_expect_eq(entries_of(ctx), 2);
    struct gdni_tuning_table table;
    const gdn_target target = test_target(ctx);
    cr_assert_eq(gdni_tuning_copy(ctx->tuning, &target, &table), GDN_OK);
    cr_expect_eq(table.entries[0].params.tile_tokens, 4, "the later file's");
    gdni_tuning_table_free(&table);
    cr_expect_eq(heard.warnings, 2);
    cr_expect(strstr(heard.text[0], bad) && strstr(heard.text[0], "this library reads 1"), "%s", heard.text[0]);
    cr_expect(strstr(heard.text[1], "/nonexistent"), "%s", heard.text[1]);
    gdn_ctx_destroy(ctx);
    leave(&r);
}

Test(tuning_api, the_environment_names_files_unless_the_config_does)
{
    struct room r;
    enter(&r);
    struct heard heard;
    const struct gdni_tuning_entry e = conv_entry(0, 16);
    write_table(r.file, GPU, 132, &e, 1);
    setenv("GDN_JIT_TUNING_PATH", r.file, 1);
    static const struct {
        const char *path;
        uint32_t flags;
        int entries;
    } wanted[] = { { NULL, 0, 1 }, { NULL, GDN_CTX_NO_ENV, 0 }, { "", 0, 0 } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        gdn_ctx *ctx = context_with(wanted[i].path, wanted[i].flags, &heard);
        cr_expect_eq(entries_of(ctx), wanted[i].entries, "row %zu", i);
        cr_expect_eq(heard.warnings, 0);
        gdn_ctx_destroy(ctx);
    }
    unsetenv("GDN_JIT_TUNING_PATH");
    leave(&r);
}
