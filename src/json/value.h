/*
 * value.h - one value that cJSON has read, as an integer and as sentences quote it: what the library's reader (src/base/json.h)
 * and the tool's (src/cli/json.h) ask alike. Must not know: members, errors.
 */
#ifndef GDNI_JSON_VALUE_H
#define GDNI_JSON_VALUE_H

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

enum { GDNI_JSON_QUOTED = 72 }; /* bytes of the longest quote */

/* False, and *out as it was: it is no number, or none that a double holds as an integer (up to 2^53 either way). */
bool gdni_json_integer(const struct cJSON *item, int64_t *out);

/* What is long is cut off, what is nested named by its kind. phrase is room for it. */
const char *gdni_json_quote(const struct cJSON *item, char phrase[GDNI_JSON_QUOTED]);

#endif
