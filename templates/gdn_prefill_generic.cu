/*
 * gdn_prefill_generic.cu - chunked gated delta rule, forward, exact; tensor cores by mma.sync, sm_80 and up.
 *
 * One CTA owns one sequence, one state head and BLOCK_DV value columns, and walks its chunks of C = 64 tokens in order. With
 * c_i the cumulated log2 decay inside the chunk, e_i = 2^c_i, d_i = 2^(c_63 - c_i), G_ij = 2^(c_i - c_j) for i >= j:
 *
 *     T  = (I + tril(beta_i G_ij (K K^T)_ij, -1))^-1            P  = tril(G_ij (Q K^T)_ij)
 *     W  = diag(beta) (V - e K S)                               V' = T W
 *     O  = scale (e Q S + P V')                                 S <- e_63 S + K^T (d V')
 *
 * (the UT transform of Yang et al., arXiv:2412.06464, with the inverse applied once, to what the old state does not explain).
 *
 * Roles, joined by mbarriers:
 *     2 inverse warps    T of chunk c + 1 while the state warps are at chunk c
 *     2 score warps      P of chunk c + 1; cp.async of q, k, v and the gates, STAGES - 2 chunks ahead of that
 *     state warps        16 value columns each: S^T (16 x DK, fp32) stays in registers for the whole sequence, and its packed
 *                        accumulators are the A operands of every product (S^T K^T, S^T Q^T, W^T T^T, V'^T P^T, V'^T K)
 *
 * Shared memory: STAGES x { K, Q, V tiles, gates }, (STAGES - 1) x { T, P }, barriers. O leaves through the V tile's place.
 *
 * Rounding: S, sums, gates fp32. Operand copies: S and d V' in the I/O type, everything between W and O in fp16 with
 * power-of-two row scales (gdn_range.cuh), T and P in plain fp16. Tokens past the end of a tail chunk are zeros with g = 0 and
 * beta = 0.
 *
 * In-kernel norms (spec::QK_L2NORM): q and k stay as they are given; with r = rsqrt(|x|^2 + 1e-6) per row, float32,
 * beta_i G_ij (K K^T)_ij gets r_i r_j of k, G_ij (Q K^T)_ij those of q and k, and of the state warps' factors e becomes r e (of
 * k in W, of q in O) and d becomes r d. So nothing normalised is rounded, and there is no pass over q and k.
 */
#include "gdn_spec.cuh"

#include "gdn_chunk_tp.cuh"
#include "gdn_gates.cuh"
#include "gdn_launch.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_range.cuh"
#include "gdn_sequence.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"
#include "gdn_work.cuh"

namespace {

constexpr int BV = spec::BLOCK_DV, STAGES = spec::STAGES;
constexpr int TP_STAGES = STAGES - 1;
constexpr int STATE_WARPS = BV / 16, AUX_WARPS = 4;
constexpr int LOAD_WARPS = 2; /* the score warps, which have less to do than the inverse warps */
constexpr int LOOKAHEAD = STAGES - 2;
constexpr int KEY_BLOCKS = DK / 8;  /* n8 blocks over DK */
constexpr int TOKEN_BLOCKS = C / 8; /* n8 blocks over a chunk */
constexpr int TOKEN_STEPS = C / 16; /* k16 steps over a chunk */

constexpr int QK_BYTES = C * DK * 2, V_BYTES = C * BV * 2, GATE_BYTES = C * 4, TP_BYTES = C * C * 2;
constexpr int STAGE_BYTES = 2 * QK_BYTES + V_BYTES + 5 * GATE_BYTES;
constexpr int TP_OFFSET = STAGES * STAGE_BYTES;
constexpr int BAR_OFFSET = TP_OFFSET + TP_STAGES * 2 * TP_BYTES, BAR_BYTES = 128;
constexpr int LOWEST_OFFSET = BAR_OFFSET + BAR_BYTES; /* with in-kernel norms of fp16: lowest_update() of a stage's T and P */

static_assert(C == 64 && DV % BV == 0 && BV % 64 == 0 && DK % 64 == 0, "what tiles and roles divide");
static_assert(STAGE_BYTES % 128 == 0, "tiles are aligned as Tile::below() wants");
static_assert(STAGES >= 2, "a chunk loads while another is used");
static_assert(spec::THREADS == 32 * (STATE_WARPS + AUX_WARPS), "host and device agree on the roles");
static_assert(spec::SMEM_BYTES == LOWEST_OFFSET + 16 && TP_STAGES <= 4, "host and device agree on shared memory");
static_assert((2 * STAGES + 2 * TP_STAGES + 1) * 8 <= BAR_BYTES, "barriers fit");

enum { BAR_INVERSE = 1, BAR_NORMS = 2 }; /* named barriers: the two inverse warps; norms of k are there */

/* One stage of shared memory. */
struct Stage : GateArrays {
    Tile<DK> k, q;
    Tile<BV> v;
};

struct Shared {
    u32 base;

