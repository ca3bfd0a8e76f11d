/*
 * lab.c - owns what the tuner holds on a device. Must not know: operators, candidates, decisions.
 *
 * Nothing here waits in the driver: every wait polls an event, because a kernel that hangs would hold cuStreamSynchronize(),
 * cuMemFree() and everything else of its context for ever. After such a kernel the lab is lost, and what it holds stays
 * where it is until the process ends.
 */
#include "runtime/lab.h"

#include <string.h>
#include <time.h>

#include "base/error.h"
#include "runtime/clock.h"

enum { STREAM_NON_BLOCKING = 1, CAPTURE_THREAD_LOCAL = 1, CAPTURE_INVALIDATED = 901 };
enum { CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_READY = 600 };

/* Between two questions: none at first, since most kernels end in microseconds. */
static void rest(int polls)
{
    enum { BUSY = 2000 };
    const struct timespec little = { 0, 50000 };
    if (polls > BUSY) nanosleep(&little, NULL);
}

/* An error of a call that was in order is one of a kernel that ran before it: the context is gone with it. */
static gdn_status lose(struct gdni_lab *lab, gdni_curesult result, const char *call)
{
    lab->lost = true;
    gdni_cuda_fail(lab->cuda, result, call);
    return GDN_E_CUDA;
}

