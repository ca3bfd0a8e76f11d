/*
 * test_batch_invariant.c - GDN_PLAN_BATCH_INVARIANT on the device: a sequence has the same bits of o and state in the middle of
 * a batch, first, last and alone, whatever bounds and SM count the plan was made for.
 *
 * A case is a batch of sequences around the partition's length. What each gives there is held against runs of the part of the
 * batch that begins with it, of the part that ends with it, and of it alone (without cu_seqlens), by plans of other bounds.
 *
 *     test_batch_invariant --generic         test_batch_invariant --no-workspace     (sequences whole)
 */
#include <string.h>

#include "gdn_cases.h"
#include "gpu_inputs.h"
#include "gpu_prefill.h"

static struct gpu_options options;
static gdn_ctx *ctx;

/* 8 heads are cut every 1024 tokens, 16 every 2048, 64 every 4096. */
static const struct gdn_shape shapes[] = {
    { "8_heads", 2, 2, 8, 9, { 1500, 1024, 0, 9000, 63, 1025, 4096, 1, 2500 }, 0, false },
    { "16_heads", 4, 4, 16, 6, { 300, 4700, 2048, 64, 2049, 6200 }, 0, false },
    { "64_heads", 8, 8, 64, 3, { 100, 4200, 2000 }, 0, false },
};
static const char *const families[] = {
    "random", "no_decay", "mixed_heads", "flashqla", "v_zero_at_cut", "repaired_16"
};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0], NUM_FAMILIES = sizeof families / sizeof families[0] };

struct job {
    const struct gdn_shape *shape;
    const char *family;
    gdn_dtype type;
    int dim;
};

static void name_job(char *out, size_t size, const struct job *j)
{
    snprintf(out, size, "batch_invariant %s %s %s d=%d", j->shape->name, j->family,
             j->type == GDN_BF16 ? "bf16" : "fp16", j->dim);
}

/* ---- a batch on the device -------------------------------------------------------------------------------------------- */

struct batch {
    struct gdn_case c;
    struct gpu_inputs in;
    struct gpu_buffer o, state;
    size_t o_row, line; /* bytes of a token's o, of a sequence's states */
};

static void open_batch(struct batch *b, const struct job *j)
{
    gdn_case_make(&b->c, gdn_family_find(j->family), j->shape, j->type, j->dim, GDN_STATE_KV, options.seed);
    gpu_inputs_upload(&b->in, &b->c);
    b->o_row = (size_t)(b->c.heads * j->dim) * 2;
    b->line = b->in.row[GPU_H0];
    b->o = gpu_buffer_filled((size_t)b->c.tokens * b->o_row, GPU_NAN_FILL);
    b->state = gpu_buffer_filled((size_t)j->shape->num_seqs * b->line, GPU_NAN_FILL);
}

static void close_batch(struct batch *b)
{
    gpu_inputs_free(&b->in);
    gpu_buffer_free(&b->o);
    gpu_buffer_free(&b->state);
    gdn_case_free(&b->c);
}

/* Bounds of a plan, and the SMs that it is made for; 0: the device's. */
struct bounds_of_plan {
    int64_t tokens, seqs;
    int32_t num_sms;
};

static gdn_plan *make_plan(const struct batch *b, const struct bounds_of_plan *bounds)
{
    gdn_prefill_desc d = b->c.desc;
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    d.max_tokens = bounds->tokens > 0 ? bounds->tokens : 1;
    d.max_seqs = bounds->seqs;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    if (bounds->num_sms) target.num_sms = bounds->num_sms;
    const uint32_t whole = gpu_no_workspace ? (uint32_t)GDN_PLAN_WHOLE_SEQUENCES : 0;
    GDN(gdn_plan_prefill(ctx, &target, &d, gpu_plan_flags | GDN_PLAN_BATCH_INVARIANT | whole, &plan));
    GDN(gdn_plan_load(plan, options.device));
    return plan;
}

/* o and states of sequences [first, first + count), which a call of them alone gives; for free(). */
struct bits {
    char *o, *state;
};

static void free_bits(struct bits *bits)
{
    free(bits->o);
    free(bits->state);
}

/* An input from this row on, where the case has it. */
static gdn_devptr part(const struct batch *b, int input, size_t row)
{
    return b->in.at[input].p ? b->in.at[input].p + row * b->in.row[input] : 0;
}

