/*
 * open.c - the shared object inside what nvrtc.cc gives back as a cubin -> its entry.
 */
#define _GNU_SOURCE /* memfd_create */
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_gpu.h"

/* The file stays open: the loader takes a second one under the same name for the first. */
static host_gpu_run open_object(const unsigned char *object, size_t size)
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

const unsigned char *host_gpu_object(const void *cubin, size_t *size)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, cubin, sizeof header);
    memcpy(&section, (const unsigned char *)cubin + header.e_shoff + HOST_GPU_SECTION * sizeof section, sizeof section);
    *size = section.sh_size;
    return (const unsigned char *)cubin + section.sh_offset;
}

host_gpu_run host_gpu_open(const void *cubin)
{
    size_t size;
    const unsigned char *object = host_gpu_object(cubin, &size);
    return open_object(object, size);
}
