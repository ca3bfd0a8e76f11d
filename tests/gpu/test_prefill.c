/*
 * test_prefill.c - GDN prefill on the device against the fp64 recurrence: every input family, shape, dtype, head dim and state
 * layout, within the committed error bounds; and long sequences whose middle, ends or bursts may be cuts of partitions, within
 * what the emulator reaches on them.
 *
 * Each case runs twice or more: once with a final state of its own, then in place; the bits must be the same. Outputs start
 * as NaN, rows outside every sequence must keep it, and nothing beside a buffer may be written.
 *
 *     test_prefill --filter "no_decay bf16" --out results        test_prefill --filter tails --repeat 1000
 *     test_prefill --filter halves --params partition_chunks=4   test_prefill --filter halves --batch-invariant
 *     test_prefill --filter edges --qk-l2norm                    q and k of any length, normalised in the kernel
 */
#include <string.h>

#include "bounds.h"
#include "gdn_cases.h"
#include "gpu_prefill.h"

struct job {
    const struct gdn_family *family;
    const struct gdn_shape *shape;
    gdn_dtype dtype;
    int head_dim;
    gdn_state_layout layout;
};

static struct gpu_options options;
static struct bounds bounds;
static gdn_ctx *ctx;
static FILE *results;

/* ---- what is selected -------------------------------------------------------------------------------------------------- */

/* Few of each kind, and small: a sanitizer makes a kernel a hundred times slower. */
static bool is_small(const struct job *job)
{
    static const char *const families[] = { "random", "g_minus_inf", "plain_delta", "identical_keys_beta_2", "v_2^8" };
    static const char *const shapes[] = { "tiny", "edges", "ratio3", "padded", "uniform" };
    bool family = false, shape = false;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; ++i)
        family |= !strcmp(job->family->name, families[i]);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i)
        shape |= !strcmp(job->shape->name, shapes[i]);
    return family && shape && (job->head_dim == 128) == (job->layout == GDN_STATE_KV);
}

static void name_job(char *out, size_t size, const struct job *j)
{
    snprintf(out, size, "prefill %s %s d=%d %s %s seed=%llu", j->family->name, j->dtype == GDN_BF16 ? "bf16" : "fp16",
             j->head_dim, j->shape->name, j->layout == GDN_STATE_KV ? "kv" : "vk", (unsigned long long)options.seed);
}

/* Whether the case is to run. */
static bool selected(const struct job *j)
{
    char name[160];
    if (!gdn_family_has(j->family, j->dtype) || (options.small && !is_small(j))) return false;
    name_job(name, sizeof name, j);
    return gpu_selected(&options, name);
}

/* i-th point of family x shape x dtype x head dim x layout. */
static struct job job_at(int i)
{
    static const gdn_state_layout layouts[] = { GDN_STATE_KV, GDN_STATE_VK };
    static const gdn_dtype dtypes[] = { GDN_BF16, GDN_F16 };
    static const int dims[] = { 128, 64 };
    const int outer = i / 8;
    return (struct job){ &gdn_families[outer / gdn_num_shapes], &gdn_shapes[outer % gdn_num_shapes], dtypes[i / 4 % 2],
                         dims[i / 2 % 2], layouts[i % 2] };
}

/* Of families that a wrong guess at a cut, or a wrong state after it, would show in. */
static const char *const cut_families[] = { "v_drop_at_cut",  "v_zero_at_cut", "pause_at_cut",     "one_head_decays",
                                            "long_keys_slow", "repaired_4",    "repaired_16",      "random",
                                            "no_decay",       "mixed_heads",   "v_zero_after_cut", "h0_1e6",
                                            "negative_beta",  "positive_g",    "forgets_slowly",   "forgets_v_drops",
                                            "fla_no_decay",   "fla_fast" };
enum { NUM_CUT_FAMILIES = sizeof cut_families / sizeof cut_families[0] };

/* i-th point of these x long shape x dtype. The longest first: they take the host longest. */
static struct job cut_job_at(int i)
{
    static const gdn_dtype dtypes[] = { GDN_BF16, GDN_F16 };
    const int outer = i / 2;
    return (struct job){ gdn_family_find(cut_families[outer % NUM_CUT_FAMILIES]),
                         &gdn_cut_shapes[gdn_num_cut_shapes - 1 - outer / NUM_CUT_FAMILIES], dtypes[i % 2], 128,
                         GDN_STATE_KV };
}

