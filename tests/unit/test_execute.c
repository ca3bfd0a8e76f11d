/*
 * test_execute.c - what a call sends to the driver: launch parameters, grid, block, shared memory, stream; and what it
 * refuses. Nothing is executed: the fake driver records launches.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "codegen/conv_launch.h"
#include "codegen/partition.h"
#include "fakecuda/fake_map.h"
#include "runtime/plan.h"
#include "support/fake_host.h"

static struct fake_host host;
static gdn_plan *prefill, *conv;

static gdn_plan *loaded_prefill_as(const gdn_prefill_desc *desc, uint32_t flags)
{
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(host.ctx);
    cr_assert_eq(gdn_plan_prefill(host.ctx, &target, desc, flags, &plan), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    return plan;
}

static gdn_plan *loaded_prefill(const gdn_prefill_desc *desc)
{
    return loaded_prefill_as(desc, GDN_PLAN_GENERIC);
}

static gdn_plan *loaded_conv(const gdn_conv1d_desc *desc)
{
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(host.ctx);
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
    return plan;
}

static void set_up(void)
{
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    const gdn_prefill_desc p = fake_prefill_desc();
    const gdn_conv1d_desc c = fake_conv1d_desc();
    prefill = loaded_prefill(&p);
    conv = loaded_conv(&c);
}

static void tear_down(void)
{
    gdn_plan_destroy(prefill);
    gdn_plan_destroy(conv);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
    cr_expect(fake_no_leaks());
}

TestSuite(execute, .init = set_up, .fini = tear_down);

static struct fake_launch last_launch(void)
{
    cr_assert_gt(host.cuda->num_launches(), 0);
    return host.cuda->launch(host.cuda->num_launches() - 1);
}

static bool same_bytes(const void *a, const void *b, size_t size)
{
    return memcmp(a, b, size) == 0;
}

static struct gdni_prefill_params run_prefill(const gdn_prefill_args *args)
{
    struct gdni_prefill_params params;
    cr_assert_eq(gdn_execute_prefill(prefill, args, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    const struct fake_launch launch = last_launch();
    cr_assert_eq(launch.params_size, sizeof params);
    memcpy(&params, launch.params, sizeof params);
    return params;
}

static struct gdni_conv1d_params run_conv(const gdn_conv1d_args *args)
{
    struct gdni_conv1d_params params;
    cr_assert_eq(gdn_execute_conv1d_qkv(conv, args, NULL), GDN_OK, "%s", gdn_last_error());
    const struct fake_launch launch = last_launch();
    cr_assert_eq(launch.params_size, sizeof params);
    memcpy(&params, launch.params, sizeof params);
    return params;
}

Test(execute, prefill_passes_every_argument_on)
{
    const gdn_prefill_args a = fake_prefill_args();
    const struct gdni_prefill_params p = run_prefill(&a);
    const struct gdni_prefill_params wanted = {
        .q = a.q, .k = a.k, .v = a.v, .g = a.g, .beta = a.beta, .initial_state = a.initial_state,
        .cu_seqlens = a.cu_seqlens, .o = a.o, .final_state = a.final_state,
        .q_token_stride = 512, .k_token_stride = 512, .v_token_stride = 1024, .o_token_stride = 1024,
        .q_head_stride = 128, .k_head_stride = 128, .v_head_stride = 128, .o_head_stride = 128,
        .g_token_stride = 8, .g_head_stride = 1, .beta_token_stride = 8, .beta_head_stride = 1,
        .initial_slot_stride = 131072, .final_slot_stride = 131072, .slot_in_stride = 1, .slot_out_stride = 1,
        .uniform_len = 0, .num_tokens = 96, .num_heads = 8, .q_div = 2, .q_mod = 4, .k_div = 2, .k_mod = 4,
        .v_div = 1, .v_mod = 8, .num_seqs = 3,
        .scale = p.scale,
    };
    cr_expect(same_bytes(&p, &wanted, sizeof p));
    cr_expect_eq(p.scale, (float)(1 / sqrt(128.0)));
}

Test(execute, prefill_launches_one_kernel_with_the_spec_it_was_compiled_for)
{
    const gdn_prefill_args a = fake_prefill_args();
    gdn_stream stream = (gdn_stream)(uintptr_t)0xabc0;
    cr_assert_eq(gdn_execute_prefill(prefill, &a, 0, 0, stream), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 1);
    const struct fake_launch launch = last_launch();
    const struct gdni_spec *spec = &prefill->specs[0];
    uint32_t grid[3];
    cr_assert_eq(gdni_spec_grid(spec, &prefill->problem, a.num_tokens, a.num_seqs, 132, grid), GDN_OK);
    cr_expect_eq(memcmp(launch.grid, grid, sizeof grid), 0);
    cr_expect_eq(launch.grid[0], 3 * 8 * (128 / 64), "sequences x heads x halves of the value columns");
    cr_expect_eq(launch.block[0], (unsigned)spec->threads);
    cr_expect_eq(launch.block[1] * launch.block[2], 1);
    cr_expect_eq(launch.smem, (unsigned)spec->smem_bytes);
    cr_expect_eq(launch.stream, (void *)stream);
    cr_expect_eq(launch.device, 0);
    cr_expect_str_eq(launch.kernel, "gdn_prefill_generic");
}

Test(execute, scale_is_used_when_given_and_zero_is_zero)
{
    gdn_prefill_args a = fake_prefill_args();
    a.scale = 3;
    a.has_scale = 1;
    cr_expect_eq(run_prefill(&a).scale, 3.0f);
    a.scale = 0;
    cr_expect_eq(run_prefill(&a).scale, 0.0f);
    a.scale = 0.5f;
    a.has_scale = 0;
    cr_expect_eq(gdn_execute_prefill(prefill, &a, 0, 0, NULL), GDN_E_INVALID, "it would be left out without a word");
    cr_expect(fake_error_says("scale is given and has_scale is 0: set has_scale to 1"), "%s", gdn_last_error());
}

Test(execute, a_uniform_batch_gets_its_length_from_the_host)
{
    gdn_prefill_args a = fake_prefill_args();
    a.cu_seqlens = 0;
    const struct gdni_prefill_params p = run_prefill(&a);
    cr_expect(p.uniform_len == 32 && p.num_tokens == 96 && p.num_seqs == 3);
    gdn_conv1d_args c = fake_conv1d_args();
    c.cu_seqlens = 0;
    cr_expect_eq(run_conv(&c).uniform_len, 32);
}

Test(execute, heads_of_any_ratio_become_groups)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = 2, desc.num_k_heads = 4, desc.num_v_heads = 12;
    desc.head_dim_qk = desc.head_dim_v = 64;
    gdn_plan *plan = loaded_prefill(&desc), *saved = prefill;
    const gdn_prefill_args a = fake_prefill_args();
    prefill = plan;
    const struct gdni_prefill_params p = run_prefill(&a);
    prefill = saved;
    cr_expect_eq(p.num_heads, 12);
    cr_expect_eq(p.q_div, 6);
    cr_expect_eq(p.q_mod, 2);
    cr_expect_eq(p.k_div, 3);
    cr_expect_eq(p.k_mod, 4);
    cr_expect_eq(p.v_div, 1);
    cr_expect_eq(p.v_mod, 12);
    cr_expect_eq(p.q_token_stride, 128);
    cr_expect_eq(p.k_token_stride, 256);
    cr_expect_eq(p.v_token_stride, 768);
    cr_expect_eq(p.o_token_stride, 768);
    cr_expect_eq(p.scale, 0.125f);
    gdn_plan_destroy(plan);
}

static struct gdni_prefill_params run_prefill_of(const gdn_prefill_desc *desc, const gdn_prefill_args *args)
{
    gdn_plan *plan = loaded_prefill(desc), *saved = prefill;
    prefill = plan;
    const struct gdni_prefill_params params = run_prefill(args);
    prefill = saved;
    gdn_plan_destroy(plan);
    return params;
}

Test(execute, a_tiled_head_map_repeats_instead_of_grouping)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.head_map = GDN_HEADS_TILED;
    const gdn_prefill_args a = fake_prefill_args();
    const struct gdni_prefill_params p = run_prefill_of(&desc, &a);
    cr_expect(p.q_div == 1 && p.q_mod == 4 && p.k_div == 1 && p.k_mod == 4 && p.v_div == 1 && p.v_mod == 8);
}

Test(execute, strides_are_passed_on_and_each_zero_is_its_packed_value)
{
    gdn_prefill_args a = fake_prefill_args();
    a.cu_seqlens = 0; /* 3 x 32 tokens */
    a.q_strides = (gdn_strides){ .batch = 16384, .token = 128, .head = 4096 };
    a.k_strides.token = 2048;
    a.o_strides = (gdn_strides){ .batch = 70000, .token = 2048, .head = 256 };
    a.g_strides = (gdn_strides){ .token = 1, .head = 32, .batch = 256 };
    a.beta_strides.token = 77;
    const struct gdni_prefill_params p = run_prefill(&a);
    cr_expect(p.q_batch_stride == 16384 && p.q_token_stride == 128 && p.q_head_stride == 4096);
    cr_expect(p.k_batch_stride == 32 * 2048 && p.k_token_stride == 2048 && p.k_head_stride == 128);
    cr_expect(p.v_batch_stride == 32 * 1024 && p.v_token_stride == 1024 && p.v_head_stride == 128);
    cr_expect(p.o_batch_stride == 70000 && p.o_token_stride == 2048 && p.o_head_stride == 256);
    cr_expect(p.g_batch_stride == 256 && p.g_token_stride == 1 && p.g_head_stride == 32);
    cr_expect(p.beta_batch_stride == 32 * 77 && p.beta_token_stride == 77 && p.beta_head_stride == 1);
}

