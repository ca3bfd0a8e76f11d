/*
 * options.h - the command line: options that several commands share, as argp children, and what they were set to.
 */
#ifndef GDN_CLI_OPTIONS_H
#define GDN_CLI_OPTIONS_H

#include <argp.h>

#include "cli/expand.h"

enum { CLI_WHAT_SUMMARY = 0 }; /* any other --what is a gdn_dump_kind */

/* Sizes of calls, ascending. */
struct cli_sizes {
    int count;
    int64_t values[CLI_MAX_INTS];
};

struct cli_options {
    unsigned groups; /* of CLI_OPTIONS_*: those that the command takes */
    /* shapes */
    struct cli_names models;
    const char *shapes_file, *presets_dir, *from;
    struct cli_expansion how;
    unsigned ops;             /* bit of each wanted enum cli_op; 0: all */
    const char *model_option; /* the last option that changes what --model expands to; NULL: none was given */
    /* targets */
    struct cli_names archs, gpus, tunings;
    /* cache and compiler */
    const char *cache_dir, *nvrtc;
    bool shared_cache;
    /* output */
    bool json, verbose;
    /* warm, pack */
    int64_t jobs; /* 0: as many as there are processors */
    /* verify */
    const char *bundle; /* NULL: the cache directory */
    bool remove;
    /* prune */
    uint64_t max_bytes; /* UINT64_MAX: no limit */
    int64_t max_age;    /* seconds; 0: no limit */
    bool other_compilers, dry_run;
    /* pack */
    const char *output, *tar;
    /* tune; output: the tuning file */
    struct cli_sizes tune_tokens, tune_seqs; /* count 0: the default */
    int64_t device, budget_s, timeout_s;     /* 0: none; the library's */
    bool check, compile;
    bool worker; /* this process tries candidates for another one */
    /* show */
    int what;
    const char *key;
    int64_t tokens, seqs; /* 0: not given */
};

extern const struct gdni_json_word cli_what_words[];

enum {
    CLI_OPTIONS_SHAPES = 1u,
    CLI_OPTIONS_TARGETS = 2u,
    CLI_OPTIONS_BUILD = 4u,
    CLI_OPTIONS_SHOW = 8u,
    CLI_OPTIONS_VERIFY = 16u,
    CLI_OPTIONS_PRUNE = 32u,
    CLI_OPTIONS_PACK = 64u,
    CLI_OPTIONS_TUNE = 128u,
    CLI_OPTIONS_COMPILER = 256u
};

/*
 * Parses argv (argv[0] names the command in messages). Cache and output options are always there, `groups` adds others.
 * doc: text before and, after a \v, behind the options in --help. A bad command line ends the process with CLI_USAGE,
 * --help with CLI_OK.
 */
void cli_options_parse(struct cli_options *out, unsigned groups, const char *doc, int argc, char **argv);
void cli_options_free(struct cli_options *options);

#endif
