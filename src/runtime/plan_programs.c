/*
 * plan_programs.c - owns the way from a plan's specs to its programs: spec -> unit -> key -> program, those that have to be
 * compiled side by side. Must not know: how specs were chosen, files, NVRTC.
 *
 * No lock: a plan under construction belongs to one thread, which starts compiles and then waits for them. Others may want some
 * of the same programs, of this process or of others, and wait for what was begun here; so who begins several does so in the
 * order of their keys, which is the same for all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/key.h"
#include "codegen/unit.h"
#include "runtime/context.h"
#include "runtime/plan.h"

/* A program on its way. */
struct wanted {
    const struct gdni_spec *spec;
    struct gdni_program **out; /* stays NULL on failure */
    enum gdni_origin *origin;
    struct gdni_unit unit;
    struct gdni_key key;
    struct gdni_request *request; /* NULL: not begun */
};

/* Too large for the stack of an embedder's thread. */
struct search {
    gdn_ctx *ctx;
    uint32_t flags;
    gdn_status status;   /* of the first that failed */
    char sentence[4096]; /* as long as any is */
    int count;
    struct wanted *by_key[GDNI_MAX_VARIANTS];
    struct wanted wanted[];
};

/* Later failures are its consequences, or equal. */
static void note(struct search *s, gdn_status status)
{
    if (status == GDN_OK || s->status != GDN_OK) return;
    s->status = status;
    snprintf(s->sentence, sizeof s->sentence, "%s", gdni_error_text());
}

static int compare_keys(const void *a, const void *b)
{
    const struct wanted *const *x = a, *const *y = b;
    return strcmp((*x)->key.hex, (*y)->key.hex);
}

/* Text is generated and hashed to learn the key. */
static gdn_status build(struct wanted *w)
{
    GDN_TRY(gdni_unit_build(&w->unit, w->spec));
    return gdni_key_build(&w->key, &w->unit);
}

/* Specs that differ at run time alone have one key: who has begun it would wait for himself. */
static bool is_begun(const struct search *s, int i)
{
    return i > 0 && compare_keys(&s->by_key[i - 1], &s->by_key[i]) == 0;
}

static void begin(struct search *s)
{
    const int64_t deadline = gdni_programs_deadline(s->ctx);
    for (int i = 0; i < s->count && s->status == GDN_OK; ++i) {
        struct wanted *w = s->by_key[i];
        if (!is_begun(s, i)) note(s, gdni_programs_begin(s->ctx, &w->unit, &w->key, s->flags, deadline, &w->request));
    }
}

/* Whatever was begun: others may wait for it. */
static void end(struct search *s)
{
    for (int i = 0; i < s->count; ++i) {
        struct wanted *w = &s->wanted[i];
        if (w->request) note(s, gdni_programs_end(w->request, w->out, w->origin));
    }
}

/* Specs whose key another one began are in memory now. */
static void take_rest(struct search *s)
{
    for (int i = 0; i < s->count && s->status == GDN_OK; ++i) {
        struct wanted *w = &s->wanted[i];
        if (!*w->out) note(s, gdni_programs_get(s->ctx, &w->unit, &w->key, s->flags, w->out, w->origin));
        if (*w->out) gdni_programs_learn(s->ctx, w->spec, &w->key);
    }
}

static void find(struct search *s)
{
    for (int i = 0; i < s->count && s->status == GDN_OK; ++i) {
        s->by_key[i] = &s->wanted[i];
        note(s, build(&s->wanted[i]));
    }
    if (s->status != GDN_OK) return;
    qsort(s->by_key, (size_t)s->count, sizeof s->by_key[0], compare_keys);
    begin(s);
    end(s);
    take_rest(s);
}

static void tear_down(struct search *s)
{
    if (s->status != GDN_OK) gdni_fail(s->status, "%s", s->sentence);
    for (int i = 0; i < s->count; ++i) {
        gdni_key_free(&s->wanted[i].key);
        gdni_unit_free(&s->wanted[i].unit);
    }
    gdni_free(s);
}

/* The programs that are NULL. */
static gdn_status find_missing(gdn_plan *plan, uint32_t flags, struct gdni_program **programs, enum gdni_origin *origins,
                               int num_missing)
{
    const size_t size = sizeof(struct search) + (size_t)num_missing * sizeof(struct wanted);
    struct search *s = gdni_calloc(1, size);
    if (!s) return GDN_FAIL(GDN_E_NOMEM, "out of memory for %d programs of a plan (%zu bytes)", num_missing, size);
    s->ctx = plan->ctx;
    s->flags = flags;
    for (int i = 0; i < plan->num_variants; ++i)
        if (!programs[i])
            s->wanted[s->count++] =
                (struct wanted){ .spec = &plan->specs[i], .out = &programs[i], .origin = &origins[i] };
    find(s);
    const gdn_status status = s->status;
    tear_down(s);
    return status;
}

gdn_status gdni_plan_find_programs(gdn_plan *plan, uint32_t flags)
{
    struct gdni_program *programs[GDNI_MAX_VARIANTS];
    enum gdni_origin origins[GDNI_MAX_VARIANTS];
    gdn_status status = GDN_OK;
    int num_missing = 0;
    for (int i = 0; i < plan->num_variants; ++i) {
        programs[i] = gdni_programs_recall(plan->ctx, &plan->specs[i]);
        origins[i] = GDNI_FROM_MEMORY;
        num_missing += !programs[i];
    }
    if (num_missing) status = find_missing(plan, flags, programs, origins, num_missing);
    for (int i = 0; i < plan->num_variants; ++i)
        if (status == GDN_OK)
            gdni_modules_add(plan->modules, &plan->specs[i], programs[i], origins[i]);
        else
            gdni_program_release(programs[i]);
    return status;
}
