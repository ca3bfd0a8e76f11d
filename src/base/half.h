/*
 * half.h - 16-bit floating point on the host: bfloat16 and IEEE binary16, as raw bits.
 *
 * Every conversion to a narrower type rounds once, to nearest even; subnormals, infinities and signed zeros are kept,
 * a NaN stays a NaN (quiet, sign kept). Overflow gives infinity, as cvt.rn does on the device.
 */
#ifndef GDNI_HALF_H
#define GDNI_HALF_H

#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

/*
 * A value beside gdn_dtype, for buffers of doubles inside the library and its tests: never part of the public
 * interface.
 */
enum { GDNI_F64 = 4 };

float gdni_bf16_to_float(uint16_t bits);
float gdni_f16_to_float(uint16_t bits);

/* From double, so that a double result is rounded once; a float argument converts to double exactly. */
uint16_t gdni_bf16_from_double(double x);
uint16_t gdni_f16_from_double(double x);

/* Element `index` of a buffer of dtype (gdn_dtype or GDNI_F64). No alignment is needed. */
double gdni_load(int32_t dtype, const void *base, int64_t index);
void gdni_store(int32_t dtype, void *base, int64_t index, double x);

/* Elements first .. first + count - 1. */
void gdni_load_row(int32_t dtype, const void *base, int64_t first, int64_t count, double *out);
void gdni_store_row(int32_t dtype, void *base, int64_t first, int64_t count, const double *in);

#endif
