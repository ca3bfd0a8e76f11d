/*
 * execute.c - the hot path: checks, launch parameters, one cuLaunchKernel (and one memset where it uses the workspace) or
 * cuLaunchKernelEx (and one more).
 *
 * Must not know: files, environment, NVRTC, caches. Allocates nothing, takes no lock, loads nothing; legal during capture.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "codegen/conv_launch.h"
#include "codegen/division.h"
#include "codegen/kernel_params.h"
#include "codegen/partition.h"
#include "codegen/problem.h"
#include "codegen/spec.h"
#include "codegen/workspace.h"
#include "runtime/plan.h"
#include "runtime/tensor_map.h"

enum { WORKSPACE_ALIGNMENT = 256 };

static gdn_status check_plan(const gdn_plan *plan, int32_t op)
{
    if (!plan)
        return GDN_FAIL(GDN_E_INVALID, "plan is null: make one with gdn_plan_prefill() or gdn_plan_conv1d_qkv()");
    if (plan->problem.op != op)
        return GDN_FAIL(GDN_E_INVALID, "plan is for %s: execute it with that operator's function, or plan %s",
                        gdni_op_name(plan->problem.op), gdni_op_name(op));
    return GDN_OK;
}

static gdn_status check_workspace(const gdn_plan *plan, gdn_devptr workspace, size_t size)
{
    if (!workspace && size == 0 && plan->needs_workspace)
        return GDN_FAIL(
            GDN_E_WORKSPACE,
            "workspace is 0: a plan with GDN_PLAN_BATCH_INVARIANT cuts every sequence of more than %d tokens, "
            "for which each of its calls needs it: give %zu bytes (gdn_plan_workspace_size), or plan with "
            "GDN_PLAN_WHOLE_SEQUENCES as well",
            plan->specs[0].params.partition_chunks * plan->specs[0].params.chunk, plan->workspace_size);
    if (plan->workspace_size == 0 || (!workspace && size == 0)) return GDN_OK;
    if (size < plan->workspace_size || !workspace)
        return GDN_FAIL(
            GDN_E_WORKSPACE,
            "workspace is 0x%llx, %zu bytes: give %zu (gdn_plan_workspace_size, of one-call forms "
            "gdn_prefill_workspace_size)%s",
            (unsigned long long)workspace, size,
            plan->workspace_size, plan->needs_workspace ? "" : ", or 0 and 0 for the kernels that need none");
    if (workspace % WORKSPACE_ALIGNMENT)
        return GDN_FAIL(GDN_E_WORKSPACE, "workspace is 0x%llx: must be aligned to %d bytes",
                        (unsigned long long)workspace, WORKSPACE_ALIGNMENT);
    return GDN_OK;
}

/* Returns the constant: a compiler then sees that nothing goes on after a failed call. */
static gdn_status failed(const struct gdni_cuda *cuda, gdni_curesult result, const char *call)
{
    gdni_cuda_fail(cuda, result, call);
    return GDN_E_CUDA;
}

/* The current context is none that the plan is loaded in: say why. Not the hot path. */
static gdn_status not_loaded(const struct gdni_cuda *cuda, gdni_cuctx current)
{
    gdni_cudevice device = 0;
    if (!current)
        return GDN_FAIL(
            GDN_E_NOT_LOADED,
            "this thread has no current CUDA context: call cudaSetDevice() or cuCtxSetCurrent() in it first");
    const gdni_curesult result = cuda->cuCtxGetDevice(&device);
    if (result != 0) return failed(cuda, result, "cuCtxGetDevice");
    return GDN_FAIL(
        GDN_E_NOT_LOADED,
        "the current CUDA context is none that the plan is loaded in: for its device (CUdevice %d) call gdn_plan_load(), "
        "and " GDNI_PRIMARY_REMEDY,
        device);
}

static gdn_status find_device(const gdn_plan *plan, const struct gdni_loaded **out)
{
    const struct gdni_cuda *cuda = gdni_modules_cuda(plan->modules);
    gdni_cuctx current = NULL;
    if (!cuda)
        return GDN_FAIL(GDN_E_NOT_LOADED, "the plan is loaded on no device: call gdn_plan_load() before executing it");
    const gdni_curesult result = cuda->cuCtxGetCurrent(&current);
    if (result != 0) return failed(cuda, result, "cuCtxGetCurrent");
    *out = current ? gdni_modules_find(plan->modules, current) : NULL;
    return *out ? GDN_OK : not_loaded(cuda, current);
}

