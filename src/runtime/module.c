/*
 * module.c - owns driver libraries, kernels' functions and retained primary contexts of one plan.
 *
 * Must not know: what a kernel computes, where cubins are kept. `lock` guards parts[].program, origin, library, told and
 * the appending of devices. devices[i] is complete before num_devices, stored with release, covers it; nothing published
 * changes until gdni_modules_destroy(), which the caller keeps apart from every execute.
 *
 * No callback runs with `lock` held: a cubin that the driver refuses is rebuilt (which logs) between two attempts.
 */
#include "runtime/module.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/code_address.h"
#include "runtime/context.h"

enum { MAX_DEVICES = 64 };
enum { FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE = 8, SMEM_WITHOUT_OPT_IN = 48 * 1024, CUDA_ERROR_DEINITIALIZED = 4 };

struct part {
    const struct gdni_spec *spec;
    struct gdni_program *program;
    enum gdni_origin origin;
    gdni_culib library; /* NULL until the first load, or after a rebuild */
    bool told; /* library, or what was last to become it, is of a copy in which its code's address is told */
};

struct gdni_modules {
    struct gdn_ctx *ctx;
    bool may_compile;
    pthread_mutex_t lock;
    const struct gdni_cuda *cuda; /* final before num_devices is above 0 */
    int num_parts;                /* final before the first load */
    struct part parts[GDNI_MAX_VARIANTS];
    atomic_int num_devices;
    struct gdni_loaded *devices[MAX_DEVICES];
};

struct gdni_modules *gdni_modules_create(struct gdn_ctx *ctx, bool may_compile)
{
    struct gdni_modules *m = gdni_calloc(1, sizeof *m);
    if (!m) return NULL;
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        gdni_free(m);
        return NULL;
    }
    m->ctx = ctx;
    m->may_compile = may_compile;
    return m;
}

void gdni_modules_add(struct gdni_modules *modules, const struct gdni_spec *spec, struct gdni_program *program,
                      enum gdni_origin origin)
{
    struct part *part = &modules->parts[modules->num_parts++];
    part->spec = spec;
    part->program = program;
    part->origin = origin;
}

/* A call that gives something back: nobody could act on its failure, and at process exit the driver may be gone already. */
static void note(const struct gdni_modules *m, gdni_curesult result, const char *call)
{
    if (result == 0 || result == CUDA_ERROR_DEINITIALIZED) return;
    gdni_log(&m->ctx->log, GDN_LOG_WARN, "unloading a plan: %s failed: %s (%d)", call, gdni_cuda_words(m->cuda, result),
             result);
}

void gdni_modules_destroy(struct gdni_modules *modules)
{
    if (!modules) return;
    for (int i = 0; i < modules->num_parts; ++i) {
        struct part *part = &modules->parts[i];
        if (part->library) note(modules, modules->cuda->cuLibraryUnload(part->library), "cuLibraryUnload");
        gdni_program_release(part->program);
    }
    for (int i = 0; i < atomic_load_explicit(&modules->num_devices, memory_order_acquire); ++i)
        note(modules, modules->cuda->cuDevicePrimaryCtxRelease(modules->devices[i]->device),
             "cuDevicePrimaryCtxRelease");
    for (int i = 0; i < MAX_DEVICES; ++i) /* also of a plan that was abandoned */
        gdni_free(modules->devices[i]);
    pthread_mutex_destroy(&modules->lock);
    gdni_free(modules);
}

void gdni_modules_abandon(struct gdni_modules *modules)
{
    for (int i = 0; i < modules->num_parts; ++i)
        modules->parts[i].library = NULL;
    atomic_store_explicit(&modules->num_devices, 0, memory_order_release);
}

const struct gdni_cuda *gdni_modules_cuda(const struct gdni_modules *modules)
{
    return atomic_load_explicit(&modules->num_devices, memory_order_acquire) ? modules->cuda : NULL;
}

const struct gdni_loaded *gdni_modules_find(const struct gdni_modules *modules, gdni_cuctx ctx)
{
    const int count = atomic_load_explicit(&modules->num_devices, memory_order_acquire);
    for (int i = 0; i < count; ++i)
        if (modules->devices[i]->ctx == ctx) return modules->devices[i];
    return NULL;
}

struct gdni_program *gdni_modules_program(struct gdni_modules *modules, int i, enum gdni_origin *origin)
{
    pthread_mutex_lock(&modules->lock);
    struct gdni_program *program = gdni_program_retain(modules->parts[i].program);
    *origin = modules->parts[i].origin;
    pthread_mutex_unlock(&modules->lock);
    return program;
}

