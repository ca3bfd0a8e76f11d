/*
 * cache_report.h - what verify, prune and pack share: their arguments checked, their counts.
 */
#ifndef GDNI_CACHE_REPORT_H
#define GDNI_CACHE_REPORT_H

#include <time.h>

#include "runtime/cache_file.h"

/* ctx, flags and out as every one of them wants them; known: flags that there are, names: theirs, for the sentence. */
gdn_status gdni_cache_check_call(const gdn_ctx *ctx, uint32_t flags, uint32_t known, const char *names,
                                 const gdn_cache_report *out);

/* The cache directory of ctx; GDN_E_IO when cubins are kept in memory only, with the reason. */
gdn_status gdni_cache_need_dir(const gdn_ctx *ctx, const struct gdni_cache_dir **out);

/* Counts a temporary file that nobody writes to any more, and removes it if told so. Others are nobody's business. */
void gdni_cache_take_temporary(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, time_t now,
                               bool remove, gdn_cache_report *report);

/* bundle.c: verifies the bundle at path against its manifest, and counts. */
gdn_status gdni_bundle_verify(const char *path, gdn_cache_entry_fn fn, void *user, gdn_cache_report *report);

#endif
