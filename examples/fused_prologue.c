/*
 * fused_prologue.c - a layer of Qwen3-Next from its two projections to o, in two launches: conv1d-QKV makes q, k (normalised),
 * v, g and beta of the rows as they are, GDN prefill takes them. Conv states and recurrent states are lines of two pools.
 *
 * Three prompts in a call: the first goes on from its lines, two begin. Compared with the host references.
 */
#include "cuda_mini.h"
#include "example_data.h"

enum { N = 3, T = 300, LINES = 8, HK = 2, HV = 4, R = HV / HK, D = 128, W = 4 };
/* The projections' rows: HK groups of [q k v.. z..], and HK of [b.. a..]. */
enum { C = (2 * HK + HV) * D, GROUP = (2 + 2 * R) * D, QKVZ = HK * GROUP, BA = 2 * HV };

/* The call's tensors; addresses of the device, or for the references of the host. */
enum { X, B_A, WEIGHT, A_LOG, DT_BIAS, CONV_POOL, POOL, SLOTS, STARTED, STARTS, Q, K, V, G, BETA, O, TENSORS };
struct tensor {
    void *host;
    size_t bytes;
};

static struct tensor zeros(size_t bytes)
{
    return (struct tensor){ calloc(bytes, 1), bytes };
}

static struct tensor bf16(size_t n, float scale, uint64_t seed)
{
    return (struct tensor){ example_bf16(n, scale, seed), n * 2 };
}

static struct tensor f32(size_t n, float low, float high, uint64_t seed)
{
    return (struct tensor){ example_f32(n, low, high, seed), n * 4 };
}

static void make_tensors(struct tensor t[TENSORS])
{
    static int32_t slots[N] = { 5, 0, 2 }, starts[N + 1] = { 0, 37, 237, T };
    static uint8_t started[N] = { 1, 0, 0 }; /* 0: a new prompt; what its lines hold is not read */
    t[X] = bf16(T * QKVZ, 1.0f, 1), t[B_A] = bf16(T * BA, 2.0f, 2), t[WEIGHT] = bf16(C * W, 0.5f, 3);
    t[A_LOG] = f32(HV, -3.0f, 0.0f, 4), t[DT_BIAS] = f32(HV, -1.0f, 1.0f, 5);
    t[CONV_POOL] = bf16(LINES * C * (W - 1), 1.0f, 6), t[POOL] = f32(LINES * HV * D * D, -0.1f, 0.1f, 7);
    t[SLOTS] = (struct tensor){ slots, sizeof slots };
    t[STARTED] = (struct tensor){ started, sizeof started };
    t[STARTS] = (struct tensor){ starts, sizeof starts };
    t[Q] = zeros(T * HK * D * 2), t[K] = zeros(T * HK * D * 2);
    t[V] = zeros(T * HV * D * 2), t[O] = zeros(T * HV * D * 2);
    t[G] = zeros(T * HV * 4), t[BETA] = zeros(T * HV * 4);
}

static gdn_conv1d_args conv_args(const gdn_devptr at[TENSORS])
{
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    a.x = at[X], a.x_stride = QKVZ; /* x_group_stride 0: the z of a group are as wide as its v */
    a.b = at[B_A], a.a = at[B_A] + R * 2, a.a_stride = a.b_stride = BA, a.gate_group_stride = 2 * R;
    a.weight = at[WEIGHT], a.a_log = at[A_LOG], a.dt_bias = at[DT_BIAS];
    a.q = at[Q], a.k = at[K], a.v = at[V], a.g = at[G], a.beta = at[BETA];
    a.state = at[CONV_POOL], a.slot_in = at[SLOTS], a.has_initial_state = at[STARTED]; /* slot_out 0: in place */
    a.cu_seqlens = at[STARTS], a.num_tokens = T, a.num_seqs = N;
    return a;
}

static gdn_prefill_args prefill_args(const gdn_devptr at[TENSORS])
{
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    a.q = at[Q], a.k = at[K], a.v = at[V], a.g = at[G], a.beta = at[BETA], a.o = at[O];
    a.initial_state = a.final_state = at[POOL], a.slot_in = at[SLOTS], a.has_initial_state = at[STARTED];
    a.cu_seqlens = at[STARTS], a.num_tokens = T, a.num_seqs = N, a.max_seq_tokens = 200;
    return a;
}

int main(void)
{
    const char *why_not = cu_open(0);
    if (why_not) {
        printf("no CUDA driver: nothing executed (%s)\n", why_not);
        return 0;
    }
    gdn_conv1d_desc conv = GDN_CONV1D_DESC_INIT; /* bf16, width 4, SiLU */
    gdn_prefill_desc prefill = GDN_PREFILL_DESC_INIT;
    conv.flags |= GDN_CONV_L2_NORM, conv.x_layout = GDN_CONV_X_INTERLEAVED, conv.num_gate_heads = HV;
    conv.num_q_heads = conv.num_k_heads = prefill.num_q_heads = prefill.num_k_heads = HK;
    conv.num_v_heads = prefill.num_v_heads = HV;
    conv.head_dim_qk = conv.head_dim_v = prefill.head_dim_qk = prefill.head_dim_v = D;
    conv.max_tokens = prefill.max_tokens = 8192, conv.max_seqs = prefill.max_seqs = 64;

    struct tensor t[TENSORS];
    gdn_devptr host[TENSORS], device[TENSORS];
    make_tensors(t);
    for (int i = 0; i < TENSORS; ++i)
        host[i] = (uintptr_t)t[i].host, device[i] = cu_upload(t[i].host, t[i].bytes);
    gdn_conv1d_args on_host = conv_args(host), on_device = conv_args(device);
    gdn_prefill_args then_host = prefill_args(host), then_device = prefill_args(device);

    gdn_ctx *ctx;
    size_t size = 0;
    GDN(gdn_ctx_create(&ctx, NULL));
    GDN(gdn_prefill_workspace_size(ctx, &prefill, NULL, &size));
    const gdn_devptr workspace = size ? cu_alloc(size) : 0;
    GDN(gdn_conv1d_qkv(ctx, &conv, &on_device, NULL));
    GDN(gdn_prefill(ctx, &prefill, &then_device, workspace, size, NULL));

    uint16_t *o = malloc(t[O].bytes);
    float *pool = malloc(t[POOL].bytes);
    if (!o || !pool) return 1;
    CU(cuMemcpyDtoH(o, device[O], t[O].bytes));
    CU(cuMemcpyDtoH(pool, device[POOL], t[POOL].bytes));
    GDN(gdn_reference_conv1d_qkv(&conv, &on_host));
    GDN(gdn_reference_prefill(&prefill, &then_host));
    const double wrong = example_error_bf16(o, t[O].host, T * HV * D);
    const double off = example_error_f32(pool, t[POOL].host, LINES * HV * D * D);
    printf("o differs from the host references by %.1e, the pool of states by %.1e\n", wrong, off);
    gdn_ctx_destroy(ctx);
    return wrong < 1e-2 && off < 1e-2 ? 0 : 1;
}
