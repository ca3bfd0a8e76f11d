/*
 * cache.c - owns lookup order, publication and the bookkeeping of the disk cache.
 * Must not know: what is in a cubin, who compiles, how a file comes to be (fsutil.c), what an entry's bytes mean
 * (cache_entry.c). `lock` guards the sweep's bookkeeping only; no file is touched and no callback is called under it.
 *
 * No lock is needed between processes: an entry appears whole or not at all, its name says its content, and whoever comes
 * second finds it there.
 */
#include "runtime/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_file.h"
#include "runtime/cache_scan.h"
#include "runtime/fsutil.h"

#define DEFAULT_MAX_BYTES (UINT64_C(512) << 20)
enum { SWEEP_INTERVAL = 3600, COPY_AGE = 60 }; /* seconds */

struct gdni_cache {
    struct gdni_cache_dir user;
    struct gdni_cache_dir *bundles;
    size_t num_bundles;
    uint64_t max_bytes;
    const struct gdni_log *log;
    struct gdni_counters *counters;
    atomic_flag warned_bad, warned_unreadable, warned_publish; /* one line a context is enough */
    pthread_mutex_t lock;
    bool swept;           /* guarded by lock, as are the next two */
    time_t last_sweep;    /* CLOCK_MONOTONIC seconds */
    uint64_t known_total; /* removable bytes after the last sweep, and what was published since */
};

/* ---- creation ---- */

/* One that is not there is passed over; without memory for one that is, a context would compile what it has. */
static bool add_bundle(struct gdni_cache *cache, const char *path)
{
    struct gdni_cache_dir *grown = gdni_realloc(cache->bundles, (cache->num_bundles + 1) * sizeof *grown);
    if (!grown) return false;
    cache->bundles = grown;
    struct gdni_cache_dir *bundle = &grown[cache->num_bundles];
    const gdn_status status = gdni_cache_dir_bundle(bundle, path);
    if (status == GDN_OK)
        ++cache->num_bundles;
    else if (status != GDN_E_NOMEM)
        gdni_log(cache->log, GDN_LOG_WARN, "bundle is not used: %s",
                 *path ? bundle->problem : "its name in bundle_dirs is empty");
    return status != GDN_E_NOMEM;
}

/* Pieces of a ':'-separated list; empty ones are skipped. */
static bool add_bundle_path(struct gdni_cache *cache, const char *list)
{
    char *copy = gdni_strdup(list), *rest = copy;
    bool ok = copy;
    for (char *piece; ok && (piece = strsep(&rest, ":"));)
        if (*piece) ok = add_bundle(cache, piece);
    gdni_free(copy);
    return ok;
}

/* Those of the environment with GDN_JIT_DISABLE_CACHE too, which is of what is written to: as with cache_dir "". */
static bool add_bundles(struct gdni_cache *cache, const gdn_config *cfg, const struct gdni_env *env)
{
    for (size_t i = 0; i < cfg->num_bundle_dirs; ++i)
        if (!add_bundle(cache, cfg->bundle_dirs[i])) return false;
    return !env->bundle_path || add_bundle_path(cache, env->bundle_path);
}

static uint64_t choose_max(const gdn_config *cfg, const struct gdni_env *env)
{
    return cfg->cache_max_bytes   ? cfg->cache_max_bytes
           : env->cache_max_bytes ? env->cache_max_bytes
                                  : DEFAULT_MAX_BYTES;
}

struct gdni_cache *gdni_cache_create(const gdn_config *cfg, const struct gdni_env *env, const struct gdni_log *log,
                                     struct gdni_counters *counters)
{
    struct gdni_cache *cache = gdni_calloc(1, sizeof *cache);
    if (!cache) return NULL;
    cache->user.fd = -1;
    cache->log = log;
    cache->counters = counters;
    cache->max_bytes = choose_max(cfg, env);
    if (pthread_mutex_init(&cache->lock, NULL) != 0) {
        gdni_free(cache);
        return NULL;
    }
    if (gdni_cache_dir_choose(&cache->user, cfg->cache_dir, env, cfg->flags) != GDN_OK ||
        !add_bundles(cache, cfg, env)) {
        gdni_cache_destroy(cache);
        return NULL;
    }
    if (*cache->user.problem) /* what is missing by leave is no oddity */
        gdni_log(log, cache->user.missing ? GDN_LOG_INFO : GDN_LOG_WARN, "cubins are kept in memory only: %s",
                 cache->user.problem);
    return cache;
}

