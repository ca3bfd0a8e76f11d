/*
 * guard.h - the stampede guard: of the processes of this machine and user that are about to compile one key, one does, and
 * the others wait for its entry. Saves work; nothing depends on it.
 */
#ifndef GDNI_GUARD_H
#define GDNI_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"
#include "runtime/cache_dir.h"
#include "runtime/env.h"
#include "runtime/log.h"

struct gdni_guard;

/* configured_ms: gdn_config.compile_wait_ms. env and log outlive the guard. NULL when out of memory. */
struct gdni_guard *gdni_guard_create(int32_t configured_ms, const struct gdni_env *env, const struct gdni_log *log);
void gdni_guard_destroy(struct gdni_guard *guard);

enum { GDNI_GUARD_NONE = -1 };

/* As gdni_now_us(): when who begins to wait now has waited long enough, for however many keys. */
int64_t gdni_guard_deadline(const struct gdni_guard *guard);

/*
 * Takes the turn for a key of a cache directory, after waiting, up to the deadline, for who has it. Who gets a turn looks into
 * the cache again before it compiles, and gives the turn back by gdni_guard_leave() when its entry is published; so does the
 * end of the process, however it ends. GDNI_GUARD_NONE: there is no guard, or the time is over: compile. *waited: another had
 * the turn.
 */
int gdni_guard_enter(struct gdni_guard *guard, const struct gdni_cache_dir *dir, const char *key_hex, int64_t deadline,
                     bool *waited);
void gdni_guard_leave(int turn);

#endif
