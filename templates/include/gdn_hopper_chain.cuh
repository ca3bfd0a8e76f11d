/*
 * gdn_hopper_chain.cuh - the recurrence in two products a chunk, W = V - e K S and S <- e_63 S + X^T W, by one warpgroup with
 * S^T in registers. W goes to the other CTA of the cluster, which does the same to an S of its own. Must not know: O,
 * sequences.
 */
#pragma once

#include "gdn_hopper_blocks.cuh"
#include "gdn_hopper_ring.cuh"
#include "gdn_hopper_rows.cuh"
#include "gdn_hopper_table.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"
#include "gdn_warp.cuh"

/* What a chunk is made with: e of this lane's tokens, what X is divided by, the whole decay. */
struct Gates {
    float4 e[4];
    float size, decay;
};

/* A sequence's S, and a chunk as far as it is made. */
struct Chain {
    float S[64], v[32], W[32];
    u32 w[4][4], next[4][4]; /* W as operand A; V of the next chunk, of this lane's columns */
    Gates gates;
    bool keys; /* this warp's rows of S were in range, K S is right, and S has decayed */
};

/*
 * Where a lane finds its part in slot 0 of what lies in shared memory. Kept in registers, which a compiler would not do of its
 * own: it makes an address where that is needed, and there all wait for it. table is the same to all lanes, but a compiler does
 * not know: it would have what is loaded there in a uniform register, and the next instruction wait for that.
 */
struct Places {
    u32 values, gates, table, handed, flag, lane;

    __device__ __forceinline__ explicit Places(int warp)
        : values(pinned(at(chain::V) + values_at(warp))),
          gates(pinned(at(chain::TABLE) + DECAY_IN + pair_at(lane_id() & 3))),
          table(at(chain::TABLE) + (pinned(lane_id()) ^ lane_id())),
          handed(pinned(at(chain::HANDED) + 16 * (threadIdx.x % GROUP))),
          flag(pinned(at(chain::HANDED) + SCALED_AT + 4 * warp)), lane(pinned(lane_id()))
    {
    }
};

/* Of a chunk that is there; behind the last one, of none, for nobody. */
__device__ __forceinline__ void fetch_values(Chain &c, const Places &from, u32 slot)
{
    load_values(c.next, from.values + slot * HALF);
}

/* They become the chunk's. */
__device__ __forceinline__ void take_values(Chain &c)
{
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        c.v[2 * i] = io_lo(c.next[i / 4][i % 4]);
        c.v[2 * i + 1] = io_hi(c.next[i / 4][i % 4]);
    }
}

__device__ __forceinline__ void fetch_gates(Chain &c, const Places &from, u32 slot)
{
    const u32 e = from.gates + slot * GATE, table = from.table + slot * GATE;
#pragma unroll
    for (int m = 0; m < 4; ++m)
        c.gates.e[m] = load_shared_float4(e + pair_at(8 * m));
    c.gates.size = load_shared_float(table + SIZE_X);
    c.gates.decay = load_shared_float(table + DECAY_ALL);
}

/* W^T = V^T - e (K S)^T, in place of K S. */
__device__ __forceinline__ void subtract_keys(float (&x)[32], const float (&v)[32], const float4 (&gates)[4])
{
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const float4 &e = gates[i / 8];
        const float f = i / 4 % 2 == 0 ? (i % 2 == 0 ? e.x : e.y) : (i % 2 == 0 ? e.z : e.w);
        x[i] = v[i] - f * x[i];
    }
}

/* Whether each lane's largest magnitude in either row is in [2^-11, 2^14]: what is smaller is off by up to 2^-25. */
template <int STEPS> __device__ __forceinline__ bool in_range(const u32 (&a)[STEPS][4])
{
    u32 lo[2], hi[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        lo[i] = larger_f16x2(a[i][0], a[i][2]);
        hi[i] = larger_f16x2(a[i][1], a[i][3]);
    }
#pragma unroll
    for (int i = 2; i < STEPS; ++i) {
        lo[i % 2] = larger_f16x2(lo[i % 2], larger_f16x2(a[i][0], a[i][2]));
        hi[i % 2] = larger_f16x2(hi[i % 2], larger_f16x2(a[i][1], a[i][3]));
    }
    const u32 l = larger_f16x2(lo[0], lo[1]), h = larger_f16x2(hi[0], hi[1]);
    const u32 m = larger_f16x2(__byte_perm(l, h, 0x5410), __byte_perm(l, h, 0x7632)) & 0x7fff7fffu;
    return (m & 0xffffu) - ROW_LOW <= F16_2_14 - ROW_LOW && (m >> 16) - ROW_LOW <= F16_2_14 - ROW_LOW;
}

