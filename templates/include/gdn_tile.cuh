/*
 * gdn_tile.cuh - 16-bit tiles in shared memory and their fragments.
 *
 * A tile has rows of COLUMNS elements (16, 32 or a multiple of 64). Its 16-byte pieces are permuted inside a row so that the
 * eight rows of an 8x8 block lie in different banks, for ldmatrix with and without .trans: piece ^= row & 7, or, where 2 or 4
 * rows share the 128 bytes of all banks, piece ^= which of those groups of rows it is.
 */
#pragma once

#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"

template <int COLUMNS> struct Tile {
    static constexpr int ROW_BYTES = COLUMNS * 2;
    static constexpr int ROWS_PER_LINE = ROW_BYTES < 128 ? 128 / ROW_BYTES : 1;
    static constexpr int PIECE_MASK = ROW_BYTES < 128 ? ROW_BYTES / 16 - 1 : 7;
    u32 base; /* shared-memory address */

    /* Address of the 16-byte piece that holds columns 8 * piece .. 8 * piece + 7 of a row. */
    __device__ __forceinline__ u32 at(int row, int piece) const
    {
        return base + row * ROW_BYTES + ((piece ^ ((u32)row / ROWS_PER_LINE & PIECE_MASK)) << 4);
    }
    /*
     * at(row + r, piece) from at(row, piece), where row and r have no bit below 8 in common and base is 128-byte aligned.
     * Of rows of 128 bytes and more.
     */
    __device__ __forceinline__ u32 below(u32 at_row, int r) const
    {
        return (at_row ^ ((r & 7) << 4)) + r * ROW_BYTES;
    }
};

/* Operand A, rows row0..+15, columns 16 * step..+15. */
template <int C> __device__ __forceinline__ void load_a(u32 (&a)[4], Tile<C> tile, int row0, int step, int lane)
{
    ldmatrix_x4(a, tile.at(row0 + (lane & 15), 2 * step + (lane >> 4)));
}

/* Operand B = tile^T for two n-blocks: n = tile rows row0..+15, k = tile columns 16 * step..+15. b[0..1], then b[2..3]. */
template <int C> __device__ __forceinline__ void load_b_rows(u32 (&b)[4], Tile<C> tile, int row0, int step, int lane)
{
    ldmatrix_x4(b, tile.at(row0 + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)));
}

/* Operand B = tile for two n-blocks: k = tile rows 16 * step..+15, n = tile columns column0..+15. */
template <int C>
__device__ __forceinline__ void load_b_columns(u32 (&b)[4], Tile<C> tile, int step, int column0, int lane)
{
    ldmatrix_x4_trans(b, tile.at(16 * step + (lane & 15), column0 / 8 + (lane >> 4)));
}

/*
 * Transpose of a 16 x 16 block in accumulator layout: rows = tile columns column0..+15, columns = tile rows row0..+15.
 * r[0], r[1]: rows g and g + 8 of the first 8 columns; r[2], r[3]: of the second 8.
 */
template <int C>
__device__ __forceinline__ void load_transposed(u32 (&r)[4], Tile<C> tile, int row0, int column0, int lane)
{
    ldmatrix_x4_trans(r, tile.at(row0 + (lane & 7) + ((lane >> 4) << 3), column0 / 8 + ((lane >> 3) & 1)));
}

__device__ __forceinline__ void store_shared(u32 address, u32 value)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, float value)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, u32 x, u32 y, u32 z, u32 w)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

__device__ __forceinline__ uint4 load_shared_16(u32 address)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ float4 load_shared_float4(u32 address)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ float2 load_shared_float2(u32 address)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ float load_shared_float(u32 address)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ u32 load_shared_u32(u32 address)
{
    u32 v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ u32 load_shared_u16(u32 address)
{
    u16 v;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ void store_shared_u16(u32 address, u32 value)
{
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"((u16)value) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

/* d (16 x 16) += A B, B row-major [k][n] in two n-blocks. */
__device__ __forceinline__ void mma_block(float (&d)[2][4], const u32 (&a)[4], const u32 (&b)[4])
{
    const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    mma_f16(d[0], a, b0);
    mma_f16(d[1], a, b1);
}
