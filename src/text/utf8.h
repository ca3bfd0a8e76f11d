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

#endif
