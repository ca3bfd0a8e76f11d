/*
 * cache_prune.c - owns gdn_cache_prune(): which entries go, and their going.
 * Must not know: what makes an entry good. No lock: an entry that was used since it was looked at stays.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "codegen/arch.h"
#include "runtime/cache.h"
#include "runtime/cache_report.h"
#include "runtime/context.h"
#include "runtime/nvrtc.h"

/* NOT_ASKED: not in question; or gone, or not to be read, when it was looked at. */
enum fate { NOT_ASKED, KEPT, GOES };

/* One prune under way. */
struct prune {
    gdn_prune_options options;
    char tag[GDNI_COMPILER_TAG]; /* of the compiler whose entries stay; "": of any */
    time_t now;
    struct gdni_cache_viewer viewer;
    struct gdni_cache_scan scan;
    enum fate *fates; /* of each file of scan */
    uint64_t kept;    /* bytes of those that are KEPT */
    gdn_cache_report report;
};

static bool is_asked_for(const struct prune *p, const struct gdni_cache_file *file)
{
    char arch[16];
    gdni_cache_file_arch(file, arch);
    return !file->temporary && (!p->options.arch || strcmp(arch, p->options.arch) == 0);
}

/* "<32 hex>.<tag>.gdnk" */
static bool is_by_other_compiler(const struct prune *p, const struct gdni_cache_file *file)
{
    return *p->tag && strncmp(gdni_cache_file_name(file) + GDNI_KEY_HEX, p->tag, GDNI_COMPILER_TAG - 1) != 0;
}

/* What is dated ahead of the clock counts as the oldest: it was not used since the clock was set back. */
static bool is_too_old(const struct prune *p, const struct gdni_cache_file *file)
{
    const int64_t max_age = p->options.max_age;
    return max_age > 0 && (file->ahead || gdni_age(p->now, file->mtime.tv_sec) >= max_age);
}

/* ---- choosing ---- */

static gdn_status judge(struct prune *p, size_t i)
{
    const struct gdni_cache_file *file = &p->scan.files[i];
    struct gdni_cache_item item;
    gdn_status status;
    if (!gdni_cache_file_read(p->viewer.dir, file, &item, &status)) return status;
    ++p->report.entries;
    p->report.bytes += file->bytes;
    p->report.damaged += item.problem != NULL;
    const bool goes = item.problem || is_by_other_compiler(p, file) || is_too_old(p, file);
    p->fates[i] = goes ? GOES : KEPT;
    p->kept += goes ? 0 : file->bytes;
    gdni_cache_item_free(&item);
    return GDN_OK;
}

/* A file by age, without moving the list that goes by path. */
struct aged {
    const struct gdni_cache_file *file;
    size_t index;
};

static int by_age(const void *a, const void *b)
{
    return gdni_cache_file_compare_age(((const struct aged *)a)->file, ((const struct aged *)b)->file);
}

static gdn_status choose_oldest(struct prune *p)
{
    if (!p->options.max_bytes || p->kept <= p->options.max_bytes) return GDN_OK;
    struct aged *aged = gdni_calloc(p->scan.count, sizeof *aged);
    if (!aged) return GDN_FAIL(GDN_E_NOMEM, "out of memory: pruning %zu entries", p->scan.count);
    for (size_t i = 0; i < p->scan.count; ++i)
        aged[i] = (struct aged){ &p->scan.files[i], i };
    qsort(aged, p->scan.count, sizeof *aged, by_age);
    for (size_t i = 0; i < p->scan.count && p->kept > p->options.max_bytes; ++i) {
        if (p->fates[aged[i].index] != KEPT) continue;
        p->fates[aged[i].index] = GOES;
        p->kept -= aged[i].file->bytes;
    }
    gdni_free(aged);
    return GDN_OK;
}

