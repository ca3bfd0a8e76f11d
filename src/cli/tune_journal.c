/*
 * tune_journal.c - owns the journal's lines, in the file and in memory, and its lock. Must not know: jobs, processes.
 */
#include "cli/tune_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/json.h"
#include "cli/say.h"

static const struct gdni_json_word words[] = {
    { "run", CLI_JOURNAL_RUN },       { "try", CLI_JOURNAL_TRY },
    { "race", CLI_JOURNAL_RACE },     { "ok", CLI_JOURNAL_OK },
    { "failed", CLI_JOURNAL_FAILED }, { "done", CLI_JOURNAL_DONE },
    { "end", CLI_JOURNAL_END },       { NULL, 0 },
};

struct line {
    int what;
    char *of, *params;
    bool suspect; /* a TRY that a run ended with */
};

struct cli_journal {
    char *path;
    int fd;    /* -1: it cannot be opened */
    bool mute; /* it could not be written */
    struct line *lines;
    size_t count;
};

static void keep(struct cli_journal *j, int what, const char *of, const char *params)
{
    j->lines = cli_realloc(j->lines, (j->count + 1) * sizeof *j->lines);
    j->lines[j->count++] = (struct line){ what, cli_strdup(of), cli_strdup(params ? params : ""), false };
}

static void read_line(struct cli_journal *j, const char *text)
{
    cJSON *object = cJSON_Parse(text);
    int what;
    const char *word = cli_json_text(object, "what");
    if (object && cli_word_find(words, word, strlen(word), &what))
        keep(j, what, cli_json_text(object, "of"), cli_json_text(object, "params"));
    cJSON_Delete(object);
}

static void forget(struct cli_journal *j)
{
    for (size_t i = 0; i < j->count; ++i) {
        cli_free(j->lines[i].of);
        cli_free(j->lines[i].params);
    }
    cli_free(j->lines);
    j->lines = NULL;
    j->count = 0;
}

/* The version stands beside the GPU: what another library found out of its kernels says nothing of these. */
static char *run_name(const char *gpu)
{
    char *name = cli_alloc(strlen(gpu) + 32);
    sprintf(name, "%s, libgdnjit %u", gpu, gdn_version());
    return name;
}

/* The last TRY of a run that neither ended nor got any further. */
static void find_suspects(struct cli_journal *j)
{
    struct line *last = NULL;
    for (size_t i = 0; i <= j->count; ++i) {
        const bool over = i == j->count || j->lines[i].what == CLI_JOURNAL_RUN;
        if (over && last) last->suspect = true;
        last = i < j->count && j->lines[i].what == CLI_JOURNAL_TRY ? &j->lines[i] : NULL;
    }
}

static bool is_of_run(const struct cli_journal *j, const char *run)
{
    return j->count && j->lines[0].what == CLI_JOURNAL_RUN && strcmp(j->lines[0].of, run) == 0;
}

/* ---- One tuner a file ---- */

