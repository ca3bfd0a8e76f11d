/*
 * test_cache_lookup.c - what is found, where, by whose compiler; and that nothing bad on disk is more than a miss.
 */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "support/fake_host.h"
#include "support/store.h"

#define OURS "0a1b2c3d"
#define THEIRS "ffffffff"

static char *scratch;
static struct gdni_unit unit;
static struct gdni_key key;
static struct gdni_program *program;

static void set_up(void)
{
    scratch = store_scratch();
    unit = store_unit("sm_90a", "a");
    key = store_key(&unit);
    program = store_program(&unit);
}

static void tear_down(void)
{
    gdni_program_release(program);
    gdni_key_free(&key);
    if (seteuid(0) == 0 && setegid(0) != 0) abort();
    store_remove(scratch);
}

TestSuite(cache_lookup, .init = set_up, .fini = tear_down);

/* Puts the program into a directory. */
static void fill(const char *dir, const char *tag)
{
    struct store_cache s;
    store_cache_open(&s, dir, NULL, 0);
    gdni_cache_publish(s.cache, program, tag, false);
    cr_assert_eq(s.counters.publish_failures, 0u, "%s", s.lines.last[GDN_LOG_WARN]);
    store_cache_close(&s);
}

static struct gdni_program *find_user(struct store_cache *s, const char *tag)
{
    struct gdni_program *found;
    cr_assert_eq(gdni_cache_find_user(s->cache, &key, "sm_90a", tag, false, &found), GDN_OK, "%s", gdni_error_text());
    return found;
}

static void expect_hit(struct gdni_program *found)
{
    cr_assert_not_null(found);
    cr_assert_str_eq(found->key_text, program->key_text);
    cr_assert_str_eq(found->key_hex, key.hex);
    cr_assert_str_eq(found->arch, "sm_90a");
    cr_assert_str_eq(found->entry, "tiny");
    cr_assert_str_eq(found->build_log, program->build_log);
    cr_assert_eq(found->cubin_size, program->cubin_size);
    cr_assert_arr_eq(found->cubin, program->cubin, program->cubin_size);
    cr_assert_eq(found->facts.registers, 42);
    gdni_program_release(found);
}

Test(cache_lookup, finds_what_another_context_published)
{
    fill(scratch, OURS);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    expect_hit(find_user(&s, OURS));
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 0);
    store_cache_close(&s);
}

Test(cache_lookup, keeps_entries_under_version_arch_and_hash)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch), expected[256];
    snprintf(expected, sizeof expected, "%s/v2/sm_90a/%.2s/%s.%s.gdnk", scratch, key.hex, key.hex, OURS);
    cr_assert_str_eq(path, expected);
    free(path);
}

Test(cache_lookup, does_not_use_another_compilers_entry)
{
    fill(scratch, THEIRS);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS));
    cr_assert_eq(s.counters.corrupt, 0u);
    cr_assert_eq(store_count_files(scratch), 1);
    store_cache_close(&s);
}

Test(cache_lookup, without_a_compiler_takes_any_compilers_entry)
{
    fill(scratch, THEIRS);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    expect_hit(find_user(&s, NULL));
    store_cache_close(&s);
}

Test(cache_lookup, without_a_compiler_goes_on_behind_a_bad_entry)
{
    fill(scratch, OURS);
    char *bad = store_only_entry(scratch);
    cr_assert_eq(truncate(bad, 100), 0);
    store_age(bad);
    fill(scratch, THEIRS);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    expect_hit(find_user(&s, NULL));
    cr_assert_eq(s.counters.corrupt, 1u);
    cr_assert_neq(access(bad, F_OK), 0, "the bad entry is still there");
    store_cache_close(&s);
    free(bad);
}

Test(cache_lookup, a_bundle_answers_by_key_alone_and_first)
{
    const char *bundle = store_path(scratch, "bundle"), *user = store_path(scratch, "user");
    fill(bundle, THEIRS);
    struct store_cache s;
    struct gdni_program *found;
    store_cache_open(&s, user, bundle, 0);
    cr_assert_eq(gdni_cache_find_bundle(s.cache, &key, "sm_90a", &found), GDN_OK);
    expect_hit(found);
    cr_assert_null(find_user(&s, NULL), "the user's directory does not hold what only the bundle has");
    store_cache_close(&s);
}

