/*
 * tuning_api.c - owns tuning files as files, and the public view of what is measured: load, save, list. Must not know: the
 * form of a file, lookups. No lock: tuning_db.h has one.
 */
#include "runtime/tuning_api.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "codegen/spec.h"
#include "runtime/context.h"
#include "runtime/fsutil.h"
#include "runtime/plan.h"

/* ---- Files ---- */

static gdn_status read_failed(const char *path, const char *why)
{
    return GDN_FAIL(GDN_E_IO, "tuning file %s cannot be read: %s", path, why);
}

/* Bytes for gdni_free(). A path that is named on purpose may be a link, but no pipe or device: those may never end. */
static gdn_status read_open_file(const char *path, int fd, char **bytes, size_t *size)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return read_failed(path, gdni_fs_error(errno));
    if (!S_ISREG(st.st_mode)) return read_failed(path, "it is no regular file");
    if (st.st_size > GDNI_TUNING_MAX_BYTES)
        return GDN_FAIL(GDN_E_INVALID, "tuning file %s has %lld bytes: at most %d are read", path,
                        (long long)st.st_size, GDNI_TUNING_MAX_BYTES);
    *size = (size_t)st.st_size;
    *bytes = gdni_alloc(*size);
    if (!*bytes) return GDN_FAIL(GDN_E_NOMEM, "out of memory: reading %s of %zu bytes", path, *size);
    const int err = gdni_fs_read(fd, *bytes, *size);
    if (!err) return GDN_OK;
    gdni_free(*bytes);
    return read_failed(path, gdni_fs_error(err));
}

gdn_status gdni_tuning_read(struct gdni_tuning_table *out, const char *path)
{
    char *bytes = NULL;
    size_t size = 0;
    *out = (struct gdni_tuning_table){ 0 };
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return read_failed(path, gdni_fs_error(errno));
    const gdn_status status = read_open_file(path, fd, &bytes, &size);
    close(fd);
    GDN_TRY(status);
    const gdn_status parsed = gdni_tuning_parse(out, path, bytes, size);
    gdni_free(bytes);
    return parsed;
}

/* The folder of path, opened, and where the name in it begins. */
static int open_folder(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash) return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct gdni_strbuf folder = { 0 };
    gdni_sb_bytes(&folder, path, slash == path ? 1 : (size_t)(slash - path));
    const int fd = folder.failed ? -1 : open(folder.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int err = folder.failed ? ENOMEM : errno;
    gdni_sb_free(&folder);
    errno = err;
    return fd;
}

/* A file that nobody could read again, of more runs than one may have, must not take the place of one that can be read. */
static gdn_status print_file(struct gdni_strbuf *sb, const struct gdni_tuning_table *table, const char *path)
{
    struct gdni_tuning_table again;
    gdni_tuning_print(sb, table);
    if (sb->failed) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the tuning file %s", path);
    const gdn_status status = gdni_tuning_parse(&again, "the table", sb->text, sb->len);
    if (status != GDN_OK) return gdni_fail_in(status, "tuning file %s is not written", path);
    gdni_tuning_table_free(&again);
    return GDN_OK;
}

/* As an editor does: whom its owner has let in or kept out stays so. */
static int publish(int dir, const char *name, const struct gdni_strbuf *sb)
{
    enum { MODE = 0666, PERMISSIONS = 0777 };
    struct stat st;
    const bool there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    const mode_t mode = there ? st.st_mode & PERMISSIONS : MODE;
    return gdni_fs_publish(dir, name, sb->text, sb->len, mode, GDNI_FS_REPLACE | (there ? 0 : GDNI_FS_UMASK));
}

