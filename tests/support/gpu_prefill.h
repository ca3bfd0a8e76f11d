/*
 * gpu_prefill.h - one GDN prefill on the device from host tensors, with everything around it checked: guards, inputs left as
 * they were, poisoned outputs, workspace full of NaN.
 */
#ifndef GPU_PREFILL_H
#define GPU_PREFILL_H

#include "gpu_test.h"

enum {
    GPU_PREFILL_IN_PLACE = 1u, /* final_state is initial_state's buffer */
    GPU_PREFILL_NO_FINAL = 2u  /* final_state is 0 */
};

struct gpu_prefill_result {
    uint16_t *o;  /* [num_tokens, H, head_dim_v]; what the kernel did not write is 0xFFFF */
    float *state; /* [num_seqs, H, ...]; what it did not write has all bits set */
    size_t o_bytes, state_bytes;
    int repaired_pairs; /* as gpu_repaired_pairs() has it, where it is known that the call is cut; else -1 */
    char trouble[128]; /* "" or what was hit that must not be */
};

/* A context as the environment says: GDN_JIT_CACHE_DIR keeps the cubins from one run to the next. */
gdn_ctx *gpu_context(void);

/* A loaded plan for calls like desc's, with wider bounds, as an engine's are. */
gdn_plan *gpu_prefill_plan(gdn_ctx *ctx, int device, const gdn_prefill_desc *desc);

/* The same with plan flags beside the command line's, and for so many SMs; 0: as many as that says, else as there are. */
gdn_plan *gpu_prefill_plan_with(gdn_ctx *ctx, int device, const gdn_prefill_desc *desc, uint32_t flags, int num_sms);

/* The kernel of the plan's first variant, as its dump names it. */
void gpu_plan_kernel(const gdn_plan *plan, char *out, size_t size);

/*
 * Of the last call in this workspace, whose kernel cuts sequences: pairs, of so many, of which a guess was wrong. It is
 * PAIR_FAILED of gdn_hopper_items.cuh, which stays there.
 */
int gpu_repaired_pairs(const struct gpu_buffer *workspace, int pairs);

/* args holds device addresses. With a workspace full of NaN, on a stream of its own; waits. */
void gpu_prefill_execute(const gdn_plan *plan, const gdn_prefill_args *args);

/* The same without a workspace: one kernel, and so the same bits, whatever else is in the batch. */
void gpu_prefill_execute_bare(const gdn_plan *plan, const gdn_prefill_args *args);

/*
 * args holds host addresses (o, final_state and workspace are made here). Runs on a stream of its own, and waits.
 * Thread-safe.
 */
void gpu_prefill(struct gpu_prefill_result *out, const gdn_plan *plan, const gdn_prefill_desc *desc,
                 const gdn_prefill_args *args, unsigned flags);
void gpu_prefill_free(struct gpu_prefill_result *result);

/* Both results are the same bits. */
bool gpu_prefill_same(const struct gpu_prefill_result *a, const struct gpu_prefill_result *b);

#endif
