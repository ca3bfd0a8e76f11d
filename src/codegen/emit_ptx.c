/*
 * emit_ptx.c - instruction rows -> gdn_ptx.cuh: inline-asm wrappers with operands numbered in order of declaration.
 * Must not know: kernels, problems, tuning.
 */
#include <string.h>

#include "base/error.h"
#include "codegen/ptx_table.h"
#include "codegen/unit.h"

static bool is_output(const struct gdni_operand *op)
{
    return op->dir != GDNI_IN;
}

static const struct gdni_operand *find_operand(const struct gdni_instr *instr, const char *name, size_t len, int *first)
{
    *first = 0;
    for (const struct gdni_operand *op = instr->operands; op->name; ++op) {
        if (strlen(op->name) == len && strncmp(op->name, name, len) == 0) return op;
        *first += op->count;
    }
    return NULL;
}

static void signature(struct gdni_strbuf *sb, const struct gdni_instr *instr)
{
    gdni_sb_fmt(sb, "__device__ __forceinline__ void %s(", instr->name);
    for (const struct gdni_operand *op = instr->operands; op->name; ++op) {
        if (op != instr->operands) gdni_sb_str(sb, ", ");
        if (op->count > 1)
            gdni_sb_fmt(sb, "%s%s (&%s)[%d]", is_output(op) ? "" : "const ", op->ctype, op->name, op->count);
        else
            gdni_sb_fmt(sb, "%s %s%s", op->ctype, is_output(op) ? "&" : "", op->name);
    }
    gdni_sb_str(sb, ")\n");
}

/* %0, %1, ... of one operand. */
static void numbers(struct gdni_strbuf *sb, int first, int count)
{
    for (int i = 0; i < count; ++i)
        gdni_sb_fmt(sb, "%s%%%d", i ? ", " : "", first + i);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static gdn_status body(struct gdni_strbuf *sb, const struct gdni_instr *instr, const char *type)
{
    for (const char *s = instr->ptx; *s;) {
        if (*s != '$') {
            gdni_sb_bytes(sb, s++, 1);
            continue;
        }
        size_t len = 0;
        for (++s; is_letter(s[len]); ++len) {
        }
        int first;
        const struct gdni_operand *op = find_operand(instr, s, len, &first);
        if (op)
            numbers(sb, first, op->count);
        else if (len == 4 && strncmp(s, "type", 4) == 0)
            gdni_sb_str(sb, type);
        else
            return GDN_FAIL(GDN_E_INVALID, "instruction %s: its text uses $%.*s, which is no operand", instr->name,
                            (int)len, s);
        s += len;
    }
    return GDN_OK;
}

static void constraints(struct gdni_strbuf *sb, const struct gdni_instr *instr, bool outputs)
{
    const char *comma = "";
    gdni_sb_str(sb, " :");
    for (const struct gdni_operand *op = instr->operands; op->name; ++op)
        for (int i = 0; is_output(op) == outputs && i < op->count; ++i) {
            const char *sign = op->dir == GDNI_OUT ? "=" : op->dir == GDNI_INOUT ? "+" : "";
            gdni_sb_fmt(sb, "%s \"%s%c\"(%s", comma, sign, op->constraint, op->name);
            if (op->count > 1) gdni_sb_fmt(sb, "[%d]", i);
            gdni_sb_str(sb, ")");
            comma = ",";
        }
}

gdn_status gdni_emit_instr(struct gdni_strbuf *sb, const struct gdni_instr *instr, const char *type)
{
    bool input_seen = false;
    for (const struct gdni_operand *op = instr->operands; op->name; ++op) {
        if (is_output(op) && input_seen)
            return GDN_FAIL(GDN_E_INVALID, "instruction %s: output $%s stands after an input", instr->name, op->name);
        input_seen |= !is_output(op);
    }
    signature(sb, instr);
    gdni_sb_fmt(sb, "{\n    asm %s(\"", instr->memory ? "volatile" : "");
    GDN_TRY(body(sb, instr, type));
    gdni_sb_str(sb, "\"");
    constraints(sb, instr, true);
    constraints(sb, instr, false);
    gdni_sb_fmt(sb, "%s);\n}\n", instr->memory ? " : \"memory\"" : "");
    return GDN_OK;
}

gdn_status gdni_emit_ptx(struct gdni_strbuf *sb, const struct gdni_spec *spec)
{
    const struct gdni_kernel_info *kernel = gdni_kernel_info((enum gdni_kernel)spec->kernel);
    gdni_sb_str(sb, "#pragma once\n\n#include \"gdn_types.cuh\"\n");
    for (const char *const *name = kernel->instrs; *name; ++name) {
        const struct gdni_instr *instr = gdni_instr_find(*name);
        if (!instr)
            return GDN_FAIL(GDN_E_INVALID, "kernel %s uses instruction %s, which has no row", kernel->name, *name);
        gdni_sb_str(sb, "\n");
        GDN_TRY(gdni_emit_instr(sb, instr, spec->io_type == GDN_BF16 ? "bf16" : "f16"));
    }
    return GDN_OK;
}
