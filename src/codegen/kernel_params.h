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
 * g, beta: [tokens, num_heads]; 0: none. cu_seqlens 0: uniform_len tokens each. *_group: state heads that share a head. Of the
 * split kernel alone: control (a ticket counter and a flag for each image, zeros), images, image_rows (of a head), num_producers.
 */
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
    OUT(unsigned char, images)                      \
    OUT(unsigned, control)                          \
    I64(q_token_stride)                             \
    I64(k_token_stride)                             \
    I64(v_token_stride)                             \
    I64(o_token_stride)                             \
    I64(uniform_len)                                \
    I64(image_rows)                                 \
    I32(num_heads)                                  \
    I32(q_group)                                    \
    I32(k_group)                                    \
    I32(v_group)                                    \
    I32(num_seqs)                                   \
    I32(num_producers)                              \
    F32(scale)
/* clang-format on */

/* bias 0 when the spec has none; slots 0: line n; has_initial_state 0: all have; state 0: none is read or written. */
/* clang-format off */
#define GDNI_CONV1D_PARAMS(IN, OUT, I64, I32, F32) \
    IN(void, x)                                    \
    IN(void, weight)                               \
    IN(void, bias)                                 \
    IN(int, slots)                                 \
    IN(unsigned char, has_initial_state)           \
    IN(int, cu_seqlens)                            \
    OUT(void, q)                                   \
    OUT(void, k)                                   \
    OUT(void, v)                                   \
    OUT(void, state)                               \
    I64(x_stride)                                  \
    I64(num_tokens)                                \
    I64(uniform_len)                               \
    I32(q_channels)                                \
    I32(k_channels)                                \
    I32(v_channels)                                \
    I32(num_seqs)
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
