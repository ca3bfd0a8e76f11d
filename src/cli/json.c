/*
 * json.c - owns reading of files, and strict reading of JSON, by the tool's errors. Must not know: what the members mean.
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

bool cli_file_is_stdin(const char *path)
{
    return strcmp(path, "-") == 0;
}

int cli_file_read(const char *path, size_t cap, char **text, size_t *len)
{
    const bool from_stdin = cli_file_is_stdin(path);
    FILE *file = from_stdin ? stdin : fopen(path, "re");
    if (!file) return cli_fail(CLI_USAGE, "cannot open %s: %s", path, strerror(errno));
    const int code = read_all(cli_file_name(path), file, cap, text, len);
    if (!from_stdin) fclose(file);
    return code;
}

const char *cli_file_name(const char *path)
{
    return cli_file_is_stdin(path) ? "standard input" : path;
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

static int refuse(const char *sentence)
{
    return cli_fail(CLI_USAGE, "%s", sentence);
}

int cli_json_parse(const char *name, const char *text, size_t len, cJSON **out)
{
    return cli_json_parse_from(name, 1, text, len, out);
}

int cli_json_parse_from(const char *name, int line, const char *text, size_t len, cJSON **out)
{
    const int refused = gdni_json_read(name, line, text, len, refuse, out);
    if (refused == GDNI_JSON_NO_MEMORY) cli_out_of_memory();
    return refused;
}

int cli_json_object(const char *where, const cJSON *object, const struct gdni_json_field *fields, size_t count)
{
    return gdni_json_take_members((struct gdni_json_asker){ where, refuse }, object, fields, count);
}

const char *cli_json_text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

int64_t cli_json_number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    int64_t n = 0;
    if (item) gdni_json_integer(item, &n);
    return n;
}
