/*
 * driver.c - makes the fake libcuda a GPU that runs the kernels themselves, as nvrtc.cc compiles them for the host: programs
 * that are made for a GPU run on it as they are. Slow, with few SMs, and with any order of events that a GPU may have.
 *
 *   HOST_GPU_SMS=4      SMs, and so CTAs of a kernel that fills one at a time
 *   HOST_GPU_SEED=1     of the order of events; each launch has its own
 *   HOST_GPU_CC=9.0     compute capability
 *   HOST_GPU_SLOW=-1    CTA that falls behind the others once all have begun; -1: none
 *
 * What a GPU would not have borne is printed, and every call after it fails, as after an illegal address.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fakecuda/fakecuda.h"
#include "fakenvrtc/fake_cubin.h"
#include "host_gpu.h"
#include "runtime/driver.h"

extern const struct fake_controls fake_controls;

enum { MAX_KERNELS = 256, SHARED_PER_SM = 228 * 1024, SHARED_RESERVED = 1024, FEW_AT_A_TIME = 2 };

static struct {
    uint64_t hash;
    host_gpu_run run;
} kernels[MAX_KERNELS];
static int num_kernels;
static unsigned seed = 1, slow; /* slow: see host_gpu_launch */

/* ---- Kernels ---- */

static host_gpu_run find_kernel(const unsigned char *image)
{
    size_t size;
    const void *object = fake_cubin_body(image, &size);
    const uint64_t hash = XXH3_64bits(object, size);
    for (int i = 0; i < num_kernels; ++i)
        if (kernels[i].hash == hash) return kernels[i].run;
    if (num_kernels == MAX_KERNELS) return NULL;
    kernels[num_kernels].hash = hash;
    kernels[num_kernels].run = host_gpu_open(image);
    return kernels[num_kernels++].run;
}

static unsigned resident_ctas(const struct fake_launch *launch)
{
    const unsigned on_one = SHARED_PER_SM / (launch->smem + SHARED_RESERVED);
    return (unsigned)fake_controls.device(0)->num_sms * (on_one < FEW_AT_A_TIME ? on_one : FEW_AT_A_TIME);
}

/* NULL, or why a launch is none that this GPU runs. */
static const char *why_not(const struct fake_launch *launch)
{
    const unsigned others = launch->grid[1] * launch->grid[2] * launch->block[1] * launch->block[2];
    if (others != 1) return "its grid has more than one dimension";
    if (launch->block[0] % 32) return "its threads are no whole warps";
    return fake_controls.device(0)->num_sms > 0 ? NULL : "there is no SM";
}

/* A launch takes as long as it takes to run it, which is now: graphs and streams run what they are given in order. */
static int64_t duration(void *user, const struct fake_launch *launch)
{
    (void)user;
    static unsigned launches;
    const struct host_gpu_launch l = { launch->grid[0], launch->block[0], launch->smem, resident_ctas(launch),
                                       (uint64_t)seed << 32 | ++launches, launch->params, slow };
    const char *trouble = why_not(launch);
    if (!trouble) {
        const host_gpu_run run = find_kernel(launch->image);
        trouble = run ? run(&l) : "its kernel cannot be opened, or there are too many";
    }
    if (!*trouble) return 10000;
    fprintf(stderr, "host GPU: %s, HOST_GPU_SEED=%u, launch %u: %s\n", launch->kernel, seed, launches, trouble);
    return FAKE_FAULTS;
}

