/*
 * gdn_hopper_shared.cuh - a CTA of the Hopper kernel: its roles' sizes, where everything lies in shared memory, its barriers,
 * and which slot of each ring a chunk has. Must not know: items, what is computed.
 */
#pragma once

#include "gdn_hopper_table.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_spec.cuh"
#include "gdn_types.cuh"

extern __shared__ __align__(1024) u8 shared[];

constexpr int C = spec::CHUNK, D = 128;
constexpr int K_STAGES = 4, Q_STAGES = 3, V_STAGES = 2, GATE_STAGES = 4, L_STAGES = 2;
constexpr int TP_STAGES = spec::TWINS ? 4 : 2, P_STAGES = 2; /* barriers and T; P, which gives way with T two chunks before */
constexpr int GROUP = 128; /* threads of a warpgroup */
constexpr int STATE_GROUPS = spec::BLOCK_DV / 64, STATE_WARPS = 4 * STATE_GROUPS; /* 64 value columns a warpgroup */
constexpr int PARTS = D / spec::BLOCK_DV; /* of a head's value columns, an item each */

static_assert(C == 64 && spec::DK == D && spec::DV == D, "the shapes that tiles and registers are cut for");
static_assert(STATE_GROUPS == 1 || STATE_GROUPS == 2, "a state warpgroup has 64 columns of two in a V tile");
static_assert(!spec::CARRIES || PARTS == 1, "a transition takes all value columns");
static_assert(!spec::TWINS || (PARTS == 2 && !spec::IMAGES && !spec::CUTS), "what twins do not know");
static_assert(spec::CUTS || !spec::CARRIES, "what is carried is a partition's");
static_assert(spec::THREADS == (2 + STATE_GROUPS) * GROUP, "host and device agree on the roles");

/* Sequences may be cut into even shares, one for each CTA (gdn_hopper_shares.cuh); else into partitions of one length. */
constexpr bool CUTS_EVENLY = spec::CUTS && !spec::CARRIES && PARTS == 1;

/* The first value column of a part, in its head. */
__device__ __forceinline__ int column_of(int part)
{
    return part % PARTS * spec::BLOCK_DV;
}

/* Of a condition. ptxas may lay its code into the loop around it all the same; behind the loop it is out of the way. */
__device__ __forceinline__ bool rarely(bool condition)
{
    return __builtin_expect(condition, 0);
}

__device__ __forceinline__ u32 at(int offset)
{
    return smem_address(shared) + offset;
}

/* ---- Addresses ----------------------------------------------------------------------------------------------------- */

constexpr int TILE = C * D * 2, HALF = TILE / 2, SQUARE = C * C * 2;
constexpr int V_TILE = STATE_GROUPS * HALF;
constexpr int K_AT = 0;
constexpr int Q_AT = K_AT + K_STAGES * TILE;
constexpr int V_AT = Q_AT + Q_STAGES * TILE;
constexpr int T_AT = V_AT + V_STAGES * V_TILE;
constexpr int P_AT = T_AT + TP_STAGES * SQUARE;
constexpr int L_AT = P_AT + P_STAGES * SQUARE; /* -L below the diagonal, D^T on it; norms */
constexpr int O_AT = L_AT + L_STAGES * SQUARE; /* [state warpgroup]; between items: gdn_hopper_carry.cuh */
/*
 * A band's 16 x 16 block of L on the diagonal: its upper left and its lower right quarter in fp32 by columns, for which the
 * strides leave no bank conflicts, neither of who stores nor of who loads.
 */
