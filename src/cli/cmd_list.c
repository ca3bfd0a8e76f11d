/*
 * cmd_list.c - owns `list`: the entries of the cache directory as a table or as JSON.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/entries.h"
#include "cli/resolve.h"
#include "cli/plan_facts.h"
#include "cli/table.h"

static const char doc[] = "Lists the kernels of the cache directory: arch, kernel, registers a thread, bytes "
                          "spilled, size, time since the last use, key.\v"
                          "Examples:\n"
                          "  gdn-jit-cache list\n"
                          "  gdn-jit-cache list --cache-dir /opt/gdn-cache --json\n"
                          "\n"
                          "A damaged entry is shown as such; the library removes it when it meets it.\n"
                          "\n"
                          "Exit status: 0, or 1 when there is no cache directory that can be read, or 2 for a "
                          "wrong command line.";

static void add_row(struct cli_table *table, const struct cli_entry *e, int64_t now)
{
    char registers[CLI_SHORT] = "-", spills[CLI_SHORT] = "-", size[CLI_SHORT], age[CLI_SHORT];
    if (e->valid) {
        snprintf(registers, sizeof registers, "%d", e->registers);
        snprintf(spills, sizeof spills, "%d", e->spill_bytes);
    }
    const char *cells[] = { e->valid ? e->arch : "?",         e->valid ? e->kernel : "damaged",    registers, spills,
                            cli_format_bytes(size, e->bytes), cli_format_age(age, now - e->mtime), e->key };
    cli_table_row(table, cells);
}

static void print_table(const struct cli_entries *entries, const char *dir)
{
    static const struct cli_column columns[] = {
        { "ARCH", false }, { "KERNEL", false }, { "REGS", true }, { "SPILLS", true },
        { "SIZE", true },  { "AGE", true },     { "KEY", false },
    };
    struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    const int64_t now = (int64_t)time(NULL);
    uint64_t bytes = 0;
    for (size_t i = 0; i < entries->count; ++i) {
        add_row(table, &entries->items[i], now);
        bytes += entries->items[i].bytes;
    }
    char size[CLI_SHORT];
    cli_table_print(table);
    printf("%s%zu kernel%s, %s in %s\n", entries->count ? "\n" : "", entries->count, entries->count == 1 ? "" : "s",
           cli_format_bytes(size, bytes), dir);
}

static void print_json(const struct cli_entries *entries, const char *dir)
{
    cJSON *root = cJSON_CreateObject(), *array = cJSON_CreateArray();
    cJSON_AddStringToObject(root, "cache_dir", dir);
    for (size_t i = 0; i < entries->count; ++i)
        cJSON_AddItemToArray(array, cli_entry_json(&entries->items[i]));
    cJSON_AddItemToObject(root, "entries", array);
    cli_print_json(root);
}

static int run(gdn_ctx *ctx, const struct cli_options *options)
{
    struct cli_entries entries = { 0 };
    const int code = cli_entries_find(ctx, "", &entries);
    if (code == CLI_OK) (options->json ? print_json : print_table)(&entries, gdn_cache_dir(ctx));
    cli_entries_free(&entries);
    return code;
}

int cli_cmd_list(int argc, char **argv)
{
    struct cli_options options;
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, 0, doc, argc, argv);
    int code = cli_resolve_context_to_read(&options, &ctx);
    if (code == CLI_OK) code = run(ctx, &options);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
