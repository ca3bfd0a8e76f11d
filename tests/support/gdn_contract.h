/*
 * gdn_contract.h - calls of GDN prefill in any convention of the header, made from a tuple of levels and a seed, with what must
 * come out of them: o, states, checkpoints within the emulator's error, every other byte untouched.
 *
 * The truth does not go through the library's own conversions: values are drawn, kept in the plainest form (every state head
 * its own q, k, v; float32 log decay and beta; float32 states by sequence), and written once more in the tuple's convention.
 *
 *   contract_make(&c, levels, seed);           c.args holds host addresses: gdn_reference_prefill() can run it as it is
 *   ... run it on copies of c.images, wherever ...
 *   contract_check(&result, &c, after);        after[i]: the bytes of c.images[i] afterwards
 *   contract_free(&c);
 */
#ifndef TEST_GDN_CONTRACT_H
#define TEST_GDN_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

enum { CONTRACT_FACTORS = 8, CONTRACT_MAX_IMAGES = 16, CONTRACT_MAX_SEQS = 8, CONTRACT_MAX_CHECKPOINTS = 24 };

/* Levels of each factor: type and dim, heads, layout, gate, beta, state, features, sequences. */
extern const int contract_levels[CONTRACT_FACTORS];

/* A block of memory that a call sees. may_write NULL: nothing of it changes. */
struct contract_image {
    const char *name;
    size_t bytes;
    unsigned char *data, *may_write; /* one flag a byte */
};

struct contract_call {
    char name[400]; /* the tuple in words, and the seed */
    gdn_prefill_desc desc;
    gdn_prefill_args args;
    struct contract_image images[CONTRACT_MAX_IMAGES];
    int num_images;

    /* the plain form */
    int heads, dim, num_seqs;
    bool uniform, has_final;
    int64_t tokens, used_tokens;
    int32_t cu[CONTRACT_MAX_SEQS + 1];
    uint16_t *q, *k, *v;  /* [tokens, heads, dim] */
    float *g, *beta, *h0; /* [tokens, heads]; [num_seqs, heads, dim, dim] */
    gdn_prefill_desc plain_desc;
    gdn_prefill_args plain_args;

    /* where things go */
    bool inert[CONTRACT_MAX_SEQS];
    int64_t line_out[CONTRACT_MAX_SEQS];
    int64_t checkpoints[CONTRACT_MAX_CHECKPOINTS][3];
    gdn_strides o_strides; /* in effect */
    int64_t slot_stride;   /* of final_state, in effect */
};

/* Exits with a sentence when memory is out. */
void contract_make(struct contract_call *out, const int level[CONTRACT_FACTORS], uint64_t seed);
void contract_free(struct contract_call *c);

struct contract_result {
    bool passed;
    double o, state, checkpoint;                   /* relative errors over the whole, checkpoints as one tensor */
    double o_worst, state_worst;                   /* over one sequence and head */
    double bound_o, bound_state, bound_checkpoint; /* BOUNDS_FACTOR times the emulator's */
    double bound_o_worst, bound_state_worst;
    char trouble[160]; /* what was written that must not be, or "" */
};

void contract_check(struct contract_result *out, const struct contract_call *c, unsigned char *const after[]);

/* The image that holds an address of args, and how far into it; -1: none. */
int contract_find_image(const struct contract_call *c, gdn_devptr address, size_t *offset);

/* Members of gdn_prefill_args that are addresses, ends at (size_t)-1: offsets into the struct. */
extern const size_t contract_pointers[];

#endif
