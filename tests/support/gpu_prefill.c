/*
 * gpu_prefill.c - see gpu_prefill.h.
 */
#include "codegen/spec.h"
#include "gpu_params.h"
#include "gpu_prefill.h"

#include <string.h>

enum { NUM_INPUTS = 7, MAX_TOKENS = 16384, MAX_SEQS = 256, DUMP = 1 << 16 };

/* An input tensor: where it is on the host, which member of the device's args it becomes. */
struct input {
    gdn_devptr host, *member;
    size_t bytes;
    struct gpu_buffer buffer;
};

static int num_heads(const gdn_prefill_desc *d)
{
    const int qk = d->num_q_heads > d->num_k_heads ? d->num_q_heads : d->num_k_heads;
    return qk > d->num_v_heads ? qk : d->num_v_heads;
}

static const void *host_pointer(gdn_devptr address)
{
    return (const void *)(uintptr_t)address;
}

static void list_inputs(struct input in[NUM_INPUTS], const gdn_prefill_desc *d, const gdn_prefill_args *host,
                        gdn_prefill_args *device)
{
    const size_t t = (size_t)host->num_tokens, n = (size_t)host->num_seqs, h = (size_t)num_heads(d);
    const size_t dk = (size_t)d->head_dim_qk, dv = (size_t)d->head_dim_v;
    const struct input all[NUM_INPUTS] = {
        { host->q, &device->q, t * (size_t)d->num_q_heads * dk * 2, { 0, 0, 0 } },
        { host->k, &device->k, t * (size_t)d->num_k_heads * dk * 2, { 0, 0, 0 } },
        { host->v, &device->v, t * (size_t)d->num_v_heads * dv * 2, { 0, 0, 0 } },
        { host->g, &device->g, t * h * 4, { 0, 0, 0 } },
        { host->beta, &device->beta, t * h * 4, { 0, 0, 0 } },
        { host->cu_seqlens, &device->cu_seqlens, (n + 1) * 4, { 0, 0, 0 } },
        { host->initial_state, &device->initial_state, n * h * dk * dv * 4, { 0, 0, 0 } },
    };
    memcpy(in, all, sizeof all);
}

static void upload_inputs(struct input in[NUM_INPUTS])
{
    for (int i = 0; i < NUM_INPUTS; ++i) {
        *in[i].member = 0;
        if (!in[i].host) continue;
        in[i].buffer = gpu_buffer_from(host_pointer(in[i].host), in[i].bytes);
        *in[i].member = in[i].buffer.p;
    }
}

static bool input_unchanged(const struct input *in)
{
    void *now = gpu_malloc(in->bytes);
    gpu_buffer_read(&in->buffer, now);
    const bool same = memcmp(now, host_pointer(in->host), in->bytes) == 0;
    free(now);
    return same;
}

static const char *inspect_inputs(const struct input in[NUM_INPUTS], bool in_place)
{
    static const char *const changed[NUM_INPUTS] = { "q changed",
                                                     "k changed",
                                                     "v changed",
                                                     "g changed",
                                                     "beta changed",
                                                     "cu_seqlens changed",
                                                     "initial_state changed" };
    for (int i = 0; i < NUM_INPUTS; ++i) {
        const bool is_output = in_place && i == NUM_INPUTS - 1;
        if (!in[i].buffer.base) continue;
        if (!gpu_buffer_guards_intact(&in[i].buffer)) return "written beside an input";
        if (!is_output && !input_unchanged(&in[i])) return changed[i];
    }
    return "";
}