/* The rare way to K S, of a warp alone: rows of S^T are scaled into fp16's range by the powers of two that come back. */
__device__ __forceinline__ float2 scaled_keys(float (&x)[32], const float (&S)[64], u32 k_tile)
{
    const float2 s = scales_of_rows(row_max(S)), f = { inverse(s.x), inverse(s.y) };
    const BlockLane at = block_lane(k_tile);
#pragma unroll
    for (int I = 0; I < 4; ++I) {
        float block[2][4] = {};
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const float *const y = &S[8 * k];
            const u32 a[4] = { pack_io(y[0] * f.x, y[1] * f.x), pack_io(y[2] * f.y, y[3] * f.y),
                               pack_io(y[4] * f.x, y[5] * f.x), pack_io(y[6] * f.y, y[7] * f.y) };
            u32 b[4];
            ldmatrix_x4(b, (at.b ^ ((k & 3) << 5)) + (k >> 2) * HALF + 2048 * I);
            mma_block(block, a, b);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
            x[8 * I + i] = block[i >> 2][i & 3] * (i & 2 ? s.y : s.x);
    }
    return s;
}

/*
 * The rare way to W as operand A: rows are divided by the powers of two that come back. S is divided by these times X's size,
 * which are kept above 2^-100.
 */
__device__ __forceinline__ float2 pack_scaled(u32 (&packed)[4][4], float (&W)[32], float size)
{
    const float least = 7.888609052210118e-31f * inverse(size); /* 2^-100 */
    float2 s = scales_of_rows(row_max(W));
    s = { fmaxf(s.x, least), fmaxf(s.y, least) };
    scale_rows(W, inverse(s.x), inverse(s.y));
    pack_f16_rows(packed, W);
    return s;
}

/* X as operand B, of which issue_update() takes the steps. */
__device__ __forceinline__ u32 update_operand(u32 x_tile)
{
    return mn_major(x_tile, HALF);
}

/* S^T += W^T X */
__device__ __forceinline__ void issue_update(float (&S)[64], const u32 (&W)[4][4], u32 b)
{
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
        wgmma_rs_n128_f16_mn(S, W[s], descriptor(b + s * (2048 >> 4)), 1);
    wgmma_commit();
}

/* Addresses of a chunk. x: X as operand B; full: the barriers of its slot, from FULL on. */
struct Turn {
    u32 k_tile, x, full, handed, flag, put;

    __device__ __forceinline__ Turn(const Places &places, int n)
        : k_tile(at(chain::K) + slot4(n) * TILE), x(update_operand(at(chain::X) + slot4(n) * TILE)),
          full(chain::bar(slot4(n))), handed(places.handed + slot4(n) * HANDED_BYTES),
          flag(places.flag + slot4(n) * HANDED_BYTES), put(chain::bar(chain::PUT + slot4(n)))
    {
        asm volatile("" : "+r"(x), "+r"(handed), "+r"(flag), "+r"(full), "+r"(put)); /* made here: see Places */
    }
};

/* Behind K S of packed S, in its time: its check, and its decay. S that is not in range keeps what it is. zeros: S is. */
__device__ __forceinline__ void decay_if_in_range(Chain &c, const u32 (&packed)[8][4], bool zeros)
{
    c.keys = true;
    if (!spec::IO_BF16 && !zeros) /* a branch: else it stands in the product's way */
        c.keys = __all_sync(~0u, in_range(packed));
    const bool decays = __any_sync(~0u, c.gates.decay != 1.0f);
    if (c.keys && decays) decay_state(c.S, c.gates.decay);
}

/*
 * W of chunk n, whose K and table are there, and v, and from this warp to the other CTA. False, and w zero, if that is not to
 * be taken as it is: of a warp whose W or S is not in range, of all if X is not. Behind the issue of a product an access to
 * shared memory waits until the product is done, arithmetic does not: so stores, arrivals and loads stand between the products,
 * or are the last thing behind one, and what is computed stands in a product's time. ptxas would have it elsewhere, but for
 * branches.
 */
