/*
 * text.h - text that came from elsewhere: what a name may not hold, and what JSON may not.
 */
#ifndef GDN_CLI_TEXT_H
#define GDN_CLI_TEXT_H

#include "cli/cli.h"

/* CLI_USAGE when text, the value of a member, has a control character: a name is printed, in lines and on terminals. */
int cli_check_name(const char *where, const char *member, const char *text);

/* A copy in which every byte that is no UTF-8 is U+FFFD; cli_free(). */
char *cli_utf8(const char *text);

#endif
