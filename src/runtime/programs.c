/*
 * programs.c - owns the order in which a program is looked for: memory, bundle, disk, NVRTC; and the counters of that.
 * Must not know: files, tables, the compiler's interface. No lock of its own: the registry lets one thread per key through.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/cache_entry.h"
#include "runtime/compile.h"
#include "runtime/context.h"
#include "runtime/guard.h"
#include "runtime/nvrtc.h"
#include "runtime/program.h"
#include "runtime/registry.h"

/* One request on its way. */
struct job {
    struct gdn_ctx *ctx;
    const struct gdni_unit *unit;
    const struct gdni_key *key;
    const char *arch;
    const char *strict;                 /* what forbids to compile, in the user's words; NULL: compiling is allowed */
    const struct gdni_program *refused; /* by the driver; NULL: none yet */
    int turn;                           /* at compiling, among processes; see guard.h */
    struct gdni_program *program;
    enum gdni_origin origin;
};

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static const char *strict_by(const struct gdn_ctx *ctx, uint32_t flags)
{
    if (flags & GDNI_NO_COMPILE) return "GDN_PLAN_CACHED_ONLY";
    if (ctx->flags & GDN_CTX_NO_COMPILE) return "GDN_CTX_NO_COMPILE";
    return ctx->env.disable_compile ? "GDN_JIT_DISABLE_COMPILE" : NULL;
}

bool gdni_programs_may_compile(const struct gdn_ctx *ctx, uint32_t flags)
{
    return !strict_by(ctx, flags);
}

/* ---- disk ---- */

static gdn_status find_user(struct job *job, const char *tag)
{
    GDN_TRY(gdni_cache_find_user(job->ctx->cache, job->key, job->arch, tag, &job->program));
    if (job->program) job->program->source = job->origin = GDNI_FROM_DISK;
    return GDN_OK;
}

/*
 * The user's directory by this machine's compiler. The tag may be a guess made without loading it; before anything is compiled
 * the compiler itself is asked, and asked for. Without one, any compiler's entry is better than none.
 */
static gdn_status find_own(struct job *job)
{
    struct gdni_nvrtc *nvrtc = job->ctx->nvrtc;
    const struct gdni_nvrtc_api *api;
    char tag[GDNI_COMPILER_TAG] = "";
    if (gdni_nvrtc_tag(nvrtc, tag)) GDN_TRY(find_user(job, tag));
    if (job->program) return GDN_OK;
    if (gdni_nvrtc_get(nvrtc, &api) != GDN_OK) return find_user(job, NULL);
    return strcmp(api->tag, tag) == 0 ? GDN_OK : find_user(job, api->tag);
}

static gdn_status find_bundled(struct job *job)
{
    GDN_TRY(gdni_cache_find_bundle(job->ctx->cache, job->key, job->arch, &job->program));
    if (job->program) job->program->source = job->origin = GDNI_FROM_BUNDLE;
    return GDN_OK;
}

/* Not again where the driver refused what came from there. */
static gdn_status find_on_disk(struct job *job)
{
    if (!job->refused) GDN_TRY(find_bundled(job));
    if (!job->program)
        GDN_TRY(job->strict ? find_user(job, NULL) : find_own(job)); /* who never compiles has no compiler */
    count(job->program ? &job->ctx->counters.disk_hits : &job->ctx->counters.misses, 1);
    return GDN_OK;
}

/* ---- compile ---- */

static gdn_status not_cached(const struct job *job)
{
    return GDN_FAIL(GDN_E_NOT_CACHED,
                    "key %s (%s for %s) is in no cache and %s forbids to compile: add a bundle that has it, or run "
                    "gdn-jit-cache warm for its shape",
                    job->key->hex, job->unit->entry, job->arch, job->strict);
}

static gdn_status not_rebuilt(struct job *job)
{
    return GDN_FAIL(GDN_E_NOT_CACHED,
                    "key %s (%s for %s): the driver refused the cached cubin and %s forbids to compile it "
                    "again: allow it once, or replace the entry by gdn-jit-cache warm",
                    job->key->hex, job->unit->entry, job->arch, job->strict);
}

static gdn_status wrap(struct job *job, const struct gdni_compiled *compiled)
{
    struct gdni_entry entry = {
        .cubin = compiled->cubin,
        .cubin_size = compiled->cubin_size,
        .key_text = job->key->text,
        .key_len = job->key->len,
        .options = compiled->options,
        .options_len = strlen(compiled->options),
        .build_log = compiled->log,
        .log_len = strlen(compiled->log),
        .facts = compiled->facts,
    };
    const int arch_len = snprintf(entry.arch, sizeof entry.arch, "%s", job->arch);
    const int entry_len = snprintf(entry.entry, sizeof entry.entry, "%s", job->unit->entry);
    if (arch_len >= (int)sizeof entry.arch || entry_len >= (int)sizeof entry.entry)
        return GDN_FAIL(GDN_E_INVALID, "entry \"%s\" for arch \"%s\": a name is too long (%zu and %zu bytes fit)",
                        job->unit->entry, job->arch, sizeof entry.entry - 1, sizeof entry.arch - 1);
    job->program = gdni_program_create(&entry);
    job->origin = GDNI_FROM_COMPILER;
    return job->program ? GDN_OK : GDN_FAIL(GDN_E_NOMEM, "out of memory: program of %zu bytes", compiled->cubin_size);
}

