/*
 * strbuf.c - see strbuf.h. Must not know: what the text means.
 */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool reserve(struct gdni_strbuf *sb, size_t more)
{
    if (sb->failed) return false;
    const size_t need = sb->len + more + 1;
    if (need <= sb->cap) return true;
    size_t cap = sb->cap ? sb->cap * 2 : 1024;
    if (cap < need) cap = need;
    char *grown = gdni_realloc(sb->text, cap);
    if (!grown) {
        sb->failed = true;
        return false;
    }
    sb->text = grown;
    sb->cap = cap;
    return true;
}

void gdni_sb_bytes(struct gdni_strbuf *sb, const char *bytes, size_t len)
{
    if (!reserve(sb, len)) return;
    if (len) memcpy(sb->text + sb->len, bytes, len);
    sb->len += len;
    sb->text[sb->len] = '\0';
}

void gdni_sb_str(struct gdni_strbuf *sb, const char *s)
{
    gdni_sb_bytes(sb, s, strlen(s));
}

void gdni_sb_fmt(struct gdni_strbuf *sb, const char *format, ...)
{
    va_list args, again;
    if (!reserve(sb, 0)) return;
    const size_t room = sb->cap - sb->len;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(sb->text + sb->len, room, format, args); /* nearly always it fits */
    va_end(args);
    if (n < 0)
        sb->failed = true;
    else if ((size_t)n < room)
        sb->len += (size_t)n;
    else if (reserve(sb, (size_t)n)) {
        vsnprintf(sb->text + sb->len, (size_t)n + 1, format, again);
        sb->len += (size_t)n;
    }
    va_end(again);
}

void gdni_sb_int(struct gdni_strbuf *sb, int64_t value)
{
    char digits[20]; /* of the most negative number, with its sign */
    size_t at = sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) digits[--at] = '-';
    gdni_sb_bytes(sb, digits + at, sizeof digits - at);
}

void gdni_sb_json_str(struct gdni_strbuf *sb, const char *s)
{
    static const char escaped[] = "\"\\\177\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17"
                                  "\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37";
    gdni_sb_str(sb, "\"");
    for (size_t len = strcspn(s, escaped);; len = strcspn(s, escaped)) {
        gdni_sb_bytes(sb, s, len);
        s += len;
        if (!*s) break;
        gdni_sb_fmt(sb, *s == '"' || *s == '\\' ? "\\%c" : "\\u%04x", (unsigned char)*s);
        ++s;
    }
    gdni_sb_str(sb, "\"");
}

static void json_name(struct gdni_strbuf *sb, const char *name)
{
    gdni_sb_str(sb, ", \"");
    gdni_sb_str(sb, name);
    gdni_sb_str(sb, "\": ");
}

void gdni_sb_json_text(struct gdni_strbuf *sb, const char *name, const char *value)
{
    json_name(sb, name);
    gdni_sb_json_str(sb, value);
}

void gdni_sb_json_int(struct gdni_strbuf *sb, const char *name, int64_t value)
{
    json_name(sb, name);
    gdni_sb_int(sb, value);
}

char *gdni_sb_take(struct gdni_strbuf *sb)
{
    gdni_sb_str(sb, ""); /* an empty buffer still yields "" */
    char *text = sb->text;
    if (sb->failed) {
        gdni_free(text);
        text = NULL;
    }
    *sb = (struct gdni_strbuf){ 0 };
    return text;
}

void gdni_sb_free(struct gdni_strbuf *sb)
{
    gdni_free(sb->text);
    *sb = (struct gdni_strbuf){ 0 };
}

int gdni_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}
