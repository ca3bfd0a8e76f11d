/*
 * tune_result.h - a decision as JSON: what the worker answers, and what --json prints.
 */
#ifndef GDN_CLI_TUNE_RESULT_H
#define GDN_CLI_TUNE_RESULT_H

#include <cjson/cJSON.h>

#include "cli/cli.h"

/* Adds its members to the object, and takes them from one. Whether there is a decision at all, `decided`, is not among them. */
void cli_tune_result_print(cJSON *object, const gdn_tune_result *result);
void cli_tune_result_read(gdn_tune_result *out, const cJSON *object);

#endif
