/*
 * test_examine.c - gdn_examine() tells what works and why the rest does not, and never fails over it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fake_host.h"
#include "support/store.h"

static gdn_doctor examine(gdn_ctx *ctx)
{
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    cr_assert_eq(gdn_examine(ctx, &doctor), GDN_OK, "%s", gdn_last_error());
    return doctor;
}

Test(examine, a_whole_machine)
{
    char dir[64];
    struct fake_host host;
    fake_make_dir(dir);
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, dir, 0);
    const gdn_doctor d = examine(host.ctx);
    cr_expect_str_eq(d.driver, "CUDA 13.0, 1 device: NVIDIA H200 (sm_90a)");
    cr_expect_str_eq(d.driver_problem, "");
    cr_expect_eq(d.num_devices, 1);
    cr_expect_eq(strncmp(d.nvrtc, "nvrtc ", 6), 0, "%s (%s)", d.nvrtc, d.nvrtc_problem);
    cr_expect_str_eq(d.cache, dir);
    cr_expect_str_eq(d.cache_problem, "");
    fake_host_close(&host);
    fake_remove_dir(dir);
}

/* Where entries go: their folder, and DIR itself where that is not there yet. In strict mode nothing has to be written. */
Test(examine, a_cache_directory_that_takes_no_new_kernel_says_so)
{
    static const struct {
        mode_t dir, folder; /* 0: the folder is not there */
        uint32_t flags;
        const char *problem;
    } cases[] = { { 0700, 0700, 0, NULL },   { 0500, 0700, 0, NULL },
                  { 0700, 0500, 0, "/v2 cannot be written (Permission denied): " }, { 0700, 0, 0, NULL },
                  { 0500, 0, 0, " cannot be written (Permission denied): " },       { 0500, 0500, GDN_CTX_NO_COMPILE, NULL } };
    char dir[64], folder[80];
    fake_make_dir(dir);
    store_drop_root(dir);
    snprintf(folder, sizeof folder, "%s/v2", dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        cr_assert_eq(chmod(dir, 0700), 0);
        rmdir(folder);
        if (cases[i].folder) cr_assert_eq(mkdir(folder, 0700), 0);
        cfg.cache_dir = dir;
        cfg.driver_path = cfg.nvrtc_path = "/nowhere"; /* where the fakes lie may be root's */
        cfg.flags = GDN_CTX_NO_ENV | cases[i].flags;
        cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
        if (cases[i].folder) cr_assert_eq(chmod(folder, cases[i].folder), 0);
        cr_assert_eq(chmod(dir, cases[i].dir), 0);
        const gdn_doctor d = examine(ctx);
        const char *wanted = cases[i].problem;
        cr_expect_str_eq(d.cache, dir);
        cr_expect(wanted ? strncmp(d.cache_problem, dir, strlen(dir)) == 0 && strstr(d.cache_problem, wanted)
                         : !d.cache_problem[0],
                  "case %zu: \"%s\"", i, d.cache_problem);
        gdn_ctx_destroy(ctx);
    }
    chmod(dir, 0700);
    fake_remove_dir(dir);
}

Test(examine, several_devices)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    host.cuda->set_devices(8);
    const gdn_doctor d = examine(host.ctx);
    cr_expect_str_eq(d.driver, "CUDA 13.0, 8 devices, the first is NVIDIA H200 (sm_90a)");
    cr_expect_eq(d.num_devices, 8);
    cr_expect_str_eq(d.cache_problem, "gdn_config.cache_dir is \"\", which keeps cubins in memory only, so that each process "
                                      "compiles anew: name a directory there");
    fake_host_close(&host);
}

Test(examine, nothing_at_all)
{
    gdn_config cfg = GDN_CONFIG_INIT;
    gdn_ctx *ctx = NULL;
    cfg.cache_dir = "/dev/null/cache";
    cfg.nvrtc_path = "/nowhere/libnvrtc.so.13";
    cfg.driver_path = "/nowhere/libcuda.so.1";
    cfg.flags = GDN_CTX_NO_ENV;
    cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
    const gdn_doctor d = examine(ctx);
    cr_expect_str_eq(d.driver, "");
    cr_expect(strstr(d.driver_problem, "/nowhere/libcuda.so.1"), "%s", d.driver_problem);
    cr_expect_str_eq(d.nvrtc, "");
    cr_expect(strstr(d.nvrtc_problem, "/nowhere/libnvrtc.so.13"), "%s", d.nvrtc_problem);
    cr_expect_str_eq(d.cache, "");
    cr_expect(strstr(d.cache_problem, "/dev/null/cache"), "%s", d.cache_problem);
    gdn_ctx_destroy(ctx);
}

/* However long the path is, the reason and the remedy stand behind it. */
Test(examine, a_long_path_is_cut_and_the_reason_is_not)
{
    static char longest[3000];
    static const size_t lengths[] = { 299, 700, sizeof longest - 1 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; ++i) {
        gdn_config cfg = GDN_CONFIG_INIT;
        gdn_ctx *ctx = NULL;
        memset(longest, 0, sizeof longest);
        for (size_t at = 0; at < lengths[i]; ++at)
            longest[at] = "/nowhere/"[at % 8];
        cfg.flags = GDN_CTX_NO_ENV | GDN_CTX_EXISTING_CACHE;
        cfg.cache_dir = cfg.driver_path = cfg.nvrtc_path = longest;
        cr_assert_eq(gdn_ctx_create(&ctx, &cfg), GDN_OK, "%s", gdn_last_error());
        const gdn_doctor d = examine(ctx);
        cr_expect_eq(strncmp(d.cache_problem, "gdn_config.cache_dir names /nowhere/nowhere", 43), 0, "%s", d.cache_problem);
        cr_expect(strstr(d.cache_problem, ", which is not there: correct it, or let "), "%s", d.cache_problem);
        cr_expect_eq(strncmp(d.driver_problem, "the CUDA driver library /nowhere", 32), 0, "%s", d.driver_problem);
        if (lengths[i] < 1000) /* longer ones are cut by the sentence, which has the path twice */
            cr_expect(strstr(d.driver_problem, "o such file or directory): correct gdn_config.driver_path, or install "), "%s",
                      d.driver_problem);
        cr_expect(strstr(d.nvrtc_problem, "): correct GDN_JIT_NVRTC, gdn_config.nvrtc_path or, of gdn-jit-cache, --nvrtc"),
                  "%s", d.nvrtc_problem);
        gdn_ctx_destroy(ctx);
    }
}

Test(examine, a_device_that_no_code_is_generated_for)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    host.cuda->device(0)->major = 7;
    const gdn_doctor d = examine(host.ctx);
    cr_expect_str_eq(d.driver, "CUDA 13.0, 1 device");
    cr_expect(strstr(d.driver_problem, "7.0"), "%s", d.driver_problem);
    fake_host_close(&host);
}

Test(examine, a_driver_call_that_fails_is_a_problem_in_the_drivers_words)
{
    struct fake_host host;
    fake_host_open(&host, GDN_FAKE_CUDA_PATH, "", 0);
    host.cuda->fail("cuDeviceGetCount", 1, 999);
    const gdn_doctor d = examine(host.ctx);
    cr_expect(strstr(d.driver_problem, "cuDeviceGetCount failed: unknown error (999)"), "%s", d.driver_problem);
    fake_host_close(&host);
}
