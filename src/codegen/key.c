/*
 * key.c - owns the canonical key text. Must not know: files, caches, devices.
 */
#include "codegen/key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/options.h"

/* Raise when the launch contract changes in a way that neither source nor spec shows. */
enum { KERNEL_ABI = 1 };

void gdni_hash_hex(char out[GDNI_KEY_HEX], const void *bytes, size_t len)
{
    const XXH128_hash_t h = XXH3_128bits(bytes, len);
    snprintf(out, GDNI_KEY_HEX, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static void add_hash(struct gdni_strbuf *sb, const char *name, const char *text)
{
    char hex[GDNI_KEY_HEX];
    gdni_hash_hex(hex, text, strlen(text));
    gdni_sb_fmt(sb, "file %s %s\n", name, hex);
}

gdn_status gdni_key_build(struct gdni_key *out, const struct gdni_unit *unit)
{
    const struct gdni_spec *spec = &unit->spec;
    struct gdni_strbuf sb = { 0 };
    gdni_sb_fmt(&sb, "gdn-jit key v1\nabi %d\narch %s\noptions %s\nentry %s\n", KERNEL_ABI, spec->arch->name,
                GDNI_OPTIONS_ID, unit->entry);
    gdni_emit_spec(&sb, spec); /* readable: what the kernel was specialised for */
    for (int i = 0; i < unit->num_files; ++i)
        add_hash(&sb, unit->files[i].name, unit->files[i].text);
    add_hash(&sb, unit->main_name, unit->main_text);
    out->len = sb.len;
    out->text = gdni_sb_take(&sb);
    if (!out->text) return GDN_FAIL(GDN_E_NOMEM, "out of memory while building the key of %s", unit->entry);
    gdni_hash_hex(out->hex, out->text, out->len);
    return GDN_OK;
}

void gdni_key_free(struct gdni_key *key)
{
    gdni_free(key->text);
    memset(key, 0, sizeof *key);
}
