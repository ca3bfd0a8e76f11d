/*
 * test_reference_prefill.c - gdn_reference_prefill(): against another form of the recurrence (explicit transition
 * matrices), tiny cases by hand, what the header promises (empty sequences, in place, layouts, heads, carried state),
 * and refusals.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "errors.h"
#include "gdn_cases.h"
#include "reference/reference.h"

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

static struct gdn_case make(const char *family, const char *shape, gdn_dtype type, int dim, gdn_state_layout layout)
{
    struct gdn_case c;
    cr_assert(gdn_family_find(family) && gdn_shape_find(shape), "%s or %s is not in the tables", family, shape);
    gdn_case_make(&c, gdn_family_find(family), gdn_shape_find(shape), type, dim, layout, GDN_CASE_SEED);
    return c;
}

struct outputs {
    uint16_t *o;
    float *state;
};

/* Poisoned, then filled by the public function. */
static struct outputs run(const struct gdn_case *c)
{
    struct outputs out = { malloc((size_t)c->o_count * 2 + 1), malloc((size_t)c->state_count * 4 + 1) };
    gdn_prefill_args args = c->args;
    memset(out.o, 0xff, (size_t)c->o_count * 2);
    memset(out.state, 0xff, (size_t)c->state_count * 4);
    args.o = address(out.o);
    args.final_state = address(out.state);
    cr_assert_eq(gdn_reference_prefill(&c->desc, &args), GDN_OK, "%s: %s", c->name, gdn_last_error());
    return out;
}

static void outputs_free(struct outputs *out)
{
    free(out->o);
    free(out->state);
}

/* ---- another form ---------------------------------------------------------------------------------------------- */

/*
 * S_t = A_t S_{t-1} + beta_t k_t^T v_t with the matrix A_t = alpha_t (I - beta_t k_t^T k_t) written out, and o_t =
 * scale q_t S_t.
 */
struct matrix_form {
    int dk, dv;
    double *s, *a, *next;
};

static void matrix_step(struct matrix_form *m, const double *k, const double *v, double alpha, double beta)
{
    const int dk = m->dk, dv = m->dv;
    for (int i = 0; i < dk; ++i)
        for (int j = 0; j < dk; ++j)
            m->a[i * dk + j] = alpha * ((i == j) - beta * k[i] * k[j]);
    for (int i = 0; i < dk; ++i)
        for (int j = 0; j < dv; ++j)
            m->next[i * dv + j] = beta * k[i] * v[j];
    for (int i = 0; i < dk; ++i)
        for (int l = 0; l < dk; ++l)
            for (int j = 0; j < dv; ++j)
                m->next[i * dv + j] += m->a[i * dk + l] * m->s[l * dv + j];
    double *spare = m->s;
    m->s = m->next;
    m->next = spare;
}

static void matrix_output(const struct matrix_form *m, const double *q, double scale, double *o)
{
    for (int j = 0; j < m->dv; ++j) {
        o[j] = 0;
        for (int i = 0; i < m->dk; ++i)
            o[j] += scale * q[i] * m->s[i * m->dv + j];
    }
}

/* Heads per group rather than a quotient of products: the same map, said differently. */
static void take(const struct gdn_case *c, const uint16_t *tensor, int heads, int dim, int64_t t, int h, double *out)
{
    const int group = c->heads / heads;
    for (int i = 0; i < dim; ++i)
        out[i] = gdni_load((int32_t)c->desc.io_type, tensor + (t * heads + h / group) * dim, i);
}

static double state_at(const struct gdn_case *c, const double *state, int n, int h, int i, int j)
{
    const int dk = c->desc.head_dim_qk, dv = c->desc.head_dim_v;
    const double *matrix = state + (int64_t)(n * c->heads + h) * dk * dv;
    return c->desc.state_layout == GDN_STATE_KV ? matrix[i * dv + j] : matrix[j * dk + i];
}

