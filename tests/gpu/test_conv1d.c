/*
 * test_conv1d.c - conv1d-QKV on the device against a double loop: every situation of the table, width, state layout, flag and
 * dtype. Outputs within half an ulp and a float32 evaluation's error, states bit for bit, everything else untouched.
 *
 * Each case runs eagerly, and again by a graph that was captured while cu_seqlens said that all sequences were empty: the
 * replay must read the lengths of its moment and give the same bits.
 */
#include <string.h>

#include "conv_cases.h"
#include "gpu_prefill.h"

struct job {
    const struct conv_spec *spec;
    gdn_dtype dtype;
    int width;
    gdn_conv_state_layout layout;
    uint32_t flags;
};

enum { PER_SPEC = 2 * 3 * 2 * 4 };

static struct gpu_options options;
static gdn_ctx *ctx;
static FILE *results;

static struct job job_at(int i)
{
    const int spec = i / PER_SPEC, rest = i % PER_SPEC;
    return (struct job){ &conv_specs[spec], rest & 1 ? GDN_F16 : GDN_BF16, 2 + rest / 16,
                         rest & 2 ? GDN_CONV_STATE_WC : GDN_CONV_STATE_CW, (uint32_t)(rest >> 2 & 3) };
}

static void name_job(char *out, size_t size, const struct job *j)
{
    snprintf(out, size, "conv1d %s %s width=%d %s%s%s seed=%llu", j->spec->name, j->dtype == GDN_BF16 ? "bf16" : "fp16",
             j->width, j->layout == GDN_CONV_STATE_CW ? "cw" : "wc", j->flags & GDN_CONV_SILU ? " silu" : "",
             j->flags & GDN_CONV_BIAS ? " bias" : "", (unsigned long long)options.seed);
}

static bool selected(const struct job *j)
{
    char name[160];
    const bool usual = j->width == 4 && j->flags == GDN_CONV_SILU && j->layout == GDN_CONV_STATE_CW;
    const bool other = j->width == 2 && j->flags == GDN_CONV_BIAS && j->layout == GDN_CONV_STATE_WC;
    const bool small = (usual || other) && j->spec->num_seqs <= CONV_SPEC_MAX_SEQS;
    if (options.small && !small) return false;
    name_job(name, sizeof name, j);
    return gpu_selected(&options, name);
}

static int select_jobs(struct job *jobs)
{
    int count = 0;
    for (int i = 0; i < conv_num_specs * PER_SPEC; ++i) {
        const struct job j = job_at(i);
        if (!selected(&j)) continue;
        if (jobs) jobs[count] = j;
        ++count;
    }
    return count;
}

/* ---- one case on the device --------------------------------------------------------------------------------------------- */

struct tensors {
    struct gpu_buffer x, weight, bias, slots, has_initial, cu; /* read */
    struct gpu_buffer q, k, v, state;                          /* written */
};

static struct gpu_buffer upload(const void *host, size_t bytes)
{
    return host ? gpu_buffer_from(host, bytes) : gpu_no_buffer;
}

static struct tensors upload_case(const struct conv_case *c, const struct conv_outputs *start)
{
    const size_t n = (size_t)c->args.num_seqs, channels = (size_t)c->channels;
    return (struct tensors){
        .x = upload(c->x_storage, (size_t)c->x_count * 2),
        .weight = upload(c->weight, channels * (size_t)c->desc.width * 2),
        .bias = upload(c->bias, channels * 2),
        .slots = upload(c->slots, n * 4),
        .has_initial = upload(c->has_initial, n),
        .cu = upload(c->args.cu_seqlens ? c->cu : NULL, (n + 1) * 4),
        .q = upload(c->desc.num_q_heads ? start->q : NULL, (size_t)c->q_count * 2),
        .k = upload(c->desc.num_k_heads ? start->k : NULL, (size_t)c->k_count * 2),
        .v = upload(c->desc.num_v_heads ? start->v : NULL, (size_t)c->v_count * 2),
        .state = upload(start->state, (size_t)c->state_count * 2),
    };
}

static gdn_conv1d_args device_args(const struct conv_case *c, const struct tensors *t)
{
    gdn_conv1d_args args = c->args;
    args.x = t->x.p + (gdn_devptr)c->spec->x_offset * 2;
    args.weight = t->weight.p;
    args.bias = t->bias.p;
    args.slots = t->slots.p;
    args.has_initial_state = t->has_initial.p;
    args.cu_seqlens = t->cu.p;
    args.q = t->q.p, args.k = t->k.p, args.v = t->v.p;
    args.state = t->state.p;
    return args;
}

static bool read_back(struct tensors *t, struct conv_outputs *out)
{
    struct gpu_buffer *const all[] = { &t->x,  &t->weight, &t->bias, &t->slots, &t->has_initial,
                                       &t->cu, &t->q,      &t->k,    &t->v,     &t->state };
    bool intact = true;
    gpu_buffer_read(&t->q, out->q);
    gpu_buffer_read(&t->k, out->k);
    gpu_buffer_read(&t->v, out->v);
    gpu_buffer_read(&t->state, out->state);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
        intact &= gpu_buffer_guards_intact(all[i]);
        gpu_buffer_free(all[i]);
    }
    return intact;
}

