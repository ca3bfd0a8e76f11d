/*
 * build.h - plans every job in several threads, which leaves the kernels in the cache, and keeps account of it.
 */
#ifndef GDN_CLI_BUILD_H
#define GDN_CLI_BUILD_H

#include <pthread.h>
#include <stdatomic.h>

#include "cli/jobs.h"

struct cli_kernel {
    char key[40], name[64], arch[16], compiler[128];
    int64_t registers, spill_bytes, cubin_bytes, compile_ms;
    bool built; /* by this run */
};

/* Failures with one cause are one failure that happened `count` times. */
struct cli_failure {
    char *message, *first; /* first: shape and target of the first one */
    const char *status;
    int64_t count;
};

/* Zeroed before use. */
struct cli_build {
    gdn_ctx *ctx;
    const struct cli_jobs *jobs;
    int64_t milliseconds;
    atomic_size_t next;
    pthread_mutex_t lock;       /* of everything below, while it runs */
    struct cli_kernel *kernels; /* in the order in which they were met */
    size_t num_kernels, built;
    uint64_t cubin_bytes;
    struct cli_failure *failures;
    size_t num_failures, failed, done;
    size_t changed; /* plans with other keys than were recorded */
};

/* at_a_time: so many plans, of cli_resolve_jobs(). Never fails: b says what could not be planned. */
void cli_build_run(struct cli_build *b, gdn_ctx *ctx, const struct cli_jobs *jobs, int32_t at_a_time);
void cli_build_free(struct cli_build *b);

/* On standard error, a line each: failures, keys that have changed, a recorded list that is not whole. */
void cli_build_say_problems(const struct cli_build *b);

#endif
