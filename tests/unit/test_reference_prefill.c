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
    t.args.scale = 0;
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

/* ---- conventions: each equals the default convention on converted tensors ------------------------------------------- */

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);
    memcpy(to, from, bytes);
    return to;
}

static void expect_same_outputs(const struct gdn_case *c, const struct outputs *a, const struct outputs *b)
{
    cr_expect_arr_eq(a->o, b->o, (size_t)c->o_count * 2, "%s: o", c->name);
    cr_expect_arr_eq(a->state, b->state, (size_t)c->state_count * 4, "%s: state", c->name);
}

/* Every row to where strides put it; what lies between is NaN. */
static uint16_t *spread(const uint16_t *packed, int64_t seqs, int64_t len, int64_t heads, int64_t dim, gdn_strides s,
                        int64_t count)
{
    uint16_t *to = malloc((size_t)count * 2);
    memset(to, 0xff, (size_t)count * 2);
    for (int64_t n = 0; n < seqs; ++n)
        for (int64_t t = 0; t < len; ++t)
            for (int64_t h = 0; h < heads; ++h)
                memcpy(to + n * s.batch + t * s.token + h * s.head, packed + ((n * len + t) * heads + h) * dim,
                       (size_t)dim * 2);
    return to;
}

/* [B, H, T, D] in and out; gates [B, H, T]. */
Test(reference_prefill, strides_describe_head_major_batches)
{
    struct gdn_case c = make("random", "uniform", GDN_BF16, 64, GDN_STATE_KV); /* 3 x 96, 1/1/2 heads */
    struct outputs packed = run(&c), strided = { NULL, NULL };
    const int64_t B = 3, T = 96, D = 64, H = 2;
    const gdn_strides one = { T * D, D, T * D }, two = { H * T * D + 40, D, T * D + 16 };
    const int64_t two_count = B * (H * T * D + 40);
    uint16_t *q = spread(c.q, B, T, 1, D, one, B * T * D), *k = spread(c.k, B, T, 1, D, one, B * T * D);
    uint16_t *v = spread(c.v, B, T, H, D, two, two_count), *o = malloc((size_t)two_count * 2);
    float *g = malloc((size_t)(B * T * H) * 4), *beta = malloc((size_t)(B * T * H) * 4);
    for (int64_t i = 0; i < B * T * H; ++i) {
        const int64_t n = i / (T * H), t = i / H % T, h = i % H;
        g[(n * H + h) * T + t] = c.g[i];
        beta[(n * H + h) * T + t] = c.beta[i];
    }
    memset(o, 0xff, (size_t)two_count * 2);
    strided.o = spread(c.v, 0, 0, 0, 0, two, c.o_count);
    strided.state = calloc((size_t)c.state_count, 4);
    gdn_prefill_args a = c.args;
    a.q = address(q), a.k = address(k), a.v = address(v), a.g = address(g), a.beta = address(beta), a.o = address(o);
    a.final_state = address(strided.state);
    a.q_strides = a.k_strides = one;
    a.v_strides = a.o_strides = two;
    a.g_strides = a.beta_strides = (gdn_strides){ H * T, 1, T };
    cr_assert_eq(gdn_reference_prefill(&c.desc, &a), GDN_OK, "%s", gdn_last_error());
    uint16_t *wanted = spread(packed.o, B, T, H, D, two, two_count);
    cr_expect_arr_eq(o, wanted, (size_t)two_count * 2, "rows are where the strides say, and nothing between");
    cr_expect_arr_eq(strided.state, packed.state, (size_t)c.state_count * 4);
    free(q), free(k), free(v), free(g), free(beta), free(o), free(wanted);
    outputs_free(&packed);
    outputs_free(&strided);
    gdn_case_free(&c);
}

