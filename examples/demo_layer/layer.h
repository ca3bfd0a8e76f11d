/*
 * layer.h - one Gated DeltaNet layer of Qwen3-Next-80B-A3B as one tensor-parallel rank sees it, and a batch of prompts: shapes,
 * seeded weights and projections, gates, the q/k norm. Host memory only.
 *
 * A packed row of the projection is [q | k | v | z], z for the gated norm that follows the operators here: x_stride is the row,
 * the conv reads its first three parts. (The published checkpoint interleaves the four per k head; engines sort the rows of
 * the weight once, at load.)
 */
#ifndef DEMO_LAYER_H
#define DEMO_LAYER_H

#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

enum { K_HEADS = 16, V_HEADS = 32, HEAD_DIM = 128, CONV_WIDTH = 4 };
enum { MAX_PROMPTS = 8, MAX_TOKENS = 8192 }; /* of any call: what an engine plans for once */

struct layer {
    int tp, k_heads, v_heads;     /* of this rank */
    int channels, row;            /* of the conv; elements of a packed row */
    size_t conv_state, gdn_state; /* elements of one sequence's state */
    uint16_t *conv_weight;        /* [channels, CONV_WIDTH] bf16 */
    float *x_mean;                /* [row]: of the projection's channels */
    float *a_log, *dt_bias;       /* [v_heads] */
};

struct layer layer_create(int tp);
void layer_free(struct layer *layer);

gdn_conv1d_desc layer_conv_desc(const struct layer *layer);
gdn_prefill_desc layer_gdn_desc(const struct layer *layer);

/* Prompts, or pieces of them, packed one after the other: what one call of the layer is given. */
struct batch {
    int num_seqs;
    int32_t cu_seqlens[MAX_PROMPTS + 1];
    uint16_t *x;     /* [tokens, row] bf16 */
    float *g, *beta; /* [tokens, v_heads]: the operators' inputs, computed here from the projections a and b */
};

struct batch batch_create(const struct layer *layer, const int32_t *lens, int num_seqs, uint64_t seed);
/* Tokens from[n] to to[n] - 1 of each sequence, as a batch of its own. */
struct batch batch_pieces(const struct layer *layer, const struct batch *whole, const int32_t *from, const int32_t *to);
void batch_free(struct batch *batch);
static inline int32_t batch_tokens(const struct batch *b)
{
    return b->cu_seqlens[b->num_seqs];
}

/* Per sequence, carried from call to call. */
struct states {
    uint16_t *conv; /* bf16, raw inputs */
    float *gdn;
};

struct outputs {
    uint16_t *q, *k, *v; /* [tokens, heads, HEAD_DIM] bf16; q and k normalised */
    uint16_t *o;         /* [tokens, v_heads, HEAD_DIM] bf16 */
};

struct states states_zero(const struct layer *layer, int num_seqs);
void states_free(struct states *states);
struct outputs outputs_create(const struct layer *layer, int32_t tokens);
void outputs_free(struct outputs *outputs);

/* Rows of a piece's outputs go to their places in the whole's. */
void outputs_place(const struct layer *layer, const struct batch *whole, const int32_t *from, const struct batch *piece,
                   const struct outputs *part, struct outputs *all);

/* q and k heads to length 1, in place: between the two operators. */
void normalize_heads(const struct layer *layer, uint16_t *q, uint16_t *k, int32_t tokens);

/* The whole layer on gdn_reference_*(): reads and updates states. */
void layer_on_host(const struct layer *layer, const struct batch *batch, struct states *states, struct outputs *out);

void *demo_alloc(size_t bytes);

#endif
