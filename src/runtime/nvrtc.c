/*
 * nvrtc.c - owns libnvrtc: finding it, its entry points, who it is, and how many compiles run at once.
 * Must not know: units, keys, the cache. `lock` guards the opening and its result, which is final; `slots` counts compiles.
 */
#include "runtime/nvrtc.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/key.h"
#include "runtime/clock.h"

static const char *const default_names[] = { "libnvrtc.so.13", "libnvrtc.so.12" };
enum { NUM_DEFAULTS = sizeof default_names / sizeof default_names[0] };

#define REMEDY                                                                                                         \
    "install NVRTC 12.8 or newer from a CUDA toolkit, or name its file in GDN_JIT_NVRTC (of the wheel "                \
    "nvidia-cuda-nvrtc site-packages/nvidia/cu13/lib/libnvrtc.so.13)"

struct gdni_nvrtc {
    char *path; /* as configured; NULL: default_names */
    sem_t slots;
    pthread_mutex_t lock;
    bool opened; /* guarded by lock, as is all that follows; final once set */
    gdn_status status;
    char sentence[GDNI_ERROR_TEXT]; /* of a failure */
    void *handle, *builtins;
    const char *name; /* that handle was opened by */
    struct gdni_nvrtc_api api;
    char peeked[GDNI_COMPILER_TAG]; /* "" until known */
};

struct gdni_nvrtc *gdni_nvrtc_create(const char *path, unsigned jobs)
{
    struct gdni_nvrtc *n = gdni_calloc(1, sizeof *n);
    if (!n) return NULL;
    n->path = path ? gdni_strdup(path) : NULL;
    if ((path && !n->path) || pthread_mutex_init(&n->lock, NULL) != 0) {
        gdni_free(n->path);
        gdni_free(n);
        return NULL;
    }
    sem_init(&n->slots, 0, jobs ? jobs : GDNI_NVRTC_PARALLEL); /* cannot fail with such counts */
    return n;
}

void gdni_nvrtc_destroy(struct gdni_nvrtc *n)
{
    if (!n) return;
    if (n->handle) dlclose(n->handle);
    if (n->builtins) dlclose(n->builtins);
    sem_destroy(&n->slots);
    pthread_mutex_destroy(&n->lock);
    gdni_free(n->path);
    gdni_free(n);
}

void gdni_nvrtc_enter(struct gdni_nvrtc *n)
{
    while (sem_wait(&n->slots) != 0 && errno == EINTR) {
    }
}

void gdni_nvrtc_leave(struct gdni_nvrtc *n)
{
    sem_post(&n->slots);
}

/* ---- opening ---- */

