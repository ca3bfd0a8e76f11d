/*
 * targets.h - the targets that a command works for: named ones, or the GPUs of this machine.
 */
#ifndef GDN_CLI_TARGETS_H
#define GDN_CLI_TARGETS_H

#include "cli/options.h"

struct cli_targets {
    gdn_target *items;
    size_t count;
};

/*
 * all_of_arch: an arch stands for itself and for every known GPU of it, whose kernels may have other parameters.
 * Without --arch and --gpu: the local GPUs.
 */
int cli_targets_find(gdn_ctx *ctx, const struct cli_options *options, bool all_of_arch, struct cli_targets *out);
/* Equal targets are one. */
void cli_targets_add(struct cli_targets *list, const gdn_target *target);
void cli_targets_free(struct cli_targets *targets);

/* "NVIDIA H200 (sm_90a)", or "sm_90a" */
const char *cli_target_text(char out[96], const gdn_target *target);

#endif
