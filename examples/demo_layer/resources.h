/*
 * resources.h - the kernels that a layer needs for a target: found or compiled, and what ptxas said of each, as table rows.
 */
#ifndef DEMO_RESOURCES_H
#define DEMO_RESOURCES_H

#include "demo_layer/layer.h"

void resources_header(void);

/*
 * Plans both operators of the layer and prints a row for each kernel. The number of kernels that
 * spill or use local memory; -1 when a plan failed, after a line that says why.
 */
int resources_print(gdn_ctx *ctx, const gdn_target *target, const struct layer *layer);

#endif
