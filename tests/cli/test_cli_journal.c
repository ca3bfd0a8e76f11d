/*
 * test_cli_journal.c - a tuner's journal: what goes on after an end and a kill, what of another GPU is forgotten, who is out.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/tune_journal.h"

static char room[] = "/tmp/gdn-journal-XXXXXX", file[64];

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(room));
    snprintf(file, sizeof file, "%s/t.json", room);
}

static void tear_down(void)
{
    char path[80];
    snprintf(path, sizeof path, "%s.journal", file);
    unlink(path);
    rmdir(room);
}

TestSuite(cli_journal, .init = set_up, .fini = tear_down);

static struct cli_journal *open_for(const char *gpu)
{
    struct cli_journal *j = NULL;
    cr_assert_eq(cli_journal_open(&j, file, gpu), CLI_OK, "%s", cli_error());
    return j;
}

Test(cli_journal, goes_on_for_one_gpu_and_begins_anew_for_another)
{
    struct cli_journal *j = open_for("one");
    cli_journal_add(j, CLI_JOURNAL_OK, "code", "params", NULL);
    cli_journal_close(j, false);
    j = open_for("one");
    cr_expect(cli_journal_has(j, CLI_JOURNAL_OK, "code", "params"));
    cr_expect(!cli_journal_has(j, CLI_JOURNAL_OK, "code", "others"));
    cr_expect(!cli_journal_has(j, CLI_JOURNAL_FAILED, "code", "params"));
    cli_journal_close(j, false);
    j = open_for("two");
    cr_expect(!cli_journal_has(j, CLI_JOURNAL_OK, "code", "params"), "what was found of another GPU is believed");
    cli_journal_add(j, CLI_JOURNAL_OK, "code", "two's", NULL);
    cli_journal_close(j, false);
    j = open_for("two");
    cr_expect(cli_journal_has(j, CLI_JOURNAL_OK, "code", "two's"), "a journal that began as another GPU's never goes on");
    cli_journal_close(j, true);
    j = open_for("two");
    cr_expect(!cli_journal_has(j, CLI_JOURNAL_OK, "code", "two's"), "what is finished is not gone");
    cli_journal_close(j, true);
}

/* A process that is killed leaves no END: its descriptor alone is closed, by way of a child. */
static void killed_while_trying(const char *params, bool got_further)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct cli_journal *j = NULL;
        if (cli_journal_open(&j, file, "one") != CLI_OK) _exit(1);
        cli_journal_add(j, CLI_JOURNAL_TRY, "code", params, NULL);
        if (got_further) cli_journal_add(j, CLI_JOURNAL_OK, "code", params, NULL);
        _exit(0);
    }
    int status = -1;
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
}

Test(cli_journal, suspects_what_runs_ended_with_and_nothing_that_got_further)
{
    killed_while_trying("bad", false);
    killed_while_trying("good", true);
    killed_while_trying("bad", false);
    struct cli_journal *j = open_for("one");
    cr_expect_eq(cli_journal_suspicions(j, "code", "bad"), 2);
    cr_expect_eq(cli_journal_suspicions(j, "code", "good"), 0);
    cr_expect_eq(cli_journal_suspicions(j, "other code", "bad"), 0);
    cli_journal_add(j, CLI_JOURNAL_TRY, "code", "ended", NULL);
    cli_journal_close(j, false);
    j = open_for("one");
    cr_expect_eq(cli_journal_suspicions(j, "code", "ended"), 0, "that run ended by itself");
    cli_journal_close(j, true);
}

/* Of its first line a run that was killed, or found the disk full, has left a part. */
Test(cli_journal, what_is_none_is_refused_and_the_beginning_of_one_is_not)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = { { "", CLI_OK }, { "{\"wh", CLI_OK }, { "{\"what\":\"run\",\"of\":\"on", CLI_OK },
                 { "\n", CLI_USAGE }, { "{\"what\":\"ok\"}\n", CLI_USAGE }, { "{}", CLI_USAGE } };
    char path[80];
    snprintf(path, sizeof path, "%s.journal", file);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct cli_journal *j = NULL;
        FILE *out = fopen(path, "w");
        cr_assert(out && fputs(rows[i].text, out) >= 0 && fclose(out) == 0);
        cr_expect_eq(cli_journal_open(&j, file, "one"), rows[i].code, "%s: %s", rows[i].text, cli_error());
        cr_expect_eq(j != NULL, rows[i].code == CLI_OK);
        cli_journal_close(j, false);
    }
}

Test(cli_journal, is_one_tuners_at_a_time)
{
    struct cli_journal *first = open_for("one"), *second = NULL;
    cr_expect_eq(cli_journal_open(&second, file, "one"), CLI_FAILED);
    cr_expect_null(second);
    cli_journal_close(first, false);
    second = open_for("one");
    cli_journal_close(second, true);
}
