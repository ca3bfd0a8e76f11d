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
 *     quarter 0   Q of chunk n + 1        2   K of chunk n + 2
 *             1   K of chunk n + 1        3   Q of chunk n + 2
 *
 * The first warpgroup, which has quarters 0 and 1, is half a chunk ahead of the second one, and its places are free sooner.
 * State warps have loaded what they start from, each lane, before they store there what they ended with: it needs no place of
 * its own.
 */
constexpr int QUARTER_COLUMNS = 32;
static_assert(!spec::TRANSIT || (D * QUARTER_COLUMNS * 4 == TILE && V_TILE == TILE), "a tile's slot each");

/* As slots of K and Q lie behind each other. */
__device__ __forceinline__ u32 quarter_at(u32 slot)
{
    static_assert(K_AT == 0 && Q_AT == K_STAGES * TILE, "slots of one size");
    return at(K_AT) + slot * TILE;
}

/* ---- The tile warp ---- */

/* A quarter's slot, once the tile that was in it is given back. */
__device__ __forceinline__ u32 take_slot(int quarter, int n)
{
    const bool of_k = quarter == 1 || quarter == 2;
    const Clock c = clock_at(n + 1 + quarter / 2);
    mbar_wait(bar(of_k ? K_EMPTY + (c.n & 3) : Q_EMPTY + c.q_slot), (of_k ? c.parity4() : c.q_parity) ^ 1);
    return of_k ? c.n & 3 : K_STAGES + c.q_slot;
}

/* A quarter's place in its pool's map: of KV all keys of a block of columns, of VK rows of columns. */
__device__ __forceinline__ TileAt quarter_of(int quarter, int head, int line)
{
    return spec::STATE_KV ? TileAt{ 0, quarter, head, line } : TileAt{ QUARTER_COLUMNS * quarter, 0, head, line };
}

/* By one lane. line: what the item starts from; from zeros nothing comes, and its place is said to be there. */
__device__ __forceinline__ void bring_quarter(const prefill_params &p, int quarter, u32 slot, int line, int part)
{
    const u32 full = bar(STATE_COMES + quarter);
    shared[QUARTERS_AT + quarter] = (u8)slot;
    if (line == START_ZEROS) {
        mbar_arrive(full);
        return;
    }
    mbar_arrive_expect(full, TILE);
    if (line == START_HANDED)
        bulk_load(quarter_at(slot), handed_state(p, handing_cta(p, true)) + quarter * TILE, TILE, full);
    else
        load_tile(quarter_at(slot), &p.initial_map, full, quarter_of(quarter, part, line));
}

/* Of the item of this number, whose first chunk is n, the last one that is loaded. */
__device__ __forceinline__ void bring_quarters(const prefill_params &p, int n, int number)
{
    const u32 entry = entry_of(number);
    const int line = (int)load_shared_u32(entry + ITEM_START), part = (int)load_shared_u32(entry + ITEM_PART);
    if (line == START_HANDED) await_handed(p, handing_cta(p, true));
#pragma unroll 1
    for (int quarter = 0; quarter < 4; ++quarter) {
        const u32 slot = take_slot(quarter, n);
        if (elected()) bring_quarter(p, quarter, slot, line, part);
        __syncwarp();
    }
}

/* By one lane. after: a line of final_state, or END_HANDED. */
__device__ __forceinline__ void send_quarter(const prefill_params &p, int quarter, u32 slot, int after, int part)
{
    const TileAt to = quarter_of(quarter, part, after);
    if (after == END_HANDED)
        bulk_store(handed_state(p, handing_cta(p, false)) + quarter * TILE, quarter_at(slot), TILE);
    else
        tma_store(&p.final_map, quarter_at(slot), to.token, to.half, to.head, to.batch);
    bulk_commit();
}

/*
 * What a warpgroup had of the last item's state, from where it has found that of the item of this number. When this returns
 * both slots are free for tiles.
 */
__device__ __forceinline__ void send_quarters(const prefill_params &p, int group, int number)
{
    const u32 transit = load_shared_u32(entry_of(number) + ITEM_TRANSIT), last = entry_of(number - 1);
    const int after = (int)load_shared_u32(last + ITEM_AFTER), part = (int)load_shared_u32(last + ITEM_PART);
    const u32 slots = load_shared_u32(at(QUARTERS_AT)) >> 16 * group;
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        const int quarter = 2 * group + i;
        mbar_wait(bar(STATE_TAKEN + quarter), transit / TRANSIT_PARITY & 1);
        if (elected()) {
            async_proxy_fence(); /* also before a tile is loaded, where nothing goes */
            if (transit & TRANSIT_GOES) send_quarter(p, quarter, slots >> 8 * i & 255, after, part);
        }
        __syncwarp();
    }
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
 * The state of an item for that of the one before it; transit: the item's. In straight code, since each line of it is fetched
 * anew for each item: what is not wanted is stored all the same, and where an item starts from zeros what is loaded is dropped.
 */
__device__ __forceinline__ void swap_state(float (&S)[64], u32 transit, int state_warp)
{
    constexpr int AT_ONCE = 4;
    const int quarter = state_warp / 2;
    mbar_wait(bar(STATE_COMES + quarter), transit / TRANSIT_PARITY & 1);
    const QuarterLane lane(quarter_at(shared[QUARTERS_AT + quarter]), state_warp);
#pragma unroll
    for (int i = 0; i < 16; i += AT_ONCE) {
        float x[AT_ONCE][4];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
            lane.load(x[j], i + j);
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
            lane.store(&S[4 * (i + j)], i + j);
#pragma unroll
        for (int j = 0; j < 4 * AT_ONCE; ++j)
            S[4 * i + j] = x[j / 4][j % 4];
    }
    mbar_arrive_warp(bar(STATE_TAKEN + quarter), lane_id());
    if (rarely(!(transit & TRANSIT_COMES))) {
        __syncwarp(); /* else each register would be selected, or zero */
#pragma unroll
        for (int i = 0; i < 64; ++i)
            S[i] = 0.0f;
    }
}
