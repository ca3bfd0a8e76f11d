/*
 * gpu_test.c - see gpu_test.h. Owns the counters and standard output of the GPU tests; report_lock guards both.
 */
#include "gpu_test.h"
#include "gdn_cases.h"
#include "gpu_params.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static int num_passed, num_failed;
int gpu_num_sms;
uint32_t gpu_plan_flags;
bool gpu_no_workspace, gpu_draws_tuples;
uint32_t gpu_desc_flags;

/* ---- options ---------------------------------------------------------------------------------------------------------- */

static const struct option long_options[] = {
    { "out", required_argument, NULL, 'o' },    { "filter", required_argument, NULL, 'f' },
    { "bounds", required_argument, NULL, 'b' }, { "seed", required_argument, NULL, 's' },
    { "repeat", required_argument, NULL, 'r' }, { "jobs", required_argument, NULL, 'j' },
    { "device", required_argument, NULL, 'd' }, { "small", no_argument, NULL, 'm' },
    { "list", no_argument, NULL, 'l' },         { "num-sms", required_argument, NULL, 'n' },
    { "generic", no_argument, NULL, 'g' },       { "params", required_argument, NULL, 'p' },
    { "no-workspace", no_argument, NULL, 'w' }, { "batch-invariant", no_argument, NULL, 'i' },
    { "qk-l2norm", no_argument, NULL, 'q' },     { "programmatic", no_argument, NULL, 'e' },
    { "tuples", required_argument, NULL, 't' }, { "told", no_argument, NULL, 'k' },
    { NULL, 0, NULL, 0 },
};

static void usage(const char *program)
{
    fprintf(
        stderr,
        "usage: %s [--out FOLDER] [--filter TEXT] [--seed N] [--repeat N] [--small] [--list]\n"
        "       [--bounds FILE] [--jobs N] [--device N] [--num-sms N] [--generic] [--no-workspace] [--params LIST]\n"
        "       [--batch-invariant] [--qk-l2norm] [--told] [--programmatic]%s\n",
        program, gpu_draws_tuples ? " [--tuples N]" : "");
    exit(2);
}

static int parse_int(const char *program, const char *text, long low, long high)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < low || value > high) {
        fprintf(stderr, "%s: \"%s\" must be a number from %ld to %ld\n", program, text, low, high);
        exit(2);
    }
    return (int)value;
}

static int default_jobs(void)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > 16 ? 16 : (int)cpus;
}

struct gpu_options gpu_parse_options(int argc, char **argv, uint64_t default_seed)
{
    struct gpu_options options = { .seed = default_seed, .jobs = default_jobs() };
    int c;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (c) {
        case 'o':
            options.out = optarg;
            break;
        case 'f':
            options.filter = optarg;
            break;
        case 'b':
            options.bounds = optarg;
            break;
        case 's':
            options.seed = (uint64_t)strtoull(optarg, NULL, 0);
            break;
        case 't':
            if (!gpu_draws_tuples) usage(argv[0]);
            options.tuples = (uint64_t)parse_int(argv[0], optarg, 1, 1 << 30);
            break;
        case 'r':
            options.repeat = parse_int(argv[0], optarg, 1, 1000000);
            break;
        case 'j':
            options.jobs = parse_int(argv[0], optarg, 1, 256);
            break;
        case 'd':
            options.device = parse_int(argv[0], optarg, 0, 1024);
            break;
        case 'n':
            gpu_num_sms = parse_int(argv[0], optarg, 1, 1 << 20);
            break;
        case 'g':
            gpu_plan_flags |= GDN_PLAN_GENERIC;
            break;
        case 'i':
            gpu_plan_flags |= GDN_PLAN_BATCH_INVARIANT;
            break;
        case 'p':
            gpu_force_params(optarg);
            break;
        case 'w':
            gpu_no_workspace = true;
            break;
        case 'q':
            gdn_cases_qk_l2norm = true;
            break;
        case 'k':
            gdn_cases_told = true;
            break;
        case 'e':
            gpu_desc_flags |= GDN_PREFILL_PROGRAMMATIC_LAUNCH;
            break;
        case 'm':
            options.small = true;
            break;
        case 'l':
            options.list = true;
            break;
        default:
            usage(argv[0]);
        }
    }
    if (optind != argc) usage(argv[0]);
    return options;
}

void gpu_require_device(const struct gpu_options *options)
{
    char name[64] = "";
    int driver = 0;
    cu_device device = 0;
    const char *why_not = cu_open(options->device);
    if (why_not) {
        printf("skipped: no CUDA device: %s\n", why_not);
        exit(GPU_NO_DEVICE);
    }
    CU(cuDriverGetVersion(&driver));
    CU(cuDeviceGet(&device, options->device));
    CU(cuDeviceGetName(name, sizeof name, device));
    printf("device %d: %s, driver API %d.%d, seed %llu\n", options->device, name, driver / 1000, driver % 1000 / 10,
           (unsigned long long)options->seed);
}

FILE *gpu_results_open(const struct gpu_options *options, const char *name, const char *header)
{
    char path[4096];
    if (!options->out) return NULL;
    if (snprintf(path, sizeof path, "%s/%s", options->out, name) >= (int)sizeof path) usage("--out is too long");
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(2);
    }
    fprintf(file, "%s\n", header);
    return file;
}

