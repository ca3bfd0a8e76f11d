/*
 * env.c - owns a context's copy of the environment. Must not know: variables' names, what the values are used for.
 */
#include "runtime/env.h"

#include "base/error.h"
#include "base/mem.h"

int gdni_env_log_level(const struct gdni_env *env, int given)
{
    return given ? given : env->log_level ? env->log_level : GDN_LOG_WARN;
}

static bool refuse(void *user, const char *variable, const char *sentence)
{
    (void)user;
    (void)variable;
    gdni_fail(GDN_E_INVALID, "%s", sentence);
    return false;
}

gdn_status gdni_env_read(struct gdni_env *env)
{
    struct gdni_env seen;
    *env = (struct gdni_env){ 0 };
    if (!gdni_env_look(&seen, refuse, NULL)) return GDN_E_INVALID;
    *env = seen;
    bool whole = true;
#define X(member, variable)                                                                                            \
    env->member = seen.member ? gdni_strdup(seen.member) : NULL;                                                       \
    whole &= !seen.member || env->member;
    GDNI_ENV_TEXTS(X)
#undef X
    if (whole) return GDN_OK;
    gdni_env_free(env);
    return GDN_FAIL(GDN_E_NOMEM, "out of memory for the environment");
}

void gdni_env_free(struct gdni_env *env)
{
#define X(member, variable) gdni_free(env->member);
    GDNI_ENV_TEXTS(X)
#undef X
    *env = (struct gdni_env){ 0 };
}
