/*
 * device.h - the same layer on a GPU: both operators by the one-call form, q and k normalised on the host in between.
 */
#ifndef DEMO_DEVICE_H
#define DEMO_DEVICE_H

#include "demo_layer/layer.h"

/* As layer_on_host(), and the time of each operator's call on the host, compiling included, in ms. */
struct call_times {
    double conv_ms, gdn_ms;
};
struct call_times layer_on_device(gdn_ctx *ctx, const struct layer *layer, const struct batch *batch,
                                  struct states *states, struct outputs *out);

/* Of one call of each operator, in us: kernels by graph replay; the host's part is the time until the call returns. */
struct device_times {
    double conv_kernel, gdn_kernel, conv_host, gdn_host;
};
struct device_times layer_times(gdn_ctx *ctx, const struct layer *layer, const struct batch *batch);

#endif
