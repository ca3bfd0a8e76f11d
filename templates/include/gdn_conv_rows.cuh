/*
 * gdn_conv_rows.cuh - eight channels of one token, raw, and the rows of a tile in shared memory.
 *
 * A thread's rows lie in a column of shared memory that no other thread touches: row r at r * THREADS vectors, so that a
 * warp's accesses are contiguous. All of a tile's rows, and the taps, are on their way before the first is used: memory sees
 * long reads, then long writes, and registers hold none of it.
 */
#pragma once

#include "gdn_conv_ptx.cuh"

constexpr int CHANNELS = 8;           // of a thread
constexpr int HALO = spec::WIDTH - 1; // tokens that one token looks back
constexpr int TILE = spec::TILE_TOKENS;
constexpr int IO_BYTES = spec::IO_TYPE == TYPE_F32 ? 4 : 2;

/* A tile's rows, the HALO before them, and what the anchor rule may add after them. */
constexpr int TILE_ROWS = TILE + 2 * HALO - 1;

/* Eight elements of TYPE, one after the other. */
template <int TYPE> struct raw8 {
    static constexpr int VECTORS = TYPE == TYPE_F32 ? 2 : 1;
    vec16 part[VECTORS];
};
typedef raw8<spec::IO_TYPE> io8;
typedef raw8<spec::STATE_TYPE> state8;

/* Then this thread's taps, [8, WIDTH]. Tokens taken together may be read past a run, up to there. */
constexpr int TOKENS_AT_ONCE = 2;
constexpr int COLUMN_ROWS = TILE_ROWS + spec::WIDTH;
static_assert(TOKENS_AT_ONCE - 1 <= spec::WIDTH, "a read past the last row stays in the column");
static_assert(spec::SMEM_BYTES == COLUMN_ROWS * spec::THREADS * (int)sizeof(io8), "spec.c and this picture differ");

template <int TYPE> __device__ __forceinline__ raw8<TYPE> zeros()
{
    return raw8<TYPE>{};
}

template <int TYPE> __device__ __forceinline__ raw8<TYPE> load_raw(const void *at)
{
    raw8<TYPE> r;
#pragma unroll
    for (int i = 0; i < raw8<TYPE>::VECTORS; ++i)
        r.part[i] = load_16((const vec16 *)at + i);
    return r;
}

template <int TYPE> __device__ __forceinline__ void store_raw(void *at, const raw8<TYPE> &r)
{
#pragma unroll
    for (int i = 0; i < raw8<TYPE>::VECTORS; ++i)
        store_16((vec16 *)at + i, r.part[i]);
}

/* Bits of element i of an array of vectors. */
template <int TYPE> __device__ __forceinline__ u32 element(const raw8<TYPE> *r, int i)
{
    const vec16 *const v = r[i / CHANNELS].part;
    const int c = i % CHANNELS;
    if constexpr (TYPE == TYPE_F32)
        return v[c / 4].word[c % 4];
    else
        return v[0].word[c / 2] >> 16 * (c % 2) & 0xffff;
}

template <int TYPE> __device__ __forceinline__ void set_element(raw8<TYPE> &r, int c, u32 bits)
{
    if constexpr (TYPE == TYPE_F32)
        r.part[c / 4].word[c % 4] = bits;
    else
        r.part[0].word[c / 2] = c % 2 ? (r.part[0].word[c / 2] & 0xffff) | bits << 16 : bits;
}

template <int TYPE> __device__ __forceinline__ float bits_to_float(u32 bits)
{
    if constexpr (TYPE == TYPE_F32)
        return __uint_as_float(bits);
    else if constexpr (TYPE == TYPE_BF16)
        return __uint_as_float(bits << 16);
    else
        return f16_to_float((u16)bits);
}

template <int TYPE> __device__ __forceinline__ u32 float_to_bits(float x)
{
    if constexpr (TYPE == TYPE_F32)
        return __float_as_uint(x);
    else
        return (TYPE == TYPE_BF16 ? pack_bf16x2(x, 0.0f) : pack_f16x2(x, 0.0f)) & 0xffff;
}

