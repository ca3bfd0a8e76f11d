/*
 * test_conv_host.c - templates/conv1d_qkv.cu, the very text that NVRTC compiles, run on the host one thread at a time over the
 * grid that the library would launch: every situation of conv_cases and random batches, in every variant of kernels.cc.
 *
 * Threads run to their end one after another, forwards, backwards and shuffled: a state line that two threads touch would
 * give other bits in one of the orders. What this cannot see: the inline PTX, ptxas, memory ordering, speed.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/half.h"
#include "codegen/arch.h"
#include "codegen/problem.h"
#include "codegen/spec.h"
#include "conv_cases.h"
#include "conv_host.h"
#include "rng.h"

/* ---- launch ---------------------------------------------------------------------------------------------------------- */

enum order { FORWARDS, BACKWARDS, SHUFFLED, NUM_ORDERS };
static const char *const order_names[] = { "forwards", "backwards", "shuffled" };

static uint32_t grid_of(const struct conv_host_row *row, const gdn_conv1d_desc *desc, const gdn_conv1d_args *args)
{
    struct gdni_problem problem;
    struct gdni_spec spec;
    const struct gdni_arch *arch;
    const struct gdni_params params = { .tile_tokens = row->tile_tokens };
    uint32_t grid[3];
    cr_assert_eq(gdni_problem_from_conv1d(&problem, desc), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_check_conv1d_args(&problem, args), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_spec_build(&spec, &problem, arch, &params), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(spec.threads, CONV_HOST_THREADS);
    cr_assert_eq(spec.vector_bytes, row->vector_bytes);
    cr_assert_eq(gdni_spec_grid(&spec, &problem, args->num_tokens, args->num_seqs, 132, grid), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(grid[1], 1);
    cr_assert_eq(grid[2], 1);
    return grid[0];
}

static struct gdni_conv1d_params params_of(const gdn_conv1d_desc *d, const gdn_conv1d_args *a)
{
    return (struct gdni_conv1d_params){
        .x = a->x,
        .weight = a->weight,
        .bias = a->bias,
        .slots = a->slots,
        .has_initial_state = a->has_initial_state,
        .cu_seqlens = a->cu_seqlens,
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .state = a->state,
        .x_stride = a->x_stride,
        .num_tokens = a->num_tokens,
        .uniform_len = a->num_seqs ? a->num_tokens / a->num_seqs : 0,
        .q_channels = d->num_q_heads * d->head_dim_qk,
        .k_channels = d->num_k_heads * d->head_dim_qk,
        .v_channels = d->num_v_heads * d->head_dim_v,
        .num_seqs = (int32_t)a->num_seqs,
    };
}

/* The i-th of `count` threads to run. */
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

static void launch(const struct conv_host_kernel *kernel, const gdn_conv1d_desc *desc, const gdn_conv1d_args *args,
                   enum order order, uint64_t seed)
{
    const uint32_t count = grid_of(&kernel->row, desc, args) * CONV_HOST_THREADS;
    const struct gdni_conv1d_params params = params_of(desc, args);
    uint32_t *items = make_order(order, count, seed);
    for (uint32_t i = 0; i < count; ++i)
        kernel->thread(&params, items[i] / CONV_HOST_THREADS, items[i] % CONV_HOST_THREADS);
    free(items);
}

/* ---- cases ----------------------------------------------------------------------------------------------------------- */

static gdn_devptr address(const void *p)
{
    return (gdn_devptr)(uintptr_t)p;
}

static void run_case(const struct conv_host_kernel *kernel, const struct conv_case *c, struct conv_outputs *out,
                     enum order order)
{
    gdn_conv1d_desc desc = c->desc;
    gdn_conv1d_args args = c->args;
    desc.x_alignment = kernel->row.vector_bytes; /* the case may keep more */
    conv_outputs_make(out, c);
    args.q = desc.num_q_heads ? address(out->q) : 0;
    args.k = desc.num_k_heads ? address(out->k) : 0;
    args.v = desc.num_v_heads ? address(out->v) : 0;
    args.state = address(out->state);
    launch(kernel, &desc, &args, order, c->seed);
}

static bool same_bits(const struct conv_case *c, const struct conv_outputs *a, const struct conv_outputs *b)
{
    const size_t size = sizeof(uint16_t);
    return memcmp(a->q, b->q, (size_t)c->q_count * size) == 0 && memcmp(a->k, b->k, (size_t)c->k_count * size) == 0 &&
           memcmp(a->v, b->v, (size_t)c->v_count * size) == 0 &&
           (!c->state || memcmp(a->state, b->state, (size_t)c->state_count * size) == 0);
}

static void check_case(const struct conv_host_kernel *kernel, const struct conv_spec *spec, uint64_t seed)
{
    const struct conv_host_row *row = &kernel->row;
    struct conv_case c;
    struct conv_outputs first, other;
    struct conv_report report;
    conv_case_make(&c, spec, row->io_type, row->width, row->state_layout, row->flags, seed);
    conv_host_take_misaligned();
    run_case(kernel, &c, &first, FORWARDS);
    cr_assert(conv_case_check(&report, &c, &first), "%s, pieces of %d bytes, tile %d: %s", c.name, row->vector_bytes,
              row->tile_tokens, report.first);
    for (enum order order = BACKWARDS; order < NUM_ORDERS; ++order) {
        run_case(kernel, &c, &other, order);
        cr_assert(same_bits(&c, &first, &other), "%s, tile %d: other bits when threads run %s", c.name, row->tile_tokens,
                  order_names[order]);
        conv_outputs_free(&other);
    }
    cr_assert_eq(conv_host_take_misaligned(), 0, "%s: an access is not aligned to %d bytes", c.name, row->vector_bytes);
    conv_outputs_free(&first);
    conv_case_free(&c);
}

Test(conv_kernel, every_situation_in_every_variant)
{
    for (int k = 0; k < conv_host_num_kernels; ++k)
        for (int s = 0; s < conv_num_specs; ++s)
            if (conv_host_kernels[k].row.vector_bytes <= conv_specs[s].x_alignment)
                check_case(&conv_host_kernels[k], &conv_specs[s], CONV_CASE_SEED);
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
    s->num_q_heads = rng_below(rng, 3);
    s->num_k_heads = rng_below(rng, 3);
    s->num_v_heads = 1 + rng_below(rng, 3);
    s->head_dim_qk = 16 * (1 + rng_below(rng, 3));
    s->head_dim_v = 16 * (1 + rng_below(rng, 4));
}

static struct conv_spec random_spec(struct rng *rng)
{
    struct conv_spec s = { .name = "random", .x_alignment = 2 << rng_below(rng, 4) };
    const int elements = s.x_alignment / 2;
    random_heads(&s, rng);
    s.extra_columns = elements * rng_below(rng, 5);
    s.x_offset = elements * rng_below(rng, 5);
    s.slots = (enum conv_slots)rng_below(rng, CONV_SLOTS_ALL_PADS);
    s.initial = (enum conv_initial)rng_below(rng, CONV_INITIAL_NO_STATE + 1);
    s.padding = rng_below(rng, 3) ? 0 : rng_below(rng, 70);
    s.num_seqs = 1 + rng_below(rng, CONV_SPEC_MAX_SEQS);
    for (int n = 0; n < s.num_seqs; ++n) s.lens[n] = random_length(rng);
    return s;
}

Test(conv_kernel, random_batches)
{
    enum { BATCHES = 600 };
    struct rng rng;
    rng_seed(&rng, CONV_CASE_SEED);
    for (int i = 0; i < BATCHES; ++i) {
        const struct conv_spec spec = random_spec(&rng);
        const struct conv_host_kernel *kernel;
        do {
            kernel = &conv_host_kernels[rng_below(&rng, conv_host_num_kernels)];
        } while (kernel->row.vector_bytes > spec.x_alignment);
        check_case(kernel, &spec, CONV_CASE_SEED + (uint64_t)i);
    }
}

/* ---- one head, by hand ----------------------------------------------------------------------------------------------- */

enum { DIM = 16, MAX_WIDTH = 4 };

static const struct conv_host_kernel *find_kernel(gdn_dtype io_type, uint32_t flags)
{
    for (int k = 0; k < conv_host_num_kernels; ++k) {
        const struct conv_host_row *row = &conv_host_kernels[k].row;
        if (row->io_type == io_type && row->flags == flags && row->width == MAX_WIDTH) return &conv_host_kernels[k];
    }
    cr_assert_fail("kernels.cc has no row of width %d with flags %u", MAX_WIDTH, flags);
    return NULL;
}

/* One q head of 16 channels; the newest tap is `tap`, the others are 0. */
struct tiny {
    const struct conv_host_kernel *kernel;
    gdn_conv1d_desc desc;
    gdn_conv1d_args args;
    _Alignas(16) uint16_t weight[DIM * MAX_WIDTH];
    int32_t cu[3];
};

static void make_tiny(struct tiny *t, gdn_dtype io_type, uint32_t flags, double tap)
{
    *t = (struct tiny){ .kernel = find_kernel(io_type, flags),
                        .desc = GDN_CONV1D_DESC_INIT,
                        .args = GDN_CONV1D_ARGS_INIT };
    t->desc.io_type = io_type;
    t->desc.state_layout = t->kernel->row.state_layout;
    t->desc.num_q_heads = 1;
    t->desc.head_dim_qk = t->desc.head_dim_v = DIM;
    t->desc.flags = flags;
    t->desc.x_alignment = t->kernel->row.vector_bytes;
    t->desc.max_tokens = t->desc.max_seqs = INT32_MAX;
    for (int c = 0; c < DIM; ++c) gdni_store((int32_t)io_type, t->weight, c * MAX_WIDTH + MAX_WIDTH - 1, tap);
    t->args.weight = address(t->weight);
    t->args.cu_seqlens = address(t->cu);
    t->args.num_seqs = 1;
    t->args.x_stride = DIM;
}

static gdn_status grid_status(int32_t tile_tokens, int32_t heads, int64_t num_tokens, uint32_t grid[3])
{
    struct gdni_problem problem;
    struct gdni_spec spec;
    const struct gdni_arch *arch;
    const struct gdni_params params = { .tile_tokens = tile_tokens };
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    desc.num_v_heads = heads;
    desc.head_dim_qk = desc.head_dim_v = 128;
    desc.max_tokens = INT32_MAX;
    desc.max_seqs = 1;
    cr_assert_eq(gdni_problem_from_conv1d(&problem, &desc), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_arch_find("sm_80", &arch), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_spec_build(&spec, &problem, arch, &params), GDN_OK, "%s", gdni_error_text());
    return gdni_spec_grid(&spec, &problem, num_tokens, 1, 132, grid);
}

Test(conv_kernel, grid_has_a_thread_per_item_and_stays_in_32_bits)
{
    uint32_t grid[3];
    cr_expect_eq(grid_status(16, 3, 33, grid), GDN_OK);
    cr_expect_eq(grid[0], 2, "3 tiles of 48 items in CTAs of 128, not %u", grid[0]);
    cr_expect_eq(grid_status(64, 48, 4096, grid), GDN_OK);
    cr_expect_eq(grid[0], 64 * 6, "64 tiles of 768 items in CTAs of 128, not %u", grid[0]);
    cr_expect_eq(grid_status(4, 1, (int64_t)1 << 30, grid), GDN_E_INVALID, "2^28 tiles of 16 items");
    cr_expect(strstr(gdni_error_text(), "num_tokens is 1073741824"), "%s", gdni_error_text());
    cr_expect_eq(grid_status(8, 1, (int64_t)1 << 30, grid), GDN_OK, "2^27 tiles of 16 items");
}

static double silu_of(gdn_dtype io_type, double tap, double x)
{
    struct tiny t;
    _Alignas(16) uint16_t in[DIM], out[DIM];
    make_tiny(&t, io_type, GDN_CONV_SILU, tap);
    for (int c = 0; c < DIM; ++c) gdni_store((int32_t)io_type, in, c, x);
    t.args.x = address(in);
    t.args.q = address(out);
    t.args.num_tokens = t.cu[1] = 1;
    launch(t.kernel, &t.desc, &t.args, FORWARDS, 0);
    return gdni_load((int32_t)io_type, out, DIM - 1);
}

Test(conv_kernel, silu_has_its_limits_and_no_nan_of_its_own)
{
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    for (int i = 0; i < 2; ++i) {
        cr_expect_eq(silu_of(types[i], 1, 8192), 8192);
        cr_expect_eq(silu_of(types[i], 1, -8192), 0);
        cr_expect_eq(silu_of(types[i], 1, (double)INFINITY), (double)INFINITY);
        cr_expect_eq(silu_of(types[i], 1, (double)-INFINITY), 0);
        cr_expect(isnan(silu_of(types[i], 1, (double)NAN)));
    }
    cr_expect_eq(silu_of(GDN_BF16, 1, 0x1p127), 0x1p127);
    cr_expect_eq(silu_of(GDN_BF16, 1, -0x1p127), 0);
    cr_expect_eq(silu_of(GDN_BF16, 4, 0x1p127), (double)INFINITY, "a sum past float32 from finite inputs");
    cr_expect_eq(silu_of(GDN_BF16, 4, -0x1p127), 0, "a sum past float32 from finite inputs");
}

/* Address space that costs memory only where it is touched. */
static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) cr_skip_test("no %zu bytes of address space", bytes);
    return p;
}