    __device__ __forceinline__ Stage stage(int s) const
    {
        const u32 at = base + s * STAGE_BYTES, gates = at + 2 * QK_BYTES + V_BYTES;
        return { { gates, gates + GATE_BYTES, gates + 2 * GATE_BYTES, gates + 3 * GATE_BYTES, gates + 4 * GATE_BYTES },
                 { at },
                 { at + QK_BYTES },
                 { at + 2 * QK_BYTES } };
    }
    __device__ __forceinline__ Tile<C> t(int b) const
    {
        return { base + TP_OFFSET + b * 2 * TP_BYTES };
    }
    __device__ __forceinline__ Tile<C> p(int b) const
    {
        return { base + TP_OFFSET + b * 2 * TP_BYTES + TP_BYTES };
    }
    __device__ __forceinline__ u32 full(int s) const
    {
        return base + BAR_OFFSET + 8 * s;
    }
    __device__ __forceinline__ u32 empty(int s) const
    {
        return base + BAR_OFFSET + 8 * (STAGES + s);
    }
    __device__ __forceinline__ u32 tp_full(int b) const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + b);
    }
    __device__ __forceinline__ u32 tp_empty(int b) const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + TP_STAGES + b);
    }
    __device__ __forceinline__ u32 inverted() const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + 2 * TP_STAGES);
    }
    __device__ __forceinline__ u32 lowest(int b) const
    {
        return base + LOWEST_OFFSET + 4 * b;
    }
};

/* What this CTA works on: BLOCK_DV value columns of it. */
struct Strip : Work {
    int block;
};

__device__ __forceinline__ Strip find_strip(const prefill_params &p)
{
    constexpr int BLOCKS = DV / BV;
    Strip w;
    w.block = blockIdx.x % BLOCKS;
    w.head = (blockIdx.x / BLOCKS) % p.num_heads;
    w.seq = blockIdx.x / BLOCKS / p.num_heads;
    if (spec::ZERO_PADDING && p.num_seqs == 0)
        w.inert = true; /* nothing but padding */
    else
        (Work &)w = make_work(p, w.seq, w.head);
    return w;
}

/* ---- Auxiliary warps: loads ---------------------------------------------------------------------------------------- */

/*
 * How the lanes of a load warp share its rows of a tile: each has a 16-byte piece of one row in ROWS_AT_ONCE. A row past the
 * sequence's end becomes zeros and its address, which may lie anywhere, is not read.
 */
template <int COLUMNS> struct Share {
    static constexpr int PIECES = COLUMNS / 8, ROWS_AT_ONCE = 32 / PIECES;

    __device__ __forceinline__ static int row(int load_warp, int lane)
    {
        return load_warp * (C / LOAD_WARPS) + lane / PIECES;
    }
    /* `source` is the lane's piece of its first row; rows from `rows` on become zeros. */
    __device__ __forceinline__ static void load(Tile<COLUMNS> tile, const u16 *source, i64 stride, int rows,
                                                int load_warp, int lane)
    {
        const int first = row(load_warp, lane);
        const int left = rows - first;
        const u32 at = tile.at(first, lane % PIECES);
#pragma unroll
        for (int r = 0; r < C / LOAD_WARPS; r += ROWS_AT_ONCE) {
            cp_async_16(tile.below(at, r), source, r < left ? 16u : 0u);
            source += ROWS_AT_ONCE * stride;
        }
    }
};

