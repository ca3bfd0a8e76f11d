/*
 * test_cli_presets.c - the shipped presets, and what a preset file may hold.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/presets.h"
#include "cli/resolve.h"

/* Value heads of each model; all have 16 key heads of 128, and four taps without bias. */
static const struct {
    const char *model;
    int64_t v_heads;
    int projection;
} models[] = {
    { "qwen3-next-80b-a3b", 32, GDN_CONV_X_INTERLEAVED },
    { "qwen3.5-0.8b", 16, GDN_CONV_X_PACKED },
    { "qwen3.5-2b", 16, GDN_CONV_X_PACKED },
    { "qwen3.5-4b", 32, GDN_CONV_X_PACKED },
    { "qwen3.5-9b", 32, GDN_CONV_X_PACKED },
    { "qwen3.5-27b", 48, GDN_CONV_X_PACKED },
    { "qwen3.5-35b-a3b", 32, GDN_CONV_X_PACKED },
    { "qwen3.5-122b", 64, GDN_CONV_X_PACKED },
    { "qwen3.5-397b", 64, GDN_CONV_X_PACKED },
    { "qwen3.6-27b", 48, GDN_CONV_X_PACKED },
    { "qwen3.8-27b", 48, GDN_CONV_X_PACKED },
    { "qwen3.8-2.4t", 128, GDN_CONV_X_PACKED },
    { "qwen4-exp", 48, GDN_CONV_X_PACKED },
};
enum { NUM_MODELS = sizeof models / sizeof models[0] };

static struct cli_names shipped_dirs(void)
{
    struct cli_names dirs = { 0 };
    cli_preset_dirs(&dirs, GDN_SOURCE_DIR "/tuning/presets");
    return dirs;
}

static struct cli_preset find(const char *model)
{
    struct cli_names dirs = shipped_dirs();
    struct cli_preset preset = { 0 };
    cr_assert_eq(cli_preset_find(&preset, &dirs, model), CLI_OK, "%s: %s", model, cli_error());
    cli_names_free(&dirs);
    return preset;
}

Test(cli_presets, shipped_ones_are_all_known_and_hold_the_published_heads)
{
    for (int i = 0; i < NUM_MODELS; ++i) {
        const struct cli_preset p = find(models[i].model);
        cr_expect_str_eq(p.model, models[i].model);
        cr_expect_eq(p.num_k_heads, 16, "%s", p.model);
        cr_expect_eq(p.num_v_heads, models[i].v_heads, "%s: %lld", p.model, (long long)p.num_v_heads);
        cr_expect_eq(p.head_dim_k, 128);
        cr_expect_eq(p.head_dim_v, 128);
        cr_expect_eq(p.conv_width, 4);
        cr_expect_eq(p.conv_bias, false);
        cr_expect_eq(p.projection, models[i].projection, "%s", p.model);
        cr_expect_eq(p.dtype, GDN_BF16);
        cr_expect_eq(p.max_tp, 16);
    }
}

Test(cli_presets, a_file_is_called_as_its_model)
{
    struct cli_names dirs = shipped_dirs(), names = { 0 };
    cli_preset_names(&names, &dirs);
    cr_assert_eq(names.count, NUM_MODELS);
    for (size_t i = 0; i < names.count; ++i)
        cr_expect_str_eq(find(names.items[i]).model, names.items[i]);
    cli_names_free(&names);
    cli_names_free(&dirs);
}

#define LAYER                                                                                                          \
    "\"num_k_heads\":%s,\"num_v_heads\":8,\"head_dim_k\":128,\"head_dim_v\":128,\"conv_width\":4,\"conv_bias\":%s"
#define PRESET "{\"schema\":%s,\"model\":%s,\"linear_attention\":{" LAYER "},\"dtype\":%s,\"max_tp\":%s%s}"

static int parse(const char *text, struct cli_preset *out)
{
    cJSON *root = NULL;
    int code = cli_json_parse("p.json", text, strlen(text), &root);
    if (code == CLI_OK) code = cli_preset_from_json(out, "p.json", root);
    cJSON_Delete(root);
    return code;
}

