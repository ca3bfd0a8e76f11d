/*
 * cmd_doctor.c - owns `doctor`: finds out what there is on this machine and prints it; diagnose.c says what it means.
 *
 * That an arch can be compiled is not looked up in a list: a small kernel is compiled for each, in memory.
 */
#include <stdio.h>
#include <string.h>

#include "cli/bundles.h"
#include "cli/commands.h"
#include "cli/entries.h"
#include "cli/env.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"
#include "cli/table.h"
#include "cli/targets.h"

static const char doc[] = "Tells what works on this machine: the environment's variables, the CUDA driver, NVRTC, the "
                          "cache directory, bundles, the archs that NVRTC can compile for (by compiling), the GPUs "
                          "that can be named, and the tuning tables.\v"
                          "What is missing or does not fit is named together with what to do about it: a problem stops "
                          "warm, a note something else. NVRTC and a cache directory are "
                          "all that warm needs; the driver and a GPU are needed to run. With "
                          "GDN_JIT_DISABLE_COMPILE=1 nothing is compiled, and what keeps kernels from being found is a "
                          "problem, which is a bundle that is not whole.\n"
                          "\n"
                          "Exit status: 0 warm would work here, 1 something it needs is missing (with "
                          "GDN_JIT_DISABLE_COMPILE=1: there is such a problem), 2 the command line is wrong.";

