/*
 * variables.h - every variable of the environment that the library reads: its name, what it may be, where it goes. The library
 * has it, and the tool. Must not know: what the values are used for.
 *
 * A value that cannot be understood is refused: ignored, a switch that somebody believes to be on would be noticed on a request
 * only.
 */
#ifndef GDNI_ENV_VARIABLES_H
#define GDNI_ENV_VARIABLES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GDNI_MAX_WAIT_MS = 600000, /* ten minutes: no compile takes that long */
    GDNI_MAX_COMPILE_JOBS = 256
};

/* X(member, variable) of those that may be any text. */
#define GDNI_ENV_TEXTS(X)                                                                                              \
    X(cache_dir, "GDN_JIT_CACHE_DIR")                                                                                  \
    X(bundle_path, "GDN_JIT_BUNDLE_PATH") /* ':'-separated, as is tuning_path */                                       \
    X(nvrtc, "GDN_JIT_NVRTC")                                                                                          \
    X(record, "GDN_JIT_RECORD")                                                                                        \
    X(tuning_path, "GDN_JIT_TUNING_PATH")                                                                              \
    X(xdg_cache_home, "XDG_CACHE_HOME")                                                                                \
    X(xdg_runtime_dir, "XDG_RUNTIME_DIR")                                                                              \
    X(home, "HOME")

/* NULL, 0 or false where unset; an empty value is unset, as the XDG specification has it. */
struct gdni_env {
#define X(member, variable) char *member;
    GDNI_ENV_TEXTS(X)
#undef X
    uint64_t cache_max_bytes; /* GDN_JIT_CACHE_MAX_BYTES */
    uint64_t compile_wait_ms; /* GDN_JIT_COMPILE_WAIT_MS */
    uint64_t compile_jobs;    /* GDN_JIT_COMPILE_JOBS */
    int log_level;            /* GDN_JIT_LOG=error|warn|info|debug, as GDN_LOG_*: the level of the embedder's callback */
    bool disable_compile;     /* GDN_JIT_DISABLE_COMPILE=1 */
    bool disable_cache;       /* GDN_JIT_DISABLE_CACHE=1: no cache directory but gdn_config's */
    bool whole_sequences;     /* GDN_JIT_WHOLE_SEQUENCES=1 */
    bool disable_code_prefetch; /* GDN_JIT_DISABLE_CODE_PREFETCH=1 */
};

/* A variable that has no such value, and the sentence that says so. True: read on, as if it were not set. */
typedef bool gdni_env_refused_fn(void *user, const char *variable, const char *sentence);

/*
 * By secure_getenv(); texts are the environment's own. False: refused has said so; what is in out then is of no use. Without
 * refused (NULL) such a variable is as if it were not set.
 */
bool gdni_env_look(struct gdni_env *out, gdni_env_refused_fn *refused, void *user);

#endif