constexpr int QUARTER_COLUMN = 12 * 4, QUARTER = 8 * QUARTER_COLUMN + 16, DIAGONAL = 2 * QUARTER;
constexpr int DIAGONAL_AT = O_AT + STATE_GROUPS * HALF; /* [L's slot][band] */
constexpr int GATE_AT = DIAGONAL_AT + 8 * DIAGONAL;
constexpr int GATE = 1536;
/* In what tables leave: [state warpgroup] what it keeps of a chunk; the tile warp's courses. */
constexpr int TABLE_BYTES = GATE - 32; /* of what others read of it */
constexpr int KEPT_AT = GATE_AT + TABLE_BYTES, COURSE_AT = KEPT_AT + GATE;
constexpr int SCALE_AT = GATE_AT + GATE_STAGES * GATE; /* [state warp][lane] float2: power-of-two row scales, rarely */
constexpr int BAR_AT = SCALE_AT + STATE_WARPS * 32 * 8;
constexpr int ITEM_SLOTS = 8, ENTRY = 32;
constexpr int ITEM_AT = BAR_AT + 464; /* what all roles know of an item, ENTRY bytes each */
constexpr int V_PLACE_AT = ITEM_AT + ITEM_SLOTS * ENTRY; /* the tile warp's: V's places in its map, of chunks in turn */
constexpr int LISTS_AT = V_PLACE_AT + 32;                /* of what the CTA still has to do: REPAIRS, LATER */
constexpr int MOST_SORTED = 256;                         /* sequences */
constexpr int ORDER_AT = LISTS_AT + 16;                  /* their numbers, the longest first, 8 bits each */
constexpr int FORGETTING_AT = ORDER_AT;                  /* or, of partitions of one length, a byte each pair */
constexpr int KEEPER_AT = ORDER_AT + spec::ASKED_PAIRS;  /* and a word each item slot: see keeper() */
constexpr int WRONG_AT = KEEPER_AT + 4 * ITEM_SLOTS;     /* and a word each: see claim_repair() */
constexpr int REPAIR_AT = WRONG_AT + 4 * ITEM_SLOTS;     /* the repair that is under way: RUN_* */
constexpr int SETTLED_AT = REPAIR_AT + 8;                /* a byte each state warpgroup: see is_settled() */
constexpr int GUESS_AT = REPAIR_AT + 16;                 /* a word each tile: see bring_guess() */
/* What share the CTA has, SHARE_*: behind numbers of as many sequences as may be shared out, or where nothing is carried. */
constexpr int SHARE_AT = spec::CUTS ? KEEPER_AT : ORDER_AT + spec::MOST_SHARING;
/* And a word each sequence that is cut evenly, and one more: where its pairs begin on the line. */
constexpr int LINE_AT = ORDER_AT + MOST_SORTED, LINE_BYTES = (4 * spec::MOST_CUT_EVENLY + 16) / 16 * 16;
/*
 * Or, where states are carried, a word each pair that may be cut (gdn_hopper_cuts.cuh); and where there are more pairs than
 * these sequences' numbers, the longest first, and each one's rank, 8 bits each.
 */
constexpr int CUTS_AT = ORDER_AT + MOST_SORTED, RANKED_AT = CUTS_AT + 4 * spec::CUT_PAIRS;
constexpr int RANK_AT = RANKED_AT + MOST_SORTED;
constexpr int CUTS_BYTES = RANK_AT + MOST_SORTED - CUTS_AT;
/* Where states are in transit: of each such sequence, and the one behind the last, its first token; its lines. */
constexpr int FIRST_AT = ORDER_AT + MOST_SORTED, FROM_AT = FIRST_AT + 4 * (MOST_SORTED + 1);
constexpr int TO_AT = FROM_AT + 4 * MOST_SORTED;
constexpr int QUARTERS_AT = TO_AT + 4 * MOST_SORTED; /* and a byte each quarter of a state: its slot; 8 to a multiple of 16 */
constexpr int END = spec::TRANSIT ? QUARTERS_AT + 12 : LINE_AT + (CUTS_EVENLY ? LINE_BYTES : spec::CARRIES ? CUTS_BYTES : 0);
static_assert(SHARE_AT + 32 <= (CUTS_EVENLY ? WRONG_AT : END) && GUESS_AT + 16 <= LINE_AT, "either fits");
static_assert(spec::IMAGES ? spec::SMEM_BYTES >= END : spec::SMEM_BYTES == END, "host and device agree on shared memory");

/* From the descriptor of a K-major tile to that of its k-step s, 16 columns. */
__device__ constexpr u32 key_step(int s)
{
    return ((s >> 2) * HALF + (s & 3) * 32) >> 4;
}

