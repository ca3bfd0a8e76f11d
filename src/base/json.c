/*
 * json.c - owns strict reading of JSON. Must not know: what the members mean, files. No lock.
 *
 * cJSON has two process-wide things, allocation hooks and the pointer of cJSON_GetErrorPtr(): neither is used. Its memory
 * comes from malloc() for that reason, not from mem.h.
 */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "json/value.h"

/* ---- before cJSON sees the text ---- */

struct scan {
    const char *name, *at, *end;
    int line, depth;
};

static gdn_status refuse(const struct scan *s, const char *what)
{
    return GDN_FAIL(GDN_E_INVALID, "%s, line %d: %s", s->name, s->line, what);
}

/* Length of the UTF-8 sequence at s->at, 0 when it is none: surrogates, overlong forms and what passes U+10FFFF included. */
static int utf8_length(const struct scan *s)
{
    static const struct {
        unsigned char low, high; /* of the first byte */
        unsigned char next_low, next_high;
        int length;
    } forms[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    const unsigned char *p = (const unsigned char *)s->at;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
        const int length = forms[i].length;
        if (*p < forms[i].low || *p > forms[i].high) continue;
        if (s->end - s->at < length || p[1] < forms[i].next_low || p[1] > forms[i].next_high) return 0;
        for (int k = 2; k < length; ++k)
            if (p[k] < 0x80 || p[k] > 0xbf) return 0;
        return length;
    }
    return 0;
}

/* Behind the opening quote; leaves s->at behind the closing one. An open string is cJSON's to refuse. */
static gdn_status scan_string(struct scan *s)
{
    while (s->at < s->end && *s->at != '"') {
        const unsigned char c = (unsigned char)*s->at;
        if (c < 0x20 || c == 0x7f) return refuse(s, "a control character in a string must be written as an escape");
        const int length = c < 0x80 ? 1 : utf8_length(s);
        if (length == 0) return refuse(s, "the text is not UTF-8");
        if (c == '\\' && s->end - s->at >= 6 && memcmp(s->at + 1, "u0000", 5) == 0)
            return refuse(s, "\\u0000 is not taken: it would end the string");
        s->at += c == '\\' && s->end - s->at >= 2 && s->at[1] >= 0x20 && s->at[1] < 0x7f ? 2 : length;
    }
    if (s->at < s->end) ++s->at;
    return GDN_OK;
}

static gdn_status scan_byte(struct scan *s)
{
    const char c = *s->at++;
    s->line += c == '\n';
    if (c == '"') return scan_string(s);
    if (c == '{' || c == '[') ++s->depth;
    if (c == '}' || c == ']') --s->depth;
    if (s->depth > GDNI_JSON_MAX_DEPTH) return refuse(s, "nested deeper than 16 levels");
    if ((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t' || c == '\r') return GDN_OK;
    return refuse(s, "a byte that is no JSON");
}

static gdn_status scan_text(const char *name, const char *text, size_t len)
{
    struct scan s = { .name = name, .at = text, .end = text + len, .line = 1 };
    while (s.at < s.end)
        GDN_TRY(scan_byte(&s));
    return GDN_OK;
}

/* ---- parse ---- */

static int line_of(const char *text, const char *at)
{
    int line = 1;
    for (const char *p = text; p < at; ++p)
        line += *p == '\n';
    return line;
}

gdn_status gdni_json_parse(const char *name, const char *text, size_t len, gdni_json **out)
{
    *out = NULL;
    if (len > GDNI_JSON_MAX_BYTES)
        return GDN_FAIL(GDN_E_INVALID, "%s has %zu bytes: at most %d are read", name, len, GDNI_JSON_MAX_BYTES);
    GDN_TRY(scan_text(name, text, len));
    char *copy = gdni_alloc(len + 1);
    if (!copy) return GDN_FAIL(GDN_E_NOMEM, "out of memory: reading %s of %zu bytes", name, len);
    if (len) memcpy(copy, text, len);
    copy[len] = '\0';
    const char *end = copy;
    *out = cJSON_ParseWithLengthOpts(copy, len + 1, &end, 1); /* the length that it wants counts the NUL */
    const gdn_status status =
        *out ? GDN_OK
             : GDN_FAIL(GDN_E_INVALID, "%s, line %d: not valid JSON near \"%.16s\"", name, line_of(copy, end), end);
    gdni_free(copy);
    return status;
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

/* ---- values ---- */

/* "a, b or c", as much of it as fits. */
static void list_words(const struct gdni_json_word *words, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct gdni_json_word *w = words; w->name; ++w) {
        const char *joint = w == words ? "" : w[1].name ? ", " : " or ";
        if (len + strlen(joint) + strlen(w->name) >= size) return;
        memcpy(out + len, joint, strlen(joint));
        len += strlen(joint);
        memcpy(out + len, w->name, strlen(w->name) + 1);
        len += strlen(w->name);
    }
}

enum { PHRASE = 256 };

/* What the field's type is, in words. */
static const char *wanted(const struct gdni_json_field *field, char phrase[PHRASE])
{
    static const char *const types[] = {
        [GDNI_JSON_INT] = "an integer",    [GDNI_JSON_BOOL] = "true or false", [GDNI_JSON_STRING] = "a string",
        [GDNI_JSON_OBJECT] = "an object", [GDNI_JSON_ARRAY] = "an array",
    };
    if (field->type != GDNI_JSON_WORD) return types[field->type];
    list_words(field->words, phrase, PHRASE);
    return phrase;
}

static gdn_status refuse_value(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    char is[GDNI_JSON_QUOTED], must_be[PHRASE];
    return GDN_FAIL(GDN_E_INVALID, "%s: \"%s\" is %s: must be %s", where, field->name, gdni_json_quote(item, is),
                    wanted(field, must_be));
}

static gdn_status take_int(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    int64_t n = 0;
    if (!gdni_json_integer(item, &n)) return refuse_value(where, item, field);
    if (n < field->low || n > field->high)
        return GDN_FAIL(GDN_E_INVALID, "%s: \"%s\" is %lld: must be from %lld to %lld", where, field->name,
                        (long long)n, (long long)field->low, (long long)field->high);
    *(int64_t *)field->out = n;
    return GDN_OK;
}

static gdn_status take_bool(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsBool(item)) return refuse_value(where, item, field);
    *(bool *)field->out = cJSON_IsTrue(item);
    return GDN_OK;
}

static gdn_status take_string(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsString(item)) return refuse_value(where, item, field);
    *(const char **)field->out = item->valuestring;
    return GDN_OK;
}

