/*
 * gdn_hopper_rows.cuh - what a warpgroup of 64 value columns has in registers: S^T, W^T, O^T as accumulators and as operands A,
 * in fp16's range, from and to memory. Must not know: in what order a chunk is computed.
 */
#pragma once

#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/*
 * The scale's place: P (fp16) has a power of two of it, and O takes the rest at the end, so that an entry of P, which stands in
 * all value columns, is rounded as it is anywhere. Not for bf16, whose bounds have room: there P has all of it while that is
 * harmless.
 */
constexpr bool LATE_SCALE = !spec::IO_BF16;
/* This lane's part of a state: value columns dv and dv + 8. */
__device__ __forceinline__ void load_state(float (&S)[64], const StateAt<const void> &from, int dv)
{
    const int t = lane_id() & 3;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            from.load_pair(S[4 * n + i], S[4 * n + i + 1], 8 * n + 2 * t, dv + 4 * i);
}

__device__ __forceinline__ void save_state(const float (&S)[64], const StateAt<void> &to, int dv)
{
    const int t = lane_id() & 3;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            to.store_pair(8 * n + 2 * t, dv + 4 * i, S[4 * n + i], S[4 * n + i + 1]);
}

/* 2^-3 of the power of two at or below x, but above 2^-71 (see gdn_range.cuh); 1 for zero, inf, NaN. */
__device__ __forceinline__ float row_scale(float x)
{
    const int e = (int)(__float_as_uint(x) >> 23);
    if (x == 0.0f || e >= 255) return 1.0f;
    return __uint_as_float((u32)(max(e, 60) - 3) << 23);
}

/*
 * Scaled rows have their largest between 2^3 and 2^4 (see row_scale()), divided by this: just below the limit, so that the
 * small ones of long keys keep what bits there are. (4: of row_scale(); 15: fp16's bias. A subnormal limit counts as 2^-15.)
 */
__device__ __forceinline__ float norm_size(u32 limits)
{
    return NORMS_LIMIT_W ? power_of_two(4 + 15 - (int)(limits >> 10 & 0x1f)) : 1.0f;
}

/* Largest magnitudes of rows g and g + 8, of this lane's columns. */
template <int N> __device__ __forceinline__ float2 row_max(const float (&x)[N])
{
    float2 m = { 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        m.x = fmaxf(m.x, fmaxf(fabsf(x[i]), fabsf(x[i + 1])));
        m.y = fmaxf(m.y, fmaxf(fabsf(x[i + 2]), fabsf(x[i + 3])));
    }
    return m;
}

__device__ __forceinline__ float2 scales_of_rows(float2 largest)
{
    return { row_scale(quad_max(largest.x)), row_scale(quad_max(largest.y)) };
}

