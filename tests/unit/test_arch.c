/* Archs and GPUs by name: what a warm-up on another machine relies on. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/error.h"
#include "codegen/arch.h"

Test(arch, every_gpu_names_an_arch_that_exists)
{
    for (int i = 0; gdni_gpu_at(i); ++i) {
        const struct gdni_arch *arch = NULL;
        cr_expect_eq(gdni_arch_find(gdni_gpu_at(i)->arch, &arch), GDN_OK, "%s", gdni_gpu_at(i)->name);
        cr_expect(gdni_gpu_at(i)->num_sms > 0 && gdni_gpu_at(i)->dram_gbps > 0, "%s", gdni_gpu_at(i)->name);
    }
}

Test(arch, a_device_finds_the_row_of_its_compute_capability_and_only_that)
{
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_of_device(9, 0, &arch), GDN_OK);
    cr_expect_str_eq(arch->name, "sm_90a");
    cr_assert_eq(gdni_arch_of_device(12, 1, &arch), GDN_OK);
    cr_expect_str_eq(arch->name, "sm_121a");
    cr_expect_eq(gdni_arch_of_device(7, 5, &arch), GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "7.5") && strstr(gdni_error_text(), "sm_80"), "%s", gdni_error_text());
}

Test(arch, two_rows_never_answer_for_one_device)
{
    for (int i = 0; gdni_arch_at(i); ++i)
        for (int j = i + 1; gdni_arch_at(j); ++j) cr_expect_neq(gdni_arch_at(i)->cc, gdni_arch_at(j)->cc);
}

Test(target, a_gpu_is_found_whatever_the_case_and_spelling_of_its_name)
{
    static const char *const spellings[] = { "NVIDIA H200", "H200", "nvidia h200", "h200" };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; ++i) {
        gdn_target t;
        cr_assert_eq(gdni_target_from_name(spellings[i], &t), GDN_OK, "%s", spellings[i]);
        cr_expect_str_eq(t.gpu_name, "NVIDIA H200");
        cr_expect_str_eq(t.arch, "sm_90a");
        cr_expect_eq(t.num_sms, 132);
        cr_expect_eq(t.smem_per_block, 227 * 1024);
    }
    gdn_target t;
    cr_expect_eq(gdni_target_from_name("a100 sxm4 80gb", &t), GDN_OK);
    cr_expect_eq(gdni_target_from_name("rtx-5090", &t), GDN_OK);
    cr_expect_str_eq(t.arch, "sm_120a");
}

Test(target, an_arch_alone_has_no_gpu_name)
{
    gdn_target t;
    cr_assert_eq(gdni_target_from_name("sm_86", &t), GDN_OK);
    cr_expect_str_eq(t.gpu_name, "");
    cr_expect_eq(t.smem_per_block, 99 * 1024);
}

Test(target, an_ambiguous_name_lists_the_candidates)
{
    gdn_target t;
    cr_expect_eq(gdni_target_from_name("h100", &t), GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "NVIDIA H100 80GB HBM3") && strstr(gdni_error_text(), "NVIDIA H100 PCIe"), "%s",
              gdni_error_text());
}

Test(target, an_unknown_name_says_what_to_name)
{
    gdn_target t;
    cr_expect_eq(gdni_target_from_name("Voodoo 3", &t), GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "Voodoo 3") && strstr(gdni_error_text(), "sm_90a"), "%s", gdni_error_text());
    cr_expect_eq(gdni_target_from_name("", &t), GDN_E_UNSUPPORTED);
    cr_expect_eq(gdni_target_from_name("NVIDIA H2", &t), GDN_E_UNSUPPORTED);
    cr_expect(strstr(gdni_error_text(), "neither a known GPU") && !strstr(gdni_error_text(), "H200"),
              "a GPU of its own is no part of another's name: %s", gdni_error_text());
}