/* q and k heads repeated by hand, so that every state head has its own. */
Test(reference_prefill, tiled_heads_repeat)
{
    static const struct gdn_shape shape = { "tiled", 2, 4, 8, 2, { 9, 5 }, 0, false };
    struct gdn_case c;
    gdn_case_make(&c, gdn_family_find("random"), &shape, GDN_F16, 64, GDN_STATE_KV, GDN_CASE_SEED);
    uint16_t *q = malloc((size_t)c.tokens * 8 * 64 * 2), *k = malloc((size_t)c.tokens * 8 * 64 * 2);
    c.desc.head_map = GDN_HEADS_TILED;
    struct outputs tiled = run(&c);
    for (int64_t t = 0; t < c.tokens; ++t)
        for (int64_t h = 0; h < 8; ++h) {
            memcpy(q + (t * 8 + h) * 64, c.q + (t * 2 + h % 2) * 64, 128);
            memcpy(k + (t * 8 + h) * 64, c.k + (t * 4 + h % 4) * 64, 128);
        }
    struct gdn_case full = c;
    full.desc.num_q_heads = full.desc.num_k_heads = 8;
    full.args.q = address(q), full.args.k = address(k);
    struct outputs repeated = run(&full);
    expect_same_outputs(&c, &tiled, &repeated);
    free(q), free(k);
    outputs_free(&tiled);
    outputs_free(&repeated);
    gdn_case_free(&c);
}

/* Each kind against a float32 log decay that says the same; o may differ by the rounding of that log alone. */
Test(reference_prefill, gate_kinds_mean_the_same_decay)
{
    struct gdn_case c = make("random", "tiny", GDN_BF16, 64, GDN_STATE_KV);
    const int64_t count = c.tokens * c.heads;
    float a_log[2] = { -1.0f, 2.0f }, dt_bias[2] = { 0.5f, -3.0f };
    uint16_t *half = malloc((size_t)count * 2);
    double *g = malloc((size_t)count * sizeof *g);
    gdn_case_oracle(&c);
    for (int kind = GDN_GATE_LOG; kind <= GDN_GATE_LOGITS; ++kind) {
        for (int64_t i = 0; i < count; ++i) { /* a 16-bit value of each kind, and its log decay */
            const double x = kind == GDN_GATE_LOG ? -0.03 * (double)(i % 40) :
                             kind == GDN_GATE_LINEAR ? 1.0 / (1.0 + (double)(i % 7)) : (double)(i % 50) - 25.0;
            half[i] = gdni_f16_from_double(x);
            const double y = gdni_load(GDN_F16, half, i), z = y + (double)dt_bias[i % 2];
            g[i] = kind == GDN_GATE_LOG ? y : kind == GDN_GATE_LINEAR ? log(y) :
                   -exp((double)a_log[i % 2]) * (z > 20 ? z : log1p(exp(z)));
            c.g[i] = (float)g[i];
        }
        cr_assert_eq(gdn_case_oracle(&c), GDN_OK, "%s", gdn_last_error());
        struct gdn_case other = c;
        other.ref_o = NULL, other.ref_state = NULL;
        other.desc.gate = (gdn_gate)kind;
        other.desc.gate_type = GDN_F16;
        other.args.g = address(half);
        if (kind == GDN_GATE_LOGITS) other.args.a_log = address(a_log), other.args.dt_bias = address(dt_bias);
        cr_assert_eq(gdn_case_oracle(&other), GDN_OK, "kind %d: %s", kind, gdn_last_error());
        struct errors e = { 0 };
        for (int64_t i = 0; i < c.o_count; ++i)
            errors_add(&e, other.ref_o[i], c.ref_o[i]);
        cr_expect_lt(errors_relative(&e), 1e-6, "kind %d: %.3e", kind, errors_relative(&e));
        free(other.ref_o), free(other.ref_state);
    }
    free(half), free(g);
    gdn_case_free(&c);
}

