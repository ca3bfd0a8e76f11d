/*
 * key.h - the identity of a cubin: a canonical text, kept whole in each cache entry and compared byte for byte, and its
 * XXH3-128, which is only a file name.
 *
 * In the text: kernel ABI, arch, options id, entry (which names the kernel), the spec's lines, and the XXH3-128 of each file
 * of the unit.
 * Not in it: call shapes, strides, pool sizes, pointers, GPU name, SM count, driver, paths, environment.
 */
#ifndef GDNI_KEY_H
#define GDNI_KEY_H

#include "codegen/unit.h"

enum { GDNI_KEY_HEX = 33 }; /* 32 digits and a NUL */

struct gdni_key {
    char *text; /* owned */
    size_t len;
    char hex[GDNI_KEY_HEX];
};

gdn_status gdni_key_build(struct gdni_key *out, const struct gdni_unit *unit);
void gdni_key_free(struct gdni_key *key);

/* 32 hex digits of XXH3-128 and a NUL. */
void gdni_hash_hex(char out[GDNI_KEY_HEX], const void *bytes, size_t len);

#endif