/* NODELETE: the compiler keeps per-thread and exit-time state; it stays mapped, and opening it again is cheap. */
static void *open_library(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* One that is there and does not load is told of by the linker's words, which name the file. */
static gdn_status open_default(struct gdni_nvrtc *n)
{
    char why[NUM_DEFAULTS][256];
    for (int i = 0; i < NUM_DEFAULTS && !n->handle; ++i) {
        n->handle = open_library(n->name = default_names[i]);
        const char *words = n->handle ? NULL : dlerror();
        snprintf(why[i], sizeof why[i], "%s", words ? words : default_names[i]);
    }
    if (n->handle) return GDN_OK;
    return GDN_FAIL(GDN_E_NO_NVRTC, "NVRTC was not found (%s; %s): " REMEDY, why[0], why[1]);
}

static gdn_status open_configured(struct gdni_nvrtc *n)
{
    n->handle = open_library(n->name = n->path);
    if (n->handle) return GDN_OK;
    const char *why = dlerror();
    return GDN_FAIL(GDN_E_NO_NVRTC,
                    "NVRTC cannot be opened as configured (%s): correct GDN_JIT_NVRTC, gdn_config.nvrtc_path or, of "
                    "gdn-jit-cache, --nvrtc",
                    why ? why : n->path);
}

static gdn_status resolve(struct gdni_nvrtc *n)
{
    const struct {
        const char *name;
        void *slot; /* of a function pointer */
    } calls[] = {
#define X(name, arguments) { #name, &n->api.name },
        GDNI_NVRTC_CALLS(X)
#undef X
            { "nvrtcGetErrorString", &n->api.nvrtcGetErrorString },
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        void *address = dlsym(n->handle, calls[i].name);
        if (!address)
            return GDN_FAIL(GDN_E_NO_NVRTC, "%s has no %s, so it is no NVRTC or a very old one: " REMEDY, n->name,
                            calls[i].name);
        memcpy(calls[i].slot, &address, sizeof address); /* POSIX: a data pointer of dlsym is the function's address */
    }
    return GDN_OK;
}

static gdn_status take_version(struct gdni_nvrtc *n)
{
    int major = 0, minor = 0;
    const gdni_nvrtcresult result = n->api.nvrtcVersion(&major, &minor);
    if (result != 0) return GDN_FAIL(GDN_E_NO_NVRTC, "nvrtcVersion failed with %d: " REMEDY, result);
    n->api.version = major * 100 + minor;
    if (n->api.version >= GDNI_NVRTC_MIN) return GDN_OK;
    return GDN_FAIL(GDN_E_NO_NVRTC, "%s is NVRTC %d.%d: " REMEDY, n->api.path, major, minor);
}

/* ---- identity ---- */

struct image {
    uintptr_t address; /* inside it */
    char *id;
    bool found;
};

/* size bytes, of which the first is at address: whether they lie in one part of the image that was loaded, and can be read. */
static bool holds(const struct dl_phdr_info *info, uintptr_t address, size_t size)
{
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const uintptr_t behind = address - info->dlpi_addr - h->p_vaddr;
        if (h->p_type == PT_LOAD && h->p_flags & PF_R && behind < h->p_memsz && size <= h->p_memsz - behind) return true;
    }
    return false;
}

static int look_at_image(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct image *image = data;
    if (!holds(info, image->address, 1)) return 0;
    for (int i = 0; i < info->dlpi_phnum && !image->found; ++i) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const uintptr_t notes = info->dlpi_addr + h->p_vaddr; /* the loader's own address arithmetic */
        if (h->p_type != PT_NOTE || !holds(info, notes, h->p_memsz)) continue; /* an edited file's may lie anywhere */
        image->found = gdni_note_build_id((const void *)notes, h->p_memsz, image->id);
    }
    return 1;
}

static void tag_of(char tag[GDNI_COMPILER_TAG], const char *id)
{
    char hex[GDNI_KEY_HEX];
    gdni_hash_hex(hex, id, strlen(id));
    snprintf(tag, GDNI_COMPILER_TAG, "%.8s", hex);
}

/*
 * Two builds of one version make different code, so the version alone is never an identity. Of a library that no file can be
 * read of any more nothing is known: then no other process shares its entries.
 */
static void id_without_note(const struct gdni_nvrtc *n, char id[GDNI_BUILD_ID])
{
    char hex[GDNI_CONTENT];
    if (gdni_peek_content(n->api.path, hex))
        snprintf(id, GDNI_BUILD_ID, "content %s", hex);
    else
        snprintf(id, GDNI_BUILD_ID, "unknown %d.%lld", (int)getpid(), (long long)gdni_now_us());
}

/* With api.path taken. The build id names the version too. The file is asked where the image has none: as peek() does. */
static void take_identity(struct gdni_nvrtc *n)
{
    char id[GDNI_BUILD_ID] = "";
    uintptr_t address = 0;
    memcpy(&address, &n->api.nvrtcVersion, sizeof address);
    struct image image = { .address = address, .id = id };
    dl_iterate_phdr(look_at_image, &image);
    if (!image.found && !gdni_peek_build_id(n->api.path, id)) id_without_note(n, id);
    snprintf(n->api.identity, sizeof n->api.identity, "nvrtc %d.%d %s", n->api.version / 100, n->api.version % 100, id);
    tag_of(n->api.tag, id);
}

