/*
 * test_error.c - sentences: what they quote cannot steer a terminal, and an argument may be the last sentence itself.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "runtime/log.h"

#define ESCAPES "a\033[2Jb\rc\bd\x7f" "e\tf\ng \xc3\xa4 \xc2\x9bm\xc2\xa0\xc2\x80"
#define SHOWN   "a?[2Jb?c?d?e?f?g \xc3\xa4 ??m\xc2\xa0??"
#define LINES   "a?[2Jb?c?d?e\tf\ng \xc3\xa4 ??m\xc2\xa0??" /* of a compiler's log */

Test(error, what_a_sentence_quotes_has_no_control_characters)
{
    cr_expect_eq(gdni_fail(GDN_E_IO, "file \"%s\"", ESCAPES), GDN_E_IO);
    cr_expect_str_eq(gdn_last_error(), "file \"" SHOWN "\"");
    cr_expect_eq(gdni_fail_in(GDN_E_INVALID, "%s", ESCAPES), GDN_E_INVALID);
    cr_expect_str_eq(gdn_last_error(), SHOWN ": file \"" SHOWN "\"");
    cr_expect_eq(gdni_fail(GDN_E_COMPILE, "tiny: %s", ESCAPES), GDN_E_COMPILE);
    cr_expect_eq(gdni_fail_in(GDN_E_COMPILE, "key"), GDN_E_COMPILE);
    cr_expect_str_eq(gdn_last_error(), "key: tiny: " LINES);
}

static void keep(void *user, int level, const char *message)
{
    cr_expect_eq(level, GDN_LOG_WARN);
    snprintf(user, 64, "%s", message);
}

Test(error, what_is_logged_has_none_either)
{
    char message[64] = "";
    const struct gdni_log log = { keep, message, GDN_LOG_WARN };
    gdni_log(&log, GDN_LOG_WARN, "%s", ESCAPES);
    cr_expect_str_eq(message, SHOWN);
}

Test(error, the_last_sentence_may_be_part_of_the_next)
{
    gdni_fail(GDN_E_IO, "no disk");
    gdni_fail(GDN_E_INVALID, "first %s, then %s", gdn_last_error(), gdn_last_error());
    cr_expect_str_eq(gdn_last_error(), "first no disk, then no disk");
}

Test(error, a_sentence_too_long_is_cut)
{
    char text[9000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    gdni_fail(GDN_E_IO, "%s", text);
    cr_expect_eq(strlen(gdn_last_error()), 4095u);
    gdni_fail_in(GDN_E_IO, "%s", "where");
    cr_expect_eq(strlen(gdn_last_error()), 4095u);
    cr_expect_eq(strncmp(gdn_last_error(), "where: xxx", 10), 0);
}
