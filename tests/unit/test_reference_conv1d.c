/*
 * test_reference_conv1d.c - gdn_reference_conv1d_qkv(): every situation of conv_cases against the check's own loop, the
 * state's shifts by hand, carried state, addresses, refusals; and that the check itself finds what it must find.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "brief.h"
#include "conv_cases.h"
#include "reference/reference.h"

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

/* The plain layer, with other flags, type and layout. */
static struct conv_variant plain(gdn_dtype type, int width, gdn_conv_state_layout layout, uint32_t flags)
{
    struct conv_variant v = conv_variants[0];
    v.io_type = type;
    v.width = width;
    v.state_layout = layout;
    v.flags = flags;
    return v;
}

static void run(const struct conv_case *c, struct conv_outputs *out)
{
    conv_outputs_make(out, c);
    const gdn_conv1d_args args = conv_args_with(c, out);
    cr_assert_eq(gdn_reference_conv1d_qkv(&c->desc, &args), GDN_OK, "%s: %s", c->name, gdn_last_error());
}

static bool check_case(const struct conv_spec *spec, const struct conv_variant *variant)
{
    struct conv_case c;
    struct conv_outputs out;
    struct conv_report report;
    if (!conv_case_make(&c, spec, variant, CONV_CASE_SEED)) return false;
    run(&c, &out);
    cr_assert(conv_case_check(&report, &c, &out), "%s: %s", c.name, report.first);
    conv_outputs_free(&out);
    conv_case_free(&c);
    return true;
}

Test(reference_conv1d, every_situation_in_every_variant_matches_an_independent_loop)
{
    const int step = brief_step(); /* each situation in other variants than the one before it */
    int count = 0;
    for (int s = 0; s < conv_num_specs; ++s)
        for (int v = s % step; v < CONV_NUM_VARIANTS; v += step) count += check_case(&conv_specs[s], &conv_variants[v]);
    cr_assert_gt(count, 15 * conv_num_specs / step, "%d cases could be expressed", count);
}

/* ---- by hand --------------------------------------------------------------------------------------------------- */

enum { DIM = 16, WIDTH = 4, HISTORY = WIDTH - 1 };

/* One v head of 16 channels, all alike; fp16. The taps 1, 10, 100, 1000 make the sums readable. */
struct tiny {
    gdn_conv1d_desc desc;
    gdn_conv1d_args args;
    uint16_t x[4 * DIM], weight[DIM * WIDTH], state[DIM * HISTORY], v[4 * DIM];
    int32_t cu[2];
    uint8_t has_initial;
};

static void tiny_make(struct tiny *t, int len, bool has_initial)
{
    static const double taps[WIDTH] = { 1, 10, 100, 1000 };
    *t = (struct tiny){ .desc = GDN_CONV1D_DESC_INIT, .args = GDN_CONV1D_ARGS_INIT, .cu = { 0, len } };
    t->desc.num_v_heads = 1;
    t->desc.head_dim_qk = t->desc.head_dim_v = DIM;
    t->desc.io_type = GDN_F16;
    t->desc.flags = 0;
    t->has_initial = has_initial;
    for (int c = 0; c < DIM; ++c) {
        for (int j = 0; j < WIDTH; ++j)
            gdni_store(GDN_F16, t->weight, c * WIDTH + j, taps[j]);
        for (int j = 0; j < HISTORY; ++j)
            gdni_store(GDN_F16, t->state, c * HISTORY + j, j + 1); /* 1 2 3 */
        for (int i = 0; i < 4; ++i)
            gdni_store(GDN_F16, t->x, i * DIM + c, i + 5); /* 5 6 7 8 */
    }
    t->args.x = address(t->x);
    t->args.weight = address(t->weight);
    t->args.state = address(t->state);
    t->args.v = address(t->v);
    t->args.cu_seqlens = address(t->cu);
    t->args.has_initial_state = address(&t->has_initial);
    t->args.num_tokens = 4;
    t->args.num_seqs = 1;
    t->args.x_stride = DIM;
}

