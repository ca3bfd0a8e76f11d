/*
 * size_first.c - see size_first.h. Must not know: which structs there are.
 */
#include "base/size_first.h"

#include <string.h>

#include "base/error.h"

enum { LARGEST = 65536 }; /* no struct of this interface comes near; a larger size is an uninitialised one */

/* The struct's size as the caller has it. */
static gdn_status read_size(size_t *size, const void *theirs, const char *name, size_t min_size)
{
    if (!theirs) return GDN_FAIL(GDN_E_INVALID, "%s is null: pass a struct made from its _INIT macro", name);
    memcpy(size, theirs, sizeof *size);
    if (*size >= min_size && *size <= LARGEST) return GDN_OK;
    return GDN_FAIL(GDN_E_VERSION, "%s.struct_size is %zu: start from its _INIT macro (at least %zu bytes)", name, *size,
                    min_size);
}

gdn_status gdni_take_struct(void *ours, size_t our_size, const void *theirs, const char *name, size_t min_size)
{
    size_t size;
    const unsigned char *bytes = theirs;
    GDN_TRY(read_size(&size, theirs, name, min_size));
    for (size_t i = our_size; i < size; ++i)
        if (bytes[i])
            return GDN_FAIL(
                GDN_E_VERSION,
                "%s.struct_size is %zu and a member past this library's %zu bytes is set: this library is older "
                "than the header it was called with",
                name, size, our_size);
    memcpy(ours, theirs, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof our_size);
    return GDN_OK;
}

gdn_status gdni_check_out(const void *theirs, const char *name, size_t min_size)
{
    size_t size;
    return read_size(&size, theirs, name, min_size);
}

void gdni_give_struct(void *theirs, const void *ours, size_t our_size)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    const size_t common = size < our_size ? size : our_size;
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, common - sizeof size);
}
