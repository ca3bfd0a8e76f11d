/*
 * test_cache_sweep.c - the cache stays under its cap, loses what was used longest ago, and touches nothing that is not its own.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
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
#include "runtime/cache_scan.h"
#include "support/fake_host.h"
#include "support/store.h"

#define TAG "0a1b2c3d"
enum { ENTRIES = 10 };

static char *scratch;
static struct gdni_program *programs[ENTRIES];
static char paths[ENTRIES][1024];
static uint64_t entry_bytes;

/* Ten entries of one size; the i-th was last used 10 - i days ago. */
static void set_up(void)
{
    static const char sources[ENTRIES][2] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j" };
    scratch = store_scratch();
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    for (int i = 0; i < ENTRIES; ++i) {
        struct gdni_unit unit = store_unit("sm_90a", sources[i]);
        programs[i] = store_program(&unit);
        gdni_cache_publish(s.cache, programs[i], TAG, false);
        snprintf(paths[i], sizeof paths[i], "%s/v2/sm_90a/%.2s/%s." TAG ".gdnk", scratch, programs[i]->key_hex,
                 programs[i]->key_hex);
        store_set_mtime(paths[i], time(NULL) - (ENTRIES - i) * 86400);
    }
    struct stat st;
    cr_assert_eq(stat(paths[0], &st), 0);
    entry_bytes = (uint64_t)st.st_size;
    store_cache_close(&s);
}

static void tear_down(void)
{
    for (int i = 0; i < ENTRIES; ++i) gdni_program_release(programs[i]);
    store_remove(scratch);
}

TestSuite(cache_sweep, .init = set_up, .fini = tear_down);

static struct gdni_swept sweep(uint64_t max_bytes)
{
    const struct gdni_env env = { 0 };
    struct gdni_cache_dir dir;
    struct gdni_swept swept;
    cr_assert_eq(gdni_cache_dir_choose(&dir, scratch, &env, 0), GDN_OK);
    cr_assert_eq(gdni_cache_sweep(&dir, max_bytes, time(NULL), &swept), GDN_OK);
    gdni_cache_dir_close(&dir);
    return swept;
}

static void expect_only_from(int first)
{
    for (int i = 0; i < ENTRIES; ++i)
        cr_assert_eq(access(paths[i], F_OK) == 0, i >= first, "entry %d, first to stay is %d", i, first);
}

Test(cache_sweep, below_the_cap_nothing_goes)
{
    const struct gdni_swept swept = sweep(ENTRIES * entry_bytes);
    cr_assert_eq(swept.removed, 0u);
    cr_assert_eq(swept.total, ENTRIES * entry_bytes);
    expect_only_from(0);
}

Test(cache_sweep, above_the_cap_the_least_recently_used_go_down_to_four_fifths)
{
    const struct gdni_swept swept = sweep(ENTRIES * entry_bytes - 1); /* 80 % of that holds seven */
    cr_assert_eq(swept.removed, 3u);
    cr_assert_eq(swept.total, 7 * entry_bytes);
    expect_only_from(3);
}

Test(cache_sweep, a_hit_saves_an_old_entry)
{
    struct store_cache s;
    struct gdni_program *found;
    struct gdni_unit unit = store_unit("sm_90a", "a");
    struct gdni_key key = store_key(&unit);
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_eq(gdni_cache_find_user(s.cache, &key, "sm_90a", TAG, false, &found), GDN_OK);
    cr_assert_not_null(found);
    sweep(5 * entry_bytes); /* room for four */
    cr_assert_eq(access(paths[0], F_OK), 0, "the entry that was used last has gone");
    cr_assert_neq(access(paths[6], F_OK), 0);
    cr_assert_eq(access(paths[7], F_OK), 0);
    gdni_program_release(found);
    gdni_key_free(&key);
    store_cache_close(&s);
}

