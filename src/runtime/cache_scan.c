/*
 * cache_scan.c - owns the walk over a cache directory, and the removal of what is too old or too much.
 * Must not know: what is in an entry. No lock: other processes publish and remove at the same time, and a name that has gone
 * is no news.
 */
#include "runtime/cache_scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache_file.h"
#include "runtime/fsutil.h"

enum { KEEP_PERCENT = 80 };

static bool is_hex(const char *s, size_t len)
{
    return strspn(s, "0123456789abcdef") >= len;
}

bool gdni_is_entry_name(const char *name)
{
    return strlen(name) == GDNI_ENTRY_NAME - 1 && is_hex(name, 32) && name[32] == '.' && is_hex(name + 33, 8) &&
           strcmp(name + 41, ".gdnk") == 0;
}

static bool is_temp_name(const char *name)
{
    return strncmp(name, GDNI_FS_TEMP_PREFIX, strlen(GDNI_FS_TEMP_PREFIX)) == 0 && strlen(name) < GDNI_ENTRY_NAME;
}

static bool is_arch_folder(const char *name)
{
    return strncmp(name, "sm_", 3) == 0 && strlen(name) < 16;
}

static bool is_hash_folder(const char *name)
{
    return strlen(name) == 2 && is_hex(name, 2);
}

bool gdni_is_entry_path(const char *path)
{
    static const char root[] = GDNI_CACHE_FOLDER "/";
    if (strncmp(path, root, sizeof root - 1) != 0) return false;
    const char *arch = path + sizeof root - 1;
    const size_t len = strcspn(arch, "/");
    char folder[16];
    if (len >= sizeof folder || strspn(arch, "abcdefghijklmnopqrstuvwxyz0123456789_") < len) return false;
    snprintf(folder, sizeof folder, "%.*s", (int)len, arch);
    const char *rest = arch + len; /* "/ab/ab..." */
    return is_arch_folder(folder) && strlen(rest) == 4 + GDNI_ENTRY_NAME - 1 && rest[3] == '/' &&
           gdni_is_entry_name(rest + 4) && strncmp(rest + 1, rest + 4, 2) == 0;
}

int64_t gdni_age(time_t now, time_t then)
{
    int64_t age;
    if (!__builtin_sub_overflow(now, then, &age)) return age;
    return then < now ? INT64_MAX : INT64_MIN;
}

/* ---- scan ---- */

static struct gdni_cache_file *add(struct gdni_cache_scan *scan)
{
    if (scan->count == scan->cap) {
        const size_t cap = scan->cap ? scan->cap * 2 : 64;
        struct gdni_cache_file *files = gdni_realloc(scan->files, cap * sizeof *files);
        if (!files) return NULL;
        scan->files = files;
        scan->cap = cap;
    }
    return &scan->files[scan->count++];
}

/* Says of a name that it is nothing of ours rather than that it cannot be read: gone meanwhile, a link, no folder. */
static bool is_nobodys(int err)
{
    static const int errs[] = { 0, ENOENT, ESTALE, ELOOP, ENOTDIR };
    for (size_t i = 0; i < sizeof errs / sizeof errs[0]; ++i)
        if (errs[i] == err) return true;
    return false;
}

/* 0, and the walk goes on; or err, and it ends at `path`. */
static int fails_at(struct gdni_cache_scan *scan, int err, const char *path)
{
    if (is_nobodys(err)) return 0;
    if (scan->passes_over && (err == EACCES || err == EPERM)) return 0;
    snprintf(scan->failed_at, sizeof scan->failed_at, "%s", path);
    return err;
}

static int visit_file(struct gdni_cache_scan *scan, int folder, const char *path, const char *name)
{
    struct stat st;
    const bool temporary = is_temp_name(name);
    if (!temporary && !gdni_is_entry_name(name)) return 0;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return fails_at(scan, errno, path);
    if (S_ISDIR(st.st_mode)) return 0;
    struct gdni_cache_file *file = add(scan);
    if (!file) return ENOMEM;
    snprintf(file->path, sizeof file->path, "%s/%s", path, name);
    file->bytes = (uint64_t)st.st_size;
    file->mtime = st.st_mtim;
    file->device = st.st_dev;
    file->inode = st.st_ino;
    file->temporary = temporary;
    file->ahead = gdni_age(scan->now, st.st_mtim.tv_sec) < -GDNI_CLOCK_SLACK;
    return 0;
}

/* Levels of the tree, from the root: which names lead on. The last one holds files. */
static bool (*const leads_on[])(const char *name) = { is_arch_folder, is_hash_folder };
enum { FILE_LEVEL = sizeof leads_on / sizeof leads_on[0] };

static int walk(struct gdni_cache_scan *scan, int fd, const char *path, int level);

static int visit(struct gdni_cache_scan *scan, int folder, const char *path, const char *name, int level)
{
    char below[64];
    int child;
    if (level == FILE_LEVEL) return visit_file(scan, folder, path, name);
    if (!leads_on[level](name)) return 0;
    snprintf(below, sizeof below, "%.40s/%.16s", path, name);
    const int err = gdni_fs_open_folder(folder, name, false, 0, &child);
    if (err) return fails_at(scan, err, below);
    return walk(scan, child, below, level + 1);
}

