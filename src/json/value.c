/*
 * value.c - owns what an integer is in JSON, and how a value is quoted.
 */
#include "json/value.h"

#include <cjson/cJSON.h>
#include <stdio.h>

bool gdni_json_integer(const cJSON *item, int64_t *out)
{
    const double value = item->valuedouble;
    /* Up to 2^53 a double holds every integer; the range check comes first, for infinities and for the conversion. */
    const bool exact = value >= -0x1p53 && value <= 0x1p53 && (double)(int64_t)value == value;
    if (!cJSON_IsNumber(item) || !exact) return false;
    *out = (int64_t)value;
    return true;
}

const char *gdni_json_quote(const cJSON *item, char phrase[GDNI_JSON_QUOTED])
{
    if (cJSON_IsArray(item)) return "an array";
    if (cJSON_IsObject(item)) return "an object";
    if (cJSON_IsNull(item)) return "null";
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
    if (cJSON_IsNumber(item))
        snprintf(phrase, GDNI_JSON_QUOTED, "%.17g", item->valuedouble);
    else
        snprintf(phrase, GDNI_JSON_QUOTED, "\"%.64s\"", item->valuestring);
    return phrase;
}
