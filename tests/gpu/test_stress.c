/*
 * test_stress.c - thousands of launches of cut calls while another kernel holds SMs: bits equal each time, never a hang, and
 * the wrong guesses that there are, counted and repaired.
 *
 * A round enqueues several calls behind each other, into outputs of their own, half of them with the final state in place of
 * the initial one. A kernel on another stream holds a random number of SMs meanwhile: for a random time, or until the calls
 * have ended, so that a call that wants more CTAs on the GPU than fit beside it stands still and is found.
 *
 * Plans are batch-invariant, so that those for any number of SMs must agree, or ("free") cut each as it likes.
 *
 *     test_stress --repeat 5000 --filter repaired
 */
#include <string.h>

#include "gdn_cases.h"
#include "gpu_inputs.h"
#include "gpu_prefill.h"

enum { CALLS = 8, DEFAULT_REPEAT = 1000 };

static struct gpu_options options;
static gdn_ctx *ctx;

/* Of batch-invariant plans up to 8 heads 1024 tokens are a partition. */
static const struct gdn_shape shapes[] = {
    { "one", 2, 2, 8, 1, { 8192 }, 0, false },
    { "four", 1, 1, 2, 4, { 5000, 64, 9000, 2500 }, 0, false },
};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static const struct {
    const char *name;
    uint32_t flags;
} plans[] = { { "", GDN_PLAN_BATCH_INVARIANT }, { " free", 0 } };
enum { NUM_PLANS = sizeof plans / sizeof plans[0] };

static const struct {
    const char *name;
    bool all_wrong; /* every guess at 1024 tokens is: what comes out is what whole sequences give */
} families[] = {
    { "random", false },   { "no_decay", false },        { "mixed_heads", false },
    { "flashqla", false }, { "one_head_decays", false }, { "repaired_16", true },
};
enum { NUM_FAMILIES = sizeof families / sizeof families[0] };

/* ---- the kernel that holds SMs ---------------------------------------------------------------------------------------- */

/*
 * A CTA counts itself in words[0] and stays until words[1] is not 0, or for its time: `ns`, times one to four by its number. A
 * CTA of the prefill takes an SM's whole shared memory, and each of these has the part that the system reserves, so that none
 * finds room beside one.
 */
static const char occupier[] = ".version 6.0\n"
                               ".target sm_70\n"
                               ".address_size 64\n"
                               ".visible .entry occupy(.param .u64 words, .param .u64 ns)\n"
                               "{\n"
                               "    .reg .pred %p;\n"
                               "    .reg .u32 %r, %one, %id;\n"
                               "    .reg .u64 %w, %ns, %end, %now, %id64;\n"
                               "    ld.param.u64 %w, [words];\n"
                               "    ld.param.u64 %ns, [ns];\n"
                               "    cvta.to.global.u64 %w, %w;\n"
                               "    mov.u32 %id, %tid.x;\n"
                               "    setp.ne.u32 %p, %id, 0;\n"
                               "    @%p bra DONE;\n"
                               "    mov.u32 %id, %ctaid.x;\n"
                               "    and.b32 %id, %id, 3;\n"
                               "    add.u32 %id, %id, 1;\n"
                               "    cvt.u64.u32 %id64, %id;\n"
                               "    mul.lo.u64 %ns, %ns, %id64;\n"
                               "    mov.u64 %end, %globaltimer;\n"
                               "    add.u64 %end, %end, %ns;\n"
                               "    mov.u32 %one, 1;\n"
                               "    red.global.add.u32 [%w], %one;\n"
                               "AGAIN:\n"
                               "    ld.volatile.global.u32 %r, [%w+4];\n"
                               "    setp.ne.u32 %p, %r, 0;\n"
                               "    @%p bra DONE;\n"
                               "    mov.u64 %now, %globaltimer;\n"
                               "    setp.lt.u64 %p, %now, %end;\n"
                               "    @%p bra AGAIN;\n"
                               "DONE:\n"
                               "    bar.sync 0;\n"
                               "    ret;\n"
                               "}\n";

struct crowd {
    cu_function kernel;
    gdn_stream stream;
    struct gpu_buffer words;
    int num_sms;
};