gdn_status gdni_tuning_write(const struct gdni_tuning_table *table, const char *path)
{
    struct gdni_strbuf sb = { 0 };
    const char *name = NULL;
    const gdn_status status = print_file(&sb, table, path);
    if (status != GDN_OK) {
        gdni_sb_free(&sb);
        return status;
    }
    const int dir = open_folder(path, &name);
    int err = dir < 0 ? errno : *name ? 0 : EISDIR;
    if (!err) err = publish(dir, name, &sb);
    if (dir >= 0) close(dir);
    gdni_sb_free(&sb);
    if (!err) return GDN_OK;
    if (err == ENOMEM) return GDN_FAIL(GDN_E_NOMEM, "out of memory: writing the tuning file %s", path);
    return GDN_FAIL(GDN_E_IO, "tuning file %s cannot be written: %s", path,
                    err == EEXIST ? "what has its name is no regular file; name another" : gdni_fs_error(err));
}

/* ---- A context's path ---- */

/* false: out of memory. */
static bool load_one(gdn_ctx *ctx, const char *path)
{
    struct gdni_tuning_table table;
    gdn_status status = gdni_tuning_read(&table, path);
    if (status == GDN_OK) {
        status = gdni_tuning_import(ctx->tuning, &table, false, NULL, NULL);
        gdni_tuning_table_free(&table);
    }
    if (status == GDN_OK || status == GDN_E_NOMEM) return status == GDN_OK;
    gdni_log(&ctx->log, GDN_LOG_WARN, "tuning: the file is ignored: %s", gdni_error_text());
    return true;
}

bool gdni_tuning_load_path(struct gdn_ctx *ctx, const char *path)
{
    while (path && *path) {
        struct gdni_strbuf one = { 0 };
        const size_t len = strcspn(path, ":");
        gdni_sb_bytes(&one, path, len);
        const bool held = !one.failed && (len == 0 || load_one(ctx, one.text));
        gdni_sb_free(&one);
        if (!held) return false;
        path += len + (path[len] == ':');
    }
    return true;
}

/* ---- The public view ---- */

/* One entry on its way to a callback. */
struct showing {
    gdn_tuning_entry_fn fn; /* may be NULL */
    void *user;
    gdn_tuning_report report;
};

static gdn_status show(const struct showing *s, const struct gdni_tuning_table *table,
                       const struct gdni_tuning_entry *e, const char *note)
{
    struct gdni_strbuf params = { 0 };
    gdni_params_json(&params, &e->params, gdni_tuning_kernel(&e->key, &e->params));
    if (params.failed) return GDN_FAIL(GDN_E_NOMEM, "out of memory while listing tuning entries");
    const gdn_tuning_entry shown = {
        .struct_size = sizeof shown,
        .arch = table->arch->name,
        .gpu_name = table->gpu_name,
        .num_sms = table->num_sms,
        .kernel = gdni_kernel_info((enum gdni_kernel)e->key.kernel)->name,
        .io_type = (gdn_dtype)e->key.io_type,
        .head_dim_qk = e->key.head_dim_qk,
        .head_dim_v = e->key.head_dim_v,
        .num_q_heads = e->key.num_q_heads,
        .num_k_heads = e->key.num_k_heads,
        .num_v_heads = e->key.num_v_heads,
        .l2norm = e->key.l2norm,
        .width = e->key.width,
        .tokens = gdni_tuning_tokens(e->key.slot.bucket),
        .seqs = gdni_tuning_seqs(e->key.slot.seq_class),
        .params = params.text,
        .median_ns = e->median_ns,
        .mad_ns = e->mad_ns,
        .heuristic_ns = e->heuristic_ns,
        .samples = e->samples,
        .sm_mhz = e->sm_mhz,
        .mem_mhz = e->mem_mhz,
        .stale = gdni_tuning_is_stale(e),
        .driver = e->driver,
        .nvrtc = e->nvrtc,
        .date = e->date,
        .note = note,
    };
    const int stopped = s->fn(s->user, &shown);
    gdni_sb_free(&params);
    return stopped ? GDN_FAIL(GDN_E_CANCELLED, "the function that was given tuning entries returned %d", stopped)
                   : GDN_OK;
}