Test(cache_sweep, the_first_publish_of_a_context_checks_the_cap)
{
    struct store_cache s;
    struct gdni_unit unit = store_unit("sm_90a", "k");
    struct gdni_program *eleventh = store_program(&unit);
    store_cache_open(&s, scratch, NULL, 10 * entry_bytes);
    gdni_cache_publish(s.cache, eleventh, TAG, false);
    cr_assert_eq(s.counters.evicted, 3u);
    expect_only_from(3);
    store_cache_close(&s);
    gdni_program_release(eleventh);
}

Test(cache_sweep, a_context_that_publishes_much_checks_before_the_hour_is_over)
{
    static const char sources[5][2] = { "k", "l", "m", "n", "o" };
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 12 * entry_bytes);
    for (int i = 0; i < 5; ++i) {
        struct gdni_unit unit = store_unit("sm_90a", sources[i]);
        struct gdni_program *more = store_program(&unit);
        gdni_cache_publish(s.cache, more, TAG, false);
        gdni_program_release(more);
    }
    cr_assert_gt(s.counters.evicted, 0u);
    cr_assert_leq((uint64_t)store_count_files(scratch) * entry_bytes, 12 * entry_bytes);
    store_cache_close(&s);
}

/* Stands in the place of libc's: an entry of this name cannot be moved, and the disk says so. */
static const char *stuck;
static int stuck_by = EIO;
int renameat(int from, const char *old, int to, const char *name)
{
    if (!stuck || strcmp(old, stuck) != 0) return (int)syscall(SYS_renameat2, from, old, to, name, 0u);
    errno = stuck_by;
    return -1;
}

Test(cache_sweep, in_place_of_an_entry_that_cannot_be_removed_another_goes)
{
    stuck = strrchr(paths[0], '/') + 1;
    const struct gdni_swept swept = sweep(5 * entry_bytes); /* room for four */
    stuck = NULL;
    cr_assert_eq(swept.removed, 6u);
    cr_assert_eq(swept.total, 4 * entry_bytes);
    cr_assert_eq(store_count_files(scratch), 4);
    cr_assert_eq(access(paths[0], F_OK), 0);
}

/* Not this user's to remove: it counts no more, and no other goes for it. */
Test(cache_sweep, an_entry_whose_removal_is_refused_is_not_counted)
{
    static const int refusals[] = { EACCES, EPERM, EROFS };
    stuck = strrchr(paths[0], '/') + 1;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; ++i) {
        stuck_by = refusals[i];
        const struct gdni_swept swept = sweep((ENTRIES - 1) * entry_bytes); /* below it by what counts */
        cr_expect_eq(swept.removed, 0u, "%s", strerror(stuck_by));
        cr_expect_eq(swept.total, (ENTRIES - 1) * entry_bytes, "%s", strerror(stuck_by));
    }
    const struct gdni_swept swept = sweep(5 * entry_bytes);
    stuck = NULL;
    cr_assert_eq(swept.removed, 5u);
    cr_assert_eq(swept.total, 4 * entry_bytes);
    cr_assert_eq(store_count_files(scratch), 4 + 1);
}

/* A directory that root filled above the cap, in folders that are root's, and left open to this user above them. */
Test(cache_sweep, what_may_not_be_removed_costs_nothing_that_is_published)
{
    static const char sources[12][2] = { "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v" };
    struct store_cache s;
    store_drop_root(scratch);
    for (int i = 0; i < ENTRIES; ++i) {
        char folder[1024];
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(paths[i], '/') - paths[i]), paths[i]);
        cr_assert_eq(chmod(folder, 0555), 0);
    }
    store_cache_open(&s, scratch, NULL, 5 * entry_bytes);
    for (int i = 0; i < 12; ++i) {
        struct gdni_unit unit = store_unit("sm_90a", sources[i]);
        struct gdni_program *more = store_program(&unit);
        gdni_cache_publish(s.cache, more, TAG, false);
        gdni_program_release(more);
        if (i == 4) cr_expect_eq(s.counters.evicted, 0u, "five fit");
    }
    cr_expect_eq(s.counters.publish_failures, 0u, "%s", s.lines.last[GDN_LOG_WARN]);
    cr_expect_eq(s.counters.evicted, 8u, "%d", (int)s.counters.evicted); /* two by the sixth, and by each second one after */
    expect_only_from(0);
    cr_expect_eq(store_count_files(scratch), ENTRIES + 4);
    store_cache_close(&s);
}

