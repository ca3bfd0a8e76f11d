/*
 * test_conv_host.c - templates/conv1d_qkv.cu, the very text that NVRTC compiles, run on the host one warp at a time over the
 * grid that the library would launch: every situation of conv_cases and random batches, in every variant of conv_variants.h.
 *
 * Warps run to their end one after another, forwards, backwards (with gates as a long call has them) and shuffled: a state
 * line that two of them touch would give other bits in one of the orders. What this cannot see: the inline PTX, ptxas, memory
 * ordering, speed.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/half.h"
#include "brief.h"
#include "codegen/arch.h"
#include "codegen/check.h"
#include "codegen/conv_launch.h"
#include "conv_cases.h"
#include "conv_host.h"
#include "rng.h"

/* ---- launch ---------------------------------------------------------------------------------------------------------- */

enum order { FORWARDS, BACKWARDS, SHUFFLED, NUM_ORDERS };
static const char *const order_names[] = { "forwards", "backwards", "shuffled" };

struct launch {
    const struct conv_host_kernel *kernel;
    struct gdni_conv1d_params params;
    uint32_t blocks;
};

static struct gdni_problem problem_of(const gdn_conv1d_desc *desc)
{
    struct gdni_problem problem;
    cr_assert_eq(gdni_problem_from_conv1d(&problem, desc), GDN_OK, "%s", gdni_error_text());
    return problem;
}

static struct gdni_spec spec_of(const struct gdni_problem *problem, int tile_tokens)
{
    struct gdni_spec spec;
    const struct gdni_arch *arch;
    const struct gdni_params params = { .tile_tokens = tile_tokens, .cta_threads = CONV_HOST_THREADS };
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_spec_build(&spec, problem, arch, &params), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(spec.threads, CONV_HOST_THREADS);
    return spec;
}

