"""sglang.py - sglang's Triton causal_conv1d_fn, host lengths given, followed by a split that copies nothing (views).

Taken from a file, SGLANG_CONV1D (python/sglang/srt/layers/attention/mamba/causal_conv1d_triton.py of a checkout),
which needs torch and Triton only. Its q, k, v are strided views of one tensor: what follows has to take strides.
"""

import os

import torch

from .base import Impl, Unsupported
from .tokenspeed import load_file


class Sglang(Impl):
    name = "sglang"
    ops = ("conv1d_qkv",)
    variants = ("conv",)
    launches = 2

    def __init__(self):
        path = os.environ.get("SGLANG_CONV1D")
        if not path:
            raise SystemExit("sglang: set SGLANG_CONV1D to causal_conv1d_triton.py")
        self.conv = load_file("sglang_conv", path).causal_conv1d_fn

    def versions(self):
        import triton

        return {"sglang": os.environ.get("SGLANG_COMMIT", "unknown"), "triton": triton.__version__}

    def check(self, row, variant):
        extra = set(row.features) - {"silu", "state", "bias", "pitched", "large"}
        if extra:
            raise Unsupported(f"this kernel has no {', '.join(sorted(extra))}")

    def prepare(self, row, x, variant):
        n, lens = len(row.lens), list(row.lens)
        state = (
            torch.zeros(n, row.channels, row.width - 1, dtype=x.x.dtype, device="cuda") if x.state is None else x.state
        )
        slots = torch.arange(n, dtype=torch.int32, device="cuda")
        has_state = torch.full((n,), x.state is not None, dtype=torch.bool, device="cuda")

        def run():
            y = self.conv(
                x.x.T,
                x.weight,
                x.bias,
                state,
                x.cu,
                seq_lens_cpu=lens,
                cache_indices=slots,
                has_initial_state=has_state,
                activation="silu" if "silu" in row.features else None,
            ).T
            return y.split((row.q_dim, row.k_dim, row.v_dim), dim=1), x.state

        return run
