/*
 * cmd_doctor.c - owns `doctor`: what works on this machine, what is missing, how to get it.
 *
 * That an arch can be compiled is not looked up in a list: a small kernel is compiled for each, in memory.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/resolve.h"
#include "cli/plan_facts.h"
#include "cli/say.h"
#include "cli/table.h"
#include "cli/targets.h"

static const char doc[] = "Tells what works on this machine: the CUDA driver, NVRTC, the cache directory, the "
                          "archs that NVRTC can compile for (by compiling), and the GPUs that can be named.\v"
                          "What is missing is named together with how to get it. NVRTC and a cache directory are "
                          "all that warm needs; the driver and a GPU are needed to run.\n"
                          "\n"
                          "Exit status: 0 warm would work here, 1 something it needs is missing, 2 the command "
                          "line is wrong.";

struct probe {
    char arch[16];
    bool compiles;
    int64_t ms;
    char problem[512];
};

enum { MAX_PROBES = 64, MAX_GPUS = 256 };

struct report {
    gdn_doctor doctor;
    gdn_target devices[64];
    int num_devices;
    struct probe probes[MAX_PROBES];
    size_t num_probes;
    struct {
        char name[64], arch[16];
    } gpus[MAX_GPUS];
    size_t num_gpus;
};

/* A GPU's name differs from its arch. */
static void on_name(void *user, const char *name, const char *arch)
{
    struct report *r = user;
    if (strcmp(name, arch) == 0 && r->num_probes < MAX_PROBES) {
        snprintf(r->probes[r->num_probes++].arch, sizeof r->probes[0].arch, "%s", arch);
    } else if (strcmp(name, arch) != 0 && r->num_gpus < MAX_GPUS) {
        snprintf(r->gpus[r->num_gpus].name, sizeof r->gpus[0].name, "%s", name);
        snprintf(r->gpus[r->num_gpus++].arch, sizeof r->gpus[0].arch, "%s", arch);
    }
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The smallest kernel there is. */
static gdn_status compile_small(gdn_ctx *ctx, const char *arch)
{
    gdn_target target = GDN_TARGET_INIT;
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT;
    gdn_plan *plan = NULL;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 1;
    desc.head_dim_qk = desc.head_dim_v = 16;
    desc.width = 2;
    desc.max_tokens = desc.max_seqs = 1;
    gdn_status status = gdn_target_from_name(ctx, arch, &target);
    if (status == GDN_OK) status = gdn_plan_conv1d_qkv(ctx, &target, &desc, 0, &plan);
    gdn_plan_destroy(plan);
    return status;
}

static void run_probe(gdn_ctx *ctx, struct probe *p)
{
    char line[64];
    snprintf(line, sizeof line, "compiling a small kernel for %s", p->arch);
    cli_progress(line);
    const int64_t start = now_ms();
    p->compiles = compile_small(ctx, p->arch) == GDN_OK;
    p->ms = now_ms() - start;
    if (!p->compiles) snprintf(p->problem, sizeof p->problem, "%s", gdn_last_error());
}

/* In a context of its own that has no cache directory: an entry from before would prove nothing. */
static int probe_archs(const struct cli_options *options, struct report *r)
{
    struct cli_options memory_only = *options;
    gdn_ctx *ctx = NULL;
    memory_only.cache_dir = "";
    CLI_TRY(cli_resolve_context(&memory_only, &ctx));
    for (size_t i = 0; i < r->num_probes; ++i)
        run_probe(ctx, &r->probes[i]);
    cli_progress(NULL);
    gdn_ctx_destroy(ctx);
    return CLI_OK;
}

static void find_devices(gdn_ctx *ctx, struct report *r)
{
    for (int i = 0; i < r->doctor.num_devices && r->num_devices < 64; ++i) {
        gdn_target *target = &r->devices[r->num_devices];
        *target = (gdn_target)GDN_TARGET_INIT;
        if (gdn_target_from_device(ctx, i, target) == GDN_OK)
            ++r->num_devices;
        else
            cli_say("device %d: %s", i, gdn_last_error());
    }
}

static bool ready(const struct report *r)
{
    for (size_t i = 0; i < r->num_probes; ++i)
        if (r->probes[i].compiles) return r->doctor.cache[0] != '\0';
    return false;
}

/* ---- text ---- */

static void print_part(const char *name, const char *text, const char *problem)
{
    printf("%-7s %-8s %s\n", name, text[0] ? "ok" : "missing", text[0] ? text : problem);
    if (text[0] && problem[0]) printf("%-7s %-8s %s\n", "", "note", problem);
}

static void gpus_of_arch(const struct report *r, const char *arch, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r->num_gpus && len < size; ++i)
        if (strcmp(r->gpus[i].arch, arch) == 0)
            len += (size_t)snprintf(out + len, size - len, "%s%s", len ? ", " : "", r->gpus[i].name);
}

