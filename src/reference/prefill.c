/*
 * prefill.c - owns the GDN recurrence on the host, token by token, as the header states it. State and sums are double;
 * o and the final state are rounded once, when they are stored.
 *
 * Must not know: chunks, kernels, devices, files. Slow and obvious on purpose: it is what the kernels are held against.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/mem.h"
#include "codegen/problem.h"
#include "reference/host_args.h"
#include "reference/reference.h"

struct run {
    struct gdni_problem p;
    gdn_prefill_args a;
    struct gdni_seqlens seqs;
    int32_t o_type, final_type;
    double scale;
    double *state;         /* [dk][dv] of the head at work */
    double *q, *k, *u, *o; /* the token at work; u holds v first */
};

/* Where element (i, j) of the state of sequence n, head h lies. */
static int64_t state_index(const struct run *r, int64_t n, int64_t h, int64_t i, int64_t j)
{
    const int64_t dk = r->p.head_dim_qk, dv = r->p.head_dim_v, base = (n * r->p.num_heads + h) * dk * dv;
    return base + (r->p.state_layout == GDN_STATE_KV ? i * dv + j : j * dk + i);
}

static void load_state(struct run *r, int64_t n, int64_t h)
{
    const void *from = gdni_host(r->a.initial_state);
    for (int i = 0; i < r->p.head_dim_qk; ++i)
        for (int j = 0; j < r->p.head_dim_v; ++j)
            r->state[i * r->p.head_dim_v + j] = from ? gdni_load(GDN_F32, from, state_index(r, n, h, i, j)) : 0.0;
}

static void store_state(const struct run *r, int64_t n, int64_t h)
{
    if (!r->a.final_state) return;
    for (int i = 0; i < r->p.head_dim_qk; ++i)
        for (int j = 0; j < r->p.head_dim_v; ++j)
            gdni_store(r->final_type, gdni_host(r->a.final_state), state_index(r, n, h, i, j),
                       r->state[i * r->p.head_dim_v + j]);
}

/* The row of token t that state head h reads from a tensor of `heads` heads. */
static void load_row(const struct run *r, gdn_devptr tensor, int64_t t, int64_t h, int heads, int dim, double *out)
{
    const int64_t head = h * heads / r->p.num_heads;
    gdni_load_row(r->p.io_type, gdni_host(tensor), (t * heads + head) * dim, dim, out);
}

/* S <- alpha S;  u = beta (v - k S);  S <- S + k^T u;  o = q S. Two sweeps over S. */
static void step(struct run *r, double alpha, double beta)
{
    const int dk = r->p.head_dim_qk, dv = r->p.head_dim_v;
    double *restrict u = r->u, *restrict o = r->o;
    for (int i = 0; i < dk; ++i) {
        double *restrict row = r->state + i * dv;
        for (int j = 0; j < dv; ++j) {
            row[j] *= alpha;
            u[j] -= r->k[i] * row[j];
        }
    }
    for (int j = 0; j < dv; ++j) {
        u[j] *= beta;
        o[j] = 0.0;
    }
    for (int i = 0; i < dk; ++i) {
        double *restrict row = r->state + i * dv;
        for (int j = 0; j < dv; ++j) {
            row[j] += r->k[i] * u[j];
            o[j] += r->q[i] * row[j];
        }
    }
}

static void token(struct run *r, int64_t t, int64_t h)
{
    const struct gdni_problem *p = &r->p;
    const int64_t at = t * p->num_heads + h;
    const double alpha = r->a.g ? exp(gdni_load(GDN_F32, gdni_host(r->a.g), at)) : 1.0;
    const double beta = r->a.beta ? gdni_load(GDN_F32, gdni_host(r->a.beta), at) : 1.0;
    load_row(r, r->a.q, t, h, p->num_q_heads, p->head_dim_qk, r->q);
    load_row(r, r->a.k, t, h, p->num_k_heads, p->head_dim_qk, r->k);
    load_row(r, r->a.v, t, h, p->num_v_heads, p->head_dim_v, r->u);
    step(r, alpha, beta);
    for (int j = 0; j < p->head_dim_v; ++j)
        r->o[j] *= r->scale;
    gdni_store_row(r->o_type, gdni_host(r->a.o), at * p->head_dim_v, p->head_dim_v, r->o);
}

