/*
 * params.h - tunable parameters, their legal values, the T buckets that select them, and the heuristic that fills them when
 * nothing was measured.
 */
#ifndef GDNI_PARAMS_H
#define GDNI_PARAMS_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "codegen/arch.h"
#include "codegen/problem.h"

/* A parameter of the other operator is 0. */
struct gdni_params {
#define GDNI_PARAM(name, op, ...) int32_t name;
#include "codegen/params.def"
#undef GDNI_PARAM
};

/* Edges are powers of four from 256 to 1M tokens of a call; bucket b holds counts up to its edge, the last one all the rest. */
enum { GDNI_NUM_BUCKETS = 8 };
int gdni_bucket_of(int64_t num_tokens);
int64_t gdni_bucket_edge(int bucket); /* INT64_MAX for the last */

/* Calls of few sequences, which may have variants of their own: up to 1, 2, 4 and so on. */
enum { GDNI_NUM_SEQ_CLASSES = 7 };
int gdni_seq_class_of(int64_t num_seqs); /* GDNI_NUM_SEQ_CLASSES: not few */
int64_t gdni_seq_class_edge(int seq_class);

/* Every parameter of the operator has a legal value; else a sentence. What an arch can hold, gdni_spec_build() says. */
gdn_status gdni_params_check(const struct gdni_params *params, const struct gdni_problem *problem);

/* The default choice for one bucket, whatever the number of sequences. Deterministic; depends on its arguments only. */
void gdni_params_heuristic(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           int num_sms, int bucket);

/* A better one for calls of few sequences, when there is one. Its results have the bits of gdn_prefill_generic's. */
bool gdni_params_heuristic_few(struct gdni_params *out, const struct gdni_problem *problem,
                               const struct gdni_arch *arch, int num_sms, int bucket, int seq_class);

/* {"chunk": 64, ...}: the operator's own parameters only. */
void gdni_params_json(struct gdni_strbuf *sb, const struct gdni_params *params, int32_t op);

#endif
