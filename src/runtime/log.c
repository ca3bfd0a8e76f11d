/*
 * log.c - owns how a message reaches the embedder's callback. Must not know: who logs, where the callback writes.
 * No lock: struct gdni_log is read-only once the context is made.
 */
#include "runtime/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "text/printable.h"

enum { MESSAGE_MAX = 2048 };

void gdni_log(const struct gdni_log *log, int level, const char *format, ...)
{
    if (!log || !log->fn || level > log->level) return;
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    gdni_make_one_line(message);
    log->fn(log->user, level, message);
}
