/*
 * tuning_db.c - owns the measured tables of a context: taking them in, the chain of lookups. Must not know: the form of a
 * file, how one is opened, plans.
 *
 * One mutex guards the array of tables and all that they point to. Tables are never changed in place: an import makes a new
 * array of entries and swaps it in, so that a failure leaves everything as it was.
 */
#include "runtime/tuning_db.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "tuner/stats.h"

enum { MAX_TABLES = 64 };

struct gdni_tuning {
    pthread_mutex_t lock;
    const struct gdni_log *log;
    const struct gdni_shipped_table *shipped; /* num_shipped that are built in and were not needed yet */
    size_t num_shipped;
    size_t count;
    struct gdni_tuning_table tables[MAX_TABLES]; /* by arch, GPU's name, SMs */
};

const char *gdni_chosen_name(enum gdni_chosen_by by)
{
    static const char *const names[] = {
        [GDNI_CHOSEN_EXACT] = "exact",         [GDNI_CHOSEN_BUCKET] = "bucket", [GDNI_CHOSEN_ARCH] = "arch",
        [GDNI_CHOSEN_HEURISTIC] = "heuristic", [GDNI_CHOSEN_NONE] = "none",
    };
    return names[by];
}

/*
 * The lock, with what is built in taken in: parsing it takes a millisecond, which a context that never plans is spared. Where
 * it fails, for want of memory, nothing is locked.
 */
static gdn_status lock_tables(struct gdni_tuning *t);

/* ---- Lookup ---- */

/* Steps between two slots; INT32_MAX when the one says nothing about the other. */
static int steps(struct gdni_slot a, struct gdni_slot b)
{
    const int tokens = abs(a.bucket - b.bucket), seqs = abs(a.seq_class - b.seq_class);
    if ((a.seq_class == GDNI_ANY_SEQS) != (b.seq_class == GDNI_ANY_SEQS) || tokens > 1 || seqs > 1) return INT32_MAX;
    return 2 * (tokens + seqs) + (seqs ? 1 : 0); /* of two at one step, the one of the same class */
}

/* A slot that is asked for. */
struct question {
    const gdn_target *target;
    const struct gdni_arch *arch;
    const struct gdni_problem *problem;
    struct gdni_tuning_key key;
    bool tuned_only; /* the model is not to answer */
};

/* The nearest usable entry of a table; NULL when there is none. They lie together: the slot is the key's last part. */
static const struct gdni_tuning_entry *nearest(const struct gdni_tuning_table *table, const struct question *q)
{
    const struct gdni_tuning_entry *best = NULL;
    struct gdni_tuning_key first = q->key;
    int least = INT32_MAX;
    first.slot = (struct gdni_slot){ 0, GDNI_ANY_SEQS };
    for (size_t i = gdni_tuning_table_lower(table, &first); i < table->count; ++i) {
        const struct gdni_tuning_entry *e = &table->entries[i];
        if (!gdni_tuning_same_problem(&e->key, &q->key)) break;
        const int away = steps(e->key.slot, q->key.slot);
        if (away >= least) continue;
        if (gdni_params_usable(&e->params, q->problem, q->arch, q->target->num_sms, q->key.slot) != GDN_OK) continue;
        best = e;
        least = away;
    }
    return best;
}

static bool is_of_target(const struct gdni_tuning_table *table, const gdn_target *target)
{
    return strcmp(table->gpu_name, target->gpu_name) == 0 &&
           table->num_sms == gdni_arch_sms(table->arch, target->num_sms);
}

bool gdni_tuning_sms_alike(int32_t a, int32_t b)
{
    const int64_t more = a > b ? a : b, fewer = a > b ? b : a;
    return 4 * fewer >= 3 * more;
}

/*
 * An entry of another slot or GPU tells whether to believe the model: where its choice stood, the model is to answer here,
 * since numbers that are right for one class of sequences, copied, are wrong for the next. Then *out names it and nothing else.
 */
