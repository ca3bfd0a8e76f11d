/*
 * record.h - a recorded list: the plans that a process asked for, one JSON object a line, as the library writes them with
 * GDN_JIT_RECORD (format: gdn-jit-cache(1)).
 */
#ifndef GDN_CLI_RECORD_H
#define GDN_CLI_RECORD_H

#include "cli/shapes.h"

struct cli_record {
    struct cli_shape shape;
    char gpu[64], arch[16]; /* gpu "": an arch alone */
    int64_t num_sms;
    struct cli_names keys;
    gdn_target target; /* by cli_record_target() */
};

/* Each plan once, however often it was asked for. */
struct cli_records {
    struct cli_record *items;
    size_t count;
    size_t torn, first_torn; /* lines that are no JSON: a writer was killed, or its disk was full; the first one's number */
};

/* Appends the lines of a file; "-" is standard input. CLI_USAGE names the line. */
int cli_records_read(struct cli_records *list, const char *path);
/* The same of text in memory. */
int cli_records_parse(struct cli_records *list, const char *name, const char *text, size_t len);
void cli_records_free(struct cli_records *list);

/* The target that the line of the list `name` names: on this machine its GPU need not be known, its arch must be. */
int cli_record_target(struct cli_record *record, const char *name, gdn_ctx *ctx);

#endif
