/*
 * place.h - whether something new can be put at a path, asked before the work that makes it.
 */
#ifndef GDN_CLI_PLACE_H
#define GDN_CLI_PLACE_H

#include "cli/cli.h"

/*
 * For a file. CLI_USAGE unless the folder that it is in is there and something can be made in it, which is found out by making
 * a folder and taking it away again, and unless the name is free or a regular file's: a link or a device was not put there to
 * be replaced. option: "--tar".
 */
int cli_place_check(const char *option, const char *path);
/* For a directory: the same, and nothing has its name, or an empty directory that can be replaced. */
int cli_place_check_directory(const char *option, const char *path);

/* Whether the file would be the new or empty directory itself, or lie in it, however the two are spelled. */
bool cli_place_is_in(const char *file, const char *dir);

enum { CLI_PLACE_TEMPORARY = 4096 + 32 };
/* A name for mkstemp() or mkdtemp() in path's folder: whoever finds it after a process was killed sees what it is. */
int cli_place_temporary(const char *path, char out[CLI_PLACE_TEMPORARY]);

#endif
