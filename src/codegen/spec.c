/*
 * spec.c - owns the table of kernels and what each derives from problem and parameters: threads, shared memory, grid.
 * Must not know: text, PTX, measured data. The templates assert that they agree on the sizes.
 */
#include "codegen/spec.h"

#include <string.h>

#include "base/error.h"

#define PREFILL_HEADERS                                                                                                \
    "gdn_types.cuh", "gdn_launch.cuh", "gdn_sequence.cuh", "gdn_work.cuh", "gdn_gates.cuh", "gdn_state.cuh",           \
        "gdn_warp.cuh", "gdn_ptx_mbar.cuh", "gdn_tile.cuh", "gdn_range.cuh", "gdn_norms.cuh", "gdn_chunk_tp.cuh"
static const char *const prefill_headers[] = { PREFILL_HEADERS, NULL };
static const char *const split_headers[] = {
    PREFILL_HEADERS,
    "gdn_flags.cuh",
    "gdn_images.cuh",
    "gdn_split_image.cuh",
    "gdn_split_producer.cuh",
    "gdn_split_shared.cuh",
    "gdn_split_exchange.cuh",
    "gdn_split_products.cuh",
    "gdn_split_recurrence.cuh",
    NULL,
};
static const char *const prefill_instrs[] = { "mma_io",      "mma_f16",         "ldmatrix_x4", "ldmatrix_x4_trans",
                                              "cp_async_16", "movmatrix_trans", NULL };
#define HOPPER_HEADERS                                                                                                 \
    "gdn_types.cuh", "gdn_launch.cuh", "gdn_sequence.cuh", "gdn_gates.cuh", "gdn_state.cuh", "gdn_norms.cuh",          \
        "gdn_warp.cuh", "gdn_ptx_mbar.cuh", "gdn_ptx_sm90.cuh", "gdn_tile.cuh", "gdn_flags.cuh"
static const char *const hopper_headers[] = {
    HOPPER_HEADERS,
    "gdn_code.cuh",
    "gdn_hopper_table.cuh",
    "gdn_hopper_shared.cuh",
    "gdn_hopper_twins.cuh",
    "gdn_hopper_decays.cuh",
    "gdn_hopper_copies.cuh",
    "gdn_hopper_items.cuh",
    "gdn_hopper_shares.cuh",
    "gdn_hopper_entry.cuh",
    "gdn_hopper_forgetting.cuh",
    "gdn_hopper_cuts.cuh",
    "gdn_hopper_rows.cuh",
    "gdn_hopper_state.cuh",
    "gdn_hopper_links.cuh",
    "gdn_hopper_guesses.cuh",
    "gdn_hopper_queue.cuh",
    "gdn_hopper_transit.cuh",
    "gdn_hopper_tiles.cuh",
    "gdn_hopper_gates.cuh",
    "gdn_hopper_output.cuh",
    "gdn_hopper_blocks.cuh",
    "gdn_hopper_diagonals.cuh",
    "gdn_hopper_inverse.cuh",
    "gdn_hopper_aux.cuh",
    "gdn_hopper_few.cuh",
    "gdn_hopper_turns.cuh",
    "gdn_hopper_lone.cuh",
    "gdn_hopper_transitions.cuh",
    "gdn_hopper_carry.cuh",
    "gdn_hopper_walk.cuh",
    NULL,
};
static const char *const hopper_split_headers[] = {
    HOPPER_HEADERS,
    "gdn_work.cuh",
    "gdn_images.cuh",
    "gdn_hopper_table.cuh",
    "gdn_hopper_shared.cuh",
    "gdn_hopper_twins.cuh",
    "gdn_hopper_decays.cuh",
    "gdn_hopper_copies.cuh",
    "gdn_hopper_images.cuh",
    "gdn_hopper_blocks.cuh",
    "gdn_hopper_diagonals.cuh",
    "gdn_hopper_inverse.cuh",
    "gdn_hopper_aux.cuh",
    "gdn_hopper_factors.cuh",
    "gdn_hopper_producer.cuh",
    "gdn_hopper_rows.cuh",
    "gdn_hopper_ring.cuh",
    "gdn_hopper_chain.cuh",
    "gdn_hopper_readout.cuh",
    "gdn_hopper_recurrence.cuh",
    NULL,
};
static const char *const hopper_instrs[] = { "mma_io",           "mma_f16",          "ldmatrix_x4",
                                             "ldmatrix_x4_trans", "wgmma_ss_n64",    "wgmma_rs_n64",
                                             "wgmma_rs_n64_f16", "wgmma_rs_n32_f16", "wgmma_rs_n128_mn",
                                             "movmatrix_trans",  "cp_async_16",      NULL };