/* 0 or an errno value: a list that misses what a failing disk did not tell would look like a whole one. Takes fd over. */
static int walk(struct gdni_cache_scan *scan, int fd, const char *path, int level)
{
    int err = 0;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        err = errno;
        close(fd);
        return err;
    }
    while (!err) {
        errno = 0; /* readdir() says by it alone whether the folder ends or fails */
        const struct dirent *e = readdir(dir);
        if (!e) {
            err = fails_at(scan, errno, path);
            break;
        }
        err = visit(scan, dirfd(dir), path, e->d_name, level);
    }
    closedir(dir);
    return err;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct gdni_cache_file *)a)->path, ((const struct gdni_cache_file *)b)->path);
}

/* From the root on. 0 or an errno value. */
static int walk_all(const struct gdni_cache_dir *dir, struct gdni_cache_scan *out)
{
    int fd;
    const int err = gdni_fs_open_folder(dir->fd, GDNI_CACHE_FOLDER, false, 0, &fd);
    return err ? fails_at(out, err, GDNI_CACHE_FOLDER) : walk(out, fd, GDNI_CACHE_FOLDER, 0);
}

static gdn_status scan_failed(const struct gdni_cache_dir *dir, const struct gdni_cache_scan *scan, int err)
{
    if (err == ENOMEM) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the list of entries in %s", dir->path);
    return GDN_FAIL(GDN_E_IO, "the list of entries in %s is not whole: %s in it cannot be read: %s%s", dir->path,
                    scan->failed_at, gdni_fs_error(err),
                    err == EACCES || err == EPERM ? ": make it readable, or take it away" : "");
}

static gdn_status scan_as(const struct gdni_cache_dir *dir, struct gdni_cache_scan how, struct gdni_cache_scan *out)
{
    *out = how;
    out->now = time(NULL);
    const int err = dir->fd < 0 ? 0 : walk_all(dir, out);
    if (err) {
        const gdn_status status = scan_failed(dir, out, err);
        gdni_free(out->files);
        *out = (struct gdni_cache_scan){ 0 };
        return status;
    }
    if (out->count) qsort(out->files, out->count, sizeof *out->files, by_path);
    return GDN_OK;
}

gdn_status gdni_cache_scan(const struct gdni_cache_dir *dir, struct gdni_cache_scan *out)
{
    return scan_as(dir, (struct gdni_cache_scan){ 0 }, out);
}

/* ---- sweep ---- */

int gdni_cache_file_compare_age(const struct gdni_cache_file *a, const struct gdni_cache_file *b)
{
    if (a->ahead != b->ahead) return a->ahead ? -1 : 1;
    if (a->mtime.tv_sec != b->mtime.tv_sec) return a->mtime.tv_sec < b->mtime.tv_sec ? -1 : 1;
    if (a->mtime.tv_nsec != b->mtime.tv_nsec) return a->mtime.tv_nsec < b->mtime.tv_nsec ? -1 : 1;
    return strcmp(a->path, b->path);
}

static int by_age(const void *a, const void *b)
{
    return gdni_cache_file_compare_age(a, b);
}

bool gdni_cache_is_abandoned(const struct gdni_cache_file *file, time_t now)
{
    const int64_t age = gdni_age(now, file->mtime.tv_sec);
    return file->temporary && (age > GDNI_TEMP_AGE || age < -GDNI_TEMP_AGE);
}

static void remove_temporaries(const struct gdni_cache_dir *dir, const struct gdni_cache_scan *scan, time_t now)
{
    for (size_t i = 0; i < scan->count; ++i) {
        const struct gdni_cache_file *file = &scan->files[i];
        if (gdni_cache_is_abandoned(file, now)) gdni_cache_file_remove(dir, file, NULL);
    }
}

static uint64_t total_of(const struct gdni_cache_scan *scan)
{
    uint64_t total = 0;
    for (size_t i = 0; i < scan->count; ++i)
        if (!scan->files[i].temporary) total += scan->files[i].bytes;
    return total;
}

/* Of what a removal says: the entry is somebody else's to remove, and stays. */
static bool is_refused(int err)
{
    return err == EACCES || err == EPERM || err == EROFS;
}

/*
 * The oldest come first, so what another user filled a cache with, which no hit of this one dates anew, is known to stay before
 * anything goes on its account; what is left then may be below the cap.
 */
static void remove_oldest(const struct gdni_cache_dir *dir, struct gdni_cache_scan *scan, uint64_t max_bytes,
                          struct gdni_swept *out)
{
    const uint64_t keep = max_bytes / 100 * KEEP_PERCENT + max_bytes % 100 * KEEP_PERCENT / 100;
    qsort(scan->files, scan->count, sizeof *scan->files, by_age);
    for (size_t i = 0; i < scan->count && out->total > (out->removed ? keep : max_bytes); ++i) {
        const struct gdni_cache_file *file = &scan->files[i];
        if (file->temporary) continue;
        const int err = gdni_cache_file_remove(dir, file, NULL);
        if (!err)
            ++out->removed;
        else if (err != ENOENT && !is_refused(err))
            continue; /* still there, or used just now: another entry has to go */
        out->total -= file->bytes;
    }
}

gdn_status gdni_cache_sweep(const struct gdni_cache_dir *dir, uint64_t max_bytes, time_t now, struct gdni_swept *out)
{
    *out = (struct gdni_swept){ 0 };
    struct gdni_cache_scan scan;
    GDN_TRY(scan_as(dir, (struct gdni_cache_scan){ .passes_over = true }, &scan));
    remove_temporaries(dir, &scan, now);
    out->total = total_of(&scan);
    if (out->total > max_bytes) remove_oldest(dir, &scan, max_bytes, out);
    gdni_free(scan.files);
    return GDN_OK;
}
