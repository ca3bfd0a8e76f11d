/*
 * test_cli_record.c - recorded lists: what a line becomes, what is left out, what is refused.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/record.h"

#define KEY "0123456789abcdef0123456789abcdef"
#define SHAPE                                                                                                          \
    "{\"op\": \"gdn_prefill\", \"num_q_heads\": 4, \"num_k_heads\": 4, \"num_v_heads\": 8, \"head_dim_qk\": 128, "     \
    "\"head_dim_v\": 128, \"max_tokens\": 777}"
#define LINE_OF(schema, gpu, arch, sms, flags, shape, keys)                                                            \
    "{\"schema\": " schema ", \"library\": \"0.1.0\", \"gpu\": " gpu ", \"arch\": " arch ", \"num_sms\": " sms         \
    ", \"plan_flags\": " flags ", \"shape\": " shape ", \"keys\": " keys "}\n"
#define GOOD LINE_OF("1", "\"NVIDIA H200\"", "\"sm_90a\"", "132", "2", SHAPE, "[\"" KEY "\"]")

static int parse(struct cli_records *list, const char *text)
{
    return cli_records_parse(list, "r.jsonl", text, strlen(text));
}

static gdn_ctx *context(void)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    config.flags = GDN_CTX_NO_ENV;
    config.cache_dir = "";
    cr_assert_eq(gdn_ctx_create(&ctx, &config), GDN_OK);
    return ctx;
}

Test(cli_record, a_line_is_a_shape_a_target_and_keys)
{
    struct cli_records list = { 0 };
    gdn_ctx *ctx = context();
    cr_assert_eq(parse(&list, GOOD), CLI_OK, "%s", cli_error());
    cr_assert_eq(list.count, 1);
    struct cli_record *r = &list.items[0];
    cr_expect_eq(r->shape.op, CLI_PREFILL);
    cr_expect_eq(r->shape.plan_flags, GDN_PLAN_GENERIC);
    cr_expect_eq(r->shape.desc.prefill.num_v_heads, 8);
    cr_expect_eq(r->shape.desc.prefill.max_tokens, 777);
    cr_expect_str_eq(r->shape.label, "line 1");
    cr_assert_eq(r->keys.count, 1);
    cr_expect_str_eq(r->keys.items[0], KEY);
    cr_assert_eq(cli_record_target(r, "r.jsonl", ctx), CLI_OK, "%s", cli_error());
    cr_expect_str_eq(r->target.gpu_name, "NVIDIA H200");
    cr_expect_str_eq(r->target.arch, "sm_90a");
    cr_expect_eq(r->target.num_sms, 132);
    cr_expect_eq(r->target.dram_gbps, 4800, "what the library knows of the GPU");
    cli_records_free(&list);
    gdn_ctx_destroy(ctx);
}

/* SMs choose parameters, so those of the line count: a partition of a GPU, a GPU that is newer than this library. */
Test(cli_record, a_gpu_that_is_not_known_is_its_arch_with_its_sms)
{
    struct cli_records list = { 0 };
    gdn_ctx *ctx = context();
    const char *text = LINE_OF("1", "\"NVIDIA H999\"", "\"sm_90a\"", "77", "0", SHAPE, "[]")
        LINE_OF("1", "\"\"", "\"sm_80\"", "0", "1", SHAPE, "[]")
            LINE_OF("1", "\"NVIDIA H200\"", "\"sm_80\"", "60", "0", SHAPE, "[]");
    cr_assert_eq(parse(&list, text), CLI_OK, "%s", cli_error());
    cr_assert_eq(list.count, 3);
    static const struct {
        const char *gpu, *arch;
        int sms;
    } rows[] = { { "NVIDIA H999", "sm_90a", 77 }, { "", "sm_80", 0 }, { "NVIDIA H200", "sm_80", 60 } };
    for (int i = 0; i < 3; ++i) {
        struct cli_record *r = &list.items[i];
        cr_assert_eq(cli_record_target(r, "r.jsonl", ctx), CLI_OK, "%s", cli_error());
        cr_expect_str_eq(r->target.gpu_name, rows[i].gpu);
        cr_expect_str_eq(r->target.arch, rows[i].arch);
        cr_expect_eq(r->target.num_sms, rows[i].sms);
        cr_expect_eq(r->shape.plan_flags, 0, "that a process must not compile says nothing about what it needs");
    }
    cli_records_free(&list);
    gdn_ctx_destroy(ctx);
}