/* One call: its kernel's variant, the CTAs beyond those of the grid, the words to clear before it. */
struct call {
    int64_t num_tokens, num_seqs;
    int64_t longest; /* tokens of a sequence at the most; 0: not known */
    int variant;
    struct gdni_workspace needs;
    gdn_devptr workspace;
    const uint32_t *grid; /* NULL: as gdni_spec_grid() says */
};

static const struct gdni_kernel_info *kernel_of(const gdn_plan *plan, int variant)
{
    return gdni_kernel_info((enum gdni_kernel)plan->specs[variant].kernel);
}

static void find_needs(struct call *c, const gdn_plan *plan)
{
    if (c->workspace)
        gdni_workspace_of(&c->needs, &plan->specs[c->variant], &plan->problem, gdni_plan_num_sms(plan), c->num_tokens,
                          c->num_seqs, c->longest);
}

/* Of a call that is cut, and whose longest sequence is known: whether it is done no later whole. */
static bool is_better_whole(const gdn_plan *plan, const struct call *cut, const struct call *whole)
{
    const struct gdni_spec *spec = &plan->specs[cut->variant];
    if (cut->longest <= (int64_t)cut->needs.partition * spec->params.chunk) return true;
    return (whole->needs.gang || cut->needs.gang) &&
           gdni_partition_no_better(spec, &plan->problem, gdni_plan_num_sms(plan), gdni_workspace_cut(&cut->needs),
                                    cut->num_tokens, cut->num_seqs, cut->longest);
}

/*
 * Of a call for which the plan has a kernel of few sequences: whether the usual one is to have it, which cuts it evenly. What
 * was measured of calls whose lengths nobody knew stands for them.
 */
static bool is_for_usual(const gdn_plan *plan, const struct call *few, const struct call *usual)
{
    const struct gdni_choice *choice = gdni_plan_choice_of_few(plan, few->num_tokens, few->num_seqs);
    if (!few->longest && choice->by != GDNI_CHOSEN_HEURISTIC) return false;
    return usual->workspace && !plan->specs[few->variant].cuts &&
           gdni_partition_beats_few(&plan->specs[usual->variant], &plan->specs[few->variant], &plan->problem,
                                    gdni_plan_num_sms(plan), few->num_tokens, few->num_seqs, few->longest);
}

/*
 * A call that is cut evenly, and known to be uneven, has another variant, which carries states, where partitions' lengths may
 * follow from sequences' lengths and gates: of all sequences, or where there are more of the longest.
 */
static void take_uneven(struct call *c, const gdn_plan *plan)
{
    struct call uneven = *c;
    uneven.variant = gdni_plan_variant_of_uneven(plan, c->num_tokens, c->num_seqs);
    if (uneven.variant < 0 || !gdni_partition_is_uneven(c->num_tokens, c->num_seqs, c->longest)) return;
    find_needs(&uneven, plan);
    const int64_t length = (int64_t)uneven.needs.partition * plan->specs[uneven.variant].params.chunk;
    if (uneven.needs.carry == GDNI_CARRY_BY_GATES && c->longest > length) *c = uneven;
}

/* longest: as struct call has it. As many as all have, of several sequences, is a bound that says nothing. */
static struct call make_call(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs, int64_t longest,
                             gdn_devptr workspace)
{
    if (longest >= num_tokens) longest = num_seqs > 1 ? 0 : num_tokens;
    struct call c = { .num_tokens = num_tokens, .num_seqs = num_seqs, .longest = longest, .workspace = workspace };
    struct call usual = c;
    usual.variant = plan->variant_of_bucket[gdni_bucket_of(num_tokens)];
    c.variant = gdni_plan_variant_of_few(plan, num_tokens, num_seqs);
    if (c.variant >= 0 && !workspace && kernel_of(plan, c.variant)->has_producers) c.variant = -1;
    if (c.variant < 0 || is_for_usual(plan, &c, &usual)) c.variant = usual.variant;
    find_needs(&c, plan);
    if (longest && c.variant == usual.variant && gdni_workspace_cut(&c.needs).evenly) take_uneven(&c, plan);
    if (plan->whole_of_variant[c.variant] == c.variant || (c.needs.partition && !longest)) return c;
    struct call whole = c;
    whole.variant = plan->whole_of_variant[c.variant];
    find_needs(&whole, plan);
    return c.needs.partition == 0 || is_better_whole(plan, &c, &whole) ? whole : c;
}

