/*
 * cmd_tune.c - owns `tune`: every job is compiled ahead, its candidates are checked and timed by a worker process, and what
 * was decided is in the tuning file before the next job begins.
 *
 * Threads: some compile, one (main's) asks the worker. `lock` guards the jobs' state, message and candidates while they are
 * NEW; from COMPILED on a job is main's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/place.h"
#include "cli/say.h"
#include "cli/targets.h"
#include "cli/tune_journal.h"
#include "cli/tune_report.h"
#include "cli/tune_result.h"
#include "cli/tune_worker.h"
#include "env/variables.h"

static const char doc[] =
    "Measures which parameters are fastest on this GPU and writes them into a tuning file, which plans use when "
    "GDN_JIT_TUNING_PATH or gdn_config.tuning_path names it. Every candidate is compiled, its results are compared "
    "with the host reference, and it is timed in a process of its own. May be killed and run again: it goes on "
    "where it was.\v"
    "Examples:\n"
    "  gdn-jit-cache tune -m qwen3-next-80b-a3b --tp 4 -f h200.json --budget 5m\n"
    "  gdn-jit-cache tune -m all --tokens 512,8192 --seqs 1,16 -f h200.json\n"
    "  gdn-jit-cache tune -m all -f h200.json --check\n"
    "  gdn-jit-cache tune -m all --compile -g \"NVIDIA H200\" -d /opt/gdn-cache\n"
    "\n"
    "The GPU should have nothing else to do. gdn-jit-cache-tune(1) has the whole of it.\n"
    "\n"
    "Exit status: 0 everything is tuned (--check: and nothing is stale), 1 something is not, 2 the command line or "
    "a file it names is wrong.";

struct tune {
    const struct cli_options *options;
    gdn_ctx *ctx;
    gdn_target target, owner; /* owner: of the tuning file; its arch is "" without a file or an entry */
    struct cli_tune_jobs jobs;
    struct cli_journal *journal;
    struct cli_child *child;
    int64_t start_ms;
    size_t current; /* job that the worker has */
    bool over;      /* the budget is */
    pthread_mutex_t lock;
    pthread_cond_t compiled;
    atomic_size_t next; /* job to compile */
    atomic_bool stop;   /* nothing more is to be compiled */
};

static const char budget_over[] = ": the budget is over; run it again to go on";

/* Milliseconds of the budget; INT64_MAX without one. */
static int64_t left_ms(const struct tune *t)
{
    if (!t->options->budget_s) return INT64_MAX;
    const int64_t left = t->options->budget_s * 1000 - (cli_now_ms() - t->start_ms);
    return left > 0 ? left : 0;
}

static void fail_job(struct cli_tune_job *job, const char *message)
{
    cli_free(job->message);
    job->message = cli_strdup(message);
    job->state = CLI_TUNE_FAILED;
}

/* ---- Compiling ahead ---- */

/* A job while it is compiled. */
struct compiling {
    struct tune *t;
    struct cli_tune_job *job;
};

/* The library tells of every candidate twice: before it, when it may be stopped, and what became of it. */
static int on_compiled(void *user, const gdn_tune_event *e)
{
    const struct compiling *compiling = user;
    struct cli_tune_job *job = compiling->job;
    if (!e->ended) return atomic_load(&compiling->t->stop) || left_ms(compiling->t) == 0;
    struct cli_candidate c = { .failed = e->status != GDN_OK };
    snprintf(c.params, sizeof c.params, "%s", e->params);
    job->candidates = cli_realloc(job->candidates, (job->count + 1) * sizeof *job->candidates);
    job->candidates[job->count++] = c;
    if (c.failed) cli_say("%s, %s: %s", job->shape->label, e->params, e->message);
    return 0;
}

static void compile_job(struct tune *t, struct cli_tune_job *job)
{
    struct cli_tune_job work = *job;
    struct compiling compiling = { t, &work };
    gdn_tune_options options = GDN_TUNE_OPTIONS_INIT;
    options.steps = GDN_TUNE_COMPILE;
    options.target = &t->target;
    options.progress = on_compiled;
    options.user = &compiling;
    const gdn_status status = cli_tune_run(t->ctx, &work, t->options, &options, &work.result);
    pthread_mutex_lock(&t->lock);
    *job = work;
    job->state = status == GDN_E_CANCELLED ? CLI_TUNE_STOPPED : CLI_TUNE_COMPILED;
    if (status != GDN_OK && status != GDN_E_CANCELLED) fail_job(job, gdn_last_error());
    pthread_cond_broadcast(&t->compiled);
    pthread_mutex_unlock(&t->lock);
}

