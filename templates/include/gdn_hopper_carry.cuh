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
constexpr int OPERAND = STATE_WARPS * 2 * 512, OPERAND_SCALES = STATE_WARPS * BLOCK_ROWS * 4;
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

/* After the link of partition `index`, for a state warpgroup's columns; none: the run ends. Each lane acquires a link. */
__device__ __forceinline__ Ahead links_ahead(const prefill_params &p, int index, int group)
{
    const int step = index_step(p), link = index + lane_id() * step;
    const bool there = link < items_of(p, by_gates());
    const u32 *const word = item_word(p, there ? link : index, 0);
    const u32 *const before = item_word(p, there && lane_id() > 0 ? link - step : index, 0);
    for (;;) {
        const u32 kind = peek(word + WORD_KIND), at_link = peek_acquire(word + WORD_LINK + group);
        const u32 transition = peek_acquire(before + WORD_TRANSITION);
        const bool ready = kind != 0 && at_link == LINK_ADDEND && transition != 0;
        __syncwarp(); /* what a lane has acquired is there for all */
        const u32 waits = __ballot_sync(~0u, !ready) & ~1u;
        const u32 ends = (__ballot_sync(~0u, !there || kind == KIND_STARTS) & ~1u) |
                         __ballot_sync(~0u, there && kind == KIND_CARRIED_LAST) << 1;
        const int wait = waits ? __ffs((int)waits) - 1 : 32, end = ends ? __ffs((int)ends) - 1 : 32;
        if (end <= wait) return { end - 1, end < 32 };
        if (wait > 1) return { wait - 1, false };
    }
}

/* ---- Steps -------------------------------------------------------------------------------------------------------- */

/* A warp's part of a step: 16 keys of the next state. */
struct Step {
    float S[8];  /* of a link: two accumulator tiles of 8 keys */
    uint4 M[16]; /* transition_at(), k-steps in order: high, low */
    float2 factor[2];

    __device__ __forceinline__ void fetch(const uint4 *from, int s)
    {
        M[2 * s] = from[64 * s];
        M[2 * s + 1] = from[64 * s + 32];
    }
    __device__ __forceinline__ void fetch_factors(u8 *link, int w)
    {
        const float *const from = transition_factors(link) + BLOCK_ROWS * w + 2 * (lane_id() & 3);
        factor[0] = *(const float2 *)from;
        factor[1] = *(const float2 *)(from + 8);
    }
};

/*
 * S times M's factors as this warp's k-step of operand A, two fp16 numbers an entry, high and low; rows divided by powers of
 * two, which are the k-step's own.
 */
__device__ __forceinline__ void share_operand(const Step &step, u32 operand, u32 scales, int w)
{
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        x[i] = step.S[i] * (i & 1 ? step.factor[i / 4].y : step.factor[i / 4].x);
    const float2 scale = scales_of_rows(row_max(x));
    scale_rows(x, inverse(scale.x), inverse(scale.y));
    u32 high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        split_f16(high[i], low[i], x[2 * i], x[2 * i + 1]);
    operand += w * 1024 + lane_id() * 16;
    store_shared(operand, high[0], high[1], high[2], high[3]);
    store_shared(operand + 512, low[0], low[1], low[2], low[3]);
    if ((lane_id() & 3) == 0) store_shared(scales + w * 64 + lane_id() * 2, scale.x, scale.y);
}

/* A k-step of what is shared. */
struct Operand {
    u32 high[4], low[4];
    float2 scale;

    __device__ __forceinline__ void load(u32 operand, u32 scales, int s)
    {
        const uint4 h = load_shared_16(operand + s * 1024 + lane_id() * 16),
                    l = load_shared_16(operand + s * 1024 + 512 + lane_id() * 16);
        scale = load_shared_float2(scales + s * 64 + (lane_id() >> 2) * 8);
        high[0] = h.x, high[1] = h.y, high[2] = h.z, high[3] = h.w;
        low[0] = l.x, low[1] = l.y, low[2] = l.z, low[3] = l.w;
    }
};

/* d += a times an entry of Step::M. */
__device__ __forceinline__ void mma_rows(float (&d)[2][4], const u32 (&a)[4], const uint4 &m)
{
    const u32 b[4] = { m.x, m.y, m.z, m.w };
    mma_block(d, a, b);
}

/*
 * S = M times what is shared: products of high and low halves but for low times low, 2^-21 of a k-step's largest entry. Two
 * k-steps at a time, since a product waits for the one that it is added to. next: the link of the next step's transition, which
 * takes the registers of this one's.
 */
__device__ __forceinline__ void multiply(Step &step, u32 operand, u32 scales, u8 *next, int w)
{
    clear(step.S);
    const uint4 *const from = transition_at(next, w, 0);
    step.fetch_factors(next, w);
#pragma unroll
    for (int s = 0; s < STATE_WARPS; s += 2) {
        Operand a[2];
        a[0].load(operand, scales, s);
        a[1].load(operand, scales, s + 1);
        float d[2][2][4] = {};
        mma_rows(d[0], a[0].high, step.M[2 * s]);
        mma_rows(d[1], a[1].high, step.M[2 * s + 2]);
        mma_rows(d[0], a[0].low, step.M[2 * s]);
        mma_rows(d[1], a[1].low, step.M[2 * s + 2]);
        mma_rows(d[0], a[0].high, step.M[2 * s + 1]);
        mma_rows(d[1], a[1].high, step.M[2 * s + 3]);
        step.fetch(from, s);
        step.fetch(from, s + 1);
        if (rarely(w < 0)) bar_sync(BAR_CARRY, 2 * GROUP); /* never: a branch keeps later products behind these loads */
#pragma unroll
        for (int i = 0; i < 16; ++i)
            step.S[i % 8] += d[i / 8][i / 4 % 2][i % 4] * (i & 2 ? a[i / 8].scale.y : a[i / 8].scale.x);
    }
}

