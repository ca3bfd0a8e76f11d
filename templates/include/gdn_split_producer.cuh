/*
 * gdn_split_producer.cuh - the CTAs that make images of chunks. Must not know: states.
 */
#pragma once

#include "gdn_chunk_tp.cuh"
#include "gdn_flags.cuh"
#include "gdn_gates.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_split_image.cuh"
#include "gdn_tile.cuh"

constexpr int GROUPS = 2; /* of a producer */
/* Named barriers: of a group, of its two inverse warps, and of its norms, where the inverse warps only arrive. */
enum { BAR_GROUP = 1, BAR_INVERSE = BAR_GROUP + GROUPS, BAR_NORMS = BAR_INVERSE + GROUPS };
enum { GROUP_THREADS = 32 * WARPS }; /* without its feeding warps */

constexpr int GROUP_GATES = 5 * GATE_BYTES;
constexpr int GROUP_T = 2 * QK_BYTES, GROUP_SCRATCH = GROUP_T + C * C * 2,
              GROUP_GATES_AT = GROUP_SCRATCH + 4 * 16 * DIAGONAL_STRIDE * 4,
              GROUP_BYTES = GROUP_GATES_AT + 2 * GROUP_GATES;
constexpr int GROUP_CONTROL = 32; /* two mbarriers, two image indices */
constexpr int PRODUCER_CONTROL = GROUPS * GROUP_BYTES, PRODUCER_BYTES = PRODUCER_CONTROL + GROUPS * GROUP_CONTROL;

/* A group's shared memory: K and Q of one chunk, T, the fp32 diagonal blocks, gates of two chunks. */
struct Group {
    u32 base, control;
    int index; /* in its CTA */

    __device__ __forceinline__ Group(u32 shared, int index)
        : base(shared + index * GROUP_BYTES), control(shared + PRODUCER_CONTROL + index * GROUP_CONTROL), index(index)
    {
    }
    __device__ __forceinline__ Tile<DK> k() const
    {
        return { base };
    }
    __device__ __forceinline__ Tile<DK> q() const
    {
        return { base + QK_BYTES };
    }
    __device__ __forceinline__ Tile<C> t() const
    {
        return { base + GROUP_T };
    }
    __device__ __forceinline__ Tile<C> scratch() const
    {
        return { base + GROUP_SCRATCH };
    }
    __device__ __forceinline__ GateArrays gates(int slot) const
    {
        const u32 at = base + GROUP_GATES_AT + slot * GROUP_GATES;
        return { at, at + GATE_BYTES, at + 2 * GATE_BYTES, at + 3 * GATE_BYTES, at + 4 * GATE_BYTES };
    }
    __device__ __forceinline__ u32 full() const
    {
        return control;
    }
    __device__ __forceinline__ u32 empty() const
    {
        return control + 8;
    }
    /* Which image the chunk's is, or -1 behind the last. */
    __device__ __forceinline__ u32 image(int slot) const
    {
        return control + 16 + 8 * slot;
    }
};

/* The feeding warps of a group: operands and gates of its items, one ahead of the other warps. feeder: 0 or 1. */
__device__ __forceinline__ void feeder_role(const prefill_params &p, const Group &group, int ticket, int feeder,
                                            int lane)
{
    Deal deal(p, (u32)(ticket * GROUPS + group.index), (u32)(p.num_producers * GROUPS));
    const int row0 = feeder * (C / 2);
    Item item;
    for (u32 n = 0;; ++n) {
        const bool more = deal.next(item, p, lane);
        i64 index = -1;
        if (more) {
            const Work &w = item.work;
            const i64 token = (i64)item.chunk * C;
            const int rows = min(w.len - item.chunk * C, C);
            const GateReader reader(p, w, w.head, (int)token + 2 * lane);
            const Gates gates = fetch_gates(reader, p, w.len - (int)token - 2 * lane);
            index = image_index(p, w.head, item.row);
            mbar_wait(group.empty(), (n & 1) ^ 1);
            load_rows<C / 2>(group.k(), SOURCE(k, w) + token * p.k_token_stride, p.k_token_stride, row0, rows, lane);
            load_rows<C / 2>(group.q(), SOURCE(q, w) + token * p.q_token_stride, p.q_token_stride, row0, rows, lane);
            if (feeder == 0) store_gates(group.gates(n & 1), reader, gates, lane);
        } else {
            mbar_wait(group.empty(), (n & 1) ^ 1);
        }
        if (feeder == 0 && lane == 0) {
            store_shared(group.image(n & 1), (u32)index);
            store_shared(group.image(n & 1) + 4, (u32)((u64)index >> 32));
        }
        mbar_arrive_cp_async(group.full());
        mbar_arrive(group.full());
        if (!more) return;
    }
}

/* T's blocks from its tile to the image, by the two inverse warps: even pieces of work to one, odd to the other. */
__device__ __forceinline__ void write_t(u8 *image, Tile<C> t, int warp, int lane)
{
    const int row = lane >> 1, half = lane & 1;
#pragma unroll
    for (int I = 0; I < TOKEN_STEPS; ++I)
#pragma unroll
        for (int J = 0; J <= I; ++J)
            if (((I + J) & 1) == warp) {
                const uint4 piece = load_shared_16(t.at(16 * I + row, 2 * J + half));
                *(uint4 *)(image + Image::block(I, J) + Tile<16>{ 0 }.at(row, half)) = piece;
            }
}

