/*
 * layer.c - see layer.h. Weights as a new Gated DeltaNet layer has them: A uniform in [1, 16), time steps log-uniform in
 * [0.001, 0.1) through an inverse softplus, conv weights uniform in +-1/sqrt(width). Channels of the projection have means,
 * so that keys of different tokens resemble each other, as a trained layer's do.
 */
#include "demo_layer/layer.h"

#include "cuda_mini.h"
#include "example_data.h"

void *demo_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p) return p;
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    exit(1);
}

/* ---- layer ------------------------------------------------------------------------------------------------------------- */

static float inverse_softplus(float x)
{
    return x + logf(-expm1f(-x));
}

struct layer layer_create(int tp)
{
    struct layer l = { .tp = tp, .k_heads = K_HEADS / tp, .v_heads = V_HEADS / tp };
    uint64_t seed = 20 + (uint64_t)tp;
    l.channels = (2 * l.k_heads + l.v_heads) * HEAD_DIM;
    l.row = l.channels + l.v_heads * HEAD_DIM;
    l.conv_state = (size_t)l.channels * (CONV_WIDTH - 1);
    l.gdn_state = (size_t)l.v_heads * HEAD_DIM * HEAD_DIM;
    l.conv_weight = example_bf16((size_t)l.channels * CONV_WIDTH, 0.5f, seed);
    l.x_mean = example_f32((size_t)l.row, -1.0f, 1.0f, seed + 3);
    l.a_log = example_f32((size_t)l.v_heads, 1.0f, 16.0f, seed + 1);
    l.dt_bias = example_f32((size_t)l.v_heads, logf(0.001f), logf(0.1f), seed + 2);
    for (int h = 0; h < l.v_heads; ++h) {
        l.a_log[h] = logf(l.a_log[h]);
        l.dt_bias[h] = inverse_softplus(expf(l.dt_bias[h]));
    }
    return l;
}

void layer_free(struct layer *l)
{
    free(l->conv_weight), free(l->x_mean), free(l->a_log), free(l->dt_bias);
}

gdn_conv1d_desc layer_conv_desc(const struct layer *l)
{
    gdn_conv1d_desc desc = GDN_CONV1D_DESC_INIT; /* bf16, SiLU, state [slots, C, width - 1] */
    desc.num_q_heads = desc.num_k_heads = l->k_heads;
    desc.num_v_heads = l->v_heads;
    desc.head_dim_qk = desc.head_dim_v = HEAD_DIM;
    desc.width = CONV_WIDTH;
    desc.max_tokens = MAX_TOKENS;
    desc.max_seqs = MAX_PROMPTS;
    return desc;
}

gdn_prefill_desc layer_gdn_desc(const struct layer *l)
{
    gdn_prefill_desc desc = GDN_PREFILL_DESC_INIT; /* bf16, float32 state [N, H, DK, DV] */
    desc.num_q_heads = desc.num_k_heads = l->k_heads;
    desc.num_v_heads = l->v_heads;
    desc.head_dim_qk = desc.head_dim_v = HEAD_DIM;
    desc.max_tokens = MAX_TOKENS;
    desc.max_seqs = MAX_PROMPTS;
    return desc;
}

/* ---- batch ------------------------------------------------------------------------------------------------------------- */

/* About normal: the sum of four uniform numbers, of variance 1. */
static float about_normal(uint64_t *seed)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; ++i)
        sum += example_uniform(seed);
    return sum * 0.8660254f;
}

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b). */
static void fill_gates(const struct layer *l, struct batch *b, uint64_t *seed)
{
    for (int32_t t = 0; t < batch_tokens(b); ++t) {
        for (int h = 0; h < l->v_heads; ++h) {
            const size_t i = (size_t)t * (size_t)l->v_heads + (size_t)h;
            b->g[i] = -expf(l->a_log[h]) * softplus(about_normal(seed) + l->dt_bias[h]);
            b->beta[i] = 1.0f / (1.0f + expf(-about_normal(seed)));
        }
    }
}

static struct batch batch_empty(const struct layer *l, const int32_t *lens, int num_seqs)
{
    struct batch b = { .num_seqs = num_seqs };
    for (int n = 0; n < num_seqs; ++n)
        b.cu_seqlens[n + 1] = b.cu_seqlens[n] + lens[n];
    const size_t t = (size_t)batch_tokens(&b);
    b.x = demo_alloc(t * (size_t)l->row * sizeof *b.x);
    b.g = demo_alloc(t * (size_t)l->v_heads * sizeof *b.g);
    b.beta = demo_alloc(t * (size_t)l->v_heads * sizeof *b.beta);
    return b;
}

struct batch batch_create(const struct layer *l, const int32_t *lens, int num_seqs, uint64_t seed)
{
    struct batch b = batch_empty(l, lens, num_seqs);
    uint16_t *x = b.x;
    for (int32_t t = 0; t < batch_tokens(&b); ++t)
        for (int c = 0; c < l->row; ++c)
            *x++ = to_bf16(l->x_mean[c] + about_normal(&seed));
    fill_gates(l, &b, &seed);
    return b;
}

