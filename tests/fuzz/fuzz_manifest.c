/*
 * fuzz_manifest.c - gdni_manifest_parse() on any bytes: no crash, and what it believes is in order, stays inside a bundle, and
 * can be written again and believed again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/cache_scan.h"
#include "runtime/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void check_again(const struct gdni_manifest *manifest)
{
    struct gdni_manifest again;
    const char *const contents[] = { "b", "a", "b" };
    char *text = gdni_manifest_print(manifest, contents, 3);
    if (!text) return;
    if (strlen(text) <= GDNI_JSON_MAX_BYTES) {
        require(gdni_manifest_parse("again", text, strlen(text), &again) == GDN_OK && again.count == manifest->count);
        for (size_t i = 0; i < again.count; ++i)
            require(memcmp(&again.entries[i], &manifest->entries[i], sizeof again.entries[i]) == 0);
        gdni_manifest_free(&again);
    }
    gdni_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gdni_manifest manifest;
    if (gdni_manifest_parse("fuzz", (const char *)data, size, &manifest) != GDN_OK) {
        require(!manifest.entries && manifest.count == 0);
        return 0;
    }
    for (size_t i = 0; i < manifest.count; ++i) {
        const struct gdni_manifest_entry *e = &manifest.entries[i];
        require(strnlen(e->path, sizeof e->path) < sizeof e->path && gdni_is_entry_path(e->path));
        require(strnlen(e->sum, sizeof e->sum) == GDNI_KEY_HEX - 1);
        require(strnlen(e->kernel, sizeof e->kernel) < sizeof e->kernel);
        require(strnlen(e->compiler, sizeof e->compiler) < sizeof e->compiler);
        require(i == 0 || strcmp(e[-1].path, e->path) < 0);
    }
    check_again(&manifest);
    gdni_manifest_free(&manifest);
    return 0;
}