static_assert(TOKENS + 4 <= TABLE_BYTES && TABLE_BYTES % 16 == 0, "before what lies in the rest, and for bulk copies");
/*
 * LISTS_AT, words: heads of lists through control words (gdn_hopper_queue.cuh), 0: empty; START_CARRIED's items, by index + 1.
 * How many items there are by gates, and in the upper half how many of them are partitions of pairs that may be cut; 0: all are
 * of one length. A ticket: of the CTA's first item, then the state warps' own (take_block(), gdn_hopper_carry.cuh).
 */
enum { REPAIRS = 0, LATER = 4, BY_GATES = 8, TICKET = 12 };
/*
 * SHARE_AT, words, where p.gang (gdn_hopper_shares.cuh): indices, of the CTA's first item and behind its last one; where the
 * first one ends and the last one begins, or where sequences are cut the other way round; which CTA of all it is in the order
 * of shares; from an item's index to the next one's, 0 where items are dealt out. Where sequences are cut: the place of the
 * next item, and how many shares there are.
 */
enum { SHARE_FIRST = 0, SHARE_LIMIT = 4, SHARE_FIRST_END = 8, SHARE_LAST_BEGIN = 12, SHARE_CTA = 16, SHARE_STEP = 20 };
enum { SHARE_FIRST_BEGIN = SHARE_FIRST_END, SHARE_LAST_END = SHARE_LAST_BEGIN, SHARE_NEXT = 24, SHARE_COUNT = 28 };
/* REPAIR_AT, words: index of its first partition; what it goes on with, as REPAIRS has it. */
enum { RUN_FIRST = 0, RUN_NEXT = 4 };

/* ---- Barriers ------------------------------------------------------------------------------------------------------ */

/* mbarriers, in order of their index. */
enum {
    CHUNK_FULL = 0, /* K, Q and the gate table */
    V_FULL = CHUNK_FULL + K_STAGES,
    K_EMPTY = V_FULL + V_STAGES,
    Q_EMPTY = K_EMPTY + K_STAGES,
    V_EMPTY = Q_EMPTY + Q_STAGES,
    GATE_EMPTY = V_EMPTY + V_STAGES, /* of twins none: see give_table_back() */
    TP_FULL = GATE_EMPTY + GATE_STAGES,
    TP_EMPTY = TP_FULL + TP_STAGES,
    O_FULL = TP_EMPTY + TP_STAGES, /* [state warpgroup] */
    O_EMPTY = O_FULL + STATE_GROUPS,
    L_FULL = O_EMPTY + STATE_GROUPS, /* L, its diagonal blocks inverted, chunks in turn */
    L_EMPTY = L_FULL + L_STAGES,
    ITEM_DONE = L_EMPTY + L_STAGES, /* items in turn: their states are handed over */
    TAIL = ITEM_DONE + 2, /* a tail chunk's K and Q, before K's rest is cleared */
    TAIL_V,               /* its V, likewise */
    ITEM_FULL,
    ITEM_LEFT = ITEM_FULL + ITEM_SLOTS, /* by the output warp */
    STATE_COMES = ITEM_LEFT,            /* or, where nothing is cut, of each quarter of a state: it is there */
    STATE_TAKEN = STATE_COMES + 4,      /* and is exchanged: gdn_hopper_transit.cuh */
    KEYS_NORMED = ITEM_LEFT + ITEM_SLOTS, /* e, d and W_LIMIT of a table have what in-kernel norms of keys make of them */
    GUESS_FULL = KEYS_NORMED + (spec::QK_L2NORM && !spec::IMAGES ? GATE_STAGES : 0), /* once: see bring_guess() */
    NUM_BARRIERS = GUESS_FULL + spec::CUTS,
    T_FULL = ITEM_FULL /* of two kinds of CTAs, which have no items: T, two chunks in turn */
};
static_assert(BAR_AT + NUM_BARRIERS * 8 <= ITEM_AT, "barriers fit");
static_assert(ITEM_SLOTS == 8 && (!spec::TRANSIT || !spec::CUTS), "two times four where ITEM_LEFT has no use");