static gdn_status compile(struct job *job)
{
    const struct gdni_log *log = &job->ctx->log;
    const char *name = job->unit->entry, *hex = job->key->hex;
    struct gdni_compiled compiled;
    gdni_log(log, GDN_LOG_INFO, "compile %s for %s, key %s: start", name, job->arch, hex);
    gdn_status status = gdni_compile(job->ctx->nvrtc, job->unit, &compiled);
    if (status != GDN_OK) {
        gdni_log(log, GDN_LOG_INFO, "compile %s for %s, key %s: %s", name, job->arch, hex, gdn_status_name(status));
        return gdni_fail_in(status, "key %s", hex);
    }
    const struct gdni_facts *facts = &compiled.facts;
    count(&job->ctx->counters.compiles, 1);
    count(&job->ctx->counters.compile_usec, compiled.usec);
    gdni_log(log, GDN_LOG_INFO, "compile %s for %s, key %s: done in %d ms, %d registers, %d bytes spilled", name,
             job->arch, hex, facts->compile_ms, facts->registers, facts->spill_bytes);
    status = wrap(job, &compiled);
    if (status == GDN_OK) job->program->source = GDNI_FROM_COMPILER;
    gdni_compiled_free(&compiled);
    return status;
}

/* After the flight has landed: nobody waits for a disk. */
static void publish(const struct job *job, bool replace)
{
    char tag[GDNI_COMPILER_TAG];
    if (job->origin == GDNI_FROM_COMPILER && gdni_nvrtc_tag(job->ctx->nvrtc, tag))
        gdni_cache_publish(job->ctx->cache, job->program, tag, replace);
}

/* A bundle is nobody's to mend here: what it has is refused in each process, and the user's entry stands in. */
static gdn_status rebuild(struct job *job)
{
    count(&job->ctx->counters.corrupt, 1);
    if (job->refused->source == GDNI_FROM_BUNDLE) GDN_TRY(find_on_disk(job));
    if (job->program) return GDN_OK;
    return job->strict ? not_rebuilt(job) : compile(job);
}

/* Another process may have published the key while this one waited, or between its look and its turn. */
static gdn_status take_turn(struct job *job)
{
    struct gdn_ctx *ctx = job->ctx;
    job->turn = gdni_guard_enter(ctx->guard, gdni_cache_user_dir(ctx->cache), job->key->hex);
    if (job->turn == GDNI_GUARD_NONE) return GDN_OK;
    GDN_TRY(find_own(job));
    if (job->program) count(&ctx->counters.disk_hits, 1);
    return GDN_OK;
}

static gdn_status find_or_compile(struct job *job)
{
    GDN_TRY(find_on_disk(job));
    if (job->program) return GDN_OK;
    if (job->strict) return not_cached(job);
    GDN_TRY(take_turn(job));
    return job->program ? GDN_OK : compile(job);
}

/* ---- requests ---- */

struct gdni_program *gdni_programs_recall(struct gdn_ctx *ctx, const struct gdni_spec *spec)
{
    struct gdni_program *program = gdni_registry_recall(ctx->registry, spec);
    if (program) count(&ctx->counters.memory_hits, 1);
    return program;
}

void gdni_programs_learn(struct gdn_ctx *ctx, const struct gdni_spec *spec, const struct gdni_key *key)
{
    gdni_registry_learn(ctx->registry, spec, key);
}

/* Runs produce unless the registry has the program or another thread is at it. */
static gdn_status request(struct job *job, gdn_status (*produce)(struct job *))
{
    struct gdni_flight *flight;
    const unsigned enter_flags = job->strict ? GDNI_ENTER_STRICT : 0;
    GDN_TRY(gdni_registry_enter(job->ctx->registry, job->key, enter_flags, job->refused, &job->program, &flight));
    if (!flight) {
        job->origin = GDNI_FROM_MEMORY;
        count(&job->ctx->counters.memory_hits, 1);
        return GDN_OK;
    }
    const gdn_status status = produce(job);
    gdni_registry_settle(job->ctx->registry, flight, status, job->program);
    if (status == GDN_OK) publish(job, job->refused != NULL);
    gdni_guard_leave(job->turn); /* not before others find what was published */
    return status;
}

gdn_status gdni_programs_get(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                             uint32_t flags, struct gdni_program **out, enum gdni_origin *origin)
{
    struct job job = { .ctx = ctx,
                       .unit = unit,
                       .key = key,
                       .arch = unit->spec.arch->name,
                       .strict = strict_by(ctx, flags),
                       .turn = GDNI_GUARD_NONE };
    GDN_TRY(request(&job, find_or_compile));
    *out = job.program;
    *origin = job.origin;
    return GDN_OK;
}

gdn_status gdni_programs_rebuild(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                                 uint32_t flags, const struct gdni_program *refused, struct gdni_program **out,
                                 enum gdni_origin *origin)
{
    struct job job = { .ctx = ctx,
                       .unit = unit,
                       .key = key,
                       .arch = unit->spec.arch->name,
                       .strict = strict_by(ctx, flags),
                       .refused = refused,
                       .turn = GDNI_GUARD_NONE };
    GDN_TRY(request(&job, rebuild));
    *out = job.program;
    *origin = job.origin;
    return GDN_OK;
}
