/*
 * test_compile.c - one run of the compiler: what it gives, what is read off its log, what it must not do to the process.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/compile.h"
#include "support/fake_host.h"
#include "support/store.h"

#define EXPECT_SENTENCE(words) cr_assert(strstr(gdni_error_text(), words), "\"%s\" expected in: %s", words, gdni_error_text())

/* ---- the log ---- */

static struct gdni_facts facts_of(const char *log)
{
    struct gdni_facts facts = { -1, -1, -1, -1, 77, "kept" };
    gdni_facts_from_log(&facts, log);
    cr_assert(facts.compile_ms == 77 && strcmp(facts.compiler, "kept") == 0, "more than four members were set");
    return facts;
}

#define EXPECT_FACTS(log, registers_, spill_, local_, smem_)                                                         \
    do {                                                                                                             \
        const struct gdni_facts f_ = facts_of(log);                                                                  \
        cr_assert(f_.registers == (registers_) && f_.spill_bytes == (spill_) && f_.local_bytes == (local_) &&        \
                      f_.static_smem == (smem_),                                                                     \
                  "%d registers, %d spilled, %d local, %d smem from: %s", f_.registers, f_.spill_bytes,             \
                  f_.local_bytes, f_.static_smem, log);                                                              \
    } while (0)

/* As NVRTC 13.0 wrote it: a kernel that calls a function that is not inlined. */
static const char with_call[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'tiny' for 'sm_80'\n"
    "ptxas info    : Function properties for tiny\n"
    "ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 128 registers, used 1 barriers, 256 bytes cumulative stack size, 400 bytes smem, 364 bytes cmem[0]\n"
    "ptxas info    : Compile time = 36.086 ms\n"
    "ptxas info    : Function properties for _Z1fPfi\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";

/* As NVRTC 12.8 wrote it: spills, a warning, no static shared memory. */
static const char with_spills[] =
    "ptxas warning : Value of threads per SM for entry spill is out of range. .minnctapersm will be ignored\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'spill' for 'sm_120a'\n"
    "ptxas info    : Function properties for spill\n"
    "ptxas         .     248 bytes stack frame, 392 bytes spill stores, 308 bytes spill loads\n"
    "ptxas info    : Used 64 registers, used 0 barriers, 248 bytes cumulative stack size\n"
    "ptxas info    : Compile time = 55.559 ms\n";

Test(compile, facts_are_read_off_recorded_logs)
{
    EXPECT_FACTS(with_call, 128, 0, 256, 400);
    EXPECT_FACTS(with_spills, 64, 700, 248, 0);
}

Test(compile, spills_of_a_called_function_count)
{
    EXPECT_FACTS("ptxas         .     16 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\n"
                 "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n",
                 0, 7, 24, 0);
}

Test(compile, odd_logs_are_read_without_harm)
{
    EXPECT_FACTS("", 0, 0, 0, 0);
    EXPECT_FACTS("\n\n", 0, 0, 0, 0);
    EXPECT_FACTS("ptxas", 0, 0, 0, 0);
    EXPECT_FACTS("ptxas info : Used 24 registers", 24, 0, 0, 0); /* no newline at the end */
    EXPECT_FACTS("ptxas info : Used 99999999999999999999999 registers, 4294967296 bytes smem", INT32_MAX, 0, 0, INT32_MAX);
    EXPECT_FACTS("ptxas . 2147483647 bytes spill stores, 2147483647 bytes spill loads", 0, INT32_MAX, 0, 0);
    EXPECT_FACTS("ptxas info : Used x24 registers, -3 bytes smem, bytes smem, 12", 0, 0, 0, 0);
    EXPECT_FACTS("ptxas info : Used 1 register", 0, 0, 0, 0);
}

Test(compile, source_that_is_quoted_in_a_log_is_not_believed)
{
    EXPECT_FACTS("unit.cu(3): warning: unused\n  // Used 255 registers, 16 bytes spill stores\n"
                 "ptxas info    : Used 24 registers, used 0 barriers\n",
                 24, 0, 0, 0);
}

/* ---- through the fake ---- */

Test(compile, gives_cubin_log_and_facts)
{
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_unit unit = store_unit("sm_90a", "the source");
    struct gdni_compiled compiled;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_OK, "%s", gdni_error_text());
    cr_assert_null(gdni_cubin_check(compiled.cubin, compiled.cubin_size, "sm_90a"));
    cr_assert_eq(compiled.cubin_size, 64 + strlen("the source"));
    cr_assert_eq(strlen(compiled.log), strlen(FAKE_NVRTC_LOG) - 1, "all but the newline at the end");
    cr_assert_eq(compiled.facts.registers, 42);
    cr_assert_eq(compiled.facts.spill_bytes, 12);
    cr_assert_eq(compiled.facts.local_bytes, 16);
    cr_assert_eq(compiled.facts.static_smem, 1024);
    cr_assert(strncmp(compiled.facts.compiler, "nvrtc 13.0 ", 11) == 0, "%s", compiled.facts.compiler);
    cr_assert_str_eq(compiled.options, "--gpu-architecture=sm_90a --std=c++17 --minimal --no-source-include --frandom-seed=gdn "
                                       "--modify-stack-limit=false --no-cache -Xptxas=-v");
    gdni_compiled_free(&compiled);
    cr_assert_eq(fake_nvrtc_open(GDN_FAKE_NVRTC_PATH)->programs, 0);
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, the_compilers_words_reach_the_callers_sentence)
{
    struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_unit unit = store_unit("sm_90a", "x");
    struct gdni_compiled compiled;
    char *ptx;
    fake->result = 6;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_COMPILE);
    EXPECT_SENTENCE("the fake was told to fail");
    EXPECT_SENTENCE("tiny for sm_90a");
    EXPECT_SENTENCE("NVRTC_ERROR_COMPILATION");
    cr_assert_null(compiled.cubin);
    fake->noise = 150; /* of a long log its end: there the error is */
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_COMPILE);
    EXPECT_SENTENCE("number 149\ntiny.cu(1): error: the fake was told to fail");
    EXPECT_SENTENCE("tiny for sm_90a");
    cr_assert_eq(gdni_compile_ptx(nvrtc, &unit, &ptx), GDN_E_COMPILE);
    fake->result = 1;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_NOMEM, "1 is the compiler's out of memory");
    EXPECT_SENTENCE("tiny for sm_90a");
    fake->result = 0;
    fake->fail_cubin = 9;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_COMPILE);
    EXPECT_SENTENCE("nvrtcGetCUBIN");
    fake->fail_cubin = 1;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_NOMEM);
    fake->fail_log = 9;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_COMPILE);
    EXPECT_SENTENCE("nvrtcGetProgramLog");
    cr_assert_eq(fake->programs, 0, "%d programs left", fake->programs);
    gdni_nvrtc_destroy(nvrtc);
}

