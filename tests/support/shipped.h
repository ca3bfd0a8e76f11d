/*
 * shipped.h - the measured tables that are built in. From a change of the parameter space until they are measured anew they
 * are of the space before, and the library sets them aside with a warning in every context. Tests that are about something
 * else look past it; tests that read the tables skip.
 */
#ifndef TEST_SHIPPED_H
#define TEST_SHIPPED_H

#include <stdbool.h>

/* The sentence says that a table is of another space than this version's; the message, that a built-in one is. */
bool shipped_says_stale(const char *sentence);
bool shipped_is_stale_warning(const char *message);

#endif
