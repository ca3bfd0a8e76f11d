/*
 * printable.h - what makes a sentence fit for a terminal: it quotes what files and the environment say. The library has it, and
 * the tool.
 */
#ifndef GDNI_TEXT_PRINTABLE_H
#define GDNI_TEXT_PRINTABLE_H

#include <stdbool.h>

/* Line ends and tabs are, other control characters are not. */
bool gdni_is_printable(char c);

/* Control characters but for line ends and tabs become '?'. */
void gdni_make_printable(char *sentence);

#endif