/* A kernel, what it is launched on, and the launch struct that it takes whole, by value. */
struct kernel {
    const struct gdni_cuda *cuda;
    gdni_cufunc function;
    gdn_stream stream;
    void *params;
};

static gdn_status launch_plain(const struct kernel *k, const uint32_t grid[3], int32_t threads, int32_t smem)
{
    void *arguments[] = { k->params };
    const gdni_curesult result = k->cuda->cuLaunchKernel(k->function, grid[0], grid[1], grid[2], (unsigned)threads, 1,
                                                         1, (unsigned)smem, k->stream, arguments, NULL);
    return result == 0 ? GDN_OK : failed(k->cuda, result, "cuLaunchKernel");
}

/* It may start before the kernel before it in the stream has ended, and waits for it itself. */
static gdn_status launch_programmatic(const struct kernel *k, const uint32_t grid[3], int32_t threads, int32_t smem)
{
    void *arguments[] = { k->params };
    const struct gdni_launch_attribute attribute = { .id = GDNI_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                                                     .value.allowed = 1 };
    const struct gdni_launch_config config = { .grid = { grid[0], grid[1], grid[2] },
                                               .block = { (uint32_t)threads, 1, 1 },
                                               .smem = (uint32_t)smem,
                                               .stream = k->stream,
                                               .attributes = &attribute,
                                               .num_attributes = 1 };
    const gdni_curesult result = k->cuda->cuLaunchKernelEx(&config, k->function, arguments, NULL);
    return result == 0 ? GDN_OK : failed(k->cuda, result, "cuLaunchKernelEx");
}

/* In a graph more words than it needs take less time: GDNI_GRAPH_CLEAR_WORDS has why. */
static gdn_status clear_by_memset(const struct kernel *k, const struct call *call)
{
    size_t words = call->needs.control_words;
    gdni_curesult result;
    if (words < GDNI_GRAPH_CLEAR_WORDS) {
        int capturing = 0;
        result = k->cuda->cuStreamIsCapturing(k->stream, &capturing);
        if (result != 0) return failed(k->cuda, result, "cuStreamIsCapturing");
        if (capturing) words = GDNI_GRAPH_CLEAR_WORDS;
    }
    result = k->cuda->cuMemsetD32Async(call->workspace, 0, words, k->stream);
    return result == 0 ? GDN_OK : failed(k->cuda, result, "cuMemsetD32Async");
}

/* Behind a memset there would be no kernel to overlap with: the kernel itself clears, launched for that (gdn_launch.cuh). */
static gdn_status clear_by_launch(const struct kernel *k, const struct call *call)
{
    const size_t clusters = (call->needs.control_words + GDNI_CLEARED_AT_ONCE - 1) / GDNI_CLEARED_AT_ONCE;
    const uint32_t grid[3] = { (uint32_t)clusters * (GDNI_CLEARED_AT_ONCE / GDNI_CLEARING_THREADS), 1, 1 };
    return launch_programmatic(k, grid, GDNI_CLEARING_THREADS, 0);
}

static gdn_status launch(const gdn_plan *plan, const struct gdni_loaded *loaded, const struct call *call, void *params,
                         gdn_stream stream)
{
    uint32_t grid[3];
    const struct gdni_spec *spec = &plan->specs[call->variant];
    const struct kernel k = { gdni_modules_cuda(plan->modules), loaded->functions[call->variant], stream, params };
    const bool early = spec->programmatic_launch;
    if (call->grid)
        memcpy(grid, call->grid, sizeof grid);
    else
        GDN_TRY(gdni_spec_grid(spec, &plan->problem, call->num_tokens, call->num_seqs, gdni_plan_num_sms(plan), grid));
    grid[0] += (uint32_t)call->needs.num_producers;
    if (call->needs.control_words) GDN_TRY((early ? clear_by_launch : clear_by_memset)(&k, call));
    return (early ? launch_programmatic : launch_plain)(&k, grid, spec->threads, spec->smem_bytes);
}

/* Of a batch without cu_seqlens: gdni_check_*_args() saw to it that it divides. */
static int64_t uniform_len(gdn_devptr cu_seqlens, int64_t num_tokens, int64_t num_seqs)
{
    return cu_seqlens || num_seqs == 0 ? 0 : num_tokens / num_seqs;
}

/* How a state head finds its q, k or v head: h / div % mod. Kernels count on it that div is 1, or h / div below mod. */
struct head_map {
    int32_t div, mod;
};

