/*
 * gdn_hopper_lone.cuh - a chunk of a lone state warpgroup. Nobody else's products fill its gaps, so that it asks early for all
 * that it will look at, and lets its own run behind what it packs next. Must not know: items, partitions.
 */
#pragma once

#include "gdn_hopper_rows.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_hopper_twins.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"

/*
 * Behind K S and Q S of packed S: its check (LATE_CHECK), and its decay. S of which packed rows do not fit keeps what it is,
 * for pack_again(). empty: the chunk has no tokens.
 */
__device__ __forceinline__ void check_and_decay(State &st, float decay, bool empty)
{
    bool fit = true;
    if (!empty) fit = fits_state(st.packed, decay); /* a branch: else it stands between the products */
    if (rarely(!fit)) fit = fits_with_zeros(row_max(st.S)); /* as they are: see pack_state() */
    st.S_scaled = __any_sync(~0u, !fit);
    if (fit) decay_state(st.S, decay);
}

/* What the rest of a chunk wants of its table, and whether it will have to wait at its end, asked before the vote. */
struct Rest {
    float4 e[4];      /* of Q S */
    Decays decays[2]; /* of the halves of V' */
    bool next_full, o_empty;

    __device__ __forceinline__ explicit Rest(const Clock &c)
    {
        const int n = c.n + 1;
#pragma unroll
        for (int m16 = 0; m16 < 4; ++m16)
            e[m16] = gates_of_16(c.table() + DECAY_IN_Q, m16);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            decays[half].load(c.table(), half);
        next_full = mbar_peek(bar(CHUNK_FULL + (n & 3)), n >> 2 & 1);
        o_empty = mbar_peek(bar(O_EMPTY), c.parity1() ^ 1);
    }
};

/* From W on the usual way: Q S and V' are in flight, and in the end products of O, and of S behind them. */
__device__ __forceinline__ void update(State &st, const Clock &c, const Rest &rest)
{
    const u32 pb = k_major(p_tile(c.n)), kb = mn_major(c.k(), HALF);
    u32 Y[2][2][4], Z[2][2][4];
    arrive_warp(V_EMPTY + (c.n & 1));
    wgmma_wait<1>();
    settled(st.O);
    settled(st.V[0]);
    pack_f16_rows(Y[0], st.V[0]);
    issue_lower(st, Y[0], t_tile(c.n));
    arrive_warp(Q_EMPTY + c.q_slot);
    pack_decayed(Z[0], st.V[0], rest.decays[0]);
    wgmma_fence();
    issue_state(st, Z[0], kb, 0); /* needs no O, whose decay it hides */
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16)
        scale_tokens(st.O, rest.e[m16], m16);
    wgmma_fence();
    issue_output(st, Y[0], pb, 0);
    wgmma_commit();
    wgmma_wait<2>();
    settled(st.V[1]);
    pack_f16_rows(Y[1], st.V[1]);
    pack_decayed(Z[1], st.V[1], rest.decays[1]);
    wgmma_fence();
    issue_output(st, Y[1], pb, 1); /* is put away while S completes */
    wgmma_commit();
    issue_state(st, Z[1], kb, 1);
    give_table_back(c.n);
}

/* After what S and O have in flight. Returns the chunk's flags. s: of rows. */
template <bool SCALED>
__device__ __forceinline__ u32 end_lone(State &st, const prefill_params &p, const Clock &c, bool last, float2 s,
                                         const Rest &rest, const Place &place)
{
    const int n = c.n + 1;
    if (!last && !rest.next_full) mbar_wait(bar(CHUNK_FULL + (n & 3)), n >> 2 & 1);
    if (!rest.o_empty) mbar_wait(bar(O_EMPTY), c.parity1() ^ 1);
    return end_chunk<SCALED>(st, p, c, s, place);
}

/*
 * One chunk, whose table and K tile are there. Returns its flags. V' is begun before the vote on W; if the usual way will not
 * do it is dropped. The next chunk is waited for at the end, but not behind an item's last one: it may not be known before that
 * is done.
 */
__device__ __forceinline__ u32 lone_chunk(State &st, const prefill_params &p, const Clock &c, Place &place)
{
    const u32 table = c.table();
    float x[32];
    u32 v[4][4], W[4][4];
    const u32 now = load_shared_u32(table + FLAGS);
    const bool last = now & CHUNK_LAST, v_full = mbar_peek(bar(V_FULL + (c.n & 1)), c.parity2());
    const float decay = load_shared_float(table + DECAY_ALL);
    pack_io_rows(st.packed, st.S);
    issue_keys(x, st.packed, c.k());
    if (!v_full) mbar_wait(bar(V_FULL + (c.n & 1)), c.parity2());
    load_values(v, c.v() + values_at(place.warp));
    wait_for_norms(c.n);
    const u32 limits = load_shared_u32(table + W_LIMIT);
    const ResidualGates first(table, 0);
    issue_keys(st.O, st.packed, c.q());
    place.odd = c.n & 1;
    keep(table, now, decay, place);
    if constexpr (LATE_CHECK)
        check_and_decay(st, decay, now & CHUNK_FEW);
    else
        decay_state(st.S, decay);
    const bool tp_full = mbar_peek(bar(TP_FULL + tp_slot(c.n)), tp_parity(c.n));
    wgmma_wait<1>();
    settled(x);
    residual(x, v, first, table);
    pack_f16_rows(W, x);
    if (!tp_full) mbar_wait(bar(TP_FULL + tp_slot(c.n)), tp_parity(c.n));
    const bool will_do = is_usual(st, W, limits, p);
    issue_solve(st, W, t_tile(c.n));
    const Rest rest(c);
    if (rarely(!vote(will_do, place))) {
        const float2 s = solve_chunk<true>(st, W, c, true, true, place);
        return end_lone<true>(st, p, c, last, s, rest, place);
    }
    update(st, c, rest);
    return end_lone<false>(st, p, c, last, { 1.0f, 1.0f }, rest, place);
}
