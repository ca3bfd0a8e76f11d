/*
 * tuning_api.h - tuning files of a path, for gdn_ctx_create(); the rest of tuning_api.c is public.
 */
#ifndef GDNI_TUNING_API_H
#define GDNI_TUNING_API_H

#include <stdbool.h>

#include "runtime/tuning_db.h"

struct gdn_ctx;

/* Takes in the ':'-separated files in turn; NULL and "" are none. A bad one is a warning in the log. false: out of memory. */
bool gdni_tuning_load_path(struct gdn_ctx *ctx, const char *path);

/* One file's bytes as a table, for gdni_tuning_table_free(). */
gdn_status gdni_tuning_read(struct gdni_tuning_table *out, const char *path);

/* A table as a file, whole or not at all. */
gdn_status gdni_tuning_write(const struct gdni_tuning_table *table, const char *path);

#endif
