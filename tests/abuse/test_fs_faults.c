/*
 * test_fs_faults.c - every call that the cache makes to the file system fails, one after the other and in every way that disks
 * know: whoever asks for a program gets the right one (compiled, at worst), nothing bad is left behind, and all works after.
 */
#include <criterion/criterion.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abuse/fs_shim.h"
#include "base/error.h"
#include "runtime/cache_scan.h"
#include "runtime/fsutil.h"
#include "support/brief.h"
#include "support/fake_host.h"
#include "support/store.h"

/* As cr_assert(), and in processes that the test forked too: Criterion tells of the signal, stderr of the cause. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- one life of a context ---- */

/* What the folder has in it when the context comes. */
enum folder { EMPTY, FULL, DAMAGED, MANY };
/* What the context does in it. */
enum deed { GET, GET_STRICT, GET_BUNDLE, REBUILD, LIST, VERIFY, PRUNE, PACK };

struct scenario {
    const char *name;
    enum folder folder;
    enum deed deed;
    uint64_t max_bytes;
    bool no_tmpfile;
    bool fresh;      /* in a process of its own, where NVRTC is not loaded: its identity is read off its file first */
    int32_t wait_ms; /* of the stampede guard */
    int least_calls; /* the life makes no fewer: a shim that stands beside the road would see none */
};

static const struct scenario scenarios[] = {
    { "a cold key", EMPTY, GET, 0, false, false, 0, 20 },
    { "a cold key, no O_TMPFILE", EMPTY, GET, 0, true, false, 0, 20 },
    { "a warm key", FULL, GET, 0, false, false, 0, 7 },
    { "a warm key, strict", FULL, GET_STRICT, 0, false, false, 0, 10 },
    { "a damaged entry", DAMAGED, GET, 0, false, false, 0, 20 },
    { "a damaged entry, no O_TMPFILE", DAMAGED, GET, 0, true, false, 0, 20 },
    { "a refused cubin", FULL, REBUILD, 0, false, false, 0, 10 },
    { "a refused cubin, no O_TMPFILE", FULL, REBUILD, 0, true, false, 0, 10 },
    { "a folder over its cap", MANY, GET, 3000, false, false, 0, 30 },
    { "a list", MANY, LIST, 0, false, false, 0, 30 },
    { "a cold key, NVRTC not loaded", EMPTY, GET, 0, false, true, 0, 20 },
    { "a bundle", FULL, GET_BUNDLE, 0, false, false, 0, 7 },
    { "verify", MANY, VERIFY, 0, false, false, 0, 40 },
    { "prune", MANY, PRUNE, 0, false, false, 0, 40 },
    { "pack", MANY, PACK, 0, false, false, 0, 60 },
    { "a cold key, taking turns", EMPTY, GET, 0, false, false, 20, 30 },
};
enum { NUM_SCENARIOS = sizeof scenarios / sizeof scenarios[0], MANY_ENTRIES = 4 };

static struct gdn_ctx *open_ctx(const char *dir, const struct scenario *s, struct store_log *log)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = s->deed == GET_BUNDLE ? "" : dir;
    cfg.bundle_dirs = s->deed == GET_BUNDLE ? &dir : NULL;
    cfg.num_bundle_dirs = s->deed == GET_BUNDLE;
    cfg.flags = GDN_CTX_NO_ENV | (s->deed == GET_STRICT ? GDN_CTX_NO_COMPILE : 0);
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.cache_max_bytes = s->max_bytes;
    cfg.compile_wait_ms = s->wait_ms;
    cfg.log_fn = store_log_fn;
    cfg.log_user = log;
    gdn_ctx *ctx = NULL;
    CHECK(gdn_ctx_create(&ctx, &cfg) == GDN_OK, "%s: %s", s->name, gdn_last_error());
    return ctx;
}

static void check_program(const struct gdni_program *program, const char *source, const struct gdni_key *key)
{
    CHECK(strcmp(program->key_text, key->text) == 0, "the program of another key: %s", program->key_text);
    CHECK(program->cubin_size == 64 + strlen(source) &&
              memcmp((const char *)program->cubin + 64, source, strlen(source)) == 0,
          "another cubin than that of \"%s\"", source);
}

