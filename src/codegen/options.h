/*
 * options.h - what NVRTC is told, besides the source. The list is part of the key under one version-independent name, so
 * that two compilers that need different spellings still share keys.
 */
#ifndef GDNI_OPTIONS_H
#define GDNI_OPTIONS_H

#include "codegen/arch.h"

/* Raise when a change of the list changes code. */
#ifdef GDN_CHECKED_KERNELS
#define GDNI_OPTIONS_ID "o1-checked"
#else
#define GDNI_OPTIONS_ID "o1"
#endif

enum { GDNI_MAX_OPTIONS = 12, GDNI_OPTION_LEN = 48 };

struct gdni_options {
    int count;
    char text[GDNI_MAX_OPTIONS][GDNI_OPTION_LEN];
};

/* nvrtc_version: major * 100 + minor; options that it does not know are left out. */
void gdni_options_build(struct gdni_options *out, const struct gdni_arch *arch, int nvrtc_version);

#endif
