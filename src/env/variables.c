/*
 * variables.c - see variables.h; the one file with getenv. Must not know: what the values are used for.
 */
#include "env/variables.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gdn_jit/gdn_jit.h"

/* Fills the member at `field`; false when the text is no such value. */
typedef bool reader(void *field, char *text);

static bool read_text(void *field, char *text)
{
    *(char **)field = text;
    return true;
}

static bool read_number(void *field, const char *text, uint64_t least, uint64_t most)
{
    if (strspn(text, "0123456789") != strlen(text)) return false; /* strtoull would take "-1" and " 5" */
    errno = 0;
    const unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value < least || value > most) return false;
    *(uint64_t *)field = value;
    return true;
}

/* 0 is "not given" to who asks. */
static bool read_limit(void *field, char *text)
{
    return read_number(field, text, 1, UINT64_MAX);
}

static bool read_wait(void *field, char *text)
{
    return read_number(field, text, 0, GDNI_MAX_WAIT_MS);
}

static bool read_jobs(void *field, char *text)
{
    return read_number(field, text, 1, GDNI_MAX_COMPILE_JOBS);
}

static bool read_switch(void *field, char *text)
{
    const bool on = strcmp(text, "1") == 0;
    if (!on && strcmp(text, "0") != 0) return false;
    *(bool *)field = on;
    return true;
}

static bool read_level(void *field, char *text)
{
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
#define X(member, variable) { variable, offsetof(struct gdni_env, member), read_text, "" },
    GDNI_ENV_TEXTS(X)
#undef X
    { "GDN_JIT_CACHE_MAX_BYTES", offsetof(struct gdni_env, cache_max_bytes), read_limit,
      "a number of bytes, 1 or more; GDN_JIT_DISABLE_CACHE=1 keeps none" },
    { "GDN_JIT_COMPILE_WAIT_MS", offsetof(struct gdni_env, compile_wait_ms), read_wait, "milliseconds, up to 600000" },
    { "GDN_JIT_COMPILE_JOBS", offsetof(struct gdni_env, compile_jobs), read_jobs, "compiles at a time, 1 to 256" },
    { "GDN_JIT_DISABLE_COMPILE", offsetof(struct gdni_env, disable_compile), read_switch, "0 or 1" },
    { "GDN_JIT_DISABLE_CACHE", offsetof(struct gdni_env, disable_cache), read_switch, "0 or 1" },
    { "GDN_JIT_WHOLE_SEQUENCES", offsetof(struct gdni_env, whole_sequences), read_switch, "0 or 1" },
    { "GDN_JIT_DISABLE_CODE_PREFETCH", offsetof(struct gdni_env, disable_code_prefetch), read_switch, "0 or 1" },
};

bool gdni_env_look(struct gdni_env *out, gdni_env_refused_fn *refused, void *user)
{
    *out = (struct gdni_env){ 0 };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; ++i) {
        char sentence[320], *text = secure_getenv(variables[i].name);
        if (!text || !*text || variables[i].read((char *)out + variables[i].offset, text)) continue;
        snprintf(sentence, sizeof sentence, "%s of the environment is \"%.100s\": must be %s", variables[i].name, text,
                 variables[i].expected);
        if (refused && !refused(user, variables[i].name, sentence)) return false;
    }
    return true;
}
