/*
 * diagnose.h - from what was found on this machine to what is wrong with it and what to do about it, in plain words.
 */
#ifndef GDN_CLI_DIAGNOSE_H
#define GDN_CLI_DIAGNOSE_H

#include "cli/cache_folders.h"
#include "cli/cli.h"

enum { CLI_SENTENCE = 4096 }; /* room for a sentence of the library, or a path: nothing is cut off */

/* Can this arch be compiled? Asked by compiling a small kernel. */
struct cli_probe {
    char arch[16];
    bool compiles;
    int64_t ms;
    char problem[CLI_SENTENCE];
};

struct cli_device {
    gdn_target target;
    char problem[CLI_SENTENCE]; /* "" when target is known */
};

/* A directory of GDN_JIT_BUNDLE_PATH. */
struct cli_bundle {
    char path[CLI_SENTENCE];
    bool readable; /* report is of all of it */
    gdn_cache_report report;
    char problem[2 * CLI_SENTENCE]; /* why it is not readable, or the first entry that is wrong, and how; "": none */
};

/* Entries of tuning tables for one GPU. */
struct cli_tuned_gpu {
    char gpu[64], arch[16];
    int32_t num_sms;
    int64_t entries, stale;
};

enum { CLI_MAX_PROBES = 64, CLI_MAX_DEVICES = 64, CLI_MAX_GPUS = 256, CLI_MAX_TUNED = 256, CLI_MAX_BUNDLES = 64 };

/* What was found. */
struct cli_facts {
    struct cli_names refused_variables; /* a sentence of each; all else was found as if it were not set */
    gdn_doctor doctor;
    bool compile_disabled; /* by GDN_JIT_DISABLE_COMPILE; then nothing was probed */
    struct cli_bundle bundles[CLI_MAX_BUNDLES];
    size_t num_bundles;
    struct cli_device devices[CLI_MAX_DEVICES];
    size_t num_devices;
    struct cli_probe probes[CLI_MAX_PROBES];
    size_t num_probes;
    struct {
        char name[64], arch[16];
    } gpus[CLI_MAX_GPUS]; /* that can be named */
    size_t num_gpus;
    struct cli_tuned_gpu tuned[CLI_MAX_TUNED];
    size_t num_tuned;
    struct cli_cache_folders folders;
    uint64_t damaged, temporaries;
    char damage[CLI_SENTENCE], damaged_path[CLI_SENTENCE]; /* of the first damaged entry */
};

enum cli_part {
    CLI_PART_ENV,
    CLI_PART_DRIVER,
    CLI_PART_NVRTC,
    CLI_PART_CACHE,
    CLI_PART_BUNDLE,
    CLI_PART_GPU,
    CLI_PART_TABLES,
    CLI_NUM_PARTS
};
extern const char *const cli_part_names[CLI_NUM_PARTS];

struct cli_finding {
    enum cli_part part;
    bool stops_warm; /* or, where nothing is compiled, kernels from being found; false: something else, or nothing */
    char text[4 * CLI_SENTENCE];
};

enum { CLI_MAX_FINDINGS = 128 };
struct cli_findings {
    struct cli_finding items[CLI_MAX_FINDINGS];
    size_t count;
};

/*
 * The library's words for an entry: that others own it or its folder, or may write to them. It may be good, and removing it is
 * no remedy; cli_owner_remedy says which is.
 */
bool cli_is_distrusted(const char *problem);
/* One word for an entry that cannot be used: "refused" for those, else "damaged". */
const char *cli_problem_word(const char *problem);
extern const char cli_owner_remedy[];
/* What to do where writing to the cache directory fails with this errno. */
const char *cli_write_remedy(int error);

/* Every kernel that it should have, and no other, can be used. */
bool cli_bundle_is_whole(const struct cli_bundle *bundle);

/* In the order of parts. Pure: looks at nothing but the facts. */
void cli_diagnose(const struct cli_facts *facts, struct cli_findings *out);
/* gdni_tuning_sms_alike(), which the public header does not have: whether one GPU's tables serve the other of its arch. */
bool cli_sms_alike(int32_t a, int32_t b);

bool cli_stops_warm(const struct cli_findings *findings);

#endif
