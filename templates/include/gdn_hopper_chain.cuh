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

/* The same of the next one, and V^T of this lane's columns. */
struct Ahead {
    u32 v[4][4];
    Gates gates;
};

/* A sequence's S, and a chunk as far as it is made. */
struct Chain {
    float S[64], v[32], W[32];
    Gates now;
    Ahead next;
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
        : values(kept(at(chain::V) + values_at(warp))),
          gates(kept(at(chain::TABLE) + DECAY_IN + pair_at(lane_id() & 3))),
          table(at(chain::TABLE) + (kept(lane_id()) ^ lane_id())),
          handed(kept(at(chain::HANDED) + 16 * (threadIdx.x % GROUP))),
          flag(kept(at(chain::HANDED) + SCALED_AT + 4 * warp)), lane(kept(lane_id()))
    {
    }
};

/* Of a chunk that is there; behind the last one, of none, for nobody. */
__device__ __forceinline__ void fetch(Ahead &to, const Places &from, u32 slot)
{
    const u32 e = from.gates + slot * GATE, table = from.table + slot * GATE;
    load_values(to.v, from.values + slot * HALF);
#pragma unroll
    for (int m = 0; m < 4; ++m)
        to.gates.e[m] = load_shared_float4(e + pair_at(8 * m));
    to.gates.size = load_shared_float(table + SIZE_X);
    to.gates.decay = load_shared_float(table + DECAY_ALL);
}

/* The next chunk's become the chunk's. */
__device__ __forceinline__ void advance(float (&v)[32], Gates &now, const Ahead &next)
{
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        v[2 * i] = io_lo(next.v[i / 4][i % 4]);
        v[2 * i + 1] = io_hi(next.v[i / 4][i % 4]);
    }
    now = next.gates;
}

/* W^T = V^T - e (K S)^T, in place of K S. */
__device__ __forceinline__ void residual(float (&x)[32], const float (&v)[32], const float4 (&gates)[4])
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

__device__ __forceinline__ void decay_state(float (&S)[64], float decay)
{
#pragma unroll
    for (int i = 0; i < 64; ++i)
        S[i] *= decay;
}

/* Addresses of a chunk. x: X as operand B; full: the barriers of its slot, from FULL on. */
struct Turn {
    u32 k_tile, x, full, handed, flag, put;

    __device__ __forceinline__ Turn(const Places &places, int n)
        : k_tile(at(chain::K) + slot4(n) * TILE), x(update_operand(at(chain::X) + slot4(n) * TILE)),
          full(chain::bar(slot4(n))), handed(places.handed + handed_slot(n) * HANDED_BYTES),
          flag(places.flag + handed_slot(n) * HANDED_BYTES), put(chain::bar(chain::PUT + handed_slot(n)))
    {
        asm volatile("" : "+r"(x), "+r"(handed), "+r"(flag), "+r"(full), "+r"(put)); /* made here: see Places */
    }
};

/*
 * W of chunk n, whose K is there, and v and gates; false if W or S of some warp, or X, is not to be taken as it is. zeros: S
 * is. Behind the issue of a product an access to shared memory waits until the product is done, arithmetic does not: so loads,
 * stores and arrivals stand between the products, and what is computed from them in a product's time.
 */
__device__ __forceinline__ bool make_residual(Chain &c, u32 (&w)[4][4], const Places &places, const Turn &t, int n,
                                              bool zeros)
{
    u32 packed[8][4];
    const bool is_ready = mbar_peek(t.full + 8 * chain::READY, parity4(n));
    pack_io_rows(packed, c.S);
    if (rarely(!is_ready)) mbar_wait(t.full + 8 * chain::READY, parity4(n));
    issue_keys(c.W, packed, t.k_tile);
    c.keys = spec::IO_BF16 || __all_sync(~0u, zeros | in_range(packed));
    const bool decays = __any_sync(~0u, c.now.decay != 1.0f); /* as a branch it stays in the product's time */
    if (c.keys && decays) decay_state(c.S, c.now.decay);
    wgmma_wait<0>();
    settled(c.W);
    fetch(c.next, places, slot4(n + 1));
    residual(c.W, c.v, c.now.e);
    pack_f16_rows(w, c.W);
    store_fragments(w, t.handed); /* who hands it over fences: these warps have no time for it */
    if (places.lane == 0) store_shared(t.flag, 0u);
    const bool usual = bar_all(BAR_VOTE, GROUP, c.keys & (c.now.size == 1.0f) & in_range(w));
    return __any_sync(~0u, usual); /* of all lanes alike, which a compiler does not know of a barrier */
}

/* S <- S + X^T W, of what decayed; the next chunk is the chunk. */
__device__ __forceinline__ void update_state(Chain &c, const u32 (&w)[4][4], const Places &places, const Turn &t)
{
    mbar_arrive_warp(t.put, places.lane);
    issue_update(c.S, w, t.x);
    advance(c.v, c.now, c.next);
    wgmma_wait<0>();
    settled(c.S);
    mbar_arrive_warp(t.full + 8 * chain::EMPTY, places.lane);
}

/*
 * The same of a chunk that cannot be taken as it is: K S anew where S was not in range, W by powers of two where that is not, S
 * by these times X's size.
 */
__device__ __forceinline__ void update_scaled(Chain &c, u32 (&w)[4][4], const Places &places, const Turn &t)
{
    float2 s = { 1.0f, 1.0f }, r = { 1.0f, 1.0f };
    const float size = c.now.size;
    if (!c.keys) {
        s = scaled_keys(c.W, c.S, t.k_tile);
        residual(c.W, c.v, c.now.e);
        decay_state(c.S, c.now.decay);
        pack_f16_rows(w, c.W);
    }
    if (!__all_sync(~0u, in_range(w))) r = pack_scaled(w, c.W, size);
    store_fragments(w, t.handed);
    store_shared(t.handed + SCALES_AT, __float_as_uint(s.x), __float_as_uint(s.y), __float_as_uint(r.x),
                 __float_as_uint(r.y));
    if (places.lane == 0) store_shared(t.flag, 1u);
    scale_rows(c.S, inverse(r.x * size), inverse(r.y * size));
    update_state(c, w, places, t);
    scale_rows(c.S, r.x * size, r.y * size);
}
