/*
 * gdn_prefill_split.cu - chunked gated delta rule, forward, exact, for few heads: what does not depend on the state is made by
 * CTAs of its own. The formulas are those of gdn_prefill_generic.cu, and so are the bits of the results.
 *
 * One launch, two kinds of CTAs, by ticket:
 *
 *     producers      the first num_producers tickets. Two groups of six warps each (two feeding, two for T, two for P); a group
 *                    makes the images of chunks: T, P, the gates e, d, beta of one chunk and head, written to the workspace,
 *                    then announced by a flag. Items are dealt round robin, early chunks of every sequence first. A producer
 *                    waits for no other CTA.
 *     recurrence     one (sequence, head, BLOCK_DV value columns) each
 *
 * A CTA waits for flags of producers only, and those hold lower tickets: they run or have run, whatever the number of CTAs that
 * the device holds at a time. The grid is a bound; the sequences are read on the device.
 *
 * Recurrence, bound by the time from one state to the next:
 *     4 state warps    all BLOCK_DV value columns each, a quarter of the chunk's tokens (columns of X = S^T K^T and V') and a
 *                      quarter of the keys (of S, in fp32 registers)
 *     4 output warps   O, a quarter of the tokens each
 *     4 load warps     cp.async of k, v and the image, STAGES - 1 chunks ahead, and of q
 * Three times a chunk A operands are exchanged through shared memory, packed, in fragment order: S's 16-bit copy, W, and V'
 * with d V'. Row scales (gdn_range.cuh) are agreed upon from all state warps' maxima.
 *
 * Image: T and P as ten 16 x 16 blocks each, (I, J) at I (I + 1) / 2 + J, fp16 Tile<16>; e, d, beta fp32. Copied as it is.
 */
#include "gdn_spec.cuh"

#include "gdn_chunk_tp.cuh"
#include "gdn_flags.cuh"
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

constexpr int BV = spec::BLOCK_DV, STAGES = spec::STAGES, Q_STAGES = STAGES - 1;
constexpr int WARPS = 4;          /* state warps; load warps; warps of a producer's group */
constexpr int GROUPS = 2;         /* of a producer */
constexpr int TOKENS = C / WARPS; /* of a state warp */
constexpr int KEYS = DK / WARPS;
constexpr int ROW_BLOCKS = BV / 16; /* m16 blocks of value columns */
constexpr int TOKEN_BLOCKS = TOKENS / 8, KEY_BLOCKS = KEYS / 8;
constexpr int TOKEN_STEPS = C / 16;

constexpr int QK_BYTES = C * DK * 2, V_BYTES = C * BV * 2, GATE_BYTES = C * 4;
constexpr int BLOCK_BYTES = 16 * 16 * 2, TRIANGLE_BYTES = TOKEN_STEPS * (TOKEN_STEPS + 1) / 2 * BLOCK_BYTES;
constexpr int IMAGE_BYTES = 2 * TRIANGLE_BYTES + 3 * GATE_BYTES + (spec::QK_L2NORM ? GATE_BYTES + 16 : 0);

static_assert(C == 64 && DV % BV == 0 && BV % 16 == 0 && DK % 64 == 0, "what tiles and roles divide");
static_assert(STAGES >= 2, "a chunk loads while another is used");
static_assert((2 * STAGES + 2 * (STAGES - 1)) * 8 <= 128, "barriers fit");
static_assert(spec::THREADS == 3 * 32 * WARPS, "host and device agree on the roles");

/*
 * Named barriers. Of a producer's group, of its two inverse warps, and of its norms (one of its own, since the inverse warps
 * only arrive there). Of the recurrence: a chunk's operands and S are there (all warps), W is there (state warps), V' is
 * there (all), and two for the rare way of publish_scaled().
 */
enum { BAR_GROUP = 1, BAR_INVERSE = BAR_GROUP + GROUPS, BAR_NORMS = BAR_INVERSE + GROUPS };
enum { BAR_CHUNK = 1, BAR_W, BAR_V, BAR_SCALE_STATE, BAR_SCALE_ALL };
enum { STATE_THREADS = 32 * WARPS, ALL_THREADS = 64 * WARPS }; /* the load warps are in none */
enum { GROUP_THREADS = 32 * WARPS };                           /* without its feeding warps */

