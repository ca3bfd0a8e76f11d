/*
 * text.h - text as cJSON may see it: what is no JSON is refused before, and what cJSON lets through and nobody here means to
 * take. Must not know: members, files.
 */
#ifndef GDNI_JSON_TEXT_H
#define GDNI_JSON_TEXT_H

#include <stddef.h>

struct cJSON;

enum { GDNI_JSON_MAX_DEPTH = 16 };

/* How a reader fails: keeps the sentence, and says what the reader is to return, which is not 0. */
typedef int gdni_json_fail_fn(const char *sentence);
/* fail, with the sentence that format makes. */
int gdni_json_refuse(gdni_json_fail_fn *fail, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { GDNI_JSON_NO_MEMORY = -1 }; /* fail was not called: the text may be good */

/*
 * 0, what fail said, or GDNI_JSON_NO_MEMORY. name: what sentences call the text, "FILE"; line: the number of its first line.
 * text[len] is a NUL. The tree is cJSON's, for cJSON_Delete().
 */
int gdni_json_read(const char *name, int line, const char *text, size_t len, gdni_json_fail_fn *fail,
                   struct cJSON **out);

#endif
