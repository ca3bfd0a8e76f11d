/*
 * gdn_hopper_guesses.cuh - guesses: replayed states, which meet at links the states that they stand for. Must not know: how a
 * state is replayed, how a repair is done.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_links.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/* ---- Compared ------------------------------------------------------------------------------------------------------ */

/*
 * Whether a replayed state is the one that it stands for, in this warp's 16 value columns: their difference against their
 * product, which is the square of either where that is small, and the same whichever of them S is. Two roundings of one
 * computation differ too: by up to 2^-8 of a state of bf16 data, 2^-10.75 of fp16, that does not decay, and by less, but up to
 * 2^-15, where the last chunk's decay is strong (docs/prefill_partitions.md). Where squares leave fp32's range only equal ones
 * are the same. other: tiles 0-7, 8-15. By little code, since a call's end waits for it.
 */
__device__ __forceinline__ bool same_state(const float (&S)[64], const float4 *const (&other)[2], float last_decay)
{
    constexpr float SLOW = spec::IO_BF16 ? 1.0f / (1 << 15) : 1.0f / (1 << 21), FAST = 1.0f / (1 << 28); /* squared */
    const float tolerance = fmaxf(FAST, SLOW * fminf(1.0f, 16.0f * sqrtf(last_decay)));
    float difference = 0.0f, product = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i % 4 == 0) asm volatile("" ::: "memory"); /* not more loads than registers */
        const float4 x = other[i / 8][i % 8 * GROUP];
        const float y[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float d = S[4 * i + j] - y[j];
            difference += d * d;
            product += S[4 * i + j] * y[j];
        }
    }
    difference = warp_sum(difference);
    product = warp_sum(product);
    if (product > 1e-30f && product < 1e38f) return difference <= tolerance * product;
    bool equal = true;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i % 4 == 0) asm volatile("" ::: "memory");
        const float4 x = other[i / 8][i % 8 * GROUP];
        equal &= S[4 * i] == x.x & S[4 * i + 1] == x.y & S[4 * i + 2] == x.z & S[4 * i + 3] == x.w;
    }
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

/* ---- Ahead --------------------------------------------------------------------------------------------------------- */

/*
 * Of items that replay more than two chunks the output warp says at the link, before the second to last of these, that a guess
 * will come, and tells that it has: the state warps then leave it without a way to L2 and back. Both warpgroups have begun such
 * an item by then, and wait for no other CTA before they have left it. Of others each says and tells by itself: a warpgroup may
 * be there while the other still stands at the link before, so that who waits for what both have done may wait for itself.
 */
__device__ __forceinline__ bool is_said_ahead(int begin, int main)
{
    return main - begin > 2;
}

/* Whether a guess that was said ahead comes first, a byte for each warpgroup. */
__device__ __forceinline__ u8 *settled_byte(int group)
{
    return &shared[SETTLED_AT + group];
}

/* By who has waited for O_EMPTY since. */
__device__ __forceinline__ bool is_settled(const Place &place)
{
    return *settled_byte(place.group);
}

/*
 * By the output warp, before it waits for O of an item's chunk `step`, and behind its last one: what there is to do for the
 * item's guess. Returns the next step before which there is something. It tells of a guess when O of the chunk behind it has
 * come: who is past that is past its stores too.
 */
__device__ __forceinline__ int serve_guess(const prefill_params &p, const Item &item, int step, int lane)
{
    const bool guessed = is_said_ahead(item.begin, item.main) && item.main < item.end;
    const int says = item.main - 2, tells = item.main + 1;
    if (guessed && lane < STATE_GROUPS) {
        u32 *const word = item_word(p, item.index, WORD_LINK + lane);
        if (step == says) *settled_byte(lane) = fetch_or(word, LINK_GUESS) == 0;
        if (step == tells) {
            release();
            add_to(word, LINK_GUESS * LINK_LEFT);
        }
    }
    __syncwarp();
    return !guessed || step >= tells ? item.end : step < says ? says : tells;
}

/*
 * The guess that the CTA's last item meets, if it is there, comes to where K, Q and V of more chunks would, n being how many
 * there are: K's place of chunks n and n + 1, Q's and V's of n. GUESS_AT has where each tile's worth of it is. By the tile
 * warp, which has nothing else to load, and waits for it.
 */
