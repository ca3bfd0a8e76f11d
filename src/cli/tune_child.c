/*
 * tune_child.c - owns a worker process: starting it, asking it, losing it. Must not know: what is asked.
 *
 * posix_spawn of this very program, since a fork would take along what the parent's other threads hold. Everything that is
 * read comes from a process that may die in the middle of a line.
 */
#include "cli/tune_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MAX_LINE = 1 << 16 };

struct cli_child {
    char **argv;
    int64_t silence_ms;
    pid_t pid; /* 0: none */
    int to, from;
    int answers;
    size_t len; /* of what was read and is not a whole line yet */
    char line[MAX_LINE];
};

struct cli_child *cli_child_new(int argc, char **argv, int64_t silence_s)
{
    struct cli_child *c = cli_alloc(sizeof *c);
    memset(c, 0, sizeof *c);
    c->silence_ms = silence_s * 1000;
    c->argv = cli_alloc((size_t)(argc + 3) * sizeof *c->argv);
    int n = 0;
    c->argv[n++] = cli_strdup("gdn-jit-cache");
    c->argv[n++] = cli_strdup("tune");
    c->argv[n++] = cli_strdup("--worker"); /* first: behind a "--" it would be no option */
    for (int i = 1; i < argc; ++i)
        c->argv[n++] = cli_strdup(argv[i]);
    c->argv[n] = NULL;
    signal(SIGPIPE, SIG_IGN); /* a worker that died is an answer, not this process's end */
    return c;
}

/* Waits for the end of a process that was told to: a GPU that hangs can hold it in the kernel for a while. false: it lives. */
static bool reap(pid_t pid, int64_t patience_ms)
{
    const struct timespec little = { 0, 5000000 };
    const int64_t start = cli_now_ms();
    pid_t gone;
    while ((gone = waitpid(pid, NULL, WNOHANG)) == 0 && cli_now_ms() - start < patience_ms)
        nanosleep(&little, NULL);
    return gone != 0;
}

static void stop(struct cli_child *c, bool kindly)
{
    enum { PATIENCE_MS = 15000, KIND_MS = 3000 };
    if (!c->pid) return;
    close(c->to);
    if (!kindly || !reap(c->pid, KIND_MS)) {
        kill(c->pid, SIGKILL);
        reap(c->pid, PATIENCE_MS);
    }
    close(c->from);
    c->pid = 0;
    c->len = 0;
    c->answers = 0;
}

void cli_child_restart(struct cli_child *child)
{
    stop(child, true);
}

int cli_child_answers(const struct cli_child *child)
{
    return child->pid ? child->answers : 0;
}

void cli_child_free(struct cli_child *child)
{
    stop(child, true);
    for (int i = 0; child->argv[i]; ++i)
        cli_free(child->argv[i]);
    cli_free(child->argv);
    cli_free(child);
}

static int spawn(struct cli_child *c, const int in[2], const int out[2])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE); /* which this process ignores */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const int err = posix_spawn(&c->pid, "/proc/self/exe", &actions, &attributes, c->argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return err;
}

static int start(struct cli_child *c)
{
    int in[2], out[2];
    if (c->pid) return CLI_OK;
    if (pipe2(in, O_CLOEXEC) != 0) return cli_fail(CLI_FAILED, "no pipe for a worker: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return cli_fail(CLI_FAILED, "no pipe for a worker: %s", strerror(errno));
    }
    const int err = spawn(c, in, out);
    close(in[0]);
    close(out[1]);
    c->to = in[1];
    c->from = out[0];
    if (!err) return CLI_OK;
    c->pid = 0;
    close(c->to);
    close(c->from);
    return cli_fail(CLI_FAILED, "no process for a worker: %s", strerror(err));
}

static bool write_line(struct cli_child *c, cJSON *request)
{
    char *text = cJSON_PrintUnformatted(request);
    const size_t len = text ? strlen(text) : 0;
    bool sent = len > 0;
    for (size_t at = 0; sent && at <= len;) {
        const ssize_t n = at < len ? write(c->to, text + at, len - at) : write(c->to, "\n", 1);
        if (n > 0)
            at += (size_t)n;
        else
            sent = n < 0 && errno == EINTR;
    }
    cJSON_free(text);
    return sent;
}

/* More bytes of the worker; false: it is gone, or silent for too long. */
static bool read_more(struct cli_child *c, bool *silent)
{
    struct pollfd fd = { c->from, POLLIN, 0 };
    const int ready = poll(&fd, 1, (int)c->silence_ms);
    if (ready < 0 && errno == EINTR) return true;
    *silent = ready == 0;
    if (ready <= 0 || c->len == MAX_LINE) return false;
    const ssize_t n = read(c->from, c->line + c->len, MAX_LINE - c->len);
    if (n > 0) c->len += (size_t)n;
    return n > 0 || (n < 0 && errno == EINTR);
}

/* The first whole line that was read, as JSON; NULL: there is none yet. What is no JSON is passed over. */
static cJSON *take_line(struct cli_child *c)
{
    for (char *end; (end = memchr(c->line, '\n', c->len));) {
        const size_t used = (size_t)(end - c->line) + 1;
        *end = '\0';
        cJSON *line = cJSON_Parse(c->line);
        memmove(c->line, c->line + used, c->len - used);
        c->len -= used;
        if (line) return line;
    }
    return NULL;
}

static bool is_answer(const cJSON *line)
{
    return cJSON_GetObjectItemCaseSensitive(line, "status") && !cJSON_GetObjectItemCaseSensitive(line, "failed");
}

static enum cli_child_end listen(struct cli_child *c, cli_child_fn fn, void *user)
{
    bool silent = false;
    for (;;) {
        cJSON *line = take_line(c);
        if (!line) {
            if (!read_more(c, &silent)) return silent ? CLI_CHILD_SILENT : CLI_CHILD_DIED;
            continue;
        }
        const bool last = is_answer(line), go_on = fn(user, line) == CLI_OK;
        cJSON_Delete(line);
        if (last) return CLI_CHILD_ANSWERED;
        if (!go_on) return CLI_CHILD_STOPPED;
    }
}

int cli_child_ask(struct cli_child *child, cJSON *request, cli_child_fn fn, void *user, enum cli_child_end *end)
{
    *end = CLI_CHILD_DIED;
    const int code = start(child);
    if (code == CLI_OK && write_line(child, request)) *end = listen(child, fn, user);
    cJSON_Delete(request);
    if (code != CLI_OK) return code;
    if (*end == CLI_CHILD_ANSWERED)
        ++child->answers;
    else
        stop(child, false);
    return CLI_OK;
}
