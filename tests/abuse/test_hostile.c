/*
 * test_hostile.c - a cache directory in the hands of others: links and strangers at every component, another compiler, a clock
 * that jumps, a folder that goes away, forks. Nobody loads what is not his, and everybody gets a program.
 */
#include <criterion/criterion.h>

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abuse/fs_shim.h"
#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "support/fake_host.h"
#include "support/store.h"

#define SOURCE "wanted"

static char *scratch;
static char dir[512];

static void set_up(void)
{
    scratch = store_scratch();
    snprintf(dir, sizeof dir, "%s/cache", scratch);
}

static void tear_down(void)
{
    fs_disguise(NULL, 0, 0);
    fs_set_clock(0);
    store_remove(scratch);
}

TestSuite(hostile, .init = set_up, .fini = tear_down, .timeout = 120);

/* The program of a source, as ctx finds or builds it; where it came from. Right, or NULL. */
static struct gdni_program *get(gdn_ctx *ctx, const char *source, enum gdni_origin *origin)
{
    const struct gdni_unit unit = store_unit("sm_90a", source);
    struct gdni_key key = store_key(&unit);
    struct gdni_program *program = NULL;
    const gdn_status status = gdni_programs_get(ctx, &unit, &key, 0, &program, origin);
    const bool right = status == GDN_OK && strcmp(program->key_text, key.text) == 0 &&
                       program->cubin_size == 64 + strlen(source) &&
                       memcmp((const char *)program->cubin + 64, source, strlen(source)) == 0;
    if (!right) fprintf(stderr, "%s: %s: %s\n", source, gdn_status_name(status), gdni_error_text());
    if (!right) gdni_program_release(program);
    gdni_key_free(&key);
    return right ? program : NULL;
}

#define EXPECT_ORIGIN(ctx, source, expected, ...)                                                                      \
    do {                                                                                                               \
        enum gdni_origin origin_;                                                                                      \
        struct gdni_program *program_ = get(ctx, source, &origin_);                                                    \
        cr_assert_not_null(program_, __VA_ARGS__);                                                                     \
        cr_assert_eq(origin_, expected, __VA_ARGS__);                                                                  \
        gdni_program_release(program_);                                                                                \
    } while (0)

static gdn_ctx *open_ctx(uint32_t flags)
{
    return store_ctx(dir, flags, NULL, GDN_FAKE_NVRTC_PATH);
}

/* A directory with SOURCE's entry in it. */
static void fill(void)
{
    gdn_ctx *ctx = open_ctx(0);
    EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_COMPILER, "set-up");
    gdn_ctx_destroy(ctx);
}

/* Its path down from the root: "v2", "v2/sm_90a", "v2/sm_90a/<2 hex>", and the entry; free() the last. */
enum { ROOT, FORMAT, ARCH, HASH, ENTRY, NUM_COMPONENTS };
static char components[NUM_COMPONENTS][1024];

static void find_components(void)
{
    char *path = store_only_entry(dir);
    snprintf(components[ENTRY], sizeof components[0], "%s", path);
    for (int i = ENTRY; i-- > ROOT;) {
        memcpy(components[i], components[i + 1], sizeof components[0]);
        *strrchr(components[i], '/') = '\0';
    }
    cr_assert_str_eq(components[ROOT], dir);
    free(path);
}

/* Gives the entry at path another cubin, with every checksum right: what someone who can write there would do. */
static void poison(const char *path)
{
    const struct gdni_unit unit = store_unit("sm_90a", SOURCE);
    struct gdni_key key = store_key(&unit);
    void *cubin = store_cubin("sm_90a", 64 + strlen(SOURCE), 7), *bytes = NULL;
    size_t size = 0;
    const struct gdni_entry entry = store_entry("sm_90a", &key, cubin, 64 + strlen(SOURCE));
    cr_assert_eq(gdni_entry_encode(&entry, &bytes, &size), GDN_OK, "%s", gdni_error_text());
    store_write(path, bytes, size);
    gdni_free(bytes);
    free(cubin);
    gdni_key_free(&key);
}

/* ---- links ---- */

