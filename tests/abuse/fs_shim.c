/*
 * fs_shim.c - see fs_shim.h. Must not know: caches, entries. State is atomic, and set while nothing of the library runs.
 */
#include "abuse/fs_shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENDLESS = 1000000 };

static struct fs_fault fault;
static atomic_bool armed, no_tmpfile, disguised;
static atomic_int calls;
static atomic_long clock_ahead;
static const char *struck = "", *only;
static struct {
    dev_t dev;
    ino_t ino;
    uid_t owner;
    mode_t bits;
} disguise;

void fs_arm(struct fs_fault f)
{
    fault = f;
    struck = "";
    calls = 0;
    armed = true;
}

void fs_only(const char *call)
{
    only = call;
}

int fs_disarm(void)
{
    armed = false;
    return calls;
}

const char *fs_struck(void)
{
    return struck;
}

void fs_without_tmpfile(bool without)
{
    no_tmpfile = without;
}

void fs_set_clock(time_t ahead)
{
    clock_ahead = ahead;
}

/* Counts the call; whether the fault is for it. */
static bool strikes(const char *name)
{
    if (!armed) return false;
    const int at = ++calls;
    if (at > ENDLESS) {
        fprintf(stderr, "fs_shim: %s is call %d: whoever calls this waits for a fault to go away\n", name, at);
        abort();
    }
    if (!fault.nth || at < fault.nth || (fault.times != FS_FOREVER && at >= fault.nth + fault.times)) return false;
    if (only && strcmp(only, name) != 0) return false;
    if (!*struck) struck = name;
    if (fault.kind == FS_KILL) kill(getpid(), SIGKILL);
    return true;
}

static bool fails(const char *name)
{
    if (!strikes(name) || fault.kind != FS_ERROR) return false;
    errno = fault.err;
    return true;
}

/* ---- calls that fail or do not ---- */

#define FS_CALL(result, name, parameters, arguments, failure, passes)                                                  \
    result __real_##name parameters;                                                                                   \
    result __wrap_##name parameters;                                                                                   \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        if (!fails(#name)) return __real_##name arguments;                                                             \
        if (passes) {                                                                                                  \
            (void)__real_##name arguments;                                                                             \
            errno = fault.err;                                                                                         \
        }                                                                                                              \
        return failure;                                                                                                \
    }
#include "abuse/fs_calls.def"
#undef FS_CALL

/* ---- open: a mode that is there when the flags say so, and O_TMPFILE ---- */

static bool has_mode(int flags)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = has_mode(flags) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("open") ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = has_mode(flags) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (fails("openat")) return -1;
    if (no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_openat(dir, path, flags, mode);
}

/* An argument there may be none of: what is passed on is then not looked at. */
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return fails("fcntl") ? -1 : __real_fcntl(fd, command, argument);
}

/*
 * ---- fsync, syncfs: nothing waits for the disk ----
 *
 * Only a machine that loses its power tells whether bytes had arrived, and no test takes that away; but each of ten thousand
 * faults would wait for the disk several times, and by syncfs() for all that others had written too. A descriptor that is not
 * open still fails.
 */

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails("fsync") || __real_fcntl(fd, F_GETFD, NULL) < 0 ? -1 : 0;
}

int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd)
{
    return fails("syncfs") || __real_fcntl(fd, F_GETFD, NULL) < 0 ? -1 : 0;
}

/* ---- bytes ---- */

/* Of a transfer of size bytes: how many, or -1. */
static ssize_t allowed(const char *name, size_t size)
{
    if (!strikes(name)) return (ssize_t)size;
    switch (fault.kind) {
    case FS_SHORT:
        return size < 3 ? (ssize_t)size : 3;
    case FS_ZERO:
        return 0;
    default:
        errno = fault.err;
        return -1;
    }
}

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    const ssize_t n = allowed("read", size);
    return n <= 0 ? n : __real_read(fd, bytes, (size_t)n);
}

ssize_t __real_pread(int fd, void *bytes, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset)
{
    const ssize_t n = allowed("pread", size);
    return n <= 0 ? n : __real_pread(fd, bytes, (size_t)n, offset);
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    const ssize_t n = allowed("write", size);
    return n <= 0 ? n : __real_write(fd, bytes, (size_t)n);
}

/* ---- owners ---- */

int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __real_fstatat(int dir, const char *path, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *path, struct stat *st, int flags);

void fs_disguise(const char *path, uid_t owner, mode_t bits)
{
    struct stat st;
    disguised = path != NULL;
    if (!path) return;
    if (__real_fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) != 0) abort(); /* the test names what it made */
    disguise.dev = st.st_dev;
    disguise.ino = st.st_ino;
    disguise.owner = owner;
    disguise.bits = bits;
}

static int tell(int result, struct stat *st)
{
    if (result == 0 && disguised && st->st_dev == disguise.dev && st->st_ino == disguise.ino) {
        st->st_uid = disguise.owner;
        st->st_mode |= disguise.bits;
    }
    return result;
}

int __wrap_stat(const char *path, struct stat *st)
{
    return fails("stat") ? -1 : tell(__real_stat(path, st), st);
}

int __wrap_fstat(int fd, struct stat *st)
{
    return fails("fstat") ? -1 : tell(__real_fstat(fd, st), st);
}

int __wrap_fstatat(int dir, const char *path, struct stat *st, int flags)
{
    return fails("fstatat") ? -1 : tell(__real_fstatat(dir, path, st, flags), st);
}

/* ---- time ---- */

time_t __real_time(time_t *out);
time_t __wrap_time(time_t *out);
time_t __wrap_time(time_t *out)
{
    const time_t now = __real_time(NULL) + clock_ahead;
    if (out) *out = now;
    return now;
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    const int result = __real_clock_gettime(clock, out);
    if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec += clock_ahead;
    return result;
}

int __real_utimensat(int dir, const char *path, const struct timespec times[2], int flags);
int __wrap_utimensat(int dir, const char *path, const struct timespec times[2], int flags);
int __wrap_utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    if (fails("utimensat")) return -1;
    if (!clock_ahead || !times || times[1].tv_nsec != UTIME_NOW) return __real_utimensat(dir, path, times, flags);
    const struct timespec shifted[2] = { times[0], { .tv_sec = __wrap_time(NULL) } };
    return __real_utimensat(dir, path, shifted, flags);
}
