/*
 * members.c - owns the check of values and members against a table. Must not know: files, what the members mean.
 */
#include "json/members.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "json/value.h"

/* ---- what sentences list ---- */

enum { PHRASE = 256, NAMES = 2048 };

/* Appends as much as fits, and nothing when that is not all: false. */
static bool append(char *out, size_t size, size_t *len, const char *joint, const char *word)
{
    const size_t before = strlen(joint), more = strlen(word);
    if (*len + before + more >= size) return false;
    memcpy(out + *len, joint, before);
    memcpy(out + *len + before, word, more + 1);
    *len += before + more;
    return true;
}

void gdni_json_list_words(const struct gdni_json_word *words, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct gdni_json_word *w = words; w->name; ++w)
        if (!append(out, size, &len, w == words ? "" : w[1].name ? ", " : " or ", w->name)) return;
}

static void list_names(const struct gdni_json_field *fields, size_t count, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count; ++i)
        if (!append(out, size, &len, i ? ", " : "", fields[i].name)) return;
}

/* What the field's type is, in words. */
static const char *wanted(const struct gdni_json_field *field, char phrase[PHRASE])
{
    static const char *const types[] = {
        [GDNI_JSON_INT] = "an integer",   [GDNI_JSON_BOOL] = "true or false", [GDNI_JSON_STRING] = "a string",
        [GDNI_JSON_OBJECT] = "an object", [GDNI_JSON_ARRAY] = "an array",
    };
    if (field->type != GDNI_JSON_WORD) return types[field->type];
    gdni_json_list_words(field->words, phrase, PHRASE);
    return phrase;
}

/* ---- values ---- */

static int refuse_value(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    char is[GDNI_JSON_QUOTED], must_be[PHRASE];
    return gdni_json_refuse(asker.fail, "%s: \"%s\" is %s: must be %s", asker.where, field->name,
                            gdni_json_quote(item, is), wanted(field, must_be));
}

static int take_int(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    int64_t n = 0;
    if (!gdni_json_integer(item, &n)) return refuse_value(asker, item, field);
    if (n < field->low || n > field->high)
        return gdni_json_refuse(asker.fail, "%s: \"%s\" is %lld: must be from %lld to %lld", asker.where, field->name,
                                (long long)n, (long long)field->low, (long long)field->high);
    *(int64_t *)field->out = n;
    return 0;
}

static int take_bool(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsBool(item)) return refuse_value(asker, item, field);
    *(bool *)field->out = cJSON_IsTrue(item);
    return 0;
}

static int take_string(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsString(item)) return refuse_value(asker, item, field);
    *(const char **)field->out = item->valuestring;
    return 0;
}

static int take_word(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    for (const struct gdni_json_word *w = field->words; cJSON_IsString(item) && w->name; ++w)
        if (strcmp(w->name, item->valuestring) == 0) {
            *(int *)field->out = w->value;
            return 0;
        }
    return refuse_value(asker, item, field);
}

static int take_object(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsObject(item)) return refuse_value(asker, item, field);
    *(const cJSON **)field->out = item;
    return 0;
}

static int take_array(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsArray(item)) return refuse_value(asker, item, field);
    *(const cJSON **)field->out = item;
    return 0;
}

int gdni_json_take(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field)
{
    typedef int take_fn(struct gdni_json_asker asker, const cJSON *item, const struct gdni_json_field *field);
    static take_fn *const takers[] = {
        [GDNI_JSON_INT] = take_int,   [GDNI_JSON_BOOL] = take_bool,     [GDNI_JSON_STRING] = take_string,
        [GDNI_JSON_WORD] = take_word, [GDNI_JSON_OBJECT] = take_object, [GDNI_JSON_ARRAY] = take_array,
    };
    return takers[field->type](asker, item, field);
}

/* ---- objects ---- */

/* Index of the field of that name, `count` when there is none. likely: writers follow their tables, one after the other. */
static size_t find_field(const struct gdni_json_field *fields, size_t count, const char *name, size_t likely)
{
    if (likely < count && strcmp(fields[likely].name, name) == 0) return likely;
    for (size_t i = 0; i < count; ++i)
        if (strcmp(fields[i].name, name) == 0) return i;
    return count;
}

static int refuse_unknown(struct gdni_json_asker asker, const char *name, const struct gdni_json_field *fields,
                          size_t count)
{
    char names[NAMES];
    list_names(fields, count, names, sizeof names);
    return gdni_json_refuse(asker.fail, "%s: \"%.64s\" is no member here: use %s", asker.where, name, names);
}

static int require_members(struct gdni_json_asker asker, uint64_t seen, const struct gdni_json_field *fields,
                           size_t count)
{
    char must_be[PHRASE];
    for (size_t i = 0; i < count; ++i)
        if (fields[i].required && !(seen >> i & 1))
            return gdni_json_refuse(asker.fail, "%s: member \"%s\" is missing: must be %s", asker.where, fields[i].name,
                                    wanted(&fields[i], must_be));
    return 0;
}

/* cJSON keeps both members of a duplicate pair and answers with the first. */
int gdni_json_take_members(struct gdni_json_asker asker, const cJSON *object, const struct gdni_json_field *fields,
                           size_t count)
{
    uint64_t seen = 0;
    size_t at = 0;
    if (!cJSON_IsObject(object)) return gdni_json_refuse(asker.fail, "%s: must be an object, in braces", asker.where);
    if (count > GDNI_JSON_MAX_FIELDS)
        return gdni_json_refuse(asker.fail, "%s: a table of %zu members: at most %d", asker.where, count, GDNI_JSON_MAX_FIELDS);
    for (const cJSON *item = object->child; item; item = item->next, ++at) {
        at = find_field(fields, count, item->string, at);
        if (at == count) return refuse_unknown(asker, item->string, fields, count);
        if (seen >> at & 1)
            return gdni_json_refuse(asker.fail, "%s: member \"%.64s\" is given twice: keep one", asker.where, item->string);
        seen |= (uint64_t)1 << at;
        const int refused = gdni_json_take(asker, item, &fields[at]);
        if (refused) return refused;
    }
    return require_members(asker, seen, fields, count);
}
