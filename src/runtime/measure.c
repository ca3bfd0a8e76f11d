/*
 * measure.c - owns the taking of times: one call on buffer sets of its own, as graphs, candidates interleaved, with a cold and
 * a warm L2. Must not know: what a time decides (tuner/race.c), what tensors hold (tuner/work_*.c).
 *
 * A sample is the mean of the calls of some graph replays that together take about half a millisecond. Cold: the calls
 * rotate over as many sets of tensors as pass twice the L2. Warm: all of them on one set. A call that passes the L2 by
 * itself has only one kind. Before a candidate is timed its results on that call are held against the heuristic's choice's:
 * the trial call (trial.c) is small, and some errors need many CTAs.
 */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "runtime/clocks.h"
#include "runtime/context.h"
#include "runtime/tune.h"

enum { ALIGNMENT = 256, MAX_SETS = 512, SAMPLE_NS = 500000, SHORT_CALL_NS = 200000, CALLS_OF_SHORT = 8 };
enum { COMPARED_BYTES = 4 << 20 }; /* of each output: its first and its last rows */

/* One candidate ready to be timed. */
struct entrant {
    gdn_plan *plan;
    gdni_cuexec cold, warm; /* cold is NULL where there is one set */
    int calls, replays;     /* of a graph; of the graph for a sample */
    int64_t call_ns;        /* roughly */
};

struct session {
    struct gdni_tune *t;
    struct gdni_work work;
    size_t offsets[GDNI_WORK_MAX_TENSORS], set_bytes;
    int num_sets;
    gdn_devptr sets, workspace;
    size_t workspace_size;
    int reference; /* the candidate whose results the others' are held against; -1: none yet */
    void *want[GDNI_WORK_MAX_TENSORS];
    struct entrant entrants[GDNI_MAX_CANDIDATES];
    struct gdni_race race;
};

/* ---- Tensors on the device ---- */

