/*
 * kernel_params.h - the launch parameters of each kernel, once: expanded here into the host's structs, and by emit_params.c
 * into the device's struct with asserts on its size and offsets.
 *
 * IN/OUT: device pointer that the kernel reads / writes. Widest fields first, so that neither side pads between them.
 */
#ifndef GDNI_KERNEL_PARAMS_H
#define GDNI_KERNEL_PARAMS_H

#include <stdint.h>

/* g, beta: [tokens, num_heads]; 0: none. cu_seqlens 0: uniform_len tokens each. *_group: state heads that share a head. */
/* clang-format off */
#define GDNI_PREFILL_PARAMS(IN, OUT, I64, I32, F32) \
    IN(void, q)                                     \
    IN(void, k)                                     \
    IN(void, v)                                     \
    IN(float, g)                                    \
    IN(float, beta)                                 \
    IN(float, initial_state)                        \
    IN(int, cu_seqlens)                             \
    OUT(void, o)                                    \
    OUT(float, final_state)                         \
    I64(q_token_stride)                             \
    I64(k_token_stride)                             \
    I64(v_token_stride)                             \
    I64(o_token_stride)                             \
    I64(uniform_len)                                \
    I32(num_heads)                                  \
    I32(q_group)                                    \
    I32(k_group)                                    \
    I32(v_group)                                    \
    I32(num_seqs)                                   \
    F32(scale)
/* clang-format on */

/*
 * bias 0 when the spec has none; slot_in 0: line n; slot_out 0: same as in; has_initial_state 0: all have; state 0: none is
 * read or written; g, beta 0: not computed. *_batch_skip: elements more from sequence to sequence than its tokens make.
 * The last block: how items become work, conv_launch.c.
 */
/* clang-format off */
#define GDNI_CONV1D_PARAMS(IN, OUT, I64, I32, F32) \
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
    OUT(void, q)                                   \
    OUT(void, k)                                   \
    OUT(void, v)                                   \
    OUT(float, g)                                  \
    OUT(float, beta)                               \
    OUT(void, state)                               \
    I64(x_stride)                                  \
    I64(x_group_stride)                            \
    I64(q_token_stride)                            \
    I64(q_head_stride)                             \
    I64(q_batch_skip)                              \
    I64(k_token_stride)                            \
    I64(k_head_stride)                             \
    I64(k_batch_skip)                              \
    I64(v_token_stride)                            \
    I64(v_head_stride)                             \
    I64(v_batch_skip)                              \
    I64(a_stride)                                  \
    I64(b_stride)                                  \
    I64(gate_group_stride)                         \
    I64(state_slot_stride)                         \
    I64(num_tokens)                                \
    I64(uniform_len)                               \
    I32(q_channels)                                \
    I32(k_channels)                                \
    I32(v_channels)                                \
    I32(head_dim_qk)                               \
    I32(head_dim_v)                                \
    I32(v_heads_per_k)                             \
    I32(num_gate_heads)                            \
    I32(gate_group)                                \
    I32(state_channel_stride)                      \
    I32(slot_in_stride)                            \
    I32(slot_out_stride)                           \
    I32(num_seqs)                                  \
    I32(row_lanes)                                 \
    I32(conv_lanes)                                \
    I32(num_tiles)                                 \
    I32(num_checkpoints)                           \
    I32(copy_rows)                                 \
    I32(reserved)
/* clang-format on */

#define GDNI_HOST_POINTER(type, name) uint64_t name;
#define GDNI_HOST_I64(name)           int64_t name;
#define GDNI_HOST_I32(name)           int32_t name;
#define GDNI_HOST_F32(name)           float name;

struct gdni_prefill_params {
    GDNI_PREFILL_PARAMS(GDNI_HOST_POINTER, GDNI_HOST_POINTER, GDNI_HOST_I64, GDNI_HOST_I32, GDNI_HOST_F32)
};

struct gdni_conv1d_params {
    GDNI_CONV1D_PARAMS(GDNI_HOST_POINTER, GDNI_HOST_POINTER, GDNI_HOST_I64, GDNI_HOST_I32, GDNI_HOST_F32)
};

#endif