/* max(|a|, |b|) of both halves, of any sign; NaN gives the other. */
__device__ __forceinline__ u32 larger_f16x2(u32 a, u32 b)
{
    u32 r;
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

constexpr u32 F16_2_14 = 0x7400;
constexpr float ROW_MOST = 1 << 14; /* the same of rows in fp32 */
/*
 * fp16 2^-11, and the bits of what is 2^-7 or more. What is smaller than 2^-14 is off by up to 2^-25, which is no more than
 * what rounding takes from an entry of 2^-13: no sum of products loses more by that than it does anyway. But it is another
 * error than that of scaled rows, which a state replayed from zeros has; against a state whose largest entry is 2^-7 it is
 * small enough for same_state().
 */
constexpr u32 ROW_LOW = 0x1000, WARP_LOW = 0x60006000;
static_assert(2 * ROW_LOW == (WARP_LOW & -WARP_LOW), "2^-7, of both");
/* A magnitude of 2^-11 or more has one of these bits, and so has the OR of a row's: half the instructions of a maximum. */
constexpr u32 ROW_BITS = 0x70007000;
static_assert((ROW_BITS & -ROW_BITS) == ROW_LOW && (ROW_BITS >> 16) == 0x8000 - ROW_LOW, "2^-11 and all above, of both");

/*
 * Whether packed fp16 rows are as they should be: every lane's largest magnitude in each row in [2^-11, limit], the warp's no
 * less than 2^-7. A zero may be what became of something smaller. Registers are row g and row g + 8 in turn. raised: both lower
 * ends are, by so much in an fp16's exponent: see limit_by_norms().
 */
template <int STEPS> __device__ __forceinline__ bool fits(const u32 (&a)[STEPS][4], u32 limit, u32 raised = 0)
{
    u32 lo = a[0][0], hi = a[0][1];
#pragma unroll
    for (int i = 1; i < 2 * STEPS; ++i) {
        lo = larger_f16x2(lo, a[i / 2][2 * (i % 2)]);
        hi = larger_f16x2(hi, a[i / 2][2 * (i % 2) + 1]);
    }
    const u32 m = larger_f16x2(__byte_perm(lo, hi, 0x5410), __byte_perm(lo, hi, 0x7632)) & 0x7fff7fffu;
    const u32 first = m & 0xffffu, second = m >> 16;
    const u32 low = ROW_LOW + (NORMS_LIMIT_W ? raised : 0);
    const bool large = NORMS_LIMIT_W ? max(first, second) >= low + ROW_LOW : (m & WARP_LOW) != 0;
    return __any_sync(~0u, large) & __all_sync(~0u, first >= low && second >= low && first <= limit && second <= limit);
}

/*
 * In a chunk whose decay is no less than this, packed S is not looked at for entries that are too large. One beyond fp16 is an
 * infinity there; it makes its whole row of K S, and so of W, infinities and NaN, and W is looked at anyway. S has decayed by
 * then, but S / decay is what it was, within two roundings: beside an entry above 2^16, 2^-100 of which is left, whatever
 * counts is still normal. (Entries from 2^14 up to fp16's largest are packed no less exactly than smaller ones.)
 */
constexpr float RESTORABLE = 0x1p-100f;

/* Whether packed S will do, as far as W would not tell: the usual way by one look and one branch. */
__device__ __forceinline__ bool fits_state(const u32 (&a)[8][4], float decay)
{
    u32 lo = a[0][0], hi = a[0][1]; /* of rows g and g + 8 */
#pragma unroll
    for (int i = 1; i < 16; ++i) {
        lo |= a[i / 2][2 * (i % 2)];
        hi |= a[i / 2][2 * (i % 2) + 1];
    }
    const bool rows = (lo & ROW_BITS) != 0 && (hi & ROW_BITS) != 0;
    const bool will_do = __any_sync(~0u, ((lo | hi) & WARP_LOW) != 0) & __all_sync(~0u, rows && decay >= RESTORABLE);
    return !rarely(!will_do) || fits(a, F16_2_14);
}

/* The same of rows in fp32, by row_max(), and any zeros among them, which are nothing smaller. */
__device__ __forceinline__ bool fits_with_zeros(float2 m)
{
    constexpr float ROW = 1.0f / (1 << 11), LARGE = 1.0f / (1 << 7);
    const bool fits = (m.x == 0.0f || (m.x >= ROW && m.x <= ROW_MOST)) && (m.y == 0.0f || (m.y >= ROW && m.y <= ROW_MOST));
    return __all_sync(~0u, fits) && (__any_sync(~0u, fmaxf(m.x, m.y) >= LARGE) || __all_sync(~0u, m.x + m.y == 0.0f));
}

/* limits: a gate table's W_LIMIT. */
__device__ __forceinline__ bool fits_w(const u32 (&W)[4][4], u32 limits)
{
    return NORMS_LIMIT_W ? fits(W, limits & 0xffffu, limits >> LIMIT_BELOW << 10) : fits(W, limits);
}

/* This lane's two row scales, kept in shared memory: they are rarely wanted, and registers are dear. */
__device__ __forceinline__ u32 scale_slot(int state_warp)
{
    return at(SCALE_AT) + (state_warp * 32 + lane_id()) * 8;
}

__device__ __forceinline__ void decay_state(float (&S)[64], float decay)
{
#pragma unroll
    for (int i = 0; i < 64; ++i)
        S[i] *= decay;
}

/* Accumulators as operand A: fragment s holds k-step s. */
template <int STEPS> __device__ __forceinline__ void pack_io_rows(u32 (&a)[STEPS][4], const float (&x)[8 * STEPS])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i)
        a[i / 4][i % 4] = pack_io(x[2 * i], x[2 * i + 1]);
}

/* Rows times lo and hi. */
template <int STEPS>
__device__ __forceinline__ void pack_io_rows(u32 (&a)[STEPS][4], const float (&x)[8 * STEPS], float lo, float hi)
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i) {
        const float by = i & 1 ? hi : lo;
        a[i / 4][i % 4] = pack_io(x[2 * i] * by, x[2 * i + 1] * by);
    }
}

