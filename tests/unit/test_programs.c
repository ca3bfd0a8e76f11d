/*
 * test_programs.c - memory, bundle, disk, compiler: in that order, counted, and with a sentence when none of them has it.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/nvrtc.h"
#include "support/fake_host.h"
#include "support/store.h"

static char *scratch;
static struct fake_nvrtc *fake;
static struct gdni_unit unit;
static struct gdni_key key;

static void set_up(void)
{
    scratch = store_scratch();
    fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    unit = store_unit("sm_90a", "a");
    key = store_key(&unit);
}

static void tear_down(void)
{
    gdni_key_free(&key);
    store_remove(scratch);
}

TestSuite(programs, .init = set_up, .fini = tear_down);

#define EXPECT_SENTENCE(words) cr_assert(strstr(gdni_error_text(), words), "\"%s\" expected in: %s", words, gdni_error_text())

static gdn_ctx *open_ctx(const char *dir, uint32_t flags)
{
    return store_ctx(dir, flags, NULL, GDN_FAKE_NVRTC_PATH);
}

static void expect_origin(gdn_ctx *ctx, uint32_t flags, enum gdni_origin expected)
{
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, flags, &program, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, expected, "origin %d, not %d", origin, expected);
    cr_assert_str_eq(program->key_text, key.text);
    cr_assert_str_eq(program->key_hex, key.hex);
    cr_assert_str_eq(program->arch, "sm_90a");
    cr_assert_str_eq(program->entry, "tiny");
    cr_assert_eq(program->facts.registers, 42);
    cr_assert_null(gdni_cubin_check(program->cubin, program->cubin_size, "sm_90a"));
    cr_assert_arr_eq((const char *)program->cubin + 64, "a", 1);
    gdni_program_release(program);
}

/* One that store_program() made, which another compiler's name stands for. */
static void expect_from_disk(gdn_ctx *ctx)
{
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &program, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, GDNI_FROM_DISK);
    gdni_program_release(program);
}

static void expect_failure(gdn_ctx *ctx, uint32_t flags, gdn_status expected)
{
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    const gdn_status status = gdni_programs_get(ctx, &unit, &key, flags, &program, &origin);
    cr_assert_eq(status, expected, "%s: %s", gdn_status_name(status), gdni_error_text());
    cr_assert_null(program);
}

static void expect_stats(gdn_ctx *ctx, uint64_t memory_hits, uint64_t disk_hits, uint64_t misses, uint64_t compiles)
{
    const gdn_cache_stats s = store_stats(ctx);
    cr_assert(s.memory_hits == memory_hits && s.disk_hits == disk_hits && s.misses == misses && s.compiles == compiles,
              "memory %llu disk %llu misses %llu compiles %llu", (unsigned long long)s.memory_hits,
              (unsigned long long)s.disk_hits, (unsigned long long)s.misses, (unsigned long long)s.compiles);
}

static void fill(const char *dir)
{
    gdn_ctx *ctx = open_ctx(dir, 0);
    expect_origin(ctx, 0, GDNI_FROM_COMPILER);
    gdn_ctx_destroy(ctx);
}

Test(programs, compiler_then_memory_then_disk)
{
    gdn_ctx *first = open_ctx(scratch, 0), *second = open_ctx(scratch, 0);
    fake->delay_ms = 5;
    expect_origin(first, 0, GDNI_FROM_COMPILER);
    expect_origin(first, 0, GDNI_FROM_MEMORY);
    expect_stats(first, 1, 0, 1, 1);
    cr_assert_geq(store_stats(first).compile_usec, 5000u);
    expect_origin(second, 0, GDNI_FROM_DISK);
    expect_origin(second, 0, GDNI_FROM_MEMORY);
    expect_stats(second, 1, 1, 0, 0);
    cr_assert_eq(fake->compiles, 1);
    gdn_ctx_destroy(first);
    gdn_ctx_destroy(second);
}

Test(programs, a_bundle_goes_before_the_users_directory_and_needs_no_compiler)
{
    fill(scratch);
    const char *bundle = scratch;
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = "";
    cfg.bundle_dirs = &bundle;
    cfg.num_bundle_dirs = 1;
    cfg.flags = GDN_CTX_NO_ENV;
    cfg.nvrtc_path = "/nonexistent/libnvrtc.so";
    gdn_ctx *ctx;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    expect_origin(ctx, 0, GDNI_FROM_BUNDLE);
    expect_stats(ctx, 0, 1, 0, 0);
    gdn_ctx_destroy(ctx);
}

