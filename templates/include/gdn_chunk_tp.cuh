/*
 * gdn_chunk_tp.cuh - what one chunk needs before the state is known: cumulated gates, T and P, by four warps (two inverse
 * warps, two score warps) with run-time block indices: one code serves all four.
 *
 * The formulas are those of gdn_prefill_generic.cu. Must not know where T and P go, nor how warps wait for operands.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_norms.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_range.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

constexpr int C = spec::CHUNK, DK = spec::DK, DV = spec::DV;
constexpr int K_STEPS = DK / 16;          /* k16 steps over DK */
constexpr float LOG2_DECAY_MILD = -64.0f; /* down to here a float's ulp, 2^-18, is nothing beside an fp16's */

/*
 * Addresses of five arrays of C floats: c_i (log2) as a float and what the float leaves out, e_i, d_i, beta_i. Under strong
 * decay c_i reaches thousands, where half a float's ulp would be an error of up to 2^-11 in G_ij of neighbours.
 *
 * With in-kernel norms, decay_in holds r of k until T and P are made, then r e; decay_out then is r d. log_decay_rest, which
 * nobody needs by then, holds e times r of q.
 */
struct GateArrays {
    u32 log_decay, log_decay_rest, decay_in, decay_out, beta;

    __device__ __forceinline__ u32 decay_in_q() const
    {
        return spec::QK_L2NORM ? log_decay_rest : decay_in;
    }
};

/*
 * Where warps meet, by a named barrier's number. bar.sync counts threads and knows no places (PTX ISA, "barrier"), but
 * compute-sanitizer calls it divergence where each comes from a place of its own in the code, and does not see what that, or
 * bar.arrive, orders: a checked build meets at mbarriers, of the same order.
 */
#ifdef GDN_CHECKED
__shared__ u64 meetings[16];

__device__ __forceinline__ void init_meeting(int id, int threads)
{
    mbar_init(smem_address(&meetings[id]), threads);
}

__device__ __forceinline__ void meet(int id, int)
{
    mbar_meet(smem_address(&meetings[id]));
}

__device__ __forceinline__ void come_by(int id, int threads)
{
    meet(id, threads);
}
#else
__device__ __forceinline__ void init_meeting(int, int) {}

__device__ __forceinline__ void meet(int id, int threads)
{
    bar_sync(id, threads);
}

/* For who need not wait for the others. */
__device__ __forceinline__ void come_by(int id, int threads)
{
    bar_arrive(id, threads);
}
#endif

/* Named barriers of the four warps that make one chunk's T and P. */
struct AuxBarriers {
    int inverse; /* the two inverse warps */
    int norms;   /* norms of k are there: all four warps meet(), the inverse warps only come_by() */
};

struct Gates {
    RawGate g[2], beta[2]; /* of tokens 2 * lane, 2 * lane + 1 */
};

/* `left`: tokens from the one that the reader stands at to the sequence's end. */
__device__ __forceinline__ Gates fetch_gates(const GateReader &from, const prefill_params &p, int left)
{
    Gates r;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        r.g[i] = from.raw_decay(p, i, i < left);
        r.beta[i] = from.raw_beta(p, i, i < left);
    }
    return r;
}

/* Inclusive sum over the chunk, two tokens a lane, in double: 64 values a chunk cost little. Writes the five arrays. */
__device__ __forceinline__ void store_gates(const GateArrays &to, const GateReader &reader, const Gates &gates,
                                            int lane)
{
    double l[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
        l[i] = reader.log2_decay(gates.g[i]);
    double sum = l[0] + l[1];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const double other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    const double total = __shfl_sync(~0u, sum, 31);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const double c = i == 0 ? sum - l[1] : sum;
        const float rounded = (float)c;
        const u32 at = 4 * (2 * lane + i);
        store_shared(to.log_decay + at, rounded);
        store_shared(to.log_decay_rest + at, (float)(c - rounded));
        if constexpr (!spec::QK_L2NORM) store_shared(to.decay_in + at, exp2_approx(rounded));
        store_shared(to.decay_out + at, exp2_approx((float)(total - c)));
        store_shared(to.beta + at, reader.beta_of(gates.beta[i]));
    }
}

/*
 * One warp's part of the lower triangle of A K^T: five of its ten 16 x 16 blocks, so that two warps share a triangle evenly.
 * The warp with high = 3 has rows 3 and 0 of blocks, the one with high = 2 rows 2 and 1. One code serves all four warps: what
 * they run must stay in the instruction cache beside the state warps' loop.
 */
enum { PART_BLOCKS = 5 };

struct Part {
    float x[PART_BLOCKS][2][4];
};

