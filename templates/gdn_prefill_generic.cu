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

#include "gdn_gates.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_range.cuh"
#include "gdn_sequence.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

namespace {

constexpr int C = spec::CHUNK, DK = spec::DK, DV = spec::DV, BV = spec::BLOCK_DV, STAGES = spec::STAGES;
constexpr int TP_STAGES = STAGES - 1;
constexpr int STATE_WARPS = BV / 16, AUX_WARPS = 4;
constexpr int LOAD_WARPS = 2; /* the score warps, which have less to do than the inverse warps */
constexpr int LOOKAHEAD = STAGES - 2;
constexpr int K_STEPS = DK / 16;          /* k16 steps over DK */
constexpr int KEY_BLOCKS = DK / 8;        /* n8 blocks over DK */
constexpr int TOKEN_BLOCKS = C / 8;       /* n8 blocks over a chunk */
constexpr int TOKEN_STEPS = C / 16;       /* k16 steps over a chunk */
constexpr float LOG2_DECAY_MILD = -64.0f; /* down to here a float's ulp, 2^-18, is nothing beside an fp16's */

constexpr int QK_BYTES = C * DK * 2, V_BYTES = C * BV * 2, GATE_BYTES = C * 4, TP_BYTES = C * C * 2;
constexpr int STAGE_BYTES = 2 * QK_BYTES + V_BYTES + 5 * GATE_BYTES;
constexpr int TP_OFFSET = STAGES * STAGE_BYTES;
constexpr int BAR_OFFSET = TP_OFFSET + TP_STAGES * 2 * TP_BYTES;

static_assert(C == 64 && DV % BV == 0 && BV % 64 == 0 && DK % 64 == 0, "what tiles and roles divide");
static_assert(STAGES >= 2, "a chunk loads while another is used");
static_assert(spec::THREADS == 32 * (STATE_WARPS + AUX_WARPS), "host and device agree on the roles");
static_assert(spec::SMEM_BYTES == BAR_OFFSET + 128, "host and device agree on shared memory");
static_assert((2 * STAGES + 2 * TP_STAGES + 1) * 8 <= 128, "barriers fit");

enum { BAR_INVERSE = 1, BAR_NORMS = 2 }; /* named barriers: the two inverse warps; all auxiliary warps */

/*
 * One stage of shared memory. Gates: c_i (log2) as a float and what the float leaves out, e_i, d_i, beta_i. Under strong decay
 * c_i reaches thousands, where half a float's ulp would be an error of up to 2^-11 in G_ij of neighbours.
 *
 * With in-kernel norms, decay_in holds r of k until T and P are made, then r e; decay_out then is r d. log_decay_rest, which
 * nobody needs by then, holds e times r of q.
 */
struct Stage {
    Tile<DK> k, q;
    Tile<BV> v;
    u32 log_decay, log_decay_rest, decay_in, decay_out, beta;

    __device__ __forceinline__ u32 decay_in_q() const
    {
        return spec::QK_L2NORM ? log_decay_rest : decay_in;
    }
};

struct Shared {
    u32 base;

    __device__ __forceinline__ Stage stage(int s) const
    {
        const u32 at = base + s * STAGE_BYTES, gates = at + 2 * QK_BYTES + V_BYTES;
        return { { at },
                 { at + QK_BYTES },
                 { at + 2 * QK_BYTES },
                 gates,
                 gates + GATE_BYTES,
                 gates + 2 * GATE_BYTES,
                 gates + 3 * GATE_BYTES,
                 gates + 4 * GATE_BYTES };
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
};

/* What this CTA works on. */
struct Work : Sequence {
    int seq, head, block;
    int chunks;
};

__device__ __forceinline__ Work find_work(const prefill_params &p)
{
    constexpr int BLOCKS = DV / BV;
    Work w;
    w.block = blockIdx.x % BLOCKS;
    w.head = (blockIdx.x / BLOCKS) % p.num_heads;
    w.seq = blockIdx.x / BLOCKS / p.num_heads;
    if (spec::ZERO_PADDING && p.num_seqs == 0) {
        w.inert = true; /* nothing but padding */
        return w;
    }
    (Sequence &)w = find_sequence(p, w.seq);
    w.chunks = w.len / C + (w.len % C != 0); /* not (len + C - 1) / C: len may be near 2^31 */
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
#pragma unroll
        for (int r = 0; r < C / LOAD_WARPS; r += ROWS_AT_ONCE) {
            cp_async_16(tile.at(first + r, lane % PIECES), source, first + r < rows ? 16u : 0u);
            source += ROWS_AT_ONCE * stride;
        }
    }
};

struct Gates {
    float g[2], beta[2]; /* raw, of tokens 2 * lane, 2 * lane + 1 */
};

/* The reader stands at the lane's first token of the chunk, and then at that of the next one. */
__device__ __forceinline__ Gates fetch_gates(GateReader &from, const prefill_params &p, const Work &w, int chunk,
                                             int lane)
{
    Gates r;
    const int left = w.len - chunk * C - 2 * lane;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        r.g[i] = from.raw_decay(p, i, i < left);
        r.beta[i] = from.raw_beta(p, i, i < left);
    }
    from.advance(p, C);
    return r;
}

