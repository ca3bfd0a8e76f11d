/*
 * cache_pack.c - owns gdn_cache_pack(): which entries go into a bundle, and how a bundle comes to be whole or not at all.
 * Must not know: the manifest's text (manifest.c), what makes an entry good (cache_file.c). No lock.
 *
 * The bytes of a bundle depend on its entries and contents alone: files are named and sorted by key, what the compile of an
 * entry took is left out, and nothing says when, where or by whom it was packed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "runtime/cache.h"
#include "runtime/cache_report.h"
#include "runtime/context.h"
#include "runtime/fsutil.h"
#include "runtime/manifest.h"
#include "runtime/nvrtc.h"

enum { FOLDER_MODE = 0755, FILE_MODE = 0644, HEX = GDNI_KEY_HEX - 1 }; /* whoever serves may read, whatever the umask */

/* An entry file that may be packed. */
struct candidate {
    const struct gdni_cache_dir *dir;
    const struct gdni_cache_file *file;
    size_t rank; /* 0: of this machine's compiler, then other compilers', then bundles in their order */
};

/* One pack under way. */
struct pack {
    gdn_ctx *ctx;
    gdn_pack_options options;
    const char **keys; /* sorted; NULL: every one */
    char tag[GDNI_COMPILER_TAG];
    struct gdni_cache_scan *scans;
    size_t num_scans;
    struct candidate *candidates; /* sorted by key, then rank */
    size_t num_candidates;
    struct gdni_cache_dir to; /* the bundle, under its temporary name */
    struct gdni_manifest manifest;
    gdn_cache_report report;
};

/* ---- candidates ---- */

static const char *key_of(const struct candidate *c)
{
    return gdni_cache_file_name(c->file);
}

static int by_key_and_rank(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const int order = strncmp(key_of(x), key_of(y), HEX);
    if (order) return order;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return strcmp(x->file->path, y->file->path);
}

static const struct gdni_cache_dir *dir_at(const struct pack *p, size_t i)
{
    return i == 0 ? gdni_cache_user_dir(p->ctx->cache) : gdni_cache_bundle_dir(p->ctx->cache, i - 1);
}

static void add_candidates(struct pack *p, size_t i)
{
    for (size_t k = 0; k < p->scans[i].count; ++k) {
        const struct gdni_cache_file *file = &p->scans[i].files[k];
        const bool own = strncmp(gdni_cache_file_name(file) + GDNI_KEY_HEX, p->tag, GDNI_COMPILER_TAG - 1) == 0;
        if (file->temporary) continue;
        p->candidates[p->num_candidates++] = (struct candidate){ dir_at(p, i), file, i == 0 && own ? 0 : i + 1 };
    }
}

static gdn_status find_candidates(struct pack *p)
{
    size_t dirs = 0, files = 0;
    while (dir_at(p, dirs))
        ++dirs;
    p->scans = gdni_calloc(dirs, sizeof *p->scans);
    if (!p->scans) return GDN_FAIL(GDN_E_NOMEM, "out of memory: packing from %zu directories", dirs);
    for (; p->num_scans < dirs; ++p->num_scans) {
        GDN_TRY(gdni_cache_scan(dir_at(p, p->num_scans), &p->scans[p->num_scans]));
        files += p->scans[p->num_scans].count;
    }
    p->candidates = gdni_calloc(files + 1, sizeof *p->candidates);
    if (!p->candidates) return GDN_FAIL(GDN_E_NOMEM, "out of memory: packing from %zu files", files);
    for (size_t i = 0; i < dirs; ++i)
        add_candidates(p, i);
    qsort(p->candidates, p->num_candidates, sizeof *p->candidates, by_key_and_rank);
    return GDN_OK;
}

/* ---- one entry ---- */

static gdn_status write_failed(const struct pack *p, const char *what, int err)
{
    const bool full = err == ENOSPC || err == EDQUOT;
    return GDN_FAIL(GDN_E_IO, "bundle %s: %s cannot be written: %s%s", p->options.dir, what, gdni_fs_error(err),
                    full ? ": free space in its folder" : "");
}

