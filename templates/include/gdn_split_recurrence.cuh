/*
 * gdn_split_recurrence.cuh - the roles of a CTA of the recurrence: state warps, load warps, output warps.
 */
#pragma once

#include "gdn_flags.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_range.cuh"
#include "gdn_sequence.cuh"
#include "gdn_split_exchange.cuh"
#include "gdn_split_image.cuh"
#include "gdn_split_products.cuh"
#include "gdn_split_shared.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"

constexpr bool IO_F16 = !spec::IO_BF16;

/* ---- State warps ------------------------------------------------------------------------------------------------- */

/*
 * This warp's share of a chunk. Operands that do not wait for other warps are fetched before the barrier, so that behind it
 * only the exchanged ones are read. What is published goes out of range rarely: that is looked at beside the products.
 */
struct StateWarp {
    const Shared &sm;
    int warp, lane;
    KeysOperand k_rows;
    Residual residual;

    __device__ __forceinline__ void prefetch(const Slot &slot)
    {
        k_rows.load(slot.k, warp, lane);
        residual.load(slot, warp, lane);
    }

    /* x = S^T K^T */
    __device__ __forceinline__ void keys(TokenPart &x, const KeyPart &S) const
    {
        const u32 out = IO_F16 ? out_of_range(sm.s(), lane) : 0;
        clear(x);
        mma_keys(x, sm.s().data, k_rows, lane);
        if (out == 0) return;
        Scales scales;
        publish_scaled<KEY_BLOCKS, true>(sm.s().data, out, sm.early_scratch(), scales, S, warp, lane);
        clear(x);
        mma_keys(x, sm.s().data, k_rows, lane);
        apply_scales(x, scales);
    }

    /* V'^T from W^T. */
    __device__ __forceinline__ void solve(TokenPart &v, const TokenPart &w, const TriangleOperand &t) const
    {
        const u32 out = out_of_range(sm.w(), lane);
        clear(v);
        mma_triangle(v, sm.w().data, t, warp, lane);
        if (out == 0) return;
        Scales scales;
        publish_scaled<TOKEN_BLOCKS, false>(sm.w().data, out, sm.early_scratch(), scales, w, warp, lane);
        clear(v);
        mma_triangle(v, sm.w().data, t, warp, lane);
        apply_scales(v, scales);
    }

    /* S^T += (d V')^T K */
    __device__ __forceinline__ void update(KeyPart &S, const TokenPart &u, const UpdateOperand &k_columns, u32 low) const
    {
        Scales scales;
        const u32 out = IO_F16 ? out_of_range(sm.u(), lane, low) : 0;
        if (__builtin_expect(out != 0, 0)) {
            publish_scaled<TOKEN_BLOCKS, false>(sm.u().data, out, sm.late_scratch(), scales, u, warp, lane);
            remove_scales(S, scales);
        }
        mma_update(S, sm.u().data, k_columns, lane);
        if (__builtin_expect(out != 0, 0)) apply_scales(S, scales);
    }

    /* From BAR_CHUNK to the next S, published. */
    __device__ __forceinline__ void chunk(KeyPart &S, const Slot &slot) const
    {
        TokenPart x, v;
        TriangleOperand t;
        UpdateOperand k_columns;
        keys(x, S);
        residual.apply(x);
        publish<TOKEN_BLOCKS, true>(sm.w(), x, warp, lane);
        t.load(slot.image.t(warp, 0), warp, lane);
        bar_sync(BAR_W, STATE_THREADS);
        solve(v, x, t);
        publish<TOKEN_BLOCKS, true>(sm.v(), v, warp, lane);
        copy(x, v);
        scale_columns(x, slot.image.decay_out(), warp, lane);
        publish<TOKEN_BLOCKS, IO_F16>(sm.u(), x, warp, lane);
        k_columns.load(slot.k, warp, lane);
        multiply(S, load_shared_float(slot.image.decay()));
        const u32 low = NORMS_RAISE_LOW ? load_shared_u32(slot.image.lowest()) : F16_LOW;
        meet(BAR_V, ALL_THREADS);
        const u32 out = out_of_range(sm.v(), lane);
        update(S, x, k_columns, low);
        if (__builtin_expect(out != 0, 0)) {
            Scales scales; /* the output warps' business */
            publish_scaled<TOKEN_BLOCKS, true>(sm.v().data, out, sm.late_scratch(), scales, v, warp, lane);
        }
        publish<KEY_BLOCKS, IO_F16>(sm.s(), S, warp, lane);
    }
};