/* As after a driver refused program, which goes. */
static gdn_status build_again(gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                              struct gdni_program **program, enum gdni_origin *origin)
{
    struct gdni_program *fresh = NULL;
    const gdn_status status = gdni_programs_rebuild(ctx, unit, key, 0, *program, &fresh, origin);
    gdni_program_release(*program);
    *program = fresh;
    return status;
}

/* Ends the test when a program comes that is not the one of source. */
static gdn_status get(gdn_ctx *ctx, const char *source, bool rebuild, enum gdni_origin *origin)
{
    const struct gdni_unit unit = store_unit("sm_90a", source);
    struct gdni_key key = store_key(&unit);
    struct gdni_program *program = NULL;
    gdn_status status = gdni_programs_get(ctx, &unit, &key, 0, &program, origin);
    if (status == GDN_OK && rebuild) status = build_again(ctx, &unit, &key, &program, origin);
    if (status == GDN_OK) {
        check_program(program, source, &key);
        gdni_program_release(program);
    } else
        CHECK(!program && *gdni_error_text(), "%s without a sentence, or with a program", gdn_status_name(status));
    gdni_key_free(&key);
    return status;
}

static int count_valid(void *user, const gdn_cache_entry *entry)
{
    int *valid = user;
    *valid += entry->valid != 0;
    return 0;
}

static gdn_status list(gdn_ctx *ctx, int *valid)
{
    *valid = 0;
    return gdn_cache_list(ctx, count_valid, valid);
}

/* ---- what is done with a folder ---- */

static char bundle_dir[600]; /* where PACK packs to, beside the folder */

static gdn_status pack(gdn_ctx *ctx, gdn_cache_report *report)
{
    gdn_pack_options options = GDN_PACK_OPTIONS_INIT;
    options.dir = bundle_dir;
    return gdn_cache_pack(ctx, &options, report);
}

static gdn_status act(gdn_ctx *ctx, const struct scenario *s, gdn_cache_report *report)
{
    const gdn_prune_options nothing_to_prune = GDN_PRUNE_OPTIONS_INIT;
    enum gdni_origin origin;
    int valid;
    switch (s->deed) {
    case LIST:
        return list(ctx, &valid);
    case VERIFY:
        return gdn_cache_verify(ctx, NULL, GDN_VERIFY_REMOVE, NULL, NULL, report);
    case PRUNE:
        return gdn_cache_prune(ctx, &nothing_to_prune, NULL, NULL, report);
    case PACK:
        return pack(ctx, report);
    default:
        return get(ctx, "wanted", s->deed == REBUILD, &origin);
    }
}

/* ---- folders to start from ---- */

/* Entries of "wanted", and of sources that nobody asks for again. */
static void fill(const char *dir, bool wanted, int others)
{
    const struct scenario plain = { .name = "set-up" };
    enum gdni_origin origin;
    struct store_log log = { 0 };
    gdn_ctx *ctx = open_ctx(dir, &plain, &log);
    char source[32];
    for (int i = wanted ? -1 : 0; i < others; ++i) {
        snprintf(source, sizeof source, i < 0 ? "wanted" : "other %d", i);
        CHECK(get(ctx, source, false, &origin) == GDN_OK, "set-up: %s", gdni_error_text());
    }
    gdn_ctx_destroy(ctx);
}

static void damage(const char *dir)
{
    char *path = store_only_entry(dir);
    size_t size;
    char *bytes = store_read(path, &size);
    bytes[70] ^= 1;
    store_write(path, bytes, size);
    free(bytes);
    free(path);
}

static char *room; /* of one case: the folder and, for PACK, the bundle beside it */

/* A new folder as the scenario wants it; remove_folder(). */
static char *make_folder(enum folder kind)
{
    char *dir;
    room = store_scratch();
    CHECK(asprintf(&dir, "%s/cache", room) > 0 && mkdir(dir, 0700) == 0, "%s: %s", room, strerror(errno));
    snprintf(bundle_dir, sizeof bundle_dir, "%s/bundle", room);
    fs_without_tmpfile(false);
    if (kind == FULL || kind == DAMAGED) fill(dir, true, 0);
    if (kind == MANY) fill(dir, false, MANY_ENTRIES);
    if (kind == DAMAGED) damage(dir);
    return dir;
}

