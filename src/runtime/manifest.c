/*
 * manifest.c - owns the text of a bundle's manifest, both ways.
 * Pure: no files, no environment, no lock. A manifest is a stranger's: gdni_manifest_parse() is a fuzz target.
 *
 *   {"schema": 1,
 *    "contents": [
 *     "qwen3-next-80b-a3b tp4, NVIDIA H200"
 *    ],
 *    "entries": [
 *     {"path": "v2/sm_90a/0f/0f...c2.5e1a90b7.gdnk", "bytes": 67423, "xxh128": "...", "kernel": "...", "compiler": "..."}
 *    ]}
 */
#include "runtime/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "runtime/cache_scan.h"

/* ---- read ---- */

struct gdni_manifest_entry *gdni_manifest_add(struct gdni_manifest *manifest)
{
    if (manifest->count == manifest->cap) {
        const size_t cap = manifest->cap ? manifest->cap * 2 : 64;
        struct gdni_manifest_entry *entries = gdni_realloc(manifest->entries, cap * sizeof *entries);
        if (!entries) return NULL;
        manifest->entries = entries;
        manifest->cap = cap;
    }
    struct gdni_manifest_entry *entry = &manifest->entries[manifest->count++];
    memset(entry, 0, sizeof *entry);
    return entry;
}

void gdni_manifest_free(struct gdni_manifest *manifest)
{
    gdni_free(manifest->entries);
    *manifest = (struct gdni_manifest){ 0 };
}

static bool copy_text(char *out, size_t size, const char *text)
{
    const size_t len = strlen(text);
    if (len < size) memcpy(out, text, len + 1);
    return len < size;
}

static bool is_sum(const char *text)
{
    return strlen(text) == GDNI_KEY_HEX - 1 && strspn(text, "0123456789abcdef") == GDNI_KEY_HEX - 1;
}

static gdn_status read_entry(const char *where, const gdni_json *object, struct gdni_manifest_entry *out)
{
    const char *path = NULL, *sum = NULL, *kernel = NULL, *compiler = NULL;
    int64_t bytes = 0;
    const struct gdni_json_field fields[] = {
        { "path", GDNI_JSON_STRING, true, &path, 0, 0, NULL },
        { "bytes", GDNI_JSON_INT, true, &bytes, 0, INT64_C(1) << 40, NULL },
        { "xxh128", GDNI_JSON_STRING, true, &sum, 0, 0, NULL },
        { "kernel", GDNI_JSON_STRING, true, &kernel, 0, 0, NULL },
        { "compiler", GDNI_JSON_STRING, true, &compiler, 0, 0, NULL },
    };
    GDN_TRY(gdni_json_object(where, object, fields, sizeof fields / sizeof fields[0]));
    if (!gdni_is_entry_path(path) || !copy_text(out->path, sizeof out->path, path))
        return GDN_FAIL(GDN_E_INVALID,
                        "%s: \"path\" is \"%.96s\": must be a cache entry's, " GDNI_CACHE_FOLDER
                        "/<arch>/<2 hex>/<key>.<compiler>.gdnk",
                        where, path);
    if (!is_sum(sum) || !copy_text(out->sum, sizeof out->sum, sum))
        return GDN_FAIL(GDN_E_INVALID, "%s: \"xxh128\" is \"%.40s\": must be 32 hex digits", where, sum);
    if (!copy_text(out->kernel, sizeof out->kernel, kernel) ||
        !copy_text(out->compiler, sizeof out->compiler, compiler))
        return GDN_FAIL(GDN_E_INVALID, "%s: \"kernel\" or \"compiler\" has more than %zu bytes", where,
                        sizeof out->kernel - 1);
    out->bytes = (uint64_t)bytes;
    return GDN_OK;
}

static gdn_status read_entries(const char *name, const gdni_json *array, struct gdni_manifest *out)
{
    for (const gdni_json *item = gdni_json_first(array); item; item = gdni_json_next(item)) {
        char where[256];
        snprintf(where, sizeof where, "%.200s, entry %zu", name, out->count);
        struct gdni_manifest_entry *entry = gdni_manifest_add(out);
        if (!entry) return GDN_FAIL(GDN_E_NOMEM, "out of memory: entries of %s", name);
        GDN_TRY(read_entry(where, item, entry));
        if (out->count > 1 && strcmp(entry[-1].path, entry->path) >= 0)
            return GDN_FAIL(GDN_E_INVALID, "%s: \"path\" is \"%s\": paths must be sorted, and no two alike", where,
                            entry->path);
    }
    return GDN_OK;
}