static struct head_map head_map(const struct gdni_problem *p, int32_t heads)
{
    return (struct head_map){ p->head_map == GDN_HEADS_TILED ? 1 : p->num_heads / heads, heads };
}

static void set_strides(struct gdni_prefill_params *out, const struct gdni_problem *p, const gdn_prefill_args *a)
{
    const int64_t len = out->uniform_len, h = p->num_heads, dk = p->head_dim_qk, dv = p->head_dim_v;
    gdn_strides s;
#define FILL(name, count, dim)                                                                                         \
    s = gdni_strides_filled(&a->name##_strides, count, dim, len);                                                      \
    out->name##_batch_stride = s.batch;                                                                                \
    out->name##_token_stride = s.token;                                                                                \
    out->name##_head_stride = s.head;
    FILL(q, p->num_q_heads, dk)
    FILL(k, p->num_k_heads, dk)
    FILL(v, p->num_v_heads, dv)
    FILL(o, h, dv)
    FILL(g, h, 1)
    FILL(beta, h, 1)
#undef FILL
}

static void set_state(struct gdni_prefill_params *out, const struct gdni_problem *p, const gdn_prefill_args *a)
{
    const int64_t packed = gdni_problem_state_size(p);
    out->initial_state = a->initial_state;
    out->final_state = a->final_state;
    out->has_initial_state = a->has_initial_state;
    out->initial_slot_stride = a->initial_slot_stride ? a->initial_slot_stride : packed;
    out->final_slot_stride = a->final_slot_stride ? a->final_slot_stride : packed;
    out->slot_in = a->slot_in;
    out->slot_out = a->slot_out ? a->slot_out : a->slot_in;
    out->slot_in_stride = a->slot_in_stride ? (int32_t)a->slot_in_stride : 1;
    out->slot_out_stride = !a->slot_out ? out->slot_in_stride : a->slot_out_stride ? (int32_t)a->slot_out_stride : 1;
    out->checkpoints = a->num_checkpoints ? a->checkpoints : 0;
    out->num_checkpoints = (int32_t)a->num_checkpoints;
}

static struct gdni_prefill_params prefill_params(const struct gdni_problem *p, const gdn_prefill_args *a,
                                                 int64_t uniform, const struct call *call)
{
    const struct head_map q = head_map(p, p->num_q_heads), k = head_map(p, p->num_k_heads),
                          v = head_map(p, p->num_v_heads);
    struct gdni_prefill_params params = {
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .g = a->g,
        .beta = a->beta,
        .a_log = a->a_log,
        .dt_bias = a->dt_bias,
        .cu_seqlens = a->cu_seqlens,
        .o = a->o,
        .images = call->workspace + call->needs.images_offset,
        .control = call->needs.control_words ? call->workspace : 0,
        .uniform_len = uniform,
        .image_rows = call->needs.image_rows,
        .num_tokens = a->num_tokens,
        .num_heads = p->num_heads,
        .q_div = q.div,
        .q_mod = q.mod,
        .k_div = k.div,
        .k_mod = k.mod,
        .v_div = v.div,
        .v_mod = v.mod,
        .num_seqs = (int32_t)a->num_seqs,
        .num_producers = call->needs.num_producers,
        .scale = a->has_scale ? a->scale : (float)(1.0 / sqrt((double)p->head_dim_qk)),
    };
    set_strides(&params, p, a);
    set_state(&params, p, a);
    return params;
}

/*
 * scale as the Hopper kernel wants it: what P, which is fp16, takes of it, and what O takes at the end. An extreme one is O's
 * alone; else P takes all of it with bf16 data, a power of two with fp16 (LATE_SCALE in gdn_hopper_rows.cuh).
 */
static void set_scale(struct gdni_prefill_hopper_params *out, int32_t io_type, float scale)
{
    const float size = fabsf(scale);
    const bool harmless = size <= 4.0f && size >= 0.0009765625f;
    int exponent = 1;
    if (harmless) frexpf(size, &exponent); /* size = 1/2 to 1 times 2^exponent */
    const float power = ldexpf(1.0f, exponent - 1);
    out->p_scale = harmless && io_type == GDN_BF16 ? scale : power;
    out->late_scale = scale / out->p_scale;
}

/* The Hopper kernel's struct begins as the others'. */
static gdn_status launch_hopper(const gdn_plan *plan, const struct gdni_loaded *loaded, const struct call *call,
                                const struct gdni_prefill_params *params, gdn_stream stream)
{
    struct gdni_prefill_hopper_params own = { 0 };
    struct call cut = *call;
    memcpy(&own, params, offsetof(struct gdni_prefill_hopper_params, partition));
    own.partition = call->needs.partition;
    own.carry = (int32_t)call->needs.carry;
    if (call->needs.t_offset) own.t_images = call->workspace + call->needs.t_offset;
    const struct gdni_spec *spec = &plan->specs[call->variant];
    own.most_forgetting = call->needs.most_forgetting;
    own.num_items =
        (int32_t)(own.partition ? call->needs.num_items
                                : gdni_partition_items(spec, &plan->problem, 0, call->num_tokens, call->num_seqs));
    const struct gdni_division rows = gdni_division(own.partition ? spec->params.chunk * own.partition : 1),
                               parts = gdni_division((int32_t)gdni_spec_parts(spec, &plan->problem));
    own.row_magic = rows.magic, own.row_shift = rows.shift;
    own.parts_magic = parts.magic, own.parts_shift = parts.shift;
    set_scale(&own, plan->problem.io_type, params->scale);
    GDN_TRY(gdni_tensor_maps(&own, &plan->problem, spec->params.block_dv, gdni_modules_cuda(plan->modules)));
    const int num_sms = gdni_plan_num_sms(plan);
    if (spec->transit && own.num_items > num_sms) /* else no CTA has a second item */
        GDN_TRY(gdni_state_maps(&own, &plan->problem, gdni_modules_cuda(plan->modules)));
    own.gang = own.partition || own.states_by_map ? call->needs.gang : 0;
    const bool all_sms = own.num_items >= num_sms || own.carry == GDNI_CARRY_BY_GATES; /* gates may ask for more items */
    const uint32_t grid[3] = { (uint32_t)(all_sms ? num_sms : own.num_items), 1, 1 };
    if (own.partition) cut.grid = grid;
    return launch(plan, loaded, &cut, &own, stream);
}

gdn_status gdn_execute_prefill(const gdn_plan *plan, const gdn_prefill_args *args, gdn_devptr workspace,
                               size_t workspace_size, gdn_stream stream)
{
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    const struct gdni_loaded *loaded = NULL;
    GDN_TRY(check_plan(plan, GDNI_OP_PREFILL));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_prefill_args, &a, args));
    GDN_TRY(gdni_check_prefill_args(&plan->problem, &a));
    GDN_TRY(gdni_check_prefill_apart(&a, workspace_size ? workspace : 0));
    /* Sequences of no token still copy their states; rows of no sequence may still have to become zeros. */
    if (a.num_seqs == 0 && !(plan->problem.flags & GDN_PREFILL_ZERO_PADDING && a.num_tokens > 0)) return GDN_OK;
    GDN_TRY(check_workspace(plan, workspace, workspace_size));
    const int64_t uniform = uniform_len(a.cu_seqlens, a.num_tokens, a.num_seqs);
    const struct call call = make_call(plan, a.num_tokens, a.num_seqs, uniform ? uniform : a.max_seq_tokens, workspace);
    struct gdni_prefill_params params = prefill_params(&plan->problem, &a, uniform, &call);
    GDN_TRY(find_device(plan, &loaded));
    if (kernel_of(plan, call.variant)->has_maps)
        return launch_hopper(plan, loaded, &call, &params, stream);
    return launch(plan, loaded, &call, &params, stream);
}

gdn_status gdn_execute_conv1d_qkv(const gdn_plan *plan, const gdn_conv1d_args *args, gdn_stream stream)
{
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    const struct gdni_loaded *loaded = NULL;
    GDN_TRY(check_plan(plan, GDNI_OP_CONV1D_QKV));
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_conv1d_args, &a, args));
    GDN_TRY(gdni_check_conv1d_args(&plan->problem, &a));
    GDN_TRY(gdni_check_conv1d_apart(&a));
    struct call call = make_call(plan, a.num_tokens, a.num_seqs, 0, 0);
    struct gdni_conv1d_params params;
    uint32_t grid[3];
    GDN_TRY(gdni_conv1d_launch(&params, grid, &plan->specs[call.variant], &plan->problem, &a,
                               gdni_plan_num_sms(plan)));
    if (grid[0] == 0) return GDN_OK; /* nothing to write */
    call.grid = grid;
    GDN_TRY(find_device(plan, &loaded));
    return launch(plan, loaded, &call, &params, stream);
}
