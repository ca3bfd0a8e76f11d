/*
 * arch.h - the table of archs that code can be generated for, and of GPUs by name. A new arch or GPU is a row.
 */
#ifndef GDNI_ARCH_H
#define GDNI_ARCH_H

#include <stdint.h>

#include "gdn_jit/gdn_jit.h"

struct gdni_arch {
    const char *name;   /* "sm_90a": what NVRTC is told */
    int cc;             /* major * 10 + minor of the devices it runs on */
    int smem_per_block; /* bytes, opt-in maximum */
    int min_nvrtc;      /* major * 100 + minor, the first NVRTC that knows the arch and that we support */
    int wgmma;          /* has Hopper's wgmma, setmaxnreg and TMA */
    int default_sms;    /* of the common GPU of this arch: what "the arch alone" is tuned for */
};

/* How many SMs to reckon with: those that are given, or, where that is 0, the common GPU's of the arch. */
int gdni_arch_sms(const struct gdni_arch *arch, int num_sms);

/* GDN_E_UNSUPPORTED with the list of known archs. */
gdn_status gdni_arch_find(const char *name, const struct gdni_arch **out);
/* By compute capability of a device. */
gdn_status gdni_arch_of_device(int major, int minor, const struct gdni_arch **out);
/* i-th row; NULL past the end. */
const struct gdni_arch *gdni_arch_at(int i);

struct gdni_gpu {
    const char *name; /* as the driver prints it */
    const char *arch;
    int num_sms, l2_bytes, dram_gbps, tensor_tflops;
};
const struct gdni_gpu *gdni_gpu_at(int i);
/* Case, a leading "NVIDIA " and spaces against '-' or '_' do not matter; NULL when unknown. */
const struct gdni_gpu *gdni_gpu_find(const char *name);

/* Fills out from a GPU's or an arch's name (see gdn_target_from_name). */
gdn_status gdni_target_from_name(const char *name, gdn_target *out);

#endif
