/*
 * cmd_warm.c - owns `warm`: plans every shape for every target, which leaves their kernels in the cache.
 *
 * Killed at any moment it leaves whole entries only, since the library publishes atomically; the next run finds those
 * and builds the rest. Workers take jobs by an atomic counter; `lock` guards everything that they add up.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/entries.h"
#include "cli/plan_facts.h"
#include "cli/say.h"
#include "cli/targets.h"

static const char doc[] = "Compiles the kernels of models or shapes ahead of time and keeps them in the cache, "
                          "so that an engine starts without compiling. Needs NVRTC, but no GPU and no driver. "
                          "May be interrupted and run again: what is there is not built twice.\v"
                          "Examples:\n"
                          "  gdn-jit-cache warm --model qwen3-next-80b-a3b --gpu \"NVIDIA H200\"\n"
                          "  gdn-jit-cache warm -m qwen3.5-27b --tp 1,2 --arch sm_90a,sm_120a -j 4\n"
                          "  gdn-jit-cache warm --shapes my_shapes.json --cache-dir /opt/gdn-cache\n"
                          "\n"
                          "Without --tp every power of two that the model can be split into is built; without "
                          "--gpu and --arch the kernels are for the GPUs of this machine. Tensor-parallel sizes "
                          "and GPUs of one arch share most kernels.\n"
                          "\n"
                          "Exit status: 0 every kernel is in the cache, 1 some are not, 2 the command line or a "
                          "file it names is wrong.";

struct kernel {
    char key[40], name[64], arch[16];
    int64_t registers, spill_bytes, cubin_bytes, compile_ms;
    bool built; /* by this run */
};

/* Failures with one cause are one failure that happened `count` times. */
struct failure {
    char *message, *first; /* first: shape and target of the first one */
    const char *status;
    int64_t count;
};

struct warm {
    gdn_ctx *ctx;
    struct cli_shapes shapes;
    struct cli_targets targets;
    size_t num_jobs;
    atomic_size_t next;
    pthread_mutex_t lock; /* of everything below */
    struct kernel *kernels;
    size_t num_kernels, built;
    struct failure *failures;
    size_t num_failures, failed, done;
    uint64_t cubin_bytes;
};

static struct kernel *find_kernel(const struct warm *w, const char *key)
{
    for (size_t i = 0; i < w->num_kernels; ++i)
        if (strcmp(w->kernels[i].key, key) == 0) return &w->kernels[i];
    return NULL;
}

static struct kernel *add_kernel(struct warm *w, const cJSON *variant)
{
    w->kernels = cli_realloc(w->kernels, (w->num_kernels + 1) * sizeof *w->kernels);
    struct kernel *k = &w->kernels[w->num_kernels++];
    *k = (struct kernel){
        .registers = cli_fact_int(variant, "registers"),
        .spill_bytes = cli_fact_int(variant, "spill_bytes"),
        .cubin_bytes = cli_fact_int(variant, "cubin_bytes"),
        .compile_ms = cli_fact_int(variant, "compile_ms"),
    };
    snprintf(k->key, sizeof k->key, "%s", cli_fact_text(variant, "key"));
    snprintf(k->name, sizeof k->name, "%s", cli_fact_text(variant, "kernel"));
    snprintf(k->arch, sizeof k->arch, "%s", cli_fact_text(variant, "arch"));
    w->cubin_bytes += (uint64_t)k->cubin_bytes;
    return k;
}

/* Plans share kernels: the one that compiled it says "compiler", whichever comes first. */
static void note_plan(struct warm *w, const cJSON *plan)
{
    const cJSON *variant;
    cJSON_ArrayForEach(variant, cJSON_GetObjectItemCaseSensitive(plan, "variants"))
    {
        struct kernel *k = find_kernel(w, cli_fact_text(variant, "key"));
        if (!k) k = add_kernel(w, variant);
        if (!k->built && strcmp(cli_fact_text(variant, "origin"), "compiler") == 0) {
            k->built = true;
            ++w->built;
        }
    }
}

/* A sentence may begin with the key of the kernel that failed; what stopped it may have stopped others. */
static const char *cause(const char *message)
{
    static const char prefix[] = "key ";
    enum { DIGITS = 32 };
    const char *digits = message + sizeof prefix - 1;
    if (strncmp(message, prefix, sizeof prefix - 1) != 0 || strspn(digits, "0123456789abcdef") != DIGITS ||
        strncmp(digits + DIGITS, ": ", 2) != 0)
        return message;
    return digits + DIGITS + 2;
}

