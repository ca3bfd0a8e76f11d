/*
 * tuning_table.c - owns the order of measured choices and what makes one legal. Must not know: JSON, files, contexts. No lock.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "codegen/spec.h"
#include "runtime/known_code.h"
#include "runtime/tuning.h"

void gdni_tuning_key_of(struct gdni_tuning_key *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                        struct gdni_slot slot)
{
    const bool prefill = problem->op == GDNI_OP_PREFILL;
    const uint32_t norm = prefill ? (uint32_t)GDN_PREFILL_QK_L2NORM : (uint32_t)GDN_CONV_L2_NORM;
    *out = (struct gdni_tuning_key){
        .kernel = (int32_t)gdni_kernel_choose(problem, arch, NULL),
        .io_type = problem->io_type,
        .head_dim_qk = problem->head_dim_qk,
        .head_dim_v = problem->head_dim_v,
        .num_q_heads = problem->num_q_heads,
        .num_k_heads = problem->num_k_heads,
        .num_v_heads = problem->num_v_heads,
        .l2norm = (problem->flags & norm) != 0,
        .width = prefill ? 0 : problem->width,
        .slot = slot,
    };
}

int gdni_tuning_key_compare(const struct gdni_tuning_key *a, const struct gdni_tuning_key *b)
{
    if (a->kernel != b->kernel)
        return strcmp(gdni_kernel_info((enum gdni_kernel)a->kernel)->name,
                      gdni_kernel_info((enum gdni_kernel)b->kernel)->name);
    const int32_t left[] = { a->io_type,     a->head_dim_qk, a->head_dim_v, a->num_q_heads, a->num_k_heads,
                             a->num_v_heads, a->l2norm,      a->width,      a->slot.bucket, a->slot.seq_class };
    const int32_t right[] = { b->io_type,     b->head_dim_qk, b->head_dim_v, b->num_q_heads, b->num_k_heads,
                              b->num_v_heads, b->l2norm,      b->width,      b->slot.bucket, b->slot.seq_class };
    for (size_t i = 0; i < sizeof left / sizeof left[0]; ++i)
        if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
    return 0;
}

bool gdni_tuning_same_problem(const struct gdni_tuning_key *a, const struct gdni_tuning_key *b)
{
    struct gdni_tuning_key moved = *a;
    moved.slot = b->slot;
    return memcmp(&moved, b, sizeof moved) == 0;
}

int32_t gdni_tuning_kernel(const struct gdni_tuning_key *key, const struct gdni_params *params)
{
    return (int32_t)gdni_kernel_with(key->kernel, params);
}

/* What no descriptor has, whatever the library: an entry that nothing would ever ask for is a mistake of the file. */
static gdn_status check_key(const struct gdni_tuning_key *key, const struct gdni_arch *arch)
{
    const bool conv = key->kernel == GDNI_KERNEL_CONV1D_QKV;
    if (key->kernel == GDNI_KERNEL_PREFILL_HOPPER && !arch->wgmma)
        return GDN_FAIL(GDN_E_INVALID, "\"kernel\" is gdn_prefill_hopper: %s cannot run it", arch->name);
    if (!conv && key->width != 0)
        return GDN_FAIL(GDN_E_INVALID, "\"width\" is %d: must be 0 for a prefill", key->width);
    if (conv && (key->width < 2 || key->width > 4))
        return GDN_FAIL(GDN_E_INVALID, "\"width\" is %d: must be 2, 3 or 4 for a conv1d_qkv", key->width);
    if (conv && key->slot.seq_class != GDNI_ANY_SEQS)
        return GDN_FAIL(GDN_E_INVALID, "\"seqs\" must be 0 for a conv1d_qkv, which has no kernel for few sequences");
    return GDN_OK;
}

gdn_status gdni_tuning_entry_check(const struct gdni_tuning_entry *entry, const struct gdni_arch *arch)
{
    const int32_t kernel = gdni_tuning_kernel(&entry->key, &entry->params);
    GDN_TRY(check_key(&entry->key, arch));
    GDN_TRY(gdni_params_check(&entry->params, kernel));
    if (gdni_kernel_info((enum gdni_kernel)kernel)->has_producers && entry->key.slot.seq_class == GDNI_ANY_SEQS)
        return GDN_FAIL(GDN_E_INVALID,
                        "parameter cta_kinds is 2 and \"seqs\" is 0: calls of any number of sequences may "
                        "have no workspace, and it needs one");
    return GDN_OK;
}

bool gdni_tuning_same_run(const struct gdni_tuning_entry *a, const struct gdni_tuning_entry *b)
{
    return a->sm_mhz == b->sm_mhz && a->mem_mhz == b->mem_mhz && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->nvrtc, b->nvrtc) == 0 && strcmp(a->date, b->date) == 0 && strcmp(a->code, b->code) == 0;
}

bool gdni_tuning_is_stale(const struct gdni_tuning_entry *entry)
{
    return !gdni_kernel_code_is((enum gdni_kernel)gdni_tuning_kernel(&entry->key, &entry->params), entry->code);
}

/* ---- Tables ---- */

void gdni_tuning_table_free(struct gdni_tuning_table *table)
{
    gdni_free(table->source);
    gdni_free(table->entries);
    *table = (struct gdni_tuning_table){ 0 };
}

gdn_status gdni_tuning_table_reserve(struct gdni_tuning_table *table, size_t count)
{
    size_t bytes;
    if (count <= table->capacity) return GDN_OK;
    const size_t capacity = count > 2 * table->capacity ? count : 2 * table->capacity;
    struct gdni_tuning_entry *grown =
        gdni_mul_size(capacity, sizeof *grown, &bytes) ? gdni_realloc(table->entries, bytes) : NULL;
    if (!grown) return GDN_FAIL(GDN_E_NOMEM, "out of memory for %zu tuning entries", count);
    table->entries = grown;
    table->capacity = capacity;
    return GDN_OK;
}

static int compare_entries(const void *a, const void *b)
{
    return gdni_tuning_key_compare(&((const struct gdni_tuning_entry *)a)->key,
                                   &((const struct gdni_tuning_entry *)b)->key);
}

const struct gdni_tuning_entry *gdni_tuning_table_sort(struct gdni_tuning_table *table)
{
    if (table->count > 1) qsort(table->entries, table->count, sizeof *table->entries, compare_entries);
    for (size_t i = 1; i < table->count; ++i)
        if (compare_entries(&table->entries[i - 1], &table->entries[i]) == 0) return &table->entries[i];
    return NULL;
}

size_t gdni_tuning_table_lower(const struct gdni_tuning_table *table, const struct gdni_tuning_key *key)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (gdni_tuning_key_compare(&table->entries[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
