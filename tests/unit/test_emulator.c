/*
 * test_emulator.c - the emulator of the chunked algorithm and the bounds made from it: without rounding it is the
 * recurrence; each rounding point costs something and no more than it should; the committed table is the emulator's.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "brief.h"
#include "emulator.h"
#include "gdn_cases.h"

static struct gdn_errors errors_of(const char *family, const struct gdn_shape *shape, gdn_dtype type, int dim,
                                   gdn_state_layout layout, const struct emu_rounding *rounding)
{
    struct gdn_case c;
    struct gdn_errors errors;
    cr_assert(gdn_family_find(family), "no family %s", family);
    gdn_case_make(&c, gdn_family_find(family), shape, type, dim, layout, GDN_CASE_SEED);
    float *o = calloc((size_t)c.o_count + 1, sizeof *o), *state = calloc((size_t)c.state_count + 1, sizeof *state);
    cr_assert_eq(gdn_case_oracle(&c), GDN_OK, "%s: %s", c.name, gdn_last_error());
    cr_assert(emu_prefill(&c.desc, &c.args, rounding, o, state));
    gdn_case_errors(&errors, &c, GDN_F32, o, state);
    free(o);
    free(state);
    gdn_case_free(&c);
    return errors;
}

static const struct gdn_shape lens_200_64_3 = { "200+64+3", 1, 1, 1, 3, { 200, 64, 3 }, 0, false };

static struct gdn_errors usual(const char *family, gdn_dtype type, const struct emu_rounding *rounding)
{
    return errors_of(family, &lens_200_64_3, type, 64, GDN_STATE_KV, rounding);
}

/* ---- the algorithm --------------------------------------------------------------------------------------------- */

/* A token that forgets adds -150 to the sum of log2 gates: differences of such sums lose bits of float32. */
static double float32_allowance(const char *family)
{
    return !strcmp(family, "g_minus_inf") || !strcmp(family, "alpha_zero") ? 2e-5 : 2e-6;
}

Test(emulator, without_rounding_is_the_recurrence_for_every_family)
{
    for (int f = 0; f < gdn_num_families; ++f) {
        const char *family = gdn_families[f].name;
        const struct gdn_errors e = usual(family, GDN_BF16, &emu_none);
        cr_assert_lt(e.o, float32_allowance(family), "%s: o %.3e", family, e.o);
        cr_assert_lt(e.state, float32_allowance(family), "%s: state %.3e", family, e.state);
    }
}

Test(emulator, without_rounding_is_the_recurrence_for_every_shape_and_layout)
{
    for (int s = 0; s < gdn_num_shapes; s += brief_step())
        for (int variant = 0; variant < 2; ++variant) {
            const struct gdn_errors e = errors_of("random", &gdn_shapes[s], variant ? GDN_BF16 : GDN_F16,
                                                  variant ? 128 : 64, variant ? GDN_STATE_VK : GDN_STATE_KV, &emu_none);
            cr_assert_lt(e.o_worst, 2e-6, "%s: o %.3e", gdn_shapes[s].name, e.o_worst);
            cr_assert_lt(e.state_worst, 2e-6, "%s: state %.3e", gdn_shapes[s].name, e.state_worst);
        }
}

Test(emulator, leaves_rows_outside_sequences_alone)
{
    struct gdn_case c;
    gdn_case_make(&c, gdn_family_find("random"), gdn_shape_find("padded"), GDN_BF16, 64, GDN_STATE_KV, GDN_CASE_SEED);
    float *o = malloc((size_t)c.o_count * sizeof *o);
    for (int64_t i = 0; i < c.o_count; ++i)
        o[i] = 12345;
    cr_assert(emu_prefill(&c.desc, &c.args, &emu_kernel, o, NULL));
    const int64_t used = c.used_tokens * c.heads * 64;
    for (int64_t i = 0; i < c.o_count; ++i)
        cr_assert_eq(o[i] == 12345.0f, i >= used, "element %lld of %lld used", (long long)i, (long long)used);
    free(o);
    gdn_case_free(&c);
}

/* ---- rounding points ------------------------------------------------------------------------------------------- */

static struct emu_rounding only(enum emu_point point)
{
    struct emu_rounding r = emu_none;
    r.at[point] = emu_kernel.at[point];
    return r;
}

