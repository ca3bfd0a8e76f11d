/*
 * give.h - copies a result into a caller's size-first struct; the other direction is gdni_take_struct() of problem.h.
 */
#ifndef GDNI_GIVE_H
#define GDNI_GIVE_H

#include <stddef.h>

#include "gdn_jit/gdn_jit.h"

/*
 * Checks that theirs, an out struct made from its _INIT macro, can hold a result: given, and of at least min_size bytes (the
 * size of the struct's first version). GDN_E_INVALID or GDN_E_VERSION names the struct.
 */
gdn_status gdni_check_out(const void *theirs, const char *name, size_t min_size);

/* Copies what theirs has room for; its struct_size stays the caller's. theirs passed gdni_check_out(). */
void gdni_give_struct(void *theirs, const void *ours, size_t our_size);

#endif
