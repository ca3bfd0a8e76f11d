/*
 * cmd_prune.c - owns `prune`: entries of the cache directory that are too many, too old, damaged or of no use go.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/entries.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"
#include "cli/table.h"

static const char doc[] =
    "Removes entries of the cache directory: those over a size or an age, those of other compilers; and "
    "always damaged and refused ones, and temporary files older than an hour. Safe beside processes that use "
    "the directory: what they need again, they compile.\v"
    "Examples:\n"
    "  gdn-jit-cache prune --max-bytes 64M\n"
    "  gdn-jit-cache prune --max-age 30d --arch sm_80 --dry-run\n"
    "  gdn-jit-cache prune --other-compilers          (after an update of NVRTC)\n"
    "\n"
    "Exit status: 0, or 1 when something that should go could not be removed, the directory cannot be read or there "
    "is no NVRTC to compare with, or 2 for a wrong command line.";

static void add_row(struct cli_table *table, const struct cli_entry *e, int64_t now)
{
    char size[CLI_SHORT], age[CLI_SHORT];
    const char *what = e->valid ? e->kernel : e->problem;
    cli_table_row(table, (const char *const[]){ e->valid ? e->arch : "?", what, cli_format_bytes(size, e->bytes),
                                                cli_format_age(age, now, e->mtime), e->key });
}

/* What came of a prune: the library tells of an entry before it tries to remove it. */
struct pruned {
    const char *dir;
    bool dry_run;
    struct cli_entries gone, stayed; /* stayed: they should have gone */
    uint64_t temporaries_left;       /* likewise */
    gdn_cache_report report;
};

static void print_text(const struct pruned *p)
{
    static const struct cli_column columns[] = {
        { "ARCH", false }, { "KERNEL", false }, { "SIZE", true }, { "AGE", true }, { "KEY", false },
    };
    const int64_t now = (int64_t)time(NULL);
    const uint64_t temporaries = p->report.temporaries - p->temporaries_left;
    char size[CLI_SHORT];
    if (p->gone.count) {
        struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
        for (size_t i = 0; i < p->gone.count; ++i)
            add_row(table, &p->gone.items[i], now);
        cli_table_print(table);
        puts("");
    }
    cli_print("%s %zu of %llu entries", p->dry_run ? "would remove" : "removed", p->gone.count,
              (unsigned long long)p->report.entries);
    if (temporaries) printf(" and %llu temporary files", (unsigned long long)temporaries);
    cli_print(", %s, in %s\n", cli_format_bytes(size, p->report.removed_bytes), p->dir);
}

static void print_json(const struct pruned *p)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cache_dir", p->dir);
    cJSON_AddBoolToObject(root, "dry_run", p->dry_run);
    cli_report_json(root, &p->report);
    cli_entries_json(root, "entries_removed", &p->gone);
    cli_entries_json(root, "entries_left", &p->stayed);
    cJSON_AddNumberToObject(root, "temporaries_left", (double)p->temporaries_left);
    cli_print_json(root);
}

/* The report does not say which of its counts a file that stayed is in: a rehearsal of a prune that has no limits does. */
static int find_left(gdn_ctx *ctx, struct pruned *p)
{
    gdn_prune_options how = GDN_PRUNE_OPTIONS_INIT;
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    if (p->dry_run || p->report.removed >= p->gone.count + p->report.temporaries) return CLI_OK;
    cli_entries_split(&p->gone, &p->stayed);
    if (!p->report.temporaries) return CLI_OK;
    how.flags = GDN_PRUNE_DRY_RUN;
    if (gdn_cache_prune(ctx, &how, NULL, NULL, &report) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    p->temporaries_left =
        report.temporaries < p->report.temporaries ? report.temporaries : p->report.temporaries; /* new ones appear */
    return CLI_OK;
}

static int verdict(const struct pruned *p)
{
    if (p->stayed.count)
        return cli_fail(CLI_FAILED, CLI_STAYED, p->stayed.count, p->dir, p->stayed.items[0].path);
    if (p->temporaries_left)
        return cli_fail(CLI_FAILED,
                        "%llu of the temporary files in %s could not be removed: the folders there must belong to this "
                        "user and be writable for nobody else",
                        (unsigned long long)p->temporaries_left, p->dir);
    return CLI_OK;
}

static int prune(gdn_ctx *ctx, const struct cli_options *o, struct pruned *p)
{
    gdn_prune_options how = GDN_PRUNE_OPTIONS_INIT;
    how.max_bytes = o->max_bytes ? o->max_bytes : 1; /* 0 of the command line is nothing left */
    how.max_age = o->max_age;
    how.arch = o->archs.count ? o->archs.items[0] : NULL;
    how.flags =
        (o->dry_run ? (uint32_t)GDN_PRUNE_DRY_RUN : 0) | (o->other_compilers ? (uint32_t)GDN_PRUNE_OTHER_COMPILERS : 0);
    const gdn_status status = gdn_cache_prune(ctx, &how, cli_entries_keep, &p->gone, &p->report);
    if (status == GDN_E_UNSUPPORTED) return cli_fail(CLI_USAGE, "--arch: %s", gdn_last_error());
    if (status != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    CLI_TRY(find_left(ctx, p));
    (o->json ? print_json : print_text)(p);
    return verdict(p);
}

static int run(gdn_ctx *ctx, const struct cli_options *o)
{
    CLI_TRY(cli_require_cache(ctx, o));
    struct pruned p = { .dir = gdn_cache_dir(ctx), .dry_run = o->dry_run, .report = GDN_CACHE_REPORT_INIT };
    const int code = prune(ctx, o, &p);
    cli_entries_free(&p.gone);
    cli_entries_free(&p.stayed);
    return code;
}

int cli_cmd_prune(int argc, char **argv)
{
    struct cli_options options;
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, CLI_OPTIONS_PRUNE | CLI_OPTIONS_COMPILER, doc, argc, argv);
    int code =
        options.archs.count > 1
            ? cli_fail(CLI_USAGE, "--arch names %zu archs: prune one at a time, or all without it", options.archs.count)
            : CLI_OK;
    if (code == CLI_OK) code = cli_resolve_context_to_read(&options, &ctx);
    if (code == CLI_OK) code = run(ctx, &options);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
