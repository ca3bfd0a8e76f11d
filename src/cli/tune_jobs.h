/*
 * tune_jobs.h - what is to be tuned: shapes times sizes of calls, each tuning key once.
 */
#ifndef GDN_CLI_TUNE_JOBS_H
#define GDN_CLI_TUNE_JOBS_H

#include "cli/resolve.h"

enum { CLI_TUNE_PARAMS = 256 };

/* A candidate as the library spelled it. */
struct cli_candidate {
    char params[CLI_TUNE_PARAMS];
    bool failed; /* it is left out, whatever the reason */
    bool checked;
    bool tried; /* in the request that is served */
};

/* STOPPED: not all of its candidates were compiled, since the budget was over. */
enum cli_tune_state {
    CLI_TUNE_NEW,
    CLI_TUNE_COMPILED,
    CLI_TUNE_STOPPED,
    CLI_TUNE_FAILED,
    CLI_TUNE_KNOWN,
    CLI_TUNE_DONE
};

/* What the tuning file has of a job, whatever else a context knows. */
enum cli_held { CLI_HELD_NOT, CLI_HELD_STALE, CLI_HELD };

struct cli_tune_job {
    const struct cli_shape *shape;
    int64_t tokens, seqs;
    char problem[160]; /* what is tuned, in words, but for the size of calls */
    char name[192]; /* of the tuning key, in words: equal keys are equal names */
    char code[160]; /* of what a check depends on: neither sizes nor how many heads there are */
    enum cli_tune_state state;
    enum cli_held held;
    char *message; /* FAILED: why */
    struct cli_candidate *candidates;
    size_t count;
    gdn_tune_result result; /* DONE, KNOWN */
};

struct cli_tune_jobs {
    struct cli_shapes shapes;
    struct cli_tune_job *items;
    size_t count;
};

/* Shapes that differ in what no tuning key has are tuned once, by the first of them. */
int cli_tune_jobs_find(const struct cli_options *options, struct cli_tune_jobs *out);
void cli_tune_jobs_free(struct cli_tune_jobs *jobs);

/* Runs the library on a job. options: all but the size, the device and the plan's flags. */
gdn_status cli_tune_run(gdn_ctx *ctx, const struct cli_tune_job *job, const struct cli_options *o,
                        const gdn_tune_options *options, gdn_tune_result *out);

/* The entry's key is the job's. */
bool cli_tune_matches(const struct cli_tune_job *job, const gdn_target *target, const gdn_tuning_entry *entry);

/* Of an entry of the tuning file: which jobs are held there. */
void cli_tune_note_held(struct cli_tune_jobs *jobs, const gdn_target *target, const gdn_tuning_entry *entry);

/* NULL when there is none. */
struct cli_candidate *cli_tune_candidate(struct cli_tune_job *job, const char *params);

/* "2048 x 4" */
const char *cli_tune_size(char out[CLI_SHORT], const struct cli_tune_job *job);

#endif