static void remove_folder(char *dir)
{
    free(dir);
    store_remove(room);
}

/* ---- what must hold after ---- */

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (dir && readdir(dir))
        ++count;
    if (dir) closedir(dir);
    return count;
}

/* A new context on the folder, without faults: the right program, the folder takes it, and all in it is whole. */
static void expect_works(const char *dir, const char *when)
{
    const struct scenario plain = { .name = when };
    struct store_log log = { 0 };
    enum gdni_origin origin;
    int valid;
    fs_without_tmpfile(false);
    gdn_ctx *ctx = open_ctx(dir, &plain, &log);
    CHECK(get(ctx, "wanted", false, &origin) == GDN_OK, "%s: %s", when, gdni_error_text());
    CHECK(get(ctx, "after", false, &origin) == GDN_OK, "%s: %s", when, gdni_error_text());
    gdn_ctx_destroy(ctx);
    ctx = open_ctx(dir, &plain, &log);
    CHECK(get(ctx, "wanted", false, &origin) == GDN_OK, "%s", when);
    CHECK(origin == GDNI_FROM_DISK, "%s: the folder does not keep what was compiled after", when);
    CHECK(store_stats(ctx).corrupt == 0, "%s: %s", when, log.last[GDN_LOG_WARN]);
    CHECK(list(ctx, &valid) == GDN_OK, "%s: %s", when, gdni_error_text());
    gdn_ctx_destroy(ctx);
    const int files = store_count_files(dir);
    CHECK(files - valid <= 1, "%s: %d files and %d good entries", when, files, valid); /* one temporary, at most */
}

/* ---- faults ---- */

static const struct {
    const char *name;
    struct fs_fault fault; /* nth is chosen later */
} faults[] = {
    { "ENOSPC", { FS_ERROR, ENOSPC, 0, 1 } },
    { "EROFS", { FS_ERROR, EROFS, 0, 1 } },
    { "EACCES", { FS_ERROR, EACCES, 0, 1 } },
    { "EIO", { FS_ERROR, EIO, 0, 1 } },
    { "EINTR", { FS_ERROR, EINTR, 0, 1 } },
    { "EINTR 40 times", { FS_ERROR, EINTR, 0, 40 } },
    { "EMFILE", { FS_ERROR, EMFILE, 0, 1 } },
    { "ESTALE", { FS_ERROR, ESTALE, 0, 1 } },
    { "ENOENT", { FS_ERROR, ENOENT, 0, 1 } },
    { "EEXIST", { FS_ERROR, EEXIST, 0, 1 } },
    { "EOPNOTSUPP", { FS_ERROR, EOPNOTSUPP, 0, 1 } },
    { "ENOSPC for good", { FS_ERROR, ENOSPC, 0, FS_FOREVER } },
    { "EROFS for good", { FS_ERROR, EROFS, 0, FS_FOREVER } },
    { "EACCES for good", { FS_ERROR, EACCES, 0, FS_FOREVER } },
    { "EIO for good", { FS_ERROR, EIO, 0, FS_FOREVER } },
    { "EMFILE for good", { FS_ERROR, EMFILE, 0, FS_FOREVER } },
    { "short", { FS_SHORT, 0, 0, 1 } },
    { "short for good", { FS_SHORT, 0, 0, FS_FOREVER } },
    { "zero", { FS_ZERO, 0, 0, 1 } },
    { "zero for good", { FS_ZERO, 0, 0, FS_FOREVER } },
};
enum { NUM_FAULTS = sizeof faults / sizeof faults[0] };

/* The life under the fault; the number of its calls. */
static int live(const struct scenario *s, const struct fs_fault *fault, const char *dir, gdn_status *status,
                gdn_cache_report *report)
{
    struct store_log log = { 0 };
    enum gdni_origin origin;
    fs_without_tmpfile(s->no_tmpfile);
    fs_arm(*fault);
    gdn_ctx *ctx = open_ctx(dir, s, &log);
    *status = act(ctx, s, report);
    const int calls = fs_disarm();
    if (s->deed != GET_STRICT) /* the same context goes on */
        CHECK(get(ctx, "next", false, &origin) == GDN_OK, "%s: %s", s->name, gdni_error_text());
    gdn_ctx_destroy(ctx);
    return calls;
}

