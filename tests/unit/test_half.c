/*
 * test_half.c - bf16 and fp16 conversions, against the formats' definition: every one of the 65536 patterns, and for
 * every pair of neighbours the interval between them (middle, and one double to each side of the middle).
 */
#include <criterion/criterion.h>
#include <math.h>

#include "base/half.h"

struct format {
    const char *name;
    int mantissa, exponent_bits;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(double);
};

static const struct format formats[] = {
    { "bf16", 7, 8, gdni_bf16_to_float, gdni_bf16_from_double },
    { "fp16", 10, 5, gdni_f16_to_float, gdni_f16_from_double },
};
enum { NUM_FORMATS = sizeof formats / sizeof formats[0] };

/* The value of a pattern by the definition of IEEE 754, in double. */
static double by_definition(const struct format *f, unsigned bits)
{
    const int fields = 1 << f->exponent_bits, bias = fields / 2 - 1;
    const int exponent = (int)(bits >> f->mantissa) % fields, fraction = (int)(bits % (1u << f->mantissa));
    const double sign = bits & 0x8000u ? -1.0 : 1.0;
    if (exponent == fields - 1) return fraction ? NAN : sign * INFINITY;
    const double significand = fraction + (exponent ? ldexp(1, f->mantissa) : 0);
    return sign * ldexp(significand, (exponent ? exponent : 1) - bias - f->mantissa);
}

static unsigned infinity_bits(const struct format *f)
{
    return ((1u << f->exponent_bits) - 1) << f->mantissa;
}

Test(half, every_pattern_widens_to_its_definition)
{
    for (int i = 0; i < NUM_FORMATS; ++i)
        for (unsigned bits = 0; bits < 65536; ++bits) {
            const double want = by_definition(&formats[i], bits), got = formats[i].widen((uint16_t)bits);
            cr_assert(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want),
                      "%s 0x%04x: %a, want %a", formats[i].name, bits, got, want);
        }
}

Test(half, every_pattern_survives_a_round_trip)
{
    for (int i = 0; i < NUM_FORMATS; ++i)
        for (unsigned bits = 0; bits < 65536; ++bits) {
            const uint16_t back = formats[i].narrow(formats[i].widen((uint16_t)bits));
            if ((bits & 0x7fffu) > infinity_bits(&formats[i]))
                cr_assert(isnan(formats[i].widen(back)) && (back & 0x8000u) == (bits & 0x8000u),
                          "%s NaN 0x%04x -> 0x%04x", formats[i].name, bits, back);
            else
                cr_assert_eq(back, bits, "%s 0x%04x -> 0x%04x", formats[i].name, bits, back);
        }
}

static void expect(const struct format *f, double x, unsigned want)
{
    cr_assert_eq(f->narrow(x), want, "%s of %a is 0x%04x, want 0x%04x", f->name, x, f->narrow(x), want);
    cr_assert_eq(f->narrow(-x), want | 0x8000u, "%s of %a is 0x%04x, want 0x%04x", f->name, -x, f->narrow(-x),
                 want | 0x8000u);
}

/* The interval above the largest finite value ends at the power of two that infinity's pattern would have. */
static double upper_end(const struct format *f, unsigned low)
{
    if (low + 1 < infinity_bits(f)) return by_definition(f, low + 1);
    return ldexp(1, 1 << (f->exponent_bits - 1));
}

Test(half, every_interval_rounds_to_nearest_even)
{
    for (int i = 0; i < NUM_FORMATS; ++i)
        for (unsigned low = 0; low < infinity_bits(&formats[i]); ++low) {
            const double a = by_definition(&formats[i], low), b = upper_end(&formats[i], low), middle = a + (b - a) / 2;
            expect(&formats[i], nextafter(a, b), low);
            expect(&formats[i], nextafter(middle, a), low);
            expect(&formats[i], middle, low + (low & 1));
            expect(&formats[i], nextafter(middle, b), low + 1);
            expect(&formats[i], nextafter(b, a), low + 1);
        }
}

Test(half, beyond_the_largest_is_infinity_and_below_the_smallest_is_zero)
{
    for (int i = 0; i < NUM_FORMATS; ++i) {
        expect(&formats[i], INFINITY, infinity_bits(&formats[i]));
        expect(&formats[i], 1e300, infinity_bits(&formats[i]));
        expect(&formats[i], 1e-300, 0);
        expect(&formats[i], 4.9406564584124654e-324, 0); /* a double subnormal */
        expect(&formats[i], 0.0, 0);
    }
}

/* 1 + 2^-11 is a tie of fp16 and rounds down; a bit below the reach of float breaks it. Via float it would be lost. */
Test(half, double_is_rounded_once)
{
    cr_assert_eq(gdni_f16_from_double(1 + 0x1p-11), 0x3c00);
    cr_assert_eq(gdni_f16_from_double(1 + 0x1p-11 + 0x1p-40), 0x3c01);
    cr_assert_eq(gdni_bf16_from_double(1 + 0x1p-8 + 0x1p-40), 0x3f81);
}

Test(half, buffers_of_every_type_load_what_was_stored_at_any_address)
{
    static const int32_t types[] = { GDN_BF16, GDN_F16, GDN_F32, GDNI_F64 };
    static const double exact[] = { 0.5, -3.0, 0x1p-10, 96.0, -0.0 };
    enum { COUNT = sizeof exact / sizeof exact[0] };
    unsigned char bytes[1 + 8 * (COUNT + 1)];
    for (size_t t = 0; t < sizeof types / sizeof types[0]; ++t) {
        double back[COUNT];
        gdni_store_row(types[t], bytes + 1, 1, COUNT, exact);
        gdni_load_row(types[t], bytes + 1, 1, COUNT, back);
        for (int i = 0; i < COUNT; ++i) {
            cr_assert_eq(back[i], exact[i], "type %d, element %d", types[t], i);
            cr_assert_eq(gdni_load(types[t], bytes + 1, 1 + i), exact[i]);
        }
    }
}
