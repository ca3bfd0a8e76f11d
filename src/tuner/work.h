/*
 * work.h - a call to try a kernel on: its descriptor, its arguments, and what is in every tensor before it; then what must be
 * in the outputs after it, and whether it is.
 *
 * A trial is small and awkward (lengths around a chunk, an empty and an inert sequence, slots that fork, states in place,
 * decays from none to total) and is held against the host reference. A call has the size that is to be timed; its contents
 * repeat after a while, and what is held against each other are the results of two kernels.
 */
#ifndef GDNI_WORK_H
#define GDNI_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include "codegen/problem.h"

enum { GDNI_WORK_MAX_TENSORS = 24 };

/* What a call is like; of one operator some are the same. */
enum gdni_call_kind {
    GDNI_CALL_USUAL,     /* sequences of one length, gates as a trained model has them */
    GDNI_CALL_UNEVEN,    /* half of the tokens are the first sequence's, three quarters where there are two */
    GDNI_CALL_LONE,      /* all but a few tokens of each of the others are the first sequence's */
    GDNI_CALL_UNDECAYED, /* every fourth head's state never decays */
    GDNI_CALL_AWKWARD    /* a trial: not for gdni_work_call() */
};

/* Row-major. `bytes` are rows * dim elements; the host's part is the beginning of it, which then repeats. */
struct gdni_tensor {
    const char *name;  /* member of the args */
    size_t member;     /* its offset there: a gdn_devptr */
    int32_t dtype;     /* gdn_dtype; 0: bytes */
    int64_t rows, dim; /* a row is what errors are measured over */
    size_t bytes, host_bytes;
    void *host;
    bool output;
    double tolerance; /* of an output, relative, over the whole; of a row three times that. 0: bit for bit */
};

union gdni_desc {
    gdn_prefill_desc prefill;
    gdn_conv1d_desc conv1d;
};

union gdni_args {
    gdn_prefill_args prefill;
    gdn_conv1d_args conv1d;
};

struct gdni_work {
    int32_t op; /* enum gdni_op */
    union gdni_desc desc;
    union gdni_args args; /* every address 0: gdni_work_bind() */
    int num_tensors;
    struct gdni_tensor tensors[GDNI_WORK_MAX_TENSORS];
    bool in_place; /* prefill: final_state is initial_state */
    bool whole;    /* a trial: the host has every byte */
    bool failed;   /* out of memory while it was made */
};

/* Both take desc's dtypes, layouts and flags; a trial as few heads as have desc's ratios. GDN_E_NOMEM. Free also on failure. */
gdn_status gdni_work_trial(struct gdni_work *out, int32_t op, const union gdni_desc *desc);
gdn_status gdni_work_call(struct gdni_work *out, int32_t op, const union gdni_desc *desc, int64_t num_tokens,
                          int64_t num_seqs, enum gdni_call_kind kind);
void gdni_work_free(struct gdni_work *work);

/* Args with tensor i at addresses[i]. */
void gdni_work_bind(union gdni_args *out, const struct gdni_work *work, const gdn_devptr *addresses);

/*
 * The host reference of a trial: want[i] of each output becomes what must be in it, for gdni_free(); NULL for inputs.
 * On failure all are NULL.
 */
gdn_status gdni_work_reference(const struct gdni_work *work, void *want[GDNI_WORK_MAX_TENSORS]);

/*
 * Rows of an output against what they must be. GDN_E_WRONG_RESULT says where, and by how much. NaN where NaN must be is right,
 * and so is what nothing was to be written to.
 */
gdn_status gdni_tensor_check(const struct gdni_tensor *tensor, const void *got, const void *want, int64_t rows);

/* ---- For the two files that know the operators ---- */

struct gdni_shape {
    int64_t num_tokens, num_seqs;
    const int64_t *lens; /* NULL: by the kind; alike up to the remainder */
    enum gdni_call_kind kind;
};

/* Room for a tensor; of a long one only the beginning is made. Its bytes are zeros, an output's all ones. */
struct gdni_tensor *gdni_work_add(struct gdni_work *work, const char *name, size_t member, int32_t dtype, int64_t rows,
                                  int64_t dim);
struct gdni_tensor *gdni_work_add_output(struct gdni_work *work, const char *name, size_t member, int32_t dtype,
                                         int64_t rows, int64_t dim, double tolerance);
/* Rows of which there are contents. */
int64_t gdni_tensor_host_rows(const struct gdni_tensor *tensor);
/* An array of gdn_index_type, whole. */
void gdni_work_add_indices(struct gdni_work *work, const char *name, size_t member, int32_t index_type,
                           const int64_t *values, int64_t count);
void gdni_work_add_cu_seqlens(struct gdni_work *work, size_t member, int32_t index_type,
                              const struct gdni_shape *shape);

void gdni_work_make_prefill(struct gdni_work *work, const struct gdni_shape *shape);
void gdni_work_make_conv1d(struct gdni_work *work, const struct gdni_shape *shape);

/* The awkward sequences: how long, and where their states are, of GDNI_TRIAL_LINES lines. Nobody reads the last three. */
enum { GDNI_TRIAL_SEQS = 8, GDNI_TRIAL_LINES = 10, GDNI_TRIAL_PADDING = 5 };
extern const int64_t gdni_trial_lens[GDNI_TRIAL_SEQS], gdni_trial_slot_in[GDNI_TRIAL_SEQS],
    gdni_trial_slot_out[GDNI_TRIAL_SEQS];
extern const uint8_t gdni_trial_has_state[GDNI_TRIAL_SEQS];
enum { GDNI_TRIAL_CHECKPOINTS = 3 };
extern const int64_t gdni_trial_checkpoints[GDNI_TRIAL_CHECKPOINTS][3];

#endif