/* A GPU's name differs from its arch. */
static void on_name(void *user, const char *name, const char *arch)
{
    struct cli_facts *f = user;
    if (strcmp(name, arch) == 0 && f->num_probes < CLI_MAX_PROBES) {
        snprintf(f->probes[f->num_probes++].arch, sizeof f->probes[0].arch, "%s", arch);
    } else if (strcmp(name, arch) != 0 && f->num_gpus < CLI_MAX_GPUS) {
        snprintf(f->gpus[f->num_gpus].name, sizeof f->gpus[0].name, "%s", name);
        snprintf(f->gpus[f->num_gpus++].arch, sizeof f->gpus[0].arch, "%s", arch);
    }
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

static void run_probe(gdn_ctx *ctx, struct cli_probe *p)
{
    char line[64];
    snprintf(line, sizeof line, "compiling a small kernel for %s", p->arch);
    cli_progress(line);
    const int64_t start = cli_now_ms();
    p->compiles = compile_small(ctx, p->arch) == GDN_OK;
    p->ms = cli_now_ms() - start;
    if (!p->compiles) snprintf(p->problem, sizeof p->problem, "%s", gdn_last_error());
}

/*
 * In a context of its own that has neither a cache directory nor bundles: an entry from before would prove nothing. It is
 * silent: what it would warn of was told when the other one was made.
 */
static int probe_archs(const struct cli_options *options, const char *nvrtc, struct cli_facts *f)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    config.cache_dir = "";
    config.flags = GDN_CTX_NO_ENV;
    config.nvrtc_path = options->nvrtc ? options->nvrtc : nvrtc;
    if (gdn_ctx_create(&ctx, &config) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    for (size_t i = 0; i < f->num_probes; ++i)
        run_probe(ctx, &f->probes[i]);
    cli_progress(NULL);
    gdn_ctx_destroy(ctx);
    return CLI_OK;
}

static void find_devices(gdn_ctx *ctx, struct cli_facts *f)
{
    for (int i = 0; i < f->doctor.num_devices && i < CLI_MAX_DEVICES; ++i) {
        struct cli_device *d = &f->devices[f->num_devices++];
        d->target = (gdn_target)GDN_TARGET_INIT;
        if (gdn_target_from_device(ctx, i, &d->target) != GDN_OK)
            snprintf(d->problem, sizeof d->problem, "%s", gdn_last_error());
    }
}

/* ---- the cache directory ---- */

static int on_damaged(void *user, const gdn_cache_entry *entry)
{
    struct cli_facts *f = user;
    if (f->damage[0]) return 0;
    snprintf(f->damage, sizeof f->damage, "%s", entry->problem);
    snprintf(f->damaged_path, sizeof f->damaged_path, "%s", entry->path);
    return 0;
}

static void examine_cache(gdn_ctx *ctx, bool any_owner, struct cli_facts *f)
{
    gdn_cache_report report = GDN_CACHE_REPORT_INIT;
    const char *dir = gdn_cache_dir(ctx);
    if (!dir) return;
    cli_try_cache_folders(dir, any_owner, &f->folders);
    if (gdn_cache_verify(ctx, NULL, 0, on_damaged, f, &report) != GDN_OK) {
        f->damaged = 1;
        snprintf(f->damage, sizeof f->damage, "%s", gdn_last_error());
        snprintf(f->damaged_path, sizeof f->damaged_path, "%s", dir);
        return;
    }
    f->damaged = report.damaged;
    f->temporaries = report.temporaries;
}

/* ---- tuning tables ---- */

static int on_tuned(void *user, const gdn_tuning_entry *entry)
{
    struct cli_facts *f = user;
    size_t i = 0;
    while (i < f->num_tuned && (strcmp(f->tuned[i].gpu, entry->gpu_name) != 0 ||
                                strcmp(f->tuned[i].arch, entry->arch) != 0 || f->tuned[i].num_sms != entry->num_sms))
        ++i;
    if (i == CLI_MAX_TUNED) return 1;
    struct cli_tuned_gpu *t = &f->tuned[i];
    if (i == f->num_tuned) {
        ++f->num_tuned;
        snprintf(t->gpu, sizeof t->gpu, "%s", entry->gpu_name);
        snprintf(t->arch, sizeof t->arch, "%s", entry->arch);
        t->num_sms = entry->num_sms;
    }
    ++t->entries;
    t->stale += entry->stale != 0;
    return 0;
}

/* ---- text ---- */

/* What is found of a part stands below it. */
static void print_findings(const struct cli_findings *findings, enum cli_part part)
{
    for (size_t i = 0; i < findings->count; ++i)
        if (findings->items[i].part == part)
            cli_print("%-7s %-8s %s\n", "", findings->items[i].stops_warm ? "problem" : "note",
                      findings->items[i].text);
}

/* What of a part keeps warm from its work, though the part is there; NULL: nothing. */
static const char *problem_of(const struct cli_findings *findings, enum cli_part part)
{
    for (size_t i = 0; i < findings->count; ++i)
        if (findings->items[i].part == part && findings->items[i].stops_warm) return findings->items[i].text;
    return NULL;
}

static void print_part(enum cli_part part, const char *text, const struct cli_findings *findings)
{
    if (text[0])
        cli_print("%-7s %-8s %s\n", cli_part_names[part], problem_of(findings, part) ? "unusable" : "ok", text);
    else
        printf("%-7s missing\n", cli_part_names[part]);
    print_findings(findings, part);
}

/* Nothing stands there where nothing is wrong: each part that it is of tells what it says. */
static void print_environment(const struct cli_facts *f, const struct cli_findings *findings)
{
    const size_t count = f->refused_variables.count;
    if (count)
        printf("%-7s %-8s %zu variable%s ha%s a value that cannot be\n", cli_part_names[CLI_PART_ENV], "unusable", count,
               count == 1 ? "" : "s", count == 1 ? "s" : "ve");
    print_findings(findings, CLI_PART_ENV);
}

static void print_bundles(const struct cli_facts *f, const struct cli_findings *findings)
{
    if (!f->num_bundles) printf("%-7s %-8s %s\n", "bundle", "none", "GDN_JIT_BUNDLE_PATH names no directory to search");
    for (size_t i = 0; i < f->num_bundles; ++i) {
        const struct cli_bundle *b = &f->bundles[i];
        const char *state = cli_bundle_is_whole(b) ? "ok" : b->readable ? "damaged" : "unusable";
        char size[CLI_SHORT];
        cli_print("%-7s %-8s %s", i ? "" : "bundle", state, b->path);
        if (b->readable)
            printf(": %llu kernel%s, %s", (unsigned long long)b->report.entries, b->report.entries == 1 ? "" : "s",
                   cli_format_bytes(size, b->report.bytes));
        puts("");
    }
    print_findings(findings, CLI_PART_BUNDLE);
}

static void print_devices(const struct cli_facts *f, const struct cli_findings *findings)
{
    for (size_t i = 0; i < f->num_devices; ++i) {
        const struct cli_device *d = &f->devices[i];
        char text[96];
        if (!d->problem[0])
            cli_print("%-7s %-8zu %s, %d SMs\n", "gpu", i, cli_target_text(text, &d->target), d->target.num_sms);
    }
    print_findings(findings, CLI_PART_GPU);
}

static void print_tables(const struct cli_facts *f, const struct cli_findings *findings)
{
    if (!f->num_tuned) printf("%-7s %-8s %s\n", "tables", "none", "parameters come from the library's model");
    for (size_t i = 0; i < f->num_tuned; ++i) {
        const struct cli_tuned_gpu *t = &f->tuned[i];
        cli_print("%-7s %-8s %s (%s), %d SMs: %lld entr%s\n", i ? "" : "tables", i ? "" : "ok", t->gpu, t->arch,
                  t->num_sms, (long long)t->entries, t->entries == 1 ? "y" : "ies");
    }
    print_findings(findings, CLI_PART_TABLES);
}

static void gpus_of_arch(const struct cli_facts *f, const char *arch, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < f->num_gpus && len < size; ++i)
        if (strcmp(f->gpus[i].arch, arch) == 0)
            len += (size_t)snprintf(out + len, size - len, "%s%s", len ? ", " : "", f->gpus[i].name);
}