/* ---- Loading: the lock is held ---- */

/* Whether no device is served yet: what a driver refuses then may be the bytes' fault. */
static bool is_first(const struct gdni_modules *m)
{
    return atomic_load_explicit(&m->num_devices, memory_order_relaxed) == 0;
}

/* One attempt to load a plan on a device. */
struct attempt {
    struct gdni_modules *m;
    gdni_cudevice device;
    struct gdni_loaded *loaded;
    gdni_cukernel kernel; /* of the part at hand */
    int refused; /* the variant whose cubin the driver would not have; -1: another failure */
    const char *untold; /* the first kernel in this context that a driver loads as it was compiled alone; NULL: none */
    gdni_curesult told_result; /* what it said of the copy with its address told */
};

static bool is_among(gdni_curesult result, const gdni_curesult *results, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (results[i] == result) return true;
    return false;
}

/* Results that say something about the bytes rather than about the machine. */
static bool about_image(gdni_curesult result)
{
    static const gdni_curesult results[] = {
        200, /* INVALID_IMAGE */
        209, /* NO_BINARY_FOR_GPU */
        218, /* INVALID_PTX */
        300, /* INVALID_SOURCE */
        500, /* NOT_FOUND: the kernel's name */
    };
    return is_among(result, results, sizeof results / sizeof results[0]);
}

/* Results that say nothing about the bytes, and would be the same of others. */
static bool about_machine(gdni_curesult result)
{
    static const gdni_curesult results[] = {
        2,   /* OUT_OF_MEMORY */
        3,   /* NOT_INITIALIZED */
        CUDA_ERROR_DEINITIALIZED,
        201, /* INVALID_CONTEXT */
        304, /* OPERATING_SYSTEM */
        999, /* UNKNOWN */
    };
    const bool lost = result >= 700 && result < 800; /* by what a kernel did before */
    return lost || is_among(result, results, sizeof results / sizeof results[0]);
}

/* What was being loaded; and of what a driver does not load, since its compiler is of a newer major version, the cure. */
static gdn_status say_part(const struct gdni_cuda *cuda, const struct gdni_program *program, gdni_curesult result)
{
    int driver = 0, nvrtc = 0;
    const bool known = about_image(result) && cuda->cuDriverGetVersion(&driver) == 0 &&
                       sscanf(program->facts.compiler, "nvrtc %d", &nvrtc) == 1;
    if (!known || driver / 1000 >= nvrtc)
        return gdni_fail_in(GDN_E_CUDA, "loading %s for %s", program->entry, program->arch);
    return gdni_fail_in(GDN_E_CUDA,
                        "loading %s for %s, which NVRTC %d made and a driver of CUDA %d does not load (update the driver, or "
                        "name a libnvrtc.so.%d in gdn_config.nvrtc_path or GDN_JIT_NVRTC)",
                        program->entry, program->arch, nvrtc, driver / 1000, driver / 1000);
}

static gdn_status fail_part(struct attempt *a, int i, gdni_curesult result, const char *call)
{
    const struct part *part = &a->m->parts[i];
    /* On a second device the bytes are known to be good: they serve the first. */
    if (is_first(a->m) && about_image(result) && part->program->source != GDNI_FROM_COMPILER) a->refused = i;
    gdni_cuda_fail(a->m->cuda, result, call);
    return say_part(a->m->cuda, part->program, result);
}

/* The driver's calls: the one that failed, and its result; NULL when none did. */
static const char *open_library(struct attempt *a, int i, bool tell, gdni_curesult *result)
{
    struct part *part = &a->m->parts[i];
    const struct gdni_program *program = part->program;
    if (part->library) return NULL;
    void *told = tell ? gdni_tell_code_address(program->cubin, program->cubin_size, program->entry) : NULL;
    gdni_culib library = NULL;
    part->told = told != NULL;
    *result = a->m->cuda->cuLibraryLoadData(&library, told ? told : program->cubin, NULL, NULL, 0, NULL, NULL, 0);
    gdni_free(told); /* the driver has copied it: CU_LIBRARY_BINARY_IS_PRESERVED is not among the options */
    if (*result != 0) return "cuLibraryLoadData";
    part->library = library;
    return NULL;
}

