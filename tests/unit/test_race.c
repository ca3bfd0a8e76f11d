/*
 * test_race.c - the tuner's decision: the same times give the same answer, noise does not change it, and whoever wins does it
 * by more than the tie band.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/rng.h"
#include "tuner/race.h"

/* ---- Estimates ---- */

Test(stats, median_and_deviation_are_those_of_the_sorted_samples)
{
    int64_t odd[] = { 900, 100, 300, 200, 1000000 }, even[] = { 4, 1, 3, 8 };
    struct gdni_estimate e = gdni_estimate_of(odd, 5);
    cr_expect_eq(e.median, 300);
    cr_expect_eq(e.mad, 200); /* of 200, 100, 0, 600, 999700 */
    cr_expect_eq(e.count, 5);
    cr_expect_eq(e.margin, (int64_t)ceil(1.4826 * 1.2533 * 1.96 * 200.0 / sqrt(5.0)));
    e = gdni_estimate_of(even, 4);
    cr_expect_eq(e.median, 3);
    cr_expect_eq(e.mad, 1); /* of 0, 1, 2, 5: between 1 and 2, rounded down */
}

Test(stats, no_sample_and_one_sample_are_no_trap)
{
    int64_t one[] = { 77 };
    cr_expect_eq(gdni_estimate_of(one, 0).count, 0);
    const struct gdni_estimate e = gdni_estimate_of(one, 1);
    cr_expect(e.median == 77 && e.mad == 0 && e.margin == 0 && e.count == 1);
}

Test(stats, samples_in_any_order_give_the_same_estimate)
{
    struct rng rng;
    rng_seed(&rng, 20261121);
    int64_t sorted[50], shuffled[50];
    for (int i = 0; i < 50; ++i)
        sorted[i] = 100000 + rng_below(&rng, 5000);
    memcpy(shuffled, sorted, sizeof shuffled);
    for (int i = 49; i > 0; --i) {
        const int j = rng_below(&rng, i + 1);
        const int64_t t = shuffled[i];
        shuffled[i] = shuffled[j];
        shuffled[j] = t;
    }
    const struct gdni_estimate a = gdni_estimate_of(sorted, 50), b = gdni_estimate_of(shuffled, 50);
    cr_expect_eq(memcmp(&a, &b, sizeof a), 0);
}

Test(stats, the_tie_band_is_two_percent_or_the_noise_whichever_is_wider)
{
    struct gdni_estimate a = { .median = 10000, .count = 50 }, b = { .median = 10200, .count = 50 };
    cr_expect(gdni_estimates_tie(&a, &b) && gdni_estimates_tie(&b, &a));
    b.median = 10201;
    cr_expect(!gdni_estimates_tie(&a, &b) && !gdni_estimates_tie(&b, &a));
    a.margin = 300, b.margin = 400; /* 500 together */
    b.median = 10500;
    cr_expect(gdni_estimates_tie(&a, &b));
    b.median = 10501;
    cr_expect(!gdni_estimates_tie(&a, &b));
}

Test(stats, an_estimate_that_was_written_down_is_the_one_that_was_made)
{
    int64_t samples[] = { 100, 104, 90, 130, 101, 99, 97, 180, 100, 95, 102 };
    const struct gdni_estimate made = gdni_estimate_of(samples, sizeof samples / sizeof samples[0]);
    const struct gdni_estimate read = gdni_estimate_from(made.median, made.mad, made.count);
    cr_expect_gt(made.margin, 0);
    cr_expect_eq(memcmp(&made, &read, sizeof made), 0);
}

/* ---- Races over times that are made up: a true time for each candidate, and noise ---- */

struct field {
    int count, heuristic;
    double ns[GDNI_RACE_MAX_CANDIDATES];
    double noise;    /* standard deviation, relative */
    double outliers; /* how often a time is half as long again */
    int fails;       /* this candidate gives up after one round; -1: none */
};

static int64_t sample(const struct field *f, int i, struct rng *rng)
{
    double t = f->ns[i] * (1 + f->noise * rng_normal(rng));
    if (rng_uniform(rng) < f->outliers) t *= 1.5;
    return (int64_t)t;
}

/* backwards: each round in the opposite order, of times that depend on (round, candidate) alone. */
static struct gdni_race *run(const struct field *f, uint64_t seed, bool backwards)
{
    struct gdni_race *race = malloc(sizeof *race);
    int rounds;
    gdni_race_begin(race, f->count, f->heuristic, 1, NULL);
    while ((rounds = gdni_race_rounds(race)) > 0) {
        for (int r = 0; r < rounds; ++r)
            for (int k = 0; k < f->count; ++k) {
                const int i = backwards ? f->count - 1 - k : k;
                struct rng rng;
                rng_seed(&rng, seed * 1000003u + (uint64_t)(race->stage * 64 + r) * 64 + (uint64_t)i);
                if (i == f->fails && r == 1) gdni_race_drop(race, i);
                if (gdni_race_runs(race, i)) gdni_race_add(race, i, sample(f, i, &rng) + 500, sample(f, i, &rng) - 500);
            }
        gdni_race_next(race);
    }
    return race;
}

