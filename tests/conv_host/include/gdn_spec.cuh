// Constants of row KERNEL_ROW of conv_variants.h, as the generator would print them.
#pragma once
namespace spec {
constexpr conv_variant ROW = conv_variants[KERNEL_ROW];
constexpr bool has(uint32_t flag)
{
    return (ROW.flags & flag) != 0;
}
constexpr bool IO_BF16 = ROW.io_type == GDN_BF16;
constexpr int IO_TYPE = ROW.io_type;
constexpr int STATE_TYPE = ROW.state_type ? ROW.state_type : ROW.io_type;
constexpr bool STATE_CW = ROW.state_layout != GDN_CONV_STATE_WC;
constexpr bool STATE_STRIDED = ROW.state_layout == GDN_CONV_STATE_CW_STRIDED;
constexpr bool SILU = has(GDN_CONV_SILU);
constexpr bool BIAS = has(GDN_CONV_BIAS);
constexpr int NORM_LANES = KERNEL_LANES;
static_assert(has(GDN_CONV_L2_NORM) == (KERNEL_LANES > 0), "the list of kernels in CMake and conv_variants.h differ");
constexpr bool EXACT_NORM = has(GDN_CONV_EXACT_NORM);
constexpr bool CHECKPOINTS = has(GDN_CONV_CHECKPOINTS);
constexpr bool ZERO_PADDING = has(GDN_CONV_ZERO_PADDING);
constexpr bool CU_SEQLENS_I64 = ROW.cu_type == GDN_INDEX_I64;
constexpr bool SLOT_I64 = ROW.slot_type == GDN_INDEX_I64;
constexpr bool GATES = ROW.gate_type != 0;
constexpr int GATE_TYPE = ROW.gate_type, A_LOG_TYPE = ROW.a_log_type, DT_BIAS_TYPE = ROW.dt_bias_type;
constexpr bool GATE_EXP = has(GDN_CONV_GATE_EXP);
constexpr bool BETA_ROUNDED = has(GDN_CONV_BETA_ROUNDED);
constexpr bool BETA_TIMES_2 = has(GDN_CONV_BETA_TIMES_2);
constexpr bool INTERLEAVED = ROW.x_layout == GDN_CONV_X_INTERLEAVED;
constexpr bool LAUNCH_DEPENDENTS = false;
constexpr int WIDTH = ROW.width;
constexpr int VECTOR_BYTES = ROW.vector_bytes;
constexpr int TILE_TOKENS = ROW.tile_tokens;
constexpr int MIN_CTAS = 1;
constexpr int COPIES = 32; /* GDNI_CONV_COPIES */
constexpr int THREADS = CONV_HOST_THREADS;
constexpr int SMEM_BYTES = (TILE_TOKENS + 2 * (WIDTH - 1) - 1 + WIDTH) * THREADS * 8 * (IO_TYPE == GDN_F32 ? 4 : 2);
} // namespace spec
