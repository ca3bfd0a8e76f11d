/* pairwise.c - see pairwise.h. */
#include "pairwise.h"

#include <string.h>

#include "rng.h"

/* state[a][la][b][lb]: 0 not asked for, 1 wanted, 2 covered */
struct pairs {
    unsigned char state[PAIRWISE_MAX_FACTORS][PAIRWISE_MAX_LEVELS][PAIRWISE_MAX_FACTORS][PAIRWISE_MAX_LEVELS];
};

bool pairwise_next(struct pairwise_row *row, const int *levels, int num_factors)
{
    for (int f = 0; f < num_factors; ++f) {
        if (++row->level[f] < levels[f]) return true;
        row->level[f] = 0;
    }
    return false;
}

static void want(struct pairs *p, const struct pairwise_row *row, int n)
{
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b) p->state[a][row->level[a]][b][row->level[b]] = 1;
}

static int gain(const struct pairs *p, const struct pairwise_row *row, int n)
{
    int sum = 0;
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b) sum += p->state[a][row->level[a]][b][row->level[b]] == 1;
    return sum;
}

static void cover(struct pairs *p, const struct pairwise_row *row, int n)
{
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b) p->state[a][row->level[a]][b][row->level[b]] = 2;
}

static bool fit(const int *levels, int num_factors)
{
    for (int f = 0; f < num_factors; ++f)
        if (levels[f] > PAIRWISE_MAX_LEVELS) return false;
    return num_factors <= PAIRWISE_MAX_FACTORS;
}

static bool is_legal(pairwise_legal legal, const struct pairwise_row *row)
{
    return !legal || legal(row);
}

int pairwise_rows(const int *levels, int num_factors, pairwise_legal legal, struct pairwise_row rows[PAIRWISE_MAX_ROWS])
{
    static const struct pairwise_row first = { { 0 } };
    struct pairs pairs;
    if (!fit(levels, num_factors)) return -1;
    memset(&pairs, 0, sizeof pairs);
    struct pairwise_row row = first;
    do {
        if (is_legal(legal, &row)) want(&pairs, &row, num_factors);
    } while (pairwise_next(&row, levels, num_factors));
    for (int count = 0; count <= PAIRWISE_MAX_ROWS; ++count) {
        int best_gain = 0;
        struct pairwise_row best = first;
        row = first;
        do {
            const int g = is_legal(legal, &row) ? gain(&pairs, &row, num_factors) : 0;
            if (g > best_gain) {
                best_gain = g;
                best = row;
            }
        } while (pairwise_next(&row, levels, num_factors));
        if (best_gain == 0) return count;
        if (count == PAIRWISE_MAX_ROWS) return -1;
        cover(&pairs, &best, num_factors);
        rows[count] = best;
    }
    return -1;
}

static bool any_wanted(const struct pairs *p, const int *levels, int n, struct pairwise_row *row)
{
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b)
            for (int la = 0; la < levels[a]; ++la)
                for (int lb = 0; lb < levels[b]; ++lb)
                    if (p->state[a][la][b][lb] == 1) {
                        row->level[a] = la;
                        row->level[b] = lb;
                        return true;
                    }
    return false;
}

static void want_all(struct pairs *p, const int *levels, int n)
{
    memset(p, 0, sizeof *p);
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b)
            for (int la = 0; la < levels[a]; ++la)
                for (int lb = 0; lb < levels[b]; ++lb) p->state[a][la][b][lb] = 1;
}

int pairwise_sample(const int *levels, int num_factors, uint64_t seed, struct pairwise_row rows[PAIRWISE_MAX_ROWS])
{
    struct pairs pairs;
    struct rng rng;
    if (!fit(levels, num_factors)) return -1;
    rng_seed(&rng, seed);
    want_all(&pairs, levels, num_factors);
    for (int count = 0; count <= PAIRWISE_MAX_ROWS; ++count) {
        struct pairwise_row best = { { 0 } };
        int best_gain = 0;
        for (int i = 0; i < 300; ++i) {
            struct pairwise_row row;
            for (int f = 0; f < num_factors; ++f) row.level[f] = rng_below(&rng, levels[f]);
            if (!any_wanted(&pairs, levels, num_factors, &row)) return count; /* sets one pair that is still wanted */
            const int g = gain(&pairs, &row, num_factors);
            if (g > best_gain) {
                best_gain = g;
                best = row;
            }
        }
        if (count == PAIRWISE_MAX_ROWS) return -1;
        cover(&pairs, &best, num_factors);
        rows[count] = best;
    }
    return -1;
}