static struct gdni_decision decide(const struct field *f, uint64_t seed, bool backwards)
{
    struct gdni_race *race = run(f, seed, backwards);
    struct gdni_decision d;
    gdni_race_decide(race, &d);
    free(race);
    return d;
}

/* Candidate 0 is the heuristic's; the others are near `of_heuristic` times as long. */
static struct field random_field(struct rng *rng, double noise)
{
    struct field f = { .count = 2 + rng_below(rng, 20), .noise = noise, .outliers = 0.03, .fails = -1 };
    const double base = rng_between(rng, 5e3, 5e6);
    for (int i = 0; i < f.count; ++i)
        f.ns[i] = base * rng_between(rng, 0.7, 1.5);
    return f;
}

Test(race, a_clear_winner_wins_and_its_times_are_reported)
{
    const struct field f = { .count = 6, .ns = { 10000, 9900, 8000, 12000, 20000, 9000 }, .noise = 0.005, .fails = -1 };
    const struct gdni_decision d = decide(&f, 1, false);
    cr_expect_eq(d.winner, 2);
    cr_expect_eq(d.verdict, GDNI_VERDICT_FASTER, "%s", gdni_verdict_text(d.verdict));
    cr_expect_float_eq((double)d.time.median, 8000, 80);
    cr_expect_float_eq((double)d.heuristic.median, 10000, 100);
    cr_expect_float_eq((double)d.cold.median, 8500, 80);
    cr_expect_float_eq((double)d.warm.median, 7500, 80);
    cr_expect_eq(d.time.count, 50);
}

Test(race, within_the_tie_band_the_heuristics_own_choice_stays)
{
    const struct field f = {
        .count = 6, .heuristic = 3, .ns = { 10000, 9950, 9900, 10050, 15000, 10000 }, .noise = 0.01, .fails = -1
    };
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        const struct gdni_decision d = decide(&f, seed, false);
        cr_expect_eq(d.winner, 3, "seed %d: %d", (int)seed, d.winner);
        cr_expect_eq(d.verdict, GDNI_VERDICT_TIE);
    }
}

Test(race, among_those_that_tie_with_the_fastest_the_first_wins)
{
    const struct field f = {
        .count = 6, .ns = { 20000, 10100, 10000, 10050, 15000, 10120 }, .noise = 0.001, .fails = -1
    };
    for (uint64_t seed = 1; seed <= 20; ++seed)
        cr_expect_eq(decide(&f, seed, false).winner, 1, "seed %d", (int)seed);
}

Test(race, the_order_of_a_round_does_not_matter)
{
    struct rng rng;
    rng_seed(&rng, 20261121);
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        const struct field f = random_field(&rng, 0.02);
        const struct gdni_decision a = decide(&f, seed, false), b = decide(&f, seed, true);
        cr_expect_eq(memcmp(&a, &b, sizeof a), 0, "seed %d: %d and %d", (int)seed, a.winner, b.winner);
    }
}

Test(race, a_candidate_that_fails_never_wins)
{
    struct field f = { .count = 6, .ns = { 10000, 9900, 5000, 12000, 20000, 9000 }, .noise = 0.005, .fails = 2 };
    cr_expect_eq(decide(&f, 1, false).winner, 5);
    f.fails = 0; /* the heuristic's */
    struct gdni_decision d = decide(&f, 1, false);
    cr_expect_eq(d.winner, 2);
    cr_expect_eq(d.verdict, GDNI_VERDICT_REPLACED);
    cr_expect_eq(d.heuristic.count, 0);
    f.count = 1; /* nobody is left */
    d = decide(&f, 1, false);
    cr_expect_eq(d.winner, -1);
    cr_expect_eq(d.verdict, GDNI_VERDICT_NONE);
}

Test(race, a_single_candidate_is_timed_too)
{
    const struct field f = { .count = 1, .ns = { 10000 }, .noise = 0.005, .fails = -1 };
    const struct gdni_decision d = decide(&f, 1, false);
    cr_expect_eq(d.winner, 0);
    cr_expect_eq(d.verdict, GDNI_VERDICT_ALONE);
    cr_expect_eq(d.time.count, 50);
}

Test(race, whose_only_rival_fails_is_alone)
{
    const struct field f = { .count = 2, .ns = { 10000, 8000 }, .noise = 0.005, .fails = 1 };
    const struct gdni_decision d = decide(&f, 1, false);
    cr_expect_eq(d.winner, 0);
    cr_expect_eq(d.verdict, GDNI_VERDICT_ALONE, "%s", gdni_verdict_text(d.verdict));
    cr_expect_eq(d.fastest.median, d.time.median, "what failed is not the fastest");
}

