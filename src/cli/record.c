/*
 * record.c - owns the reading of recorded lists. Must not know: the command line, what is done with a plan.
 */
#include "cli/record.h"

#include <stdio.h>
#include <string.h>

#include "cli/text.h"
#include "text/printable.h"

enum { MAX_BYTES = 64 << 20, MAX_LINE = 64 << 10, MAX_RECORDS = 4096, MAX_TORN = 1024, MAX_KEYS = 256 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- one line ---- */

static int read_keys(struct cli_names *out, const char *where, const cJSON *array)
{
    int count = 0;
    for (const cJSON *item = array->child; item; item = item->next, ++count) {
        const char *text = cJSON_GetStringValue(item);
        if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32 || count == MAX_KEYS)
            return cli_fail(CLI_USAGE, "%s: \"keys\" must be strings of 32 hex digits, at most %d of them", where,
                            MAX_KEYS);
        cli_names_add(out, text, strlen(text));
    }
    return CLI_OK;
}

static int take_text(char *out, size_t size, const char *where, const char *member, const char *text)
{
    if (strlen(text) >= size)
        return cli_fail(CLI_USAGE, "%s: \"%s\" has %zu characters: must have at most %zu", where, member, strlen(text),
                        size - 1);
    CLI_TRY(cli_check_name(where, member, text));
    if (!gdni_is_plain_line(text, strlen(text)))
        return cli_fail(CLI_USAGE, "%s: \"%s\" is \"%s\": must be printable ASCII, as GDN_JIT_RECORD writes it", where, member,
                        text);
    snprintf(out, size, "%s", text);
    return CLI_OK;
}

static int read_line(struct cli_record *r, const char *where, const cJSON *root)
{
    const char *library = NULL, *gpu = NULL, *arch = NULL;
    const cJSON *shape = NULL, *keys = NULL;
    int64_t schema = 0, plan_flags = 0;
    const struct gdni_json_field fields[] = {
        { "schema", GDNI_JSON_INT, true, &schema, 1, 1, NULL },
        { "library", GDNI_JSON_STRING, true, &library, 0, 0, NULL },
        { "gpu", GDNI_JSON_STRING, true, &gpu, 0, 0, NULL },
        { "arch", GDNI_JSON_STRING, true, &arch, 0, 0, NULL },
        { "num_sms", GDNI_JSON_INT, true, &r->num_sms, 0, INT32_MAX, NULL },
        { "plan_flags", GDNI_JSON_INT, true, &plan_flags, 0, UINT32_MAX, NULL },
        { "shape", GDNI_JSON_OBJECT, true, &shape, 0, 0, NULL },
        { "keys", GDNI_JSON_ARRAY, true, &keys, 0, 0, NULL },
    };
    CLI_TRY(cli_json_object(where, root, fields, COUNT(fields)));
    CLI_TRY(take_text(r->gpu, sizeof r->gpu, where, "gpu", gpu));
    CLI_TRY(take_text(r->arch, sizeof r->arch, where, "arch", arch));
    CLI_TRY(cli_shape_from_json(&r->shape, where, shape));
    r->shape.plan_flags = (uint32_t)plan_flags & ~(uint32_t)GDN_PLAN_CACHED_ONLY; /* warming is for those that say it */
    return read_keys(&r->keys, where, keys);
}

static int add_line(struct cli_records *list, const char *name, size_t number, const cJSON *root)
{
    char where[256];
    struct cli_record r = { 0 };
    snprintf(where, sizeof where, "%.200s, line %zu", name, number);
    snprintf(r.shape.label, sizeof r.shape.label, "line %zu", number);
    const int code = read_line(&r, where, root);
    if (code != CLI_OK) {
        cli_names_free(&r.keys);
        return code;
    }
    list->items = cli_realloc(list->items, (list->count + 1) * sizeof *list->items);
    list->items[list->count++] = r;
    return CLI_OK;
}

/* ---- the list ---- */

/* Lines of a list that were seen; every process of an engine writes the same ones. */
static bool is_new(struct cli_names *seen, const char *line, size_t len)
{
    for (size_t i = 0; i < seen->count; ++i)
        if (strlen(seen->items[i]) == len && memcmp(seen->items[i], line, len) == 0) return false;
    cli_names_add(seen, line, len);
    return true;
}

