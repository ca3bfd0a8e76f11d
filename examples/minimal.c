/*
 * minimal.c - one GDN prefill by the one-call form: compiled on first use, found on disk by the next process.
 *
 * 512 tokens of one sequence, 4 q/k heads, 8 v heads; the answer is compared with the library's host reference.
 */
#include "cuda_mini.h"
#include "example_data.h"

enum { T = 512, HK = 4, HV = 8, D = 128, ROWS = T * HK, CELLS = T * HV * D };

struct tensors {
    uint16_t *q, *k, *v, *o;
    float *g, *beta;
};

static struct tensors make_input(void)
{
    struct tensors t = { example_bf16(ROWS * D, 1.0f, 1),     example_bf16(ROWS * D, 1.0f, 2),
                         example_bf16(CELLS, 1.0f, 3),        calloc(CELLS, 2),
                         example_f32(T * HV, -0.1f, 0.0f, 4), example_f32(T * HV, 0.0f, 1.0f, 5) };
    example_normalize_bf16(t.q, ROWS, D);
    example_normalize_bf16(t.k, ROWS, D);
    return t;
}

/* The reference takes the same structs, with host addresses in them. */
static uint16_t *reference(const gdn_prefill_desc *desc, gdn_prefill_args args, const struct tensors *t)
{
    args.q = (uintptr_t)t->q, args.k = (uintptr_t)t->k, args.v = (uintptr_t)t->v;
    args.g = (uintptr_t)t->g, args.beta = (uintptr_t)t->beta, args.o = (uintptr_t)t->o;
    GDN(gdn_reference_prefill(desc, &args));
    return t->o;
}

int main(void)
{
    const char *why_not = cu_open(0);
    if (why_not) {
        printf("no CUDA driver: nothing executed (%s)\n", why_not);
        return 0;
    }
    gdn_ctx *ctx;
    GDN(gdn_ctx_create(&ctx, NULL));

    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = HK;
    desc.num_v_heads = HV;
    desc.head_dim_qk = desc.head_dim_v = D;
    desc.max_tokens = T; /* the most that any call will bring */
    desc.max_seqs = 1;

    const struct tensors host = make_input();
    gdn_prefill_args args = GDN_PREFILL_ARGS_INIT;
    args.q = cu_upload(host.q, ROWS * D * 2);
    args.k = cu_upload(host.k, ROWS * D * 2);
    args.v = cu_upload(host.v, CELLS * 2);
    args.g = cu_upload(host.g, T * HV * 4);
    args.beta = cu_upload(host.beta, T * HV * 4);
    args.o = cu_alloc(CELLS * 2);
    args.num_tokens = T;
    args.num_seqs = 1;
    GDN(gdn_prefill(ctx, &desc, &args, 0, 0, NULL)); /* 0, 0: without a workspace, by a kernel that needs none */

    uint16_t *o = malloc(CELLS * 2);
    if (!o) return 1;
    CU(cuMemcpyDtoH(o, args.o, CELLS * 2));
    const double error = example_error_bf16(o, reference(&desc, args, &host), CELLS);
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    GDN(gdn_cache_stat(ctx, &stats));
    printf("o differs from the host reference by %.1e; kernels compiled in this process: %llu\n", error,
           (unsigned long long)stats.compiles);
    gdn_ctx_destroy(ctx);
    return error < 1e-2 ? 0 : 1;
}
