/*
 * gdn_hopper_transit.cuh - states between items: what the next one starts from comes by TMA, and what the last one ended with
 * goes, through slots of the tiles' rings. Must not know: when a tile is loaded, what a chunk computes.
 */
#pragma once

#include "gdn_hopper_copies.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_shares.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"

/*
 * A state goes in quarters of 32 value columns, 16 KiB each, two of either state warpgroup. There is no room for them but in
 * the rings: where chunk n is the next item's first one, each takes the place of a tile that is not wanted before that chunk
 * has begun, from when the tile before it there is given back until the quarter is exchanged and gone:
 *
 *     quarter 0   K of chunk n + 2        2   V of chunk n + 1
 *             1   V of chunk n            3   Q of chunk n + 2
 *
 * State warps have loaded what they start from, each lane, before they store there what they ended with: it needs no place of
 * its own.
 */
constexpr int QUARTER_COLUMNS = 32;
static_assert(!spec::TRANSIT || (D * QUARTER_COLUMNS * 4 == TILE && V_TILE == TILE), "a tile's slot each");

__device__ __forceinline__ u32 quarter_at(int quarter, int n)
{
    if (quarter == 0) return clock_at(n + 2).k();
    return quarter == 3 ? clock_at(n + 2).q() : clock_at(n + quarter - 1).v();
}

/* ---- The tile warp ---- */

/* A quarter's place in its pool's map: of KV all keys of a block of columns, of VK rows of columns. */
__device__ __forceinline__ TileAt quarter_of(int quarter, int head, int line)
{
    return spec::STATE_KV ? TileAt{ 0, quarter, head, line } : TileAt{ QUARTER_COLUMNS * quarter, 0, head, line };
}

/* Until the tile that was in its slot is given back. */
__device__ __forceinline__ void await_slot(int quarter, int n)
{
    const Clock c = clock_at(n + 2), of_v = clock_at(n + quarter - 1);
    int empty = V_EMPTY + (of_v.n & 1);
    u32 parity = of_v.parity2();
    if (quarter == 0) empty = K_EMPTY + (c.n & 3), parity = c.parity4();
    if (quarter == 3) empty = Q_EMPTY + c.q_slot, parity = c.q_parity;
    mbar_wait(bar(empty), parity ^ 1);
}

/* Where the item starts from zeros nothing comes, and the slot is said to be there. */
__device__ __forceinline__ void bring_quarter(const prefill_params &p, int quarter, int n, int number)
{
    const u32 entry = entry_of(number), full = bar(STATE_COMES + quarter);
    const int line = (int)load_shared_u32(entry + ITEM_START), part = (int)load_shared_u32(entry + ITEM_PART);
    await_slot(quarter, n);
    if (elected()) {
        if (line == START_HANDED) {
            mbar_arrive_expect(full, TILE);
            bulk_load(quarter_at(quarter, n), handed_state(p, handing_cta(p, true)) + quarter * TILE, TILE, full);
        } else if (line >= 0) {
            mbar_arrive_expect(full, TILE);
            load_tile(quarter_at(quarter, n), &p.initial_map, full, quarter_of(quarter, part, line));
        } else {
            mbar_arrive(full);
        }
    }
    __syncwarp();
}

/* Before chunk n + 1 is loaded the one that takes the place of chunk n's own V; before chunk n + 2 is, the others. */
__device__ __forceinline__ void bring_quarters(const prefill_params &p, bool others, int n, int number)
{
    if ((int)load_shared_u32(entry_of(number) + ITEM_START) == START_HANDED) await_handed(p, handing_cta(p, true));
#pragma unroll 1
    for (int quarter = 0; quarter < 4; ++quarter)
        if ((quarter != 1) == others) bring_quarter(p, quarter, n, number);
}

/* What two warps had of the last item's state, from the slot where they found the next one's; until await_sent(). */
__device__ __forceinline__ void send_quarter(const prefill_params &p, int quarter, int n, int number)
{
    const u32 last = entry_of(number - 1);
    mbar_wait(bar(STATE_TAKEN + quarter), load_shared_u32(entry_of(number) + ITEM_TURNS) & 1);
    if (leaves_state(p, last) && elected()) {
        const int after = (int)load_shared_u32(last + ITEM_AFTER);
        const TileAt to = quarter_of(quarter, (int)load_shared_u32(last + ITEM_PART), after);
        async_proxy_fence();
        if (after == END_HANDED)
            bulk_store(handed_state(p, handing_cta(p, false)) + quarter * TILE, quarter_at(quarter, n), TILE);
        else
            tma_store(&p.final_map, quarter_at(quarter, n), to.token, to.half, to.head, to.batch);
        bulk_commit();
    }
    __syncwarp();
}

