/*
 * one_h200.c - makes the fake libcuda a driver that any program finds one H200 with: nobody is there to call its controls. The
 * environment changes what a script wants changed:
 *
 *   FAKE_GPU_NAME, FAKE_GPU_SMS=66, FAKE_GPU_CC=7.5      of the GPU
 *   FAKE_CUDA_HIDE=cuLibraryLoadData                     a call that this driver is too old for
 *   FAKE_CUDA_INIT=803                                   what cuInit() returns
 */
#include <stdio.h>
#include <stdlib.h>

#include "fakecuda/fakecuda.h"

extern const struct fake_controls fake_controls;

__attribute__((constructor)) static void plug_in(void)
{
    fake_controls.reset();
    struct fake_device *gpu = fake_controls.device(0);
    const char *name = getenv("FAKE_GPU_NAME"), *sms = getenv("FAKE_GPU_SMS"), *cc = getenv("FAKE_GPU_CC");
    const char *hidden = getenv("FAKE_CUDA_HIDE"), *init = getenv("FAKE_CUDA_INIT");
    if (name) snprintf(gpu->name, sizeof gpu->name, "%s", name);
    if (sms) gpu->num_sms = atoi(sms);
    if (cc && sscanf(cc, "%d.%d", &gpu->major, &gpu->minor) != 2) abort();
    if (hidden) fake_controls.hide(hidden);
    if (init) fake_controls.fail("cuInit", 0, atoi(init));
}