/* Named barriers: of the aux warps; TURN, VOTE: + state warpgroup; of both of these; of all, and of two, at a call's begin. */
enum { BAR_AUX = 1, BAR_TURN, BAR_VOTE = BAR_TURN + 2, BAR_CARRY = BAR_VOTE + 2, BAR_SAMPLED, BAR_CUT };

__device__ __forceinline__ u32 bar(int index)
{
    return at(BAR_AT) + 8 * index;
}

/* Which of the twins this CTA is: the chunks that it makes have this parity. */
__device__ __forceinline__ int twin()
{
    return spec::TWINS ? (int)cluster_rank() : 0;
}

/* Arrivals that end a phase. */
__device__ __forceinline__ constexpr int arrivals(int i)
{
    constexpr int USERS = spec::IMAGES ? 1 : STATE_WARPS; /* who gives tiles back: there it is the export warp */
    if (i == GUESS_FULL) return 1;
    if (i >= KEYS_NORMED) return 4 * ARRIVALS_PER_WARP; /* aux warps */
    if (spec::TRANSIT && i >= STATE_TAKEN && i < STATE_TAKEN + 4) return 2 * ARRIVALS_PER_WARP; /* who has the quarter */
    if (i >= TAIL) return 1;
    int warps = 1; /* the one that loads; O_EMPTY: that stores */
    if (i >= K_EMPTY && i < TP_FULL) warps = USERS;
    if (i >= TP_FULL && i < TP_EMPTY) warps = spec::IMAGES ? 4 : 5; /* aux warps, the inverse warp */
    if (i >= TP_EMPTY && i < O_FULL) warps = spec::TWINS ? 2 * USERS : USERS;
    if (i >= O_FULL && i < O_EMPTY) warps = 4; /* one state warpgroup's warps */
    if (i >= L_FULL && i < L_EMPTY) warps = 4; /* aux warps */
    if (i >= ITEM_DONE && i < TAIL) warps = STATE_WARPS;
    return warps * ARRIVALS_PER_WARP + (i < V_FULL ? 32 : 0); /* lanes: the gate warp's, each for its tokens */
}

/* Where another CTA's table, or T and P, are to come: a lane's, which says so (gdn_hopper_twins.cuh), and the tile warp's. */
__device__ __forceinline__ constexpr int arrivals_of_handed(int i)
{
    if (i < V_FULL) return ARRIVALS_PER_WARP + 1;
    return i >= TP_FULL && i < TP_EMPTY ? 1 : arrivals(i);
}

__device__ __forceinline__ void init_barriers()
{
    const int odd = twin();
#pragma unroll /* their counts as constants: worked out by one thread they took longer than the instructions */
    for (int i = 0; i < NUM_BARRIERS; ++i) {
        const int parity = (i < V_FULL ? i - CHUNK_FULL : i - TP_FULL) & 1; /* of the chunks there */
        mbar_init(bar(i), spec::TWINS && parity != odd ? arrivals_of_handed(i) : arrivals(i));
    }
    mbar_init_fence();
}

/* ---- Rings --------------------------------------------------------------------------------------------------------- */

/* Of T and P of chunk number n. */
__device__ __forceinline__ int tp_slot(int n)
{
    return n & (TP_STAGES - 1);
}
__device__ __forceinline__ u32 tp_parity(int n)
{
    return (spec::TWINS ? n >> 2 : n >> 1) & 1;
}
__device__ __forceinline__ u32 t_tile(int n)
{
    return at(T_AT) + tp_slot(n) * SQUARE;
}
__device__ __forceinline__ int p_slot(int n)
{
    return n & 1;
}
__device__ __forceinline__ u32 p_tile(int n)
{
    return at(P_AT) + p_slot(n) * SQUARE;
}

/* Of its L, which is of the chunks alone that this CTA makes. */
__device__ __forceinline__ int l_slot(int n)
{
    return (spec::TWINS ? n >> 1 : n) & 1;
}
__device__ __forceinline__ u32 l_parity(int n)
{
    return (spec::TWINS ? n >> 2 : n >> 1) & 1;
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
static_assert(K_STAGES == 4 && GATE_STAGES == 4 && V_STAGES == 2 && P_STAGES == 2 && L_STAGES == 2, "slots and parities");
