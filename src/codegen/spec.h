/*
 * spec.h - everything that the generated code of one kernel depends on, and its run-time parameters: equal specs are equal code
 * and equal launches.
 */
#ifndef GDNI_SPEC_H
#define GDNI_SPEC_H

#include "codegen/params.h"

/* A kernel is a row of the table in spec.c: its template, its entry, the instructions and headers it uses. */
enum gdni_kernel {
    GDNI_KERNEL_PREFILL_GENERIC,
    GDNI_KERNEL_PREFILL_SPLIT,
    GDNI_KERNEL_PREFILL_HOPPER,
    GDNI_KERNEL_PREFILL_HOPPER_SPLIT,
    GDNI_KERNEL_CONV1D_QKV,
    GDNI_NUM_KERNELS
};

struct gdni_kernel_info {
    const char *name;           /* entry point, and the stem of its template */
    const char *const *headers; /* templates/include files it includes, NULL-terminated */
    const char *const *instrs;  /* rows of ptx_table.c for either dtype, NULL-terminated */
    bool has_producers;         /* two kinds of CTAs: one makes images of chunks for the other, in a workspace */
    bool has_maps;              /* launched with tensor maps: struct gdni_prefill_hopper_params */
};
const struct gdni_kernel_info *gdni_kernel_info(enum gdni_kernel kernel);

/* The kernel of a problem on an arch, and in one sentence what chose it. reason may be NULL; static storage. */
enum gdni_kernel gdni_kernel_choose(const struct gdni_problem *problem, const struct gdni_arch *arch,
                                    const char **reason);

/* What runs of a problem whose kernel is `own` with these parameters: it, or the one with two kinds of CTAs in its place. */
enum gdni_kernel gdni_kernel_with(int32_t own, const struct gdni_params *params);

/* Values of the parameter partition_chunks that are no number of chunks. */
enum { GDNI_PARTITION_MODEL = 1, GDNI_PARTITION_NEVER = 2, GDNI_PARTITION_EVENLY = 3 };

/* Values of the parameter carry. With more state heads the Hopper kernel has enough to do without carrying states. */
enum { GDNI_CARRY_NOTHING = 1, GDNI_CARRY_STATES = 2, GDNI_MOST_CARRIED_HEADS = 64 };

/* Of a CTA of a launch that clears control words, one each (gdn_launch.cuh); words that two clear, whole clusters. */
enum { GDNI_CLEARING_THREADS = 128, GDNI_CLEARED_AT_ONCE = 2 * GDNI_CLEARING_THREADS };

/*
 * Addresses that CUDA gives a process have fewer bits than GDNI_ADDRESS_BITS. A kernel that brings its own code to L2 is told
 * its address with the number of its lines of GDNI_CODE_LINE bytes above them (gdn_code.cuh).
 */
enum { GDNI_ADDRESS_BITS = 49, GDNI_CODE_LINE = 128 };

/* Zeroed before it is filled: comparable with memcmp but for the arch pointer, which is unique per arch. */
struct gdni_spec {
    int32_t kernel; /* enum gdni_kernel */
    int32_t io_type, state_type, state_layout;
    int32_t dk, dv;
    int32_t gate, gate_type, beta, beta_type; /* prefill; conv has a gate_type, 0 without gates */
    int32_t qk_l2norm, programmatic_launch;   /* prefill */
    int32_t beta_times_2, checkpoints, zero_padding;
    int32_t cu_seqlens_type, slot_type;
    int32_t producer_registers, state_registers, aux_registers; /* Hopper prefill: of a thread, by role */
    int32_t cuts; /* the Hopper kernel: every call's sequences are in partitions; else whole, in every call */
    int32_t transit; /* it has states come and go by TMA between items, where there are maps of them */
    int32_t width, silu, bias, vector_bytes;                 /* conv */
    int32_t norm_lanes, exact_norm;                          /* conv: lanes that hold a head of q or k; 0: no norm */
    int32_t a_log_type, dt_bias_type;                        /* conv; 0 without gates */
    int32_t gate_exp, beta_rounded;                          /* conv */
    int32_t interleaved, launch_dependents, min_ctas_per_sm; /* conv */
    struct gdni_params params;
    /* derived */
    int32_t threads, smem_bytes; /* of a CTA; dynamic shared memory */
    const struct gdni_arch *arch;
};

/* GDN_E_UNSUPPORTED when the arch cannot hold it. */
gdn_status gdni_spec_build(struct gdni_spec *out, const struct gdni_problem *problem, const struct gdni_arch *arch,
                           const struct gdni_params *params);

/*
 * CTAs that an SM holds at a time, at least one: by shared memory, by threads, and by registers as far as launch bounds tell of
 * them. A conv kernel that may use all that it wants is taken at its memory and threads.
 */
int32_t gdni_spec_ctas_per_sm(const struct gdni_spec *spec);

/* Of one chunk and head, in the workspace of a kernel with two kinds of CTAs. */
int32_t gdni_prefill_image_bytes(const struct gdni_spec *spec);

/* Whether a kernel's calls may be cut into even shares: one that cuts, carries nothing, and has whole heads in a CTA. */
bool gdni_spec_cuts_evenly(const struct gdni_spec *spec);

/* Blocks of block_dv value columns that all heads of a sequence have: what CTAs of the recurrence share out. */
int64_t gdni_spec_parts(const struct gdni_spec *spec, const struct gdni_problem *problem);

/* CTAs of the recurrence that one such block has. */
int32_t gdni_spec_ctas_of_part(const struct gdni_spec *spec);

/* CTAs of a prefill call on a GPU of num_sms (conv: conv_launch.h). GDN_E_INVALID when the grid passes a CUDA limit. */
gdn_status gdni_spec_grid(const struct gdni_spec *spec, const struct gdni_problem *problem, int64_t num_tokens,
                          int64_t num_seqs, int num_sms, uint32_t grid[3]);

#endif
