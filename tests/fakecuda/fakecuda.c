/*
 * fakecuda.c - see fakecuda.h. Must not know: plans, caches, compilers. It knows the launch structs, to copy as many bytes of
 * a parameter as a kernel would read (a memory checker then sees a host that passes fewer).
 */
#include "fakecuda.h"

#include <elf.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernel_params.h"
#include "fakecuda/fake_map.h"
#include "runtime/driver.h"

enum {
    OK,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901
};
enum { MAX_STREAMS = 64, ALLOCATION_ALIGNMENT = 256 };
enum { DEVICE_BASE = 7 }; /* CUdevice of ordinal 0: a host that takes one for the other is found out */
enum { MAX_STACK = 16, MAX_CALLS = 64, MAX_LAUNCHES = 4096, EM_CUDA_MACHINE = 190, SMEM_WITHOUT_OPT_IN = 48 * 1024 };

struct gdni_cuctx_opaque {
    int ordinal;
    bool primary;
};

struct gdni_culib_opaque {
    unsigned char *image;
    int cc;
    struct gdni_cukernel_opaque *kernels;
};

/* One kernel; what cuKernelGetFunction gives for it on a device. */
struct gdni_cufunc_opaque {
    struct gdni_cukernel_opaque *kernel;
    int ordinal;
    int max_smem;
};

struct gdni_cukernel_opaque {
    struct gdni_cukernel_opaque *next;
    struct gdni_culib_opaque *library;
    char name[64];
    struct gdni_cufunc_opaque functions[FAKE_MAX_DEVICES];
};

/* A kernel, or a fill of memory (address is not 0). */
struct node {
    struct node *next;
    struct fake_launch launch;
    unsigned long long address;
    unsigned value;
    size_t words;
};

struct gdni_cugraph_opaque {
    struct node *first, **end;
};

struct gdni_cuexec_opaque {
    struct node *first;
};

/* A stream that was made here; launches elsewhere are recorded and take no time. */
struct CUstream_st {
    bool used, hangs;
    int64_t now; /* ns: when everything that was enqueued has run */
    struct gdni_cugraph_opaque *capture;
    bool spoilt; /* the capture, by a launch that failed */
};

struct gdni_cuevent_opaque {
    int64_t at;
    bool recorded, hangs;
};

struct allocation {
    struct allocation *next;
    size_t bytes;
    unsigned char *memory;
};

static struct {
    bool initialised;
    int num_devices;
    struct fake_device devices[FAKE_MAX_DEVICES];
    int retained[FAKE_MAX_DEVICES];
    int libraries;
    int capture, version;
    char hidden[64];
    char failing[64];
    int fail_at, fail_result;
    int total, walk_at, walk_times, walk_result; /* walk_at 0: no call is told to fail by its place */
    const char *struck;
    struct {
        const char *name;
        int count;
    } calls[MAX_CALLS];
    struct fake_launch launches[MAX_LAUNCHES];
    int num_launches;
    struct fake_memset memset;
    struct fake_device_code code;
    bool faulted;
    struct CUstream_st streams[MAX_STREAMS];
    int num_streams, num_events, num_graphs, num_allocations, graph_kernels;
    struct allocation *allocations;
    struct fake_memory memory;
    size_t free_memory;
    unsigned sm_mhz, mem_mhz;
    int nvml_users;
} fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `fake` */
static struct gdni_cuctx_opaque primaries[FAKE_MAX_DEVICES], others[FAKE_MAX_DEVICES];
static void (*_Atomic hook)(const char *call);
static _Thread_local gdni_cuctx stack[MAX_STACK];
static _Thread_local int depth, floor_depth; /* contexts on the stack; of those, how many the test put there itself */

/* ---- Counting and failing ---- */

static int *count_of(const char *call)
{
    for (int i = 0; i < MAX_CALLS && fake.calls[i].name; ++i) /* nearly always */
        if (fake.calls[i].name == call) return &fake.calls[i].count;
    for (int i = 0; i < MAX_CALLS; ++i) {
        if (!fake.calls[i].name) fake.calls[i].name = call;
        if (strcmp(fake.calls[i].name, call) == 0) return &fake.calls[i].count;
    }
    abort(); /* MAX_CALLS is too small for GDNI_DRIVER_CALLS: a bug of this file */
}

/* Whether this call, of whatever name, is one of those that fail_nth() means. */
static bool is_struck(const char *call)
{
    const int at = ++fake.total;
    if (!fake.walk_at || at < fake.walk_at || (fake.walk_times && at >= fake.walk_at + fake.walk_times)) return false;
    if (!fake.struck) fake.struck = call;
    return true;
}

static void run_hook(const char *call)
{
    void (*const run)(const char *) = hook;
    if (run) run(call);
}

/* Counts the call; the result it is told to fail with, or 0. The lock is held. */
static gdni_curesult enter(const char *call)
{
    ++*count_of(call);
    if (fake.faulted && strcmp(call, "cuGetErrorString") != 0) return ILLEGAL_ADDRESS;
    if (is_struck(call)) return fake.walk_result;
    if (strcmp(fake.failing, call) != 0) return OK;
    if (fake.fail_at == 0) return fake.fail_result;
    return --fake.fail_at == 0 ? (fake.failing[0] = '\0', fake.fail_result) : OK;
}

#define ENTER(call)                                                                                                    \
    run_hook(call);                                                                                                    \
    pthread_mutex_lock(&lock);                                                                                         \
    gdni_curesult result = enter(call);                                                                                \
    if (result == OK && !fake.initialised && strcmp(call, "cuInit") != 0) result = NOT_INITIALIZED
