/*
 * test_conv1d.c - conv1d-QKV on the device against a double loop: every situation of conv_cases in every variant of
 * conv_variants that can express it. Outputs within half an ulp and a float32 evaluation's error, states bit for bit,
 * everything else untouched.
 *
 * Each case runs eagerly, and again by a graph that was captured while cu_seqlens said that all sequences were empty and the
 * slots that all were inert: the replay must read both as they are at its moment and give the same bits. --repeat N runs it N
 * times more on the same buffers.
 */
#include <string.h>

#include "conv_cases.h"
#include "gpu_params.h"
#include "gpu_prefill.h"

struct job {
    const struct conv_spec *spec;
    const struct conv_variant *variant; /* NULL: the far rows */
};

static struct gpu_options options;
static gdn_ctx *ctx;
static FILE *results;

static void name_job(char *out, size_t size, const struct job *j)
{
    static const char *const types[] = { "same", "bf16", "fp16", "fp32" };
    static const char *const layouts[] = { "?", "cw", "wc", "cwp" };
    const struct conv_variant *v = j->variant;
    if (!v) {
        snprintf(out, size, "conv1d far rows");
        return;
    }
    snprintf(out, size, "conv1d %s %s state=%s width=%d %s%s gates=%s flags=0x%x align=%d variant=%d seed=%llu",
             j->spec->name, types[v->io_type], types[v->state_type], v->width, layouts[v->state_layout],
             v->x_layout == GDN_CONV_X_INTERLEAVED ? " interleaved" : "", v->gate_type ? types[v->gate_type] : "no", v->flags,
             v->vector_bytes, (int)(v - conv_variants), (unsigned long long)options.seed);
}

/* Small: the first two variants, the plain layer and a whole prologue, without the longest situations. */
static bool selected(const struct job *j)
{
    char name[256];
    const bool few = j->variant && j->variant - conv_variants < 2;
    if (options.small && !(few && j->spec->num_seqs <= CONV_SPEC_MAX_SEQS)) return false;
    name_job(name, sizeof name, j);
    return gpu_selected(&options, name);
}

static bool expressible(const struct job *j)
{
    struct conv_case c;
    if (!j->variant) return true;
    if (!conv_case_make(&c, j->spec, j->variant, 0)) return false;
    conv_case_free(&c);
    return true;
}

static int select_jobs(struct job *jobs)
{
    int count = 0;
    for (int i = 0; i <= conv_num_specs * CONV_NUM_VARIANTS; ++i) {
        struct job j = { &conv_specs[i / CONV_NUM_VARIANTS % conv_num_specs], &conv_variants[i % CONV_NUM_VARIANTS] };
        if (i == conv_num_specs * CONV_NUM_VARIANTS) j.variant = NULL;
        if (!selected(&j) || !expressible(&j)) continue;
        if (jobs) jobs[count] = j;
        ++count;
    }
    return count;
}

/* ---- one case on the device --------------------------------------------------------------------------------------------- */

struct tensors {
    struct gpu_buffer x, weight, bias, a, b, a_log, dt_bias, slot_in, slot_out, has_initial, cu, checkpoints; /* read */
    struct gpu_buffer q, k, v, g, beta, state;                                                               /* written */
};
enum { NUM_TENSORS = sizeof(struct tensors) / sizeof(struct gpu_buffer) };

static struct gpu_buffer upload(const struct conv_buffer *b)
{
    return b->data ? gpu_buffer_from(b->data, conv_buffer_bytes(b)) : gpu_no_buffer;
}

static struct tensors upload_case(const struct conv_case *c, const struct conv_outputs *start)
{
    return (struct tensors){
        .x = upload(&c->x),
        .weight = upload(&c->weight),
        .bias = upload(&c->bias),
        .a = upload(&c->a),
        .b = upload(&c->b),
        .a_log = upload(&c->a_log),
        .dt_bias = upload(&c->dt_bias),
        .slot_in = upload(&c->slot_in),
        .slot_out = upload(&c->slot_out),
        .has_initial = upload(&c->has_initial),
        .cu = c->args.cu_seqlens ? upload(&c->cu) : gpu_no_buffer,
        .checkpoints = upload(&c->checkpoints),
        .q = upload(&start->q),
        .k = upload(&start->k),
        .v = upload(&start->v),
        .g = upload(&start->g),
        .beta = upload(&start->beta),
        .state = upload(&start->state),
    };
}

