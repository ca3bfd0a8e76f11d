/*
 * env.c - owns the environment: every variable is read here, once, and copied.
 * Must not know: what the values are used for.
 */
#include "runtime/env.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* Fills the member at `field`; false when the text is no such value. NOMEM is told apart by *oom. */
typedef bool reader(void *field, const char *text, bool *oom);

static bool read_text(void *field, const char *text, bool *oom)
{
    char *copy = gdni_strdup(text);
    *oom = !copy;
    *(char **)field = copy;
    return true;
}

static bool read_bytes(void *field, const char *text, bool *oom)
{
    (void)oom;
    if (strspn(text, "0123456789") != strlen(text)) return false; /* strtoull would take "-1" and " 5" */
    errno = 0;
    const unsigned long long value = strtoull(text, NULL, 10);
    if (errno) return false;
    *(uint64_t *)field = value;
    return true;
}

/* 0 is "not given" to who asks. */
static bool read_limit(void *field, const char *text, bool *oom)
{
    uint64_t value = 0;
    if (!read_bytes(&value, text, oom) || value == 0) return false;
    *(uint64_t *)field = value;
    return true;
}

static bool read_wait(void *field, const char *text, bool *oom)
{
    uint64_t value = 0;
    if (!read_bytes(&value, text, oom) || value > GDNI_MAX_WAIT_MS) return false;
    *(uint64_t *)field = value;
    return true;
}

static bool read_switch(void *field, const char *text, bool *oom)
{
    (void)oom;
    const bool on = strcmp(text, "1") == 0;
    if (!on && strcmp(text, "0") != 0) return false;
    *(bool *)field = on;
    return true;
}

static bool read_level(void *field, const char *text, bool *oom)
{
    (void)oom;
    static const char *const names[] = { "error", "warn", "info", "debug" }; /* GDN_LOG_ERROR is 1, and so on */
    for (int i = 0; i < 4; ++i)
        if (strcmp(text, names[i]) == 0) {
            *(int *)field = GDN_LOG_ERROR + i;
            return true;
        }
    return false;
}

static const struct {
    const char *name;
    size_t offset;
    reader *read;
    const char *expected;
} variables[] = {
    { "GDN_JIT_LOG", offsetof(struct gdni_env, log_level), read_level, "error, warn, info or debug" },
    { "GDN_JIT_CACHE_DIR", offsetof(struct gdni_env, cache_dir), read_text, "" },
    { "GDN_JIT_BUNDLE_PATH", offsetof(struct gdni_env, bundle_path), read_text, "" },
    { "GDN_JIT_NVRTC", offsetof(struct gdni_env, nvrtc), read_text, "" },
    { "GDN_JIT_RECORD", offsetof(struct gdni_env, record), read_text, "" },
    { "GDN_JIT_TUNING_PATH", offsetof(struct gdni_env, tuning_path), read_text, "" },
    { "XDG_CACHE_HOME", offsetof(struct gdni_env, xdg_cache_home), read_text, "" },
    { "XDG_RUNTIME_DIR", offsetof(struct gdni_env, xdg_runtime_dir), read_text, "" },
    { "HOME", offsetof(struct gdni_env, home), read_text, "" },
    { "GDN_JIT_CACHE_MAX_BYTES", offsetof(struct gdni_env, cache_max_bytes), read_limit,
      "a number of bytes, 1 or more; GDN_JIT_DISABLE_CACHE=1 keeps none" },
    { "GDN_JIT_COMPILE_WAIT_MS", offsetof(struct gdni_env, compile_wait_ms), read_wait, "milliseconds, up to 600000" },
    { "GDN_JIT_DISABLE_COMPILE", offsetof(struct gdni_env, disable_compile), read_switch, "0 or 1" },
    { "GDN_JIT_DISABLE_CACHE", offsetof(struct gdni_env, disable_cache), read_switch, "0 or 1" },
    { "GDN_JIT_WHOLE_SEQUENCES", offsetof(struct gdni_env, whole_sequences), read_switch, "0 or 1" },
};

int gdni_env_log_level(const struct gdni_env *env, int given)
{
    return given ? given : env->log_level ? env->log_level : GDN_LOG_WARN;
}

gdn_status gdni_env_read(struct gdni_env *env)
{
    *env = (struct gdni_env){ 0 };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; ++i) {
        const char *text = secure_getenv(variables[i].name);
        if (!text || !*text) continue; /* empty is unset, as the XDG specification has it */
        bool oom = false;
        const bool understood = variables[i].read((char *)env + variables[i].offset, text, &oom);
        if (understood && !oom) continue;
        gdni_env_free(env);
        if (oom) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the environment");
        return GDN_FAIL(GDN_E_INVALID, "%s of the environment is \"%.100s\": must be %s", variables[i].name, text,
                        variables[i].expected);
    }
    return GDN_OK;
}

void gdni_env_free(struct gdni_env *env)
{
    gdni_free(env->cache_dir);
    gdni_free(env->bundle_path);
    gdni_free(env->nvrtc);
    gdni_free(env->record);
    gdni_free(env->tuning_path);
    gdni_free(env->xdg_cache_home);
    gdni_free(env->xdg_runtime_dir);
    gdni_free(env->home);
    *env = (struct gdni_env){ 0 };
}
