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
    size_t cap = sb->cap ? sb->cap * 2 : 256;
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
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        sb->failed = true;
    else if (reserve(sb, (size_t)n)) {
        vsnprintf(sb->text + sb->len, (size_t)n + 1, format, again);
        sb->len += (size_t)n;
    }
    va_end(again);
}

void gdni_sb_json_str(struct gdni_strbuf *sb, const char *s)
{
    gdni_sb_str(sb, "\"");
    for (; *s; ++s) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            gdni_sb_fmt(sb, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            gdni_sb_fmt(sb, "\\u%04x", c);
        else
            gdni_sb_bytes(sb, s, 1);
    }
    gdni_sb_str(sb, "\"");
}

void gdni_sb_json_text(struct gdni_strbuf *sb, const char *name, const char *value)
{
    gdni_sb_fmt(sb, ", \"%s\": ", name);
    gdni_sb_json_str(sb, value);
}

void gdni_sb_json_int(struct gdni_strbuf *sb, const char *name, int64_t value)
{
    gdni_sb_fmt(sb, ", \"%s\": %lld", name, (long long)value);
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
