/*
 * gdn_hopper_links.cuh - what partitions of a sequence leave each other in memory: states, addends, transitions at links; that
 * an initial state has been read. Must not know: who compares, who carries.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"

constexpr int TRANSITION = 4 * TILE; /* bytes; the factors of its columns come after it, gdn_hopper_transitions.cuh */
constexpr int LINK_STATE_BYTES = spec::BLOCK_DV * D * 4, LINK_TRANSITION_BYTES = TRANSITION + D * 4;

__device__ __forceinline__ i64 link_bytes(const prefill_params &p)
{
    return carries(p) ? LINK_STATE_BYTES + LINK_TRANSITION_BYTES : LINK_STATE_BYTES;
}

/*
 * What lies at partition `index`'s link to the one before: a state, and the transition of the partition. A sequence's first
 * partition has no link: the others take their places as if the first ones of this sequence n and of all before were not there,
 * unless they are cut by gates or evenly, when there are few.
 */
__device__ __forceinline__ u8 *link_at(const prefill_params &p, int index, int n)
{
    return p.images + (by_gates() || cut_evenly(p) ? index : index - (n + 1) * (i64)parts_of_heads(p)) * link_bytes(p);
}

/* A state warpgroup's columns of the state there, thread by thread. */
__device__ __forceinline__ float4 *link_state(u8 *link, const Place &place)
{
    return (float4 *)link + place.group * (16 * GROUP) + 32 * place.warp + lane_id();
}

/* Of these columns N / 4 tiles of 8 keys, from tile `first` on. */
template <int N> __device__ __forceinline__ void load_link(float (&S)[N], const float4 *from, int first = 0)
{
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
        const float4 x = from[(first + i) * GROUP];
        S[4 * i] = x.x;
        S[4 * i + 1] = x.y;
        S[4 * i + 2] = x.z;
        S[4 * i + 3] = x.w;
    }
}

template <int N> __device__ __forceinline__ void save_link(const float (&S)[N], float4 *to, int first = 0)
{
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
        to[(first + i) * GROUP] = make_float4(S[4 * i], S[4 * i + 1], S[4 * i + 2], S[4 * i + 3]);
}

/* An initial state that the call may overwrite, in its last partition, has been read; by a warpgroup. */
__device__ __forceinline__ void announce_start(const prefill_params &p, u32 entry, const Place &place)
{
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (place.warp == 0 && lane_id() == 0) {
        release();
        add_to(pair_word(p, (int)load_shared_u32(entry + ITEM_N), (int)load_shared_u32(entry + ITEM_PART), PAIR_STARTED), 1);
    }
    __syncwarp();
}

/* Before a final state is stored: by the sequence's last partition, if it has others. */
__device__ __forceinline__ void await_start(const prefill_params &p, u32 entry)
{
    if (load_shared_u32(entry + ITEM_MAIN) == 0) return;
    const u32 *const word = pair_word(p, (int)load_shared_u32(entry + ITEM_N), (int)load_shared_u32(entry + ITEM_PART),
                                      PAIR_STARTED);
    while (peek(word) < (u32)STATE_GROUPS) {
    }
    acquire();
}

/* At the end of a partition after which nothing is guessed: a state, or an addend. By a state warpgroup; see tell_link(). */
__device__ __forceinline__ void leave_at_link(const float (&S)[64], const prefill_params &p, u32 entry, const Place &place)
{
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + index_step(p);
    save_link(S, link_state(link_at(p, index, (int)load_shared_u32(entry + ITEM_N)), place));
}
