"""causal_conv1d.py - causal_conv1d_fn with the signature of Tri Dao's causal-conv1d, forward alone."""

import torch

from .. import ops
from . import common

NAME = "causal_conv1d.causal_conv1d_fn"
PACKED = "pack the sequences into one row of tokens and call gdn_jit.dropin.vllm.causal_conv1d_fn with query_start_loc"


def causal_conv1d_fn(
    x,
    weight,
    bias=None,
    seq_idx=None,
    initial_states=None,
    return_final_states=False,
    final_states_out=None,
    activation=None,
):
    """out [B, C, T], or (out, final states [B, C, W - 1]); both channel-last in memory, as x is.

    x [B, C, T], channel-last (x.stride(1) == 1), as the transpose of a projection is; weight [C, W], bias [C] of x's
    dtype: bf16, fp16 or float32; C a multiple of 16, W 2, 3 or 4
    initial_states, final_states_out [B, C, W - 1]; activation None, "silu" or "swish"
    """
    silu = common.conv_activation(NAME, activation)
    _check(x, weight, bias, seq_idx, return_final_states, final_states_out)
    common.refuse_grad(NAME, x, weight, bias, initial_states, final_states_out)
    batch, channels, length = x.shape
    rows = _rows(x.transpose(1, 2))
    final = _final_states(x, weight, initial_states, return_final_states, final_states_out)
    has_initial = None
    if final is not None and initial_states is None:
        has_initial = torch.zeros(batch, dtype=torch.uint8, device=x.device)
    state, layout = (None, "cw") if final is None else common.conv_state(NAME, "final_states_out", final)
    y = ops.causal_conv1d(
        *(rows, weight, bias, state), has_initial_state=has_initial, num_seqs=batch, state_layout=layout, silu=silu
    )
    out = y.view(batch, length, channels).transpose(1, 2)
    return (out, final) if return_final_states else out


def _check(x, weight, bias, seq_idx, return_final_states, final_states_out):
    if seq_idx is not None:
        common.refuse(NAME, "seq_idx", "given", PACKED)
    if x.dim() != 3 or weight.dim() != 2 or x.shape[1] != weight.shape[0]:
        raise ValueError(f"x is {tuple(x.shape)}, weight {tuple(weight.shape)}: they are [B, C, T] and [C, W]")
    if final_states_out is not None and not return_final_states:
        remedy = "pass return_final_states=True, or leave it out: it would not be written"
        common.refuse(NAME, "final_states_out", "given and return_final_states False", remedy)
    common.check_conv_types(NAME, x, weight, bias)
    common.check_channel_last(NAME, "x", x.transpose(1, 2))


def _rows(x):
    """[B, T, C] as [B * T, C], a view."""
    batch, length, channels = x.shape
    if batch > 1 and length > 1 and x.stride(0) != length * x.stride(1):
        remedy = "rows of all sequences must have one pitch: slice a projection's columns, not its tokens; " + PACKED
        common.refuse(NAME, "x", f"of batch stride {x.stride(0)} and token stride {x.stride(1)}", remedy)
    return x.reshape(batch * length, channels)


def _final_states(x, weight, initial_states, return_final_states, final_states_out):
    """Lines that the call starts from and updates: the caller's, or others; None where nothing needs any."""
    batch, channels, history = x.shape[0], x.shape[1], weight.shape[1] - 1
    if initial_states is None and not return_final_states:
        return None
    if final_states_out is None:
        final_states_out = x.new_empty((batch, history, channels)).transpose(1, 2)
    for name, states in (("initial_states", initial_states), ("final_states_out", final_states_out)):
        if states is not None and tuple(states.shape) != (batch, channels, history):
            raise ValueError(f"{name} is {tuple(states.shape)}: this call takes {(batch, channels, history)}")
    return final_states_out if initial_states is None else final_states_out.copy_(initial_states)
