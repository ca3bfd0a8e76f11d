/*
 * test_lines.c - lines of states that two sequences, or a checkpoint and anybody, would race for are refused by the host
 * references, by name; what the header allows is not.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "gdn_jit/gdn_jit.h"
#include "reference/lines.h"

enum { TOKENS = 200, DIM = 64, LINES = 8, CHANNELS = 64 };

#define AT(array) ((gdn_devptr)(uintptr_t)(array))

/* Three sequences of 100, 0 and 100 tokens in one pool. */
static const int32_t cu_seqlens[] = { 0, 100, 100, 200 };

struct call {
    int32_t in[3], out[3]; /* slot_out is given */
    int64_t checkpoints[2][3];
    int num_checkpoints;
};

static gdn_status run_prefill(const struct call *c, bool one_pool)
{
    static uint16_t x[TOKENS * DIM], o[TOKENS * DIM];
    static float pool[LINES * DIM * DIM], other[LINES * DIM * DIM];
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 1;
    desc.head_dim_qk = desc.head_dim_v = DIM;
    desc.flags = GDN_PREFILL_CHECKPOINTS;
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    args.q = args.k = args.v = AT(x), args.o = AT(o);
    args.initial_state = AT(pool), args.final_state = one_pool ? AT(pool) : AT(other);
    args.slot_in = AT(c->in), args.slot_out = AT(c->out), args.cu_seqlens = AT(cu_seqlens);
    args.checkpoints = AT(c->checkpoints), args.num_checkpoints = c->num_checkpoints;
    args.num_tokens = TOKENS, args.num_seqs = 3;
    return gdn_reference_prefill(&desc, &args);
}

static gdn_status run_conv(const struct call *c)
{
    static uint16_t x[TOKENS * CHANNELS], y[TOKENS * CHANNELS], weight[CHANNELS * 4], pool[LINES * CHANNELS * 3];
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    desc.num_v_heads = 1;
    desc.head_dim_v = CHANNELS;
    desc.flags = GDN_CONV_CHECKPOINTS;
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    args.x_stride = CHANNELS;
    args.x = AT(x), args.weight = AT(weight), args.v = AT(y), args.state = AT(pool);
    args.slot_in = AT(c->in), args.slot_out = AT(c->out), args.cu_seqlens = AT(cu_seqlens);
    args.checkpoints = AT(c->checkpoints), args.num_checkpoints = c->num_checkpoints;
    args.num_tokens = TOKENS, args.num_seqs = 3;
    return gdn_reference_conv1d_qkv(&desc, &args);
}

static void expect_refused(const struct call *c, const char *words)
{
    cr_expect_eq(run_prefill(c, true), GDN_E_INVALID, "prefill: %s", words);
    cr_expect(strstr(gdn_last_error(), words), "prefill: '%s' lacks '%s'", gdn_last_error(), words);
    cr_expect_eq(run_conv(c), GDN_E_INVALID, "conv: %s", words);
    cr_expect(strstr(gdn_last_error(), words), "conv: '%s' lacks '%s'", gdn_last_error(), words);
}

static void expect_taken(const struct call *c, const char *what)
{
    cr_expect_eq(run_prefill(c, true), GDN_OK, "prefill, %s: %s", what, gdn_last_error());
    cr_expect_eq(run_conv(c), GDN_OK, "conv, %s: %s", what, gdn_last_error());
}

Test(lines, a_line_that_two_sequences_write_is_refused)
{
    expect_refused(&(struct call){ .in = { 0, 1, 2 }, .out = { 5, 6, 5 } }, "sequences 0 and 2 write line 5");
}

Test(lines, a_line_that_one_sequence_reads_and_another_writes_is_refused_in_one_pool)
{
    const struct call c = { .in = { 0, 1, 2 }, .out = { 2, 4, 5 } };
    expect_refused(&c, "sequence 2 reads line 2, which sequence 0 writes");
    cr_expect_eq(run_prefill(&c, false), GDN_OK, "pools of their own: %s", gdn_last_error());
    expect_refused(&(struct call){ .in = { 3, 1, 3 }, .out = { 3, 4, 5 } }, "sequence 2 reads line 3, which sequence 0 writes");
}

Test(lines, a_checkpoint_has_a_line_of_its_own)
{
    struct call c = {
        .in = { 0, 1, 2 }, .out = { 0, 1, 2 }, .checkpoints = { { 0, 64, 5 }, { 2, 64, 5 } }, .num_checkpoints = 2
    };
    expect_refused(&c, "checkpoints[1] goes to line 5, which row 0 has");
    c.checkpoints[1][2] = 0;
    expect_refused(&c, "checkpoints[1] goes to line 0, which sequence 0 has");
    c.checkpoints[1][2] = 2;
    expect_refused(&c, "checkpoints[1] goes to line 2, which sequence 2 has");
}

