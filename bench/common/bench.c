/*
 * bench.c - options, timing and small helpers of the benchmarks; the results' format is in results.c.
 */
#include "common/bench.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum { NO_DEVICE = 77, L2_TIMES_FOUR = 240 * 1000 * 1000, MAX_SETS = 48, MAX_SAMPLES = 1000 };

static const struct option long_options[] = {
    { "out", required_argument, NULL, 'o' },
    { "filter", required_argument, NULL, 'f' },
    { "commit", required_argument, NULL, 'c' },
    { "samples", required_argument, NULL, 's' },
    { "cache-dir", required_argument, NULL, 'k' },
    { "device", required_argument, NULL, 'd' },
    { "no-errors", no_argument, NULL, 'e' },
    { "quick", no_argument, NULL, 'q' },
    { NULL, 0, NULL, 0 },
};

static void usage(const char *program, const char *what)
{
    fprintf(stderr,
            "usage: %s [--out FILE.jsonl] [--filter TEXT] [--commit ID] [--samples N] [--cache-dir FOLDER]\n"
            "       [--device N] [--no-errors] [--quick]\n%s\n",
            program, what);
    exit(2);
}

static void open_device(int ordinal)
{
    const char *why_not = cu_open(ordinal);
    if (!why_not) return;
    printf("skipped: no CUDA device: %s\n", why_not);
    exit(NO_DEVICE);
}

struct bench_options bench_start(int argc, char **argv, const char *what)
{
    struct bench_options options = { .commit = "unknown", .samples = 12 };
    int c;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (c) {
        case 'o':
            options.out = optarg;
            break;
        case 'f':
            options.filter = optarg;
            break;
        case 'c':
            options.commit = optarg;
            break;
        case 's':
            options.samples = atoi(optarg);
            break;
        case 'k':
            options.cache_dir = optarg;
            break;
        case 'd':
            options.device = atoi(optarg);
            break;
        case 'e':
            options.no_errors = true;
            break;
        case 'q':
            options.quick = true;
            break;
        default:
            usage(argv[0], what);
        }
    }
    if (optind != argc || options.samples < 1 || options.samples > MAX_SAMPLES) usage(argv[0], what);
    open_device(options.device);
    return options;
}

/* ---- times ------------------------------------------------------------------------------------------------------------- */

double bench_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

void bench_median(double *values, int count, double *median, double *mad)
{
    *median = middle(values, count);
    for (int i = 0; i < count; ++i)
        values[i] = fabs(values[i] - *median);
    *mad = middle(values, count);
}

/* Microseconds of `launches` replays, between events. */
static double time_replays(cu_graph_exec graph, int launches, gdn_stream stream, cu_event events[2])
{
    float ms = 0.0f;
    CU(cuEventRecord(events[0], stream));
    for (int i = 0; i < launches; ++i)
        CU(cuGraphLaunch(graph, stream));
    CU(cuEventRecord(events[1], stream));
    CU(cuEventSynchronize(events[1]));
    CU(cuEventElapsedTime(&ms, events[0], events[1]));
    return (double)ms * 1e3;
}

static int launches_for(double wanted_us, double one_us)
{
    const double n = ceil(wanted_us / fmax(one_us, 0.1));
    return n < 1.0 ? 1 : n > 100000.0 ? 100000 : (int)n;
}

struct bench_times bench_graph(const struct bench_options *options, cu_graph_exec graph, int calls, gdn_stream stream)
{
    struct bench_times times = { .samples = options->samples };
    const double sample_us = options->quick ? 500.0 : 5000.0;
    double values[MAX_SAMPLES];
    cu_event events[2];
    CU(cuEventCreate(&events[0], 0));
    CU(cuEventCreate(&events[1], 0));
    time_replays(graph, 2, stream, events); /* clocks up, kernel resident */
    const double one = time_replays(graph, 1, stream, events);
    const int launches = launches_for(sample_us, one);
    time_replays(graph, launches, stream, events);
    for (int i = 0; i < times.samples; ++i)
        values[i] = time_replays(graph, launches, stream, events) / launches / calls;
    bench_median(values, times.samples, &times.median_us, &times.mad_us);
    if (!options->quick) {
        const int many = launches_for(5e5, times.median_us * calls);
        times.sustained_us = time_replays(graph, many, stream, events) / many / calls;
    }
    CU(cuEventDestroy(events[0]));
    CU(cuEventDestroy(events[1]));
    return times;
}

struct bench_interleaved {
    int count, rounds;
    struct {
        cu_graph_exec graph;
        int calls, launches;
        double *values; /* of `rounds` samples */
    } graphs[];
};

struct bench_interleaved *bench_interleaved_new(int most_graphs, int rounds)
{
    struct bench_interleaved *b = bench_alloc(sizeof *b + (size_t)most_graphs * sizeof b->graphs[0]);
    b->count = 0;
    b->rounds = rounds;
    return b;
}

void bench_interleaved_add(struct bench_interleaved *b, cu_graph_exec graph, int calls)
{
    const int i = b->count++;
    b->graphs[i].graph = graph;
    b->graphs[i].calls = calls;
    b->graphs[i].values = bench_alloc((size_t)b->rounds * sizeof(double));
}

