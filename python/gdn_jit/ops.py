"""ops.py - torch operators gdn_jit::prefill, prefill_into, conv1d_qkv and causal_conv1d, with fake kernels, so that
torch.compile and torch.export see their shapes. Needs torch 2.4 or newer.

Tensors of a GPU run the plan that serving.py has for them, on torch's current stream, of any device (eager.py); tensors
of the host run the library's host reference: float64, exact, slow, for tests. Inference only: a tensor that requires
grad is refused while grad mode is on.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from . import eager
from .eager import operator, refuse_grad

MaybeTensor = Optional[Tensor]

# Written out, since torch 2.4 infers no defaults that are texts.
_TENSORS = "Tensor? g=None, Tensor? beta=None, Tensor? initial_state=None, Tensor? cu_seqlens=None"
_OPTIONS = (
    'str state_layout="kv", str head_map="grouped", str gate="log", str beta_kind="plain", bool qk_l2norm=False, '
    "bool beta_times_2=False, bool zero_padding=False, int plan_flags=0, SymInt max_seq_tokens=0"
)
PREFILL = (
    f"(Tensor q, Tensor k, Tensor v, {_TENSORS}, Tensor? has_initial_state=None, Tensor? a_log=None, "
    "Tensor? dt_bias=None, float? scale=None, bool final_state=False, ScalarType? state_type=None, "
    f"{_OPTIONS}) -> (Tensor, Tensor)"
)
PREFILL_INTO = (
    f"(Tensor q, Tensor k, Tensor v, Tensor(a!) o, Tensor(b!)? final_state=None, {_TENSORS}, Tensor? slot_in=None, "
    "Tensor? slot_out=None, Tensor? has_initial_state=None, Tensor? checkpoints=None, Tensor? a_log=None, "
    f"Tensor? dt_bias=None, float? scale=None, bool in_place=False, {_OPTIONS}) -> ()"
)
_CONV_TENSORS = (
    "Tensor? bias=None, Tensor(a!)? state=None, Tensor? cu_seqlens=None, Tensor? slot_in=None, Tensor? slot_out=None, "
    "Tensor? has_initial_state=None"
)
CONV1D_QKV = (
    "(Tensor x, Tensor weight, int num_q_heads, int num_k_heads, int num_v_heads, int head_dim_qk, int head_dim_v, "
    f"{_CONV_TENSORS}, Tensor? checkpoints=None, Tensor? a=None, Tensor? b=None, Tensor? a_log=None, "
    "Tensor? dt_bias=None, SymInt num_seqs=1, int num_gate_heads=0, int gate_group_stride=0, "
    'str state_layout="cw", str x_layout="packed", int x_group_stride=0, bool silu=True, bool l2_norm=False, '
    "bool exact_norm=False, bool zero_padding=False, bool gate_exp=False, bool beta_rounded=False, "
    "bool beta_times_2=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
CAUSAL_CONV1D = (
    f"(Tensor x, Tensor weight, {_CONV_TENSORS}, SymInt num_seqs=1, "
    'str state_layout="cw", bool silu=True, bool zero_padding=False) -> Tensor'
)


def _refuse_backward(_ctx, *_grads):
    raise RuntimeError("gdn_jit's operators are for inference and have no backward: call them under torch.no_grad()")


def _flags(**named):
    return tuple(name for name, is_set in named.items() if is_set)


def _types(**named):
    """Members of a descriptor that are a tensor's dtype; of what is not given they stay as they are."""
    return {member: tensor.dtype for member, tensor in named.items() if tensor is not None}


def _first(*tensors):
    return next((t for t in tensors if t is not None), None)


def _seqs(batched, cu_seqlens):
    """Sequences of a call, from shapes alone: cu_seqlens' values stay on the device."""
    if cu_seqlens is not None:
        return cu_seqlens.shape[0] - 1
    return batched.shape[0] if batched.dim() == 4 else 1


# ---- prefill ----


def _state_heads(q, k, v):
    return max(q.shape[-2], k.shape[-2], v.shape[-2])


def _new_o(q, k, v):
    return q.new_empty((*q.shape[:-2], _state_heads(q, k, v), v.shape[-1]))