static struct crowd open_crowd(void)
{
    struct crowd crowd = { 0 };
    cu_module module;
    gdn_target target = GDN_TARGET_INIT;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    crowd.num_sms = target.num_sms;
    CU(cuModuleLoadData(&module, occupier));
    CU(cuModuleGetFunction(&crowd.kernel, module, "occupy"));
    CU(cuStreamCreate(&crowd.stream, CU_STREAM_NON_BLOCKING));
    crowd.words = gpu_buffer_filled(8, 0);
    return crowd;
}

static void close_crowd(struct crowd *crowd)
{
    gpu_wait(crowd->stream);
    CU(cuStreamDestroy(crowd->stream));
    gpu_buffer_free(&crowd->words);
}

/* CTAs of 1024 threads, which go to SMs that have none first; at least one SM is left. */
static void occupy(const struct crowd *crowd, int ctas, uint64_t ns)
{
    gdn_devptr words = crowd->words.p;
    void *arguments[] = { &words, &ns };
    CU(cuMemsetD8Async(words, 0, 8, crowd->stream));
    CU(cuLaunchKernel(crowd->kernel, (unsigned)ctas, 1, 1, 1024, 1, 1, 0, crowd->stream, arguments, NULL));
}

/* All of its CTAs are on the GPU. They stay for longer than gpu_wait() does. */
static bool await_crowd(const struct crowd *crowd, int ctas)
{
    const double start = gpu_now_us();
    uint32_t there = 0;
    while (there < (uint32_t)ctas && gpu_now_us() - start < 5e6)
        CU(cuMemcpyDtoH(&there, crowd->words.p, sizeof there));
    return there >= (uint32_t)ctas;
}

/* ---- a case on the device --------------------------------------------------------------------------------------------- */

struct stress {
    struct gdn_case c;
    struct gpu_inputs in;
    struct gpu_buffer o[CALLS], state[CALLS];
    gdn_prefill_args args;
    gdn_stream stream;
};

/* What a call gives, for free(). */
struct bits {
    void *o, *state;
};