static void note_failure(struct warm *w, const struct cli_shape *shape, const gdn_target *target, const char *status,
                         const char *message)
{
    ++w->failed;
    for (size_t i = 0; i < w->num_failures; ++i)
        if (strcmp(cause(w->failures[i].message), cause(message)) == 0) {
            ++w->failures[i].count;
            return;
        }
    char what[CLI_SHAPE_TEXT], where[96], first[512];
    snprintf(first, sizeof first, "%s, %s, for %s", shape->label, cli_shape_text(what, shape),
             cli_target_text(where, target));
    w->failures = cli_realloc(w->failures, (w->num_failures + 1) * sizeof *w->failures);
    w->failures[w->num_failures++] = (struct failure){ cli_strdup(message), cli_strdup(first), status, 1 };
}

static void show_progress(const struct warm *w, const struct cli_shape *shape, const gdn_target *target)
{
    char line[256], where[96];
    snprintf(line, sizeof line, "[%zu/%zu] %zu built, %zu there, %zu failed: %s for %s", w->done, w->num_jobs, w->built,
             w->num_kernels - w->built, w->failed, shape->label, cli_target_text(where, target));
    cli_progress(line);
}

static void run_job(struct warm *w, size_t job)
{
    const struct cli_shape *shape = &w->shapes.items[job / w->targets.count];
    const gdn_target *target = &w->targets.items[job % w->targets.count];
    gdn_plan *plan = NULL;
    cJSON *facts = NULL;
    gdn_status status = cli_shape_plan(w->ctx, target, shape, &plan);
    if (status != GDN_OK)
        cli_fail(CLI_FAILED, "%s", gdn_last_error());
    else if (cli_plan_json(plan, &facts) != CLI_OK)
        status = GDN_E_IO;
    pthread_mutex_lock(&w->lock);
    ++w->done;
    if (status == GDN_OK)
        note_plan(w, facts);
    else
        note_failure(w, shape, target, gdn_status_name(status), cli_error());
    show_progress(w, shape, target);
    pthread_mutex_unlock(&w->lock);
    cJSON_Delete(facts);
    gdn_plan_destroy(plan);
}

static void *work(void *arg)
{
    struct warm *w = arg;
    for (size_t job; (job = atomic_fetch_add(&w->next, 1)) < w->num_jobs;)
        run_job(w, job);
    return NULL;
}

/* This thread works too, so that a thread that cannot be made is no failure. */
static void run_jobs(struct warm *w, int64_t jobs)
{
    enum { MAX_THREADS = 256 };
    pthread_t threads[MAX_THREADS];
    size_t started = 0;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t wanted = jobs ? (size_t)jobs : processors > 0 ? (size_t)processors : 1;
    while (started + 1 < wanted && started + 1 < w->num_jobs && started < MAX_THREADS &&
           pthread_create(&threads[started], NULL, work, w) == 0)
        ++started;
    work(w);
    for (size_t i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);
    cli_progress(NULL);
}

static cJSON *kernels_json(const struct warm *w)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < w->num_kernels; ++i) {
        const struct kernel *k = &w->kernels[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", k->key);
        cJSON_AddStringToObject(o, "kernel", k->name);
        cJSON_AddStringToObject(o, "arch", k->arch);
        cJSON_AddBoolToObject(o, "built", k->built);
        cJSON_AddNumberToObject(o, "registers", (double)k->registers);
        cJSON_AddNumberToObject(o, "spill_bytes", (double)k->spill_bytes);
        cJSON_AddNumberToObject(o, "cubin_bytes", (double)k->cubin_bytes);
        cJSON_AddNumberToObject(o, "compile_ms", (double)k->compile_ms);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *failures_json(const struct warm *w)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < w->num_failures; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "first", w->failures[i].first);
        cJSON_AddNumberToObject(o, "count", (double)w->failures[i].count);
        cJSON_AddStringToObject(o, "status", w->failures[i].status);
        cJSON_AddStringToObject(o, "message", w->failures[i].message);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *targets_json(const struct warm *w)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < w->targets.count; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", w->targets.items[i].gpu_name);
        cJSON_AddStringToObject(o, "arch", w->targets.items[i].arch);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static void print_json(const struct warm *w, int64_t ms, size_t missing)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cache_dir", gdn_cache_dir(w->ctx));
    cJSON_AddItemToObject(root, "targets", targets_json(w));
    cJSON_AddNumberToObject(root, "plans", (double)w->num_jobs);
    cJSON_AddNumberToObject(root, "plans_failed", (double)w->failed);
    cJSON_AddNumberToObject(root, "built", (double)w->built);
    cJSON_AddNumberToObject(root, "already_there", (double)(w->num_kernels - w->built));
    cJSON_AddNumberToObject(root, "not_stored", (double)missing);
    cJSON_AddNumberToObject(root, "cubin_bytes", (double)w->cubin_bytes);
    cJSON_AddNumberToObject(root, "milliseconds", (double)ms);
    cJSON_AddItemToObject(root, "kernels", kernels_json(w));
    cJSON_AddItemToObject(root, "failures", failures_json(w));
    cli_print_json(root);
}