static struct launch make_launch(const struct conv_host_kernel *kernel, int tile_tokens, const gdn_conv1d_desc *desc,
                                 const gdn_conv1d_args *args)
{
    const struct gdni_problem problem = problem_of(desc);
    const struct gdni_spec spec = spec_of(&problem, tile_tokens);
    struct launch l = { .kernel = kernel };
    uint32_t grid[3];
    cr_assert_eq(gdni_check_conv1d_args(&problem, args), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_conv1d_launch(&l.params, grid, &spec, &problem, args, 1), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(grid[1] * grid[2], 1);
    l.blocks = grid[0];
    return l;
}

/* The i-th of `count` warps to run. */
static uint32_t *make_order(enum order order, uint32_t count, uint64_t seed)
{
    uint32_t *items = malloc((count + 1) * sizeof *items);
    cr_assert_not_null(items);
    for (uint32_t i = 0; i < count; ++i) items[i] = order == BACKWARDS ? count - 1 - i : i;
    struct rng rng;
    rng_seed(&rng, seed);
    for (uint32_t i = count; order == SHUFFLED && i > 1; --i) {
        const uint32_t j = (uint32_t)rng_below(&rng, (int)i), kept = items[i - 1];
        items[i - 1] = items[j];
        items[j] = kept;
    }
    return items;
}

/* As in a long call: 16 tokens of each lane of a gate warp, instead of a tile's. */
static void lengthen_gates(struct launch *l)
{
    struct gdni_conv1d_params *p = &l->params;
    if (p->gate_step == 0) return;
    l->blocks -= (uint32_t)p->gate_ctas;
    p->gate_tokens = 16 * p->gate_step;
    const int64_t lanes = (p->num_tokens + p->gate_tokens - 1) / p->gate_tokens * p->gate_warps * CONV_HOST_WARP;
    p->gate_ctas = (int32_t)((lanes + CONV_HOST_THREADS - 1) / CONV_HOST_THREADS);
    l->blocks += (uint32_t)p->gate_ctas;
}

static void run_launch(const struct launch *l, enum order order, uint64_t seed)
{
    enum { WARPS = CONV_HOST_THREADS / CONV_HOST_WARP };
    const uint32_t count = l->blocks * WARPS;
    uint32_t *items = make_order(order, count, seed);
    for (uint32_t i = 0; i < count; ++i)
        conv_host_run_warp(l->kernel, &l->params, items[i] / WARPS, items[i] % WARPS, order == BACKWARDS);
    free(items);
}

/* ---- cases ----------------------------------------------------------------------------------------------------------- */

static void run_case(const struct conv_host_kernel *kernel, const struct conv_case *c, struct conv_outputs *out,
                     enum order order, bool long_gates)
{
    conv_outputs_make(out, c);
    const gdn_conv1d_args args = conv_args_with(c, out);
    struct launch l = make_launch(kernel, c->variant->tile_tokens, &c->desc, &args);
    if (long_gates) lengthen_gates(&l);
    run_launch(&l, order, c->seed);
}

static int lanes_of(const struct conv_spec *spec, const struct conv_variant *v)
{
    return v->flags & GDN_CONV_L2_NORM ? spec->head_dim_qk / 8 : 0;
}

/* False where the situation has no kernel, or cannot be expressed. */
static bool check_case(int row, const struct conv_spec *spec, uint64_t seed)
{
    const struct conv_variant *v = &conv_variants[row];
    const struct conv_host_kernel *kernel = conv_host_find(row, lanes_of(spec, v));
    struct conv_case c;
    struct conv_outputs first, other;
    struct conv_report report;
    if (!kernel || !conv_case_make(&c, spec, v, seed)) return false;
    conv_host_take_faults();
    run_case(kernel, &c, &first, FORWARDS, false);
    cr_assert(conv_case_check(&report, &c, &first), "%s, tile %d: %s", c.name, v->tile_tokens, report.first);
    for (enum order order = BACKWARDS; order < NUM_ORDERS; ++order) {
        run_case(kernel, &c, &other, order, order == BACKWARDS);
        cr_assert(conv_outputs_equal(&first, &other), "%s, tile %d: other bits when warps run %s", c.name, v->tile_tokens,
                  order_names[order]);
        conv_outputs_free(&other);
    }
    cr_assert_eq(conv_host_take_faults(), 0, "%s: an access is not aligned, or a shuffle not whole", c.name);
    conv_outputs_free(&first);
    conv_case_free(&c);
    return true;
}

Test(conv_kernel, every_situation_in_every_variant)
{
    const int step = brief_step(); /* each situation in other variants than the one before it */
    int count = 0;
    for (int s = 0; s < conv_num_specs; ++s)
        for (int row = s % step; row < CONV_NUM_VARIANTS; row += step) count += check_case(row, &conv_specs[s], CONV_CASE_SEED);
    cr_assert_gt(count, 12 * conv_num_specs / step, "%d cases ran", count);
}

/* ---- random batches -------------------------------------------------------------------------------------------------- */

/* Mostly lengths about WIDTH - 1, and sums of them that land on both sides of tile edges. */
static int32_t random_length(struct rng *rng)
{
    static const int limits[] = { 1, 4, 5, 5, 9, 18, 40, 140 };
    return rng_below(rng, limits[rng_below(rng, sizeof limits / sizeof limits[0])]);
}

static void random_heads(struct conv_spec *s, struct rng *rng)
{
    s->num_q_heads = s->num_k_heads = 1 + rng_below(rng, 2);
    s->num_v_heads = s->num_k_heads * (1 + rng_below(rng, 3));
    s->head_dim_qk = rng_below(rng, 3) ? 32 : 128; /* of which one head each of q and k is a warp */
    s->head_dim_v = 16 * (1 + rng_below(rng, 4));
}

static struct conv_spec random_spec(struct rng *rng)
{
    struct conv_spec s = { .name = "random", .x_alignment = 2 << rng_below(rng, 4) };
    const int elements = s.x_alignment / 2;
    random_heads(&s, rng);
    s.extra_columns = elements * rng_below(rng, 5);
    s.x_offset = elements * rng_below(rng, 5);
    s.slots = (enum conv_slots)rng_below(rng, CONV_SLOTS_MOVED + 1);
    if (s.slots == CONV_SLOTS_ALL_PADS) s.slots = CONV_SLOTS_MOVED;
    s.initial = (enum conv_initial)rng_below(rng, CONV_INITIAL_NO_STATE + 1);
    s.padding = rng_below(rng, 3) ? 0 : rng_below(rng, 70);
    s.out = (enum conv_out)rng_below(rng, CONV_OUT_GAPS + 1);
    s.spread = rng_below(rng, 2);
    s.num_seqs = 1 + rng_below(rng, CONV_SPEC_MAX_SEQS);
    for (int n = 0; n < s.num_seqs; ++n) s.lens[n] = random_length(rng);
    s.values = rng_below(rng, 3) ? CONV_NORMAL : CONV_LARGE;
    return s;
}

Test(conv_kernel, random_batches)
{
    enum { BATCHES = 500 };
    struct rng rng;
    rng_seed(&rng, CONV_CASE_SEED);
    for (int i = 0; i < BATCHES / brief_step();) {
        const struct conv_spec spec = random_spec(&rng);
        i += check_case(rng_below(&rng, CONV_NUM_VARIANTS), &spec, CONV_CASE_SEED + (uint64_t)i);
    }
}

/* ---- one head, by hand ----------------------------------------------------------------------------------------------- */

enum { DIM = 16, MAX_WIDTH = 4, PLAIN = 0 };

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

/* One q head of 16 channels of the plain variant; the newest tap is `tap`, the others are 0. */
struct tiny {
    gdn_conv1d_desc desc;
    gdn_conv1d_args args;
    _Alignas(16) uint16_t weight[DIM * MAX_WIDTH];
    int32_t cu[3];
};

static void make_tiny(struct tiny *t, double tap)
{
    *t = (struct tiny){ .desc = GDN_CONV1D_DESC_INIT, .args = GDN_CONV1D_ARGS_INIT };
    t->desc.num_q_heads = 1;
    t->desc.head_dim_qk = t->desc.head_dim_v = DIM;
    t->desc.max_tokens = t->desc.max_seqs = INT32_MAX;
    for (int c = 0; c < DIM; ++c) gdni_store(GDN_BF16, t->weight, c * MAX_WIDTH + MAX_WIDTH - 1, tap);
    t->args.weight = address(t->weight);
    t->args.cu_seqlens = address(t->cu);
    t->args.num_seqs = 1;
    t->args.x_stride = DIM;
}

static struct launch launch_of(const struct tiny *t)
{
    return make_launch(conv_host_find(PLAIN, 0), conv_variants[PLAIN].tile_tokens, &t->desc, &t->args);
}

static gdn_status grid_status(int32_t tile_tokens, int32_t v_heads, int64_t num_tokens, uint32_t grid[3])
{
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    struct gdni_conv1d_params params;
    desc.num_v_heads = v_heads;
    desc.head_dim_v = 128;
    desc.max_tokens = INT32_MAX;
    desc.max_seqs = 1;
    args.num_tokens = num_tokens;
    args.num_seqs = 1;
    const struct gdni_problem problem = problem_of(&desc);
    const struct gdni_spec spec = spec_of(&problem, tile_tokens);
    return gdni_conv1d_launch(&params, grid, &spec, &problem, &args, 1);
}

Test(conv_kernel, grid_has_a_thread_per_item_and_stays_in_32_bits)
{
    uint32_t grid[3];
    cr_expect_eq(grid_status(16, 3, 33, grid), GDN_OK);
    cr_expect_eq(grid[0], 2, "3 tiles of 48 lanes, padded to 64, in CTAs of 128, not %u", grid[0]);
    cr_expect_eq(grid_status(8, 48, 4096, grid), GDN_OK);
    cr_expect_eq(grid[0], 512 * 6, "512 tiles of 768 lanes in CTAs of 128, not %u", grid[0]);
    cr_expect_eq(grid_status(4, 1, (int64_t)1 << 30, grid), GDN_E_INVALID, "2^28 tiles of 32 lanes");
    cr_expect(strstr(gdni_error_text(), "num_tokens is 1073741824"), "%s", gdni_error_text());
    cr_expect_eq(grid_status(16, 1, (int64_t)1 << 29, grid), GDN_OK, "2^25 tiles of 32 lanes");
    cr_expect_eq(grid_status(16, 1, (int64_t)1 << 30, grid), GDN_E_INVALID, "2^31 items");
}

/* Of channel 15, while channel 14 is `neighbour`. */
static double silu_beside(double tap, double x, double neighbour)
{
    struct tiny t;
    _Alignas(16) uint16_t in[DIM], out[DIM];
    make_tiny(&t, tap);
    for (int c = 0; c < DIM; ++c) gdni_store(GDN_BF16, in, c, x);
    gdni_store(GDN_BF16, in, DIM - 2, neighbour);
    t.args.x = address(in);
    t.args.q = address(out);
    t.args.num_tokens = t.cu[1] = 1;
    const struct launch l = launch_of(&t);
    run_launch(&l, FORWARDS, 0);
    return gdni_load(GDN_BF16, out, DIM - 1);
}

static double silu_of(double tap, double x)
{
    return silu_beside(tap, x, x);
}

Test(conv_kernel, silu_has_its_limits_and_no_nan_of_its_own)
{
    cr_expect_eq(silu_of(1, 8192), 8192);
    cr_expect_eq(silu_of(1, -8192), 0);
    cr_expect_eq(silu_of(1, (double)INFINITY), (double)INFINITY);
    cr_expect_eq(silu_of(1, (double)-INFINITY), 0);
    cr_expect(isnan(silu_of(1, (double)NAN)));
    cr_expect_eq(silu_of(1, 0x1p127), 0x1p127);
    cr_expect_eq(silu_of(1, -0x1p127), 0);
    cr_expect_eq(silu_of(4, 0x1p127), (double)INFINITY, "a sum past float32 from finite inputs");
    cr_expect_eq(silu_of(4, -0x1p127), 0, "a sum past float32 from finite inputs");
}

Test(conv_kernel, a_channels_nan_infinity_or_large_value_stays_its_own)
{
    static const double neighbours[] = { (double)NAN, (double)INFINITY, (double)-INFINITY, -1e30, 1e30, -60, -42 };
    for (size_t i = 0; i < sizeof neighbours / sizeof neighbours[0]; ++i)
        for (int x = -50; x <= 4; x += 9)
            cr_expect_eq(silu_beside(1, x, neighbours[i]), silu_of(1, x), "%d beside %g", x, neighbours[i]);
}

/* A run that has such a value is run in another way: no other bits than those of its four channels may tell. */
Test(conv_kernel, a_large_value_changes_no_bit_of_other_channels_and_tokens)
{
    enum { TOKENS = 1 << 16, EVERY = 8, FOUR = 4, CHANNEL = 5 };
    static _Alignas(16) uint16_t in[TOKENS * DIM], calm[TOKENS * DIM], wild[TOKENS * DIM];
    struct tiny t;
    struct rng rng;
    rng_seed(&rng, CONV_CASE_SEED);
    make_tiny(&t, 1);
    for (int i = 0; i < TOKENS * DIM; ++i) gdni_store(GDN_BF16, in, i, 3 * rng_normal(&rng));
    t.args.x = address(in);
    t.args.num_tokens = t.cu[1] = TOKENS;
    for (int run = 0; run < 2; ++run) {
        for (int token = 3; run == 1 && token < TOKENS; token += EVERY)
            gdni_store(GDN_BF16, in, token * DIM + CHANNEL, -100);
        t.args.q = address(run == 0 ? calm : wild);
        const struct launch l = launch_of(&t);
        run_launch(&l, FORWARDS, 0);
    }
    for (int i = 0; i < TOKENS * DIM; ++i) {
        const bool beside = i / DIM % EVERY == 3 && i % DIM / FOUR == CHANNEL / FOUR;
        cr_assert(beside || calm[i] == wild[i], "token %d, channel %d: %g and %g (seed %d)", i / DIM, i % DIM,
                  gdni_load(GDN_BF16, calm, i), gdni_load(GDN_BF16, wild, i), CONV_CASE_SEED);
    }
}

/* Address space that costs memory only where it is touched. */
static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) cr_skip_test("no %zu bytes of address space", bytes);
    return p;
}

