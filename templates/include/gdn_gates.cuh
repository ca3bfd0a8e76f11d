/*
 * gdn_gates.cuh - what args.g and args.beta hold -> log2 decay and beta of one token.
 *
 * A value is loaded raw, early, and becomes a gate where it is used: until then it is bits that nothing waits for. Tokens past
 * a sequence's end and absent tensors have raw values of their own, so that nothing asks again. Must not know who holds which
 * token.
 */
#pragma once

#include "gdn_sequence.cuh"

constexpr float LOG2E = 1.4426950408889634f;
/*
 * alpha = 0 and g = -inf without inf - inf: even with what positive gates may add before and after it (8 nats each), a sum that
 * holds this is below -126, where ex2 gives 0.
 */
constexpr float LOG2_DECAY_MIN = -150.0f;

/* From a_log = 88.4 on a rate would be -infinity, and times RAW_NO_DECAY's softplus, which is 0, no number. */
constexpr float LOWEST_RATE = -0x1.fffffep127f;

/* A gate as it lies in memory. Not a number, so that nobody computes with it, or waits for its load, too early. */
struct RawGate {
    u32 bits;
};

/*
 * Bits of the few values that stand for what is not there, by type; "huge" is one whose exp is infinite. Minus infinity
 * stays that with any dt_bias added.
 */
struct RawValues {
    u32 zero, half, one, huge, minus_infinity;
};
__device__ constexpr RawValues raw_values(int type)
{
    return type == TYPE_F32    ? RawValues{ 0, 0x3f000000, 0x3f800000, 0x7f000000, 0xff800000 }
           : type == TYPE_BF16 ? RawValues{ 0, 0x3f00, 0x3f80, 0x7f00, 0xff80 }
                               : RawValues{ 0, 0x3800, 0x3c00, 0x7bff, 0xfc00 };
}
constexpr RawValues G_VALUES = raw_values(spec::GATE_TYPE), BETA_VALUES = raw_values(spec::BETA_TYPE);
constexpr u32 RAW_NO_DECAY = spec::GATE_LOGITS ? G_VALUES.minus_infinity : spec::GATE_LINEAR ? G_VALUES.one : G_VALUES.zero;
constexpr u32 RAW_BETA_0 = spec::BETA_LOGITS ? BETA_VALUES.minus_infinity : BETA_VALUES.zero;
constexpr u32 RAW_BETA_1 = spec::BETA_LOGITS ? (spec::BETA_TIMES_2 ? BETA_VALUES.zero : BETA_VALUES.huge)
                                             : (spec::BETA_TIMES_2 ? BETA_VALUES.half : BETA_VALUES.one);

/* 2^x; below -126 it gives 0. */
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within one unit in the last place; 0 for infinity. */
__device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/*
 * log(1 + e^x) = max(x, 0) + log1p(a), a = e^-|x|, and log1p(a) = 2 atanh(s), s = a / (2 + a) <= 1/3, by seven terms: without
 * branches, and within 2e-6 of itself down to x = -40, where lg2.approx(1 + a) has no digit left. Above 20 it is x, as the
 * engines' threshold says; below -87 it is 0. A NaN stays one. conv1d-QKV has branches and log1pf (gdn_conv_gates.cuh), whose
 * last bits are others.
 */
__device__ __forceinline__ float softplus(float x)
{
    const float a = exp2_approx(-LOG2E * fabsf(x)), s = a * rcp_approx(2.0f + a), z = s * s;
    float series = fmaf(z, 1.0f / 13, 1.0f / 11);
    series = fmaf(z, series, 1.0f / 9);
    series = fmaf(z, series, 1.0f / 7);
    series = fmaf(z, series, 1.0f / 5);
    series = fmaf(z, series, 1.0f / 3);
    return fmaxf(x, 0.0f) + 2.0f * fmaf(z * series, s, s);
}

/* The gates of one sequence and state head, from some token on. */
struct GateReader {
    const char *g, *beta; /* of the token that the reader stands at; no addresses where p.g, p.beta are null */
    float rate, bias;     /* logits: log2 decay = rate * softplus(raw + bias) */

    GateReader() = default;

    static constexpr int G_BYTES = spec::GATE_TYPE == TYPE_F32 ? 4 : 2;
    static constexpr int BETA_BYTES = spec::BETA_TYPE == TYPE_F32 ? 4 : 2;

    __device__ __forceinline__ GateReader(const prefill_params &p, const Sequence &s, int head, int token)
        : g((const char *)p.g + row_offset(s, head, p.g_batch_stride, p.g_token_stride, p.g_head_stride) * G_BYTES),
          beta((const char *)p.beta +
               row_offset(s, head, p.beta_batch_stride, p.beta_token_stride, p.beta_head_stride) * BETA_BYTES)
    {
        if constexpr (spec::GATE_LOGITS) {
            rate = p.g ? -LOG2E * expf(p.a_log[head]) : 0.0f;
            rate = rate < LOWEST_RATE ? LOWEST_RATE : rate; /* a NaN stays one, as below */
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
    __device__ __forceinline__ RawGate raw_decay(const prefill_params &p, int i, bool inside) const
    {
        return { inside && p.g ? load_bits<spec::GATE_TYPE>(g, i * p.g_token_stride) : RAW_NO_DECAY };
    }
    __device__ __forceinline__ RawGate raw_beta(const prefill_params &p, int i, bool inside) const
    {
        return { !inside  ? RAW_BETA_0
                 : p.beta ? load_bits<spec::BETA_TYPE>(beta, i * p.beta_token_stride)
                          : RAW_BETA_1 };
    }
    /* log2 of one token's decay, at least LOG2_DECAY_MIN. A NaN stays one: it must show. */
    __device__ __forceinline__ float log2_decay(RawGate gate) const
    {
        const float raw = element_of_bits<spec::GATE_TYPE>(gate.bits);
        float decay;
        if constexpr (spec::GATE_LINEAR) {
            decay = log2f(raw);
        } else if constexpr (spec::GATE_LOGITS) {
            decay = rate * softplus(raw + bias);
        } else {
            decay = raw * LOG2E;
        }
        return decay < LOG2_DECAY_MIN ? LOG2_DECAY_MIN : decay; /* not fmaxf, which drops a NaN */
    }
    __device__ __forceinline__ static float beta_of(RawGate gate)
    {
        const float raw = element_of_bits<spec::BETA_TYPE>(gate.bits);
        const float b = spec::BETA_LOGITS ? rcp_approx(1.0f + exp2_approx(-LOG2E * raw)) : raw;
        return spec::BETA_TIMES_2 ? 2.0f * b : b;
    }
};
