/*
 * tuning_gpu.c - makes the fake libcuda a GPU that computes, for programs whose processes nobody can reach: what launches do is
 * in the environment.
 *
 *   GDN_FAKE_TIMES=SMEM:WHAT[,SMEM:WHAT...]   launches of so much dynamic shared memory take WHAT nanoseconds, or it is
 *                                             hang, fault, wrong (the result), die (the process that launches it),
 *                                             spoilt: wrong once, where another one was launched before in the process, or
 *                                             gone: it faults, and until FILE is removed no process gets a context
 *   GDN_FAKE_SPOILT=FILE, GDN_FAKE_GONE=FILE  which is made when that happens
 *   GDN_FAKE_FAIL=CALL:RESULT                 every such call of the driver returns RESULT
 *   GDN_FAKE_PAUSE_US=N                       a launch outside a graph also takes so long in earnest: a run can be killed in it
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_kernels.h"

extern const struct fake_controls fake_controls;

static struct fake_kernels kernels = { GDN_PREFILL_DESC_INIT, GDN_CONV1D_DESC_INIT, 20000, 0.005, 1, 0, { { 0 } } };
static unsigned deadly; /* shared memory of launches that end the process */
static unsigned fragile; /* shared memory of launches that another one before them spoils */
static unsigned farewell; /* shared memory of launches with which the GPU goes away */
static const char *marker, *gone;
static useconds_t pause_us;

/* false: it is there already, or nobody asks for it. */
static bool make(const char *file)
{
    const int fd = file ? open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static int64_t duration(void *user, const struct fake_launch *launch)
{
    if (deadly && launch->smem == deadly) _exit(9);
    if (farewell && launch->smem == farewell) make(gone);
    return fake_kernel_duration(user, launch);
}

static struct fake_kernel_row *row_of(unsigned smem)
{
    for (int i = 0; i < kernels.num_rows; ++i)
        if (kernels.rows[i].smem == smem) return &kernels.rows[i];
    return NULL;
}

/* Once, whichever process it is. */
static bool is_spoilt(unsigned smem)
{
    static unsigned first;
    if (!first) first = smem;
    return fragile && smem == fragile && first != fragile && make(marker);
}

static void execute(void *user, const struct fake_launch *launch)
{
    const bool spoilt = is_spoilt(launch->smem);
    if (pause_us) usleep(pause_us);
    if (spoilt) row_of(fragile)->wrong = true;
    fake_kernel_execute(user, launch);
    if (spoilt) row_of(fragile)->wrong = false;
}

static void take_row(const char *what, unsigned smem)
{
    struct fake_kernel_row row = { .smem = smem, .ns = 5000 };
    if (strncmp(what, "hang", 4) == 0)
        row.ns = FAKE_HANGS;
    else if (strncmp(what, "fault", 5) == 0)
        row.ns = FAKE_FAULTS;
    else if (strncmp(what, "wrong", 5) == 0)
        row.wrong = true;
    else if (strncmp(what, "die", 3) == 0)
        deadly = smem;
    else if (strncmp(what, "gone", 4) == 0)
        farewell = smem, row.ns = FAKE_FAULTS;
    else if (strncmp(what, "spoilt", 6) == 0)
        fragile = smem, row.ns = 20000;
    else
        row.ns = atoll(what);
    if (kernels.num_rows < FAKE_KERNEL_ROWS) kernels.rows[kernels.num_rows++] = row;
}

static void fail_call(const char *text)
{
    char call[64];
    int result = 0;
    if (sscanf(text, "%63[^:]:%d", call, &result) != 2) abort();
    fake_controls.fail(call, 0, result);
}

__attribute__((constructor)) static void plug_in(void)
{
    const struct fake_device_code code = { duration, execute, &kernels };
    const char *times = getenv("GDN_FAKE_TIMES"), *pause_text = getenv("GDN_FAKE_PAUSE_US");
    const char *failing = getenv("GDN_FAKE_FAIL");
    marker = getenv("GDN_FAKE_SPOILT"), gone = getenv("GDN_FAKE_GONE");
    fake_controls.reset();
    for (const char *row = times; row && *row; row = strchr(row, ',') ? strchr(row, ',') + 1 : NULL) {
        const char *colon = strchr(row, ':');
        if (colon) take_row(colon + 1, (unsigned)atoi(row));
    }
    if (failing) fail_call(failing);
    if (gone && access(gone, F_OK) == 0) fail_call("cuDevicePrimaryCtxRetain:46");
    if (pause_text) pause_us = (useconds_t)atoi(pause_text);
    fake_controls.set_code(&code);
}
