/*
 * tune_journal.h - what a tuning has found out so far, one JSON line each, so that a run that was killed loses one candidate.
 *
 * Beside the tuning file, as FILE.journal; gone when everything is tuned. A line is appended by one write; one that is not
 * whole is passed over. A journal of another GPU or another version of the library is begun anew. It is locked while it is
 * open: one process at a time tunes a file.
 */
#ifndef GDN_CLI_TUNE_JOURNAL_H
#define GDN_CLI_TUNE_JOURNAL_H

#include "cli/cli.h"

enum cli_journal_what {
    CLI_JOURNAL_RUN,    /* a process has begun here; of: the GPU */
    CLI_JOURNAL_TRY,    /* a candidate is about to be tried */
    CLI_JOURNAL_RACE,   /* of: a job all of whose candidates ran once and are timed now */
    CLI_JOURNAL_OK,     /* its results are right; of: what a check depends on */
    CLI_JOURNAL_FAILED, /* it is out; of: the same, or a job */
    CLI_JOURNAL_DONE,   /* of: a job that is decided */
    CLI_JOURNAL_END     /* the process ended by itself */
};

struct cli_journal;

/* Locks it, reads what is there, and begins a run. CLI_FAILED: another process has it. */
int cli_journal_open(struct cli_journal **out, const char *tuning_file, const char *gpu);
/* finished: there is nothing to go on with, the file goes. */
void cli_journal_close(struct cli_journal *journal, bool finished);

/* params and message may be NULL. A journal that cannot be written is a warning, once: a kill then costs more. */
void cli_journal_add(struct cli_journal *journal, enum cli_journal_what what, const char *of, const char *params,
                     const char *message);
bool cli_journal_has(const struct cli_journal *journal, enum cli_journal_what what, const char *of, const char *params);
/* How many runs ended with this as the last thing they tried, and nothing after it. */
int cli_journal_suspicions(const struct cli_journal *journal, const char *of, const char *params);

#endif