static const char *const hopper_split_instrs[] = { "mma_io",           "mma_f16",          "ldmatrix_x4",
                                                   "ldmatrix_x4_trans", "wgmma_ss_n64",    "wgmma_rs_n64",
                                                   "wgmma_rs_n64_f16", "wgmma_rs_n64_f16_mn", "wgmma_rs_n128_f16_mn",
                                                   "cp_async_16", NULL };
static const char *const conv_headers[] = { "gdn_types.cuh",      "gdn_conv_ptx.cuh",
                                            "gdn_conv_rows.cuh",  "gdn_conv_sequences.cuh",
                                            "gdn_conv_state.cuh", "gdn_conv_math.cuh",
                                            "gdn_conv_gates.cuh", NULL };
static const char *const conv_instrs[] = { NULL };

static const struct gdni_kernel_info kernels[GDNI_NUM_KERNELS] = {
    [GDNI_KERNEL_PREFILL_GENERIC] = { "gdn_prefill_generic", prefill_headers, prefill_instrs, .has_producers = false },
    [GDNI_KERNEL_PREFILL_SPLIT] = { "gdn_prefill_split", split_headers, prefill_instrs, .has_producers = true },
    [GDNI_KERNEL_PREFILL_HOPPER] = { "gdn_prefill_hopper", hopper_headers, hopper_instrs, .has_maps = true },
    [GDNI_KERNEL_PREFILL_HOPPER_SPLIT] = { "gdn_prefill_hopper_split", hopper_split_headers, hopper_split_instrs,
                                           .has_producers = true, .has_maps = true },
    [GDNI_KERNEL_CONV1D_QKV] = { "conv1d_qkv", conv_headers, conv_instrs, .has_producers = false },
};

const struct gdni_kernel_info *gdni_kernel_info(enum gdni_kernel kernel)
{
    return &kernels[kernel];
}

enum { HOPPER_TABLE = 1536 }; /* bytes of a chunk's gate table: gdn_hopper_table.cuh */

/* Why a prefill does not run on Hopper's own kernel; NULL when it does. */
static const char *why_generic(const struct gdni_problem *p, const struct gdni_arch *arch)
{
    if (!arch->wgmma)
        return "the kernel of every arch from sm_80 on, which takes every descriptor; this arch has no other";
    if (p->generic) return "the generic kernel: the plan's flag GDN_PLAN_GENERIC asks for it";
    if (p->head_dim_qk != 128 || p->head_dim_v != 128)
        return "the generic kernel: the Hopper kernel has head_dim_qk and head_dim_v of 128 only";
    return NULL;
}

enum gdni_kernel gdni_kernel_choose(const struct gdni_problem *problem, const struct gdni_arch *arch,
                                    const char **reason)
{
    const bool prefill = problem->op == GDNI_OP_PREFILL;
    const char *why = prefill ? why_generic(problem, arch) : "the kernel of every arch";
    if (reason) *reason = why ? why : "the kernel for Hopper's wgmma and TMA, head dims of 128";
    if (!prefill) return GDNI_KERNEL_CONV1D_QKV;
    return why ? GDNI_KERNEL_PREFILL_GENERIC : GDNI_KERNEL_PREFILL_HOPPER;
}

enum gdni_kernel gdni_kernel_with(int32_t own, const struct gdni_params *params)
{
    if (own == GDNI_KERNEL_CONV1D_QKV || params->cta_kinds != 2) return (enum gdni_kernel)own;
    return own == GDNI_KERNEL_PREFILL_HOPPER ? GDNI_KERNEL_PREFILL_HOPPER_SPLIT : GDNI_KERNEL_PREFILL_SPLIT;
}

