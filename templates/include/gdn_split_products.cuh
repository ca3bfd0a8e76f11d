/*
 * gdn_split_products.cuh - the recurrence's products of a chunk, of one warp's share, and its part of a state.
 */
#pragma once

#include "gdn_ptx.cuh"
#include "gdn_range.cuh"
#include "gdn_split_exchange.cuh"
#include "gdn_split_image.cuh"
#include "gdn_split_shared.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"

typedef float KeyPart[ROW_BLOCKS][KEY_BLOCKS][4];     /* S^T: all rows, this warp's keys */
typedef float TokenPart[ROW_BLOCKS][TOKEN_BLOCKS][4]; /* all rows, this warp's tokens */

template <int BLOCKS> __device__ __forceinline__ void clear(float (&x)[ROW_BLOCKS][BLOCKS][4])
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                x[m][n][i] = 0.0f;
}

__device__ __forceinline__ void copy(TokenPart &to, const TokenPart &from)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < TOKEN_BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                to[m][n][i] = from[m][n][i];
}

template <int BLOCKS> __device__ __forceinline__ void multiply(float (&x)[ROW_BLOCKS][BLOCKS][4], float factor)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
        scale_rows(x[m], factor, factor);
}

template <int BLOCKS> __device__ __forceinline__ void apply_scales(float (&x)[ROW_BLOCKS][BLOCKS][4], const Scales &s)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
        scale_rows(x[m], s[m].lo, s[m].hi);
}

template <int BLOCKS> __device__ __forceinline__ void remove_scales(float (&x)[ROW_BLOCKS][BLOCKS][4], const Scales &s)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
        scale_rows(x[m], inverse_scale(s[m].lo), inverse_scale(s[m].hi));
}

/*
 * d += A B of one k-step of STEPS: all row blocks of a packed A at `data`, and B as pairs of n-blocks. IO: both are of the I/O
 * type, else fp16.
 */
template <int STEPS, bool IO, int PAIRS>
__device__ __forceinline__ void mma_step(float (&d)[ROW_BLOCKS][2 * PAIRS][4], u32 data, int step, const u32 (&b)[PAIRS][4],
                                         int lane)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        u32 a[4];
        load_fragment<STEPS>(a, data, m, step, lane);
#pragma unroll
        for (int n = 0; n < 2 * PAIRS; ++n) {
            const u32 block[2] = { b[n / 2][2 * (n % 2)], b[n / 2][2 * (n % 2) + 1] };
            if constexpr (IO)
                mma_io(d[m][n], a, block);
            else
                mma_f16(d[m][n], a, block);
        }
    }
}

/* Operand B = tile^T over DK, this warp's tokens. */
struct KeysOperand {
    u32 b[K_STEPS][TOKEN_BLOCKS / 2][4];

    __device__ __forceinline__ void load(Tile<DK> tile, int warp, int lane)
    {
#pragma unroll
        for (int step = 0; step < K_STEPS; ++step)
            load_b_rows(b[step][0], tile, TOKENS * warp, step, lane);
    }
};

/* d += S^T tile^T */
__device__ __forceinline__ void mma_keys(TokenPart &d, u32 state, const KeysOperand &tile, int lane)
{
#pragma unroll
    for (int step = 0; step < K_STEPS; ++step)
        mma_step<K_STEPS, true>(d, state, step, tile.b[step], lane);
}

/* Operand B = block row `warp` of a lower triangle, transposed; `first` is its block (warp, 0). */
struct TriangleOperand {
    u32 b[TOKEN_STEPS][TOKEN_BLOCKS / 2][4];

    __device__ __forceinline__ void load(Tile<16> first, int warp, int lane)
    {
#pragma unroll
        for (int step = 0; step < TOKEN_STEPS; ++step)
            if (step <= warp) load_b_rows(b[step][0], Tile<16>{ first.base + step * BLOCK_BYTES }, 0, 0, lane);
    }
};

/* d += W^T tile^T, this warp's tokens. */
__device__ __forceinline__ void mma_triangle(TokenPart &d, u32 fragments, const TriangleOperand &tile, int warp,
                                             int lane)
{
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
        if (step > warp) break;
        mma_step<TOKEN_STEPS, false>(d, fragments, step, tile.b[step], lane);
    }
}

/* Operand B = K, this warp's keys. */
struct UpdateOperand {
    u32 b[TOKEN_STEPS][KEY_BLOCKS / 2][4];

    __device__ __forceinline__ void load(Tile<DK> k, int warp, int lane)
    {
#pragma unroll
        for (int step = 0; step < TOKEN_STEPS; ++step)
#pragma unroll
            for (int n = 0; n < KEY_BLOCKS / 2; ++n)
                load_b_columns(b[step][n], k, step, KEYS * warp + 16 * n, lane);
    }
};

/* S^T += V^T K over the chunk's tokens. */
__device__ __forceinline__ void mma_update(KeyPart &S, u32 fragments, const UpdateOperand &k, int lane)
{
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step)
        mma_step<TOKEN_STEPS, true>(S, fragments, step, k.b[step], lane);
}

/* Operands of the residual, this warp's tokens. */
struct Residual {
    float2 e[2], beta[2];
    u32 v[ROW_BLOCKS][4];

    __device__ __forceinline__ void load(const Slot &slot, int warp, int lane)
    {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u32 at = 4 * (TOKENS * warp + 8 * h + 2 * (lane & 3));
            e[h] = load_shared_float2(slot.image.decay_in() + at);
            beta[h] = load_shared_float2(slot.image.beta() + at);
        }
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m)
            load_transposed(v[m], slot.v, TOKENS * warp, 16 * m, lane);
    }
    /* x = diag(beta) (v - e x) */
    __device__ __forceinline__ void apply(TokenPart &x) const
    {
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float(&y)[4] = x[m][h];
                y[0] = beta[h].x * (io_lo(v[m][2 * h]) - e[h].x * y[0]);
                y[1] = beta[h].y * (io_hi(v[m][2 * h]) - e[h].y * y[1]);
                y[2] = beta[h].x * (io_lo(v[m][2 * h + 1]) - e[h].x * y[2]);
                y[3] = beta[h].y * (io_hi(v[m][2 * h + 1]) - e[h].y * y[3]);
            }
    }
};

/* Multiplies columns (this warp's tokens) by one of the image's gate arrays. */
__device__ __forceinline__ void scale_columns(TokenPart &x, u32 gates, int warp, int lane)
{
    const int t = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float2 f = load_shared_float2(gates + 4 * (TOKENS * warp + 8 * h + 2 * t));
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m) {
            x[m][h][0] *= f.x;
            x[m][h][1] *= f.y;
            x[m][h][2] *= f.x;
            x[m][h][3] *= f.y;
        }
    }
}

/* This warp's part of a state: dk = dk0 + 8 n + 2 t (+ 1), dv = dv0 + 16 m + g (+ 8). */
__device__ __forceinline__ void load_state(KeyPart &S, const StateAt<const void> &from, int dk0, int dv0, int lane)
{
    const StateAt<const void> own = from.beginning_at(dk0 + 2 * (lane & 3), dv0 + (lane >> 2));
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                own.load_pair(S[m][n][i], S[m][n][i + 1], 8 * n, 16 * m + 4 * i);
}

__device__ __forceinline__ void save_state(const KeyPart &S, const StateAt<void> &to, int dk0, int dv0, int lane)
{
    const StateAt<void> own = to.beginning_at(dk0 + 2 * (lane & 3), dv0 + (lane >> 2));
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                own.store_pair(8 * n, 16 * m + 4 * i, S[m][n][i], S[m][n][i + 1]);
}
