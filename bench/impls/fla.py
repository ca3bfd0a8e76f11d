"""fla.py - Flash Linear Attention's chunk_gated_delta_rule, its own Triton kernels.

FlashQLA must not be importable beside it: FLA hands its calls over where it is. FLA keys its index tables by the
identity of cu_seqlens, so that each row converts it once; a single dense sequence is passed without it.
"""

import os

import torch

from .base import Impl, forget_triton_tuning


def short_tuning():
    """FLA tunes at the first call of a key; shorter trials are enough to tell its configurations apart."""
    import triton.testing

    full = triton.testing.do_bench
    triton.testing.do_bench = lambda fn, **kw: full(fn, **{**kw, "warmup": 5, "rep": 15})


class Fla(Impl):
    name = "fla"
    launches = 12
    norms = True

    def __init__(self):
        os.environ["FLA_FLASH_QLA"] = "0"
        short_tuning()
        import fla
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        self.call, self.version, self.tables = chunk_gated_delta_rule, fla.__version__, (None, None, None)

    def before_timing(self):
        forget_triton_tuning()

    def versions(self):
        return {"fla": self.version}

    def prepare(self, row, x, variant):
        if self.tables[0] is not x.cu:
            self.tables = (x.cu, x.cu.long(), x.cu.long().cpu())
        cu, cu_cpu = self.tables[1:] if len(x.lens) > 1 else (None, None)
        q, k, v, g, beta = (t[None] for t in (x.q, x.k, x.v, x.g, x.beta))

        def run():
            with torch.no_grad():
                o, state = self.call(
                    q,
                    k,
                    v,
                    g,
                    beta,
                    scale=x.scale,
                    initial_state=x.h0,
                    output_final_state=True,
                    cu_seqlens=cu,
                    cu_seqlens_cpu=cu_cpu,
                    use_qk_l2norm_in_kernel=row.normed,
                )
            return o[0], state

        return run
