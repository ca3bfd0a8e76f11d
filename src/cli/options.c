/*
 * options.c - owns the options of the command line and their checks. Must not know: what the commands do with them.
 */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#include "cli/say.h"
#include "env/variables.h"

const struct gdni_json_word cli_what_words[] = {
    { "summary", CLI_WHAT_SUMMARY }, { "json", GDN_DUMP_JSON },   { "spec", GDN_DUMP_SPEC },
    { "source", GDN_DUMP_SOURCE },   { "ptx", GDN_DUMP_PTX },     { "log", GDN_DUMP_BUILD_LOG },
    { "key", GDN_DUMP_KEY },         { "cubin", GDN_DUMP_CUBIN }, { NULL, 0 },
};

static const struct gdni_json_word x_alignment_words[] = {
    { "16", 16 }, { "8", 8 }, { "4", 4 }, { "2", 2 }, { NULL, 0 }
};

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
    const struct gdni_json_word *words; /* NULL: a number of at least 1 */
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
    gdni_json_list_words(o->words, list, sizeof list);
    if (!cli_word_find(o->words, item, len, &value))
        return cli_fail(CLI_USAGE, "%s has \"%.*s\": must be %s", o->option, (int)len, item, list);
    return add_int(o, value);
}

static int take_list(const char *option, const char *text, const struct gdni_json_word *words, struct cli_ints *out)
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

