/*
 * compiler.h - whether the NVRTC that was named is one: without any, the library takes every compiler's entries.
 */
#ifndef GDN_CLI_COMPILER_H
#define GDN_CLI_COMPILER_H

#include "cli/options.h"

/*
 * Fails when --nvrtc (CLI_USAGE), or GDN_JIT_NVRTC where something may be compiled (CLI_FAILED), names what cannot be used: the
 * kernels that are asked for are that compiler's, and others' would pass for them. None that is named is CLI_OK.
 */
int cli_require_compiler(gdn_ctx *ctx, const struct cli_options *options);

#endif
