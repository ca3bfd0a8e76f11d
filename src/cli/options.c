/*
 * options.c - owns the options of the command line and their checks. Must not know: what the commands do with them.
 */
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/say.h"

const struct cli_word cli_what_words[] = {
    { "summary", CLI_WHAT_SUMMARY }, { "json", GDN_DUMP_JSON },   { "spec", GDN_DUMP_SPEC },
    { "source", GDN_DUMP_SOURCE },   { "ptx", GDN_DUMP_PTX },     { "log", GDN_DUMP_BUILD_LOG },
    { "key", GDN_DUMP_KEY },         { "cubin", GDN_DUMP_CUBIN }, { NULL, 0 },
};

static const struct cli_word x_alignment_words[] = { { "16", 16 }, { "8", 8 }, { "4", 4 }, { "2", 2 }, { NULL, 0 } };

/* Calls take(arg, item) for each item of "a,b,c"; an empty item is an item, so that its taker refuses it. */
typedef int (*take_item)(void *arg, const char *item, size_t len);
static int each_item(const char *list, take_item take, void *arg)
{
    for (const char *item = list;; ++item) {
        const size_t len = strcspn(item, ",");
        CLI_TRY(take(arg, item, len));
        item += len;
        if (!*item) return CLI_OK;
    }
}

/* Where one item of a list option goes. */
struct list_option {
    const char *option;
    const struct cli_word *words; /* NULL: a number of at least 1 */
    struct cli_ints *out;
};

static int add_int(const struct list_option *o, int value)
{
    for (int i = 0; i < o->out->count; ++i)
        if (o->out->values[i] == value) return CLI_OK;
    if (o->out->count == CLI_MAX_INTS)
        return cli_fail(CLI_USAGE, "%s has more than %d values: use several runs", o->option, CLI_MAX_INTS);
    o->out->values[o->out->count++] = value;
    return CLI_OK;
}

static int take_int_item(void *arg, const char *item, size_t len)
{
    const struct list_option *o = arg;
    int64_t value;
    if (!cli_parse_int(item, len, &value) || value < 1 || value > 4096)
        return cli_fail(CLI_USAGE, "%s has \"%.*s\": must be a number from 1 to 4096, or a list such as 1,2,4",
                        o->option, (int)len, item);
    return add_int(o, (int)value);
}

static int take_word_item(void *arg, const char *item, size_t len)
{
    const struct list_option *o = arg;
    int value;
    char list[64];
    cli_word_list(o->words, list, sizeof list);
    if (!cli_word_find(o->words, item, len, &value))
        return cli_fail(CLI_USAGE, "%s has \"%.*s\": must be %s", o->option, (int)len, item, list);
    return add_int(o, value);
}

static int take_list(const char *option, const char *text, const struct cli_word *words, struct cli_ints *out)
{
    struct list_option o = { option, words, out };
    return each_item(text, words ? take_word_item : take_int_item, &o);
}

static int take_number(const char *option, const char *text, int64_t low, int64_t high, int64_t *out)
{
    if (cli_parse_int(text, strlen(text), out) && *out >= low && *out <= high) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s is \"%s\": must be a number from %lld to %lld", option, text, (long long)low,
                    (long long)high);
}

/* ---- one function per option: what it does with its argument ---- */

struct name_option {
    const char *option;
    struct cli_names *out;
};

static int take_name(void *arg, const char *item, size_t len)
{
    const struct name_option *o = arg;
    if (!len) return cli_fail(CLI_USAGE, "%s has an empty name: separate names by one comma", o->option);
    cli_names_add(o->out, item, len);
    return CLI_OK;
}

static int opt_model(struct cli_options *o, const char *arg)
{
    return each_item(arg, take_name, &(struct name_option){ "--model", &o->models });
}

static int opt_arch(struct cli_options *o, const char *arg)
{
    return each_item(arg, take_name, &(struct name_option){ "--arch", &o->archs });
}

static int opt_gpu(struct cli_options *o, const char *arg)
{
    if (!arg[0])
        return cli_fail(CLI_USAGE, "--gpu is empty: name a GPU as the driver prints it, such as \"NVIDIA H200\"");
    cli_names_add(&o->gpus, arg, strlen(arg));
    return CLI_OK;
}

static int opt_shapes(struct cli_options *o, const char *arg)
{
    if (o->shapes_file)
        return cli_fail(CLI_USAGE, "--shapes is given twice (%s, %s): put all shapes into one file", o->shapes_file,
                        arg);
    o->shapes_file = arg;
    return CLI_OK;
}

