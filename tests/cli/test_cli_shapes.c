/*
 * test_cli_shapes.c - shape lists in JSON: what they become, what is refused, and damaged text of every kind.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/shapes.h"

#define HEADS "\"num_q_heads\":4,\"num_k_heads\":4,\"num_v_heads\":8,\"head_dim_qk\":128,\"head_dim_v\":128"

static int read_list(struct cli_shapes *list, const char *text, size_t len)
{
    cJSON *root = NULL;
    int code = cli_json_parse("dir/s.json", text, len, &root);
    if (code == CLI_OK) code = cli_shapes_from_json(list, "dir/s.json", root);
    cJSON_Delete(root);
    return code;
}

static const char good[] =
    "[{\"op\":\"gdn_prefill\"," HEADS ",\"io_type\":\"fp16\",\"state_layout\":\"vk\",\"state_type\":\"fp32\","
    "\"max_tokens\":777,\"max_seqs\":3},\n"
    "{\"op\":\"conv1d_qkv\"," HEADS ",\"width\":3,\"flags\":[\"bias\"],\"x_alignment\":4,"
    "\"state_layout\":\"wc\"}]";

Test(cli_shapes, every_member_reaches_the_descriptor)
{
    struct cli_shapes list = { 0 };
    cr_assert_eq(read_list(&list, good, sizeof good - 1), CLI_OK, "%s", cli_error());
    cr_assert_eq(list.count, 2);
    cr_assert_eq(list.items[0].op, CLI_PREFILL);
    const gdn_prefill_desc *p = &list.items[0].desc.prefill;
    cr_expect_eq(p->struct_size, sizeof *p);
    cr_expect_eq(p->io_type, GDN_F16);
    cr_expect_eq(p->state_type, GDN_F32);
    cr_expect_eq(p->state_layout, GDN_STATE_VK);
    cr_expect(p->num_q_heads == 4 && p->num_k_heads == 4 && p->num_v_heads == 8);
    cr_expect(p->head_dim_qk == 128 && p->head_dim_v == 128);
    cr_expect(p->max_tokens == 777 && p->max_seqs == 3);
    cr_assert_eq(list.items[1].op, CLI_CONV1D);
    const gdn_conv1d_desc *c = &list.items[1].desc.conv1d;
    cr_expect_eq(c->struct_size, sizeof *c);
    cr_expect_eq(c->io_type, GDN_BF16);
    cr_expect_eq(c->state_layout, GDN_CONV_STATE_WC);
    cr_expect(c->num_q_heads == 4 && c->num_k_heads == 4 && c->num_v_heads == 8);
    cr_expect_eq(c->width, 3);
    cr_expect_eq(c->flags, GDN_CONV_BIAS);
    cr_expect_eq(c->x_alignment, 4);
    cr_expect(c->max_tokens == CLI_DEFAULT_MAX_TOKENS && c->max_seqs == CLI_DEFAULT_MAX_SEQS);
    cr_expect_str_eq(list.items[1].label, "s.json #2");
    cli_shapes_free(&list);
}

Test(cli_shapes, prefill_conventions_reach_the_descriptor_and_the_text)
{
    static const char text[] =
        "[{\"op\":\"gdn_prefill\"," HEADS ",\"state_type\":\"bf16\",\"head_map\":\"tiled\",\"gate\":\"logits\","
        "\"gate_type\":\"bf16\",\"beta\":\"logits\",\"beta_type\":\"fp16\",\"cu_seqlens_type\":\"int64\","
        "\"slot_type\":\"int64\",\"flags\":[\"qk_l2norm\",\"beta_times_2\",\"checkpoints\",\"zero_padding\","
        "\"programmatic_launch\"],\"plan_flags\":[\"generic\"]},"
        "{\"op\":\"conv1d_qkv\"," HEADS ",\"plan_flags\":[\"heuristic\",\"tuned_only\"]}]";
    struct cli_shapes list = { 0 };
    char out[CLI_SHAPE_TEXT];
    cr_assert_eq(read_list(&list, text, sizeof text - 1), CLI_OK, "%s", cli_error());
    const gdn_prefill_desc *p = &list.items[0].desc.prefill;
    cr_expect(p->state_type == GDN_BF16 && p->head_map == GDN_HEADS_TILED);
    cr_expect(p->gate == GDN_GATE_LOGITS && p->gate_type == GDN_BF16);
    cr_expect(p->beta == GDN_BETA_LOGITS && p->beta_type == GDN_F16);
    cr_expect(p->cu_seqlens_type == GDN_INDEX_I64 && p->slot_type == GDN_INDEX_I64);
    cr_expect_eq(p->flags, 31);
    cr_expect_eq(list.items[0].plan_flags, GDN_PLAN_GENERIC);
    cr_expect_str_eq(cli_shape_text(out, &list.items[0]),
                     "gdn_prefill bf16 heads 4/4/8 dims 128/128 state kv bf16 tiled gate logits bf16 beta logits fp16 "
                     "cu_seqlens int64 slots int64 qk_l2norm beta_times_2 checkpoints zero_padding programmatic_launch, "
                     "plan generic");
    cr_expect_str_eq(cli_shape_text(out, &list.items[1]),
                     "conv1d_qkv bf16 heads 4/4/8 dims 128/128 width 4 state cw silu, x aligned to 16, plan heuristic, "
                     "plan tuned_only");
    cr_expect_eq(list.items[1].plan_flags, GDN_PLAN_HEURISTIC | GDN_PLAN_TUNED_ONLY);
    cli_shapes_free(&list);
}

Test(cli_shapes, a_short_shape_has_the_headers_defaults)
{
    struct cli_shapes list = { 0 };
    const char *text = "[{\"op\":\"conv1d_qkv\"," HEADS "},{\"op\":\"gdn_prefill\"," HEADS "}]";
    const gdn_conv1d_desc conv = GDN_CONV1D_DESC_INIT;
    const gdn_prefill_desc prefill = GDN_PREFILL_DESC_INIT;
    cr_assert_eq(read_list(&list, text, strlen(text)), CLI_OK, "%s", cli_error());
    cr_expect_eq(list.items[0].desc.conv1d.width, conv.width);
    cr_expect_eq(list.items[0].desc.conv1d.flags, conv.flags);
    cr_expect_eq(list.items[0].desc.conv1d.state_layout, conv.state_layout);
    cr_expect_eq(list.items[0].desc.conv1d.io_type, conv.io_type);
    cr_expect_eq(list.items[1].desc.prefill.state_layout, prefill.state_layout);
    gdn_prefill_desc *short_shape = &list.items[1].desc.prefill;
    cr_expect_eq(short_shape->state_type, prefill.state_type);
    cr_expect(short_shape->gate == prefill.gate && short_shape->gate_type == prefill.gate_type);
    cr_expect(short_shape->beta == prefill.beta && short_shape->beta_type == prefill.beta_type);
    cr_expect(short_shape->head_map == prefill.head_map && short_shape->flags == 0);
    cli_shapes_free(&list);
}

Test(cli_shapes, a_bad_list_is_refused_with_its_reason)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "{}", "must be an array" },
        { "[]", "holds no shape" },
        { "[3]", "shape 1: must be an object" },
        { "[{}]", "shape 1: member \"op\" is missing: must be gdn_prefill or conv1d_qkv" },
        { "[{\"op\":1}]", "shape 1: \"op\" is 1: must be gdn_prefill or conv1d_qkv" },
        { "[{\"op\":[]}]", "shape 1: \"op\" is an array: must be gdn_prefill or conv1d_qkv" },
        { "[{\"op\":null}]", "shape 1: \"op\" is null: must be gdn_prefill or conv1d_qkv" },
        { "[{\"op\":\"gdn\"}]", "\"op\" is \"gdn\": must be gdn_prefill or conv1d_qkv" },
        { "[{\"op\":\"gdn_prefill\"}]", "shape 1: member \"num_q_heads\" is missing: must be an integer" },
        { "[{\"op\":\"gdn_prefill\"," HEADS "},{\"op\":\"gdn_prefill\"," HEADS ",\"width\":4}]",
          "shape 2: \"width\" is no member" },
        { "[{\"op\":\"gdn_prefill\"," HEADS ",\"state_layout\":\"cw\"}]",
          "\"state_layout\" is \"cw\": must be kv or vk" },
        { "[{\"op\":\"conv1d_qkv\"," HEADS ",\"state_layout\":\"kv\"}]",
          "\"state_layout\" is \"kv\": must be cw, wc or cw_strided" },
        { "[{\"op\":\"conv1d_qkv\"," HEADS ",\"flags\":[\"relu\"]}]", "\"flags\" holds \"relu\": must be silu, bias," },
        { "[{\"op\":\"conv1d_qkv\"," HEADS ",\"flags\":[1]}]", "\"flags\" holds no string" },
        { "[{\"op\":\"conv1d_qkv\"," HEADS ",\"flags\":1}]", "\"flags\" is 1: must be an array" },
        { "[{\"op\":\"gdn_prefill\"," HEADS ",\"plan_flags\":[\"cached\"]}]",
          "\"plan_flags\" holds \"cached\": must be generic, heuristic, tuned_only, whole_sequences or batch_invariant" },
        { "[{\"op\":\"conv1d_qkv\"," HEADS ",\"plan_flags\":7}]", "\"plan_flags\" is 7: must be an array" },
        { "[{\"op\":\"gdn_prefill\",\"op\":\"gdn_prefill\"," HEADS "}]", "\"op\" is given twice" },
        { "[{\"op\":\"gdn_prefill\"," HEADS ",\"max_tokens\":4294967296}]", "\"max_tokens\" is 4294967296" },
        { "[{\"op\":\"gdn_prefill\"," HEADS ",\"max_tokens\":1e3000}]", "\"max_tokens\" is inf: must be an integer" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        struct cli_shapes list = { 0 };
        cr_expect_eq(read_list(&list, rows[i].text, strlen(rows[i].text)), CLI_USAGE, "%s", rows[i].text);
        cr_expect(strstr(cli_error(), rows[i].words), "%s: \"%s\" lacks \"%s\"", rows[i].text, cli_error(),
                  rows[i].words);
        cli_shapes_free(&list);
    }
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Cuts, repeats and overwrites: whatever comes out is read or refused with a sentence; a sanitizer sees the rest. */
Test(cli_shapes, damaged_text_is_read_or_refused_with_a_sentence)
{
    enum { ROUNDS = 20000 };
    static const char alphabet[] = "{}[]\",:0123456789eE+-.truefalsn\\u \n";
    uint64_t seed = 20261121;
    int refused = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        size_t len = sizeof good - 1;
        if (next(&seed) % 4 == 0) len = next(&seed) % sizeof good;
        for (uint64_t edits = 1 + next(&seed) % 4; len && edits; --edits)
            text[next(&seed) % len] =
                next(&seed) % 8 ? alphabet[next(&seed) % (sizeof alphabet - 1)] : (char)next(&seed);
        text[len] = '\0';
        struct cli_shapes list = { 0 };
        const int code = read_list(&list, text, len);
        refused += code == CLI_USAGE;
        cr_assert(code == CLI_OK ? list.count > 0 : code == CLI_USAGE && cli_error()[0], "round %d: code %d, %s", round,
                  code, text);
        cli_shapes_free(&list);
    }
    cr_assert_gt(refused, ROUNDS / 2, "only %d of %d were refused", refused, ROUNDS);
}

