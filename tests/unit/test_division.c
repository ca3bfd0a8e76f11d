/* test_division.c - divisions that kernels make by a multiplication and a shift. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "codegen/division.h"

enum { MOST = INT32_MAX };

static void expect_exact(int32_t divisor, int64_t a)
{
    const struct gdni_division by = gdni_division(divisor);
    if (a < 0 || a > MOST) return;
    cr_expect_eq(gdni_divided((int32_t)a, by.magic, by.shift), (int32_t)(a / divisor), "%lld / %d", (long long)a, divisor);
}

static void expect_exact_around(int32_t divisor)
{
    const int64_t quotients[] = { 0, 1, 2, 3, 1000, MOST / divisor - 1, MOST / divisor };
    for (size_t i = 0; i < sizeof quotients / sizeof quotients[0]; ++i)
        for (int64_t rest = -1; rest <= 1; ++rest)
            expect_exact(divisor, quotients[i] * divisor + rest);
    expect_exact(divisor, MOST);
    expect_exact(divisor, MOST - 1);
}

Test(division, is_exact_at_the_edges_of_each_quotient)
{
    for (int32_t divisor = 1; divisor <= 4096; ++divisor)
        expect_exact_around(divisor);
    for (int bits = 12; bits < 31; ++bits)
        for (int32_t rest = -1; rest <= 1; ++rest)
            expect_exact_around((1 << bits) + rest);
    expect_exact_around(MOST);
}

/* What kernels divide by: heads' parts, tokens of a partition, lanes of a row; of any number that they meet. */
Test(division, is_exact_for_numbers_in_between)
{
    const int32_t divisors[] = { 1, 2, 3, 7, 12, 48, 64, 96, 192, 64 * 37, 64 * 4095, 786 };
    for (size_t i = 0; i < sizeof divisors / sizeof divisors[0]; ++i)
        for (int64_t a = 0; a <= MOST; a += 99991)
            expect_exact(divisors[i], a);
}