static bool answer(struct gdni_choice *out, const struct gdni_tuning_table *table, const struct question *q,
                   enum gdni_chosen_by by)
{
    const struct gdni_tuning_entry *e = nearest(table, q);
    if (!e) return false;
    if (by == GDNI_CHOSEN_EXACT && steps(e->key.slot, q->key.slot) != 0) by = GDNI_CHOSEN_BUCKET;
    const bool model_stood = e->median_ns == e->heuristic_ns;
    if (by != GDNI_CHOSEN_EXACT && model_stood && !q->tuned_only) {
        *out = (struct gdni_choice){ .by = GDNI_CHOSEN_HEURISTIC };
        return true;
    }
    *out = (struct gdni_choice){ .params = e->params, .by = by, .measured = e->key.slot };
    memcpy(out->gpu_name, table->gpu_name, sizeof out->gpu_name);
    memcpy(out->code, e->code, sizeof out->code);
    return true;
}

/* Of the arch's other tables, the nearest by SMs that answers. */
static void answer_by_arch(struct gdni_choice *out, const struct gdni_tuning *t, const struct question *q)
{
    const int32_t wanted = gdni_arch_sms(q->arch, q->target->num_sms);
    int32_t least = INT32_MAX;
    struct gdni_choice found;
    for (size_t i = 0; i < t->count; ++i) {
        const struct gdni_tuning_table *table = &t->tables[i];
        const int32_t away = abs(table->num_sms - wanted);
        if (table->arch != q->arch || is_of_target(table, q->target) || away >= least) continue;
        if (!q->tuned_only && !gdni_tuning_sms_alike(table->num_sms, wanted)) continue;
        if (!answer(&found, table, q, GDNI_CHOSEN_ARCH)) continue;
        least = away;
        *out = found;
    }
}

/* by stays GDNI_CHOSEN_HEURISTIC where none does, or where they leave it to the model. */
static gdn_status answer_from_tables(struct gdni_choice *out, struct gdni_tuning *t, const struct question *q)
{
    bool found = false;
    GDN_TRY(lock_tables(t));
    for (size_t i = 0; i < t->count && !found; ++i)
        found = t->tables[i].arch == q->arch && is_of_target(&t->tables[i], q->target) &&
                answer(out, &t->tables[i], q, GDNI_CHOSEN_EXACT);
    if (!found) answer_by_arch(out, t, q);
    pthread_mutex_unlock(&t->lock);
    return GDN_OK;
}

static void answer_by_model(struct gdni_choice *out, const struct question *q)
{
    const struct gdni_slot slot = q->key.slot;
    const int num_sms = q->target->num_sms;
    bool found = true;
    *out = (struct gdni_choice){ .by = GDNI_CHOSEN_HEURISTIC };
    if (slot.seq_class == GDNI_ANY_SEQS)
        gdni_params_heuristic(&out->params, q->problem, q->arch, num_sms, slot.bucket);
    else
        found = gdni_params_heuristic_few(&out->params, q->problem, q->arch, num_sms, slot.bucket, slot.seq_class);
    if (!found) out->by = GDNI_CHOSEN_NONE;
}

gdn_status gdni_tuning_choose(struct gdni_choice *out, struct gdni_tuning *tuning, const gdn_target *target,
                              const struct gdni_arch *arch, const struct gdni_problem *problem, struct gdni_slot slot,
                              uint32_t flags)
{
    struct question q = { .target = target, .arch = arch, .problem = problem };
    q.tuned_only = (flags & GDN_PLAN_TUNED_ONLY) != 0;
    *out = (struct gdni_choice){ .by = GDNI_CHOSEN_HEURISTIC };
    gdni_tuning_key_of(&q.key, problem, arch, slot);
    if (!(flags & GDN_PLAN_HEURISTIC) && !problem->batch_invariant) GDN_TRY(answer_from_tables(out, tuning, &q));
    if (out->by != GDNI_CHOSEN_HEURISTIC) return GDN_OK;
    if (!q.tuned_only) {
        answer_by_model(out, &q);
        return GDN_OK;
    }
    out->by = GDNI_CHOSEN_NONE;
    if (slot.seq_class != GDNI_ANY_SEQS) return GDN_OK;
    return GDN_FAIL(GDN_E_NOT_TUNED,
                    "no table has an entry of %s with %d, %d and %d heads of q, k and v on %s for calls of up to %lld tokens: "
                    "tune for it, load a table by gdn_tuning_load() or drop GDN_PLAN_TUNED_ONLY",
                    gdni_op_name(problem->op), problem->num_q_heads, problem->num_k_heads, problem->num_v_heads,
                    target->gpu_name[0] ? target->gpu_name : target->arch,
                    (long long)gdni_tuning_tokens(slot.bucket));
}

