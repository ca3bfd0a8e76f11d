/*
 * elsewhere.c - owns which other calls of its slot a winner must hold on. Must not know: how times are taken (measure.c), what
 * they decide (tuner/race.c).
 */
#include "runtime/tune.h"

#include "base/error.h"

enum { OTHER_SIZES = 3 };

/*
 * Other calls that the slot's choice will serve: one near its least tokens, one of three quarters of what was timed, since the
 * last wave of CTAs comes and goes, and one of the most. 0 where that is the call that was timed, as good as: less than a
 * quarter away.
 */
static void other_sizes(const struct gdni_tune *t, int64_t sizes[OTHER_SIZES])
{
    enum { LEAST_PER_SEQ = 64 };
    const int64_t tokens = t->problem.max_tokens, edge = gdni_bucket_edge(t->slot.bucket);
    const int64_t below = t->slot.bucket > 0 ? gdni_bucket_edge(t->slot.bucket - 1) : 0;
    const int64_t least = t->problem.max_seqs * LEAST_PER_SEQ;
    sizes[0] = below ? below + below / 4 : edge / 4;
    if (sizes[0] < least) sizes[0] = least;
    if (sizes[0] * 5 > tokens * 4) sizes[0] = 0;
    sizes[1] = tokens * 3 / 4 < least ? 0 : tokens * 3 / 4;
    sizes[2] = edge < t->most_tokens ? edge : t->most_tokens;
    if (sizes[2] > 2 * tokens) sizes[2] = 2 * tokens;
    if (sizes[2] * 4 < tokens * 5) sizes[2] = 0;
}

/* Whether the winner runs on another call, and no slower than the heuristic's choice. Too large a call is not tried. */
static gdn_status holds_at(struct gdni_tune *t, int64_t tokens, enum gdni_call_kind kind, int winner, bool *holds)
{
    const int64_t timed = t->problem.max_tokens;
    bool skipped[GDNI_MAX_CANDIDATES];
    gdn_status before[GDNI_MAX_CANDIDATES]; /* who fails on this call has not failed on the others */
    for (int i = 0; i < t->num_candidates; ++i) {
        skipped[i] = t->candidates[i].skipped;
        before[i] = t->candidates[i].status;
        t->candidates[i].skipped = skipped[i] || (i != 0 && i != winner);
    }
    t->problem.max_tokens = tokens;
    t->kind = kind;
    t->incumbent = winner;
    const gdn_status status = gdni_tune_measure(t);
    *holds = status != GDN_OK || t->decision.winner == winner;
    t->problem.max_tokens = timed;
    t->kind = GDNI_CALL_USUAL;
    t->incumbent = 0;
    for (int i = 0; i < t->num_candidates; ++i) {
        t->candidates[i].skipped = skipped[i];
        t->candidates[i].status = before[i];
    }
    return status == GDN_E_NOMEM && !t->lab.lost ? GDN_OK : status;
}

gdn_status gdni_tune_other_gates(const struct gdni_tune *t, struct gdni_problem *problem, union gdni_desc *desc, bool *has)
{
    *desc = t->desc;
    *has = t->problem.op == GDNI_OP_CONV1D_QKV && gdni_conv1d_flip_gates(&desc->conv1d);
    if (!*has) return GDN_OK;
    GDN_TRY(gdni_problem_from_conv1d(problem, &desc->conv1d));
    problem->max_tokens = t->problem.max_tokens;
    problem->max_seqs = t->problem.max_seqs;
    return GDN_OK;
}

static gdn_status holds_with_other_gates(struct gdni_tune *t, int winner, bool *holds)
{
    const struct gdni_problem problem = t->problem;
    const union gdni_desc desc = t->desc;
    struct gdni_problem other;
    union gdni_desc other_desc;
    bool has;
    GDN_TRY(gdni_tune_other_gates(t, &other, &other_desc, &has));
    if (!has) return GDN_OK;
    t->problem = other;
    t->desc = other_desc;
    const gdn_status status = holds_at(t, problem.max_tokens, GDNI_CALL_USUAL, winner, holds);
    t->problem = problem;
    t->desc = desc;
    return status;
}

/*
 * A choice serves every call of its slot: who beats the heuristic's on one of them must not lose to it on others. Lengths and
 * decays matter most to what cuts sequences, and nothing that stands in the slot tells of them: they are asked for first.
 */
gdn_status gdni_tune_holds_elsewhere(struct gdni_tune *t, int winner, bool *holds)
{
    int64_t sizes[OTHER_SIZES];
    const int64_t timed = t->problem.max_tokens;
    const bool several = t->problem.max_seqs > 1, prefill = t->problem.op == GDNI_OP_PREFILL;
    *holds = true;
    if (several) GDN_TRY(holds_at(t, timed, GDNI_CALL_LONE, winner, holds));
    if (*holds && several) GDN_TRY(holds_at(t, timed, GDNI_CALL_UNEVEN, winner, holds));
    if (*holds && prefill) GDN_TRY(holds_at(t, timed, GDNI_CALL_UNDECAYED, winner, holds));
    if (*holds) GDN_TRY(holds_with_other_gates(t, winner, holds));
    other_sizes(t, sizes);
    for (int i = 0; i < OTHER_SIZES && *holds; ++i)
        if (sizes[i]) GDN_TRY(holds_at(t, sizes[i], GDNI_CALL_USUAL, winner, holds));
    return GDN_OK;
}
