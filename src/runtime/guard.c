/*
 * guard.c - owns the locks by which processes take turns at a compile. Must not know: the cache, the compiler.
 *
 * One file for all keys, in this node's memory: $XDG_RUNTIME_DIR/gdn-jit/compile.lock, else
 * /dev/shm/gdn-jit-<uid>/compile.lock; never in the cache directory, which may be on NFS. A turn is a lock (F_OFD_SETLK) on
 * one byte of it, at an offset that is a hash of key and cache directory: no file is left behind for a key, and two keys that
 * share a byte only wait for each other. Such a lock belongs to the open file, so that two contexts of one process exclude
 * each other too, and ends with it: a process that is killed holds nobody up, unless it had forked while it compiled and the
 * child lives on. There is no lock inside the process.
 */
#include "runtime/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/clock.h"
#include "runtime/fsutil.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FIRST_NAP_US = 500, LONGEST_NAP_US = 16000 };

struct gdni_guard {
    int64_t wait_ms; /* 0: no guard */
    const struct gdni_env *env;
    const struct gdni_log *log;
    atomic_flag warned;
};

struct gdni_guard *gdni_guard_create(int32_t configured_ms, const struct gdni_env *env, const struct gdni_log *log)
{
    struct gdni_guard *g = gdni_calloc(1, sizeof *g);
    if (!g) return NULL;
    g->wait_ms = configured_ms < 0 ? 0 : configured_ms > 0 ? configured_ms : (int64_t)env->compile_wait_ms;
    g->env = env;
    g->log = log;
    return g;
}

void gdni_guard_destroy(struct gdni_guard *guard)
{
    gdni_free(guard);
}

/* ---- the file ---- */

/* A folder of this user alone, made if need be; below a directory that others may write to, so judged by what was opened. */
static int open_folder(const char *parent, const char *name, int *out)
{
    struct stat st;
    const int above = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0) return errno;
    int folder = -1, err = gdni_fs_open_folder(above, name, true, 0700, &folder);
    close(above);
    if (err) return err;
    if (fstat(folder, &st) != 0)
        err = errno;
    else if (st.st_uid != geteuid() || st.st_mode & 077)
        err = EPERM;
    if (err) close(folder);
    *out = err ? -1 : folder;
    return err;
}

static int open_lock_folder(const struct gdni_env *env, int *out)
{
    char name[32];
    const char *runtime = env->xdg_runtime_dir;
    if (runtime && *runtime == '/' && open_folder(runtime, "gdn-jit", out) == 0) return 0;
    snprintf(name, sizeof name, "gdn-jit-%u", (unsigned)geteuid());
    return open_folder("/dev/shm", name, out);
}

/* Each turn opens the file anew: the lock is the open file's. */
static int open_lock_file(const struct gdni_env *env, int *out)
{
    int folder;
    const int err = open_lock_folder(env, &folder);
    if (err) return err;
    *out = gdni_fs_off_standard(openat(folder, "compile.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    const int open_err = *out < 0 ? errno : 0;
    close(folder);
    if (!open_err) gdni_fs_mend_mode(*out, 0600); /* with what a umask took the next one could not open it */
    return open_err;
}

/* ---- turns ---- */

static off_t offset_of(const struct gdni_cache_dir *dir, const char *key_hex)
{
    struct stat st = { 0 };
    char text[128];
    if (fstat(dir->fd, &st) != 0) st.st_ino = 0; /* then keys alone tell turns apart */
    const int len = snprintf(text, sizeof text, "%.32s %llx %llx", key_hex, (unsigned long long)st.st_dev,
                             (unsigned long long)st.st_ino);
    return (off_t)(XXH3_64bits(text, (size_t)len) >> 2); /* below 2^62: an offset that every file system takes */
}

static void nap(int64_t us)
{
    const struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&time, NULL);
}

static int try_lock(int fd, off_t offset)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1 };
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

int64_t gdni_guard_deadline(const struct gdni_guard *guard)
{
    return gdni_now_us() + guard->wait_ms * 1000;
}

/* By small naps: the call that would sleep in the kernel has no time-out of its own. */
static int lock_in_time(const struct gdni_guard *g, int fd, off_t offset, const char *key_hex, int64_t deadline,
                        bool *waited)
{
    int64_t length = FIRST_NAP_US, left = deadline - gdni_now_us();
    int err = try_lock(fd, offset);
    *waited = err == EAGAIN || err == EACCES;
    if (*waited)
        gdni_log(g->log, GDN_LOG_INFO, "compile of key %s: another process is at it, waiting for it up to %lld ms",
                 key_hex, left > 0 ? (long long)(left + 999) / 1000 : 0LL);
    while ((err == EAGAIN || err == EACCES || err == EINTR) && gdni_now_us() < deadline) {
        nap(length);
        length = length * 2 < LONGEST_NAP_US ? length * 2 : LONGEST_NAP_US;
        err = try_lock(fd, offset);
    }
    return err;
}

int gdni_guard_enter(struct gdni_guard *guard, const struct gdni_cache_dir *dir, const char *key_hex, int64_t deadline,
                     bool *waited)
{
    int fd = -1;
    *waited = false;
    if (guard->wait_ms == 0 || dir->fd < 0) return GDNI_GUARD_NONE; /* what is kept in memory helps no other process */
    int err = open_lock_file(guard->env, &fd);
    if (!err) err = lock_in_time(guard, fd, offset_of(dir, key_hex), key_hex, deadline, waited);
    if (!err) return fd;
    if (fd >= 0) close(fd);
    if (err == EAGAIN || err == EACCES)
        gdni_log(guard->log, GDN_LOG_INFO, "compile of key %s: the other process took too long", key_hex);
    else if (!atomic_flag_test_and_set(&guard->warned))
        gdni_log(guard->log, GDN_LOG_WARN, "processes cannot take turns at compiling: %s; each compiles for itself",
                 gdni_fs_error(err));
    return GDNI_GUARD_NONE;
}

/* Unlocked first: a child that was forked meanwhile has the open file too, and with it would keep the turn. */
void gdni_guard_leave(int turn)
{
    struct flock all = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
    if (turn == GDNI_GUARD_NONE) return;
    (void)fcntl(turn, F_OFD_SETLK, &all);
    close(turn);
}
