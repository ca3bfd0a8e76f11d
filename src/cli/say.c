/*
 * say.c - owns standard error, and sentences on standard output. Must not know: what is said. `lock` guards the progress line
 * and the order of writes to standard error.
 */
#include "cli/say.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "text/printable.h"

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

/* A name, or a compiler's log, may have line ends: what follows one is set in, or it would look like another message. */
static void put_message(const char *text)
{
    fputs("gdn-jit-cache: ", stderr);
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
        fprintf(stderr, "%.*s\n    ", (int)(end - text), text);
    fprintf(stderr, "%s\n", text);
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = cli_format(format, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    erase();
    put_message(text);
    draw();
    pthread_mutex_unlock(&lock);
    cli_free(text);
}

void cli_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = cli_format(format, args);
    va_end(args);
    fputs(text, stdout);
    cli_free(text);
}

void cli_progress(const char *line)
{
    if (!isatty(STDERR_FILENO)) return;
    pthread_mutex_lock(&lock);
    erase();
    snprintf(progress, sizeof progress, "%s", line ? line : "");
    gdni_make_printable(progress);
    draw();
    pthread_mutex_unlock(&lock);
}
