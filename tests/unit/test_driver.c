/*
 * test_driver.c - opening libcuda: once, at first use, and with a sentence that helps when it fails.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "runtime/driver.h"
#include "support/fake_host.h"

static gdn_status open_at(const char *path, struct gdni_driver **driver)
{
    const struct gdni_cuda *cuda = NULL;
    *driver = gdni_driver_create(path);
    cr_assert(*driver);
    return gdni_driver_get(*driver, &cuda);
}

Test(driver, nothing_is_opened_before_the_first_use)
{
    const struct fake_controls *fake = fake_open(GDN_FAKE_CUDA_PATH);
    struct gdni_driver *driver = gdni_driver_create(GDN_FAKE_CUDA_PATH);
    cr_expect_eq(fake->calls("cuInit"), 0);
    const struct gdni_cuda *cuda = NULL;
    cr_assert_eq(gdni_driver_get(driver, &cuda), GDN_OK, "%s", gdn_last_error());
    cr_expect_eq(fake->calls("cuInit"), 1);
    gdni_driver_destroy(driver);
}

/* A driver that was initialised has threads and handlers of its own. */
Test(driver, what_was_initialised_stays_mapped)
{
    struct gdni_driver *driver;
    fake_open(GDN_FAKE_CUDA_PATH);
    void *tests = dlopen(GDN_FAKE_CUDA_PATH, RTLD_LAZY | RTLD_NOLOAD);
    cr_assert_eq(open_at(GDN_FAKE_CUDA_PATH, &driver), GDN_OK, "%s", gdn_last_error());
    cr_assert(dlclose(tests) == 0 && dlclose(tests) == 0); /* what this test opened: by fake_open(), and here */
    gdni_driver_destroy(driver);
    cr_expect_not_null(dlopen(GDN_FAKE_CUDA_PATH, RTLD_LAZY | RTLD_NOLOAD));
}

Test(driver, a_missing_library_names_the_path_and_the_remedy)
{
    struct gdni_driver *driver;
    cr_expect_eq(open_at("/nowhere/libcuda.so.1", &driver), GDN_E_NO_DRIVER);
    cr_expect(fake_error_says("/nowhere/libcuda.so.1"), "%s", gdn_last_error());
    cr_expect(fake_error_says("install the NVIDIA driver"), "%s", gdn_last_error());
    gdni_driver_destroy(driver);
}

Test(driver, a_library_that_is_no_driver_is_refused)
{
    struct gdni_driver *driver;
    cr_expect_eq(open_at("libm.so.6", &driver), GDN_E_NO_DRIVER);
    cr_expect(fake_error_says("cuGetProcAddress_v2") && fake_error_says("525"), "%s", gdn_last_error());
    gdni_driver_destroy(driver);
}

Test(driver, each_missing_entry_point_is_named)
{
    static const char *const symbols[] = {
#define X(name, arguments) #name,
        GDNI_DRIVER_CALLS(X)
#undef X
    };
    const struct fake_controls *fake = fake_open(GDN_FAKE_CUDA_PATH);
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; ++i) {
        struct gdni_driver *driver;
        char words[96];
        snprintf(words, sizeof words, "has no %s:", symbols[i]);
        fake->hide(symbols[i]);
        cr_expect_eq(open_at(GDN_FAKE_CUDA_PATH, &driver), GDN_E_NO_DRIVER, "%s hidden", symbols[i]);
        cr_expect(fake_error_says(words) && fake_error_says("12.0"), "%s hidden: %s", symbols[i], gdn_last_error());
        gdni_driver_destroy(driver);
    }
}