Test(cli_shapes, a_file_over_the_cap_is_refused)
{
    char path[] = "/tmp/gdn_shapes_XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    FILE *file = fdopen(fd, "w");
    for (int i = 0; i <= CLI_JSON_MAX_BYTES; ++i)
        fputc(' ', file);
    fclose(file);
    struct cli_shapes list = { 0 };
    cr_expect_eq(cli_shapes_read(&list, path), CLI_USAGE);
    cr_expect(strstr(cli_error(), "larger than 1 MiB"), "%s", cli_error());
    remove(path);
    cr_expect_eq(cli_shapes_read(&list, path), CLI_USAGE);
    cr_expect(strstr(cli_error(), "cannot open"), "%s", cli_error());
    cr_expect_eq(cli_shapes_read(&list, "/tmp"), CLI_USAGE);
    cr_expect(strstr(cli_error(), "cannot read /tmp"), "%s", cli_error());
}

Test(cli_shapes, a_shape_reads_well)
{
    struct cli_shapes list = { 0 };
    char text[CLI_SHAPE_TEXT];
    cr_assert_eq(read_list(&list, good, sizeof good - 1), CLI_OK, "%s", cli_error());
    cr_expect_str_eq(cli_shape_text(text, &list.items[0]), "gdn_prefill fp16 heads 4/4/8 dims 128/128 state vk");
    cr_expect_str_eq(cli_shape_text(text, &list.items[1]),
                     "conv1d_qkv bf16 heads 4/4/8 dims 128/128 width 3 state wc bias, x aligned to 4");
    cli_shapes_free(&list);
}
