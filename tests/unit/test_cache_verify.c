/*
 * test_cache_verify.c - verify finds what is damaged, prune removes what was asked for, and neither takes anything else.
 */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/cache_file.h"
#include "runtime/nvrtc.h"
#include "support/fake_host.h"
#include "support/store.h"

#define TAG "0a1b2c3d"
enum { ENTRIES = 6, DAY = 86400 };

static char *scratch;
static gdn_ctx *ctx;
static char paths[ENTRIES][1024];
static uint64_t entry_bytes;

static void publish(const char *source, const char *arch, const char *tag)
{
    struct store_cache s;
    struct gdni_unit unit = store_unit(arch, source);
    struct gdni_program *program = store_program(&unit);
    store_cache_open(&s, scratch, NULL, 0);
    gdni_cache_publish(s.cache, program, tag, false);
    cr_assert_eq(s.counters.publish_failures, 0u, "%s", s.lines.last[GDN_LOG_WARN]);
    store_cache_close(&s);
    gdni_program_release(program);
}

static void set_age(const char *path, time_t seconds)
{
    store_set_mtime(path, time(NULL) - seconds);
}

static const char *path_of(const char *source, const char *arch, const char *tag)
{
    struct gdni_unit unit = store_unit(arch, source);
    struct gdni_key key = store_key(&unit);
    char name[128];
    snprintf(name, sizeof name, "v2/%s/%.2s/%s.%s.gdnk", arch, key.hex, key.hex, tag);
    gdni_key_free(&key);
    return store_path(scratch, name);
}

/* Six entries of one size; the i-th was last used 6 - i days ago. */
static void set_up(void)
{
    static const char sources[ENTRIES][2] = { "a", "b", "c", "d", "e", "f" };
    struct stat st;
    scratch = store_scratch();
    for (int i = 0; i < ENTRIES; ++i) {
        publish(sources[i], "sm_90a", TAG);
        snprintf(paths[i], sizeof paths[i], "%s", path_of(sources[i], "sm_90a", TAG));
        set_age(paths[i], (ENTRIES - i) * DAY);
    }
    cr_assert_eq(stat(paths[0], &st), 0);
    entry_bytes = (uint64_t)st.st_size;
    ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
}

static void tear_down(void)
{
    gdn_ctx_destroy(ctx);
    if (seteuid(0) == 0 && setegid(0) != 0) abort();
    store_remove(scratch);
    cr_assert(fake_no_leaks());
}

TestSuite(cache_verify, .init = set_up, .fini = tear_down);

struct seen {
    int calls, stop_at;
    char problems[512], paths[8192];
};

static int see(void *user, const gdn_cache_entry *e)
{
    struct seen *seen = user;
    cr_assert_eq(e->struct_size, sizeof *e);
    cr_assert_eq(e->valid, *e->problem == '\0');
    if (e->valid) cr_assert_str_eq(e->options, STORE_OPTIONS);
    snprintf(seen->problems + strlen(seen->problems), sizeof seen->problems - strlen(seen->problems), "%s\n", e->problem);
    snprintf(seen->paths + strlen(seen->paths), sizeof seen->paths - strlen(seen->paths), "%s\n", e->path);
    return ++seen->calls == seen->stop_at ? 7 : 0;
}

static gdn_cache_report verify(uint32_t flags, struct seen *seen)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    cr_assert_eq(gdn_cache_verify(ctx, NULL, flags, see, seen, &report), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq((uint64_t)seen->calls, report.damaged);
    return report;
}

#define EXPECT_REPORT(r, entries_, bytes_, damaged_, removed_, removed_bytes_, temporaries_)                                \
    cr_assert((r).entries == (uint64_t)(entries_) && (r).bytes == (uint64_t)(bytes_) && (r).damaged == (uint64_t)(damaged_) && \
                  (r).removed == (uint64_t)(removed_) && (r).removed_bytes == (uint64_t)(removed_bytes_) &&                  \
                  (r).temporaries == (uint64_t)(temporaries_),                                                               \
              "entries %llu bytes %llu damaged %llu removed %llu removed_bytes %llu temporaries %llu",                       \
              (unsigned long long)(r).entries, (unsigned long long)(r).bytes, (unsigned long long)(r).damaged,               \
              (unsigned long long)(r).removed, (unsigned long long)(r).removed_bytes, (unsigned long long)(r).temporaries)

