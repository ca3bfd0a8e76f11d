/*
 * code_address.h - cubins whose kernel learns where its own code lies, and how long it is, so that it can bring it to L2
 * (gdn_code.cuh).
 *
 * CUDA does not tell a kernel. But it tells where a variable lies, by a relocation that a driver resolves when it loads the
 * cubin. So the kernel asks for a variable of one byte, and the cubin that is loaded is a copy in which that relocation names
 * the kernel instead. That is not documented; whatever a driver makes of it, the kernel only prefetches there, and a prefetch
 * of what is no memory is no error. Where a driver refuses such a copy, the cubin itself is loaded (module.c).
 */
#ifndef GDNI_CODE_ADDRESS_H
#define GDNI_CODE_ADDRESS_H

#include <stddef.h>

/* GPUs' addresses have fewer bits; above them stands the number of the code's lines of GDNI_CODE_LINE bytes. */
enum { GDNI_CODE_ADDRESS_BITS = 49, GDNI_CODE_LINE = 128 };
#define GDNI_OWN_CODE "gdn_own_code" /* the variable */

/*
 * A copy of the cubin in which the variable's address is that of `entry`, gdni_free()'s; NULL where the kernel does not ask,
 * the cubin is damaged (which the driver will say), or memory is out.
 */
void *gdni_tell_code_address(const void *cubin, size_t size, const char *entry);

#endif