Test(execute, slots_have_the_defaults_of_the_header)
{
    gdn_prefill_args a = fake_prefill_args();
    a.slot_in = 0xa0000, a.slot_in_stride = 5;
    struct gdni_prefill_params p = run_prefill(&a);
    cr_expect(p.slot_in == 0xa0000 && p.slot_out == 0xa0000 && p.slot_in_stride == 5 && p.slot_out_stride == 5,
              "slot_out is slot_in");
    a.slot_out = 0xb0000, a.slot_out_stride = 3;
    a.initial_slot_stride = 131072 + 96, a.final_slot_stride = 200000;
    a.has_initial_state = 0xc0001;
    p = run_prefill(&a);
    cr_expect(p.slot_out == 0xb0000 && p.slot_out_stride == 3 && p.has_initial_state == 0xc0001);
    cr_expect(p.initial_slot_stride == 131168 && p.final_slot_stride == 200000);
    a.slot_in = 0, a.slot_out_stride = 0;
    p = run_prefill(&a);
    cr_expect(p.slot_in == 0 && p.slot_out == 0xb0000 && p.slot_out_stride == 1, "line n is read, slot_out written");
}

Test(execute, logits_and_checkpoints_are_passed_on)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    desc.gate = GDN_GATE_LOGITS;
    desc.flags = GDN_PREFILL_CHECKPOINTS;
    a.a_log = 0xa0004, a.dt_bias = 0xb0004, a.checkpoints = 0xc0008, a.num_checkpoints = 7;
    const struct gdni_prefill_params p = run_prefill_of(&desc, &a);
    cr_expect(p.a_log == 0xa0004 && p.dt_bias == 0xb0004 && p.checkpoints == 0xc0008 && p.num_checkpoints == 7);
    a.num_checkpoints = 0;
    cr_expect_eq(run_prefill_of(&desc, &a).checkpoints, 0, "an empty list is none");
}

/* All rows are outside every sequence then, and somebody has to write them. */
Test(execute, no_sequence_launches_nothing_unless_padding_becomes_zeros)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    a.num_seqs = 0;
    cr_assert_eq(gdn_execute_prefill(prefill, &a, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 0);
    desc.flags = GDN_PREFILL_ZERO_PADDING;
    a.q = a.k = a.v = 0;
    const struct gdni_prefill_params p = run_prefill_of(&desc, &a);
    cr_expect_eq(p.num_seqs, 0);
    cr_expect_eq(last_launch().grid[0], 8 * (128 / 64));
}

Test(execute, conv_passes_every_argument_on)
{
    const gdn_conv1d_args a = fake_conv1d_args();
    const struct gdni_conv1d_params p = run_conv(&a);
    const struct gdni_conv1d_params wanted = {
        .x = a.x, .weight = a.weight, .bias = a.bias, .slot_in = a.slot_in, .has_initial_state = a.has_initial_state,
        .cu_seqlens = a.cu_seqlens, .out = { a.q, a.k, a.v }, .state = a.state, .x_stride = 1536,
        .token_stride = { 256, 256, 512 }, .state_slot_stride = 3 * 1024, .num_tokens = 96, .uniform_len = 0,
        .channels = { 256, 256, 512 }, .head_magic = { 0x10000000, 0x10000000, 0x10000000 }, .head_dim_qk = 128,
        .head_dim_v = 128, .slot_in_stride = 1, .slot_out_stride = 1, .num_seqs = 3, .row_magic = INT32_MIN,
        .row_shift = 31 + 7, .row_lanes = 128, .num_tiles = 24,
    };
    cr_expect(same_bytes(&p, &wanted, sizeof p));
    cr_expect_str_eq(last_launch().kernel, "conv1d_qkv");
}

/* ---- Hopper's own kernel ---- */

static struct gdni_prefill_hopper_params run_hopper(gdn_plan *plan, const gdn_prefill_args *args)
{
    struct gdni_prefill_hopper_params params;
    cr_assert_eq(gdn_execute_prefill(plan, args, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    const struct fake_launch launch = last_launch();
    cr_assert_str_eq(launch.kernel, "gdn_prefill_hopper");
    cr_assert_eq(launch.params_size, sizeof params);
    memcpy(&params, launch.params, sizeof params);
    return params;
}

static struct fake_map map_as_asked(const struct gdni_tensor_map *map)
{
    struct fake_map asked;
    memcpy(&asked, map->bytes, sizeof asked);
    return asked;
}

static uint64_t map_dim(const struct gdni_tensor_map *map, int i)
{
    return map_as_asked(map).dims[i];
}

static uint32_t map_box(const struct gdni_tensor_map *map, int i)
{
    return map_as_asked(map).box[i];
}

Test(execute, hopper_gets_what_the_generic_kernel_gets_and_four_tensor_maps)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    const gdn_prefill_args a = fake_prefill_args();
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    const struct gdni_prefill_params wanted = run_prefill(&a);
    const struct gdni_prefill_hopper_params p = run_hopper(plan, &a);
    cr_expect(same_bytes(&p, &wanted, offsetof(struct gdni_prefill_hopper_params, num_items)));
    cr_expect_eq(p.num_items, 3 * 8 * 2, "halves of heads");
    cr_expect_eq(last_launch().grid[0], 3u * 8 * 2, "an item a CTA while they are fewer than SMs");
    cr_expect_eq(host.cuda->calls("cuTensorMapEncodeTiled"), 4);
    cr_expect_eq(map_dim(&p.q_map, 1), 96u, "tokens");
    cr_expect_eq(map_dim(&p.q_map, 3), 4u, "q heads");
    cr_expect_eq(map_dim(&p.o_map, 3), 8u, "state heads");
    cr_expect_eq(map_dim(&p.k_map, 4), 1u, "one batch");
    cr_expect(map_as_asked(&p.k_map).strides[3] > 0, "a stride that is not used must be legal all the same");
    cr_expect(map_box(&p.k_map, 2) == 2 && map_box(&p.v_map, 2) == 1, "halves of V's columns, all of K's");
    gdn_plan_destroy(plan);
}

/* A plan for 40 sequences of 8 heads in 132 SMs, so that a CTA goes from one item to another, and a call of so many. */
static gdn_plan *loaded_for_many(gdn_prefill_desc desc, gdn_prefill_args *a)
{
    desc.max_tokens = a->num_tokens = 65536, desc.max_seqs = a->num_seqs = 40;
    return loaded_prefill_as(&desc, 0);
}

Test(execute, no_tensor_begins_where_the_workspace_does)
{
    gdn_prefill_args a = fake_prefill_args(), many = a;
    gdn_plan *plan = loaded_for_many(fake_prefill_desc(), &many);
    const size_t size = gdn_plan_workspace_size(plan);
    a.checkpoints = 0xc0000;
    const gdn_devptr tensors[] = { a.q, a.k, a.v, a.o, a.initial_state, a.final_state, a.cu_seqlens, a.checkpoints };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
        cr_expect_eq(gdn_execute_prefill(plan, &a, tensors[i], size, NULL), GDN_E_INVALID, "tensor %zu", i);
        cr_expect(strstr(gdn_last_error(), "workspace is 0x") || strstr(gdn_last_error(), "as workspace is"), "%s",
                  gdn_last_error());
    }
    cr_expect_eq(gdn_execute_prefill(plan, &a, 0xf00000, size, NULL), GDN_OK, "%s", gdn_last_error());
    gdn_plan_destroy(plan);
}