static void expect_only_from(int first)
{
    for (int i = 0; i < ENTRIES; ++i)
        cr_assert_eq(access(paths[i], F_OK) == 0, i >= first, "entry %d, first to stay is %d", i, first);
}

/* ---- verify ---- */

Test(cache_verify, of_a_good_directory_finds_nothing)
{
    struct seen seen = { 0 };
    const gdn_cache_report report = verify(GDN_VERIFY_REMOVE, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 0, 0, 0);
    cr_assert_eq(store_count_files(scratch), ENTRIES);
}

/* One bit of the cubin, a cut, another key's entry, a link, a fifo. */
static void damage(void)
{
    const int fd = open(paths[0], O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, "\xff", 1, 500), 1);
    close(fd);
    cr_assert_eq(truncate(paths[1], 100), 0);
    size_t size;
    void *bytes = store_read(paths[5], &size);
    store_write(paths[2], bytes, size);
    free(bytes);
    unlink(paths[3]);
    cr_assert_eq(symlink(paths[5], paths[3]), 0);
    unlink(paths[4]);
    cr_assert_eq(mkfifo(paths[4], 0600), 0);
}

Test(cache_verify, names_what_is_wrong_and_leaves_it)
{
    struct seen seen = { 0 };
    damage();
    const gdn_cache_report report = verify(0, &seen);
    cr_assert(report.entries == ENTRIES && report.damaged == 5 && report.removed == 0, "%llu of %llu damaged",
              (unsigned long long)report.damaged, (unsigned long long)report.entries);
    static const char *const words[] = { "cubin's checksum is wrong", "file is too short", "entry of another key",
                                         "a symbolic link", "no regular file" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
        cr_assert(strstr(seen.problems, words[i]), "\"%s\" is not in:\n%s", words[i], seen.problems);
    cr_assert_eq(store_count_files(scratch), ENTRIES);
}

static void copy_to(const char *folder, const char *path)
{
    char copy[1400];
    size_t size;
    void *bytes = store_read(path, &size);
    mkdir(folder, 0700);
    snprintf(copy, sizeof copy, "%s%s", folder, strrchr(path, '/'));
    store_write(copy, bytes, size);
    free(bytes);
}

/* Each is as it was written, and no lookup would find it there. */
Test(cache_verify, a_good_entry_in_anothers_folder_is_named_and_goes)
{
    char folder[64];
    struct seen seen = { 0 };
    const char *prefix = strrchr(paths[0], '/') + 1, *other = strncmp(prefix, "00", 2) == 0 ? "01" : "00";
    cr_assert_eq(mkdir(store_path(scratch, "v2/sm_80"), 0700), 0);
    snprintf(folder, sizeof folder, "v2/sm_80/%.2s", prefix);
    copy_to(store_path(scratch, folder), paths[0]);
    snprintf(folder, sizeof folder, "v2/sm_90a/%s", other);
    copy_to(store_path(scratch, folder), paths[0]);
    const gdn_cache_report report = verify(GDN_VERIFY_REMOVE, &seen);
    EXPECT_REPORT(report, ENTRIES + 2, (ENTRIES + 2) * entry_bytes, 2, 2, 2 * entry_bytes, 0);
    cr_assert_str_eq(seen.problems, "entry of another arch\nin the folder of other keys\n");
    expect_only_from(0);
}

/* Whose it is and who may write to it are two things with two remedies. */
Test(cache_verify, says_which_of_file_and_folder_others_may_write_to)
{
    char words[64];
    struct seen seen = { 0 };
    cr_assert_eq(chmod(paths[0], 0664), 0);
    gdn_cache_report report = verify(0, &seen);
    cr_assert_eq(report.damaged, 1u, "%s", seen.problems);
    cr_assert_str_eq(seen.problems, "writable for others (mode 0664)\n");
    cr_assert_eq(chmod(paths[0], 0644), 0);
    *strrchr(paths[1], '/') = '\0';
    cr_assert_eq(chmod(paths[1], 0702), 0);
    seen = (struct seen){ 0 };
    report = verify(0, &seen);
    cr_assert_geq(report.damaged, 1u);
    snprintf(words, sizeof words, "in a folder that others may write to (%s, mode 0702)\n", strstr(paths[1], "v2/"));
    cr_assert(strstr(seen.problems, words), "\"%s\" is not in:\n%s", words, seen.problems);
}

Test(cache_verify, says_which_of_file_and_folder_is_anothers)
{
    if (geteuid() != 0) cr_skip_test("only root can make files of another user");
    struct seen seen = { 0 };
    cr_assert_eq(chown(paths[0], 1234, 1234), 0);
    verify(0, &seen);
    cr_assert_str_eq(seen.problems, "owned by another user (1234)\n");
    cr_assert_eq(chown(paths[0], geteuid(), getegid()), 0);
    cr_assert_eq(chown(store_path(scratch, "v2"), 1234, 1234), 0);
    seen = (struct seen){ 0 };
    cr_assert_eq(verify(0, &seen).damaged, ENTRIES);
    cr_assert(strstr(seen.problems, "in a folder of another user (v2, user 1234)\n"), "%s", seen.problems);
}

Test(cache_verify, removes_the_damaged_and_nothing_else)
{
    struct seen seen = { 0 }, again = { 0 };
    damage();
    const gdn_cache_report first = verify(GDN_VERIFY_REMOVE, &seen);
    cr_assert_eq(first.removed, 5u);
    cr_assert_eq(store_count_files(scratch), 1);
    cr_assert_eq(access(paths[5], F_OK), 0, "a link's target was removed");
    const gdn_cache_report second = verify(GDN_VERIFY_REMOVE, &again);
    EXPECT_REPORT(second, 1, entry_bytes, 0, 0, 0, 0);
}

Test(cache_verify, counts_old_temporary_files_and_removes_them_when_told)
{
    char *old = strdup(store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-0123456789abcdef"));
    char *young = strdup(store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-fedcba9876543210"));
    struct seen seen = { 0 };
    mkdir(store_path(scratch, "v2/sm_90a/00"), 0700);
    store_write(old, "xyz", 3);
    store_write(young, "x", 1);
    set_age(old, 3700);
    gdn_cache_report report = verify(0, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 0, 0, 1);
    report = verify(GDN_VERIFY_REMOVE, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 1, 3, 1);
    cr_assert(access(old, F_OK) != 0 && access(young, F_OK) == 0);
    free(old);
    free(young);
}

Test(cache_verify, stops_when_told_and_keeps_that_entry)
{
    struct seen seen = { .stop_at = 2 };
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    damage();
    cr_assert_eq(gdn_cache_verify(ctx, NULL, GDN_VERIFY_REMOVE, see, &seen, &report), GDN_E_CANCELLED);
    cr_assert(strstr(gdn_last_error(), "gdn_cache_verify() returned 7"), "%s", gdn_last_error());
    cr_assert_eq(report.damaged, 2u);
    cr_assert_eq(report.removed, 1u);
    cr_assert_eq(store_count_files(scratch), ENTRIES - 1);
}

/* Of one file, for another user than root. */
static void forbid(const char *path)
{
    chmod(path, 0);
    store_drop_root(scratch);
    gdn_ctx_destroy(ctx);
    ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
}

Test(cache_verify, a_file_that_cannot_be_read_is_told_and_stays)
{
    struct seen seen = { 0 };
    forbid(paths[2]);
    const gdn_cache_report report = verify(GDN_VERIFY_REMOVE, &seen);
    cr_assert(report.damaged == 1 && report.removed == 0);
    cr_assert(strstr(seen.problems, "Permission denied"), "%s", seen.problems);
    cr_assert_eq(access(paths[2], F_OK), 0);
}

Test(cache_verify, refuses_bad_arguments_with_a_sentence)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    cr_assert_eq(gdn_cache_verify(NULL, NULL, 0, see, NULL, &report), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_verify(ctx, NULL, 6, see, NULL, &report), GDN_E_INVALID);
    cr_assert(strstr(gdn_last_error(), "flags is 0x6"), "%s", gdn_last_error());
    cr_assert_eq(gdn_cache_verify(ctx, NULL, 0, see, NULL, NULL), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_verify(ctx, "", 0, see, NULL, &report), GDN_E_INVALID);
    cr_assert(strstr(gdn_last_error(), "bundle is empty"), "%s", gdn_last_error());
    report.struct_size = 8;
    cr_assert_eq(gdn_cache_verify(ctx, NULL, 0, see, NULL, &report), GDN_E_VERSION);
    report.struct_size = sizeof report;
    gdn_ctx *memory = store_ctx("", 0, NULL, GDN_FAKE_NVRTC_PATH);
    cr_assert_eq(gdn_cache_verify(memory, NULL, 0, NULL, NULL, &report), GDN_E_IO);
    cr_assert(strstr(gdn_last_error(), "GDN_JIT_CACHE_DIR"), "%s", gdn_last_error());
    gdn_ctx_destroy(memory);
}

Test(cache_verify, survives_running_out_of_memory_at_any_point)
{
    int failed = 0;
    for (int allowed = 0; allowed < 60; ++allowed) {
        gdn_cache_report report = GDN_CACHE_REPORT_INIT;
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdn_cache_verify(ctx, NULL, GDN_VERIFY_REMOVE, see, &(struct seen){ 0 }, &report);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "after %d: %s", allowed, gdn_status_name(status));
        failed += status == GDN_E_NOMEM;
    }
    cr_assert_gt(failed, 1);
    cr_assert_eq(store_count_files(scratch), ENTRIES, "out of memory made an entry bad");
}

/* ---- prune ---- */

static gdn_cache_report prune(gdn_prune_options options, struct seen *seen)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    cr_assert_eq(gdn_cache_prune(ctx, &options, see, seen, &report), GDN_OK, "%s", gdn_last_error());
    return report;
}

