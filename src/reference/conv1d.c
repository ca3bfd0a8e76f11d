/*
 * conv1d.c - owns the conv1d-QKV recurrence on the host, head by head, as the header states it. Sums, SiLU and norms are
 * double, outputs are rounded once (and before the norm, where the flags say so); the state is moved as raw bits.
 *
 * Must not know: tiles, kernels, devices, files, the gates' formulas.
 */
#include "reference/conv1d.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "base/half.h"
#include "reference/lines.h"
#include "reference/reference.h"

enum { MAX_WIDTH = 4, MAX_DIM = 256, CHECKPOINT_COLUMNS = 3 };

/* One of q, k, v: the channels [first, first + heads * dim) of the packed order. */
struct part {
    void *base;
    int64_t first, heads, dim;
    gdn_strides strides;
    int64_t group, in_group; /* heads of one group of an interleaved x; column of the first there */
    bool normed;
};

/* A raw value and its type: a NaN's payload must survive in the state. */
struct raw {
    int32_t type;
    uint32_t bits;
};

static struct raw load_bits(int32_t type, gdn_devptr tensor, int64_t index)
{
    struct raw r = { .type = type };
    const size_t size = (size_t)gdni_dtype_bytes(type);
    memcpy(&r.bits, (const unsigned char *)gdni_host(tensor) + index * (int64_t)size, size); /* little endian */
    return r;
}

static double value_of(struct raw r)
{
    return gdni_load(r.type, &r.bits, 0);
}

/* ---- one channel ---- */

struct lane {
    const struct gdni_conv1d_seq *seq;
    int64_t channel, column; /* of [q | k | v]; of a row of x */
};

/* Elements from line to line of the states. */
static int64_t line_stride(const struct gdni_conv1d_run *r)
{
    return r->a.state_slot_stride ? r->a.state_slot_stride : gdni_conv1d_line_size(&r->p, &r->a);
}

static int64_t state_index(const struct gdni_conv1d_run *r, int64_t line, int64_t channel, int64_t column)
{
    const int64_t size = gdni_conv1d_line_size(&r->p, &r->a), channels = gdni_problem_channels(&r->p);
    const int64_t at = line * line_stride(r);
    return at + (r->p.state_layout == GDN_CONV_STATE_WC ? column * channels + channel
                                                        : channel * (size / channels) + column);
}

/* ext[i] of the header's formula: the state's width - 1 values, then the sequence's rows. */
static struct raw ext(const struct gdni_conv1d_run *r, const struct lane *lane, int64_t i)
{
    const int64_t history = r->p.width - 1;
    if (i >= history)
        return load_bits(r->p.io_type, r->a.x, (lane->seq->first + i - history) * r->a.x_stride + lane->column);
    if (!lane->seq->has_initial) return (struct raw){ .type = r->p.state_type };
    return load_bits(r->p.state_type, r->a.state, state_index(r, lane->seq->line_in, lane->channel, i));
}

/* At -infinity the quotient is no number; its limit is -0. */
static double activation(const struct gdni_conv1d_run *r, double a)
{
    if (!(r->p.flags & GDN_CONV_SILU)) return a;
    return a == -(double)INFINITY ? -0.0 : a / (1.0 + exp(-a));
}

static double convolve(const struct gdni_conv1d_run *r, const struct lane *lane, int64_t t)
{
    const int width = r->p.width;
    double a = r->a.bias ? gdni_load(r->p.io_type, gdni_host(r->a.bias), lane->channel) : 0.0;
    for (int j = 0; j < width; ++j)
        a += gdni_load(r->p.io_type, gdni_host(r->a.weight), lane->channel * width + j) * value_of(ext(r, lane, t + j));
    return activation(r, a);
}

/* What the state is after `len` tokens. Reads all of the window before it writes: the line may be the one it reads. */
static void store_window(const struct gdni_conv1d_run *r, const struct lane *lane, int64_t len, int64_t line)
{
    struct raw last[MAX_WIDTH - 1];
    const int history = r->p.width - 1;
    for (int j = 0; j < history; ++j)
        last[j] = ext(r, lane, len + j);
    for (int j = 0; j < history; ++j) {
        const int64_t at = state_index(r, line, lane->channel, j);
        const size_t size = (size_t)gdni_dtype_bytes(r->p.state_type);
        if (last[j].type == r->p.state_type)
            memcpy((unsigned char *)gdni_host(r->a.state) + at * (int64_t)size, &last[j].bits, size);
        else
            gdni_store(r->p.state_type, gdni_host(r->a.state), at, value_of(last[j]));
    }
}

