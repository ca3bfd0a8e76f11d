/*
 * entries.c - owns copies of cache entries. Must not know: how they are printed.
 */
#include "cli/entries.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* dir/<key>.<compiler>.gdnk -> key: a damaged entry has nothing else to go by. */
static void key_of_path(char out[40], const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    snprintf(out, 40, "%.*s", (int)strcspn(name, "."), name);
}

static char *copy(const char *text)
{
    return cli_strdup(text ? text : "");
}

/* Room grows by doubling: a cache may hold ten thousands. */
static struct cli_entry *add(struct cli_entries *list)
{
    if ((list->count & (list->count - 1)) == 0)
        list->items = cli_realloc(list->items, (list->count ? 2 * list->count : 1) * sizeof *list->items);
    return &list->items[list->count++];
}

int cli_entries_keep(void *user, const gdn_cache_entry *e)
{
    struct cli_entry *entry = add(user);
    *entry = (struct cli_entry){
        .path = copy(e->path),
        .arch = copy(e->arch),
        .kernel = copy(e->entry_name),
        .compiler = copy(e->compiler),
        .options = copy(e->options),
        .problem = copy(e->problem),
        .bytes = e->bytes,
        .mtime = e->mtime,
        .registers = e->registers,
        .spill_bytes = e->spill_bytes,
        .local_bytes = e->local_bytes,
        .static_smem = e->static_smem,
        .valid = e->valid != 0,
    };
    key_of_path(entry->key, e->path);
    return 0;
}

struct search {
    const char *prefix;
    struct cli_entries *out;
};

static int on_entry(void *user, const gdn_cache_entry *e)
{
    const struct search *search = user;
    char key[40];
    key_of_path(key, e->path);
    return strncmp(key, search->prefix, strlen(search->prefix)) == 0 ? cli_entries_keep(search->out, e) : 0;
}

int cli_entries_find(gdn_ctx *ctx, const char *prefix, struct cli_entries *out)
{
    struct search search = { prefix, out };
    if (gdn_cache_list(ctx, on_entry, &search) == GDN_OK) return CLI_OK;
    return cli_fail(CLI_FAILED, "%s", gdn_last_error());
}

static void free_texts(const struct cli_entry *e)
{
    cli_free(e->path);
    cli_free(e->arch);
    cli_free(e->kernel);
    cli_free(e->compiler);
    cli_free(e->options);
    cli_free(e->problem);
}

void cli_entries_split(struct cli_entries *gone, struct cli_entries *stayed)
{
    size_t kept = 0;
    for (size_t i = 0; i < gone->count; ++i) {
        const struct cli_entry e = gone->items[i];
        struct stat st = { .st_mtime = e.mtime }; /* who may not look has not removed it either */
        if (lstat(e.path, &st) != 0 && errno == ENOENT)
            gone->items[kept++] = e;
        else if (st.st_mtime == e.mtime)
            *add(stayed) = e;
        else
            free_texts(&e);
    }
    gone->count = kept;
}

void cli_entries_free(struct cli_entries *entries)
{
    for (size_t i = 0; i < entries->count; ++i)
        free_texts(&entries->items[i]);
    cli_free(entries->items);
    *entries = (struct cli_entries){ 0 };
}

static cJSON *entry_json(const struct cli_entry *e)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "path", e->path);
    cJSON_AddStringToObject(o, "key", e->key);
    cJSON_AddBoolToObject(o, "valid", e->valid);
    cJSON_AddNumberToObject(o, "bytes", (double)e->bytes);
    cJSON_AddNumberToObject(o, "last_use", (double)e->mtime);
    if (!e->valid) cJSON_AddStringToObject(o, "problem", e->problem);
    if (!e->valid) return o;
    cJSON_AddStringToObject(o, "arch", e->arch);
    cJSON_AddStringToObject(o, "kernel", e->kernel);
    cJSON_AddStringToObject(o, "compiler", e->compiler);
    cJSON_AddStringToObject(o, "options", e->options);
    cJSON_AddNumberToObject(o, "registers", e->registers);
    cJSON_AddNumberToObject(o, "spill_bytes", e->spill_bytes);
    cJSON_AddNumberToObject(o, "local_bytes", e->local_bytes);
    cJSON_AddNumberToObject(o, "static_smem", e->static_smem);
    return o;
}

void cli_entries_json(cJSON *object, const char *name, const struct cli_entries *entries)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = 0; i < entries->count; ++i)
        cJSON_AddItemToArray(array, entry_json(&entries->items[i]));
}

void cli_report_json(cJSON *object, const gdn_cache_report *r)
{
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        { "entries", r->entries },
        { "bytes", r->bytes },
        { "damaged", r->damaged },
        { "missing", r->missing },
        { "unlisted", r->unlisted },
        { "removed", r->removed },
        { "removed_bytes", r->removed_bytes },
        { "temporaries", r->temporaries },
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; ++i)
        cJSON_AddNumberToObject(object, members[i].name, (double)members[i].value);
}
