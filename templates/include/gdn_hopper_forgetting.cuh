/*
 * gdn_hopper_forgetting.cuh - how much the delta rule forgets in a chunk, from a sample of a sequence's tokens. Must not know:
 * partitions.
 */
#pragma once

#include "gdn_hopper_shared.cuh"
#include "gdn_norms.cuh"
#include "gdn_params.cuh"
#include "gdn_ptx.cuh"
#include "gdn_ptx_sm90.cuh"
#include "gdn_sequence.cuh"
#include "gdn_warp.cuh"

/*
 * Where gates leave too much the delta rule may not: a replay then is as long as it takes for both to leave what is a small
 * part of the noise that a link allows for. Both are seen from a sample, 32 tokens of the sequence, the same for all who ask.
 */
constexpr int SAMPLE = 32;
constexpr float ENOUGH_FORGOTTEN = spec::IO_BF16 ? -12.0f : -15.0f; /* log2 */
constexpr float USUALLY_FORGOTTEN = -0.2553f;                      /* of a chunk, |k| = 1, beta = sigmoid(normal) */
constexpr float LEAST_FORGOTTEN = -0.2f; /* slower ones have more noise than a link allows for */

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
