/*
 * jobs.h - what is to be planned: a shape for a target each. From models and shape lists crossed with targets, or from a
 * recorded list, whose lines say both.
 */
#ifndef GDN_CLI_JOBS_H
#define GDN_CLI_JOBS_H

#include "cli/record.h"
#include "cli/targets.h"

struct cli_job {
    const struct cli_shape *shape;
    const gdn_target *target;
    const struct cli_names *keys; /* that the plan had when it was recorded; NULL: not recorded */
};

struct cli_jobs {
    struct cli_job *items;
    size_t count;
    struct cli_shapes shapes; /* what items point to */
    struct cli_targets targets;
    struct cli_records records;
};

/*
 * First half, before there is a context: reads everything that the options name, so that a bad file is told before the
 * cache is touched. Second half: the targets, and the jobs.
 */
int cli_jobs_read(struct cli_jobs *jobs, const struct cli_options *options);
int cli_jobs_aim(struct cli_jobs *jobs, gdn_ctx *ctx, const struct cli_options *options);
void cli_jobs_free(struct cli_jobs *jobs);

#endif
