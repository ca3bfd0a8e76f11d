/*
 * tuning_cases.h - measured tables whose numbers are invented for tests, and their texts.
 */
#ifndef TEST_TUNING_CASES_H
#define TEST_TUNING_CASES_H

#include "runtime/tuning.h"

/* Of test_prefill_desc() and test_conv1d_desc() (specs.h), on sm_90a; at the heuristic's kind of values. */
struct gdni_tuning_entry tuning_prefill(int bucket, int seq_class); /* few sequences: gdn_prefill_split; any: generic */
struct gdni_tuning_entry tuning_conv(int bucket);

/* An empty table; entries are appended, then gdni_tuning_table_sort() and, at the end, gdni_tuning_table_free(). */
struct gdni_tuning_table tuning_table(const char *gpu_name, int32_t num_sms);
void tuning_add(struct gdni_tuning_table *table, const struct gdni_tuning_entry *entry);

/* A table of one GPU and these entries. */
struct gdni_tuning_table tuning_table_of(const char *gpu_name, int32_t num_sms, const struct gdni_tuning_entry *entries,
                                         size_t count);

/* For free(). */
char *tuning_text(const struct gdni_tuning_table *table);

/* The text with its first `from` replaced; for free(). Ends the program when there is no `from`. */
char *tuning_with(const char *text, const char *from, const char *to);

/* As many entries as shipped tables may have: every slot of `shapes` shapes, prefill and conv. */
struct gdni_tuning_table tuning_large(int shapes);

#endif
