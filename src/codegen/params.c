/*
 * params.c - owns legality of tunable parameters and the T buckets. Must not know: JSON files, kernels' text.
 */
#include "codegen/params.h"

#include <stddef.h>

#include "base/error.h"

struct row {
    const char *name;
    int32_t op;
    size_t offset;
    int32_t legal[8]; /* ends at 0 */
};

static const struct row rows[] = {
#define GDNI_PARAM(name, op, ...) { #name, op, offsetof(struct gdni_params, name), { __VA_ARGS__, 0 } },
#include "codegen/params.def"
#undef GDNI_PARAM
};
enum { NUM_ROWS = sizeof rows / sizeof rows[0] };

static int32_t value_of(const struct gdni_params *params, const struct row *row)
{
    return *(const int32_t *)(const void *)((const char *)params + row->offset);
}

int gdni_bucket_of(int64_t num_tokens)
{
    int bucket = 0;
    while (bucket < GDNI_NUM_BUCKETS - 1 && num_tokens > gdni_bucket_edge(bucket))
        ++bucket;
    return bucket;
}

int64_t gdni_bucket_edge(int bucket)
{
    return bucket >= GDNI_NUM_BUCKETS - 1 ? INT64_MAX : (int64_t)256 << (2 * bucket);
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

static gdn_status check_row(const struct row *row, int32_t value, int32_t op)
{
    if (row->op != op) {
        if (value == 0) return GDN_OK;
        return GDN_FAIL(GDN_E_INVALID, "parameter %s is %d: it is no parameter of %s", row->name, value,
                        gdni_op_name(op));
    }
    struct gdni_strbuf legal = { 0 };
    for (const int32_t *v = row->legal; *v; ++v) {
        if (*v == value) {
            gdni_sb_free(&legal);
            return GDN_OK;
        }
        gdni_sb_fmt(&legal, "%s%d", legal.len ? ", " : "", *v);
    }
    const gdn_status status = GDN_FAIL(GDN_E_INVALID, "parameter %s is %d: must be one of %s", row->name, value,
                                       legal.text ? legal.text : "its legal values");
    gdni_sb_free(&legal);
    return status;
}

gdn_status gdni_params_check(const struct gdni_params *params, const struct gdni_problem *problem)
{
    for (int i = 0; i < NUM_ROWS; ++i)
        GDN_TRY(check_row(&rows[i], value_of(params, &rows[i]), problem->op));
    return GDN_OK;
}

void gdni_params_json(struct gdni_strbuf *sb, const struct gdni_params *params, int32_t op)
{
    const char *comma = "";
    gdni_sb_str(sb, "{");
    for (int i = 0; i < NUM_ROWS; ++i)
        if (rows[i].op == op) {
            gdni_sb_fmt(sb, "%s\"%s\": %d", comma, rows[i].name, value_of(params, &rows[i]));
            comma = ", ";
        }
    gdni_sb_str(sb, "}");
}
