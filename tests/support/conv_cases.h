/*
 * conv_cases.h - inputs of conv1d-QKV for every test, and the check of its outputs: a table of situations (lengths,
 * slots, pitches, heads), each to be run for every width, state layout, flag and I/O type.
 *
 *   struct conv_case c;  struct conv_outputs out;  struct conv_report report;
 *   conv_case_make(&c, &conv_specs[i], GDN_BF16, 4, GDN_CONV_STATE_CW, GDN_CONV_SILU, CONV_CASE_SEED);
 *   conv_outputs_make(&out, &c);               poisoned q, k, v; the state as it is before the call
 *   ... run an operator that writes into out ...
 *   conv_case_check(&report, &c, &out);        false: report.first says where
 *
 * What must not be read is NaN: rows outside sequences and of padding slots, columns past the channels, state lines of
 * sequences without an initial state. What must not be written is compared bit for bit.
 */
#ifndef TEST_CONV_CASES_H
#define TEST_CONV_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

enum { CONV_CASE_SEED = 20261121, CONV_SPEC_MAX_SEQS = 24, CONV_POISON = 0xffff /* a NaN in bf16 and fp16 */ };

enum conv_slots { CONV_SLOTS_NULL, CONV_SLOTS_REVERSED, CONV_SLOTS_WITH_PADS, CONV_SLOTS_ALL_PADS };
enum conv_initial {
    CONV_INITIAL_NULL,    /* has_initial_state is null: every sequence reads its line */
    CONV_INITIAL_MIXED,   /* every other sequence has none; its line is NaN */
    CONV_INITIAL_NO_STATE /* no state tensor at all */
};
enum conv_values { CONV_NORMAL, CONV_EXTREME };

struct conv_spec {
    const char *name;
    int num_q_heads, num_k_heads, num_v_heads, head_dim_qk, head_dim_v;
    enum conv_slots slots;
    enum conv_initial initial;
    enum conv_values values;
    int extra_columns; /* of x, past the channels */
    int x_offset;      /* elements from a 16-byte boundary to x */
    int x_alignment;   /* bytes that both leave: desc.x_alignment */
    int padding;       /* rows past the last sequence */
    bool uniform;      /* cu_seqlens is null */
    int num_seqs;
    int32_t lens[CONV_SPEC_MAX_SEQS]; /* of sequence n: lens[n % CONV_SPEC_MAX_SEQS] */
};

extern const struct conv_spec conv_specs[];
extern const int conv_num_specs;

struct conv_case {
    char name[160];
    const struct conv_spec *spec;
    uint64_t seed;
    gdn_conv1d_desc desc;
    gdn_conv1d_args args; /* host addresses of the inputs below; q, k, v, state are 0 */
    int64_t tokens, used_tokens, channels, num_lines;
    int64_t x_count; /* elements of x_storage */
    int64_t q_count, k_count, v_count, state_count;
    uint16_t *x_storage, *x; /* x = x_storage + spec->x_offset */
    uint16_t *weight, *bias; /* bias NULL without GDN_CONV_BIAS */
    uint16_t *state;         /* before the call; NULL without one */
    int32_t *slots, *cu;     /* slots NULL: line n; cu always filled */
    uint8_t *has_initial;    /* NULL: all */
};

/* Exits with a sentence when memory is out. */
void conv_case_make(struct conv_case *c, const struct conv_spec *spec, gdn_dtype io_type, int width,
                    gdn_conv_state_layout layout, uint32_t flags, uint64_t seed);
void conv_case_free(struct conv_case *c);

struct conv_outputs {
    uint16_t *q, *k, *v, *state; /* state NULL when the case has none */
};
void conv_outputs_make(struct conv_outputs *out, const struct conv_case *c);
void conv_outputs_free(struct conv_outputs *out);

struct conv_report {
    int64_t wrong_outputs; /* outside conv_tolerance()'s interval */
    int64_t wrong_state;   /* bits of a sequence's line */
    int64_t touched;       /* elements that nobody may write */
    double worst;          /* largest |y - truth| in units of the allowed half interval */
    char first[200];       /* the first finding, in words; "" when there is none */
};

/* Against a loop of its own in double; true when nothing is wrong. */
bool conv_case_check(struct conv_report *report, const struct conv_case *c, const struct conv_outputs *out);

/*
 * How far a float32 evaluation of the formula may be from the truth, before it is rounded to the I/O type. With u =
 * 2^-24:
 *   a     products of 16-bit numbers are exact in float32; bias and `width` products make `width` additions, each
 *         within u of a partial sum that is at most magnitude = |bias| + sum |w x|: (width + 1) u magnitude is safe
 *   silu  |silu'| < 1.1 carries that over; of its own evaluation, -a log2(e) is within 2 u, which exp turns into a
 *         relative 2 u |a|, and ex2.approx adds 4 u: both act on y through 1 - sigmoid(a); sum, division (2 ulp) and
 *         product add 10 u; exp(-a) past float32's range gives -0 where the truth is above -2^-119
 * The result y must lie in [round(truth - e), round(truth + e)]: half an ulp of the I/O type, and e.
 */
double conv_tolerance(double a, double y, double magnitude, int width, bool silu);

#endif