static gdn_conv1d_args device_args(const struct conv_case *c, const struct tensors *t)
{
    gdn_conv1d_args args = c->args;
    args.x = t->x.p + (gdn_devptr)c->spec->x_offset * (c->x.type == GDN_F32 ? 4 : 2);
    args.weight = t->weight.p, args.bias = t->bias.p;
    args.a = t->a.p, args.b = t->b.p;
    args.a_log = t->a_log.p, args.dt_bias = args.dt_bias ? t->dt_bias.p : 0;
    args.slot_in = t->slot_in.p, args.slot_out = t->slot_out.p;
    args.has_initial_state = t->has_initial.p;
    args.cu_seqlens = t->cu.p;
    args.checkpoints = t->checkpoints.p;
    args.q = t->q.p, args.k = t->k.p, args.v = t->v.p;
    args.g = t->g.p, args.beta = t->beta.p;
    args.state = t->state.p;
    return args;
}

static void read_outputs(const struct tensors *t, struct conv_outputs *out)
{
    const struct gpu_buffer *const from[] = { &t->q, &t->k, &t->v, &t->g, &t->beta, &t->state };
    const struct conv_buffer *const to[] = { &out->q, &out->k, &out->v, &out->g, &out->beta, &out->state };
    for (size_t i = 0; i < sizeof from / sizeof from[0]; ++i)
        if (to[i]->data) gpu_buffer_read(from[i], to[i]->data);
}

/* False when something beside a buffer was written. */
static bool free_tensors(struct tensors *t)
{
    struct gpu_buffer *all = (struct gpu_buffer *)t;
    bool intact = true;
    for (int i = 0; i < NUM_TENSORS; ++i) {
        intact &= gpu_buffer_guards_intact(&all[i]);
        gpu_buffer_free(&all[i]);
    }
    return intact;
}