__device__ __forceinline__ void state_role(const prefill_params &p, const Work &w, const Shared &sm, int column0,
                                           int warp, int lane)
{
    const int dk0 = KEYS * warp;
    StateWarp self = { sm, warp, lane };
    KeyPart S;
    clear(S);
    if (!w.from_zeros) load_state(S, initial_state(p, w.from, w.head), dk0, column0, lane);
    Checkpoints checkpoint(p, w, w.seq);
    publish<KEY_BLOCKS, IO_F16>(sm.s(), S, warp, lane);
    Ring<STAGES> use = { 0, 0 };
    for (int chunk = 0; chunk < w.chunks; ++chunk) {
        mbar_wait(sm.full(use.slot), use.parity);
        self.prefetch(sm.slot(use.slot));
        meet(BAR_CHUNK, ALL_THREADS);
        self.chunk(S, sm.slot(use.slot));
        if constexpr (spec::CHECKPOINTS)
            for (; checkpoint.chunk == chunk + 1; checkpoint.advance(p, w, w.seq))
                save_state(S, final_state(p, checkpoint.line, w.head), dk0, column0, lane);
        use.advance();
    }
    if (p.final_state) save_state(S, final_state(p, w.to, w.head), dk0, column0, lane);
}

/* ---- Load warps -------------------------------------------------------------------------------------------------- */

/*
 * cp.async.cg reads through L2, where the producers' stores are once their flag is seen; wait_images() stands before the copies
 * in program order, of the same lane or by its __syncwarp().
 */
__device__ __forceinline__ void load_image(u32 to, const u8 *from, int thread)
{
#pragma unroll
    for (int at = 0; at < IMAGE_BYTES; at += 32 * WARPS * 16)
        if (at + thread * 16 < IMAGE_BYTES) cp_async_16(to + at + thread * 16, from + at + thread * 16, 16);
}

__device__ __forceinline__ void load_role(const prefill_params &p, const Work &w, const Shared &sm, int column0,
                                          int warp, int lane)
{
    constexpr int ROWS = C / WARPS;
    const int row0 = warp * ROWS;
    const u16 *q = SOURCE(q, w), *k = SOURCE(k, w), *v = SOURCE(v, w) + column0;
    const i64 first = image_index(p, w.head, first_image_row(p, w.seq));
    Ring<STAGES> fill = { 0, 1 };
    Ring<Q_STAGES> q_fill = { 0, 1 };
    int ready = 0;
    for (int chunk = 0; chunk < w.chunks; ++chunk) {
        const int rows = min(w.len - chunk * C, C);
        const Slot slot = sm.slot(fill.slot);
        mbar_wait(sm.empty(fill.slot), fill.parity);
        load_rows<ROWS>(slot.k, k, p.k_token_stride, row0, rows, lane);
        load_rows<ROWS>(slot.v, v, p.v_token_stride, row0, rows, lane);
        if (chunk >= ready) ready = wait_images(p, first, chunk, w.chunks, lane);
        load_image(slot.image.base, image_at(p, first + chunk), 32 * warp + lane);
        mbar_arrive_cp_async(sm.full(fill.slot));
        mbar_wait(sm.q_empty(q_fill.slot), q_fill.parity);
        load_rows<ROWS>(sm.q(q_fill.slot), q, p.q_token_stride, row0, rows, lane);
        mbar_arrive_cp_async(sm.q_full(q_fill.slot));
        k += C * p.k_token_stride;
        q += C * p.q_token_stride;
        v += C * p.v_token_stride;
        fill.advance();
        q_fill.advance();
    }
}

/* ---- Output warps ------------------------------------------------------------------------------------------------ */

/*
 * O^T of this warp's tokens to memory, through its own rows of a V tile that nobody needs any more: transposed there, 16 bytes
 * a lane from there. `to`: the chunk's first row, this CTA's columns.
 */