static void run_head(struct run *r, int64_t n, int64_t h)
{
    const int64_t end = gdni_seqlens_start(&r->seqs, n + 1);
    load_state(r, n, h);
    for (int64_t t = gdni_seqlens_start(&r->seqs, n); t < end; ++t)
        token(r, t, h);
    store_state(r, n, h);
}

static gdn_status take_desc(struct run *r, const gdn_prefill_desc *desc)
{
    gdn_prefill_desc d = GDN_PREFILL_DESC_INIT;
    GDN_TRY(gdni_take_struct(&d, sizeof d, desc, "gdn_prefill_desc", sizeof d));
    d.max_tokens = d.max_seqs = INT32_MAX; /* the caller's are not used */
    return gdni_problem_from_prefill(&r->p, &d);
}

static gdn_status take_args(struct run *r, const gdn_prefill_args *args)
{
    gdn_prefill_args *a = &r->a;
    *a = (gdn_prefill_args)GDN_PREFILL_ARGS_INIT;
    GDN_TRY(gdni_take_struct(a, sizeof *a, args, "gdn_prefill_args", sizeof *a));
    gdn_prefill_args checked = *a;
    gdn_devptr *const pointers[] = { &checked.q,
                                     &checked.k,
                                     &checked.v,
                                     &checked.g,
                                     &checked.beta,
                                     &checked.o,
                                     &checked.initial_state,
                                     &checked.final_state,
                                     &checked.cu_seqlens };
    gdni_align_for_check(pointers, sizeof pointers / sizeof pointers[0]);
    GDN_TRY(gdni_check_prefill_args(&r->p, &checked));
    r->scale = a->has_scale ? (double)a->scale : 1.0 / sqrt(r->p.head_dim_qk);
    return gdni_seqlens_take(&r->seqs, a->cu_seqlens, GDN_INDEX_I32, a->num_tokens, a->num_seqs);
}

static gdn_status run_all(struct run *r)
{
    const size_t dk = (size_t)r->p.head_dim_qk, dv = (size_t)r->p.head_dim_v;
    r->state = gdni_calloc(dk * dv + 2 * dk + 2 * dv, sizeof *r->state);
    if (!r->state) return GDN_FAIL(GDN_E_NOMEM, "no memory for a %zu x %zu state of doubles", dk, dv);
    r->q = r->state + dk * dv;
    r->k = r->q + dk;
    r->u = r->k + dk;
    r->o = r->u + dv;
    for (int64_t n = 0; n < r->a.num_seqs; ++n)
        for (int64_t h = 0; h < r->p.num_heads; ++h)
            run_head(r, n, h);
    gdni_free(r->state);
    return GDN_OK;
}

static gdn_status run_call(const gdn_prefill_desc *desc, const gdn_prefill_args *args, bool wide)
{
    struct run r;
    memset(&r, 0, sizeof r);
    GDN_TRY(take_desc(&r, desc));
    GDN_TRY(take_args(&r, args));
    r.o_type = wide ? GDNI_F64 : r.p.io_type;
    r.final_type = wide ? GDNI_F64 : r.p.state_type;
    return run_all(&r);
}

gdn_status gdn_reference_prefill(const gdn_prefill_desc *desc, const gdn_prefill_args *args)
{
    return run_call(desc, args, false);
}

gdn_status gdni_reference_prefill_f64(const gdn_prefill_desc *desc, const gdn_prefill_args *args)
{
    return run_call(desc, args, true);
}
