/*
 * arch.c - owns the tables of archs and GPUs. Must not know: problems, kernels, devices, drivers.
 *
 * SM counts, L2 and bandwidth are the vendor's datasheet figures of the full part; l2_bytes is what the driver reports.
 */
#include "codegen/arch.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"

#define KIB 1024
#define MIB (1024 * 1024)

/* clang-format off */
static const struct gdni_arch archs[] = {
    /* name       cc   smem per block  nvrtc  wgmma  SMs */
    { "sm_80",    80,  163 * KIB,      1208,  0,    108 },
    { "sm_86",    86,  99 * KIB,       1208,  0,    84 },
    { "sm_89",    89,  99 * KIB,       1208,  0,    128 },
    { "sm_90a",   90,  227 * KIB,      1208,  1,    132 },
    { "sm_100a",  100, 227 * KIB,      1208,  0,    148 },
    { "sm_103a",  103, 227 * KIB,      1209,  0,    148 },
    { "sm_120a",  120, 99 * KIB,       1208,  0,    170 },
    { "sm_121a",  121, 99 * KIB,       1209,  0,    48 },
};
/* clang-format on */
enum { NUM_ARCHS = sizeof archs / sizeof archs[0] };

/* clang-format off */
static const struct gdni_gpu gpus[] = {
    /* name                        arch       SMs   L2          GB/s   TFLOP/s */
    { "NVIDIA H200",               "sm_90a",  132,  60 * MIB,   4800,  989 },
    { "NVIDIA H100 80GB HBM3",     "sm_90a",  132,  50 * MIB,   3350,  989 },
    { "NVIDIA H100 PCIe",          "sm_90a",  114,  50 * MIB,   2039,  756 },
    { "NVIDIA H100 NVL",           "sm_90a",  132,  50 * MIB,   3938,  835 },
    { "NVIDIA H200 NVL",           "sm_90a",  132,  60 * MIB,   4800,  835 },
    { "NVIDIA GH200 480GB",        "sm_90a",  132,  60 * MIB,   4000,  989 },
    { "NVIDIA H20",                "sm_90a",  78,   60 * MIB,   4000,  148 },
    { "NVIDIA A100-SXM4-80GB",     "sm_80",   108,  40 * MIB,   2039,  312 },
    { "NVIDIA A100-SXM4-40GB",     "sm_80",   108,  40 * MIB,   1555,  312 },
    { "NVIDIA A100 80GB PCIe",     "sm_80",   108,  40 * MIB,   1935,  312 },
    { "NVIDIA A40",                "sm_86",   84,   6 * MIB,    696,   150 },
    { "NVIDIA A10",                "sm_86",   72,   6 * MIB,    600,   125 },
    { "NVIDIA GeForce RTX 3090",   "sm_86",   82,   6 * MIB,    936,   71 },
    { "NVIDIA L40S",               "sm_89",   142,  96 * MIB,   864,   362 },
    { "NVIDIA L4",                 "sm_89",   58,   48 * MIB,   300,   121 },
    { "NVIDIA GeForce RTX 4090",   "sm_89",   128,  72 * MIB,   1008,  165 },
    { "NVIDIA B200",               "sm_100a", 148,  126 * MIB,  8000,  2250 },
    { "NVIDIA GeForce RTX 5090",   "sm_120a", 170,  96 * MIB,   1792,  209 },
    { "NVIDIA RTX PRO 6000 Blackwell Server Edition",      "sm_120a", 188, 128 * MIB, 1597, 252 },
    { "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sm_120a", 188, 128 * MIB, 1792, 252 },
};
/* clang-format on */
enum { NUM_GPUS = sizeof gpus / sizeof gpus[0] };

const struct gdni_arch *gdni_arch_at(int i)
{
    return i >= 0 && i < NUM_ARCHS ? &archs[i] : NULL;
}

const struct gdni_gpu *gdni_gpu_at(int i)
{
    return i >= 0 && i < NUM_GPUS ? &gpus[i] : NULL;
}

static const char *known_archs(char *buf, size_t size)
{
    size_t len = 0;
    for (int i = 0; i < NUM_ARCHS && len < size; ++i)
        len += (size_t)snprintf(buf + len, size - len, "%s%s", i ? ", " : "", archs[i].name);
    return buf;
}

int gdni_arch_sms(const struct gdni_arch *arch, int num_sms)
{
    return num_sms > 0 ? num_sms : arch->default_sms;
}

