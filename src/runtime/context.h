/*
 * context.h - what a gdn_ctx holds. Each part has its own file and its own lock; this struct has none: it is filled by
 * gdn_ctx_create() and read-only after, but for the parts' own state behind their locks, the count of holders, and one
 * thing that a load may find out.
 */
#ifndef GDNI_CONTEXT_H
#define GDNI_CONTEXT_H

#include <stdatomic.h>

#include "gdn_jit/gdn_jit.h"
#include "runtime/env.h"
#include "runtime/log.h"

struct gdni_driver;   /* driver.h: libcuda, opened at first use */
struct gdni_clocks;   /* clocks.h: libnvidia-ml, opened by the first tuning */
struct gdni_nvrtc;    /* nvrtc.h: libnvrtc, opened at first use */
struct gdni_cache;    /* cache.h: directory and bundles; decided at creation */
struct gdni_registry; /* registry.h: programs in memory, single flight */
struct gdni_guard;    /* guard.h: turns at compiling between processes */
struct gdni_record;   /* record.h: the file that plans are recorded in */
struct gdni_tuning;   /* tuning_db.h: measured choices of parameters */
struct gdni_onecall;  /* onecall.h: plans of the one-call functions */

/* Relaxed counters: statistics, no synchronisation. */
struct gdni_counters {
    _Atomic uint64_t memory_hits, disk_hits, misses, compiles, compile_usec, corrupt, evicted, publish_failures;
};

struct gdn_ctx {
    atomic_uint holders; /* gdn_ctx_create()'s caller, and each plan */
    uint32_t flags; /* GDN_CTX_* */
    bool cache_named; /* by the config: no environment of another program leads there */
    struct gdni_env env;
    struct gdni_log log;
    struct gdni_counters counters;
    atomic_bool code_address_refused; /* its driver loads cubins as compiled alone: module.c */
    struct gdni_nvrtc *nvrtc;
    struct gdni_cache *cache;
    struct gdni_registry *registry;
    struct gdni_driver *driver;
    struct gdni_clocks *clocks;
    struct gdni_guard *guard;
    struct gdni_record *record;
    struct gdni_tuning *tuning;
    struct gdni_onecall *onecall;
};

/* A plan holds its context, so that either may be destroyed first. By any thread. */
void gdni_ctx_hold(gdn_ctx *ctx);
void gdni_ctx_let_go(gdn_ctx *ctx); /* the last one frees it */

#endif