#define LEAVE()                                                                                                        \
    pthread_mutex_unlock(&lock);                                                                                       \
    return result

/* ---- Devices ---- */

static gdni_curesult fake_cuInit(unsigned flags)
{
    ENTER("cuInit");
    if (result == OK && flags != 0) result = INVALID_VALUE;
    if (result == OK && fake.num_devices == 0) result = 100;
    if (result == OK) fake.initialised = true;
    LEAVE();
}

static gdni_curesult fake_cuDriverGetVersion(int *version)
{
    ENTER("cuDriverGetVersion");
    if (result == OK) *version = fake.version;
    LEAVE();
}

static gdni_curesult fake_cuDeviceGetCount(int *count)
{
    ENTER("cuDeviceGetCount");
    if (result == OK) *count = fake.num_devices;
    LEAVE();
}

static gdni_curesult fake_cuDeviceGet(gdni_cudevice *device, int ordinal)
{
    ENTER("cuDeviceGet");
    if (result == OK && (ordinal < 0 || ordinal >= fake.num_devices)) result = INVALID_DEVICE;
    if (result == OK) *device = DEVICE_BASE + ordinal;
    LEAVE();
}

/* -1 for what is no device. */
static int ordinal_of(gdni_cudevice device)
{
    const int ordinal = device - DEVICE_BASE;
    return ordinal >= 0 && ordinal < fake.num_devices ? ordinal : -1;
}

static gdni_curesult fake_cuDeviceGetName(char *name, int len, gdni_cudevice device)
{
    ENTER("cuDeviceGetName");
    const int ordinal = ordinal_of(device);
    if (result == OK && ordinal < 0) result = INVALID_DEVICE;
    if (result == OK) snprintf(name, (size_t)len, "%s", fake.devices[ordinal].name);
    LEAVE();
}

enum { FIRST_BUS = 0x1b }; /* of ordinal 0: neither an ordinal nor a CUdevice */

static gdni_curesult fake_cuDeviceGetPCIBusId(char *bus_id, int len, gdni_cudevice device)
{
    ENTER("cuDeviceGetPCIBusId");
    const int ordinal = ordinal_of(device);
    if (result == OK && (ordinal < 0 || len < 13)) result = INVALID_DEVICE;
    if (result == OK) snprintf(bus_id, (size_t)len, "0000:%02X:00.0", (unsigned)(FIRST_BUS + ordinal));
    LEAVE();
}

static gdni_curesult attribute_of(const struct fake_device *device, int attribute, int *value)
{
    const struct {
        int attribute, value;
    } table[] = {
        { 75, device->major },      { 76, device->minor },    { 16, device->num_sms },
        { 97, device->smem_optin }, { 38, device->l2_bytes }, { 36, device->memory_clock_khz },
        { 37, device->bus_bits },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; ++i)
        if (table[i].attribute == attribute) {
            *value = table[i].value;
            return OK;
        }
    return INVALID_VALUE;
}

static gdni_curesult fake_cuDeviceGetAttribute(int *value, int attribute, gdni_cudevice device)
{
    ENTER("cuDeviceGetAttribute");
    const int ordinal = ordinal_of(device);
    if (result == OK && ordinal < 0) result = INVALID_DEVICE;
    if (result == OK) result = attribute_of(&fake.devices[ordinal], attribute, value);
    LEAVE();
}

/* ---- Contexts ---- */

/* Active: somebody retains it, or the test made it current in this thread, as a runtime's retaining would. */
static gdni_curesult fake_cuDevicePrimaryCtxGetState(gdni_cudevice device, unsigned *flags, int *active)
{
    ENTER("cuDevicePrimaryCtxGetState");
    const int ordinal = ordinal_of(device);
    if (result == OK && ordinal < 0) result = INVALID_DEVICE;
    if (result == OK) {
        *flags = 0;
        *active = fake.retained[ordinal] > 0 || (depth > 0 && stack[depth - 1] == &primaries[ordinal]);
    }
    LEAVE();
}

static gdni_curesult fake_cuDevicePrimaryCtxRetain(gdni_cuctx *ctx, gdni_cudevice device)
{
    ENTER("cuDevicePrimaryCtxRetain");
    const int ordinal = ordinal_of(device);
    if (result == OK && ordinal < 0) result = INVALID_DEVICE;
    if (result == OK) {
        ++fake.retained[ordinal];
        *ctx = &primaries[ordinal];
    }
    LEAVE();
}

static gdni_curesult fake_cuDevicePrimaryCtxRelease(gdni_cudevice device)
{
    ENTER("cuDevicePrimaryCtxRelease");
    const int ordinal = ordinal_of(device);
    if (ordinal < 0)
        result = INVALID_DEVICE;
    else
        --fake.retained[ordinal]; /* below zero is a balance that tests see */
    LEAVE();
}

static gdni_curesult fake_cuCtxPushCurrent(gdni_cuctx ctx)
{
    ENTER("cuCtxPushCurrent");
    if (result == OK && (!ctx || depth == MAX_STACK)) result = INVALID_CONTEXT;
    if (result == OK) stack[depth++] = ctx;
    LEAVE();
}

static gdni_curesult fake_cuCtxPopCurrent(gdni_cuctx *ctx)
{
    ENTER("cuCtxPopCurrent");
    if (depth == 0)
        result = INVALID_CONTEXT;
    else {
        --depth;
        if (ctx) *ctx = stack[depth];
    }
    LEAVE();
}

static gdni_cuctx current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