/* What is no JSON was cut off; what is, and says something else, is a mistake. */
static int take_line(struct cli_records *list, const char *name, size_t number, const char *line, size_t len)
{
    cJSON *root = NULL;
    if (cli_json_parse_from(name, (int)number, line, len, &root) != CLI_OK) {
        if (!list->torn++) list->first_torn = number;
        return list->torn <= MAX_TORN ? CLI_OK
                                      : cli_fail(CLI_USAGE, "%s: more than %d lines are no JSON", name, MAX_TORN);
    }
    const int code = list->count == MAX_RECORDS
                         ? cli_fail(CLI_USAGE, "%s: more than %d plans: split it", name, MAX_RECORDS)
                         : add_line(list, name, number, root);
    cJSON_Delete(root);
    return code;
}

/*
 * Bytes up to the line's end, or up to where another plan begins in it: a process that was killed as it wrote, or found the
 * disk full, has left a line without an end, and what the next one wrote stands behind it. A quote behind a brace begins a
 * plan wherever it stands: in a string it would be written as \".
 */
static size_t line_size(const char *line, const char *end)
{
    static const char beginning[] = "{\"schema\":";
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    const size_t size = (size_t)((newline ? newline : end) - line);
    const char *next = size ? memmem(line + 1, size - 1, beginning, sizeof beginning - 1) : NULL;
    return next ? (size_t)(next - line) : size;
}

static int take_lines(struct cli_records *list, struct cli_names *seen, const char *name, const char *text, size_t len)
{
    const char *end = text + len;
    size_t number = 1;
    for (const char *line = text; line < end;) {
        const size_t size = line_size(line, end);
        if (size > MAX_LINE)
            return cli_fail(CLI_USAGE, "%s, line %zu: has %zu bytes: no plan has more than %d", name, number, size,
                            MAX_LINE);
        if (size && is_new(seen, line, size))
            CLI_TRY(take_line(list, name, number, seen->items[seen->count - 1], size));
        line += size;
        if (line == end || *line != '\n') continue;
        ++line;
        ++number;
    }
    return CLI_OK;
}

int cli_records_parse(struct cli_records *list, const char *name, const char *text, size_t len)
{
    struct cli_names seen = { 0 };
    const int code = take_lines(list, &seen, name, text, len);
    cli_names_free(&seen);
    CLI_TRY(code);
    return list->count ? CLI_OK : cli_fail(CLI_USAGE, "%s: holds no plan: is it what GDN_JIT_RECORD named?", name);
}

int cli_records_read(struct cli_records *list, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(cli_file_read(path, MAX_BYTES, &text, &len));
    const int code = cli_records_parse(list, cli_file_name(path), text, len);
    cli_free(text);
    return code;
}

void cli_records_free(struct cli_records *list)
{
    for (size_t i = 0; i < list->count; ++i)
        cli_names_free(&list->items[i].keys);
    cli_free(list->items);
    *list = (struct cli_records){ 0 };
}

/*
 * The arch is what code is for, and the SMs choose parameters; a GPU's name adds its tuning table. A GPU that this library
 * does not know has its name kept, so that a table of the user's finds it.
 */
int cli_record_target(struct cli_record *r, const char *name, gdn_ctx *ctx)
{
    r->target = (gdn_target)GDN_TARGET_INIT;
    const bool known = r->gpu[0] && gdn_target_from_name(ctx, r->gpu, &r->target) == GDN_OK;
    if (!known || strcmp(r->target.arch, r->arch) != 0) {
        r->target = (gdn_target)GDN_TARGET_INIT;
        if (gdn_target_from_name(ctx, r->arch, &r->target) != GDN_OK)
            return cli_fail(CLI_USAGE, "%s, %s: \"arch\": %s", name, r->shape.label, gdn_last_error());
        snprintf(r->target.gpu_name, sizeof r->target.gpu_name, "%s", r->gpu);
    }
    r->target.num_sms = (int32_t)r->num_sms;
    return CLI_OK;
}