/* Inclusive sum over the chunk, two tokens a lane, in double: 64 values a chunk cost little. Writes the five arrays. */
__device__ __forceinline__ void store_gates(const Stage &stage, const GateReader &reader, const Gates &gates, int lane)
{
    double l[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
        l[i] = reader.log2_decay(gates.g[i]);
    double sum = l[0] + l[1];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const double other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    const double total = __shfl_sync(~0u, sum, 31);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const double c = i == 0 ? sum - l[1] : sum;
        const float rounded = (float)c;
        const u32 at = 4 * (2 * lane + i);
        store_shared(stage.log_decay + at, rounded);
        store_shared(stage.log_decay_rest + at, (float)(c - rounded));
        if constexpr (!spec::QK_L2NORM) store_shared(stage.decay_in + at, exp2_approx(rounded));
        store_shared(stage.decay_out + at, exp2_approx((float)(total - c)));
        store_shared(stage.beta + at, reader.beta_of(gates.beta[i]));
    }
}

/* Where a lane's pieces of q, k, v come from in its first row of a chunk. */
struct Sources {
    const u16 *q, *k, *v;

    template <int COLUMNS>
    __device__ __forceinline__ static const u16 *piece(const void *tensor, i64 first, i64 stride, int load_warp,
                                                       int lane)
    {
        return (const u16 *)tensor + first + Share<COLUMNS>::row(load_warp, lane) * stride +
               lane % Share<COLUMNS>::PIECES * 8;
    }
    __device__ __forceinline__ Sources(const prefill_params &p, const Work &w, int load_warp, int lane)
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

/* The load warps' own state: where the next chunk comes from, and its gates, fetched a chunk early. */
struct Loader {
    Sources from;
    GateReader reader;
    Gates gates;
    int chunk; /* next to load */
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
        next.gates = fetch_gates(next.reader, p, w, next.chunk, lane);
    }
}

/* ---- Auxiliary warps: T and P -------------------------------------------------------------------------------------- */

/*
 * One warp's part of the lower triangle of A K^T: five of its ten 16 x 16 blocks, so that two warps share a triangle evenly.
 * The warp with high = 3 has rows 3 and 0 of blocks, the one with high = 2 rows 2 and 1. One code serves all four warps: what
 * they run must stay in the instruction cache beside the state warps' loop.
 */
enum { PART_BLOCKS = 5 };

struct Part {
    float x[PART_BLOCKS][2][4];
};

__device__ __forceinline__ int block_row(int n, int high)
{
    return n < 3 || (n == 4 && high == 3) ? high : 3 - high;
}

__device__ __forceinline__ int block_column(int n, int high)
{
    return n < 3 ? n : n == 3 ? 0 : high == 3 ? 3 : 1;
}

/*
 * A A^T of a warp's two row blocks, for the diagonal alone: in m16n8k16 the operand A of 16 rows is, register by register, the
 * operand B of its two halves, so that sums of squares cost two products a step and no load.
 */
struct Squares {
    float x[2][2][4]; /* rows 16 * high, then 16 * (3 - high) */
};

