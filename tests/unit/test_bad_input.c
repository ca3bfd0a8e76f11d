/*
 * test_bad_input.c - what a caller can do wrong: each a status and a sentence that names field, value and remedy, never an
 * abort. One table row per mistake.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/nvrtc.h"
#include "support/fake_host.h"

static struct fake_host host;

static void set_up(void)
{
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
}

static void tear_down(void)
{
    fake_host_close(&host);
    cr_expect(fake_balanced(host.cuda));
    cr_expect(fake_no_leaks());
}

TestSuite(bad_input, .init = set_up, .fini = tear_down);

static void expect(const char *what, gdn_status status, gdn_status wanted, const char *const *words)
{
    cr_expect_eq(status, wanted, "%s: %s, wanted %s: %s", what, gdn_status_name(status), gdn_status_name(wanted),
                 gdn_last_error());
    for (; *words; ++words) cr_expect(fake_error_says(*words), "%s: no \"%s\" in: %s", what, *words, gdn_last_error());
}
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define EXPECT(call, wanted, ...) expect(#call, (call), (wanted), WORDS(__VA_ARGS__))

/* ---- Descriptors ---- */

static gdn_status plan_prefill(const gdn_prefill_desc *desc)
{
    const gdn_target target = fake_h200(host.ctx);
    gdn_plan *plan = (gdn_plan *)&host; /* must become NULL */
    const gdn_status status = gdn_plan_prefill(host.ctx, &target, desc, 0, &plan);
    cr_expect_eq(plan != NULL, status == GDN_OK);
    gdn_plan_destroy(plan);
    return status;
}

static gdn_status plan_conv(const gdn_conv1d_desc *desc)
{
    const gdn_target target = fake_h200(host.ctx);
    gdn_plan *plan = (gdn_plan *)&host;
    const gdn_status status = gdn_plan_conv1d_qkv(host.ctx, &target, desc, 0, &plan);
    cr_expect_eq(plan != NULL, status == GDN_OK);
    gdn_plan_destroy(plan);
    return status;
}

enum { MAX_WORDS = 4 };

/* A member that is spoiled: where, how wide, with what. */
struct spoiled {
    const char *name;
    size_t offset, size;
    int64_t value;
    gdn_status status;
    const char *words[MAX_WORDS]; /* ends at NULL */
};
#define MEMBER(type, member) #member, offsetof(type, member), sizeof(((type *)0)->member)

static void spoil(void *object, const struct spoiled *s)
{
    memcpy((char *)object + s->offset, &s->value, s->size); /* little endian: the low bytes */
}

static void expect_spoiled(const struct spoiled *s, gdn_status status)
{
    char what[96];
    snprintf(what, sizeof what, "%s = %lld", s->name, (long long)s->value);
    expect(what, status, s->status, s->words);
}

Test(bad_input, members_of_a_prefill_desc)
{
#define M(member) MEMBER(gdn_prefill_desc, member)
    static const struct spoiled rows[] = {
        { M(struct_size), 0, GDN_E_VERSION, { "gdn_prefill_desc.struct_size is 0", "_INIT" } },
        { M(struct_size), 16, GDN_E_VERSION, { "gdn_prefill_desc.struct_size is 16", "_INIT" } },
        { M(struct_size), INT64_MAX, GDN_E_VERSION, { "gdn_prefill_desc.struct_size", "_INIT" } },
        { M(io_type), GDN_F32, GDN_E_UNSUPPORTED, { "io_type is 3 (fp32)", "GDN_BF16 or GDN_F16" } },
        { M(io_type), 0, GDN_E_INVALID, { "io_type is 0", "GDN_BF16" } },
        { M(io_type), 77, GDN_E_INVALID, { "io_type is 77" } },
        { M(state_type), 0, GDN_E_INVALID, { "state_type is 0", "GDN_F32, GDN_BF16 or GDN_F16" } },
        { M(state_type), -1, GDN_E_INVALID, { "state_type is -1" } },
        { M(state_layout), 0, GDN_E_INVALID, { "state_layout is 0", "GDN_STATE_KV or GDN_STATE_VK" } },
        { M(state_layout), 3, GDN_E_INVALID, { "state_layout is 3" } },
        { M(num_q_heads), 3, GDN_E_INVALID, { "num_q_heads", "3, 4, 8", "divide" } },
        { M(num_k_heads), 5, GDN_E_INVALID, { "4, 5, 8", "divide" } },
        { M(num_v_heads), 6, GDN_E_INVALID, { "4, 4, 6", "divide" } },
        { M(num_v_heads), 3, GDN_E_INVALID, { "4, 4, 3", "divide" } },
        { M(num_q_heads), 0, GDN_E_INVALID, { "num_q_heads is 0", "from 1" } },
        { M(num_k_heads), -4, GDN_E_INVALID, { "num_k_heads is -4" } },
        { M(num_v_heads), 100000, GDN_E_INVALID, { "num_v_heads is 100000", "to 4096" } },
        { M(head_dim_qk), 96, GDN_E_UNSUPPORTED, { "head_dim_qk", "96, 128", "64, 64 and 128, 128" } },
        { M(head_dim_v), 64, GDN_E_UNSUPPORTED, { "128, 64" } },
        { M(head_dim_v), -128, GDN_E_INVALID, { "head_dim_v", "-128", "positive" } },
        { M(head_map), 0, GDN_E_INVALID, { "head_map is 0", "GDN_HEADS_GROUPED or GDN_HEADS_TILED" } },
        { M(head_map), 3, GDN_E_INVALID, { "head_map is 3" } },
        { M(gate), 0, GDN_E_INVALID, { "gate is 0", "GDN_GATE_LOG, GDN_GATE_LINEAR or GDN_GATE_LOGITS" } },
        { M(gate), 4, GDN_E_INVALID, { "gate is 4" } },
        { M(gate_type), 0, GDN_E_INVALID, { "gate_type is 0", "GDN_F32" } },
        { M(gate_type), 4, GDN_E_INVALID, { "gate_type is 4" } },
        { M(beta), 3, GDN_E_INVALID, { "beta is 3", "GDN_BETA_PLAIN or GDN_BETA_LOGITS" } },
        { M(beta_type), -3, GDN_E_INVALID, { "beta_type is -3" } },
        { M(cu_seqlens_type), 3, GDN_E_INVALID, { "cu_seqlens_type is 3", "GDN_INDEX_I32 or GDN_INDEX_I64" } },
        { M(slot_type), -1, GDN_E_INVALID, { "slot_type is -1", "GDN_INDEX_I64" } },
        { M(flags), 32, GDN_E_INVALID, { "flags is 0x20", "GDN_PREFILL_*" } },
        { M(max_tokens), 0, GDN_E_INVALID, { "max_tokens is 0", "from 1" } },
        { M(max_tokens), -5, GDN_E_INVALID, { "max_tokens is -5" } },
        { M(max_tokens), INT64_MAX, GDN_E_INVALID, { "max_tokens is 9223372036854775807", "to 2147483647" } },
        { M(max_seqs), 0, GDN_E_INVALID, { "max_seqs is 0" } },
        { M(max_seqs), 1LL << 31, GDN_E_INVALID, { "max_seqs is 2147483648" } },
    };
#undef M
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        gdn_prefill_desc desc = fake_prefill_desc();
        spoil(&desc, &rows[i]);
        expect_spoiled(&rows[i], plan_prefill(&desc));
    }
    EXPECT(plan_prefill(NULL), GDN_E_INVALID, "gdn_prefill_desc is null", "_INIT");
}

