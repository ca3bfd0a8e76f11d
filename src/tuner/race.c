/*
 * race.c - owns successive halving, the decision rule and its tie band. Must not know: clocks, devices, parameters' meaning.
 *
 * Why a tie band and a fixed order: between good candidates noise is larger than what separates them, and the least of two
 * near medians is another one in every run and on every GPU. Within the band the heuristic's own choice wins, so that equal
 * GPUs get equal tables; outside of it, the first of those that tie with the fastest. Why a run of its own at the end: the
 * least of many medians is low by luck as well as by merit; whoever beats the heuristic does it twice.
 */
#include "tuner/race.h"

#include <string.h>

/* all * 5 -> the better half * 15 -> the best four * 50 -> the winner against the heuristic * 50 */
static const int stage_rounds[] = { 5, 15, 50, 50 };
enum {
    NUM_STAGES = sizeof stage_rounds / sizeof stage_rounds[0],
    DECIDING = 2,
    CONFIRMING = 3,
    FINALISTS = 4,
    LEAST_ROUNDS = 5
};

static int num_running(const struct gdni_race *race)
{
    int n = 0;
    for (int i = 0; i < race->count; ++i)
        n += race->racers[i].runs;
    return n;
}

static struct gdni_estimate estimate_of(const int64_t *a, const int64_t *b, int count)
{
    int64_t means[GDNI_RACE_MAX_ROUNDS];
    for (int i = 0; i < count; ++i)
        means[i] = a[i] + (b[i] - a[i]) / 2;
    return gdni_estimate_of(means, count);
}

static struct gdni_estimate time_of(const struct gdni_race *race, int i)
{
    const struct gdni_racer *r = &race->racers[i];
    return estimate_of(r->cold_ns, r->warm_ns, r->count);
}

static bool has_times(const struct gdni_race *race, int i)
{
    return race->racers[i].runs && race->racers[i].count > 0;
}

/* Of those that run; equal medians: the first. -1: nobody has times. */
static int fastest(const struct gdni_race *race, struct gdni_estimate *out)
{
    int best = -1;
    *out = (struct gdni_estimate){ 0 };
    for (int i = 0; i < race->count; ++i) {
        if (!has_times(race, i)) continue;
        const struct gdni_estimate e = time_of(race, i);
        if (best >= 0 && e.median >= out->median) continue;
        best = i;
        *out = e;
    }
    return best;
}

/* The heuristic's choice when it ties with the fastest, else the first that does. */
static int pick(const struct gdni_race *race)
{
    struct gdni_estimate best;
    const int leader = fastest(race, &best), h = race->heuristic;
    if (leader < 0) return -1;
    for (int i = -1; i < race->count; ++i) {
        const int candidate = i < 0 ? h : i;
        if (candidate < 0 || !has_times(race, candidate)) continue;
        const struct gdni_estimate e = time_of(race, candidate);
        if (gdni_estimates_tie(&e, &best)) return candidate;
    }
    return leader;
}

static void start_stage(struct gdni_race *race, int stage)
{
    race->stage = stage;
    for (int i = 0; i < race->count; ++i)
        race->racers[i].count = 0;
}

/* Stages that narrow are of no use to few. */
static int first_stage(const struct gdni_race *race)
{
    return num_running(race) <= FINALISTS ? DECIDING : 0;
}

void gdni_race_begin(struct gdni_race *race, int count, int heuristic, int divisor, const bool *runs)
{
    memset(race, 0, sizeof *race);
    race->count = count;
    race->heuristic = heuristic;
    race->divisor = divisor;
    race->favourite = -1;
    for (int i = 0; i < count; ++i) {
        race->racers[i].runs = !runs || runs[i];
        race->racers[i].failed = !race->racers[i].runs;
    }
    start_stage(race, first_stage(race));
}

int gdni_race_rounds(const struct gdni_race *race)
{
    if (race->stage >= NUM_STAGES || num_running(race) == 0) return 0;
    const int rounds = stage_rounds[race->stage] / race->divisor;
    return rounds > LEAST_ROUNDS ? rounds : LEAST_ROUNDS;
}

bool gdni_race_runs(const struct gdni_race *race, int candidate)
{
    return race->racers[candidate].runs;
}

void gdni_race_add(struct gdni_race *race, int candidate, int64_t cold_ns, int64_t warm_ns)
{
    struct gdni_racer *r = &race->racers[candidate];
    if (!r->runs || r->count == GDNI_RACE_MAX_ROUNDS) return;
    r->cold_ns[r->count] = cold_ns;
    r->warm_ns[r->count] = warm_ns;
    ++r->count;
}

void gdni_race_drop(struct gdni_race *race, int candidate)
{
    race->racers[candidate].runs = false;
    race->racers[candidate].failed = true;
}

