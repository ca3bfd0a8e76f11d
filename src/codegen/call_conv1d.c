/*
 * call_conv1d.c - owns what a legal call of conv1d-QKV is: pointers, strides, slots, checkpoints of gdn_conv1d_args against a
 * problem. Must not know: descriptors, contents of device memory, kernels, devices.
 */
#include "codegen/check.h"

enum { TENSOR_ALIGNMENT = 16 };
/* ---- x ---- */

static gdn_status check_x_pitch(const struct gdni_problem *p, const char *member, int64_t stride, int64_t least,
                                const char *what)
{
    if (stride < least || stride > INT32_MAX)
        return GDN_FAIL(GDN_E_INVALID,
                        "%s is %lld elements: must be at least the %lld channels of a %s, and below 2^31", member,
                        (long long)stride, (long long)least, what);
    if (stride * gdni_dtype_bytes(p->io_type) % p->x_alignment)
        return GDN_FAIL(GDN_E_INVALID,
                        "%s is %lld elements: rows must keep x_alignment, %d bytes; plan with a smaller one", member,
                        (long long)stride, p->x_alignment);
    return GDN_OK;
}

static gdn_status check_x(const struct gdni_problem *p, const gdn_conv1d_args *a, bool rows)
{
    const struct gdni_pointer x = { "x", a->x, rows, p->x_alignment };
    const gdn_status status = gdni_check_pointers(&x, 1);
    if (status != GDN_OK) return a->x ? gdni_fail_in(status, "the plan's x_alignment is %d", p->x_alignment) : status;
    if (p->x_layout == GDN_CONV_X_PACKED && a->x_group_stride)
        return GDN_FAIL(GDN_E_INVALID,
                        "x_group_stride is %lld but the plan's x_layout is GDN_CONV_X_PACKED: plan with "
                        "GDN_CONV_X_INTERLEAVED or pass 0",
                        (long long)a->x_group_stride);
    if (!rows) return GDN_OK;
    if (p->x_layout == GDN_CONV_X_PACKED)
        return check_x_pitch(p, "x_stride", a->x_stride, gdni_problem_channels(p), "row");
    const int64_t held = gdni_problem_channels(p) / p->num_k_heads, pitch = gdni_conv1d_group_stride(p, a);
    GDN_TRY(check_x_pitch(p, "x_group_stride", pitch, held, "group"));
    return check_x_pitch(p, "x_stride", a->x_stride, (p->num_k_heads - 1) * pitch + held, "row of groups");
}

int64_t gdni_conv1d_group_stride(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const int64_t v = (int64_t)p->num_v_heads / p->num_k_heads * p->head_dim_v;
    return a->x_group_stride ? a->x_group_stride : 2 * (int64_t)p->head_dim_qk + 2 * v;
}

/* ---- q, k, v ---- */

struct output {
    const char *name;
    gdn_devptr value;
    int32_t heads, dim;
    const gdn_strides *strides;
};

static gdn_status check_stride(const struct output *o, const char *which, int64_t value, int64_t bound, int unit)
{
    if (value == 0 || (value >= o->dim && value < bound && value % unit == 0)) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID,
                    "%s_strides.%s is %lld elements: must be 0 (packed), or a multiple of %d from %d, a head's row, to "
                    "below %lld",
                    o->name, which, (long long)value, unit, o->dim, (long long)bound);
}

static gdn_status check_output(const struct gdni_problem *p, const gdn_conv1d_args *a, const struct output *o,
                               bool rows)
{
    const int unit = TENSOR_ALIGNMENT / gdni_dtype_bytes(p->io_type);
    const struct gdni_pointer pointer = { o->name, o->value, rows && o->heads > 0, TENSOR_ALIGNMENT };
    if (o->heads == 0 && o->value)
        return GDN_FAIL(GDN_E_INVALID, "%s is 0x%llx but the plan has no head for it: pass 0", o->name,
                        (unsigned long long)o->value);
    GDN_TRY(gdni_check_pointers(&pointer, 1));
    GDN_TRY(check_stride(o, "token", o->strides->token, (int64_t)1 << 31, unit));
    GDN_TRY(check_stride(o, "head", o->strides->head, GDNI_MAX_STRIDE, unit));
    GDN_TRY(check_stride(o, "batch", o->strides->batch, GDNI_MAX_STRIDE, unit));
    if (o->heads == 0) return GDN_OK; /* its strides are reckoned with all the same */
    GDN_TRY(gdni_check_strides_derived(o->name, o->strides, o->dim, a->num_seqs, a->cu_seqlens));
    const struct gdni_rows of_heads = {
        o->name, *o->strides, a->num_tokens, a->cu_seqlens ? 1 : a->num_seqs, o->heads, o->dim
    };
    return gdni_check_rows_apart(&of_heads);
}