static gdn_status write_entry(struct pack *p, const struct candidate *c, const void *bytes, size_t size)
{
    char arch[16];
    int folder;
    gdni_cache_file_arch(c->file, arch);
    int err = gdni_cache_dir_open(&p->to, arch, key_of(c), true, &folder);
    if (err) return write_failed(p, c->file->path, err);
    err = gdni_fs_publish(folder, key_of(c), bytes, size, FILE_MODE, 0);
    close(folder);
    return err ? write_failed(p, c->file->path, err) : GDN_OK;
}

static gdn_status note_entry(struct pack *p, const struct candidate *c, const struct gdni_entry *entry,
                             const void *bytes, size_t size)
{
    struct gdni_manifest_entry *line = gdni_manifest_add(&p->manifest);
    if (!line) return GDN_FAIL(GDN_E_NOMEM, "out of memory: the manifest of %s", p->options.dir);
    memcpy(line->path, c->file->path, sizeof line->path);
    memcpy(line->kernel, entry->entry, sizeof line->kernel);
    memcpy(line->compiler, entry->facts.compiler, sizeof line->compiler);
    gdni_hash_hex(line->sum, bytes, size);
    line->bytes = size;
    ++p->report.entries;
    p->report.bytes += size;
    return GDN_OK;
}

static gdn_status copy_entry(struct pack *p, const struct candidate *c, const struct gdni_cache_item *item)
{
    struct gdni_entry entry = item->entry;
    void *bytes = NULL;
    size_t size = 0;
    entry.facts.compile_ms = 0;
    GDN_TRY(gdni_entry_encode(&entry, &bytes, &size));
    gdn_status status = write_entry(p, c, bytes, size);
    if (status == GDN_OK) status = note_entry(p, c, &entry, bytes, size);
    gdni_free(bytes);
    return status;
}

/* Of the candidates of one key the first good one. *packed: there was one. */
static gdn_status pack_key(struct pack *p, const struct candidate *first, const struct candidate *end, bool *packed)
{
    *packed = false;
    for (const struct candidate *c = first; c < end && !*packed; ++c) {
        struct gdni_cache_item item;
        gdn_status status;
        if (!gdni_cache_file_read(c->dir, c->file, &item, &status)) {
            GDN_TRY(status);
            continue;
        }
        *packed = !item.problem;
        p->report.damaged += item.problem != NULL;
        if (*packed) status = copy_entry(p, c, &item);
        gdni_cache_item_free(&item);
        GDN_TRY(status);
    }
    return GDN_OK;
}

/* ---- all entries ---- */

static gdn_status not_cached(const char *key, bool damaged)
{
    return GDN_FAIL(GDN_E_NOT_CACHED, "key %.32s %s: run gdn-jit-cache warm for its shape first", key,
                    damaged ? "has only damaged entries in the cache" : "is in no cache and in no bundle");
}

/* Behind the last candidate of the key of the one at i. */
static size_t end_of_key(const struct pack *p, size_t i)
{
    size_t end = i;
    while (end < p->num_candidates && strncmp(key_of(&p->candidates[end]), key_of(&p->candidates[i]), HEX) == 0)
        ++end;
    return end;
}

static gdn_status pack_every_key(struct pack *p)
{
    bool packed;
    for (size_t i = 0, end; i < p->num_candidates; i = end) {
        end = end_of_key(p, i);
        GDN_TRY(pack_key(p, &p->candidates[i], &p->candidates[end], &packed));
    }
    if (p->report.entries) return GDN_OK;
    return GDN_FAIL(GDN_E_NOT_CACHED, "there is nothing to pack, neither in the cache directory nor in a bundle: run "
                                      "gdn-jit-cache warm first");
}

/* Keys and candidates are sorted alike: one walk over both. */
static gdn_status pack_asked_keys(struct pack *p)
{
    size_t i = 0;
    for (size_t k = 0; k < p->options.num_keys; ++k) {
        const char *key = p->keys[k];
        bool packed = false;
        if (k && strcmp(key, p->keys[k - 1]) == 0) continue;
        while (i < p->num_candidates && strncmp(key_of(&p->candidates[i]), key, HEX) < 0)
            ++i;
        const bool there = i < p->num_candidates && strncmp(key_of(&p->candidates[i]), key, HEX) == 0;
        if (there) GDN_TRY(pack_key(p, &p->candidates[i], &p->candidates[end_of_key(p, i)], &packed));
        if (!packed) return not_cached(key, there);
    }
    return GDN_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct gdni_manifest_entry *)a)->path, ((const struct gdni_manifest_entry *)b)->path);
}

