/*
 * expand.c - owns what engines do with a model's layers: ways to put the operators together, types, alignments, ranks.
 * Must not know: files, targets, commands.
 */
#include "cli/expand.h"

#include <stdio.h>

const struct gdni_json_word cli_prologue_words[] = {
    { "fused", CLI_PROLOGUE_FUSED }, { "conv", CLI_PROLOGUE_CONV }, { "logits", CLI_PROLOGUE_LOGITS }, { NULL, 0 }
};
const struct gdni_json_word cli_feature_words[] = { { "checkpoints", CLI_WITH_CHECKPOINTS },
                                                    { "zero_padding", CLI_WITH_ZERO_PADDING },
                                                    { "programmatic_launch", CLI_WITH_PROGRAMMATIC_LAUNCH },
                                                    { NULL, 0 } };

/* ---- ranks ---- */

static bool divides(const struct cli_preset *p, int64_t tp)
{
    return p->num_k_heads % tp == 0 && p->num_v_heads % tp == 0;
}

static void legal_tps(const struct cli_preset *p, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int64_t tp = 1; tp <= p->max_tp && len < size; ++tp)
        if (divides(p, tp)) len += (size_t)snprintf(out + len, size - len, "%s%lld", tp > 1 ? ", " : "", (long long)tp);
}

int cli_rank_of(struct cli_rank *out, const struct cli_preset *p, int tp)
{
    char legal[128];
    legal_tps(p, legal, sizeof legal);
    if (tp > p->num_k_heads)
        return cli_fail(
            CLI_USAGE,
            "--tp is %d: %s has %lld key heads, and ranks beyond that share them by replication: use --tp %lld, or "
            "give a rank's own heads with --shapes",
            tp, p->model, (long long)p->num_k_heads, (long long)p->max_tp);
    if (tp > p->max_tp)
        return cli_fail(CLI_USAGE, "--tp is %d: the preset of %s goes up to max_tp %lld: use one of %s", tp, p->model,
                        (long long)p->max_tp, legal);
    if (!divides(p, tp))
        return cli_fail(CLI_USAGE,
                        "--tp is %d: it must divide the %lld key heads and %lld value heads of %s: use one of %s", tp,
                        (long long)p->num_k_heads, (long long)p->num_v_heads, p->model, legal);
    *out = (struct cli_rank){ (int32_t)(p->num_k_heads / tp), (int32_t)(p->num_v_heads / tp) };
    return CLI_OK;
}

int cli_row_alignment(const struct cli_preset *p, const struct cli_rank *rank)
{
    enum { ELEMENT = 2, MOST = 16 }; /* activations are of 16 bits */
    const int64_t qk = 2 * rank->k_heads * p->head_dim_k, vz = 2 * rank->v_heads * p->head_dim_v;
    const int64_t bytes = ELEMENT * (qk + vz + 2 * rank->v_heads);
    int alignment = MOST;
    while (bytes % alignment)
        alignment /= 2;
    return alignment;
}

/* ---- shapes ---- */

/* One rank's layer, in one choice of its type of activations. */
struct layer {
    const struct cli_preset *preset;
    const struct cli_expansion *how;
    struct cli_rank rank;
    int tp, dtype;
};

static bool has(const struct cli_ints *list, int value)
{
    for (int i = 0; i < list->count; ++i)
        if (list->values[i] == value) return true;
    return false;
}

static bool wants(const struct layer *l, enum cli_prologue prologue)
{
    return !l->how->prologues.count || has(&l->how->prologues, (int)prologue);
}

static struct cli_ints or_default(const struct cli_ints *given, int value)
{
    return given->count ? *given : (struct cli_ints){ .count = 1, .values = { value } };
}

/* Two values of which the second may be the first. */
static struct cli_ints or_both(const struct cli_ints *given, int first, int second)
{
    if (given->count) return *given;
    return (struct cli_ints){ .count = first == second ? 1 : 2, .values = { first, second } };
}