/* How many of those that run are faster than candidate i, or as fast and before it. */
static int rank_of(const struct gdni_race *race, int i)
{
    const struct gdni_estimate own = time_of(race, i);
    int rank = 0;
    for (int j = 0; j < race->count; ++j) {
        if (j == i || !has_times(race, j)) continue;
        const struct gdni_estimate other = time_of(race, j);
        rank += other.median < own.median || (other.median == own.median && j < i);
    }
    return rank;
}

/* The best `most`, whoever ties with the very best (a place must not hang on luck), and the heuristic's choice. */
static void narrow(struct gdni_race *race, int most)
{
    bool stays[GDNI_RACE_MAX_CANDIDATES] = { false };
    struct gdni_estimate best;
    fastest(race, &best);
    for (int i = 0; i < race->count; ++i) {
        if (!has_times(race, i)) continue;
        const struct gdni_estimate e = time_of(race, i);
        stays[i] = i == race->heuristic || rank_of(race, i) < most || gdni_estimates_tie(&e, &best);
    }
    for (int i = 0; i < race->count; ++i)
        race->racers[i].runs = stays[i];
}

/* The race ends here unless somebody seems to beat the heuristic's choice. The times stay for the decision. */
static void end_or_confirm(struct gdni_race *race)
{
    const int winner = pick(race), h = race->heuristic;
    const bool challenged = winner >= 0 && winner != h && h >= 0 && race->racers[h].runs;
    race->favourite = winner;
    if (!challenged) {
        race->stage = NUM_STAGES;
        return;
    }
    for (int i = 0; i < race->count; ++i)
        race->racers[i].runs = i == winner || i == h;
    start_stage(race, CONFIRMING);
}

void gdni_race_next(struct gdni_race *race)
{
    if (race->stage == CONFIRMING) {
        race->stage = NUM_STAGES;
    } else if (race->stage == DECIDING) {
        end_or_confirm(race);
    } else if (race->stage < DECIDING) {
        narrow(race, race->stage == 0 ? (num_running(race) + 1) / 2 : FINALISTS);
        start_stage(race, num_running(race) <= FINALISTS ? DECIDING : race->stage + 1);
    }
}

int gdni_race_leader(const struct gdni_race *race, struct gdni_estimate *out)
{
    return fastest(race, out);
}

static enum gdni_verdict verdict_of(const struct gdni_race *race, int winner)
{
    const int h = race->heuristic;
    int others = 0;
    for (int i = 0; i < race->count; ++i)
        others += i != h && !race->racers[i].failed;
    if (winner < 0) return GDNI_VERDICT_NONE;
    if (h < 0 || race->racers[h].failed) return GDNI_VERDICT_REPLACED;
    if (winner != h) return GDNI_VERDICT_FASTER;
    if (others == 0) return GDNI_VERDICT_ALONE;
    return race->favourite >= 0 && race->favourite != h ? GDNI_VERDICT_UNCONFIRMED : GDNI_VERDICT_TIE;
}

static void describe(const struct gdni_race *race, int winner, enum gdni_verdict verdict, struct gdni_decision *out)
{
    memset(out, 0, sizeof *out);
    out->winner = winner;
    out->verdict = verdict;
    fastest(race, &out->fastest);
    if (race->heuristic >= 0 && has_times(race, race->heuristic)) out->heuristic = time_of(race, race->heuristic);
    if (out->winner < 0) return;
    const struct gdni_racer *r = &race->racers[out->winner];
    out->time = time_of(race, out->winner);
    out->cold = estimate_of(r->cold_ns, r->cold_ns, r->count);
    out->warm = estimate_of(r->warm_ns, r->warm_ns, r->count);
}

void gdni_race_decide(const struct gdni_race *race, struct gdni_decision *out)
{
    const int winner = pick(race);
    describe(race, winner, verdict_of(race, winner), out);
}

void gdni_race_decide_to_stay(const struct gdni_race *race, struct gdni_decision *out)
{
    describe(race, race->heuristic, GDNI_VERDICT_ELSEWHERE, out);
}

const char *gdni_verdict_text(enum gdni_verdict verdict)
{
    static const char *const texts[] = {
        [GDNI_VERDICT_NONE] = "no candidate ran",
        [GDNI_VERDICT_ALONE] = "there is no other candidate",
        [GDNI_VERDICT_TIE] = "none is faster by more than the tie band",
        [GDNI_VERDICT_FASTER] = "faster, and again in a run of its own",
        [GDNI_VERDICT_UNCONFIRMED] = "a run of its own did not show the gain again",
        [GDNI_VERDICT_ELSEWHERE] = "faster, but slower on other calls of the slot",
        [GDNI_VERDICT_REPLACED] = "the heuristic's choice failed",
    };
    return texts[verdict];
}
