/*
 * test_cli_expand.c - what warm builds of a model: the sizes of every rank, and every shape that an engine plans for it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/expand.h"

static struct cli_preset find(const char *model)
{
    struct cli_names dirs = { 0 };
    struct cli_preset preset = { 0 };
    cli_preset_dirs(&dirs, GDN_SOURCE_DIR "/tuning/presets");
    cr_assert_eq(cli_preset_find(&preset, &dirs, model), CLI_OK, "%s: %s", model, cli_error());
    cli_names_free(&dirs);
    return preset;
}

static struct cli_expansion defaults(void)
{
    return (struct cli_expansion){ .max_tokens = 4096, .max_seqs = 8 };
}

static struct cli_shapes expand(const struct cli_preset *preset, const struct cli_expansion *how)
{
    struct cli_shapes shapes = { 0 };
    cr_assert_eq(cli_preset_expand(&shapes, preset, how), CLI_OK, "%s", cli_error());
    return shapes;
}

static struct cli_ints one(int value)
{
    return (struct cli_ints){ .count = 1, .values = { value } };
}

/*
 * Channels of v and of the conv at TP 1, 2, 4, 8, 16 (q and k have 2048 / TP each), bytes that the fused prologue moves for
 * a token at TP 1, and how rows [q | k | v | z | b | a] are aligned. Computed by hand from the models' configurations.
 */
static const struct size {
    const char *models[4];
    int32_t v[5], conv[5];
    int32_t bytes;
    int alignment[5];
} sizes[] = {
    { { "qwen3.5-0.8b", "qwen3.5-2b" },
      { 2048, 1024, 512, 256, 128 },
      { 6144, 3072, 1536, 768, 384 },
      24576,
      { 16, 16, 16, 8, 4 } },
    { { "qwen3-next-80b-a3b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-35b-a3b" },
      { 4096, 2048, 1024, 512, 256 },
      { 8192, 4096, 2048, 1024, 512 },
      32768,
      { 16, 16, 16, 16, 8 } },
    { { "qwen3.5-27b", "qwen3.6-27b", "qwen3.8-27b", "qwen4-exp" },
      { 6144, 3072, 1536, 768, 384 },
      { 10240, 5120, 2560, 1280, 640 },
      40960,
      { 16, 16, 16, 8, 4 } },
    { { "qwen3.5-122b", "qwen3.5-397b" },
      { 8192, 4096, 2048, 1024, 512 },
      { 12288, 6144, 3072, 1536, 768 },
      49152,
      { 16, 16, 16, 16, 16 } },
    { { "qwen3.8-2.4t" },
      { 16384, 8192, 4096, 2048, 1024 },
      { 20480, 10240, 5120, 2560, 1280 },
      81920,
      { 16, 16, 16, 16, 16 } },
};
enum { NUM_SIZES = sizeof sizes / sizeof sizes[0], NUM_TPS = 5 };
static const int tps[NUM_TPS] = { 1, 2, 4, 8, 16 };

static int64_t channels(const gdn_conv1d_desc *d)
{
    return (d->num_q_heads + d->num_k_heads) * (int64_t)d->head_dim_qk + d->num_v_heads * (int64_t)d->head_dim_v;
}

static void check_sizes(const char *model, const struct size *s, int t)
{
    const struct cli_preset p = find(model);
    struct cli_expansion how = defaults();
    struct cli_rank rank;
    how.tp = one(tps[t]);
    struct cli_shapes shapes = expand(&p, &how);
    cr_assert_eq(cli_rank_of(&rank, &p, tps[t]), CLI_OK);
    cr_expect_eq(cli_row_alignment(&p, &rank), s->alignment[t], "%s tp%d", model, tps[t]);
    cr_assert_gt(shapes.count, 0);
    for (size_t i = 0; i < shapes.count; ++i) {
        const gdn_conv1d_desc *c = &shapes.items[i].desc.conv1d;
        const gdn_prefill_desc *g = &shapes.items[i].desc.prefill;
        if (shapes.items[i].op == CLI_CONV1D) {
            cr_expect_eq(c->num_q_heads * c->head_dim_qk, 2048 / tps[t], "%s tp%d", model, tps[t]);
            cr_expect_eq(c->num_k_heads * c->head_dim_qk, 2048 / tps[t], "%s tp%d", model, tps[t]);
            cr_expect_eq(c->num_v_heads * c->head_dim_v, s->v[t], "%s tp%d", model, tps[t]);
            cr_expect_eq(channels(c), s->conv[t], "%s tp%d", model, tps[t]);
            if (t == 0) cr_expect_eq(2 * 2 * channels(c), s->bytes, "%s", model);
        } else {
            cr_expect_eq(g->num_q_heads * g->head_dim_qk, 2048 / tps[t], "%s tp%d", model, tps[t]);
            cr_expect_eq(g->num_k_heads * g->head_dim_qk, 2048 / tps[t], "%s tp%d", model, tps[t]);
            cr_expect_eq(g->num_v_heads * g->head_dim_v, s->v[t], "%s tp%d", model, tps[t]);
        }
    }
    cli_shapes_free(&shapes);
}

