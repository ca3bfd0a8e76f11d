/*
 * tune.h - one tuning: the candidates of one slot, what became of each, and the steps that find it out. tune.c runs the steps,
 * trial.c compares results with the host reference, measure.c takes times, elsewhere.c has winners prove themselves.
 */
#ifndef GDNI_TUNE_H
#define GDNI_TUNE_H

#include "codegen/params.h"
#include "runtime/lab.h"
#include "runtime/plan.h"
#include "tuner/race.h"
#include "tuner/work.h"

enum { GDNI_PARAMS_TEXT = 256, GDNI_REASON_TEXT = 512 };

/* A candidate that failed at any step is out; why is its sentence. */
struct gdni_candidate {
    struct gdni_params params;
    char text[GDNI_PARAMS_TEXT]; /* as JSON */
    bool skipped;                /* the caller wants it left out */
    gdn_status status;
    char reason[GDNI_REASON_TEXT];
};

/* Clocks seen while measuring, those that were known. */
enum { GDNI_MAX_CLOCKS = 16 };
struct gdni_seen {
    int count;
    int64_t mhz[GDNI_MAX_CLOCKS];
};

struct gdni_tune {
    gdn_ctx *ctx;
    gdn_tune_options options; /* defaults filled in */
    gdn_target target;
    const struct gdni_arch *arch;
    struct gdni_problem problem; /* bounds: the call that is timed */
    int64_t most_tokens;         /* that a call may have */
    union gdni_desc desc;
    struct gdni_slot slot;
    int num_candidates; /* the first is the heuristic's own choice */
    struct gdni_candidate candidates[GDNI_MAX_CANDIDATES];
    int64_t start_ms;
    struct gdni_lab lab;
    /* for progress */
    int best;
    int64_t best_ns;
    int incumbent;            /* who stays on a tie: the heuristic's choice, but where a winner is tried elsewhere */
    enum gdni_call_kind kind; /* of the call that is timed */
    struct gdni_decision decision, stay; /* stay: what it is when the winner must not win */
    struct gdni_seen sm_clocks, mem_clocks;
};

bool gdni_candidate_runs(const struct gdni_candidate *candidate);

/* Asks whether to go on: GDN_E_CANCELLED when the callback or the budget says no. */
gdn_status gdni_tune_begin(struct gdni_tune *t, uint32_t step, int candidate);
/*
 * Takes down what became of a candidate, and tells. GDN_OK when the tuning can go on without it: anything but a lost device and
 * being out of memory, the host's or the device's.
 */
gdn_status gdni_tune_end(struct gdni_tune *t, uint32_t step, int candidate, gdn_status status);

/* A plan whose calls run with the candidate's parameters, loaded on t->lab's device. Give back by gdni_tune_drop_plan(). */
gdn_status gdni_tune_plan(struct gdni_tune *t, int candidate, const struct gdni_problem *problem, gdn_plan **out);
void gdni_tune_drop_plan(struct gdni_tune *t, gdn_plan *plan);

/* One call on t->lab's stream. */
gdn_status gdni_tune_execute(struct gdni_tune *t, const gdn_plan *plan, const union gdni_args *args,
                             gdn_devptr workspace, size_t workspace_size);

/* GDN_TUNE_CHECK and GDN_TUNE_MEASURE, on an open lab. */
gdn_status gdni_tune_check(struct gdni_tune *t);
gdn_status gdni_tune_measure(struct gdni_tune *t);

/*
 * Whether a conv1d-QKV call computes gates stands in no slot: the timed call without them, or with, on which a winner must hold
 * too. has is false where there is no such call, and problem is then not set.
 */
gdn_status gdni_tune_other_gates(const struct gdni_tune *t, struct gdni_problem *problem, union gdni_desc *desc, bool *has);

/* Whether a measurement's winner is no slower than the heuristic's choice on the slot's other calls. Spoils t->decision. */
gdn_status gdni_tune_holds_elsewhere(struct gdni_tune *t, int winner, bool *holds);

#endif