static gdn_stream new_stream(void)
{
    gdn_stream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* Into out, which holds the poison and the state before the call. False when something beside a buffer was written. */
static bool run_eager(const gdn_plan *plan, const struct conv_case *c, struct conv_outputs *out)
{
    struct tensors t = upload_case(c, out);
    const gdn_conv1d_args args = device_args(c, &t);
    gdn_stream stream = new_stream();
    GDN(gdn_execute_conv1d_qkv(plan, &args, stream));
    gpu_wait(stream);
    CU(cuStreamDestroy(stream));
    read_outputs(&t, out);
    return free_tensors(&t);
}

/* Device arrays whose contents a replay may change, as they are when nothing is to be done. */
static void set_idle(const struct tensors *t, gdn_stream stream)
{
    if (t->cu.p) CU(cuMemsetD8Async(t->cu.p, 0, t->cu.bytes, stream));
    if (t->slot_in.p) CU(cuMemsetD8Async(t->slot_in.p, 0xff, t->slot_in.bytes, stream));
    if (t->checkpoints.p) CU(cuMemsetD8Async(t->checkpoints.p, 0xff, t->checkpoints.bytes, stream));
}

static void set_real(const struct tensors *t, const struct conv_case *c, gdn_stream stream)
{
    if (t->cu.p) CU(cuMemcpyHtoDAsync(t->cu.p, c->cu.data, t->cu.bytes, stream));
    if (t->slot_in.p) CU(cuMemcpyHtoDAsync(t->slot_in.p, c->slot_in.data, t->slot_in.bytes, stream));
    if (t->checkpoints.p) CU(cuMemcpyHtoDAsync(t->checkpoints.p, c->checkpoints.data, t->checkpoints.bytes, stream));
}

/* Replayed idle first, where there is something to make it so: but for zeroed padding nothing may be written then. */
static bool run_replay(const gdn_plan *plan, const struct conv_case *c, struct conv_outputs *out)
{
    struct tensors t = upload_case(c, out);
    const gdn_conv1d_args args = device_args(c, &t);
    const bool idle = t.cu.p && t.slot_in.p && !(c->desc.flags & GDN_CONV_ZERO_PADDING);
    gdn_stream stream = new_stream();
    if (idle) set_idle(&t, stream);
    cu_capture_begin(stream);
    GDN(gdn_execute_conv1d_qkv(plan, &args, stream));
    size_t nodes = 0;
    cu_graph_exec graph = cu_capture_end(stream, &nodes);
    if (idle) CU(cuGraphLaunch(graph, stream));
    if (idle) set_real(&t, c, stream);
    CU(cuGraphLaunch(graph, stream));
    gpu_wait(stream);
    CU(cuGraphExecDestroy(graph));
    CU(cuStreamDestroy(stream));
    read_outputs(&t, out);
    return free_tensors(&t) && nodes <= 1;
}

static const char *compare_replay(const gdn_plan *plan, const struct conv_case *c, const struct conv_outputs *first)
{
    struct conv_outputs out;
    conv_outputs_make(&out, c);
    const bool intact = run_replay(plan, c, &out), same = conv_outputs_equal(first, &out);
    conv_outputs_free(&out);
    return !intact ? "the replay wrote beside a buffer, or has more than one node" : same ? "" : "the replay gives other bits";
}

/* On the same buffers, the state put back each time. */
static const char *compare_repeats(const gdn_plan *plan, const struct conv_case *c, const struct conv_outputs *first)
{
    struct conv_outputs out;
    const char *trouble = "";
    conv_outputs_make(&out, c);
    struct tensors t = upload_case(c, &out);
    const gdn_conv1d_args args = device_args(c, &t);
    gdn_stream stream = new_stream();
    for (int i = 0; i < options.repeat && !*trouble; ++i) {
        if (t.state.p) CU(cuMemcpyHtoDAsync(t.state.p, c->state.data, t.state.bytes, stream));
        GDN(gdn_execute_conv1d_qkv(plan, &args, stream));
        gpu_wait(stream);
        read_outputs(&t, &out);
        if (!conv_outputs_equal(first, &out)) trouble = "a repeat gives other bits";
    }
    CU(cuStreamDestroy(stream));
    free_tensors(&t);
    conv_outputs_free(&out);
    return trouble;
}

static gdn_plan *make_plan(const gdn_conv1d_desc *desc)
{
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    struct gdni_problem problem;
    GDN(gdni_problem_from_conv1d(&problem, desc));
    gpu_force_for(ctx, &target, &problem);
    GDN(gdn_plan_conv1d_qkv(ctx, &target, desc, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    return plan;
}

static void write_result(const struct job *j, const struct conv_report *r, bool passed)
{
    if (!results) return;
    fprintf(results, "%s\t%d\t%llu\t%.3f\t%lld\t%lld\t%lld\t%lld\t%s\n", j->spec->name, (int)(j->variant - conv_variants),
            (unsigned long long)options.seed, r->worst, (long long)r->wrong_outputs, (long long)r->wrong_gates,
            (long long)r->wrong_state, (long long)r->touched, passed ? "pass" : "fail");
}

static void run_case(const struct job *j, const char *name)
{
    char detail[480];
    struct conv_case c;
    struct conv_outputs out;
    struct conv_report report;
    if (!conv_case_make(&c, j->spec, j->variant, options.seed)) return;
    conv_outputs_make(&out, &c);
    gdn_plan *plan = make_plan(&c.desc);
    const char *trouble = run_eager(plan, &c, &out) ? "" : "written beside a buffer";
    const bool right = conv_case_check(&report, &c, &out);
    if (!*trouble) trouble = compare_replay(plan, &c, &out);
    if (!*trouble) trouble = compare_repeats(plan, &c, &out);
    const bool passed = right && !*trouble;
    snprintf(detail, sizeof detail,
             "worst %.2f of the allowed interval, %lld outputs, %lld gates, %lld state, %lld touched  %s %s",
             report.worst, (long long)report.wrong_outputs, (long long)report.wrong_gates, (long long)report.wrong_state,
             (long long)report.touched, report.first, trouble);
    gpu_report(passed, name, detail);
    write_result(j, &report, passed);
    gdn_plan_destroy(plan);
    conv_outputs_free(&out);
    conv_case_free(&c);
}

/* ---- rows, outputs and lines past 2^31 elements -------------------------------------------------------------------------- */

enum { FAR_ROWS = 4, FAR_DIM = 16, FAR_WIDTH = 4 };
static const int64_t FAR_PITCH = ((int64_t)1 << 31) - 64; /* elements */

struct far {
    gdn_devptr x, q, state; /* 13 GB each, of which only the rows are touched */
};

static bool far_alloc(struct far *f)
{
    const size_t bytes = ((size_t)FAR_PITCH * (FAR_ROWS - 1) + 4096) * 2;
    *f = (struct far){ 0, 0, 0 };
    return cu.cuMemAlloc(&f->x, bytes) == 0 && cu.cuMemAlloc(&f->q, bytes) == 0 && cu.cuMemAlloc(&f->state, bytes) == 0;
}

static void far_free(struct far *f)
{
    if (f->x) CU(cuMemFree(f->x));
    if (f->q) CU(cuMemFree(f->q));
    if (f->state) CU(cuMemFree(f->state));
}

/* Taps 0, 0, 0, 1 and no SiLU: row t of q is row t of x, and line 3, FAR_PITCH apart, takes the last three rows. */
static bool far_run(const struct far *f)
{
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    uint16_t weight[FAR_DIM * FAR_WIDTH] = { 0 }, rows[FAR_ROWS][FAR_DIM], got[FAR_DIM], line[FAR_DIM * (FAR_WIDTH - 1)];
    const int32_t slot = FAR_ROWS - 1;
    bool right = true;
    desc.num_q_heads = 1, desc.head_dim_qk = FAR_DIM, desc.flags = 0, desc.max_tokens = FAR_ROWS, desc.max_seqs = 1;
    for (int c = 0; c < FAR_DIM; ++c)
        weight[c * FAR_WIDTH + FAR_WIDTH - 1] = 0x3f80; /* 1 */
    for (int r = 0; r < FAR_ROWS; ++r) {
        for (int c = 0; c < FAR_DIM; ++c)
            rows[r][c] = (uint16_t)(0x4000 + r * FAR_DIM + c);
        cu_copy_in(f->x + (gdn_devptr)(r * FAR_PITCH * 2), rows[r], sizeof rows[r]);
    }
    struct gpu_buffer w = gpu_buffer_from(weight, sizeof weight), s = gpu_buffer_from(&slot, sizeof slot);
    const uint8_t none = 0;
    struct gpu_buffer initial = gpu_buffer_from(&none, 1);
    args.x = f->x, args.weight = w.p, args.q = f->q, args.state = f->state, args.slot_in = s.p;
    args.has_initial_state = initial.p;
    args.num_tokens = FAR_ROWS, args.num_seqs = 1;
    args.x_stride = args.q_strides.token = args.state_slot_stride = FAR_PITCH;
    gdn_plan *plan = make_plan(&desc);
    gdn_stream stream = new_stream();
    GDN(gdn_execute_conv1d_qkv(plan, &args, stream));
    gpu_wait(stream);
    CU(cuStreamDestroy(stream));
    for (int r = 0; r < FAR_ROWS; ++r) {
        CU(cuMemcpyDtoH(got, f->q + (gdn_devptr)(r * FAR_PITCH * 2), sizeof got));
        right &= memcmp(got, rows[r], sizeof got) == 0;
    }
    CU(cuMemcpyDtoH(line, f->state + (gdn_devptr)(slot * FAR_PITCH * 2), sizeof line));
    for (int c = 0; c < FAR_DIM; ++c)
        for (int j = 0; j < FAR_WIDTH - 1; ++j)
            right &= line[c * (FAR_WIDTH - 1) + j] == rows[FAR_ROWS - FAR_WIDTH + 1 + j][c];
    gdn_plan_destroy(plan);
    gpu_buffer_free(&w), gpu_buffer_free(&s), gpu_buffer_free(&initial);
    return right;
}

static void run_far(const char *name)
{
    struct far f;
    if (far_alloc(&f))
        gpu_report(far_run(&f), name, "rows, outputs and lines 2^31 - 64 elements apart");
    else
        printf("skipped: %s: needs 39 GB of device memory\n", name);
    far_free(&f);
}

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    char name[256];
    name_job(name, sizeof name, j);
    gpu_running(name);
    if (j->variant)
        run_case(j, name);
    else
        run_far(name);
}

int main(int argc, char **argv)
{
    options = gpu_parse_options(argc, argv, CONV_CASE_SEED);
    const int count = select_jobs(NULL);
    struct job *jobs = gpu_malloc((size_t)count * sizeof *jobs);
    select_jobs(jobs);
    for (int i = 0; options.list && i < count; ++i) {
        char name[256];
        name_job(name, sizeof name, &jobs[i]);
        puts(name);
    }
    if (options.list) return 0;
    gpu_require_device(&options);
    ctx = gpu_context();
    results = gpu_results_open(&options, "conv1d.tsv",
                               "case\tvariant\tseed\tworst_of_interval\twrong_outputs\twrong_gates\twrong_state\ttouched\t"
                               "result");
    gpu_parallel(&options, count, run_job, jobs);
    if (results) fclose(results);
    gdn_ctx_destroy(ctx);
    free(jobs);
    return gpu_summary();
}