/* ---- The image of a chunk ---------------------------------------------------------------------------------------- */

struct Image {
    u32 base; /* in shared memory */

    static __device__ __forceinline__ int block(int I, int J)
    {
        return (I * (I + 1) / 2 + J) * BLOCK_BYTES;
    }
    __device__ __forceinline__ Tile<16> t(int I, int J) const
    {
        return { base + block(I, J) };
    }
    __device__ __forceinline__ Tile<16> p(int I, int J) const
    {
        return { base + TRIANGLE_BYTES + block(I, J) };
    }
    __device__ __forceinline__ u32 decay_in() const
    {
        return base + 2 * TRIANGLE_BYTES;
    }
    __device__ __forceinline__ u32 decay_out() const
    {
        return base + 2 * TRIANGLE_BYTES + GATE_BYTES;
    }
    __device__ __forceinline__ u32 beta() const
    {
        return base + 2 * TRIANGLE_BYTES + 2 * GATE_BYTES;
    }
    __device__ __forceinline__ u32 decay_in_q() const
    {
        return spec::QK_L2NORM ? base + 2 * TRIANGLE_BYTES + 3 * GATE_BYTES : decay_in();
    }
    /* The chunk's whole decay; with in-kernel norms lowest_update() lies behind it. */
    __device__ __forceinline__ u32 decay() const
    {
        return spec::QK_L2NORM ? base + 2 * TRIANGLE_BYTES + 4 * GATE_BYTES : decay_in() + 4 * (C - 1);
    }
    __device__ __forceinline__ u32 lowest() const
    {
        return decay() + 4;
    }
};

/*
 * Images lie by rows: sequence n begins at row first_token / C + n, which leaves it ceil(len / C) rows whatever the lengths, so
 * that nobody needs a prefix sum over the sequences.
 */
__device__ __forceinline__ i64 first_row(const prefill_params &p, int seq)
{
    const i64 token = p.cu_seqlens ? load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, seq) : seq * p.uniform_len;
    return token / C + seq;
}

/* A sequence and a state head. */
struct Work : Sequence {
    int seq, head;
    int chunks;
};

__device__ __forceinline__ Work make_work(const prefill_params &p, int seq, int head)
{
    Work w;
    (Sequence &)w = find_sequence(p, seq);
    w.seq = seq;
    w.head = head;
    w.chunks = w.len / C + (w.len % C != 0); /* not (len + C - 1) / C: len may be near 2^31 */
    return w;
}