static gdn_status check_outputs(const struct gdni_problem *p, const gdn_conv1d_args *a, bool rows)
{
    const struct output outputs[] = {
        { "q", a->q, p->num_q_heads, p->head_dim_qk, &a->q_strides },
        { "k", a->k, p->num_k_heads, p->head_dim_qk, &a->k_strides },
        { "v", a->v, p->num_v_heads, p->head_dim_v, &a->v_strides },
    };
    for (int i = 0; i < 3; ++i)
        GDN_TRY(check_output(p, a, &outputs[i], rows));
    return GDN_OK;
}

/* ---- gates ---- */

static gdn_status check_gate_groups(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const int64_t group = a->gate_group_stride;
    if (group == 0) return GDN_OK;
    GDN_TRY(gdni_check_count("gate_group_stride", group, 0, INT32_MAX));
    if (p->num_k_heads == 0 || p->num_gate_heads % p->num_k_heads)
        return GDN_FAIL(GDN_E_INVALID,
                        "gate_group_stride is %lld but %d gate heads do not divide among %d k heads: pass 0",
                        (long long)group, p->num_gate_heads, p->num_k_heads);
    const int32_t held = p->num_gate_heads / p->num_k_heads;
    if (group < held && p->num_k_heads > 1)
        return GDN_FAIL(GDN_E_INVALID,
                        "gate_group_stride is %lld elements: must be 0 (packed), or at least the %d gate heads of a group",
                        (long long)group, held);
    const bool packed = group == held;
    const bool of_a = a->g && a->a && !a->a_stride, of_b = a->beta && a->b && !a->b_stride;
    if (!packed && a->num_tokens > 1 && (of_a || of_b))
        return GDN_FAIL(GDN_E_INVALID, "%s is 0, packed, but gate_group_stride is %lld, of groups that are not: give both",
                        of_a ? "a_stride" : "b_stride", (long long)group);
    return GDN_OK;
}

/* Of a or b, where it is read; of one token there is no next row. */
static gdn_status check_gate_row(const struct gdni_problem *p, const gdn_conv1d_args *a, const char *member,
                                 int64_t stride, bool read)
{
    const int64_t most = GDNI_MAX_STRIDE / (a->num_tokens > 0 ? a->num_tokens : 1), group = a->gate_group_stride;
    GDN_TRY(gdni_check_count(member, stride, 0, most)); /* of all rows: what no address space has */
    const int64_t row = group ? (p->num_k_heads - 1) * group + p->num_gate_heads / p->num_k_heads : p->num_gate_heads;
    if (!read || stride == 0 || stride >= row || a->num_tokens < 2) return GDN_OK;
    return GDN_FAIL(GDN_E_INVALID, "%s is %lld elements: must be 0 (packed), or at least the %lld of a row%s", member,
                    (long long)stride, (long long)row, group ? " of groups" : "");
}

static gdn_status check_gate_strides(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    GDN_TRY(check_gate_groups(p, a));
    GDN_TRY(check_gate_row(p, a, "a_stride", a->a_stride, a->g && a->a));
    return check_gate_row(p, a, "b_stride", a->b_stride, a->beta && a->b);
}