/* Runs fn in a process of its own, where the scenario wants one; its result. */
static int in_process(const struct scenario *s, int (*fn)(const struct scenario *s, int fault, int nth), int fault,
                      int nth)
{
    int pipes[2], result = -1, ended = 0;
    if (!s->fresh) return fn(s, fault, nth);
    fflush(NULL);
    CHECK(pipe(pipes) == 0, "pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child == 0) {
        result = fn(s, fault, nth);
        _exit(write(pipes[1], &result, sizeof result) == (ssize_t)sizeof result ? 0 : 1);
    }
    CHECK(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0,
          "%s: fault %d at call %d: ended with %x", s->name, fault, nth, ended);
    CHECK(read(pipes[0], &result, sizeof result) == (ssize_t)sizeof result, "no result");
    close(pipes[0]);
    close(pipes[1]);
    return result;
}

/* Whether a deed may end so, under a fault: a program is always to be had where one may be compiled. */
static bool may_end_so(const struct scenario *s, gdn_status status)
{
    switch (s->deed) {
    case GET:
    case GET_BUNDLE:
    case REBUILD:
        return status == GDN_OK;
    case GET_STRICT:
        return status == GDN_OK || status == GDN_E_NOT_CACHED;
    case PACK:
        return status == GDN_OK || status == GDN_E_IO || status == GDN_E_INVALID || status == GDN_E_NOT_CACHED;
    default:
        return status == GDN_OK || status == GDN_E_IO;
    }
}

/* Faults that say of an entry that it is not there, rather than that it cannot be read. */
static bool hides(const struct fs_fault *fault)
{
    return fault->kind == FS_ERROR && (fault->err == ENOENT || fault->err == ESTALE);
}

/* A bundle is whole, but for what it says that it left out, or is not there. */
static void check_bundle(const char *dir, gdn_status status, const struct fs_fault *fault,
                         const gdn_cache_report *packed, const char *when)
{
    const struct scenario plain = { .name = when };
    struct store_log log = { 0 };
    gdn_cache_report found = GDN_CACHE_REPORT_INIT;
    if (status != GDN_OK) {
        CHECK(access(bundle_dir, F_OK) != 0, "%s: a bundle is there that was not finished", when);
        return;
    }
    gdn_ctx *ctx = open_ctx(dir, &plain, &log);
    CHECK(gdn_cache_verify(ctx, bundle_dir, 0, NULL, NULL, &found) == GDN_OK, "%s: %s", when, gdni_error_text());
    CHECK(!found.damaged && !found.missing && !found.unlisted && found.entries == packed->entries,
          "%s: %d damaged, %d missing, %d unlisted", when, (int)found.damaged, (int)found.missing, (int)found.unlisted);
    CHECK(found.entries + packed->damaged == MANY_ENTRIES || hides(fault), "%s: %d entries and %d damaged", when,
          (int)found.entries, (int)packed->damaged);
    gdn_ctx_destroy(ctx);
}

/* What was good before is there after, unless the fault was one that damage looks like. */
static void check_entries(const char *dir, const struct fs_fault *fault, const char *when)
{
    const struct scenario plain = { .name = when };
    struct store_log log = { 0 };
    int valid;
    const bool like_damage = fault->kind == FS_ZERO || (fault->kind == FS_ERROR && fault->err == EIO);
    gdn_ctx *ctx = open_ctx(dir, &plain, &log);
    CHECK(list(ctx, &valid) == GDN_OK, "%s: %s", when, gdni_error_text());
    CHECK(valid >= MANY_ENTRIES || like_damage, "%s: %d entries are left", when, valid); /* and "next" may be there */
    gdn_ctx_destroy(ctx);
}