/* A head's columns of q, k or v at a sequence's first row. */
#define SOURCE(x, w)                                                                                                   \
    ((const u16 *)p.x + row_offset(w, head_of((w).head, p.x##_div, p.x##_mod), p.x##_batch_stride, p.x##_token_stride, \
                                   p.x##_head_stride))

__device__ __forceinline__ i64 image_index(const prefill_params &p, int head, i64 row)
{
    return head * p.image_rows + row;
}

__device__ __forceinline__ u32 *image_flag(const prefill_params &p, i64 index)
{
    return p.control + 1 + index;
}

__device__ __forceinline__ u8 *image_at(const prefill_params &p, i64 index)
{
    return p.images + index * IMAGE_BYTES;
}

/* Rows row0..+ROWS - 1 of a [tokens, stride] matrix into a tile, by one warp; rows from `rows` on become zeros. */
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void load_rows(Tile<COLUMNS> tile, const u16 *source, i64 stride, int row0, int rows,
                                          int lane)
{
    constexpr int PIECES = COLUMNS / 8, ROWS_AT_ONCE = 32 / PIECES;
    const int piece = lane % PIECES;
#pragma unroll 8
    for (int r = 0; r < ROWS; r += ROWS_AT_ONCE) {
        const int row = row0 + r + lane / PIECES;
        const bool inside = row < rows;
        cp_async_16(tile.at(row, piece), source + (inside ? row * stride : 0) + piece * 8, inside ? 16u : 0u);
    }
}

/* ---- Producers --------------------------------------------------------------------------------------------------- */

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

/* The last sequence that begins at or before a row; -1: none. One round of loads for each factor 32 of num_seqs. */
__device__ __forceinline__ int sequence_of_row(const prefill_params &p, u32 row, int lane)
{
    int low = 0, count = p.num_seqs;
    for (;;) {
        const int step = (count + 31) / 32, at = lane * step;
        const u32 before = __ballot_sync(~0u, at < count && first_row(p, low + at) <= row);
        if (before == 0) return -1;
        const int last = 31 - __clz(before);
        low += last * step;
        count = min(step, count - last * step);
        if (step == 1) return low;
    }
}

/* One chunk of one head. */
struct Item {
    Work work;
    int chunk;
    u32 row;
};

/*
 * Deals items: the rows are cut into as many spans as there are sequences, and spans advance together, all heads of a row one
 * after the other. With equal lengths, that is chunk by chunk. 32 bits count items: each has an image in memory.
 */
struct Deal {
    u32 rows, span, count, number, step; /* number: of the next item to look at */

    __device__ __forceinline__ Deal(const prefill_params &p, u32 first, u32 step)
        : rows((u32)first_row(p, p.num_seqs)), number(first), step(step)
    {
        span = (rows + p.num_seqs - 1) / p.num_seqs;
        count = span * p.num_seqs * p.num_heads;
    }
    /* The next item that is a chunk; false behind the last. */
    __device__ __forceinline__ bool next(Item &item, const prefill_params &p, int lane)
    {
        while (number < count) {
            const u32 n = number / p.num_heads, head = number % p.num_heads;
            number += step;
            item.row = n % p.num_seqs * span + n / p.num_seqs;
            const int seq = item.row < rows ? sequence_of_row(p, item.row, lane) : -1;
            if (seq < 0) continue;
            item.work = make_work(p, seq, (int)head);
            item.chunk = (int)(item.row - first_row(p, seq));
            if (!item.work.inert && item.chunk < item.work.chunks) return true;
        }
        return false;
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

/* ---- Recurrence: shared memory ----------------------------------------------------------------------------------- */

constexpr int SLOT_BYTES = QK_BYTES + V_BYTES + IMAGE_BYTES;
constexpr int EXCHANGE_S = BV * DK * 2, EXCHANGE_W = BV * C * 2, MAXIMA_BYTES = ROW_BLOCKS * 8 * WARPS * 4;
constexpr int Q_OFFSET = STAGES * SLOT_BYTES, S_OFFSET = Q_OFFSET + Q_STAGES * QK_BYTES,
              W_OFFSET = S_OFFSET + EXCHANGE_S;
constexpr int MAXIMA_OFFSET = W_OFFSET + 3 * EXCHANGE_W, BAR_OFFSET = MAXIMA_OFFSET + 4 * MAXIMA_BYTES,
              RECURRENCE_BYTES = BAR_OFFSET + 128;

static_assert(spec::SMEM_BYTES == (RECURRENCE_BYTES > PRODUCER_BYTES ? RECURRENCE_BYTES : PRODUCER_BYTES),
              "host and device agree on shared memory");

struct Slot {
    Tile<DK> k;
    Tile<BV> v;
    Image image;
};

/* A buffer of exchanged A operands, and each warp's maxima of its rows: fp16 pairs {row g, row g + 8} [block][g][warp]. */
struct Exchange {
    u32 data, maxima;
};

struct Shared {
    u32 base;

    __device__ __forceinline__ Slot slot(int s) const
    {
        const u32 at = base + s * SLOT_BYTES;
        return { { at }, { at + QK_BYTES }, { at + QK_BYTES + V_BYTES } };
    }
    __device__ __forceinline__ Tile<DK> q(int s) const
    {
        return { base + Q_OFFSET + s * QK_BYTES };
    }
    __device__ __forceinline__ Exchange w() const
    {
        return { base + W_OFFSET, base + MAXIMA_OFFSET };
    }
    __device__ __forceinline__ Exchange s() const
    {
        return { base + S_OFFSET, base + MAXIMA_OFFSET + MAXIMA_BYTES };
    }
    __device__ __forceinline__ Exchange v() const
    {
        return { base + W_OFFSET + EXCHANGE_W, base + MAXIMA_OFFSET + 2 * MAXIMA_BYTES };
    }
    __device__ __forceinline__ Exchange u() const
    {
        return { base + W_OFFSET + 2 * EXCHANGE_W, base + MAXIMA_OFFSET + 3 * MAXIMA_BYTES };
    }
    /* mbarriers of K, V and the image, and of Q: loaded, and free again. */
    __device__ __forceinline__ u32 full(int s) const
    {
        return base + BAR_OFFSET + 8 * s;
    }
    __device__ __forceinline__ u32 empty(int s) const
    {
        return base + BAR_OFFSET + 8 * (STAGES + s);
    }
    __device__ __forceinline__ u32 q_full(int s) const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + s);
    }
    __device__ __forceinline__ u32 q_empty(int s) const
    {
        return base + BAR_OFFSET + 8 * (2 * STAGES + Q_STAGES + s);
    }
    /* For publish_scaled(), two maxima arrays that nobody needs: before V' is published, and after. */
    __device__ __forceinline__ u32 early_scratch() const
    {
        return v().maxima;
    }
    __device__ __forceinline__ u32 late_scratch() const
    {
        return w().maxima;
    }
};

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

/* ---- Recurrence: exchange of A operands -------------------------------------------------------------------------- */

typedef RowScale Scales[ROW_BLOCKS];

/* A warp's k-step `step` (of STEPS in all) of row block m: 16 bytes a lane. */
template <int STEPS> __device__ __forceinline__ u32 fragment(u32 data, int m, int step, int lane)
{
    return data + (m * STEPS + step) * 512 + lane * 16;
}

template <int STEPS> __device__ __forceinline__ void load_fragment(u32 (&a)[4], u32 data, int m, int step, int lane)
{
    const uint4 v = load_shared_16(fragment<STEPS>(data, m, step, lane));
    a[0] = v.x;
    a[1] = v.y;
    a[2] = v.z;
    a[3] = v.w;
}

template <int BLOCKS, bool F16>
__device__ __forceinline__ void pack_rows(u32 (&packed)[BLOCKS][2], const float (&x)[BLOCKS][4])
{
#pragma unroll
    for (int n = 0; n < BLOCKS; ++n) {
        packed[n][0] = F16 ? pack_f16x2(x[n][0], x[n][1]) : pack_bf16x2(x[n][0], x[n][1]);
        packed[n][1] = F16 ? pack_f16x2(x[n][2], x[n][3]) : pack_bf16x2(x[n][2], x[n][3]);
    }
}

template <int BLOCKS>
__device__ __forceinline__ void store_fragments(u32 data, const u32 (&packed)[BLOCKS][2], int m, int warp, int lane)
{
#pragma unroll
    for (int s = 0; s < BLOCKS / 2; ++s)
        store_shared(fragment<WARPS * BLOCKS / 2>(data, m, warp * (BLOCKS / 2) + s, lane), packed[2 * s][0],
                     packed[2 * s][1], packed[2 * s + 1][0], packed[2 * s + 1][1]);
}

/* This warp's share, as it is, and for fp16 its rows' maxima. A barrier later, out_of_range() says whether that will do. */
template <int BLOCKS, bool F16>
__device__ __forceinline__ void publish(const Exchange &to, const float (&x)[ROW_BLOCKS][BLOCKS][4], int warp, int lane)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        u32 packed[BLOCKS][2];
        pack_rows<BLOCKS, F16>(packed, x[m]);
        store_fragments(to.data, packed, m, warp, lane);
        if constexpr (F16) {
            u32 lo = 0, hi = 0;
#pragma unroll
            for (int n = 0; n < BLOCKS; ++n) {
                lo = max_abs_f16x2(lo, packed[n][0]);
                hi = max_abs_f16x2(hi, packed[n][1]);
            }
            u32 most = max_abs_f16x2(__byte_perm(lo, hi, 0x5410), __byte_perm(lo, hi, 0x7632));
            most = max_abs_f16x2(most, __shfl_xor_sync(~0u, most, 1));
            most = max_abs_f16x2(most, __shfl_xor_sync(~0u, most, 2));
            if ((lane & 3) == 0) store_shared(to.maxima + ((m * 8 + (lane >> 2)) * WARPS + warp) * 4, most);
        }
    }
}

/*
 * Row blocks that do not fit, a bit each; each for itself, as in the generic kernel, since scaled rows have other bits where
 * unscaled ones are subnormal. Every warp reads the same maxima: the answer is the same in all.
 */
__device__ __forceinline__ u32 out_of_range(const Exchange &from, int lane, u32 low = F16_LOW)
{
    u32 blocks = 0;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        const uint4 of_warps = load_shared_16(from.maxima + (m * 8 + (lane >> 2)) * WARPS * 4);
        const u32 most = max_abs_f16x2(max_abs_f16x2(of_warps.x, of_warps.y), max_abs_f16x2(of_warps.z, of_warps.w));
        if (!__all_sync(~0u, both_within(most, low, F16_HIGH))) blocks |= 1u << m;
    }
    return blocks;
}

