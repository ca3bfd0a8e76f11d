/*
 * test_plan_programs.c - what a plan has to compile is compiled side by side, whoever else wants some of it, and nobody is left
 * waiting when it fails.
 */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "runtime/clock.h"
#include "runtime/nvrtc.h"
#include "runtime/plan.h"
#include "support/fake_host.h"
#include "support/store.h"
#include "support/tuning_cases.h"

static struct fake_nvrtc *fake;
static gdn_ctx *ctx;

static void open_ctx(void)
{
    ctx = store_ctx("", 0, NULL, GDN_FAKE_NVRTC_PATH); /* no directory: each context starts from nothing */
}

static void set_up(void)
{
    fake = fake_nvrtc_open(GDN_FAKE_NVRTC_PATH);
    open_ctx();
}

static void tear_down(void)
{
    gdn_ctx_destroy(ctx);
    cr_expect_eq(fake->programs, 0);
    cr_expect(fake_no_leaks());
}

TestSuite(plan_programs, .init = set_up, .fini = tear_down);

static gdn_status make(int64_t max_tokens, int64_t max_seqs, uint32_t flags, gdn_plan **out)
{
    const gdn_target target = fake_h200(ctx);
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = max_tokens, d.max_seqs = max_seqs;
    return gdn_plan_prefill(ctx, &target, &d, flags | GDN_PLAN_HEURISTIC, out);
}

/* Each part is of its spec, and what a plan that finds all in memory has. How many programs there are. */
static int expect_programs(const gdn_plan *plan)
{
    const struct gdni_program *seen[GDNI_MAX_VARIANTS];
    int distinct = 0;
    gdn_plan *again = NULL;
    cr_assert_eq(gdni_plan_create(ctx, &plan->target, &plan->problem, GDN_PLAN_HEURISTIC, &again), GDN_OK);
    cr_assert_eq(again->num_variants, plan->num_variants);
    for (int i = 0; i < plan->num_variants; ++i) {
        enum gdni_origin here, there;
        struct gdni_program *a = gdni_modules_program(plan->modules, i, &here);
        struct gdni_program *b = gdni_modules_program(again->modules, i, &there);
        cr_expect_eq(a, b, "variant %d", i);
        cr_expect_eq(there, GDNI_FROM_MEMORY);
        cr_expect_str_eq(a->entry, gdni_kernel_info((enum gdni_kernel)plan->specs[i].kernel)->name);
        int at = 0;
        while (at < distinct && seen[at] != a)
            ++at;
        if (at == distinct) seen[distinct++] = a;
        gdni_program_release(a);
        gdni_program_release(b);
    }
    gdn_plan_destroy(again);
    return distinct;
}