/* The file that the name stands for now: a tuner that ended may have taken away the one that was opened. */
static bool is_named(const struct cli_journal *j)
{
    struct stat opened, named;
    return fstat(j->fd, &opened) == 0 && stat(j->path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

/* The lock belongs to the open file and ends with it, so that a tuner that is killed holds nobody up. */
static int lock(const struct cli_journal *j)
{
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return fcntl(j->fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

static void warn(const struct cli_journal *j, const char *problem)
{
    cli_say("warning: %s cannot be written (%s): a run that is killed begins anew", j->path, problem);
}

/* What has the name may be somebody's: it is not followed, waited for or emptied. */
static int check_file(const struct cli_journal *j, const char *tuning_file)
{
    struct stat st;
    if ((j->fd < 0 ? lstat(j->path, &st) : fstat(j->fd, &st)) != 0 || S_ISREG(st.st_mode)) return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "%s, where the journal of --file goes, is no regular file: take it away, or name another FILE than %s",
                    j->path, tuning_file);
}

/* Two tuners of one file would each write it without what the other decided. */
static int open_alone(struct cli_journal *j, const char *tuning_file)
{
    int err;
    do {
        if (j->fd >= 0) close(j->fd);
        j->fd = open(j->path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
        const int error = errno;
        CLI_TRY(check_file(j, tuning_file));
        if (j->fd < 0) {
            warn(j, strerror(error));
            return CLI_OK;
        }
        err = lock(j);
    } while (!err && !is_named(j));
    if (err == EAGAIN || err == EACCES)
        return cli_fail(CLI_FAILED,
                        "--file %s is being tuned by another process, which has locked %s: wait for it, or name "
                        "another FILE",
                        tuning_file, j->path);
    if (err) cli_say("warning: %s cannot be locked (%s): run no other tune on this file", j->path, strerror(err));
    return CLI_OK;
}

/* ---- The file ---- */

/* It begins as the first line of one does, of which a run that was killed may have written a part, or nothing. */
static bool is_journal(const char *text, size_t len)
{
    static const char beginning[] = "{\"what\":\"run\",";
    const size_t most = sizeof beginning - 1;
    return memcmp(text, beginning, len < most ? len : most) == 0;
}

static int read_file(struct cli_journal *j, const char *tuning_file)
{
    enum { MOST = 64 << 20 };
    char *text = NULL;
    size_t len = 0;
    if (access(j->path, F_OK) != 0) return CLI_OK;
    CLI_TRY(cli_file_read(j->path, MOST, &text, &len));
    if (!is_journal(text, len)) {
        cli_free(text);
        return cli_fail(CLI_USAGE,
                        "%s, where the journal of --file goes, is none and would be emptied: take it away, or name another "
                        "FILE than %s",
                        j->path, tuning_file);
    }
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        read_line(j, line);
    }
    cli_free(text);
    return CLI_OK;
}

/* A journal that says nothing of this GPU and library is emptied. */
static void begin(struct cli_journal *j, const char *run)
{
    const bool goes_on = is_of_run(j, run);
    if (!goes_on) forget(j);
    find_suspects(j);
    if (!goes_on && j->fd >= 0 && ftruncate(j->fd, 0) != 0) warn(j, strerror(errno));
    cli_journal_add(j, CLI_JOURNAL_RUN, run, NULL, NULL);
}

static void let_go(struct cli_journal *j)
{
    if (j->fd >= 0) close(j->fd);
    forget(j);
    cli_free(j->path);
    cli_free(j);
}

int cli_journal_open(struct cli_journal **out, const char *tuning_file, const char *gpu)
{
    struct cli_journal *j = cli_alloc(sizeof *j);
    char *run = run_name(gpu);
    *j = (struct cli_journal){ .path = cli_alloc(strlen(tuning_file) + sizeof ".journal"), .fd = -1 };
    sprintf(j->path, "%s.journal", tuning_file);
    int code = open_alone(j, tuning_file);
    if (code == CLI_OK) code = read_file(j, tuning_file);
    if (code == CLI_OK) begin(j, run);
    cli_free(run);
    if (code != CLI_OK) let_go(j);
    *out = code == CLI_OK ? j : NULL;
    return code;
}

void cli_journal_close(struct cli_journal *j, bool finished)
{
    if (!j) return;
    cli_journal_add(j, CLI_JOURNAL_END, "", NULL, NULL);
    if (finished) unlink(j->path); /* while it is locked: else it may be another tuner's */
    let_go(j);
}

/* NULL, or why not all of it is there. */
static const char *write_line(int fd, const char *line, size_t len)
{
    ssize_t written;
    do
        written = write(fd, line, len);
    while (written < 0 && errno == EINTR);
    if (written < 0) return strerror(errno);
    return written == (ssize_t)len ? NULL : "the disk took a part of the line only; free space there";
}

void cli_journal_add(struct cli_journal *j, enum cli_journal_what what, const char *of, const char *params,
                     const char *message)
{
    cJSON *object = cJSON_CreateObject();
    keep(j, (int)what, of, params);
    cJSON_AddStringToObject(object, "what", cli_word_name(words, (int)what));
    cJSON_AddStringToObject(object, "of", of);
    if (params) cJSON_AddStringToObject(object, "params", params);
    if (message) cJSON_AddStringToObject(object, "message", message);
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (!text || j->fd < 0 || j->mute) {
        cJSON_free(text);
        return;
    }
    const size_t len = strlen(text);
    text[len] = '\n'; /* in place of its NUL: one write is one line */
    const char *problem = write_line(j->fd, text, len + 1);
    cJSON_free(text);
    if (!problem) return;
    warn(j, problem);
    j->mute = true; /* and open still: its lock keeps other tuners off the file */
}

bool cli_journal_has(const struct cli_journal *j, enum cli_journal_what what, const char *of, const char *params)
{
    for (size_t i = 0; i < j->count; ++i)
        if (j->lines[i].what == (int)what && strcmp(j->lines[i].of, of) == 0 &&
            strcmp(j->lines[i].params, params ? params : "") == 0)
            return true;
    return false;
}

int cli_journal_suspicions(const struct cli_journal *j, const char *of, const char *params)
{
    int n = 0;
    for (size_t i = 0; i < j->count; ++i)
        n += j->lines[i].suspect && strcmp(j->lines[i].of, of) == 0 && strcmp(j->lines[i].params, params) == 0;
    return n;
}
