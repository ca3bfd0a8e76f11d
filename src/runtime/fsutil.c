/*
 * fsutil.c - owns how bytes get from and to a file system. Must not know: what the bytes mean.
 * No lock; no descriptor outlives a failure.
 */
#include "runtime/fsutil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

const char *gdni_fs_error(int err)
{
    const char *words = strerrordesc_np(err);
    return words ? words : "unknown error";
}

/* ---- modes ---- */

/*
 * That mode, whatever the umask. Where a file system has modes of its own (CIFS, vfat, many of FUSE's) and refuses others, the
 * one that it gives will do unless more may write than were to.
 */
static int set_mode(int fd, mode_t mode)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return errno;
    if ((st.st_mode & 07777) == mode || fchmod(fd, mode) == 0) return 0;
    const int err = errno;
    const bool refused = err == EPERM || err == EOPNOTSUPP || err == ENOSYS;
    return refused && !(st.st_mode & ~mode & (S_IWGRP | S_IWOTH)) ? 0 : err;
}

/* ---- temporary names ---- */

/* Unlike any name that another process picks, on this host or another; O_EXCL and EEXIST settle what is left to chance. */
static void temp_name(char name[GDNI_FS_TEMP_NAME])
{
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != (ssize_t)sizeof bits) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        bits =
            (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 16 ^ (uint64_t)(uintptr_t)name;
    }
    snprintf(name, GDNI_FS_TEMP_NAME, GDNI_FS_TEMP_PREFIX "%016llx", (unsigned long long)bits);
}

/* ---- folders ---- */

/*
 * A folder that is new. A umask that takes bits of its owner's would leave one that nobody can enter, in this process or a
 * later one: it has them before it is opened. Where that is refused, opening it tells.
 */
static int make_folder(int dir, const char *name, mode_t mode)
{
    struct stat st;
    if (mkdirat(dir, name, mode) != 0) return errno;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (mode & ~st.st_mode & S_IRWXU))
        fchmodat(dir, name, (st.st_mode | (mode & S_IRWXU)) & 07777, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int make_one(const char *path, mode_t mode)
{
    const int err = make_folder(AT_FDCWD, path, mode);
    return err == EEXIST ? 0 : err;
}

int gdni_fs_make_path(const char *path, mode_t mode)
{
    char *copy = gdni_strdup(path);
    if (!copy) return ENOMEM;
    int err = 0, refused = 0;
    for (char *p = copy + 1; *copy && *p && !err; ++p) {
        if (*p != '/') continue;
        *p = '\0';
        err = make_one(copy, mode);
        /* A parent that we may not make may be there all the same. */
        if (err == EACCES || err == EROFS || err == EPERM) refused = err, err = 0;
        *p = '/';
    }
    if (!err) err = make_one(copy, mode);
    gdni_free(copy);
    return err == ENOENT && refused ? refused : err; /* what is not there is what we might not make */
}

void gdni_fs_mend_mode(int fd, mode_t mode)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (mode & ~st.st_mode)) set_mode(fd, mode);
}

int gdni_fs_open_folder(int dir, const char *name, bool create, mode_t mode, int *out)
{
    int err = create ? make_folder(dir, name, mode) : EEXIST;
    const bool made = !err;
    if (err && err != EEXIST) return err;
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    err = made ? set_mode(fd, mode) : 0; /* umask took bits that a group which shares the cache needs */
    if (err) {
        close(fd);
        return err;
    }
    if (create && !made) gdni_fs_mend_mode(fd, mode);
    *out = fd;
    return 0;
}

int gdni_fs_make_temp_folder(int dir, mode_t mode, char name[GDNI_FS_TEMP_NAME], int *out)
{
    temp_name(name);
    int err = make_folder(dir, name, mode);
    if (err) return err;
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    err = fd < 0 ? errno : set_mode(fd, mode);
    if (err && fd >= 0) close(fd);
    if (err) unlinkat(dir, name, AT_REMOVEDIR);
    if (!err) *out = fd;
    return err;
}

