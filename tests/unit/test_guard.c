/*
 * test_guard.c - of many processes on one cold key one compiles, and nobody waits for one that is dead or too slow.
 */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/guard.h"
#include "support/fake_host.h"
#include "support/store.h"

#define KEY "0123456789abcdef0123456789abcdef"
#define OTHER_KEY "1123456789abcdef0123456789abcdef"

static char *scratch;
static struct gdni_env env;
static struct gdni_cache_dir dir;
static struct store_log lines;
static struct gdni_log sink;

static void set_up(void)
{
    scratch = store_scratch();
    mkdir(store_path(scratch, "cache"), 0700);
    env = (struct gdni_env){ .xdg_runtime_dir = scratch };
    dir = (struct gdni_cache_dir){ .fd = open(store_path(scratch, "cache"), O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
    lines = (struct store_log){ 0 };
    sink = (struct gdni_log){ store_log_fn, &lines, GDN_LOG_INFO };
}

static void tear_down(void)
{
    close(dir.fd);
    store_remove(scratch);
    cr_assert(fake_no_leaks());
}

TestSuite(guard, .init = set_up, .fini = tear_down);

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool waited; /* by the turn before */

/* One turn of a guard made for it. */
static int enter(int32_t wait_ms, const char *key)
{
    struct gdni_guard *guard = gdni_guard_create(wait_ms, &env, &sink);
    const int turn = gdni_guard_enter(guard, &dir, key, gdni_guard_deadline(guard), &waited);
    gdni_guard_destroy(guard);
    return turn;
}

Test(guard, without_a_time_there_is_none)
{
    cr_assert_eq(enter(0, KEY), GDNI_GUARD_NONE);
    cr_assert_eq(enter(-1, KEY), GDNI_GUARD_NONE);
    cr_assert_neq(access(store_path(scratch, "gdn-jit"), F_OK), 0, "something was made");
    env.compile_wait_ms = 100;
    cr_assert_eq(enter(-1, KEY), GDNI_GUARD_NONE, "-1 goes before the environment");
    const int turn = enter(0, KEY);
    cr_assert_neq(turn, GDNI_GUARD_NONE);
    gdni_guard_leave(turn);
}

Test(guard, of_memory_only_there_is_none)
{
    close(dir.fd);
    dir.fd = -1;
    cr_assert_eq(enter(1000, KEY), GDNI_GUARD_NONE);
    dir.fd = dup(0);
}

Test(guard, one_key_one_turn_other_keys_and_directories_are_free)
{
    const int turn = enter(1000, KEY);
    cr_assert_neq(turn, GDNI_GUARD_NONE);
    cr_assert(!waited);
    const int64_t start = now_ms();
    cr_assert_eq(enter(60, KEY), GDNI_GUARD_NONE, "two have one turn");
    cr_assert(waited);
    cr_assert_geq(now_ms() - start, 59, "did not wait");
    const int other = enter(1, OTHER_KEY);
    cr_assert_neq(other, GDNI_GUARD_NONE, "another key had to wait");
    const int cache = dir.fd;
    dir.fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int elsewhere = enter(1, KEY);
    cr_assert_neq(elsewhere, GDNI_GUARD_NONE, "another cache directory had to wait");
    close(dir.fd);
    dir.fd = cache;
    gdni_guard_leave(turn);
    const int again = enter(1, KEY);
    cr_assert_neq(again, GDNI_GUARD_NONE, "a turn that was given back is not free");
    gdni_guard_leave(again);
    gdni_guard_leave(other);
    gdni_guard_leave(elsewhere);
    cr_assert_eq(lines.count[GDN_LOG_WARN], 0, "%s", lines.last[GDN_LOG_WARN]);
}

Test(guard, past_a_deadline_nobody_waits)
{
    struct gdni_guard *guard = gdni_guard_create(600000, &env, &sink);
    const int64_t past = gdni_guard_deadline(guard) - 600000 * INT64_C(1000) - 1;
    const int turn = gdni_guard_enter(guard, &dir, KEY, past, &waited);
    cr_assert_neq(turn, GDNI_GUARD_NONE, "a turn that is free was not taken");
    cr_assert_eq(gdni_guard_enter(guard, &dir, KEY, past, &waited), GDNI_GUARD_NONE);
    cr_assert(waited);
    gdni_guard_leave(turn);
    gdni_guard_destroy(guard);
}

/* It has the open file too, to which the lock belongs. */
Test(guard, a_child_that_was_forked_in_a_turn_does_not_keep_it)
{
    const int turn = enter(1000, KEY);
    cr_assert_neq(turn, GDNI_GUARD_NONE);
    const pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    cr_assert_gt(child, 0);
    gdni_guard_leave(turn);
    const int again = enter(1, KEY);
    cr_expect_neq(again, GDNI_GUARD_NONE, "the child still has the turn");
    gdni_guard_leave(again);
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(guard, a_killed_process_holds_nobody_up)
{
    int ready[2];
    cr_assert_eq(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        const char ok = enter(1000, KEY) != GDNI_GUARD_NONE;
        if (write(ready[1], &ok, 1) != 1) _exit(1);
        for (;;) pause();
    }
    char ok = 0;
    cr_assert(read(ready[0], &ok, 1) == 1 && ok);
    cr_assert_eq(enter(1, KEY), GDNI_GUARD_NONE, "the child has the turn");
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    const int turn = enter(1, KEY);
    cr_assert_neq(turn, GDNI_GUARD_NONE);
    gdni_guard_leave(turn);
    close(ready[0]);
    close(ready[1]);
}

static void *leave_soon(void *data)
{
    while (lines.count[GDN_LOG_INFO] == 0) sched_yield(); /* "waiting": now somebody does */
    gdni_guard_leave(*(int *)data);
    return NULL;
}

Test(guard, who_waits_gets_the_turn_when_it_is_given_back)
{
    int first = enter(1000, KEY);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, leave_soon, &first), 0);
    const int second = enter(600000, KEY);
    cr_assert_neq(second, GDNI_GUARD_NONE);
    pthread_join(thread, NULL);
    gdni_guard_leave(second);
}

Test(guard, a_folder_that_others_may_write_to_is_not_used)
{
    const char *folder = store_path(scratch, "gdn-jit");
    mkdir(folder, 0700);
    chmod(folder, 0777);
    char fallback[64];
    snprintf(fallback, sizeof fallback, "/dev/shm/gdn-jit-%u/compile.lock", (unsigned)geteuid());
    const int turn = enter(1000, KEY); /* in the other place, if this machine has it */
    cr_assert_neq(access(store_path(folder, "compile.lock"), F_OK), 0, "a folder of anybody's was used");
    cr_assert(turn == GDNI_GUARD_NONE || access(fallback, F_OK) == 0);
    gdni_guard_leave(turn);
}

/* Who makes the file under such a umask would shut the others out of it until the machine is started anew. */
Test(guard, a_umask_shuts_nobody_out)
{
    static const mode_t masks[] = { 0177, 0777 };
    store_drop_root(scratch);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; ++i) {
        char place[16];
        snprintf(place, sizeof place, "%03o", (unsigned)masks[i]);
        env.xdg_runtime_dir = (char *)store_path(scratch, place);
        mkdir(env.xdg_runtime_dir, 0700);
        const mode_t before = umask(masks[i]);
        gdni_guard_leave(enter(1000, KEY));
        umask(before);
        const int turn = enter(1000, KEY);
        cr_expect(access(store_path(env.xdg_runtime_dir, "gdn-jit/compile.lock"), R_OK | W_OK) == 0, "umask %s", place);
        cr_expect_neq(turn, GDNI_GUARD_NONE, "umask %s", place);
        gdni_guard_leave(turn);
    }
    cr_expect_eq(lines.count[GDN_LOG_WARN], 0, "%s", lines.last[GDN_LOG_WARN]);
}