def _new_state(q, k, v, seqs, state_layout, dtype):
    dims = (q.shape[-1], v.shape[-1])
    return q.new_empty((seqs, _state_heads(q, k, v), *(dims if state_layout == "kv" else dims[::-1])), dtype=dtype)


def _describe_prefill(args, options):
    """As eager.run() asks for it."""
    state_type, state_layout, head_map, gate, beta, flags = options
    q, k, v, cu_seqlens = args["q"], args["k"], args["v"], args["cu_seqlens"]
    desc = dict(io_type=q.dtype, num_q_heads=q.shape[-2], num_k_heads=k.shape[-2], num_v_heads=v.shape[-2])
    desc.update(head_dim_qk=q.shape[-1], head_dim_v=v.shape[-1], state_layout=state_layout, head_map=head_map)
    desc.update(gate=gate, beta=beta, flags=flags + _flags(checkpoints=args.get("checkpoints") is not None))
    desc.update(_types(state_type=_first(args["final_state"], args["initial_state"])))
    desc.update({} if state_type is None else dict(state_type=state_type))
    desc.update(_types(slot_type=_first(args.get("slot_in"), args.get("slot_out")), cu_seqlens_type=cu_seqlens))
    desc.update(_types(gate_type=args["g"], beta_type=args["beta"]))
    return desc, dict(num_tokens=q.shape[:-2].numel(), num_seqs=_seqs(q, cu_seqlens))


@operator("prefill", PREFILL)
def _prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: MaybeTensor = None,
    beta: MaybeTensor = None,
    initial_state: MaybeTensor = None,
    cu_seqlens: MaybeTensor = None,
    has_initial_state: MaybeTensor = None,
    a_log: MaybeTensor = None,
    dt_bias: MaybeTensor = None,
    scale: Optional[float] = None,
    final_state: bool = False,
    state_type: Optional[torch.dtype] = None,
    state_layout: str = "kv",
    head_map: str = "grouped",
    gate: str = "log",
    beta_kind: str = "plain",
    qk_l2norm: bool = False,
    beta_times_2: bool = False,
    zero_padding: bool = False,
    plan_flags: int = 0,
    max_seq_tokens: int = 0,
) -> Tuple[Tensor, Tensor]:
    o, state = _prefill_outputs(q, k, v, initial_state, cu_seqlens, final_state, state_type, state_layout)
    args = dict(q=q, k=k, v=v, g=g, beta=beta, o=o, initial_state=initial_state, cu_seqlens=cu_seqlens)
    args.update(final_state=state if final_state else None, has_initial_state=has_initial_state)
    args.update(a_log=a_log, dt_bias=dt_bias, scale=scale, max_seq_tokens=max_seq_tokens)
    flags = _flags(qk_l2norm=qk_l2norm, beta_times_2=beta_times_2, zero_padding=zero_padding)
    options = (state.dtype, state_layout, head_map, gate, beta_kind, flags)
    eager.run("prefill", _describe_prefill, args, options, q.device, plan_flags)
    return o, state


def _prefill_outputs(q, k, v, initial_state, cu_seqlens, final_state, state_type, state_layout):
    """(o, final state); of no lines where it is not asked for."""
    lines = _seqs(q, cu_seqlens) if final_state else 0
    dtype = state_type or (torch.float32 if initial_state is None else initial_state.dtype)
    return _new_o(q, k, v), _new_state(q, k, v, lines, state_layout, dtype)


@torch.library.register_fake("gdn_jit::prefill")
def _(
    q,
    k,
    v,
    g=None,
    beta=None,
    initial_state=None,
    cu_seqlens=None,
    has_initial_state=None,
    a_log=None,
    dt_bias=None,
    scale=None,
    final_state=False,
    state_type=None,
    state_layout="kv",
    *_,
    **__,
):
    return _prefill_outputs(q, k, v, initial_state, cu_seqlens, final_state, state_type, state_layout)


_prefill.definition.register_autograd(_refuse_backward)