Test(execute, hopper_counts_its_items_in_the_workspace_where_they_are_many)
{
    gdn_prefill_args a = fake_prefill_args();
    gdn_plan *plan = loaded_for_many(fake_prefill_desc(), &a);
    struct gdni_prefill_hopper_params p;
    const size_t size = gdn_plan_workspace_size(plan);
    cr_assert_geq(size, 256u);
    for (int given = 0; given < 2; ++given) {
        const int memsets = host.cuda->calls("cuMemsetD32Async");
        cr_assert_eq(gdn_execute_prefill(plan, &a, given ? 0xf00000 : 0, given ? size : 0, NULL), GDN_OK, "%s",
                     gdn_last_error());
        const struct fake_launch launch = last_launch();
        cr_assert_eq(launch.params_size, sizeof p);
        memcpy(&p, launch.params, sizeof p);
        cr_expect_eq(p.control, given ? 0xf00000u : 0u);
        cr_expect_eq(host.cuda->calls("cuMemsetD32Async") - memsets, given);
        cr_expect_eq(launch.grid[0], 132u, "CTAs walk 320 items");
        cr_expect_eq(map_box(&p.v_map, 2), 2u, "all columns of a head");
    }
    a.num_tokens = 640; /* nothing is counted: what lies in the workspace is not cleared, and not looked at */
    cr_assert_eq(gdn_execute_prefill(plan, &a, 0xf00000, size, NULL), GDN_OK, "%s", gdn_last_error());
    memcpy(&p, last_launch().params, sizeof p);
    cr_expect_eq(p.control, 0u);
    gdn_plan_destroy(plan);
}

static struct gdni_prefill_hopper_params run_many(const gdn_prefill_desc *desc, const gdn_prefill_args *like)
{
    gdn_prefill_args a = *like;
    gdn_plan *plan = loaded_for_many(*desc, &a);
    const struct gdni_prefill_hopper_params p = run_hopper(plan, &a);
    gdn_plan_destroy(plan);
    return p;
}

Test(execute, hopper_gets_maps_of_its_states_where_a_cta_has_several)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    a.final_slot_stride = 8 * 128 * 128 + 64;
    for (int vk = 0; vk < 2; ++vk) {
        desc.state_layout = vk ? GDN_STATE_VK : GDN_STATE_KV;
        const struct gdni_prefill_hopper_params p = run_many(&desc, &a);
        const struct fake_map from = map_as_asked(&p.initial_map), to = map_as_asked(&p.final_map);
        cr_expect_eq(p.states_by_map, 1);
        cr_expect(from.address == a.initial_state && to.address == a.final_state);
        cr_expect(from.strides[0] == 512 && from.strides[1] == 128 && from.strides[2] == 65536, "row, block, head");
        cr_expect_eq(from.strides[3], 8u * 65536, "packed lines");
        cr_expect_eq(to.strides[3], 8u * 65536 + 256, "as far apart as asked");
        cr_expect(from.dims[1] == 128 && from.dims[2] == 4 && from.dims[3] == 8, "rows, blocks, heads");
        cr_expect_geq(from.dims[4], 1u << 30, "lines of any slot");
        cr_expect(to.box[1] == (vk ? 32u : 128u) && to.box[2] == (vk ? 4u : 1u) && to.box[3] == 1 && to.box[4] == 1,
                  "32 value columns of either layout");
    }
}

Test(execute, hopper_gets_no_maps_of_states_that_it_lacks_or_that_maps_do_not_hold)
{
    static const struct gdni_tensor_map none;
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    a.initial_state = 0;
    struct gdni_prefill_hopper_params p = run_many(&desc, &a);
    cr_expect_eq(p.states_by_map, 1);
    cr_expect(same_bytes(&p.initial_map, &none, sizeof none) && map_as_asked(&p.final_map).address == a.final_state);

    a.initial_state = 0x70000, a.initial_slot_stride = (int64_t)1 << 38, a.slot_in = 0xa0000; /* of 4 bytes: 2^40 */
    cr_expect_eq(run_many(&desc, &a).states_by_map, 0, "a stride beyond what a map holds");
    a.initial_slot_stride -= 4;
    p = run_many(&desc, &a);
    cr_expect_eq(p.states_by_map, 1, "the largest that it does");
    const uint64_t extent = map_dim(&p.initial_map, 4) * map_as_asked(&p.initial_map).strides[3];
    cr_expect(extent >= (uint64_t)1 << 49 && extent < (uint64_t)1 << 50, "lines of an address space, and no more: 0x%llx",
              (unsigned long long)extent);

    desc.state_type = GDN_BF16;
    a.initial_slot_stride = 0;
    cr_expect_eq(run_many(&desc, &a).states_by_map, 0, "states of 16 bits go by the state warps alone");
}

Test(execute, a_map_of_states_that_the_driver_refuses_is_told_and_nothing_launched)
{
    static const char *const pools[] = { "tensor map of initial_state", "tensor map of final_state" };
    gdn_prefill_args a = fake_prefill_args();
    gdn_plan *plan = loaded_for_many(fake_prefill_desc(), &a);
    for (int i = 0; i < 2; ++i) {
        host.cuda->fail("cuTensorMapEncodeTiled", 5 + i, 1); /* behind q, k, v and o */
        cr_expect_eq(gdn_execute_prefill(plan, &a, 0, 0, NULL), GDN_E_CUDA);
        cr_expect(fake_error_says(pools[i]), "%s", gdn_last_error());
    }
    cr_expect_eq(host.cuda->num_launches(), 0);
    gdn_plan_destroy(plan);
}

Test(execute, a_call_whose_ctas_have_one_state_each_encodes_no_maps_of_them)
{
    gdn_prefill_args a = fake_prefill_args();
    gdn_plan *plan = loaded_for_many(fake_prefill_desc(), &a);
    a.num_seqs = 16; /* 128 items */
    const int before = host.cuda->calls("cuTensorMapEncodeTiled");
    cr_expect_eq(run_hopper(plan, &a).states_by_map, 0);
    cr_expect_eq(host.cuda->calls("cuTensorMapEncodeTiled") - before, 4);
    gdn_plan_destroy(plan);
}

