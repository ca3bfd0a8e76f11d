/*
 * json.h - JSON from a stranger, as the library reads it: src/json, with which it is the one place of the library that knows
 * cJSON. A failure is GDN_E_INVALID with a sentence that names the text, the object and the member; or GDN_E_NOMEM.
 *
 * What cJSON lets through and src/json does not: trailing text, NUL bytes and \u0000, control characters, text that is no
 * UTF-8, deep nesting, duplicate members, unknown members, numbers that are no integers or out of range, wrong types.
 *
 * Whoever reads a file caps its size before, by GDNI_JSON_MAX_BYTES or less; longer text is refused here too. JSON is
 * written by strbuf.h.
 */
#ifndef GDNI_JSON_H
#define GDNI_JSON_H

#include <stddef.h>

#include "gdn_jit/gdn_jit.h"
#include "json/members.h"

typedef struct cJSON gdni_json; /* a value, owned by the tree that gdni_json_parse() made */

enum { GDNI_JSON_MAX_BYTES = 8 << 20 };

/* name: what sentences call the text, "FILE". text needs no NUL. gdni_json_free() ends the whole tree. */
gdn_status gdni_json_parse(const char *name, const char *text, size_t len, gdni_json **out);
void gdni_json_free(gdni_json *root); /* NULL is allowed */

/* where: "FILE" or "FILE, entry 3". Every member of object is in fields, at most once; what is required is there. */
gdn_status gdni_json_object(const char *where, const gdni_json *object, const struct gdni_json_field *fields,
                            size_t count);

/* One value outside an object, for the items of an array: as the field says, whose name is what sentences call the item. */
gdn_status gdni_json_value(const char *where, const gdni_json *item, const struct gdni_json_field *field);

/* Items of an array in order; NULL at its end. */
const gdni_json *gdni_json_first(const gdni_json *array);
const gdni_json *gdni_json_next(const gdni_json *item);

#endif