static gdn_status check_no_gates(const gdn_conv1d_args *a)
{
    const struct gdni_address tensors[] = {
        { "a", a->a }, { "b", a->b }, { "a_log", a->a_log }, { "dt_bias", a->dt_bias }, { "g", a->g }, { "beta", a->beta },
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i)
        if (tensors[i].value)
            return GDN_FAIL(GDN_E_INVALID,
                            "%s is 0x%llx but num_gate_heads of the desc is 0: pass 0, or a desc with gate heads",
                            tensors[i].name, (unsigned long long)tensors[i].value);
    const struct {
        const char *name;
        int64_t value;
    } strides[] = { { "a_stride", a->a_stride },
                    { "b_stride", a->b_stride },
                    { "gate_group_stride", a->gate_group_stride } };
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; ++i)
        if (strides[i].value)
            return GDN_FAIL(GDN_E_INVALID,
                            "%s is %lld but num_gate_heads of the desc is 0: pass 0, or a desc with gate heads",
                            strides[i].name, (long long)strides[i].value);
    return GDN_OK;
}

static gdn_status check_gates(const struct gdni_problem *p, const gdn_conv1d_args *a, bool rows)
{
    if (p->num_gate_heads == 0) return check_no_gates(a);
    if (rows && !a->g && !a->beta)
        return GDN_FAIL(GDN_E_INVALID,
                        "g and beta are both null but the plan has %d gate heads: pass one of them, or plan "
                        "without gate heads",
                        p->num_gate_heads);
    const int bytes = gdni_dtype_bytes(p->gate_type);
    const struct gdni_pointer pointers[] = {
        { "a", a->a, rows && a->g, bytes },
        { "a_log", a->a_log, rows && a->g, gdni_dtype_bytes(p->a_log_type) },
        { "dt_bias", a->dt_bias, false, gdni_dtype_bytes(p->dt_bias_type) },
        { "b", a->b, rows && a->beta, bytes },
        { "g", a->g, false, 4 },
        { "beta", a->beta, false, 4 },
    };
    GDN_TRY(gdni_check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    return check_gate_strides(p, a);
}

/* ---- states ---- */

static gdn_status check_slot_stride(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const int64_t line = gdni_conv1d_line_size(p, a), stride = a->state_slot_stride;
    const int unit =
        p->state_layout == GDN_CONV_STATE_CW_STRIDED ? 1 : TENSOR_ALIGNMENT / gdni_dtype_bytes(p->state_type);
    if (stride == 0 || (stride >= line && stride < GDNI_MAX_STRIDE && stride % unit == 0)) return GDN_OK;
    return GDN_FAIL(
        GDN_E_INVALID,
        "state_slot_stride is %lld elements: must be 0 (packed), or a multiple of %d, at least the %lld of a "
        "line, below 2^47",
        (long long)stride, unit, (long long)line);
}

static gdn_status check_channel_stride(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const int64_t stride = a->state_channel_stride;
    if (p->state_layout != GDN_CONV_STATE_CW_STRIDED && stride)
        return GDN_FAIL(
            GDN_E_INVALID,
            "state_channel_stride is %lld but the plan's state_layout is not GDN_CONV_STATE_CW_STRIDED: plan "
            "with it or pass 0",
            (long long)stride);
    if (p->state_layout != GDN_CONV_STATE_CW_STRIDED || (!a->state && stride == 0)) return GDN_OK;
    if (stride < p->width - 1 || stride > 65535)
        return GDN_FAIL(GDN_E_INVALID, "state_channel_stride is %lld: must be from width - 1, which is %d, to 65535",
                        (long long)stride, p->width - 1);
    return GDN_OK;
}

int64_t gdni_conv1d_line_size(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const bool strided = p->state_layout == GDN_CONV_STATE_CW_STRIDED;
    return gdni_problem_channels(p) * (strided ? a->state_channel_stride : p->width - 1);
}

static gdn_status check_states(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const bool strided = p->state_layout == GDN_CONV_STATE_CW_STRIDED;
    const int slot = gdni_index_bytes(p->slot_type);
    const struct gdni_pointer pointers[] = {
        { "state", a->state, false, strided ? gdni_dtype_bytes(p->state_type) : TENSOR_ALIGNMENT },
        { "slot_in", a->slot_in, false, slot },
        { "slot_out", a->slot_out, false, slot },
        { "has_initial_state", a->has_initial_state, false, 1 },
    };
    GDN_TRY(gdni_check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    if (a->has_initial_state && !a->state)
        return GDN_FAIL(GDN_E_INVALID, "has_initial_state is given but state is null: pass both or neither");
    GDN_TRY(check_channel_stride(p, a));
    GDN_TRY(check_slot_stride(p, a));
    GDN_TRY(gdni_check_count("slot_in_stride", a->slot_in_stride, 0, INT32_MAX));
    return gdni_check_count("slot_out_stride", a->slot_out_stride, 0, INT32_MAX);
}

static gdn_status check_checkpoints(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    const struct gdni_pointer list = { "checkpoints", a->checkpoints, a->num_checkpoints > 0, 8 };
    GDN_TRY(gdni_check_count("num_checkpoints", a->num_checkpoints, 0, INT32_MAX));
    GDN_TRY(gdni_check_pointers(&list, 1));
    if (a->num_checkpoints == 0) return GDN_OK;
    if (!(p->flags & GDN_CONV_CHECKPOINTS))
        return GDN_FAIL(
            GDN_E_INVALID,
            "num_checkpoints is %lld but flags of the desc lack GDN_CONV_CHECKPOINTS: give it, or pass 0",
            (long long)a->num_checkpoints);
    if (!a->state)
        return GDN_FAIL(GDN_E_INVALID, "num_checkpoints is %lld but state is null: checkpoints are lines of it",
                        (long long)a->num_checkpoints);
    return GDN_OK;
}

/* ---- the call ---- */

gdn_status gdni_check_conv1d_args(const struct gdni_problem *p, const gdn_conv1d_args *a)
{
    GDN_TRY(gdni_check_sizes(p, a->num_tokens, a->num_seqs, a->cu_seqlens));
    const bool rows = a->num_tokens > 0 && a->num_seqs > 0, biased = p->flags & GDN_CONV_BIAS;
    const bool written = a->num_tokens > 0 && (a->num_seqs > 0 || p->flags & GDN_CONV_ZERO_PADDING);
    GDN_TRY(check_x(p, a, rows));
    if (a->bias && !biased)
        return GDN_FAIL(GDN_E_INVALID, "bias is given but flags of the desc lack GDN_CONV_BIAS: give it, or pass 0");
    const struct gdni_pointer pointers[] = {
        { "weight", a->weight, rows, TENSOR_ALIGNMENT },
        { "bias", a->bias, rows && biased, TENSOR_ALIGNMENT },
        { "cu_seqlens", a->cu_seqlens, false, gdni_index_bytes(p->cu_seqlens_type) },
    };
    GDN_TRY(gdni_check_pointers(pointers, sizeof pointers / sizeof pointers[0]));
    GDN_TRY(check_outputs(p, a, written));
    GDN_TRY(check_gates(p, a, rows));
    GDN_TRY(check_checkpoints(p, a));
    return check_states(p, a);
}

gdn_status gdni_check_conv1d_apart(const gdn_conv1d_args *a)
{
    enum { NUM_WRITTEN = 6 };
    const bool rows = a->num_tokens > 0; /* tensors without rows may lie anywhere */
    const struct gdni_address addresses[] = {
        { "q", rows ? a->q : 0 },
        { "k", rows ? a->k : 0 },
        { "v", rows ? a->v : 0 },
        { "g", rows ? a->g : 0 },
        { "beta", rows ? a->beta : 0 },
        { "state", a->num_seqs > 0 ? a->state : 0 },
        { "x", rows ? a->x : 0 },
        { "weight", a->weight },
        { "bias", a->bias },
        { "a", rows ? a->a : 0 },
        { "b", rows ? a->b : 0 },
        { "a_log", a->a_log },
        { "dt_bias", a->dt_bias },
        { "slot_in", a->slot_in },
        { "slot_out", a->slot_out },
        { "has_initial_state", a->has_initial_state },
        { "cu_seqlens", a->cu_seqlens },
        { "checkpoints", a->checkpoints },
    };
    return gdni_check_apart(addresses, NUM_WRITTEN, sizeof addresses / sizeof addresses[0]);
}
