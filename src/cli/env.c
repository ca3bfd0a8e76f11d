/*
 * env.c - owns the environment as far as the tool itself asks for it. Must not know: what is done about it.
 */
#include "cli/env.h"

#include <stdlib.h>
#include <string.h>

/* Empty is unset. */
static const char *text_of(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text ? text : NULL;
}

/* What is neither 0 nor 1 the library refuses. */
static bool is_on(const char *name)
{
    const char *text = text_of(name);
    return text && strcmp(text, "1") == 0;
}

struct cli_env cli_env_read(void)
{
    return (struct cli_env){
        .nvrtc = text_of("GDN_JIT_NVRTC"),
        .bundle_path = text_of("GDN_JIT_BUNDLE_PATH"),
        .disable_compile = is_on("GDN_JIT_DISABLE_COMPILE"),
    };
}
