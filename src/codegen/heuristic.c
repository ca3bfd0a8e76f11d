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
 * A tile's rows are all in flight at once, so that a short tile starves no memory; what it costs is its halo and taps, read
 * again from L2. Eight tokens are the least that costs nothing measurable, and the finest interleaving of reads and writes.
 * Calls that then leave SMs without a second CTA take half of that. A bucket is represented by half its edge.
 */
static void conv_params(struct gdni_params *out, const struct gdni_problem *problem, int num_sms, int bucket)
{
    enum { CTAS_PER_SM = 2, CHANNELS_PER_CTA = 1024, LONG = 8, SHORT = 4 };
    const int64_t edge =
        bucket >= GDNI_NUM_BUCKETS - 1 ? 2 * gdni_bucket_edge(GDNI_NUM_BUCKETS - 2) : gdni_bucket_edge(bucket);
    const int64_t ctas = edge / 2 / LONG * gdni_problem_channels(problem) / CHANNELS_PER_CTA;
    out->tile_tokens = ctas >= (int64_t)CTAS_PER_SM * num_sms ? LONG : SHORT;
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
