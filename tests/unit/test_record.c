/*
 * test_record.c - every plan that is asked for is one whole line of the recorded list, whoever else writes to it; and strict
 * mode's sentence has the command that puts what is missing into the cache.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "support/fake_host.h"
#include "support/store.h"

static char *scratch;
static char list[512];

static void set_up(void)
{
    scratch = store_scratch();
    snprintf(list, sizeof list, "%s/list.jsonl", scratch);
}

static void tear_down(void)
{
    store_remove(scratch);
    cr_assert(fake_no_leaks());
}

TestSuite(record, .init = set_up, .fini = tear_down);

static gdn_ctx *open_ctx(const char *path, uint32_t flags, struct store_log *log)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = "";
    cfg.flags = flags | GDN_CTX_NO_ENV;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cfg.record_path = path;
    cfg.log_fn = log ? store_log_fn : NULL;
    cfg.log_user = log;
    gdn_ctx *ctx = NULL;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    return ctx;
}

static gdn_status plan(gdn_ctx *ctx, const char *target_name, int64_t max_tokens, uint32_t flags, gdn_plan **out)
{
    gdn_target target = GDN_TARGET_INIT;
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.max_tokens = max_tokens;
    cr_assert_eq(gdn_target_from_name(ctx, target_name, &target), GDN_OK, "%s", gdn_last_error());
    return gdn_plan_conv1d_qkv(ctx, &target, &desc, flags, out);
}

static void make_plan(gdn_ctx *ctx, const char *target_name, int64_t max_tokens)
{
    gdn_plan *p = NULL;
    cr_assert_eq(plan(ctx, target_name, max_tokens, 0, &p), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(p);
}

/* ---- reading it back ---- */

struct line {
    int64_t schema, num_sms, plan_flags;
    const char *library, *gpu, *arch;
    const gdni_json *shape, *keys;
};

static gdni_json *read_line(const char *text, size_t len, struct line *out)
{
    gdni_json *root = NULL;
    *out = (struct line){ 0 };
    const struct gdni_json_field fields[] = {
        { "schema", GDNI_JSON_INT, true, &out->schema, 1, 1, NULL },
        { "library", GDNI_JSON_STRING, true, &out->library, 0, 0, NULL },
        { "gpu", GDNI_JSON_STRING, true, &out->gpu, 0, 0, NULL },
        { "arch", GDNI_JSON_STRING, true, &out->arch, 0, 0, NULL },
        { "num_sms", GDNI_JSON_INT, true, &out->num_sms, 1, 1000, NULL },
        { "plan_flags", GDNI_JSON_INT, true, &out->plan_flags, 0, UINT32_MAX, NULL },
        { "shape", GDNI_JSON_OBJECT, true, &out->shape, 0, 0, NULL },
        { "keys", GDNI_JSON_ARRAY, true, &out->keys, 0, 0, NULL },
    };
    cr_assert_eq(gdni_json_parse("line", text, len, &root), GDN_OK, "%s in: %.*s", gdn_last_error(), (int)len, text);
    cr_assert_eq(gdni_json_object("line", root, fields, sizeof fields / sizeof fields[0]), GDN_OK, "%s",
                 gdn_last_error());
    return root;
}

/* Whole lines; each must be one. */
static int count_lines(void)
{
    size_t size;
    char *text = store_read(list, &size);
    int count = 0;
    for (char *at = text; at < text + size; ++count) {
        struct line line;
        char *end = memchr(at, '\n', (size_t)(text + size - at));
        cr_assert_not_null(end, "a line without an end: %s", at);
        gdni_json_free(read_line(at, (size_t)(end - at), &line));
        at = end + 1;
    }
    free(text);
    return count;
}

