/*
 * gdn_contract_check.c - owns what must come out of a contract call: the fp64 recurrence within the emulator's error, and no
 * byte elsewhere. Must not know: how calls are made, devices.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "bounds.h"
#include "emulator.h"
#include "errors.h"
#include "gdn_contract.h"
#include "reference/reference.h"

static void *must_alloc(int64_t count, size_t size)
{
    void *p = calloc(count > 0 ? (size_t)count : 1, size);
    if (p) return p;
    fprintf(stderr, "gdn_contract_check: no memory for %lld elements of %zu bytes\n", (long long)count, size);
    exit(2);
}

/* A call's outcome in plain order: [tokens, heads, dim], [num_seqs, heads, dim, dim]. */
struct outcome {
    double *o, *state;
};

static void outcome_free(struct outcome *x)
{
    free(x->o), free(x->state);
}

static int64_t state_size(const struct contract_call *c)
{
    return (int64_t)c->dim * c->dim;
}

static struct outcome outcome_alloc(const struct contract_call *c, int64_t tokens, int64_t seqs)
{
    return (struct outcome){ must_alloc(tokens * c->heads * c->dim, 8),
                             must_alloc(seqs * c->heads * state_size(c), 8) };
}

static struct outcome truth(const struct contract_call *c, const gdn_prefill_args *args)
{
    struct outcome x = outcome_alloc(c, args->num_tokens, args->num_seqs);
    gdn_prefill_args a = *args;
    a.o = (gdn_devptr)(uintptr_t)x.o;
    a.final_state = (gdn_devptr)(uintptr_t)x.state;
    if (gdni_reference_prefill_f64(&c->plain_desc, &a) == GDN_OK) return x;
    fprintf(stderr, "gdn_contract_check: %s: %s\n", c->name, gdn_last_error());
    exit(2);
}

/* What an exact kernel can reach; the state rounded as it is stored. */
static struct outcome emulated(const struct contract_call *c, const gdn_prefill_args *args)
{
    struct outcome x = outcome_alloc(c, args->num_tokens, args->num_seqs);
    const int64_t rows = args->num_tokens * c->heads * c->dim, states = args->num_seqs * c->heads * state_size(c);
    float *o = must_alloc(rows, 4), *state = must_alloc(states, 4);
    if (!emu_prefill(&c->plain_desc, args, &emu_kernel, o, state)) {
        fprintf(stderr, "gdn_contract_check: no memory for the emulator\n");
        exit(2);
    }
    for (int64_t i = 0; i < rows; ++i)
        x.o[i] = (double)o[i];
    for (int64_t i = 0; i < states; ++i) {
        unsigned char stored[8];
        gdni_store((int32_t)c->desc.state_type, stored, 0, (double)state[i]);
        x.state[i] = gdni_load((int32_t)c->desc.state_type, stored, 0);
    }
    free(o), free(state);
    return x;
}

/* ---- what a run left ------------------------------------------------------------------------------------------------- */

static void read_o(const struct contract_call *c, unsigned char *const after[], double *o)
{
    size_t offset = 0;
    const int image = contract_find_image(c, c->args.o, &offset);
    const gdn_strides *s = &c->o_strides;
    for (int n = 0; n < c->num_seqs; ++n)
        for (int64_t t = c->cu[n]; t < c->cu[n + 1]; ++t)
            for (int64_t h = 0; h < c->heads; ++h) {
                const int64_t row = c->uniform ? n * s->batch + (t - c->cu[n]) * s->token : t * s->token;
                gdni_load_row((int32_t)c->desc.io_type, after[image] + offset, row + h * s->head, c->dim,
                              o + (t * c->heads + h) * c->dim);
            }
}

/* A line of the final pool, in plain order. */
static void read_line(const struct contract_call *c, unsigned char *const after[], int64_t line, double *state)
{
    size_t offset = 0;
    const int image = contract_find_image(c, c->args.final_state, &offset);
    const int64_t d = c->dim;
    for (int64_t h = 0; h < c->heads; ++h)
        for (int64_t i = 0; i < d; ++i)
            for (int64_t j = 0; j < d; ++j) {
                const int64_t in_head = c->desc.state_layout == GDN_STATE_KV ? i * d + j : j * d + i;
                state[(h * d + i) * d + j] = gdni_load((int32_t)c->desc.state_type, after[image] + offset,
                                                       line * c->slot_stride + h * d * d + in_head);
            }
}

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

struct measure {
    double whole, worst;
};

/* Of the parts of a tensor, one a sequence and head: parts with no element do not count. */
static struct measure measure_parts(const struct errors *parts, int count)
{
    struct errors all = { 0 };
    struct measure m = { 0, 0 };
    for (int i = 0; i < count; ++i)
        errors_merge(&all, &parts[i]);
    m.whole = errors_relative(&all);
    for (int i = 0; i < count; ++i)
        m.worst = fmax(m.worst, errors_relative_above(&parts[i], 1e-3 * errors_rms(&all)));
    return m;
}

static struct measure o_error(const struct contract_call *c, const double *o, const double *wanted)
{
    struct errors parts[CONTRACT_MAX_SEQS * 16] = { { .count = 0 } };
    for (int n = 0; n < c->num_seqs; ++n)
        for (int h = 0; !c->inert[n] && h < c->heads; ++h)
            for (int64_t t = c->cu[n]; t < c->cu[n + 1]; ++t)
                for (int64_t at = (t * c->heads + h) * c->dim, end = at + c->dim; at < end; ++at)
                    errors_add(&parts[n * c->heads + h], o[at], wanted[at]);
    return measure_parts(parts, c->num_seqs * c->heads);
}

