/*
 * targets.c - owns the choice of targets. Must not know: shapes, what is done for a target.
 */
#include "cli/targets.h"

#include <stdio.h>
#include <string.h>

void cli_targets_add(struct cli_targets *list, const gdn_target *target)
{
    for (size_t i = 0; i < list->count; ++i)
        if (strcmp(list->items[i].gpu_name, target->gpu_name) == 0 && strcmp(list->items[i].arch, target->arch) == 0 &&
            list->items[i].num_sms == target->num_sms)
            return;
    list->items = cli_realloc(list->items, (list->count + 1) * sizeof *list->items);
    list->items[list->count++] = *target;
}

static int from_name(gdn_ctx *ctx, const char *option, const char *name, gdn_target *out)
{
    *out = (gdn_target)GDN_TARGET_INIT;
    if (gdn_target_from_name(ctx, name, out) == GDN_OK) return CLI_OK;
    return cli_fail(CLI_USAGE, "%s: %s", option, gdn_last_error());
}

static int add_gpu(gdn_ctx *ctx, const char *name, struct cli_targets *out)
{
    gdn_target target;
    CLI_TRY(from_name(ctx, "--gpu", name, &target));
    if (!target.gpu_name[0]) return cli_fail(CLI_USAGE, "--gpu \"%s\" is an arch: use --arch %s", name, target.arch);
    cli_targets_add(out, &target);
    return CLI_OK;
}

static int add_arch(gdn_ctx *ctx, const char *name, struct cli_targets *out)
{
    gdn_target target;
    CLI_TRY(from_name(ctx, "--arch", name, &target));
    if (target.gpu_name[0])
        return cli_fail(CLI_USAGE, "--arch \"%s\" is a GPU: use --gpu \"%s\"", name, target.gpu_name);
    cli_targets_add(out, &target);
    return CLI_OK;
}

struct gpus_of_arch {
    gdn_ctx *ctx;
    const char *arch;
    struct cli_targets *out;
    int code;
};

static void on_name(void *user, const char *name, const char *arch)
{
    struct gpus_of_arch *g = user;
    if (g->code == CLI_OK && strcmp(name, arch) != 0 && strcmp(arch, g->arch) == 0)
        g->code = add_gpu(g->ctx, name, g->out);
}

static int add_gpus_of_arch(gdn_ctx *ctx, const char *arch, struct cli_targets *out)
{
    struct gpus_of_arch g = { ctx, arch, out, CLI_OK };
    gdn_target_names(on_name, &g);
    return g.code;
}

static int add_local(gdn_ctx *ctx, struct cli_targets *out)
{
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    if (gdn_examine(ctx, &doctor) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    if (doctor.num_devices <= 0)
        return cli_fail(
            CLI_USAGE,
            "no GPU here (%s): name one with --gpu \"NVIDIA H200\" or --arch sm_90a; gdn-jit-cache doctor lists them",
            doctor.driver_problem[0] ? doctor.driver_problem : "the driver reports none");
    for (int i = 0; i < doctor.num_devices; ++i) {
        gdn_target target = GDN_TARGET_INIT;
        if (gdn_target_from_device(ctx, i, &target) != GDN_OK)
            return cli_fail(CLI_FAILED, "device %d: %s", i, gdn_last_error());
        cli_targets_add(out, &target);
    }
    return CLI_OK;
}

int cli_targets_find(gdn_ctx *ctx, const struct cli_options *o, bool all_of_arch, struct cli_targets *out)
{
    for (size_t i = 0; i < o->archs.count; ++i)
        CLI_TRY(add_arch(ctx, o->archs.items[i], out));
    for (size_t i = 0; i < o->gpus.count; ++i)
        CLI_TRY(add_gpu(ctx, o->gpus.items[i], out));
    if (!out->count) return add_local(ctx, out);
    for (size_t i = 0; i < o->archs.count && all_of_arch; ++i)
        CLI_TRY(add_gpus_of_arch(ctx, o->archs.items[i], out));
    return CLI_OK;
}

void cli_targets_free(struct cli_targets *targets)
{
    cli_free(targets->items);
    *targets = (struct cli_targets){ 0 };
}

const char *cli_target_text(char out[96], const gdn_target *target)
{
    if (target->gpu_name[0])
        snprintf(out, 96, "%s (%s)", target->gpu_name, target->arch);
    else
        snprintf(out, 96, "%s", target->arch);
    return out;
}
