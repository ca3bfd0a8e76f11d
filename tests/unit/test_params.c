/* Parameters: legal values, buckets, and a heuristic that always gives something that fits. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "codegen/key.h"
#include "codegen/partition.h"
#include "codegen/workspace.h"
#include "specs.h"

Test(buckets, edges_are_powers_of_four_and_2048_and_belong_to_the_bucket_below)
{
    cr_expect_eq(gdni_bucket_of(0), 0);
    cr_expect_eq(gdni_bucket_of(256), 0);
    cr_expect_eq(gdni_bucket_of(257), 1);
    cr_expect_eq(gdni_bucket_of(1024), 1);
    cr_expect_eq(gdni_bucket_of(2048), 2);
    cr_expect_eq(gdni_bucket_of(2049), 3);
    cr_expect_eq(gdni_bucket_of(4096), 3);
    cr_expect_eq(gdni_bucket_of(262144), 6);
    cr_expect_eq(gdni_bucket_of(262145), 7);
    cr_expect_eq(gdni_bucket_of(INT64_MAX), GDNI_NUM_BUCKETS - 1);
    for (int b = 0; b + 1 < GDNI_NUM_BUCKETS; ++b) cr_expect_eq(gdni_bucket_of(gdni_bucket_edge(b)), b);
}

static struct gdni_problem prefill_problem(void)
{
    struct gdni_problem p;
    const gdn_prefill_desc d = test_prefill_desc();
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK);
    return p;
}

static struct gdni_problem conv_problem(int32_t heads)
{
    struct gdni_problem p;
    gdn_conv1d_desc d = test_conv1d_desc();
    d.num_q_heads = d.num_k_heads = d.num_v_heads = heads;
    cr_assert_eq(gdni_problem_from_conv1d(&p, &d), GDN_OK);
    return p;
}

Test(heuristic, fits_every_arch_in_every_bucket)
{
    const struct gdni_problem problems[] = { prefill_problem(), conv_problem(1), conv_problem(16), conv_problem(64) };
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; ++i)
        for (int a = 0; gdni_arch_at(a); ++a)
            for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
                struct gdni_params params;
                struct gdni_spec spec;
                gdni_params_heuristic(&params, &problems[i], gdni_arch_at(a), 0, bucket);
                cr_expect_eq(gdni_spec_build(&spec, &problems[i], gdni_arch_at(a), &params), GDN_OK,
                             "problem %zu %s bucket %d: %s", i, gdni_arch_at(a)->name, bucket, gdni_error_text());
            }
}

Test(heuristic, conv_tiles_are_halved_where_they_would_starve_the_gpu)
{
    static const struct {
        int32_t heads, tokens, tile;
    } wanted[] = { { 16, 256, 4 }, { 16, 1024, 8 }, { 16, 16384, 8 }, { 1, 4096, 4 },
                   { 1, 65536, 8 }, { 64, 256, 8 }, { 16, 4 << 20, 8 } };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_problem p = conv_problem(wanted[i].heads);
        struct gdni_params params;
        gdni_params_heuristic(&params, &p, arch, 132, gdni_bucket_of(wanted[i].tokens));
        cr_expect_eq(params.tile_tokens, wanted[i].tile, "%d heads, %d tokens: %d", wanted[i].heads, wanted[i].tokens,
                     params.tile_tokens);
    }
}

/* 48 heads of 128 channels: CTAs of 8 tokens an SM are 17.5 of 3072 tokens, 46.5 of 8192, which stand for 4096 and 16384. */
Test(heuristic, conv_tiles_are_of_twelve_with_the_norm_on_long_calls_where_an_sm_holds_four_ctas)
{
    static const struct {
        const char *arch;
        gdn_dtype type;
        uint32_t flags;
        int32_t tokens, tile;
    } wanted[] = {
        { "sm_90a", GDN_BF16, GDN_CONV_L2_NORM, 16384, 12 }, { "sm_90a", GDN_BF16, GDN_CONV_L2_NORM, 4096, 8 },
        { "sm_90a", GDN_F16, GDN_CONV_L2_NORM, 4194304, 12 },  { "sm_90a", GDN_BF16, GDN_CONV_L2_NORM, 256, 4 },
        { "sm_90a", GDN_BF16, 0, 65536, 8 },                 { "sm_90a", GDN_BF16, 0, 4194304, 8 },
        { "sm_90a", GDN_F32, GDN_CONV_L2_NORM, 4194304, 8 },   { "sm_86", GDN_BF16, GDN_CONV_L2_NORM, 4194304, 8 },
        { "sm_100a", GDN_BF16, GDN_CONV_L2_NORM, 4194304, 12 },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = conv_problem(16);
        const struct gdni_arch *arch = NULL;
        struct gdni_params params;
        p.io_type = wanted[i].type;
        p.flags |= wanted[i].flags;
        cr_assert_eq(gdni_arch_find(wanted[i].arch, &arch), GDN_OK);
        gdni_params_heuristic(&params, &p, arch, 0, gdni_bucket_of(wanted[i].tokens));
        cr_expect_eq(params.tile_tokens, wanted[i].tile, "row %zu: %d", i, params.tile_tokens);
        cr_expect_eq(params.cta_threads, 128);
    }
}