/* The stack that NVRTC needs; and handlers of the embedder's run in his own threads, but for faults of this one. */
Test(compile, its_thread_has_room_and_takes_no_signals_but_of_its_own_faults)
{
    const struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_unit unit = store_unit("sm_90a", "x");
    struct gdni_compiled compiled;
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &faults, NULL); /* whatever the caller's thread does */
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_OK, "%s", gdni_error_text());
    cr_expect_geq((int)fake->stack_kib, 16 << 10);
    cr_expect_eq((int)fake->takes_term, 0);
    cr_expect_eq((int)fake->takes_fault, 1);
    gdni_compiled_free(&compiled);
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, running_out_of_memory_at_any_point_leaves_nothing)
{
    struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_unit unit = store_unit("sm_90a", "x");
    struct gdni_compiled compiled;
    for (int result = 0; result <= 6; result += 6) /* a good compile and one that fails */
        for (int allowed = 0; allowed < (result ? 1 : 2); ++allowed) {
            fake->result = result;
            gdni_mem_fail_after(allowed);
            const gdn_status status = gdni_compile(nvrtc, &unit, &compiled);
            gdni_mem_fail_after(-1);
            cr_assert_eq(status, GDN_E_NOMEM, "result %d, %d allocations: %s", result, allowed, gdn_status_name(status));
            cr_assert(!compiled.cubin && !compiled.log);
            cr_assert_eq(fake->programs, 0);
        }
    gdni_nvrtc_destroy(nvrtc);
    cr_assert(fake_no_leaks());
}