Test(emulator, every_point_costs_by_itself_and_less_than_all)
{
    const struct gdn_errors none = usual("random", GDN_BF16, &emu_none), all = usual("random", GDN_BF16, &emu_kernel);
    for (int p = 0; p < EMU_NUM_POINTS; ++p) {
        const struct emu_rounding r = only((enum emu_point)p);
        const struct gdn_errors e = usual("random", GDN_BF16, &r);
        cr_assert_gt(e.o, 4 * none.o, "%s: %.3e", emu_point_name((enum emu_point)p), e.o);
        cr_assert_lt(e.o, all.o, "%s: %.3e", emu_point_name((enum emu_point)p), e.o);
    }
    const struct emu_rounding output = only(EMU_OUTPUT), state = only(EMU_STATE), update = only(EMU_UPDATE);
    cr_assert_float_eq(usual("random", GDN_BF16, &output).o, 1.65e-3, 0.15e-3); /* 2^-9 spread over a binade */
    cr_assert_lt(usual("random", GDN_BF16, &output).state, 2 * none.state, "O is not fed back");
    cr_assert_gt(usual("random", GDN_BF16, &state).o, 5e-4);
    cr_assert_gt(usual("random", GDN_BF16, &update).state, 5e-4);
}

static struct emu_rounding kernel_with_bf16(const enum emu_point *points, int count)
{
    struct emu_rounding r = emu_kernel;
    for (int i = 0; i < count; ++i)
        r.at[points[i]] = EMU_BF16;
    return r;
}

/* Why the inner products have fp16 operands for bf16 tensors as well. */
Test(emulator, bf16_inner_products_cost_on_correlated_keys)
{
    static const enum emu_point inner[] = { EMU_T, EMU_W, EMU_P, EMU_VP };
    const struct emu_rounding r = kernel_with_bf16(inner, 4);
    const double fp16 = usual("fla_no_decay", GDN_BF16, &emu_kernel).o, bf16 = usual("fla_no_decay", GDN_BF16, &r).o;
    cr_assert_lt(fp16, 3e-3, "%.3e", fp16);
    cr_assert_gt(bf16, 2.5 * fp16, "%.3e against %.3e", bf16, fp16);
}

Test(emulator, bf16_merges_cost_on_correlated_keys)
{
    static const enum emu_point merges[] = { EMU_MERGE };
    const struct emu_rounding r = kernel_with_bf16(merges, 1);
    const double fp16 = usual("fla_no_decay", GDN_F16, &emu_kernel).o, bf16 = usual("fla_no_decay", GDN_F16, &r).o;
    cr_assert_gt(bf16, 3 * fp16, "%.3e against %.3e", bf16, fp16);
}

Test(emulator, scaling_v_by_a_power_of_two_moves_no_error)
{
    static const char *const families[] = { "v_2^-40", "v_2^-20", "v_2^-8", "v_2^8", "v_2^20", "v_2^40" };
    const struct gdn_errors one = usual("random", GDN_BF16, &emu_kernel);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; ++i) {
        const struct gdn_errors e = usual(families[i], GDN_BF16, &emu_kernel);
        cr_assert_float_eq(e.o, one.o, 1e-9, "%s: %.6e, want %.6e", families[i], e.o, one.o);
        cr_assert_float_eq(e.state, one.state, 1e-9, "%s: %.6e, want %.6e", families[i], e.state, one.state);
    }
}

Test(emulator, without_row_scales_fp16_operands_leave_their_range)
{
    struct emu_rounding r = emu_kernel;
    r.at[EMU_W] = r.at[EMU_VP] = EMU_F16;
    cr_assert_eq(usual("v_2^20", GDN_BF16, &r).o, INFINITY);
    cr_assert_gt(usual("v_2^-40", GDN_BF16, &r).o, 0.5, "operands underflow");
    cr_assert_lt(usual("random", GDN_BF16, &r).o, 3e-3, "no need of them in the usual range");
}

/* ---- the committed table --------------------------------------------------------------------------------------- */

Test(bounds, have_a_row_for_everything_and_nothing_else)
{
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    struct bounds bounds;
    int expected = 0;
    cr_assert(bounds_load(&bounds, NULL));
    for (int f = 0; f < gdn_num_families; ++f)
        for (int v = 0; v < 4; ++v)
            for (int s = 0; s < gdn_num_shapes; ++s) {
                const gdn_dtype type = types[v / 2];
                const int dim = v % 2 ? 128 : 64;
                if (!gdn_family_has(&gdn_families[f], type)) continue;
                ++expected;
                cr_assert(bounds_find(&bounds, gdn_families[f].name, type, dim, gdn_shapes[s].name),
                          "no row for %s type %d dim %d %s: run make_bounds", gdn_families[f].name, (int)type, dim,
                          gdn_shapes[s].name);
            }
    cr_assert_eq(bounds.count, expected, "%d rows, want %d: run make_bounds", bounds.count, expected);
    bounds_free(&bounds);
}

