/*
 * stats.h - what a handful of noisy times say: their median, how far they spread, and how well they fix the median.
 */
#ifndef GDNI_STATS_H
#define GDNI_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* Of one candidate, all in nanoseconds. */
struct gdni_estimate {
    int64_t median;
    int64_t mad;    /* median absolute deviation from the median */
    int64_t margin; /* half of the 95 % interval of the median, as normal noise of that MAD has it */
    int64_t count;  /* 64 bit: without padding, equal estimates are equal bytes */
};

/* Sorts samples. The same samples in any order give the same estimate; without any it is all zeros. */
struct gdni_estimate gdni_estimate_of(int64_t *samples, int count);

/* The estimate whose median, MAD and number of samples, above 0, were written down. */
struct gdni_estimate gdni_estimate_from(int64_t median, int64_t mad, int64_t count);

/*
 * Times that nobody should prefer one of: they differ by no more than 2 % of the smaller, or by no more than the 95 % interval
 * of their difference.
 */
bool gdni_estimates_tie(const struct gdni_estimate *a, const struct gdni_estimate *b);

#endif
