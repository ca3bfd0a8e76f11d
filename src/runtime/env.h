/*
 * env.h - the environment (env/variables.h), read once, when a context is made, and copied.
 */
#ifndef GDNI_ENV_H
#define GDNI_ENV_H

#include "env/variables.h"
#include "gdn_jit/gdn_jit.h"

/* GDN_E_INVALID: the first variable that has no such value; GDN_E_NOMEM. Nothing is left to free then. */
gdn_status gdni_env_read(struct gdni_env *env);
/* An embedder's level where it has given one (not 0), else GDN_JIT_LOG's, else GDN_LOG_WARN. */
int gdni_env_log_level(const struct gdni_env *env, int given);
void gdni_env_free(struct gdni_env *env);

#endif