/* P's blocks from registers, as Tile<16> lays them. */
__device__ __forceinline__ void write_p(u8 *image, const Part &part, int high, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n) {
        u8 *block = image + TRIANGLE_BYTES + Image::block(block_row(n, high), block_column(n, high)) + 4 * t;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            *(u32 *)(block + Tile<16>{ 0 }.at(g, h)) = pack_f16x2(part.x[n][h][0], part.x[n][h][1]);
            *(u32 *)(block + Tile<16>{ 0 }.at(g + 8, h)) = pack_f16x2(part.x[n][h][2], part.x[n][h][3]);
        }
    }
}

/* lowest: of lowest_update(). */
__device__ __forceinline__ void write_gates(u8 *image, const GateArrays &gates, u32 lowest, int lane)
{
    const u32 from[4] = { gates.decay_in, gates.decay_out, gates.beta, gates.decay_in_q() };
#pragma unroll
    for (int a = 0; a < (spec::QK_L2NORM ? 4 : 3); ++a)
        *(float2 *)(image + 2 * TRIANGLE_BYTES + a * GATE_BYTES + 8 * lane) = load_shared_float2(from[a] + 8 * lane);
    if (spec::QK_L2NORM && lane == 0)
        *(uint4 *)(image + 2 * TRIANGLE_BYTES + 4 * GATE_BYTES) =
            make_uint4(__float_as_uint(exp2_approx(load_shared_float(gates.log_decay + 4 * (C - 1)))), lowest, 0, 0);
}

/* One warp's share of an image. scores: it makes P, else T. */
__device__ __forceinline__ void make_image(u8 *image, const Group &group, const GateArrays &gates, bool scores,
                                           int high, int lane)
{
    const AuxBarriers barriers = { BAR_INVERSE + group.index, BAR_NORMS + group.index };
    const int warp = 3 - high;
    u32 lowest = 0;
    Part part;
    Squares squares;
    Norms norms;
    gram(part, squares, scores ? group.q() : group.k(), group.k(), scores, high, lane);
    mbar_arrive(group.empty());
    if constexpr (spec::QK_L2NORM) {
        if (!scores) take_squares(squares, part, high);
        norms = norms_of(squares, lane);
        share_norms(gates, norms, barriers, scores, high, lane);
    }
    const bool mild = load_shared_float(gates.log_decay + 4 * (C - 1)) >= LOG2_DECAY_MILD;
#pragma unroll
    for (int b = 0; b < PART_BLOCKS; ++b)
        apply_gates(part.x[b], gates, norms, scores, mild, high, block_row(b, high), block_column(b, high), lane);
    if (scores)
        write_p(image, part, high, lane);
    else
        invert_diagonals(part, group.t(), group.scratch(), high, lane);
    if constexpr (spec::QK_L2NORM) {
        if (NORMS_RAISE_LOW && scores) lowest = lowest_update(gates, lane);
        meet(BAR_GROUP + group.index, GROUP_THREADS); /* everybody has read the gates */
        fold_norms(gates, norms, scores, high, lane);
        meet(BAR_GROUP + group.index, GROUP_THREADS);
    }
    if (scores) {
        if (warp == 0) write_gates(image, gates, lowest, lane);
    } else {
        bar_sync(barriers.inverse, 64);
        merge(group.t(), barriers, high, lane);
        bar_sync(barriers.inverse, 64);
        write_t(image, group.t(), warp, lane);
    }
}

/* warp: 0, 1 make T; 2, 3 make P, and one of them announces the image: they are done earlier. */
__device__ __forceinline__ void producer_role(const prefill_params &p, const Group &group, int warp, int lane)
{
    for (u32 n = 0;; ++n) {
        mbar_wait(group.full(), n & 1);
        const u32 at = group.image(n & 1);
        const i64 index = (i64)((u64)load_shared_u32(at) | (u64)load_shared_u32(at + 4) << 32);
        if (index < 0) return;
        make_image(image_at(p, index), group, group.gates(n & 1), warp & 2, 3 - (warp & 1), lane);
        meet(BAR_GROUP + group.index, GROUP_THREADS);
        if (warp == 3 && lane == 0) signal(image_flag(p, index), 1);
    }
}

/* Every thread arrives by itself: measured as fast as one lane for its warp, and racecheck can follow it. */
__device__ __forceinline__ void init_producer(u32 shared)
{
    for (int g = 0; g < GROUPS; ++g) {
        const Group group(shared, g);
        mbar_init(group.full(), 2 * 64); /* each feeding thread's copies, and each by itself */
        mbar_init(group.empty(), 32 * WARPS);
        init_meeting(BAR_GROUP + g, GROUP_THREADS);
        init_meeting(BAR_NORMS + g, GROUP_THREADS);
    }
}

/* warp: the groups' own warps, then two feeding warps a group. */
__device__ __forceinline__ void producer(const prefill_params &p, u32 shared, int ticket, int warp, int lane)
{
    static_assert(3 * WARPS == GROUPS * (WARPS + 2), "a producer's warps");
    if (p.num_seqs == 0) return;
    if (warp < GROUPS * WARPS) {
        producer_role(p, Group(shared, warp / WARPS), warp % WARPS, lane);
    } else {
        const int feeder = warp - GROUPS * WARPS;
        feeder_role(p, Group(shared, feeder / 2), ticket, feeder % 2, lane);
    }
}
