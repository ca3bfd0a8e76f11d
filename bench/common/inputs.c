/*
 * inputs.c - see inputs.h.
 */
#include "common/inputs.h"

#include <math.h>
#include <string.h>

#include "common/bench.h"

enum { POOL_ROWS = 4096, POOL_NUMBERS = 1 << 16 };

uint64_t bench_random(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double bench_uniform(uint64_t *seed)
{
    return (double)(bench_random(seed) >> 11) * 0x1p-53;
}

double bench_normal(uint64_t *seed)
{
    const double r = sqrt(-2.0 * log(1.0 - bench_uniform(seed)));
    return r * cos(6.283185307179586 * bench_uniform(seed));
}

static uint16_t round_bf16(uint32_t bits)
{
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static uint16_t round_f16(uint32_t bits)
{
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t size = bits & 0x7fffffffu;
    float value;
    memcpy(&value, &size, sizeof value);
    if (value >= 65520.0f) return sign | 0x7c00u;
    if (value < 0x1p-14f) return (uint16_t)(sign | (uint16_t)lrintf(value * 0x1p24f));
    size += 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | (uint16_t)((size - (112u << 23)) >> 13));
}

uint16_t bench_round(gdn_dtype dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return dtype == GDN_BF16 ? round_bf16(bits) : round_f16(bits);
}

static float widen_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * (float)mantissa * 0x1p-24f;
    return sign * ldexpf((float)(1024 + mantissa), exponent - 25);
}

float bench_widen(gdn_dtype dtype, uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return dtype == GDN_BF16 ? value : widen_f16(half);
}

static void fill_row(gdn_dtype dtype, uint16_t *row, int dim, double scale, int unit, uint64_t *seed)
{
    double values[512], sum = 0.0;
    for (int i = 0; i < dim; ++i) {
        values[i] = bench_normal(seed);
        sum += values[i] * values[i];
    }
    const double factor = unit ? scale / sqrt(sum) : scale;
    for (int i = 0; i < dim; ++i)
        row[i] = bench_round(dtype, (float)(values[i] * factor));
}

uint16_t *bench_rows(gdn_dtype dtype, size_t rows, int dim, double scale, int unit, uint64_t seed)
{
    const size_t width = (size_t)dim, pool_rows = rows < POOL_ROWS ? rows : POOL_ROWS;
    uint16_t *pool = bench_alloc(pool_rows * width * sizeof *pool), *out = bench_alloc(rows * width * sizeof *out);
    for (size_t i = 0; i < pool_rows; ++i)
        fill_row(dtype, pool + i * width, dim, scale, unit, &seed);
    for (size_t i = 0; i < rows; ++i)
        memcpy(out + i * width, pool + bench_random(&seed) % pool_rows * width, width * sizeof *pool);
    free(pool);
    return out;
}

/* n numbers drawn from a pool that make() fills. */
static float *draw(size_t n, double (*make)(uint64_t *seed), uint64_t seed)
{
    float *pool = bench_alloc(POOL_NUMBERS * sizeof *pool), *out = bench_alloc(n * sizeof *out);
    for (int i = 0; i < POOL_NUMBERS; ++i)
        pool[i] = (float)make(&seed);
    for (size_t i = 0; i < n; ++i)
        out[i] = pool[bench_random(&seed) % POOL_NUMBERS];
    free(pool);
    return out;
}

static double make_decay(uint64_t *seed)
{
    return -log1p(exp(-bench_normal(seed))) / 16.0;
}

static double make_zero(uint64_t *seed)
{
    (void)seed;
    return 0.0;
}

static double make_tileops(uint64_t *seed)
{
    return -bench_uniform(seed);
}

static double make_beta(uint64_t *seed)
{
    return 1.0 / (1.0 + exp(-bench_normal(seed)));
}

static const struct {
    const char *name;
    double (*make)(uint64_t *seed);
    int zero_every; /* this many heads have one without decay; 0: none */
} gates[] = {
    { "decay", make_decay, 0 },
    { "mixed", make_decay, 4 },
    { "zero", make_zero, 0 },
    { "tileops", make_tileops, 0 },
};

float *bench_gates(const char *kind, size_t tokens, int heads, uint64_t seed)
{
    for (size_t i = 0; i < sizeof gates / sizeof gates[0]; ++i) {
        if (strcmp(kind, gates[i].name) != 0) continue;
        const size_t width = (size_t)heads;
        float *g = draw(tokens * width, gates[i].make, seed);
        for (size_t t = 0; gates[i].zero_every && t < tokens; ++t)
            for (int h = 0; h < heads; h += gates[i].zero_every)
                g[t * width + (size_t)h] = 0.0f;
        return g;
    }
    return NULL;
}

float *bench_betas(size_t n, uint64_t seed)
{
    return draw(n, make_beta, seed);
}

float *bench_normals(size_t n, double scale, uint64_t seed)
{
    float *x = draw(n, bench_normal, seed);
    for (size_t i = 0; i < n; ++i)
        x[i] *= (float)scale;
    return x;
}
