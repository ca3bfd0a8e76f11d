/*
 * gdn_prefill_hopper.cu - chunked gated delta rule, forward, exact; Hopper (sm_90a): wgmma, TMA, warp-specialised, persistent.
 *
 * A CTA walks items (sequence, state head; or half of its value columns), each in chunks of C = 64 tokens. With c_i the
 * cumulated log2 decay inside the chunk, e_i = 2^c_i, d_i = 2^(c_63 - c_i), G_ij = 2^(c_i - c_j) for i >= j:
 *
 *     T  = (I + tril(beta_i G_ij (K K^T)_ij, -1))^-1 diag(beta)        P  = tril(G_ij (Q K^T)_ij)
 *     W  = V - e K S                                                   V' = T W       (fp16 I/O: beta in W, not in T)
 *     O  = scale (e Q S + P V')                                        S <- e_63 S + K^T (d V')
 *
 * Three or four warpgroups, joined by mbarriers:
 *     producer   warp 0: K, Q, V tiles by TMA; warps 1, 2: gate tables, and the 16 x 16 diagonal blocks of the inverse; warp 3:
 *                O tiles to memory
 *     1, 2 state 64 value columns each: S^T (64 x 128, fp32) stays in registers for the whole item; packed accumulators are the
 *                A operands of every product
 *     aux        T and P, one to two chunks ahead of the state warpgroups
 *
 * All of them count the chunks of all items of the CTA in one sequence, so that loads, gates, T and P of the next item are made
 * while the state warpgroups finish the last one. The tile warp takes the items and announces them; what a chunk is (its
 * item's last, the end) stands in its gate table.
 *
 * In-kernel norms (spec::QK_L2NORM) are factors of rows, as gdn_prefill_generic.cu has them: see Norms.
 *
 * Rounding: as gdn_prefill_generic.cu, but for bf16 I/O beta stands in T (a rounding of its own), and gate factors of blocks
 * off the diagonal are fp16. Tokens past the end of a tail chunk are zeros with g = 0 and beta = 0.
 * docs/prefill_hopper.md: budgets, barriers, what was measured and tried.
 */
#include "gdn_spec.cuh"

#include "gdn_flags.cuh"
#include "gdn_gates.cuh"
#include "gdn_norms.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_state.cuh"
#include "gdn_tile.cuh"
#include "gdn_types.cuh"

extern __shared__ __align__(1024) u8 shared[];

namespace {

constexpr int C = spec::CHUNK, D = 128;
constexpr int K_STAGES = 4, Q_STAGES = 3, V_STAGES = 2, TP_STAGES = 2, GATE_STAGES = 4;
constexpr int GROUP = 128; /* threads of a warpgroup */
constexpr int GATE_WARPS = 2;
constexpr int STATE_GROUPS = spec::BLOCK_DV / 64, STATE_WARPS = 4 * STATE_GROUPS; /* 64 value columns a warpgroup */
constexpr int PARTS = D / spec::BLOCK_DV; /* of a head's value columns, an item each */
constexpr int LOOK_AHEAD = K_STAGES; /* chunks before an item's end at which the next one is taken */

/*
 * beta's place: T's columns, in fp16, or W's rows, in fp32. The first is two instructions a chunk cheaper for every token and
 * column, and a rounding of its own, which only bf16's bounds have room for.
 */
constexpr bool BETA_IN_T = spec::IO_BF16;
/*
 * The scale's place: P (fp16) has a power of two of it, and O takes the rest at the end, so that an entry of P, which stands in
 * all value columns, is rounded as it is anywhere. Not for bf16, whose bounds have room: there P has all of it while that is
 * harmless.
 */
constexpr bool LATE_SCALE = !spec::IO_BF16;
/* Q S right behind K S, so that it is done when W is: a lone state warpgroup has the 32 registers for it. */
constexpr bool EARLY_Q = STATE_GROUPS == 1;

static_assert(C == 64 && spec::DK == D && spec::DV == D, "the shapes that tiles and registers are cut for");
static_assert(STATE_GROUPS == 1 || STATE_GROUPS == 2, "a state warpgroup has 64 columns of two in a V tile");
static_assert(!spec::CARRIES || PARTS == 1, "a transition takes all value columns");
static_assert(spec::THREADS == (2 + STATE_GROUPS) * GROUP, "host and device agree on the roles");

/* ---- Shared memory ------------------------------------------------------------------------------------------------- */

constexpr int TILE = C * D * 2, HALF = TILE / 2, SQUARE = C * C * 2;
constexpr int V_TILE = STATE_GROUPS * HALF;
constexpr int K_AT = 0;
constexpr int Q_AT = K_AT + K_STAGES * TILE;
constexpr int V_AT = Q_AT + Q_STAGES * TILE;
constexpr int T_AT = V_AT + V_STAGES * V_TILE;
constexpr int P_AT = T_AT + TP_STAGES * SQUARE;
constexpr int L_AT = P_AT + TP_STAGES * SQUARE; /* chunks in turn: -L below the diagonal, then -D L; D^T on it; see Norms */
constexpr int O_AT = L_AT + 2 * SQUARE;         /* [state warpgroup] */
constexpr int DIAGONAL_STRIDE = 20;             /* floats: conflict-free transposed stores, 16-byte rows */
constexpr int DIAGONAL = 16 * DIAGONAL_STRIDE * 4;
constexpr bool INVERT_BY_LOOP = !spec::IO_BF16 || spec::CARRIES; /* see there; columns then lie from the diagonal on */
constexpr int DIAGONAL_AT = O_AT + STATE_GROUPS * HALF; /* [chunk & 1][band] */
constexpr int GATE_AT = DIAGONAL_AT + 8 * DIAGONAL;
constexpr int GATE = 1536;
/* In what tables leave: [state warpgroup] what it keeps of a chunk; the tile warp's courses; [gate warp] where gates lie. */
constexpr int KEPT_AT = GATE_AT + GATE - 32, COURSE_AT = KEPT_AT + GATE, READER_AT = KEPT_AT + 3 * GATE;
constexpr int SCALE_AT = GATE_AT + GATE_STAGES * GATE; /* [state warp][lane] float2: power-of-two row scales, rarely */
constexpr int BAR_AT = SCALE_AT + STATE_WARPS * 32 * 8;
constexpr int ITEM_SLOTS = 8, ENTRY = 32;
constexpr int ITEM_AT = BAR_AT + 480; /* what all roles know of an item, ENTRY bytes each */
constexpr int V_WAITS_AT = ITEM_AT + ITEM_SLOTS * ENTRY; /* the tile warp's: V's place in its map */
constexpr int LISTS_AT = V_WAITS_AT + 16;                /* of what the CTA still has to do: REPAIRS, LATER */
constexpr int MOST_SORTED = 256;                         /* sequences */
constexpr int ORDER_AT = LISTS_AT + 16;                  /* their numbers, the longest first, 8 bits each */
constexpr int CUTS_AT = ORDER_AT, MOST_CUTS = 32;        /* or, of calls that are cut, a word each pair: see By gates */
constexpr int FORGETTING_AT = ORDER_AT;                  /* or, of partitions of one length, a byte each pair */
constexpr int KEEPER_AT = CUTS_AT + 4 * MOST_CUTS;       /* and a word each item slot: see keeper() */
constexpr int END = ORDER_AT + MOST_SORTED;
static_assert(KEEPER_AT + 4 * ITEM_SLOTS <= END && FORGETTING_AT + spec::ASKED_PAIRS <= KEEPER_AT, "either fits");
static_assert(spec::SMEM_BYTES == END, "host and device agree on shared memory");

/*
 * A gate table, bytes from its start; the first five are per token. Those that state warps read, of which a lane wants tokens
 * 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of every 16, have these four side by side: see pair_at().
 */
enum {
    DECAY_IN = 0,    /* e; beta e where beta is not in T; by pairs */
    DECAY_OUT = 256, /* d; by pairs */
    BETA = 512,      /* by pairs */
    BAND_LOG = 768,    /* c_i - c of the first token of i's band of 16 */
    DECAY_IN_Q = 1024, /* e times scale; by pairs */
    COLUMN_DECAY =
        1280, /* fp16: 2^(c of band b's first token - c_j) for j < 16 b: 16 of band 1, 32 of band 2, 48 of band 3 */
    DECAY_ALL = 1472,  /* e_63 */
    /* fp16 bits: |W| up to which V' and d V' stay in range, 0: scale whatever it is; above them see limit_by_norms() */
    W_LIMIT = 1476,
    BETA_SCALE = 1480, /* T, where it has beta, holds beta / this; where it is not 1, W_LIMIT is 0 */
    FLAGS = 1484,
    CHECKPOINT = 1488, /* row of the list, where the flag says so */
    KEPT_T = 1492,     /* where the chunk's T is kept, by CHUNK_KEEPS_T and CHUNK_HAS_T */
    KEYS_NORMED = 1496 /* a barrier: e, d and W_LIMIT have what in-kernel norms of keys make of them */
};
static_assert(KEYS_NORMED % 8 == 0 && GATE_AT + KEYS_NORMED + 8 <= KEPT_AT, "before what lies in the rest");
/* FLAGS: END: no chunk, leave. STATE: nobody wants its O, nor P. Above them the number of the CTA's item, modulo what fits. */
enum { CHUNK_LAST = 1, CHUNK_CHECKPOINT = 2, CHUNK_END = 4, CHUNK_REPLAYED = 8, CHUNK_TRANSITION = 16, CHUNK_STATE = 32 };
enum { CHUNK_KEEPS_T = 64, CHUNK_HAS_T = 128, ITEM_SHIFT = 8 };
/*
 * LISTS_AT, words: heads of lists through control words, 0: empty: see Repairs; START_CARRIED's items, by index + 1. How many
 * partitions there are by gates, 0: they are all of one length. What the tile warp next waits for at CARRIED.
 */
enum { REPAIRS = 0, LATER = 4, BY_GATES = 8, CARRIED_PARITY = 12 };

/* Of a condition. ptxas may lay its code into the loop around it all the same; behind the loop it is out of the way. */
__device__ __forceinline__ bool rarely(bool condition)
{
    return __builtin_expect(condition, 0);
}

__device__ __forceinline__ u32 at(int offset)
{
    return smem_address(shared) + offset;
}

/* Barriers, in order of their index. */
enum {
    CHUNK_FULL = 0, /* K, Q and the gate table */
    V_FULL = CHUNK_FULL + K_STAGES,
    K_EMPTY = V_FULL + V_STAGES,
    Q_EMPTY = K_EMPTY + K_STAGES,
    V_EMPTY = Q_EMPTY + Q_STAGES,
    GATE_EMPTY = V_EMPTY + V_STAGES,
    TP_FULL = GATE_EMPTY + GATE_STAGES,
    TP_EMPTY = TP_FULL + TP_STAGES,
    O_FULL = TP_EMPTY + TP_STAGES, /* [state warpgroup] */
    O_EMPTY = O_FULL + STATE_GROUPS,
    DIAGONAL_FULL = O_EMPTY + STATE_GROUPS, /* blocks to invert, chunks in turn */
    DIAGONAL_DONE = DIAGONAL_FULL + 2,
    ITEM_DONE = DIAGONAL_DONE + 2, /* items in turn: their states are handed over */
    TAIL = ITEM_DONE + 2,          /* a tail chunk's tiles, before their rest is cleared */
    ITEM_FULL,
    ITEM_LEFT = ITEM_FULL + ITEM_SLOTS, /* by the output warp */
    CARRIED = ITEM_LEFT + ITEM_SLOTS,   /* the rings of tiles are the tile warp's again */
    NUM_BARRIERS
};
static_assert(BAR_AT + NUM_BARRIERS * 8 <= ITEM_AT, "barriers fit");

__device__ __forceinline__ u32 bar(int index)
{
    return at(BAR_AT) + 8 * index;
}

__device__ __forceinline__ void init_barriers()
{
#pragma unroll /* their counts as constants: worked out by one thread they took longer than the instructions */
    for (int i = 0; i < NUM_BARRIERS; ++i) {
        int warps = 1;                                /* the one that loads; O_EMPTY: that stores */
        if (i >= K_EMPTY && i < TP_FULL) warps = STATE_WARPS;
        if (i >= TP_FULL && i < TP_EMPTY) warps = 4; /* aux warps */
        if (i >= TP_EMPTY && i < O_FULL) warps = STATE_WARPS;
        if (i >= O_FULL && i < O_EMPTY) warps = 4;              /* one state warpgroup's warps */
        if (i >= DIAGONAL_FULL && i < DIAGONAL_DONE) warps = 4; /* aux warps */
        if (i >= DIAGONAL_DONE && i < ITEM_DONE) warps = 2;     /* gate warps */
        if (i >= ITEM_DONE && i < TAIL) warps = STATE_WARPS;
        const int lanes = i < V_FULL ? 32 : 0;                  /* a gate warp's, each for its tokens */
        if (i == CARRIED) warps = STATE_WARPS;
        mbar_init(bar(i), i >= TAIL && i < CARRIED ? 1 : warps * ARRIVALS_PER_WARP + lanes);
    }
#pragma unroll
    for (int i = 0; spec::QK_L2NORM && i < GATE_STAGES; ++i)
        mbar_init(at(GATE_AT) + i * GATE + KEYS_NORMED, 4 * ARRIVALS_PER_WARP); /* aux warps */
    mbar_init_fence();
}

/* Which slot and parity of each ring chunk number n has. */
struct Clock {
    int n, q_slot;
    u32 q_parity;

    __device__ __forceinline__ u32 k() const
    {
        return at(K_AT) + (n & 3) * TILE;
    }
    __device__ __forceinline__ u32 q() const
    {
        return at(Q_AT) + q_slot * TILE;
    }
    __device__ __forceinline__ u32 v() const
    {
        return at(V_AT) + (n & 1) * V_TILE;
    }
    __device__ __forceinline__ u32 table() const
    {
        return at(GATE_AT) + (n & 3) * GATE;
    }
    __device__ __forceinline__ u32 parity1() const
    {
        return n & 1;
    }
    __device__ __forceinline__ u32 parity2() const
    {
        return n >> 1 & 1;
    }
    __device__ __forceinline__ u32 parity4() const
    {
        return n >> 2 & 1;
    }
    __device__ __forceinline__ void advance()
    {
        ++n;
        if (++q_slot == Q_STAGES) {
            q_slot = 0;
            q_parity ^= 1;
        }
    }
};

/* Of chunk number n. */
__device__ __forceinline__ Clock clock_at(int n)
{
    return { n, n % Q_STAGES, (u32)(n / Q_STAGES & 1) };
}
static_assert(K_STAGES == 4 && GATE_STAGES == 4 && V_STAGES == 2 && TP_STAGES == 2, "Clock's parities");

/* ---- Items --------------------------------------------------------------------------------------------------------- */

/*
 * Chunks of one sequence and part of a state head, from a state to a state. Either all of them, or a partition: p.partition
 * chunks, and before them as many as it takes to replay the state that they start from. Parts are numbered through all heads,
 * so that those of one k head are worked on side by side.
 */
struct Item : Sequence {
    int n, part;    /* the sequence; -1: no more items */
    int begin, end; /* its chunks; an empty sequence has one where its state is to be copied */
    int main;       /* chunks before it are there for the state alone: their O and checkpoints are another item's */
    int index;      /* in the order of items; of partitions also the link to the one before, see "Partitions" */
    int start;      /* a line of initial_state, or START_* */