static gdni_curesult fake_cuCtxGetCurrent(gdni_cuctx *ctx)
{
    ENTER("cuCtxGetCurrent");
    if (result == OK) *ctx = current();
    LEAVE();
}

static gdni_curesult fake_cuCtxGetDevice(gdni_cudevice *device)
{
    ENTER("cuCtxGetDevice");
    if (result == OK && !current()) result = INVALID_CONTEXT;
    if (result == OK) *device = DEVICE_BASE + current()->ordinal;
    LEAVE();
}

/* ---- Libraries ---- */

/* The image must look like a cubin whose tables can be followed, as far as a driver would read it. */
static bool plausible(const unsigned char *image, int *cc)
{
    Elf64_Ehdr header;
    memcpy(&header, image, EI_NIDENT);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
    memcpy(&header, image, sizeof header);
    *cc = (int)(header.e_flags >> (header.e_ident[EI_ABIVERSION] >= 8 ? 8 : 0) & 0xff);
    return header.e_machine == EM_CUDA_MACHINE && header.e_shoff != 0 && header.e_shnum != 0;
}

/* Up to the end of its tables, which stand last. */
static unsigned char *copy_image(const unsigned char *image)
{
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    const size_t sections = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
    const size_t segments = header.e_phoff + (size_t)header.e_phnum * header.e_phentsize;
    const size_t size = sections > segments ? sections : segments;
    return memcpy(malloc(size), image, size);
}

static gdni_curesult fake_cuLibraryLoadData(gdni_culib *library, const void *code, const void *jit_options,
                                            const void **jit_values, unsigned num_jit, const void *library_options,
                                            const void **library_values, unsigned num_library)
{
    ENTER("cuLibraryLoadData");
    int cc = 0;
    (void)jit_values, (void)library_values;
    if (result == OK && (jit_options || num_jit || library_options || num_library)) result = INVALID_VALUE;
    if (result == OK && !plausible(code, &cc)) result = INVALID_IMAGE;
    if (result == OK) {
        *library = calloc(1, sizeof **library);
        (*library)->image = copy_image(code); /* the driver's own, as nobody has promised to keep it */
        (*library)->cc = cc;
        ++fake.libraries;
    }
    LEAVE();
}

static gdni_curesult fake_cuLibraryUnload(gdni_culib library)
{
    ENTER("cuLibraryUnload");
    while (library->kernels) {
        struct gdni_cukernel_opaque *next = library->kernels->next;
        free(library->kernels);
        library->kernels = next;
    }
    free(library->image);
    free(library);
    --fake.libraries;
    LEAVE();
}

/* Whether the image has the section ".text.<name>". */
static bool has_kernel(const unsigned char *image, const char *name)
{
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    char wanted[128];
    memcpy(&header, image, sizeof header);
    snprintf(wanted, sizeof wanted, ".text.%s", name);
    memcpy(&names, image + header.e_shoff + (size_t)header.e_shstrndx * sizeof names, sizeof names);
    for (int i = 0; i < header.e_shnum; ++i) {
        memcpy(&section, image + header.e_shoff + (size_t)i * sizeof section, sizeof section);
        if (strcmp((const char *)image + names.sh_offset + section.sh_name, wanted) == 0) return true;
    }
    return false;
}

static gdni_curesult fake_cuLibraryGetKernel(gdni_cukernel *kernel, gdni_culib library, const char *name)
{
    ENTER("cuLibraryGetKernel");
    if (result == OK && !has_kernel(library->image, name)) result = NOT_FOUND;
    if (result == OK) {
        *kernel = calloc(1, sizeof **kernel);
        snprintf((*kernel)->name, sizeof(*kernel)->name, "%s", name);
        (*kernel)->library = library;
        (*kernel)->next = library->kernels;
        library->kernels = *kernel;
    }
    LEAVE();
}

static gdni_curesult fake_cuKernelGetFunction(gdni_cufunc *function, gdni_cukernel kernel)
{
    ENTER("cuKernelGetFunction");
    if (result == OK && !current()) result = INVALID_CONTEXT;
    if (result == OK) {
        const int ordinal = current()->ordinal;
        const struct fake_device *device = &fake.devices[ordinal];
        if (kernel->library->cc != device->major * 10 + device->minor) result = NO_BINARY_FOR_GPU;
        kernel->functions[ordinal].kernel = kernel;
        kernel->functions[ordinal].ordinal = ordinal;
        *function = &kernel->functions[ordinal];
    }
    LEAVE();
}

static gdni_curesult fake_cuKernelSetAttribute(int attribute, int value, gdni_cukernel kernel, gdni_cudevice device)
{
    ENTER("cuKernelSetAttribute");
    const int ordinal = ordinal_of(device);
    if (result == OK && ordinal < 0) result = INVALID_DEVICE;
    if (result == OK && (attribute != 8 || value < 0 || value > fake.devices[ordinal].smem_optin))
        result = INVALID_VALUE;
    if (result == OK) kernel->functions[ordinal].max_smem = value;
    LEAVE();
}

/* ---- Memory ---- */

/* The whole range lies in one allocation. */
static bool within_allocation(unsigned long long address, size_t bytes)
{
    for (const struct allocation *a = fake.allocations; a; a = a->next) {
        const uintptr_t first = (uintptr_t)a->memory;
        if (address >= first && address - first <= a->bytes && bytes <= a->bytes - (address - first)) return true;
    }
    return false;
}

static gdni_curesult check_range(unsigned long long address, size_t bytes)
{
    if (!current()) return INVALID_CONTEXT;
    if (within_allocation(address, bytes)) return OK;
    ++fake.memory.outside;
    return INVALID_VALUE;
}