static void matrix_start(struct matrix_form *m, const struct gdn_case *c, int n, int h)
{
    for (int i = 0; i < m->dk; ++i)
        for (int j = 0; j < m->dv; ++j) {
            const int at = c->desc.state_layout == GDN_STATE_KV ? i * m->dv + j : j * m->dk + i;
            m->s[i * m->dv + j] = c->h0 ? (double)c->h0[(int64_t)(n * c->heads + h) * m->dk * m->dv + at] : 0;
        }
}

/* Adds the differences of sequence n, head h to e[0] (o) and e[1] (state). */
static void compare_head(struct errors e[2], struct matrix_form *m, const struct gdn_case *c, int n, int h)
{
    const double scale = c->family->has_scale ? (double)(float)c->family->scale : pow(m->dk, -0.5);
    double q[128], k[128], v[128], o[128];
    matrix_start(m, c, n, h);
    for (int64_t t = c->cu[n]; t < c->cu[n + 1]; ++t) {
        const int64_t at = t * c->heads + h;
        take(c, c->q, c->desc.num_q_heads, m->dk, t, h, q);
        take(c, c->k, c->desc.num_k_heads, m->dk, t, h, k);
        take(c, c->v, c->desc.num_v_heads, m->dv, t, h, v);
        matrix_step(m, k, v, c->g ? exp((double)c->g[at]) : 1, c->beta ? (double)c->beta[at] : 1);
        matrix_output(m, q, scale, o);
        for (int j = 0; j < m->dv; ++j)
            errors_add(&e[0], c->ref_o[at * m->dv + j], o[j]);
    }
    for (int i = 0; i < m->dk; ++i)
        for (int j = 0; j < m->dv; ++j)
            errors_add(&e[1], state_at(c, c->ref_state, n, h, i, j), m->s[i * m->dv + j]);
}

static void expect_matrix_form(const char *family, const char *shape, gdn_dtype type, int dim, gdn_state_layout layout)
{
    struct gdn_case c = make(family, shape, type, dim, layout);
    const size_t size = (size_t)dim * (size_t)dim;
    double *space = calloc(3 * size, sizeof *space);
    struct matrix_form m = { dim, dim, space, space + size, space + 2 * size };
    struct errors e[2] = { { .count = 0 }, { .count = 0 } };
    cr_assert_eq(gdn_case_oracle(&c), GDN_OK, "%s: %s", c.name, gdn_last_error());
    for (int n = 0; n < c.shape->num_seqs; ++n)
        for (int h = 0; h < c.heads; ++h)
            compare_head(e, &m, &c, n, h);
    cr_assert_lt(errors_relative(&e[0]), 1e-12, "%s: o is off by %.3e", c.name, errors_relative(&e[0]));
    cr_assert_lt(errors_relative(&e[1]), 1e-12, "%s: the state is off by %.3e", c.name, errors_relative(&e[1]));
    cr_assert_eq(e[0].count, c.used_tokens * c.heads * dim);
    free(space);
    gdn_case_free(&c);
}

Test(reference_prefill, matches_explicit_transition_matrices)
{
    expect_matrix_form("random", "tiny", GDN_BF16, 64, GDN_STATE_KV);
    expect_matrix_form("random", "tiny", GDN_F16, 128, GDN_STATE_VK);
    expect_matrix_form("random_no_h0", "one_token", GDN_F16, 64, GDN_STATE_KV);
    expect_matrix_form("plain_delta", "uniform", GDN_BF16, 64, GDN_STATE_VK);
    expect_matrix_form("g_minus_inf", "padded", GDN_BF16, 64, GDN_STATE_KV);
    expect_matrix_form("alpha_zero", "padded", GDN_BF16, 64, GDN_STATE_VK);
    expect_matrix_form("long_keys", "padded", GDN_F16, 64, GDN_STATE_KV);
    expect_matrix_form("tileops", "padded", GDN_F16, 64, GDN_STATE_KV);
    expect_matrix_form("scale_zero", "tiny", GDN_BF16, 64, GDN_STATE_KV);
    expect_matrix_form("v_2^40", "tiny", GDN_BF16, 64, GDN_STATE_KV);
}

