/*
 * rng.c - owns the tests' random numbers. Must not know: what they are used for.
 */
#include "rng.h"

#include <math.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void rng_seed(struct rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; ++i)
        r->s[i] = splitmix(&seed);
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t *s = r->s;
    const uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double rng_uniform(struct rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

double rng_between(struct rng *r, double low, double high)
{
    return low + (high - low) * rng_uniform(r);
}

/* Box-Muller, one of the pair: two draws a number, so that streams stay aligned whatever is drawn between. */
double rng_normal(struct rng *r)
{
    const double radius = sqrt(-2 * log(1 - rng_uniform(r))), angle = 6.283185307179586 * rng_uniform(r);
    return radius * cos(angle);
}

int rng_below(struct rng *r, int n)
{
    return (int)(rng_u64(r) % (uint64_t)n);
}
