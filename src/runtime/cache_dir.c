/*
 * cache_dir.c - owns the choice of the cache directory and the question of whom to believe.
 * Must not know: what an entry looks like. No lock: a gdni_cache_dir is read-only once chosen.
 *
 * The root is opened once, by path and through links (people do link ~/.cache to another disk), and judged by what was opened.
 * Below it everything is opened relative to its parent, never through a link, and judged again.
 */
#include "runtime/cache_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "runtime/fsutil.h"
#include "text/utf8.h"

enum { PERMISSIONS = 02777, OTHERS_WRITE = 022 };

/* A path in a problem, cut so that what is wrong with it fits behind. */
struct shown {
    char text[320];
};

static struct shown show(const char *path)
{
    struct shown s;
    gdni_fit(s.text, sizeof s.text, path);
    return s;
}

/* ---- choice ---- */

struct choice {
    char *path;       /* NULL: memory only */
    const char *from; /* who says so */
    const char *must; /* a directory that has to be there before anything is made below it */
    const char *asked; /* NULL: nobody wants memory only */
    bool named;       /* by the embedder or the user, not a default */
};

static gdn_status join(struct choice *c, const char *base, const char *tail, const char *must)
{
    struct gdni_strbuf sb = { 0 };
    gdni_sb_str(&sb, base);
    gdni_sb_str(&sb, tail);
    c->path = gdni_sb_take(&sb);
    c->must = must;
    return c->path ? GDN_OK : GDN_FAIL(GDN_E_NOMEM, "out of memory: the path of the cache directory");
}

static gdn_status choose(struct choice *c, const char *configured, const struct gdni_env *env, char *problem,
                         size_t size)
{
    *c = (struct choice){ 0 };
    if (configured && !*configured)
        c->asked = "gdn_config.cache_dir is \"\", which keeps cubins in memory only, so that each process compiles anew: "
                   "name a directory there";
    else if (!configured && env->disable_cache)
        c->asked = "GDN_JIT_DISABLE_CACHE=1 keeps cubins in memory only, so that each process compiles anew: unset it, "
                   "or name a directory in gdn_config.cache_dir (gdn-jit-cache: --cache-dir)";
    if (c->asked) return GDN_OK;
    const char *named = configured ? configured : env->cache_dir;
    if (named) {
        c->named = true;
        c->from = configured ? "gdn_config.cache_dir" : "GDN_JIT_CACHE_DIR";
        return join(c, named, "", NULL);
    }
    /* The XDG specification: a relative path is invalid and is to be ignored. */
    c->from = "XDG_CACHE_HOME";
    if (env->xdg_cache_home && *env->xdg_cache_home == '/') return join(c, env->xdg_cache_home, "/gdn-jit", NULL);
    c->from = "HOME";
    if (env->home && *env->home == '/') return join(c, env->home, "/.cache/gdn-jit", env->home);
    snprintf(problem, size,
             "none of gdn_config.cache_dir, GDN_JIT_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory: "
             "set one");
    return GDN_OK;
}

/* ---- judgement ---- */

static bool is_owner_trusted(uid_t owner, bool any_owner)
{
    return any_owner || owner == geteuid() || owner == 0;
}

bool gdni_cache_dir_trusts_owner(const struct gdni_cache_dir *dir, const struct stat *st)
{
    return is_owner_trusted(st->st_uid, dir->any_owner);
}

bool gdni_cache_dir_trusts(const struct gdni_cache_dir *dir, const struct stat *st)
{
    return gdni_cache_dir_trusts_owner(dir, st) && (dir->any_owner || !(st->st_mode & OTHERS_WRITE));
}

/* False, with the problem, when what was opened must not be used. */
static bool judge(struct gdni_cache_dir *out, const struct choice *c, const struct stat *st)
{
    const unsigned owner = (unsigned)st->st_uid, self = (unsigned)geteuid(),
                   mode = (unsigned)(st->st_mode & PERMISSIONS);
    if (c->named) {
        if (is_owner_trusted(st->st_uid, out->any_owner)) return true;
        snprintf(out->problem, sizeof out->problem,
                 "%s is owned by user %u, not by %u or root: set GDN_CTX_SHARED_CACHE (gdn-jit-cache: --shared-cache) to "
                 "share it on purpose",
                 show(c->path).text, owner, self);
        return false;
    }
    if (owner == self && !(mode & OTHERS_WRITE)) return true;
    snprintf(out->problem, sizeof out->problem,
             "%s is owned by user %u with mode %04o, and must be owned by %u and writable for nobody else: chown and "
             "chmod 700 it, or name a directory in GDN_JIT_CACHE_DIR",
             show(c->path).text, owner, mode, self);
    return false;
}

static int open_or_make(const char *path, bool make, int *out)
{
    static const int how = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    *out = open(path, how);
    if (*out >= 0) return 0;
    const int err = errno == ENOENT && make ? gdni_fs_make_path(path, 0700) : errno;
    if (err) return err;
    *out = open(path, how);
    return *out >= 0 ? 0 : errno;
}

static bool refuse_missing(struct gdni_cache_dir *out, const struct choice *c)
{
    out->missing = true;
    if (c->named)
        snprintf(out->problem, sizeof out->problem,
                 "%s names %s, which is not there: correct it, or let gdn-jit-cache warm make it", c->from,
                 show(c->path).text);
    else
        snprintf(out->problem, sizeof out->problem,
                 "%s has it at %s, and there is none yet: gdn-jit-cache warm makes it", c->from, show(c->path).text);
    return false;
}

