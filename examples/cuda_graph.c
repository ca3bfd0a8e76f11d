/*
 * cuda_graph.c - conv1d-QKV and GDN prefill captured into one CUDA graph and replayed with other sequence lengths.
 *
 * The lengths live in device memory: a replay reads the cu_seqlens of the moment, within the num_tokens of the capture.
 */
#include "cuda_mini.h"
#include "example_data.h"

enum { T = 1024, N = 4, HK = 2, HV = 4, D = 128, C = (2 * HK + HV) * D, PITCH = C + HV * D /* [q | k | v | z] */ };

static gdn_plan *plan_conv(gdn_ctx *ctx, const gdn_target *target)
{
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT; /* bf16, width 4, SiLU */
    gdn_plan *plan;
    desc.num_q_heads = desc.num_k_heads = HK;
    desc.num_v_heads = HV;
    desc.head_dim_qk = desc.head_dim_v = D;
    desc.max_tokens = T;
    desc.max_seqs = N;
    GDN(gdn_plan_conv1d_qkv(ctx, target, &desc, 0, &plan));
    GDN(gdn_plan_load(plan, 0));
    return plan;
}

static gdn_plan *plan_prefill(gdn_ctx *ctx, const gdn_target *target)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    gdn_plan *plan;
    desc.num_q_heads = desc.num_k_heads = HK;
    desc.num_v_heads = HV;
    desc.head_dim_qk = desc.head_dim_v = D;
    desc.max_tokens = T;
    desc.max_seqs = N;
    GDN(gdn_plan_prefill(ctx, target, &desc, 0, &plan));
    GDN(gdn_plan_load(plan, 0));
    return plan;
}

static void fill_args(gdn_conv1d_args *conv, gdn_prefill_args *gdn)
{
    conv->x =
        cu_upload(example_bf16(T * PITCH, 0.2f, 1), T * PITCH * 2); /* small: no L2 norm between the operators here */
    conv->x_stride = PITCH;
    conv->weight = cu_upload(example_bf16(C * 4, 0.5f, 2), C * 4 * 2);
    conv->q = gdn->q = cu_alloc(T * HK * D * 2);
    conv->k = gdn->k = cu_alloc(T * HK * D * 2);
    conv->v = gdn->v = cu_alloc(T * HV * D * 2);
    gdn->g = cu_upload(example_f32(T * HV, -0.1f, 0.0f, 3), T * HV * 4);
    gdn->beta = cu_upload(example_f32(T * HV, 0.0f, 1.0f, 4), T * HV * 4);
    gdn->o = cu_alloc(T * HV * D * 2);
    gdn->final_state = cu_alloc((size_t)N * HV * D * D * 4);
    conv->cu_seqlens = gdn->cu_seqlens = cu_alloc((N + 1) * sizeof(int32_t));
    conv->num_tokens = gdn->num_tokens = T; /* an upper bound for every replay */
    conv->num_seqs = gdn->num_seqs = N;
}

int main(void)
{
    const char *why_not = cu_open(0);
    if (why_not) {
        printf("no CUDA driver: nothing executed (%s)\n", why_not);
        return 0;
    }
    gdn_ctx *ctx;
    gdn_target target = GDN_TARGET_INIT;
    gdn_stream stream;
    GDN(gdn_ctx_create(&ctx, NULL));
    GDN(gdn_target_from_device(ctx, 0, &target));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gdn_plan *conv_plan = plan_conv(ctx, &target), *gdn_plan_ = plan_prefill(ctx, &target);
    gdn_conv1d_args conv = GDN_CONV1D_ARGS_INIT;
    gdn_prefill_args gdn = GDN_PREFILL_ARGS_INIT;
    fill_args(&conv, &gdn);
    const size_t size = gdn_plan_workspace_size(gdn_plan_);
    /* The graph keeps the address: no other stream may use it. */
    const gdn_devptr workspace = size ? cu_alloc(size) : 0;

    size_t nodes = 0;
    cu_capture_begin(stream); /* nothing is compiled, loaded or allocated inside: the plans are loaded */
    GDN(gdn_execute_conv1d_qkv(conv_plan, &conv, stream));
    GDN(gdn_execute_prefill(gdn_plan_, &gdn, workspace, size, stream));
    cu_graph_exec graph = cu_capture_end(stream, &nodes);
    printf("captured %zu nodes: a kernel for each operator, a memset where prefill uses the workspace\n", nodes);

    static const int32_t lens[2][N + 1] = { { 0, 100, 600, 601, 1024 }, { 0, 0, 300, 900, 900 } };
    for (int i = 0; i < 2; ++i) {
        CU(cuMemcpyHtoDAsync(conv.cu_seqlens, lens[i], sizeof lens[i], stream));
        CU(cuGraphLaunch(graph, stream));
        CU(cuStreamSynchronize(stream));
        printf("replay %d: %d tokens in %d sequences\n", i + 1, lens[i][N], N);
    }
    CU(cuGraphExecDestroy(graph));
    gdn_plan_destroy(gdn_plan_), gdn_plan_destroy(conv_plan);
    gdn_ctx_destroy(ctx);
    return 0;
}