/*
 * T and P, ten of sixteen 16 x 16 blocks each; e, d, beta; with in-kernel norms, e of q and the chunk's decay apart. On Hopper
 * X and P T, as tiles, and the gate table.
 */
int32_t gdni_prefill_image_bytes(const struct gdni_spec *spec)
{
    if (spec->kernel == GDNI_KERNEL_PREFILL_HOPPER_SPLIT)
        return spec->params.chunk * (spec->dk + spec->params.chunk) * 2 + HOPPER_TABLE;
    const int32_t blocks = spec->params.chunk / 16, gates = spec->params.chunk * (int32_t)sizeof(float);
    return blocks * (blocks + 1) / 2 * 512 * 2 + 3 * gates + (spec->qk_l2norm ? gates + 16 : 0);
}

/* What the code of every prefill kernel depends on. */
static void take_contract(struct gdni_spec *s, const struct gdni_problem *problem)
{
    s->gate = problem->gate;
    s->gate_type = problem->gate_type;
    s->beta = problem->beta;
    s->beta_type = problem->beta_type;
    s->qk_l2norm = (problem->flags & GDN_PREFILL_QK_L2NORM) != 0;
    s->beta_times_2 = (problem->flags & GDN_PREFILL_BETA_TIMES_2) != 0;
    s->checkpoints = (problem->flags & GDN_PREFILL_CHECKPOINTS) != 0;
    s->zero_padding = (problem->flags & GDN_PREFILL_ZERO_PADDING) != 0;
    s->programmatic_launch = (problem->flags & GDN_PREFILL_PROGRAMMATIC_LAUNCH) != 0;
    s->cu_seqlens_type = problem->cu_seqlens_type;
    s->slot_type = problem->slot_type;
}

/* templates/gdn_prefill_generic.cu: warps by role, and the shared memory of its picture. */
static void derive_generic(struct gdni_spec *s)
{
    enum { WARP = 32, AUX_WARPS = 4, ROWS_PER_STATE_WARP = 16, GATE_ARRAYS = 5, BARRIERS = 128, LOWEST = 16 };
    const struct gdni_params *p = &s->params;
    const int32_t io = gdni_dtype_bytes(s->io_type);
    const int32_t stage = p->chunk * (2 * s->dk + p->block_dv) * io + p->chunk * GATE_ARRAYS * (int32_t)sizeof(float);
    const int32_t tp = 2 * p->chunk * p->chunk * 2;
    s->threads = WARP * (p->block_dv / ROWS_PER_STATE_WARP + AUX_WARPS);
    s->smem_bytes = p->stages * stage + (p->stages - 1) * tp + BARRIERS + LOWEST;
}

/* gdn_split_shared.cuh, gdn_split_producer.cuh: both kinds of CTAs have the same size, whichever needs more. */
static void derive_split(struct gdni_spec *s)
{
    enum { WARP = 32, WARPS = 4, GROUPS = 2, GATE_ARRAYS = 5, DIAGONALS = 4 * 16 * 20 * (int32_t)sizeof(float) };
    enum { EXCHANGE_MAXIMA = 32, GROUP_CONTROL = 32, BARRIERS = 128 };
    const struct gdni_params *p = &s->params;
    const int32_t qk = p->chunk * s->dk * 2, v = p->chunk * p->block_dv * 2, gates = p->chunk * (int32_t)sizeof(float);
    const int32_t group = 2 * qk + p->chunk * p->chunk * 2 + DIAGONALS + 2 * GATE_ARRAYS * gates + GROUP_CONTROL;
    const int32_t exchange = p->block_dv * (s->dk * 2 + 3 * p->chunk * 2 + EXCHANGE_MAXIMA);
    const int32_t recurrence =
        p->stages * (qk + v + gdni_prefill_image_bytes(s)) + (p->stages - 1) * qk + exchange + BARRIERS;
    s->threads = 3 * WARP * WARPS;
    s->smem_bytes = recurrence > GROUPS * group ? recurrence : GROUPS * group;
}