static void open_stress(struct stress *s, const char *family, const struct gdn_shape *shape, gdn_dtype type)
{
    struct gdn_case *c = &s->c;
    gdn_case_make(c, gdn_family_find(family), shape, type, 128, GDN_STATE_KV, options.seed);
    gpu_inputs_upload(&s->in, c);
    for (int i = 0; i < CALLS; ++i) {
        s->o[i] = gpu_buffer_filled((size_t)c->o_count * 2, GPU_NAN_FILL);
        s->state[i] = gpu_buffer_filled((size_t)c->state_count * 4, GPU_NAN_FILL);
    }
    s->args = c->args;
    gpu_inputs_aim(&s->args, &s->in);
    CU(cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
}

static void close_stress(struct stress *s)
{
    CU(cuStreamDestroy(s->stream));
    gpu_inputs_free(&s->in);
    for (int i = 0; i < CALLS; ++i) {
        gpu_buffer_free(&s->o[i]);
        gpu_buffer_free(&s->state[i]);
    }
    gdn_case_free(&s->c);
}

/* Behind what the stream has: call i of a round, odd ones in place. */
static void enqueue(const struct stress *s, int i, const gdn_plan *plan, const struct gpu_buffer *workspace)
{
    gdn_prefill_args a = s->args;
    a.o = s->o[i].p, a.final_state = s->state[i].p;
    a.initial_state = i % 2 ? s->state[i].p : s->in.at[GPU_H0].p;
    CU(cuMemsetD8Async(a.o, GPU_NAN_FILL, s->o[i].bytes, s->stream));
    if (i % 2)
        CU(cuMemcpyDtoDAsync(a.final_state, s->in.at[GPU_H0].p, s->in.at[GPU_H0].bytes, s->stream));
    else
        CU(cuMemsetD8Async(a.final_state, GPU_NAN_FILL, s->state[i].bytes, s->stream));
    GDN(gdn_execute_prefill(plan, &a, workspace->p, workspace->bytes, s->stream));
}

static struct bits read_bits(const struct stress *s, int i)
{
    struct bits bits = { gpu_malloc(s->o[i].bytes), gpu_malloc(s->state[i].bytes) };
    gpu_buffer_read(&s->o[i], bits.o);
    gpu_buffer_read(&s->state[i], bits.state);
    return bits;
}

static void free_bits(struct bits *bits)
{
    free(bits->o);
    free(bits->state);
}

static bool same(const struct stress *s, int i, const struct bits *first)
{
    struct bits now = read_bits(s, i);
    const bool equal =
        memcmp(now.o, first->o, s->o[i].bytes) == 0 && memcmp(now.state, first->state, s->state[i].bytes) == 0;
    free_bits(&now);
    return equal;
}

static struct gpu_buffer make_workspace(const gdn_plan *plan)
{
    const size_t bytes = gdn_plan_workspace_size(plan);
    return bytes ? gpu_buffer_filled(bytes, GPU_NAN_FILL) : gpu_no_buffer;
}

/* One call with the GPU to itself. */
static struct bits run_once(const struct stress *s, int num_sms, uint32_t flags)
{
    gdn_plan *plan = gpu_prefill_plan_with(ctx, options.device, &s->c.desc, flags, num_sms);
    struct gpu_buffer workspace = make_workspace(plan);
    enqueue(s, 0, plan, &workspace);
    gpu_wait(s->stream);
    struct bits bits = read_bits(s, 0);
    gpu_buffer_free(&workspace);
    gdn_plan_destroy(plan);
    return bits;
}

/* Pairs whose sequence has a cut at 1024 tokens. */
static int pairs_with_cuts(const struct stress *s)
{
    int pairs = 0;
    for (int n = 0; n < s->c.shape->num_seqs; ++n)
        pairs += s->c.shape->lens[n] > 1024 ? s->c.heads : 0;
    return pairs;
}

/* ---- rounds ----------------------------------------------------------------------------------------------------------- */

struct tally {
    bool counts; /* all kernels of its plans cut, and so count wrong guesses */
    int calls, repaired;
    const char *trouble;
};

/* CALLS calls beside a kernel that holds SMs. `until_end`: it leaves when they have ended. */
static void run_round(struct tally *t, const struct stress *s, const struct crowd *crowd, const gdn_plan *plan,
                      const struct gpu_buffer *workspace, struct rng *rng)
{
    const int ctas = 1 + rng_below(rng, crowd->num_sms - 1);
    const bool until_end = rng_below(rng, 2);
    const uint64_t ns = until_end ? 60000000000u : (uint64_t)(1000 + rng_below(rng, 200000));
    occupy(crowd, ctas, ns);
    if (until_end && !await_crowd(crowd, ctas)) t->trouble = "the kernel that is to hold SMs does not start";
    for (int i = 0; i < CALLS; ++i)
        enqueue(s, i, plan, workspace);
    if (until_end) CU(cuMemsetD8Async(crowd->words.p + 4, 1, 4, s->stream));
    gpu_wait(s->stream);
    gpu_wait(crowd->stream);
    const int repaired = t->counts && workspace->bytes ? gpu_repaired_pairs(workspace, s->c.shape->num_seqs * s->c.heads) : 0;
    if (t->repaired >= 0 && repaired != t->repaired) t->trouble = "another number of wrong guesses";
    t->repaired = repaired;
    t->calls += CALLS;
}

/* first: what plans for any number of SMs give; NULL: each gives its own. */
static void run_rounds(struct tally *t, const struct stress *s, uint32_t flags, const struct bits *first)
{
    static const int sms[] = { 0, 64, 17, 3 };
    struct crowd crowd = open_crowd();
    struct rng rng;
    rng_seed(&rng, options.seed);
    const int repeat = options.repeat ? options.repeat : DEFAULT_REPEAT;
    for (int k = 0; k < 4 && !t->trouble; ++k) {
        gdn_plan *plan = gpu_prefill_plan_with(ctx, options.device, &s->c.desc, flags, sms[k]);
        struct gpu_buffer workspace = make_workspace(plan);
        struct bits own = first ? (struct bits){ NULL, NULL } : run_once(s, sms[k], flags);
        if (!first) t->repaired = -1;
        while (t->calls < repeat * (k + 1) / 4 && !t->trouble) {
            run_round(t, s, &crowd, plan, &workspace, &rng);
            for (int i = 0; i < CALLS; ++i)
                if (!same(s, i, first ? first : &own))
                    t->trouble = i % 2 ? "in place gives other bits" : "a repeat gives other bits";
        }
        if (!gpu_buffer_guards_intact(&workspace)) t->trouble = "written beside the workspace";
        free_bits(&own);
        gpu_buffer_free(&workspace);
        gdn_plan_destroy(plan);
    }
    close_crowd(&crowd);
}

static const char *check_wrong_guesses(const struct stress *s, const struct tally *t, const struct bits *first)
{
    if (t->repaired != pairs_with_cuts(s)) return "not every pair with a cut had a wrong guess";
    /* By the same kernel: whole ones of few sequences have others too, with other bits. */
    struct bits whole = run_once(s, 0, GDN_PLAN_WHOLE_SEQUENCES | GDN_PLAN_BATCH_INVARIANT);
    const bool equal =
        memcmp(whole.o, first->o, s->o[0].bytes) == 0 && memcmp(whole.state, first->state, s->state[0].bytes) == 0;
    free_bits(&whole);
    return equal ? NULL : "what was repaired has other bits than whole sequences";
}

static void name_case(char *name, size_t size, int p, int f, const struct gdn_shape *shape, gdn_dtype type)
{
    snprintf(name, size, "stress %s %s %s%s", shape->name, families[f].name, type == GDN_BF16 ? "bf16" : "fp16", plans[p].name);
}

static void run_case(int p, int f, const struct gdn_shape *shape, gdn_dtype type)
{
    const uint32_t flags = plans[p].flags;
    struct stress s;
    struct tally t = { .counts = flags & GDN_PLAN_BATCH_INVARIANT, .repaired = -1 };
    char name[160], kernel[64], detail[256];
    name_case(name, sizeof name, p, f, shape, type);
    if (!gpu_selected(&options, name)) return;
    gpu_running(name);
    open_stress(&s, families[f].name, shape, type);
    gdn_plan *plan = gpu_prefill_plan_with(ctx, options.device, &s.c.desc, flags, 0);
    gpu_plan_kernel(plan, kernel, sizeof kernel);
    gdn_plan_destroy(plan);
    struct bits first = run_once(&s, 0, flags);
    run_rounds(&t, &s, flags, flags ? &first : NULL);
    const bool cut = flags && !strcmp(kernel, "gdn_prefill_hopper");
    if (!t.trouble && cut && families[f].all_wrong) t.trouble = check_wrong_guesses(&s, &t, &first);
    char repaired[64] = "";
    if (t.counts) snprintf(repaired, sizeof repaired, ", %d of %d pairs repaired", t.repaired, shape->num_seqs * s.c.heads);
    snprintf(detail, sizeof detail, "%s, %d calls%s%s%s", kernel, t.calls, repaired, t.trouble ? "  " : "",
             t.trouble ? t.trouble : "");
    gpu_report(!t.trouble, name, detail);
    free_bits(&first);
    close_stress(&s);
}

static void for_each(void (*run)(int p, int f, const struct gdn_shape *shape, gdn_dtype type))
{
    for (int f = 0; f < NUM_FAMILIES; ++f)
        for (int n = 0; n < (options.small ? 1 : NUM_SHAPES); ++n)
            for (int p = 0; p < NUM_PLANS; ++p) {
                run(p, f, &shapes[n], GDN_BF16);
                if (!options.small) run(p, f, &shapes[n], GDN_F16);
            }
}

static void print_case(int p, int f, const struct gdn_shape *shape, gdn_dtype type)
{
    char name[160];
    name_case(name, sizeof name, p, f, shape, type);
    printf("%s\n", name);
}

/* One case at a time: the GPU is the calls' and the other kernel's. */
int main(int argc, char **argv)
{
    options = gpu_parse_options(argc, argv, GDN_CASE_SEED);
    if (options.list) {
        for_each(print_case);
        return 0;
    }
    gpu_require_device(&options);
    ctx = gpu_context();
    for_each(run_case);
    gdn_ctx_destroy(ctx);
    return gpu_summary();
}