gdn_plan *gpu_prefill_plan_with(gdn_ctx *ctx, int device, const gdn_prefill_desc *desc, uint32_t flags, int num_sms)
{
    gdn_prefill_desc wide = *desc;
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan;
    wide.max_tokens = desc->max_tokens > MAX_TOKENS ? desc->max_tokens : MAX_TOKENS;
    wide.max_seqs = desc->max_seqs > MAX_SEQS ? desc->max_seqs : MAX_SEQS;
    GDN(gdn_target_from_device(ctx, device, &target));
    if (gpu_num_sms) target.num_sms = gpu_num_sms;
    if (num_sms) target.num_sms = num_sms;
    flags |= gpu_plan_flags;
    wide.flags |= gpu_desc_flags;
    struct gdni_problem problem;
    GDN(gdni_problem_from_prefill(&problem, &wide));
    problem.generic = (flags & GDN_PLAN_GENERIC) != 0;
    problem.batch_invariant = (flags & GDN_PLAN_BATCH_INVARIANT) != 0;
    gpu_force_for(ctx, &target, &problem);
    GDN(gdn_plan_prefill(ctx, &target, &wide, flags, &plan));
    GDN(gdn_plan_load(plan, device));
    return plan;
}

gdn_plan *gpu_prefill_plan(gdn_ctx *ctx, int device, const gdn_prefill_desc *desc)
{
    return gpu_prefill_plan_with(ctx, device, desc, 0, 0);
}

static gdn_status append(void *user, const void *data, size_t size)
{
    char *text = user;
    const size_t used = strlen(text), room = DUMP - 1 - used;
    strncat(text, data, size < room ? size : room);
    return GDN_OK;
}

static const char *dump(const gdn_plan *plan, char json[DUMP])
{
    json[0] = '\0';
    GDN(gdn_plan_dump(plan, GDN_DUMP_JSON, append, json));
    return json;
}

void gpu_plan_kernel(const gdn_plan *plan, char *out, size_t size)
{
    char json[DUMP];
    const char *name = strstr(dump(plan, json), "\"kernel\": \"");
    snprintf(out, size, "%s", name ? name + 11 : "?");
    out[strcspn(out, "\"")] = '\0';
}

int gpu_repaired_pairs(const struct gpu_buffer *workspace, int pairs)
{
    enum { PAIRS_AT = 64, PAIR_WORDS = 4, PAIR_FAILED = 1 };
    int failed = 0;
    const size_t bytes = (size_t)pairs * PAIR_WORDS * 4;
    uint32_t *words = gpu_malloc(bytes);
    CU(cuMemcpyDtoH(words, workspace->p + PAIRS_AT * 4, bytes));
    for (int i = 0; i < pairs; ++i)
        failed += words[i * PAIR_WORDS + PAIR_FAILED] != 0;
    free(words);
    return failed;
}

/* Parts of a head's value columns that the plan's kernels work on, all of which cut; 0: they are others. */
static int parts_that_are_cut(const gdn_plan *plan, const gdn_prefill_desc *desc)
{
    char json[DUMP];
    const char *const block = strstr(dump(plan, json), "\"block_dv\": ");
    if (!block || !strstr(json, "\"cuts\": true") || strstr(json, "\"cuts\": false")) return 0;
    return (int)(desc->head_dim_v / strtol(block + 12, NULL, 10));
}

/* By --params, whatever the model says, on a Hopper GPU: one sequence that is longer than two shares of the shortest kind. */
static bool is_cut_evenly(const gdn_prefill_desc *desc, const gdn_prefill_args *args)
{
    return gpu_forces("partition_chunks", GDNI_PARTITION_EVENLY) && gpu_forces("carry", 1) && gpu_forces("block_dv", 128) &&
           desc->head_dim_v == 128 && args->num_seqs == 1 && args->num_tokens > 1024;
}