/* The reader stands at the lane's first token of the chunk, and then at that of the next one. */
__device__ __forceinline__ Gates next_gates(GateReader &from, const prefill_params &p, const Work &w, int chunk,
                                            int lane)
{
    const Gates r = fetch_gates(from, p, w.len - chunk * C - 2 * lane);
    from.advance(p, C);
    return r;
}

/* Where a lane's pieces of q, k, v come from in its first row of a chunk. */
struct Sources {
    const u16 *q, *k, *v;

    Sources() = default;
    template <int COLUMNS>
    __device__ __forceinline__ static const u16 *piece(const void *tensor, i64 first, i64 stride, int load_warp,
                                                       int lane)
    {
        return (const u16 *)tensor + first + Share<COLUMNS>::row(load_warp, lane) * stride +
               lane % Share<COLUMNS>::PIECES * 8;
    }
    __device__ __forceinline__ Sources(const prefill_params &p, const Strip &w, int load_warp, int lane)
    {
        const int hq = head_of(w.head, p.q_div, p.q_mod), hk = head_of(w.head, p.k_div, p.k_mod);
        const int hv = head_of(w.head, p.v_div, p.v_mod);
        q = piece<DK>(p.q, row_offset(w, hq, p.q_batch_stride, p.q_token_stride, p.q_head_stride), p.q_token_stride,
                      load_warp, lane);
        k = piece<DK>(p.k, row_offset(w, hk, p.k_batch_stride, p.k_token_stride, p.k_head_stride), p.k_token_stride,
                      load_warp, lane);
        v = piece<BV>(p.v, row_offset(w, hv, p.v_batch_stride, p.v_token_stride, p.v_head_stride) + w.block * BV,
                      p.v_token_stride, load_warp, lane);
    }
    __device__ __forceinline__ void next_chunk(const prefill_params &p)
    {
        q += C * p.q_token_stride;
        k += C * p.k_token_stride;
        v += C * p.v_token_stride;
    }
};

/* The load warps' own state: where the next chunk comes from, and, of the first, its gates, fetched a chunk early. */
struct Loader {
    Sources from;
    GateReader reader;
    Gates gates;
    int chunk; /* next to load */

    Loader() = default;
    __device__ __forceinline__ Loader(const prefill_params &p, const Strip &w, int load_warp, int lane)
        : from(p, w, load_warp, lane), chunk(0)
    {
        if (load_warp != 0) return;
        reader = GateReader(p, w, w.head, 2 * lane);
        gates = next_gates(reader, p, w, 0, lane);
    }
};

/* One load warp's share of the next chunk: half of the rows of each tile, and the gates when it is the first. */
__device__ __forceinline__ void load_chunk(Loader &next, const prefill_params &p, const Work &w, const Stage &stage,
                                           u32 full, int load_warp, int lane)
{
    const int rows = min(w.len - next.chunk * C, C);
    Share<DK>::load(stage.k, next.from.k, p.k_token_stride, rows, load_warp, lane);
    Share<DK>::load(stage.q, next.from.q, p.q_token_stride, rows, load_warp, lane);
    Share<BV>::load(stage.v, next.from.v, p.v_token_stride, rows, load_warp, lane);
    mbar_arrive_cp_async(full);
    ++next.chunk;
    next.from.next_chunk(p);
    if (load_warp == 0) {
        store_gates(stage, next.reader, next.gates, lane);
        mbar_arrive(full);
        next.gates = next_gates(next.reader, p, w, next.chunk, lane);
    }
}

/* ---- Auxiliary warps: T and P -------------------------------------------------------------------------------------- */

/* Where T and P of a chunk go, once the state warps have read what was there. */
struct Output {
    Tile<C> t, p;
    u32 lowest; /* see lowest_update() */
    u32 empty, parity;
    u32 inverted, inverted_parity; /* all four warps: the diagonal blocks have left P's place */
};

