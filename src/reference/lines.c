/*
 * lines.c - owns the rules of lines.h: a line is written once, is read by nobody else when it is written, and a checkpoint's is
 * of no other use. Must not know: operators, what lies in a line.
 */
#include "reference/lines.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/problem.h"

void gdni_lines_add(struct gdni_lines *lines, enum gdni_line_access access, int64_t line, int64_t by)
{
    lines->uses[lines->count++] = (struct gdni_line_use){ line, by, access };
}

gdn_status gdni_line_check(const char *array, int64_t index, int64_t line, int64_t stride)
{
    if (line < -1)
        return GDN_FAIL(GDN_E_INVALID, "%s[%lld] is %lld: must be a line of the states, or -1 for an inert row", array,
                        (long long)index, (long long)line);
    if (line >= GDNI_MAX_STRIDE / stride)
        return GDN_FAIL(GDN_E_INVALID,
                        "%s[%lld] is %lld: that many lines of %lld elements pass 2^47 elements, which no address space has; "
                        "pass a line of the states",
                        array, (long long)index, (long long)line, (long long)stride);
    return GDN_OK;
}

static int in_order(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* By line; of a line checkpoints last, before them who writes it. */
static int compare(const void *a, const void *b)
{
    const struct gdni_line_use *x = a, *y = b;
    const int line = in_order(x->line, y->line), access = in_order(x->access, y->access);
    return line ? line : access ? access : in_order(x->by, y->by);
}

/* b comes behind a in that order, and is of the same line. */
static gdn_status check_two(const struct gdni_line_use *a, const struct gdni_line_use *b)
{
    const long long line = (long long)b->line, first = (long long)a->by, second = (long long)b->by;
    if (b->access == GDNI_LINE_READ) return GDN_OK;
    if (b->access == GDNI_LINE_CHECKPOINT)
        return GDN_FAIL(GDN_E_INVALID, "checkpoints[%lld] goes to line %lld, which %s %lld has: give it a line of its own",
                        second, line, a->access == GDNI_LINE_CHECKPOINT ? "row" : "sequence", first);
    if (a->access == GDNI_LINE_WRITTEN)
        return GDN_FAIL(GDN_E_INVALID,
                        "sequences %lld and %lld write line %lld: slot_out, or slot_in where that is null, has to differ",
                        first, second, line);
    if (first == second) return GDN_OK; /* in place */
    return GDN_FAIL(GDN_E_INVALID,
                    "sequence %lld reads line %lld, which sequence %lld writes: slot_out has to be a line that no other "
                    "sequence of the call reads",
                    first, line, second);
}

/* Who reads a line is there once a sequence: if another one than its writer does, the first or the last of them is such. */
static gdn_status check(struct gdni_lines *lines, int64_t stride)
{
    for (const struct gdni_line_use *use = lines->uses; use < lines->uses + lines->count; ++use)
        if (use->access == GDNI_LINE_CHECKPOINT)
            GDN_TRY(gdni_line_check("the slot of checkpoints", use->by, use->line, stride));
    const struct gdni_line_use *first = lines->uses;
    qsort(lines->uses, lines->count, sizeof *lines->uses, compare);
    for (const struct gdni_line_use *use = lines->uses; use < lines->uses + lines->count; ++use) {
        if (use->line != first->line) first = use;
        if (use == first) continue;
        GDN_TRY(check_two(first, use));
        GDN_TRY(check_two(use - 1, use));
    }
    return GDN_OK;
}

gdn_status gdni_lines_check(gdni_lines_of *add, const void *call, int64_t most, int64_t stride)
{
    struct gdni_lines lines = { gdni_calloc(most > 0 ? (size_t)most : 1, sizeof *lines.uses), 0 };
    if (!lines.uses) return GDN_FAIL(GDN_E_NOMEM, "out of memory: to look through %lld lines of states", (long long)most);
    add(&lines, call);
    const gdn_status status = check(&lines, stride);
    gdni_free(lines.uses);
    return status;
}
