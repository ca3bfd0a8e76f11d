/* pairwise.c - see pairwise.h. */
#include "pairwise.h"

#include <string.h>

enum { MAX_LEVELS = 8 };

/* state[a][la][b][lb]: 0 not asked for, 1 wanted, 2 covered */
struct pairs {
    unsigned char state[PAIRWISE_MAX_FACTORS][MAX_LEVELS][PAIRWISE_MAX_FACTORS][MAX_LEVELS];
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

static bool is_legal(pairwise_legal legal, const struct pairwise_row *row)
{
    return !legal || legal(row);
}

int pairwise_rows(const int *levels, int num_factors, pairwise_legal legal, struct pairwise_row rows[PAIRWISE_MAX_ROWS])
{
    static const struct pairwise_row first = { { 0 } };
    struct pairs pairs;
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
