/*
 * call_prefill.c - owns what a legal call of GDN prefill is: pointers, strides, slots, checkpoints of gdn_prefill_args against
 * a problem. Must not know: descriptors, contents of device memory, kernels, devices.
 */
#include <math.h>

#include "codegen/check.h"

enum { TENSOR_ALIGNMENT = 16 };
gdn_strides gdni_strides_filled(const gdn_strides *given, int64_t heads, int64_t head, int64_t uniform_len)
{
    gdn_strides s = *given;
    if (!s.head) s.head = head;
    if (!s.token) s.token = heads * head;
    if (!s.batch) s.batch = uniform_len * s.token;
    return s;
}

/* ---- strides ---- */

static gdn_status check_stride(const char *tensor, const char *which, int64_t value, int unit)
{
    if (value < 0 || value >= GDNI_MAX_STRIDE || value % unit)
        return GDN_FAIL(GDN_E_INVALID,
                        "%s_strides.%s is %lld elements: must be a multiple of %d from 0 (packed) to below 2^47",
                        tensor, which, (long long)value, unit);
    return GDN_OK;
}

/* Of a sequence, of which gdni_strides_filled() makes a batch stride. */
static gdn_status check_span(const gdn_prefill_args *a, const char *tensor, const gdn_strides *s)
{
    const int64_t rows = a->cu_seqlens || a->num_seqs == 0 ? a->num_tokens : a->num_tokens / a->num_seqs;
    if (rows == 0 || s->token < GDNI_MAX_STRIDE / rows) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s_strides.token is %lld elements: %lld rows that far apart pass 2^47 elements, which no address "
                    "space has; pass the distance of two rows, or 0 (packed)",
                    tensor, (long long)s->token, (long long)rows);
}

static gdn_status check_strides(const gdn_prefill_args *a, const char *tensor, const gdn_strides *s, int64_t dim,
                                int unit)
{
    GDN_TRY(check_stride(tensor, "token", s->token, unit));
    GDN_TRY(check_span(a, tensor, s));
    GDN_TRY(check_stride(tensor, "head", s->head, unit));
    GDN_TRY(check_stride(tensor, "batch", s->batch, unit));
    return gdni_check_strides_derived(tensor, s, dim, a->num_seqs, a->cu_seqlens);
}

static struct gdni_rows rows_of(const gdn_prefill_args *a, const char *name, const gdn_strides *s, int heads, int dim)
{
    return (struct gdni_rows){ name, *s, a->num_tokens, a->cu_seqlens ? 1 : a->num_seqs, heads, dim };
}

static gdn_status check_rows(const gdn_prefill_args *a, const char *name, const gdn_strides *s, int heads, int dim)
{
    const struct gdni_rows rows = rows_of(a, name, s, heads, dim);
    return gdni_check_rows_apart(&rows);
}

/* Gates may share elements. */
static gdn_status check_gate_rows(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    const struct gdni_rows g = rows_of(a, "g", &a->g_strides, p->num_heads, 1),
                           beta = rows_of(a, "beta", &a->beta_strides, p->num_heads, 1);
    if (a->g) GDN_TRY(gdni_check_rows_span(&g));
    return a->beta ? gdni_check_rows_span(&beta) : GDN_OK;
}

/* Rows of o that share elements would be a race; those of q, k and v are strides that were meant otherwise. */
static gdn_status check_all_rows(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    const gdn_strides *s = &a->o_strides;
    const int64_t dim = p->head_dim_v;
    if ((s->token && s->token < dim) || (s->head && s->head < dim) || (s->batch && s->batch < dim))
        return GDN_FAIL(GDN_E_INVALID,
                        "o_strides are { batch %lld, token %lld, head %lld }: rows of %d elements must not overlap, "
                        "pass strides of at least "
                        "that, or 0",
                        (long long)s->batch, (long long)s->token, (long long)s->head, p->head_dim_v);
    GDN_TRY(check_rows(a, "q", &a->q_strides, p->num_q_heads, p->head_dim_qk));
    GDN_TRY(check_rows(a, "k", &a->k_strides, p->num_k_heads, p->head_dim_qk));
    GDN_TRY(check_rows(a, "v", &a->v_strides, p->num_v_heads, p->head_dim_v));
    return check_rows(a, "o", s, p->num_heads, p->head_dim_v);
}

