/*
 * text.c - owns what is refused in names and replaced in JSON. Must not know: which names, which JSON.
 */
#include "cli/text.h"

#include <string.h>

/* ---- names ---- */

/* The first control character, those of U+0080 to U+009F included, which terminals obey too; 0: none. */
static unsigned find_control(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; ++p) {
        if (*p < 0x20 || *p == 0x7f) return *p;
        if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) return p[1];
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

/* Bytes of the character that begins at p; 0: none does. A NUL continues nothing, so that nothing behind it is read. */
static size_t character(const unsigned char *p)
{
    /* First bytes up to `last`: how many bytes, and from where to where the second one goes (no overlong, no surrogate). */
    static const struct {
        unsigned char last, low, high;
        size_t bytes;
    } kinds[] = {
        { 0x7f, 0, 0, 1 },       { 0xc1, 0, 0, 0 },       { 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xa0, 0xbf, 3 },
        { 0xec, 0x80, 0xbf, 3 }, { 0xed, 0x80, 0x9f, 3 }, { 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0x90, 0xbf, 4 },
        { 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0x80, 0x8f, 4 }, { 0xff, 0, 0, 0 },
    };
    size_t kind = 0;
    while (*p > kinds[kind].last)
        ++kind;
    const size_t bytes = kinds[kind].bytes;
    if (bytes > 1 && (p[1] < kinds[kind].low || p[1] > kinds[kind].high)) return 0;
    for (size_t i = 2; i < bytes; ++i)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return bytes;
}

char *cli_utf8(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *copy = cli_alloc(3 * strlen(text) + 1), *end = copy;
    while (*text) {
        const size_t bytes = character((const unsigned char *)text);
        memcpy(end, bytes ? text : replacement, bytes ? bytes : 3);
        end += bytes ? bytes : 3;
        text += bytes ? bytes : 1;
    }
    return copy; /* cli_alloc() gives zeros */
}
