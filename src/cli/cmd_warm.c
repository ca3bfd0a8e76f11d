/*
 * cmd_warm.c - owns `warm`: every kernel of what the options name is in the cache directory, or it says which are not.
 */
#include <stdio.h>
#include <string.h>

#include "cli/build.h"
#include "cli/commands.h"
#include "cli/compiler.h"
#include "cli/diagnose.h"
#include "cli/entries.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"

static const char doc[] =
    "Compiles the kernels of models or shapes ahead of time and keeps them in the cache, "
    "so that an engine starts without compiling. Needs NVRTC, but no GPU and no driver. "
    "May be interrupted and run again: what is there is not built twice.\v"
    "Examples:\n"
    "  gdn-jit-cache warm --model qwen3-next-80b-a3b --gpu \"NVIDIA H200\"\n"
    "  gdn-jit-cache warm -m qwen3.5-27b --tp 1,2 --arch sm_90a,sm_120a -j 4\n"
    "  gdn-jit-cache warm --shapes my_shapes.json --cache-dir /opt/gdn-cache\n"
    "  gdn-jit-cache warm --from recorded.jsonl        (of a run with GDN_JIT_RECORD=recorded.jsonl)\n"
    "\n"
    "Without --tp every power of two that the model can be split into is built; without "
    "--gpu and --arch the kernels are for the GPUs of this machine. Tensor-parallel sizes "
    "and GPUs of one arch share most kernels.\n"
    "\n"
    "Exit status: 0 every kernel is in the cache, 1 some are not, 2 the command line or a "
    "file it names is wrong.";

static cJSON *kernels_json(const struct cli_build *b)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < b->num_kernels; ++i) {
        const struct cli_kernel *k = &b->kernels[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", k->key);
        cJSON_AddStringToObject(o, "kernel", k->name);
        cJSON_AddStringToObject(o, "arch", k->arch);
        cJSON_AddBoolToObject(o, "built", k->built);
        cJSON_AddNumberToObject(o, "registers", (double)k->registers);
        cJSON_AddNumberToObject(o, "spill_bytes", (double)k->spill_bytes);
        cJSON_AddNumberToObject(o, "cubin_bytes", (double)k->cubin_bytes);
        cJSON_AddNumberToObject(o, "compile_ms", (double)k->compile_ms);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *failures_json(const struct cli_build *b)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < b->num_failures; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "first", b->failures[i].first);
        cJSON_AddNumberToObject(o, "count", (double)b->failures[i].count);
        cJSON_AddStringToObject(o, "status", b->failures[i].status);
        cJSON_AddStringToObject(o, "message", b->failures[i].message);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *targets_json(const struct cli_jobs *jobs)
{
    cJSON *array = cJSON_CreateArray();
    struct cli_targets targets = { 0 };
    for (size_t i = 0; i < jobs->count; ++i)
        cli_targets_add(&targets, jobs->items[i].target);
    for (size_t i = 0; i < targets.count; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", targets.items[i].gpu_name);
        cJSON_AddStringToObject(o, "arch", targets.items[i].arch);
        cJSON_AddItemToArray(array, o);
    }
    cli_targets_free(&targets);
    return array;
}

static void print_json(const struct cli_build *b, size_t missing)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cache_dir", gdn_cache_dir(b->ctx));
    cJSON_AddItemToObject(root, "targets", targets_json(b->jobs));
    cJSON_AddNumberToObject(root, "plans", (double)b->jobs->count);
    cJSON_AddNumberToObject(root, "plans_failed", (double)b->failed);
    cJSON_AddNumberToObject(root, "plans_changed", (double)b->changed);
    cJSON_AddNumberToObject(root, "built", (double)b->built);
    cJSON_AddNumberToObject(root, "already_there", (double)(b->num_kernels - b->built));
    cJSON_AddNumberToObject(root, "not_stored", (double)missing);
    cJSON_AddNumberToObject(root, "cubin_bytes", (double)b->cubin_bytes);
    cJSON_AddNumberToObject(root, "milliseconds", (double)b->milliseconds);
    cJSON_AddItemToObject(root, "kernels", kernels_json(b));
    cJSON_AddItemToObject(root, "failures", failures_json(b));
    cli_print_json(root);
}

/* Another compiler's entry of the same key is not looked at by an engine that has this one. */
static bool holds(const struct cli_entries *entries, const char *key, const char *compiler)
{
    for (size_t i = 0; i < entries->count; ++i) {
        const struct cli_entry *e = &entries->items[i];
        if (e->valid && strcmp(e->key, key) == 0 && strcmp(e->compiler, compiler) == 0) return true;
    }
    return false;
}