__device__ __forceinline__ void add_squares(float (&x)[2][4], const u32 (&a)[4])
{
    const u32 b0[2] = { a[0], a[2] }, b1[2] = { a[1], a[3] };
    mma_io(x[0], a, b0);
    mma_io(x[1], a, b1);
}

/* 1 / norm of rows g and g + 8 of the two blocks. */
struct Norms {
    float r[2][2];
};

__device__ __forceinline__ Norms norms_of(const Squares &squares, int lane)
{
    const int g = lane >> 2, owner = (lane & ~3) | (g >> 1); /* column g, of a row's four lanes */
    Norms n;
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float(&x)[4] = squares.x[b][h];
            const float square = (g & 1) ? x[2 * h + 1] : x[2 * h];
            n.r[b][h] = rsqrtf(__shfl_sync(~0u, square, owner) + 1e-6f);
        }
    return n;
}

/* The row of r[b][h]. */
__device__ __forceinline__ int norm_row(int b, int h, int high, int lane)
{
    return 16 * (b == 0 ? high : 3 - high) + 8 * h + (lane >> 2);
}

/* The inverse warps' norms are those of k, which all four warps need. */
__device__ __forceinline__ void share_norms(const Stage &stage, const Norms &norms, bool scores, int high, int lane)
{
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (!scores && (lane & 3) == 0)
                store_shared(stage.decay_in + 4 * norm_row(b, h, high, lane), norms.r[b][h]);
    bar_sync(BAR_NORMS, 32 * AUX_WARPS);
}

/* What the state warps multiply by; all four warps have read what stood there. */
__device__ __forceinline__ void fold_norms(const Stage &stage, const Norms &norms, bool scores, int high, int lane)
{
    if (lane & 3) return;
#pragma unroll
    for (int b = 0; b < 2; ++b)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u32 at = 4 * norm_row(b, h, high, lane);
            const float in = norms.r[b][h] * exp2_approx(load_shared_float(stage.log_decay + at));
            store_shared((scores ? stage.decay_in_q() : stage.decay_in) + at, in);
            if (!scores) store_shared(stage.decay_out + at, norms.r[b][h] * load_shared_float(stage.decay_out + at));
        }
}

__device__ __forceinline__ void gram(Part &part, Squares &squares, Tile<DK> a, Tile<DK> k, int high, int lane)
{
    if constexpr (spec::QK_L2NORM) squares = {};
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 8; ++i)
            part.x[n][i / 4][i % 4] = 0.0f;
#pragma unroll 2
    for (int step = 0; step < K_STEPS; ++step) {
        u32 a_high[4], a_low[4], a_last[4], b[4][4];
        load_a(a_high, a, 16 * high, step, lane);
        load_a(a_low, a, 16 * (3 - high), step, lane);
        if constexpr (spec::QK_L2NORM) {
            add_squares(squares.x[0], a_high);
            add_squares(squares.x[1], a_low);
        }
#pragma unroll
        for (int j = 0; j < 3; ++j)
            load_b_rows(b[j], k, 16 * j, step, lane);
        load_b_rows(b[3], k, 16 * block_column(4, high), step, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a_last[i] = high == 3 ? a_high[i] : a_low[i];
#pragma unroll
        for (int n = 0; n < PART_BLOCKS; ++n) {
            const u32(&rows)[4] = n < 3 ? a_high : n == 3 ? a_low : a_last;
            const u32(&columns)[4] = n == 3 ? b[0] : b[n < 3 ? n : 3];
            const u32 b0[2] = { columns[0], columns[1] }, b1[2] = { columns[2], columns[3] };
            mma_io(part.x[n][0], rows, b0);
            mma_io(part.x[n][1], rows, b1);
        }
    }
}

/* c_i - c_j over block (I, J), from one of the two arrays that make up c: x is it, or x grows by it. */
template <bool ADD> __device__ __forceinline__ void differences(float (&x)[2][4], u32 array, int I, int J, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const float row[2] = { load_shared_float(array + 4 * (16 * I + g)),
                           load_shared_float(array + 4 * (16 * I + g + 8)) };
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const float2 column = load_shared_float2(array + 4 * (16 * J + 8 * n + 2 * t));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float d = row[i >> 1] - ((i & 1) ? column.y : column.x);
            x[n][i] = ADD ? x[n][i] + d : d;
        }
    }
}

