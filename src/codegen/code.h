/*
 * code.h - what of a kernel's text is code, and the hash of that: what a measurement of a kernel was a measurement of.
 */
#ifndef GDNI_CODE_H
#define GDNI_CODE_H

#include <stdbool.h>

#include "codegen/spec.h"

/* A walk over the code in a text: { text }. */
struct gdni_code {
    const char *at;
    bool begun, escaped;
    char quote; /* of the literal that the walk is in, or 0 */
};

/*
 * The next character of code, '\0' at the end. Of C++: a comment is a blank, and of blanks that follow each other one is left,
 * a line end if there is one among them, none at the beginning or the end. In literals everything counts.
 */
char gdni_code_next(struct gdni_code *code);

/* 16 hex digits of the code of the kernel's template and of the headers that it includes. Goes through all of their text. */
enum { GDNI_CODE_HEX = 17 };
void gdni_kernel_code_hash(char out[GDNI_CODE_HEX], enum gdni_kernel kernel);

#endif