    __device__ __forceinline__ int head() const
    {
        return part / PARTS;
    }
};
/* KEPT: what the CTA's last item ended with. LINK: what lies at the link. IDENTITY, CARRIED: see Carrying. */
enum { START_ZEROS = -1, START_KEPT = -2, START_LINK = -3, START_IDENTITY = -4, START_CARRIED = -5 };

/*
 * Its entry, for the other roles. Lines are of initial_state and final_state, and fit: 2^31 of them are more than any memory.
 * AFTER: a line of final_state, or what comes after a partition: the next item goes on (KEPT), there is a guess to meet at the
 * link (LINK), the state is left there (STATE); the rest: see Carrying.
 */
enum { ITEM_N = 0, ITEM_PART = 4, ITEM_START = 8, ITEM_AFTER = 12, ITEM_BEGIN = 16, ITEM_MAIN = 20, ITEM_END = 24 };
enum { ITEM_INDEX = 28 };
enum { END_KEPT = -2, END_LINK = -3, END_STATE = -4, END_ADDEND = -5, END_TRANSITION = -6, END_NOTHING = -7 };

__device__ __forceinline__ int parts_of_heads(const prefill_params &p)
{
    return p.num_heads * PARTS;
}

/* See Carrying. */
__device__ __forceinline__ bool carries(const prefill_params &p)
{
    return spec::CARRIES && p.carry;
}

/* See By gates. */
__device__ __forceinline__ bool carries_by_gates(const prefill_params &p)
{
    return spec::CARRIES && p.carry == spec::CARRY_BY_GATES;
}

/* Partitions of lengths that follow from the gates; once the tile warp has its first item. */
__device__ __forceinline__ bool by_gates()
{
    return spec::CARRIES && load_shared_u32(at(LISTS_AT) + BY_GATES) != 0;
}

/* From a partition's index to that of the next one of its sequence. */
__device__ __forceinline__ int index_step(const prefill_params &p)
{
    return by_gates() ? 1 : parts_of_heads(p);
}

/* The first value column of a part, in its head. */
__device__ __forceinline__ int column_of(int part)
{
    return part % PARTS * spec::BLOCK_DV;
}

/* With more items than CTAs the longest come first, so that the last to end are short. */
__device__ __forceinline__ bool sorted(const prefill_params &p)
{
    return p.cu_seqlens && !p.partition && p.num_items > (int)gridDim.x && p.num_seqs <= MOST_SORTED;
}

/* By all threads, one a sequence, before any tile is loaded: its rank is the number of longer ones. */
__device__ __forceinline__ void sort_sequences(const prefill_params &p)
{
    if (!sorted(p)) return;
    const int n = (int)threadIdx.x;
    const u32 lens = at(K_AT);
    i64 len = 0;
    if (n < p.num_seqs)
        len = load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n + 1) - load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n);
    const u32 own = len > 0 ? (u32)len : 0;
    if (n < p.num_seqs) store_shared(lens + 4 * n, own);
    __syncthreads();
    if (n >= p.num_seqs) return;
    int rank = 0;
    for (int i = 0; i < p.num_seqs; ++i) {
        const u32 other = load_shared_u32(lens + 4 * i);
        rank += other > own || (other == own && i < n);
    }
    shared[ORDER_AT + rank] = (u8)n;
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int d = 16; d; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* Chunks of a sequence that are work. */
__device__ __forceinline__ int chunks_of(const prefill_params &p, const Sequence &s)
{
    if (s.inert) return 0;
    const int chunks = s.len / C + (s.len % C != 0);
    return chunks == 0 && p.final_state ? 1 : chunks;
}

/* ---- Partitions ---------------------------------------------------------------------------------------------------- */

/*
 * A sequence in partitions of p.partition chunks, an item each. Whatever the gates leave of a state after some chunks is soon
 * too little to matter: an item replays the last chunks of the partition before it from zeros, and takes what comes out as its
 * initial state. That is a guess, and every guess is compared with what the partition before it ended with, by whichever of
 * the two gets there second: it waits for nobody. Where they differ, the last of the pair's items to end makes its CTA repeat
 * the sequence from there, with the right state (docs/prefill_hopper.md). Where the gates leave too much, and the delta rule
 * does not forget it either (see Forgetting), the item before goes on through the partition, or, if p.carry, the state is
 * carried.
 *
 * Carrying. A partition takes the state S before it to M S + N, linear in S: N, its addend, is what comes of zeros, and M, its
 * transition, what comes of the identity and no V. Who takes a partition before which the gates leave too much makes N, and M
 * if the same holds for the one after it, and sets the partition itself aside until all tickets are taken. Its initial state is
 * then made from the last state before it that somebody ended with, by the N and M between. Nobody waits for an item that is
 * set aside.
 *
 * Items lie by rows: sequence n begins at row first_token / (C p.partition) + n, which leaves it as many as it has partitions,
 * whatever the lengths; an item is a row and a part. Control words: the ticket; PAIR_WORDS of each (sequence, part); ITEM_WORDS
 * of each item: for each state warpgroup how far the link to the partition before it is, and its transition; LATER's list. At
 * the link, in p.images, lies a state or the addend of the partition before it, and the transition of the one behind it.
 */
enum { PAIRS_AT = 64, PAIR_WORDS = 4, ITEM_WORDS = 8 }; /* words */
enum { PAIR_DONE = 0, PAIR_FAILED = 1, PAIR_STARTED = 2, PAIR_NEXT = 3 };
enum { WORD_LINK = 0, WORD_TRANSITION = 2, WORD_LATER = 4 }; /* the first two + state warpgroup */
/* At a link: first who came, then 2 when its stores are done; or, where nothing is guessed: */
enum { LINK_MET = 4, LINK_STATE = 8, LINK_ADDEND = 16 };
constexpr u32 FAILED_FIRST = 0x7fffffffu; /* PAIR_FAILED: this less the first partition to repeat; 0: none */
constexpr float ENOUGH_DECAY = -14.0f * LOG2E;

__device__ __forceinline__ int pair_number(const prefill_params &p, int n, int part)
{
    return n * parts_of_heads(p) + part;
}

__device__ __forceinline__ u32 *pair_word(const prefill_params &p, int n, int part, int which)
{
    return p.control + (u32)(PAIRS_AT + PAIR_WORDS * pair_number(p, n, part) + which);
}

__device__ __forceinline__ u32 *item_word(const prefill_params &p, int index, int which)
{
    return p.control + (u32)(PAIRS_AT + PAIR_WORDS * p.num_seqs * parts_of_heads(p) + ITEM_WORDS * index + which);
}

/* Calls that are cut have few tokens enough for 32 bits: a division of 64 is a call, and registers. */
__device__ __forceinline__ int first_row(const prefill_params &p, int n)
{
    const u32 token = p.cu_seqlens ? (u32)load_index<spec::CU_SEQLENS_I64>(p.cu_seqlens, n) : (u32)n * (u32)p.uniform_len;
    return (int)(token / (u32)(C * p.partition)) + n;
}

/* The sequence that has this row, by a warp: each round looks at 32 sequences a step apart and keeps the steps between two. */
__device__ __forceinline__ int sequence_of_row(const prefill_params &p, int row, int lane)
{
    int n = 0, step = 1;
    while (step < (p.num_seqs + 31) / 32)
        step *= 32;
#pragma unroll 1
    for (; step > 0; step /= 32) {
        const i64 m = n + (i64)step * lane;
        n += step * (__popc(__ballot_sync(~0u, m < p.num_seqs && first_row(p, (int)m) <= row)) - 1);
    }
    return n;
}

/* Chunks that are read, and then replayed, before one of them has to be enough. */
constexpr int REPLAY_BATCH = 4;

__device__ __forceinline__ int most_replayed(const prefill_params &p)
{
    return max(2 * p.partition, 2 * REPLAY_BATCH);
}

/*
 * How many chunks before chunk `boundary` decay all that was before them by e^-14; 0: more than are worth it, or so it looks
 * from those that are read, even if the others decay twice as fast. By a warp, the same for every warp that asks.
 */
__device__ __forceinline__ int replay_chunks(const prefill_params &p, const Item &item, int boundary, int lane)
{
    const int most = min(boundary, most_replayed(p));
    const float hopeless = 0.5f * ENOUGH_DECAY / (float)most;
    float sum = 0.0f;
#pragma unroll 1
    for (int before = 0; before < most; before += REPLAY_BATCH) {
        GateReader reader(p, item, item.head(), (boundary - before) * C + 2 * lane);
        RawGate raw[REPLAY_BATCH][2];
#pragma unroll
        for (int i = 0; i < REPLAY_BATCH; ++i) {
            reader.advance(p, -C);
            raw[i][0] = reader.raw_decay(p, 0, before + i < most);
            raw[i][1] = reader.raw_decay(p, 1, before + i < most);
        }
#pragma unroll
        for (int i = 0; i < REPLAY_BATCH; ++i) {
            sum += warp_sum(reader.log2_decay(raw[i][0]) + reader.log2_decay(raw[i][1]));
            if (before + i < most && sum < ENOUGH_DECAY) return before + i + 1;
        }
        if (before > 0 && sum > hopeless * (float)(before + REPLAY_BATCH)) return 0;
    }
    return 0;
}

/* ---- Forgetting ---------------------------------------------------------------------------------------------------- */

/*
 * Where gates leave too much the delta rule may not: a replay then is as long as it takes for both to leave what is a small
 * part of the noise that a link allows for. Both are seen from a sample, 32 tokens of the sequence, the same for all who ask.
 */
constexpr int SAMPLE = 32;
constexpr float ENOUGH_FORGOTTEN = spec::IO_BF16 ? -12.0f : -15.0f; /* log2 */
constexpr float USUALLY_FORGOTTEN = -0.2553f;                      /* of a chunk, |k| = 1, beta = sigmoid(normal) */
constexpr float LEAST_FORGOTTEN = -0.2f; /* slower ones have more noise than a link allows for */
constexpr float MANY_REPLAYED = 16.0f; /* chunks by gates; fewer stay what each boundary's own gates say, to e^-14 */

/* The i-th token of a sample: in each quarter of a sequence eight, a 32nd of it apart. */
__device__ __forceinline__ int sample_token(const Sequence &s, int i)
{
    return i / 8 * (s.len / 4) + i % 8 * (s.len / 32);
}

/* Products of all pairs of a sample's keys as if they were normalised; those of keys by themselves are among them. */
__device__ __forceinline__ void normalise_products(float (&x)[2][4][4], int lane)
{
    const int t = lane % 4;
    const float2 first = row_norms(x[0][0], x[0][1] + 2, lane), second = row_norms(x[1][2], x[1][3] + 2, lane);
    const float r[4] = { first.x, first.y, second.x, second.y }; /* of keys 8 i + g */
#pragma unroll
    for (int n = 0; n < 4; ++n) { /* columns 8 n + 2 t and one on */
        const float even = __shfl_sync(~0u, r[n], 8 * t), odd = __shfl_sync(~0u, r[n], 8 * t + 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i / 2][n][2 * (i % 2)] *= r[i] * even;
            x[i / 2][n][2 * (i % 2) + 1] *= r[i] * odd;
        }
    }
}

/*
 * log2 of what a chunk leaves of a state by the delta rule alone; 0: keys prefer some directions, and there is no telling. A
 * token takes a column x of the state to x - beta k (k . x), and with it, if keys are the same in all directions, |x|^2 to
 * 1 - beta |k|^2 (2 - beta |k|^2) / D of it, in the mean. Whether they are: by the squares of all pairs' products, whose mean
 * then is |k|^4 / D, from 32 keys within a sixteenth. (That a key comes twice says nothing: no square counts for more than
 * |k|^4 / 8.) beta: of the token sample_token(s, lane). By a warp.
 */
__device__ __forceinline__ float forgetting(const prefill_params &p, const Sequence &s, int head, float beta)
{
    constexpr float LIKE = 1.25f;
    const int lane = lane_id(), g = lane / 4, t = lane % 4;
    const u16 *const first = (const u16 *)p.k + row_offset(s, head_of(head, p.k_div, p.k_mod), p.k_batch_stride,
                                                           p.k_token_stride, p.k_head_stride) +
                             sample_token(s, g) * p.k_token_stride + 2 * t;
    const i64 quarter = s.len / 4 * p.k_token_stride;
    float x[2][4][4] = {}; /* products of all pairs */
#pragma unroll 4
    for (int column = 0; column < D; column += 16) {
        u32 left[4], right[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            left[i] = *(const u32 *)(first + i * quarter + column);
            right[i] = *(const u32 *)(first + i * quarter + column + 8);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int m = i / 4, n = i % 4;
            const u32 a[4] = { left[2 * m], left[2 * m + 1], right[2 * m], right[2 * m + 1] }, b[2] = { left[n], right[n] };
            mma_io(x[m][n], a, b);
        }
    }
    if constexpr (spec::QK_L2NORM) normalise_products(x, lane);
    float norms = 0.0f, forgotten = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) { /* key 8 i + g by itself, which is no pair */
        float *const pair = x[i / 2][i] + 2 * (i % 2);
        const float norm = g % 2 ? pair[1] : pair[0], step = __shfl_sync(~0u, beta, 8 * i + g) * norm;
        const bool own = g / 2 == t;
        norms += own ? norm : 0.0f;
        forgotten += own ? step * (2.0f - step) : 0.0f;
        pair[0] = own && g % 2 == 0 ? 0.0f : pair[0];
        pair[1] = own && g % 2 == 1 ? 0.0f : pair[1];
    }
    const float mean = warp_sum(norms) * (1.0f / SAMPLE), most = mean * mean * (1.0f / 8);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const float product = x[i / 16][i / 4 % 4][i % 4];
        squares += product * product < most ? product * product : most; /* a NaN counts too */
    }
    const bool alike = warp_sum(squares) * (float)D <= LIKE * (float)(SAMPLE * (SAMPLE - 1)) * mean * mean;
    const float left = 1.0f - warp_sum(forgotten) * (1.0f / (D * SAMPLE));
    return alike ? 0.5f * C * log2f(left) : 0.0f;
}

