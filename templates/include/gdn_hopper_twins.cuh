/*
 * gdn_hopper_twins.cuh - two CTAs, a cluster, that have the halves of a head: what is the same for both, L, T, P and the gate
 * table of a chunk, one of them makes, chunks in turn, and hands table, T and P over, to where it has them itself. Of a kernel
 * without twins a CTA makes all chunks. Must not know: what is computed.
 */
#pragma once

#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_warp.cuh"

constexpr int MAKERS = spec::TWINS ? 2 : 1; /* from a chunk that a CTA makes to the next */

/* Chunk n, or, if the other one makes that, the one after it. */
__device__ __forceinline__ int made_from(int n)
{
    return spec::TWINS ? n + ((n ^ twin()) & 1) : n;
}

__device__ __forceinline__ void advance_made(Clock &c)
{
    c.advance();
    if (spec::TWINS) c.advance();
}

/* The other one's, of what this CTA has at an address. */
__device__ __forceinline__ u32 there(u32 address)
{
    return address_in(address, (u32)twin() ^ 1);
}

/* By a warp that has met behind its stores and their fence. Who waits for it there: see expect_handed(). */
__device__ __forceinline__ void send_to_twin(u32 from, int bytes, int barrier)
{
    if (spec::TWINS && lane_id() == 0) bulk_copy_cluster(there(from), from, bytes, there(bar(barrier)));
}

/*
 * Of a chunk's gate table e of Q S goes with P where norms of q are in it: copies may pass each other. The rest goes when norms
 * of keys are in it, which then are there with the table, behind CHUNK_FULL.
 */
constexpr int Q_DECAYS = spec::QK_L2NORM ? C * (int)sizeof(float) : 0; /* bytes */
constexpr int HANDED_TABLE = TABLE_BYTES - Q_DECAYS, HANDED_TP = 2 * SQUARE + Q_DECAYS;

__device__ __forceinline__ void hand_table_over(int n)
{
    const u32 table = at(GATE_AT) + (n & 3) * GATE;
    const int barrier = CHUNK_FULL + (n & 3), behind = DECAY_IN_Q + Q_DECAYS;
    send_to_twin(table, spec::QK_L2NORM ? DECAY_IN_Q : TABLE_BYTES, barrier);
    if (spec::QK_L2NORM) send_to_twin(table + behind, TABLE_BYTES - behind, barrier);
}

/* A band's 16 rows of P, and its tokens' e. */
__device__ __forceinline__ void hand_p_over(int n, int band)
{
    const int barrier = TP_FULL + tp_slot(n), quarter = SQUARE / 4;
    send_to_twin(p_tile(n) + band * quarter, quarter, barrier);
    if (spec::QK_L2NORM)
        send_to_twin(at(GATE_AT) + (n & 3) * GATE + DECAY_IN_Q + band * (Q_DECAYS / 4), Q_DECAYS / 4, barrier);
}

/* By a state warp: norms of keys are in chunk n's table, which is there. */
__device__ __forceinline__ void wait_for_norms(int n)
{
    if (spec::QK_L2NORM && made_from(n) == n) mbar_wait(bar(KEYS_NORMED + (n & 3)), n >> 2 & 1);
}

/*
 * By a warp: at a barrier of a ring of four, CHUNK_FULL or TP_FULL, this much of chunk n will come from the other one, which
 * may have begun to send it.
 */
__device__ __forceinline__ void expect_handed(int ring, int n, int bytes)
{
    const u32 barrier = bar(ring + (n & 3));
    mbar_wait(barrier, (n >> 2 & 1) ^ 1);
    __syncwarp(); /* or a lane might look for a phase that is gone */
    if (lane_id() == 0) mbar_arrive_expect(barrier, bytes);
    __syncwarp();
}

/* By a state warp, to who made chunk n: it is done with the gate table, which of twins goes back with T and P. */
__device__ __forceinline__ void give_table_back(int n)
{
    if (!spec::TWINS) mbar_arrive_warp(bar(GATE_EMPTY + (n & 3)), lane_id());
}

/* The same of T and P. */
__device__ __forceinline__ void give_tp_back(int n)
{
    const u32 barrier = bar(TP_EMPTY + tp_slot(n));
    if constexpr (!spec::TWINS) {
        mbar_arrive_warp(barrier, lane_id());
    } else {
        __syncwarp();
        if (ARRIVALS_PER_WARP == 32 || lane_id() == 0) mbar_arrive_cluster(address_in(barrier, n & 1));
    }
}

/* By who makes chunk n: its slot of the gate tables has been given back. */
__device__ __forceinline__ void wait_for_table(int n)
{
    static_assert(!spec::TWINS || GATE_STAGES == TP_STAGES, "one barrier for a slot of both");
    mbar_wait(bar((spec::TWINS ? TP_EMPTY : GATE_EMPTY) + n % GATE_STAGES), (n / GATE_STAGES & 1) ^ 1);
}

/* The same of P: of twins, whose T has more slots, chunk n - 2 had this one. */
__device__ __forceinline__ void wait_for_p(int n)
{
    if constexpr (spec::TWINS)
        mbar_wait(bar(TP_EMPTY + tp_slot(n - P_STAGES)), tp_parity(n - P_STAGES));
    else
        mbar_wait(bar(TP_EMPTY + tp_slot(n)), tp_parity(n) ^ 1);
}

/* All threads of the CTA meet, or of both. */
__device__ __forceinline__ void meet_twin()
{
    if constexpr (spec::TWINS)
        cluster_sync();
    else
        __syncthreads();
}
