/*
 * fake_cubin.h - what stand-ins for NVRTC give as a cubin: an ELF file that the library and the fake driver take for one. Its
 * body is the section .text.<kernel>; a file without a kernel's name has no section table. It has symbols, and a relocation
 * where it asks, as NVRTC makes them.
 */
#ifndef FAKE_CUBIN_H
#define FAKE_CUBIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_cubin {
    const void *body;
    size_t size;
    const char *kernel;       /* "": none */
    unsigned capability, tag; /* 90; one byte that tells compilers apart */
    int asks_address;         /* where its code lies: runtime/code_address.h */
};

size_t fake_cubin_size(const struct fake_cubin *cubin);
void fake_cubin_write(const struct fake_cubin *cubin, void *out); /* that many bytes */

/* Of a file with a section table. */
const void *fake_cubin_body(const void *cubin, size_t *size);

/* Whose address a kernel that asks where its code lies would get: a name; NULL of one that does not ask. */
const char *fake_cubin_address_of(const void *cubin);

#ifdef __cplusplus
}
#endif

#endif
