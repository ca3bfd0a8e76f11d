/*
 * test_target.c - a GPU's name and the GPU itself are one target, and the key of a kernel depends on neither calls nor parts.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/arch.h"
#include "codegen/key.h"
#include "codegen/unit.h"
#include "runtime/target.h"
#include "support/fake_host.h"

/* Byte for byte, but for the padding behind the last member. */
static bool same_target(const gdn_target *a, const gdn_target *b)
{
    const void *x = a, *y = b;
    return memcmp(x, y, offsetof(gdn_target, tensor_tflops) + sizeof a->tensor_tflops) == 0;
}

static void dress_as(struct fake_device *device, const struct gdni_gpu *gpu)
{
    const struct gdni_arch *arch = NULL;
    cr_assert_eq(gdni_arch_find(gpu->arch, &arch), GDN_OK);
    snprintf(device->name, sizeof device->name, "%s", gpu->name);
    device->major = arch->cc / 10;
    device->minor = arch->cc % 10;
    device->num_sms = gpu->num_sms;
    device->l2_bytes = 12345; /* what the driver of the day reports may differ from the table */
    device->memory_clock_khz = 1;
}

Test(target, the_device_equals_the_name_for_every_gpu_of_the_table)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    for (int i = 0; gdni_gpu_at(i); ++i) {
        const char *name = gdni_gpu_at(i)->name;
        gdn_target named = GDN_TARGET_INIT, found = GDN_TARGET_INIT;
        dress_as(host.cuda->device(0), gdni_gpu_at(i));
        cr_assert_eq(gdn_target_from_name(host.ctx, name, &named), GDN_OK, "%s: %s", name, gdn_last_error());
        cr_assert_eq(gdn_target_from_device(host.ctx, 0, &found), GDN_OK, "%s: %s", name, gdn_last_error());
        cr_expect(same_target(&named, &found), "%s", name);
        cr_expect_str_eq(found.gpu_name, name);
    }
    cr_expect(fake_balanced(host.cuda));
    cr_expect_eq(host.cuda->calls("cuDevicePrimaryCtxRetain"), 0, "no context is made on the device");
    fake_host_close(&host);
}

/* Of a GPU that the table lacks: an arch and a number of SMs are needed, all else only informs. */
Test(target, what_a_driver_does_not_say_of_a_gpu_is_unknown_unless_it_decides)
{
    enum { NOT_SUPPORTED = 801, NEEDED = 3, ASKED = 7 };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    snprintf(host.cuda->device(0)->name, sizeof host.cuda->device(0)->name, "NVIDIA GB10");
    for (int nth = 1; nth <= ASKED; ++nth) {
        gdn_target t = GDN_TARGET_INIT;
        host.cuda->fail("cuDeviceGetAttribute", nth, NOT_SUPPORTED);
        cr_expect_eq(gdn_target_from_device(host.ctx, 0, &t), nth <= NEEDED ? GDN_E_CUDA : GDN_OK, "attribute %d: %s", nth,
                     gdn_last_error());
        if (nth <= NEEDED) continue;
        cr_expect_eq((t.smem_per_block == 0) + (t.l2_bytes == 0) + (t.dram_gbps == 0), 1, "attribute %d: %d %d %d", nth,
                     t.smem_per_block, t.l2_bytes, t.dram_gbps);
        cr_expect(t.num_sms == 132 && strcmp(t.arch, "sm_90a") == 0, "attribute %d", nth);
    }
    fake_host_close(&host);
}

Test(target, a_part_with_fewer_sms_keeps_its_own_count)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_target named = fake_h200(host.ctx), found = GDN_TARGET_INIT;
    host.cuda->device(0)->num_sms = 60;
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &found), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(found.num_sms, 60);
    named.num_sms = 60;
    cr_expect(same_target(&named, &found), "all but the SM count is the table's");
    fake_host_close(&host);
}

Test(target, a_gpu_outside_the_table_is_described_by_its_driver)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_target found = GDN_TARGET_INIT;
    *host.cuda->device(0) = (struct fake_device){
        .name = "NVIDIA Marvel 7", .major = 8, .minor = 6, .num_sms = 77, .smem_optin = 99 * 1024, .l2_bytes = 7 << 20,
        .memory_clock_khz = 9501000, .bus_bits = 384,
    };
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &found), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_eq(found.gpu_name, "NVIDIA Marvel 7");
    cr_expect_str_eq(found.arch, "sm_86");
    cr_expect_eq(found.num_sms, 77);
    cr_expect_eq(found.smem_per_block, 99 * 1024);
    cr_expect_eq(found.l2_bytes, 7 << 20);
    cr_expect_eq(found.dram_gbps, 912); /* 2 * 9.501 GHz * 48 bytes */
    cr_expect_eq(found.tensor_tflops, 0);
    fake_host_close(&host);
}

/* What a driver says of a GPU ends up in JSON, in a terminal, and in a target that plans are made for. */
Test(target, a_drivers_name_is_printable_ascii_whatever_it_holds)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_target found = GDN_TARGET_INIT;
    gdn_support support = GDN_SUPPORT_INIT;
    snprintf(host.cuda->device(0)->name, sizeof host.cuda->device(0)->name, "Marvel\xff \xc3\xa4\n7");
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &found), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_eq(found.gpu_name, "Marvel? ???7");
    cr_expect_eq(gdn_prefill_support(&found, &desc, 0, &support), GDN_OK, "%s", gdn_last_error());
    fake_host_close(&host);
}

