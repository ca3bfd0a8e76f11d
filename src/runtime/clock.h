/*
 * clock.h - time that only goes forward, whatever is set. Must not know: dates.
 */
#ifndef GDNI_CLOCK_H
#define GDNI_CLOCK_H

#include <stdint.h>

int64_t gdni_now_us(void);
int64_t gdni_now_ms(void);

#endif
