/*
 * known_code.h - whether what was measured was a kernel as it is here.
 */
#ifndef GDNI_KNOWN_CODE_H
#define GDNI_KNOWN_CODE_H

#include <stdbool.h>

#include "codegen/code.h"

/* code: gdni_kernel_code_hash() at the time. Worked out once a process for each kernel. From any thread. */
bool gdni_kernel_code_is(enum gdni_kernel kernel, const char *code);

#endif