Test(lines, what_the_header_allows_is_taken)
{
    expect_taken(&(struct call){ .in = { 0, 1, 2 }, .out = { 0, 1, 2 } }, "in place");
    expect_taken(&(struct call){ .in = { 3, 3, 3 }, .out = { 0, 1, 2 } }, "forks");
    expect_taken(&(struct call){ .in = { 3, -1, -1 }, .out = { 0, 0, 0 } }, "inert rows");
    expect_taken(&(struct call){ .in = { 0, 1, 2 }, .out = { 0, 1, 2 }, .checkpoints = { { 0, 64, 5 }, { 1, 64, 5 } },
                                 .num_checkpoints = 2 },
                 "a row beyond its sequence's end");
    const struct call padded = { .in = { 0, 7, 2 }, .out = { 0, 7, 7 } };
    cr_expect_eq(run_conv(&padded), GDN_OK, "an empty sequence leaves its line alone: %s", gdn_last_error());
}

/* Against all pairs, by the rules one by one. */
static bool is_race(const struct gdni_line_use *a, const struct gdni_line_use *b)
{
    if (a->line != b->line) return false;
    if (a->access == GDNI_LINE_CHECKPOINT || b->access == GDNI_LINE_CHECKPOINT) return true;
    if (a->access == GDNI_LINE_WRITTEN && b->access == GDNI_LINE_WRITTEN) return true;
    return (a->access == GDNI_LINE_WRITTEN || b->access == GDNI_LINE_WRITTEN) && a->by != b->by;
}

/* A call drawn at random, with room for what it is said to use and no more. */
static void add_drawn(struct gdni_lines *lines, const void *call)
{
    const struct gdni_lines *drawn = call;
    for (size_t i = 0; i < drawn->count; ++i)
        gdni_lines_add(lines, drawn->uses[i].access, drawn->uses[i].line, drawn->uses[i].by);
}

Test(lines, are_refused_exactly_where_two_of_them_race)
{
    enum { ROUNDS = 20000, MOST = 8, SEED = 20261128 };
    int races = 0;
    srand(SEED);
    for (int round = 0; round < ROUNDS; ++round) {
        struct gdni_line_use uses[MOST + 2];
        struct gdni_lines drawn = { uses, 0 };
        const int sequences = rand() % (MOST / 2 + 1), rows = rand() % 3, pool = 1 + rand() % 12;
        for (int n = 0; n < sequences; ++n) {
            const int from = rand() % pool;
            if (rand() % 4) gdni_lines_add(&drawn, GDNI_LINE_READ, from, n);
            if (rand() % 4) gdni_lines_add(&drawn, GDNI_LINE_WRITTEN, rand() % 2 ? from : rand() % pool, n);
        }
        for (int i = 0; i < rows; ++i) gdni_lines_add(&drawn, GDNI_LINE_CHECKPOINT, rand() % pool, i);
        bool race = false;
        for (size_t i = 0; i < drawn.count; ++i)
            for (size_t j = 0; j < i; ++j) race = race || is_race(&uses[i], &uses[j]);
        cr_assert_eq(gdni_lines_check(add_drawn, &drawn, (int64_t)drawn.count, 1), race ? GDN_E_INVALID : GDN_OK,
                     "seed %d, round %d", SEED, round);
        races += race;
    }
    cr_expect(races > ROUNDS / 10 && races < ROUNDS - ROUNDS / 10, "%d of %d", races, ROUNDS);
}

/* A line's place in elements stays below 2^47, and so do what is made of it. */
Test(lines, no_line_is_beyond_what_an_address_space_has)
{
    const int64_t stride = 3 << 14, most = ((int64_t)1 << 47) / stride;
    cr_expect_eq(gdni_line_check("slot_in", 2, -1, stride), GDN_OK);
    cr_expect_eq(gdni_line_check("slot_in", 2, most - 1, stride), GDN_OK);
    const int64_t wrong[] = { -2, INT64_MIN, most, INT64_MAX / stride, INT64_MAX / stride + 1, INT64_MAX };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        char words[64];
        snprintf(words, sizeof words, "slot_in[2] is %lld", (long long)wrong[i]);
        cr_expect_eq(gdni_line_check("slot_in", 2, wrong[i], stride), GDN_E_INVALID);
        cr_expect(strstr(gdn_last_error(), words), "%s", gdn_last_error());
    }
}

Test(lines, out_of_memory_is_a_status)
{
    const struct call c = { .in = { 0, 1, 2 }, .out = { 0, 1, 2 } };
    gdni_mem_fail_after(0);
    cr_expect_eq(run_conv(&c), GDN_E_NOMEM);
    gdni_mem_fail_after(-1);
    cr_expect(strstr(gdn_last_error(), "lines of states"), "%s", gdn_last_error());
}
