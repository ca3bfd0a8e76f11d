/*
 * test_shares.c - even shares: a call whose chunks are shared out, so that CTAs hand states on to each other, has the bits of
 * the same call without a workspace, whose sequences are whole. By few SMs, which plans are made for, so that small calls have
 * more pairs of a sequence and a head than CTAs.
 *
 * States stay in place in a pool whose lines are not in the sequences' order, every fourth chunk leaves a checkpoint, and each
 * call runs three times. How many states were handed on is read from the workspace's control words, of which a case says what
 * it expects: none where whole pairs do as well, and a call that had no shares at all would have tested nothing.
 */
#include <string.h>

#include "gdn_cases.h"
#include "gpu_inputs.h"
#include "gpu_params.h"
#include "gpu_prefill.h"

static struct gpu_options options;
static gdn_ctx *ctx;

enum { D = 128, CHUNK = 64, CHECKPOINT_CHUNKS = 4, MAX_CHECKPOINTS = 128, MAX_SMS = 132, RUNS = 3 };

static const struct shared_case {
    struct gdn_shape shape;
    int num_sms, inert; /* a sequence without a line, from 1 on; 0: none */
    int handed;         /* states */
    bool at_least;      /* `handed` or more */
} cases[] = {
    /* One boundary, inside the second of three pairs. */
    { { "two_of_three", 3, 3, 3, 1, { 1500 }, 0, true }, 2, 0, 1, false },
    /* Boundaries at a third of the second pair and two thirds of the third. */
    { { "three_of_four", 4, 4, 4, 1, { 1600 }, 0, true }, 3, 0, 2, false },
    /* Two gangs of three, a CTA a head of one k head: the second of three sequences is parted, of each head. */
    { { "gangs", 1, 1, 3, 3, { 1450, 1480, 1410 }, 0, false }, 6, 0, 3, false },
    /* An empty sequence, one of a token, tails of few tokens and of many, and one whose slot is -1 in between. */
    { { "uneven", 2, 2, 2, 6, { 500, 2000, 0, 1, 700, 1700 }, 5, false }, 3, 5, 2, false },
    /* As many whole pairs for each: dealt out. */
    { { "even", 4, 4, 4, 1, { 1500 }, 0, true }, 2, 0, 0, false },
    /* A fourth share would be too short to wait for nobody: three for four CTAs. */
    { { "three_shares", 5, 5, 5, 1, { 830 }, 0, true }, 4, 0, 2, false },
    { { "many", 25, 25, 50, 1, { 1500 }, 0, true }, 33, 0, 25, true },
};
enum { NUM_CASES = sizeof cases / sizeof cases[0] };
static const char *const families[] = { "random", "random_no_h0" };

struct job {
    const struct shared_case *it;
    const char *family;
    gdn_dtype type;
    gdn_state_layout layout;
};

static struct job job_at(int i)
{
    return (struct job){ &cases[i / 8], families[i / 4 % 2], i & 1 ? GDN_F16 : GDN_BF16,
                         i & 2 ? GDN_STATE_VK : GDN_STATE_KV };
}

static void name_job(char *out, size_t size, const struct job *j)
{
    snprintf(out, size, "shares %s %s %s %s seed=%llu", j->it->shape.name, j->family, j->type == GDN_BF16 ? "bf16" : "fp16",
             j->layout == GDN_STATE_KV ? "kv" : "vk", (unsigned long long)options.seed);
}

/* ---- a call ------------------------------------------------------------------------------------------------------------- */

struct call {
    struct gdn_case c;
    gdn_plan *plan;
    struct gpu_inputs in;
    struct gpu_buffer slots, list, o, pool, workspace;
    gdn_prefill_args args;
    void *start; /* of the pool: a line a sequence, and one a checkpoint; without initial states NaN */
};

/* Line of a sequence's state, in a pool where each is the next one's. */
static int line_of(const struct gdn_shape *shape, int n)
{
    return (n + 1) % shape->num_seqs;
}

static int list_checkpoints(int64_t rows[MAX_CHECKPOINTS][3], const struct shared_case *it)
{
    int count = 0;
    for (int n = 0; n < it->shape.num_seqs; ++n)
        for (int chunk = CHECKPOINT_CHUNKS; chunk * CHUNK <= it->shape.lens[n] && count < MAX_CHECKPOINTS;
             chunk += CHECKPOINT_CHUNKS, ++count) {
            const int64_t row[3] = { n, chunk * (int64_t)CHUNK, it->shape.num_seqs + count };
            memcpy(rows[count], row, sizeof row);
        }
    return count;
}

static struct gpu_buffer upload_slots(const struct shared_case *it)
{
    int32_t slots[GDN_SHAPE_MAX_SEQS];
    for (int n = 0; n < it->shape.num_seqs; ++n)
        slots[n] = it->inert && n == it->inert - 1 ? -1 : line_of(&it->shape, n);
    return gpu_buffer_from(slots, (size_t)it->shape.num_seqs * sizeof *slots);
}

static void fill_pool(struct call *call, const struct gdn_shape *shape, int lines)
{
    const size_t line = (size_t)call->c.state_count / (size_t)shape->num_seqs * sizeof(float);
    call->pool = gpu_buffer_filled((size_t)lines * line, GPU_NAN_FILL);
    call->start = gpu_malloc(call->pool.bytes);
    memset(call->start, GPU_NAN_FILL, call->pool.bytes);
    for (int n = 0; n < shape->num_seqs && call->c.h0; ++n)
        memcpy((char *)call->start + (size_t)line_of(shape, n) * line, (const char *)call->c.h0 + (size_t)n * line, line);
}

