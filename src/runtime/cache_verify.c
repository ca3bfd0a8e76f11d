/*
 * cache_verify.c - owns gdn_cache_verify(), and what it shares with prune and pack (cache_report.h).
 * Must not know: what makes an entry good (cache_file.c). No lock: other processes publish and remove at the same time.
 */
#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/cache_report.h"
#include "runtime/context.h"

gdn_status gdni_cache_check_call(const gdn_ctx *ctx, uint32_t flags, uint32_t known, const char *names,
                                 const gdn_cache_report *out)
{
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (flags & ~known) return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only %s known", flags, names);
    return GDNI_CHECK_OUT(gdn_cache_report, out);
}

gdn_status gdni_cache_need_dir(const gdn_ctx *ctx, const struct gdni_cache_dir **out)
{
    *out = gdni_cache_user_dir(ctx->cache);
    if ((*out)->path) return GDN_OK;
    const char *problem = (*out)->problem;
    return GDN_FAIL(GDN_E_IO, "there is no cache directory, cubins are kept in memory only%s%s", *problem ? ": " : "",
                    *problem ? problem : ", as configured: name one in gdn_config.cache_dir or GDN_JIT_CACHE_DIR");
}

void gdni_cache_take_temporary(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, time_t now,
                               bool remove, gdn_cache_report *report)
{
    if (!gdni_cache_is_abandoned(file, now)) return;
    ++report->temporaries;
    if (!remove || gdni_cache_file_remove(dir, file, NULL) != 0) return;
    ++report->removed;
    report->removed_bytes += file->bytes;
}

/* One verification under way. */
struct check {
    struct gdni_cache_viewer viewer;
    bool remove;
    gdn_cache_report report;
};

static gdn_status refuse(struct check *c, const struct gdni_cache_file *file, const struct gdni_cache_item *item)
{
    ++c->report.damaged;
    GDN_TRY(gdni_cache_show(&c->viewer, file, item, NULL));
    if (!c->remove || gdni_cache_file_remove(c->viewer.dir, file, &item->st) != 0) return GDN_OK;
    ++c->report.removed;
    c->report.removed_bytes += file->bytes;
    return GDN_OK;
}

static gdn_status check_file(struct check *c, const struct gdni_cache_file *file)
{
    struct gdni_cache_item item;
    gdn_status status;
    if (!gdni_cache_file_read(c->viewer.dir, file, &item, &status)) return status;
    ++c->report.entries;
    c->report.bytes += file->bytes;
    if (item.problem) status = refuse(c, file, &item);
    gdni_cache_item_free(&item);
    return status;
}

static gdn_status check_dir(struct check *c)
{
    struct gdni_cache_scan scan;
    const time_t now = time(NULL);
    GDN_TRY(gdni_cache_scan(c->viewer.dir, &scan));
    gdn_status status = GDN_OK;
    for (size_t i = 0; i < scan.count && status == GDN_OK; ++i)
        if (scan.files[i].temporary)
            gdni_cache_take_temporary(c->viewer.dir, &scan.files[i], now, c->remove, &c->report);
        else
            status = check_file(c, &scan.files[i]);
    gdni_free(scan.files);
    return status;
}

gdn_status gdn_cache_verify(gdn_ctx *ctx, const char *bundle, uint32_t flags, gdn_cache_entry_fn fn, void *user,
                            gdn_cache_report *out)
{
    struct check c = { .viewer = { NULL, fn, user, "gdn_cache_verify()" },
                       .remove = flags & GDN_VERIFY_REMOVE,
                       .report = GDN_CACHE_REPORT_INIT };
    GDN_TRY(gdni_cache_check_call(ctx, flags, GDN_VERIFY_REMOVE, "GDN_VERIFY_REMOVE is", out));
    if (bundle && !*bundle)
        return GDN_FAIL(GDN_E_INVALID, "bundle is empty: pass a bundle's directory, or NULL for the cache directory");
    gdn_status status;
    if (bundle)
        status = gdni_bundle_verify(bundle, fn, user, &c.report);
    else {
        GDN_TRY(gdni_cache_need_dir(ctx, &c.viewer.dir));
        status = check_dir(&c);
    }
    gdni_give_struct(out, &c.report, sizeof c.report); /* also what was counted before a stop */
    return status;
}
