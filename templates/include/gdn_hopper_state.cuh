/*
 * gdn_hopper_state.cuh - what a state warpgroup's chunk is made of: W, V', O and the new state S^T, which stays in registers;
 * gdn_hopper_turns.cuh and gdn_hopper_lone.cuh put it together. Must not know: items, partitions.
 */
#pragma once

#include "gdn_hopper_rows.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/* Whether packed S fits fp16 is found out while K S and Q S run: nobody's products fill in for a lone warpgroup's checks. */
constexpr bool LATE_CHECK = STATE_GROUPS == 1 && !spec::IO_BF16;

/*
 * To the slots of every checkpoint that stands at the same token as `row`, unless that is -1, and then to line `last`, unless
 * that is. By one piece of code, since compiling takes long enough.
 */
__device__ __forceinline__ void save_states(const float (&S)[64], const prefill_params &p, int row, i64 last, int head, int dv)
{
    const i64 *const first = p.checkpoints + 3ll * row;
    for (bool more = true; more;) {
        const i64 *const r = p.checkpoints + 3ll * row;
        i64 line = last;
        if (row >= 0 && row < p.num_checkpoints && r[0] == first[0] && r[1] == first[1]) {
            line = r[2];
            ++row;
        } else {
            more = false;
        }
        if (line >= 0) save_state(S, final_state(p, line, head), dv);
    }
}

/* What a state warpgroup's thread carries. */
struct State {
    float S[64];
    u32 packed[8][4]; /* S as operand A */
    float O[32];
    float V[2][16]; /* V' of tokens 0-31, 32-63: see issue_solve() */
    bool S_scaled;  /* fp16 I/O: `packed` is S divided by scale_slot()'s powers of two; warp-uniform */
};

struct Place {
    int group, warp; /* state warpgroup, warp in it */
    int odd;         /* of a lone warpgroup: its chunk's place in what is kept */

    __device__ __forceinline__ int index() const
    {
        return 4 * group + warp;
    }
    __device__ __forceinline__ int row(int part) const /* value column of this lane's first row */
    {
        return column_of(part) + 64 * group + 16 * warp + (lane_id() >> 2);
    }
};

/*
 * What a state warpgroup keeps of its chunk, whose table goes while this is still wanted: registers are dear. Its first warp
 * writes, and the vote on W comes before anyone reads; of chunks whose output nobody wants, in kernels that have a way of their
 * own for them, only the last replayed one is kept, behind the vote, and read behind meet_at_link()'s. When it writes again all
 * have read: there was a turn to take since, or a vote, or, of a lone warpgroup, whose chunks have two places in turn, the next
 * chunk's vote, or few_chunk()'s barrier.
 */
enum { KEPT_FLAGS = 0, KEPT_CHECKPOINT = 4, KEPT_DECAY = 8 };

__device__ __forceinline__ u32 kept(const Place &place)
{
    return at(KEPT_AT) + 16 * (STATE_GROUPS == 2 ? place.group : place.odd);
}

/* S times `back` as operand A, rows divided by `scale`, powers of two which are kept for who multiplies by it. */
__device__ __forceinline__ void pack_divided(State &st, float2 scale, float back, const Place &place)
{
    store_shared(scale_slot(place.index()), scale.x, scale.y);
    pack_io_rows(st.packed, st.S, inverse(scale.x) * back, inverse(scale.y) * back);
}

/* S as operand A; fp16 rows within range, but for what W will tell of. */
__device__ __forceinline__ void pack_state(State &st, float decay, const Place &place)
{
    pack_io_rows(st.packed, st.S);
    if constexpr (!spec::IO_BF16) {
        const bool unlike = !fits_state(st.packed, decay);
        bool scaled = false;
        if (rarely(unlike)) {
            const float2 m = row_max(st.S);
            scaled = !fits_with_zeros(m); /* what an item starts from: zeros, the identity */
            float2 scale = scales_of_rows(m);
            if (!scaled) scale = { 1.0f, 1.0f }; /* divided by that, not left alone: what is packed would need registers */
            pack_divided(st, scale, 1.0f, place);
        }
        st.S_scaled = __any_sync(~0u, scaled); /* a vote, and so a uniform register: there is no other for it */
    }
}