static gdn_prune_options nothing(void)
{
    return (gdn_prune_options)GDN_PRUNE_OPTIONS_INIT;
}

Test(cache_verify, prune_without_limits_removes_only_the_damaged)
{
    struct seen seen = { 0 };
    damage();
    const gdn_cache_report report = prune(nothing(), &seen);
    cr_assert(report.entries == ENTRIES && report.damaged == 5 && report.removed == 5 && seen.calls == 5);
    expect_only_from(5);
}

Test(cache_verify, prune_leaves_a_file_that_cannot_be_read)
{
    struct seen seen = { 0 };
    forbid(paths[2]);
    const gdn_cache_report report = prune(nothing(), &seen);
    cr_assert(report.damaged == 1 && report.removed == 0);
    cr_assert_eq(access(paths[2], F_OK), 0, "what may be a good entry has gone");
}

Test(cache_verify, prune_to_a_size_takes_the_least_recently_used)
{
    struct seen seen = { 0 };
    gdn_prune_options options = nothing();
    options.max_bytes = 4 * entry_bytes + 1;
    gdn_cache_report report = prune(options, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 2, 2 * entry_bytes, 0);
    cr_assert_eq(seen.calls, 2);
    cr_assert(strstr(seen.paths, paths[0]) && strstr(seen.paths, paths[1]), "%s", seen.paths);
    expect_only_from(2);
    options.max_bytes = 1;
    report = prune(options, &seen);
    EXPECT_REPORT(report, 4, 4 * entry_bytes, 0, 4, 4 * entry_bytes, 0);
    cr_assert_eq(store_count_files(scratch), 0);
}