static gdni_curesult fake_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER("cuMemGetInfo");
    if (result == OK && !current()) result = INVALID_CONTEXT;
    if (result == OK) {
        *free_bytes = fake.free_memory;
        *total_bytes = fake.free_memory + fake.memory.bytes;
    }
    LEAVE();
}

static gdni_curesult fake_cuMemAlloc(gdn_devptr *address, size_t bytes)
{
    ENTER("cuMemAlloc");
    if (result == OK && !current()) result = INVALID_CONTEXT;
    if (result == OK && !bytes) result = INVALID_VALUE;
    if (result == OK && bytes > fake.free_memory) result = OUT_OF_MEMORY;
    if (result == OK) {
        const size_t whole = (bytes + ALLOCATION_ALIGNMENT - 1) / ALLOCATION_ALIGNMENT * ALLOCATION_ALIGNMENT;
        struct allocation *a = calloc(1, sizeof *a);
        *a = (struct allocation){ fake.allocations, bytes, aligned_alloc(ALLOCATION_ALIGNMENT, whole) };
        memset(a->memory, 0xa5, whole);
        fake.allocations = a;
        fake.memory.bytes += bytes;
        fake.free_memory -= bytes;
        if (fake.memory.bytes > fake.memory.most_bytes) fake.memory.most_bytes = fake.memory.bytes;
        ++fake.num_allocations;
        *address = (uintptr_t)a->memory;
    }
    LEAVE();
}

static gdni_curesult fake_cuMemFree(gdn_devptr address)
{
    ENTER("cuMemFree");
    struct allocation **link = &fake.allocations;
    while (*link && (uintptr_t)(*link)->memory != address)
        link = &(*link)->next;
    if (!*link) {
        result = INVALID_VALUE;
    } else {
        struct allocation *a = *link;
        *link = a->next;
        fake.memory.bytes -= a->bytes;
        fake.free_memory += a->bytes;
        --fake.num_allocations;
        free(a->memory);
        free(a);
    }
    LEAVE();
}

/* Copies run at once: what is enqueued before them has. Not while their stream captures. */
static gdni_curesult check_copy(gdn_stream stream);

static gdni_curesult fake_cuMemcpyHtoDAsync(gdn_devptr to, const void *from, size_t bytes, gdn_stream stream)
{
    ENTER("cuMemcpyHtoDAsync");
    if (result == OK) result = check_copy(stream);
    if (result == OK) result = check_range(to, bytes);
    if (result == OK) memcpy((void *)(uintptr_t)to, from, bytes);
    LEAVE();
}

static gdni_curesult fake_cuMemcpyDtoHAsync(void *to, gdn_devptr from, size_t bytes, gdn_stream stream)
{
    ENTER("cuMemcpyDtoHAsync");
    if (result == OK) result = check_copy(stream);
    if (result == OK) result = check_range(from, bytes);
    if (result == OK) memcpy(to, (const void *)(uintptr_t)from, bytes);
    LEAVE();
}

static gdni_curesult fake_cuMemcpyDtoDAsync(gdn_devptr to, gdn_devptr from, size_t bytes, gdn_stream stream)
{
    ENTER("cuMemcpyDtoDAsync");
    if (result == OK) result = check_copy(stream);
    if (result == OK) result = check_range(to, bytes);
    if (result == OK) result = check_range(from, bytes);
    if (result == OK) memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    LEAVE();
}

/* ---- Streams and launches ---- */

/* NULL: the null stream, or one that only a test knows. */
static struct CUstream_st *own_stream(gdn_stream stream)
{
    for (int i = 0; i < MAX_STREAMS; ++i)
        if (stream == &fake.streams[i] && fake.streams[i].used) return &fake.streams[i];
    return NULL;
}

static gdni_curesult check_copy(gdn_stream stream)
{
    const struct CUstream_st *own = own_stream(stream);
    return own && (own->capture || own->hangs) ? CAPTURE_UNSUPPORTED : OK;
}

static gdni_curesult fake_cuStreamCreate(gdn_stream *stream, unsigned flags)
{
    ENTER("cuStreamCreate");
    int i = 0;
    while (i < MAX_STREAMS && fake.streams[i].used)
        ++i;
    if (result == OK && !current()) result = INVALID_CONTEXT;
    if (result == OK && (flags > 1 || i == MAX_STREAMS)) result = INVALID_VALUE;
    if (result == OK) {
        fake.streams[i] = (struct CUstream_st){ .used = true };
        *stream = &fake.streams[i];
        ++fake.num_streams;
    }
    LEAVE();
}

static gdni_curesult fake_cuStreamDestroy(gdn_stream stream)
{
    ENTER("cuStreamDestroy");
    struct CUstream_st *own = own_stream(stream);
    if (!own) {
        result = INVALID_HANDLE;
    } else {
        own->used = false;
        --fake.num_streams;
    }
    LEAVE();
}

static gdni_curesult fake_cuStreamIsCapturing(gdn_stream stream, int *status)
{
    ENTER("cuStreamIsCapturing");
    const struct CUstream_st *own = own_stream(stream);
    if (result == OK) *status = own && own->capture ? 1 : fake.capture;
    LEAVE();
}