static struct measure state_error(const struct contract_call *c, const double *state, const double *wanted)
{
    struct errors parts[CONTRACT_MAX_SEQS * 16] = { { .count = 0 } };
    for (int part = 0; part < c->num_seqs * c->heads; ++part)
        for (int64_t at = part * state_size(c); !c->inert[part / c->heads] && at < (part + 1) * state_size(c); ++at)
            errors_add(&parts[part], state[at], wanted[at]);
    return measure_parts(parts, c->num_seqs * c->heads);
}

static double bound_of(double emulated_error)
{
    return BOUNDS_FACTOR * fmax(emulated_error, BOUNDS_FLOOR);
}

/* Adds one checkpoint's differences: the plain call of its sequence's first tokens says what it is. */
static void add_checkpoint(const struct contract_call *c, unsigned char *const after[], const int64_t row[3],
                           struct errors *got, struct errors *reachable)
{
    const int64_t n = row[0], rows = c->cu[n] * (int64_t)c->heads, count = c->heads * state_size(c);
    gdn_prefill_args a = c->plain_args;
    a.q += (gdn_devptr)(rows * c->dim * 2), a.k += (gdn_devptr)(rows * c->dim * 2),
        a.v += (gdn_devptr)(rows * c->dim * 2);
    a.g += (gdn_devptr)(rows * 4), a.beta += (gdn_devptr)(rows * 4);
    a.initial_state += (gdn_devptr)(n * count * 4);
    a.cu_seqlens = 0, a.num_tokens = row[1], a.num_seqs = 1;
    struct outcome wanted = truth(c, &a), emu = emulated(c, &a);
    double *state = must_alloc(count, 8);
    read_line(c, after, row[2], state);
    for (int64_t i = 0; i < count; ++i) {
        errors_add(got, state[i], wanted.state[i]);
        errors_add(reachable, emu.state[i], wanted.state[i]);
    }
    free(state);
    outcome_free(&wanted);
    outcome_free(&emu);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

/* 0xff is what outputs start as, so that a byte that nobody wrote shows as a NaN in the errors. */
static void check_untouched(struct contract_result *out, const struct contract_call *c, unsigned char *const after[])
{
    for (int i = 0; i < c->num_images; ++i)
        for (size_t b = 0; b < c->images[i].bytes; ++b)
            if (after[i][b] != c->images[i].data[b] && !(c->images[i].may_write && c->images[i].may_write[b])) {
                snprintf(out->trouble, sizeof out->trouble, "byte %zu of %s was written and must not be", b,
                         c->images[i].name);
                return;
            }
}

static void check_zero_padding(struct contract_result *out, const struct contract_call *c, unsigned char *const after[])
{
    size_t offset = 0;
    const int image = contract_find_image(c, c->args.o, &offset);
    if (!(c->desc.flags & GDN_PREFILL_ZERO_PADDING)) return;
    for (int64_t t = c->used_tokens; t < c->tokens; ++t)
        for (int64_t h = 0; h < c->heads; ++h)
            for (int64_t i = 0; i < c->dim * 2; ++i)
                if (after[image][(int64_t)offset + (t * c->o_strides.token + h * c->o_strides.head) * 2 + i] != 0) {
                    snprintf(out->trouble, sizeof out->trouble, "o is not 0 in padding row %lld, head %lld",
                             (long long)t, (long long)h);
                    return;
                }
}

/* ---- the check ------------------------------------------------------------------------------------------------------- */

static void check_checkpoints(struct contract_result *out, const struct contract_call *c, unsigned char *const after[])
{
    struct errors got = { 0 }, reachable = { 0 };
    for (int i = 0; i < (int)c->args.num_checkpoints; ++i)
        if (c->checkpoints[i][0] >= 0) add_checkpoint(c, after, c->checkpoints[i], &got, &reachable);
    out->checkpoint = errors_relative(&got);
    out->bound_checkpoint = bound_of(errors_relative(&reachable));
}

static void check_numbers(struct contract_result *out, const struct contract_call *c, unsigned char *const after[])
{
    struct outcome wanted = truth(c, &c->plain_args), emu = emulated(c, &c->plain_args);
    struct outcome got = outcome_alloc(c, c->tokens, c->num_seqs);
    read_o(c, after, got.o);
    struct measure error = o_error(c, got.o, wanted.o), bound = o_error(c, emu.o, wanted.o);
    out->o = error.whole, out->o_worst = error.worst;
    out->bound_o = bound_of(bound.whole), out->bound_o_worst = bound_of(bound.worst);
    for (int n = 0; c->has_final && n < c->num_seqs; ++n)
        if (!c->inert[n]) read_line(c, after, c->line_out[n], got.state + n * c->heads * state_size(c));
    error = state_error(c, c->has_final ? got.state : emu.state, wanted.state);
    bound = state_error(c, emu.state, wanted.state);
    out->state = error.whole, out->state_worst = error.worst;
    out->bound_state = bound_of(bound.whole), out->bound_state_worst = bound_of(bound.worst);
    outcome_free(&wanted);
    outcome_free(&emu);
    outcome_free(&got);
}

void contract_check(struct contract_result *out, const struct contract_call *c, unsigned char *const after[])
{
    *out = (struct contract_result){ .passed = false };
    check_untouched(out, c, after);
    check_zero_padding(out, c, after);
    check_numbers(out, c, after);
    check_checkpoints(out, c, after);
    out->passed = !*out->trouble && out->o <= out->bound_o && out->o_worst <= out->bound_o_worst &&
                  out->state <= out->bound_state && out->state_worst <= out->bound_state_worst &&
                  out->checkpoint <= out->bound_checkpoint; /* false for a NaN */
}
