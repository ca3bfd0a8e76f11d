/*
 * tuning_db.h - the measured tables of a context, and the choice that a plan takes from them.
 */
#ifndef GDNI_TUNING_DB_H
#define GDNI_TUNING_DB_H

#include "runtime/log.h"
#include "runtime/tuning.h"
#include "runtime/tuning_shipped.h"

/* What answered, nearest first. The numbers index a table of names. */
enum gdni_chosen_by {
    GDNI_CHOSEN_EXACT,     /* an entry of the target's GPU, for this slot */
    GDNI_CHOSEN_BUCKET,    /* of the target's GPU, for a slot beside this one */
    GDNI_CHOSEN_ARCH,      /* of another GPU of the arch, nearly as large (any, with TUNED_ONLY), slot as above */
    GDNI_CHOSEN_HEURISTIC, /* nothing usable was measured, or, for a slot beside this one, that the model is right */
    GDNI_CHOSEN_NONE       /* few sequences: the bucket's variant serves them */
};
const char *gdni_chosen_name(enum gdni_chosen_by by); /* "exact", "bucket", "arch", "heuristic", "none" */

struct gdni_choice {
    struct gdni_params params;
    enum gdni_chosen_by by;
    struct gdni_slot measured; /* EXACT, BUCKET, ARCH: the entry's slot, */
    char gpu_name[64];         /* and its GPU, */
    char code[GDNI_CODE_HEX];  /* and the source of its kernel that was measured */
};

/*
 * Whether what was measured on a GPU of so many SMs says something of one of the same arch with so many: at most a quarter
 * fewer. Choices are about how many CTAs find an SM: a slice of a GPU is no smaller GPU of that kind.
 */
bool gdni_tuning_sms_alike(int32_t a, int32_t b);

struct gdni_tuning; /* one mutex inside, held for a lookup or for the swap of a table, never for a file */

/*
 * With these tables, the built-in ones, parsed when they are first needed; one that this version cannot read is then a
 * warning. They and log outlive it. NULL when out of memory.
 */
struct gdni_tuning *gdni_tuning_create(const struct gdni_shipped_table *tables, size_t count,
                                       const struct gdni_log *log);
void gdni_tuning_destroy(struct gdni_tuning *tuning); /* NULL is allowed */

/*
 * The choice for one slot of a plan. arch: the target's. flags: the plan's GDN_PLAN_HEURISTIC (no table is asked) and
 * GDN_PLAN_TUNED_ONLY (nothing but a table is).
 *
 * Of a GPU's entries the nearest: at most one bucket and one class away, the fewest steps, then the same class, then fewer
 * tokens. Of other GPUs those with SMs alike (any, with GDN_PLAN_TUNED_ONLY), the nearest number first, then by name. What
 * gdni_params_usable() refuses for this problem is passed over. GDN_E_NOT_TUNED: GDN_PLAN_TUNED_ONLY, and no table answers
 * for a slot that every plan has.
 */
gdn_status gdni_tuning_choose(struct gdni_choice *out, struct gdni_tuning *tuning, const gdn_target *target,
                              const struct gdni_arch *arch, const struct gdni_problem *problem, struct gdni_slot slot,
                              uint32_t flags);

/* What became of one entry of a table that was taken in. */
enum gdni_import_fate { GDNI_IMPORT_ADDED, GDNI_IMPORT_SAME, GDNI_IMPORT_REPLACED, GDNI_IMPORT_KEPT };
struct gdni_import_step {
    const struct gdni_tuning_table *table;      /* the one that comes in */
    const struct gdni_tuning_entry *in, *known; /* known: NULL when added */
    enum gdni_import_fate fate;
    const char *why; /* in a few words; static storage */
};
/* Called before anything changes, with the lock held: must not call this context. A status other than GDN_OK undoes all. */
typedef gdn_status gdni_import_fn(void *user, const struct gdni_import_step *step);

/*
 * All entries of `table`, which must be sorted, or none. Of two that differ, the one that was measured with this library's
 * kernel, if the other was not. Else, merge false: the table's; merge true: the newer one only if it beats the other by the tie
 * band on an equal driver and NVRTC; else what is known stays.
 */
gdn_status gdni_tuning_import(struct gdni_tuning *tuning, const struct gdni_tuning_table *table, bool merge,
                              gdni_import_fn *fn, void *user);

/* A copy of what is known of one GPU, for gdni_tuning_table_free(); GDN_E_NOT_TUNED when that is nothing. */
gdn_status gdni_tuning_copy(struct gdni_tuning *tuning, const gdn_target *target, struct gdni_tuning_table *out);

/* Every GPU's table, copied likewise, in the order of arch, name and SMs, as they are at one time; then copies_free(). */
gdn_status gdni_tuning_copies(struct gdni_tuning *tuning, struct gdni_tuning_table **out, size_t *count);
void gdni_tuning_copies_free(struct gdni_tuning_table *tables, size_t count);

#endif
