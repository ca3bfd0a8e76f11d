/*
 * test_chunked.c - prompts in one call and in two calls that carry the states: both are right, and they agree.
 *
 * The first call's final states are the second one's initial states, in place, as an engine does. Cuts fall at, before and
 * after chunk borders, at a sequence's start (an empty first piece) and at its end (an empty second one).
 */
#include <string.h>

#include "base/half.h"
#include "bounds.h"
#include "errors.h"
#include "gdn_cases.h"
#include "gpu_prefill.h"

enum { NUM_SEQS = 6 };

static const struct gdn_shape prompts = { "prompts", 2, 2, 4, NUM_SEQS, { 190, 501, 64, 1, 300, 129 }, 0, false };

static const struct cut {
    const char *name;
    int32_t at[NUM_SEQS]; /* tokens of each sequence in the first call */
} cuts[] = {
    { "borders", { 64, 256, 64, 1, 128, 128 } },
    { "inside", { 61, 250, 33, 0, 1, 65 } },
    { "ends", { 190, 0, 64, 0, 300, 0 } },
    { "last_token", { 189, 500, 63, 0, 299, 128 } },
};

static const char *const families[] = { "random", "no_decay", "fla_no_decay", "beta_to_2", "flashqla", "h0_1e6" };

struct job {
    const char *family;
    const struct cut *cut;
    gdn_dtype dtype;
    int head_dim;
    gdn_state_layout layout;
};

enum { NUM_CUTS = sizeof cuts / sizeof cuts[0], NUM_FAMILIES = sizeof families / sizeof families[0] };

static struct gpu_options options;
static struct bounds bounds;
static gdn_ctx *ctx;
static FILE *results;

static struct job job_at(int i)
{
    const int outer = i / 8;
    return (struct job){ families[outer / NUM_CUTS], &cuts[outer % NUM_CUTS], i & 1 ? GDN_F16 : GDN_BF16,
                         i & 2 ? 64 : 128, i & 4 ? GDN_STATE_VK : GDN_STATE_KV };
}

static void name_job(char *out, size_t size, const struct job *j)
{
    snprintf(out, size, "chunked %s %s d=%d %s %s seed=%llu", j->family, j->dtype == GDN_BF16 ? "bf16" : "fp16",
             j->head_dim, j->cut->name, j->layout == GDN_STATE_KV ? "kv" : "vk", (unsigned long long)options.seed);
}

/* ---- pieces of sequences ------------------------------------------------------------------------------------------------ */

/* Tokens of piece 0 (before the cut) or 1 (from it on) of a sequence, as rows of the whole. */
static int32_t piece_begin(const struct gdn_case *c, const struct cut *cut, int piece, int n)
{
    return c->cu[n] + (piece ? cut->at[n] : 0);
}

static int32_t piece_end(const struct gdn_case *c, const struct cut *cut, int piece, int n)
{
    return piece ? c->cu[n + 1] : c->cu[n] + cut->at[n];
}

/* Rows of one piece, one sequence after the other; NULL stays NULL. */
static void *pack(const struct gdn_case *c, const struct cut *cut, int piece, const void *whole, size_t row_bytes)
{
    if (!whole) return NULL;
    char *packed = gpu_malloc((size_t)c->tokens * row_bytes), *to = packed;
    for (int n = 0; n < NUM_SEQS; ++n) {
        const size_t from = (size_t)piece_begin(c, cut, piece, n), end = (size_t)piece_end(c, cut, piece, n);
        memcpy(to, (const char *)whole + from * row_bytes, (end - from) * row_bytes);
        to += (end - from) * row_bytes;
    }
    return packed;
}

static void unpack(const struct gdn_case *c, const struct cut *cut, int piece, const void *packed, void *whole,
                   size_t row_bytes)
{
    const char *from = packed;
    for (int n = 0; n < NUM_SEQS; ++n) {
        const size_t begin = (size_t)piece_begin(c, cut, piece, n), end = (size_t)piece_end(c, cut, piece, n);
        memcpy((char *)whole + begin * row_bytes, from, (end - begin) * row_bytes);
        from += (end - begin) * row_bytes;
    }
}

/* Runs one piece from `state` (NULL: zero) in place; its rows of o go to their places in `o`, its states to `state`. */
static void run_piece(const gdn_plan *plan, const struct gdn_case *c, const struct cut *cut, int piece, const float *h0,
                      uint16_t *o, float *state, char *trouble, size_t size)
{
    const gdn_prefill_desc *d = &c->desc;
    const size_t dk = (size_t)d->head_dim_qk * 2, dv = (size_t)d->head_dim_v * 2, heads = (size_t)c->heads;
    void *q = pack(c, cut, piece, c->q, (size_t)d->num_q_heads * dk),
         *k = pack(c, cut, piece, c->k, (size_t)d->num_k_heads * dk);
    void *v = pack(c, cut, piece, c->v, (size_t)d->num_v_heads * dv);
    void *g = pack(c, cut, piece, c->g, heads * 4), *beta = pack(c, cut, piece, c->beta, heads * 4);
    int32_t cu_seqlens[NUM_SEQS + 1] = { 0 };
    gdn_prefill_args args = c->args;
    struct gpu_prefill_result r;
    for (int n = 0; n < NUM_SEQS; ++n)
        cu_seqlens[n + 1] = cu_seqlens[n] + piece_end(c, cut, piece, n) - piece_begin(c, cut, piece, n);
    args.q = (uintptr_t)q, args.k = (uintptr_t)k, args.v = (uintptr_t)v, args.g = (uintptr_t)g,
    args.beta = (uintptr_t)beta;
    args.cu_seqlens = (uintptr_t)cu_seqlens, args.initial_state = (uintptr_t)h0;
    args.num_tokens = cu_seqlens[NUM_SEQS];
    gpu_prefill(&r, plan, d, &args, GPU_PREFILL_IN_PLACE);
    unpack(c, cut, piece, r.o, o, heads * dv);
    memcpy(state, r.state, r.state_bytes);
    if (*r.trouble) snprintf(trouble, size, "%s", r.trouble);
    gpu_prefill_free(&r);
    free(q), free(k), free(v), free(g), free(beta);
}

