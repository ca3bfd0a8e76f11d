/*
 * conv_check.c - owns the truth of conv1d-QKV for a case: a loop of its own in double, with the interval that float32
 * arithmetic may reach, an image of the whole state pool bit for bit, and a poison check of everything else.
 *
 * Must not know: devices, kernels, src/reference (whose tests use this check).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "conv_cases.h"

static const double U = 0x1p-24;

/* ---- values ---------------------------------------------------------------------------------------------------- */

static uint32_t bits_at(const struct conv_buffer *b, int64_t i)
{
    uint32_t bits = 0;
    const size_t size = b->type == GDN_F32 ? 4 : 2;
    memcpy(&bits, (const char *)b->data + (size_t)i * size, size);
    return bits;
}

static void set_bits(struct conv_buffer *b, int64_t i, uint32_t bits)
{
    const size_t size = b->type == GDN_F32 ? 4 : 2;
    memcpy((char *)b->data + (size_t)i * size, &bits, size);
}

static double at(const struct conv_buffer *b, int64_t i)
{
    return gdni_load(b->type, b->data, i);
}

static double rounded(int32_t type, double x)
{
    uint32_t bits = 0;
    gdni_store(type, &bits, 0, x);
    return gdni_load(type, &bits, 0);
}

static uint32_t poison(const struct conv_buffer *b)
{
    return b->type == GDN_F32 ? 0xffffffffu : 0xffffu;
}

/* ---- report ---------------------------------------------------------------------------------------------------- */

static void note(struct conv_report *r, int64_t *counter, const char *what, int n, int64_t i, int64_t j, double got,
                 double want)
{
    ++*counter;
    if (r->first[0]) return;
    snprintf(r->first, sizeof r->first, "%s: sequence %d, token or line %lld, channel or head %lld: %.9g, want %.9g",
             what, n, (long long)i, (long long)j, got, want);
}

/* ---- convolution ----------------------------------------------------------------------------------------------- */

/* A raw input of a sequence: position p, before its start from the old state or zero. */
struct raw {
    int32_t type;
    uint32_t bits;
};

static struct raw input_at(const struct conv_case *c, int n, int64_t channel, int64_t p)
{
    const int history = c->desc.width - 1;
    if (p >= 0) {
        const int64_t row = c->begins[n] + p;
        return (struct raw){ c->x.type,
                             bits_at(&c->x, c->spec->x_offset + row * c->args.x_stride + conv_x_column(c, channel)) };
    }
    const int32_t type = c->state.data ? c->state.type : GDN_F32;
    if (!conv_case_reads_state(c, n)) return (struct raw){ type, 0 };
    return (struct raw){ type,
                         bits_at(&c->state, conv_state_index(c, conv_case_lines(c, n).in, channel, (int)p + history)) };
}

static double value(struct raw r)
{
    return gdni_load(r.type, &r.bits, 0);
}

double conv_tolerance(double a, double y, double magnitude, int width, bool silu)
{
    const double sum = (width + 1) * U * magnitude;
    if (!silu) return sum;
    const double complement = 1 / (1 + exp(a)); /* 1 - sigmoid(a) */
    return 1.1 * sum + fabs(y) * U * (complement * (2 * fabs(a) + 4) + 10) + 0x1p-119;
}

struct interval {
    double low, truth, high;
};

static struct interval truth_at(const struct conv_case *c, int n, int64_t channel, int64_t t)
{
    const int width = c->desc.width;
    const bool silu = c->desc.flags & GDN_CONV_SILU;
    double a = c->bias.data ? at(&c->bias, channel) : 0, magnitude = fabs(a);
    for (int tap = 0; tap < width; ++tap) { /* newest last */
        const double product =
            at(&c->weight, channel * width + tap) * value(input_at(c, n, channel, t - (width - 1) + tap));
        a += product;
        magnitude += fabs(product);
    }
    if (silu && a == -(double)INFINITY) return (struct interval){ -0.0, -0.0, -0.0 }; /* the limit */
    const double y = silu ? a / (1 + exp(-a)) : a;
    const double e = isfinite(y) ? conv_tolerance(a, y, magnitude, width, silu) : 0;
    return (struct interval){ y - e, y, y + e };
}

/* ---- norm ------------------------------------------------------------------------------------------------------ */

static struct interval square(struct interval v)
{
    const double a = v.low * v.low, b = v.high * v.high;
    const bool crosses = v.low <= 0 && v.high >= 0;
    return (struct interval){ crosses ? 0 : fmin(a, b), v.truth * v.truth, fmax(a, b) };
}

