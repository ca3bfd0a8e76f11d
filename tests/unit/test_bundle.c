/*
 * test_bundle.c - a bundle comes whole or not at all, has the same bytes each time, is checked against its manifest, and serves
 * without compiler, home or a disk that can be written to.
 */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/manifest.h"
#include "support/fake_host.h"
#include "support/store.h"

static char *scratch;
static char cache[512], bundle[512];
static gdn_ctx *ctx;
static struct gdni_key key_a, key_b;

/* Compiles by a fake NVRTC, and so with another compile time in each entry. */
static void build_by(const char *nvrtc, const char *dir, const char *source, const char *arch)
{
    struct gdni_unit unit = store_unit(arch, source);
    struct gdni_key key = store_key(&unit);
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    fake_nvrtc_open(nvrtc)->delay_ms += 3;
    gdn_ctx *builder = store_ctx(dir, 0, NULL, nvrtc);
    cr_assert_eq(gdni_programs_get(builder, &unit, &key, 0, &program, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, GDNI_FROM_COMPILER);
    gdni_program_release(program);
    gdn_ctx_destroy(builder);
    gdni_key_free(&key);
}

static void build(const char *dir, const char *source, const char *arch)
{
    build_by(GDN_FAKE_NVRTC_PATH, dir, source, arch);
}

static struct gdni_key key_of(const char *source)
{
    struct gdni_unit unit = store_unit("sm_90a", source);
    return store_key(&unit);
}

static void set_up(void)
{
    scratch = store_scratch();
    snprintf(cache, sizeof cache, "%s/cache", scratch);
    snprintf(bundle, sizeof bundle, "%s/bundle", scratch);
    build(cache, "a", "sm_90a");
    build(cache, "b", "sm_90a");
    build(cache, "c", "sm_80");
    key_a = key_of("a");
    key_b = key_of("b");
    ctx = store_ctx(cache, 0, NULL, GDN_FAKE_NVRTC_PATH);
}

static void tear_down(void)
{
    gdn_ctx_destroy(ctx);
    gdni_key_free(&key_a);
    gdni_key_free(&key_b);
    if (seteuid(0) == 0 && setegid(0) != 0) abort();
    store_remove(scratch);
    cr_assert(fake_no_leaks());
}

TestSuite(bundle, .init = set_up, .fini = tear_down);

#define EXPECT_SENTENCE(words) cr_assert(strstr(gdn_last_error(), words), "\"%s\" expected in: %s", words, gdn_last_error())

static gdn_status pack_into(const char *dir, const char *const *keys, size_t num_keys, gdn_cache_report *report)
{
    static const char *const contents[] = { "qwen3 tp4, NVIDIA H200", "a \"quoted\" line", "qwen3 tp4, NVIDIA H200" };
    gdn_pack_options options = GDN_PACK_OPTIONS_INIT;
    options.dir = dir;
    options.keys = keys;
    options.num_keys = num_keys;
    options.contents = contents;
    options.num_contents = 3;
    *report = (gdn_cache_report)GDN_CACHE_REPORT_INIT;
    return gdn_cache_pack(ctx, &options, report);
}

static gdn_cache_report pack(const char *dir)
{
    gdn_cache_report report;
    cr_assert_eq(pack_into(dir, NULL, 0, &report), GDN_OK, "%s", gdn_last_error());
    return report;
}

static char problems[1024];

static int note_problem(void *user, const gdn_cache_entry *e)
{
    (void)user;
    cr_assert_eq(e->valid, 0);
    snprintf(problems + strlen(problems), sizeof problems - strlen(problems), "%s\n", e->problem);
    return 0;
}

static gdn_cache_report verify(const char *dir)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    problems[0] = '\0';
    cr_assert_eq(gdn_cache_verify(ctx, dir, GDN_VERIFY_REMOVE, note_problem, NULL, &report), GDN_OK, "%s",
                 gdn_last_error());
    cr_assert_eq(report.removed, 0u, "a bundle was changed");
    return report;
}

static int open_to_all(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)type, (void)at;
    return chmod(path, S_ISDIR(st->st_mode) ? 0755 : 0644);
}