static void *compile_one(void *data)
{
    const struct gdni_unit unit = store_unit("sm_90a", "x");
    struct gdni_compiled compiled;
    const gdn_status status = gdni_compile(data, &unit, &compiled);
    gdni_compiled_free(&compiled);
    return status == GDN_OK ? NULL : "failed";
}

/* The most that ran at a time, of twelve. */
static int most_of_twelve(struct gdni_nvrtc *nvrtc)
{
    enum { THREADS = 12 };
    struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    pthread_t threads[THREADS];
    fake->delay_ms = 50;
    fake->compiles = fake->most_running = 0;
    for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, compile_one, nvrtc), 0);
    for (int i = 0; i < THREADS; ++i) {
        void *failure;
        pthread_join(threads[i], &failure);
        cr_assert_null(failure);
    }
    cr_assert_eq(fake->compiles, THREADS);
    return fake->most_running;
}

Test(compile, many_threads_compile_together_but_only_four_at_a_time)
{
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const int most = most_of_twelve(nvrtc);
    gdni_nvrtc_destroy(nvrtc);
    cr_assert_leq(most, GDNI_NVRTC_PARALLEL);
    cr_assert_gt(most, 1, "compiles do not overlap at all");
}

Test(compile, as_many_at_a_time_as_the_config_says_or_else_the_environment)
{
    enum { OLDER = offsetof(gdn_config, compile_jobs), FOUR = GDNI_NVRTC_PARALLEL };
    static const struct {
        const char *variable;
        int32_t member;
        uint32_t flags;
        size_t size; /* of the caller's struct */
        int low, high;
    } cases[] = {
        { NULL, 1, 0, sizeof(gdn_config), 1, 1 },
        { NULL, 12, 0, sizeof(gdn_config), FOUR + 1, 12 },
        { NULL, 256, 0, sizeof(gdn_config), FOUR + 1, 12 },
        { "1", 0, 0, sizeof(gdn_config), 1, 1 },
        { "12", 0, 0, sizeof(gdn_config), FOUR + 1, 12 },
        { "12", 1, 0, sizeof(gdn_config), 1, 1 },
        { "1", 0, GDN_CTX_NO_ENV, sizeof(gdn_config), 2, FOUR },
        { "", 257, 0, OLDER, 2, FOUR }, /* what lies behind a shorter struct is not the library's */
        { "1", 257, 0, OLDER, 1, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        unsetenv("GDN_JIT_COMPILE_JOBS");
        if (cases[i].variable) setenv("GDN_JIT_COMPILE_JOBS", cases[i].variable, 1);
        cfg.struct_size = cases[i].size, cfg.flags = cases[i].flags, cfg.compile_jobs = cases[i].member;
        cfg.cache_dir = "", cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
        cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
        const int most = most_of_twelve(ctx->nvrtc);
        cr_expect(most >= cases[i].low && most <= cases[i].high, "case %zu: %d", i, most);
        gdn_ctx_destroy(ctx);
    }
}

Test(compile, an_arch_that_the_compiler_does_not_know_is_not_tried)
{
    struct fake_nvrtc *fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    fake->major = 12;
    fake->minor = 8;
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(GDN_FAKE_NVRTC_PATH, 0);
    const struct gdni_unit unit = store_unit("sm_121a", "x");
    struct gdni_compiled compiled;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_NO_NVRTC);
    EXPECT_SENTENCE("sm_121a needs NVRTC");
    EXPECT_SENTENCE("12.8");
    cr_assert_eq(fake->compiles, 0);
    gdni_nvrtc_destroy(nvrtc);
}