Test(heuristic, prefill_uses_three_stages_where_they_fit_and_two_in_99_KB)
{
    const struct gdni_problem p = prefill_problem();
    static const struct {
        const char *arch;
        int32_t stages;
    } wanted[] = { { "sm_80", 3 }, { "sm_86", 2 }, { "sm_100a", 3 }, { "sm_120a", 2 } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_arch *arch = NULL;
        struct gdni_params params;
        cr_assert_eq(gdni_arch_find(wanted[i].arch, &arch), GDN_OK);
        gdni_params_heuristic(&params, &p, arch, 0, 3);
        cr_expect_eq(params.stages, wanted[i].stages, "%s", wanted[i].arch);
    }
}

static struct gdni_problem few_heads(int heads)
{
    struct gdni_problem p;
    gdn_prefill_desc d = test_prefill_desc();
    d.num_q_heads = d.num_k_heads = d.num_v_heads = heads;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK);
    return p;
}

Test(heuristic, few_heads_get_narrow_blocks_that_leave_a_quarter_of_the_sms_to_the_producers)
{
    static const struct {
        const char *arch;
        int heads, seq_class, block_dv, stages; /* block_dv 0: none */
    } wanted[] = {
        { "sm_90a", 8, 0, 16, 3 },  { "sm_90a", 16, 0, 32, 3 }, { "sm_90a", 8, 1, 32, 3 },  { "sm_90a", 24, 0, 32, 3 },
        { "sm_90a", 25, 0, 0, 0 },  { "sm_90a", 16, 1, 0, 0 },  { "sm_90a", 1, 4, 32, 3 },  { "sm_90a", 1, 5, 0, 0 },
        { "sm_120a", 16, 0, 32, 2 }, { "sm_80", 16, 0, 32, 3 },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = few_heads(wanted[i].heads);
        const struct gdni_arch *arch = NULL;
        struct gdni_params params;
        struct gdni_spec spec;
        p.generic = 1; /* Hopper's own kernel cuts such sequences: test_partition.c */
        cr_assert_eq(gdni_arch_find(wanted[i].arch, &arch), GDN_OK);
        const bool found = gdni_params_heuristic_few(&params, &p, arch, strcmp(wanted[i].arch, "sm_90a") ? 108 : 132, 3,
                                                     wanted[i].seq_class);
        cr_expect_eq(found, wanted[i].block_dv != 0, "row %zu", i);
        if (!found) continue;
        cr_expect(params.cta_kinds == 2 && params.block_dv == wanted[i].block_dv && params.stages == wanted[i].stages,
                  "row %zu: block_dv %d, stages %d", i, params.block_dv, params.stages);
        cr_expect_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "row %zu: %s", i, gdni_error_text());
    }
}

Test(heuristic, no_plan_asks_for_more_than_512_MiB_of_workspace)
{
    struct gdni_problem p = few_heads(16);
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    p.generic = 1;
    p.max_tokens = 1 << 20;
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket) {
        struct gdni_workspace needs;
        struct gdni_spec spec;
        const bool found = gdni_params_heuristic_few(&params, &p, arch, 132, bucket, 0);
        cr_expect_eq(found, gdni_bucket_edge(bucket) <= 65536, "65536 tokens need 180 MB, 262144 need 721: bucket %d", bucket);
        if (!found) continue;
        cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK);
        gdni_workspace_of(&needs, &spec, &p, 132, gdni_bucket_edge(bucket), 1, 0);
        cr_expect_leq(needs.size, 512u << 20);
    }
}

Test(workspace, holds_an_image_for_every_chunk_and_words_for_every_image)
{
    struct gdni_problem p = few_heads(16);
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    struct gdni_spec spec;
    struct gdni_workspace w;
    p.generic = 1;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, GDNI_KERNEL_PREFILL_SPLIT);
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK);
    gdni_workspace_of(&w, &spec, &p, 132, 1000, 3, 0);
    cr_expect_eq(w.image_rows, 1000 / 64 + 3, "a sequence's last chunk may be short: one row more for each");
    cr_expect_eq(w.control_words, 1 + 18 * 16);
    cr_expect_eq(w.images_offset, 4 * 1280, "%zu words, and what a graph's memset clears: two CTAs' words more than 1088",
                 w.control_words);
    cr_expect_eq(w.size, 4 * 1280 + 18u * 16 * 11008);
    cr_expect_eq(w.num_producers, 33, "192 CTAs keep 132 SMs busy: a quarter as many producers");
    gdni_workspace_of(&w, &spec, &p, 132, 32768, 1, 0);
    cr_expect_eq(w.images_offset, 4 * 8448, "%zu words, rounded up to those of two CTAs that clear 128", w.control_words);
    cr_expect_eq(w.num_producers, 132 - 64, "the SMs that 64 CTAs leave");
    gdni_workspace_of(&w, &spec, &p, 132, 64 * 79, 1, 0);
    cr_expect(w.control_words == 1281 && w.images_offset == 4 * 1536, "%zu words before %zu: one more than a clearing has",
              w.control_words, w.images_offset);
    gdni_workspace_of(&w, &spec, &p, 1 << 20, 128, 1, 0);
    cr_expect_eq(w.num_producers, 3 * 16 / 2, "no more than there is work for, two images at a time");
    spec.params.ctas_per_producer = 2;
    gdni_workspace_of(&w, &spec, &p, 132, 1000, 3, 0);
    cr_expect_eq(w.num_producers, 66, "a parameter says how many a producer feeds");
}

