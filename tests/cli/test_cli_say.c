/*
 * test_cli_say.c - what the tool prints cannot steer a terminal, whatever files and names it quotes.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/say.h"

#define ESCAPES "a\033]0;b\ac\rd\x7f" "e\tf\ng \xc3\xa4 \xc2\x9bm\xc2\xa0\xc2\x80"
#define SHOWN   "a?]0;b?c?d?e\tf\ng \xc3\xa4 ??m\xc2\xa0??"
#define SAID    "a?]0;b?c?d?e\tf\n    g \xc3\xa4 ??m\xc2\xa0??"

Test(cli_say, a_failure_has_no_control_characters)
{
    cr_expect_eq(cli_fail(CLI_USAGE, "member \"%s\"", ESCAPES), CLI_USAGE);
    cr_expect_str_eq(cli_error(), "member \"" SHOWN "\"");
}

/* What `print` leaves in the stream. */
static const char *caught(FILE *stream, void (*print)(const char *text), const char *text)
{
    static char bytes[32768];
    FILE *file = tmpfile();
    fflush(stream);
    const int kept = dup(fileno(stream));
    cr_assert(file && kept >= 0 && dup2(fileno(file), fileno(stream)) >= 0);
    print(text);
    fflush(stream);
    dup2(kept, fileno(stream));
    close(kept);
    rewind(file);
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = '\0';
    fclose(file);
    return bytes;
}

static void say(const char *text)
{
    cli_say("%s", text);
}

static void print(const char *text)
{
    cli_print("options %d: %s\n", 1, text);
}

Test(cli_say, messages_and_sentences_have_none_either)
{
    cr_expect_str_eq(caught(stderr, say, ESCAPES), "gdn-jit-cache: " SAID "\n");
    cr_expect_str_eq(caught(stdout, print, ESCAPES), "options 1: " SHOWN "\n");
}

Test(cli_say, a_name_with_a_line_end_does_not_look_like_another_message)
{
    cr_expect_str_eq(caught(stderr, say, "x\ngdn-jit-cache: all is well\n\ny"),
                     "gdn-jit-cache: x\n    gdn-jit-cache: all is well\n    \n    y\n");
}

Test(cli_say, what_is_long_is_said_whole)
{
    static char text[20000];
    memset(text, 'x', sizeof text - 1);
    cr_expect_eq(strlen(caught(stderr, say, text)), strlen("gdn-jit-cache: \n") + sizeof text - 1);
    cr_expect_eq(strlen(caught(stdout, print, text)), strlen("options 1: \n") + sizeof text - 1);
}