static int opt_presets(struct cli_options *o, const char *arg)
{
    o->model_option = "--presets";
    o->presets_dir = arg;
    return CLI_OK;
}

static int opt_tp(struct cli_options *o, const char *arg)
{
    o->model_option = "--tp";
    return take_list("--tp", arg, NULL, &o->how.tp);
}

static int opt_dtype(struct cli_options *o, const char *arg)
{
    o->model_option = "--dtype";
    return take_list("--dtype", arg, cli_io_type_words, &o->how.dtypes);
}

static int opt_state_layout(struct cli_options *o, const char *arg)
{
    o->model_option = "--state-layout";
    return take_list("--state-layout", arg, cli_state_layout_words, &o->how.state_layouts);
}

static int opt_conv_state_layout(struct cli_options *o, const char *arg)
{
    o->model_option = "--conv-state-layout";
    return take_list("--conv-state-layout", arg, cli_conv_layout_words, &o->how.conv_layouts);
}

static int opt_x_alignment(struct cli_options *o, const char *arg)
{
    o->model_option = "--x-alignment";
    return take_list("--x-alignment", arg, x_alignment_words, &o->how.x_alignments);
}

static int opt_prologue(struct cli_options *o, const char *arg)
{
    o->model_option = "--prologue";
    return take_list("--prologue", arg, cli_prologue_words, &o->how.prologues);
}

static int opt_dt_bias_type(struct cli_options *o, const char *arg)
{
    o->model_option = "--dt-bias-type";
    return take_list("--dt-bias-type", arg, cli_float_words, &o->how.dt_bias_types);
}

static int opt_with(struct cli_options *o, const char *arg)
{
    o->model_option = "--with";
    return take_list("--with", arg, cli_feature_words, &o->how.features);
}

static int opt_hopper(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->model_option = "--hopper";
    o->how.hopper = true;
    return CLI_OK;
}

static int opt_max_tokens(struct cli_options *o, const char *arg)
{
    o->model_option = "--max-tokens";
    return take_number("--max-tokens", arg, 1, INT32_MAX, &o->how.max_tokens);
}

static int opt_max_seqs(struct cli_options *o, const char *arg)
{
    o->model_option = "--max-seqs";
    return take_number("--max-seqs", arg, 1, INT32_MAX, &o->how.max_seqs);
}

static int opt_op(struct cli_options *o, const char *arg)
{
    int op;
    char list[64];
    cli_word_list(cli_op_words, list, sizeof list);
    if (!cli_word_find(cli_op_words, arg, strlen(arg), &op))
        return cli_fail(CLI_USAGE, "--op is \"%s\": must be %s", arg, list);
    o->ops |= 1u << op;
    return CLI_OK;
}

static int opt_cache_dir(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--cache-dir is empty: name a directory");
    o->cache_dir = arg;
    return CLI_OK;
}

static int opt_nvrtc(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--nvrtc is empty: name the library file, such as /usr/lib/libnvrtc.so.13");
    o->nvrtc = arg;
    return CLI_OK;
}

static int opt_shared_cache(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->shared_cache = true;
    return CLI_OK;
}

static int opt_json(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->json = true;
    return CLI_OK;
}

static int opt_verbose(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->verbose = true;
    return CLI_OK;
}

static int opt_jobs(struct cli_options *o, const char *arg)
{
    return take_number("--jobs", arg, 1, 256, &o->jobs);
}

static int opt_what(struct cli_options *o, const char *arg)
{
    char list[96];
    cli_word_list(cli_what_words, list, sizeof list);
    if (cli_word_find(cli_what_words, arg, strlen(arg), &o->what)) return CLI_OK;
    return cli_fail(CLI_USAGE, "--what is \"%s\": must be %s", arg, list);
}

static int opt_key(struct cli_options *o, const char *arg)
{
    const size_t len = strlen(arg);
    if (len < 4 || len > 32 || strspn(arg, "0123456789abcdef") < len)
        return cli_fail(CLI_USAGE, "--key is \"%s\": must be 4 to 32 hex digits, as gdn-jit-cache list prints them",
                        arg);
    o->key = arg;
    return CLI_OK;
}

static int opt_tokens(struct cli_options *o, const char *arg)
{
    return take_number("--tokens", arg, 1, INT32_MAX, &o->tokens);
}

static int opt_seqs(struct cli_options *o, const char *arg)
{
    return take_number("--seqs", arg, 1, INT32_MAX, &o->seqs);
}