Test(workspace, of_two_kinds_on_hopper_has_pairs_of_ctas_and_larger_images)
{
    const struct gdni_problem p = few_heads(16);
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    struct gdni_spec spec;
    struct gdni_workspace w;
    uint32_t grid[3];
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER_SPLIT);
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
    gdni_workspace_of(&w, &spec, &p, 132, 1000, 3, 0);
    cr_expect_eq(w.size, 4 * 1280 + 18u * 16 * (64 * 128 * 2 + 64 * 64 * 2 + 1536), "X, P T and a gate table");
    cr_expect_eq(w.num_producers, 34, "a quarter of 132 busy SMs, in whole clusters");
    gdni_workspace_of(&w, &spec, &p, 132, 4096, 1, 0);
    cr_expect_eq(w.num_producers, 132 - 64, "the SMs that two CTAs for each of 32 halves leave");
    gdni_workspace_of(&w, &spec, &p, 1 << 20, 128, 1, 0);
    cr_expect_eq(w.num_producers, 3 * 16, "no more than there are images, one at a time");
    cr_assert_eq(gdni_spec_grid(&spec, &p, 4096, 1, 132, grid), GDN_OK);
    cr_expect_eq(grid[0], 64u, "beside the producers");
}

static struct gdni_spec hopper_spec(void)
{
    struct gdni_problem p = prefill_problem();
    const struct gdni_arch *arch = NULL;
    struct gdni_params params;
    struct gdni_spec spec;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_heuristic(&params, &p, arch, 132, 3);
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(spec.kernel, GDNI_KERNEL_PREFILL_HOPPER);
    return spec;
}

Test(workspace, is_a_counter_where_the_persistent_kernel_has_many_unequal_items)
{
    static const struct {
        int64_t tokens, seqs;
        size_t words;
        const char *why;
    } cases[] = { { 32768, 5, 1, "160 items" },
                  { 32768, 4, 0, "128 items: each SM has one at most" },
                  { 1 << 20, 1, 0, "one sequence" },
                  { 64 * 127, 5, 1, "132 chunks of 32 heads: 32 for each of 132 SMs" },
                  { 64 * 126, 5, 0, "a chunk less: the memset would not pay" } };
    const struct gdni_problem p = prefill_problem();
    struct gdni_spec spec = hopper_spec();
    spec.params.partition_chunks = GDNI_PARTITION_NEVER, spec.cuts = 0; /* an item is a sequence and a head */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct gdni_workspace w;
        gdni_workspace_of(&w, &spec, &p, 132, cases[i].tokens, cases[i].seqs, 0);
        cr_expect_eq(w.control_words, cases[i].words, "%s", cases[i].why);
        cr_expect_eq(w.size, cases[i].words ? 4u * 1280 : 0, "%s", cases[i].why);
        cr_expect_eq(w.num_producers, 0);
    }
    struct gdni_spec eager = spec;
    struct gdni_workspace w;
    eager.params.deal_chunks = 16;
    gdni_workspace_of(&w, &eager, &p, 132, 64 * 126, 5, 0);
    cr_expect_eq(w.control_words, 1u, "a parameter says how many chunks pay for it");
}

Test(params, narrow_blocks_need_two_kinds_of_ctas)
{
    const struct gdni_problem p = prefill_problem();
    const struct gdni_params params = { .cta_kinds = 1, .chunk = 64, .block_dv = 32, .stages = 3 };
    const struct gdni_arch *arch = NULL;
    struct gdni_spec spec;
    cr_assert_eq(gdni_arch_find("sm_100a", &arch), GDN_OK);
    cr_expect_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_E_INVALID);
    cr_expect_str_eq(gdni_error_text(), "parameter block_dv is 32: must be 64 for gdn_prefill_generic");
}

Test(params, an_illegal_value_is_named_with_the_legal_ones)
{
    struct gdni_params params = { .cta_kinds = 1, .chunk = 64, .block_dv = 64, .stages = 5 };
    cr_expect_eq(gdni_params_check(&params, GDNI_KERNEL_PREFILL_GENERIC), GDN_E_INVALID);
    cr_expect_str_eq(gdni_error_text(), "parameter stages is 5: must be one of 2, 3, 4 for gdn_prefill_generic");
}

Test(params, what_another_kernel_has_is_refused)
{
    struct gdni_params params = { .cta_kinds = 1, .chunk = 64, .block_dv = 64, .stages = 2, .tile_tokens = 8 };
    cr_expect_eq(gdni_params_check(&params, GDNI_KERNEL_PREFILL_GENERIC), GDN_E_INVALID);
    cr_expect_str_eq(gdni_error_text(), "parameter tile_tokens is 8: gdn_prefill_generic has no such parameter");
    params = (struct gdni_params){ .cta_kinds = 1, .chunk = 64, .block_dv = 128, .stages = 3 };
    cr_expect_eq(gdni_params_check(&params, GDNI_KERNEL_PREFILL_HOPPER), GDN_E_INVALID, "its stages are fixed");
}

Test(params, every_kernel_has_parameters_whose_defaults_are_legal_and_whose_values_ascend)
{
    for (int32_t kernel = 0; kernel < GDNI_NUM_KERNELS; ++kernel) {
        struct gdni_params params;
        struct gdni_param_row row;
        int count = 0;
        gdni_params_initial(&params, kernel);
        cr_expect_eq(gdni_params_check(&params, kernel), GDN_OK, "%s", gdni_error_text());
        for (; gdni_param_at(kernel, count, &row); ++count)
            for (int v = 0; row.legal[v]; ++v) {
                cr_expect(v == 0 || row.legal[v - 1] < row.legal[v], "%s", row.name);
                cr_assert_lt(v, GDNI_MAX_PARAM_VALUES);
            }
        cr_expect_gt(count, 0, "kernel %d", kernel);
    }
}