/* Moves a component to a place of the enemy's and leaves a link. */
static void plant_link(int component, const char *elsewhere, bool relative)
{
    char target[64];
    cr_assert_eq(rename(components[component], elsewhere), 0, "%m");
    snprintf(target, sizeof target, "%.*s%s", relative ? 3 * (component) : 0, "../../../../../..", "/elsewhere");
    cr_assert_eq(symlink(relative ? target : elsewhere, components[component]), 0, "%m");
}

Test(hostile, a_link_below_the_root_is_never_followed)
{
    for (int component = FORMAT; component < NUM_COMPONENTS; ++component)
        for (int relative = 0; relative < 2; ++relative) {
            const char *elsewhere = store_path(scratch, "elsewhere");
            fill();
            find_components();
            poison(components[ENTRY]);
            plant_link(component, elsewhere, relative);
            gdn_ctx *ctx = open_ctx(0);
            EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_COMPILER, "a link at %s was followed", components[component]);
            EXPECT_ORIGIN(ctx, "another", GDNI_FROM_COMPILER, "a link at %s was followed", components[component]);
            gdn_ctx_destroy(ctx);
            struct stat st;
            cr_assert_eq(lstat(elsewhere, &st), 0, "what the link at %s led to was removed", components[component]);
            cr_assert_eq(store_count_files(elsewhere), 1, "something was written through a link at %s",
                         components[component]);
            store_remove(strdup(elsewhere));
            store_remove(strdup(dir));
        }
}

Test(hostile, a_link_to_nowhere_makes_nothing_there)
{
    for (int component = FORMAT; component < NUM_COMPONENTS; ++component) {
        const char *nowhere = store_path(scratch, "nowhere");
        fill();
        find_components();
        store_remove(strdup(components[component]));
        cr_assert_eq(symlink(nowhere, components[component]), 0);
        gdn_ctx *ctx = open_ctx(0);
        EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_COMPILER, "a link to nowhere at %s", components[component]);
        gdn_ctx_destroy(ctx);
        cr_assert_neq(access(nowhere, F_OK), 0, "the link at %s was written through", components[component]);
        store_remove(strdup(dir));
    }
}

/* The sweep, verify and prune remove things: not what a link leads to. */
Test(hostile, nothing_is_removed_through_a_link)
{
    for (int component = FORMAT; component < ENTRY; ++component) {
        const char *elsewhere = store_path(scratch, "elsewhere");
        gdn_cache_report report = GDN_CACHE_REPORT_INIT;
        gdn_prune_options all = GDN_PRUNE_OPTIONS_INIT;
        all.max_bytes = 1;
        fill();
        find_components();
        store_write(components[ENTRY], "damaged", 7);
        plant_link(component, elsewhere, false);
        gdn_ctx *ctx = open_ctx(0);
        cr_assert_eq(gdn_cache_verify(ctx, NULL, GDN_VERIFY_REMOVE, NULL, NULL, &report), GDN_OK, "%s",
                     gdn_last_error());
        cr_assert_eq(report.entries + report.removed, 0u, "verify went through a link at %s", components[component]);
        cr_assert_eq(gdn_cache_prune(ctx, &all, NULL, NULL, &report), GDN_OK, "%s", gdn_last_error());
        cr_assert_eq(report.entries + report.removed, 0u, "prune went through a link at %s", components[component]);
        gdn_ctx_destroy(ctx);
        cr_assert_eq(store_count_files(elsewhere), 1);
        store_remove(strdup(elsewhere));
        store_remove(strdup(dir));
    }
}

/* ---- strangers: their owner is told by the shim, so that the test needs no second user ---- */

static const struct {
    const char *name;
    bool foreign;
    mode_t bits;
} disguises[] = {
    { "owned by another user", true, 0 },
    { "writable for the group", false, 020 },
    { "writable for all", false, 002 },
};
enum { STRANGER = 54321 };

/* Whether what is disguised so is to be believed: see the header about cache_dir and GDN_CTX_SHARED_CACHE. */
static bool is_trusted(int component, bool foreign, uint32_t flags)
{
    return flags & GDN_CTX_SHARED_CACHE || (component == ROOT && !foreign); /* a root that is named is used as it is */
}

