/*
 * gdn_hopper_gates.cuh - the gate warps: a table for each chunk, and the inverses of the 16 x 16 blocks on the diagonal of
 * I + L.
 */
#pragma once

#include "gdn_gates.cuh"
#include "gdn_hopper_entry.cuh"
#include "gdn_hopper_items.cuh"
#include "gdn_hopper_shared.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/*
 * A sum of log2 decays as a float and what it leaves out (Knuth's two-sum): under strong decay it reaches thousands, where half
 * a float's ulp would be an error of up to 2^-11 in the decay between neighbours. Not double: DADD waits for the tensor cores.
 */
struct Sum {
    float high, low;
};

__device__ __forceinline__ Sum add(Sum a, Sum b)
{
    const float s = a.high + b.high, t = s - a.high;
    return { s, (a.high - (s - t)) + (b.high - t) + (a.low + b.low) };
}

/* A difference as one float: exact but for its own rounding where the sums are near each other. */
__device__ __forceinline__ float operator-(Sum a, Sum b)
{
    return (a.high - b.high) + (a.low - b.low);
}

__device__ __forceinline__ Sum shuffle(Sum x, int from)
{
    return { __shfl_sync(~0u, x.high, from), __shfl_sync(~0u, x.low, from) };
}

/* Inclusive sums over a chunk of two tokens a lane. */
__device__ __forceinline__ void cumulate(Sum (&c)[2], const float (&decay)[2], int lane)
{
    Sum sum = add({ decay[0], 0.0f }, { decay[1], 0.0f });
#pragma unroll 1
    for (int d = 1; d < 32; d *= 2) {
        const Sum other = { __shfl_up_sync(~0u, sum.high, d), __shfl_up_sync(~0u, sum.low, d) };
        if (lane >= d) sum = add(sum, other);
    }
    c[0] = add(sum, { -decay[1], 0.0f });
    c[1] = sum;
}

/* Power of two s such that beta / s has its largest magnitude in [1, 2); 1 while that lies in [2^-6, 2^4]. */
__device__ __forceinline__ float beta_scale(float b0, float b1)
{
    b0 = fabsf(b0);
    b1 = fabsf(b1);
    const float low = 1.0f / 64, high = 16.0f;
    if (__any_sync(~0u, b0 >= low || b1 >= low) && !__any_sync(~0u, b0 > high || b1 > high)) return 1.0f;
    const float largest = warp_max(b0, b1);
    const int e = (int)(__float_as_uint(largest) >> 23);
    return largest == 0.0f || e >= 255 ? 1.0f : __uint_as_float((u32)max(e, 1) << 23);
}

/* fp16 bits of the largest |W| for which V' and d V' surely stay in range; growth above 1 comes from positive gates. */
__device__ __forceinline__ u32 w_limit(float d0, float d1)
{
    constexpr u32 F16_256 = 0x5c00;
    if (!__any_sync(~0u, d0 > 1.0f || d1 > 1.0f)) return F16_256;
    return pack_f16x2(__fdividef(256.0f, warp_max(fmaxf(d0, 1.0f), d1)), 0.0f);
}

/* The tables of one chunk from log2 decay and beta of its tokens, two a lane. */
__device__ __forceinline__ void store_gates(u32 table, const float (&decay)[2], const float (&b)[2], float scale_q,
                                            int lane)
{
    Sum c[2];
    cumulate(c, decay, lane);
    {
        const u32 to = table + pair_at(lane);
        const Sum total = shuffle(c[1], 31);
        const float e1 = exp2_approx(c[1].high), d0 = exp2_approx(total - c[0]), d1 = exp2_approx(total - c[1]);
        const float e0 = exp2_approx(c[0].high);
        const float scale = BETA_IN_T ? beta_scale(b[0], b[1]) : 1.0f,
                    inverse_scale = __uint_as_float((254u << 23) - __float_as_uint(scale));
        const u32 limit = w_limit(d0, d1);
        store_shared(to + DECAY_IN, BETA_IN_T ? e0 : e0 * b[0], BETA_IN_T ? e1 : e1 * b[1]);
        store_shared(to + DECAY_IN_Q, e0 * scale_q, e1 * scale_q);
        store_shared(to + DECAY_OUT, d0, d1);
        store_shared(to + BETA, b[0] * inverse_scale, b[1] * inverse_scale);
        if (lane == 31) {
            store_shared(table + DECAY_ALL, e1);
            store_shared(table + W_LIMIT, scale == 1.0f ? limit : 0u);
            store_shared(table + BETA_SCALE, scale);
        }
    }
    {
        const Sum anchor = shuffle(c[0], lane & 24);
        const float r0 = c[0] - anchor, r1 = c[1] - anchor;
        store_shared(table + BAND_LOG + 8 * lane, r0, r1);
    }
#pragma unroll 1
    for (int band = 1; band < 4; ++band) {
        const Sum anchor = shuffle(c[0], 8 * band);
        if (lane < 8 * band)
            store_shared(table + COLUMN_DECAY + 16 * band * (band - 1) + 4 * lane,
                         pack_f16x2(exp2_approx(anchor - c[0]), exp2_approx(anchor - c[1])));
    }
}

/* What a chunk's gates are made of, as bits, two tokens a lane. */
struct RawGates {
    RawGate decay[2], beta[2];
};

/* The chunks of this CTA's items, one after the other. */
struct Cursor {
    Item item;
    int number, step; /* of the item, of the chunk in it */
    bool known, more; /* the item is known, and there is one */
    u32 reader;       /* in shared memory, where registers are wanted for more: addresses of the sequence's first gates */
    Checkpoints checkpoint;

    __device__ __forceinline__ explicit Cursor(int gate_warp) : number(0), known(false), reader(at(READER_AT) + 16 * gate_warp)
    {
    }
    /* Whether the chunk that it stands at is known; if not, waits, or returns. */
    __device__ __forceinline__ bool look(const prefill_params &p, bool wait)
    {
        /* One answer for the warp, which syncs in enter(): what one lane has seen others need not have. */
        if (!known && (wait || __any_sync(~0u, mbar_peek(bar(ITEM_FULL + number % ITEM_SLOTS), number / ITEM_SLOTS & 1))))
            enter(p);
        return known;
    }
    __device__ __forceinline__ void enter(const prefill_params &p)
    {
        known = true;
        item = published(p, number);
        step = item.begin;
        more = item.n >= 0;
        if (!more) return;
        const uint4 first = GateReader(p, item, item.head(), 0).saved();
        __syncwarp(); /* all lanes have fetched what the last item's was for */
        if (lane_id() == 0) store_shared(reader, first.x, first.y, first.z, first.w);
        __syncwarp();
        if constexpr (spec::CHECKPOINTS) {
            checkpoint = Checkpoints(p, item, item.n);
            while (checkpoint.chunk >= 0 && checkpoint.chunk <= item.main) /* another item's */
                checkpoint.advance(p, item, item.n);
        }
    }
    /* From a known chunk. */
    __device__ __forceinline__ void advance(const prefill_params &p)
    {
        if (!more) return;
        ++step;
        if constexpr (spec::CHECKPOINTS)
            while (checkpoint.chunk == step)
                checkpoint.advance(p, item, item.n);
        if (step < item.end) return;
        ++number;
        known = false;
    }
    __device__ __forceinline__ RawGates fetch(const prefill_params &p) const
    {
        const int token = step * C + 2 * lane_id();
        const GateReader from(load_shared_16(reader), p, token);
        RawGates raw;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            raw.decay[i] = from.raw_decay(p, i, token + i < item.len);
            raw.beta[i] = from.raw_beta(p, i, token + i < item.len);
        }
        return raw;
    }
};

