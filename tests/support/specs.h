/*
 * specs.h - specs for tests: descriptors with defaults filled in, taken through the same functions as a plan.
 */
#ifndef GDN_TEST_SPECS_H
#define GDN_TEST_SPECS_H

#include "codegen/spec.h"

/* 16 q and k heads, 32 v heads of 128, bf16, up to 32768 tokens of 8 sequences. */
gdn_prefill_desc test_prefill_desc(void);
/* The same layer's conv1d-QKV: width 4, SiLU, no bias. */
gdn_conv1d_desc test_conv1d_desc(void);

/* With heuristic parameters of a bucket. Failures abort the test with their sentence. */
struct gdni_spec test_prefill_spec(const gdn_prefill_desc *desc, const char *arch, int bucket);
struct gdni_spec test_conv1d_spec(const gdn_conv1d_desc *desc, const char *arch, int bucket);

#endif