static int select_jobs(struct job *jobs)
{
    const int long_ones = NUM_CUT_FAMILIES * gdn_num_cut_shapes * 2;
    const int all = long_ones + gdn_num_families * gdn_num_shapes * 8;
    int count = 0;
    for (int i = 0; i < all; ++i) {
        const struct job j = i < long_ones ? cut_job_at(i) : job_at(i - long_ones);
        if (!selected(&j)) continue;
        if (jobs) jobs[count] = j;
        ++count;
    }
    return count;
}

/* ---- one case ---------------------------------------------------------------------------------------------------------- */

static bool find_bound(struct bound_row *out, const struct job *j)
{
    bool in_table = !gdn_cases_qk_l2norm;
    for (int i = 0; i < gdn_num_cut_shapes; ++i)
        in_table &= j->shape != &gdn_cut_shapes[i];
    if (!in_table) return bounds_measure(out, j->family, j->shape, j->dtype, j->head_dim);
    const struct bound_row *row = bounds_find(&bounds, j->family->name, j->dtype, j->head_dim, j->shape->name);
    if (row) *out = *row;
    return row || bounds_of_family(out, &bounds, j->family->name, j->dtype, j->head_dim);
}

/* Rows from used_tokens on belong to no sequence. */
static bool padding_untouched(const struct gdn_case *c, const struct gpu_prefill_result *r)
{
    const int64_t width = c->heads * c->desc.head_dim_v;
    for (int64_t i = c->used_tokens * width; i < c->tokens * width; ++i)
        if (r->o[i] != 0xFFFF) return false;
    return true;
}

/* Runs until the bits differ from the first run's: in place, without a final state, and again as often as was asked. */
static const char *run_again(const struct gdn_case *c, const gdn_plan *plan, const struct gpu_prefill_result *first)
{
    struct gpu_prefill_result r;
    const char *trouble = "";
    for (int i = 0; i < 1 + options.repeat && !*trouble; ++i) {
        gpu_prefill(&r, plan, &c->desc, &c->args, i == 0 ? GPU_PREFILL_IN_PLACE : 0);
        if (!gpu_prefill_same(first, &r)) trouble = i == 0 ? "in place gives other bits" : "a repeat gives other bits";
        gpu_prefill_free(&r);
    }
    gpu_prefill(&r, plan, &c->desc, &c->args, GPU_PREFILL_NO_FINAL);
    if (memcmp(r.o, first->o, first->o_bytes) != 0) trouble = "o without a final state has other bits";
    for (size_t i = 0; i < r.state_bytes / 4; ++i) {
        uint32_t bits;
        memcpy(&bits, &r.state[i], sizeof bits);
        if (bits != UINT32_MAX) trouble = "a final state that was not given was written";
    }
    gpu_prefill_free(&r);
    return trouble;
}

static void write_result(const struct job *j, const struct gdn_errors *e, const struct bound_row *b, bool passed)
{
    if (!results) return;
    fprintf(results, "%s\t%s\t%d\t%s\t%s\t%llu\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%s\n",
            j->family->name, j->dtype == GDN_BF16 ? "bf16" : "fp16", j->head_dim, j->shape->name,
            j->layout == GDN_STATE_KV ? "kv" : "vk", (unsigned long long)options.seed, e->o, BOUNDS_FACTOR * b->o,
            e->o_worst, BOUNDS_FACTOR * b->o_worst, e->state, BOUNDS_FACTOR * b->state, e->state_worst,
            BOUNDS_FACTOR * b->state_worst, e->o_max_abs, e->state_max_abs, passed ? "pass" : "fail");
}

/*
 * What is repaired is right too, but slow: guesses hold where gates decay as trained ones do, and where every one is wrong at
 * 1024 tokens, in partitions of 16 chunks, that is found. Known of plans all of whose kernels cut, as batch-invariant ones do,
 * and of calls that --params has cut evenly.
 */