/* What a call of the whole plan sends, on a stream, with its workspace at 0xf00000 or without. */
static struct gdni_prefill_hopper_params run_cut(const gdn_plan *plan, const gdn_prefill_args *args, bool workspace)
{
    struct gdni_prefill_hopper_params p;
    cr_assert_eq(gdn_execute_prefill(plan, args, workspace ? 0xf00000 : 0, workspace ? gdn_plan_workspace_size(plan) : 0,
                                     (gdn_stream)(uintptr_t)0xabc0),
                 GDN_OK, "%s", gdn_last_error());
    const struct fake_launch launch = last_launch();
    cr_assert_str_eq(launch.kernel, "gdn_prefill_hopper");
    cr_assert_eq(launch.params_size, sizeof p);
    memcpy(&p, launch.params, sizeof p);
    return p;
}

/* 512 chunks of 8 heads in 132 SMs, then 64 chunks of 2 heads, which are not enough for all. */
Test(execute, hopper_cuts_long_sequences_where_it_has_a_workspace)
{
    static const struct {
        int32_t heads;
        int64_t tokens;
    } calls[] = { { 8, 32768 }, { 2, 4096 } };
    gdn_prefill_args a = fake_prefill_args();
    a.num_seqs = 1;
    for (int i = 0; i < 2; ++i) {
        gdn_prefill_desc desc = fake_prefill_desc();
        desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = calls[i].heads;
        desc.max_tokens = a.num_tokens = calls[i].tokens;
        gdn_plan *plan = loaded_prefill_as(&desc, 0);
        const int launches = host.cuda->num_launches(), memsets = host.cuda->calls("cuMemsetD32Async");
        const struct gdni_prefill_hopper_params p = run_cut(plan, &a, true);
        const struct gdni_spec *spec = &plan->specs[gdni_plan_variant_of_few(plan, a.num_tokens, 1)];
        const int64_t rows = p.partition ? a.num_tokens / (64 * (int64_t)p.partition) + 1 : 0;
        cr_expect_eq(p.partition, gdni_partition_cut(spec, &plan->problem, 132, a.num_tokens, 1, 0).chunks);
        cr_assert(p.partition >= 4 && 64 * p.partition < a.num_tokens, "%d chunks", p.partition);
        cr_expect_eq(p.num_items, rows * calls[i].heads);
        cr_expect_eq(last_launch().grid[0], 132u, "gates may ask for more than %d items", p.num_items);
        cr_expect_eq(p.num_items >= 132, i == 0, "%d items", p.num_items);
        const struct fake_memset cleared = host.cuda->last_memset();
        cr_expect_eq(host.cuda->calls("cuMemsetD32Async") - memsets, 1);
        cr_expect(cleared.address == 0xf00000 && cleared.value == 0 && cleared.launches_before == launches);
        const int by_gates = 132 + calls[i].heads, items = p.num_items > by_gates ? p.num_items : by_gates;
        cr_expect_eq(cleared.words, (size_t)(64 + 4 * calls[i].heads + 8 * items), "%zu words", cleared.words);
        cr_expect_eq(host.cuda->calls("cuStreamIsCapturing"), 0, "so many are cleared in a graph or not");
        cr_expect(cleared.stream == last_launch().stream && cleared.stream == (void *)(uintptr_t)0xabc0);
        cr_expect_eq(p.control, 0xf00000u);
        cr_expect(p.images >= p.control + 4 * cleared.words && p.images % 256 == 0, "%llx", (unsigned long long)p.images);
        cr_expect_eq(p.carry, (int)GDNI_CARRY_BY_GATES, "%d heads on 132 SMs", calls[i].heads);
        const uint64_t links = (uint64_t)((rows - 1) * calls[i].heads > by_gates ? (rows - 1) * calls[i].heads : by_gates);
        cr_expect_eq(p.t_images, p.images + links * (128 * 128 * 4 + 129 * 128 * 4));
        cr_expect_leq(p.t_images + (uint64_t)132 * 64 * 8192, 0xf00000 + gdn_plan_workspace_size(plan));
        gdn_plan_destroy(plan);
    }
}

/* Partitions of one length, of more pairs than gates may cut: a replay that goes by keys may be as long as one of them. */
Test(execute, long_partitions_of_one_length_say_how_far_keys_may_be_asked)
{
    gdn_prefill_args a = fake_prefill_args();
    gdn_prefill_desc desc = fake_prefill_desc();
    a.num_seqs = 1;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 65;
    desc.max_tokens = a.num_tokens = 32768;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    const struct gdni_prefill_hopper_params cut = run_cut(plan, &a, true);
    cr_expect(cut.num_items == 195 && last_launch().grid[0] == 132, "%d items by %u CTAs", cut.num_items,
              last_launch().grid[0]);
    const struct gdni_prefill_hopper_params whole = run_cut(plan, &a, false);
    cr_expect_eq(cut.carry, (int)GDNI_CARRY_NEVER);
    cr_expect(cut.partition == 256 && cut.most_forgetting == 224, "%d of %d chunks", cut.most_forgetting, cut.partition);
    cr_expect(whole.partition == 0 && whole.most_forgetting == 0, "%d", whole.most_forgetting);
    gdn_plan_destroy(plan);
}

Test(execute, hopper_cuts_nothing_without_a_workspace)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    desc.max_tokens = a.num_tokens = 32768, a.num_seqs = 1;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    cr_assert_neq(run_cut(plan, &a, true).partition, 0);
    const int memsets = host.cuda->calls("cuMemsetD32Async");
    const struct gdni_prefill_hopper_params p = run_cut(plan, &a, false);
    cr_expect(p.partition == 0 && p.num_items == 8 && p.control == 0, "%d chunks, %d items", p.partition, p.num_items);
    cr_expect_eq(last_launch().grid[0], 8u);
    cr_expect_eq(host.cuda->calls("cuMemsetD32Async"), memsets);
    gdn_plan_destroy(plan);
}

/* Which kernel a call of four sequences of 8192 tokens ran, and into partitions of how many chunks it cut them. */
static const unsigned char *kernel_of_four(const gdn_plan *plan, bool uniform, int64_t max_seq_tokens, int32_t *partition)
{
    gdn_prefill_args a = fake_prefill_args();
    a.num_tokens = 4 * 8192, a.num_seqs = 4;
    a.max_seq_tokens = max_seq_tokens;
    if (uniform) a.cu_seqlens = 0;
    *partition = run_cut(plan, &a, true).partition;
    return last_launch().image;
}

/* 256 (sequence, head) pairs keep 132 SMs busy unless one sequence is most of the call, which only the caller can rule out. */
Test(execute, sequences_no_longer_than_a_partition_stay_whole_in_the_kernel_without_partitions)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 64;
    desc.max_tokens = 4 * 8192, desc.max_seqs = 4;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    int32_t length, partition;
    const unsigned char *const cuts = kernel_of_four(plan, false, 0, &length);
    cr_assert_geq(length, 8192 / 64, "of unknown lengths one may be most of the call");
    const unsigned char *const whole = kernel_of_four(plan, true, 0, &partition);
    cr_expect(partition == 0 && whole != cuts, "a uniform batch: %d", partition);
    cr_expect(kernel_of_four(plan, false, (int64_t)length * 64, &partition) == whole && partition == 0, "%d", partition);
    cr_expect(kernel_of_four(plan, false, (int64_t)length * 64 + 1, &partition) == cuts && partition == length);
    cr_expect(kernel_of_four(plan, false, 1, &partition) == whole && partition == 0, "whatever it is told: %d", partition);
    gdn_plan_destroy(plan);
}

