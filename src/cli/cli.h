/*
 * cli.h - what every file of gdn-jit-cache shares: exit codes, the one way to fail, memory, small text helpers.
 *
 * Of the library the tool uses the public header, src/text, src/json and src/env only. A function that can fail returns an exit
 * code, CLI_OK or the code that the process will end with, and leaves a sentence (cli_fail) that names the option or member,
 * its value and the remedy. Only main() and the commands print.
 */
#ifndef GDN_CLI_H
#define GDN_CLI_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"
#include "json/members.h"

/* Documented in gdn-jit-cache(1). */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#define CLI_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        const int try_ = (expr);                                                                                       \
        if (try_ != CLI_OK) return try_;                                                                               \
    } while (0)

/* Records this thread's sentence and returns code: return cli_fail(CLI_USAGE, "--tp is %d: ...", tp); */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *cli_error(void);

/* Never NULL: a tool that is out of memory says so and exits with CLI_FAILED. */
void *cli_alloc(size_t size);
void *cli_realloc(void *p, size_t size);
char *cli_strdup(const char *s);
_Noreturn void cli_out_of_memory(void);
void cli_free(void *p);

/* Strings, owned by the list. */
struct cli_names {
    char **items;
    size_t count;
};
void cli_names_add(struct cli_names *list, const char *name, size_t len);
void cli_names_free(struct cli_names *list);
/* "a, b, c", owned by the caller. */
char *cli_names_join(const struct cli_names *list);
void cli_names_sort(struct cli_names *list);

/* Words of an option or of JSON. */
bool cli_word_find(const struct gdni_json_word *words, const char *name, size_t len, int *value);
const char *cli_word_name(const struct gdni_json_word *words, int value); /* "?" when there is none */

/* The whole of text is a decimal integer. */
bool cli_parse_int(const char *text, size_t len, int64_t *out);

/* What format makes of args, fit for a terminal whatever the arguments hold; owned by the caller. */
char *cli_format(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

enum { CLI_SHORT = 32 };
/* "417 KiB", "3.2 MiB" */
const char *cli_format_bytes(char out[CLI_SHORT], uint64_t bytes);
/* "now", "12 m", "3 h", "5 d": since a date, which may be any. */
const char *cli_format_age(char out[CLI_SHORT], int64_t now, int64_t then);

/* Milliseconds of a clock that only goes forward. */
int64_t cli_now_ms(void);

#endif