/* This lane's row of D^T in the L tile; its second half is ^ 16. The lane is read again, not kept. */
__device__ __forceinline__ u32 inverse_row(u32 l_tile, int gate_warp)
{
    const int lane = lane_id(), column = lane % 16, band = 2 * gate_warp + lane / 16;
    return l_tile + 2048 * band + column * 128 + (u32)((2 * band) ^ (column & 7)) * 16;
}

/*
 * Eight rows of D, of the 4 * QUADS that are left: x[0] is the row that is next, and a step moves those below it up. columns:
 * L's, from the diagonal on; what comes after the last row is never looked at.
 */
template <int QUADS> __device__ __forceinline__ void next_rows(float (&x)[16], u32 columns, u32 to)
{
#pragma unroll 1
    for (int row = 0; row < 8; row += 2) {
        float pair[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            pair[i] = x[0];
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                const float4 l = load_shared_float4(columns + ((row + i) * DIAGONAL_STRIDE + 4 * q) * 4);
                if (q > 0) x[4 * q - 1] = x[4 * q] - l.x * pair[i];
                x[4 * q] = x[4 * q + 1] - l.y * pair[i];
                x[4 * q + 1] = x[4 * q + 2] - l.z * pair[i];
                x[4 * q + 2] = x[4 * q + 3] - l.w * pair[i];
            }
        }
        store_shared(to + 2 * row, pack_f16x2(pair[0], pair[1]));
    }
}

