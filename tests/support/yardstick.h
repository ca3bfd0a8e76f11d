/*
 * yardstick.h - what the machine makes of a compile that never changes (tests/data/yardstick.cu), beside one that is timed: a
 * neighbour on the same core or cache makes both longer, and more so what is long.
 */
#ifndef GDN_TEST_YARDSTICK_H
#define GDN_TEST_YARDSTICK_H

#include "runtime/nvrtc.h"

/* What it takes on a quiet core of the machine that bounds on compile times were measured on, by NVRTC 13.0. */
enum { YARDSTICK_MS = 1000 };

/* CPU time that it takes now, in ms. A failure is the test's. */
double yardstick_ms(struct gdni_nvrtc *nvrtc);

#endif