/* Infinities make the norm's scale 0: themselves NaN, all else 0. */
static bool normalise_infinite(struct interval *v, int dim)
{
    bool infinite = false, nan = false;
    for (int i = 0; i < dim; ++i) {
        infinite |= isinf(v[i].truth);
        nan |= isnan(v[i].truth);
    }
    if (!infinite && !nan) return false;
    for (int i = 0; i < dim; ++i) {
        const double x = nan || isinf(v[i].truth) ? (double)NAN : 0;
        v[i] = (struct interval){ x, x, x };
    }
    return true;
}

static void normalise(const struct conv_case *c, struct interval *v, int dim)
{
    struct interval sum = { 0, 0, 0 };
    for (int i = 0; i < dim; ++i) {
        if (!(c->desc.flags & GDN_CONV_EXACT_NORM)) {
            const int32_t io = (int32_t)c->desc.io_type;
            v[i] = (struct interval){ rounded(io, v[i].low), rounded(io, v[i].truth), rounded(io, v[i].high) };
        }
        const struct interval s = square(v[i]);
        sum = (struct interval){ sum.low + s.low, sum.truth + s.truth, sum.high + s.high };
    }
    if (normalise_infinite(v, dim)) return;
    const double slack = ((dim + 8) / 2.0 + 6) * U; /* of the root of the sum; of rsqrt and the product */
    const double small = 1 / sqrt(sum.high + 1e-6) * (1 - slack), large = 1 / sqrt(sum.low + 1e-6) * (1 + slack);
    for (int i = 0; i < dim; ++i) {
        v[i].truth /= sqrt(sum.truth + 1e-6);
        v[i].low *= v[i].low < 0 ? large : small;
        v[i].high *= v[i].high < 0 ? small : large;
    }
}

/* ---- q, k, v --------------------------------------------------------------------------------------------------- */

struct part {
    const struct conv_buffer *y;
    gdn_strides strides;
    int64_t first; /* channel */
    int heads, dim;
    bool normed;
    uint8_t *covered; /* elements that the call writes */
};

/* |y - truth| over the larger distance that is allowed; above 1 means wrong. */
static double excess(int32_t type, const struct interval *v, double y)
{
    if (isnan(v->truth)) return isnan(y) ? 0 : INFINITY;
    const double low = rounded(type, v->low), high = rounded(type, v->high);
    if (y == low || y == high) return 0;
    if (!(y >= low && y <= high)) return INFINITY;
    return fabs(y - v->truth) / fmax(high - v->truth, v->truth - low);
}

static int64_t y_index(const struct conv_case *c, const struct part *p, int n, int64_t t, int64_t head)
{
    const int64_t heads = p->heads, dim = p->dim;
    const int64_t head_stride = p->strides.head ? p->strides.head : dim;
    const int64_t token_stride = p->strides.token ? p->strides.token : heads * dim;
    if (p->strides.batch) return n * p->strides.batch + t * token_stride + head * head_stride;
    return (c->begins[n] + t) * token_stride + head * head_stride;
}

static void check_head(struct conv_report *r, const struct conv_case *c, const struct part *p, int n, int64_t t,
                       int head)
{
    struct interval v[256];
    for (int i = 0; i < p->dim; ++i)
        v[i] = truth_at(c, n, p->first + (int64_t)head * p->dim + i, t);
    if (p->normed) normalise(c, v, p->dim);
    const int64_t to = y_index(c, p, n, t, head);
    for (int i = 0; i < p->dim; ++i) {
        const double got = at(p->y, to + i), ratio = excess(p->y->type, &v[i], got);
        p->covered[to + i] = 1;
        if (ratio > r->worst) r->worst = ratio;
        if (ratio > 1)
            note(r, &r->wrong_outputs, "output", n, t, p->first + (int64_t)head * p->dim + i, got, v[i].truth);
    }
}

static bool is_inert(const struct conv_case *c, int n)
{
    const struct conv_lines l = conv_case_lines(c, n);
    return l.in < 0 || l.out < 0;
}

/* Rows past the last sequence are zeros, or nobody's. */
static void check_padding(struct conv_report *r, const struct conv_case *c, const struct part *p)
{
    for (int64_t t = c->used_tokens; c->desc.flags & GDN_CONV_ZERO_PADDING && t < c->tokens; ++t)
        for (int head = 0; head < p->heads; ++head)
            for (int i = 0; i < p->dim; ++i) {
                const int64_t to = y_index(c, p, 0, t, head) + i;
                p->covered[to] = 1;
                if (bits_at(p->y, to) != 0) note(r, &r->wrong_outputs, "padding row", -1, t, i, at(p->y, to), 0);
            }
}

