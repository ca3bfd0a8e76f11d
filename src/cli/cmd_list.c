/*
 * cmd_list.c - owns `list`: the entries of the cache directory as a table or as JSON.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/diagnose.h"
#include "cli/entries.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"
#include "cli/table.h"

static const char doc[] = "Lists the kernels of the cache directory: arch, kernel, registers a thread, bytes "
                          "spilled, size, time since the last use, key, the compiler that made it and a number for its "
                          "options, which are below the table.\v"
                          "Examples:\n"
                          "  gdn-jit-cache list\n"
                          "  gdn-jit-cache list --cache-dir /opt/gdn-cache --json\n"
                          "\n"
                          "A damaged entry is shown as such; the library removes it when it meets it. One that "
                          "others own or may write to is \"refused\": the library passes over it.\n"
                          "\n"
                          "Exit status: 0, or 1 when there is no cache directory that can be read, or 2 for a "
                          "wrong command line.";

/* Its number among the options that were met, from 1 on; nearly all entries of an arch have the same. */
static size_t number_of(struct cli_names *options, const char *text)
{
    for (size_t i = 0; i < options->count; ++i)
        if (strcmp(options->items[i], text) == 0) return i + 1;
    cli_names_add(options, text, strlen(text));
    return options->count;
}

/* "nvrtc 13.0 65be0db3": of a build id eight digits tell builds apart, as in the names of files. */
static void short_compiler(char out[64], const char *compiler)
{
    enum { DIGITS = 8 };
    const char *id = strrchr(compiler, ' ');
    snprintf(out, 64, "%.*s%.*s", id ? (int)(id - compiler) : 48, compiler, id ? DIGITS + 1 : 0, id ? id : "");
}

static void add_row(struct cli_table *table, const struct cli_entry *e, int64_t now, struct cli_names *options)
{
    char registers[CLI_SHORT] = "-", spills[CLI_SHORT] = "-", size[CLI_SHORT], age[CLI_SHORT];
    char compiler[64] = "-", number[CLI_SHORT] = "-";
    if (e->valid) {
        snprintf(registers, sizeof registers, "%d", e->registers);
        snprintf(spills, sizeof spills, "%d", e->spill_bytes);
        snprintf(number, sizeof number, "%zu", number_of(options, e->options));
        short_compiler(compiler, e->compiler);
    }
    const char *cells[] = { e->valid ? e->arch : "?",
                            e->valid ? e->kernel : cli_problem_word(e->problem),
                            registers,
                            spills,
                            cli_format_bytes(size, e->bytes),
                            cli_format_age(age, now, e->mtime),
                            e->key,
                            compiler,
                            number };
    cli_table_row(table, cells);
}

static void print_problems(const struct cli_entries *entries)
{
    for (size_t i = 0; i < entries->count; ++i) {
        const struct cli_entry *e = &entries->items[i];
        if (!e->valid) cli_print("%s: %s: %s\n", cli_problem_word(e->problem), e->path, e->problem);
    }
}

static void print_rows(const struct cli_entries *entries, struct cli_names *options)
{
    static const struct cli_column columns[] = {
        { "ARCH", false }, { "KERNEL", false }, { "REGS", true },      { "SPILLS", true },  { "SIZE", true },
        { "AGE", true },   { "KEY", false },    { "COMPILER", false }, { "OPTIONS", true },
    };
    struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    const int64_t now = (int64_t)time(NULL);
    for (size_t i = 0; i < entries->count; ++i)
        add_row(table, &entries->items[i], now, options);
    cli_table_print(table);
}

static void print_table(const struct cli_entries *entries, const char *dir)
{
    struct cli_names options = { 0 };
    char size[CLI_SHORT];
    uint64_t bytes = 0;
    print_rows(entries, &options);
    for (size_t i = 0; i < entries->count; ++i)
        bytes += entries->items[i].bytes;
    for (size_t i = 0; i < options.count; ++i)
        cli_print("%soptions %zu: %s\n", i ? "" : "\n", i + 1, options.items[i]);
    print_problems(entries);
    cli_print("%s%zu kernel%s, %s in %s\n", entries->count ? "\n" : "", entries->count, entries->count == 1 ? "" : "s",
              cli_format_bytes(size, bytes), dir);
    cli_names_free(&options);
}

static void print_json(const struct cli_entries *entries, const char *dir)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cache_dir", dir);
    cli_entries_json(root, "entries", entries);
    cli_print_json(root);
}

static int run(gdn_ctx *ctx, const struct cli_options *options)
{
    struct cli_entries entries = { 0 };
    CLI_TRY(cli_require_cache(ctx, options));
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
