/*
 * bench.h - what the benchmarks share: options, one JSON line a measurement, timing by CUDA-graph replay.
 *
 * Every number is for one call of an operator. `cold`: the calls of a graph rotate over enough buffer sets that none is in
 * L2 when its turn comes again; `warm`: one set.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cuda_mini.h"

struct bench_options {
    const char *out;    /* results file, appended to; NULL: standard output only */
    const char *filter; /* only rows whose case contains it */
    const char *commit; /* written to every line */
    const char *cache_dir;
    int samples, device;
    bool no_errors; /* skip the comparison with the host reference */
    bool quick;     /* short samples, no sustained figure: to see that it runs */
};

/* Exits with a usage text on an unknown option; opens the device, or says why not and exits with 77. */
struct bench_options bench_start(int argc, char **argv, const char *what);

/* ---- times ------------------------------------------------------------------------------------------------------------- */

struct bench_times {
    double median_us, mad_us; /* of one call */
    int samples;
    double sustained_us; /* of one call over 0.5 s of replays; 0: not measured */
};

/* The graph holds `calls` calls of what is measured. */
struct bench_times bench_graph(const struct bench_options *options, cu_graph_exec graph, int calls, gdn_stream stream);

/*
 * Several graphs in turns, one sample of 2 ms each a round, every round beginning with another one: for times that are compared
 * with each other. No sustained figure.
 */
struct bench_interleaved;
struct bench_interleaved *bench_interleaved_new(int most_graphs, int rounds);
/* Each call of the graph is one of what is measured. Graphs are numbered from 0 in the order in which they come. */
void bench_interleaved_add(struct bench_interleaved *b, cu_graph_exec graph, int calls);
void bench_interleaved_run(struct bench_interleaved *b, const struct bench_options *options, gdn_stream stream);
struct bench_times bench_interleaved_times(const struct bench_interleaved *b, int graph);
void bench_interleaved_free(struct bench_interleaved *b);

/* Median and median absolute deviation; sorts values. */
void bench_median(double *values, int count, double *median, double *mad);

double bench_now_us(void);

/* Buffer sets of `bytes` that together pass four times any L2 of today, from 1 to 48. */
int bench_rotation(double bytes);

/* Device-to-device copy that reads bytes / 2 and writes bytes / 2, rotating over `sets` of such pairs. */
struct bench_times bench_copy(const struct bench_options *options, double bytes, int sets, gdn_stream stream);

/* ---- results ----------------------------------------------------------------------------------------------------------- */

/* One line of the results file; members not set are not written (NULL, 0, and NAN for the errors). */
struct bench_line {
    const char *op, *impl, *dtype, *name; /* name: the field `case` */
    int64_t num_seqs, tokens, capacity;
    int hq, hk, hv, dk, dv;                            /* gdn_prefill */
    int q_dim, k_dim, v_dim, width;                    /* conv1d_qkv */
    const int32_t *cu_seqlens;                         /* num_seqs + 1, on the host: the field `lens` */
    int h0;                                            /* -1: not written */
    const char *state_dtype, *layout, *gates, *params; /* params: a JSON object */
    const char *features;                              /* a JSON list */
    const char *variant;                               /* of several rows that are otherwise alike */
    const char *method, *l2;
    struct bench_times times;
    double ratio_to_copy;
    double err_o, err_state, maxabs_o, maxabs_state;
};
struct bench_line bench_line_init(void);

/* options->out to append to; ends the program when it cannot be opened. */
FILE *bench_open(const struct bench_options *options);

/* Appends the line with gpu, driver, nvrtc, versions, commit and date, and prints a short form for people. */
void bench_write(const struct bench_options *options, gdn_ctx *ctx, const struct bench_line *line);

/*
 * Kernel and parameters, as a JSON object, of the variant that a call of so many tokens and sequences takes, given a workspace;
 * the caller frees it.
 */
char *bench_params(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs);

/* The field `impl` of a row with such parameters: the generic kernel has a name of its own. */
const char *bench_impl(const char *params);

/* A dump as one string; the caller frees it. */
char *bench_dump(const gdn_plan *plan, gdn_dump_kind kind);

void *bench_alloc(size_t bytes);

#endif