/* ---- the tables: one row of argp and one function per option; a key is an index, letters are letters ---- */

struct handler {
    int key;
    int (*take)(struct cli_options *o, const char *arg);
};

enum { KEY_FIRST = 256 };
enum key {
    KEY_TP = KEY_FIRST,
    KEY_SHAPES,
    KEY_OP,
    KEY_DTYPE,
    KEY_STATE_LAYOUT,
    KEY_CONV_STATE_LAYOUT,
    KEY_X_ALIGNMENT,
    KEY_PROLOGUE,
    KEY_DT_BIAS_TYPE,
    KEY_WITH,
    KEY_HOPPER,
    KEY_MAX_TOKENS,
    KEY_MAX_SEQS,
    KEY_PRESETS,
    KEY_SHARED_CACHE,
    KEY_NVRTC,
    KEY_JSON,
    KEY_KEY,
    KEY_TOKENS,
    KEY_SEQS
};

static const struct handler handlers[] = {
    { 'm', opt_model },
    { KEY_TP, opt_tp },
    { KEY_SHAPES, opt_shapes },
    { KEY_OP, opt_op },
    { KEY_DTYPE, opt_dtype },
    { KEY_STATE_LAYOUT, opt_state_layout },
    { KEY_CONV_STATE_LAYOUT, opt_conv_state_layout },
    { KEY_X_ALIGNMENT, opt_x_alignment },
    { KEY_PROLOGUE, opt_prologue },
    { KEY_DT_BIAS_TYPE, opt_dt_bias_type },
    { KEY_WITH, opt_with },
    { KEY_HOPPER, opt_hopper },
    { KEY_MAX_TOKENS, opt_max_tokens },
    { KEY_MAX_SEQS, opt_max_seqs },
    { KEY_PRESETS, opt_presets },
    { 'a', opt_arch },
    { 'g', opt_gpu },
    { 'd', opt_cache_dir },
    { KEY_SHARED_CACHE, opt_shared_cache },
    { KEY_NVRTC, opt_nvrtc },
    { KEY_JSON, opt_json },
    { 'v', opt_verbose },
    { 'j', opt_jobs },
    { 'w', opt_what },
    { KEY_KEY, opt_key },
    { KEY_TOKENS, opt_tokens },
    { KEY_SEQS, opt_seqs },
};

static const struct argp_option shape_options[] = {
    { "model", 'm', "NAME", 0, "A model preset, a preset file, or all; repeatable. Without any shape the presets are listed",
      0 },
    { "tp", KEY_TP, "LIST", 0, "Tensor-parallel sizes, such as 1,2,4", 0 },
    { "shapes", KEY_SHAPES, "FILE", 0,
      "JSON array of shapes, for what no preset covers (format: gdn-jit-cache(1)); - is standard input", 0 },
    { "op", KEY_OP, "OP", 0, "Only this operator: gdn_prefill or conv1d_qkv", 0 },
    { "dtype", KEY_DTYPE, "LIST", 0, "Of activations: bf16, fp16 (default: the model's)", 0 },
    { "state-layout", KEY_STATE_LAYOUT, "LIST", 0, "Of the GDN state: kv [DK, DV] (default), vk [DV, DK]", 0 },
    { "conv-state-layout", KEY_CONV_STATE_LAYOUT, "LIST", 0, "Of the conv state: cw [C, W-1] (default), "
      "wc [W-1, C], cw_strided", 0 },
    { "x-alignment", KEY_X_ALIGNMENT, "LIST", 0,
      "Bytes that rows of the conv's input are aligned to: 16, 8, 4, 2 (default: 16, and what rows have that end in b and a)",
      0 },
    { "prologue", KEY_PROLOGUE, "LIST", 0, "How the layer is put together: fused, conv, logits (default: all three; "
      "gdn-jit-cache(1) says what they are)", 0 },
    { "dt-bias-type", KEY_DT_BIAS_TYPE, "LIST", 0, "Of the fused prologue's dt_bias: fp32, bf16, fp16 (default: fp32 and "
      "that of activations)", 0 },
    { "with", KEY_WITH, "LIST", 0, "What every call may ask for: checkpoints, zero_padding (default: neither)", 0 },
    { "hopper", KEY_HOPPER, NULL, 0, "Also what GDN_PLAN_HOPPER plans", 0 },
    { "max-tokens", KEY_MAX_TOKENS, "T", 0, "Most tokens of one call (default 2147483647: every kernel variant)", 0 },
    { "max-seqs", KEY_MAX_SEQS, "N", 0, "Most sequences of one call (default 1024: every kernel variant)", 0 },
    { "presets", KEY_PRESETS, "DIR", 0, "Folder of the model presets", 0 },
    { 0 },
};