/* A change of the space is meant to be seen: it sets every measured table aside. Put the new value here then. */
Test(params, the_hash_of_the_space_is_this_one)
{
    char hash[GDNI_SPACE_HEX];
    gdni_space_hash(hash);
    cr_expect_str_eq(hash, "854de09cfa541f9a");
}

Test(params, what_an_arch_cannot_hold_is_refused_with_both_sizes)
{
    const struct gdni_problem p = prefill_problem();
    const struct gdni_params params = { .cta_kinds = 1, .chunk = 64, .block_dv = 64, .stages = 3 };
    const struct gdni_arch *arch = NULL;
    struct gdni_spec spec;
    cr_assert_eq(gdni_arch_find("sm_86", &arch), GDN_OK);
    cr_expect_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "159632") && strstr(gdni_error_text(), "101376"), "%s", gdni_error_text());
}

Test(params, json_holds_the_operators_own_parameters)
{
    struct gdni_strbuf sb = { 0 };
    const struct gdni_params params = { .cta_kinds = 1, .chunk = 64, .block_dv = 64, .stages = 3 };
    gdni_params_json(&sb, &params, GDNI_KERNEL_PREFILL_GENERIC);
    cr_expect_str_eq(sb.text, "{\"chunk\": 64, \"cta_kinds\": 1, \"block_dv\": 64, \"stages\": 3}");
    gdni_sb_free(&sb);
}

/* gdn-jit-tuning(5) is the contract of tuning files: a value that it does not name is one that nobody can write. */
Test(params, the_manual_page_names_every_parameter_and_its_legal_values)
{
    static char page[65536];
    FILE *file = fopen(GDN_SOURCE_DIR "/docs/man/gdn-jit-tuning.5.scd", "r");
    cr_assert(file && fread(page, 1, sizeof page - 1, file) > 0);
    fclose(file);
    for (int32_t kernel = 0; kernel < GDNI_NUM_KERNELS; ++kernel) {
        struct gdni_param_row row;
        for (int i = 0; gdni_param_at(kernel, i, &row); ++i) {
            struct gdni_strbuf words = { 0 };
            gdni_sb_fmt(&words, "_%s_ ", row.name);
            for (int v = 0; row.legal[v]; ++v) gdni_sb_fmt(&words, "%s%d", v ? ", " : "", row.legal[v]);
            cr_expect(strstr(page, words.text), "\"%s\" is not in gdn-jit-tuning(5)", words.text);
            gdni_sb_free(&words);
        }
    }
}

/* ---- Candidates ---- */

static int choices_of(const struct gdni_problem *p, const char *arch_name, struct gdni_slot slot,
                      struct gdni_params out[GDNI_MAX_CHOICES])
{
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find(arch_name, &arch), GDN_OK);
    return gdni_params_choices(out, p, arch, 0, slot);
}

Test(choices, the_heuristics_answer_comes_first_all_are_usable_and_none_comes_twice)
{
    struct gdni_problem problems[] = { prefill_problem(), few_heads(8), few_heads(8), conv_problem(16) };
    problems[2].generic = 1;
    for (size_t i = 0; i < 4; ++i)
        for (int a = 0; gdni_arch_at(a); ++a)
            for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket)
                for (int c = GDNI_ANY_SEQS; c < (i < 3 ? GDNI_NUM_SEQ_CLASSES : 0); ++c) {
                    const struct gdni_slot slot = { bucket, c };
                    struct gdni_params list[GDNI_MAX_CHOICES], first;
                    const int count = choices_of(&problems[i], gdni_arch_at(a)->name, slot, list);
                    if (c < 0 || !gdni_params_heuristic_few(&first, &problems[i], gdni_arch_at(a), 0, bucket, c))
                        gdni_params_heuristic(&first, &problems[i], gdni_arch_at(a), 0, bucket);
                    cr_assert(count > 0 && count < GDNI_MAX_CHOICES, "%d", count);
                    cr_expect_eq(memcmp(&list[0], &first, sizeof first), 0, "problem %zu, bucket %d, class %d", i, bucket, c);
                    for (int k = 0; k < count; ++k) {
                        cr_expect_eq(gdni_params_usable(&list[k], &problems[i], gdni_arch_at(a), 0, slot), GDN_OK);
                        for (int j = 0; j < k; ++j) cr_expect_neq(memcmp(&list[j], &list[k], sizeof first), 0);
                    }
                }
}

Test(choices, are_the_product_of_what_the_arch_can_hold)
{
    static const struct {
        const char *arch;
        struct gdni_slot slot;
        int count;
    } wanted[] = {
        { "sm_90a", { 2, GDNI_ANY_SEQS }, 3 },   /* generic: three stages */
        { "sm_86", { 2, GDNI_ANY_SEQS }, 1 },    /* two stages fit */
        { "sm_90a", { 2, 0 }, 3 + 2 * 3 * 3 },   /* and split: blocks, stages, producers */
        { "sm_90a", { 7, 0 }, 3 },               /* split would need too much workspace */
    };
    struct gdni_problem p = few_heads(16);
    struct gdni_params list[GDNI_MAX_CHOICES];
    p.generic = 1;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i)
        if (i < 3) cr_expect_eq(choices_of(&p, wanted[i].arch, wanted[i].slot, list), wanted[i].count, "row %zu", i);
    struct gdni_problem longer = p;
    longer.max_tokens = 1 << 22;
    cr_expect_eq(choices_of(&longer, "sm_90a", wanted[3].slot, list), wanted[3].count);
    p.generic = 0;
    cr_expect_eq(choices_of(&p, "sm_90a", wanted[0].slot, list), 2 * 3 * 9 + 3 * 8 + 3,
                 "Hopper's own: halves or heads, when a counter deals out, into what it cuts; what carries cuts; clusters");
    const struct gdni_problem conv = conv_problem(16);
    cr_expect_eq(choices_of(&conv, "sm_90a", wanted[0].slot, list), 4 * 3);
    cr_expect_eq(choices_of(&conv, "sm_90a", wanted[2].slot, list), 0, "conv has no classes of sequences");
}

