/*
 * test_tuning_json.c - what is written is read again; anything else is refused as a whole, with a sentence.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "support/tuning_cases.h"

/* One of each kind: few sequences on the kernel with two kinds of CTAs, any number of them, conv. */
static char *sample_text(void)
{
    const struct gdni_tuning_entry entries[] = { tuning_prefill(2, 0), tuning_prefill(2, GDNI_ANY_SEQS), tuning_conv(7) };
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, entries, 3);
    char *text = tuning_text(&table);
    gdni_tuning_table_free(&table);
    return text;
}

static gdn_status parse(const char *bytes, size_t len, struct gdni_tuning_table *out)
{
    char *copy = malloc(len ? len : 1); /* exactly as long: AddressSanitizer sees a read past the end */
    memcpy(copy, bytes, len);
    const gdn_status status = gdni_tuning_parse(out, "t.json", copy, len);
    free(copy);
    return status;
}

Test(tuning_json, what_is_written_is_read_again_and_written_the_same)
{
    char *text = sample_text();
    struct gdni_tuning_table table;
    cr_assert_eq(parse(text, strlen(text), &table), GDN_OK, "%s", gdni_error_text());
    cr_expect_eq(table.count, 3u);
    cr_expect_str_eq(table.gpu_name, "NVIDIA H200");
    cr_expect_str_eq(table.arch->name, "sm_90a");
    cr_expect_eq(table.num_sms, 132);
    cr_expect_str_eq(table.source, "t.json");
    const struct gdni_tuning_entry wanted = tuning_prefill(2, 0), *got = &table.entries[2];
    cr_expect_eq(gdni_tuning_key_compare(&got->key, &wanted.key), 0);
    cr_expect_eq(memcmp(&got->params, &wanted.params, sizeof wanted.params), 0);
    cr_expect(got->median_ns == 100000 && got->mad_ns == 300 && got->heuristic_ns == 110000 && got->samples == 50);
    cr_expect(got->sm_mhz == 1980 && got->mem_mhz == 3201);
    cr_expect_str_eq(got->driver, "580.95.05");
    cr_expect_str_eq(got->nvrtc, "13.0");
    cr_expect_str_eq(got->date, "2026-11-22");
    cr_expect_str_eq(got->code, wanted.code);
    char *again = tuning_text(&table);
    cr_expect_str_eq(again, text);
    free(again);
    gdni_tuning_table_free(&table);
    free(text);
}

Test(tuning_json, one_entry_a_line_in_the_order_of_the_keys_whatever_the_order_of_the_file)
{
    char *text = sample_text();
    int lines = 0;
    for (const char *p = text; *p; ++p) lines += *p == '\n';
    cr_expect_eq(lines, 1 + 3 + 1 + 2 + 3 + 1, "head, a run each, its end, two problems, three entries, the end: %s", text);
    const char *conv = strstr(text, "conv1d_qkv"), *any = strstr(text, "{\"tokens\": 2048, \"seqs\": 0"),
               *one = strstr(text, "{\"tokens\": 2048, \"seqs\": 1");
    cr_assert(conv && any && one && conv < any && any < one, "%s", text);

    /* The last two entries change places. */
    char any_line[512], one_line[512];
    snprintf(any_line, sizeof any_line, "%.*s", (int)strcspn(any, "\n") - 1, any);
    snprintf(one_line, sizeof one_line, "%.*s", (int)(strstr(one, "]}") - one), one);
    char *half = tuning_with(text, any_line, "@"), *rest = tuning_with(half, one_line, any_line);
    char *turned = tuning_with(rest, "@", one_line);
    struct gdni_tuning_table table;
    cr_assert(strcmp(turned, text) != 0);
    cr_assert_eq(parse(turned, strlen(turned), &table), GDN_OK, "%s\n%s", gdni_error_text(), turned);
    char *again = tuning_text(&table);
    cr_expect_str_eq(again, text);
    gdni_tuning_table_free(&table);
    free(again);
    free(turned);
    free(rest);
    free(half);
    free(text);
}