Test(bad_input, members_of_a_conv_desc)
{
#define M(member) MEMBER(gdn_conv1d_desc, member)
    static const struct spoiled rows[] = {
        { M(struct_size), 8, GDN_E_VERSION, { "gdn_conv1d_desc.struct_size is 8", "_INIT" } },
        { M(io_type), 4, GDN_E_INVALID, { "io_type is 4", "GDN_F32, GDN_BF16 or GDN_F16" } },
        { M(state_type), 9, GDN_E_INVALID, { "state_type is 9" } },
        { M(state_layout), 9, GDN_E_INVALID, { "state_layout is 9", "GDN_CONV_STATE_WC or GDN_CONV_STATE_CW_STRIDED" } },
        { M(x_layout), 7, GDN_E_INVALID, { "x_layout is 7", "GDN_CONV_X_INTERLEAVED" } },
        { M(num_gate_heads), 5000, GDN_E_INVALID, { "num_gate_heads is 5000" } },
        { M(gate_type), 5, GDN_E_INVALID, { "gate_type is 5" } },
        { M(a_log_type), 5, GDN_E_INVALID, { "a_log_type is 5" } },
        { M(dt_bias_type), -1, GDN_E_INVALID, { "dt_bias_type is -1" } },
        { M(cu_seqlens_type), 3, GDN_E_INVALID, { "cu_seqlens_type is 3", "GDN_INDEX_I64" } },
        { M(slot_type), 3, GDN_E_INVALID, { "slot_type is 3" } },
        { M(num_q_heads), -1, GDN_E_INVALID, { "num_q_heads is -1" } },
        { M(head_dim_qk), 100, GDN_E_UNSUPPORTED, { "head_dim_qk is 100", "multiple of 16" } },
        { M(head_dim_v), 0, GDN_E_INVALID, { "head_dim_v is 0" } },
        { M(head_dim_v), 512, GDN_E_UNSUPPORTED, { "head_dim_v is 512", "up to 256" } },
        { M(width), 1, GDN_E_UNSUPPORTED, { "width is 1", "2, 3 or 4" } },
        { M(width), 5, GDN_E_UNSUPPORTED, { "width is 5" } },
        { M(flags), 0x400, GDN_E_INVALID, { "flags is 0x400", "GDN_CONV_*" } },
        { M(flags), GDN_CONV_EXACT_NORM, GDN_E_INVALID, { "GDN_CONV_EXACT_NORM needs GDN_CONV_L2_NORM" } },
        { M(flags), GDN_CONV_GATE_EXP, GDN_E_INVALID, { "num_gate_heads is 0" } },
        { M(flags), GDN_CONV_BETA_TIMES_2, GDN_E_INVALID, { "num_gate_heads is 0" } },
        { M(x_alignment), 3, GDN_E_INVALID, { "x_alignment is 3", "2, 4, 8 or 16" } },
        { M(x_alignment), 32, GDN_E_INVALID, { "x_alignment is 32" } },
        { M(max_tokens), -1, GDN_E_INVALID, { "max_tokens is -1" } },
        { M(max_seqs), 0, GDN_E_INVALID, { "max_seqs is 0" } },
    };
#undef M
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        gdn_conv1d_desc desc = fake_conv1d_desc();
        spoil(&desc, &rows[i]);
        expect_spoiled(&rows[i], plan_conv(&desc));
    }
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 0;
    EXPECT(plan_conv(&desc), GDN_E_INVALID, "all 0");
    EXPECT(plan_conv(NULL), GDN_E_INVALID, "gdn_conv1d_desc is null");
}

Test(bad_input, combinations_of_a_conv_desc)
{
    gdn_conv1d_desc d = fake_conv1d_desc();
    d.flags = GDN_CONV_L2_NORM;
    d.head_dim_qk = 96;
    EXPECT(plan_conv(&d), GDN_E_UNSUPPORTED, "head_dim_qk is 96", "GDN_CONV_L2_NORM", "after the call");
    d = fake_conv1d_desc();
    d.flags = GDN_CONV_L2_NORM;
    d.num_q_heads = d.num_k_heads = 0;
    EXPECT(plan_conv(&d), GDN_E_INVALID, "GDN_CONV_L2_NORM", "no q and no k head");
    d = fake_conv1d_desc();
    d.x_layout = GDN_CONV_X_INTERLEAVED;
    d.num_q_heads = 1;
    EXPECT(plan_conv(&d), GDN_E_INVALID, "are 1, 2, 4", "GDN_CONV_X_INTERLEAVED");
    d.num_q_heads = 2, d.num_v_heads = 3;
    EXPECT(plan_conv(&d), GDN_E_INVALID, "are 2, 2, 3", "multiple");
    d = fake_conv1d_desc();
    d.io_type = GDN_F32, d.x_alignment = 2;
    EXPECT(plan_conv(&d), GDN_E_INVALID, "x_alignment is 2", "4 bytes");
    d = fake_conv1d_desc();
    d.num_gate_heads = 4, d.gate_type = GDN_F32, d.flags = GDN_CONV_BETA_ROUNDED;
    EXPECT(plan_conv(&d), GDN_E_INVALID, "GDN_CONV_BETA_ROUNDED", "gate_type is GDN_F32");
}

Test(bad_input, programmatic_launch_needs_sm_90)
{
    gdn_conv1d_desc d = fake_conv1d_desc();
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    d.flags |= GDN_CONV_LAUNCH_DEPENDENTS;
    cr_assert_eq(gdn_target_from_name(host.ctx, "sm_89", &target), GDN_OK, "%s", gdn_last_error());
    EXPECT(gdn_plan_conv1d_qkv(host.ctx, &target, &d, 0, &plan), GDN_E_UNSUPPORTED, "GDN_CONV_LAUNCH_DEPENDENTS", "sm_89",
           "sm_90a");
    cr_assert_eq(gdn_target_from_name(host.ctx, "sm_90a", &target), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &d, 0, &plan), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(plan);
}

Test(bad_input, a_prefill_that_is_launched_programmatically_needs_sm_90)
{
    static const char *const newer[] = { "sm_90a", "sm_100a", "sm_120a" };
    gdn_prefill_desc d = fake_prefill_desc();
    gdn_target target = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    d.flags |= GDN_PREFILL_PROGRAMMATIC_LAUNCH;
    cr_assert_eq(gdn_target_from_name(host.ctx, "sm_89", &target), GDN_OK, "%s", gdn_last_error());
    EXPECT(gdn_plan_prefill(host.ctx, &target, &d, 0, &plan), GDN_E_UNSUPPORTED, "GDN_PREFILL_PROGRAMMATIC_LAUNCH", "sm_89",
           "sm_90a");
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; ++i) {
        cr_assert_eq(gdn_target_from_name(host.ctx, newer[i], &target), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(gdn_plan_prefill(host.ctx, &target, &d, 0, &plan), GDN_OK, "%s: %s", newer[i], gdn_last_error());
        gdn_plan_destroy(plan);
    }
}

Test(bad_input, a_longer_struct_is_taken_only_with_zeros_behind_what_is_known)
{
    struct {
        gdn_prefill_desc desc;
        uint64_t newer[2];
    } longer = { fake_prefill_desc(), { 0, 0 } };
    longer.desc.struct_size = sizeof longer;
    cr_expect_eq(plan_prefill(&longer.desc), GDN_OK, "%s", gdn_last_error());
    longer.newer[1] = 1;
    EXPECT(plan_prefill(&longer.desc), GDN_E_VERSION, "gdn_prefill_desc", "older than the header");
}

/* ---- Arguments ---- */