Test(record, has_target_shape_and_every_key_of_the_plan)
{
    gdn_ctx *ctx = open_ctx(list, 0, NULL);
    gdn_plan *p = NULL;
    cr_assert_eq(plan(ctx, "NVIDIA H200", 1 << 20, GDN_PLAN_CACHED_ONLY, &p), GDN_E_NOT_CACHED);
    cr_assert_eq(plan(ctx, "NVIDIA H200", 1 << 20, 0, &p), GDN_OK, "%s", gdn_last_error());
    char *dump = fake_dump(p, GDN_DUMP_JSON);
    size_t size;
    char *text = store_read(list, &size);
    char *second = memchr(text, '\n', size);
    cr_assert_not_null(second);
    const size_t len = (size_t)(second - text);
    cr_assert_eq(size, 2 * (len + 1), "the plan that was not cached was not recorded as the other");
    cr_assert_eq(memcmp(text, second + 1, len), 0);
    struct line line;
    gdni_json *root = read_line(text, len, &line);
    cr_assert_str_eq(line.gpu, "NVIDIA H200");
    cr_assert_str_eq(line.arch, "sm_90a");
    cr_assert_eq(line.num_sms, 132);
    cr_assert_eq(line.plan_flags, 0);
    const char *key = NULL;
    const struct gdni_json_field field = { "keys", GDNI_JSON_STRING, true, &key, 0, 0, NULL };
    int keys = 0, variants = 0;
    for (const gdni_json *i = gdni_json_first(line.keys); i; i = gdni_json_next(i), ++keys) {
        cr_assert_eq(gdni_json_value("keys", i, &field), GDN_OK);
        cr_assert(strstr(dump, key), "key %s is not in %s", key, dump);
    }
    for (const char *at = dump; (at = strstr(at, "\"key\": ")); ++at) ++variants;
    cr_assert_eq(keys, variants);
    cr_assert_geq(keys, 1);
    gdni_json_free(root);
    free(text);
    free(dump);
    gdn_plan_destroy(p);
    gdn_ctx_destroy(ctx);
}

Test(record, nothing_is_recorded_unless_asked)
{
    setenv("GDN_JIT_RECORD", list, 1);
    gdn_ctx *ctx = open_ctx(NULL, 0, NULL); /* reads no environment */
    make_plan(ctx, "NVIDIA H200", 200);
    gdn_ctx_destroy(ctx);
    gdn_config cfg = GDN_CONFIG_INIT;
    cfg.cache_dir = cfg.record_path = ""; /* says no, whatever the environment says */
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    make_plan(ctx, "NVIDIA H200", 200);
    gdn_ctx_destroy(ctx);
    cr_assert_neq(access(list, F_OK), 0);
    cfg.record_path = NULL;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK);
    make_plan(ctx, "NVIDIA H200", 200);
    gdn_ctx_destroy(ctx);
    cr_assert_eq(count_lines(), 1);
}

Test(record, a_name_with_quotes_cannot_leave_its_quotes)
{
    gdn_ctx *ctx = open_ctx(list, 0, NULL);
    gdn_target target = GDN_TARGET_INIT;
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_plan *p = NULL;
    struct line line;
    size_t size;
    cr_assert_eq(gdn_target_from_name(ctx, "NVIDIA H200", &target), GDN_OK);
    snprintf(target.gpu_name, sizeof target.gpu_name, "x'; \"rm\\ -rf'");
    cr_assert_eq(gdn_plan_conv1d_qkv(ctx, &target, &desc, GDN_PLAN_CACHED_ONLY, &p), GDN_E_NOT_CACHED);
    char *text = store_read(list, &size);
    cr_assert_null(memchr(text, '\'', size), "%s", text);
    gdni_json *root = read_line(text, size, &line);
    cr_assert_str_eq(line.gpu, target.gpu_name);
    gdni_json_free(root);
    free(text);
    gdn_ctx_destroy(ctx);
}

/* ---- many writers ---- */

enum { THREADS = 4, PROCESSES = 4, PLANS = 10 };

static void *make_plans(void *data)
{
    for (int i = 0; i < PLANS; ++i) make_plan(data, i % 2 ? "NVIDIA H200" : "sm_80", 200 + i);
    return NULL;
}

static void run_process(void)
{
    pthread_t threads[THREADS];
    gdn_ctx *ctx = open_ctx(list, 0, NULL);
    for (int i = 0; i < THREADS; ++i) cr_assert_eq(pthread_create(&threads[i], NULL, make_plans, ctx), 0);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
    gdn_ctx_destroy(ctx);
}

Test(record, lines_of_threads_and_processes_do_not_mix)
{
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; ++i) {
        children[i] = fork();
        if (children[i] == 0) {
            run_process();
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; ++i) {
        int status = -1;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert_eq(status, 0);
    }
    cr_assert_eq(count_lines(), PROCESSES * THREADS * PLANS);
}

/* As a process runs that was started with its standard descriptors closed, and prints. */
Test(record, what_is_printed_to_a_closed_standard_descriptor_is_not_in_it)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; ++i) close(i);
        gdn_ctx *ctx = open_ctx(list, 0, NULL);
        for (int i = 0; i < 3; ++i)
            if (write(i, "noise\n", 6) < 0) continue;
        make_plan(ctx, "NVIDIA H200", 200);
        gdn_ctx_destroy(ctx);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(count_lines(), 1);
}

/* ---- bad places ---- */

