/*
 * kernel_params.h - the launch parameters of each kernel, once: expanded here into the host's structs, and by emit_params.c
 * into the device's struct with asserts on its size and offsets.
 *
 * IN/OUT: device pointer that the kernel reads / writes. Widest fields first, so that neither side pads between them.
 */
#ifndef GDNI_KERNEL_PARAMS_H
#define GDNI_KERNEL_PARAMS_H

#include <stdint.h>

/*
 * Strides in elements, defaults filled in. Row t of sequence n is row cu_seqlens[n] + t of batch 0, or without cu_seqlens
 * row t of batch n, of uniform_len tokens. State head h reads q head h / q_div % q_mod, and so on. Of g, beta, states, slots,
 * flags and checkpoints 0 is none. Of the split
 * kernel: control (a ticket counter and a flag for each image, zeros), images, image_rows (of a head), num_producers. Of the
 * Hopper kernel: control (a ticket counter and what partitions agree by, zeros), images (states between partitions).
 */
/* clang-format off */
#define GDNI_PREFILL_PARAMS(IN, OUT, I64, I32, F32) \
    IN(void, q)                                     \
    IN(void, k)                                     \
    IN(void, v)                                     \
    IN(void, g)                                     \
    IN(void, beta)                                  \
    IN(float, a_log)                                \
    IN(float, dt_bias)                              \
    IN(void, initial_state)                         \
    IN(void, slot_in)                               \
    IN(void, slot_out)                              \
    IN(unsigned char, has_initial_state)            \
    IN(void, cu_seqlens)                            \
    IN(long long, checkpoints)                      \
    OUT(void, o)                                    \
    OUT(void, final_state)                          \
    OUT(unsigned char, images)                      \
    OUT(unsigned, control)                          \
    I64(q_batch_stride)                             \
    I64(q_token_stride)                             \
    I64(q_head_stride)                              \
    I64(k_batch_stride)                             \
    I64(k_token_stride)                             \
    I64(k_head_stride)                              \
    I64(v_batch_stride)                             \
    I64(v_token_stride)                             \
    I64(v_head_stride)                              \
    I64(o_batch_stride)                             \
    I64(o_token_stride)                             \
    I64(o_head_stride)                              \
    I64(g_batch_stride)                             \
    I64(g_token_stride)                             \
    I64(g_head_stride)                              \
    I64(beta_batch_stride)                          \
    I64(beta_token_stride)                          \
    I64(beta_head_stride)                           \
    I64(initial_slot_stride)                        \
    I64(final_slot_stride)                          \
    I64(uniform_len)                                \
    I64(image_rows)                                 \
    I64(num_tokens)                                 \
    I32(slot_in_stride)                             \
    I32(slot_out_stride)                            \
    I32(num_checkpoints)                            \
    I32(num_heads)                                  \
    I32(q_div)                                      \
    I32(q_mod)                                      \
    I32(k_div)                                      \
    I32(k_mod)                                      \
    I32(v_div)                                      \
    I32(v_mod)                                      \
    I32(num_seqs)                                   \
    I32(num_producers)                              \
    F32(scale)
/* clang-format on */

/*
 * The same, and of the Hopper kernel alone: chunks of a partition (0: sequences are whole); a bound of its items, which are
 * pairs of a sequence or a row of partitions and block_dv columns of a head; what a token is divided by to get its row, and an
 * item to get its sequence or row (division.h); carry (enum gdni_carry); t_images (T that is wanted again); most_forgetting
 * (chunks, 0: see partition.h); scale = p_scale, for P and Q S, times late_scale, for O; tensor maps of the rows of q, k, v, o,
 * 64 tokens at a time and of o 64 columns, of v block_dv; states_by_map: there are maps of the pools of states, of those that
 * there are; gang: CTAs may have even shares, so many side by side (control: a ticket and a word a CTA; images: a state a CTA),
 * 0: no.
 */
/* clang-format off */
#define GDNI_PREFILL_HOPPER_PARAMS(IN, OUT, I64, I32, F32, MAP) \
    GDNI_PREFILL_PARAMS(IN, OUT, I64, I32, F32)                 \
    I32(partition)                                              \
    I32(num_items)                                              \
    I32(row_magic)                                              \
    I32(row_shift)                                              \
    I32(parts_magic)                                            \
    I32(parts_shift)                                            \
    I32(carry)                                                  \
    OUT(unsigned char, t_images)                                \
    I32(most_forgetting)                                        \
    F32(p_scale)                                                \
    F32(late_scale)                                             \
    I32(states_by_map)                                          \
    I32(gang)                                                   \
    MAP(q_map)                                                  \
    MAP(k_map)                                                  \
    MAP(v_map)                                                  \
    MAP(o_map)                                                  \
    MAP(initial_map)                                            \
    MAP(final_map)