/* ---- one head ---- */

static struct lane lane_of(const struct gdni_conv1d_run *r, const struct part *part, const struct gdni_conv1d_seq *s,
                           int64_t head, int64_t i)
{
    struct lane lane = { .seq = s, .channel = part->first + head * part->dim + i };
    lane.column = lane.channel;
    if (r->p.x_layout == GDN_CONV_X_INTERLEAVED)
        lane.column = head / part->group * gdni_conv1d_group_stride(&r->p, &r->a) + part->in_group +
                      head % part->group * part->dim + i;
    return lane;
}

static double rounded(const struct gdni_conv1d_run *r, double y)
{
    uint32_t bits = 0;
    gdni_store(r->p.io_type, &bits, 0, y);
    return gdni_load(r->p.io_type, &bits, 0);
}

static void normalise(const struct gdni_conv1d_run *r, double *y, int64_t dim)
{
    double sum = 0.0;
    for (int64_t i = 0; i < dim; ++i) {
        if (!(r->p.flags & GDN_CONV_EXACT_NORM)) y[i] = rounded(r, y[i]);
        sum += y[i] * y[i];
    }
    for (int64_t i = 0; i < dim; ++i)
        y[i] /= sqrt(sum + 1e-6);
}

static int64_t output_index(const struct part *part, const struct gdni_conv1d_run *r, const struct gdni_conv1d_seq *s,
                            int64_t token, int64_t head)
{
    const int64_t in_batch = r->a.cu_seqlens ? token : token - s->first;
    return (r->a.cu_seqlens ? 0 : s->n * part->strides.batch) + in_batch * part->strides.token +
           head * part->strides.head;
}

static void run_head(const struct gdni_conv1d_run *r, const struct part *part, const struct gdni_conv1d_seq *s,
                     int64_t head)
{
    double y[MAX_DIM];
    for (int64_t t = 0; t < s->len; ++t) {
        for (int64_t i = 0; i < part->dim; ++i) {
            const struct lane lane = lane_of(r, part, s, head, i);
            y[i] = convolve(r, &lane, t);
        }
        if (part->normed) normalise(r, y, part->dim);
        gdni_store_row(r->y_type, part->base, output_index(part, r, s, s->first + t, head), part->dim, y);
    }
}

/* ---- one sequence ---- */

static void store_line(const struct gdni_conv1d_run *r, const struct part *part, const struct gdni_conv1d_seq *s,
                       int64_t len, int64_t line)
{
    for (int64_t head = 0; head < part->heads; ++head)
        for (int64_t i = 0; i < part->dim; ++i) {
            const struct lane lane = lane_of(r, part, s, head, i);
            store_window(r, &lane, len, line);
        }
}

static void checkpoint_row(const struct gdni_conv1d_run *r, int64_t m, int64_t row[CHECKPOINT_COLUMNS])
{
    for (int i = 0; i < CHECKPOINT_COLUMNS; ++i)
        row[i] = gdni_load_index(GDN_INDEX_I64, r->a.checkpoints, m * CHECKPOINT_COLUMNS + i);
}

/* Whether a row asks for something of a sequence. */
static bool is_checkpoint_of(const int64_t row[CHECKPOINT_COLUMNS], const struct gdni_conv1d_seq *s)
{
    return row[0] == s->n && !s->inert && row[1] > 0 && row[1] <= s->len && row[2] >= 0;
}

static void store_checkpoints(const struct gdni_conv1d_run *r, const struct part *part, const struct gdni_conv1d_seq *s)
{
    for (int64_t m = 0; m < r->a.num_checkpoints; ++m) {
        int64_t row[CHECKPOINT_COLUMNS];
        checkpoint_row(r, m, row);
        if (is_checkpoint_of(row, s)) store_line(r, part, s, row[1], row[2]);
    }
}

static void run_part(const struct gdni_conv1d_run *r, const struct part *part, const struct gdni_conv1d_seq *s)
{
    for (int64_t head = 0; head < part->heads; ++head)
        run_head(r, part, s, head);
    if (!r->a.state) return;
    store_checkpoints(r, part, s);
    if (s->len > 0 || s->line_in != s->line_out) store_line(r, part, s, s->len, s->line_out);
}

