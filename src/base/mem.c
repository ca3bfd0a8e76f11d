/*
 * mem.c - owns allocation. Must not know: anything else of the library.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local int64_t allowed_left = -1;

static bool may_allocate(void)
{
    if (allowed_left < 0) return true;
    if (allowed_left == 0) return false;
    --allowed_left;
    return true;
}

void gdni_mem_fail_after(int64_t allowed)
{
    allowed_left = allowed;
}

void *gdni_alloc(size_t size)
{
    return may_allocate() ? malloc(size ? size : 1) : NULL;
}

void *gdni_calloc(size_t count, size_t size)
{
    size_t total;
    if (!gdni_mul_size(count, size, &total) || !may_allocate()) return NULL;
    return calloc(1, total ? total : 1);
}

void *gdni_realloc(void *p, size_t size)
{
    return may_allocate() ? realloc(p, size ? size : 1) : NULL;
}

char *gdni_strndup(const char *s, size_t len)
{
    char *copy = gdni_alloc(len + 1);
    if (!copy) return NULL;
    if (len) memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

void *gdni_memdup(const void *p, size_t size)
{
    void *copy = gdni_alloc(size);
    if (copy && size) memcpy(copy, p, size);
    return copy;
}

char *gdni_strdup(const char *s)
{
    return gdni_memdup(s, strlen(s) + 1);
}

void gdni_free(void *p)
{
    free(p);
}

bool gdni_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