/* Read back before it is kept: contents are the caller's text, and a manifest that nobody can read is worth nothing. */
static gdn_status write_manifest(struct pack *p)
{
    struct gdni_manifest check;
    qsort(p->manifest.entries, p->manifest.count, sizeof *p->manifest.entries, by_path);
    char *text = gdni_manifest_print(&p->manifest, p->options.contents, p->options.num_contents);
    if (!text) return GDN_FAIL(GDN_E_NOMEM, "out of memory: the manifest of %s", p->options.dir);
    gdn_status status = gdni_manifest_parse("the manifest with options.contents", text, strlen(text), &check);
    if (status == GDN_OK) {
        gdni_manifest_free(&check);
        const int err = gdni_fs_publish(p->to.fd, GDNI_MANIFEST_NAME, text, strlen(text), FILE_MODE, 0);
        if (err) status = write_failed(p, GDNI_MANIFEST_NAME, err);
    }
    gdni_free(text);
    return status;
}

static gdn_status fill(struct pack *p)
{
    GDN_TRY(find_candidates(p));
    GDN_TRY(p->keys ? pack_asked_keys(p) : pack_every_key(p));
    GDN_TRY(write_manifest(p));
    return syncfs(p->to.fd) == 0 ? GDN_OK : write_failed(p, "what was packed", errno);
}

/* ---- the directory ---- */

/* Where the bundle goes. */
struct place {
    char *parent, *name;
    int fd; /* of parent */
};

/* "a/b//" is b in a; "b" is b in "."; what has no name of its own is no place. */
static gdn_status split(struct place *place, const char *dir)
{
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/')
        --end;
    size_t start = end;
    while (start && dir[start - 1] != '/')
        --start;
    place->name = gdni_strndup(dir + start, end - start);
    place->parent = start ? gdni_strndup(dir, start) : gdni_strdup(".");
    if (!place->name || !place->parent) return GDN_FAIL(GDN_E_NOMEM, "out of memory: the path of a bundle");
    if (*place->name && strcmp(place->name, ".") != 0 && strcmp(place->name, "..") != 0) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "dir is \"%s\": name the directory that the bundle will be", dir);
}

static gdn_status taken(const char *dir, const char *why)
{
    return GDN_FAIL(GDN_E_INVALID, "dir %s %s: a bundle goes to a new or empty directory", dir, why);
}

