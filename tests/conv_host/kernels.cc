/*
 * kernels.cc - templates/conv1d_qkv.cu, compiled for the host once a row of a table. The template's own text is used; only the
 * four headers that it includes are others (include/), so that spec, launch struct and inline PTX are C++.
 */
#include "cuda_host.h"

#include "conv_host.h"
extern "C" {
#include "base/half.h"
}

/*
 * Every triple of width, tile and state layout, and every pair of any two columns; then two of the shapes that models use.
 * The kernels below are numbered by this table.
 */
static constexpr conv_host_row rows[] = {
    /* io, state layout, width, vector bytes, tile tokens, flags */
    { GDN_BF16, GDN_CONV_STATE_CW, 2, 16, 4, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_WC, 2, 2, 4, GDN_CONV_SILU },
    { GDN_F16, GDN_CONV_STATE_CW, 2, 4, 8, 0 },
    { GDN_BF16, GDN_CONV_STATE_WC, 2, 8, 8, GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_CW, 2, 2, 16, GDN_CONV_BIAS },
    { GDN_BF16, GDN_CONV_STATE_WC, 2, 4, 16, 0 },
    { GDN_F16, GDN_CONV_STATE_CW, 2, 8, 32, GDN_CONV_SILU },
    { GDN_F16, GDN_CONV_STATE_WC, 2, 16, 32, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_BF16, GDN_CONV_STATE_CW, 2, 2, 64, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_BF16, GDN_CONV_STATE_WC, 2, 4, 64, GDN_CONV_SILU },
    { GDN_BF16, GDN_CONV_STATE_CW, 3, 4, 4, GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_WC, 3, 8, 4, 0 },
    { GDN_F16, GDN_CONV_STATE_CW, 3, 16, 8, GDN_CONV_SILU },
    { GDN_F16, GDN_CONV_STATE_WC, 3, 2, 8, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_CW, 3, 8, 16, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_BF16, GDN_CONV_STATE_WC, 3, 16, 16, GDN_CONV_SILU },
    { GDN_BF16, GDN_CONV_STATE_CW, 3, 2, 32, 0 },
    { GDN_BF16, GDN_CONV_STATE_WC, 3, 4, 32, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_CW, 3, 16, 64, GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_WC, 3, 16, 64, 0 },
    { GDN_BF16, GDN_CONV_STATE_CW, 4, 4, 4, GDN_CONV_SILU | GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_WC, 4, 8, 4, GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_CW, 4, 16, 8, GDN_CONV_SILU },
    { GDN_F16, GDN_CONV_STATE_WC, 4, 2, 8, 0 },
    { GDN_F16, GDN_CONV_STATE_CW, 4, 16, 16, GDN_CONV_BIAS },
    { GDN_BF16, GDN_CONV_STATE_WC, 4, 4, 16, 0 },
    { GDN_BF16, GDN_CONV_STATE_CW, 4, 8, 32, GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_WC, 4, 8, 32, GDN_CONV_SILU },
    { GDN_F16, GDN_CONV_STATE_CW, 4, 8, 64, GDN_CONV_BIAS },
    { GDN_F16, GDN_CONV_STATE_WC, 4, 8, 64, 0 },
    { GDN_BF16, GDN_CONV_STATE_CW, 4, 16, 16, GDN_CONV_SILU },
    { GDN_BF16, GDN_CONV_STATE_WC, 4, 16, 32, GDN_CONV_SILU },
};
constexpr int NUM_ROWS = sizeof rows / sizeof rows[0];

#define DEVICE_IN(type, name) const type *name;
#define DEVICE_OUT(type, name) type *name;
#define DEVICE_I64(name) long long name;
#define DEVICE_I32(name) int name;
#define DEVICE_F32(name) float name;

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)

#define KERNEL_ROW 0
#include "one_kernel.h"
#define KERNEL_ROW 1
#include "one_kernel.h"
#define KERNEL_ROW 2
#include "one_kernel.h"
#define KERNEL_ROW 3
#include "one_kernel.h"
#define KERNEL_ROW 4
#include "one_kernel.h"
#define KERNEL_ROW 5
#include "one_kernel.h"
#define KERNEL_ROW 6
#include "one_kernel.h"
#define KERNEL_ROW 7
#include "one_kernel.h"
#define KERNEL_ROW 8
#include "one_kernel.h"
#define KERNEL_ROW 9
#include "one_kernel.h"
#define KERNEL_ROW 10
#include "one_kernel.h"
#define KERNEL_ROW 11
#include "one_kernel.h"
#define KERNEL_ROW 12
#include "one_kernel.h"
#define KERNEL_ROW 13
#include "one_kernel.h"
#define KERNEL_ROW 14
#include "one_kernel.h"
#define KERNEL_ROW 15
#include "one_kernel.h"
#define KERNEL_ROW 16
#include "one_kernel.h"
#define KERNEL_ROW 17
#include "one_kernel.h"
#define KERNEL_ROW 18
#include "one_kernel.h"
#define KERNEL_ROW 19
#include "one_kernel.h"
#define KERNEL_ROW 20
#include "one_kernel.h"
#define KERNEL_ROW 21
#include "one_kernel.h"
#define KERNEL_ROW 22
#include "one_kernel.h"
#define KERNEL_ROW 23
#include "one_kernel.h"
#define KERNEL_ROW 24
#include "one_kernel.h"
#define KERNEL_ROW 25
#include "one_kernel.h"
#define KERNEL_ROW 26
#include "one_kernel.h"
#define KERNEL_ROW 27
#include "one_kernel.h"
#define KERNEL_ROW 28
#include "one_kernel.h"
#define KERNEL_ROW 29
#include "one_kernel.h"
#define KERNEL_ROW 30
#include "one_kernel.h"
#define KERNEL_ROW 31
#include "one_kernel.h"

extern "C" {
#define KERNEL(i) { rows[i], kernel_##i::run_thread }
extern const conv_host_kernel conv_host_kernels[] = {
    KERNEL(0), KERNEL(1), KERNEL(2), KERNEL(3), KERNEL(4), KERNEL(5),
    KERNEL(6), KERNEL(7), KERNEL(8), KERNEL(9), KERNEL(10), KERNEL(11),
    KERNEL(12), KERNEL(13), KERNEL(14), KERNEL(15), KERNEL(16), KERNEL(17),
    KERNEL(18), KERNEL(19), KERNEL(20), KERNEL(21), KERNEL(22), KERNEL(23),
    KERNEL(24), KERNEL(25), KERNEL(26), KERNEL(27), KERNEL(28), KERNEL(29),
    KERNEL(30), KERNEL(31),
};
static_assert(sizeof conv_host_kernels / sizeof conv_host_kernels[0] == NUM_ROWS, "a kernel a row");
extern const int conv_host_num_kernels = NUM_ROWS;

int conv_host_take_misaligned(void)
{
    const int count = misaligned;
    misaligned = 0;
    return count;
}
}