/* The workspace is the caller's to free. */
static struct gpu_buffer execute(const gdn_plan *plan, const gdn_prefill_args *args, size_t bytes)
{
    struct gpu_buffer workspace = bytes ? gpu_buffer_filled(bytes, GPU_NAN_FILL) : gpu_no_buffer;
    gdn_stream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GDN(gdn_execute_prefill(plan, args, workspace.p, bytes, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    return workspace;
}

static size_t workspace_bytes(const gdn_plan *plan)
{
    return gpu_no_workspace ? 0 : gdn_plan_workspace_size(plan);
}

void gpu_prefill_execute(const gdn_plan *plan, const gdn_prefill_args *args)
{
    struct gpu_buffer workspace = execute(plan, args, workspace_bytes(plan));
    gpu_buffer_free(&workspace);
}

void gpu_prefill_execute_bare(const gdn_plan *plan, const gdn_prefill_args *args)
{
    struct gpu_buffer none = execute(plan, args, 0);
    gpu_buffer_free(&none);
}

static void run(struct gpu_prefill_result *out, const gdn_plan *plan, const gdn_prefill_desc *desc, gdn_prefill_args *args,
                struct input in[NUM_INPUTS], unsigned flags)
{
    const struct gpu_buffer *h0 = &in[NUM_INPUTS - 1].buffer;
    const bool in_place = flags & GPU_PREFILL_IN_PLACE && h0->base;
    struct gpu_buffer o = gpu_buffer_filled(out->o_bytes, GPU_NAN_FILL);
    struct gpu_buffer own = in_place ? gpu_no_buffer : gpu_buffer_filled(out->state_bytes, GPU_NAN_FILL);
    const struct gpu_buffer *state = in_place ? h0 : &own;
    args->o = o.p;
    args->final_state = flags & GPU_PREFILL_NO_FINAL ? 0 : state->p;
    struct gpu_buffer workspace = execute(plan, args, workspace_bytes(plan));
    const bool known = workspace.bytes && gpu_plan_flags & GDN_PLAN_BATCH_INVARIANT;
    const int parts = known ? parts_that_are_cut(plan, desc) : workspace.bytes && is_cut_evenly(desc, args) ? 1 : 0;
    out->repaired_pairs = parts ? gpu_repaired_pairs(&workspace, (int)(args->num_seqs * num_heads(desc)) * parts) : -1;
    gpu_buffer_free(&workspace);
    gpu_buffer_read(&o, out->o);
    gpu_buffer_read(state, out->state);
    const char *trouble = inspect_inputs(in, in_place);
    if (!gpu_buffer_guards_intact(&own)) trouble = "written beside final_state";
    if (!gpu_buffer_guards_intact(&o)) trouble = "written beside o";
    snprintf(out->trouble, sizeof out->trouble, "%s", trouble);
    gpu_buffer_free(&o);
    gpu_buffer_free(&own);
}

void gpu_prefill(struct gpu_prefill_result *out, const gdn_plan *plan, const gdn_prefill_desc *desc,
                 const gdn_prefill_args *args, unsigned flags)
{
    const size_t rows = (size_t)args->num_tokens * (size_t)num_heads(desc), dv = (size_t)desc->head_dim_v;
    struct input in[NUM_INPUTS];
    gdn_prefill_args on_device = *args;
    memset(out, 0, sizeof *out);
    out->o_bytes = rows * dv * 2;
    out->state_bytes = (size_t)args->num_seqs * (size_t)num_heads(desc) * (size_t)desc->head_dim_qk * dv * 4;
    out->o = gpu_malloc(out->o_bytes);
    out->state = gpu_malloc(out->state_bytes);
    list_inputs(in, desc, args, &on_device);
    upload_inputs(in);
    run(out, plan, desc, &on_device, in, flags);
    for (int i = 0; i < NUM_INPUTS; ++i)
        gpu_buffer_free(&in[i].buffer);
}

void gpu_prefill_free(struct gpu_prefill_result *result)
{
    free(result->o);
    free(result->state);
    memset(result, 0, sizeof *result);
}

bool gpu_prefill_same(const struct gpu_prefill_result *a, const struct gpu_prefill_result *b)
{
    return a->o_bytes == b->o_bytes && a->state_bytes == b->state_bytes && memcmp(a->o, b->o, a->o_bytes) == 0 &&
           memcmp(a->state, b->state, a->state_bytes) == 0;
}

gdn_ctx *gpu_context(void)
{
    gdn_ctx *ctx;
    GDN(gdn_ctx_create(&ctx, NULL));
    return ctx;
}