/* The largest of a sample's four quarters, times four: a replay must be long enough where gates decay least. By a warp. */
__device__ __forceinline__ float largest_quarter(float x)
{
#pragma unroll
    for (int d = 1; d < 8; d *= 2)
        x += __shfl_xor_sync(~0u, x, d);
#pragma unroll
    for (int d = 8; d < 32; d *= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return 4.0f * x;
}

/* How many chunks forget enough, by this decay of theirs (log2) and the delta rule; 0: there is no telling. By a warp. */
__device__ __forceinline__ float forgetting_chunks(const prefill_params &p, const Sequence &s, int head, float beta,
                                                   float decay)
{
    const float rate = forgetting(p, s, head, beta);
    return rate < 0.0f && decay + rate <= LEAST_FORGOTTEN ? ceilf(__fdividef(ENOUGH_FORGOTTEN, decay + rate)) : 0.0f;
}

/* ---- By gates ------------------------------------------------------------------------------------------------------ */

/*
 * Where p.carry is spec::CARRY_BY_GATES and pairs of a sequence and a head are found that hardly decay, SMs are dealt out by
 * what pairs cost, and a pair's partitions lie one after the other in the order of items:
 *
 *     decays, or forgets where that takes less than to be carried:
 *               the first partition is longer than the others, by as many chunks as these replay;
 *     carried:  the others have three runs, addend, transition and their own, so that the first one, which has only its own,
 *               is twice as long, and done when the transitions are; its CTA takes the last one too, which needs neither
 *               addend nor transition.
 *
 * How much gates decay is seen from a sample, the same for all CTAs. It decides lengths, and who takes the last partition, but
 * of pairs that decay or are carried never what is guessed.
 */
constexpr float CARRY_RUNS = 3.0f, FIRST_LENGTHS = 2.0f;
constexpr float STEP = 1.5f, TAKE = 1.0f; /* in chunks: of a state through a transition; of taking an item */
constexpr int SHORTEST = 4;               /* chunks of a partition */
constexpr float FORGETTING_RUN = 1.3f;    /* a chunk of runs that replay many, by one of carried runs: measured */
/* A word's upper half: chunks that the pair's partitions replay, or CARRIED_PAIR in their place; and FORGETS. */
constexpr u32 FORGETS = 0x8000, CARRIED_PAIR = FORGETS - 1;
constexpr u32 NO_PAIR = 0xff;
static_assert(spec::CUT_PAIRS <= MOST_CUTS && spec::CUT_PARTITIONS <= (int)NO_PAIR, "a pair a lane, numbers of 8 bits");

/* A pair's word: index of its first partition, how many it has, its upper half. */
__device__ __forceinline__ u32 cut_word(int pair)
{
    return load_shared_u32(at(CUTS_AT) + 4 * pair);
}

__device__ __forceinline__ int cut_base(u32 word)
{
    return (int)(word & 0xff);
}

__device__ __forceinline__ int cut_count(u32 word)
{
    return (int)(word >> 8 & 0xff);
}

__device__ __forceinline__ bool is_carried(u32 word)
{
    return word >> 16 == CARRIED_PAIR;
}

__device__ __forceinline__ int cut_replayed(u32 word)
{
    return (int)(word >> 16 & (FORGETS - 1));
}

__device__ __forceinline__ u32 cut_word_of(const prefill_params &p, const Item &item)
{
    return cut_word(pair_number(p, item.n, item.part));
}

/*
 * How many chunks before it an item replays; 0: its state is not guessed. Of lengths that follow from the gates as planned
 * where the delta rule forgets; else as the gates before it say, and of partitions of one length, where these leave too much,
 * as many as forget enough. By a warp.
 */
__device__ __forceinline__ int replayed_by(const prefill_params &p, const Item &item, int lane)
{
    const bool gates = by_gates();
    const u32 word = gates ? cut_word_of(p, item) : 0;
    if (word >> 16 & FORGETS) return min(cut_replayed(word), item.begin);
    const int replayed = replay_chunks(p, item, item.begin, lane);
    return replayed > 0 || gates || p.most_forgetting == 0 ? replayed
                                                           : shared[FORGETTING_AT + pair_number(p, item.n, item.part)];
}

/* Index of the last partition of an item's pair, if that is for the CTA of the first one; else -1. */
__device__ __forceinline__ int last_of_first(const prefill_params &p, const Item &item)
{
    if (!by_gates()) return -1;
    const u32 word = cut_word_of(p, item);
    return is_carried(word) && cut_count(word) > 1 ? cut_base(word) + cut_count(word) - 1 : -1;
}

/* Where a partition begins, or for a number behind the last one the sequence's end: those behind the first one are alike. */
__device__ __forceinline__ int cut_begin(u32 word, int partition, int chunks)
{
    const float count = (float)cut_count(word);
    const float length = is_carried(word) ? __fdividef((float)chunks, count - 1.0f + FIRST_LENGTHS)
                                          : __fdividef((float)(chunks - cut_replayed(word)), count);
    return partition == 0 ? 0 : chunks - (int)((count - (float)partition) * length);
}

/* How long up to n CTAs take for a pair, in chunks, if its partitions replay, and if they are carried. */
__device__ __forceinline__ float replay_time(float chunks, float replayed, float n)
{
    return __fdividef(chunks - replayed, n) + replayed + TAKE;
}

__device__ __forceinline__ float carry_time(float chunks, float n)
{
    n = fmaxf(fminf(n, sqrtf(CARRY_RUNS / STEP * chunks) - FIRST_LENGTHS), 1.0f);
    return __fdividef(CARRY_RUNS * chunks, n + FIRST_LENGTHS) + STEP * n;
}

/*
 * Whether a replay of by_keys chunks, which forget, is better than one of by_gates chunks, or, where that is -1, than to be
 * carried, n CTAs a pair; of partitions of one length, which ask gates first, whether it is no longer than they are.
 */
__device__ __forceinline__ bool better_forgets(const prefill_params &p, float chunks, float by_keys, float by_gates, float n)
{
    if (chunks <= by_keys) return false; /* empty ones too, of which nothing is read */
    if (!carries_by_gates(p))
        return by_gates < 0.0f && chunks > (float)p.partition && by_keys <= (float)p.most_forgetting;
    return by_gates >= 0.0f ? by_gates > MANY_REPLAYED && by_keys < by_gates
                            : FORGETTING_RUN * replay_time(chunks, by_keys, n) < carry_time(chunks, n);
}

/* Where sample_pairs() has what it finds of a pair, in what will be the first K tile. */
__device__ __forceinline__ u32 sampled(int pair)
{
    return at(K_AT) + 16 * pair;
}

/*
 * Of each pair: chunks; how many of them decay enough, -1: more than are worth it; how many forget enough, 0: that is no
 * better. Of partitions of one length the last of these alone, in FORGETTING_AT. Keys are asked where usual ones would be of
 * use. By all warps, in little code: each line of it is fetched for the first time.
 */
__device__ __forceinline__ void sample_pairs(const prefill_params &p)
{
    if (!carries_by_gates(p) && p.most_forgetting == 0) return;
    const int lane = threadIdx.x % 32;
    const float share = __fdividef((float)gridDim.x, (float)(p.num_seqs * parts_of_heads(p)));
#pragma unroll 1
    for (int pair = threadIdx.x / 32; pair < p.num_seqs * parts_of_heads(p); pair += spec::THREADS / 32) {
        const int n = pair / parts_of_heads(p), head = (pair - n * parts_of_heads(p)) / PARTS;
        const Sequence s = find_sequence(p, n);
        const GateReader reader(p, s, head, sample_token(s, lane));
        const float gate = reader.log2_decay(reader.raw_decay(p, 0, s.len > 0 && !s.inert)) * ((float)C / SAMPLE);
        const float decay = warp_sum(gate), least = largest_quarter(gate), chunks = (float)chunks_of(p, s);
        /* Half of what it takes: a sample errs, by a tenth where gates are as trained ones. NaN, as replay_chunks() has it. */
        const bool carried = !(decay * (float)most_replayed(p) <= 0.5f * ENOUGH_DECAY);
        const float by_gates = carried ? -1.0f : fminf(__fdividef(ENOUGH_DECAY, decay), (float)most_replayed(p));
        float by_keys = __fdividef(ENOUGH_FORGOTTEN, least + USUALLY_FORGOTTEN);
#pragma unroll 1 /* usual keys, then these, by one piece of code */
        for (bool asked = false; by_keys > 0.0f; asked = true) {
            if (!better_forgets(p, chunks, by_keys, by_gates, share)) by_keys = 0.0f;
            if (asked || by_keys == 0.0f) break;
            by_keys = forgetting_chunks(p, s, head, GateReader::beta_of(reader.raw_beta(p, 0, true)), least);
        }
        by_keys = fmaxf(by_keys, 0.0f); /* states that grow, and NaN */
        if (lane == 0 && carries_by_gates(p))
            store_shared(sampled(pair), __float_as_uint(chunks), __float_as_uint(by_gates), __float_as_uint(by_keys), 0u);
        if (lane == 0 && !carries_by_gates(p)) shared[FORGETTING_AT + pair] = (u8)by_keys;
        __syncwarp(); /* the next pair's mma */
    }
}

/*
 * How many CTAs a pair takes, to be done in `time`, or nearly so. Carried, n of them cut it in m = n + FIRST_LENGTHS
 * lengths, and CARRY_RUNS chunks / m + STEP n is `time`, the smaller root of two, or the least that there is.
 */
__device__ __forceinline__ float ctas_of(float chunks, float replayed, float time)
{
    if (chunks <= time) return 1.0f;
    float n = __fdividef(chunks - replayed, fmaxf(time - replayed - TAKE, (float)SHORTEST)), most = chunks;
    if (replayed < 0.0f) {
        const float c = 4.0f * STEP * CARRY_RUNS * chunks, b = fmaxf(time + STEP * FIRST_LENGTHS, sqrtf(c));
        n = __fdividef(c, 2.0f * STEP * (b + sqrtf(fmaxf(b * b - c, 0.0f)))) - FIRST_LENGTHS;
        most = chunks - SHORTEST * FIRST_LENGTHS;
    }
    return fmaxf(fminf(ceilf(n), floorf(most * (1.0f / SHORTEST))), 1.0f);
}

/* The words of all pairs, from what was sampled, if any is carried or forgets. By the tile warp, a lane a pair. */
__device__ __forceinline__ void cut_by_gates(const prefill_params &p, int lane)
{
    const int pairs = p.num_seqs * parts_of_heads(p);
    uint4 x = { 0, 0, 0, 0 };
    if (lane < pairs) x = load_shared_16(sampled(lane));
    const float chunks = __uint_as_float(x.x), by_keys = __uint_as_float(x.z);
    float replayed = __uint_as_float(x.y); /* carried: -1 */
    const bool forgets = by_keys > 0.0f;
    if (forgets) replayed = by_keys;
    const bool carried = replayed < 0.0f && chunks > 0.0f;
    async_proxy_fence(); /* what was read there is gone soon */
    if (!__any_sync(~0u, (carried || forgets) && chunks > 3.0f * SHORTEST)) return;
    const float ctas = (float)(gridDim.x + MOST_CUTS - pairs); /* lanes without a pair take one too */
    float least = __fdividef(warp_sum(carried ? CARRY_RUNS * chunks : chunks),
                             (float)gridDim.x + FIRST_LENGTHS * (float)__popc(__ballot_sync(~0u, carried)));
    float time = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(chunks))), n = 1.0f; /* a CTA a pair is enough */
#pragma unroll 1
    for (int halvings = 8; halvings > 0; --halvings) { /* in log time: the shortest for which there are enough CTAs */
        const float middle = sqrtf(least * time), tried = ctas_of(chunks, replayed, middle);
        if (warp_sum(tried) > ctas) {
            least = middle;
        } else {
            time = middle;
            n = tried;
        }
    }
    const int count = lane < pairs ? (int)n + (carried && n > 1.0f) : 0;
    int sum = count;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    const u32 base = lane < pairs ? (u32)(sum - count) : NO_PAIR;
    const u32 upper = carried ? CARRIED_PAIR : min((u32)replayed, CARRIED_PAIR - 1) | (forgets ? FORGETS : 0);
    store_shared(at(CUTS_AT) + 4 * lane, base | (u32)count << 8 | upper << 16);
    if (lane == 31) store_shared(at(LISTS_AT) + BY_GATES, (u32)sum);
    __syncwarp();
}

/* The pair that has this partition. By a warp. */
__device__ __forceinline__ int pair_of(int index, int lane)
{
    return __popc(__ballot_sync(~0u, cut_base(cut_word(lane)) <= index)) - 1;
}

/*
 * Of item.index: a sequence, or one partition of it without what that replays; no chunks where the row is nobody's. By a warp.
 */
__device__ __forceinline__ void find_item(Item &item, const prefill_params &p, int lane)
{
    const bool gates = by_gates();
    const int place = gates ? pair_of(item.index, lane) : item.index, row = place / parts_of_heads(p);
    item.part = place - row * parts_of_heads(p);
    item.n = row;
    if (p.partition && !gates)
        item.n = sequence_of_row(p, row, lane);
    else if (sorted(p))
        item.n = shared[ORDER_AT + row];
    (Sequence &)item = find_sequence(p, item.n);
    item.begin = 0;
    item.end = chunks_of(p, item);
    if (gates) {
        const u32 word = cut_word(place);
        const int partition = item.index - cut_base(word), chunks = item.end;
        item.begin = cut_begin(word, partition, chunks);
        item.end = cut_begin(word, partition + 1, chunks);
    } else if (p.partition) {
        item.begin = (row - first_row(p, item.n)) * p.partition;
        item.end = min(item.end, item.begin + p.partition);
    }
    item.main = item.begin;
}

/* Of its sequence and part. */
__device__ __forceinline__ int partitions_of(const prefill_params &p, const Item &item)
{
    return by_gates() ? cut_count(cut_word_of(p, item)) : (chunks_of(p, item) + p.partition - 1) / p.partition;
}

/* Whether it ends where another partition of its sequence begins. */
__device__ __forceinline__ bool ends_inside(const prefill_params &p, const Item &item)
{
    return p.partition && item.end < chunks_of(p, item);
}

/* ---- The order of items -------------------------------------------------------------------------------------------- */

/*
 * Number in the order of items. Dealt out by a counter where the call has a workspace, else in turn. Of partitions the first is
 * too: an item may wait for one of a lower number, which somebody then has.
 */
__device__ __forceinline__ int next_index(const prefill_params &p, int index, int lane)
{
    if (index < 0 && !p.partition) return blockIdx.x;
    if (!p.control) return index + gridDim.x;
    if (lane == 0) index = (p.partition ? 0 : gridDim.x) + (int)take_ticket(p.control);
    return __shfl_sync(~0u, index, 0);
}

__device__ __forceinline__ u32 entry_of(int number)
{
    return at(ITEM_AT) + ENTRY * (number % ITEM_SLOTS);
}

/* Set aside for when no ticket is left. By a warp. */
__device__ __forceinline__ void set_aside(const prefill_params &p, int index, int lane)
{
    if (lane == 0) {
        *item_word(p, index, WORD_LATER) = load_shared_u32(at(LISTS_AT) + LATER);
        store_shared(at(LISTS_AT) + LATER, (u32)index + 1);
    }
    __syncwarp();
}

/* Index of what was set aside last, -1: nothing. By a warp. */
__device__ __forceinline__ int take_set_aside(const prefill_params &p, int lane)
{
    const int index = (int)load_shared_u32(at(LISTS_AT) + LATER) - 1;
    __syncwarp();
    if (lane == 0 && index >= 0) store_shared(at(LISTS_AT) + LATER, *item_word(p, index, WORD_LATER));
    return index;
}

/*
 * Partition `item` follows the CTA's last item. guessed: so is the state before it; else the gates leave too much. True: item
 * is what the CTA does next for it.
 */
__device__ __forceinline__ bool follow_up(Item &item, const prefill_params &p, u32 last, bool guessed, int lane)
{
    const bool addend = (int)load_shared_u32(last + ITEM_AFTER) == END_ADDEND;
    const bool carried = (int)load_shared_u32(last + ITEM_START) == START_CARRIED;
    if (!guessed && !carries(p)) {
        item.start = START_KEPT;
        return true;
    }
    if (!guessed && addend) { /* its transition is wanted too */
        item.index -= index_step(p);
        item.end = item.main = item.begin;
        item.begin = (int)load_shared_u32(last + ITEM_BEGIN); /* the addend's, which replays nothing */
        item.start = START_IDENTITY;
        return true;
    }
    __syncwarp();
    if (guessed != addend || lane != 0) return false;
    /* Nobody is that far: its last tile is not announced yet. */
    store_shared(last + ITEM_AFTER, (u32)(guessed || carried ? (int)END_NOTHING : (int)END_STATE));
    return false;
}

/*
 * The CTA's next item with anything to do, after that of `index` (-1: its first), whose entry is `last`: what partition
 * `following` of the same sequence asks of it (-1: there is none), then, behind a first partition, the last one if that is its
 * own, else what nobody has, else what was set aside.
 */
__device__ __forceinline__ Item item_after(const prefill_params &p, int index, int following, u32 last, int lane)
{
    Item item;
    int ticketless = following; /* what comes without a ticket, or -1 */
#pragma unroll 1
    for (bool follows = following >= 0; p.num_seqs > 0;) {
        index = ticketless >= 0 ? ticketless : next_index(p, index, lane);
        const bool tickets = index < (by_gates() ? (int)load_shared_u32(at(LISTS_AT) + BY_GATES) : p.num_items);
        if (!tickets) index = take_set_aside(p, lane);
        if (index < 0) break;
        item.index = index;
        find_item(item, p, lane);
        item.start = START_CARRIED;
        if (!tickets) return item;
        const bool elsewhere = ticketless < 0 && index == last_of_first(p, item);
        ticketless = -1;
        if (item.begin >= item.end || elsewhere) continue;
        item.start = item.from_zeros ? (int)START_ZEROS : (int)item.from;
        if (item.begin == 0) return item;
        const int replayed = replayed_by(p, item, lane);
        if (follows) {
            if (follow_up(item, p, last, replayed > 0, lane)) return item;
            follows = false;
            if ((int)load_shared_u32(last + ITEM_MAIN) == 0) ticketless = last_of_first(p, item);
            continue;
        }
        item.start = START_ZEROS;
        item.begin -= replayed;
        if (replayed > 0) return item;
        if (!carries(p)) continue; /* who has the partition before it goes on */
        set_aside(p, index, lane);
        if (!ends_inside(p, item)) continue;
        item.main = item.end;
        return item;
    }
    item.n = -1;
    return item;
}

/* The state that it starts from comes to L2 while the item before it is worked on. By one lane. */
__device__ __forceinline__ void prefetch_state(const prefill_params &p, const Item &item)
{
    constexpr int BYTES = spec::STATE_TYPE == TYPE_F32 ? 4 : 2, COLUMNS = spec::STATE_KV ? D : spec::BLOCK_DV;
    if (item.start < 0) return;
    const StateAt<const void> state = initial_state(p, item.from, item.head());
    const u8 *const first = (const u8 *)state.base + state.index(0, COLUMNS < D ? column_of(item.part) : 0) * BYTES;
    if ((u64)first % 16 == 0) bulk_prefetch(first, D * COLUMNS * BYTES);
}

/* What its state is for, a line of final_state or END_*, as far as is known yet. */
__device__ __forceinline__ int after_item(const prefill_params &p, const Item &item)
{
    if (item.n < 0 || !ends_inside(p, item)) return (int)item.to;
    if (item.main < item.end) return END_LINK;
    return item.start == START_IDENTITY ? END_TRANSITION : END_ADDEND;
}

__device__ __forceinline__ u32 keeper_of(int number)
{
    return at(KEEPER_AT) + 4 * (number % ITEM_SLOTS);
}

/*
 * T of the first chunks of a partition that a CTA runs three times is kept in p.t_images, and the addend is the first of the
 * three: the chunks' flag, and the first one's place there. 0: not, as of a last partition, which has no addend.
 */
__device__ __forceinline__ u32 keeper(const prefill_params &p, const Item &item)
{
    const bool addend = item.start == START_ZEROS && item.main == item.end;
    if (!by_gates() || !ends_inside(p, item)) return 0;
    if (!addend && item.start != START_IDENTITY && item.start != START_CARRIED) return 0;
    return (u32)(item.index * spec::KEPT_CHUNKS) << ITEM_SHIFT | (addend ? CHUNK_KEEPS_T : CHUNK_HAS_T);
}

/*
 * The CTA's item of this number, for the other roles. Slots are free without a barrier: at chunk n the tile warp has seen chunk
 * n - 5 used, which nobody does before all have left chunk n - 6, and every item has a chunk.
 */
