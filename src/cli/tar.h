/*
 * tar.h - a directory as a tar archive whose bytes depend on the files' names and contents alone.
 */
#ifndef GDN_CLI_TAR_H
#define GDN_CLI_TAR_H

#include "cli/cli.h"

/*
 * Writes every file and folder below dir, sorted, to path, which appears whole or not at all: owner and group 0, no
 * times, modes 0644 and 0755. Names are relative to dir. CLI_FAILED names what could not be read or written.
 */
int cli_tar_write(const char *path, const char *dir);

/* Whether an archive may come to be at path: cli_place_check(), and it is not "-". Else CLI_USAGE, before anything is built. */
int cli_tar_check(const char *path);

#endif
