/*
 * fake_kernels.h - kernels for the fake driver: a launch becomes a call of the host reference on the memory that the launch
 * names, and takes as long as a table says.
 */
#ifndef TEST_FAKE_KERNELS_H
#define TEST_FAKE_KERNELS_H

#include <stdbool.h>

#include "fakecuda/fakecuda.h"
#include "gdn_jit/gdn_jit.h"

enum { FAKE_KERNEL_ROWS = 16 };

/* Launches of so much dynamic shared memory, which tells candidates of one kernel apart. The first row that fits counts. */
struct fake_kernel_row {
    unsigned smem;
    int64_t most_tokens; /* of such calls only; 0: any */
    bool uneven;         /* of calls whose first sequence has half of the tokens */
    bool lone;           /* of those whose first has more than three quarters */
    bool undecayed;      /* of prefill calls whose first head does not decay */
    bool gateless;       /* of conv1d-QKV calls that compute no gates */
    int64_t ns;          /* FAKE_HANGS, FAKE_FAULTS too */
    bool wrong;          /* one element of its output is another one */
    bool overwrites;     /* writes a byte of an input */
};

struct fake_kernels {
    gdn_prefill_desc prefill; /* of launches: dtypes, layouts, flags; heads and their dims are the launch's */
    gdn_conv1d_desc conv1d;
    int64_t ns;   /* of those that no row is about */
    double noise; /* relative, uniform to both sides */
    uint64_t seed;
    int num_rows;
    struct fake_kernel_row rows[FAKE_KERNEL_ROWS];
};

/* For fake_controls.set_code(); kernels is `user`. */
int64_t fake_kernel_duration(void *user, const struct fake_launch *launch);
void fake_kernel_execute(void *user, const struct fake_launch *launch);

#endif