/* One token: the state is alpha h0 + k^T beta (v - ...), with v = 0 and k = 0 just alpha h0. */
static double decay_by_hand(gdn_gate kind, float g, float a_log, float dt_bias)
{
    struct tiny t;
    float rate = a_log, bias = dt_bias;
    tiny_make(&t);
    t.cu[1] = 1;
    t.h0[0] = 1;
    t.g[0] = g;
    t.desc.gate = kind;
    if (kind == GDN_GATE_LOGITS) t.args.a_log = address(&rate), t.args.dt_bias = address(&bias);
    tiny_run(&t);
    return (double)t.state[0];
}

Test(reference_prefill, gates_by_hand)
{
    cr_expect_float_eq(decay_by_hand(GDN_GATE_LOG, -1, 0, 0), 0.36787944117, 1e-7);
    cr_expect_eq(decay_by_hand(GDN_GATE_LINEAR, 0.25f, 0, 0), 0.25);
    cr_expect_eq(decay_by_hand(GDN_GATE_LINEAR, 0, 0, 0), 0);
    /* -e^0 softplus(0 + 0) = -log 2 */
    cr_expect_float_eq(decay_by_hand(GDN_GATE_LOGITS, 0, 0, 0), 0.5, 1e-7);
    /* -e^(log 2) * 30 above the threshold: softplus is its argument */
    cr_expect_float_eq(decay_by_hand(GDN_GATE_LOGITS, 29, 0.6931471806f, 1), exp(-60), 1e-32);
    cr_expect_eq(decay_by_hand(GDN_GATE_LOGITS, -INFINITY, 1, 1), 1, "softplus of -infinity is 0");
    cr_expect_float_eq(decay_by_hand(GDN_GATE_LOGITS, 1000, -8, 0), exp(-1000 * exp(-8)), 1e-7, "e^1000 is no double");
}

/* u = beta (3 - 0): the state is beta * 3. */
static double beta_by_hand(gdn_beta kind, uint32_t flags, float beta, bool given)
{
    struct tiny t;
    tiny_make(&t);
    t.cu[1] = 1;
    t.beta[0] = beta;
    t.desc.beta = kind;
    t.desc.flags = flags;
    if (!given) t.args.beta = 0;
    set(t.k, 0, 0, 1);
    set(t.v, 0, 0, 3);
    tiny_run(&t);
    return (double)t.state[0] / 3;
}

Test(reference_prefill, betas_by_hand)
{
    cr_expect_float_eq(beta_by_hand(GDN_BETA_PLAIN, 0, 0.25f, true), 0.25, 1e-7);
    cr_expect_float_eq(beta_by_hand(GDN_BETA_LOGITS, 0, 0, true), 0.5, 1e-7);
    cr_expect_float_eq(beta_by_hand(GDN_BETA_LOGITS, 0, 2, true), 1 / (1 + exp(-2.0)), 1e-7);
    cr_expect_float_eq(beta_by_hand(GDN_BETA_PLAIN, GDN_PREFILL_BETA_TIMES_2, 0.75f, true), 1.5, 1e-7);
    cr_expect_float_eq(beta_by_hand(GDN_BETA_LOGITS, GDN_PREFILL_BETA_TIMES_2, 0, true), 1, 1e-7);
    cr_expect_eq(beta_by_hand(GDN_BETA_LOGITS, GDN_PREFILL_BETA_TIMES_2, 0, false), 1, "none is one, never doubled");
}

/* |k| = 5 and |q| = 2 with eps: what is written and read are the unit vectors. */
Test(reference_prefill, norms_by_hand)
{
    struct tiny t;
    tiny_make(&t);
    t.cu[1] = 1;
    t.desc.flags = GDN_PREFILL_QK_L2NORM;
    set(t.k, 0, 0, 3);
    set(t.k, 0, 1, 4);
    set(t.q, 0, 0, 2);
    set(t.v, 0, 0, 10);
    tiny_run(&t);
    cr_expect_float_eq((double)t.state[0], 6, 1e-5);
    cr_expect_float_eq((double)t.state[DIM], 8, 1e-5);
    cr_expect_eq(o_at(&t, 0, 0), 6);
    memset(t.k, 0, sizeof t.k); /* eps keeps a row of zeros at zero */
    tiny_run(&t);
    cr_expect_eq(t.state[0], 0.0f);
}