Test(conv_kernel, rows_past_2_to_the_32_elements_are_found)
{
    enum { TOKENS = 3 };
    struct tiny t;
    const int64_t pitch = INT32_MAX - INT32_MAX % DIM;
    const size_t bytes = TOKENS * (size_t)pitch * sizeof(uint16_t);
    make_tiny(&t, 1);
    t.desc.flags = 0;
    t.args.x_stride = t.args.q_strides.token = pitch;
    uint16_t *x = reserve(bytes), *out = reserve(bytes);
    for (int64_t row = 0; row < TOKENS; ++row)
        for (int c = 0; c < DIM; ++c) gdni_store(GDN_BF16, x, row * pitch + c, (double)(50 + row * DIM + c));
    t.args.x = address(x);
    t.args.q = address(out);
    t.args.num_tokens = t.cu[1] = TOKENS;
    t.desc.flags = GDN_CONV_SILU; /* of the kernel; silu(x) is x here */
    const struct launch l = launch_of(&t);
    run_launch(&l, FORWARDS, 0);
    for (int64_t row = 0; row < TOKENS; ++row)
        for (int c = 0; c < DIM; ++c)
            cr_expect_eq(gdni_load(GDN_BF16, out, row * pitch + c), (double)(50 + row * DIM + c), "row %d", (int)row);
    munmap(x, bytes);
    munmap(out, bytes);
}

