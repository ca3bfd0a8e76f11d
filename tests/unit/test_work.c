/*
 * test_work.c - the calls that candidates are tried on: legal for every descriptor, answered by the host reference, and told
 * from wrong results.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "support/emulator.h"
#include "support/fake_host.h"
#include "tuner/work.h"

static union gdni_desc prefill_desc(void)
{
    union gdni_desc d = { .prefill = fake_prefill_desc() };
    d.prefill.head_dim_qk = d.prefill.head_dim_v = 64;
    return d;
}

static union gdni_desc conv_desc(void)
{
    return (union gdni_desc){ .conv1d = fake_conv1d_desc() };
}

/* The trial, its reference, and a copy of the reference as what a kernel would have written. */
struct trial {
    struct gdni_work work;
    void *want[GDNI_WORK_MAX_TENSORS], *got[GDNI_WORK_MAX_TENSORS];
};

static void trial_open(struct trial *t, int32_t op, const union gdni_desc *desc)
{
    cr_assert_eq(gdni_work_trial(&t->work, op, desc), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdni_work_reference(&t->work, t->want), GDN_OK, "%s", gdn_last_error());
    for (int i = 0; i < t->work.num_tensors; ++i)
        t->got[i] = t->want[i] ? gdni_memdup(t->want[i], t->work.tensors[i].bytes) : NULL;
}

static void trial_close(struct trial *t)
{
    for (int i = 0; i < t->work.num_tensors; ++i) {
        gdni_free(t->want[i]);
        gdni_free(t->got[i]);
    }
    gdni_work_free(&t->work);
}

static int tensor_named(const struct gdni_work *work, const char *name)
{
    for (int i = 0; i < work->num_tensors; ++i)
        if (strcmp(work->tensors[i].name, name) == 0) return i;
    cr_assert_fail("no tensor %s", name);
    return -1;
}

static gdn_status check(const struct trial *t, int i)
{
    return gdni_tensor_check(&t->work.tensors[i], t->got[i], t->want[i], t->work.tensors[i].rows);
}

/* Every output of the trial: the right result passes; one row that is wrong does not. Returns how many there are. */
static int outputs_tell_right_from_wrong(struct trial *t, const char *what)
{
    int outputs = 0;
    for (int i = 0; i < t->work.num_tensors; ++i) {
        const struct gdni_tensor *tensor = &t->work.tensors[i];
        if (!tensor->output) continue;
        ++outputs;
        cr_expect_eq(check(t, i), GDN_OK, "%s, %s: %s", what, tensor->name, gdn_last_error());
        const int64_t row = tensor->rows / 3;
        for (int64_t j = row * tensor->dim; j < (row + 1) * tensor->dim; ++j)
            gdni_store(tensor->dtype, t->got[i], j, 0.3 * (double)(j % 7) + 0.05);
        cr_expect_eq(check(t, i), GDN_E_WRONG_RESULT, "%s, %s", what, tensor->name);
    }
    return outputs;
}