/* 33 heads, which no table knows, 32768 tokens of two sequences, the longer of so many: whether they are cut. */
static bool is_cut(const gdn_plan *plan, int64_t max_seq_tokens, bool workspace, const unsigned char **kernel)
{
    gdn_prefill_args a = fake_prefill_args();
    a.num_tokens = 32768, a.num_seqs = 2;
    a.max_seq_tokens = max_seq_tokens;
    const struct gdni_prefill_hopper_params p = run_cut(plan, &a, workspace);
    *kernel = last_launch().image;
    cr_expect(!p.partition || (p.carry == GDNI_CARRY_BY_GATES && !p.gang && last_launch().grid[0] == 132u),
              "carry %d, gang %d", p.carry, p.gang);
    return p.partition != 0;
}

/* Halves of 66 pairs find an SM each: that is sooner where sequences are alike, and takes as long as the longest does. */
Test(execute, few_sequences_are_cut_where_one_is_much_longer)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    const unsigned char *alike, *uneven, *unknown, *bare;
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 33;
    desc.max_tokens = 32768, desc.max_seqs = 2;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    cr_expect_not(is_cut(plan, 16384, true, &alike));
    cr_expect(is_cut(plan, 32000, true, &uneven));
    cr_expect_not(is_cut(plan, 0, true, &unknown), "what is not known is guessed to be alike");
    cr_expect(alike != uneven && alike == unknown);
    cr_expect(!is_cut(plan, 32000, false, &bare) && bare != uneven, "without a workspace nothing is cut");
    gdn_plan_destroy(plan);
}

/* Seven heads, 28 pairs: SMs are dealt out by lengths and gates, and states carried where these do not decay. */
Test(execute, uneven_calls_of_few_pairs_run_the_kernel_that_carries)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 7;
    desc.max_tokens = 32768, desc.max_seqs = 38;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    gdn_prefill_args a = fake_prefill_args();
    a.num_tokens = 32768, a.num_seqs = 1;
    struct gdni_prefill_hopper_params p = run_cut(plan, &a, true);
    const unsigned char *const carries = last_launch().image;
    cr_expect_eq(p.carry, GDNI_CARRY_BY_GATES);
    a.num_tokens = 4096, a.num_seqs = 4, a.max_seq_tokens = 3500;
    p = run_cut(plan, &a, true);
    cr_expect(p.partition && p.carry == GDNI_CARRY_BY_GATES && p.gang == 0 && last_launch().grid[0] == 132u,
              "%d chunks, carry %d, gang %d, %u CTAs", p.partition, p.carry, p.gang, last_launch().grid[0]);
    cr_expect(last_launch().image == carries && p.t_images != 0, "the same cubin as a long sequence's");
    a.max_seq_tokens = 1024;
    p = run_cut(plan, &a, true);
    cr_expect(last_launch().image != carries && p.partition == 0, "alike: %d chunks", p.partition);
    a.num_seqs = 10, a.max_seq_tokens = 3500;
    p = run_cut(plan, &a, true);
    cr_expect(last_launch().image == carries && p.partition && p.carry == GDNI_CARRY_BY_GATES && !p.gang,
              "70 pairs, of which some may be cut: carry %d, gang %d", p.carry, p.gang);
    a.num_seqs = 38;
    p = run_cut(plan, &a, true);
    cr_expect(last_launch().image != carries && p.partition && p.gang && !p.carry,
              "266 pairs, more than two an SM, evenly: %d chunks, gang %d", p.partition, p.gang);
    gdn_plan_destroy(plan);
}

/* Three heads: too many pairs; sequences alike; and partitions of one length that must be long, for there to be few enough. */
Test(execute, uneven_calls_that_cannot_be_carried_stay_in_even_shares)
{
    static const int64_t calls[][4] = {
        { 112980, 89, 60000, false }, { 105370, 10, 10540, false }, { 112980, 9, 60000, true }, { 898442, 9, 150000, true }
    };
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = desc.num_k_heads = desc.num_v_heads = 3;
    desc.max_tokens = 1 << 20, desc.max_seqs = 96;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
        gdn_prefill_args a = fake_prefill_args();
        a.num_tokens = calls[i][0], a.num_seqs = calls[i][1], a.max_seq_tokens = calls[i][2];
        const struct gdni_prefill_hopper_params p = run_cut(plan, &a, true);
        cr_expect(p.partition && (p.gang == 0) == calls[i][3] && (p.carry == GDNI_CARRY_BY_GATES) == calls[i][3],
                  "call %zu: %d chunks, gang %d, carry %d", i, p.partition, p.gang, p.carry);
    }
    gdn_plan_destroy(plan);
}

/* Another kernel might have other bits. */
Test(execute, batch_invariant_calls_are_cut_whatever_they_say_of_lengths)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.max_tokens = 4 * 8192, desc.max_seqs = 4;
    gdn_plan *plan = loaded_prefill_as(&desc, GDN_PLAN_BATCH_INVARIANT);
    int32_t unknown, told, uniform;
    const unsigned char *const kernel = kernel_of_four(plan, false, 0, &unknown);
    cr_expect(kernel_of_four(plan, false, 1, &told) == kernel && kernel_of_four(plan, true, 0, &uniform) == kernel);
    cr_expect(unknown == 16 && told == 16 && uniform == 16, "%d, %d, %d", unknown, told, uniform);
    gdn_plan_destroy(plan);
}

static struct fake_launch run_flagged(uint32_t flags, uint32_t plan_flags, const gdn_prefill_args *args, bool workspace,
                                      int64_t max_tokens)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.flags = flags;
    desc.max_tokens = max_tokens, desc.max_seqs = 40;
    gdn_plan *plan = loaded_prefill_as(&desc, plan_flags);
    const size_t size = workspace ? gdn_plan_workspace_size(plan) : 0;
    cr_assert(size || !workspace);
    cr_assert_eq(gdn_execute_prefill(plan, args, workspace ? 0xf00000 : 0, size, (gdn_stream)(uintptr_t)0xabc0), GDN_OK,
                 "%s", gdn_last_error());
    gdn_plan_destroy(plan);
    return last_launch();
}

Test(execute, programmatic_launch_differs_from_a_plain_one_in_its_attribute_alone)
{
    static const uint32_t plan_flags[] = { GDN_PLAN_GENERIC, 0 };
    const gdn_prefill_args a = fake_prefill_args();
    for (int i = 0; i < 2; ++i) {
        const struct fake_launch plain = run_flagged(0, plan_flags[i], &a, false, 96);
        struct fake_launch early = run_flagged(GDN_PREFILL_PROGRAMMATIC_LAUNCH, plan_flags[i], &a, false, 96);
        cr_expect(!plain.programmatic && early.programmatic, "%s", plain.kernel);
        early.programmatic = false;
        early.image = plain.image; /* programs of their own */
        cr_expect(same_bytes(&plain, &early, sizeof plain), "%s", plain.kernel);
    }
    cr_expect_eq(host.cuda->calls("cuLaunchKernel"), 2);
    cr_expect_eq(host.cuda->calls("cuLaunchKernelEx"), 2);
}

/* A memset would keep the kernel apart from the one before it: it clears its words itself, by a launch of its own. */
static void check_cleared_by_launch(const gdn_prefill_args *a, uint32_t plan_flags, const char *kernel)
{
    (void)run_flagged(0, plan_flags, a, true, a->num_tokens);
    const unsigned words = (unsigned)host.cuda->last_memset().words;
    const int launches = host.cuda->num_launches();
    const struct fake_launch launch = run_flagged(GDN_PREFILL_PROGRAMMATIC_LAUNCH, plan_flags, a, true, a->num_tokens);
    cr_assert_eq(host.cuda->num_launches() - launches, 2, "%s", kernel);
    const struct fake_launch first = host.cuda->launch(launches);
    cr_expect(launch.programmatic && first.programmatic, "%s", kernel);
    cr_expect_str_eq(launch.kernel, kernel);
    cr_expect(same_bytes(first.params, launch.params, sizeof launch.params) && first.stream == launch.stream, "%s", kernel);
    cr_expect(first.block[0] == 128 && first.smem == 0 && launch.block[0] > 128, "%u threads", first.block[0]);
    cr_expect_eq(first.grid[0], (words + 255) / 256 * 2, "%u CTAs: clusters of two may have to be whole", first.grid[0]);
    struct gdni_prefill_params p;
    memcpy(&p, launch.params, sizeof p);
    const unsigned long long end = p.control + 4ull * first.grid[0] * first.block[0];
    const unsigned long long room = p.images > p.control ? p.images : p.control + 4 * 1280;
    cr_expect(p.control == 0xf00000 && end <= room, "%s clears up to %llx of %llx", kernel, end, room);
}

