"""fla.py - chunk_gated_delta_rule with the signature of flash-linear-attention 0.6, forward alone."""

import torch

from .. import ops
from . import common

NAME = "fla.chunk_gated_delta_rule"
# What it takes in **kwargs, beside what is named: those that must keep their defaults, and what to do instead.
REFUSED = {
    "cp_context": (None, "one process has all tokens of a sequence: gather them, or keep the original"),
    "head_first": (False, "pass views in [B, T, H, D] order: q.transpose(1, 2)"),
    "chunk_size": (64, "chunks are of 64 tokens; results do not depend on it but for rounding: leave it out"),
}
KNOWN = ("use_gate_in_kernel", "A_log", "dt_bias", "transpose_state_layout", *REFUSED)


def chunk_gated_delta_rule(
    q,
    k,
    v,
    g,
    beta,
    scale=None,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=False,
    use_beta_sigmoid_in_kernel=False,
    allow_neg_eigval=False,
    state_v_first=False,
    cu_seqlens=None,
    cu_seqlens_cpu=None,
    chunk_indices=None,
    cp_context=None,
    **kwargs,
):
    """(o, final_state) of the gated delta rule.

    q, k [B, T, H, K], v [B, T, HV, V], HV a multiple of H: bf16 or fp16; K = V = 64 or 128
    g, beta [B, T, HV]: float32 or 16 bit; g is the log decay, or with use_gate_in_kernel the input of
    -exp(A_log) * softplus(g + dt_bias); beta is itself, or with use_beta_sigmoid_in_kernel its logits
    initial_state [N, HV, K, V], with state_v_first [N, HV, V, K]; one that is not float32 is widened by a copy
    cu_seqlens [N + 1], then B is 1
    Returns o [B, T, HV, V] of q's dtype, and the final state, float32, or None.

    cu_seqlens_cpu and chunk_indices say what cu_seqlens does: nothing here needs them, but a batch of sequences that
    are alike is faster where the former tells so. With use_qk_l2norm_in_kernel q and k are normalised in float32 and
    not rounded in between, where the original rounds them to their dtype.
    """
    given = _check_options({**kwargs, "cp_context": cp_context}, state_v_first)
    _check_shapes(q, k, v, initial_state, cu_seqlens)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval=True requires use_beta_sigmoid_in_kernel=True")
    common.check_io(NAME, q=q, k=k, v=v)
    common.refuse_grad(NAME, q, k, v, g, beta, initial_state, given["A_log"], given["dt_bias"])
    o, final_state = ops.prefill(
        *(common.rows_of_heads(t) for t in (q, k, v)),
        common.gates(g),
        common.gates(beta),
        initial_state=None if initial_state is None else initial_state.float().contiguous(),
        cu_seqlens=cu_seqlens,
        a_log=common.float32(given["A_log"]),
        dt_bias=common.float32(given["dt_bias"]),
        scale=scale,
        final_state=bool(output_final_state),
        state_type=torch.float32,
        state_layout="vk" if given["state_v_first"] else "kv",
        gate="logits" if given["use_gate_in_kernel"] else "log",
        beta_kind="logits" if use_beta_sigmoid_in_kernel else "plain",
        beta_times_2=bool(allow_neg_eigval),
        qk_l2norm=bool(use_qk_l2norm_in_kernel),
        max_seq_tokens=common.longest(cu_seqlens_cpu),
    )
    return o, final_state if output_final_state else None


def _check_options(kwargs, state_v_first):
    unknown = [name for name in kwargs if name not in KNOWN]
    if unknown:
        raise TypeError(f"{NAME} got an unexpected keyword argument {unknown[0]!r}")
    common.refuse_given(NAME, REFUSED, **{name: value for name, value in kwargs.items() if name in REFUSED})
    if "transpose_state_layout" in kwargs and state_v_first:
        raise ValueError("state_v_first and transpose_state_layout are two names of one thing: pass the first alone")
    use_gate, a_log, dt_bias = (kwargs.get(name) for name in ("use_gate_in_kernel", "A_log", "dt_bias"))
    if use_gate and a_log is None:
        raise ValueError("use_gate_in_kernel=True needs A_log, [HV]")
    if not use_gate and not (a_log is None and dt_bias is None):
        raise ValueError("A_log and dt_bias are given, and use_gate_in_kernel is not: set it, or leave them out")
    v_first = kwargs.get("transpose_state_layout", state_v_first)
    return dict(use_gate_in_kernel=use_gate, A_log=a_log, dt_bias=dt_bias, state_v_first=v_first)


def _check_shapes(q, k, v, initial_state, cu_seqlens):
    if q.dim() != 4 or q.shape[2] != k.shape[2] or v.shape[2] % q.shape[2]:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"{shapes}: q and k are [B, T, H, K], v is [B, T, HV, V], and HV is a multiple of H")
    if cu_seqlens is not None and q.shape[0] != 1:
        raise ValueError(f"q has batch size {q.shape[0]}: with cu_seqlens it is 1; flatten the sequences into one row")
    seqs = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if initial_state is not None and initial_state.shape[0] != seqs:
        raise ValueError(f"initial_state is of {initial_state.shape[0]} sequences: this call has {seqs}")


chunk_gdn = chunk_gated_delta_rule