/* Stands in the place of libc's: an entry goes, as by another process, when it is about to be opened. */
static const char *vanishing;
int openat(int dir, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const unsigned mode = va_arg(more, unsigned);
    va_end(more);
    if (vanishing && strcmp(name, vanishing) == 0) unlinkat(dir, name, 0);
    return (int)syscall(SYS_openat, dir, name, flags, mode);
}

Test(cache_verify, an_entry_that_vanishes_while_it_is_looked_at_counts_for_nothing)
{
    struct seen seen = { 0 };
    gdn_prune_options options = nothing();
    options.max_bytes = 3 * entry_bytes;
    vanishing = strrchr(paths[0], '/') + 1; /* the oldest */
    const gdn_cache_report report = prune(options, &seen);
    vanishing = NULL;
    cr_assert_neq(access(paths[0], F_OK), 0);
    EXPECT_REPORT(report, ENTRIES - 1, (ENTRIES - 1) * entry_bytes, 0, 2, 2 * entry_bytes, 0);
    expect_only_from(3);
}

Test(cache_verify, prune_by_age_goes_by_the_last_use)
{
    struct seen seen = { 0 };
    gdn_prune_options options = nothing();
    options.max_age = 3 * DAY;
    const gdn_cache_report report = prune(options, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 4, 4 * entry_bytes, 0);
    expect_only_from(4);
}

