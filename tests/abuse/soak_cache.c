/*
 * soak_cache.c - a crowd of processes on one cold key, round after round, some of them killed (SIGKILL) at random moments.
 * Whatever they do to each other: nobody ever gets a cubin that is not the one he asked for, nobody ends but by our hand or his
 * own exit, an entry that anybody saw published is there at the end, and temporary files do not pile up.
 *
 *   soak_cache [--rounds N] [--processes N] [--seconds N] [--seed N] [--dir FOLDER] [--report FILE]
 *
 * A round: a new key; every process opens a context on the shared folder, waits for the start (a third come later), asks for
 * the program, compares its bytes, and reports by its exit status. Each odd round is on a file system without O_TMPFILE, where
 * a killed publisher leaves a temporary file; those are made two hours old between rounds, so that the next round's sweep has
 * to take them away.
 * Rounds 2 and 3 of each four have the stampede guard.
 * Exit: 0 when all of that held, 1 when not, 2 for a wrong argument.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
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
#include "runtime/cache_scan.h"
#include "runtime/fsutil.h"
#include "support/rng.h"
#include "support/store.h"

enum { MAX_PROCESSES = 256, MAX_DELAY_MS = 12, MAX_KILL_GAP_US = 600, MAX_LATE_MS = 25, WAIT_MS = 500 };

/* Exit statuses of a process of the crowd. */
enum outcome { PUBLISHED, FOUND, UNPUBLISHED, WRONG, FAILED, SAW_DAMAGE, NUM_OUTCOMES };

struct options {
    long rounds, processes, seconds;
    uint64_t seed;
    const char *dir, *report;
};

struct tally {
    long rounds, processes, by_outcome[NUM_OUTCOMES], killed, ended_otherwise;
    long guarded_compiles; /* part of by_outcome[PUBLISHED] */
    long entries, lost, wrong_at_end, temporaries_seen, temporaries_most, temporaries_left;
    double seconds;
};

static struct fake_nvrtc *fake;

static bool is_guarded(long round)
{
    return round / 2 % 2 == 1;
}

static void source_of(char text[64], long round)
{
    snprintf(text, 64, "source of round %ld", round);
}

/* The program of a round, as this context finds or builds it. */
static enum outcome get(gdn_ctx *ctx, long round, enum gdni_origin *origin)
{
    char source[64];
    source_of(source, round);
    const struct gdni_unit unit = store_unit("sm_90a", source);
    struct gdni_key key = store_key(&unit);
    struct gdni_program *program = NULL;
    *origin = GDNI_FROM_MEMORY;
    const gdn_status status = gdni_programs_get(ctx, &unit, &key, 0, &program, origin);
    enum outcome outcome = FAILED;
    if (status == GDN_OK) {
        const bool right = strcmp(program->key_text, key.text) == 0 && program->cubin_size == 64 + strlen(source) &&
                           memcmp((const char *)program->cubin + 64, source, strlen(source)) == 0;
        outcome = !right ? WRONG : *origin == GDNI_FROM_COMPILER ? PUBLISHED : FOUND;
        gdni_program_release(program);
    } else
        fprintf(stderr, "round %ld: %s: %s\n", round, gdn_status_name(status), gdni_error_text());
    gdni_key_free(&key);
    return outcome;
}

static void sleep_us(long us)
{
    const struct timespec time = { .tv_nsec = 1000L * us };
    nanosleep(&time, NULL);
}

/* As store_ctx(), with the stampede guard in every other pair of rounds. */
static gdn_ctx *open_ctx(const char *dir, long round, struct store_log *log)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = dir;
    cfg.flags = GDN_CTX_NO_ENV;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.compile_wait_ms = is_guarded(round) ? WAIT_MS : -1;
    cfg.log_fn = store_log_fn;
    cfg.log_user = log;
    gdn_ctx *ctx = NULL;
    if (gdn_ctx_create(&ctx, &cfg) != GDN_OK) {
        fprintf(stderr, "gdn_ctx_create: %s\n", gdn_last_error());
        _exit(FAILED);
    }
    return ctx;
}

static enum outcome run_one(const char *dir, long round, int start, long late_us)
{
    char byte;
    struct store_log log = { 0 };
    enum gdni_origin origin;
    gdn_ctx *ctx = open_ctx(dir, round, &log);
    if (read(start, &byte, 1) != 0) return FAILED; /* the other end is closed: all start */
    sleep_us(late_us);
    enum outcome outcome = get(ctx, round, &origin);
    const gdn_cache_stats stats = store_stats(ctx);
    if (stats.corrupt && outcome != WRONG) outcome = SAW_DAMAGE;
    if (outcome == PUBLISHED && stats.publish_failures) outcome = UNPUBLISHED;
    if (outcome > FOUND) fprintf(stderr, "round %ld: %s\n", round, log.last[GDN_LOG_WARN]);
    gdn_ctx_destroy(ctx);
    return outcome;
}