/* A padding sequence of 2^28 tokens, then three tokens whose rows begin past element 2^32. Only the last tiles are run. */
Test(conv_kernel, packed_rows_past_2_to_the_32_elements_are_found)
{
    enum { BEFORE = 1 << 28, TOKENS = 3, TOTAL = BEFORE + TOKENS, LAST = 2 };
    static const int32_t slots[2] = { -1, 0 };
    const size_t bytes = (size_t)TOTAL * DIM * sizeof(uint16_t);
    struct tiny t;
    make_tiny(&t, 1);
    uint16_t *x = reserve(bytes), *out = reserve(bytes);
    for (int i = 0; i < TOKENS * DIM; ++i) gdni_store(GDN_BF16, x, (int64_t)BEFORE * DIM + i, 50 + i);
    t.cu[1] = BEFORE;
    t.cu[2] = TOTAL;
    t.args.x = address(x);
    t.args.q = address(out);
    t.args.slot_in = address(slots);
    t.args.num_tokens = TOTAL;
    t.args.num_seqs = 2;
    const struct launch l = launch_of(&t);
    for (uint32_t warp = 0; warp < LAST * CONV_HOST_THREADS / CONV_HOST_WARP; ++warp)
        conv_host_run_warp(l.kernel, &l.params, l.blocks - LAST + warp / 4, warp % 4, false);
    for (int i = 0; i < TOKENS * DIM; ++i)
        cr_expect_eq(gdni_load(GDN_BF16, out, (int64_t)BEFORE * DIM + i), (double)(50 + i), "element %d", i);
    cr_expect_eq(out[(int64_t)BEFORE * DIM - 1], 0, "a row of the padding sequence was written");
    munmap(x, bytes);
    munmap(out, bytes);
}

