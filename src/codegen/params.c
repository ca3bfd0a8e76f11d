/*
 * params.c - owns the parameter space: which kernel has which parameter, legal values, the space's hash; and the T buckets.
 * Must not know: JSON files, kernels' text, what is fast (heuristic.c).
 */
#include "codegen/params.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "codegen/spec.h"

enum { MAX_KERNELS_OF_A_PARAM = 4 };

struct kernel_row {
    int32_t kernel, initial; /* enum gdni_kernel */
    int32_t legal[GDNI_MAX_PARAM_VALUES + 1];
};

static const struct param {
    const char *name;
    enum gdni_param_time when;
    size_t offset;
    struct kernel_row rows[MAX_KERNELS_OF_A_PARAM]; /* unused ones have no legal value */
} params[] = {
#define GDNI_PARAM(name, when, ...) { #name, when, offsetof(struct gdni_params, name), { __VA_ARGS__ } },
#include "codegen/params.def"
#undef GDNI_PARAM
};
enum { NUM_PARAMS = sizeof params / sizeof params[0] };

/* NULL: the kernel does not have it. */
static const struct kernel_row *row_of(const struct param *param, int32_t kernel)
{
    for (int i = 0; i < MAX_KERNELS_OF_A_PARAM && param->rows[i].legal[0]; ++i)
        if (param->rows[i].kernel == kernel) return &param->rows[i];
    return NULL;
}

bool gdni_param_at(int32_t kernel, int i, struct gdni_param_row *out)
{
    for (int k = 0; k < NUM_PARAMS; ++k) {
        const struct kernel_row *row = row_of(&params[k], kernel);
        if (!row || i-- > 0) continue;
        *out = (struct gdni_param_row){ params[k].name, params[k].when, row->initial, { 0 }, params[k].offset };
        memcpy(out->legal, row->legal, sizeof out->legal);
        return true;
    }
    return false;
}

static int32_t value_at(const struct gdni_params *values, size_t offset)
{
    return *(const int32_t *)(const void *)((const char *)values + offset);
}

static void set_at(struct gdni_params *values, size_t offset, int32_t value)
{
    *(int32_t *)(void *)((char *)values + offset) = value;
}

int32_t gdni_param_get(const struct gdni_params *values, const struct gdni_param_row *row)
{
    return value_at(values, row->offset);
}

void gdni_param_set(struct gdni_params *values, const struct gdni_param_row *row, int32_t value)
{
    set_at(values, row->offset, value);
}

void gdni_params_initial(struct gdni_params *out, int32_t kernel)
{
    *out = (struct gdni_params){ 0 };
    for (int i = 0; i < NUM_PARAMS; ++i) {
        const struct kernel_row *row = row_of(&params[i], kernel);
        if (row) set_at(out, params[i].offset, row->initial);
    }
}

/* ---- Checks ---- */

static gdn_status refuse(const struct param *param, const struct kernel_row *row, const char *kernel, int32_t value)
{
    char legal[128] = "";
    size_t len = 0;
    if (!row)
        return GDN_FAIL(GDN_E_INVALID, "parameter %s is %d: %s has no such parameter", param->name, value, kernel);
    for (const int32_t *v = row->legal; *v && len < sizeof legal; ++v)
        len += (size_t)snprintf(legal + len, sizeof legal - len, "%s%d", v == row->legal ? "" : ", ", *v);
    return GDN_FAIL(GDN_E_INVALID, "parameter %s is %d: must be %s%s for %s", param->name, value,
                    row->legal[1] ? "one of " : "", legal, kernel);
}

static bool is_legal(const struct kernel_row *row, int32_t value)
{
    if (!row) return value == 0;
    for (const int32_t *v = row->legal; *v; ++v)
        if (*v == value) return true;
    return false;
}

gdn_status gdni_params_check(const struct gdni_params *values, int32_t kernel)
{
    for (int i = 0; i < NUM_PARAMS; ++i) {
        const struct kernel_row *row = row_of(&params[i], kernel);
        const int32_t value = value_at(values, params[i].offset);
        if (!is_legal(row, value))
            return refuse(&params[i], row, gdni_kernel_info((enum gdni_kernel)kernel)->name, value);
    }
    return GDN_OK;
}

/* ---- Texts ---- */

void gdni_params_json(struct gdni_strbuf *sb, const struct gdni_params *values, int32_t kernel)
{
    const char *comma = "";
    gdni_sb_str(sb, "{");
    for (int i = 0; i < NUM_PARAMS; ++i) {
        if (!row_of(&params[i], kernel)) continue;
        gdni_sb_fmt(sb, "%s\"%s\": %d", comma, params[i].name, value_at(values, params[i].offset));
        comma = ", ";
    }
    gdni_sb_str(sb, "}");
}

static void hash_int(XXH3_state_t *state, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i)
        bytes[i] = (unsigned char)((uint64_t)value >> 8 * i);
    XXH3_64bits_update(state, bytes, sizeof bytes);
}

static void hash_text(XXH3_state_t *state, const char *text)
{
    XXH3_64bits_update(state, text, strlen(text) + 1);
}

/* Names rather than numbers of kernels: a kernel that is added leaves the others' tables alone until it has parameters. */
static void hash_kernel(XXH3_state_t *state, int32_t kernel)
{
    struct gdni_param_row row;
    hash_text(state, gdni_kernel_info((enum gdni_kernel)kernel)->name);
    for (int i = 0; gdni_param_at(kernel, i, &row); ++i) {
        hash_text(state, row.name);
        hash_int(state, row.when);
        hash_int(state, row.initial);
        for (int v = 0; v <= GDNI_MAX_PARAM_VALUES; ++v)
            hash_int(state, row.legal[v]);
    }
}

void gdni_space_hash(char out[GDNI_SPACE_HEX])
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (int32_t kernel = 0; kernel < GDNI_NUM_KERNELS; ++kernel)
        hash_kernel(&state, kernel);
    hash_int(&state, GDNI_NUM_BUCKETS);
    hash_int(&state, GDNI_NUM_SEQ_CLASSES);
    snprintf(out, GDNI_SPACE_HEX, "%016llx", (unsigned long long)XXH3_64bits_digest(&state));
}

/* ---- Buckets ---- */

int gdni_bucket_of(int64_t num_tokens)
{
    int bucket = 0;
    while (bucket < GDNI_NUM_BUCKETS - 1 && num_tokens > gdni_bucket_edge(bucket))
        ++bucket;
    return bucket;
}

int64_t gdni_bucket_edge(int bucket)
{
    static const int64_t edges[GDNI_NUM_BUCKETS - 1] = { 256, 1024, 2048, 4096, 16384, 65536, 262144, 1048576 };
    return bucket >= GDNI_NUM_BUCKETS - 1 ? INT64_MAX : edges[bucket];
}

int gdni_seq_class_of(int64_t num_seqs)
{
    int seq_class = 0;
    while (seq_class < GDNI_NUM_SEQ_CLASSES && num_seqs > gdni_seq_class_edge(seq_class))
        ++seq_class;
    return seq_class;
}

int64_t gdni_seq_class_edge(int seq_class)
{
    return (int64_t)1 << seq_class;
}