/* Scales of these blocks' rows from all state warps' fp32 maxima; the others' are 1. */
__device__ __forceinline__ void read_scales(Scales &scales, u32 blocks, u32 scratch, int lane)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        float lo = 0.0f, hi = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) {
            const float2 most = load_shared_float2(scratch + ((m * 8 + (lane >> 2)) * WARPS + warp) * 8);
            lo = fmaxf(lo, most.x);
            hi = fmaxf(hi, most.y);
        }
        const bool scaled = blocks >> m & 1;
        scales[m] = { scaled ? scale_for(lo) : 1.0f, scaled ? scale_for(hi) : 1.0f, scaled };
    }
}

/*
 * The rare way, by the state warps: agrees upon rows' scales and publishes the share again. ALL: the output warps, who read it
 * too, are in take_scales() meanwhile.
 */
template <int BLOCKS, bool ALL>
__device__ __forceinline__ void publish_scaled(u32 data, u32 blocks, u32 scratch, Scales &scales,
                                               const float (&x)[ROW_BLOCKS][BLOCKS][4], int warp, int lane)
{
    bar_sync(BAR_SCALE_STATE, STATE_THREADS);
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        float lo = 0.0f, hi = 0.0f;
#pragma unroll
        for (int n = 0; n < BLOCKS; ++n) {
            lo = fmaxf(lo, fmaxf(fabsf(x[m][n][0]), fabsf(x[m][n][1])));
            hi = fmaxf(hi, fmaxf(fabsf(x[m][n][2]), fabsf(x[m][n][3])));
        }
        const u32 at = scratch + ((m * 8 + (lane >> 2)) * WARPS + warp) * 8;
        lo = quad_max(lo);
        hi = quad_max(hi);
        if ((lane & 3) == 0) {
            store_shared(at, lo);
            store_shared(at + 4, hi);
        }
    }
    bar_sync(BAR_SCALE_STATE, STATE_THREADS);
    read_scales(scales, blocks, scratch, lane);
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m) {
        u32 packed[BLOCKS][2];
        pack_rows_f16(packed, x[m], inverse_scale(scales[m].lo), inverse_scale(scales[m].hi));
        store_fragments(data, packed, m, warp, lane);
    }
    if (!ALL) return bar_sync(BAR_SCALE_STATE, STATE_THREADS);
    meet(BAR_SCALE_ALL, ALL_THREADS);
    meet(BAR_SCALE_ALL, ALL_THREADS);
}