static struct cli_shape new_shape(const struct layer *l, enum cli_op op)
{
    struct cli_shape shape = { .op = op };
    snprintf(shape.label, sizeof shape.label, "%s tp%d", l->preset->model, l->tp);
    return shape;
}

static uint32_t flag_if(bool condition, uint32_t flag)
{
    return condition ? flag : 0;
}

static gdn_conv1d_desc conv1d_of(const struct layer *l)
{
    const struct cli_ints *features = &l->how->features;
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    d.io_type = (gdn_dtype)l->dtype;
    d.num_q_heads = d.num_k_heads = l->rank.k_heads;
    d.num_v_heads = l->rank.v_heads;
    d.head_dim_qk = (int32_t)l->preset->head_dim_k;
    d.head_dim_v = (int32_t)l->preset->head_dim_v;
    d.width = (int32_t)l->preset->conv_width;
    d.flags = GDN_CONV_SILU | flag_if(l->preset->conv_bias, GDN_CONV_BIAS) |
              flag_if(has(features, CLI_WITH_CHECKPOINTS), GDN_CONV_CHECKPOINTS) |
              flag_if(has(features, CLI_WITH_ZERO_PADDING), GDN_CONV_ZERO_PADDING) |
              flag_if(has(features, CLI_WITH_PROGRAMMATIC_LAUNCH), GDN_CONV_LAUNCH_DEPENDENTS);
    d.max_tokens = l->how->max_tokens;
    d.max_seqs = l->how->max_seqs;
    return d;
}

/* d in every layout and alignment. */
static void add_conv1d(struct cli_shapes *list, const struct layer *l, gdn_conv1d_desc d, int row_alignment)
{
    const struct cli_ints layouts = or_default(&l->how->conv_layouts, GDN_CONV_STATE_CW);
    const struct cli_ints alignments = or_both(&l->how->x_alignments, 16, row_alignment);
    struct cli_shape shape = new_shape(l, CLI_CONV1D);
    for (int i = 0; i < layouts.count; ++i)
        for (int j = 0; j < alignments.count; ++j) {
            d.state_layout = (gdn_conv_state_layout)layouts.values[i];
            d.x_alignment = alignments.values[j];
            shape.desc.conv1d = d;
            cli_shapes_add(list, &shape);
        }
}

static void add_fused_conv1d(struct cli_shapes *list, const struct layer *l)
{
    const struct cli_ints types = or_both(&l->how->dt_bias_types, GDN_F32, l->dtype);
    gdn_conv1d_desc d = conv1d_of(l);
    d.flags |= GDN_CONV_L2_NORM;
    d.x_layout = (gdn_conv_x_layout)l->preset->projection;
    d.num_gate_heads = l->rank.v_heads;
    for (int i = 0; i < types.count; ++i) {
        d.dt_bias_type = (gdn_dtype)types.values[i];
        add_conv1d(list, l, d, cli_row_alignment(l->preset, &l->rank));
    }
}

/* A row that had to be reordered first is a tensor of its own, and packed. */
static void add_plain_conv1d(struct cli_shapes *list, const struct layer *l)
{
    const bool is_view = l->preset->projection == GDN_CONV_X_PACKED;
    add_conv1d(list, l, conv1d_of(l), is_view ? cli_row_alignment(l->preset, &l->rank) : 16);
}

static gdn_prefill_desc prefill_of(const struct layer *l, uint32_t flags)
{
    const struct cli_ints *features = &l->how->features;
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    d.io_type = (gdn_dtype)l->dtype;
    d.num_q_heads = d.num_k_heads = l->rank.k_heads;
    d.num_v_heads = l->rank.v_heads;
    d.head_dim_qk = (int32_t)l->preset->head_dim_k;
    d.head_dim_v = (int32_t)l->preset->head_dim_v;
    d.flags = flags | flag_if(has(features, CLI_WITH_CHECKPOINTS), GDN_PREFILL_CHECKPOINTS) |
              flag_if(has(features, CLI_WITH_ZERO_PADDING), GDN_PREFILL_ZERO_PADDING) |
              flag_if(has(features, CLI_WITH_PROGRAMMATIC_LAUNCH), GDN_PREFILL_PROGRAMMATIC_LAUNCH);
    d.max_tokens = l->how->max_tokens;
    d.max_seqs = l->how->max_seqs;
    return d;
}

