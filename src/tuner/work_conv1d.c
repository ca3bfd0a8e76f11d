/*
 * work_conv1d.c - owns what stands in the tensors of a conv1d-QKV call that is tried or timed.
 * Must not know: devices, how results are compared.
 */
#include <string.h>

#include "base/half.h"
#include "codegen/problem.h"
#include "tuner/fill.h"
#include "tuner/work.h"

#define MEMBER(name) #name, offsetof(gdn_conv1d_args, name)

static void add_normal(struct gdni_work *work, struct gdni_random *random, const char *name, size_t member,
                       int32_t dtype, int64_t rows, int64_t dim, double scale)
{
    struct gdni_tensor *t = gdni_work_add(work, name, member, dtype, rows, dim);
    gdni_fill_normal(random, dtype, t->host, 0, gdni_tensor_host_rows(t) * dim, scale);
}

static void take_defaults(gdn_conv1d_desc *d)
{
    gdni_conv1d_fill_types(d);
    if (!d->x_layout) d->x_layout = GDN_CONV_X_PACKED;
    if (!d->cu_seqlens_type) d->cu_seqlens_type = GDN_INDEX_I32;
    if (!d->slot_type) d->slot_type = GDN_INDEX_I32;
}

/* Elements of a row of x: interleaved groups carry as many columns of z as of v. */
static int64_t row_of_x(const gdn_conv1d_desc *d)
{
    const int64_t qk = (int64_t)(d->num_q_heads + d->num_k_heads) * d->head_dim_qk;
    const int64_t v = (int64_t)d->num_v_heads * d->head_dim_v;
    return d->x_layout == GDN_CONV_X_INTERLEAVED ? qk + 2 * v : qk + v;
}

/* One rounding to io_type, and what exp and division of a GPU add to it. */
static double tolerance_of(int32_t io_type)
{
    return io_type == GDN_BF16 ? 0.004 : io_type == GDN_F16 ? 0.0006 : 0.0001;
}

static void add_heads(struct gdni_work *work, const char *name, size_t member, int64_t tokens, int32_t heads,
                      int32_t dim)
{
    const int32_t io = (int32_t)work->desc.conv1d.io_type;
    if (heads) gdni_work_add_output(work, name, member, io, tokens * heads, dim, tolerance_of(io));
}

static void add_gates(struct gdni_work *work, struct gdni_random *random, int64_t tokens)
{
    const gdn_conv1d_desc *d = &work->desc.conv1d;
    const int64_t heads = d->num_gate_heads;
    /* A sigmoid that is rounded to 16 bits may fall on the other side of a half. */
    const double beta = d->flags & GDN_CONV_BETA_ROUNDED ? 0.004 : 0.0005;
    if (!heads) return;
    add_normal(work, random, MEMBER(a), (int32_t)d->gate_type, tokens, heads, 2);
    add_normal(work, random, MEMBER(b), (int32_t)d->gate_type, tokens, heads, 2);
    add_normal(work, random, MEMBER(a_log), (int32_t)d->a_log_type, 1, heads, 0.5);
    add_normal(work, random, MEMBER(dt_bias), (int32_t)d->dt_bias_type, 1, heads, 0.5);
    gdni_work_add_output(work, MEMBER(g), GDN_F32, tokens, heads, 0.0005);
    gdni_work_add_output(work, MEMBER(beta), GDN_F32, tokens, heads, beta);
}

/* Lines, in place. They hold raw inputs, so their bits are known. */
static void add_state(struct gdni_work *work, struct gdni_random *random, int64_t lines, int64_t channels)
{
    enum { STRIDE = 5 }; /* of a channel, CW_STRIDED: as engines keep room for one or two tokens more */
    const gdn_conv1d_desc *d = &work->desc.conv1d;
    const bool strided = d->state_layout == GDN_CONV_STATE_CW_STRIDED;
    const int64_t line = channels * (strided ? STRIDE : d->width - 1);
    work->args.conv1d.state_channel_stride = strided ? STRIDE : 0;
    struct gdni_tensor *t = gdni_work_add_output(work, MEMBER(state), (int32_t)d->state_type, lines, line, 0);
    gdni_fill_normal(random, t->dtype, t->host, 0, gdni_tensor_host_rows(t) * line, 1);
}

static void add_slots(struct gdni_work *work)
{
    const gdn_conv1d_desc *d = &work->desc.conv1d;
    gdni_work_add_indices(work, MEMBER(slot_in), (int32_t)d->slot_type, gdni_trial_slot_in, GDNI_TRIAL_SEQS);
    gdni_work_add_indices(work, MEMBER(slot_out), (int32_t)d->slot_type, gdni_trial_slot_out, GDNI_TRIAL_SEQS);
    struct gdni_tensor *has = gdni_work_add(work, MEMBER(has_initial_state), 0, 1, GDNI_TRIAL_SEQS);
    if (has->host_bytes) memcpy(has->host, gdni_trial_has_state, sizeof gdni_trial_has_state);
    if (!(d->flags & GDN_CONV_CHECKPOINTS)) return;
    gdni_work_add_indices(work, MEMBER(checkpoints), GDN_INDEX_I64, gdni_trial_checkpoints[0],
                          GDNI_TRIAL_CHECKPOINTS * 3);
    work->args.conv1d.num_checkpoints = GDNI_TRIAL_CHECKPOINTS;
}

void gdni_work_make_conv1d(struct gdni_work *work, const struct gdni_shape *shape)
{
    const bool awkward = shape->kind == GDNI_CALL_AWKWARD;
    gdn_conv1d_desc *d = &work->desc.conv1d;
    take_defaults(d);
    struct gdni_random random = { 20261121 };
    const int32_t io = (int32_t)d->io_type;
    const int64_t tokens = shape->num_tokens, row = row_of_x(d);
    const int64_t channels =
        (int64_t)(d->num_q_heads + d->num_k_heads) * d->head_dim_qk + (int64_t)d->num_v_heads * d->head_dim_v;
    work->args.conv1d = (gdn_conv1d_args)GDN_CONV1D_ARGS_INIT;
    work->args.conv1d.num_tokens = tokens;
    work->args.conv1d.num_seqs = shape->num_seqs;
    work->args.conv1d.x_stride = row;
    add_normal(work, &random, MEMBER(x), io, tokens, row, 1);
    add_normal(work, &random, MEMBER(weight), io, channels, d->width, 0.5);
    if (d->flags & GDN_CONV_BIAS) add_normal(work, &random, MEMBER(bias), io, 1, channels, 0.5);
    add_heads(work, MEMBER(q), tokens, d->num_q_heads, d->head_dim_qk);
    add_heads(work, MEMBER(k), tokens, d->num_k_heads, d->head_dim_qk);
    add_heads(work, MEMBER(v), tokens, d->num_v_heads, d->head_dim_v);
    add_gates(work, &random, tokens);
    add_state(work, &random, awkward ? GDNI_TRIAL_LINES : shape->num_seqs, channels);
    if (awkward) add_slots(work);
    gdni_work_add_cu_seqlens(work, offsetof(gdn_conv1d_args, cu_seqlens), (int32_t)d->cu_seqlens_type, shape);
}