static gdni_curesult check_launch(gdni_cufunc function, const unsigned grid[3], const unsigned block[3], unsigned smem)
{
    if (!current()) return INVALID_CONTEXT;
    if (!current()->primary || current()->ordinal != function->ordinal) return INVALID_HANDLE;
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535)
        return INVALID_VALUE;
    if (!block[0] || !block[1] || !block[2] || (uint64_t)block[0] * block[1] * block[2] > 1024) return INVALID_VALUE;
    if (smem > SMEM_WITHOUT_OPT_IN && smem > (unsigned)function->max_smem) return INVALID_VALUE;
    return OK;
}

static size_t params_size(const char *kernel)
{
    if (strstr(kernel, "hopper")) return sizeof(struct gdni_prefill_hopper_params);
    return strstr(kernel, "prefill") ? sizeof(struct gdni_prefill_params) : sizeof(struct gdni_conv1d_params);
}

static void describe(struct fake_launch *launch, gdni_cufunc function, const unsigned grid[3], const unsigned block[3],
                     unsigned smem, void *stream, const void *params)
{
    memset(launch, 0, sizeof *launch);
    snprintf(launch->kernel, sizeof launch->kernel, "%s", function->kernel->name);
    launch->image = function->kernel->library->image;
    launch->device = function->ordinal;
    memcpy(launch->grid, grid, sizeof launch->grid);
    memcpy(launch->block, block, sizeof launch->block);
    launch->smem = smem;
    launch->stream = stream;
    launch->params_size = params_size(launch->kernel);
    memcpy(launch->params, params, launch->params_size);
}

/* The clock of a stream goes on by what the kernel takes. */
static void take_time(struct CUstream_st *stream, const struct fake_launch *launch)
{
    const int64_t ns = fake.code.duration ? fake.code.duration(fake.code.user, launch) : 10000;
    if (ns == FAKE_FAULTS) fake.faulted = true;
    if (ns == FAKE_HANGS && stream) stream->hangs = true;
    if (ns > 0 && stream) stream->now += ns;
}

static void append_node(struct CUstream_st *stream, const struct node *node)
{
    struct gdni_cugraph_opaque *graph = stream->capture;
    struct node *copy = malloc(sizeof *copy);
    *copy = *node;
    copy->next = NULL;
    *graph->end = copy;
    graph->end = &copy->next;
}

static void start(const struct fake_launch *launch, gdn_stream stream)
{
    struct CUstream_st *own = own_stream(stream);
    if (own && own->capture) {
        append_node(own, &(struct node){ .launch = *launch });
        return;
    }
    fake.launches[fake.num_launches++ % MAX_LAUNCHES] = *launch;
    take_time(own, launch);
    if (fake.code.execute && !fake.faulted && !(own && own->hangs)) fake.code.execute(fake.code.user, launch);
}

static gdni_curesult fake_cuLaunchKernel(gdni_cufunc function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem,
                                         gdn_stream stream, void **params, void **extra)
{
    ENTER("cuLaunchKernel");
    const unsigned grid[3] = { grid_x, grid_y, grid_z }, block[3] = { block_x, block_y, block_z };
    if (result == OK && (!params || extra)) result = INVALID_VALUE;
    if (result == OK) result = check_launch(function, grid, block, smem);
    if (result == OK) {
        struct fake_launch launch;
        describe(&launch, function, grid, block, smem, stream, params[0]);
        start(&launch, stream);
    }
    struct CUstream_st *own = own_stream(stream);
    if (result != OK && own && own->capture) own->spoilt = true;
    LEAVE();
}

/* The one attribute that this host has a use for, once, with nothing in the rest of its value. */
static bool is_programmatic(const struct gdni_launch_config *config)
{
    static const uint64_t zeros[8];
    struct gdni_launch_attribute attribute;
    if (config->num_attributes != 1 || !config->attributes) return false;
    attribute = config->attributes[0];
    if (attribute.id != 6 || attribute.value.allowed != 1) return false;
    attribute.value.allowed = 0;
    return memcmp(attribute.value.room, zeros, sizeof zeros) == 0;
}

static gdni_curesult fake_cuLaunchKernelEx(const struct gdni_launch_config *config, gdni_cufunc function, void **params,
                                           void **extra)
{
    ENTER("cuLaunchKernelEx");
    if (result == OK && (!params || extra || !is_programmatic(config))) result = INVALID_VALUE;
    if (result == OK) result = check_launch(function, config->grid, config->block, config->smem);
    if (result == OK) {
        struct fake_launch launch;
        describe(&launch, function, config->grid, config->block, config->smem, config->stream, params[0]);
        launch.programmatic = true;
        start(&launch, config->stream);
    }
    LEAVE();
}

/* Addresses that no cuMemAlloc gave are a test's own and are only recorded. */
static void fill(unsigned long long address, unsigned value, size_t words)
{
    if (!within_allocation(address, words * sizeof value)) return;
    for (size_t i = 0; i < words; ++i)
        memcpy((unsigned char *)(uintptr_t)address + i * sizeof value, &value, sizeof value);
}

static gdni_curesult fake_cuMemsetD32Async(gdn_devptr address, unsigned value, size_t words, gdn_stream stream)
{
    ENTER("cuMemsetD32Async");
    if (result == OK && (!address || address % 4 || !words)) result = INVALID_VALUE;
    if (result == OK && !current()) result = INVALID_CONTEXT;
    struct CUstream_st *own = own_stream(stream);
    if (result == OK && own && own->capture) {
        append_node(own, &(struct node){ .address = address, .value = value, .words = words });
    } else if (result == OK) {
        fill(address, value, words);
        fake.memset = (struct fake_memset){ fake.memset.count + 1, address, value, words, stream, fake.num_launches };
    }
    LEAVE();
}

