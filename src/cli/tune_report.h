/*
 * tune_report.h - what is tuned, as a table or JSON; and what a tuning file lacks.
 */
#ifndef GDN_CLI_TUNE_REPORT_H
#define GDN_CLI_TUNE_REPORT_H

#include "cli/tune_jobs.h"

void cli_tune_print(const struct cli_tune_jobs *jobs, const gdn_target *target, const struct cli_options *options);

/* ctx has an entry of the job's key: its times go into job->result. */
bool cli_tune_known(gdn_ctx *ctx, const gdn_target *target, struct cli_tune_job *job);

/* Prints which jobs the file does not hold, or of another kernel; CLI_FAILED when there is any. */
int cli_tune_check(const gdn_target *target, const struct cli_tune_jobs *jobs, const struct cli_options *options);

#endif