Test(reference_prefill, every_head_ratio_maps_grouped)
{
    static const struct gdn_shape ratios[] = {
        { "qwen", 16, 16, 32, 1, { 9 }, 0, false },    { "ratio_3", 2, 2, 6, 1, { 9 }, 0, false },
        { "q_many", 6, 2, 2, 1, { 9 }, 0, false },     { "k_many", 1, 4, 2, 1, { 9 }, 0, false },
        { "all_differ", 2, 1, 8, 1, { 9 }, 0, false },
    };
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; ++i) {
        struct gdn_case c;
        struct errors e[2] = { { .count = 0 }, { .count = 0 } };
        double *space = calloc(3 * 64 * 64, sizeof *space);
        struct matrix_form m = { 64, 64, space, space + 64 * 64, space + 2 * 64 * 64 };
        gdn_case_make(&c, gdn_family_find("random"), &ratios[i], GDN_F16, 64, GDN_STATE_KV, GDN_CASE_SEED);
        cr_assert_eq(gdn_case_oracle(&c), GDN_OK, "%s: %s", c.name, gdn_last_error());
        for (int h = 0; h < c.heads; ++h)
            compare_head(e, &m, &c, 0, h);
        cr_assert_lt(errors_relative(&e[0]), 1e-12, "%s", c.name);
        cr_assert_lt(errors_relative(&e[1]), 1e-12, "%s", c.name);
        free(space);
        gdn_case_free(&c);
    }
}

/* ---- by hand --------------------------------------------------------------------------------------------------- */

enum { DIM = 64, TOKENS = 3 };

/* One head, three tokens; vectors are multiples of the first unit vectors, so that few entries of the state move. */
struct tiny {
    gdn_prefill_desc desc;
    gdn_prefill_args args;
    uint16_t q[TOKENS * DIM], k[TOKENS * DIM], v[TOKENS * DIM], o[TOKENS * DIM];
    float g[TOKENS], beta[TOKENS], h0[DIM * DIM], state[DIM * DIM];
    int32_t cu[2];
};

static void tiny_make(struct tiny *t)
{
    memset(t, 0, sizeof *t);
    t->desc = (gdn_prefill_desc)GDN_PREFILL_DESC_INIT;
    t->desc.io_type = GDN_F16;
    t->desc.num_q_heads = t->desc.num_k_heads = t->desc.num_v_heads = 1;
    t->desc.head_dim_qk = t->desc.head_dim_v = DIM;
    t->cu[1] = TOKENS;
    for (int i = 0; i < TOKENS; ++i)
        t->beta[i] = 1;
    t->args = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    t->args.q = address(t->q);
    t->args.k = address(t->k);
    t->args.v = address(t->v);
    t->args.g = address(t->g);
    t->args.beta = address(t->beta);
    t->args.o = address(t->o);
    t->args.initial_state = address(t->h0);
    t->args.final_state = address(t->state);
    t->args.cu_seqlens = address(t->cu);
    t->args.num_tokens = TOKENS;
    t->args.num_seqs = 1;
    t->args.scale = 1;
    t->args.has_scale = 1;
}

static void tiny_run(struct tiny *t)
{
    cr_assert_eq(gdn_reference_prefill(&t->desc, &t->args), GDN_OK, "%s", gdn_last_error());
}

static void set(uint16_t *tensor, int token, int channel, double x)
{
    gdni_store(GDN_F16, tensor, token * DIM + channel, x);
}

static double o_at(const struct tiny *t, int token, int channel)
{
    return gdni_load(GDN_F16, t->o, token * DIM + channel);
}

