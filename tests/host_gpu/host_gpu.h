/*
 * host_gpu.h - between the host GPU's compiler (nvrtc.cc), which makes a shared object of a kernel, and its driver (driver.c),
 * which runs it.
 */
#ifndef HOST_GPU_H
#define HOST_GPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct host_gpu_launch {
    unsigned grid, block, shared_bytes;
    unsigned resident; /* CTAs at a time */
    uint64_t seed;     /* of the order of events */
    const void *params;
    unsigned slow; /* 1 + a CTA that falls behind once all have begun; 0: none */
};

/*
 * Exported by the shared object. "", or what a GPU would not have borne, or where its lanes wait for ever: then the kernel's
 * lanes are left where they are, and it cannot be run again.
 */
typedef const char *(*host_gpu_run)(const struct host_gpu_launch *launch);

#define HOST_GPU_ENTRY "host_gpu_entry"

/* NULL, with a line on stderr, where it cannot be opened. */
host_gpu_run host_gpu_open(const void *cubin);

#ifdef __cplusplus
}
#endif

#endif
