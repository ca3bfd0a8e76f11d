/*
 * json.h - JSON from a stranger: read with a size cap, parsed strictly, members checked against a table.
 *
 * What cJSON lets through and this file does not: trailing text, duplicate members, unknown members, numbers that are
 * no integers or out of range, wrong types. Sentences name the file, the object and the member.
 */
#ifndef GDN_CLI_JSON_H
#define GDN_CLI_JSON_H

#include <cjson/cJSON.h>

#include "cli/cli.h"

enum { CLI_JSON_MAX_BYTES = 1 << 20 };

/* The whole of a file of at most cap bytes, with a NUL behind it; path "-" is standard input. cli_free(*text). */
int cli_file_read(const char *path, size_t cap, char **text, size_t *len);
const char *cli_file_name(const char *path); /* what sentences call it */

/* path as above. The caller frees *out with cJSON_Delete. */
int cli_json_read(const char *path, cJSON **out);
/* name: what sentences call the text. text[len] is a NUL. */
int cli_json_parse(const char *name, const char *text, size_t len, cJSON **out);
/* The same of text that begins with another line of its file than the first. */
int cli_json_parse_from(const char *name, int line, const char *text, size_t len, cJSON **out);

enum cli_json_type { CLI_JSON_INT, CLI_JSON_BOOL, CLI_JSON_STRING, CLI_JSON_WORD, CLI_JSON_OBJECT, CLI_JSON_ARRAY };

/* One member that an object may have. `out` keeps its value when the member is absent. */
struct cli_json_field {
    const char *name;
    enum cli_json_type type;
    bool required;
    void *out;         /* int64_t, bool, const char * (lives as long as the tree), int, const cJSON * twice */
    int64_t low, high; /* INT */
    const struct cli_word *words; /* WORD */
};

/* where: "FILE" or "FILE, shape 3". */
int cli_json_object(const char *where, const cJSON *object, const struct cli_json_field *fields, size_t count);

/* Members of what this program wrote itself; "" and 0 where there is none of the type. */
const char *cli_json_text(const cJSON *object, const char *name);
int64_t cli_json_number(const cJSON *object, const char *name);

#endif
