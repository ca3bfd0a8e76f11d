/*
 * cache_file.c - owns the way from a name in a cache directory to a judged entry, and to a caller's eyes.
 * Must not know: lookup order, what is kept and what goes. No lock.
 */
#include "runtime/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "runtime/fsutil.h"

/* ---- read ---- */

/* What an errno value says about the thing that has an entry's name; NULL: nothing, it may be a good one. */
static const char *wrong_kind(int err)
{
    static const struct {
        int err;
        const char *words;
    } kinds[] = {
        { ELOOP, "a symbolic link" },
        { EINVAL, "no regular file" },
        { EFBIG, "file is too long" },
        { ENODATA, "file cannot be read whole" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i)
        if (kinds[i].err == err) return kinds[i].words;
    return NULL;
}

/* Of two reasons its owner is told first, as no mode would help against him. */
static void distrust(const struct gdni_cache_dir *dir, struct gdni_cache_item *item)
{
    if (!gdni_cache_dir_trusts_owner(dir, &item->st))
        snprintf(item->words, sizeof item->words, "owned by another user (%u)", (unsigned)item->st.st_uid);
    else
        snprintf(item->words, sizeof item->words, "writable for others (mode %04o)",
                 (unsigned)item->st.st_mode & 07777);
    item->problem = item->words;
}

/* An entry under another key's name or another arch's folder is found by nobody: as good as damaged. */
static const char *judge(const struct gdni_cache_item *item, const char *arch, const char *name)
{
    if (strcmp(item->entry.arch, arch) != 0) return "entry of another arch";
    return strncmp(name, item->hex, GDNI_KEY_HEX - 1) == 0 ? NULL : "entry of another key";
}

int gdni_cache_item_read(const struct gdni_cache_dir *dir, const char *arch, int folder, const char *name,
                         const struct gdni_key *key, struct gdni_cache_item *out)
{
    *out = (struct gdni_cache_item){ 0 };
    const int err = gdni_cache_dir_read(dir, folder, name, GDNI_ENTRY_MAX_BYTES, &out->bytes, &out->st);
    if (err == EPERM && !gdni_cache_dir_trusts(dir, &out->st)) {
        distrust(dir, out);
        return 0;
    }
    if (err) {
        out->problem = wrong_kind(err);
        return out->problem ? 0 : err;
    }
    out->size = (size_t)out->st.st_size;
    out->problem = gdni_entry_parse(&out->entry, out->bytes, out->size, key);
    if (out->problem) return 0;
    gdni_hash_hex(out->hex, out->entry.key_text, out->entry.key_len);
    out->problem = judge(out, arch, name);
    if (out->problem) {
        out->entry = (struct gdni_entry){ 0 };
        out->hex[0] = '\0';
    }
    return 0;
}

void gdni_cache_item_free(struct gdni_cache_item *item)
{
    gdni_free(item->bytes);
    *item = (struct gdni_cache_item){ 0 };
}

/* ---- by a scan ---- */

const char *gdni_cache_file_name(const struct gdni_cache_file *file)
{
    return strrchr(file->path, '/') + 1;
}

void gdni_cache_file_arch(const struct gdni_cache_file *file, char arch[16])
{
    const char *at = file->path + sizeof GDNI_CACHE_FOLDER; /* behind its slash */
    snprintf(arch, 16, "%.*s", (int)strcspn(at, "/"), at);
}

/* The folder that the path names, not the one that the file's name asks for: they differ where an entry is misplaced. */
int gdni_cache_file_open_folder(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, int *folder)
{
    char arch[16];
    gdni_cache_file_arch(file, arch);
    return gdni_cache_dir_open(dir, arch, gdni_cache_file_name(file) - 3, false, folder);
}

static bool is_gone(int err)
{
    return err == ENOENT || err == ESTALE;
}

bool gdni_cache_file_read(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file,
                          struct gdni_cache_item *item, gdn_status *status)
{
    char arch[16];
    int folder;
    *status = GDN_OK;
    *item = (struct gdni_cache_item){ 0 };
    gdni_cache_file_arch(file, arch);
    int err = gdni_cache_file_open_folder(dir, file, &folder);
    if (!err) {
        err = gdni_cache_item_read(dir, arch, folder, gdni_cache_file_name(file), NULL, item);
        close(folder);
        const char *name = gdni_cache_file_name(file);
        if (!err && !item->problem && strncmp(name - 3, name, 2) != 0) item->problem = "in the folder of other keys";
        if (!err) return true;
    }
    if (err == ENOMEM)
        *status = GDN_FAIL(GDN_E_NOMEM, "out of memory: reading %s/%s", dir->path, file->path);
    else if (!is_gone(err))
        item->problem = err == EPERM && gdni_cache_dir_distrusts(dir, file->path, item->words) ? item->words
                                                                                             : gdni_fs_error(err);
    return item->problem != NULL;
}

int gdni_cache_file_remove(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, const struct stat *st)
{
    const struct stat scanned = {
        .st_dev = file->device, .st_ino = file->inode, .st_size = (off_t)file->bytes, .st_mtim = file->mtime
    };
    int folder;
    int err = gdni_cache_file_open_folder(dir, file, &folder);
    if (err) return err;
    err = gdni_fs_remove_same(folder, gdni_cache_file_name(file), st ? st : &scanned);
    close(folder);
    return err;
}

/* ---- show ---- */

static gdn_status show_at(const struct gdni_cache_viewer *v, const struct gdni_cache_file *file, const char *path,
                          const struct gdni_cache_item *item, const char *problem)
{
    gdn_cache_entry out = {
        .struct_size = sizeof out,
        .path = path,
        .bytes = file->bytes,
        .mtime = file->mtime.tv_sec,
        .valid = !problem,
        .problem = problem ? problem : "",
    };
    char options[GDNI_ENTRY_MAX_OPTIONS + 1];
    if (out.valid) {
        const struct gdni_entry *entry = &item->entry;
        snprintf(options, sizeof options, "%.*s", (int)entry->options_len, entry->options_len ? entry->options : "");
        out.key = item->hex;
        out.arch = entry->arch;
        out.entry_name = entry->entry;
        out.compiler = entry->facts.compiler;
        out.options = options;
        out.registers = entry->facts.registers;
        out.spill_bytes = entry->facts.spill_bytes;
        out.local_bytes = entry->facts.local_bytes;
        out.static_smem = entry->facts.static_smem;
    }
    const int stop = v->fn(v->user, &out);
    return stop ? GDN_FAIL(GDN_E_CANCELLED, "the callback of %s returned %d", v->caller, stop) : GDN_OK;
}

gdn_status gdni_cache_show(const struct gdni_cache_viewer *viewer, const struct gdni_cache_file *file,
                           const struct gdni_cache_item *item, const char *problem)
{
    if (!viewer->fn) return GDN_OK;
    struct gdni_strbuf sb = { 0 };
    gdni_sb_fmt(&sb, "%s/%s", viewer->dir->path, file->path);
    char *path = gdni_sb_take(&sb);
    if (!path) return GDN_FAIL(GDN_E_NOMEM, "out of memory: %s of %s", viewer->caller, viewer->dir->path);
    const gdn_status status = show_at(viewer, file, path, item, problem ? problem : item->problem);
    gdni_free(path);
    return status;
}