/* Registers as NVRTC 13.0 gives them: generic 205 to 220 with head dims of 64, conv of width 4 94 to 96. */
Test(spec, an_sm_holds_as_many_ctas_as_its_shared_memory_and_registers_allow)
{
    static const struct {
        const char *arch, *what;
        int32_t head_dim, tile, threads, io_type, ctas; /* tile 0: the generic kernel's */
    } wanted[] = {
        { "sm_90a", "memory has room for two, registers have not", 64, 0, 0, GDN_BF16, 1 },
        { "sm_90a", "nor is there memory", 128, 0, 0, GDN_BF16, 1 },
        { "sm_80", "1536 threads would be six", 64, 0, 0, GDN_BF16, 1 },
        { "sm_90a", "memory has room for eight", 128, 4, 128, GDN_BF16, 5 },
        { "sm_90a", "for six", 128, 8, 128, GDN_BF16, 5 },
        { "sm_90a", "for four", 128, 16, 128, GDN_BF16, 4 },
        { "sm_90a", "for three", 128, 8, 256, GDN_BF16, 2 },
        { "sm_86", "for two", 128, 8, 128, GDN_BF16, 2 },
        { "sm_90a", "registers are not bounded: memory has room for three", 128, 8, 128, GDN_F32, 3 },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = wanted[i].tile ? conv_problem(16) : few_heads(8);
        const struct gdni_params conv = { .tile_tokens = wanted[i].tile, .cta_threads = wanted[i].threads };
        struct gdni_params params;
        const struct gdni_arch *arch = NULL;
        struct gdni_spec spec;
        cr_assert_eq(gdni_arch_find(wanted[i].arch, &arch), GDN_OK);
        p.generic = 1;
        p.head_dim_qk = p.head_dim_v = wanted[i].head_dim;
        p.io_type = p.state_type = wanted[i].io_type;
        gdni_params_heuristic(&params, &p, arch, 0, 2);
        cr_assert_eq(gdni_spec_build(&spec, &p, arch, wanted[i].tile ? &conv : &params), GDN_OK, "%s", gdni_error_text());
        const int32_t ctas = gdni_spec_ctas_per_sm(&spec);
        cr_expect_eq(ctas, wanted[i].ctas, "%s %s: %d", wanted[i].arch, wanted[i].what, ctas);
    }
}

/* An SM holds one CTA of 64 dims, though its memory has room for two, of two stages three: 264 take two rounds either way. */
Test(choices, waves_of_small_heads_are_of_one_cta_an_sm)
{
    struct gdni_problem p = few_heads(33);
    struct gdni_params list[GDNI_MAX_CHOICES];
    p.head_dim_qk = p.head_dim_v = 64;
    const int count = choices_of(&p, "sm_90a", (struct gdni_slot){ 3, 3 }, list);
    cr_assert_gt(count, 2);
    cr_expect(list[0].stages == 3 && list[1].stages == 4, "two stages are no more CTAs, and slower: %d, %d",
              list[0].stages, list[1].stages);
}

Test(choices, the_model_ranks_measured_orders_rightly)
{
    /* H200, docs/notebook/prefill_split.md: 16 heads, 1 x 32768: 32 columns 802 us, 16 columns 1294; generic 1520. */
    struct gdni_problem p = few_heads(16);
    struct gdni_params list[GDNI_MAX_CHOICES];
    p.generic = 1;
    const int count = choices_of(&p, "sm_90a", (struct gdni_slot){ 4, 0 }, list);
    int first_16 = count, first_32 = count, first_generic = count;
    for (int i = count - 1; i >= 0; --i) {
        if (list[i].block_dv == 16) first_16 = i;
        if (list[i].block_dv == 32) first_32 = i;
        if (list[i].block_dv == 64) first_generic = i;
    }
    cr_expect(first_32 < first_16 && first_16 < first_generic, "32: %d, 16: %d, generic: %d", first_32, first_16,
              first_generic);
}

