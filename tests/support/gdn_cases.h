/*
 * gdn_cases.h - inputs of GDN prefill for every test: a table of families (what the numbers are like) times a table
 * of shapes (which sequences, which heads), made from a seed. Inputs are rounded to the I/O type here, so that an
 * operator, the oracle and the emulator all see the same values.
 *
 *   struct gdn_case c;
 *   gdn_case_make(&c, family, shape, GDN_BF16, 128, GDN_STATE_KV, GDN_CASE_SEED);
 *   gdn_case_oracle(&c);                       c.ref_o, c.ref_state: the fp64 recurrence, unrounded
 *   ... run an operator on copies of c.q, c.k, ... into o, state ...
 *   gdn_case_errors(&errors, &c, GDN_BF16, o, state);
 *   gdn_case_free(&c);
 *
 * Rows past the last sequence ("padding") hold NaN in every input: an operator that reads one shows it.
 */
#ifndef TEST_GDN_CASES_H
#define TEST_GDN_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"
#include "rng.h"

enum { GDN_CASE_SEED = 20261121, GDN_SHAPE_MAX_SEQS = 96 };

struct gdn_shape {
    const char *name;
    int num_q_heads, num_k_heads, num_v_heads;
    int num_seqs;
    int32_t lens[GDN_SHAPE_MAX_SEQS];
    int padding;  /* rows beyond the last sequence */
    bool uniform; /* cu_seqlens is null; all lens equal, no padding */
};

struct gdn_case;

/* A generator with two numbers; what they mean stands beside it in gdn_cases.c. */
struct gdn_part {
    void (*fill)(struct gdn_case *c, struct rng *rng, double a, double b);
    double a, b;
};

enum { GDN_FAMILY_BF16 = 1, GDN_FAMILY_F16 = 2, GDN_FAMILY_BOTH = 3 };

struct gdn_family {
    const char *name;
    const char *about;                /* what it stresses */
    struct gdn_part q, k, v, g, beta; /* fill NULL for g, beta: the tensor is null */
    double h0;                        /* standard deviation of the initial state; 0: it is null */
    double scale;                     /* when has_scale */
    bool has_scale;
    unsigned dtypes; /* that can hold it: GDN_FAMILY_* */
};

extern const struct gdn_family gdn_families[];
extern const int gdn_num_families;
const struct gdn_family *gdn_family_find(const char *name); /* NULL when unknown */
bool gdn_family_has(const struct gdn_family *family, gdn_dtype io_type);

/*
 * Every case that is made asks for GDN_PREFILL_QK_L2NORM, and has rows of q and k multiplied by powers of two: of 64 tokens in
 * turn by any from 2^-2 to 2^5, by one from 2^3 to 2^8, by any again, by 2^-5 or 2^-4: in a chunk, wherever it begins, by up to
 * 2^10 of each other, which docs/prefill.md promises. Every other head's by 2^-5 of that, so that the norm's 1e-6 shows. Set
 * before the first case; false unless a program was asked for it.
 */
extern bool gdn_cases_qk_l2norm;

/* Likewise: every case says in max_seq_tokens how long its longest sequence is. */
extern bool gdn_cases_told;

extern const struct gdn_shape gdn_shapes[];
extern const int gdn_num_shapes;
/* Of long sequences, for families whose middle, ends or bursts may be cuts; in no table of bounds. */
extern const struct gdn_shape gdn_cut_shapes[];
extern const int gdn_num_cut_shapes;
const struct gdn_shape *gdn_shape_find(const char *name);

struct gdn_case {
    char name[160]; /* family, dtype, dims, heads, shape, seed: enough to run it again */
    const struct gdn_family *family;
    const struct gdn_shape *shape;
    uint64_t seed;
    gdn_prefill_desc desc;
    gdn_prefill_args args;        /* host addresses of the members below; o and final_state are 0 */
    int heads;                    /* state heads */
    int64_t tokens, used_tokens;  /* rows; rows inside a sequence */
    int64_t o_count, state_count; /* elements */
    uint16_t *q, *k, *v;          /* io_type */
    float *g, *beta, *h0;         /* NULL when the family has none */
    int32_t *cu;                  /* always filled; args.cu_seqlens is 0 for a uniform shape */
    double *ref_o, *ref_state;    /* by gdn_case_oracle() */
};

/* Exits with a sentence when memory is out or io_type is not the family's: a test's own mistake. */
void gdn_case_make(struct gdn_case *c, const struct gdn_family *family, const struct gdn_shape *shape,
                   gdn_dtype io_type, int head_dim, gdn_state_layout layout, uint64_t seed);
void gdn_case_free(struct gdn_case *c);

/* Fills ref_o (rows outside sequences: 0) and ref_state. */
gdn_status gdn_case_oracle(struct gdn_case *c);

struct gdn_errors {
    double o, state; /* over the whole tensor */
    double o_worst,
        state_worst; /* over one sequence and head: see errors_relative_above(), floor 1e-3 of the tensor's rms */
    int o_seq, o_head, state_seq, state_head; /* where the worst is; -1 when there is none */
    double o_max_abs, state_max_abs;
};

/* o: [tokens, heads, head_dim_v] of o_type (gdn_dtype or GDNI_F64); state: float32 in desc's layout, or NULL. */
void gdn_case_errors(struct gdn_errors *out, const struct gdn_case *c, int32_t o_type, const void *o,
                     const float *state);

#endif