__device__ __forceinline__ void publish(const prefill_params &p, const Item &item, int number, int lane)
{
    if (p.partition && number >= ITEM_SLOTS) /* left long ago: no phase of ITEM_LEFT goes by unseen */
        mbar_wait(bar(ITEM_LEFT + number % ITEM_SLOTS), (number / ITEM_SLOTS - 1) & 1);
    if (lane == 0) {
        const u32 entry = entry_of(number);
        if (item.n >= 0 && item.start == START_KEPT) /* nobody is that far: its last tile is not announced yet */
            store_shared(entry_of(number - 1) + ITEM_AFTER, (u32)END_KEPT);
        store_shared(entry, (u32)item.n, (u32)item.part, (u32)item.start, (u32)after_item(p, item));
        store_shared(entry + 16, (u32)item.begin, (u32)item.main, (u32)item.end, (u32)item.index);
        if (spec::CARRIES && p.partition && item.n >= 0) store_shared(keeper_of(number), keeper(p, item));
        mbar_arrive(bar(ITEM_FULL + number % ITEM_SLOTS));
        if (item.n >= 0) prefetch_state(p, item);
    }
    __syncwarp();
}

/* Waits for it; n -1: there is none. */
__device__ __forceinline__ Item published(const prefill_params &p, int number)
{
    mbar_wait(bar(ITEM_FULL + number % ITEM_SLOTS), number / ITEM_SLOTS & 1);
    const u32 entry = entry_of(number);
    Item item;
    item.n = (int)load_shared_u32(entry + ITEM_N);
    if (item.n < 0) return item;
    item.part = (int)load_shared_u32(entry + ITEM_PART);
    item.start = (int)load_shared_u32(entry + ITEM_START);
    item.begin = (int)load_shared_u32(entry + ITEM_BEGIN);
    item.main = (int)load_shared_u32(entry + ITEM_MAIN);
    item.end = (int)load_shared_u32(entry + ITEM_END);
    item.index = (int)load_shared_u32(entry + ITEM_INDEX);
    (Sequence &)item = find_sequence(p, item.n);
    return item;
}

/* ---- Repairs ------------------------------------------------------------------------------------------------------- */

/*
 * Who ends the last item of a pair that has a wrong guess in it adds the pair to its CTA's list, whose head is a word in shared
 * memory (0: none, else pair + 1), and which goes on in PAIR_NEXT.
 */
/* By the output warp, when O of the item is on its way. */
__device__ __forceinline__ void finish_partition(const prefill_params &p, const Item &item, int number, int lane)
{
    const int partitions = partitions_of(p, item);
    bulk_wait<0>();
    mbar_wait(bar(ITEM_DONE + (number & 1)), number >> 1 & 1);
    release(); /* of each lane: its rows of O, and what the state warps have stored */
    __syncwarp();
    if (lane != 0) return;
    if (partitions > 1 && item.start != START_LINK && item.main < item.end &&
        take_ticket(pair_word(p, item.n, item.part, PAIR_DONE)) == (u32)partitions - 1) {
        acquire();
        if (peek(pair_word(p, item.n, item.part, PAIR_FAILED)) != 0) {
            *pair_word(p, item.n, item.part, PAIR_NEXT) = load_shared_u32(at(LISTS_AT) + REPAIRS);
            store_shared(at(LISTS_AT) + REPAIRS, (u32)(pair_number(p, item.n, item.part) + 1));
        }
    }
    mbar_arrive(bar(ITEM_LEFT + number % ITEM_SLOTS));
}

/* By the tile warp, after the last ticket: once all the CTA's items are left, a pair to repeat from its first wrong guess. */
__device__ __forceinline__ Item next_repair(const prefill_params &p, int items, int lane)
{
    Item item;
    item.n = -1;
    if (!p.partition) return item;
    if (items > 0) mbar_wait(bar(ITEM_LEFT + (items - 1) % ITEM_SLOTS), (items - 1) / ITEM_SLOTS & 1);
    const int pair = (int)load_shared_u32(at(LISTS_AT) + REPAIRS) - 1;
    __syncwarp();
    if (pair < 0) return item;
    item.n = pair / parts_of_heads(p);
    item.part = pair - item.n * parts_of_heads(p);
    (Sequence &)item = find_sequence(p, item.n);
    const int first = (int)(FAILED_FIRST - peek(pair_word(p, item.n, item.part, PAIR_FAILED)));
    if (lane == 0) store_shared(at(LISTS_AT) + REPAIRS, *pair_word(p, item.n, item.part, PAIR_NEXT));
    async_proxy_fence(); /* O's rows are written once more */
    item.end = chunks_of(p, item);
    if (by_gates()) {
        const u32 word = cut_word(pair);
        item.index = cut_base(word) + first;
        item.begin = cut_begin(word, first, item.end);
    } else {
        item.index = (first_row(p, item.n) + first) * parts_of_heads(p) + item.part;
        item.begin = first * p.partition;
    }
    item.main = item.begin;
    item.start = START_LINK;
    return item;
}

/* A tile's place in its tensor map. */
struct TileAt {
    int token, half, head, batch;
};

/*
 * What the tile warp needs of an item, a course: in shared memory, since its registers are wanted for finding the next one.
 * V: its head times PARTS, and the part of it. FOLLOWING: index of the partition after it in its sequence, or -1.
 */
enum { COURSE_TOKEN = 0, COURSE_BATCH = 4, COURSE_Q = 8, COURSE_K = 12, COURSE_V = 16, COURSE_LEN = 20 };
enum { COURSE_INDEX = 24, COURSE_FOLLOWING = 28 };

__device__ __forceinline__ u32 course_of(int number)
{
    return at(COURSE_AT) + GATE * (number & 1);
}

/* By one lane. */
__device__ __forceinline__ void set_course(const prefill_params &p, const Item &item, int number)
{
    const u32 course = course_of(number);
    const bool transition = item.start == START_IDENTITY; /* V is zeros: of a head that there is not */
    store_shared(course, (u32)item.first, (u32)item.batch, (u32)head_of(item.head(), p.q_div, p.q_mod),
                 (u32)head_of(item.head(), p.k_div, p.k_mod));
    store_shared(course + 16, (u32)(transition ? -1 : head_of(item.head(), p.v_div, p.v_mod) * PARTS + item.part % PARTS),
                 (u32)item.len, (u32)item.index,
                 ends_inside(p, item) && !transition ? (u32)(item.index + index_step(p)) : (u32)-1);
}

/* ---- Producer: tiles ----------------------------------------------------------------------------------------------- */

/* Rows from `rows` on of a tile of so many bytes become zeros. */
template <int BYTES> __device__ __forceinline__ void clear_rest(u32 tile, int rows, int lane)
{
    for (int i = rows * 8 + lane; i < C * 8; i += 32) {
        store_shared(tile + 16 * i, 0, 0, 0, 0);
        if (BYTES > HALF) store_shared(tile + HALF + 16 * i, 0, 0, 0, 0);
    }
}

struct Tiles {
    TileAt q, k, v;
};

__device__ __forceinline__ Tiles tiles_of(u32 course, int step)
{
    const int token = (int)load_shared_u32(course + COURSE_TOKEN) + step * C;
    const int batch = (int)load_shared_u32(course + COURSE_BATCH);
    const int v = (int)load_shared_u32(course + COURSE_V);
    return { { token, 0, (int)load_shared_u32(course + COURSE_Q), batch },
             { token, 0, (int)load_shared_u32(course + COURSE_K), batch },
             { token, v % PARTS, v / PARTS, batch } };
}

/* The maps come while the first item is looked for; a call without tokens has none. By one lane. */
__device__ __forceinline__ void prefetch_maps(const prefill_params &p)
{
    tma_prefetch_map(&p.k_map);
    tma_prefetch_map(&p.q_map);
    tma_prefetch_map(&p.v_map);
    tma_prefetch_map(&p.o_map);
}

/* By one lane. */
__device__ __forceinline__ void load_tile(u32 to, const void *map, u32 bar, const TileAt &from)
{
    tma_load(to, map, bar, from.token, from.half, from.head, from.batch);
}

/* A barrier's only tile, or the first of them: BYTES in all. */
template <int BYTES>
__device__ __forceinline__ void load_first_tile(u32 to, const void *map, u32 full, const TileAt &from, int lane)
{
    if (lane == 0) {
        mbar_arrive_expect(full, BYTES);
        load_tile(to, map, full, from);
    } else if (ARRIVALS_PER_WARP == 32) {
        mbar_arrive(full);
    }
    __syncwarp();
}

/* A sequence's last chunk: what TMA brings past its end is another's, and a NaN there must not spread. */
__device__ __forceinline__ void load_tail(const prefill_params &p, const Tiles &from, const Clock &c, int rows,
                                          u32 &parity, int lane)
{
    if (rows > 0) {
        if (lane == 0) {
            mbar_arrive_expect(bar(TAIL), 2 * TILE + V_TILE);
            load_tile(c.k(), &p.k_map, bar(TAIL), from.k);
            load_tile(c.q(), &p.q_map, bar(TAIL), from.q);
            load_tile(c.v(), &p.v_map, bar(TAIL), from.v);
        }
        mbar_wait(bar(TAIL), parity);
        parity ^= 1;
    }
    clear_rest<TILE>(c.k(), rows, lane);
    clear_rest<TILE>(c.q(), rows, lane);
    clear_rest<V_TILE>(c.v(), rows, lane);
    async_proxy_fence();
    mbar_arrive_warp(bar(CHUNK_FULL + (c.n & 3)), lane);
    mbar_arrive_warp(bar(V_FULL + (c.n & 1)), lane);
    __syncwarp();
}

/* V of chunk n: one chunk behind K and Q, whose rings are deeper, so that waiting for its slot does not keep them waiting. */
__device__ __forceinline__ void load_v(const prefill_params &p, int n, int lane)
{
    const u32 from = at(V_WAITS_AT);
    mbar_wait(bar(V_EMPTY + (n & 1)), n >> 1 & 1 ^ 1);
    const TileAt v = { (int)load_shared_u32(from), PARTS > 1 ? (int)load_shared_u32(from + 12) : 0,
                       (int)load_shared_u32(from + 4), (int)load_shared_u32(from + 8) };
    load_first_tile<V_TILE>(at(V_AT) + (n & 1) * V_TILE, &p.v_map, bar(V_FULL + (n & 1)), v, lane);
}

/*
 * Finds the item of this number, after the one before it, and says so to all. tickets: there may be some that nobody has; else
 * what is to be repeated, or the end, which is said too. False when there is none.
 */
__device__ __forceinline__ bool take_item(const prefill_params &p, int number, bool tickets, int lane)
{
    Item item;
    if (tickets) {
        const u32 before = course_of(number - 1);
        const int index = number == 0 ? -1 : (int)load_shared_u32(before + COURSE_INDEX);
        item = item_after(p, index, number == 0 ? -1 : (int)load_shared_u32(before + COURSE_FOLLOWING), entry_of(number - 1),
                          lane);
        if (item.n < 0) return false;
    } else {
        item = next_repair(p, number, lane);
    }
    if (lane == 0 && item.n >= 0) set_course(p, item, number);
    publish(p, item, number, lane);
    return item.n >= 0;
}

/* K, Q and V of chunk n, V's with the next one. v_waits: V of the chunk before is still to be loaded. */
__device__ __forceinline__ void load_chunk(const prefill_params &p, int n, u32 course, int step, bool &v_waits,
                                           u32 &tail_parity, int lane)
{
    const Clock c = clock_at(n);
    const int rows = min((int)load_shared_u32(course + COURSE_LEN) - step * C, C);
    const Tiles from = tiles_of(course, step);
    mbar_wait(bar(K_EMPTY + (n & 3)), c.parity4() ^ 1);
    if (rows == C) load_first_tile<2 * TILE>(c.k(), &p.k_map, bar(CHUNK_FULL + (n & 3)), from.k, lane);
    mbar_wait(bar(Q_EMPTY + c.q_slot), c.q_parity ^ 1);
    if (rows == C && lane == 0) load_tile(c.q(), &p.q_map, bar(CHUNK_FULL + (n & 3)), from.q);
    __syncwarp();
    if (v_waits) load_v(p, n - 1, lane);
    v_waits = rows == C;
    if (v_waits) {
        if (lane == 0) store_shared(at(V_WAITS_AT), (u32)from.v.token, (u32)from.v.head, (u32)from.v.batch, (u32)from.v.half);
        __syncwarp();
        return;
    }
    mbar_wait(bar(V_EMPTY + (n & 1)), c.parity2() ^ 1);
    load_tail(p, from, c, rows, tail_parity, lane);
}

__device__ __forceinline__ void tile_role(const prefill_params &p, int lane)
{
    u32 tail_parity = 0;
    bool v_waits = false, tickets = true, known = false; /* known: the item after this one */
    int number = -1, n = 0; /* item and chunk of this CTA */
    if (carries_by_gates(p)) cut_by_gates(p, lane);
    for (int step = 0;;) {
        /* Read again each time, since a register of them would be one less to find an item with. */
        const u32 entry = entry_of(max(number, 0));
        const int begin = number < 0 ? 0 : (int)load_shared_u32(entry + ITEM_BEGIN);
        const int end = number < 0 ? 0 : (int)load_shared_u32(entry + ITEM_END);
        /* No earlier, so that the longest wait for nobody; behind its first chunk, but before its last. */
        const int take = number < 0 ? 0 : max(end - LOOK_AHEAD, min(begin + 1, end - 1));
        for (const int until = !known && tickets ? take : end; step < until; ++step)
            load_chunk(p, n++, course_of(number), step, v_waits, tail_parity, lane);
        if (!known) {
            if (!tickets && v_waits) load_v(p, n - 1, lane);
            v_waits &= tickets;
            known = take_item(p, number + 1, tickets, lane);
            if (!known && !tickets) break;
            tickets &= known;
        } else {
            ++number;
            known = false;
            step = (int)load_shared_u32(entry_of(number) + ITEM_BEGIN);
            if (spec::CARRIES && rarely((int)load_shared_u32(entry_of(number) + ITEM_START) == START_CARRIED)) {
                if (v_waits) load_v(p, n - 1, lane); /* of the item before: only then its state is made, and the next one's */
                v_waits = false;
                const u32 parity = load_shared_u32(at(LISTS_AT) + CARRIED_PARITY);
                mbar_wait(bar(CARRIED), parity);
                __syncwarp();
                if (lane == 0) store_shared(at(LISTS_AT) + CARRIED_PARITY, parity ^ 1);
                __syncwarp();
            }
        }
    }
    mbar_wait(bar(K_EMPTY + (n & 3)), n >> 2 & 1 ^ 1);
    mbar_arrive_warp(bar(CHUNK_FULL + (n & 3)), lane); /* of a chunk that there is not */
}

/* ---- Producer: gates ----------------------------------------------------------------------------------------------- */

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

