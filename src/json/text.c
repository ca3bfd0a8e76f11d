/*
 * text.c - owns what text is JSON, and the lines that sentences name. Must not know: members, files.
 *
 * cJSON has two process-wide things, allocation hooks and the pointer of cJSON_GetErrorPtr(): neither is used. Its memory
 * comes from malloc() for that reason, and only errno tells text that is no JSON from memory that there was not.
 */
#include "json/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

int gdni_json_refuse(gdni_json_fail_fn *fail, const char *format, ...)
{
    char sentence[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return fail(sentence);
}

/* ---- before cJSON sees the text ---- */

struct scan {
    const char *name, *at, *end;
    int line, depth;
    gdni_json_fail_fn *fail;
};

static int refuse(const struct scan *s, const char *what)
{
    return gdni_json_refuse(s->fail, "%s, line %d: %s", s->name, s->line, what);
}

/* Behind the opening quote; leaves s->at behind the closing one. An open string is cJSON's to refuse. */
static int scan_string(struct scan *s)
{
    while (s->at < s->end && *s->at != '"') {
        const unsigned char c = (unsigned char)*s->at;
        if (c < 0x20 || c == 0x7f) return refuse(s, "a control character in a string must be written as an escape");
        const int length = gdni_utf8_length(s->at, (size_t)(s->end - s->at));
        if (length == 0) return refuse(s, "the text is not UTF-8");
        if (c == '\\' && s->end - s->at >= 6 && memcmp(s->at + 1, "u0000", 5) == 0)
            return refuse(s, "\\u0000 is not taken: it would end the string");
        s->at += c == '\\' && s->end - s->at >= 2 && s->at[1] >= 0x20 && s->at[1] < 0x7f ? 2 : length;
    }
    if (s->at < s->end) ++s->at;
    return 0;
}

static bool is_digit(const struct scan *s)
{
    return s->at < s->end && *s->at >= '0' && *s->at <= '9';
}

static bool take_one_of(struct scan *s, const char *choice)
{
    const bool is = s->at < s->end && *s->at && strchr(choice, *s->at);
    s->at += is;
    return is;
}

/* At least one. */
static bool take_digits(struct scan *s)
{
    const bool is = is_digit(s);
    while (is_digit(s))
        ++s->at;
    return is;
}

/* cJSON reads as strtod() does, which takes more: 05, 5. and -.5 among it. What follows the number is cJSON's to refuse. */
static int scan_number(struct scan *s)
{
    take_one_of(s, "-");
    const bool zero = take_one_of(s, "0");
    bool good = zero ? !is_digit(s) : take_digits(s);
    if (good && take_one_of(s, ".")) good = take_digits(s);
    if (good && take_one_of(s, "eE")) {
        take_one_of(s, "+-");
        good = take_digits(s);
    }
    return good ? 0 : refuse(s, "a number that is not valid JSON: leave out zeros before it, and put digits behind its point");
}

static int scan_byte(struct scan *s)
{
    if (is_digit(s) || *s->at == '-') return scan_number(s);
    const char c = *s->at++;
    s->line += c == '\n';
    if (c == '"') return scan_string(s);
    if (c == '{' || c == '[') ++s->depth;
    if (c == '}' || c == ']') --s->depth;
    if (s->depth > GDNI_JSON_MAX_DEPTH) return refuse(s, "nested deeper than 16 levels");
    if ((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t' || c == '\r') return 0;
    return refuse(s, c ? "a byte that is no JSON" : "a NUL byte is no JSON");
}

static int scan_text(struct scan *s)
{
    while (s->at < s->end) {
        const int refused = scan_byte(s);
        if (refused) return refused;
    }
    return 0;
}

/* ---- parse ---- */

static int line_of(const char *text, int first, const char *at)
{
    int line = first;
    for (const char *p = text; p < at; ++p)
        line += *p == '\n';
    return line;
}

int gdni_json_read(const char *name, int line, const char *text, size_t len, gdni_json_fail_fn *fail, cJSON **out)
{
    struct scan scan = { .name = name, .at = text, .end = text + len, .line = line, .fail = fail };
    const char *end = text;
    *out = NULL;
    const int refused = scan_text(&scan);
    if (refused) return refused;
    errno = 0;
    *out = cJSON_ParseWithLengthOpts(text, len + 1, &end, 1); /* the length that it wants counts the NUL */
    if (*out) return 0;
    if (errno == ENOMEM) return GDNI_JSON_NO_MEMORY;
    return gdni_json_refuse(fail, "%s, line %d: not valid JSON near \"%.16s\"", name, line_of(text, line, end), end);
}
