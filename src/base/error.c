/*
 * error.c - owns this thread's last error sentence and the names of the status numbers.
 * Must not know: anything else of the library.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/printable.h"

static _Thread_local char text[GDNI_ERROR_TEXT];

/* Only what a compiler says has lines of its own, and is unreadable without them. */
static void clean(char *sentence, gdn_status status)
{
    if (status == GDN_E_COMPILE)
        gdni_make_printable(sentence);
    else
        gdni_make_one_line(sentence);
}

gdn_status gdni_fail(gdn_status status, const char *format, ...)
{
    char fresh[GDNI_ERROR_TEXT]; /* an argument may point into text */
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    clean(fresh, status);
    memcpy(text, fresh, sizeof text);
    return status;
}

gdn_status gdni_fail_in(gdn_status status, const char *format, ...)
{
    char fresh[GDNI_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    const size_t head = n < 0 ? 0 : (n < GDNI_ERROR_TEXT ? (size_t)n : GDNI_ERROR_TEXT - 1);
    static const char joint[] = ": ";
    for (size_t from = 0, at = head; at < GDNI_ERROR_TEXT - 1; ++at, ++from) /* prefix, joint, as much of the old as fits */
        fresh[at] = from < 2 ? joint[from] : text[from - 2];
    fresh[GDNI_ERROR_TEXT - 1] = '\0';
    clean(fresh, status);
    memcpy(text, fresh, sizeof text);
    return status;
}

const char *gdni_error_text(void)
{
    return text;
}

static const struct {
    gdn_status status;
    const char *name;
} names[] = {
#define NAME(s)                                                                                                        \
    {                                                                                                                  \
        s, #s                                                                                                          \
    }
    NAME(GDN_OK),           NAME(GDN_E_INVALID),      NAME(GDN_E_UNSUPPORTED),
    NAME(GDN_E_VERSION),    NAME(GDN_E_NOMEM),        NAME(GDN_E_IO),
    NAME(GDN_E_NO_DRIVER),  NAME(GDN_E_NO_NVRTC),     NAME(GDN_E_NO_DEVICE),
    NAME(GDN_E_COMPILE),    NAME(GDN_E_NOT_CACHED),   NAME(GDN_E_CUDA),
    NAME(GDN_E_NOT_LOADED), NAME(GDN_E_WORKSPACE),    NAME(GDN_E_CANCELLED),
    NAME(GDN_E_NOT_TUNED),  NAME(GDN_E_WRONG_RESULT), NAME(GDN_E_TIMEOUT),
#undef NAME
};

const char *gdn_status_name(gdn_status status)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        if (names[i].status == status) return names[i].name;
    return "GDN_E_?";
}

const char *gdn_last_error(void)
{
    return text;
}

uint32_t gdn_version(void)
{
    return GDN_VERSION;
}
