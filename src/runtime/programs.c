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
struct gdni_request {
    struct gdn_ctx *ctx;
    const struct gdni_unit *unit;
    const struct gdni_key *key;
    const char *arch;
    const char *strict;                 /* what forbids to compile, in the user's words; NULL: compiling is allowed */
    const struct gdni_program *refused; /* by the driver; NULL: none yet */
    struct gdni_flight *flight;         /* this request's to land; NULL: memory had the program */
    int turn;                           /* at compiling, among processes; see guard.h */
    int64_t deadline;                   /* of waiting for it */
    bool again;                         /* the user's directory was looked at just now */
    struct gdni_compiling *compiling;   /* NULL: not, or no more */
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

static void note_origin(struct gdni_request *request)
{
    if (request->program) request->origin = request->program->source;
}

static gdn_status find_user(struct gdni_request *request, const char *tag)
{
    GDN_TRY(gdni_cache_find_user(request->ctx->cache, request->key, request->arch, tag, request->again,
                                 &request->program));
    note_origin(request);
    return GDN_OK;
}

/* This machine's compiler, NULL where it has none, or none that knows the arch. */
static const struct gdni_nvrtc_api *compiler_for(const struct gdni_request *request)
{
    const struct gdni_nvrtc_api *api;
    if (gdni_nvrtc_get(request->ctx->nvrtc, &api) != GDN_OK) return NULL;
    return gdni_nvrtc_check_arch(api, request->unit->spec.arch) == GDN_OK ? api : NULL;
}

/*
 * The user's directory by this machine's compiler. The tag may be a guess made without loading it; before anything is compiled
 * the compiler itself is asked, and asked for. Without one, any compiler's entry is better than none.
 */
static gdn_status find_own(struct gdni_request *request)
{
    char tag[GDNI_COMPILER_TAG] = "";
    if (gdni_nvrtc_tag(request->ctx->nvrtc, tag)) GDN_TRY(find_user(request, tag));
    if (request->program) return GDN_OK;
    const struct gdni_nvrtc_api *api = compiler_for(request);
    if (!api) return find_user(request, NULL);
    return strcmp(api->tag, tag) == 0 ? GDN_OK : find_user(request, api->tag);
}

static gdn_status find_bundled(struct gdni_request *request)
{
    GDN_TRY(gdni_cache_find_bundle(request->ctx->cache, request->key, request->arch, &request->program));
    note_origin(request);
    return GDN_OK;
}

static void count_look(struct gdni_request *request)
{
    count(request->program ? &request->ctx->counters.disk_hits : &request->ctx->counters.misses, 1);
}

static gdn_status find_on_disk(struct gdni_request *request)
{
    GDN_TRY(find_bundled(request));
    if (!request->program)
        GDN_TRY(request->strict ? find_user(request, NULL) : find_own(request)); /* who never compiles has no compiler */
    count_look(request);
    return GDN_OK;
}

/*
 * Where the driver refused what came from a bundle or the disk: what is searched behind it. Who compiles looks in the next
 * bundles and for his own compiler's entry, and where that was refused compiles it anew; who may not or cannot takes any entry.
 */
static gdn_status find_behind(struct gdni_request *request)
{
    const struct gdni_program *refused = request->refused;
    const bool from_disk = refused->source == GDNI_FROM_DISK;
    const bool users = request->strict || (from_disk && !compiler_for(request));
    if (refused->source == GDNI_FROM_COMPILER || (from_disk && !users)) return GDN_OK;
    GDN_TRY(gdni_cache_find_behind(request->ctx->cache, request->key, request->arch, &refused->place, users,
                                   &request->program));
    note_origin(request);
    if (!request->program && !users) GDN_TRY(find_own(request));
    count_look(request);
    return GDN_OK;
}

/* ---- compile ---- */

static gdn_status not_cached(const struct gdni_request *request)
{
    return GDN_FAIL(GDN_E_NOT_CACHED,
                    "key %s (%s for %s) is in no cache and %s forbids to compile: add a bundle that has it, or run "
                    "gdn-jit-cache warm for its shape",
                    request->key->hex, request->unit->entry, request->arch, request->strict);
}

static gdn_status not_rebuilt(struct gdni_request *request)
{
    return GDN_FAIL(GDN_E_NOT_CACHED,
                    "key %s (%s for %s): the driver refused the cached cubin and %s forbids to compile it "
                    "again: allow it once, or replace the entry by gdn-jit-cache warm",
                    request->key->hex, request->unit->entry, request->arch, request->strict);
}

static gdn_status wrap(struct gdni_request *request, const struct gdni_compiled *compiled)
{
    struct gdni_entry entry = {
        .cubin = compiled->cubin,
        .cubin_size = compiled->cubin_size,
        .key_text = request->key->text,
        .key_len = request->key->len,
        .options = compiled->options,
        .options_len = strlen(compiled->options),
        .build_log = compiled->log,
        .log_len = strlen(compiled->log),
        .facts = compiled->facts,
    };
    const int arch_len = snprintf(entry.arch, sizeof entry.arch, "%s", request->arch);
    const int entry_len = snprintf(entry.entry, sizeof entry.entry, "%s", request->unit->entry);
    if (arch_len >= (int)sizeof entry.arch || entry_len >= (int)sizeof entry.entry)
        return GDN_FAIL(GDN_E_INVALID, "entry \"%s\" for arch \"%s\": a name is too long (%zu and %zu bytes fit)",
                        request->unit->entry, request->arch, sizeof entry.entry - 1, sizeof entry.arch - 1);
    request->program = gdni_program_create(&entry);
    request->origin = GDNI_FROM_COMPILER;
    return request->program ? GDN_OK : GDN_FAIL(GDN_E_NOMEM, "out of memory: program of %zu bytes", compiled->cubin_size);
}

static gdn_status compile_fails(const struct gdni_request *request, gdn_status status)
{
    gdni_log(&request->ctx->log, GDN_LOG_INFO, "compile %s for %s, key %s: %s", request->unit->entry, request->arch,
             request->key->hex, gdn_status_name(status));
    return gdni_fail_in(status, "key %s", request->key->hex);
}

/* Not "start": the compiler's slots may be others' for long. */
static gdn_status start_compile(struct gdni_request *request)
{
    gdni_log(&request->ctx->log, GDN_LOG_INFO, "compile %s for %s, key %s: asked for", request->unit->entry, request->arch,
             request->key->hex);
    const gdn_status status = gdni_compile_start(request->ctx->nvrtc, request->unit, &request->compiling);
    return status == GDN_OK ? GDN_OK : compile_fails(request, status);
}

static gdn_status finish_compile(struct gdni_request *request)
{
    const struct gdni_log *log = &request->ctx->log;
    const char *name = request->unit->entry, *hex = request->key->hex;
    struct gdni_compiled compiled;
    gdn_status status = gdni_compile_finish(request->compiling, &compiled);
    request->compiling = NULL;
    if (status != GDN_OK) return compile_fails(request, status);
    const struct gdni_facts *facts = &compiled.facts;
    count(&request->ctx->counters.compiles, 1);
    count(&request->ctx->counters.compile_usec, compiled.usec);
    gdni_log(log, GDN_LOG_INFO, "compile %s for %s, key %s: done in %d ms, %d registers, %d bytes spilled", name,
             request->arch, hex, facts->compile_ms, facts->registers, facts->spill_bytes);
    status = wrap(request, &compiled);
    if (status == GDN_OK) request->program->source = GDNI_FROM_COMPILER;
    gdni_compiled_free(&compiled);
    return status;
}

/* After the flight has landed: nobody waits for a disk. */
static void publish(const struct gdni_request *request, bool replace)
{
    char tag[GDNI_COMPILER_TAG];
    if (request->origin == GDNI_FROM_COMPILER && gdni_nvrtc_tag(request->ctx->nvrtc, tag))
        gdni_cache_publish(request->ctx->cache, request->program, tag, replace);
}

/* What a bundle has is refused in each process. */
static gdn_status rebuild(struct gdni_request *request)
{
    count(&request->ctx->counters.corrupt, 1);
    GDN_TRY(find_behind(request));
    if (request->program) return GDN_OK;
    return request->strict ? not_rebuilt(request) : start_compile(request);
}

/* Another process may have published the key while this one waited, or between its look and its turn. */
static gdn_status take_turn(struct gdni_request *request)
{
    struct gdn_ctx *ctx = request->ctx;
    bool waited = false;
    request->turn =
        gdni_guard_enter(ctx->guard, gdni_cache_user_dir(ctx->cache), request->key->hex, request->deadline, &waited);
    request->again = !waited;
    GDN_TRY(find_own(request)); /* after a time-out too: whoever has the turn may have long published */
    if (request->program) count(&ctx->counters.disk_hits, 1);
    return GDN_OK;
}

static gdn_status find_or_start(struct gdni_request *request)
{
    GDN_TRY(find_on_disk(request));
    if (request->program) return GDN_OK;
    if (request->strict) return not_cached(request);
    GDN_TRY(take_turn(request));
    return request->program ? GDN_OK : start_compile(request);
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

/* The flight lands, with a program or a sentence. */
static gdn_status land(struct gdni_request *request, gdn_status status)
{
    gdni_registry_settle(request->ctx->registry, request->flight, status, request->program);
    if (status == GDN_OK) publish(request, request->refused != NULL);
    gdni_guard_leave(request->turn); /* not before others find what was published */
    return status;
}

/* Finds or builds the program unless the registry has it or another thread is at it. A compile that it started goes on. */
static gdn_status enter(struct gdni_request *request)
{
    const unsigned flags = request->strict ? GDNI_ENTER_STRICT : 0;
    GDN_TRY(gdni_registry_enter(request->ctx->registry, request->key, flags, request->refused, &request->program,
                                &request->flight));
    if (!request->flight) {
        request->origin = GDNI_FROM_MEMORY;
        count(&request->ctx->counters.memory_hits, 1);
        return GDN_OK;
    }
    const gdn_status status = request->refused ? rebuild(request) : find_or_start(request);
    return request->compiling ? GDN_OK : land(request, status);
}

/* refused: as in gdni_programs_rebuild(), else NULL. */
static gdn_status begin(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key, uint32_t flags,
                        const struct gdni_program *refused, int64_t deadline, struct gdni_request **out)
{
    struct gdni_request *request = gdni_calloc(1, sizeof *request);
    if (!request) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a request (%zu bytes)", sizeof *request);
    request->ctx = ctx;
    request->unit = unit;
    request->key = key;
    request->arch = unit->spec.arch->name;
    request->strict = strict_by(ctx, flags);
    request->refused = refused;
    request->turn = GDNI_GUARD_NONE;
    request->deadline = deadline;
    const gdn_status status = enter(request);
    if (status == GDN_OK)
        *out = request;
    else
        gdni_free(request);
    return status;
}

int64_t gdni_programs_deadline(const struct gdn_ctx *ctx)
{
    return gdni_guard_deadline(ctx->guard);
}

gdn_status gdni_programs_begin(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                               uint32_t flags, int64_t deadline, struct gdni_request **out)
{
    return begin(ctx, unit, key, flags, NULL, deadline, out);
}

gdn_status gdni_programs_end(struct gdni_request *request, struct gdni_program **out, enum gdni_origin *origin)
{
    const gdn_status status = request->compiling ? land(request, finish_compile(request)) : GDN_OK;
    if (status == GDN_OK) {
        *out = request->program;
        *origin = request->origin;
    }
    gdni_free(request);
    return status;
}

gdn_status gdni_programs_get(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                             uint32_t flags, struct gdni_program **out, enum gdni_origin *origin)
{
    struct gdni_request *request = NULL;
    GDN_TRY(begin(ctx, unit, key, flags, NULL, gdni_programs_deadline(ctx), &request));
    return gdni_programs_end(request, out, origin);
}

gdn_status gdni_programs_rebuild(struct gdn_ctx *ctx, const struct gdni_unit *unit, const struct gdni_key *key,
                                 uint32_t flags, const struct gdni_program *refused, struct gdni_program **out,
                                 enum gdni_origin *origin)
{
    struct gdni_request *request = NULL;
    GDN_TRY(begin(ctx, unit, key, flags, refused, gdni_programs_deadline(ctx), &request));
    return gdni_programs_end(request, out, origin);
}
