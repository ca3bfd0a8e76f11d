/*
 * tensor_map.c - owns how q, k, v and o look to the copy engine: maps of five dimensions {64 columns, token, half of the head
 * dim, head, batch}, boxes of 64 tokens in 128-byte swizzle, as gdn_hopper_tiles.cuh loads and gdn_hopper_output.cuh
 * stores them.
 *
 * Must not know: plans, streams. Calls the driver for nothing but the encoding, which touches no device.
 */
#include "runtime/tensor_map.h"

#include <string.h>

#include "base/error.h"

enum { DIMS = 5, COLUMNS = 64, BOX_TOKENS = 64 };
enum { TYPE_F16 = 6, TYPE_BF16 = 9, INTERLEAVE_NONE = 0, SWIZZLE_128B = 3, L2_PROMOTION_256B = 3, OOB_FILL_ZEROS = 0 };

/* One tensor, strides in elements. */
struct view {
    const char *name;
    struct gdni_tensor_map *map;
    uint64_t address;
    int64_t batch, token, head;
    int32_t heads;
    int32_t halves; /* of the head dim, in one box */
};

/* PTX ISA and driver API, "tensor map": strides are multiples of 16 bytes below 2^40. Alignment was checked with the args. */
static gdn_status check_stride(const struct view *v, const char *which, int64_t stride, int bytes)
{
    const int64_t limit = ((int64_t)1 << 40) / bytes;
    if (stride < limit) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s_strides.%s is %lld elements: the Hopper kernel's copies take strides below 2^40 bytes; pass a "
                    "nearer view, or "
                    "plan with GDN_PLAN_GENERIC",
                    v->name, which, (long long)stride);
}

static gdn_status encode(const struct view *v, const struct gdni_problem *p, uint64_t tokens, uint64_t batches,
                         const struct gdni_cuda *cuda)
{
    const int bytes = gdni_dtype_bytes(p->io_type);
    GDN_TRY(check_stride(v, "token", v->token, bytes));
    GDN_TRY(check_stride(v, "head", v->head, bytes));
    GDN_TRY(check_stride(v, "batch", v->batch, bytes));
    const uint64_t unit = (uint64_t)bytes, dims[DIMS] = { COLUMNS, tokens, 2, (uint64_t)v->heads, batches };
    /* The stride of a dimension of one is not used, but must be legal. */
    const uint64_t strides[DIMS - 1] = { (uint64_t)v->token * unit, COLUMNS * unit, (uint64_t)v->head * unit,
                                         batches > 1 ? (uint64_t)v->batch * unit : COLUMNS * unit };
    const uint32_t box[DIMS] = { COLUMNS, BOX_TOKENS, (uint32_t)v->halves, 1, 1 }, ones[DIMS] = { 1, 1, 1, 1, 1 };
    const gdni_curesult result =
        cuda->cuTensorMapEncodeTiled(v->map, p->io_type == GDN_BF16 ? TYPE_BF16 : TYPE_F16, DIMS, v->address, dims,
                                     strides, box, ones, INTERLEAVE_NONE, SWIZZLE_128B, L2_PROMOTION_256B,
                                     OOB_FILL_ZEROS);
    if (result == 0) return GDN_OK;
    gdni_cuda_fail(cuda, result, "cuTensorMapEncodeTiled");
    return gdni_fail_in(GDN_E_CUDA, "tensor map of %s", v->name);
}

gdn_status gdni_tensor_maps(struct gdni_prefill_hopper_params *params, const struct gdni_problem *problem,
                            int32_t block_dv, const struct gdni_cuda *cuda)
{
    const bool packed = params->cu_seqlens != 0 || params->num_seqs <= 1;
    const int64_t tokens = packed ? params->num_tokens : params->uniform_len;
    const struct view views[] = {
#define VIEW(name, count, halves)                                                                                      \
    { #name,                                                                                                           \
      &params->name##_map,                                                                                             \
      params->name,                                                                                                    \
      params->name##_batch_stride,                                                                                     \
      params->name##_token_stride,                                                                                     \
      params->name##_head_stride,                                                                                      \
      count,                                                                                                           \
      halves }
        VIEW(q, problem->num_q_heads, 2),
        VIEW(k, problem->num_k_heads, 2),
        VIEW(v, problem->num_v_heads, block_dv / COLUMNS),
        VIEW(o, problem->num_heads, 1),
#undef VIEW
    };
    for (size_t i = 0; i < sizeof views / sizeof views[0]; ++i) {
        memset(views[i].map, 0, sizeof *views[i].map);
        if (tokens > 0 && params->num_seqs > 0) /* without a sequence q, k and v may be null */
            GDN_TRY(encode(&views[i], problem, (uint64_t)tokens, packed ? 1 : (uint64_t)params->num_seqs, cuda));
    }
    return GDN_OK;
}
