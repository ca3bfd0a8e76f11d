/*
 * cuda_mini.h - the few CUDA driver calls that the examples, benchmarks and GPU tests make, opened at run time.
 *
 * An engine includes <cuda.h> and links libcuda. These programs do neither, so that they build on every machine and say
 * "no CUDA driver" instead of failing to start. CUdeviceptr is gdn_devptr and CUstream is gdn_stream.
 *
 * CU(cuMemFree(p)) and GDN(gdn_prefill(...)) end the program with a sentence on failure: fine in a program of one purpose,
 * never in a library.
 */
#ifndef CUDA_MINI_H
#define CUDA_MINI_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "gdn_jit/gdn_jit.h"

typedef int cu_result; /* CUresult: 0 is success */
typedef int cu_device;
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphNode_st *cu_node;
typedef struct CUgraphExec_st *cu_graph_exec;

enum { CU_CAPTURE_THREAD_LOCAL = 1, CU_STREAM_NON_BLOCKING = 1 };

/* X(member, symbol in libcuda.so.1, arguments) */
#define CUDA_MINI_CALLS(X)                                                                                             \
    X(cuInit, cuInit, (unsigned))                                                                                      \
    X(cuDriverGetVersion, cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorString, cuGetErrorString, (cu_result, const char **))                                                  \
    X(cuDeviceGet, cuDeviceGet, (cu_device *, int))                                                                    \
    X(cuDeviceGetName, cuDeviceGetName, (char *, int, cu_device))                                                      \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                                   \
    X(cuCtxSetCurrent, cuCtxSetCurrent, (cu_context))                                                                  \
    X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                                      \
    X(cuMemAlloc, cuMemAlloc_v2, (gdn_devptr *, size_t))                                                               \
    X(cuMemFree, cuMemFree_v2, (gdn_devptr))                                                                           \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (gdn_devptr, const void *, size_t))                                               \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, gdn_devptr, size_t))                                                     \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (gdn_devptr, const void *, size_t, gdn_stream))                         \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, gdn_devptr, size_t, gdn_stream))                               \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (gdn_devptr, gdn_devptr, size_t, gdn_stream))                           \
    X(cuMemsetD8Async, cuMemsetD8Async, (gdn_devptr, unsigned char, size_t, gdn_stream))                               \
    X(cuStreamCreate, cuStreamCreate, (gdn_stream *, unsigned))                                                        \
    X(cuStreamSynchronize, cuStreamSynchronize, (gdn_stream))                                                          \
    X(cuStreamQuery, cuStreamQuery, (gdn_stream))                                                                      \
    X(cuStreamDestroy, cuStreamDestroy_v2, (gdn_stream))                                                               \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (gdn_stream, int))                                                \
    X(cuStreamEndCapture, cuStreamEndCapture, (gdn_stream, cu_graph *))                                                \
    X(cuEventCreate, cuEventCreate, (cu_event *, unsigned))                                                            \
    X(cuEventRecord, cuEventRecord, (cu_event, gdn_stream))                                                            \
    X(cuEventSynchronize, cuEventSynchronize, (cu_event))                                                              \
    X(cuEventElapsedTime, cuEventElapsedTime, (float *, cu_event, cu_event))                                           \
    X(cuEventDestroy, cuEventDestroy_v2, (cu_event))                                                                   \
    X(cuGraphGetNodes, cuGraphGetNodes, (cu_graph, cu_node *, size_t *))                                               \
    X(cuGraphInstantiate, cuGraphInstantiateWithFlags, (cu_graph_exec *, cu_graph, unsigned long long))                \
    X(cuGraphLaunch, cuGraphLaunch, (cu_graph_exec, gdn_stream))                                                       \
    X(cuGraphExecDestroy, cuGraphExecDestroy, (cu_graph_exec))                                                         \
    X(cuGraphDestroy, cuGraphDestroy, (cu_graph))                                                                      \
    X(cuModuleLoadData, cuModuleLoadData, (cu_module *, const void *))                                                 \
    X(cuModuleGetFunction, cuModuleGetFunction, (cu_function *, cu_module, const char *))                              \
    X(cuLaunchKernel, cuLaunchKernel,                                                                                  \
      (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, gdn_stream, void **,         \
       void **))

struct cuda_mini {
#define X(member, symbol, arguments) cu_result(*member) arguments;
    CUDA_MINI_CALLS(X)
#undef X
};

/* One table per program, whichever files include this header. */
__attribute__((weak)) struct cuda_mini cu;
__attribute__((weak)) cu_context cu_primary; /* of the device that cu_open() chose */

static inline const char *cu_text(cu_result result)
{
    const char *text = NULL;
    return cu.cuGetErrorString(result, &text) == 0 && text ? text : "unknown CUDA error";
}

static inline const char *cu_load_table(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return "libcuda.so.1 not found";
#define X(member, symbol, arguments)                                                                                   \
    *(void **)(void *)&cu.member = dlsym(lib, #symbol);                                                                \
    if (!cu.member) return "libcuda.so.1 lacks " #symbol;
    CUDA_MINI_CALLS(X)
#undef X
    return NULL;
}

/* Makes the device's primary context current. NULL, or why nothing can run here. */
static inline const char *cu_open(int ordinal)
{
    cu_device device = 0;
    cu_result result = 0;
    const char *why = cu_load_table();
    if (why) return why;
    if ((result = cu.cuInit(0)) != 0) return cu_text(result);
    if ((result = cu.cuDeviceGet(&device, ordinal)) != 0) return cu_text(result);
    if ((result = cu.cuDevicePrimaryCtxRetain(&cu_primary, device)) != 0) return cu_text(result);
    return (result = cu.cuCtxSetCurrent(cu_primary)) == 0 ? NULL : cu_text(result);
}

static inline void cu_check(cu_result result, const char *what, const char *file, int line)
{
    if (result == 0) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, cu_text(result));
    exit(1);
}

static inline void gdn_check(gdn_status status, const char *what, const char *file, int line)
{
    if (status == GDN_OK) return;
    fprintf(stderr, "%s:%d: %s\n    %s: %s\n", file, line, what, gdn_status_name(status), gdn_last_error());
    exit(1);
}

#define CU(call)  cu_check(cu.call, #call, __FILE__, __LINE__)
#define GDN(call) gdn_check((call), #call, __FILE__, __LINE__)

static inline gdn_devptr cu_alloc(size_t bytes)
{
    gdn_devptr p = 0;
    CU(cuMemAlloc(&p, bytes ? bytes : 1));
    return p;
}

/* A copy from pageable memory may return while its last part is on its way, and non-blocking streams do not wait for it. */
static inline void cu_copy_in(gdn_devptr p, const void *host, size_t bytes)
{
    if (bytes) CU(cuMemcpyHtoD(p, host, bytes));
    CU(cuStreamSynchronize(NULL));
}

static inline gdn_devptr cu_upload(const void *host, size_t bytes)
{
    const gdn_devptr p = cu_alloc(bytes);
    cu_copy_in(p, host, bytes);
    return p;
}

/* What is enqueued on stream between these two becomes one launchable graph. */
static inline void cu_capture_begin(gdn_stream stream)
{
    CU(cuStreamBeginCapture(stream, CU_CAPTURE_THREAD_LOCAL));
}

static inline cu_graph_exec cu_capture_end(gdn_stream stream, size_t *num_nodes)
{
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CU(cuStreamEndCapture(stream, &graph));
    if (num_nodes) CU(cuGraphGetNodes(graph, NULL, num_nodes));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphDestroy(graph));
    return exec;
}

#endif