/* Row 0 of S is 4 in column 1; halved to 2; u = 0.5 (3 - 2) = 0.5; then 2.5; q = 2: o = 5. Nothing else moves. */
Test(reference_prefill, one_step_by_hand)
{
    struct tiny t;
    tiny_make(&t);
    t.cu[1] = 1;
    t.h0[0 * DIM + 1] = 4;
    t.g[0] = logf(0.5f);
    t.beta[0] = 0.5f;
    set(t.q, 0, 0, 2);
    set(t.k, 0, 0, 1);
    set(t.v, 0, 1, 3);
    tiny_run(&t);
    cr_assert_float_eq((double)t.state[1], 2.5, 1e-6);
    cr_assert_eq(o_at(&t, 0, 1), 5);
    for (int i = 0; i < DIM * DIM; ++i)
        if (i != 1) cr_assert_eq(t.state[i], 0.0f, "state element %d", i);
    for (int j = 0; j < DIM; ++j)
        if (j != 1) cr_assert_eq(o_at(&t, 0, j), 0, "o channel %d", j);
}

/* Two keys that overlap: k = e0, then (e0 + e1): the second write sees what the first left. */
Test(reference_prefill, three_steps_by_hand)
{
    struct tiny t;
    tiny_make(&t);
    for (int i = 0; i < TOKENS; ++i)
        set(t.q, i, 0, 1);
    set(t.k, 0, 0, 1);
    set(t.v, 0, 0, 8); /* S = [8; 0], o = 8 */
    set(t.k, 1, 0, 1);
    set(t.k, 1, 1, 1);
    set(t.v, 1, 0, 2); /* u = 2 - 8 = -6: S = [2; -6], o = 2 */
    set(t.k, 2, 1, 2);
    set(t.v, 2, 0, 1); /* u = 1 + 12 = 13: S = [2; 20], o = 2 */
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 0), 8);
    cr_assert_eq(o_at(&t, 1, 0), 2);
    cr_assert_eq(o_at(&t, 2, 0), 2);
    cr_assert_eq(t.state[0], 2.0f);
    cr_assert_eq(t.state[DIM], 20.0f);
}

Test(reference_prefill, state_layouts_are_transposes)
{
    struct tiny t;
    tiny_make(&t);
    t.desc.state_layout = GDN_STATE_VK;
    t.h0[7 * DIM + 5] = 3; /* dv 7, dk 5 */
    set(t.q, 0, 5, 1);
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 7), 3);
    cr_assert_eq(t.state[7 * DIM + 5], 3.0f);
    t.desc.state_layout = GDN_STATE_KV;
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 7), 0);
}

static void forget_at_token_1(float g)
{
    struct tiny t;
    tiny_make(&t);
    for (int i = 0; i < DIM * DIM; ++i)
        t.h0[i] = 1e30f;
    t.g[1] = g;
    set(t.k, 1, 0, 1);
    set(t.v, 1, 0, 7);
    for (int i = 0; i < TOKENS; ++i)
        set(t.q, i, 0, 1);
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 1), INFINITY, "1e30 does not fit fp16");
    cr_assert_eq(o_at(&t, 1, 0), 7, "g = %g", (double)g);
    cr_assert_eq(o_at(&t, 2, 0), 7, "g = %g", (double)g);
    cr_assert_eq(t.state[0], 7.0f, "g = %g", (double)g);
    for (int i = 1; i < DIM * DIM; ++i)
        cr_assert_eq(t.state[i], 0.0f, "g = %g, state element %d", (double)g, i);
}

Test(reference_prefill, g_minus_infinity_forgets_and_is_no_nan)
{
    forget_at_token_1(-INFINITY);
}

Test(reference_prefill, alpha_that_underflows_forgets)
{
    forget_at_token_1(-1000.0f);
    forget_at_token_1(-FLT_MAX);
}

Test(reference_prefill, scale_is_the_inverse_root_unless_given_and_zero_is_zero)
{
    struct tiny t;
    tiny_make(&t);
    t.h0[0] = 4;
    set(t.q, 0, 0, 1);
    t.args.has_scale = 0;
    t.args.scale = 100;
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 0), 0.5); /* 4 / sqrt(64) */
    t.args.has_scale = 1;
    t.args.scale = 0;
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 0), 0);
    t.args.scale = 3;
    tiny_run(&t);
    cr_assert_eq(o_at(&t, 0, 0), 12);
}