/* ---- Carrying ----------------------------------------------------------------------------------------------------- */

/* Who waits at links is told every so many steps, since the fence takes half of one. */
constexpr int TOLD_AT_ONCE = 4;
/* So many steps before it is wanted what lies at a link is asked for in L2, which has no room for links and inputs. */
constexpr int FETCHED_AHEAD = 3;

/* A block has come to `links` links, the last one partition `index`'s. By a warp, behind a barrier of all who stored it. */
__device__ __forceinline__ void tell_block(const prefill_params &p, int index, int links)
{
    release();
    if (lane_id() < links) add_to(item_word(p, index - lane_id() * index_step(p), WORD_CARRIED), 1);
    __syncwarp();
}

/* A CTA's share of what lies at a link that has everything: the CTAs of all blocks are about as far. By a warp. */
__device__ __forceinline__ void fetch_share(const prefill_params &p, const u8 *link)
{
    const u32 share = (LINK_STATE_BYTES + LINK_TRANSITION_BYTES) / BLOCKS, block = load_shared_u32(at(LISTS_AT) + TICKET);
    if (lane_id() == 0) bulk_prefetch(link + block * share, share);
    __syncwarp();
}

/* A block from the link of partition `index`, a run's first of several, through the run. By both state warpgroups. */
__device__ __forceinline__ void carry_block(const prefill_params &p, int index, int n, int block, const Place &place)
{
    const Place columns = { block / 4, block % 4 };
    const int w = place.index();
    const i64 stride = link_bytes(p) * index_step(p);
    u8 *link = link_at(p, index, n);
    while (peek(item_word(p, index, WORD_LINK + columns.group)) != LINK_STATE) {
    }
    Ahead ahead = links_ahead(p, index, columns.group); /* one at least */
    acquire();
    Step step;
    load_link(step.S, link_state(link, columns), 2 * w);
    step.fetch_factors(link, w);
#pragma unroll
    for (int s = 0; s < STATE_WARPS; ++s)
        step.fetch(transition_at(link, w, 0), s);
    int untold = 0;
#pragma unroll 1
    for (u32 odd = 0; ahead.links > 0; odd ^= 1) {
        const u32 operand = at(O_AT) + odd * OPERAND, scales = at(SCALE_AT) + odd * OPERAND_SCALES;
        float addend[8];
        load_link(addend, link_state(link + stride, columns), 2 * w);
        share_operand(step, operand, scales, w);
        if (--ahead.links == 0 && !ahead.ends) ahead = links_ahead(p, index + index_step(p), columns.group);
        bar_sync(BAR_CARRY, 2 * GROUP); /* all of it is shared, and nobody reads the last one */
        if (untold == TOLD_AT_ONCE) {
            if (w == 0) tell_block(p, index, untold);
            untold = 0;
        }
        ++untold;
        link += stride;
        index += index_step(p);
        if (w == STATE_WARPS - 1 && ahead.links > FETCHED_AHEAD) fetch_share(p, link + FETCHED_AHEAD * stride);
        /* After the last step some transition again, for nobody: loads that may not happen need registers of their own. */
        multiply(step, operand, scales, ahead.links > 0 ? link : link - stride, w);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            step.S[i] += addend[i];
        save_link(step.S, link_state(link, columns), 2 * w);
    }
    bar_sync(BAR_CARRY, 2 * GROUP);
    if (w == 0) tell_block(p, index, untold);
}

/* A block that nobody has, or BLOCKS. By both state warpgroups. */
__device__ __forceinline__ int take_block(const prefill_params &p, int first, const Place &place)
{
    const u32 ticket = at(LISTS_AT) + TICKET;
    if (place.index() == 0) {
        if (lane_id() == 0) store_shared(ticket, take_ticket(item_word(p, first, WORD_BLOCKS)));
        __syncwarp();
    }
    bar_sync(BAR_CARRY, 2 * GROUP);
    return min((int)load_shared_u32(ticket), BLOCKS);
}

/*
 * The state before an item that was set aside: what its run starts from, or, once all blocks have come to its link, what
 * they brought. output_parity: of O_EMPTY, of the CTA's last chunk. What the entry says is read again, not kept past a block.
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
        __syncwarp();
        bar_sync(BAR_CARRY, 2 * GROUP); /* and TICKET has been read by all, of the last item */
        for (;;) {
            const int block = take_block(p, first, place);
            if (block == BLOCKS) break;
            asm volatile("" : "+r"(first)); /* no address is kept past a block: there are no registers for it */
            carry_block(p, first, (int)load_shared_u32(entry + ITEM_N), block, place);
        }
        const u32 *const carried = item_word(p, (int)load_shared_u32(entry + ITEM_INDEX), WORD_CARRIED);
        while (peek(carried) != (u32)BLOCKS) {
        }
    }
    acquire();
    const int index = (int)load_shared_u32(entry + ITEM_INDEX), n = (int)load_shared_u32(entry + ITEM_N);
    load_link(S, link_state(link_at(p, index, n), place));
}
