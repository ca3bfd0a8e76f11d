/*
 * plan_facts.h - what gdn_plan_dump() says about a plan, as data.
 */
#ifndef GDN_CLI_PLAN_FACTS_H
#define GDN_CLI_PLAN_FACTS_H

#include "cli/json.h"

/* The plan's GDN_DUMP_JSON; the caller frees it with cJSON_Delete. */
int cli_plan_json(const gdn_plan *plan, cJSON **out);

/* Writes a dump to standard output. */
int cli_plan_print(const gdn_plan *plan, gdn_dump_kind kind);

/* Prints a tree on standard output and frees it. */
void cli_print_json(cJSON *root);

#endif