template <int STEPS> __device__ __forceinline__ void pack_f16_rows(u32 (&a)[STEPS][4], const float (&x)[8 * STEPS])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i)
        a[i / 4][i % 4] = pack_f16x2(x[2 * i], x[2 * i + 1]);
}

template <int N> __device__ __forceinline__ void clear(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i)
        x[i] = 0.0f;
}

/* x (64 x 64 tokens) = S^T tile^T */
__device__ __forceinline__ void issue_keys(float (&x)[32], const u32 (&S)[8][4], u32 tile)
{
    const u32 b = k_major(tile);
    clear(x);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 8; ++s)
        wgmma_rs_n64(x, S[s], descriptor(b + key_step(s)), s > 0);
    wgmma_commit();
}

/* Where in a tile of 64 columns this lane has its row of this warp's 16, of the first 16 tokens; others are 2048 on. */
__device__ __forceinline__ u32 values_at(int warp)
{
    const int lane = lane_id(), m = lane >> 3, r = lane & 7;
    return ((m >> 1) * 8 + r) * 128 + (u32)((2 * warp + (m & 1)) ^ r) * 16;
}

/* V^T of a warp's 16 columns of a V tile, as accumulators lie; from: the tile and values_at(). */
__device__ __forceinline__ void load_values(u32 (&v)[4][4], u32 from)
{
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16)
        ldmatrix_x4_trans(v[m16], from + 2048 * m16);
}

/* One of 8 tokens' values and K S becomes W. */
__device__ __forceinline__ void subtract(float *x, u32 v_top, u32 v_low, float e0, float e1, float beta0, float beta1)
{
    x[0] = io_lo(v_top) * beta0 - e0 * x[0];
    x[1] = io_hi(v_top) * beta1 - e1 * x[1];
    x[2] = io_lo(v_low) * beta0 - e0 * x[2];
    x[3] = io_hi(v_low) * beta1 - e1 * x[3];
}

/* What W has of the gates of this lane's tokens of 16. */
struct ResidualGates {
    float4 e, beta;

    __device__ __forceinline__ ResidualGates(u32 table, int m16)
        : e(gates_of_16(table + DECAY_IN, m16)), beta{ 1.0f, 1.0f, 1.0f, 1.0f }
    {
        if constexpr (!BETA_IN_T) beta = gates_of_16(table + BETA, m16);
    }
};

/* W = V - e (K S), in place; times beta where that is not in T. gates: of the first 16 tokens. */
__device__ __forceinline__ void residual(float (&x)[32], const u32 (&v)[4][4], ResidualGates gates, u32 table)
{
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16) {
        const float4 e = gates.e, beta = gates.beta;
        if (m16 < 3) gates = ResidualGates(table, m16 + 1);
        subtract(&x[8 * m16], v[m16][0], v[m16][1], e.x, e.y, beta.x, beta.y);
        subtract(&x[8 * m16 + 4], v[m16][2], v[m16][3], e.z, e.w, beta.z, beta.w);
    }
}

/* Columns (tokens) of O times e scale, which the factors of 16 tokens are. */
__device__ __forceinline__ void scale_tokens(float (&O)[32], const float4 &e, int m16)
{
    float *const o = &O[8 * m16];
    o[0] *= e.x, o[1] *= e.y, o[2] *= e.x, o[3] *= e.y;
    o[4] *= e.z, o[5] *= e.w, o[6] *= e.z, o[7] *= e.w;
}

__device__ __forceinline__ void decay_output(float (&O)[32], float4 e, u32 table)
{
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16) {
        const float4 now = e;
        if (m16 < 3) e = gates_of_16(table + DECAY_IN_Q, m16 + 1);
        scale_tokens(O, now, m16);
    }
}

/* O^T of this warp's 16 value columns to its warpgroup's half tile, token-major. */
__device__ __forceinline__ void put_output(const float (&O)[32], u32 tile, int warp)
{
    asm volatile("" : "+r"(warp)); /* the address is made again: what values were loaded by would be kept */
    const u32 to = tile + values_at(warp);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const float *o = &O[8 * n];
        stmatrix_x4_trans(to + 2048 * n, pack_io(o[0], o[1]), pack_io(o[2], o[3]), pack_io(o[4], o[5]),
                          pack_io(o[6], o[7]));
    }
}
