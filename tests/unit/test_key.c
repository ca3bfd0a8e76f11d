/* Keys: equal where code is equal, different where it is not, and nothing that varies from call to call is in them. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/error.h"
#include "codegen/key.h"
#include "codegen/options.h"
#include "specs.h"

static struct gdni_key key_of(const struct gdni_spec *spec)
{
    struct gdni_unit unit;
    struct gdni_key key;
    cr_assert_eq(gdni_unit_build(&unit, spec), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_key_build(&key, &unit), GDN_OK, "%s", gdni_error_text());
    gdni_unit_free(&unit);
    return key;
}

static struct gdni_key prefill_key(gdn_prefill_desc d, const char *arch)
{
    const struct gdni_spec spec = test_prefill_spec(&d, arch, 3);
    return key_of(&spec);
}

static struct gdni_key conv_key(gdn_conv1d_desc d, const char *arch, int bucket)
{
    const struct gdni_spec spec = test_conv1d_spec(&d, arch, bucket);
    return key_of(&spec);
}

Test(key, prefill_does_not_depend_on_bounds_or_head_counts)
{
    const struct gdni_key first = prefill_key(test_prefill_desc(), "sm_90a");
    gdn_prefill_desc d = test_prefill_desc();
    d.max_tokens = 1 << 20;
    d.max_seqs = 4096;
    cr_expect_str_eq(prefill_key(d, "sm_90a").text, first.text);
    d.num_q_heads = d.num_k_heads = 1;
    d.num_v_heads = 3;
    cr_expect_str_eq(prefill_key(d, "sm_90a").text, first.text);
}

Test(key, conv_does_not_depend_on_bounds_but_on_the_tile_that_they_select)
{
    const struct gdni_key first = conv_key(test_conv1d_desc(), "sm_90a", 3);
    gdn_conv1d_desc d = test_conv1d_desc();
    d.max_tokens = 1 << 20;
    d.max_seqs = 4096;
    cr_expect_str_eq(conv_key(d, "sm_90a", 3).text, first.text);
    cr_expect_str_neq(conv_key(d, "sm_90a", 0).text, first.text);
}

Test(key, everything_that_changes_code_changes_the_key)
{
    struct gdni_key keys[8];
    gdn_prefill_desc d[8];
    for (int i = 0; i < 8; ++i) d[i] = test_prefill_desc();
    d[1].io_type = GDN_F16;
    d[2].state_layout = GDN_STATE_VK;
    d[3].head_dim_qk = d[3].head_dim_v = 64;
    static const char *const archs[8] = { "sm_90a", "sm_90a", "sm_90a", "sm_90a", "sm_80", "sm_86", "sm_100a", "sm_120a" };
    for (int i = 0; i < 8; ++i) keys[i] = prefill_key(d[i], archs[i]);
    for (int i = 0; i < 8; ++i)
        for (int j = i + 1; j < 8; ++j) {
            cr_expect_str_neq(keys[i].text, keys[j].text, "%d %d", i, j);
            cr_expect_str_neq(keys[i].hex, keys[j].hex, "%d %d", i, j);
        }
}

Test(key, prefill_conventions_that_are_code_change_the_key_and_those_that_are_addresses_do_not)
{
    enum { N = 15 };
    struct gdni_key keys[N];
    gdn_prefill_desc d[N];
    for (int i = 0; i < N; ++i) d[i] = test_prefill_desc();
    d[1].state_type = GDN_BF16;
    d[2].state_type = GDN_F16;
    d[3].gate = GDN_GATE_LINEAR;
    d[4].gate = GDN_GATE_LOGITS;
    d[5].gate_type = GDN_BF16;
    d[6].beta = GDN_BETA_LOGITS;
    d[7].beta_type = GDN_F16;
    d[8].cu_seqlens_type = GDN_INDEX_I64;
    d[9].slot_type = GDN_INDEX_I64;
    for (int i = 0; i < 5; ++i) d[10 + i].flags = 1u << i;
    for (int i = 0; i < N; ++i) keys[i] = prefill_key(d[i], "sm_90a");
    for (int i = 0; i < N; ++i)
        for (int j = i + 1; j < N; ++j) cr_expect_str_neq(keys[i].text, keys[j].text, "%d %d", i, j);
    gdn_prefill_desc same = test_prefill_desc();
    same.head_map = GDN_HEADS_TILED;
    same.cu_seqlens_type = same.slot_type = (gdn_index_type)0; /* the default, said otherwise */
    cr_expect_str_eq(prefill_key(same, "sm_90a").text, keys[0].text);
}

