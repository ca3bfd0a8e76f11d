/*
 * gdn_hopper_carry.cuh - states carried past partitions that are set aside, by the addends and transitions of these.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_hopper_blocks.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_links.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_state.cuh"
#include "gdn_hopper_transitions.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/*
 * A run is what is set aside of one pair without a gap. A state lies at the link of its first partition; at each other link the
 * addend of the partition before it, and all of these are to become states, S_j before partition j:
 *
 *     S_j^T (128 x 128) = N_(j-1)^T + S_(j-1)^T M_(j-1)^T
 *
 * Value columns do not know each other: what a state warp has of a state, 16 of them, is a block, and is carried from link to
 * link through the whole run by one CTA, whichever takes its ticket. So nobody does what another CTA does too, and of what a
 * step needs only the block itself comes from the step before: all else is fetched ahead.
 */
constexpr int BLOCKS = STATE_WARPS, BLOCK_ROWS = 16;

/* In the O tiles, which nobody has output in: two steps in turn. In scale_slot()'s place: the operand's scales. */
constexpr int OPERAND = STATE_WARPS * 512, OPERAND_SCALES = STATE_WARPS * BLOCK_ROWS * 4;
static_assert(2 * OPERAND <= STATE_GROUPS * HALF && SCALE_AT + 2 * OPERAND_SCALES <= BAR_AT, "they fit");

/* ---- Runs --------------------------------------------------------------------------------------------------------- */

/* Index of the first partition of the run that `index` is of. By a warp, a partition a lane. */
__device__ __forceinline__ int first_of_run(const prefill_params &p, int index)
{
    const int step = index_step(p);
    for (int before = 0;; before += 32) {
        const u32 *const kind = item_word(p, max(index - (before + lane_id()) * step, 0), WORD_KIND);
        u32 starts, known;
        do {
            const u32 word = peek(kind);
            starts = __ballot_sync(~0u, word == KIND_STARTS);
            known = __ballot_sync(~0u, word != 0);
        } while (~known & ((starts & -starts) - 1)); /* nearer than the nearest that starts from a state of its own */
        if (starts != 0) return index - (before + __ffs((int)starts) - 2) * step;
    }
}

/* What comes after a link of a run: how many links that have all that takes a state there; whether the run ends with them. */
struct Ahead {
    int links;
    bool ends;
};

/* After the link of partition `index`, for a state warpgroup's columns; none: the run ends. By a warp, a link a lane. */
__device__ __forceinline__ Ahead links_ahead(const prefill_params &p, int index, int group)
{
    const int step = index_step(p), link = index + lane_id() * step;
    const bool there = link < items_of(p);
    const u32 *const word = item_word(p, there ? link : index, 0);
    const u32 *const before = item_word(p, there && lane_id() > 0 ? link - step : index, 0);
    for (;;) {
        const u32 kind = peek(word + WORD_KIND), at_link = peek(word + WORD_LINK + group);
        const u32 left = peek(before + WORD_TRANSITION), right = peek(before + WORD_TRANSITION + 1);
        const bool ready = kind != 0 && at_link == LINK_ADDEND && left != 0 && right != 0;
        const u32 waits = __ballot_sync(~0u, !ready) & ~1u;
        const u32 ends = (__ballot_sync(~0u, !there || kind == KIND_STARTS) & ~1u) |
                         __ballot_sync(~0u, there && kind == KIND_CARRIED_LAST) << 1;
        const int wait = waits ? __ffs((int)waits) - 1 : 32, end = ends ? __ffs((int)ends) - 1 : 32;
        if (end <= wait) return { end - 1, end < 32 };
        if (wait > 1) return { wait - 1, false };
    }
}

/* ---- Steps -------------------------------------------------------------------------------------------------------- */

/* What a warp needs of a transition: operand B of its 16 rows, k-steps in order; its columns' factors in S; its diagonal. */
struct Rows {
    uint4 M[STATE_WARPS];
    float2 factor[2], diagonal[2];

    __device__ __forceinline__ void fetch(u8 *link, int w)
    {
        const uint4 *const rows = transition_at(link, w, 0);
#pragma unroll
        for (int s = 0; s < STATE_WARPS; ++s)
            M[s] = rows[32 * s];
        const int at = BLOCK_ROWS * w + 2 * (lane_id() & 3);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            factor[i] = *(const float2 *)(transition_factors(link) + at + 8 * i);
            diagonal[i] = *(const float2 *)(transition_diagonal(link) + at + 8 * i);
        }
    }
};

__device__ __forceinline__ void scale_keys(float (&x)[8], const float2 (&by)[2])
{
#pragma unroll
    for (int i = 0; i < 8; ++i)
        x[i] *= i & 1 ? by[i / 4].y : by[i / 4].x;
}

/* This warp's k-step of operand A; rows divided by powers of two, which are the k-step's own. */
__device__ __forceinline__ void share_operand(const float (&S)[8], u32 operand, u32 scales, int w)
{
    float x[8];
    u32 a[1][4];
    const float2 scale = scales_of_rows(row_max(S));
#pragma unroll
    for (int i = 0; i < 8; ++i)
        x[i] = S[i];
    scale_rows(x, inverse(scale.x), inverse(scale.y));
    pack_f16_rows(a, x);
    store_shared(operand + 512 * w + 16 * lane_id(), a[0][0], a[0][1], a[0][2], a[0][3]);
    if ((lane_id() & 3) == 0) store_shared(scales + 64 * w + 2 * lane_id(), scale.x, scale.y);
}