bool gpu_selected(const struct gpu_options *options, const char *name)
{
    return !options->filter || strstr(name, options->filter);
}

/* ---- report ----------------------------------------------------------------------------------------------------------- */

void gpu_report(bool passed, const char *name, const char *detail)
{
    pthread_mutex_lock(&report_lock);
    *(passed ? &num_passed : &num_failed) += 1;
    printf("%s %s%s%s\n", passed ? "PASS" : "FAIL", name, *detail ? "  " : "", detail);
    fflush(stdout);
    pthread_mutex_unlock(&report_lock);
}

/* ---- kernels that do not end ------------------------------------------------------------------------------------------ */

static _Thread_local char running[256];

void gpu_running(const char *name)
{
    snprintf(running, sizeof running, "%s", name);
}

void gpu_wait(gdn_stream stream)
{
    enum { NOT_READY = 600, MOST_SECONDS = 30, POLL_NS = 200000 };
    struct timespec now, start;
    int result;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while ((result = cu.cuStreamQuery(stream)) == NOT_READY) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > MOST_SECONDS) {
            gpu_report(false, running, "a kernel did not end in 30 s: given up, with all cases after it");
            _exit(1); /* the driver would wait for it */
        }
        nanosleep(&(struct timespec){ 0, POLL_NS }, NULL);
    }
    cu_check(result, "cuStreamQuery", __FILE__, __LINE__);
}

int gpu_summary(void)
{
    if (num_passed + num_failed == 0) printf("no case was selected\n");
    if (!gpu_force_met()) printf("no plan had a choice with the values of --params\n");
    printf("%d passed, %d failed\n", num_passed, num_failed);
    return num_failed == 0 && num_passed > 0 && gpu_force_met() ? 0 : 1;
}

/* ---- buffers ---------------------------------------------------------------------------------------------------------- */

const struct gpu_buffer gpu_no_buffer = { 0, 0, 0 };

struct gpu_buffer gpu_buffer_filled(size_t bytes, unsigned char fill)
{
    struct gpu_buffer buffer = { .bytes = bytes };
    const size_t padded = (bytes + 255) / 256 * 256;
    buffer.base = cu_alloc(padded + 2 * GPU_GUARD_BYTES);
    buffer.p = buffer.base + GPU_GUARD_BYTES;
    CU(cuMemsetD8Async(buffer.base, GPU_GUARD_FILL, padded + 2 * GPU_GUARD_BYTES, NULL));
    if (bytes) CU(cuMemsetD8Async(buffer.p, fill, bytes, NULL));
    CU(cuStreamSynchronize(NULL)); /* the cases' streams do not wait for the default one */
    return buffer;
}

struct gpu_buffer gpu_buffer_from(const void *host, size_t bytes)
{
    const struct gpu_buffer buffer = gpu_buffer_filled(bytes, GPU_NAN_FILL);
    cu_copy_in(buffer.p, host, bytes);
    return buffer;
}

void gpu_buffer_read(const struct gpu_buffer *buffer, void *host)
{
    if (buffer->bytes) CU(cuMemcpyDtoH(host, buffer->p, buffer->bytes));
}

static bool all_guard(gdn_devptr p, size_t bytes)
{
    unsigned char guard[GPU_GUARD_BYTES + 256];
    CU(cuMemcpyDtoH(guard, p, bytes));
    for (size_t i = 0; i < bytes; ++i)
        if (guard[i] != GPU_GUARD_FILL) return false;
    return true;
}

bool gpu_buffer_guards_intact(const struct gpu_buffer *buffer)
{
    if (!buffer->base) return true;
    const size_t padding = (256 - buffer->bytes % 256) % 256;
    return all_guard(buffer->base, GPU_GUARD_BYTES) && all_guard(buffer->p + buffer->bytes, GPU_GUARD_BYTES + padding);
}

void gpu_buffer_free(struct gpu_buffer *buffer)
{
    if (buffer->base) CU(cuMemFree(buffer->base));
    *buffer = gpu_no_buffer;
}

/* ---- cases in parallel ------------------------------------------------------------------------------------------------- */

struct crew {
    void (*run)(void *user, int i);
    void *user;
    int count;
    atomic_int next;
};

static void *worker(void *p)
{
    struct crew *crew = p;
    CU(cuCtxSetCurrent(cu_primary));
    for (int i; (i = atomic_fetch_add(&crew->next, 1)) < crew->count;)
        crew->run(crew->user, i);
    return NULL;
}

void gpu_parallel(const struct gpu_options *options, int count, void (*run)(void *user, int i), void *user)
{
    struct crew crew = { .run = run, .user = user, .count = count };
    pthread_t threads[256];
    int started = 0;
    while (started < options->jobs - 1 && started < count - 1)
        if (pthread_create(&threads[started], NULL, worker, &crew) == 0)
            ++started;
        else
            break;
    worker(&crew);
    for (int i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);
}

void *gpu_malloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p) return p;
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    exit(1);
}

void *gpu_calloc(size_t bytes)
{
    return memset(gpu_malloc(bytes), 0, bytes);
}

double gpu_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