/* 64 heads of 16 chunks leave half of 132 SMs idle, which cannot be cut; halves of them take 128. */
Test(heuristic, heads_are_halved_where_all_halves_find_an_sm_and_nothing_is_cut)
{
    static const struct {
        const char *why;
        int32_t heads, tokens, seq_class, block_dv, cta_kinds;
    } wanted[] = {
        { "128 items of up to 4 chunks", 64, 256, 0, 64, 1 },
        { "of up to 16", 64, 1024, 0, 64, 1 },
        { "132 are as many as SMs", 66, 1024, 0, 64, 1 },
        { "134 would be two waves", 67, 1024, 0, 0, 0 },
        { "256 would be two waves", 64, 1024, 1, 0, 0 },
        { "two sequences of 32 heads", 32, 1024, 1, 64, 1 },
        { "64 chunks are cut into two, which gain less than they may lose", 64, 4096, 0, 64, 1 },
        { "or into three, of fewer heads, with code for carried states", 44, 4096, 0, 128, 1 },
        { "or into four, with code for carried states", 32, 4096, 0, 128, 1 },
        { "32 chunks are not", 44, 2048, 0, 64, 1 },
        { "256 chunks are not cut into two", 64, 16384, 0, 64, 1 },
        { "256 of fewer heads are cut", 48, 16384, 0, 128, 1 },
        { "512 chunks are, by the kernel that other calls run", 64, 32768, 0, 0, 0 },
        { "two sequences of 32 chunks", 16, 4096, 1, 64, 1 },
        { "16 pairs of up to 8 chunks", 8, 1024, 1, 64, 1 },
        { "16 chunks are for two kinds of CTAs", 16, 1024, 0, 64, 2 },
        { "and 8 of fewer pairs", 7, 1024, 1, 64, 2 },
        { "21 pairs leave 48 SMs to the producers", 21, 1024, 0, 64, 2 },
        { "22 pairs leave them too few", 22, 1024, 0, 64, 1 },
        { "and so do 25", 25, 1024, 0, 64, 1 },
        { "32 x 2 items of up to 4 chunks", 2, 4096, 5, 64, 1 },
    };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        struct gdni_problem p = few_heads(wanted[i].heads);
        struct gdni_params params = { 0 };
        const int bucket = gdni_bucket_of(wanted[i].tokens);
        const bool own = gdni_params_heuristic_few(&params, &p, arch, 132, bucket, wanted[i].seq_class);
        cr_expect_eq(own ? params.block_dv : 0, wanted[i].block_dv, "%s: %d", wanted[i].why, params.block_dv);
        cr_expect_eq(own ? params.cta_kinds : 0, wanted[i].cta_kinds, "%s: %d", wanted[i].why, params.cta_kinds);
        const bool halves = own && params.cta_kinds == 1 && params.block_dv == 64;
        if (own && params.cta_kinds == 1)
            cr_expect_eq(params.cluster_ctas, halves ? 2 : 1, "%s: %d", wanted[i].why, params.cluster_ctas);
        if (halves) cr_expect_eq(params.partition_chunks, GDNI_PARTITION_NEVER, "%s", wanted[i].why);
        p.generic = 1;
        if (gdni_params_heuristic_few(&params, &p, arch, 132, bucket, wanted[i].seq_class))
            cr_expect_eq(params.cta_kinds, 2, "%s: the generic kernel has no other width", wanted[i].why);
    }
}

enum { H200_SMS = 132 };

Test(params, a_cluster_has_halves_of_a_head_of_whole_sequences)
{
    static const struct {
        int32_t block_dv, carry, partition_chunks;
        const char *says; /* NULL: it may be */
    } wanted[] = {
        { 64, 1, GDNI_PARTITION_NEVER, NULL },
        { 128, 1, GDNI_PARTITION_NEVER, "cluster_ctas is 2 with block_dv 128, carry 1 and partition_chunks 2" },
        { 64, 1, GDNI_PARTITION_MODEL, "cluster_ctas is 2 with block_dv 64, carry 1 and partition_chunks 1" },
        { 64, 1, 16, "cluster_ctas is 2 with block_dv 64, carry 1 and partition_chunks 16" },
    };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        const struct gdni_problem p = few_heads(16);
        struct gdni_params params;
        struct gdni_spec spec;
        gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER);
        params.block_dv = wanted[i].block_dv, params.carry = wanted[i].carry;
        params.partition_chunks = wanted[i].partition_chunks, params.cluster_ctas = 2;
        cr_expect_eq(gdni_spec_build(&spec, &p, arch, &params), wanted[i].says ? GDN_E_UNSUPPORTED : GDN_OK, "row %zu", i);
        if (wanted[i].says) cr_expect(strstr(gdni_error_text(), wanted[i].says), "%s", gdni_error_text());
    }
}

/* Items of a cluster are a head's: a counter that deals them out one by one would part them. */
Test(workspace, of_clusters_there_is_no_counter)
{
    const struct gdni_problem p = few_heads(16);
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (int32_t ctas = 1; ctas <= 2; ++ctas) {
        struct gdni_params params;
        struct gdni_spec spec;
        struct gdni_workspace w;
        gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER);
        params.block_dv = 64, params.partition_chunks = GDNI_PARTITION_NEVER, params.cluster_ctas = ctas;
        cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
        gdni_workspace_of(&w, &spec, &p, H200_SMS, 65536, 64, 0);
        cr_expect_eq(w.control_words, ctas == 1 ? 1u : 0u);
        cr_expect_eq(w.partition, 0);
    }
}

/* ---- Candidates: choices that a call of so many tokens and sequences can tell apart ---- */

/* What of a launch run-time parameters decide. */
struct effect {
    int32_t kernel, block_dv, cluster_ctas, stages, producers, partition, carry, gang;
    size_t control_words;
};

static struct effect effect_of(const struct gdni_params *params, const struct gdni_problem *p)
{
    const struct gdni_arch *arch = NULL;
    struct gdni_spec spec;
    struct gdni_workspace w;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    cr_assert_eq(gdni_spec_build(&spec, p, arch, params), GDN_OK, "%s", gdni_error_text());
    gdni_workspace_of(&w, &spec, p, H200_SMS, p->max_tokens, p->max_seqs, 0);
    return (struct effect){ spec.kernel,     params->block_dv, params->cluster_ctas, params->stages,
                            w.num_producers, w.partition,      (int32_t)w.carry,     w.gang,
                            w.control_words };
}