/* Ahead of the clock, which was set back, is older than all; an hour may be another machine's clock. */
Test(cache_verify, prune_by_age_takes_what_is_dated_ahead)
{
    struct seen seen = { 0 };
    gdn_prune_options options = nothing();
    options.max_age = 30 * DAY;
    store_set_mtime(paths[0], time(NULL) + GDNI_CLOCK_SLACK + 60);
    store_set_mtime(paths[1], INT64_MAX); /* or whatever the file system makes of it */
    store_set_mtime(paths[2], INT64_MIN);
    store_set_mtime(paths[3], time(NULL) + GDNI_CLOCK_SLACK - 60);
    const gdn_cache_report report = prune(options, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 3, 3 * entry_bytes, 0);
    expect_only_from(3);
}

Test(cache_verify, a_dry_run_reports_the_same_and_removes_nothing)
{
    struct seen seen = { 0 };
    gdn_prune_options options = nothing();
    options.max_age = 3 * DAY;
    options.flags = GDN_PRUNE_DRY_RUN;
    const gdn_cache_report report = prune(options, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 4, 4 * entry_bytes, 0);
    cr_assert_eq(seen.calls, 4);
    expect_only_from(0);
}

Test(cache_verify, prune_of_one_arch_leaves_the_others)
{
    struct seen seen = { 0 };
    publish("g", "sm_80", TAG);
    gdn_prune_options options = nothing();
    options.arch = "sm_80";
    options.max_bytes = 1;
    const gdn_cache_report report = prune(options, &seen);
    cr_assert(report.entries == 1 && report.removed == 1);
    expect_only_from(0);
    cr_assert_neq(access(path_of("g", "sm_80", TAG), F_OK), 0);
}

Test(cache_verify, prune_of_other_compilers_keeps_this_ones)
{
    struct seen seen = { 0 };
    const struct gdni_nvrtc_api *api;
    cr_assert_eq(gdni_nvrtc_get(ctx->nvrtc, &api), GDN_OK);
    publish("a", "sm_90a", api->tag);
    gdn_prune_options options = nothing();
    options.flags = GDN_PRUNE_OTHER_COMPILERS;
    const gdn_cache_report report = prune(options, &seen);
    cr_assert(report.entries == ENTRIES + 1 && report.removed == ENTRIES);
    cr_assert_eq(access(path_of("a", "sm_90a", api->tag), F_OK), 0);
    cr_assert_eq(store_count_files(scratch), 1);
}

Test(cache_verify, prune_of_other_compilers_needs_one)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    gdn_prune_options options = nothing();
    options.flags = GDN_PRUNE_OTHER_COMPILERS;
    gdn_ctx *bare = store_ctx(scratch, 0, NULL, "/nonexistent/libnvrtc.so");
    cr_assert_eq(gdn_cache_prune(bare, &options, NULL, NULL, &report), GDN_E_NO_NVRTC);
    expect_only_from(0);
    gdn_ctx_destroy(bare);
}

Test(cache_verify, prune_stops_when_told_and_keeps_that_entry)
{
    struct seen seen = { .stop_at = 3 };
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    gdn_prune_options options = nothing();
    options.max_bytes = 1;
    cr_assert_eq(gdn_cache_prune(ctx, &options, see, &seen, &report), GDN_E_CANCELLED);
    cr_assert_eq(report.removed, 2u);
    cr_assert_eq(store_count_files(scratch), ENTRIES - 2);
}

/* The user's function uses an entry that is about to go. */
static int use_it(void *user, const gdn_cache_entry *e)
{
    (void)user;
    set_age(e->path, 0);
    return 0;
}

Test(cache_verify, an_entry_that_was_used_meanwhile_stays)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    gdn_prune_options options = nothing();
    options.max_age = 3 * DAY;
    cr_assert_eq(gdn_cache_prune(ctx, &options, use_it, NULL, &report), GDN_OK);
    cr_assert_eq(report.removed, 0u);
    expect_only_from(0);
}

/* While the damaged entry is judged, another process puts a good one in its place. */
static int replace_it(void *user, const gdn_cache_entry *e)
{
    const char *good = user;
    size_t size;
    void *bytes = store_read(good, &size);
    char temp[1100];
    snprintf(temp, sizeof temp, "%s.new", e->path);
    store_write(temp, bytes, size);
    cr_assert_eq(rename(temp, e->path), 0);
    free(bytes);
    return 0;
}

