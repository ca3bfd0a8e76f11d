/*
 * tensor_map.c - owns how q, k, v, o and states look to the copy engine: maps of five dimensions in 128-byte swizzle, a row of
 * 128 bytes the first of them, as gdn_hopper_copies.cuh moves them.
 *
 * Must not know: plans, streams. Calls the driver for nothing but the encoding, which touches no device.
 */
#include "runtime/tensor_map.h"

#include <string.h>

#include "base/error.h"
#include "codegen/spec.h"

enum { DIMS = 5, COLUMNS = 64, BOX_TOKENS = 64, F32_BYTES = 4 }; /* columns of 16 bits */
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
static bool holds_stride(int64_t stride, int bytes)
{
    return stride < ((int64_t)1 << 40) / bytes;
}

static gdn_status check_stride(const struct view *v, const char *which, int64_t stride, int bytes)
{
    if (holds_stride(stride, bytes)) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s_strides.%s is %lld elements: the Hopper kernel's copies take strides below 2^40 bytes; pass a "
                    "nearer view, or "
                    "plan with GDN_PLAN_GENERIC",
                    v->name, which, (long long)stride);
}

/* What differs from map to map. Dims from the inner one on; strides in bytes, of all but that. */
struct layout {
    uint64_t dims[DIMS], strides[DIMS - 1];
    uint32_t box[DIMS];
};

static gdn_status encode(struct gdni_tensor_map *map, const char *name, uint64_t address, int type, const struct layout *l,
                         const struct gdni_cuda *cuda)
{
    const uint32_t ones[DIMS] = { 1, 1, 1, 1, 1 };
    const gdni_curesult result =
        cuda->cuTensorMapEncodeTiled(map, type, DIMS, address, l->dims, l->strides, l->box, ones, INTERLEAVE_NONE,
                                     SWIZZLE_128B, L2_PROMOTION_256B, OOB_FILL_ZEROS);
    if (result == 0) return GDN_OK;
    gdni_cuda_fail(cuda, result, "cuTensorMapEncodeTiled");
    return gdni_fail_in(GDN_E_CUDA, "tensor map of %s", name);
}

/* {64 columns, token, half of the head dim, head, batch} in boxes of 64 tokens. */
static gdn_status encode_view(const struct view *v, const struct gdni_problem *p, uint64_t tokens, uint64_t batches,
                              const struct gdni_cuda *cuda)
{
    const int bytes = gdni_dtype_bytes(p->io_type);
    GDN_TRY(check_stride(v, "token", v->token, bytes));
    GDN_TRY(check_stride(v, "head", v->head, bytes));
    GDN_TRY(check_stride(v, "batch", v->batch, bytes));
    const uint64_t unit = (uint64_t)bytes;
    /* The stride of a dimension of one is not used, but must be legal. */
    const struct layout l = { { COLUMNS, tokens, 2, (uint64_t)v->heads, batches },
                              { (uint64_t)v->token * unit, COLUMNS * unit, (uint64_t)v->head * unit,
                                batches > 1 ? (uint64_t)v->batch * unit : COLUMNS * unit },
                              { COLUMNS, BOX_TOKENS, (uint32_t)v->halves, 1, 1 } };
    return encode(v->map, v->name, v->address, p->io_type == GDN_BF16 ? TYPE_BF16 : TYPE_F16, &l, cuda);
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
            GDN_TRY(encode_view(&views[i], problem, (uint64_t)tokens, packed ? 1 : (uint64_t)params->num_seqs, cuda));
    }
    return GDN_OK;
}

/*
 * A pool of fp32 states of 128 x 128, whose rows of 32 numbers go as 64 of 16 bits: {32 numbers, row, block of 32 columns,
 * head, line}, in boxes of a quarter of a state, 32 value columns: a block of KV, 32 rows of VK. Nobody says how many lines a
 * pool has: as many as fit into an address space.
 */
static gdn_status encode_pool(struct gdni_tensor_map *map, const char *name, uint64_t address, int64_t slot_stride,
                              const struct gdni_problem *p, const struct gdni_cuda *cuda)
{
    enum { ROW = 128, ROWS = 128, BLOCKS = 4, HEAD = ROWS * BLOCKS * ROW };
    const uint64_t distance = (uint64_t)slot_stride * F32_BYTES, lines = ((uint64_t)1 << GDNI_ADDRESS_BITS) / distance + 1;
    const bool kv = p->state_layout == GDN_STATE_KV;
    const struct layout l = { { COLUMNS, ROWS, BLOCKS, (uint64_t)p->num_heads, lines < INT32_MAX ? lines : INT32_MAX },
                              { BLOCKS * ROW, ROW, HEAD, distance },
                              { COLUMNS, kv ? ROWS : ROWS / BLOCKS, kv ? 1 : BLOCKS, 1, 1 } };
    return encode(map, name, address, TYPE_F16, &l, cuda);
}

/* A stride beyond what a map holds is no fault: the kernel does without. */
static bool may_have_map(uint64_t address, int64_t slot_stride)
{
    return address == 0 || holds_stride(slot_stride, F32_BYTES);
}

gdn_status gdni_state_maps(struct gdni_prefill_hopper_params *params, const struct gdni_problem *problem,
                           const struct gdni_cuda *cuda)
{
    const uint64_t from = params->initial_state, to = params->final_state;
    params->states_by_map =
        may_have_map(from, params->initial_slot_stride) && may_have_map(to, params->final_slot_stride);
    if (params->states_by_map && from)
        GDN_TRY(encode_pool(&params->initial_map, "initial_state", from, params->initial_slot_stride, problem, cuda));
    if (params->states_by_map && to)
        GDN_TRY(encode_pool(&params->final_map, "final_state", to, params->final_slot_stride, problem, cuda));
    return GDN_OK;
}
