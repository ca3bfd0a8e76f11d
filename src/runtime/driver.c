/*
 * driver.c - owns libcuda: dlopen, cuGetProcAddress for each row of GDNI_DRIVER_CALLS, cuInit, and the driver's words.
 *
 * Must not know: GDN, cubins, plans. Nothing is opened before the first gdni_driver_get(). `lock` makes the first opening
 * single; `ready` is stored with release after everything it covers, so that later calls take no lock.
 */
#include "runtime/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/*
 * The ABI that is asked for, whatever the driver's own version: every row exists since 12.0 (cuLibrary* came with it), and a
 * version above the driver's is an error. The stream flag pins NULL to the legacy default stream.
 */
enum { CUDA_ABI = 12000, LEGACY_STREAM = 1 };

enum { CUDA_ERROR_NO_DEVICE = 100 };

typedef gdni_curesult (*get_proc_fn)(const char *symbol, void **function, int version, uint64_t flags, int *status);

struct gdni_driver {
    char *path;
    bool named; /* by gdn_config.driver_path */
    pthread_mutex_t lock;
    atomic_bool ready; /* the rest is final */
    void *library;
    struct gdni_cuda cuda;
    gdn_status status;
    char sentence[GDNI_ERROR_TEXT]; /* when status is not GDN_OK */
};

struct gdni_driver *gdni_driver_create(const char *path)
{
    struct gdni_driver *driver = gdni_calloc(1, sizeof *driver);
    if (!driver) return NULL;
    driver->named = path;
    driver->path = gdni_strdup(path ? path : "libcuda.so.1");
    if (!driver->path || pthread_mutex_init(&driver->lock, NULL) != 0) {
        gdni_free(driver->path);
        gdni_free(driver);
        return NULL;
    }
    return driver;
}

void gdni_driver_destroy(struct gdni_driver *driver)
{
    if (!driver) return;
    /* A driver that was initialised keeps threads and handlers of its own: it stays mapped, as the CUDA runtime leaves it. */
    if (driver->library && driver->status != GDN_OK) dlclose(driver->library);
    pthread_mutex_destroy(&driver->lock);
    gdni_free(driver->path);
    gdni_free(driver);
}

static gdn_status open_library(struct gdni_driver *driver)
{
    driver->library = dlopen(driver->path, RTLD_NOW | RTLD_LOCAL);
    if (driver->library) return GDN_OK;
    return GDN_FAIL(
        GDN_E_NO_DRIVER,
        "the CUDA driver library %s could not be opened (%s): %sinstall the NVIDIA driver, and in a container pass "
        "the GPUs in; a machine without one can still plan and warm the cache",
        driver->path, dlerror(), driver->named ? "correct gdn_config.driver_path, or " : "");
}

static gdn_status too_old(const struct gdni_driver *driver, const char *symbol)
{
    return GDN_FAIL(
        GDN_E_NO_DRIVER,
        "the CUDA driver library %s has no %s: it is no CUDA driver, or one older than CUDA 12.0 (R525); install "
        "driver 525 or newer",
        driver->path, symbol);
}

static gdn_status find_get_proc(const struct gdni_driver *driver, get_proc_fn *out)
{
    void *symbol = dlsym(driver->library, "cuGetProcAddress_v2");
    if (!symbol) return too_old(driver, "cuGetProcAddress_v2");
    memcpy(out, &symbol, sizeof symbol); /* ISO C has no cast from void * to a function pointer */
    return GDN_OK;
}

static gdn_status resolve(const struct gdni_driver *driver, get_proc_fn get_proc, const char *symbol, void *slot)
{
    void *function = NULL;
    int status = 0;
    const gdni_curesult result = get_proc(symbol, &function, CUDA_ABI, LEGACY_STREAM, &status);
    if (result != 0 || status != 0 || !function) return too_old(driver, symbol);
    memcpy(slot, &function, sizeof function);
    return GDN_OK;
}

static gdn_status resolve_all(struct gdni_driver *driver)
{
    get_proc_fn get_proc = NULL;
    GDN_TRY(find_get_proc(driver, &get_proc));
#define X(name, arguments) GDN_TRY(resolve(driver, get_proc, #name, &driver->cuda.name));
    GDNI_DRIVER_CALLS(X)
#undef X
    return GDN_OK;
}

/* Results from first to last mostly come of one thing. */
struct cause {
    gdni_curesult first, last;
    const char *remedy;
};