static void expect_tiny(int len, bool has_initial, const double state[HISTORY], const double *outputs)
{
    struct tiny t;
    tiny_make(&t, len, has_initial);
    cr_assert_eq(gdn_reference_conv1d_qkv(&t.desc, &t.args), GDN_OK, "%s", gdn_last_error());
    for (int c = 0; c < DIM; ++c) {
        for (int j = 0; j < HISTORY; ++j)
            cr_assert_eq(gdni_load(GDN_F16, t.state, c * HISTORY + j), state[j], "len %d, channel %d, column %d", len,
                         c, j);
        for (int i = 0; i < len; ++i)
            cr_assert_eq(gdni_load(GDN_F16, t.v, i * DIM + c), outputs[i], "len %d, channel %d, token %d", len, c, i);
    }
}

Test(reference_conv1d, short_sequences_shift_and_append)
{
    expect_tiny(0, true, (double[]){ 1, 2, 3 }, NULL);
    expect_tiny(1, true, (double[]){ 2, 3, 5 }, (double[]){ 5320 }); /* 5321, rounded */
    expect_tiny(1, false, (double[]){ 0, 0, 5 }, (double[]){ 5000 });
    expect_tiny(2, true, (double[]){ 3, 5, 6 }, (double[]){ 5320, 6532 });
    expect_tiny(2, false, (double[]){ 0, 5, 6 }, (double[]){ 5000, 6500 });
    expect_tiny(3, false, (double[]){ 5, 6, 7 }, (double[]){ 5000, 6500, 7648 });
    expect_tiny(4, true, (double[]){ 6, 7, 8 }, (double[]){ 5320, 6532, 7652, 8768 });
}

Test(reference_conv1d, silu_by_hand)
{
    struct tiny t;
    tiny_make(&t, 1, false);
    t.desc.flags = GDN_CONV_SILU;
    for (int c = 0; c < DIM; ++c)
        gdni_store(GDN_F16, t.weight, c * WIDTH + HISTORY, 0.4); /* 5 * 0.4 = 2, nearly */
    cr_assert_eq(gdn_reference_conv1d_qkv(&t.desc, &t.args), GDN_OK, "%s", gdn_last_error());
    const double a = 5 * gdni_load(GDN_F16, t.weight, HISTORY);
    cr_assert_float_eq(gdni_load(GDN_F16, t.v, 0), a / (1 + exp(-a)), 0x1p-11);
    cr_assert_float_eq(gdni_load(GDN_F16, t.v, 0), 1.7616, 0.002); /* silu(2) */
}

/* ---- properties ------------------------------------------------------------------------------------------------ */

