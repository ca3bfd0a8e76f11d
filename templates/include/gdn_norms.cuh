/*
 * gdn_norms.cuh - 1 / norm of rows of q and k, float32, for in-kernel norms: the rows themselves stay as they are given.
 *
 * Sums of squares of rows are the diagonal of a Gram matrix. K K^T is there anyway. For q it is Q Q^T of 16 rows: in m16n8k16
 * the operand A of 16 rows is, register by register, the operand B of its two halves, so that this costs two products a step
 * and no load. (Beside wgmma such products wait long: of the Hopper kernel's q see gdn_hopper_aux.cuh.)
 */
#pragma once

#include "gdn_ptx.cuh"
#include "gdn_types.cuh"

/* x (16 x 16, two halves of columns) += A A^T */
__device__ __forceinline__ void add_squares(float (&x)[2][4], const u32 (&a)[4])
{
    const u32 b0[2] = { a[0], a[2] }, b1[2] = { a[1], a[3] };
    mma_io(x[0], a, b0);
    mma_io(x[1], a, b1);
}

/* Any number does for a row of zeros; 1 is one that nobody has to make room for. (rsqrtf() minds arguments below 2^-126.) */
__device__ __forceinline__ float inverse_norm(float square)
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(square + 1e-6f));
    return square == 0.0f ? 1.0f : r;
}

/* Of rows g and g + 8, from a 16 x 16 block's diagonal: lanes of row g have (g, g) in `first`, (g + 8, g + 8) in `second`. */
__device__ __forceinline__ float2 row_norms(const float *first, const float *second, int lane)
{
    const int g = lane >> 2, owner = (lane & ~3) | (g >> 1); /* column g, of a row's four lanes */
    return { inverse_norm(__shfl_sync(~0u, (g & 1) ? first[1] : first[0], owner)),
             inverse_norm(__shfl_sync(~0u, (g & 1) ? second[1] : second[0], owner)) };
}