__device__ __forceinline__ bool make_residual(Chain &c, const Places &places, const Turn &t, int n, bool zeros)
{
    u32 packed[8][4];
    const bool is_ready = mbar_peek(t.full + 8 * chain::READY, parity4(n));
    fetch_gates(c, places, slot4(n)); /* beside arithmetic: shared memory's port takes as long as that */
    pack_io_rows(packed, c.S);
    if (rarely(!is_ready)) mbar_wait(t.full + 8 * chain::READY, parity4(n));
    issue_keys(c.W, packed, t.k_tile);
    decay_if_in_range(c, packed, zeros);
    fetch_values(c, places, slot4(n + 1));
    wgmma_wait<0>();
    settled(c.W);
    subtract_keys(c.W, c.v, c.gates.e);
    pack_f16_rows(c.w, c.W);
    store_fragments(c.w, t.handed); /* who hands it over fences: these warps have no time for it */
    if (places.lane == 0) store_shared(t.flag, 0u);
    const bool usual = __all_sync(~0u, c.keys & (c.gates.size == 1.0f) & in_range(c.w));
#pragma unroll
    for (int i = 0; i < 16; ++i)
        c.w[i / 4][i % 4] = usual ? c.w[i / 4][i % 4] : 0u;
#pragma unroll
    for (int i = 0; i < 4; ++i) /* chosen here: between two products it would be in their way */
        asm volatile("" : "+r"(c.w[i][0]), "+r"(c.w[i][1]), "+r"(c.w[i][2]), "+r"(c.w[i][3]));
    __syncwarp(); /* the arrival is of all lanes' stores, which a vote does not order */
    if (usual && (ARRIVALS_PER_WARP == 32 || places.lane == 0)) mbar_arrive(t.put);
    return usual;
}

/*
 * S <- S + X^T W, of what decayed. Whether all warps had their W is known in the product's time: a warp that has none takes
 * part with zeros, which leave its S as it is. If all had, the next chunk's V is the chunk's.
 */
__device__ __forceinline__ bool update_state(Chain &c, const Turn &t, bool usual)
{
    issue_update(c.S, c.w, t.x);
    const bool vote = bar_all(BAR_VOTE, GROUP, usual), all = __any_sync(~0u, vote); /* alike, which a compiler does not know */
    if (all) take_values(c);
    wgmma_wait<0>();
    settled(c.S);
    return all;
}

/*
 * The rare way to a warp's W: K S anew where S was not in range, rows of W by powers of two where that is not. What S is to be
 * divided by for the update: these times X's size.
 */
__device__ __forceinline__ float2 make_scaled(Chain &c, const Places &places, const Turn &t)
{
    float2 s = { 1.0f, 1.0f }, r = { 1.0f, 1.0f };
    if (!c.keys) {
        s = scaled_keys(c.W, c.S, t.k_tile);
        subtract_keys(c.W, c.v, c.gates.e);
        decay_state(c.S, c.gates.decay);
    }
    pack_f16_rows(c.w, c.W);
    if (!__all_sync(~0u, in_range(c.w))) r = pack_scaled(c.w, c.W, c.gates.size);
    store_fragments(c.w, t.handed);
    store_shared(t.handed + SCALES_AT, __float_as_uint(s.x), __float_as_uint(s.y), __float_as_uint(r.x),
                 __float_as_uint(r.y));
    if (places.lane == 0) store_shared(t.flag, 1u);
    mbar_arrive_warp(t.put, places.lane);
    return { r.x * c.gates.size, r.y * c.gates.size };
}

/* What is left of an update: of warps that had no W for it. The others take part with zeros. */
__device__ __forceinline__ void update_rest(Chain &c, const Places &places, const Turn &t, bool usual)
{
    float2 r = { 1.0f, 1.0f };
#pragma unroll
    for (int i = 0; i < 16; ++i)
        c.w[i / 4][i % 4] = 0;
    if (!usual) r = make_scaled(c, places, t);
    scale_rows(c.S, inverse(r.x), inverse(r.y));
    issue_update(c.S, c.w, t.x);
    wgmma_wait<0>();
    settled(c.S);
    scale_rows(c.S, r.x, r.y);
    take_values(c);
}
