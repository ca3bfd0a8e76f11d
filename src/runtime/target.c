/*
 * target.c - owns targets: from a name (codegen's tables) and from a device.
 *
 * Must not know: plans, caches. A GPU that the table names gets the table's numbers, so that a warm-up by name on another
 * machine chooses the same variants as the device does; only a part with fewer SMs (MIG, cut-down) keeps its own count.
 */
#include "runtime/target.h"

#include <string.h>

#include "base/error.h"
#include "base/first_size.h"
#include "codegen/arch.h"
#include "runtime/context.h"
#include "text/printable.h"

enum attribute {
    SM_COUNT = 16,
    MEMORY_CLOCK_KHZ = 36,
    MEMORY_BUS_BITS = 37,
    L2_BYTES = 38,
    CC_MAJOR = 75,
    CC_MINOR = 76,
    SMEM_OPT_IN = 97
};

static gdn_status attribute(const struct gdni_cuda *cuda, gdni_cudevice device, enum attribute which, int *out)
{
    const gdni_curesult result = cuda->cuDeviceGetAttribute(out, (int)which, device);
    return result == 0 ? GDN_OK : gdni_cuda_fail(cuda, result, "cuDeviceGetAttribute");
}

gdn_status gdni_device_find(const struct gdni_cuda *cuda, int ordinal, gdni_cudevice *out)
{
    int count = 0;
    gdni_curesult result = cuda->cuDeviceGetCount(&count);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuDeviceGetCount");
    if (ordinal < 0 || ordinal >= count)
        return GDN_FAIL(GDN_E_NO_DEVICE,
                        "device is %d: this process sees %d device%s, numbered from 0 (CUDA_VISIBLE_DEVICES "
                        "hides others)",
                        ordinal, count, count == 1 ? "" : "s");
    result = cuda->cuDeviceGet(out, ordinal);
    return result == 0 ? GDN_OK : gdni_cuda_fail(cuda, result, "cuDeviceGet");
}

gdn_status gdni_device_cc(const struct gdni_cuda *cuda, gdni_cudevice device, int *out)
{
    int major = 0, minor = 0;
    GDN_TRY(attribute(cuda, device, CC_MAJOR, &major));
    GDN_TRY(attribute(cuda, device, CC_MINOR, &minor));
    *out = major * 10 + minor;
    return GDN_OK;
}

/* What only informs: 0, unknown, where a driver does not say. */
static int number(const struct gdni_cuda *cuda, gdni_cudevice device, enum attribute which)
{
    int value = 0;
    return cuda->cuDeviceGetAttribute(&value, (int)which, device) == 0 ? value : 0;
}

static void read_numbers(const struct gdni_cuda *cuda, gdni_cudevice device, gdn_target *out)
{
    const int clock_khz = number(cuda, device, MEMORY_CLOCK_KHZ), bus_bits = number(cuda, device, MEMORY_BUS_BITS);
    out->smem_per_block = number(cuda, device, SMEM_OPT_IN);
    out->l2_bytes = number(cuda, device, L2_BYTES);
    /* Two transfers a clock; kHz * bytes = 10^3 bytes/s. */
    out->dram_gbps = (int32_t)(2 * (int64_t)clock_khz * (bus_bits / 8) / 1000000);
}

/* A name goes into files and sentences: what a driver may put there besides printable ASCII is shown as '?'. */
static void make_plain(char *name)
{
    for (; *name; ++name)
        if (!gdni_is_plain_line(name, 1)) *name = '?';
}

/* Of a GPU that the table does not have. The tensor peak cannot be asked for: it stays 0, unknown. */
static void target_of_stranger(const struct gdni_cuda *cuda, gdni_cudevice device, const char *name, const char *arch,
                               gdn_target *out)
{
    *out = (gdn_target)GDN_TARGET_INIT;
    memcpy(out->gpu_name, name, sizeof out->gpu_name);
    memcpy(out->arch, arch, strnlen(arch, sizeof out->arch - 1));
    read_numbers(cuda, device, out);
}

gdn_status gdni_device_target(const struct gdni_cuda *cuda, gdni_cudevice device, gdn_target *out)
{
    const struct gdni_arch *arch = NULL;
    char name[sizeof out->gpu_name] = "";
    int cc = 0, num_sms = 0;
    GDN_TRY(gdni_device_cc(cuda, device, &cc));
    GDN_TRY(gdni_arch_of_device(cc / 10, cc % 10, &arch));
    GDN_TRY(attribute(cuda, device, SM_COUNT, &num_sms));
    const gdni_curesult result = cuda->cuDeviceGetName(name, (int)sizeof name, device);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuDeviceGetName");
    name[sizeof name - 1] = '\0';
    make_plain(name);
    const struct gdni_gpu *gpu = gdni_gpu_find(name);
    if (gpu && strcmp(gpu->arch, arch->name) == 0)
        GDN_TRY(gdni_target_from_name(gpu->name, out));
    else
        target_of_stranger(cuda, device, name, arch->name, out);
    out->num_sms = num_sms;
    return GDN_OK;
}

gdn_status gdn_target_from_device(gdn_ctx *ctx, int device, gdn_target *out)
{
    const struct gdni_cuda *cuda = NULL;
    gdni_cudevice found = 0;
    gdn_target target = GDN_TARGET_INIT;
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    GDN_TRY(GDNI_CHECK_OUT(gdn_target, out));
    GDN_TRY(gdni_driver_get(ctx->driver, &cuda));
    GDN_TRY(gdni_device_find(cuda, device, &found));
    GDN_TRY(gdni_device_target(cuda, found, &target));
    gdni_give_struct(out, &target, sizeof target);
    return GDN_OK;
}

gdn_status gdn_target_from_name(gdn_ctx *ctx, const char *name, gdn_target *out)
{
    gdn_target target = GDN_TARGET_INIT;
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    if (!name) return GDN_FAIL(GDN_E_INVALID, "name is null: name a GPU (\"NVIDIA H200\") or an arch (\"sm_90a\")");
    GDN_TRY(GDNI_CHECK_OUT(gdn_target, out));
    GDN_TRY(gdni_target_from_name(name, &target));
    gdni_give_struct(out, &target, sizeof target);
    return GDN_OK;
}

void gdn_target_names(void (*fn)(void *user, const char *name, const char *arch), void *user)
{
    if (!fn) return;
    for (int i = 0; gdni_gpu_at(i); ++i)
        fn(user, gdni_gpu_at(i)->name, gdni_gpu_at(i)->arch);
    for (int i = 0; gdni_arch_at(i); ++i)
        fn(user, gdni_arch_at(i)->name, gdni_arch_at(i)->name);
}