/* Largest of a warp's two values a lane, neither negative. */
__device__ __forceinline__ float warp_max(float a, float b)
{
    a = fmaxf(a, b);
#pragma unroll
    for (int d = 16; d; d /= 2)
        a = fmaxf(a, __shfl_xor_sync(~0u, a, d));
    return a;
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

/* Where in a table by pairs tokens 2 `pair` and 2 `pair` + 1 are. */
__device__ constexpr u32 pair_at(u32 pair)
{
    return 64 * (pair / 8) + 16 * (pair % 4) + 8 * (pair / 4 % 2);
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
 * D = (I + L)^-1 of a 16 x 16 diagonal block by substitution in fp32, one column a lane, a block each half of a warp; D^T goes
 * to the block's place in the L tile. The block's strictly lower part is read, column by column.
 *
 * What a chunk runs has to stay in the instruction cache. fp16's state warpgroups, or code that carries states, leave too
 * little for all steps one after the other: there it is a loop, twice the products and a third of the code. L's columns then
 * begin at the diagonal, x[0] is the row that is next, and a step moves the rows below it up; what comes after the last row is
 * never looked at.
 */
__device__ __forceinline__ void invert_diagonal(u32 l_tile, u32 diagonals, int gate_warp)
{
    float x[16];
    const int first = lane_id();
    const u32 diagonal = diagonals + (2 * gate_warp + first / 16) * DIAGONAL;
#pragma unroll
    for (int i = 0; i < 16; ++i)
        x[i] = i == first % 16 ? 1.0f : 0.0f;
    if constexpr (INVERT_BY_LOOP) {
        const u32 to = inverse_row(l_tile, gate_warp);
#pragma unroll 1
        for (int row = 0; row < 16; row += 2) {
            float pair[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                pair[i] = x[0];
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const float4 l = load_shared_float4(diagonal + ((row + i) * DIAGONAL_STRIDE + 4 * q) * 4);
                    if (q > 0) x[4 * q - 1] = x[4 * q] - l.x * pair[i];
                    x[4 * q] = x[4 * q + 1] - l.y * pair[i];
                    x[4 * q + 1] = x[4 * q + 2] - l.z * pair[i];
                    x[4 * q + 2] = x[4 * q + 3] - l.w * pair[i];
                }
            }
            store_shared((to ^ (u32)(row & 8) << 1) + 2 * (row & 7), pack_f16x2(pair[0], pair[1]));
        }
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

/* ---- Producer: output ---------------------------------------------------------------------------------------------- */

/* The first rows of a 64-column half of O, by one warp. */
__device__ __forceinline__ void store_rows(u32 tile, u16 *to, i64 stride, int rows, int lane)
{
    for (int i = lane; i < rows * 8; i += 32) {
        const int row = i >> 3, piece = i & 7;
        *(uint4 *)(to + row * stride + 8 * piece) = load_shared_16(tile + row * 128 + ((piece ^ (row & 7)) << 4));
    }
}

/* O tiles to memory. The proxy fence stands here, past the barrier, and not in the state warps, which have no time for it. */
__device__ __forceinline__ void output_role(const prefill_params &p, int lane)
{
    u32 parity = 0;
    if constexpr (spec::ZERO_PADDING) /* while there is nothing else to do; of any (n, head) each CTA's share */
        for (int index = blockIdx.x; index < max(p.num_seqs, 1) * p.num_heads; index += gridDim.x)
            zero_padding<D>(p, index / p.num_heads, index % p.num_heads, 0, lane, 32);
    for (int number = 0;; ++number) {
        const Item item = published(p, number);
        if (item.n < 0) break;
        /* Up to here chunks have all rows, or nobody wants them. What is rare in a loop would lie between its hot lines. */
        const int whole = min(item.end, max(item.len / C, item.main));
        for (int step = item.begin; step < whole; ++step, parity ^= 1)
            for (int half = 0; half < STATE_GROUPS; ++half) {
                mbar_wait(bar(O_FULL + half), parity);
                if (step >= item.main && lane == 0) {
                    async_proxy_fence();
                    tma_store(&p.o_map, at(O_AT) + half * HALF, (int)item.first + step * C, column_of(item.part) / 64 + half,
                              item.head(), (int)item.batch);
                    bulk_commit();
                    bulk_wait_read<0>();
                }
                mbar_arrive_warp(bar(O_EMPTY + half), lane);
            }
        if (whole < item.end) { /* the sequence's last chunk, or its only one, of no tokens */
            for (int half = 0; half < STATE_GROUPS; ++half) {
                mbar_wait(bar(O_FULL + half), parity);
                store_rows(at(O_AT) + half * HALF,
                           (u16 *)p.o +
                               row_offset(item, item.head(), p.o_batch_stride, p.o_token_stride, p.o_head_stride) +
                               (i64)whole * C * p.o_token_stride + column_of(item.part) + half * 64,
                           p.o_token_stride, item.len - whole * C, lane);
                mbar_arrive_warp(bar(O_EMPTY + half), lane);
            }
            parity ^= 1;
        }
        if (p.partition) finish_partition(p, item, number, lane);
    }
}

/* ---- Aux warpgroups: T and P --------------------------------------------------------------------------------------- */

/* From the descriptor of a K-major tile to that of its k-step s, 16 columns. */
__device__ constexpr u32 key_step(int s)
{
    return ((s >> 2) * HALF + (s & 3) * 32) >> 4;
}

/*
 * x (64 x 64) = A K^T over the 128 columns of two K-major tiles. Descriptors are made opaque, so that sixteen of them are
 * not kept in registers.
 */
__device__ __forceinline__ void issue_gram(float (&x)[32], u32 a_tile, u32 k_tile)
{
    u32 a = k_major(a_tile), b = k_major(k_tile);
    asm volatile("" : "+r"(a), "+r"(b));
#pragma unroll
    for (int i = 0; i < 32; ++i)
        x[i] = 0.0f; /* no tie to the last product's value; the first wgmma ignores it */
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 8; ++s) {
        const u32 step = key_step(s);
        wgmma_ss_n64(x, descriptor(a + step), descriptor(b + step), s > 0);
    }
    wgmma_commit();
}

/* Addresses in a 64 x 64 fp16 tile for stmatrix / ldmatrix of 16 x 16 blocks; block row I: + 2048 I, block column J: ^ 32 J. */
struct BlockLane {
    u32 a; /* (row half, column half) = (0,0) (1,0) (0,1) (1,1): accumulators and operand A */
    u32 b; /* (0,0) (0,1) (1,0) (1,1): operand B of row-major blocks, and transposed stores */
    int g, t;
};

__device__ __forceinline__ BlockLane block_lane(u32 tile)
{
    const int lane = lane_id(), m = lane >> 3, r = lane & 7;
    return { tile + ((m & 1) * 8 + r) * 128 + (u32)((m >> 1) ^ r) * 16,
             tile + ((m >> 1) * 8 + r) * 128 + (u32)((m & 1) ^ r) * 16, lane >> 2, lane & 3 };
}

/* Gates of a band's diagonal 16 x 16 block on and below the diagonal, as fp16 pairs; its upper right quarter is zero. */
struct DiagonalGates {
    u32 top, low, right; /* rows g: columns 2t, 2t+1; rows g + 8: the same columns; rows g + 8: columns 8 + 2t, + 1 */
};

__device__ __forceinline__ DiagonalGates diagonal_gates(u32 table, int band)
{
    const int lane = lane_id(), g = lane >> 2, t = lane & 3, j = 2 * t;
    const u32 logs = table + BAND_LOG + 64 * band;
    const float row0 = load_shared_float(logs + 4 * g), row1 = load_shared_float(logs + 4 * g + 32);
    const float2 left = load_shared_float2(logs + 8 * t), right = load_shared_float2(logs + 8 * t + 32);
    DiagonalGates d;
    d.top = pack_f16x2(j <= g ? exp2_approx(row0 - left.x) : 0.0f, j + 1 <= g ? exp2_approx(row0 - left.y) : 0.0f);
    d.low = pack_f16x2(exp2_approx(row1 - left.x), exp2_approx(row1 - left.y));
    d.right = pack_f16x2(j <= g ? exp2_approx(row1 - right.x) : 0.0f, j + 1 <= g ? exp2_approx(row1 - right.y) : 0.0f);
    return d;
}

/*
 * What the four warps run is one piece of code with the band as a run-time value: four copies would not fit the instruction
 * cache beside the state warpgroups' loop. Accumulators have to be named at compile time, so the diagonal block is selected.
 */
struct Block {
    float x[8]; /* two n-blocks in accumulator layout */
};

__device__ __forceinline__ Block diagonal_block(const float (&x)[32], int band)
{
    Block b;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float low = band == 0 ? x[i] : x[8 + i], high = band == 2 ? x[16 + i] : x[24 + i];
        b.x[i] = band < 2 ? low : high;
    }
    return b;
}

/* Of a band's row g < 8 in a table by pairs; row g + 8 is 8 bytes on. Not by pair_at(), which does not know that g is small. */
__device__ constexpr u32 row_beta(int band, int g)
{
    return 64 * band + 16 * (g >> 1) + 4 * (g & 1);
}
static_assert(row_beta(3, 5) == pair_at(26) + 4 && row_beta(3, 5) + 8 == pair_at(30) + 4, "rows 53 and 61");

/* ---- Norms --------------------------------------------------------------------------------------------------------- */

/*
 * In-kernel norms: q and k stay as they are given, so that nothing normalised is rounded. With r = 1 / norm of rows L_ij gets
 * r_i r_j of k, and P_ij r_i of q and r_j of k; of the state warps' factors e becomes r e (of k in W, of q in O), d becomes
 * r d, in the gate table: those of k before KEYS_NORMED, which W waits for, that of q before T and P stand.
 *
 * r of k is the diagonal of K K^T. All four warps want all of it, from blocks of the L tile above the diagonal, which nobody
 * else has a use for. For q, of which a warp wants its own band's, there are products of their own.
 */
constexpr bool NORMS_LIMIT_W = spec::QK_L2NORM && !spec::IO_BF16; /* r d V' in fp16 */

/* Of chunk n: 16 floats a band, in rows that no swizzle touches, 1024 bytes apart. */
__device__ __forceinline__ u32 key_norms(int n)
{
    return at(L_AT) + (n & 1) * SQUARE + 64;
}

/* Of rows g and g + 8 of a band. */
__device__ __forceinline__ float2 norms_of_rows(u32 norms, int band)
{
    if constexpr (!spec::QK_L2NORM) return { 1.0f, 1.0f };
    const u32 from = norms + 1024 * band + 4 * (lane_id() >> 2);
    return { load_shared_float(from), load_shared_float(from + 32) };
}

/* Of columns 2 t and 2 t + 1 of n-block n. */
__device__ __forceinline__ float2 norms_of_columns(u32 norms, int n)
{
    if constexpr (!spec::QK_L2NORM) return { 1.0f, 1.0f };
    return load_shared_float2(norms + 1024 * (n / 2) + 32 * (n % 2) + 8 * (lane_id() & 3));
}

/* Of the state warps' factors, rows g and g + 8 of a band. By one lane of a row's four. */
__device__ __forceinline__ void fold_norms(u32 factors, int band, float2 r)
{
    const u32 to = factors + row_beta(band, lane_id() >> 2);
    store_shared(to, load_shared_float(to) * r.x);
    store_shared(to + 8, load_shared_float(to + 8) * r.y);
}

/* This band's; folded too. The other warps have them behind the next barrier. */
__device__ __forceinline__ void share_key_norms(const Clock &c, const Block &diagonal, int band)
{
    const int lane = lane_id();
    const float2 r = row_norms(&diagonal.x[0], &diagonal.x[6], lane);
    if ((lane & 2) == 0) {
        store_shared(key_norms(c.n) + 1024 * band + 4 * (lane >> 2) + 32 * (lane & 1), lane & 1 ? r.y : r.x);
        fold_norms(c.table() + (lane & 1 ? DECAY_OUT : DECAY_IN), band, r);
    }
    __syncwarp();
}

/* Of this band's rows of the Q tile, g and g + 8; folded too. */
__device__ __forceinline__ float2 query_norms(const Clock &c, int band)
{
    const u32 from = block_lane(c.q()).a + 2048 * band;
    float x[2][2][4] = {}; /* two sums, that products wait less for each other */
#pragma unroll
    for (int s = 0; s < 8; ++s) {
        u32 a[4];
        ldmatrix_x4(a, (from ^ ((s & 3) << 5)) + (s >> 2) * HALF);
        add_squares(x[s & 1], a);
    }
    const float first[2] = { x[0][0][0] + x[1][0][0], x[0][0][1] + x[1][0][1] },
                second[2] = { x[0][1][2] + x[1][1][2], x[0][1][3] + x[1][1][3] };
    const float2 r = row_norms(first, second, lane_id());
    if ((lane_id() & 3) == 0) fold_norms(c.table() + DECAY_IN_Q, band, r);
    __syncwarp();
    return r;
}

/*
 * fp16: what r of k does to the range of r d V', by powers of two, 2^-below <= r < 2^above. W has to be smaller by 2^above, in
 * W_LIMIT itself, and larger than fits() has it by 2^below, from its bit 16 on in an exponent. By one warp.
 */
constexpr int LIMIT_BELOW = 16;
constexpr int MOST_ABOVE = 10, MOST_BELOW = 20; /* r <= 1000; of less than 2^-20 no bits are left */

__device__ __forceinline__ float power_of_two(int exponent)
{
    return __uint_as_float((u32)(127 + exponent) << 23);
}

__device__ __forceinline__ void limit_by_norms(u32 table, u32 norms)
{
    const int lane = lane_id();
    const float2 r = load_shared_float2(norms + 1024 * (lane / 8) + 8 * (lane % 8));
    const int high = (int)(__reduce_max_sync(~0u, __float_as_uint(fmaxf(r.x, r.y))) >> 23) - 127,
              low = (int)(__reduce_min_sync(~0u, __float_as_uint(fminf(r.x, r.y))) >> 23) - 127;
    const int above = min(max(high + 1, 0), MOST_ABOVE), below = min(max(-low, 0), MOST_BELOW);
    if (lane == 0)
        store_shared(table + W_LIMIT,
                     pack_f16x2(f16_lo(load_shared_u32(table + W_LIMIT)) * power_of_two(-above), 0.0f) |
                         (u32)below << LIMIT_BELOW);
    __syncwarp();
}

/*
 * Scaled rows have their largest between 2^3 and 2^4 (see row_scale()), divided by this: just below the limit, so that the
 * small ones of long keys keep what bits there are. (4: of row_scale(); 15: fp16's bias. A subnormal limit counts as 2^-15.)
 */
__device__ __forceinline__ float norm_size(u32 limits)
{
    return NORMS_LIMIT_W ? power_of_two(4 + 15 - (int)(limits >> 10 & 0x1f)) : 1.0f;
}

/* ---- L and P ------------------------------------------------------------------------------------------------------- */

/*
 * Blocks left of the diagonal: row factors f0, f1 (rows g, g + 8) in fp32, column factors as fp16 pairs, and where there are
 * norms r of the columns.
 */
__device__ __forceinline__ void store_off_diagonal(const float (&x)[32], u32 tile, u32 table, u32 norms, int band, float f0,
                                                   float f1)
{
    const BlockLane at = block_lane(tile);
    const u32 rows = table + BAND_LOG + 64 * band + 4 * at.g;
    const u32 columns = table + COLUMN_DECAY + 16 * band * (band - 1) + 4 * at.t;
    f0 *= exp2_approx(load_shared_float(rows));
    f1 *= exp2_approx(load_shared_float(rows + 32));
#pragma unroll
    for (int J = 0; J < 3; ++J) {
        if (J >= band) break;
        const float *y = &x[8 * J];
        const u32 left = load_shared_u32(columns + 32 * J), right = load_shared_u32(columns + 32 * J + 16);
        const float2 r = norms_of_columns(norms, 2 * J), s = norms_of_columns(norms, 2 * J + 1);
        stmatrix_x4((at.a ^ (J << 5)) + 2048 * band,
                    multiply_f16x2(pack_f16x2(y[0] * f0 * r.x, y[1] * f0 * r.y), left),
                    multiply_f16x2(pack_f16x2(y[2] * f1 * r.x, y[3] * f1 * r.y), left),
                    multiply_f16x2(pack_f16x2(y[4] * f0 * s.x, y[5] * f0 * s.y), right),
                    multiply_f16x2(pack_f16x2(y[6] * f1 * s.x, y[7] * f1 * s.y), right));
    }
}

/* The diagonal block, columns times r of k. */
__device__ __forceinline__ Block normed_diagonal_block(const float (&x)[32], u32 norms, int band)
{
    Block y = diagonal_block(x, band);
    const float2 r = norms_of_columns(norms, 2 * band), s = norms_of_columns(norms, 2 * band + 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        y.x[i] *= i & 1 ? r.y : r.x;
        y.x[4 + i] *= i & 1 ? s.y : s.x;
    }
    return y;
}

/*
 * L of this band: its diagonal block in fp32, by columns (which may begin at the diagonal: what is above it lies behind them),
 * and -L in fp16 left of it.
 */
__device__ __forceinline__ void store_l(const float (&x)[32], const DiagonalGates &gates, u32 l_tile, u32 diagonal,
                                        u32 table, u32 norms, int band)
{
    constexpr int COLUMN = 4 * (DIAGONAL_STRIDE - INVERT_BY_LOOP);
    const int lane = lane_id(), g = lane >> 2, t = lane & 3;
    const u32 betas = table + BETA + row_beta(band, g);
    const float scale = BETA_IN_T ? load_shared_float(table + BETA_SCALE) : 1.0f;
    const float2 r = norms_of_rows(norms, band);
    const float b0 = load_shared_float(betas) * scale * r.x, b1 = load_shared_float(betas + 8) * scale * r.y;
    const Block y = normed_diagonal_block(x, norms, band);
    const u32 to = diagonal + 2 * t * COLUMN + 4 * g;
    store_shared(to, y.x[0] * b0 * f16_lo(gates.top));
    store_shared(to + COLUMN, y.x[1] * b0 * f16_hi(gates.top));
    store_shared(to + 32, y.x[2] * b1 * f16_lo(gates.low));
    store_shared(to + COLUMN + 32, y.x[3] * b1 * f16_hi(gates.low));
    store_shared(to + 8 * COLUMN + 32, y.x[6] * b1 * f16_lo(gates.right));
    store_shared(to + 9 * COLUMN + 32, y.x[7] * b1 * f16_hi(gates.right));
    store_off_diagonal(x, l_tile, table, norms, band, -b0, -b1);
}

/* P of this band; rows g and g + 8 times f0 and f1: the part of scale that P carries, and norms. */
__device__ __forceinline__ void store_p(const float (&x)[32], const DiagonalGates &gates, u32 p_tile, u32 table, u32 norms,
                                        int band, float f0, float f1)
{
    store_off_diagonal(x, p_tile, table, norms, band, f0, f1);
    const BlockLane at = block_lane(p_tile);
    const Block y = normed_diagonal_block(x, norms, band);
    stmatrix_x4((at.a ^ (band << 5)) + 2048 * band, multiply_f16x2(pack_f16x2(y.x[0] * f0, y.x[1] * f0), gates.top),
                multiply_f16x2(pack_f16x2(y.x[2] * f1, y.x[3] * f1), gates.low), 0u,
                multiply_f16x2(pack_f16x2(y.x[6] * f1, y.x[7] * f1), gates.right));
}

/* d (16 x 16) += A B, B as two n-blocks. */
__device__ __forceinline__ void mma_block(float (&d)[2][4], const u32 (&a)[4], const u32 (&b)[4])
{
    const u32 b0[2] = { b[0], b[1] }, b1[2] = { b[2], b[3] };
    mma_f16(d[0], a, b0);
    mma_f16(d[1], a, b1);
}

/* -L_BJ <- D_B times that for this band's blocks, in place; each is loaded while the one before it is multiplied. */
__device__ __forceinline__ void multiply_band(u32 l_tile, int band)
{
    const BlockLane at = block_lane(l_tile);
    u32 d[4], next[4];
    ldmatrix_x4_trans(d, (at.b ^ (band << 5)) + 2048 * band);
    ldmatrix_x4_trans(next, at.a + 2048 * band);
#pragma unroll 1
    for (int J = 0; J < band; ++J) {
        const u32 b[4] = { next[0], next[1], next[2], next[3] };
        float m[2][4] = {};
        const u32 block = (at.a ^ (J << 5)) + 2048 * band;
        ldmatrix_x4_trans(next, (at.a ^ ((J + 1) << 5)) + 2048 * band); /* at last D itself, which nobody wants */
        mma_block(m, d, b);
        stmatrix_x4(block, pack_f16x2(m[0][0], m[0][1]), pack_f16x2(m[0][2], m[0][3]), pack_f16x2(m[1][0], m[1][1]),
                    pack_f16x2(m[1][2], m[1][3]));
    }
}

/* A transposed block of T: rows are T's columns g and g + 8, whose factors are f0 and f1. */
__device__ __forceinline__ void store_t_block(u32 to, const float (&x)[2][4], float f0, float f1)
{
    stmatrix_x4_trans(to, pack_f16x2(x[0][0] * f0, x[0][1] * f0), pack_f16x2(x[0][2] * f1, x[0][3] * f1),
                      pack_f16x2(x[1][0] * f0, x[1][1] * f0), pack_f16x2(x[1][2] * f1, x[1][3] * f1));
}

__device__ __forceinline__ u32 scale_f16x2(u32 x, float factor)
{
    return BETA_IN_T ? pack_f16x2(f16_lo(x) * factor, f16_hi(x) * factor) : x;
}

/*
 * Block column B = band of X = (I + L)^-1, transposed, with M_IJ = D_I L_IJ:  X_BB = D_B,
 * X_IB^T = - sum_{B <= K < I} X_KB^T M_IK^T; the tile holds -M. Accumulators, packed, are operand A of the next row's
 * products. T's columns take beta on the way out, where it is T's.
 */
__device__ __forceinline__ void solve_column(u32 l_tile, u32 t_tile, u32 table, int band)
{
    const BlockLane l = block_lane(l_tile);
    const u32 to = (l.b ^ (band << 5)) - l_tile + t_tile + 2048 * band, betas = table + BETA + row_beta(band, l.g);
    const u32 row = 2048 * band; /* of block row I = band + d: + 2048 d */
    const float b0 = BETA_IN_T ? load_shared_float(betas) : 1.0f;
    const float b1 = BETA_IN_T ? load_shared_float(betas + 8) : 1.0f;
    u32 x[4], b[4];
    float sum[4][2][4] = {};
    ldmatrix_x4(x, (l.a ^ (band << 5)) + row);
    stmatrix_x4_trans(to, scale_f16x2(x[0], b0), scale_f16x2(x[1], b1), scale_f16x2(x[2], b0), scale_f16x2(x[3], b1));
#pragma unroll
    for (int e = 0; e < 3; ++e) {
        if (e >= 3 - band) break; /* rows below e */
#pragma unroll
        for (int d = e + 1; d < 4; ++d) {
            if (d > 3 - band) break;
            ldmatrix_x4(b, (l.b ^ ((band + e) << 5)) + row + 2048 * d);
            mma_block(sum[d], x, b);
        }
        const float(&y)[2][4] = sum[e + 1];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            x[i] = pack_f16x2(y[i >> 1][2 * (i & 1)], y[i >> 1][2 * (i & 1) + 1]);
        store_t_block(to + 2048 * (e + 1), y, b0, b1);
    }
}

enum { BAR_AUX = 1, BAR_TURN, BAR_VOTE = BAR_TURN + 2, BAR_CARRY = BAR_VOTE + 2 }; /* TURN, VOTE: + state warpgroup */

/* This band's blocks of T, of its block column, as they lie in a tile and where they are kept: 16 bytes a lane each. */
__device__ __forceinline__ u32 t_block(u32 t_tile, int band, int row)
{
    const int r = lane_id() >> 1, half = lane_id() & 1;
    return t_tile + 2048 * row + r * 128 + (u32)((2 * band + half) ^ (r & 7)) * 16;
}

constexpr int T_BLOCK = 16 * 16 * 2, T_BLOCKS = 10; /* bytes; on and below the diagonal */

__device__ __forceinline__ u8 *kept_block(const prefill_params &p, u32 chunk, int band)
{
    return p.t_images + ((i64)chunk * T_BLOCKS + band * (9 - band) / 2) * T_BLOCK + 16 * lane_id();
}

__device__ __forceinline__ void keep_t(const prefill_params &p, u32 chunk, u32 t_tile, int band)
{
    u8 *const to = kept_block(p, chunk, band);
#pragma unroll 1
    for (int row = band; row < 4; ++row)
        *(uint4 *)(to + (row - band) * T_BLOCK) = load_shared_16(t_block(t_tile, band, row));
}

/* On its way. */
__device__ __forceinline__ void fetch_t(const prefill_params &p, u32 chunk, u32 t_tile, int band)
{
    const u8 *const from = kept_block(p, chunk, band);
#pragma unroll 1
    for (int row = band; row < 4; ++row)
        cp_async_16(t_block(t_tile, band, row), from + (row - band) * T_BLOCK, 16);
    cp_async_commit();
}

/* T of chunk n, whose diagonal blocks are on their way, and the news that T and P stand. */
__device__ __forceinline__ void finish_t(const prefill_params &p, int n, int band)
{
    const int slot = n & 1;
    const u32 l_tile = at(L_AT) + slot * SQUARE, t_tile = at(T_AT) + slot * SQUARE, table = at(GATE_AT) + (n & 3) * GATE;
    mbar_wait(bar(DIAGONAL_DONE + slot), n >> 1 & 1);
    multiply_band(l_tile, band);
    bar_sync(BAR_AUX, GROUP); /* -D L of all bands stands */
    solve_column(l_tile, t_tile, table, band);
    async_proxy_fence();
    if (spec::CARRIES && rarely(load_shared_u32(table + FLAGS) & CHUNK_KEEPS_T)) {
        __syncwarp();
        keep_t(p, load_shared_u32(table + KEPT_T), t_tile, band);
    }
    mbar_arrive_warp(bar(TP_FULL + slot), lane_id());
}

/* The same of a chunk whose T was kept, and is on its way. */
__device__ __forceinline__ void finish_fetched_t(int n)
{
    const int slot = n & 1;
    mbar_wait(bar(DIAGONAL_DONE + slot), n >> 1 & 1); /* of blocks that nobody wants: no phase goes by unseen */
    cp_async_wait<0>();
    async_proxy_fence();
    mbar_arrive_warp(bar(TP_FULL + slot), lane_id());
}

/*
 * L and P of chunk n, then T of chunk n - 1: the gate warps invert the diagonal blocks of one chunk while this warpgroup
 * works on its neighbours. An item's last T waits for nothing; one that was kept is fetched, without L. Chunks whose output
 * nobody wants have no P: their O is made of an old one, and dropped. band: the warp's 16 rows.
 */
__device__ __forceinline__ void aux_role(const prefill_params &p, int band)
{
    float kk[32], qk[32];
    Clock c = { 0, 0, 0 };
    /* Blocks of T and P above the diagonal are never written again; who writes the others meets the rest before it. */
    for (int i = 32 * band + lane_id(); i < 2 * TP_STAGES * SQUARE / 16; i += GROUP)
        store_shared(at(T_AT) + 16 * i, 0, 0, 0, 0);
    for (bool waits = false;; c.advance()) { /* T of chunk c.n - 1 is still to be made */
        const int slot = c.n & 1;
        const u32 table = c.table();
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
        const u32 flags = load_shared_u32(table + FLAGS);
        if (rarely(flags & CHUNK_END)) break;
        const bool has_t = spec::CARRIES && rarely(flags & CHUNK_HAS_T);
        issue_gram(kk, c.k(), c.k());
        const DiagonalGates gates = diagonal_gates(table, band);
        wgmma_wait<0>();
        settled(kk);
        if constexpr (spec::QK_L2NORM) share_key_norms(c, diagonal_block(kk, band), band);
        bar_sync(BAR_AUX, GROUP); /* the other warps have read this L tile's last chunk */
        if (NORMS_LIMIT_W && band == 0) limit_by_norms(table, key_norms(c.n));
        if (!has_t)
            store_l(kk, gates, at(L_AT) + slot * SQUARE, at(DIAGONAL_AT) + (4 * slot + band) * DIAGONAL, table, key_norms(c.n),
                    band);
        mbar_arrive_warp(bar(DIAGONAL_FULL + slot), lane_id());
        if constexpr (spec::QK_L2NORM) mbar_arrive_warp(table + KEYS_NORMED, lane_id());
        issue_gram(qk, c.q(), c.k());
        if (waits) finish_t(p, c.n - 1, band);
        mbar_wait(bar(TP_EMPTY + slot), c.parity2() ^ 1);
        if (has_t) fetch_t(p, load_shared_u32(table + KEPT_T), at(T_AT) + slot * SQUARE, band);
        wgmma_wait<0>();
        settled(qk);
        if (!(flags & CHUNK_STATE)) {
            float2 r = { 1.0f, 1.0f };
            if constexpr (spec::QK_L2NORM) r = query_norms(c, band);
            store_p(qk, gates, at(P_AT) + slot * SQUARE, table, key_norms(c.n), band, p.p_scale * r.x, p.p_scale * r.y);
        }
        waits = !(flags & CHUNK_LAST) && !has_t;
        if (has_t)
            finish_fetched_t(c.n);
        else if (rarely(!waits))
            finish_t(p, c.n, band);
    }
}

/* ---- State warpgroups ---------------------------------------------------------------------------------------------- */

/* This lane's part of a state: value columns dv and dv + 8. */
__device__ __forceinline__ void load_state(float (&S)[64], const StateAt<const void> &from, int dv)
{
    const int t = lane_id() & 3;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            from.load_pair(S[4 * n + i], S[4 * n + i + 1], 8 * n + 2 * t, dv + 4 * i);
}

__device__ __forceinline__ void save_state(const float (&S)[64], const StateAt<void> &to, int dv)
{
    const int t = lane_id() & 3;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            to.store_pair(8 * n + 2 * t, dv + 4 * i, S[4 * n + i], S[4 * n + i + 1]);
}

/* To the slots of every checkpoint that stands at the same token as `row`. */
__device__ __forceinline__ void save_checkpoints(const float (&S)[64], const prefill_params &p, int row, int head,
                                                 int dv)
{
    const i64 n = p.checkpoints[3ll * row], end = p.checkpoints[3ll * row + 1];
    for (; row < p.num_checkpoints; ++row) {
        const i64 *r = p.checkpoints + 3ll * row;
        if (r[0] != n || r[1] != end) return;
        if (r[2] >= 0) save_state(S, final_state(p, r[2], head), dv);
    }
}

/* Rows g and g + 8 of an accumulator tile times lo and hi. */
template <int N> __device__ __forceinline__ void scale_rows(float (&x)[N], float lo, float hi)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        x[i] *= lo;
        x[i + 1] *= lo;
        x[i + 2] *= hi;
        x[i + 3] *= hi;
    }
}

