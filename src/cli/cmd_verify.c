/*
 * cmd_verify.c - owns `verify`: every byte of every entry of the cache directory, or of a bundle, is as it was written.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/diagnose.h"
#include "cli/entries.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"
#include "cli/table.h"

static const char doc[] =
    "Reads every byte of every entry of the cache directory, or of a bundle, and tells which are "
    "damaged, or refused for their owner or mode, and how. Needs neither NVRTC nor a GPU.\v"
    "Examples:\n"
    "  gdn-jit-cache verify\n"
    "  gdn-jit-cache verify --bundle /opt/gdn-bundle\n"
    "  gdn-jit-cache verify --remove                   (warm builds again what went)\n"
    "\n"
    "Exit status: 0 everything is as it was written, or was removed; 1 something is damaged, missing "
    "or not listed, or cannot be read; 2 the command line is wrong.";

static void print_entries(const struct cli_entries *bad)
{
    static const struct cli_column columns[] = { { "PROBLEM", false }, { "PATH", false } };
    if (!bad->count) return;
    struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < bad->count; ++i)
        cli_table_row(table, (const char *const[]){ bad->items[i].problem, bad->items[i].path });
    cli_table_print(table);
    puts("");
}

static uint64_t count_distrusted(const struct cli_entries *bad)
{
    uint64_t count = 0;
    for (size_t i = 0; i < bad->count; ++i)
        count += cli_is_distrusted(bad->items[i].problem);
    return count;
}

static void print_text(const struct cli_entries *bad, const gdn_cache_report *r, const char *dir, bool bundle)
{
    const uint64_t refused = count_distrusted(bad); /* the report has them among the damaged */
    char size[CLI_SHORT];
    print_entries(bad);
    cli_print("%llu entr%s, %s in %s: %llu damaged", (unsigned long long)r->entries, r->entries == 1 ? "y" : "ies",
              cli_format_bytes(size, r->bytes), dir, (unsigned long long)(r->damaged - refused));
    if (refused) printf(", %llu refused", (unsigned long long)refused);
    if (bundle)
        printf(", %llu missing, %llu not in the manifest", (unsigned long long)r->missing,
               (unsigned long long)r->unlisted);
    if (r->temporaries) printf(", %llu old temporary files", (unsigned long long)r->temporaries);
    if (r->removed) printf("; %llu removed", (unsigned long long)r->removed);
    puts("");
}

static void print_json(const struct cli_entries *bad, const gdn_cache_report *r, const char *dir)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "dir", dir);
    cli_report_json(root, r);
    cli_entries_json(root, "problems", bad);
    cli_print_json(root);
}

/* A damaged entry that was removed is no longer wrong. The report counts removed temporary files too: the disk tells. */
static int verdict_on_removal(struct cli_entries *bad, const char *dir)
{
    struct cli_entries stayed = { 0 };
    int code = CLI_OK;
    cli_entries_split(bad, &stayed);
    if (stayed.count) code = cli_fail(CLI_FAILED, CLI_STAYED, stayed.count, dir, stayed.items[0].path);
    cli_entries_free(&stayed);
    return code;
}

static int verdict(const struct cli_entries *bad, const gdn_cache_report *r, const char *dir, bool bundle)
{
    static const char damaged[] = "the library ignores them; take them away with --remove";
    const uint64_t wrong = r->damaged + r->missing + r->unlisted, distrusted = count_distrusted(bad);
    if (!wrong) return CLI_OK;
    if (bundle) return cli_fail(CLI_FAILED, "%s is not what was packed: pack it again, or copy it again", dir);
    if (!distrusted) return cli_fail(CLI_FAILED, "%s has damaged entries: %s", dir, damaged);
    return cli_fail(CLI_FAILED, "%s has entries that others could have written: %s%s%s", dir, cli_owner_remedy,
                    distrusted < wrong ? "; and damaged ones: " : "", distrusted < wrong ? damaged : "");
}

static int run(gdn_ctx *ctx, const struct cli_options *o)
{
    struct cli_entries bad = { 0 };
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    if (!o->bundle) CLI_TRY(cli_require_cache(ctx, o));
    const char *dir = o->bundle ? o->bundle : gdn_cache_dir(ctx);
    const gdn_status status =
        gdn_cache_verify(ctx, o->bundle, o->remove ? GDN_VERIFY_REMOVE : 0, cli_entries_keep, &bad, &report);
    int code = status == GDN_OK ? CLI_OK : cli_fail(CLI_FAILED, "%s", gdn_last_error());
    if (code == CLI_OK && o->json) print_json(&bad, &report, dir);
    if (code == CLI_OK && !o->json) print_text(&bad, &report, dir, o->bundle != NULL);
    if (code == CLI_OK)
        code = o->remove ? verdict_on_removal(&bad, dir) : verdict(&bad, &report, dir, o->bundle != NULL);
    cli_entries_free(&bad);
    return code;
}

static int check_options(const struct cli_options *o)
{
    if (o->bundle && o->cache_dir)
        return cli_fail(CLI_USAGE, "--bundle and --cache-dir: one is verified at a time; name one");
    if (o->bundle && o->shared_cache)
        return cli_fail(CLI_USAGE, "--shared-cache with --bundle: it is of the cache directory; leave it out");
    if (o->bundle && o->remove)
        return cli_fail(CLI_USAGE, "--remove with --bundle: a bundle is read-only, pack it again instead");
    return CLI_OK;
}

int cli_cmd_verify(int argc, char **argv)
{
    struct cli_options options;
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, CLI_OPTIONS_VERIFY, doc, argc, argv);
    int code = check_options(&options);
    if (code == CLI_OK && options.bundle) options.cache_dir = ""; /* no cache directory is looked at, or made */
    if (code == CLI_OK) code = cli_resolve_context_to_read(&options, &ctx);
    if (code == CLI_OK) code = run(ctx, &options);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