/* ---- one case ----------------------------------------------------------------------------------------------------------- */

static double difference_o(const struct gdn_case *c, const uint16_t *a, const uint16_t *b)
{
    struct errors e = { 0 };
    for (int64_t i = 0; i < c->o_count; ++i)
        errors_add(&e, gdni_load((int32_t)c->desc.io_type, a, i), gdni_load((int32_t)c->desc.io_type, b, i));
    return errors_relative(&e);
}

static double difference_state(const struct gdn_case *c, const float *a, const float *b)
{
    struct errors e = { 0 };
    for (int64_t i = 0; i < c->state_count; ++i)
        errors_add(&e, a[i], b[i]);
    return errors_relative(&e);
}

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    char name[160], detail[320], trouble[128] = "";
    struct gdn_case c;
    struct gdn_errors one, two;
    struct bound_row bound;
    struct gpu_prefill_result whole;
    name_job(name, sizeof name, j);
    gpu_running(name);
    if (!bounds_of_family(&bound, &bounds, j->family, j->dtype, j->head_dim)) {
        gpu_report(false, name, "the bounds' table has no row of this family: run make_bounds");
        return;
    }
    gdn_case_make(&c, gdn_family_find(j->family), &prompts, j->dtype, j->head_dim, j->layout, options.seed);
    GDN(gdn_case_oracle(&c));
    gdn_plan *plan = gpu_prefill_plan(ctx, options.device, &c.desc);
    gpu_prefill(&whole, plan, &c.desc, &c.args, 0);
    uint16_t *o = gpu_malloc(whole.o_bytes);
    float *state = gpu_malloc(whole.state_bytes);
    run_piece(plan, &c, j->cut, 0, c.h0, o, state, trouble, sizeof trouble);
    run_piece(plan, &c, j->cut, 1, state, o, state, trouble, sizeof trouble);
    gdn_case_errors(&one, &c, (int32_t)j->dtype, whole.o, whole.state);
    gdn_case_errors(&two, &c, (int32_t)j->dtype, o, state);
    const double apart_o = difference_o(&c, o, whole.o), apart_state = difference_state(&c, state, whole.state);
    const bool agree = apart_o <= BOUNDS_FACTOR * bound.o && apart_state <= BOUNDS_FACTOR * bound.state;
    const bool passed =
        bounds_check(&bound, &one) && bounds_check(&bound, &two) && agree && !*trouble && !*whole.trouble;
    snprintf(detail, sizeof detail,
             "one call o %.1e state %.1e, two calls o %.1e state %.1e, apart o %.1e state %.1e; bound o %.1e "
             "state %.1e  %s%s",
             one.o, one.state, two.o, two.state, apart_o, apart_state, BOUNDS_FACTOR * bound.o,
             BOUNDS_FACTOR * bound.state, trouble, whole.trouble);
    gpu_report(passed, name, detail);
    if (results)
        fprintf(results, "%s\t%s\t%d\t%s\t%s\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%.3e\t%s\n", j->family,
                j->dtype == GDN_BF16 ? "bf16" : "fp16", j->head_dim, j->cut->name,
                j->layout == GDN_STATE_KV ? "kv" : "vk", one.o, two.o, apart_o, BOUNDS_FACTOR * bound.o, one.state,
                two.state, apart_state, BOUNDS_FACTOR * bound.state, passed ? "pass" : "fail");
    gpu_prefill_free(&whole);
    gdn_plan_destroy(plan);
    gdn_case_free(&c);
    free(o), free(state);
}

int main(int argc, char **argv)
{
    struct job jobs[NUM_FAMILIES * NUM_CUTS * 8];
    int count = 0;
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    const int all = options.small ? 8 : NUM_FAMILIES * NUM_CUTS * 8;
    for (int i = 0; i < all; ++i) {
        char name[160];
        jobs[count] = job_at(i);
        name_job(name, sizeof name, &jobs[count]);
        if (!gpu_selected(&options, name)) continue;
        if (options.list) puts(name);
        ++count;
    }
    if (options.list) return 0;
    gpu_require_device(&options);
    if (!bounds_load(&bounds, options.bounds)) return 1;
    ctx = gpu_context();
    results =
        gpu_results_open(&options, "chunked.tsv",
                         "family\tdtype\thead_dim\tcut\tlayout\terr_o_one\terr_o_two\tapart_o\tbound_o\terr_state_one\t"
                         "err_state_two\tapart_state\tbound_state\tresult");
    gpu_parallel(&options, count, run_job, jobs);
    if (results) fclose(results);
    gdn_ctx_destroy(ctx);
    bounds_free(&bounds);
    return gpu_summary();
}