Test(tuning_json, entries_of_one_run_share_it)
{
    struct gdni_tuning_entry entries[] = { tuning_conv(1), tuning_conv(2), tuning_conv(3), tuning_conv(4) };
    strcpy(entries[1].date, "2026-11-23");
    strcpy(entries[3].date, "2026-11-23");
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, entries, 4), again;
    char *text = tuning_text(&table);
    cr_expect(strstr(text, "\"id\": 1") && strstr(text, "\"id\": 2") && !strstr(text, "\"id\": 3"), "%s", text);
    cr_assert_eq(parse(text, strlen(text), &again), GDN_OK, "%s", gdni_error_text());
    for (int i = 0; i < 4; ++i) cr_expect_str_eq(again.entries[i].date, entries[i].date, "entry %d", i);
    gdni_tuning_table_free(&again);
    gdni_tuning_table_free(&table);
    free(text);
}

Test(tuning_json, a_table_without_entries_is_a_table)
{
    struct gdni_tuning_table empty = tuning_table("NVIDIA H200", 132), table;
    char *text = tuning_text(&empty);
    cr_assert_eq(parse(text, strlen(text), &table), GDN_OK, "%s", gdni_error_text());
    cr_expect_eq(table.count, 0u);
    gdni_tuning_table_free(&table);
    gdni_tuning_table_free(&empty);
    free(text);
}

/* ---- What is refused ---- */

static const struct {
    const char *from, *to; /* in the sample */
    gdn_status status;
    const char *words;
} spoiled[] = {
    /* as JSON */
    { "]}\n", "]", GDN_E_INVALID, "not valid JSON" },
    { "]}\n", "]} x", GDN_E_INVALID, "not valid JSON" },
    { "\"schema\": 1", "\"schema\": 1, \"schema\": 1", GDN_E_INVALID, "given twice" },
    { "\"num_sms\": 132", "\"num_sms\": 132, \"comment\": 1", GDN_E_INVALID, "\"comment\" is no member" },
    { "\"num_sms\": 132, ", "", GDN_E_INVALID, "\"num_sms\" is missing" },
    { "\"num_sms\": 132", "\"num_sms\": \"132\"", GDN_E_INVALID, "must be an integer" },
    { "\"num_sms\": 132", "\"num_sms\": 1e999", GDN_E_INVALID, "num_sms" },
    { "\"problems\": [", "\"problems\": {\"a\": [", GDN_E_INVALID, "line" },
    /* of another version */
    { "\"schema\": 1", "\"schema\": 2", GDN_E_VERSION, "this library reads 1" },
    { "\"schema\": 1", "\"schema\": 2, \"unheard\": []", GDN_E_VERSION, "\"schema\" is 2" },
    { "\"space\": \"", "\"space\": \"0", GDN_E_VERSION, "tune again" },
    /* of no GPU that there is */
    { "sm_90a", "sm_20", GDN_E_UNSUPPORTED, "sm_20" },
    { "NVIDIA H200", "", GDN_E_INVALID, "\"gpu\" has 0 characters" },
    { "NVIDIA H200", "NVIDIA H200 NVIDIA H200 NVIDIA H200 NVIDIA H200 NVIDIA H200 NVIDIA H200", GDN_E_INVALID, "from 1 to 63" },
    { "NVIDIA H200", "NVIDIA \\u001b[31mH200", GDN_E_INVALID, "printable" },
    { "\"num_sms\": 132", "\"num_sms\": 0", GDN_E_INVALID, "num_sms" },
    /* entries: keys that nothing would ask for */
    { "\"kernel\": \"conv1d_qkv\"", "\"kernel\": \"conv2d\"", GDN_E_INVALID, "problem 1: \"kernel\" is \"conv2d\": must be" },
    { "\"kernel\": \"conv1d_qkv\"", "\"kernel\": \"gdn_prefill_split\"", GDN_E_INVALID, "must be" },
    { "\"width\": 4", "\"width\": 0", GDN_E_INVALID, "problem 1, slot 1: \"width\" is 0: must be 2, 3 or 4" },
    { "\"width\": 0", "\"width\": 4", GDN_E_INVALID, "must be 0 for a prefill" },
    { "\"tokens\": 2048", "\"tokens\": 4095", GDN_E_INVALID, "\"tokens\" is 4095: must be the edge" },
    { "\"tokens\": 1048576", "\"tokens\": 9007199254740993", GDN_E_INVALID, "tokens" },
    { "\"tokens\": 1048576, \"seqs\": 0", "\"tokens\": 1048576, \"seqs\": 1", GDN_E_INVALID, "no kernel for few" },
    { "\"seqs\": 1,", "\"seqs\": 3,", GDN_E_INVALID, "\"seqs\" is 3: must be 0, or 1, 2, 4" },
    { "\"seqs\": 1,", "\"seqs\": 0,", GDN_E_INVALID, "cta_kinds is 2" },
    { "\"l2norm\": false", "\"l2norm\": 0", GDN_E_INVALID, "true or false" },
    { "\"head_dim_qk\": 128", "\"head_dim_qk\": 128.5", GDN_E_INVALID, "must be an integer" },
    { "\"io_type\": \"bf16\"", "\"io_type\": \"fp8\"", GDN_E_INVALID, "must be bf16, fp16 or fp32" },
    /* parameters */
    { "\"tile_tokens\": 8", "\"tile_tokens\": 7", GDN_E_INVALID, "tile_tokens is 7: must be one of 4, 8, 12, 16" },
    { "\"tile_tokens\": 8", "\"stages\": 3", GDN_E_INVALID, "no such parameter" },
    { "\"tile_tokens\": 8, ", "", GDN_E_INVALID, "tile_tokens is 0" },
    { "\"ctas_per_producer\": 4", "\"ctas_per_producer\": 3", GDN_E_INVALID, "ctas_per_producer is 3" },
    { "\"tile_tokens\": 8", "\"tile_tokens\": -8", GDN_E_INVALID, "tile_tokens" },
    /* measurements and where they came from */
    { "\"median_ns\": 100000", "\"median_ns\": 0", GDN_E_INVALID, "median_ns" },
    { "\"mad_ns\": 300", "\"mad_ns\": 0.3", GDN_E_INVALID, "must be an integer" },
    { "\"samples\": 50", "\"samples\": 4294967297", GDN_E_INVALID, "samples" },
    { "580.95.05", "580.95.05 580.95.05 580.95.05 580.95.05", GDN_E_INVALID, "\"driver\" has" },
    { "2026-11-22", "22.11.2026", GDN_E_INVALID, "\"date\" is \"22.11.2026\": must look like 0000-00-00" },
    { "\"code\": \"", "\"code\": \"X", GDN_E_INVALID, "\"code\"" },
    { "\"id\": 2", "\"id\": 1", GDN_E_INVALID, "run 2: \"id\" is 1, as another run's" },
    { "\"id\": 2", "\"id\": 0", GDN_E_INVALID, "\"id\" is 0" },
    { "\"run\": 2", "\"run\": 9", GDN_E_INVALID, "problem 2, slot 1: \"run\" is 9: \"runs\" has none" },
};

