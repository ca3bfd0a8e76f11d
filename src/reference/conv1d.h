/*
 * conv1d.h - one call of conv1d-QKV on the host, checked: what its parts (conv, state, gates) share.
 */
#ifndef GDNI_REFERENCE_CONV1D_H
#define GDNI_REFERENCE_CONV1D_H

#include <stdbool.h>

#include "codegen/problem.h"
#include "reference/host_args.h"

struct gdni_conv1d_run {
    struct gdni_problem p;
    gdn_conv1d_args a;
    struct gdni_seqlens seqs;
    int32_t y_type; /* of q, k, v: io_type, or GDNI_F64 */
};

/* Sequence n: rows [first, first + len) of x, and its lines of the state; inert: -1 in either. */
struct gdni_conv1d_seq {
    int64_t n, first, len;
    int64_t line_in, line_out;
    bool inert, has_initial;
};

struct gdni_conv1d_seq gdni_conv1d_sequence(const struct gdni_conv1d_run *r, int64_t n);

/* g and beta of one sequence that is not inert; zeros for rows [first, first + len). */
void gdni_conv1d_gates(const struct gdni_conv1d_run *r, const struct gdni_conv1d_seq *s);
void gdni_conv1d_zero_gates(const struct gdni_conv1d_run *r, int64_t first, int64_t len);

#endif
