/*
 * bundles.h - the directories that GDN_JIT_BUNDLE_PATH names: each verified, as doctor tells of it.
 */
#ifndef GDN_CLI_BUNDLES_H
#define GDN_CLI_BUNDLES_H

#include "cli/diagnose.h"

/* list: the variable's value; NULL: none. Those for which facts have no room are left out. */
void cli_examine_bundles(gdn_ctx *ctx, const char *list, struct cli_facts *facts);

#endif
