"""flashqla.py - FlashQLA. Variants: "auto" lets its own model decide on partitions, "off" forbids them, "forced"
makes them where the model refuses, "gates" shows the model the gates (opt-in there: it synchronises; built here once,
outside the call).
"""

import math

import torch

from .base import Impl, Unsupported

CHUNK = 64


class FlashQla(Impl):
    name = "flashqla"
    variants = ("auto", "off", "forced", "gates")
    launches = 12

    def __init__(self):
        import flash_qla
        from flash_qla.ops.gated_delta_rule.chunk.cp import build_cp_context
        from flash_qla.ops.gated_delta_rule.chunk.cp.autocp import decide

        self.call, self.version = flash_qla.chunk_gated_delta_rule, flash_qla.__version__
        self.context, self.decide = build_cp_context, decide
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def versions(self):
        import tilelang

        return {"flash_qla": self.version, "tilelang": tilelang.__version__}

    def decision(self, row, **kw):
        return self.decide(
            num_chunks=[math.ceil(n / CHUNK) for n in row.lens],
            num_v_heads=row.hv,
            P=self.sms,
            chunk=CHUNK,
            is_train=False,
            **kw,
        )

    def check(self, row, variant):
        if variant == "forced" and (self.decision(row)[0] or max(row.lens) < 16 * CHUNK):
            raise Unsupported("partitions by itself, or the row is too short to split")
        if variant == "gates" and max(row.lens) < 32768:
            raise Unsupported("timed only where sequences are long: the gates matter little elsewhere")

    def prepare(self, row, x, variant):
        q, k, v, g, beta = (t[None] for t in (x.q, x.k, x.v, x.g, x.beta))
        options = {"auto_cp": variant != "off"}
        if variant == "forced":
            options["force_intra_cp"] = True
        if variant == "gates":
            options["cp_context"] = self.context(x.cu, enable_intra=True, num_v_heads=row.hv, chunk_size=CHUNK, g=g)

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
                    cu_seqlens=x.cu,
                    **options,
                )
            return o[0], state

        return run

    def describe(self, row, x, variant):
        if variant in ("off", "forced"):
            return {}
        partition, chunks = self.decision(row, **({"g": x.g[None]} if variant == "gates" else {}))[:2]
        return dict(note=f"partitions of {chunks} chunks" if partition else "no partitions")