/* NFS with root_squash, CIFS, user namespaces: what this process makes belongs to another user. */
Test(bundle, is_written_where_the_file_system_maps_owners)
{
    if (geteuid() != 0) cr_skip_test("only root can make files of another user");
    cr_assert_eq(nftw(cache, open_to_all, 16, FTW_PHYS), 0);
    cr_assert_eq(chmod(scratch, 0777), 0);
    setfsuid(1234);
    gdn_cache_report report;
    const gdn_status status = pack_into(bundle, NULL, 0, &report);
    setfsuid(0);
    cr_assert_eq(status, GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(report.entries, 3u);
    struct stat st;
    cr_assert(stat(bundle, &st) == 0 && st.st_uid == 1234, "no owner was mapped: this test shows nothing");
    cr_assert_eq(verify(bundle).damaged, 0u);
}

/* ---- pack ---- */

Test(bundle, holds_every_entry_and_verifies)
{
    const gdn_cache_report packed = pack(bundle), verified = verify(bundle);
    cr_assert_eq(packed.entries, 3u);
    cr_assert_eq(store_count_files(bundle), 4, "three entries and a manifest");
    cr_assert(verified.entries == 3 && verified.bytes == packed.bytes);
    cr_assert(verified.damaged == 0 && verified.missing == 0 && verified.unlisted == 0, "%s", problems);
    struct stat st;
    cr_assert(stat(bundle, &st) == 0 && (st.st_mode & 07777) == 0755, "mode %o", (unsigned)st.st_mode & 07777);
    cr_assert(stat(store_path(bundle, "manifest.json"), &st) == 0 && (st.st_mode & 07777) == 0644);
    cr_assert_eq(store_count_files(scratch), 3 + 4, "something was left beside it");
}

/* One line for each file and folder of a tree: path, mode, hash. Sorted, since folders are read in any order. */
static char lines[64][256];
static int num_lines;
static size_t root_len;

static int add_line(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    char hex[GDNI_KEY_HEX] = "";
    if (type == FTW_F) {
        size_t size;
        void *bytes = store_read(path, &size);
        gdni_hash_hex(hex, bytes, size);
        free(bytes);
    }
    cr_assert_lt(num_lines, 64);
    snprintf(lines[num_lines++], sizeof lines[0], "%.180s %o %s\n", path + root_len, (unsigned)st->st_mode, hex);
    return 0;
}

static int by_line(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void describe_tree(const char *path, char *out, size_t size)
{
    num_lines = 0;
    root_len = strlen(path);
    cr_assert_eq(nftw(path, add_line, 16, FTW_PHYS), 0);
    qsort(lines, (size_t)num_lines, sizeof lines[0], by_line);
    out[0] = '\0';
    for (int i = 0; i < num_lines; ++i) snprintf(out + strlen(out), size - strlen(out), "%s", lines[i]);
}

Test(bundle, has_the_same_bytes_when_packed_twice_from_caches_built_apart)
{
    static char one[16384], two[16384];
    char other[512], second[512];
    pack(bundle);
    snprintf(other, sizeof other, "%s/other", scratch);
    snprintf(second, sizeof second, "%s/second", scratch);
    build(other, "c", "sm_80");
    build(other, "b", "sm_90a");
    build(other, "a", "sm_90a");
    gdn_ctx_destroy(ctx);
    ctx = store_ctx(other, 0, NULL, GDN_FAKE_NVRTC_PATH);
    umask(0077);
    pack(second);
    describe_tree(bundle, one, sizeof one);
    describe_tree(second, two, sizeof two);
    cr_assert_str_eq(one, two);
    cr_assert(strstr(one, "/manifest.json"), "%s", one);
}

Test(bundle, says_in_its_manifest_what_it_holds)
{
    size_t size;
    struct gdni_manifest manifest;
    pack(bundle);
    char *text = store_read(store_path(bundle, "manifest.json"), &size);
    text[size] = '\0';
    cr_assert_eq(gdni_manifest_parse("m", text, size, &manifest), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(manifest.count, 3u);
    for (size_t i = 0; i < manifest.count; ++i) {
        const struct gdni_manifest_entry *e = &manifest.entries[i];
        char sum[GDNI_KEY_HEX];
        size_t file_size;
        void *bytes = store_read(store_path(bundle, e->path), &file_size);
        gdni_hash_hex(sum, bytes, file_size);
        free(bytes);
        cr_assert_eq(e->bytes, file_size);
        cr_assert_str_eq(e->sum, sum);
        cr_assert_str_eq(e->kernel, "tiny");
        cr_assert(strstr(e->compiler, "nvrtc 13.0 "), "%s", e->compiler);
    }
    static const char wanted[] = " \"contents\": [\n  \"a \\\"quoted\\\" line\",\n  \"qwen3 tp4, NVIDIA H200\"\n ],\n";
    cr_assert(strstr(text, wanted), "contents are not sorted, once each: %s", text);
    gdni_manifest_free(&manifest);
    free(text);
}

Test(bundle, holds_the_keys_that_were_asked_for)
{
    gdn_cache_report report;
    const char *const keys[] = { key_b.hex, key_a.hex, key_b.hex };
    cr_assert_eq(pack_into(bundle, keys, 3, &report), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(report.entries, 2u);
    cr_assert_eq(store_count_files(bundle), 3);
    cr_assert_eq(verify(bundle).entries, 2u);
}

/* Packs key_a alone by a context with this compiler; its entry is to be that compiler's. */
static void expect_own(const char *nvrtc, const char *name, const char *compiler)
{
    gdn_cache_report report;
    struct gdni_manifest manifest;
    size_t size;
    const char *const keys[] = { key_a.hex };
    const char *dir = store_path(scratch, name);
    gdn_ctx_destroy(ctx);
    ctx = store_ctx(cache, 0, NULL, nvrtc);
    cr_assert_eq(pack_into(dir, keys, 1, &report), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(report.entries, 1u);
    char *text = store_read(store_path(dir, "manifest.json"), &size);
    cr_assert_eq(gdni_manifest_parse("m", text, size, &manifest), GDN_OK, "%s", gdn_last_error());
    cr_assert(strstr(manifest.entries[0].compiler, compiler), "%s", manifest.entries[0].compiler);
    gdni_manifest_free(&manifest);
    free(text);
}

Test(bundle, holds_of_two_compilers_entries_this_machines)
{
    build_by(GDN_FAKE_NVRTC_NEXT_PATH, cache, "a", "sm_90a");
    expect_own(GDN_FAKE_NVRTC_PATH, "one", "nvrtc 13.0 ");
    expect_own(GDN_FAKE_NVRTC_NEXT_PATH, "two", "nvrtc 13.1 ");
}

Test(bundle, what_a_publisher_has_under_way_is_no_entry_of_it)
{
    char path[600];
    snprintf(path, sizeof path, "%s/v2/sm_90a/%.2s/.gdnk-tmp-0123456789abcdef", cache, key_a.hex);
    store_write(path, "half", 4);
    const gdn_cache_report report = pack(bundle);
    cr_assert(report.entries == 3 && report.damaged == 0, "%d entries, %d damaged", (int)report.entries, (int)report.damaged);
    cr_assert_eq(store_count_files(bundle), 3 + 1);
}

Test(bundle, of_a_key_that_is_nowhere_is_none_at_all)
{
    static const char *const absent[] = { "00000000000000000000000000000000", "ffffffffffffffffffffffffffffffff",
                                          "80000000000000000000000000000000" };
    for (size_t i = 0; i < 3; ++i) {
        gdn_cache_report report;
        const char *const keys[] = { key_a.hex, absent[i] };
        cr_assert_eq(pack_into(bundle, keys, 2, &report), GDN_E_NOT_CACHED);
        EXPECT_SENTENCE(absent[i]);
        EXPECT_SENTENCE("gdn-jit-cache warm");
        cr_assert_neq(access(bundle, F_OK), 0, "half a bundle is left");
        cr_assert_eq(store_count_files(scratch), 3, "something is left beside it");
    }
}

/* Of the key's entry, which is the only file below its folder. */
static void damage_entry_of(const char *dir, const struct gdni_key *key)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s/v2/sm_90a/%.2s", dir, key->hex);
    char *path = store_only_entry(folder);
    cr_assert_eq(truncate(path, 300), 0);
    free(path);
}

Test(bundle, leaves_out_what_is_damaged_and_says_so)
{
    damage_entry_of(cache, &key_a);
    const gdn_cache_report report = pack(bundle);
    cr_assert(report.entries == 2 && report.damaged == 1);
    gdn_cache_report asked;
    const char *const keys[] = { key_a.hex };
    cr_assert_eq(pack_into(store_path(scratch, "b2"), keys, 1, &asked), GDN_E_NOT_CACHED);
    EXPECT_SENTENCE("only damaged entries");
}

Test(bundle, takes_from_bundles_what_the_cache_has_not)
{
    pack(bundle);
    char empty[512], second[512];
    snprintf(empty, sizeof empty, "%s/empty", scratch);
    snprintf(second, sizeof second, "%s/second", scratch);
    const char *bundles[] = { bundle };
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = empty;
    cfg.bundle_dirs = bundles;
    cfg.num_bundle_dirs = 1;
    cfg.flags = GDN_CTX_NO_ENV;
    cfg.nvrtc_path = "/nonexistent/libnvrtc.so";
    gdn_ctx_destroy(ctx);
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    pack(second);
    static char one[16384], two[16384];
    describe_tree(bundle, one, sizeof one);
    describe_tree(second, two, sizeof two);
    cr_assert_str_eq(one, two, "a bundle of a bundle is another one");
}

Test(bundle, of_an_empty_cache_is_none)
{
    gdn_ctx_destroy(ctx);
    ctx = store_ctx(store_path(scratch, "empty"), 0, NULL, GDN_FAKE_NVRTC_PATH);
    gdn_cache_report report;
    cr_assert_eq(pack_into(bundle, NULL, 0, &report), GDN_E_NOT_CACHED);
    EXPECT_SENTENCE("nothing to pack");
    cr_assert_neq(access(bundle, F_OK), 0);
}

Test(bundle, goes_to_an_empty_directory_and_to_no_other)
{
    gdn_cache_report report;
    char slashes[600];
    cr_assert_eq(mkdir(bundle, 0700), 0);
    snprintf(slashes, sizeof slashes, "%s//", bundle);
    cr_assert_eq(pack_into(slashes, NULL, 0, &report), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(pack_into(bundle, NULL, 0, &report), GDN_E_INVALID);
    EXPECT_SENTENCE("is not empty");
    const char *file = store_path(scratch, "file"), *link = store_path(scratch, "link");
    store_write(file, "x", 1);
    cr_assert_eq(pack_into(file, NULL, 0, &report), GDN_E_INVALID);
    EXPECT_SENTENCE("no directory");
    cr_assert_eq(symlink(scratch, link), 0);
    cr_assert_eq(pack_into(link, NULL, 0, &report), GDN_E_INVALID);
    EXPECT_SENTENCE("no directory");
    cr_assert_eq(pack_into(store_path(scratch, "no/parent"), NULL, 0, &report), GDN_E_IO);
    EXPECT_SENTENCE("make it first");
    cr_assert_eq(verify(bundle).entries, 3u, "the bundle that was there was changed");
}

Test(bundle, refuses_bad_arguments_with_a_sentence)
{
    static const char *const short_key[] = { "0123" }, *const upper[] = { "ABCDEF0123456789abcdef0123456789" },
                             *const null_line[] = { NULL }, *const latin1[] = { "caf\xe9" };
    const struct {
        gdn_pack_options options;
        const char *words;
    } bad[] = {
        { { sizeof(gdn_pack_options), NULL, NULL, 0, NULL, 0 }, "dir is null" },
        { { sizeof(gdn_pack_options), "", NULL, 0, NULL, 0 }, "dir is \"\"" },
        { { sizeof(gdn_pack_options), "/", NULL, 0, NULL, 0 }, "dir is \"/\"" },
        { { sizeof(gdn_pack_options), "..", NULL, 0, NULL, 0 }, "dir is \"..\"" },
        { { sizeof(gdn_pack_options), bundle, NULL, 1, NULL, 0 }, "keys is null and num_keys is 1" },
        { { sizeof(gdn_pack_options), bundle, short_key, 0, NULL, 0 }, "keys is given and num_keys is 0" },
        { { sizeof(gdn_pack_options), bundle, short_key, 1, NULL, 0 }, "keys[0] is \"0123\"" },
        { { sizeof(gdn_pack_options), bundle, upper, 1, NULL, 0 }, "keys[0] is \"ABC" },
        { { sizeof(gdn_pack_options), bundle, NULL, 0, NULL, 2 }, "contents is null and num_contents is 2" },
        { { sizeof(gdn_pack_options), bundle, NULL, 0, null_line, 1 }, "contents[0] is null" },
        { { sizeof(gdn_pack_options), bundle, NULL, 0, latin1, 1 }, "not UTF-8" },
    };
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        cr_assert_eq(gdn_cache_pack(ctx, &bad[i].options, &report), GDN_E_INVALID, "case %zu: %s", i, bad[i].words);
        cr_assert(strstr(gdn_last_error(), bad[i].words), "case %zu: \"%s\" expected in: %s", i, bad[i].words,
                  gdn_last_error());
    }
    cr_assert_eq(gdn_cache_pack(NULL, &bad[0].options, &report), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_pack(ctx, NULL, &report), GDN_E_INVALID);
    cr_assert_eq(gdn_cache_pack(ctx, &bad[0].options, NULL), GDN_E_INVALID);
    cr_assert_eq(store_count_files(scratch), 3, "something was left behind");
}

Test(bundle, where_nothing_may_be_written_is_a_sentence)
{
    char locked[512];
    gdn_cache_report report;
    snprintf(locked, sizeof locked, "%s/locked", scratch);
    mkdir(locked, 0555);
    store_drop_root(scratch);
    gdn_ctx_destroy(ctx);
    ctx = store_ctx(cache, 0, NULL, GDN_FAKE_NVRTC_PATH);
    cr_assert_eq(pack_into(store_path(locked, "bundle"), NULL, 0, &report), GDN_E_IO);
    EXPECT_SENTENCE("Permission denied");
}

Test(bundle, survives_running_out_of_memory_at_any_point)
{
    int failed = 0;
    gdn_status status = GDN_E_NOMEM;
    for (int allowed = 0; status != GDN_OK && allowed < 200; ++allowed) {
        gdn_cache_report report;
        gdni_mem_fail_after(allowed);
        status = pack_into(bundle, NULL, 0, &report);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "after %d: %s", allowed, gdn_last_error());
        cr_assert_eq(access(bundle, F_OK) == 0, status == GDN_OK, "after %d allocations there is half a bundle", allowed);
        failed += status == GDN_E_NOMEM;
    }
    cr_assert_eq(status, GDN_OK);
    cr_assert_gt(failed, 10);
    cr_assert_eq(store_count_files(scratch), 3 + 4);
    cr_assert_eq(verify(bundle).entries, 3u);
}

/* ---- verify ---- */

Test(bundle, verify_survives_running_out_of_memory_at_any_point)
{
    int failed = 0;
    gdn_status status = GDN_E_NOMEM;
    pack(bundle);
    for (int allowed = 0; status != GDN_OK && allowed < 200; ++allowed) {
        gdn_cache_report report = GDN_CACHE_REPORT_INIT;
        gdni_mem_fail_after(allowed);
        status = gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report);
        gdni_mem_fail_after(-1);
        cr_assert(status == GDN_OK || status == GDN_E_NOMEM, "after %d: %s", allowed, gdn_last_error());
        failed += status == GDN_E_NOMEM;
    }
    cr_assert_eq(status, GDN_OK);
    cr_assert_gt(failed, 3);
}

Test(bundle, that_was_changed_is_told_by_kind)
{
    char path[600];
    pack(bundle);
    snprintf(path, sizeof path, "%s/v2/sm_80", bundle);
    char *gone = store_only_entry(path);
    build(bundle, "d", "sm_90a"); /* used as a cache by mistake */
    damage_entry_of(bundle, &key_a);
    size_t size;
    snprintf(path, sizeof path, "%s/v2/sm_90a/%.2s", bundle, key_b.hex);
    char *swapped = store_only_entry(path);
    char *bytes = store_read(swapped, &size);
    store_write(store_path(scratch, "kept"), bytes, size);
    unlink(gone);
    const gdn_cache_report report = verify(bundle);
    cr_assert(report.entries == 3 && report.damaged == 1 && report.missing == 1 && report.unlisted == 1,
              "entries %d damaged %d missing %d unlisted %d: %s", (int)report.entries, (int)report.damaged,
              (int)report.missing, (int)report.unlisted, problems);
    cr_assert(strstr(problems, "missing: ") && strstr(problems, "unlisted: "), "%s", problems);
    free(bytes);
    free(swapped);
    free(gone);
}

/* Called for the first entry, takes away the last, which was there when the bundle was looked through. */
static int take_last_away(void *user, const gdn_cache_entry *e)
{
    if (!problems[0]) cr_assert_eq(unlink(user), 0);
    return note_problem(NULL, e);
}

Test(bundle, whose_file_goes_while_it_is_verified_has_it_missing)
{
    char path[600];
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    pack(bundle);
    snprintf(path, sizeof path, "%s/v2/sm_80", bundle);
    char *first = store_only_entry(path); /* sm_80 stands before sm_90a */
    const struct gdni_key *last = strcmp(key_a.hex, key_b.hex) > 0 ? &key_a : &key_b;
    snprintf(path, sizeof path, "%s/v2/sm_90a/%.2s", bundle, last->hex);
    char *gone = store_only_entry(path);
    store_write(first, "x", 1);
    problems[0] = '\0';
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, take_last_away, gone, &report), GDN_OK, "%s", gdn_last_error());
    cr_expect(report.entries == 2 && report.damaged == 1 && report.missing == 1 && report.unlisted == 0,
              "entries %d damaged %d missing %d unlisted %d: %s", (int)report.entries, (int)report.damaged,
              (int)report.missing, (int)report.unlisted, problems);
    cr_expect(strstr(problems, "\nmissing: the manifest has it, the bundle has not\n"), "%s", problems);
    free(gone);
    free(first);
}