static gdn_status choose(struct prune *p)
{
    p->fates = gdni_calloc(p->scan.count, sizeof *p->fates);
    if (!p->fates) return GDN_FAIL(GDN_E_NOMEM, "out of memory: pruning %zu entries", p->scan.count);
    for (size_t i = 0; i < p->scan.count; ++i)
        if (is_asked_for(p, &p->scan.files[i])) GDN_TRY(judge(p, i));
    return choose_oldest(p);
}

/* ---- going ---- */

/* Shown before it goes: who stops at an entry keeps it. */
static gdn_status remove_file(struct prune *p, const struct gdni_cache_file *file)
{
    struct gdni_cache_item item;
    gdn_status status;
    if (!gdni_cache_file_read(p->viewer.dir, file, &item, &status)) return status;
    status = gdni_cache_show(&p->viewer, file, &item, NULL);
    const bool dry = p->options.flags & GDN_PRUNE_DRY_RUN;
    if (status == GDN_OK && (dry || gdni_cache_file_remove(p->viewer.dir, file, item.bytes ? NULL : &item.st) == 0)) {
        ++p->report.removed;
        p->report.removed_bytes += file->bytes;
    }
    gdni_cache_item_free(&item);
    return status;
}

static gdn_status prune_scan(struct prune *p)
{
    GDN_TRY(choose(p));
    const bool dry = p->options.flags & GDN_PRUNE_DRY_RUN;
    for (size_t i = 0; i < p->scan.count; ++i)
        if (p->fates[i] == GOES)
            GDN_TRY(remove_file(p, &p->scan.files[i]));
        else if (p->scan.files[i].temporary)
            gdni_cache_take_temporary(p->viewer.dir, &p->scan.files[i], p->now, !dry, &p->report);
    return GDN_OK;
}

static gdn_status take_options(struct prune *p, gdn_ctx *ctx, const gdn_prune_options *options)
{
    const struct gdni_arch *arch = NULL;
    const struct gdni_nvrtc_api *api = NULL;
    const uint32_t known = GDN_PRUNE_DRY_RUN | GDN_PRUNE_OTHER_COMPILERS;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prune_options, &p->options, options));
    if (p->options.flags & ~known)
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only GDN_PRUNE_DRY_RUN and GDN_PRUNE_OTHER_COMPILERS are known",
                        p->options.flags);
    if (p->options.reserved) return GDN_FAIL(GDN_E_INVALID, "reserved is %d: must be 0", p->options.reserved);
    if (p->options.max_age < 0)
        return GDN_FAIL(GDN_E_INVALID, "max_age is %lld: must be seconds since the last use, or 0 for no limit",
                        (long long)p->options.max_age);
    if (p->options.arch) GDN_TRY(gdni_arch_find(p->options.arch, &arch));
    GDN_TRY(gdni_cache_need_dir(ctx, &p->viewer.dir));
    if (!(p->options.flags & GDN_PRUNE_OTHER_COMPILERS)) return GDN_OK;
    GDN_TRY(gdni_nvrtc_get(ctx->nvrtc, &api));
    memcpy(p->tag, api->tag, sizeof p->tag);
    return GDN_OK;
}

gdn_status gdn_cache_prune(gdn_ctx *ctx, const gdn_prune_options *options, gdn_cache_entry_fn fn, void *user,
                           gdn_cache_report *out)
{
    struct prune p = { .options = GDN_PRUNE_OPTIONS_INIT,
                       .now = time(NULL),
                       .viewer = { NULL, fn, user, "gdn_cache_prune()" },
                       .report = GDN_CACHE_REPORT_INIT };
    GDN_TRY(gdni_cache_check_call(ctx, 0, 0, "", out));
    GDN_TRY(take_options(&p, ctx, options));
    GDN_TRY(gdni_cache_scan(p.viewer.dir, &p.scan));
    const gdn_status status = prune_scan(&p);
    gdni_free(p.fates);
    gdni_free(p.scan.files);
    gdni_give_struct(out, &p.report, sizeof p.report);
    return status;
}