/* ---- through the machine's NVRTC ---- */

static const char kernel[] =
    "#include \"tiny.cuh\"\n"
    "extern \"C\" __global__ void __launch_bounds__(128) tiny(float *p, int n)\n"
    "{\n"
    "    __shared__ float s[COUNT];\n"
    "    s[threadIdx.x % COUNT] = p[n];\n"
    "    __syncthreads();\n"
    "    p[threadIdx.x] = s[n % COUNT];\n"
    "}\n";

static struct gdni_unit real_unit(void)
{
    struct gdni_unit unit = store_unit("sm_90a", kernel);
    unit.num_files = 1;
    unit.files[0] = (struct gdni_unit_file){ .name = "tiny.cuh", .text = "constexpr int COUNT = 100;\n" };
    return unit;
}

static struct gdni_nvrtc *real_nvrtc(void)
{
    struct gdni_nvrtc *nvrtc = gdni_nvrtc_create(getenv("GDN_JIT_NVRTC"), 0);
    const struct gdni_nvrtc_api *api;
    if (gdni_nvrtc_get(nvrtc, &api) != GDN_OK) {
        gdni_nvrtc_destroy(nvrtc);
        cr_skip_test("no NVRTC here: %s", gdni_error_text());
    }
    return nvrtc;
}

Test(compile, nvrtc_compiles_a_unit_with_its_own_headers)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_unit unit = real_unit();
    struct gdni_compiled compiled;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_OK, "%s", gdni_error_text());
    const char *wrong = gdni_cubin_check(compiled.cubin, compiled.cubin_size, "sm_90a");
    cr_assert_null(wrong, "%s", wrong);
    cr_assert_not_null(gdni_cubin_check(compiled.cubin, compiled.cubin_size, "sm_80"));
    cr_assert_gt(compiled.facts.registers, 3);
    cr_assert_eq(compiled.facts.static_smem, 400, "%s", compiled.log);
    cr_assert_eq(compiled.facts.spill_bytes, 0);
    cr_assert_eq(compiled.facts.local_bytes, 0);
    cr_assert_gt(compiled.usec, 0u);
    gdni_compiled_free(&compiled);
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, nvrtc_gives_the_same_bytes_twice)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_unit unit = real_unit();
    struct gdni_compiled once, twice;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &once), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(gdni_compile(nvrtc, &unit, &twice), GDN_OK, "%s", gdni_error_text());
    cr_assert_eq(once.cubin_size, twice.cubin_size);
    cr_assert_arr_eq(once.cubin, twice.cubin, once.cubin_size);
    cr_assert_str_eq(once.log, twice.log, "what ptxas says of itself must not stay in the log");
    cr_assert(strstr(once.log, "registers") && !strstr(once.log, "Compile time"), "%s", once.log);
    gdni_compiled_free(&once);
    gdni_compiled_free(&twice);
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, nvrtc_knows_every_arch_of_the_table_that_we_think_it_knows)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_nvrtc_api *api;
    cr_assert_eq(gdni_nvrtc_get(nvrtc, &api), GDN_OK);
    int compiled_for = 0;
    for (int i = 0; gdni_arch_at(i); ++i) {
        struct gdni_unit unit = real_unit();
        unit.spec.arch = gdni_arch_at(i);
        struct gdni_compiled compiled;
        const gdn_status status = gdni_compile(nvrtc, &unit, &compiled);
        if (api->version < unit.spec.arch->min_nvrtc) {
            cr_assert_eq(status, GDN_E_NO_NVRTC, "%s on %s", unit.spec.arch->name, api->identity);
            continue;
        }
        cr_assert_eq(status, GDN_OK, "%s on %s: %s", unit.spec.arch->name, api->identity, gdni_error_text());
        const char *wrong = gdni_cubin_check(compiled.cubin, compiled.cubin_size, unit.spec.arch->name);
        cr_assert_null(wrong, "%s: %s", unit.spec.arch->name, wrong);
        gdni_compiled_free(&compiled);
        ++compiled_for;
    }
    cr_assert_geq(compiled_for, 5);
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, nvrtcs_errors_name_file_line_and_identifier)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_unit unit = store_unit("sm_90a", "extern \"C\" __global__ void tiny(int *p) { p[0] = nowhere; }\n");
    struct gdni_compiled compiled;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_E_COMPILE);
    EXPECT_SENTENCE("tiny.cu(1)");
    EXPECT_SENTENCE("nowhere");
    EXPECT_SENTENCE("sm_90a");
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, ptx_of_a_unit_names_arch_and_entry)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_unit unit = real_unit();
    char *ptx;
    cr_assert_eq(gdni_compile_ptx(nvrtc, &unit, &ptx), GDN_OK, "%s", gdni_error_text());
    cr_assert(strstr(ptx, ".target sm_90a"), "%s", ptx);
    cr_assert(strstr(ptx, ".entry tiny("), "%s", ptx);
    gdni_free(ptx);
    gdni_nvrtc_destroy(nvrtc);
}

