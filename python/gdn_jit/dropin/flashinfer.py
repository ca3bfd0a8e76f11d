"""flashinfer.py - chunk_gated_delta_rule with the signature of FlashInfer 0.7 (flashinfer.gdn_prefill)."""

import torch

from .. import ops, serving
from . import common

NAME = "flashinfer.chunk_gated_delta_rule"
POOLED = "call gdn_jit.ops.prefill_into(), which has checkpoints and slots to read from and to write to"
REFUSED = {
    "state_checkpoints": (None, POOLED),
    "checkpoint_cu_starts": (None, POOLED),
    "checkpoint_every_n_tokens": (0, POOLED),
    "output_state_indices": (None, POOLED + ": -1 there is a row of which nothing is computed"),
    "checkpoint_state_indices": (None, POOLED),
    "prefix_lens": (None, POOLED),
    "_cp_chunk_len": (None, "leave it out: partitions are the library's"),
    "backend": ("auto", "leave it out: a backend is one of the original's"),
}


def chunk_gated_delta_rule(
    q,
    k,
    v,
    g=None,
    beta=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    cu_seqlens=None,
    use_qk_l2norm_in_kernel=False,
    output=None,
    output_state=None,
    state_checkpoints=None,
    checkpoint_cu_starts=None,
    checkpoint_every_n_tokens=0,
    use_cp="auto",
    state_indices=None,
    _cp_chunk_len=None,
    backend="auto",
    max_seqlen=None,
    *,
    gate_domain="linear",
    use_gate_in_kernel=False,
    A_log=None,
    dt_bias=None,
    beta_is_logit=False,
    cu_seqlens_cpu=None,
    output_state_indices=None,
    checkpoint_state_indices=None,
    prefix_lens=None,
):
    """output, or (output, final state) with output_final_state.

    q [T, Hq, D], k [T, Hk, D], v [T, Hv, D]: bf16 or fp16, D = 64 or 128; state heads H = max(Hq, Hv)
    g [T, H]: alpha, linear, in [0, 1]; with gate_domain "log" its logarithm; with use_gate_in_kernel the input of
    -exp(A_log) * softplus(g + dt_bias); None: ones. beta [T, H], None: ones; with beta_is_logit sigmoid, rounded to its
    dtype. scale: None and 0 are D^-0.5, as there
    initial_state [N, H, V, K], output_state the same, of one dtype: float32, bf16 or fp16; with state_indices [N] both
    are pools, and sequence n has line state_indices[n]; output_state may be initial_state
    cu_seqlens [N + 1], required

    use_cp False: sequences stay whole (GDN_PLAN_WHOLE_SEQUENCES), "auto": the library cuts where it gains. max_seqlen
    and cu_seqlens_cpu say what cu_seqlens does: nothing here needs them, but a batch of sequences that are alike is
    faster where one of them tells so. With use_qk_l2norm_in_kernel q and k are normalised in float32 and not rounded in
    between.
    """
    common.refuse_given(
        NAME,
        REFUSED,
        state_checkpoints=state_checkpoints,
        checkpoint_cu_starts=checkpoint_cu_starts,
        checkpoint_every_n_tokens=checkpoint_every_n_tokens,
        output_state_indices=output_state_indices,
        checkpoint_state_indices=checkpoint_state_indices,
        prefix_lens=prefix_lens,
        _cp_chunk_len=_cp_chunk_len,
        backend=backend,
    )
    _check_call(q, k, v, cu_seqlens, use_cp)
    _check_gates(g, beta, gate_domain, use_gate_in_kernel, A_log, dt_bias, beta_is_logit)
    _check_states(initial_state, output_state, output_final_state, state_indices)
    common.refuse_grad(NAME, q, k, v, g, beta, initial_state, output, output_state, A_log, dt_bias)
    gate = "logits" if use_gate_in_kernel else gate_domain
    options = dict(
        g=g,
        beta=torch.sigmoid(beta.float()).to(beta.dtype) if beta_is_logit else beta,
        cu_seqlens=cu_seqlens,
        a_log=common.float32(A_log),
        dt_bias=common.float32(dt_bias),
        scale=None if not scale else float(scale),
        state_layout="vk",
        gate=gate,
        qk_l2norm=bool(use_qk_l2norm_in_kernel),
        plan_flags=0 if use_cp == "auto" else serving.WHOLE_SEQUENCES,
        max_seq_tokens=int(max_seqlen or common.longest(cu_seqlens_cpu)),
    )
    if output is None and output_state is None and state_indices is None:
        start = None if initial_state is None else initial_state.float()
        o, state = ops.prefill(q, k, v, initial_state=start, final_state=bool(output_final_state), **options)
        return (o, state) if output_final_state else o
    return _into(q, k, v, initial_state, output_final_state, output, output_state, state_indices, options)


