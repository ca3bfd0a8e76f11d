/*
 * cache_api.c - owns the public view of the cache: counters, directory, list. Must not know: lookup, publication. No lock.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/give.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "runtime/cache.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_scan.h"
#include "runtime/context.h"

static uint64_t value_of(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

gdn_status gdn_cache_stat(gdn_ctx *ctx, gdn_cache_stats *out)
{
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    GDN_TRY(gdni_check_out(out, "gdn_cache_stats", sizeof(gdn_cache_stats)));
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

struct listing {
    const struct gdni_cache_dir *dir;
    int (*fn)(void *user, const gdn_cache_entry *entry);
    void *user;
};

/* "v2/<arch>/<2 hex>/<key>.<tag>.gdnk", as gdni_cache_scan() made it. */
static const char *name_of(const struct gdni_cache_file *file)
{
    return strrchr(file->path, '/') + 1;
}

/* Bytes of the file, or NULL when it has gone or cannot be read. */
static void *read_file(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, size_t *size)
{
    char arch[16] = "";
    memcpy(arch, file->path + 3, strcspn(file->path + 3, "/"));
    int folder;
    if (gdni_cache_dir_open(dir, arch, name_of(file), false, &folder) != 0) return NULL;
    void *bytes = NULL;
    struct stat st;
    const int err = gdni_cache_dir_read(dir, folder, name_of(file), GDNI_ENTRY_MAX_BYTES, &bytes, &st);
    close(folder);
    *size = err ? 0 : (size_t)st.st_size;
    return err ? NULL : bytes;
}

/* An entry under another key's name or another arch's folder is found by nobody: as good as damaged. */
static bool is_at_its_place(const struct gdni_entry *entry, const struct gdni_cache_file *file)
{
    char hex[GDNI_KEY_HEX];
    gdni_hash_hex(hex, entry->key_text, entry->key_len);
    const size_t arch_len = strlen(entry->arch);
    return strncmp(name_of(file), hex, GDNI_KEY_HEX - 1) == 0 && strncmp(file->path + 3, entry->arch, arch_len) == 0 &&
           file->path[3 + arch_len] == '/';
}

static int tell(const struct listing *l, const struct gdni_cache_file *file, const char *path,
                const struct gdni_entry *entry)
{
    gdn_cache_entry out = {
        .struct_size = sizeof out,
        .path = path,
        .bytes = file->bytes,
        .mtime = file->mtime.tv_sec,
        .valid = entry != NULL,
    };
    char hex[GDNI_KEY_HEX];
    if (entry) {
        gdni_hash_hex(hex, entry->key_text, entry->key_len);
        out.key = hex;
        out.arch = entry->arch;
        out.entry_name = entry->entry;
        out.compiler = entry->facts.compiler;
        out.registers = entry->facts.registers;
        out.spill_bytes = entry->facts.spill_bytes;
        out.local_bytes = entry->facts.local_bytes;
        out.static_smem = entry->facts.static_smem;
    }
    return l->fn(l->user, &out);
}

static gdn_status list_file(const struct listing *l, const struct gdni_cache_file *file)
{
    struct gdni_strbuf sb = { 0 };
    gdni_sb_str(&sb, l->dir->path);
    gdni_sb_str(&sb, "/");
    gdni_sb_str(&sb, file->path);
    char *path = gdni_sb_take(&sb);
    if (!path) return GDN_FAIL(GDN_E_NOMEM, "out of memory: listing %s", l->dir->path);
    size_t size = 0;
    struct gdni_entry entry;
    void *bytes = read_file(l->dir, file, &size);
    const bool valid = bytes && !gdni_entry_parse(&entry, bytes, size, NULL) && is_at_its_place(&entry, file);
    const int stop = tell(l, file, path, valid ? &entry : NULL);
    gdni_free(bytes);
    gdni_free(path);
    return stop ? GDN_FAIL(GDN_E_CANCELLED, "the callback of gdn_cache_list() returned %d", stop) : GDN_OK;
}

gdn_status gdn_cache_list(gdn_ctx *ctx, int (*fn)(void *user, const gdn_cache_entry *entry), void *user)
{
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (!fn) return GDN_FAIL(GDN_E_INVALID, "fn is null: gdn_cache_list() needs a function to call for each entry");
    const struct listing l = { .dir = gdni_cache_user_dir(ctx->cache), .fn = fn, .user = user };
    struct gdni_cache_scan scan;
    GDN_TRY(gdni_cache_scan(l.dir, &scan));
    gdn_status status = GDN_OK;
    for (size_t i = 0; i < scan.count && status == GDN_OK; ++i)
        if (!scan.files[i].temporary) status = list_file(&l, &scan.files[i]);
    gdni_free(scan.files);
    return status;
}
