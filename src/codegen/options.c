/*
 * options.c - owns the compiler's option list.
 *
 * --frandom-seed with a constant program name makes the cubin reproducible; --modify-stack-limit=false keeps NVRTC from
 * changing the process's stack limit (compile.c brings a thread with a stack of its own); --no-cache because we have one.
 * GDN_CHECKED_KERNELS: templates/include/gdn_ptx_mbar.cuh.
 */
#include "codegen/options.h"

#include <stdio.h>

static const struct {
    const char *text;
    int min_nvrtc;
} rows[] = {
    { "--std=c++17", 1200 },
    { "--minimal", 1200 },
    { "--no-source-include", 1208 },
    { "--frandom-seed=gdn", 1209 },
    { "--modify-stack-limit=false", 1200 },
    { "--no-cache", 1209 },
    { "-Xptxas=-v", 1200 },
#ifdef GDN_CHECKED_KERNELS
    { "--define-macro=GDN_CHECKED", 1200 },
#endif
};

static void add(struct gdni_options *out, const char *prefix, const char *text)
{
    snprintf(out->text[out->count++], GDNI_OPTION_LEN, "%s%s", prefix, text);
}

void gdni_options_build(struct gdni_options *out, const struct gdni_arch *arch, int nvrtc_version)
{
    out->count = 0;
    add(out, "--gpu-architecture=", arch->name);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        if (nvrtc_version >= rows[i].min_nvrtc) add(out, "", rows[i].text);
}