Test(programs, a_full_cache_works_without_a_compiler)
{
    fill(scratch);
    gdn_ctx *ctx = store_ctx(scratch, 0, NULL, "/nonexistent/libnvrtc.so");
    expect_origin(ctx, 0, GDNI_FROM_DISK);
    gdn_ctx_destroy(ctx);
}

Test(programs, an_empty_cache_without_a_compiler_is_a_sentence_with_the_key)
{
    gdn_ctx *ctx = store_ctx(scratch, 0, NULL, "/nonexistent/libnvrtc.so");
    expect_failure(ctx, 0, GDN_E_NO_NVRTC);
    EXPECT_SENTENCE(key.hex);
    EXPECT_SENTENCE("/nonexistent/libnvrtc.so");
    expect_stats(ctx, 0, 0, 1, 0);
    gdn_ctx_destroy(ctx);
}

/* Puts the entry of another compiler into the directory. */
static void plant_another_compilers(const char *dir)
{
    struct store_cache s;
    struct gdni_program *program = store_program(&unit);
    store_cache_open(&s, dir, NULL, 0);
    gdni_cache_publish(s.cache, program, "ffffffff", false);
    store_cache_close(&s);
    gdni_program_release(program);
}

Test(programs, another_compilers_entry_is_not_used_by_one_who_has_a_compiler)
{
    plant_another_compilers(scratch);
    gdn_ctx *ctx = open_ctx(scratch, 0);
    expect_origin(ctx, 0, GDNI_FROM_COMPILER);
    cr_assert_eq(store_count_files(scratch), 2);
    gdn_ctx_destroy(ctx);
}

Test(programs, a_compiler_that_is_too_old_is_none)
{
    plant_another_compilers(scratch);
    fake->major = 12;
    fake->minor = 7; /* the one before the oldest that will do */
    gdn_ctx *ctx = open_ctx(scratch, 0);
    expect_from_disk(ctx);
    gdn_ctx_destroy(ctx);
}

/* So it is for an arch that only newer ones know: what it could never make it cannot make stale. */
Test(programs, a_compiler_that_does_not_know_the_arch_is_none)
{
    gdni_key_free(&key);
    unit = store_unit("sm_103a", "a");
    key = store_key(&unit);
    plant_another_compilers(scratch);
    fake->major = 12;
    fake->minor = 8;
    gdn_ctx *ctx = open_ctx(scratch, 0);
    expect_from_disk(ctx);
    cr_assert_eq(fake->compiles, 0);
    gdn_ctx_destroy(ctx);
}

Test(programs, a_bad_entry_is_compiled_again_and_replaced)
{
    fill(scratch);
    char *path = store_only_entry(scratch);
    size_t size;
    char *bytes = store_read(path, &size);
    bytes[100] ^= 1;
    store_write(path, bytes, size);
    gdn_ctx *first = open_ctx(scratch, 0), *second = open_ctx(scratch, 0);
    expect_origin(first, 0, GDNI_FROM_COMPILER);
    cr_assert_eq(store_stats(first).corrupt, 1u);
    expect_origin(second, 0, GDNI_FROM_DISK);
    gdn_ctx_destroy(first);
    gdn_ctx_destroy(second);
    free(bytes);
    free(path);
}

/* The look before a compile's turn sees it a second time. */
Test(programs, a_bad_entry_that_cannot_be_removed_is_counted_once)
{
    fill(scratch);
    char *path = store_only_entry(scratch);
    cr_assert_eq(truncate(path, 100), 0);
    *strrchr(path, '/') = '\0';
    cr_assert_eq(chmod(path, 0500), 0);
    store_drop_root(scratch);
    gdn_ctx *ctx = open_ctx(scratch, 0);
    expect_origin(ctx, 0, GDNI_FROM_COMPILER);
    cr_assert_eq(store_stats(ctx).corrupt, 1u);
    cr_assert_eq(chmod(path, 0700), 0);
    gdn_ctx_destroy(ctx);
    free(path);
}

/* Another build of the fake: the same file but for its build id. */
static void make_build(const char *path, char last_digit)
{
    static const char head[] = { 4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0 }; /* of the note */
    size_t size;
    char *bytes = store_read(GDN_FAKE_NVRTC_PATH, &size), *note = memmem(bytes, size, head, sizeof head);
    cr_assert_not_null(note, "the fake was linked without a build id");
    note[sizeof head + 19] = last_digit;
    unlink(path);
    store_write(path, bytes, size);
    free(bytes);
}

