/*
 * race.h - from times to a decision: which candidates are timed how often, which of them go on, which one wins.
 *
 * Pure: the same times give the same decision, whoever took them and in whichever order a round went. The caller owns the
 * clock:
 *
 *     gdni_race_begin(&race, count, heuristic, 1, NULL);
 *     while ((rounds = gdni_race_rounds(&race)) > 0) {
 *         for (; rounds > 0; --rounds)
 *             for (each candidate c that gdni_race_runs(&race, c))          candidates interleaved: drift hits all of them
 *                 gdni_race_add(&race, c, cold_ns, warm_ns);                or gdni_race_drop(), when it fails
 *         gdni_race_next(&race);
 *     }
 *     gdni_race_decide(&race, &decision);
 */
#ifndef GDNI_RACE_H
#define GDNI_RACE_H

#include "tuner/stats.h"

enum { GDNI_RACE_MAX_CANDIDATES = 96, GDNI_RACE_MAX_ROUNDS = 50 };

/* Times of one candidate in the current stage, one of each kind a round. */
struct gdni_racer {
    bool runs;   /* in the current stage */
    bool failed; /* dropped: never wins */
    int32_t count;
    int64_t cold_ns[GDNI_RACE_MAX_ROUNDS], warm_ns[GDNI_RACE_MAX_ROUNDS];
};

struct gdni_race {
    int count, heuristic; /* candidates; which of them is the default choice */
    int divisor;          /* of the number of rounds: long calls are timed less often */
    int stage;            /* an index into the table of race.c, its length at the end */
    int favourite;        /* who won the stage before the one that confirms; -1 before */
    struct gdni_racer racers[GDNI_RACE_MAX_CANDIDATES];
};

enum gdni_verdict {
    GDNI_VERDICT_NONE,        /* every candidate failed */
    GDNI_VERDICT_ALONE,       /* only the heuristic's choice was left to run */
    GDNI_VERDICT_TIE,         /* nothing is faster than the heuristic's choice by more than the tie band: it stays */
    GDNI_VERDICT_FASTER,      /* the winner beats the heuristic's choice, again in a run of its own */
    GDNI_VERDICT_UNCONFIRMED, /* a gain that the run of its own did not show again: the heuristic's choice stays */
    GDNI_VERDICT_ELSEWHERE,   /* a gain, but slower than the heuristic's choice on other calls of the slot: that stays */
    GDNI_VERDICT_REPLACED     /* the heuristic's choice failed: the first of the fastest that did not */
};
const char *gdni_verdict_text(enum gdni_verdict verdict);

/* Times are means of a cold and a warm one, but for the two that are named so. */
struct gdni_decision {
    enum gdni_verdict verdict;
    int winner;                            /* -1: none */
    struct gdni_estimate time, cold, warm; /* of the winner */
    struct gdni_estimate heuristic,
        fastest; /* of the default choice (zeros when it failed); of who had the least median */
};

/*
 * count from 1 to GDNI_RACE_MAX_CANDIDATES, in the order in which ties are resolved; divisor from 1 to 5. runs: which of them
 * do, the others have failed before; NULL: all.
 */
void gdni_race_begin(struct gdni_race *race, int count, int heuristic, int divisor, const bool *runs);
/* Rounds of the current stage; 0 when the race is over. */
int gdni_race_rounds(const struct gdni_race *race);
bool gdni_race_runs(const struct gdni_race *race, int candidate);
void gdni_race_add(struct gdni_race *race, int candidate, int64_t cold_ns, int64_t warm_ns);
/* The candidate failed; its times do not count. */
void gdni_race_drop(struct gdni_race *race, int candidate);
/* Ends the stage: chooses who runs in the next one. */
void gdni_race_next(struct gdni_race *race);
/* The fastest so far by the current stage's times; -1: nobody has any. For progress. */
int gdni_race_leader(const struct gdni_race *race, struct gdni_estimate *out);
/* After the last stage. */
void gdni_race_decide(const struct gdni_race *race, struct gdni_decision *out);
/* The same race, but the heuristic's choice stays, because a winner elsewhere did not. It must have run to the end. */
void gdni_race_decide_to_stay(const struct gdni_race *race, struct gdni_decision *out);

#endif