static void take_path(struct gdni_nvrtc *n)
{
    Dl_info info;
    void *address;
    memcpy(&address, &n->api.nvrtcVersion, sizeof address);
    const char *path = dladdr(address, &info) && info.dli_fname ? info.dli_fname : "libnvrtc";
    snprintf(n->api.path, sizeof n->api.path, "%s", path);
}

/*
 * NVRTC opens its builtins by bare name at the first compile, which fails when its own folder is on no search path. If they
 * lie beside it they are opened first: the loader then knows them by that name. If not, NVRTC says so when it compiles.
 */
static void preload_builtins(struct gdni_nvrtc *n)
{
    const char *slash = strrchr(n->api.path, '/');
    if (!slash) return;
    char path[sizeof n->api.path + 64];
    snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - n->api.path), n->api.path,
             n->api.version / 100, n->api.version % 100);
    n->builtins = open_library(path);
}

static gdn_status open_all(struct gdni_nvrtc *n)
{
    GDN_TRY(n->path ? open_configured(n) : open_default(n));
    GDN_TRY(resolve(n));
    take_path(n);
    GDN_TRY(take_version(n));
    take_identity(n);
    preload_builtins(n);
    return GDN_OK;
}

/* With lock held. */
static void open_once(struct gdni_nvrtc *n)
{
    if (n->opened) return;
    n->opened = true;
    n->status = open_all(n);
    if (n->status != GDN_OK) snprintf(n->sentence, sizeof n->sentence, "%s", gdni_error_text());
}

gdn_status gdni_nvrtc_get(struct gdni_nvrtc *n, const struct gdni_nvrtc_api **out)
{
    pthread_mutex_lock(&n->lock);
    open_once(n);
    pthread_mutex_unlock(&n->lock);
    if (n->status != GDN_OK) return GDN_FAIL(n->status, "%s", n->sentence);
    *out = &n->api;
    return GDN_OK;
}

gdn_status gdni_nvrtc_check_arch(const struct gdni_nvrtc_api *api, const struct gdni_arch *arch)
{
    if (api->version >= arch->min_nvrtc) return GDN_OK;
    return GDN_FAIL(GDN_E_NO_NVRTC,
                    "%s needs NVRTC %d.%d or newer, and %s is %d.%d: install a newer one, or name it in "
                    "GDN_JIT_NVRTC",
                    arch->name, arch->min_nvrtc / 100, arch->min_nvrtc % 100, api->path, api->version / 100,
                    api->version % 100);
}

/* ---- tag ---- */

/* The build id of the first library that the loader would find, if none of them is loaded anyway. */
static bool peek(const struct gdni_nvrtc *n, char tag[GDNI_COMPILER_TAG])
{
    const char *const *names = n->path ? (const char *const *)&n->path : default_names;
    char path[GDNI_PATH], id[GDNI_BUILD_ID];
    for (int i = 0; i < (n->path ? 1 : NUM_DEFAULTS); ++i) {
        void *loaded = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
        if (loaded) return dlclose(loaded), false; /* opening it costs nothing: do that */
        if (!gdni_peek_resolve(names[i], path)) continue;
        if (!gdni_peek_build_id(path, id)) return false;
        tag_of(tag, id);
        return true;
    }
    return false;
}

bool gdni_nvrtc_tag(struct gdni_nvrtc *n, char tag[GDNI_COMPILER_TAG])
{
    pthread_mutex_lock(&n->lock);
    if (!n->opened && !*n->peeked && !peek(n, n->peeked)) open_once(n);
    const bool known = !n->opened || n->status == GDN_OK;
    if (known) memcpy(tag, n->opened ? n->api.tag : n->peeked, GDNI_COMPILER_TAG);
    pthread_mutex_unlock(&n->lock);
    return known;
}