Test(bad_input, members_of_prefill_args)
{
#define M(member) MEMBER(gdn_prefill_args, member)
    static const struct spoiled rows[] = {
        { M(struct_size), 0, GDN_E_VERSION, { "gdn_prefill_args.struct_size is 0" } },
        { M(q), 0, GDN_E_INVALID, { "q is null", "pass its address" } },
        { M(k), 0, GDN_E_INVALID, { "k is null" } },
        { M(v), 0, GDN_E_INVALID, { "v is null" } },
        { M(o), 0, GDN_E_INVALID, { "o is null" } },
        { M(q), 0x1008, GDN_E_INVALID, { "q is 0x1008", "16 bytes" } },
        { M(k), 0x1008, GDN_E_INVALID, { "k is 0x1008", "16 bytes" } },
        { M(v), 0x1008, GDN_E_INVALID, { "v is 0x1008", "16 bytes" } },
        { M(o), 0x1008, GDN_E_INVALID, { "o is 0x1008", "16 bytes" } },
        { M(g), 0x1002, GDN_E_INVALID, { "g is 0x1002", "4 bytes" } },
        { M(beta), 0x1001, GDN_E_INVALID, { "beta is 0x1001" } },
        { M(a_log), 0x1000, GDN_E_INVALID, { "a_log is given", "GDN_GATE_LOGITS" } },
        { M(dt_bias), 0x1000, GDN_E_INVALID, { "dt_bias is given", "GDN_GATE_LOGITS" } },
        { M(initial_state), 0x100c, GDN_E_INVALID, { "initial_state is 0x100c" } },
        { M(final_state), 0x1002, GDN_E_INVALID, { "final_state is 0x1002" } },
        { M(cu_seqlens), 0x1002, GDN_E_INVALID, { "cu_seqlens is 0x1002", "4 bytes" } },
        { M(slot_in), 0x1002, GDN_E_INVALID, { "slot_in is 0x1002", "4 bytes" } },
        { M(slot_out), 0x1001, GDN_E_INVALID, { "slot_out is 0x1001" } },
        { M(checkpoints), 0x1004, GDN_E_INVALID, { "checkpoints is 0x1004", "8 bytes" } },
        { M(q_strides.token), 516, GDN_E_INVALID, { "q_strides.token is 516", "multiple of 8" } },
        { M(k_strides.head), -128, GDN_E_INVALID, { "k_strides.head is -128", "from 0" } },
        { M(v_strides.token), 1LL << 47, GDN_E_INVALID, { "v_strides.token is 140737488355328", "2^47" } },
        { M(k_strides.token), 1LL << 41, GDN_E_INVALID, { "k_strides.token is 2199023255552", "96 rows", "2^47" } },
        { M(g_strides.token), INT64_MAX / 96, GDN_E_INVALID, { "g_strides.token is" } },
        { M(o_strides.token), 64, GDN_E_INVALID, { "o_strides are { batch 0, token 64, head 0 }", "128 elements", "overlap" } },
        { M(q_strides.token), 256, GDN_E_INVALID, { "q_strides come to { batch 24576, token 256, head 128 }", "overlap" } },
        { M(k_strides.token), 8, GDN_E_INVALID, { "k_strides come to", "4 heads two rows of 128 elements" } },
        { M(v_strides.token), 128, GDN_E_INVALID, { "v_strides come to", "8 heads", "or 0 (packed)" } },
        { M(v_strides.head), 256, GDN_E_INVALID, { "v_strides are", "token 0, head 256", "give token too" } },
        { M(beta_strides.head), 96, GDN_E_INVALID, { "beta_strides are", "head stride than 1", "give token too" } },
        { M(o_strides.token), 1028, GDN_E_INVALID, { "o_strides.token is 1028", "multiple of 8" } },
        { M(q_strides.batch), 4096, GDN_E_INVALID, { "q_strides.batch is 4096", "cu_seqlens is given" } },
        { M(g_strides.batch), 1, GDN_E_INVALID, { "g_strides.batch is 1", "cu_seqlens is given" } },
        { M(g_strides.token), -1, GDN_E_INVALID, { "g_strides.token is -1" } },
        { M(beta_strides.head), -8, GDN_E_INVALID, { "beta_strides.head is -8" } },
        { M(k_strides.head), 1LL << 47, GDN_E_INVALID, { "k_strides.head is 140737488355328", "2^47" } },
        { M(initial_slot_stride), 131071, GDN_E_INVALID, { "initial_slot_stride is 131071", "131072 of a state" } },
        { M(initial_slot_stride), 1LL << 47, GDN_E_INVALID, { "initial_slot_stride is 140737488355328", "2^47" } },
        { M(final_slot_stride), 131074, GDN_E_INVALID, { "final_slot_stride is 131074", "multiple of 4" } },
        { M(final_slot_stride), -4, GDN_E_INVALID, { "final_slot_stride is -4" } },
        { M(slot_in_stride), -1, GDN_E_INVALID, { "slot_in_stride is -1" } },
        { M(slot_in_stride), 1LL << 31, GDN_E_INVALID, { "slot_in_stride is 2147483648" } },
        { M(slot_out_stride), 1LL << 31, GDN_E_INVALID, { "slot_out_stride is 2147483648" } },
        { M(o), 0x70000, GDN_E_INVALID, { "o is 0x70000, as initial_state is" } },
        { M(o), 0x10000, GDN_E_INVALID, { "o is 0x10000, as q is", "of its own" } },
        { M(o), 0x30000, GDN_E_INVALID, { "o is 0x30000, as v is" } },
        { M(o), 0x80000, GDN_E_INVALID, { "o is 0x80000, as final_state is" } },
        { M(o), 0x90000, GDN_E_INVALID, { "o is 0x90000, as cu_seqlens is" } },
        { M(final_state), 0x20000, GDN_E_INVALID, { "final_state is 0x20000, as k is", "of its own" } },
        { M(num_checkpoints), -1, GDN_E_INVALID, { "num_checkpoints is -1", "must be from 0 to" } },
        { M(num_checkpoints), 1, GDN_E_INVALID, { "num_checkpoints is 1", "GDN_PREFILL_CHECKPOINTS" } },
        { M(num_tokens), -1, GDN_E_INVALID, { "num_tokens is -1", "negative" } },
        { M(num_tokens), 1001, GDN_E_INVALID, { "num_tokens is 1001", "max_tokens is 1000" } },
        { M(num_seqs), -7, GDN_E_INVALID, { "num_seqs is -7" } },
        { M(num_seqs), 9, GDN_E_INVALID, { "num_seqs is 9", "max_seqs is 8" } },
        { M(has_scale), 2, GDN_E_INVALID, { "has_scale is 2" } },
        { M(scale), 0x7fc00000, GDN_E_INVALID, { "scale is NaN", "a number" } }, /* bits of a float */
        { M(scale), 0x7f800000, GDN_E_INVALID, { "scale is infinite", "a number" } },
        { M(max_seq_tokens), -1, GDN_E_INVALID, { "max_seq_tokens is -1" } },
    };
#undef M
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc desc = fake_prefill_desc();
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        gdn_prefill_args args = fake_prefill_args();
        spoil(&args, &rows[i]);
        expect_spoiled(&rows[i], gdn_execute_prefill(plan, &args, 0, 0, NULL));
        expect_spoiled(&rows[i], gdn_prefill(host.ctx, &desc, &args, 0, 0, NULL));
    }
    gdn_prefill_args args = fake_prefill_args();
    args.cu_seqlens = 0;
    args.num_tokens = 97;
    EXPECT(gdn_execute_prefill(plan, &args, 0, 0, NULL), GDN_E_INVALID, "num_tokens is 97, num_seqs is 3", "multiple");
    EXPECT(gdn_execute_prefill(plan, NULL, 0, 0, NULL), GDN_E_INVALID, "gdn_prefill_args is null");
    EXPECT(gdn_execute_prefill(NULL, &args, 0, 0, NULL), GDN_E_INVALID, "plan is null");
    cr_expect_eq(host.cuda->num_launches(), 0);
    gdn_plan_destroy(plan);
}

