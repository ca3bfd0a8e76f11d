/*
 * gpu_params.c - see gpu_params.h. `forced` is written before threads start; `met` is atomic.
 */
#include "gpu_params.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "codegen/spec.h"
#include "runtime/context.h"
#include "runtime/tuning_db.h"
#include "support/tuning_cases.h"

enum { MAX_FORCED = 8 };

static struct {
    char name[32];
    int32_t value;
} forced[MAX_FORCED];
static int num_forced;
static atomic_int met;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "--params %s: %s\n", what, why);
    exit(2);
}

void gpu_force_params(const char *text)
{
    for (const char *at = text; *at;) {
        const size_t len = strcspn(at, ",");
        int used = 0;
        if (num_forced == MAX_FORCED) die(text, "too many");
        if (sscanf(at, "%31[a-z_]=%d%n", forced[num_forced].name, &forced[num_forced].value, &used) != 2 || (size_t)used != len)
            die(text, "must be name=value,name=value");
        ++num_forced;
        at += len + (at[len] == ',');
    }
}

bool gpu_forces(const char *name, int value)
{
    for (int i = 0; i < num_forced; ++i)
        if (strcmp(forced[i].name, name) == 0) return forced[i].value == value;
    return false;
}

bool gpu_force_met(void)
{
    return num_forced == 0 || atomic_load(&met) > 0;
}

static bool has_value(const struct gdni_params *params, int32_t kernel, const char *name, int32_t value)
{
    struct gdni_param_row row;
    for (int i = 0; gdni_param_at(kernel, i, &row); ++i)
        if (strcmp(row.name, name) == 0) return gdni_param_get(params, &row) == value;
    return false;
}

static bool is_wanted(const struct gdni_tuning_entry *e)
{
    const int32_t kernel = gdni_tuning_kernel(&e->key, &e->params);
    for (int i = 0; i < num_forced; ++i)
        if (!has_value(&e->params, kernel, forced[i].name, forced[i].value)) return false;
    return true;
}

/* Adds the slot's first choice with the forced values. */
static void force_slot(struct gdni_tuning_table *table, const struct gdni_problem *problem, struct gdni_slot slot)
{
    struct gdni_params list[GDNI_MAX_CHOICES];
    struct gdni_tuning_entry e = tuning_conv(0); /* whose measurements nobody looks at */
    const int count = gdni_params_choices(list, problem, table->arch, table->num_sms, slot);
    gdni_tuning_key_of(&e.key, problem, table->arch, slot);
    for (int i = 0; i < count; ++i) {
        e.params = list[i];
        if (!is_wanted(&e)) continue;
        tuning_add(table, &e);
        atomic_fetch_add(&met, 1);
        return;
    }
}

void gpu_force_for(gdn_ctx *ctx, const gdn_target *target, const struct gdni_problem *problem)
{
    if (num_forced == 0) return;
    struct gdni_tuning_table table = tuning_table(target->gpu_name, target->num_sms);
    if (gdni_arch_find(target->arch, &table.arch) != GDN_OK) die(target->arch, gdni_error_text());
    const int last = problem->op == GDNI_OP_PREFILL ? GDNI_NUM_SEQ_CLASSES : 0;
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS; ++bucket)
        for (int c = GDNI_ANY_SEQS; c < last; ++c) force_slot(&table, problem, (struct gdni_slot){ bucket, c });
    if (gdni_tuning_table_sort(&table) || gdni_tuning_import(ctx->tuning, &table, false, NULL, NULL) != GDN_OK)
        die(target->gpu_name, gdni_error_text());
    gdni_tuning_table_free(&table);
}
