/*
 * division.h - a division by a number that the host knows, as kernels do it: a multiplication and a shift.
 */
#ifndef GDNI_DIVISION_H
#define GDNI_DIVISION_H

#include <stdint.h>

struct gdni_division {
    int32_t magic, shift;
};

/*
 * a / divisor is a * magic >> shift, magic unsigned, exact for a below 2^31 and a divisor from 1 to 2^31 - 1 (Granlund and
 * Montgomery, "Division by invariant integers using multiplication", 1994).
 */
static inline struct gdni_division gdni_division(int32_t divisor)
{
    int bits = 0;
    while ((int64_t)1 << bits < divisor)
        ++bits;
    const uint64_t magic = (((uint64_t)1 << (31 + bits)) + (uint64_t)divisor - 1) / (uint64_t)divisor;
    return (struct gdni_division){ (int32_t)(uint32_t)magic, 31 + bits };
}

/* As kernels do it (`divided()` in gdn_sequence.cuh; conv1d_qkv.cu). */
static inline int32_t gdni_divided(int32_t a, int32_t magic, int32_t shift)
{
    return (int32_t)((uint64_t)(uint32_t)a * (uint32_t)magic >> shift);
}

#endif
