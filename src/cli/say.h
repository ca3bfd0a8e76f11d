/*
 * say.h - messages and the progress line on standard error. Any thread; one lock inside.
 */
#ifndef GDN_CLI_SAY_H
#define GDN_CLI_SAY_H

#include <stddef.h>

/* One line on standard error, "gdn-jit-cache: " before it; a progress line that stands there is put back behind it. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the progress line; shown on terminals only. NULL takes it away. */
void cli_progress(const char *line);

#endif