static void open_call(struct call *call, const struct job *j)
{
    const struct gdn_shape *shape = &j->it->shape;
    int64_t list[MAX_CHECKPOINTS][3];
    const int checkpoints = list_checkpoints(list, j->it);
    gdn_case_make(&call->c, gdn_family_find(j->family), shape, j->type, D, j->layout, options.seed);
    call->c.desc.flags |= GDN_PREFILL_CHECKPOINTS;
    call->plan = gpu_prefill_plan_with(ctx, options.device, &call->c.desc, 0, j->it->num_sms);
    gpu_inputs_upload(&call->in, &call->c);
    call->slots = upload_slots(j->it);
    call->list = gpu_buffer_from(list, (size_t)checkpoints * sizeof *list);
    fill_pool(call, shape, shape->num_seqs + checkpoints);
    call->o = gpu_buffer_filled((size_t)call->c.o_count * 2, GPU_NAN_FILL);
    call->workspace = gpu_buffer_filled(gdn_plan_workspace_size(call->plan), GPU_NAN_FILL);
    gdn_prefill_args *a = &call->args;
    *a = call->c.args;
    gpu_inputs_aim(a, &call->in);
    a->initial_state = call->c.h0 ? call->pool.p : 0, a->final_state = call->pool.p;
    a->slot_in = call->slots.p, a->checkpoints = call->list.p, a->num_checkpoints = checkpoints;
    a->o = call->o.p;
}

static void close_call(struct call *call)
{
    struct gpu_buffer *const own[] = { &call->slots, &call->list, &call->o, &call->pool, &call->workspace };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; ++i)
        gpu_buffer_free(own[i]);
    gpu_inputs_free(&call->in);
    free(call->start);
    gdn_plan_destroy(call->plan);
    gdn_case_free(&call->c);
}

struct bits {
    void *o, *pool;
};

static void free_bits(struct bits *bits)
{
    free(bits->o), free(bits->pool);
}

/* By shares, or without a workspace; guards tells whether nothing was written beside o, pool and workspace. */
static struct bits run_call(const struct call *call, bool shares, bool *guards)
{
    struct bits out = { gpu_malloc(call->o.bytes), gpu_malloc(call->pool.bytes) };
    gdn_stream stream;
    CU(cuMemsetD8Async(call->o.p, GPU_NAN_FILL, call->o.bytes, NULL));
    CU(cuMemsetD8Async(call->workspace.p, GPU_NAN_FILL, call->workspace.bytes, NULL));
    CU(cuStreamSynchronize(NULL));
    cu_copy_in(call->pool.p, call->start, call->pool.bytes);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const size_t bytes = shares ? call->workspace.bytes : 0;
    GDN(gdn_execute_prefill(call->plan, &call->args, bytes ? call->workspace.p : 0, bytes, stream));
    gpu_wait(stream);
    CU(cuStreamDestroy(stream));
    gpu_buffer_read(&call->o, out.o);
    gpu_buffer_read(&call->pool, out.pool);
    *guards &= gpu_buffer_guards_intact(&call->o) && gpu_buffer_guards_intact(&call->pool) &&
               gpu_buffer_guards_intact(&call->workspace);
    return out;
}

/* By the last run: a control word a CTA, behind the ticket counter, says that it has handed its state on. -1: none of these. */
static int count_handed(const struct call *call, int num_sms)
{
    uint32_t words[1 + MAX_SMS];
    int count = 0;
    CU(cuMemcpyDtoH(words, call->workspace.p, (size_t)(1 + num_sms) * sizeof *words));
    for (int i = 1; i <= num_sms; ++i) {
        if (words[i] > 1) return -1;
        count += (int)words[i];
    }
    return count;
}

/* ---- cases -------------------------------------------------------------------------------------------------------------- */

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    struct call call;
    char name[160], detail[200];
    name_job(name, sizeof name, j);
    gpu_running(name);
    open_call(&call, j);
    bool guards = true, same = true, counted = true;
    int handed = 0;
    struct bits whole = run_call(&call, false, &guards);
    for (int run = 0; run < RUNS; ++run) {
        struct bits bits = run_call(&call, true, &guards);
        handed = count_handed(&call, j->it->num_sms);
        counted &= j->it->at_least ? handed >= j->it->handed : handed == j->it->handed;
        same &= memcmp(bits.o, whole.o, call.o.bytes) == 0 && memcmp(bits.pool, whole.pool, call.pool.bytes) == 0;
        free_bits(&bits);
    }
    snprintf(detail, sizeof detail, "%d states handed on, %d%s expected; %s%s", handed, j->it->handed,
             j->it->at_least ? " or more" : "", same ? "the bits of whole sequences" : "other bits than whole sequences",
             guards ? "" : "; written beside a buffer");
    gpu_report(guards && same && counted, name, detail);
    free_bits(&whole);
    close_call(&call);
}

static int list_jobs(struct job *jobs)
{
    int count = 0;
    for (int i = 0; i < NUM_CASES * 8; ++i) {
        char name[160];
        const struct job j = job_at(i);
        name_job(name, sizeof name, &j);
        if (!gpu_selected(&options, name) || (options.small && j.it->num_sms > 3)) continue;
        if (options.list) puts(name);
        jobs[count++] = j;
    }
    return count;
}

int main(int argc, char **argv)
{
    static struct job jobs[NUM_CASES * 8];
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    const int count = list_jobs(jobs);
    if (options.list) return 0;
    gpu_force_params("block_dv=128,partition_chunks=2,deal_chunks=16"); /* whole heads, no sequence cut, of small calls too */
    gpu_require_device(&options);
    ctx = gpu_context();
    gpu_parallel(&options, count, run_job, jobs);
    gdn_ctx_destroy(ctx);
    return gpu_summary();
}
