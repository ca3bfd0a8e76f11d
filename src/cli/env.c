/*
 * env.c - owns the environment as far as the tool itself asks for it. Must not know: variables' names, what is done about them.
 */
#include "cli/env.h"

#include <stdlib.h>
#include <string.h>

struct gdni_env cli_env_read(void)
{
    struct gdni_env env;
    gdni_env_look(&env, NULL, NULL);
    return env;
}

static bool take_out(void *user, const char *variable, const char *sentence)
{
    cli_names_add(user, sentence, strlen(sentence));
    unsetenv(variable);
    return true;
}

void cli_env_take_out_refused(struct cli_names *sentences)
{
    struct gdni_env env;
    gdni_env_look(&env, take_out, sentences);
}