static const struct argp_option target_options[] = {
    { "gpu", 'g', "NAME", 0, "A GPU as the driver prints it, \"NVIDIA H200\"; needs not be here; repeatable", 0 },
    { "arch", 'a', "LIST", 0, "An arch, sm_90a; warm: for every known GPU of that arch; repeatable", 0 },
    { 0 },
};

static const struct argp_option warm_options[] = {
    { "jobs", 'j', "N", 0, "Plans worked on at a time (default: processors)", 0 },
    { 0 },
};

static const struct argp_option show_options[] = {
    { "what", 'w', "WHAT", 0, "summary (default), json, spec, source, ptx, log, key, cubin", 0 },
    { "key", KEY_KEY, "HEX", 0, "A cache entry by the beginning of its key, instead of a shape", 0 },
    { "tokens", KEY_TOKENS, "T", 0, "Also the cost of a call of T tokens: bytes, FLOPs, least time on the GPU", 0 },
    { "seqs", KEY_SEQS, "N", 0, "Sequences of that call (default 1)", 0 },
    { 0 },
};

static const struct argp_option common_options[] = {
    { "cache-dir", 'd', "DIR", 0,
      "Cache directory (default: GDN_JIT_CACHE_DIR, else XDG_CACHE_HOME/gdn-jit, else ~/.cache/gdn-jit)", 0 },
    { "shared-cache", KEY_SHARED_CACHE, NULL, 0, "Accept a cache directory that another user owns", 0 },
    { "nvrtc", KEY_NVRTC, "FILE", 0,
      "The libnvrtc to compile with (default: GDN_JIT_NVRTC, else libnvrtc.so.13 or .12)", 0 },
    { "json", KEY_JSON, NULL, 0, "Print JSON", 0 },
    { "verbose", 'v', NULL, 0, "Tell on standard error what the library does", 0 },
    { 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_ARG) argp_error(state, "\"%s\" is no option: this command takes only options", arg);
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; ++i)
        if (handlers[i].key == key) {
            if (handlers[i].take(state->input, arg) != CLI_OK) argp_error(state, "%s", cli_error());
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

/* The parent of the children that were chosen hands them their input and does nothing else. */
struct root_input {
    struct cli_options *options;
    size_t children;
};

static error_t parse_root(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != ARGP_KEY_INIT) return ARGP_ERR_UNKNOWN;
    const struct root_input *input = state->input;
    for (size_t i = 0; i < input->children; ++i)
        state->child_inputs[i] = input->options;
    return 0;
}

