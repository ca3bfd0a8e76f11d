/*
 * gdn_gates.cuh - what args.g and args.beta hold -> log2 decay and beta of one token.
 *
 * A value is loaded raw, early, and becomes a gate where it is used. Tokens past a sequence's end and absent tensors have raw
 * values of their own, so that nothing asks again. Must not know who holds which token.
 */
#pragma once

#include "gdn_sequence.cuh"

constexpr float LOG2E = 1.4426950408889634f;
/*
 * alpha = 0 and g = -inf without inf - inf: even with what positive gates may add before and after it (8 nats each), a sum that
 * holds this is below -126, where ex2 gives 0.
 */
constexpr float LOG2_DECAY_MIN = -150.0f;

/* 1e30 stands for infinity: its exp is, and that of its opposite is 0. */
constexpr float RAW_NO_DECAY = spec::GATE_LOGITS ? -1e30f : spec::GATE_LINEAR ? 1.0f : 0.0f;
constexpr float RAW_BETA_0 = spec::BETA_LOGITS ? -1e30f : 0.0f;
constexpr float RAW_BETA_1 =
    spec::BETA_LOGITS ? (spec::BETA_TIMES_2 ? 0.0f : 1e30f) : (spec::BETA_TIMES_2 ? 0.5f : 1.0f);

/* 2^x; below -126 it gives 0. */
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The gates of one sequence and state head, from some token on. */
struct GateReader {
    const char *g, *beta; /* of the token that the reader stands at; no addresses where p.g, p.beta are null */
    float rate, bias;     /* logits: log2 decay = rate * softplus(raw + bias) */

    static constexpr int G_BYTES = spec::GATE_TYPE == TYPE_F32 ? 4 : 2;
    static constexpr int BETA_BYTES = spec::BETA_TYPE == TYPE_F32 ? 4 : 2;

    __device__ __forceinline__ GateReader(const prefill_params &p, const Sequence &s, int head, int token)
        : g((const char *)p.g + row_offset(s, head, p.g_batch_stride, p.g_token_stride, p.g_head_stride) * G_BYTES),
          beta((const char *)p.beta +
               row_offset(s, head, p.beta_batch_stride, p.beta_token_stride, p.beta_head_stride) * BETA_BYTES)
    {
        if constexpr (spec::GATE_LOGITS) {
            rate = p.g ? -LOG2E * expf(p.a_log[head]) : 0.0f;
            bias = p.dt_bias ? p.dt_bias[head] : 0.0f;
        }
        advance(p, token);
    }
    __device__ __forceinline__ void advance(const prefill_params &p, int tokens)
    {
        g += tokens * p.g_token_stride * G_BYTES;
        beta += tokens * p.beta_token_stride * BETA_BYTES;
    }
    /* Of the i-th token from here; inside: it is one of the sequence. */
    __device__ __forceinline__ float raw_decay(const prefill_params &p, int i, bool inside) const
    {
        return inside && p.g ? load_element<spec::GATE_TYPE>(g, i * p.g_token_stride) : RAW_NO_DECAY;
    }
    __device__ __forceinline__ float raw_beta(const prefill_params &p, int i, bool inside) const
    {
        if (!inside) return RAW_BETA_0;
        return p.beta ? load_element<spec::BETA_TYPE>(beta, i * p.beta_token_stride) : RAW_BETA_1;
    }
    /* log2 of one token's decay, at least LOG2_DECAY_MIN. A NaN stays one: it must show. */
    __device__ __forceinline__ float log2_decay(float raw) const
    {
        float decay;
        if constexpr (spec::GATE_LINEAR) {
            decay = log2f(raw);
        } else if constexpr (spec::GATE_LOGITS) {
            const float x = raw + bias;
            decay = rate * (x > 20.0f ? x : log1pf(expf(x)));
        } else {
            decay = raw * LOG2E;
        }
        return decay < LOG2_DECAY_MIN ? LOG2_DECAY_MIN : decay; /* not fmaxf, which drops a NaN */
    }
    __device__ __forceinline__ static float beta_of(float raw)
    {
        const float b = spec::BETA_LOGITS ? 1.0f / (1.0f + exp2_approx(-LOG2E * raw)) : raw;
        return spec::BETA_TIMES_2 ? 2.0f * b : b;
    }
};
