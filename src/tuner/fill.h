/*
 * fill.h - contents of tensors: repeatable random numbers of any dtype.
 */
#ifndef GDNI_FILL_H
#define GDNI_FILL_H

#include <stdint.h>

/* splitmix64; any seed is a good one */
struct gdni_random {
    uint64_t state;
};
uint64_t gdni_random_next(struct gdni_random *random);
double gdni_random_uniform(struct gdni_random *random); /* [0, 1) */
double gdni_random_normal(struct gdni_random *random);

/* `count` elements of scale * N(0, 1) from element `first` on. dtype is a gdn_dtype. */
void gdni_fill_normal(struct gdni_random *random, int32_t dtype, void *base, int64_t first, int64_t count,
                      double scale);
/* Rows of length 1 that share `common` times one direction: keys as hard as a real model's are correlated ones. */
void gdni_fill_unit_rows(struct gdni_random *random, int32_t dtype, void *base, int64_t rows, int64_t dim,
                         double common);

#endif