/* The tag that is read off a file is a guess; what is compiled with is asked again before it has to compile. */
Test(programs, a_compiler_that_is_not_the_one_that_was_guessed_still_finds_its_entries)
{
    const char *library = store_path(scratch, "libnvrtc.so.13"), *dir = store_path(scratch, "cache");
    make_build(library, 1);
    gdn_ctx *first = store_ctx(dir, 0, NULL, library), *second = store_ctx(dir, 0, NULL, library);
    char guessed[GDNI_COMPILER_TAG], actual[GDNI_COMPILER_TAG];
    cr_assert(gdni_nvrtc_tag(second->nvrtc, guessed));
    make_build(library, 2); /* an upgrade behind its back */
    expect_origin(first, 0, GDNI_FROM_COMPILER);
    cr_assert(gdni_nvrtc_tag(first->nvrtc, actual));
    cr_assert_str_neq(guessed, actual);
    expect_origin(second, 0, GDNI_FROM_DISK);
    expect_stats(second, 0, 1, 0, 0);
    gdn_ctx_destroy(first);
    gdn_ctx_destroy(second);
}

/* ---- strict ---- */

Test(programs, strict_mode_names_key_kernel_arch_and_remedy)
{
    gdn_ctx *strict = open_ctx(scratch, GDN_CTX_NO_COMPILE), *plain = open_ctx(scratch, 0);
    expect_failure(strict, 0, GDN_E_NOT_CACHED);
    EXPECT_SENTENCE(key.hex);
    EXPECT_SENTENCE("tiny for sm_90a");
    EXPECT_SENTENCE("gdn-jit-cache warm");
    EXPECT_SENTENCE("GDN_CTX_NO_COMPILE");
    expect_failure(plain, GDNI_NO_COMPILE, GDN_E_NOT_CACHED);
    EXPECT_SENTENCE("GDN_PLAN_CACHED_ONLY");
    cr_assert_eq(fake->compiles, 0);
    expect_origin(plain, 0, GDNI_FROM_COMPILER);
    expect_origin(plain, GDNI_NO_COMPILE, GDNI_FROM_MEMORY);
    expect_origin(strict, 0, GDNI_FROM_DISK);
    gdn_ctx_destroy(strict);
    gdn_ctx_destroy(plain);
}

Test(programs, the_variable_makes_a_context_strict)
{
    setenv("GDN_JIT_DISABLE_COMPILE", "1", 1);
    setenv("GDN_JIT_NVRTC", GDN_FAKE_NVRTC_PATH, 1);
    setenv("GDN_JIT_CACHE_DIR", scratch, 1);
    gdn_ctx *ctx;
    cr_assert_eq(gdn_ctx_create(&ctx, NULL), GDN_OK);
    expect_failure(ctx, 0, GDN_E_NOT_CACHED);
    EXPECT_SENTENCE("GDN_JIT_DISABLE_COMPILE");
    gdn_ctx_destroy(ctx);
}

/* Whoever never compiles has no compiler: what another one warmed is his to use. */
Test(programs, strict_mode_takes_any_compilers_entry)
{
    plant_another_compilers(scratch);
    gdn_ctx *ctx = open_ctx(scratch, GDN_CTX_NO_COMPILE);
    expect_from_disk(ctx);
    gdn_ctx_destroy(ctx);
}

/* ---- rebuild ---- */

Test(programs, rebuild_compiles_and_replaces_in_memory_and_on_disk)
{
    plant_another_compilers(scratch);
    char *path = store_only_entry(scratch);
    unlink(path);
    gdn_ctx *ctx = open_ctx(scratch, 0);
    struct gdni_program *old, *fresh, *found;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &old, &origin), GDN_OK);
    char *entry = store_only_entry(scratch);
    store_write(entry, "damaged behind our back", 23);
    cr_assert_eq(gdni_programs_rebuild(ctx, &unit, &key, 0, old, &fresh, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_neq(fresh, old);
    cr_assert_eq(fake->compiles, 2);
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &found, &origin), GDN_OK);
    cr_assert_eq(found, fresh);
    cr_assert_eq(origin, GDNI_FROM_MEMORY);
    cr_assert_arr_eq(old->cubin, fresh->cubin, old->cubin_size); /* old is still whole */
    gdni_program_release(old);
    gdni_program_release(fresh);
    gdni_program_release(found);
    gdn_ctx *second = open_ctx(scratch, 0);
    expect_origin(second, 0, GDNI_FROM_DISK);
    gdn_ctx_destroy(second);
    gdn_ctx_destroy(ctx);
    free(entry);
    free(path);
}