Test(driver, a_failing_cuInit_is_told_in_the_drivers_words_with_its_usual_cause)
{
    static const struct {
        int result;
        gdn_status status;
        const char *words, *cause;
    } cases[] = {
        { 100, GDN_E_NO_DEVICE, "no CUDA-capable device is detected (100)", "CUDA_VISIBLE_DEVICES" },
        { 803, GDN_E_NO_DRIVER, "(803)", "different versions" },
        { 999, GDN_E_NO_DRIVER, "unknown error (999)", "nvidia-smi" },
        { 34, GDN_E_NO_DRIVER, "(34)", "stub" },
        { 3, GDN_E_NO_DRIVER, "initialization error (3)", "forked from one that had begun to use CUDA" },
        { 800, GDN_E_NO_DRIVER, "(800)", "permissions" },
        { 12345, GDN_E_NO_DRIVER, "unknown error (12345)", "nvidia-smi" },
    };
    const struct fake_controls *fake = fake_open(GDN_FAKE_CUDA_PATH);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        struct gdni_driver *driver;
        fake->fail("cuInit", 1, cases[i].result);
        cr_expect_eq(open_at(GDN_FAKE_CUDA_PATH, &driver), cases[i].status, "cuInit gives %d", cases[i].result);
        cr_expect(fake_error_says("cuInit") && fake_error_says(cases[i].words) && fake_error_says(cases[i].cause), "%d: %s",
                  cases[i].result, gdn_last_error());
        gdni_driver_destroy(driver);
    }
}

Test(driver, a_failure_is_remembered_with_its_sentence)
{
    const struct fake_controls *fake = fake_open(GDN_FAKE_CUDA_PATH);
    const struct gdni_cuda *cuda = NULL;
    struct gdni_driver *driver;
    char first[512];
    fake->fail("cuInit", 1, 999);
    cr_assert_eq(open_at(GDN_FAKE_CUDA_PATH, &driver), GDN_E_NO_DRIVER);
    snprintf(first, sizeof first, "%s", gdn_last_error());
    cr_assert_eq(gdn_ctx_create(NULL, NULL), GDN_E_INVALID); /* another sentence in between */
    cr_expect_eq(gdni_driver_get(driver, &cuda), GDN_E_NO_DRIVER);
    cr_expect_str_eq(gdn_last_error(), first);
    cr_expect_eq(fake->calls("cuInit"), 1);
    cr_expect_null(cuda);
    gdni_driver_destroy(driver);
}

Test(driver, a_failed_call_names_the_call_the_words_and_the_number)
{
    fake_open(GDN_FAKE_CUDA_PATH);
    struct gdni_driver *driver = gdni_driver_create(GDN_FAKE_CUDA_PATH);
    const struct gdni_cuda *cuda = NULL;
    cr_assert_eq(gdni_driver_get(driver, &cuda), GDN_OK);
    cr_expect_eq(gdni_cuda_fail(cuda, 700, "cuLaunchKernel"), GDN_E_CUDA);
    cr_expect_str_eq(gdn_last_error(),
                     "cuLaunchKernel failed: an illegal memory access was encountered (700): a kernel that was "
                     "launched before in this context failed: compute-sanitizer finds it");
    cr_expect_eq(gdni_cuda_fail(cuda, 400, "cuLaunchKernel"), GDN_E_CUDA);
    cr_expect(strstr(gdn_last_error(), "(400): stream must be one of the current context"), "%s", gdn_last_error());
    cr_expect_eq(gdni_cuda_fail(cuda, 906, "cuMemsetD32Async"), GDN_E_CUDA);
    cr_expect(strstr(gdn_last_error(), "the NULL stream cannot be used"), "%s", gdn_last_error());
    cr_expect_eq(gdni_cuda_fail(cuda, 3, "cuCtxGetCurrent"), GDN_E_CUDA); /* in a child that has its parent's plan */
    cr_expect(strstr(gdn_last_error(), "(3): this process was forked"), "%s", gdn_last_error());
    cr_expect_eq(gdni_cuda_fail(cuda, 46, "cuDevicePrimaryCtxRetain"), GDN_E_CUDA);
    cr_expect(strstr(gdn_last_error(), "(46): the GPU is in use by another process"), "%s", gdn_last_error());
    cr_expect_eq(gdni_cuda_fail(cuda, 1, "cuLaunchKernel"), GDN_E_CUDA);
    cr_expect(strstr(gdn_last_error(), "(1)") && !strstr(gdn_last_error(), "(1):"), "of others there is no more to say: %s",
              gdn_last_error());
    gdni_driver_destroy(driver);
}
