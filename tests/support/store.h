/*
 * store.h - what tests of cache, compiler and registry share: scratch directories, units and keys made by hand, a context
 * on the fake NVRTC, a log that is kept.
 */
#ifndef TEST_STORE_H
#define TEST_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "codegen/key.h"
#include "codegen/unit.h"
#include "fakenvrtc/fakenvrtc.h"
#include "runtime/cache_entry.h"
#include "runtime/context.h"

/* A new directory, mode 0700, removed with all in it by store_remove(). Under TMPDIR or /tmp. */
char *store_scratch(void);
void store_remove(char *path);
/* "<a>/<b>"; static storage, eight at a time. */
const char *store_path(const char *a, const char *b);

/*
 * Permission bits bind nobody who is root: gives path and all in it to the user "nobody" and goes on as him, when root; else
 * does nothing. The test's process ends so.
 */
void store_drop_root(const char *path);

/* Thread-safe; counts by level, keeps the last line of each, but for shipped_is_stale_warning(). */
struct store_log {
    atomic_int count[GDN_LOG_DEBUG + 1];
    char last[GDN_LOG_DEBUG + 1][2048];
};
void store_log_fn(void *user, int level, const char *message);

/* A kernel "tiny" of this source for arch; nothing to free. */
struct gdni_unit store_unit(const char *arch, const char *source);
/* A key as good as any: text made from the unit's arch and source. gdni_key_free(). */
struct gdni_key store_key(const struct gdni_unit *unit);

/* A smallest cubin for arch that the library believes, size bytes long (64 or more) and filled from seed. free(). */
void *store_cubin(const char *arch, size_t size, unsigned seed);
#define STORE_OPTIONS "--gpu-architecture=sm_90a --minimal"
/* An entry around it; its parts live as long as key and cubin. */
struct gdni_entry store_entry(const char *arch, const struct gdni_key *key, const void *cubin, size_t size);

/* A cache alone, without a context: what it needs to live, kept together. */
struct store_cache {
    struct gdni_log log;
    struct store_log lines;
    struct gdni_counters counters;
    struct gdni_cache *cache;
};
void store_cache_open(struct store_cache *s, const char *dir, const char *bundle, uint64_t max_bytes);
/* On dir alone, with GDN_CTX_* flags. */
void store_cache_open_as(struct store_cache *s, const char *dir, uint32_t flags);
void store_cache_close(struct store_cache *s);
/* Of this unit, with a cubin that depends on its source; gdni_program_release(). */
struct gdni_program *store_program(const struct gdni_unit *unit);

/*
 * A context that reads no environment. nvrtc: GDN_FAKE_NVRTC_PATH, another, or NULL for the machine's. Ends the test when it
 * fails.
 */
gdn_ctx *store_ctx(const char *cache_dir, uint32_t flags, struct store_log *log, const char *nvrtc);

gdn_cache_stats store_stats(gdn_ctx *ctx);
/* Files anywhere below path, of any name. */
int store_count_files(const char *path);
/* The only entry file below a cache directory; ends the test when there is not exactly one. free(). */
char *store_only_entry(const char *cache_dir);
/* Whole file; free(). Ends the test when it cannot. */
void *store_read(const char *path, size_t *size);
void store_write(const char *path, const void *bytes, size_t size);
void store_set_mtime(const char *path, time_t when); /* of a link its own */
/* Dates the file some minutes back: nobody can be copying it any more. */
void store_age(const char *path);

#endif