void gdni_cache_destroy(struct gdni_cache *cache)
{
    if (!cache) return;
    for (size_t i = 0; i < cache->num_bundles; ++i)
        gdni_cache_dir_close(&cache->bundles[i]);
    gdni_free(cache->bundles);
    gdni_cache_dir_close(&cache->user);
    pthread_mutex_destroy(&cache->lock);
    gdni_free(cache);
}

const struct gdni_cache_dir *gdni_cache_user_dir(const struct gdni_cache *cache)
{
    return &cache->user;
}

const struct gdni_cache_dir *gdni_cache_bundle_dir(const struct gdni_cache *cache, size_t i)
{
    return i < cache->num_bundles ? &cache->bundles[i] : NULL;
}

/* ---- lookup ---- */

/* What is looked for, and where. */
struct query {
    const struct gdni_cache_dir *dir;
    const struct gdni_key *key;
    const char *arch;
    size_t number; /* of dir, in the order of search */
    int folder;    /* v2/<arch>/<2 hex> of dir */
    bool writable;
    bool again; /* a bad entry was counted by the look before */
};

/* Directory `number` in that order: the user's comes behind all bundles. */
static struct query query_of(const struct gdni_cache *cache, const struct gdni_key *key, const char *arch, size_t number)
{
    const bool users = number == cache->num_bundles;
    return (struct query){
        .dir = users ? &cache->user : &cache->bundles[number], .key = key, .arch = arch, .number = number, .writable = users
    };
}

static void entry_name(char name[GDNI_ENTRY_NAME], const char *key_hex, const char *tag)
{
    snprintf(name, GDNI_ENTRY_NAME, "%.32s.%.8s.gdnk", key_hex, tag);
}

/* cp and tar write under the final name: what was written to just now may be half of a good entry, whose writer has it open. */
static bool may_be_coming(const struct stat *st)
{
    const int64_t age = gdni_age(time(NULL), st->st_mtim.tv_sec);
    return S_ISREG(st->st_mode) && age < COPY_AGE && age > -COPY_AGE;
}

/*
 * A bad entry is a miss. In the user's directory it goes, so that a good one can come, unless that one may be on its way; a
 * bundle is not ours to change.
 */
static void refuse(struct gdni_cache *cache, const struct query *q, const char *name,
                   const struct gdni_cache_item *item)
{
    if (!q->again) atomic_fetch_add_explicit(&cache->counters->corrupt, 1, memory_order_relaxed);
    const bool coming = q->writable && may_be_coming(&item->st);
    const bool gone = q->writable && !coming && gdni_fs_remove_same(q->folder, name, &item->st) == 0;
    if (!atomic_flag_test_and_set(&cache->warned_bad))
        gdni_log(cache->log, GDN_LOG_WARN,
                 "cache entry %s/" GDNI_CACHE_FOLDER "/%s/%.2s/%s is refused%s: %s; later ones are only counted",
                 q->dir->path, q->arch, name, name, gone     ? " and removed"
                 : coming ? ", and left alone as it may still be copied"
                          : "",
                 item->problem);
}

/* Why an entry of the key has no folder, in words: whom not to believe is no matter of what the system permits. */
static bool is_distrusted(const struct gdni_cache_dir *dir, const char *arch, const char *key_hex, int err,
                          char words[GDNI_DISTRUST_WORDS])
{
    char path[64];
    snprintf(path, sizeof path, GDNI_CACHE_FOLDER "/%.16s/%.2s/", arch, key_hex);
    return err == EPERM && gdni_cache_dir_distrusts(dir, path, words);
}

#define DISTRUST_REMEDY "chown it to this user and chmod go-w it, or set GDN_CTX_SHARED_CACHE if a group shares it"

static void note_unreadable(struct gdni_cache *cache, const struct query *q, const char *what, int err)
{
    char words[GDNI_DISTRUST_WORDS];
    if (err == ENOENT || err == ESTALE || atomic_flag_test_and_set(&cache->warned_unreadable)) return;
    if (is_distrusted(q->dir, q->arch, q->key->hex, err, words))
        gdni_log(cache->log, GDN_LOG_WARN, "cache %s: entries %s are not used: " DISTRUST_REMEDY, q->dir->path, words);
    else
        gdni_log(cache->log, GDN_LOG_WARN, "cache %s: %s cannot be read: %s", q->dir->path, what, gdni_fs_error(err));
}

/* A hit moves an entry to the young end of the LRU order, at most hourly: readers of a shared disk should not write to it. */
static void touch(const struct query *q, const char *name, const struct stat *st)
{
    const int64_t age = gdni_age(time(NULL), st->st_mtim.tv_sec);
    if (!q->writable) return;
    if (age <= GDNI_CLOCK_SLACK && age >= -GDNI_CLOCK_SLACK) return; /* a time far ahead would never grow old */
    const struct timespec now[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_NOW } };
    utimensat(q->folder, name, now, AT_SYMLINK_NOFOLLOW); /* both: one alone only the file's owner may set */
}

