/*
 * tune_result.c - owns which members of a gdn_tune_result are written, and under which names. Must not know: who reads them.
 */
#include "cli/tune_result.h"

#include <stddef.h>
#include <stdio.h>

#include "cli/json.h"

#define MEMBER(name) #name, offsetof(gdn_tune_result, name)

static const struct {
    const char *name;
    size_t offset, size;
} texts[] = { { MEMBER(params), sizeof((gdn_tune_result *)0)->params },
              { MEMBER(heuristic_params), sizeof((gdn_tune_result *)0)->heuristic_params },
              { MEMBER(verdict), sizeof((gdn_tune_result *)0)->verdict } };

static const struct {
    const char *name;
    size_t offset; /* of an int64_t */
} times[] = { { MEMBER(ns) },      { MEMBER(mad_ns) },       { MEMBER(cold_ns) },
              { MEMBER(warm_ns) }, { MEMBER(heuristic_ns) }, { MEMBER(heuristic_mad_ns) } };

enum { NUM_TEXTS = sizeof texts / sizeof texts[0], NUM_TIMES = sizeof times / sizeof times[0] };

void cli_tune_result_print(cJSON *object, const gdn_tune_result *result)
{
    const char *const base = (const char *)result;
    for (int i = 0; i < NUM_TEXTS; ++i)
        cJSON_AddStringToObject(object, texts[i].name, base + texts[i].offset);
    for (int i = 0; i < NUM_TIMES; ++i)
        cJSON_AddNumberToObject(object, times[i].name, (double)*(const int64_t *)(const void *)(base + times[i].offset));
    cJSON_AddNumberToObject(object, "samples", result->samples);
}

void cli_tune_result_read(gdn_tune_result *out, const cJSON *object)
{
    char *const base = (char *)out;
    for (int i = 0; i < NUM_TEXTS; ++i)
        snprintf(base + texts[i].offset, texts[i].size, "%s", cli_json_text(object, texts[i].name));
    for (int i = 0; i < NUM_TIMES; ++i)
        *(int64_t *)(void *)(base + times[i].offset) = cli_json_number(object, times[i].name);
    out->samples = (int32_t)cli_json_number(object, "samples");
}
