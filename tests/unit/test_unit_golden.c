/*
 * Generated text against snapshots in tests/golden/: a change of generated code shows in review as a diff of these files.
 * GDN_UPDATE_GOLDEN=1 writes them anew.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/unit.h"
#include "specs.h"

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    struct gdni_strbuf sb = { 0 };
    char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;) gdni_sb_bytes(&sb, buf, n);
    fclose(f);
    return gdni_sb_take(&sb);
}

/* All generated files of a spec, one after the other. */
static char *generated(const struct gdni_spec *spec)
{
    struct gdni_unit unit;
    struct gdni_strbuf sb = { 0 };
    cr_assert_eq(gdni_unit_build(&unit, spec), GDN_OK, "%s", gdni_error_text());
    for (int i = 0; i < unit.num_files; ++i)
        if (unit.files[i].owned) gdni_sb_fmt(&sb, "==== %s\n%s", unit.files[i].name, unit.files[i].text);
    gdni_unit_free(&unit);
    return gdni_sb_take(&sb);
}

static void expect_golden(const char *name, const struct gdni_spec *spec)
{
    char path[512];
    snprintf(path, sizeof path, GDN_SOURCE_DIR "/tests/golden/%s.txt", name);
    char *now = generated(spec);
    if (getenv("GDN_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "wb");
        cr_assert_not_null(f, "%s", path);
        fputs(now, f);
        fclose(f);
    }
    char *golden = read_file(path);
    cr_assert_not_null(golden, "%s is missing: GDN_UPDATE_GOLDEN=1 writes it", path);
    cr_expect_str_eq(now, golden, "%s differs from what is generated now", path);
    gdni_free(golden);
    gdni_free(now);
}

Test(golden, prefill_bf16_128_sm_90a)
{
    const gdn_prefill_desc d = test_prefill_desc();
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_90a", 3);
    expect_golden("prefill_bf16_128_sm_90a", &spec);
}

/* Half of a head's columns in a CTA, of a cluster that shares T and P. */
Test(golden, prefill_f16_128_halves_sm_90a)
{
    gdn_prefill_desc d = test_prefill_desc();
    d.io_type = GDN_F16;
    struct gdni_problem p;
    struct gdni_params params;
    struct gdni_spec spec;
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK);
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER);
    params.block_dv = 64, params.partition_chunks = GDNI_PARTITION_NEVER, params.cluster_ctas = 2;
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
    expect_golden("prefill_f16_128_halves_sm_90a", &spec);
}

/* In two kinds of CTAs. */
Test(golden, prefill_bf16_128_two_kinds_sm_90a)
{
    const gdn_prefill_desc d = test_prefill_desc();
    struct gdni_problem p;
    struct gdni_params params;
    struct gdni_spec spec;
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_problem_from_prefill(&p, &d), GDN_OK);
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    gdni_params_initial(&params, GDNI_KERNEL_PREFILL_HOPPER_SPLIT);
    cr_assert_eq(gdni_spec_build(&spec, &p, arch, &params), GDN_OK, "%s", gdni_error_text());
    expect_golden("prefill_bf16_128_two_kinds_sm_90a", &spec);
}

Test(golden, prefill_bf16_128_sm_80)
{
    const gdn_prefill_desc d = test_prefill_desc();
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_80", 3);
    expect_golden("prefill_bf16_128_sm_80", &spec);
}

Test(golden, prefill_f16_64_vk_sm_86)
{
    gdn_prefill_desc d = test_prefill_desc();
    d.io_type = GDN_F16;
    d.head_dim_qk = d.head_dim_v = 64;
    d.state_layout = GDN_STATE_VK;
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_86", 0);
    expect_golden("prefill_f16_64_vk_sm_86", &spec);
}

Test(golden, conv1d_bf16_sm_90a)
{
    const gdn_conv1d_desc d = test_conv1d_desc();
    const struct gdni_spec spec = test_conv1d_spec(&d, "sm_90a", 3);
    expect_golden("conv1d_bf16_sm_90a", &spec);
}

Test(golden, conv1d_f16_bias_unaligned_sm_80)
{
    gdn_conv1d_desc d = test_conv1d_desc();
    d.io_type = GDN_F16;
    d.flags = GDN_CONV_BIAS;
    d.width = 2;
    d.x_alignment = 2;
    d.state_layout = GDN_CONV_STATE_WC;
    const struct gdni_spec spec = test_conv1d_spec(&d, "sm_80", 0);
    expect_golden("conv1d_f16_bias_unaligned_sm_80", &spec);
}

Test(unit, generated_text_holds_no_control_flow)
{
    const gdn_prefill_desc d = test_prefill_desc();
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_90a", 3);
    char *text = generated(&spec);
    static const char *const banned[] = { "for (", "if (", "while (", "#if", "switch" };
    for (size_t i = 0; i < sizeof banned / sizeof banned[0]; ++i) cr_expect_null(strstr(text, banned[i]), "%s", banned[i]);
    gdni_free(text);
}

Test(unit, out_of_memory_anywhere_is_a_status_and_leaks_nothing)
{
    const gdn_prefill_desc d = test_prefill_desc();
    const struct gdni_spec spec = test_prefill_spec(&d, "sm_90a", 3);
    gdn_status status = GDN_E_NOMEM;
    for (int allowed = 0; status != GDN_OK; ++allowed) {
        struct gdni_unit unit;
        cr_assert_lt(allowed, 1000);
        gdni_mem_fail_after(allowed);
        status = gdni_unit_build(&unit, &spec);
        gdni_mem_fail_after(-1);
        if (status == GDN_OK)
            gdni_unit_free(&unit);
        else
            cr_expect_eq(status, GDN_E_NOMEM, "after %d allocations: %s", allowed, gdni_error_text());
    }
}
