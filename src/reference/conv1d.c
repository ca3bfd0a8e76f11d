/*
 * conv1d.c - owns the conv1d-QKV recurrence on the host, channel by channel, as the header states it. Sums and SiLU are
 * double, outputs are rounded once; the state is moved as raw bits.
 *
 * Must not know: tiles, kernels, devices, files.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "codegen/problem.h"
#include "reference/host_args.h"
#include "reference/reference.h"

enum { MAX_WIDTH = 4 };

/* One of q, k, v: the channels [first, first + channels) of a packed row. */
struct part {
    void *base;
    int64_t first, channels;
};

struct run {
    struct gdni_problem p;
    gdn_conv1d_args a;
    struct gdni_seqlens seqs;
    int64_t channels;
    struct part parts[3];
    int32_t y_type;
};

/* One sequence of one channel. */
struct lane {
    int64_t channel, first, len; /* first: row of x */
    int64_t line;                /* of the state */
    bool reads_state;
    struct part part;
};

/* A 16-bit element as it is: a NaN's payload must survive in the state. */
static uint16_t raw(gdn_devptr tensor, int64_t index)
{
    uint16_t bits;
    memcpy(&bits, (const unsigned char *)gdni_host(tensor) + index * 2, sizeof bits);
    return bits;
}

static int64_t state_index(const struct run *r, const struct lane *lane, int64_t column)
{
    const int64_t history = r->p.width - 1;
    if (r->p.state_layout == GDN_CONV_STATE_CW) return (lane->line * r->channels + lane->channel) * history + column;
    return (lane->line * history + column) * r->channels + lane->channel;
}

/* ext[i] of the header's formula: the state's width - 1 values, then the sequence's rows. */
static uint16_t ext(const struct run *r, const struct lane *lane, int64_t i)
{
    const int64_t history = r->p.width - 1;
    if (i >= history) return raw(r->a.x, (lane->first + i - history) * r->a.x_stride + lane->channel);
    return lane->reads_state ? raw(r->a.state, state_index(r, lane, i)) : 0;
}

/* At -infinity the quotient is no number; its limit is -0. */
static double activation(const struct run *r, double a)
{
    if (!(r->p.flags & GDN_CONV_SILU)) return a;
    return a == -(double)INFINITY ? -0.0 : a / (1.0 + exp(-a));
}

static double output(const struct run *r, const struct lane *lane, int64_t t)
{
    const int width = r->p.width;
    double a = r->a.bias ? gdni_load(r->p.io_type, gdni_host(r->a.bias), lane->channel) : 0.0;
    for (int j = 0; j < width; ++j) {
        const uint16_t in = ext(r, lane, t + j);
        a += gdni_load(r->p.io_type, gdni_host(r->a.weight), lane->channel * width + j) *
             gdni_load(r->p.io_type, &in, 0);
    }
    return activation(r, a);
}

/* Reads all of the old line's column before it writes: the update is in place. */
static void update_state(const struct run *r, const struct lane *lane)
{
    uint16_t last[MAX_WIDTH - 1];
    const int history = r->p.width - 1;
    for (int j = 0; j < history; ++j)
        last[j] = ext(r, lane, lane->len + j);
    for (int j = 0; j < history; ++j)
        memcpy((unsigned char *)gdni_host(r->a.state) + state_index(r, lane, j) * 2, &last[j], sizeof last[j]);
}

static void run_lane(const struct run *r, const struct lane *lane)
{
    const int64_t column = lane->channel - lane->part.first;
    for (int64_t t = 0; t < lane->len; ++t)
        gdni_store(r->y_type, lane->part.base, (lane->first + t) * lane->part.channels + column, output(r, lane, t));
    if (r->a.state) update_state(r, lane);
}

static int32_t slot_of(const struct run *r, int64_t n)
{
    int32_t slot = (int32_t)n;
    if (r->a.slots) memcpy(&slot, (const unsigned char *)gdni_host(r->a.slots) + n * (int64_t)sizeof slot, sizeof slot);
    return slot;
}