__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/* 2^-3 of the power of two at or below x, but above 2^-71 (see gdn_range.cuh); 1 for zero, inf, NaN. */
__device__ __forceinline__ float row_scale(float x)
{
    const int e = (int)(__float_as_uint(x) >> 23);
    if (x == 0.0f || e >= 255) return 1.0f;
    return __uint_as_float((u32)(max(e, 60) - 3) << 23);
}

__device__ __forceinline__ float inverse(float power_of_two)
{
    return __uint_as_float((254u << 23) - __float_as_uint(power_of_two));
}

/* Largest magnitudes of rows g and g + 8, of this lane's columns. */
template <int N> __device__ __forceinline__ float2 row_max(const float (&x)[N])
{
    float2 m = { 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        m.x = fmaxf(m.x, fmaxf(fabsf(x[i]), fabsf(x[i + 1])));
        m.y = fmaxf(m.y, fmaxf(fabsf(x[i + 2]), fabsf(x[i + 3])));
    }
    return m;
}

/* max(|a|, |b|) of both halves, of any sign; NaN gives the other. */
__device__ __forceinline__ u32 larger_f16x2(u32 a, u32 b)
{
    u32 r;
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

constexpr u32 F16_2_14 = 0x7400;
/*
 * fp16 2^-11, and the bits of what is 2^-7 or more. What is smaller than 2^-14 is off by up to 2^-25, which is no more than
 * what rounding takes from an entry of 2^-13: no sum of products loses more by that than it does anyway. But it is another
 * error than that of scaled rows, which a state replayed from zeros has; against a state whose largest entry is 2^-7 it is
 * small enough for same_state().
 */
constexpr u32 ROW_LOW = 0x1000, WARP_LOW = 0x60006000;
static_assert(2 * ROW_LOW == (WARP_LOW & -WARP_LOW), "2^-7, of both");

/*
 * Whether packed fp16 rows are as they should be: every lane's largest magnitude in each row in [2^-11, limit], the warp's no
 * less than 2^-7. A zero may be what became of something smaller. Registers are row g and row g + 8 in turn. raised: both lower
 * ends are, by so much in an fp16's exponent: see limit_by_norms().
 */
template <int STEPS> __device__ __forceinline__ bool fits(const u32 (&a)[STEPS][4], u32 limit, u32 raised = 0)
{
    u32 lo = a[0][0], hi = a[0][1];
#pragma unroll
    for (int i = 1; i < 2 * STEPS; ++i) {
        lo = larger_f16x2(lo, a[i / 2][2 * (i % 2)]);
        hi = larger_f16x2(hi, a[i / 2][2 * (i % 2) + 1]);
    }
    const u32 m = larger_f16x2(__byte_perm(lo, hi, 0x5410), __byte_perm(lo, hi, 0x7632)) & 0x7fff7fffu;
    const u32 first = m & 0xffffu, second = m >> 16;
    const u32 low = ROW_LOW + (NORMS_LIMIT_W ? raised : 0);
    const bool large = NORMS_LIMIT_W ? max(first, second) >= low + ROW_LOW : (m & WARP_LOW) != 0;
    return __any_sync(~0u, large) & __all_sync(~0u, first >= low && second >= low && first <= limit && second <= limit);
}

/* limits: a gate table's W_LIMIT. */
__device__ __forceinline__ bool fits_w(const u32 (&W)[4][4], u32 limits)
{
    return NORMS_LIMIT_W ? fits(W, limits & 0xffffu, limits >> LIMIT_BELOW << 10) : fits(W, limits);
}

/* This lane's two row scales, kept in shared memory: they are rarely wanted, and registers are dear. */
__device__ __forceinline__ u32 scale_slot(int state_warp)
{
    return at(SCALE_AT) + (state_warp * 32 + lane_id()) * 8;
}

/* Accumulators as operand A: fragment s holds k-step s. */
template <int STEPS> __device__ __forceinline__ void pack_io_rows(u32 (&a)[STEPS][4], const float (&x)[8 * STEPS])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i)
        a[i / 4][i % 4] = pack_io(x[2 * i], x[2 * i + 1]);
}

template <int STEPS> __device__ __forceinline__ void pack_f16_rows(u32 (&a)[STEPS][4], const float (&x)[8 * STEPS])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i)
        a[i / 4][i % 4] = pack_f16x2(x[2 * i], x[2 * i + 1]);
}

template <int N> __device__ __forceinline__ void clear(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i)
        x[i] = 0.0f;
}

/* x (64 x 64 tokens) = S^T tile^T */
__device__ __forceinline__ void issue_keys(float (&x)[32], const u32 (&S)[8][4], u32 tile)
{
    const u32 b = k_major(tile);
    clear(x);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 8; ++s)
        wgmma_rs_n64(x, S[s], descriptor(b + key_step(s)), s > 0);
    wgmma_commit();
}

