/*
 * conv_cases.h - inputs of conv1d-QKV for every test, and the check of its outputs: a table of situations (lengths, slots,
 * strides, pitches, heads, checkpoints), each to be run in every variant of conv_variants.h that can express it.
 *
 *   struct conv_case c;  struct conv_outputs out;  struct conv_report report;
 *   if (!conv_case_make(&c, &conv_specs[i], &conv_variants[j], CONV_CASE_SEED)) continue;       not expressible
 *   conv_outputs_make(&out, &c);               poisoned q, k, v, g, beta; the state as it is before the call
 *   ... run an operator that writes into out ...
 *   conv_case_check(&report, &c, &out);        false: report.first says where
 *
 * What must not be read is NaN: rows outside sequences and of inert ones, columns between the channels, gaps between rows of a
 * and b, state lines of sequences without an initial state. What must not be written is compared bit for bit.
 */
#ifndef TEST_CONV_CASES_H
#define TEST_CONV_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conv_variants.h"
#include "gdn_jit/gdn_jit.h"

enum { CONV_CASE_SEED = 20261121, CONV_SPEC_MAX_SEQS = 24, CONV_POISON = 0xff /* every byte: a NaN in each dtype */ };

enum conv_slots {
    CONV_SLOTS_NULL,
    CONV_SLOTS_REVERSED,
    CONV_SLOTS_WITH_PADS,
    CONV_SLOTS_ALL_PADS,
    CONV_SLOTS_MOVED /* slot_out differs from slot_in; two neighbours read one line; both arrays strided; some pads */
};
enum conv_initial {
    CONV_INITIAL_NULL,    /* has_initial_state is null: every sequence reads its line */
    CONV_INITIAL_MIXED,   /* every other sequence has none; its line is NaN */
    CONV_INITIAL_NO_STATE /* no state tensor at all */
};
/* CONV_LARGE: normal, but one in 64 between -200 and -60, under all taps. */
enum conv_values { CONV_NORMAL, CONV_EXTREME, CONV_ZEROS, CONV_LARGE };
enum conv_out { CONV_OUT_PACKED, CONV_OUT_HEAD_MAJOR, CONV_OUT_GAPS, CONV_OUT_BATCH /* [B, H, T, D]; uniform */ };

struct conv_spec {
    const char *name;
    int num_q_heads, num_k_heads, num_v_heads, head_dim_qk, head_dim_v;
    enum conv_slots slots;
    enum conv_initial initial;
    enum conv_values values;
    int extra_columns; /* of x, past the channels */
    int x_offset;      /* elements from a 16-byte boundary to x */
    int x_alignment;   /* bytes that both leave with 16-bit elements */
    int padding;       /* rows past the last sequence */
    bool uniform;      /* cu_seqlens is null */
    enum conv_out out;
    bool spread; /* gaps between state lines, between rows of a and b */
    int num_seqs;
    int32_t lens[CONV_SPEC_MAX_SEQS]; /* of sequence n: lens[n % CONV_SPEC_MAX_SEQS] */
};

extern const struct conv_spec conv_specs[];
extern const int conv_num_specs;

/* A tensor of one element type on the host. */
struct conv_buffer {
    int32_t type;
    int64_t count;
    void *data; /* 16-byte aligned; NULL: none */
};
size_t conv_buffer_bytes(const struct conv_buffer *b);

struct conv_case {
    char name[256];
    const struct conv_spec *spec;
    const struct conv_variant *variant;
    uint64_t seed;
    gdn_conv1d_desc desc;
    gdn_conv1d_args args; /* host addresses of the inputs below; q, k, v, g, beta, state are 0 */
    int64_t tokens, used_tokens, channels, num_lines, line_size;
    struct conv_buffer x; /* args.x is spec->x_offset elements into it */
    struct conv_buffer weight, bias, a, b, a_log, dt_bias;
    struct conv_buffer state;                              /* before the call */
    struct conv_buffer slot_in, slot_out, cu, checkpoints; /* integers: type is 0, count is bytes */
    struct conv_buffer has_initial;
    int64_t q_count, k_count, v_count;
    int32_t *begins; /* num_seqs + 1, whatever cu is */
};

/* False, and nothing to free, where the situation cannot be expressed in the variant. Exits when memory is out. */
bool conv_case_make(struct conv_case *c, const struct conv_spec *spec, const struct conv_variant *variant,
                    uint64_t seed);
void conv_case_free(struct conv_case *c);

/* Lines of sequence n; -1: inert. */
struct conv_lines {
    int64_t in, out;
};
struct conv_lines conv_case_lines(const struct conv_case *c, int n);
bool conv_case_reads_state(const struct conv_case *c, int n);
int64_t conv_state_index(const struct conv_case *c, int64_t line, int64_t channel, int column);
int64_t conv_x_column(const struct conv_case *c, int64_t channel);
int64_t conv_gate_column(const struct conv_case *c, int64_t head);

struct conv_outputs {
    struct conv_buffer q, k, v, g, beta, state; /* data NULL where the case has none */
};
void conv_outputs_make(struct conv_outputs *out, const struct conv_case *c);
void conv_outputs_free(struct conv_outputs *out);
bool conv_outputs_equal(const struct conv_outputs *a, const struct conv_outputs *b);
/* args of c with out's addresses. */
gdn_conv1d_args conv_args_with(const struct conv_case *c, const struct conv_outputs *out);

struct conv_report {
    int64_t wrong_outputs; /* outside the interval that float32 arithmetic may reach */
    int64_t wrong_gates;
    int64_t wrong_state; /* bits of a line that the call writes */
    int64_t touched;     /* elements that nobody may write */
    double worst;        /* largest |y - truth| in units of the allowed half interval */
    char first[240];     /* the first finding, in words; "" when there is none */
};

/* Against a loop of its own in double; true when nothing is wrong. */
bool conv_case_check(struct conv_report *report, const struct conv_case *c, const struct conv_outputs *out);

/*
 * How far a float32 evaluation of the formula may be from the truth, before it is rounded to the I/O type. With u =
 * 2^-24:
 *   a     each of `width` fused multiply-adds, and the bias, is within u of a partial sum that is at most magnitude =
 *         |bias| + sum |w x|: (width + 1) u magnitude is safe
 *   silu  |silu'| < 1.1 carries that over; of its own evaluation, -a log2(e) is within 2 u, which exp turns into a
 *         relative 2 u |a|, and ex2.approx adds 4 u: both act on y through 1 - sigmoid(a); sum, division (two products
 *         and a reciprocal, 4 u) and product add 10 u at most; exp(-a) past float32's range gives -0 where the truth is
 *         above -2^-119
 *   norm  squares and their sum in float32: (dim + 8) u of the sum; rsqrt.approx 4 u; products 2 u
 * The result y must lie in [round(truth - e), round(truth + e)]: half an ulp of the I/O type, and e. Where values are
 * rounded before the norm, the interval is that of the rounded ends: an ulp more where a value lies between two.
 */
double conv_tolerance(double a, double y, double magnitude, int width, bool silu);

#endif
