/*
 * gdn_jit_cache.c - main: finds the command and prints how it failed. Must not know: what commands do.
 */
#include <argp.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/say.h"

static const struct command {
    const char *name, *argv0; /* argv0: what messages of the command begin with */
    int (*run)(int argc, char **argv);
} commands[] = {
    { "warm", "gdn-jit-cache warm", cli_cmd_warm },       { "list", "gdn-jit-cache list", cli_cmd_list },
    { "show", "gdn-jit-cache show", cli_cmd_show },       { "verify", "gdn-jit-cache verify", cli_cmd_verify },
    { "prune", "gdn-jit-cache prune", cli_cmd_prune },    { "pack", "gdn-jit-cache pack", cli_cmd_pack },
    { "tune", "gdn-jit-cache tune", cli_cmd_tune },       { "doctor", "gdn-jit-cache doctor", cli_cmd_doctor },
};

static const char doc[] = "Fills and inspects the kernel cache of libgdnjit.\n"
                          "\n"
                          "  warm     compile the kernels of a model ahead of time, on any machine\n"
                          "  list     what the cache holds\n"
                          "  show     one kernel: parameters, registers, source, PTX, build log, cost\n"
                          "  verify   every byte of the cache, or of a bundle, is as it was written\n"
                          "  prune    what is too much, too old or damaged goes\n"
                          "  pack     kernels as a bundle: a directory or an archive that may be moved\n"
                          "  tune     measure which parameters are fastest on this GPU, into a file that plans use\n"
                          "  doctor   what works here, what is missing, how to get it\n"
                          "\v"
                          "Begin with:\n"
                          "  gdn-jit-cache doctor\n"
                          "  gdn-jit-cache warm --model qwen3-next-80b-a3b --gpu \"NVIDIA H200\"\n"
                          "  gdn-jit-cache list\n"
                          "\n"
                          "Each command has a --help of its own. Exit status: 0 all went well, 1 something "
                          "failed, 2 the command line or a file it names is wrong.";

struct choice {
    const struct command *command;
    int index; /* of the command in argv */
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; ++i)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

enum { NAMES = 128 };
static const char *command_names(char out[NAMES])
{
    size_t len = 0;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0] && len < NAMES; ++i)
        len += (size_t)snprintf(out + len, NAMES - len, "%s%s", i ? ", " : "", commands[i].name);
    return out;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    char names[NAMES];
    struct choice *choice = state->input;
    if (key == ARGP_KEY_NO_ARGS) argp_error(state, "no command given: use one of %s", command_names(names));
    if (key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
    choice->command = find_command(arg);
    if (!choice->command) argp_error(state, "\"%s\" is no command: use one of %s", arg, command_names(names));
    choice->index = state->next - 1;
    state->next = state->argc; /* the rest is the command's */
    return 0;
}

static void print_version(FILE *out, struct argp_state *state)
{
    (void)state;
    const uint32_t v = gdn_version();
    fprintf(out, "gdn-jit-cache %d.%d.%d, libgdnjit %u.%u.%u\n", GDN_VERSION_MAJOR, GDN_VERSION_MINOR,
            GDN_VERSION_PATCH, v / 10000, v / 100 % 100, v % 100);
}

/* However the process ends: argp ends it itself behind --help and --version. A failure keeps its status. */
static void check_output(int status, void *unused)
{
    (void)unused;
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    cli_say("cannot write standard output");
    if (status == CLI_OK) _exit(CLI_FAILED);
}

/*
 * One of the standard descriptors that is closed would become a file that is opened next, and be written to as such. The other
 * way round: what is printed there fails still.
 */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    static const struct argp argp = { NULL, parse, "COMMAND [OPTION...]", doc, NULL, NULL, NULL };
    struct choice choice = { 0 };
    fill_standard_descriptors();
    on_exit(check_output, NULL); /* the first of them find room without memory: it does not fail */
    argp_program_version_hook = print_version;
    argp_err_exit_status = CLI_USAGE;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL,
               &choice); /* ends the process on an error, --help and --version */
    char name[32];
    snprintf(name, sizeof name, "%s", choice.command->argv0);
    argv[choice.index] = name;
    const int code = choice.command->run(argc - choice.index, argv + choice.index);
    cli_progress(NULL);
    if (code != CLI_OK && cli_error()[0]) cli_say("%s", cli_error());
    return code;
}
