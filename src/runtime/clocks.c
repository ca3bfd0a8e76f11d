/*
 * clocks.c - owns libnvidia-ml: opened at first use, asked for two clocks. Must not know: what is measured while they are read.
 *
 * Whatever is missing, fails or makes no sense is a clock of 0, never an error: provenance is no reason not to tune. `lock`
 * guards the opening and every call.
 */
#include "runtime/clocks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { NVML_SM = 1, NVML_MEM = 2, MOST_MHZ = 100000 };
static const char name[] = "libnvidia-ml.so.1";

typedef struct nvml_device_opaque *nvml_device;

/* The entry points that are used, as NVML exports them. */
#define NVML_CALLS(X)                                                                                                  \
    X(init, "nvmlInit_v2", (void))                                                                                     \
    X(shutdown, "nvmlShutdown", (void))                                                                                \
    X(device, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus_id, nvml_device *device))                           \
    X(clock, "nvmlDeviceGetClockInfo", (nvml_device device, int kind, unsigned *mhz))

struct gdni_clocks {
    char *path;
    pthread_mutex_t lock;
    bool tried;    /* to open */
    void *library; /* NULL: there is none, or none that works */
#define X(member, symbol, arguments) int(*member) arguments;
    NVML_CALLS(X)
#undef X
};

/* The library beside a driver that is named by its folder; for gdni_free(). */
static char *path_beside(const char *driver_path)
{
    const char *slash = driver_path ? strrchr(driver_path, '/') : NULL;
    const size_t folder = slash ? (size_t)(slash - driver_path) + 1 : 0;
    char *path = gdni_alloc(folder + sizeof name);
    if (!path) return NULL;
    if (folder) memcpy(path, driver_path, folder);
    memcpy(path + folder, name, sizeof name);
    return path;
}

struct gdni_clocks *gdni_clocks_create(const char *driver_path)
{
    struct gdni_clocks *c = gdni_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->path = path_beside(driver_path);
    if (!c->path || pthread_mutex_init(&c->lock, NULL) != 0) {
        gdni_free(c->path);
        gdni_free(c);
        return NULL;
    }
    return c;
}

void gdni_clocks_destroy(struct gdni_clocks *c)
{
    if (!c) return;
    if (c->library) {
        c->shutdown();
        dlclose(c->library);
    }
    pthread_mutex_destroy(&c->lock);
    gdni_free(c->path);
    gdni_free(c);
}

/* ISO C has no cast from void * to a function pointer. */
static bool find(void *library, const char *symbol, void *slot)
{
    void *const function = dlsym(library, symbol);
    memcpy(slot, &function, sizeof function);
    return function != NULL;
}

static bool find_all(struct gdni_clocks *c, void *library)
{
#define X(member, symbol, arguments) find(library, symbol, &c->member) &&
    return NVML_CALLS(X) true;
#undef X
}

static bool is_open(struct gdni_clocks *c)
{
    if (c->tried) return c->library != NULL;
    c->tried = true;
    void *const library = dlopen(c->path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    if (find_all(c, library) && c->init() == 0)
        c->library = library;
    else
        dlclose(library);
    return c->library != NULL;
}

static int32_t read_clock(const struct gdni_clocks *c, nvml_device device, int kind)
{
    unsigned mhz = 0;
    return c->clock(device, kind, &mhz) == 0 && mhz <= MOST_MHZ ? (int32_t)mhz : 0;
}

/* CUDA's ordinals follow CUDA_VISIBLE_DEVICES, NVML's do not: a GPU is the same by its place on the bus. */
static struct gdni_mhz read_both(struct gdni_clocks *c, const char *bus_id)
{
    struct gdni_mhz mhz = { 0, 0 };
    nvml_device device = NULL;
    if (!is_open(c) || c->device(bus_id, &device) != 0) return mhz;
    mhz.sm = read_clock(c, device, NVML_SM);
    mhz.mem = read_clock(c, device, NVML_MEM);
    return mhz;
}

struct gdni_mhz gdni_clocks_now(struct gdni_clocks *c, const struct gdni_cuda *cuda, gdni_cudevice device)
{
    char bus_id[32] = "";
    if (cuda->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device) != 0) return (struct gdni_mhz){ 0, 0 };
    pthread_mutex_lock(&c->lock);
    const struct gdni_mhz mhz = read_both(c, bus_id);
    pthread_mutex_unlock(&c->lock);
    return mhz;
}
