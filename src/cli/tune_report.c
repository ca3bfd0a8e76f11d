/*
 * tune_report.c - owns how a tuning is shown. Must not know: how it is done.
 */
#include "cli/tune_report.h"

#include <stdio.h>

#include "cli/plan_facts.h"
#include "cli/say.h"
#include "cli/table.h"
#include "cli/targets.h"
#include "cli/tune_result.h"

/* ---- What a tuning file knows ---- */

struct search {
    const gdn_target *target;
    struct cli_tune_job *job;
    bool found;
};

static int on_entry(void *user, const gdn_tuning_entry *e)
{
    struct search *s = user;
    gdn_tune_result *r = &s->job->result;
    if (!cli_tune_matches(s->job, s->target, e)) return 0;
    s->found = true;
    r->decided = 1;
    r->samples = e->samples;
    r->ns = e->median_ns;
    r->mad_ns = e->mad_ns;
    r->heuristic_ns = e->heuristic_ns;
    snprintf(r->params, sizeof r->params, "%s", e->params);
    snprintf(r->verdict, sizeof r->verdict, "known");
    return 1;
}

bool cli_tune_known(gdn_ctx *ctx, const gdn_target *target, struct cli_tune_job *job)
{
    struct search s = { target, job, false };
    gdn_tuning_list(ctx, on_entry, &s); /* a callback that found what it wants cancels */
    return s.found;
}

/* ---- The table ---- */

static const char *state_word(const struct cli_tune_job *job)
{
    static const char *const words[] = { [CLI_TUNE_NEW] = "open",
                                         [CLI_TUNE_COMPILED] = "open",
                                         [CLI_TUNE_STOPPED] = "open",
                                         [CLI_TUNE_FAILED] = "failed",
                                         [CLI_TUNE_KNOWN] = "known",
                                         [CLI_TUNE_DONE] = "tuned" };
    return words[job->state];
}

static const char *format_us(char out[CLI_SHORT], int64_t ns)
{
    if (ns <= 0)
        snprintf(out, CLI_SHORT, "-");
    else
        snprintf(out, CLI_SHORT, "%lld.%02lld", (long long)(ns / 1000), (long long)(ns % 1000 / 10));
    return out;
}

/* In tenths of a percent, so that no locale shows. */
static const char *format_percent(char out[CLI_SHORT], int64_t part, int64_t whole)
{
    const int64_t tenths = whole > 0 ? part * 1000 / whole : 0;
    snprintf(out, CLI_SHORT, "%s%lld.%lld %%", tenths < 0 ? "-" : "", (long long)(tenths < 0 ? -tenths : tenths) / 10,
             (long long)(tenths < 0 ? -tenths : tenths) % 10);
    return out;
}

static void add_row(struct cli_table *table, const struct cli_tune_job *job)
{
    char size[CLI_SHORT], before[CLI_SHORT], after[CLI_SHORT], spread[CLI_SHORT], gain[CLI_SHORT];
    const gdn_tune_result *r = &job->result;
    const bool times = r->decided;
    const int64_t gained = r->heuristic_ns ? r->heuristic_ns - r->ns : 0;
    cli_table_row(table, (const char *const[]){ job->problem, cli_tune_size(size, job), state_word(job),
                                                times ? format_us(before, r->heuristic_ns) : "-",
                                                times ? format_us(after, r->ns) : "-",
                                                times ? format_percent(spread, r->mad_ns, r->ns) : "-",
                                                times ? format_percent(gain, gained, r->heuristic_ns) : "-",
                                                times          ? r->params
                                                : job->message ? job->message
                                                               : "" });
}

static void print_table(const struct cli_tune_jobs *jobs, const gdn_target *target)
{
    static const struct cli_column columns[] = {
        { "SHAPE", false },   { "CALL", true }, { "STATE", false }, { "HEURISTIC us", true },
        { "TUNED us", true }, { "MAD", true },  { "GAIN", true },   { "PARAMETERS", false },
    };
    char where[96];
    struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < jobs->count; ++i)
        add_row(table, &jobs->items[i]);
    cli_table_print(table);
    cli_print("\n%zu of %s\n", jobs->count, cli_target_text(where, target));
}

/* ---- JSON ---- */

static cJSON *job_json(const struct cli_tune_job *job)
{
    const gdn_tune_result *r = &job->result;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "key", job->name);
    cJSON_AddStringToObject(o, "label", job->shape->label);
    cJSON_AddNumberToObject(o, "tokens", (double)job->tokens);
    cJSON_AddNumberToObject(o, "seqs", (double)job->seqs);
    cJSON_AddStringToObject(o, "state", state_word(job));
    cJSON_AddStringToObject(o, "message", job->message ? job->message : "");
    cJSON *failed = cJSON_AddArrayToObject(o, "left_out");
    for (size_t i = 0; i < job->count; ++i)
        if (job->candidates[i].failed) cJSON_AddItemToArray(failed, cJSON_CreateString(job->candidates[i].params));
    cJSON_AddNumberToObject(o, "candidates", (double)job->count);
    if (!r->decided) return o;
    cli_tune_result_print(o, r);
    return o;
}

void cli_tune_print(const struct cli_tune_jobs *jobs, const gdn_target *target, const struct cli_options *o)
{
    if (!o->json) {
        print_table(jobs, target);
        return;
    }
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "gpu", target->gpu_name);
    cJSON_AddStringToObject(root, "arch", target->arch);
    cJSON_AddNumberToObject(root, "num_sms", target->num_sms);
    cJSON_AddStringToObject(root, "file", o->output);
    cJSON *array = cJSON_AddArrayToObject(root, "jobs");
    for (size_t i = 0; i < jobs->count; ++i)
        cJSON_AddItemToArray(array, job_json(&jobs->items[i]));
    cli_print_json(root);
}

/* ---- --check ---- */

static void print_check(const cJSON *missing, const cJSON *stale, size_t count, const char *file)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, missing) cli_print("missing: %s\n", item->valuestring);
    cJSON_ArrayForEach(item, stale) cli_print("stale:   %s\n", item->valuestring);
    cli_print("%s has %zu of %zu, of which %d were measured with another kernel\n", file,
              count - (size_t)cJSON_GetArraySize(missing), count, cJSON_GetArraySize(stale));
}

int cli_tune_check(const gdn_target *target, const struct cli_tune_jobs *jobs, const struct cli_options *o)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "gpu", target->gpu_name);
    cJSON_AddStringToObject(root, "file", o->output);
    cJSON_AddNumberToObject(root, "wanted", (double)jobs->count);
    cJSON *missing = cJSON_AddArrayToObject(root, "missing"), *stale = cJSON_AddArrayToObject(root, "stale");
    for (size_t i = 0; i < jobs->count; ++i)
        if (jobs->items[i].held != CLI_HELD)
            cJSON_AddItemToArray(jobs->items[i].held == CLI_HELD_NOT ? missing : stale,
                                 cJSON_CreateString(jobs->items[i].name));
    const int bad = cJSON_GetArraySize(missing) + cJSON_GetArraySize(stale);
    if (!o->json) print_check(missing, stale, jobs->count, o->output);
    if (o->json)
        cli_print_json(root);
    else
        cJSON_Delete(root);
    return bad ? cli_fail(CLI_FAILED, "%s", "") : CLI_OK;
}