__device__ __forceinline__ void bring_guess(const prefill_params &p, u32 entry, int n, int lane)
{
    if ((int)load_shared_u32(entry + ITEM_AFTER) != END_LINK) return;
    /* Else it might come, and be taken for theirs, while the state warps stand at the link of the item before. */
    if ((int)load_shared_u32(entry + ITEM_END) - (int)load_shared_u32(entry + ITEM_BEGIN) < 3) return;
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + index_step(p);
    const u32 *const word = item_word(p, index, WORD_LINK + lane % STATE_GROUPS);
    if (!__all_sync(~0u, peek(word) & LINK_GUESS * LINK_LEFT)) return;
    acquire();
    async_proxy_fence_all();
    __syncwarp(); /* lane 0 loads what others have acquired */
    const u8 *from = link_at(p, index, (int)load_shared_u32(entry + ITEM_N));
#pragma unroll 1
    for (int tile = 0; tile < LINK_STATE_BYTES / TILE; ++tile, from += TILE) {
        const Clock c = clock_at(n + (tile == 1));
        const u32 to = tile < 2 ? c.k() : tile == 2 ? c.q() : c.v();
        const int empty = tile < 2 ? K_EMPTY + (c.n & 3) : tile == 2 ? Q_EMPTY + c.q_slot : V_EMPTY + (c.n & 1);
        mbar_wait(bar(empty), (tile < 2 ? c.parity4() : tile == 2 ? c.q_parity : c.parity2()) ^ 1);
        if (lane == 0) {
            store_shared(at(GUESS_AT) + 4 * tile, to - at(0));
            bulk_load(to, from, TILE, bar(GUESS_FULL));
        }
        __syncwarp();
    }
    if (lane == 0) mbar_arrive_expect(bar(GUESS_FULL), LINK_STATE_BYTES);
    __syncwarp();
    mbar_wait(bar(GUESS_FULL), 0);
}

__device__ __forceinline__ bool is_brought()
{
    return mbar_peek(bar(GUESS_FULL), 0);
}

/* ---- At a link ------------------------------------------------------------------------------------------------------ */

/* A checked build lets one warpgroup come to a link late, by a millisecond at most, the other one in every second CTA. */
__device__ __forceinline__ void come_late(const u32 *word, u32 other, const Place &place)
{
#ifdef GDN_CHECKED
    if (STATE_GROUPS == 2 && place.group == (int)(blockIdx.x & 1))
        for (int i = 0; i < 1000 && !(peek(word) & other); ++i)
            dawdle();
#endif
}

/*
 * Either side of a link, by one state warpgroup: the replayed state, or the one that the partition before ended with (is_true).
 * Who comes first leaves its state, who comes second compares; at last the guess stands there if it holds, which is what the
 * partition behind it started from, else what the partition before ended with, which a wrong guess of its own may have spoilt:
 * whoever came first. Nobody waits but for a state that another CTA is about to leave. again: a repair ended with S; it waits
 * for the guess.
 */
__device__ __forceinline__ void meet_at_link(const float (&S)[64], const prefill_params &p, u32 entry, bool is_true,
                                             bool again, const Place &place)
{
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + (is_true ? index_step(p) : 0);
    const u32 came = is_true ? LINK_TRUE : LINK_GUESS, other = is_true ? LINK_GUESS : LINK_TRUE;
    u32 *const word = item_word(p, index, WORD_LINK + place.group);
    const int n = (int)load_shared_u32(entry + ITEM_N);
    float4 *const state = link_state(link_at(p, index, n), place);
    const bool one = place.warp == 0 && lane_id() == 0;
    const int begin = (int)load_shared_u32(entry + ITEM_BEGIN), main = (int)load_shared_u32(entry + ITEM_MAIN);
    const bool ahead = !is_true && is_said_ahead(begin, main), ends = is_true && !again; /* ends: an item, no repair of it */
    bool second = false;
    if (!ahead || !is_settled(place)) {
        second = true;
        if (one && !(ends && is_brought())) { /* waits for all, who then need no fence */
            if (ends) come_late(word, other, place);
            u32 at_link = again ? other : fetch_or(word, came);
            second = at_link & other;
            if (second) {
                while (!(at_link & other * LINK_LEFT))
                    at_link = peek(word);
                acquire();
            }
        }
        __syncwarp(); /* a barrier counts a warp for each time that lanes of it come by */
        second = bar_all(BAR_VOTE + place.group, GROUP, second);
    }
    bool holds = false;
    if (second) {
        expect_kept(is_true ? CHUNK_LAST : CHUNK_REPLAYED, place);
        const float4 *half[2] = { state, state + 8 * GROUP };
        if (ends && is_brought()) {
            const u32 tiles = at(GUESS_AT) + 8 * place.group;
            half[0] = link_state(shared + load_shared_u32(tiles), { 0, place.warp });
            half[1] = link_state(shared + load_shared_u32(tiles + 4), { 0, place.warp });
        }
        holds = same_state(S, half, load_shared_float(kept(place) + KEPT_DECAY));
        if (!holds && lane_id() == 0) {
            if (again)
                raise(pair_word(p, n, (int)load_shared_u32(entry + ITEM_PART), PAIR_AGAIN),
                      AGAIN_FIRST - load_shared_u32(at(REPAIR_AT) + RUN_FIRST));
            else
                claim_repair(p, entry, index, !is_true);
        }
        __syncwarp();
    }
    if (again) return;
    if (!second || holds != is_true) save_link(S, state);
    if (is_true ? second : ahead) return; /* nobody looks before this partition has ended; the output warp tells */
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (one) {
        release(); /* behind the barrier: of all that it has ordered */
        add_to(word, came * LINK_LEFT);
    }
    __syncwarp();
}
