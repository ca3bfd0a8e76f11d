/*
 * cmd_show.c - owns `show`: what is known about the kernels of a shape, or about one entry of the cache.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/diagnose.h"
#include "cli/entries.h"
#include "cli/plan_facts.h"
#include "cli/resolve.h"
#include "cli/say.h"
#include "cli/targets.h"

static const char doc[] = "Shows the kernels of a shape for one GPU: parameters and what chose them, registers, "
                          "shared memory, spills, generated source, PTX, build log; and what a call must move "
                          "and compute. Compiles what is in no cache. With --key: the facts of one entry of the "
                          "cache.\v"
                          "Examples:\n"
                          "  gdn-jit-cache show -m qwen3-next-80b-a3b --gpu \"NVIDIA H200\" --tokens 32768\n"
                          "  gdn-jit-cache show -m qwen3.5-27b --tp 2 --op gdn_prefill -a sm_90a -w source\n"
                          "  gdn-jit-cache show --key 3f09c2\n"
                          "\n"
                          "summary and json take any number of shapes; the other kinds take one: choose it with "
                          "--op. Unless given, --tp is 1, --prologue fused, --x-alignment 16, --dt-bias-type fp32.\n"
                          "\n"
                          "Exit status: 0, or 1 when a kernel could not be built "
                          "or an entry is not there, or 2 for a wrong command line.";

/* A plan's facts in words or as JSON; every other kind of dump is the library's text. */
static bool is_summary(const struct cli_options *o)
{
    return o->what == CLI_WHAT_SUMMARY || o->what == GDN_DUMP_JSON;
}

/* ---- a plan ---- */

/* 300, 1k, 4M */
static void print_size(int64_t size)
{
    static const struct {
        int64_t size;
        const char *unit;
    } units[] = { { 1 << 20, "M" }, { 1 << 10, "k" }, { 1, "" } };
    size_t unit = 0;
    while (size % units[unit].size)
        ++unit;
    printf(" %lld%s", (long long)(size / units[unit].size), units[unit].unit);
}

static int64_t number_at(const cJSON *list, int i)
{
    return (int64_t)cJSON_GetArrayItem(list, i)->valuedouble;
}

/* "256 1k tokens; 4k 16k tokens in up to 2 sequences": the largest calls of the buckets that the variant serves. */
static void print_calls(const cJSON *variant)
{
    const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(variant, "buckets"),
                *seqs = cJSON_GetObjectItemCaseSensitive(variant, "bucket_seqs");
    const int count = cJSON_GetArraySize(tokens);
    printf("  calls up to   ");
    for (int first = 0, end; first < count; first = end) {
        const int64_t most = number_at(seqs, first);
        if (first) putchar(';');
        for (end = first; end < count && number_at(seqs, end) == most; ++end)
            print_size(number_at(tokens, end));
        printf(" tokens");
        if (most) printf(" in up to %lld sequence%s", (long long)most, most == 1 ? "" : "s");
    }
    putchar('\n');
}

static void params_text(char out[128], const cJSON *variant)
{
    size_t len = 0;
    const cJSON *p;
    out[0] = '\0';
    cJSON_ArrayForEach(p, cJSON_GetObjectItemCaseSensitive(variant, "params"))
    {
        if (len >= 128) return;
        len +=
            (size_t)snprintf(out + len, 128 - len, "%s%s=%lld", len ? " " : "", p->string, (long long)p->valuedouble);
    }
}

/* How much of what was measured for a variant was before its kernel changed. */
static const char *age_of(const cJSON *v)
{
    const cJSON *slot;
    bool stale = false, fresh = false;
    cJSON_ArrayForEach(slot, cJSON_GetObjectItemCaseSensitive(v, "chosen_by"))
    {
        stale |= cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(slot, "stale"));
        fresh |= cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(slot, "stale"));
    }
    return !stale ? "" : fresh ? "; measured in part before its kernel changed" : "; measured before its kernel changed";
}

