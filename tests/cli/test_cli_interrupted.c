/*
 * test_cli_interrupted.c - a read or a write that a signal interrupts is made again, and a disk that is full, takes a part of
 * a line or has modes of its own is met as what it is. This program's own read(), write() and fchmod() stand before the C
 * library's.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/tar.h"
#include "cli/tune_journal.h"

static int interrupts; /* calls that fail before one does its work */
static size_t most;    /* bytes that the next write takes; 0: all */
static bool is_full;   /* the disk, for everybody: no write takes anything */
static int mode_error; /* of every fchmod(); 0: it does its work */

static bool is_interrupted(void)
{
    if (!interrupts) return false;
    --interrupts;
    errno = EINTR;
    return true;
}

ssize_t read(int fd, void *bytes, size_t size)
{
    return is_interrupted() ? -1 : syscall(SYS_read, fd, bytes, size);
}

/* For libarchive too, which is not part of this program. */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *bytes, size_t size)
{
    const size_t taken = most && most < size ? most : size;
    if (is_interrupted()) return -1;
    if (is_full) {
        errno = ENOSPC;
        return -1;
    }
    most = 0;
    return syscall(SYS_write, fd, bytes, taken);
}

int fchmod(int fd, mode_t mode)
{
    if (!mode_error) return (int)syscall(SYS_fchmod, fd, mode);
    errno = mode_error;
    return -1;
}

static char room[] = "/tmp/gdn-interrupted-XXXXXX", path[64];
static char text[8192]; /* of the file that was read last */

static const char *in_room(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", room, name);
    return path;
}

static const char *content(const char *name)
{
    FILE *file = fopen(in_room(name), "r");
    cr_assert_not_null(file, "%s: %m", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static struct cli_journal *begin(void)
{
    struct cli_journal *journal;
    cr_assert_not_null(mkdtemp(room));
    cr_assert_not_null(freopen(in_room("stderr"), "w", stderr));
    setvbuf(stderr, NULL, _IOFBF, 4096); /* what is said is no write of the journal's */
    cr_assert_eq(cli_journal_open(&journal, in_room("t.json"), "NVIDIA H200"), CLI_OK, "%s", cli_error());
    return journal;
}

static void end(struct cli_journal *journal)
{
    cli_journal_close(journal, true);
    unlink(in_room("stderr"));
    rmdir(room);
}

Test(cli_interrupted, a_journal_goes_on_after_a_signal)
{
    struct cli_journal *journal = begin();
    interrupts = 2;
    cli_journal_add(journal, CLI_JOURNAL_OK, "a job", "{}", NULL);
    cr_expect_eq(interrupts, 0);
    cli_journal_add(journal, CLI_JOURNAL_DONE, "a job", NULL, NULL);
    cr_expect(strstr(content("t.json.journal"),
                     "\n{\"what\":\"ok\",\"of\":\"a job\",\"params\":\"{}\"}\n{\"what\":\"done\""),
              "%s", text);
    cr_expect_str_eq(content("stderr"), "");
    end(journal);
}

Test(cli_interrupted, a_line_that_is_there_in_part_is_told_as_that)
{
    struct cli_journal *journal = begin();
    most = 10;
    errno = EISDIR; /* of another call: no reason of this one */
    cli_journal_add(journal, CLI_JOURNAL_OK, "a job", "{}", NULL);
    cli_journal_add(journal, CLI_JOURNAL_DONE, "a job", NULL, NULL);
    fflush(stderr);
    cr_expect(strstr(content("stderr"),
                     "t.json.journal cannot be written (the disk took a part of the line only; free space "
                     "there): a run that is killed begins anew\n"),
              "%s", text);
    cr_expect_null(strstr(content("t.json.journal"), "done"), "written on: %s", text);
    cr_expect(cli_journal_has(journal, CLI_JOURNAL_DONE, "a job", NULL), "forgotten");
    end(journal);
}

static char tar[64];

/* A folder with a file, to be archived. */
static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(room));
    cr_assert_eq(mkdir(in_room("dir"), 0700), 0);
    FILE *file = fopen(in_room("dir/file"), "w");
    cr_assert(file && fputs("words that are archived", file) >= 0 && fclose(file) == 0);
    snprintf(tar, sizeof tar, "%s/t.tar", room);
}

/* Fails when something is left beside the folder and the archive. */
static void remove_folder(void)
{
    unlink(tar);
    unlink(in_room("dir/file"));
    rmdir(in_room("dir"));
    cr_expect_eq(rmdir(room), 0, "something is left: %m");
}

Test(cli_interrupted, an_archive_is_whole_after_a_signal)
{
    struct stat st;
    make_folder();
    interrupts = 2;
    cr_expect_eq(cli_tar_write(tar, in_room("dir")), CLI_OK, "%s", cli_error());
    cr_expect_eq(interrupts, 0);
    cr_expect(stat(tar, &st) == 0 && st.st_size >= 1024);
    remove_folder();
}

Test(cli_interrupted, a_full_disk_leaves_the_archive_that_was_there_and_no_temporary)
{
    make_folder();
    FILE *file = fopen(tar, "w");
    cr_assert(file && fputs("of before", file) >= 0 && fclose(file) == 0);
    is_full = true;
    const int code = cli_tar_write(tar, in_room("dir"));
    is_full = false;
    cr_expect_eq(code, CLI_FAILED);
    cr_expect(strstr(cli_error(), tar) && strstr(cli_error(), " cannot be written: No space left on device: free space in"),
              "%s", cli_error());
    cr_expect_str_eq(content("t.tar"), "of before");
    remove_folder();
}

/* CIFS, vfat and many of FUSE's, as a folder that a host and a container share may be. */
Test(cli_interrupted, a_file_system_that_keeps_its_own_modes_takes_an_archive)
{
    static const int refusals[] = { EPERM, EOPNOTSUPP, ENOSYS };
    struct stat st;
    make_folder();
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; ++i) {
        mode_error = refusals[i];
        cr_expect_eq(cli_tar_write(tar, in_room("dir")), CLI_OK, "%s", cli_error());
        cr_expect(stat(tar, &st) == 0 && st.st_size >= 1024);
        unlink(tar);
    }
    mode_error = EIO;
    cr_expect_eq(cli_tar_write(tar, in_room("dir")), CLI_FAILED, "no refusal, but a failure");
    mode_error = 0;
    remove_folder();
}
