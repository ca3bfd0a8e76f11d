/*
 * store.c - see store.h.
 */
#include "support/store.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "runtime/cache.h"
#include "support/shipped.h"

#define NEED(condition, ...)                              \
    do {                                                  \
        if (!(condition)) {                               \
            fprintf(stderr, "test set-up: " __VA_ARGS__); \
            fprintf(stderr, "\n");                        \
            abort();                                      \
        }                                                 \
    } while (0)

/* ---- files ---- */

char *store_scratch(void)
{
    const char *base = getenv("TMPDIR");
    char *path;
    NEED(asprintf(&path, "%s/gdn-test-XXXXXX", base && *base == '/' ? base : "/tmp") > 0, "out of memory");
    NEED(mkdtemp(path), "mkdtemp %s: %m", path);
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int open_up(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    return type == FTW_D || type == FTW_DNR ? chmod(path, 0700) : 0;
}

void store_remove(char *path)
{
    nftw(path, open_up, 16, FTW_PHYS);
    NEED(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, "cannot remove %s: %m", path);
    free(path);
}

const char *store_path(const char *a, const char *b)
{
    static _Thread_local char paths[8][1024];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", a, b);
    return path;
}

void *store_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    NEED(file, "%s: %m", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size + 1);
    NEED(bytes && fread(bytes, 1, *size, file) == *size, "%s: cannot be read", path);
    fclose(file);
    return bytes;
}

void store_write(const char *path, const void *bytes, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    NEED(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "%s: %m", path);
    close(fd);
}

void store_set_mtime(const char *path, time_t when)
{
    const struct timespec times[2] = { { .tv_sec = when }, { .tv_sec = when } };
    NEED(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0, "%s: %m", path);
}

void store_age(const char *path)
{
    store_set_mtime(path, time(NULL) - 300);
}

static _Thread_local int files_seen;
static _Thread_local char entry_seen[1024];

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    if (type == FTW_D || type == FTW_DNR) return 0;
    ++files_seen;
    snprintf(entry_seen, sizeof entry_seen, "%s", path);
    return 0;
}

int store_count_files(const char *path)
{
    files_seen = 0;
    NEED(nftw(path, count_one, 16, FTW_PHYS) == 0, "cannot walk %s: %m", path);
    return files_seen;
}

char *store_only_entry(const char *cache_dir)
{
    const int files = store_count_files(cache_dir);
    NEED(files == 1, "%d files in %s instead of one entry", files, cache_dir);
    return strdup(entry_seen);
}

static int give_to_nobody(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return lchown(path, 65534, 65534);
}

void store_drop_root(const char *path)
{
    if (geteuid() != 0) return;
    NEED(nftw(path, give_to_nobody, 16, FTW_PHYS) == 0, "chown %s: %m", path);
    NEED(setegid(65534) == 0 && seteuid(65534) == 0, "become nobody: %m");
}

/* ---- log ---- */

void store_log_fn(void *user, int level, const char *message)
{
    static atomic_flag writing = ATOMIC_FLAG_INIT;
    struct store_log *log = user;
    if (shipped_is_stale_warning(message)) return;
    while (atomic_flag_test_and_set(&writing)) {}
    snprintf(log->last[level], sizeof log->last[level], "%s", message);
    atomic_flag_clear(&writing);
    ++log->count[level];
}

/* ---- units, keys, entries ---- */

struct gdni_unit store_unit(const char *arch, const char *source)
{
    struct gdni_unit unit = { .entry = "tiny", .main_name = "tiny.cu", .main_text = source };
    NEED(gdni_arch_find(arch, &unit.spec.arch) == GDN_OK, "%s", gdni_error_text());
    return unit;
}

struct gdni_key store_key(const struct gdni_unit *unit)
{
    struct gdni_key key = { 0 };
    struct gdni_strbuf sb = { 0 };
    gdni_sb_fmt(&sb, "test key\narch %s\nsource %s\n", unit->spec.arch->name, unit->main_text);
    key.len = sb.len;
    key.text = gdni_sb_take(&sb);
    NEED(key.text, "out of memory");
    gdni_hash_hex(key.hex, key.text, key.len);
    return key;
}