__device__ __forceinline__ int block_row(int n, int high)
{
    return n < 3 || (n == 4 && high == 3) ? high : 3 - high;
}

__device__ __forceinline__ int block_column(int n, int high)
{
    return n < 3 ? n : n == 3 ? 0 : high == 3 ? 3 : 1;
}

/* Squares of two blocks of 16 rows on the diagonal of K K^T, or of Q Q^T: see gdn_norms.cuh. */
struct Squares {
    float x[2][2][4]; /* blocks of rows 16 * high and 16 * (3 - high): halves of columns */
};

/* The inverse warps' blocks on the diagonal: high = 3 has (3, 3) last and (0, 0) before it, high = 2 (2, 2) and (1, 1). */
__device__ __forceinline__ void take_squares(Squares &squares, const Part &part, int high)
{
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            squares.x[0][n][i] = high == 3 ? part.x[4][n][i] : part.x[2][n][i];
            squares.x[1][n][i] = high == 3 ? part.x[3][n][i] : part.x[4][n][i];
        }
}

/* 1 / norm of rows g and g + 8 of the two blocks. */
struct Norms {
    float r[2][2];

    /* Of the row that this lane stores: a row's four lanes share the work. */
    __device__ __forceinline__ float own(int lane) const
    {
        const float high = (lane & 1) ? r[0][1] : r[0][0], low = (lane & 1) ? r[1][1] : r[1][0];
        return (lane & 2) ? low : high;
    }
    __device__ __forceinline__ static int own_row(int high, int lane)
    {
        return 16 * ((lane & 2) ? 3 - high : high) + 8 * (lane & 1) + (lane >> 2);
    }
};

__device__ __forceinline__ Norms norms_of(const Squares &squares, int lane)
{
    const float2 high = row_norms(&squares.x[0][0][0], &squares.x[0][1][2], lane),
                 low = row_norms(&squares.x[1][0][0], &squares.x[1][1][2], lane);
    return { { { high.x, high.y }, { low.x, low.y } } };
}

/* All four warps need those of k, which the inverse warps have; they do not wait for the score warps. */
__device__ __forceinline__ void share_norms(const GateArrays &gates, const Norms &norms, const AuxBarriers &barriers,
                                            bool scores, int high, int lane)
{
    if (scores) {
        meet(barriers.norms, 128);
        return;
    }
    store_shared(gates.decay_in + 4 * Norms::own_row(high, lane), norms.own(lane));
    come_by(barriers.norms, 128);
    bar_sync(barriers.inverse, 64);
}

/* r d V' in fp16: a long key's entries are small, and its row of K large. */
constexpr bool NORMS_RAISE_LOW = spec::QK_L2NORM && !spec::IO_BF16;

/*
 * What the largest entry of a row of r d V' has to reach for the row to be packed as it is: F16_LOW times the range of r of k,
 * since it may be a short key's. By a warp, once r is shared, before it is folded.
 */
__device__ __forceinline__ u32 lowest_update(const GateArrays &gates, int lane)
{
    const float2 r = load_shared_float2(gates.decay_in + 8 * lane);
    const u32 highest = __reduce_max_sync(~0u, __float_as_uint(fmaxf(r.x, r.y))) >> 23,
              lowest = __reduce_min_sync(~0u, __float_as_uint(fminf(r.x, r.y))) >> 23;
    return min(F16_LOW + ((highest - lowest) << 10), F16_HIGH);
}

/* What the state warps multiply by; all four warps have read what stood there. */
__device__ __forceinline__ void fold_norms(const GateArrays &gates, const Norms &norms, bool scores, int high, int lane)
{
    const u32 at = 4 * Norms::own_row(high, lane);
    const float r = norms.own(lane), in = r * exp2_approx(load_shared_float(gates.log_decay + at));
    store_shared((scores ? gates.decay_in_q() : gates.decay_in) + at, in);
    if (!scores) store_shared(gates.decay_out + at, r * load_shared_float(gates.decay_out + at));
}

__device__ __forceinline__ void gram(Part &part, Squares &squares, Tile<DK> a, Tile<DK> k, bool scores, int high,
                                     int lane)
{
    if constexpr (spec::QK_L2NORM) squares = {};
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 8; ++i)
            part.x[n][i / 4][i % 4] = 0.0f;