/* ---- Import ---- */

static bool are_tied(const struct gdni_tuning_entry *a, const struct gdni_tuning_entry *b)
{
    const struct gdni_estimate first = gdni_estimate_from(a->median_ns, a->mad_ns, a->samples),
                               second = gdni_estimate_from(b->median_ns, b->mad_ns, b->samples);
    return gdni_estimates_tie(&first, &second);
}

static bool same_entry(const struct gdni_tuning_entry *a, const struct gdni_tuning_entry *b)
{
    return memcmp(&a->params, &b->params, sizeof a->params) == 0 && a->median_ns == b->median_ns &&
           a->mad_ns == b->mad_ns && a->heuristic_ns == b->heuristic_ns && a->samples == b->samples &&
           gdni_tuning_same_run(a, b);
}

static void keep(struct gdni_import_step *step, const char *why)
{
    step->fate = GDNI_IMPORT_KEPT;
    step->why = why;
}

static void replace(struct gdni_import_step *step, const char *why)
{
    step->fate = GDNI_IMPORT_REPLACED;
    step->why = why;
}

/*
 * Of two entries the one of this library's kernel: the other one's candidates were others. false: both are of this library's
 * kernels, or neither. Equal codes are not looked up: of thousands of entries that would be most of an import.
 */
static bool judge_by_code(struct gdni_import_step *step)
{
    if (strcmp(step->in->code, step->known->code) == 0) return false;
    const bool stale = gdni_tuning_is_stale(step->in);
    if (stale == gdni_tuning_is_stale(step->known)) return false;
    if (stale)
        keep(step, "measured before its kernel changed");
    else
        replace(step, "the kernel has changed since");
    return true;
}

/* Of one kernel, times of another source. */
static bool is_of_other_code(const struct gdni_tuning_entry *a, const struct gdni_tuning_entry *b)
{
    return gdni_tuning_kernel(&a->key, &a->params) == gdni_tuning_kernel(&b->key, &b->params) && strcmp(a->code, b->code) != 0;
}

static void judge_merge(struct gdni_import_step *step)
{
    const struct gdni_tuning_entry *in = step->in, *known = step->known;
    const bool newer = strcmp(in->date, known->date) >= 0;
    if (!newer)
        keep(step, "what is known is newer");
    else if (memcmp(&in->params, &known->params, sizeof in->params) == 0)
        replace(step, "the same choice, measured later");
    else if (is_of_other_code(in, known)) /* and neither is this library's */
        replace(step, "the kernel has changed since");
    else if (strcmp(in->driver, known->driver) != 0 || strcmp(in->nvrtc, known->nvrtc) != 0)
        keep(step, "measured with another driver or NVRTC: times do not compare");
    else if (are_tied(in, known))
        keep(step, "a tie");
    else if (in->median_ns > known->median_ns)
        keep(step, "what is known is faster");
    else
        replace(step, "faster");
}

static void judge(struct gdni_import_step *step, bool merge)
{
    step->fate = GDNI_IMPORT_ADDED;
    step->why = "";
    if (!step->known) return;
    if (same_entry(step->in, step->known)) {
        step->fate = GDNI_IMPORT_SAME;
        step->why = "the same entry";
    } else if (judge_by_code(step)) {
        return;
    } else if (merge) {
        judge_merge(step);
    } else {
        replace(step, "loaded later");
    }
}

