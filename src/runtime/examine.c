/*
 * examine.c - what a context can do on this machine: driver, compiler, cache directory, one line each.
 * Must not know: plans, kernels. A part that is missing is an answer here, never a failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/first_size.h"
#include "runtime/cache.h"
#include "runtime/cache_dir.h"
#include "runtime/context.h"
#include "runtime/fsutil.h"
#include "runtime/nvrtc.h"
#include "runtime/program.h"
#include "runtime/target.h"
#include "text/utf8.h"

/* Keeps it one line; where it does not fit the path in it is cut, not the reason behind it. */
static void put_line(char *out, size_t size, const char *text)
{
    gdni_fit(out, size, text);
    for (char *c = out; *c; ++c)
        if (*c == '\n' || *c == '\r') *c = ' ';
}

static gdn_status describe_devices(const struct gdni_cuda *cuda, gdn_doctor *d)
{
    gdni_cudevice device = 0;
    gdn_target target = GDN_TARGET_INIT;
    int version = 0;
    gdni_curesult result = cuda->cuDriverGetVersion(&version);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuDriverGetVersion");
    result = cuda->cuDeviceGetCount(&d->num_devices);
    if (result != 0) return gdni_cuda_fail(cuda, result, "cuDeviceGetCount");
    const int len = snprintf(d->driver, sizeof d->driver, "CUDA %d.%d, %d device%s", version / 1000,
                             version % 1000 / 10, d->num_devices, d->num_devices == 1 ? "" : "s");
    if (d->num_devices == 0)
        return GDN_FAIL(GDN_E_NO_DEVICE, "the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES");
    GDN_TRY(gdni_device_find(cuda, 0, &device));
    GDN_TRY(gdni_device_target(cuda, device, &target));
    snprintf(d->driver + len, sizeof d->driver - (size_t)len, "%s %s (%s)",
             d->num_devices == 1 ? ":" : ", the first is", target.gpu_name, target.arch);
    return GDN_OK;
}

static void examine_driver(gdn_ctx *ctx, gdn_doctor *d)
{
    const struct gdni_cuda *cuda = NULL;
    gdn_status status = gdni_driver_get(ctx->driver, &cuda);
    if (status == GDN_OK) status = describe_devices(cuda, d);
    if (status != GDN_OK) put_line(d->driver_problem, sizeof d->driver_problem, gdni_error_text());
}

static void examine_nvrtc(gdn_ctx *ctx, gdn_doctor *d)
{
    const struct gdni_nvrtc_api *api = NULL;
    if (gdni_nvrtc_get(ctx->nvrtc, &api) == GDN_OK)
        put_line(d->nvrtc, sizeof d->nvrtc, api->identity);
    else
        put_line(d->nvrtc_problem, sizeof d->nvrtc_problem, gdni_error_text());
}

/* 0, or why no file can be made in a folder of dir. */
static int write_error(const struct gdni_cache_dir *dir, const char *folder)
{
    return faccessat(dir->fd, folder, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/* Where nothing is compiled nothing has to be written. Else entries go into a folder, which is made where it is not there. */
static void examine_writing(const gdn_ctx *ctx, const struct gdni_cache_dir *dir, gdn_doctor *d)
{
    char line[PATH_MAX + 256];
    if (!gdni_programs_may_compile(ctx, 0)) return;
    int error = write_error(dir, GDNI_CACHE_FOLDER);
    const bool missing = error == ENOENT;
    if (missing) error = write_error(dir, ".");
    if (!error) return;
    snprintf(line, sizeof line,
             "%s%s cannot be written (%s): its kernels are used, new ones are lost with their process; gdn-jit-cache doctor "
             "says what to do",
             dir->path, missing ? "" : "/" GDNI_CACHE_FOLDER, gdni_fs_error(error));
    put_line(d->cache_problem, sizeof d->cache_problem, line);
}

static void examine_cache(const gdn_ctx *ctx, gdn_doctor *d)
{
    const struct gdni_cache_dir *dir = gdni_cache_user_dir(ctx->cache);
    if (!dir->path) {
        put_line(d->cache_problem, sizeof d->cache_problem,
                 dir->asked ? dir->asked : dir->problem);
        return;
    }
    put_line(d->cache, sizeof d->cache, dir->path);
    examine_writing(ctx, dir, d);
}

gdn_status gdn_examine(gdn_ctx *ctx, gdn_doctor *out)
{
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    if (!ctx) return GDN_FAIL(GDN_E_INVALID, "ctx is null: make one with gdn_ctx_create()");
    GDN_TRY(GDNI_CHECK_OUT(gdn_doctor, out));
    examine_driver(ctx, &doctor);
    examine_nvrtc(ctx, &doctor);
    examine_cache(ctx, &doctor);
    gdni_give_struct(out, &doctor, sizeof doctor);
    return GDN_OK;
}
