/*
 * text.c - owns what is refused in names and replaced in JSON. Must not know: which names, which JSON.
 */
#include "cli/text.h"

#include <string.h>

#include "text/printable.h"
#include "text/utf8.h"

/* ---- names ---- */

/* The first control character; 0: none. */
static unsigned find_control(const char *text)
{
    for (; *text; ++text) {
        const int length = gdni_control_length(text);
        if (length) return (unsigned char)text[length - 1]; /* of two bytes the second is the number */
    }
    return 0;
}

int cli_check_name(const char *where, const char *member, const char *text)
{
    const unsigned control = find_control(text);
    if (!control) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s: \"%s\" has the control character U+%04X: must be a name, of one line, without any",
                    where, member, control);
}

/* ---- UTF-8 ---- */

char *cli_utf8(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *copy = cli_alloc(3 * strlen(text) + 1), *end = copy;
    for (size_t left = strlen(text), taken; left; left -= taken, text += taken) {
        const int length = gdni_utf8_length(text, left);
        const size_t bytes = length ? (size_t)length : sizeof replacement - 1;
        memcpy(end, length ? text : replacement, bytes);
        end += bytes;
        taken = length ? bytes : 1;
    }
    return copy; /* cli_alloc() gives zeros */
}
