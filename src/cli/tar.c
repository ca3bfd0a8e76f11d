/*
 * tar.c - owns libarchive. Must not know: bundles.
 */
#include "cli/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/place.h"

/* ---- what goes in ---- */

/* nftw() hands its caller's data to nobody. */
static _Thread_local struct cli_names *found;

static int note(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    if (ftw->level > 0 && (type == FTW_F || type == FTW_D)) cli_names_add(found, path, strlen(path));
    return type == FTW_F || type == FTW_D ? 0 : 1; /* a bundle has nothing else */
}

static int list_files(const char *dir, struct cli_names *out)
{
    found = out;
    errno = 0;
    const int stopped = nftw(dir, note, 16, FTW_PHYS);
    found = NULL;
    cli_names_sort(out);
    if (stopped == 0) return CLI_OK;
    return cli_fail(CLI_FAILED, "cannot archive %s: %s", dir,
                    stopped < 0 ? strerror(errno)
                                : "it holds something that is no file and no folder, or cannot be read");
}

/* ---- writing ---- */

static int fail_to_write(const char *path, int error)
{
    const bool full = error == ENOSPC || error == EDQUOT;
    return cli_fail(CLI_FAILED, "--tar %s cannot be written: %s%s", path, strerror(error),
                    full ? ": free space in its folder" : "");
}

/* Of a call that failed libarchive says no more than that. */
static int fail_archive(struct archive *a, const char *path)
{
    const char *why = archive_error_string(a);
    if (archive_errno(a) > 0) return fail_to_write(path, archive_errno(a));
    return cli_fail(CLI_FAILED, "--tar %s cannot be written: %s", path, why ? why : "unknown error");
}

static int write_content(struct archive *a, const char *tar, const char *path)
{
    char buf[1 << 16];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0) {
        do
            got = read(fd, buf, sizeof buf);
        while (got < 0 && errno == EINTR);
        if (got > 0 && archive_write_data(a, buf, (size_t)got) != got) {
            close(fd);
            return fail_archive(a, tar);
        }
    }
    const int error = errno;
    if (fd >= 0) close(fd);
    return got == 0 ? CLI_OK : cli_fail(CLI_FAILED, "cannot read %s: %s", path, strerror(error));
}

static int write_header(struct archive *a, const char *tar, const char *name, const struct stat *st)
{
    struct archive_entry *entry = archive_entry_new();
    if (!entry) return cli_fail(CLI_FAILED, "out of memory");
    const bool folder = S_ISDIR(st->st_mode);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, folder ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, folder ? 0755 : 0644);
    archive_entry_set_size(entry, folder ? 0 : st->st_size);
    archive_entry_set_mtime(entry, 0, 0);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    const int code = archive_write_header(a, entry) == ARCHIVE_OK ? CLI_OK : fail_archive(a, tar);
    archive_entry_free(entry);
    return code;
}

static int write_file(struct archive *a, const char *tar, const char *path, const char *name)
{
    struct stat st;
    if (lstat(path, &st) != 0) return cli_fail(CLI_FAILED, "cannot read %s: %s", path, strerror(errno));
    CLI_TRY(write_header(a, tar, name, &st));
    return S_ISREG(st.st_mode) ? write_content(a, tar, path) : CLI_OK;
}

/* ustar: names of a bundle are short, and it has no field that varies. */
static int write_files(int fd, const char *tar, const char *dir, const struct cli_names *files)
{
    struct archive *a = archive_write_new();
    if (!a) return cli_fail(CLI_FAILED, "out of memory");
    int code = CLI_OK;
    if (archive_write_set_format_ustar(a) != ARCHIVE_OK || archive_write_open_fd(a, fd) != ARCHIVE_OK)
        code = fail_archive(a, tar);
    for (size_t i = 0; i < files->count && code == CLI_OK; ++i)
        code = write_file(a, tar, files->items[i], files->items[i] + strlen(dir) + 1);
    if (code == CLI_OK && archive_write_close(a) != ARCHIVE_OK) code = fail_archive(a, tar);
    archive_write_free(a);
    return code;
}

/*
 * For everybody to read, as an archive is. A file system with modes of its own (CIFS, vfat, many of FUSE's) refuses others, and
 * the one that it gives will do.
 */
static bool set_mode(int fd)
{
    return fchmod(fd, 0644) == 0 || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
}

/* Beside its place, and moved there when it is whole and on the disk. */
static int write_archive(const char *path, const char *dir, const struct cli_names *files)
{
    char temp[CLI_PLACE_TEMPORARY];
    CLI_TRY(cli_place_temporary(path, temp));
    const int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) return fail_to_write(path, errno);
    int code = write_files(fd, path, dir, files);
    if (code == CLI_OK && (!set_mode(fd) || fsync(fd) != 0 || rename(temp, path) != 0))
        code = fail_to_write(path, errno);
    close(fd);
    if (code != CLI_OK) unlink(temp);
    return code;
}

int cli_tar_check(const char *path)
{
    if (strcmp(path, "-") == 0)
        return cli_fail(CLI_USAGE, "--tar -: is written beside its place, which standard output has not: name a file");
    return cli_place_check("--tar", path);
}

int cli_tar_write(const char *path, const char *dir)
{
    struct cli_names files = { 0 };
    char *plain = cli_strdup(dir); /* as nftw() begins its paths with it: without slashes at the end */
    size_t len = strlen(plain);
    while (len > 1 && plain[len - 1] == '/')
        plain[--len] = '\0';
    int code = list_files(plain, &files);
    if (code == CLI_OK) code = write_archive(path, plain, &files);
    cli_names_free(&files);
    cli_free(plain);
    return code;
}