/* Of the first row that the result is in; NULL: there is none. */
static const char *remedy_of(const struct cause *causes, size_t count, gdni_curesult result)
{
    for (size_t i = 0; i < count; ++i)
        if (result >= causes[i].first && result <= causes[i].last) return causes[i].remedy;
    return NULL;
}

#define REMEDY_OF(causes, result) remedy_of(causes, sizeof(causes) / sizeof(causes)[0], result)

#define FORKED                                                                                                         \
    "this process was forked from one that had begun to use CUDA: start it anew (exec; Python's multiprocessing: \"spawn\"), " \
    "or fork first"
#define EXCLUSIVE "the GPU is in use by another process in exclusive mode"

/* What usually lies behind a cuInit() that fails. */
static const struct cause init_causes[] = {
    { 3, 3, FORKED },
    { CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NO_DEVICE,
      "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES, and in a container pass GPUs in" },
    { 34, 34, "this is the toolkit's stub, not a driver: take its folder out of LD_LIBRARY_PATH" },
    { 46, 46, EXCLUSIVE },
    { 800, 800, "this process may not use the GPU: check the permissions of /dev/nvidia*" },
    { 802, 802, "the system is not ready: nvidia-fabricmanager must run on NVSwitch machines" },
    { 803, 803, "the kernel module and libcuda are of different versions: reboot, or reinstall the driver" },
    { 804, 804, "the compatibility package's libcuda does not fit this GPU: take it out of LD_LIBRARY_PATH" },
    { 999, 999, "the kernel module is not loaded or /dev/nvidia* cannot be opened: look at nvidia-smi" },
};

const char *gdni_cuda_words(const struct gdni_cuda *cuda, gdni_curesult result)
{
    const char *text = NULL;
    if (cuda->cuGetErrorString(result, &text) != 0 || !text) return "unknown error";
    return text;
}

static gdn_status initialise(const struct gdni_driver *driver)
{
    const gdni_curesult result = driver->cuda.cuInit(0);
    if (result == 0) return GDN_OK;
    const char *remedy = REMEDY_OF(init_causes, result);
    return GDN_FAIL(result == CUDA_ERROR_NO_DEVICE ? GDN_E_NO_DEVICE : GDN_E_NO_DRIVER, "cuInit failed: %s (%d): %s",
                    gdni_cuda_words(&driver->cuda, result), result, remedy ? remedy : "see whether nvidia-smi works");
}

static gdn_status open_driver(struct gdni_driver *driver)
{
    GDN_TRY(open_library(driver));
    GDN_TRY(resolve_all(driver));
    return initialise(driver);
}

gdn_status gdni_driver_get(struct gdni_driver *driver, const struct gdni_cuda **out)
{
    if (!atomic_load_explicit(&driver->ready, memory_order_acquire)) {
        pthread_mutex_lock(&driver->lock);
        if (!atomic_load_explicit(&driver->ready, memory_order_relaxed)) {
            driver->status = open_driver(driver);
            if (driver->status != GDN_OK) snprintf(driver->sentence, sizeof driver->sentence, "%s", gdni_error_text());
            atomic_store_explicit(&driver->ready, true, memory_order_release);
        }
        pthread_mutex_unlock(&driver->lock);
    }
    if (driver->status != GDN_OK) return GDN_FAIL(driver->status, "%s", driver->sentence);
    *out = &driver->cuda;
    return GDN_OK;
}

#define KERNEL_FAILED "a kernel that was launched before in this context failed: compute-sanitizer finds it"

/* Of calls that fail for what the caller, or a kernel before, has done. */
static const struct cause call_causes[] = {
    { 3, 3, FORKED },
    { 4, 4, "the process is ending, or the driver was shut down in it" },
    { 46, 46, EXCLUSIVE },
    { 201, 201, "the current context was destroyed, or is of another device" },
    { 400, 400, "stream must be one of the current context that was not destroyed" },
    { 700, 700, KERNEL_FAILED },
    { 709, 709, "the current context was destroyed" },
    { 714, 720, KERNEL_FAILED },
    { 906, 906, "while another stream captures in global mode the NULL stream cannot be used: give a stream of its own" },
    { 900, 908, "a capture does not allow it, or was broken before: look at what the stream captures" },
};

gdn_status gdni_cuda_fail(const struct gdni_cuda *cuda, gdni_curesult result, const char *call)
{
    const char *remedy = REMEDY_OF(call_causes, result);
    return GDN_FAIL(GDN_E_CUDA, "%s failed: %s (%d)%s%s", call, gdni_cuda_words(cuda, result), result, remedy ? ": " : "",
                    remedy ? remedy : "");
}