Test(execute, a_programmatic_launch_with_control_words_clears_them_by_a_launch_of_the_same_kernel)
{
    gdn_prefill_args a = fake_prefill_args();
    a.num_tokens = 500, a.num_seqs = 1;
    check_cleared_by_launch(&a, 0, "gdn_prefill_hopper_split");
    a.num_tokens = 65536, a.num_seqs = 40;
    check_cleared_by_launch(&a, 0, "gdn_prefill_hopper");
    check_cleared_by_launch(&a, GDN_PLAN_WHOLE_SEQUENCES, "gdn_prefill_hopper"); /* a counter deals the items out */
    cr_expect_eq(host.cuda->calls("cuMemsetD32Async"), 3, "of the plain launches beside these");
    cr_expect_eq(host.cuda->calls("cuLaunchKernel"), 3);
    const int launches = host.cuda->num_launches();
    cr_expect(run_flagged(GDN_PREFILL_PROGRAMMATIC_LAUNCH, 0, &a, false, 65536).programmatic);
    cr_expect_eq(host.cuda->num_launches() - launches, 1, "without a workspace nothing is cleared");
}

Test(execute, conv_is_launched_plainly_whatever_it_allows_the_next_kernel)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.flags |= GDN_CONV_LAUNCH_DEPENDENTS;
    gdn_plan *plan = loaded_conv(&desc);
    const gdn_conv1d_args a = fake_conv1d_args();
    cr_assert_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_not(last_launch().programmatic);
    gdn_plan_destroy(plan);
}

Test(execute, hopper_maps_of_a_uniform_batch_have_its_sequences_as_a_dimension)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    a.cu_seqlens = 0;
    const struct gdni_prefill_hopper_params p = run_hopper(plan, &a);
    cr_expect_eq(map_dim(&p.v_map, 1), 32u);
    cr_expect_eq(map_dim(&p.v_map, 4), 3u);
    gdn_plan_destroy(plan);
}

Test(execute, hopper_has_no_map_of_what_a_call_without_sequences_does_not_read)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    desc.flags = GDN_PREFILL_ZERO_PADDING;
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    a.num_seqs = 0;
    a.q = a.k = a.v = 0;
    run_hopper(plan, &a);
    cr_expect_eq(host.cuda->calls("cuTensorMapEncodeTiled"), 0);
    cr_expect_eq(last_launch().grid[0], 132u, "all SMs have a share of the padding");
    gdn_plan_destroy(plan);
}

Test(execute, conv_copies_lines_of_sequences_that_may_be_empty_where_they_go_elsewhere)
{
    gdn_conv1d_args a = fake_conv1d_args();
    cr_expect_eq(run_conv(&a).copy_rows, 0, "in place");
    a.slot_out = a.slot_in;
    cr_expect_eq(run_conv(&a).copy_rows, 0, "in place, said twice");
    a.slot_out_stride = 2;
    cr_expect_gt(run_conv(&a).copy_rows, 0, "other elements of one list");
    a.slot_out = 0xb0000, a.slot_out_stride = 0;
    cr_expect_gt(run_conv(&a).copy_rows, 0, "another list");
    a.state = a.has_initial_state = 0;
    cr_expect_eq(run_conv(&a).copy_rows, 0, "no lines");
}

Test(execute, conv_has_tiles_of_padding_alone_where_it_becomes_zeros)
{
    for (int zeros = 0; zeros < 2; ++zeros) {
        gdn_conv1d_desc desc = fake_conv1d_desc();
        gdn_conv1d_args a = fake_conv1d_args();
        gdn_plan *plan = NULL;
        const gdn_target target = fake_h200(host.ctx);
        if (zeros) desc.flags |= GDN_CONV_ZERO_PADDING;
        a.num_seqs = 0;
        cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
        cr_assert_eq(gdn_plan_load(plan, 0), GDN_OK, "%s", gdn_last_error());
        const int before = host.cuda->num_launches();
        cr_expect_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(host.cuda->num_launches() - before, zeros);
        gdn_plan_destroy(plan);
    }
}

Test(execute, conv_refuses_a_call_larger_than_any_grid)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_conv1d_args a = fake_conv1d_args();
    gdn_plan *plan = NULL;
    const gdn_target target = fake_h200(host.ctx);
    desc.max_tokens = a.num_tokens = INT32_MAX;
    const int before = host.cuda->num_launches();
    cr_assert_eq(gdn_plan_conv1d_qkv(host.ctx, &target, &desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_E_INVALID);
    cr_expect(strstr(gdn_last_error(), "largest grid"), "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), before);
    gdn_plan_destroy(plan);
}

Test(execute, hopper_keeps_an_extreme_scale_out_of_fp16)
{
    static const struct {
        gdn_dtype io_type;
        float scale, p_scale, late_scale;
    } cases[] = { { GDN_BF16, 0.1875f, 0.1875f, 1 }, { GDN_BF16, -3, -3, 1 },         { GDN_BF16, 1e6f, 1, 1e6f },
                  { GDN_BF16, 1e-9f, 1, 1e-9f },     { GDN_BF16, 0, 1, 0 },           { GDN_F16, 0.125f, 0.125f, 1 },
                  { GDN_F16, 0.1875f, 0.125f, 1.5f }, { GDN_F16, -3, 2, -1.5f },      { GDN_F16, 1e6f, 1, 1e6f },
                  { GDN_F16, 1e-9f, 1, 1e-9f },      { GDN_F16, 0, 1, 0 } };
    gdn_prefill_args a = fake_prefill_args();
    a.has_scale = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        gdn_prefill_desc desc = fake_prefill_desc();
        desc.io_type = cases[i].io_type;
        gdn_plan *plan = loaded_prefill_as(&desc, 0);
        a.scale = cases[i].scale;
        const struct gdni_prefill_hopper_params p = run_hopper(plan, &a);
        cr_expect(p.p_scale == cases[i].p_scale && p.late_scale == cases[i].late_scale, "scale %g: %g %g",
                  (double)a.scale, (double)p.p_scale, (double)p.late_scale);
        gdn_plan_destroy(plan);
    }
}

Test(execute, hopper_refuses_what_tensor_maps_cannot_say_and_launches_nothing)
{
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_prefill_args a = fake_prefill_args();
    gdn_plan *plan = loaded_prefill_as(&desc, 0);
    a.v_strides.token = (int64_t)1 << 39; /* of two bytes each */
    cr_expect_eq(gdn_execute_prefill(plan, &a, 0, 0, NULL), GDN_E_INVALID);
    cr_expect(strstr(gdn_last_error(), "v_strides.token") && strstr(gdn_last_error(), "GDN_PLAN_GENERIC"), "%s",
              gdn_last_error());
    a = fake_prefill_args();
    for (int nth = 1; nth <= 4; ++nth) {
        host.cuda->fail("cuTensorMapEncodeTiled", nth, 1);
        cr_expect_eq(gdn_execute_prefill(plan, &a, 0, 0, NULL), GDN_E_CUDA, "call %d", nth);
        cr_expect(strstr(gdn_last_error(), "tensor map of"), "%s", gdn_last_error());
    }
    cr_expect_eq(host.cuda->num_launches(), 0);
    gdn_plan_destroy(plan);
}

