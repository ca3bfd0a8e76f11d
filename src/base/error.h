/*
 * error.h - the one way to fail: a status and a sentence.
 *
 * The sentence is per thread and names the field, its value and the remedy. Nobody above this file prints or aborts.
 */
#ifndef GDNI_ERROR_H
#define GDNI_ERROR_H

#include "gdn_jit/gdn_jit.h"

enum { GDNI_ERROR_TEXT = 4096 }; /* bytes of the longest sentence, its NUL included; a longer one is cut */

/*
 * Records the sentence and yields the status: return GDN_FAIL(GDN_E_INVALID, "width is %d: must be 2, 3 or 4", w);
 * Yields the constant itself rather than gdni_fail()'s result, so that the compiler sees that a failure is not GDN_OK.
 */
#define GDN_FAIL(status, ...) (gdni_fail((status), __VA_ARGS__), (status))

/* Passes a failure up unchanged. */
#define GDN_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        const gdn_status try_ = (expr);                                                                                \
        if (try_ != GDN_OK) return try_;                                                                               \
    } while (0)

gdn_status gdni_fail(gdn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the current sentence, for a caller that knows more; returns status. */
gdn_status gdni_fail_in(gdn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *gdni_error_text(void);

#endif
