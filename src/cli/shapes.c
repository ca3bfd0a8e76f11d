/*
 * shapes.c - owns the JSON format of shape lists and the names of a descriptor's values. Must not know: models,
 * targets, the command line.
 */
#include "cli/shapes.h"

#include <stdio.h>
#include <string.h>

#include "json/value.h"

const struct gdni_json_word cli_op_words[] = { { "gdn_prefill", CLI_PREFILL },
                                               { "conv1d_qkv", CLI_CONV1D },
                                               { NULL, 0 } };
const struct gdni_json_word cli_io_type_words[] = { { "bf16", GDN_BF16 }, { "fp16", GDN_F16 }, { NULL, 0 } };
const struct gdni_json_word cli_state_layout_words[] = { { "kv", GDN_STATE_KV }, { "vk", GDN_STATE_VK }, { NULL, 0 } };
const struct gdni_json_word cli_conv_layout_words[] = {
    { "cw", GDN_CONV_STATE_CW }, { "wc", GDN_CONV_STATE_WC }, { "cw_strided", GDN_CONV_STATE_CW_STRIDED }, { NULL, 0 }
};
const struct gdni_json_word cli_x_layout_words[] = { { "packed", GDN_CONV_X_PACKED },
                                                     { "interleaved", GDN_CONV_X_INTERLEAVED },
                                                     { NULL, 0 } };
const struct gdni_json_word cli_float_words[] = {
    { "fp32", GDN_F32 }, { "bf16", GDN_BF16 }, { "fp16", GDN_F16 }, { NULL, 0 }
};
static const struct gdni_json_word io_type_words[] = {
    { "bf16", GDN_BF16 }, { "fp16", GDN_F16 }, { "fp32", GDN_F32 }, { NULL, 0 }
};
static const struct gdni_json_word index_words[] = { { "int32", GDN_INDEX_I32 },
                                                     { "int64", GDN_INDEX_I64 },
                                                     { NULL, 0 } };
static const struct gdni_json_word head_map_words[] = { { "grouped", GDN_HEADS_GROUPED },
                                                        { "tiled", GDN_HEADS_TILED },
                                                        { NULL, 0 } };
static const struct gdni_json_word gate_words[] = {
    { "log", GDN_GATE_LOG }, { "linear", GDN_GATE_LINEAR }, { "logits", GDN_GATE_LOGITS }, { NULL, 0 }
};
static const struct gdni_json_word beta_words[] = { { "plain", GDN_BETA_PLAIN },
                                                    { "logits", GDN_BETA_LOGITS },
                                                    { NULL, 0 } };
static const struct gdni_json_word prefill_flag_words[] = { { "qk_l2norm", GDN_PREFILL_QK_L2NORM },
                                                            { "beta_times_2", GDN_PREFILL_BETA_TIMES_2 },
                                                            { "checkpoints", GDN_PREFILL_CHECKPOINTS },
                                                            { "zero_padding", GDN_PREFILL_ZERO_PADDING },
                                                            { "programmatic_launch", GDN_PREFILL_PROGRAMMATIC_LAUNCH },
                                                            { NULL, 0 } };
static const struct gdni_json_word plan_flag_words[] = { { "generic", GDN_PLAN_GENERIC },
                                                         { "heuristic", GDN_PLAN_HEURISTIC },
                                                         { "tuned_only", GDN_PLAN_TUNED_ONLY },
                                                         { "whole_sequences", GDN_PLAN_WHOLE_SEQUENCES },
                                                         { "batch_invariant", GDN_PLAN_BATCH_INVARIANT },
                                                         { NULL, 0 } };
static const struct gdni_json_word conv_flag_words[] = { { "silu", GDN_CONV_SILU },
                                                         { "bias", GDN_CONV_BIAS },
                                                         { "l2_norm", GDN_CONV_L2_NORM },
                                                         { "exact_norm", GDN_CONV_EXACT_NORM },
                                                         { "zero_padding", GDN_CONV_ZERO_PADDING },
                                                         { "checkpoints", GDN_CONV_CHECKPOINTS },
                                                         { "gate_exp", GDN_CONV_GATE_EXP },
                                                         { "beta_rounded", GDN_CONV_BETA_ROUNDED },
                                                         { "beta_times_2", GDN_CONV_BETA_TIMES_2 },
                                                         { "launch_dependents", GDN_CONV_LAUNCH_DEPENDENTS },
                                                         { NULL, 0 } };

