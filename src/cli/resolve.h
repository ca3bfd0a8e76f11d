/*
 * resolve.h - what the options of a command line stand for.
 */
#ifndef GDN_CLI_RESOLVE_H
#define GDN_CLI_RESOLVE_H

#include "cli/options.h"

/* All shapes that --model and --shapes name; CLI_USAGE when they name none and there is no --from either. */
int cli_resolve_shapes(const struct cli_options *options, struct cli_shapes *out);
bool cli_resolve_has_shapes(const struct cli_options *options);

/* A context as the options say; *out is NULL when that fails. */
int cli_resolve_context(const struct cli_options *options, gdn_ctx **out);
/* The same for a command that only reads: a cache directory that is not there is not made, whoever names it. */
int cli_resolve_context_to_read(const struct cli_options *options, gdn_ctx **out);
/* How many kernels a command with --jobs compiles at a time, 1 to GDNI_MAX_COMPILE_JOBS; its context has that number too. */
int32_t cli_resolve_jobs(const struct cli_options *options);
/* Fails when the context keeps cubins in memory only, with why; the library's warning of it is not printed before. */
int cli_require_cache(gdn_ctx *ctx, const struct cli_options *options);

#endif