Test(hostile, what_others_could_have_written_is_believed_only_when_shared_on_purpose)
{
    static const uint32_t flags[] = { 0, GDN_CTX_SHARED_CACHE };
    for (int component = ROOT; component < NUM_COMPONENTS; ++component)
        for (size_t i = 0; i < sizeof disguises / sizeof disguises[0]; ++i)
            for (size_t f = 0; f < 2; ++f) {
                fill();
                find_components();
                fs_disguise(components[component], disguises[i].foreign ? STRANGER : geteuid(), disguises[i].bits);
                gdn_ctx *ctx = open_ctx(flags[f]);
                const bool trusted = is_trusted(component, disguises[i].foreign, flags[f]);
                EXPECT_ORIGIN(ctx, SOURCE, trusted ? GDNI_FROM_DISK : GDNI_FROM_COMPILER, "%s %s, flags %u",
                              components[component], disguises[i].name, flags[f]);
                gdn_ctx_destroy(ctx);
                fs_disguise(NULL, 0, 0);
                store_remove(strdup(dir));
            }
}

Test(hostile, a_strangers_entry_is_replaced_and_a_strangers_folder_left_alone)
{
    fill();
    find_components();
    struct stat before, after;
    cr_assert_eq(stat(components[ENTRY], &before), 0);
    fs_disguise(components[ENTRY], STRANGER, 0);
    gdn_ctx *ctx = open_ctx(0);
    EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_COMPILER, "a stranger's entry");
    cr_assert_eq(store_stats(ctx).corrupt, 1u);
    gdn_ctx_destroy(ctx);
    fs_disguise(NULL, 0, 0);
    cr_assert_eq(stat(components[ENTRY], &after), 0);
    cr_assert(before.st_ino != after.st_ino || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec);
    fs_disguise(components[HASH], STRANGER, 0);
    ctx = open_ctx(0);
    EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_COMPILER, "a stranger's folder");
    cr_assert_eq(store_stats(ctx).corrupt, 0u);
    cr_assert_eq(store_stats(ctx).publish_failures, 1u);
    gdn_ctx_destroy(ctx);
    cr_assert_eq(access(components[ENTRY], F_OK), 0);
}

/* ---- two compilers ---- */

/* The byte in which the cubins of the two fakes differ. */
static int minor_of(const struct gdni_program *program)
{
    return ((const unsigned char *)program->cubin)[48];
}

static void expect_by(const char *nvrtc, const char *source, int minor, enum gdni_origin expected)
{
    enum gdni_origin origin;
    gdn_ctx *ctx = store_ctx(dir, 0, NULL, nvrtc);
    struct gdni_program *program = get(ctx, source, &origin);
    cr_assert_not_null(program);
    cr_assert_eq(minor_of(program), minor, "%s got a cubin of 13.%d", nvrtc, minor_of(program));
    cr_assert_eq(origin, expected, "%s: origin %d", nvrtc, origin);
    gdni_program_release(program);
    gdn_ctx_destroy(ctx);
}

Test(hostile, two_compilers_in_one_directory_keep_apart)
{
    expect_by(GDN_FAKE_NVRTC_PATH, SOURCE, 0, GDNI_FROM_COMPILER);
    expect_by(GDN_FAKE_NVRTC_NEXT_PATH, SOURCE, 1, GDNI_FROM_COMPILER);
    expect_by(GDN_FAKE_NVRTC_PATH, SOURCE, 0, GDNI_FROM_DISK);
    expect_by(GDN_FAKE_NVRTC_NEXT_PATH, SOURCE, 1, GDNI_FROM_DISK);
    cr_assert_eq(store_count_files(dir), 2);
    gdn_ctx *without = store_ctx(dir, 0, NULL, "/nonexistent/libnvrtc.so");
    EXPECT_ORIGIN(without, SOURCE, GDNI_FROM_DISK, "no compiler");
    gdn_ctx_destroy(without);
}

enum { SOURCES = 40 };

