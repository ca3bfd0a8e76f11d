/*
 * json.c - owns reading of files, and strict reading of JSON. Must not know: what the members mean.
 */
#include "cli/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "json/value.h"

static int read_all(const char *path, FILE *file, size_t cap, char **text, size_t *len)
{
    char *buf = NULL;
    size_t size = 0, room = 0;
    for (size_t got = 1; got && size <= cap; size += got) {
        if (size == room) room = room ? 2 * room : 1 << 16;
        buf = cli_realloc(buf, room + 1);
        got = fread(buf + size, 1, room - size, file);
    }
    const int error = ferror(file) ? errno : 0;
    if (error || size > cap) {
        cli_free(buf);
        return error ? cli_fail(CLI_USAGE, "cannot read %s: %s", path, strerror(error))
                     : cli_fail(CLI_USAGE, "%s is larger than %zu MiB: split it into several files", path, cap >> 20);
    }
    buf[size] = '\0';
    *text = buf;
    *len = size;
    return CLI_OK;
}

int cli_file_read(const char *path, size_t cap, char **text, size_t *len)
{
    const bool from_stdin = strcmp(path, "-") == 0;
    FILE *file = from_stdin ? stdin : fopen(path, "re");
    if (!file) return cli_fail(CLI_USAGE, "cannot open %s: %s", path, strerror(errno));
    const int code = read_all(cli_file_name(path), file, cap, text, len);
    if (!from_stdin) fclose(file);
    return code;
}

const char *cli_file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int cli_json_read(const char *path, cJSON **out)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(cli_file_read(path, CLI_JSON_MAX_BYTES, &text, &len));
    const int code = cli_json_parse(cli_file_name(path), text, len, out);
    cli_free(text);
    return code;
}

static int line_of(const char *text, int first, const char *at)
{
    int line = first;
    for (const char *p = text; p < at; ++p)
        line += *p == '\n';
    return line;
}

int cli_json_parse(const char *name, const char *text, size_t len, cJSON **out)
{
    return cli_json_parse_from(name, 1, text, len, out);
}

int cli_json_parse_from(const char *name, int line, const char *text, size_t len, cJSON **out)
{
    /* cJSON would take a NUL for the end of the text. */
    const char *nul = memchr(text, '\0', len);
    if (nul) return cli_fail(CLI_USAGE, "%s, line %d: a NUL byte is no JSON", name, line_of(text, line, nul));
    const char *end = text;
    *out = cJSON_ParseWithLengthOpts(text, len + 1, &end, 1); /* the length that it wants counts the NUL */
    if (*out) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s, line %d: not valid JSON near \"%.16s\"", name, line_of(text, line, end), end);
}

static const struct cli_json_field *find_field(const struct cli_json_field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; ++i)
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

static int unknown_member(const char *where, const char *name, const struct cli_json_field *fields, size_t count)
{
    struct cli_names known = { 0 };
    for (size_t i = 0; i < count; ++i)
        cli_names_add(&known, fields[i].name, strlen(fields[i].name));
    char *list = cli_names_join(&known);
    const int code = cli_fail(CLI_USAGE, "%s: \"%.64s\" is no member here: use %s", where, name, list);
    cli_free(list);
    cli_names_free(&known);
    return code;
}

enum { PHRASE = 128 };

/* What the field's type is, in words. */
static const char *wanted(const struct cli_json_field *field, char phrase[PHRASE])
{
    static const char *const types[] = {
        [CLI_JSON_INT] = "an integer",    [CLI_JSON_BOOL] = "true or false", [CLI_JSON_STRING] = "a string",
        [CLI_JSON_OBJECT] = "an object", [CLI_JSON_ARRAY] = "an array",
    };
    if (field->type != CLI_JSON_WORD) return types[field->type];
    cli_word_list(field->words, phrase, PHRASE);
    return phrase;
}

static int refuse_value(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    char is[GDNI_JSON_QUOTED], must_be[PHRASE];
    return cli_fail(CLI_USAGE, "%s: \"%s\" is %s: must be %s", where, field->name, gdni_json_quote(item, is),
                    wanted(field, must_be));
}

static int take_int(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    int64_t n = 0;
    if (!gdni_json_integer(item, &n)) return refuse_value(where, item, field);
    if (n < field->low || n > field->high)
        return cli_fail(CLI_USAGE, "%s: \"%s\" is %lld: must be from %lld to %lld", where, field->name, (long long)n,
                        (long long)field->low, (long long)field->high);
    *(int64_t *)field->out = n;
    return CLI_OK;
}

static int take_bool(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    if (!cJSON_IsBool(item)) return refuse_value(where, item, field);
    *(bool *)field->out = cJSON_IsTrue(item);
    return CLI_OK;
}

static int take_string(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    if (!cJSON_IsString(item)) return refuse_value(where, item, field);
    *(const char **)field->out = item->valuestring;
    return CLI_OK;
}

static int take_word(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    const char *text = cJSON_GetStringValue(item);
    if (text && cli_word_find(field->words, text, strlen(text), field->out)) return CLI_OK;
    return refuse_value(where, item, field);
}

static int take_object(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    if (!cJSON_IsObject(item)) return refuse_value(where, item, field);
    *(const cJSON **)field->out = item;
    return CLI_OK;
}

static int take_array(const char *where, const cJSON *item, const struct cli_json_field *field)
{
    if (!cJSON_IsArray(item)) return refuse_value(where, item, field);
    *(const cJSON **)field->out = item;
    return CLI_OK;
}

typedef int (*take_fn)(const char *where, const cJSON *item, const struct cli_json_field *field);
static const take_fn takers[] = {
    [CLI_JSON_INT] = take_int,   [CLI_JSON_BOOL] = take_bool,     [CLI_JSON_STRING] = take_string,
    [CLI_JSON_WORD] = take_word, [CLI_JSON_OBJECT] = take_object, [CLI_JSON_ARRAY] = take_array,
};

/* cJSON keeps both members of a duplicate pair and answers with the first. */
static int refuse_duplicate(const char *where, const cJSON *item)
{
    for (const cJSON *later = item->next; later; later = later->next)
        if (strcmp(item->string, later->string) == 0)
            return cli_fail(CLI_USAGE, "%s: member \"%.64s\" is given twice: keep one", where, item->string);
    return CLI_OK;
}

static int require(const char *where, const cJSON *object, const struct cli_json_field *fields, size_t count)
{
    char must_be[PHRASE];
    for (size_t i = 0; i < count; ++i)
        if (fields[i].required && !cJSON_GetObjectItemCaseSensitive(object, fields[i].name))
            return cli_fail(CLI_USAGE, "%s: member \"%s\" is missing: must be %s", where, fields[i].name,
                            wanted(&fields[i], must_be));
    return CLI_OK;
}

int cli_json_object(const char *where, const cJSON *object, const struct cli_json_field *fields, size_t count)
{
    if (!cJSON_IsObject(object)) return cli_fail(CLI_USAGE, "%s: must be an object, in braces", where);
    for (const cJSON *item = object->child; item; item = item->next) {
        const struct cli_json_field *field = find_field(fields, count, item->string);
        if (!field) return unknown_member(where, item->string, fields, count);
        CLI_TRY(refuse_duplicate(where, item));
        CLI_TRY(takers[field->type](where, item, field));
    }
    return require(where, object, fields, count);
}

const char *cli_json_text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

int64_t cli_json_number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? (int64_t)item->valuedouble : 0;
}