/* Members that only make sense together. */
Test(bad_input, prefill_args_that_contradict_each_other)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    desc.gate = GDN_GATE_LOGITS;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "a_log is null", "[8] float32");
    a.g = 0;
    a.final_state = a.initial_state;
    a.final_slot_stride = 2 * 131072;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "one pool", "final_slot_stride is 262144");
    a = fake_prefill_args();
    a.final_state = a.initial_state;
    a.final_slot_stride = 131072; /* what 0 is */
    desc = fake_prefill_desc();
    cr_expect_eq(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    a = fake_prefill_args();
    desc = fake_prefill_desc();
    a.initial_state = 0;
    a.has_initial_state = 0xa0001;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "initial_state is null", "both or neither");
    a = fake_prefill_args();
    desc.flags = GDN_PREFILL_CHECKPOINTS;
    a.num_checkpoints = 2;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "checkpoints is null");
    a.checkpoints = 0xc0000;
    a.final_state = 0;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "final_state is null");
    a = fake_prefill_args();
    desc.flags = GDN_PREFILL_ZERO_PADDING;
    a.num_seqs = 0;
    a.o = 0;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "o is null");
    desc = fake_prefill_desc();
    a = fake_prefill_args();
    a.cu_seqlens = 0;
    a.k_strides.token = 128, a.k_strides.head = 32 * 128;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "k_strides are", "give batch too");
    a = fake_prefill_args();
    a.cu_seqlens = 0;
    a.q_strides.batch = 32 * 512 + 4;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "q_strides.batch is 16388", "multiple of 8");
    a = fake_prefill_args();
    a.cu_seqlens = 0;
    a.v_strides.token = 1LL << 43; /* of 32 rows a batch stride is made */
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "v_strides.token is 8796093022208", "32 rows", "2^47");
    for (int i = 0; i < 2; ++i) { /* of 3 sequences: what is less than 2^47 each */
        a = fake_prefill_args();
        a.cu_seqlens = 0;
        (i ? &a.beta_strides : &a.g_strides)->batch = 1LL << 46;
        EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID,
               i ? "beta_strides.batch is 70368744177664" : "g_strides.batch is 70368744177664", "3 of them pass 2^47");
        a = fake_prefill_args();
        a.slot_in = a.slot_out = 0;
        *(i ? &a.final_slot_stride : &a.initial_slot_stride) = 1LL << 46;
        EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID,
               i ? "final_slot_stride is 70368744177664" : "initial_slot_stride is 70368744177664", "3 lines of", "2^47");
    }
    a = fake_prefill_args();
    a.scale = -0.5f;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "has_scale is 0", "set has_scale to 1");
    a = fake_prefill_args();
    a.num_tokens = a.num_seqs = 0;
    a.o = a.final_state = a.q; /* of no row nobody writes anything */
    cr_expect_eq(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    a = fake_prefill_args();
    a.num_tokens = 0; /* sequences without tokens, whose states are copied */
    a.o = a.q = a.k;
    a.final_state = a.cu_seqlens;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "final_state is", "as cu_seqlens is");
    a.final_state = a.q; /* a tensor without rows may lie anywhere */
    cr_expect_eq(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    desc.slot_type = desc.cu_seqlens_type = GDN_INDEX_I64;
    a = fake_prefill_args();
    a.cu_seqlens = 0x90004;
    EXPECT(gdn_prefill(host.ctx, &desc, &a, 0, 0, NULL), GDN_E_INVALID, "cu_seqlens is 0x90004", "8 bytes");
    cr_expect_eq(host.cuda->num_launches(), 2, "those that were legal and had something to do");
}

Test(bad_input, members_of_conv_args)
{
#define M(member) MEMBER(gdn_conv1d_args, member)
    static const struct spoiled rows[] = {
        { M(struct_size), 24, GDN_E_VERSION, { "gdn_conv1d_args.struct_size is 24" } },
        { M(x), 0, GDN_E_INVALID, { "x is null" } },
        { M(x), 0x1008, GDN_E_INVALID, { "x is 0x1008", "16 bytes" } },
        { M(weight), 0, GDN_E_INVALID, { "weight is null" } },
        { M(bias), 0, GDN_E_INVALID, { "bias is null" } },
        { M(q), 0, GDN_E_INVALID, { "q is null" } },
        { M(v), 0x1002, GDN_E_INVALID, { "v is 0x1002" } },
        { M(weight), 0x1008, GDN_E_INVALID, { "weight is 0x1008", "16 bytes" } },
        { M(bias), 0x1008, GDN_E_INVALID, { "bias is 0x1008", "16 bytes" } },
        { M(cu_seqlens), 0x1002, GDN_E_INVALID, { "cu_seqlens is 0x1002", "4 bytes" } },
        { M(state), 0x1004, GDN_E_INVALID, { "state is 0x1004" } },
        { M(slot_in), 0x1001, GDN_E_INVALID, { "slot_in is 0x1001", "4 bytes" } },
        { M(slot_out), 0x1002, GDN_E_INVALID, { "slot_out is 0x1002" } },
        { M(checkpoints), 0x1004, GDN_E_INVALID, { "checkpoints is 0x1004", "8 bytes" } },
        { M(q), 0x10000, GDN_E_INVALID, { "q is 0x10000, as x is", "of its own" } },
        { M(k), 0x40000, GDN_E_INVALID, { "q is 0x40000, as k is" } },
        { M(v), 0x70000, GDN_E_INVALID, { "v is 0x70000, as state is" } },
        { M(weight), 0x70000, GDN_E_INVALID, { "state is 0x70000, as weight is" } },
        { M(cu_seqlens), 0x60000, GDN_E_INVALID, { "v is 0x60000, as cu_seqlens is" } },
        { M(slot_in), 0x50000, GDN_E_INVALID, { "k is 0x50000, as slot_in is" } },
        { M(has_initial_state), 0x40000, GDN_E_INVALID, { "q is 0x40000, as has_initial_state is" } },
        { M(num_checkpoints), 1, GDN_E_INVALID, { "checkpoints is null" } },
        { M(num_checkpoints), -1, GDN_E_INVALID, { "num_checkpoints is -1" } },
        { M(x_group_stride), 64, GDN_E_INVALID, { "x_group_stride is 64", "GDN_CONV_X_INTERLEAVED" } },
        { M(a), 0x1000, GDN_E_INVALID, { "a is 0x1000", "num_gate_heads of the desc is 0", "pass 0" } },
        { M(g), 0x1000, GDN_E_INVALID, { "g is 0x1000", "num_gate_heads of the desc is 0" } },
        { M(dt_bias), 0x1000, GDN_E_INVALID, { "dt_bias is 0x1000", "num_gate_heads of the desc is 0" } },
        { M(gate_group_stride), 4, GDN_E_INVALID, { "gate_group_stride is 4", "num_gate_heads of the desc is 0" } },
        { M(q_strides.token), 100, GDN_E_INVALID, { "q_strides.token is 100", "128, a head's row" } },
        { M(k_strides.token), 260, GDN_E_INVALID, { "k_strides.token is 260", "multiple of 8" } },
        { M(k_strides.token), 1LL << 31, GDN_E_INVALID, { "k_strides.token is 2147483648", "below 2147483648" } },
        { M(v_strides.head), -128, GDN_E_INVALID, { "v_strides.head is -128" } },
        { M(v_strides.head), 256, GDN_E_INVALID, { "v_strides", "give token too" } },
        { M(v_strides.batch), 4096, GDN_E_INVALID, { "v_strides.batch is 4096", "cu_seqlens" } },
        { M(state_slot_stride), 3071, GDN_E_INVALID, { "state_slot_stride is 3071", "3072 of a line" } },
        { M(state_slot_stride), 3076, GDN_E_INVALID, { "state_slot_stride is 3076", "multiple of 8" } },
        { M(state_channel_stride), 4, GDN_E_INVALID, { "state_channel_stride is 4", "GDN_CONV_STATE_CW_STRIDED" } },
        { M(slot_in_stride), -1, GDN_E_INVALID, { "slot_in_stride is -1" } },
        { M(slot_out_stride), 1LL << 31, GDN_E_INVALID, { "slot_out_stride is 2147483648" } },
        { M(num_tokens), 1001, GDN_E_INVALID, { "num_tokens is 1001", "max_tokens is 1000" } },
        { M(num_seqs), 9, GDN_E_INVALID, { "num_seqs is 9" } },
        { M(x_stride), 1023, GDN_E_INVALID, { "x_stride is 1023", "1024 channels" } },
        { M(x_stride), 1025, GDN_E_INVALID, { "x_stride is 1025", "x_alignment" } },
        { M(x_stride), -1024, GDN_E_INVALID, { "x_stride is -1024" } },
        { M(x_stride), INT64_MAX, GDN_E_INVALID, { "x_stride is 9223372036854775807", "2^31" } },
    };
#undef M
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(host.ctx);
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        gdn_conv1d_args args = fake_conv1d_args();
        spoil(&args, &rows[i]);
        expect_spoiled(&rows[i], gdn_execute_conv1d_qkv(plan, &args, NULL));
        expect_spoiled(&rows[i], gdn_conv1d_qkv(host.ctx, &desc, &args, NULL));
    }
    EXPECT(gdn_execute_conv1d_qkv(plan, NULL, NULL), GDN_E_INVALID, "gdn_conv1d_args is null");
    cr_expect_eq(host.cuda->num_launches(), 0);
    gdn_plan_destroy(plan);
}

Test(bad_input, a_bias_that_the_plan_does_not_expect)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    desc.flags = GDN_CONV_SILU;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_E_INVALID, "bias", "GDN_CONV_BIAS");
}

static gdn_conv1d_desc gated_desc(void)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.num_gate_heads = 4;
    desc.flags |= GDN_CONV_CHECKPOINTS;
    return desc;
}

static gdn_conv1d_args gated_args(void)
{
    gdn_conv1d_args a = fake_conv1d_args();
    a.a = 0x100000, a.b = 0x110000, a.a_log = 0x120000, a.dt_bias = 0x130000, a.g = 0x140000, a.beta = 0x150000;
    a.checkpoints = 0x160000, a.num_checkpoints = 2;
    return a;
}