_Static_assert(GDNI_ENTRY_NAME <= sizeof ((struct gdni_place *)0)->name, "a place holds an entry's name");

/* Nobody else has seen the program. */
static void place(struct gdni_program *program, const struct query *q, const char *name)
{
    program->source = q->writable ? GDNI_FROM_DISK : GDNI_FROM_BUNDLE;
    program->place.dir = q->number;
    snprintf(program->place.name, sizeof program->place.name, "%s", name);
}

/* *out NULL: not there, or not good. */
static gdn_status load(struct gdni_cache *cache, const struct query *q, const char *name, struct gdni_program **out)
{
    struct gdni_cache_item item;
    const int err = gdni_cache_item_read(q->dir, q->arch, q->folder, name, q->key, &item);
    if (err == ENOMEM) return GDN_FAIL(GDN_E_NOMEM, "out of memory: reading cache entry %s", name);
    if (err) {
        note_unreadable(cache, q, name, err);
        return GDN_OK;
    }
    const bool good = !item.problem;
    if (!good) refuse(cache, q, name, &item);
    if (good && (*out = gdni_program_create(&item.entry))) {
        place(*out, q, name);
        touch(q, name, &item.st);
    }
    gdni_cache_item_free(&item);
    return good && !*out ? GDN_FAIL(GDN_E_NOMEM, "out of memory: program of cache entry %s", name) : GDN_OK;
}

/* The first entry name of the key behind `name`, in name order, whoever compiled it, into it. False: no more. */
static bool next_name(const struct query *q, char name[GDNI_ENTRY_NAME])
{
    const int fd = openat(q->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return false;
    }
    char best[GDNI_ENTRY_NAME] = "";
    for (struct dirent *e; (e = readdir(dir));)
        if (gdni_is_entry_name(e->d_name) && strncmp(e->d_name, q->key->hex, 32) == 0 && strcmp(e->d_name, name) > 0 &&
            (!*best || strcmp(e->d_name, best) < 0))
            memcpy(best, e->d_name, sizeof best);
    closedir(dir);
    memcpy(name, best, sizeof best);
    return *best;
}

static gdn_status load_any(struct gdni_cache *cache, const struct query *q, const char *behind, struct gdni_program **out)
{
    char name[GDNI_ENTRY_NAME];
    snprintf(name, sizeof name, "%s", behind);
    while (!*out && next_name(q, name))
        GDN_TRY(load(cache, q, name, out));
    return GDN_OK;
}

/* tag: that compiler's entry; NULL: the first good one behind the name `behind`. */
static gdn_status find_in(struct gdni_cache *cache, struct query *q, const char *tag, const char *behind,
                          struct gdni_program **out)
{
    const int err = gdni_cache_dir_open(q->dir, q->arch, q->key->hex, false, &q->folder);
    if (err) {
        note_unreadable(cache, q, q->arch, err);
        return GDN_OK;
    }
    char name[GDNI_ENTRY_NAME];
    if (tag) entry_name(name, q->key->hex, tag);
    const gdn_status status = tag ? load(cache, q, name, out) : load_any(cache, q, behind, out);
    close(q->folder);
    return status;
}

gdn_status gdni_cache_find_bundle(struct gdni_cache *cache, const struct gdni_key *key, const char *arch,
                                  struct gdni_program **out)
{
    const struct gdni_place start = { 0 };
    return gdni_cache_find_behind(cache, key, arch, &start, false, out);
}

gdn_status gdni_cache_find_user(struct gdni_cache *cache, const struct gdni_key *key, const char *arch, const char *tag,
                                bool again, struct gdni_program **out)
{
    *out = NULL;
    if (cache->user.fd < 0) return GDN_OK;
    struct query q = query_of(cache, key, arch, cache->num_bundles);
    q.again = again;
    return find_in(cache, &q, tag, "", out);
}

gdn_status gdni_cache_find_behind(struct gdni_cache *cache, const struct gdni_key *key, const char *arch,
                                  const struct gdni_place *refused, bool users, struct gdni_program **out)
{
    const size_t end = cache->num_bundles + (users && cache->user.fd >= 0);
    *out = NULL;
    for (size_t i = refused->dir; i < end && !*out; ++i) {
        struct query q = query_of(cache, key, arch, i);
        GDN_TRY(find_in(cache, &q, NULL, i == refused->dir ? refused->name : "", out));
    }
    return GDN_OK;
}