def prefill(q, k, v, g=None, beta=None, **options):
    """GDN prefill; allocates what it returns: (o, final_state), final_state of no lines unless it is asked for.

    q [T, Hq, DK] or [B, T, Hq, DK], k, v likewise: bf16 or fp16, any strides with the head dim contiguous
    g, beta [T, H] or [B, T, H], H = max(Hq, Hk, Hv): float32, bf16 or fp16; None: no decay, ones
    initial_state [N, H, DK, DV] (state_layout "vk": [N, H, DV, DK]), cu_seqlens [N + 1] int32 or int64, on the device;
    has_initial_state [N] uint8 or bool; scale: None is DK^-0.5; final_state: whether to compute it; state_type: its
    dtype, initial_state's or float32 where it is None; gate "log", "linear", "logits" (with a_log, dt_bias [H]
    float32); beta_kind "plain", "logits"; head_map "grouped", "tiled"; qk_l2norm; beta_times_2; zero_padding;
    plan_flags, a number of GDN_PLAN_*; max_seq_tokens: what no sequence of cu_seqlens is longer than, as the host knows
    it; 0: not known. It is for speed alone.
    ValueError, GdnError: the sentence has the member, its value and the remedy.
    """
    refuse_grad("gdn_jit.ops.prefill", (q, k, v, g, beta, *options.values()))
    return _prefill(q, k, v, g, beta, **options)


@operator("prefill_into", PREFILL_INTO, writes=("o", "final_state"))
def _prefill_into(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    final_state: MaybeTensor = None,
    g: MaybeTensor = None,
    beta: MaybeTensor = None,
    initial_state: MaybeTensor = None,
    cu_seqlens: MaybeTensor = None,
    slot_in: MaybeTensor = None,
    slot_out: MaybeTensor = None,
    has_initial_state: MaybeTensor = None,
    checkpoints: MaybeTensor = None,
    a_log: MaybeTensor = None,
    dt_bias: MaybeTensor = None,
    scale: Optional[float] = None,
    in_place: bool = False,
    state_layout: str = "kv",
    head_map: str = "grouped",
    gate: str = "log",
    beta_kind: str = "plain",
    qk_l2norm: bool = False,
    beta_times_2: bool = False,
    zero_padding: bool = False,
    plan_flags: int = 0,
    max_seq_tokens: int = 0,
) -> None:
    args = dict(q=q, k=k, v=v, g=g, beta=beta, o=o, final_state=final_state, cu_seqlens=cu_seqlens)
    args.update(initial_state=final_state if in_place else initial_state, has_initial_state=has_initial_state)
    args.update(slot_in=slot_in, slot_out=slot_out, checkpoints=checkpoints, a_log=a_log, dt_bias=dt_bias)
    args.update(scale=scale, max_seq_tokens=max_seq_tokens)
    flags = _flags(qk_l2norm=qk_l2norm, beta_times_2=beta_times_2, zero_padding=zero_padding)
    options = (None, state_layout, head_map, gate, beta_kind, flags)
    eager.run("prefill", _describe_prefill, args, options, q.device, plan_flags)


@torch.library.register_fake("gdn_jit::prefill_into")
def _(*_, **__):
    return None


def prefill_into(q, k, v, o, final_state=None, **options):
    """prefill() into the caller's o [T, H, DV] or [B, T, H, DV], and into lines of final_state, a pool.

    slot_in, slot_out [N] int32 or int64: lines that sequences start from and end in, -1 for an inert row; in_place:
    they start from lines of final_state too, and initial_state is not given; checkpoints [M, 3] int64
    (docs/prefill.md).
    The rest as of prefill(); final_state's dtype is the states'.
    """
    refuse_grad("gdn_jit.ops.prefill_into", (q, k, v, o, final_state, *options.values()))
    if options.get("in_place") and (options.get("initial_state") is not None or final_state is None):
        raise ValueError("in_place is True: states are read from and written to final_state: give it, and no other")
    _prefill_into(q, k, v, o, final_state, **options)


# ---- conv1d-QKV ----


def x_alignment(x, group_stride=0):
    """Bytes, up to 16, that x's address, rows and groups are multiples of: part of what a kernel is compiled for."""
    spread = x.data_ptr() | x.stride(0) * x.element_size() | group_stride * x.element_size()
    return min(16, spread & -spread) if spread else 16