/* ---- temporary files ---- */

static long temporaries;

static int age_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    if (type != FTW_F || strncmp(path + ftw->base, GDNI_FS_TEMP_PREFIX, strlen(GDNI_FS_TEMP_PREFIX)) != 0) return 0;
    ++temporaries;
    const struct timespec then = { .tv_sec = time(NULL) - 7200 }, times[2] = { then, then };
    utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW); /* gone meanwhile: fine */
    return 0;
}

static long age_temporaries(const char *dir)
{
    temporaries = 0;
    nftw(dir, age_one, 16, FTW_PHYS);
    return temporaries;
}

/* ---- a round ---- */

/* Kills some of the crowd, in random order and at random moments, from the start on. A child that has ended is still ours. */
static void kill_some(struct rng *rng, pid_t *crowd, long processes)
{
    const int victims = rng_below(rng, (int)processes); /* none to all but one */
    const int most_us = 1 + rng_below(rng, MAX_KILL_GAP_US);
    for (int i = 0; i < victims; ++i) {
        const int at = i + rng_below(rng, (int)processes - i);
        const pid_t victim = crowd[at];
        crowd[at] = crowd[i];
        crowd[i] = victim;
        sleep_us(rng_below(rng, most_us));
        kill(victim, SIGKILL);
    }
}

static void count(struct tally *t, long round, int status, bool *known)
{
    ++t->processes;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        ++t->killed;
    else if (!WIFEXITED(status) || WEXITSTATUS(status) >= NUM_OUTCOMES)
        ++t->ended_otherwise;
    else {
        ++t->by_outcome[WEXITSTATUS(status)];
        t->guarded_compiles += is_guarded(round) && WEXITSTATUS(status) == PUBLISHED;
        *known |= WEXITSTATUS(status) == PUBLISHED || WEXITSTATUS(status) == FOUND;
    }
}

/* True when a process saw the key's entry published. */
static bool run_round(struct tally *t, struct rng *rng, const struct options *o, const char *dir, long round)
{
    pid_t crowd[MAX_PROCESSES];
    int start[2], status;
    bool known = false;
    if (pipe(start) != 0) {
        perror("pipe");
        exit(1);
    }
    fs_without_tmpfile(round % 2);
    fake->delay_ms = rng_below(rng, MAX_DELAY_MS + 1);
    fflush(NULL);
    for (long i = 0; i < o->processes; ++i) {
        const long late_us = i % 3 ? 0 : 1000L * rng_below(rng, MAX_LATE_MS); /* comes when others have published */
        crowd[i] = fork();
        if (crowd[i] == 0) {
            close(start[1]);
            _exit(run_one(dir, round, start[0], late_us));
        }
        if (crowd[i] < 0) {
            perror("fork");
            exit(1);
        }
    }
    close(start[0]);
    close(start[1]);
    kill_some(rng, crowd, o->processes);
    for (long i = 0; i < o->processes; ++i)
        if (waitpid(crowd[i], &status, 0) == crowd[i]) count(t, round, status, &known);
    const long left = age_temporaries(dir);
    t->temporaries_seen += left;
    if (left > t->temporaries_most) t->temporaries_most = left;
    return known;
}

/* ---- the end: all that was published is there ---- */

static void verify(struct tally *t, const char *dir, const bool *known)
{
    enum gdni_origin origin;
    fs_without_tmpfile(false);
    gdn_ctx *ctx = store_ctx(dir, 0, NULL, GDN_FAKE_NVRTC_PATH);
    for (long round = 0; round < t->rounds; ++round) {
        const enum outcome outcome = get(ctx, round, &origin); /* what nobody lived to see may be there or not */
        t->entries += origin == GDNI_FROM_DISK;
        t->lost += known[round] && (outcome == FAILED || origin != GDNI_FROM_DISK);
        t->wrong_at_end += outcome == WRONG || outcome == FAILED;
    }
    get(ctx, t->rounds, &origin); /* published for certain: sweeps */
    t->wrong_at_end += (long)store_stats(ctx).corrupt;
    gdn_ctx_destroy(ctx);
    t->temporaries_left = age_temporaries(dir);
}