/* ---- publish ---- */

static void note_unpublished(struct gdni_cache *cache, const char *why)
{
    atomic_fetch_add_explicit(&cache->counters->publish_failures, 1, memory_order_relaxed);
    if (!atomic_flag_test_and_set(&cache->warned_publish))
        gdni_log(cache->log, GDN_LOG_WARN,
                 "a cubin could not be kept in %s: %s; it is used from memory, and the next process compiles it again",
                 cache->user.path, why);
}

static void note_unwritten(struct gdni_cache *cache, const struct gdni_program *program, int err)
{
    char words[GDNI_DISTRUST_WORDS], sentence[256];
    const bool distrusted = is_distrusted(&cache->user, program->arch, program->key_hex, err, words);
    if (distrusted) snprintf(sentence, sizeof sentence, "its place is %s: " DISTRUST_REMEDY, words);
    note_unpublished(cache, distrusted ? sentence : gdni_fs_error(err));
}

enum standing { GOOD, BAD, UNREADABLE };

/* What has the program's name. Nothing any more is good: a sweep was quicker. */
static enum standing judge_standing(const struct gdni_cache *cache, const struct gdni_program *program, int folder,
                                    const char *name)
{
    struct gdni_cache_item item;
    const struct gdni_key key = { .text = program->key_text, .len = strlen(program->key_text) };
    const int err = gdni_cache_item_read(&cache->user, program->arch, folder, name, &key, &item);
    if (err) return err == ENOENT || err == ESTALE || err == ENOMEM ? GOOD : UNREADABLE;
    const bool bad = item.problem;
    gdni_cache_item_free(&item);
    return bad ? BAD : GOOD;
}

static int publish_bytes(struct gdni_cache *cache, const struct gdni_program *program, const char *tag,
                         const void *bytes, size_t size, bool replace)
{
    int folder;
    int err = gdni_cache_dir_open(&cache->user, program->arch, program->key_hex, true, &folder);
    if (err) return err;
    char name[GDNI_ENTRY_NAME];
    const mode_t mode = (cache->user.mode & 0666) | 0600;
    entry_name(name, program->key_hex, tag);
    err = gdni_fs_publish(folder, name, bytes, size, mode, replace ? GDNI_FS_REPLACE : 0);
    if (err == EEXIST && !replace) { /* someone was first, with the same content, or with half of it */
        const enum standing standing = judge_standing(cache, program, folder, name);
        if (standing == GOOD) err = 0;
        if (standing == BAD) err = gdni_fs_publish(folder, name, bytes, size, mode, GDNI_FS_REPLACE);
    }
    close(folder);
    return err;
}

/* Due at the first publish of a context, an hour after the last, and whenever this context's own entries pass the cap. */
static bool sweep_is_due(struct gdni_cache *cache, uint64_t published)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&cache->lock);
    cache->known_total += published;
    const bool due = !cache->swept || now.tv_sec - cache->last_sweep >= SWEEP_INTERVAL || cache->known_total > cache->max_bytes;
    if (due) {
        cache->swept = true; /* set before the sweep: one thread does it */
        cache->last_sweep = now.tv_sec;
        cache->known_total = 0;
    }
    pthread_mutex_unlock(&cache->lock);
    return due;
}

static void sweep(struct gdni_cache *cache)
{
    struct gdni_swept swept;
    if (gdni_cache_sweep(&cache->user, cache->max_bytes, time(NULL), &swept) != GDN_OK) return; /* another time */
    atomic_fetch_add_explicit(&cache->counters->evicted, swept.removed, memory_order_relaxed);
    pthread_mutex_lock(&cache->lock);
    cache->known_total += swept.total;
    pthread_mutex_unlock(&cache->lock);
    if (swept.removed)
        gdni_log(cache->log, GDN_LOG_INFO, "cache %s: %llu least recently used entries removed, %llu bytes left",
                 cache->user.path, (unsigned long long)swept.removed, (unsigned long long)swept.total);
}

void gdni_cache_publish(struct gdni_cache *cache, const struct gdni_program *program, const char *tag, bool replace)
{
    if (cache->user.fd < 0) return;
    struct gdni_entry entry;
    void *bytes = NULL;
    size_t size = 0;
    gdni_program_view(program, &entry);
    if (gdni_entry_encode(&entry, &bytes, &size) != GDN_OK) {
        note_unpublished(cache, gdni_error_text());
        return;
    }
    const int err = publish_bytes(cache, program, tag, bytes, size, replace);
    gdni_free(bytes);
    if (err)
        note_unwritten(cache, program, err);
    else if (sweep_is_due(cache, size))
        sweep(cache);
}