static void print_archs(const struct cli_facts *f)
{
    static const struct cli_column columns[] = {
        { "ARCH", false }, { "COMPILES", false }, { "MS", true }, { "GPUS THAT CAN BE NAMED", false }
    };
    struct cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < f->num_probes; ++i) {
        const struct cli_probe *p = &f->probes[i];
        char ms[CLI_SHORT] = "-", gpus[512];
        if (p->compiles) snprintf(ms, sizeof ms, "%lld", (long long)p->ms);
        gpus_of_arch(f, p->arch, gpus, sizeof gpus);
        const char *compiles = f->compile_disabled ? "-" : p->compiles ? "yes" : "no";
        cli_table_row(table, (const char *const[]){ p->arch, compiles, ms, gpus });
    }
    cli_table_print(table);
}

static void print_text(const struct cli_facts *f, const struct cli_findings *findings)
{
    print_environment(f, findings);
    print_part(CLI_PART_DRIVER, f->doctor.driver, findings);
    print_part(CLI_PART_NVRTC, f->doctor.nvrtc, findings);
    print_part(CLI_PART_CACHE, f->doctor.cache, findings);
    print_bundles(f, findings);
    print_devices(f, findings);
    print_tables(f, findings);
    puts("");
    print_archs(f);
    if (!f->doctor.num_devices && !f->compile_disabled)
        puts("\nNo GPU here: kernels can be compiled for a named one, and not run.");
}

/* ---- JSON ---- */

static void add_part(cJSON *root, enum cli_part part, const char *text, const char *problem,
                     const struct cli_findings *findings)
{
    cJSON *o = cJSON_CreateObject();
    const char *found = problem_of(findings, part);
    cJSON_AddBoolToObject(o, "ok", text[0] != '\0' && !found);
    cJSON_AddStringToObject(o, "text", text);
    cJSON_AddStringToObject(o, "problem", !problem[0] && found ? found : problem);
    cJSON_AddItemToObject(root, cli_part_names[part], o);
}