static int opt_tuning(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--tuning is empty: name a tuning file");
    cli_names_add(&o->tunings, arg, strlen(arg));
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

static int opt_from(struct cli_options *o, const char *arg)
{
    if (o->from)
        return cli_fail(CLI_USAGE, "--from is given twice (%s, %s): put all lines into one file", o->from, arg);
    o->from = arg;
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

static int opt_generic(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->model_option = "--generic";
    o->how.generic = true;
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
    gdni_json_list_words(cli_op_words, list, sizeof list);
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
    return take_number("--jobs", arg, 1, GDNI_MAX_COMPILE_JOBS, &o->jobs);
}

static int opt_bundle(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--bundle is empty: name the bundle's directory");
    o->bundle = arg;
    return CLI_OK;
}

static int opt_remove(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->remove = true;
    return CLI_OK;
}

/* A number and a letter that multiplies it. */
struct unit {
    char letter;
    int64_t factor;
};

static int take_scaled(const char *option, const char *text, const struct unit *units, const char *words, int64_t *out)
{
    const size_t digits = strspn(text, "0123456789");
    const struct unit *u = units;
    while (u->letter && u->letter != text[digits])
        ++u;
    int64_t value;
    if (u->letter != text[digits] || u->factor == 0 || (text[digits] && text[digits + 1]) ||
        !cli_parse_int(text, digits, &value) || value > INT64_MAX / u->factor)
        return cli_fail(CLI_USAGE, "%s is \"%s\": must be a number, %s", option, text, words);
    *out = value * u->factor;
    return CLI_OK;
}

static int opt_max_bytes(struct cli_options *o, const char *arg)
{
    static const struct unit units[] = { { 'k', 1024 }, { 'K', 1024 }, { 'M', 1 << 20 }, { 'G', 1 << 30 }, { 0, 1 } };
    int64_t bytes;
    CLI_TRY(take_scaled("--max-bytes", arg, units, "of bytes or with k, M or G behind it: 64M", &bytes));
    o->max_bytes = (uint64_t)bytes;
    return CLI_OK;
}

static const struct unit time_units[] = { { 's', 1 },     { 'm', 60 },     { 'h', 3600 },
                                          { 'd', 86400 }, { 'w', 604800 }, { 0, 0 } };

static int opt_max_age(struct cli_options *o, const char *arg)
{
    CLI_TRY(take_scaled("--max-age", arg, time_units, "with s, m, h, d or w behind it: 30d", &o->max_age));
    return o->max_age > 0 ? CLI_OK : cli_fail(CLI_USAGE, "--max-age is \"%s\": must be more than 0", arg);
}

static int opt_other_compilers(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->other_compilers = true;
    return CLI_OK;
}

static int opt_dry_run(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->dry_run = true;
    return CLI_OK;
}

static int opt_output(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--output is empty: name the bundle's directory");
    o->output = arg;
    return CLI_OK;
}

static int opt_tar(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--tar is empty: name the file");
    o->tar = arg;
    return CLI_OK;
}

/* Sizes that are given more than once are meant once. */
static int add_size(const char *option, struct cli_sizes *out, int64_t value)
{
    int at = 0;
    while (at < out->count && out->values[at] < value)
        ++at;
    if (at < out->count && out->values[at] == value) return CLI_OK;
    if (out->count == CLI_MAX_INTS)
        return cli_fail(CLI_USAGE, "%s has more than %d values: use several runs", option, CLI_MAX_INTS);
    memmove(&out->values[at + 1], &out->values[at], (size_t)(out->count++ - at) * sizeof out->values[0]);
    out->values[at] = value;
    return CLI_OK;
}

struct size_option {
    const char *option;
    int64_t high;
    struct cli_sizes *out;
};

static int take_size_item(void *arg, const char *item, size_t len)
{
    const struct size_option *o = arg;
    int64_t value;
    if (!cli_parse_int(item, len, &value) || value < 1 || value > o->high)
        return cli_fail(CLI_USAGE, "%s has \"%.*s\": must be a number from 1 to %lld, or a list of such", o->option,
                        (int)len, item, (long long)o->high);
    return add_size(o->option, o->out, value);
}

static int opt_tune_tokens(struct cli_options *o, const char *arg)
{
    return each_item(arg, take_size_item, &(struct size_option){ "--tokens", 1 << 24, &o->tune_tokens });
}

static int opt_tune_seqs(struct cli_options *o, const char *arg)
{
    return each_item(arg, take_size_item, &(struct size_option){ "--seqs", 1 << 16, &o->tune_seqs });
}

static int opt_device(struct cli_options *o, const char *arg)
{
    return take_number("--device", arg, 0, 255, &o->device);
}

/* most: days; what is waited for is counted in milliseconds, which must not overflow. */
static int take_time(const char *option, const char *arg, const char *words, int64_t most, int64_t *out)
{
    CLI_TRY(take_scaled(option, arg, time_units, words, out));
    if (*out > 0 && *out <= most * 86400) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s is \"%s\": must be more than 0 and at most %lldd", option, arg, (long long)most);
}

static int opt_budget(struct cli_options *o, const char *arg)
{
    return take_time("--budget", arg, "with s, m or h behind it: 5m", 365, &o->budget_s);
}

static int opt_timeout(struct cli_options *o, const char *arg)
{
    return take_time("--timeout", arg, "with s or m behind it: 10s", 1, &o->timeout_s);
}

static int opt_tuning_file(struct cli_options *o, const char *arg)
{
    if (!arg[0]) return cli_fail(CLI_USAGE, "--file is empty: name the tuning file");
    o->output = arg;
    return CLI_OK;
}

static int opt_check(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->check = true;
    return CLI_OK;
}

static int opt_compile(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->compile = true;
    return CLI_OK;
}

static int opt_worker(struct cli_options *o, const char *arg)
{
    (void)arg;
    o->worker = true;
    return CLI_OK;
}

static int opt_what(struct cli_options *o, const char *arg)
{
    char list[96];
    gdni_json_list_words(cli_what_words, list, sizeof list);
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
    KEY_FROM,
    KEY_OP,
    KEY_DTYPE,
    KEY_STATE_LAYOUT,
    KEY_CONV_STATE_LAYOUT,
    KEY_X_ALIGNMENT,
    KEY_PROLOGUE,
    KEY_DT_BIAS_TYPE,
    KEY_WITH,
    KEY_GENERIC,
    KEY_MAX_TOKENS,
    KEY_MAX_SEQS,
    KEY_PRESETS,
    KEY_SHARED_CACHE,
    KEY_NVRTC,
    KEY_JSON,
    KEY_KEY,
    KEY_TOKENS,
    KEY_SEQS,
    KEY_REMOVE,
    KEY_MAX_BYTES,
    KEY_MAX_AGE,
    KEY_OTHER_COMPILERS,
    KEY_TAR,
    KEY_TUNING,
    KEY_TUNE_TOKENS,
    KEY_TUNE_SEQS,
    KEY_DEVICE,
    KEY_BUDGET,
    KEY_TIMEOUT,
    KEY_CHECK,
    KEY_COMPILE,
    KEY_WORKER
};

static const struct handler handlers[] = {
    { 'm', opt_model },
    { KEY_TP, opt_tp },
    { KEY_SHAPES, opt_shapes },
    { KEY_FROM, opt_from },
    { KEY_OP, opt_op },
    { KEY_DTYPE, opt_dtype },
    { KEY_STATE_LAYOUT, opt_state_layout },
    { KEY_CONV_STATE_LAYOUT, opt_conv_state_layout },
    { KEY_X_ALIGNMENT, opt_x_alignment },
    { KEY_PROLOGUE, opt_prologue },
    { KEY_DT_BIAS_TYPE, opt_dt_bias_type },
    { KEY_WITH, opt_with },
    { KEY_GENERIC, opt_generic },
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
    { 'b', opt_bundle },
    { KEY_REMOVE, opt_remove },
    { KEY_MAX_BYTES, opt_max_bytes },
    { KEY_MAX_AGE, opt_max_age },
    { KEY_OTHER_COMPILERS, opt_other_compilers },
    { 'n', opt_dry_run },
    { 'o', opt_output },
    { KEY_TAR, opt_tar },
    { KEY_TUNING, opt_tuning },
    { 'f', opt_tuning_file },
    { KEY_TUNE_TOKENS, opt_tune_tokens },
    { KEY_TUNE_SEQS, opt_tune_seqs },
    { KEY_DEVICE, opt_device },
    { KEY_BUDGET, opt_budget },
    { KEY_TIMEOUT, opt_timeout },
    { KEY_CHECK, opt_check },
    { KEY_COMPILE, opt_compile },
    { KEY_WORKER, opt_worker },
};

static const struct argp_option shape_options[] = {
    { "model", 'm', "NAME", 0,
      "A model preset, a preset file, or all; repeatable. Without any shape warm, show and tune list the "
      "presets",
      0 },
    { "tp", KEY_TP, "LIST", 0,
      "Tensor-parallel sizes, such as 1,2,4 (default: every power of two up to the preset's max_tp; show: 1)", 0 },
    { "shapes", KEY_SHAPES, "FILE", 0,
      "JSON array of shapes, for what no preset covers (format: gdn-jit-cache(1)); - is standard input", 0 },
    { "op", KEY_OP, "OP", 0, "Only this operator: gdn_prefill or conv1d_qkv", 0 },
    { "dtype", KEY_DTYPE, "LIST", 0, "Of activations: bf16, fp16 (default: the model's)", 0 },
    { "state-layout", KEY_STATE_LAYOUT, "LIST", 0, "Of the GDN state: kv [DK, DV] (default), vk [DV, DK]", 0 },
    { "conv-state-layout", KEY_CONV_STATE_LAYOUT, "LIST", 0,
      "Of the conv state: cw [C, W-1] (default), "
      "wc [W-1, C], cw_strided",
      0 },
    { "x-alignment", KEY_X_ALIGNMENT, "LIST", 0,
      "Bytes that rows of the conv's input are aligned to: 16, 8, 4, 2 (default: 16, and what rows have that end in b "
      "and a; show: 16)",
      0 },
    { "prologue", KEY_PROLOGUE, "LIST", 0,
      "How the layer is put together: fused, conv, logits (default: all three; show: fused; "
      "gdn-jit-cache(1) says what they are)",
      0 },
    { "dt-bias-type", KEY_DT_BIAS_TYPE, "LIST", 0,
      "Of the fused prologue's dt_bias: fp32, bf16, fp16 (default: fp32 and "
      "that of activations; show: fp32)",
      0 },
    { "with", KEY_WITH, "LIST", 0, "Of every call: checkpoints, zero_padding, programmatic_launch (default: none)", 0 },
    { "generic", KEY_GENERIC, NULL, 0, "Also what GDN_PLAN_GENERIC plans", 0 },
    { "max-tokens", KEY_MAX_TOKENS, "T", 0, "Most tokens of one call (default 2147483647: every kernel variant)", 0 },
    { "max-seqs", KEY_MAX_SEQS, "N", 0, "Most sequences of one call (default 1024: every kernel variant)", 0 },
    { "presets", KEY_PRESETS, "DIR", 0, "Folder of the model presets", 0 },
    { 0 },
};

static const struct argp_option target_options[] = {
    { "gpu", 'g', "NAME", 0, "A GPU as the driver prints it, \"NVIDIA H200\"; needs not be here; repeatable", 0 },
    { "arch", 'a', "LIST", 0, "An arch, sm_90a; warm: for every known GPU of that arch; repeatable", 0 },
    { "tuning", KEY_TUNING, "FILE", 0, "A tuning file that the engine will have; repeatable", 0 },
    { 0 },
};

static const struct argp_option build_options[] = {
    { "from", KEY_FROM, "FILE", 0,
      "A recorded list: what a process with GDN_JIT_RECORD=FILE asked for, for the GPUs that it "
      "asked for; - is standard input",
      0 },
    { "jobs", 'j', "N", 0, "Kernels compiled at a time, up to hundreds of MB of memory each (default: processors)", 0 },
    { 0 },
};

static const struct argp_option verify_options[] = {
    { "bundle", 'b', "DIR", 0, "A bundle against its manifest, instead of the cache directory", 0 },
    { "remove", KEY_REMOVE, NULL, 0, "Remove what is damaged or refused, and temporary files older than an hour", 0 },
    { 0 },
};

static const struct argp_option prune_options[] = {
    { "max-bytes", KEY_MAX_BYTES, "SIZE", 0, "Least recently used entries go until so much is left, such as 64M", 0 },
    { "max-age", KEY_MAX_AGE, "AGE", 0, "Entries go that were not used for so long, such as 30d", 0 },
    { "arch", 'a', "ARCH", 0, "Only entries of this arch", 0 },
    { "other-compilers", KEY_OTHER_COMPILERS, NULL, 0, "Entries go that this NVRTC did not make", 0 },
    { "dry-run", 'n', NULL, 0, "Tell what would go, and remove nothing", 0 },
    { 0 },
};

static const struct argp_option pack_options[] = {
    { "output", 'o', "DIR", 0, "The bundle: a directory that is made, or is empty", 0 },
    { "tar", KEY_TAR, "FILE", 0, "The bundle as a tar archive, whose bytes depend on its kernels alone", 0 },
    { 0 },
};

static const struct argp_option tune_options[] = {
    { "file", 'f', "FILE", 0, "The tuning file: read where it is there, extended by every decision", 0 },
    { "tokens", KEY_TUNE_TOKENS, "LIST", 0,
      "Tokens of the calls that are timed, one for each bucket (default 128,512,2048,4096,8192,32768)", 0 },
    { "seqs", KEY_TUNE_SEQS, "LIST", 0, "Sequences of prefill calls (default 1,4,16,128)", 0 },
    { "budget", KEY_BUDGET, "TIME", 0, "Stop after so long, such as 5m; the next run goes on there", 0 },
    { "timeout", KEY_TIMEOUT, "TIME", 0, "A candidate that takes longer hangs (default 10s)", 0 },
    { "device", KEY_DEVICE, "N", 0, "CUDA ordinal of the GPU (default 0)", 0 },
    { "jobs", 'j', "N", 0, "Kernels that are compiled at a time, ahead of their turn (default: processors)", 0 },
    { "check", KEY_CHECK, NULL, 0, "Measure nothing: tell what of this the file lacks, and what is stale in it", 0 },
    { "compile", KEY_COMPILE, NULL, 0, "Measure nothing: compile every candidate into the cache, which needs no GPU", 0 },
    { "gpu", 'g', "NAME", 0, "With --check and --compile: the GPU that is meant (default: that of --device)", 0 },
    { "worker", KEY_WORKER, NULL, OPTION_HIDDEN, "", 0 },
    { 0 },
};

static const struct argp_option show_options[] = {
    { "what", 'w', "WHAT", 0, "summary (default), json, spec, source, ptx, log, key, cubin", 0 },
    { "key", KEY_KEY, "HEX", 0, "A cache entry by the beginning of its key, instead of a shape", 0 },
    { "tokens", KEY_TOKENS, "T", 0, "Also the cost of a call of T tokens: bytes, FLOPs, least time on the GPU", 0 },
    { "seqs", KEY_SEQS, "N", 0, "Sequences of that call (default 1)", 0 },
    { 0 },
};

static const struct argp_option compiler_options[] = {
    { "nvrtc", KEY_NVRTC, "FILE", 0,
      "The libnvrtc to compile with (default: GDN_JIT_NVRTC, else libnvrtc.so.13 or .12)", 0 },
    { 0 },
};

static const struct argp_option common_options[] = {
    { "cache-dir", 'd', "DIR", 0,
      "Cache directory (default: GDN_JIT_CACHE_DIR, else XDG_CACHE_HOME/gdn-jit, else ~/.cache/gdn-jit)", 0 },
    { "shared-cache", KEY_SHARED_CACHE, NULL, 0, "Accept a cache directory that another user owns", 0 },
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
static const struct argp build_argp = { build_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp verify_argp = { verify_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp prune_argp = { prune_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp pack_argp = { pack_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp tune_argp = { tune_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp show_argp = { show_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp compiler_argp = { compiler_options, parse_option, NULL, NULL, NULL, NULL, NULL };
static const struct argp common_argp = { common_options, parse_option, NULL, NULL, NULL, NULL, NULL };

static const struct {
    unsigned group; /* 0: always */
    struct argp_child child;
} children[] = {
    { CLI_OPTIONS_SHAPES, { &shape_argp, 0, "What:", 1 } },
    { CLI_OPTIONS_TARGETS, { &target_argp, 0, "For which GPU:", 2 } },
    { CLI_OPTIONS_SHOW, { &show_argp, 0, "What to show:", 3 } },
    { CLI_OPTIONS_VERIFY, { &verify_argp, 0, "What to verify:", 3 } },
    { CLI_OPTIONS_PRUNE, { &prune_argp, 0, "What goes:", 3 } },
    { CLI_OPTIONS_BUILD, { &build_argp, 0, "Recorded lists, and how:", 4 } },
    { CLI_OPTIONS_TUNE, { &tune_argp, 0, "How:", 4 } },
    { CLI_OPTIONS_PACK, { &pack_argp, 0, "Where to:", 4 } },
    { CLI_OPTIONS_COMPILER, { &compiler_argp, 0, "Compiler:", 5 } },
    { 0, { &common_argp, 0, "Cache, output:", 6 } },
};
enum { NUM_CHILDREN = sizeof children / sizeof children[0] };

void cli_options_parse(struct cli_options *out, unsigned groups, const char *doc, int argc, char **argv)
{
    struct argp_child chosen[NUM_CHILDREN + 1] = { { 0 } };
    size_t count = 0;
    for (size_t i = 0; i < NUM_CHILDREN; ++i)
        if (!children[i].group || children[i].group & groups) chosen[count++] = children[i].child;
    const struct argp argp = { NULL, parse_root, NULL, doc, chosen, NULL, NULL };
    *out = (struct cli_options){ .groups = groups,
                                 .how = { .max_tokens = CLI_DEFAULT_MAX_TOKENS, .max_seqs = CLI_DEFAULT_MAX_SEQS },
                                 .max_bytes = UINT64_MAX };
    struct root_input input = { out, count };
    argp_parse(&argp, argc, argv, 0, NULL, &input); /* ends the process on an error */
}

void cli_options_free(struct cli_options *options)
{
    cli_names_free(&options->models);
    cli_names_free(&options->archs);
    cli_names_free(&options->gpus);
    cli_names_free(&options->tunings);
}
