/*
 * module.h - the loaded form of a plan: its cubins as driver libraries, and per device the functions to launch.
 *
 * Readers (execute) find a device without a lock; one mutex inside guards programs, libraries and the adding of devices.
 */
#ifndef GDNI_MODULE_H
#define GDNI_MODULE_H

#include <stdbool.h>

#include "codegen/spec.h"
#include "runtime/driver.h"
#include "runtime/program.h"

struct gdn_ctx;
struct gdni_modules;

/* Tables may name one a slot, a bucket has one more, and of each there may be one that cuts sequences and one that does not. */
enum { GDNI_MAX_VARIANTS = 2 * GDNI_NUM_BUCKETS * (2 + GDNI_NUM_SEQ_CLASSES) };

/* What to do where the current context is another one; contexts of cuCtxCreate() serve no plan. */
#define GDNI_PRIMARY_REMEDY                                                                                            \
    "make the device's primary context current (cudaSetDevice(), or cuDevicePrimaryCtxRetain()), with which a green "  \
    "context's stream serves too"

/* One device that a plan is loaded on. Immutable once found. */
struct gdni_loaded {
    gdni_cudevice device;
    gdni_cuctx ctx; /* the device's primary context, retained */
    gdni_cufunc functions[]; /* one a variant */
};

/* may_compile: a cached cubin that the driver refuses is compiled anew, once. NULL when out of memory. */
struct gdni_modules *gdni_modules_create(struct gdn_ctx *ctx, bool may_compile);

/* Unloads from every device and lets the programs go. NULL is allowed. */
void gdni_modules_destroy(struct gdni_modules *modules);

/* Forgets what the driver holds: after a kernel that hangs, giving it back would wait for ever. Then destroy. */
void gdni_modules_abandon(struct gdni_modules *modules);

/* Appends a variant (at most GDNI_MAX_VARIANTS, before the first load); takes over the caller's reference. */
void gdni_modules_add(struct gdni_modules *modules, const struct gdni_spec *spec, struct gdni_program *program,
                      enum gdni_origin origin);

/* Loads every variant into the device's primary context; idempotent. On failure the device is as before. */
gdn_status gdni_modules_load(struct gdni_modules *modules, const struct gdni_cuda *cuda, gdni_cudevice device);

/* The driver's table; NULL before the first load. */
const struct gdni_cuda *gdni_modules_cuda(const struct gdni_modules *modules);

/* The loaded device whose primary context ctx is; NULL when there is none. Takes no lock. */
const struct gdni_loaded *gdni_modules_find(const struct gdni_modules *modules, gdni_cuctx ctx);

/* Program of variant i, with a reference for the caller; *origin tells where it was found. */
struct gdni_program *gdni_modules_program(struct gdni_modules *modules, int i, enum gdni_origin *origin);

#endif