/* ---- Graphs and events ---- */

static gdni_curesult fake_cuStreamBeginCapture(gdn_stream stream, int mode)
{
    ENTER("cuStreamBeginCapture");
    struct CUstream_st *own = own_stream(stream);
    if (result == OK && (!own || own->capture || mode < 0 || mode > 2)) result = INVALID_VALUE;
    if (result == OK) {
        own->capture = calloc(1, sizeof *own->capture);
        own->capture->end = &own->capture->first;
        ++fake.num_graphs;
    }
    LEAVE();
}

static void free_nodes(struct node *node)
{
    while (node) {
        struct node *next = node->next;
        free(node);
        node = next;
    }
}

static gdni_curesult fake_cuStreamEndCapture(gdn_stream stream, gdni_cugraph *graph)
{
    ENTER("cuStreamEndCapture");
    struct CUstream_st *own = own_stream(stream);
    if (result == OK && (!own || !own->capture)) result = INVALID_VALUE;
    if (result == OK) {
        *graph = own->spoilt ? NULL : own->capture;
        result = own->spoilt ? CAPTURE_INVALIDATED : OK;
        if (own->spoilt) {
            free_nodes(own->capture->first);
            free(own->capture);
            --fake.num_graphs;
        }
        own->capture = NULL;
        own->spoilt = false;
    }
    LEAVE();
}

static gdni_curesult fake_cuGraphInstantiateWithFlags(gdni_cuexec *exec, gdni_cugraph graph, uint64_t flags)
{
    ENTER("cuGraphInstantiateWithFlags");
    if (result == OK && flags != 0) result = INVALID_VALUE;
    if (result == OK) {
        struct node **end;
        *exec = calloc(1, sizeof **exec);
        end = &(*exec)->first;
        for (const struct node *n = graph->first; n; n = n->next) {
            *end = malloc(sizeof **end);
            **end = *n;
            end = &(*end)->next;
        }
        ++fake.num_graphs;
    }
    LEAVE();
}

static gdni_curesult fake_cuGraphDestroy(gdni_cugraph graph)
{
    ENTER("cuGraphDestroy");
    free_nodes(graph->first);
    free(graph);
    --fake.num_graphs;
    LEAVE();
}

static gdni_curesult fake_cuGraphExecDestroy(gdni_cuexec exec)
{
    ENTER("cuGraphExecDestroy");
    free_nodes(exec->first);
    free(exec);
    --fake.num_graphs;
    LEAVE();
}

static gdni_curesult fake_cuGraphLaunch(gdni_cuexec exec, gdn_stream stream)
{
    ENTER("cuGraphLaunch");
    struct CUstream_st *own = own_stream(stream);
    if (result == OK && !own) result = INVALID_HANDLE;
    for (const struct node *n = exec->first; result == OK && n && !fake.faulted; n = n->next) {
        if (n->address) {
            fill(n->address, n->value, n->words);
        } else {
            take_time(own, &n->launch);
            ++fake.graph_kernels;
        }
    }
    LEAVE();
}

static gdni_curesult fake_cuEventCreate(gdni_cuevent *event, unsigned flags)
{
    ENTER("cuEventCreate");
    if (result == OK && flags > 3) result = INVALID_VALUE;
    if (result == OK) {
        *event = calloc(1, sizeof **event);
        ++fake.num_events;
    }
    LEAVE();
}

static gdni_curesult fake_cuEventRecord(gdni_cuevent event, gdn_stream stream)
{
    ENTER("cuEventRecord");
    const struct CUstream_st *own = own_stream(stream);
    if (result == OK) *event = (struct gdni_cuevent_opaque){ own ? own->now : 0, true, own && own->hangs };
    LEAVE();
}

static gdni_curesult fake_cuEventQuery(gdni_cuevent event)
{
    ENTER("cuEventQuery");
    if (result == OK && event->hangs) result = NOT_READY;
    LEAVE();
}

static gdni_curesult fake_cuEventElapsedTime(float *milliseconds, gdni_cuevent from, gdni_cuevent to)
{
    ENTER("cuEventElapsedTime");
    if (result == OK && (!from->recorded || !to->recorded)) result = INVALID_HANDLE;
    if (result == OK && (from->hangs || to->hangs)) result = NOT_READY;
    if (result == OK) *milliseconds = (float)((double)(to->at - from->at) * 1e-6);
    LEAVE();
}

static gdni_curesult fake_cuEventDestroy(gdni_cuevent event)
{
    ENTER("cuEventDestroy");
    free(event);
    --fake.num_events;
    LEAVE();
}

/* The rules of the driver's documentation, for what this library asks: rank 5, 16-bit elements, 128-byte swizzle. */
static bool good_map(uint32_t rank, uint64_t address, const uint64_t *dims, const uint64_t *strides,
                     const uint32_t *box, const uint32_t *element_strides)
{
    bool good = rank == 5 && address && address % 16 == 0 && box[0] * 2 <= 128;
    for (uint32_t i = 0; i < rank; ++i)
        good = good && dims[i] >= 1 && dims[i] <= (uint64_t)1 << 32 && box[i] >= 1 && box[i] <= 256 &&
               element_strides[i] == 1;
    for (uint32_t i = 0; i + 1 < rank; ++i)
        good = good && strides[i] % 16 == 0 && strides[i] < (uint64_t)1 << 40;
    return good;
}

