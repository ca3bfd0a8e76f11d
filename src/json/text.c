/*
 * text.c - owns what text is JSON, and the lines that sentences name. Must not know: members, files.
 *
 * All that is wrong with a text is found here, before cJSON sees it: what cJSON refuses after that it had no memory for. It
 * says no more than that it failed, and has two things that are the process's. Allocation hooks, where the process has set some
 * (cJSON_InitHooks()), serve here too. The pointer of cJSON_GetErrorPtr() is left at no text of ours.
 */
#include "json/text.h"

#include <cjson/cJSON.h>
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

/* ---- pieces ---- */

struct scan {
    const char *name, *at, *end;
    int line, depth;
    gdni_json_fail_fn *fail;
};

static int refuse(const struct scan *s, const char *what)
{
    return gdni_json_refuse(s->fail, "%s, line %d: %s", s->name, s->line, what);
}

/* What stands here is not what may. */
static int refuse_here(const struct scan *s)
{
    const unsigned char c = s->at < s->end ? (unsigned char)*s->at : ' ';
    if (c == 0) return refuse(s, "a NUL byte is no JSON");
    if ((c < 0x20 && !strchr("\n\t\r", c)) || c >= 0x7f) return refuse(s, "a byte that is no JSON");
    return gdni_json_refuse(s->fail, "%s, line %d: not valid JSON near \"%.16s\"", s->name, s->line, s->at);
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

static void skip_space(struct scan *s)
{
    while (take_one_of(s, " \t\r\n"))
        s->line += s->at[-1] == '\n';
}

/* ---- strings ---- */

/* Four digits of a \u. */
static bool take_unit(struct scan *s, unsigned *unit)
{
    static const char digits[] = "0123456789abcdef";
    *unit = 0;
    for (int i = 0; i < 4; ++i, ++s->at) {
        const char c = s->at < s->end && *s->at >= '0' ? *s->at : ' ';
        const char *digit = strchr(digits, c | 0x20); /* of a capital the small letter */
        if (!digit) return false;
        *unit = *unit << 4 | (unsigned)(digit - digits);
    }
    return true;
}

/* Behind \u: a character, or the two halves of one. */
static bool take_unicode(struct scan *s)
{
    unsigned first, second;
    if (!take_unit(s, &first) || (first >= 0xdc00 && first < 0xe000)) return false;
    if (first < 0xd800 || first >= 0xe000) return true;
    return take_one_of(s, "\\") && take_one_of(s, "u") && take_unit(s, &second) && second >= 0xdc00 && second < 0xe000;
}

/* At the backslash. */
static int scan_escape(struct scan *s)
{
    const char *from = s->at++;
    if (s->end - from >= 6 && memcmp(s->at, "u0000", 5) == 0)
        return refuse(s, "\\u0000 is not taken: it would end the string");
    if (take_one_of(s, "\"\\/bfnrt") || (take_one_of(s, "u") && take_unicode(s))) return 0;
    if (s->at < s->end && gdni_utf8_length(s->at, (size_t)(s->end - s->at)) == 0) return refuse(s, "the text is not UTF-8");
    s->at = from;
    return refuse_here(s);
}

/* Behind the opening quote; leaves s->at behind the closing one. */
static int scan_string(struct scan *s)
{
    while (s->at < s->end && *s->at != '"') {
        const unsigned char c = (unsigned char)*s->at;
        if (c < 0x20 || c == 0x7f) return refuse(s, "a control character in a string must be written as an escape");
        const int length = gdni_utf8_length(s->at, (size_t)(s->end - s->at));
        if (length == 0) return refuse(s, "the text is not UTF-8");
        const int refused = c == '\\' ? scan_escape(s) : 0;
        if (refused) return refused;
        if (c != '\\') s->at += length;
    }
    return take_one_of(s, "\"") ? 0 : refuse_here(s);
}

/* ---- numbers ---- */

/* At least one. */
static bool take_digits(struct scan *s)
{
    const bool is = is_digit(s);
    while (is_digit(s))
        ++s->at;
    return is;
}

/* cJSON reads as strtod() does, which takes more: 05, 5. and -.5 among it; and no more than it has room for. */
static int scan_number(struct scan *s)
{
    enum { ROOM = 63 };
    const char *from = s->at;
    take_one_of(s, "-");
    const bool zero = take_one_of(s, "0");
    bool good = zero ? !is_digit(s) : take_digits(s);
    if (good && take_one_of(s, ".")) good = take_digits(s);
    if (good && take_one_of(s, "eE")) {
        take_one_of(s, "+-");
        good = take_digits(s);
    }
    if (!good)
        return refuse(s, "a number that is not valid JSON: leave out zeros before it, and put digits behind its point");
    return s->at - from <= ROOM ? 0 : refuse(s, "a number of more than 63 characters is not taken: write fewer digits");
}

/* ---- values ---- */

static int scan_word(struct scan *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
        const size_t len = strlen(words[i]);
        if ((size_t)(s->end - s->at) < len || memcmp(s->at, words[i], len) != 0) continue;
        s->at += len;
        return 0;
    }
    return refuse_here(s);
}

static int scan_value(struct scan *s);

static int scan_name(struct scan *s)
{
    skip_space(s);
    if (!take_one_of(s, "\"")) return refuse_here(s);
    const int refused = scan_string(s);
    if (refused) return refused;
    skip_space(s);
    return take_one_of(s, ":") ? 0 : refuse_here(s);
}

/* Behind the bracket that opens an array or an object; named: an object. */
static int scan_items(struct scan *s, bool named)
{
    const char *const end = named ? "}" : "]";
    skip_space(s);
    if (take_one_of(s, end)) return 0;
    do {
        int refused = named ? scan_name(s) : 0;
        if (!refused) refused = scan_value(s);
        if (refused) return refused;
        skip_space(s);
    } while (take_one_of(s, ","));
    return take_one_of(s, end) ? 0 : refuse_here(s);
}

static int scan_value(struct scan *s)
{
    skip_space(s);
    if (take_one_of(s, "\"")) return scan_string(s);
    if (is_digit(s) || (s->at < s->end && *s->at == '-')) return scan_number(s);
    if (!take_one_of(s, "[{")) return scan_word(s);
    const bool named = s->at[-1] == '{';
    if (++s->depth > GDNI_JSON_MAX_DEPTH) return refuse(s, "nested deeper than 16 levels");
    const int refused = scan_items(s, named);
    --s->depth;
    return refused;
}

static int scan_text(struct scan *s)
{
    const int refused = scan_value(s);
    if (refused) return refused;
    skip_space(s);
    return s->at == s->end ? 0 : refuse_here(s);
}

/* ---- parse ---- */

int gdni_json_read(const char *name, int line, const char *text, size_t len, gdni_json_fail_fn *fail, cJSON **out)
{
    struct scan scan = { .name = name, .at = text, .end = text + len, .line = line, .fail = fail };
    *out = NULL;
    const int refused = scan_text(&scan);
    if (refused) return refused;
    *out = cJSON_ParseWithLengthOpts(text, len + 1, NULL, 1); /* the length that it wants counts the NUL */
    if (*out) return 0;
    cJSON_Delete(cJSON_Parse("0")); /* the process's error pointer is into a text that goes: now it is not */
    return GDNI_JSON_NO_MEMORY;
}
