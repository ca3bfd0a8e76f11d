/*
 * device.c - see device.h. Owns device memory and the stream; everything is synchronous, as a demonstration may be.
 */
#include "demo_layer/device.h"

#include <time.h>

#include "cuda_mini.h"

enum { NUM_TENSORS = 12, REPLAYS = 50, CALLS = 200 };

/* A batch's tensors in device memory. */
struct device_batch {
    gdn_conv1d_args conv;
    gdn_prefill_args gdn;
    gdn_devptr all[NUM_TENSORS];
    int count;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static gdn_devptr keep(struct device_batch *d, gdn_devptr p)
{
    return d->all[d->count++] = p;
}

static struct device_batch upload(const struct layer *l, const struct batch *b, const struct states *s)
{
    struct device_batch d = { .conv = GDN_CONV1D_ARGS_INIT, .gdn = GDN_PREFILL_ARGS_INIT };
    const size_t t = (size_t)batch_tokens(b), n = (size_t)b->num_seqs, hv = (size_t)l->v_heads;
    const size_t qk_bytes = t * (size_t)l->k_heads * HEAD_DIM * 2, v_bytes = t * hv * HEAD_DIM * 2;
    d.conv.x = keep(&d, cu_upload(b->x, t * (size_t)l->row * 2));
    d.conv.x_stride = l->row;
    d.conv.weight = keep(&d, cu_upload(l->conv_weight, (size_t)l->channels * CONV_WIDTH * 2));
    d.conv.q = d.gdn.q = keep(&d, cu_alloc(qk_bytes));
    d.conv.k = d.gdn.k = keep(&d, cu_alloc(qk_bytes));
    d.conv.v = d.gdn.v = keep(&d, cu_alloc(v_bytes));
    d.conv.state = keep(&d, cu_upload(s->conv, n * l->conv_state * 2));
    d.conv.cu_seqlens = d.gdn.cu_seqlens = keep(&d, cu_upload(b->cu_seqlens, (n + 1) * sizeof b->cu_seqlens[0]));
    d.gdn.g = keep(&d, cu_upload(b->g, t * hv * sizeof *b->g));
    d.gdn.beta = keep(&d, cu_upload(b->beta, t * hv * sizeof *b->beta));
    d.gdn.o = keep(&d, cu_alloc(v_bytes));
    d.gdn.initial_state = d.gdn.final_state = keep(&d, cu_upload(s->gdn, n * l->gdn_state * sizeof *s->gdn));
    d.conv.num_tokens = d.gdn.num_tokens = batch_tokens(b);
    d.conv.num_seqs = d.gdn.num_seqs = b->num_seqs;
    return d;
}

static void release(struct device_batch *d)
{
    for (int i = 0; i < d->count; ++i)
        CU(cuMemFree(d->all[i]));
}

/* Time until the kernel has run. */
static double run_conv(gdn_ctx *ctx, const struct layer *l, const struct device_batch *d)
{
    const gdn_conv1d_desc desc = layer_conv_desc(l);
    const double start = now_us();
    GDN(gdn_conv1d_qkv(ctx, &desc, &d->conv, NULL));
    CU(cuStreamSynchronize(NULL));
    return (now_us() - start) * 1e-3;
}

static double run_gdn(gdn_ctx *ctx, const struct layer *l, const struct device_batch *d)
{
    const gdn_prefill_desc desc = layer_gdn_desc(l);
    const double start = now_us();
    GDN(gdn_prefill(ctx, &desc, &d->gdn, 0, 0, NULL));
    CU(cuStreamSynchronize(NULL));
    return (now_us() - start) * 1e-3;
}

/* The step that runs on the host: q and k go there and back. */
static void normalize_between(const struct layer *l, const struct device_batch *d, struct outputs *out)
{
    const size_t bytes = (size_t)d->conv.num_tokens * (size_t)l->k_heads * HEAD_DIM * 2;
    CU(cuMemcpyDtoH(out->q, d->conv.q, bytes));
    CU(cuMemcpyDtoH(out->k, d->conv.k, bytes));
    normalize_heads(l, out->q, out->k, (int32_t)d->conv.num_tokens);
    cu_copy_in(d->conv.q, out->q, bytes);
    cu_copy_in(d->conv.k, out->k, bytes);
}

struct call_times layer_on_device(gdn_ctx *ctx, const struct layer *l, const struct batch *b, struct states *states,
                                  struct outputs *out)
{
    struct device_batch d = upload(l, b, states);
    const size_t n = (size_t)b->num_seqs, v_bytes = (size_t)batch_tokens(b) * (size_t)l->v_heads * HEAD_DIM * 2;
    struct call_times times;
    times.conv_ms = run_conv(ctx, l, &d);
    normalize_between(l, &d, out);
    times.gdn_ms = run_gdn(ctx, l, &d);
    CU(cuMemcpyDtoH(out->v, d.conv.v, v_bytes));
    CU(cuMemcpyDtoH(out->o, d.gdn.o, v_bytes));
    CU(cuMemcpyDtoH(states->conv, d.conv.state, n * l->conv_state * 2));
    CU(cuMemcpyDtoH(states->gdn, d.gdn.final_state, n * l->gdn_state * sizeof *states->gdn));
    release(&d);
    return times;
}

/* ---- times --------------------------------------------------------------------------------------------------------------- */

static void one_call(gdn_ctx *ctx, const struct layer *l, const struct device_batch *d, int is_conv, gdn_stream stream)
{
    const gdn_conv1d_desc conv = layer_conv_desc(l);
    const gdn_prefill_desc gdn = layer_gdn_desc(l);
    if (is_conv)
        GDN(gdn_conv1d_qkv(ctx, &conv, &d->conv, stream));
    else
        GDN(gdn_prefill(ctx, &gdn, &d->gdn, 0, 0, stream));
}

static double kernel_us(gdn_ctx *ctx, const struct layer *l, const struct device_batch *d, int is_conv,
                        gdn_stream stream)
{
    float ms = 0.0f;
    cu_event start, stop;
    CU(cuEventCreate(&start, 0));
    CU(cuEventCreate(&stop, 0));
    cu_capture_begin(stream);
    one_call(ctx, l, d, is_conv, stream);
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    for (int i = 0; i < 2 * REPLAYS; ++i) {
        if (i == REPLAYS) CU(cuEventRecord(start, stream)); /* the first half warms up */
        CU(cuGraphLaunch(graph, stream));
    }
    CU(cuEventRecord(stop, stream));
    CU(cuEventSynchronize(stop));
    CU(cuEventElapsedTime(&ms, start, stop));
    CU(cuGraphExecDestroy(graph));
    CU(cuEventDestroy(start));
    CU(cuEventDestroy(stop));
    return (double)ms * 1e3 / REPLAYS;
}

static double host_us(gdn_ctx *ctx, const struct layer *l, const struct device_batch *d, int is_conv, gdn_stream stream)
{
    const double start = now_us();
    for (int i = 0; i < CALLS; ++i)
        one_call(ctx, l, d, is_conv, stream);
    const double us = (now_us() - start) / CALLS;
    CU(cuStreamSynchronize(stream));
    return us;
}

struct device_times layer_times(gdn_ctx *ctx, const struct layer *l, const struct batch *b)
{
    struct states zero = states_zero(l, b->num_seqs);
    struct device_batch d = upload(l, b, &zero);
    struct outputs scratch = outputs_create(l, batch_tokens(b));
    struct device_times times;
    gdn_stream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    run_conv(ctx, l, &d);
    normalize_between(l, &d, &scratch); /* so that the states stay finite, whatever the number of replays */
    times.gdn_kernel = kernel_us(ctx, l, &d, 0, stream);
    times.gdn_host = host_us(ctx, l, &d, 0, stream);
    times.conv_kernel = kernel_us(ctx, l, &d, 1, stream);
    times.conv_host = host_us(ctx, l, &d, 1, stream);
    CU(cuStreamDestroy(stream));
    release(&d);
    outputs_free(&scratch);
    states_free(&zero);
    return times;
}
