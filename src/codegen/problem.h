/*
 * problem.h - a descriptor, checked and normalised: what is to be computed. Everything after this file trusts it.
 */
#ifndef GDNI_PROBLEM_H
#define GDNI_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

enum gdni_op { GDNI_OP_PREFILL, GDNI_OP_CONV1D_QKV };

/* Who asks for whole sequences. */
enum gdni_whole { GDNI_WHOLE_BY_FLAG = 1, GDNI_WHOLE_BY_ENVIRONMENT = 2 };

/* No padding is compared: zeroed before it is filled, so that equal problems are equal bytes. */
struct gdni_problem {
    int32_t op; /* enum gdni_op */
    int32_t io_type, state_type, state_layout;
    int32_t num_q_heads, num_k_heads, num_v_heads;
    int32_t num_heads; /* prefill: state heads H = max of the three; conv: their sum */
    int32_t head_dim_qk, head_dim_v;
    int32_t head_map;                   /* prefill */
    int32_t gate, gate_type;            /* prefill; gate_type also conv: of a, b, and 0 without gates */
    int32_t beta, beta_type;            /* prefill */
    int32_t cu_seqlens_type, slot_type; /* gdn_index_type */
    int32_t num_gate_heads;             /* conv; 0: no gates */
    int32_t a_log_type, dt_bias_type;   /* conv; 0 without gates */
    int32_t x_layout;                   /* conv */
    int32_t width;                      /* conv */
    uint32_t flags;                     /* GDN_PREFILL_* or GDN_CONV_* */
    int32_t x_alignment;                /* conv, bytes */
    int32_t generic;                    /* prefill: no kernel of an arch's own, GDN_PLAN_GENERIC */
    int32_t whole_sequences;            /* prefill: none is cut: enum gdni_whole, 0 where they may be */
    int32_t batch_invariant;            /* prefill: kernel and partitions by shape and arch alone, GDN_PLAN_BATCH_INVARIANT */
    int32_t unused;                     /* 0; in place of padding: problems are compared as bytes */
    int64_t max_tokens, max_seqs;
};
_Static_assert(sizeof(struct gdni_problem) == 28 * sizeof(int32_t) + 2 * sizeof(int64_t), "no padding");

/* What a desc means, bounds included: GDN_E_VERSION, GDN_E_INVALID or GDN_E_UNSUPPORTED with the member's name. */
gdn_status gdni_problem_from_prefill(struct gdni_problem *out, const gdn_prefill_desc *desc);
gdn_status gdni_problem_from_conv1d(struct gdni_problem *out, const gdn_conv1d_desc *desc);

/* The same call without gates; where it has none, with those of every v head. false: it has neither. */
bool gdni_conv1d_flip_gates(gdn_conv1d_desc *desc);
/* Types that are 0, as the header says what they are then. */
void gdni_conv1d_fill_types(gdn_conv1d_desc *desc);

#define GDNI_MAX_STRIDE ((int64_t)1 << 47) /* elements: more than any address space has */

/* Checks of args that need no device: pointers given and aligned, sizes within desc's bounds. a: through gdni_take_struct(). */
gdn_status gdni_check_prefill_args(const struct gdni_problem *p, const gdn_prefill_args *a);
gdn_status gdni_check_conv1d_args(const struct gdni_problem *p, const gdn_conv1d_args *a);
/* And that no output begins where another tensor of the call does. */
gdn_status gdni_check_prefill_apart(const gdn_prefill_args *a, gdn_devptr workspace); /* 0: of the host, none */
gdn_status gdni_check_conv1d_apart(const gdn_conv1d_args *a);

bool gdni_is_dtype(int32_t dtype);
int gdni_dtype_bytes(int32_t dtype);
int gdni_index_bytes(int32_t index_type);
const char *gdni_dtype_name(int32_t dtype);
const char *gdni_op_name(int32_t op);

/* Elements of one sequence's state: H * DK * DV. */
int64_t gdni_problem_state_size(const struct gdni_problem *p);

/* Strides of a call's tensor with every default filled in. head: the elements of one head's row; 1 for gates. */
gdn_strides gdni_strides_filled(const gdn_strides *given, int64_t heads, int64_t head, int64_t uniform_len);

/* Elements from one group of an interleaved x to the next, and of a state line, as args say or imply. */
int64_t gdni_conv1d_group_stride(const struct gdni_problem *p, const gdn_conv1d_args *a);
int64_t gdni_conv1d_line_size(const struct gdni_problem *p, const gdn_conv1d_args *a);

/* Channels of a packed conv row: Q + K + V. */
int64_t gdni_problem_channels(const struct gdni_problem *p);

/* Bytes, FLOPs (see gdn_cost); the first by operator. */
void gdni_problem_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes,
                       double *flops);
void gdni_prefill_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes,
                       double *flops);
void gdni_conv1d_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes, double *flops);

#endif