/* Both are sorted: one walk. What is known and not in the table stays. */
static gdn_status unite(struct gdni_tuning_table *to, const struct gdni_tuning_table *known,
                        const struct gdni_tuning_table *in, bool merge, gdni_import_fn *fn, void *user)
{
    GDN_TRY(gdni_tuning_table_reserve(to, known->count + in->count));
    size_t k = 0;
    for (size_t i = 0; i < in->count; ++i) {
        struct gdni_import_step step = { .table = in, .in = &in->entries[i] };
        while (k < known->count && gdni_tuning_key_compare(&known->entries[k].key, &step.in->key) < 0)
            to->entries[to->count++] = known->entries[k++];
        if (k < known->count && gdni_tuning_key_compare(&known->entries[k].key, &step.in->key) == 0)
            step.known = &known->entries[k++];
        judge(&step, merge);
        if (fn) GDN_TRY(fn(user, &step));
        to->entries[to->count++] = step.fate == GDNI_IMPORT_KEPT ? *step.known : *step.in;
    }
    while (k < known->count)
        to->entries[to->count++] = known->entries[k++];
    if (to->count <= GDNI_TUNING_MAX_ENTRIES) return GDN_OK;
    return GDN_FAIL(GDN_E_UNSUPPORTED,
                    "%s: with what is known of its GPU it makes %zu entries: a table has up to %d; load fewer", in->source,
                    to->count, GDNI_TUNING_MAX_ENTRIES);
}

static int compare_tables(const struct gdni_tuning_table *a, const struct gdni_tuning_table *b)
{
    const int by_arch = strcmp(a->arch->name, b->arch->name), by_name = strcmp(a->gpu_name, b->gpu_name);
    return by_arch ? by_arch : by_name ? by_name : a->num_sms - b->num_sms;
}

/* Where a table stands or would stand. */
static size_t place_of(const struct gdni_tuning *t, const struct gdni_tuning_table *table)
{
    size_t i = 0;
    while (i < t->count && compare_tables(&t->tables[i], table) < 0)
        ++i;
    return i;
}

static gdn_status import_locked(struct gdni_tuning *t, const struct gdni_tuning_table *in, bool merge,
                                gdni_import_fn *fn, void *user)
{
    static const struct gdni_tuning_table nothing;
    const size_t at = place_of(t, in);
    const bool known = at < t->count && compare_tables(&t->tables[at], in) == 0;
    if (!known && t->count == MAX_TABLES)
        return GDN_FAIL(GDN_E_UNSUPPORTED, "%s: this context has tables of %d GPUs, and takes no more", in->source,
                        MAX_TABLES);
    struct gdni_tuning_table made = *in;
    made.entries = NULL, made.count = made.capacity = 0;
    made.source = gdni_strdup(in->source);
    if (!made.source) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the table of %s", in->source);
    const gdn_status status = unite(&made, known ? &t->tables[at] : &nothing, in, merge, fn, user);
    if (status != GDN_OK) {
        gdni_tuning_table_free(&made);
        return status;
    }
    if (known)
        gdni_tuning_table_free(&t->tables[at]);
    else
        memmove(&t->tables[at + 1], &t->tables[at], (t->count++ - at) * sizeof t->tables[0]);
    t->tables[at] = made;
    return GDN_OK;
}

gdn_status gdni_tuning_import(struct gdni_tuning *tuning, const struct gdni_tuning_table *table, bool merge,
                              gdni_import_fn *fn, void *user)
{
    GDN_TRY(lock_tables(tuning));
    const gdn_status status = import_locked(tuning, table, merge, fn, user);
    pthread_mutex_unlock(&tuning->lock);
    return status;
}

/* ---- Copies ---- */

static gdn_status copy_table(struct gdni_tuning_table *out, const struct gdni_tuning_table *from)
{
    *out = *from;
    out->entries = NULL, out->count = out->capacity = 0;
    out->source = gdni_strdup(from->source);
    if (!out->source || gdni_tuning_table_reserve(out, from->count) != GDN_OK) {
        gdni_tuning_table_free(out);
        return GDN_FAIL(GDN_E_NOMEM, "out of memory for a copy of %zu tuning entries", from->count);
    }
    if (from->count) memcpy(out->entries, from->entries, from->count * sizeof *from->entries);
    out->count = from->count;
    return GDN_OK;
}

