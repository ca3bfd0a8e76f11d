#include "support/fake_host.h"

#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/shipped.h"

static void die(const char *what, const char *why)
{
    fprintf(stderr, "fake_host: %s: %s\n", what, why);
    exit(3);
}

const struct fake_controls *fake_open(const char *driver_path)
{
    void *library = dlopen(driver_path, RTLD_NOW | RTLD_LOCAL); /* stays open: the host under test closes its own handle */
    if (!library) die(driver_path, dlerror());
    const struct fake_controls *controls = dlsym(library, "fake_controls");
    if (!controls) die(driver_path, "no fake_controls");
    controls->reset();
    controls->make_current(0);
    return controls;
}

static void keep_warning(void *user, int level, const char *message)
{
    struct fake_host *host = user;
    if (level > GDN_LOG_WARN || shipped_is_stale_warning(message)) return;
    ++host->warnings;
    snprintf(host->warning, sizeof host->warning, "%s", message);
}

void fake_host_open_with(struct fake_host *host, const char *driver_path, const char *cache_dir, const char *nvrtc_path,
                         uint32_t flags)
{
    char shared[512] = "";
    const char *home = getenv("XDG_CACHE_HOME");
    *host = (struct fake_host){ .cuda = fake_open(driver_path) };
    if (home) snprintf(shared, sizeof shared, "%s/gdn-jit-host-tests", home);
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = cache_dir ? cache_dir : shared;
    cfg.driver_path = driver_path;
    cfg.flags = flags;
    cfg.nvrtc_path = nvrtc_path;
    cfg.log_fn = keep_warning;
    cfg.log_user = host;
    if (gdn_ctx_create(&host->ctx, &cfg) != GDN_OK) die("gdn_ctx_create", gdn_last_error());
}

void fake_host_open(struct fake_host *host, const char *driver_path, const char *cache_dir, uint32_t flags)
{
    fake_host_open_with(host, driver_path, cache_dir, getenv("GDN_JIT_NVRTC"), flags);
}

void fake_host_close(struct fake_host *host)
{
    gdn_ctx_destroy(host->ctx);
    host->ctx = NULL;
}

void fake_make_dir(char path[64])
{
    snprintf(path, 64, "/tmp/gdn-jit-test-XXXXXX");
    if (!mkdtemp(path)) die("mkdtemp", path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void fake_remove_dir(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

gdn_target fake_h200(gdn_ctx *ctx)
{
    gdn_target target = GDN_TARGET_INIT;
    if (gdn_target_from_name(ctx, "NVIDIA H200", &target) != GDN_OK) die("gdn_target_from_name", gdn_last_error());
    return target;
}

gdn_prefill_desc fake_prefill_desc(void)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    d.num_q_heads = d.num_k_heads = 4;
    d.num_v_heads = 8;
    d.head_dim_qk = d.head_dim_v = 128;
    d.max_tokens = 1000;
    d.max_seqs = 8;
    return d;
}

/* Addresses that tell the members apart. */
gdn_prefill_args fake_prefill_args(void)
{
    gdn_prefill_args a = GDN_PREFILL_ARGS_INIT;
    a.q = 0x10000, a.k = 0x20000, a.v = 0x30000, a.g = 0x40000, a.beta = 0x50000, a.o = 0x60000;
    a.initial_state = 0x70000, a.final_state = 0x80000, a.cu_seqlens = 0x90000;
    a.num_tokens = 96;
    a.num_seqs = 3;
    return a;
}

gdn_conv1d_desc fake_conv1d_desc(void)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    d.num_q_heads = d.num_k_heads = 2;
    d.num_v_heads = 4;
    d.head_dim_qk = d.head_dim_v = 128;
    d.flags = GDN_CONV_SILU | GDN_CONV_BIAS;
    d.max_tokens = 1000;
    d.max_seqs = 8;
    return d;
}

gdn_conv1d_args fake_conv1d_args(void)
{
    gdn_conv1d_args a = GDN_CONV1D_ARGS_INIT;
    a.x = 0x10000, a.weight = 0x20000, a.bias = 0x30000, a.q = 0x40000, a.k = 0x50000, a.v = 0x60000;
    a.state = 0x70000, a.slot_in = 0x80000, a.has_initial_state = 0x90001, a.cu_seqlens = 0xa0000;
    a.num_tokens = 96;
    a.num_seqs = 3;
    a.x_stride = 1536;
    return a;
}

gdn_plan *fake_plan_conv(gdn_ctx *ctx, int64_t max_tokens, const char *target_name)
{
    gdn_plan *plan = NULL;
    gdn_target target = GDN_TARGET_INIT;
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.max_tokens = max_tokens;
    if (gdn_target_from_name(ctx, target_name, &target) != GDN_OK) die(target_name, gdn_last_error());
    if (gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &plan) != GDN_OK) die("gdn_plan_conv1d_qkv", gdn_last_error());
    return plan;
}

void fake_warm(char dir[64], const char *driver_path)
{
    struct fake_host host;
    fake_make_dir(dir);
    fake_host_open(&host, driver_path, dir, 0);
    gdn_plan_destroy(fake_plan_conv(host.ctx, 200, "NVIDIA H200"));
    if (fake_compiles(host.ctx) != 1) die(dir, "warming took other than one compile");
    fake_host_close(&host);
}

bool fake_error_says(const char *words)
{
    return strstr(gdn_last_error(), words) != NULL;
}

struct text {
    char *bytes;
    size_t len;
};

static gdn_status append(void *user, const void *data, size_t size)
{
    struct text *t = user;
    t->bytes = realloc(t->bytes, t->len + size + 1);
    memcpy(t->bytes + t->len, data, size);
    t->len += size;
    t->bytes[t->len] = '\0';
    return GDN_OK;
}

char *fake_dump(const gdn_plan *plan, gdn_dump_kind kind)
{
    struct text t = { calloc(1, 1), 0 };
    if (gdn_plan_dump(plan, kind, append, &t) == GDN_OK) return t.bytes;
    free(t.bytes);
    return NULL;
}

uint64_t fake_compiles(gdn_ctx *ctx)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    if (gdn_cache_stat(ctx, &stats) != GDN_OK) die("gdn_cache_stat", gdn_last_error());
    return stats.compiles;
}

bool fake_balanced(const struct fake_controls *cuda)
{
    const struct fake_balance b = cuda->balance();
    return b.retained_contexts == 0 && b.loaded_libraries == 0 && b.pushed_contexts == 0 && b.allocations == 0 &&
           b.streams == 0 && b.events == 0 && b.graphs == 0;
}

int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); /* of the sanitizer's run-time, in builds that have it */

bool fake_no_leaks(void)
{
    return !__lsan_do_recoverable_leak_check || __lsan_do_recoverable_leak_check() == 0;
}
