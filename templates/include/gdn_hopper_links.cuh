/*
 * gdn_hopper_links.cuh - what partitions of a sequence leave each other in memory: states and addends at links, guesses that
 * are compared with states; and that an initial state has been read.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_cuts.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

constexpr int TRANSITION = 4 * TILE; /* bytes; the factors of its columns come after it, gdn_hopper_transitions.cuh */
constexpr int LINK_STATE_BYTES = spec::BLOCK_DV * D * 4, LINK_TRANSITION_BYTES = TRANSITION + D * 4;

__device__ __forceinline__ i64 link_bytes(const prefill_params &p)
{
    return carries(p) ? LINK_STATE_BYTES + LINK_TRANSITION_BYTES : LINK_STATE_BYTES;
}

/*
 * What lies at partition `index`'s link to the one before: a state, and the transition of the partition. A sequence's first
 * partition has no link: the others take their places as if the first ones of this sequence n and of all before were not there,
 * unless they are cut by gates, when there are few.
 */
__device__ __forceinline__ u8 *link_at(const prefill_params &p, int index, int n)
{
    return p.images + (by_gates() ? index : index - (n + 1) * (i64)parts_of_heads(p)) * link_bytes(p);
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

/*
 * Whether a replayed state is the one that it stands for, in this warp's 16 value columns: their difference against the
 * latter's norm. Two roundings of one computation differ too: by up to 2^-8 of a state of bf16 data, 2^-10.75 of fp16, that
 * does not decay, and by less, but up to 2^-15, where the last chunk's decay is strong (docs/prefill_partitions.md). Where
 * squares leave fp32's range only equal ones are the same. ours_is_true: S is the latter.
 */
__device__ __forceinline__ bool same_state(const float (&S)[64], const float4 *other, float last_decay, bool ours_is_true)
{
    constexpr float SLOW = spec::IO_BF16 ? 1.0f / (1 << 15) : 1.0f / (1 << 21), FAST = 1.0f / (1 << 28); /* squared */
    const float tolerance = fmaxf(FAST, SLOW * fminf(1.0f, 16.0f * sqrtf(last_decay)));
    float difference = 0.0f, ours = 0.0f, theirs = 0.0f;
    bool equal = true;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i % 4 == 0) asm volatile("" ::: "memory"); /* not more loads than registers */
        const float4 x = other[i * GROUP];
        const float y[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float s = S[4 * i + j], d = s - y[j];
            difference += d * d;
            ours += s * s;
            theirs += y[j] * y[j];
            equal &= s == y[j];
        }
    }
    difference = warp_sum(difference);
    const float norm = warp_sum(ours_is_true ? ours : theirs);
    if (norm > 1e-30f && norm < 1e38f) return difference <= tolerance * norm;
    return __all_sync(~0u, equal);
}

/*
 * The guess before partition `index` is wrong. The first to say so has its CTA repeat the partition; the item in whose time
 * that was found has a byte of its word for it, the first if it is that partition. By a lane.
 */
__device__ __forceinline__ void claim_repair(const prefill_params &p, u32 entry, int index, bool own)
{
    if ((take_ticket(item_word(p, index, WORD_WRONG)) & (HAS_ENDED - 1)) != 0) return;
    add_to(pair_word(p, (int)load_shared_u32(entry + ITEM_N), (int)load_shared_u32(entry + ITEM_PART), PAIR_FAILED), 1);
    shared[WRONG_AT + (entry - at(ITEM_AT)) / (ENTRY / 4) + (own ? 0 : 1)] = 1;
}

/* A checked build (gdn_ptx_mbar.cuh) ends where what is kept is of another chunk than the one whose decay is wanted. */
__device__ __forceinline__ void expect_kept(u32 flag, const Place &place)
{
#ifdef GDN_CHECKED
    if (!(load_shared_u32(kept(place) + KEPT_FLAGS) & flag)) asm volatile("trap;");
#endif
}

/*
 * Either side of a link, by one state warpgroup: the replayed state, or the one that the partition before ended with (is_true).
 * Who comes first leaves its state, who comes second compares; at last what the partition before ended with stands there, which
 * a wrong guess of its own may have spoilt. Nobody waits but for the stores of who came first. again: a repair ended with S; it
 * waits for both sides.
 */
__device__ __forceinline__ void meet_at_link(const float (&S)[64], const prefill_params &p, u32 entry, bool is_true,
                                             bool again, const Place &place)
{
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + (is_true ? index_step(p) : 0);
    u32 *const word = item_word(p, index, WORD_LINK + place.group);
    const int n = (int)load_shared_u32(entry + ITEM_N);
    float4 *const state = link_state(link_at(p, index, n), place);
    const bool one = place.warp == 0 && lane_id() == 0;
    bool second = again;
    if (!again) {
        const bool agrees = !one || take_ticket(word) != 0;
        __syncwarp(); /* a barrier counts a warp for each time that lanes of it come by */
        second = bar_all(BAR_VOTE + place.group, GROUP, agrees);
    }
    if (second) {
        while (peek(word) != LINK_MET) {
        }
        acquire();
        expect_kept(is_true ? CHUNK_LAST : CHUNK_REPLAYED, place);
        if (!same_state(S, state, load_shared_float(kept(place) + KEPT_DECAY), is_true) && lane_id() == 0) {
            if (again)
                raise(pair_word(p, n, (int)load_shared_u32(entry + ITEM_PART), PAIR_AGAIN),
                      AGAIN_FIRST - load_shared_u32(at(REPAIR_AT) + RUN_FIRST));
            else
                claim_repair(p, entry, index, !is_true);
        }
        __syncwarp();
    }
    if (again) return;
    if (is_true || !second) save_link(S, state);
    if (second) return;
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (one) {
        release(); /* behind the barrier: of all that it has ordered */
        add_to(word, 2);
    }
    __syncwarp();
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

__device__ __forceinline__ void await_start(const prefill_params &p, u32 entry)
{
    const u32 *const word = pair_word(p, (int)load_shared_u32(entry + ITEM_N), (int)load_shared_u32(entry + ITEM_PART),
                                      PAIR_STARTED);
    while (peek(word) != (u32)STATE_GROUPS) {
    }
    acquire();
}

/* At the end of a partition after which nothing is guessed: a state, or an addend. By a state warpgroup; see tell_link(). */
__device__ __forceinline__ void leave_at_link(const float (&S)[64], const prefill_params &p, u32 entry, const Place &place)
{
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + index_step(p);
    save_link(S, link_state(link_at(p, index, (int)load_shared_u32(entry + ITEM_N)), place));
}