Test(cache_lookup, a_bad_entry_of_a_bundle_is_a_miss_and_stays)
{
    const char *bundle = store_path(scratch, "bundle"), *user = store_path(scratch, "user");
    fill(bundle, THEIRS);
    char *path = store_only_entry(bundle);
    cr_assert_eq(truncate(path, 64), 0);
    struct store_cache s;
    struct gdni_program *found;
    store_cache_open(&s, user, bundle, 0);
    cr_assert_eq(gdni_cache_find_bundle(s.cache, &key, "sm_90a", &found), GDN_OK);
    cr_assert_null(found);
    cr_assert_eq(s.counters.corrupt, 1u);
    cr_assert_eq(access(path, F_OK), 0, "a bundle was changed");
    store_cache_close(&s);
    free(path);
}

Test(cache_lookup, a_bundle_that_is_not_there_is_one_warning)
{
    struct store_cache s;
    store_cache_open(&s, scratch, "/nonexistent/bundle", 0);
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "/nonexistent/bundle"), "%s", s.lines.last[GDN_LOG_WARN]);
    store_cache_close(&s);
}

Test(cache_lookup, bundles_of_the_path_variable_are_searched)
{
    fill(store_path(scratch, "two"), OURS);
    char list[2048];
    snprintf(list, sizeof list, ":%s::%s:", store_path(scratch, "one"), store_path(scratch, "two"));
    mkdir(store_path(scratch, "one"), 0700);
    const struct gdni_env env = { .bundle_path = list };
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = "";
    struct gdni_counters counters = { 0 };
    struct gdni_cache *cache = gdni_cache_create(&cfg, &env, NULL, &counters);
    struct gdni_program *found;
    cr_assert_eq(gdni_cache_find_bundle(cache, &key, "sm_90a", &found), GDN_OK);
    expect_hit(found);
    gdni_cache_destroy(cache);
}

/* A server without a disk that it may write to: it is given a bundle, and keeps nothing. */
Test(cache_lookup, a_disabled_cache_leaves_the_bundles_of_the_environment)
{
    fill(scratch, OURS);
    const struct gdni_env env = { .bundle_path = scratch, .disable_cache = true };
    const gdn_config cfg = GDN_CONFIG_INIT;
    struct gdni_counters counters = { 0 };
    struct gdni_cache *cache = gdni_cache_create(&cfg, &env, NULL, &counters);
    struct gdni_program *found;
    cr_assert_null(gdni_cache_user_dir(cache)->path);
    cr_assert_eq(gdni_cache_find_bundle(cache, &key, "sm_90a", &found), GDN_OK);
    expect_hit(found);
    gdni_cache_destroy(cache);
}

/* Bytes that are there and not believed: whoever reads the log learns of whom, and what to do. */
Test(cache_lookup, entries_in_a_folder_that_others_may_write_to_are_a_miss_that_says_so)
{
    struct store_cache s;
    fill(scratch, OURS);
    cr_assert_eq(chmod(store_path(scratch, "v2"), 0770), 0);
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS));
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "entries in a folder that others may write to (v2, mode 0770) are not used: "
                                                 "chown it to this user and chmod go-w it, or set GDN_CTX_SHARED_CACHE"),
              "%s", s.lines.last[GDN_LOG_WARN]);
    store_cache_close(&s);
    store_cache_open_as(&s, scratch, GDN_CTX_SHARED_CACHE);
    expect_hit(find_user(&s, OURS));
    store_cache_close(&s);
}

/* ---- bad entries ---- */

/* The thing in the entry's place is a miss, counted, warned about, and gone; then the place takes a good entry. */
static void expect_refused(const char *path, const char *words)
{
    struct store_cache s;
    struct stat st;
    store_age(path);
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS), "%s was believed", words);
    cr_assert_eq(s.counters.corrupt, 1u, "%s", words);
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 1, "%s", words);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], words), "\"%s\" expected in: %s", words, s.lines.last[GDN_LOG_WARN]);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], key.hex), "no key in: %s", s.lines.last[GDN_LOG_WARN]);
    cr_assert_neq(lstat(path, &st), 0, "%s: still there", words);
    gdni_cache_publish(s.cache, program, OURS, false);
    expect_hit(find_user(&s, OURS));
    store_cache_close(&s);
}