Test(programs, rebuild_in_strict_mode_is_refused)
{
    fill(scratch);
    gdn_ctx *ctx = open_ctx(scratch, GDN_CTX_NO_COMPILE);
    struct gdni_program *old = NULL, *program = NULL;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &old, &origin), GDN_OK);
    cr_assert_eq(gdni_programs_rebuild(ctx, &unit, &key, 0, old, &program, &origin), GDN_E_NOT_CACHED);
    EXPECT_SENTENCE("refused the cached cubin");
    cr_assert_null(program);
    gdni_program_release(old);
    cr_assert_eq(fake->compiles, 1);
    gdn_ctx_destroy(ctx);
}

Test(programs, eight_plans_with_one_refused_cubin_compile_it_once)
{
    fill(scratch);
    gdn_ctx *ctx = open_ctx(scratch, 0);
    struct gdni_program *refused = NULL, *fresh[8];
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &refused, &origin), GDN_OK);
    for (int i = 0; i < 8; ++i) {
        cr_assert_eq(gdni_programs_rebuild(ctx, &unit, &key, 0, refused, &fresh[i], &origin), GDN_OK);
        cr_assert_eq(fresh[i], fresh[0]);
        cr_assert_eq(origin, i ? GDNI_FROM_MEMORY : GDNI_FROM_COMPILER);
    }
    cr_assert_eq(fake->compiles, 2);
    cr_assert_eq(store_stats(ctx).corrupt, 1u);
    for (int i = 0; i < 8; ++i) gdni_program_release(fresh[i]);
    gdni_program_release(refused);
    gdn_ctx_destroy(ctx);
}

/* The driver refuses what a bundle has, in each process. */
static gdn_ctx *open_with_bundles(const char *const *bundles, size_t count, const char *dir, const char *nvrtc,
                                  uint32_t flags)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = dir;
    cfg.bundle_dirs = bundles;
    cfg.num_bundle_dirs = count;
    cfg.flags = flags | GDN_CTX_NO_ENV;
    cfg.nvrtc_path = nvrtc;
    gdn_ctx *ctx;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    return ctx;
}

static gdn_ctx *open_with_bundle(const char *bundle, const char *dir, uint32_t flags)
{
    return open_with_bundles(&bundle, 1, dir, GDN_FAKE_NVRTC_PATH, flags);
}

static struct gdni_program *take_bundled(gdn_ctx *ctx)
{
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &program, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, GDNI_FROM_BUNDLE);
    cr_assert_eq(program->place.dir, 0u);
    return program;
}

static gdn_status refuse_bundled(gdn_ctx *ctx, enum gdni_origin *origin)
{
    struct gdni_program *refused = take_bundled(ctx), *fresh = NULL;
    const gdn_status status = gdni_programs_rebuild(ctx, &unit, &key, 0, refused, &fresh, origin);
    gdni_program_release(refused);
    gdni_program_release(fresh);
    return status;
}