static bool open_and_judge(struct gdni_cache_dir *out, const struct choice *c, bool make)
{
    struct stat st;
    if (c->must && (stat(c->must, &st) != 0 || !S_ISDIR(st.st_mode))) {
        snprintf(out->problem, sizeof out->problem, "HOME is %s, which is no directory: set GDN_JIT_CACHE_DIR",
                 show(c->must).text);
        return false;
    }
    int fd;
    const int err = open_or_make(c->path, make, &fd);
    if (err == ENOENT && !make) return refuse_missing(out, c);
    if (err || fstat(fd, &st) != 0) {
        snprintf(out->problem, sizeof out->problem, "%s cannot be used: %s: make it a directory that this user may write",
                 show(c->path).text, gdni_fs_error(err ? err : errno));
        if (!err) close(fd);
        return false;
    }
    if (!judge(out, c, &st)) {
        close(fd);
        return false;
    }
    out->fd = fd;
    out->mode = (st.st_mode & PERMISSIONS) | 0700;
    if (!out->any_owner)
        out->mode &= ~(mode_t)OTHERS_WRITE; /* a root like /tmp must not make entries that anyone may edit */
    return true;
}

gdn_status gdni_cache_dir_choose(struct gdni_cache_dir *out, const char *configured, const struct gdni_env *env,
                                 uint32_t flags)
{
    *out = (struct gdni_cache_dir){ .fd = -1, .any_owner = flags & GDN_CTX_SHARED_CACHE };
    struct choice c;
    GDN_TRY(choose(&c, configured, env, out->problem, sizeof out->problem));
    out->asked = c.asked;
    if (c.path && open_and_judge(out, &c, !(flags & GDN_CTX_EXISTING_CACHE)))
        out->path = c.path;
    else
        gdni_free(c.path);
    return GDN_OK;
}

gdn_status gdni_cache_dir_bundle(struct gdni_cache_dir *out, const char *path)
{
    *out = (struct gdni_cache_dir){ .fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .any_owner = true };
    const int err = out->fd < 0 ? errno : (out->path = gdni_strdup(path)) ? 0 : ENOMEM;
    if (!err) return GDN_OK;
    gdni_cache_dir_close(out);
    if (err == ENOMEM) return GDN_FAIL(GDN_E_NOMEM, "out of memory: opening bundle %s", path);
    snprintf(out->problem, sizeof out->problem, "%s cannot be opened: %s", show(path).text, gdni_fs_error(err));
    return GDN_FAIL(GDN_E_IO, "bundle %s", out->problem);
}

void gdni_cache_dir_close(struct gdni_cache_dir *dir)
{
    if (dir->fd >= 0) close(dir->fd);
    gdni_free(dir->path);
    dir->fd = -1;
    dir->path = NULL;
}

/* ---- inside ---- */

static int open_trusted(const struct gdni_cache_dir *dir, int parent, const char *name, bool create, int *out)
{
    int fd;
    const int err = gdni_fs_open_folder(parent, name, create, dir->mode, &fd);
    if (err) return err;
    struct stat st;
    const int bad = fstat(fd, &st) != 0 ? errno : gdni_cache_dir_trusts(dir, &st) ? 0 : EPERM;
    if (bad)
        close(fd);
    else
        *out = fd;
    return bad;
}

int gdni_cache_dir_open(const struct gdni_cache_dir *dir, const char *arch, const char *key_hex, bool create, int *out)
{
    const char prefix[3] = { key_hex[0], key_hex[1], '\0' };
    const char *const steps[] = { GDNI_CACHE_FOLDER, arch, prefix };
    int at = dir->fd;
    for (int i = 0; i < 3; ++i) {
        int next = -1;
        const int err = open_trusted(dir, at, steps[i], create, &next);
        if (at != dir->fd) close(at);
        if (err) return err;
        at = next;
    }
    *out = at;
    return 0;
}

bool gdni_cache_dir_distrusts(const struct gdni_cache_dir *dir, const char *path, char words[GDNI_DISTRUST_WORDS])
{
    char folder[64]; /* GDNI_CACHE_FOLDER/<arch>/<2 hex> */
    struct stat st;
    words[0] = '\0';
    for (const char *slash = path; (slash = strchr(slash, '/')); ++slash) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        if (fstatat(dir->fd, folder, &st, AT_SYMLINK_NOFOLLOW) != 0 || gdni_cache_dir_trusts(dir, &st)) continue;
        if (!gdni_cache_dir_trusts_owner(dir, &st)) /* told first, as no mode would help against him */
            snprintf(words, GDNI_DISTRUST_WORDS, "in a folder of another user (%.24s, user %u)", folder,
                     (unsigned)st.st_uid);
        else
            snprintf(words, GDNI_DISTRUST_WORDS, "in a folder that others may write to (%.24s, mode %04o)", folder,
                     (unsigned)st.st_mode & 07777);
        return true;
    }
    return false;
}

int gdni_cache_dir_read(const struct gdni_cache_dir *dir, int folder, const char *name, size_t max, void **bytes,
                        struct stat *st)
{
    int fd;
    int err = gdni_fs_open_file(folder, name, &fd, st);
    if (err) return err;
    void *buffer = NULL;
    if (!gdni_cache_dir_trusts(dir, st))
        err = EPERM;
    else if ((uint64_t)st->st_size > max)
        err = EFBIG;
    else if (!(buffer = gdni_alloc((size_t)st->st_size)))
        err = ENOMEM;
    else
        err = gdni_fs_read(fd, buffer, (size_t)st->st_size);
    close(fd);
    if (err)
        gdni_free(buffer);
    else
        *bytes = buffer;
    return err;
}
