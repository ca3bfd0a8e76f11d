/*
 * gdn_hopper_turns.cuh - a chunk of two state warpgroups, which take turns: one's products run while the other packs. Must not
 * know: items, partitions.
 */
#pragma once

#include "gdn_hopper_rows.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"

/* Chunks whose output nobody wants have a way of their own from W on. */
constexpr bool STATE_ALONE = spec::CARRIES;

/* What a chunk's end waits for: the next chunk, which may not be known before an item's last one is done, and an O tile. */
__device__ __forceinline__ void await_next(const Clock &c, bool last, const Place &place)
{
    const int n = c.n + 1;
    if (!last) mbar_wait(bar(CHUNK_FULL + (n & 3)), n >> 2 & 1);
    mbar_wait(bar(O_EMPTY + place.group), c.parity1() ^ 1);
}

/* A chunk from W on. Returns its flags. Each kind compiled apart, so that the usual way has no gaps in its code. */
template <bool SCALED>
__device__ __forceinline__ u32 finish_chunk(State &st, u32 (&W)[4][4], const prefill_params &p, const Clock &c,
                                            bool last, bool tp_full, bool has_turn, const Place &place)
{
    const float2 s = solve_chunk<SCALED>(st, W, c, tp_full, has_turn, place);
    await_next(c, last, place);
    return end_chunk<SCALED>(st, p, c, s, place);
}

/*
 * What a chunk without output looks at from V' on, tables and barriers, asked for before V' is begun: O's registers are free
 * for it, and nothing else would hide how long that takes.
 */
struct StateAlone {
    u32 flags;
    Decays decays[2]; /* of the halves of V' */
    bool next;        /* await_next() has nothing to wait for */

    __device__ __forceinline__ StateAlone(u32 flags, const Clock &c, const Place &place) : flags(flags)
    {
        const int n = c.n + 1;
        decays[0].load(c.table(), 0);
        decays[1].load(c.table(), 1);
        next = mbar_peek(bar(CHUNK_FULL + (n & 3)), n >> 2 & 1) & mbar_peek(bar(O_EMPTY + place.group), c.parity1() ^ 1);
    }
};

/* The rest of it the usual way: V' is in flight. O's tile goes round as it is. Returns the chunk's flags. */
__device__ __forceinline__ u32 finish_alone(State &st, const Clock &c, const StateAlone &s, const Place &place)
{
    const u32 kb = mn_major(c.k(), HALF);
    u32 Y[2][4], Z[2][2][4];
    wgmma_wait<1>();
    settled(st.V[0]);
    pack_f16_rows(Y, st.V[0]);
    issue_lower(st, Y, t_tile(c.n));
    pack_decayed(Z[0], st.V[0], s.decays[0]);
    wgmma_fence();
    issue_state(st, Z[0], kb, 0);
    arrive_warp(V_EMPTY + (c.n & 1));
    arrive_warp(Q_EMPTY + c.q_slot);
    wgmma_wait<1>();
    settled(st.V[1]);
    pack_decayed(Z[1], st.V[1], s.decays[1]);
    wgmma_fence();
    issue_state(st, Z[1], kb, 1);
    /* Of the last one that is replayed meet_at_link() asks for the decay. All are past what they had kept: there was a vote. */
    if (rarely(s.flags & CHUNK_REPLAYED)) keep(c.table(), s.flags, load_shared_float(c.table() + DECAY_ALL), place);
    give_table_back(c.n);
    if (!s.next) await_next(c, s.flags & CHUNK_LAST, place);
    give_tp_back(c.n);
    arrive_warp(O_FULL + place.group);
    wgmma_wait<0>();
    settled(st.S);
    arrive_warp(K_EMPTY + (c.n & 3));
    return s.flags;
}

/*
 * One chunk, whose table and K tile are there. Returns its flags. Q S is issued only when K S has become W: 32 registers less
 * at the peak. Whether W fits fp16 is found out while Q S runs, or where no O is wanted before V' does.
 */
__device__ __forceinline__ u32 chunk_in_turn(State &st, const prefill_params &p, const Clock &c, const Place &place)
{
    const u32 table = c.table();
    float x[32];
    u32 v[4][4], W[4][4];
    const u32 now = load_shared_u32(table + FLAGS);
    const bool last = now & CHUNK_LAST, alone = STATE_ALONE && now & CHUNK_STATE;
    const float decay = load_shared_float(table + DECAY_ALL);
    pack_state(st, decay, place);
    if (!alone) take_turn(place.group);
    issue_keys(x, st.packed, c.k());
    if (!alone) keep(table, now, decay, place);
    decay_state(st.S, decay);
    mbar_wait(bar(V_FULL + (c.n & 1)), c.parity2());
    load_values(v, c.v() + place.group * HALF + values_at(place.warp)); /* while K S runs: shared memory takes its time */
    wait_for_norms(c.n);
    const u32 limits = load_shared_u32(table + W_LIMIT); /* late it would hold up Q S */
    const bool tp_full = mbar_peek(bar(TP_FULL + tp_slot(c.n)), tp_parity(c.n));
    const ResidualGates first(table, 0);
    wgmma_wait<0>();
    settled(x);
    residual(x, v, first, table);
    pack_f16_rows(W, x);
    /*
     * Where no O is wanted no Q S hides the vote: V' is begun before it, in O's place, and W, an operand in flight, is not
     * looked at any more. If the usual way will not do V' is dropped, and the vote, repeated, says the same. Here a branch
     * around wgmma does no harm: none is in flight. (A function that returns the vote is two branches in NVRTC 13.4 and
     * later, between which V' takes registers that there are not.)
     */
    if (rarely(alone)) {
        const bool will_do = is_usual(st, W, limits, p);
        if (!tp_full) mbar_wait(bar(TP_FULL + tp_slot(c.n)), tp_parity(c.n));
        const StateAlone s(now, c, place);
        issue_solve(st, W, t_tile(c.n));
        if (vote(will_do, place)) return finish_alone(st, c, s, place);
        keep(table, now, load_shared_float(table + DECAY_ALL), place); /* who reads it comes behind the next vote */
        wgmma_wait<0>();
    }
    finish_w(W, c);
    issue_keys(st.O, st.packed, c.q());
    const bool usual = vote(is_usual(st, W, limits, p), place);
    if (rarely(!usual)) return finish_chunk<true>(st, W, p, c, last, tp_full, !alone, place);
    return finish_chunk<false>(st, W, p, c, last, tp_full, true, place);
}
