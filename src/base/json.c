/*
 * json.c - owns strict reading of JSON, by the library's errors and memory. Must not know: what the members mean, files.
 * No lock.
 */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

static int refuse(const char *sentence)
{
    return (int)GDN_FAIL(GDN_E_INVALID, "%s", sentence);
}

gdn_status gdni_json_parse(const char *name, const char *text, size_t len, gdni_json **out)
{
    *out = NULL;
    if (len > GDNI_JSON_MAX_BYTES)
        return GDN_FAIL(GDN_E_INVALID, "%s has %zu bytes: at most %d are read", name, len, GDNI_JSON_MAX_BYTES);
    char *copy = gdni_alloc(len + 1);
    if (!copy) return GDN_FAIL(GDN_E_NOMEM, "out of memory: reading %s of %zu bytes", name, len);
    if (len) memcpy(copy, text, len);
    copy[len] = '\0';
    const int refused = gdni_json_read(name, 1, copy, len, refuse, out);
    gdni_free(copy);
    if (refused == GDNI_JSON_NO_MEMORY) return GDN_FAIL(GDN_E_NOMEM, "out of memory: reading %s of %zu bytes", name, len);
    return (gdn_status)refused;
}

void gdni_json_free(gdni_json *root)
{
    cJSON_Delete(root);
}

const gdni_json *gdni_json_first(const gdni_json *array)
{
    return cJSON_IsArray(array) ? array->child : NULL;
}

const gdni_json *gdni_json_next(const gdni_json *item)
{
    return item->next;
}

gdn_status gdni_json_value(const char *where, const gdni_json *item, const struct gdni_json_field *field)
{
    return (gdn_status)gdni_json_take((struct gdni_json_asker){ where, refuse }, item, field);
}

gdn_status gdni_json_object(const char *where, const gdni_json *object, const struct gdni_json_field *fields,
                            size_t count)
{
    return (gdn_status)gdni_json_take_members((struct gdni_json_asker){ where, refuse }, object, fields, count);
}
