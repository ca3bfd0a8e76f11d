"""common.py - what drop-ins share: how they refuse, and which views of tensors the operators take as they are. Knows
no function of the library, and of tensors only shapes, strides and dtypes: torch.compile traces through it.
"""

import torch

from .. import ops

SIXTEEN_BITS = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 128)  # gdn_prefill_desc's; here too, so that who may fall back learns it before anything is planned
ROW_ALIGNMENT = 8  # elements of 16 bits: q, k, v and o of a prefill keep 16 bytes


class Unsupported(NotImplementedError, ValueError):
    """Legal with the original, and nothing that this library does: the caller may fall back to the original."""


def refuse(function, argument, value, remedy):
    raise Unsupported(f"{function}: {argument} is {value}: not supported; {remedy}")


def refuse_given(function, remedies, **given):
    """Of `given`, arguments that must stay what they are by default, the first that is not. remedies: name -> (default,
    what to do).
    """
    for argument, value in given.items():
        neutral, remedy = remedies[argument]
        if value is not neutral and (isinstance(value, torch.Tensor) or value != neutral):
            refuse(function, argument, "given" if isinstance(value, torch.Tensor) else repr(value), remedy)


def check_io(function, **tensors):
    """bf16 or fp16, all of one; head dims that are equal and have a kernel. tensors: q, k, v."""
    (first, leader), *others = tensors.items()
    if leader.dtype not in SIXTEEN_BITS:
        refuse(function, first, leader.dtype, f"cast q, k and v to bfloat16 or float16: {first}.to(torch.bfloat16)")
    for name, tensor in others:
        if tensor.dtype != leader.dtype:
            refuse(function, name, f"{tensor.dtype} and {first} {leader.dtype}", f"pass {name}.to({leader.dtype})")
    for name, tensor in tensors.items():
        dim = tensor.shape[-1]
        if dim not in HEAD_DIMS or dim != leader.shape[-1]:
            remedy = "head dims are 64 or 128, those of q, k and v equal; keep the original for others"
            refuse(function, name, f"of head dim {dim}", remedy)


def rows_of_heads(tensor):
    """The tensor, or a contiguous copy where its strides are none that a call can say, as the original makes always."""
    *outer, last = tensor.stride()
    taken = last == 1 and all(n == 1 or (s > 0 and s % ROW_ALIGNMENT == 0) for n, s in zip(tensor.shape, outer))
    return tensor if taken else tensor.contiguous()


def gates(tensor):
    """Of [.., H]: any strides but those of an expanded tensor."""
    if tensor is None or all(n == 1 or s > 0 for n, s in zip(tensor.shape, tensor.stride())):
        return tensor
    return tensor.contiguous()


def float32(tensor):
    return None if tensor is None else tensor.detach().float().contiguous()


def longest(cu_seqlens_cpu):
    """Tokens of the longest sequence, for max_seq_tokens; 0 without lengths on the host."""
    if cu_seqlens_cpu is None or cu_seqlens_cpu.device.type != "cpu" or len(cu_seqlens_cpu) < 2:
        return 0
    return int((cu_seqlens_cpu[1:] - cu_seqlens_cpu[:-1]).max())


def conv_activation(function, activation):
    """Whether it is SiLU."""
    if activation is None or activation is False:
        return False
    if activation is True or activation in ("silu", "swish"):
        return True
    return refuse(function, "activation", repr(activation), 'pass None, "silu" or "swish"')


def check_conv_types(function, x, weight, bias):
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != x.dtype:
            remedy = f"cast it once, when weights are loaded: {name}.to({x.dtype})"
            refuse(function, name, f"{tensor.dtype} and x {x.dtype}", remedy)
    channels, width = weight.shape
    if channels % 16:
        remedy = "pad the channels of weight, bias and x to a multiple of 16"
        refuse(function, "weight", f"of {channels} channels", remedy)
    if not 2 <= width <= 4:
        refuse(function, "weight", f"of width {width}", "widths are 2, 3 and 4; keep the original for others")


def check_channel_last(function, name, dim):
    """x: [.., C] after the transposition, so that channels are the last index and must be adjacent."""
    if dim.shape[-1] > 1 and dim.stride(-1) != 1:
        remedy = "a token's channels must be adjacent: make x of rows, as projections are, and pass its transpose"
        refuse(function, name, "channel-first (its last index is contiguous)", remedy)


def conv_state(function, name, lines):
    """(state, state_layout) of lines [L, C, P], P >= width - 1, without a copy; width - 1 columns of them are used."""
    channel_step, column_step = lines.stride(1), lines.stride(2)
    if channel_step == 1 and lines.shape[1] > 1:
        return lines.transpose(1, 2), "wc"
    if column_step == 1 or lines.shape[2] == 1:
        return lines, "cw" if lines.is_contiguous() else "cw_strided"
    remedy = "either channels or columns of a line must be adjacent: pass a pool that is so laid out"
    return refuse(function, name, f"of strides {tuple(lines.stride())}", remedy)


def refuse_grad(function, *tensors):
    ops.refuse_grad(function, tensors)
