/*
 * gdn_hopper_few.cuh - a chunk of so few tokens that the recurrence itself, token by token in fp32, takes less time than
 * products of 64 tokens:
 *
 *     S <- a S        d = beta (v - S^T k)        S <- S + k d^T        o = scale S^T q
 *
 * Must not know: items, partitions.
 */
#pragma once

#include "gdn_hopper_rows.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_norms.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/* Columns 8 n + 2 t and + 1 of a token's row of a K or Q tile, for n = 0 .. 15: what a lane has of S for a value column. */
__device__ __forceinline__ void load_row(u32 (&x)[16], u32 tile, int token)
{
    static_assert(FEW_TOKENS <= 8, "pieces are permuted by the token, all of it");
    const u32 from = tile + token * (128 + 16) + 4 * (lane_id() & 3);
#pragma unroll
    for (int n = 0; n < 16; ++n)
        x[n] = load_shared_u32((from ^ (n % 8 << 4)) + n / 8 * HALF);
}

/* Of value columns g and g + 8 of this warp: S^T x. */
__device__ __forceinline__ float2 rows_times(const float (&S)[64], const u32 (&x)[16])
{
    float2 sum = { 0.0f, 0.0f };
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float a = io_lo(x[n]), b = io_hi(x[n]);
        sum.x = fmaf(S[4 * n + 1], b, fmaf(S[4 * n], a, sum.x));
        sum.y = fmaf(S[4 * n + 3], b, fmaf(S[4 * n + 2], a, sum.y));
    }
    return { quad_sum(sum.x), quad_sum(sum.y) };
}

/* S += x d^T */
__device__ __forceinline__ void add_outer(float (&S)[64], const u32 (&x)[16], float2 d)
{
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float a = io_lo(x[n]), b = io_hi(x[n]);
        S[4 * n] = fmaf(a, d.x, S[4 * n]);
        S[4 * n + 1] = fmaf(b, d.x, S[4 * n + 1]);
        S[4 * n + 2] = fmaf(a, d.y, S[4 * n + 2]);
        S[4 * n + 3] = fmaf(b, d.y, S[4 * n + 3]);
    }
}

/* 1 / norm of a row, where the kernel makes norms. */
__device__ __forceinline__ float norm_of_row(const u32 (&x)[16])
{
    if constexpr (!spec::QK_L2NORM) return 1.0f;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 16; ++n)
        sum = fmaf(io_lo(x[n]), io_lo(x[n]), fmaf(io_hi(x[n]), io_hi(x[n]), sum));
    return inverse_norm(quad_sum(sum));
}

/* Where in a 64-column half of V or O this lane has value column g of its warp's 16; column g + 8 is 16 bytes away: ^ 16. */
__device__ __forceinline__ u32 column_at(u32 half, int token, int warp)
{
    return half + token * 128 + ((2 * warp ^ token) << 4) + 2 * (lane_id() >> 2);
}

/* A token's k: S decays, and takes what its value column lacks. */
__device__ __forceinline__ void take_key(float (&S)[64], const u32 (&k)[16], float2 was, float norm, u32 gates_at, u32 v_at)
{
    const float2 gates = load_shared_float2(gates_at); /* decay, beta */
    const float2 v = { io_lo(load_shared_u16(v_at)), io_lo(load_shared_u16(v_at ^ 16)) };
    const float beta = gates.y * norm, decay = gates.x * norm;
    decay_state(S, gates.x);
    add_outer(S, k, { beta * (v.x - decay * was.x), beta * (v.y - decay * was.y) });
}

/* Its q: o goes to the tile. By one lane of a row's four. */
__device__ __forceinline__ void put_row(float2 o, float scale, u32 to)
{
    const u32 bits = pack_io(o.x * scale, o.y * scale);
    if ((lane_id() & 3) == 0) {
        store_shared_u16(to, bits);
        store_shared_u16(to ^ 16, bits >> 16);
    }
    __syncwarp();
}

/* k of a token, or q, by one piece of code: compiling takes long enough. */
__device__ __forceinline__ void half_token(float (&S)[64], const prefill_params &p, const Clock &c, int token, bool of_q,
                                           const Place &place)
{
    u32 x[16];
    load_row(x, of_q ? c.q() : c.k(), token);
    const float norm = norm_of_row(x);
    const float2 y = rows_times(S, x);
    const u32 column = column_at(place.group * HALF, token, place.warp);
    if (of_q)
        put_row(y, norm * p.p_scale * p.late_scale, at(O_AT) + column);
    else
        take_key(S, x, y, norm, c.table() + FEW_GATES + 8 * token, c.v() + column);
}

/*
 * Whether the next chunk, whose table is there, is one of few tokens. In halves by a vote: behind a branch that lanes take by
 * themselves their registers do not suffice. In whole heads not, where ptxas would wait for more of the table before K S.
 */
__device__ __forceinline__ bool few_is_next(const Clock &c)
{
    const u32 few = load_shared_u32(c.table() + FLAGS) & CHUNK_FEW;
    return STATE_GROUPS == 2 ? few != 0 : __any_sync(~0u, few);
}

/*
 * The chunk, whose table, K and Q are there. Returns its flags. pass_tp() is still to come: aux warps may still read K, of
 * which they make an L that nobody uses.
 */
__device__ __forceinline__ u32 few_chunk(float (&S)[64], const prefill_params &p, const Clock &c, const Place &place)
{
    const u32 flags = load_shared_u32(c.table() + FLAGS);
    const int tokens = (int)load_shared_u32(c.table() + TOKENS);
    if constexpr (STATE_GROUPS == 2) {
        take_turn(place.group);
        pass_turn(place.group);
    } else {
        bar_sync(BAR_VOTE, GROUP); /* in the place of a vote: see kept() */
    }
    mbar_wait(bar(V_FULL + (c.n & 1)), c.parity2());
    mbar_wait(bar(O_EMPTY + place.group), c.parity1() ^ 1);
#pragma unroll 1
    for (int half = 0; half < 2 * tokens; ++half)
        half_token(S, p, c, half / 2, half & 1, place);
    arrive_warp(O_FULL + place.group);
    arrive_warp(V_EMPTY + (c.n & 1));
    arrive_warp(Q_EMPTY + c.q_slot);
    arrive_warp(K_EMPTY + (c.n & 3));
    return flags;
}

/*
 * T and P of chunk n, which it has not, and its table: given back when those who would make them are past it, since nobody may
 * be two chunks ahead of these. Behind an item's end, so that a state that is stored there does not wait for them.
 */
__device__ __forceinline__ void pass_tp(int n)
{
    mbar_wait(bar(TP_FULL + tp_slot(n)), tp_parity(n));
    give_table_back(n);
    give_tp_back(n);
}