static int fail_at(const struct scenario *s, int f, int nth)
{
    struct fs_fault fault = faults[f].fault;
    char when[160];
    gdn_status status;
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    char *dir = make_folder(s->folder);
    const int before = open_descriptors();
    fault.nth = nth;
    live(s, &fault, dir, &status, &report);
    snprintf(when, sizeof when, "%s, %s at call %d (%s)", s->name, faults[f].name, nth, fs_struck());
    CHECK(may_end_so(s, status), "%s: %s: %s", when, gdn_status_name(status), gdni_error_text());
    CHECK(open_descriptors() == before, "%s: descriptors are left open", when);
    if (s->deed == PACK) check_bundle(dir, status, &fault, &report, when);
    if (s->deed >= LIST) check_entries(dir, &fault, when);
    expect_works(dir, when);
    remove_folder(dir);
    return 0;
}

static int count_calls(const struct scenario *s, int fault, int nth)
{
    (void)fault, (void)nth;
    gdn_status status;
    char *dir = make_folder(s->folder);
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    const int calls = live(s, &(struct fs_fault){ 0 }, dir, &status, &report);
    CHECK(status == GDN_OK, "%s: %s", s->name, gdni_error_text());
    CHECK(calls >= s->least_calls, "%s: the shim saw %d calls", s->name, calls);
    remove_folder(dir);
    return calls;
}

static void load_nvrtc(void)
{
    gdn_ctx *ctx = store_ctx("", 0, NULL, GDN_FAKE_NVRTC_PATH);
    enum gdni_origin origin;
    CHECK(get(ctx, "any", false, &origin) == GDN_OK, "set-up: %s", gdni_error_text());
    gdn_ctx_destroy(ctx);
}

/* Every fault at every call; GDN_TEST_BRIEF=N: an Nth of the faults at each, others at the next. */
static void fail_everywhere(const struct scenario *s)
{
    const int step = brief_step();
    if (!s->fresh) load_nvrtc();
    const int calls = in_process(s, count_calls, 0, 0);
    int injected = 0;
    for (int f = 0; f < NUM_FAULTS; ++f)
        for (int nth = 1 + f % step; nth <= calls; nth += step, ++injected)
            in_process(s, fail_at, f, nth);
    printf("%s: %d calls, %d faults injected\n", s->name, calls, injected);
    cr_assert(fake_no_leaks());
}

#define FAULTS_OF(name, number)                                                                                        \
    Test(fs_faults, name, .timeout = 300)                                                                              \
    {                                                                                                                  \
        fail_everywhere(&scenarios[number]);                                                                           \
    }
FAULTS_OF(a_cold_key, 0)
FAULTS_OF(a_cold_key_without_unnamed_files, 1)
FAULTS_OF(a_warm_key, 2)
FAULTS_OF(a_warm_key_in_strict_mode, 3)
FAULTS_OF(a_damaged_entry, 4)
FAULTS_OF(a_damaged_entry_without_unnamed_files, 5)
FAULTS_OF(a_cubin_that_the_driver_refused, 6)
FAULTS_OF(a_refused_cubin_without_unnamed_files, 7)
FAULTS_OF(a_folder_over_its_cap, 8)
FAULTS_OF(a_list, 9)
FAULTS_OF(a_cold_key_before_nvrtc_is_loaded, 10)
FAULTS_OF(a_bundle, 11)
FAULTS_OF(verify, 12)
FAULTS_OF(prune, 13)
FAULTS_OF(pack, 14)
FAULTS_OF(a_cold_key_by_turns, 15)

/* ---- file systems of their own kind ---- */

/* CIFS, vfat and many of FUSE's refuse every mode: what they give is less than a group was to have, and will do. */
Test(fs_faults, a_file_system_that_keeps_its_own_modes_holds_a_cache)
{
    struct store_log log = { 0 };
    enum gdni_origin origin;
    char *dir = make_folder(EMPTY);
    load_nvrtc();
    cr_assert_eq(chmod(dir, 0770), 0);
    const mode_t before = umask(077);
    fs_only("fchmod");
    for (int without = 0; without < 2; ++without) {
        const char *source = without ? "named" : "unnamed";
        fs_without_tmpfile(without);
        fs_arm((struct fs_fault){ FS_ERROR, EPERM, 1, FS_FOREVER });
        gdn_ctx *ctx = store_ctx(dir, GDN_CTX_SHARED_CACHE, &log, GDN_FAKE_NVRTC_PATH);
        cr_expect_eq(get(ctx, source, false, &origin), GDN_OK, "%s", gdni_error_text());
        gdn_ctx_destroy(ctx);
        fs_disarm();
        cr_expect_str_eq(fs_struck(), "fchmod");
        ctx = store_ctx(dir, GDN_CTX_SHARED_CACHE, &log, GDN_FAKE_NVRTC_PATH);
        cr_expect_eq(get(ctx, source, false, &origin), GDN_OK, "%s", gdni_error_text());
        cr_expect_eq(origin, GDNI_FROM_DISK, "%s: it was not kept: %s", source, log.last[GDN_LOG_WARN]);
        gdn_ctx_destroy(ctx);
    }
    umask(before);
    fs_only(NULL);
    remove_folder(dir);
}