static void *compile_jobs(void *arg)
{
    struct tune *t = arg;
    for (size_t i; (i = atomic_fetch_add(&t->next, 1)) < t->jobs.count;)
        if (t->jobs.items[i].state == CLI_TUNE_NEW) compile_job(t, &t->jobs.items[i]);
    return NULL;
}

static void wait_for_kernels(struct tune *t, struct cli_tune_job *job)
{
    pthread_mutex_lock(&t->lock);
    while (job->state == CLI_TUNE_NEW)
        pthread_cond_wait(&t->compiled, &t->lock);
    pthread_mutex_unlock(&t->lock);
    t->over |= job->state == CLI_TUNE_STOPPED;
}

/* ---- Asking the worker ---- */

/* One request while it is served. */
struct asking {
    struct tune *t;
    struct cli_tune_job *job;
    const char *step; /* for people */
    const char *of;   /* for the journal */
    bool racing;
    char trying[CLI_TUNE_PARAMS];
    char failed[CLI_TUNE_PARAMS], why[512]; /* of a check: what came out */
    char status[32], message[1024];
};

static void show_progress(const struct asking *a, const cJSON *line)
{
    const struct tune *t = a->t;
    char text[768], size[CLI_SHORT], best[48] = "", left[48] = "";
    const int64_t best_ns = cli_json_number(line, "best_ns"), ms = left_ms(t);
    if (best_ns)
        snprintf(best, sizeof best, "; best %lld.%lld us", (long long)(best_ns / 1000),
                 (long long)(best_ns % 1000 / 100));
    if (ms < INT64_MAX)
        snprintf(left, sizeof left, "; %lld:%02lld left", (long long)(ms / 60000), (long long)(ms / 1000 % 60));
    snprintf(text, sizeof text, "[%zu/%zu]%s%s; %s %s: %s %s", t->current + 1, t->jobs.count, best, left,
             a->job->shape->label, cli_tune_size(size, a->job), a->step, a->trying);
    cli_progress(text);
}

/* false: the job has no such candidate. */
static bool leave_out(struct tune *t, struct cli_tune_job *job, const char *of, const char *params, const char *why)
{
    struct cli_candidate *c = cli_tune_candidate(job, params);
    if (!c) return false;
    c->failed = true;
    cli_journal_add(t->journal, CLI_JOURNAL_FAILED, of, params, why);
    cli_say("%s: %s is left out: %s", job->name, params, why);
    return true;
}

/* Any candidate would have met it: the next run may find more. */
static bool is_no_memory(const char *status)
{
    return strcmp(status, "GDN_E_NOMEM") == 0;
}

static void take_answer(struct asking *a, const cJSON *line)
{
    gdn_tune_result *r = &a->job->result;
    snprintf(a->status, sizeof a->status, "%s", cli_json_text(line, "status"));
    snprintf(a->message, sizeof a->message, "%s", cli_json_text(line, "message"));
    if (!cli_json_number(line, "decided")) return;
    r->decided = 1;
    cli_tune_result_read(r, line);
}

/* Only the first time: a candidate that ran once and is timed again is not what a machine dies of. */
static void note_try(struct asking *a, const char *params)
{
    struct cli_candidate *c = cli_tune_candidate(a->job, params);
    if (a->racing || !c) return;
    a->racing = c->tried && strcmp(params, a->trying) != 0;
    if (!c->tried) cli_journal_add(a->t->journal, CLI_JOURNAL_TRY, a->of, params, NULL);
    if (a->racing) cli_journal_add(a->t->journal, CLI_JOURNAL_RACE, a->of, NULL, NULL);
    c->tried = true;
}

static int on_line(void *user, const cJSON *line)
{
    struct asking *a = user;
    const char *trying = cli_json_text(line, "try"), *failed = cli_json_text(line, "failed");
    if (*trying) {
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "runs"))) note_try(a, trying);
        snprintf(a->trying, sizeof a->trying, "%s", trying);
        show_progress(a, line);
    } else if (*failed) {
        snprintf(a->failed, sizeof a->failed, "%s", failed);
        snprintf(a->why, sizeof a->why, "%s", cli_json_text(line, "message"));
    } else {
        take_answer(a, line);
    }
    /* Of several that fail on the timed call each is left out when it does. */
    if (*failed && a->of == a->job->name && !is_no_memory(cli_json_text(line, "status")))
        leave_out(a->t, a->job, a->of, a->failed, a->why);
    return CLI_OK;
}