/*
 * S of a warp that was multiplied by it as it is, packed once more if it has to be scaled. What the late check found not to
 * fit (S_scaled) has not decayed yet, and does so here. What is too large for fp16 only W told, and it has decayed: S / decay
 * is what it was (RESTORABLE). Where neither is so what is packed stays.
 */
__device__ __forceinline__ void pack_again(State &st, float decay, const Place &place)
{
    const bool late = LATE_CHECK && st.S_scaled;
    if (!late && (st.S_scaled || decay < RESTORABLE)) return;
    const float back = late ? 1.0f : __fdividef(1.0f, decay);
    float2 m = row_max(st.S);
    m = { m.x * back, m.y * back };
    if (!late) st.S_scaled = __any_sync(~0u, fmaxf(m.x, m.y) > ROW_MOST);
    if (!st.S_scaled) return;
    pack_divided(st, scales_of_rows(m), back, place);
    if (late) decay_state(st.S, decay);
}

/*
 * V'^T = W^T T^T in two halves of 32 tokens. T is lower triangular, and what stands left of its lower half is to be multiplied
 * by the upper half of V' (make_t()): so that is there first, a group of its own, and the second half lacks those two steps.
 */
__device__ __forceinline__ void issue_solve(State &st, const u32 (&W)[4][4], u32 t_tile)
{
    const u32 b = k_major(t_tile);
    clear(st.V[0]);
    clear(st.V[1]);
    wgmma_fence();
    wgmma_rs_n32_f16(st.V[0], W[0], descriptor(b), 0);
    wgmma_rs_n32_f16(st.V[0], W[1], descriptor(b + (32 >> 4)), 1);
    wgmma_commit();
    wgmma_rs_n32_f16(st.V[1], W[2], descriptor(b + ((4096 + 64) >> 4)), 0);
    wgmma_rs_n32_f16(st.V[1], W[3], descriptor(b + ((4096 + 96) >> 4)), 1);
    wgmma_commit();
}

/* d of this lane's tokens of 32, asked for before something else is waited for: shared memory takes its time. */
struct Decays {
    float4 d[2];

    __device__ __forceinline__ void load(u32 table, int half)
    {
        d[0] = gates_of_16(table + DECAY_OUT, 2 * half);
        d[1] = gates_of_16(table + DECAY_OUT, 2 * half + 1);
    }
};

/* d V' of 32 tokens in the I/O type, as operands A. */
__device__ __forceinline__ void pack_decayed(u32 (&Z)[2][4], const float (&v)[16], const Decays &decays)
{
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        const float4 d = decays.d[s];
        const float *x = &v[8 * s];
        Z[s][0] = pack_io(x[0] * d.x, x[1] * d.y);
        Z[s][1] = pack_io(x[2] * d.x, x[3] * d.y);
        Z[s][2] = pack_io(x[4] * d.z, x[5] * d.w);
        Z[s][3] = pack_io(x[6] * d.z, x[7] * d.w);
    }
}

/* The second half of V' gets what the first one, packed, is multiplied by in T's lower half. A group of its own. */
__device__ __forceinline__ void issue_lower(State &st, const u32 (&Y)[2][4], u32 t_tile)
{
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 2; ++s)
        wgmma_rs_n32_f16(st.V[1], Y[s], descriptor(k_major(t_tile) + ((4096 + 32 * s) >> 4)), 1);
    wgmma_commit();
}

/* Of 32 tokens: O^T += V'^T P^T. */
__device__ __forceinline__ void issue_output(State &st, const u32 (&Y)[2][4], u32 pb, int half)
{
#pragma unroll
    for (int s = 0; s < 2; ++s)
        wgmma_rs_n64_f16(st.O, Y[s], descriptor(pb + 2 * (2 * half + s)), 1);
}

/* Of 32 tokens: S^T += (d V')^T K, a group of its own. */
__device__ __forceinline__ void issue_state(State &st, const u32 (&Z)[2][4], u32 kb, int half)
{
#pragma unroll
    for (int s = 0; s < 2; ++s)
        wgmma_rs_n128_mn(st.S, Z[s], descriptor(kb + (2 * half + s) * (2048 >> 4)), 1);
    wgmma_commit();
}

