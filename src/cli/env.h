/*
 * env.h - what the environment says, as the library reads it, where a sentence must name the variable.
 */
#ifndef GDN_CLI_ENV_H
#define GDN_CLI_ENV_H

#include "cli/cli.h"
#include "env/variables.h"

/* The texts are the environment's own. A variable that has no such value is as if not set: no context is made with it. */
struct gdni_env cli_env_read(void);

/*
 * The sentences of the variables that no context is made with, which are taken out of this process's environment: so that
 * doctor can look at all else.
 */
void cli_env_take_out_refused(struct cli_names *sentences);

#endif
