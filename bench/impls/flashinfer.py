"""flashinfer.py - FlashInfer's SM90 prefill: linear gates alpha = exp(g), states [N, H, DV, DK].

use_cp chooses between one kernel ("flashinfer") and its partitioned path ("flashinfer-cp"); which one "auto" takes is
noted.
"""

import importlib.util

import torch

from .base import Impl


class FlashInfer(Impl):
    name = "flashinfer"
    partitioned = False
    launches = 8

    def __init__(self):
        import flashinfer
        from flashinfer.gdn_prefill import chunk_gated_delta_rule

        self.call, self.version = chunk_gated_delta_rule, flashinfer.__version__
        # Versions without it take the flag, and ignore it.
        self.norms = importlib.util.find_spec("flashinfer.gdn_kernels.qk_l2norm") is not None

    def versions(self):
        from importlib.metadata import version

        return {"flashinfer": self.version, "nvidia-cutlass-dsl": version("nvidia-cutlass-dsl")}

    def prepare(self, row, x, variant):
        alpha, longest = x.g.exp(), max(x.lens)
        h0 = None if x.h0 is None else x.h0.transpose(-1, -2).contiguous()

        def run():
            o, state = self.call(
                x.q,
                x.k,
                x.v,
                g=alpha,
                beta=x.beta,
                scale=x.scale,
                initial_state=h0,
                output_final_state=True,
                cu_seqlens=x.cu,
                use_cp=self.partitioned,
                max_seqlen=longest,
                use_qk_l2norm_in_kernel=row.normed,
            )
            return o, state.transpose(-1, -2)

        return run

    def describe(self, row, x, variant):
        from flashinfer.gdn_kernels.delta_rule_dsl.varlen_helper import should_use_cp_host

        gpu = torch.cuda.get_device_properties(0)
        auto = should_use_cp_host(len(row.lens) * row.hv, gpu.multi_processor_count, gpu.name, (gpu.major, gpu.minor))
        return dict(note="what auto takes") if auto == self.partitioned else {}


class FlashInferCp(FlashInfer):
    name = "flashinfer-cp"
    partitioned = True