Test(programs, what_a_bundle_has_and_the_driver_refuses_is_compiled_once_for_all_processes)
{
    char bundle[512], user[512];
    enum gdni_origin origin;
    snprintf(bundle, sizeof bundle, "%s", store_path(scratch, "bundle"));
    snprintf(user, sizeof user, "%s", store_path(scratch, "user"));
    fill(bundle);
    gdn_ctx *strict = open_with_bundle(bundle, user, GDN_CTX_NO_COMPILE);
    cr_assert_eq(refuse_bundled(strict, &origin), GDN_E_NOT_CACHED);
    gdn_ctx_destroy(strict);
    gdn_ctx *first = open_with_bundle(bundle, user, 0);
    cr_assert_eq(refuse_bundled(first, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, GDNI_FROM_COMPILER);
    gdn_ctx_destroy(first);
    for (int i = 0; i < 2; ++i) {
        gdn_ctx *later = open_with_bundle(bundle, user, i ? GDN_CTX_NO_COMPILE : 0);
        cr_assert_eq(refuse_bundled(later, &origin), GDN_OK, "%s", gdni_error_text());
        cr_assert_eq(origin, GDNI_FROM_DISK);
        cr_assert_eq(store_stats(later).compiles, 0u);
        gdn_ctx_destroy(later);
    }
    cr_assert_eq(store_count_files(bundle), 1, "a bundle was changed");
}

/* ---- one refused cubin after the other ---- */

/* Two bundles with an entry each, and a cache directory that two compilers filled. */
static gdn_ctx *open_with_four_entries(const char *nvrtc, uint32_t flags)
{
    static char one[512], two[512], user[512];
    const char *const bundles[] = { one, two };
    snprintf(one, sizeof one, "%s", store_path(scratch, "one"));
    snprintf(two, sizeof two, "%s", store_path(scratch, "two"));
    snprintf(user, sizeof user, "%s", store_path(scratch, "user"));
    fill(one);
    fill(two);
    fill(user);
    plant_another_compilers(user);
    cr_assert_eq(store_count_files(user), 2);
    return open_with_bundles(bundles, 2, user, nvrtc, flags);
}

/* The driver refuses *program: what stands in for it is `expected`, and another entry than that. Takes *program over. */
static void expect_instead(gdn_ctx *ctx, struct gdni_program **program, enum gdni_origin expected)
{
    struct gdni_program *fresh = NULL;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_rebuild(ctx, &unit, &key, 0, *program, &fresh, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, expected, "origin %d, not %d", origin, expected);
    cr_assert_eq(fresh->source, expected);
    cr_assert(expected == GDNI_FROM_COMPILER || fresh->place.dir != (*program)->place.dir ||
                  strcmp(fresh->place.name, (*program)->place.name) > 0,
              "%zu %s comes again", fresh->place.dir, fresh->place.name);
    gdni_program_release(*program);
    *program = fresh;
}

/* Takes ctx over. */
static void expect_every_entry_tried(gdn_ctx *ctx, gdn_status at_last, const char *words)
{
    struct gdni_program *program = take_bundled(ctx), *none = NULL;
    enum gdni_origin origin;
    expect_instead(ctx, &program, GDNI_FROM_BUNDLE);
    expect_instead(ctx, &program, GDNI_FROM_DISK);
    expect_instead(ctx, &program, GDNI_FROM_DISK);
    cr_assert_eq(gdni_programs_rebuild(ctx, &unit, &key, 0, program, &none, &origin), at_last);
    EXPECT_SENTENCE(words);
    cr_assert_null(none);
    cr_assert_eq(store_stats(ctx).compiles, 0u);
    cr_assert_eq(store_stats(ctx).corrupt, 4u);
    gdni_program_release(program);
    gdn_ctx_destroy(ctx);
}

Test(programs, strict_mode_tries_every_entry_of_a_key_before_it_gives_up)
{
    expect_every_entry_tried(open_with_four_entries(GDN_FAKE_NVRTC_PATH, GDN_CTX_NO_COMPILE), GDN_E_NOT_CACHED,
                             "refused the cached cubin");
}

Test(programs, who_has_no_compiler_tries_every_entry_as_strict_mode_does)
{
    static const char nowhere[] = "/nonexistent/libnvrtc.so";
    expect_every_entry_tried(open_with_four_entries(nowhere, 0), GDN_E_NO_NVRTC, nowhere);
}

Test(programs, who_may_compile_asks_other_bundles_and_his_own_compilers_entry_first)
{
    gdn_ctx *ctx = open_with_four_entries(GDN_FAKE_NVRTC_PATH, 0);
    struct gdni_program *program = take_bundled(ctx);
    expect_instead(ctx, &program, GDNI_FROM_BUNDLE);
    expect_instead(ctx, &program, GDNI_FROM_DISK);
    expect_instead(ctx, &program, GDNI_FROM_COMPILER);
    cr_assert_eq(store_stats(ctx).compiles, 1u);
    gdni_program_release(program);
    gdn_ctx_destroy(ctx);
}

/* ---- threads ---- */

enum { THREADS = 16 };

struct crowd {
    gdn_ctx *ctx;
    pthread_barrier_t start;
    atomic_int ok, failed_alike;
    atomic_int origins[4];
};

static void *get_together(void *data)
{
    struct crowd *crowd = data;
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    pthread_barrier_wait(&crowd->start);
    const gdn_status status = gdni_programs_get(crowd->ctx, &unit, &key, 0, &program, &origin);
    if (status == GDN_OK) {
        ++crowd->ok;
        ++crowd->origins[origin];
        gdni_program_release(program);
    } else
        crowd->failed_alike += status == GDN_E_COMPILE && strstr(gdni_error_text(), "the fake was told to fail") != NULL;
    return NULL;
}

static void run_crowd(struct crowd *crowd)
{
    pthread_t threads[THREADS];
    crowd->ctx = open_ctx(scratch, 0);
    fake->delay_ms = 100;
    pthread_barrier_init(&crowd->start, NULL, THREADS);
    for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, get_together, crowd), 0);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crowd->start);
}