Test(cache_sweep, a_folder_that_cannot_be_read_does_not_keep_the_others_full)
{
    mkdir(store_path(scratch, "v2/sm_80"), 0);
    store_drop_root(scratch);
    cr_assert_eq(sweep(5 * entry_bytes).removed, 6u);
    expect_only_from(6);
}

/* How many went when a context with these caps published one more, of this source. */
static uint64_t evicted_by(const char *source, uint64_t configured, uint64_t variable)
{
    const struct gdni_env env = { .cache_max_bytes = variable };
    struct gdni_unit unit = store_unit("sm_90a", source);
    struct gdni_program *more = store_program(&unit);
    struct gdni_counters counters = { 0 };
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = scratch;
    cfg.cache_max_bytes = configured;
    struct gdni_cache *cache = gdni_cache_create(&cfg, &env, NULL, &counters);
    cr_assert_not_null(cache);
    gdni_cache_publish(cache, more, TAG, false);
    gdni_cache_destroy(cache);
    gdni_program_release(more);
    return counters.evicted;
}

Test(cache_sweep, the_cap_is_the_configs_else_the_variables_else_a_large_one)
{
    cr_assert_eq(evicted_by("k", 20 * entry_bytes, 5 * entry_bytes), 0u);
    cr_assert_eq(evicted_by("l", 0, 0), 0u);
    cr_assert_eq(evicted_by("m", 0, 12 * entry_bytes), 4u); /* of 13, 80 % of 12 hold nine */
    cr_assert_eq(evicted_by("n", 5 * entry_bytes, 20 * entry_bytes), 6u);
}

Test(cache_sweep, temporary_files_go_after_an_hour)
{
    const char *old = store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-0123456789abcdef");
    const char *young = store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-fedcba9876543210");
    mkdir(store_path(scratch, "v2/sm_90a/00"), 0700);
    store_write(old, "x", 1);
    store_write(young, "x", 1);
    store_set_mtime(old, time(NULL) - 3700);
    sweep(UINT64_MAX);
    cr_assert_neq(access(old, F_OK), 0);
    cr_assert_eq(access(young, F_OK), 0, "a publish that is under way lost its file");
    expect_only_from(0);
}

/* They would lie there until the clock has come so far. */
Test(cache_sweep, temporary_files_from_before_the_clock_was_set_back_go_too)
{
    const char *ahead = store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-0123456789abcdef");
    const char *little = store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-fedcba9876543210");
    mkdir(store_path(scratch, "v2/sm_90a/00"), 0700);
    const char *paths_of[] = { ahead, little };
    const time_t by[] = { 3700, 3500 };
    for (int i = 0; i < 2; ++i) {
        store_write(paths_of[i], "x", 1);
        store_set_mtime(paths_of[i], time(NULL) + by[i]);
    }
    sweep(UINT64_MAX);
    cr_assert_neq(access(ahead, F_OK), 0);
    cr_assert_eq(access(little, F_OK), 0, "a host whose clock is a little ahead lost its file");
    expect_only_from(0);
}

Test(cache_sweep, an_age_is_of_any_date)
{
    cr_expect_eq(gdni_age(1000, 400), 600);
    cr_expect_eq(gdni_age(400, 1000), -600);
    cr_expect_eq(gdni_age(1000, INT64_MAX), 1000 - INT64_MAX);
    cr_expect_eq(gdni_age(1000, INT64_MIN), INT64_MAX);
    cr_expect_eq(gdni_age(-1000, INT64_MAX), INT64_MIN);
}