Test(record, a_file_that_cannot_be_opened_is_one_warning)
{
    struct store_log log = { 0 };
    gdn_ctx *ctx = open_ctx(store_path(scratch, "no/such/folder"), 0, &log);
    cr_assert_eq(log.count[GDN_LOG_WARN], 1);
    cr_assert(strstr(log.last[GDN_LOG_WARN], "no/such/folder"), "%s", log.last[GDN_LOG_WARN]);
    make_plan(ctx, "NVIDIA H200", 200);
    cr_assert_eq(log.count[GDN_LOG_WARN], 1);
    gdn_ctx_destroy(ctx);
}

Test(record, a_full_disk_costs_lines_and_one_warning_but_no_plan)
{
    struct store_log log = { 0 };
    struct stat st;
    gdn_ctx *ctx = open_ctx(list, 0, &log);
    make_plan(ctx, "NVIDIA H200", 200);
    cr_assert_eq(stat(list, &st), 0);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    const struct rlimit tight = { (rlim_t)st.st_size + 10, limit.rlim_max };
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &tight), 0);
    make_plan(ctx, "NVIDIA H200", 200); /* ten bytes of it */
    make_plan(ctx, "NVIDIA H200", 200); /* nothing, and no signal */
    cr_assert_eq(log.count[GDN_LOG_WARN], 1, "%s", log.last[GDN_LOG_WARN]);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    make_plan(ctx, "NVIDIA H200", 200);
    gdn_ctx_destroy(ctx);
    size_t size;
    struct line line;
    char *text = store_read(list, &size);
    text[size] = '\0';
    char *last = text + st.st_size;
    last = strchr(last, '\n');
    cr_assert_not_null(last, "the line that was cut was not ended: %s", text);
    gdni_json_free(read_line(last + 1, strlen(last + 1), &line)); /* what follows it is whole */
    free(text);
}

Test(record, running_out_of_memory_costs_a_line_at_most)
{
    gdn_ctx *ctx = open_ctx(list, 0, NULL);
    make_plan(ctx, "NVIDIA H200", 200);
    gdn_status status = GDN_E_NOMEM;
    int failed = 0;
    for (int allowed = 0; status != GDN_OK && allowed < 500; ++allowed) {
        gdn_plan *p = NULL;
        gdni_mem_fail_after(allowed);
        status = plan(ctx, "NVIDIA H200", 200, 0, &p);
        gdni_mem_fail_after(-1);
        failed += status == GDN_E_NOMEM;
        cr_assert_eq(status == GDN_OK, p != NULL);
        gdn_plan_destroy(p);
    }
    cr_assert_eq(status, GDN_OK);
    cr_assert_gt(failed, 1);
    cr_assert_geq(count_lines(), 1);
    gdn_ctx_destroy(ctx);
}

/* A pipe whose reader has gone raises a signal that would end the process. */
Test(record, a_reader_that_goes_away_is_no_signal)
{
    char path[64];
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    gdn_ctx *ctx = open_ctx(path, 0, NULL);
    close(ends[0]);
    make_plan(ctx, "NVIDIA H200", 70000);
    gdn_ctx_destroy(ctx);
    close(ends[1]);
}

/* ---- strict mode ---- */

Test(record, strict_mode_gives_the_command_that_would_add_it)
{
    for (int by_plan = 0; by_plan < 2; ++by_plan) {
        gdn_ctx *ctx = open_ctx(list, by_plan ? 0 : GDN_CTX_NO_COMPILE, NULL);
        gdn_plan *p = NULL;
        unlink(list);
        gdn_ctx_destroy(ctx);
        ctx = open_ctx(list, by_plan ? 0 : GDN_CTX_NO_COMPILE, NULL);
        cr_assert_eq(plan(ctx, "NVIDIA H200", 70000, by_plan ? GDN_PLAN_CACHED_ONLY : 0, &p), GDN_E_NOT_CACHED);
        const char *sentence = gdn_last_error();
        cr_assert(strstr(sentence, by_plan ? "GDN_PLAN_CACHED_ONLY forbids" : "GDN_CTX_NO_COMPILE forbids"), "%s", sentence);
        const char *from = strstr(sentence, "echo '"),
                   *to = strstr(sentence, "' | gdn-jit-cache pack --from - --cache-dir CACHE --output BUNDLE");
        cr_assert(from && to && to > from, "%s", sentence);
        size_t size;
        char *text = store_read(list, &size); /* what is recorded is what the command says */
        cr_assert_eq((size_t)(to - from) - 6 + 1, size);
        cr_assert_eq(memcmp(text, from + 6, size - 1), 0, "%s", sentence);
        char key[33] = "";
        text[size] = '\0';
        strncpy(key, strstr(sentence, "key ") + 4, sizeof key - 1);
        cr_assert(strstr(strstr(text, "\"keys\""), key), "%s, which is missing, is not among the keys: %s", key, text);
        free(text);
        gdn_cache_stats stats = store_stats(ctx);
        cr_assert_eq(stats.compiles, 0u);
        gdn_ctx_destroy(ctx);
    }
}

