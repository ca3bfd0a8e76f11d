/*
 * lines.h - which lines of a pool of states a call reads and writes, and whether two of them may meet: what the host can check
 * and a device can not.
 */
#ifndef GDNI_LINES_H
#define GDNI_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

enum gdni_line_access { GDNI_LINE_READ, GDNI_LINE_WRITTEN, GDNI_LINE_CHECKPOINT };

struct gdni_line_use {
    int64_t line, by; /* the sequence, or the row of checkpoints */
    enum gdni_line_access access;
};

/* Of one pool. */
struct gdni_lines {
    struct gdni_line_use *uses;
    size_t count;
};

void gdni_lines_add(struct gdni_lines *lines, enum gdni_line_access access, int64_t line, int64_t by);

/*
 * GDN_E_INVALID: entry `index` of an array of lines, each of them `stride` elements, is neither -1 nor a line that an address
 * space has room for. Whether the pool has it nobody here knows.
 */
gdn_status gdni_line_check(const char *array, int64_t index, int64_t line, int64_t stride);

/*
 * Adds a call's uses, at most so many. GDN_E_INVALID: two of them would be a race, by name; or a checkpoint's line, each of
 * `stride` elements, is none (gdni_line_check()).
 */
typedef void gdni_lines_of(struct gdni_lines *lines, const void *call);
gdn_status gdni_lines_check(gdni_lines_of *add, const void *call, int64_t most, int64_t stride);

#endif
