/*
 * spec.c - owns the table of kernels and what each derives from problem and parameters: threads, shared memory, grid.
 * Must not know: text, PTX, measured data. The templates assert that they agree on the sizes.
 */
#include "codegen/spec.h"

#include <string.h>

#include "base/error.h"

static const char *const prefill_headers[] = { "gdn_types.cuh", "gdn_ptx_mbar.cuh", "gdn_tile.cuh", "gdn_range.cuh",
                                               NULL };
static const char *const prefill_instrs[] = { "mma_io",      "mma_f16",         "ldmatrix_x4", "ldmatrix_x4_trans",
                                              "cp_async_16", "movmatrix_trans", NULL };
static const char *const conv_headers[] = { "gdn_types.cuh",      "gdn_conv_ptx.cuh",
                                            "gdn_conv_rows.cuh",  "gdn_conv_sequences.cuh",
                                            "gdn_conv_state.cuh", "gdn_conv_math.cuh",
                                            "gdn_conv_gates.cuh", NULL };
static const char *const conv_instrs[] = { NULL };

static const struct gdni_kernel_info kernels[GDNI_NUM_KERNELS] = {
    [GDNI_KERNEL_PREFILL_GENERIC] = { "gdn_prefill_generic", prefill_headers, prefill_instrs },
    [GDNI_KERNEL_CONV1D_QKV] = { "conv1d_qkv", conv_headers, conv_instrs },
};

const struct gdni_kernel_info *gdni_kernel_info(enum gdni_kernel kernel)
{
    return &kernels[kernel];
}

/* templates/gdn_prefill_generic.cu: warps by role, and the shared memory of its picture. */
static void derive_prefill(struct gdni_spec *s)
{
    enum { WARP = 32, AUX_WARPS = 4, ROWS_PER_STATE_WARP = 16, GATE_ARRAYS = 5, BARRIERS = 128 };
    const struct gdni_params *p = &s->params;
    const int32_t io = gdni_dtype_bytes(s->io_type);
    const int32_t stage = p->chunk * (2 * s->dk + p->block_dv) * io + p->chunk * GATE_ARRAYS * (int32_t)sizeof(float);
    const int32_t tp = 2 * p->chunk * p->chunk * 2;
    s->threads = WARP * (p->block_dv / ROWS_PER_STATE_WARP + AUX_WARPS);
    s->smem_bytes = p->stages * stage + (p->stages - 1) * tp + BARRIERS;
}

/*
 * templates/include/gdn_conv_rows.cuh: a column of shared memory a thread. Five CTAs an SM are what 96 registers allow; with
 * float32 rows, or lines read element by element, ptxas would spill to reach them.
 */
static void derive_conv_sizes(struct gdni_spec *s)
{
    enum { CHANNELS = 8, CTAS_PER_SM = 5 };
    const int32_t halo = s->width - 1, rows = s->params.tile_tokens + 2 * halo - 1 + s->width;
    const bool plain = s->io_type != GDN_F32 && s->state_type != GDN_F32;
    s->threads = 128;
    s->smem_bytes = rows * s->threads * CHANNELS * gdni_dtype_bytes(s->io_type);
    s->min_ctas_per_sm = plain && s->state_layout != GDN_CONV_STATE_CW_STRIDED ? CTAS_PER_SM : 1;
}

static void derive_conv(struct gdni_spec *s, const struct gdni_problem *problem)
{
    enum { CHANNELS = 8 };
    const uint32_t flags = problem->flags;
    s->width = problem->width;
    s->silu = (flags & GDN_CONV_SILU) != 0;
    s->bias = (flags & GDN_CONV_BIAS) != 0;
    s->vector_bytes = problem->x_alignment;
    s->norm_lanes = flags & GDN_CONV_L2_NORM ? problem->head_dim_qk / CHANNELS : 0;
    s->exact_norm = (flags & GDN_CONV_EXACT_NORM) != 0;
    s->checkpoints = (flags & GDN_CONV_CHECKPOINTS) != 0;
    s->zero_padding = (flags & GDN_CONV_ZERO_PADDING) != 0;
    s->cu_seqlens_type = problem->cu_seqlens_type;
    s->slot_type = problem->slot_type;
    s->gate_type = problem->gate_type;
    s->a_log_type = problem->a_log_type;
    s->dt_bias_type = problem->dt_bias_type;
    s->gate_exp = (flags & GDN_CONV_GATE_EXP) != 0;
    s->beta_rounded = (flags & GDN_CONV_BETA_ROUNDED) != 0;
    s->beta_times_2 = (flags & GDN_CONV_BETA_TIMES_2) != 0;
    s->interleaved = problem->x_layout == GDN_CONV_X_INTERLEAVED;
    s->launch_dependents = (flags & GDN_CONV_LAUNCH_DEPENDENTS) != 0;
    s->dk = s->dv = 0; /* channels are run-time arguments */
    derive_conv_sizes(s);
}

static gdn_status check_conv_arch(const struct gdni_spec *s)
{
    if (!s->launch_dependents || s->arch->cc >= 90) return GDN_OK;
    return GDN_FAIL(
        GDN_E_UNSUPPORTED,
        "flags has GDN_CONV_LAUNCH_DEPENDENTS but %s has no programmatic dependent launch: use sm_90a or newer, "
        "or drop the flag",
        s->arch->name);
}

gdn_status gdni_spec_build(struct gdni_spec *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           const struct gdni_params *params)
{
    GDN_TRY(gdni_params_check(params, problem));
    memset(out, 0, sizeof *out);
    out->kernel = problem->op == GDNI_OP_PREFILL ? GDNI_KERNEL_PREFILL_GENERIC : GDNI_KERNEL_CONV1D_QKV;
    out->io_type = problem->io_type;
    out->state_type = problem->state_type;
    out->state_layout = problem->state_layout;
    out->dk = problem->head_dim_qk;
    out->dv = problem->head_dim_v;
    out->params = *params;
    out->arch = arch;
    if (problem->op == GDNI_OP_PREFILL)
        derive_prefill(out);
    else
        derive_conv(out, problem);
    GDN_TRY(check_conv_arch(out));
    if (out->smem_bytes > arch->smem_per_block)
        return GDN_FAIL(GDN_E_UNSUPPORTED, "%s needs %d bytes of shared memory, %s has %d: use %s",
                        kernels[out->kernel].name, out->smem_bytes, arch->name, arch->smem_per_block,
                        problem->op == GDNI_OP_PREFILL ? "fewer stages" : "a smaller tile_tokens");
    return GDN_OK;
}

enum { MAX_GRID_X = 2147483647 };

static gdn_status prefill_grid(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_seqs,
                               uint32_t grid[3])
{
    const int64_t ctas = num_seqs * problem->num_heads * (spec->dv / spec->params.block_dv);
    if (ctas > MAX_GRID_X)
        return GDN_FAIL(GDN_E_INVALID,
                        "num_seqs is %lld: with %d heads that passes CUDA's largest grid, %d; split the batch",
                        (long long)num_seqs, problem->num_heads, MAX_GRID_X);
    grid[0] = (uint32_t)ctas;
    return GDN_OK;
}

gdn_status gdni_spec_grid(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_tokens,
                          int64_t num_seqs, uint32_t grid[3])
{
    (void)num_tokens; /* a sequence's length is the device's to know */
    grid[0] = grid[1] = grid[2] = 1;
    return prefill_grid(spec, problem, num_seqs, grid);
}