static bool same_effect(const struct effect *a, const struct effect *b)
{
    return a->kernel == b->kernel && a->block_dv == b->block_dv && a->cluster_ctas == b->cluster_ctas &&
           a->stages == b->stages && a->producers == b->producers && a->partition == b->partition && a->carry == b->carry &&
           a->gang == b->gang && a->control_words == b->control_words;
}

static int candidates_of_call(int heads, int64_t tokens, int64_t seqs, struct gdni_problem *p,
                              struct gdni_params out[GDNI_MAX_CANDIDATES])
{
    const struct gdni_arch *arch = NULL;
    const int seq_class = gdni_seq_class_of(seqs);
    *p = few_heads(heads);
    p->max_tokens = tokens, p->max_seqs = seqs;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    const struct gdni_slot slot = { gdni_bucket_of(tokens), seq_class < GDNI_NUM_SEQ_CLASSES ? seq_class : GDNI_ANY_SEQS };
    const int count = gdni_params_candidates(out, p, arch, H200_SMS, slot, (struct gdni_call_size){ tokens, seqs });
    struct gdni_params choices[GDNI_MAX_CHOICES];
    const int num_choices = gdni_params_choices(choices, p, arch, H200_SMS, slot);
    for (int i = 0; i < num_choices; ++i) {
        const struct effect wanted = effect_of(&choices[i], p);
        int met = 0;
        for (int k = 0; k < count; ++k) {
            const struct effect e = effect_of(&out[k], p);
            met += same_effect(&wanted, &e);
        }
        cr_expect_eq(met, 1, "%d heads, %lld x %lld, choice %d: %d candidates launch the same", heads, (long long)tokens,
                     (long long)seqs, i, met);
    }
    cr_expect_eq(memcmp(&out[0], &choices[0], sizeof out[0]), 0, "the heuristic's own comes first");
    return count;
}

/* Of the partitions that the Hopper candidates lead to, the one at `partition_chunks`; -1: it is not among them. */
static int32_t partition_at(const struct gdni_params *list, int count, const struct gdni_problem *p, int32_t chunks)
{
    for (int i = 0; i < count; ++i)
        if (list[i].partition_chunks == chunks) return effect_of(&list[i], p).partition;
    return -1;
}

/* 32 heads, up to 1024 tokens: halves, and whole sequences because the model would cut the largest calls, not those of 512. */
Test(params, a_tuners_first_candidate_is_what_plans_of_the_slot_take_however_short_the_timed_call)
{
    struct gdni_params out[GDNI_MAX_CANDIDATES], plans;
    const struct gdni_arch *arch = NULL;
    const struct gdni_slot slot = { 1, 0 };
    struct gdni_problem p = few_heads(32);
    p.max_tokens = 1024, p.max_seqs = 1;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    cr_assert(gdni_params_heuristic_few(&plans, &p, arch, H200_SMS, slot.bucket, slot.seq_class));
    cr_expect_eq(plans.partition_chunks, GDNI_PARTITION_NEVER);
    cr_assert_gt(gdni_params_candidates(out, &p, arch, H200_SMS, slot, (struct gdni_call_size){ 512, 1 }), 1);
    cr_expect_eq(memcmp(&out[0], &plans, sizeof plans), 0);
}

Test(candidates, one_for_each_launch_and_none_twice)
{
    static const int heads[] = { 4, 16, 64 };
    static const int64_t seqs[] = { 1, 4, 16, 128 };
    struct gdni_params list[GDNI_MAX_CANDIDATES];
    struct gdni_problem p;
    for (int h = 0; h < 3; ++h)
        for (int64_t tokens = 128; tokens <= 32768; tokens *= 4)
            for (int n = 0; n < 4; ++n)
                if (tokens >= seqs[n] * 64) {
                    const int count = candidates_of_call(heads[h], tokens, seqs[n], &p, list);
                    cr_expect(count > 1 && count < GDNI_MAX_CANDIDATES, "%d", count);
                }
}

Test(candidates, whole_sequences_are_tried_where_the_model_cuts_and_are_the_models_own_where_it_does_not)
{
    struct gdni_params list[GDNI_MAX_CANDIDATES];
    struct gdni_problem p;
    int count = candidates_of_call(16, 32768, 1, &p, list);
    cr_expect_gt(partition_at(list, count, &p, GDNI_PARTITION_MODEL), 0);
    cr_expect_eq(partition_at(list, count, &p, GDNI_PARTITION_NEVER), 0, "16 heads leave most SMs idle, whole or not");
    count = candidates_of_call(64, 8192, 128, &p, list); /* one chunk a sequence, and no class: what remains is registers */
    cr_expect_eq(count, 3, "halves, whole heads, clusters");
    for (int i = 0; i < count; ++i)
        cr_expect_eq(list[i].partition_chunks == GDNI_PARTITION_NEVER, list[i].cluster_ctas == 2, "%d", i);
}