/* A plan for everything: what defaults do not show. */
Test(execute, conv_passes_strides_gates_slots_and_checkpoints_on)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_conv1d_args a = fake_conv1d_args();
    struct gdni_conv1d_params p;
    desc.x_layout = GDN_CONV_X_INTERLEAVED;
    desc.num_gate_heads = 4;
    desc.flags |= GDN_CONV_CHECKPOINTS | GDN_CONV_L2_NORM;
    gdn_plan *plan = loaded_conv(&desc);
    a.a = 0x100000, a.b = 0x110000, a.a_log = 0x120000, a.dt_bias = 0x130000, a.g = 0x140000, a.beta = 0x150000;
    a.checkpoints = 0x160000, a.num_checkpoints = 7;
    a.slot_out = 0x170000, a.slot_in_stride = 3, a.slot_out_stride = 5;
    a.a_stride = 16, a.b_stride = 24, a.gate_group_stride = 8;
    a.state_slot_stride = 4096;
    a.q_strides = (gdn_strides){ 0, 128, 128 * 96 };
    a.cu_seqlens = 0;
    a.v_strides = (gdn_strides){ 32 * 1024, 512, 128 };
    cr_assert_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_E_INVALID, "q's head stride is not packed, nor is its batch");
    a.q_strides.batch = 32 * 128;
    cr_assert_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_OK, "%s", gdn_last_error());
    memcpy(&p, last_launch().params, sizeof p);
    cr_expect_eq(p.x_group_stride, 2 * 128 + 2 * 2 * 128, "q, k, two v heads and their z");
    cr_expect_eq(p.v_heads_per_k, 2);
    cr_expect(p.a == a.a && p.b == a.b && p.a_log == a.a_log && p.dt_bias == a.dt_bias && p.g == a.g && p.beta == a.beta);
    cr_expect(p.a_stride == 16 && p.b_stride == 24 && p.gate_group_stride == 8 && p.gate_group == 2 && p.num_gate_heads == 4);
    cr_expect(p.token_stride[0] == 128 && p.head_gap[0] == 128 * 95 && p.batch_skip[0] == 0);
    cr_expect_eq(p.batch_skip[2], 32 * 1024 - 32 * 512);
    cr_expect(p.slot_out == a.slot_out && p.slot_in_stride == 3 && p.slot_out_stride == 5);
    cr_expect_eq(p.state_slot_stride, 4096);
    cr_expect(p.checkpoints == a.checkpoints && p.num_checkpoints == 7 && p.copy_rows == 1);
    cr_expect(p.row_lanes == 128 && p.gate_warps == 1 && p.gate_step == 8, "eight tokens of four gate heads take a warp");
    cr_expect_eq(p.gate_ctas, 24 * 32 / 128);
    cr_expect_eq(last_launch().grid[0], 24u * 32 / 128 + 24 + 7 + 1);
    gdn_plan_destroy(plan);
}

/* Tokens of one warp of gates: a short call's are a tile's, a long one's sixteen of each lane, whatever the tiles are. */
Test(execute, conv_gates_of_a_long_call_take_fewer_ctas_than_its_tiles_would)
{
    enum { HEADS = 8, STEP = 32 / HEADS, LANE_TOKENS = 16 };
    gdn_conv1d_desc desc = fake_conv1d_desc();
    gdn_conv1d_args a = fake_conv1d_args();
    struct gdni_conv1d_params p;
    desc.num_gate_heads = HEADS;
    desc.max_tokens = 1 << 20;
    gdn_plan *plan = loaded_conv(&desc);
    a.a = 0x100000, a.b = 0x110000, a.a_log = 0x120000, a.g = 0x140000, a.beta = 0x150000;
    for (int64_t tokens = 1 << 9; tokens <= 1 << 20; tokens *= 2) {
        a.num_tokens = tokens;
        cr_assert_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_OK, "%s", gdn_last_error());
        memcpy(&p, last_launch().params, sizeof p);
        const struct gdni_spec *spec = &plan->specs[plan->variant_of_bucket[gdni_bucket_of(tokens)]];
        const int64_t tile = spec->params.tile_tokens;
        const int64_t wanted = tokens * p.row_lanes < 32768 * 128 ? tile : LANE_TOKENS * STEP;
        cr_expect_eq(p.gate_step, STEP);
        cr_expect_eq(p.gate_tokens, wanted, "%lld tokens: %d", (long long)tokens, p.gate_tokens);
        const int64_t lanes = (tokens + wanted - 1) / wanted * 32;
        cr_expect_eq(p.gate_ctas, (lanes + spec->threads - 1) / spec->threads, "%lld tokens", (long long)tokens);
    }
    cr_expect_eq(p.gate_tokens, LANE_TOKENS * STEP, "the longest call is long");
    gdn_plan_destroy(plan);
}

Test(execute, the_variant_is_the_one_of_the_calls_bucket)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.max_tokens = 1 << 20;
    gdn_plan *plan = loaded_conv(&desc);
    cr_assert_gt(plan->num_variants, 1, "this test needs a plan of several variants");
    gdn_conv1d_args a = fake_conv1d_args();
    for (int bucket = 0; bucket < GDNI_NUM_BUCKETS - 1; ++bucket) {
        const struct gdni_spec *spec = &plan->specs[plan->variant_of_bucket[bucket]];
        a.num_tokens = gdni_bucket_edge(bucket);
        cr_assert_eq(gdn_execute_conv1d_qkv(plan, &a, NULL), GDN_OK, "%s", gdn_last_error());
        struct gdni_conv1d_params params;
        uint32_t grid[3];
        cr_assert_eq(gdni_conv1d_launch(&params, grid, spec, &plan->problem, &a, 132), GDN_OK);
        cr_expect_eq(last_launch().grid[0], grid[0], "bucket %d", bucket);
        cr_expect_eq(last_launch().smem, (unsigned)spec->smem_bytes, "bucket %d", bucket);
        cr_expect_eq(last_launch().block[0], (unsigned)spec->threads, "bucket %d", bucket);
    }
    gdn_plan_destroy(plan);
}

static struct gdni_conv1d_params launch_of_conv(const gdn_plan *plan, int64_t num_tokens)
{
    const struct gdni_spec *spec = &plan->specs[plan->variant_of_bucket[gdni_bucket_of(num_tokens)]];
    gdn_conv1d_args a = fake_conv1d_args();
    struct gdni_conv1d_params params;
    uint32_t grid[3];
    a.x_stride = 8192;
    a.num_tokens = num_tokens;
    cr_assert_eq(gdni_conv1d_launch(&params, grid, spec, &plan->problem, &a, 132), GDN_OK);
    return params;
}

/* 132 SMs of five CTAs of 128 threads are 84480 lanes, and a row of 2048 + 2048 + 4096 channels has 1024: 82.5 tiles. */
Test(execute, conv_late_tiles_are_the_last_wave_and_a_half_of_normed_calls)
{
    gdn_conv1d_desc desc = fake_conv1d_desc();
    desc.num_q_heads = desc.num_k_heads = 16, desc.num_v_heads = 32;
    desc.head_dim_qk = desc.head_dim_v = 128;
    desc.max_tokens = 1 << 20;
    desc.flags &= ~(uint32_t)GDN_CONV_L2_NORM;
    gdn_plan *plain = loaded_conv(&desc);
    desc.flags |= GDN_CONV_L2_NORM;
    gdn_plan *normed = loaded_conv(&desc);
    cr_expect_eq(launch_of_conv(plain, 4096).late_tiles, 0);
    cr_expect_eq(launch_of_conv(normed, 4096).late_tiles, 124, "%d", launch_of_conv(normed, 4096).late_tiles);
    const struct gdni_conv1d_params small = launch_of_conv(normed, 40);
    cr_expect_eq(small.late_tiles, small.num_tiles, "a call of less than a wave is all late");
    gdn_plan_destroy(normed);
    gdn_plan_destroy(plain);
}

