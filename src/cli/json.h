/*
 * json.h - JSON from a stranger: read with a size cap, parsed strictly, members checked against a table, as the library reads
 * it (src/json). A failure is CLI_USAGE; sentences name the file, the object and the member.
 */
#ifndef GDN_CLI_JSON_H
#define GDN_CLI_JSON_H

#include <cjson/cJSON.h>

#include "cli/cli.h"
#include "json/members.h"

enum { CLI_JSON_MAX_BYTES = 1 << 20 };

bool cli_file_is_stdin(const char *path); /* "-" */
/* The whole of a file of at most cap bytes, with a NUL behind it; path "-" is standard input. cli_free(*text). */
int cli_file_read(const char *path, size_t cap, char **text, size_t *len);
const char *cli_file_name(const char *path); /* what sentences call it */

/* path as above. The caller frees *out with cJSON_Delete. */
int cli_json_read(const char *path, cJSON **out);
/* name: what sentences call the text. text[len] is a NUL. */
int cli_json_parse(const char *name, const char *text, size_t len, cJSON **out);
/* The same of text that begins with another line of its file than the first. */
int cli_json_parse_from(const char *name, int line, const char *text, size_t len, cJSON **out);

/* where: "FILE" or "FILE, shape 3". */
int cli_json_object(const char *where, const cJSON *object, const struct gdni_json_field *fields, size_t count);

/* Members of what this program or the library wrote; "" where there is no such text, 0 where there is no such integer. */
const char *cli_json_text(const cJSON *object, const char *name);
int64_t cli_json_number(const cJSON *object, const char *name);

#endif