static gdn_status check_all_strides(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    const int unit = TENSOR_ALIGNMENT / gdni_dtype_bytes(p->io_type);
    GDN_TRY(check_strides(a, "q", &a->q_strides, p->head_dim_qk, unit));
    GDN_TRY(check_strides(a, "k", &a->k_strides, p->head_dim_qk, unit));
    GDN_TRY(check_strides(a, "v", &a->v_strides, p->head_dim_v, unit));
    GDN_TRY(check_strides(a, "o", &a->o_strides, p->head_dim_v, unit));
    GDN_TRY(check_strides(a, "g", &a->g_strides, 1, 1));
    GDN_TRY(check_strides(a, "beta", &a->beta_strides, 1, 1));
    GDN_TRY(check_gate_rows(p, a));
    return check_all_rows(p, a);
}

/* ---- gates ---- */

static gdn_status check_gates(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    if (p->gate == GDN_GATE_LOGITS && a->g && !a->a_log)
        return GDN_FAIL(GDN_E_INVALID, "a_log is null but g holds logits: pass [%d] float32", p->num_heads);
    if (p->gate != GDN_GATE_LOGITS && (a->a_log || a->dt_bias))
        return GDN_FAIL(GDN_E_INVALID, "%s is given but the plan's gate is not GDN_GATE_LOGITS: plan with it or pass 0",
                        a->a_log ? "a_log" : "dt_bias");
    return GDN_OK;
}

/* ---- states ---- */

static gdn_status check_slot_stride(const struct gdni_problem *p, const char *member, int64_t stride)
{
    const int64_t size = gdni_problem_state_size(p);
    const int unit = TENSOR_ALIGNMENT / gdni_dtype_bytes(p->state_type);
    if (stride == 0 || (stride >= size && stride < GDNI_MAX_STRIDE && stride % unit == 0)) return GDN_OK;
    return GDN_FAIL(
        GDN_E_INVALID,
        "%s is %lld elements: must be 0 (packed), or a multiple of %d, at least the %lld of a state, below 2^47",
        member, (long long)stride, unit, (long long)size);
}

/* Without slots sequence n has line n. */
static gdn_status check_pool(const char *pool, const char *member, gdn_devptr slots, int64_t stride, int64_t num_seqs)
{
    if (slots || num_seqs <= 1 || stride < GDNI_MAX_STRIDE / num_seqs) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s is %lld elements: %lld lines of %s that far apart pass 2^47 elements, which no address space has; pass "
                    "the distance of two lines, or 0 (packed)",
                    member, (long long)stride, (long long)num_seqs, pool);
}

static gdn_status check_states(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    GDN_TRY(check_slot_stride(p, "initial_slot_stride", a->initial_slot_stride));
    GDN_TRY(check_slot_stride(p, "final_slot_stride", a->final_slot_stride));
    const int64_t packed = gdni_problem_state_size(p), from = a->initial_slot_stride ? a->initial_slot_stride : packed,
                  to = a->final_slot_stride ? a->final_slot_stride : packed;
    if (a->initial_state && a->initial_state == a->final_state && from != to)
        return GDN_FAIL(GDN_E_INVALID,
                        "initial_slot_stride is %lld and final_slot_stride is %lld for one pool: pass the same",
                        (long long)a->initial_slot_stride, (long long)a->final_slot_stride);
    if (a->initial_state) GDN_TRY(check_pool("initial_state", "initial_slot_stride", a->slot_in, from, a->num_seqs));
    if (a->final_state)
        GDN_TRY(check_pool("final_state", "final_slot_stride", a->slot_out ? a->slot_out : a->slot_in, to, a->num_seqs));
    if (a->has_initial_state && !a->initial_state)
        return GDN_FAIL(GDN_E_INVALID, "has_initial_state is given but initial_state is null: pass both or neither");
    GDN_TRY(gdni_check_count("slot_in_stride", a->slot_in_stride, 0, INT32_MAX));
    return gdni_check_count("slot_out_stride", a->slot_out_stride, 0, INT32_MAX);
}

static gdn_status check_checkpoints(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    GDN_TRY(gdni_check_count("num_checkpoints", a->num_checkpoints, 0, INT32_MAX));
    if (a->num_checkpoints == 0) return GDN_OK;
    if (!(p->flags & GDN_PREFILL_CHECKPOINTS))
        return GDN_FAIL(
            GDN_E_INVALID,
            "num_checkpoints is %lld but flags of the desc lack GDN_PREFILL_CHECKPOINTS: give it, or pass 0",
            (long long)a->num_checkpoints);
    if (!a->checkpoints || !a->final_state)
        return GDN_FAIL(GDN_E_INVALID, "num_checkpoints is %lld but %s is null: pass its address",
                        (long long)a->num_checkpoints, a->checkpoints ? "final_state" : "checkpoints");
    return GDN_OK;
}

