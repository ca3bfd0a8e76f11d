/*
 * planted_faults.c - what runner.c and ThreadSanitizer have to see: of these five tests, one passes. Run by ctest, which looks
 * for exactly that count.
 */
#include <criterion/criterion.h>
#include <pthread.h>

static int counter; /* on purpose without a lock */
static int ready;

static void get_ready(void)
{
    ready = 1;
}

static void *count(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; ++i) ++counter;
    return NULL;
}

TestSuite(planted, .init = get_ready);

Test(planted, data_race_fails)
{
    pthread_t first, second;
    cr_assert_eq(pthread_create(&first, NULL, count, NULL), 0);
    cr_assert_eq(pthread_create(&second, NULL, count, NULL), 0);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
}

Test(planted, checks_that_hold_pass)
{
    cr_assert_eq(ready, 1, "the suite's init ran before: %d", ready);
    cr_expect_str_eq("a", "a");
}

Test(planted, checks_that_do_not_hold_fail)
{
    cr_expect_eq(1, 2, "value %d", 3);
}

Test(planted, hanging_fails, .timeout = 0.1)
{
    for (volatile int forever = 1; forever;) {}
}

Test(planted, crashing_fails)
{
    abort();
}
