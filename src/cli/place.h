/*
 * place.h - whether something new can be put at a path, asked before the work that makes it.
 */
#ifndef GDN_CLI_PLACE_H
#define GDN_CLI_PLACE_H

#include "cli/cli.h"

/*
 * For a file. CLI_USAGE unless the folder that it is in is there and something can be made in it, which is found out by making
 * a folder and taking it away again. option: "--tar". What has the file's name already is not looked at.
 */
int cli_place_check(const char *option, const char *path);
/* For a directory: the same, and nothing has its name, or an empty directory that can be replaced. */
int cli_place_check_directory(const char *option, const char *path);

#endif