/* A file system that is read-only, or somebody else's, may say so of a folder that is there. */
Test(fs_faults, a_parent_that_may_not_be_made_may_be_there)
{
    static const int refusals[] = { EACCES, EROFS, EPERM };
    char *dir = make_folder(EMPTY), path[700];
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; ++i) {
        snprintf(path, sizeof path, "%s/%zu", dir, i);
        fs_arm((struct fs_fault){ FS_ERROR, refusals[i], 1, 1 });
        const int err = gdni_fs_make_path(path, 0700);
        fs_disarm();
        cr_expect_str_eq(fs_struck(), "mkdirat");
        cr_expect(err == 0 && access(path, F_OK) == 0, "%s: %s", strerror(refusals[i]), strerror(err));
    }
    remove_folder(dir);
}

/* ---- what is damage, and what may be a good entry ---- */

Test(fs_faults, what_the_disk_says_of_an_entry_tells_whether_it_goes)
{
    static const struct {
        const char *call;
        struct fs_fault fault;
        const char *words; /* NULL: it is not there, which is no news */
        bool goes;
    } cases[] = {
        { "read", { FS_ERROR, EIO, 1, FS_FOREVER }, "cannot be read: Input/output error", false },
        { "read", { FS_ERROR, EPERM, 1, FS_FOREVER }, "cannot be read: Operation not permitted", false },
        { "openat", { FS_ERROR, ESTALE, 1, FS_FOREVER }, NULL, false },
        { "read", { FS_ZERO, 0, 1, FS_FOREVER }, "file cannot be read whole", true },
    };
    enum gdni_origin origin;
    char *dir = make_folder(FULL), *path = store_only_entry(dir);
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    gdn_ctx *reader = store_ctx(dir, 0, NULL, GDN_FAKE_NVRTC_PATH);
    fs_only("read");
    fs_arm((struct fs_fault){ FS_ERROR, ESTALE, 1, FS_FOREVER });
    cr_expect_eq(gdn_cache_verify(reader, NULL, GDN_VERIFY_REMOVE, NULL, NULL, &report), GDN_OK, "%s", gdn_last_error());
    fs_disarm();
    cr_expect(report.entries == 0 && report.damaged == 0 && report.removed == 0, "what has gone on another host is no damage");
    gdn_ctx_destroy(reader);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct store_log log = { 0 };
        gdn_ctx *ctx = store_ctx(dir, GDN_CTX_NO_COMPILE, &log, GDN_FAKE_NVRTC_PATH);
        store_age(path);
        fs_only(cases[i].call);
        fs_arm(cases[i].fault);
        cr_expect_eq(get(ctx, "wanted", false, &origin), GDN_E_NOT_CACHED, "case %zu", i);
        fs_disarm();
        fs_only(NULL);
        cr_expect_str_eq(fs_struck(), cases[i].call, "case %zu", i);
        cr_expect_eq(store_stats(ctx).corrupt, cases[i].goes, "case %zu", i);
        cr_expect_eq(access(path, F_OK) != 0, cases[i].goes, "case %zu", i);
        cr_expect_eq(log.count[GDN_LOG_WARN], cases[i].words != NULL, "case %zu: %s", i, log.last[GDN_LOG_WARN]);
        cr_expect(strstr(log.last[GDN_LOG_WARN], cases[i].words ? cases[i].words : ""), "case %zu: %s", i,
                  log.last[GDN_LOG_WARN]);
        gdn_ctx_destroy(ctx);
    }
    free(path);
    remove_folder(dir);
}