/* Of a call that would do, each row alone. */
static void expect_conv_spoiled(const gdn_conv1d_desc *desc, const struct spoiled *rows, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        gdn_conv1d_args args = gated_args();
        spoil(&args, &rows[i]);
        expect_spoiled(&rows[i], gdn_conv1d_qkv(host.ctx, desc, &args, NULL));
    }
}

/* What one step passes over: of heads, of a group's heads, of a row of groups. Read as it stands, a call would mix heads. */
Test(bad_input, gate_strides_that_are_too_small)
{
    static const struct {
        int64_t a, b, group;
        const char *words[3]; /* NULL: the call is good */
    } rows[] = {
        { 1, 0, 0, { "a_stride is 1 elements", "0 (packed)", "at least the 8 of a row" } },
        { 4, 0, 0, { "a_stride is 4 elements", "at least the 8 of a row" } },
        { 0, 7, 0, { "b_stride is 7 elements", "at least the 8 of a row" } },
        { 8, 8, 1, { "gate_group_stride is 1 elements", "0 (packed)", "at least the 2 gate heads of a group" } },
        { 8, 14, 4, { "a_stride is 8 elements", "at least the 14 of a row of groups" } },
        { 14, 13, 4, { "b_stride is 13 elements", "at least the 14 of a row of groups" } },
        { 8, 8, 0, { NULL } },
        { 8, 8, 2, { NULL } },
        { 14, 14, 4, { NULL } },
        { 0, 0, 0, { NULL } },
    };
    gdn_conv1d_desc desc = gated_desc();
    desc.num_q_heads = desc.num_k_heads = 4, desc.num_gate_heads = 8;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        gdn_conv1d_args a = gated_args();
        a.x_stride = 4096;
        a.a_stride = rows[i].a, a.b_stride = rows[i].b, a.gate_group_stride = rows[i].group;
        const gdn_status status = gdn_conv1d_qkv(host.ctx, &desc, &a, NULL);
        cr_expect_eq(status, rows[i].words[0] ? GDN_E_INVALID : GDN_OK, "row %zu: %s", i, gdn_last_error());
        for (int w = 0; w < 3 && rows[i].words[w]; ++w)
            cr_expect(strstr(gdn_last_error(), rows[i].words[w]), "row %zu: %s", i, gdn_last_error());
    }
    gdn_conv1d_args a = gated_args();
    a.x_stride = 4096, a.a_stride = 1, a.b_stride = 7;
    a.g = a.a = a.a_log = 0;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "b_stride is 7"); /* a is not read */
    a.b_stride = 8;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "%s", gdn_last_error());
    a.b_stride = 7, a.num_tokens = a.num_seqs = 1, a.cu_seqlens = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "one token: %s", gdn_last_error());
}

Test(bad_input, gates_and_checkpoints_of_conv_args)
{
#define M(member) MEMBER(gdn_conv1d_args, member)
    static const struct spoiled rows[] = {
        { M(a), 0, GDN_E_INVALID, { "a is null" } },
        { M(b), 0, GDN_E_INVALID, { "b is null" } },
        { M(a_log), 0, GDN_E_INVALID, { "a_log is null" } },
        { M(a_log), 0x1002, GDN_E_INVALID, { "a_log is 0x1002", "4 bytes" } },
        { M(a), 0x1001, GDN_E_INVALID, { "a is 0x1001", "2 bytes" } },
        { M(b), 0x1001, GDN_E_INVALID, { "b is 0x1001", "2 bytes" } },
        { M(dt_bias), 0x1002, GDN_E_INVALID, { "dt_bias is 0x1002", "4 bytes" } },
        { M(g), 0x1002, GDN_E_INVALID, { "g is 0x1002" } },
        { M(beta), 0x1002, GDN_E_INVALID, { "beta is 0x1002", "4 bytes" } },
        { M(a_stride), -4, GDN_E_INVALID, { "a_stride is -4" } },
        { M(a_stride), 1LL << 46, GDN_E_INVALID, { "a_stride is 70368744177664" } }, /* times 96 rows */
        { M(b_stride), INT64_MAX, GDN_E_INVALID, { "b_stride is 9223372036854775807" } },
        { M(g), 0x120000, GDN_E_INVALID, { "g is 0x120000, as a_log is" } },
        { M(beta), 0x130000, GDN_E_INVALID, { "beta is 0x130000, as dt_bias is" } },
        { M(v), 0x160000, GDN_E_INVALID, { "v is 0x160000, as checkpoints is" } },
        { M(gate_group_stride), -4, GDN_E_INVALID, { "gate_group_stride is -4", "must be from 0 to" } },
        { M(checkpoints), 0, GDN_E_INVALID, { "checkpoints is null" } },
        { M(state), 0, GDN_E_INVALID, { "num_checkpoints is 2", "state is null" } },
    };
#undef M
    const gdn_conv1d_desc desc = gated_desc();
    expect_conv_spoiled(&desc, rows, sizeof rows / sizeof rows[0]);
    gdn_conv1d_args args = gated_args();
    args.g = args.beta = 0;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_E_INVALID, "g and beta are both null");
    gdn_conv1d_desc plain = fake_conv1d_desc();
    args = fake_conv1d_args();
    args.num_checkpoints = 2, args.checkpoints = 0x160000;
    EXPECT(gdn_conv1d_qkv(host.ctx, &plain, &args, NULL), GDN_E_INVALID, "num_checkpoints is 2", "GDN_CONV_CHECKPOINTS");
    cr_expect_eq(host.cuda->num_launches(), 0);
    args = gated_args();
    args.g = args.a = args.a_log = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_OK, "beta alone: %s", gdn_last_error());
}

/* Of no row there are no gates; lines of sequences without tokens are copied all the same. */
Test(bad_input, a_conv_call_without_rows_needs_no_gates)
{
    const gdn_conv1d_desc desc = gated_desc();
    gdn_conv1d_args args = GDN_CONV1D_ARGS_INIT;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_reference_conv1d_qkv(&desc, &args), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 0, "there is nothing to do");
    args = gated_args();
    args.g = args.beta = 0;
    args.num_tokens = args.num_checkpoints = 0;
    args.slot_out = 0x170000; /* other lines, to which they are copied */
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 1);
    args.state = args.slot_in;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_E_INVALID, "state is", "as slot_in is");
}

static gdn_prefill_desc logits_desc(void)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.gate = GDN_GATE_LOGITS, desc.flags = GDN_PREFILL_CHECKPOINTS;
    return desc;
}

static gdn_prefill_args logits_args(void)
{
    gdn_prefill_args a = fake_prefill_args();
    a.a_log = 0xa0000, a.dt_bias = 0xb0000, a.checkpoints = 0xc0000, a.num_checkpoints = 1;
    return a;
}

/* As of conv1d-QKV, above. */
static void expect_prefill_spoiled(const gdn_prefill_desc *desc, const struct spoiled *rows, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        gdn_prefill_args args = logits_args();
        spoil(&args, &rows[i]);
        expect_spoiled(&rows[i], gdn_prefill(host.ctx, desc, &args, 0, 0, NULL));
    }
}

/* Each address that is read, given where the first output begins. */
Test(bad_input, no_address_that_is_read_may_be_an_outputs)
{
#define P(member) { MEMBER(gdn_prefill_args, member), 0x60000, GDN_E_INVALID, { "o is 0x60000, as " #member " is" } }
#define C(member) { MEMBER(gdn_conv1d_args, member), 0x40000, GDN_E_INVALID, { "q is 0x40000, as " #member " is" } }
    static const struct spoiled of_prefill[] = { P(q), P(k), P(v), P(g), P(beta), P(a_log), P(dt_bias), P(initial_state),
                                                 P(slot_in), P(slot_out), P(has_initial_state), P(cu_seqlens), P(checkpoints) };
    static const struct spoiled of_conv[] = { C(x), C(weight), C(bias), C(a), C(b), C(a_log), C(dt_bias), C(slot_in),
                                              C(slot_out), C(has_initial_state), C(cu_seqlens), C(checkpoints) };
#undef P
#undef C
    const gdn_prefill_desc prefill = logits_desc();
    const gdn_conv1d_desc conv = gated_desc();
    expect_prefill_spoiled(&prefill, of_prefill, sizeof of_prefill / sizeof of_prefill[0]);
    expect_conv_spoiled(&conv, of_conv, sizeof of_conv / sizeof of_conv[0]);
    cr_expect_eq(host.cuda->num_launches(), 0);
}