static bool holds(const struct tally *t, const struct options *o)
{
    return t->by_outcome[WRONG] == 0 && t->by_outcome[FAILED] == 0 && t->by_outcome[SAW_DAMAGE] == 0 &&
           t->by_outcome[UNPUBLISHED] == 0 && t->ended_otherwise == 0 && t->lost == 0 && t->wrong_at_end == 0 &&
           t->temporaries_left == 0 && t->temporaries_most <= o->processes;
}

static void print(FILE *out, const struct tally *t, const struct options *o)
{
    fprintf(out,
            "{\"what\": \"soak_cache\", \"seed\": %" PRIu64 ", \"rounds\": %ld, \"processes_per_round\": %ld, "
            "\"seconds\": %.1f, \"processes\": %ld, \"killed\": %ld, \"compiled_and_published\": %ld, "
            "\"of_these_under_the_guard\": %ld, "
            "\"found_published\": %ld, \"publish_failures\": %ld, \"wrong_loads\": %ld, \"failures\": %ld, "
            "\"damaged_entries_seen\": %ld, \"aborts\": %ld, \"entries_at_end\": %ld, \"lost_entries\": %ld, "
            "\"wrong_at_end\": %ld, \"temporaries_seen\": %ld, \"temporaries_most_after_a_round\": %ld, "
            "\"temporaries_left\": %ld, \"holds\": %s}\n",
            o->seed, t->rounds, o->processes, t->seconds, t->processes, t->killed, t->by_outcome[PUBLISHED],
            t->guarded_compiles, t->by_outcome[FOUND], t->by_outcome[UNPUBLISHED], t->by_outcome[WRONG],
            t->by_outcome[FAILED], t->by_outcome[SAW_DAMAGE], t->ended_otherwise, t->entries, t->lost, t->wrong_at_end,
            t->temporaries_seen, t->temporaries_most, t->temporaries_left, holds(t, o) ? "true" : "false");
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool soak(struct tally *t, const struct options *o, const char *dir)
{
    const double begin = seconds_now();
    struct rng rng;
    bool *known = calloc((size_t)o->rounds, sizeof *known);
    if (!known) return false;
    rng_seed(&rng, o->seed);
    while (t->rounds < o->rounds && (o->seconds == 0 || seconds_now() - begin < (double)o->seconds)) {
        known[t->rounds] = run_round(t, &rng, o, dir, t->rounds);
        ++t->rounds;
    }
    verify(t, dir, known);
    free(known);
    t->seconds = seconds_now() - begin;
    return true;
}

/* ---- arguments ---- */

static bool take_number(const char *text, long least, long most, long *out)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < least || value > most) return false;
    *out = value;
    return true;
}

static bool take(struct options *o, const char *name, const char *value)
{
    long seed;
    if (strcmp(name, "--rounds") == 0) return take_number(value, 1, 10000000, &o->rounds);
    if (strcmp(name, "--processes") == 0) return take_number(value, 2, MAX_PROCESSES, &o->processes);
    if (strcmp(name, "--seconds") == 0) return take_number(value, 0, 1000000, &o->seconds);
    if (strcmp(name, "--dir") == 0) return (o->dir = value) != NULL;
    if (strcmp(name, "--report") == 0) return (o->report = value) != NULL;
    if (strcmp(name, "--seed") != 0 || !take_number(value, 0, INT32_MAX, &seed)) return false;
    o->seed = (uint64_t)seed;
    return true;
}

int main(int argc, char **argv)
{
    struct options o = { .rounds = 20, .processes = 64, .seed = 20261121 };
    struct tally t = { 0 };
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !take(&o, argv[i], argv[i + 1])) {
            fprintf(stderr, "soak_cache: %s %s is not understood: see the head of soak_cache.c\n", argv[i],
                    i + 1 < argc ? argv[i + 1] : "");
            return 2;
        }
    fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    char *scratch = o.dir ? NULL : store_scratch();
    if (!soak(&t, &o, o.dir ? o.dir : scratch)) return 1;
    print(stdout, &t, &o);
    FILE *report = o.report ? fopen(o.report, "w") : NULL;
    if (report) print(report, &t, &o);
    const bool reported = !o.report || (report && fclose(report) == 0);
    if (!reported) perror(o.report);
    if (scratch && holds(&t, &o))
        store_remove(scratch); /* else it is the evidence */
    else if (scratch)
        fprintf(stderr, "kept: %s\n", scratch);
    return holds(&t, &o) && reported ? 0 : 1;
}
