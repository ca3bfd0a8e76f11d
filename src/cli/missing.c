/*
 * missing.c - owns what a build leaves out of the cache directory, and the sentence that tells why. Must not know: commands.
 */
#include "cli/missing.h"

#include <string.h>

#include "cli/cache_folders.h"
#include "cli/diagnose.h"
#include "cli/entries.h"

/* Another compiler's entry of the same key is not looked at by an engine that has this one. */
static bool holds(const struct cli_entries *entries, const char *key, const char *compiler)
{
    for (size_t i = 0; i < entries->count; ++i) {
        const struct cli_entry *e = &entries->items[i];
        if (e->valid && strcmp(e->key, key) == 0 && strcmp(e->compiler, compiler) == 0) return true;
    }
    return false;
}

int cli_missing_count(const struct cli_build *b, size_t *missing)
{
    struct cli_entries entries = { 0 };
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    bool examined = false;
    CLI_TRY(cli_entries_find(b->ctx, "", &entries));
    *missing = 0;
    for (size_t i = 0; i < b->num_kernels; ++i) {
        const struct cli_kernel *k = &b->kernels[i];
        if (holds(&entries, k->key, k->compiler)) continue;
        if (!examined) gdn_examine(b->ctx, &doctor); /* a bundle's kernel may be another compiler's; rare: it asks the driver */
        examined = true;
        *missing += !holds(&entries, k->key, doctor.nvrtc);
    }
    cli_entries_free(&entries);
    return CLI_OK;
}

/* Why entries could not be written, as doctor finds out; the cause may be over. */
static int fail_unwritten(const struct cli_build *b, size_t missing, bool any_owner)
{
    const char *dir = gdn_cache_dir(b->ctx);
    struct cli_cache_folders folders;
    cli_try_cache_folders(dir, any_owner, &folders);
    if (folders.untrusted[0])
        return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s is not this user's alone: %s", missing,
                        b->num_kernels, dir, folders.untrusted, cli_owner_remedy);
    if (folders.error)
        return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s cannot be written (%s): %s", missing,
                        b->num_kernels, dir, folders.unwritable, strerror(folders.error),
                        cli_write_remedy(folders.error));
    return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: make it writable, or free space there", missing,
                    b->num_kernels, dir);
}

int cli_missing_fail(const struct cli_build *b, size_t missing, const gdn_cache_stats *stats, bool any_owner)
{
    const char *remedy = stats->evicted ? "the size cap evicted them: raise GDN_JIT_CACHE_MAX_BYTES"
                                        : "they were found in a bundle: unset GDN_JIT_BUNDLE_PATH to build them here";
    if (stats->publish_failures) return fail_unwritten(b, missing, any_owner);
    return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s", missing, b->num_kernels, gdn_cache_dir(b->ctx),
                    remedy);
}
