/*
 * gdn_code.cuh - a kernel's code, brought to L2 before it is run.
 *
 * Between two calls a model reads its weights, and what L2 then holds is not this kernel. Line by line all SMs would wait for
 * it to come from memory. So each CTA asks for a share of the lines first of all.
 */
#pragma once

#include "gdn_ptx_sm90.cuh"

/*
 * Its address is the kernel's, with the number of its code's lines above spec::ADDRESS_BITS, when the library has loaded it
 * (src/runtime/code_address.h); its own, with nothing up there, where it could not. That the code names the kernel itself costs
 * hundreds of instructions where launches are programmatic, and spills.
 */
extern "C" {
__device__ u8 gdn_own_code;
}

/*
 * By a warp of each CTA, as early as it can: also before it waits for the kernel before. Line by line, not by TMA, of which a
 * call of a CTA or two wants its first tiles.
 */
__device__ __forceinline__ void prefetch_code(int lane)
{
    constexpr u64 PLACE = ((u64)1 << spec::ADDRESS_BITS) - spec::CODE_LINE;
    const u64 address = (u64)&gdn_own_code;
    const u32 lines = (u32)(address >> spec::ADDRESS_BITS);
    for (u32 line = blockIdx.x + gridDim.x * lane; line < lines; line += gridDim.x * 32)
        prefetch_line((const u8 *)(address & PLACE) + spec::CODE_LINE * line);
}