static double variable(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

/* KB of shared memory that a CTA may have (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"). */
static int shared_kb(int cc)
{
    return cc == 80 || cc == 87 ? 163 : cc == 86 || cc == 89 || cc >= 120 ? 99 : 227;
}

__attribute__((constructor)) static void plug_in(void)
{
    static const struct fake_device_code code = { .duration = duration };
    fake_controls.reset();
    struct fake_device *gpu = fake_controls.device(0);
    const int cc = (int)(variable("HOST_GPU_CC", 9.0) * 10 + 0.5);
    snprintf(gpu->name, sizeof gpu->name, "host GPU");
    gpu->num_sms = (int)variable("HOST_GPU_SMS", 4);
    gpu->major = cc / 10;
    gpu->minor = cc % 10;
    gpu->smem_optin = shared_kb(cc) * 1024;
    seed = (unsigned)variable("HOST_GPU_SEED", 1);
    slow = (unsigned)(1 + variable("HOST_GPU_SLOW", -1));
    fake_controls.set_free_memory((size_t)16 << 30);
    fake_controls.set_code(&code);
}

/* ---- What programs call that the library does not (examples/cuda_mini.h) ---- */

#define EXPORTED __attribute__((visibility("default")))

EXPORTED gdni_curesult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

/* Under its versioned name, the call that cuGetProcAddress knows. */
#define FORWARDED(symbol, name, parameters, arguments)                                                                 \
    EXPORTED gdni_curesult symbol parameters;                                                                          \
    gdni_curesult symbol parameters                                                                                    \
    {                                                                                                                  \
        gdni_curesult(*call) parameters = NULL;                                                                        \
        int status;                                                                                                    \
        (void)cuGetProcAddress_v2(name, (void **)(void *)&call, 12080, 1, &status);                                    \
        return call arguments;                                                                                         \
    }
#define ANSWERED(symbol, parameters, ...)                                                                              \
    EXPORTED gdni_curesult symbol parameters;                                                                          \
    gdni_curesult symbol parameters                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

FORWARDED(cuInit, "cuInit", (unsigned flags), (flags))
FORWARDED(cuDriverGetVersion, "cuDriverGetVersion", (int *version), (version))
FORWARDED(cuGetErrorString, "cuGetErrorString", (gdni_curesult code, const char **text), (code, text))
FORWARDED(cuDeviceGet, "cuDeviceGet", (gdni_cudevice * device, int ordinal), (device, ordinal))
FORWARDED(cuDeviceGetName, "cuDeviceGetName", (char *name, int len, gdni_cudevice device), (name, len, device))
FORWARDED(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (gdni_cuctx * ctx, gdni_cudevice device), (ctx, device))
FORWARDED(cuMemAlloc_v2, "cuMemAlloc", (gdn_devptr * address, size_t bytes), (address, bytes))
FORWARDED(cuMemFree_v2, "cuMemFree", (gdn_devptr address), (address))
FORWARDED(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", (gdn_devptr to, const void *from, size_t bytes, gdn_stream stream),
          (to, from, bytes, stream))
FORWARDED(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", (void *to, gdn_devptr from, size_t bytes, gdn_stream stream),
          (to, from, bytes, stream))
FORWARDED(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", (gdn_devptr to, gdn_devptr from, size_t bytes, gdn_stream stream),
          (to, from, bytes, stream))
FORWARDED(cuStreamCreate, "cuStreamCreate", (gdn_stream * stream, unsigned flags), (stream, flags))
FORWARDED(cuStreamDestroy_v2, "cuStreamDestroy", (gdn_stream stream), (stream))
FORWARDED(cuStreamBeginCapture_v2, "cuStreamBeginCapture", (gdn_stream stream, int mode), (stream, mode))
FORWARDED(cuStreamEndCapture, "cuStreamEndCapture", (gdn_stream stream, gdni_cugraph *graph), (stream, graph))
FORWARDED(cuEventCreate, "cuEventCreate", (gdni_cuevent * event, unsigned flags), (event, flags))
FORWARDED(cuEventRecord, "cuEventRecord", (gdni_cuevent event, gdn_stream stream), (event, stream))
FORWARDED(cuEventElapsedTime, "cuEventElapsedTime", (float *ms, gdni_cuevent from, gdni_cuevent to), (ms, from, to))
FORWARDED(cuEventDestroy_v2, "cuEventDestroy", (gdni_cuevent event), (event))
FORWARDED(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags",
          (gdni_cuexec * exec, gdni_cugraph graph, uint64_t flags), (exec, graph, flags))
FORWARDED(cuGraphLaunch, "cuGraphLaunch", (gdni_cuexec exec, gdn_stream stream), (exec, stream))
FORWARDED(cuGraphExecDestroy, "cuGraphExecDestroy", (gdni_cuexec exec), (exec))
FORWARDED(cuGraphDestroy, "cuGraphDestroy", (gdni_cugraph graph), (graph))
FORWARDED(cuLaunchKernel, "cuLaunchKernel",
          (gdni_cufunc function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
           unsigned smem, gdn_stream stream, void **params, void **extra),
          (function, gx, gy, gz, bx, by, bz, smem, stream, params, extra))

static gdni_curesult state(void)
{
    return fake_controls.faulted() ? 700 : 0;
}

ANSWERED(cuCtxSetCurrent, (gdni_cuctx ctx), (void)ctx; fake_controls.make_current(0); return 0;)
ANSWERED(cuCtxSynchronize, (void), return state();)
ANSWERED(cuStreamSynchronize, (gdn_stream stream), (void)stream; return state();)
ANSWERED(cuStreamQuery, (gdn_stream stream), (void)stream; return state();)
ANSWERED(cuEventSynchronize, (gdni_cuevent event), (void)event; return state();)
ANSWERED(cuMemcpyHtoD_v2, (gdn_devptr to, const void *from, size_t bytes),
         return cuMemcpyHtoDAsync_v2(to, from, bytes, NULL);)
ANSWERED(cuMemcpyDtoH_v2, (void *to, gdn_devptr from, size_t bytes), return cuMemcpyDtoHAsync_v2(to, from, bytes, NULL);)
ANSWERED(cuMemsetD8Async, (gdn_devptr address, unsigned char value, size_t bytes, gdn_stream stream), (void)stream;
         memset((void *)(uintptr_t)address, value, bytes); return state();)
ANSWERED(cuGraphGetNodes, (gdni_cugraph graph, void *nodes, size_t *count),
         if (nodes) return 801; *count = fake_controls.graph_nodes(graph); return 0;)
ANSWERED(cuModuleLoadData, (void **module, const void *image), (void)image; *module = NULL; return 801;)
ANSWERED(cuModuleGetFunction, (void **function, void *module, const char *name),
         (void)module; (void)name; *function = NULL; return 801;)
