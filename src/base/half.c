/*
 * half.c - owns the conversions between 16-bit formats and float or double. Pure, no state.
 * Must not know: tensors, operators.
 */
#include "base/half.h"

#include <string.h>

/* A binary format narrower than double: sign, exponent, `mantissa` bits. */
struct format {
    int mantissa, bias, max_exponent; /* the exponent field of infinities and NaNs */
};

static const struct format bf16 = { 7, 127, 255 };
static const struct format f16 = { 10, 15, 31 };

static float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float gdni_bf16_to_float(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

float gdni_f16_to_float(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
    if (exponent == 31) return float_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return float_from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    const float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

/* significand / 2^shift, to nearest even. significand < 2^53. */
static uint64_t round_shift(uint64_t significand, int shift)
{
    if (shift > 53) return 0; /* less than half of the last place */
    const uint64_t kept = significand >> shift, rest = significand & ((UINT64_C(1) << shift) - 1);
    const uint64_t half = UINT64_C(1) << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

/*
 * In the sum below the significand's leading one, at bit `mantissa`, adds one to the exponent field: hence exponent -
 * 1. A carry out of the significand lands in the exponent by itself, from subnormal to normal and from the largest to
 * infinity.
 */
static uint16_t narrow(const struct format *f, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    const unsigned sign = (unsigned)(bits >> 63) << 15, infinity = (unsigned)f->max_exponent << f->mantissa;
    if (exponent == 0x7ff && fraction) return (uint16_t)(sign | infinity | 1u << (f->mantissa - 1));
    int field = exponent - 1023 + f->bias, shift = 52 - f->mantissa;
    if (field >= f->max_exponent) return (uint16_t)(sign | infinity);
    if (exponent == 0) return (uint16_t)sign; /* a double subnormal is far below either format */
    if (field < 1) {
        shift += 1 - field;
        field = 1;
    }
    const uint64_t rounded = round_shift(fraction | UINT64_C(1) << 52, shift);
    return (uint16_t)(sign + ((unsigned)(field - 1) << f->mantissa) + (unsigned)rounded);
}

uint16_t gdni_bf16_from_double(double x)
{
    return narrow(&bf16, x);
}

uint16_t gdni_f16_from_double(double x)
{
    return narrow(&f16, x);
}

/* memcpy because an embedder's tensors may lie at any address. */
#define ACCESS(name, type, widen, narrowing)                                                                           \
    static double load_##name(const unsigned char *p)                                                                  \
    {                                                                                                                  \
        type raw;                                                                                                      \
        memcpy(&raw, p, sizeof raw);                                                                                   \
        return widen(raw);                                                                                             \
    }                                                                                                                  \
    static void store_##name(unsigned char *p, double x)                                                               \
    {                                                                                                                  \
        const type raw = narrowing(x);                                                                                 \
        memcpy(p, &raw, sizeof raw);                                                                                   \
    }
ACCESS(bf16, uint16_t, gdni_bf16_to_float, gdni_bf16_from_double)
ACCESS(f16, uint16_t, gdni_f16_to_float, gdni_f16_from_double)
ACCESS(f32, float, (double), (float))
ACCESS(f64, double, , )
#undef ACCESS

static const struct {
    int64_t size;
    double (*load)(const unsigned char *p);
    void (*store)(unsigned char *p, double x);
} types[] = {
    [GDN_BF16] = { 2, load_bf16, store_bf16 },
    [GDN_F16] = { 2, load_f16, store_f16 },
    [GDN_F32] = { 4, load_f32, store_f32 },
    [GDNI_F64] = { 8, load_f64, store_f64 },
};

double gdni_load(int32_t dtype, const void *base, int64_t index)
{
    return types[dtype].load((const unsigned char *)base + index * types[dtype].size);
}

void gdni_store(int32_t dtype, void *base, int64_t index, double x)
{
    types[dtype].store((unsigned char *)base + index * types[dtype].size, x);
}

void gdni_load_row(int32_t dtype, const void *base, int64_t first, int64_t count, double *out)
{
    for (int64_t i = 0; i < count; ++i)
        out[i] = gdni_load(dtype, base, first + i);
}

void gdni_store_row(int32_t dtype, void *base, int64_t first, int64_t count, const double *in)
{
    for (int64_t i = 0; i < count; ++i)
        gdni_store(dtype, base, first + i, in[i]);
}