static const char *load_function(struct attempt *a, int i, bool tell, gdni_curesult *result)
{
    const struct gdni_cuda *cuda = a->m->cuda;
    const struct part *part = &a->m->parts[i];
    const char *failed = open_library(a, i, tell, result);
    if (failed) return failed;
    *result = cuda->cuLibraryGetKernel(&a->kernel, part->library, part->program->entry);
    if (*result != 0) return "cuLibraryGetKernel";
    *result = cuda->cuKernelGetFunction(&a->loaded->functions[i], a->kernel);
    return *result == 0 ? NULL : "cuKernelGetFunction";
}

/* The cubin that the compiler made, for a copy that the driver does not load. If it does load that, no other copy is tried. */
static const char *load_untold(struct attempt *a, int i, gdni_curesult *result)
{
    struct part *part = &a->m->parts[i];
    const gdni_curesult told_result = *result;
    if (part->library) a->m->cuda->cuLibraryUnload(part->library); /* of a failed load: nobody could act on its failure */
    part->library = NULL;
    const char *failed = load_function(a, i, false, result);
    if (failed) return failed;
    if (!atomic_exchange_explicit(&a->m->ctx->code_address_refused, true, memory_order_relaxed)) {
        a->untold = gdni_kernel_info((enum gdni_kernel)part->spec->kernel)->name;
        a->told_result = told_result;
    }
    return NULL;
}

static gdn_status load_part(struct attempt *a, int i)
{
    const struct gdn_ctx *ctx = a->m->ctx;
    const bool tell = !ctx->env.disable_code_prefetch &&
                      !atomic_load_explicit(&ctx->code_address_refused, memory_order_relaxed);
    gdni_curesult result = 0;
    const char *failed = load_function(a, i, tell, &result);
    /* A library that serves the first device stays. */
    if (failed && a->m->parts[i].told && is_first(a->m) && !about_machine(result)) failed = load_untold(a, i, &result);
    if (failed) return fail_part(a, i, result, failed);
    const int32_t smem = a->m->parts[i].spec->smem_bytes;
    if (smem <= SMEM_WITHOUT_OPT_IN) return GDN_OK;
    result = a->m->cuda->cuKernelSetAttribute(FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE, smem, a->kernel, a->device);
    return result == 0 ? GDN_OK : fail_part(a, i, result, "cuKernelSetAttribute");
}

static gdn_status load_parts(struct attempt *a)
{
    for (int i = 0; i < a->m->num_parts; ++i)
        GDN_TRY(load_part(a, i));
    return GDN_OK;
}

static gdn_status load_in_context(struct attempt *a)
{
    const struct gdni_cuda *cuda = a->m->cuda;
    gdni_cuctx popped = NULL;
    gdni_curesult result = cuda->cuCtxPushCurrent(a->loaded->ctx);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuCtxPushCurrent");
    const gdn_status status = load_parts(a);
    result = cuda->cuCtxPopCurrent(&popped);
    if (status != GDN_OK || result == 0) return status;
    return gdni_cuda_fail(cuda, result, "cuCtxPopCurrent");
}

static gdn_status load_on_device(struct attempt *a)
{
    const struct gdni_cuda *cuda = a->m->cuda;
    a->loaded->device = a->device;
    const gdni_curesult result = cuda->cuDevicePrimaryCtxRetain(&a->loaded->ctx, a->device);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuDevicePrimaryCtxRetain");
    const gdn_status status = load_in_context(a);
    if (status != GDN_OK) cuda->cuDevicePrimaryCtxRelease(a->device); /* the first failure is the one to report */
    return status;
}

static bool is_loaded(const struct gdni_modules *m, gdni_cudevice device)
{
    for (int i = 0; i < atomic_load_explicit(&m->num_devices, memory_order_relaxed); ++i)
        if (m->devices[i]->device == device) return true;
    return false;
}

static gdn_status load_locked(struct attempt *a)
{
    struct gdni_modules *m = a->m;
    const int count = atomic_load_explicit(&m->num_devices, memory_order_relaxed);
    if (is_loaded(m, a->device)) return GDN_OK;
    if (count == MAX_DEVICES)
        return GDN_FAIL(GDN_E_UNSUPPORTED,
                        "the plan is loaded on %d devices, the most that one plan serves: make another plan",
                        MAX_DEVICES);
    const size_t size = sizeof *a->loaded + (size_t)m->num_parts * sizeof a->loaded->functions[0];
    a->loaded = gdni_calloc(1, size);
    if (!a->loaded) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a loaded plan (%zu bytes)", size);
    const gdn_status status = load_on_device(a);
    if (status != GDN_OK) {
        gdni_free(a->loaded);
        return status;
    }
    m->devices[count] = a->loaded;
    atomic_store_explicit(&m->num_devices, count + 1, memory_order_release);
    return GDN_OK;
}