void *store_cubin(const char *arch, size_t size, unsigned seed)
{
    static const uint8_t ident[] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8 };
    uint8_t *elf = malloc(size);
    NEED(elf && size >= 64, "cubin of %zu bytes", size);
    for (size_t i = 0; i < size; ++i) elf[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    memset(elf, 0, 64);
    memcpy(elf, ident, sizeof ident);
    elf[18] = 190;
    elf[49] = (uint8_t)atoi(arch + 3);
    elf[52] = 64;
    return elf;
}

struct gdni_entry store_entry(const char *arch, const struct gdni_key *key, const void *cubin, size_t size)
{
    struct gdni_entry entry = {
        .cubin = cubin,
        .cubin_size = size,
        .key_text = key->text,
        .key_len = key->len,
        .options = STORE_OPTIONS,
        .options_len = strlen(STORE_OPTIONS),
        .build_log = FAKE_NVRTC_LOG,
        .log_len = strlen(FAKE_NVRTC_LOG),
        .entry = "tiny",
        .facts = { 42, 12, 16, 1024, 7, "nvrtc 13.0 0123456789abcdef" },
    };
    snprintf(entry.arch, sizeof entry.arch, "%s", arch);
    return entry;
}

struct gdni_program *store_program(const struct gdni_unit *unit)
{
    struct gdni_key key = store_key(unit);
    void *cubin = store_cubin(unit->spec.arch->name, 1000, (unsigned)strlen(unit->main_text) + (unsigned)unit->main_text[0]);
    const struct gdni_entry entry = store_entry(unit->spec.arch->name, &key, cubin, 1000);
    struct gdni_program *program = gdni_program_create(&entry);
    NEED(program, "out of memory");
    free(cubin);
    gdni_key_free(&key);
    return program;
}

/* ---- contexts ---- */

static void open_cache(struct store_cache *s, const gdn_config *cfg)
{
    const struct gdni_env none = { 0 };
    memset(s, 0, sizeof *s);
    s->log = (struct gdni_log){ store_log_fn, &s->lines, GDN_LOG_INFO };
    s->cache = gdni_cache_create(cfg, &none, &s->log, &s->counters);
    NEED(s->cache, "no cache on %s", cfg->cache_dir);
}

void store_cache_open_as(struct store_cache *s, const char *dir, uint32_t flags)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = dir;
    cfg.flags = flags;
    open_cache(s, &cfg);
}

void store_cache_open(struct store_cache *s, const char *dir, const char *bundle, uint64_t max_bytes)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = dir;
    cfg.bundle_dirs = bundle ? &bundle : NULL;
    cfg.num_bundle_dirs = bundle ? 1 : 0;
    cfg.cache_max_bytes = max_bytes;
    open_cache(s, &cfg);
}

void store_cache_close(struct store_cache *s)
{
    gdni_cache_destroy(s->cache);
}


struct fake_nvrtc *fake_nvrtc_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *address = library ? dlsym(library, "fake_nvrtc_controls") : NULL;
    struct fake_nvrtc *(*get)(void);
    memcpy(&get, &address, sizeof address);
    NEED(address, "the fake NVRTC cannot be opened: %s", dlerror());
    return get();
}

gdn_ctx *store_ctx(const char *cache_dir, uint32_t flags, struct store_log *log, const char *nvrtc)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = cache_dir;
    cfg.flags = flags | GDN_CTX_NO_ENV;
    cfg.nvrtc_path = nvrtc;
    cfg.log_fn = log ? store_log_fn : NULL;
    cfg.log_user = log;
    cfg.log_level = GDN_LOG_INFO;
    gdn_ctx *ctx = NULL;
    NEED(gdn_ctx_create(&ctx, &cfg) == GDN_OK, "%s", gdn_last_error());
    return ctx;
}

gdn_cache_stats store_stats(gdn_ctx *ctx)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    NEED(gdn_cache_stat(ctx, &stats) == GDN_OK, "%s", gdn_last_error());
    return stats;
}
