"""tokenspeed.py - tokenspeed's causal_conv1d_fn and fused_qkv_split_gdn_prefill, two Triton kernels.

Taken from a checkout, TOKENSPEED_DIR, by file, since the package around them needs a server. The table of (sequence,
chunk) pairs is built on the host beforehand, as its `metadata` argument allows: only kernels are timed, and they can
be captured.
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
BLOCK_M = 8


def load_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stand_in_for_kernel_package():
    """The split imports Triton through a package that only passes it on."""
    import triton
    import triton.language

    shim = types.ModuleType("tokenspeed_kernel._triton")
    shim.triton, shim.tl = triton, triton.language
    sys.modules.setdefault("tokenspeed_kernel", types.ModuleType("tokenspeed_kernel"))
    sys.modules["tokenspeed_kernel._triton"] = shim


class TokenSpeed(Impl):
    name = "tokenspeed"
    ops = ("conv1d_qkv",)
    variants = ("conv+split", "conv")
    launches = 2

    def __init__(self):
        top = os.environ.get("TOKENSPEED_DIR")
        if not top:
            raise SystemExit("tokenspeed: set TOKENSPEED_DIR to a checkout")
        stand_in_for_kernel_package()
        self.conv = load_file("tokenspeed_conv", pathlib.Path(top) / CONV).causal_conv1d_fn
        self.split = load_file("tokenspeed_split", pathlib.Path(top) / SPLIT).fused_qkv_split_gdn_prefill

    def versions(self):
        import triton

        return {"tokenspeed": os.environ.get("TOKENSPEED_COMMIT", "unknown"), "triton": triton.__version__}

    def before_timing(self):
        forget_triton_tuning()

    def check(self, row, variant):
        extra = set(row.features) - {"silu", "state", "bias", "pitched"}
        if extra:
            raise Unsupported(f"these two kernels have no {', '.join(sorted(extra))}")
        if variant == "conv" and "table" not in row.tags:
            raise Unsupported("the conv alone is timed on the table's rows")

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
        activation = "silu" if "silu" in row.features else None

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
            return self.split(y, *heads, rows.DIM, rows.DIM, rows.DIM), x.state

        return run