/* They add up to a whole SM's: producers, state warpgroups, aux. */
static void hopper_registers(struct gdni_spec *s, int32_t groups)
{
    s->producer_registers = groups == 2 ? 64 : 112;
    s->state_registers = groups == 2 ? 184 : 240;
    s->aux_registers = groups == 2 ? 80 : 152;
}

bool gdni_spec_cuts_evenly(const struct gdni_spec *spec)
{
    return spec->cuts && spec->params.carry != GDNI_CARRY_STATES && spec->params.block_dv == spec->dv;
}

/*
 * gdn_hopper_shared.cuh: a warpgroup for each 64 value columns and two more, and the shared memory of its offsets. T lies in
 * four slots where another CTA makes every second one.
 */
static void derive_hopper(struct gdni_spec *s)
{
    enum { WARPGROUP = 128, COLUMNS = 64, K_STAGES = 4, Q_STAGES = 3, V_STAGES = 2 };
    enum { P_STAGES = 2, L_STAGES = 2, GATE_STAGES = 4 };
    enum { DIAGONALS = 8 * (2 * (8 * 48 + 16)), SCALES = 4 * 32 * 8, BARRIERS = 512, ORDER = 512, KEPT = (3 * 256 + 4) * 4 };
    enum { LINE = 1040, CUTS = 256 + 2 * 256 };
    const int32_t groups = s->params.block_dv / COLUMNS, square = s->params.chunk * s->params.chunk * 2;
    const int32_t tile = s->params.chunk * s->dk * 2, columns = groups * s->params.chunk * COLUMNS * 2;
    const int32_t t_stages = s->params.cluster_ctas == 2 ? 4 : 2;
    s->threads = (2 + groups) * WARPGROUP;
    s->smem_bytes = (K_STAGES + Q_STAGES) * tile + V_STAGES * columns + (t_stages + P_STAGES + L_STAGES) * square + columns +
                    DIAGONALS + GATE_STAGES * HOPPER_TABLE + groups * SCALES + BARRIERS + ORDER;
    s->cuts = s->kernel == GDNI_KERNEL_PREFILL_HOPPER && s->params.partition_chunks != GDNI_PARTITION_NEVER;
    s->transit = s->kernel == GDNI_KERNEL_PREFILL_HOPPER && !s->cuts && groups == 2 && s->state_type == GDN_F32;
    if (s->transit) s->smem_bytes += KEPT;
    if (gdni_spec_cuts_evenly(s)) s->smem_bytes += LINE;
    if (s->cuts && s->params.carry == GDNI_CARRY_STATES) s->smem_bytes += CUTS;
    hopper_registers(s, groups);
}

/*
 * gdn_hopper_ring.cuh: the readout has tiles, P T and O, the other CTA V instead of P T, a producer another tile of X behind
 * what derive_hopper() counts: which is the most.
 */
static void derive_hopper_split(struct gdni_spec *s)
{
    enum { RING = 4, GROUP = 128, FLAGS = 16, BARRIERS = 256, ALIGNED = 1024 };
    const int32_t square = s->params.chunk * s->params.chunk * 2, tile = s->params.chunk * s->dk * 2;
    const int32_t handed = GROUP * (s->params.chunk + 16) + FLAGS;
    const int32_t readout = RING * (2 * tile + square + handed + HOPPER_TABLE) + square + BARRIERS;
    derive_hopper(s);
    s->producer_registers = 88;
    s->state_registers = 240;
    s->aux_registers = 208;
    s->smem_bytes = (s->smem_bytes + ALIGNED - 1) / ALIGNED * ALIGNED + tile;
    if (s->smem_bytes < readout) s->smem_bytes = readout;
}