Test(reference_prefill, sixteen_bit_states_are_read_and_rounded_once)
{
    struct gdn_case c = make("random", "tiny", GDN_BF16, 64, GDN_STATE_VK);
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    uint16_t *state = malloc((size_t)c.state_count * 2);
    for (int i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < c.state_count; ++j) { /* h0 becomes what the type can hold */
            gdni_store((int32_t)types[i], state, j, (double)c.h0[j]);
            c.h0[j] = (float)gdni_load((int32_t)types[i], state, j);
        }
        cr_assert_eq(gdn_case_oracle(&c), GDN_OK);
        gdn_prefill_desc desc = c.desc;
        gdn_prefill_args a = c.args;
        desc.state_type = types[i];
        uint16_t *o = malloc((size_t)c.o_count * 2);
        a.initial_state = a.final_state = address(state);
        a.o = address(o);
        cr_assert_eq(gdn_reference_prefill(&desc, &a), GDN_OK, "%s", gdn_last_error());
        for (int64_t j = 0; j < c.state_count; ++j) {
            uint16_t wanted;
            gdni_store((int32_t)types[i], &wanted, 0, c.ref_state[j]);
            cr_assert_eq(state[j], wanted, "type %d, element %lld", (int)types[i], (long long)j);
        }
        free(o);
    }
    free(state);
    gdn_case_free(&c);
}

/* ---- pools ------------------------------------------------------------------------------------------------------------ */

enum { POOL_LINES = 16 };

/* The case's states in lines of a padded pool, everything else NaN. */
struct pool {
    float *base;
    int64_t stride, line; /* elements of a line, and of a state in it */
};

static struct pool pool_make(const struct gdn_case *c, const int64_t *lines)
{
    const int64_t line = c->state_count / c->shape->num_seqs;
    struct pool pool = { NULL, line + 32, line };
    const size_t bytes = (size_t)(POOL_LINES * pool.stride) * 4;
    pool.base = malloc(bytes);
    memset(pool.base, 0xff, bytes);
    for (int n = 0; n < c->shape->num_seqs; ++n)
        if (lines[n] >= 0)
            memcpy(pool.base + lines[n] * pool.stride, c->h0 + n * line, (size_t)line * 4);
    return pool;
}

static bool line_is(const struct pool *pool, int64_t line, const float *wanted)
{
    return memcmp(pool->base + line * pool->stride, wanted, (size_t)pool->line * 4) == 0;
}

static bool line_is_nan(const struct pool *pool, int64_t line)
{
    for (int64_t i = 0; i < pool->stride; ++i)
        if (!isnan(pool->base[line * pool->stride + i])) return false;
    return true;
}

