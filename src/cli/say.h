/*
 * say.h - messages and the progress line on standard error; sentences on standard output. What they quote cannot steer a
 * terminal. Any thread; one lock inside, for standard error.
 */
#ifndef GDN_CLI_SAY_H
#define GDN_CLI_SAY_H

#include "cli/cli.h"

/*
 * A line on standard error, "gdn-jit-cache: " before it, and for each line end that it quotes one more, set in; a progress line
 * that stands there is put back behind it.
 */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As printf(), for what quotes names and paths that others made. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the progress line; shown on terminals only. NULL takes it away. */
void cli_progress(const char *line);

#endif
