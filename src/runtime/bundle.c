/*
 * bundle.c - owns the verification of a bundle: what its manifest says against what is there.
 * Must not know: who packed it, lookups (which need no manifest: an entry is judged by its own bytes). No lock.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache_report.h"
#include "runtime/fsutil.h"
#include "runtime/manifest.h"

/* One verification under way. */
struct check {
    struct gdni_cache_viewer viewer;
    struct gdni_manifest manifest;
    struct gdni_cache_scan scan;
    gdn_cache_report *report;
};

static gdn_status read_manifest(const struct gdni_cache_dir *dir, struct gdni_manifest *out)
{
    char name[1024];
    void *text = NULL;
    struct stat st;
    snprintf(name, sizeof name, "%.900s/" GDNI_MANIFEST_NAME, dir->path);
    const int err = gdni_cache_dir_read(dir, dir->fd, GDNI_MANIFEST_NAME, GDNI_JSON_MAX_BYTES, &text, &st);
    if (err == ENOMEM) return GDN_FAIL(GDN_E_NOMEM, "out of memory: reading %s", name);
    if (err)
        return GDN_FAIL(GDN_E_IO, "%s cannot be read: %s; is it a bundle that gdn_cache_pack() made?", name,
                        gdni_fs_error(err));
    const gdn_status status = gdni_manifest_parse(name, text, (size_t)st.st_size, out);
    gdni_free(text);
    return status == GDN_E_INVALID ? GDN_E_IO : status; /* no argument is wrong: a file is */
}

static gdn_status note_missing(struct check *c, const struct gdni_manifest_entry *entry)
{
    struct gdni_cache_file file = { .bytes = entry->bytes };
    memcpy(file.path, entry->path, sizeof file.path);
    ++c->report->missing;
    return gdni_cache_show(&c->viewer, &file, NULL, "missing: the manifest has it, the bundle has not");
}

static const char *compare(const struct gdni_cache_item *item, const struct gdni_manifest_entry *entry)
{
    char sum[GDNI_KEY_HEX];
    if (item->size != entry->bytes) return "not as long as the manifest says";
    gdni_hash_hex(sum, item->bytes, item->size);
    return strcmp(sum, entry->sum) == 0 ? NULL : "not the file that the manifest names";
}

/* entry NULL: the manifest does not have it. */
static gdn_status check_file(struct check *c, const struct gdni_cache_file *file,
                             const struct gdni_manifest_entry *entry)
{
    struct gdni_cache_item item;
    gdn_status status;
    if (!gdni_cache_file_read(c->viewer.dir, file, &item, &status))
        return status == GDN_OK && entry ? note_missing(c, entry) : status;
    ++c->report->entries;
    c->report->bytes += file->bytes;
    const char *problem = item.problem ? item.problem : entry ? compare(&item, entry) : NULL;
    c->report->damaged += problem != NULL;
    c->report->unlisted += !entry;
    if (!problem && !entry) problem = "unlisted: the bundle has it, the manifest has not";
    if (problem) status = gdni_cache_show(&c->viewer, file, &item, problem);
    gdni_cache_item_free(&item);
    return status;
}

/* Both lists are sorted by path. */
static gdn_status check_lists(struct check *c)
{
    size_t i = 0, j = 0;
    while (i < c->manifest.count || j < c->scan.count) {
        const struct gdni_manifest_entry *entry = i < c->manifest.count ? &c->manifest.entries[i] : NULL;
        const struct gdni_cache_file *file = j < c->scan.count ? &c->scan.files[j] : NULL;
        const int order = !entry ? 1 : !file ? -1 : strcmp(entry->path, file->path);
        if (order < 0)
            GDN_TRY(note_missing(c, entry));
        else if (file->temporary)
            ++c->report->temporaries;
        else
            GDN_TRY(check_file(c, file, order == 0 ? entry : NULL));
        i += order <= 0;
        j += order >= 0;
    }
    return GDN_OK;
}

gdn_status gdni_bundle_verify(const char *path, gdn_cache_entry_fn fn, void *user, gdn_cache_report *report)
{
    struct gdni_cache_dir dir;
    GDN_TRY(gdni_cache_dir_bundle(&dir, path));
    struct check c = { .viewer = { &dir, fn, user, "gdn_cache_verify()" }, .report = report };
    gdn_status status = read_manifest(&dir, &c.manifest);
    if (status == GDN_OK) status = gdni_cache_scan(&dir, &c.scan);
    if (status == GDN_OK) status = check_lists(&c);
    gdni_manifest_free(&c.manifest);
    gdni_free(c.scan.files);
    gdni_cache_dir_close(&dir);
    return status;
}
