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

/* A chunk from W on. Returns its flags. Each kind compiled apart, so that the usual way has no gaps in its code. */
template <bool SCALED, bool OUTPUT>
__device__ __forceinline__ u32 finish_chunk(State &st, u32 (&W)[4][4], const prefill_params &p, const Clock &c,
                                            bool last, bool tp_full, const Place &place)
{
    const float2 s = solve_chunk<SCALED, OUTPUT>(st, W, c, tp_full, place);
    const int n = c.n + 1;
    if (!last) mbar_wait(bar(CHUNK_FULL + (n & 3)), n >> 2 & 1); /* the next chunk may not be known before this one is done */
    mbar_wait(bar(O_EMPTY + place.group), c.parity1() ^ 1);
    return end_chunk<SCALED, OUTPUT>(st, p, c, s, place);
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
    const bool last = now & CHUNK_LAST, wanted = !(now & CHUNK_STATE); /* its O */
    const float decay = load_shared_float(table + DECAY_ALL);
    pack_state(st, decay, place);
    take_turn(place.group);
    issue_keys(x, st.packed, c.k());
    keep(table, now, decay, place);
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
    finish_w(W, c);
    /*
     * Where no O is wanted no Q S hides the vote: V' is begun before it, in O's place, and W, an operand in flight, is not
     * looked at any more. If the usual way will not do V' is dropped, and the vote, repeated, says the same. Here a branch
     * around wgmma does no harm: none is in flight. (A function that returns the vote is two branches in NVRTC 13.4 and
     * later, between which V' takes registers that there are not.)
     */
    if (spec::CARRIES && rarely(!wanted)) {
        const bool will_do = is_usual(st, W, limits, p);
        if (!tp_full) mbar_wait(bar(TP_FULL + tp_slot(c.n)), tp_parity(c.n));
        issue_solve(st, W, t_tile(c.n));
        if (vote(will_do, place)) return finish_chunk<false, false>(st, W, p, c, last, true, place);
        wgmma_wait<0>();
    }
    issue_keys(st.O, st.packed, c.q());
    const bool usual = vote(is_usual(st, W, limits, p), place);
    if (rarely(!usual)) return finish_chunk<true, true>(st, W, p, c, last, tp_full, place);
    return finish_chunk<false, true>(st, W, p, c, last, tp_full, place);
}
