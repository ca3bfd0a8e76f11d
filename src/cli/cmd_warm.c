/*
 * cmd_warm.c - owns `warm`: every kernel of what the options name is in the cache directory, or it says which are not.
 */
#include <stdio.h>
#include <string.h>

#include "cli/build.h"
#include "cli/commands.h"
#include "cli/compiler.h"
#include "cli/missing.h"
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
    CLI_TRY(cli_missing_count(b, &missing));
    cli_build_say_problems(b);
    if (options->json)
        print_json(b, missing);
    else
        print_summary(b);
    if (missing) return cli_missing_fail(b, missing, &stats, options->shared_cache);
    return b->failed ? cli_fail(CLI_FAILED, "%s", "") : CLI_OK;
}

static int run(struct cli_jobs *jobs, const struct cli_options *options, gdn_ctx **ctx)
{
    CLI_TRY(cli_jobs_read(jobs, options));
    CLI_TRY(cli_resolve_context(options, ctx));
    CLI_TRY(cli_require_compiler(*ctx, options));
    CLI_TRY(cli_require_cache(*ctx, options)); /* what is kept in memory would be gone with this process */
    CLI_TRY(cli_jobs_aim(jobs, *ctx, options));
    struct cli_build build = { 0 };
    cli_build_run(&build, *ctx, jobs, cli_resolve_jobs(options));
    const int code = report(&build, options);
    cli_build_free(&build);
    return code;
}

int cli_cmd_warm(int argc, char **argv)
{
    struct cli_options options;
    struct cli_jobs jobs = { 0 };
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, CLI_OPTIONS_SHAPES | CLI_OPTIONS_TARGETS | CLI_OPTIONS_BUILD | CLI_OPTIONS_COMPILER, doc,
                      argc, argv);
    const int code = run(&jobs, &options, &ctx);
    cli_jobs_free(&jobs);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