static cJSON *request_for(const struct tune *t, const char *step)
{
    struct cli_tune_job *job = &t->jobs.items[t->current];
    for (size_t i = 0; i < job->count; ++i)
        job->candidates[i].tried = false;
    cJSON *request = cJSON_CreateObject();
    cJSON_AddNumberToObject(request, "job", (double)t->current);
    cJSON_AddStringToObject(request, "step", step);
    if (left_ms(t) < INT64_MAX) cJSON_AddNumberToObject(request, "left_ms", (double)(left_ms(t) + 1));
    return request;
}

/* A worker that cannot go on; why is for people. */
static bool is_lost(const struct asking *a, enum cli_child_end end, const char **why)
{
    *why = a->why[0] ? a->why : a->message;
    if (end == CLI_CHILD_DIED)
        *why = a->trying[0] ? "the process that tried it died"
                            : "the process that was to try candidates ended before it tried one: standard error has "
                              "its words";
    if (end == CLI_CHILD_SILENT) *why = "the process that tried it said nothing any more and was killed";
    return end != CLI_CHILD_ANSWERED || strcmp(a->status, "GDN_E_CUDA") == 0 || strcmp(a->status, "GDN_E_TIMEOUT") == 0;
}

/* ---- Checking ---- */

/*
 * What went wrong before a candidate was begun, or is not told of one, or is memory that there was not: in the journal it would
 * leave out every candidate of every later run.
 */
static bool is_nobodys(const struct asking *a, enum cli_child_end end)
{
    return !a->trying[0] || (end == CLI_CHILD_ANSWERED && (!a->failed[0] || is_no_memory(a->status)));
}

/* A process that died, or lost its context to a fault: a GPU that goes away, or whoever ends processes, does that too. */
static bool may_be_the_machines(const struct asking *a, enum cli_child_end end)
{
    return end == CLI_CHILD_DIED || (end == CLI_CHILD_ANSWERED && strcmp(a->status, "GDN_E_CUDA") == 0);
}

/*
 * What only a process that has tried nothing else can be believed: memory may have been spoilt by another candidate. And where
 * the machine may be at fault not the first one (lost_before): where it is, the next one fails before it tries anything.
 */
static int check_once(struct tune *t, struct cli_tune_job *job, struct cli_candidate *c, bool *lost_before, bool *again)
{
    struct asking a = { .t = t, .job = job, .step = "checking", .of = job->code };
    enum cli_child_end end;
    const char *why;
    const bool fresh = cli_child_answers(t->child) == 0;
    cJSON *request = request_for(t, "check");
    cJSON_AddStringToObject(request, "only", c->params);
    CLI_TRY(cli_child_ask(t->child, request, on_line, &a, &end));
    const bool lost = is_lost(&a, end, &why), over = strcmp(a.status, "GDN_E_CANCELLED") == 0;
    const bool bad = lost || a.failed[0] || (strcmp(a.status, "GDN_OK") != 0 && !over);
    t->over = t->over || over;
    if (bad) cli_child_restart(t->child);
    *again = bad && (!fresh || (may_be_the_machines(&a, end) && a.trying[0] && !*lost_before));
    *lost_before = *lost_before || (bad && fresh);
    if (over || *again) return CLI_OK;
    if (bad && is_nobodys(&a, end)) {
        fail_job(job, why);
    } else if (bad) {
        leave_out(t, job, job->code, c->params, why);
    } else {
        c->checked = true;
        cli_journal_add(t->journal, CLI_JOURNAL_OK, job->code, c->params, NULL);
    }
    return CLI_OK;
}

/* Known from another job, or from a run before this one. */
static bool is_settled(struct tune *t, const struct cli_tune_job *job, struct cli_candidate *c)
{
    enum { TWICE = 2 };
    c->checked = cli_journal_has(t->journal, CLI_JOURNAL_OK, job->code, c->params);
    c->failed = c->failed || cli_journal_has(t->journal, CLI_JOURNAL_FAILED, job->code, c->params) ||
                cli_journal_has(t->journal, CLI_JOURNAL_FAILED, job->name, c->params) ||
                cli_journal_suspicions(t->journal, job->code, c->params) >= TWICE ||
                cli_journal_suspicions(t->journal, job->name, c->params) >= TWICE;
    return c->checked || c->failed;
}