/* What a state warpgroup's thread carries. */
struct State {
    float S[64];
    u32 packed[8][4]; /* S as operand A */
    float O[32];
    float V[2][16]; /* V' of tokens 0-31, 32-63 */
    bool S_scaled;  /* fp16 I/O: `packed` is S divided by scale_slot()'s powers of two; warp-uniform */
};

struct Place {
    int group, warp; /* state warpgroup, warp in it */

    __device__ __forceinline__ int index() const
    {
        return 4 * group + warp;
    }
    __device__ __forceinline__ int row(int part) const /* value column of this lane's first row */
    {
        return column_of(part) + 64 * group + 16 * warp + (lane_id() >> 2);
    }
};

/*
 * What a state warpgroup keeps of its chunk, whose table goes while this is still wanted: registers are dear. Its first warp
 * writes after a turn is taken, when all have read the last chunk's, and the vote on W comes before anyone reads.
 */
enum { KEPT_FLAGS = 0, KEPT_CHECKPOINT = 4, KEPT_DECAY = 8 };

__device__ __forceinline__ u32 kept(const Place &place)
{
    return at(KEPT_AT) + 16 * place.group;
}

/* S as operand A; fp16 rows within range. */
__device__ __forceinline__ void pack_state(State &st, const Place &place)
{
    pack_io_rows(st.packed, st.S);
    if constexpr (!spec::IO_BF16) {
        st.S_scaled = !fits(st.packed, F16_2_14);
        if (rarely(st.S_scaled)) {
            const float2 m = row_max(st.S);
            const float lo = row_scale(quad_max(m.x)), hi = row_scale(quad_max(m.y));
            store_shared(scale_slot(place.index()), lo, hi);
            scale_rows(st.S, inverse(lo), inverse(hi));
            pack_io_rows(st.packed, st.S);
            scale_rows(st.S, lo, hi);
        }
    }
}

/* V^T of this warp's 16 columns of the V tile, as accumulators lie. */
__device__ __forceinline__ void load_values(u32 (&v)[4][4], u32 v_tile, int warp)
{
    const int lane = lane_id(), m = lane >> 3, r = lane & 7;
    const u32 from = v_tile + ((m >> 1) * 8 + r) * 128 + (u32)((2 * warp + (m & 1)) ^ r) * 16;
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16)
        ldmatrix_x4_trans(v[m16], from + 2048 * m16);
}

/* Of a table by pairs this lane's tokens of 16: of the first 8 x and y, of the others z and w. */
__device__ __forceinline__ float4 gates_of_16(u32 table, int m16)
{
    return load_shared_float4(table + pair_at(8 * m16 + (lane_id() & 3)));
}

/* One of 8 tokens' values and K S becomes W. */
__device__ __forceinline__ void subtract(float *x, u32 v_top, u32 v_low, float e0, float e1, float beta0, float beta1)
{
    x[0] = io_lo(v_top) * beta0 - e0 * x[0];
    x[1] = io_hi(v_top) * beta1 - e1 * x[1];
    x[2] = io_lo(v_low) * beta0 - e0 * x[2];
    x[3] = io_hi(v_low) * beta1 - e1 * x[3];
}

/* W = V - e (K S), in place; times beta where that is not in T. */
__device__ __forceinline__ void residual(float (&x)[32], const u32 (&v)[4][4], u32 table)
{
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16) {
        const float4 e = gates_of_16(table + DECAY_IN, m16);
        float4 beta = { 1.0f, 1.0f, 1.0f, 1.0f };
        if constexpr (!BETA_IN_T) beta = gates_of_16(table + BETA, m16);
        subtract(&x[8 * m16], v[m16][0], v[m16][1], e.x, e.y, beta.x, beta.y);
        subtract(&x[8 * m16 + 4], v[m16][2], v[m16][3], e.z, e.w, beta.z, beta.w);
    }
}

/* V'^T = W^T T^T in two halves of 32 tokens: T is lower triangular, so the first half needs the first two k-steps only. */
__device__ __forceinline__ void issue_solve(State &st, const u32 (&W)[4][4], u32 t_tile)
{
    const u32 b = k_major(t_tile);
    clear(st.V[0]);
    clear(st.V[1]);
    wgmma_fence();
    wgmma_rs_n32_f16(st.V[0], W[0], descriptor(b), 0);
    wgmma_rs_n32_f16(st.V[1], W[0], descriptor(b + (4096 >> 4)), 0);
    wgmma_rs_n32_f16(st.V[0], W[1], descriptor(b + (32 >> 4)), 1);
    wgmma_rs_n32_f16(st.V[1], W[1], descriptor(b + ((4096 + 32) >> 4)), 1);
    wgmma_rs_n32_f16(st.V[1], W[2], descriptor(b + ((4096 + 64) >> 4)), 1);
    wgmma_rs_n32_f16(st.V[1], W[3], descriptor(b + ((4096 + 96) >> 4)), 1);
    wgmma_commit();
}

/* Columns (tokens) of O times e scale. */
__device__ __forceinline__ void decay_output(float (&O)[32], u32 table)
{
#pragma unroll
    for (int m16 = 0; m16 < 4; ++m16) {
        const float4 e = gates_of_16(table + DECAY_IN_Q, m16);
        float *const o = &O[8 * m16];
        o[0] *= e.x, o[1] *= e.y, o[2] *= e.x, o[3] *= e.y;
        o[4] *= e.z, o[5] *= e.w, o[6] *= e.z, o[7] *= e.w;
    }
}

/* V' of 16 tokens as fp16 (Y) and d V' in the I/O type (Z), as operands A. */
__device__ __forceinline__ void pack_16(u32 (&Y)[4], u32 (&Z)[4], const float *v, float4 d)
{
    Y[0] = pack_f16x2(v[0], v[1]);
    Y[1] = pack_f16x2(v[2], v[3]);
    Y[2] = pack_f16x2(v[4], v[5]);
    Y[3] = pack_f16x2(v[6], v[7]);
    Z[0] = pack_io(v[0] * d.x, v[1] * d.y);
    Z[1] = pack_io(v[2] * d.x, v[3] * d.y);
    Z[2] = pack_io(v[4] * d.z, v[5] * d.w);
    Z[3] = pack_io(v[6] * d.z, v[7] * d.w);
}

/*
 * O^T += V'^T P^T and S^T += (d V')^T K. In halves of 32 tokens, so that the first one's products start early and packed
 * operands take the place of what they were packed from. O completes with all but the last committed group.
 */
__device__ __forceinline__ void issue_finish(State &st, u32 table, u32 p_tile, u32 k_tile)
{
    const u32 pb = k_major(p_tile), kb = mn_major(k_tile, HALF);
    u32 Y[2][2][4], Z[2][2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int s = 0; s < 2; ++s)
            pack_16(Y[half][s], Z[half][s], &st.V[half][8 * s], gates_of_16(table + DECAY_OUT, 2 * half + s));
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2; ++s)
            wgmma_rs_n64_f16(st.O, Y[half][s], descriptor(pb + 2 * (2 * half + s)), 1);
        if (half == 1) wgmma_commit();
#pragma unroll
        for (int s = 0; s < 2; ++s)
            wgmma_rs_n128_mn(st.S, Z[half][s], descriptor(kb + (2 * half + s) * (2048 >> 4)), 1);
    }
    wgmma_commit();
}

/* O^T of this warp's 16 value columns to its warpgroup's half tile, token-major. */
__device__ __forceinline__ void put_output(const float (&O)[32], u32 tile, int warp)
{
    const int lane = lane_id(), m = lane >> 3, r = lane & 7;
    const u32 to = tile + ((m >> 1) * 8 + r) * 128 + (u32)((2 * warp + (m & 1)) ^ r) * 16;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const float *o = &O[8 * n];
        stmatrix_x4_trans(to + 2048 * n, pack_io(o[0], o[1]), pack_io(o[2], o[3]), pack_io(o[4], o[5]),
                          pack_io(o[6], o[7]));
    }
}

__device__ __forceinline__ void arrive_warp(int barrier)
{
    mbar_arrive_warp(bar(barrier), lane_id());
}

/*
 * The rare way to W: K S once more, in O's registers, rows scaled into fp16's range (the scales take T's with them), then Q S
 * once more.
 */
__device__ __forceinline__ void rescaled_residual(u32 (&W)[4][4], State &st, const Clock &c, const Place &place)
{
    const u32 table = c.table();
    float2 s = { 1.0f, 1.0f };
    if (!spec::IO_BF16 && st.S_scaled) s = load_shared_float2(scale_slot(place.index()));
    issue_keys(st.O, st.packed, c.k());
    wgmma_wait<0>();
    settled(st.O);
    scale_rows(st.O, s.x, s.y);
    u32 v[4][4];
    load_values(v, c.v() + place.group * HALF, place.warp);
    residual(st.O, v, table);
    arrive_warp(V_EMPTY + (c.n & 1));
    const float2 m = row_max(st.O);
    const float size = norm_size(load_shared_u32(table + W_LIMIT));
    const float lo = row_scale(quad_max(m.x) * size), hi = row_scale(quad_max(m.y) * size),
                beta = load_shared_float(table + BETA_SCALE);
    scale_rows(st.O, inverse(lo), inverse(hi));
    pack_f16_rows(W, st.O);
    store_shared(scale_slot(place.index()), lo * beta, hi * beta);
    issue_keys(st.O, st.packed, c.q());
    wgmma_wait<0>();
    settled(st.O);
    scale_rows(st.O, s.x, s.y);
}

/*
 * From K S to T W two state warpgroups take turns: half a chunk apart, one's products run while the other packs. Turns that end
 * earlier (K S issued, or done, or Q S issued) gained nothing, nor did a late start alone. Whoever waits for its turn holds up
 * nothing that the other needs. A lone one only meets here, which kept() counts on.
 */
__device__ __forceinline__ void take_turn(int group)
{
    bar_sync(BAR_TURN + group, STATE_GROUPS * GROUP);
}

__device__ __forceinline__ void pass_turn(int group)
{
    if (STATE_GROUPS == 2) bar_arrive(BAR_TURN + 1 - group, STATE_GROUPS * GROUP);
}

/*
 * A chunk from W on, with Q S in flight: V', O, S. Returns its flags. SCALED: W and V' are divided by
 * scale_slot()'s powers of two, or O takes its scale late: compiled apart, so that the usual way has no gaps in its code.
 */
template <bool SCALED>
__device__ __forceinline__ u32 finish_chunk(State &st, u32 (&W)[4][4], const prefill_params &p, const Clock &c,
                                            bool last, bool tp_full, const Place &place)
{
    const u32 table = c.table();
    float2 s = { 1.0f, 1.0f };
    if (!SCALED) arrive_warp(V_EMPTY + (c.n & 1));
    if (!tp_full) mbar_wait(bar(TP_FULL + (c.n & 1)), c.parity2());
    wgmma_wait<0>();
    settled(st.O);
    if (SCALED) {
        rescaled_residual(W, st, c, place);
        s = load_shared_float2(scale_slot(place.index()));
    }
    issue_solve(st, W, at(T_AT) + (c.n & 1) * SQUARE);
    pass_turn(place.group);
    arrive_warp(Q_EMPTY + c.q_slot);
    decay_output(st.O, table);
    wgmma_wait<0>();
    settled(st.V[0]);
    settled(st.V[1]);
    if (SCALED) { /* the other terms of the sums join V' at its scale */
        scale_rows(st.O, inverse(s.x), inverse(s.y));
        scale_rows(st.S, inverse(s.x), inverse(s.y));
    }
    issue_finish(st, table, at(P_AT) + (c.n & 1) * SQUARE, c.k());
    arrive_warp(GATE_EMPTY + (c.n & 3));
    const int n = c.n + 1;
    if (!last) mbar_wait(bar(CHUNK_FULL + (n & 3)), n >> 2 & 1); /* the next item may not be known before this one is done */
    mbar_wait(bar(O_EMPTY + place.group), c.parity1() ^ 1);
    const u32 flags = load_shared_u32(kept(place) + KEPT_FLAGS);
    wgmma_wait<1>();
    settled(st.O);
    arrive_warp(TP_EMPTY + (c.n & 1));
    if (SCALED || LATE_SCALE) scale_rows(st.O, s.x * p.late_scale, s.y * p.late_scale);
    put_output(st.O, at(O_AT) + place.group * HALF, place.warp);
    arrive_warp(O_FULL + place.group);
    wgmma_wait<0>();
    settled(st.S);
    if (SCALED) scale_rows(st.S, s.x, s.y);
    arrive_warp(K_EMPTY + (c.n & 3));
    return flags;
}

/*
 * One chunk, whose table and K tile are there. Returns its flags. With two warpgroups Q S is issued only when K S has become W:
 * 32 registers less at the peak. Whether W fits fp16 is found out while Q S runs.
 */
__device__ __forceinline__ u32 state_chunk(State &st, const prefill_params &p, const Clock &c, const Place &place)
{
    const u32 table = c.table();
    float x[32];
    u32 v[4][4], W[4][4];
    const u32 now = load_shared_u32(table + FLAGS);
    const bool last = now & CHUNK_LAST;
    const float decay = load_shared_float(table + DECAY_ALL);
    pack_state(st, place);
    take_turn(place.group);
    issue_keys(x, st.packed, c.k());
    if constexpr (EARLY_Q) issue_keys(st.O, st.packed, c.q());
    if (place.warp == 0) {
        const u32 checkpoint = spec::CHECKPOINTS ? load_shared_u32(table + CHECKPOINT) : 0;
        store_shared(kept(place), now, checkpoint, __float_as_uint(decay), 0u);
    }
#pragma unroll
    for (int i = 0; i < 64; ++i)
        st.S[i] *= decay;
    mbar_wait(bar(V_FULL + (c.n & 1)), c.parity2());
    load_values(v, c.v() + place.group * HALF, place.warp); /* while K S runs: shared memory takes its time */
    if constexpr (spec::QK_L2NORM) mbar_wait(table + KEYS_NORMED, c.parity4());
    const bool tp_full = mbar_peek(bar(TP_FULL + (c.n & 1)), c.parity2());
    wgmma_wait<EARLY_Q ? 1 : 0>();
    settled(x);
    residual(x, v, table);
    pack_f16_rows(W, x);
    if constexpr (!EARLY_Q) {
        /* A branch on all of W: without it ptxas moves the work on W past the first wgmma of Q S, which costs 32 registers. */
        u32 any = 0;
#pragma unroll
        for (int i = 0; i < 16; ++i)
            any |= W[i / 4][i % 4];
        if (rarely(any == 0)) mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4()); /* complete already */
        issue_keys(st.O, st.packed, c.q());
    }
    /* One way for the whole warpgroup, whose warps must execute the same products. */
    const bool usual =
        bar_all(BAR_VOTE + place.group, GROUP,
                fits_w(W, load_shared_u32(table + W_LIMIT)) && (LATE_SCALE ? !st.S_scaled : p.late_scale == 1.0f));
    if (rarely(!usual)) return finish_chunk<true>(st, W, p, c, last, tp_full, place);
    return finish_chunk<false>(st, W, p, c, last, tp_full, place);
}

/* ---- Links --------------------------------------------------------------------------------------------------------- */

constexpr int TRANSITION = 4 * TILE; /* bytes; the factors of its columns come after it, see Transitions */
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

__device__ __forceinline__ void load_link(float (&S)[64], const float4 *from)
{
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const float4 x = from[i * GROUP];
        S[4 * i] = x.x;
        S[4 * i + 1] = x.y;
        S[4 * i + 2] = x.z;
        S[4 * i + 3] = x.w;
    }
}

__device__ __forceinline__ void save_link(const float (&S)[64], float4 *to)
{
#pragma unroll
    for (int i = 0; i < 16; ++i)
        to[i * GROUP] = make_float4(S[4 * i], S[4 * i + 1], S[4 * i + 2], S[4 * i + 3]);
}

/*
 * Whether a replayed state is the one that it stands for, in this warp's 16 value columns: their difference against the
 * latter's norm. Two roundings of one computation differ too: by up to 2^-8 of a state of bf16 data, 2^-10.75 of fp16, that
 * does not decay, and by less, but up to 2^-15, where the last chunk's decay is strong (docs/prefill_hopper.md). Where squares
 * leave fp32's range only equal ones are the same. ours_is_true: S is the latter.
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
 * Either side of a link, by one state warpgroup: the replayed state, or the one that the partition before ended with (is_true).
 * Who comes first leaves its state, who comes second compares; at last the true one stands there. Nobody waits but for the
 * stores of who came first.
 */