/* All that was sent has been read, and slots are free for tiles. */
__device__ __forceinline__ void await_sent()
{
    if (elected()) bulk_wait_read<0>();
    __syncwarp();
}

/* All four are sent: who ends what the last item has begun may have them. */
__device__ __forceinline__ void tell_sent(const prefill_params &p, int number)
{
    if ((int)load_shared_u32(entry_of(number - 1) + ITEM_AFTER) != END_HANDED) return;
    if (elected()) {
        bulk_wait<0>();
        tell_handed(p, handing_cta(p, false));
    }
    __syncwarp();
}

/* ---- State warps ---- */

/*
 * Where a lane finds its part of a quarter, value columns g and g + 8 of its warp's 16, keys 8 i + 2 t and 8 i + 2 t + 1, as
 * TMA lays it out: rows of 128 bytes in 128-byte swizzle, of KV one a key, of VK four a value column, of 32 keys each, 4 KiB
 * apart. An access meets each bank once; of VK, where it is 8 bytes, one half of a warp half of them twice.
 */
struct QuarterLane {
    u32 at[4];

    __device__ __forceinline__ QuarterLane(u32 tile, int state_warp)
    {
        const int g = lane_id() >> 2, t = lane_id() & 3, half = state_warp & 1;
        if constexpr (spec::STATE_KV) { /* [value column, + 8][key, + 1] */
            const u32 first = tile + 256 * t + (((4 * half + (g >> 2)) ^ 2 * t) << 4) + 4 * (g & 3);
            at[0] = first;
            at[1] = (first ^ 16) + 128;
            at[2] = first ^ 32;
            at[3] = (first ^ 48) + 128;
        } else { /* [i % 4] */
            const u32 first = tile + 128 * (16 * half + g) + (((t >> 1) ^ g) << 4) + 8 * (t & 1);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                at[i] = first ^ i << 5;
        }
    }
    /* Keys 8 i + 2 t and + 1 of both columns, as S has them. */
    __device__ __forceinline__ void load(float (&x)[4], int i) const
    {
        if constexpr (spec::STATE_KV) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                x[j] = load_shared_float(at[j] + 1024 * i);
        } else {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float2 y = load_shared_float2(at[i & 3] + 4096 * (i >> 2) + 1024 * j);
                x[2 * j] = y.x, x[2 * j + 1] = y.y;
            }
        }
    }
    __device__ __forceinline__ void store(const float *x, int i) const
    {
        if constexpr (spec::STATE_KV) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                store_shared(at[j] + 1024 * i, x[j]);
        } else {
#pragma unroll
            for (int j = 0; j < 2; ++j)
                store_shared(at[i & 3] + 4096 * (i >> 2) + 1024 * j, x[2 * j], x[2 * j + 1]);
        }
    }
};

/*
 * The state of the item of this number, whose first chunk is n, for that of the one before it; where that is not wanted, or
 * this one starts from zeros, in one direction.
 */
__device__ __forceinline__ void swap_state(float (&S)[64], const prefill_params &p, int number, int n, int state_warp)
{
    const u32 entry = entry_of(number);
    const int quarter = state_warp / 2;
    const bool comes = has_state(entry), goes = leaves_state(p, entry_of(number - 1));
    mbar_wait(bar(STATE_COMES + quarter), load_shared_u32(entry + ITEM_TURNS) & 1);
    const QuarterLane lane(quarter_at(quarter, n), state_warp);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        float x[4][4] = {};
        if (comes)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                lane.load(x[j], i + j);
        if (goes)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                lane.store(&S[4 * (i + j)], i + j);
#pragma unroll
        for (int j = 0; j < 16; ++j)
            S[4 * i + j] = x[j / 4][j % 4];
    }
    mbar_arrive_warp(bar(STATE_TAKEN + quarter), lane_id());
}