static gdni_curesult fake_cuTensorMapEncodeTiled(struct gdni_tensor_map *map, int type, uint32_t rank, uint64_t address,
                                                 const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                                 const uint32_t *element_strides, int interleave, int swizzle,
                                                 int l2_promotion, int oob_fill)
{
    ENTER("cuTensorMapEncodeTiled");
    const bool known =
        (type == 6 || type == 9) && interleave == 0 && swizzle == 3 && l2_promotion == 3 && oob_fill == 0;
    if (result == OK &&
        ((uintptr_t)map % 64 || !known || !good_map(rank, address, dims, strides, box, element_strides)))
        result = INVALID_VALUE;
    _Static_assert(sizeof(struct fake_map) <= sizeof map->bytes, "it fits");
    if (result == OK) {
        struct fake_map fake_map = { .address = address };
        memcpy(fake_map.dims, dims, sizeof fake_map.dims);
        memcpy(fake_map.strides, strides, sizeof fake_map.strides);
        memcpy(fake_map.box, box, sizeof fake_map.box);
        memcpy(map->bytes, &fake_map, sizeof fake_map);
    }
    LEAVE();
}

static gdni_curesult fake_cuGetErrorString(gdni_curesult code, const char **text)
{
    static const struct {
        gdni_curesult code;
        const char *text;
    } table[] = {
        { OK, "no error" },
        { INVALID_VALUE, "invalid argument" },
        { NOT_INITIALIZED, "initialization error" },
        { 100, "no CUDA-capable device is detected" },
        { INVALID_DEVICE, "invalid device ordinal" },
        { INVALID_IMAGE, "device kernel image is invalid" },
        { INVALID_CONTEXT, "invalid device context" },
        { NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device" },
        { INVALID_HANDLE, "invalid resource handle" },
        { NOT_FOUND, "named symbol not found" },
        { OUT_OF_MEMORY, "out of memory" },
        { NOT_READY, "device not ready" },
        { CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing" },
        { 700, "an illegal memory access was encountered" },
        { 803, "system has unsupported display driver / cuda driver combination" },
        { 999, "unknown error" },
    };
    pthread_mutex_lock(&lock);
    const gdni_curesult result = enter("cuGetErrorString");
    pthread_mutex_unlock(&lock);
    if (result != OK) return result;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; ++i)
        if (table[i].code == code) {
            *text = table[i].text;
            return OK;
        }
    return INVALID_VALUE;
}

#define EXPORTED __attribute__((visibility("default")))

/* ---- NVML: the same library, opened as libnvidia-ml.so.1 ---- */

enum { NVML_UNINITIALIZED = 1, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6 };

EXPORTED int nvmlInit_v2(void);
EXPORTED int nvmlShutdown(void);
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
EXPORTED int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz);

int nvmlInit_v2(void)
{
    pthread_mutex_lock(&lock);
    ++fake.nvml_users;
    pthread_mutex_unlock(&lock);
    return OK;
}

int nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    const int result = fake.nvml_users > 0 ? OK : NVML_UNINITIALIZED;
    fake.nvml_users -= result == OK;
    pthread_mutex_unlock(&lock);
    return result;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    unsigned domain, bus;
    pthread_mutex_lock(&lock);
    int result = fake.nvml_users ? OK : NVML_UNINITIALIZED;
    const bool known = sscanf(bus_id, "%x:%x:00.0", &domain, &bus) == 2 && domain == 0 && bus >= FIRST_BUS &&
                       bus < FIRST_BUS + (unsigned)fake.num_devices;
    if (result == OK && !known) result = NVML_NOT_FOUND;
    if (result == OK) *device = &fake.devices[bus - FIRST_BUS];
    pthread_mutex_unlock(&lock);
    return result;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz)
{
    pthread_mutex_lock(&lock);
    const unsigned slower = device ? 15 * (unsigned)((struct fake_device *)device - fake.devices) : 0;
    const unsigned now = kind == 1 && fake.sm_mhz ? fake.sm_mhz - slower : kind == 2 ? fake.mem_mhz : 0;
    const int result = !device ? NVML_INVALID_ARGUMENT : now ? OK : NVML_NOT_SUPPORTED;
    if (result == OK) *mhz = now;
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- The one entry point that a host looks up by name ---- */

static const struct {
    const char *name;
    void (*function)(void);
} symbols[] = {
#define X(name, arguments) { #name, (void (*)(void))fake_##name },
    GDNI_DRIVER_CALLS(X)
#undef X
};

EXPORTED gdni_curesult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                                           int *status);

gdni_curesult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
    *function = NULL;
    *status = 1;
    enum { LEGACY_STREAM = 1 }; /* for NULL as the runtime has it, unless a program is compiled to have another */
    if (version < 12000 || version > 13000 || flags != LEGACY_STREAM) return INVALID_VALUE;
    if (strcmp(symbol, fake.hidden) == 0) return OK;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; ++i)
        if (strcmp(symbols[i].name, symbol) == 0) {
            memcpy(function, &symbols[i].function, sizeof *function);
            *status = 0;
        }
    return OK;
}

/* ---- Controls ---- */

static const struct fake_device h200 = { "NVIDIA H200", 9, 0, 132, 227 * 1024, 60 * 1024 * 1024, 3201000, 6144 };

static void set_devices(int count)
{
    pthread_mutex_lock(&lock);
    fake.num_devices = count;
    for (int i = 0; i < count; ++i)
        fake.devices[i] = h200;
    pthread_mutex_unlock(&lock);
}

