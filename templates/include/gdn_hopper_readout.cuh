/*
 * gdn_hopper_readout.cuh - O = scale (e Q S + (P T) W) of each chunk, by a CTA beside the one that makes W, with an S of its
 * own: the same products of the same operands, so the same bits. Must not know: how W is made, sequences.
 */
#pragma once

#include "gdn_hopper_chain.cuh"
#include "gdn_hopper_ring.cuh"
#include "gdn_hopper_rows.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_mbar.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_tile.cuh"

/* What was handed over: W as operand A, and what this thread's two rows of S (x, y) and of W (z, w) are divided by. */
__device__ __forceinline__ float4 take_residual(u32 (&w)[4][4], int n)
{
    const u32 from = at(readout::HANDED) + slot4(n) * HANDED_BYTES + 16 * (threadIdx.x % GROUP);
#pragma unroll
    for (int i = 0; i < W_STEPS; ++i) {
        const uint4 v = load_shared_16(from + i * FRAGMENT);
        w[i][0] = v.x, w[i][1] = v.y, w[i][2] = v.z, w[i][3] = v.w;
    }
    return load_shared_float4(from + SCALES_AT);
}

/* O^T += W^T (P T)^T */
__device__ __forceinline__ void issue_scores(float (&O)[32], const u32 (&W)[4][4], u32 pt_tile)
{
    const u32 b = k_major(pt_tile);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
        wgmma_rs_n64_f16(O, W[s], descriptor(b + 2 * s), 1);
    wgmma_commit();
}

/* Chunk n, which is ready. What is loaded is asked for before the first product: see chain_chunk(). */
__device__ __forceinline__ void readout_chunk(float (&S)[64], int n, float late_scale, int warp)
{
    float O[32];
    float4 e[4];
    u32 a[8][4], w[4][4];
    const u32 table = at(readout::TABLE) + slot4(n) * GATE;
    const float decay = load_shared_float(table + DECAY_ALL), size = load_shared_float(table + SIZE_X),
                size_of_scores = load_shared_float(table + SIZE_SCORES);
#pragma unroll
    for (int m = 0; m < 4; ++m)
        e[m] = gates_of_16(table + DECAY_IN_Q, m);
    const float4 scales = take_residual(w, n);
    const bool unlike = scales.x != 1.0f || scales.y != 1.0f || scales.z != 1.0f || scales.w != 1.0f;
    const bool scaled = size != 1.0f || __any_sync(~0u, unlike);
    pack_io_rows(a, S);
    if (rarely(scaled)) pack_state(a, S, { scales.x, scales.y });
    issue_keys(O, a, at(readout::Q) + slot4(n) * TILE);
    decay_state(S, decay);
    wgmma_wait<0>();
    settled(O);
    arrive_there(address_in(chain::bar(chain::TAKEN + slot4(n)), CHAIN_RANK));
#pragma unroll
    for (int m = 0; m < 4; ++m)
        scale_tokens(O, e[m], m);
    if (rarely(scaled)) {
        scale_rows(O, scales.x * inverse(scales.z), scales.y * inverse(scales.w));
        scale_rows(S, inverse(scales.z * size), inverse(scales.w * size));
    }
    issue_update(S, w, at(readout::X) + slot4(n) * TILE);
    issue_scores(O, w, at(readout::PT) + slot4(n) * SQUARE);
    wgmma_wait<0>();
    settled(S);
    settled(O);
    if (rarely(scaled)) scale_rows(S, scales.z * size, scales.w * size);
    late_scale *= size_of_scores;
    scale_rows(O, scales.z * late_scale, scales.w * late_scale);
    put_output(O, at(readout::O) + slot2(n) * HALF, warp);
    arrive_at(readout::bar(readout::EMPTY + slot4(n)));
    arrive_at(readout::bar(readout::O_FULL + slot2(n)));
}