#pragma unroll 2
    for (int step = 0; step < K_STEPS; ++step) {
        u32 a_high[4], a_low[4], a_last[4], b[4][4];
        load_a(a_high, a, 16 * high, step, lane);
        load_a(a_low, a, 16 * (3 - high), step, lane);
        if (spec::QK_L2NORM && scores) {
            add_squares(squares.x[0], a_high);
            add_squares(squares.x[1], a_low);
        }
#pragma unroll
        for (int j = 0; j < 3; ++j)
            load_b_rows(b[j], k, 16 * j, step, lane);
        load_b_rows(b[3], k, 16 * block_column(4, high), step, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a_last[i] = high == 3 ? a_high[i] : a_low[i];
#pragma unroll
        for (int n = 0; n < PART_BLOCKS; ++n) {
            const u32(&rows)[4] = n < 3 ? a_high : n == 3 ? a_low : a_last;
            const u32(&columns)[4] = n == 3 ? b[0] : b[n < 3 ? n : 3];
            const u32 b0[2] = { columns[0], columns[1] }, b1[2] = { columns[2], columns[3] };
            mma_io(part.x[n][0], rows, b0);
            mma_io(part.x[n][1], rows, b1);
        }
    }
}

/* c_i - c_j over block (I, J), from one of the two arrays that make up c: x is it, or x grows by it. */
template <bool ADD> __device__ __forceinline__ void differences(float (&x)[2][4], u32 array, int I, int J, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const float row[2] = { load_shared_float(array + 4 * (16 * I + g)),
                           load_shared_float(array + 4 * (16 * I + g + 8)) };
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float2 column = load_shared_float2(array + 4 * (16 * J + 8 * n + 2 * t));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float d = row[i >> 1] - ((i & 1) ? column.y : column.x);
            x[n][i] = ADD ? x[n][i] + d : d;
        }
    }
}

/*
 * Multiplies block (I, J) by G_ij, the norms and, for the inverse, by beta_i. On the diagonal only i > j (for scores i >= j)
 * stays; the rest is selected away, not multiplied, since G overflows there.
 */
__device__ __forceinline__ void apply_gates(float (&x)[2][4], const GateArrays &gates, const Norms &norms, bool scores,
                                            bool mild, int high, int I, int J, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const int reach = 16 * (I - J) + g - 2 * t + (scores ? 1 : 0); /* row - column, less what i and n add below */
    float difference[2][4], beta[2] = { 1.0f, 1.0f }, column[2][2];
    differences<false>(difference, gates.log_decay, I, J, lane);
    if (!mild) differences<true>(difference, gates.log_decay_rest, I, J, lane);
#pragma unroll
    for (int h = 0; h < 2; ++h)
        if (!scores) beta[h] = load_shared_float(gates.beta + 4 * (16 * I + g + 8 * h));
    if constexpr (spec::QK_L2NORM) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float2 r = load_shared_float2(gates.decay_in + 4 * (16 * J + 8 * h + 2 * t));
            column[h][0] = r.x;
            column[h][1] = r.y;
            beta[h] *= I == high ? norms.r[0][h] : norms.r[1][h];
        }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool keep = reach > 8 * n + (i & 1) - 8 * (i >> 1);
            float factor = exp2_approx(difference[n][i]) * beta[i >> 1];
            if constexpr (spec::QK_L2NORM) factor *= column[n][i & 1];
            x[n][i] = keep ? x[n][i] * factor : 0.0f;
        }
}

/* Block (I, J) of a tile from accumulators, as fp16. */
__device__ __forceinline__ void store_block(Tile<C> tile, const float (&x)[2][4], int I, int J, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        store_shared(tile.at(16 * I + g, 2 * J + n) + 4 * t, pack_f16x2(x[n][0], x[n][1]));
        store_shared(tile.at(16 * I + g + 8, 2 * J + n) + 4 * t, pack_f16x2(x[n][2], x[n][3]));
    }
}

/* fp32 diagonal blocks for the elimination, transposed, in the place of P, which is written only afterwards. */
constexpr int DIAGONAL_STRIDE = 20; /* floats: conflict-free transposed stores, 16-byte rows */

__device__ __forceinline__ u32 diagonal_block(Tile<C> p, int I)
{
    return p.base + I * 16 * DIAGONAL_STRIDE * 4;
}

__device__ __forceinline__ void store_diagonal(u32 block, const float (&x)[2][4], int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = g + 8 * (i >> 1), column = 8 * n + 2 * t + (i & 1);
            store_shared(block + 4 * (column * DIAGONAL_STRIDE + row), x[n][i]);
        }
}

/*
 * X = (I + L)^-1 of two 16 x 16 blocks at once, half a warp each, in fp32: lane i of a half solves X[i][:] (I + L) = e_i from
 * the last column to the first, X[i][j] = [i = j] - sum_{k > j} X[i][k] L[k][j].
 */