Test(programs, many_threads_wanting_one_key_compile_once)
{
    struct crowd crowd = { 0 };
    run_crowd(&crowd);
    cr_assert_eq(crowd.ok, THREADS);
    cr_assert_eq(fake->compiles, 1);
    cr_assert_eq(crowd.origins[GDNI_FROM_COMPILER], 1);
    cr_assert_eq(crowd.origins[GDNI_FROM_MEMORY], THREADS - 1);
    expect_stats(crowd.ctx, THREADS - 1, 0, 1, 1);
    gdn_ctx_destroy(crowd.ctx);
}

Test(programs, all_of_them_see_the_one_failure)
{
    struct crowd crowd = { 0 };
    fake->result = 6;
    run_crowd(&crowd);
    cr_assert_eq(crowd.failed_alike, THREADS);
    cr_assert_leq(fake->compiles, 2, "%d compiles of what cannot be compiled", fake->compiles); /* one may come late */
    fake->result = 0;
    fake->delay_ms = 0;
    expect_origin(crowd.ctx, 0, GDNI_FROM_COMPILER);
    cr_assert_eq(store_count_files(scratch), 1);
    gdn_ctx_destroy(crowd.ctx);
}

/* ---- the rest ---- */

Test(programs, a_compile_is_one_line_at_its_start_and_one_at_its_end)
{
    struct store_log log = { 0 };
    gdn_ctx *ctx = store_ctx(scratch, 0, &log, GDN_FAKE_NVRTC_PATH);
    expect_origin(ctx, 0, GDNI_FROM_COMPILER);
    cr_assert_eq(log.count[GDN_LOG_INFO], 2);
    const char *line = log.last[GDN_LOG_INFO];
    cr_assert(strstr(line, "tiny") && strstr(line, "sm_90a") && strstr(line, key.hex) && strstr(line, " ms"), "%s", line);
    expect_origin(ctx, 0, GDNI_FROM_MEMORY);
    cr_assert_eq(log.count[GDN_LOG_INFO], 2);
    gdn_ctx_destroy(ctx);
}

Test(programs, a_failed_compile_names_key_and_words_and_keeps_nothing)
{
    gdn_ctx *ctx = open_ctx(scratch, 0);
    fake->result = 6;
    expect_failure(ctx, 0, GDN_E_COMPILE);
    EXPECT_SENTENCE(key.hex);
    EXPECT_SENTENCE("the fake was told to fail");
    cr_assert_eq(store_count_files(scratch), 0);
    expect_stats(ctx, 0, 0, 1, 0);
    gdn_ctx_destroy(ctx);
}

Test(programs, running_out_of_memory_at_any_point_leaves_a_context_that_works)
{
    int failures = 0;
    for (int allowed = 0; allowed < 60; ++allowed) {
        char *dir = store_scratch();
        gdn_ctx *ctx = open_ctx(dir, 0);
        struct gdni_program *program = NULL;
        enum gdni_origin origin;
        gdni_mem_fail_after(allowed);
        const gdn_status status = gdni_programs_get(ctx, &unit, &key, 0, &program, &origin);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "after %d: %s", allowed, gdn_status_name(status));
        cr_assert_eq(status == GDN_OK, program != NULL);
        failures += status != GDN_OK;
        gdni_program_release(program);
        struct gdni_program *again = NULL;
        cr_assert_eq(gdni_programs_get(ctx, &unit, &key, 0, &again, &origin), GDN_OK, "after %d: %s", allowed,
                     gdni_error_text());
        gdni_program_release(again);
        cr_assert_eq(fake->programs, 0);
        gdn_ctx_destroy(ctx);
        store_remove(dir);
    }
    cr_assert_geq(failures, 8, "registry, compile and program have more allocations than %d", failures);
    cr_assert(fake_no_leaks());
}
