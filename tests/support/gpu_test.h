/*
 * gpu_test.h - what the programs of tests/gpu share: options, a device or exit status 77, guarded buffers, a line per case,
 * a results file, the summary. Plain programs, no test framework: they are carried to a GPU machine as single files.
 *
 * A CUDA or library call that must work and does not ends the program (CU, GDN): after a fault nothing that follows would
 * mean anything. What a case finds wrong is a line "FAIL", and the next case runs.
 */
#ifndef GPU_TEST_H
#define GPU_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cuda_mini.h"

enum { GPU_NO_DEVICE = 77 };

struct gpu_options {
    const char *out;    /* folder for results; NULL: none are written */
    const char *filter; /* only cases whose name contains it; NULL: all */
    const char *bounds; /* the error bounds' table; NULL: the committed one */
    uint64_t seed;
    uint64_t tuples; /* where gpu_draws_tuples: what other tuples are drawn by; 0: the program's own */
    int repeat; /* run each case this many times and compare bits; 0: the program's default */
    int jobs;   /* threads that prepare and check cases */
    int device;
    bool small; /* few small cases: for compute-sanitizer */
    bool list;  /* names only */
};

/* Set before the options are parsed by a program whose cases are tuples: it takes --tuples, others refuse it. */
extern bool gpu_draws_tuples;

/* Exits with a usage text on an unknown option. */
struct gpu_options gpu_parse_options(int argc, char **argv, uint64_t default_seed);

/*
 * --num-sms: plan as if the device had so many SMs, by which a plan chooses its kernels: with 1 no call is of few
 * sequences. 0: as many as it has.
 */
extern int gpu_num_sms;

/* --no-workspace: calls without one run the kernels that need none, whatever the number of sequences. */
extern bool gpu_no_workspace;
/* Of every prefill desc: --programmatic. */
extern uint32_t gpu_desc_flags;

/* --generic, --batch-invariant: GDN_PLAN_GENERIC, GDN_PLAN_BATCH_INVARIANT for every plan of GDN prefill. */
extern uint32_t gpu_plan_flags;

/* --params name=value,...: see gpu_params.h; --qk-l2norm, --told: gdn_cases_qk_l2norm, gdn_cases_told. */

/* Makes the device current for this thread; exits with GPU_NO_DEVICE and a sentence where there is none. */
void gpu_require_device(const struct gpu_options *options);

/* Opens folder/name for writing and prints its header line; NULL when no folder was given. Exits when it cannot. */
FILE *gpu_results_open(const struct gpu_options *options, const char *name, const char *header);

bool gpu_selected(const struct gpu_options *options, const char *name);

/* ---- report: one line a case, thread-safe ---------------------------------------------------------------------------- */

/* What this thread runs from here on; gpu_wait() names it. */
void gpu_running(const char *name);

/* Waits for the stream. A kernel that has not ended after 30 s has hung: says which case, and ends the process. */
void gpu_wait(gdn_stream stream);

/* Prints "PASS name detail" or "FAIL name detail" and counts. */
void gpu_report(bool passed, const char *name, const char *detail);
/* "N passed, N failed"; the program's exit status. A run in which no case ran has failed. */
int gpu_summary(void);

/* ---- buffers ---------------------------------------------------------------------------------------------------------- */

/*
 * Device memory between two guard regions. Both guards and the payload start as known bytes, so that a write outside is
 * found, and a payload byte that was never written shows as what it was filled with.
 */
struct gpu_buffer {
    gdn_devptr base, p; /* p is 256-byte aligned, and 0 when the payload is empty by choice (gpu_no_buffer) */
    size_t bytes;
};

enum { GPU_GUARD_BYTES = 4096, GPU_GUARD_FILL = 0xA5, GPU_NAN_FILL = 0xFF /* NaN in bf16, fp16 and float32 */ };

extern const struct gpu_buffer gpu_no_buffer;

struct gpu_buffer gpu_buffer_filled(size_t bytes, unsigned char fill);
struct gpu_buffer gpu_buffer_from(const void *host, size_t bytes);
void gpu_buffer_read(const struct gpu_buffer *buffer, void *host);
bool gpu_buffer_guards_intact(const struct gpu_buffer *buffer);
void gpu_buffer_free(struct gpu_buffer *buffer);

/* ---- cases in parallel ------------------------------------------------------------------------------------------------- */

/* Calls run(user, i) for i in [0, count) from options->jobs threads, each with the device current. */
void gpu_parallel(const struct gpu_options *options, int count, void (*run)(void *user, int i), void *user);

/* malloc, calloc that end the program when memory is out. */
void *gpu_malloc(size_t bytes);
void *gpu_calloc(size_t bytes);

double gpu_now_us(void);

#endif