/* T (inverse warps) or P (score warps) of one chunk. */
__device__ __forceinline__ void aux_chunk(const Stage &stage, const Output &out, bool scores, int high, int lane)
{
    constexpr AuxBarriers barriers = { BAR_INVERSE, BAR_NORMS };
    Part part;
    Squares squares;
    Norms norms;
    u32 lowest = 0;
    gram(part, squares, scores ? stage.q : stage.k, stage.k, scores, high, lane);
    if constexpr (spec::QK_L2NORM) {
        if (!scores) take_squares(squares, part, high);
        norms = norms_of(squares, lane);
        share_norms(stage, norms, barriers, scores, high, lane);
    }
    const bool mild = load_shared_float(stage.log_decay + 4 * (C - 1)) >= LOG2_DECAY_MILD;
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n)
        apply_gates(part.x[n], stage, norms, scores, mild, high, block_row(n, high), block_column(n, high), lane);
    if (!scores) {
        mbar_wait(out.empty, out.parity);
        invert_diagonals(part, out.t, out.p, high, lane);
    }
    if (NORMS_RAISE_LOW && scores) lowest = lowest_update(stage, lane);
    mbar_arrive(out.inverted); /* an mbarrier rather than bar.sync: racecheck can follow it */
    mbar_wait(out.inverted, out.inverted_parity);
    if constexpr (spec::QK_L2NORM) fold_norms(stage, norms, scores, high, lane);
    if (!scores) {
        merge(out.t, barriers, high, lane);
        return;
    }
    if (NORMS_RAISE_LOW && high == 3 && lane == 0) store_shared(out.lowest, lowest);
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n)
        store_block(out.p, part.x[n], block_row(n, high), block_column(n, high), lane);
}

/* aux_warp: 0, 1 inverse; 2, 3 scores and loads. */
__device__ __forceinline__ void aux_role(const prefill_params &p, const Strip &w, const Shared &sm, int aux_warp,
                                         int lane)
{
    const bool scores = aux_warp >= AUX_WARPS - LOAD_WARPS;
    const int high = 3 - (aux_warp & 1);
    Loader next;
    if (scores) next = Loader(p, w, aux_warp & 1, lane);
    Ring<STAGES> fill = { 0, 1 }, use = { 0, 0 };
    Ring<TP_STAGES> out = { 0, 1 };
    for (int chunk = -LOOKAHEAD; chunk < w.chunks; ++chunk) {
        if (scores && next.chunk < w.chunks) {
            mbar_wait(sm.empty(fill.slot), fill.parity);
            load_chunk(next, p, w, sm.stage(fill.slot), sm.full(fill.slot), aux_warp & 1, lane);
            fill.advance();
        }
        if (chunk < 0) continue;
        mbar_wait(sm.full(use.slot), use.parity);
        const Output to = { sm.t(out.slot), sm.p(out.slot), sm.lowest(out.slot), sm.tp_empty(out.slot),
                            out.parity,     sm.inverted(),  (u32)(chunk & 1) };
        aux_chunk(sm.stage(use.slot), to, scores, high, lane);
        mbar_arrive(sm.tp_full(out.slot));
        mbar_arrive(sm.empty(use.slot));
        use.advance();
        out.advance();
    }
}

/* ---- State warps --------------------------------------------------------------------------------------------------- */

/* The warp's part of a state: dv = dv0 + g (+ 8), dk = 8 n + 2 t (+ 1). */
__device__ __forceinline__ void load_state(float (&S)[KEY_BLOCKS][4], const StateAt<const void> &from, int dv0,
                                           int lane)
{
    const StateAt<const void> own = from.beginning_at(2 * (lane & 3), dv0 + (lane >> 2));
#pragma unroll
    for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            own.load_pair(S[n][i], S[n][i + 1], 8 * n, 4 * i);
}

