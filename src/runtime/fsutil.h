/*
 * fsutil.h - the few things that the cache does with files. Functions that return an int return 0 or an errno value.
 */
#ifndef GDNI_FSUTIL_H
#define GDNI_FSUTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define GDNI_FS_TEMP_PREFIX ".gdnk-tmp-"

/* The words for an errno value. Static storage; unlike strerror(), from any thread. */
const char *gdni_fs_error(int err);

/* Makes path and what is missing above it, with mode, of which a umask takes no bit of the owner's; fine when it exists. */
int gdni_fs_make_path(const char *path, mode_t mode);

/*
 * Opens a folder inside dir, not through a link. create: with exactly mode, umask or not, unless it exists; one of this user's
 * that lacks bits of mode gets it.
 */
int gdni_fs_open_folder(int dir, const char *name, bool create, mode_t mode, int *out);

/*
 * That mode for a file or folder of this user's that lacks bits of it: a umask took them, and who made it was killed before he
 * gave it its mode, or gives it none. A group that shares it could not write, or nobody open it.
 */
void gdni_fs_mend_mode(int fd, mode_t mode);

/* A new folder inside dir under a temporary name, with exactly mode, opened. */
enum { GDNI_FS_TEMP_NAME = sizeof GDNI_FS_TEMP_PREFIX + 16 };
int gdni_fs_make_temp_folder(int dir, mode_t mode, char name[GDNI_FS_TEMP_NAME], int *out);

/* 0 when the folder holds nothing, ENOTEMPTY, or what opening it said. */
int gdni_fs_is_empty(int dir, const char *name);

/* Removes a folder with all in it, following no link; what cannot be removed stays, and so does what holds it. */
void gdni_fs_remove_tree(int dir, const char *name);

/* Opens a regular file inside dir for reading: ELOOP for a link, EINVAL for what is no regular file. Never blocks. */
int gdni_fs_open_file(int dir, const char *name, int *out, struct stat *st);

/* Reads exactly size bytes into bytes: ENODATA when the file is shorter. */
int gdni_fs_read(int fd, void *bytes, size_t size);

/*
 * fd, or in the place of 0, 1 or 2 a copy above them, -1 with errno where there is none: of every file that is written to.
 * Where a process runs with a standard descriptor closed, what it or another library prints would land in the file. fd -1
 * stays so.
 */
int gdni_fs_off_standard(int fd);

/* One write(), never a signal: *written is how much of it was taken. */
int gdni_fs_append(int fd, const void *bytes, size_t size, size_t *written);

enum {
    GDNI_FS_REPLACE = 1u, /* take the place of a file of the name; without it, and of what is no regular file, EEXIST */
    GDNI_FS_NAMED = 2u,   /* do as on a file system without O_TMPFILE */
    GDNI_FS_UMASK = 4u    /* the umask takes its bits of the mode */
};
/*
 * A file of exactly these bytes appears under name, whole and synced, or not at all: O_TMPFILE and linkat, or where a file
 * system has no O_TMPFILE (or /proc is not mounted) a temporary name and rename, which replaces.
 */
int gdni_fs_publish(int dir, const char *name, const void *bytes, size_t size, mode_t mode, unsigned flags);

/*
 * Removes name from dir if it is still the file that was seen, untouched; ESTALE when another has taken its place since, which
 * stays there. seen of zeros, for what could not be opened: if it is no regular file.
 */
int gdni_fs_remove_same(int dir, const char *name, const struct stat *seen);

#endif
