/*
 * printable.c - owns which characters of a sentence a terminal may see. Must not know: anything else.
 */
#include "text/printable.h"

bool gdni_is_printable(char c)
{
    return ((unsigned char)c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
}

void gdni_make_printable(char *sentence)
{
    for (; *sentence; ++sentence)
        if (!gdni_is_printable(*sentence)) *sentence = '?';
}
