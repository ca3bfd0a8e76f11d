/*
 * bounds.h - the committed table of error bounds of GDN prefill: for each family, dtype, head dim and shape, the
 * emulator's error against the fp64 recurrence (the largest over BOUNDS_NUM_SEEDS seeds), and BOUNDS_FACTOR times
 * that.
 *
 * tests/bounds/make_bounds.c writes the table, test_emulator.c fails when it is stale, GPU tests are held to it.
 */
#ifndef TEST_BOUNDS_H
#define TEST_BOUNDS_H

#include <stdbool.h>
#include <stdio.h>

#include "gdn_cases.h"

/*
 * Seeds of a row: GDN_CASE_SEED, GDN_CASE_SEED + 1, ... Only these are exactly covered in shapes of a few tokens,
 * where one rounding decides; in longer ones the error hardly depends on the seed.
 */
enum { BOUNDS_NUM_SEEDS = 3 };
#define BOUNDS_FACTOR 1.5

/*
 * An emulator's error below this is taken for this: ex2.approx and the order of float32 sums differ from the
 * emulator's.
 */
#define BOUNDS_FLOOR 0x1p-20

/* Of one tensor: over the whole, and over its worst (sequence, head). See struct gdn_errors. */
struct bound_row {
    char family[32], dtype[8], shape[32];
    int head_dim;
    double o, o_worst, state, state_worst; /* the emulator's errors; multiply by BOUNDS_FACTOR, or use bounds_check() */
};

struct bounds {
    struct bound_row *rows;
    int count;
};

/* path NULL: tests/data/bounds.tsv of the source tree, or below the working directory. False with a line on stderr. */
bool bounds_load(struct bounds *out, const char *path);
void bounds_free(struct bounds *bounds);

/* NULL when there is no such row. */
const struct bound_row *bounds_find(const struct bounds *bounds, const char *family, gdn_dtype io_type, int head_dim,
                                    const char *shape);

/*
 * For a shape that is not in the table: the largest of the family's rows with at least one full chunk. A long
 * sequence is covered by the row "long".
 */
bool bounds_of_family(struct bound_row *out, const struct bounds *bounds, const char *family, gdn_dtype io_type,
                      int head_dim);

/* Each error is within BOUNDS_FACTOR times the row's; the worst part too. */
bool bounds_check(const struct bound_row *row, const struct gdn_errors *errors);

/* Runs the emulator: what make_bounds.c writes and the unit test compares. False when memory is out. */
bool bounds_measure(struct bound_row *out, const struct gdn_family *family, const struct gdn_shape *shape,
                    gdn_dtype io_type, int head_dim);

/* The table's columns, and a row as a line of it. */
extern const char bounds_header[];
void bounds_print(FILE *out, const struct bound_row *row);

#endif