/* The output warps' part in publish_scaled<ALL>. */
__device__ __forceinline__ void take_scales(Scales &scales, u32 blocks, u32 scratch, int lane)
{
    meet(BAR_SCALE_ALL, ALL_THREADS);
    read_scales(scales, blocks, scratch, lane);
    meet(BAR_SCALE_ALL, ALL_THREADS); /* the scratch is free again */
}

/* ---- Recurrence: products ---------------------------------------------------------------------------------------- */

constexpr bool IO_F16 = !spec::IO_BF16;

typedef float KeyPart[ROW_BLOCKS][KEY_BLOCKS][4];     /* S^T: all rows, this warp's keys */
typedef float TokenPart[ROW_BLOCKS][TOKEN_BLOCKS][4]; /* all rows, this warp's tokens */

template <int BLOCKS> __device__ __forceinline__ void clear(float (&x)[ROW_BLOCKS][BLOCKS][4])
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                x[m][n][i] = 0.0f;
}

__device__ __forceinline__ void copy(TokenPart &to, const TokenPart &from)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < TOKEN_BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                to[m][n][i] = from[m][n][i];
}

template <int BLOCKS> __device__ __forceinline__ void multiply(float (&x)[ROW_BLOCKS][BLOCKS][4], float factor)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
        scale_rows(x[m], factor, factor);
}