static void *use_compiler(void *nvrtc)
{
    const int minor = strcmp(nvrtc, GDN_FAKE_NVRTC_NEXT_PATH) == 0;
    gdn_ctx *ctx = store_ctx(dir, 0, NULL, nvrtc);
    uintptr_t wrong = 0;
    for (int i = 0; i < SOURCES; ++i) {
        char source[32];
        enum gdni_origin origin;
        snprintf(source, sizeof source, "source %d", i);
        struct gdni_program *program = get(ctx, source, &origin);
        wrong += !program || minor_of(program) != minor;
        gdni_program_release(program);
    }
    gdn_ctx_destroy(ctx);
    return (void *)wrong;
}

Test(hostile, two_compilers_at_once_keep_apart)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
        cr_assert_eq(pthread_create(&threads[i], NULL, use_compiler,
                                    i % 2 ? (void *)(uintptr_t)GDN_FAKE_NVRTC_NEXT_PATH
                                          : (void *)(uintptr_t)GDN_FAKE_NVRTC_PATH),
                     0);
    for (int i = 0; i < THREADS; ++i) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        cr_expect_null(wrong, "thread %d: %zu wrong", i, (size_t)wrong);
    }
    cr_assert_eq(store_count_files(dir), 2 * SOURCES);
}

/* ---- clocks ---- */

static time_t mtime_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s: %m", path);
    return st.st_mtim.tv_sec;
}

Test(hostile, a_clock_that_jumps_costs_no_entry_and_no_hit)
{
    static const time_t jumps[] = { -86400, 86400, -400000000, 400000000 };
    fill();
    find_components();
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; ++i) {
        fs_set_clock(jumps[i]);
        gdn_ctx *ctx = open_ctx(0);
        EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_DISK, "the clock by %ld s", (long)jumps[i]);
        const time_t now = time(NULL);
        cr_assert(labs((long)(mtime_of(components[ENTRY]) - now)) < 100, "used at %ld and dated %ld", (long)now,
                  (long)mtime_of(components[ENTRY]));
        EXPECT_ORIGIN(ctx, "another", i == 0 ? GDNI_FROM_COMPILER : GDNI_FROM_DISK, "the clock by %ld s",
                      (long)jumps[i]);
        cr_assert_eq(store_stats(ctx).evicted, 0u);
        gdn_ctx_destroy(ctx);
    }
}

/* What was used since the clock was set back has the older date, and is the younger. */
Test(hostile, after_the_clock_was_set_back_what_is_used_stays)
{
    enum { ENTRIES = 8 };
    char source[32];
    gdn_ctx *ctx = open_ctx(0);
    for (int i = 0; i < ENTRIES; ++i) {
        snprintf(source, sizeof source, "entry %d", i);
        EXPECT_ORIGIN(ctx, source, GDNI_FROM_COMPILER, "set-up");
    }
    gdn_ctx_destroy(ctx);
    fs_set_clock(-86400);
    ctx = open_ctx(0);
    EXPECT_ORIGIN(ctx, "entry 3", GDNI_FROM_DISK, "set-up");
    gdn_ctx_destroy(ctx);
    gdn_prune_options half = GDN_PRUNE_OPTIONS_INIT;
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    ctx = open_ctx(0);
    cr_assert_eq(gdn_cache_verify(ctx, NULL, 0, NULL, NULL, &report), GDN_OK);
    half.max_bytes = report.bytes / 4;
    cr_assert_eq(gdn_cache_prune(ctx, &half, NULL, NULL, &report), GDN_OK);
    cr_assert_eq(report.removed, 6u);
    EXPECT_ORIGIN(ctx, "entry 3", GDNI_FROM_DISK, "the one that was used went first");
    gdn_ctx_destroy(ctx);
}

/* ---- a folder that goes away ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    remove(path); /* someone else may be writing there */
    return 0;
}