__device__ __forceinline__ void save_state(const float (&S)[KEY_BLOCKS][4], const StateAt<void> &to, int dv0, int lane)
{
    const StateAt<void> own = to.beginning_at(2 * (lane & 3), dv0 + (lane >> 2));
#pragma unroll
    for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            own.store_pair(8 * n, 4 * i, S[n][i], S[n][i + 1]);
}

/* Operand A of k-step s from packed accumulator blocks 2 s and 2 s + 1. */
template <int BLOCKS> __device__ __forceinline__ void operand_a(u32 (&a)[4], const u32 (&packed)[BLOCKS][2], int s)
{
    a[0] = packed[2 * s][0];
    a[1] = packed[2 * s][1];
    a[2] = packed[2 * s + 1][0];
    a[3] = packed[2 * s + 1][1];
}

/* The I/O type's operand copy: fp16 needs the range check, bf16 has fp32's range. */
template <int BLOCKS>
__device__ __forceinline__ RowScale pack_io_rows(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4], u32 low = F16_LOW)
{
    if constexpr (!spec::IO_BF16) {
        return pack_f16(packed, x, low);
    } else {
#pragma unroll
        for (int n = 0; n < BLOCKS; ++n) {
            packed[n][0] = pack_bf16x2(x[n][0], x[n][1]);
            packed[n][1] = pack_bf16x2(x[n][2], x[n][3]);
        }
        return { 1.0f, 1.0f, false };
    }
}

/* d (16 x C) += S^T tile^T, both over DK. */
__device__ __forceinline__ void mma_keys(float (&d)[TOKEN_BLOCKS][4], const u32 (&S)[KEY_BLOCKS][2], Tile<DK> tile,
                                         int lane)
{
#pragma unroll
    for (int step = 0; step < K_STEPS; ++step) {
        u32 a[4];
        operand_a(a, S, step);
#pragma unroll
        for (int n = 0; n < TOKEN_BLOCKS / 2; ++n) {
            u32 b[4];
            load_b_rows(b, tile, 16 * n, step, lane);
            const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
            mma_io(d[2 * n], a, b0);
            mma_io(d[2 * n + 1], a, b1);
        }
    }
}

/* d (16 x C) += W^T tile^T, tile lower triangular: block column n needs k-steps up to n. */
__device__ __forceinline__ void mma_triangle(float (&d)[TOKEN_BLOCKS][4], const u32 (&W)[TOKEN_BLOCKS][2], Tile<C> tile,
                                             int lane)
{
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
        u32 a[4];
        operand_a(a, W, step);
#pragma unroll
        for (int n = step; n < TOKEN_BLOCKS / 2; ++n) {
            u32 b[4];
            load_b_rows(b, tile, 16 * n, step, lane);
            const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
            mma_f16(d[2 * n], a, b0);
            mma_f16(d[2 * n + 1], a, b1);
        }
    }
}

/* S^T (16 x DK) += V^T K over the chunk's tokens. */
__device__ __forceinline__ void mma_update(float (&S)[KEY_BLOCKS][4], const u32 (&V)[TOKEN_BLOCKS][2], Tile<DK> k,
                                           int lane)
{
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
        u32 a[4];
        operand_a(a, V, step);
#pragma unroll
        for (int n = 0; n < KEY_BLOCKS / 2; ++n) {
            u32 b[4];
            load_b_columns(b, k, step, 16 * n, lane);
            const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
            mma_io(S[2 * n], a, b0);
            mma_io(S[2 * n + 1], a, b1);
        }
    }
}

/* x = diag(beta) (v - e x) over columns (tokens), v from its tile. */
__device__ __forceinline__ void residual(float (&x)[TOKEN_BLOCKS][4], const Stage &stage, int dv0, int lane)
{
    const int t = lane & 3;
#pragma unroll
    for (int n = 0; n < TOKEN_BLOCKS; n += 2) {
        u32 v[4];
        load_transposed(v, stage.v, 8 * n, dv0, lane);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float2 e = load_shared_float2(stage.decay_in + 4 * (8 * (n + h) + 2 * t));
            const float2 beta = load_shared_float2(stage.beta + 4 * (8 * (n + h) + 2 * t));
            float(&y)[4] = x[n + h];
            y[0] = beta.x * (io_lo(v[2 * h]) - e.x * y[0]);
            y[1] = beta.y * (io_hi(v[2 * h]) - e.y * y[1]);
            y[2] = beta.x * (io_lo(v[2 * h + 1]) - e.x * y[2]);
            y[3] = beta.y * (io_hi(v[2 * h + 1]) - e.y * y[3]);
        }
    }
}