template <int BLOCKS> __device__ __forceinline__ void apply_scales(float (&x)[ROW_BLOCKS][BLOCKS][4], const Scales &s)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
        scale_rows(x[m], s[m].lo, s[m].hi);
}

template <int BLOCKS> __device__ __forceinline__ void remove_scales(float (&x)[ROW_BLOCKS][BLOCKS][4], const Scales &s)
{
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
        scale_rows(x[m], inverse_scale(s[m].lo), inverse_scale(s[m].hi));
}

/* Operand B = tile^T over DK, this warp's tokens. */
struct KeysOperand {
    u32 b[K_STEPS][4];

    __device__ __forceinline__ void load(Tile<DK> tile, int warp, int lane)
    {
#pragma unroll
        for (int step = 0; step < K_STEPS; ++step)
            load_b_rows(b[step], tile, TOKENS * warp, step, lane);
    }
};

/* d += S^T tile^T */
__device__ __forceinline__ void mma_keys(TokenPart &d, u32 state, const KeysOperand &tile, int lane)
{
#pragma unroll
    for (int step = 0; step < K_STEPS; ++step) {
        const u32(&b)[4] = tile.b[step];
        const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m) {
            u32 a[4];
            load_fragment<K_STEPS>(a, state, m, step, lane);
            mma_io(d[m][0], a, b0);
            mma_io(d[m][1], a, b1);
        }
    }
}

/* Operand B = block row `warp` of a lower triangle, transposed; `first` is its block (warp, 0). */
struct TriangleOperand {
    u32 b[TOKEN_STEPS][4];

    __device__ __forceinline__ void load(Tile<16> first, int warp, int lane)
    {
#pragma unroll
        for (int step = 0; step < TOKEN_STEPS; ++step)
            if (step <= warp) load_b_rows(b[step], Tile<16>{ first.base + step * BLOCK_BYTES }, 0, 0, lane);
    }
};

/* d += W^T tile^T, this warp's tokens. */
__device__ __forceinline__ void mma_triangle(TokenPart &d, u32 fragments, const TriangleOperand &tile, int warp,
                                             int lane)
{
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
        if (step > warp) break;
        const u32(&b)[4] = tile.b[step];
        const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m) {
            u32 a[4];
            load_fragment<TOKEN_STEPS>(a, fragments, m, step, lane);
            mma_f16(d[m][0], a, b0);
            mma_f16(d[m][1], a, b1);
        }
    }
}

/* Operand B = K, this warp's keys. */
struct UpdateOperand {
    u32 b[TOKEN_STEPS][KEY_BLOCKS / 2][4];

    __device__ __forceinline__ void load(Tile<DK> k, int warp, int lane)
    {
#pragma unroll
        for (int step = 0; step < TOKEN_STEPS; ++step)
#pragma unroll
            for (int n = 0; n < KEY_BLOCKS / 2; ++n)
                load_b_columns(b[step][n], k, step, KEYS * warp + 16 * n, lane);
    }
};

/* S^T += V^T K over the chunk's tokens. */
__device__ __forceinline__ void mma_update(KeyPart &S, u32 fragments, const UpdateOperand &k, int lane)
{
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step)
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m) {
            u32 a[4];
            load_fragment<TOKEN_STEPS>(a, fragments, m, step, lane);
#pragma unroll
            for (int n = 0; n < KEY_BLOCKS / 2; ++n) {
                const u32(&b)[4] = k.b[step][n];
                const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
                mma_io(S[m][2 * n], a, b0);
                mma_io(S[m][2 * n + 1], a, b1);
            }
        }
}

/* Operands of the residual, this warp's tokens. */
struct Residual {
    float2 e[2], beta[2];
    u32 v[ROW_BLOCKS][4];

    __device__ __forceinline__ void load(const Slot &slot, int warp, int lane)
    {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u32 at = 4 * (TOKENS * warp + 8 * h + 2 * (lane & 3));
            e[h] = load_shared_float2(slot.image.decay_in() + at);
            beta[h] = load_shared_float2(slot.image.beta() + at);
        }
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m)
            load_transposed(v[m], slot.v, TOKENS * warp, 16 * m, lane);
    }
    /* x = diag(beta) (v - e x) */
    __device__ __forceinline__ void apply(TokenPart &x) const
    {
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float(&y)[4] = x[m][h];
                y[0] = beta[h].x * (io_lo(v[m][2 * h]) - e[h].x * y[0]);
                y[1] = beta[h].y * (io_hi(v[m][2 * h]) - e[h].y * y[1]);
                y[2] = beta[h].x * (io_lo(v[m][2 * h + 1]) - e[h].x * y[2]);
                y[3] = beta[h].y * (io_hi(v[m][2 * h + 1]) - e[h].y * y[3]);
            }
    }
};