enum { MAX_SHAPES = 4096 };

void cli_shapes_add(struct cli_shapes *list, const struct cli_shape *shape)
{
    list->items = cli_realloc(list->items, (list->count + 1) * sizeof *list->items);
    list->items[list->count++] = *shape;
}

void cli_shapes_free(struct cli_shapes *list)
{
    cli_free(list->items);
    *list = (struct cli_shapes){ 0 };
}

/* Members of both descriptors; the library checks what they mean, with a sentence of its own. */
struct common {
    int io_type;
    int64_t num_q_heads, num_k_heads, num_v_heads, head_dim_qk, head_dim_v, max_tokens, max_seqs;
    const cJSON *plan_flags;
};

#define INT_FIELD(member, required_)                                                                                   \
    {                                                                                                                  \
#member, GDNI_JSON_INT, required_, &c.member, 0, INT32_MAX, NULL                                               \
    }
#define COMMON_FIELDS                                                                                                  \
    { "op", GDNI_JSON_WORD, true, &op, 0, 0, cli_op_words },                                                           \
        { "io_type", GDNI_JSON_WORD, false, &c.io_type, 0, 0, io_type_words }, INT_FIELD(num_q_heads, true),           \
        INT_FIELD(num_k_heads, true), INT_FIELD(num_v_heads, true), INT_FIELD(head_dim_qk, true),                      \
        INT_FIELD(head_dim_v, true), INT_FIELD(max_tokens, false), INT_FIELD(max_seqs, false),                         \
    {                                                                                                                  \
        "plan_flags", GDNI_JSON_ARRAY, false, &c.plan_flags, 0, 0, NULL                                                \
    }
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct common common_defaults(void)
{
    return (
        struct common){ .io_type = GDN_BF16, .max_tokens = CLI_DEFAULT_MAX_TOKENS, .max_seqs = CLI_DEFAULT_MAX_SEQS };
}

static int read_flags(const char *where, const char *member, const cJSON *array, const struct gdni_json_word *words,
                      uint32_t *out)
{
    char list[192];
    gdni_json_list_words(words, list, sizeof list);
    *out = 0;
    for (const cJSON *item = array->child; item; item = item->next) {
        int flag = 0;
        const char *text = cJSON_IsString(item) ? item->valuestring : NULL;
        if (!text || !cli_word_find(words, text, strlen(text), &flag))
            return cli_fail(CLI_USAGE, "%s: \"%s\" holds %s%.32s%s: must be %s", where, member, text ? "\"" : "",
                            text ? text : "no string", text ? "\"" : "", list);
        *out |= (uint32_t)flag;
    }
    return CLI_OK;
}

static int set_plan_flags(const char *where, const struct common *c, struct cli_shape *out)
{
    out->plan_flags = 0;
    return c->plan_flags ? read_flags(where, "plan_flags", c->plan_flags, plan_flag_words, &out->plan_flags) : CLI_OK;
}

/* Of a prefill descriptor: how the tensors say what they say. */
struct conventions {
    int state_type, state_layout, head_map, gate, gate_type, beta, beta_type, cu_seqlens_type, slot_type;
};

#define WORD_FIELD(member, words)                                                                                      \
    {                                                                                                                  \
#member, GDNI_JSON_WORD, false, &v.member, 0, 0, words                                                         \
    }

static struct conventions conventions_defaults(void)
{
    const gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    return (struct conventions){ (int)d.state_type, (int)d.state_layout, (int)d.head_map,
                                 (int)d.gate,       (int)d.gate_type,    (int)d.beta,
                                 (int)d.beta_type,  GDN_INDEX_I32,       GDN_INDEX_I32 };
}

static void set_conventions(gdn_prefill_desc *d, const struct conventions *v)
{
    d->state_type = (gdn_dtype)v->state_type;
    d->state_layout = (gdn_state_layout)v->state_layout;
    d->head_map = (gdn_head_map)v->head_map;
    d->gate = (gdn_gate)v->gate;
    d->gate_type = (gdn_dtype)v->gate_type;
    d->beta = (gdn_beta)v->beta;
    d->beta_type = (gdn_dtype)v->beta_type;
    d->cu_seqlens_type = (gdn_index_type)v->cu_seqlens_type;
    d->slot_type = (gdn_index_type)v->slot_type;
}