Test(bundle, with_a_good_entry_that_is_another_is_damaged)
{
    pack(bundle);
    char folder[600];
    snprintf(folder, sizeof folder, "%s/v2/sm_90a/%.2s", bundle, key_a.hex);
    char *path = store_only_entry(folder);
    snprintf(folder, sizeof folder, "%s/v2/sm_90a/%.2s", cache, key_a.hex);
    char *original = store_only_entry(folder);
    size_t size;
    void *bytes = store_read(original, &size); /* the same but for its compile time */
    store_write(path, bytes, size);
    const gdn_cache_report report = verify(bundle);
    cr_assert(report.damaged == 1 && strstr(problems, "not the file that the manifest names"), "%s", problems);
    free(bytes);
    free(original);
    free(path);
}

Test(bundle, with_a_file_of_another_length_than_its_manifest_says_is_damaged)
{
    size_t size;
    pack(bundle);
    char *text = store_read(store_path(bundle, "manifest.json"), &size), *number = memmem(text, size, "\"bytes\": ", 9);
    cr_assert_not_null(number);
    number[9] = number[9] == '1' ? '2' : '1'; /* its sum is still right */
    store_write(store_path(bundle, "manifest.json"), text, size);
    free(text);
    cr_assert_eq(verify(bundle).damaged, 1u);
    cr_assert_str_eq(problems, "not as long as the manifest says\n");
}