/* Into out, which holds the poison and the state before the call. False when something beside a buffer was written. */
static bool run_eager(const gdn_plan *plan, const struct conv_case *c, struct conv_outputs *out)
{
    struct tensors t = upload_case(c, out);
    const gdn_conv1d_args args = device_args(c, &t);
    gdn_stream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GDN(gdn_execute_conv1d_qkv(plan, &args, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
    return read_back(&t, out);
}

static bool run_replay(const gdn_plan *plan, const struct conv_case *c, struct conv_outputs *out)
{
    struct tensors t = upload_case(c, out);
    const gdn_conv1d_args args = device_args(c, &t);
    gdn_stream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (t.cu.p) CU(cuMemsetD8Async(t.cu.p, 0, t.cu.bytes, stream));
    cu_capture_begin(stream);
    GDN(gdn_execute_conv1d_qkv(plan, &args, stream));
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    if (t.cu.p) {
        CU(cuGraphLaunch(graph, stream)); /* all sequences empty: nothing may be written */
        CU(cuMemcpyHtoDAsync(t.cu.p, c->cu, t.cu.bytes, stream));
    }
    CU(cuGraphLaunch(graph, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuGraphExecDestroy(graph));
    CU(cuStreamDestroy(stream));
    return read_back(&t, out);
}

static bool same_bits(const struct conv_case *c, const struct conv_outputs *a, const struct conv_outputs *b)
{
    return !memcmp(a->q, b->q, (size_t)c->q_count * 2) && !memcmp(a->k, b->k, (size_t)c->k_count * 2) &&
           !memcmp(a->v, b->v, (size_t)c->v_count * 2) &&
           (!c->state || !memcmp(a->state, b->state, (size_t)c->state_count * 2));
}

/* The replay, and as many eager runs as were asked for. */
static const char *run_again(const gdn_plan *plan, const struct conv_case *c, const struct conv_outputs *first)
{
    const char *trouble = "";
    for (int i = 0; i < 1 + options.repeat && !*trouble; ++i) {
        struct conv_outputs out;
        conv_outputs_make(&out, c);
        const bool intact = i == 0 ? run_replay(plan, c, &out) : run_eager(plan, c, &out);
        if (!intact)
            trouble = "written beside a buffer";
        else if (!same_bits(c, first, &out))
            trouble = i == 0 ? "the replay gives other bits" : "a repeat gives other bits";
        conv_outputs_free(&out);
    }
    return trouble;
}

static gdn_plan *make_plan(const struct conv_case *c)
{
    gdn_conv1d_desc desc = c->desc;
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan;
    GDN(gdn_target_from_device(ctx, options.device, &target));
    GDN(gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &plan));
    GDN(gdn_plan_load(plan, options.device));
    return plan;
}

static void write_result(const struct job *j, const struct conv_report *r, bool passed)
{
    if (!results) return;
    fprintf(results, "%s\t%s\t%d\t%s\t%d\t%d\t%llu\t%.3f\t%lld\t%lld\t%lld\t%s\n", j->spec->name,
            j->dtype == GDN_BF16 ? "bf16" : "fp16", j->width, j->layout == GDN_CONV_STATE_CW ? "cw" : "wc",
            (j->flags & GDN_CONV_SILU) != 0, (j->flags & GDN_CONV_BIAS) != 0, (unsigned long long)options.seed,
            r->worst, (long long)r->wrong_outputs, (long long)r->wrong_state, (long long)r->touched,
            passed ? "pass" : "fail");
}

static void run_job(void *user, int i)
{
    const struct job *j = &((const struct job *)user)[i];
    char name[160], detail[384];
    struct conv_case c;
    struct conv_outputs out;
    struct conv_report report;
    name_job(name, sizeof name, j);
    conv_case_make(&c, j->spec, j->dtype, j->width, j->layout, j->flags, options.seed);
    conv_outputs_make(&out, &c);
    gdn_plan *plan = make_plan(&c);
    const bool intact = run_eager(plan, &c, &out);
    const bool right = conv_case_check(&report, &c, &out);
    const char *trouble = intact ? run_again(plan, &c, &out) : "written beside a buffer";
    const bool passed = right && !*trouble;
    snprintf(detail, sizeof detail, "worst %.2f of the allowed interval, %lld outputs, %lld state, %lld touched  %s %s",
             report.worst, (long long)report.wrong_outputs, (long long)report.wrong_state, (long long)report.touched,
             report.first, trouble);
    gpu_report(passed, name, detail);
    write_result(j, &report, passed);
    gdn_plan_destroy(plan);
    conv_outputs_free(&out);
    conv_case_free(&c);
}

int main(int argc, char **argv)
{
    options = gpu_parse_options(argc, argv, CONV_CASE_SEED);
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
    ctx = gpu_context();
    results =
        gpu_results_open(&options, "conv1d.tsv",
                         "case\tdtype\twidth\tlayout\tsilu\tbias\tseed\tworst_of_interval\twrong_outputs\twrong_state\t"
                         "touched\tresult");
    gpu_parallel(&options, count, run_job, jobs);
    if (results) fclose(results);
    gdn_ctx_destroy(ctx);
    free(jobs);
    return gpu_summary();
}
