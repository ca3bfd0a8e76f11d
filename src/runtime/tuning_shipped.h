/*
 * tuning_shipped.h - the measured tables that are built in: every tuning/<arch>/<gpu>.json, by cmake/EmbedFiles.cmake.
 */
#ifndef GDNI_TUNING_SHIPPED_H
#define GDNI_TUNING_SHIPPED_H

#include <stddef.h>

struct gdni_shipped_table {
    const char *name, *text; /* file name without its folder; its bytes */
    size_t len;
};
extern const struct gdni_shipped_table gdni_shipped_tables[];
extern const size_t gdni_num_shipped_tables;

#endif