/* Multiplies columns (tokens) by one of the stage's gate arrays. */
__device__ __forceinline__ void scale_columns(float (&x)[TOKEN_BLOCKS][4], u32 gates, int lane)
{
    const int t = lane & 3;
#pragma unroll
    for (int n = 0; n < TOKEN_BLOCKS; ++n) {
        const float2 f = load_shared_float2(gates + 4 * (8 * n + 2 * t));
        x[n][0] *= f.x;
        x[n][1] *= f.y;
        x[n][2] *= f.x;
        x[n][3] *= f.y;
    }
}

template <int BLOCKS> __device__ __forceinline__ void multiply(float (&x)[BLOCKS][4], float factor)
{
    scale_rows(x, factor, factor);
}

template <int BLOCKS> __device__ __forceinline__ void clear(float (&x)[BLOCKS][4])
{
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            x[n][i] = 0.0f;
}

/*
 * O^T of this warp's 16 columns to memory, through its own columns of the V tile (nobody else reads those, and this warp is
 * done with them): transposed there, 16 bytes a lane from there.
 */
__device__ __forceinline__ void store_output(const float (&o)[TOKEN_BLOCKS][4], Tile<BV> tile, int column0, u16 *to,
                                             i64 stride, int rows, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < TOKEN_BLOCKS; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            u32 pair;
            movmatrix_trans(pair, pack_io(o[n][2 * h], o[n][2 * h + 1]));
            store_shared(tile.at(8 * n + g, column0 / 8 + h) + 4 * t, pair);
        }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < C; r += 16) {
        const int row = r + (lane >> 1), half = lane & 1;
        const uint4 piece = load_shared_16(tile.at(row, column0 / 8 + half));
        if (row < rows) *(uint4 *)(to + row * stride + 8 * half) = piece;
    }
}

__device__ __forceinline__ float chunk_decay(const Stage &stage)
{
    if constexpr (spec::QK_L2NORM) return exp2_approx(load_shared_float(stage.log_decay + 4 * (C - 1)));
    return load_shared_float(stage.decay_in + 4 * (C - 1));
}

/* One chunk: O, and S to the chunk's end. `o` points at the chunk's first row and this warp's columns. */
__device__ __forceinline__ void state_chunk(float (&S)[KEY_BLOCKS][4], const Stage &stage, const Shared &sm, int b,
                                            u32 tp_parity, int column0, u16 *o, i64 o_stride, int rows, float scale,
                                            int lane)
{
    u32 packed[TOKEN_BLOCKS][2];
    float x[TOKEN_BLOCKS][4], out[TOKEN_BLOCKS][4];
    clear(x);
    clear(out);
    {
        u32 state[KEY_BLOCKS][2];
        const RowScale s = pack_io_rows(state, S);
        mma_keys(x, state, stage.k, lane);
        mma_keys(out, state, stage.q, lane);
        if (s.used) {
            scale_rows(x, s.lo, s.hi);
            scale_rows(out, s.lo, s.hi);
        }
    }
    if constexpr (spec::QK_L2NORM) mbar_wait(sm.tp_full(b), tp_parity); /* the norms came with T and P */
    residual(x, stage, column0, lane);
    const RowScale w = pack_f16(packed, x);
    scale_columns(out, stage.decay_in_q(), lane);
    clear(x);
    if constexpr (!spec::QK_L2NORM) mbar_wait(sm.tp_full(b), tp_parity);
    mma_triangle(x, packed, sm.t(b), lane); /* V'^T */
    if (w.used) scale_rows(x, w.lo, w.hi);
    const RowScale v = pack_f16(packed, x);
    if (v.used) scale_rows(out, inverse_scale(v.lo), inverse_scale(v.hi));
    mma_triangle(out, packed, sm.p(b), lane);
    const u32 low = NORMS_RAISE_LOW ? load_shared_u32(sm.lowest(b)) : F16_LOW;
    mbar_arrive(sm.tp_empty(b));
    if (v.used) scale_rows(out, v.lo, v.hi);
    multiply(out, scale);
    scale_columns(x, stage.decay_out, lane);
    const RowScale u = pack_io_rows(packed, x, low);
    multiply(S, chunk_decay(stage));
    if (u.used) scale_rows(S, inverse_scale(u.lo), inverse_scale(u.hi));
    mma_update(S, packed, stage.k, lane);
    if (u.used) scale_rows(S, u.lo, u.hi);
    if constexpr (spec::QK_L2NORM) __syncwarp(); /* else tp_full stands between reading v and writing o in its place */
    store_output(out, stage.v, column0, o, o_stride, rows, lane);
}