static void print_variant(const cJSON *v)
{
    char params[128], size[CLI_SHORT], time[48] = "";
    const int64_t ms = cli_json_number(v, "compile_ms");
    params_text(params, v);
    if (ms) snprintf(time, sizeof time, " in %lld ms", (long long)ms); /* a bundle's entry has forgotten it */
    cli_format_bytes(size, (uint64_t)cli_json_number(v, "cubin_bytes"));
    cli_print("\n  kernel         %s for %s\n", cli_json_text(v, "kernel"), cli_json_text(v, "arch"));
    print_calls(v);
    cli_print("  parameters     %s (%s%s)\n", params, cli_json_text(v, "params_origin"), age_of(v));
    if (cJSON_GetObjectItemCaseSensitive(v, "partition_reason"))
        cli_print("  partitions     %s\n", cli_json_text(v, "partition_reason"));
    printf("  threads        %lld of %lld registers each\n", (long long)cli_json_number(v, "threads"),
           (long long)cli_json_number(v, "registers"));
    printf("  spills         %lld bytes, local memory %lld bytes\n", (long long)cli_json_number(v, "spill_bytes"),
           (long long)cli_json_number(v, "local_bytes"));
    printf("  shared memory  %lld bytes static, %lld bytes dynamic\n", (long long)cli_json_number(v, "static_smem"),
           (long long)cli_json_number(v, "dynamic_smem"));
    cli_print("  cubin          %s, compiled%s by %s, found in: %s\n", size, time, cli_json_text(v, "compiler"),
              cli_json_text(v, "origin"));
    cli_print("  key            %s\n", cli_json_text(v, "key"));
}

static void print_variants(const cJSON *plan)
{
    const cJSON *v;
    cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(plan, "variants")) print_variant(v);
}

static void print_cost(const gdn_cost *cost, const gdn_target *target, const struct cli_options *o)
{
    cli_print("\na call of %lld tokens in %lld sequence%s moves %.6g MB and computes %.6g GFLOP\n",
              (long long)o->tokens, (long long)o->seqs, o->seqs == 1 ? "" : "s", cost->bytes / 1e6, cost->flops / 1e9);
    if (cost->floor_us > 0)
        printf("floor: %.4g us (%d GB/s, %d TFLOP/s)\n", cost->floor_us, target->dram_gbps, target->tensor_tflops);
    else if (target->gpu_name[0])
        cli_print("floor: unknown: the peaks of %s are not in the library's table\n", target->gpu_name);
    else
        cli_print("floor: unknown for %s: name a GPU with --gpu\n", target->arch);
}

static cJSON *cost_json(const gdn_cost *cost, const struct cli_options *o)
{
    cJSON *c = cJSON_CreateObject();
    cJSON_AddNumberToObject(c, "tokens", (double)o->tokens);
    cJSON_AddNumberToObject(c, "seqs", (double)o->seqs);
    cJSON_AddNumberToObject(c, "bytes", cost->bytes);
    cJSON_AddNumberToObject(c, "flops", cost->flops);
    cJSON_AddNumberToObject(c, "floor_ns", (double)(int64_t)(cost->floor_us * 1000 + 0.5));
    return c;
}

/* One shape's plan, and what it is printed with. */
struct view {
    const struct cli_options *options;
    const gdn_target *target;
    const struct cli_shape *shape;
    gdn_plan *plan;
    cJSON *array; /* of --json; NULL: text */
};

static int view_summary(const struct view *v)
{
    const struct cli_options *o = v->options;
    gdn_cost cost = GDN_COST_INIT;
    char what[CLI_SHAPE_TEXT], where[96];
    cJSON *facts = NULL;
    if (o->tokens && gdn_plan_cost(v->plan, o->tokens, o->seqs, &cost) != GDN_OK)
        return cli_fail(CLI_USAGE, "--tokens, --seqs: %s", gdn_last_error());
    CLI_TRY(cli_plan_json(v->plan, &facts));
    cli_shape_text(what, v->shape);
    if (v->array) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "label", v->shape->label);
        cJSON_AddStringToObject(object, "shape", what);
        cJSON_AddItemToObject(object, "plan", facts);
        if (o->tokens) cJSON_AddItemToObject(object, "cost", cost_json(&cost, o));
        cJSON_AddItemToArray(v->array, object);
        return CLI_OK;
    }
    cli_print("%s: %s\nfor %s\n", v->shape->label, what, cli_target_text(where, v->target));
    print_variants(facts);
    if (o->tokens) print_cost(&cost, v->target, o);
    cJSON_Delete(facts);
    return CLI_OK;
}