Test(cli_expand, every_rank_of_every_model_has_the_published_sizes)
{
    int models = 0;
    for (int i = 0; i < NUM_SIZES; ++i)
        for (int m = 0; m < 4 && sizes[i].models[m]; ++m, ++models)
            for (int t = 0; t < NUM_TPS; ++t)
                check_sizes(sizes[i].models[m], &sizes[i], t);
    cr_assert_eq(models, 13);
}

Test(cli_expand, a_size_that_does_not_fit_is_refused_with_the_way_out)
{
    static const struct {
        int tp;
        const char *words;
    } rows[] = {
        { 3, "must divide the 16 key heads and 48 value heads of qwen3.5-27b: use one of 1, 2, 4, 8, 16" },
        { 32, "use --tp 16, or give a rank's own heads with --shapes" },
    };
    const struct cli_preset p = find("qwen3.5-27b");
    for (int i = 0; i < 2; ++i) {
        struct cli_expansion how = defaults();
        struct cli_shapes shapes = { 0 };
        how.tp = one(rows[i].tp);
        cr_expect_eq(cli_preset_expand(&shapes, &p, &how), CLI_USAGE, "tp %d", rows[i].tp);
        cr_expect(strstr(cli_error(), rows[i].words), "tp %d: %s", rows[i].tp, cli_error());
        cli_shapes_free(&shapes);
    }
}

/* The texts of all shapes, a line each. */
static void expect_shapes(const char *model, const struct cli_expansion *how, const char *const *lines, size_t count)
{
    const struct cli_preset p = find(model);
    struct cli_shapes shapes = expand(&p, how);
    cr_expect_eq(shapes.count, count, "%s: %zu shapes", model, shapes.count);
    for (size_t i = 0; i < shapes.count && i < count; ++i) {
        char text[CLI_SHAPE_TEXT];
        cr_expect_str_eq(cli_shape_text(text, &shapes.items[i]), lines[i]);
        cr_expect_str_eq(shapes.items[i].label, shapes.items[0].label);
    }
    cli_shapes_free(&shapes);
}
#define EXPECT_SHAPES(model, how, ...)                                                                                 \
    do {                                                                                                               \
        const char *const lines_[] = { __VA_ARGS__ };                                                                  \
        expect_shapes(model, how, lines_, sizeof lines_ / sizeof lines_[0]);                                           \
    } while (0)

Test(cli_expand, a_rank_has_every_prologue_that_engines_make)
{
    struct cli_expansion how = defaults();
    how.tp = one(8);
    EXPECT_SHAPES(
        "qwen3.5-27b", &how,
        "conv1d_qkv bf16 heads 2/2/6 dims 128/128 width 4 state cw silu l2_norm, 6 gate heads, x aligned to 16",
        "conv1d_qkv bf16 heads 2/2/6 dims 128/128 width 4 state cw silu l2_norm, 6 gate heads, x aligned to 8",
        "conv1d_qkv bf16 heads 2/2/6 dims 128/128 width 4 state cw silu l2_norm, 6 gate heads, "
        "dt_bias bf16, x aligned to 16",
        "conv1d_qkv bf16 heads 2/2/6 dims 128/128 width 4 state cw silu l2_norm, 6 gate heads, "
        "dt_bias bf16, x aligned to 8",
        "conv1d_qkv bf16 heads 2/2/6 dims 128/128 width 4 state cw silu, x aligned to 16",
        "conv1d_qkv bf16 heads 2/2/6 dims 128/128 width 4 state cw silu, x aligned to 8",
        "gdn_prefill bf16 heads 2/2/6 dims 128/128 state kv",
        "gdn_prefill bf16 heads 2/2/6 dims 128/128 state kv qk_l2norm",
        "gdn_prefill bf16 heads 2/2/6 dims 128/128 state kv beta plain bf16 qk_l2norm",
        "gdn_prefill bf16 heads 2/2/6 dims 128/128 state kv gate logits bf16 beta logits bf16 qk_l2norm");
}

Test(cli_expand, a_projection_by_groups_is_read_by_the_fused_prologue_alone)
{
    struct cli_expansion how = defaults();
    how.tp = one(4);
    how.dt_bias_types = one(GDN_F32);
    EXPECT_SHAPES("qwen3-next-80b-a3b", &how,
                  "conv1d_qkv bf16 heads 4/4/8 dims 128/128 width 4 state cw silu l2_norm interleaved, 8 gate heads, "
                  "x aligned to 16",
                  "conv1d_qkv bf16 heads 4/4/8 dims 128/128 width 4 state cw silu, x aligned to 16",
                  "gdn_prefill bf16 heads 4/4/8 dims 128/128 state kv",
                  "gdn_prefill bf16 heads 4/4/8 dims 128/128 state kv qk_l2norm",
                  "gdn_prefill bf16 heads 4/4/8 dims 128/128 state kv beta plain bf16 qk_l2norm",
                  "gdn_prefill bf16 heads 4/4/8 dims 128/128 state kv gate logits bf16 beta logits bf16 qk_l2norm");
}

