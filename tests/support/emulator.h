/*
 * emulator.h - the chunked algorithm of the prefill kernels on the CPU, in float32, with every rounding that a kernel
 * makes to a 16-bit operand as a named point. Its error against the fp64 recurrence is what an exact kernel can
 * reach: the tests' bound.
 *
 * A chunk is 64 tokens of one head; rows past the sequence's end are zero with g = 0, beta = 0. With log2 gates
 *
 *   c_i = inclusive sum of max(g_i log2(e), -150)      e_i = 2^c_i      d_i = 2^(c_63 - c_i)      el = 2^c_63
 *   L   = beta_i 2^(c_i - c_j) (K K^T)_ij  below the diagonal
 *   X   = (I + L)^-1: 16 x 16 diagonal blocks by substitution, then merges X21 = -X22 (L21 X11), 16 -> 32 -> 64
 *   T   = X                     P = 2^(c_i - c_j) (Q K^T)_ij  on and below the diagonal
 *   W   = beta_i (V - e_i K S)  V' = T W         V'' = d_i V'
 *   O   = scale (e_i (Q S) + P V')               S = el S + K^T V''
 *
 * With GDN_PREFILL_QK_L2NORM, rq and rk = (|x|^2 + 1e-6)^-1/2 of the rows of q and k are factors: L gets rk_i rk_j, P
 * rq_i rk_j, e_i becomes rk_i e_i in W and rq_i e_i in O, d_i becomes rk_i d_i. Of the conventions it knows the defaults alone:
 * packed tensors, grouped heads, float32 log decay and beta, float32 states by sequence.
 *
 * Products of 16-bit operands are exact and sums are float32, as in the tensor cores; so are gates (but c_i, which is
 * float64), L, the state.
 */
#ifndef TEST_EMULATOR_H
#define TEST_EMULATOR_H

#include <stdbool.h>

#include "gdn_jit/gdn_jit.h"

/* Where a kernel rounds. */
enum emu_point {
    EMU_MERGE,  /* L21, X11, X22 and L21 X11 of each merge */
    EMU_T,      /* T, as operand of T W */
    EMU_W,      /* W, as operand of T W */
    EMU_P,      /* P, as operand of P V' */
    EMU_VP,     /* V', as operand of P V' */
    EMU_STATE,  /* S, as operand of K S and Q S; once a chunk */
    EMU_UPDATE, /* V'', as operand of K^T V'' */
    EMU_OUTPUT, /* O */
    EMU_NUM_POINTS
};

/* To what. */
enum emu_format {
    EMU_EXACT, /* float32: no rounding */
    EMU_BF16,
    EMU_F16,        /* overflows to infinity */
    EMU_F16_SCALED, /* each value column (dv) has a power-of-two factor that brings its largest element near 2^10 */
    EMU_IO          /* bf16, or for fp16 tensors: O plain, operands as EMU_F16_SCALED */
};

struct emu_rounding {
    enum emu_format at[EMU_NUM_POINTS];
};

extern const struct emu_rounding emu_kernel; /* what the kernels do */
extern const struct emu_rounding emu_none;   /* EMU_EXACT everywhere: float32 and nothing else */

const char *emu_point_name(enum emu_point point);

/*
 * Same arguments as gdn_reference_prefill(), which checks them: they must be valid. o: [tokens, H, head_dim_v] floats
 * that hold the rounded values; rows outside sequences are left alone. state: [num_seqs, H, ...] in desc's layout, or
 * NULL. args->o and args->final_state are not used. False when memory is out.
 */
bool emu_prefill(const gdn_prefill_desc *desc, const gdn_prefill_args *args, const struct emu_rounding *rounding,
                 float *o, float *state);

#endif