Test(cli_presets, a_preset_is_read_whole)
{
    struct cli_preset p = { 0 };
    char text[512];
    snprintf(text, sizeof text, PRESET, "1", "\"m\"", "4", "true", "\"fp16\"", "2", "");
    cr_assert_eq(parse(text, &p), CLI_OK, "%s", cli_error());
    cr_assert_str_eq(p.model, "m");
    cr_assert_eq(p.num_k_heads, 4);
    cr_assert_eq(p.num_v_heads, 8);
    cr_assert_eq(p.conv_bias, true);
    cr_assert_eq(p.dtype, GDN_F16);
    cr_assert_eq(p.projection, GDN_CONV_X_PACKED, "the default");
    cr_assert_eq(p.max_tp, 2);
    snprintf(text, sizeof text, PRESET, "1", "\"m\"", "4", "true,\"projection\":\"interleaved\"", "\"fp16\"", "2", "");
    cr_assert_eq(parse(text, &p), CLI_OK, "%s", cli_error());
    cr_assert_eq(p.projection, GDN_CONV_X_INTERLEAVED);
}

Test(cli_presets, a_bad_preset_is_refused_with_its_reason)
{
    static const struct {
        const char *schema, *model, *k_heads, *bias, *dtype, *max_tp, *more, *words;
    } rows[] = {
        { "2", "\"m\"", "4", "true", "\"fp16\"", "2", "", "\"schema\" is 2" },
        { "1", "\"\"", "4", "true", "\"fp16\"", "2", "", "\"model\" has 0 characters" },
        { "1", "\"m\\nfailed\"", "4", "true", "\"fp16\"", "2", "",
          "p.json: \"model\" has the control character U+000A" },
        { "1", "\"m\\u007f\"", "4", "true", "\"fp16\"", "2", "", "\"model\" has the control character U+007F" },
        { "1", "7", "4", "true", "\"fp16\"", "2", "", "\"model\" is 7: must be a string" },
        { "1", "\"m\"", "0", "true", "\"fp16\"", "2", "", "linear_attention: \"num_k_heads\" is 0" },
        { "1", "\"m\"", "4", "0", "\"fp16\"", "2", "", "\"conv_bias\" is 0: must be true or false" },
        { "1", "\"m\"", "4", "true,\"projection\":\"z\"", "\"fp16\"", "2", "",
          "\"projection\" is \"z\": must be packed or interleaved" },
        { "1", "\"m\"", "4", "true", "\"fp8\"", "2", "", "\"dtype\" is \"fp8\": must be bf16 or fp16" },
        { "1", "\"m\"", "4", "true", "\"fp16\"", "3", "", "\"max_tp\" is 3: must divide" },
        { "1", "\"m\"", "4", "true", "\"fp16\"", "8", "", "\"max_tp\" is 8: must divide" },
        { "1", "\"m\"", "4", "true", "\"fp16\"", "2", ",\"layers\":3", "\"layers\" is no member" },
        { "1", "\"m\"", "4,\"num_k_heads\":4", "true", "\"fp16\"", "2", "", "\"num_k_heads\" is given twice" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct cli_preset p = { 0 };
        char text[512];
        snprintf(text, sizeof text, PRESET, rows[i].schema, rows[i].model, rows[i].k_heads, rows[i].bias, rows[i].dtype,
                 rows[i].max_tp, rows[i].more);
        cr_expect_eq(parse(text, &p), CLI_USAGE, "%s", text);
        cr_expect(strstr(cli_error(), rows[i].words), "%s: \"%s\" lacks \"%s\"", text, cli_error(), rows[i].words);
    }
}

Test(cli_presets, an_unknown_model_lists_the_known_ones)
{
    struct cli_names dirs = shipped_dirs();
    struct cli_preset p;
    cr_assert_eq(cli_preset_find(&p, &dirs, "qwen9"), CLI_USAGE);
    cr_assert(strstr(cli_error(), "\"qwen9\" is not known: use one of qwen3-next-80b-a3b, "), "%s", cli_error());
    cli_names_free(&dirs);
}

/* As where the tool was copied without its presets: an empty list of models would be no remedy. */
Test(cli_presets, where_there_are_none_their_folder_is_asked_for)
{
    const struct cli_options options = { .presets_dir = "/nowhere" };
    struct cli_shapes shapes = { 0 };
    cr_assert_eq(cli_resolve_shapes(&options, &shapes), CLI_USAGE);
    cr_assert(strstr(cli_error(), "no presets found in /nowhere: name their folder with --presets"), "%s", cli_error());
    cr_assert_eq(shapes.count, 0);
}