Test(cli_record, an_arch_that_is_not_known_is_refused_with_the_known_ones)
{
    struct cli_records list = { 0 };
    gdn_ctx *ctx = context();
    cr_assert_eq(parse(&list, LINE_OF("1", "\"\"", "\"sm_75\"", "0", "0", SHAPE, "[]")), CLI_OK, "%s", cli_error());
    cr_expect_eq(cli_record_target(&list.items[0], "r.jsonl", ctx), CLI_USAGE);
    cr_expect(strstr(cli_error(), "r.jsonl, line 1: \"arch\": ") && strstr(cli_error(), "sm_75"), "%s", cli_error());
    cli_records_free(&list);
    gdn_ctx_destroy(ctx);
}

Test(cli_record, every_line_counts_once)
{
    struct cli_records list = { 0 };
    cr_assert_eq(parse(&list, GOOD "\n" GOOD GOOD), CLI_OK, "%s", cli_error());
    cr_expect_eq(list.count, 1);
    cli_records_free(&list);
}

/* Cut at every byte: the other lines stay, whether the rest follows on a line of its own or not at all. */
Test(cli_record, what_was_cut_off_is_left_out_and_told)
{
    enum { LEN = sizeof GOOD - 1 };
    char text[3 * LEN + 8];
    for (size_t cut = 1; cut < LEN - 1; ++cut) {
        struct cli_records list = { 0 };
        snprintf(text, sizeof text, "%s%.*s", GOOD, (int)cut, GOOD);
        cr_assert_eq(parse(&list, text), CLI_OK, "cut at %zu: %s", cut, cli_error());
        cr_assert(list.count == 1 && list.torn == 1 && list.first_torn == 2, "cut at %zu", cut);
        cli_records_free(&list);
        snprintf(text, sizeof text, "%.*s\n%s", (int)cut, GOOD, GOOD);
        cr_assert_eq(parse(&list, text), CLI_OK, "cut at %zu: %s", cut, cli_error());
        cr_assert(list.count == 1 && list.torn == 1 && list.first_torn == 1, "cut at %zu", cut);
        cli_records_free(&list);
    }
}

/* Of several writers of one file one is killed at any byte of a line, and the next does not know: its plan is not lost. */
Test(cli_record, a_plan_that_stands_behind_one_that_was_cut_off_counts)
{
    static const char other[] = LINE_OF("1", "\"a {\\\"schema\\\": b\"", "\"sm_80\"", "60", "0", SHAPE, "[]");
    enum { LEN = sizeof GOOD - 1 };
    char text[2 * LEN + sizeof other + 8];
    for (size_t cut = 1; cut < LEN - 1; ++cut) {
        struct cli_records list = { 0 };
        snprintf(text, sizeof text, "%.*s%s%s", (int)cut, GOOD, other, GOOD);
        cr_assert_eq(parse(&list, text), CLI_OK, "cut at %zu: %s", cut, cli_error());
        cr_assert(list.count == 2 && list.torn == 1 && list.first_torn == 1, "cut at %zu: %zu plans, %zu torn", cut, list.count,
                  list.torn);
        cr_expect_str_eq(list.items[0].gpu, "a {\"schema\": b");
        cr_expect_str_eq(list.items[0].shape.label, "line 1");
        cr_expect_str_eq(list.items[1].shape.label, "line 2");
        cli_records_free(&list);
    }
}

Test(cli_record, a_line_without_its_newline_is_whole)
{
    struct cli_records list = { 0 };
    cr_assert_eq(cli_records_parse(&list, "r", GOOD, sizeof GOOD - 2), CLI_OK, "%s", cli_error());
    cr_expect(list.count == 1 && list.torn == 0);
    cli_records_free(&list);
}