Test(cache_verify, a_good_entry_that_comes_while_a_bad_one_is_judged_is_not_lost)
{
    const char *good = store_path(scratch, "good");
    size_t size;
    void *bytes = store_read(paths[0], &size);
    store_write(good, bytes, size);
    free(bytes);
    cr_assert_eq(truncate(paths[0], 50), 0);
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    cr_assert_eq(gdn_cache_verify(ctx, NULL, GDN_VERIFY_REMOVE, replace_it, (void *)(uintptr_t)good, &report), GDN_OK);
    cr_assert_eq(report.damaged, 1u);
    cr_assert_eq(report.removed, 0u, "a good entry was removed");
    struct seen seen = { 0 };
    report = verify(0, &seen);
    EXPECT_REPORT(report, ENTRIES, ENTRIES * entry_bytes, 0, 0, 0, 0);
}

Test(cache_verify, a_folder_that_was_swapped_for_a_link_loses_nothing)
{
    char *elsewhere = store_scratch();
    char folder[1024], moved[1024];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(paths[0], '/') - paths[0]), paths[0]);
    snprintf(moved, sizeof moved, "%s/moved", elsewhere);
    struct gdni_cache_scan scan;
    struct gdni_cache_dir dir;
    const struct gdni_env env = { 0 };
    cr_assert_eq(gdni_cache_dir_choose(&dir, scratch, &env, 0), GDN_OK);
    cr_assert_eq(gdni_cache_scan(&dir, &scan), GDN_OK);
    cr_assert_eq(rename(folder, moved), 0);
    cr_assert_eq(symlink(moved, folder), 0);
    const int before = store_count_files(moved);
    int refused = 0;
    for (size_t i = 0; i < scan.count; ++i) refused += gdni_cache_file_remove(&dir, &scan.files[i], NULL) != 0;
    cr_assert_eq(refused, before, "removed through a link");
    cr_assert_eq(store_count_files(moved), before);
    gdni_free(scan.files);
    gdni_cache_dir_close(&dir);
    unlink(folder);
    store_remove(elsewhere);
}

Test(cache_verify, prune_refuses_bad_arguments_with_a_sentence)
{
    static const struct {
        size_t struct_size;
        int64_t max_age;
        const char *arch;
        uint32_t flags;
        gdn_status status;
        const char *words;
    } bad[] = {
        { 0, 0, NULL, 0, GDN_E_VERSION, "struct_size is 0" },
        { sizeof(gdn_prune_options), -1, NULL, 0, GDN_E_INVALID, "max_age is -1" },
        { sizeof(gdn_prune_options), 0, "sm_1", 0, GDN_E_UNSUPPORTED, "sm_1" },
        { sizeof(gdn_prune_options), 0, NULL, 4, GDN_E_INVALID, "flags is 0x4" },
    };
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        gdn_prune_options options = nothing();
        options.struct_size = bad[i].struct_size;
        options.max_age = bad[i].max_age;
        options.arch = bad[i].arch;
        options.flags = bad[i].flags;
        cr_assert_eq(gdn_cache_prune(ctx, &options, NULL, NULL, &report), bad[i].status, "%s", bad[i].words);
        cr_assert(strstr(gdn_last_error(), bad[i].words), "%s: %s", bad[i].words, gdn_last_error());
    }
    gdn_prune_options unknown = GDN_PRUNE_OPTIONS_INIT;
    unknown.reserved = 1;
    cr_assert_eq(gdn_cache_prune(ctx, &unknown, NULL, NULL, &report), GDN_E_INVALID);
    cr_assert(strstr(gdn_last_error(), "reserved is 1"), "%s", gdn_last_error());
    cr_assert_eq(gdn_cache_prune(ctx, NULL, NULL, NULL, &report), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_prune(NULL, &(gdn_prune_options)GDN_PRUNE_OPTIONS_INIT, NULL, NULL, &report), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_prune(ctx, &(gdn_prune_options)GDN_PRUNE_OPTIONS_INIT, NULL, NULL, NULL), GDN_E_INVALID);
    expect_only_from(0);
}

Test(cache_verify, prune_survives_running_out_of_memory_at_any_point)
{
    int failed = 0;
    for (int allowed = 0; allowed < 60; ++allowed) {
        gdn_cache_report report = GDN_CACHE_REPORT_INIT;
        gdn_prune_options options = nothing();
        options.max_bytes = 1;
        options.flags = GDN_PRUNE_DRY_RUN;
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdn_cache_prune(ctx, &options, NULL, NULL, &report);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "after %d: %s", allowed, gdn_status_name(status));
        failed += status == GDN_E_NOMEM;
    }
    cr_assert_gt(failed, 2);
}