def _into(q, k, v, initial_state, output_final_state, output, output_state, state_indices, options):
    heads = max(q.shape[1], v.shape[1])
    if output is None:
        output = q.new_empty((q.shape[0], heads, v.shape[2]))
    if output_final_state and output_state is None:
        seqs = options["cu_seqlens"].shape[0] - 1
        output_state = q.new_empty((seqs, heads, v.shape[2], q.shape[2]), dtype=torch.float32)
        initial_state = None if initial_state is None else initial_state.float()
    in_place = initial_state is not None and output_state is initial_state
    if not in_place and initial_state is not None and output_state is not None:
        initial_state = _of_one_type(initial_state, output_state, state_indices)
    slots = state_indices if initial_state is not None or output_state is not None else None
    start = None if in_place else initial_state
    ops.prefill_into(q, k, v, output, output_state, initial_state=start, in_place=in_place, slot_in=slots, **options)
    return (output, output_state) if output_final_state else output


def _of_one_type(initial_state, output_state, state_indices):
    if initial_state.dtype == output_state.dtype:
        return initial_state
    if state_indices is None and output_state.dtype == torch.float32:
        return initial_state.float()
    remedy = f"keep both in one dtype: initial_state.to({output_state.dtype})"
    return common.refuse(NAME, "initial_state", f"{initial_state.dtype} and output_state {output_state.dtype}", remedy)


def _check_call(q, k, v, cu_seqlens, use_cp):
    if cu_seqlens is None:
        raise ValueError("cu_seqlens is None: it is required, [N + 1] on the device")
    if use_cp is True:
        common.refuse(NAME, "use_cp", True, 'nothing forces partitions: pass "auto", or False for none')
    if use_cp is not False and use_cp != "auto":
        raise ValueError(f'use_cp is {use_cp!r}: pass "auto", or False for no partitions')
    common.check_io(NAME, q=q, k=k, v=v)
    if q.dim() != 3 or max(q.shape[1], v.shape[1]) < k.shape[1]:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"{shapes}: they are [T, heads, D], and k has no more heads than q or v has")


def _check_gates(g, beta, gate_domain, use_gate_in_kernel, A_log, dt_bias, beta_is_logit):
    if gate_domain not in ("linear", "log"):
        raise ValueError(f'gate_domain is {gate_domain!r}: pass "linear" or "log"')
    if use_gate_in_kernel and (g is None or A_log is None or dt_bias is None):
        raise ValueError("use_gate_in_kernel=True needs g, A_log and dt_bias")
    if not use_gate_in_kernel and not (A_log is None and dt_bias is None):
        raise ValueError("A_log and dt_bias are given, and use_gate_in_kernel is False: set it, or leave them out")
    if beta_is_logit and beta is None:
        raise ValueError("beta_is_logit=True needs beta")


def _check_states(initial_state, output_state, output_final_state, state_indices):
    for name, state in (("initial_state", initial_state), ("output_state", output_state)):
        if state is not None and state.dtype not in (torch.float32, *common.SIXTEEN_BITS):
            common.refuse(NAME, name, state.dtype, "keep states in float32, bfloat16 or float16")
    if output_state is not None and not output_final_state:
        remedy = "pass output_final_state=True, or no output_state: whether it is written depends on the original's GPU"
        common.refuse(NAME, "output_state", "given and output_final_state False", remedy)
    if state_indices is not None and output_final_state and output_state is None:
        raise ValueError("state_indices is given: output_state must be too, the pool that its lines are of")