Test(plan_programs, programs_that_are_nowhere_are_compiled_side_by_side)
{
    gdn_plan *plan = NULL;
    fake->delay_ms = 50;
    cr_assert_eq(make(32768, 64, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_expect_geq(fake->compiles, 3);
    cr_expect_gt(fake->most_running, 1, "one after the other");
    cr_expect_leq(fake->most_running, GDNI_NVRTC_PARALLEL);
    cr_expect_eq(expect_programs(plan), fake->compiles);
    gdn_plan_destroy(plan);
}

struct told {
    pthread_t planner;
    int asked, done;
};

/* In the planner's thread alone: no lock. */
static void note_compile(void *user, int level, const char *message)
{
    struct told *told = user;
    (void)level;
    cr_expect(pthread_equal(pthread_self(), told->planner), "by a thread that is in no call: %s", message);
    told->asked += strstr(message, ": asked for") != NULL;
    told->done += strstr(message, ": done in ") != NULL;
}

Test(plan_programs, as_many_at_a_time_as_the_config_says_and_the_log_has_each_in_the_callers_thread)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_plan *plan = NULL;
    struct told told = { .planner = pthread_self() };
    gdn_ctx_destroy(ctx);
    cfg.cache_dir = "", cfg.flags = GDN_CTX_NO_ENV, cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH, cfg.compile_jobs = 1;
    cfg.log_fn = note_compile, cfg.log_user = &told, cfg.log_level = GDN_LOG_INFO;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    fake->delay_ms = 20;
    cr_assert_eq(make(32768, 64, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_expect_geq(fake->compiles, 3);
    cr_expect_eq(fake->most_running, 1);
    cr_expect(told.asked == fake->compiles && told.done == fake->compiles, "%d, %d", told.asked, told.done);
    gdn_plan_destroy(plan);
}

/* Two slots whose numbers differ at run time alone: two variants, one program. Who waited for himself would wait for ever. */
Test(plan_programs, variants_of_one_program_compile_it_once)
{
    static const int32_t deal[] = { 16, 64 };
    gdn_plan *plan = NULL;
    struct gdni_tuning_entry entries[2];
    const gdn_target target = fake_h200(ctx);
    gdn_prefill_desc d = fake_prefill_desc();
    d.max_tokens = 32768, d.max_seqs = 1000;
    struct gdni_problem problem;
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_problem_from_prefill(&problem, &d), GDN_OK);
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    for (int i = 0; i < 2; ++i) {
        entries[i] = tuning_prefill(3 + i, GDNI_ANY_SEQS);
        gdni_tuning_key_of(&entries[i].key, &problem, arch, (struct gdni_slot){ 3 + i, GDNI_ANY_SEQS });
        gdni_params_initial(&entries[i].params, GDNI_KERNEL_PREFILL_HOPPER);
        entries[i].params.deal_chunks = deal[i];
    }
    struct gdni_tuning_table table = tuning_table_of("NVIDIA H200", 132, entries, 2);
    cr_assert_eq(gdni_tuning_import(ctx->tuning, &table, false, NULL, NULL), GDN_OK, "%s", gdni_error_text());
    gdni_tuning_table_free(&table);
    cr_assert_eq(gdn_plan_prefill(ctx, &target, &d, 0, &plan), GDN_OK, "%s", gdn_last_error());
    const int a = plan->variant_of_bucket[3], b = plan->variant_of_bucket[4];
    cr_assert_neq(a, b);
    enum gdni_origin origin;
    struct gdni_program *of_a = gdni_modules_program(plan->modules, a, &origin);
    struct gdni_program *of_b = gdni_modules_program(plan->modules, b, &origin);
    cr_expect_eq(of_a, of_b);
    cr_expect_lt(fake->compiles, plan->num_variants);
    gdni_program_release(of_a);
    gdni_program_release(of_b);
    gdn_plan_destroy(plan);
}

/* ---- Crowds ---- */

static const struct {
    int64_t tokens, seqs;
} shapes[] = { { 256, 1 }, { 1024, 8 }, { 4096, 1 }, { 8192, 2 }, { 32768, 64 }, { 65536, 4 } };
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static void *make_all(void *first)
{
    for (size_t i = 0; i < NUM_SHAPES; ++i) {
        const size_t at = (*(const size_t *)first + i) % NUM_SHAPES;
        gdn_plan *plan = NULL;
        if (make(shapes[at].tokens, shapes[at].seqs, 0, &plan) != GDN_OK) return "failed";
        gdn_plan_destroy(plan);
    }
    return NULL;
}

/* Plans that share some of their programs, begun in as many orders as there are threads. */
Test(plan_programs, threads_that_want_some_of_the_same_programs_all_get_them)
{
    enum { THREADS = 8, ROUNDS = 25 };
    pthread_t threads[THREADS];
    size_t first[THREADS];
    int once = 0;
    fake->delay_ms = 1;
    for (int round = 0; round < ROUNDS; ++round) {
        fake->compiles = 0;
        for (size_t i = 0; i < THREADS; ++i) {
            first[i] = i + (size_t)round;
            cr_assert_eq(pthread_create(&threads[i], NULL, make_all, &first[i]), 0);
        }
        for (int i = 0; i < THREADS; ++i) {
            void *failure = NULL;
            pthread_join(threads[i], &failure);
            cr_assert_null(failure, "round %d", round);
        }
        if (!once) once = fake->compiles;
        cr_assert_eq(fake->compiles, once, "round %d: %d compiles, not %d", round, (int)fake->compiles, once);
        gdn_ctx_destroy(ctx);
        open_ctx();
    }
    cr_expect_geq(once, 4);
}

/* ---- Failures ---- */

Test(plan_programs, a_compile_that_fails_leaves_nothing_half_begun)
{
    gdn_plan *plan = NULL;
    fake->result = 6;
    cr_assert_eq(make(32768, 64, 0, &plan), GDN_E_COMPILE);
    cr_expect_null(plan);
    cr_expect(fake_error_says("key ") && fake_error_says("could not compile"), "%s", gdn_last_error());
    fake->result = 0;
    fake->compiles = 0;
    cr_assert_eq(make(32768, 64, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(expect_programs(plan), fake->compiles);
    gdn_plan_destroy(plan);
}

/* On dir, and with a guard whose lock file is in it. */
static gdn_ctx *open_guarded(const char *dir, int32_t wait_ms)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *made = NULL;
    setenv("XDG_RUNTIME_DIR", dir, 1);
    cfg.cache_dir = dir;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.compile_wait_ms = wait_ms;
    cr_assert_eq(gdn_ctx_create(&made, &cfg), GDN_OK, "%s", gdn_last_error());
    return made;
}

/* As if a process that has every turn was stopped: a plan of many kernels waits for it as long as one of one kernel. */
Test(plan_programs, a_plan_waits_once_for_who_takes_too_long)
{
    enum { WAIT_MS = 400 };
    char *dir = store_scratch();
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    gdn_plan *plan = NULL;
    mkdir(store_path(dir, "gdn-jit"), 0700);
    const int other = open(store_path(dir, "gdn-jit/compile.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(fcntl(other, F_OFD_SETLK, &all), 0);
    gdn_ctx_destroy(ctx);
    ctx = open_guarded(dir, WAIT_MS);
    const int64_t start = gdni_now_ms();
    cr_assert_eq(make(32768, 64, 0, &plan), GDN_OK, "%s", gdn_last_error());
    const int64_t took = gdni_now_ms() - start;
    cr_expect_geq(fake->compiles, 3);
    cr_expect(took >= WAIT_MS && took < 5 * WAIT_MS / 2, "%d kernels: waited %d ms", fake->compiles, (int)took);
    gdn_plan_destroy(plan);
    close(other);
    store_remove(dir);
}

Test(plan_programs, who_may_not_compile_starts_nothing)
{
    gdn_plan *plan = NULL;
    cr_assert_eq(make(32768, 64, GDN_PLAN_CACHED_ONLY, &plan), GDN_E_NOT_CACHED);
    cr_expect(fake_error_says("GDN_PLAN_CACHED_ONLY"), "%s", gdn_last_error());
    cr_expect_eq(fake->compiles, 0);
}