Test(fs_faults, nothing_that_could_not_be_synced_is_kept)
{
    static const struct {
        const char *call; /* close: NFS says there that the disk is full */
        bool no_tmpfile;
    } cases[] = { { "fsync", false }, { "fsync", true }, { "close", true } };
    struct store_log log = { 0 };
    enum gdni_origin origin;
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    char *dir = make_folder(FULL);
    gdn_ctx *ctx = store_ctx(dir, 0, &log, GDN_FAKE_NVRTC_PATH);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char source[16];
        snprintf(source, sizeof source, "source %zu", i);
        fs_without_tmpfile(cases[i].no_tmpfile);
        fs_only(cases[i].call);
        fs_arm((struct fs_fault){ FS_ERROR, EIO, 1, FS_FOREVER });
        cr_expect_eq(get(ctx, source, false, &origin), GDN_OK, "%s", gdni_error_text());
        fs_disarm();
        cr_expect_eq(store_stats(ctx).publish_failures, i + 1, "case %zu", i);
        cr_expect_eq(store_count_files(dir), 1, "case %zu: a file is there that no disk may have", i);
    }
    fs_only("syncfs");
    fs_arm((struct fs_fault){ FS_ERROR, EIO, 1, FS_FOREVER });
    cr_expect_eq(pack(ctx, &report), GDN_E_IO);
    cr_expect(strstr(gdn_last_error(), "what was packed cannot be written"), "%s", gdn_last_error());
    fs_disarm();
    fs_only(NULL);
    cr_expect_neq(access(bundle_dir, F_OK), 0, "a bundle is there that no disk may have");
    gdn_ctx_destroy(ctx);
    remove_folder(dir);
}

/* ---- kill -9 at every call ---- */

/* What the killed left: no entry that is not whole, and none that was there before is lost. */
static void expect_whole(const struct scenario *s, const char *dir, const char *when)
{
    struct store_log log = { 0 };
    enum gdni_origin origin;
    gdn_ctx *ctx = open_ctx(dir, &(struct scenario){ .name = when }, &log);
    CHECK(get(ctx, "wanted", false, &origin) == GDN_OK, "%s: %s", when, gdni_error_text());
    CHECK(store_stats(ctx).corrupt == 0, "%s: left a bad entry: %s", when, log.last[GDN_LOG_WARN]);
    CHECK(s->folder != FULL || origin == GDNI_FROM_DISK, "%s: an entry was lost", when);
    gdn_ctx_destroy(ctx);
}

static void kill_at(const struct scenario *s, int nth)
{
    char when[160];
    int ended = 0;
    char *dir = make_folder(s->folder);
    snprintf(when, sizeof when, "%s, killed at call %d", s->name, nth);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        gdn_status status;
        gdn_cache_report report = GDN_CACHE_REPORT_INIT;
        live(s, &(struct fs_fault){ FS_KILL, 0, nth, 1 }, dir, &status, &report);
        _exit(0);
    }
    CHECK(waitpid(child, &ended, 0) == child, "waitpid: %s", strerror(errno));
    CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL, "%s: it ended with %x", when, ended);
    if (s->folder != DAMAGED) expect_whole(s, dir, when);
    if (s->deed == PACK && access(bundle_dir, F_OK) == 0) {
        const gdn_cache_report whole = { .entries = MANY_ENTRIES };
        check_bundle(dir, GDN_OK, &(struct fs_fault){ 0 }, &whole, when);
    }
    expect_works(dir, when);
    remove_folder(dir);
}

Test(fs_faults, killed_at_every_call_leaves_a_folder_that_works, .timeout = 300)
{
    int kills = 0;
    load_nvrtc();
    for (int i = 0; i < NUM_SCENARIOS; ++i) {
        const int calls = count_calls(&scenarios[i], 0, 0);
        for (int nth = 1; nth <= calls; ++nth, ++kills)
            kill_at(&scenarios[i], nth);
    }
    printf("%d kills\n", kills);
    cr_assert_gt(kills, 200);
}
