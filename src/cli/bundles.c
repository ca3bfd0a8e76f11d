/*
 * bundles.c - owns the verification of every directory of GDN_JIT_BUNDLE_PATH. Must not know: what an answer means.
 */
#include "cli/bundles.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int on_problem(void *user, const gdn_cache_entry *entry)
{
    struct cli_bundle *b = user;
    if (!b->problem[0]) snprintf(b->problem, sizeof b->problem, "%s: %s", entry->path, entry->problem);
    return 0;
}

/* Whoever owns it, as a bundle is read. */
static gdn_status verify_cache(struct cli_bundle *b)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    config.cache_dir = b->path;
    config.flags = GDN_CTX_NO_ENV | GDN_CTX_SHARED_CACHE;
    gdn_status status = gdn_ctx_create(&ctx, &config);
    if (status == GDN_OK) status = gdn_cache_verify(ctx, NULL, 0, on_problem, b, &b->report);
    gdn_ctx_destroy(ctx);
    return status;
}

/* A cache directory may be named too, which has no manifest, and no need of one. */
static bool is_cache(const char *path)
{
    char name[CLI_SENTENCE + 32];
    snprintf(name, sizeof name, "%s/manifest.json", path);
    if (access(name, F_OK) == 0 || errno != ENOENT) return false;
    snprintf(name, sizeof name, "%s/.", path);
    return access(name, F_OK) == 0;
}

static void examine(gdn_ctx *ctx, struct cli_bundle *b)
{
    b->report = (gdn_cache_report)GDN_CACHE_REPORT_INIT;
    const gdn_status status =
        is_cache(b->path) ? verify_cache(b) : gdn_cache_verify(ctx, b->path, 0, on_problem, b, &b->report);
    b->readable = status == GDN_OK;
    if (!b->readable) snprintf(b->problem, sizeof b->problem, "%s", gdn_last_error());
}

void cli_examine_bundles(gdn_ctx *ctx, const char *list, struct cli_facts *facts)
{
    while (list && *list && facts->num_bundles < CLI_MAX_BUNDLES) {
        const size_t len = strcspn(list, ":");
        struct cli_bundle *b = &facts->bundles[facts->num_bundles];
        snprintf(b->path, sizeof b->path, "%.*s", (int)len, list);
        if (len) examine(ctx, b); /* the library passes over an empty name */
        facts->num_bundles += len != 0;
        list += len + (list[len] == ':');
    }
}