/* 64-bit indices, and what logits need beside them, half of that from where they may lie. */
Test(bad_input, wider_indices_are_aligned_to_themselves)
{
#define ALIGNED(type, member, at, bytes)                                                                               \
    { MEMBER(type, member), at, GDN_E_INVALID, { #member " is " #at ": must be aligned to " #bytes " bytes" } }
#define P(member, at, bytes) ALIGNED(gdn_prefill_args, member, at, bytes)
#define C(member, at, bytes) ALIGNED(gdn_conv1d_args, member, at, bytes)
    static const struct spoiled of_prefill[] = { P(slot_in, 0xd0004, 8),     P(slot_out, 0xd0004, 8), P(cu_seqlens, 0xd0004, 8),
                                                 P(checkpoints, 0xd0004, 8), P(a_log, 0xd0002, 4),    P(dt_bias, 0xd0002, 4) };
    static const struct spoiled of_conv[] = { C(slot_in, 0xd0004, 8), C(slot_out, 0xd0004, 8), C(cu_seqlens, 0xd0004, 8),
                                              C(checkpoints, 0xd0004, 8) };
#undef P
#undef C
#undef ALIGNED
    gdn_prefill_desc prefill = logits_desc();
    gdn_conv1d_desc conv = gated_desc();
    prefill.cu_seqlens_type = prefill.slot_type = conv.cu_seqlens_type = conv.slot_type = GDN_INDEX_I64;
    const gdn_prefill_args logits = logits_args();
    const gdn_conv1d_args gated = gated_args();
    cr_expect_eq(gdn_prefill(host.ctx, &prefill, &logits, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &conv, &gated, NULL), GDN_OK, "%s", gdn_last_error());
    expect_prefill_spoiled(&prefill, of_prefill, sizeof of_prefill / sizeof of_prefill[0]);
    expect_conv_spoiled(&conv, of_conv, sizeof of_conv / sizeof of_conv[0]);
    cr_expect_eq(host.cuda->num_launches(), 2);
}

/* What is packed may be said as well as left 0. */
Test(bad_input, strides_of_what_is_packed_are_taken)
{
    const gdn_prefill_desc prefill = fake_prefill_desc();
    const gdn_conv1d_desc conv = fake_conv1d_desc();
    gdn_prefill_args p = fake_prefill_args();
    gdn_conv1d_args c = fake_conv1d_args();
    p.q_strides.head = 128, p.o_strides.head = 128;
    cr_expect_eq(gdn_prefill(host.ctx, &prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    c.k_strides.head = 128, c.state_slot_stride = 3072;
    c.v_strides = (gdn_strides){ .token = 128, .head = 128 * 96 }; /* with cu_seqlens there is no batch to say */
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &conv, &c, NULL), GDN_OK, "%s", gdn_last_error());
    c.cu_seqlens = 0;
    EXPECT(gdn_conv1d_qkv(host.ctx, &conv, &c, NULL), GDN_E_INVALID, "v_strides are", "give batch too");
    c = fake_conv1d_args();
    c.cu_seqlens = 0;
    c.q_strides.batch = 32 * 256 + 4;
    EXPECT(gdn_conv1d_qkv(host.ctx, &conv, &c, NULL), GDN_E_INVALID, "q_strides.batch is 8196", "multiple of 8");
}

/* What a call has no use for is reckoned with all the same, and so is not taken when it is absurd. */
Test(bad_input, strides_of_what_a_conv_call_does_not_have)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_conv1d_args a = fake_conv1d_args();
    desc.state_layout = GDN_CONV_STATE_CW_STRIDED;
    a.state = a.slot_in = a.has_initial_state = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "no state, no stride: %s", gdn_last_error());
    a.has_initial_state = 0xa0001;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "has_initial_state is given", "state is null",
           "both or neither");
    a.has_initial_state = 0;
    a.state_channel_stride = INT64_MAX / 2;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "state_channel_stride is 4611686018427387903", "65535");
    a.state_channel_stride = 65536;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "state_channel_stride is 65536", "65535");
    desc = fake_conv1d_desc();
    desc.num_k_heads = 0;
    a = fake_conv1d_args();
    a.k = a.cu_seqlens = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "no k heads: %s", gdn_last_error());
    a.k_strides.token = INT64_MAX;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "k_strides.token is 9223372036854775807");
    a.k_strides.token = 0;
    a.gate_group_stride = 64;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "gate_group_stride is 64",
           "num_gate_heads of the desc is 0");
    desc.num_gate_heads = 4;
    a.a = 0xb0000, a.a_log = 0xb1000, a.g = 0xb2000;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "gate_group_stride is 64", "0 k heads");
    a.a = a.a_log = a.g = 0;
    desc.num_gate_heads = 0;
    a.gate_group_stride = 0;
    desc = fake_conv1d_desc();
    a = fake_conv1d_args();
    desc.num_gate_heads = desc.num_v_heads;
    a.a = a.b = a.a_log = 0xb0000, a.g = 0xc0000, a.beta = 0xd0000;
    a.gate_group_stride = 64;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "a_stride is 0", "gate_group_stride is 64", "give both");
    a.a_stride = 4096;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "b_stride is 0", "gate_group_stride is 64");
    a.b_stride = 4096;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "both given: %s", gdn_last_error());
    a.g = 0, a.a_stride = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "a is not read: %s", gdn_last_error());
    a.g = 0xc0000;
    a.gate_group_stride = desc.num_gate_heads / desc.num_k_heads;
    a.a_stride = a.b_stride = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "packed groups: %s", gdn_last_error());
    a.b_stride = -1;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "b_stride is -1");
}

Test(bad_input, rows_of_groups_that_would_overlap)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_conv1d_args a = fake_conv1d_args();
    desc.x_layout = GDN_CONV_X_INTERLEAVED; /* two groups, 768 apart, whose first 512 are read */
    a.x_stride = 1272;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "x_stride is 1272", "1280 channels of a row of groups");
    a.x_stride = 1280;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "%s", gdn_last_error());
    a.x_group_stride = 504;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "x_group_stride is 504", "512 channels of a group");
}

Test(bad_input, a_conv_call_that_only_makes_padding_zeros_needs_where)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_conv1d_args a = fake_conv1d_args();
    a.num_seqs = 0;
    a.q = 0;
    cr_expect_eq(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_OK, "nothing is written: %s", gdn_last_error());
    desc.flags |= GDN_CONV_ZERO_PADDING;
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &a, NULL), GDN_E_INVALID, "q is null");
}

/* ---- Targets ---- */

Test(bad_input, targets)
{
    gdn_target t = GDN_TARGET_INIT, wrong_size = GDN_TARGET_INIT;
    wrong_size.struct_size = 3;
    EXPECT(gdn_target_from_name(host.ctx, "sm_42", &t), GDN_E_UNSUPPORTED, "sm_42", "sm_90a");
    EXPECT(gdn_target_from_name(host.ctx, "NVIDIA Marvel 7", &t), GDN_E_UNSUPPORTED, "NVIDIA Marvel 7", "doctor");
    EXPECT(gdn_target_from_name(host.ctx, "A100", &t), GDN_E_UNSUPPORTED, "A100", "NVIDIA A100-SXM4-80GB");
    EXPECT(gdn_target_from_name(host.ctx, NULL, &t), GDN_E_INVALID, "name is null");
    EXPECT(gdn_target_from_name(host.ctx, "sm_80", NULL), GDN_E_INVALID, "gdn_target is null");
    EXPECT(gdn_target_from_name(host.ctx, "sm_80", &wrong_size), GDN_E_VERSION, "gdn_target.struct_size is 3");
    EXPECT(gdn_target_from_name(NULL, "sm_80", &t), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_target_from_device(NULL, 0, &t), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_target_from_device(host.ctx, 0, NULL), GDN_E_INVALID, "gdn_target is null");
    EXPECT(gdn_target_from_device(host.ctx, 1, &t), GDN_E_NO_DEVICE, "device is 1", "1 device,");
    EXPECT(gdn_target_from_device(host.ctx, -1, &t), GDN_E_NO_DEVICE, "device is -1");
    host.cuda->device(0)->major = 5;
    EXPECT(gdn_target_from_device(host.ctx, 0, &t), GDN_E_UNSUPPORTED, "5.0", "sm_80");
}