static gdn_status take_word(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    for (const struct gdni_json_word *w = field->words; cJSON_IsString(item) && w->name; ++w)
        if (strcmp(w->name, item->valuestring) == 0) {
            *(int *)field->out = w->value;
            return GDN_OK;
        }
    return refuse_value(where, item, field);
}

static gdn_status take_object(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsObject(item)) return refuse_value(where, item, field);
    *(const gdni_json **)field->out = item;
    return GDN_OK;
}

static gdn_status take_array(const char *where, const cJSON *item, const struct gdni_json_field *field)
{
    if (!cJSON_IsArray(item)) return refuse_value(where, item, field);
    *(const gdni_json **)field->out = item;
    return GDN_OK;
}

gdn_status gdni_json_value(const char *where, const gdni_json *item, const struct gdni_json_field *field)
{
    typedef gdn_status take_fn(const char *where, const cJSON *item, const struct gdni_json_field *field);
    static take_fn *const takers[] = {
        [GDNI_JSON_INT] = take_int,   [GDNI_JSON_BOOL] = take_bool,     [GDNI_JSON_STRING] = take_string,
        [GDNI_JSON_WORD] = take_word, [GDNI_JSON_OBJECT] = take_object, [GDNI_JSON_ARRAY] = take_array,
    };
    return takers[field->type](where, item, field);
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

static gdn_status require_members(const char *where, uint64_t seen, const struct gdni_json_field *fields, size_t count)
{
    char must_be[PHRASE];
    for (size_t i = 0; i < count; ++i)
        if (fields[i].required && !(seen >> i & 1))
            return GDN_FAIL(GDN_E_INVALID, "%s: member \"%s\" is missing: must be %s", where, fields[i].name,
                            wanted(&fields[i], must_be));
    return GDN_OK;
}

/* cJSON keeps both members of a duplicate pair and answers with the first. */
gdn_status gdni_json_object(const char *where, const gdni_json *object, const struct gdni_json_field *fields,
                            size_t count)
{
    uint64_t seen = 0;
    size_t at = 0;
    if (!cJSON_IsObject(object)) return GDN_FAIL(GDN_E_INVALID, "%s: must be an object, in braces", where);
    if (count > GDNI_JSON_MAX_FIELDS)
        return GDN_FAIL(GDN_E_INVALID, "%s: a table of %zu members: at most %d", where, count, GDNI_JSON_MAX_FIELDS);
    for (const cJSON *item = object->child; item; item = item->next, ++at) {
        at = find_field(fields, count, item->string, at);
        if (at == count) return GDN_FAIL(GDN_E_INVALID, "%s: \"%.64s\" is no member here: remove it", where, item->string);
        if (seen >> at & 1)
            return GDN_FAIL(GDN_E_INVALID, "%s: member \"%.64s\" is given twice: keep one", where, item->string);
        seen |= (uint64_t)1 << at;
        GDN_TRY(gdni_json_value(where, item, &fields[at]));
    }
    return require_members(where, seen, fields, count);
}
