/*
 * entries.h - entries of the cache directory or a bundle, copied out of the library's callbacks.
 */
#ifndef GDN_CLI_ENTRIES_H
#define GDN_CLI_ENTRIES_H

#include "cli/json.h"

struct cli_entry {
    char *path, *arch, *kernel, *compiler, *options; /* "" in a damaged entry, but for path */
    char *problem;                                   /* "" in any other */
    char key[40];                                    /* hex digits, which are also what the file is called */
    uint64_t bytes;
    int64_t mtime;
    int32_t registers, spill_bytes, local_bytes, static_smem;
    bool valid;
};

struct cli_entries {
    struct cli_entry *items;
    size_t count;
};

/* Entries whose key begins with prefix; "" is all. */
int cli_entries_find(gdn_ctx *ctx, const char *prefix, struct cli_entries *out);
/* A gdn_cache_entry_fn: adds a copy to the struct cli_entries that user is. */
int cli_entries_keep(void *user, const gdn_cache_entry *entry);
void cli_entries_free(struct cli_entries *entries);
/*
 * Of entries that were to be removed, leaves those that went and moves into stayed those that could not. What somebody has
 * used or published since is in neither.
 */
void cli_entries_split(struct cli_entries *gone, struct cli_entries *stayed);
/* The sentence for those that stayed: how many (size_t), of which directory, the first one's path. */
#define CLI_STAYED                                                                                                     \
    "%zu of the entries in %s could not be removed, the first of them %s: its folder must belong to this user and "    \
    "be writable for nobody else (chmod go-w), or --shared-cache be given if a group shares it"

/* Adds the entries to an object, as an array of this name. */
void cli_entries_json(cJSON *object, const char *name, const struct cli_entries *entries);
/* Adds the members of a report to an object. */
void cli_report_json(cJSON *object, const gdn_cache_report *report);

#endif