/* ---- the call ---- */

static gdn_status check_pointers(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    const bool rows = a->num_tokens > 0 && a->num_seqs > 0;
    const bool zeroes = a->num_tokens > 0 && p->flags & GDN_PREFILL_ZERO_PADDING;
    const int slot = gdni_index_bytes(p->slot_type);
    const struct gdni_pointer pointers[] = {
        { "q", a->q, rows, TENSOR_ALIGNMENT },
        { "k", a->k, rows, TENSOR_ALIGNMENT },
        { "v", a->v, rows, TENSOR_ALIGNMENT },
        { "g", a->g, false, gdni_dtype_bytes(p->gate_type) },
        { "beta", a->beta, false, gdni_dtype_bytes(p->beta_type) },
        { "o", a->o, rows || zeroes, TENSOR_ALIGNMENT },
        { "a_log", a->a_log, false, 4 },
        { "dt_bias", a->dt_bias, false, 4 },
        { "initial_state", a->initial_state, false, TENSOR_ALIGNMENT },
        { "final_state", a->final_state, false, TENSOR_ALIGNMENT },
        { "slot_in", a->slot_in, false, slot },
        { "slot_out", a->slot_out, false, slot },
        { "cu_seqlens", a->cu_seqlens, false, gdni_index_bytes(p->cu_seqlens_type) },
        { "checkpoints", a->checkpoints, false, 8 },
    };
    return gdni_check_pointers(pointers, sizeof pointers / sizeof pointers[0]);
}

gdn_status gdni_check_prefill_args(const struct gdni_problem *p, const gdn_prefill_args *a)
{
    GDN_TRY(gdni_check_sizes(p, a->num_tokens, a->num_seqs, a->cu_seqlens));
    GDN_TRY(check_pointers(p, a));
    GDN_TRY(check_all_strides(p, a));
    GDN_TRY(check_gates(p, a));
    GDN_TRY(check_states(p, a));
    GDN_TRY(check_checkpoints(p, a));
    if (a->has_scale != 0 && a->has_scale != 1)
        return GDN_FAIL(GDN_E_INVALID, "has_scale is %d: must be 0 (default scale) or 1 (args.scale)", a->has_scale);
    if (!isfinite(a->scale))
        return GDN_FAIL(GDN_E_INVALID, "scale is %s: must be a number", isnan(a->scale) ? "NaN" : "infinite");
    if (a->scale != 0 && !a->has_scale)
        return GDN_FAIL(GDN_E_INVALID, "scale is given and has_scale is 0: set has_scale to 1, or leave scale 0");
    if (a->max_seq_tokens < 0)
        return GDN_FAIL(GDN_E_INVALID, "max_seq_tokens is %lld: must be 0 (not known) or what no sequence is longer than",
                        (long long)a->max_seq_tokens);
    return GDN_OK;
}

gdn_status gdni_check_prefill_apart(const gdn_prefill_args *a, gdn_devptr workspace)
{
    enum { NUM_WRITTEN = 3 };
    const bool in_place = a->initial_state == a->final_state;
    const bool rows = a->num_tokens > 0; /* tensors without rows may lie anywhere */
    const struct gdni_address addresses[] = {
        { "o", rows ? a->o : 0 },
        { "final_state", a->num_seqs > 0 ? a->final_state : 0 },
        { "workspace", workspace },
        { "q", rows ? a->q : 0 },
        { "k", rows ? a->k : 0 },
        { "v", rows ? a->v : 0 },
        { "g", rows ? a->g : 0 },
        { "beta", rows ? a->beta : 0 },
        { "a_log", a->a_log },
        { "dt_bias", a->dt_bias },
        { "initial_state", in_place ? 0 : a->initial_state },
        { "slot_in", a->slot_in },
        { "slot_out", a->slot_out },
        { "has_initial_state", a->has_initial_state },
        { "cu_seqlens", a->cu_seqlens },
        { "checkpoints", a->checkpoints },
    };
    return gdni_check_apart(addresses, NUM_WRITTEN, sizeof addresses / sizeof addresses[0]);
}