/* By the context's own cache directory; past the variable that forbids it to the tool too. */
Test(record, the_command_warms_the_cache_that_the_context_has)
{
    char dir[64];
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    gdn_plan *p = NULL;
    fake_make_dir(dir);
    setenv("GDN_JIT_DISABLE_COMPILE", "1", 1);
    cfg.cache_dir = dir;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(plan(ctx, "NVIDIA H200", 70000, 0, &p), GDN_E_NOT_CACHED);
    cr_expect(strstr(gdn_last_error(), "' | GDN_JIT_DISABLE_COMPILE=0 gdn-jit-cache warm --from - --cache-dir '"), "%s",
              gdn_last_error());
    gdn_ctx_destroy(ctx);
    unsetenv("GDN_JIT_DISABLE_COMPILE");
    fake_remove_dir(dir);
}

/* There is nowhere to warm: what is wrong with the directory comes first, then what makes a bundle. */
Test(record, strict_mode_without_a_usable_cache_says_what_is_wrong_with_it)
{
    for (int by_plan = 0; by_plan < 2; ++by_plan) {
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        gdn_plan *p = NULL;
        cfg.cache_dir = "/dev/null/cache";
        cfg.flags = GDN_CTX_NO_ENV | (by_plan ? 0 : GDN_CTX_NO_COMPILE);
        cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
        cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
        cr_assert_eq(plan(ctx, "NVIDIA H200", 70000, by_plan ? GDN_PLAN_CACHED_ONLY : 0, &p), GDN_E_NOT_CACHED);
        const char *problem = strstr(gdn_last_error(), "kept in memory only: /dev/null/cache");
        cr_assert(problem, "%s", gdn_last_error());
        cr_expect(strstr(problem, ": echo '") && strstr(problem, "' | gdn-jit-cache pack --from - --cache-dir CACHE"), "%s",
                  gdn_last_error());
        gdn_ctx_destroy(ctx);
    }
}

/* Half of it in a shell would wait for a quote, or warm another directory. */
Test(record, a_command_that_a_sentence_cannot_hold_is_left_out_whole)
{
    static char deep[3900], strange[200];
    const char *const dirs[] = { deep, strange };
    snprintf(strange, sizeof strange, "%s/a\nb", scratch);
    int at = snprintf(deep, sizeof deep, "%s", scratch);
    for (; at + 202 < (int)sizeof deep; at += 201)
        snprintf(deep + at, 202, "/%0200d", 0);
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; ++i) {
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        gdn_plan *p = NULL;
        cfg.cache_dir = dirs[i];
        cfg.flags = GDN_CTX_NO_ENV | GDN_CTX_NO_COMPILE;
        cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
        cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
        cr_assert_str_eq(gdn_cache_dir(ctx), dirs[i]);
        cr_assert_eq(plan(ctx, "NVIDIA H200", 70000, 0, &p), GDN_E_NOT_CACHED);
        cr_expect(!strstr(gdn_last_error(), "echo '"), "%s", gdn_last_error());
        cr_expect(strstr(gdn_last_error(), " (the command for it is left out: "), "%s", gdn_last_error());
        cr_expect(strstr(gdn_last_error(), "warm --from)"), "%s", gdn_last_error());
        gdn_ctx_destroy(ctx);
    }
}

/* No environment leads the tool there. */
Test(record, the_command_names_a_cache_that_the_config_named)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    gdn_plan *p = NULL;
    char want[4200];
    cfg.cache_dir = store_path(scratch, "it's");
    cfg.flags = GDN_CTX_NO_ENV | GDN_CTX_NO_COMPILE | GDN_CTX_SHARED_CACHE;
    cfg.nvrtc_path = GDN_FAKE_NVRTC_PATH;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(plan(ctx, "NVIDIA H200", 70000, 0, &p), GDN_E_NOT_CACHED);
    snprintf(want, sizeof want, "warm --from - --shared-cache --cache-dir '%s/it'\\''s'", scratch);
    cr_expect(strstr(gdn_last_error(), want), "no %s in: %s", want, gdn_last_error());
    gdn_ctx_destroy(ctx);
    cr_assert_eq(chdir(scratch), 0); /* the command is for whatever folder a shell is in */
    cfg.cache_dir = "it's";
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(plan(ctx, "NVIDIA H200", 70000, 0, &p), GDN_E_NOT_CACHED);
    cr_expect(strstr(gdn_last_error(), want), "no %s in: %s", want, gdn_last_error());
    gdn_ctx_destroy(ctx);
}