static int check_candidates(struct tune *t, struct cli_tune_job *job)
{
    for (size_t i = 0; i < job->count && !t->over && job->state == CLI_TUNE_COMPILED; ++i) {
        bool again = !is_settled(t, job, &job->candidates[i]), lost_before = false;
        while (again && !t->over)
            CLI_TRY(check_once(t, job, &job->candidates[i], &lost_before, &again));
        t->over = t->over || left_ms(t) == 0;
    }
    return CLI_OK;
}

/* ---- Timing ---- */

static size_t num_left(const struct cli_tune_job *job)
{
    size_t n = 0;
    for (size_t i = 0; i < job->count; ++i)
        n += !job->candidates[i].failed;
    return n;
}

/* A worker was lost. Unless this leaves fewer candidates than before, the next request would end as this one did. */
static bool go_on(const struct asking *a, size_t before, const char *why)
{
    char text[CLI_TUNE_PARAMS + sizeof a->message + 128];
    const bool known = !a->trying[0] || leave_out(a->t, a->job, a->job->name, a->trying, why);
    if (num_left(a->job) < before) return true;
    snprintf(text, sizeof text, "a worker was lost with %s, which %s: %s", a->trying,
             known ? "it was told to leave out" : "is none of the candidates that were compiled", why);
    fail_job(a->job, a->trying[0] ? text : why);
    return false;
}

static int measure_once(struct tune *t, struct cli_tune_job *job, bool *again)
{
    struct asking a = { .t = t, .job = job, .step = "timing", .of = job->name };
    enum cli_child_end end;
    const char *why;
    const size_t before = num_left(job);
    cJSON *request = request_for(t, "measure"), *skip = cJSON_AddArrayToObject(request, "skip");
    for (size_t i = 0; i < job->count; ++i)
        if (job->candidates[i].failed) cJSON_AddItemToArray(skip, cJSON_CreateString(job->candidates[i].params));
    CLI_TRY(cli_child_ask(t->child, request, on_line, &a, &end));
    *again = false;
    if (is_lost(&a, end, &why)) {
        cli_child_restart(t->child);
        *again = go_on(&a, before, why);
    } else if (strcmp(a.status, "GDN_E_CANCELLED") == 0) {
        t->over = true;
    } else if (strcmp(a.status, "GDN_OK") != 0) {
        fail_job(job, a.message);
    } else {
        job->state = CLI_TUNE_DONE;
        cli_journal_add(t->journal, CLI_JOURNAL_DONE, job->name, NULL, NULL);
    }
    return CLI_OK;
}

static int run_job(struct tune *t, struct cli_tune_job *job)
{
    wait_for_kernels(t, job);
    if (job->state != CLI_TUNE_COMPILED) return CLI_OK;
    CLI_TRY(check_candidates(t, job));
    bool again = job->state == CLI_TUNE_COMPILED;
    while (again && !t->over) {
        if (num_left(job) == 0) {
            fail_job(job, "every candidate failed");
            break;
        }
        CLI_TRY(measure_once(t, job, &again));
    }
    if (job->state == CLI_TUNE_FAILED) cli_say("%s: not tuned: %s", job->name, job->message);
    return CLI_OK;
}

static int run_jobs(struct tune *t)
{
    int code = CLI_OK;
    for (t->current = 0; t->current < t->jobs.count && code == CLI_OK && !t->over; ++t->current)
        code = run_job(t, &t->jobs.items[t->current]);
    cli_progress(NULL);
    return code;
}

/* ---- What is known before ---- */

/* A file is of one GPU: any of its entries tells of which. To tune, that must be the target: see check_owner(). */
static int note_entry(void *user, const gdn_tuning_entry *e)
{
    struct tune *t = user;
    gdn_target *owner = &t->owner;
    snprintf(owner->gpu_name, sizeof owner->gpu_name, "%s", e->gpu_name);
    snprintf(owner->arch, sizeof owner->arch, "%s", e->arch);
    owner->num_sms = e->num_sms;
    cli_tune_note_held(&t->jobs, t->options->check ? &t->target : owner, e);
    return 0;
}

/* Entry by entry as the file is taken in: ctx also knows built-in tables and those of GDN_JIT_TUNING_PATH. */
static int load_file(struct tune *t)
{
    const char *path = t->options->output;
    if (!path || (access(path, F_OK) != 0 && errno == ENOENT)) return CLI_OK; /* any other error is told by who reads it */
    if (gdn_tuning_load(t->ctx, path, 0, note_entry, t, NULL) == GDN_OK) return CLI_OK;
    return cli_fail(CLI_USAGE, "--file: %s", gdn_last_error());
}

