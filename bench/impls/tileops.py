"""tileops.py - TileOPs' production prefill: one dense sequence, as many k as v heads, no initial state, scale 1,
16-bit gates.

It sees g and beta rounded to q's type, and its errors are against the recurrence over those. Not exact: terms of the
inverse are dropped.
"""

import copy

import torch

from .base import Impl, Unsupported


class TileOps(Impl):
    name = "tileops"
    exact = False
    launches = 16

    def __init__(self):
        import tilelang
        from tileops.ops.linear_attention.gated_deltanet import GatedDeltaNetPrefillBTHDFwdOp

        self.op, self.version, self.made = GatedDeltaNetPrefillBTHDFwdOp, tilelang.__version__, {}

    def versions(self):
        return {"tileops": "52dbc08", "tilelang": self.version}

    def check(self, row, variant):
        if row.h0 or row.hk != row.hv or len(row.lens) > 1 or row.lens[0] % 64:
            raise Unsupported("takes one dense sequence of whole chunks, no initial state, equal head counts")

    def prepare(self, row, x, variant):
        key = (tuple(x.q.shape), x.q.dtype)
        if key not in self.made:
            self.made[key] = self.op(chunk_size=64)
        op = self.made[key]
        q = x.q if x.scale == 1.0 else (x.q.float() * x.scale).to(x.q.dtype)
        args = [t[None] for t in (q, x.k, x.v, x.g.to(x.q.dtype), x.beta.to(x.q.dtype))]

        def run():
            with torch.no_grad():
                o, state = op(*args)
            return o[0], state

        return run

    def seen(self, x):
        y = copy.copy(x)
        y.g, y.beta = x.g.to(x.q.dtype).float(), x.beta.to(x.q.dtype).float()
        if x.scale != 1.0:
            y.q, y.scale = (x.q.float() * x.scale).to(x.q.dtype), 1.0
        return y