gdn_status gdni_arch_find(const char *name, const struct gdni_arch **out)
{
    for (int i = 0; i < NUM_ARCHS; ++i)
        if (strcmp(name, archs[i].name) == 0) {
            *out = &archs[i];
            return GDN_OK;
        }
    char list[160];
    return GDN_FAIL(GDN_E_UNSUPPORTED, "arch \"%.32s\" is not known: use one of %s", name,
                    known_archs(list, sizeof list));
}

gdn_status gdni_arch_of_device(int major, int minor, const struct gdni_arch **out)
{
    for (int i = 0; i < NUM_ARCHS; ++i)
        if (archs[i].cc == major * 10 + minor) {
            *out = &archs[i];
            return GDN_OK;
        }
    char list[160];
    return GDN_FAIL(GDN_E_UNSUPPORTED, "compute capability %d.%d has no arch here: code exists for %s", major, minor,
                    known_archs(list, sizeof list));
}

static bool is_space(char c)
{
    return c == ' ' || c == '-' || c == '_';
}

/* Not tolower(), which follows the locale: in a Turkish one "NVIDIA" has no i. */
static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Lower case, one kind of space, without the vendor's word and "GeForce": "NVIDIA A100-SXM4-80GB" -> "a100 sxm4 80gb". */
static void plain_name(const char *name, char *out, size_t size)
{
    static const char *const dropped[] = { "nvidia ", "geforce " };
    size_t len = 0;
    for (; *name && len + 1 < size; ++name)
        out[len++] = is_space(*name) ? ' ' : to_lower(*name);
    out[len] = '\0';
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; ++i) {
        const size_t n = strlen(dropped[i]);
        if (strncmp(out, dropped[i], n) == 0) memmove(out, out + n, strlen(out + n) + 1);
    }
}

const struct gdni_gpu *gdni_gpu_find(const char *name)
{
    char wanted[96], row[96];
    plain_name(name, wanted, sizeof wanted);
    for (int i = 0; i < NUM_GPUS; ++i) {
        plain_name(gpus[i].name, row, sizeof row);
        if (strcmp(wanted, row) == 0) return &gpus[i];
    }
    return NULL;
}

static void copy_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

static gdn_status target_of_gpu(const struct gdni_gpu *gpu, gdn_target *out)
{
    const struct gdni_arch *arch;
    GDN_TRY(gdni_arch_find(gpu->arch, &arch));
    copy_text(out->gpu_name, sizeof out->gpu_name, gpu->name);
    copy_text(out->arch, sizeof out->arch, arch->name);
    out->num_sms = gpu->num_sms;
    out->smem_per_block = arch->smem_per_block;
    out->l2_bytes = gpu->l2_bytes;
    out->dram_gbps = gpu->dram_gbps;
    out->tensor_tflops = gpu->tensor_tflops;
    return GDN_OK;
}

static gdn_status target_of_arch(const struct gdni_arch *arch, gdn_target *out)
{
    copy_text(out->arch, sizeof out->arch, arch->name);
    out->num_sms = arch->default_sms;
    out->smem_per_block = arch->smem_per_block;
    return GDN_OK;
}

/* A name that is the first words of several rows' names gets them listed: "A100", but not "A1". */
static gdn_status unknown_gpu(const char *name)
{
    char wanted[96], row[96], hits[320] = "";
    plain_name(name, wanted, sizeof wanted);
    size_t len = 0;
    for (int i = 0; i < NUM_GPUS && len < sizeof hits; ++i) {
        plain_name(gpus[i].name, row, sizeof row);
        const size_t length = strlen(wanted);
        if (length && strncmp(wanted, row, length) == 0 && row[length] == ' ')
            len += (size_t)snprintf(hits + len, sizeof hits - len, "%s\"%s\"", len ? ", " : "", gpus[i].name);
    }
    if (hits[0]) return GDN_FAIL(GDN_E_UNSUPPORTED, "target \"%.64s\" is not one GPU: name one of %s", name, hits);
    char list[160];
    return GDN_FAIL(GDN_E_UNSUPPORTED,
                    "target \"%.64s\" is neither a known GPU nor an arch: name the GPU as the driver prints it "
                    "(gdn-jit-cache doctor and gdn_target_names() list them) or its arch, one of %s",
                    name, known_archs(list, sizeof list));
}

gdn_status gdni_target_from_name(const char *name, gdn_target *out)
{
    *out = (gdn_target)GDN_TARGET_INIT;
    const struct gdni_gpu *gpu = gdni_gpu_find(name);
    if (gpu) return target_of_gpu(gpu, out);
    for (int i = 0; i < NUM_ARCHS; ++i)
        if (strcmp(name, archs[i].name) == 0) return target_of_arch(&archs[i], out);
    return unknown_gpu(name);
}