Test(cli_expand, prologues_are_chosen_one_by_one)
{
    struct cli_expansion how = defaults();
    how.tp = one(1);
    how.prologues = one(CLI_PROLOGUE_FUSED);
    how.dt_bias_types = one(GDN_F16);
    how.features = (struct cli_ints){ 2, { CLI_WITH_ZERO_PADDING, CLI_WITH_CHECKPOINTS } };
    how.generic = true;
    EXPECT_SHAPES("qwen3.5-2b", &how,
                  "conv1d_qkv bf16 heads 16/16/16 dims 128/128 width 4 state cw silu l2_norm zero_padding checkpoints, "
                  "16 gate heads, dt_bias fp16, x aligned to 16",
                  "gdn_prefill bf16 heads 16/16/16 dims 128/128 state kv checkpoints zero_padding",
                  "gdn_prefill bf16 heads 16/16/16 dims 128/128 state kv checkpoints zero_padding, plan generic");
    how = defaults();
    how.tp = one(1);
    how.prologues = one(CLI_PROLOGUE_LOGITS);
    how.features = one(CLI_WITH_PROGRAMMATIC_LAUNCH);
    EXPECT_SHAPES("qwen3.5-2b", &how,
                  "conv1d_qkv bf16 heads 16/16/16 dims 128/128 width 4 state cw silu launch_dependents, x aligned to 16",
                  "gdn_prefill bf16 heads 16/16/16 dims 128/128 state kv gate logits bf16 beta logits bf16 qk_l2norm "
                  "programmatic_launch");
    how = defaults();
    how.tp = one(1);
    how.prologues = one(CLI_PROLOGUE_LOGITS);
    EXPECT_SHAPES("qwen3.5-2b", &how,
                  "conv1d_qkv bf16 heads 16/16/16 dims 128/128 width 4 state cw silu, x aligned to 16",
                  "gdn_prefill bf16 heads 16/16/16 dims 128/128 state kv gate logits bf16 beta logits bf16 qk_l2norm");
}

Test(cli_expand, lists_multiply)
{
    const struct cli_preset p = find("qwen3-next-80b-a3b");
    struct cli_expansion how = defaults();
    how.tp = one(4);
    how.prologues = one(CLI_PROLOGUE_FUSED);
    how.dtypes = (struct cli_ints){ 2, { GDN_BF16, GDN_F16 } };
    how.dt_bias_types = one(GDN_F32);
    how.state_layouts = (struct cli_ints){ 2, { GDN_STATE_KV, GDN_STATE_VK } };
    how.conv_layouts = one(GDN_CONV_STATE_WC);
    how.x_alignments = (struct cli_ints){ 3, { 16, 8, 4 } };
    struct cli_shapes shapes = expand(&p, &how);
    cr_assert_eq(shapes.count, 2 * (3 + 2));
    cr_expect_eq(shapes.items[0].desc.conv1d.state_layout, GDN_CONV_STATE_WC);
    cr_expect_eq(shapes.items[2].desc.conv1d.x_alignment, 4);
    cr_expect_eq(shapes.items[4].desc.prefill.state_layout, GDN_STATE_VK);
    cr_expect_eq(shapes.items[9].desc.prefill.io_type, GDN_F16);
    for (size_t i = 0; i < shapes.count; ++i) {
        const struct cli_shape *s = &shapes.items[i];
        cr_expect_eq(s->op == CLI_CONV1D ? s->desc.conv1d.max_tokens : s->desc.prefill.max_tokens, 4096);
        cr_expect_eq(s->op == CLI_CONV1D ? s->desc.conv1d.max_seqs : s->desc.prefill.max_seqs, 8);
    }
    cli_shapes_free(&shapes);
}

Test(cli_expand, without_a_size_every_power_of_two_up_to_the_most_is_taken)
{
    struct cli_preset p = find("qwen3.5-27b");
    struct cli_expansion how = defaults();
    how.prologues = one(CLI_PROLOGUE_FUSED);
    how.x_alignments = one(16);
    how.dt_bias_types = one(GDN_F32);
    p.conv_bias = true;
    struct cli_shapes shapes = expand(&p, &how);
    cr_assert_eq(shapes.count, 2 * NUM_TPS);
    for (int t = 0; t < NUM_TPS; ++t) {
        cr_expect_eq(shapes.items[2 * t].desc.conv1d.num_k_heads, 16 / tps[t]);
        cr_expect_eq(shapes.items[2 * t].desc.conv1d.flags, GDN_CONV_SILU | GDN_CONV_L2_NORM | GDN_CONV_BIAS);
        cr_expect_eq(shapes.items[2 * t + 1].desc.prefill.num_v_heads, 48 / tps[t]);
    }
    cli_shapes_free(&shapes);
}