Test(conv_kernel, rows_of_x_past_2_to_the_32_elements_are_found)
{
    enum { TOKENS = 3 };
    struct tiny t;
    _Alignas(16) uint16_t out[TOKENS * DIM];
    make_tiny(&t, GDN_BF16, 0, 1);
    t.args.x_stride = INT32_MAX - INT32_MAX % DIM;
    uint16_t *x = reserve(TOKENS * (size_t)t.args.x_stride * sizeof *x);
    for (int64_t row = 0; row < TOKENS; ++row)
        for (int c = 0; c < DIM; ++c) gdni_store(GDN_BF16, x, row * t.args.x_stride + c, (double)(1 + row * DIM + c));
    t.args.x = address(x);
    t.args.q = address(out);
    t.args.num_tokens = t.cu[1] = TOKENS;
    launch(t.kernel, &t.desc, &t.args, FORWARDS, 0);
    for (int i = 0; i < TOKENS * DIM; ++i) cr_expect_eq(gdni_load(GDN_BF16, out, i), (double)(1 + i), "element %d", i);
    munmap(x, TOKENS * (size_t)t.args.x_stride * sizeof *x);
}

/* A padding sequence of 2^28 tokens, then three tokens whose rows begin past element 2^32. Only the last tiles are run. */
Test(conv_kernel, rows_of_the_output_past_2_to_the_32_elements_are_found)
{
    enum { BEFORE = 1 << 28, TOKENS = 3, TOTAL = BEFORE + TOKENS };
    static const int32_t slots[2] = { -1, 0 };
    const size_t bytes = (size_t)TOTAL * DIM * sizeof(uint16_t);
    struct tiny t;
    make_tiny(&t, GDN_BF16, 0, 1);
    uint16_t *x = reserve(bytes), *out = reserve(bytes);
    for (int i = 0; i < TOKENS * DIM; ++i) gdni_store(GDN_BF16, x, (int64_t)BEFORE * DIM + i, 1 + i);
    t.cu[1] = BEFORE;
    t.cu[2] = TOTAL;
    t.args.x = address(x);
    t.args.q = address(out);
    t.args.slots = address(slots);
    t.args.num_tokens = TOTAL;
    t.args.num_seqs = 2;
    const uint32_t blocks = grid_of(&t.kernel->row, &t.desc, &t.args);
    const struct gdni_conv1d_params params = params_of(&t.desc, &t.args);
    for (uint32_t thread = 0; thread < 2 * CONV_HOST_THREADS; ++thread)
        t.kernel->thread(&params, blocks - 2 + thread / CONV_HOST_THREADS, thread % CONV_HOST_THREADS);
    for (int i = 0; i < TOKENS * DIM; ++i)
        cr_expect_eq(gdni_load(GDN_BF16, out, (int64_t)BEFORE * DIM + i), (double)(1 + i), "element %d", i);
    cr_expect_eq(out[(int64_t)BEFORE * DIM - 1], 0, "a row of the padding sequence was written");
    munmap(x, bytes);
    munmap(out, bytes);
}