Test(cache_sweep, what_publishers_have_under_way_costs_no_entry)
{
    const char *young = store_path(scratch, "v2/sm_90a/00/.gdnk-tmp-0123456789abcdef");
    mkdir(store_path(scratch, "v2/sm_90a/00"), 0700);
    store_write(young, "x", 1);
    cr_assert_eq(truncate(young, (off_t)(20 * entry_bytes)), 0);
    const struct gdni_swept swept = sweep(ENTRIES * entry_bytes);
    cr_assert(swept.removed == 0 && swept.total == ENTRIES * entry_bytes);
    expect_only_from(0);
}

Test(cache_sweep, what_is_not_ours_is_never_touched)
{
    const char *strange[] = {
        store_path(scratch, "notes.txt"),
        store_path(scratch, "v2/notes.txt"),
        store_path(scratch, "v2/sm_90a/notes.txt"),
        store_path(scratch, "v2/sm_90a/00/0123456789abcdef0123456789abcdef.gdnk"),
        store_path(scratch, "v2/sm_90a/00/0123456789abcdef0123456789abcdeF." TAG ".gdnk"),
        store_path(scratch, "0123456789abcdef0123456789abcdef." TAG ".gdnk"),
    };
    mkdir(store_path(scratch, "v2/sm_90a/00"), 0700);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; ++i) {
        store_write(strange[i], "x", 1);
        store_set_mtime(strange[i], 1000);
    }
    const struct gdni_swept swept = sweep(0);
    cr_assert_eq(swept.removed, (uint64_t)ENTRIES);
    cr_assert_eq(swept.total, 0u);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; ++i)
        cr_assert_eq(access(strange[i], F_OK), 0, "%s was removed", strange[i]);
}

Test(cache_sweep, a_linked_folder_is_not_swept)
{
    char *elsewhere = store_scratch();
    const char *victim = store_path(elsewhere, "0123456789abcdef0123456789abcdef." TAG ".gdnk");
    store_write(victim, "x", 1);
    cr_assert_eq(symlink(elsewhere, store_path(scratch, "v2/sm_90a/zz")), 0);
    cr_assert(symlink(elsewhere, store_path(scratch, "v2/sm_90a/00")) == 0 || errno == EEXIST);
    sweep(0);
    cr_assert_eq(access(victim, F_OK), 0);
    store_remove(elsewhere);
}

Test(cache_sweep, entry_names_are_exact)
{
    cr_assert(gdni_is_entry_name("0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk"));
    cr_assert(!gdni_is_entry_name("0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk "));
    cr_assert(!gdni_is_entry_name("0123456789abcdef0123456789abcdef.0a1b2c3d.gdn"));
    cr_assert(!gdni_is_entry_name("0123456789abcdef0123456789abcdeg.0a1b2c3d.gdnk"));
    cr_assert(!gdni_is_entry_name("0123456789abcdef0123456789abcdef-0a1b2c3d.gdnk"));
    cr_assert(!gdni_is_entry_name(""));
}

Test(cache_sweep, running_out_of_memory_removes_nothing)
{
    const struct gdni_env env = { 0 };
    struct gdni_cache_dir dir;
    struct gdni_swept swept;
    cr_assert_eq(gdni_cache_dir_choose(&dir, scratch, &env, 0), GDN_OK);
    gdni_mem_fail_after(0);
    cr_assert_eq(gdni_cache_sweep(&dir, 0, time(NULL), &swept), GDN_E_NOMEM);
    gdni_mem_fail_after(-1);
    expect_only_from(0);
    gdni_cache_dir_close(&dir);
    cr_assert(fake_no_leaks());
}

/* ---- gdn_cache_list ---- */

struct seen {
    int valid, damaged, stop_after;
    char last_path[1024];
};