/* clang-format on */

/*
 * bias 0 when the spec has none; slot_in 0: line n; slot_out 0: same as in; has_initial_state 0: all have; state 0: none is
 * read or written; g, beta 0: not computed. Of q, k, v, in that order (..._3): head_gap, elements more from head to head than
 * its channels are; batch_skip, elements more from sequence to sequence than its tokens make.
 * The last block: how items become work, conv_launch.c.
 */
/* clang-format off */
#define GDNI_CONV1D_PARAMS(IN, OUT, I64, I32, OUT_3, I64_3, I32_3) \
    IN(void, x)                                    \
    IN(void, weight)                               \
    IN(void, bias)                                 \
    IN(void, a)                                    \
    IN(void, b)                                    \
    IN(void, a_log)                                \
    IN(void, dt_bias)                              \
    IN(void, slot_in)                              \
    IN(void, slot_out)                             \
    IN(unsigned char, has_initial_state)           \
    IN(void, cu_seqlens)                           \
    IN(long long, checkpoints)                     \
    OUT_3(void, out)                               \
    OUT(float, g)                                  \
    OUT(float, beta)                               \
    OUT(void, state)                               \
    I64(x_stride)                                  \
    I64(x_group_stride)                            \
    I64_3(token_stride)                            \
    I64_3(head_gap)                                \
    I64_3(batch_skip)                              \
    I64(a_stride)                                  \
    I64(b_stride)                                  \
    I64(gate_group_stride)                         \
    I64(state_slot_stride)                         \
    I64(num_tokens)                                \
    I64(uniform_len)                               \
    I32_3(channels)                                \
    I32_3(head_magic)                              \
    I32(head_dim_qk)                               \
    I32(head_dim_v)                                \
    I32(v_heads_per_k)                             \
    I32(num_gate_heads)                            \
    I32(gate_group)                                \
    I32(state_channel_stride)                      \
    I32(slot_in_stride)                            \
    I32(slot_out_stride)                           \
    I32(num_seqs)                                  \
    I32(row_magic)                                 \
    I32(row_shift)                                 \
    I32(row_lanes)                                 \
    I32(gate_warps)                                \
    I32(gate_step)                                 \
    I32(gate_tokens)                               \
    I32(gate_ctas)                                 \
    I32(num_tiles)                                 \
    I32(late_tiles)                                \
    I32(num_checkpoints)                           \
    I32(copy_rows)
/* clang-format on */

#define GDNI_HOST_POINTER(type, name)   uint64_t name;
#define GDNI_HOST_I64(name)             int64_t name;
#define GDNI_HOST_I32(name)             int32_t name;
#define GDNI_HOST_F32(name)             float name;
#define GDNI_HOST_POINTER_3(type, name) uint64_t name[3];
#define GDNI_HOST_I64_3(name)           int64_t name[3];
#define GDNI_HOST_I32_3(name)           int32_t name[3];

struct gdni_prefill_params {
    GDNI_PREFILL_PARAMS(GDNI_HOST_POINTER, GDNI_HOST_POINTER, GDNI_HOST_I64, GDNI_HOST_I32, GDNI_HOST_F32)
};

/* CUtensorMap. */
struct gdni_tensor_map {
    unsigned char bytes[128] __attribute__((aligned(64)));
};
#define GDNI_HOST_MAP(name) struct gdni_tensor_map name;

/* Begins as struct gdni_prefill_params does. */
struct gdni_prefill_hopper_params {
    GDNI_PREFILL_HOPPER_PARAMS(GDNI_HOST_POINTER, GDNI_HOST_POINTER, GDNI_HOST_I64, GDNI_HOST_I32, GDNI_HOST_F32,
                               GDNI_HOST_MAP)
};

struct gdni_conv1d_params {
    GDNI_CONV1D_PARAMS(GDNI_HOST_POINTER, GDNI_HOST_POINTER, GDNI_HOST_I64, GDNI_HOST_I32, GDNI_HOST_POINTER_3,
                       GDNI_HOST_I64_3, GDNI_HOST_I32_3)
};

#endif