Test(bundle, with_a_temporary_file_is_whole_and_has_it_counted)
{
    pack(bundle);
    store_write(store_path(bundle, "v2/sm_90a/.gdnk-tmp-1"), "x", 1); /* where no entry would be */
    cr_assert_eq(mkdir(store_path(bundle, "v2/sm_90a/00"), 0700), 0);
    store_write(store_path(bundle, "v2/sm_90a/00/.gdnk-tmp-2"), "x", 1);
    const gdn_cache_report report = verify(bundle);
    cr_assert(report.entries == 3 && report.temporaries == 1 && !report.damaged && !report.missing && !report.unlisted, "%s",
              problems);
}

Test(bundle, without_a_manifest_that_can_be_read_is_a_sentence)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    const char *manifest = store_path(bundle, "manifest.json");
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report), GDN_E_IO);
    EXPECT_SENTENCE(bundle);
    mkdir(bundle, 0700);
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report), GDN_E_IO);
    EXPECT_SENTENCE("manifest.json cannot be read");
    static const char no_contents[] = "{\"schema\": 1}", newer[] = "{\"schema\": 2, \"contents\": [], \"entries\": []}";
    store_write(manifest, no_contents, strlen(no_contents));
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report), GDN_E_IO);
    EXPECT_SENTENCE("\"contents\" is missing");
    store_write(manifest, newer, strlen(newer));
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report), GDN_E_VERSION);
    EXPECT_SENTENCE("\"schema\" is 2");
    static const char numbers[] = "{\"schema\": 1, \"contents\": [\"a line\", 7], \"entries\": []}";
    store_write(manifest, numbers, strlen(numbers));
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report), GDN_E_IO);
    EXPECT_SENTENCE("\"contents\" is 7");
    static const char unlike[] = "{\"schema\": 2, \"format\": \"other\"}";
    store_write(manifest, unlike, strlen(unlike));
    cr_assert_eq(gdn_cache_verify(ctx, bundle, 0, NULL, NULL, &report), GDN_E_VERSION);
    EXPECT_SENTENCE("\"schema\" is 2");
}

