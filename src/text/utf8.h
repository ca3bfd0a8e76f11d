/*
 * utf8.h - what a character of UTF-8 is.
 */
#ifndef GDNI_TEXT_UTF8_H
#define GDNI_TEXT_UTF8_H

#include <stddef.h>

/*
 * Bytes of the character that text begins with, of which `left` may be read; 0 when it begins with none: surrogates, overlong
 * forms, what passes U+10FFFF and what is cut off included. A NUL is one of one byte.
 */
int gdni_utf8_length(const char *text, size_t left);

/*
 * text in out, which has size bytes (16 or more); of one that does not fit "..." stands for its middle, between characters: of
 * a path, or a sentence that begins with one, the end says most.
 */
void gdni_fit(char *out, size_t size, const char *text);

#endif
