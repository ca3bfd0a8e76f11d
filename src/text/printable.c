/*
 * printable.c - owns which characters of a sentence a terminal may see. Must not know: anything else.
 */
#include "text/printable.h"

bool gdni_is_printable(char c)
{
    return ((unsigned char)c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
}

bool gdni_is_plain_line(const char *text, size_t len)
{
    for (size_t i = 0; i < len; ++i)
        if (text[i] < 0x20 || text[i] > 0x7e) return false;
    return true;
}

int gdni_control_length(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (*p && (*p < 0x20 || *p == 0x7f)) return 1;
    return p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

/* As many '?' as the character has bytes: no sentence changes its length. */
static void make_printable(char *sentence, bool keeps_lines)
{
    while (*sentence) {
        const bool kept = keeps_lines && (*sentence == '\n' || *sentence == '\t');
        const int control = kept ? 0 : gdni_control_length(sentence);
        for (int i = 0; i < control; ++i)
            sentence[i] = '?';
        sentence += control ? control : 1;
    }
}

void gdni_make_printable(char *sentence)
{
    make_printable(sentence, true);
}

void gdni_make_one_line(char *sentence)
{
    make_printable(sentence, false);
}
