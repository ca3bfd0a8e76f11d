/*
 * place.c - owns the look at where something is to go. Must not know: what goes there.
 *
 * Another process may take the place meanwhile: who puts something there looks again.
 */
#include "cli/place.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 4096 };

#define TEMPORARY ".gdnk-tmp-XXXXXX" /* as the library calls what is not whole yet */

/* "a/b//" is b in "a/"; "b" is b in "./". */
static int split(const char *option, const char *path, char folder[ROOM], char name[ROOM])
{
    size_t end = strlen(path);
    if (end >= ROOM) return cli_fail(CLI_USAGE, "%s %.64s...: the name is too long", option, path);
    while (end > 1 && path[end - 1] == '/')
        --end;
    size_t start = end;
    while (start && path[start - 1] != '/')
        --start;
    snprintf(folder, ROOM, "%.*s", start ? (int)start : 2, start ? path : "./");
    snprintf(name, ROOM, "%.*s", (int)(end - start), path + start);
    if (end - start > NAME_MAX)
        return cli_fail(CLI_USAGE, "%s %s: the name has %zu bytes: give it at most %d", option, path, end - start, NAME_MAX);
    if (name[0] && strcmp(name, "/") != 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s %s: has no name of its own, under which something could be made: give it one",
                    option, path);
}

/* Permissions do not say all: a file system may be read-only, or take nothing. */
static int try_to_make(const char *option, const char *path, const char *folder)
{
    char scratch[ROOM + 32];
    struct stat st;
    if (stat(folder, &st) != 0)
        return cli_fail(CLI_USAGE, "%s %s: its folder %s cannot be used: %s; %s", option, path, folder, strerror(errno),
                        errno == ENOENT ? "make it first" : "name another place");
    snprintf(scratch, sizeof scratch, "%s" TEMPORARY, folder);
    if (!mkdtemp(scratch))
        return cli_fail(CLI_USAGE, "%s %s: nothing can be made in %s: %s; name another place", option, path, folder,
                        strerror(errno));
    rmdir(scratch);
    return CLI_OK;
}

int cli_place_check(const char *option, const char *path)
{
    char folder[ROOM], name[ROOM];
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return cli_fail(CLI_USAGE, "%s %s: what has this name is no regular file: name another FILE", option, path);
    CLI_TRY(split(option, path, folder, name));
    if (path[strlen(path) - 1] == '/') return cli_fail(CLI_USAGE, "%s %s: names a folder: name a file", option, path);
    return try_to_make(option, path, folder);
}

int cli_place_temporary(const char *path, char out[CLI_PLACE_TEMPORARY])
{
    char folder[ROOM], name[ROOM];
    CLI_TRY(split("temporary file beside", path, folder, name));
    snprintf(out, CLI_PLACE_TEMPORARY, "%s" TEMPORARY, folder);
    return CLI_OK;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool cli_place_is_in(const char *file, const char *dir)
{
    char file_folder[ROOM], file_name[ROOM], folder[ROOM], name[ROOM];
    struct stat of_file, around, st;
    if (split("", file, file_folder, file_name) != CLI_OK || split("", dir, folder, name) != CLI_OK) return false;
    if (stat(file_folder, &of_file) != 0) return false;
    if (stat(dir, &st) == 0 && is_same(&of_file, &st)) return true;
    return stat(folder, &around) == 0 && is_same(&of_file, &around) && strcmp(file_name, name) == 0;
}

/* 0, ENOTEMPTY, or why it cannot be told. */
static int is_empty(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return errno;
    const struct dirent *e;
    do
        e = readdir(dir);
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    closedir(dir);
    return e ? ENOTEMPTY : 0;
}

static int taken(const char *option, const char *path, const char *why)
{
    return cli_fail(CLI_USAGE, "%s %s: %s: name a new or empty directory", option, path, why);
}

int cli_place_check_directory(const char *option, const char *path)
{
    char folder[ROOM], name[ROOM], plain[2 * ROOM];
    struct stat st, around;
    CLI_TRY(split(option, path, folder, name));
    snprintf(plain, sizeof plain, "%s%s", folder, name); /* a slash behind a link would look at what it leads to */
    if (lstat(plain, &st) == 0) {
        if (!S_ISDIR(st.st_mode)) return taken(option, path, "what has this name is no directory");
        const int error = is_empty(plain);
        if (error) return taken(option, path, error == ENOTEMPTY ? "is not empty" : strerror(error));
        if (stat(folder, &around) == 0 && around.st_dev != st.st_dev)
            return taken(option, path, "is a mount point, which nothing can be moved to");
    }
    return try_to_make(option, path, folder);
}
