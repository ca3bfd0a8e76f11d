/*
 * test_support.c - what the tests stand on: random numbers, the error measure, and that families are what they say.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "errors.h"
#include "gdn_cases.h"
#include "rng.h"

/* ---- random numbers -------------------------------------------------------------------------------------------- */

/* xoshiro256** from the state { 1, 2, 3, 4 }: its authors' first outputs. */
Test(rng, is_the_published_generator)
{
    struct rng r = { { 1, 2, 3, 4 } };
    cr_assert_eq(rng_u64(&r), 11520u);
    cr_assert_eq(rng_u64(&r), 0u);
    cr_assert_eq(rng_u64(&r), 1509978240u);
    cr_assert_eq(rng_u64(&r), 1215971899390074240u);
}

Test(rng, seeds_differ_and_repeat)
{
    struct rng a, b, c;
    rng_seed(&a, 1);
    rng_seed(&b, 1);
    rng_seed(&c, 2);
    const uint64_t first = rng_u64(&a);
    cr_assert_eq(first, rng_u64(&b));
    cr_assert_neq(first, rng_u64(&c));
}

Test(rng, moments)
{
    enum { COUNT = 100000 };
    struct rng r;
    double uniform = 0, mean = 0, square = 0, fourth = 0;
    rng_seed(&r, GDN_CASE_SEED);
    for (int i = 0; i < COUNT; ++i) {
        const double u = rng_uniform(&r), x = rng_normal(&r);
        cr_assert(u >= 0 && u < 1);
        uniform += u / COUNT;
        mean += x / COUNT;
        square += x * x / COUNT;
        fourth += x * x * x * x / COUNT;
    }
    cr_assert_float_eq(uniform, 0.5, 0.005);
    cr_assert_float_eq(mean, 0, 0.02);
    cr_assert_float_eq(square, 1, 0.02);
    cr_assert_float_eq(fourth, 3, 0.15);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static struct errors of(double x, double ref)
{
    struct errors e = { .count = 0 };
    errors_add(&e, 3, 3);
    errors_add(&e, x, ref);
    return e;
}

Test(errors, are_relative_to_the_truths_norm)
{
    struct errors e = { .count = 0 };
    errors_add(&e, 3.5, 3);
    errors_add(&e, 4, 4);
    cr_assert_float_eq(errors_relative(&e), 0.1, 1e-15);
    cr_assert_eq(e.max_abs, 0.5);
    cr_assert_float_eq(errors_rms(&e), 5 / sqrt(2), 1e-15);
    struct errors both = e;
    errors_merge(&both, &e);
    cr_assert_float_eq(errors_relative(&both), 0.1, 1e-15);
    cr_assert_eq(both.count, 4);
}

Test(errors, nan_and_infinity_where_the_truth_is_finite_are_infinite)
{
    struct errors e = of(NAN, 1);
    cr_assert_eq(errors_relative(&e), INFINITY);
    e = of(INFINITY, 1);
    cr_assert_eq(errors_relative(&e), INFINITY);
    e = of(1, INFINITY);
    cr_assert_eq(errors_relative(&e), INFINITY);
    e = of(-INFINITY, INFINITY);
    cr_assert_eq(errors_relative(&e), INFINITY);
    e = of(INFINITY, INFINITY);
    cr_assert_eq(errors_relative(&e), 0);
    e = of(NAN, NAN);
    cr_assert_eq(errors_relative(&e), 0);
}

Test(errors, anything_but_zero_where_all_truth_is_zero_is_infinite)
{
    struct errors e = { .count = 0 };
    errors_add(&e, 0, 0);
    cr_assert_eq(errors_relative(&e), 0);
    errors_add(&e, 1e-30, 0);
    cr_assert_eq(errors_relative(&e), INFINITY);
    cr_assert_float_eq(errors_relative_above(&e, 1e-3), 1e-27 / sqrt(2), 1e-40);
}

/* One wrong head among many is found by the worst, at its place. */
Test(errors, the_worst_part_is_named)
{
    struct gdn_case c;
    struct gdn_errors e;
    gdn_case_make(&c, gdn_family_find("random"), gdn_shape_find("ratio2"), GDN_BF16, 64, GDN_STATE_KV, GDN_CASE_SEED);
    cr_assert_eq(gdn_case_oracle(&c), GDN_OK);
    double *o = malloc((size_t)c.o_count * sizeof *o);
    float *state = malloc((size_t)c.state_count * sizeof *state);
    memcpy(o, c.ref_o, (size_t)c.o_count * sizeof *o);
    for (int64_t i = 0; i < c.state_count; ++i)
        state[i] = (float)c.ref_state[i];
    gdn_case_errors(&e, &c, GDNI_F64, o, state);
    cr_assert_eq(e.o, 0);
    cr_assert_eq(e.o_seq, -1);
    cr_assert_lt(e.state, 1e-7);
    for (int j = 0; j < 64; ++j)
        o[((61 + 128) * c.heads + 2) * 64 + j] *= 1.01; /* the last sequence, one token */
    state[(0 * c.heads + 3) * 64 * 64 + 5] += 1;
    gdn_case_errors(&e, &c, GDNI_F64, o, state);
    cr_assert_eq(e.o_seq, 3);
    cr_assert_eq(e.o_head, 2);
    cr_assert_float_eq(e.o_worst, 0.01, 1e-9);
    cr_assert_lt(e.o, 0.002);
    cr_assert_eq(e.state_seq, 0);
    cr_assert_eq(e.state_head, 3);
    cr_assert_float_eq(e.state_max_abs, 1, 1e-6);
    free(o);
    free(state);
    gdn_case_free(&c);
}

/* ---- families -------------------------------------------------------------------------------------------------- */

static const struct gdn_shape some = { "some", 1, 1, 2, 2, { 150, 60 }, 7, false };

static struct gdn_case make(const char *family)
{
    struct gdn_case c;
    cr_assert(gdn_family_find(family), "no family %s", family);
    gdn_case_make(&c, gdn_family_find(family), &some, GDN_BF16, 128, GDN_STATE_KV, GDN_CASE_SEED);
    return c;
}

static double dot(const struct gdn_case *c, const uint16_t *a, const uint16_t *b)
{
    double sum = 0;
    for (int i = 0; i < 128; ++i)
        sum += gdni_load((int32_t)c->desc.io_type, a, i) * gdni_load((int32_t)c->desc.io_type, b, i);
    return sum;
}

/* Mean of k_t . k_(t+gap), one k head. */
static double mean_dot(const char *family, int gap)
{
    struct gdn_case c = make(family);
    double sum = 0;
    const int count = (int)c.used_tokens - gap;
    for (int t = 0; t < count; ++t)
        sum += dot(&c, c.k + t * 128, c.k + (t + gap) * 128) / count;
    gdn_case_free(&c);
    return sum;
}

Test(families, keys_have_the_lengths_and_cosines_they_claim)
{
    cr_assert_float_eq(mean_dot("random", 0), 1, 2e-3);
    cr_assert_float_eq(mean_dot("random", 1), 0, 0.03);
    cr_assert_float_eq(mean_dot("fla_no_decay", 0), 1, 2e-3);
    cr_assert_float_eq(mean_dot("fla_no_decay", 1), 0.75, 0.02);
    cr_assert_float_eq(mean_dot("identical_keys_beta_2", 0), 1, 1e-12);
    cr_assert_float_eq(mean_dot("identical_keys_beta_2", 1), 1, 1e-12);
    cr_assert_float_eq(mean_dot("drifting_keys", 1), 0.99, 3e-3);
    cr_assert_float_eq(mean_dot("long_keys", 0), 3, 0.01);
    cr_assert_eq(mean_dot("one_hot_keys", 1), 0);
    cr_assert_float_eq(mean_dot("one_hot_keys", 5), 1, 1e-12);
    cr_assert_float_eq(mean_dot("tileops", 0), 1.28, 0.05);
}

/* Least, largest gate and the largest sum over a run of at most 64 tokens of a head. */
struct gates {
    double least, most, run;
};

static struct gates gates_of(const char *family)
{
    struct gdn_case c = make(family);
    struct gates g = { INFINITY, -INFINITY, -INFINITY };
    for (int64_t t = 0; t < c.used_tokens; ++t)
        for (int h = 0; h < c.heads; ++h) {
            double sum = 0;
            for (int64_t i = t; i < c.used_tokens && i < t + 64; ++i) {
                sum += (double)c.g[i * c.heads + h];
                g.run = fmax(g.run, sum);
            }
            g.least = fmin(g.least, (double)c.g[t * c.heads + h]);
            g.most = fmax(g.most, (double)c.g[t * c.heads + h]);
        }
    gdn_case_free(&c);
    return g;
}

Test(families, gates_have_the_ranges_they_claim)
{
    cr_assert_eq(gates_of("no_decay").least, 0);
    cr_assert_eq(gates_of("fla_no_decay").least, 0);
    cr_assert_eq(gates_of("g_minus_inf").least, -INFINITY);
    cr_assert_eq(gates_of("alpha_zero").least, -1000);
    cr_assert_eq(gates_of("decay_50").most, -50);
    cr_assert_lt(gates_of("fla_fastest").most, -30);
    cr_assert_lt(gates_of("flashqla").least, -40);
    cr_assert_eq(gates_of("flashqla").most, 0);
    cr_assert(gates_of("pause_at_cut").most == 0 && gates_of("pause_at_cut").least == -0.08f);
    cr_assert(gates_of("one_head_decays").most == 0 && gates_of("one_head_decays").least < -0.1);
    const struct gates up = gates_of("positive_g");
    cr_assert_gt(up.most, 0.05);
    cr_assert_gt(up.run, 1);
    cr_assert_lt(up.run, 4);
    for (int f = 0; f < gdn_num_families; ++f)
        if (gdn_families[f].g.fill && strcmp(gdn_families[f].name, "positive_g"))
            cr_assert_leq(gates_of(gdn_families[f].name).most, 0, "%s", gdn_families[f].name);
}

static double largest_v(const char *family, int64_t from, int64_t to)
{
    struct gdn_case c = make(family);
    double most = 0;
    for (int64_t i = from * 2 * 128; i < to * 2 * 128; ++i)
        most = fmax(most, fabs(gdni_load(GDN_BF16, c.v, i)));
    gdn_case_free(&c);
    return most;
}

Test(families, values_have_the_sizes_they_claim)
{
    cr_assert_gt(largest_v("v_drop_1000", 0, 75), 1);
    cr_assert_lt(largest_v("v_drop_1000", 75, 150), 0.01);
    cr_assert_gt(largest_v("v_drop_1000", 150, 180), 1);
    cr_assert_gt(largest_v("v_zero_after_cut", 0, 75), 1);
    cr_assert_eq(largest_v("v_zero_after_cut", 75, 150), 0);
    cr_assert_gt(largest_v("v_drop_at_cut", 0, 75), 1);
    cr_assert_lt(largest_v("v_drop_at_cut", 75, 150), 0.01);
    cr_assert_eq(largest_v("v_zero_at_cut", 75, 150), 0);
    cr_assert_gt(largest_v("repaired_4", 0, 64), 1);
    cr_assert_eq(largest_v("repaired_4", 64, 150), 0);
    cr_assert_gt(largest_v("repaired_4", 150, 210), 1, "a sequence begins with a burst");
    cr_assert_gt(largest_v("v_beyond_fp16", 0, 210), 65504);
    cr_assert_eq(largest_v("v_2^40", 0, 210), ldexp(largest_v("random", 0, 210), 40));
}

/* What lies past the last sequence is NaN in every input. */
Test(families, padding_rows_are_nan)
{
    struct gdn_case c = make("random");
    cr_assert_eq(c.tokens, 217);
    for (int64_t i = 210 * 128; i < 217 * 128; ++i)
        cr_assert(isnan(gdni_load(GDN_BF16, c.q, i)));
    for (int64_t i = 210 * 2; i < 217 * 2; ++i)
        cr_assert(isnan(c.g[i]) && isnan(c.beta[i]));
    for (int64_t i = 0; i < 210 * 128; ++i)
        cr_assert(isfinite(gdni_load(GDN_BF16, c.q, i)));
    gdn_case_free(&c);
}

/* Every family is finite in the types it claims, the oracle included, and rounds to a finite output. */
Test(families, fit_the_types_they_claim)
{
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    for (int f = 0; f < gdn_num_families; ++f)
        for (int t = 0; t < 2; ++t) {
            struct gdn_case c;
            if (!gdn_family_has(&gdn_families[f], types[t])) continue;
            gdn_case_make(&c, &gdn_families[f], &some, types[t], 64, GDN_STATE_VK, GDN_CASE_SEED);
            cr_assert_eq(gdn_case_oracle(&c), GDN_OK, "%s: %s", c.name, gdn_last_error());
            const int32_t type = (int32_t)types[t];
            for (int64_t i = 0; i < c.used_tokens * 2 * 64; ++i) {
                uint16_t o;
                gdni_store(type, &o, 0, c.ref_o[i]);
                cr_assert(isfinite(gdni_load(type, &o, 0)), "%s: o %g", c.name, c.ref_o[i]);
                cr_assert(isfinite(gdni_load(type, c.v, i)), "%s: v", c.name);
            }
            for (int64_t i = 0; i < c.state_count; ++i)
                cr_assert(isfinite((float)c.ref_state[i]), "%s: state", c.name);
            gdn_case_free(&c);
        }
}