static void check_part(struct conv_report *r, const struct conv_case *c, struct part *p)
{
    if (p->heads == 0) return;
    p->covered = calloc((size_t)p->y->count + 1, 1);
    if (!p->covered) exit(2);
    for (int n = 0; n < c->spec->num_seqs; ++n)
        for (int64_t t = 0; !is_inert(c, n) && t < c->begins[n + 1] - c->begins[n]; ++t)
            for (int head = 0; head < p->heads; ++head)
                check_head(r, c, p, n, t, head);
    check_padding(r, c, p);
    for (int64_t i = 0; i < p->y->count; ++i)
        if (!p->covered[i] && bits_at(p->y, i) != poison(p->y))
            note(r, &r->touched, "output of nobody", -1, i, 0, at(p->y, i), (double)NAN);
    free(p->covered);
}

static void check_outputs(struct conv_report *r, const struct conv_case *c, const struct conv_outputs *out)
{
    const gdn_conv1d_desc *d = &c->desc;
    const bool norm = d->flags & GDN_CONV_L2_NORM;
    struct part q = { &out->q, c->args.q_strides, 0, d->num_q_heads, d->head_dim_qk, norm, NULL };
    struct part k = { &out->k, c->args.k_strides, q.heads * q.dim, d->num_k_heads, d->head_dim_qk, norm, NULL };
    struct part v = {
        &out->v, c->args.v_strides, k.first + k.heads * k.dim, d->num_v_heads, d->head_dim_v, false, NULL
    };
    check_part(r, c, &q);
    check_part(r, c, &k);
    check_part(r, c, &v);
}

/* ---- gates ----------------------------------------------------------------------------------------------------- */

/*
 * float32: a + dt_bias is within u |x|, which e^x turns into a relative u |x|; a_log likewise where it joins the exponent;
 * expf and log1pf are within 2 u and 4 u of theirs, products within u.
 */
static struct interval g_at(const struct conv_case *c, int64_t t, int64_t h)
{
    const double a = at(&c->a, t * c->args.a_stride + conv_gate_column(c, h)), rate = at(&c->a_log, h);
    const double x = a + (c->args.dt_bias ? at(&c->dt_bias, h) : 0);
    const double g = -exp(rate) * (x > 20 ? x : log1p(exp(x)));
    const double e = fabs(g) * U * (16 + 2 * (fabs(x) + fabs(a) + fabs(rate))) + 0x1p-119;
    if (!(c->desc.flags & GDN_CONV_GATE_EXP)) return (struct interval){ g - e, g, g + e };
    return (struct interval){ exp(g - e) * (1 - 4 * U) - 0x1p-119, exp(g), exp(g + e) * (1 + 4 * U) + 0x1p-119 };
}

static struct interval beta_at(const struct conv_case *c, int64_t t, int64_t h)
{
    const double b = at(&c->b, t * c->args.b_stride + conv_gate_column(c, h)), beta = 1 / (1 + exp(-b));
    const double e = beta * 8 * U + 0x1p-119, factor = c->desc.flags & GDN_CONV_BETA_TIMES_2 ? 2 : 1;
    struct interval v = { beta - e, beta, beta + e };
    if (c->desc.flags & GDN_CONV_BETA_ROUNDED)
        v = (struct interval){ rounded(c->a.type, v.low), rounded(c->a.type, v.truth), rounded(c->a.type, v.high) };
    return (struct interval){ factor * v.low, factor * v.truth, factor * v.high };
}

static void check_gate(struct conv_report *r, const struct conv_buffer *b, int64_t i, const struct interval *v,
                       const char *what)
{
    const double got = at(b, i);
    if (!(got >= v->low && got <= v->high)) note(r, &r->wrong_gates, what, -1, i, 0, got, v->truth);
}

static void check_gate_row(struct conv_report *r, const struct conv_case *c, const struct conv_outputs *out, int64_t t,
                           bool live)
{
    const struct interval zero = { 0, 0, 0 };
    for (int64_t h = 0; h < c->desc.num_gate_heads; ++h) {
        const int64_t i = t * c->desc.num_gate_heads + h;
        const struct interval g = live ? g_at(c, t, h) : zero, beta = live ? beta_at(c, t, h) : zero;
        check_gate(r, &out->g, i, &g, "g");
        check_gate(r, &out->beta, i, &beta, "beta");
    }
}

