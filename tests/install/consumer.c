/*
 * consumer.c - the smallest embedder: every INIT macro of the installed header, and a few calls into the installed
 * library. Also compiled as C++11 (consumer.cpp).
 */
#include <stdio.h>
#include <string.h>

#include <gdn_jit/gdn_jit.h>

static int check(int holds, const char *what)
{
    if (!holds) fprintf(stderr, "FAIL: %s (%s)\n", what, gdn_last_error());
    return holds ? 0 : 1;
}

/* Every _INIT macro fills its struct: -Wextra tells of a member that one forgot. */
static size_t sum_of_sizes(void)
{
    const gdn_config config = GDN_CONFIG_INIT;
    const gdn_target target = GDN_TARGET_INIT;
    const gdn_prefill_desc prefill = GDN_PREFILL_DESC_INIT;
    const gdn_prefill_args prefill_args = GDN_PREFILL_ARGS_INIT;
    const gdn_conv1d_desc conv = GDN_CONV1D_DESC_INIT;
    const gdn_conv1d_args conv_args = GDN_CONV1D_ARGS_INIT;
    const gdn_cost cost = GDN_COST_INIT;
    const gdn_cache_stats stats = GDN_CACHE_STATS_INIT;
    const gdn_doctor doctor = GDN_DOCTOR_INIT;
    return config.struct_size + target.struct_size + prefill.struct_size + prefill_args.struct_size + conv.struct_size +
           conv_args.struct_size + cost.struct_size + stats.struct_size + doctor.struct_size;
}

static int use_context(void)
{
    gdn_config config = GDN_CONFIG_INIT;
    gdn_target target = GDN_TARGET_INIT;
    gdn_ctx *ctx = NULL;
    int failures = 0;

    config.cache_dir = "";
    config.flags = GDN_CTX_NO_ENV;
    failures += check(gdn_ctx_create(&ctx, &config) == GDN_OK, "gdn_ctx_create");
    failures += check(gdn_target_from_name(ctx, "NVIDIA H200", &target) == GDN_OK, "gdn_target_from_name");
    failures += check(strcmp(target.arch, "sm_90a") == 0, "the arch of an H200");
    failures += check(gdn_target_from_name(ctx, "sm_1", &target) == GDN_E_UNSUPPORTED, "an arch that does not exist");
    failures += check(strstr(gdn_last_error(), "sm_1") != NULL, "the sentence names the arch");
    gdn_ctx_destroy(ctx);
    return failures;
}

int main(void)
{
    int failures = 0;
    failures += check(gdn_version() == GDN_VERSION, "header and library have the same version");
    failures += check(strcmp(gdn_status_name(GDN_E_INVALID), "GDN_E_INVALID") == 0, "names of status numbers");
    failures += check(sum_of_sizes() > 0, "struct_size is set by the INIT macros");
    failures += use_context();
    return failures ? 1 : 0;
}