static gdn_status report_step(void *user, const struct gdni_import_step *step)
{
    struct showing *s = user;
    gdn_tuning_report *r = &s->report;
    uint64_t *const counts[] = { [GDNI_IMPORT_ADDED] = &r->added,
                                 [GDNI_IMPORT_SAME] = &r->same,
                                 [GDNI_IMPORT_REPLACED] = &r->replaced,
                                 [GDNI_IMPORT_KEPT] = &r->kept };
    static const char *const words[] = { [GDNI_IMPORT_ADDED] = "added",
                                         [GDNI_IMPORT_SAME] = "same",
                                         [GDNI_IMPORT_REPLACED] = "replaced: ",
                                         [GDNI_IMPORT_KEPT] = "kept: " };
    const bool why = step->fate == GDNI_IMPORT_REPLACED || step->fate == GDNI_IMPORT_KEPT;
    char note[128];
    ++r->entries;
    ++*counts[step->fate];
    if (!s->fn) return GDN_OK;
    snprintf(note, sizeof note, "%s%s", words[step->fate], why ? step->why : "");
    return show(s, step->table, step->in, note);
}

gdn_status gdn_tuning_load(gdn_ctx *ctx, const char *path, uint32_t flags, gdn_tuning_entry_fn fn, void *user,
                           gdn_tuning_report *out)
{
    struct showing s = { fn, user, GDN_TUNING_REPORT_INIT };
    struct gdni_tuning_table table;
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (!path || !*path)
        return GDN_FAIL(GDN_E_INVALID, "path is %s: pass the path of a tuning file", path ? "\"\"" : "null");
    if (flags & ~(uint32_t)GDN_TUNING_MERGE)
        return GDN_FAIL(GDN_E_INVALID, "flags is 0x%x: only GDN_TUNING_MERGE is known", flags);
    if (out) GDN_TRY(GDNI_CHECK_OUT(gdn_tuning_report, out));
    GDN_TRY(gdni_tuning_read(&table, path));
    const gdn_status status = gdni_tuning_import(ctx->tuning, &table, flags & GDN_TUNING_MERGE, report_step, &s);
    gdni_tuning_table_free(&table);
    if (out) gdni_give_struct(out, &s.report, sizeof s.report);
    return status;
}

gdn_status gdn_tuning_save(gdn_ctx *ctx, const gdn_target *target, const char *path)
{
    gdn_target taken = GDN_TARGET_INIT;
    struct gdni_tuning_table table;
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (!path || !*path) return GDN_FAIL(GDN_E_INVALID, "path is %s: pass the path of a file", path ? "\"\"" : "null");
    GDN_TRY(gdni_take_target(&taken, target));
    if (!taken.gpu_name[0])
        return GDN_FAIL(GDN_E_INVALID, "target.gpu_name is empty: a table is of one GPU, so name it");
    GDN_TRY(gdni_tuning_copy(ctx->tuning, &taken, &table));
    const gdn_status status = gdni_tuning_write(&table, path);
    gdni_tuning_table_free(&table);
    return status;
}

gdn_status gdn_tuning_list(gdn_ctx *ctx, gdn_tuning_entry_fn fn, void *user)
{
    const struct showing s = { fn, user, GDN_TUNING_REPORT_INIT };
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (!fn) return GDN_FAIL(GDN_E_INVALID, "fn is null: pass a function that takes the entries");
    struct gdni_tuning_table *tables = NULL;
    size_t count = 0;
    gdn_status status = gdni_tuning_copies(ctx->tuning, &tables, &count);
    for (size_t t = 0; t < count && status == GDN_OK; ++t)
        for (size_t i = 0; i < tables[t].count && status == GDN_OK; ++i)
            status = show(&s, &tables[t], &tables[t].entries[i], "");
    gdni_tuning_copies_free(tables, count);
    return status;
}
