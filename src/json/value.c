/*
 * value.c - owns what an integer is in JSON, and how a value is quoted.
 */
#include "json/value.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

bool gdni_json_integer(const cJSON *item, int64_t *out)
{
    const double value = item->valuedouble;
    /* Up to 2^53 a double holds every integer; the range check comes first, for infinities and for the conversion. */
    const bool exact = value >= -0x1p53 && value <= 0x1p53 && (double)(int64_t)value == value;
    if (!cJSON_IsNumber(item) || !exact) return false;
    *out = (int64_t)value;
    return true;
}

/* With a point, whatever the embedder's locale has in its place, of however many bytes. */
static void print_number(char phrase[GDNI_JSON_QUOTED], double value)
{
    char text[GDNI_JSON_QUOTED];
    size_t len = 0;
    snprintf(text, sizeof text, "%.17g", value);
    for (const char *c = text; *c; ++c) {
        const bool known = strchr("0123456789+-einfa", *c);
        if (known || len == 0 || phrase[len - 1] != '.') phrase[len++] = known ? *c : '.';
    }
    phrase[len] = '\0';
}

const char *gdni_json_quote(const cJSON *item, char phrase[GDNI_JSON_QUOTED])
{
    if (cJSON_IsArray(item)) return "an array";
    if (cJSON_IsObject(item)) return "an object";
    if (cJSON_IsNull(item)) return "null";
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
    if (cJSON_IsNumber(item))
        print_number(phrase, item->valuedouble);
    else
        snprintf(phrase, GDNI_JSON_QUOTED, "\"%.64s\"", item->valuestring);
    return phrase;
}