static void print_archs(const struct report *r)
{
    static const struct cli_column columns[] = {
        { "ARCH", false }, { "COMPILES", false }, { "MS", true }, { "GPUS THAT CAN BE NAMED", false }
    };
    struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r->num_probes; ++i) {
        const struct probe *p = &r->probes[i];
        char ms[CLI_SHORT] = "-", gpus[512];
        if (p->compiles) snprintf(ms, sizeof ms, "%lld", (long long)p->ms);
        gpus_of_arch(r, p->arch, gpus, sizeof gpus);
        cli_table_row(table, (const char *const[]){ p->arch, p->compiles ? "yes" : "no", ms, gpus });
    }
    cli_table_print(table);
}

static void print_problems(const struct report *r)
{
    for (size_t i = 0; i < r->num_probes; ++i)
        if (r->probes[i].problem[0]) printf("%s: %s\n", r->probes[i].arch, r->probes[i].problem);
}

static void print_text(const struct report *r)
{
    const gdn_doctor *d = &r->doctor;
    print_part("driver", d->driver, d->driver_problem);
    print_part("nvrtc", d->nvrtc, d->nvrtc_problem);
    print_part("cache", d->cache, d->cache_problem);
    for (int i = 0; i < r->num_devices; ++i) {
        char text[96];
        printf("%-7s %-8d %s, %d SMs\n", "gpu", i, cli_target_text(text, &r->devices[i]), r->devices[i].num_sms);
    }
    puts("");
    print_archs(r);
    print_problems(r);
    if (!d->num_devices) puts("\nNo GPU here: kernels can be compiled for a named one, and not run.");
}

/* ---- JSON ---- */

static void add_part(cJSON *root, const char *name, const char *text, const char *problem)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddBoolToObject(o, "ok", text[0] != '\0');
    cJSON_AddStringToObject(o, "text", text);
    cJSON_AddStringToObject(o, "problem", problem);
    cJSON_AddItemToObject(root, name, o);
}

static cJSON *devices_json(const struct report *r)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; i < r->num_devices; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", r->devices[i].gpu_name);
        cJSON_AddStringToObject(o, "arch", r->devices[i].arch);
        cJSON_AddNumberToObject(o, "num_sms", r->devices[i].num_sms);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *archs_json(const struct report *r)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < r->num_probes; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "arch", r->probes[i].arch);
        cJSON_AddBoolToObject(o, "compiles", r->probes[i].compiles);
        cJSON_AddNumberToObject(o, "milliseconds", (double)r->probes[i].ms);
        cJSON_AddStringToObject(o, "problem", r->probes[i].problem);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *gpus_json(const struct report *r)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < r->num_gpus; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", r->gpus[i].name);
        cJSON_AddStringToObject(o, "arch", r->gpus[i].arch);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static void print_json(const struct report *r)
{
    const gdn_doctor *d = &r->doctor;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddBoolToObject(root, "ready", ready(r));
    add_part(root, "driver", d->driver, d->driver_problem);
    add_part(root, "nvrtc", d->nvrtc, d->nvrtc_problem);
    add_part(root, "cache", d->cache, d->cache_problem);
    cJSON_AddItemToObject(root, "devices", devices_json(r));
    cJSON_AddItemToObject(root, "archs", archs_json(r));
    cJSON_AddItemToObject(root, "known_gpus", gpus_json(r));
    cli_print_json(root);
}

static int run(gdn_ctx *ctx, const struct cli_options *options, struct report *r)
{
    if (gdn_examine(ctx, &r->doctor) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    find_devices(ctx, r);
    gdn_target_names(on_name, r);
    if (r->doctor.nvrtc[0])
        CLI_TRY(probe_archs(options, r)); /* without it no arch compiles, for one and the same reason */
    (options->json ? print_json : print_text)(r);
    return ready(r) ? CLI_OK : cli_fail(CLI_FAILED, "%s", "");
}

int cli_cmd_doctor(int argc, char **argv)
{
    struct cli_options options;
    struct report *report = cli_alloc(sizeof *report);
    gdn_ctx *ctx = NULL;
    report->doctor = (gdn_doctor)GDN_DOCTOR_INIT;
    cli_options_parse(&options, 0, doc, argc, argv);
    int code = cli_resolve_context(&options, &ctx);
    if (code == CLI_OK) code = run(ctx, &options, report);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    cli_free(report);
    return code;
}