static int64_t slot_of(const struct gdni_conv1d_run *r, gdn_devptr slots, int64_t stride, int64_t n)
{
    return gdni_load_index(r->p.slot_type, slots, n * (stride ? stride : 1));
}

struct gdni_conv1d_seq gdni_conv1d_sequence(const struct gdni_conv1d_run *r, int64_t n)
{
    const uint8_t *has_initial = gdni_host(r->a.has_initial_state);
    struct gdni_conv1d_seq s = { .n = n, .first = gdni_seqlens_start(&r->seqs, n), .line_in = n };
    s.len = gdni_seqlens_start(&r->seqs, n + 1) - s.first;
    if (r->a.slot_in) s.line_in = slot_of(r, r->a.slot_in, r->a.slot_in_stride, n);
    s.line_out = r->a.slot_out ? slot_of(r, r->a.slot_out, r->a.slot_out_stride, n) : s.line_in;
    s.inert = s.line_in < 0 || s.line_out < 0;
    s.has_initial = r->a.state && (!has_initial || has_initial[n]);
    return s;
}

static void zero_rows(const struct gdni_conv1d_run *r, const struct part *part, int64_t first, int64_t len)
{
    static const double zeros[MAX_DIM];
    const struct gdni_conv1d_seq nobody = { .n = 0 };
    for (int64_t t = first; t < first + len; ++t)
        for (int64_t head = 0; head < part->heads; ++head)
            gdni_store_row(r->y_type, part->base, output_index(part, r, &nobody, t, head), part->dim, zeros);
}

/* ---- the call ---- */

static gdn_status take_desc(struct gdni_conv1d_run *r, const gdn_conv1d_desc *desc)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_conv1d_desc, &d, desc));
    d.max_tokens = d.max_seqs = INT32_MAX; /* the caller's are not used */
    GDN_TRY(gdni_problem_from_conv1d(&r->p, &d));
    r->p.x_alignment = 1; /* a contract of the device's loads */
    return GDN_OK;
}

static gdn_status check_slots(const struct gdni_conv1d_run *r, const char *name, gdn_devptr slots, int64_t stride)
{
    for (int64_t n = 0; slots && n < r->a.num_seqs; ++n)
        GDN_TRY(gdni_line_check(name, n, slot_of(r, slots, stride, n), r->a.state ? line_stride(r) : 1));
    return GDN_OK;
}

/* An empty sequence leaves its line alone where it would go back to it. */
static void add_lines(struct gdni_lines *lines, const void *call)
{
    const struct gdni_conv1d_run *r = call;
    for (int64_t n = 0; n < r->a.num_seqs; ++n) {
        const struct gdni_conv1d_seq s = gdni_conv1d_sequence(r, n);
        if (s.inert || (s.len == 0 && s.line_in == s.line_out)) continue;
        if (s.has_initial) gdni_lines_add(lines, GDNI_LINE_READ, s.line_in, n);
        gdni_lines_add(lines, GDNI_LINE_WRITTEN, s.line_out, n);
    }
    for (int64_t m = 0; m < r->a.num_checkpoints; ++m) {
        int64_t row[CHECKPOINT_COLUMNS]; /* sequence, token_end, slot */
        checkpoint_row(r, m, row);
        if (row[0] < 0 || row[0] >= r->a.num_seqs) continue;
        const struct gdni_conv1d_seq s = gdni_conv1d_sequence(r, row[0]);
        if (is_checkpoint_of(row, &s)) gdni_lines_add(lines, GDNI_LINE_CHECKPOINT, row[2], m);
    }
}

static gdn_status check_lines(const struct gdni_conv1d_run *r)
{
    if (!r->a.state) return GDN_OK;
    return gdni_lines_check(add_lines, r, 2 * r->a.num_seqs + r->a.num_checkpoints, line_stride(r));
}

