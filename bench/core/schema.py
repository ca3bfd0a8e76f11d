"""schema.py - one measurement as one JSON line: fields' names, their order, what is valid. No torch."""

import json
import math

OPS = ("gdn_prefill", "conv1d_qkv", "conv1d_qkv+gdn_prefill", "ceiling")
IMPLS = (  # in the order of a table's columns
    "fla", "flashqla", "flashinfer", "flashinfer-cp", "tileops", "tokenspeed", "sglang", "gemm", "copy",
    "bare-launch", "empty-kernel", "empty", "gdn-jit-generic", "gdn-jit-hopper", "gdn-jit-whole", "gdn-jit-invariant",
    "gdn-jit",
)
WORDS = {
    "dtype": ("bf16", "fp16", "f32"),
    "gates": ("decay", "mixed", "zero", "alike", "tileops", "repaired"),
    "method": ("graph", "kernel", "host"),
    "l2": ("cold", "warm"),
}
MAX_LISTED_LENS = 64
GDN = ("hq", "hk", "hv", "dk", "dv")
CONV = ("q_dim", "k_dim", "v_dim", "width")
NUMBER = (int, float)

FIELDS = {  # name -> type, in the order of a line
    "op": str,
    "impl": str,
    "dtype": str,
    "num_seqs": int,
    "tokens": int,
    **{f: int for f in GDN + CONV},
    "case": str,
    "lens": (list, str),
    "h0": bool,
    "state_dtype": str,
    "layout": str,
    "capacity": int,
    "gates": str,
    "features": list,
    "variant": str,
    "params": dict,
    "method": str,
    "l2": str,
    "median_us": NUMBER,
    "mad_us": NUMBER,
    "samples": int,
    "sustained_us": NUMBER,
    "apart_us": NUMBER,
    "ratio_to_copy": NUMBER,
    "tflops": NUMBER,
    "gbps": NUMBER,
    "err_o": NUMBER,
    "err_state": NUMBER,
    "maxabs_o": NUMBER,
    "maxabs_state": NUMBER,
    "floor_bytes": NUMBER,
    "first_ms": NUMBER,
    "clocks": dict,
    "note": str,
    "error": str,
    "gpu": str,
    "driver": str,
    "nvrtc": str,
    "versions": dict,
    "commit": str,
    "date": str,
    "param_bytes": int,
}
ALWAYS = ("op", "impl", "case", "gpu", "driver", "versions", "commit", "date")
MEASURED = ("method", "median_us", "mad_us", "samples")
SHAPES = {
    "gdn_prefill": ("dtype", "num_seqs", "tokens", "lens", *GDN),
    "conv1d_qkv": ("dtype", "num_seqs", "tokens", *CONV),
    "conv1d_qkv+gdn_prefill": ("dtype", "num_seqs", "tokens", "lens", *GDN),
    "ceiling": (),
}


def lens_field(lens):
    """The list, or its FNV-1a hash over 32-bit words when it is long; the C benchmarks write the same."""
    if len(lens) <= MAX_LISTED_LENS:
        return list(lens)
    value = 0xCBF29CE484222325
    for n in lens:
        value = (value ^ (n & 0xFFFFFFFF)) * 0x100000001B3 & (1 << 64) - 1
    return f"{value:016x}"


def problems(line, strict=True):
    """Sentences on what is wrong with a line. strict: also what a line of bench/run.py must have."""
    found = []
    for name, value in line.items():
        kind = FIELDS.get(name)
        if kind is None:
            found.append(f"unknown field {name!r}")
        elif not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            found.append(f"{name} is {value!r}: wrong type")
        elif name in WORDS and value not in WORDS[name]:
            found.append(f"{name} is {value!r}: one of {', '.join(WORDS[name])}")
    for name, known in (("op", OPS), ("impl", IMPLS)):
        if line.get(name) not in known:
            found.append(f"{name} is {line.get(name)!r}: one of {', '.join(known)}")
    if strict:
        needed = ALWAYS + (() if "error" in line else MEASURED) + SHAPES.get(line.get("op"), ())
        found += [f"{name} is missing" for name in needed if name not in line]
    for name in ("median_us", "sustained_us", "apart_us"):
        if name in line and isinstance(line[name], NUMBER) and not 0 < line[name] < 1e9:
            found.append(f"{name} is {line[name]}: a time in microseconds is positive")
    return found


def sentence(e):
    """What a line says of an exception, in its `error`."""
    return f"{type(e).__name__}: {' '.join(str(e).split())}"[:300]


def rounded(value):
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.5g}") if abs(value) < 1e5 else round(value, 1)
    return value


def write(path, line):
    """Appends a line; fields of None and NaN, which nobody measured, are left out. An infinite error is 1e999."""
    kept = {f: rounded(line[f]) for f in FIELDS if line.get(f) is not None and line[f] == line[f]}
    kept.update({f: v for f, v in line.items() if f not in FIELDS})  # problems() names them
    bad = problems(kept)
    if bad:
        raise ValueError("; ".join(bad))
    text = json.dumps(kept).replace("Infinity", "1e999")
    if path:
        with open(path, "a") as f:
            f.write(text + "\n")
    return kept


def read(paths):
    """Lines of results files; a line that is no JSON names its place."""
    lines = []
    for path in paths:
        with open(path) as f:
            for number, text in enumerate(f, 1):
                try:
                    if text.strip():
                        lines.append(json.loads(text))
                except ValueError as e:
                    raise ValueError(f"{path}:{number}: {e}") from None
    return lines