/*
 * D = (I + L)^-1 of a 16 x 16 diagonal block by substitution in fp32, one column a lane, a block each half of a warp; D^T goes
 * to the block's place in the L tile. The block's strictly lower part is read, column by column.
 *
 * What a chunk runs has to stay in the instruction cache. fp16's state warpgroups, or code that carries states, leave too
 * little for all steps one after the other: there it is two loops, half as many products more and a third of the code. L's
 * columns then begin at the diagonal: see next_rows().
 */
__device__ __forceinline__ void invert_diagonal(u32 l_tile, u32 diagonals, int gate_warp)
{
    float x[16];
    const int first = lane_id();
    const u32 diagonal = diagonals + (2 * gate_warp + first / 16) * DIAGONAL;
    float column = (float)(first % 16); /* of floats a comparison gives 1 or 0 in one instruction */
    asm volatile("" : "+f"(column));    /* that it stays one */
#pragma unroll
    for (int i = 0; i < 16; ++i)
        x[i] = column == (float)i ? 1.0f : 0.0f;
    if constexpr (INVERT_BY_LOOP) {
        const u32 to = inverse_row(l_tile, gate_warp);
        next_rows<4>(x, diagonal, to);
        next_rows<2>(x, diagonal + 8 * DIAGONAL_STRIDE * 4, to ^ 16);
    } else {
#pragma unroll
        for (int k = 0; k < 15; ++k)
#pragma unroll
            for (int q = (k + 1) / 4; q < 4; ++q) {
                const float4 l = load_shared_float4(diagonal + (k * DIAGONAL_STRIDE + 4 * q) * 4);
                if (4 * q + 0 > k) x[4 * q + 0] -= l.x * x[k];
                if (4 * q + 1 > k) x[4 * q + 1] -= l.y * x[k];
                if (4 * q + 2 > k) x[4 * q + 2] -= l.z * x[k];
                if (4 * q + 3 > k) x[4 * q + 3] -= l.w * x[k];
            }
        const u32 to = inverse_row(l_tile, gate_warp);
        store_shared(to, pack_f16x2(x[0], x[1]), pack_f16x2(x[2], x[3]), pack_f16x2(x[4], x[5]), pack_f16x2(x[6], x[7]));
        store_shared(to ^ 16, pack_f16x2(x[8], x[9]), pack_f16x2(x[10], x[11]), pack_f16x2(x[12], x[13]),
                     pack_f16x2(x[14], x[15]));
    }
}

