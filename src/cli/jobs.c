/*
 * jobs.c - owns which shape is planned for which target. Must not know: what is done with a plan.
 */
#include "cli/jobs.h"

#include "cli/json.h"
#include "cli/resolve.h"

/*
 * What --arch names stands for every engine on that arch: also one that plans by the library's model alone, whatever tables
 * have been measured.
 */
static void add_heuristic(struct cli_shapes *list)
{
    const uint32_t chosen = GDN_PLAN_HEURISTIC | GDN_PLAN_TUNED_ONLY;
    for (size_t i = 0, given = list->count; i < given; ++i) {
        struct cli_shape shape = list->items[i];
        if (shape.plan_flags & chosen) continue;
        shape.plan_flags |= GDN_PLAN_HEURISTIC;
        cli_shapes_add(list, &shape);
    }
}

int cli_jobs_read(struct cli_jobs *jobs, const struct cli_options *options)
{
    if (options->from && options->shapes_file && cli_file_is_stdin(options->from) && cli_file_is_stdin(options->shapes_file))
        return cli_fail(CLI_USAGE, "--shapes and --from are both \"-\": standard input is read once, name a file for one");
    if (options->from) CLI_TRY(cli_records_read(&jobs->records, options->from));
    CLI_TRY(cli_resolve_shapes(options, &jobs->shapes));
    if (options->archs.count) add_heuristic(&jobs->shapes);
    return CLI_OK;
}

static void add(struct cli_jobs *jobs, const struct cli_shape *shape, const gdn_target *target,
                const struct cli_names *keys)
{
    jobs->items = cli_realloc(jobs->items, (jobs->count + 1) * sizeof *jobs->items);
    jobs->items[jobs->count++] = (struct cli_job){ shape, target, keys };
}

/* For a target that was named the recorded keys mean nothing: they are those of the target of the line. */
static int add_records(struct cli_jobs *jobs, gdn_ctx *ctx, const struct cli_options *options)
{
    const bool named = options->archs.count + options->gpus.count > 0;
    for (size_t i = 0; i < jobs->records.count; ++i) {
        struct cli_record *r = &jobs->records.items[i];
        if (options->ops && !(options->ops >> r->shape.op & 1)) continue;
        if (!named) CLI_TRY(cli_record_target(r, cli_file_name(options->from), ctx));
        if (!named) add(jobs, &r->shape, &r->target, &r->keys);
        for (size_t j = 0; named && j < jobs->targets.count; ++j)
            add(jobs, &r->shape, &jobs->targets.items[j], NULL);
    }
    return CLI_OK;
}

int cli_jobs_aim(struct cli_jobs *jobs, gdn_ctx *ctx, const struct cli_options *options)
{
    const bool named = options->archs.count + options->gpus.count > 0;
    if (named || jobs->shapes.count) CLI_TRY(cli_targets_find(ctx, options, true, &jobs->targets));
    for (size_t i = 0; i < jobs->shapes.count; ++i)
        for (size_t j = 0; j < jobs->targets.count; ++j)
            add(jobs, &jobs->shapes.items[i], &jobs->targets.items[j], NULL);
    CLI_TRY(add_records(jobs, ctx, options));
    return jobs->count ? CLI_OK : cli_fail(CLI_USAGE, "--op leaves no plan of %s", options->from);
}

void cli_jobs_free(struct cli_jobs *jobs)
{
    cli_free(jobs->items);
    cli_shapes_free(&jobs->shapes);
    cli_targets_free(&jobs->targets);
    cli_records_free(&jobs->records);
    *jobs = (struct cli_jobs){ 0 };
}
