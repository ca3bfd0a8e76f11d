/*
 * tune_worker.c - owns the process that tries candidates: requests in, events and answers out. Must not know: journals, what
 * becomes of an answer. Its own standard error stays the tuner's.
 */
#include "cli/tune_worker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/json.h"
#include "cli/tune_result.h"

static void send(cJSON *line)
{
    char *text = cJSON_PrintUnformatted(line);
    if (text) printf("%s\n", text);
    fflush(stdout);
    cJSON_free(text);
    cJSON_Delete(line);
}

static int on_event(void *user, const gdn_tune_event *e)
{
    (void)user;
    cJSON *line = cJSON_CreateObject();
    if (!e->ended) {
        cJSON_AddStringToObject(line, "try", e->params);
        cJSON_AddBoolToObject(line, "runs", e->step != GDN_TUNE_COMPILE);
        cJSON_AddNumberToObject(line, "done", e->candidate);
        cJSON_AddNumberToObject(line, "of", e->num_candidates);
        cJSON_AddStringToObject(line, "best", e->best_params);
        cJSON_AddNumberToObject(line, "best_ns", (double)e->best_ns);
    } else if (e->status != GDN_OK) {
        cJSON_AddStringToObject(line, "failed", e->params);
        cJSON_AddStringToObject(line, "status", gdn_status_name(e->status));
        cJSON_AddStringToObject(line, "message", e->message);
    } else {
        cJSON_Delete(line);
        return 0;
    }
    send(line);
    return 0;
}

static void answer(gdn_status status, const gdn_tune_result *r)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "status", gdn_status_name(status));
    cJSON_AddStringToObject(line, "message", status == GDN_OK ? "" : gdn_last_error());
    cJSON_AddNumberToObject(line, "decided", r->decided);
    cli_tune_result_print(line, r);
    send(line);
}

/* The file is written when there is something to keep, by the process that knows it. */
static gdn_status keep(gdn_ctx *ctx, const struct cli_options *o)
{
    gdn_target target = GDN_TARGET_INIT;
    const gdn_status status = gdn_target_from_device(ctx, (int)o->device, &target);
    return status == GDN_OK ? gdn_tuning_save(ctx, &target, o->output) : status;
}

/* All of them: one that is missing would be tried again. cli_free() of the list; its texts are the request's. */
static const char **take_skip(const cJSON *request, size_t *count)
{
    const cJSON *skip = cJSON_GetObjectItemCaseSensitive(request, "skip"), *item;
    const char **list = cli_alloc(((size_t)cJSON_GetArraySize(skip) + 1) * sizeof *list);
    *count = 0;
    cJSON_ArrayForEach(item, skip)
    {
        if (cJSON_IsString(item)) list[(*count)++] = item->valuestring;
    }
    return list;
}

/* true: this process can serve more. */
static bool serve(gdn_ctx *ctx, const struct cli_tune_jobs *jobs, const struct cli_options *o, const cJSON *request)
{
    const int64_t job = cli_json_number(request, "job");
    const char *step = cli_json_text(request, "step"), *only = cli_json_text(request, "only");
    gdn_tune_options options = GDN_TUNE_OPTIONS_INIT;
    gdn_tune_result result = GDN_TUNE_RESULT_INIT;
    if (job < 0 || (size_t)job >= jobs->count || !*step) return false;
    const bool check = strcmp(step, "check") == 0;
    options.steps = check ? GDN_TUNE_CHECK : GDN_TUNE_MEASURE;
    options.only = check && *only ? only : NULL;
    options.budget_ms = cli_json_number(request, "left_ms");
    options.progress = on_event;
    const char **skip = take_skip(request, &options.num_skip);
    options.skip = skip;
    gdn_status status = cli_tune_run(ctx, &jobs->items[job], o, &options, &result);
    cli_free(skip);
    const bool lost = status == GDN_E_CUDA || status == GDN_E_TIMEOUT;
    if (status == GDN_OK && result.decided) status = keep(ctx, o);
    answer(status, &result);
    return !lost;
}

int cli_tune_work(gdn_ctx *ctx, struct cli_tune_jobs *jobs, const struct cli_options *o)
{
    char *line = NULL;
    size_t size = 0;
    bool more = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left to listen, and nobody to keep two tuners off one file */
    while (more && getline(&line, &size, stdin) > 0) {
        cJSON *request = cJSON_Parse(line);
        more = serve(ctx, jobs, o, request);
        cJSON_Delete(request);
    }
    /* The driver's own clean-up waits for kernels, and one that hangs never ends: the parent ends what stays. */
    if (!more) _exit(CLI_FAILED);
    cli_free(line);
    return CLI_OK;
}
