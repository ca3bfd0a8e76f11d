/*
 * compiler.c - owns the question whether a named NVRTC can be used. Must not know: what is compiled with it.
 */
#include "cli/compiler.h"

#include "cli/env.h"

int cli_require_compiler(gdn_ctx *ctx, const struct cli_options *options)
{
    const struct gdni_env env = cli_env_read();
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    if (!options->nvrtc && (!env.nvrtc || env.disable_compile)) return CLI_OK;
    if (gdn_examine(ctx, &doctor) != GDN_OK) return cli_fail(CLI_FAILED, "%s", gdn_last_error());
    if (doctor.nvrtc[0]) return CLI_OK;
    if (options->nvrtc)
        return cli_fail(CLI_USAGE, "--nvrtc %s cannot be used: %s", options->nvrtc, doctor.nvrtc_problem);
    return cli_fail(CLI_FAILED, "GDN_JIT_NVRTC is %s, which cannot be used: %s", env.nvrtc, doctor.nvrtc_problem);
}