/*
 * How many of the kernels the directory does not hold, whatever the reason: it could not be written, its size cap evicted
 * them, or they were found in a bundle, which is not what is being warmed.
 */
static int count_missing(const struct warm *w, size_t *missing)
{
    struct cli_entries entries = { 0 };
    CLI_TRY(cli_entries_find(w->ctx, "", &entries));
    *missing = 0;
    for (size_t i = 0; i < w->num_kernels; ++i) {
        bool found = false;
        for (size_t j = 0; j < entries.count && !found; ++j)
            found = entries.items[j].valid && strcmp(entries.items[j].key, w->kernels[i].key) == 0;
        *missing += !found;
    }
    cli_entries_free(&entries);
    return CLI_OK;
}

/* The sentence for what is missing: the likeliest cause that the library's counters show. */
static int fail_missing(const struct warm *w, size_t missing, const gdn_cache_stats *stats)
{
    const char *remedy = stats->publish_failures ? "make it writable, or free space there"
                         : stats->evicted        ? "the size cap evicted them: raise GDN_JIT_CACHE_MAX_BYTES"
                                          : "they were found in a bundle: unset GDN_JIT_BUNDLE_PATH to build them here";
    return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s", missing, w->num_kernels, gdn_cache_dir(w->ctx),
                    remedy);
}

static void say_failures(const struct warm *w)
{
    for (size_t i = 0; i < w->num_failures; ++i) {
        const struct failure *f = &w->failures[i];
        char more[64] = "";
        if (f->count > 1) snprintf(more, sizeof more, " (and %lld more)", (long long)(f->count - 1));
        cli_say("failed: %s%s: %s", f->first, more, f->message);
    }
}

static void print_summary(const struct warm *w, int64_t ms)
{
    char size[CLI_SHORT];
    printf("%zu kernel%s built, %zu already there; %zu of %zu plans failed; %lld.%lld s; %s of cubins for %s\n",
           w->built, w->built == 1 ? "" : "s", w->num_kernels - w->built, w->failed, w->num_jobs,
           (long long)(ms / 1000), (long long)(ms % 1000 / 100), cli_format_bytes(size, w->cubin_bytes),
           gdn_cache_dir(w->ctx));
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int run(struct warm *w, const struct cli_options *options)
{
    CLI_TRY(cli_options_shapes(options, &w->shapes));
    CLI_TRY(cli_options_context(options, &w->ctx));
    CLI_TRY(cli_require_cache(w->ctx)); /* what is kept in memory would be gone with this process */
    CLI_TRY(cli_targets_find(w->ctx, options, true, &w->targets));
    w->num_jobs = w->shapes.count * w->targets.count;
    const int64_t start = now_ms();
    run_jobs(w, options->jobs);
    const int64_t ms = now_ms() - start;

    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    if (gdn_cache_stat(w->ctx, &stats) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    size_t missing = 0;
    CLI_TRY(count_missing(w, &missing));
    say_failures(w);
    if (options->json)
        print_json(w, ms, missing);
    else
        print_summary(w, ms);
    if (missing) return fail_missing(w, missing, &stats);
    return w->failed ? cli_fail(CLI_FAILED, "%s", "") : CLI_OK;
}

static void clean_up(struct warm *w)
{
    for (size_t i = 0; i < w->num_failures; ++i) {
        cli_free(w->failures[i].message);
        cli_free(w->failures[i].first);
    }
    cli_free(w->failures);
    cli_free(w->kernels);
    cli_targets_free(&w->targets);
    cli_shapes_free(&w->shapes);
    gdn_ctx_destroy(w->ctx);
}

int cli_cmd_warm(int argc, char **argv)
{
    struct cli_options options;
    struct warm w = { .lock = PTHREAD_MUTEX_INITIALIZER };
    cli_options_parse(&options, CLI_OPTIONS_SHAPES | CLI_OPTIONS_TARGETS | CLI_OPTIONS_WARM, doc, argc, argv);
    const int code = run(&w, &options);
    clean_up(&w);
    cli_options_free(&options);
    return code;
}
