"""dropin: functions with the signatures that Python servers already call, on gdn_jit's operators.

    gdn_jit.dropin.fla.chunk_gated_delta_rule            flash-linear-attention 0.6
    gdn_jit.dropin.flashinfer.chunk_gated_delta_rule     FlashInfer 0.7, gdn_prefill
    gdn_jit.dropin.causal_conv1d.causal_conv1d_fn        Tri Dao's causal-conv1d
    gdn_jit.dropin.vllm.causal_conv1d_fn                 vLLM's, packed sequences and a pool of states

A keyword has the effect that it has there, or is refused by an Unsupported whose sentence names it and what to do
instead; none is ignored. python/README.md has the table. Imports torch; needs 2.4 or newer.
"""

from ..serving import close, configure, reserve
from . import causal_conv1d, fla, flashinfer, vllm
from .common import Unsupported

__all__ = ["Unsupported", "causal_conv1d", "close", "configure", "fla", "flashinfer", "reserve", "vllm"]
