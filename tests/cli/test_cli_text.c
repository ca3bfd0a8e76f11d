/*
 * test_cli_text.c - what names may not hold, and that JSON is UTF-8 whatever it is made of.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"

Test(cli_text, an_age_is_of_any_date)
{
    static const struct {
        int64_t then;
        const char *words;
    } rows[] = {
        { 1000000, "now" },        { 1000000 - 60, "1 m" },
        { 1000000 - 7200, "2 h" }, { 1000000 - 3 * 86400, "3 d" },
        { 2000000, "now" },        { INT64_MAX, "now" },
        { 1000000 - INT64_MAX, "106751991167300 d" },
        { INT64_MIN, "106751991167300 d" },
    };
    char out[CLI_SHORT];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        cr_expect_str_eq(cli_format_age(out, 1000000, rows[i].then), rows[i].words, "row %zu", i);
}

Test(cli_text, every_control_character_is_refused_in_a_name)
{
    char name[8], words[64];
    for (unsigned c = 1; c < 0xa0; ++c) {
        if (c >= 0x20 && c < 0x7f) continue;
        snprintf(name, sizeof name, c < 0x80 ? "a%cb" : "a\xc2%cb", (char)c);
        snprintf(words, sizeof words, "f: \"gpu\" has the control character U+%04X", c);
        cr_expect_eq(cli_check_name("f", "gpu", name), CLI_USAGE, "U+%04X", c);
        cr_expect(strstr(cli_error(), words), "\"%s\" lacks \"%s\"", cli_error(), words);
    }
}

Test(cli_text, other_text_is_a_name)
{
    static const char *const names[] = { "", "NVIDIA H200", "~", "\xc2\xa0", "\xc3\x9f", "\xc2", "\xff\xfe" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        cr_expect_eq(cli_check_name("f", "gpu", names[i]), CLI_OK, "%zu: %s", i, cli_error());
}

#define BAD "\xef\xbf\xbd"

Test(cli_text, bytes_that_are_no_utf8_are_replaced_one_by_one)
{
    static const struct {
        const char *text, *valid;
    } rows[] = {
        { "", "" },
        { "/tmp/plain \n", "/tmp/plain \n" },
        { "\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbd \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf",
          "\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbd \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf" },
        { "odd \xff", "odd " BAD },
        { "\200a\277", BAD "a" BAD },
        { "\xc3", BAD }, /* cut off at the end */
        { "\xe2\x82", BAD BAD },
        { "\xf0\x9f\x98", BAD BAD BAD },
        { "\303a", BAD "a" }, /* and before another character */
        { "\xe2\x82\xc3\xa4", BAD BAD "\xc3\xa4" },
        { "\xc0\xaf", BAD BAD }, /* overlong */
        { "\xe0\x9f\xbf", BAD BAD BAD },
        { "\xf0\x8f\xbf\xbf", BAD BAD BAD BAD },
        { "\xed\xa0\x80", BAD BAD BAD },         /* a surrogate */
        { "\xf4\x90\x80\x80", BAD BAD BAD BAD }, /* beyond the last character */
        { "\xf5\x80\x80\x80", BAD BAD BAD BAD },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        char *valid = cli_utf8(rows[i].text);
        cr_expect_str_eq(valid, rows[i].valid, "row %zu", i);
        cli_free(valid);
    }
}
