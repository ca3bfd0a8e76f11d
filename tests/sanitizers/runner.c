/*
 * runner.c - runs the tests that criterion/criterion.h of this folder registered: each in a child process, one after another.
 * Must not know: any test. See there for why it exists.
 */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

static struct mini_test *tests, **tests_end = &tests;
static struct mini_suite *suites;
static int failed_checks; /* of this child; checks may come from any thread of a test */

void mini_add_test(struct mini_test *test)
{
    *tests_end = test;
    tests_end = &test->next;
}

void mini_add_suite(struct mini_suite *suite)
{
    suite->next = suites;
    suites = suite;
}

void mini_check(int holds, int fatal, const char *file, int line, const char *condition, const char *format, ...)
{
    if (holds) return;
    __atomic_fetch_add(&failed_checks, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: not so: %s:", file, line, condition);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    if (fatal) _Exit(1);
}

/* The test's own option, else its suite's. */
static struct mini_options options_of(const struct mini_test *test)
{
    struct mini_options options = test->options;
    for (const struct mini_suite *suite = suites; suite; suite = suite->next) {
        if (strcmp(suite->name, test->suite) != 0) continue;
        if (!options.init) options.init = suite->options.init;
        if (!options.fini) options.fini = suite->options.fini;
        if (options.timeout <= 0) options.timeout = suite->options.timeout;
        if (!options.signal) options.signal = suite->options.signal;
        if (!options.exit_code) options.exit_code = suite->options.exit_code;
    }
    return options;
}

static void run_child(const struct mini_test *test, const struct mini_options *options)
{
    if (options->timeout > 0) alarm((unsigned)ceil(options->timeout * 10)); /* a sanitizer slows down about tenfold */
    if (options->init) options->init();
    test->run();
    if (options->fini) options->fini();
    fflush(NULL);
    exit(failed_checks ? 1 : 0); /* through exit, which is where ThreadSanitizer reports */
}

static int passed(const struct mini_options *options, int status)
{
    if (options->signal) return WIFSIGNALED(status) && WTERMSIG(status) == options->signal;
    if (!WIFEXITED(status)) return 0;
    return WEXITSTATUS(status) == options->exit_code || WEXITSTATUS(status) == 77;
}

static int run_one(const struct mini_test *test)
{
    const struct mini_options options = options_of(test);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) run_child(test, &options);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("fork, waitpid");
        return 1;
    }
    if (passed(&options, status)) return 0;
    fprintf(stderr, "FAIL %s::%s: %s %d\n", test->suite, test->name, WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

int main(void)
{
    int ran = 0, failed = 0;
    for (const struct mini_test *test = tests; test; test = test->next, ++ran) failed += run_one(test);
    printf("%d tests, %d failed\n", ran, failed);
    return ran > 0 && failed == 0 ? 0 : 1;
}
