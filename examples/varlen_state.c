/*
 * varlen_state.c - prompts of unequal length packed into one call, and a second call that goes on from their states.
 *
 * The recurrent state is updated in place: what a serving engine does when it prefills a long prompt in pieces.
 */
#include "cuda_mini.h"
#include "example_data.h"

enum { N = 3, HK = 2, HV = 4, D = 128, STATE = HV * D * D };

static gdn_prefill_desc describe(void)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT; /* bf16, float32 state [N, H, DK, DV] */
    desc.num_q_heads = desc.num_k_heads = HK;
    desc.num_v_heads = HV;
    desc.head_dim_qk = desc.head_dim_v = D;
    desc.max_tokens = 4096; /* bounds of every call of the plan, not the sizes of this one */
    desc.max_seqs = 16;
    return desc;
}

/* Inputs of one call: sequence n has cu[n + 1] - cu[n] tokens, one after the other. */
static gdn_prefill_args make_call(const int32_t cu_seqlens[N + 1], gdn_devptr state, uint64_t seed)
{
    const size_t t = (size_t)cu_seqlens[N];
    uint16_t *q = example_bf16(t * HK * D, 1.0f, seed), *k = example_bf16(t * HK * D, 1.0f, seed + 1);
    uint16_t *v = example_bf16(t * HV * D, 1.0f, seed + 2);
    float *g = example_f32(t * HV, -0.1f, 0.0f, seed + 3), *beta = example_f32(t * HV, 0.0f, 1.0f, seed + 4);
    example_normalize_bf16(q, t * HK, D);
    example_normalize_bf16(k, t * HK, D);

    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    args.q = cu_upload(q, t * HK * D * 2);
    args.k = cu_upload(k, t * HK * D * 2);
    args.v = cu_upload(v, t * HV * D * 2);
    args.g = cu_upload(g, t * HV * 4);
    args.beta = cu_upload(beta, t * HV * 4);
    args.o = cu_alloc(t * HV * D * 2);
    args.cu_seqlens = cu_upload(cu_seqlens, (N + 1) * sizeof(int32_t));
    args.initial_state = args.final_state = state;
    args.num_tokens = (int64_t)t;
    args.num_seqs = N;
    for (int n = 0; n < N; ++n) /* for speed alone, where the host knows it */
        if (cu_seqlens[n + 1] - cu_seqlens[n] > args.max_seq_tokens) args.max_seq_tokens = cu_seqlens[n + 1] - cu_seqlens[n];
    free(q), free(k), free(v), free(g), free(beta);
    return args;
}

static double state_size(gdn_devptr state, int n)
{
    static float s[STATE];
    double sum = 0.0;
    CU(cuMemcpyDtoH(s, state + (gdn_devptr)n * sizeof s, sizeof s));
    for (int i = 0; i < STATE; ++i)
        sum += (double)s[i] * (double)s[i];
    return sqrt(sum);
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
    gdn_plan *plan;
    const gdn_prefill_desc desc = describe();
    GDN(gdn_ctx_create(&ctx, NULL));
    GDN(gdn_target_from_device(ctx, 0, &target));
    GDN(gdn_plan_prefill(ctx, &target, &desc, 0, &plan)); /* compiles, or finds the cubin */
    GDN(gdn_plan_load(plan, 0));                          /* from here on nothing allocates */

    const gdn_devptr state = cu_alloc((size_t)N * STATE * sizeof(float));
    CU(cuMemsetD8Async(state, 0, (size_t)N * STATE * sizeof(float), NULL));
    const int32_t first[N + 1] = { 0, 700, 737, 1100 }; /* 700, 37 and 363 tokens */
    const int32_t second[N + 1] = { 0, 1, 1, 65 };      /* 1 more, none, 64 more: an empty sequence keeps its state */
    const int32_t *calls[2] = { first, second };
    for (int i = 0; i < 2; ++i) {
        const gdn_prefill_args args = make_call(calls[i], state, 10 * (uint64_t)i + 1);
        GDN(gdn_execute_prefill(plan, &args, 0, 0, NULL));
        printf("call %d: |state| = %.3f  %.3f  %.3f\n", i + 1, state_size(state, 0), state_size(state, 1),
               state_size(state, 2));
    }
    gdn_plan_destroy(plan);
    gdn_ctx_destroy(ctx);
    return 0;
}
