/*
 * gdn_hopper_readout.cuh - O = scale (e Q S + (P T) W) of each chunk, by a CTA beside the one that makes W. Its warpgroup has
 * an S of its own, by the same products of the same operands, so with the same bits. Must not know: how W is made, sequences.
 */
#pragma once

#include "gdn_hopper_chain.cuh"
#include "gdn_hopper_ring.cuh"
#include "gdn_hopper_rows.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"

/* W as operand A, and what this thread's two rows of S (x, y) and of W (z, w) are divided by. Whether by anything. */
__device__ __forceinline__ bool take_residual(u32 (&w)[4][4], float4 &scales, int n, int warp)
{
    const u32 from = at(readout::HANDED) + slot4(n) * HANDED_BYTES, own = from + 16 * (threadIdx.x % GROUP);
    const bool scaled = load_shared_u32(from + SCALED_AT + 4 * warp) != 0;
    load_fragments(w, own);
    scales = { 1.0f, 1.0f, 1.0f, 1.0f };
    if (rarely(scaled)) scales = load_shared_float4(own + SCALES_AT);
    return scaled;
}

/* That a warp has what was handed over. */
__device__ __forceinline__ void arrive_taken(int n)
{
    arrive_there(address_in(chain::bar(chain::TAKEN + slot4(n)), CHAIN_RANK));
}

/* x = W^T (P T)^T */
__device__ __forceinline__ void issue_scores(float (&x)[32], const u32 (&W)[4][4], u32 pt_tile)
{
    const u32 b = k_major(pt_tile);
    clear(x);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
        wgmma_rs_n64_f16(x, W[s], descriptor(b + 2 * s), s > 0);
    wgmma_commit();
}

/* O += x, of rows that were divided by lo and hi. */
__device__ __forceinline__ void add_rows(float (&O)[32], const float (&x)[32], float lo, float hi)
{
#pragma unroll
    for (int i = 0; i < 32; ++i)
        O[i] = __fmaf_rn(x[i], i & 2 ? hi : lo, O[i]);
}

/*
 * O of chunk n, which is ready, and S of the next one as the chain has it: see make_residual(). O is computed while S is
 * updated, and leaves when that is done: until then this warp's accesses to shared memory would wait.
 */
__device__ __forceinline__ void readout_chunk(float (&S)[64], int n, float late_scale, int warp)
{
    float O[32], x[32];
    float4 e[4], scales;
    u32 a[8][4], w[4][4];
    const int slot = slot4(n);
    const u32 table = at(readout::TABLE) + slot * GATE;
    const bool scaled = take_residual(w, scales, n, warp);
    const float decay = load_shared_float(table + DECAY_ALL), size = load_shared_float(table + SIZE_X);
    const float scale = late_scale * load_shared_float(table + SIZE_SCORES);
#pragma unroll
    for (int m = 0; m < 4; ++m)
        e[m] = gates_of_16(table + DECAY_IN_Q, m);
    const float2 r = { scales.z * size, scales.w * size };
    pack_io_rows(a, S);
    if (rarely(scaled)) pack_io_rows(a, S, inverse(scales.x), inverse(scales.y));
    arrive_taken(n);
    issue_keys(O, a, at(readout::Q) + slot * TILE);
    issue_scores(x, w, at(readout::PT) + slot * SQUARE);
    decay_state(S, decay);
    if (rarely(scaled)) scale_rows(S, inverse(r.x), inverse(r.y));
    issue_update(S, w, update_operand(at(readout::X) + slot * TILE));
    wgmma_wait<2>();
    settled(O);
#pragma unroll
    for (int m = 0; m < 4; ++m)
        scale_tokens(O, e[m], m);
    scale_rows(O, scales.x * scale, scales.y * scale);
    wgmma_wait<1>();
    settled(x);
    add_rows(O, x, scales.z * scale, scales.w * scale);
    wgmma_wait<0>();
    settled(S);
    arrive_at(readout::bar(readout::EMPTY + slot));
    mbar_wait(readout::bar(readout::O_EMPTY), n & 1 ^ 1);
    put_output(O, at(readout::O), warp);
    arrive_at(readout::bar(readout::O_FULL));
    if (rarely(scaled)) scale_rows(S, r.x, r.y);
}