static gdn_status check_carry(const struct gdni_spec *s, const struct gdni_problem *problem)
{
    const struct gdni_params *p = &s->params;
    const bool may = p->block_dv == s->dv && problem->num_heads <= GDNI_MOST_CARRIED_HEADS && s->cuts;
    if (p->carry != GDNI_CARRY_STATES || may) return GDN_OK;
    return GDN_FAIL(GDN_E_UNSUPPORTED,
                    "carry is 2 with block_dv %d, partition_chunks %d and %d state heads: states are carried between "
                    "partitions, by whole heads, and up to %d: use carry 1",
                    p->block_dv, p->partition_chunks, problem->num_heads, GDNI_MOST_CARRIED_HEADS);
}

/* CTAs that make T and P for each other walk the same chunks of a head. */
static gdn_status check_cluster(const struct gdni_spec *s)
{
    const struct gdni_params *p = &s->params;
    if (p->cluster_ctas != 2) return GDN_OK;
    if (2 * p->block_dv != s->dv || p->carry != GDNI_CARRY_NOTHING || p->partition_chunks != GDNI_PARTITION_NEVER)
        return GDN_FAIL(GDN_E_UNSUPPORTED,
                        "cluster_ctas is 2 with block_dv %d, carry %d and partition_chunks %d: two CTAs share halves of a "
                        "head, of whole sequences: use block_dv 64, carry 1 and partition_chunks 2, or cluster_ctas 1",
                        p->block_dv, p->carry, p->partition_chunks);
    return GDN_OK;
}

/*
 * How many CTAs an SM must hold: what ptxas may use registers for. Five of 128 threads are 96 registers, and four 128, for the
 * norm on Blackwell, where it spills with 96. Wide rows, a bias, lines of another type or read element by element would spill
 * all the same: they get all they want.
 */
static int32_t conv_min_ctas(const struct gdni_spec *s)
{
    const bool plain_state = s->state_type == s->io_type && s->state_layout != GDN_CONV_STATE_CW_STRIDED;
    if (s->io_type == GDN_F32 || !plain_state || s->bias) return 1;
    return (s->norm_lanes && s->arch->cc >= 100 ? 4 : 5) * 128 / s->threads;
}

