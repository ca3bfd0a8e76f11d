/*
 * test_cache_publish.c - an entry appears whole or not at all, and a disk that does not want it costs nobody anything.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/fsutil.h"
#include "support/fake_host.h"
#include "support/store.h"

#define TAG "0a1b2c3d"

static char *scratch;
static struct gdni_unit unit;
static struct gdni_program *program;

static void set_up(void)
{
    scratch = store_scratch();
    unit = store_unit("sm_90a", "a");
    program = store_program(&unit);
}

static void tear_down(void)
{
    gdni_program_release(program);
    if (seteuid(0) == 0 && setegid(0) != 0) abort();
    store_remove(scratch);
}

TestSuite(cache_publish, .init = set_up, .fini = tear_down);

/* Publishing fails twice: both are counted, one is told, and nothing is left. */
static void expect_unpublished(const char *dir, const char *words)
{
    struct store_cache s;
    store_cache_open(&s, dir, NULL, 0);
    cr_assert_not_null(gdni_cache_user_dir(s.cache)->path, "%s", gdni_cache_user_dir(s.cache)->problem);
    gdni_cache_publish(s.cache, program, TAG, false);
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(s.counters.publish_failures, 2u);
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], words), "\"%s\" expected in: %s", words, s.lines.last[GDN_LOG_WARN]);
    cr_assert_eq(store_count_files(dir), 0);
    store_cache_close(&s);
}

Test(cache_publish, a_directory_that_cannot_be_written_is_one_warning)
{
    chmod(scratch, 0500);
    store_drop_root(scratch);
    expect_unpublished(scratch, "Permission denied");
}

/* "Operation not permitted" would send its reader to the kernel; it is this library that does not believe the folder. */
Test(cache_publish, a_folder_that_others_may_write_to_is_named_with_its_remedy)
{
    mkdir(store_path(scratch, "v2"), 0700);
    mkdir(store_path(scratch, "v2/sm_90a"), 0700);
    cr_assert_eq(chmod(store_path(scratch, "v2/sm_90a"), 0775), 0);
    expect_unpublished(scratch, "its place is in a folder that others may write to (v2/sm_90a, mode 0775): chown it to this "
                                "user and chmod go-w it, or set GDN_CTX_SHARED_CACHE if a group shares it");
}

Test(cache_publish, a_read_only_file_system_is_one_warning)
{
    const char *dir = store_path(scratch, "mount");
    mkdir(dir, 0700);
    if (geteuid() != 0 || mount("gdn", dir, "tmpfs", MS_RDONLY, "size=64k,mode=0700") != 0)
        cr_skip_test("a file system cannot be mounted here: %s", strerror(errno));
    expect_unpublished(dir, "Read-only file system");
    umount(dir);
}

Test(cache_publish, a_full_disk_is_one_warning_and_leaves_nothing)
{
    const char *dir = store_path(scratch, "mount");
    mkdir(dir, 0700);
    if (geteuid() != 0 || mount("gdn", dir, "tmpfs", 0, "size=64k,mode=0700") != 0)
        cr_skip_test("a file system cannot be mounted here: %s", strerror(errno));
    static char ballast[1 << 20];
    const int fd = open(store_path(scratch, "mount/ballast"), O_WRONLY | O_CREAT, 0600);
    cr_assert_lt(write(fd, ballast, sizeof ballast), (ssize_t)sizeof ballast);
    close(fd);
    struct store_cache s;
    store_cache_open(&s, dir, NULL, 0);
    gdni_cache_publish(s.cache, program, TAG, false);
    gdni_cache_publish(s.cache, program, TAG, true);
    cr_assert_eq(s.counters.publish_failures, 2u);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "No space left"), "%s", s.lines.last[GDN_LOG_WARN]);
    cr_assert_eq(store_count_files(dir), 1, "something besides the ballast is left");
    store_cache_close(&s);
    umount(dir);
}

/* In a process of its own; waiting: the process has such a signal waiting already, which is the embedder's. */
static void publish_past_limit(bool waiting)
{
    const struct rlimit tight = { 100, 100 };
    const pid_t child = fork();
    if (child == 0) {
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGXFSZ);
        if (waiting && (pthread_sigmask(SIG_BLOCK, &blocked, NULL) != 0 || raise(SIGXFSZ) != 0)) _exit(2);
        setrlimit(RLIMIT_FSIZE, &tight);
        struct store_cache s;
        store_cache_open(&s, scratch, NULL, 0);
        gdni_cache_publish(s.cache, program, TAG, false);
        sigset_t pending;
        sigpending(&pending);
        _exit(s.counters.publish_failures == 1 && sigismember(&pending, SIGXFSZ) == (int)waiting ? 42 : 1);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
    cr_assert_eq(WEXITSTATUS(status), 42, "waiting: %d", waiting);
    cr_assert_eq(store_count_files(scratch), 0);
}

