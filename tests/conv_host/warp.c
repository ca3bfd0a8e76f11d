/*
 * warp.c - owns how a warp runs on the host: its lanes' coordinates, shared memory, asynchronous copies, shuffles.
 *
 * Lanes that shuffle are coroutines: each runs to a shuffle, leaves its value, and goes on when all 32 have come there. Copies
 * happen when they are waited for, not before: what reads too early reads NaN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "conv_host.h"

enum { MAX_KERNELS = 128, MAX_SMEM = 128 * 1024, MAX_COPIES = 512, STACK = 128 * 1024, POISON = 0xff };

struct conv_host_kernel {
    int row, lanes, smem_bytes;
    conv_host_thread thread;
};

static struct conv_host_kernel kernels[MAX_KERNELS];
static int num_kernels, faults;

struct conv_host_index conv_host_block, conv_host_thread_index;
static _Alignas(16) unsigned char shared_memory[MAX_SMEM];

bool conv_host_register(int row, int lanes, conv_host_thread thread, int smem_bytes)
{
    if (num_kernels == MAX_KERNELS || smem_bytes > MAX_SMEM) abort();
    kernels[num_kernels++] = (struct conv_host_kernel){ row, lanes, smem_bytes, thread };
    return true;
}

const struct conv_host_kernel *conv_host_find(int row, int lanes)
{
    for (int i = 0; i < num_kernels; ++i)
        if (kernels[i].row == row && kernels[i].lanes == lanes) return &kernels[i];
    return NULL;
}

int conv_host_take_faults(void)
{
    const int count = faults;
    faults = 0;
    return count;
}

void conv_host_fault(void)
{
    ++faults;
}

void *conv_host_shared_memory(void)
{
    return shared_memory;
}

/* ---- lanes ---- */

struct copy {
    void *to;
    const void *from;
    int bytes, group;
};

static struct lane {
    ucontext_t context;
    unsigned char *stack;
    bool done;
    float offered; /* at the shuffle it waits at */
    struct copy copies[MAX_COPIES];
    int num_copies, groups; /* closed groups */
} lanes[CONV_HOST_WARP];

static ucontext_t scheduler;
static int current;
static const struct conv_host_kernel *running;
static const struct gdni_conv1d_params *running_params;
static float values[2][CONV_HOST_WARP]; /* of this shuffle and the one before, which a slow lane may still read */
static int round_of[CONV_HOST_WARP];

void conv_host_copy(void *to, const void *from, int bytes)
{
    struct lane *lane = &lanes[current];
    if (lane->num_copies == MAX_COPIES) abort();
    lane->copies[lane->num_copies++] = (struct copy){ to, from, bytes, lane->groups };
}

void conv_host_end_group(void)
{
    ++lanes[current].groups;
}

/* Copies of groups that are not closed yet do not arrive. */
void conv_host_wait_but_for(int groups)
{
    struct lane *lane = &lanes[current];
    int left = 0;
    for (int i = 0; i < lane->num_copies; ++i) {
        const struct copy c = lane->copies[i];
        if (c.group < lane->groups - groups)
            memcpy(c.to, c.from, (size_t)c.bytes);
        else
            lane->copies[left++] = c;
    }
    lane->num_copies = left;
}

float conv_host_shuffle_xor(float x, int mask)
{
    const int me = current, round = round_of[me]++ % 2;
    values[round][me] = x;
    swapcontext(&lanes[me].context, &scheduler);
    return values[round][me ^ mask];
}

static void lane_main(void)
{
    running->thread(running_params);
    lanes[current].done = true;
    swapcontext(&lanes[current].context, &scheduler);
}

static void enter_lane(int i)
{
    current = i;
    conv_host_thread_index.x = conv_host_thread_index.x / CONV_HOST_WARP * CONV_HOST_WARP + (unsigned)i;
}

static void start_lane(int i)
{
    struct lane *lane = &lanes[i];
    if (!lane->stack) lane->stack = malloc(STACK);
    if (!lane->stack || getcontext(&lane->context) != 0) abort();
    lane->context.uc_stack.ss_sp = lane->stack;
    lane->context.uc_stack.ss_size = STACK;
    lane->context.uc_link = NULL;
    lane->done = false;
    round_of[i] = 0;
    makecontext(&lane->context, lane_main, 0);
}

/* One shuffle after another. A lane that is done while others wait has missed a shuffle. */
static void run_together(void)
{
    int done = 0;
    for (int i = 0; i < CONV_HOST_WARP; ++i)
        start_lane(i);
    while (done == 0) {
        for (int i = 0; i < CONV_HOST_WARP; ++i) {
            enter_lane(i);
            swapcontext(&scheduler, &lanes[i].context);
            done += lanes[i].done;
        }
    }
    if (done != CONV_HOST_WARP) conv_host_fault();
}

static void run_one_by_one(bool backwards)
{
    for (int i = 0; i < CONV_HOST_WARP; ++i) {
        enter_lane(backwards ? CONV_HOST_WARP - 1 - i : i);
        running->thread(running_params);
    }
}

void conv_host_run_warp(const struct conv_host_kernel *kernel, const struct gdni_conv1d_params *params, uint32_t block,
                        uint32_t warp, bool backwards)
{
    running = kernel;
    running_params = params;
    conv_host_block = (struct conv_host_index){ block, 0, 0 };
    conv_host_thread_index = (struct conv_host_index){ warp * CONV_HOST_WARP, 0, 0 };
    memset(shared_memory, POISON, (size_t)kernel->smem_bytes);
    for (int i = 0; i < CONV_HOST_WARP; ++i)
        lanes[i].num_copies = lanes[i].groups = 0;
    if (kernel->lanes > 0)
        run_together();
    else
        run_one_by_one(backwards);
}