def rows(x):
    """x with a pitch that says something: that of a single row is whatever it was a slice of. What is no matrix, or of
    columns that lie apart, stays what it is, and is refused.
    """
    if x.dim() != 2 or x.shape[0] > 1 or (x.shape[1] > 1 and x.stride(1) != 1):
        return x
    return x.as_strided(x.shape, (x.shape[1], 1))


def _new_qkv(x, heads, gates):
    """Empty q, k, v, g, beta; gates: (heads of g, heads of beta)."""
    rows = x.shape[0]
    qkv = [x.new_empty((rows, count, dim)) for count, dim in heads]
    return (*qkv, *(x.new_empty((rows if count else 0, count), dtype=torch.float32) for count in gates))


@operator("conv1d_qkv", CONV1D_QKV, writes=("state",))
def _conv1d_qkv(
    x: Tensor,
    weight: Tensor,
    num_q_heads: int,
    num_k_heads: int,
    num_v_heads: int,
    head_dim_qk: int,
    head_dim_v: int,
    bias: MaybeTensor = None,
    state: MaybeTensor = None,
    cu_seqlens: MaybeTensor = None,
    slot_in: MaybeTensor = None,
    slot_out: MaybeTensor = None,
    has_initial_state: MaybeTensor = None,
    checkpoints: MaybeTensor = None,
    a: MaybeTensor = None,
    b: MaybeTensor = None,
    a_log: MaybeTensor = None,
    dt_bias: MaybeTensor = None,
    num_seqs: int = 1,
    num_gate_heads: int = 0,
    gate_group_stride: int = 0,
    state_layout: str = "cw",
    x_layout: str = "packed",
    x_group_stride: int = 0,
    silu: bool = True,
    l2_norm: bool = False,
    exact_norm: bool = False,
    zero_padding: bool = False,
    gate_exp: bool = False,
    beta_rounded: bool = False,
    beta_times_2: bool = False,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x, heads = rows(x), ((num_q_heads, head_dim_qk), (num_k_heads, head_dim_qk), (num_v_heads, head_dim_v))
    q, k, v, g, beta = _new_qkv(x, heads, _gates(num_gate_heads, a, b))
    args = dict(x=x, weight=weight, bias=bias, a=a, b=b, a_log=a_log, dt_bias=dt_bias, state=state, slot_in=slot_in)
    args.update(slot_out=slot_out, has_initial_state=has_initial_state, cu_seqlens=cu_seqlens, checkpoints=checkpoints)
    args.update(q=q if num_q_heads else None, k=k if num_k_heads else None, v=v if num_v_heads else None)
    args.update(g=g if a is not None else None, beta=beta if b is not None else None, x_group_stride=x_group_stride)
    args.update(gate_group_stride=gate_group_stride)
    flags = _flags(silu=silu, l2_norm=l2_norm, exact_norm=exact_norm, zero_padding=zero_padding)
    flags += _flags(gate_exp=gate_exp, beta_rounded=beta_rounded, beta_times_2=beta_times_2)
    alignment = x_alignment(x, x_group_stride)
    options = (heads, num_gate_heads, state_layout, x_layout, alignment, num_seqs, flags)
    eager.run("conv1d_qkv", _describe_conv, args, options, x.device)
    return q, k, v, g, beta


def _describe_conv(args, options):
    """As eager.run() asks for it."""
    ((q, dim_qk), (k, _), (v, dim_v)), gates, state_layout, x_layout, alignment, num_seqs, flags = options
    x, cu_seqlens = args["x"], args["cu_seqlens"]
    flags += _flags(bias=args["bias"] is not None, checkpoints=args.get("checkpoints") is not None)
    desc = dict(io_type=x.dtype, state_layout=state_layout, x_layout=x_layout, width=args["weight"].shape[-1])
    desc.update(flags=flags, num_q_heads=q, num_k_heads=k, num_v_heads=v, head_dim_qk=dim_qk, head_dim_v=dim_v)
    desc.update(num_gate_heads=gates, x_alignment=alignment, **_types(cu_seqlens_type=cu_seqlens))
    desc.update(_types(state_type=args["state"], slot_type=_first(args["slot_in"], args["slot_out"])))
    desc.update(_types(gate_type=_first(args.get("a"), args.get("b"))))
    desc.update(_types(a_log_type=args.get("a_log"), dt_bias_type=args.get("dt_bias")))
    seqs = num_seqs if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return desc, dict(num_tokens=x.shape[0], num_seqs=seqs)


def _gates(heads, a, b):
    return heads if a is not None else 0, heads if b is not None else 0


@torch.library.register_fake("gdn_jit::conv1d_qkv")
def _(x, weight, num_q_heads, num_k_heads, num_v_heads, head_dim_qk, head_dim_v, *more, **named):
    taken = dict(zip(CONV_OPTIONS, more), **named)
    heads = ((num_q_heads, head_dim_qk), (num_k_heads, head_dim_qk), (num_v_heads, head_dim_v))
    return _new_qkv(x, heads, _gates(taken.get("num_gate_heads", 0), taken.get("a"), taken.get("b")))


CONV_OPTIONS = ("bias", "state", "cu_seqlens", "slot_in", "slot_out", "has_initial_state", "checkpoints", "a", "b")
CONV_OPTIONS += ("a_log", "dt_bias", "num_seqs", "num_gate_heads")


def conv1d_qkv(x, weight, **options):
    """conv1d-QKV; allocates (q, k, v, g, beta) [T, heads, dim] and [T, num_gate_heads], updates `state` in place.

    x [T, columns] with contiguous columns, any pitch; weight [C, width], bias [C], of x's dtype; head counts and dims
    as of the descriptor. a, b [T, num_gate_heads]: g, beta of them, float32; of no rows where it is None.
    state: lines of [C, width - 1] (state_layout "cw"), [width - 1, C] ("wc") or [C, pitch] ("cw_strided"); slot_in,
    slot_out, has_initial_state, checkpoints, cu_seqlens as of prefill_into(); without cu_seqlens num_seqs sequences of
    equal lengths. The rest are members and flags of gdn_conv1d_desc (docs/conv1d_qkv.md).
    """
    refuse_grad("gdn_jit.ops.conv1d_qkv", (x, weight, *options.values()))
    return _conv1d_qkv(x, weight, **options)


def channel_heads(channels):
    """(heads, dim) that `channels` are for a conv without norm, where heads mean nothing."""
    dim = next((d for d in (128, 64, 32, 16) if channels % d == 0), None)
    if dim is None:
        raise ValueError(f"weight has {channels} channels: conv1d-QKV takes multiples of 16; pad weight and x")
    return channels // dim, dim


@operator("causal_conv1d", CAUSAL_CONV1D, writes=("state",))
def _causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: MaybeTensor = None,
    state: MaybeTensor = None,
    cu_seqlens: MaybeTensor = None,
    slot_in: MaybeTensor = None,
    slot_out: MaybeTensor = None,
    has_initial_state: MaybeTensor = None,
    num_seqs: int = 1,
    state_layout: str = "cw",
    silu: bool = True,
    zero_padding: bool = False,
) -> Tensor:
    x, y = rows(x), x.new_empty((x.shape[0], weight.shape[0]))
    args = dict(x=x, weight=weight, bias=bias, v=y, state=state, slot_in=slot_in, slot_out=slot_out)
    args.update(has_initial_state=has_initial_state, cu_seqlens=cu_seqlens)
    heads = ((0, 0), (0, 0), channel_heads(weight.shape[0]))
    flags = _flags(silu=silu, zero_padding=zero_padding)
    options = (heads, 0, state_layout, "packed", x_alignment(x), num_seqs, flags)
    eager.run("conv1d_qkv", _describe_conv, args, options, x.device)
    return y


@torch.library.register_fake("gdn_jit::causal_conv1d")
def _(x, weight, *_, **__):
    return x.new_empty((x.shape[0], weight.shape[0]))


def causal_conv1d(x, weight, bias=None, state=None, **options):
    """conv1d_qkv() of channels that are not split: y [T, C] for weight [C, width], updates `state` in place."""
    refuse_grad("gdn_jit.ops.causal_conv1d", (x, weight, bias, state, *options.values()))
    return _causal_conv1d(x, weight, bias, state, **options)
