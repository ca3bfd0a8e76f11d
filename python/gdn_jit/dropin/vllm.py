"""vllm.py - causal_conv1d_fn with vLLM's signature: packed sequences, a pool of conv states, lengths on the device."""

import torch

from .. import ops
from . import common

NAME = "vllm.causal_conv1d_fn"
PREFIX_CACHE = "call gdn_jit.ops.causal_conv1d() with slot_in and slot_out, or conv1d_qkv(), which has checkpoints too"
REFUSED = {
    "block_idx_first_scheduled_token": (None, PREFIX_CACHE),
    "block_idx_last_scheduled_token": (None, PREFIX_CACHE),
    "initial_state_idx": (None, PREFIX_CACHE),
    "num_computed_tokens": (None, PREFIX_CACHE),
    "block_size_to_align": (0, PREFIX_CACHE),
}


def causal_conv1d_fn(
    x,
    weight,
    bias,
    conv_states,
    query_start_loc,
    cache_indices=None,
    has_initial_state=None,
    activation="silu",
    pad_slot_id=-1,
    null_block_id=None,
    block_idx_first_scheduled_token=None,
    block_idx_last_scheduled_token=None,
    initial_state_idx=None,
    num_computed_tokens=None,
    block_size_to_align=0,
    metadata=None,
    validate_data=False,
):
    """out [C, tokens], channel-last in memory as x is; conv_states is updated in place.

    x [C, tokens], channel-last (x.stride(0) == 1); weight [C, W], bias [C] of x's dtype; C a multiple of 16, W 2 to 4
    conv_states [lines, C, W - 1 or more] of x's dtype, channels or columns adjacent
    query_start_loc [N + 1]; cache_indices [N]: a sequence's line, n where it is None; those that are pad_slot_id or
    null_block_id are not processed, and their columns of out are unspecified, as there
    has_initial_state [N] bool; None: every sequence starts from zeros, as there
    activation None, "silu", "swish" or True

    null_block_id is of newer versions, whose default is 0. Here it is None, since in older ones line 0 is a line like
    the others: pass 0, and it is nobody's. metadata is a schedule of what query_start_loc says, and validate_data asks
    for checks that are made always: nothing here needs them.
    """
    common.refuse_given(
        NAME,
        REFUSED,
        block_idx_first_scheduled_token=block_idx_first_scheduled_token,
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
        num_computed_tokens=num_computed_tokens,
        block_size_to_align=block_size_to_align,
    )
    silu = common.conv_activation(NAME, activation)
    _check(x, weight, bias, conv_states, query_start_loc, cache_indices)
    common.refuse_grad(NAME, x, weight, bias, conv_states)
    seqs = query_start_loc.shape[0] - 1
    state, layout = (None, "cw") if conv_states is None else _lines(conv_states, weight.shape[1] - 1)
    if state is not None and has_initial_state is None:
        has_initial_state = torch.zeros(seqs, dtype=torch.uint8, device=x.device)
    y = ops.causal_conv1d(
        *(x.transpose(0, 1), weight, bias, state),
        cu_seqlens=query_start_loc,
        slot_in=_slots(cache_indices, pad_slot_id, null_block_id),
        has_initial_state=has_initial_state,
        state_layout=layout,
        silu=silu,
    )
    return y.transpose(0, 1)


def _check(x, weight, bias, conv_states, query_start_loc, cache_indices):
    if x.dim() != 2 or weight.dim() != 2 or x.shape[0] != weight.shape[0]:
        raise ValueError(f"x is {tuple(x.shape)}, weight {tuple(weight.shape)}: they are [C, tokens] and [C, W]")
    if query_start_loc is None:
        raise ValueError("query_start_loc is None: it is required, [N + 1] on the device")
    common.check_conv_types(NAME, x, weight, bias)
    common.check_channel_last(NAME, "x", x.transpose(0, 1))
    if conv_states is not None and conv_states.dtype != x.dtype:
        remedy = f"the original rounds x to it: pass x.to({conv_states.dtype}), and cast the result back"
        common.refuse(NAME, "conv_states", f"{conv_states.dtype} and x {x.dtype}", remedy)
    if cache_indices is not None and cache_indices.dim() != 1:
        remedy = "pass one column, the line of each sequence; for prefix caching " + PREFIX_CACHE
        common.refuse(NAME, "cache_indices", f"of shape {tuple(cache_indices.shape)}", remedy)


def _lines(conv_states, history):
    """Columns beyond the first width - 1 are neither read nor written."""
    state, layout = common.conv_state(NAME, "conv_states", conv_states)
    if layout == "wc":
        return state[:, :history], layout
    return state, layout if state.shape[2] == history else "cw_strided"


def _slots(cache_indices, *inert):
    """-1 for each index that is one of `inert`: the library's own word for a sequence that is not processed."""
    for value in inert:
        if cache_indices is not None and value is not None and value != -1:
            cache_indices = torch.where(cache_indices == value, -1, cache_indices)
    return cache_indices
