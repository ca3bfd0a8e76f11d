/*
 * cache_dir.h - which directory cubins are kept in, and whether it can be trusted.
 */
#ifndef GDNI_CACHE_DIR_H
#define GDNI_CACHE_DIR_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "gdn_jit/gdn_jit.h"
#include "runtime/env.h"

/* Of the entries' format: another format has another folder, and versions of the library leave each other's entries alone. */
#define GDNI_CACHE_FOLDER "v2"

/* An open directory whose entries may be believed. */
struct gdni_cache_dir {
    char *path;        /* as chosen; NULL: memory only */
    int fd;            /* -1: memory only */
    mode_t mode;       /* for what is made inside: the root's bits, but writable for others only when any_owner */
    bool any_owner;    /* entries of other users count */
    bool missing;      /* not there, and GDN_CTX_EXISTING_CACHE forbids to make it */
    const char *asked; /* for memory only: who did, and how to have it otherwise; NULL: nobody */
    char problem[512]; /* why memory only; "" when that was asked for */
};

/*
 * configured, else env->cache_dir, else env->xdg_cache_home/gdn-jit, else env->home/.cache/gdn-jit, else memory only.
 * A directory that was named is used as it is if its owner is this user or root, or with GDN_CTX_SHARED_CACHE; what others
 * may write inside it is believed only with that flag; a default one must be this user's and writable for nobody else. Made,
 * with mode 0700, when missing, but for GDN_CTX_EXISTING_CACHE. An unusable directory is memory only with a problem, not a
 * failure: GDN_E_NOMEM is the only one.
 */
gdn_status gdni_cache_dir_choose(struct gdni_cache_dir *out, const char *configured, const struct gdni_env *env,
                                 uint32_t flags);

/*
 * A read-only directory that the embedder names, trusted as the embedder's own files are. GDN_E_IO, with a problem, when it
 * cannot be opened; GDN_E_NOMEM.
 */
gdn_status gdni_cache_dir_bundle(struct gdni_cache_dir *out, const char *path);

void gdni_cache_dir_close(struct gdni_cache_dir *dir);

/* Whether a file or folder of this owner counts in dir: this user's, root's, or anyone's where the embedder said so. */
bool gdni_cache_dir_trusts_owner(const struct gdni_cache_dir *dir, const struct stat *st);
/* And of this mode: writable for nobody else, where the embedder did not say so. */
bool gdni_cache_dir_trusts(const struct gdni_cache_dir *dir, const struct stat *st);

/*
 * Reads a whole entry file; *bytes is the caller's (gdni_free). 0 or an errno value; what an entry cannot be is ELOOP (a link),
 * EINVAL (no regular file), EPERM (not to be believed, by *st), EFBIG (longer than max), ENODATA (shorter than it said).
 */
int gdni_cache_dir_read(const struct gdni_cache_dir *dir, int folder, const char *name, size_t max, void **bytes,
                        struct stat *st);

/* Opens GDNI_CACHE_FOLDER/<arch>/<2 hex>, each folder checked; 0 or an errno value (EPERM: one is not to be believed). */
int gdni_cache_dir_open(const struct gdni_cache_dir *dir, const char *arch, const char *key_hex, bool create, int *out);

enum { GDNI_DISTRUST_WORDS = 96 };
/*
 * "in a folder that others may write to (v2/sm_90a, mode 0775)": of the first folder on the way to the file of that path, which
 * is relative to dir, that is not to be believed. False, and no words: there is none (any more).
 */
bool gdni_cache_dir_distrusts(const struct gdni_cache_dir *dir, const char *path, char words[GDNI_DISTRUST_WORDS]);

#endif
