/*
 * open.c - the shared object inside what nvrtc.cc gives back as a cubin -> its entry.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fakenvrtc/fake_cubin.h"
#include "host_gpu.h"

/* The file stays open: the loader takes a second one under the same name for the first. */
static host_gpu_run open_object(const void *object, size_t size)
{
    char path[64];
    host_gpu_run run = NULL;
    const int fd = memfd_create("kernel", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, object, size) != (ssize_t)size) {
        perror("host GPU: no file for a kernel");
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library)
        *(void **)(void *)&run = dlsym(library, HOST_GPU_ENTRY);
    else
        fprintf(stderr, "host GPU: %s\n", dlerror());
    return run;
}

host_gpu_run host_gpu_open(const void *cubin)
{
    size_t size;
    const void *object = fake_cubin_body(cubin, &size);
    return open_object(object, size);
}
