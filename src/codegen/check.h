/*
 * check.h - checks that the descriptors and the arguments of both operators share; each fails with the member's name, its
 * value and the remedy.
 */
#ifndef GDNI_CHECK_H
#define GDNI_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "codegen/problem.h"

enum { GDNI_MAX_HEADS = 4096 };

gdn_status gdni_check_count(const char *member, int64_t value, int64_t low, int64_t high);
gdn_status gdni_check_io_type(const char *member, int32_t dtype);
gdn_status gdni_check_float_type(const char *member, int32_t dtype); /* fp32, bf16 or fp16 */
/* A value from low to high of an enum whose constants are consecutive; names says which there are. */
gdn_status gdni_check_enum(const char *member, int32_t value, int32_t low, int32_t high, const char *names);
/* 0 becomes GDN_INDEX_I32. */
gdn_status gdni_take_index_type(int32_t *out, const char *member, int32_t given);
/* Of a desc. */
gdn_status gdni_check_bounds(int64_t max_tokens, int64_t max_seqs);

/* A pointer member: required or not, and the alignment that kernels rely on. */
struct gdni_pointer {
    const char *name;
    gdn_devptr value;
    bool required;
    int alignment;
};
gdn_status gdni_check_pointers(const struct gdni_pointer *pointers, size_t count);

/*
 * That none of the first num_written, which a call writes, is another one of the tensors. By their first elements: how far they
 * reach the caller knows.
 */
struct gdni_address {
    const char *name;
    gdn_devptr value;
};
gdn_status gdni_check_apart(const struct gdni_address *addresses, size_t num_written, size_t count);

/*
 * Strides of rows of dim elements that are 0 can be made of those that are given: a tensor whose heads are not packed has no
 * packed token stride, and no packed batch stride; and with cu_seqlens there is no batch.
 */
gdn_status gdni_check_strides_derived(const char *tensor, const gdn_strides *s, int64_t dim, int64_t num_seqs,
                                      gdn_devptr cu_seqlens);

/* Rows of an output: of `dim` elements each, and how many there are by each stride. */
struct gdni_rows {
    const char *name;
    gdn_strides strides; /* 0: packed */
    int64_t num_tokens, num_seqs, heads, dim; /* num_seqs: of equal lengths; 1 with cu_seqlens */
};
/* Rows by no stride pass what an address space has. */
gdn_status gdni_check_rows_span(const struct gdni_rows *rows);
/*
 * The same, and no two rows share an element. Exact, but for strides of which none steps over the others' rows and which
 * would take more than a million looks: those are refused. At once where each does, as in most layouts.
 */
gdn_status gdni_check_rows_apart(const struct gdni_rows *rows);

/* Of a call: within the desc's bounds, and without cu_seqlens a uniform batch. */
gdn_status gdni_check_sizes(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, gdn_devptr cu_seqlens);

#endif
