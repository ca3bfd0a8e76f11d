"""tokenspeed.py - tokenspeed's causal_conv1d_fn and fused_qkv_split_gdn_prefill, two Triton kernels, and what its
engine runs for norms and gates.

Taken from a checkout, TOKENSPEED_DIR, by file, since the package around them needs a server. The table of (sequence,
chunk) pairs is built on the host beforehand, as its `metadata` argument allows: only kernels are timed, and they can
be captured.

Norm and gates are not one launch there. On rows with them, `conv+split` has the norm inside the split (fuse_l2norm:
its fast path), `conv+split+l2norm` two l2norm_fwd launches behind it (its usual path); gates are fused_gdn_gating for
g and torch.sigmoid for beta, which stays 16 bit. A line's note says so. It has no checkpoints.
"""

import importlib.util
import os
import pathlib
import sys
import types

import torch

from core import rows

from .base import Impl, Unsupported, forget_triton_tuning

CONV = "python/tokenspeed/runtime/layers/attention/linear/causal_conv1d.py"
SPLIT = "tokenspeed-kernel/python/tokenspeed_kernel/ops/attention/triton/gdn_qkv_split.py"
GATING = "python/tokenspeed/runtime/layers/attention/linear/gdn.py"
L2NORM = "tokenspeed-kernel/python/tokenspeed_kernel/ops/attention/triton/linear/l2norm.py"
BLOCK_M = 8


def load_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in_for_kernel_package():
    """Split and norm import Triton through a package that only passes it on, and the norm a decorator it has no use for
    here."""
    import triton
    import triton.language

    shim = types.ModuleType("tokenspeed_kernel._triton")
    shim.triton, shim.tl = triton, triton.language
    sys.modules.setdefault("tokenspeed_kernel", types.ModuleType("tokenspeed_kernel"))
    sys.modules["tokenspeed_kernel._triton"] = shim
    utils = types.ModuleType("tokenspeed_kernel.ops.attention.triton.linear.utils")
    utils.input_guard = lambda f: f
    sys.modules[utils.__name__] = utils


class TokenSpeed(Impl):
    name = "tokenspeed"
    ops = ("conv1d_qkv",)
    variants = ("conv+split", "conv+split+l2norm", "conv")
    launches = 6

    def __init__(self):
        top = os.environ.get("TOKENSPEED_DIR")
        if not top:
            raise SystemExit("tokenspeed: set TOKENSPEED_DIR to a checkout")
        stand_in_for_kernel_package()
        self.conv = load_file("tokenspeed_conv", pathlib.Path(top) / CONV).causal_conv1d_fn
        self.split = load_file("tokenspeed_split", pathlib.Path(top) / SPLIT).fused_qkv_split_gdn_prefill
        self.gating = load_file("tokenspeed_gating", pathlib.Path(top) / GATING).fused_gdn_gating
        self.l2norm = load_file("tokenspeed_l2norm", pathlib.Path(top) / L2NORM).l2norm_fwd

    def versions(self):
        import triton

        return {"tokenspeed": os.environ.get("TOKENSPEED_COMMIT", "unknown"), "triton": triton.__version__}

    def before_timing(self):
        forget_triton_tuning()

    def check(self, row, variant):
        extra = set(row.features) - {"silu", "state", "bias", "pitched", "large", "norm", "gates"}
        if extra:
            raise Unsupported(f"these kernels have no {', '.join(sorted(extra))}")
        if variant == "conv" and "table" not in row.tags:
            raise Unsupported("the conv alone is timed on the table's rows")
        if variant == "conv+split+l2norm" and "norm" not in row.features:
            raise Unsupported("a row without the norm")

    def describe(self, row, x, variant):
        notes = []
        if "norm" in row.features:
            notes.append("norm inside the split" if variant == "conv+split" else "norm by two more launches")
        if "gates" in row.features:
            notes.append("g by fused_gdn_gating, beta by torch.sigmoid and 16 bit: two more launches")
        return dict(note="; ".join(notes)) if notes else {}

    def gates(self, row, x):
        return (self.gating(x.A_log, x.a, x.dt_bias), x.b.sigmoid()) if "gates" in row.features else ()

    def table(self, row):
        """Which program works on which eight tokens of which sequence."""
        chunks = [-(-n // BLOCK_M) for n in row.lens]
        seq = torch.tensor([n for n, c in enumerate(chunks) for _ in range(c)], dtype=torch.int32, device="cuda")
        offset = torch.tensor([i for c in chunks for i in range(c)], dtype=torch.int32, device="cuda")
        entry = dict(
            tot=sum(chunks),
            mlist=seq,
            mlist_len=len(seq),
            offsetlist=offset,
            batch_ptr=seq,
            token_chunk_offset_ptr=offset,
        )
        return types.SimpleNamespace(
            cu_seqlen=row.tokens, nums_dict={BLOCK_M: entry}, batch_ptr=seq, token_chunk_offset_ptr=offset
        )

    def prepare(self, row, x, variant):
        table, n, heads = self.table(row), len(row.lens), [d // rows.DIM for d in (row.q_dim, row.k_dim, row.v_dim)]
        state = (
            torch.zeros(n, row.channels, row.width - 1, dtype=x.x.dtype, device="cuda") if x.state is None else x.state
        )
        slots = torch.arange(n, dtype=torch.int32, device="cuda")
        has_state = torch.full((n,), x.state is not None, dtype=torch.bool, device="cuda")
        activation, norm = "silu" if "silu" in row.features else None, "norm" in row.features

        def run():
            y = self.conv(
                x.x.T,
                x.weight,
                x.bias,
                state,
                x.cu,
                cache_indices=slots,
                has_initial_state=has_state,
                activation=activation,
                metadata=table,
            ).T
            if variant == "conv":
                return y.split((row.q_dim, row.k_dim, row.v_dim), dim=1), x.state
            q, k, v = self.split(y, *heads, rows.DIM, rows.DIM, rows.DIM, fuse_l2norm=norm and variant == "conv+split")
            if variant == "conv+split+l2norm":
                q, k = self.l2norm(q), self.l2norm(k)
            return (q, k, v, *self.gates(row, x)), x.state

        return run
