/*
 * cli.c - owns the sentence of a failure and the small text helpers.
 * Must not know: options, shapes, the library's objects.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/printable.h"

static _Thread_local char sentence[4096];

int cli_fail(int code, const char *format, ...)
{
    char text[sizeof sentence]; /* an argument may be the sentence itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gdni_make_printable(text); /* it quotes files and names that others made */
    memcpy(sentence, text, sizeof text);
    return code;
}

const char *cli_error(void)
{
    return sentence;
}

void cli_names_add(struct cli_names *list, const char *name, size_t len)
{
    list->items = cli_realloc(list->items, (list->count + 1) * sizeof *list->items);
    char *copy = cli_alloc(len + 1);
    memcpy(copy, name, len);
    copy[len] = '\0';
    list->items[list->count++] = copy;
}

void cli_names_free(struct cli_names *list)
{
    for (size_t i = 0; i < list->count; ++i)
        cli_free(list->items[i]);
    cli_free(list->items);
    *list = (struct cli_names){ 0 };
}

char *cli_names_join(const struct cli_names *list)
{
    size_t size = 1;
    for (size_t i = 0; i < list->count; ++i)
        size += strlen(list->items[i]) + 2;
    char *text = cli_alloc(size), *end = text;
    *end = '\0';
    for (size_t i = 0; i < list->count; ++i)
        end += sprintf(end, "%s%s", i ? ", " : "", list->items[i]);
    return text;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void cli_names_sort(struct cli_names *list)
{
    if (list->count) qsort(list->items, list->count, sizeof *list->items, compare_names);
}

bool cli_word_find(const struct gdni_json_word *words, const char *name, size_t len, int *value)
{
    for (const struct gdni_json_word *w = words; w->name; ++w)
        if (strlen(w->name) == len && memcmp(w->name, name, len) == 0) {
            *value = w->value;
            return true;
        }
    return false;
}

const char *cli_word_name(const struct gdni_json_word *words, int value)
{
    for (const struct gdni_json_word *w = words; w->name; ++w)
        if (w->value == value) return w->name;
    return "?";
}

bool cli_parse_int(const char *text, size_t len, int64_t *out)
{
    char digits[24];
    if (len == 0 || len >= sizeof digits || strspn(text, "-0123456789") < len) return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    char *end;
    errno = 0;
    const long long value = strtoll(digits, &end, 10);
    if (errno || *end) return false;
    *out = value;
    return true;
}

char *cli_format(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = cli_alloc(len < 0 ? 1 : (size_t)len + 1);
    if (len > 0) vsnprintf(text, (size_t)len + 1, format, args);
    gdni_make_printable(text);
    return text;
}

const char *cli_format_bytes(char out[CLI_SHORT], uint64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        ++unit;
    }
    snprintf(out, CLI_SHORT, unit && value < 10 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

const char *cli_format_age(char out[CLI_SHORT], int64_t now, int64_t then)
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } steps[] = { { 86400, "d" }, { 3600, "h" }, { 60, "m" } };
    int64_t seconds;
    if (__builtin_sub_overflow(now, then, &seconds)) seconds = then < now ? INT64_MAX : INT64_MIN;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; ++i)
        if (seconds >= steps[i].seconds) {
            snprintf(out, CLI_SHORT, "%lld %s", (long long)(seconds / steps[i].seconds), steps[i].unit);
            return out;
        }
    snprintf(out, CLI_SHORT, "now");
    return out;
}

int64_t cli_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