static DIR *open_list(int dir, const char *name)
{
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0) close(fd);
    return list;
}

/* The next name but "." and ".."; NULL at the end. */
static const char *next_name(DIR *list)
{
    const struct dirent *e;
    do
        e = readdir(list);
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e ? e->d_name : NULL;
}

int gdni_fs_is_empty(int dir, const char *name)
{
    DIR *list = open_list(dir, name);
    if (!list) return errno;
    const bool empty = !next_name(list);
    closedir(list);
    return empty ? 0 : ENOTEMPTY;
}

void gdni_fs_remove_tree(int dir, const char *name)
{
    DIR *list = open_list(dir, name);
    if (!list) return;
    for (const char *inside; (inside = next_name(list));)
        if (unlinkat(dirfd(list), inside, 0) != 0 && (errno == EISDIR || errno == EPERM))
            gdni_fs_remove_tree(dirfd(list), inside);
    closedir(list);
    unlinkat(dir, name, AT_REMOVEDIR);
}

/* ---- read ---- */

int gdni_fs_open_file(int dir, const char *name, int *out, struct stat *st)
{
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno == ENXIO ? EINVAL : errno; /* ENXIO: a socket or a device */
    int err = fstat(fd, st) == 0 ? 0 : errno;
    if (!err && !S_ISREG(st->st_mode)) err = EINVAL;
    if (err) {
        close(fd);
        return err;
    }
    *out = fd;
    return 0;
}

int gdni_fs_read(int fd, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = read(fd, (char *)bytes + done, size - done);
        if (n == 0) return ENODATA; /* not EIO, which a disk says of what may be a good file */
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) done += (size_t)n;
    }
    return 0;
}

/* ---- remove ---- */

static bool is_same(const struct stat *st, const struct stat *seen)
{
    if (seen->st_ino == 0) return !S_ISREG(st->st_mode);
    return st->st_ino == seen->st_ino && st->st_dev == seen->st_dev && st->st_size == seen->st_size &&
           st->st_mtim.tv_sec == seen->st_mtim.tv_sec && st->st_mtim.tv_nsec == seen->st_mtim.tv_nsec;
}

int gdni_fs_remove_same(int dir, const char *name, const struct stat *seen)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno;
    if (!is_same(&st, seen)) return ESTALE;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    char temp[GDNI_FS_TEMP_NAME];
    temp_name(temp);
    if (renameat(dir, name, dir, temp) != 0) return errno;
    /* Between the look and the rename a good file may have come: it goes back. */
    if (fstatat(dir, temp, &st, AT_SYMLINK_NOFOLLOW) == 0 && !is_same(&st, seen))
        return renameat(dir, temp, dir, name) == 0 ? ESTALE : errno;
    return unlinkat(dir, temp, 0) == 0 ? 0 : errno;
}

/* ---- write ---- */

int gdni_fs_off_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int err = errno;
    close(fd);
    errno = err;
    return copy;
}

static int write_bytes(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n == 0) return EIO; /* no progress, and no word why: some file systems do that rather than fail */
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) done += (size_t)n;
    }
    return 0;
}

/*
 * Under RLIMIT_FSIZE a write that passes the limit is a signal first, and so is one into a pipe that nobody reads: that would
 * end the embedder's process over a cache entry, or a line of a record. They are blocked in this thread for the write, and the
 * one that our write raised is taken off again.
 */
struct quiet {
    sigset_t before, pending;
};

static bool begin_quiet(struct quiet *q)
{
    sigset_t raised;
    sigemptyset(&raised);
    sigaddset(&raised, SIGXFSZ);
    sigaddset(&raised, SIGPIPE);
    sigpending(&q->pending);
    return pthread_sigmask(SIG_BLOCK, &raised, &q->before) == 0;
}

