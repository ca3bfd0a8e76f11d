/*
 * registry.c - owns the table of programs in memory and who is building what.
 * Must not know: where programs come from. `lock` guards all of it; nothing that blocks is done under it but waiting for a
 * flight, and no callback is called.
 *
 * Open addressing, a power of two, linear probes, at most three quarters full. Records are never removed: a key that failed
 * once is a few hundred bytes, and the next caller tries again.
 *
 * Names are key texts, and specs as bytes, each of which leads to the record of its key. No spec is a key text: that begins
 * with letters, a spec with the small number of a kernel.
 */
#include "runtime/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FIRST_CAP = 64, SENTENCE = 4096 };

/* One build under way. Lives until the last of those who wait for it has read the outcome. */
struct gdni_flight {
    size_t record; /* index: records do not move, the table of slots does */
    int refs;      /* builder and waiters; guarded by lock, as is the rest */
    bool done, strict;
    gdn_status status;
    struct gdni_program *program; /* a reference, while done and not failed */
    char sentence[SENTENCE];
};

struct record {
    void *name;
    size_t len;
    uint64_t hash;
    size_t leads_to;              /* a spec's: record index + 1 of its key, and nothing below; 0 in a key's */
    struct gdni_program *program; /* a reference; NULL until built */
    struct gdni_flight *flight;   /* NULL unless under way */
};

struct gdni_registry {
    pthread_mutex_t lock;
    pthread_cond_t landed;
    size_t *slots; /* record index + 1; 0 is free */
    size_t cap;
    struct record *records;
    size_t count, records_cap;
};

struct gdni_registry *gdni_registry_create(void)
{
    struct gdni_registry *r = gdni_calloc(1, sizeof *r);
    if (!r) return NULL;
    r->slots = gdni_calloc(FIRST_CAP, sizeof *r->slots);
    r->cap = FIRST_CAP;
    const bool lock = r->slots && pthread_mutex_init(&r->lock, NULL) == 0;
    if (lock && pthread_cond_init(&r->landed, NULL) == 0) return r;
    if (lock) pthread_mutex_destroy(&r->lock);
    gdni_free(r->slots);
    gdni_free(r);
    return NULL;
}

void gdni_registry_destroy(struct gdni_registry *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->count; ++i) {
        gdni_free(r->records[i].name);
        gdni_program_release(r->records[i].program);
    }
    gdni_free(r->records);
    gdni_free(r->slots);
    pthread_cond_destroy(&r->landed);
    pthread_mutex_destroy(&r->lock);
    gdni_free(r);
}

/* ---- table ---- */

