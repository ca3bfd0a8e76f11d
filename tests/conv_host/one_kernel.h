/*
 * one_kernel.h - templates/conv1d_qkv.cu, compiled for the host for row KERNEL_ROW of conv_variants.h. The template's own text
 * and its own headers are used; only gdn_types.cuh, gdn_conv_ptx.cuh and the two generated ones are others (include/), so that
 * spec, launch struct and inline PTX are C++.
 */
#include "cuda_host.h"

extern "C" {
#include "base/half.h"
}

#define GLUE_(name, row, lanes) name##_##row##_##lanes
#define GLUE(name, row, lanes) GLUE_(name, row, lanes)
#define conv1d_qkv GLUE(conv1d_qkv, KERNEL_ROW, KERNEL_LANES) // extern "C": one name a kernel

namespace {
#include "conv1d_qkv.cu"

void run_thread(const gdni_conv1d_params *host)
{
    conv1d_params p;
    memcpy(&p, host, sizeof p);
    conv1d_qkv(p);
}

const bool registered = conv_host_register(KERNEL_ROW, KERNEL_LANES, run_thread, spec::SMEM_BYTES);
} // namespace
