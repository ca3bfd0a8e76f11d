/*
 * test_cache_race.c - processes and threads that meet in one cold cache directory: all succeed, each with its own bytes,
 * whatever they do to each other, and whoever is killed leaves nothing bad.
 */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "runtime/cache.h"
#include "runtime/fsutil.h"
#include "support/store.h"

enum { PROCESSES = 8, THREADS = 6, KEYS = 12 };

static char sources[KEYS][32];
static char *scratch;

static void set_up(void)
{
    scratch = store_scratch();
    for (int i = 0; i < KEYS; ++i) snprintf(sources[i], sizeof sources[i], "source %d", i);
}

static void tear_down(void)
{
    store_remove(scratch);
}

TestSuite(cache_race, .init = set_up, .fini = tear_down);

/* One program from a context; NULL when it is not the one that was asked for. */
static struct gdni_program *get(gdn_ctx *ctx, int i)
{
    const struct gdni_unit unit = store_unit("sm_90a", sources[i]);
    struct gdni_key key = store_key(&unit);
    struct gdni_program *program = NULL;
    enum gdni_origin origin;
    const gdn_status status = gdni_programs_get(ctx, &unit, &key, 0, &program, &origin);
    const bool right = status == GDN_OK && strcmp(program->key_text, key.text) == 0 &&
                       program->cubin_size == 64 + strlen(sources[i]) &&
                       memcmp((const char *)program->cubin + 64, sources[i], strlen(sources[i])) == 0;
    if (!right) fprintf(stderr, "key %d: %s: %s\n", i, gdn_status_name(status), gdni_error_text());
    gdni_key_free(&key);
    return right ? program : NULL;
}

struct worker {
    gdn_ctx *ctx;
    unsigned seed;
    atomic_int *wrong;
};

static void *get_all(void *data)
{
    const struct worker *w = data;
    unsigned at = w->seed;
    for (int i = 0; i < 4 * KEYS; ++i) {
        at = at * 1664525u + 1013904223u;
        struct gdni_program *program = get(w->ctx, (int)(at >> 16) % KEYS);
        *w->wrong += program == NULL;
        gdni_program_release(program);
    }
    return NULL;
}

/* What one process of the crowd does; its exit status. */
static int run_process(unsigned seed)
{
    atomic_int wrong = 0;
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    gdn_ctx *ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
    for (unsigned i = 0; i < THREADS; ++i) {
        workers[i] = (struct worker){ ctx, seed * 100 + i, &wrong };
        if (pthread_create(&threads[i], NULL, get_all, &workers[i]) != 0) return 2;
    }
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    const gdn_cache_stats stats = store_stats(ctx);
    gdn_ctx_destroy(ctx);
    if (wrong || stats.corrupt || stats.publish_failures || stats.compiles > KEYS)
        fprintf(stderr, "process %u: %d wrong, %llu corrupt, %llu not published, %llu compiles\n", seed, (int)wrong,
                (unsigned long long)stats.corrupt, (unsigned long long)stats.publish_failures,
                (unsigned long long)stats.compiles);
    return wrong || stats.corrupt || stats.publish_failures || stats.compiles > KEYS;
}

static void run_crowd(unsigned seed)
{
    pid_t children[PROCESSES];
    for (unsigned i = 0; i < PROCESSES; ++i) {
        children[i] = fork();
        if (children[i] == 0) _exit(run_process(seed + i));
        cr_assert_gt(children[i], 0);
    }
    for (unsigned i = 0; i < PROCESSES; ++i) {
        int status = 0;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process with seed %u: status %x", seed + i, status);
    }
}

Test(cache_race, all_who_meet_on_a_cold_directory_get_their_own_program)
{
    run_crowd(1);
    cr_assert_eq(store_count_files(scratch), KEYS, "one entry a key, and no temporary file");
}

static void *get_first(void *ctx)
{
    return get(ctx, 0);
}

Test(cache_race, the_loser_of_a_publish_race_keeps_its_own_bytes_and_leaves_no_bad_ones)
{
    static const char garbage[] = "what whoever re-reads an entry that he just built would get";
    struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    gdn_ctx *winner = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
    gdn_ctx *loser = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
    gdni_program_release(get(winner, 0));
    char *path = store_only_entry(scratch);
    unlink(path);
    fake->delay_ms = 300;
    pthread_t thread;
    void *program;
    cr_assert_eq(pthread_create(&thread, NULL, get_first, loser), 0);
    while (!fake->running) usleep(1000);
    store_write(path, garbage, sizeof garbage); /* while the loser compiles, the name is taken */
    pthread_join(thread, &program);
    cr_assert_not_null(program);
    cr_assert_eq(store_stats(loser).publish_failures, 0u);
    gdn_ctx *next = store_ctx(scratch, GDN_CTX_NO_COMPILE, NULL, GDN_FAKE_NVRTC_PATH);
    gdni_program_release(get(next, 0));
    cr_assert_eq(store_stats(next).corrupt, 0u, "what took the name is no entry, and stands");
    gdn_ctx_destroy(next);
    gdni_program_release(program);
    gdn_ctx_destroy(winner);
    gdn_ctx_destroy(loser);
    free(path);
}