Test(race, a_gain_that_does_not_come_again_is_none)
{
    struct gdni_race *race = malloc(sizeof *race);
    struct gdni_decision d;
    int stages = 0;
    gdni_race_begin(race, 2, 0, 1, NULL);
    for (int rounds; (rounds = gdni_race_rounds(race)) > 0; ++stages) {
        for (int r = 0; r < rounds; ++r) {
            gdni_race_add(race, 0, 10000, 10000);
            gdni_race_add(race, 1, stages == 0 ? 9000 : 9900, stages == 0 ? 9000 : 9900);
        }
        gdni_race_next(race);
    }
    gdni_race_decide(race, &d);
    cr_expect_eq(stages, 2);
    cr_expect_eq(d.winner, 0);
    cr_expect_eq(d.verdict, GDNI_VERDICT_UNCONFIRMED, "%s", gdni_verdict_text(d.verdict));
    cr_expect_eq(d.fastest.median, 9900);
    free(race);
}

Test(race, many_candidates_are_narrowed_to_four_and_long_calls_take_fewer_rounds)
{
    struct gdni_race *race = malloc(sizeof *race);
    gdni_race_begin(race, 20, 19, 5, NULL);
    cr_expect_eq(gdni_race_rounds(race), 5);
    for (int r = 0; r < 5; ++r)
        for (int i = 0; i < 20; ++i)
            gdni_race_add(race, i, 10000 + 1000 * i, 10000 + 1000 * i);
    gdni_race_next(race);
    int running = 0;
    for (int i = 0; i < 20; ++i)
        running += gdni_race_runs(race, i);
    cr_expect_eq(running, 11); /* the better half, and the heuristic's */
    cr_expect(gdni_race_runs(race, 9) && !gdni_race_runs(race, 10) && gdni_race_runs(race, 19));
    for (int r = 0; r < gdni_race_rounds(race); ++r)
        for (int i = 0; i < 20; ++i)
            gdni_race_add(race, i, 10000 + 1000 * i, 10000 + 1000 * i);
    gdni_race_next(race);
    cr_expect_eq(gdni_race_rounds(race), 10); /* 50 / 5 */
    cr_expect(gdni_race_runs(race, 3) && !gdni_race_runs(race, 4) && gdni_race_runs(race, 19));
    free(race);
}

/* Equal GPUs get equal tables, whatever order their candidates were timed in. */
Test(race, of_equal_times_the_first_are_ahead)
{
    struct gdni_race *race = malloc(sizeof *race);
    struct gdni_estimate best;
    gdni_race_begin(race, 8, 0, 1, NULL);
    for (int r = 0; r < gdni_race_rounds(race); ++r)
        for (int i = 7; i >= 0; --i)
            gdni_race_add(race, i, i < 2 ? 10000 : 20000, i < 2 ? 10000 : 20000);
    cr_expect_eq(gdni_race_leader(race, &best), 0);
    gdni_race_next(race);
    for (int i = 0; i < 8; ++i)
        cr_expect_eq(gdni_race_runs(race, i), i < 4, "candidate %d", i);
    gdni_race_begin(race, 8, 0, 1, NULL);
    for (int r = 0; r < gdni_race_rounds(race); ++r)
        for (int i = 7; i >= 0; --i)
            gdni_race_add(race, i, 10000 + 10 * i, 10000 + 10 * i);
    gdni_race_next(race);
    for (int i = 0; i < 8; ++i)
        cr_expect(gdni_race_runs(race, i), "candidate %d ties with the best: no place hangs on luck", i);
    free(race);
}

/*
 * Two tunings of the same machine: where their choices differ by more than the tie band, one of them was wrong. The noise is
 * what peers' threads report of such kernels (0.7 to 3.5 %), outliers on top.
 */
Test(race, two_noisy_runs_agree_outside_the_tie_band)
{
    enum { ENTRIES = 1000 };
    for (int percent = 1; percent <= 3; ++percent) {
        struct rng rng;
        int same = 0, apart = 0, regret = 0;
        rng_seed(&rng, 20261121 + (uint64_t)percent);
        for (int entry = 0; entry < ENTRIES; ++entry) {
            const struct field f = random_field(&rng, percent / 100.0);
            const int a = decide(&f, (uint64_t)(2 * entry), false).winner;
            const int b = decide(&f, (uint64_t)(2 * entry + 1), false).winner;
            same += a == b;
            apart += fabs(f.ns[a] - f.ns[b]) > 0.02 * fmin(f.ns[a], f.ns[b]);
            regret += f.ns[a] > f.ns[0] * 1.0001; /* slower than the heuristic's */
        }
        cr_log_info("noise %d %%: %d of %d equal, %d apart by more than the band, %d slower than the heuristic\n",
                    percent, same, ENTRIES, apart, regret);
        cr_expect_geq(ENTRIES - apart, ENTRIES * 95 / 100, "noise %d %%: %d apart", percent, apart);
        cr_expect_eq(regret, 0, "noise %d %%", percent);
        cr_expect_geq(same, ENTRIES * 85 / 100, "noise %d %%: %d equal", percent, same);
    }
}
