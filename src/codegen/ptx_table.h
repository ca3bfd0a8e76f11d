/*
 * ptx_table.h - instructions whose operand lists nobody should number by hand, as data (ptx_table.c), and the printer that
 * turns a row into an inline-asm wrapper (emit_ptx.c).
 *
 * In a row's PTX, $name stands for the operand's %i list, and $type for the spec's 16-bit type ("bf16", "f16").
 */
#ifndef GDNI_PTX_TABLE_H
#define GDNI_PTX_TABLE_H

#include "base/strbuf.h"
#include "gdn_jit/gdn_jit.h"

enum gdni_dir { GDNI_OUT, GDNI_INOUT, GDNI_IN };

struct gdni_operand {
    const char *name, *ctype;
    char constraint;   /* of inline asm: r, f, l */
    enum gdni_dir dir; /* outputs come first in a row */
    int count;         /* > 1: a register array passed by reference */
};

enum { GDNI_MAX_OPERANDS = 6 };

struct gdni_instr {
    const char *name; /* of the wrapper */
    const char *ptx;
    bool memory;                                     /* touches memory: volatile with a memory clobber */
    struct gdni_operand operands[GDNI_MAX_OPERANDS]; /* ends at a NULL name */
};

const struct gdni_instr *gdni_instr_at(int i); /* NULL past the end */
const struct gdni_instr *gdni_instr_find(const char *name);

/* Prints the wrapper. GDN_E_INVALID names an unknown $operand or an output after an input. */
gdn_status gdni_emit_instr(struct gdni_strbuf *sb, const struct gdni_instr *instr, const char *type);

#endif