/* Which chunk a table is of. */
__device__ __forceinline__ void store_chunk_facts(const prefill_params &p, u32 table, const Cursor &cursor)
{
    u32 flags = (cursor.more ? 0 : CHUNK_END) | (u32)cursor.number << ITEM_SHIFT;
    if (cursor.more && cursor.step == cursor.item.end - 1) flags |= CHUNK_LAST;
    if (cursor.more && cursor.step == cursor.item.main - 1) flags |= CHUNK_REPLAYED;
    if (cursor.more && cursor.item.start == START_IDENTITY) flags |= CHUNK_TRANSITION;
    if (cursor.more && cursor.step < cursor.item.main) flags |= CHUNK_STATE;
    if constexpr (spec::CARRIES) {
        const u32 keeper = p.partition && cursor.more ? load_shared_u32(keeper_of(cursor.number)) : 0;
        const int chunk = cursor.step - cursor.item.begin;
        if (keeper != 0 && chunk < spec::KEPT_CHUNKS) {
            flags |= keeper & (CHUNK_KEEPS_T | CHUNK_HAS_T);
            store_shared(table + KEPT_T, (keeper >> ITEM_SHIFT) + chunk);
        }
    }
    if constexpr (spec::CHECKPOINTS)
        if (cursor.more && cursor.checkpoint.chunk == cursor.step + 1) {
            flags |= CHUNK_CHECKPOINT;
            store_shared(table + CHECKPOINT, (u32)cursor.checkpoint.row);
        }
    store_shared(table + FLAGS, flags);
}

/* The table of chunk number n, which the cursor stands at, or of the end. */
__device__ __forceinline__ void make_table(const prefill_params &p, const Cursor &cursor, const RawGates &raw, int n)
{
    const int slot = n % GATE_STAGES, lane = lane_id(); /* read again, not kept */
    const u32 table = at(GATE_AT) + slot * GATE;
    mbar_wait(bar(GATE_EMPTY + slot), (n / GATE_STAGES & 1) ^ 1);
    if (cursor.more) {
        const u32 part = entry_of(cursor.number) + ITEM_PART; /* read again, not kept */
        const GateReader rates(p, cursor.item, spec::GATE_LOGITS ? (int)load_shared_u32(part) / PARTS : 0, 0);
        const float decay[2] = { rates.log2_decay(raw.decay[0]), rates.log2_decay(raw.decay[1]) };
        const float beta[2] = { GateReader::beta_of(raw.beta[0]), GateReader::beta_of(raw.beta[1]) };
        store_gates(table, decay, beta, p.p_scale, lane);
    }
    if (lane == 0) store_chunk_facts(p, table, cursor);
    mbar_arrive(bar(CHUNK_FULL + slot));
}

/*
 * Tables of chunks in turn, two chunks ahead of the diagonal blocks, of which either warp inverts two of each chunk. A table's
 * slot is free no later than the K tile that the next blocks come from: neither job delays the other.
 */
__device__ __forceinline__ void gate_role(const prefill_params &p, int gate_warp)
{
    Cursor ahead(gate_warp);
    int made = 0, chunks = 0; /* tables, and how many of them are of chunks */
    for (int n = -2; n < chunks || made <= chunks; ++n) {
        RawGates raw; /* of the next table, on their way while the blocks are inverted */
        bool fetched = made <= chunks && ahead.known && ahead.more && (made & 1) == gate_warp;
        if (fetched) raw = ahead.fetch(p);
        if (n >= 0 && n < chunks) {
            const int slot = n & 1;
            mbar_wait(bar(DIAGONAL_FULL + slot), n >> 1 & 1);
            if (!spec::CARRIES || !(load_shared_u32(at(GATE_AT) + n % GATE_STAGES * GATE + FLAGS) & CHUNK_HAS_T))
                invert_diagonal(at(L_AT) + slot * SQUARE, at(DIAGONAL_AT) + 4 * slot * DIAGONAL, gate_warp);
            mbar_arrive_warp(bar(DIAGONAL_DONE + slot), lane_id());
        }
        for (;;) {
            while (ahead.known && made <= chunks && made <= n + 2) {
                if ((made & 1) == gate_warp) {
                    if (rarely(!fetched && ahead.more)) raw = ahead.fetch(p);
                    make_table(p, ahead, raw, made);
                }
                fetched = false;
                chunks += ahead.more;
                ++made;
                ahead.advance(p);
            }
            /* The next item may only be known when this one's blocks are all inverted; then several tables are due. */
            if (made > chunks || !ahead.look(p, made <= n + 1) || made > n + 2) break;
        }
    }
}