/* RLIMIT_FSIZE kills by a signal whoever writes past it, unless he expects it. */
Test(cache_publish, a_limit_on_file_sizes_does_not_end_the_process)
{
    cr_assert_eq(signal(SIGXFSZ, SIG_DFL), SIG_DFL);
    publish_past_limit(false);
    publish_past_limit(true);
}

Test(cache_publish, who_comes_second_leaves_the_first_entry_alone)
{
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    gdni_cache_publish(s.cache, program, TAG, false);
    char *path = store_only_entry(scratch);
    struct stat before, after;
    cr_assert_eq(stat(path, &before), 0);
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_eq(before.st_ino, after.st_ino);
    cr_assert_eq(s.counters.publish_failures, 0u);
    gdni_cache_publish(s.cache, program, TAG, true);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_neq(before.st_ino, after.st_ino, "replace did not replace");
    cr_assert_eq(store_count_files(scratch), 1);
    store_cache_close(&s);
    free(path);
}

Test(cache_publish, what_is_no_file_and_has_an_entrys_name_is_told_of)
{
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    gdni_cache_publish(s.cache, program, TAG, false);
    char *path = store_only_entry(scratch);
    cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0, "%s", path);
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(s.counters.publish_failures, 1u);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "could not be kept"), "%s", s.lines.last[GDN_LOG_WARN]);
    store_cache_close(&s);
    cr_assert_eq(rmdir(path), 0);
    free(path);
}

Test(cache_publish, entries_are_writable_for_others_only_where_the_cache_is_shared_on_purpose)
{
    static const struct {
        unsigned root, flags, entry;
    } cases[] = { { 0700, 0, 0600 },
                  { 0755, 0, 0644 },
                  { 0775, 0, 0644 },
                  { 01777, 0, 0644 },
                  { 0775, GDN_CTX_SHARED_CACHE, 0664 } };
    umask(077);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char *dir = store_scratch();
        chmod(dir, cases[i].root);
        struct store_cache s;
        store_cache_open_as(&s, dir, cases[i].flags);
        gdni_cache_publish(s.cache, program, TAG, false);
        char *path = store_only_entry(dir);
        struct stat st;
        cr_assert_eq(stat(path, &st), 0);
        cr_assert_eq(st.st_mode & 0777, cases[i].entry, "root %o: entry %o", cases[i].root, st.st_mode & 0777);
        store_cache_close(&s);
        store_remove(dir);
        free(path);
    }
}

/* Who was killed between making a folder and giving it its mode must not shut the group out for good. */
Test(cache_publish, a_folder_of_ones_own_that_lacks_bits_gets_them)
{
    static const char *const folders[] = { "v2", "v2/sm_90a" };
    struct store_cache s;
    struct stat st;
    chmod(scratch, 02775);
    umask(077);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; ++i) {
        mkdir(store_path(scratch, folders[i]), 0777); /* the umask has its bits */
        cr_assert(stat(store_path(scratch, folders[i]), &st) == 0 && (st.st_mode & 0777) == 0700);
    }
    store_cache_open_as(&s, scratch, GDN_CTX_SHARED_CACHE);
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(s.counters.publish_failures, 0u, "%s", s.lines.last[GDN_LOG_WARN]);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; ++i) {
        cr_assert_eq(stat(store_path(scratch, folders[i]), &st), 0);
        cr_assert_eq(st.st_mode & 07777, 02775u, "%s: %o", folders[i], (unsigned)st.st_mode & 07777);
    }
    chmod(store_path(scratch, "v2"), 02777); /* more than that is the owner's to give */
    gdni_cache_publish(s.cache, program, TAG, true);
    cr_assert(stat(store_path(scratch, "v2"), &st) == 0 && (st.st_mode & 07777) == 02777);
    store_cache_close(&s);
}

/* Both ways that a file can come to be, replacing and not. */
Test(cache_publish, with_and_without_unnamed_files_the_bytes_arrive_whole)
{
    static const unsigned ways[] = { 0, GDNI_FS_NAMED, GDNI_FS_REPLACE, GDNI_FS_REPLACE | GDNI_FS_NAMED };
    static char bytes[300000];
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (char)(i * 7 + i / 251);
    const int dir = open(scratch, O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
        cr_assert_eq(gdni_fs_publish(dir, "entry", bytes, sizeof bytes - i, 0640, ways[i]), 0, "way %u", ways[i]);
        size_t size;
        char *read = store_read(store_path(scratch, "entry"), &size);
        cr_assert_eq(size, sizeof bytes - i, "way %u", ways[i]);
        cr_assert_arr_eq(read, bytes, size, "way %u", ways[i]);
        cr_assert_eq(store_count_files(scratch), 1, "way %u left a temporary file", ways[i]);
        free(read);
    }
    cr_assert_eq(gdni_fs_publish(dir, "entry", bytes, 10, 0640, 0), EEXIST);
    close(dir);
}

