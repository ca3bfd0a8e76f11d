/*
 * cache_entry.h - one cubin with all that is known about it, and its bytes on disk.
 */
#ifndef GDNI_CACHE_ENTRY_H
#define GDNI_CACHE_ENTRY_H

#include <stddef.h>

#include "gdn_jit/gdn_jit.h"
#include "runtime/program.h"

enum {
    GDNI_ENTRY_MAX_CUBIN = 64 << 20,
    GDNI_ENTRY_MAX_KEY = 64 << 10,
    GDNI_ENTRY_MAX_OPTIONS = 4 << 10,
    GDNI_ENTRY_MAX_LOG = 32 << 10, /* a longer build log loses its beginning */
    GDNI_ENTRY_MAX_BYTES =
        GDNI_ENTRY_MAX_CUBIN + GDNI_ENTRY_MAX_KEY + GDNI_ENTRY_MAX_OPTIONS + GDNI_ENTRY_MAX_LOG + 4096
};

/* A view: pointers lead into the bytes that were parsed, or into a program. Texts with a length have no NUL. */
struct gdni_entry {
    const void *cubin;
    size_t cubin_size;
    const char *key_text;
    size_t key_len;
    const char *options; /* the compiler's, as they were given to it, a space between two */
    size_t options_len;
    const char *build_log;
    size_t log_len;
    char arch[16];
    char entry[64];
    struct gdni_facts facts;
};

/*
 * Fills out from the bytes of a file. NULL when every byte is as it was written, the cubin is one for the entry's arch,
 * and the key text equals `key` (if given); else a few words that say what is wrong, and out is zeros. Pure.
 */
const char *gdni_entry_parse(struct gdni_entry *out, const void *bytes, size_t size, const struct gdni_key *key);

/* The bytes of a file, owned by the caller (gdni_free). GDN_E_INVALID when a member is over its limit. */
gdn_status gdni_entry_encode(const struct gdni_entry *entry, void **bytes, size_t *size);

/* Writes both checksums into bytes of at least a footer, whatever else they hold: for encode and for the fuzz target. */
void gdni_entry_seal(void *bytes, size_t size);

/* NULL when the bytes are an ELF file of a cubin for arch ("sm_90a"), else a few words. */
const char *gdni_cubin_check(const void *cubin, size_t size, const char *arch);

#endif