/* Meanwhile somebody damages, removes and replaces entries, and the cap is far too small. */
Test(cache_race, damage_and_eviction_under_the_crowd_cost_compiles_and_nothing_else)
{
    pid_t vandal = fork();
    if (vandal == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed assertion must not leave it to go on for ever */
        for (unsigned at = 7;; at = at * 1664525u + 1013904223u) {
            const struct gdni_unit unit = store_unit("sm_90a", sources[(at >> 16) % KEYS]);
            struct store_cache s;
            struct gdni_program *program = store_program(&unit);
            store_cache_open(&s, scratch, NULL, 2000);
            gdni_cache_publish(s.cache, program, "0a1b2c3d", at & 1u << 20);
            store_cache_close(&s);
            gdni_program_release(program);
        }
    }
    for (unsigned round = 0; round < 3; ++round) run_crowd(1000 * (round + 1));
    kill(vandal, SIGKILL);
    cr_assert_eq(waitpid(vandal, NULL, 0), vandal);
}

Test(cache_race, whoever_is_killed_leaves_a_directory_that_works)
{
    for (unsigned round = 0; round < 25; ++round) {
        char *dir = scratch;
        scratch = store_scratch();
        pid_t children[3];
        for (unsigned i = 0; i < 3; ++i) {
            children[i] = fork();
            if (children[i] == 0) _exit(run_process(round * 10 + i));
        }
        const struct timespec moment = { .tv_nsec = 1000000L * (1 + (long)(round * 37 % 40)) };
        nanosleep(&moment, NULL);
        for (unsigned i = 0; i < 3; ++i) kill(children[i], SIGKILL);
        for (unsigned i = 0; i < 3; ++i) waitpid(children[i], NULL, 0);
        gdn_ctx *ctx = store_ctx(scratch, 0, NULL, GDN_FAKE_NVRTC_PATH);
        for (int i = 0; i < KEYS; ++i) {
            struct gdni_program *program = get(ctx, i);
            cr_assert_not_null(program, "round %u, key %d", round, i);
            gdni_program_release(program);
        }
        const gdn_cache_stats stats = store_stats(ctx);
        cr_assert_eq(stats.corrupt, 0u, "round %u: a killed process left a bad entry", round);
        gdn_ctx_destroy(ctx);
        store_remove(scratch);
        scratch = dir;
    }
}

struct remover {
    pthread_barrier_t *start;
    int folder;
    struct stat seen;
    int result;
};

static void *remove_what_was_seen(void *data)
{
    struct remover *r = data;
    pthread_barrier_wait(r->start);
    r->result = gdni_fs_remove_same(r->folder, "entry", &r->seen);
    return NULL;
}

Test(cache_race, a_good_file_that_replaces_a_bad_one_while_that_is_removed_is_never_lost)
{
    const int folder = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int removed = 0, replaced = 0;
    for (int round = 0; round < 3000; ++round) {
        pthread_barrier_t start;
        pthread_t thread;
        struct remover r = { .start = &start, .folder = folder };
        size_t size;
        store_write(store_path(scratch, "entry"), "bad", 3);
        store_write(store_path(scratch, "new"), "good", 4);
        cr_assert_eq(stat(store_path(scratch, "entry"), &r.seen), 0);
        pthread_barrier_init(&start, NULL, 2);
        cr_assert_eq(pthread_create(&thread, NULL, remove_what_was_seen, &r), 0);
        pthread_barrier_wait(&start);
        cr_assert_eq(rename(store_path(scratch, "new"), store_path(scratch, "entry")), 0);
        pthread_join(thread, NULL);
        cr_assert(r.result == 0 || r.result == ESTALE, "round %d: %d", round, r.result);
        removed += r.result == 0;
        replaced += r.result == ESTALE;
        char *left = store_read(store_path(scratch, "entry"), &size);
        cr_assert(size == 4 && memcmp(left, "good", 4) == 0, "round %d: the good file is lost", round);
        free(left);
        pthread_barrier_destroy(&start);
    }
    cr_assert_eq(store_count_files(scratch), 1, "temporary names are left");
    printf("3000 rounds: %d removed first, %d replaced first, 0 lost\n", removed, replaced);
    close(folder);
}