Test(cache_lookup, every_flipped_byte_and_every_truncation_is_a_miss)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    size_t size;
    uint8_t *good = store_read(path, &size);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    uint64_t misses = 0;
    for (size_t at = 0; at < size; ++at) {
        good[at] ^= 0x41;
        store_write(path, good, size);
        good[at] ^= 0x41;
        cr_assert_null(find_user(&s, OURS), "flip of byte %zu of %zu was believed", at, size);
        store_write(path, good, at);
        cr_assert_null(find_user(&s, OURS), "truncation to %zu of %zu bytes was believed", at, size);
        misses += 2;
    }
    cr_assert_eq(s.counters.corrupt, misses);
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 1, "a thousand bad entries are one line");
    store_write(path, good, size);
    expect_hit(find_user(&s, OURS));
    store_cache_close(&s);
    free(good);
    free(path);
}

/* As cp and tar do it: the file is open under its final name, and has half of its bytes. */
Test(cache_lookup, a_copy_under_way_is_a_miss_and_comes_to_its_end)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    size_t size;
    uint8_t *good = store_read(path, &size);
    struct store_cache s;
    cr_assert_eq(unlink(path), 0);
    const int copy = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert_eq(write(copy, good, size / 2), (ssize_t)(size / 2));
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS));
    cr_assert_eq(s.counters.corrupt, 1u);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "is refused, and left alone as it may still be copied: "), "%s",
              s.lines.last[GDN_LOG_WARN]);
    cr_assert_eq(write(copy, good + size / 2, size - size / 2), (ssize_t)(size - size / 2));
    close(copy);
    expect_hit(find_user(&s, OURS));
    store_cache_close(&s);
    free(good);
    free(path);
}

Test(cache_lookup, who_compiled_what_is_half_copied_puts_his_own_in_its_place)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    struct store_cache s;
    cr_assert_eq(truncate(path, 100), 0);
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS));
    gdni_cache_publish(s.cache, program, OURS, false);
    cr_assert_eq(s.counters.publish_failures, 0u);
    expect_hit(find_user(&s, OURS));
    store_cache_close(&s);
    free(path);
}

Test(cache_lookup, an_entry_of_another_key_under_this_name_is_a_miss)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    struct gdni_unit other = store_unit("sm_90a", "another source");
    struct gdni_program *wrong = store_program(&other);
    struct gdni_entry view;
    void *bytes = NULL;
    size_t size = 0;
    gdni_program_view(wrong, &view);
    cr_assert_eq(gdni_entry_encode(&view, &bytes, &size), GDN_OK);
    store_write(path, bytes, size);
    expect_refused(path, "another key");
    gdni_free(bytes);
    gdni_program_release(wrong);
    free(path);
}

Test(cache_lookup, a_link_in_an_entrys_place_is_removed_and_not_followed)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    const char *target = store_path(scratch, "target");
    cr_assert_eq(rename(path, target), 0);
    cr_assert_eq(symlink(target, path), 0);
    expect_refused(path, "a symbolic link");
    cr_assert_eq(access(target, F_OK), 0, "the link's target was removed");
    free(path);
}

Test(cache_lookup, a_fifo_in_an_entrys_place_blocks_nobody)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    alarm(20);
    expect_refused(path, "no regular file");
    alarm(0);
    free(path);
}

Test(cache_lookup, a_file_too_long_for_any_entry_is_not_read)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    cr_assert_eq(truncate(path, INT64_C(1) << 40), 0); /* sparse */
    expect_refused(path, "too long");
    free(path);
}

Test(cache_lookup, a_file_of_a_stranger_is_a_miss)
{
    if (geteuid() != 0) cr_skip_test("only root can make a file of another user");
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    cr_assert_eq(chown(path, 1234, 1234), 0);
    expect_refused(path, "another user");
    free(path);
}

Test(cache_lookup, a_folder_in_an_entrys_place_stops_nobody)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS));
    gdni_cache_publish(s.cache, program, OURS, false);
    cr_assert_null(find_user(&s, OURS));
    store_cache_close(&s);
    free(path);
}

