/*
 * first_size.h - how large each public struct was in its first version: what a caller's struct_size must be at least, however
 * its struct has grown since. Must not know: what structs are for.
 *
 * A struct grows at its end only. Its row here stays as it is; the library's own copy starts as its _INIT macro says, so that
 * members which an older caller does not have get their defaults.
 */
#ifndef GDNI_FIRST_SIZE_H
#define GDNI_FIRST_SIZE_H

#include "base/size_first.h"

#define GDNI_FIRST_SIZES(ROW)  \
    ROW(gdn_config, 104)       \
    ROW(gdn_target, 112)       \
    ROW(gdn_support, 328)      \
    ROW(gdn_prefill_desc, 88)  \
    ROW(gdn_prefill_args, 336) \
    ROW(gdn_conv1d_desc, 96)   \
    ROW(gdn_conv1d_args, 320)  \
    ROW(gdn_cost, 32)          \
    ROW(gdn_cache_stats, 72)   \
    ROW(gdn_cache_report, 72)  \
    ROW(gdn_prune_options, 40) \
    ROW(gdn_pack_options, 48)  \
    ROW(gdn_tune_options, 112) \
    ROW(gdn_tune_result, 712)  \
    ROW(gdn_tuning_report, 48) \
    ROW(gdn_doctor, 1296)

#define ROW(type, size) GDNI_FIRST_SIZE_OF_##type = size,
enum { GDNI_FIRST_SIZES(ROW) };
#undef ROW
#define ROW(type, size) _Static_assert(sizeof(type) >= size, "structs do not shrink");
GDNI_FIRST_SIZES(ROW)
#undef ROW

/* gdni_take_struct() and gdni_check_out() of a struct of this type, by its name and sizes. */
#define GDNI_TAKE_STRUCT(type, ours, theirs)                                                               \
    gdni_take_struct(1 ? (ours) : (type *)NULL, sizeof(type), 1 ? (theirs) : (const type *)NULL, #type, \
                     GDNI_FIRST_SIZE_OF_##type)
#define GDNI_CHECK_OUT(type, out) gdni_check_out(1 ? (out) : (type *)NULL, #type, GDNI_FIRST_SIZE_OF_##type)

#endif
