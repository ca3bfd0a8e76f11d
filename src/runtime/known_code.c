/*
 * known_code.c - owns the hashes of the kernels' code once they are known: a table asks for each of its entries, and a hash
 * takes a millisecond. Must not know: tables.
 */
#include "runtime/known_code.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Who works one out at the same time finds the same. 0: not known, or, of one kernel in 2^64, worked out each time. */
static uint64_t hash_of(enum gdni_kernel kernel)
{
    static _Atomic uint64_t known[GDNI_NUM_KERNELS];
    uint64_t hash = atomic_load_explicit(&known[kernel], memory_order_relaxed);
    if (hash == 0) {
        char hex[GDNI_CODE_HEX];
        gdni_kernel_code_hash(hex, kernel);
        hash = strtoull(hex, NULL, 16);
        atomic_store_explicit(&known[kernel], hash, memory_order_relaxed);
    }
    return hash;
}

bool gdni_kernel_code_is(enum gdni_kernel kernel, const char *code)
{
    static const char digits[] = "0123456789abcdef";
    const uint64_t hash = hash_of(kernel);
    for (int i = 0; i < GDNI_CODE_HEX - 1; ++i)
        if (code[i] != digits[hash >> (4 * (GDNI_CODE_HEX - 2 - i)) & 15]) return false;
    return code[GDNI_CODE_HEX - 1] == '\0';
}
