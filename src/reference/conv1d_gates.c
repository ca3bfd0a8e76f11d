/*
 * conv1d_gates.c - owns the gates' formulas on the host, in double, rounded once to float32.
 *
 * Must not know: the convolution, tiles, devices.
 */
#include <math.h>

#include "base/half.h"
#include "reference/conv1d.h"

/* Column of gate head h in a row of a or b. */
static int64_t column_of(const struct gdni_conv1d_run *r, int64_t h)
{
    if (!r->a.gate_group_stride) return h;
    const int64_t group = r->p.num_gate_heads / r->p.num_k_heads;
    return h / group * r->a.gate_group_stride + h % group;
}

static double softplus(double x)
{
    return x > 20.0 ? x : log1p(exp(x));
}

static double decay(const struct gdni_conv1d_run *r, int64_t t, int64_t h)
{
    const int64_t heads = r->p.num_gate_heads, stride = r->a.a_stride ? r->a.a_stride : heads;
    const double a = gdni_load(r->p.gate_type, gdni_host(r->a.a), t * stride + column_of(r, h));
    const double rate = exp(gdni_load(r->p.a_log_type, gdni_host(r->a.a_log), h));
    const double bias = r->a.dt_bias ? gdni_load(r->p.dt_bias_type, gdni_host(r->a.dt_bias), h) : 0.0;
    const double g = -rate * softplus(a + bias);
    return r->p.flags & GDN_CONV_GATE_EXP ? exp(g) : g;
}

static double beta(const struct gdni_conv1d_run *r, int64_t t, int64_t h)
{
    const int64_t heads = r->p.num_gate_heads, stride = r->a.b_stride ? r->a.b_stride : heads;
    const double b = gdni_load(r->p.gate_type, gdni_host(r->a.b), t * stride + column_of(r, h));
    double sigmoid = 1.0 / (1.0 + exp(-b));
    if (r->p.flags & GDN_CONV_BETA_ROUNDED) {
        uint16_t bits;
        gdni_store(r->p.gate_type, &bits, 0, sigmoid);
        sigmoid = gdni_load(r->p.gate_type, &bits, 0);
    }
    return r->p.flags & GDN_CONV_BETA_TIMES_2 ? 2.0 * sigmoid : sigmoid;
}

void gdni_conv1d_gates(const struct gdni_conv1d_run *r, const struct gdni_conv1d_seq *s)
{
    const int64_t heads = r->p.num_gate_heads;
    for (int64_t t = s->first; t < s->first + s->len; ++t)
        for (int64_t h = 0; h < heads; ++h) {
            if (r->a.g) gdni_store(GDN_F32, gdni_host(r->a.g), t * heads + h, decay(r, t, h));
            if (r->a.beta) gdni_store(GDN_F32, gdni_host(r->a.beta), t * heads + h, beta(r, t, h));
        }
}

void gdni_conv1d_zero_gates(const struct gdni_conv1d_run *r, int64_t first, int64_t len)
{
    const int64_t heads = r->p.num_gate_heads;
    for (int64_t i = first * heads; i < (first + len) * heads; ++i) {
        if (r->a.g) gdni_store(GDN_F32, gdni_host(r->a.g), i, 0.0);
        if (r->a.beta) gdni_store(GDN_F32, gdni_host(r->a.beta), i, 0.0);
    }
}