/* Before anything is packed; moving into place asks again. */
static gdn_status check_place(const struct place *place, const char *dir)
{
    struct stat st;
    if (fstatat(place->fd, place->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? GDN_OK : GDN_FAIL(GDN_E_IO, "dir %s: %s", dir, gdni_fs_error(errno));
    if (!S_ISDIR(st.st_mode)) return taken(dir, "is there and is no directory");
    const int empty = gdni_fs_is_empty(place->fd, place->name);
    return empty == 0 ? GDN_OK : taken(dir, empty == ENOTEMPTY ? "is not empty" : "cannot be read");
}

static gdn_status open_place(struct place *place, const char *dir)
{
    GDN_TRY(split(place, dir));
    place->fd = open(place->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->fd < 0)
        return GDN_FAIL(GDN_E_IO, "dir %s: its parent %s cannot be opened: %s; make it first", dir, place->parent,
                        gdni_fs_error(errno));
    return check_place(place, dir);
}

static void close_place(struct place *place)
{
    if (place->fd >= 0) close(place->fd);
    gdni_free(place->parent);
    gdni_free(place->name);
}

static gdn_status move_into_place(const struct place *place, const char *temp, const char *dir)
{
    if (renameat(place->fd, temp, place->fd, place->name) == 0) {
        fsync(place->fd); /* the name; the bundle itself was synced */
        return GDN_OK;
    }
    const int err = errno;
    if (err == ENOTEMPTY || err == EEXIST || err == ENOTDIR) return taken(dir, "was filled meanwhile");
    if (err == EBUSY) return taken(dir, "is a mount point, which nothing can be moved to; name a directory inside it");
    return GDN_FAIL(GDN_E_IO, "dir %s: the bundle cannot be moved there: %s", dir, gdni_fs_error(err));
}

static gdn_status pack_at(struct pack *p, const struct place *place)
{
    char temp[GDNI_FS_TEMP_NAME];
    const int err = gdni_fs_make_temp_folder(place->fd, FOLDER_MODE, temp, &p->to.fd);
    if (err)
        return GDN_FAIL(GDN_E_IO, "dir %s: nothing can be made in %s: %s", p->options.dir, place->parent,
                        gdni_fs_error(err));
    gdn_status status = fill(p);
    if (status == GDN_OK) status = move_into_place(place, temp, p->options.dir);
    close(p->to.fd);
    if (status != GDN_OK) gdni_fs_remove_tree(place->fd, temp);
    return status;
}

/* ---- the call ---- */

static gdn_status check_options(const gdn_pack_options *o)
{
    if (!o->dir || !*o->dir)
        return GDN_FAIL(GDN_E_INVALID, "dir is %s: name a new directory", o->dir ? "\"\"" : "null");
    if (!o->keys != !o->num_keys)
        return GDN_FAIL(GDN_E_INVALID,
                        "keys is %s and num_keys is %zu: pass that many keys, or neither for every entry",
                        o->keys ? "given" : "null", o->num_keys);
    for (size_t i = 0; i < o->num_keys; ++i)
        if (!o->keys[i] || strlen(o->keys[i]) != HEX || strspn(o->keys[i], "0123456789abcdef") != HEX)
            return GDN_FAIL(GDN_E_INVALID, "keys[%zu] is \"%.40s\": must be 32 hex digits", i,
                            o->keys[i] ? o->keys[i] : "(null)");
    if (o->num_contents && !o->contents)
        return GDN_FAIL(GDN_E_INVALID, "contents is null and num_contents is %zu: pass that many lines",
                        o->num_contents);
    for (size_t i = 0; i < o->num_contents; ++i)
        if (!o->contents[i]) return GDN_FAIL(GDN_E_INVALID, "contents[%zu] is null: pass a line", i);
    return GDN_OK;
}

static gdn_status sort_keys(struct pack *p)
{
    if (!p->options.keys) return GDN_OK;
    p->keys = gdni_memdup(p->options.keys, p->options.num_keys * sizeof *p->keys);
    if (!p->keys) return GDN_FAIL(GDN_E_NOMEM, "out of memory: packing %zu keys", p->options.num_keys);
    qsort(p->keys, p->options.num_keys, sizeof *p->keys, gdni_by_text);
    return GDN_OK;
}

static void clean_up(struct pack *p)
{
    for (size_t i = 0; i < p->num_scans; ++i)
        gdni_free(p->scans[i].files);
    gdni_free(p->scans);
    gdni_free(p->candidates);
    gdni_free(p->keys);
    gdni_manifest_free(&p->manifest);
}

gdn_status gdn_cache_pack(gdn_ctx *ctx, const gdn_pack_options *options, gdn_cache_report *out)
{
    struct pack p = { .ctx = ctx,
                      .options = GDN_PACK_OPTIONS_INIT,
                      .to = { .fd = -1, .mode = FOLDER_MODE, .any_owner = true }, /* as its file system maps owners */
                      .report = GDN_CACHE_REPORT_INIT };
    struct place place = { .fd = -1 };
    GDN_TRY(gdni_cache_check_call(ctx, 0, 0, "", out));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_pack_options, &p.options, options));
    GDN_TRY(check_options(&p.options));
    if (!gdni_nvrtc_tag(ctx->nvrtc, p.tag)) p.tag[0] = '\0'; /* then no compiler's entries go first */
    gdn_status status = sort_keys(&p);
    if (status == GDN_OK) status = open_place(&place, p.options.dir);
    if (status == GDN_OK) status = pack_at(&p, &place);
    close_place(&place);
    clean_up(&p);
    if (status == GDN_OK) gdni_give_struct(out, &p.report, sizeof p.report);
    return status;
}
