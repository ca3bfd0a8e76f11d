/*
 * inputs.h - repeatable input tensors of any size, made fast: rows are drawn from a pool of random rows.
 */
#ifndef BENCH_INPUTS_H
#define BENCH_INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

uint64_t bench_random(uint64_t *seed); /* splitmix64 */
double bench_uniform(uint64_t *seed);  /* [0, 1) */
double bench_normal(uint64_t *seed);

uint16_t bench_round(gdn_dtype dtype, float value); /* to nearest even, GDN_BF16 or GDN_F16 */
float bench_widen(gdn_dtype dtype, uint16_t bits);

/* rows x dim numbers scale * N(0, 1); with unit != 0 each row has length `scale` instead. New memory. */
uint16_t *bench_rows(gdn_dtype dtype, size_t rows, int dim, double scale, int unit, uint64_t seed);

/*
 * [tokens, heads] log gates of a kind: "decay" logsigmoid(N(0,1)) / 16, "mixed" decay with every fourth head 0, "zero" 0,
 * "tileops" -U(0, 1). NULL for a kind that is none of these. New memory.
 */
float *bench_gates(const char *kind, size_t tokens, int heads, uint64_t seed);

/* n values sigmoid(N(0, 1)). New memory. */
float *bench_betas(size_t n, uint64_t seed);

/* n values scale * N(0, 1). New memory. */
float *bench_normals(size_t n, double scale, uint64_t seed);

#endif
