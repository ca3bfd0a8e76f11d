/*
 * emit_spec.c - spec -> gdn_spec.cuh: constants, one a line, that templates read as spec::NAME. Must not know: what kernels
 * do with them.
 */
#include "codegen/conv_launch.h"
#include "codegen/partition.h"
#include "codegen/unit.h"
#include "codegen/workspace.h"

static void constant(struct gdni_strbuf *sb, const char *name, int32_t value)
{
    gdni_sb_fmt(sb, "constexpr int %s = %d;\n", name, value);
}

static void flag(struct gdni_strbuf *sb, const char *name, int32_t value)
{
    gdni_sb_fmt(sb, "constexpr bool %s = %s;\n", name, value ? "true" : "false");
}

static void emit_prefill(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    flag(sb, "STATE_KV", spec->state_layout == GDN_STATE_KV);
    constant(sb, "STATE_TYPE", spec->state_type);
    constant(sb, "GATE_TYPE", spec->gate_type);
    flag(sb, "GATE_LINEAR", spec->gate == GDN_GATE_LINEAR);
    flag(sb, "GATE_LOGITS", spec->gate == GDN_GATE_LOGITS);
    constant(sb, "BETA_TYPE", spec->beta_type);
    flag(sb, "BETA_LOGITS", spec->beta == GDN_BETA_LOGITS);
    flag(sb, "BETA_TIMES_2", spec->beta_times_2);
    flag(sb, "QK_L2NORM", spec->qk_l2norm);
    flag(sb, "CHECKPOINTS", spec->checkpoints);
    flag(sb, "ZERO_PADDING", spec->zero_padding);
    flag(sb, "PROGRAMMATIC_LAUNCH", spec->programmatic_launch);
    constant(sb, "CLEARING_THREADS", GDNI_CLEARING_THREADS);
    flag(sb, "CU_SEQLENS_I64", spec->cu_seqlens_type == GDN_INDEX_I64);
    flag(sb, "SLOT_I64", spec->slot_type == GDN_INDEX_I64);
    constant(sb, "DK", spec->dk);
    constant(sb, "DV", spec->dv);
    constant(sb, "CHUNK", spec->params.chunk);
    constant(sb, "BLOCK_DV", spec->params.block_dv);
    if (!gdni_kernel_info((enum gdni_kernel)spec->kernel)->has_maps) {
        constant(sb, "STAGES", spec->params.stages);
        return;
    }
    constant(sb, "PRODUCER_REGISTERS", spec->producer_registers);
    constant(sb, "STATE_REGISTERS", spec->state_registers);
    constant(sb, "AUX_REGISTERS", spec->aux_registers);
    constant(sb, "ADDRESS_BITS", GDNI_ADDRESS_BITS);
    constant(sb, "CODE_LINE", GDNI_CODE_LINE);
    const bool images = gdni_kernel_info((enum gdni_kernel)spec->kernel)->has_producers;
    flag(sb, "IMAGES", images);
    constant(sb, "IMAGE_BYTES", images ? gdni_prefill_image_bytes(spec) : 0);
    flag(sb, "TWINS", spec->params.cluster_ctas == 2);
    flag(sb, "CUTS", spec->cuts);
    flag(sb, "TRANSIT", spec->transit);
    constant(sb, "MOST_SHARING", GDNI_MOST_SHARING);
    constant(sb, "MOST_CUT_EVENLY", GDNI_MOST_CUT_EVENLY);
    flag(sb, "CARRIES", spec->params.carry == GDNI_CARRY_STATES);
    constant(sb, "CARRY_BY_GATES", GDNI_CARRY_BY_GATES);
    constant(sb, "CUT_PAIRS", GDNI_CUT_PAIRS);
    constant(sb, "CUT_PARTITIONS", GDNI_CUT_PARTITIONS);
    constant(sb, "ASKED_PAIRS", GDNI_ASKED_PAIRS);
    constant(sb, "KEPT_CHUNKS", GDNI_KEPT_CHUNKS);
}

static void emit_conv_gates(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    flag(sb, "GATES", spec->gate_type != 0);
    constant(sb, "GATE_TYPE", spec->gate_type);
    constant(sb, "A_LOG_TYPE", spec->a_log_type);
    constant(sb, "DT_BIAS_TYPE", spec->dt_bias_type);
    flag(sb, "GATE_EXP", spec->gate_exp);
    flag(sb, "BETA_ROUNDED", spec->beta_rounded);
    flag(sb, "BETA_TIMES_2", spec->beta_times_2);
}

static void emit_conv(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    constant(sb, "IO_TYPE", spec->io_type);
    constant(sb, "STATE_TYPE", spec->state_type);
    flag(sb, "STATE_CW", spec->state_layout != GDN_CONV_STATE_WC);
    flag(sb, "STATE_STRIDED", spec->state_layout == GDN_CONV_STATE_CW_STRIDED);
    flag(sb, "SILU", spec->silu);
    flag(sb, "BIAS", spec->bias);
    constant(sb, "NORM_LANES", spec->norm_lanes);
    flag(sb, "EXACT_NORM", spec->exact_norm);
    flag(sb, "CHECKPOINTS", spec->checkpoints);
    flag(sb, "ZERO_PADDING", spec->zero_padding);
    flag(sb, "CU_SEQLENS_I64", spec->cu_seqlens_type == GDN_INDEX_I64);
    flag(sb, "SLOT_I64", spec->slot_type == GDN_INDEX_I64);
    emit_conv_gates(sb, spec);
    flag(sb, "INTERLEAVED", spec->interleaved);
    flag(sb, "LAUNCH_DEPENDENTS", spec->launch_dependents);
    constant(sb, "WIDTH", spec->width);
    constant(sb, "VECTOR_BYTES", spec->vector_bytes);
    constant(sb, "TILE_TOKENS", spec->params.tile_tokens);
    constant(sb, "MIN_CTAS", spec->min_ctas_per_sm);
    constant(sb, "COPIES", GDNI_CONV_COPIES);
}

void gdni_emit_spec(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    gdni_sb_str(sb, "#pragma once\n\nnamespace spec {\n");
    flag(sb, "IO_BF16", spec->io_type == GDN_BF16);
    if (spec->kernel != GDNI_KERNEL_CONV1D_QKV)
        emit_prefill(sb, spec);
    else
        emit_conv(sb, spec);
    constant(sb, "THREADS", spec->threads);
    constant(sb, "SMEM_BYTES", spec->smem_bytes);
    gdni_sb_str(sb, "}\n");
    if (spec->kernel == GDNI_KERNEL_PREFILL_HOPPER) /* an attribute, which no constant can be */
        gdni_sb_fmt(sb, "#define CLUSTER%s\n", spec->params.cluster_ctas == 2 ? " __cluster_dims__(2, 1, 1)" : "");
}