static gdn_status take_args(struct gdni_conv1d_run *r, const gdn_conv1d_args *args)
{
    gdn_conv1d_args *a = &r->a;
    *a = (gdn_conv1d_args)GDN_CONV1D_ARGS_INIT;
    GDN_TRY(GDNI_TAKE_STRUCT(gdn_conv1d_args, a, args));
    gdn_conv1d_args checked = *a;
    gdn_devptr *const pointers[] = { &checked.x,          &checked.weight,  &checked.bias,     &checked.q,
                                     &checked.k,          &checked.v,       &checked.a,        &checked.b,
                                     &checked.a_log,      &checked.dt_bias, &checked.g,        &checked.beta,
                                     &checked.state,      &checked.slot_in, &checked.slot_out, &checked.cu_seqlens,
                                     &checked.checkpoints };
    gdni_align_for_check(pointers, sizeof pointers / sizeof pointers[0]);
    GDN_TRY(gdni_check_conv1d_args(&r->p, &checked));
    GDN_TRY(gdni_check_conv1d_apart(a));
    GDN_TRY(gdni_seqlens_take(&r->seqs, a->cu_seqlens, r->p.cu_seqlens_type, a->num_tokens, a->num_seqs));
    GDN_TRY(check_slots(r, "slot_in", a->slot_in, a->slot_in_stride));
    GDN_TRY(check_slots(r, "slot_out", a->slot_out, a->slot_out_stride));
    return check_lines(r);
}

static void split_channels(struct part parts[3], const struct gdni_conv1d_run *r)
{
    const struct gdni_problem *p = &r->p;
    const int64_t len = r->seqs.uniform_len, dk = p->head_dim_qk, dv = p->head_dim_v;
    const bool normed = p->flags & GDN_CONV_L2_NORM;
    parts[0] = (struct part){ .base = gdni_host(r->a.q), .heads = p->num_q_heads, .dim = dk, .normed = normed };
    parts[1] = (struct part){ .base = gdni_host(r->a.k), .heads = p->num_k_heads, .dim = dk, .normed = normed };
    parts[2] = (struct part){ .base = gdni_host(r->a.v), .heads = p->num_v_heads, .dim = dv };
    parts[0].strides = gdni_strides_filled(&r->a.q_strides, p->num_q_heads, dk, len);
    parts[1].strides = gdni_strides_filled(&r->a.k_strides, p->num_k_heads, dk, len);
    parts[2].strides = gdni_strides_filled(&r->a.v_strides, p->num_v_heads, dv, len);
    parts[1].first = parts[0].heads * dk;
    parts[2].first = parts[1].first + parts[1].heads * dk;
    parts[0].group = parts[1].group = 1;
    parts[2].group = p->x_layout == GDN_CONV_X_INTERLEAVED ? p->num_v_heads / p->num_k_heads : 1;
    parts[1].in_group = dk;
    parts[2].in_group = 2 * dk;
}

static void run_sequences(const struct gdni_conv1d_run *r, const struct part parts[3])
{
    for (int64_t n = 0; n < r->a.num_seqs; ++n) {
        const struct gdni_conv1d_seq s = gdni_conv1d_sequence(r, n);
        if (s.inert) continue;
        for (int i = 0; i < 3; ++i)
            run_part(r, &parts[i], &s);
        gdni_conv1d_gates(r, &s);
    }
}

static void zero_padding(const struct gdni_conv1d_run *r, const struct part parts[3])
{
    const int64_t total = gdni_seqlens_start(&r->seqs, r->a.num_seqs), len = r->a.num_tokens - total;
    for (int i = 0; i < 3; ++i)
        zero_rows(r, &parts[i], total, len);
    gdni_conv1d_zero_gates(r, total, len);
}

static gdn_status run_call(const gdn_conv1d_desc *desc, const gdn_conv1d_args *args, bool wide)
{
    struct gdni_conv1d_run r;
    struct part parts[3];
    memset(&r, 0, sizeof r);
    GDN_TRY(take_desc(&r, desc));
    GDN_TRY(take_args(&r, args));
    r.y_type = wide ? GDNI_F64 : r.p.io_type;
    split_channels(parts, &r);
    run_sequences(&r, parts);
    if (r.p.flags & GDN_CONV_ZERO_PADDING) zero_padding(&r, parts);
    return GDN_OK;
}

gdn_status gdn_reference_conv1d_qkv(const gdn_conv1d_desc *desc, const gdn_conv1d_args *args)
{
    return run_call(desc, args, false);
}

gdn_status gdni_reference_conv1d_qkv_f64(const gdn_conv1d_desc *desc, const gdn_conv1d_args *args)
{
    return run_call(desc, args, true);
}
