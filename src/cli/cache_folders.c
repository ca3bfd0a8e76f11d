/*
 * cache_folders.c - owns the trial of the folders of a cache directory. Must not know: entries, what an answer means.
 *
 * An entry is DIR/v2/<arch>/<two digits of its key>/<name>, as gdn-jit-cache(1) has it; folders that are not there yet are
 * made in the one above. Below DIR the library believes folders of this user or root that nobody else may write to
 * (tests/cli/test_cli_rules.c holds this against the library).
 */
#include "cli/cache_folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one folder ---- */

/* Into a file that has no name, or whose name is gone at once. */
static int open_scratch(const char *dir)
{
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
    if (snprintf(path, sizeof path, "%s/.gdnk-tmp-doctor-XXXXXX", dir) >= (int)sizeof path) return -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

/* Permissions do not say all: a file system may be read-only or full, a quota used up. */
static int try_to_write(const char *dir)
{
    static const char block[4096];
    const int fd = open_scratch(dir);
    if (fd < 0) return errno;
    const ssize_t written = write(fd, block, sizeof block);
    const int error = written < 0 ? errno : written < (ssize_t)sizeof block ? ENOSPC : fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return error;
}

/* ---- all of them ---- */

enum { ROOM = 512, ARCHS = 1, KEYS = 2 }; /* level of the folder's children; KEYS: entries are in them */

struct trial {
    bool any_owner;
    struct cli_cache_folders *out;
};

static bool is_trusted(const struct trial *t, const struct stat *st)
{
    return t->any_owner || ((st->st_uid == geteuid() || st->st_uid == 0) && !(st->st_mode & 022));
}

static void note_error(const struct trial *t, const char *path, int error)
{
    if (!error || t->out->error) return;
    t->out->error = error;
    snprintf(t->out->unwritable, ROOM, "%s", path);
}

/* Of the many folders of keys only the permissions are looked at: what else may fail fails in the one above too. */
static void try_folder(const struct trial *t, const char *path, bool write_it)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        note_error(t, path, errno == ENOENT ? 0 : errno); /* gone meanwhile */
    else if (!S_ISDIR(st.st_mode))
        note_error(t, path, ENOTDIR);
    else if (!is_trusted(t, &st) && !t->out->untrusted[0])
        snprintf(t->out->untrusted, ROOM, "%s", path);
    else if (is_trusted(t, &st) && write_it)
        note_error(t, path, try_to_write(path));
    else if (is_trusted(t, &st))
        note_error(t, path, faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno);
}

static bool is_folder_name(const char *name, int level)
{
    if (level == ARCHS) return strncmp(name, "sm_", 3) == 0;
    return strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2;
}

static void try_below(const struct trial *t, const char *path, int level)
{
    char below[ROOM];
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_folder_name(e->d_name, level) ||
            snprintf(below, sizeof below, "%s/%s", path, e->d_name) >= (int)sizeof below)
            continue;
        try_folder(t, below, level == ARCHS);
        if (level == ARCHS) try_below(t, below, KEYS);
    }
    if (dir) closedir(dir);
}

void cli_try_cache_folders(const char *dir, bool any_owner, struct cli_cache_folders *out)
{
    const struct trial t = { any_owner, out };
    char entries[ROOM];
    struct stat st;
    *out = (struct cli_cache_folders){ 0 };
    if (snprintf(entries, sizeof entries, "%s/v2", dir) >= (int)sizeof entries || lstat(entries, &st) != 0) {
        note_error(&t, dir, try_to_write(dir)); /* nothing was ever kept */
        return;
    }
    try_folder(&t, entries, true);
    try_below(&t, entries, ARCHS);
}
