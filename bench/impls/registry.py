"""registry.py - implementations by the name that --impl takes, imported when asked for."""

import importlib

MODULES = {
    "gdn-jit": "ours:Default",
    "gdn-jit-generic": "ours:Generic",
    "gdn-jit-hopper": "ours:Hopper",
    "gdn-jit-whole": "ours:Whole",
    "gdn-jit-invariant": "ours:Invariant",
    "copy": "copy:Copy",
    "fla": "fla:Fla",
    "flashqla": "flashqla:FlashQla",
    "flashinfer": "flashinfer:FlashInfer",
    "flashinfer-cp": "flashinfer:FlashInferCp",
    "tileops": "tileops:TileOps",
    "tokenspeed": "tokenspeed:TokenSpeed",
    "sglang": "sglang:Sglang",
}
INEXACT = ("tileops",)  # drops terms of the inverse: fast on inputs that forgive it, NaN on correlated keys


def load(name):
    if name not in MODULES:
        raise SystemExit(f"no implementation {name!r}: {', '.join(MODULES)}")
    module, cls = MODULES[name].split(":")
    return getattr(importlib.import_module(f"impls.{module}"), cls)()