static int view_shape(struct view *v, gdn_ctx *ctx)
{
    char text[CLI_SHAPE_TEXT];
    if (cli_shape_plan(ctx, v->target, v->shape, &v->plan) != GDN_OK)
        return cli_fail(CLI_FAILED, "%s, %s: %s", v->shape->label, cli_shape_text(text, v->shape), gdn_last_error());
    const int code =
        is_summary(v->options) ? view_summary(v) : cli_plan_print(v->plan, (gdn_dump_kind)v->options->what);
    gdn_plan_destroy(v->plan);
    v->plan = NULL;
    return code;
}

static int view_shapes(struct view *v, gdn_ctx *ctx, const struct cli_shapes *shapes)
{
    for (size_t i = 0; i < shapes->count; ++i) {
        if (i && !v->array) puts("");
        v->shape = &shapes->items[i];
        CLI_TRY(view_shape(v, ctx));
    }
    return CLI_OK;
}

static int show_shapes(gdn_ctx *ctx, const struct cli_options *o, const gdn_target *target,
                       const struct cli_shapes *shapes)
{
    const bool json = o->what == GDN_DUMP_JSON;
    struct view view = { .options = o, .target = target, .array = json ? cJSON_CreateArray() : NULL };
    const int code = view_shapes(&view, ctx, shapes);
    if (!json) return code;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddItemToObject(root, "shapes", view.array);
    if (code == CLI_OK)
        cli_print_json(root);
    else
        cJSON_Delete(root);
    return code;
}

/* ---- an entry ---- */

static int ambiguous(const struct cli_entries *entries, const char *key)
{
    struct cli_names keys = { 0 };
    enum { SHOWN = 8 };
    for (size_t i = 0; i < entries->count && i < SHOWN; ++i)
        cli_names_add(&keys, entries->items[i].key, strlen(entries->items[i].key));
    char *list = cli_names_join(&keys);
    const int code = cli_fail(CLI_USAGE, "--key %s is the beginning of %zu entries: give more digits (%s%s)", key,
                              entries->count, list, entries->count > SHOWN ? ", ..." : "");
    cli_free(list);
    cli_names_free(&keys);
    return code;
}

/* One key may have an entry of each compiler: those are shown one after the other. */
static bool one_key(const struct cli_entries *entries)
{
    for (size_t i = 1; i < entries->count; ++i)
        if (strcmp(entries->items[i].key, entries->items[0].key) != 0) return false;
    return true;
}

static void print_entry(const struct cli_entry *e)
{
    char size[CLI_SHORT];
    cli_print("key        %s\npath       %s\nsize       %s\n", e->key, e->path, cli_format_bytes(size, e->bytes));
    if (!e->valid) {
        cli_print("%s    %s; %s\n", cli_problem_word(e->problem), e->problem,
                  cli_is_distrusted(e->problem) ? cli_owner_remedy
                                                : "the library removes it when it meets it, and warm builds it again");
        return;
    }
    cli_print("kernel     %s\narch       %s\ncompiler   %s\noptions    %s\n", e->kernel, e->arch, e->compiler,
              e->options);
    printf("registers  %d\nspills     %d bytes\nlocal      %d bytes\n", e->registers, e->spill_bytes, e->local_bytes);
    printf("smem       %d bytes, static\n", e->static_smem);
}

static void print_entries(const struct cli_entries *entries)
{
    for (size_t i = 0; i < entries->count; ++i) {
        if (i) puts("");
        print_entry(&entries->items[i]);
    }
}

static void print_entries_json(const struct cli_entries *entries)
{
    cJSON *root = cJSON_CreateObject();
    cli_entries_json(root, "entries", entries);
    cli_print_json(root);
}

static int show_entry(gdn_ctx *ctx, const struct cli_options *o)
{
    struct cli_entries entries = { 0 };
    CLI_TRY(cli_require_cache(ctx, o));
    int code = cli_entries_find(ctx, o->key, &entries);
    if (code == CLI_OK && !entries.count)
        code = cli_fail(CLI_FAILED, "--key %s: no such entry in %s; gdn-jit-cache list shows what is there", o->key,
                        gdn_cache_dir(ctx));
    else if (code == CLI_OK && !one_key(&entries))
        code = ambiguous(&entries, o->key);
    if (code == CLI_OK) (o->what == GDN_DUMP_JSON ? print_entries_json : print_entries)(&entries);
    cli_entries_free(&entries);
    return code;
}