/* Of 32 tokens: O^T += V'^T P^T, of the second half a group of its own, and S^T += (d V')^T K. */
__device__ __forceinline__ void issue_updates(State &st, const u32 (&Y)[2][4], const u32 (&Z)[2][4], u32 p_tile, u32 k_tile,
                                              int half)
{
    const u32 pb = k_major(p_tile), kb = mn_major(k_tile, HALF);
    wgmma_fence();
    issue_output(st, Y, pb, half);
    if (half == 1) wgmma_commit();
    issue_state(st, Z, kb, half);
}

/*
 * The first half of V', which is there, goes into the second one, and then, as that does, into O and S: packed operands take
 * the place of what they were packed from. decays: of the first half. O completes with all but the last committed group.
 */
__device__ __forceinline__ void issue_finish(State &st, Decays decays, u32 table, u32 t_tile, u32 p_tile, u32 k_tile)
{
    u32 Y[2][2][4], Z[2][2][4];
    pack_f16_rows(Y[0], st.V[0]);
    issue_lower(st, Y[0], t_tile);
    pack_decayed(Z[0], st.V[0], decays);
    decays.load(table, 1);
    issue_updates(st, Y[0], Z[0], p_tile, k_tile, 0);
    wgmma_wait<1>();
    settled(st.V[1]);
    pack_f16_rows(Y[1], st.V[1]);
    pack_decayed(Z[1], st.V[1], decays);
    issue_updates(st, Y[1], Z[1], p_tile, k_tile, 1);
}

__device__ __forceinline__ void arrive_warp(int barrier)
{
    mbar_arrive_warp(bar(barrier), lane_id());
}

/* Whether ptxas is of CUDA 13.4 or later. */
constexpr bool PTXAS_13_4 = __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1304;

/*
 * A branch on all of W: without it ptxas moves the work on W past the first wgmma of Q S, which costs 32 registers. To a single
 * look at what is complete already, or, where that is a percent faster, to a wait for it: behind a loop that lanes enter by
 * themselves ptxas of CUDA 13.4 and later has matrix descriptors in 120 registers of the lanes, and all have too few registers
 * where states are carried (docs/prefill_hopper_measured.md, "Compilers").
 */
__device__ __forceinline__ void finish_w(const u32 (&W)[4][4], const Clock &c)
{
    u32 any = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i)
        any |= W[i / 4][i % 4];
    if (!rarely(any == 0)) return;
    if constexpr (PTXAS_13_4 || spec::CARRIES)
        mbar_peek(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
    else
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
}

/*
 * The rare way to W: K S once more, in O's registers, rows scaled into fp16's range (the scales take T's with them), then Q S
 * once more.
 */
__device__ __forceinline__ void rescaled_residual(u32 (&W)[4][4], State &st, const Clock &c, const Place &place)
{
    const u32 table = c.table();
    float2 s = { 1.0f, 1.0f };
    if constexpr (!spec::IO_BF16) {
        const float decay = load_shared_float(kept(place) + KEPT_DECAY);
        pack_again(st, decay, place);
        if (st.S_scaled) s = load_shared_float2(scale_slot(place.index()));
    }
    issue_keys(st.O, st.packed, c.k());
    wgmma_wait<0>();
    settled(st.O);
    scale_rows(st.O, s.x, s.y);
    u32 v[4][4];
    load_values(v, c.v() + place.group * HALF + values_at(place.warp));
    residual(st.O, v, ResidualGates(table, 0), table);
    arrive_warp(V_EMPTY + (c.n & 1));
    const float2 m = row_max(st.O);
    const float size = norm_size(load_shared_u32(table + W_LIMIT));
    const float lo = row_scale(quad_max(m.x) * size), hi = row_scale(quad_max(m.y) * size),
                beta = load_shared_float(table + BETA_SCALE);
    scale_rows(st.O, inverse(lo), inverse(hi));
    pack_f16_rows(W, st.O);
    store_shared(scale_slot(place.index()), lo * beta, hi * beta);
    finish_w(W, c);
    u32 q = c.q();
    asm volatile("" : "+r"(q)); /* the usual way's descriptors are not kept for this */
    issue_keys(st.O, st.packed, q);
    wgmma_wait<0>();
    settled(st.O);
    scale_rows(st.O, s.x, s.y);
}

