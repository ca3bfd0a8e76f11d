/*
 * example_data.h - bf16 conversions and repeatable numbers for the examples.
 */
#ifndef EXAMPLE_DATA_H
#define EXAMPLE_DATA_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline float from_bf16(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even. */
static inline uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Uniform in [-1, 1); splitmix64. */
static inline float example_uniform(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f;
}

/* n values of size `scale`, new memory. */
static inline uint16_t *example_bf16(size_t n, float scale, uint64_t seed)
{
    uint16_t *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; x && i < n; ++i)
        x[i] = to_bf16(scale * example_uniform(&seed));
    return x;
}

/* n values in [low, high), new memory. */
static inline float *example_f32(size_t n, float low, float high, uint64_t seed)
{
    float *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; x && i < n; ++i)
        x[i] = low + (high - low) * 0.5f * (example_uniform(&seed) + 1.0f);
    return x;
}

/* Each row of `dim` numbers to length 1, as the model does with q and k. */
static inline void example_normalize_bf16(uint16_t *x, size_t rows, size_t dim)
{
    for (size_t r = 0; r < rows; ++r) {
        float sum = 0.0f;
        for (size_t i = 0; i < dim; ++i)
            sum += from_bf16(x[r * dim + i]) * from_bf16(x[r * dim + i]);
        for (size_t i = 0; i < dim; ++i)
            x[r * dim + i] = to_bf16(from_bf16(x[r * dim + i]) / sqrtf(sum + 1e-6f));
    }
}

/* ||a - b|| / ||b|| of n bf16 numbers; a NaN in a is infinitely wrong. */
static inline double example_error_bf16(const uint16_t *a, const uint16_t *b, size_t n)
{
    double diff = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; ++i) {
        const double x = from_bf16(a[i]), y = from_bf16(b[i]);
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return isfinite(diff) ? sqrt(diff / (norm > 0.0 ? norm : 1.0)) : (double)INFINITY;
}

static inline double example_error_f32(const float *a, const float *b, size_t n)
{
    double diff = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; ++i) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return isfinite(diff) ? sqrt(diff / (norm > 0.0 ? norm : 1.0)) : (double)INFINITY;
}

#endif