static bool equals(const struct record *record, const void *name, size_t len, uint64_t hash)
{
    return record->hash == hash && record->len == len && memcmp(record->name, name, len) == 0;
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t *probe(const struct gdni_registry *r, const void *name, size_t len, uint64_t hash)
{
    size_t at = (size_t)hash & (r->cap - 1);
    while (r->slots[at] && !equals(&r->records[r->slots[at] - 1], name, len, hash))
        at = (at + 1) & (r->cap - 1);
    return &r->slots[at];
}

static bool grow_slots(struct gdni_registry *r)
{
    const size_t cap = r->cap * 2;
    size_t *slots = gdni_calloc(cap, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < r->count; ++i) { /* all names differ: the first free slot will do */
        size_t at = (size_t)r->records[i].hash & (cap - 1);
        while (slots[at])
            at = (at + 1) & (cap - 1);
        slots[at] = i + 1;
    }
    gdni_free(r->slots);
    r->slots = slots;
    r->cap = cap;
    return true;
}

static bool make_room(struct gdni_registry *r)
{
    if ((r->count + 1) * 4 > r->cap * 3 && !grow_slots(r)) return false;
    if (r->count < r->records_cap) return true;
    const size_t cap = r->records_cap ? r->records_cap * 2 : FIRST_CAP;
    struct record *records = gdni_realloc(r->records, cap * sizeof *records);
    if (!records) return false;
    r->records = records;
    r->records_cap = cap;
    return true;
}

/* The name's record, made if need be; NULL when out of memory. Good until the next call. */
static struct record *record_of(struct gdni_registry *r, const void *name, size_t len)
{
    const uint64_t hash = XXH3_64bits(name, len);
    size_t *slot = probe(r, name, len, hash);
    if (*slot) return &r->records[*slot - 1];
    void *copy = gdni_memdup(name, len);
    if (!copy || !make_room(r)) {
        gdni_free(copy);
        return NULL;
    }
    slot = probe(r, name, len, hash); /* the table may have grown */
    r->records[r->count] = (struct record){ .name = copy, .len = len, .hash = hash };
    *slot = ++r->count;
    return &r->records[r->count - 1];
}

/* ---- flights ---- */

static struct gdni_flight *take_off(struct gdni_registry *r, struct record *record, bool strict)
{
    struct gdni_flight *flight = gdni_calloc(1, sizeof *flight);
    if (!flight) return NULL;
    flight->record = (size_t)(record - r->records);
    flight->refs = 1;
    flight->strict = strict;
    record->flight = flight;
    return flight;
}

/* With lock held. */
static void drop(struct gdni_flight *flight)
{
    if (--flight->refs) return;
    gdni_program_release(flight->program);
    gdni_free(flight);
}

/* What a flight that was waited for means to one who waited: false when he has to try himself. */
static bool read_outcome(const struct gdni_flight *flight, bool strict, struct gdni_program **program,
                         gdn_status *status)
{
    if (flight->program) {
        *program = gdni_program_retain(flight->program);
        *status = GDN_OK;
        return true;
    }
    if (flight->strict != strict) return false; /* the sentence of one mode is not the other's */
    *status = GDN_FAIL(flight->status, "%s", flight->sentence);
    return true;
}

/* One look at the record, with lock held; false: look again. */
static bool enter_once(struct gdni_registry *r, struct record *record, unsigned flags,
                       const struct gdni_program *refused, struct gdni_program **program, struct gdni_flight **flight,
                       gdn_status *status)
{
    const bool strict = flags & GDNI_ENTER_STRICT;
    *status = GDN_OK;
    if (record->program && record->program != refused) {
        *program = gdni_program_retain(record->program);
        return true;
    }
    if (!record->flight) {
        *flight = take_off(r, record, strict);
        if (!*flight) *status = GDN_FAIL(GDN_E_NOMEM, "out of memory: program registry");
        return true;
    }
    struct gdni_flight *other = record->flight;
    ++other->refs;
    while (!other->done)
        pthread_cond_wait(&r->landed, &r->lock);
    const bool settled = read_outcome(other, strict, program, status);
    drop(other);
    return settled;
}

gdn_status gdni_registry_enter(struct gdni_registry *r, const struct gdni_key *key, unsigned flags,
                               const struct gdni_program *refused, struct gdni_program **program,
                               struct gdni_flight **flight)
{
    *program = NULL;
    *flight = NULL;
    gdn_status status = GDN_OK;
    bool settled = false;
    pthread_mutex_lock(&r->lock);
    while (!settled) {
        struct record *record = record_of(r, key->text, key->len);
        if (record)
            settled = enter_once(r, record, flags, refused, program, flight, &status);
        else {
            status = GDN_FAIL(GDN_E_NOMEM, "out of memory: program registry");
            settled = true;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

gdn_status gdni_registry_settle(struct gdni_registry *r, struct gdni_flight *flight, gdn_status status,
                                struct gdni_program *program)
{
    struct gdni_program *old = NULL;
    pthread_mutex_lock(&r->lock);
    struct record *record = &r->records[flight->record];
    flight->done = true;
    flight->status = status;
    record->flight = NULL;
    if (program) {
        old = record->program;
        record->program = gdni_program_retain(program);
        flight->program = gdni_program_retain(program);
    } else
        snprintf(flight->sentence, sizeof flight->sentence, "%s", gdni_error_text());
    pthread_cond_broadcast(&r->landed);
    drop(flight);
    pthread_mutex_unlock(&r->lock);
    gdni_program_release(old);
    return status;
}

/* ---- specs ---- */

void gdni_registry_learn(struct gdni_registry *r, const struct gdni_spec *spec, const struct gdni_key *key)
{
    pthread_mutex_lock(&r->lock);
    const struct record *of_key = record_of(r, key->text, key->len);
    const size_t leads_to = of_key ? (size_t)(of_key - r->records) + 1 : 0;
    struct record *of_spec = leads_to ? record_of(r, spec, sizeof *spec) : NULL;
    if (of_spec) of_spec->leads_to = leads_to;
    pthread_mutex_unlock(&r->lock);
}

struct gdni_program *gdni_registry_recall(struct gdni_registry *r, const struct gdni_spec *spec)
{
    struct gdni_program *program = NULL;
    const uint64_t hash = XXH3_64bits(spec, sizeof *spec);
    pthread_mutex_lock(&r->lock);
    const size_t at = *probe(r, spec, sizeof *spec, hash);
    if (at) program = r->records[r->records[at - 1].leads_to - 1].program;
    if (program) gdni_program_retain(program);
    pthread_mutex_unlock(&r->lock);
    return program;
}
