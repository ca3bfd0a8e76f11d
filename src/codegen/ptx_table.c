/*
 * ptx_table.c - owns the instruction rows. Must not know: which kernel uses them (spec.c), how they are printed (emit_ptx.c).
 *
 * Operand layouts are those of the PTX ISA, "Warp-level matrix instructions", m16n8k16: lane = 4 * g + t holds
 *   A (16 x 16) a[0] row g, columns 2t, 2t+1   a[1] row g + 8   a[2] columns + 8   a[3] both
 *   B (16 x 8)  b[0] rows 2t, 2t+1, column g   b[1] rows + 8
 *   C (16 x 8)  d[0..1] row g, columns 2t, 2t+1   d[2..3] row g + 8
 */
#include <string.h>

#include "codegen/ptx_table.h"

#define MMA_OPERANDS                                                                                                   \
    {                                                                                                                  \
        { "d", "float", 'f', GDNI_INOUT, 4 }, { "a", "u32", 'r', GDNI_IN, 4 },                                         \
        {                                                                                                              \
            "b", "u32", 'r', GDNI_IN, 2                                                                                \
        }                                                                                                              \
    }
#define LDMATRIX_OPERANDS                                                                                              \
    {                                                                                                                  \
        { "r", "u32", 'r', GDNI_OUT, 4 },                                                                              \
        {                                                                                                              \
            "address", "u32", 'r', GDNI_IN, 1                                                                          \
        }                                                                                                              \
    }

/*
 * wgmma: "Asynchronous warpgroup level matrix multiply-accumulate instructions", m64nNk16. Thread 32 * warp + 4 * g + t of the
 * warpgroup holds of D (64 x N) rows 16 * warp + g and + 8, columns 8 * i + 2 * t, + 1: d[4 * i ..] as C above. A in registers
 * is laid out as A above, B and a shared A are matrix descriptors. d = a b where accumulate is 0, else d += a b. _mn: B is
 * stored with N contiguous.
 */
#define WGMMA(n, type, a, transposed)                                                                                  \
    "{ .reg .pred p; setp.ne.b32 p, $accumulate, 0; wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type      \
    " {$d}, " a ", $b, p, 1, 1" transposed "; }"
#define WGMMA_OPERANDS(registers, a_type, a_constraint, a_count)                                                       \
    {                                                                                                                  \
        { "d", "float", 'f', GDNI_INOUT, registers }, { "a", a_type, a_constraint, GDNI_IN, a_count },                 \
            { "b", "u64", 'l', GDNI_IN, 1 },                                                                           \
        {                                                                                                              \
            "accumulate", "u32", 'r', GDNI_IN, 1                                                                       \
        }                                                                                                              \
    }

static const struct gdni_instr instrs[] = {
    { "mma_io", "mma.sync.aligned.m16n8k16.row.col.f32.$type.$type.f32 {$d}, {$a}, {$b}, {$d};", false, MMA_OPERANDS },
    { "mma_f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$d}, {$a}, {$b}, {$d};", false, MMA_OPERANDS },
    { "ldmatrix_x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$r}, [$address];", true, LDMATRIX_OPERANDS },
    { "ldmatrix_x4_trans", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$r}, [$address];", true,
      LDMATRIX_OPERANDS },
    { "movmatrix_trans",
      "movmatrix.sync.aligned.m8n8.trans.b16 $d, $a;",
      false,
      { { "d", "u32", 'r', GDNI_OUT, 1 }, { "a", "u32", 'r', GDNI_IN, 1 } } },
    { "wgmma_ss_n64", WGMMA("64", "$type", "$a", ", 0, 0"), true, WGMMA_OPERANDS(32, "u64", 'l', 1) },
    { "wgmma_rs_n64", WGMMA("64", "$type", "{$a}", ", 0"), true, WGMMA_OPERANDS(32, "u32", 'r', 4) },
    { "wgmma_rs_n64_f16", WGMMA("64", "f16", "{$a}", ", 0"), true, WGMMA_OPERANDS(32, "u32", 'r', 4) },
    { "wgmma_rs_n64_f16_mn", WGMMA("64", "f16", "{$a}", ", 1"), true, WGMMA_OPERANDS(32, "u32", 'r', 4) },
    { "wgmma_rs_n32_f16", WGMMA("32", "f16", "{$a}", ", 0"), true, WGMMA_OPERANDS(16, "u32", 'r', 4) },
    { "wgmma_rs_n128_mn", WGMMA("128", "$type", "{$a}", ", 1"), true, WGMMA_OPERANDS(64, "u32", 'r', 4) },
    { "wgmma_rs_n128_f16_mn", WGMMA("128", "f16", "{$a}", ", 1"), true, WGMMA_OPERANDS(64, "u32", 'r', 4) },
    /* Copies `bytes` (0 to 16) of 16 to shared memory, the rest are zeros; `source` is not read when bytes is 0. */
    { "cp_async_16",
      "cp.async.cg.shared.global [$address], [$source], 16, $bytes;",
      true,
      { { "address", "u32", 'r', GDNI_IN, 1 },
        { "source", "const void *", 'l', GDNI_IN, 1 },
        { "bytes", "u32", 'r', GDNI_IN, 1 } } },
};
enum { NUM_INSTRS = sizeof instrs / sizeof instrs[0] };

const struct gdni_instr *gdni_instr_at(int i)
{
    return i >= 0 && i < NUM_INSTRS ? &instrs[i] : NULL;
}

const struct gdni_instr *gdni_instr_find(const char *name)
{
    for (int i = 0; i < NUM_INSTRS; ++i)
        if (strcmp(instrs[i].name, name) == 0) return &instrs[i];
    return NULL;
}
