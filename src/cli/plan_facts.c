/*
 * plan_facts.c - owns the reading of a plan's dump, and JSON on standard output. Must not know: commands.
 */
#include "cli/plan_facts.h"

#include <stdio.h>

#include "cli/text.h"

/* A dump on its way into memory. */
struct sink {
    char *text;
    size_t len;
};

static gdn_status to_memory(void *user, const void *data, size_t size)
{
    struct sink *sink = user;
    sink->text = cli_realloc(sink->text, sink->len + size + 1);
    for (size_t i = 0; i < size; ++i)
        sink->text[sink->len++] = ((const char *)data)[i];
    sink->text[sink->len] = '\0';
    return GDN_OK;
}

int cli_plan_json(const gdn_plan *plan, cJSON **out)
{
    struct sink sink = { 0 };
    int code = CLI_OK;
    if (gdn_plan_dump(plan, GDN_DUMP_JSON, to_memory, &sink) != GDN_OK)
        code = cli_fail(CLI_FAILED, "%s", gdn_last_error());
    if (code == CLI_OK) code = cli_json_parse("the plan's dump", sink.text ? sink.text : "", sink.len, out);
    cli_free(sink.text);
    return code;
}

/* `last`: the byte that was written last. */
static gdn_status to_stdout(void *last, const void *data, size_t size)
{
    if (size) *(char *)last = ((const char *)data)[size - 1];
    return fwrite(data, 1, size, stdout) == size ? GDN_OK : GDN_E_IO;
}

int cli_plan_print(const gdn_plan *plan, gdn_dump_kind kind)
{
    char last = '\n';
    const gdn_status status = gdn_plan_dump(plan, kind, to_stdout, &last);
    if (status == GDN_OK && kind != GDN_DUMP_CUBIN && last != '\n') putchar('\n');
    if (status == GDN_OK) return CLI_OK;
    if (ferror(stdout)) return CLI_FAILED; /* main() says so */
    return cli_fail(CLI_FAILED, "%s", gdn_last_error());
}

void cli_print_json(cJSON *root)
{
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) {
        fputs("gdn-jit-cache: out of memory\n", stderr);
        return;
    }
    char *valid = cli_utf8(text); /* paths are bytes, which cJSON prints as they are */
    puts(valid);
    cli_free(valid);
    cJSON_free(text);
}
