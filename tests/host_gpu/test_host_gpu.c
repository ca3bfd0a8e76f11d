/*
 * test_host_gpu.c - the host GPU sees planted faults (faulty.cu), and none where there is none.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_gpu.h"
#include "runtime/nvrtc.h"

enum { SHARED = 16384, LANES = 32, SEEDS = 12, TEXT = 256 };

struct faulty_params {
    int fault;
    uint32_t *out;
};

struct outcome {
    char trouble[TEXT];
    uint32_t out[LANES];
};

static char *read_source(void)
{
    FILE *in = fopen(GDN_SOURCE_DIR "/tests/host_gpu/faulty.cu", "r");
    char *text = calloc(1, 1 << 16);
    cr_assert(in && text && fread(text, 1, (1 << 16) - 1, in) > 0);
    fclose(in);
    return text;
}

/* Once a process: compiling takes a second. */
static host_gpu_run compiled(void)
{
    void *library = dlopen(HOST_GPU_NVRTC, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library, "%s", dlerror());
    struct gdni_nvrtc_api api;
#define X(name, arguments) *(void **)(void *)&api.name = dlsym(library, #name);
    GDNI_NVRTC_CALLS(X)
#undef X
    const char *options[] = { "--gpu-architecture=sm_90a" };
    char log[4096] = "";
    gdni_nvrtcprog program;
    size_t size;
    char *source = read_source();
    cr_assert_eq(api.nvrtcCreateProgram(&program, source, "faulty.cu", 0, NULL, NULL), 0);
    const int result = api.nvrtcCompileProgram(program, 1, options);
    cr_assert_eq(api.nvrtcGetProgramLogSize(program, &size), 0);
    if (size <= sizeof log) cr_assert_eq(api.nvrtcGetProgramLog(program, log), 0);
    cr_assert_eq(result, 0, "%s", log);
    cr_assert_eq(api.nvrtcGetCUBINSize(program, &size), 0);
    char *cubin = malloc(size);
    cr_assert_eq(api.nvrtcGetCUBIN(program, cubin), 0);
    const host_gpu_run run = host_gpu_open(cubin);
    cr_assert(run);
    free(source);
    return run;
}

static void run_here(struct outcome *out, host_gpu_run run, int fault, uint64_t seed)
{
    _Alignas(16) uint32_t words[LANES];
    const struct faulty_params params = { fault, words };
    const struct host_gpu_launch launch = { 2, LANES, SHARED, 2, seed, &params, 0 };
    memset(words, 0x11, sizeof words);
    snprintf(out->trouble, sizeof out->trouble, "%s", run(&launch));
    memcpy(out->out, words, sizeof words);
}

/* In a process of its own: after a fault nothing more runs in it. */
static struct outcome run_fault(host_gpu_run run, int fault, uint64_t seed)
{
    struct outcome outcome;
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        run_here(&outcome, run, fault, seed);
        _exit(write(ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &outcome, sizeof outcome), (ssize_t)sizeof outcome, "fault %d, seed %d", fault, (int)seed);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return outcome;
}

Test(host_gpu, says_what_a_kernel_must_not_do)
{
    static const struct {
        int fault;
        const char *says;
    } rows[] = {
        { 1, "are not in shared memory" },
        { 2, "is not a multiple of 4" },
        { 4, "that are at" },
        { 5, "nobody can go on" },
        { 6, "more arrivals than the 32" },
        { 7, "was not initialised" },
        { 8, "was overwritten" },
        { 10, "is met of" },
        { 11, "no fence came between" },
        { 16, "is not a multiple of 16" },
        { 17, "before it has waited for its cp.async" },
        { 18, "is initialised a second time" },
        { 19, "there is no barrier 20" },
        { 20, "that are at" },
        { 21, "no fence came between" },
        { 22, "with 256, of 248 registers" },
        { 23, "there is no CTA 2 in a cluster of 2" },
        { 24, "no pieces of 16" },
        { 26, "is written asynchronously" },
        { 28, "is no address in the shared memory of its CTA" },
        { 30, "is read, and nobody has written it" },
        { 25, "that others give registers, it wants 0x100" },
    };
    const host_gpu_run run = compiled();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        for (uint64_t seed = 1; seed <= SEEDS; ++seed) {
            const struct outcome outcome = run_fault(run, rows[i].fault, seed);
            cr_expect(strstr(outcome.trouble, rows[i].says), "fault %d, seed %d: '%s'", rows[i].fault, (int)seed,
                      outcome.trouble);
        }
    const struct outcome outcome = run_fault(run, 9, 1);
    cr_expect(strstr(outcome.trouble, "nobody can go on"), "'%s'", outcome.trouble);
    cr_expect(strstr(outcome.trouble, "an mbarrier 0x43f8"), "it says where they wait: '%s'", outcome.trouble);
}

/* Of SEEDS orders of events, those after which a lane has not what `expected` says. */
static int wrong_results(host_gpu_run run, int fault, uint32_t (*expected)(int lane))
{
    int wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; ++seed) {
        const struct outcome outcome = run_fault(run, fault, seed);
        bool right = true;
        cr_expect_str_eq(outcome.trouble, "", "fault %d, seed %d", fault, (int)seed);
        for (int lane = 0; lane < LANES; ++lane) right = right && outcome.out[lane] == expected(lane);
        wrong += !right;
    }
    return wrong;
}

static uint32_t exchanged(int lane)
{
    return (uint32_t)(31 - (lane ^ 1));
}

static uint32_t mirrored(int lane)
{
    return (uint32_t)(31 - lane);
}

static uint32_t sixteen(int lane)
{
    (void)lane;
    return 16;
}

static uint32_t of_both(int lane)
{
    return (uint32_t)(lane + 100 + lane);
}

static uint32_t own(int lane)
{
    return (uint32_t)lane;
}

static uint32_t copied(int lane)
{
    (void)lane;
    return 0x11111111;
}

Test(host_gpu, gives_a_right_kernel_its_results_in_every_order)
{
    const host_gpu_run run = compiled();
    cr_expect_eq(wrong_results(run, 0, exchanged), 0);
    cr_expect_eq(wrong_results(run, 13, sixteen), 0);
    cr_expect_eq(wrong_results(run, 15, copied), 0);
    cr_expect_eq(wrong_results(run, 27, copied), 0);
    cr_expect_eq(wrong_results(run, 29, of_both), 0);
    cr_expect_eq(wrong_results(run, 31, own), 0);
}

Test(host_gpu, shows_what_is_read_too_early_in_some_order)
{
    const host_gpu_run run = compiled();
    cr_expect_gt(wrong_results(run, 3, mirrored), 0, "an exchange that nothing orders");
    cr_expect_gt(wrong_results(run, 12, sixteen), 0, "a product that is not waited for");
    cr_expect_gt(wrong_results(run, 14, copied), 0, "a copy that is not waited for");
}

Test(host_gpu, runs_a_seed_again_as_it_was)
{
    const host_gpu_run run = compiled();
    for (uint64_t seed = 1; seed <= SEEDS; ++seed) {
        const struct outcome first = run_fault(run, 3, seed), again = run_fault(run, 3, seed);
        cr_expect_arr_eq(first.out, again.out, sizeof first.out, "seed %d", (int)seed);
    }
}