static void reset(void)
{
    pthread_mutex_lock(&lock);
    memset(&fake, 0, sizeof fake);
    for (int i = 0; i < FAKE_MAX_DEVICES; ++i) {
        primaries[i] = (struct gdni_cuctx_opaque){ i, true };
        others[i] = (struct gdni_cuctx_opaque){ i, false };
    }
    pthread_mutex_unlock(&lock);
    hook = NULL;
    fake.free_memory = (size_t)4 << 30;
    fake.sm_mhz = 1980, fake.mem_mhz = 3201;
    fake.version = 13000;
    depth = floor_depth = 0;
    set_devices(1);
}

static void set_hook(void (*run)(const char *call))
{
    hook = run;
}

static struct fake_device *device_at(int ordinal)
{
    return &fake.devices[ordinal];
}

static void fail_call(const char *call, int nth, int result)
{
    pthread_mutex_lock(&lock);
    snprintf(fake.failing, sizeof fake.failing, "%s", call ? call : "");
    fake.fail_at = nth;
    fake.fail_result = result;
    pthread_mutex_unlock(&lock);
}

static void fail_nth(int nth, int times, int result)
{
    pthread_mutex_lock(&lock);
    fake.total = 0;
    fake.walk_at = nth;
    fake.walk_times = times;
    fake.walk_result = result;
    fake.struck = NULL;
    pthread_mutex_unlock(&lock);
}

static int total_calls(void)
{
    pthread_mutex_lock(&lock);
    const int total = fake.total;
    pthread_mutex_unlock(&lock);
    return total;
}

static const char *struck(void)
{
    pthread_mutex_lock(&lock);
    const char *call = fake.struck ? fake.struck : "";
    pthread_mutex_unlock(&lock);
    return call;
}

static void hide(const char *symbol)
{
    snprintf(fake.hidden, sizeof fake.hidden, "%s", symbol ? symbol : "");
}

static void set_capture(int status)
{
    fake.capture = status;
}

static void set_version(int version)
{
    fake.version = version;
}

static void set_current(gdni_cuctx ctx)
{
    depth = 0;
    if (ctx) stack[depth++] = ctx;
    floor_depth = depth;
}

static void make_current(int ordinal)
{
    set_current(ordinal < 0 ? NULL : &primaries[ordinal]);
}

static void make_other_current(int ordinal)
{
    set_current(&others[ordinal]);
}

static int calls(const char *call)
{
    pthread_mutex_lock(&lock);
    const int count = *count_of(call);
    pthread_mutex_unlock(&lock);
    return count;
}

static struct fake_memset last_memset(void)
{
    pthread_mutex_lock(&lock);
    const struct fake_memset last = fake.memset;
    pthread_mutex_unlock(&lock);
    return last;
}

static int num_launches(void)
{
    pthread_mutex_lock(&lock);
    const int count = fake.num_launches;
    pthread_mutex_unlock(&lock);
    return count;
}

static struct fake_launch launch_at(int index)
{
    pthread_mutex_lock(&lock);
    const struct fake_launch launch = fake.launches[index % MAX_LAUNCHES];
    pthread_mutex_unlock(&lock);
    return launch;
}

static struct fake_balance balance(void)
{
    struct fake_balance sum = { 0 };
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FAKE_MAX_DEVICES; ++i)
        sum.retained_contexts += fake.retained[i];
    sum.loaded_libraries = fake.libraries;
    sum.allocations = fake.num_allocations;
    sum.streams = fake.num_streams;
    sum.events = fake.num_events;
    sum.graphs = fake.num_graphs;
    pthread_mutex_unlock(&lock);
    sum.pushed_contexts = depth - floor_depth;
    return sum;
}

static void set_code(const struct fake_device_code *code)
{
    pthread_mutex_lock(&lock);
    fake.code = code ? *code : (struct fake_device_code){ 0 };
    pthread_mutex_unlock(&lock);
}

static bool faulted(void)
{
    pthread_mutex_lock(&lock);
    const bool now = fake.faulted;
    pthread_mutex_unlock(&lock);
    return now;
}

static void set_free_memory(size_t bytes)
{
    fake.free_memory = bytes;
}

static struct fake_memory memory(void)
{
    pthread_mutex_lock(&lock);
    const struct fake_memory now = fake.memory;
    pthread_mutex_unlock(&lock);
    return now;
}

static int graph_kernels(void)
{
    return fake.graph_kernels;
}

static size_t graph_nodes(const void *graph)
{
    size_t nodes = 0;
    for (const struct node *n = ((const struct gdni_cugraph_opaque *)graph)->first; n; n = n->next)
        ++nodes;
    return nodes;
}

static void set_clocks(unsigned sm_mhz, unsigned mem_mhz)
{
    pthread_mutex_lock(&lock);
    fake.sm_mhz = sm_mhz;
    fake.mem_mhz = mem_mhz;
    pthread_mutex_unlock(&lock);
}

EXPORTED extern const struct fake_controls fake_controls;
const struct fake_controls fake_controls = {
    .reset = reset,
    .set_devices = set_devices,
    .device = device_at,
    .fail = fail_call,
    .fail_nth = fail_nth,
    .total_calls = total_calls,
    .struck = struck,
    .hide = hide,
    .set_capture = set_capture,
    .set_version = set_version,
    .set_hook = set_hook,
    .make_current = make_current,
    .make_other_current = make_other_current,
    .calls = calls,
    .last_memset = last_memset,
    .num_launches = num_launches,
    .launch = launch_at,
    .balance = balance,
    .set_code = set_code,
    .faulted = faulted,
    .set_free_memory = set_free_memory,
    .memory = memory,
    .graph_kernels = graph_kernels,
    .graph_nodes = graph_nodes,
    .set_clocks = set_clocks,
};
