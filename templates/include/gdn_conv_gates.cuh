/*
 * gdn_conv_gates.cuh - g and beta from the projections a and b: a lane a head, over some tokens; with few heads a warp takes
 * several of them at a time.
 *
 *     g    = -exp(a_log) * softplus(a + dt_bias)        softplus(x) = log(1 + e^x), and x above 20
 *     beta = 1 / (1 + exp(-b))
 *
 * Prefill makes gates of the same logits (GDN_GATE_LOGITS, GDN_BETA_LOGITS) by other instructions (gdn_gates.cuh): of other
 * last bits, and far below 0 softplus there is 0.
 */
#pragma once

#include "gdn_conv_sequences.cuh"

/* One head: where its logits and outputs lie, and what does not depend on the token. */
struct gate_lane {
    u32 head, column; // of g and beta; of a and b
    float a_log, rate, bias;
};

__device__ __forceinline__ gate_lane make_gate_lane(const conv1d_params &p, u32 head)
{
    gate_lane l{ head, head, 0.0f, 0.0f, 0.0f };
    if (p.gate_group_stride != 0)
        l.column = head / (u32)p.gate_group * (u32)p.gate_group_stride + head % (u32)p.gate_group;
    if (p.g != nullptr) {
        l.a_log = load_element<spec::A_LOG_TYPE>(p.a_log, head);
        l.rate = expf(l.a_log);
        if (p.dt_bias != nullptr) l.bias = load_element<spec::DT_BIAS_TYPE>(p.dt_bias, head);
    }
    return l;
}

/* Far below 0 softplus(x) is e^x: joined with exp(a_log), so that neither overflows or vanishes alone. */
__device__ __forceinline__ float log_decay(const gate_lane &l, float a)
{
    const float x = a + l.bias;
    if (x < -16.0f) return -expf(l.a_log + x);
    return -l.rate * (x > 20.0f ? x : log1pf(expf(x)));
}

__device__ __forceinline__ float sigmoid(float b)
{
    return rcp_approx(1.0f + expf(-b));
}

struct logits {
    float a, b;
};

__device__ __forceinline__ logits load_logits(const conv1d_params &p, const gate_lane &l, u32 token)
{
    logits x{ 0.0f, 0.0f };
    if (p.g != nullptr) x.a = load_element<spec::GATE_TYPE>(p.a, (i64)token * p.a_stride + l.column);
    if (p.beta != nullptr) x.b = load_element<spec::GATE_TYPE>(p.b, (i64)token * p.b_stride + l.column);
    return x;
}

__device__ __forceinline__ void store_gates(const conv1d_params &p, const gate_lane &l, u32 token, const logits &x)
{
    const u64 to = (u64)token * (u32)p.num_gate_heads + l.head;
    if (p.g != nullptr) {
        const float g = log_decay(l, x.a);
        p.g[to] = spec::GATE_EXP ? expf(g) : g;
    }
    if (p.beta != nullptr) {
        float beta = sigmoid(x.b);
        if constexpr (spec::BETA_ROUNDED) beta = bits_to_float<spec::GATE_TYPE>(float_to_bits<spec::GATE_TYPE>(beta));
        p.beta[to] = spec::BETA_TIMES_2 ? 2.0f * beta : beta;
    }
}

__device__ __forceinline__ void zero_gates(const conv1d_params &p, const gate_lane &l, u64 token)
{
    if (p.g != nullptr) p.g[token * (u32)p.num_gate_heads + l.head] = 0.0f;
    if (p.beta != nullptr) p.beta[token * (u32)p.num_gate_heads + l.head] = 0.0f;
}

/* Item: a lane of a warp of gate_tokens rows; their warps follow each other. */
__device__ __forceinline__ void gate_tile(const conv1d_params &p, u32 item)
{
    const u32 warp = item / 32, warps = (u32)p.gate_warps, step = (u32)p.gate_step, heads = 32 / step;
    const u32 tile = (u32)p.gate_tokens, tile_begin = warp / warps * tile;
    const u32 head = warp % warps * 32 + item % heads, ahead = item % 32 / heads;
    if (tile_begin >= (u32)p.num_tokens || head >= (u32)p.num_gate_heads) return;
    const gate_lane l = make_gate_lane(p, head);
    for_each_segment(
        p, tile, [&] { return tile_begin; },
        [&](const segment &s, const line_pair &) {
            constexpr int AT_ONCE = 4; // whose loads do not wait for each other
#pragma unroll 1
            for (u32 token = s.first + ahead; token < s.last; token += AT_ONCE * step) {
                logits x[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i)
                    if (token + i * step < s.last) x[i] = load_logits(p, l, token + i * step);
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i)
                    if (token + i * step < s.last) store_gates(p, l, token + i * step, x[i]);
            }
        },
        [&](u32 first, u32 last) {
            for (u32 token = first + ahead; token < last; token += step)
                zero_gates(p, l, token);
        });
}
