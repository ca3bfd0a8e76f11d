/*
 * entry.h - the one function that a kernel's shared object exports, after the kernel.
 */
namespace simt {
template <class P> inline const char *run_kernel(const host_gpu_launch *launch, void (*kernel)(P))
{
    const auto *params = (const std::remove_const_t<P> *)launch->params;
    return run_grid(launch, [=] { kernel(*params); });
}
} // namespace simt

#define HOST_GPU_ENTRY_OF(kernel)                                                                                      \
    extern "C" __attribute__((visibility("default"))) const char *host_gpu_entry(const host_gpu_launch *launch)        \
    {                                                                                                                  \
        return simt::run_kernel(launch, kernel);                                                                       \
    }
