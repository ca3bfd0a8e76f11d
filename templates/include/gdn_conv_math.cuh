/*
 * gdn_conv_math.cuh - the arithmetic of one token's eight channels: taps, SiLU, L2 norm. All of it in float32.
 *
 * What bounds a small call is the special-function unit, which SiLU asks for a power and a reciprocal an element: two
 * neighbours share one reciprocal. What bounds a large one is memory.
 */
#pragma once

#include "gdn_conv_rows.cuh"
#include "gdn_params.cuh"

struct filter {
    float weight[CHANNELS][spec::WIDTH];
    io8 bias; // as it lies in memory: few models have one
};

/* weight is [C, WIDTH]: a thread's 8 channels are WIDTH whole vectors. */
__device__ __forceinline__ void start_filter(const conv1d_params &p, u32 vector)
{
    const io8 *const weight = (const io8 *)p.weight + vector * spec::WIDTH;
#pragma unroll
    for (int j = 0; j < spec::WIDTH; ++j)
#pragma unroll
        for (int i = 0; i < io8::VECTORS; ++i)
            copy_16_kept(&find_tile(0).column[(TILE_ROWS + j) * spec::THREADS].part[i], &weight[j].part[i]);
    end_group();
}

__device__ __forceinline__ filter load_filter(const conv1d_params &p, u32 vector)
{
    filter f;
    io8 raw[spec::WIDTH];
#pragma unroll
    for (int j = 0; j < spec::WIDTH; ++j)
        raw[j] = find_tile(0).column[(TILE_ROWS + j) * spec::THREADS];
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
#pragma unroll
        for (int j = 0; j < spec::WIDTH; ++j)
            f.weight[c][j] = in_register(bits_to_float<spec::IO_TYPE>(element(raw, c * spec::WIDTH + j)));
    if constexpr (spec::BIAS) f.bias = load_raw<spec::IO_TYPE>((const io8 *)p.bias + vector);
    return f;
}

/*
 * a * sigmoid(a) = a / (1 + 2^(-a log2 e)). Below a = -88.8 the power is infinite and the result -0; from -87.3 on the
 * reciprocal is subnormal and flushed: both are off by less than 2^-119. The clamp keeps a = -infinity, which finite
 * inputs may sum to, from giving -infinity * 0: it gives the limit, -0, and a NaN comes from nothing but a NaN.
 */
constexpr float MINUS_LOG2_E = -1.4426950408889634f;

__device__ __forceinline__ float silu(float a)
{
    const float clamped = max_nan(a, -1e30f);
    return clamped * rcp_approx(1.0f + ex2_approx(clamped * MINUS_LOG2_E));
}

/*
 * Four at a time, two of them share a reciprocal: 1 / d0 = d1 / (d0 d1). That holds while the product of all four is not huge,
 * which elements below -21, an infinity or a NaN may make it; else each for itself, so that no channel's value reaches
 * another's. A branch for each token would cost a tenth of it: usual runs do not look, but add these products up, and one
 * whose sum is TOO_LARGE is run again by who looks. What an element's bits are then depends on its four alone.
 */
constexpr int BATCH = 4;
constexpr float TOO_LARGE = 0x1p126f; // smaller products have normal reciprocals
enum run_kind { RUN_USUAL, RUN_LOOKING };

template <run_kind KIND> __device__ __forceinline__ void silu_of_batch(float *y, float &products)
{
    float d[BATCH];
#pragma unroll
    for (int c = 0; c < BATCH; ++c)
        d[c] = 1.0f + ex2_approx(y[c] * MINUS_LOG2_E);
    const float first = d[0] * d[1], second = d[2] * d[3];
    if (KIND == RUN_LOOKING && !(first * second < TOO_LARGE)) {
#pragma unroll
        for (int c = 0; c < BATCH; ++c)
            y[c] = silu(y[c]);
        return;
    }
    const float r0 = rcp_approx(first), r1 = rcp_approx(second);
    products = __fmaf_rn(first, second, products);
    y[0] *= r0 * d[1];
    y[1] *= r0 * d[0];
    y[2] *= r1 * d[3];
    y[3] *= r1 * d[2];
}

/* One token: oldest term first. */
template <run_kind KIND>
__device__ __forceinline__ void convolve(float (&y)[CHANNELS], const filter &f, const float (&window)[HALO][CHANNELS],
                                         const float (&now)[CHANNELS], float &products)
{
    if constexpr (spec::BIAS) unpack(y, f.bias);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
        if constexpr (!spec::BIAS) y[c] = 0.0f;
#pragma unroll
        for (int j = 0; j < HALO; ++j)
            y[c] = __fmaf_rn(f.weight[c][j], window[j][c], y[c]);
        y[c] = __fmaf_rn(f.weight[c][HALO], now[c], y[c]);
        if constexpr (spec::SILU)
            if (c % BATCH == BATCH - 1) silu_of_batch<KIND>(&y[c + 1 - BATCH], products);
    }
}

__device__ __forceinline__ void shift(float (&window)[HALO][CHANNELS], const float (&now)[CHANNELS])
{
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
#pragma unroll
        for (int j = 0; j + 1 < HALO; ++j)
            window[j][c] = window[j + 1][c];
        window[HALO - 1][c] = now[c];
    }
}

/*
 * x * rsqrt(sum x^2 + 1e-6) over the NORM_LANES lanes that hold a head of q or k; a warp holds whole heads. Every lane of the
 * warp comes here; apply is false for those of v.
 */
__device__ __forceinline__ void normalise(float (&y)[CHANNELS], bool apply)
{
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        sum = __fmaf_rn(y[c], y[c], sum);
#pragma unroll
    for (int mask = spec::NORM_LANES / 2; mask > 0; mask /= 2)
        sum += shuffle_xor(sum, mask);
    const float scale = apply ? rsqrt_approx(sum + 1e-6f) : 1.0f;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        y[c] *= scale;
}

/*
 * The same of two rounded tokens. Lanes of even number sum up the first's squares and take its root, the others the second's:
 * the sums are those of each token by itself.
 */
__device__ __forceinline__ void normalise_rounded(io8 &first, io8 &second, bool apply)
{
    float y[2][CHANNELS], sum[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int u = 0; u < 2; ++u) {
        unpack(y[u], u == 0 ? first : second);
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            sum[u] = __fmaf_rn(y[u][c], y[u][c], sum[u]);
    }
    const bool odd = threadIdx.x & 1;
    float own = (odd ? sum[1] : sum[0]) + shuffle_xor(odd ? sum[0] : sum[1], 1);
#pragma unroll
    for (int mask = 2; mask < spec::NORM_LANES; mask *= 2)
        own += shuffle_xor(own, mask);
    const float scale = apply ? rsqrt_approx(own + 1e-6f) : 1.0f, other = shuffle_xor(scale, 1);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            y[u][c] *= odd == (u == 1) ? scale : other;
        (u == 0 ? first : second) = pack(y[u]);
    }
}
