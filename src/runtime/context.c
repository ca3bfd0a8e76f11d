/*
 * context.c - owns the life of a gdn_ctx: config in, parts made in the order of their needs, and taken down in reverse when
 * nobody holds it any more.
 * Must not know: what the parts do. No lock: see context.h.
 */
#include "runtime/context.h"

#include "base/error.h"
#include "base/first_size.h"
#include "base/mem.h"
#include "runtime/cache.h"
#include "runtime/clocks.h"
#include "runtime/driver.h"
#include "runtime/guard.h"
#include "runtime/nvrtc.h"
#include "runtime/onecall.h"
#include "runtime/record.h"
#include "runtime/registry.h"
#include "runtime/tuning_api.h"

enum { KNOWN_FLAGS = GDN_CTX_NO_COMPILE | GDN_CTX_NO_ENV | GDN_CTX_SHARED_CACHE | GDN_CTX_EXISTING_CACHE };

static gdn_status check_bundles(const gdn_config *cfg)
{
    if (cfg->num_bundle_dirs && !cfg->bundle_dirs)
        return GDN_FAIL(GDN_E_INVALID, "bundle_dirs is null and num_bundle_dirs is %zu: pass that many paths",
                        cfg->num_bundle_dirs);
    for (size_t i = 0; i < cfg->num_bundle_dirs; ++i)
        if (!cfg->bundle_dirs[i]) return GDN_FAIL(GDN_E_INVALID, "bundle_dirs[%zu] is null: pass a path", i);
    return GDN_OK;
}

static gdn_status take_config(gdn_config *out, const gdn_config *cfg)
{
    *out = (gdn_config)GDN_CONFIG_INIT;
    if (!cfg) return GDN_OK;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_config, out, cfg));
    if (out->flags & ~(uint32_t)KNOWN_FLAGS)
        return GDN_FAIL(GDN_E_INVALID,
                        "flags is 0x%x: only GDN_CTX_NO_COMPILE, GDN_CTX_NO_ENV, GDN_CTX_SHARED_CACHE and "
                        "GDN_CTX_EXISTING_CACHE are known",
                        out->flags);
    if (out->log_level < 0 || out->log_level > GDN_LOG_DEBUG)
        return GDN_FAIL(GDN_E_INVALID, "log_level is %d: must be GDN_LOG_ERROR to GDN_LOG_DEBUG, or 0 for GDN_LOG_WARN",
                        out->log_level);
    if (out->compile_wait_ms < -1 || out->compile_wait_ms > GDNI_MAX_WAIT_MS)
        return GDN_FAIL(
            GDN_E_INVALID,
            "compile_wait_ms is %d: must be milliseconds up to %d, 0 for GDN_JIT_COMPILE_WAIT_MS, or -1 for "
            "no waiting",
            out->compile_wait_ms, GDNI_MAX_WAIT_MS);
    if (out->compile_jobs < 0 || out->compile_jobs > GDNI_MAX_COMPILE_JOBS)
        return GDN_FAIL(GDN_E_INVALID,
                        "compile_jobs is %d: must be compiles at a time, 1 to %d, or 0 for GDN_JIT_COMPILE_JOBS",
                        out->compile_jobs, GDNI_MAX_COMPILE_JOBS);
    if (out->reserved) return GDN_FAIL(GDN_E_INVALID, "reserved is %d: must be 0", out->reserved);
    return check_bundles(out);
}

/* What cfg says goes before the environment. */
static gdn_status read_environment(gdn_ctx *ctx, const gdn_config *cfg)
{
    if (!(cfg->flags & GDN_CTX_NO_ENV)) GDN_TRY(gdni_env_read(&ctx->env));
    ctx->log = (struct gdni_log){ cfg->log_fn, cfg->log_user, gdni_env_log_level(&ctx->env, cfg->log_level) };
    return GDN_OK;
}

static struct gdni_nvrtc *make_nvrtc(const gdn_config *cfg, const struct gdni_env *env)
{
    return gdni_nvrtc_create(cfg->nvrtc_path ? cfg->nvrtc_path : env->nvrtc,
                             (unsigned)(cfg->compile_jobs ? cfg->compile_jobs : (int32_t)env->compile_jobs));
}

static bool make_parts(gdn_ctx *ctx, const gdn_config *cfg)
{
    ctx->flags = cfg->flags;
    ctx->cache_named = cfg->cache_dir && *cfg->cache_dir;
    return (ctx->nvrtc = make_nvrtc(cfg, &ctx->env)) != NULL &&
           (ctx->cache = gdni_cache_create(cfg, &ctx->env, &ctx->log, &ctx->counters)) != NULL &&
           (ctx->registry = gdni_registry_create()) != NULL &&
           (ctx->driver = gdni_driver_create(cfg->driver_path)) != NULL &&
           (ctx->clocks = gdni_clocks_create(cfg->driver_path)) != NULL &&
           (ctx->guard = gdni_guard_create(cfg->compile_wait_ms, &ctx->env, &ctx->log)) != NULL &&
           (ctx->record = gdni_record_create(cfg->record_path ? cfg->record_path : ctx->env.record, &ctx->log)) !=
               NULL &&
           (ctx->tuning = gdni_tuning_create(gdni_shipped_tables, gdni_num_shipped_tables, &ctx->log)) != NULL &&
           gdni_tuning_load_path(ctx, cfg->tuning_path ? cfg->tuning_path : ctx->env.tuning_path) &&
           (ctx->onecall = gdni_onecall_create()) != NULL;
}

static void free_parts(gdn_ctx *ctx)
{
    gdni_record_destroy(ctx->record);
    gdni_tuning_destroy(ctx->tuning);
    gdni_guard_destroy(ctx->guard);
    gdni_clocks_destroy(ctx->clocks);
    gdni_driver_destroy(ctx->driver);
    gdni_registry_destroy(ctx->registry);
    gdni_cache_destroy(ctx->cache);
    gdni_nvrtc_destroy(ctx->nvrtc);
    gdni_env_free(&ctx->env);
    gdni_free(ctx);
}

void gdni_ctx_hold(gdn_ctx *ctx)
{
    atomic_fetch_add_explicit(&ctx->holders, 1, memory_order_relaxed);
}

/* What other holders did to the parts comes before their end. */
void gdni_ctx_let_go(gdn_ctx *ctx)
{
    if (atomic_fetch_sub_explicit(&ctx->holders, 1, memory_order_acq_rel) == 1) free_parts(ctx);
}

gdn_status gdn_ctx_create(gdn_ctx **out, const gdn_config *cfg)
{
    gdn_config taken;
    if (!out) return GDN_FAIL(GDN_E_INVALID, "out is null: pass the address of a gdn_ctx pointer");
    *out = NULL;
    GDN_TRY(take_config(&taken, cfg));
    gdn_ctx *ctx = gdni_calloc(1, sizeof *ctx);
    if (!ctx) return GDN_FAIL(GDN_E_NOMEM, "out of memory for a context");
    atomic_init(&ctx->holders, 1);
    gdn_status status = read_environment(ctx, &taken);
    if (status == GDN_OK && !make_parts(ctx, &taken)) status = GDN_FAIL(GDN_E_NOMEM, "out of memory for a context");
    if (status == GDN_OK)
        *out = ctx;
    else
        gdn_ctx_destroy(ctx);
    return status;
}

void gdn_ctx_destroy(gdn_ctx *ctx)
{
    if (!ctx) return;
    gdni_onecall_destroy(ctx->onecall); /* its plans hold ctx too */
    gdni_ctx_let_go(ctx);
}