/* templates/include/gdn_conv_rows.cuh: a column of shared memory a thread. */
static void derive_conv_sizes(struct gdni_spec *s)
{
    enum { CHANNELS = 8 };
    const int32_t halo = s->width - 1, rows = s->params.tile_tokens + 2 * halo - 1 + s->width;
    s->threads = s->params.cta_threads;
    s->smem_bytes = rows * s->threads * CHANNELS * gdni_dtype_bytes(s->io_type);
    s->min_ctas_per_sm = conv_min_ctas(s);
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

/* Either side of a programmatic dependent launch. */
static gdn_status check_arch(const struct gdni_spec *s)
{
    if ((!s->launch_dependents && !s->programmatic_launch) || s->arch->cc >= 90) return GDN_OK;
    return GDN_FAIL(
        GDN_E_UNSUPPORTED,
        "flags has %s but %s has no programmatic dependent launch: use sm_90a or newer, or drop the flag",
        s->launch_dependents ? "GDN_CONV_LAUNCH_DEPENDENTS" : "GDN_PREFILL_PROGRAMMATIC_LAUNCH", s->arch->name);
}

gdn_status gdni_spec_build(struct gdni_spec *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           const struct gdni_params *params)
{
    memset(out, 0, sizeof *out);
    out->kernel = (int32_t)gdni_kernel_with((int32_t)gdni_kernel_choose(problem, arch, NULL), params);
    GDN_TRY(gdni_params_check(params, out->kernel));
    out->io_type = problem->io_type;
    out->state_type = problem->state_type;
    out->state_layout = problem->state_layout;
    out->dk = problem->head_dim_qk;
    out->dv = problem->head_dim_v;
    out->params = *params;
    out->arch = arch;
    if (problem->op == GDNI_OP_PREFILL) take_contract(out, problem);
    if (out->kernel == GDNI_KERNEL_PREFILL_SPLIT)
        derive_split(out);
    else if (out->kernel == GDNI_KERNEL_PREFILL_GENERIC)
        derive_generic(out);
    else if (out->kernel == GDNI_KERNEL_PREFILL_HOPPER)
        derive_hopper(out);
    else if (out->kernel == GDNI_KERNEL_PREFILL_HOPPER_SPLIT)
        derive_hopper_split(out);
    else
        derive_conv(out, problem);
    GDN_TRY(check_arch(out));
    GDN_TRY(check_carry(out, problem));
    GDN_TRY(check_cluster(out));
    if (out->smem_bytes > arch->smem_per_block)
        return GDN_FAIL(GDN_E_UNSUPPORTED, "%s needs %d bytes of shared memory, %s has %d: use %s",
                        kernels[out->kernel].name, out->smem_bytes, arch->name, arch->smem_per_block,
                        problem->op == GDNI_OP_PREFILL ? "fewer stages" : "a smaller tile_tokens or cta_threads");
    return GDN_OK;
}

/*
 * What a template's __launch_bounds__ leave. Prefill's are of one CTA, which has more than half of an SM's registers
 * (tests/nvrtc/test_matrix.c). Conv's name a least number of CTAs, and ptxas uses all registers that it leaves, so that no more
 * fit; 0: no bound.
 */
static int32_t ctas_by_registers(const struct gdni_spec *s)
{
    if (s->kernel != GDNI_KERNEL_CONV1D_QKV) return 1;
    return s->min_ctas_per_sm > 1 ? s->min_ctas_per_sm : 0;
}

int32_t gdni_spec_ctas_per_sm(const struct gdni_spec *spec)
{
    enum { SM_THREADS = 1536, RESERVED = 1024 }; /* the fewest threads of any arch; shared memory that CUDA takes of a CTA's */
    const int32_t by_memory = (spec->arch->smem_per_block + RESERVED) / (spec->smem_bytes + RESERVED);
    const int32_t by_threads = SM_THREADS / spec->threads, by_registers = ctas_by_registers(spec);
    int32_t ctas = by_memory < by_threads ? by_memory : by_threads;
    if (by_registers && by_registers < ctas) ctas = by_registers;
    return ctas > 1 ? ctas : 1;
}

int64_t gdni_spec_parts(const struct gdni_spec *spec, const struct gdni_problem *problem)
{
    return (int64_t)problem->num_heads * (spec->dv / spec->params.block_dv);
}

int32_t gdni_spec_ctas_of_part(const struct gdni_spec *spec)
{
    return spec->kernel == GDNI_KERNEL_PREFILL_HOPPER_SPLIT ? 2 : 1; /* one has the state, one makes the output */
}

enum { MAX_GRID_X = 2147483647 };

static gdn_status prefill_grid(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_seqs,
                               int num_sms, uint32_t grid[3])
{
    const int64_t seqs = num_seqs > 0 ? num_seqs : 1; /* without any, rows of o to make zeros */
    const int64_t ctas = seqs * gdni_spec_parts(spec, problem) * gdni_spec_ctas_of_part(spec);
    if (ctas > MAX_GRID_X - num_sms) /* a persistent CTA looks one grid beyond its last item */
        return GDN_FAIL(GDN_E_INVALID,
                        "num_seqs is %lld: with %d heads that passes %d items, as many as CUDA's largest grid leaves; split "
                        "the batch",
                        (long long)num_seqs, problem->num_heads, MAX_GRID_X - num_sms);
    const bool zeroes = spec->zero_padding; /* and all SMs have a share of that, which is one warp's work */
    const bool persistent = spec->kernel == GDNI_KERNEL_PREFILL_HOPPER && (ctas > num_sms || zeroes);
    const int cluster = spec->params.cluster_ctas == 2 ? 2 : 1, whole = num_sms / cluster * cluster;
    grid[0] = persistent ? (uint32_t)(whole ? whole : cluster) : (uint32_t)ctas;
    return GDN_OK;
}

gdn_status gdni_spec_grid(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_tokens,
                          int64_t num_seqs, int num_sms, uint32_t grid[3])
{
    (void)num_tokens; /* a sequence's length is the device's to know */
    grid[0] = grid[1] = grid[2] = 1;
    return prefill_grid(spec, problem, num_seqs, num_sms, grid);
}