Test(target, a_known_name_on_another_architecture_is_not_believed)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_target found = GDN_TARGET_INIT;
    host.cuda->device(0)->major = 8;
    host.cuda->device(0)->minor = 0;
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &found), GDN_OK, "%s", gdn_last_error());
    cr_expect_str_eq(found.arch, "sm_80");
    cr_expect_eq(found.tensor_tflops, 0, "an H200's peak is not this device's");
    fake_host_close(&host);
}

Test(target, a_shorter_struct_gets_only_what_it_has_room_for)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    struct {
        gdn_target target;
        unsigned char after[32];
    } longer;
    memset(&longer, 0x5a, sizeof longer);
    longer.target.struct_size = sizeof longer; /* a newer caller: what this library does not know stays as it was */
    cr_assert_eq(gdn_target_from_name(host.ctx, "sm_80", &longer.target), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(longer.target.struct_size, sizeof longer);
    for (size_t i = 0; i < sizeof longer.after; ++i) cr_expect_eq(longer.after[i], 0x5a, "byte %zu", i);
    longer.target.struct_size = sizeof(gdn_target) - 8;
    cr_expect_eq(gdn_target_from_name(host.ctx, "sm_80", &longer.target), GDN_E_VERSION);
    cr_expect(fake_error_says("gdn_target.struct_size"), "%s", gdn_last_error());
    fake_host_close(&host);
}

static void count_name(void *user, const char *name, const char *arch)
{
    int *counts = user;
    const bool is_arch = strcmp(name, arch) == 0;
    cr_expect(!(counts[1] && !is_arch), "GPUs come before archs: %s", name);
    ++counts[is_arch];
}

Test(target, every_name_that_is_listed_is_a_target)
{
    int counts[2] = { 0 };
    gdn_target_names(count_name, counts);
    cr_expect_geq(counts[0], 10);
    cr_expect_eq(counts[1], 8);
}

/* ---- Keys ---- */

/* The keys of a plan's variants, through the dump; the kernels are compiled once and then found in memory. */
static char *prefill_keys(struct fake_host *host, const gdn_target *target, const gdn_prefill_desc *desc)
{
    gdn_plan *plan = NULL;
    cr_assert_eq(gdn_plan_prefill(host->ctx, target, desc, 0, &plan), GDN_OK, "%s", gdn_last_error());
    char *keys = fake_dump(plan, GDN_DUMP_KEY);
    cr_assert(keys);
    gdn_plan_destroy(plan);
    return keys;
}

Test(target, named_and_found_gpu_give_the_same_keys)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    const gdn_prefill_desc desc = fake_prefill_desc();
    gdn_target named = fake_h200(host.ctx), found = GDN_TARGET_INIT;
    cr_assert_eq(gdn_target_from_device(host.ctx, 0, &found), GDN_OK);
    char *a = prefill_keys(&host, &named, &desc), *b = prefill_keys(&host, &found, &desc);
    cr_expect_str_eq(a, b);
    cr_expect(strstr(a, "sm_90a"), "%s", a);
    cr_expect_null(strstr(a, "H200"), "a GPU's name is in no key:\n%s", a);
    free(a);
    free(b);
    fake_host_close(&host);
}

/* The key of the variant that serves calls of any number of sequences, which is the first. */
static char *common_key(struct fake_host *host, const gdn_target *target, const gdn_prefill_desc *desc)
{
    static const char heading[] = "// ---- variant ";
    char *keys = prefill_keys(host, target, desc);
    if (!strncmp(keys, heading, strlen(heading))) {
        const char *first = strchr(keys, '\n') + 1;
        memmove(keys, first, strlen(first) + 1);
    }
    char *second = strstr(keys, heading);
    if (second) *second = '\0';
    return keys;
}

static gdn_prefill_desc with_heads(int32_t qk, int32_t v)
{
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.num_q_heads = desc.num_k_heads = qk, desc.num_v_heads = v;
    return desc;
}

Test(target, keys_do_not_depend_on_call_shapes_sms_or_heads)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, NULL, 0);
    gdn_target target = fake_h200(host.ctx), small = target;
    small.num_sms = 20;
    const gdn_prefill_desc one = with_heads(16, 64);
    const gdn_prefill_desc others[] = { with_heads(32, 160), with_heads(16, 48), with_heads(1, 1), with_heads(32, 32) };
    char *wanted = common_key(&host, &target, &one);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i)
        for (int v = 0; v < 4; ++v) {
            gdn_prefill_desc desc = others[i];
            if (v == 1) desc.max_tokens = 1000000;
            if (v == 2) desc.max_seqs = 7777;
            if (v == 3) desc.max_tokens = 1;
            char *key = common_key(&host, v == 0 ? &small : &target, &desc);
            cr_expect_str_eq(key, wanted, "heads %zu, variation %d", i, v);
            free(key);
        }
    cr_expect(strstr(wanted, "constexpr bool CARRIES = false;"), "what only few sequences have use for");
    free(wanted);
    cr_expect_leq(fake_compiles(host.ctx), 5, "of these, two kinds of CTAs, halves, carried states: %d",
                  (int)fake_compiles(host.ctx));
    fake_host_close(&host);
}