void bench_interleaved_run(struct bench_interleaved *b, const struct bench_options *options, gdn_stream stream)
{
    const double sample_us = options->quick ? 500.0 : 2000.0;
    cu_event events[2];
    CU(cuEventCreate(&events[0], 0));
    CU(cuEventCreate(&events[1], 0));
    for (int i = 0; i < b->count; ++i) {
        time_replays(b->graphs[i].graph, 2, stream, events);
        const double one = time_replays(b->graphs[i].graph, 1, stream, events);
        b->graphs[i].launches = launches_for(sample_us, one);
    }
    for (int round = 0; round < b->rounds; ++round)
        for (int k = 0; k < b->count; ++k) {
            const int i = (k + round) % b->count, launches = b->graphs[i].launches;
            const double us = time_replays(b->graphs[i].graph, launches, stream, events);
            b->graphs[i].values[round] = us / launches / b->graphs[i].calls;
        }
    CU(cuEventDestroy(events[0]));
    CU(cuEventDestroy(events[1]));
}

struct bench_times bench_interleaved_times(const struct bench_interleaved *b, int graph)
{
    struct bench_times times = { .samples = b->rounds };
    double values[MAX_SAMPLES];
    memcpy(values, b->graphs[graph].values, (size_t)b->rounds * sizeof values[0]);
    bench_median(values, b->rounds, &times.median_us, &times.mad_us);
    return times;
}

void bench_interleaved_free(struct bench_interleaved *b)
{
    for (int i = 0; i < b->count; ++i)
        free(b->graphs[i].values);
    free(b);
}

int bench_rotation(double bytes)
{
    const double sets = ceil(L2_TIMES_FOUR / fmax(bytes, 1.0));
    return sets > MAX_SETS ? MAX_SETS : sets < 1.0 ? 1 : (int)sets;
}

struct bench_times bench_copy(const struct bench_options *options, double bytes, int sets, gdn_stream stream)
{
    const size_t half = (size_t)(bytes / 2.0);
    gdn_devptr from[MAX_SETS], to[MAX_SETS];
    for (int i = 0; i < sets; ++i)
        from[i] = cu_alloc(half), to[i] = cu_alloc(half);
    cu_capture_begin(stream);
    for (int i = 0; i < sets; ++i)
        CU(cuMemcpyDtoDAsync(to[i], from[i], half, stream));
    cu_graph_exec graph = cu_capture_end(stream, NULL);
    const struct bench_times times = bench_graph(options, graph, sets, stream);
    CU(cuGraphExecDestroy(graph));
    for (int i = 0; i < sets; ++i) {
        CU(cuMemFree(from[i]));
        CU(cuMemFree(to[i]));
    }
    return times;
}

/* ---- dumps ------------------------------------------------------------------------------------------------------------- */

void *bench_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p) return p;
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    exit(1);
}

static gdn_status to_file(void *user, const void *data, size_t size)
{
    return fwrite(data, 1, size, user) == size ? GDN_OK : GDN_E_IO;
}

char *bench_dump(const gdn_plan *plan, gdn_dump_kind kind)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) exit(1);
    GDN(gdn_plan_dump(plan, kind, to_file, file));
    fclose(file);
    return text;
}

/* A slot of a dump's "chosen_by": what calls of up to so many tokens and sequences take. */
struct slot {
    long long tokens, seqs; /* seqs LLONG_MAX: any number */
};

/* The next slot of the text [at, end), and where it stands; NULL: there is none. */
static const char *next_slot(const char *at, const char *end, struct slot *slot)
{
    while ((at = strstr(at, "{\"tokens\": ")) != NULL && at < end) {
        if (sscanf(at, "{\"tokens\": %lld, \"seqs\": %lld,", &slot->tokens, &slot->seqs) == 2) {
            if (slot->seqs == 0) slot->seqs = LLONG_MAX;
            return at;
        }
        ++at;
    }
    return NULL;
}

/* Whether a call takes a before b; both hold its sequences. The last slot of tokens has no upper end. */
static bool is_nearer(const struct slot *a, const struct slot *b, long long tokens)
{
    if (a->tokens == b->tokens) return a->seqs < b->seqs;
    if (a->tokens < tokens || b->tokens < tokens) return a->tokens > b->tokens;
    return a->tokens < b->tokens;
}

/* {"kernel": "gdn_prefill_hopper", "chunk": ...}: the "kernel" that stands before "params", and what is in those. */
static char *params_with_kernel(const char *json, const char *params)
{
    static const char member[] = "\"kernel\": \"";
    const char *kernel = NULL, *open = strchr(params, '{'), *close = strchr(params, '}');
    char *text = bench_alloc(strlen(params) + 128);
    for (const char *at = strstr(json, member); at && at < params; at = strstr(at + 1, member))
        kernel = at + sizeof member - 1;
    sprintf(text, "{%s%.*s\", %.*s", member, kernel ? (int)strcspn(kernel, "\"") : 0, kernel ? kernel : "",
            (int)(close - open), open + 1);
    return text;
}

/* The dump lists, for each variant, "kernel", "params" and, behind them, "chosen_by": the slots that it serves. */
char *bench_params(const gdn_plan *plan, int64_t num_tokens, int64_t num_seqs)
{
    char *json = bench_dump(plan, GDN_DUMP_JSON);
    const char *found = NULL;
    struct slot best = { 0, 0 }, slot;
    for (const char *at = strstr(json, "\"params\": {"), *next; at; at = next) {
        next = strstr(at + 1, "\"params\": {");
        const char *const end = next ? next : at + strlen(at);
        for (const char *in = next_slot(at, end, &slot); in; in = next_slot(in + 1, end, &slot)) {
            if (slot.seqs < num_seqs || (found && !is_nearer(&slot, &best, num_tokens))) continue;
            found = at;
            best = slot;
        }
    }
    char *const text = found ? params_with_kernel(json, found) : strdup("{}");
    free(json);
    return text;
}

const char *bench_impl(const char *params)
{
    return strstr(params, "\"gdn_prefill_generic\"") ? "gdn-jit-generic" : "gdn-jit";
}
