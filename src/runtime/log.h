/*
 * log.h - messages to the embedder's callback. The library itself never prints.
 */
#ifndef GDNI_LOG_H
#define GDNI_LOG_H

#include "gdn_jit/gdn_jit.h"

struct gdni_log {
    gdn_log_fn fn; /* NULL: silent */
    void *user;
    int level;
};

void gdni_log(const struct gdni_log *log, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
