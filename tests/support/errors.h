/*
 * errors.h - how far a result is from the truth: ||x - ref|| / ||ref|| in double, over any set of elements.
 *
 * A NaN or an infinity where the truth is finite makes the error infinite, whatever the rest; so does anything but
 * zero where the truth is all zero. An infinity or NaN where the truth has the same is no error.
 */
#ifndef TEST_ERRORS_H
#define TEST_ERRORS_H

#include <stdbool.h>
#include <stdint.h>

struct errors {
    double diff2, ref2; /* sums of squares */
    double max_abs;     /* the largest |x - ref| */
    int64_t count;
    bool broken;
};

void errors_add(struct errors *e, double x, double ref);
void errors_merge(struct errors *into, const struct errors *from);
double errors_relative(const struct errors *e);

/*
 * The same, but ||ref|| counts as at least `floor_rms` per element: for a part of a tensor, where a truth that is all
 * but zero (a state forgotten to 1e-40) would make the ratio meaningless.
 */
double errors_relative_above(const struct errors *e, double floor_rms);

double errors_rms(const struct errors *e); /* of the truth */

#endif
