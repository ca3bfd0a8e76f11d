/*
 * errors.c - owns the error measure. Must not know: operators, layouts, bounds.
 */
#include "errors.h"

#include <math.h>

void errors_add(struct errors *e, double x, double ref)
{
    ++e->count;
    if (!isfinite(ref)) {
        e->broken |= !(isnan(ref) ? isnan(x) : x == ref);
        return;
    }
    if (!isfinite(x)) {
        e->broken = true;
        return;
    }
    const double diff = fabs(x - ref);
    e->diff2 += diff * diff;
    e->ref2 += ref * ref;
    if (diff > e->max_abs) e->max_abs = diff;
}

void errors_merge(struct errors *into, const struct errors *from)
{
    into->diff2 += from->diff2;
    into->ref2 += from->ref2;
    into->count += from->count;
    into->broken |= from->broken;
    if (from->max_abs > into->max_abs) into->max_abs = from->max_abs;
}

double errors_relative(const struct errors *e)
{
    return errors_relative_above(e, 0);
}

double errors_relative_above(const struct errors *e, double floor_rms)
{
    if (e->broken) return INFINITY;
    if (e->diff2 == 0) return 0;
    const double floor2 = floor_rms * floor_rms * (double)e->count;
    const double ref2 = e->ref2 > floor2 ? e->ref2 : floor2;
    return ref2 > 0 ? sqrt(e->diff2 / ref2) : INFINITY;
}

double errors_rms(const struct errors *e)
{
    return e->count ? sqrt(e->ref2 / (double)e->count) : 0;
}
