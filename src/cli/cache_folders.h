/*
 * cache_folders.h - whether what is compiled can be kept: every folder of the cache directory that an entry may go to.
 */
#ifndef GDN_CLI_CACHE_FOLDERS_H
#define GDN_CLI_CACHE_FOLDERS_H

#include "cli/cli.h"

/* The first of each; "" and 0: none. */
struct cli_cache_folders {
    int error; /* errno of writing into `unwritable` */
    char unwritable[512];
    char untrusted[512]; /* the library believes nothing in it, and keeps nothing there */
};

/* any_owner: as with --shared-cache. */
void cli_try_cache_folders(const char *dir, bool any_owner, struct cli_cache_folders *out);

#endif