/* Sequence 1 and 3 are inert, one by each array; the rest fork from slot_in to slot_out inside one pool. */
Test(reference_prefill, slots_fork_inside_a_pool_and_inert_rows_are_left_alone)
{
    struct gdn_case c = make("random", "edges", GDN_BF16, 64, GDN_STATE_KV);
    struct outputs plain = run(&c);
    const int64_t in[4] = { 7, -1, 2, 5 }, out[4] = { 3, 4, 9, -1 };
    int64_t strided_in[12];
    for (int n = 0; n < 4; ++n)
        strided_in[3 * n] = in[n];
    struct pool pool = pool_make(&c, in);
    uint16_t *o = malloc((size_t)c.o_count * 2);
    memset(o, 0xff, (size_t)c.o_count * 2);
    gdn_prefill_args a = c.args;
    c.desc.slot_type = GDN_INDEX_I64;
    a.initial_state = a.final_state = address(pool.base);
    a.initial_slot_stride = a.final_slot_stride = pool.stride;
    a.slot_in = address(strided_in), a.slot_in_stride = 3, a.slot_out = address(out);
    a.o = address(o);
    cr_assert_eq(gdn_reference_prefill(&c.desc, &a), GDN_OK, "%s", gdn_last_error());
    for (int n = 0; n < 4; ++n) {
        const bool inert = in[n] < 0 || out[n] < 0;
        const int64_t row = c.heads * 64;
        for (int64_t i = c.cu[n] * row; i < c.cu[n + 1] * row; ++i)
            cr_assert_eq(o[i], inert ? 0xffff : plain.o[i], "sequence %d, o element %lld", n, (long long)i);
        if (!inert) {
            cr_expect(line_is(&pool, out[n], plain.state + n * pool.line), "line %lld", (long long)out[n]);
            cr_expect(line_is(&pool, in[n], c.h0 + n * pool.line), "line %lld is read only", (long long)in[n]);
        }
    }
    cr_expect(line_is(&pool, 5, c.h0 + 3 * pool.line), "an inert row's line keeps what it had");
    cr_expect(line_is_nan(&pool, 4) && line_is_nan(&pool, 0) && line_is_nan(&pool, 15));
    free(o), free(pool.base);
    outputs_free(&plain);
    gdn_case_free(&c);
}

Test(reference_prefill, has_initial_state_starts_some_sequences_from_zeros)
{
    struct gdn_case c = make("random", "edges", GDN_BF16, 64, GDN_STATE_KV);
    uint8_t has[4] = { 1, 0, 0, 1 };
    const int64_t line = c.state_count / 4;
    float *h0 = copy_of(c.h0, (size_t)c.state_count * 4);
    memset(c.h0 + line, 0, (size_t)(2 * line) * 4);
    struct outputs zeros = run(&c);
    memset(c.h0 + line, 0xff, (size_t)(2 * line) * 4); /* NaN: the line is not read */
    c.args.has_initial_state = address(has);
    struct outputs flagged = run(&c);
    expect_same_outputs(&c, &zeros, &flagged);
    free(h0);
    outputs_free(&zeros);
    outputs_free(&flagged);
    gdn_case_free(&c);
}

/* A checkpoint is the final state of the sequence cut there; all kinds of inert rows store nothing. */
Test(reference_prefill, checkpoints_are_final_states_of_shorter_prompts)
{
    struct gdn_case c = make("random", "edges", GDN_BF16, 64, GDN_STATE_KV); /* 63, 64, 65, 128 */
    const int64_t lines[4] = { 0, 1, 2, 3 };
    int64_t rows[][3] = { { 0, 64, 8 }, { 1, 0, 9 }, { 1, 64, 4 }, { 2, 32, 9 }, { 2, 64, 5 }, { 2, 64, -1 },
                          { 3, 64, 6 }, { 3, 64, 10 }, { 3, 128, 7 }, { 3, 192, 11 }, { -1, 64, 12 }, { -1, -1, -1 } };
    struct outputs plain = run(&c);
    struct pool pool = pool_make(&c, lines);
    gdn_prefill_args a = c.args;
    a.initial_state = a.final_state = address(pool.base);
    a.initial_slot_stride = a.final_slot_stride = pool.stride;
    a.o = address(plain.o);
    c.desc.flags = GDN_PREFILL_CHECKPOINTS;
    a.checkpoints = address(rows), a.num_checkpoints = 12;
    cr_assert_eq(gdn_reference_prefill(&c.desc, &a), GDN_OK, "%s", gdn_last_error());
    cr_expect(line_is(&pool, 4, pool.base + 1 * pool.stride), "the whole of sequence 1");
    cr_expect(line_is(&pool, 7, pool.base + 3 * pool.stride), "the whole of sequence 3");
    cr_expect(line_is(&pool, 6, pool.base + 10 * pool.stride), "two lines for one place");
    for (int i = 8; i < POOL_LINES; ++i)
        if (i != 10) cr_expect(line_is_nan(&pool, i), "line %d is asked for by an inert row", i);
    int32_t cu[5] = { 0, 0, 0, 64, 128 }; /* rows of sequence 2, then of sequence 3, 64 each */
    const int64_t q_row = c.desc.num_q_heads * 64, v_row = c.heads * 64;
    for (int n = 2; n < 4; ++n) {
        gdn_prefill_args cut = c.args;
        const int64_t first = c.cu[n];
        cu[2] = 0, cu[3] = n == 2 ? 64 : 0, cu[4] = 64;
        cut.q += (gdn_devptr)(first * q_row * 2), cut.k += (gdn_devptr)(first * q_row * 2);
        cut.v += (gdn_devptr)(first * v_row * 2);
        cut.g += (gdn_devptr)(first * c.heads * 4), cut.beta += (gdn_devptr)(first * c.heads * 4);
        cut.cu_seqlens = address(cu), cut.num_tokens = 64;
        cut.o = address(plain.o), cut.final_state = address(plain.state);
        cr_assert_eq(gdn_reference_prefill(&c.desc, &cut), GDN_OK, "%s", gdn_last_error());
        cr_expect(line_is(&pool, n + 3, plain.state + n * pool.line), "sequence %d after 64 tokens", n);
    }
    free(pool.base);
    outputs_free(&plain);
    gdn_case_free(&c);
}

