/*
 * strbuf.h - growable text with a sticky failure: append freely, check `failed` (or gdni_sb_take) once at the end.
 */
#ifndef GDNI_STRBUF_H
#define GDNI_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gdni_strbuf {
    char *text; /* NUL-terminated once anything was appended; NULL before */
    size_t len, cap;
    bool failed; /* out of memory: later appends do nothing */
};

void gdni_sb_bytes(struct gdni_strbuf *sb, const char *bytes, size_t len);
void gdni_sb_str(struct gdni_strbuf *sb, const char *s);
/* Only %c %d %u %s %x %zu and their length forms: no float conversion, which would follow the locale. */
void gdni_sb_fmt(struct gdni_strbuf *sb, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gdni_sb_int(struct gdni_strbuf *sb, int64_t value);
/* s inside double quotes, escaped as JSON, so that json.h reads it back. */
void gdni_sb_json_str(struct gdni_strbuf *sb, const char *s);
/* A further member of a JSON object: `, "name": value`. */
void gdni_sb_json_text(struct gdni_strbuf *sb, const char *name, const char *value);
void gdni_sb_json_int(struct gdni_strbuf *sb, const char *name, int64_t value);
/* The text, owned by the caller (gdni_free), sb emptied; NULL when failed. Never NULL otherwise. */
char *gdni_sb_take(struct gdni_strbuf *sb);
void gdni_sb_free(struct gdni_strbuf *sb);

/* For qsort() of texts, an array of const char *. */
int gdni_by_text(const void *a, const void *b);

#endif