static int read_prefill(const char *where, const cJSON *object, struct cli_shape *out)
{
    struct common c = common_defaults();
    struct conventions v = conventions_defaults();
    int op = 0;
    const cJSON *flags = NULL;
    const struct gdni_json_field fields[] = {
        COMMON_FIELDS,
        WORD_FIELD(state_type, cli_float_words),
        WORD_FIELD(state_layout, cli_state_layout_words),
        WORD_FIELD(head_map, head_map_words),
        WORD_FIELD(gate, gate_words),
        WORD_FIELD(gate_type, cli_float_words),
        WORD_FIELD(beta, beta_words),
        WORD_FIELD(beta_type, cli_float_words),
        WORD_FIELD(cu_seqlens_type, index_words),
        WORD_FIELD(slot_type, index_words),
        { "flags", GDNI_JSON_ARRAY, false, &flags, 0, 0, NULL },
    };
    CLI_TRY(cli_json_object(where, object, fields, COUNT(fields)));
    CLI_TRY(set_plan_flags(where, &c, out));
    gdn_prefill_desc *d = &out->desc.prefill;
    *d = (gdn_prefill_desc)GDN_PREFILL_DESC_INIT;
    if (flags) CLI_TRY(read_flags(where, "flags", flags, prefill_flag_words, &d->flags));
    set_conventions(d, &v);
    d->io_type = (gdn_dtype)c.io_type;
    d->num_q_heads = (int32_t)c.num_q_heads;
    d->num_k_heads = (int32_t)c.num_k_heads;
    d->num_v_heads = (int32_t)c.num_v_heads;
    d->head_dim_qk = (int32_t)c.head_dim_qk;
    d->head_dim_v = (int32_t)c.head_dim_v;
    d->max_tokens = c.max_tokens;
    d->max_seqs = c.max_seqs;
    return CLI_OK;
}

/* Those of conv1d-QKV alone; a type that is not named stays the descriptor's default. */
struct prologue {
    int state_type, state_layout, x_layout, gate_type, a_log_type, dt_bias_type, cu_seqlens_type, slot_type;
    int64_t num_gate_heads, width, x_alignment;
    const cJSON *flags;
};

static int set_prologue(const char *where, gdn_conv1d_desc *d, const struct prologue *v)
{
    if (v->flags) CLI_TRY(read_flags(where, "flags", v->flags, conv_flag_words, &d->flags));
    d->state_type = (gdn_dtype)v->state_type;
    d->state_layout = (gdn_conv_state_layout)v->state_layout;
    d->x_layout = (gdn_conv_x_layout)v->x_layout;
    d->num_gate_heads = (int32_t)v->num_gate_heads;
    d->gate_type = (gdn_dtype)v->gate_type;
    d->a_log_type = (gdn_dtype)v->a_log_type;
    d->dt_bias_type = (gdn_dtype)v->dt_bias_type;
    d->width = (int32_t)v->width;
    d->x_alignment = (int32_t)v->x_alignment;
    d->cu_seqlens_type = (gdn_index_type)v->cu_seqlens_type;
    d->slot_type = (gdn_index_type)v->slot_type;
    return CLI_OK;
}

static int read_conv1d(const char *where, const cJSON *object, struct cli_shape *out)
{
    struct common c = common_defaults();
    struct prologue v = { .state_layout = GDN_CONV_STATE_CW, .width = 4 };
    int op = 0;
    const struct gdni_json_field fields[] = {
        COMMON_FIELDS,
        WORD_FIELD(state_type, io_type_words),
        WORD_FIELD(state_layout, cli_conv_layout_words),
        WORD_FIELD(x_layout, cli_x_layout_words),
        { "num_gate_heads", GDNI_JSON_INT, false, &v.num_gate_heads, 0, INT32_MAX, NULL },
        WORD_FIELD(gate_type, io_type_words),
        WORD_FIELD(a_log_type, io_type_words),
        WORD_FIELD(dt_bias_type, io_type_words),
        WORD_FIELD(cu_seqlens_type, index_words),
        WORD_FIELD(slot_type, index_words),
        { "width", GDNI_JSON_INT, false, &v.width, 0, INT32_MAX, NULL },
        { "flags", GDNI_JSON_ARRAY, false, &v.flags, 0, 0, NULL },
        { "x_alignment", GDNI_JSON_INT, false, &v.x_alignment, 0, INT32_MAX, NULL },
    };
    CLI_TRY(cli_json_object(where, object, fields, COUNT(fields)));
    CLI_TRY(set_plan_flags(where, &c, out));
    gdn_conv1d_desc *d = &out->desc.conv1d;
    *d = (gdn_conv1d_desc)GDN_CONV1D_DESC_INIT;
    CLI_TRY(set_prologue(where, d, &v));
    d->io_type = (gdn_dtype)c.io_type;
    d->num_q_heads = (int32_t)c.num_q_heads;
    d->num_k_heads = (int32_t)c.num_k_heads;
    d->num_v_heads = (int32_t)c.num_v_heads;
    d->head_dim_qk = (int32_t)c.head_dim_qk;
    d->head_dim_v = (int32_t)c.head_dim_v;
    d->max_tokens = c.max_tokens;
    d->max_seqs = c.max_seqs;
    return CLI_OK;
}

