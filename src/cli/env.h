/*
 * env.h - what the environment says, as the library reads it, where a sentence must name the variable.
 */
#ifndef GDN_CLI_ENV_H
#define GDN_CLI_ENV_H

#include "cli/cli.h"

struct cli_env {
    const char *nvrtc;       /* GDN_JIT_NVRTC; NULL: not given */
    const char *bundle_path; /* GDN_JIT_BUNDLE_PATH; NULL: not given */
    bool disable_compile;
};

/* The texts are the environment's own. */
struct cli_env cli_env_read(void);

#endif