static const char *judge_guesses(const struct gdn_case *c, const gdn_plan *plan, const struct gpu_prefill_result *r)
{
    char kernel[64];
    static const char *const hold[] = { "random", "random_no_h0", "flashqla", "tileops", "flashinfer", "fla_fast", "fla_slow" };
    bool holds = false, has_cut = false;
    const bool invariant = gpu_plan_flags & GDN_PLAN_BATCH_INVARIANT;
    if (!invariant && r->repaired_pairs < 0) return "";
    gpu_plan_kernel(plan, kernel, sizeof kernel);
    if (strcmp(kernel, "gdn_prefill_hopper") != 0) return "";
    if (r->repaired_pairs < 0) return gpu_no_workspace ? "" : "the plan does not say that its kernels cut";
    for (size_t i = 0; i < sizeof hold / sizeof hold[0]; ++i)
        holds |= strcmp(c->family->name, hold[i]) == 0;
    if (holds && r->repaired_pairs > 0) return "guesses were found wrong that should hold";
    for (int i = 0; i < c->shape->num_seqs; ++i)
        has_cut |= c->shape->lens[i] > 1024;
    if (invariant && strcmp(c->family->name, "repaired_16") == 0 && has_cut && c->heads <= 8 && r->repaired_pairs == 0)
        return "no guess was found wrong, where all are";
    return "";
}

static const char *judge(const struct gdn_case *c, const gdn_plan *plan, const struct gpu_prefill_result *r,
                         const struct bound_row *bound, const struct gdn_errors *errors)
{
    if (*r->trouble) return r->trouble;
    if (!padding_untouched(c, r)) return "a row outside every sequence was written";
    if (!bounds_check(bound, errors)) return "beyond its bound";
    const char *guesses = judge_guesses(c, plan, r);
    if (*guesses) return guesses;
    return run_again(c, plan, r);
}

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    char name[160], detail[384];
    struct gdn_case c;
    struct gdn_errors e;
    struct bound_row bound;
    struct gpu_prefill_result r;
    name_job(name, sizeof name, j);
    gpu_running(name);
    if (!find_bound(&bound, j)) {
        gpu_report(false, name, "the bounds' table has no row of this family: run make_bounds");
        return;
    }
    gdn_case_make(&c, j->family, j->shape, j->dtype, j->head_dim, j->layout, options.seed);
    GDN(gdn_case_oracle(&c));
    gdn_plan *plan = gpu_prefill_plan(ctx, options.device, &c.desc);
    gpu_prefill(&r, plan, &c.desc, &c.args, 0);
    gdn_case_errors(&e, &c, (int32_t)j->dtype, r.o, r.state);
    const char *trouble = judge(&c, plan, &r, &bound, &e);
    snprintf(detail, sizeof detail,
             "o %.1e <= %.1e (worst %.1e <= %.1e, seq %d head %d)  state %.1e <= %.1e (worst %.1e <= %.1e)%s%s", e.o,
             BOUNDS_FACTOR * bound.o, e.o_worst, BOUNDS_FACTOR * bound.o_worst, e.o_seq, e.o_head, e.state,
             BOUNDS_FACTOR * bound.state, e.state_worst, BOUNDS_FACTOR * bound.state_worst, *trouble ? "  " : "",
             trouble);
    gpu_report(!*trouble, name, detail);
    write_result(j, &e, &bound, !*trouble);
    gpu_prefill_free(&r);
    gdn_plan_destroy(plan);
    gdn_case_free(&c);
}

int main(int argc, char **argv)
{
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    const int count = select_jobs(NULL);
    struct job *jobs = gpu_malloc((size_t)count * sizeof *jobs);
    select_jobs(jobs);
    for (int i = 0; options.list && i < count; ++i) {
        char name[160];
        name_job(name, sizeof name, &jobs[i]);
        puts(name);
    }
    if (options.list) return 0;
    gpu_require_device(&options);
    if (!bounds_load(&bounds, options.bounds)) return 1;
    ctx = gpu_context();
    results =
        gpu_results_open(&options, "prefill.tsv",
                         "family\tdtype\thead_dim\tshape\tlayout\tseed\terr_o\tbound_o\terr_o_worst\tbound_o_worst\t"
                         "err_state\tbound_state\terr_state_worst\tbound_state_worst\tmaxabs_o\tmaxabs_state\tresult");
    gpu_parallel(&options, count, run_job, jobs);
    if (results) fclose(results);
    gdn_ctx_destroy(ctx);
    bounds_free(&bounds);
    free(jobs);
    return gpu_summary();
}