Test(cli_record, a_line_that_says_something_else_is_refused_with_its_reason)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "", "holds no plan" },
        { "no record at all\n", "holds no plan" },
        { GOOD "[]\n", "r.jsonl, line 2: must be an object" },
        { "{}\n", "line 1: member \"schema\" is missing" },
        { LINE_OF("2", "\"\"", "\"sm_80\"", "0", "0", SHAPE, "[]"), "\"schema\" is 2: must be from 1 to 1" },
        { LINE_OF("1", "7", "\"sm_80\"", "0", "0", SHAPE, "[]"), "\"gpu\" is 7: must be a string" },
        { LINE_OF("1", "\"\"", "\"sm_80sm_80sm_80sm_80\"", "0", "0", SHAPE, "[]"), "\"arch\" has 20 characters" },
        { LINE_OF("1", "\"H200\\nfailed\"", "\"sm_90a\"", "0", "0", SHAPE, "[]"),
          "line 1: \"gpu\" has the control character U+000A" },
        { LINE_OF("1", "\"\\u001b[2J\"", "\"sm_90a\"", "0", "0", SHAPE, "[]"),
          "\"gpu\" has the control character U+001B" },
        { LINE_OF("1", "\"\"", "\"sm_80\\u009b\"", "0", "0", SHAPE, "[]"),
          "\"arch\" has the control character U+009B" },
        { LINE_OF("1", "\"Gr\xc3\xbcn\"", "\"sm_90a\"", "0", "0", SHAPE, "[]"),
          "line 1: \"gpu\" is \"Gr\xc3\xbcn\": must be printable ASCII" },
        { LINE_OF("1", "\"\"", "\"sm_80\\u00e9\"", "0", "0", SHAPE, "[]"), "must be printable ASCII" },
        { LINE_OF("1", "\"\"", "\"sm_80\"", "-1", "0", SHAPE, "[]"), "\"num_sms\" is -1" },
        { LINE_OF("1", "\"\"", "\"sm_80\"", "0", "4294967296", SHAPE, "[]"), "\"plan_flags\" is 4294967296" },
        { LINE_OF("1", "\"\"", "\"sm_80\"", "0", "0", "{\"op\": \"gdn\"}", "[]"), "line 1: \"op\" is \"gdn\"" },
        { LINE_OF("1", "\"\"", "\"sm_80\"", "0", "0", "[]", "[]"), "\"shape\" is an array: must be an object" },
        { LINE_OF("1", "\"\"", "\"sm_80\"", "0", "0", SHAPE, "[\"12\"]"), "\"keys\" must be strings of 32 hex digits" },
        { LINE_OF("1", "\"\"", "\"sm_80\"", "0", "0", SHAPE, "[], \"more\": 1"), "\"more\" is no member" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct cli_records list = { 0 };
        cr_expect_eq(parse(&list, rows[i].text), CLI_USAGE, "%s", rows[i].text);
        cr_expect(strstr(cli_error(), rows[i].words), "%s: \"%s\" lacks \"%s\"", rows[i].text, cli_error(),
                  rows[i].words);
        cli_records_free(&list);
    }
}

Test(cli_record, lists_and_lines_without_end_are_refused)
{
    enum { PLANS = 4097, ROOM = 512, LONG = (64 << 10) + 1 };
    char *text = calloc(PLANS, ROOM);
    size_t len = 0;
    struct cli_records list = { 0 };
    for (int i = 0; i < PLANS; ++i)
        len += (size_t)
            snprintf(text + len, ROOM,
                     "{\"schema\":1,\"library\":\"\",\"gpu\":\"\",\"arch\":\"sm_80\",\"num_sms\":%d,\"plan_flags\":0,"
                     "\"shape\":" SHAPE ",\"keys\":[]}\n",
                     i);
    cr_expect_eq(cli_records_parse(&list, "r", text, len), CLI_USAGE);
    cr_expect(strstr(cli_error(), "more than 4096 plans"), "%s", cli_error());
    cli_records_free(&list);
    len = 0;
    for (int i = 0; i < 1025; ++i)
        len += (size_t)snprintf(text + len, ROOM, "cut off %d\n", i);
    cr_expect_eq(cli_records_parse(&list, "r", text, len), CLI_USAGE);
    cr_expect(strstr(cli_error(), "more than 1024 lines are no JSON"), "%s", cli_error());
    cli_records_free(&list);
    memset(text, ' ', LONG);
    cr_expect_eq(cli_records_parse(&list, "r", text, LONG), CLI_USAGE);
    cr_expect(strstr(cli_error(), "line 1: has 65537 bytes"), "%s", cli_error());
    cli_records_free(&list);
    free(text);
}