/* What is saved is the table of one GPU, in place of the whole file: another GPU's would be lost. */
static int check_owner(const struct tune *t)
{
    const gdn_target *target = &t->target, *owner = &t->owner;
    char of[96], here[96];
    if (!owner->arch[0] || (strcmp(owner->arch, target->arch) == 0 && owner->num_sms == target->num_sms &&
                            strcmp(owner->gpu_name, target->gpu_name) == 0))
        return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "--file %s is of %s, %d SMs, and what is tuned is %s, %d SMs: a file is of one GPU, name another "
                    "FILE",
                    t->options->output, cli_target_text(of, owner), owner->num_sms, cli_target_text(here, target),
                    target->num_sms);
}

/* Of a run before this one, and in its file, of the kernel as it is. */
static void mark_known(struct tune *t)
{
    for (size_t i = 0; i < t->jobs.count; ++i) {
        struct cli_tune_job *job = &t->jobs.items[i];
        if (job->held == CLI_HELD && cli_journal_has(t->journal, CLI_JOURNAL_DONE, job->name, NULL) &&
            cli_tune_known(t->ctx, &t->target, job))
            job->state = CLI_TUNE_KNOWN;
    }
}

/* ---- The command ---- */

/* --compile: what failed was said when it did. */
static int wait_for_all(struct tune *t)
{
    size_t failed = 0, kernels = 0;
    for (size_t i = 0; i < t->jobs.count; ++i) {
        struct cli_tune_job *job = &t->jobs.items[i];
        wait_for_kernels(t, job);
        if (job->state == CLI_TUNE_FAILED) cli_say("%s: %s", job->name, job->message);
        failed += job->state == CLI_TUNE_FAILED || job->state == CLI_TUNE_STOPPED;
        kernels += num_left(job);
        failed += job->count - num_left(job);
    }
    cli_print("%zu candidates of %zu slots are in %s\n", kernels, t->jobs.count, gdn_cache_dir(t->ctx));
    return failed ? cli_fail(CLI_FAILED, "%zu candidates or slots are not%s", failed, t->over ? budget_over : "") : CLI_OK;
}

/* A thread that compiles at the end finishes that one kernel: what it publishes is whole. */
static int run_with_threads(struct tune *t)
{
    pthread_t threads[GDNI_MAX_COMPILE_JOBS];
    size_t started = 0;
    const size_t wanted = (size_t)cli_resolve_jobs(t->options);
    while (started < wanted && pthread_create(&threads[started], NULL, compile_jobs, t) == 0)
        ++started;
    if (!started) compile_jobs(t);
    const int code = t->options->compile ? wait_for_all(t) : run_jobs(t);
    atomic_store(&t->next, t->jobs.count);
    atomic_store(&t->stop, true);
    for (size_t i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);
    return code;
}

static int tune_all(struct tune *t, int argc, char **argv)
{
    enum { DEFAULT_TIMEOUT_S = 10, GRACE_S = 30 }; /* grace: the driver's start, and a host reference */
    const int64_t timeout = t->options->timeout_s ? t->options->timeout_s : DEFAULT_TIMEOUT_S;
    CLI_TRY(cli_require_cache(t->ctx, t->options)); /* workers find there what this process compiles */
    CLI_TRY(cli_place_check("--file", t->options->output)); /* what measuring took minutes for must find its place */
    CLI_TRY(cli_journal_open(&t->journal, t->options->output, t->target.gpu_name));
    mark_known(t);
    t->child = cli_child_new(argc, argv, timeout + GRACE_S);
    const int code = run_with_threads(t);
    cli_child_free(t->child);
    size_t open = 0;
    for (size_t i = 0; i < t->jobs.count; ++i)
        open += t->jobs.items[i].state != CLI_TUNE_DONE && t->jobs.items[i].state != CLI_TUNE_KNOWN;
    cli_journal_close(t->journal, code == CLI_OK && open == 0);
    CLI_TRY(code);
    cli_tune_print(&t->jobs, &t->target, t->options);
    if (open == 0) return CLI_OK;
    return cli_fail(CLI_FAILED, "%zu of %zu are not tuned%s", open, t->jobs.count, t->over ? budget_over : "");
}

