/*
 * missing.h - kernels of a build that the cache directory does not hold when it is over.
 */
#ifndef GDN_CLI_MISSING_H
#define GDN_CLI_MISSING_H

#include "cli/build.h"

/*
 * How many of the kernels the directory does not hold, whatever the reason: it could not be written, its size cap evicted
 * them, or they were found in a bundle, which is another place.
 */
int cli_missing_count(const struct cli_build *b, size_t *missing);
/* Fails with the sentence for them: the likeliest cause that the library's counters show. any_owner: --shared-cache. */
int cli_missing_fail(const struct cli_build *b, size_t missing, const gdn_cache_stats *stats, bool any_owner);

#endif