/* The same tokens in one call, and in two with the state carried. */
Test(reference_conv1d, a_prompt_in_two_calls_is_the_prompt_in_one)
{
    static const struct conv_spec whole = { .name = "whole",
                                            .num_q_heads = 1,
                                            .num_k_heads = 1,
                                            .num_v_heads = 2,
                                            .head_dim_qk = 16,
                                            .head_dim_v = 32,
                                            .initial = CONV_INITIAL_NULL,
                                            .x_alignment = 16,
                                            .num_seqs = 1,
                                            .lens = { 21 } };
    for (int cut = 0; cut <= 21; ++cut) {
        struct conv_case c;
        struct conv_outputs once, twice;
        const struct conv_variant variant = plain(GDN_BF16, 4, GDN_CONV_STATE_WC, GDN_CONV_SILU);
        cr_assert(conv_case_make(&c, &whole, &variant, CONV_CASE_SEED));
        run(&c, &once);
        conv_outputs_make(&twice, &c);
        gdn_conv1d_args args = conv_args_with(&c, &twice);
        const int64_t first = cut, second = 21 - cut;
        int32_t cu[2] = { 0, (int32_t)first };
        args.cu_seqlens = address(cu);
        cr_assert_eq(gdn_reference_conv1d_qkv(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
        args.x += (gdn_devptr)(first * args.x_stride * 2);
        args.q += (gdn_devptr)(first * 16 * 2);
        args.k += (gdn_devptr)(first * 16 * 2);
        args.v += (gdn_devptr)(first * 64 * 2);
        args.num_tokens = second;
        cu[1] = (int32_t)second;
        cr_assert_eq(gdn_reference_conv1d_qkv(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
        cr_assert(conv_outputs_equal(&twice, &once), "cut %d", cut);
        conv_outputs_free(&once);
        conv_outputs_free(&twice);
        conv_case_free(&c);
    }
}

Test(reference_conv1d, unrounded_outputs_round_to_the_rounded_ones)
{
    struct conv_case c;
    struct conv_outputs out;
    const struct conv_variant variant = plain(GDN_F16, 3, GDN_CONV_STATE_CW, GDN_CONV_SILU | GDN_CONV_BIAS);
    cr_assert(conv_case_make(&c, &conv_specs[0], &variant, CONV_CASE_SEED));
    run(&c, &out);
    double *wide = calloc((size_t)(c.q_count + c.k_count + c.v_count), sizeof *wide);
    gdn_conv1d_args args = conv_args_with(&c, &out);
    memcpy(out.state.data, c.state.data, conv_buffer_bytes(&c.state));
    args.q = address(wide);
    args.k = address(wide + c.q_count);
    args.v = address(wide + c.q_count + c.k_count);
    cr_assert_eq(gdni_reference_conv1d_qkv_f64(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    for (int64_t i = 0; i < c.v_count; ++i)
        cr_assert_eq(gdni_f16_from_double(wide[c.q_count + c.k_count + i]), ((uint16_t *)out.v.data)[i], "element %lld",
                     (long long)i);
    free(wide);
    conv_outputs_free(&out);
    conv_case_free(&c);
}

Test(reference_conv1d, host_addresses_need_no_alignment)
{
    struct conv_case c;
    struct conv_outputs out;
    cr_assert(conv_case_make(&c, &conv_specs[0], &conv_variants[0], CONV_CASE_SEED));
    run(&c, &out);
    unsigned char *weight = calloc((size_t)c.channels * 4 + 1, 2), *v = calloc((size_t)c.v_count + 1, 2);
    gdn_conv1d_args args = conv_args_with(&c, &out);
    memcpy(weight + 1, c.weight.data, conv_buffer_bytes(&c.weight));
    memcpy(out.state.data, c.state.data, conv_buffer_bytes(&c.state));
    args.weight = address(weight + 1);
    args.v = address(v + 1);
    cr_assert_eq(gdn_reference_conv1d_qkv(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    cr_assert_arr_eq(v + 1, out.v.data, (size_t)c.v_count * 2);
    free(weight);
    free(v);
    conv_outputs_free(&out);
    conv_case_free(&c);
}

/* Two outputs beside each other in 16 bytes, as a test's arrays may lie, are two; at one address they are refused. */
Test(reference_conv1d, outputs_may_lie_four_bytes_apart)
{
    struct tiny t;
    _Alignas(16) float gates[4] = { 0.5f, -1.0f, 9.0f, 9.0f };
    const float a_log = 0.0f;
    tiny_make(&t, 1, false);
    t.desc.num_gate_heads = 1;
    t.desc.gate_type = t.desc.a_log_type = GDN_F32;
    t.args.num_tokens = 1;
    t.args.a = address(&gates[0]), t.args.b = address(&gates[1]), t.args.a_log = address(&a_log);
    t.args.g = address(&gates[2]), t.args.beta = address(&gates[3]);
    cr_assert_eq(gdn_reference_conv1d_qkv(&t.desc, &t.args), GDN_OK, "%s", gdn_last_error());
    cr_expect_float_eq(gates[2], -log1p(exp(0.5)), 1e-6);
    cr_expect_float_eq(gates[3], 1 / (1 + exp(1.0)), 1e-7);
    gates[0] = 1000; /* whose exponential is no double */
    cr_assert_eq(gdn_reference_conv1d_qkv(&t.desc, &t.args), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gates[2], -1000);
    t.args.beta = t.args.g;
    cr_expect_eq(gdn_reference_conv1d_qkv(&t.desc, &t.args), GDN_E_INVALID);
    cr_expect(strstr(gdn_last_error(), "as beta is"), "%s", gdn_last_error());
}

/* ---- the check finds ------------------------------------------------------------------------------------------- */

static const struct conv_spec *spec_named(const char *name)
{
    for (int i = 0; i < conv_num_specs; ++i)
        if (!strcmp(conv_specs[i].name, name)) return &conv_specs[i];
    cr_assert(false, "no situation %s", name);
    return NULL;
}

static struct conv_report report_after(const char *spec, int variant,
                                       void (*damage)(const struct conv_case *, struct conv_outputs *))
{
    struct conv_case c;
    struct conv_outputs out;
    struct conv_report report;
    cr_assert(conv_case_make(&c, spec_named(spec), &conv_variants[variant], CONV_CASE_SEED));
    run(&c, &out);
    damage(&c, &out);
    conv_case_check(&report, &c, &out);
    conv_outputs_free(&out);
    conv_case_free(&c);
    return report;
}

enum { PLAIN = 0, WHOLE = 1 /* of conv_variants: L2 norm, gates, zeroed padding, checkpoints */ };

static void an_ulp_twice(const struct conv_case *c, struct conv_outputs *out)
{
    uint16_t *k = out->k.data;
    (void)c;
    k[33] = (uint16_t)(k[33] + 2);
}

static void a_few_ulps(const struct conv_case *c, struct conv_outputs *out)
{
    uint16_t *k = out->k.data;
    (void)c;
    k[33] = (uint16_t)(k[33] + 3);
}

static void a_state_bit(const struct conv_case *c, struct conv_outputs *out)
{
    ((uint16_t *)out->state.data)[1 * c->channels * 3 + 7] ^= 1; /* line 1 belongs to the last sequence */
}

static void a_nan(const struct conv_case *c, struct conv_outputs *out)
{
    (void)c;
    ((uint16_t *)out->v.data)[5] = 0x7fc0;
}

static void a_padding_row(const struct conv_case *c, struct conv_outputs *out)
{
    ((uint16_t *)out->q.data)[c->q_count - 1] = 1;
}

static void a_foreign_line(const struct conv_case *c, struct conv_outputs *out)
{
    ((uint16_t *)out->state.data)[c->state.count - 1] ^= 0x8000;
}

static void a_gate(const struct conv_case *c, struct conv_outputs *out)
{
    (void)c;
    ((float *)out->g.data)[3] *= 1.00001f;
}

static void a_gate_of_padding(const struct conv_case *c, struct conv_outputs *out)
{
    ((float *)out->beta.data)[c->tokens * c->desc.num_gate_heads - 1] = -0.0f + 1e-30f;
}

static void a_checkpoint(const struct conv_case *c, struct conv_outputs *out)
{
    const int64_t *rows = c->checkpoints.data;
    const int64_t line = rows[3 * 2 + 2]; /* past the rows that are inert by their token_end */
    ((uint16_t *)out->state.data)[conv_state_index(c, line, 5, 1)] ^= 1;
}

Test(conv_check, finds_two_ulps)
{
    cr_assert_eq(report_after("plain", PLAIN, an_ulp_twice).wrong_outputs, 1);
}

Test(conv_check, finds_one_bit_of_state)
{
    cr_assert_eq(report_after("padding_rows", PLAIN, a_state_bit).wrong_state, 1);
}

Test(conv_check, finds_a_nan)
{
    cr_assert_eq(report_after("plain", PLAIN, a_nan).wrong_outputs, 1);
}

Test(conv_check, finds_a_row_written_outside_sequences)
{
    cr_assert_eq(report_after("padding_rows", PLAIN, a_padding_row).touched, 1);
}

Test(conv_check, finds_a_row_written_for_a_padding_slot)
{
    cr_assert_eq(report_after("all_pads", PLAIN, a_padding_row).touched, 1);
}

Test(conv_check, finds_a_state_line_that_is_nobodys)
{
    cr_assert_eq(report_after("padding_rows", PLAIN, a_foreign_line).touched, 1);
}

Test(conv_check, finds_three_ulps_after_the_norm)
{
    cr_assert_eq(report_after("plain", WHOLE, a_few_ulps).wrong_outputs, 1);
}

Test(conv_check, finds_a_gate_off_by_1e_5)
{
    cr_assert_eq(report_after("plain", WHOLE, a_gate).wrong_gates, 1);
}

Test(conv_check, finds_padding_that_is_not_zero)
{
    cr_assert_eq(report_after("padding_rows", WHOLE, a_padding_row).wrong_outputs, 1);
    cr_assert_eq(report_after("padding_rows", WHOLE, a_gate_of_padding).wrong_gates, 1);
}

Test(conv_check, finds_one_bit_of_a_checkpoint)
{
    cr_assert_eq(report_after("plain", WHOLE, a_checkpoint).wrong_state, 1);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static void expect_refusal(const struct tiny *t, gdn_status status, const char *words)
{
    struct tiny before;
    memcpy(&before, t, sizeof before);
    cr_assert_eq(gdn_reference_conv1d_qkv(&t->desc, &t->args), status, "%s: got %s", words, gdn_last_error());
    cr_assert(strstr(gdn_last_error(), words), "'%s' lacks '%s'", gdn_last_error(), words);
    cr_assert_eq(memcmp(&before, t, sizeof before), 0, "%s: something was written", words);
}

#define REFUSE(change, status, words)                                                                                  \
    do {                                                                                                               \
        struct tiny t;                                                                                                 \
        tiny_make(&t, 4, true);                                                                                        \
        change;                                                                                                        \
        expect_refusal(&t, status, words);                                                                             \
    } while (0)

Test(reference_conv1d, refuses_with_a_sentence_and_writes_nothing)
{
    const int32_t below = -2;
    const int64_t beyond = INT64_MAX, rows[1][3] = { { 0, 1, INT64_MAX / DIM } };
    REFUSE((t.desc.slot_type = GDN_INDEX_I64, t.args.slot_in = address(&beyond)), GDN_E_INVALID,
           "slot_in[0] is 9223372036854775807");
    REFUSE((t.desc.flags = GDN_CONV_CHECKPOINTS, t.args.checkpoints = address(rows), t.args.num_checkpoints = 1), GDN_E_INVALID,
           "the slot of checkpoints[0] is");
    REFUSE(t.args.x = 0, GDN_E_INVALID, "x is null");
    REFUSE(t.args.weight = 0, GDN_E_INVALID, "weight is null");
    REFUSE(t.args.v = 0, GDN_E_INVALID, "v is null");
    REFUSE(t.args.q = t.args.v, GDN_E_INVALID, "q is");
    REFUSE(t.args.bias = t.args.weight, GDN_E_INVALID, "bias");
    REFUSE(t.desc.flags = GDN_CONV_BIAS, GDN_E_INVALID, "bias is null");
    REFUSE(t.args.x_stride = DIM - 1, GDN_E_INVALID, "x_stride");
    REFUSE(t.args.num_tokens = -1, GDN_E_INVALID, "num_tokens");
    REFUSE(t.args.num_seqs = -1, GDN_E_INVALID, "num_seqs");
    REFUSE(t.args.num_tokens = 3, GDN_E_INVALID, "cu_seqlens[1] is 4");
    REFUSE(t.cu[0] = 1, GDN_E_INVALID, "cu_seqlens[0] is 1");
    REFUSE(t.cu[1] = -1, GDN_E_INVALID, "cu_seqlens[1] is -1");
    REFUSE(t.args.slot_in = address(&below), GDN_E_INVALID, "slot_in[0] is -2");
    REFUSE(t.args.slot_out = address(&below), GDN_E_INVALID, "slot_out[0] is -2");
    REFUSE(t.args.struct_size = 8, GDN_E_VERSION, "struct_size");
    REFUSE(t.desc.struct_size = 0, GDN_E_VERSION, "struct_size");
    REFUSE(t.desc.width = 5, GDN_E_UNSUPPORTED, "width is 5");
    REFUSE(t.desc.io_type = (gdn_dtype)7, GDN_E_INVALID, "io_type");
    REFUSE(t.desc.head_dim_v = 20, GDN_E_UNSUPPORTED, "head_dim_v is 20");
    struct tiny t;
    tiny_make(&t, 4, true);
    cr_assert_eq(gdn_reference_conv1d_qkv(NULL, &t.args), GDN_E_INVALID);
    cr_assert_eq(gdn_reference_conv1d_qkv(&t.desc, NULL), GDN_E_INVALID);
}
