/*
 * brief.h - how much of a long sweep is walked: with GDN_TEST_BRIEF=N, for a second compiler or a sanitizer, every Nth.
 */
#ifndef TEST_BRIEF_H
#define TEST_BRIEF_H

/* From one to the next that is walked. */
int brief_step(void);

#endif
