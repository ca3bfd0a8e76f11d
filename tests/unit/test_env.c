/*
 * test_env.c - the environment is read once, copied, and what cannot be understood is refused.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/env.h"
#include "runtime/nvrtc.h"
#include "support/fake_host.h"
#include "support/store.h"

static const char *const names[] = {
    "GDN_JIT_CACHE_DIR", "GDN_JIT_BUNDLE_PATH", "GDN_JIT_CACHE_MAX_BYTES", "GDN_JIT_DISABLE_COMPILE",
    "GDN_JIT_DISABLE_CACHE", "GDN_JIT_NVRTC", "GDN_JIT_LOG", "XDG_CACHE_HOME", "HOME",
    "GDN_JIT_RECORD", "GDN_JIT_TUNING_PATH", "GDN_JIT_COMPILE_WAIT_MS", "XDG_RUNTIME_DIR",
    "GDN_JIT_WHOLE_SEQUENCES", "GDN_JIT_DISABLE_CODE_PREFETCH", "GDN_JIT_COMPILE_JOBS",
};

static void clear(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) unsetenv(names[i]);
}

Test(env, nothing_set_is_all_zero, .init = clear)
{
    static const struct gdni_env zero;
    struct gdni_env env;
    memset(&env, 0x5a, sizeof env);
    cr_assert_eq(gdni_env_read(&env), GDN_OK);
    cr_assert_eq(env.cache_dir, zero.cache_dir);
    cr_assert_null(env.bundle_path);
    cr_assert_null(env.nvrtc);
    cr_assert_null(env.tuning_path);
    cr_assert_null(env.xdg_cache_home);
    cr_assert_null(env.home);
    cr_assert(!env.record && !env.xdg_runtime_dir && env.compile_wait_ms == 0 && env.compile_jobs == 0);
    cr_assert_eq(env.cache_max_bytes, 0u);
    cr_assert_eq(env.log_level, 0);
    cr_assert(!env.disable_compile && !env.disable_cache && !env.whole_sequences && !env.disable_code_prefetch);
}

Test(env, every_variable_reaches_its_member, .init = clear)
{
    struct gdni_env env;
    setenv("GDN_JIT_CACHE_DIR", "/c", 1);
    setenv("GDN_JIT_BUNDLE_PATH", "/a:/b", 1);
    setenv("GDN_JIT_NVRTC", "/n", 1);
    setenv("GDN_JIT_TUNING_PATH", "/t:/u", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/h", 1);
    setenv("GDN_JIT_RECORD", "/r", 1);
    setenv("XDG_RUNTIME_DIR", "/run", 1);
    setenv("GDN_JIT_COMPILE_WAIT_MS", "600000", 1);
    setenv("GDN_JIT_COMPILE_JOBS", "256", 1);
    setenv("GDN_JIT_CACHE_MAX_BYTES", "18446744073709551615", 1);
    setenv("GDN_JIT_LOG", "debug", 1);
    setenv("GDN_JIT_DISABLE_COMPILE", "1", 1);
    setenv("GDN_JIT_DISABLE_CACHE", "1", 1);
    setenv("GDN_JIT_WHOLE_SEQUENCES", "1", 1);
    setenv("GDN_JIT_DISABLE_CODE_PREFETCH", "1", 1);
    cr_assert_eq(gdni_env_read(&env), GDN_OK);
    clear(); /* what was read is a copy */
    cr_assert_str_eq(env.cache_dir, "/c");
    cr_assert_str_eq(env.bundle_path, "/a:/b");
    cr_assert_str_eq(env.nvrtc, "/n");
    cr_assert_str_eq(env.tuning_path, "/t:/u");
    cr_assert_str_eq(env.xdg_cache_home, "/x");
    cr_assert_str_eq(env.home, "/h");
    cr_assert_str_eq(env.record, "/r");
    cr_assert_str_eq(env.xdg_runtime_dir, "/run");
    cr_assert_eq(env.compile_wait_ms, 600000u);
    cr_assert_eq(env.compile_jobs, 256u);
    cr_assert_eq(env.cache_max_bytes, UINT64_MAX);
    cr_assert_eq(env.log_level, GDN_LOG_DEBUG);
    cr_assert(env.disable_compile && env.disable_cache && env.whole_sequences && env.disable_code_prefetch);
    gdni_env_free(&env);
    cr_assert_null(env.cache_dir);
}

Test(env, log_levels_by_name, .init = clear)
{
    static const char *const levels[] = { "error", "warn", "info", "debug" };
    for (int i = 0; i < 4; ++i) {
        struct gdni_env env;
        setenv("GDN_JIT_LOG", levels[i], 1);
        cr_assert_eq(gdni_env_read(&env), GDN_OK);
        cr_assert_eq(env.log_level, i + 1, "%s is %d", levels[i], env.log_level);
    }
}

