/*
 * fs_shim.h - a file system that fails when told to, between the library and libc: the linker's --wrap sends every call of
 * fs_calls.def, and open, openat, fcntl, fsync, syncfs, stat, fstat, fstatat, read, pread, write, utimensat, time and
 * clock_gettime, through here.
 *
 * Of the process, and armed for all of its threads. Disarmed, every call goes through as it is, but fsync and syncfs, which
 * never wait for the disk.
 */
#ifndef FS_SHIM_H
#define FS_SHIM_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

enum fs_kind {
    FS_ERROR, /* the call fails with err */
    FS_SHORT, /* read, pread, write: at most 3 bytes go over */
    FS_ZERO,  /* read, pread, write: none go over, and that is no error */
    FS_KILL   /* SIGKILL, instead of the call */
};

enum { FS_FOREVER = -1 };

struct fs_fault {
    enum fs_kind kind;
    int err;
    int nth;   /* of all calls since fs_arm(): 1 is the next; 0: none, calls are only counted */
    int times; /* so many calls from the nth on, or FS_FOREVER */
};

void fs_arm(struct fs_fault fault);
void fs_only(const char *call); /* from here on a fault meets calls of this name alone; NULL: of any */
int fs_disarm(void); /* the number of calls since fs_arm() */

/* The call that the fault met first; "" when it met none. */
const char *fs_struck(void);

/* As on a file system without O_TMPFILE. */
void fs_without_tmpfile(bool without);

/* What stat, fstat and fstatat tell of what is at path now: this owner, and these bits beside its own. NULL: the truth. */
void fs_disguise(const char *path, uid_t owner, mode_t bits);

/* Seconds that the clock of the library is ahead; what utimensat() calls now is as far. */
void fs_set_clock(time_t ahead);

#endif
