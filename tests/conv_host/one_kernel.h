/*
 * one_kernel.h - the template for row KERNEL_ROW, in a namespace of its own. No include guard: kernels.cc includes it for
 * each row.
 */
namespace GLUE(kernel_, KERNEL_ROW) {
#define conv1d_qkv GLUE(conv1d_qkv_, KERNEL_ROW)
#include "conv1d_qkv.cu"

static void run_thread(const gdni_conv1d_params *host, uint32_t block, uint32_t thread)
{
    conv1d_params p;
    memcpy(&p, host, sizeof p);
    blockIdx = host_dim3{block, 0, 0};
    threadIdx = host_dim3{thread, 0, 0};
    conv1d_qkv(p);
}
#undef conv1d_qkv
} // namespace
#undef KERNEL_ROW
