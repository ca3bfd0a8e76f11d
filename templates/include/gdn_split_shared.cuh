/*
 * gdn_split_shared.cuh - where everything lies in the shared memory of a CTA of the recurrence, and its barriers.
 */
#pragma once

#include "gdn_chunk_tp.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_split_image.cuh"
#include "gdn_tile.cuh"

constexpr int BV = spec::BLOCK_DV, STAGES = spec::STAGES, Q_STAGES = STAGES - 1;
constexpr int TOKENS = C / WARPS; /* of a state warp */
constexpr int KEYS = DK / WARPS;
constexpr int ROW_BLOCKS = BV / 16; /* m16 blocks of value columns */
constexpr int TOKEN_BLOCKS = TOKENS / 8, KEY_BLOCKS = KEYS / 8;
static_assert(DV % BV == 0 && BV % 16 == 0, "what tiles and roles divide");
static_assert(STAGES >= 2, "a chunk loads while another is used");
static_assert((2 * STAGES + 2 * (STAGES - 1)) * 8 <= 128, "barriers fit");

/*
 * Named barriers: a chunk's operands and S are there (all warps), W is there (state warps), V' is there (all), and two for the
 * rare way of publish_scaled().
 */
enum { BAR_CHUNK = 1, BAR_W, BAR_V, BAR_SCALE_STATE, BAR_SCALE_ALL };
enum { STATE_THREADS = 32 * WARPS, ALL_THREADS = 64 * WARPS }; /* the load warps are in none */

constexpr int V_BYTES = C * BV * 2;
constexpr int SLOT_BYTES = QK_BYTES + V_BYTES + IMAGE_BYTES;
constexpr int EXCHANGE_S = BV * DK * 2, EXCHANGE_W = BV * C * 2, MAXIMA_BYTES = ROW_BLOCKS * 8 * WARPS * 4;
constexpr int Q_OFFSET = STAGES * SLOT_BYTES, S_OFFSET = Q_OFFSET + Q_STAGES * QK_BYTES,
              W_OFFSET = S_OFFSET + EXCHANGE_S;
constexpr int MAXIMA_OFFSET = W_OFFSET + 3 * EXCHANGE_W, BAR_OFFSET = MAXIMA_OFFSET + 4 * MAXIMA_BYTES,
              RECURRENCE_BYTES = BAR_OFFSET + 128;

struct Slot {
    Tile<DK> k;
    Tile<BV> v;
    Image image;
};

/* A buffer of exchanged A operands, and each warp's maxima of its rows: fp16 pairs {row g, row g + 8} [block][g][warp]. */
struct Exchange {
    u32 data, maxima;
};

struct Shared {
    u32 base;

    __device__ __forceinline__ Slot slot(int s) const
    {
        const u32 at = base + s * SLOT_BYTES;
        return { { at }, { at + QK_BYTES }, { at + QK_BYTES + V_BYTES } };
    }
    __device__ __forceinline__ Tile<DK> q(int s) const
    {
        return { base + Q_OFFSET + s * QK_BYTES };
    }
    __device__ __forceinline__ Exchange w() const
    {
        return { base + W_OFFSET, base + MAXIMA_OFFSET };
    }
    __device__ __forceinline__ Exchange s() const
    {
        return { base + S_OFFSET, base + MAXIMA_OFFSET + MAXIMA_BYTES };
    }
    __device__ __forceinline__ Exchange v() const
    {
        return { base + W_OFFSET + EXCHANGE_W, base + MAXIMA_OFFSET + 2 * MAXIMA_BYTES };
    }
    __device__ __forceinline__ Exchange u() const
    {
        return { base + W_OFFSET + 2 * EXCHANGE_W, base + MAXIMA_OFFSET + 3 * MAXIMA_BYTES };
    }
    /* mbarriers of K, V and the image, and of Q: loaded, and free again. */
    __device__ __forceinline__ u32 full(int s) const
    {
        return base + BAR_OFFSET + 8 * s;
    }
    __device__ __forceinline__ u32 empty(int s) const
    {
        return base + BAR_OFFSET + 8 * (STAGES + s);
    }
    __device__ __forceinline__ u32 q_full(int s) const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + s);
    }
    __device__ __forceinline__ u32 q_empty(int s) const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + Q_STAGES + s);
    }
    /* For publish_scaled(), two maxima arrays that nobody needs: before V' is published, and after. */
    __device__ __forceinline__ u32 early_scratch() const
    {
        return v().maxima;
    }
    __device__ __forceinline__ u32 late_scratch() const
    {
        return w().maxima;
    }
};

__device__ __forceinline__ void init_recurrence(const Shared &sm)
{
    for (int s = 0; s < STAGES; ++s) {
        mbar_init(sm.full(s), 32 * WARPS);
        mbar_init(sm.empty(s), 32 * WARPS);
    }
    for (int s = 0; s < Q_STAGES; ++s) {
        mbar_init(sm.q_full(s), 32 * WARPS);
        mbar_init(sm.q_empty(s), 32 * WARPS);
    }
    init_meeting(BAR_CHUNK, ALL_THREADS);
    init_meeting(BAR_V, ALL_THREADS);
    init_meeting(BAR_SCALE_ALL, ALL_THREADS);
}