/* Stands in the place of libc's: when a file is whole but for its name, somebody prints. */
static bool noisy;
int fsync(int fd)
{
    for (int i = 0; noisy && i < 3; ++i)
        if (write(i, "noise\n", 6) < 0) continue;
    return (int)syscall(SYS_fsync, fd);
}

/* 0: what was published is what lies there. */
static int publish_among_noise(unsigned way)
{
    static const char bytes[] = "an entry";
    for (int i = 0; i < 3; ++i)
        close(i);
    noisy = true;
    const int dir = open(scratch, O_PATH | O_DIRECTORY); /* takes one of the three, and cannot be written to */
    if (dir > 2 || gdni_fs_publish(dir, "entry", bytes, sizeof bytes, 0600, way) != 0) return 1;
    size_t size;
    char *read = store_read(store_path(scratch, "entry"), &size);
    return size == sizeof bytes && memcmp(read, bytes, size) == 0 ? 0 : 2;
}

/* Some supervisors start a process so. */
Test(cache_publish, what_is_printed_to_a_closed_standard_descriptor_is_in_no_entry)
{
    static const unsigned ways[] = { 0, GDNI_FS_NAMED, GDNI_FS_REPLACE, GDNI_FS_REPLACE | GDNI_FS_NAMED };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) _exit(publish_among_noise(ways[i]));
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect_eq(status, 0, "way %u: %x", ways[i], (unsigned)status);
        unlink(store_path(scratch, "entry"));
    }
}

Test(cache_publish, killed_at_any_moment_leaves_no_visible_entry_that_is_not_whole)
{
    struct gdni_key key = store_key(&unit);
    for (int round = 0; round < 60; ++round) {
        char *dir = store_scratch();
        const pid_t child = fork();
        if (child == 0) {
            struct store_cache s;
            store_cache_open(&s, dir, NULL, 0);
            for (bool replace = false;; replace = true) gdni_cache_publish(s.cache, program, TAG, replace);
        }
        usleep((useconds_t)(round * 150));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        struct store_cache s;
        struct gdni_program *found;
        store_cache_open(&s, dir, NULL, 0);
        cr_assert_eq(gdni_cache_find_user(s.cache, &key, "sm_90a", TAG, false, &found), GDN_OK);
        cr_assert_eq(s.counters.corrupt, 0u, "round %d: %s", round, s.lines.last[GDN_LOG_WARN]);
        gdni_program_release(found);
        gdni_cache_publish(s.cache, program, TAG, false);
        cr_assert_eq(gdni_cache_find_user(s.cache, &key, "sm_90a", TAG, false, &found), GDN_OK);
        cr_assert_not_null(found, "round %d: the cache does not take an entry after the crash", round);
        gdni_program_release(found);
        store_cache_close(&s);
        store_remove(dir);
    }
    gdni_key_free(&key);
}

Test(cache_publish, what_cannot_be_an_entry_is_not_kept)
{
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    ((uint8_t *)program->cubin)[0] = 'X'; /* no ELF file: every reader would refuse it */
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(s.counters.publish_failures, 1u);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "ELF"), "%s", s.lines.last[GDN_LOG_WARN]);
    cr_assert_eq(store_count_files(scratch), 0);
    store_cache_close(&s);
}

Test(cache_publish, memory_only_publishes_nothing_and_says_nothing)
{
    struct store_cache s;
    store_cache_open(&s, "", NULL, 0);
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(s.counters.publish_failures, 0u);
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 0);
    store_cache_close(&s);
}

Test(cache_publish, running_out_of_memory_is_a_publish_failure)
{
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    gdni_mem_fail_after(0);
    gdni_cache_publish(s.cache, program, TAG, false);
    gdni_mem_fail_after(-1);
    cr_assert_eq(s.counters.publish_failures, 1u);
    store_cache_close(&s);
    cr_assert(fake_no_leaks());
}

Test(cache_publish, a_directory_removed_under_the_context_is_a_publish_failure)
{
    const char *dir = store_path(scratch, "cache");
    struct store_cache s;
    store_cache_open(&s, dir, NULL, 0);
    cr_assert_eq(rmdir(dir), 0);
    gdni_cache_publish(s.cache, program, TAG, false);
    cr_assert_eq(s.counters.publish_failures, 1u);
    store_cache_close(&s);
}
