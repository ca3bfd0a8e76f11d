/*
 * cuts.h - between cuts.cu and test_cuts.c: samples of a call's (sequence, head) pairs, and how they are cut.
 */
#ifndef HOST_GPU_CUTS_H
#define HOST_GPU_CUTS_H

/* A lane has a pair. Partitions have numbers of 8 bits, counts too, so that no word, however wrong, leads behind the arrays. */
enum { CUT_LANES = 32, CUT_NUMBERS = 256, CUT_ENDS = 2 * CUT_NUMBERS + CUT_LANES };

struct cut_case {
    int num_pairs;
    struct {
        float chunks, by_gates, by_keys; /* as sample_pairs() leaves them */
    } sampled[CUT_LANES];

    int num_partitions; /* 0: they are of one length */
    struct {
        int base, count;
    } pair[CUT_LANES];
    int begin[CUT_ENDS];     /* pair n, partition i: [base + n + i], and behind its last one where that ends */
    int owner[CUT_NUMBERS];  /* of each partition, as CTAs find it */
};

struct cuts_params {
    int num_cases;
    struct cut_case *cases;
};

#endif
