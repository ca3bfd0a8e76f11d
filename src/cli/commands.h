/*
 * commands.h - the commands: each parses its options, does its work, prints, and returns the exit code. When that is
 * not CLI_OK, cli_error() is the sentence to print, or "" when the command has already said what failed.
 */
#ifndef GDN_CLI_COMMANDS_H
#define GDN_CLI_COMMANDS_H

int cli_cmd_warm(int argc, char **argv);
int cli_cmd_list(int argc, char **argv);
int cli_cmd_show(int argc, char **argv);
int cli_cmd_verify(int argc, char **argv);
int cli_cmd_prune(int argc, char **argv);
int cli_cmd_pack(int argc, char **argv);
int cli_cmd_tune(int argc, char **argv);
int cli_cmd_doctor(int argc, char **argv);

#endif