static int see(void *user, const gdn_cache_entry *e)
{
    struct seen *seen = user;
    cr_assert_eq(e->struct_size, sizeof *e);
    cr_assert_lt(strcmp(seen->last_path, e->path), 0, "%s behind %s", e->path, seen->last_path);
    snprintf(seen->last_path, sizeof seen->last_path, "%s", e->path);
    cr_assert_neq(e->mtime, 0);
    if (e->valid) {
        ++seen->valid;
        cr_assert_eq(e->bytes, entry_bytes);
        cr_assert_str_eq(e->arch, "sm_90a");
        cr_assert_str_eq(e->entry_name, "tiny");
        cr_assert(strstr(e->compiler, "nvrtc 13.0"), "%s", e->compiler);
        cr_assert(strstr(e->path, e->key), "%s is not in %s", e->key, e->path);
        cr_assert(e->registers == 42 && e->spill_bytes == 12 && e->local_bytes == 16 && e->static_smem == 1024);
    } else {
        ++seen->damaged;
        cr_assert(!e->key && !e->arch && !e->entry_name && !e->compiler && !e->registers);
    }
    return seen->valid + seen->damaged == seen->stop_after;
}

Test(cache_sweep, list_tells_every_entry_and_marks_the_damaged)
{
    cr_assert_eq(truncate(paths[2], 10), 0);
    cr_assert_eq(rename(paths[3], paths[4]), 0); /* a good entry under another key's name is found by nobody */
    mkdir(store_path(scratch, "v2/sm_90a/00"), 0700);
    cr_assert_eq(mkdir(store_path(scratch, "v2/sm_90a/00/0123456789abcdef0123456789abcdef." TAG ".gdnk"), 0700), 0); /* none */
    gdn_ctx *ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
    struct seen seen = { 0 };
    cr_assert_eq(gdn_cache_list(ctx, see, &seen), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(seen.valid, ENTRIES - 3);
    cr_assert_eq(seen.damaged, 2);
    cr_assert_eq(access(paths[2], F_OK), 0, "listing removed an entry");
    gdn_ctx_destroy(ctx);
}

Test(cache_sweep, list_stops_when_told)
{
    gdn_ctx *ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
    struct seen seen = { .stop_after = 4 };
    cr_assert_eq(gdn_cache_list(ctx, see, &seen), GDN_E_CANCELLED);
    cr_assert_eq(seen.valid, 4);
    gdn_ctx_destroy(ctx);
}

Test(cache_sweep, list_without_a_directory_tells_nothing)
{
    gdn_ctx *ctx = store_ctx("", 0, NULL, GDN_FAKE_NVRTC_PATH);
    struct seen seen = { 0 };
    cr_assert_eq(gdn_cache_list(ctx, see, &seen), GDN_OK);
    cr_assert_eq(seen.valid + seen.damaged, 0);
    gdn_ctx_destroy(ctx);
}

Test(cache_sweep, list_and_stat_refuse_null)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    gdn_ctx *ctx = store_ctx("", 0, NULL, GDN_FAKE_NVRTC_PATH);
    cr_assert_eq(gdn_cache_list(NULL, see, NULL), GDN_E_INVALID);
    cr_assert(strstr(gdn_last_error(), "ctx"), "%s", gdn_last_error());
    cr_assert_eq(gdn_cache_list(ctx, NULL, NULL), GDN_E_INVALID);
    cr_assert(strstr(gdn_last_error(), "fn"), "%s", gdn_last_error());
    cr_assert_eq(gdn_cache_stat(NULL, &stats), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_stat(ctx, NULL), GDN_E_INVALID);
    stats.struct_size = 0;
    cr_assert_eq(gdn_cache_stat(ctx, &stats), GDN_E_VERSION);
    cr_assert_null(gdn_cache_dir(NULL));
    gdn_ctx_destroy(ctx);
}

Test(cache_sweep, list_survives_running_out_of_memory_at_any_point)
{
    gdn_ctx *ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
    int failed = 0;
    for (int allowed = 0; allowed < 40; ++allowed) {
        struct seen seen = { 0 };
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdn_cache_list(ctx, see, &seen);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "after %d: %s", allowed, gdn_status_name(status));
        failed += status == GDN_E_NOMEM;
    }
    cr_assert_gt(failed, 1);
    gdn_ctx_destroy(ctx);
    cr_assert(fake_no_leaks());
}