static void check_gate_poison(struct conv_report *r, const struct conv_case *c, const struct conv_outputs *out,
                              int64_t t)
{
    for (int64_t i = t * c->desc.num_gate_heads; i < (t + 1) * c->desc.num_gate_heads; ++i)
        if (bits_at(&out->g, i) != poison(&out->g) || bits_at(&out->beta, i) != poison(&out->beta))
            note(r, &r->touched, "gate of nobody", -1, t, i, at(&out->g, i), (double)NAN);
}

static void check_gates(struct conv_report *r, const struct conv_case *c, const struct conv_outputs *out)
{
    if (!out->g.data) return;
    for (int n = 0; n < c->spec->num_seqs; ++n)
        for (int64_t t = c->begins[n]; t < c->begins[n + 1]; ++t)
            if (is_inert(c, n))
                check_gate_poison(r, c, out, t);
            else
                check_gate_row(r, c, out, t, true);
    for (int64_t t = c->used_tokens; t < c->tokens; ++t)
        if (c->desc.flags & GDN_CONV_ZERO_PADDING)
            check_gate_row(r, c, out, t, false);
        else
            check_gate_poison(r, c, out, t);
}

/* ---- state ----------------------------------------------------------------------------------------------------- */

struct image {
    struct conv_buffer expected;
    uint8_t *written;
};

/* Sequence n's window after its first len tokens, to a line. */
static void write_line(struct image *image, const struct conv_case *c, int n, int64_t len, int64_t line)
{
    const int history = c->desc.width - 1;
    for (int64_t channel = 0; channel < c->channels; ++channel)
        for (int j = 0; j < history; ++j) {
            const struct raw r = input_at(c, n, channel, len - history + j);
            const int64_t i = conv_state_index(c, line, channel, j);
            image->written[i] = 1;
            if (r.type == image->expected.type)
                set_bits(&image->expected, i, r.bits);
            else
                gdni_store(image->expected.type, image->expected.data, i, value(r));
        }
}

static void write_checkpoints(struct image *image, const struct conv_case *c)
{
    const int64_t *row = c->checkpoints.data;
    for (int64_t m = 0; m < c->args.num_checkpoints; ++m, row += 3) {
        if (row[0] < 0 || row[2] < 0 || row[1] <= 0 || is_inert(c, (int)row[0])) continue;
        if (row[1] <= c->begins[row[0] + 1] - c->begins[row[0]]) write_line(image, c, (int)row[0], row[1], row[2]);
    }
}

static struct image make_image(const struct conv_case *c)
{
    struct image image = { .expected = c->state };
    const size_t bytes = conv_buffer_bytes(&c->state);
    image.expected.data = malloc(bytes + 1);
    image.written = calloc((size_t)c->state.count + 1, 1);
    if (!image.expected.data || !image.written) exit(2);
    memcpy(image.expected.data, c->state.data, bytes);
    for (int n = 0; n < c->spec->num_seqs; ++n) {
        const struct conv_lines lines = conv_case_lines(c, n);
        const int64_t len = c->begins[n + 1] - c->begins[n];
        if (!is_inert(c, n) && (len > 0 || lines.in != lines.out)) write_line(&image, c, n, len, lines.out);
    }
    write_checkpoints(&image, c);
    return image;
}

static void check_state(struct conv_report *r, const struct conv_case *c, const struct conv_outputs *out)
{
    if (!c->state.data) return;
    struct image image = make_image(c);
    for (int64_t i = 0; i < c->state.count; ++i) {
        const uint32_t want = bits_at(&image.expected, i), got = bits_at(&out->state, i);
        if (got == want) continue;
        const int64_t pitch = c->args.state_slot_stride ? c->args.state_slot_stride : c->line_size;
        note(r, image.written[i] ? &r->wrong_state : &r->touched, image.written[i] ? "state" : "state line of nobody",
             -1, i / pitch, i % pitch, at(&out->state, i), at(&image.expected, i));
    }
    free(image.expected.data);
    free(image.written);
}

bool conv_case_check(struct conv_report *report, const struct conv_case *c, const struct conv_outputs *out)
{
    *report = (struct conv_report){ .worst = 0 };
    check_outputs(report, c, out);
    check_gates(report, c, out);
    check_state(report, c, out);
    return report->wrong_outputs + report->wrong_gates + report->wrong_state + report->touched == 0;
}