/*
 * From K S until Q S and T are there two state warpgroups take turns: half a chunk apart, one's products run while the other
 * packs. Where in that half turns end makes a percent. Whoever waits for its turn holds up nothing that the other needs. Of
 * chunks whose output nobody wants, which are a third shorter, neither takes one, in kernels that have a way of their own for
 * these: a turn's barrier takes longer than what it orders would.
 */
__device__ __forceinline__ void take_turn(int group)
{
    bar_sync(BAR_TURN + group, STATE_GROUPS * GROUP);
}

__device__ __forceinline__ void pass_turn(int group)
{
    if (STATE_GROUPS == 2) bar_arrive(BAR_TURN + 1 - group, STATE_GROUPS * GROUP);
}

/*
 * A chunk from W on: V', and the products of O and S, which are in flight at the end, as Q S is at its begin. SCALED: W and V'
 * are divided by scale_slot()'s powers of two, or O takes its scale late; returns rows' scales, by which O and S are divided,
 * too. has_turn: and passes it.
 */
template <bool SCALED>
__device__ __forceinline__ float2 solve_chunk(State &st, u32 (&W)[4][4], const Clock &c, bool tp_full, bool has_turn,
                                              const Place &place)
{
    const u32 table = c.table();
    float2 s = { 1.0f, 1.0f };
    if (!SCALED) arrive_warp(V_EMPTY + (c.n & 1));
    if (!tp_full) mbar_wait(bar(TP_FULL + tp_slot(c.n)), tp_parity(c.n));
    const float4 e = gates_of_16(table + DECAY_IN_Q, 0);
    wgmma_wait<0>();
    settled(st.O);
    if (SCALED) {
        rescaled_residual(W, st, c, place);
        s = load_shared_float2(scale_slot(place.index()));
    }
    if (has_turn) pass_turn(place.group);
    issue_solve(st, W, t_tile(c.n));
    arrive_warp(Q_EMPTY + c.q_slot);
    decay_output(st.O, e, table);
    Decays decays;
    decays.load(table, 0);
    wgmma_wait<1>();
    settled(st.V[0]);
    if (SCALED) { /* the other terms of the sums join V' at its scale */
        scale_rows(st.O, inverse(s.x), inverse(s.y));
        scale_rows(st.S, inverse(s.x), inverse(s.y));
    }
    issue_finish(st, decays, table, t_tile(c.n), p_tile(c.n), c.k());
    give_table_back(c.n);
    return s;
}

/*
 * The end of a chunk, of which S's last group of products is in flight, and O's before it: O to its tile, and what has been
 * read back to who fills it. s: of rows. Returns the chunk's flags.
 */
template <bool SCALED>
__device__ __forceinline__ u32 end_chunk(State &st, const prefill_params &p, const Clock &c, float2 s, const Place &place)
{
    const u32 flags = load_shared_u32(kept(place) + KEPT_FLAGS);
    wgmma_wait<1>();
    settled(st.O);
    give_tp_back(c.n);
    if (SCALED || LATE_SCALE) scale_rows(st.O, s.x * p.late_scale, s.y * p.late_scale);
    put_output(st.O, at(O_AT) + place.group * HALF, place.warp);
    arrive_warp(O_FULL + place.group);
    wgmma_wait<0>();
    settled(st.S);
    if (SCALED) scale_rows(st.S, s.x, s.y);
    arrive_warp(K_EMPTY + (c.n & 3));
    return flags;
}

/* Whether the usual way will do for this warp: neither W nor packed S needs a scale, and bf16's O takes none late. */
__device__ __forceinline__ bool is_usual(const State &st, const u32 (&W)[4][4], u32 limits, const prefill_params &p)
{
    return fits_w(W, limits) && (LATE_SCALE ? !st.S_scaled : p.late_scale == 1.0f);
}

/* Whether it will for all. One way for the whole warpgroup, whose warps must execute the same products. */
__device__ __forceinline__ bool vote(bool usual, const Place &place)
{
    return bar_all(BAR_VOTE + place.group, GROUP, usual);
}

/* What is kept of a chunk, by its warpgroup's first warp. */
__device__ __forceinline__ void keep(u32 table, u32 flags, float decay, const Place &place)
{
    if (place.warp != 0) return;
    const u32 checkpoint = spec::CHECKPOINTS ? load_shared_u32(table + CHECKPOINT) : 0;
    store_shared(kept(place), flags, checkpoint, __float_as_uint(decay), 0u);
}