/* Line 2^23 of a pool of lines 1040 elements apart. */
Test(conv_kernel, state_lines_past_2_to_the_32_elements_are_found)
{
    enum { LINE = 1 << 23, PITCH = 1040, HISTORY = MAX_WIDTH - 1 };
    const int32_t slot = LINE;
    const size_t bytes = ((size_t)LINE + 1) * PITCH * sizeof(uint16_t);
    struct tiny t;
    _Alignas(16) uint16_t in[DIM], out[DIM];
    make_tiny(&t, 1);
    uint16_t *state = reserve(bytes), *line = state + (size_t)LINE * PITCH;
    for (int c = 0; c < DIM; ++c) in[c] = (uint16_t)(0x4000 + c);
    for (int i = 0; i < DIM * HISTORY; ++i) line[i] = (uint16_t)(0x3f80 + i);
    t.args.x = address(in);
    t.args.q = address(out);
    t.args.state = address(state);
    t.args.state_slot_stride = PITCH;
    t.args.slot_in = address(&slot);
    t.args.num_tokens = t.cu[1] = 1;
    const struct launch l = launch_of(&t);
    run_launch(&l, FORWARDS, 0);
    for (int c = 0; c < DIM; ++c) {
        cr_expect_eq(line[c * HISTORY], 0x3f80 + c * HISTORY + 1, "channel %d", c);
        cr_expect_eq(line[c * HISTORY + 2], 0x4000 + c, "channel %d", c);
    }
    munmap(state, bytes);
}