struct batch batch_pieces(const struct layer *l, const struct batch *whole, const int32_t *from, const int32_t *to)
{
    int32_t lens[MAX_PROMPTS];
    for (int n = 0; n < whole->num_seqs; ++n)
        lens[n] = to[n] - from[n];
    struct batch b = batch_empty(l, lens, whole->num_seqs);
    const size_t row = (size_t)l->row, heads = (size_t)l->v_heads;
    for (int n = 0; n < whole->num_seqs; ++n) {
        const size_t src = (size_t)(whole->cu_seqlens[n] + from[n]), dst = (size_t)b.cu_seqlens[n],
                     len = (size_t)lens[n];
        memcpy(b.x + dst * row, whole->x + src * row, len * row * sizeof *b.x);
        memcpy(b.g + dst * heads, whole->g + src * heads, len * heads * sizeof *b.g);
        memcpy(b.beta + dst * heads, whole->beta + src * heads, len * heads * sizeof *b.beta);
    }
    return b;
}

void batch_free(struct batch *b)
{
    free(b->x), free(b->g), free(b->beta);
}

/* ---- states, outputs --------------------------------------------------------------------------------------------------- */

struct states states_zero(const struct layer *l, int num_seqs)
{
    const size_t n = (size_t)num_seqs;
    struct states s = { demo_alloc(n * l->conv_state * sizeof *s.conv), demo_alloc(n * l->gdn_state * sizeof *s.gdn) };
    memset(s.conv, 0, n * l->conv_state * sizeof *s.conv);
    memset(s.gdn, 0, n * l->gdn_state * sizeof *s.gdn);
    return s;
}

void states_free(struct states *s)
{
    free(s->conv), free(s->gdn);
}

struct outputs outputs_create(const struct layer *l, int32_t tokens)
{
    const size_t qk = (size_t)tokens * (size_t)l->k_heads * HEAD_DIM * 2,
                 v = (size_t)tokens * (size_t)l->v_heads * HEAD_DIM * 2;
    return (struct outputs){ demo_alloc(qk), demo_alloc(qk), demo_alloc(v), demo_alloc(v) };
}

void outputs_free(struct outputs *out)
{
    free(out->q), free(out->k), free(out->v), free(out->o);
}

void outputs_place(const struct layer *l, const struct batch *whole, const int32_t *from, const struct batch *piece,
                   const struct outputs *part, struct outputs *all)
{
    const size_t qk = (size_t)l->k_heads * HEAD_DIM, v = (size_t)l->v_heads * HEAD_DIM;
    for (int n = 0; n < whole->num_seqs; ++n) {
        const size_t dst = (size_t)(whole->cu_seqlens[n] + from[n]), src = (size_t)piece->cu_seqlens[n];
        const size_t len = (size_t)(piece->cu_seqlens[n + 1] - piece->cu_seqlens[n]);
        memcpy(all->q + dst * qk, part->q + src * qk, len * qk * 2);
        memcpy(all->k + dst * qk, part->k + src * qk, len * qk * 2);
        memcpy(all->v + dst * v, part->v + src * v, len * v * 2);
        memcpy(all->o + dst * v, part->o + src * v, len * v * 2);
    }
}

void normalize_heads(const struct layer *l, uint16_t *q, uint16_t *k, int32_t tokens)
{
    const size_t rows = (size_t)tokens * (size_t)l->k_heads;
    example_normalize_bf16(q, rows, HEAD_DIM);
    example_normalize_bf16(k, rows, HEAD_DIM);
}

/* ---- on the host ------------------------------------------------------------------------------------------------------- */

void layer_on_host(const struct layer *l, const struct batch *b, struct states *states, struct outputs *out)
{
    const int32_t tokens = batch_tokens(b);
    const gdn_conv1d_desc conv_desc = layer_conv_desc(l);
    const gdn_prefill_desc gdn_desc = layer_gdn_desc(l);
    gdn_conv1d_args conv = GDN_CONV1D_ARGS_INIT;
    gdn_prefill_args gdn = GDN_PREFILL_ARGS_INIT;
    conv.x = (uintptr_t)b->x, conv.weight = (uintptr_t)l->conv_weight, conv.x_stride = l->row;
    conv.q = gdn.q = (uintptr_t)out->q, conv.k = gdn.k = (uintptr_t)out->k, conv.v = gdn.v = (uintptr_t)out->v;
    conv.state = (uintptr_t)states->conv;
    conv.cu_seqlens = gdn.cu_seqlens = (uintptr_t)b->cu_seqlens;
    conv.num_tokens = gdn.num_tokens = tokens;
    conv.num_seqs = gdn.num_seqs = b->num_seqs;
    gdn.g = (uintptr_t)b->g, gdn.beta = (uintptr_t)b->beta, gdn.o = (uintptr_t)out->o;
    gdn.initial_state = gdn.final_state = (uintptr_t)states->gdn;
    GDN(gdn_reference_conv1d_qkv(&conv_desc, &conv));
    normalize_heads(l, out->q, out->k, tokens);
    GDN(gdn_reference_prefill(&gdn_desc, &gdn));
}
