/*
 * driver.h - libcuda by dlopen and cuGetProcAddress: the few entry points that this library calls, as a table, and our own
 * prototypes for them. The one file that knows CUDA's types.
 */
#ifndef GDNI_DRIVER_H
#define GDNI_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

typedef int gdni_curesult; /* CUresult; 0 is success */
typedef int gdni_cudevice;
typedef struct gdni_cuctx_opaque *gdni_cuctx;
typedef struct gdni_culib_opaque *gdni_culib;
typedef struct gdni_cukernel_opaque *gdni_cukernel;
typedef struct gdni_cufunc_opaque *gdni_cufunc;
typedef struct gdni_cuevent_opaque *gdni_cuevent;
typedef struct gdni_cugraph_opaque *gdni_cugraph;
typedef struct gdni_cuexec_opaque *gdni_cuexec; /* an instantiated graph */
struct gdni_tensor_map; /* CUtensorMap (kernel_params.h) */

/* CUlaunchAttribute: the ids and values that are used here, in a union as large as CUDA's. */
enum { GDNI_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
struct gdni_launch_attribute {
    int32_t id, pad;
    union {
        int32_t allowed;
        uint64_t room[8];
    } value;
};

/* CUlaunchConfig */
struct gdni_launch_config {
    uint32_t grid[3], block[3], smem;
    gdn_stream stream;
    const struct gdni_launch_attribute *attributes;
    uint32_t num_attributes;
};

/* X(symbol, arguments) of every entry point; driver.c resolves exactly these. */
#define GDNI_DRIVER_CALLS(X)                                                                                           \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDriverGetVersion, (int *version))                                                                              \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (gdni_cudevice * device, int ordinal))                                                              \
    X(cuDeviceGetName, (char *name, int len, gdni_cudevice device))                                                    \
    X(cuDeviceGetAttribute, (int *value, int attribute, gdni_cudevice device))                                         \
    X(cuDevicePrimaryCtxGetState, (gdni_cudevice device, unsigned *flags, int *active))                                \
    X(cuDevicePrimaryCtxRetain, (gdni_cuctx * ctx, gdni_cudevice device))                                              \
    X(cuDevicePrimaryCtxRelease, (gdni_cudevice device))                                                               \
    X(cuCtxPushCurrent, (gdni_cuctx ctx))                                                                              \
    X(cuCtxPopCurrent, (gdni_cuctx * ctx))                                                                             \
    X(cuCtxGetCurrent, (gdni_cuctx * ctx))                                                                             \
    X(cuCtxGetDevice, (gdni_cudevice * device))                                                                        \
    X(cuLibraryLoadData,                                                                                               \
      (gdni_culib * library, const void *code, const void *jit_options, const void **jit_values, unsigned num_jit,     \
       const void *library_options, const void **library_values, unsigned num_library))                                \
    X(cuLibraryUnload, (gdni_culib library))                                                                           \
    X(cuLibraryGetKernel, (gdni_cukernel * kernel, gdni_culib library, const char *name))                              \
    X(cuKernelGetFunction, (gdni_cufunc * function, gdni_cukernel kernel))                                             \
    X(cuKernelSetAttribute, (int attribute, int value, gdni_cukernel kernel, gdni_cudevice device))                    \
    X(cuStreamIsCapturing, (gdn_stream stream, int *status))                                                           \
    X(cuMemsetD32Async, (gdn_devptr address, unsigned value, size_t words, gdn_stream stream))                         \
    X(cuLaunchKernel,                                                                                                  \
      (gdni_cufunc function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,    \
       unsigned block_z, unsigned smem, gdn_stream stream, void **params, void **extra))                               \
    X(cuLaunchKernelEx,                                                                                                \
      (const struct gdni_launch_config *config, gdni_cufunc function, void **params, void **extra))                    \
    X(cuTensorMapEncodeTiled,                                                                                          \
      (struct gdni_tensor_map * map, int type, uint32_t rank, uint64_t address, const uint64_t *dims,                  \
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle,     \
       int l2_promotion, int oob_fill))                                                                                \
    /* of the tuner alone */                                                                                           \
    X(cuDeviceGetPCIBusId, (char *bus_id, int len, gdni_cudevice device))                                              \
    X(cuMemGetInfo, (size_t * free_bytes, size_t *total_bytes))                                                        \
    X(cuMemAlloc, (gdn_devptr * address, size_t bytes))                                                                \
    X(cuMemFree, (gdn_devptr address))                                                                                 \
    X(cuMemcpyHtoDAsync, (gdn_devptr to, const void *from, size_t bytes, gdn_stream stream))                           \
    X(cuMemcpyDtoHAsync, (void *to, gdn_devptr from, size_t bytes, gdn_stream stream))                                 \
    X(cuMemcpyDtoDAsync, (gdn_devptr to, gdn_devptr from, size_t bytes, gdn_stream stream))                            \
    X(cuStreamCreate, (gdn_stream * stream, unsigned flags))                                                           \
    X(cuStreamDestroy, (gdn_stream stream))                                                                            \
    X(cuStreamBeginCapture, (gdn_stream stream, int mode))                                                             \
    X(cuStreamEndCapture, (gdn_stream stream, gdni_cugraph *graph))                                                    \
    X(cuGraphInstantiateWithFlags, (gdni_cuexec * exec, gdni_cugraph graph, uint64_t flags))                           \
    X(cuGraphDestroy, (gdni_cugraph graph))                                                                            \
    X(cuGraphLaunch, (gdni_cuexec exec, gdn_stream stream))                                                            \
    X(cuGraphExecDestroy, (gdni_cuexec exec))                                                                          \
    X(cuEventCreate, (gdni_cuevent * event, unsigned flags))                                                           \
    X(cuEventRecord, (gdni_cuevent event, gdn_stream stream))                                                          \
    X(cuEventQuery, (gdni_cuevent event))                                                                              \
    X(cuEventElapsedTime, (float *milliseconds, gdni_cuevent from, gdni_cuevent to))                                   \
    X(cuEventDestroy, (gdni_cuevent event))                                                                            \
    X(cuGetErrorString, (gdni_curesult result, const char **text))

struct gdni_cuda {
#define X(name, arguments) gdni_curesult(*name) arguments;
    GDNI_DRIVER_CALLS(X)
#undef X
};

struct gdni_driver;

/* path NULL: libcuda.so.1. Opens nothing yet. NULL when out of memory. */
struct gdni_driver *gdni_driver_create(const char *path);
void gdni_driver_destroy(struct gdni_driver *driver);

/*
 * The table, after dlopen, resolution and cuInit, once; GDN_E_NO_DRIVER (GDN_E_NO_DEVICE when the driver finds no GPU) with
 * what failed and the remedy, also on later calls. The table lives as long as the driver object.
 */
gdn_status gdni_driver_get(struct gdni_driver *driver, const struct gdni_cuda **out);

/* GDN_E_CUDA with the call's name and the driver's words. */
gdn_status gdni_cuda_fail(const struct gdni_cuda *cuda, gdni_curesult result, const char *call);

/* What the driver says of a result. */
const char *gdni_cuda_words(const struct gdni_cuda *cuda, gdni_curesult result);

#endif
