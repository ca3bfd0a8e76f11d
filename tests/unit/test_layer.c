/*
 * test_layer.c - an embedder's whole path for one linear-attention layer: both operators planned by the GPU's name, loaded,
 * launched in order on one stream, each output the next input; and a second process start that compiles nothing.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "codegen/kernel_params.h"
#include "support/fake_host.h"

enum { DEVICE = 0 };

struct layer {
    gdn_plan *conv, *prefill;
};

static struct layer plan_layer(gdn_ctx *ctx)
{
    struct layer layer = { 0 };
    const gdn_target target = fake_h200(ctx);
    gdn_prefill_desc p = fake_prefill_desc();
    gdn_conv1d_desc c = fake_conv1d_desc();
    c.num_q_heads = c.num_k_heads = p.num_q_heads;
    c.num_v_heads = p.num_v_heads;
    c.flags = GDN_CONV_SILU;
    cr_assert_eq(gdn_plan_conv1d_qkv(ctx, &target, &c, 0, &layer.conv), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_prefill(ctx, &target, &p, 0, &layer.prefill), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(layer.conv, DEVICE), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_plan_load(layer.prefill, DEVICE), GDN_OK, "%s", gdn_last_error());
    return layer;
}

static void run_layer(const struct layer *layer, gdn_stream stream)
{
    gdn_conv1d_args c = fake_conv1d_args();
    gdn_prefill_args p = fake_prefill_args();
    c.bias = 0;
    c.x_stride = 4096;
    c.cu_seqlens = p.cu_seqlens;
    p.q = c.q, p.k = c.k, p.v = c.v, p.o = 0xb0000;
    cr_assert_eq(gdn_execute_conv1d_qkv(layer->conv, &c, stream), GDN_OK, "%s", gdn_last_error());
    cr_assert_eq(gdn_execute_prefill(layer->prefill, &p, 0, 0, stream), GDN_OK, "%s", gdn_last_error());
}

static void destroy_layer(struct layer *layer)
{
    gdn_plan_destroy(layer->conv);
    gdn_plan_destroy(layer->prefill);
}

Test(layer, two_launches_in_order_with_the_outputs_of_one_as_the_inputs_of_the_other)
{
    struct fake_host host;
    struct gdni_conv1d_params c;
    struct gdni_prefill_params p;
    gdn_stream stream = (gdn_stream)(uintptr_t)0x5000;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    struct layer layer = plan_layer(host.ctx);
    run_layer(&layer, stream);
    cr_assert_eq(host.cuda->num_launches(), 2);
    const struct fake_launch first = host.cuda->launch(0), second = host.cuda->launch(1);
    cr_expect_str_eq(first.kernel, "conv1d_qkv");
    cr_expect_str_eq(second.kernel, "gdn_prefill_hopper");
    cr_expect(first.stream == stream && second.stream == stream);
    memcpy(&c, first.params, sizeof c);
    memcpy(&p, second.params, sizeof p);
    cr_expect(c.out[0] == p.q && c.out[1] == p.k && c.out[2] == p.v);
    /* What the conv writes packed is what the prefill reads packed. */
    cr_expect_eq(c.channels[0], p.q_token_stride);
    cr_expect_eq(c.channels[1], p.k_token_stride);
    cr_expect_eq(c.channels[2], p.v_token_stride);
    cr_expect_eq(c.num_seqs, p.num_seqs);
    destroy_layer(&layer);
    cr_expect(fake_balanced(host.cuda));
    fake_host_close(&host);
}

Test(layer, a_second_start_compiles_nothing_even_in_strict_mode)
{
    char dir[64];
    fake_make_dir(dir);
    for (int start = 0; start < 3; ++start) {
        struct fake_host host;
        fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, start == 2 ? GDN_CTX_NO_COMPILE : 0);
        struct layer layer = plan_layer(host.ctx);
        run_layer(&layer, NULL);
        if (start == 0)
            cr_expect_gt(fake_compiles(host.ctx), 1);
        else
            cr_expect_eq(fake_compiles(host.ctx), 0, "start %d", start);
        destroy_layer(&layer);
        fake_host_close(&host);
    }
    fake_remove_dir(dir);
}