static void end_quiet(const struct quiet *q, int err)
{
    const int raised = err == EFBIG ? SIGXFSZ : err == EPIPE ? SIGPIPE : 0;
    if (raised && sigismember(&q->pending, raised) != 1) {
        const struct timespec now = { 0 };
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, raised);
        while (sigtimedwait(&only, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

static int write_quietly(int fd, const void *bytes, size_t size)
{
    struct quiet quiet;
    if (!begin_quiet(&quiet)) return EAGAIN;
    const int err = write_bytes(fd, bytes, size);
    end_quiet(&quiet, err);
    return err;
}

int gdni_fs_append(int fd, const void *bytes, size_t size, size_t *written)
{
    struct quiet quiet;
    *written = 0;
    if (!begin_quiet(&quiet)) return EAGAIN;
    ssize_t n;
    do
        n = write(fd, bytes, size);
    while (n < 0 && errno == EINTR);
    const int err = n < 0 ? errno : 0;
    if (n > 0) *written = (size_t)n;
    end_quiet(&quiet, err);
    return err;
}

/* ---- publish ---- */

static int fill(int fd, const void *bytes, size_t size, mode_t mode, unsigned flags)
{
    int err = write_quietly(fd, bytes, size);
    if (!err && !(flags & GDNI_FS_UMASK)) err = set_mode(fd, mode); /* a cache's mode is not of the moment */
    if (!err && fsync(fd) != 0) err = errno;
    return err;
}

static int move_into_place(int dir, const char *temp, const char *name)
{
    if (renameat(dir, temp, dir, name) == 0) return 0;
    const int err = errno;
    unlinkat(dir, temp, 0);
    return err;
}

/* Links an unnamed file. /proc/self/fd, because AT_EMPTY_PATH needs a capability. */
static int link_fd(int fd, int dir, const char *name)
{
    char source[32];
    snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, source, dir, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* What O_TMPFILE and linkat say where they do not work; the named way may. */
static bool wants_named(int err)
{
    return err == EOPNOTSUPP || err == EISDIR || err == EINVAL || err == ENOSYS || err == ENOENT || err == EXDEV;
}

static int publish_unnamed(int dir, const char *name, const void *bytes, size_t size, mode_t mode, unsigned flags)
{
    const bool replace = flags & GDNI_FS_REPLACE;
    const int fd = gdni_fs_off_standard(openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode));
    if (fd < 0) return errno;
    int err = fill(fd, bytes, size, mode, flags);
    if (!err && !replace) err = link_fd(fd, dir, name);
    if (!err && replace) { /* nothing links over a name: by way of a temporary one */
        char temp[GDNI_FS_TEMP_NAME];
        temp_name(temp);
        err = link_fd(fd, dir, temp);
        if (!err) err = move_into_place(dir, temp, name);
    }
    close(fd);
    return err;
}

static int publish_named(int dir, const char *name, const void *bytes, size_t size, mode_t mode, unsigned flags)
{
    char temp[GDNI_FS_TEMP_NAME];
    int fd, tries = 0;
    do {
        temp_name(temp);
        fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EEXIST && ++tries < 16);
    if (fd < 0) return errno;
    fd = gdni_fs_off_standard(fd);
    int err = fd < 0 ? errno : fill(fd, bytes, size, mode, flags);
    if (fd >= 0 && close(fd) != 0 && !err) err = errno; /* NFS says here that the disk is full */
    if (!err) return move_into_place(dir, temp, name);
    unlinkat(dir, temp, 0);
    return err;
}

/* A link, a device, a folder: whoever put it there did not mean it to go. */
static bool is_no_file(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode);
}

int gdni_fs_publish(int dir, const char *name, const void *bytes, size_t size, mode_t mode, unsigned flags)
{
    if (flags & GDNI_FS_REPLACE && is_no_file(dir, name)) return EEXIST;
    if (!(flags & GDNI_FS_NAMED)) {
        const int err = publish_unnamed(dir, name, bytes, size, mode, flags);
        if (!wants_named(err)) return err;
    }
    return publish_named(dir, name, bytes, size, mode, flags);
}
