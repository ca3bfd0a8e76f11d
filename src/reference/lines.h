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

/* Room for so many uses; gdni_lines_free() in any case. */
gdn_status gdni_lines_reserve(struct gdni_lines *lines, int64_t most);
void gdni_lines_free(struct gdni_lines *lines);

void gdni_lines_add(struct gdni_lines *lines, enum gdni_line_access access, int64_t line, int64_t by);

/* Orders the uses. GDN_E_INVALID: two that would be a race, by name. */
gdn_status gdni_lines_check(struct gdni_lines *lines);

#endif
