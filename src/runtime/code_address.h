/*
 * code_address.h - cubins whose kernel learns where its own code lies, and how long it is, so that it can bring it to L2
 * (gdn_code.cuh).
 *
 * CUDA does not tell a kernel. But it tells where a variable lies, by a relocation that a driver resolves when it loads the
 * cubin. So the kernel asks for a variable of one byte, and the cubin that is loaded is a copy in which that relocation names
 * the kernel instead. That is not documented. The kernel only prefetches there, from the next lower multiple of a line on,
 * which is no error where there is no memory (tried on an H200). Where a driver refuses such a copy, the cubin itself is loaded
 * (module.c); one that looked at it only when the kernel is launched would have the launch fail, for which there is
 * GDN_JIT_DISABLE_CODE_PREFETCH.
 */
#ifndef GDNI_CODE_ADDRESS_H
#define GDNI_CODE_ADDRESS_H

#include <stddef.h>

#define GDNI_OWN_CODE "gdn_own_code" /* the variable */

/*
 * A copy of the cubin in which the variable's address is that of `entry`, with the number of its lines (codegen/spec.h),
 * gdni_free()'s; NULL where the kernel does not ask, the cubin is damaged (which the driver will say), or memory is out. Takes
 * time as the cubin is long, whatever is in it.
 */
void *gdni_tell_code_address(const void *cubin, size_t size, const char *entry);

#endif
