/*
 * clock.c - see clock.h. No state, any thread.
 */
#include "runtime/clock.h"

#include <time.h>

int64_t gdni_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t gdni_now_ms(void)
{
    return gdni_now_us() / 1000;
}
