/*
 * test_rows_apart.c - tensors whose rows share elements are refused, and no others: against every pair of rows; and by both
 * operators' calls.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "codegen/check.h"

static bool share(const struct gdni_rows *r)
{
    static unsigned char taken[1 << 16];
    memset(taken, 0, sizeof taken);
    for (int64_t n = 0; n < r->num_seqs; ++n)
        for (int64_t t = 0; t < r->num_tokens / r->num_seqs; ++t)
            for (int64_t h = 0; h < r->heads; ++h)
                for (int64_t i = 0; i < r->dim; ++i) {
                    const int64_t at = n * r->strides.batch + t * r->strides.token + h * r->strides.head + i;
                    cr_assert(at < (int64_t)sizeof taken);
                    if (taken[at]++) return true;
                }
    return false;
}

Test(rows_apart, are_refused_exactly_where_two_rows_share_an_element)
{
    enum { ROUNDS = 50000, SEED = 20261128 };
    int shared = 0;
    srand(SEED);
    for (int round = 0; round < ROUNDS; ++round) {
        const int seqs = 1 + rand() % 4, tokens = 1 + rand() % 12;
        const struct gdni_rows r = {
            .name = "o",
            .strides = { .batch = 1 + rand() % 90, .token = 1 + rand() % 90, .head = 1 + rand() % 90 },
            .num_tokens = seqs * tokens,
            .num_seqs = seqs,
            .heads = 1 + rand() % 4,
            .dim = 1 + rand() % 4,
        };
        const bool expected = share(&r);
        cr_assert_eq(gdni_check_rows_apart(&r), expected ? GDN_E_INVALID : GDN_OK,
                     "seed %d, round %d: strides %lld %lld %lld of %d x %d x %lld rows of %lld", SEED, round,
                     (long long)r.strides.batch, (long long)r.strides.token, (long long)r.strides.head, seqs, tokens,
                     (long long)r.heads, (long long)r.dim);
        shared += expected;
    }
    cr_expect(shared > ROUNDS / 10 && shared < ROUNDS - ROUNDS / 10, "%d of %d", shared, ROUNDS);
}

Test(rows_apart, layouts_of_engines_are_taken_whatever_their_size)
{
    static const struct gdni_rows layouts[] = {
        { "o", { 0, 128 * 64, 128 }, 131072, 1, 64, 128 },                                      /* [T, H, D] */
        { "o", { 1 << 30, 128, (int64_t)128 << 17 }, 64ll * 131072, 64, 64, 128 },              /* [B, H, T, D] */
        { "o", { 128, 128 * 64 * 64, 128 * 64 }, 64ll * 131072, 64, 64, 128 },                  /* [T, H, B, D] */
        { "o", { (int64_t)128 << 17, 128, (int64_t)128 << 30 }, 4096ll * 131072, 4096, 64, 128 }, /* [H, B, T, D] */
        { "o", { 0, 12288, 128 }, 131072, 1, 64, 128 },                                         /* columns of a wider row */
    };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; ++i)
        cr_expect_eq(gdni_check_rows_apart(&layouts[i]), GDN_OK, "layout %zu: %s", i, gdni_error_text());
}

Test(rows_apart, what_no_address_space_has_is_refused_before_it_is_reckoned_with)
{
    const struct gdni_rows r = { "o", { (int64_t)1 << 47, 128, (int64_t)1 << 20 }, 64ll << 30, 1 << 30, 64, 128 };
    cr_expect_eq(gdni_check_rows_apart(&r), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "o_strides.batch is 140737488355328"), "%s", gdni_error_text());
}

Test(rows_apart, a_default_is_not_called_a_stride_that_was_given)
{
    const struct gdni_rows r = { "q", { 0, 0, 0 }, INT32_MAX, 1, 4096 * 16, 128 };
    cr_expect_eq(gdni_check_rows_apart(&r), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "num_tokens is 2147483647, of 65536 heads of 128: q, packed, passes 2^47"), "%s",
              gdni_error_text());
    cr_expect(strstr(gdni_error_text(), "split the batch") && !strstr(gdni_error_text(), "or 0"), "%s", gdni_error_text());
}

/* No stride steps over another one's rows, and yet no two rows meet: 2^23 looks to know that. */
Test(rows_apart, what_would_take_a_call_long_to_find_out_is_refused)
{
    const int64_t heads = 4096, seqs = 1024;
    const struct gdni_rows r = { "o", { 1ll << 33, heads * 128, (heads + 1) * 128 }, seqs * 4096, seqs, heads, 128 };
    cr_expect_eq(gdni_check_rows_apart(&r), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "o_strides come to"), "%s", gdni_error_text());
}

#define AT(array) ((gdn_devptr)(uintptr_t)(array))
enum { TOKENS = 16, DIM = 64 };
static uint16_t x[TOKENS * 2 * DIM], y[TOKENS * 2 * DIM * 2];

static gdn_status run_prefill(gdn_strides o_strides, int num_seqs)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 2;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    args.q = args.k = args.v = AT(x), args.o = AT(y), args.o_strides = o_strides;
    args.num_tokens = TOKENS, args.num_seqs = num_seqs;
    return gdn_reference_prefill(&desc, &args);
}

static gdn_status run_conv(gdn_strides v_strides)
{
    static uint16_t weight[2 * DIM * 4];
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    desc.num_v_heads = 2;
    desc.head_dim_v = DIM;
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    args.x = AT(x), args.x_stride = 2 * DIM, args.weight = AT(weight), args.v = AT(y), args.v_strides = v_strides;
    args.num_tokens = TOKENS, args.num_seqs = 1;
    return gdn_reference_conv1d_qkv(&desc, &args);
}

Test(rows_apart, both_operators_refuse_outputs_of_which_they_are_not)
{
    cr_expect_eq(run_prefill((gdn_strides){ .token = DIM, .head = DIM }, 1), GDN_E_INVALID);
    cr_expect(strstr(gdn_last_error(), "o_strides come to") && strstr(gdn_last_error(), "16 tokens and 2 heads"), "%s",
              gdn_last_error());
    cr_expect_eq(run_prefill((gdn_strides){ .token = 2 * DIM, .head = 2 * DIM }, 1), GDN_E_INVALID);
    cr_expect_eq(run_prefill((gdn_strides){ .batch = DIM }, 2), GDN_E_INVALID);
    cr_expect_eq(run_prefill((gdn_strides){ .token = DIM, .head = TOKENS * DIM }, 1), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(run_conv((gdn_strides){ .token = DIM, .head = DIM }), GDN_E_INVALID);
    cr_expect(strstr(gdn_last_error(), "v_strides come to"), "%s", gdn_last_error());
    cr_expect_eq(run_conv((gdn_strides){ .token = 4 * DIM, .head = DIM }), GDN_OK, "%s", gdn_last_error());
}

/* Of one row any stride is taken: a view's of one token is whatever its tensor had. */
Test(rows_apart, inputs_of_a_prefill_are_held_to_it_and_a_single_row_is_not)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 1;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    for (int tokens = 1; tokens <= 2; ++tokens)
        for (int which = 0; which < 3; ++which) {
            gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
            gdn_strides *const strides[] = { &args.q_strides, &args.k_strides, &args.v_strides };
            args.q = args.k = args.v = AT(x), args.o = AT(y), args.num_tokens = tokens, args.num_seqs = 1;
            strides[which]->token = DIM - 8;
            cr_expect_eq(gdn_reference_prefill(&desc, &args), tokens == 1 ? GDN_OK : GDN_E_INVALID, "%d of %d: %s", which,
                         tokens, gdn_last_error());
        }
}