/* 0.1 in float32 and the sum of sixteen of it in float would differ; the state is double until it is stored. */
Test(reference_prefill, the_state_is_rounded_once)
{
    struct tiny t;
    tiny_make(&t);
    t.h0[0] = 1;
    t.g[0] = t.g[1] = t.g[2] = -0.3f;
    tiny_run(&t);
    cr_assert_eq(t.state[0], (float)(exp((double)-0.3f) * exp((double)-0.3f) * exp((double)-0.3f)));
}

/* ---- promises -------------------------------------------------------------------------------------------------- */

Test(reference_prefill, outputs_are_the_unrounded_ones_rounded_and_nothing_else_is_written)
{
    struct gdn_case c = make("random", "padded", GDN_BF16, 64, GDN_STATE_KV);
    struct outputs out = run(&c);
    const int64_t row = c.o_count / c.tokens;
    cr_assert_eq(gdn_case_oracle(&c), GDN_OK);
    for (int64_t i = 0; i < c.used_tokens * row; ++i)
        cr_assert_eq(out.o[i], gdni_bf16_from_double(c.ref_o[i]), "o element %lld", (long long)i);
    for (int64_t i = c.used_tokens * row; i < c.o_count; ++i)
        cr_assert_eq(out.o[i], 0xffff, "o element %lld lies outside every sequence", (long long)i);
    for (int64_t i = 0; i < c.state_count; ++i)
        cr_assert_eq(out.state[i], (float)c.ref_state[i], "state element %lld", (long long)i);
    outputs_free(&out);
    gdn_case_free(&c);
}

Test(reference_prefill, empty_sequences_copy_their_state)
{
    struct gdn_case c = make("random", "all_empty", GDN_BF16, 64, GDN_STATE_VK);
    struct outputs out = run(&c);
    cr_assert_arr_eq(out.state, c.h0, (size_t)c.state_count * sizeof *out.state);
    outputs_free(&out);
    gdn_case_free(&c);
    c = make("random_no_h0", "all_empty", GDN_BF16, 64, GDN_STATE_VK);
    out = run(&c);
    for (int64_t i = 0; i < c.state_count; ++i)
        cr_assert_eq(out.state[i], 0.0f, "no initial state is zero");
    outputs_free(&out);
    gdn_case_free(&c);
}

