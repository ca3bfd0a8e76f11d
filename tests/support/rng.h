/*
 * rng.h - seeded random numbers of the tests: the same sequence on every machine for uniform ones, up to the last
 * place of libm for normal ones. xoshiro256** (Blackman, Vigna), seeded by splitmix64.
 */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
double rng_uniform(struct rng *r); /* [0, 1) */
double rng_between(struct rng *r, double low, double high);
double rng_normal(struct rng *r);    /* mean 0, variance 1 */
int rng_below(struct rng *r, int n); /* 0 .. n - 1 */

#endif
