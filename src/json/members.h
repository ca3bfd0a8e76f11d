/*
 * members.h - the members of an object that cJSON has read, checked against a table. Must not know: files, what the members
 * mean.
 *
 * What cJSON lets through and this does not: duplicate members, unknown members, numbers that are no integers or out of range,
 * wrong types. Sentences name the object and the member.
 */
#ifndef GDNI_JSON_MEMBERS_H
#define GDNI_JSON_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json/text.h"

enum { GDNI_JSON_MAX_FIELDS = 64 };

enum gdni_json_type {
    GDNI_JSON_INT,    /* int64_t in low..high; integers beyond 2^53 are refused */
    GDNI_JSON_BOOL,   /* bool */
    GDNI_JSON_STRING, /* const char *, lives as long as the tree */
    GDNI_JSON_WORD,   /* int: value of one of words */
    GDNI_JSON_OBJECT, /* const struct cJSON * */
    GDNI_JSON_ARRAY   /* const struct cJSON * */
};

/* A word and what it means; a table ends at a NULL name. */
struct gdni_json_word {
    const char *name;
    int value;
};

/* "a, b or c", as much of it as fits. */
void gdni_json_list_words(const struct gdni_json_word *words, char *out, size_t size);

/* One member that an object may have. `out` keeps its value when the member is absent. */
struct gdni_json_field {
    const char *name;
    enum gdni_json_type type;
    bool required;
    void *out;
    int64_t low, high;                  /* INT */
    const struct gdni_json_word *words; /* WORD */
};

/* Who asks: "FILE" or "FILE, entry 3", and what becomes of a sentence. */
struct gdni_json_asker {
    const char *where;
    gdni_json_fail_fn *fail;
};

/* 0, or what fail said. Every member of object is in fields, at most once; what is required is there. */
int gdni_json_take_members(struct gdni_json_asker asker, const struct cJSON *object,
                           const struct gdni_json_field *fields, size_t count);

/* One value, as the field says, whose name is what sentences call it. */
int gdni_json_take(struct gdni_json_asker asker, const struct cJSON *item, const struct gdni_json_field *field);

#endif
