/*
 * prewarmed_strict.c - fill a cache on a build machine, then serve from it with compiling forbidden.
 *
 * The first half is what an image build does (or `gdn-jit-cache warm`): it names the GPU and needs none. The second half is
 * what the server does: a kernel that is in no cache is an error at start, never a compile on a request.
 *
 *     prewarmed_strict [cache folder]
 */
#include "cuda_mini.h"

static gdn_prefill_desc describe(int heads)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = heads;
    desc.head_dim_qk = desc.head_dim_v = 128;
    desc.max_tokens = 8192;
    desc.max_seqs = 64;
    return desc;
}

static unsigned long long compiles(gdn_ctx *ctx)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    GDN(gdn_cache_stat(ctx, &stats));
    return (unsigned long long)stats.compiles;
}

/* GDN_E_NO_NVRTC is the one failure that this example expects on a machine without a compiler. */
static gdn_status warm(const char *cache_dir, const gdn_prefill_desc *desc)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_target target = GDN_TARGET_INIT;
    gdn_ctx *ctx;
    gdn_plan *plan;
    config.cache_dir = cache_dir;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_name(ctx, "NVIDIA H200", &target));
    const gdn_status status = gdn_plan_prefill(ctx, &target, desc, 0, &plan);
    if (status == GDN_OK) {
        printf("warmed for %s (%s): %llu kernels compiled\n", target.gpu_name, target.arch, compiles(ctx));
        gdn_plan_destroy(plan);
    }
    gdn_ctx_destroy(ctx);
    return status;
}

static int serve(const char *cache_dir, const gdn_prefill_desc *warmed, const gdn_prefill_desc *unknown)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_target target = GDN_TARGET_INIT;
    gdn_ctx *ctx;
    gdn_plan *plan = NULL;
    config.cache_dir = cache_dir;
    config.flags = GDN_CTX_NO_COMPILE;
    GDN(gdn_ctx_create(&ctx, &config));
    GDN(gdn_target_from_name(ctx, "NVIDIA H200", &target));
    GDN(gdn_plan_prefill(ctx, &target, warmed, 0, &plan));
    printf("strict: planned with %llu compiles\n", compiles(ctx));
    gdn_plan_destroy(plan);

    const gdn_status status = gdn_plan_prefill(ctx, &target, unknown, 0, &plan);
    printf("strict: a shape that nobody warmed: %s\n    %s\n", gdn_status_name(status), gdn_last_error());
    gdn_ctx_destroy(ctx);
    return status == GDN_E_NOT_CACHED ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *cache_dir = argc > 1 ? argv[1] : "prewarmed-cache";
    const gdn_prefill_desc warmed = describe(16);
    gdn_prefill_desc unknown = describe(16);
    unknown.io_type = GDN_F16; /* other code: another cubin */

    const gdn_status status = warm(cache_dir, &warmed);
    if (status == GDN_E_NO_NVRTC) {
        printf("no NVRTC: nothing compiled\n    %s\n", gdn_last_error());
    } else if (status != GDN_OK) {
        fprintf(stderr, "%s: %s\n", gdn_status_name(status), gdn_last_error());
        return 1;
    } else if (serve(cache_dir, &warmed, &unknown) != 0) {
        return 1;
    }
    const char *why_not = cu_open(0);
    if (why_not) printf("no CUDA driver: nothing executed (%s)\n", why_not);
    return 0;
}