/*
 * How many of the kernels the directory does not hold, whatever the reason: it could not be written, its size cap evicted
 * them, or they were found in a bundle, which is not what is being warmed.
 */
static int count_missing(const struct cli_build *b, size_t *missing)
{
    struct cli_entries entries = { 0 };
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    bool examined = false;
    CLI_TRY(cli_entries_find(b->ctx, "", &entries));
    *missing = 0;
    for (size_t i = 0; i < b->num_kernels; ++i) {
        const struct cli_kernel *k = &b->kernels[i];
        if (holds(&entries, k->key, k->compiler)) continue;
        if (!examined) gdn_examine(b->ctx, &doctor); /* a bundle's kernel may be another compiler's; rare: it asks the driver */
        examined = true;
        *missing += !holds(&entries, k->key, doctor.nvrtc);
    }
    cli_entries_free(&entries);
    return CLI_OK;
}

/* Why entries could not be written, as doctor finds out; the cause may be over. */
static int fail_unwritten(const struct cli_build *b, size_t missing, bool any_owner)
{
    const char *dir = gdn_cache_dir(b->ctx);
    struct cli_cache_folders folders;
    cli_try_cache_folders(dir, any_owner, &folders);
    if (folders.untrusted[0])
        return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s is not this user's alone: %s", missing,
                        b->num_kernels, dir, folders.untrusted, cli_owner_remedy);
    if (folders.error)
        return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s cannot be written (%s): %s", missing,
                        b->num_kernels, dir, folders.unwritable, strerror(folders.error),
                        cli_write_remedy(folders.error));
    return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: make it writable, or free space there", missing,
                    b->num_kernels, dir);
}

/* The sentence for what is missing: the likeliest cause that the library's counters show. */
static int fail_missing(const struct cli_build *b, size_t missing, const gdn_cache_stats *stats, bool any_owner)
{
    const char *remedy = stats->evicted ? "the size cap evicted them: raise GDN_JIT_CACHE_MAX_BYTES"
                                        : "they were found in a bundle: unset GDN_JIT_BUNDLE_PATH to build them here";
    if (stats->publish_failures) return fail_unwritten(b, missing, any_owner);
    return cli_fail(CLI_FAILED, "%zu of %zu kernels are not in %s: %s", missing, b->num_kernels, gdn_cache_dir(b->ctx),
                    remedy);
}

static void print_summary(const struct cli_build *b)
{
    const int64_t ms = b->milliseconds;
    char size[CLI_SHORT];
    cli_print("%zu kernel%s built, %zu already there; %zu of %zu plans failed; %lld.%lld s; %s of cubins for %s\n",
              b->built, b->built == 1 ? "" : "s", b->num_kernels - b->built, b->failed, b->jobs->count,
              (long long)(ms / 1000), (long long)(ms % 1000 / 100), cli_format_bytes(size, b->cubin_bytes),
              gdn_cache_dir(b->ctx));
}

static int report(const struct cli_build *b, const struct cli_options *options)
{
    gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    size_t missing = 0;
    if (gdn_cache_stat(b->ctx, &stats) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    CLI_TRY(count_missing(b, &missing));
    cli_build_say_problems(b);
    if (options->json)
        print_json(b, missing);
    else
        print_summary(b);
    if (missing) return fail_missing(b, missing, &stats, options->shared_cache);
    return b->failed ? cli_fail(CLI_FAILED, "%s", "") : CLI_OK;
}

static int run(struct cli_jobs *jobs, const struct cli_options *options, gdn_ctx **ctx)
{
    CLI_TRY(cli_jobs_read(jobs, options));
    CLI_TRY(cli_resolve_context(options, ctx));
    CLI_TRY(cli_require_compiler(*ctx, options));
    CLI_TRY(cli_require_cache(*ctx)); /* what is kept in memory would be gone with this process */
    CLI_TRY(cli_jobs_aim(jobs, *ctx, options));
    struct cli_build build = { 0 };
    cli_build_run(&build, *ctx, jobs, options->jobs);
    const int code = report(&build, options);
    cli_build_free(&build);
    return code;
}

int cli_cmd_warm(int argc, char **argv)
{
    struct cli_options options;
    struct cli_jobs jobs = { 0 };
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, CLI_OPTIONS_SHAPES | CLI_OPTIONS_TARGETS | CLI_OPTIONS_BUILD, doc, argc, argv);
    const int code = run(&jobs, &options, &ctx);
    cli_jobs_free(&jobs);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