static size_t round_up(size_t x)
{
    return (x + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void lay_out(struct session *s)
{
    for (int i = 0; i < s->work.num_tensors; ++i) {
        s->offsets[i] = s->set_bytes;
        s->set_bytes += round_up(s->work.tensors[i].bytes);
    }
}

/* As many as pass twice the L2, as memory allows; at least one. */
static int sets_for(const struct session *s)
{
    const size_t l2 = (size_t)(s->t->target.l2_bytes > 0 ? s->t->target.l2_bytes : 64 << 20);
    const size_t wanted = (2 * l2 + s->set_bytes - 1) / s->set_bytes;
    const size_t room = (s->t->lab.limit - s->t->lab.taken) / s->set_bytes;
    size_t sets = wanted < MAX_SETS ? wanted : MAX_SETS;
    if (sets > room) sets = room;
    return sets > 1 ? (int)sets : 1;
}

static gdn_devptr address_of(const struct session *s, int set, int tensor)
{
    return s->sets + (size_t)set * s->set_bytes + s->offsets[tensor];
}

static void bind(const struct session *s, int set, union gdni_args *out)
{
    gdn_devptr addresses[GDNI_WORK_MAX_TENSORS];
    for (int i = 0; i < s->work.num_tensors; ++i)
        addresses[i] = address_of(s, set, i);
    gdni_work_bind(out, &s->work, addresses);
}

static gdn_status upload_tensor(struct session *s, int i)
{
    const struct gdni_tensor *t = &s->work.tensors[i];
    return gdni_lab_upload(&s->t->lab, address_of(s, 0, i), t->bytes, t->host, t->host_bytes);
}

static gdn_status upload_sets(struct session *s)
{
    for (int i = 0; i < s->work.num_tensors; ++i)
        GDN_TRY(upload_tensor(s, i));
    GDN_TRY(gdni_lab_repeat(&s->t->lab, s->sets, (size_t)s->num_sets * s->set_bytes, s->set_bytes));
    return gdni_lab_wait(&s->t->lab);
}

static gdn_status place(struct session *s)
{
    struct gdni_lab *lab = &s->t->lab;
    lay_out(s);
    if (s->workspace_size) GDN_TRY(gdni_lab_take(lab, s->workspace_size, &s->workspace));
    s->num_sets = sets_for(s);
    GDN_TRY(gdni_lab_take(lab, (size_t)s->num_sets * s->set_bytes, &s->sets));
    return upload_sets(s);
}

/* ---- Plans ---- */

static gdn_status make_plans(struct session *s)
{
    struct gdni_tune *t = s->t;
    for (int i = 0; i < t->num_candidates; ++i) {
        if (!gdni_candidate_runs(&t->candidates[i])) continue;
        GDN_TRY(gdni_tune_begin(t, GDN_TUNE_COMPILE, i));
        const gdn_status status = gdni_tune_plan(t, i, &t->problem, &s->entrants[i].plan);
        GDN_TRY(gdni_tune_end(t, GDN_TUNE_COMPILE, i, status));
        const size_t size = s->entrants[i].plan ? gdn_plan_workspace_size(s->entrants[i].plan) : 0;
        if (size > s->workspace_size) s->workspace_size = size;
    }
    return GDN_OK;
}

static gdn_status execute(struct session *s, int candidate, const union gdni_args *args)
{
    const gdn_plan *plan = s->entrants[candidate].plan;
    const size_t size = gdn_plan_workspace_size(plan);
    return gdni_tune_execute(s->t, plan, args, size ? s->workspace : 0, size);
}

/* ---- The same results on the call that is timed ---- */

/* Of an output that is compared: its first `head` rows and its last `tail`. */
struct part {
    int64_t head, tail;
    size_t row_bytes;
};

static struct part part_of(const struct gdni_tensor *t)
{
    struct part p = { .row_bytes = t->rows ? t->bytes / (size_t)t->rows : 1 };
    const int64_t most = (int64_t)(COMPARED_BYTES / p.row_bytes) + 1;
    p.head = t->rows <= most ? t->rows : most / 2;
    p.tail = t->rows <= most ? 0 : most - p.head;
    return p;
}

/* The compared rows of output i, one after the other; for gdni_free(). */
static gdn_status download(struct session *s, int i, void **out)
{
    const struct gdni_tensor *t = &s->work.tensors[i];
    const struct part p = part_of(t);
    const size_t head = (size_t)p.head * p.row_bytes, tail = (size_t)p.tail * p.row_bytes;
    *out = gdni_alloc(head + tail);
    if (!*out) return GDN_FAIL(GDN_E_NOMEM, "out of memory for the results of a timed call");
    gdn_status status = gdni_lab_download(&s->t->lab, *out, address_of(s, 0, i), head);
    if (status == GDN_OK)
        status = gdni_lab_download(&s->t->lab, (char *)*out + head, address_of(s, 0, i) + t->bytes - tail, tail);
    return status;
}

/* Two kernels that are both off by as much as is right may be twice as far apart. */
static gdn_status compare(struct session *s, int candidate, int i)
{
    struct gdni_tensor t = s->work.tensors[i];
    const struct part p = part_of(&t);
    void *got = NULL;
    gdn_status status = download(s, i, &got);
    t.tolerance *= 2;
    if (status == GDN_OK && s->reference < 0) {
        gdni_free(s->want[i]); /* of one that failed later */
        s->want[i] = got;
        return GDN_OK;
    }
    if (status == GDN_OK) status = gdni_tensor_check(&t, got, s->want[i], p.head + p.tail);
    if (status == GDN_E_WRONG_RESULT)
        gdni_fail_in(status, "%s and %s differ", s->t->candidates[candidate].text, s->t->candidates[s->reference].text);
    gdni_free(got);
    return status;
}

/* Enqueues the calls of a graph; warm: all on set 0. */
static gdn_status enqueue(struct session *s, int candidate, bool warm)
{
    for (int i = 0; i < s->entrants[candidate].calls; ++i) {
        union gdni_args args;
        bind(s, warm ? 0 : i % s->num_sets, &args);
        GDN_TRY(execute(s, candidate, &args));
    }
    return GDN_OK;
}

static gdn_status capture(struct session *s, int candidate, bool warm, gdni_cuexec *out)
{
    GDN_TRY(gdni_lab_capture_begin(&s->t->lab));
    const gdn_status status = enqueue(s, candidate, warm);
    if (status == GDN_OK) return gdni_lab_capture_end(&s->t->lab, out);
    gdni_lab_capture_drop(&s->t->lab);
    return status;
}

/* Runs the candidate twice on fresh outputs; the second time says how long it takes. */
static gdn_status run_once(struct session *s, int candidate)
{
    struct gdni_lab *lab = &s->t->lab;
    gdni_cuexec graph = NULL;
    union gdni_args args;
    bind(s, 0, &args);
    for (int i = 0; i < s->work.num_tensors; ++i)
        if (s->work.tensors[i].output) GDN_TRY(upload_tensor(s, i));
    GDN_TRY(execute(s, candidate, &args));
    GDN_TRY(gdni_lab_wait(lab));
    for (int i = 0; i < s->work.num_tensors; ++i)
        if (s->work.tensors[i].output) GDN_TRY(compare(s, candidate, i));
    s->entrants[candidate].calls = 1;
    GDN_TRY(capture(s, candidate, true, &graph));
    const gdn_status timed = gdni_lab_time(lab, graph, 1, &s->entrants[candidate].call_ns);
    gdni_lab_graph_destroy(lab, graph);
    return timed;
}

static gdn_status compare_all(struct session *s)
{
    struct gdni_tune *t = s->t;
    s->reference = -1;
    for (int i = 0; i < t->num_candidates; ++i) {
        if (!gdni_candidate_runs(&t->candidates[i])) continue;
        GDN_TRY(gdni_tune_begin(t, GDN_TUNE_MEASURE, i));
        const gdn_status status = run_once(s, i);
        if (status == GDN_OK && s->reference < 0) s->reference = i;
        GDN_TRY(gdni_tune_end(t, GDN_TUNE_MEASURE, i, status));
    }
    return GDN_OK;
}

/* ---- Graphs ---- */

/* Whole rotations, and several short calls a graph: what starting a graph costs must not blur what they differ by. */
static void choose_lengths(const struct session *s, struct entrant *e)
{
    const int least = e->call_ns < SHORT_CALL_NS ? CALLS_OF_SHORT : 1;
    e->calls = (least + s->num_sets - 1) / s->num_sets * s->num_sets;
    const int64_t graph_ns = e->calls * (e->call_ns > 1 ? e->call_ns : 1);
    e->replays = (int)((SAMPLE_NS + graph_ns - 1) / graph_ns);
}

static gdn_status capture_all(struct session *s)
{
    struct gdni_tune *t = s->t;
    for (int i = 0; i < t->num_candidates; ++i) {
        struct entrant *e = &s->entrants[i];
        if (!gdni_candidate_runs(&t->candidates[i])) continue;
        choose_lengths(s, e);
        gdn_status status = capture(s, i, true, &e->warm);
        if (status == GDN_OK && s->num_sets > 1) status = capture(s, i, false, &e->cold);
        if (status != GDN_OK) GDN_TRY(gdni_tune_end(t, GDN_TUNE_MEASURE, i, status));
    }
    return GDN_OK;
}

/* ---- Times ---- */

static gdn_status sample(struct session *s, int candidate)
{
    const struct entrant *e = &s->entrants[candidate];
    const int64_t calls = (int64_t)e->calls * e->replays;
    int64_t cold = 0, warm = 0;
    GDN_TRY(gdni_lab_time(&s->t->lab, e->warm, e->replays, &warm));
    cold = warm;
    if (e->cold) GDN_TRY(gdni_lab_time(&s->t->lab, e->cold, e->replays, &cold));
    gdni_race_add(&s->race, candidate, cold / calls, warm / calls);
    return GDN_OK;
}

static int list_running(const struct session *s, int out[GDNI_MAX_CANDIDATES])
{
    int count = 0;
    for (int i = 0; i < s->t->num_candidates; ++i)
        if (gdni_race_runs(&s->race, i)) out[count++] = i;
    return count;
}

/* Each candidate that runs once, beginning with another one in every round. */
static gdn_status run_round(struct session *s, int round)
{
    struct gdni_tune *t = s->t;
    int running[GDNI_MAX_CANDIDATES];
    const int count = list_running(s, running);
    for (int k = 0; k < count; ++k) {
        const int i = running[(k + round) % count];
        GDN_TRY(gdni_tune_begin(t, GDN_TUNE_MEASURE, i));
        const gdn_status status = sample(s, i);
        if (status == GDN_OK) continue;
        gdni_race_drop(&s->race, i);
        GDN_TRY(gdni_tune_end(t, GDN_TUNE_MEASURE, i, status));
    }
    return GDN_OK;
}

/* Long samples are steadier: fewer of them do. */
static int divisor_for(const struct session *s)
{
    enum { LONG = 2 * SAMPLE_NS, MOST = 5 };
    int64_t longest = 0;
    for (int i = 0; i < s->t->num_candidates; ++i) {
        const struct entrant *e = &s->entrants[i];
        const int64_t ns = e->call_ns * e->calls * e->replays;
        if (ns > longest) longest = ns;
    }
    const int64_t divisor = longest / LONG;
    return divisor < 1 ? 1 : divisor > MOST ? MOST : (int)divisor;
}

static void note_leader(struct session *s)
{
    struct gdni_estimate e;
    struct gdni_tune *t = s->t;
    t->best = gdni_race_leader(&s->race, &e);
    t->best_ns = e.median;
}

static void note_clock(struct gdni_seen *seen, int32_t mhz)
{
    if (mhz > 0 && seen->count < GDNI_MAX_CLOCKS) seen->mhz[seen->count++] = mhz;
}

/*
 * The clocks that the leader runs at, which are not those of an idle GPU, nor the highest. Between stages, under a load of its
 * own: a time that is taken meanwhile would be that of the question too.
 */
static gdn_status see_clocks(struct session *s)
{
    enum { LOAD_SAMPLES = 10 };
    struct gdni_tune *t = s->t;
    if (t->best < 0) return GDN_OK;
    const struct entrant *e = &s->entrants[t->best];
    GDN_TRY(gdni_tune_begin(t, GDN_TUNE_MEASURE, t->best));
    gdn_status status = gdni_lab_start(&t->lab, e->warm, LOAD_SAMPLES * e->replays);
    const struct gdni_mhz now = gdni_clocks_now(t->ctx->clocks, t->lab.cuda, t->lab.device);
    if (status == GDN_OK) status = gdni_lab_wait(&t->lab);
    if (status != GDN_OK) return gdni_tune_end(t, GDN_TUNE_MEASURE, t->best, status);
    note_clock(&t->sm_clocks, now.sm);
    note_clock(&t->mem_clocks, now.mem);
    return GDN_OK;
}

static gdn_status run_race(struct session *s)
{
    struct gdni_tune *t = s->t;
    bool runs[GDNI_MAX_CANDIDATES];
    int rounds = 0;
    for (int i = 0; i < t->num_candidates; ++i)
        runs[i] = gdni_candidate_runs(&t->candidates[i]);
    gdni_race_begin(&s->race, t->num_candidates, t->incumbent, divisor_for(s), runs);
    while ((rounds = gdni_race_rounds(&s->race)) > 0) {
        for (int r = 0; r < rounds; ++r) {
            GDN_TRY(run_round(s, r));
            note_leader(s);
        }
        GDN_TRY(see_clocks(s));
        gdni_race_next(&s->race);
    }
    gdni_race_decide(&s->race, &t->decision);
    if (t->decision.heuristic.count) gdni_race_decide_to_stay(&s->race, &t->stay);
    return GDN_OK;
}

/* ---- The step ---- */

static gdn_status run(struct session *s)
{
    const struct gdni_problem *p = &s->t->problem;
    GDN_TRY(make_plans(s));
    GDN_TRY(gdni_work_call(&s->work, p->op, &s->t->desc, p->max_tokens, p->max_seqs, s->t->kind));
    GDN_TRY(place(s));
    GDN_TRY(compare_all(s));
    GDN_TRY(capture_all(s));
    return run_race(s);
}

static void tear_down(struct session *s)
{
    for (int i = 0; i < s->t->num_candidates; ++i) {
        struct entrant *e = &s->entrants[i];
        gdni_lab_graph_destroy(&s->t->lab, e->cold);
        gdni_lab_graph_destroy(&s->t->lab, e->warm);
        if (e->plan) gdni_tune_drop_plan(s->t, e->plan);
    }
    for (int i = 0; i < s->work.num_tensors; ++i)
        gdni_free(s->want[i]);
    gdni_lab_give_back(&s->t->lab, 0);
    gdni_work_free(&s->work);
    gdni_free(s);
}

gdn_status gdni_tune_measure(struct gdni_tune *t)
{
    struct session *s = gdni_calloc(1, sizeof *s);
    if (!s) return GDN_FAIL(GDN_E_NOMEM, "out of memory for taking times");
    s->t = t;
    const gdn_status status = run(s);
    tear_down(s);
    return status;
}
