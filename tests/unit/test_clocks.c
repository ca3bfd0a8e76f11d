/*
 * test_clocks.c - clocks as NVML tells them: of the right GPU, and 0 for whatever is missing.
 */
#include <criterion/criterion.h>

#include "runtime/clocks.h"
#include "support/fake_host.h"

static const struct fake_controls *fake;
static const struct gdni_cuda *cuda;
static struct gdni_driver *driver;

static void set_up(void)
{
    fake = fake_open(GDN_FAKE_CUDA_PATH);
    driver = gdni_driver_create(GDN_FAKE_CUDA_PATH);
    cr_assert_eq(gdni_driver_get(driver, &cuda), GDN_OK, "%s", gdn_last_error());
}

static void tear_down(void)
{
    gdni_driver_destroy(driver);
}

TestSuite(clocks, .init = set_up, .fini = tear_down);

static struct gdni_mhz ask(const char *driver_path, int ordinal)
{
    gdni_cudevice device = -1;
    struct gdni_clocks *clocks = gdni_clocks_create(driver_path);
    cr_assert(clocks);
    cr_assert_eq(cuda->cuDeviceGet(&device, ordinal), 0);
    struct gdni_mhz mhz = gdni_clocks_now(clocks, cuda, device);
    const struct gdni_mhz again = gdni_clocks_now(clocks, cuda, device);
    cr_expect(mhz.sm == again.sm && mhz.mem == again.mem);
    gdni_clocks_destroy(clocks);
    return mhz;
}

static void expect(struct gdni_mhz got, int32_t sm, int32_t mem)
{
    cr_expect(got.sm == sm && got.mem == mem, "%d and %d MHz, not %d and %d", got.sm, got.mem, sm, mem);
}

Test(clocks, are_those_of_the_device_whatever_its_ordinal)
{
    fake->set_devices(3);
    fake->set_clocks(1755, 2619);
    expect(ask(GDN_FAKE_CUDA_PATH, 0), 1755, 2619);
    expect(ask(GDN_FAKE_CUDA_PATH, 2), 1725, 2619);
}

Test(clocks, a_clock_that_the_gpu_does_not_tell_is_0_and_so_is_one_that_makes_no_sense)
{
    fake->set_clocks(0, 2619);
    expect(ask(GDN_FAKE_CUDA_PATH, 0), 0, 2619);
    fake->set_clocks(0xffffffffu, 3201);
    expect(ask(GDN_FAKE_CUDA_PATH, 0), 0, 3201);
}

Test(clocks, without_the_library_or_the_devices_place_they_are_0)
{
    expect(ask("/nowhere/libcuda.so.1", 0), 0, 0);
    fake->fail("cuDeviceGetPCIBusId", 0, 101);
    expect(ask(GDN_FAKE_CUDA_PATH, 0), 0, 0);
}
