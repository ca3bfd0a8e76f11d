/*
 * pairwise.h - a small set of combinations in which every pair of levels of every two factors occurs: most of what the full
 * product finds, in a hundredth of the compiles.
 */
#ifndef GDN_TEST_PAIRWISE_H
#define GDN_TEST_PAIRWISE_H

#include <stdbool.h>
#include <stdint.h>

enum { PAIRWISE_MAX_FACTORS = 8, PAIRWISE_MAX_LEVELS = 24, PAIRWISE_MAX_ROWS = 256 };

struct pairwise_row {
    int level[PAIRWISE_MAX_FACTORS];
};

/* legal: NULL, or which combinations exist; pairs that occur in no legal combination are not asked for. */
typedef bool (*pairwise_legal)(const struct pairwise_row *row);

/* Fills rows greedily and returns how many; deterministic. -1 when factors, levels or rows are more than there is room for. */
int pairwise_rows(const int *levels, int num_factors, pairwise_legal legal, struct pairwise_row rows[PAIRWISE_MAX_ROWS]);

/*
 * The same for products too large to walk, all of whose combinations exist: each row is the best of some hundred random ones.
 */
int pairwise_sample(const int *levels, int num_factors, uint64_t seed, struct pairwise_row rows[PAIRWISE_MAX_ROWS]);

/* Next combination of the full product, first factor fastest; false after the last. Start from all zeros. */
bool pairwise_next(struct pairwise_row *row, const int *levels, int num_factors);

#endif