/* Multiplies columns (this warp's tokens) by one of the image's gate arrays. */
__device__ __forceinline__ void scale_columns(TokenPart &x, u32 gates, int warp, int lane)
{
    const int t = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float2 f = load_shared_float2(gates + 4 * (TOKENS * warp + 8 * h + 2 * t));
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; ++m) {
            x[m][h][0] *= f.x;
            x[m][h][1] *= f.y;
            x[m][h][2] *= f.x;
            x[m][h][3] *= f.y;
        }
    }
}

/* This warp's part of a state: dk = dk0 + 8 n + 2 t (+ 1), dv = dv0 + 16 m + g (+ 8). */
__device__ __forceinline__ void load_state(KeyPart &S, const StateAt<const void> &from, int dk0, int dv0, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                S[m][n][i] = from.load(dk0 + 8 * n + 2 * t + (i & 1), dv0 + 16 * m + g + 8 * (i >> 1));
}

__device__ __forceinline__ void save_state(const KeyPart &S, const StateAt<void> &to, int dk0, int dv0, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; ++m)
#pragma unroll
        for (int n = 0; n < KEY_BLOCKS; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                to.store(dk0 + 8 * n + 2 * t + (i & 1), dv0 + 16 * m + g + 8 * (i >> 1), S[m][n][i]);
}

/* ---- Recurrence: state warps ------------------------------------------------------------------------------------- */

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

/* ---- Recurrence: load warps -------------------------------------------------------------------------------------- */

/* Waits for a chunk's image, asking for 32 chunks at a time; returns up to which chunk all are there. */
__device__ __forceinline__ int wait_images(const prefill_params &p, i64 first, int chunk, int chunks, int lane)
{
    for (;;) {
        const bool there = chunk + lane < chunks && peek(image_flag(p, first + chunk + lane)) != 0;
        const u32 missing = ~__ballot_sync(~0u, there);
        if (!(missing & 1)) {
            acquire(); /* of every lane, of which each saw its own flag */
            __syncwarp();
            return missing == 0 ? chunk + 32 : chunk + __ffs(missing) - 1;
        }
        __nanosleep(40);
    }
}

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
    const i64 first = image_index(p, w.head, first_row(p, w.seq));
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

/* ---- Recurrence: output warps ------------------------------------------------------------------------------------ */

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

/* ---- Entry ------------------------------------------------------------------------------------------------------- */

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

__device__ __forceinline__ void init_recurrence(const Shared &sm)
{
    for (int s = 0; s < STAGES; ++s) {
        mbar_init(sm.full(s), 32 * WARPS);
        mbar_init(sm.empty(s), 32 * WARPS);
    }
    for (int s = 0; s < Q_STAGES; ++s) {
        mbar_init(sm.q_full(s), 32 * WARPS);
        mbar_init(sm.q_empty(s), 32 * WARPS);
    }
    init_meeting(BAR_CHUNK, ALL_THREADS);
    init_meeting(BAR_V, ALL_THREADS);
    init_meeting(BAR_SCALE_ALL, ALL_THREADS);
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

} // namespace

extern "C" __global__ void __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_split(const __grid_constant__ prefill_params p)
{
    extern __shared__ __align__(128) u8 shared[];
    const Shared sm = { smem_address(shared) };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    wait_for_previous_kernel();
    if (threadIdx.x == 0)
        *(int *)shared = (int)take_ticket(p.control); /* where a first operand goes, once all have read it */
    __syncthreads();
    const int ticket = *(volatile int *)shared;
    const bool produces = ticket < p.num_producers;
    if (threadIdx.x == 0) {
        if (produces)
            init_producer(sm.base);
        else
            init_recurrence(sm);
    }
    __syncthreads();
    if (produces)
        producer(p, sm.base, ticket, warp, lane);
    else
        recurrence(p, sm, ticket - p.num_producers, warp, lane);
}
