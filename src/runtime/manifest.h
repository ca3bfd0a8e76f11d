/*
 * manifest.h - manifest.json of a bundle <-> struct gdni_manifest. docs/cache.md describes the file.
 */
#ifndef GDNI_MANIFEST_H
#define GDNI_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "codegen/key.h"

#define GDNI_MANIFEST_NAME "manifest.json"

enum { GDNI_MANIFEST_SCHEMA = 1 };

/* One file of the bundle. */
struct gdni_manifest_entry {
    char path[96]; /* v2/<arch>/<2 hex>/<key>.<tag>.gdnk, as gdni_cache_scan() has it */
    uint64_t bytes;
    char sum[GDNI_KEY_HEX]; /* XXH3-128 of the whole file, hex */
    char kernel[64], compiler[64];
};

struct gdni_manifest {
    struct gdni_manifest_entry *entries; /* sorted by path, no two alike */
    size_t count, cap;
};

/*
 * Reads a manifest. GDN_E_INVALID with a sentence that names the file, the entry and the member; GDN_E_VERSION: a schema of
 * another version. Pure: paths are checked for their form, not looked up. gdni_manifest_free() after GDN_OK.
 */
gdn_status gdni_manifest_parse(const char *name, const char *text, size_t len, struct gdni_manifest *out);
void gdni_manifest_free(struct gdni_manifest *manifest);

/* Room for one more, zeroed; NULL when out of memory. For pack, which fills the manifest in order. */
struct gdni_manifest_entry *gdni_manifest_add(struct gdni_manifest *manifest);

/* The text: contents sorted, duplicates once. NULL when out of memory; gdni_free. */
char *gdni_manifest_print(const struct gdni_manifest *manifest, const char *const *contents, size_t num_contents);

#endif