/* x += M times what is shared. */
__device__ __forceinline__ void multiply(float (&x)[8], const Rows &rows, u32 operand, u32 scales)
{
#pragma unroll
    for (int s = 0; s < STATE_WARPS; ++s) {
        const uint4 from = load_shared_16(operand + 512 * s + 16 * lane_id()), m = rows.M[s];
        const float2 scale = load_shared_float2(scales + 64 * s + 8 * (lane_id() >> 2));
        const u32 a[4] = { from.x, from.y, from.z, from.w }, b[4] = { m.x, m.y, m.z, m.w };
        float d[2][4] = {};
        mma_block(d, a, b);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            x[i] += d[i / 4][i % 4] * (i & 2 ? scale.y : scale.x);
    }
}

/* ---- Carrying ----------------------------------------------------------------------------------------------------- */

/* A block on its way through a run. */
struct Carried {
    float S[8];
    u8 *link; /* where it is */
    int index;
    Ahead ahead;

    /* From its link to the next one. rows: of the transition in between; next: those of the one after that, if there is one. */
    template <int ODD>
    __device__ __forceinline__ void step(const prefill_params &p, const Rows &rows, Rows &next, const Place &columns, int w)
    {
        constexpr int OPERAND_AT = O_AT + ODD * OPERAND, SCALES_AT = SCALE_AT + ODD * OPERAND_SCALES;
        u8 *const before = link;
        link += link_bytes(p) * index_step(p);
        index += index_step(p);
        if (--ahead.links == 0 && !ahead.ends) {
            ahead = links_ahead(p, index, columns.group);
            acquire();
        }
        float addend[8];
        load_link(addend, link_state(link, columns), 2 * w);
        next.fetch(ahead.links > 0 ? link : before, w); /* the last time for nobody: a branch here costs registers */
        scale_keys(S, rows.factor);
        share_operand(S, at(OPERAND_AT), at(SCALES_AT), w);
        bar_sync(BAR_CARRY, 2 * GROUP); /* all of it is shared, and nobody reads the last one */
        scale_keys(S, rows.diagonal);
        multiply(S, rows, at(OPERAND_AT), at(SCALES_AT));
#pragma unroll
        for (int i = 0; i < 8; ++i)
            S[i] += addend[i];
        save_link(S, link_state(link, columns), 2 * w);
    }
};

/* A block from the link of partition `index`, where a state lies, through its run. By both state warpgroups. */
__device__ __forceinline__ void carry_block(const prefill_params &p, int index, int n, int number, const Place &place)
{
    const Place columns = { number / 4, number % 4 };
    const int w = place.index();
    Rows even, odd;
    Carried block;
    block.link = link_at(p, index, n);
    block.index = index;
    while (peek(item_word(p, index, WORD_LINK + columns.group)) != LINK_STATE) {
    }
    block.ahead = links_ahead(p, index, columns.group);
    acquire();
    load_link(block.S, link_state(block.link, columns), 2 * w);
    even.fetch(block.link, w);
#pragma unroll 1
    while (block.ahead.links > 0) {
        block.step<0>(p, even, odd, columns, w);
        if (block.ahead.links > 0) block.step<1>(p, odd, even, columns, w);
    }
}

/* A block that nobody has, or BLOCKS. By both state warpgroups. */
__device__ __forceinline__ int take_block(const prefill_params &p, int first, const Place &place)
{
    const u32 ticket = at(LISTS_AT) + BLOCK_TICKET;
    if (place.index() == 0) {
        if (lane_id() == 0) store_shared(ticket, take_ticket(item_word(p, first, WORD_BLOCKS)));
        __syncwarp();
    }
    bar_sync(BAR_CARRY, 2 * GROUP);
    return min((int)load_shared_u32(ticket), BLOCKS);
}

/*
 * The state before an item that was set aside: what its run starts from, or, once all blocks are carried, what came to its
 * link. output_parity: of O_EMPTY, of the CTA's last chunk. What the entry says is read again, not kept past a block.
 */
__device__ __forceinline__ void carry_state(float (&S)[64], const prefill_params &p, u32 entry, u32 output_parity,
                                            const Place &place)
{
    int first = first_of_run(p, (int)load_shared_u32(entry + ITEM_INDEX));
    if (first == (int)load_shared_u32(entry + ITEM_INDEX)) {
        while (peek(item_word(p, first, WORD_LINK + place.group)) != LINK_STATE) {
        }
    } else {
#pragma unroll
        for (int group = 0; group < STATE_GROUPS; ++group) /* in the output warp's order: the second one's phase is no older */
            mbar_wait(bar(O_EMPTY + group), output_parity);
        bar_sync(BAR_CARRY, 2 * GROUP); /* and BLOCK_TICKET has been read by all, of the last item */
        for (;;) {
            const int block = take_block(p, first, place);
            if (block == BLOCKS) break;
            asm volatile("" : "+r"(first)); /* no address is kept past a block: there are no registers for it */
            carry_block(p, first, (int)load_shared_u32(entry + ITEM_N), block, place);
            release();
            bar_sync(BAR_CARRY, 2 * GROUP);
            if (place.index() == 0 && lane_id() == 0) add_to(item_word(p, first, WORD_CARRIED), 1);
            __syncwarp();
        }
        while (peek(item_word(p, first, WORD_CARRIED)) != (u32)BLOCKS) {
        }
    }
    acquire();
    const int index = (int)load_shared_u32(entry + ITEM_INDEX), n = (int)load_shared_u32(entry + ITEM_N);
    load_link(S, link_state(link_at(p, index, n), place));
}
