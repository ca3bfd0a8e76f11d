/*
 * env.h - every environment variable that the library reads, read once, when a context is made. The one file with getenv.
 *
 *   GDN_JIT_CACHE_DIR, GDN_JIT_BUNDLE_PATH (':'-separated), GDN_JIT_CACHE_MAX_BYTES, GDN_JIT_DISABLE_COMPILE=1,
 *   GDN_JIT_DISABLE_CACHE=1 (no cache directory but gdn_config's), GDN_JIT_NVRTC, GDN_JIT_LOG=error|warn|info|debug,
 *   GDN_JIT_RECORD, GDN_JIT_TUNING_PATH (':'-separated), GDN_JIT_COMPILE_WAIT_MS, GDN_JIT_WHOLE_SEQUENCES=1; XDG_CACHE_HOME,
 *   HOME, XDG_RUNTIME_DIR
 *
 * GDN_JIT_LOG only sets the level of the embedder's callback. A value that cannot be understood is refused: ignored, a switch
 * that somebody believes to be on would be noticed on a request only.
 */
#ifndef GDNI_ENV_H
#define GDNI_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

enum { GDNI_MAX_WAIT_MS = 600000 }; /* ten minutes: no compile takes that long */

/* Copies of the values; NULL, 0 or false where unset. */
struct gdni_env {
    char *cache_dir, *bundle_path, *nvrtc, *record, *tuning_path, *xdg_cache_home, *xdg_runtime_dir, *home;
    uint64_t cache_max_bytes, compile_wait_ms;
    int log_level; /* GDN_LOG_*; 0 unset */
    bool disable_compile, disable_cache, whole_sequences;
};

/* Uses secure_getenv. GDN_E_INVALID: the first that is no such value; GDN_E_NOMEM. Nothing is left to free then. */
gdn_status gdni_env_read(struct gdni_env *env);
/* An embedder's level where it has given one (not 0), else GDN_JIT_LOG's, else GDN_LOG_WARN. */
int gdni_env_log_level(const struct gdni_env *env, int given);
void gdni_env_free(struct gdni_env *env);

#endif