/*
 * Multiplies block (I, J) by G_ij, the norms and, for the inverse, by beta_i. On the diagonal only i > j (for scores i >= j)
 * stays; the rest is selected away, not multiplied, since G overflows there.
 */
__device__ __forceinline__ void apply_gates(float (&x)[2][4], const Stage &stage, const Norms &norms, bool scores,
                                            bool mild, int high, int I, int J, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const int reach = 16 * (I - J) + g - 2 * t + (scores ? 1 : 0); /* row - column, less what i and n add below */
    float difference[2][4], beta[2] = { 1.0f, 1.0f }, column[2][2];
    differences<false>(difference, stage.log_decay, I, J, lane);
    if (!mild) differences<true>(difference, stage.log_decay_rest, I, J, lane);
#pragma unroll
    for (int h = 0; h < 2; ++h)
        if (!scores) beta[h] = load_shared_float(stage.beta + 4 * (16 * I + g + 8 * h));
    if constexpr (spec::QK_L2NORM) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float2 r = load_shared_float2(stage.decay_in + 4 * (16 * J + 8 * h + 2 * t));
            column[h][0] = r.x;
            column[h][1] = r.y;
            beta[h] *= I == high ? norms.r[0][h] : norms.r[1][h];
        }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool keep = reach > 8 * n + (i & 1) - 8 * (i >> 1);
            float factor = exp2_approx(difference[n][i]) * beta[i >> 1];
            if constexpr (spec::QK_L2NORM) factor *= column[n][i & 1];
            x[n][i] = keep ? x[n][i] * factor : 0.0f;
        }
}

/* Block (I, J) of a tile from accumulators, as fp16. */
__device__ __forceinline__ void store_block(Tile<C> tile, const float (&x)[2][4], int I, int J, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        store_shared(tile.at(16 * I + g, 2 * J + n) + 4 * t, pack_f16x2(x[n][0], x[n][1]));
        store_shared(tile.at(16 * I + g + 8, 2 * J + n) + 4 * t, pack_f16x2(x[n][2], x[n][3]));
    }
}

/* fp32 diagonal blocks for the elimination, transposed, in the place of P, which is written only afterwards. */
constexpr int DIAGONAL_STRIDE = 20; /* floats: conflict-free transposed stores, 16-byte rows */

__device__ __forceinline__ u32 diagonal_block(Tile<C> p, int I)
{
    return p.base + I * 16 * DIAGONAL_STRIDE * 4;
}

__device__ __forceinline__ void store_diagonal(u32 block, const float (&x)[2][4], int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = g + 8 * (i >> 1), column = 8 * n + 2 * t + (i & 1);
            store_shared(block + 4 * (column * DIAGONAL_STRIDE + row), x[n][i]);
        }
}

/*
 * X = (I + L)^-1 of two 16 x 16 blocks at once, half a warp each, in fp32: lane i of a half solves X[i][:] (I + L) = e_i from
 * the last column to the first, X[i][j] = [i = j] - sum_{k > j} X[i][k] L[k][j].
 */
__device__ __forceinline__ void invert_diagonal(Tile<C> t, u32 block, int I, int lane)
{
    const int i = lane & 15;
    float x[16];
#pragma unroll
    for (int j = 15; j >= 0; --j) {
        float column[16];
#pragma unroll
        for (int q = (j + 1) / 4; q < 4; ++q) {
            const float4 v = load_shared_float4(block + 4 * (j * DIAGONAL_STRIDE + 4 * q));
            column[4 * q] = v.x;
            column[4 * q + 1] = v.y;
            column[4 * q + 2] = v.z;
            column[4 * q + 3] = v.w;
        }
        float even = i == j ? 1.0f : 0.0f, odd = 0.0f;
#pragma unroll
        for (int k = 15; k > j; --k) {
            if (k & 1)
                odd = fmaf(-x[k], column[k], odd);
            else
                even = fmaf(-x[k], column[k], even);
        }
        x[j] = even + odd;
    }
    u32 h[8];
#pragma unroll
    for (int j = 0; j < 8; ++j)
        h[j] = pack_f16x2(x[2 * j], x[2 * j + 1]);
    store_shared(t.at(16 * I + i, 2 * I), h[0], h[1], h[2], h[3]);
    store_shared(t.at(16 * I + i, 2 * I + 1), h[4], h[5], h[6], h[7]);
}

