/*
 * criterion.h - as much of Criterion as the tests use, for ThreadSanitizer, in whose address space Criterion cannot start (it
 * maps its arena at addresses that ThreadSanitizer keeps for itself). Tests are compiled unchanged against this header and run
 * by runner.c, each in a process of its own. A macro that is missing here is a compile error, never a check left out.
 */
#ifndef GDN_TEST_CRITERION_H
#define GDN_TEST_CRITERION_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mini_options {
    int first_; /* so that an empty list of options is a legal initialiser */
    void (*init)(void);
    void (*fini)(void);
    double timeout; /* seconds; 0: none */
    int signal, exit_code;
    const char *description;
};

struct mini_test {
    const char *suite, *name;
    void (*run)(void);
    struct mini_options options;
    struct mini_test *next;
};

struct mini_suite {
    const char *name;
    struct mini_options options;
    struct mini_suite *next;
};

void mini_add_test(struct mini_test *test);
void mini_add_suite(struct mini_suite *suite);
void mini_check(int holds, int fatal, const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#define Test(suite_, name_, ...)                                                                                       \
    static void suite_##_##name_##_run(void);                                                                          \
    static struct mini_test suite_##_##name_##_test = { #suite_, #name_, suite_##_##name_##_run, { 0, __VA_ARGS__ },   \
                                                        NULL };                                                        \
    static void __attribute__((constructor)) suite_##_##name_##_add(void)                                              \
    {                                                                                                                  \
        mini_add_test(&suite_##_##name_##_test);                                                                       \
    }                                                                                                                  \
    static void suite_##_##name_##_run(void)

#define TestSuite(suite_, ...)                                                                                         \
    static struct mini_suite suite_##_suite = { #suite_, { 0, __VA_ARGS__ }, NULL };                                   \
    static void __attribute__((constructor)) suite_##_suite_add(void)                                                  \
    {                                                                                                                  \
        mini_add_suite(&suite_##_suite);                                                                               \
    }                                                                                                                  \
    typedef int suite_##_suite_ends_at_a_semicolon

#define MINI_CHECK(fatal, condition, text, ...)                                                                        \
    mini_check((condition) ? 1 : 0, fatal, __FILE__, __LINE__, text, " " __VA_ARGS__)
#define MINI_STR(a, op, b) (strcmp((a), (b)) op 0)
#define MINI_NEAR(a, b, epsilon) (fabs((double)(a) - (double)(b)) <= (double)(epsilon))

#define cr_assert(condition, ...) MINI_CHECK(1, condition, #condition, __VA_ARGS__)
#define cr_assert_not(condition, ...) MINI_CHECK(1, !(condition), "!(" #condition ")", __VA_ARGS__)
#define cr_assert_fail(...) MINI_CHECK(1, 0, "reached", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) MINI_CHECK(1, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) MINI_CHECK(1, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) MINI_CHECK(1, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) MINI_CHECK(1, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) MINI_CHECK(1, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) MINI_CHECK(1, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_null(a, ...) MINI_CHECK(1, (a) == NULL, #a " == NULL", __VA_ARGS__)
#define cr_assert_not_null(a, ...) MINI_CHECK(1, (a) != NULL, #a " != NULL", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) MINI_CHECK(1, MINI_STR(a, ==, b), #a " is " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) MINI_CHECK(1, MINI_STR(a, !=, b), #a " is not " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) MINI_CHECK(1, memcmp(a, b, size) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_arr_neq(a, b, size, ...) MINI_CHECK(1, memcmp(a, b, size) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, epsilon, ...) MINI_CHECK(1, MINI_NEAR(a, b, epsilon), #a " is near " #b, __VA_ARGS__)

#define cr_expect(condition, ...) MINI_CHECK(0, condition, #condition, __VA_ARGS__)
#define cr_expect_not(condition, ...) MINI_CHECK(0, !(condition), "!(" #condition ")", __VA_ARGS__)
#define cr_expect_fail(...) MINI_CHECK(0, 0, "reached", __VA_ARGS__)
#define cr_expect_eq(a, b, ...) MINI_CHECK(0, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) MINI_CHECK(0, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) MINI_CHECK(0, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) MINI_CHECK(0, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) MINI_CHECK(0, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) MINI_CHECK(0, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_null(a, ...) MINI_CHECK(0, (a) == NULL, #a " == NULL", __VA_ARGS__)
#define cr_expect_not_null(a, ...) MINI_CHECK(0, (a) != NULL, #a " != NULL", __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) MINI_CHECK(0, MINI_STR(a, ==, b), #a " is " #b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) MINI_CHECK(0, MINI_STR(a, !=, b), #a " is not " #b, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, size, ...) MINI_CHECK(0, memcmp(a, b, size) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_expect_arr_neq(a, b, size, ...) MINI_CHECK(0, memcmp(a, b, size) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, epsilon, ...) MINI_CHECK(0, MINI_NEAR(a, b, epsilon), #a " is near " #b, __VA_ARGS__)

/* Status 77 is ctest's "skipped", and here a test's. */
#define cr_skip_test(...) (printf("SKIP " __VA_ARGS__), puts(""), fflush(stdout), _Exit(77))

#define cr_log_info(...) (printf(__VA_ARGS__), puts(""))
#define cr_log_warn(...) (printf(__VA_ARGS__), puts(""))
#define cr_log_error(...) (printf(__VA_ARGS__), puts(""))

#endif