__device__ __forceinline__ void invert_diagonal(Tile<C> t, u32 block, int I, int lane)
{
    const int i = lane & 15;
    float x[16];
#pragma unroll
    for (int j = 15; j >= 0; --j) {
        float column[16];
#pragma unroll
        for (int q = (j + 1) / 4; q < 4; ++q) {
            const float4 v = load_shared_float4(block + 4 * (j * DIAGONAL_STRIDE + 4 * q));
            column[4 * q] = v.x;
            column[4 * q + 1] = v.y;
            column[4 * q + 2] = v.z;
            column[4 * q + 3] = v.w;
        }
        float even = i == j ? 1.0f : 0.0f, odd = 0.0f;
#pragma unroll
        for (int k = 15; k > j; --k) {
            if (k & 1)
                odd = fmaf(-x[k], column[k], odd);
            else
                even = fmaf(-x[k], column[k], even);
        }
        x[j] = even + odd;
    }
    u32 h[8];
#pragma unroll
    for (int j = 0; j < 8; ++j)
        h[j] = pack_f16x2(x[2 * j], x[2 * j + 1]);
    store_shared(t.at(16 * I + i, 2 * I), h[0], h[1], h[2], h[3]);
    store_shared(t.at(16 * I + i, 2 * I + 1), h[4], h[5], h[6], h[7]);
}

/* An accumulator block as operand B of the next product, rounded to fp16. */
__device__ __forceinline__ void to_b(u32 (&b)[4], const float (&x)[2][4])
{
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        movmatrix_trans(b[2 * n], pack_f16x2(x[n][0], x[n][1]));
        movmatrix_trans(b[2 * n + 1], pack_f16x2(x[n][2], x[n][3]));
    }
}

/* d += tile(I, J) * B */
__device__ __forceinline__ void mma_tile(float (&d)[2][4], Tile<C> tile, int I, int J, const u32 (&b)[4], int lane)
{
    u32 a[4];
    load_a(a, tile, 16 * I, J, lane);
    mma_block(d, a, b);
}

__device__ __forceinline__ void negate(float (&x)[2][4])
{
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            x[n][i] = -x[n][i];
}

/* X_RC = -X_RR (L_RC X_CC), R = C + 1: the tile holds L below and X on the diagonal, and gets X_RC. */
__device__ __forceinline__ void merge_16(Tile<C> tile, int R, int lane)
{
    u32 b[4];
    float product[2][4] = {}, x[2][4] = {};
    load_b_columns(b, tile, R - 1, 16 * (R - 1), lane);
    mma_tile(product, tile, R, R - 1, b, lane);
    to_b(b, product);
    mma_tile(x, tile, R, R, b, lane);
    negate(x);
    __syncwarp(); /* every lane has read L_RC */
    store_block(tile, x, R, R - 1, lane);
}

/* Column block J (0 or 1) of the lower left 32 x 32: X_21 = -X_22 (L_21 X_11) in 32 x 32 blocks. */
__device__ __forceinline__ void merge_32(float (&x)[2][2][4], Tile<C> tile, int J, int lane)
{
    float product[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k)
        if (k >= J) {
            u32 b[4];
            load_b_columns(b, tile, k, 16 * J, lane);
            mma_tile(product[0], tile, 2, k, b, lane);
            mma_tile(product[1], tile, 3, k, b, lane);
        }
    u32 b2[4], b3[4];
    to_b(b2, product[0]);
    to_b(b3, product[1]);
    mma_tile(x[0], tile, 2, 2, b2, lane);
    mma_tile(x[1], tile, 3, 2, b2, lane);
    mma_tile(x[1], tile, 3, 3, b3, lane);
    negate(x[0]);
    negate(x[1]);
}

/* The first half of T from L, by the two inverse warps: L below the diagonal, X = (I + L)^-1 of the blocks on it. */
__device__ __forceinline__ void invert_diagonals(const Part &l, Tile<C> t, Tile<C> scratch, int high, int lane)
{
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n) {
        const int I = block_row(n, high), J = block_column(n, high);
        if (I > J)
            store_block(t, l.x[n], I, J, lane);
        else
            store_diagonal(diagonal_block(scratch, I), l.x[n], lane);
    }
    __syncwarp();
    const int mine = lane < 16 ? 3 - high : high;
    invert_diagonal(t, diagonal_block(scratch, mine), mine, lane);
}

/* The second half: X below the diagonal, 16 -> 32 -> 64. */
__device__ __forceinline__ void merge(Tile<C> t, const AuxBarriers &barriers, int high, int lane)
{
    merge_16(t, high == 3 ? 3 : 1, lane);
    bar_sync(barriers.inverse, 64);
    float x[2][2][4] = {};
    const int J = 3 - high;
    merge_32(x, t, J, lane);
    bar_sync(barriers.inverse, 64); /* both have read L_21 */
    store_block(t, x[0], 2, J, lane);
    store_block(t, x[1], 3, J, lane);
}