static gdn_status plan_for(const gdn_target *target)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_plan *plan = NULL;
    const gdn_status status = gdn_plan_prefill(host.ctx, target, &desc, 0, &plan);
    gdn_plan_destroy(plan);
    return status;
}

Test(bad_input, targets_of_a_plan)
{
    const gdn_target good = fake_h200(host.ctx);
    gdn_target t = good;
    EXPECT(plan_for(NULL), GDN_E_INVALID, "target is null", "gdn_target_from_device()", "gdn_target_from_name()");
    t.struct_size = 1;
    EXPECT(plan_for(&t), GDN_E_VERSION, "gdn_target.struct_size is 1");
    t = good;
    snprintf(t.arch, sizeof t.arch, "sm_42");
    EXPECT(plan_for(&t), GDN_E_UNSUPPORTED, "arch \"sm_42\"", "sm_90a");
    memset(t.arch, 'x', sizeof t.arch);
    EXPECT(plan_for(&t), GDN_E_INVALID, "target.arch", "gdn_target_from_name()");
    t.arch[0] = '\0';
    EXPECT(plan_for(&t), GDN_E_UNSUPPORTED, "arch is empty", "gdn_target_from_device() or gdn_target_from_name()");
    static const char *const names[] = { "H200\n", "H200 \xff", "H\xc3\xa4 200", "\033[2J", "\x7f" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        t = good;
        snprintf(t.gpu_name, sizeof t.gpu_name, "%s", names[i]);
        EXPECT(plan_for(&t), GDN_E_INVALID, "target.gpu_name is \"", "must be printable ASCII", "gdn_target_from_device()");
    }
    t = good;
    t.num_sms = -3;
    EXPECT(plan_for(&t), GDN_E_INVALID, "num_sms is -3");
    t.num_sms = 1000000000;
    EXPECT(plan_for(&t), GDN_E_INVALID, "num_sms is 1000000000");
    t.num_sms = 132;
    t.reserved = 7;
    EXPECT(plan_for(&t), GDN_E_INVALID, "reserved is 7");
    t.reserved = 0;
}

/* ---- Compiler, cache, driver ---- */

static gdn_ctx *context_with(const char *cache_dir, const char *nvrtc_path, const char *driver_path, uint32_t flags)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    cfg.cache_dir = cache_dir;
    cfg.nvrtc_path = nvrtc_path;
    cfg.driver_path = driver_path;
    cfg.flags = GDN_CTX_NO_ENV | flags;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    return ctx;
}

static gdn_status plan_conv_in(gdn_ctx *ctx, uint32_t flags)
{
    gdn_plan *plan = NULL;
    gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_target target = fake_h200(ctx);
    const gdn_status status = gdn_plan_conv1d_qkv(ctx, &target, &desc, flags, &plan);
    gdn_plan_destroy(plan);
    return status;
}

Test(bad_input, no_nvrtc)
{
    gdn_ctx *ctx = context_with("", "/nowhere/libnvrtc.so.13", NULL, 0);
    EXPECT(plan_conv_in(ctx, 0), GDN_E_NO_NVRTC, "/nowhere/libnvrtc.so.13");
    gdn_ctx_destroy(ctx);
}

Test(bad_input, an_arch_newer_than_the_compiler)
{
    const struct gdni_nvrtc_api api = { .version = 1208 };
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find("sm_103a", &arch), GDN_OK);
    EXPECT(gdni_nvrtc_check_arch(&api, arch), GDN_E_NO_NVRTC, "sm_103a", "12.9", "12.8");
    cr_assert_eq(gdni_arch_find("sm_90a", &arch), GDN_OK);
    cr_expect_eq(gdni_nvrtc_check_arch(&api, arch), GDN_OK);
}

Test(bad_input, strict_mode_with_a_cold_cache)
{
    gdn_ctx *ctx = context_with("", getenv("GDN_JIT_NVRTC"), NULL, GDN_CTX_NO_COMPILE);
    EXPECT(plan_conv_in(ctx, 0), GDN_E_NOT_CACHED, "conv1d_qkv", "sm_90a", "GDN_CTX_NO_COMPILE forbids", "gdn-jit-cache warm");
    gdn_ctx_destroy(ctx);
    ctx = context_with("", getenv("GDN_JIT_NVRTC"), NULL, 0);
    EXPECT(plan_conv_in(ctx, GDN_PLAN_CACHED_ONLY), GDN_E_NOT_CACHED, "conv1d_qkv", "GDN_PLAN_CACHED_ONLY forbids",
           "gdn-jit-cache warm");
    gdn_ctx_destroy(ctx);
}

Test(bad_input, an_unusable_cache_directory_is_memory_only_and_plans_still_work)
{
    gdn_ctx *ctx = context_with("/dev/null/cache", getenv("GDN_JIT_NVRTC"), NULL, 0);
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    cr_expect_null(gdn_cache_dir(ctx));
    cr_expect_eq(plan_conv_in(ctx, 0), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_examine(ctx, &doctor), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_eq(doctor.cache, "");
    cr_expect(strstr(doctor.cache_problem, "/dev/null/cache"), "%s", doctor.cache_problem);
    gdn_ctx_destroy(ctx);
}

Test(bad_input, no_driver)
{
    gdn_ctx *ctx = context_with("", getenv("GDN_JIT_NVRTC"), "/nowhere/libcuda.so.1", 0);
    gdn_target t = GDN_TARGET_INIT;
    gdn_plan *plan = NULL;
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    EXPECT(gdn_target_from_device(ctx, 0, &t), GDN_E_NO_DRIVER, "/nowhere/libcuda.so.1", "install the NVIDIA driver");
    EXPECT(gdn_conv1d_qkv(ctx, &desc, &args, NULL), GDN_E_NO_DRIVER, "/nowhere/libcuda.so.1");
    t = fake_h200(ctx);
    cr_assert_eq(gdn_plan_conv1d_qkv(ctx, &t, &desc, 0, &plan), GDN_OK, "planning needs none: %s", gdn_last_error());
    EXPECT(gdn_plan_load(plan, 0), GDN_E_NO_DRIVER, "/nowhere/libcuda.so.1");
    EXPECT(gdn_execute_conv1d_qkv(plan, &args, NULL), GDN_E_NOT_LOADED, "gdn_plan_load()");
    gdn_plan_destroy(plan);
    gdn_ctx_destroy(ctx);
}

/* ---- Loading and executing ---- */

Test(bad_input, loading_where_a_plan_does_not_belong)
{
    gdn_plan *plan = NULL;
    gdn_target target = GDN_TARGET_INIT;
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_assert_eq(gdn_target_from_name(host.ctx, "sm_80", &target), GDN_OK);
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    EXPECT(gdn_plan_load(plan, 0), GDN_E_INVALID, "9.0", "sm_80", "gdn_target_from_device()");
    EXPECT(gdn_plan_load(plan, 1), GDN_E_NO_DEVICE, "device is 1");
    EXPECT(gdn_plan_load(plan, -1), GDN_E_NO_DEVICE, "device is -1");
    host.cuda->device(0)->major = 8, host.cuda->device(0)->minor = 6; /* its kin, which has less shared memory */
    EXPECT(gdn_plan_load(plan, 0), GDN_E_INVALID, "8.6", "sm_80");
    EXPECT(gdn_plan_load(NULL, 0), GDN_E_INVALID, "plan is null");
    gdn_plan_destroy(plan);
}

Test(bad_input, executing_the_other_operators_plan)
{
    gdn_plan *conv = NULL, *prefill = NULL;
    const gdn_target target = fake_h200(host.ctx);
    const gdn_conv1d_desc c = fake_conv1d_desc();
    const gdn_prefill_desc p = fake_prefill_desc();
    const gdn_conv1d_args ca = fake_conv1d_args();
    const gdn_prefill_args pa = fake_prefill_args();
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &c, 0, &conv), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, &p, 0, &prefill), GDN_OK, "%s", gdn_last_error());
    EXPECT(gdn_execute_prefill(conv, &pa, 0, 0, NULL), GDN_E_INVALID, "plan is for conv1d_qkv");
    EXPECT(gdn_execute_conv1d_qkv(prefill, &ca, NULL), GDN_E_INVALID, "plan is for gdn_prefill");
    EXPECT(gdn_execute_prefill(prefill, &pa, 0, 0, NULL), GDN_E_NOT_LOADED, "gdn_plan_load()");
    gdn_plan_destroy(conv);
    gdn_plan_destroy(prefill);
}

