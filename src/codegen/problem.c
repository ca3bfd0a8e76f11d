/*
 * problem.c - what the operators' descriptors have in common: structs by size, dtypes, names. Must not know: one operator's
 * members (problem_prefill.c, problem_conv1d.c), tuning, archs, kernels, devices.
 */
#include "codegen/problem.h"

#include <string.h>

#include "codegen/check.h"

#include "base/error.h"

static const struct {
    const char *name;
    int bytes;
} dtypes[] = { { "?", 0 }, { "bf16", 2 }, { "fp16", 2 }, { "fp32", 4 } };

bool gdni_is_dtype(int32_t dtype)
{
    return dtype >= GDN_BF16 && dtype <= GDN_F32;
}

int gdni_dtype_bytes(int32_t dtype)
{
    return gdni_is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

int gdni_index_bytes(int32_t index_type)
{
    return index_type == GDN_INDEX_I64 ? 8 : 4;
}

const char *gdni_dtype_name(int32_t dtype)
{
    return dtypes[gdni_is_dtype(dtype) ? dtype : 0].name;
}

const char *gdni_op_name(int32_t op)
{
    return op == GDNI_OP_PREFILL ? "gdn_prefill" : "conv1d_qkv";
}

int64_t gdni_problem_channels(const struct gdni_problem *p)
{
    return (int64_t)p->head_dim_qk * (p->num_q_heads + p->num_k_heads) + (int64_t)p->head_dim_v * p->num_v_heads;
}

void gdni_problem_cost(const struct gdni_problem *p, int64_t num_tokens, int64_t num_seqs, double *bytes, double *flops)
{
    if (p->op == GDNI_OP_PREFILL)
        gdni_prefill_cost(p, num_tokens, num_seqs, bytes, flops);
    else
        gdni_conv1d_cost(p, num_tokens, num_seqs, bytes, flops);
}
