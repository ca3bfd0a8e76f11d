/*
 * lab.h - a corner of a device for trying kernels: a stream and scratch memory of its own, graphs, times, and an end to
 * whatever does not end. One thread at a time.
 */
#ifndef GDNI_LAB_H
#define GDNI_LAB_H

#include <stdbool.h>

#include "runtime/driver.h"

enum { GDNI_LAB_MAX_BLOCKS = 64 };

/* The primary context of a device is current between open and close. */
struct gdni_lab {
    const struct gdni_cuda *cuda;
    gdni_cudevice device;
    gdn_stream stream;
    gdni_cuevent events[2];
    int64_t timeout_ms;  /* of one wait */
    size_t limit, taken; /* bytes of scratch memory */
    bool by_free;        /* limit is of what was free when it was opened, not the caller's */
    struct {
        gdn_devptr address;
        size_t bytes;
    } blocks[GDNI_LAB_MAX_BLOCKS];
    int num_blocks;
    bool retained, pushed;
    bool lost; /* a kernel hangs or has faulted: nothing on this device can be trusted, and nothing is given back */
};

/* max_bytes: of scratch memory; the lab takes no more than nine tenths of what is free. On failure nothing stays open. */
gdn_status gdni_lab_open(struct gdni_lab *lab, const struct gdni_cuda *cuda, gdni_cudevice device, size_t max_bytes,
                         int64_t timeout_ms);
void gdni_lab_close(struct gdni_lab *lab);

/* 256-byte aligned, contents undefined. GDN_E_NOMEM past the limit, or when the device has none left. */
gdn_status gdni_lab_take(struct gdni_lab *lab, size_t bytes, gdn_devptr *out);
/* Gives back every block from the count-th on. */
void gdni_lab_give_back(struct gdni_lab *lab, int count);

/* The first size of `bytes` at `to`, again and again up to the end. */
gdn_status gdni_lab_repeat(struct gdni_lab *lab, gdn_devptr to, size_t bytes, size_t size);
/* The same with a pattern of the host's, whose memory may go when this returns. */
gdn_status gdni_lab_upload(struct gdni_lab *lab, gdn_devptr to, size_t bytes, const void *pattern, size_t size);
gdn_status gdni_lab_download(struct gdni_lab *lab, void *to, gdn_devptr from, size_t bytes);

/* Until everything enqueued has run. GDN_E_TIMEOUT, GDN_E_CUDA: the lab is lost. */
gdn_status gdni_lab_wait(struct gdni_lab *lab);

/* What is enqueued on lab->stream between the two becomes a graph; after a failure in between it is dropped. */
gdn_status gdni_lab_capture_begin(struct gdni_lab *lab);
gdn_status gdni_lab_capture_end(struct gdni_lab *lab, gdni_cuexec *out);
void gdni_lab_capture_drop(struct gdni_lab *lab); /* the failure's sentence stays */
void gdni_lab_graph_destroy(struct gdni_lab *lab, gdni_cuexec exec);

/* `replays` of a graph, of which none need have begun when this returns. */
gdn_status gdni_lab_start(struct gdni_lab *lab, gdni_cuexec exec, int replays);

/* Nanoseconds of `replays` of a graph, one after the other. */
gdn_status gdni_lab_time(struct gdni_lab *lab, gdni_cuexec exec, int replays, int64_t *ns);

#endif