static int find_target(struct tune *t)
{
    const struct cli_options *o = t->options;
    t->target = (gdn_target)GDN_TARGET_INIT;
    if (o->gpus.count && !o->check && !o->compile)
        return cli_fail(CLI_USAGE, "--gpu is for --check and --compile: what is measured is the GPU of --device");
    if (o->gpus.count) {
        if (gdn_target_from_name(t->ctx, o->gpus.items[0], &t->target) != GDN_OK)
            return cli_fail(CLI_USAGE, "--gpu: %s", gdn_last_error());
        return CLI_OK;
    }
    if (gdn_target_from_device(t->ctx, (int)o->device, &t->target) == GDN_OK) return CLI_OK;
    return cli_fail(CLI_FAILED, "--device %lld: %s", (long long)o->device, gdn_last_error());
}

/* What a pipe gives to one process is not there for the next. What is not there at all is told by who reads it. */
static int check_list(const char *option, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s %s is no regular file: tune reads it in several processes, name a file", option, path);
}

static int check_lists(const struct cli_options *o)
{
    if (o->shapes_file) CLI_TRY(check_list("--shapes", o->shapes_file));
    for (size_t i = 0; i < o->models.count; ++i)
        if (cli_preset_is_file(o->models.items[i])) CLI_TRY(check_list("--model", o->models.items[i]));
    return CLI_OK;
}

/* What would do nothing is refused. */
static int check_options(const struct cli_options *o)
{
    if (!o->output && !o->compile) return cli_fail(CLI_USAGE, "no tuning file: name it with --file");
    if (o->check && o->compile)
        return cli_fail(CLI_USAGE, "--check with --compile: one looks at a tuning file, the other fills the cache; run "
                                   "tune twice");
    if (o->json && o->compile)
        return cli_fail(CLI_USAGE, "--json with --compile: it has no JSON output; leave --json out");
    if (o->check && (o->budget_s || o->jobs))
        return cli_fail(CLI_USAGE, "%s with --check: nothing is measured or compiled; leave it out",
                        o->budget_s ? "--budget" : "--jobs");
    if (o->timeout_s && (o->check || o->compile))
        return cli_fail(CLI_USAGE, "--timeout with %s: no candidate runs; leave it out", o->check ? "--check" : "--compile");
    if (o->gpus.count && o->device)
        return cli_fail(CLI_USAGE, "--gpu %s with --device %lld: either says which GPU is meant; leave one out",
                        o->gpus.items[0], (long long)o->device);
    if (o->gpus.count > 1)
        return cli_fail(CLI_USAGE, "--gpu is given %zu times (%s, %s): tune is for one GPU at a time, name one",
                        o->gpus.count, o->gpus.items[0], o->gpus.items[1]);
    if (o->shapes_file && cli_file_is_stdin(o->shapes_file))
        return cli_fail(CLI_USAGE, "--shapes is standard input: tune reads the list in several processes, name a file");
    return check_lists(o);
}

static int run(struct tune *t, int argc, char **argv)
{
    const struct cli_options *o = t->options;
    CLI_TRY(check_options(o));
    CLI_TRY(cli_tune_jobs_find(o, &t->jobs));
    CLI_TRY(cli_resolve_context(o, &t->ctx));
    if (!o->check) CLI_TRY(load_file(t));
    if (o->worker) return cli_tune_work(t->ctx, &t->jobs, o);
    CLI_TRY(find_target(t));
    t->start_ms = cli_now_ms();
    if (o->compile) {
        CLI_TRY(cli_require_cache(t->ctx, o));
        return run_with_threads(t);
    }
    if (o->check) {
        CLI_TRY(load_file(t));
        return cli_tune_check(&t->target, &t->jobs, o);
    }
    CLI_TRY(check_owner(t));
    return tune_all(t, argc, argv);
}

int cli_cmd_tune(int argc, char **argv)
{
    struct cli_options options;
    struct tune t = { .options = &options, .lock = PTHREAD_MUTEX_INITIALIZER, .compiled = PTHREAD_COND_INITIALIZER };
    cli_options_parse(&options, CLI_OPTIONS_SHAPES | CLI_OPTIONS_TUNE | CLI_OPTIONS_COMPILER, doc, argc, argv);
    const int code = run(&t, argc, argv);
    cli_tune_jobs_free(&t.jobs);
    gdn_ctx_destroy(t.ctx);
    cli_options_free(&options);
    return code;
}
