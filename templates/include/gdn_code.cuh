/*
 * gdn_code.cuh - a kernel's code, brought to L2 before it is run.
 *
 * Between two calls a model reads its weights, and what L2 then holds is not this kernel. Line by line all SMs would wait for
 * it to come from memory. So each CTA asks for a share of the lines first of all.
 */
#pragma once

#include "gdn_ptx_sm90.cuh"

/*
 * Its address is the kernel's, with the number of its code's lines of 128 bytes above bit ADDRESS_BITS, when the library has
 * loaded it (src/runtime/code_address.h); its own, with nothing up there, where it could not. That the code names the kernel
 * itself costs hundreds of instructions where launches are programmatic, and spills.
 */
extern "C" {
__device__ u8 gdn_own_code;
}

/*
 * By one thread of each CTA, as early as it can: also before it waits for the kernel before. A prefetch of what is no memory
 * is no error.
 */
__device__ __forceinline__ void prefetch_code()
{
    constexpr u32 PIECE = 1024, LINE = 128, ADDRESS_BITS = 49;
    const u64 address = (u64)&gdn_own_code;
    const u32 pieces = ((u32)(address >> ADDRESS_BITS) * LINE + PIECE - 1) / PIECE;
    const u8 *const code = (const u8 *)(address & (((u64)1 << ADDRESS_BITS) - 1));
    for (u32 piece = blockIdx.x; piece < pieces; piece += gridDim.x)
        bulk_prefetch(code + PIECE * piece, PIECE);
}
