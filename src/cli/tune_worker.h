/*
 * tune_worker.h - candidates are tried in another process, which may fault, hang or be killed without harm to this one.
 *
 * The process is this program again with the same command line and --worker. It reads one request a line on standard input
 * and answers on standard output, both JSON:
 *   {"job": 3, "step": "check", "only": "{...}"}              {"job": 3, "step": "measure", "skip": ["{...}"], "left_ms": 9000}
 *   {"try": "{...}", "runs": true, "done": 4, "of": 9, "best": "{...}", "best_ns": 41200}    before each load, run and time
 *   {"failed": "{...}", "status": "GDN_E_WRONG_RESULT", "message": "..."}         a candidate that is out
 *   {"status": "GDN_OK", "message": "", "decided": 1, "params": ...}              the answer; after it the next request
 * Job numbers are the same on both sides, since both find the jobs from one command line.
 */
#ifndef GDN_CLI_TUNE_WORKER_H
#define GDN_CLI_TUNE_WORKER_H

#include "cli/tune_jobs.h"

/* ---- The other process (tune_worker.c) ---- */

/* Serves requests until standard input ends. */
int cli_tune_work(gdn_ctx *ctx, struct cli_tune_jobs *jobs, const struct cli_options *options);

/* ---- This one (tune_child.c) ---- */

struct cli_child; /* a worker, or none yet */

/* argv: of the command, as cli_cmd_tune() got it. silence_s: so long without a line, and the worker is killed. */
struct cli_child *cli_child_new(int argc, char **argv, int64_t silence_s);
/* Ends the worker, kindly if it answers. */
void cli_child_free(struct cli_child *child);

/* One line from the worker. Anything but CLI_OK stops waiting, and the worker. */
typedef int (*cli_child_fn)(void *user, const cJSON *line);

enum cli_child_end {
    CLI_CHILD_ANSWERED,
    CLI_CHILD_DIED,   /* it faulted, was killed, or left: a new one is started by the next request */
    CLI_CHILD_SILENT, /* it was killed, because it said nothing any more */
    CLI_CHILD_STOPPED /* by fn */
};
/* Sends a request and waits for its answer, which is the last line that fn gets. CLI_FAILED: no worker can be started. */
int cli_child_ask(struct cli_child *child, cJSON *request, cli_child_fn fn, void *user, enum cli_child_end *end);

/* A fresh process for the next request. */
void cli_child_restart(struct cli_child *child);
/* Requests that the current process has answered. */
int cli_child_answers(const struct cli_child *child);

#endif