/* d += A * B, 16 x 16 x 16, B row-major [k][n] in two n-blocks. */
__device__ __forceinline__ void mma_block(float (&d)[2][4], const u32 (&a)[4], const u32 (&b)[4])
{
    const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    mma_f16(d[0], a, b0);
    mma_f16(d[1], a, b1);
}

/* An accumulator block as operand B of the next product, rounded to fp16. */
__device__ __forceinline__ void to_b(u32 (&b)[4], const float (&x)[2][4])
{
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        movmatrix_trans(b[2 * n], pack_f16x2(x[n][0], x[n][1]));
        movmatrix_trans(b[2 * n + 1], pack_f16x2(x[n][2], x[n][3]));
    }
}

/* d += tile(I, J) * B */
__device__ __forceinline__ void mma_tile(float (&d)[2][4], Tile<C> tile, int I, int J, const u32 (&b)[4], int lane)
{
    u32 a[4];
    load_a(a, tile, 16 * I, J, lane);
    mma_block(d, a, b);
}

__device__ __forceinline__ void negate(float (&x)[2][4])
{
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            x[n][i] = -x[n][i];
}

/* X_RC = -X_RR (L_RC X_CC), R = C + 1: the tile holds L below and X on the diagonal, and gets X_RC. */
__device__ __forceinline__ void merge_16(Tile<C> tile, int R, int lane)
{
    u32 b[4];
    float product[2][4] = {}, x[2][4] = {};
    load_b_columns(b, tile, R - 1, 16 * (R - 1), lane);
    mma_tile(product, tile, R, R - 1, b, lane);
    to_b(b, product);
    mma_tile(x, tile, R, R, b, lane);
    negate(x);
    __syncwarp(); /* every lane has read L_RC */
    store_block(tile, x, R, R - 1, lane);
}

/* Column block J (0 or 1) of the lower left 32 x 32: X_21 = -X_22 (L_21 X_11) in 32 x 32 blocks. */
__device__ __forceinline__ void merge_32(float (&x)[2][2][4], Tile<C> tile, int J, int lane)
{
    float product[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k)
        if (k >= J) {
            u32 b[4];
            load_b_columns(b, tile, k, 16 * J, lane);
            mma_tile(product[0], tile, 2, k, b, lane);
            mma_tile(product[1], tile, 3, k, b, lane);
        }
    u32 b2[4], b3[4];
    to_b(b2, product[0]);
    to_b(b3, product[1]);
    mma_tile(x[0], tile, 2, 2, b2, lane);
    mma_tile(x[1], tile, 3, 2, b2, lane);
    mma_tile(x[1], tile, 3, 3, b3, lane);
    negate(x[0]);
    negate(x[1]);
}

/* Where T and P of a chunk go, once the state warps have read what was there. */
struct Output {
    Tile<C> t, p;
    u32 empty, parity;
    u32 inverted, inverted_parity; /* all four warps: the diagonal blocks have left P's place */
};

/* The first half of T from L, by the two inverse warps: L below the diagonal, X = (I + L)^-1 of the blocks on it. */
__device__ __forceinline__ void invert_diagonals(const Part &l, const Output &out, int high, int lane)
{
    mbar_wait(out.empty, out.parity);
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n) {
        const int I = block_row(n, high), J = block_column(n, high);
        if (I > J)
            store_block(out.t, l.x[n], I, J, lane);
        else
            store_diagonal(diagonal_block(out.p, I), l.x[n], lane);
    }
    __syncwarp();
    const int mine = lane < 16 ? 3 - high : high;
    invert_diagonal(out.t, diagonal_block(out.p, mine), mine, lane);
}

/* The second half: X below the diagonal, 16 -> 32 -> 64. */
__device__ __forceinline__ void merge(const Output &out, int high, int lane)
{
    merge_16(out.t, high == 3 ? 3 : 1, lane);
    bar_sync(BAR_INVERSE, 64);
    float x[2][2][4] = {};
    const int J = 3 - high;
    merge_32(x, out.t, J, lane);
    bar_sync(BAR_INVERSE, 64); /* both have read L_21 */
    store_block(out.t, x[0], 2, J, lane);
    store_block(out.t, x[1], 3, J, lane);
}

