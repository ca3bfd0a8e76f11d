/*
 * stats.c - owns medians, deviations and the tie band. Must not know: what was measured, candidates, devices.
 *
 * Robust statistics, since a time is its kernel's plus now and then a large disturbance: a mean follows one preempted launch,
 * a minimum the one that met a boosted clock (docs/tuning.md).
 */
#include "tuner/stats.h"

#include <math.h>
#include <stddef.h>

/* Insertion: a hundred samples at most, and no comparison function that a signed overflow could fool. */
static void sort(int64_t *values, int count)
{
    for (int i = 1; i < count; ++i) {
        const int64_t value = values[i];
        int at = i;
        for (; at > 0 && values[at - 1] > value; --at)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

static int64_t middle(const int64_t *sorted, int count)
{
    const int64_t low = sorted[(count - 1) / 2], high = sorted[count / 2];
    return low + (high - low) / 2;
}

struct gdni_estimate gdni_estimate_from(int64_t median, int64_t mad, int64_t count)
{
    /* MAD to standard deviation of a normal, that to the standard error of a median (sqrt(pi / 2)), that to 95 %. */
    static const double mad_to_margin = 1.4826 * 1.2533 * 1.96;
    const double margin = ceil(mad_to_margin * (double)mad / sqrt((double)count));
    return (struct gdni_estimate){ .median = median, .mad = mad, .margin = (int64_t)margin, .count = count };
}

struct gdni_estimate gdni_estimate_of(int64_t *samples, int count)
{
    if (count <= 0) return (struct gdni_estimate){ 0 };
    sort(samples, count);
    const int64_t median = middle(samples, count);
    for (int i = 0; i < count; ++i)
        samples[i] = samples[i] > median ? samples[i] - median : median - samples[i];
    sort(samples, count);
    return gdni_estimate_from(median, middle(samples, count), count);
}

bool gdni_estimates_tie(const struct gdni_estimate *a, const struct gdni_estimate *b)
{
    enum { TIE_PERCENT = 2 };
    const int64_t less = a->median < b->median ? a->median : b->median;
    const int64_t apart = a->median < b->median ? b->median - a->median : a->median - b->median;
    const double noise = sqrt((double)a->margin * (double)a->margin + (double)b->margin * (double)b->margin);
    return apart * 100 <= less * TIE_PERCENT || (double)apart <= noise;
}