__device__ __forceinline__ void store_output(const TokenPart &o, Tile<BV> tile, u16 *to, i64 stride, int rows, int warp,
                                             int lane)
{
    constexpr int PIECES = BV / 8, ROWS_AT_ONCE = 32 / PIECES;
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < TOKEN_BLOCKS; ++n)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                u32 pair;
                movmatrix_trans(pair, pack_io(o[m][n][2 * h], o[m][n][2 * h + 1]));
                store_shared(tile.at(TOKENS * warp + 8 * n + g, 2 * m + h) + 4 * t, pair);
            }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < TOKENS; r += ROWS_AT_ONCE) {
        const int row = TOKENS * warp + r + lane / PIECES, piece = lane % PIECES;
        const uint4 values = load_shared_16(tile.at(row, piece));
        if (row < rows) *(uint4 *)(to + row * stride + 8 * piece) = values;
    }
    __syncwarp();
}

/* out = e S^T Q^T */
__device__ __forceinline__ void output_from_state(TokenPart &out, const Shared &sm, const Slot &slot,
                                                  const KeysOperand &q, int warp, int lane)
{
    Scales scales;
    const u32 blocks = IO_F16 ? out_of_range(sm.s(), lane) : 0;
    if (blocks != 0) take_scales(scales, blocks, sm.early_scratch(), lane);
    clear(out);
    mma_keys(out, sm.s().data, q, lane);
    if (blocks != 0) apply_scales(out, scales);
    scale_columns(out, slot.image.decay_in_q(), warp, lane);
}

/* out = scale (out + V'^T P^T) */
__device__ __forceinline__ void output_from_chunk(TokenPart &out, const Shared &sm, const TriangleOperand &triangle,
                                                  float scale, int warp, int lane)
{
    Scales scales;
    const u32 blocks = out_of_range(sm.v(), lane);
    if (blocks != 0) {
        take_scales(scales, blocks, sm.late_scratch(), lane);
        remove_scales(out, scales);
    }
    mma_triangle(out, sm.v().data, triangle, warp, lane);
    if (blocks != 0) apply_scales(out, scales);
    multiply(out, scale);
}

__device__ __forceinline__ void output_role(const prefill_params &p, const Work &w, const Shared &sm, int column0,
                                            int warp, int lane)
{
    u16 *o = (u16 *)p.o + row_offset(w, w.head, p.o_batch_stride, p.o_token_stride, p.o_head_stride) + column0;
    Ring<STAGES> use = { 0, 0 };
    Ring<Q_STAGES> q_use = { 0, 0 };
    int last = 0; /* slot of the chunk before */
    TokenPart out;
    for (int chunk = 0; chunk < w.chunks; ++chunk) {
        const Slot slot = sm.slot(use.slot);
        meet(BAR_CHUNK, ALL_THREADS); /* the state warps have waited for K, V and the image */
        if (chunk > 0) {
            store_output(out, sm.slot(last).v, o, p.o_token_stride, C, warp, lane);
            o += C * p.o_token_stride;
            mbar_arrive(sm.empty(last));
        }
        mbar_wait(sm.q_full(q_use.slot), q_use.parity);
        KeysOperand q;
        TriangleOperand triangle;
        q.load(sm.q(q_use.slot), warp, lane);
        mbar_arrive(sm.q_empty(q_use.slot));
        output_from_state(out, sm, slot, q, warp, lane);
        triangle.load(slot.image.p(warp, 0), warp, lane);
        meet(BAR_V, ALL_THREADS);
        output_from_chunk(out, sm, triangle, p.scale, warp, lane);
        last = use.slot;
        use.advance();
        q_use.advance();
    }
    if (w.chunks > 0) store_output(out, sm.slot(last).v, o, p.o_token_stride, w.len - (w.chunks - 1) * C, warp, lane);
}

/* ---- A CTA -------------------------------------------------------------------------------------------------------- */

/* number: of sequence, head and columns, columns fastest. */
__device__ __forceinline__ void recurrence(const prefill_params &p, const Shared &sm, int number, int warp, int lane)
{
    constexpr int BLOCKS = DV / BV;
    const int column0 = number % BLOCKS * BV, head = number / BLOCKS % p.num_heads, seq = number / BLOCKS / p.num_heads;
    if constexpr (spec::ZERO_PADDING) zero_padding<BV>(p, seq, head, column0, threadIdx.x, spec::THREADS);
    if (seq >= p.num_seqs) return; /* there was nothing but padding */
    const Work w = make_work(p, seq, head);
    if (w.inert) return;
    if (warp < WARPS)
        state_role(p, w, sm, column0, warp, lane);
    else if (warp < 2 * WARPS)
        output_role(p, w, sm, column0, warp - WARPS, lane);
    else
        load_role(p, w, sm, column0, warp - 2 * WARPS, lane);
}