static void run_sequence(const struct run *r, int64_t n)
{
    const uint8_t *has_initial = gdni_host(r->a.has_initial_state);
    struct lane lane = { .first = gdni_seqlens_start(&r->seqs, n), .line = slot_of(r, n) };
    lane.len = gdni_seqlens_start(&r->seqs, n + 1) - lane.first;
    lane.reads_state = r->a.state && (!has_initial || has_initial[n]);
    if (lane.line < 0 || lane.len == 0) return;
    for (int i = 0; i < 3; ++i) {
        lane.part = r->parts[i];
        for (int64_t c = 0; c < lane.part.channels; ++c) {
            lane.channel = lane.part.first + c;
            run_lane(r, &lane);
        }
    }
}

static gdn_status take_desc(struct run *r, const gdn_conv1d_desc *desc)
{
    gdn_conv1d_desc d = GDN_CONV1D_DESC_INIT;
    GDN_TRY(gdni_take_struct(&d, sizeof d, desc, "gdn_conv1d_desc", sizeof d));
    d.max_tokens = d.max_seqs = INT32_MAX; /* the caller's are not used */
    GDN_TRY(gdni_problem_from_conv1d(&r->p, &d));
    r->p.x_alignment = 1; /* a contract of the device's loads */
    return GDN_OK;
}

static gdn_status check_slots(const struct run *r)
{
    for (int64_t n = 0; r->a.slots && n < r->a.num_seqs; ++n)
        if (slot_of(r, n) < -1)
            return GDN_FAIL(GDN_E_INVALID, "slots[%lld] is %d: must be a state line, or -1 for padding", (long long)n,
                            slot_of(r, n));
    return GDN_OK;
}

static gdn_status take_args(struct run *r, const gdn_conv1d_args *args)
{
    gdn_conv1d_args *a = &r->a;
    *a = (gdn_conv1d_args)GDN_CONV1D_ARGS_INIT;
    GDN_TRY(gdni_take_struct(a, sizeof *a, args, "gdn_conv1d_args", sizeof *a));
    gdn_conv1d_args checked = *a;
    gdn_devptr *const pointers[] = { &checked.x, &checked.weight, &checked.bias,  &checked.q,         &checked.k,
                                     &checked.v, &checked.state,  &checked.slots, &checked.cu_seqlens };
    gdni_align_for_check(pointers, sizeof pointers / sizeof pointers[0]);
    GDN_TRY(gdni_check_conv1d_args(&r->p, &checked));
    GDN_TRY(gdni_seqlens_take(&r->seqs, a->cu_seqlens, GDN_INDEX_I32, a->num_tokens, a->num_seqs));
    return check_slots(r);
}

static void split_channels(struct run *r)
{
    const struct gdni_problem *p = &r->p;
    r->parts[0] = (struct part){ gdni_host(r->a.q), 0, (int64_t)p->num_q_heads * p->head_dim_qk };
    r->parts[1] = (struct part){ gdni_host(r->a.k), r->parts[0].channels, (int64_t)p->num_k_heads * p->head_dim_qk };
    r->parts[2] = (struct part){ gdni_host(r->a.v), r->parts[1].first + r->parts[1].channels,
                                 (int64_t)p->num_v_heads * p->head_dim_v };
    r->channels = r->parts[2].first + r->parts[2].channels;
}

static gdn_status run_call(const gdn_conv1d_desc *desc, const gdn_conv1d_args *args, bool wide)
{
    struct run r;
    memset(&r, 0, sizeof r);
    GDN_TRY(take_desc(&r, desc));
    GDN_TRY(take_args(&r, args));
    r.y_type = wide ? GDNI_F64 : r.p.io_type;
    split_channels(&r);
    for (int64_t n = 0; n < r.a.num_seqs; ++n)
        run_sequence(&r, n);
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