/* ---- A cached cubin that the driver refuses counts as damaged, once ---- */

static gdn_status build_again(struct gdni_modules *m, int i, const struct gdni_program *refused,
                              struct gdni_program **out, enum gdni_origin *origin)
{
    struct gdni_unit unit = { 0 };
    struct gdni_key key = { 0 };
    GDN_TRY(gdni_unit_build(&unit, m->parts[i].spec));
    gdn_status status = gdni_key_build(&key, &unit);
    if (status == GDN_OK)
        status = gdni_programs_rebuild(m->ctx, &unit, &key, m->may_compile ? 0 : GDNI_NO_COMPILE, refused, out, origin);
    gdni_key_free(&key);
    gdni_unit_free(&unit);
    return status;
}

/* Unless another thread replaced it meanwhile: then its program is the one to try. Takes over fresh. */
static void replace(struct gdni_modules *m, int i, const struct gdni_program *refused, struct gdni_program *fresh,
                    enum gdni_origin origin)
{
    struct part *part = &m->parts[i];
    gdni_culib library = NULL;
    pthread_mutex_lock(&m->lock);
    struct gdni_program *old = fresh;
    /* A second device may have loaded it meanwhile: then its functions are in use, and this device's failure stands. */
    if (part->program == refused && is_first(m)) {
        old = part->program;
        library = part->library;
        part->program = fresh;
        part->origin = origin;
        part->library = NULL;
    }
    pthread_mutex_unlock(&m->lock);
    if (library) note(m, m->cuda->cuLibraryUnload(library), "cuLibraryUnload");
    gdni_program_release(old);
}

static void log_refusal(const struct gdni_modules *m, const struct gdni_program *refused, const char *sentence)
{
    const bool bundled = refused->source == GDNI_FROM_BUNDLE;
    const char *then = "is passed over for the next one";
    if (m->may_compile) then = bundled ? "is passed over for the next one, or it is compiled anew" : "is compiled anew";
    gdni_log(&m->ctx->log, GDN_LOG_WARN, "%s; its entry %s in %s counts as damaged and %s", sentence, refused->place.name,
             bundled ? "a bundle" : "the cache directory", then);
}

static gdn_status rebuild(struct gdni_modules *m, int i)
{
    enum gdni_origin origin;
    struct gdni_program *refused = gdni_modules_program(m, i, &origin), *fresh = NULL;
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", gdni_error_text());
    log_refusal(m, refused, sentence);
    gdn_status status = build_again(m, i, refused, &fresh, &origin);
    if (status == GDN_OK)
        replace(m, i, refused, fresh, origin);
    else if (m->may_compile)
        gdni_fail_in(status, "the driver refused the cached cubin %s and it could not be built again",
                     refused->key_hex);
    else
        status = GDN_FAIL(GDN_E_CUDA,
                          "the cached cubin is damaged or not for this driver, and strict mode compiles none: "
                          "warm the cache again: %s",
                          sentence);
    gdni_program_release(refused);
    return status;
}

/* Once a context: other plans' kernels are loaded so without another try. */
static void log_untold(const struct attempt *a)
{
    gdni_log(&a->m->ctx->log, GDN_LOG_WARN,
             "the driver does not load %s with its code's address told: %s (%d); kernels run as they were compiled, and do not "
             "bring their code to L2",
             a->untold, gdni_cuda_words(a->m->cuda, a->told_result), a->told_result);
}

gdn_status gdni_modules_load(struct gdni_modules *modules, const struct gdni_cuda *cuda, gdni_cudevice device)
{
    /* Ends: what stands in for a refused program comes from further on (bundle, disk, compiler), and nothing behind that. */
    for (;;) {
        struct attempt a = { .m = modules, .device = device, .refused = -1 };
        pthread_mutex_lock(&modules->lock);
        if (!modules->cuda) modules->cuda = cuda; /* the same table each time: it belongs to ctx */
        const gdn_status status = load_locked(&a);
        pthread_mutex_unlock(&modules->lock);
        if (a.untold) log_untold(&a);
        if (status == GDN_OK || a.refused < 0) return status;
        GDN_TRY(rebuild(modules, a.refused));
    }
}