static int read_op(const char *where, const cJSON *object, enum cli_op *op)
{
    char list[64], is[GDNI_JSON_QUOTED];
    gdni_json_list_words(cli_op_words, list, sizeof list);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, "op");
    int value = 0;
    if (!cJSON_IsObject(object)) return cli_fail(CLI_USAGE, "%s: must be an object, in braces", where);
    if (!item) return cli_fail(CLI_USAGE, "%s: member \"op\" is missing: must be %s", where, list);
    if (!cJSON_IsString(item))
        return cli_fail(CLI_USAGE, "%s: \"op\" is %s: must be %s", where, gdni_json_quote(item, is), list);
    if (!cli_word_find(cli_op_words, item->valuestring, strlen(item->valuestring), &value))
        return cli_fail(CLI_USAGE, "%s: \"op\" is \"%.64s\": must be %s", where, item->valuestring, list);
    *op = (enum cli_op)value;
    return CLI_OK;
}

typedef int (*read_fn)(const char *where, const cJSON *object, struct cli_shape *out);
static const read_fn readers[CLI_NUM_OPS] = { [CLI_PREFILL] = read_prefill, [CLI_CONV1D] = read_conv1d };

int cli_shape_from_json(struct cli_shape *out, const char *where, const cJSON *object)
{
    CLI_TRY(read_op(where, object, &out->op));
    return readers[out->op](where, object, out);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int cli_shapes_from_json(struct cli_shapes *list, const char *name, const cJSON *root)
{
    if (!cJSON_IsArray(root)) return cli_fail(CLI_USAGE, "%s: must be an array of shapes, in square brackets", name);
    int index = 0;
    for (const cJSON *item = root->child; item; item = item->next, ++index) {
        if (index == MAX_SHAPES) return cli_fail(CLI_USAGE, "%s: more than %d shapes: split it", name, MAX_SHAPES);
        struct cli_shape shape = { 0 };
        char where[256];
        snprintf(where, sizeof where, "%s, shape %d", name, index + 1);
        snprintf(shape.label, sizeof shape.label, "%.80s #%d", base_name(name), index + 1);
        CLI_TRY(cli_shape_from_json(&shape, where, item));
        cli_shapes_add(list, &shape);
    }
    return index ? CLI_OK : cli_fail(CLI_USAGE, "%s: holds no shape: list at least one", name);
}

int cli_shapes_read(struct cli_shapes *list, const char *path)
{
    cJSON *root = NULL;
    CLI_TRY(cli_json_read(path, &root));
    const int code = cli_shapes_from_json(list, cli_file_name(path), root);
    cJSON_Delete(root);
    return code;
}

static void append_text(char out[CLI_SHAPE_TEXT], const char *before, const char *text)
{
    const size_t used = strlen(out);
    snprintf(out + used, CLI_SHAPE_TEXT - used, "%s%s", before, text);
}

/* What is not the default is named. */
static const char *prefill_text(char out[CLI_SHAPE_TEXT], const gdn_prefill_desc *d)
{
    const gdn_prefill_desc usual = GDN_PREFILL_DESC_INIT;
    snprintf(out, CLI_SHAPE_TEXT, "gdn_prefill %s heads %d/%d/%d dims %d/%d state %s",
             cli_word_name(cli_io_type_words, (int)d->io_type), d->num_q_heads, d->num_k_heads, d->num_v_heads,
             d->head_dim_qk, d->head_dim_v, cli_word_name(cli_state_layout_words, (int)d->state_layout));
    if (d->state_type != usual.state_type) append_text(out, " ", cli_word_name(cli_float_words, (int)d->state_type));
    if (d->head_map != usual.head_map) append_text(out, " ", cli_word_name(head_map_words, (int)d->head_map));
    if (d->gate != usual.gate || d->gate_type != usual.gate_type) {
        append_text(out, " gate ", cli_word_name(gate_words, (int)d->gate));
        append_text(out, " ", cli_word_name(cli_float_words, (int)d->gate_type));
    }
    if (d->beta != usual.beta || d->beta_type != usual.beta_type) {
        append_text(out, " beta ", cli_word_name(beta_words, (int)d->beta));
        append_text(out, " ", cli_word_name(cli_float_words, (int)d->beta_type));
    }
    if (d->cu_seqlens_type == GDN_INDEX_I64) append_text(out, "", " cu_seqlens int64");
    if (d->slot_type == GDN_INDEX_I64) append_text(out, "", " slots int64");
    for (const struct gdni_json_word *w = prefill_flag_words; w->name; ++w)
        if (d->flags & (uint32_t)w->value) append_text(out, " ", w->name);
    return out;
}

static void append_type(char out[CLI_SHAPE_TEXT], const char *before, gdn_dtype type)
{
    if (!type) return;
    append_text(out, before, cli_word_name(io_type_words, (int)type));
}

/* What is not the default is named. */
static const char *conv1d_text(char out[CLI_SHAPE_TEXT], const gdn_conv1d_desc *d)
{
    const gdn_conv1d_desc usual = GDN_CONV1D_DESC_INIT;
    char gates[48];
    snprintf(out, CLI_SHAPE_TEXT, "conv1d_qkv %s heads %d/%d/%d dims %d/%d width %d state %s",
             cli_word_name(io_type_words, (int)d->io_type), d->num_q_heads, d->num_k_heads, d->num_v_heads,
             d->head_dim_qk, d->head_dim_v, d->width, cli_word_name(cli_conv_layout_words, (int)d->state_layout));
    append_type(out, " ", d->state_type);
    for (const struct gdni_json_word *w = conv_flag_words; w->name; ++w)
        if (d->flags & (uint32_t)w->value) append_text(out, " ", w->name);
    if (d->x_layout == GDN_CONV_X_INTERLEAVED) append_text(out, "", " interleaved");
    snprintf(gates, sizeof gates, ", %d gate heads", d->num_gate_heads);
    if (d->num_gate_heads) append_text(out, "", gates);
    if (d->num_gate_heads) append_type(out, " ", d->gate_type);
    if (d->num_gate_heads && d->a_log_type != usual.a_log_type) append_type(out, ", a_log ", d->a_log_type);
    if (d->num_gate_heads && d->dt_bias_type != usual.dt_bias_type) append_type(out, ", dt_bias ", d->dt_bias_type);
    if (d->cu_seqlens_type == GDN_INDEX_I64) append_text(out, "", " cu_seqlens int64");
    if (d->slot_type == GDN_INDEX_I64) append_text(out, "", " slots int64");
    snprintf(gates, sizeof gates, ", x aligned to %d", d->x_alignment ? d->x_alignment : 16);
    append_text(out, "", gates);
    return out;
}

const char *cli_shape_text(char out[CLI_SHAPE_TEXT], const struct cli_shape *shape)
{
    if (shape->op == CLI_PREFILL)
        prefill_text(out, &shape->desc.prefill);
    else
        conv1d_text(out, &shape->desc.conv1d);
    for (const struct gdni_json_word *w = plan_flag_words; w->name; ++w)
        if (shape->plan_flags & (uint32_t)w->value) append_text(out, ", plan ", w->name);
    return out;
}

gdn_status cli_shape_plan(gdn_ctx *ctx, const gdn_target *target, const struct cli_shape *shape, gdn_plan **out)
{
    return shape->op == CLI_PREFILL ? gdn_plan_prefill(ctx, target, &shape->desc.prefill, shape->plan_flags, out)
                                    : gdn_plan_conv1d_qkv(ctx, target, &shape->desc.conv1d, shape->plan_flags, out);
}