static void expect_fresh(const char *what, double committed, double measured, const struct bound_row *row)
{
    cr_assert(fabs(committed - measured) <= 0.02 * measured,
              "%s of %s %s %d %s is %.4e, the table has %.4e: run make_bounds", what, row->family, row->dtype,
              row->head_dim, row->shape, measured, committed);
}

static void expect_fresh_row(const struct bounds *bounds, const char *family, gdn_dtype type, int dim,
                             const char *shape)
{
    struct bound_row now;
    const struct bound_row *row = bounds_find(bounds, family, type, dim, shape);
    cr_assert(row, "no row for %s %s", family, shape);
    cr_assert(bounds_measure(&now, gdn_family_find(family), gdn_shape_find(shape), type, dim));
    expect_fresh("o", row->o, now.o, row);
    expect_fresh("o_worst", row->o_worst, now.o_worst, row);
    expect_fresh("state", row->state, now.state, row);
    expect_fresh("state_worst", row->state_worst, now.state_worst, row);
}

/* Each family once, in a small shape; each shape but the longest once, in two families. */
Test(bounds, are_what_the_emulator_gives_today)
{
    struct bounds bounds;
    cr_assert(bounds_load(&bounds, NULL));
    const int step = brief_step();
    for (int f = 0; f < gdn_num_families; f += step)
        expect_fresh_row(&bounds, gdn_families[f].name,
                         f % 2 && gdn_family_has(&gdn_families[f], GDN_F16) ? GDN_F16 : GDN_BF16, 64, "ratio3");
    for (int s = 0; s < gdn_num_shapes; s += step) {
        if (!strcmp(gdn_shapes[s].name, "long")) continue;
        expect_fresh_row(&bounds, "drifting_keys", GDN_F16, 64, gdn_shapes[s].name);
    }
    expect_fresh_row(&bounds, "fla_no_decay", GDN_BF16, 128, "edges");
    expect_fresh_row(&bounds, "random", GDN_F16, 128, "ratio2");
    bounds_free(&bounds);
}

Test(bounds, check_each_measure_and_refuse_a_nan)
{
    const struct bound_row row = { .o = 1e-3, .o_worst = 2e-3, .state = 3e-3, .state_worst = 4e-3 };
    const struct gdn_errors fits = { .o = 1.4e-3, .o_worst = 2.9e-3, .state = 4.4e-3, .state_worst = 5.9e-3 };
    struct gdn_errors e = fits;
    cr_assert(bounds_check(&row, &e));
    e.o = 1.6e-3;
    cr_assert_not(bounds_check(&row, &e));
    e = fits;
    e.o_worst = 3.1e-3;
    cr_assert_not(bounds_check(&row, &e));
    e = fits;
    e.state = NAN;
    cr_assert_not(bounds_check(&row, &e));
    e = fits;
    e.state_worst = INFINITY;
    cr_assert_not(bounds_check(&row, &e));
}

Test(bounds, of_a_family_are_its_largest)
{
    struct bounds bounds;
    struct bound_row any;
    cr_assert(bounds_load(&bounds, NULL));
    cr_assert(bounds_of_family(&any, &bounds, "drifting_keys", GDN_BF16, 128));
    const struct bound_row *longest = bounds_find(&bounds, "drifting_keys", GDN_BF16, 128, "long");
    cr_assert_eq(any.o, longest->o);
    cr_assert_eq(any.state, longest->state);
    cr_assert_not(bounds_of_family(&any, &bounds, "no_such_family", GDN_BF16, 128));
    cr_assert_not(bounds_of_family(&any, &bounds, "v_2^40", GDN_F16, 128), "does not fit fp16");
    bounds_free(&bounds);
}

static bool loads(const char *text)
{
    char path[] = "/tmp/gdn_bounds_XXXXXX";
    struct bounds bounds;
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    const bool loaded = bounds_load(&bounds, path);
    remove(path);
    if (loaded) bounds_free(&bounds);
    return loaded;
}

Test(bounds, damaged_tables_are_refused)
{
    char whole[512], cut[512];
    snprintf(whole, sizeof whole, "# c\n%s\na\tbf16\t64\ts\t1e-3\t1e-3\t1e-3\t1e-3\n", bounds_header);
    snprintf(cut, sizeof cut, "%s\na\tbf16\t64\ts\t1e-3\t1e-3\n", bounds_header);
    cr_assert(loads(whole));
    cr_assert_not(loads(cut));
    cr_assert_not(loads(""));
    cr_assert_not(loads("other\theader\n"));
    cr_assert_not(bounds_load(&(struct bounds){ NULL, 0 }, "/nonexistent/bounds.tsv"));
}