Test(guard, a_link_in_the_locks_place_is_not_followed)
{
    mkdir(store_path(scratch, "gdn-jit"), 0700);
    const char *victim = store_path(scratch, "victim");
    cr_assert_eq(symlink(victim, store_path(scratch, "gdn-jit/compile.lock")), 0);
    struct gdni_guard *guard = gdni_guard_create(1000, &env, &sink);
    for (int twice = 0; twice < 2; ++twice) /* of one context one warning */
        cr_assert_eq(gdni_guard_enter(guard, &dir, KEY, gdni_guard_deadline(guard), &waited), GDNI_GUARD_NONE);
    gdni_guard_destroy(guard);
    cr_assert_neq(access(victim, F_OK), 0, "a file was made through a link");
    cr_assert_eq(lines.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(lines.last[GDN_LOG_WARN], "each compiles for itself"), "%s", lines.last[GDN_LOG_WARN]);
}

Test(guard, refuses_times_that_are_none)
{
    static const int32_t bad[] = { -2, INT32_MIN, 600001, INT32_MAX };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        cfg.cache_dir = "";
        cfg.compile_wait_ms = bad[i];
        cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "%d", bad[i]);
        cr_assert(strstr(gdn_last_error(), "compile_wait_ms is "), "%s", gdn_last_error());
    }
}

/* ---- whole ---- */

enum { PROCESSES = 8, KEYS = 5, DELAY_MS = 40 };

/* Compiles of one process that wants every key; 100: a failure. */
static int want_all(const char *cache, int32_t wait_ms)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = cache;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.compile_wait_ms = wait_ms;
    gdn_ctx *ctx = NULL;
    fake_nvrtc_open(GDN_FAKE_NVRTC_PATH)->delay_ms = DELAY_MS;
    if (gdn_ctx_create(&ctx, &cfg) != GDN_OK) return 100;
    for (int i = 0; i < KEYS; ++i) {
        char source[16];
        snprintf(source, sizeof source, "source %d", i);
        struct gdni_unit unit = store_unit("sm_90a", source);
        struct gdni_key key = store_key(&unit);
        struct gdni_program *program = NULL;
        enum gdni_origin origin;
        if (gdni_programs_get(ctx, &unit, &key, 0, &program, &origin) != GDN_OK) return 100;
        gdni_program_release(program);
        gdni_key_free(&key);
    }
    const int compiles = (int)store_stats(ctx).compiles;
    gdn_ctx_destroy(ctx);
    return compiles;
}

Test(guard, eight_processes_compile_each_key_once)
{
    setenv("XDG_RUNTIME_DIR", scratch, 1);
    pid_t children[PROCESSES];
    int total = 0;
    for (int i = 0; i < PROCESSES; ++i) {
        children[i] = fork();
        if (children[i] == 0) _exit(want_all(store_path(scratch, "cache"), 60000));
    }
    for (int i = 0; i < PROCESSES; ++i) {
        int status = -1;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) <= KEYS, "process %d: %d", i, status);
        total += WEXITSTATUS(status);
    }
    cr_assert_eq(total, KEYS, "%d compiles of %d keys", total, KEYS);
}
