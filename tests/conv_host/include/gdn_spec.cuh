// Constants of row KERNEL_ROW of the table in kernels.cc, as the generator would print them. No include guard: one expansion
// a row.
namespace spec {
constexpr bool IO_BF16 = rows[KERNEL_ROW].io_type == GDN_BF16;
constexpr bool STATE_CW = rows[KERNEL_ROW].state_layout == GDN_CONV_STATE_CW;
constexpr bool SILU = (rows[KERNEL_ROW].flags & GDN_CONV_SILU) != 0;
constexpr bool BIAS = (rows[KERNEL_ROW].flags & GDN_CONV_BIAS) != 0;
constexpr int WIDTH = rows[KERNEL_ROW].width;
constexpr int VECTOR_BYTES = rows[KERNEL_ROW].vector_bytes;
constexpr int TILE_TOKENS = rows[KERNEL_ROW].tile_tokens;
constexpr int THREADS = CONV_HOST_THREADS;
} // namespace spec