Test(env, what_cannot_be_understood_is_refused_by_name_value_and_remedy, .init = clear)
{
    static const struct {
        const char *name, *value, *remedy;
    } cases[] = {
        { "GDN_JIT_CACHE_MAX_BYTES", "-1", "a number of bytes" },
        { "GDN_JIT_CACHE_MAX_BYTES", "12x", "a number of bytes" },
        { "GDN_JIT_CACHE_MAX_BYTES", " 5", "a number of bytes" },
        { "GDN_JIT_CACHE_MAX_BYTES", "18446744073709551616", "a number of bytes" },
        { "GDN_JIT_COMPILE_WAIT_MS", "600001", "milliseconds" },
        { "GDN_JIT_COMPILE_WAIT_MS", "-1", "milliseconds" },
        { "GDN_JIT_COMPILE_JOBS", "0", "compiles at a time, 1 to 256" },
        { "GDN_JIT_COMPILE_JOBS", "257", "compiles at a time, 1 to 256" },
        { "GDN_JIT_COMPILE_JOBS", "-1", "compiles at a time, 1 to 256" },
        { "GDN_JIT_COMPILE_JOBS", "4 ", "compiles at a time, 1 to 256" },
        { "GDN_JIT_LOG", "WARN", "error, warn, info or debug" },
        { "GDN_JIT_LOG", "5", "error, warn, info or debug" },
        { "GDN_JIT_DISABLE_COMPILE", "yes", "0 or 1" },
        { "GDN_JIT_DISABLE_CACHE", "11", "0 or 1" },
        { "GDN_JIT_WHOLE_SEQUENCES", "on", "0 or 1" },
        { "GDN_JIT_DISABLE_CODE_PREFETCH", "true", "0 or 1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct gdni_env env;
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        clear();
        setenv("GDN_JIT_CACHE_DIR", "/read before or behind", 1);
        setenv(cases[i].name, cases[i].value, 1);
        cr_assert_eq(gdni_env_read(&env), GDN_E_INVALID, "%s=%s", cases[i].name, cases[i].value);
        const char *said = gdn_last_error();
        cr_expect(strstr(said, cases[i].name) && strstr(said, cases[i].value) && strstr(said, cases[i].remedy), "%s", said);
        cr_expect(!env.cache_dir && fake_no_leaks());
        cfg.cache_dir = "";
        cr_expect_eq(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID);
        cr_expect_null(ctx);
        cfg.flags = GDN_CTX_NO_ENV;
        cr_expect_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "who reads no environment: %s", gdn_last_error());
        gdn_ctx_destroy(ctx);
    }
}

Test(env, empty_is_unset_and_off_is_off, .init = clear)
{
    struct gdni_env env;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) setenv(names[i], "", 1);
    setenv("GDN_JIT_DISABLE_COMPILE", "0", 1);
    setenv("GDN_JIT_WHOLE_SEQUENCES", "0", 1);
    cr_assert_eq(gdni_env_read(&env), GDN_OK);
    cr_assert_null(env.cache_dir);
    cr_assert_null(env.home);
    cr_assert(!env.disable_compile && !env.whole_sequences);
}

Test(env, running_out_of_memory_leaves_nothing_behind, .init = clear)
{
    setenv("GDN_JIT_CACHE_DIR", "/c", 1);
    setenv("GDN_JIT_NVRTC", "/n", 1);
    setenv("HOME", "/h", 1);
    for (int allowed = 0; allowed < 3; ++allowed) {
        struct gdni_env env;
        gdni_mem_fail_after(allowed);
        cr_assert_eq(gdni_env_read(&env), GDN_E_NOMEM, "after %d allocations", allowed);
        gdni_mem_fail_after(-1);
        cr_assert_null(env.cache_dir);
        cr_assert_null(env.nvrtc);
        cr_assert_null(env.tuning_path);
    }
    cr_assert(fake_no_leaks());
}

Test(env, the_compiler_that_the_config_names_goes_before_the_environments, .init = clear)
{
    const struct gdni_nvrtc_api *api = NULL;
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    setenv("GDN_JIT_NVRTC", "/nonexistent/libnvrtc.so", 1);
    cfg.cache_dir = "";
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    cr_expect_eq(gdni_nvrtc_get(ctx->nvrtc, &api), GDN_OK, "%s", gdn_last_error());
    gdn_ctx_destroy(ctx);
    cfg.nvrtc_path = NULL;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    cr_expect_eq(gdni_nvrtc_get(ctx->nvrtc, &api), GDN_E_NO_NVRTC);
    cr_expect(strstr(gdn_last_error(), "/nonexistent/libnvrtc.so"), "%s", gdn_last_error());
    gdn_ctx_destroy(ctx);
}

Test(env, a_context_without_environment_reads_none, .init = clear)
{
    char *dir = store_scratch();
    setenv("GDN_JIT_CACHE_DIR", dir, 1);
    gdn_ctx *ctx = store_ctx(NULL, 0, NULL, GDN_FAKE_NVRTC_PATH); /* GDN_CTX_NO_ENV */
    cr_assert_null(gdn_cache_dir(ctx));
    gdn_ctx_destroy(ctx);
    cr_assert_eq(gdn_ctx_create(&ctx, NULL), GDN_OK);
    cr_assert_str_eq(gdn_cache_dir(ctx), dir);
    gdn_ctx_destroy(ctx);
    store_remove(dir);
}
