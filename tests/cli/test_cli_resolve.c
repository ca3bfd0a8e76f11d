/*
 * test_cli_resolve.c - a context that cannot be had as the options say is not handed out, and not left behind.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/resolve.h"

static int resolve(const char *tuning, int (*how)(const struct cli_options *o, gdn_ctx **out), gdn_ctx **out)
{
    struct cli_options options = { .cache_dir = "" };
    cli_names_add(&options.tunings, tuning, strlen(tuning));
    const int code = how(&options, out);
    cli_names_free(&options.tunings);
    return code;
}

Test(cli_resolve, a_tuning_file_that_cannot_be_taken_in_leaves_no_context)
{
    int (*const how[])(const struct cli_options *o, gdn_ctx **out) = { cli_resolve_context,
                                                                       cli_resolve_context_to_read };
    for (size_t i = 0; i < sizeof how / sizeof how[0]; ++i) {
        gdn_ctx *ctx = (gdn_ctx *)&ctx; /* must be overwritten */
        cr_expect_eq(resolve("/nowhere/t.json", how[i], &ctx), CLI_USAGE);
        cr_expect(strstr(cli_error(), "--tuning /nowhere/t.json: "), "%s", cli_error());
        cr_expect_null(ctx);
    }
}