/* The hash of a fresh compile, by a process of its own when asked. */
static void cubin_hash(char hex[GDNI_KEY_HEX])
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_unit unit = real_unit();
    struct gdni_compiled compiled;
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_OK, "%s", gdni_error_text());
    gdni_hash_hex(hex, compiled.cubin, compiled.cubin_size);
    gdni_compiled_free(&compiled);
    gdni_nvrtc_destroy(nvrtc);
}

Test(compile, equal_units_are_equal_cubins_twice_and_in_another_process)
{
    char first[GDNI_KEY_HEX], second[GDNI_KEY_HEX], other[GDNI_KEY_HEX] = "";
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork(); /* before this process has any thread or library of the compiler */
    if (child == 0) {
        cubin_hash(other);
        _exit(write(ends[1], other, sizeof other) == sizeof other ? 0 : 1);
    }
    close(ends[1]);
    cubin_hash(first);
    cubin_hash(second);
    cr_assert_str_eq(first, second);
    cr_assert_eq(read(ends[0], other, sizeof other), (ssize_t)sizeof other);
    waitpid(child, NULL, 0);
    cr_assert_str_eq(first, other);
}

Test(compile, the_process_is_as_it_was_before)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    const struct gdni_unit unit = real_unit();
    struct gdni_compiled compiled;
    struct rlimit before, after;
    sigset_t mask_before, mask_after;
    getrlimit(RLIMIT_STACK, &before);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    cr_assert_eq(gdni_compile(nvrtc, &unit, &compiled), GDN_OK, "%s", gdni_error_text());
    getrlimit(RLIMIT_STACK, &after);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    cr_assert(before.rlim_cur == after.rlim_cur && before.rlim_max == after.rlim_max, "stack limit %llu became %llu",
              (unsigned long long)before.rlim_cur, (unsigned long long)after.rlim_cur);
    for (int i = 1; i < NSIG; ++i)
        cr_assert_eq(sigismember(&mask_before, i), sigismember(&mask_after, i), "signal %d", i);
    gdni_compiled_free(&compiled);
    gdni_nvrtc_destroy(nvrtc);
}

static void *compile_in_small_stack(void *data)
{
    struct gdni_compiled compiled;
    const struct gdni_unit unit = real_unit();
    const gdn_status status = gdni_compile(data, &unit, &compiled);
    gdni_compiled_free(&compiled);
    return status == GDN_OK ? NULL : "failed";
}

Test(compile, a_caller_with_a_small_stack_can_compile)
{
    struct gdni_nvrtc *nvrtc = real_nvrtc();
    pthread_attr_t attr;
    pthread_t thread;
    void *failure = "never ran";
    pthread_attr_init(&attr);
    cr_assert_eq(pthread_attr_setstacksize(&attr, 64 * 1024), 0);
    cr_assert_eq(pthread_create(&thread, &attr, compile_in_small_stack, nvrtc), 0);
    pthread_join(thread, &failure);
    cr_assert_null(failure);
    gdni_nvrtc_destroy(nvrtc);
}