Test(cache_lookup, what_cannot_be_read_is_a_miss_and_stays)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    chmod(path, 0);
    store_drop_root(scratch);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    cr_assert_null(find_user(&s, OURS));
    cr_assert_null(find_user(&s, OURS));
    cr_assert_eq(s.counters.corrupt, 0u);
    cr_assert_eq(s.lines.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(s.lines.last[GDN_LOG_WARN], "Permission denied"), "%s", s.lines.last[GDN_LOG_WARN]);
    cr_assert_eq(access(path, F_OK), 0);
    store_cache_close(&s);
    free(path);
}

/* ---- recency ---- */

static time_t mtime_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    return st.st_mtim.tv_sec;
}

/* time() may be a tick behind, and with it a second behind a file that was written just now. */
static time_t latest_now(void)
{
    struct timespec now;
    cr_assert_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
    return now.tv_sec;
}

Test(cache_lookup, a_hit_makes_an_entry_young_at_most_hourly)
{
    fill(scratch, OURS);
    char *path = store_only_entry(scratch);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    const time_t now = time(NULL);
    store_set_mtime(path, now - 3000);
    expect_hit(find_user(&s, OURS));
    cr_assert_eq(mtime_of(path), now - 3000, "written to within the hour");
    store_set_mtime(path, now - 4000);
    expect_hit(find_user(&s, OURS));
    cr_assert_geq(mtime_of(path), now);
    store_set_mtime(path, now + 100000); /* a clock that was wrong: such an entry would never be the oldest */
    expect_hit(find_user(&s, OURS));
    cr_assert_leq(mtime_of(path), latest_now());
    store_cache_close(&s);
    free(path);
}

Test(cache_lookup, a_hit_in_a_bundle_writes_nothing)
{
    const char *bundle = store_path(scratch, "bundle");
    fill(bundle, OURS);
    char *path = store_only_entry(bundle);
    store_set_mtime(path, 1000000);
    struct store_cache s;
    struct gdni_program *found;
    store_cache_open(&s, "", bundle, 0);
    cr_assert_eq(gdni_cache_find_bundle(s.cache, &key, "sm_90a", &found), GDN_OK);
    expect_hit(found);
    cr_assert_eq(mtime_of(path), 1000000);
    store_cache_close(&s);
    free(path);
}

/* ---- memory ---- */

Test(cache_lookup, running_out_of_memory_is_a_status_and_no_miss)
{
    fill(scratch, OURS);
    struct store_cache s;
    store_cache_open(&s, scratch, NULL, 0);
    struct gdni_program *found = NULL;
    int allowed = 0;
    for (; !found && allowed < 50; ++allowed) {
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdni_cache_find_user(s.cache, &key, "sm_90a", OURS, false, &found);
        gdni_mem_fail_after(-1);
        cr_assert_eq(status, found ? GDN_OK : GDN_E_NOMEM, "after %d allocations: %s", allowed, gdn_status_name(status));
    }
    cr_assert_geq(allowed, 5, "file, program and its three parts");
    cr_assert_eq(s.counters.corrupt, 0u);
    expect_hit(found);
    store_cache_close(&s);
    cr_assert(fake_no_leaks());
}

Test(cache_lookup, creation_survives_running_out_of_memory_at_any_point)
{
    const char *bundle = store_path(scratch, "bundle");
    mkdir(bundle, 0700);
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = scratch;
    cfg.bundle_dirs = &bundle;
    cfg.num_bundle_dirs = 1;
    const struct gdni_env env = { .bundle_path = scratch };
    struct gdni_counters counters = { 0 };
    struct gdni_cache *cache = NULL;
    int allowed = 0;
    const int next = dup(0);
    close(next);
    for (; allowed < 50; ++allowed) {
        gdni_mem_fail_after(allowed);
        cache = gdni_cache_create(&cfg, &env, NULL, &counters);
        gdni_mem_fail_after(-1);
        cr_assert(!cache || gdni_cache_bundle_dir(cache, 1), "after %d allocations a bundle was left out", allowed);
        gdni_cache_destroy(cache);
        const int now = dup(0);
        close(now);
        cr_assert_eq(now, next, "after %d allocations a descriptor is left open", allowed);
    }
    cr_assert_not_null(cache, "fifty allocations are not enough");
    cr_assert(fake_no_leaks());
}