static gdn_status check_contents(const char *name, const gdni_json *array)
{
    const char *line = NULL;
    const struct gdni_json_field field = { "contents", GDNI_JSON_STRING, true, &line, 0, 0, NULL };
    for (const gdni_json *item = gdni_json_first(array); item; item = gdni_json_next(item))
        GDN_TRY(gdni_json_value(name, item, &field));
    return GDN_OK;
}

static gdn_status read_root(const char *name, const gdni_json *root, struct gdni_manifest *out)
{
    int64_t schema = GDNI_MANIFEST_SCHEMA;
    const gdni_json *contents = NULL, *entries = NULL;
    const struct gdni_json_field fields[] = {
        { "schema", GDNI_JSON_INT, true, &schema, 1, INT32_MAX, NULL },
        { "contents", GDNI_JSON_ARRAY, true, &contents, 0, 0, NULL },
        { "entries", GDNI_JSON_ARRAY, true, &entries, 0, 0, NULL },
    };
    const gdn_status status = gdni_json_object(name, root, fields, sizeof fields / sizeof fields[0]);
    if (schema != GDNI_MANIFEST_SCHEMA) /* first: another schema has other members */
        return GDN_FAIL(GDN_E_VERSION, "%s: \"schema\" is %lld: this library reads %d", name, (long long)schema,
                        GDNI_MANIFEST_SCHEMA);
    if (status != GDN_OK) return status;
    GDN_TRY(check_contents(name, contents));
    return read_entries(name, entries, out);
}

gdn_status gdni_manifest_parse(const char *name, const char *text, size_t len, struct gdni_manifest *out)
{
    gdni_json *root = NULL;
    *out = (struct gdni_manifest){ 0 };
    GDN_TRY(gdni_json_parse(name, text, len, &root));
    const gdn_status status = read_root(name, root, out);
    gdni_json_free(root);
    if (status != GDN_OK) gdni_manifest_free(out);
    return status;
}

/* ---- write ---- */

static void print_contents(struct gdni_strbuf *sb, const char *const *lines, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if (i && strcmp(lines[i - 1], lines[i]) == 0) continue;
        gdni_sb_str(sb, i ? ",\n  " : "\n  ");
        gdni_sb_json_str(sb, lines[i]);
    }
}

static void print_entries(struct gdni_strbuf *sb, const struct gdni_manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; ++i) {
        const struct gdni_manifest_entry *entry = &manifest->entries[i];
        gdni_sb_str(sb, i ? ",\n  {\"path\": " : "\n  {\"path\": ");
        gdni_sb_json_str(sb, entry->path);
        gdni_sb_json_int(sb, "bytes", (int64_t)entry->bytes);
        gdni_sb_json_text(sb, "xxh128", entry->sum);
        gdni_sb_json_text(sb, "kernel", entry->kernel);
        gdni_sb_json_text(sb, "compiler", entry->compiler);
        gdni_sb_str(sb, "}");
    }
}

char *gdni_manifest_print(const struct gdni_manifest *manifest, const char *const *contents, size_t num_contents)
{
    struct gdni_strbuf sb = { 0 };
    const char **sorted = gdni_calloc(num_contents + 1, sizeof *sorted);
    if (!sorted) return NULL;
    if (num_contents) memcpy(sorted, contents, num_contents * sizeof *sorted);
    qsort(sorted, num_contents, sizeof *sorted, gdni_by_text);
    gdni_sb_fmt(&sb, "{\"schema\": %d,\n \"contents\": [", GDNI_MANIFEST_SCHEMA);
    print_contents(&sb, sorted, num_contents);
    gdni_sb_str(&sb, "\n ],\n \"entries\": [");
    print_entries(&sb, manifest);
    gdni_sb_str(&sb, "\n ]}\n");
    gdni_free(sorted);
    return gdni_sb_take(&sb);
}
