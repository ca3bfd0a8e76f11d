/*
 * test_dump.c - what a plan's dumps say of a cubin that NVRTC made.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_host.h"

Test(dump, the_json_dump_has_target_and_variants)
{
    static const char *const members[] = {
        "{\"op\": \"conv1d_qkv\", \"target\": {\"gpu_name\": \"NVIDIA H200\", \"arch\": \"sm_90a\", \"num_sms\": 132,",
        "\"dram_gbps\": 4800",
        "\"variants\": [",
        "{\"kernel\": \"conv1d_qkv\", \"arch\": \"sm_90a\", \"kernel_reason\": \"",
        "\"params\": {\"tile_tokens\": ",
        "\"calls\": [{\"tokens\": 200, \"num_seqs\": 1, \"bytes\": 839680, \"flops\": 1638400, \"floor_ns\": 174}]",
        "\"params_origin\": \"heuristic\"",
        "\"buckets\": [200], \"bucket_seqs\": [0]",
        "\"registers\": ",
        "\"spill_bytes\": 0",
        "\"local_bytes\": 0",
        "\"static_smem\": ",
        "\"dynamic_smem\": ",
        "\"threads\": ",
        "\"cubin_bytes\": ",
        "\"origin\": \"compiler\"",
        "\"compile_ms\": ",
        "\"compiler\": \"nvrtc ",
        "\"key\": \"",
    };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    char *json = fake_dump(plan, GDN_DUMP_JSON);
    cr_assert(json);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; ++i)
        cr_expect(strstr(json, members[i]), "no %s in\n%s", members[i], json);
    free(json);
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}

Test(dump, text_dumps_hold_what_they_say)
{
    static const struct {
        gdn_dump_kind kind;
        const char *words;
    } cases[] = {
        { GDN_DUMP_SPEC, "constexpr int WIDTH = 4;" },
        { GDN_DUMP_SOURCE, "extern \"C\"" },
        { GDN_DUMP_SOURCE, "namespace spec" },
        { GDN_DUMP_KEY, "sm_90a" },
        { GDN_DUMP_BUILD_LOG, "registers" },
        { GDN_DUMP_PTX, ".visible .entry conv1d_qkv" },
        { GDN_DUMP_CUBIN, "\177ELF" },
    };
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    gdn_plan *plan = fake_plan_conv(host.ctx, 200, "NVIDIA H200");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char *text = fake_dump(plan, cases[i].kind);
        cr_assert(text, "kind %d: %s", (int)cases[i].kind, gdn_last_error());
        cr_expect(cases[i].kind == GDN_DUMP_CUBIN || text[strlen(text) - 1] == '\n', "kind %d ends in a line", cases[i].kind);
        cr_expect(strstr(text, cases[i].words), "kind %d has no %s:\n%.400s", (int)cases[i].kind, cases[i].words, text);
        free(text);
    }
    gdn_plan_destroy(plan);
    fake_host_close(&host);
}