__device__ __forceinline__ void state_role(const prefill_params &p, const Strip &w, const Shared &sm, int warp, int lane)
{
    const int column0 = 16 * warp, dv0 = w.block * BV + column0;
    u16 *o = (u16 *)p.o + row_offset(w, w.head, p.o_batch_stride, p.o_token_stride, p.o_head_stride) + dv0;
    float S[KEY_BLOCKS][4];
    clear(S);
    if (!w.from_zeros) load_state(S, initial_state(p, w.from, w.head), dv0, lane);
    Checkpoints checkpoint(p, w, w.seq);
    Ring<STAGES> use = { 0, 0 };
    Ring<TP_STAGES> in = { 0, 0 };
    for (int chunk = 0; chunk < w.chunks; ++chunk) {
        mbar_wait(sm.full(use.slot), use.parity);
        state_chunk(S, sm.stage(use.slot), sm, in.slot, in.parity, column0, o, p.o_token_stride,
                    min(w.len - chunk * C, C), p.scale, lane);
        mbar_arrive(sm.empty(use.slot));
        if constexpr (spec::CHECKPOINTS)
            for (; checkpoint.chunk == chunk + 1; checkpoint.advance(p, w, w.seq))
                save_state(S, final_state(p, checkpoint.line, w.head), dv0, lane);
        o += C * p.o_token_stride;
        use.advance();
        in.advance();
    }
    if (p.final_state) save_state(S, final_state(p, w.to, w.head), dv0, lane);
}

/* Every thread arrives by itself: measured as fast as one lane for its warp, and racecheck can follow it. */
__device__ __forceinline__ void init_barriers(const Shared &sm)
{
    for (int s = 0; s < STAGES; ++s) {
        mbar_init(sm.full(s), 32 * LOAD_WARPS + 32); /* each load thread's copies, and one warp's gates */
        mbar_init(sm.empty(s), 32 * (STATE_WARPS + AUX_WARPS));
    }
    mbar_init(sm.inverted(), 32 * AUX_WARPS);
    init_meeting(BAR_NORMS, 32 * AUX_WARPS);
    for (int b = 0; b < TP_STAGES; ++b) {
        mbar_init(sm.tp_full(b), 32 * AUX_WARPS);
        mbar_init(sm.tp_empty(b), 32 * STATE_WARPS);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_generic(const __grid_constant__ prefill_params p)
{
    extern __shared__ __align__(128) u8 shared[];
    const Shared sm = { smem_address(shared) };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) init_barriers(sm);
    wait_for_previous_kernel();
    const Strip w = find_strip(p);
    if constexpr (spec::ZERO_PADDING) zero_padding<BV>(p, w.seq, w.head, w.block * BV, threadIdx.x, spec::THREADS);
    if (w.inert) return;
    __syncthreads();
    if (warp < STATE_WARPS)
        state_role(p, w, sm, warp, lane);
    else
        aux_role(p, w, sm, warp - STATE_WARPS, lane);
}
