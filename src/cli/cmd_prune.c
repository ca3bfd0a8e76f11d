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
#include "cli/table.h"

static const char doc[] =
    "Removes entries of the cache directory: those over a size or an age, those of other compilers; and "
    "always damaged ones and temporary files older than an hour. Safe beside processes that use "
    "the directory: what they need again, they compile.\v"
    "Examples:\n"
    "  gdn-jit-cache prune --max-bytes 64M\n"
    "  gdn-jit-cache prune --max-age 30d --arch sm_80 --dry-run\n"
    "  gdn-jit-cache prune --other-compilers          (after an update of NVRTC)\n"
    "\n"
    "Exit status: 0, or 1 when the directory cannot be read or there is no NVRTC to compare with, or 2 "
    "for a wrong command line.";

static void add_row(struct cli_table *table, const struct cli_entry *e, int64_t now)
{
    char size[CLI_SHORT], age[CLI_SHORT];
    const char *what = e->valid ? e->kernel : e->problem;
    cli_table_row(table, (const char *const[]){ e->valid ? e->arch : "?", what, cli_format_bytes(size, e->bytes),
                                                cli_format_age(age, now - e->mtime), e->key });
}

static void print_text(const struct cli_entries *gone, const gdn_cache_report *r, const char *dir, bool dry_run)
{
    static const struct cli_column columns[] = {
        { "ARCH", false }, { "KERNEL", false }, { "SIZE", true }, { "AGE", true }, { "KEY", false },
    };
    const int64_t now = (int64_t)time(NULL);
    char size[CLI_SHORT];
    if (gone->count) {
        struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
        for (size_t i = 0; i < gone->count; ++i)
            add_row(table, &gone->items[i], now);
        cli_table_print(table);
        puts("");
    }
    printf("%s %zu of %llu entries", dry_run ? "would remove" : "removed", gone->count, (unsigned long long)r->entries);
    if (r->temporaries) printf(" and %llu temporary files", (unsigned long long)r->temporaries);
    printf(", %s, in %s\n", cli_format_bytes(size, r->removed_bytes), dir);
}

static void print_json(const struct cli_entries *gone, const gdn_cache_report *r, const char *dir, bool dry_run)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cache_dir", dir);
    cJSON_AddBoolToObject(root, "dry_run", dry_run);
    cli_report_json(root, r);
    cli_entries_json(root, "entries_removed", gone);
    cli_print_json(root);
}

static int run(gdn_ctx *ctx, const struct cli_options *o)
{
    struct cli_entries gone = { 0 };
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    gdn_prune_options how = GDN_PRUNE_OPTIONS_INIT;
    CLI_TRY(cli_require_cache(ctx));
    how.max_bytes = o->max_bytes;
    how.max_age = o->max_age;
    how.arch = o->archs.count ? o->archs.items[0] : NULL;
    how.flags =
        (o->dry_run ? (uint32_t)GDN_PRUNE_DRY_RUN : 0) | (o->other_compilers ? (uint32_t)GDN_PRUNE_OTHER_COMPILERS : 0);
    const gdn_status status = gdn_cache_prune(ctx, &how, cli_entries_keep, &gone, &report);
    const char *dir = gdn_cache_dir(ctx);
    if (status == GDN_OK) (o->json ? print_json : print_text)(&gone, &report, dir, o->dry_run);
    cli_entries_free(&gone);
    return status == GDN_OK ? CLI_OK : cli_fail(CLI_FAILED, "%s", gdn_last_error());
}

int cli_cmd_prune(int argc, char **argv)
{
    struct cli_options options;
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, CLI_OPTIONS_PRUNE, doc, argc, argv);
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