__device__ __forceinline__ void meet_at_link(const float (&S)[64], const prefill_params &p, u32 entry, bool is_true,
                                             const Place &place)
{
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + (is_true ? index_step(p) : 0);
    u32 *const word = item_word(p, index, WORD_LINK + place.group);
    const int n = (int)load_shared_u32(entry + ITEM_N);
    float4 *const state = link_state(link_at(p, index, n), place);
    const bool one = place.warp == 0 && lane_id() == 0;
    const bool agrees = !one || take_ticket(word) != 0;
    __syncwarp(); /* a barrier counts a warp for each time that lanes of it come by */
    const bool second = bar_all(BAR_VOTE + place.group, GROUP, agrees);
    if (second) {
        while (peek(word) != LINK_MET) {
        }
        acquire();
        if (!same_state(S, state, load_shared_float(kept(place) + KEPT_DECAY), is_true) && lane_id() == 0) {
            const int part = (int)load_shared_u32(entry + ITEM_PART);
            const int main = (int)load_shared_u32(entry + (is_true ? ITEM_END : ITEM_MAIN));
            const int partition =
                by_gates() ? index - cut_base(cut_word(pair_number(p, n, part))) : main / p.partition;
            raise(pair_word(p, n, part, PAIR_FAILED), FAILED_FIRST - (u32)partition);
        }
        __syncwarp();
    }
    if (is_true || !second) save_link(S, state);
    if (second) return;
    release();
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (one) add_to(word, 2);
    __syncwarp();
}

/* An initial state that the call may overwrite, in its last partition, has been read; by a warpgroup. */
__device__ __forceinline__ void announce_start(const prefill_params &p, u32 entry, const Place &place)
{
    release();
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (place.warp == 0 && lane_id() == 0)
        add_to(pair_word(p, (int)load_shared_u32(entry + ITEM_N), (int)load_shared_u32(entry + ITEM_PART), PAIR_STARTED), 1);
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

/* At the end of a partition after which nothing is guessed: a state, or an addend. By a state warpgroup. */
__device__ __forceinline__ void leave_at_link(const float (&S)[64], const prefill_params &p, u32 entry, u32 what,
                                              const Place &place)
{
    const int index = (int)load_shared_u32(entry + ITEM_INDEX) + index_step(p);
    save_link(S, link_state(link_at(p, index, (int)load_shared_u32(entry + ITEM_N)), place));
    release();
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (place.warp == 0 && lane_id() == 0) add_to(item_word(p, index, WORD_LINK + place.group), what);
    __syncwarp();
}

/* ---- Transitions --------------------------------------------------------------------------------------------------- */

/*
 * A transition M is run as a state that starts as the identity: this lane's rows of S^T are columns of M. It shrinks where the
 * delta rule forgets, and nothing is added to it: rows keep their size in a factor of their own, a power of two.
 *
 * In memory: what the K ring holds while M is used, four tiles of 64 rows of M, whose columns are divided by these factors: the
 * high halves of two fp16 numbers for each entry, then the low ones; then the factors.
 */
static_assert(K_STAGES == 4, "the K ring holds a transition");

__device__ __forceinline__ float *transition_factors(u8 *link)
{
    return (float *)(link + LINK_STATE_BYTES + TRANSITION);
}

__device__ __forceinline__ void begin_transition(float (&S)[64], u8 *link, const Place &place)
{
    const int t = lane_id() & 3;
#pragma unroll
    for (int i = 0; i < 64; ++i)
        S[i] = 8 * (i / 4) + 2 * t + (i & 1) == place.row(0) + 8 * (i >> 1 & 1) ? 1.0f : 0.0f;
    float *const factors = transition_factors(link) + place.row(0);
    if (t == 0) factors[0] = factors[8] = 1.0f;
    __syncwarp();
}

/* Where a row is below the limit all come to between 2^3 and 2^4 (see row_scale()). A row that is zeros stays. */
__device__ __forceinline__ void keep_size(float (&S)[64], u8 *link, float limit, const Place &place)
{
    const float2 m = row_max(S);
    const float lo = quad_max(m.x), hi = quad_max(m.y);
    if (__all_sync(~0u, lo >= limit && hi >= limit)) return;
    const float by_lo = row_scale(lo), by_hi = row_scale(hi);
    scale_rows(S, inverse(by_lo), inverse(by_hi));
    float *const factors = transition_factors(link) + place.row(0);
    if ((lane_id() & 3) == 0) {
        factors[0] *= by_lo;
        factors[8] *= by_hi;
    }
    __syncwarp();
}

/* x0, x1 as fp16: the nearest, and what that leaves. */
__device__ __forceinline__ void split_f16(u32 &high, u32 &low, float x0, float x1)
{
    high = pack_f16x2(x0, x1);
    low = pack_f16x2(x0 - f16_lo(high), x1 - f16_hi(high));
}

__device__ __forceinline__ void leave_transition(const float (&S)[64], u8 *link, u32 *word, const Place &place)
{
    const int g = lane_id() >> 2, t = lane_id() & 3;
    u8 *const to = link + LINK_STATE_BYTES + place.group * HALF + g * 128 + 4 * t;
    const int left = ((2 * place.warp) ^ g) * 16, right = left ^ 16; /* pieces of rows that are g modulo 8 */
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        u8 *const row = to + (n / 8) * TILE + (n % 8) * 1024;
        u32 high[2], low[2], turned;
        split_f16(high[0], low[0], S[4 * n], S[4 * n + 1]);
        split_f16(high[1], low[1], S[4 * n + 2], S[4 * n + 3]);
        movmatrix_trans(turned, high[0]);
        *(u32 *)(row + left) = turned;
        movmatrix_trans(turned, high[1]);
        *(u32 *)(row + right) = turned;
        movmatrix_trans(turned, low[0]);
        *(u32 *)(row + 2 * TILE + left) = turned;
        movmatrix_trans(turned, low[1]);
        *(u32 *)(row + 2 * TILE + right) = turned;
    }
    release();
    bar_sync(BAR_VOTE + place.group, GROUP);
    if (place.warp == 0 && lane_id() == 0) add_to(word, 1);
    __syncwarp();
}

/* The rings of tiles, which wait, take transitions, two in turn. By both state warpgroups. */
__device__ __forceinline__ u32 transition_tiles(int step)
{
    static_assert(V_AT + V_STAGES * TILE >= K_AT + 2 * TRANSITION, "two fit");
    return at(K_AT) + (step & 1) * TRANSITION;
}

__device__ __forceinline__ void fetch_transition(const u8 *link, int step, const Place &place)
{
    const int thread = GROUP * place.group + 32 * place.warp + lane_id();
    const u8 *const from = link + LINK_STATE_BYTES + 16 * thread;
    const u32 to = transition_tiles(step) + 16 * thread;
#pragma unroll 4
    for (int i = 0; i < TRANSITION; i += 16 * 2 * GROUP)
        cp_async_16(to + i, from + i, 16);
    cp_async_commit();
}

/* x (64 x 64) += S^T tile^T, all fp16. */
__device__ __forceinline__ void add_product(float (&x)[32], const u32 (&S)[8][4], u32 tile)
{
    const u32 b = k_major(tile);
#pragma unroll
    for (int s = 0; s < 8; ++s)
        wgmma_rs_n64_f16(x, S[s], descriptor(b + key_step(s)), 1);
}

/* S times M's factors as two fp16 numbers each, high and low, operands A; rows divided by powers of two, which it returns. */
__device__ __forceinline__ float2 split_state(u32 (&high)[8][4], u32 (&low)[8][4], float (&S)[64], const float *factors)
{
    factors += 2 * (lane_id() & 3);
#pragma unroll
    for (int n = 0; n < 16; ++n) {
        const float2 f = *(const float2 *)(factors + 8 * n);
        S[4 * n] *= f.x;
        S[4 * n + 1] *= f.y;
        S[4 * n + 2] *= f.x;
        S[4 * n + 3] *= f.y;
    }
    const float2 m = row_max(S);
    const float lo = row_scale(quad_max(m.x)), hi = row_scale(quad_max(m.y));
    scale_rows(S, inverse(lo), inverse(hi));
#pragma unroll
    for (int i = 0; i < 32; ++i)
        split_f16(high[i / 4][i % 4], low[i / 4][i % 4], S[2 * i], S[2 * i + 1]);
    return { lo, hi };
}

/* S = N + M times what was split, M in `tiles`: products of high and low parts but for low times low, 2^-21 of the largest. */
__device__ __forceinline__ void apply_transition(float (&S)[64], const u32 (&high)[8][4], const u32 (&low)[8][4],
                                                 float2 scale, u32 tiles, const float4 *addend)
{
#pragma unroll
    for (int half = 0; half < 2; ++half) { /* of M's rows */
        const u32 tile = tiles + half * TILE;
        float x[32];
        clear(x);
        wgmma_fence();
        add_product(x, high, tile);
        add_product(x, low, tile);
        add_product(x, high, tile + 2 * TILE);
        wgmma_commit();
        float4 a[8];
#pragma unroll
        for (int n = 0; n < 8; ++n)
            a[n] = addend[(8 * half + n) * GROUP];
        wgmma_wait<0>();
        settled(x);
        scale_rows(x, scale.x, scale.y);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            S[32 * half + 4 * n] = a[n].x + x[4 * n];
            S[32 * half + 4 * n + 1] = a[n].y + x[4 * n + 1];
            S[32 * half + 4 * n + 2] = a[n].z + x[4 * n + 2];
            S[32 * half + 4 * n + 3] = a[n].w + x[4 * n + 3];
        }
    }
}

/*
 * How many links before that of partition `index` a state lies, once it does, and with it the addends and transitions of all
 * partitions between. By a warp, a link a lane.
 */
__device__ __forceinline__ int links_to_state(const prefill_params &p, int index, int group)
{
    const int step = index_step(p);
    for (int first = 0;; first += 32) {
        const int link = max(index - (first + lane_id()) * step, 0), before = max(link - step, 0);
        u32 states, ready;
        do {
            const u32 word = peek(item_word(p, link, WORD_LINK + group)),
                      left = peek(item_word(p, before, WORD_TRANSITION)),
                      right = peek(item_word(p, before, WORD_TRANSITION + 1));
            states = __ballot_sync(~0u, word == LINK_STATE);
            ready = __ballot_sync(~0u, word == LINK_ADDEND && left != 0 && right != 0);
        } while (~ready & ((states & -states) - 1)); /* nearer than the nearest state */
        if (states != 0) return first + __ffs((int)states) - 1;
    }
}

/* The state before partition `index` of sequence n: the last one before it that lies at a link, through all between. */
__device__ __forceinline__ void carry_state(float (&S)[64], const prefill_params &p, int index, int n, const Place &place)
{
    const int steps = links_to_state(p, index, place.group);
    const i64 stride = link_bytes(p) * index_step(p);
    u8 *link = link_at(p, index - steps * index_step(p), n);
    acquire();
    bar_sync(BAR_CARRY, 2 * GROUP); /* both are done with the rings */
    load_link(S, link_state(link, place));
    if (steps > 0) fetch_transition(link, 0, place);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        u32 high[8][4], low[8][4];
        const float2 scale = split_state(high, low, S, transition_factors(link));
        cp_async_wait<0>();
        async_proxy_fence();
        bar_sync(BAR_CARRY, 2 * GROUP); /* it is there, and nobody reads the last one */
        link += stride;
        if (step + 1 < steps) fetch_transition(link, step + 1, place);
        apply_transition(S, high, low, scale, transition_tiles(step), link_state(link, place));
    }
    arrive_warp(CARRIED);
}

/* ---- From item to item --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void begin_item(float (&S)[64], const prefill_params &p, u32 entry, const Place &place)
{
    const int start = (int)load_shared_u32(entry + ITEM_START), part = (int)load_shared_u32(entry + ITEM_PART);
    if (start == START_KEPT) return;
    clear(S);
    if (start >= 0) load_state(S, initial_state(p, start, part / PARTS), place.row(part));
    if (rarely(start <= START_LINK)) {
        const int index = (int)load_shared_u32(entry + ITEM_INDEX), n = (int)load_shared_u32(entry + ITEM_N);
        if (start == START_LINK) load_link(S, link_state(link_at(p, index, n), place));
        if (spec::CARRIES && start == START_IDENTITY) begin_transition(S, link_at(p, index, n), place);
        if (spec::CARRIES && start == START_CARRIED) carry_state(S, p, index, n, place);
    }
    if (p.partition && load_shared_u32(entry + ITEM_MAIN) == 0) announce_start(p, entry, place);
}

/* After an item's last chunk, or the last one that it replays. */
__device__ __forceinline__ void hand_over(const float (&S)[64], const prefill_params &p, u32 entry, bool last,
                                          const Place &place)
{
    const int to = (int)load_shared_u32(entry + ITEM_AFTER);
    if (!last || to == END_LINK) {
        meet_at_link(S, p, entry, last, place);
    } else if (spec::CARRIES && (to == END_STATE || to == END_ADDEND)) {
        leave_at_link(S, p, entry, to == END_STATE ? (u32)LINK_STATE : (u32)LINK_ADDEND, place);
    } else if (spec::CARRIES && to == END_TRANSITION) {
        const int index = (int)load_shared_u32(entry + ITEM_INDEX);
        leave_transition(S, link_at(p, index, (int)load_shared_u32(entry + ITEM_N)),
                         item_word(p, index, WORD_TRANSITION + place.group), place);
    } else if (to >= 0 && p.final_state) {
        if (p.partition) await_start(p, entry);
        const int part = (int)load_shared_u32(entry + ITEM_PART);
        save_state(S, final_state(p, to, part / PARTS), place.row(part));
    }
}

/* After a chunk that is not like the others. A transition is left with all rows of one size. */
__device__ __forceinline__ void between_chunks(float (&S)[64], const prefill_params &p, u32 flags, const Place &place)
{
    const u32 entry = entry_of(flags >> ITEM_SHIFT);
    if (spec::CHECKPOINTS && (flags & CHUNK_CHECKPOINT)) {
        const int part = (int)load_shared_u32(entry + ITEM_PART);
        save_checkpoints(S, p, (int)load_shared_u32(kept(place) + KEPT_CHECKPOINT), part / PARTS, place.row(part));
    }
    if (spec::CARRIES && flags & CHUNK_TRANSITION)
        keep_size(S, link_at(p, (int)load_shared_u32(entry + ITEM_INDEX), (int)load_shared_u32(entry + ITEM_N)),
                  flags & CHUNK_LAST ? 3e38f : 0.5f, place);
    if (flags & (CHUNK_LAST | CHUNK_REPLAYED)) hand_over(S, p, entry, flags & CHUNK_LAST, place);
}

__device__ __forceinline__ void state_role(const prefill_params &p, const Place &place)
{
    constexpr u32 UNLIKE = CHUNK_LAST | CHUNK_REPLAYED | (spec::CARRIES ? CHUNK_TRANSITION : 0) |
                           (spec::CHECKPOINTS ? CHUNK_CHECKPOINT : 0);
    State st;
    Clock c = { 0, 0, 0 };
    if (place.group == 1) pass_turn(1);
    for (u32 number = 0;;) {
        mbar_wait(bar(ITEM_FULL + number % ITEM_SLOTS), number / ITEM_SLOTS & 1);
        if ((int)load_shared_u32(entry_of(number) + ITEM_N) < 0) break;
        begin_item(st.S, p, entry_of(number), place); /* a CTA's first one while its table and tiles are on their way */
        mbar_wait(bar(CHUNK_FULL + (c.n & 3)), c.parity4());
        u32 now;
        do {
            __syncwarp(); /* else the compiler makes one loop of the two; so the code of usual chunks lies in one piece */
            do {
                now = state_chunk(st, p, c, place);
                c.advance();
            } while (!rarely(now & UNLIKE));
            between_chunks(st.S, p, now, place);
        } while (!(now & CHUNK_LAST));
        if (p.partition) {
            release(); /* what hand_over() stored: the output warp counts the item */
            arrive_warp(ITEM_DONE + (now >> ITEM_SHIFT & 1));
        }
        number = (now >> ITEM_SHIFT) + 1;
    }
    if (place.group == 0) take_turn(0); /* that the other has passed: no arrival is left over */
}

} // namespace

extern "C" __global__ void __launch_bounds__(spec::THREADS, 1)
    gdn_prefill_hopper(const __grid_constant__ prefill_params p)
{
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / 4;
    if (threadIdx.x == 0) {
        init_barriers();
        store_shared(at(LISTS_AT), 0u, 0u, 0u, 0u);
    }
    if (threadIdx.x == 32 && p.num_tokens > 0) prefetch_maps(p);
    wait_for_previous_kernel();
    sort_sequences(p);
    sample_pairs(p);
    async_proxy_fence();
    __syncthreads();
    if (group == 0) {
        give_registers<spec::PRODUCER_REGISTERS>();
        const int lane = threadIdx.x % 32;
        if (warp == 0)
            tile_role(p, lane);
        else if (warp < 1 + GATE_WARPS)
            gate_role(p, warp - 1);
        else
            output_role(p, lane);
    } else if (group < 1 + STATE_GROUPS) {
        take_registers<spec::STATE_REGISTERS>();
        state_role(p, { group - 1, warp % 4 });
    } else {
        give_registers<spec::AUX_REGISTERS>();
        aux_role(p, warp % 4);
    }
}