Test(execute, empty_calls)
{
    gdn_prefill_args p = fake_prefill_args();
    p.num_tokens = 0;
    p.q = p.k = p.v = p.o = 0;
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 1, "sequences without tokens copy their states");
    p.num_seqs = 0;
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    gdn_conv1d_args c = fake_conv1d_args();
    c.num_tokens = 0;
    cr_expect_eq(gdn_execute_conv1d_qkv(conv, &c, NULL), GDN_OK, "%s", gdn_last_error());
    c.num_tokens = 96;
    c.num_seqs = 0;
    cr_expect_eq(gdn_execute_conv1d_qkv(conv, &c, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 1, "nothing else is launched");
}

Test(execute, allocates_nothing)
{
    const gdn_prefill_args p = fake_prefill_args();
    const gdn_conv1d_args c = fake_conv1d_args();
    gdni_mem_fail_after(0);
    const gdn_status a = gdn_execute_prefill(prefill, &p, 0, 0, NULL), b = gdn_execute_conv1d_qkv(conv, &c, NULL);
    gdni_mem_fail_after(-1);
    cr_expect_eq(a, GDN_OK);
    cr_expect_eq(b, GDN_OK);
    cr_expect_eq(host.cuda->num_launches(), 2);
}

Test(execute, is_legal_during_capture_and_asks_nothing_about_the_stream)
{
    const gdn_prefill_args p = fake_prefill_args();
    host.cuda->set_capture(1);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(host.cuda->calls("cuStreamIsCapturing"), 0);
    cr_expect_eq(host.cuda->num_launches(), 1);
}

Test(execute, a_workspace_is_whole_and_aligned_or_none)
{
    const gdn_prefill_args p = fake_prefill_args();
    const size_t size = gdn_plan_workspace_size(prefill);
    cr_assert_gt(size, 0);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0x1000, size - 1, NULL), GDN_E_WORKSPACE);
    cr_expect(fake_error_says("0x1000") && fake_error_says("or 0 and 0"), "%s", gdn_last_error());
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, size, NULL), GDN_E_WORKSPACE);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0x1080, size, NULL), GDN_E_WORKSPACE);
    cr_expect(fake_error_says("0x1080") && fake_error_says("256 bytes"), "%s", gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 0);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0x1100, size, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
}

/* One sequence of 96 tokens: two chunks, three rows of images for each of eight heads. */
static gdn_prefill_args one_sequence(void)
{
    gdn_prefill_args p = fake_prefill_args();
    p.num_seqs = 1;
    return p;
}

Test(execute, few_sequences_with_a_workspace_clear_its_control_words_and_run_two_kinds_of_ctas)
{
    const gdn_prefill_args p = one_sequence();
    struct gdni_prefill_params sent;
    cr_assert_eq(gdn_execute_prefill(prefill, &p, 0x1000, gdn_plan_workspace_size(prefill), (gdn_stream)0x77), GDN_OK, "%s",
                 gdn_last_error());
    const struct fake_memset cleared = host.cuda->last_memset();
    const struct fake_launch launch = last_launch();
    cr_expect_eq(cleared.count, 1);
    cr_expect_eq(cleared.address, 0x1000);
    cr_expect_eq(cleared.value, 0);
    cr_expect_eq(cleared.words, 1 + 2 * 8, "a ticket counter, and a flag for each of 2 rows and 8 heads");
    cr_expect_eq(cleared.stream, (void *)0x77);
    cr_expect_eq(cleared.launches_before, 0, "the counters are zero before the kernel starts");
    cr_expect_eq(host.cuda->num_launches(), 1);
    cr_expect_str_eq(launch.kernel, "gdn_prefill_split");
    memcpy(&sent, launch.params, sizeof sent);
    cr_expect_eq(sent.control, 0x1000);
    cr_expect_eq(sent.images, 0x1000 + 4 * 1280);
    cr_expect_eq(sent.image_rows, 2);
    cr_expect_eq(sent.num_producers, 8, "16 images, two at a time");
    cr_expect_eq(launch.grid[0], 8 + 8 * (128 / 16), "producers, and 8 heads in blocks of 16 columns");
}

/* A memset node of up to 4 KiB takes longer than one of more; on a stream it is the other way round. */
Test(execute, a_captured_call_clears_more_than_4_kib)
{
    const gdn_prefill_args p = one_sequence();
    const size_t size = gdn_plan_workspace_size(prefill);
    for (int capturing = 0; capturing < 2; ++capturing) {
        host.cuda->set_capture(capturing);
        cr_assert_eq(gdn_execute_prefill(prefill, &p, 0x1000, size, NULL), GDN_OK, "%s", gdn_last_error());
        cr_expect_eq(host.cuda->last_memset().words, capturing ? 1088 : 1 + 2 * 8);
    }
    host.cuda->set_capture(0);
    host.cuda->fail("cuStreamIsCapturing", 1, 906);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0x1000, size, NULL), GDN_E_CUDA);
    cr_expect(strstr(gdn_last_error(), "cuStreamIsCapturing failed"), "%s", gdn_last_error());
    cr_expect_eq(host.cuda->last_memset().count, 2);
}

Test(execute, without_a_workspace_or_with_many_sequences_one_kernel_is_all)
{
    gdn_prefill_args p = one_sequence();
    cr_assert_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_neq(last_launch().kernel, "gdn_prefill_split");
    p.num_seqs = 8;
    cr_assert_eq(gdn_execute_prefill(prefill, &p, 0x1000, gdn_plan_workspace_size(prefill), NULL), GDN_OK, "%s",
                 gdn_last_error());
    cr_expect_str_neq(last_launch().kernel, "gdn_prefill_split");
    cr_expect_eq(host.cuda->calls("cuMemsetD32Async"), 0);
}

Test(execute, a_failed_memset_is_told_and_nothing_is_launched)
{
    const gdn_prefill_args p = one_sequence();
    host.cuda->fail("cuMemsetD32Async", 1, 700);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0x1000, gdn_plan_workspace_size(prefill), NULL), GDN_E_CUDA);
    cr_expect(fake_error_says("cuMemsetD32Async failed: an illegal memory access was encountered (700): "), "%s",
              gdn_last_error());
    cr_expect_eq(host.cuda->num_launches(), 0);
}

Test(execute, needs_the_primary_context_of_a_loaded_device)
{
    const gdn_prefill_args p = fake_prefill_args();
    host.cuda->make_current(-1);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_E_NOT_LOADED);
    cr_expect(fake_error_says("no current CUDA context") && fake_error_says("cudaSetDevice"), "%s", gdn_last_error());
    host.cuda->make_other_current(0);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_E_NOT_LOADED);
    cr_expect(fake_error_says("primary context") && fake_error_says("a green context's stream serves too"), "%s",
              gdn_last_error());
    host.cuda->set_devices(2);
    host.cuda->make_current(1);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_E_NOT_LOADED);
    cr_expect(fake_error_says("gdn_plan_load()"), "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(prefill, 1), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(last_launch().device, 1);
    host.cuda->make_current(0);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(last_launch().device, 0);
}

Test(execute, a_failed_launch_is_told_in_the_drivers_words)
{
    const gdn_prefill_args p = fake_prefill_args();
    host.cuda->fail("cuLaunchKernel", 1, 700);
    cr_expect_eq(gdn_execute_prefill(prefill, &p, 0, 0, NULL), GDN_E_CUDA);
    cr_expect(fake_error_says("cuLaunchKernel failed: an illegal memory access was encountered (700): "), "%s",
              gdn_last_error());
}