Test(work, trials_of_every_prefill_descriptor_have_a_reference)
{
    static const struct {
        gdn_dtype io, state, gate_type;
        gdn_state_layout layout;
        gdn_gate gate;
        gdn_beta beta;
        uint32_t flags;
        gdn_index_type index;
        int32_t q, k, v;
    } rows[] = {
        { GDN_BF16, GDN_F32, GDN_F32, GDN_STATE_KV, GDN_GATE_LOG, GDN_BETA_PLAIN, 0, GDN_INDEX_I32, 16, 16, 32 },
        { GDN_F16, GDN_F32, GDN_BF16, GDN_STATE_VK, GDN_GATE_LOGITS, GDN_BETA_LOGITS, GDN_PREFILL_QK_L2NORM,
          GDN_INDEX_I64, 4, 4, 12 },
        { GDN_BF16, GDN_BF16, GDN_F32, GDN_STATE_KV, GDN_GATE_LINEAR, GDN_BETA_PLAIN,
          GDN_PREFILL_CHECKPOINTS | GDN_PREFILL_ZERO_PADDING, GDN_INDEX_I32, 8, 1, 8 },
        { GDN_BF16, GDN_F16, GDN_F16, GDN_STATE_KV, GDN_GATE_LOG, GDN_BETA_LOGITS, GDN_PREFILL_BETA_TIMES_2,
          GDN_INDEX_I32, 2, 2, 2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        union gdni_desc d = prefill_desc();
        struct trial t;
        d.prefill.io_type = rows[i].io, d.prefill.state_type = rows[i].state, d.prefill.gate_type = rows[i].gate_type;
        d.prefill.state_layout = rows[i].layout, d.prefill.gate = rows[i].gate, d.prefill.beta = rows[i].beta;
        d.prefill.flags = rows[i].flags, d.prefill.cu_seqlens_type = d.prefill.slot_type = rows[i].index;
        d.prefill.num_q_heads = rows[i].q, d.prefill.num_k_heads = rows[i].k, d.prefill.num_v_heads = rows[i].v;
        char what[32];
        snprintf(what, sizeof what, "row %d", (int)i);
        trial_open(&t, GDNI_OP_PREFILL, &d);
        cr_expect_eq(outputs_tell_right_from_wrong(&t, what), 2); /* o and the pool */
        trial_close(&t);
    }
}

Test(work, trials_of_every_conv_descriptor_have_a_reference)
{
    static const struct {
        gdn_dtype io, state;
        gdn_conv_state_layout layout;
        gdn_conv_x_layout x;
        int32_t gate_heads;
        uint32_t flags;
        int outputs;
    } rows[] = {
        { GDN_BF16, 0, GDN_CONV_STATE_CW, GDN_CONV_X_PACKED, 0, GDN_CONV_SILU, 4 },
        { GDN_F16, GDN_F32, GDN_CONV_STATE_WC, GDN_CONV_X_INTERLEAVED, 4,
          GDN_CONV_SILU | GDN_CONV_BIAS | GDN_CONV_L2_NORM | GDN_CONV_BETA_ROUNDED | GDN_CONV_CHECKPOINTS, 6 },
        { GDN_F32, 0, GDN_CONV_STATE_CW_STRIDED, GDN_CONV_X_PACKED, 4, GDN_CONV_GATE_EXP | GDN_CONV_ZERO_PADDING, 6 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        union gdni_desc d = conv_desc();
        struct trial t;
        d.conv1d.io_type = rows[i].io, d.conv1d.state_type = rows[i].state, d.conv1d.state_layout = rows[i].layout;
        d.conv1d.x_layout = rows[i].x, d.conv1d.num_gate_heads = rows[i].gate_heads, d.conv1d.flags = rows[i].flags;
        char what[32];
        snprintf(what, sizeof what, "row %d", (int)i);
        trial_open(&t, GDNI_OP_CONV1D_QKV, &d);
        cr_expect_eq(outputs_tell_right_from_wrong(&t, what), rows[i].outputs);
        trial_close(&t);
    }
}

Test(work, a_trial_has_the_least_heads_of_the_same_ratios)
{
    union gdni_desc d = prefill_desc();
    struct gdni_work work;
    for (int heads = 16; heads <= 64; heads += 48) {
        d.prefill.num_q_heads = d.prefill.num_k_heads = heads, d.prefill.num_v_heads = 3 * heads;
        cr_assert_eq(gdni_work_trial(&work, GDNI_OP_PREFILL, &d), GDN_OK);
        cr_expect(work.desc.prefill.num_q_heads == 1 && work.desc.prefill.num_k_heads == 1 &&
                  work.desc.prefill.num_v_heads == 3);
        gdni_work_free(&work);
    }
    d = conv_desc();
    d.conv1d.num_q_heads = 0; /* k and v alone */
    cr_assert_eq(gdni_work_trial(&work, GDNI_OP_CONV1D_QKV, &d), GDN_OK);
    cr_expect(work.desc.conv1d.num_q_heads == 0 && work.desc.conv1d.num_k_heads == 1 &&
              work.desc.conv1d.num_v_heads == 2);
    gdni_work_free(&work);
}

Test(work, what_nobody_may_write_is_missed_when_it_is_written)
{
    const union gdni_desc d = prefill_desc();
    struct trial t;
    trial_open(&t, GDNI_OP_PREFILL, &d);
    const int o = tensor_named(&t.work, "o"), pool = tensor_named(&t.work, "initial_state");
    const struct gdni_tensor *to = &t.work.tensors[o], *tp = &t.work.tensors[pool];
    gdni_store(to->dtype, t.got[o], to->rows * to->dim - 1, 0.0); /* padding, without GDN_PREFILL_ZERO_PADDING */
    cr_expect_eq(check(&t, o), GDN_E_WRONG_RESULT);
    const double before = gdni_load(tp->dtype, t.got[pool], tp->rows * tp->dim - 1);
    gdni_store(tp->dtype, t.got[pool], tp->rows * tp->dim - 1, before + 5); /* a line that no slot names */
    cr_expect_eq(check(&t, pool), GDN_E_WRONG_RESULT);
    trial_close(&t);
}

Test(work, rounding_passes_and_ten_times_as_much_does_not)
{
    const union gdni_desc d = prefill_desc();
    struct trial t;
    trial_open(&t, GDNI_OP_PREFILL, &d);
    const int o = tensor_named(&t.work, "o");
    const struct gdni_tensor *tensor = &t.work.tensors[o];
    for (int pass = 0; pass < 2; ++pass) {
        for (int64_t i = 0; i < tensor->rows * tensor->dim; ++i) {
            const double x = gdni_load(tensor->dtype, t.want[o], i);
            if (isfinite(x)) gdni_store(tensor->dtype, t.got[o], i, x * (1 + (i % 2 ? 1 : -1) * (pass ? 0.04 : 0.004)));
        }
        cr_expect_eq(check(&t, o), pass ? GDN_E_WRONG_RESULT : GDN_OK, "%s", gdn_last_error());
    }
    cr_expect(fake_error_says("of o is off by") && fake_error_says("of 10000"), "%s", gdn_last_error());
    trial_close(&t);
}

/* A trial as the emulator takes it: states by sequence, every sequence in play. */
static gdn_prefill_args without_slots(const struct gdni_work *work, void *final_state)
{
    gdn_devptr addresses[GDNI_WORK_MAX_TENSORS];
    union gdni_args args;
    for (int i = 0; i < work->num_tensors; ++i)
        addresses[i] = (gdn_devptr)(uintptr_t)work->tensors[i].host;
    gdni_work_bind(&args, work, addresses);
    args.prefill.slot_in = args.prefill.slot_out = args.prefill.has_initial_state = 0;
    args.prefill.final_state = (gdn_devptr)(uintptr_t)final_state;
    return args.prefill;
}

/* The emulator does not know GDN_PREFILL_BETA_TIMES_2: twice the beta is the same. */
static void double_betas(struct gdni_work *work)
{
    const struct gdni_tensor *beta = &work->tensors[tensor_named(work, "beta")];
    work->desc.prefill.flags &= ~(uint32_t)GDN_PREFILL_BETA_TIMES_2;
    for (int64_t i = 0; i < beta->rows * beta->dim; ++i)
        gdni_store(beta->dtype, beta->host, i, 2 * gdni_load(beta->dtype, beta->host, i));
}

static void expect_emulated_passes(const gdn_prefill_desc *desc, const char *what)
{
    const union gdni_desc d = { .prefill = *desc };
    struct gdni_work work;
    cr_assert_eq(gdni_work_trial(&work, GDNI_OP_PREFILL, &d), GDN_OK);
    if (desc->flags & GDN_PREFILL_BETA_TIMES_2) double_betas(&work);
    struct gdni_tensor o = work.tensors[tensor_named(&work, "o")];
    struct gdni_tensor state = work.tensors[tensor_named(&work, "initial_state")];
    state.rows = state.rows / GDNI_TRIAL_LINES * GDNI_TRIAL_SEQS;
    void *want_state = gdni_alloc(state.bytes);
    const gdn_prefill_args args = without_slots(&work, want_state);
    float *got = gdni_calloc((size_t)(o.rows * o.dim), sizeof *got), *got_state = gdni_alloc(state.bytes);
    void *rounded = gdni_memdup(o.host, o.bytes);
    cr_assert(emu_prefill(&work.desc.prefill, &args, &emu_kernel, got, got_state));
    cr_assert_eq(gdn_reference_prefill(&work.desc.prefill, &args), GDN_OK, "%s", gdn_last_error());
    const int64_t used = (o.rows - GDNI_TRIAL_PADDING * (o.rows / args.num_tokens)) * o.dim; /* the padding stays NaN */
    for (int64_t i = 0; i < used; ++i)
        gdni_store(o.dtype, rounded, i, (double)got[i]);
    cr_expect_eq(gdni_tensor_check(&o, rounded, o.host, o.rows), GDN_OK, "%s: %s", what, gdn_last_error());
    cr_expect_eq(gdni_tensor_check(&state, got_state, want_state, state.rows), GDN_OK, "%s: %s", what, gdn_last_error());
    gdni_free(want_state);
    gdni_free(got);
    gdni_free(got_state);
    gdni_free(rounded);
    gdni_work_free(&work);
}

/* The emulator rounds where the kernels do: what it computes must not be taken for a wrong kernel's. */
Test(work, a_kernel_that_is_as_exact_as_can_be_passes_every_trial)
{
    static const uint32_t flags[] = { 0, GDN_PREFILL_QK_L2NORM, GDN_PREFILL_BETA_TIMES_2 };
    for (int i = 0; i < 12; ++i) {
        gdn_prefill_desc d = prefill_desc().prefill;
        char what[64];
        d.io_type = i % 2 ? GDN_F16 : GDN_BF16;
        d.head_dim_qk = d.head_dim_v = i / 2 % 2 ? 128 : 64;
        d.flags = flags[i / 4];
        d.num_q_heads = d.num_k_heads = 4, d.num_v_heads = 12;
        snprintf(what, sizeof what, "%s, head dims of %d, flags 0x%x", i % 2 ? "fp16" : "bf16", d.head_dim_v, d.flags);
        expect_emulated_passes(&d, what);
    }
}

Test(work, a_call_of_any_size_costs_the_host_a_megabyte_a_tensor)
{
    union gdni_desc d = { .prefill = fake_prefill_desc() };
    struct gdni_work work;
    d.prefill.num_q_heads = d.prefill.num_k_heads = 16, d.prefill.num_v_heads = 64;
    cr_assert_eq(gdni_work_call(&work, GDNI_OP_PREFILL, &d, 262144, 3, GDNI_CALL_USUAL), GDN_OK);
    const int v = tensor_named(&work, "v"), cu = tensor_named(&work, "cu_seqlens");
    cr_expect_eq(work.tensors[v].bytes, (size_t)262144 * 64 * 128 * 2);
    for (int i = 0; i < work.num_tensors; ++i)
        cr_expect_leq(work.tensors[i].host_bytes, (size_t)1 << 20);
    const int32_t *starts = work.tensors[cu].host;
    cr_expect(starts[0] == 0 && starts[1] == 87382 && starts[2] == 174763 && starts[3] == 262144);
    gdni_work_free(&work);
}

Test(work, uneven_and_lone_calls_have_most_of_their_tokens_in_the_first_sequence)
{
    static const struct {
        enum gdni_call_kind kind;
        int64_t tokens, seqs;
        int32_t starts[5];
    } cases[] = {
        { GDNI_CALL_UNEVEN, 1001, 4, { 0, 501, 668, 835, 1001 } }, { GDNI_CALL_UNEVEN, 1000, 2, { 0, 750, 1000 } },
        { GDNI_CALL_UNEVEN, 77, 1, { 0, 77 } },                    { GDNI_CALL_LONE, 1001, 4, { 0, 953, 969, 985, 1001 } },
        { GDNI_CALL_LONE, 20, 2, { 0, 10, 20 } },                  { GDNI_CALL_LONE, 77, 1, { 0, 77 } },
    };
    const union gdni_desc d = { .prefill = fake_prefill_desc() };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct gdni_work work;
        cr_assert_eq(gdni_work_call(&work, GDNI_OP_PREFILL, &d, cases[i].tokens, cases[i].seqs, cases[i].kind), GDN_OK);
        const int32_t *starts = work.tensors[tensor_named(&work, "cu_seqlens")].host;
        for (int64_t n = 0; n <= cases[i].seqs; ++n)
            cr_expect_eq(starts[n], cases[i].starts[n], "case %zu, %lld: %d", i, (long long)n, starts[n]);
        gdni_work_free(&work);
    }
}

Test(work, every_fourth_head_of_an_undecayed_call_does_not_decay)
{
    union gdni_desc d = { .prefill = fake_prefill_desc() };
    struct gdni_work work;
    cr_assert_eq(gdni_work_call(&work, GDNI_OP_PREFILL, &d, 300, 2, GDNI_CALL_UNDECAYED), GDN_OK);
    const struct gdni_tensor *g = &work.tensors[tensor_named(&work, "g")];
    double sums[8] = { 0 };
    cr_assert_eq(g->dim, 8);
    for (int64_t i = 0; i < 300 * g->dim; ++i)
        sums[i % g->dim] += ((const float *)g->host)[i];
    for (int h = 0; h < 8; ++h)
        cr_expect(h % 4 == 0 ? sums[h] == 0 : sums[h] < -5, "head %d: %g", h, sums[h]);
    gdni_work_free(&work);
    d.prefill.gate = GDN_GATE_LOGITS;
    cr_assert_eq(gdni_work_call(&work, GDNI_OP_PREFILL, &d, 300, 2, GDNI_CALL_UNDECAYED), GDN_OK);
    const float *logits = work.tensors[tensor_named(&work, "g")].host;
    for (int64_t i = 0; i < 300 * 8; ++i)
        cr_expect(i % 4 == 0 ? logits[i] <= -30 : logits[i] > -10, "head %d: %g", (int)(i % 8), (double)logits[i]);
    gdni_work_free(&work);
}

Test(work, no_allocation_that_fails_is_a_crash_or_a_leak)
{
    const union gdni_desc p = prefill_desc(), c = conv_desc();
    for (int64_t allowed = 0; allowed < 40; ++allowed) {
        struct gdni_work work;
        void *want[GDNI_WORK_MAX_TENSORS] = { NULL };
        const bool conv = allowed % 2;
        gdni_mem_fail_after(allowed / 2);
        gdn_status status = gdni_work_trial(&work, conv ? GDNI_OP_CONV1D_QKV : GDNI_OP_PREFILL, conv ? &c : &p);
        if (status == GDN_OK) status = gdni_work_reference(&work, want);
        gdni_mem_fail_after(-1);
        cr_expect(status == GDN_OK || status == GDN_E_NOMEM, "%d", (int)status);
        if (allowed == 0) cr_expect_eq(status, GDN_E_NOMEM);
        for (int i = 0; i < work.num_tensors; ++i)
            gdni_free(want[i]);
        gdni_work_free(&work);
    }
    cr_expect(fake_no_leaks());
}