Test(reference_prefill, padding_becomes_zeros_on_request_and_long_indices_are_read)
{
    struct gdn_case c = make("random", "padded", GDN_BF16, 64, GDN_STATE_KV);
    struct outputs plain = run(&c);
    int64_t cu[4];
    for (int n = 0; n < 4; ++n)
        cu[n] = c.cu[n];
    c.desc.flags = GDN_PREFILL_ZERO_PADDING;
    c.desc.cu_seqlens_type = GDN_INDEX_I64;
    c.args.cu_seqlens = address(cu);
    struct outputs zeroed = run(&c);
    const int64_t used = c.used_tokens * c.heads * 64;
    cr_expect_arr_eq(zeroed.o, plain.o, (size_t)used * 2);
    for (int64_t i = used; i < c.o_count; ++i)
        cr_assert(zeroed.o[i] == 0 && plain.o[i] == 0xffff, "o element %lld", (long long)i);
    cr_expect_arr_eq(zeroed.state, plain.state, (size_t)c.state_count * 4);
    outputs_free(&plain);
    outputs_free(&zeroed);
    gdn_case_free(&c);
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
    int32_t slot = -2;
    int64_t rows[2][3] = { { 0, 128, 0 }, { 0, 64, 0 } };
    REFUSE(t.args.slot_in = address(&slot), GDN_E_INVALID, "slot_in[0] is -2");
    REFUSE(t.args.slot_out = address(&slot), GDN_E_INVALID, "slot_out[0] is -2");
    REFUSE((t.desc.flags = GDN_PREFILL_CHECKPOINTS, t.args.checkpoints = address(rows), t.args.num_checkpoints = 2),
           GDN_E_INVALID, "sort rows");
    const int64_t beyond = INT64_MAX; /* times a line's size before it */
    REFUSE((t.desc.slot_type = GDN_INDEX_I64, t.args.slot_in = address(&beyond)), GDN_E_INVALID,
           "slot_in[0] is 9223372036854775807");
    REFUSE((t.desc.slot_type = GDN_INDEX_I64, t.args.slot_out = address(&beyond)), GDN_E_INVALID,
           "slot_out[0] is 9223372036854775807");
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
    gdni_mem_fail_after(1); /* behind the lines of states */
    expect_refusal(&t, GDN_E_NOMEM, "64 x 64");
    gdni_mem_fail_after(-1);
    tiny_run(&t);
}
