/*
 * cache_api.c - owns the public view of the cache: counters, directory, list. Must not know: lookup, publication. No lock.
 */
#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/cache_file.h"
#include "runtime/context.h"

static uint64_t value_of(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

gdn_status gdn_cache_stat(gdn_ctx *ctx, gdn_cache_stats *out)
{
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    GDN_TRY(GDNI_CHECK_OUT(gdn_cache_stats, out));
    struct gdni_counters *c = &ctx->counters;
    const gdn_cache_stats stats = {
        .memory_hits = value_of(&c->memory_hits),
        .disk_hits = value_of(&c->disk_hits),
        .misses = value_of(&c->misses),
        .compiles = value_of(&c->compiles),
        .compile_usec = value_of(&c->compile_usec),
        .corrupt = value_of(&c->corrupt),
        .evicted = value_of(&c->evicted),
        .publish_failures = value_of(&c->publish_failures),
    };
    gdni_give_struct(out, &stats, sizeof stats);
    return GDN_OK;
}

const char *gdn_cache_dir(const gdn_ctx *ctx)
{
    return ctx ? gdni_cache_user_dir(ctx->cache)->path : NULL;
}

/* ---- list ---- */

static gdn_status list_file(const struct gdni_cache_viewer *viewer, const struct gdni_cache_file *file)
{
    struct gdni_cache_item item;
    gdn_status status;
    if (!gdni_cache_file_read(viewer->dir, file, &item, &status)) return status;
    status = gdni_cache_show(viewer, file, &item, NULL);
    gdni_cache_item_free(&item);
    return status;
}

gdn_status gdn_cache_list(gdn_ctx *ctx, gdn_cache_entry_fn fn, void *user)
{
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (!fn) return GDN_FAIL(GDN_E_INVALID, "fn is null: gdn_cache_list() needs a function to call for each entry");
    const struct gdni_cache_viewer viewer = { gdni_cache_user_dir(ctx->cache), fn, user, "gdn_cache_list()" };
    struct gdni_cache_scan scan;
    GDN_TRY(gdni_cache_scan(viewer.dir, &scan));
    gdn_status status = GDN_OK;
    for (size_t i = 0; i < scan.count && status == GDN_OK; ++i)
        if (!scan.files[i].temporary) status = list_file(&viewer, &scan.files[i]);
    gdni_free(scan.files);
    return status;
}