Test(bad_input, no_current_context)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    host.cuda->make_current(-1);
    EXPECT(gdn_conv1d_qkv(host.ctx, &desc, &args, NULL), GDN_E_NOT_LOADED, "no current CUDA context", "cudaSetDevice()");
}

/* ---- The rest of the interface ---- */

Test(bad_input, contexts)
{
    gdn_ctx *ctx = (gdn_ctx *)&host;
    gdn_config cfg = GDN_CONFIG_INIT;
    const char *const bundles[] = { "/a", NULL };
    EXPECT(gdn_ctx_create(NULL, NULL), GDN_E_INVALID, "out is null");
    cfg.struct_size = 0;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_VERSION, "gdn_config.struct_size is 0");
    cr_expect_null(ctx);
    cfg.struct_size = sizeof cfg;
    cfg.flags = 0x100;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "flags is 0x100", "GDN_CTX_NO_COMPILE", "GDN_CTX_EXISTING_CACHE");
    cfg.flags = 0;
    cfg.log_level = 9;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "log_level is 9");
    cfg.log_level = -1;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "log_level is -1");
    cfg.log_level = 0;
    cfg.compile_jobs = 257;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "compile_jobs is 257", "1 to 256", "0 for GDN_JIT_COMPILE_JOBS");
    cfg.compile_jobs = -1;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "compile_jobs is -1");
    cfg.compile_jobs = 0;
    cfg.reserved = 7;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "reserved is 7");
    cfg.reserved = 0;
    cfg.num_bundle_dirs = 2;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "bundle_dirs is null", "2");
    cfg.bundle_dirs = bundles;
    EXPECT(gdn_ctx_create(&ctx, &cfg), GDN_E_INVALID, "bundle_dirs[1] is null");
    gdn_ctx_destroy(NULL);
}

Test(bad_input, plans)
{
    const gdn_target target = fake_h200(host.ctx);
    const gdn_prefill_desc p = fake_prefill_desc();
    const gdn_conv1d_desc c = fake_conv1d_desc();
    gdn_plan *plan = NULL;
    EXPECT(gdn_plan_prefill(NULL, &target, &p, 0, &plan), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_plan_prefill(host.ctx, &target, &p, 0, NULL), GDN_E_INVALID, "out is null");
    EXPECT(gdn_plan_prefill(host.ctx, &target, &p, 0x40, &plan), GDN_E_INVALID, "flags is 0x40", "GDN_PLAN_CACHED_ONLY",
           "GDN_PLAN_BATCH_INVARIANT");
    EXPECT(gdn_plan_prefill(host.ctx, &target, &p, GDN_PLAN_BATCH_INVARIANT | GDN_PLAN_TUNED_ONLY, &plan), GDN_E_INVALID,
           "flags is 0x28", "GDN_PLAN_BATCH_INVARIANT", "GDN_PLAN_TUNED_ONLY", "drop one");
    EXPECT(gdn_plan_conv1d_qkv(NULL, &target, &c, 0, &plan), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_plan_conv1d_qkv(host.ctx, &target, &c, 2, &plan), GDN_E_INVALID, "flags is 0x2");
    EXPECT(gdn_plan_conv1d_qkv(host.ctx, &target, &c, GDN_PLAN_BATCH_INVARIANT, &plan), GDN_E_INVALID, "flags is 0x20");
    gdn_plan_destroy(NULL);
    cr_expect_eq(gdn_plan_workspace_size(NULL), 0);
    cr_expect(fake_error_says("plan is null: make one with gdn_plan_prefill()"), "%s", gdn_last_error());
}

static gdn_status take_nothing(void *user, const void *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return GDN_OK;
}

Test(bad_input, dumps_and_costs)
{
    gdn_plan *plan = NULL;
    gdn_cost cost = GDN_COST_INIT;
    const gdn_target target = fake_h200(host.ctx);
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    EXPECT(gdn_plan_dump(NULL, GDN_DUMP_JSON, take_nothing, NULL), GDN_E_INVALID, "plan is null");
    EXPECT(gdn_plan_dump(plan, GDN_DUMP_JSON, NULL, NULL), GDN_E_INVALID, "write is null");
    EXPECT(gdn_plan_dump(plan, (gdn_dump_kind)0, take_nothing, NULL), GDN_E_INVALID, "kind is 0");
    EXPECT(gdn_plan_dump(plan, (gdn_dump_kind)8, take_nothing, NULL), GDN_E_INVALID, "kind is 8", "GDN_DUMP_CUBIN");
    EXPECT(gdn_plan_cost(NULL, 1, 1, &cost), GDN_E_INVALID, "plan is null");
    EXPECT(gdn_plan_cost(plan, -1, 1, &cost), GDN_E_INVALID, "num_tokens is -1");
    EXPECT(gdn_plan_cost(plan, 1, -1, &cost), GDN_E_INVALID, "num_seqs is -1");
    EXPECT(gdn_plan_cost(plan, 1, 1, NULL), GDN_E_INVALID, "gdn_cost is null");
    cost.struct_size = 0;
    EXPECT(gdn_plan_cost(plan, 1, 1, &cost), GDN_E_VERSION, "gdn_cost.struct_size is 0");
    gdn_plan_destroy(plan);
}

Test(bad_input, one_call_forms)
{
    const gdn_prefill_desc p = fake_prefill_desc();
    const gdn_prefill_args pa = fake_prefill_args();
    const gdn_conv1d_desc c = fake_conv1d_desc();
    const gdn_conv1d_args ca = fake_conv1d_args();
    EXPECT(gdn_prefill(NULL, &p, &pa, 0, 0, NULL), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_prefill(host.ctx, NULL, &pa, 0, 0, NULL), GDN_E_INVALID, "gdn_prefill_desc is null");
    EXPECT(gdn_prefill(host.ctx, &p, NULL, 0, 0, NULL), GDN_E_INVALID, "gdn_prefill_args is null");
    EXPECT(gdn_conv1d_qkv(NULL, &c, &ca, NULL), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_conv1d_qkv(host.ctx, NULL, &ca, NULL), GDN_E_INVALID, "gdn_conv1d_desc is null");
    EXPECT(gdn_conv1d_qkv(host.ctx, &c, NULL, NULL), GDN_E_INVALID, "gdn_conv1d_args is null");
    cr_expect_eq(host.cuda->calls("cuInit"), 0, "nothing is opened for a call that cannot run");
}

Test(bad_input, examining)
{
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    EXPECT(gdn_examine(NULL, &doctor), GDN_E_INVALID, "ctx is null");
    EXPECT(gdn_examine(host.ctx, NULL), GDN_E_INVALID, "gdn_doctor is null");
    doctor.struct_size = 5;
    EXPECT(gdn_examine(host.ctx, &doctor), GDN_E_VERSION, "gdn_doctor.struct_size is 5");
}

Test(bad_input, statuses_have_names)
{
    cr_expect_str_eq(gdn_status_name(GDN_E_NOT_LOADED), "GDN_E_NOT_LOADED");
    cr_expect_str_eq(gdn_status_name((gdn_status)4711), "GDN_E_?");
}

/* Read off the header, so that a new one cannot be forgotten. */
Test(bad_input, every_status_of_the_header_has_its_name)
{
    char line[256], name[64];
    int number, statuses = 0;
    FILE *header = fopen(GDN_SOURCE_DIR "/include/gdn_jit/gdn_jit.h", "r");
    cr_assert_not_null(header);
    while (fgets(line, sizeof line, header)) {
        if (sscanf(line, "    GDN_E_%57[A-Z_] = %d", name + 6, &number) != 2) continue;
        memcpy(name, "GDN_E_", 6);
        cr_expect_str_eq(gdn_status_name((gdn_status)number), name);
        ++statuses;
    }
    fclose(header);
    cr_expect_geq(statuses, 15);
}
