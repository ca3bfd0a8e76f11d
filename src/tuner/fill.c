/*
 * fill.c - owns the tuner's random numbers. Must not know: tensors' meaning.
 */
#include "tuner/fill.h"

#include <math.h>

#include "base/half.h"

uint64_t gdni_random_next(struct gdni_random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double gdni_random_uniform(struct gdni_random *random)
{
    return (double)(gdni_random_next(random) >> 11) * 0x1p-53;
}

double gdni_random_normal(struct gdni_random *random)
{
    const double radius = sqrt(-2.0 * log(1.0 - gdni_random_uniform(random)));
    return radius * cos(6.283185307179586 * gdni_random_uniform(random));
}

void gdni_fill_normal(struct gdni_random *random, int32_t dtype, void *base, int64_t first, int64_t count, double scale)
{
    for (int64_t i = first; i < first + count; ++i)
        gdni_store(dtype, base, i, scale * gdni_random_normal(random));
}

/* The largest head_dim_qk. */
enum { MAX_DIM = 256 };

void gdni_fill_unit_rows(struct gdni_random *random, int32_t dtype, void *base, int64_t rows, int64_t dim,
                         double common)
{
    double row[MAX_DIM], direction[MAX_DIM];
    const int64_t n = dim < MAX_DIM ? dim : MAX_DIM;
    for (int64_t i = 0; i < n; ++i)
        direction[i] = gdni_random_normal(random);
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
            row[i] = gdni_random_normal(random) + common * direction[i];
            sum += row[i] * row[i];
        }
        for (int64_t i = 0; i < n; ++i)
            row[i] /= sqrt(sum);
        gdni_store_row(dtype, base, r * dim, n, row);
    }
}
