/*
 * size_first.h - structs that begin with their size, as the caller has it: taken, and given.
 */
#ifndef GDNI_SIZE_FIRST_H
#define GDNI_SIZE_FIRST_H

#include <stddef.h>

#include "gdn_jit/gdn_jit.h"

/*
 * Copies a caller's struct into one of ours whose defaults are already set: a shorter caller keeps our defaults, a longer one
 * must have zeros in what we do not know. GDN_E_INVALID or GDN_E_VERSION names the struct.
 */
gdn_status gdni_take_struct(void *ours, size_t our_size, const void *theirs, const char *name, size_t min_size);

/*
 * Checks that theirs, an out struct made from its _INIT macro, can hold a result: given, and of at least min_size bytes (the
 * size of the struct's first version). GDN_E_INVALID or GDN_E_VERSION names the struct.
 */
gdn_status gdni_check_out(const void *theirs, const char *name, size_t min_size);

/* Copies what theirs has room for; its struct_size stays the caller's. theirs passed gdni_check_out(). */
void gdni_give_struct(void *theirs, const void *ours, size_t our_size);

#endif
