/*
 * cuts.h - between cuts.cu and test_cuts.c: samples of a call's (sequence, head) pairs, and how they are cut.
 */
#ifndef HOST_GPU_CUTS_H
#define HOST_GPU_CUTS_H

/* Numbers of partitions, and counts, have 8 bits, so that no word, however wrong, leads behind the arrays. */
enum { CUT_LANES = 32, CUT_MOST = 64, CUT_NUMBERS = 256, CUT_ENDS = 2 * CUT_NUMBERS + CUT_MOST };
enum { CUT_SEQUENCES = 256, CUT_ITEMS = CUT_NUMBERS + CUT_SEQUENCES };

struct cut_case {
    int num_pairs;    /* that may be cut */
    int num_whole;    /* more, */
    int whole_tokens; /* of so many tokens each */
    struct {
        float chunks, by_gates, by_keys; /* as sample_pairs() leaves them */
    } sampled[CUT_MOST];

    int num_partitions; /* 0: they are of one length */
    int num_items;      /* with those that stay whole */
    struct {
        int base, count;
    } pair[CUT_MOST];
    int begin[CUT_ENDS];     /* pair n, partition i: [base + n + i], and behind its last one where that ends */
    int owner[CUT_ITEMS];    /* of each item, as CTAs find it */
};

struct cuts_params {
    int num_cases;
    int one_magic; /* a division by one, as launch parameters have it */
    int one_shift;
    struct cut_case *cases;
};

#endif