static const struct argp shape_argp = { shape_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp target_argp = { target_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp warm_argp = { warm_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp show_argp = { show_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp common_argp = { common_options, parse_option, NULL, NULL, NULL, NULL, NULL };

static const struct {
    unsigned group; /* 0: always */
    struct argp_child child;
} children[] = {
    { CLI_OPTIONS_SHAPES, { &shape_argp, 0, "What:", 1 } },
    { CLI_OPTIONS_TARGETS, { &target_argp, 0, "For which GPU:", 2 } },
    { CLI_OPTIONS_SHOW, { &show_argp, 0, "What to show:", 3 } },
    { CLI_OPTIONS_WARM, { &warm_argp, 0, "How:", 4 } },
    { 0, { &common_argp, 0, "Cache, compiler, output:", 5 } },
};
enum { NUM_CHILDREN = sizeof children / sizeof children[0] };

void cli_options_parse(struct cli_options *out, unsigned groups, const char *doc, int argc, char **argv)
{
    struct argp_child chosen[NUM_CHILDREN + 1] = { { 0 } };
    size_t count = 0;
    for (size_t i = 0; i < NUM_CHILDREN; ++i)
        if (!children[i].group || children[i].group & groups) chosen[count++] = children[i].child;
    const struct argp argp = { NULL, parse_root, NULL, doc, chosen, NULL, NULL };
    *out = (struct cli_options){ .how = { .max_tokens = CLI_DEFAULT_MAX_TOKENS, .max_seqs = CLI_DEFAULT_MAX_SEQS } };
    struct root_input input = { out, count };
    argp_parse(&argp, argc, argv, 0, NULL, &input); /* ends the process on an error */
}

void cli_options_free(struct cli_options *options)
{
    cli_names_free(&options->models);
    cli_names_free(&options->archs);
    cli_names_free(&options->gpus);
}

/* "all" is every preset; without any it stays a name that is not known, and is refused with where they were looked for. */
static void add_models(struct cli_names *out, const struct cli_names *dirs, const char *model)
{
    struct cli_names known = { 0 };
    if (strcmp(model, "all") == 0) cli_preset_names(&known, dirs);
    for (size_t i = 0; i < known.count; ++i)
        cli_names_add(out, known.items[i], strlen(known.items[i]));
    if (!known.count) cli_names_add(out, model, strlen(model));
    cli_names_free(&known);
}

static int expand_models(const struct cli_options *o, struct cli_shapes *out)
{
    struct cli_names dirs = { 0 }, names = { 0 };
    int code = CLI_OK;
    cli_preset_dirs(&dirs, o->presets_dir);
    for (size_t i = 0; i < o->models.count; ++i)
        add_models(&names, &dirs, o->models.items[i]);
    for (size_t i = 0; i < names.count && code == CLI_OK; ++i) {
        struct cli_preset preset;
        code = cli_preset_find(&preset, &dirs, names.items[i]);
        if (code == CLI_OK) code = cli_preset_expand(out, &preset, &o->how);
    }
    cli_names_free(&names);
    cli_names_free(&dirs);
    return code;
}

static int keep_ops(const struct cli_options *o, struct cli_shapes *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; ++i)
        if (!o->ops || o->ops >> list->items[i].op & 1) list->items[kept++] = list->items[i];
    list->count = kept;
    return kept ? CLI_OK
                : cli_fail(CLI_USAGE, "--op leaves no shape: %s holds shapes of the other operator only",
                           o->shapes_file);
}

static int no_shapes(const struct cli_options *o)
{
    struct cli_names dirs = { 0 }, known = { 0 };
    cli_preset_dirs(&dirs, o->presets_dir);
    cli_preset_names(&known, &dirs);
    char *list = cli_names_join(&known);
    const int code =
        cli_fail(CLI_USAGE, "no shape given: name a model with --model (%s) or a file with --shapes", list);
    cli_free(list);
    cli_names_free(&known);
    cli_names_free(&dirs);
    return code;
}

int cli_options_shapes(const struct cli_options *o, struct cli_shapes *out)
{
    if (!o->models.count && !o->shapes_file) return no_shapes(o);
    if (!o->models.count && o->model_option)
        return cli_fail(CLI_USAGE, "%s changes what --model expands to, and no --model is given: say it in %s",
                        o->model_option, o->shapes_file);
    CLI_TRY(expand_models(o, out));
    if (o->shapes_file) CLI_TRY(cli_shapes_read(out, o->shapes_file));
    return keep_ops(o, out);
}

static void on_log(void *user, int level, const char *message)
{
    (void)user;
    cli_say("%s%s", level == GDN_LOG_ERROR ? "error: " : level == GDN_LOG_WARN ? "warning: " : "", message);
}

int cli_options_context(const struct cli_options *o, gdn_ctx **out)
{
    gdn_config config = GDN_CONFIG_INIT;
    config.cache_dir = o->cache_dir;
    config.nvrtc_path = o->nvrtc;
    config.flags = o->shared_cache ? GDN_CTX_SHARED_CACHE : 0;
    config.log_fn = on_log;
    config.log_level = o->verbose ? GDN_LOG_DEBUG : GDN_LOG_WARN;
    if (gdn_ctx_create(out, &config) == GDN_OK) return CLI_OK;
    return cli_fail(CLI_FAILED, "%s", gdn_last_error());
}

int cli_options_context_to_read(const struct cli_options *o, gdn_ctx **out)
{
    struct stat st;
    if (o->cache_dir && stat(o->cache_dir, &st) != 0)
        return cli_fail(CLI_FAILED, "--cache-dir %s cannot be read: %s", o->cache_dir, strerror(errno));
    return cli_options_context(o, out);
}

int cli_require_cache(gdn_ctx *ctx)
{
    if (gdn_cache_dir(ctx)) return CLI_OK;
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    const bool told = gdn_examine(ctx, &doctor) == GDN_OK && doctor.cache_problem[0];
    return cli_fail(CLI_FAILED, "no cache directory: %s; or name one with --cache-dir",
                    told ? doctor.cache_problem : "none is set");
}
