/*
 * say.c - owns standard error. Must not know: what is said. `lock` guards the progress line and the order of writes.
 */
#include "cli/say.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_WIDTH = 80 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char progress[256];

static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : DEFAULT_WIDTH;
}

/* A line as wide as the terminal would wrap, and \r would no longer come back to its beginning. */
static void draw(void)
{
    if (progress[0]) fprintf(stderr, "\r\033[K%.*s", terminal_width() - 1, progress);
    fflush(stderr);
}

static void erase(void)
{
    if (progress[0]) fputs("\r\033[K", stderr);
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    erase();
    fputs("gdn-jit-cache: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    draw();
    pthread_mutex_unlock(&lock);
    va_end(args);
}

void cli_progress(const char *line)
{
    if (!isatty(STDERR_FILENO)) return;
    pthread_mutex_lock(&lock);
    erase();
    snprintf(progress, sizeof progress, "%s", line ? line : "");
    draw();
    pthread_mutex_unlock(&lock);
}
