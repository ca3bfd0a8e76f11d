/*
 * cache_file.h - one entry file of a cache directory or bundle: read and judged, shown to a caller, removed.
 */
#ifndef GDNI_CACHE_FILE_H
#define GDNI_CACHE_FILE_H

#include "runtime/cache_dir.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_scan.h"

/* What lies under an entry's name. */
struct gdni_cache_item {
    void *bytes; /* whole file; NULL when it could not be read */
    size_t size;
    struct stat st;          /* zeros when it could not be opened */
    struct gdni_entry entry; /* leads into bytes; zeros with a problem */
    char hex[GDNI_KEY_HEX];  /* of the entry's key; "" with a problem */
    const char *problem;     /* NULL: good. Static storage, or words */
    char words[GDNI_DISTRUST_WORDS];
};

/*
 * Reads name in folder, which is v2/<arch>/<2 hex> of dir, and judges it: as key's entry, or (key NULL) as that of the key
 * that its name says. 0 when there is something to judge; else an errno value: ENOENT or ESTALE: nothing is there, ENOMEM,
 * others: it cannot be read and may be good. gdni_cache_item_free() after 0.
 */
int gdni_cache_item_read(const struct gdni_cache_dir *dir, const char *arch, int folder, const char *name,
                         const struct gdni_key *key, struct gdni_cache_item *out);
void gdni_cache_item_free(struct gdni_cache_item *item);

/* A file of a scan: its arch, its name, its folder opened (each step checked, none a link). */
const char *gdni_cache_file_name(const struct gdni_cache_file *file);
void gdni_cache_file_arch(const struct gdni_cache_file *file, char arch[16]);
int gdni_cache_file_open_folder(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, int *folder);

/*
 * As gdni_cache_item_read() by a scan's file; what cannot be read is judged so, by a problem. False when it has gone meanwhile
 * or (*status GDN_E_NOMEM) memory has; else item is the caller's.
 */
bool gdni_cache_file_read(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file,
                          struct gdni_cache_item *item, gdn_status *status);

/* Removes the file if it is still the one of st (NULL: of the scan; zeros: if it is no regular file); 0 or an errno value. */
int gdni_cache_file_remove(const struct gdni_cache_dir *dir, const struct gdni_cache_file *file, const struct stat *st);

/* A caller's function for entries, and where they are from. */
struct gdni_cache_viewer {
    const struct gdni_cache_dir *dir;
    gdn_cache_entry_fn fn; /* NULL: nobody looks */
    void *user;
    const char *caller; /* "gdn_cache_list()" */
};
/* Calls fn with what is known of a file; item NULL: nothing but problem. GDN_E_CANCELLED when fn says so, GDN_E_NOMEM. */
gdn_status gdni_cache_show(const struct gdni_cache_viewer *viewer, const struct gdni_cache_file *file,
                           const struct gdni_cache_item *item, const char *problem);

#endif
