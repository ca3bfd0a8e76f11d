/*
 * test_driver_faults.c - every driver call of a life of plan, load, execute and destroy fails once, at each of its
 * occurrences: a status, a sentence that names the call, and nothing kept.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/driver.h"
#include "support/fake_host.h"

enum { UNKNOWN = 999 };

static const char *const symbols[] = {
#define X(name, arguments) #name,
    GDNI_DRIVER_CALLS(X)
#undef X
};
enum { NUM_SYMBOLS = sizeof symbols / sizeof symbols[0] };

/* The calls whose failure only a log can tell: they give something back, in a function that returns nothing. */
static bool is_silent(const char *call)
{
    return strcmp(call, "cuLibraryUnload") == 0 || strcmp(call, "cuDevicePrimaryCtxRelease") == 0;
}

static gdn_status plan_and_run_as(gdn_ctx *ctx, uint32_t flags)
{
    gdn_plan *plan = NULL;
    gdn_target target = GDN_TARGET_INIT;
    gdn_prefill_desc desc = fake_prefill_desc();
    desc.flags = flags;
    const gdn_prefill_args args = fake_prefill_args();
    gdn_status status = gdn_target_from_device(ctx, 0, &target);
    if (status == GDN_OK) status = gdn_plan_prefill(ctx, &target, &desc, 0, &plan);
    if (status == GDN_OK) status = gdn_plan_load(plan, 0);
    if (status == GDN_OK) status = gdn_plan_load(plan, 1);
    if (status == GDN_OK) status = gdn_execute_prefill(plan, &args, 0, 0, NULL);
    gdn_plan_destroy(plan);
    return status;
}

static gdn_status plan_and_run(gdn_ctx *ctx)
{
    return plan_and_run_as(ctx, 0);
}

static gdn_status plan_and_run_programmatic(gdn_ctx *ctx)
{
    return plan_and_run_as(ctx, GDN_PREFILL_PROGRAMMATIC_LAUNCH);
}

static gdn_status call_once(gdn_ctx *ctx)
{
    const gdn_conv1d_desc desc = fake_conv1d_desc();
    const gdn_conv1d_args args = fake_conv1d_args();
    return gdn_conv1d_qkv(ctx, &desc, &args, NULL);
}

static void open_host(struct fake_host *host)
{
    fake_host_open(host, GDN_FAKE_CUDA_PATH, NULL, 0);
    host->cuda->set_devices(2);
}

static int occurrences(const char *call, gdn_status (*run)(gdn_ctx *ctx))
{
    struct fake_host host;
    open_host(&host);
    cr_assert_eq(run(host.ctx), GDN_OK, "%s", gdn_last_error());
    fake_host_close(&host);
    cr_assert(fake_balanced(host.cuda));
    return host.cuda->calls(call);
}

static void fail_one(const char *call, int n, gdn_status (*run)(gdn_ctx *ctx))
{
    struct fake_host host;
    open_host(&host);
    host.cuda->fail(call, n, UNKNOWN);
    const gdn_status status = run(host.ctx);
    if (is_silent(call))
        cr_expect_eq(status, GDN_OK, "%s #%d: %s", call, n, gdn_last_error());
    else {
        cr_expect(status == GDN_E_CUDA || status == GDN_E_NO_DRIVER, "%s #%d: %s", call, n, gdn_status_name(status));
        cr_expect(fake_error_says(call) && fake_error_says("unknown error (999)"), "%s #%d: %s", call, n, gdn_last_error());
    }
    fake_host_close(&host);
    const struct fake_balance b = host.cuda->balance();
    cr_expect(fake_balanced(host.cuda), "%s #%d leaves %d contexts, %d libraries, %d pushed", call, n, b.retained_contexts,
              b.loaded_libraries, b.pushed_contexts);
    cr_expect_eq(host.warnings, is_silent(call), "%s #%d: %s", call, n, host.warning);
}

static void fail_each(gdn_status (*run)(gdn_ctx *ctx))
{
    int failures = 0;
    for (int i = 0; i < NUM_SYMBOLS; ++i) {
        const int count = occurrences(symbols[i], run);
        for (int n = 1; n <= count; ++n, ++failures) fail_one(symbols[i], n, run);
    }
    cr_expect_geq(failures, 15, "%d failures were injected", failures);
    cr_expect(fake_no_leaks());
}

Test(driver_faults, plan_load_execute_destroy)
{
    fail_each(plan_and_run);
}

Test(driver_faults, plan_load_execute_programmatically_destroy)
{
    fail_each(plan_and_run_programmatic);
    cr_expect_eq(occurrences("cuLaunchKernelEx", plan_and_run_programmatic), 1);
    cr_expect_eq(occurrences("cuLaunchKernel", plan_and_run_programmatic), 0);
}

Test(driver_faults, one_call)
{
    fail_each(call_once);
}

Test(driver_faults, a_driver_without_words_is_no_reason_to_fail_twice)
{
    struct fake_host host;
    open_host(&host);
    cr_assert_eq(call_once(host.ctx), GDN_OK, "%s", gdn_last_error());
    host.cuda->fail("cuLaunchKernel", 1, 31337);
    cr_expect_eq(call_once(host.ctx), GDN_E_CUDA);
    cr_expect_str_eq(gdn_last_error(), "cuLaunchKernel failed: unknown error (31337)");
    fake_host_close(&host);
}
