/*
 * brief.h - how much of a long sweep is walked: with GDN_TEST_BRIEF=1, for a second compiler or a sanitizer, every third.
 */
#ifndef TEST_BRIEF_H
#define TEST_BRIEF_H

/* From one to the next that is walked: 1, or 3. */
int brief_step(void);

#endif
