/*
 * test_strbuf.c - text grows without losing a byte, numbers and strings are those of JSON, and running out of memory sticks.
 */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"

static void expect_text(struct gdni_strbuf *sb, const char *expected)
{
    char *text = gdni_sb_take(sb);
    cr_assert_not_null(text);
    cr_expect_str_eq(text, expected);
    gdni_free(text);
}

Test(strbuf, integers_are_printed_as_printf_prints_them)
{
    static const int64_t values[] = { 0, 1, -1, 9, 10, -10, 99, 100, 12345678901, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; ++i) {
        struct gdni_strbuf sb = { 0 };
        char expected[32];
        snprintf(expected, sizeof expected, "%" PRId64, values[i]);
        gdni_sb_int(&sb, values[i]);
        expect_text(&sb, expected);
    }
}

/* A format that ends before, at and behind the end of the buffer that is there. */
Test(strbuf, a_format_of_any_length_at_any_fill_is_whole)
{
    enum { AROUND = 1024, FROM = 1000, TO = 1040 };
    char *expected = malloc(2 * AROUND + 64), *word = malloc(AROUND + 64);
    for (size_t filled = FROM; filled < TO; ++filled)
        for (size_t len = 0; len < 64; ++len) {
            struct gdni_strbuf sb = { 0 };
            memset(expected, 'a', filled);
            memset(word, 'b', len);
            word[len] = '\0';
            snprintf(expected + filled, AROUND, "%s.%d", word, 42);
            gdni_sb_bytes(&sb, expected, filled);
            gdni_sb_fmt(&sb, "%s.%d", word, 42);
            cr_assert_eq(sb.len, filled + len + 3, "%zu bytes, then %zu", filled, len);
            cr_assert_str_eq(sb.text, expected, "%zu bytes, then %zu", filled, len);
            gdni_sb_free(&sb);
        }
    free(expected);
    free(word);
}

Test(strbuf, an_empty_format_and_an_empty_buffer_are_empty_text)
{
    struct gdni_strbuf sb = { 0 };
    gdni_sb_fmt(&sb, "%s", "");
    cr_assert_eq(sb.len, 0);
    expect_text(&sb, "");
    expect_text(&sb, "");
}

Test(strbuf, json_strings_escape_each_character_that_has_to_be)
{
    struct gdni_strbuf sb = { 0 };
    gdni_sb_json_str(&sb, "");
    gdni_sb_json_str(&sb, "plain, \xc3\xa9");
    gdni_sb_json_str(&sb, "\"\\");
    gdni_sb_json_str(&sb, "a\n\tb\x7f");
    expect_text(&sb, "\"\"\"plain, \xc3\xa9\"\"\\\"\\\\\"\"a\\u000a\\u0009b\\u007f\"");
    for (int c = 1; c < 256; ++c) {
        const char one[] = { (char)c, '\0' };
        char escaped[16];
        if (c == '"' || c == '\\')
            snprintf(escaped, sizeof escaped, "\"\\%c\"", c);
        else
            snprintf(escaped, sizeof escaped, c < 0x20 || c == 0x7f ? "\"\\u%04x\"" : "\"%c\"", c);
        gdni_sb_json_str(&sb, one);
        expect_text(&sb, escaped);
    }
}

Test(strbuf, members_of_an_object_are_json)
{
    struct gdni_strbuf sb = { 0 };
    gdni_json *root = NULL;
    gdni_sb_str(&sb, "{\"a\": 1");
    gdni_sb_json_int(&sb, "b", -7);
    gdni_sb_json_text(&sb, "c", "x\"y");
    gdni_sb_str(&sb, "}");
    cr_expect_eq(gdni_json_parse("text", sb.text, sb.len, &root), GDN_OK, "%s", gdn_last_error());
    gdni_json_free(root);
    expect_text(&sb, "{\"a\": 1, \"b\": -7, \"c\": \"x\\\"y\"}");
}

Test(strbuf, running_out_of_memory_sticks)
{
    for (int allowed = 0; allowed < 2; ++allowed) {
        struct gdni_strbuf sb = { 0 };
        char big[3000];
        memset(big, 'x', sizeof big - 1);
        big[sizeof big - 1] = '\0';
        gdni_mem_fail_after(allowed);
        gdni_sb_fmt(&sb, "%d", 1);
        gdni_sb_fmt(&sb, "%s", big); /* the second allocation */
        gdni_mem_fail_after(-1);
        cr_assert(sb.failed, "with %d allocations", allowed);
        gdni_sb_fmt(&sb, "%d", 2);
        gdni_sb_int(&sb, 2);
        gdni_sb_json_str(&sb, "2");
        cr_assert_eq(sb.len, allowed ? 1u : 0u);
        cr_assert_null(gdni_sb_take(&sb));
    }
}