Test(bundle, manifest_refuses_what_leads_out_of_it)
{
    static const struct {
        const char *path, *words;
    } bad[] = {
        { "../../etc/passwd", "must be a cache entry's" },
        { "/v2/sm_90a/01/0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk", "must be a cache entry's" },
        { "v2/../01/0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk", "must be a cache entry's" },
        { "v2/sm_/../01/0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk", "must be a cache entry's" },
        { "v2/sm_90a/02/0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk", "must be a cache entry's" },
        { "v1/sm_90a/01/0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk", "must be a cache entry's" },
        { "v2/sm_90a/01/0123456789abcdef0123456789abcdef.0a1b2c3d.gdnk/", "must be a cache entry's" },
        { "", "must be a cache entry's" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        struct gdni_manifest manifest;
        char text[512];
        snprintf(text, sizeof text,
                 "{\"schema\": 1, \"contents\": [], \"entries\": [{\"path\": \"%s\", \"bytes\": 1, \"xxh128\": "
                 "\"0123456789abcdef0123456789abcdef\", \"kernel\": \"k\", \"compiler\": \"c\"}]}",
                 bad[i].path);
        cr_assert_eq(gdni_manifest_parse("m", text, strlen(text), &manifest), GDN_E_INVALID, "%s", bad[i].path);
        EXPECT_SENTENCE(bad[i].words);
        EXPECT_SENTENCE("m, entry 0");
    }
}

/* ---- use ---- */

static void expect_hit(const struct gdni_key *key, const char *source, uint64_t corrupt, enum gdni_origin expected)
{
    struct gdni_unit unit = store_unit("sm_90a", source);
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    cr_assert_eq(gdni_programs_get(ctx, &unit, key, 0, &program, &origin), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(origin, expected, "origin %d", origin);
    cr_assert_eq(store_stats(ctx).corrupt, corrupt);
    gdni_program_release(program);
}

static int take_writing(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)type, (void)ftw;
    return chmod(path, st->st_mode & 0555);
}

Test(bundle, serves_from_a_disk_that_cannot_be_written_without_compiler_and_home_after_a_move)
{
    char moved[512];
    pack(bundle);
    snprintf(moved, sizeof moved, "%s/moved", scratch);
    cr_assert_eq(rename(bundle, moved), 0);
    gdn_ctx_destroy(ctx);
    ctx = NULL;
    cr_assert_eq(nftw(moved, take_writing, 16, FTW_PHYS | FTW_DEPTH), 0);
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("GDN_JIT_CACHE_DIR");
    setenv("GDN_JIT_BUNDLE_PATH", moved, 1);
    store_drop_root(scratch);
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.nvrtc_path = "/nonexistent/libnvrtc.so";
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    cr_assert_null(gdn_cache_dir(ctx));
    expect_hit(&key_a, "a", 0, GDNI_FROM_BUNDLE);
    expect_hit(&key_b, "b", 0, GDNI_FROM_BUNDLE);
    cr_assert(store_stats(ctx).compiles == 0 && store_stats(ctx).disk_hits == 2);
}

Test(bundle, with_a_damaged_entry_is_passed_over_for_the_compiler)
{
    pack(bundle);
    damage_entry_of(bundle, &key_a);
    const char *bundles[] = { bundle };
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = "";
    cfg.bundle_dirs = bundles;
    cfg.num_bundle_dirs = 1;
    cfg.flags = GDN_CTX_NO_ENV;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    gdn_ctx_destroy(ctx);
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    expect_hit(&key_a, "a", 1, GDNI_FROM_COMPILER);
    expect_hit(&key_b, "b", 1, GDNI_FROM_BUNDLE);
}
