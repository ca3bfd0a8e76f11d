/*
 * printable.h - what makes a sentence fit for a terminal: it quotes what files and the environment say. The library has it, and
 * the tool.
 */
#ifndef GDNI_TEXT_PRINTABLE_H
#define GDNI_TEXT_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Of one byte: line ends and tabs are, other control characters of ASCII are not. */
bool gdni_is_printable(char c);

/* Printable ASCII alone: what names are that end up in JSON, in terminals and in commands to paste. */
bool gdni_is_plain_line(const char *text, size_t len);

/*
 * Bytes of the control character that text begins with: those of ASCII, and of UTF-8 U+0080 to U+009F, which terminals obey too
 * (U+009B begins what ESC [ does). 0: it begins with none.
 */
int gdni_control_length(const char *text);

/* Control characters but for line ends and tabs become '?'. */
void gdni_make_printable(char *sentence);

/* Line ends and tabs too: a name with a line end in it would look like another message. */
void gdni_make_one_line(char *sentence);

#endif