Test(key, conv_features_change_the_key)
{
    enum { FLAGS = 10, N = 15 + FLAGS };
    struct gdni_key keys[N];
    gdn_conv1d_desc d[N];
    for (int i = 0; i < N; ++i) {
        d[i] = test_conv1d_desc();
        d[i].num_gate_heads = 32;
        d[i].flags = GDN_CONV_SILU | GDN_CONV_L2_NORM;
    }
    d[1].io_type = GDN_F16;
    d[2].state_type = GDN_F32;
    d[3].width = 3;
    d[4].x_alignment = 8;
    d[5].state_layout = GDN_CONV_STATE_WC;
    d[6].state_layout = GDN_CONV_STATE_CW_STRIDED;
    d[7].x_layout = GDN_CONV_X_INTERLEAVED;
    d[8].num_gate_heads = 0;
    d[9].gate_type = GDN_F16;
    d[10].a_log_type = GDN_BF16;
    d[11].dt_bias_type = GDN_BF16;
    d[12].cu_seqlens_type = GDN_INDEX_I64;
    d[13].slot_type = GDN_INDEX_I64;
    d[14].head_dim_qk = 64;
    for (int i = 0; i < FLAGS; ++i) d[15 + i].flags ^= 1u << i;
    for (int i = 0; i < N; ++i) keys[i] = conv_key(d[i], "sm_90a", 3);
    for (int i = 0; i < N; ++i)
        for (int j = i + 1; j < N; ++j) cr_expect_str_neq(keys[i].text, keys[j].text, "%d %d", i, j);
}

/* NVRTC refuses to compile with an option that it does not know. */
Test(key, a_compiler_is_given_no_option_that_it_does_not_know)
{
    static const char *const since_12_9[] = { "--frandom-seed=gdn", "--no-cache" };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t k = 0; k < sizeof since_12_9 / sizeof since_12_9[0]; ++k)
        for (int version = 1208; version <= 1209; ++version) {
            struct gdni_options options;
            int given = 0;
            gdni_options_build(&options, arch, version);
            for (int i = 0; i < options.count; ++i) given += strcmp(options.text[i], since_12_9[k]) == 0;
            cr_expect_eq(given, version - 1208, "%s to NVRTC %d", since_12_9[k], version);
        }
}

Test(key, a_changed_template_changes_the_key)
{
    const gdn_prefill_desc d = test_prefill_desc();
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_90a", 3);
    struct gdni_unit unit;
    struct gdni_key before, after;
    cr_assert_eq(gdni_unit_build(&unit, &spec), GDN_OK);
    cr_assert_eq(gdni_key_build(&before, &unit), GDN_OK);
    unit.main_text = "other";
    cr_assert_eq(gdni_key_build(&after, &unit), GDN_OK);
    cr_expect_str_neq(before.text, after.text);
    for (int i = 0; i < unit.num_files; ++i) {
        const struct gdni_unit_file was = unit.files[i];
        struct gdni_key with_text, with_name;
        unit.files[i].text = "other";
        cr_assert_eq(gdni_key_build(&with_text, &unit), GDN_OK);
        unit.files[i] = was;
        unit.files[i].name = "other.cuh";
        cr_assert_eq(gdni_key_build(&with_name, &unit), GDN_OK);
        unit.files[i] = was;
        cr_expect_str_neq(with_text.text, after.text, "%s", was.name);
        cr_expect_str_neq(with_name.text, after.text, "%s", was.name);
        gdni_key_free(&with_text);
        gdni_key_free(&with_name);
    }
    gdni_unit_free(&unit);
}

Test(key, text_names_what_a_person_asks_for_and_no_path)
{
    const struct gdni_key key = prefill_key(test_prefill_desc(), "sm_90a");
    static const char *const wanted[] = { "gdn-jit key v1\nabi 1\n", "arch sm_90a\noptions " GDNI_OPTIONS_ID,
                                          "entry gdn_prefill_hopper\n", "int DK = 128;", "file gdn_prefill_hopper.cu " };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i)
        cr_expect_not_null(strstr(key.text, wanted[i]), "%s is not in\n%s", wanted[i], key.text);
    cr_expect_null(strchr(key.text, '/'), "a path in\n%s", key.text);
    char hex[GDNI_KEY_HEX];
    gdni_hash_hex(hex, key.text, key.len);
    cr_expect_str_eq(hex, key.hex);
    cr_expect_eq(strlen(key.hex), 32u);
}