static struct bits run_part(const struct batch *b, int first, int count, const struct bounds_of_plan *bounds)
{
    const int32_t *starts = b->c.cu + first;
    const size_t token = (size_t)starts[0], tokens = (size_t)(starts[count] - starts[0]),
                 lines = (size_t)count * b->line;
    struct bits out = { gpu_malloc(tokens * b->o_row), gpu_malloc(lines) };
    int32_t own_starts[GDN_SHAPE_MAX_SEQS + 1];
    for (int n = 0; n <= count; ++n)
        own_starts[n] = starts[n] - starts[0];
    struct gpu_buffer cu_seqlens = gpu_buffer_from(own_starts, (size_t)(count + 1) * sizeof *own_starts);
    gdn_prefill_args a = b->c.args;
    a.q = part(b, GPU_Q, token), a.k = part(b, GPU_K, token), a.v = part(b, GPU_V, token);
    a.g = part(b, GPU_G, token), a.beta = part(b, GPU_BETA, token);
    a.initial_state = part(b, GPU_H0, (size_t)first);
    a.o = b->o.p + token * b->o_row, a.final_state = b->state.p + (size_t)first * b->line;
    a.cu_seqlens = count > 1 ? cu_seqlens.p : 0;
    a.num_tokens = (int64_t)tokens, a.num_seqs = count;
    CU(cuMemsetD8Async(b->o.p, GPU_NAN_FILL, b->o.bytes, NULL));
    CU(cuMemsetD8Async(b->state.p, GPU_NAN_FILL, b->state.bytes, NULL));
    CU(cuStreamSynchronize(NULL));
    gdn_plan *plan = make_plan(b, bounds);
    gpu_prefill_execute(plan, &a);
    gdn_plan_destroy(plan);
    if (tokens) CU(cuMemcpyDtoH(out.o, a.o, tokens * b->o_row));
    CU(cuMemcpyDtoH(out.state, a.final_state, lines));
    gpu_buffer_free(&cu_seqlens);
    return out;
}

/* ---- comparing -------------------------------------------------------------------------------------------------------- */

/* Sequence n of the whole batch has the bits that it has in a call of the sequences from `first` on. */
static bool same(const struct batch *b, const struct bits *whole, int n, const struct bits *of_part, int first)
{
    const int32_t *starts = b->c.cu;
    const size_t bytes = (size_t)(starts[n + 1] - starts[n]) * b->o_row, line = b->line;
    const char *there = of_part->o + (size_t)(starts[n] - starts[first]) * b->o_row;
    return memcmp(whole->o + (size_t)starts[n] * b->o_row, there, bytes) == 0 &&
           memcmp(whole->state + (size_t)n * line, of_part->state + (size_t)(n - first) * line, line) == 0;
}

/* "" or where sequence n has other bits than in the middle of the batch. */
static const char *compare_places(const struct batch *b, const struct bits *whole, int n)
{
    static const char *const where[] = { "alone", "as the first", "as the last" };
    const int seqs = b->c.shape->num_seqs, first[] = { n, n, 0 }, count[] = { 1, seqs - n, n + 1 };
    const int32_t sms[] = { 17, 0, 1000 };
    for (int i = 0; i < 3; ++i) {
        const int64_t tokens = b->c.cu[first[i] + count[i]] - b->c.cu[first[i]];
        struct bits bits = run_part(b, first[i], count[i], &(struct bounds_of_plan){ tokens, count[i], sms[i] });
        const bool equal = same(b, whole, n, &bits, first[i]);
        free_bits(&bits);
        if (!equal) return where[i];
    }
    return "";
}

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    struct batch b;
    char name[160], detail[160] = "";
    name_job(name, sizeof name, j);
    gpu_running(name);
    open_batch(&b, j);
    const struct bounds_of_plan wide = { 4 * b.c.tokens, 2 * j->shape->num_seqs, 0 };
    struct bits whole = run_part(&b, 0, j->shape->num_seqs, &wide);
    bool passed = true;
    for (int n = 0; n < j->shape->num_seqs && passed; ++n) {
        const char *where = compare_places(&b, &whole, n);
        if (!*where) continue;
        passed = false;
        snprintf(detail, sizeof detail, "sequence %d (%d tokens) has other bits %s", n, j->shape->lens[n], where);
    }
    gpu_report(passed, name, detail);
    free_bits(&whole);
    close_batch(&b);
}

static int list_jobs(struct job *jobs)
{
    static const gdn_dtype types[] = { GDN_BF16, GDN_F16 };
    int count = 0;
    for (int i = 0; i < NUM_SHAPES * NUM_FAMILIES * 4; ++i) {
        char name[160];
        const struct job j = { &shapes[i / 4 / NUM_FAMILIES], families[i / 4 % NUM_FAMILIES], types[i & 1],
                               i & 2 ? 64 : 128 };
        name_job(name, sizeof name, &j);
        if (!gpu_selected(&options, name) || (options.small && (i / 4 >= 2 || j.dim == 64))) continue;
        if (options.list) puts(name);
        jobs[count++] = j;
    }
    return count;
}

int main(int argc, char **argv)
{
    static struct job jobs[NUM_SHAPES * NUM_FAMILIES * 4];
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    const int count = list_jobs(jobs);
    if (options.list) return 0;
    gpu_require_device(&options);
    ctx = gpu_context();
    gpu_parallel(&options, count, run_job, jobs);
    gdn_ctx_destroy(ctx);
    return gpu_summary();
}