/* ---- the command ---- */

static int check_key_options(const struct cli_options *o)
{
    if (o->models.count || o->shapes_file || o->model_option || o->ops || o->archs.count || o->gpus.count ||
        o->tunings.count || o->tokens)
        return cli_fail(CLI_USAGE,
                        "--key names an entry, and the other options a shape or a target: give one or the other");
    if (!is_summary(o))
        return cli_fail(CLI_USAGE, "--what %s needs a shape (--model or --shapes): with --key there is summary or json",
                        cli_word_name(cli_what_words, o->what));
    return CLI_OK;
}

static void set_default(struct cli_ints *list, int value)
{
    if (!list->count) *list = (struct cli_ints){ .count = 1, .values = { value } };
}

/* One shape of each operator, where warm takes all that engines use. */
static void set_defaults(struct cli_expansion *how)
{
    set_default(&how->tp, 1);
    set_default(&how->prologues, CLI_PROLOGUE_FUSED);
    set_default(&how->x_alignments, 16);
    set_default(&how->dt_bias_types, GDN_F32);
}

static int check_options(struct cli_options *o)
{
    if (o->json && !is_summary(o))
        return cli_fail(CLI_USAGE, "--json and --what %s: what is asked for is no JSON; leave one out",
                        cli_word_name(cli_what_words, o->what));
    if (o->json) o->what = GDN_DUMP_JSON;
    if (o->seqs && !o->tokens) return cli_fail(CLI_USAGE, "--seqs is given without --tokens: name both");
    if (o->tokens && !is_summary(o))
        return cli_fail(CLI_USAGE, "--tokens adds to summary and json only: leave out --what %s",
                        cli_word_name(cli_what_words, o->what));
    if (o->what == GDN_DUMP_CUBIN && isatty(STDOUT_FILENO))
        return cli_fail(CLI_USAGE, "--what cubin is binary: send it to a file or a pipe");
    if (!o->seqs) o->seqs = 1;
    set_defaults(&o->how);
    return o->key ? check_key_options(o) : CLI_OK;
}

static int check_one_shape(const struct cli_options *o, const struct cli_shapes *shapes)
{
    if (shapes->count == 1 || is_summary(o)) return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "--what %s shows one shape, and %zu are named: choose with --op, --tp, --dtype and the like",
                    cli_word_name(cli_what_words, o->what), shapes->count);
}

static int check_one_target(const struct cli_targets *targets)
{
    if (targets->count == 1) return CLI_OK;
    char first[96], second[96];
    return cli_fail(CLI_USAGE, "show is for one target, and there are %zu (%s, %s): name one with --gpu or --arch",
                    targets->count, cli_target_text(first, &targets->items[0]),
                    cli_target_text(second, &targets->items[1]));
}

static int show_named(gdn_ctx *ctx, const struct cli_options *o)
{
    struct cli_shapes shapes = { 0 };
    struct cli_targets targets = { 0 };
    int code = cli_resolve_shapes(o, &shapes);
    if (code == CLI_OK) code = check_one_shape(o, &shapes);
    if (code == CLI_OK) code = cli_targets_find(ctx, o, false, &targets);
    if (code == CLI_OK) code = check_one_target(&targets);
    if (code == CLI_OK) code = show_shapes(ctx, o, &targets.items[0], &shapes);
    cli_targets_free(&targets);
    cli_shapes_free(&shapes);
    return code;
}

int cli_cmd_show(int argc, char **argv)
{
    struct cli_options options;
    gdn_ctx *ctx = NULL;
    cli_options_parse(&options, CLI_OPTIONS_SHAPES | CLI_OPTIONS_TARGETS | CLI_OPTIONS_SHOW | CLI_OPTIONS_COMPILER, doc,
                      argc, argv);
    int code = check_options(&options);
    if (code == CLI_OK) code = (options.key ? cli_resolve_context_to_read : cli_resolve_context)(&options, &ctx);
    if (code == CLI_OK) code = options.key ? show_entry(ctx, &options) : show_named(ctx, &options);
    gdn_ctx_destroy(ctx);
    cli_options_free(&options);
    return code;
}