void gdni_tuning_copies_free(struct gdni_tuning_table *tables, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        gdni_tuning_table_free(&tables[i]);
    gdni_free(tables);
}

/* The lock is held. */
static gdn_status copy_all(const struct gdni_tuning *t, struct gdni_tuning_table **out, size_t *count)
{
    struct gdni_tuning_table *tables = gdni_calloc(t->count + 1, sizeof *tables);
    if (!tables) return GDN_FAIL(GDN_E_NOMEM, "out of memory for copies of %zu tuning tables", t->count);
    for (size_t i = 0; i < t->count; ++i) {
        const gdn_status status = copy_table(&tables[i], &t->tables[i]);
        if (status == GDN_OK) continue;
        gdni_tuning_copies_free(tables, i);
        return status;
    }
    *out = tables;
    *count = t->count;
    return GDN_OK;
}

gdn_status gdni_tuning_copies(struct gdni_tuning *tuning, struct gdni_tuning_table **out, size_t *count)
{
    GDN_TRY(lock_tables(tuning));
    const gdn_status status = copy_all(tuning, out, count);
    pthread_mutex_unlock(&tuning->lock);
    return status;
}

gdn_status gdni_tuning_copy(struct gdni_tuning *tuning, const gdn_target *target, struct gdni_tuning_table *out)
{
    gdn_status status = GDN_E_NOT_TUNED;
    GDN_TRY(lock_tables(tuning));
    for (size_t i = 0; i < tuning->count && status == GDN_E_NOT_TUNED; ++i)
        if (is_of_target(&tuning->tables[i], target) && tuning->tables[i].count)
            status = copy_table(out, &tuning->tables[i]);
    pthread_mutex_unlock(&tuning->lock);
    if (status != GDN_E_NOT_TUNED) return status;
    return GDN_FAIL(GDN_E_NOT_TUNED, "nothing is known of \"%s\" with %d SMs: tune for it or load a table of it first",
                    target->gpu_name, target->num_sms);
}

/* ---- Life ---- */

static gdn_status take_shipped(struct gdni_tuning *t, const struct gdni_shipped_table *shipped)
{
    struct gdni_tuning_table table;
    GDN_TRY(gdni_tuning_parse(&table, shipped->name, shipped->text, shipped->len));
    const gdn_status status = import_locked(t, &table, false, NULL, NULL);
    gdni_tuning_table_free(&table);
    return status;
}

static gdn_status lock_tables(struct gdni_tuning *t)
{
    pthread_mutex_lock(&t->lock);
    for (; t->num_shipped > 0; ++t->shipped, --t->num_shipped) {
        const gdn_status status = take_shipped(t, t->shipped);
        if (status == GDN_E_NOMEM) {
            pthread_mutex_unlock(&t->lock);
            return status;
        }
        if (status != GDN_OK)
            gdni_log(t->log, GDN_LOG_WARN, "tuning: a built-in table is ignored: %s", gdni_error_text());
    }
    return GDN_OK;
}

struct gdni_tuning *gdni_tuning_create(const struct gdni_shipped_table *tables, size_t count,
                                       const struct gdni_log *log)
{
    struct gdni_tuning *t = gdni_calloc(1, sizeof *t);
    if (!t) return NULL;
    t->log = log;
    t->shipped = tables;
    t->num_shipped = count;
    if (pthread_mutex_init(&t->lock, NULL) == 0) return t;
    gdni_free(t);
    return NULL;
}

void gdni_tuning_destroy(struct gdni_tuning *tuning)
{
    if (!tuning) return;
    for (size_t i = 0; i < tuning->count; ++i)
        gdni_tuning_table_free(&tuning->tables[i]);
    pthread_mutex_destroy(&tuning->lock);
    gdni_free(tuning);
}