template <int TYPE> __device__ __forceinline__ void unpack(float (&to)[CHANNELS], const raw8<TYPE> &from)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        if constexpr (TYPE == TYPE_BF16)
            to[c] = __uint_as_float(c % 2 ? from.part[0].word[c / 2] & 0xffff0000u : from.part[0].word[c / 2] << 16);
        else
            to[c] = bits_to_float<TYPE>(element(&from, c));
}

__device__ __forceinline__ io8 pack(const float (&from)[CHANNELS])
{
    io8 r;
#pragma unroll
    for (int c = 0; c < CHANNELS; c += 2)
        if constexpr (spec::IO_TYPE == TYPE_F32) {
            r.part[c / 4].word[c % 4] = __float_as_uint(from[c]);
            r.part[c / 4].word[c % 4 + 1] = __float_as_uint(from[c + 1]);
        } else {
            r.part[0].word[c / 2] = pack_io(from[c], from[c + 1]);
        }
    return r;
}

/* ---- Rows of x ---- */

/*
 * Rows and lanes are u32: the host bounds tokens, and strides in elements, by 2^31, and items by 2^32. Addresses have
 * 64 bits.
 */
template <int BYTES> struct pitch_of {
    typedef u32 type;
};
template <> struct pitch_of<4> {
    typedef u64 type;
};
typedef pitch_of<IO_BYTES>::type pitch_bytes; // from row to row: a row's address is one product and sum, if it has 32 bits

struct packed_rows {
    const u8 *at; // this thread's channels of row 0
    pitch_bytes pitch;
};

__device__ __forceinline__ const u8 *row_at(const packed_rows &x, u32 row)
{
    return x.at + (u64)row * x.pitch;
}

/* A row again, apart from the tile: the end of a sequence, a checkpoint's tokens. */
__device__ __forceinline__ io8 load_row(const packed_rows &x, u32 row)
{
    const u8 *const at = row_at(x, row);
    io8 r;
    if constexpr (spec::VECTOR_BYTES == 16) {
        r = load_raw<spec::IO_TYPE>(at);
    } else {
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            set_element<spec::IO_TYPE>(r, c, IO_BYTES == 4 ? ((const u32 *)at)[c] : ((const u16 *)at)[c]);
    }
    return r;
}

struct tile_rows {
    io8 *column; // of this thread
    u32 first;   // the packed stream's row that follows the halo
};

__device__ __forceinline__ io8 *slot_of_row(const tile_rows &rows, u32 row)
{
    return rows.column + (int)(row - rows.first + HALO) * spec::THREADS;
}

__device__ __forceinline__ void copy_row(io8 *to, const u8 *from)
{
#pragma unroll
    for (int i = 0; i < io8::VECTORS; ++i)
        copy_16<spec::VECTOR_BYTES>(&to->part[i], from + 16 * i);
}

__device__ __forceinline__ tile_rows find_tile(u32 first)
{
    return tile_rows{ (io8 *)shared_memory() + threadIdx.x, first };
}

/* Starts the copies of rows [first - HALO, end). Never leaves [0, end), so it may run before anything is known of sequences. */
__device__ __forceinline__ void start_tile(const packed_rows &x, u32 first, u32 end)
{
    io8 *const column = find_tile(first).column;
    if (first >= HALO && first + TILE <= end) { // all but the first and the last tile
        const u8 *at = row_at(x, first - HALO);
#pragma unroll
        for (u32 r = 0; r < TILE + HALO; ++r, at += x.pitch)
            copy_row(column + r * spec::THREADS, at);
    } else {
#pragma unroll 1
        for (u32 row = first - min(first, (u32)HALO); row < end; ++row)
            copy_row(column + (row - first + HALO) * spec::THREADS, row_at(x, row));
    }
    end_group();
}

/* Rows past the tile that its last sequence's anchor brings: at most HALO - 1, seldom any. */
__device__ __forceinline__ void add_rows(const tile_rows &rows, const packed_rows &x, u32 first, u32 end)
{
    for (u32 row = first; row < end; ++row)
        copy_row(slot_of_row(rows, row), row_at(x, row));
    end_group();
}
