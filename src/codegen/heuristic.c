/*
 * heuristic.c - owns the default parameters, from a small cost model. Must not know: measured data, devices.
 */
#include "codegen/params.h"
#include "codegen/spec.h"

/* Three stages keep the auxiliary warps a chunk ahead while a third one loads; two is what 99 KB of shared memory hold. */
static void prefill_params(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch)
{
    out->chunk = 64;
    out->block_dv = 64;
    out->stages = 3;
    struct gdni_spec spec;
    if (gdni_spec_build(&spec, problem, arch, out) != GDN_OK) out->stages = 2;
}

/*
 * Long runs of tokens per thread re-read little (width - 1 rows of each tile) but leave few warps: the longest run that still
 * gives every SM the warps that cover memory latency. A bucket is represented by half its edge.
 */
static void conv_params(struct gdni_params *out, const struct gdni_problem *problem, int num_sms, int bucket)
{
    enum { WARPS_PER_SM = 24, CHANNELS_PER_WARP = 256 };
    const int64_t edge =
        bucket >= GDNI_NUM_BUCKETS - 1 ? 2 * gdni_bucket_edge(GDNI_NUM_BUCKETS - 2) : gdni_bucket_edge(bucket);
    const int64_t channels = gdni_problem_channels(problem);
    int32_t tile = 64;
    while (tile > 4 && edge / 2 * channels / CHANNELS_PER_WARP < (int64_t)WARPS_PER_SM * num_sms * tile)
        tile /= 2;
    out->tile_tokens = tile;
}

void gdni_params_heuristic(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           int num_sms, int bucket)
{
    *out = (struct gdni_params){ 0 };
    if (problem->op == GDNI_OP_PREFILL)
        prefill_params(out, problem, arch);
    else
        conv_params(out, problem, num_sms > 0 ? num_sms : arch->default_sms, bucket);
}
