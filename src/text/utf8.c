/*
 * utf8.c - see utf8.h. Must not know: what text is for.
 */
#include "text/utf8.h"

#include <stdbool.h>
#include <string.h>

int gdni_utf8_length(const char *text, size_t left)
{
    static const struct {
        unsigned char low, high; /* of the first byte */
        unsigned char next_low, next_high;
        int length;
    } forms[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    const unsigned char *p = (const unsigned char *)text;
    if (left == 0) return 0;
    if (*p < 0x80) return 1;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
        const int length = forms[i].length;
        if (*p < forms[i].low || *p > forms[i].high) continue;
        if (left < (size_t)length || p[1] < forms[i].next_low || p[1] > forms[i].next_high) return 0;
        for (int k = 2; k < length; ++k)
            if (p[k] < 0x80 || p[k] > 0xbf) return 0;
        return length;
    }
    return 0;
}

static bool goes_on(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

void gdni_fit(char *out, size_t size, const char *text)
{
    const size_t len = strlen(text);
    if (len < size) {
        memcpy(out, text, len + 1);
        return;
    }
    size_t head = size / 4;
    const char *tail = text + len - (size - sizeof "..." - head);
    while (head && goes_on(text[head]))
        --head;
    while (goes_on(*tail))
        ++tail;
    memcpy(out, text, head);
    memcpy(out + head, "...", 3);
    memcpy(out + head + 3, tail, (size_t)(text + len + 1 - tail));
}