/* d in every layout of the state. */
static void add_prefill(struct cli_shapes *list, const struct layer *l, gdn_prefill_desc d)
{
    const struct cli_ints layouts = or_default(&l->how->state_layouts, GDN_STATE_KV);
    struct cli_shape shape = new_shape(l, CLI_PREFILL);
    for (int i = 0; i < layouts.count; ++i) {
        d.state_layout = (gdn_state_layout)layouts.values[i];
        shape.desc.prefill = d;
        shape.plan_flags = 0;
        cli_shapes_add(list, &shape);
        shape.plan_flags = GDN_PLAN_GENERIC;
        if (l->how->generic) cli_shapes_add(list, &shape);
    }
}

/* q, k, g and beta as the fused prologue leaves them: normalised, float32. */
static void add_prefill_of_fused(struct cli_shapes *list, const struct layer *l)
{
    add_prefill(list, l, prefill_of(l, 0));
}

/* g is float32 in every engine; beta is that, or stays what the sigmoid of a 16-bit b is. */
static void add_prefill_of_conv(struct cli_shapes *list, const struct layer *l)
{
    const gdn_dtype beta_types[] = { GDN_F32, (gdn_dtype)l->dtype };
    gdn_prefill_desc d = prefill_of(l, GDN_PREFILL_QK_L2NORM);
    for (size_t i = 0; i < sizeof beta_types / sizeof beta_types[0]; ++i) {
        d.beta_type = beta_types[i];
        add_prefill(list, l, d);
    }
}

static void add_prefill_of_logits(struct cli_shapes *list, const struct layer *l)
{
    gdn_prefill_desc d = prefill_of(l, GDN_PREFILL_QK_L2NORM);
    d.gate = GDN_GATE_LOGITS;
    d.beta = GDN_BETA_LOGITS;
    d.gate_type = d.beta_type = (gdn_dtype)l->dtype;
    add_prefill(list, l, d);
}

typedef void (*add_fn)(struct cli_shapes *list, const struct layer *l);
static const add_fn prefill_of_prologue[CLI_NUM_PROLOGUES] = { [CLI_PROLOGUE_FUSED] = add_prefill_of_fused,
                                                               [CLI_PROLOGUE_CONV] = add_prefill_of_conv,
                                                               [CLI_PROLOGUE_LOGITS] = add_prefill_of_logits };

static void add_layer(struct cli_shapes *list, const struct layer *l)
{
    if (wants(l, CLI_PROLOGUE_FUSED)) add_fused_conv1d(list, l);
    if (wants(l, CLI_PROLOGUE_CONV) || wants(l, CLI_PROLOGUE_LOGITS)) add_plain_conv1d(list, l);
    for (int i = 0; i < CLI_NUM_PROLOGUES; ++i)
        if (wants(l, (enum cli_prologue)i)) prefill_of_prologue[i](list, l);
}

static struct cli_ints default_tps(const struct cli_preset *p)
{
    struct cli_ints tps = { 0 };
    for (int tp = 1; tp <= p->max_tp && tps.count < CLI_MAX_INTS; tp *= 2)
        if (divides(p, tp)) tps.values[tps.count++] = tp;
    return tps;
}

int cli_preset_expand(struct cli_shapes *list, const struct cli_preset *preset, const struct cli_expansion *how)
{
    const struct cli_ints tps = how->tp.count ? how->tp : default_tps(preset);
    const struct cli_ints dtypes = or_default(&how->dtypes, preset->dtype);
    for (int i = 0; i < tps.count; ++i) {
        struct layer layer = { .preset = preset, .how = how, .tp = tps.values[i] };
        CLI_TRY(cli_rank_of(&layer.rank, preset, layer.tp));
        for (int j = 0; j < dtypes.count; ++j) {
            layer.dtype = dtypes.values[j];
            add_layer(list, &layer);
        }
    }
    return CLI_OK;
}