Test(hostile, a_folder_removed_at_any_moment_is_made_again_or_done_without)
{
    char inside[600], source[32];
    gdn_ctx *ctx = open_ctx(0);
    snprintf(inside, sizeof inside, "%s/v2", dir);
    const pid_t vandal = fork();
    if (vandal == 0) {
        alarm(60); /* whatever becomes of the test */
        for (;;)
            nftw(inside, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    for (int i = 0; i < 400; ++i) {
        enum gdni_origin origin;
        snprintf(source, sizeof source, "source %d", i);
        struct gdni_program *program = get(ctx, source, &origin);
        cr_assert_not_null(program, "round %d", i);
        gdni_program_release(program);
    }
    kill(vandal, SIGKILL);
    cr_assert_eq(waitpid(vandal, NULL, 0), vandal);
    cr_assert_eq(store_stats(ctx).corrupt, 0u);
    EXPECT_ORIGIN(ctx, "after", GDNI_FROM_COMPILER, "after");
    gdn_ctx_destroy(ctx);
    ctx = open_ctx(0);
    EXPECT_ORIGIN(ctx, "after", GDNI_FROM_DISK, "the folder was not made again");
    gdn_ctx_destroy(ctx);
}

Test(hostile, a_root_removed_while_in_use_is_done_without_and_made_by_the_next)
{
    gdn_ctx *ctx = open_ctx(0);
    EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_COMPILER, "set-up");
    store_remove(strdup(dir));
    EXPECT_ORIGIN(ctx, SOURCE, GDNI_FROM_MEMORY, "what was loaded stays");
    EXPECT_ORIGIN(ctx, "another", GDNI_FROM_COMPILER, "in a folder that is gone");
    cr_assert_eq(store_stats(ctx).publish_failures, 1u);
    cr_assert_neq(access(dir, F_OK), 0);
    gdn_ctx *next = open_ctx(0);
    EXPECT_ORIGIN(next, "another", GDNI_FROM_COMPILER, "nothing was kept");
    gdn_ctx_destroy(next);
    gdn_ctx_destroy(ctx);
    next = open_ctx(0);
    EXPECT_ORIGIN(next, "another", GDNI_FROM_DISK, "the next context's entry");
    gdn_ctx_destroy(next);
}

/* ---- fork ---- */

struct busy {
    gdn_ctx *ctx;
    atomic_bool stop;
    atomic_int rounds, wrong;
};

static void *keep_busy(void *user)
{
    struct busy *b = user;
    char source[48];
    for (int i = 0; !b->stop; ++i) {
        enum gdni_origin origin;
        snprintf(source, sizeof source, "thread %lx round %d", (unsigned long)pthread_self(), i);
        struct gdni_program *program = get(b->ctx, source, &origin);
        b->wrong += program == NULL;
        ++b->rounds;
        gdni_program_release(program);
    }
    return NULL;
}

/* The child leaves its parent's context alone, as the header says, and makes its own. */
static int run_child(int round)
{
    char source[32];
    enum gdni_origin origin;
    alarm(30); /* a lock that was held at the fork */
    snprintf(source, sizeof source, "child %d", round);
    gdn_ctx *ctx = open_ctx(0);
    struct gdni_program *own = get(ctx, source, &origin), *shared = get(ctx, SOURCE, &origin);
    const bool good = own && shared && origin == GDNI_FROM_DISK;
    gdni_program_release(own);
    gdni_program_release(shared);
    gdn_ctx_destroy(ctx);
    return good ? 0 : 1;
}

/*
 * AddressSanitizer before that of LLVM 18 takes none of its allocator's locks at fork(): once in some hundred forks a child
 * finds one held for good.
 */
#ifdef __SANITIZE_ADDRESS__
enum { FORK_IS_SAFE = 0 };
#else
enum { FORK_IS_SAFE = 1 };
#endif

Test(hostile, a_child_forked_from_a_busy_parent_makes_its_own_context)
{
    enum { THREADS = 3, FORKS = 60 };
    if (!FORK_IS_SAFE) cr_skip_test("fork() of several threads under AddressSanitizer");
    fill();
    struct busy busy = { .ctx = open_ctx(0) };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i)
        cr_assert_eq(pthread_create(&threads[i], NULL, keep_busy, &busy), 0);
    while (busy.rounds < THREADS)
        usleep(1000);
    for (int i = 0; i < FORKS; ++i) {
        int status = 0;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) _exit(run_child(i));
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d: %x", i, status);
    }
    busy.stop = true;
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    cr_assert_eq(busy.wrong, 0);
    EXPECT_ORIGIN(busy.ctx, SOURCE, GDNI_FROM_DISK, "the parent's context goes on");
    gdn_ctx_destroy(busy.ctx);
}