static cJSON *bundles_json(const struct cli_facts *f)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < f->num_bundles; ++i) {
        const struct cli_bundle *b = &f->bundles[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "path", b->path);
        cJSON_AddBoolToObject(o, "ok", cli_bundle_is_whole(b));
        cJSON_AddStringToObject(o, "problem", b->problem);
        cli_report_json(o, &b->report);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *devices_json(const struct cli_facts *f)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < f->num_devices; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", f->devices[i].target.gpu_name);
        cJSON_AddStringToObject(o, "arch", f->devices[i].target.arch);
        cJSON_AddNumberToObject(o, "num_sms", f->devices[i].target.num_sms);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *tables_json(const struct cli_facts *f)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < f->num_tuned; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", f->tuned[i].gpu);
        cJSON_AddStringToObject(o, "arch", f->tuned[i].arch);
        cJSON_AddNumberToObject(o, "num_sms", f->tuned[i].num_sms);
        cJSON_AddNumberToObject(o, "entries", (double)f->tuned[i].entries);
        cJSON_AddNumberToObject(o, "stale", (double)f->tuned[i].stale);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *findings_json(const struct cli_findings *findings)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < findings->count; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "part", cli_part_names[findings->items[i].part]);
        cJSON_AddBoolToObject(o, "stops_warm", findings->items[i].stops_warm);
        cJSON_AddStringToObject(o, "text", findings->items[i].text);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *archs_json(const struct cli_facts *f)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < f->num_probes; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "arch", f->probes[i].arch);
        cJSON_AddBoolToObject(o, "compiles", f->probes[i].compiles);
        cJSON_AddNumberToObject(o, "milliseconds", (double)f->probes[i].ms);
        cJSON_AddStringToObject(o, "problem", f->probes[i].problem);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static cJSON *gpus_json(const struct cli_facts *f)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < f->num_gpus; ++i) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "gpu", f->gpus[i].name);
        cJSON_AddStringToObject(o, "arch", f->gpus[i].arch);
        cJSON_AddItemToArray(array, o);
    }
    return array;
}

static void print_json(const struct cli_facts *f, const struct cli_findings *findings)
{
    const gdn_doctor *d = &f->doctor;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddBoolToObject(root, "ready", !cli_stops_warm(findings));
    add_part(root, CLI_PART_DRIVER, d->driver, d->driver_problem, findings);
    add_part(root, CLI_PART_NVRTC, d->nvrtc, d->nvrtc_problem, findings);
    add_part(root, CLI_PART_CACHE, d->cache, d->cache[0] ? "" : d->cache_problem, findings); /* else it was tried */
    cJSON_AddBoolToObject(root, "compile_disabled", f->compile_disabled);
    cJSON_AddItemToObject(root, "bundles", bundles_json(f));
    cJSON_AddItemToObject(root, "devices", devices_json(f));
    cJSON_AddItemToObject(root, "archs", archs_json(f));
    cJSON_AddItemToObject(root, "known_gpus", gpus_json(f));
    cJSON_AddItemToObject(root, "tables", tables_json(f));
    cJSON_AddItemToObject(root, "findings", findings_json(findings));
    cli_print_json(root);
}

static int run(gdn_ctx *ctx, const struct cli_options *options, struct cli_facts *f, struct cli_findings *findings)
{
    const struct gdni_env env = cli_env_read();
    f->compile_disabled = env.disable_compile;
    if (gdn_examine(ctx, &f->doctor) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    find_devices(ctx, f);
    examine_cache(ctx, options->shared_cache, f);
    cli_examine_bundles(ctx, env.bundle_path, f);
    gdn_target_names(on_name, f);
    gdn_tuning_list(ctx, on_tuned, f); /* more GPUs than there is room for are not told */
    if (f->doctor.nvrtc[0] && !env.disable_compile)
        CLI_TRY(probe_archs(options, env.nvrtc, f)); /* without it no arch compiles, for one and the same reason */
    cli_diagnose(f, findings);
    (options->json ? print_json : print_text)(f, findings);
    return cli_stops_warm(findings) ? cli_fail(CLI_FAILED, "%s", "") : CLI_OK;
}

int cli_cmd_doctor(int argc, char **argv)
{
    struct cli_options options;
    struct cli_facts *facts = cli_alloc(sizeof *facts);
    struct cli_findings *findings = cli_alloc(sizeof *findings);
    gdn_ctx *ctx = NULL;
    facts->doctor = (gdn_doctor)GDN_DOCTOR_INIT;
    cli_options_parse(&options, CLI_OPTIONS_COMPILER, doc, argc, argv);
    cli_env_take_out_refused(&facts->refused_variables);
    int code = cli_resolve_context(&options, &ctx);
    if (code == CLI_OK) code = run(ctx, &options, facts, findings);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    cli_names_free(&facts->refused_variables);
    cli_free(findings);
    cli_free(facts);
    return code;
}