Test(tuning_json, a_file_with_one_thing_wrong_is_refused_with_a_sentence_that_names_it)
{
    char *text = sample_text();
    for (size_t i = 0; i < sizeof spoiled / sizeof spoiled[0]; ++i) {
        struct gdni_tuning_table table;
        char *bad = tuning_with(text, spoiled[i].from, spoiled[i].to);
        const gdn_status status = parse(bad, strlen(bad), &table);
        cr_expect_eq(status, spoiled[i].status, "%s -> %s: %s, %s", spoiled[i].from, spoiled[i].to, gdn_status_name(status),
                     gdni_error_text());
        cr_expect(strstr(gdni_error_text(), "t.json") && strstr(gdni_error_text(), spoiled[i].words),
                  "%s -> %s: '%s' is not in '%s'", spoiled[i].from, spoiled[i].to, spoiled[i].words, gdni_error_text());
        cr_expect(!table.entries && !table.source && table.count == 0, "nothing is left of it");
        free(bad);
    }
    free(text);
}

Test(tuning_json, what_is_written_of_a_conv_without_v_heads_is_read_back)
{
    struct gdni_tuning_entry e = tuning_conv(3);
    struct gdni_tuning_table table = tuning_table("NVIDIA H200", 132), again;
    e.key.num_v_heads = e.key.head_dim_v = 0;
    tuning_add(&table, &e);
    char *text = tuning_text(&table);
    cr_assert_eq(parse(text, strlen(text), &again), GDN_OK, "%s", gdni_error_text());
    cr_expect_eq(gdni_tuning_key_compare(&again.entries[0].key, &e.key), 0);
    gdni_tuning_table_free(&table), gdni_tuning_table_free(&again);
    free(text);
}

