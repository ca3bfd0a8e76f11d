/*
 * gdn_hopper_ring.cuh - a pair of CTAs of the recurrence: where all lies in the shared memory of either, their barriers,
 * which slot a chunk has. Must not know: what is computed.
 */
#pragma once

#include "gdn_hopper_images.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

/* Of a cluster: who has S, and who makes O. */
enum { CHAIN_RANK = 0, READOUT_RANK = 1 };

constexpr int RING = 4; /* chunks of what is loaded, and of what is handed over */
/*
 * What is handed over: W as operand A, 16 bytes of each k-step a thread; whether it is scaled; and if so what this thread's two
 * rows of S (x, y) and of W (z, w) are divided by.
 */
constexpr int FRAGMENT = GROUP * 16, SCALED_AT = C / 16 * FRAGMENT, SCALES_AT = SCALED_AT + 16,
              HANDED_BYTES = SCALES_AT + GROUP * 16;

/* A thread's part of an operand A, 16 bytes of each k-step, to and from where it is handed over. */
template <int STEPS> __device__ __forceinline__ void store_fragments(const u32 (&a)[STEPS][4], u32 to)
{
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
        store_shared(to + i * FRAGMENT, a[i][0], a[i][1], a[i][2], a[i][3]);
}

template <int STEPS> __device__ __forceinline__ void load_fragments(u32 (&a)[STEPS][4], u32 from)
{
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const uint4 v = load_shared_16(from + i * FRAGMENT);
        a[i][0] = v.x, a[i][1] = v.y, a[i][2] = v.z, a[i][3] = v.w;
    }
}

/* Slot of chunk n, and the parity of its use. */
__device__ __forceinline__ u32 slot4(u32 n)
{
    return n % RING;
}
__device__ __forceinline__ u32 parity4(u32 n)
{
    return n / RING & 1;
}

namespace chain {

constexpr int K = 0, X = K + RING * TILE, V = X + RING * TILE, HANDED = V + RING * HALF,
              TABLE = HANDED + RING * HANDED_BYTES, BARRIERS = TABLE + RING * GATE, END = BARRIERS + 256;
/*
 * PUT: a chunk's W is to be handed over; TAKEN: the readout has it. READY: all that a chunk waits for is there, told by one
 * warp that looks for it; looking takes from who computes. TAIL: see clear_tail().
 */
enum { FULL = 0, X_FULL = FULL + RING, EMPTY = X_FULL + RING, PUT = EMPTY + RING, TAKEN = PUT + RING };
enum { READY = TAKEN + RING, TAIL = READY + RING, NUM_BARRIERS };

__device__ __forceinline__ u32 bar(int index)
{
    return at(BARRIERS) + 8 * index;
}

} /* namespace chain */

namespace readout {

constexpr int Q = 0, X = Q + RING * TILE, PT = X + RING * TILE, O = PT + RING * SQUARE, HANDED = O + HALF,
              TABLE = HANDED + RING * HANDED_BYTES, BARRIERS = TABLE + RING * GATE, END = BARRIERS + 256;
/* READY: as of a chain: what was handed over, the inputs. */
enum { FULL = 0, EMPTY = FULL + RING, HANDED_FULL = EMPTY + RING, READY = HANDED_FULL + RING };
enum { O_FULL = READY + RING, O_EMPTY, TAIL, NUM_BARRIERS };

__device__ __forceinline__ u32 bar(int index)
{
    return at(BARRIERS) + 8 * index;
}

} /* namespace readout */

static_assert(8 * chain::NUM_BARRIERS <= 256 && 8 * readout::NUM_BARRIERS <= 256, "barriers fit");
static_assert(STATE_GROUPS == 1 && chain::END <= spec::SMEM_BYTES && readout::END <= spec::SMEM_BYTES, "host and device agree");

/* FULL: a warp for what comes from an input, one for what comes from an image. */
__device__ __forceinline__ void init_chain_barriers()
{
#pragma unroll
    for (int i = 0; i < chain::NUM_BARRIERS; ++i) {
        const int warps = i < chain::X_FULL ? 2 : i < chain::EMPTY || i >= chain::READY ? 1 : 4;
        mbar_init(chain::bar(i), i == chain::TAIL ? 1 : warps * ARRIVALS_PER_WARP);
    }
    mbar_init_fence();
}

__device__ __forceinline__ void init_readout_barriers()
{
#pragma unroll
    for (int i = 0; i < readout::NUM_BARRIERS; ++i) {
        const bool inputs = i < readout::EMPTY, empty = !inputs && i < readout::HANDED_FULL;
        const int warps = inputs ? 2 : empty || i == readout::O_FULL ? 4 : 1;
        mbar_init(readout::bar(i), i == readout::TAIL ? 1 : warps * ARRIVALS_PER_WARP);
    }
    mbar_init_fence();
}

__device__ __forceinline__ void arrive_at(u32 barrier)
{
    mbar_arrive_warp(barrier, lane_id());
}

/* At the other CTA's barrier. */
__device__ __forceinline__ void arrive_there(u32 barrier)
{
    __syncwarp();
    if (ARRIVALS_PER_WARP == 32 || lane_id() == 0) mbar_arrive_cluster(barrier);
}