/* T (inverse warps) or P (score warps) of one chunk. */
__device__ __forceinline__ void aux_chunk(const Stage &stage, const Output &out, bool scores, int high, int lane)
{
    Part part;
    Squares squares;
    Norms norms;
    gram(part, squares, scores ? stage.q : stage.k, stage.k, high, lane);
    if constexpr (spec::QK_L2NORM) {
        norms = norms_of(squares, lane);
        share_norms(stage, norms, scores, high, lane);
    }
    const bool mild = load_shared_float(stage.log_decay + 4 * (C - 1)) >= LOG2_DECAY_MILD;
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n)
        apply_gates(part.x[n], stage, norms, scores, mild, high, block_row(n, high), block_column(n, high), lane);
    if (!scores) invert_diagonals(part, out, high, lane);
    mbar_arrive(out.inverted); /* an mbarrier rather than bar.sync: racecheck can follow it */
    mbar_wait(out.inverted, out.inverted_parity);
    if constexpr (spec::QK_L2NORM) fold_norms(stage, norms, scores, high, lane);
    if (!scores) {
        merge(out, high, lane);
        return;
    }
#pragma unroll
    for (int n = 0; n < PART_BLOCKS; ++n)
        store_block(out.p, part.x[n], block_row(n, high), block_column(n, high), lane);
}

/* A position in a ring of SIZE slots; parity flips at each wrap. */
template <int SIZE> struct Ring {
    int slot;
    u32 parity;

    __device__ __forceinline__ void advance()
    {
        if (++slot == SIZE) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* aux_warp: 0, 1 inverse; 2, 3 scores and loads. */
__device__ __forceinline__ void aux_role(const prefill_params &p, const Work &w, const Shared &sm, int aux_warp,
                                         int lane)
{
    const bool scores = aux_warp >= AUX_WARPS - LOAD_WARPS;
    const int high = 3 - (aux_warp & 1);
    Loader next = { Sources(p, w, aux_warp & 1, lane), GateReader(p, w, w.head, 2 * lane), {}, 0 };
    next.gates = fetch_gates(next.reader, p, w, 0, lane);
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
        const Output to = { sm.t(out.slot), sm.p(out.slot), sm.tp_empty(out.slot),
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
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            S[n][i] = from.load(8 * n + 2 * t + (i & 1), dv0 + g + 8 * (i >> 1));
}

__device__ __forceinline__ void save_state(const float (&S)[KEY_BLOCKS][4], const StateAt<void> &to, int dv0, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to.store(8 * n + 2 * t + (i & 1), dv0 + g + 8 * (i >> 1), S[n][i]);
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
__device__ __forceinline__ RowScale pack_io_rows(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4])
{
    if constexpr (!spec::IO_BF16) {
        return pack_f16(packed, x);
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
    mbar_arrive(sm.tp_empty(b));
    if (v.used) scale_rows(out, v.lo, v.hi);
    multiply(out, scale);
    scale_columns(x, stage.decay_out, lane);
    const RowScale u = pack_io_rows(packed, x);
    multiply(S, chunk_decay(stage));
    if (u.used) scale_rows(S, inverse_scale(u.lo), inverse_scale(u.hi));
    mma_update(S, packed, stage.k, lane);
    if (u.used) scale_rows(S, u.lo, u.hi);
    store_output(out, stage.v, column0, o, o_stride, rows, lane);
}

__device__ __forceinline__ void state_role(const prefill_params &p, const Work &w, const Shared &sm, int warp, int lane)
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
    const Work w = find_work(p);
    if constexpr (spec::ZERO_PADDING) zero_padding<BV>(p, w.seq, w.head, w.block * BV, threadIdx.x, spec::THREADS);
    if (w.inert) return;
    if (threadIdx.x == 0) init_barriers(sm);
    __syncthreads();
    if (warp < STATE_WARPS)
        state_role(p, w, sm, warp, lane);
    else
        aux_role(p, w, sm, warp - STATE_WARPS, lane);
}
