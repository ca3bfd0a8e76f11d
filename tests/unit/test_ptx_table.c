/* Instruction rows and their printer: nobody numbers operands by hand, so the numbering is what is tested. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/error.h"
#include "codegen/ptx_table.h"

static char *printed(const struct gdni_instr *instr, const char *type)
{
    struct gdni_strbuf sb = { 0 };
    cr_assert_eq(gdni_emit_instr(&sb, instr, type), GDN_OK, "%s: %s", instr->name, gdni_error_text());
    return gdni_sb_take(&sb);
}

Test(ptx_table, every_row_prints_and_leaves_no_placeholder)
{
    for (int i = 0; gdni_instr_at(i); ++i) {
        char *text = printed(gdni_instr_at(i), "bf16");
        cr_expect_null(strchr(text, '$'), "%s", text);
        cr_expect_eq(gdni_instr_find(gdni_instr_at(i)->name), gdni_instr_at(i), "two rows are called %s",
                     gdni_instr_at(i)->name);
    }
}

Test(ptx_table, mma_operands_are_numbered_in_order_and_the_accumulator_is_tied)
{
    cr_expect_str_eq(printed(gdni_instr_find("mma_io"), "bf16"),
                     "__device__ __forceinline__ void mma_io(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])\n"
                     "{\n"
                     "    asm (\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};\" : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"r\"(a[0]), "
                     "\"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n"
                     "}\n");
}

Test(ptx_table, the_io_type_is_the_specs)
{
    cr_expect_not_null(strstr(printed(gdni_instr_find("mma_io"), "f16"), "f32.f16.f16.f32"));
    cr_expect_not_null(strstr(printed(gdni_instr_find("mma_f16"), "bf16"), "f32.f16.f16.f32"));
}

Test(ptx_table, instructions_that_touch_memory_are_volatile_and_clobber_it)
{
    const char *text = printed(gdni_instr_find("ldmatrix_x4"), "bf16");
    cr_expect(strstr(text, "asm volatile(") && strstr(text, ": \"memory\")"), "%s", text);
}

Test(ptx_table, an_unknown_operand_is_an_error_that_names_it)
{
    const struct gdni_instr bad = { "bad", "nop $where;", false, { { "d", "u32", 'r', GDNI_OUT, 1 } } };
    struct gdni_strbuf sb = { 0 };
    cr_expect_eq(gdni_emit_instr(&sb, &bad, "bf16"), GDN_E_INVALID);
    cr_expect_str_eq(gdni_error_text(), "instruction bad: its text uses $where, which is no operand");
    gdni_sb_free(&sb);
}

Test(ptx_table, an_output_after_an_input_is_an_error)
{
    const struct gdni_instr bad = { "bad", "mov.b32 $d, $a;", false,
                                    { { "a", "u32", 'r', GDNI_IN, 1 }, { "d", "u32", 'r', GDNI_OUT, 1 } } };
    struct gdni_strbuf sb = { 0 };
    cr_expect_eq(gdni_emit_instr(&sb, &bad, "bf16"), GDN_E_INVALID);
    cr_expect(strstr(gdni_error_text(), "$d"), "%s", gdni_error_text());
    gdni_sb_free(&sb);
}