#define LAB_TRY(call, arguments)                                                                                       \
    do {                                                                                                               \
        const gdni_curesult result_ = lab->cuda->call arguments;                                                       \
        if (result_ != 0) return lose(lab, result_, #call);                                                            \
    } while (0)

/* ---- Opening and closing ---- */

static gdn_status set_limit(struct gdni_lab *lab, size_t max_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    LAB_TRY(cuMemGetInfo, (&free_bytes, &total_bytes));
    const size_t most = free_bytes / 10 * 9;
    lab->by_free = most < max_bytes;
    lab->limit = lab->by_free ? most : max_bytes;
    return GDN_OK;
}

static gdn_status open_in_context(struct gdni_lab *lab, size_t max_bytes)
{
    gdni_cuctx ctx = NULL;
    LAB_TRY(cuDevicePrimaryCtxRetain, (&ctx, lab->device));
    lab->retained = true;
    LAB_TRY(cuCtxPushCurrent, (ctx));
    lab->pushed = true;
    LAB_TRY(cuStreamCreate, (&lab->stream, STREAM_NON_BLOCKING));
    LAB_TRY(cuEventCreate, (&lab->events[0], 0));
    LAB_TRY(cuEventCreate, (&lab->events[1], 0));
    return set_limit(lab, max_bytes);
}

gdn_status gdni_lab_open(struct gdni_lab *lab, const struct gdni_cuda *cuda, gdni_cudevice device, size_t max_bytes,
                         int64_t timeout_ms)
{
    memset(lab, 0, sizeof *lab);
    lab->cuda = cuda;
    lab->device = device;
    lab->timeout_ms = timeout_ms;
    const gdn_status status = open_in_context(lab, max_bytes);
    if (status == GDN_OK) return GDN_OK;
    lab->lost = false; /* no kernel has run here yet: what was opened can be closed */
    gdni_lab_close(lab);
    return status;
}

/* Results are not looked at: nobody could act on them, and after a fault each of these calls repeats it. */
void gdni_lab_close(struct gdni_lab *lab)
{
    gdni_cuctx popped = NULL;
    gdni_lab_give_back(lab, 0);
    for (int i = 0; i < 2 && !lab->lost; ++i)
        if (lab->events[i]) lab->cuda->cuEventDestroy(lab->events[i]);
    if (lab->stream && !lab->lost) lab->cuda->cuStreamDestroy(lab->stream);
    if (lab->pushed) lab->cuda->cuCtxPopCurrent(&popped);
    if (lab->retained && !lab->lost) lab->cuda->cuDevicePrimaryCtxRelease(lab->device);
    memset(lab, 0, sizeof *lab);
}

/* ---- Memory ---- */

static gdn_status no_memory(const struct gdni_lab *lab, size_t bytes)
{
    return GDN_FAIL(GDN_E_NOMEM,
                    "%zu bytes of scratch memory are needed beyond the %zu that are in use, and %zu, %s, is the limit: tune "
                    "shorter calls, or %s",
                    bytes, lab->taken, lab->limit, lab->by_free ? "nine tenths of what was free" : "max_scratch_bytes",
                    lab->by_free ? "end what else uses the GPU" : "raise it");
}

gdn_status gdni_lab_take(struct gdni_lab *lab, size_t bytes, gdn_devptr *out)
{
    if (bytes == 0) bytes = 1;
    if (bytes > lab->limit - lab->taken || lab->num_blocks == GDNI_LAB_MAX_BLOCKS) return no_memory(lab, bytes);
    const gdni_curesult result = lab->cuda->cuMemAlloc(out, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return GDN_FAIL(GDN_E_NOMEM, "the GPU has no %zu bytes free beyond the %zu that are in use here: end what else uses it",
                        bytes, lab->taken);
    if (result != 0) return lose(lab, result, "cuMemAlloc");
    lab->blocks[lab->num_blocks].address = *out;
    lab->blocks[lab->num_blocks++].bytes = bytes;
    lab->taken += bytes;
    return GDN_OK;
}

void gdni_lab_give_back(struct gdni_lab *lab, int count)
{
    while (lab->num_blocks > count) {
        --lab->num_blocks;
        lab->taken -= lab->blocks[lab->num_blocks].bytes;
        if (!lab->lost) lab->cuda->cuMemFree(lab->blocks[lab->num_blocks].address);
    }
}

gdn_status gdni_lab_repeat(struct gdni_lab *lab, gdn_devptr to, size_t bytes, size_t size)
{
    for (size_t done = size; done < bytes;) {
        const size_t more = done < bytes - done ? done : bytes - done;
        LAB_TRY(cuMemcpyDtoDAsync, (to + done, to, more, lab->stream));
        done += more;
    }
    return GDN_OK;
}

gdn_status gdni_lab_upload(struct gdni_lab *lab, gdn_devptr to, size_t bytes, const void *pattern, size_t size)
{
    if (bytes == 0 || size == 0) return GDN_OK;
    if (size > bytes) size = bytes;
    LAB_TRY(cuMemcpyHtoDAsync, (to, pattern, size, lab->stream));
    GDN_TRY(gdni_lab_repeat(lab, to, bytes, size));
    return gdni_lab_wait(lab);
}

gdn_status gdni_lab_download(struct gdni_lab *lab, void *to, gdn_devptr from, size_t bytes)
{
    GDN_TRY(gdni_lab_wait(lab)); /* so that the copy, which holds the thread, has nothing to wait for */
    if (bytes == 0) return GDN_OK;
    LAB_TRY(cuMemcpyDtoHAsync, (to, from, bytes, lab->stream));
    return gdni_lab_wait(lab);
}

/* ---- Time ---- */

static gdn_status wait_for(struct gdni_lab *lab, gdni_cuevent event)
{
    const int64_t start = gdni_now_ms();
    for (int polls = 0;; ++polls) {
        const gdni_curesult result = lab->cuda->cuEventQuery(event);
        if (result == 0) return GDN_OK;
        if (result != CUDA_ERROR_NOT_READY) return lose(lab, result, "cuEventQuery");
        if (gdni_now_ms() - start >= lab->timeout_ms) break;
        rest(polls);
    }
    lab->lost = true;
    return GDN_FAIL(GDN_E_TIMEOUT, "a kernel did not end within %lld ms: this process cannot use the GPU any more",
                    (long long)lab->timeout_ms);
}

gdn_status gdni_lab_wait(struct gdni_lab *lab)
{
    LAB_TRY(cuEventRecord, (lab->events[1], lab->stream));
    return wait_for(lab, lab->events[1]);
}

gdn_status gdni_lab_capture_begin(struct gdni_lab *lab)
{
    LAB_TRY(cuStreamBeginCapture, (lab->stream, CAPTURE_THREAD_LOCAL));
    return GDN_OK;
}

gdn_status gdni_lab_capture_end(struct gdni_lab *lab, gdni_cuexec *out)
{
    gdni_cugraph graph = NULL;
    *out = NULL;
    LAB_TRY(cuStreamEndCapture, (lab->stream, &graph));
    const gdni_curesult result = lab->cuda->cuGraphInstantiateWithFlags(out, graph, 0);
    lab->cuda->cuGraphDestroy(graph);
    return result == 0 ? GDN_OK : lose(lab, result, "cuGraphInstantiateWithFlags");
}

void gdni_lab_capture_drop(struct gdni_lab *lab)
{
    gdni_cugraph graph = NULL;
    if (lab->lost) return;
    const gdni_curesult result = lab->cuda->cuStreamEndCapture(lab->stream, &graph);
    lab->lost = result != 0 && result != CAPTURE_INVALIDATED; /* by the call that failed: that is no other failure */
    if (graph) lab->cuda->cuGraphDestroy(graph);
}

void gdni_lab_graph_destroy(struct gdni_lab *lab, gdni_cuexec exec)
{
    if (exec && !lab->lost) lab->cuda->cuGraphExecDestroy(exec);
}

gdn_status gdni_lab_start(struct gdni_lab *lab, gdni_cuexec exec, int replays)
{
    for (int i = 0; i < replays; ++i)
        LAB_TRY(cuGraphLaunch, (exec, lab->stream));
    return GDN_OK;
}

gdn_status gdni_lab_time(struct gdni_lab *lab, gdni_cuexec exec, int replays, int64_t *ns)
{
    float milliseconds = 0;
    LAB_TRY(cuEventRecord, (lab->events[0], lab->stream));
    GDN_TRY(gdni_lab_start(lab, exec, replays));
    LAB_TRY(cuEventRecord, (lab->events[1], lab->stream));
    GDN_TRY(wait_for(lab, lab->events[1]));
    LAB_TRY(cuEventElapsedTime, (&milliseconds, lab->events[0], lab->events[1]));
    *ns = (int64_t)((double)milliseconds * 1e6);
    return GDN_OK;
}
