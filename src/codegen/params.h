/*
 * params.h - tunable parameters, their legal values, the slots of a plan that they are chosen for, and the model that chooses
 * and orders them when nothing was measured.
 */
#ifndef GDNI_PARAMS_H
#define GDNI_PARAMS_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "codegen/arch.h"
#include "codegen/problem.h"

/* A parameter that the kernel does not have is 0. */
struct gdni_params {
#define GDNI_PARAM(name, ...) int32_t name;
#include "codegen/params.def"
#undef GDNI_PARAM
};

enum gdni_param_time { GDNI_COMPILE_TIME, GDNI_RUN_TIME };
enum { GDNI_MAX_PARAM_VALUES = 9 };

/* One parameter of one kernel. */
struct gdni_param_row {
    const char *name;
    enum gdni_param_time when;
    int32_t initial;                           /* one of `legal` */
    int32_t legal[GDNI_MAX_PARAM_VALUES + 1]; /* ascending, ends at 0 */
    size_t offset;                             /* in struct gdni_params */
};

/* The i-th parameter of a kernel (enum gdni_kernel), in the order of params.def; false past the end. */
bool gdni_param_at(int32_t kernel, int i, struct gdni_param_row *out);
int32_t gdni_param_get(const struct gdni_params *params, const struct gdni_param_row *row);
void gdni_param_set(struct gdni_params *params, const struct gdni_param_row *row, int32_t value);

/* Every parameter of the kernel at its default; those of other kernels 0. */
void gdni_params_initial(struct gdni_params *out, int32_t kernel);

/* Every parameter of the kernel has a legal value; else a sentence. What an arch can hold, gdni_spec_build() says. */
gdn_status gdni_params_check(const struct gdni_params *params, int32_t kernel);

/* {"chunk": 64, ...}: the kernel's own parameters only. */
void gdni_params_json(struct gdni_strbuf *sb, const struct gdni_params *params, int32_t kernel);

/* 16 hex digits of kernels, parameters, defaults and legal values: what a measured table must have been made for. */
enum { GDNI_SPACE_HEX = 17 };
void gdni_space_hash(char out[GDNI_SPACE_HEX]);

/* ---- Slots: what parameters are chosen for ---- */

/*
 * Edges are powers of four from 256 to 1M tokens of a call, and 2048, up to where few heads are not cut into partitions and a
 * chunk of a prompt as servers schedule it; bucket b holds counts up to its edge, the last one all the rest.
 */
enum { GDNI_NUM_BUCKETS = 9 };
int gdni_bucket_of(int64_t num_tokens);
int64_t gdni_bucket_edge(int bucket); /* INT64_MAX for the last */

/* Calls of few sequences, which may have variants of their own: up to 1, 2, 4 and so on. */
enum { GDNI_NUM_SEQ_CLASSES = 7 };
int gdni_seq_class_of(int64_t num_seqs); /* GDNI_NUM_SEQ_CLASSES: not few */
int64_t gdni_seq_class_edge(int seq_class);

/*
 * A bucket of tokens and a class of sequences. GDNI_ANY_SEQS: calls of any number of them, with no workspace: what serves there
 * needs none. Conv has no other.
 */
enum { GDNI_ANY_SEQS = -1 };
struct gdni_slot {
    int bucket, seq_class;
};

/* ---- The model (heuristic.c) ---- */

/* The default choice for one bucket, whatever the number of sequences. Deterministic; depends on its arguments only. */
void gdni_params_heuristic(struct gdni_params *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           int num_sms, int bucket);

/*
 * A better one for calls of few sequences, when there is one: the kernel with two kinds of CTAs, which has the bits of
 * gdn_prefill_generic or, on Hopper, its own, or the problem's own with narrower blocks of columns, or with carried states.
 * Where the kernel may not depend on the call there is none.
 */
bool gdni_params_heuristic_few(struct gdni_params *out, const struct gdni_problem *problem,
                               const struct gdni_arch *arch, int num_sms, int bucket, int seq_class);

/*
 * Whether a plan may use params in a slot: legal, held by the arch, no workspace where there may be none, and not more than
 * GDNI_MOST_WORKSPACE of it for the slot's largest call. Else a sentence.
 */
enum { GDNI_MOST_WORKSPACE = 512 << 20 };
gdn_status gdni_params_usable(const struct gdni_params *params, const struct gdni_problem *problem,
                              const struct gdni_arch *arch, int num_sms, struct gdni_slot slot);

/*
 * Every usable choice for a slot, the heuristic's answer first, then by what the model expects of them, best first; equal ones
 * by how many parameters differ from their default, then in the order of params.def. num_sms 0: of the arch's common GPU.
 */
enum { GDNI_MAX_CHOICES = 128 };
int gdni_params_choices(struct gdni_params out[GDNI_MAX_CHOICES], const struct gdni_problem *problem,
                        const struct gdni_arch *arch, int num_sms, struct gdni_slot slot);

/* Tokens and sequences of a call. */
struct gdni_call_size {
    int64_t num_tokens, num_seqs;
};

/*
 * What a tuner tries on a call of the slot, which has a workspace, for plans of the problem's bounds: of choices that launch
 * the same code with the same numbers the first. A partition longer than the sequences is no partition, 2 producers are 2
 * whatever asked for them, and a kernel that carries states has to be of use for it. At most GDNI_MAX_CANDIDATES, which is
 * more than any kernel's choices come to.
 */
enum { GDNI_MAX_CANDIDATES = 96 };
int gdni_params_candidates(struct gdni_params out[GDNI_MAX_CANDIDATES], const struct gdni_problem *problem,
                           const struct gdni_arch *arch, int num_sms, struct gdni_slot slot, struct gdni_call_size timed);

#endif
