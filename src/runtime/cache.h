/*
 * cache.h - cubins on disk: read-only bundles and one directory of this user.
 */
#ifndef GDNI_CACHE_H
#define GDNI_CACHE_H

#include "codegen/key.h"
#include "runtime/cache_dir.h"
#include "runtime/context.h"
#include "runtime/program.h"

struct gdni_cache;

/*
 * Decides on directories; cfg is gdn_ctx_create()'s, complete. log and counters must outlive the cache. An unusable directory
 * is one warning in the log. NULL when out of memory.
 */
struct gdni_cache *gdni_cache_create(const gdn_config *cfg, const struct gdni_env *env, const struct gdni_log *log,
                                     struct gdni_counters *counters);
void gdni_cache_destroy(struct gdni_cache *cache);

/*
 * Looks a key up; *out is NULL when it is not there. A bad entry is not there: it is counted, removed from the user's
 * directory unless it was written to just now (it may still be copied), and warned about once. GDN_E_NOMEM is the only
 * failure. *out has one reference, and its source and place.
 *   bundles: by key alone, whichever compiler made the entry
 *   user:    tag is the compiler's (gdni_nvrtc_tag); NULL, when there is no compiler, takes any compiler's entry. again: for a
 *            second look at once, which does not count what the first one counted and could not remove
 */
gdn_status gdni_cache_find_bundle(struct gdni_cache *cache, const struct gdni_key *key, const char *arch,
                                  struct gdni_program **out);
gdn_status gdni_cache_find_user(struct gdni_cache *cache, const struct gdni_key *key, const char *arch, const char *tag,
                                bool again, struct gdni_program **out);
/* The next one of these behind the place of a refused one, whichever compiler made it; the user's directory's too, or not. */
gdn_status gdni_cache_find_behind(struct gdni_cache *cache, const struct gdni_key *key, const char *arch,
                                  const struct gdni_place *refused, bool users, struct gdni_program **out);

/*
 * Keeps a program for the next process. Best effort: a failure is counted, and warned about once. replace: takes the place of
 * an entry of the same name, at once; else the entry that was there first stays, if it is good.
 */
void gdni_cache_publish(struct gdni_cache *cache, const struct gdni_program *program, const char *tag, bool replace);

/* The user's directory; its path is NULL when cubins are kept in memory only. Never NULL itself. */
const struct gdni_cache_dir *gdni_cache_user_dir(const struct gdni_cache *cache);
/* Bundles in the order in which they are searched; NULL behind the last. */
const struct gdni_cache_dir *gdni_cache_bundle_dir(const struct gdni_cache *cache, size_t i);

#endif
