/*
 * mem.h - the one place that calls malloc. Tests make the n-th allocation fail through gdni_mem_fail_after().
 */
#ifndef GDNI_MEM_H
#define GDNI_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *gdni_alloc(size_t size);                /* NULL when out of memory; size 0 is size 1 */
void *gdni_calloc(size_t count, size_t size); /* zeroed; NULL also when count * size overflows */
void *gdni_realloc(void *p, size_t size);
char *gdni_strdup(const char *s);
char *gdni_strndup(const char *s, size_t len); /* s has at least len bytes */
void *gdni_memdup(const void *p, size_t size);
void gdni_free(void *p);

/* The next `allowed` allocations of this thread succeed, those after it fail; negative: none fails. For tests. */
void gdni_mem_fail_after(int64_t allowed);

/* *out = a * b; false on overflow. */
bool gdni_mul_size(size_t a, size_t b, size_t *out);

#endif