Test(grid, covers_every_head_sequence_and_value_block_and_refuses_what_cuda_refuses)
{
    const gdn_prefill_desc d = test_prefill_desc();
    const struct gdni_problem p = prefill_problem();
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_100a", 3), hopper = hopper_spec();
    uint32_t grid[3];
    cr_assert_eq(gdni_spec_grid(&hopper, &p, 1000, 4, 132, grid), GDN_OK);
    cr_expect_eq(grid[0], 4u * 32, "Hopper: an item a CTA");
    cr_assert_eq(gdni_spec_grid(&hopper, &p, 1000, 5, 132, grid), GDN_OK);
    cr_expect_eq(grid[0], 132u, "Hopper: no more CTAs than SMs, which walk the items");
    struct gdni_spec halves = hopper;
    halves.params.block_dv = 64;
    cr_assert_eq(gdni_spec_grid(&halves, &p, 1000, 2, 132, grid), GDN_OK);
    cr_expect_eq(grid[0], 2u * 32 * 2, "Hopper: a half of a head is an item too");
    halves.params.cluster_ctas = 2;
    cr_assert_eq(gdni_spec_grid(&halves, &p, 1000, 5, 133, grid), GDN_OK);
    cr_expect_eq(grid[0], 132u, "Hopper: whole clusters");
    cr_assert_eq(gdni_spec_grid(&halves, &p, 1000, 5, 1, grid), GDN_OK);
    cr_expect_eq(grid[0], 2u, "a cluster at least");
    cr_assert_eq(gdni_spec_grid(&spec, &p, 1000, 5, 132, grid), GDN_OK);
    cr_expect_eq(grid[0], 5u * 32 * 2);
    cr_expect_eq(grid[1] * grid[2], 1u);
    struct gdni_spec padded = hopper;
    padded.zero_padding = 1;
    cr_assert_eq(gdni_spec_grid(&padded, &p, 1000, 1, 132, grid), GDN_OK);
    cr_expect_eq(grid[0], 132u, "Hopper: all SMs make rows of padding zeros");
    /* A persistent CTA looks one grid beyond its last item: 2^31 - 1 - 132 of 64 a sequence. */
    cr_expect_eq(gdni_spec_grid(&spec, &p, 1, 33554429, 132, grid), GDN_OK, "%s", gdni_error_text());
    cr_expect_eq(gdni_spec_grid(&spec, &p, 1, 33554430, 132, grid), GDN_E_INVALID);
    cr_expect_eq(gdni_spec_grid(&spec, &p, 1, (int64_t)1 << 30, 132, grid), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "num_seqs"), "%s", gdni_error_text());
}

/* ---- Compile time and run time ---- */

/* A problem and an arch on which the kernel is built with these values. */
static struct gdni_spec spec_with(int32_t kernel, const struct gdni_params *params)
{
    const bool conv = kernel == GDNI_KERNEL_CONV1D_QKV;
    struct gdni_problem p = conv ? conv_problem(16) : prefill_problem();
    const struct gdni_arch *arch = NULL;
    struct gdni_spec spec;
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    p.generic = !gdni_kernel_info((enum gdni_kernel)kernel)->has_maps;
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, params), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(spec.kernel, kernel);
    return spec;
}

/* Every constant whose line differs is read by a template: "constexpr int NAME = value;", or "#define NAME value". */
static void expect_used(const struct gdni_unit *unit, const char *before, const char *after, const char *param)
{
    while (*before && *after) {
        const size_t a = strcspn(before, "\n"), b = strcspn(after, "\n");
        char name[64] = "", use[80];
        if (a != b || memcmp(before, after, a) != 0) {
            const bool macro = sscanf(after, "#define %63s", name) == 1;
            cr_assert(macro || sscanf(after, "constexpr %*s %63s", name) == 1, "%.*s", (int)b, after);
            bool used = false;
            snprintf(use, sizeof use, macro ? " %s " : "spec::%s", name);
            for (int i = 1; i < unit->num_files; ++i) used |= strstr(unit->files[i].text, use) != NULL;
            cr_expect(used || strstr(unit->main_text, use), "%s changes %s, which no template of %s reads", param, use,
                      unit->entry);
        }
        before += a + (before[a] == '\n');
        after += b + (after[b] == '\n');
    }
}

Test(params, of_compile_time_change_the_key_and_code_that_reads_them_and_of_run_time_neither)
{
    for (int32_t kernel = 0; kernel < GDNI_NUM_KERNELS; ++kernel) {
        struct gdni_param_row row;
        for (int i = 0; gdni_param_at(kernel, i, &row); ++i)
            for (int v = 0; row.legal[v]; ++v) {
                struct gdni_params params;
                struct gdni_unit units[2];
                struct gdni_key keys[2];
                struct gdni_strbuf texts[2] = { { 0 }, { 0 } };
                gdni_params_initial(&params, kernel);
                if (strcmp(row.name, "cluster_ctas") == 0) params.block_dv = 64, params.partition_chunks = 2;
                for (int k = 0; k < 2; ++k) {
                    const struct gdni_spec spec = spec_with(kernel, &params);
                    cr_assert_eq(gdni_unit_build(&units[k], &spec), GDN_OK, "%s", gdni_error_text());
                    cr_assert_eq(gdni_key_build(&keys[k], &units[k]), GDN_OK);
                    gdni_emit_spec(&texts[k], &spec);
                    gdni_param_set(&params, &row, row.legal[v]);
                }
                const bool whole = strcmp(row.name, "partition_chunks") == 0 && row.legal[v] == GDNI_PARTITION_NEVER;
                const bool differs = whole || (row.when == GDNI_COMPILE_TIME && row.legal[v] != row.initial);
                cr_expect_eq(strcmp(keys[0].hex, keys[1].hex) != 0, differs, "%s %d of %s", row.name, row.legal[v],
                             units[0].entry);
                expect_used(&units[1], texts[0].text, texts[1].text, row.name);
                for (int k = 0; k < 2; ++k) {
                    gdni_unit_free(&units[k]);
                    gdni_key_free(&keys[k]);
                    gdni_sb_free(&texts[k]);
                }
            }
    }
}
