"""gdn_jit: libgdnjit from Python, by ctypes over its C ABI. See python/README.md; the contract is gdn_jit.h."""

from .api import Call, Context, Plan, Target, current_stream, target_names, version
from .api import conv1d_qkv_support, prefill_support, reference_conv1d_qkv, reference_prefill
from .library import GdnError

__all__ = ["Call", "Context", "GdnError", "Plan", "Target", "current_stream", "target_names", "version"]
__all__ += ["conv1d_qkv_support", "prefill_support", "reference_conv1d_qkv", "reference_prefill"]
