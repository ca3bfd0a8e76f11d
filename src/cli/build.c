/*
 * build.c - owns the planning of many jobs at once and its bookkeeping.
 *
 * Killed at any moment it leaves whole entries only, since the library publishes atomically; the next run finds those
 * and builds the rest. Workers take jobs by an atomic counter; `lock` guards everything that they add up.
 */
#include "cli/build.h"

#include <stdio.h>
#include <string.h>

#include "cli/plan_facts.h"
#include "cli/say.h"
#include "env/variables.h"

static struct cli_kernel *find_kernel(const struct cli_build *b, const char *key)
{
    for (size_t i = 0; i < b->num_kernels; ++i)
        if (strcmp(b->kernels[i].key, key) == 0) return &b->kernels[i];
    return NULL;
}

static struct cli_kernel *add_kernel(struct cli_build *b, const cJSON *variant)
{
    b->kernels = cli_realloc(b->kernels, (b->num_kernels + 1) * sizeof *b->kernels);
    struct cli_kernel *k = &b->kernels[b->num_kernels++];
    *k = (struct cli_kernel){
        .registers = cli_json_number(variant, "registers"),
        .spill_bytes = cli_json_number(variant, "spill_bytes"),
        .cubin_bytes = cli_json_number(variant, "cubin_bytes"),
        .compile_ms = cli_json_number(variant, "compile_ms"),
    };
    snprintf(k->key, sizeof k->key, "%s", cli_json_text(variant, "key"));
    snprintf(k->name, sizeof k->name, "%s", cli_json_text(variant, "kernel"));
    snprintf(k->arch, sizeof k->arch, "%s", cli_json_text(variant, "arch"));
    snprintf(k->compiler, sizeof k->compiler, "%s", cli_json_text(variant, "compiler"));
    b->cubin_bytes += (uint64_t)k->cubin_bytes;
    return k;
}

static bool has_key(const struct cli_names *keys, const char *key)
{
    for (size_t i = 0; i < keys->count; ++i)
        if (strcmp(keys->items[i], key) == 0) return true;
    return false;
}

/* Plans share kernels: the one that compiled it says "compiler", whichever comes first. */
static void note_plan(struct cli_build *b, const struct cli_job *job, const cJSON *plan)
{
    size_t variants = 0, recorded = 0;
    const cJSON *variant;
    cJSON_ArrayForEach(variant, cJSON_GetObjectItemCaseSensitive(plan, "variants"))
    {
        const char *key = cli_json_text(variant, "key");
        struct cli_kernel *k = find_kernel(b, key);
        if (!k) k = add_kernel(b, variant);
        if (!k->built && strcmp(cli_json_text(variant, "origin"), "compiler") == 0) {
            k->built = true;
            ++b->built;
        }
        ++variants;
        if (job->keys) recorded += has_key(job->keys, key);
    }
    if (job->keys && (recorded != variants || job->keys->count != variants)) ++b->changed;
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

static void note_failure(struct cli_build *b, const struct cli_job *job, const char *status, const char *message)
{
    ++b->failed;
    for (size_t i = 0; i < b->num_failures; ++i)
        if (strcmp(cause(b->failures[i].message), cause(message)) == 0) {
            ++b->failures[i].count;
            return;
        }
    char what[CLI_SHAPE_TEXT], where[96], first[512];
    snprintf(first, sizeof first, "%s, %s, for %s", job->shape->label, cli_shape_text(what, job->shape),
             cli_target_text(where, job->target));
    b->failures = cli_realloc(b->failures, (b->num_failures + 1) * sizeof *b->failures);
    b->failures[b->num_failures++] = (struct cli_failure){ cli_strdup(message), cli_strdup(first), status, 1 };
}

static void show_progress(const struct cli_build *b, const struct cli_job *job)
{
    char line[256], where[96];
    snprintf(line, sizeof line, "[%zu/%zu] %zu built, %zu there, %zu failed: %s for %s", b->done, b->jobs->count,
             b->built, b->num_kernels - b->built, b->failed, job->shape->label, cli_target_text(where, job->target));
    cli_progress(line);
}

static void run_job(struct cli_build *b, const struct cli_job *job)
{
    gdn_plan *plan = NULL;
    cJSON *facts = NULL;
    gdn_status status = cli_shape_plan(b->ctx, job->target, job->shape, &plan);
    if (status != GDN_OK)
        cli_fail(CLI_FAILED, "%s", gdn_last_error());
    else if (cli_plan_json(plan, &facts) != CLI_OK)
        status = GDN_E_IO;
    pthread_mutex_lock(&b->lock);
    ++b->done;
    if (status == GDN_OK)
        note_plan(b, job, facts);
    else
        note_failure(b, job, gdn_status_name(status), cli_error());
    show_progress(b, job);
    pthread_mutex_unlock(&b->lock);
    cJSON_Delete(facts);
    gdn_plan_destroy(plan);
}

static void *work(void *arg)
{
    struct cli_build *b = arg;
    for (size_t job; (job = atomic_fetch_add(&b->next, 1)) < b->jobs->count;)
        run_job(b, &b->jobs->items[job]);
    return NULL;
}

/* This thread works too, so that a thread that cannot be made is no failure. */
static void run_threads(struct cli_build *b, int32_t wanted)
{
    pthread_t threads[GDNI_MAX_COMPILE_JOBS];
    size_t started = 0;
    while (started + 1 < (size_t)wanted && started + 1 < b->jobs->count &&
           pthread_create(&threads[started], NULL, work, b) == 0)
        ++started;
    work(b);
    for (size_t i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);
    cli_progress(NULL);
}

void cli_build_run(struct cli_build *b, gdn_ctx *ctx, const struct cli_jobs *jobs, int32_t at_a_time)
{
    b->ctx = ctx;
    b->jobs = jobs;
    pthread_mutex_init(&b->lock, NULL);
    const int64_t start = cli_now_ms();
    run_threads(b, at_a_time);
    b->milliseconds = cli_now_ms() - start;
    pthread_mutex_destroy(&b->lock);
}

void cli_build_free(struct cli_build *b)
{
    for (size_t i = 0; i < b->num_failures; ++i) {
        cli_free(b->failures[i].message);
        cli_free(b->failures[i].first);
    }
    cli_free(b->failures);
    cli_free(b->kernels);
}

void cli_build_say_problems(const struct cli_build *b)
{
    const struct cli_records *r = &b->jobs->records;
    for (size_t i = 0; i < b->num_failures; ++i) {
        const struct cli_failure *f = &b->failures[i];
        char more[64] = "";
        if (f->count > 1) snprintf(more, sizeof more, " (and %lld more)", (long long)(f->count - 1));
        cli_say("failed: %s%s: %s", f->first, more, f->message);
    }
    if (r->torn)
        cli_say("warning: %zu line%s of the recorded list, the first of them line %zu, %s not whole and left out",
                r->torn, r->torn == 1 ? "" : "s", r->first_torn, r->torn == 1 ? "is" : "are");
    if (b->changed)
        cli_say("warning: %zu of the recorded plans have other keys here: they were recorded with another libgdnjit or "
                "other tuning tables, and a process with those would not find its kernels",
                b->changed);
}