Test(tuning_json, two_entries_of_one_key_are_refused)
{
    const struct gdni_tuning_entry e = tuning_conv(3);
    struct gdni_tuning_table twice = tuning_table("NVIDIA H200", 132), table;
    tuning_add(&twice, &e);
    tuning_add(&twice, &e);
    char *text = tuning_text(&twice);
    cr_expect_eq(parse(text, strlen(text), &table), GDN_E_INVALID);
    cr_expect_str_eq(gdni_error_text(),
                     "t.json: two entries have one key (conv1d_qkv, 4096 tokens, 0 seqs): keep one");
    gdni_tuning_table_free(&twice);
    free(text);
}

Test(tuning_json, a_hopper_entry_for_an_arch_without_wgmma_is_refused)
{
    struct gdni_tuning_entry e = tuning_prefill(3, GDNI_ANY_SEQS);
    struct gdni_tuning_table hopper = tuning_table("NVIDIA H200", 132), table;
    e.key.kernel = GDNI_KERNEL_PREFILL_HOPPER;
    gdni_params_initial(&e.params, GDNI_KERNEL_PREFILL_HOPPER);
    tuning_add(&hopper, &e);
    char *text = tuning_text(&hopper);
    cr_expect_eq(parse(text, strlen(text), &table), GDN_OK, "%s", gdni_error_text());
    gdni_tuning_table_free(&table);
    char *bad = tuning_with(text, "sm_90a", "sm_80");
    cr_expect_eq(parse(bad, strlen(bad), &table), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "sm_80 cannot run it"), "%s", gdni_error_text());
    gdni_tuning_table_free(&hopper);
    free(bad);
    free(text);
}

Test(tuning_json, what_is_too_large_is_refused_before_it_is_parsed)
{
    const size_t size = GDNI_TUNING_MAX_BYTES + 1;
    char *spaces = malloc(size);
    memset(spaces, ' ', size);
    struct gdni_tuning_table table;
    cr_expect_eq(gdni_tuning_parse(&table, "t.json", spaces, size), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "4194305") && strstr(gdni_error_text(), "4194304"), "%s", gdni_error_text());
    free(spaces);

    /* One too many entries, and runs: each named before any of them is read. */
    char *text = sample_text(), *many = malloc(3 * (size_t)GDNI_TUNING_MAX_ENTRIES + 4096);
    static const struct {
        const char *before, *words;
        int count;
    } lists[] = { { "\"slots\": [", "more than 8192 entries", GDNI_TUNING_MAX_ENTRIES + 1 },
                  { "\"runs\": [", "1025 runs: at most 1024", GDNI_TUNING_MAX_RUNS + 1 } };
    for (int k = 0; k < 2; ++k) {
        const char *from = strstr(text, lists[k].before) + strlen(lists[k].before);
        char *at = many + sprintf(many, "%.*s", (int)(from - text), text);
        for (int i = 0; i < lists[k].count; ++i) at += sprintf(at, "%s0", i ? "," : "");
        strcpy(at, k ? "], \"problems\": []}" : "]}]}");
        cr_expect_eq(parse(many, strlen(many), &table), GDN_E_INVALID);
        cr_expect(strstr(gdni_error_text(), lists[k].words), "%s", gdni_error_text());
    }
    free(many);
    free(text);
}

Test(tuning_json, out_of_memory_anywhere_is_reported_and_leaves_nothing)
{
    char *text = sample_text();
    gdn_status status = GDN_E_NOMEM;
    int allowed = 0;
    for (; status != GDN_OK; ++allowed) {
        struct gdni_tuning_table table;
        cr_assert_lt(allowed, 1000);
        gdni_mem_fail_after(allowed);
        status = gdni_tuning_parse(&table, "t.json", text, strlen(text));
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "%s: %s", gdn_status_name(status), gdni_error_text());
        cr_expect(status == GDN_OK || !table.entries);
        gdni_tuning_table_free(&table);
    }
    cr_expect_gt(allowed, 2, "it allocates at least the copy, the entries and its name");
    free(text);
}
