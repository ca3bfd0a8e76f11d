/*
 * compile_jobs.h - what gdn-jit-cache has of the library beside the contract: how many kernels are compiled at a time.
 * Exported as of version GDN_JIT_PRIVATE (cmake/gdnjit.map): for the tool of the same build, and no part of the ABI.
 */
#ifndef GDNI_TOOL_COMPILE_JOBS_H
#define GDNI_TOOL_COMPILE_JOBS_H

#include "gdn_jit/gdn_jit.h"

enum { GDNI_TOOL_MOST_JOBS = 256 };

/*
 * At most so many compiles of ctx run at a time, 1 to GDNI_TOOL_MOST_JOBS, in place of the four that are right for an engine.
 * Before ctx plans anything.
 */
GDN_API void gdni_tool_set_compile_jobs(gdn_ctx *ctx, unsigned jobs);

#endif
