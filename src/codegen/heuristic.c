/*
 * heuristic.c - owns the default parameters, from a small cost model. Must not know: measured data, devices.
 */
#include "codegen/params.h"
#include "codegen/spec.h"
#include "codegen/workspace.h"

/* Three stages keep the auxiliary warps a chunk ahead while a third one loads; two is what 99 KB of shared memory hold. */
static void prefill_params(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch)
{
    struct gdni_spec spec;
    const bool hopper = gdni_kernel_choose(problem, arch, NULL) == GDNI_KERNEL_PREFILL_HOPPER;
    *out = (struct gdni_params){ .cta_kinds = 1, .chunk = 64, .block_dv = hopper ? 128 : 64, .stages = 3 };
    if (gdni_spec_build(&spec, problem, arch, out) != GDN_OK) out->stages = 2;
}

enum { MOST_WORKSPACE = 512 << 20 };

/* Three stages, else two, when the arch holds them and the bucket's largest call does not ask for too much memory. */
static bool fits(struct gdni_params *params, const struct gdni_problem *problem, const struct gdni_arch *arch,
                 int num_sms, int bucket, int64_t num_seqs)
{
    const int64_t edge = gdni_bucket_edge(bucket), tokens = edge < problem->max_tokens ? edge : problem->max_tokens;
    struct gdni_spec spec;
    struct gdni_workspace needs;
    for (params->stages = 3; params->stages >= 2; --params->stages)
        if (gdni_spec_build(&spec, problem, arch, params) == GDN_OK) {
            gdni_workspace_of(&needs, &spec, problem, num_sms, tokens, num_seqs);
            return needs.size <= MOST_WORKSPACE;
        }
    return false;
}

/*
 * With few (sequence, head) pairs most SMs have nothing to do, and a chunk's time is what counts: T and P by CTAs of their own,
 * the recurrence in narrow blocks of columns, the narrowest that leave a quarter of the SMs to the producers.
 */
bool gdni_params_heuristic_few(struct gdni_params *out, const struct gdni_problem *problem,
                               const struct gdni_arch *arch, int num_sms, int bucket, int seq_class)
{
    static const int32_t blocks[] = { 16, 32 };
    const int64_t num_seqs = gdni_seq_class_edge(seq_class);
    if (problem->op != GDNI_OP_PREFILL) return false;
    if (num_sms <= 0) num_sms = arch->default_sms;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
        *out = (struct gdni_params){ .cta_kinds = 2, .chunk = 64, .block_dv = blocks[i] };
        const int64_t ctas = num_seqs * problem->num_heads * (problem->head_dim_v / blocks[i]);
        if (ctas <= (int64_t)num_sms * 3 / 4 && fits(out, problem, arch, num_sms, bucket, num_seqs)) return true;
    }
    return false;
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