Test(reference_prefill, in_place_state_and_no_final_state_change_nothing_else)
{
    struct gdn_case c = make("random", "ratio2", GDN_F16, 64, GDN_STATE_KV);
    struct outputs out = run(&c);
    uint16_t *o = calloc((size_t)c.o_count, 2);
    gdn_prefill_args args = c.args;
    args.o = address(o);
    cr_assert_eq(gdn_reference_prefill(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    cr_assert_arr_eq(o, out.o, (size_t)c.o_count * 2);
    args.final_state = args.initial_state;
    cr_assert_eq(gdn_reference_prefill(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    cr_assert_arr_eq(o, out.o, (size_t)c.o_count * 2);
    cr_assert_arr_eq(c.h0, out.state, (size_t)c.state_count * 4);
    free(o);
    outputs_free(&out);
    gdn_case_free(&c);
}

Test(reference_prefill, a_uniform_batch_equals_its_cu_seqlens)
{
    struct gdn_case c = make("random", "uniform", GDN_BF16, 64, GDN_STATE_KV);
    cr_assert_eq(c.args.cu_seqlens, 0);
    struct outputs out = run(&c);
    c.args.cu_seqlens = address(c.cu);
    struct outputs varlen = run(&c);
    cr_assert_arr_eq(out.o, varlen.o, (size_t)c.o_count * 2);
    cr_assert_arr_eq(out.state, varlen.state, (size_t)c.state_count * 4);
    outputs_free(&out);
    outputs_free(&varlen);
    gdn_case_free(&c);
}

/* Null gates are gates of 0, a null beta is ones: the same bits. */
Test(reference_prefill, null_gates_and_beta_have_their_meaning)
{
    struct gdn_case c = make("plain_delta", "tiny", GDN_BF16, 64, GDN_STATE_KV);
    struct outputs out = run(&c);
    const int64_t count = c.tokens * c.heads;
    float *zeros = calloc((size_t)count, sizeof *zeros), *ones = calloc((size_t)count, sizeof *ones);
    for (int64_t i = 0; i < count; ++i)
        ones[i] = 1;
    c.args.g = address(zeros);
    c.args.beta = address(ones);
    struct outputs given = run(&c);
    cr_assert_arr_eq(out.o, given.o, (size_t)c.o_count * 2);
    cr_assert_arr_eq(out.state, given.state, (size_t)c.state_count * 4);
    free(zeros);
    free(ones);
    outputs_free(&out);
    outputs_free(&given);
    gdn_case_free(&c);
}

/* The carried state is float32 once more: so far may the two differ, and o hardly ever by a place. */
Test(reference_prefill, a_prompt_in_two_calls_is_the_prompt_in_one)
{
    static const struct gdn_shape whole = { "whole", 1, 1, 2, 1, { 90 }, 0, false };
    const int64_t cut = 37, q_row = 64, v_row = 128;
    struct gdn_case c;
    gdn_case_make(&c, gdn_family_find("random"), &whole, GDN_BF16, 64, GDN_STATE_KV, GDN_CASE_SEED);
    cr_assert_eq(gdn_case_oracle(&c), GDN_OK);
    uint16_t *o = calloc((size_t)c.o_count, 2);
    gdn_prefill_args args = c.args;
    struct gdn_errors errors;
    args.final_state = args.initial_state;
    args.o = address(o);
    args.cu_seqlens = 0;
    args.num_tokens = cut;
    cr_assert_eq(gdn_reference_prefill(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    args.q += (gdn_devptr)(cut * q_row * 2);
    args.k += (gdn_devptr)(cut * q_row * 2);
    args.v += (gdn_devptr)(cut * v_row * 2);
    args.o += (gdn_devptr)(cut * v_row * 2);
    args.g += (gdn_devptr)(cut * 2 * 4);
    args.beta += (gdn_devptr)(cut * 2 * 4);
    args.num_tokens = 90 - cut;
    cr_assert_eq(gdn_reference_prefill(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    gdn_case_errors(&errors, &c, GDN_BF16, o, c.h0);
    cr_assert_lt(errors.state_worst, 0x1p-23, "%s: %.3e", c.name, errors.state_worst);
    cr_assert_lt(errors.o_worst, 0x1p-9, "%s: %.3e", c.name, errors.o_worst);
    free(o);
    gdn_case_free(&c);
}

Test(reference_prefill, host_addresses_need_no_alignment)
{
    struct gdn_case c = make("random", "tiny", GDN_BF16, 64, GDN_STATE_KV);
    struct outputs out = run(&c);
    const size_t k_bytes = (size_t)(c.tokens * c.desc.num_k_heads) * 64 * 2, state_bytes = (size_t)c.state_count * 4;
    unsigned char *k = malloc(k_bytes + 1), *o = malloc((size_t)c.o_count * 2 + 1), *state = malloc(state_bytes + 3);
    gdn_prefill_args args = c.args;
    memcpy(k + 1, c.k, k_bytes);
    args.k = address(k + 1);
    args.o = address(o + 1);
    args.final_state = address(state + 3);
    cr_assert_eq(gdn_reference_prefill(&c.desc, &args), GDN_OK, "%s", gdn_last_error());
    cr_assert_arr_eq(o + 1, out.o, (size_t)c.used_tokens * 2 * 64 * 2);
    cr_assert_arr_eq(state + 3, out.state, state_bytes);
    free(k);
    free(o);
    free(state);
    outputs_free(&out);
    gdn_case_free(&c);
}

Test(reference_prefill, max_tokens_and_max_seqs_are_not_used)
{
    struct tiny t;
    tiny_make(&t);
    t.desc.max_tokens = t.desc.max_seqs = 1;
    tiny_run(&t);
    t.desc.max_tokens = t.desc.max_seqs = 0;
    tiny_run(&t);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static void expect_refusal(const struct tiny *t, gdn_status status, const char *words)
{
    struct tiny before;
    memcpy(&before, t, sizeof before);
    cr_assert_eq(gdn_reference_prefill(&t->desc, &t->args), status, "%s: got %s", words, gdn_last_error());
    cr_assert(strstr(gdn_last_error(), words), "'%s' lacks '%s'", gdn_last_error(), words);
    cr_assert_eq(memcmp(&before, t, sizeof before), 0, "%s: something was written", words);
}

#define REFUSE(change, status, words)                                                                                  \
    do {                                                                                                               \
        struct tiny t;                                                                                                 \
        tiny_make(&t);                                                                                                 \
        change;                                                                                                        \
        expect_refusal(&t, status, words);                                                                             \
    } while (0)

Test(reference_prefill, refuses_with_a_sentence_and_writes_nothing)
{
    REFUSE(t.args.q = 0, GDN_E_INVALID, "q is null");
    REFUSE(t.args.k = 0, GDN_E_INVALID, "k is null");
    REFUSE(t.args.v = 0, GDN_E_INVALID, "v is null");
    REFUSE(t.args.o = 0, GDN_E_INVALID, "o is null");
    REFUSE(t.args.num_tokens = -1, GDN_E_INVALID, "num_tokens is -1");
    REFUSE(t.args.num_seqs = -1, GDN_E_INVALID, "num_seqs is -1");
    REFUSE(t.args.num_tokens = (int64_t)INT32_MAX + 1, GDN_E_INVALID, "num_tokens is 2147483648");
    REFUSE(t.args.num_tokens = 2, GDN_E_INVALID, "cu_seqlens[1] is 3");
    REFUSE(t.cu[0] = 1, GDN_E_INVALID, "cu_seqlens[0] is 1");
    REFUSE(t.cu[1] = -1, GDN_E_INVALID, "cu_seqlens[1] is -1");
    REFUSE((t.args.cu_seqlens = 0, t.args.num_seqs = 2), GDN_E_INVALID, "multiple of num_seqs");
    REFUSE(t.args.has_scale = 7, GDN_E_INVALID, "has_scale is 7");
    REFUSE(t.args.struct_size = 8, GDN_E_VERSION, "struct_size is 8");
    REFUSE(t.desc.struct_size = 0, GDN_E_VERSION, "struct_size is 0");
    REFUSE(t.desc.num_k_heads = 0, GDN_E_INVALID, "num_k_heads");
    REFUSE((t.desc.num_q_heads = 2, t.desc.num_v_heads = 3), GDN_E_INVALID, "must divide");
    REFUSE(t.desc.head_dim_v = 96, GDN_E_UNSUPPORTED, "head_dim");
    REFUSE(t.desc.io_type = GDN_F32, GDN_E_UNSUPPORTED, "io_type");
    REFUSE(t.desc.state_layout = (gdn_state_layout)9, GDN_E_INVALID, "state_layout is 9");
    struct tiny t;
    tiny_make(&t);
    cr_assert_eq(gdn_reference_prefill(NULL, &t.args), GDN_E_INVALID);
    cr_assert_eq(gdn_reference_prefill(&t.desc, NULL), GDN_E_INVALID);
}

Test(reference_prefill, out_of_memory_is_a_status)
{
    struct tiny t;
    tiny_make(&t);
    gdni_mem_fail_after(0);
    expect_refusal(&t, GDN_E_NOMEM, "64 x 64");
    gdni_mem_fail_after(-1);
    tiny_run(&t);
}
