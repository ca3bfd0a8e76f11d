/*
 * partition.h - into what a call's sequences are cut for the persistent kernel. Knows heads, bounds and SMs; must not know
 * lengths of sequences, which only the device does.
 */
#ifndef GDNI_PARTITION_H
#define GDNI_PARTITION_H

#include <stdint.h>

#include "codegen/spec.h"

/* Values of the parameter partition_chunks that are no number of chunks. */
enum { GDNI_PARTITION_MODEL = 1, GDNI_PARTITION_NEVER = 2 };

/* Most items, a partition and a part of a head each, that a call is cut into, for each SM: bounds the workspace. */
enum { GDNI_ITEMS_PER_SM = 5 };

/* Chunks of a partition; 0: sequences stay whole. */
int32_t gdni_partition_chunks(const struct gdni_spec *spec, const struct gdni_problem *problem, int num_sms,
                              int64_t num_tokens, int64_t num_seqs);

/* Items of a call, a bound: rows of partitions (see the template), or with partition 0 sequences, times parts of heads. */
int64_t gdni_partition_items(const struct gdni_spec *spec, const struct gdni_problem *problem, int32_t partition,
                             int64_t num_tokens, int64_t num_seqs);

/* Whether any call of up to so many tokens may be cut. */
bool gdni_partition_possible(const struct gdni_spec *spec, int64_t num_tokens);

#endif
