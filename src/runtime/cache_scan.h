/*
 * cache_scan.h - everything of ours that lies in a cache directory.
 */
#ifndef GDNI_CACHE_SCAN_H
#define GDNI_CACHE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "runtime/cache_dir.h"

struct gdni_cache_file {
    char path[96]; /* below the root: v2/<arch>/<2 hex>/<name> */
    uint64_t bytes;
    struct timespec mtime;
    dev_t device;
    ino_t inode;
    bool temporary; /* left by a publish that was killed */
    bool ahead; /* of the clock by more than GDNI_CLOCK_SLACK: not used since it was set back, or the use would have dated it */
};

struct gdni_cache_scan {
    struct gdni_cache_file *files; /* gdni_free */
    size_t count, cap;
    time_t now;         /* when it was made */
    bool passes_over;   /* what may not be read is left out */
    char failed_at[96]; /* below the root: where a walk ended that failed */
};

/* Names of entries: <32 hex>.<8 hex>.gdnk. */
enum { GDNI_ENTRY_NAME = 32 + 1 + 8 + 5 + 1 };
bool gdni_is_entry_name(const char *name);
/* Whole paths below the root: v2/<arch>/<2 hex>/<name>, the digits those that the name begins with. */
bool gdni_is_entry_path(const char *path);

/*
 * Sorted by path. Only names that this library makes are seen: whatever else lies there is nobody's business here. GDN_E_IO,
 * with a sentence that names the folder, and nothing in out, when one cannot be read: a list without it would look whole.
 */
gdn_status gdni_cache_scan(const struct gdni_cache_dir *dir, struct gdni_cache_scan *out);

/* Least recently used first (what is ahead before all), equal times by path, so that processes that remove together agree. */
int gdni_cache_file_compare_age(const struct gdni_cache_file *a, const struct gdni_cache_file *b);

/*
 * Seconds since a date, negative when it is ahead; of a file's date at the ends of what a time_t holds, which anyone may set,
 * the most or the least that there are.
 */
int64_t gdni_age(time_t now, time_t then);

enum { GDNI_CLOCK_SLACK = 3600 }; /* seconds by which a clock may be wrong, or the resolution of a use's date */
enum { GDNI_TEMP_AGE = 3600 }; /* seconds after which nobody is writing to a temporary file any more */
/* Such a file, or one as far in the future: the clock was set back, and it would lie there until the clock is there again. */
bool gdni_cache_is_abandoned(const struct gdni_cache_file *file, time_t now);

struct gdni_swept {
    uint64_t total; /* bytes of entries left, but for those that turned out not to be this user's to remove */
    uint64_t removed;
};
/*
 * Removes temporary files older than GDNI_TEMP_AGE and, when entries pass max_bytes, the least recently used down to 80 % of
 * it. Folders that may not be read do not count, and do not keep the rest from being swept; nor do entries that may not be
 * removed: others would go for them at every sweep.
 */
gdn_status gdni_cache_sweep(const struct gdni_cache_dir *dir, uint64_t max_bytes, time_t now, struct gdni_swept *out);

#endif
